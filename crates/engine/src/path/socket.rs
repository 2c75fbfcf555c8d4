//! Sending hop-limited probes and receiving what routers and the host say about them.
//!
//! A flow has one socket, or one port, for all of its hops, so that routers which choose among equal-cost paths by the ports choose the
//! same one for all of its probes. The number of a probe is in its payload, and in the sequence number of an echo request, whose data
//! make up for it in the checksum. Bytes of replies come from any host: they say only which probe under way they belong to.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};

use super::prober::{Probe, ProbeReply, ProbeReplyKind};
use crate::link::{Dialer, Fault, OpenContext};
use crate::transport::ProbeKind;
use crate::transport::icmp::{IcmpSocketKind, keep_own_replies, open_socket, parse_reply, write_request};
use crate::transport::internet::{EndpointRole, IpOptions, resolve_addresses};
use linkgauge_model::clock::{Clock, Time};
use linkgauge_model::endpoint::Endpoint;
use linkgauge_system::{self as system, Blocking, BorrowedHandle, Errno, IpFamily, PollFlags, QuotedError};

/// The hop limit of packets that are to reach the host.
const MAX_HOPS: u8 = 255;

/// Whether a packet has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    Whole,
    /// The local interface carries at most this.
    TooBig(u32),
}

/// Bytes of the payload of a probe: number, nonce, filling.
const PAYLOAD_BYTES: usize = 32;

/// Bytes of a reply that are read: header and number of the probe.
const REPLY_BYTES: usize = 128;

/// The first call after an error report may fail with that error.
const SEND_ATTEMPTS: u32 = 4;

/// Settings that the sockets of a path have in common.
#[derive(Debug, Clone)]
pub(crate) struct ProbeTarget {
    pub(crate) address: SocketAddr,
    pub(crate) kind: ProbeKind,
    pub(crate) ip: IpOptions,
}

/// The sender and receiver of a flow.
#[derive(Debug)]
pub(crate) struct ProbeSocket {
    target: ProbeTarget,
    flow: u32,
    /// Socket of UDP or ICMP probes; for TCP it only keeps the port.
    socket: Socket,
    /// The connection that is being opened, and its probe.
    opening: Option<(Socket, u32)>,
    icmp_kind: Option<IcmpSocketKind>,
    identifier: u16,
    nonce: [u8; 8],
    last_number: u32,
    packet: Vec<u8>,
}

impl ProbeSocket {
    /// A socket for a flow.
    pub(crate) fn open(target: &ProbeTarget, flow: u32) -> Result<ProbeSocket, Fault> {
        let domain = Domain::for_address(target.address);
        let identifier = fastrand::u16(1..);
        let (socket, icmp_kind) = match target.kind {
            ProbeKind::Udp => (Socket::new(domain, Type::DGRAM, Some(Protocol::UDP)), None),
            ProbeKind::Tcp => (Socket::new(domain, Type::STREAM, Some(Protocol::TCP)), None),
            ProbeKind::Icmp => {
                let (socket, kind) = open_socket(domain, None)?;
                if kind == IcmpSocketKind::Raw {
                    keep_own_replies(&socket, target.family(), identifier)?;
                }
                (Ok(socket), Some(kind))
            }
        };
        let socket = socket.map_err(Fault::system("open a socket"))?;
        target.prepare(&socket)?;
        if target.kind == ProbeKind::Tcp {
            bind_to(&socket, target.any_port()).map_err(Fault::system("bind a port"))?;
        } else {
            // Stamps are a gain where the system has them.
            let _ = system::stamp_on_request(&socket);
            target.ip.bind(&socket, target.address)?;
            socket.connect(&target.address.into()).map_err(Fault::system("connect"))?;
            system::prepare_socket(&socket).map_err(Fault::system("prepare the socket"))?;
        }
        let nonce = fastrand::u64(..).to_be_bytes();
        Ok(ProbeSocket {
            target: target.clone(),
            flow,
            socket,
            opening: None,
            icmp_kind,
            identifier,
            nonce,
            last_number: 0,
            packet: Vec::with_capacity(PAYLOAD_BYTES),
        })
    }

    /// The handle to wait for, and for what.
    pub(crate) fn readiness(&self) -> (BorrowedHandle<'_>, PollFlags) {
        match &self.opening {
            Some((opening, _)) => (system::AsHandle::as_handle(opening), PollFlags::OUT),
            // Errors are reported unasked.
            None if self.target.kind == ProbeKind::Tcp => {
                (system::AsHandle::as_handle(&self.socket), PollFlags::empty())
            }
            None => (system::AsHandle::as_handle(&self.socket), PollFlags::IN),
        }
    }

