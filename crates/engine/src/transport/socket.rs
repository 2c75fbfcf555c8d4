//! A link on a socket: moves bytes through a file descriptor, for any address family. The transports open and
//! describe the sockets.
//!
//! Blocking calls use the kernel's timeout (`SO_RCVTIMEO`), so that a round trip costs two system calls and
//! no `poll`. The kernel's timeout ends up to some timer ticks late, so it is set shorter; a `poll`, which
//! is exact, covers the rest of a wait.

use std::io;
use std::net::{IpAddr, Shutdown};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use socket2::{SockAddr, Socket};

use super::connect_first;
use crate::link::batch::receive_single;
use crate::link::delegate::plain_link;
use crate::link::fault::VANISHED;
use crate::link::party::Tuning;
use crate::link::reachability::{ignore_reports, is_own_firewall, socket_fault};
use crate::link::stamps::{SendStamps, StampReader};
use crate::link::{AcceptFilter, Batch, Caps, Facts, Fault, Framing, Link, LinkStatus, Listener};
use linkgauge_model::clock::{Clock, Time};
use linkgauge_model::endpoint::{Endpoint, EndpointError};
use linkgauge_model::plan::WaitMode;
use linkgauge_model::run::MTU_REPORTER_FACT;
use linkgauge_model::units;
use linkgauge_system::{
    self as system, AsHandle, Blocking, BorrowedHandle, DatagramInfo, Errno, IpFamily, PollFlags, poll, watch,
};

/// Timeout below which the tick of `SO_RCVTIMEO` (4 ms at 250 Hz, 10 ms at 100 Hz) is too coarse.
const MIN_KERNEL_TIMEOUT: Duration = Duration::from_millis(20);

/// Reads the effective settings of a transport's socket.
pub(crate) type ReadFacts = fn(&Socket, &mut Facts);

/// A link on one socket: a stream, or messages of a connection. What every operation uses comes first, because of ten thousand
/// links none stays in the caches.
#[repr(C)]
pub(crate) struct SocketLink {
    /// The connected socket.
    pub(crate) socket: Socket,
    /// Whether the link blocks or busy-polls.
    pub(crate) wait: WaitMode,
    /// Acknowledge at once after each read: the kernel returns to delayed acknowledgements after each send.
    pub(crate) rearms_quick_ack: bool,
    /// A refusal after this means that the remote has gone.
    has_received: bool,
    /// Time since which a rule of this host has discarded each message sent, and the number of these messages.
    refused: Option<(Time, u32)>,
    /// Whether the kernel stores reports about the packets of this link. It does until the remote has replied.
    pub(crate) reads_reports: bool,
    /// Whether the socket is being connected; [`Link::reopen`] waits for it.
    pub(crate) is_connecting: bool,
    /// Maximum size of one send operation on a stream.
    pub(crate) max_send_bytes: usize,
    /// Reads the kernel's stamps, once the link is tuned for them.
    stamps: Option<Box<StampReader>>,
    /// The stamp of the last received message.
    arrived: Option<Time>,
    /// The capabilities of the link.
    pub(crate) caps: Caps,
    /// The clock of timeouts.
    pub(crate) clock: Clock,
    /// The receive and send timeouts that the kernel has now.
    kernel_timeouts: [Option<Duration>; 2],
    busy_poll_total: Duration,
    /// The router that has reported the path MTU; shared by the handles.
    mtu_reporter: Arc<OnceLock<IpAddr>>,
    /// Reads the settings that are specific to the transport.
    pub(crate) read_facts: ReadFacts,
}

impl SocketLink {
    pub fn new(
        socket: Socket,
        caps: Caps,
        clock: &Clock,
        wait: WaitMode,
        read_facts: ReadFacts,
    ) -> SocketLink {
        // A socket that refuses this has failed, as its first call will say.
        let _ = system::prepare_socket(&socket);
        SocketLink {
            socket,
            caps,
            clock: clock.clone(),
            wait,
            read_facts,
            max_send_bytes: usize::MAX,
            kernel_timeouts: [None, None],
            has_received: false,
            refused: None,
            reads_reports: false,
            is_connecting: false,
            busy_poll_total: Duration::ZERO,
            mtu_reporter: Arc::default(),
            rearms_quick_ack: false,
            stamps: None,
            arrived: None,
        }
    }

