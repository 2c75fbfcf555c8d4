//! `icmp://host`: ICMP echo requests and replies, like `ping`. The sent message is the data of a request; the
//! received one is the data of the reply, which the kernel of any host sends.
//!
//! Uses an ICMP socket (`ping(7)`: the kernel chooses the identifier and delivers only matching replies) if
//! the group of this process may have one, or a raw socket if the process has that right. ICMP errors for a
//! request become faults; other ICMP messages are ignored.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

use super::internet::IpOptions;
use super::socket::{BufferOptions, IoDirection, SocketLink};
use super::{fallback, internet};
use crate::link::batch::receive_single;
use crate::link::delegate::{delegate_link, plain_link};
use crate::link::reachability::{ask_for_reports, connect_fault, socket_fault};
use crate::link::{
    Batch, Caps, Facts, Fault, Framing, Limitation, Link, LinkDescriptor, OpenContext, Transport,
    UnpacedScope,
};
use linkgauge_model::endpoint::{Endpoint, EndpointError};
use linkgauge_system::{self as system, IpFamily};

/// The transport `icmp` in the list of transports.
pub(crate) const TRANSPORT: Transport = Transport {
    scheme: "icmp",
    summary: "ICMP echo over IPv4 or IPv6, as ping sends it; every host replies",
    example: "icmp://192.0.2.7?ttl=8",
    options: &[
        (
            "socket",
            "ping: a socket for echo alone; raw: one that needs CAP_NET_RAW; auto (default): what is permitted",
        ),
        internet::TTL_OPTION,
        ("sndbuf", "send buffer in bytes (the kernel's choice)"),
        ("rcvbuf", "receive buffer in bytes (the kernel's choice)"),
        internet::FAMILY_OPTION,
        (internet::BIND_OPTION.0, "address of this host to send from (the system's choice)"),
        internet::DEVICE_OPTION,
        internet::DSCP_OPTION,
        internet::ECN_OPTION,
        internet::PRIORITY_OPTION,
    ],
    parse_caps: |endpoint| {
        Options::from_endpoint(endpoint)?;
        let (host, port) = endpoint.host_port()?;
        match port {
            None => Ok(caps(IpFamily::of_host(host))),
            Some(_) => Err(EndpointError::BadAddress {
                url: endpoint.to_string(),
                wanted: "a host alone: ICMP has no ports",
            }),
        }
    },
    resolve: Some(internet::resolve),
    available: || {
        open_socket(Domain::IPV4, None).map(|_| ()).map_err(|fault| match fault {
            Fault::System { source, .. } => {
                Limitation::from_socket_error(&source, NOT_PERMITTED_REASON, NOT_PERMITTED_REMEDY)
            }
            _ => Limitation {
                reason: NOT_PERMITTED_REASON.to_owned(),
                remedy: NOT_PERMITTED_REMEDY.to_owned(),
            },
        })
    },
    limitation: || None,
    open,
    begin_open: None,
    listen: None,
    loopback_urls: |_| Vec::new(),
};

const NOT_PERMITTED_REASON: &str = "this user may neither open ping sockets nor raw ones";
const NOT_PERMITTED_REMEDY: &str = "as root type: sysctl net.ipv4.ping_group_range='0 2147483647', or give the program the right \
                      cap_net_raw (setcap)";
const PING_SOCKET_REMEDY: &str =
    "as root type: sysctl net.ipv4.ping_group_range='0 2147483647', or leave out socket=ping";

/// Bytes of type, code, checksum, identifier and sequence number of an echo (RFC 792, RFC 4443).
const ICMP_HEADER_BYTES: usize = 8;
/// Types of replies.
const REPLY_V4: u8 = 0;
const REPLY_V6: u8 = 129;
/// Maximum message size: the 16-bit length field of the IPv4 header includes the IP header (20) and the ICMP header.
const MAX_MESSAGE_BYTES_V4: usize = 65_535 - 20 - ICMP_HEADER_BYTES;
/// Maximum message size: the length field of IPv6 includes the ICMP header only.
const MAX_MESSAGE_BYTES_V6: usize = 65_535 - ICMP_HEADER_BYTES;
/// Bytes of an IPv4 header with all its options.
const MAX_IP_HEADER_BYTES: usize = 60;

