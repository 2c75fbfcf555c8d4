//! Opens links and listeners.
//!
//! Opening can block for any time: in the resolver, in the kernel, in a handshake. On the system clock a thread of its own does it
//! where it cannot be begun without waiting, so that an interrupt ends the wait.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::Builder;
use std::time::Duration;

use super::fault::is_file_limit_reached;
use super::party::CANCEL_CHECK_INTERVAL;
use super::reachability::silent_fault;
use super::time_of_day::TimeOfDay;
use super::unsent::SilentAttempt;
use super::{
    Caps, Fault, Framing, Hosts, KeptLinks, Link, LinkError, Listener, OpenContext, SharedResources,
    Transport, Transports, mem, own_interfaces, remote_address,
};
use crate::host::free_open_files;
use linkgauge_model::clock::{Clock, Time};
use linkgauge_model::endpoint::Endpoint;
use linkgauge_model::plan::WaitMode;

mod greeted;

pub(crate) use greeted::GreetedLink;

/// Opens links and listeners. Protocols get it together with an endpoint.
#[derive(Debug, Clone)]
pub struct Dialer {
    /// The transports that the dialer can open.
    pub transports: Transports,
    /// Ports of servers above the well-known ones: a datagram from there may be a reply.
    pub server_ports: Arc<[u16]>,
    /// The clock that links and parties use.
    pub clock: Clock,
    /// The servers of `mem://` endpoints.
    pub memory_network: mem::MemNetwork,
    /// Resources that the links of this process share, such as a LINX node.
    pub shared_resources: SharedResources,
    /// Store of open links that have one user at a time, for their next users. `None`: each link closes when it is dropped.
    pub kept_links: Option<KeptLinks>,
    /// Whether links block or busy-poll, until a party tunes them.
    pub wait: WaitMode,
    /// The addresses of names, and which of them has answered.
    pub hosts: Hosts,
    /// Timeout for opening, and for each reply of a handshake.
    pub timeout: Duration,
    /// Time after the first packet to wait for the report that a host is unreachable, if this is longer than the timeout
    /// ([`REPORT_TIME`](super::reachability::REPORT_TIME)). By default there is no such wait.
    pub report_time: Duration,
    /// The port of endpoints that name none; `None` if they must name one.
    pub default_port: Option<u16>,
    /// Whether listeners on all IPv6 addresses leave those of IPv4 to others. By default the system decides.
    pub is_v6_only: bool,
    /// Whether this thread may block, so that opening a link needs no separate thread.
    pub may_block: bool,
    /// Time of day of this host. `None`: it is read when it is needed.
    pub time_of_day: Option<TimeOfDay>,
    /// Flag that a signal sets: a run ends with its data so far, and opening ends with [`Fault::Interrupted`].
    pub cancel: Arc<AtomicBool>,
}

/// The outcome of opening a link.
pub type OpenResult = Result<Box<dyn Link>, LinkError>;

impl Dialer {
    /// A dialer for these transports that blocks, with a timeout of 1 s and without default port. `server_ports` are those of
    /// the protocols that servers here may speak.
    pub fn new(transports: Transports, server_ports: &[u16], clock: Clock) -> Dialer {
        Dialer {
            transports,
            server_ports: server_ports.into(),
            memory_network: mem::MemNetwork::new(clock.clone()),
            shared_resources: SharedResources::default(),
            kept_links: None,
            clock,
            wait: WaitMode::Block,
            hosts: Hosts::default(),
            timeout: Duration::from_secs(1),
            report_time: Duration::ZERO,
            default_port: None,
            is_v6_only: false,
            may_block: false,
            time_of_day: None,
            cancel: Arc::default(),
        }
    }

    /// The time of day of this host, and its error. `None` on the virtual clock, unless it is set.
    pub(crate) fn read_time_of_day(&self) -> Option<TimeOfDay> {
        self.time_of_day.or_else(|| TimeOfDay::read(&self.clock))
    }

    /// The time on the dialer's clock.
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    pub(crate) fn open_context(&self) -> OpenContext {
        OpenContext {
            clock: self.clock.clone(),
            memory_network: self.memory_network.clone(),
            shared_resources: self.shared_resources.clone(),
            hosts: self.hosts.clone(),
            timeout: self.timeout,
            report_time: self.report_time,
            wait: self.wait,
            is_v6_only: self.is_v6_only,
            default_port: self.default_port,
        }
    }