    /// Calls `operation` until it does not report "would block" or the time is over. Its argument is whether
    /// it may block; if so, the kernel ends it in time.
    #[inline]
    pub(crate) fn attempt<T>(
        &mut self,
        which: IoDirection,
        within: Duration,
        mut operation: impl FnMut(&Socket, Blocking) -> Result<T, Errno>,
    ) -> Result<T, Fault> {
        if self.wait == WaitMode::BusyPoll {
            return self.busy_poll(which, within, operation);
        }
        // A blocked sender needs no exact timeout, so it does not need the time.
        let exact = within > MIN_KERNEL_TIMEOUT && matches!(which, IoDirection::Receive);
        let until = exact.then(|| self.clock.now() + within);
        let (mut left, mut is_first) = (within, true);
        loop {
            let may_block = left > MIN_KERNEL_TIMEOUT;
            let (armed, blocking) = match may_block {
                true => (self.set_kernel_timeout(which, left)?, Blocking::Allowed),
                false => (left, Blocking::Never),
            };
            match operation(&self.socket, blocking) {
                Err(Errno::AGAIN) if left.is_zero() => return Err(Fault::TimedOut),
                Err(Errno::AGAIN) if !may_block => {
                    self.wait_ready(which, left);
                    left = Duration::ZERO;
                }
                Err(Errno::AGAIN) => {
                    left = until.map_or(left.saturating_sub(armed), |until| until.since(self.clock.now()));
                }
                Err(Errno::INTR) => {}
                Err(Errno::MSGSIZE) if self.has_learnt_mtu(which, &mut is_first) => {
                    left = until.map_or(left, |until| until.since(self.clock.now()));
                }
                done => return self.complete(which, done),
            }
        }
    }

    /// Waits as [`wait_ready`] does. The stamps of sent messages would end the wait, so they are read meanwhile.
    fn wait_ready(&mut self, which: IoDirection, left: Duration) {
        let Some(stamps) = &mut self.stamps else {
            wait_ready(&self.socket, which, left);
            return;
        };
        let until = self.clock.now() + left;
        stamps.collect(&self.socket);
        // Without stamps to collect, the error is one that the operation reports.
        while poll_events(&self.socket, which, until.since(self.clock.now())) == PollFlags::ERR
            && stamps.collect(&self.socket)
        {}
    }

    /// Whether a failed call was only the news of a smaller path MTU: a router has dropped a datagram and reported its limit, and the
    /// kernel divides later datagrams that exceed it. `is_first`: nothing else has failed in this operation.
    #[cold]
    fn has_learnt_mtu(&self, which: IoDirection, is_first: &mut bool) -> bool {
        let is_news = matches!(which, IoDirection::Receive) || std::mem::take(is_first);
        let family = system::socket_domain(&self.socket).and_then(IpFamily::of_domain);
        let Some(family) = family.filter(|_| is_news && self.caps.framing == Framing::Message) else {
            return false;
        };
        if let Some(from) = system::take_delivery_error(&self.socket, family).and_then(|report| report.from) {
            let _ = self.mtu_reporter.set(from);
        }
        true
    }

    /// The outcome of an operation, with its fault.
    #[inline]
    fn complete<T>(&mut self, which: IoDirection, done: Result<T, Errno>) -> Result<T, Fault> {
        match done {
            Ok(done) => {
                self.has_received |= matches!(which, IoDirection::Receive);
                if self.has_received && self.reads_reports {
                    self.reads_reports = false;
                    ignore_reports(&self.socket);
                }
                Ok(done)
            }
            Err(Errno::CONNREFUSED) if self.has_received => {
                Err(Fault::System { operation: VANISHED, source: Errno::CONNREFUSED.into() })
            }
            Err(errno) if self.reads_reports || may_be_local(errno) => {
                Err(socket_fault(&self.socket, which.operation(), errno.into()))
            }
            Err(errno) => Err(io_fault(which, errno)),
        }
    }