fn caps(family: IpFamily) -> Caps {
    Caps {
        framing: Framing::Message,
        max_message_bytes: Some(match family {
            IpFamily::V4 => MAX_MESSAGE_BYTES_V4,
            IpFamily::V6 => MAX_MESSAGE_BYTES_V6,
        }),
        is_reliable: false,
        can_signal_close: false,
        // No program receives at the remote: its kernel echoes all messages.
        is_device: true,
        unpaced_scope: UnpacedScope::Nowhere,
        // Errors of the socket arrive at the same descriptor; a thread for many links has not been tried with them.
        descriptor: LinkDescriptor::None,
        has_kernel_stamps: true,
        ..Caps::STREAM
    }
}

/// Kind of socket that sends echo requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IcmpSocketKind {
    Ping,
    Raw,
}

struct Options {
    socket_kind: Option<IcmpSocketKind>,
    ip: IpOptions,
    buffers: BufferOptions,
}

impl Options {
    fn from_endpoint(endpoint: &Endpoint) -> Result<Options, EndpointError> {
        let kind = endpoint.parse_option("socket", "auto, ping or raw", |text| match text {
            "auto" => Some(None),
            "ping" => Some(Some(IcmpSocketKind::Ping)),
            "raw" => Some(Some(IcmpSocketKind::Raw)),
            _ => None,
        })?;
        Ok(Options {
            socket_kind: kind.flatten(),
            ip: IpOptions::without_port(endpoint)?,
            buffers: BufferOptions::from_endpoint(endpoint)?,
        })
    }
}

/// A socket of that kind, or of the first permitted kind.
pub(crate) fn open_socket(
    domain: Domain,
    kind: Option<IcmpSocketKind>,
) -> Result<(Socket, IcmpSocketKind), Fault> {
    let protocol = if domain == Domain::IPV6 { Protocol::ICMPV6 } else { Protocol::ICMPV4 };
    let mut refusal = None;
    for (this, socket_type) in [(IcmpSocketKind::Ping, Type::DGRAM), (IcmpSocketKind::Raw, Type::RAW)] {
        if kind.is_none_or(|wanted| wanted == this) {
            match Socket::new(domain, socket_type, Some(protocol)) {
                Ok(socket) => return Ok((socket, this)),
                Err(error) => refusal = Some(error),
            }
        }
    }
    Err(match (refusal, kind) {
        // The cause is not missing rights: usually there is no IPv6.
        (Some(source), _) if source.kind() != io::ErrorKind::PermissionDenied => {
            Fault::System { operation: "open a socket", source }
        }
        (_, None) => Fault::NotPermitted(format!("{NOT_PERMITTED_REASON}: {NOT_PERMITTED_REMEDY}")),
        (_, Some(IcmpSocketKind::Ping)) => {
            Fault::NotPermitted(format!("this user may not open ping sockets: {PING_SOCKET_REMEDY}"))
        }
        (_, Some(IcmpSocketKind::Raw)) => Fault::NotPermitted(
            "only CAP_NET_RAW may open raw sockets: leave out socket=raw, or be root".to_owned(),
        ),
    })
}

fn open(endpoint: &Endpoint, context: &OpenContext) -> Result<Box<dyn Link>, Fault> {
    let options = Options::from_endpoint(endpoint)?;
    let addresses = internet::resolve_addresses(endpoint, context, internet::EndpointRole::Open)?;
    let has_several = addresses.len() > 1;
    let (clock, wait) = (context.clock.clone(), context.wait);
    let connect = move |address: SocketAddr| -> Result<Box<dyn Link>, Fault> {
        let identifier = next_identifier();
        let (socket, kind) = connect_socket(address, identifier, &options)?;
        let family = IpFamily::of_address(address.ip());
        let inner = SocketLink::new(socket, caps(family), &clock, wait, facts);
        Ok(Box::new(IcmpLink::new(inner, kind, family, identifier, Arc::default())))
    };
    let mut link = fallback::open(endpoint, context, addresses, Box::new(connect))?;
    if has_several {
        // No measured request looks for the address that replies. If none does, the measurement shows it.
        link.send(&[0; 16], context.timeout)?;
        match link.receive(&mut [0; 16], context.timeout) {
            Ok(_) | Err(Fault::TimedOut) => {}
            Err(fault) => return Err(fault),
        }
    }
    Ok(link)
}

