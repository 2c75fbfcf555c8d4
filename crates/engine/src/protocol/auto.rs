//! `auto`: detects the protocol of the server before the measurement.
//!
//! Sends one hello and waits for a reply of the same length. A session continues on that connection. Sends nothing to endpoints that may have an unknown
//! device: there the protocol is `echo`, unless the plan names another.

use std::io::ErrorKind;
use std::time::Duration;

use super::linkgauge::{self, GreetedConnection, try_times};
use super::{CaseError, ConnectionCache, PROTOCOLS, Protocol, ProtocolError, find_protocol};
use crate::link::{Caps, Dialer, Fault, Framing, Link, LinkError, SILENT_REMEDY, rfc2217};
use linkgauge_model::clock::Time;
use linkgauge_model::endpoint::Endpoint;
use linkgauge_model::plan::WaitMode;

/// The name that selects detection in a plan.
pub(crate) const NAME: &str = "auto";

/// The protocol of a case until it is detected. It lists no traffic, so a case may have any workload and direction; the
/// detected protocol decides.
pub(crate) static UNDETECTED: Protocol = Protocol {
    name: NAME,
    summary: "detects what the server speaks",
    default_ports: &[],
    traffic: &[],
    options: &[],
    sizes: &[],
    is_measured_whole: false,
    original_server: None,
    prepare_case: |case, caps| {
        // As for the protocol that is expected.
        case.plan_idle_times(caps);
        Ok(())
    },
    connect: |case, context| {
        let protocol = detect(&case.endpoints[0], context.dialer, context.connection_cache)?;
        (protocol.connect)(case, context)
    },
    serve: None,
};

/// Detects the protocol at `endpoint`. The connection to a linkgauge server is left in `connections`.
///
/// # Errors
///
/// The link cannot be opened or fails, or the server replies neither to a hello nor with an echo.
pub(crate) fn detect(
    endpoint: &Endpoint,
    dialer: &Dialer,
    connections: &ConnectionCache,
) -> Result<&'static Protocol, ProtocolError> {
    let named = |name: &str| {
        find_protocol(name).ok_or_else(|| CaseError::Option(format!("no protocol {name}")).into())
    };
    let caps = crate::link::endpoint_caps(endpoint).map_err(|fault| LinkError::new(endpoint, fault))?;
    if caps.is_device {
        return named("echo");
    }
    let dialer = &Dialer { wait: WaitMode::Block, ..dialer.clone() };
    let hello = linkgauge::Hello::new();
    let mut link = dialer.open(endpoint)?;
    let mut tried_at = dialer.now();
    let probed = probe(link.as_mut(), &caps, hello.bytes(), dialer, &mut tried_at);
    let (reply, silence) = match probed {
        Ok(probed) => probed,
        // Some servers reset the connection after input that they do not understand.
        Err(Fault::System { source, .. }) if source.kind() == ErrorKind::ConnectionReset => {
            (Vec::new(), NoReply::Closed)
        }
        // Servers that open the port of a test only once it was agreed on.
        Err(Fault::System { source, .. })
            if source.kind() == ErrorKind::ConnectionRefused && !protocols_of_port(endpoint).is_empty() =>
        {
            let text = format!(
                "connection refused: some servers open this port for a test only. {}",
                advice(endpoint)
            );
            return Err(ProtocolError::unexpected_reply(endpoint, text));
        }
        Err(fault) => return Err(LinkError::new(endpoint, fault).into()),
    };
    if reply.is_empty()
        && let Some(fault) = dialer.diagnose_silence(endpoint)
    {
        let fault = match fault.is_silence() {
            true => Fault::NoReply(format!("{fault}{SILENT_REMEDY}. {}", advice_on_silence(endpoint))),
            false => fault,
        };
        return Err(LinkError::new(endpoint, fault).into());
    }
    if let Some(challenge) = hello.challenge_in(&reply).map(<[u8]>::to_vec) {
        let name = GreetedConnection::cache_name(endpoint);
        let round_trip = dialer.now() - tried_at;
        connections.store(name, GreetedConnection { link, hello, challenge, round_trip });
        return named("linkgauge");
    }
    if reply == hello.bytes() {
        return named("echo");
    }
    Err(ProtocolError::unexpected_reply(endpoint, describe_failure(endpoint, &reply, silence)))
}

/// Whether the host can be reached but has no server of linkgauge there, as far as can be seen.
pub fn lacks_server(endpoint: &Endpoint, dialer: &Dialer) -> bool {
    match detect(endpoint, dialer, &ConnectionCache::default()) {
        Err(ProtocolError::UnexpectedReply { .. }) => true,
        Err(ProtocolError::Link(LinkError { fault, .. })) => match &fault {
            Fault::System { source, .. } => {
                source.kind() == ErrorKind::ConnectionRefused || fault.is_silence()
            }
            Fault::Unreachable(_) | Fault::Closed | Fault::NoReply(_) => true,
            _ => false,
        },
        _ => false,
    }
}

/// How a server failed to reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NoReply {
    /// The connection is still open, or the link has none.
    Open,
    Closed,
}

