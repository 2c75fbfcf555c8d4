//! The shaper: a relay between two links that gives what passes the delay, rate, queue and faults of another link.
//!
//! Both ends may be anybody's. Each connection has two threads, one a direction, which do nothing but receive from
//! one side and send to the other; what happens on the way is the business of [`crate::link::shaped`]. A side that does
//! not read holds up its own connection alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, Builder, JoinHandle};
use std::time::Duration;

use super::LabError;
use crate::clock::Time;
use crate::endpoint::Endpoint;
use crate::host::cpu;
use crate::link::party::SLICE;
use crate::link::shaped::{Shape, Shaped, Shared, Tally};
use crate::link::{self, Admission, Dialer, Fault, Framing, Link, LinkError, Listener};
use crate::serve::Counters;

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
}

/// Bytes the queue before a line of this rate holds if nothing else is asked for: 100 ms, and at least 64 KiB.
pub fn usual_queue(bits_per_second: f64) -> u64 {
    ((bits_per_second / 8.0 * 0.1) as u64).max(64 << 10)
}

/// A kind of link, known by name.
pub struct Profile {
    pub name: &'static str,
    pub summary: &'static str,
    /// Each way.
    pub delay: Duration,
    /// Bits per second.
    pub rate_up: f64,
    pub rate_down: f64,
}

/// Rates and half the round trip of `connectivity.ini.sample` of WebPageTest, but for the first (about 600 ms there and
/// back is usual) and the last two, which are ours.
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
];

const fn profile(
    name: &'static str,
    summary: &'static str,
    delay_us: u64,
    rate_up: f64,
    rate_down: f64,
) -> Profile {
    Profile { name, summary, delay: Duration::from_micros(delay_us), rate_up, rate_down }
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
        let endpoint = listener.endpoint();
        let accepting = relay.clone();
        let thread = Builder::new().name("shaper".to_owned()).spawn(move || accepting.accept(listener));
        let thread = thread.map_err(|error| LabError(format!("start a thread: {error}")))?;
        Ok(Shaper { endpoint, relay, listener: Some(thread), events })
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
        self.events.try_iter()
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

/// Refuses what cannot be shaped as asked.
fn check(options: &Options) -> Result<(), LabError> {
    let Options { listen, to, .. } = options;
    let framing = |endpoint: &Endpoint| {
        link::caps(endpoint).map(|caps| caps.framing).map_err(|fault| LinkError::new(endpoint, fault))
    };
    let is_stream = framing(listen)? == Framing::Stream;
    if is_stream != (framing(to)? == Framing::Stream) {
        let kind = |is_stream| if is_stream { "a stream" } else { "messages" };
        return Err(LabError(format!(
            "{listen} carries {}, {to} {}: both sides have to be of one kind",
            kind(is_stream),
            kind(!is_stream)
        )));
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
