//! The shaper: a relay between two links that adds the delay, rate, queue and faults of another link.
//!
//! Client and server can be any programs. Each connection has two threads, one per direction, that only receive from
//! one side and send to the other. [`linkgauge_engine::link::shaped`] decides what happens in between. A side that does not read
//! blocks only its own connection.

use std::fs::File;
use std::io::{self, LineWriter, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, Builder, JoinHandle};
use std::time::Duration;

use super::LabError;
use linkgauge_engine::Registry;
use linkgauge_engine::host::cpu;
use linkgauge_engine::link::party::CANCEL_CHECK_INTERVAL;
use linkgauge_engine::link::shaped::{
    MessageLog, MessageRecord, Occurrence, PathCounters, QueueManagement, Shape, ShapedLink, SharedPath,
};
use linkgauge_engine::link::{Admission, Dialer, Fault, Framing, Link, LinkError, Listener};
use linkgauge_engine::serve::ServerCounters;
use linkgauge_model::clock::Time;
use linkgauge_model::endpoint::Endpoint;
use linkgauge_model::units::{format_bit_rate, format_bytes, format_duration};

/// The endpoints of a relay and the shape of each direction.
#[derive(Debug, Clone)]
pub struct ShaperOptions {
    /// Endpoint that clients connect to.
    pub listen: Endpoint,
    /// The server that the relay connects to.
    pub to: Endpoint,
    /// Shape from the connecting client to `to`.
    pub up: Shape,
    /// Shape from `to` to the connecting client.
    pub down: Shape,
    /// Seed of the effects: the same seed has the same effects on the same messages.
    pub seed: u64,
    /// File to log the treatment of each message in.
    pub log: Option<PathBuf>,
}

/// Default size of the queue in front of a link of this rate: 100 ms, and at least 64 KiB.
pub fn default_queue_bytes(bits_per_second: f64) -> u64 {
    ((bits_per_second / 8.0 * 0.1) as u64).max(64 << 10)
}

/// A kind of link with a name.
pub struct LinkProfile {
    /// The name in commands.
    pub name: &'static str,
    /// One line for help and documents.
    pub summary: &'static str,
    /// Shape of each direction, without rate and queue.
    pub shape: Shape,
    /// Bits per second, upload.
    pub rate_up: f64,
    /// Bits per second, download.
    pub rate_down: f64,
}

/// Rates and half the round trip from `connectivity.ini.sample` of WebPageTest, except satellite (a round trip of
/// about 600 ms is usual), fibre, lan and the radio links, which are our own. The radio links are based on the
/// wireless study, which measured 32-byte messages. Access point: median 2.0 ms, p90 5.8 ms, 1.4 % over 300 ms (TCP),
/// 1.8 % lost (UDP). RFCOMM: median 7.9 ms, p90 16.9 ms, none over 50 ms, none lost. Each direction gets half.
pub static PROFILES: &[LinkProfile] = &[
    profile("satellite", "geostationary satellite", 300_000, 2e6, 20e6),
    profile("dial-up", "modem on a telephone line", 60_000, 30e3, 49e3),
    profile("2g", "GPRS", 400_000, 256e3, 280e3),
    profile("3g", "UMTS", 150_000, 768e3, 1.6e6),
    profile("lte", "LTE", 35_000, 12e6, 12e6),
    profile("dsl", "DSL", 25_000, 384e3, 1.5e6),
    profile("cable", "cable television", 14_000, 1e6, 5e6),
    profile("fibre", "fibre to the home", 5_000, 100e6, 100e6),
    profile("lan", "Ethernet in the same house", 100, 1e9, 1e9),
    LinkProfile {
        shape: Shape {
            delay: Duration::from_micros(850),
            tail: Duration::from_micros(150),
            spike_occurrence: Occurrence::Share(0.007),
            spike_delay: Duration::from_millis(300),
            loss: Occurrence::Share(0.009),
            ..Shape::NONE
        },
        // Approximate payload rate of 802.11g at 54 Mbit/s.
        ..profile("wifi", "Wi-Fi through an access point", 0, 20e6, 20e6)
    },
    LinkProfile {
        shape: Shape {
            delay: Duration::from_micros(3_000),
            tail: Duration::from_micros(50),
            // Seven slots in which other devices have their turn.
            spike_occurrence: Occurrence::Share(0.06),
            spike_delay: Duration::from_micros(8_750),
            // One slot in each direction, of 625 µs.
            slot: Duration::from_micros(1_250),
            ..Shape::NONE
        },
        // Packets of 5 slots at 3 Mbit/s (3-DH5), in both directions.
        ..profile("bluetooth", "Bluetooth, a connection of the classic kind", 0, 1.3069e6, 1.3069e6)
    },
];

