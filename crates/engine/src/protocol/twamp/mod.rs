//! `twamp`: TWAMP with its control connection (RFC 5357), as routers and `twampd` speak it, in the mode without signatures.
//!
//! A TCP connection agrees on the UDP port of a reflector; the test packets are those of `twamp-light`. Messages of the control
//! connection are in `wire`, the server in `server`.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use serde_json::{Map, Value};

use super::stamp::{self, StampVariant};
use super::{
    CaseDraft, CaseError, ClientSession, ConnectContext, Flow, Protocol, ProtocolError, ReadyCase, Shorthand,
};
use crate::link::{Caps, Dialer, Fault, Link, LinkError, keep_alive, send_all};
use crate::transport::companion_stream;
use crate::workload::{FlowResult, ServerReport};
use linkgauge_model::endpoint::Endpoint;
use linkgauge_model::plan::WaitMode;

mod server;
pub(crate) mod wire;

use wire::{Accept, AcceptSession, TestSessionRequest};

/// The `twamp` protocol (RFC 5357).
pub(crate) const PROTOCOL: Protocol = Protocol {
    name: stamp::TWAMP_NAME,
    summary: "the same with a control connection, as routers and twampd speak it (RFC 5357)",
    default_ports: &[("udp", DEFAULT_PORT), ("tcp", DEFAULT_PORT)],
    options: &[],
    shorthand: Some(Shorthand { option: None }),
    prepare_case,
    connect,
    serve: Some(server::new_service),
    ..stamp::TWAMP_LIGHT
};

/// Port of control connections; our server has its reflector at the same number.
const DEFAULT_PORT: u16 = 862;

/// The option of an endpoint that chooses the address and port of this host.
const BIND_OPTION: &str = "bind";

fn prepare_case(case: &mut CaseDraft, caps: &Caps) -> Result<(), CaseError> {
    for endpoint in &case.endpoints {
        companion_stream(endpoint).map_err(|fault| CaseError::Link(format!("{endpoint}: {fault}")))?;
    }
    stamp::prepare_case(case, caps, StampVariant::Twamp)
}

fn connect(case: &ReadyCase, context: &ConnectContext) -> Result<Box<dyn ClientSession>, ProtocolError> {
    let mut controls = Vec::new();
    let mut sessions = stamp::SessionMaker::new(case, context, StampVariant::Twamp)?;
    for (number, endpoint) in case.endpoints.iter().enumerate() {
        let fault = |fault: Fault| ProtocolError::from(LinkError::new(endpoint, fault));
        let mut control = Control::open(endpoint, context.dialer)?;
        for flow in 0..case.parallel {
            let from = unused_address(endpoint, control.remote).map_err(fault)?;
            let port = control.request_session(from.port(), case.load.message_bytes)?;
            let target = endpoint
                .with_port(port)
                .and_then(|target| target.without_option(BIND_OPTION))
                .and_then(|target| target.with_option(BIND_OPTION, &from.to_string()))
                .map_err(|error| fault(error.into()))?;
            sessions.add(case.load.of_flow(flow), number, context.dialer.open(&target)?);
        }
        control.start_sessions()?;
        controls.push(control);
    }
    Ok(Box::new(TwampSession { measured: sessions.into_session(), controls }))
}

