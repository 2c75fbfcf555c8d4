//! Links: the ways to reach a peer. One file and one line in [`TRANSPORTS`] each.
//!
//! A link moves bytes or messages and says what it *can* do ([`Caps`]) and what it *really got* ([`Facts`]).
//! It does not know what the bytes mean, and nobody above asks which kind of link it is.

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

pub use internet::{DEFAULT_PORT, all_interface_facts, companion_stream};

/// Every transport, in the order in which help and documentation show them.
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

/// What the list knows of a transport: enough for parsing, help, `doctor`, the docs table and the contract tests.
pub struct Transport {
    pub scheme: &'static str,
    pub summary: &'static str,
    pub example: &'static str,
    /// Options after `?`: name and meaning.
    pub options: &'static [(&'static str, &'static str)],
    /// Reads the endpoint and says what such a link can do; opens nothing. Call [`endpoint_caps`] instead.
    pub parse_caps: fn(&Endpoint) -> Result<Caps, EndpointError>,
    /// Whether this host can open such links; if not, why, and what to do.
    pub available: fn() -> Result<(), Limitation>,
    /// What keeps links of this transport, where it is available, from reaching as far as they could.
    pub limitation: fn() -> Option<Limitation>,
    pub open: OpenFn<dyn Link>,
    /// None where nobody can listen: a device is at the far end, or a program that is not a peer of ours.
    pub listen: Option<OpenFn<dyn Listener>>,
    /// Endpoints of this host to listen on in tests and in the demo, every variant once; `directory` is a fresh one.
    /// None where nobody can listen; the lab has stand-ins for those.
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

/// What links to this endpoint can do, as far as it tells; fails on anything in it that the transport does not know.
pub fn endpoint_caps(endpoint: &Endpoint) -> Result<Caps, Fault> {
    let transport = find_transport(endpoint)?;
    let known: Vec<&str> = transport.options.iter().map(|(name, _)| *name).collect();
    endpoint.check_options(&known)?;
    Ok((transport.parse_caps)(endpoint)?)
}

/// Why a transport cannot be used on this host, or not beyond it, and the remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limitation {
    pub reason: String,
    pub remedy: String,
}

impl Limitation {
    /// Of a socket that could not be opened, which says something of the transport only while others can be.
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

/// Whether this process has as many open files as it may.
fn is_file_limit_reached(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::MFILE.raw_os_error())
}

/// Every command that opens many links has raised its own limit as far as it may.
const RAISE_FILE_LIMIT_HINT: &str = ": each link is one: use fewer, or raise the hard limit (ulimit -Hn) first: sudo prlimit --nofile=4096 --pid $$";

/// What a link can do, as far as its endpoint tells (before opening) or for certain (after).
#[derive(Debug, Clone, PartialEq)]
pub struct Caps {
    pub framing: Framing,
    /// Most bytes of one message; `None` on streams.
    pub max_message_bytes: Option<usize>,
    /// Nothing is lost, doubled or reordered while the link is up.
    pub is_reliable: bool,
    /// The far end sees that this end finished, and goes on until it has done the same. Where not, silence is all it
    /// gets, and the end of a flow has to be told in a message. A device behind a line is never told: it would drop what
    /// is still on its way. Of the links between two of our own ends, those that close have connections; the others ask
    /// a listener's door.
    pub can_signal_close: bool,
    /// An end that has finished still hears what the other one sends from then on.
    pub can_half_close: bool,
    /// A second connection to the same endpoint can be opened beside this one.
    pub can_open_parallel: bool,
    /// An unknown device, or a system's own echo, is at the far end: nothing but the payload is ever sent to it.
    pub is_device: bool,
    /// The physical line behind the link, where it is known.
    pub link_rate: Option<LinkRate>,
    /// How long opening may take although all is well; the time-out is that long unless something else is asked for.
    pub open_timeout: Duration,
    /// Where sending as fast as it goes is fine without being asked for.
    pub unpaced_scope: UnpacedScope,
}