const fn profile(
    name: &'static str,
    summary: &'static str,
    delay_us: u64,
    rate_up: f64,
    rate_down: f64,
) -> LinkProfile {
    let shape = Shape { delay: Duration::from_micros(delay_us), ..Shape::NONE };
    LinkProfile { name, summary, shape, rate_up, rate_down }
}

/// Describes a shape in a few phrases, except delay, jitter, rate and queue.
pub fn describe_impairments(shape: &Shape) -> Vec<String> {
    let mut words = Vec::new();
    if !shape.tail.is_zero() {
        words.push(format!("tail {}", format_duration(shape.tail)));
    }
    let longer = format!("longer by {}", format_duration(shape.spike_delay));
    for (word, often) in [
        (longer.as_str(), shape.spike_occurrence),
        ("lost", shape.loss),
        ("twice", shape.duplicate),
        ("overtaken", shape.reorder),
    ] {
        if let Occurrence::Share(share) = often {
            words.push(format!("{:.4} % {word}", share * 100.0));
        }
    }
    if let Occurrence::Share(share) = shape.wait_occurrence {
        words.push(format!("{:.4} % wait {} on average", share * 100.0, format_duration(shape.mean_wait)));
    }
    if shape.burst_bytes > 0 {
        words.push(format!("bursts of {}", format_bytes(shape.burst_bytes)));
    }
    if shape.overhead_bytes > 0 {
        words.push(format!("{} of headers", format_bytes(shape.overhead_bytes)));
    }
    if let Some(police) = &shape.police {
        words.push(format!(
            "dropped above {} (burst {})",
            format_bit_rate(police.bits_per_second),
            format_bytes(police.burst_bytes)
        ));
    }
    if shape.queue_management == QueueManagement::Codel {
        words.push("CoDel".to_owned());
    }
    if !shape.slot.is_zero() {
        words.push(format!("slots of {}", format_duration(shape.slot)));
    }
    words
}

/// Maximum number of simultaneous connections. Each takes two threads.
const MAX_CONNECTIONS: usize = 1000;

/// Interval at which a waiting thread checks whether to stop.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Links without connections end after this time without traffic.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum number of stream bytes forwarded at once.
const MAX_CHUNK_BYTES: usize = 64 * 1024;

const THREAD_STACK_BYTES: usize = 256 * 1024;

/// Maximum number of unread events. Further events are dropped.
const MAX_QUEUED_EVENTS: usize = 64;

/// A running shaper; it stops when dropped.
pub struct Shaper {
    endpoint: Endpoint,
    relay: Arc<Relay>,
    listener: Option<JoinHandle<()>>,
    events: Receiver<String>,
    log: Option<MessageLogFile>,
}

struct Relay {
    /// Endpoint of the server, as typed.
    to: Endpoint,
    /// Endpoint of the server, with the options of the line.
    opened: Endpoint,
    dialer: Dialer,
    up: SharedPath,
    down: SharedPath,
    stop: AtomicBool,
    counters: ServerCounters,
    events: SyncSender<String>,
}

