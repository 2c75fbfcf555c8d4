//! Links: the common interface of all ways to reach a server or device.
//!
//! A link moves bytes or messages and reports its capabilities ([`Caps`]) and its effective settings ([`Facts`]). A [`Transport`]
//! opens links of one kind; [`transport`](crate::transport) has them all. A link does not interpret the bytes, and code above
//! never asks for the type of the link.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Map, Value};

pub use batch::{Batch, BatchSizes, MAX_BATCH_MESSAGES, MAX_COALESCED_BYTES};
pub use dialer::Dialer;
pub use fault::{CHECK_LINE_HINT, Fault, LinkError};
pub(crate) use fault::{OriginalServer, SILENT_REMEDY, ServerHint, on_port};
use fault::{RAISE_FILE_LIMIT_HINT, is_file_limit_reached};
pub use fault::{describe_refusal, system_remedy};
pub use hosts::Hosts;
pub use kept::KeptLinks;
use linkgauge_model::endpoint::{Endpoint, EndpointError};
use marks::MarkCounts;
pub(crate) use open_context::OpenContext;
pub use reachability::REPORT_TIME;
pub(crate) use shared_resources::SharedResources;
pub(crate) use socket_settings::keep_alive;

pub(crate) mod batch;
pub(crate) mod counters;
pub(crate) mod delegate;
pub(crate) mod dialer;
pub(crate) mod fault;
mod hosts;
mod kept;
pub mod marks;
pub(crate) mod mem;
mod open_context;
pub(crate) mod own_interfaces;
pub mod party;
pub mod ptp;
pub(crate) mod reachability;
pub(crate) mod redial;
pub(crate) mod reopen;
pub mod serial_line;
pub mod shaped;
mod shared_resources;
pub mod shared_thread;
pub mod socket_settings;
pub mod stamps;
pub mod time_of_day;
pub(crate) mod traffic_class;
pub(crate) mod unsent;
pub(crate) mod waker;

#[cfg(test)]
mod tests;

pub use linkgauge_model::endpoint::DEFAULT_PORT;
pub use linkgauge_system::return_freed_buffers;
pub(crate) use linkgauge_system::{BorrowedHandle, prefetch, socket_of};

/// Static description of a transport, used for parsing, help, `doctor`, the table in the docs and the
/// contract tests.
pub struct Transport {
    /// The scheme of its URLs.
    pub scheme: &'static str,
    /// Summary in one line, for help and documents.
    pub summary: &'static str,
    /// An endpoint for help and documents.
    pub example: &'static str,
    /// Options after `?`: name and meaning.
    pub options: &'static [(&'static str, &'static str)],
    /// Parses the endpoint and returns the capabilities of its links; opens nothing. Call [`Transport::caps`]
    /// instead.
    pub(crate) parse_caps: fn(&Endpoint) -> Result<Caps, EndpointError>,
    /// Whether this host can open such links. The error gives the reason and the remedy.
    pub available: fn() -> Result<(), Limitation>,
    /// Limits the reach of an available transport, for example to this host.
    pub limitation: fn() -> Option<Limitation>,
    /// Addresses of an endpoint, where endpoints are hosts on the Internet.
    pub(crate) resolve: Option<ResolveFn>,
    /// Opens a link. The dialer calls it in a thread that may block.
    pub open: OpenFn<dyn Link>,
    /// Begins to open a link and does not wait: [`Link::reopen`] continues, and its descriptor is writable when opening has
    /// ended. `None` where opening blocks.
    pub(crate) begin_open: Option<OpenFn<dyn Link>>,
    /// `None` where listening is impossible: the remote is a device, or a program that is not linkgauge.
    pub listen: Option<OpenFn<dyn Listener>>,
    /// Endpoints of this host to listen on in tests and in the demo, every variant once. `directory` is an
    /// empty directory. Empty if listening is impossible; the lab has stand-ins for those.
    pub loopback_urls: fn(directory: &str) -> Vec<String>,
}

/// The transports that links are opened with.
#[derive(Clone, Copy)]
pub struct Transports(pub &'static [Transport]);

impl Transports {
    /// The transport of an endpoint.
    ///
    /// # Errors
    ///
    /// Fails if no transport has the scheme.
    pub fn find(self, endpoint: &Endpoint) -> Result<&'static Transport, Fault> {
        self.0.iter().find(|transport| transport.scheme == endpoint.scheme()).ok_or_else(|| {
            let known: Vec<&str> = self.0.iter().map(|transport| transport.scheme).collect();
            Fault::Invalid(format!("unknown scheme '{}' (known: {})", endpoint.scheme(), known.join(", ")))
        })
    }

    /// The capabilities of links to this endpoint, as far as the endpoint shows them.
    ///
    /// # Errors
    ///
    /// Fails if the transport does not support a part of the endpoint.
    pub fn caps(self, endpoint: &Endpoint) -> Result<Caps, Fault> {
        Ok(self.find(endpoint)?.caps(endpoint)?)
    }
}

