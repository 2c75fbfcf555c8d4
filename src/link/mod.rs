//! Links: the ways to reach a server or device. Each transport is one file and one line in [`TRANSPORTS`].
//!
//! A link moves bytes or messages and reports its capabilities ([`Caps`]) and its effective settings
//! ([`Facts`]). It does not interpret the bytes, and code above never asks for the type of the link.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::io::Errno;
use serde_json::{Map, Value};

use crate::clock::{Clock, Time};
use crate::endpoint::{Endpoint, EndpointError};
use crate::plan::WaitMode;
pub use shared_resources::SharedResources;

mod bluetooth;
pub mod bluez;
mod datagram;
pub mod hci;
pub mod icmp;
mod internet;
mod l2cap;
pub mod linx;
pub mod mem;
mod offload;
pub mod party;
pub mod reopen;
pub mod rfc2217;
mod rfcomm;
mod sctp;
pub mod sdp;
mod serial;
pub mod serial_line;
pub mod shaped;
mod shared_resources;
mod socket;
mod sys;
mod tcp;
pub mod tipc;
pub mod tty;
mod udp;
mod unix;
mod unix_datagram;
mod vsock;

pub use internet::{DEFAULT_PORT, all_interface_facts, companion_datagrams, companion_stream};

/// All transports, in the order of help and documentation.
pub static TRANSPORTS: &[Transport] = &[
    tcp::TRANSPORT,
    udp::TRANSPORT,
    icmp::TRANSPORT,
    sctp::TRANSPORT,
    unix::TRANSPORT,
    vsock::TRANSPORT,
    tipc::TRANSPORT,
    linx::TRANSPORT,
    linx::ETHERNET_TRANSPORT,
    serial::TRANSPORT,
    rfc2217::TRANSPORT,
    rfcomm::TRANSPORT,
    l2cap::TRANSPORT,
    mem::TRANSPORT,
];

/// Static description of a transport, used for parsing, help, `doctor`, the table in the docs and the
/// contract tests.
pub struct Transport {
    pub scheme: &'static str,
    pub summary: &'static str,
    pub example: &'static str,
    /// Options after `?`: name and meaning.
    pub options: &'static [(&'static str, &'static str)],
    /// Parses the endpoint and returns the capabilities of its links; opens nothing. Call [`endpoint_caps`]
    /// instead.
    pub parse_caps: fn(&Endpoint) -> Result<Caps, EndpointError>,
    /// Whether this host can open such links. The error gives the reason and the remedy.
    pub available: fn() -> Result<(), Limitation>,
    /// Limits the reach of an available transport, for example to this host.
    pub limitation: fn() -> Option<Limitation>,
    pub open: OpenFn<dyn Link>,
    /// `None` where listening is impossible: the remote is a device, or a program that is not linkgauge.
    pub listen: Option<OpenFn<dyn Listener>>,
    /// Endpoints of this host to listen on in tests and in the demo, every variant once. `directory` is an
    /// empty directory. Empty if listening is impossible; the lab has stand-ins for those.
    pub loopback_urls: fn(directory: &str) -> Vec<String>,
}

/// Opens an endpoint as a link or a listener.
pub type OpenFn<T> = fn(&Endpoint, &OpenContext) -> Result<Box<T>, Fault>;

/// The transport of an endpoint.
pub fn find_transport(endpoint: &Endpoint) -> Result<&'static Transport, Fault> {
    TRANSPORTS.iter().find(|transport| transport.scheme == endpoint.scheme()).ok_or_else(|| {
        let known: Vec<&str> = TRANSPORTS.iter().map(|transport| transport.scheme).collect();
        Fault::Other(format!("unknown scheme '{}' (known: {})", endpoint.scheme(), known.join(", ")))
    })
}

/// The capabilities of links to this endpoint, as far as the endpoint shows them.
///
/// # Errors
///
/// Fails if the transport does not support a part of the endpoint.
pub fn endpoint_caps(endpoint: &Endpoint) -> Result<Caps, Fault> {
    let transport = find_transport(endpoint)?;
    let known: Vec<&str> = transport.options.iter().map(|(name, _)| *name).collect();
    endpoint.check_options(&known)?;
    Ok((transport.parse_caps)(endpoint)?)
}