impl Shaper {
    /// Listens, and opens a link to the server for each client.
    ///
    /// # Errors
    ///
    /// Fails if the options contradict each other, or if the listener, the log or the thread cannot be started.
    pub fn start(options: &ShaperOptions, dialer: &Dialer) -> Result<Shaper, LabError> {
        check_options(options)?;
        let listen_options = line_options(&options.listen, &options.up)?;
        let listener = dialer.listen(&with_options(&options.listen, &listen_options)?)?;
        let (sender, events) = sync_channel(MAX_QUEUED_EVENTS);
        let relay = Arc::new(Relay {
            opened: with_options(&options.to, &line_options(&options.to, &options.down)?)?,
            to: options.to.clone(),
            dialer: dialer.clone(),
            up: SharedPath::new(options.up.clone(), options.seed),
            down: SharedPath::new(options.down.clone(), !options.seed),
            stop: AtomicBool::new(false),
            counters: ServerCounters::default(),
            events: sender,
        });
        let log = options.log.as_deref().map(MessageLogFile::create).transpose()?;
        if let Some(log) = &log {
            relay.up.set_log(Some(log.direction_log("up")));
            relay.down.set_log(Some(log.direction_log("down")));
        }
        let mut endpoint = listener.endpoint();
        for (name, _) in listen_options {
            endpoint = endpoint.without_option(name)?;
        }
        let accepting = relay.clone();
        let thread =
            Builder::new().name("shaper".to_owned()).spawn(move || accepting.accept_clients(listener));
        let thread = thread.map_err(LabError::system("start a thread"))?;
        Ok(Shaper { endpoint, relay, listener: Some(thread), events, log })
    }

    /// The effective listening endpoint.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Counters of the direction from the clients, then of the direction to them.
    pub fn tallies(&self) -> [PathCounters; 2] {
        [self.relay.up.counters(), self.relay.down.counters()]
    }

    /// The counters of connections since the start.
    pub fn counters(&self) -> &ServerCounters {
        &self.relay.counters
    }

    /// Errors since the last call, one line each.
    pub fn events(&self) -> impl Iterator<Item = String> {
        self.events.try_iter().chain(self.log.as_ref().and_then(MessageLogFile::failure))
    }
}

impl Drop for Shaper {
    /// Accepts no more connections and ends the open ones.
    fn drop(&mut self) {
        self.relay.stop.store(true, Relaxed);
        if let Some(listener) = self.listener.take() {
            // A listener that panicked has already printed its message.
            let _ = listener.join();
        }
    }
}

/// Whether a link to this endpoint carries a stream, which cannot lose data.
///
/// # Errors
///
/// Fails if the endpoint is invalid.
pub fn is_stream_endpoint(endpoint: &Endpoint) -> Result<bool, LinkError> {
    let caps =
        Registry::standard().transports.caps(endpoint).map_err(|fault| LinkError::new(endpoint, fault))?;
    Ok(caps.framing == Framing::Stream)
}

/// The receive buffer of the system is a queue in front of the queue of the link, one for each connection: so it is as large
/// as the line carries in this time, but at least some packets. On fast lines the system decides.
const BUFFERED_TIME: Duration = Duration::from_millis(5);
const LEAST_BUFFER_BYTES: u64 = 16 << 10;
const LARGEST_SMALL_BUFFER_BYTES: u64 = 1 << 20;

/// Payload of a segment over Ethernet. The segments of loopback are as long as the queues of slow lines, and senders buffer
/// several of them.
const SEGMENT_BYTES: u64 = 1460;