impl fmt::Debug for Transports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Transports")
    }
}

/// Resolves the addresses of an endpoint.
pub(crate) type ResolveFn = fn(&Endpoint, &OpenContext) -> Result<Vec<SocketAddr>, Fault>;

/// Opens an endpoint as a link or a listener.
pub type OpenFn<T> = fn(&Endpoint, &OpenContext) -> Result<Box<T>, Fault>;

impl Transport {
    /// The capabilities of links to this endpoint, as far as the endpoint shows them.
    ///
    /// # Errors
    ///
    /// Fails if the transport does not support a part of the endpoint.
    pub(crate) fn caps(&self, endpoint: &Endpoint) -> Result<Caps, EndpointError> {
        let known: Vec<&str> = self.options.iter().map(|(name, _)| *name).collect();
        endpoint.check_options(&known)?;
        (self.parse_caps)(endpoint)
    }

    /// Whether the endpoint is one of this transport, and valid.
    pub(crate) fn has(&self, endpoint: &Endpoint) -> bool {
        self.scheme == endpoint.scheme() && self.caps(endpoint).is_ok()
    }
}

/// Reason why a transport cannot be used on this host, or only within it, and the remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limitation {
    /// Reason why the transport cannot be used, or the limit of its reach.
    pub reason: String,
    /// Remedy for the user.
    pub remedy: String,
}

impl Limitation {
    /// Makes a limitation from the error of a trial socket. The error concerns the transport only while other sockets can be
    /// opened.
    pub(crate) fn from_socket_error(
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

/// Capabilities of a link: as far as the endpoint shows them (before opening) or final (after).
#[derive(Debug, Clone, PartialEq)]
pub struct Caps {
    /// Whether the link preserves message boundaries.
    pub framing: Framing,
    /// Maximum message size in bytes; `None` on streams.
    pub max_message_bytes: Option<usize>,
    /// Whether messages are not lost, duplicated or reordered while the link is up.
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
    /// Time that opening may take normally. It is the default timeout.
    pub open_timeout: Duration,
    /// Destinations to which sending at full speed needs no explicit request.
    pub unpaced_scope: UnpacedScope,
    /// Kind of [`Link::descriptor`]. Without a descriptor, each flow on such links has a separate thread.
    pub descriptor: LinkDescriptor,
    /// A receive that gets less of a stream than it has room for has emptied it, and a send that takes less than it is offered has
    /// filled it: TCP. So a shared thread need not try again.
    pub is_exhausted_by_short_transfer: bool,
    /// The kernel can stamp messages: when they are queued for their device, leave it and arrive from it.
    pub has_kernel_stamps: bool,
}

/// Kind of the descriptor of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkDescriptor {
    /// The link has no descriptor.
    None,
    /// Shows when the link may be ready. Other messages may arrive there as well, and it has no settings or counters of
    /// the link.
    Events,
    /// The socket or device of the link, another one after each opening, so nothing else may hold it.
    Replaced,
    /// The socket or device of the link as long as it is open.
    Lasting,
}

impl LinkDescriptor {
    /// Whether one thread can wait for many of these links.
    pub fn can_share_thread(self) -> bool {
        self != LinkDescriptor::None
    }
}

/// Destinations to which sending without pacing disturbs no other traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnpacedScope {
    /// All destinations: the link slows its sender down, or carries no other traffic.
    Anywhere,
    /// Destinations on this host: datagrams without congestion control.
    OnThisHost,
    /// No destination: datagrams without congestion control, and hosts send unsolicited replies. This includes requests that wait
    /// for their replies.
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
        descriptor: LinkDescriptor::Lasting,
        is_exhausted_by_short_transfer: false,
        has_kernel_stamps: false,
    };

    /// A device or a loopback plug at the end of a line. Without replies, the line is the first thing to
    /// check.
    pub fn is_serial_device(&self) -> bool {
        self.is_device && self.link_rate.is_some()
    }
}

/// The socket or device of a link, for its settings and counters, if it has one for itself.
pub(crate) fn own_socket(link: &dyn Link) -> Option<BorrowedHandle<'_>> {
    match link.caps().descriptor {
        LinkDescriptor::None | LinkDescriptor::Events => None,
        LinkDescriptor::Replaced | LinkDescriptor::Lasting => link.descriptor(),
    }
}

/// Time for which the remote system has acknowledged none of the data in flight (TCP); `None` if nothing is missing.
pub(crate) fn unacknowledged_time(link: &dyn Link) -> Option<Duration> {
    let is_waiting = link.status().unacknowledged_bytes.is_some_and(|bytes| bytes > 0);
    let info = linkgauge_system::tcp_info(own_socket(link).filter(|_| is_waiting)?)?;
    Some(Duration::from_millis(info.last_ack_ms()?.into()))
}