/// Why a transport cannot be used on this host, or only within it, and the remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limitation {
    pub reason: String,
    pub remedy: String,
}

impl Limitation {
    /// From the error of a trial socket. It says something about the transport only while other sockets can
    /// be opened.
    pub fn from_socket_error(
        error: &io::Error,
        reason: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Limitation {
        match is_file_limit_reached(error) {
            true => Limitation {
                reason: error.to_string(),
                remedy: RAISE_FILE_LIMIT_HINT.trim_start_matches(": ").to_owned(),
            },
            false => Limitation { reason: reason.into(), remedy: remedy.into() },
        }
    }
}

/// Whether this process has reached its limit of open files.
fn is_file_limit_reached(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::MFILE.raw_os_error())
}

/// Commands that open many links have already raised their soft limit as far as possible.
const RAISE_FILE_LIMIT_HINT: &str = ": each link is one: use fewer, or raise the hard limit (ulimit -Hn) first: sudo prlimit --nofile=4096 --pid $$";

/// Capabilities of a link: as far as the endpoint shows them (before opening) or final (after).
#[derive(Debug, Clone, PartialEq)]
pub struct Caps {
    pub framing: Framing,
    /// Maximum message size in bytes; `None` on streams.
    pub max_message_bytes: Option<usize>,
    /// No loss, duplication or reordering while the link is up.
    pub is_reliable: bool,
    /// The remote sees that the local end has finished, and continues until it has finished as well.
    /// Elsewhere the end of a flow must be sent as a message. A device on a serial line gets no such message:
    /// it would drop bytes in flight. Links between two linkgauge programs have connections if they signal a
    /// close; otherwise the listener uses an accept filter.
    pub can_signal_close: bool,
    /// An end that has finished sending still receives.
    pub can_half_close: bool,
    /// Supports several connections to the same endpoint in parallel.
    pub can_open_parallel: bool,
    /// The remote is an unknown device or a system's own echo: it receives nothing but the payload.
    pub is_device: bool,
    /// The physical line of the link, if known.
    pub link_rate: Option<LinkRate>,
    /// Time that opening may take normally. It is the default time-out.
    pub open_timeout: Duration,
    /// Where sending at full speed needs no explicit request.
    pub unpaced_scope: UnpacedScope,
}

/// Where sending without pacing disturbs no other traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnpacedScope {
    /// Everywhere: the link slows its sender down, or carries no other traffic.
    Anywhere,
    /// Within this host: datagrams without congestion control.
    OnThisHost,
    /// Nowhere: as above, and hosts send unsolicited replies. This includes requests that wait for their
    /// replies.
    Nowhere,
}

impl Caps {
    /// A reliable byte stream over a network.
    pub const STREAM: Caps = Caps {
        framing: Framing::Stream,
        max_message_bytes: None,
        is_reliable: true,
        can_signal_close: true,
        can_half_close: true,
        can_open_parallel: true,
        is_device: false,
        link_rate: None,
        open_timeout: Duration::ZERO,
        unpaced_scope: UnpacedScope::Anywhere,
    };

    /// A device or a loop-back plug at the end of a line. Without replies, the line is the first thing to
    /// check.
    pub fn is_serial_device(&self) -> bool {
        self.is_device && self.link_rate.is_some()
    }
}

/// Whether the link preserves message boundaries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    Stream,
    Message,
}

impl Framing {
    pub fn name(self) -> &'static str {
        match self {
            Framing::Stream => "stream",
            Framing::Message => "message",
        }
    }
}

/// A physical line with a fixed rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinkRate {
    pub bits_per_second: f64,
    /// Bits on the line per byte of payload (8N1: 10).
    pub bits_per_byte: f64,
    /// Bits of each byte that are transmitted, 5 to 8; the upper bits are lost.
    pub data_bits: u8,
    /// XON and XOFF control the line, so the payload must not contain them.
    pub has_in_band_flow_control: bool,
}