/// The options for sockets that receive what a line then carries: for streams with a rate, as far as the endpoint has them and
/// leaves them open.
fn line_options(endpoint: &Endpoint, shape: &Shape) -> Result<Vec<(&'static str, u64)>, LabError> {
    let transport =
        Registry::standard().transports.find(endpoint).map_err(|fault| LinkError::new(endpoint, fault))?;
    let bytes = (shape.bits_per_second / 8.0 * BUFFERED_TIME.as_secs_f64()) as u64;
    if !is_stream_endpoint(endpoint)? || bytes > LARGEST_SMALL_BUFFER_BYTES {
        return Ok(Vec::new());
    }
    let options = [("rcvbuf", bytes.max(LEAST_BUFFER_BYTES)), ("mss", SEGMENT_BYTES)];
    let is_open = |name: &str| {
        transport.options.iter().any(|(known, _)| *known == name) && endpoint.option(name).is_none()
    };
    Ok(options.into_iter().filter(|(name, _)| is_open(name)).collect())
}

/// The endpoint with these options as well.
fn with_options(endpoint: &Endpoint, options: &[(&str, u64)]) -> Result<Endpoint, LabError> {
    let add =
        |endpoint: Endpoint, (name, value): &(&str, u64)| endpoint.with_option(name, &value.to_string());
    Ok(options.iter().try_fold(endpoint.clone(), add)?)
}

/// Rejects options that cannot be applied.
fn check_options(options: &ShaperOptions) -> Result<(), LabError> {
    let ShaperOptions { listen, to, .. } = options;
    let is_stream = is_stream_endpoint(listen)?;
    if is_stream != is_stream_endpoint(to)? {
        let kind = |is_stream| if is_stream { "a stream" } else { "messages" };
        return Err(LabError::Invalid(format!(
            "{listen} carries {}, {to} {}: both must be streams, or both must have messages",
            kind(is_stream),
            kind(!is_stream)
        )));
    }
    if is_stream && options.log.is_some() {
        return Err(LabError::Invalid(format!(
            "{listen}: a stream has no datagrams to log. Leave out --log"
        )));
    }
    for shape in [&options.up, &options.down] {
        if is_stream && shape.has_faults() {
            return Err(LabError::Invalid(format!(
                "{listen}: nothing is lost, doubled or reordered in a stream: shape datagrams, or the device below \
                 (--netem)"
            )));
        }
        check_shape(shape)?;
    }
    Ok(())
}

/// Rejects a contradictory shape.
pub(super) fn check_shape(shape: &Shape) -> Result<(), LabError> {
    if shape.jitter > shape.delay {
        let (jitter, delay) = (shape.jitter, shape.delay);
        return Err(LabError::Invalid(format!(
            "a jitter of {jitter:?} around a delay of {delay:?}: no delay is below zero"
        )));
    }
    let needs_rate = shape.burst_bytes > 0 || shape.overhead_bytes > 0;
    if needs_rate && shape.bits_per_second.is_infinite() {
        let text = "a burst or an overhead without a rate changes nothing. Add --rate";
        return Err(LabError::Invalid(text.to_owned()));
    }
    Ok(())
}

/// The log of the treatment of each message. Each line is written immediately.
struct MessageLogFile {
    file: Arc<Mutex<LineWriter<File>>>,
    name: String,
    error: Arc<OnceLock<String>>,
    is_reported: AtomicBool,
}

impl MessageLogFile {
    fn create(path: &std::path::Path) -> Result<MessageLogFile, LabError> {
        let name = path.display().to_string();
        let create = || {
            let mut file = LineWriter::new(File::create(path)?);
            writeln!(file, "direction,number,came_ns,bytes,fate,delay_ns")?;
            Ok(file)
        };
        let file = create().map_err(LabError::system::<io::Error>(&name))?;
        Ok(MessageLogFile {
            file: Arc::new(Mutex::new(file)),
            name,
            error: Arc::default(),
            is_reported: AtomicBool::new(false),
        })
    }

