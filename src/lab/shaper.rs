//! The shaper: a relay between two links that gives what passes the delay, rate, queue and faults of another link.
//!
//! Both ends may be anybody's. Each connection has two threads, one a direction, which do nothing but receive from
//! one side and send to the other; what happens on the way is the business of [`crate::link::shaped`]. A side that does
//! not read holds up its own connection alone.

use std::fs::File;
use std::io::{self, LineWriter, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, Builder, JoinHandle};
use std::time::Duration;

use super::LabError;
use crate::clock::Time;
use crate::endpoint::Endpoint;
use crate::host::cpu;
use crate::link::party::SLICE;
use crate::link::shaped::{Deed, Log, Often, Shape, Shaped, Shared, Tally};
use crate::link::{self, Admission, Dialer, Fault, Framing, Link, LinkError, Listener};
use crate::serve::Counters;
use crate::units::print_duration;

/// What to relay and what to do to it.
#[derive(Debug, Clone)]
pub struct Options {
    pub listen: Endpoint,
    pub to: Endpoint,
    /// From whoever connects to where `to` leads.
    pub up: Shape,
    pub down: Shape,
    /// The same seed does the same to the same messages.
    pub seed: u64,
    /// Where to write down what was done to each message.
    pub log: Option<PathBuf>,
}

/// Bytes the queue before a line of this rate holds if nothing else is asked for: 100 ms, and at least 64 KiB.
pub fn usual_queue(bits_per_second: f64) -> u64 {
    ((bits_per_second / 8.0 * 0.1) as u64).max(64 << 10)
}

/// A kind of link, known by name.
pub struct Profile {
    pub name: &'static str,
    pub summary: &'static str,
    /// Each way, but for the rate and the queue.
    pub shape: Shape,
    /// Bits per second.
    pub rate_up: f64,
    pub rate_down: f64,
}

/// Rates and half the round trip of `connectivity.ini.sample` of WebPageTest, but for satellite (about 600 ms there and
/// back is usual), fibre and lan, which are ours, and the radio links. These stand on what the wireless study measured with
/// 32 bytes: through an access point at the median 2.0 ms, at p90 5.8 ms, of TCP 1.4 % over 300 ms, of UDP 1.8 % lost; by
/// RFCOMM at the median 7.9 ms, at p90 16.9 ms, nothing over 50 ms, nothing lost. Half of each is for either way.
pub static PROFILES: &[Profile] = &[
    profile("satellite", "geostationary satellite", 300_000, 2e6, 20e6),
    profile("dial-up", "modem on a telephone line", 60_000, 30e3, 49e3),
    profile("2g", "GPRS", 400_000, 256e3, 280e3),
    profile("3g", "UMTS", 150_000, 768e3, 1.6e6),
    profile("lte", "LTE", 35_000, 12e6, 12e6),
    profile("dsl", "DSL", 25_000, 384e3, 1.5e6),
    profile("cable", "cable television", 14_000, 1e6, 5e6),
    profile("fibre", "fibre to the home", 5_000, 100e6, 100e6),
    profile("lan", "Ethernet in the same house", 100, 1e9, 1e9),
    Profile {
        shape: Shape {
            delay: Duration::from_micros(850),
            tail: Duration::from_micros(150),
            spikes: Often::Share(0.007),
            spike: Duration::from_millis(300),
            loss: Often::Share(0.009),
            ..Shape::NONE
        },
        // Payload of 802.11g at its 54 Mbit/s, about.
        ..profile("wifi", "Wi-Fi through an access point", 0, 20e6, 20e6)
    },
    Profile {
        shape: Shape {
            delay: Duration::from_micros(3_000),
            tail: Duration::from_micros(50),
            // Seven slots: it was not this device's turn.
            spikes: Often::Share(0.06),
            spike: Duration::from_micros(8_750),
            // A slot there and one back, of 625 µs each.
            slot: Duration::from_micros(1_250),
            ..Shape::NONE
        },
        // Packets of 5 slots at 3 Mbit/s (3-DH5), both ways alike.
        ..profile("bluetooth", "Bluetooth, a connection of the classic kind", 0, 1.3069e6, 1.3069e6)
    },
];

const fn profile(
    name: &'static str,
    summary: &'static str,
    delay_us: u64,
    rate_up: f64,
    rate_down: f64,
) -> Profile {
    let shape = Shape { delay: Duration::from_micros(delay_us), ..Shape::NONE };
    Profile { name, summary, shape, rate_up, rate_down }
}