impl LinkRate {
    /// A line without overhead: 8 bits per byte.
    pub fn without_overhead(bits_per_second: f64) -> LinkRate {
        LinkRate { bits_per_second, bits_per_byte: 8.0, data_bits: 8, has_in_band_flow_control: false }
    }

    /// Time for this number of bytes back to back.
    pub fn transmission_time(&self, bytes: u64) -> Duration {
        let seconds = bytes as f64 * self.bits_per_byte / self.bits_per_second;
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }

    /// Whole bytes that the line carries in this time, at least one.
    pub fn bytes_in(&self, time: Duration) -> u64 {
        ((time.as_secs_f64() * self.bits_per_second / self.bits_per_byte) as u64).max(1)
    }

    /// Payload rate in bit/s, in bytes of eight bits.
    pub fn max_payload_bps(&self) -> f64 {
        8.0 * self.bits_per_second / self.bits_per_byte
    }
}

/// The effective settings of a link, with units in the names: `mss_bytes`, `receive_buffer_bytes`,
/// `congestion_control` …
pub type Facts = Map<String, Value>;

/// An error of a link. The caller knows the endpoint; [`LinkError`] joins the two.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    #[error("no answer in time")]
    TimedOut,
    /// As [`Fault::TimedOut`], on a line to a device or back to its own port.
    #[error("the line fell silent")]
    SilentLine,
    #[error("the peer closed the link")]
    Closed,
    #[error("a message of {bytes} bytes does not fit: at most {limit}")]
    TooLong { bytes: usize, limit: usize },
    /// The refused operation, and the system's reason.
    #[error("{operation}: {source}")]
    System { operation: &'static str, source: io::Error },
    #[error("{0}")]
    Endpoint(Box<EndpointError>),
    #[error("{0}")]
    Other(String),
}

impl From<EndpointError> for Fault {
    fn from(error: EndpointError) -> Fault {
        Fault::Endpoint(Box::new(error))
    }
}

impl Fault {
    /// Maps a system error to a fault that names the operation.
    pub fn system(operation: &'static str) -> impl Fn(io::Error) -> Fault {
        move |source| Fault::System { operation, source }
    }
}

/// A fault, its endpoint, and a hint for the user.
#[derive(Debug, thiserror::Error)]
#[error("{}{fault}{}", error_prefix(.endpoint, .fault), remedy(.fault))]
pub struct LinkError {
    pub endpoint: Box<str>,
    pub fault: Fault,
}

/// The endpoint, unless the fault already names it.
fn error_prefix(endpoint: &str, fault: &Fault) -> String {
    match fault {
        Fault::Endpoint(_) => String::new(),
        _ => format!("{endpoint}: "),
    }
}

impl LinkError {
    pub fn new(endpoint: &Endpoint, fault: Fault) -> LinkError {
        LinkError { endpoint: endpoint.as_str().into(), fault }
    }
}

/// Hint for a serial line without replies.
pub const CHECK_LINE_HINT: &str =
    ": is the loop-back plug in, or the device on? Check rate and flow control, and --timeout";

fn remedy(fault: &Fault) -> &'static str {
    match fault {
        Fault::System { source, .. } if is_file_limit_reached(source) => RAISE_FILE_LIMIT_HINT,
        Fault::System { source, .. } => match source.kind() {
            io::ErrorKind::ConnectionRefused => {
                ": the port is closed: start 'linkgauge serve' or another server there, or name another port"
            }
            io::ErrorKind::NotFound => ": nothing is there; is 'linkgauge serve' running with this endpoint?",
            io::ErrorKind::AddrInUse => ": another program uses it; choose another or stop that program",
            io::ErrorKind::PermissionDenied => {
                ": this user may not; ports below 1024 and others' files need root"
            }
            io::ErrorKind::TimedOut => ": the host is silent: check address, cable and firewall",
            io::ErrorKind::ConnectionReset => {
                ": the server ended the connection: it is busy, or speaks another protocol"
            }
            io::ErrorKind::AddrNotAvailable => ": this host does not have that address",
            io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => {
                ": check the address; 'ip route' lists the networks that this host reaches"
            }
            _ => "",
        },
        Fault::SilentLine => CHECK_LINE_HINT,
        Fault::TimedOut => ": the server is silent: check that it runs, a firewall on the way, and --timeout",
        _ => "",
    }
}