    /// Opens a link. Ends soon after an interrupt.
    ///
    /// # Errors
    ///
    /// Fails if the endpoint is invalid, if the link cannot be opened within the timeout, or after an interrupt.
    pub fn open(&self, endpoint: &Endpoint) -> OpenResult {
        let has_one_user =
            |_: &&KeptLinks| self.transports.caps(endpoint).is_ok_and(|caps| !caps.can_open_parallel);
        let Some(kept) = self.kept_links.as_ref().filter(has_one_user) else {
            return self.open_new(endpoint);
        };
        let link = kept.take(endpoint).map_or_else(|| self.open_new(endpoint), Ok)?;
        Ok(kept.lend(endpoint, link))
    }

    fn open_new(&self, endpoint: &Endpoint) -> OpenResult {
        if self.may_block || matches!(self.clock, Clock::Virtual(_)) {
            return self.open_here(endpoint);
        }
        if self.can_begin_open(endpoint) {
            return self.open_interruptibly(endpoint);
        }
        let mut pending = self.start_opening(endpoint)?;
        loop {
            match pending.wait(CANCEL_CHECK_INTERVAL) {
                Some(opened) => return opened,
                None if self.cancel.load(Relaxed) => {
                    return Err(LinkError::new(endpoint, Fault::Interrupted));
                }
                None => {}
            }
        }
    }

    /// Opens many links, several at a time: calls `open` with the number of each, from 0, in some threads. Returns the
    /// links in this order.
    ///
    /// # Errors
    ///
    /// Before anything is opened, that this process may not open a file for each. Later the first error of `open`;
    /// [`Fault::Interrupted`] after an interrupt.
    pub(crate) fn open_many<T, E>(
        &self,
        endpoint: &Endpoint,
        count: usize,
        open: impl Fn(&Dialer, usize) -> Result<T, E> + Send + Sync + 'static,
    ) -> Result<Vec<T>, E>
    where
        T: Send + 'static,
        E: From<LinkError> + Send + 'static,
    {
        match count {
            0..MIN_OPENED_TOGETHER => (0..count).map(|number| open(self, number)).collect(),
            _ => self.open_together(endpoint, count, open),
        }
    }