    /// The outcome of sending messages. On a link that works, a rule of this host that discards some of them loses these, as one of
    /// another host does; one that discards all ends the link. `length` is that of the messages.
    #[inline]
    pub(crate) fn lose_discarded(
        &mut self,
        sent: Result<usize, Fault>,
        length: usize,
    ) -> Result<usize, Fault> {
        match sent {
            Ok(sent) => {
                self.refused = None;
                Ok(sent)
            }
            Err(fault) if self.discards_some(&fault) => Ok(length),
            sent => sent,
        }
    }

    #[cold]
    fn discards_some(&mut self, fault: &Fault) -> bool {
        if !self.has_received || self.caps.framing != Framing::Message || !is_own_firewall(fault) {
            return false;
        }
        let now = self.clock.now();
        let (since, count) = self.refused.get_or_insert((now, 0));
        *count += 1;
        *count < MIN_REFUSED || now.since(*since) < MIN_REFUSED_TIME
    }

    fn busy_poll<T>(
        &mut self,
        which: IoDirection,
        within: Duration,
        mut operation: impl FnMut(&Socket, Blocking) -> Result<T, Errno>,
    ) -> Result<T, Fault> {
        let mut last: Option<Time> = None;
        let (mut until, mut is_first) = (None, true);
        loop {
            // Reading the clock every time would double the cost of a short busy-poll.
            for _ in 0..16 {
                match operation(&self.socket, Blocking::Never) {
                    Err(Errno::AGAIN | Errno::INTR) => std::hint::spin_loop(),
                    Err(Errno::MSGSIZE) if self.has_learnt_mtu(which, &mut is_first) => {}
                    done => return self.complete(which, done),
                }
            }
            let now = self.clock.now();
            // Counts up to the last clock reading: another reading after the arrival would be part of a
            // latency.
            self.busy_poll_total += last.map_or(Duration::ZERO, |last| now.since(last));
            last = Some(now);
            if now >= *until.get_or_insert(now + within) {
                return Err(Fault::TimedOut);
            }
        }
    }

    /// Sets the kernel's timeout to the largest power of two (in microseconds) that ends by the deadline, so
    /// that round trips with the same timeout set it only once. The kernel's timers end up to two ticks
    /// late, long ones up to an eighth of their length.
    #[inline]
    fn set_kernel_timeout(&mut self, which: IoDirection, left: Duration) -> Result<Duration, Fault> {
        let sure = (left - left / 8).saturating_sub(MIN_KERNEL_TIMEOUT / 2);
        let micros = u64::try_from(sure.as_micros()).unwrap_or(u64::MAX).clamp(1, 1 << 32);
        let wanted = Duration::from_micros(1 << micros.ilog2());
        let armed = &mut self.kernel_timeouts[which as usize];
        if *armed == Some(wanted) {
            return Ok(wanted);
        }
        *armed = Some(wanted);
        match which {
            IoDirection::Receive => self.socket.set_read_timeout(Some(wanted)),
            IoDirection::Send => self.socket.set_write_timeout(Some(wanted)),
        }
        .map_err(Fault::system("set a timeout"))?;
        Ok(wanted)
    }

    /// Whether the link was tuned for stamps, and has them.
    pub(crate) fn has_stamps(&self) -> bool {
        self.stamps.is_some()
    }

    /// Receives once, with the stamp for [`SocketLink::take_arrived`].
    pub(crate) fn receive_stamped(
        &mut self,
        into: &mut [u8],
        within: Duration,
    ) -> Result<(usize, DatagramInfo), Fault> {
        let (length, info) = self.attempt(IoDirection::Receive, within, |socket, blocking| {
            system::receive_with_info(socket, into, blocking)
        })?;
        let time = |wall_ns| self.stamps.as_ref()?.time_of(wall_ns);
        self.arrived = info.arrived_wall_ns.and_then(time);
        Ok((length, info))
    }

    /// Takes the time at which the device passed the last received message to the kernel.
    #[inline]
    pub(crate) fn take_arrived(&mut self) -> Option<Time> {
        self.arrived.take()
    }

    /// A second handle for the same socket.
    pub(crate) fn duplicate(&self) -> Result<SocketLink, Fault> {
        let socket = self.socket.try_clone().map_err(Fault::system("clone the socket"))?;
        let link = SocketLink::new(socket, self.caps.clone(), &self.clock, self.wait, self.read_facts);
        let SocketLink { max_send_bytes, rearms_quick_ack, .. } = *self;
        let mtu_reporter = self.mtu_reporter.clone();
        Ok(SocketLink { max_send_bytes, rearms_quick_ack, mtu_reporter, ..link })
    }