    /// The log of one direction.
    fn direction_log(&self, direction: &'static str) -> MessageLog {
        let (file, failed) = (self.file.clone(), self.error.clone());
        MessageLog(Box::new(move |deed| {
            let MessageRecord { number, arrival, bytes, fate, delay } = deed;
            let delay = delay.map_or(String::new(), |delay| delay.as_nanos().to_string());
            let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
            let line = writeln!(file, "{direction},{number},{},{bytes},{},{delay}", arrival.0, fate.name());
            if let Err(error) = line {
                // Later errors have the same cause as the first.
                let _ = failed.set(error.to_string());
            }
        }))
    }

    /// Reason why the log is incomplete; reported once.
    fn failure(&self) -> Option<String> {
        let failed = self.error.get().filter(|_| !self.is_reported.swap(true, Relaxed))?;
        Some(format!("{}: {failed}: from now on it lacks lines", self.name))
    }
}

/// The side that failed.
enum RelayError {
    Source(Fault),
    Destination(Fault),
}

/// State that the two threads of a connection share.
struct RelayConnection {
    /// Neither direction can carry data any more.
    is_ended: AtomicBool,
    /// Time of the last transfer.
    last_activity: AtomicU64,
    /// The link does not signal its end, so an idle timeout ends it.
    ends_when_idle: bool,
}

impl Relay {
    fn accept_clients(self: &Arc<Relay>, mut listener: Box<dyn Listener>) {
        // For this thread and those it starts: the timer limits the accuracy of a delay.
        let _ = cpu::set_timer_slack_ns(1);
        while !self.stop.load(Relaxed) {
            match listener.accept(CANCEL_CHECK_INTERVAL, &mut |_, _, _| Admission::Open) {
                Ok((link, from)) => self.start_connection(link, from),
                Err(Fault::TimedOut) => {}
                // Usually no descriptor is free. Open connections will release theirs.
                Err(_) => thread::sleep(CANCEL_CHECK_INTERVAL),
            }
        }
    }

    fn start_connection(self: &Arc<Relay>, client: Box<dyn Link>, from: String) {
        let place = RelayedConnection(self.clone());
        if self.counters.open.fetch_add(1, Relaxed) >= MAX_CONNECTIONS {
            self.counters.refused.fetch_add(1, Relaxed);
            return;
        }
        self.counters.accepted.fetch_add(1, Relaxed);
        let run = move || {
            if let Err(error) = place.0.run_connection(client) {
                place.0.record_failure(&from, error);
            }
            drop(place);
        };
        if let Err(error) =
            Builder::new().name("shaper up".to_owned()).stack_size(THREAD_STACK_BYTES).spawn(run)
        {
            self.record_failure("a connection", format_args!("start a thread: {error}"));
        }
    }

    fn record_failure(&self, from: &str, error: impl std::fmt::Display) {
        self.counters.failed.fetch_add(1, Relaxed);
        // Events that no reader collects are dropped.
        let _ = self.events.try_send(format!("{from}: {error}"));
    }

    /// Runs a connection until it ends.
    fn run_connection(&self, client: Box<dyn Link>) -> Result<(), LinkError> {
        let server = self.dialer.open(&self.opened);
        let server = server.map_err(|error| LinkError::new(&self.to, error.fault))?;
        let run = || {
            let (to_client, to_server) = (client.second_handle()?, server.second_handle()?);
            let connection = RelayConnection {
                is_ended: AtomicBool::new(false),
                last_activity: AtomicU64::new(self.dialer.now().0),
                ends_when_idle: client.caps().framing == Framing::Message && !client.caps().can_signal_close,
            };
            let clock = &self.dialer.clock;
            let (client, server) =
                (ShapedLink::new(client, clock, &self.up), ShapedLink::new(server, clock, &self.down));
            thread::scope(|scope| {
                let down = Builder::new()
                    .name("shaper down".to_owned())
                    .stack_size(THREAD_STACK_BYTES)
                    .spawn_scoped(scope, || self.relay_direction(server, to_client, &connection))
                    .map_err(Fault::system("start a thread"))?;
                let up = self.relay_direction(client, to_server, &connection);
                // A thread that panicked has already printed its message.
                let down = down.join().unwrap_or(Ok(()));
                match (up, down) {
                    (Err(RelayError::Destination(fault)), _) | (_, Err(RelayError::Source(fault))) => {
                        Err(fault)
                    }
                    // A client that disconnects is not an error.
                    _ => Ok(()),
                }
            })
        };
        run().map_err(|fault| LinkError::new(&self.to, fault))
    }