/// What a shape does besides delay, jitter, rate and queue, in a few words each.
pub fn besides(shape: &Shape) -> Vec<String> {
    let mut words = Vec::new();
    if !shape.tail.is_zero() {
        words.push(format!("tail {}", print_duration(shape.tail)));
    }
    let longer = format!("longer by {}", print_duration(shape.spike));
    for (word, often) in [
        (longer.as_str(), shape.spikes),
        ("lost", shape.loss),
        ("twice", shape.duplicate),
        ("overtaken", shape.reorder),
    ] {
        if let Often::Share(share) = often {
            words.push(format!("{:.4} % {word}", share * 100.0));
        }
    }
    if !shape.slot.is_zero() {
        words.push(format!("slots of {}", print_duration(shape.slot)));
    }
    words
}

/// Connections at once; each takes two threads.
const MOST_CONNECTIONS: usize = 1000;

/// How often a thread that waits looks whether it is still wanted.
const LOOK: Duration = Duration::from_secs(1);

/// A connection of links that cannot close is over when nothing has passed for so long.
const IDLE: Duration = Duration::from_secs(60);

/// Most of a stream forwarded at once.
const CHUNK: usize = 64 * 1024;

const STACK: usize = 256 * 1024;

/// Events that wait to be read; further ones are left out.
const MOST_EVENTS: usize = 64;

/// A running shaper; it stops when dropped.
pub struct Shaper {
    endpoint: Endpoint,
    relay: Arc<Relay>,
    listener: Option<JoinHandle<()>>,
    events: Receiver<String>,
    log: Option<LogFile>,
}

struct Relay {
    to: Endpoint,
    dialer: Dialer,
    up: Shared,
    down: Shared,
    stop: AtomicBool,
    counters: Counters,
    events: SyncSender<String>,
}

impl Shaper {
    /// Listens, and opens the far side for everyone who connects.
    pub fn start(options: &Options, dialer: &Dialer) -> Result<Shaper, LabError> {
        check(options)?;
        let listener = dialer.listen(&options.listen)?;
        let (sender, events) = sync_channel(MOST_EVENTS);
        let relay = Arc::new(Relay {
            to: options.to.clone(),
            dialer: dialer.clone(),
            up: Shared::new(options.up.clone(), options.seed),
            down: Shared::new(options.down.clone(), !options.seed),
            stop: AtomicBool::new(false),
            counters: Counters::default(),
            events: sender,
        });
        let log = options.log.as_deref().map(LogFile::create).transpose()?;
        if let Some(log) = &log {
            relay.up.log(Some(log.of("up")));
            relay.down.log(Some(log.of("down")));
        }
        let endpoint = listener.endpoint();
        let accepting = relay.clone();
        let thread = Builder::new().name("shaper".to_owned()).spawn(move || accepting.accept(listener));
        let thread = thread.map_err(|error| LabError(format!("start a thread: {error}")))?;
        Ok(Shaper { endpoint, relay, listener: Some(thread), events, log })
    }

    /// Where it really listens.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// What has passed from the clients, and to them.
    pub fn tallies(&self) -> [Tally; 2] {
        [self.relay.up.tally(), self.relay.down.tally()]
    }

    pub fn counters(&self) -> &Counters {
        &self.relay.counters
    }

    /// What went wrong since it was asked last, one line each.
    pub fn events(&self) -> impl Iterator<Item = String> {
        self.events.try_iter().chain(self.log.as_ref().and_then(LogFile::failure))
    }
}

impl Drop for Shaper {
    /// Takes no more connections and ends those that are open.
    fn drop(&mut self) {
        self.relay.stop.store(true, Relaxed);
        if let Some(listener) = self.listener.take() {
            // A listener that panicked has said so already.
            let _ = listener.join();
        }
    }
}

/// Whether a link there carries a stream, of which nothing can be lost.
pub fn carries_stream(endpoint: &Endpoint) -> Result<bool, LinkError> {
    let caps = link::caps(endpoint).map_err(|fault| LinkError::new(endpoint, fault))?;
    Ok(caps.framing == Framing::Stream)
}