/// Sends a hello. Returns up to as many bytes of the reply, and how the server failed to reply, if it did. Stores when the last try
/// began.
fn probe(
    link: &mut dyn Link,
    caps: &Caps,
    hello: &[u8],
    dialer: &Dialer,
    tried_at: &mut Time,
) -> Result<(Vec<u8>, NoReply), Fault> {
    let mut silence = NoReply::Open;
    let mut reply = Vec::new();
    let mut chunk = vec![0; caps.max_message_bytes.unwrap_or(hello.len()).max(hello.len())];
    for wait in try_times(caps, dialer.timeout) {
        *tried_at = dialer.now();
        let mut sent = 0;
        while sent < hello.len() {
            sent += link.send(&hello[sent..], dialer.timeout)?;
        }
        let until = dialer.now() + wait;
        while reply.len() < hello.len() {
            let left = until.since(dialer.now());
            if left == Duration::ZERO {
                break;
            }
            let room = if caps.framing == Framing::Stream { hello.len() - reply.len() } else { chunk.len() };
            match dialer.receive(link, &mut chunk[..room], left) {
                Ok(length) => reply.extend_from_slice(&chunk[..length]),
                Err(Fault::TimedOut) => break,
                Err(Fault::Closed) => {
                    silence = NoReply::Closed;
                    break;
                }
                Err(fault) => return Err(fault),
            }
            if caps.framing == Framing::Message {
                break;
            }
        }
        if !reply.is_empty() {
            break;
        }
    }
    Ok((reply, silence))
}

/// Bytes of an unknown reply to show: enough to recognise the program that sent it.
const MAX_SHOWN_BYTES: usize = 16;

/// The protocols whose default port is that of the endpoint.
fn protocols_of_port(endpoint: &Endpoint) -> Vec<&'static str> {
    let Ok((_, Some(port))) = endpoint.host_port() else { return Vec::new() };
    let uses = |protocol: &&Protocol| protocol.default_ports.contains(&(endpoint.scheme(), port));
    PROTOCOLS.iter().filter(uses).map(|protocol| protocol.name).collect()
}

/// The protocol to suggest: that of the port, if there is one.
fn advice(endpoint: &Endpoint) -> String {
    let port = endpoint.host_port().ok().and_then(|(_, port)| port).unwrap_or_default();
    match protocols_of_port(endpoint).as_slice() {
        [] => {
            let names: Vec<&str> = PROTOCOLS.iter().map(|protocol| protocol.name).collect();
            format!("Choose its protocol with --protocol ({})", names.join(", "))
        }
        names => {
            format!("Port {port} is that of {}: try --protocol {}", names.join(" and "), names.join(" or "))
        }
    }
}

/// The same, without a list of all protocols: the server may not be there at all.
fn advice_on_silence(endpoint: &Endpoint) -> String {
    match protocols_of_port(endpoint).is_empty() {
        true => "If it speaks another protocol, choose that with --protocol".to_owned(),
        false => advice(endpoint),
    }
}

/// Describes the failed detection in one line.
fn describe_failure(endpoint: &Endpoint, reply: &[u8], silence: NoReply) -> String {
    if reply.is_empty() {
        // A server that accepts a connection is there.
        let is_stream =
            crate::link::endpoint_caps(endpoint).is_ok_and(|caps| caps.framing == Framing::Stream);
        let choose = if is_stream { advice(endpoint) } else { advice_on_silence(endpoint) };
        let how = match silence {
            NoReply::Open => "no reply: the server is silent",
            NoReply::Closed => {
                "no reply: the server closed the connection. It is busy, or uses another protocol"
            }
        };
        return format!("{how}. {choose}");
    }
    if rfc2217::begins_with_telnet(reply)
        && let Some(url) = rfc2217::telnet_url(endpoint)
    {
        return format!(
            "the port speaks Telnet, as that of a device server does (RFC 2217): write {url}, with the rate of its line"
        );
    }
    let choose = advice(endpoint);
    let mut first = String::new();
    for &byte in reply.iter().take(MAX_SHOWN_BYTES) {
        match byte {
            b' '..=b'~' => first.push(char::from(byte)),
            _ => first.extend(byte.escape_ascii().map(char::from)),
        }
    }
    let more = if reply.len() > MAX_SHOWN_BYTES { "…" } else { "" };
    format!("the server is neither linkgauge nor an echo: it sent '{first}{more}'. {choose}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_is_known_names_its_protocol() {
        let describe =
            |url: &str, reply: &[u8]| describe_failure(&url.parse().unwrap(), reply, NoReply::Open);
        insta::assert_snapshot!(
            [
                describe("tcp://a:5201", b""),
                describe("tcp://a:11111", b"x"),
                describe("tcp://a:18767", b""),
                describe("udp://a:862", b""),
                describe("tcp://a:6785", b"\xbd"),
                describe("udp://a:2112", b""),
            ]
            .join("\n"),
            @r"
        no reply: the server is silent. Port 5201 is that of iperf3: try --protocol iperf3
        the server is neither linkgauge nor an echo: it sent 'x'. Port 11111 is that of sockperf: try --protocol sockperf
        no reply: the server is silent. Port 18767 is that of netio: try --protocol netio
        no reply: the server is silent. Port 862 is that of stamp and twamp-light: try --protocol stamp or twamp-light
        the server is neither linkgauge nor an echo: it sent '\xbd'. Port 6785 is that of pakbus: try --protocol pakbus
        no reply: the server is silent. Port 2112 is that of irtt: try --protocol irtt
        "
        );
        assert!(
            describe("tcp://a:7", b"SSH-")
                .ends_with("it sent 'SSH-'. Port 7 is that of echo: try --protocol echo")
        );
        assert!(
            describe("tcp://a:22", b"SSH-")
                .contains("Choose its protocol with --protocol (linkgauge, echo, ")
        );
    }
}