    /// `open_many` with several threads for a few links, too: for handshakes, each of which takes round trips.
    ///
    /// # Errors
    ///
    /// Same errors as [`Dialer::open_many`].
    pub(super) fn open_together<T, E>(
        &self,
        endpoint: &Endpoint,
        count: usize,
        open: impl Fn(&Dialer, usize) -> Result<T, E> + Send + Sync + 'static,
    ) -> Result<Vec<T>, E>
    where
        T: Send + 'static,
        E: From<LinkError> + Send + 'static,
    {
        let is_virtual = matches!(self.clock, Clock::Virtual(_));
        if !is_virtual {
            check_open_files(endpoint, count)?;
        }
        if count < 2 || is_virtual {
            return (0..count).map(|number| open(self, number)).collect();
        }
        let (sender, opened) = sync_channel(count);
        let (open, next) = (Arc::new(open), Arc::new(AtomicUsize::new(0)));
        for _ in 0..OPENING_THREADS.min(count) {
            let (sender, open, next) = (sender.clone(), open.clone(), next.clone());
            let dialer = Dialer { may_block: true, ..self.clone() };
            let run = move || {
                loop {
                    let number = next.fetch_add(1, Relaxed);
                    if number >= count || dialer.cancel.load(Relaxed) {
                        return;
                    }
                    let result = open(&dialer, number);
                    // After an error no thread begins another link.
                    let is_last = result.is_err();
                    if sender.send((number, result)).is_err() || is_last {
                        next.store(count, Relaxed);
                        return;
                    }
                }
            };
            start_opening_thread(endpoint, run)?;
        }
        drop(sender);
        let mut links: Vec<Option<T>> = Vec::new();
        links.resize_with(count, || None);
        let mut left = count;
        while left > 0 {
            match opened.recv_timeout(CANCEL_CHECK_INTERVAL) {
                Ok((number, result)) => {
                    links[number] = Some(result?);
                    left -= 1;
                }
                _ if self.cancel.load(Relaxed) => {
                    return Err(LinkError::new(endpoint, Fault::Interrupted).into());
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(opening_failed(endpoint).into()),
            }
        }
        Ok(links.into_iter().flatten().collect())
    }

    /// Starts to open a link in a separate thread.
    ///
    /// # Errors
    ///
    /// Fails if the system starts no thread.
    pub(crate) fn start_opening(&self, endpoint: &Endpoint) -> Result<PendingOpen, LinkError> {
        let (sender, opened) = sync_channel(1);
        let (dialer, target) = (self.clone(), endpoint.clone());
        let open = move || {
            // The receiver may have given up.
            let _ = sender.send(dialer.open_here(&target));
        };
        start_opening_thread(endpoint, open)?;
        Ok(PendingOpen { endpoint: endpoint.clone(), opened })
    }

    /// Whether [`Dialer::begin_open`] can open such links: the transport does not block, and the endpoint has an address,
    /// because resolving a name blocks.
    pub(crate) fn can_begin_open(&self, endpoint: &Endpoint) -> bool {
        let has_address = endpoint.host_port().is_ok_and(|(host, _)| host.parse::<IpAddr>().is_ok());
        has_address
            && matches!(self.clock, Clock::System)
            && self.transports.find(endpoint).is_ok_and(|transport| transport.begin_open.is_some())
    }

    /// The endpoint with the address of an open link, if links can be begun then: resolving a name blocks.
    pub(crate) fn connected_endpoint(&self, endpoint: &Endpoint, link: &dyn Link) -> Endpoint {
        let connected = remote_address(link).and_then(|remote| endpoint.with_address(remote).ok());
        connected.filter(|connected| self.can_begin_open(connected)).unwrap_or_else(|| endpoint.clone())
    }

    /// Begins to open a link and does not wait ([`Transport::begin_open`]).
    ///
    /// # Errors
    ///
    /// [`Fault::Unsupported`] where opening blocks; otherwise as [`Dialer::open`].
    pub(crate) fn begin_open(&self, endpoint: &Endpoint) -> OpenResult {
        self.with_transport(endpoint, |transport| match transport.begin_open {
            Some(begin) => begin(endpoint, &self.open_context()),
            None => Err(Fault::Unsupported(format!("opening {} blocks", transport.scheme))),
        })
    }

    /// Opens a link in this thread, where that can be begun without waiting.
    fn open_interruptibly(&self, endpoint: &Endpoint) -> OpenResult {
        // A host that is silent may yet be reported as unreachable.
        let report_time = if self.is_local(endpoint) { Duration::ZERO } else { self.report_time };
        let until = self.now() + self.timeout.max(report_time);
        let mut silent = SilentAttempt::begin(self.now());
        let mut link = self.begin_open(endpoint)?;
        loop {
            silent.observe(self.now());
            let left = until.since(self.now());
            let fault = match link.reopen(left.min(CANCEL_CHECK_INTERVAL)) {
                Ok(()) => return Ok(link),
                Err(Fault::TimedOut) if self.cancel.load(Relaxed) => Fault::Interrupted,
                Err(Fault::TimedOut) if left > CANCEL_CHECK_INTERVAL => continue,
                Err(Fault::TimedOut) => silent.fault(),
                Err(fault) => fault,
            };
            return Err(LinkError::new(endpoint, fault));
        }
    }

    /// Reason why nothing arrives from the host of an endpoint without connections: a report about a packet, which may come late,
    /// or [`silent_fault`]. `None` if the host is this one, or is reached.
    pub(crate) fn diagnose_silence(&self, endpoint: &Endpoint) -> Option<Fault> {
        if !self.can_be_silent(endpoint) {
            return None;
        }
        let mut link = match self.open(endpoint) {
            Ok(link) => link,
            Err(error) => return Some(error.fault),
        };
        match link.send(TRIAL, self.timeout) {
            Ok(_) => self.await_report(endpoint, link.as_mut()),
            Err(fault) => Some(fault),
        }
    }

    /// Reason why the packets of this link have no reply. Waits for a report about them; see [`Dialer::diagnose_silence`].
    pub(crate) fn await_report(&self, endpoint: &Endpoint, link: &mut dyn Link) -> Option<Fault> {
        if !self.can_be_silent(endpoint) {
            return None;
        }
        match self.receive(link, &mut [0; TRIAL.len()], self.report_time) {
            Ok(_) => None,
            Err(Fault::TimedOut) => Some(silent_fault()),
            Err(fault) => Some(fault),
        }
    }

    /// Whether the endpoint is one of datagrams to another host.
    pub(crate) fn can_be_silent(&self, endpoint: &Endpoint) -> bool {
        let is_datagram = |caps: Caps| !caps.is_reliable && caps.framing == Framing::Message;
        self.transports.find(endpoint).is_ok_and(|transport| transport.resolve.is_some())
            && self.transports.caps(endpoint).is_ok_and(is_datagram)
            && !self.is_local(endpoint)
    }

    fn open_here(&self, endpoint: &Endpoint) -> OpenResult {
        self.with_transport(endpoint, |transport| (transport.open)(endpoint, &self.open_context()))
    }

    /// [`Link::receive`] during a handshake: ends soon after an interrupt.
    ///
    /// # Errors
    ///
    /// [`Fault::Interrupted`] after an interrupt; otherwise as [`Link::receive`].
    pub fn receive(&self, link: &mut dyn Link, into: &mut [u8], within: Duration) -> Result<usize, Fault> {
        let until = self.now() + within;
        loop {
            let left = until.since(self.now());
            match link.receive(into, left.min(CANCEL_CHECK_INTERVAL)) {
                Err(Fault::TimedOut) if self.cancel.load(Relaxed) => return Err(Fault::Interrupted),
                Err(Fault::TimedOut) if left > CANCEL_CHECK_INTERVAL => {}
                done => return done,
            }
        }
    }

    /// Asks the resolver once: later links of this dialer to the host use the same addresses. Returns the time that it took; `None`
    /// for endpoints without a name, and for names that are not found.
    pub fn resolve_once(&self, endpoint: &Endpoint) -> Option<Duration> {
        let resolve = self.transports.find(endpoint).ok()?.resolve?;
        let (host, _) = endpoint.host_port().ok().filter(|(host, _)| host.parse::<IpAddr>().is_err())?;
        let began = self.now();
        let found = resolve(endpoint, &self.open_context()).ok()?;
        let elapsed = self.now().since(began);
        self.hosts.insert(host, found.iter().map(SocketAddr::ip).collect());
        Some(elapsed)
    }

    /// Whether the endpoint is known to be an address of this host.
    pub fn is_local(&self, endpoint: &Endpoint) -> bool {
        let resolve = self.transports.find(endpoint).ok().and_then(|transport| transport.resolve);
        let found = resolve.and_then(|resolve| resolve(endpoint, &self.open_context()).ok());
        found.is_some_and(|found| found.iter().all(|address| own_interfaces::is_own(address.ip())))
    }

    /// Opens a listener.
    ///
    /// # Errors
    ///
    /// Fails if the endpoint is invalid, or if the transport cannot listen on it.
    pub fn listen(&self, endpoint: &Endpoint) -> Result<Box<dyn Listener>, LinkError> {
        self.with_transport(endpoint, |transport| match transport.listen {
            Some(listen) => listen(endpoint, &self.open_context()),
            None => Err(Fault::Unsupported(format!(
                "{} cannot listen: its remote is a device or a kernel. The lab has stand-ins for devices (linkgauge lab)",
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
            let transport = self.transports.find(endpoint)?;
            transport.caps(endpoint)?;
            act(transport).map_err(|fault| match (fault, (transport.available)()) {
                // The error does not concern the transport, whatever error a trial socket returns now.
                (fault, _) if matches!(&fault, Fault::System { source, .. } if is_file_limit_reached(source)) => {
                    fault
                }
                (Fault::System { .. }, Err(missing)) => {
                    Fault::Unsupported(format!("{}: {}", missing.reason, missing.remedy))
                }
                (fault, _) => fault,
            })
        };
        act().map_err(|fault| LinkError::new(endpoint, fault))
    }
}

/// Data of a packet that is sent only for the reports about it.
const TRIAL: &[u8] = &[0; 16];

/// Number of links below which they are opened one after another.
const MIN_OPENED_TOGETHER: usize = 16;

/// Files that a measurement needs besides its links.
const OTHER_FILES: u64 = 40;

/// Checks that this process may open a file for each of these links.
fn check_open_files(endpoint: &Endpoint, links: usize) -> Result<(), LinkError> {
    let is_in_memory = endpoint.scheme() == mem::TRANSPORT.scheme;
    // Counting takes long in a process with many open files.
    if links < MIN_OPENED_TOGETHER || is_in_memory {
        return Ok(());
    }
    let needed = links as u64 + OTHER_FILES;
    match free_open_files().filter(|free| *free < needed) {
        Some(free) => Err(LinkError::new(endpoint, Fault::Invalid(too_few_files(links, free)))),
        None => Ok(()),
    }
}

fn too_few_files(links: usize, free: u64) -> String {
    let possible = free.saturating_sub(OTHER_FILES);
    let limit = (links as u64 + 2 * OTHER_FILES).next_multiple_of(1000);
    format!(
        "{links} links need a file each, and this process may open {possible} more: use fewer links, or raise the hard \
         limit (ulimit -Hn) first: sudo prlimit --nofile={limit} --pid $$"
    )
}

/// Threads that open many links: enough to hide the round trips of a handshake.
const OPENING_THREADS: usize = 16;

fn start_opening_thread(endpoint: &Endpoint, open: impl FnOnce() + Send + 'static) -> Result<(), LinkError> {
    let thread = Builder::new().name("opening".to_owned()).spawn(open);
    let fault = |source| LinkError::new(endpoint, Fault::System { operation: "start a thread", source });
    thread.map(drop).map_err(fault)
}

fn opening_failed(endpoint: &Endpoint) -> LinkError {
    let reason = "the thread that opens the link failed: please report this".to_owned();
    LinkError::new(endpoint, Fault::Internal(reason))
}

/// A link that a thread opens.
pub(crate) struct PendingOpen {
    endpoint: Endpoint,
    opened: Receiver<OpenResult>,
}

impl PendingOpen {
    /// The outcome; `None` if opening takes longer than `within`.
    pub(crate) fn wait(&mut self, within: Duration) -> Option<OpenResult> {
        match self.opened.recv_timeout(within) {
            Ok(opened) => Some(opened),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Err(opening_failed(&self.endpoint))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use socket2::{Domain, Socket, Type};

    use super::*;
    use crate::link::fault::RAISE_FILE_LIMIT_HINT;
    use crate::protocol::Registry;

    #[test]
    fn an_interrupt_ends_opening() {
        // The queue of the listener is full, so the kernel ignores further connections.
        let any: std::net::SocketAddr = "127.0.0.1:0".parse().unwrap();
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        listener.bind(&any.into()).unwrap();
        listener.listen(0).unwrap();
        let address = listener.local_addr().unwrap();
        let first = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        first.connect(&address).unwrap();
        let endpoint: Endpoint = format!("tcp://{}", address.as_socket().unwrap()).parse().unwrap();
        let mut dialer = Registry::standard().dialer(Clock::System);
        dialer.timeout = Duration::from_secs(60);
        let cancel = dialer.cancel.clone();
        let began = Instant::now();
        let interrupt = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            cancel.store(true, Relaxed);
        });
        let error = dialer.open(&endpoint).err().unwrap();
        assert!(matches!(error.fault, Fault::Interrupted), "{error}");
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
        interrupt.join().unwrap();
    }

    #[test]
    fn too_many_open_files_have_one_remedy_on_every_transport() {
        let dialer = Registry::standard().dialer(Clock::System);
        for transport in dialer.transports.0 {
            let endpoint = transport.example.parse().unwrap();
            let full =
                |_| Err::<(), _>(Fault::system("open a socket")(linkgauge_system::Errno::MFILE.into()));
            let message = dialer.with_transport(&endpoint, full).unwrap_err().to_string();
            assert!(
                message.contains("Too many open files") && message.ends_with(RAISE_FILE_LIMIT_HINT),
                "{message}"
            );
        }
    }
}