/// A socket that receives from that address only, and only replies to requests with that identifier.
fn connect_socket(
    address: SocketAddr,
    identifier: u16,
    options: &Options,
) -> Result<(Socket, IcmpSocketKind), Fault> {
    let family = IpFamily::of_address(address.ip());
    let (socket, kind) = open_socket(Domain::for_address(address), options.socket_kind)?;
    options.ip.apply(&socket, address.ip())?;
    options.buffers.apply(&socket)?;
    if kind == IcmpSocketKind::Raw {
        keep_own_replies(&socket, family, identifier)?;
    }
    ask_for_reports(&socket, address.ip())?;
    options.ip.bind(&socket, address)?;
    socket.connect(&address.into()).map_err(|error| connect_fault(&socket, address, error))?;
    Ok((socket, kind))
}

/// A raw socket gets only replies with that identifier.
pub(crate) fn keep_own_replies(socket: &Socket, family: IpFamily, identifier: u16) -> Result<(), Fault> {
    let reply = match family {
        IpFamily::V4 => REPLY_V4,
        IpFamily::V6 => REPLY_V6,
    };
    system::keep_icmp_replies(socket, family, reply, identifier).map_err(Fault::system("set a filter"))
}

/// Distinguishes the raw links of this process from each other, and from those of other processes as far as
/// 16 bits allow.
fn next_identifier() -> u16 {
    static FIRST: LazyLock<u16> = LazyLock::new(|| fastrand::u16(..));
    static NEXT: AtomicU16 = AtomicU16::new(0);
    FIRST.wrapping_add(NEXT.fetch_add(1, Relaxed))
}

/// Facts about the path; there are no ports.
fn facts(socket: &Socket, facts: &mut Facts) {
    internet::facts(socket, facts);
    for name in ["local", "remote"] {
        let ip = facts.get(name).and_then(|value| value.as_str()?.parse::<SocketAddr>().ok());
        if let Some(address) = ip {
            facts.insert(name.to_owned(), address.ip().to_string().into());
        }
    }
}

/// The endpoint of the kernel that replies to pings at the host of a `tcp://` URL, if that names neither a port nor an option that
/// ICMP lacks.
pub fn kernel_of_host(url: &Endpoint) -> Option<Endpoint> {
    let is_bare = url.host_port().is_ok_and(|(_, port)| port.is_none());
    let rest = url.as_str().strip_prefix("tcp://").filter(|_| is_bare)?;
    let kernel = format!("{}://{rest}", TRANSPORT.scheme).parse().ok()?;
    TRANSPORT.has(&kernel).then_some(kernel)
}

struct IcmpLink {
    inner: SocketLink,
    socket_kind: IcmpSocketKind,
    family: IpFamily,
    identifier: u16,
    /// Requests sent so far; shared by the handles.
    sent_requests: Arc<SentRequests>,
    request_buffer: Vec<u8>,
    /// Buffer for one packet.
    packet_buffer: Vec<u8>,
}

#[derive(Default)]
struct SentRequests {
    next_sequence: AtomicU16,
    total: AtomicU64,
}

impl SentRequests {
    /// Whether a request with this number was sent recently: the last half of the numbers counts.
    fn contains(&self, sequence: u16) -> bool {
        let age = self.next_sequence.load(Relaxed).wrapping_sub(sequence);
        (1..=0x8000).contains(&age) && u64::from(age) <= self.total.load(Relaxed)
    }
}

impl IcmpLink {
    pub fn new(
        inner: SocketLink,
        kind: IcmpSocketKind,
        family: IpFamily,
        identifier: u16,
        sent: Arc<SentRequests>,
    ) -> IcmpLink {
        let max_bytes = inner.caps.max_message_bytes.unwrap_or(MAX_MESSAGE_BYTES_V6);
        IcmpLink {
            inner,
            socket_kind: kind,
            family,
            identifier,
            sent_requests: sent,
            request_buffer: Vec::with_capacity(ICMP_HEADER_BYTES + max_bytes),
            packet_buffer: vec![0; MAX_IP_HEADER_BYTES + ICMP_HEADER_BYTES + max_bytes],
        }
    }