/// Where sending without a pace disturbs nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnpacedScope {
    /// Everywhere: the link slows its sender down for others on the way, or has no others.
    Anywhere,
    /// Datagrams that no congestion control slows down: within this host.
    OnThisHost,
    /// The same, and hosts answer that nobody has asked: nowhere. Requests that wait for their replies count, too.
    Nowhere,
}

impl Caps {
    /// A reliable byte stream of a network.
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

    /// A device, or a plug, at the end of a line: where nothing comes back, that is what to look at.
    pub fn is_serial_device(&self) -> bool {
        self.is_device && self.link_rate.is_some()
    }
}

/// Whether the link keeps the borders of what was sent.
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
    /// Bits on the line for each byte of payload (8N1: 10).
    pub bits_per_byte: f64,
    /// Bits of each byte that get through, 5 to 8: the upper ones do not.
    pub data_bits: u8,
    /// XON and XOFF steer the line, so that the payload must not contain them.
    pub has_in_band_flow_control: bool,
}

impl LinkRate {
    /// A line that adds nothing to the bytes and takes nothing from them.
    pub fn without_overhead(bits_per_second: f64) -> LinkRate {
        LinkRate { bits_per_second, bits_per_byte: 8.0, data_bits: 8, has_in_band_flow_control: false }
    }

    /// How long so many bytes take, one after the other.
    pub fn transmission_time(&self, bytes: u64) -> Duration {
        let seconds = bytes as f64 * self.bits_per_byte / self.bits_per_second;
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }

    /// How many whole bytes it carries in that time, at least one.
    pub fn bytes_in(&self, time: Duration) -> u64 {
        ((time.as_secs_f64() * self.bits_per_second / self.bits_per_byte) as u64).max(1)
    }

    /// Bits of payload that it can carry in a second, in bytes of eight.
    pub fn max_payload_bps(&self) -> f64 {
        8.0 * self.bits_per_second / self.bits_per_byte
    }
}

/// What a link really got: `mss_bytes`, `receive_buffer_bytes`, `congestion_control` …, units in the names.
pub type Facts = Map<String, Value>;

/// What can go wrong on a link. The caller knows the endpoint; [`LinkError`] joins the two.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    #[error("no answer in time")]
    TimedOut,
    /// The same where a line leads to a device, or back to its own port.
    #[error("the line fell silent")]
    SilentLine,
    #[error("the peer closed the link")]
    Closed,
    #[error("a message of {bytes} bytes does not fit: at most {limit}")]
    TooLong { bytes: usize, limit: usize },
    /// The operation the system refused, and its reason.
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
    /// Names the operation of a system error, so that it can be told from others.
    pub fn system(operation: &'static str) -> impl Fn(io::Error) -> Fault {
        move |source| Fault::System { operation, source }
    }
}

/// A fault with the endpoint it happened on, and what to try.
#[derive(Debug, thiserror::Error)]
#[error("{}{fault}{}", error_prefix(.endpoint, .fault), remedy(.fault))]
pub struct LinkError {
    pub endpoint: Box<str>,
    pub fault: Fault,
}

/// The endpoint, unless the fault names it already.
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

/// What to look at where nothing comes back from a line.
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
            _ => "",
        },
        Fault::SilentLine => CHECK_LINE_HINT,
        Fault::TimedOut => ": the server is silent: check that it runs, a firewall on the way, and --timeout",
        _ => "",
    }
}

/// An open link. An operation that cannot be done `within` the time given fails with [`Fault::TimedOut`] and can be
/// tried again. The time is relative because the caller has just read the clock, and reading it twice costs.
pub trait Link: Send {
    fn caps(&self) -> &Caps;

    /// What was granted, read from the system now.
    fn facts(&self) -> Facts;

    /// Prepares for what a party is about to do.
    fn tune(&mut self, tuning: &party::Tuning);

    /// Sends one message whole, or the first part of `bytes` on a stream; returns how much was taken.
    fn send(&mut self, bytes: &[u8], within: Duration) -> Result<usize, Fault>;