    /// Sends a probe.
    pub(crate) fn send(&mut self, probe: &Probe) -> Result<Sent, Fault> {
        if self.target.kind == ProbeKind::Tcp {
            return self.begin_opening(probe).map(|()| Sent::Whole);
        }
        let header_bytes = self.header_bytes();
        self.send_sized(probe.number, header_bytes + PAYLOAD_BYTES as u32, Some(probe.hop))
    }

    /// Sends a probe as an IP packet of this size.
    pub(crate) fn send_sized(&mut self, number: u32, bytes: u32, hop: Option<u8>) -> Result<Sent, Fault> {
        self.last_number = number;
        let family = self.target.family();
        set_hop_limit(&self.socket, family, hop.unwrap_or(MAX_HOPS)).map_err(Fault::system("set the ttl"))?;
        self.write_packet(number, bytes.saturating_sub(self.header_bytes()) as usize);
        let mut refusal = Errno::IO;
        for _ in 0..SEND_ATTEMPTS {
            match system::send(&self.socket, &self.packet, Blocking::Never) {
                // A full queue of this host loses the probe.
                Ok(_) | Err(Errno::NOBUFS | Errno::AGAIN) => return Ok(Sent::Whole),
                Err(Errno::MSGSIZE) => match self.take_local_limit() {
                    Some(mtu) => return Ok(Sent::TooBig(mtu)),
                    None => refusal = Errno::MSGSIZE,
                },
                Err(errno) => refusal = errno,
            }
        }
        Err(Fault::System { operation: "send", source: refusal.into() })
    }

    /// The MTU of the local interface, which has refused a packet.
    fn take_local_limit(&self) -> Option<u32> {
        let quoted = system::take_quoted_error(&self.socket, self.target.family(), &mut [])?;
        quoted.mtu_bytes.filter(|_| quoted.error.icmp_type_code.is_none())
    }

    /// Sends packets whole or not at all.
    pub(crate) fn forbid_fragments(&self) -> io::Result<()> {
        system::set_path_mtu_probing(&self.socket, self.target.family())
    }

    /// Bytes of the headers before the payload.
    fn header_bytes(&self) -> u32 {
        // UDP and ICMP have headers of one size.
        const TRANSPORT_BYTES: u32 = 8;
        TRANSPORT_BYTES + if self.target.family() == IpFamily::V4 { 20 } else { 40 }
    }

    fn write_packet(&mut self, number: u32, payload_bytes: usize) {
        let mut payload = match self.icmp_kind {
            // The number and its complement have the same sum in all packets of the flow.
            Some(_) => [&(!(number as u16)).to_be_bytes()[..], &self.nonce].concat(),
            None => payload_of(number, self.nonce).to_vec(),
        };
        payload.resize(payload_bytes, 0);
        if self.icmp_kind.is_some() {
            let family = self.target.family();
            write_request(&mut self.packet, family, self.identifier, number as u16, &payload);
        } else {
            self.packet = payload;
        }
    }

    fn begin_opening(&mut self, probe: &Probe) -> Result<(), Fault> {
        self.close_opening();
        let domain = Domain::for_address(self.target.address);
        let socket =
            Socket::new(domain, Type::STREAM, Some(Protocol::TCP)).map_err(Fault::system("open a socket"))?;
        self.target.prepare(&socket)?;
        set_hop_limit(&socket, self.target.family(), probe.hop).map_err(Fault::system("set the ttl"))?;
        let own = self.socket.local_addr().map_err(Fault::system("read the port"))?;
        let own = own.as_socket().unwrap_or_else(|| self.target.any_port());
        bind_to(&socket, own).map_err(Fault::system("bind a port"))?;
        socket.set_nonblocking(true).map_err(Fault::system("stop blocking"))?;
        match socket.connect(&self.target.address.into()) {
            Err(error) if is_fatal(&error) => Err(Fault::System { operation: "connect", source: error }),
            // A probe that is not under way has its result already.
            _ => {
                self.opening = Some((socket, probe.number));
                Ok(())
            }
        }
    }

    /// Ends the opening of a connection: one that is open is reset.
    fn close_opening(&mut self) {
        if let Some((socket, _)) = self.opening.take() {
            let _ = socket.set_linger(Some(std::time::Duration::ZERO));
        }
    }

