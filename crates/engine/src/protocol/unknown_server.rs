//! Messages of a client about a server that does not speak the expected protocol.

use super::{Protocol, Registry};
use crate::link::Framing;
use crate::transport::rfc2217;
use linkgauge_model::endpoint::Endpoint;

/// Ways in which a server fails to reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoReply {
    /// The connection is still open, or the link has none.
    Open,
    Closed,
}

/// Bytes of an unknown reply to show: enough to recognise the program that sent it.
const MAX_SHOWN_BYTES: usize = 16;

/// Protocols that the reply, or its absence, has ruled out, and the one without a server.
const RULED_OUT: [&str; 3] = ["linkgauge", "echo", "none"];

const CHOOSE: &str = "Choose its protocol with --protocol";

/// Protocols whose default port is that of the endpoint.
pub(super) fn protocols_of_port(registry: &Registry, endpoint: &Endpoint) -> Vec<&'static str> {
    let Ok((_, Some(port))) = endpoint.host_port() else { return Vec::new() };
    let uses = |protocol: &&Protocol| protocol.default_ports.contains(&(endpoint.scheme(), port));
    registry.protocols.iter().filter(uses).map(|protocol| protocol.name).collect()
}

/// Advice on the protocol to choose: the one of the port, if there is one.
pub(super) fn advice(registry: &Registry, endpoint: &Endpoint) -> String {
    let port = endpoint.host_port().ok().and_then(|(_, port)| port).unwrap_or_default();
    match protocols_of_port(registry, endpoint).as_slice() {
        [] => {
            let names: Vec<&str> = registry
                .protocols
                .iter()
                .map(|protocol| protocol.name)
                .filter(|name| !RULED_OUT.contains(name))
                .collect();
            format!("{CHOOSE} ({})", names.join(", "))
        }
        names => {
            format!("Port {port} is that of {}: try --protocol {}", listed(names, "and"), listed(names, "or"))
        }
    }
}

/// A reason without the list of all protocols, for a link that has worked.
pub fn without_protocols(reason: &str) -> &str {
    reason.split_once(CHOOSE).map_or(reason, |(reason, _)| reason.trim_end_matches(['.', ' ']))
}

/// Advice on the protocol to choose, without a list of all protocols: the server may not be there at all.
pub(super) fn advice_on_silence(registry: &Registry, endpoint: &Endpoint) -> String {
    match protocols_of_port(registry, endpoint).is_empty() {
        true => "If it speaks another protocol, choose that with --protocol".to_owned(),
        false => advice(registry, endpoint),
    }
}

/// Describes a server that is not the `expected` one, in one line: by the start of its reply, or by its failure to reply.
pub(super) fn describe_reply(
    registry: &Registry,
    endpoint: &Endpoint,
    reply: &[u8],
    (expected, silence): (&str, NoReply),
) -> String {
    if reply.is_empty() {
        // A server that accepts a connection is there.
        let is_stream = registry.transports.caps(endpoint).is_ok_and(|caps| caps.framing == Framing::Stream);
        let choose =
            if is_stream { advice(registry, endpoint) } else { advice_on_silence(registry, endpoint) };
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
    let choose = advice(registry, endpoint);
    let mut first = String::new();
    for &byte in reply.iter().take(MAX_SHOWN_BYTES) {
        match byte {
            b' '..=b'~' => first.push(char::from(byte)),
            _ => first.extend(byte.escape_ascii().map(char::from)),
        }
    }
    let more = if reply.len() > MAX_SHOWN_BYTES { "…" } else { "" };
    format!("the server is {expected}: it sent '{first}{more}'. {choose}")
}

/// Joins names to a list, as `stamp, twamp-light and twamp`.
fn listed(names: &[&str], word: &str) -> String {
    match names {
        [] => String::new(),
        [name] => (*name).to_owned(),
        [first @ .., last] => format!("{} {word} {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_is_known_names_its_protocol() {
        let describe = |url: &str, reply: &[u8]| {
            describe_reply(
                Registry::standard(),
                &url.parse().unwrap(),
                reply,
                ("not linkgauge", NoReply::Open),
            )
        };
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
        the server is not linkgauge: it sent 'x'. Port 11111 is that of sockperf: try --protocol sockperf
        no reply: the server is silent. Port 18767 is that of netio: try --protocol netio
        no reply: the server is silent. Port 862 is that of stamp, twamp-light and twamp: try --protocol stamp, twamp-light or twamp
        the server is not linkgauge: it sent '\xbd'. Port 6785 is that of pakbus: try --protocol pakbus
        no reply: the server is silent. Port 2112 is that of irtt: try --protocol irtt
        "
        );
        assert!(
            describe("tcp://a:7", b"SSH-")
                .ends_with("it sent 'SSH-'. Port 7 is that of echo: try --protocol echo")
        );
        assert!(describe("tcp://a:22", b"SSH-").contains("Choose its protocol with --protocol (discard, "));
    }
}