    /// The meaning of a failed call; the system may hold an ICMP error with the reason.
    fn explain_fault(&self, fault: Fault) -> Fault {
        let Fault::System { operation, source } = fault else { return fault };
        socket_fault(&self.inner.socket, operation, source)
    }
}

/// Writes the request with its checksum. With an ICMP socket the kernel computes the checksum again.
pub(crate) fn write_request(
    request: &mut Vec<u8>,
    family: IpFamily,
    identifier: u16,
    sequence: u16,
    data: &[u8],
) {
    const REQUEST_V4: u8 = 8;
    const REQUEST_V6: u8 = 128;
    request.clear();
    let kind = match family {
        IpFamily::V4 => REQUEST_V4,
        IpFamily::V6 => REQUEST_V6,
    };
    request.extend([kind, 0, 0, 0]);
    request.extend(identifier.to_be_bytes());
    request.extend(sequence.to_be_bytes());
    request.extend_from_slice(data);
    if family == IpFamily::V4 {
        let sum = checksum(request);
        request[2..4].copy_from_slice(&sum.to_be_bytes());
    }
}

/// The one's complement of the one's complement sum (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |&low| u32::from(low));
    // At most 2¹⁵ words of 16 bits.
    let mut sum: u32 = bytes.chunks(2).map(word).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Sequence number and data of a reply; `identifier` is `None` if the kernel has checked it.
pub fn parse_reply(packet: &[u8], family: IpFamily, identifier: Option<u16>) -> Option<(u16, &[u8])> {
    // A raw IPv4 socket delivers the IP header as well: the lower half of its first byte is its length in
    // words of four bytes.
    let begin = match identifier {
        Some(_) if family == IpFamily::V4 => usize::from(packet.first()? & 0xf) * 4,
        _ => 0,
    };
    let (head, data) = packet.get(begin..)?.split_at_checked(ICMP_HEADER_BYTES)?;
    let [kind, code, _, _, id @ .., s1, s0] = head else { return None };
    let is_ours = identifier.is_none_or(|identifier| *id == identifier.to_be_bytes());
    let reply = match family {
        IpFamily::V4 => REPLY_V4,
        IpFamily::V6 => REPLY_V6,
    };
    (*kind == reply && *code == 0 && is_ours).then(|| (u16::from_be_bytes([*s1, *s0]), data))
}

impl Link for IcmpLink {
    fn caps(&self) -> &Caps {
        &self.inner.caps
    }

    fn facts(&self) -> Facts {
        let mut facts = self.inner.facts();
        facts.insert(
            "socket".to_owned(),
            if self.socket_kind == IcmpSocketKind::Ping { "ping" } else { "raw" }.into(),
        );
        facts
    }

    fn send(&mut self, bytes: &[u8], within: Duration) -> Result<usize, Fault> {
        self.inner.check_length(bytes.len())?;
        let sequence = self.sent_requests.next_sequence.load(Relaxed);
        write_request(&mut self.request_buffer, self.family, self.identifier, sequence, bytes);
        let request = &self.request_buffer;
        let sent = self.inner.attempt(IoDirection::Send, within, |socket, blocking| {
            // Stored before the request is sent: another handle may receive the reply.
            self.sent_requests.next_sequence.store(sequence.wrapping_add(1), Relaxed);
            self.sent_requests.total.fetch_add(1, Relaxed);
            system::send(socket, request, blocking)
        });
        match sent {
            Ok(_) => Ok(bytes.len()),
            Err(fault) => Err(self.inner.map_too_long(self.explain_fault(fault), bytes.len())),
        }
    }