/// An open link. An operation that is not complete `within` the given time fails with [`Fault::TimedOut`] and
/// can be tried again. The time is relative because the caller has just read the clock, and reading it twice
/// costs time.
pub trait Link: Send {
    fn caps(&self) -> &Caps;

    /// The effective settings, read from the system now.
    fn facts(&self) -> Facts;

    /// Prepares the link for the next steps of a party.
    fn tune(&mut self, tuning: &party::Tuning);

    /// Sends one whole message, or the first part of `bytes` on a stream. Returns the number of bytes taken.
    fn send(&mut self, bytes: &[u8], within: Duration) -> Result<usize, Fault>;

    /// Receives one message (truncated to the length of `into`), or the available bytes of a stream. The end
    /// of a stream is [`Fault::Closed`].
    fn receive(&mut self, into: &mut [u8], within: Duration) -> Result<usize, Fault>;

    /// Sends messages of `message` bytes each, stored back to back (the last may be shorter), as many as one
    /// operation takes. Returns the number of bytes taken.
    fn send_batch(&mut self, messages: &[u8], message: usize, within: Duration) -> Result<usize, Fault> {
        match self.caps().framing {
            Framing::Stream => self.send(messages, within),
            Framing::Message => self.send(&messages[..messages.len().min(message)], within),
        }
    }

    /// Receives at least one message, and all others that are ready and fit.
    fn receive_batch(&mut self, into: &mut Batch, within: Duration) -> Result<(), Fault> {
        into.clear();
        let length = self.receive(&mut into.bytes, within)?;
        into.push_span(0, length);
        Ok(())
    }

    /// Resets the connection, where possible: data in flight is discarded. For programs that do not notice a
    /// normal close.
    fn abort(&mut self) {}

    /// A second handle for the same link, to receive in one thread while another sends.
    fn second_handle(&self) -> Result<Box<dyn Link>, Fault>;

    /// Ends sending; receiving continues. Does nothing on links without a half-close.
    fn finish_sending(&mut self) -> Result<(), Fault>;

    /// Opens the link again after it broke; data in flight is lost. [`Fault::TimedOut`] means that opening is
    /// still in progress: call again to continue.
    fn reopen(&mut self, within: Duration) -> Result<(), Fault> {
        let _ = within;
        Err(Fault::Closed)
    }

    /// Control of the serial port at the end of this link, if supported.
    fn port_control(&mut self) -> Option<&mut dyn serial_line::PortControl> {
        None
    }

    /// Whether the remote is known to have closed the link or vanished. Received bytes may still be waiting.
    fn is_hung_up(&self) -> bool {
        false
    }

    /// The descriptor that becomes readable on arrival, if this link has one for itself.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Bytes sent but not yet acknowledged by the remote system, if known.
    fn unacknowledged_bytes(&self) -> Option<u64> {
        None
    }

    /// Whether the connection failed, so that its unsent data never left.
    fn is_broken(&self) -> bool {
        false
    }

    /// Time this handle has spent polling without a result, where it busy-polls.
    fn busy_poll_time(&self) -> Duration {
        Duration::ZERO
    }

    /// Segments retransmitted by the local system, if known.
    fn retransmits(&self) -> Option<u64> {
        None
    }

    /// Packets dropped by the local socket since it was opened, because its buffer was full. If the kernel
    /// merges datagrams (`receive_method` is `gro`), one packet holds several messages.
    fn socket_drops(&self) -> Option<u64> {
        None
    }
}

/// Messages received in one operation. Fixed size: nothing is allocated after construction.
#[derive(Debug, Default)]
pub struct Batch {
    pub bytes: Vec<u8>,
    /// Bytes reserved per message, where a link fills several at once.
    pub slot_bytes: usize,
    spans: Vec<(u32, u32)>,
    /// Requests the TTL of messages, where the link supports it.
    wants_ttl: bool,
    ttl: Option<u8>,
}