    /// Takes the replies that are there.
    pub(crate) fn take_replies(&mut self, clock: &Clock, each: &mut dyn FnMut(ProbeReply)) {
        if self.target.kind == ProbeKind::Tcp {
            if let Some(reply) = self.opening_reply(clock.now()) {
                self.close_opening();
                each(reply);
            }
            return;
        }
        let mut bytes = [0; REPLY_BYTES];
        let family = self.target.family();
        while let Some(quoted) = system::take_quoted_error(&self.socket, family, &mut bytes) {
            let quote = &bytes[..quoted.quoted_bytes.min(REPLY_BYTES)];
            let number = self.number_in_quote(quote);
            if let Some(reply) = number.and_then(|number| self.reply_to_error(&quoted, number, clock)) {
                each(reply);
            }
        }
        while let Ok((length, info)) = system::receive_with_info(&self.socket, &mut bytes, Blocking::Never) {
            if let Some(number) = self.number_in_answer(&bytes[..length.min(REPLY_BYTES)]) {
                let at = arrival(clock, info.arrived_wall_ns);
                let from = self.target.address.ip();
                each(ProbeReply {
                    number: Some(number),
                    flow: self.flow,
                    from,
                    kind: ProbeReplyKind::Reached,
                    at,
                });
            }
        }
    }

    /// The result of the opening, if there is one.
    fn opening_reply(&mut self, now: Time) -> Option<ProbeReply> {
        let (socket, number) = self.opening.as_ref()?;
        let reply = |from, kind| ProbeReply { number: Some(*number), flow: self.flow, from, kind, at: now };
        if let Some(quoted) = system::take_quoted_error(socket, self.target.family(), &mut []) {
            return self.reply_to_error(&quoted, Some(*number), &Clock::System);
        }
        let has_ended = system::poll(&mut [system::watch(socket, PollFlags::OUT)], std::time::Duration::ZERO);
        if has_ended.is_ok_and(|count| count > 0) {
            let is_reply = match socket.take_error() {
                Ok(None) => socket.peer_addr().is_ok(),
                Ok(Some(error)) => error.kind() == io::ErrorKind::ConnectionRefused,
                Err(_) => false,
            };
            return is_reply.then(|| reply(self.target.address.ip(), ProbeReplyKind::Reached));
        }
        None
    }

    fn reply_to_error(&self, quoted: &QuotedError, number: Option<u32>, clock: &Clock) -> Option<ProbeReply> {
        let from = quoted.error.from?;
        let kind = match quoted.mtu_bytes {
            Some(mtu) => ProbeReplyKind::TooBig(mtu),
            None => kind_of_error(self.target.family(), quoted.error.icmp_type_code?)?,
        };
        // A host that refuses has the probe.
        let is_host = kind == ProbeReplyKind::Refused && from == self.target.address.ip();
        let kind = if is_host { ProbeReplyKind::Reached } else { kind };
        Some(ProbeReply { number, flow: self.flow, from, kind, at: arrival(clock, quoted.arrived_wall_ns) })
    }

    /// The number of the probe that an error quotes: `Some(None)` if the quote ends before it, `None` if it is not ours.
    fn number_in_quote(&self, quote: &[u8]) -> Option<Option<u32>> {
        match self.icmp_kind {
            Some(kind) => match quote {
                // A raw socket gets the errors of all programs.
                [_, _, _, _, id @ .., _, _]
                    if kind == IcmpSocketKind::Raw && !id.starts_with(&self.identifier.to_be_bytes()) =>
                {
                    None
                }
                [_, _, _, _, _, _, high, low, ..] => {
                    Some(self.whole_number(u16::from_be_bytes([*high, *low])))
                }
                _ => Some(None),
            },
            None => match number_in_payload(quote, self.nonce) {
                QuotedNumber::Number(number) => Some(Some(number)),
                QuotedNumber::TooShort => Some(None),
                QuotedNumber::Foreign => None,
            },
        }
    }

    /// The number of the probe that a message of the destination answers.
    fn number_in_answer(&self, bytes: &[u8]) -> Option<u32> {
        match self.icmp_kind {
            Some(kind) => {
                let identifier = (kind == IcmpSocketKind::Raw).then_some(self.identifier);
                let (sequence, data) = parse_reply(bytes, self.target.family(), identifier)?;
                let is_ours = data.get(2..10).is_some_and(|nonce| nonce == self.nonce);
                self.whole_number(sequence).filter(|_| is_ours)
            }
            None => match number_in_payload(bytes, self.nonce) {
                QuotedNumber::Number(number) => Some(number),
                _ => None,
            },
        }
    }