    /// Shuts down one direction or both.
    pub(crate) fn shutdown(&self, how: Shutdown) -> Result<(), Fault> {
        match self.socket.shutdown(how) {
            // The remote was faster.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
            done => done.map_err(Fault::system("finish sending")),
        }
    }

    /// Rejects a message that is too long for this link.
    #[inline]
    pub(crate) fn check_length(&self, bytes: usize) -> Result<(), Fault> {
        match self.caps.max_message_bytes {
            Some(limit) if bytes > limit => Err(Fault::TooLong { bytes, limit }),
            _ => Ok(()),
        }
    }

    /// The kernel may support less than expected, for example with datagrams larger than the path allows.
    pub(crate) fn map_too_long(&self, fault: Fault, bytes: usize) -> Fault {
        match fault {
            Fault::System { source, .. }
                if source.raw_os_error() == Some(Errno::MSGSIZE.raw_os_error())
                    && self.caps.framing == Framing::Message =>
            {
                let limit = self.caps.max_message_bytes.unwrap_or(usize::MAX).min(bytes.saturating_sub(1));
                Fault::TooLong { bytes, limit }
            }
            fault => fault,
        }
    }
}

/// Waits until the socket is ready, at most `left`. Returns whether it is.
pub(crate) fn wait_ready(socket: impl AsHandle, which: IoDirection, left: Duration) -> bool {
    !poll_events(socket, which, left).is_empty()
}

/// Waits like [`wait_ready`]; returns the events of the socket, or none.
fn poll_events(socket: impl AsHandle, which: IoDirection, left: Duration) -> PollFlags {
    let flags = match which {
        IoDirection::Receive => PollFlags::IN,
        IoDirection::Send => PollFlags::OUT,
    };
    // The following operation reports a failed poll.
    let socket = socket.as_handle();
    let mut polled = [watch(&socket, flags)];
    match poll(&mut polled, left) {
        Ok(1..) => polled[0].revents(),
        _ => PollFlags::empty(),
    }
}

/// The direction that waits.
#[derive(Debug, Clone, Copy)]
pub(crate) enum IoDirection {
    Receive = 0,
    Send = 1,
}

impl IoDirection {
    fn operation(self) -> &'static str {
        match self {
            IoDirection::Receive => "receive",
            IoDirection::Send => "send",
        }
    }
}

/// A rule that discards all messages has discarded this many in a row, for this time.
const MIN_REFUSED: u32 = 8;
const MIN_REFUSED_TIME: Duration = Duration::from_secs(1);

/// Whether an error may be a refusal by a firewall or a route of this host.
fn may_be_local(errno: Errno) -> bool {
    [Errno::PERM, Errno::ACCESS, Errno::INVAL, Errno::HOSTUNREACH, Errno::NETUNREACH].contains(&errno)
}

/// The fault for a failed system call.
pub(crate) fn io_fault(which: IoDirection, errno: Errno) -> Fault {
    match errno {
        Errno::CONNRESET | Errno::PIPE | Errno::CONNABORTED | Errno::NOTCONN => Fault::Closed,
        Errno::TIMEDOUT => Fault::Closed,
        errno => Fault::System { operation: which.operation(), source: errno.into() },
    }
}

impl Link for SocketLink {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn facts(&self) -> Facts {
        let mut facts = Facts::new();
        // The kernel doubles the requested size and reports the doubled value, which is its effective size.
        if let Ok(bytes) = self.socket.recv_buffer_size() {
            facts.insert("receive_buffer_bytes".to_owned(), bytes.into());
        }
        if let Ok(bytes) = self.socket.send_buffer_size() {
            facts.insert("send_buffer_bytes".to_owned(), bytes.into());
        }
        (self.read_facts)(&self.socket, &mut facts);
        if let Some(router) = self.mtu_reporter.get() {
            facts.insert(MTU_REPORTER_FACT.to_owned(), router.to_string().into());
        }
        facts
    }