impl Batch {
    /// For `messages` messages of at most `slot` bytes.
    pub fn new(slot: usize, messages: usize) -> Batch {
        // A link may receive a whole coalesced packet at once, whatever the size of its messages.
        let bytes = if messages > 1 { (slot * messages).max(MAX_COALESCED_BYTES) } else { slot };
        Batch {
            bytes: vec![0; bytes],
            slot_bytes: slot,
            spans: Vec::with_capacity(MAX_BATCH_MESSAGES),
            ..Batch::default()
        }
    }

    /// For one message with the TTL (hop limit) on arrival.
    pub fn with_ttl(slot: usize) -> Batch {
        Batch { wants_ttl: true, ..Batch::new(slot, 1) }
    }

    /// The TTL of the message on arrival, if requested and supported.
    pub fn ttl(&self) -> Option<u8> {
        self.ttl
    }

    pub fn clear(&mut self) {
        self.spans.clear();
        self.ttl = None;
    }

    /// Records a message at `start`. The caller ensures that the count fits.
    pub fn push_span(&mut self, start: usize, length: usize) {
        debug_assert!(self.spans.len() < MAX_BATCH_MESSAGES);
        self.spans.push((start as u32, length as u32));
    }

    /// The messages, in order; one chunk on a stream.
    pub fn messages(&self) -> impl Iterator<Item = &[u8]> {
        self.spans.iter().map(|&(start, length)| &self.bytes[start as usize..(start + length) as usize])
    }

    /// Bytes of all messages together.
    pub fn total_bytes(&self) -> u64 {
        self.spans.iter().map(|&(_, length)| u64::from(length)).sum()
    }

    /// Bytes of all messages together, and of the longest.
    #[inline]
    pub fn total_and_longest(&self) -> (u64, usize) {
        let lengths = self.spans.iter().map(|&(_, length)| length);
        lengths.fold((0, 0), |(total, longest), length| {
            (total + u64::from(length), longest.max(length as usize))
        })
    }

    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    pub fn len(&self) -> usize {
        self.spans.len()
    }
}

/// Maximum number of messages per receive operation: a coalesced packet holds at most 128 segments
/// (`UDP_MAX_SEGMENTS` of linux/udp.h since 6.9, 64 before).
pub const MAX_BATCH_MESSAGES: usize = 128;

/// Maximum size of a coalesced packet: the length field of IP.
pub const MAX_COALESCED_BYTES: usize = 65_536;

/// Reaction of a listener to the first message of an unknown sender, on links without connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// Sends the reply and stores nothing.
    Reply,
    /// Opens a link to the sender. The message is the first one of that link.
    Open,
    Drop,
}

/// Decides on a first message: its bytes, its sender, and a buffer for a reply.
pub type AcceptFilter<'a> = dyn FnMut(&[u8], &str, &mut Vec<u8>) -> Admission + 'a;

/// The identity of a sender without the parts that it can choose itself. An Internet address such as
/// `203.0.113.5:4000` is returned whole: the caller knows about networks. All processes of this host are one
/// sender.
pub fn sender_identity(from: &str) -> &str {
    match from.split_once([':', ',', '/']) {
        _ if from.starts_with(['@', '/']) => "this host",
        // A vsock context and its port.
        Some((context, port)) if [context, port].iter().all(|number| number.parse::<u32>().is_ok()) => {
            context
        }
        // A TIPC node and its socket, or a Bluetooth device and its channel.
        _ => from.split([',', '/']).next().unwrap_or(from),
    }
}

/// Makes the server party of a new connection; the text names the sender.
pub type PartyFactory = Box<dyn Fn(&str) -> Box<dyn party::Party> + Send>;

/// Waits for incoming connections.
pub trait Listener: Send {
    /// The effective endpoint (port 0 replaced by the assigned port).
    fn endpoint(&self) -> Endpoint;

    /// The next connection and its sender. On links without connections, `door` decides on first messages.
    fn accept(
        &mut self,
        within: Duration,
        filter: &mut AcceptFilter,
    ) -> Result<(Box<dyn Link>, String), Fault>;