    /// Receives one message (cut off at the length of `into`), or what has arrived of a stream. A stream's end is
    /// [`Fault::Closed`].
    fn receive(&mut self, into: &mut [u8], within: Duration) -> Result<usize, Fault>;

    /// Sends messages of `message` bytes each that lie end to end (the last may be shorter), as many as one
    /// operation takes; returns the bytes taken.
    fn send_batch(&mut self, messages: &[u8], message: usize, within: Duration) -> Result<usize, Fault> {
        match self.caps().framing {
            Framing::Stream => self.send(messages, within),
            Framing::Message => self.send(&messages[..messages.len().min(message)], within),
        }
    }

    /// Receives at least one message, and as many more as lie ready and fit.
    fn receive_batch(&mut self, into: &mut Batch, within: Duration) -> Result<(), Fault> {
        into.clear();
        let length = self.receive(&mut into.bytes, within)?;
        into.push_span(0, length);
        Ok(())
    }

    /// Ends the link with an error at the other end, where it can: what is still on its way is thrown away. For programs
    /// that do not notice a plain end.
    fn abort(&mut self) {}

    /// A second handle on the same link, for receiving in one thread while another sends.
    fn second_handle(&self) -> Result<Box<dyn Link>, Fault>;

    /// Nothing more will be sent; receiving goes on. Does nothing where a link has no such notion.
    fn finish_sending(&mut self) -> Result<(), Fault>;

    /// Opens the link anew in place of one that broke: what was on its way in it is gone. [`Fault::TimedOut`] says that
    /// it is still being opened; asking again goes on with that.
    fn reopen(&mut self, within: Duration) -> Result<(), Fault> {
        let _ = within;
        Err(Fault::Closed)
    }

    /// Control of the serial port at the end of this link, where there is one and it lets itself be controlled.
    fn port_control(&mut self) -> Option<&mut dyn serial_line::PortControl> {
        None
    }

    /// Whether the far end is known to have closed the link or vanished, although bytes of it may still wait to be
    /// received.
    fn is_hung_up(&self) -> bool {
        false
    }

    /// The descriptor that becomes readable when something has come, where there is one for this link alone.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Bytes handed to the link that the far end's system has not acknowledged yet, where that can be known.
    fn unacknowledged_bytes(&self) -> Option<u64> {
        None
    }

    /// Whether the connection failed, so that what it still held never left it.
    fn is_broken(&self) -> bool {
        false
    }

    /// How long this handle has asked in vain for something to come or to leave, where it busy-polls.
    fn busy_poll_time(&self) -> Duration {
        Duration::ZERO
    }

    /// Segments that this end's system has sent again, where that can be known.
    fn retransmits(&self) -> Option<u64> {
        None
    }

    /// Packets that this end's socket dropped since it was opened because its buffer was full. Where the kernel joins
    /// datagrams (`receive_method` is `gro`), one packet holds several messages.
    fn socket_drops(&self) -> Option<u64> {
        None
    }
}

/// Messages received in one operation. Fixed size: nothing is allocated after it was made.
#[derive(Debug, Default)]
pub struct Batch {
    pub bytes: Vec<u8>,
    /// Room for one message, when a link fills several at once.
    pub slot_bytes: usize,
    spans: Vec<(u32, u32)>,
    /// Links that can are to tell how many routers a message might still have passed.
    wants_ttl: bool,
    ttl: Option<u8>,
}

impl Batch {
    /// Room for `messages` messages of at most `slot` bytes.
    pub fn new(slot: usize, messages: usize) -> Batch {
        // A link may be handed a whole coalesced packet at once, whatever the messages in it measure.
        let bytes = if messages > 1 { (slot * messages).max(MAX_COALESCED_BYTES) } else { slot };
        Batch {
            bytes: vec![0; bytes],
            slot_bytes: slot,
            spans: Vec::with_capacity(MAX_BATCH_MESSAGES),
            ..Batch::default()
        }
    }