    fn status(&self) -> LinkStatus {
        let Caps { framing, is_reliable, .. } = self.caps;
        // Read before the state: a connection that breaks in between must not look like one with an empty queue.
        let is_stream = framing == Framing::Stream;
        let is_acknowledged = is_stream || is_reliable;
        if self.stamps.is_some() {
            StampReader::discard(&self.socket);
        }
        let unacknowledged_bytes =
            if is_acknowledged { system::unacknowledged_bytes(&self.socket) } else { None };
        let hang_up = system::hang_up(&self.socket);
        // An error is reported until a call has returned it. After that, unsent bytes have no remote to go to.
        let has_error = hang_up.is_some_and(|hang_up| hang_up.has_error);
        let has_no_peer =
            || matches!(self.socket.peer_addr(), Err(error) if error.kind() == io::ErrorKind::NotConnected);
        LinkStatus {
            is_hung_up: hang_up.is_some(),
            is_broken: has_error || unacknowledged_bytes.is_some_and(|bytes| bytes > 0) && has_no_peer(),
            unacknowledged_bytes,
            retransmits: if is_stream {
                system::tcp_info(&self.socket).and_then(|info| info.retransmits()).map(Into::into)
            } else {
                None
            },
            marks: None,
            socket_drops: if is_acknowledged { None } else { system::socket_drops(&self.socket) },
            busy_poll_time: self.busy_poll_total,
        }
    }

    fn tune(&mut self, tuning: &Tuning) {
        self.wait = tuning.wait;
        self.rearms_quick_ack = tuning.socket.quick_ack.unwrap_or(self.rearms_quick_ack);
        // The kernel numbers what is sent from here on.
        if tuning.stamps && self.stamps.is_none() {
            self.stamps = StampReader::enable(&self.socket, &self.caps, &self.clock).map(Box::new);
        }
    }

    #[inline]
    fn send(&mut self, bytes: &[u8], within: Duration) -> Result<usize, Fault> {
        self.check_length(bytes.len())?;
        let bytes = &bytes[..bytes.len().min(self.max_send_bytes)];
        let sent =
            self.attempt(IoDirection::Send, within, |socket, blocking| system::send(socket, bytes, blocking));
        self.lose_discarded(sent, bytes.len()).map_err(|fault| self.map_too_long(fault, bytes.len()))
    }

    #[inline]
    fn receive(&mut self, into: &mut [u8], within: Duration) -> Result<usize, Fault> {
        let length = match self.stamps {
            Some(_) => self.receive_stamped(into, within)?.0,
            None => self.attempt(IoDirection::Receive, within, |socket, blocking| {
                system::receive(socket, into, blocking)
            })?,
        };
        let ends = self.caps.can_signal_close || self.caps.framing == Framing::Stream;
        if length == 0 && ends && !into.is_empty() {
            return Err(Fault::Closed);
        }
        if self.rearms_quick_ack {
            // A connection that has just ended refuses, and needs no acknowledgement.
            let _ = system::set_quick_ack(&self.socket, true);
        }
        Ok(length)
    }

    #[inline]
    fn receive_batch(&mut self, into: &mut Batch, within: Duration) -> Result<(), Fault> {
        receive_single(self, into, within)?;
        into.arrived = self.take_arrived();
        Ok(())
    }

    fn finish_sending(&mut self) -> Result<(), Fault> {
        match (self.caps.can_signal_close, self.caps.can_half_close) {
            (false, _) => Ok(()),
            (true, true) => self.shutdown(Shutdown::Write),
            (true, false) => self.shutdown(Shutdown::Both),
        }
    }

    fn abort(&mut self) {
        // A close with this setting resets a TCP connection. If it cannot be set, the link ends as usual.
        let _ = self.socket.set_linger(Some(Duration::ZERO));
    }

    /// Waits for a connection that has begun; a socket is never connected again.
    fn reopen(&mut self, within: Duration) -> Result<(), Fault> {
        if !self.is_connecting {
            return Err(Fault::Closed);
        }
        if !wait_ready(&self.socket, IoDirection::Send, within) {
            return Err(Fault::TimedOut);
        }
        self.is_connecting = false;
        connect_first::finish(&self.socket)
    }

    fn second_handle(&self) -> Result<Box<dyn Link>, Fault> {
        Ok(Box::new(self.duplicate()?))
    }