    fn receive(&mut self, into: &mut [u8], within: Duration) -> Result<usize, Fault> {
        let until = self.inner.clock.now() + within;
        let mut left = within;
        loop {
            let packet = &mut self.packet_buffer;
            let received = match self.inner.has_stamps() {
                true => self.inner.receive_stamped(packet, left).map(|(length, _)| length),
                false => self.inner.attempt(IoDirection::Receive, left, |socket, blocking| {
                    system::receive(socket, packet, blocking)
                }),
            };
            match received {
                Ok(length) => {
                    let identifier = (self.socket_kind == IcmpSocketKind::Raw).then_some(self.identifier);
                    if let Some((sequence, data)) =
                        parse_reply(&self.packet_buffer[..length], self.family, identifier)
                        && self.sent_requests.contains(sequence)
                    {
                        let length = data.len().min(into.len());
                        into[..length].copy_from_slice(&data[..length]);
                        return Ok(length);
                    }
                }
                Err(fault) => return Err(self.explain_fault(fault)),
            }
            left = until.since(self.inner.clock.now());
            if left.is_zero() {
                return Err(Fault::TimedOut);
            }
        }
    }

    #[inline]
    fn receive_batch(&mut self, into: &mut Batch, within: Duration) -> Result<(), Fault> {
        receive_single(self, into, within)?;
        into.arrived = self.inner.take_arrived();
        Ok(())
    }

    fn second_handle(&self) -> Result<Box<dyn Link>, Fault> {
        let inner = self.inner.duplicate()?;
        Ok(Box::new(IcmpLink::new(
            inner,
            self.socket_kind,
            self.family,
            self.identifier,
            self.sent_requests.clone(),
        )))
    }

    delegate_link!(self => self.inner; status tune read_send_stamps descriptor);
    plain_link!(send_batch finish_sending abort reopen port_control);
}

#[cfg(test)]
mod tests {
    use super::IpFamily::{V4, V6};
    use super::*;

    #[test]
    fn a_request_is_encoded_as_on_the_wire() {
        let mut request = Vec::new();
        write_request(&mut request, V4, 1, 1, b"");
        assert_eq!(request, [0x08, 0x00, 0xf7, 0xfd, 0x00, 0x01, 0x00, 0x01]);
        // Linux replies with type 0, so the first byte of the checksum is higher by 8.
        write_request(&mut request, V4, 0xc9cf, 1, b"abc");
        assert_eq!(checksum(&request), 0, "a checksum makes the sum zero");
        write_request(&mut request, V6, 0x1234, 0x5678, b"abc");
        assert_eq!(request, [128, 0, 0, 0, 0x12, 0x34, 0x56, 0x78, b'a', b'b', b'c']);
    }

    #[test]
    fn only_our_replies_are_read() {
        let reply = [0x00, 0x00, 0x71, 0xcc, 0xc9, 0xcf, 0x00, 0x01, b'a', b'b', b'c'];
        assert_eq!(parse_reply(&reply, V4, None), Some((1, &b"abc"[..])));
        let mut with_ip = vec![0x46; 24];
        with_ip.extend(reply);
        assert_eq!(parse_reply(&with_ip, V4, Some(0xc9cf)), Some((1, &b"abc"[..])));
        assert_eq!(parse_reply(&with_ip, V4, Some(0xc9ce)), None, "of another program");
        assert_eq!(parse_reply(&reply, V6, Some(0xc9cf)), None, "a reply of IPv6 is type 129");
        for length in 0..reply.len() - 3 {
            assert_eq!(parse_reply(&reply[..length], V4, None), None);
            assert_eq!(parse_reply(&with_ip[..24 + length], V4, Some(0xc9cf)), None);
        }
        let unasked = [0x08, 0x00, 0, 0, 0xc9, 0xcf, 0, 1];
        assert_eq!(parse_reply(&unasked, V4, None), None, "a request is no reply");
    }

    #[test]
    fn unsent_sequence_numbers_are_ignored() {
        let sent = SentRequests::default();
        assert!(!sent.contains(0) && !sent.contains(0xffff));
        for number in 0..70_000u32 {
            sent.next_sequence.store((number + 1) as u16, Relaxed);
            sent.total.store(u64::from(number) + 1, Relaxed);
            assert!(sent.contains(number as u16) && !sent.contains((number + 1) as u16));
        }
        assert!(sent.contains((70_000u32 - 0x8000) as u16));
    }
}