/// The Internet address that the socket of a link is connected to.
pub fn remote_address(link: &dyn Link) -> Option<SocketAddr> {
    socket_of(&own_socket(link)?)?.peer_addr().ok()?.as_socket()
}

/// The Internet address that the socket of a link is bound to.
pub(crate) fn local_address(link: &dyn Link) -> Option<SocketAddr> {
    socket_of(&own_socket(link)?)?.local_addr().ok()?.as_socket()
}

/// TTL of test packets, so that the other end sees how many routers they have passed.
pub(crate) const MAX_HOP_LIMIT: u8 = 255;

/// Sets the TTL (hop limit) of the packets that a link sends. Links without IP have none.
pub(crate) fn set_hop_limit(link: &dyn Link, limit: u8) {
    let Some(descriptor) = own_socket(link) else { return };
    let Some(socket) = socket_of(&descriptor) else { return };
    // The option that does not apply is refused.
    let _ = socket.set_ttl_v4(limit.into());
    let _ = socket.set_unicast_hops_v6(limit.into());
}

/// Sends all bytes on a stream; each part may take the timeout.
pub(crate) fn send_all(link: &mut dyn Link, words: &[u8], timeout: Duration) -> Result<(), Fault> {
    let mut sent_bytes = 0;
    while sent_bytes < words.len() {
        sent_bytes += link.send(&words[sent_bytes..], timeout)?;
    }
    Ok(())
}

/// Whether the link preserves message boundaries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// Bytes in order, without boundaries.
    Stream,
    /// Whole messages.
    Message,
}

impl Framing {
    /// The name in run documents and reports.
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
    /// Bits on the line per second, framing bits included.
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
    pub(crate) fn bytes_in(&self, time: Duration) -> u64 {
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

/// The state of a link, and what its counters show. `None`: this link cannot tell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkStatus {
    /// The remote has closed the link or vanished. Received bytes may still be waiting.
    pub is_hung_up: bool,
    /// The connection failed, so its unsent data never left.
    pub(crate) is_broken: bool,
    /// Bytes sent but not yet acknowledged by the remote system.
    pub unacknowledged_bytes: Option<u64>,
    /// Segments retransmitted by the local system.
    pub(crate) retransmits: Option<u64>,
    /// Packets dropped by the local socket since it was opened, because its buffer was full. If the kernel
    /// merges datagrams (`receive_method` is `gro`), one packet holds several messages.
    pub socket_drops: Option<u64>,
    /// Marks of the messages that this handle has received since it was tuned, where it reads them.
    pub marks: Option<MarkCounts>,
    /// Time this handle has spent polling without a result, where it busy-polls.
    pub(crate) busy_poll_time: Duration,
}

impl LinkStatus {
    /// Adds the counts of another link, which this one continues.
    pub(crate) fn add_counts(&mut self, other: &LinkStatus) {
        let sum = |own: Option<u64>, other: Option<u64>| own.into_iter().chain(other).reduce(|a, b| a + b);
        self.retransmits = sum(self.retransmits, other.retransmits);
        self.socket_drops = sum(self.socket_drops, other.socket_drops);
        if let Some(marks) = &other.marks {
            self.marks.get_or_insert_default().add(marks);
        }
        self.busy_poll_time += other.busy_poll_time;
    }

    /// The counts since an earlier state of the same link.
    fn counts_since(self, before: &LinkStatus) -> LinkStatus {
        let since = |now: Option<u64>, then: Option<u64>| now.map(|now| now - then.unwrap_or(0).min(now));
        LinkStatus {
            retransmits: since(self.retransmits, before.retransmits),
            socket_drops: since(self.socket_drops, before.socket_drops),
            busy_poll_time: self.busy_poll_time.saturating_sub(before.busy_poll_time),
            ..self
        }
    }
}

/// An open link. An operation that is not complete `within` the given time fails with [`Fault::TimedOut`] and
/// can be tried again. The time is relative because the caller has just read the clock, and reading it twice
/// costs time.
///
/// No method has a default, so a link that wraps another cannot lose what the inner one does: it decides on
/// each of them. `delegate_link!` and `plain_link!` name those that need no code.
pub trait Link: Send {
    /// The capabilities, which do not change while the link is open.
    fn caps(&self) -> &Caps;

    /// The effective settings, read from the system now.
    fn facts(&self) -> Facts;

    /// The state and the counters, read from the system now: some system calls, so never once per message.
    fn status(&self) -> LinkStatus;

    /// Prepares the link for the next steps of a party.
    fn tune(&mut self, tuning: &party::Tuning);