    fn read_send_stamps(&mut self, into: &mut SendStamps) {
        if let Some(stamps) = &mut self.stamps {
            stamps.read(&self.socket, into);
        }
    }

    fn descriptor(&self) -> Option<BorrowedHandle<'_>> {
        Some(self.socket.as_handle())
    }

    plain_link!(send_batch port_control);
}

/// Capacity for a burst of clients; the kernel caps it at `net.core.somaxconn`.
pub(crate) const LISTEN_BACKLOG: i32 = 4096;

/// Makes a bound socket listen without blocking, with a queue of `backlog` connections.
pub(crate) fn listen(socket: &Socket, backlog: i32) -> io::Result<()> {
    socket.listen(backlog)?;
    socket.set_nonblocking(true)
}

/// Accepts a connection on a non-blocking listening socket; the new socket blocks.
pub(crate) fn accept(listener: &Socket, within: Duration) -> Result<(Socket, SockAddr), Fault> {
    // Of many clients that arrive together, only the last one is followed by a wait. On Linux an accepted socket blocks,
    // whether or not its listener does.
    let accepted = match listener.accept() {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            wait_ready(listener, IoDirection::Receive, within);
            listener.accept()
        }
        accepted => accepted,
    };
    accepted.map_err(|error| match error.kind() {
        // A client that left the queue is no error of the listener.
        io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted => {
            Fault::TimedOut
        }
        _ => Fault::System { operation: "accept", source: error },
    })
}

/// A link for an accepted connection, and its sender if known.
pub(crate) type AcceptResult = Result<(Box<dyn Link>, Option<String>), Fault>;

/// A listening socket. The transport makes the links of its connections.
pub(crate) struct SocketListener<F> {
    /// The socket that listens.
    pub(crate) socket: Socket,
    /// The endpoint that clients connect to.
    pub(crate) endpoint: Endpoint,
    /// Makes a link from a blocking connection and its remote address.
    pub(crate) make_link: F,
}

impl<F: FnMut(Socket, &SockAddr) -> AcceptResult + Send> Listener for SocketListener<F> {
    fn endpoint(&self) -> Endpoint {
        self.endpoint.clone()
    }

    fn accept(
        &mut self,
        within: Duration,
        _filter: &mut AcceptFilter,
    ) -> Result<(Box<dyn Link>, String), Fault> {
        let (socket, from) = accept(&self.socket, within)?;
        let (link, from) = (self.make_link)(socket, &from)?;
        Ok((link, from.unwrap_or_else(|| "unknown".to_owned())))
    }

    fn descriptor(&self) -> Option<BorrowedHandle<'_>> {
        Some(self.socket.as_handle())
    }
}

/// Parses an option that is 0 or 1.
pub(crate) fn parse_flag(endpoint: &Endpoint, name: &str) -> Result<Option<bool>, EndpointError> {
    endpoint.parse_option(name, "0 or 1", |text| match text {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    })
}

/// Socket buffer sizes requested with `sndbuf` and `rcvbuf`.
#[derive(Clone, Copy)]
pub(crate) struct BufferOptions {
    /// The requested `SO_SNDBUF`.
    pub(crate) send_bytes: Option<u64>,
    receive_bytes: Option<u64>,
}

impl BufferOptions {
    /// Parses the options `sndbuf` and `rcvbuf`.
    pub(crate) fn from_endpoint(endpoint: &Endpoint) -> Result<BufferOptions, EndpointError> {
        let size = |name| {
            endpoint.parse_option(name, "a size from 1 to 1Gi bytes", |text| {
                units::parse_bytes(text).ok().filter(|size| (1..=1 << 30).contains(size))
            })
        };
        Ok(BufferOptions { send_bytes: size("sndbuf")?, receive_bytes: size("rcvbuf")? })
    }

    /// Requests the sizes for a socket.
    pub(crate) fn apply(&self, socket: &Socket) -> Result<(), Fault> {
        if let Some(bytes) = self.send_bytes {
            socket.set_send_buffer_size(bytes as usize).map_err(Fault::system("set the send buffer"))?;
        }
        if let Some(bytes) = self.receive_bytes {
            socket.set_recv_buffer_size(bytes as usize).map_err(Fault::system("set the receive buffer"))?;
        }
        Ok(())
    }
}