/// Refuses what cannot be shaped as asked.
fn check(options: &Options) -> Result<(), LabError> {
    let Options { listen, to, .. } = options;
    let is_stream = carries_stream(listen)?;
    if is_stream != carries_stream(to)? {
        let kind = |is_stream| if is_stream { "a stream" } else { "messages" };
        return Err(LabError(format!(
            "{listen} carries {}, {to} {}: both sides have to be of one kind",
            kind(is_stream),
            kind(!is_stream)
        )));
    }
    if is_stream && options.log.is_some() {
        return Err(LabError(format!("{listen}: a stream has no datagrams to write down: leave out --log")));
    }
    for shape in [&options.up, &options.down] {
        if is_stream && shape.is_faulty() {
            return Err(LabError(format!(
                "{listen}: nothing is lost, doubled or reordered in a stream: shape datagrams, or the device below \
                 (--netem)"
            )));
        }
        check_shape(shape)?;
    }
    Ok(())
}

/// Refuses a shape that contradicts itself.
pub(super) fn check_shape(shape: &Shape) -> Result<(), LabError> {
    if shape.jitter > shape.delay {
        let (jitter, delay) = (shape.jitter, shape.delay);
        return Err(LabError(format!(
            "a jitter of {jitter:?} around a delay of {delay:?}: no delay is below zero"
        )));
    }
    Ok(())
}

/// The file that says what was done to each message. A line is there as soon as it happened.
struct LogFile {
    file: Arc<Mutex<LineWriter<File>>>,
    name: String,
    failed: Arc<OnceLock<String>>,
    told: AtomicBool,
}

impl LogFile {
    fn create(path: &std::path::Path) -> Result<LogFile, LabError> {
        let name = path.display().to_string();
        let create = || {
            let mut file = LineWriter::new(File::create(path)?);
            writeln!(file, "direction,number,came_ns,bytes,fate,delay_ns")?;
            Ok(file)
        };
        let file = create().map_err(|error: io::Error| LabError(format!("{name}: {error}")))?;
        Ok(LogFile {
            file: Arc::new(Mutex::new(file)),
            name,
            failed: Arc::default(),
            told: AtomicBool::new(false),
        })
    }

    /// The log of one direction.
    fn of(&self, direction: &'static str) -> Log {
        let (file, failed) = (self.file.clone(), self.failed.clone());
        Log(Box::new(move |deed| {
            let Deed { number, came, bytes, fate, delay } = deed;
            let delay = delay.map_or(String::new(), |delay| delay.as_nanos().to_string());
            let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
            let line = writeln!(file, "{direction},{number},{},{bytes},{},{delay}", came.0, fate.name());
            if let Err(error) = line {
                // The first reason is that of all that follow.
                let _ = failed.set(error.to_string());
            }
        }))
    }

    /// Why the file lacks something, told once.
    fn failure(&self) -> Option<String> {
        let failed = self.failed.get().filter(|_| !self.told.swap(true, Relaxed))?;
        Some(format!("{}: {failed}: from now on it lacks lines", self.name))
    }
}

/// The side that failed.
enum Broken {
    From(Fault),
    To(Fault),
}

/// What the two threads of a connection know of each other.
struct Connection {
    /// Nothing can pass any more, either way.
    over: AtomicBool,
    /// When something passed.
    last: AtomicU64,
    /// Nobody tells when it is over, so silence does.
    ends_by_silence: bool,
}

impl Relay {
    fn accept(self: &Arc<Relay>, mut listener: Box<dyn Listener>) {
        // For this thread and those it starts: a delay is as exact as the timer that ends it.
        let _ = cpu::set_timer_slack_ns(1);
        while !self.stop.load(Relaxed) {
            match listener.accept(SLICE, &mut |_, _, _| Admission::Open) {
                Ok((link, from)) => self.admit(link, from),
                Err(Fault::TimedOut) => {}
                // Out of descriptors, usually: those in use will be freed.
                Err(_) => thread::sleep(SLICE),
            }
        }
    }

    fn admit(self: &Arc<Relay>, near: Box<dyn Link>, from: String) {
        let place = Place(self.clone());
        if self.counters.open.fetch_add(1, Relaxed) >= MOST_CONNECTIONS {
            self.counters.refused.fetch_add(1, Relaxed);
            return;
        }
        self.counters.accepted.fetch_add(1, Relaxed);
        let run = move || {
            if let Err(error) = place.0.connect(near) {
                place.0.fail(&from, error);
            }
            drop(place);
        };
        if let Err(error) = Builder::new().name("shaper up".to_owned()).stack_size(STACK).spawn(run) {
            self.fail("a connection", format_args!("start a thread: {error}"));
        }
    }

