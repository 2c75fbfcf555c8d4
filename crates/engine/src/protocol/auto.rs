//! `auto`: detects the protocol of the server before the measurement.
//!
//! Sends one hello and waits for a reply of the same length. A session continues on that connection. Sends nothing to endpoints
//! that may have an unknown device: there the protocol is `echo`, unless the plan names another.

use std::io::ErrorKind;
use std::time::Duration;

use super::linkgauge::{self, GreetedConnection, try_times};
use super::unknown_server::{NoReply, advice, advice_on_silence, describe_reply, protocols_of_port};
use super::{CaseError, ConnectionCache, Protocol, ProtocolError, Registry};
use crate::link::{Caps, Dialer, Fault, Framing, Link, LinkError, SILENT_REMEDY, send_all};
use linkgauge_model::clock::Time;
use linkgauge_model::endpoint::Endpoint;
use linkgauge_model::plan::WaitMode;

/// Name that selects detection in a plan.
pub(crate) const NAME: &str = "auto";

/// Protocol of a case until it is detected. It lists no traffic, so a case may have any workload and direction; the
/// detected protocol decides.
pub(crate) static UNDETECTED: Protocol = Protocol {
    name: NAME,
    summary: "detects what the server speaks",
    default_ports: &[],
    traffic: &[],
    options: &[],
    sizes: &[],
    is_measured_whole: false,
    shorthand: None,
    original_server: None,
    prepare_case: |case, caps| {
        // As for the protocol that is expected.
        case.plan_idle_times(caps);
        Ok(())
    },
    connect: |case, context| {
        let protocol = detect(&case.endpoints[0], case.registry, context.dialer, context.connection_cache)?;
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
    registry: &Registry,
    dialer: &Dialer,
    connections: &ConnectionCache,
) -> Result<&'static Protocol, ProtocolError> {
    let named = |name: &str| {
        registry.protocol(name).ok_or_else(|| CaseError::Option(format!("no protocol {name}")).into())
    };
    let caps = registry.transports.caps(endpoint).map_err(|fault| LinkError::new(endpoint, fault))?;
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
            if source.kind() == ErrorKind::ConnectionRefused
                && !protocols_of_port(registry, endpoint).is_empty() =>
        {
            let text = format!(
                "connection refused: some servers open this port for a test only. {}",
                advice(registry, endpoint)
            );
            return Err(ProtocolError::unexpected_reply(endpoint, text));
        }
        Err(fault) => return Err(LinkError::new(endpoint, fault).into()),
    };
    if reply.is_empty()
        && let Some(fault) = dialer.diagnose_silence(endpoint)
    {
        let fault = match fault.is_silence() {
            true => {
                Fault::NoReply(format!("{fault}{SILENT_REMEDY}. {}", advice_on_silence(registry, endpoint)))
            }
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
    let what = describe_reply(registry, endpoint, &reply, ("neither linkgauge nor an echo", silence));
    Err(ProtocolError::unexpected_reply(endpoint, what))
}

/// Whether the host can be reached but has no server of linkgauge there, as far as can be seen.
pub fn lacks_server(endpoint: &Endpoint, registry: &Registry, dialer: &Dialer) -> bool {
    match detect(endpoint, registry, dialer, &ConnectionCache::default()) {
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

/// Sends a hello. Returns the reply, up to the length of the hello, and the server's failure to reply, if any. Stores the time
/// at which the last try began.
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
        send_all(link, hello, dialer.timeout)?;
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