    /// Each message that begins with these bytes opens a link of its own, where a sender can have several.
    fn set_opening_prefix(&mut self, bytes: &'static [u8]) {
        let _ = bytes;
    }

    /// Takes over running the server parties if the link does that itself (in memory). Otherwise returns the
    /// factory.
    fn set_party_factory(&mut self, factory: PartyFactory) -> Result<(), PartyFactory> {
        Err(factory)
    }
}

/// Context for opening, besides the endpoint.
#[derive(Debug, Clone)]
pub struct OpenContext {
    pub clock: Clock,
    /// The servers that live in this process.
    pub memory_network: mem::MemNetwork,
    pub shared_resources: SharedResources,
    /// Time-out for opening.
    pub timeout: Duration,
    pub wait: WaitMode,
    /// Used if the endpoint names no port.
    pub default_port: Option<u16>,
}

/// Opens links and listeners. Protocols get it together with an endpoint.
#[derive(Debug, Clone)]
pub struct Dialer {
    pub clock: Clock,
    pub memory_network: mem::MemNetwork,
    pub shared_resources: SharedResources,
    pub wait: WaitMode,
    /// Time-out for opening, and for each reply of a handshake.
    pub timeout: Duration,
    pub default_port: Option<u16>,
}

impl Dialer {
    pub fn new(clock: Clock) -> Dialer {
        Dialer {
            memory_network: mem::MemNetwork::new(clock.clone()),
            shared_resources: SharedResources::default(),
            clock,
            wait: WaitMode::Block,
            timeout: Duration::from_secs(1),
            default_port: None,
        }
    }

    pub fn now(&self) -> Time {
        self.clock.now()
    }

    fn open_context(&self) -> OpenContext {
        OpenContext {
            clock: self.clock.clone(),
            memory_network: self.memory_network.clone(),
            shared_resources: self.shared_resources.clone(),
            timeout: self.timeout,
            wait: self.wait,
            default_port: self.default_port,
        }
    }

    pub fn open(&self, endpoint: &Endpoint) -> Result<Box<dyn Link>, LinkError> {
        self.with_transport(endpoint, |transport| (transport.open)(endpoint, &self.open_context()))
    }

    /// Whether the endpoint is known to be an address of this host.
    pub fn is_local(&self, endpoint: &Endpoint) -> bool {
        internet::is_local(endpoint, &self.open_context())
    }

    pub fn listen(&self, endpoint: &Endpoint) -> Result<Box<dyn Listener>, LinkError> {
        self.with_transport(endpoint, |transport| match transport.listen {
            Some(listen) => listen(endpoint, &self.open_context()),
            None => Err(Fault::Other(format!(
                "nobody can listen on {}: a device or a kernel is its far end; for devices the lab has stand-ins (linkgauge lab)",
                transport.scheme
            ))),
        })
    }

    fn with_transport<T>(
        &self,
        endpoint: &Endpoint,
        act: impl FnOnce(&'static Transport) -> Result<T, Fault>,
    ) -> Result<T, LinkError> {
        let act = || {
            endpoint_caps(endpoint)?;
            let transport = find_transport(endpoint)?;
            act(transport).map_err(|fault| match (fault, (transport.available)()) {
                // The error says nothing about the transport, whatever a trial socket fails with now.
                (fault, _) if matches!(&fault, Fault::System { source, .. } if is_file_limit_reached(source)) => {
                    fault
                }
                (Fault::System { .. }, Err(missing)) => {
                    Fault::Other(format!("{}: {}", missing.reason, missing.remedy))
                }
                (fault, _) => fault,
            })
        };
        act().map_err(|fault| LinkError::new(endpoint, fault))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_open_files_have_one_remedy_on_every_transport() {
        let dialer = Dialer::new(Clock::System);
        for transport in TRANSPORTS {
            let endpoint = transport.example.parse().unwrap();
            let full = |_| Err::<(), _>(Fault::system("open a socket")(Errno::MFILE.into()));
            let message = dialer.with_transport(&endpoint, full).unwrap_err().to_string();
            assert!(
                message.contains("Too many open files") && message.ends_with(RAISE_FILE_LIMIT_HINT),
                "{message}"
            );
        }
    }
}