    /// Forwards data and the end of the stream.
    fn relay_direction(
        &self,
        from: ShapedLink,
        to: Box<dyn Link>,
        connection: &RelayConnection,
    ) -> Result<(), RelayError> {
        let passed = self.relay_until_end(from, to, connection);
        if passed.is_err() {
            connection.is_ended.store(true, Relaxed);
        }
        passed
    }

    fn relay_until_end(
        &self,
        mut from: ShapedLink,
        mut to: Box<dyn Link>,
        connection: &RelayConnection,
    ) -> Result<(), RelayError> {
        let mut buffer = vec![0; from.caps().max_message_bytes.unwrap_or(MAX_CHUNK_BYTES)];
        while self.should_continue(connection) {
            match from.receive(&mut buffer, POLL_INTERVAL) {
                Ok(length) => {
                    connection.last_activity.store(self.dialer.now().0, Relaxed);
                    match self.send_all(&buffer[..length], to.as_mut(), connection) {
                        // Deliver the remaining data of the sender first. The end then propagates to the other
                        // direction.
                        Err(Fault::Closed) => return Ok(()),
                        passed => passed.map_err(RelayError::Destination)?,
                    }
                }
                Err(Fault::TimedOut) => {
                    let idle = self.dialer.now() - Time(connection.last_activity.load(Relaxed));
                    if connection.ends_when_idle && idle >= IDLE_TIMEOUT && from.is_empty() {
                        connection.is_ended.store(true, Relaxed);
                    }
                }
                Err(Fault::Closed) => {
                    // A side that has hung up, rather than finished sending, accepts nothing more. An empty message
                    // would be data.
                    let gone = from.caps().framing == Framing::Stream
                        && matches!(from.send(&[], Duration::ZERO), Err(Fault::Closed));
                    let can_continue = to.caps().can_signal_close && to.caps().can_half_close;
                    if gone || !can_continue {
                        connection.is_ended.store(true, Relaxed);
                    }
                    // If that side has hung up, its own thread detects it.
                    let _ = to.finish_sending();
                    return Ok(());
                }
                Err(fault) => return Err(RelayError::Source(fault)),
            }
        }
        Ok(())
    }

    /// Sends all bytes, however slowly the other side reads.
    fn send_all(
        &self,
        mut bytes: &[u8],
        to: &mut dyn Link,
        connection: &RelayConnection,
    ) -> Result<(), Fault> {
        loop {
            match to.send(bytes, POLL_INTERVAL) {
                Ok(taken) => bytes = &bytes[taken..],
                Err(Fault::TimedOut) if !self.should_continue(connection) => return Ok(()),
                Err(Fault::TimedOut) => continue,
                Err(fault @ Fault::TooLong { .. }) => {
                    let _ = self.events.try_send(format!("{}: {fault}", self.to));
                    return Ok(());
                }
                Err(fault) => return Err(fault),
            }
            if bytes.is_empty() {
                return Ok(());
            }
        }
    }

    fn should_continue(&self, connection: &RelayConnection) -> bool {
        !self.stop.load(Relaxed) && !connection.is_ended.load(Relaxed)
    }
}

/// Counts an open connection until it is dropped, on every exit path.
struct RelayedConnection(Arc<Relay>);

impl Drop for RelayedConnection {
    fn drop(&mut self) {
        self.0.counters.open.fetch_sub(1, Relaxed);
    }
}