    /// The number of a probe whose lower half this is: the last one that was sent.
    fn whole_number(&self, sequence: u16) -> Option<u32> {
        let age = (self.last_number as u16).wrapping_sub(sequence);
        self.last_number.checked_sub(u32::from(age))
    }
}

impl ProbeTarget {
    /// Looks for the address of an endpoint.
    pub(crate) fn resolve(
        endpoint: &Endpoint,
        kind: ProbeKind,
        default_port: u16,
        dialer: &Dialer,
    ) -> Result<ProbeTarget, Fault> {
        let context = OpenContext { default_port: Some(default_port), ..dialer.open_context() };
        let addresses = resolve_addresses(endpoint, &context, EndpointRole::Open)?;
        let ip = IpOptions::from_endpoint(endpoint)?;
        let address =
            *addresses.first().ok_or_else(|| Fault::NotFound("the name has no address".to_owned()))?;
        Ok(ProbeTarget { address, kind, ip })
    }

    pub(crate) fn family(&self) -> IpFamily {
        IpFamily::of_address(self.address.ip())
    }

    /// A free port of any address.
    fn any_port(&self) -> SocketAddr {
        let any = match self.address {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        SocketAddr::new(self.ip.bind_ip().unwrap_or(any), 0)
    }

    /// The options of every socket.
    pub(crate) fn prepare(&self, socket: &Socket) -> Result<(), Fault> {
        self.ip.apply(socket, self.address.ip())?;
        system::set_receive_errors(socket, self.family(), true).map_err(Fault::system("receive errors"))
    }
}

fn set_hop_limit(socket: &Socket, family: IpFamily, hop: u8) -> io::Result<()> {
    match family {
        IpFamily::V4 => socket.set_ttl_v4(hop.into()),
        IpFamily::V6 => socket.set_unicast_hops_v6(hop.into()),
    }
}

/// Binds a port that another socket of ours may have as well.
fn bind_to(socket: &Socket, own: SocketAddr) -> io::Result<()> {
    socket.set_reuse_address(true)?;
    socket.bind(&own.into())
}

/// Whether no reply can follow.
fn is_fatal(error: &io::Error) -> bool {
    use io::ErrorKind::{AddrInUse, AddrNotAvailable, InvalidInput, PermissionDenied};
    matches!(error.kind(), AddrInUse | AddrNotAvailable | InvalidInput | PermissionDenied)
}

/// Arrival time of a message: by the stamp of the system, if there is one.
fn arrival(clock: &Clock, arrived_wall_ns: Option<i64>) -> Time {
    let now = clock.now();
    let age_ns = arrived_wall_ns.map_or(0, |arrived| system::wall_ns().saturating_sub(arrived).max(0));
    Time(now.0.saturating_sub(age_ns as u64))
}

/// Meaning of an ICMP error.
pub fn kind_of_error(family: IpFamily, type_code: (u8, u8)) -> Option<ProbeReplyKind> {
    match (family, type_code) {
        (IpFamily::V4, (11, 0)) | (IpFamily::V6, (3, 0)) => Some(ProbeReplyKind::Expired),
        (IpFamily::V4, (3, 3)) | (IpFamily::V6, (1, 4)) => Some(ProbeReplyKind::Reached),
        (IpFamily::V4, (3, _)) | (IpFamily::V6, (1, _)) => Some(ProbeReplyKind::Refused),
        _ => None,
    }
}

/// The begin of the payload of a datagram.
pub(crate) fn payload_of(number: u32, nonce: [u8; 8]) -> [u8; 12] {
    let mut payload = [0; 12];
    payload[..4].copy_from_slice(&number.to_be_bytes());
    payload[4..].copy_from_slice(&nonce);
    payload
}

/// Number of a probe, as the begin of a payload quotes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuotedNumber {
    /// The number of the probe.
    Number(u32),
    /// The quote ends before the number.
    TooShort,
    /// The payload is not that of a probe of this flow.
    Foreign,
}

/// Reads the number in a payload, of which only the begin may be there.
pub fn number_in_payload(bytes: &[u8], nonce: [u8; 8]) -> QuotedNumber {
    let Some((number, rest)) = bytes.split_first_chunk::<4>() else { return QuotedNumber::TooShort };
    let quoted = &rest[..rest.len().min(nonce.len())];
    if nonce.starts_with(quoted) {
        QuotedNumber::Number(u32::from_be_bytes(*number))
    } else {
        QuotedNumber::Foreign
    }
}

#[cfg(test)]
mod tests;