    fn fail(&self, from: &str, error: impl std::fmt::Display) {
        self.counters.failed.fetch_add(1, Relaxed);
        // Whoever does not read events misses some.
        let _ = self.events.try_send(format!("{from}: {error}"));
    }

    /// Runs a connection to its end.
    fn connect(&self, near: Box<dyn Link>) -> Result<(), LinkError> {
        let far = self.dialer.open(&self.to)?;
        let run = || {
            let (to_near, to_far) = (near.other_half()?, far.other_half()?);
            let connection = Connection {
                over: AtomicBool::new(false),
                last: AtomicU64::new(self.dialer.now().0),
                ends_by_silence: near.caps().framing == Framing::Message && !near.caps().closes,
            };
            let clock = &self.dialer.clock;
            let (near, far) = (Shaped::new(near, clock, &self.up), Shaped::new(far, clock, &self.down));
            thread::scope(|scope| {
                let down = Builder::new()
                    .name("shaper down".to_owned())
                    .stack_size(STACK)
                    .spawn_scoped(scope, || self.pump(far, to_near, &connection))
                    .map_err(Fault::system("start a thread"))?;
                let up = self.pump(near, to_far, &connection);
                // If it panicked, it has said so already.
                let down = down.join().unwrap_or(Ok(()));
                match (up, down) {
                    (Err(Broken::To(fault)), _) | (_, Err(Broken::From(fault))) => Err(fault),
                    // A client that is gone is nobody's failure.
                    _ => Ok(()),
                }
            })
        };
        run().map_err(|fault| LinkError::new(&self.to, fault))
    }

    /// Passes on what comes, and the end.
    fn pump(&self, from: Shaped, to: Box<dyn Link>, connection: &Connection) -> Result<(), Broken> {
        let passed = self.pass_all(from, to, connection);
        if passed.is_err() {
            connection.over.store(true, Relaxed);
        }
        passed
    }

    fn pass_all(
        &self,
        mut from: Shaped,
        mut to: Box<dyn Link>,
        connection: &Connection,
    ) -> Result<(), Broken> {
        let mut room = vec![0; from.caps().max_message.unwrap_or(CHUNK)];
        while self.goes_on(connection) {
            match from.receive(&mut room, LOOK) {
                Ok(length) => {
                    connection.last.store(self.dialer.now().0, Relaxed);
                    match self.forward(&room[..length], to.as_mut(), connection) {
                        // What it still had to say comes first; then it ends the other direction, too.
                        Err(Fault::Closed) => return Ok(()),
                        passed => passed.map_err(Broken::To)?,
                    }
                }
                Err(Fault::TimedOut) => {
                    let idle = self.dialer.now() - Time(connection.last.load(Relaxed));
                    if connection.ends_by_silence && idle >= IDLE && from.is_empty() {
                        connection.over.store(true, Relaxed);
                    }
                }
                Err(Fault::Closed) => {
                    // A side that is gone, not merely silent, takes nothing more either; an empty message would be one.
                    let gone = from.caps().framing == Framing::Stream
                        && matches!(from.send(&[], Duration::ZERO), Err(Fault::Closed));
                    if gone || !to.caps().closes {
                        connection.over.store(true, Relaxed);
                    }
                    // If that side is gone, its own thread finds out.
                    let _ = to.finish();
                    return Ok(());
                }
                Err(fault) => return Err(Broken::From(fault)),
            }
        }
        Ok(())
    }

    /// Sends it all, however long the other side takes.
    fn forward(&self, mut bytes: &[u8], to: &mut dyn Link, connection: &Connection) -> Result<(), Fault> {
        loop {
            match to.send(bytes, LOOK) {
                Ok(taken) => bytes = &bytes[taken..],
                Err(Fault::TimedOut) if !self.goes_on(connection) => return Ok(()),
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

    fn goes_on(&self, connection: &Connection) -> bool {
        !self.stop.load(Relaxed) && !connection.over.load(Relaxed)
    }
}

/// Counts among the open connections until it is dropped, however that comes about.
struct Place(Arc<Relay>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.counters.open.fetch_sub(1, Relaxed);
    }
}