/// An address of this host from which datagrams can reach the remote, with a port that no program uses: the server must know it before
/// the first datagram.
fn unused_address(endpoint: &Endpoint, remote: SocketAddr) -> Result<SocketAddr, Fault> {
    if let Some(from) = endpoint.option(BIND_OPTION).and_then(|text| text.parse::<SocketAddr>().ok()) {
        return Ok(from);
    }
    let any = match remote {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let wanted = endpoint.option(BIND_OPTION).and_then(|text| text.parse().ok());
    let any = wanted.map_or(any, |ip| SocketAddr::new(ip, 0));
    UdpSocket::bind(any).and_then(|socket| socket.local_addr()).map_err(Fault::system("bind"))
}

/// The control connection to the server of an endpoint.
struct Control {
    endpoint: Endpoint,
    link: Box<dyn Link>,
    dialer: Dialer,
    remote: SocketAddr,
    sessions: u32,
}

impl Control {
    /// Connects, and agrees on the mode.
    fn open(endpoint: &Endpoint, dialer: &Dialer) -> Result<Control, ProtocolError> {
        let stream = companion_stream(endpoint).map_err(|fault| LinkError::new(endpoint, fault))?;
        let dialer = Dialer { wait: WaitMode::Block, ..dialer.clone() };
        let link = dialer.open(&stream)?;
        keep_alive(link.as_ref());
        let remote = crate::link::remote_address(link.as_ref());
        let Some(remote) = remote else {
            return Err(LinkError::new(endpoint, Fault::Closed).into());
        };
        let mut control = Control { endpoint: stream, link, dialer, remote, sessions: 0 };
        let modes = wire::read_modes(&control.receive()?);
        if modes & wire::OPEN_MODE == 0 {
            return Err(control.refused(match modes {
                0 => "the server wants no connection from this host: see its list of allowed clients"
                    .to_owned(),
                _ => {
                    format!("the server has no open mode (its modes are {modes}), and linkgauge no other one")
                }
            }));
        }
        control.send(&wire::set_up())?;
        let start = wire::read_server_start(&control.receive()?);
        control.check(start, "the open mode")?;
        Ok(control)
    }

    /// Requests a session for packets of this size; returns the UDP port of its reflector.
    fn request_session(&mut self, sender_port: u16, message_bytes: u32) -> Result<u16, ProtocolError> {
        let request = TestSessionRequest {
            is_ipv6: self.remote.is_ipv6(),
            sender_port,
            receiver_port: self.remote.port(),
            padding_bytes: message_bytes.saturating_sub(stamp::packet::MIN_REQUEST_BYTES as u32),
            timeout_seconds: self.dialer.timeout.as_secs().clamp(1, 60) as u32,
        };
        self.send(&request.encode())?;
        let reply = AcceptSession::decode(&self.receive()?);
        self.check(reply.accept, "a test session")?;
        self.sessions += 1;
        Ok(if reply.port == 0 { request.receiver_port } else { reply.port })
    }

    fn start_sessions(&mut self) -> Result<(), ProtocolError> {
        self.send(&wire::start_sessions())?;
        let ack = wire::read_start_ack(&self.receive()?);
        self.check(ack, "the start of the session")
    }

    /// Ends the sessions. A server that has gone needs no end.
    fn stop_sessions(&mut self) {
        let _ = self.send(&wire::stop_sessions(self.sessions));
    }

    fn check(&self, accept: Accept, what: &str) -> Result<(), ProtocolError> {
        if accept == Accept::OK { Ok(()) } else { Err(self.refused(format!("{what}: {}", accept.reason()))) }
    }

    fn refused(&self, reason: String) -> ProtocolError {
        self.error(Fault::Refused(reason))
    }

    fn error(&self, fault: Fault) -> ProtocolError {
        LinkError::new(&self.endpoint, fault).into()
    }

    fn send(&mut self, message: &[u8]) -> Result<(), ProtocolError> {
        send_all(self.link.as_mut(), message, self.dialer.timeout).map_err(|fault| self.error(fault))
    }

    /// A message of the server.
    fn receive<const BYTES: usize>(&mut self) -> Result<[u8; BYTES], ProtocolError> {
        let (mut message, mut filled) = ([0; BYTES], 0);
        let until = self.dialer.now() + self.dialer.timeout;
        while filled < BYTES {
            let left = until.since(self.dialer.now());
            let received = self.dialer.receive(self.link.as_mut(), &mut message[filled..], left);
            filled += match received {
                Ok(bytes) => bytes,
                Err(Fault::TimedOut) if filled > 0 => {
                    let what =
                        "its message is incomplete: check that it speaks TWAMP with a control connection";
                    return Err(ProtocolError::unexpected_reply(&self.endpoint, what));
                }
                Err(fault) => return Err(self.error(fault)),
            };
        }
        Ok(message)
    }
}

struct TwampSession {
    measured: stamp::StampSession,
    controls: Vec<Control>,
}

impl ClientSession for TwampSession {
    fn take_flows(&mut self) -> Vec<Flow> {
        self.measured.take_flows()
    }

    fn finish(
        &mut self,
        flows: &[FlowResult],
        links: Vec<Box<dyn Link>>,
    ) -> Result<Option<ServerReport>, ProtocolError> {
        self.controls.iter_mut().for_each(Control::stop_sessions);
        self.measured.finish(flows, links)
    }

    fn effective_settings(&self) -> Map<String, Value> {
        self.measured.effective_settings()
    }
}

#[cfg(test)]
mod tests;