    /// Room for one message, with the TTL (hop limit) that it arrived with.
    pub fn with_ttl(slot: usize) -> Batch {
        Batch { wants_ttl: true, ..Batch::new(slot, 1) }
    }

    /// The TTL that the message arrived with, where it was asked for and the link knows it.
    pub fn ttl(&self) -> Option<u8> {
        self.ttl
    }

    pub fn clear(&mut self) {
        self.spans.clear();
        self.ttl = None;
    }

    /// Notes that a message lies at `start`. More than fit are refused by the caller's own count.
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

/// Most messages one receive operation returns: a coalesced packet holds at most 128 segments (`UDP_MAX_SEGMENTS` of
/// linux/udp.h since 6.9, 64 before).
pub const MAX_BATCH_MESSAGES: usize = 128;

/// Most bytes of a coalesced packet: the length field of IP.
pub const MAX_COALESCED_BYTES: usize = 65_536;

/// What a listener does with the first message of an unknown sender, on links without connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// Sends back what stands in the reply, keeps nothing.
    Reply,
    /// Opens a link to that sender, whose first message this is.
    Open,
    Drop,
}

/// Decides on a first message: its bytes, its sender, and room for a reply.
pub type AcceptFilter<'a> = dyn FnMut(&[u8], &str, &mut Vec<u8>) -> Admission + 'a;

/// Who a sender is, whatever socket it uses: its text without what it can choose. `203.0.113.5:4000` of the Internet is left to
/// the caller, who knows about networks; processes of this host are one.
pub fn sender_identity(from: &str) -> &str {
    match from.split_once([':', ',', '/']) {
        _ if from.starts_with(['@', '/']) => "this host",
        // A context (vsock) and its port.
        Some((context, port)) if [context, port].iter().all(|number| number.parse::<u32>().is_ok()) => {
            context
        }
        // A node (TIPC) and its socket, a device (Bluetooth) and its channel.
        _ => from.split([',', '/']).next().unwrap_or(from),
    }
}

/// Makes the far end of a new connection; the text names the sender.
pub type PartyFactory = Box<dyn Fn(&str) -> Box<dyn party::Party> + Send>;

/// Waits for others to connect.
pub trait Listener: Send {
    /// Where it really listens (port 0 replaced by the one given).
    fn endpoint(&self) -> Endpoint;

    /// The next connection and its sender. `door` is asked about first messages on links without connections.
    fn accept(&mut self, within: Duration, door: &mut AcceptFilter)
    -> Result<(Box<dyn Link>, String), Fault>;

    /// Has each message that begins with these bytes open a link of its own, where a sender could have several.
    fn set_opening_prefix(&mut self, bytes: &'static [u8]) {
        let _ = bytes;
    }

    /// Takes over running the far ends, where the link itself does that (in memory); otherwise gives it back.
    fn set_party_factory(&mut self, hosting: PartyFactory) -> Result<(), PartyFactory> {
        Err(hosting)
    }
}

/// What opening needs to know besides the endpoint.
#[derive(Debug, Clone)]
pub struct OpenContext {
    pub clock: Clock,
    /// The far ends that live in this process.
    pub memory_network: mem::MemNetwork,
    pub shared_resources: SharedResources,
    /// Time for opening.
    pub timeout: Duration,
    pub wait: WaitMode,
    /// Used where the endpoint names no port.
    pub default_port: Option<u16>,
}

/// Opens and listens for whoever needs links: peers get it together with an endpoint.
#[derive(Debug, Clone)]
pub struct Dialer {
    pub clock: Clock,
    pub memory_network: mem::MemNetwork,
    pub shared_resources: SharedResources,
    pub wait: WaitMode,
    /// For opening, and for each answer of a handshake.
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
                // It says nothing of the transport, whatever a trial socket fails with now.
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
            let said = dialer.with_transport(&endpoint, full).unwrap_err().to_string();
            assert!(said.contains("Too many open files") && said.ends_with(RAISE_FILE_LIMIT_HINT), "{said}");
        }
    }
}