    /// Sends one whole message, or the first part of `bytes` on a stream. Returns the number of bytes taken.
    ///
    /// # Errors
    ///
    /// [`Fault::TimedOut`] if nothing was taken within the time given, [`Fault::TooLong`] for a message above the
    /// maximum, and errors of the system.
    fn send(&mut self, bytes: &[u8], within: Duration) -> Result<usize, Fault>;

    /// Receives one message (truncated to the length of `into`), or the available bytes of a stream.
    ///
    /// # Errors
    ///
    /// [`Fault::TimedOut`] if nothing arrived within the time given, [`Fault::Closed`] at the end, and errors of
    /// the system.
    fn receive(&mut self, into: &mut [u8], within: Duration) -> Result<usize, Fault>;

    /// Sends messages of `message` bytes each, stored back to back (the last may be shorter), as many as one
    /// operation takes: `batch::send_first` where that is one. Returns the number of bytes taken.
    ///
    /// # Errors
    ///
    /// As [`Link::send`].
    fn send_batch(&mut self, messages: &[u8], message: usize, within: Duration) -> Result<usize, Fault>;

    /// Receives at least one message, and all others that are ready and fit: `batch::receive_single` where
    /// an operation receives one.
    ///
    /// # Errors
    ///
    /// As [`Link::receive`].
    fn receive_batch(&mut self, into: &mut Batch, within: Duration) -> Result<(), Fault>;

    /// Ends sending; receiving continues. Does nothing on links without a half-close.
    ///
    /// # Errors
    ///
    /// Fails if the system refuses.
    fn finish_sending(&mut self) -> Result<(), Fault>;

    /// Resets the connection, where possible: data in flight is discarded. For programs that do not notice a
    /// normal close.
    fn abort(&mut self);

    /// Opens the link again after it broke; data in flight is lost.
    ///
    /// # Errors
    ///
    /// [`Fault::TimedOut`] while opening is still in progress: call again to continue. [`Fault::Closed`] if this
    /// link cannot be opened again.
    fn reopen(&mut self, within: Duration) -> Result<(), Fault>;

    /// A second handle for the same link, to receive in one thread while another sends.
    ///
    /// # Errors
    ///
    /// Fails if the link has only one handle, or if the system refuses.
    fn second_handle(&self) -> Result<Box<dyn Link>, Fault>;

    /// Moves the kernel's stamps of sent messages to `into`, where the link was tuned for stamps. They may be late: a later
    /// call gets the others.
    fn read_send_stamps(&mut self, into: &mut stamps::SendStamps);

    /// Control of the serial port at the end of this link, if supported.
    fn port_control(&mut self) -> Option<&mut dyn serial_line::PortControl>;

    /// The descriptor that becomes readable on arrival, where the link has one ([`Caps::descriptor`]). It may stay readable
    /// until a receive has found nothing, so try to receive before waiting for it.
    fn descriptor(&self) -> Option<BorrowedHandle<'_>>;
}

/// Reaction of a listener to the first message of an unknown sender, on links without connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// Sends the reply and stores nothing.
    Reply,
    /// Opens a link to the sender. The message is the first one of that link.
    Open,
    /// Drops the message and stores nothing: it is refused.
    Drop,
    /// Drops the message and stores nothing: it is valid and needs no reply.
    Ignore,
}

/// Decides on a first message: its bytes, its sender, and a buffer for a reply.
pub type AcceptFilter<'a> = dyn FnMut(&[u8], &str, &mut Vec<u8>) -> Admission + 'a;

/// The identity of a sender without the parts that it can choose itself. An Internet address such as
/// `203.0.113.5:4000` is returned whole: the caller knows about networks. All processes of this host are one
/// sender.
pub(crate) fn sender_identity(from: &str) -> &str {
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

    /// The next connection and its sender. On links without connections, `filter` decides on first messages.
    ///
    /// # Errors
    ///
    /// [`Fault::TimedOut`] if no client connected within the time given, and errors of the system.
    fn accept(
        &mut self,
        within: Duration,
        filter: &mut AcceptFilter,
    ) -> Result<(Box<dyn Link>, String), Fault>;

    /// The descriptor that becomes readable when a connection arrives, if the listener has one.
    fn descriptor(&self) -> Option<BorrowedHandle<'_>> {
        None
    }

    /// Opens a separate link for each message that begins with these bytes, where a sender can have several links.
    fn set_opening_prefix(&mut self, bytes: &'static [u8]) {
        let _ = bytes;
    }

    /// Takes over running the server parties if the link does that itself (in memory). Otherwise returns the
    /// factory.
    ///
    /// # Errors
    ///
    /// Returns the factory if the link does not run server parties.
    fn set_party_factory(&mut self, factory: PartyFactory) -> Result<(), PartyFactory> {
        Err(factory)
    }
}
