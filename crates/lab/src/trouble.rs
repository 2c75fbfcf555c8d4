//! A server with a known fault: an echo whose replies are split, delayed, rounded to ticks or paused, or a reader that is
//! slow. It shows what a cause of latency looks like, and tests whether a tool finds it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use super::LabError;
use super::line_server::LineServer;
use linkgauge_engine::host::cpu;
use linkgauge_engine::link::party::{Party, Step, Tuning};
use linkgauge_engine::link::{Admission, Batch, Caps, Dialer, Fault, Framing};
use linkgauge_engine::protocol::{ServerLimits, Service};
use linkgauge_engine::serve::Server;
use linkgauge_model::clock::Time;
use linkgauge_model::endpoint::Endpoint;
use linkgauge_model::stats::SplitMix64;

/// Port of endpoints that name none.
pub(crate) const DEFAULT_PORT: u16 = 7333;

/// The endpoints of a troubled server, its faults, and the CPUs that it keeps busy.
#[derive(Debug, Clone, Default)]
pub struct TroubleOptions {
    /// Endpoints to listen on, streams or messages.
    pub listen: Vec<Endpoint>,
    /// Serial lines to reply on.
    pub serial_lines: Vec<Endpoint>,
    /// The faults of the replies.
    pub faults: Faults,
    /// CPUs on which a thread computes all the time.
    pub busy_cpus: Vec<u32>,
    /// Seed of the pauses: the same seed pauses the same replies.
    pub seed: u64,
}

/// The faults. Those that are zero or absent do not occur; several add up.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Faults {
    /// Maximum bytes per write, on streams.
    pub split_write_bytes: Option<u32>,
    /// Delay of every reply.
    pub delay: Duration,
    /// Further delay of a random share (0 to 1) of the replies.
    pub pause: Option<(Duration, f64)>,
    /// Stall: nothing happens for the first duration at the start of each period of the second duration.
    pub stall: Option<(Duration, Duration)>,
    /// Input is read only at multiples of this time.
    pub poll: Option<Duration>,
    /// Replies leave only at multiples of this time.
    pub tick: Option<Duration>,
    /// Delay after idle time: after the first duration without input, the reply is late by the second.
    pub after_idle: Option<(Duration, Duration)>,
    /// Maximum rate of reading, in bits per second.
    pub read_bps: Option<f64>,
    /// Input is read and discarded.
    pub never_replies: bool,
}

impl Faults {
    /// # Errors
    ///
    /// Fails for a stall without end and for times or rates of zero.
    fn check(&self) -> Result<(), LabError> {
        let refuse = |what: &str| Err(LabError::Invalid(what.to_owned()));
        if self.stall.is_some_and(|(length, period)| length >= period) {
            return refuse("the stall is as long as its period or longer: use a longer period, like 50ms@1s");
        }
        let is_zero = |time: Option<Duration>| time.is_some_and(|time| time.is_zero());
        if is_zero(self.poll) || is_zero(self.tick) {
            return refuse("a tick of 0 s: use a time above zero, like 10ms");
        }
        if self.split_write_bytes == Some(0) || self.read_bps.is_some_and(|rate| rate <= 0.0) {
            return refuse("0 bytes never arrive: use a size or a rate above zero");
        }
        Ok(())
    }

    /// The end of the stall at this time, or this time.
    fn after_stall(&self, at: Time) -> Time {
        let Some((length, period)) = self.stall else { return at };
        let into_period = Duration::from_nanos(at.0 % period.as_nanos() as u64);
        at + length.saturating_sub(into_period)
    }
}

/// The next multiple of `tick`, or `at` if it is one.
fn next_tick(at: Time, tick: Option<Duration>) -> Time {
    tick.map_or(at, |tick| Time(at.0.next_multiple_of(tick.as_nanos() as u64)))
}

/// Bytes per read of a reader that is limited to a rate; like a program that handles one record after the other.
const SLOW_READ_BYTES: usize = 4096;

/// Bytes per read of other readers, on streams.
const READ_BYTES: usize = 65_536;

/// The server side of one connection.
struct TroubledEcho {
    faults: Faults,
    framing: Framing,
    random: SplitMix64,
    batch: Batch,
    tuning: Option<Tuning>,
    /// Earliest time of the next read.
    next_read: Time,
    /// The time of the next read, once it is known: sleeping ends a little later than planned.
    read_at: Option<Time>,
    last_input: Option<Time>,
    /// Time when the reply may leave, and number of its bytes that have left. `None`: no reply is due.
    reply: Option<(Time, usize)>,
    is_finished: bool,
}

impl TroubledEcho {
    pub fn new(faults: Faults, caps: &Caps, seed: u64) -> TroubledEcho {
        let room = match caps.framing {
            Framing::Message => caps.max_message_bytes.unwrap_or(READ_BYTES),
            Framing::Stream if faults.read_bps.is_some() => SLOW_READ_BYTES,
            Framing::Stream => READ_BYTES,
        };
        TroubledEcho {
            faults,
            framing: caps.framing,
            random: SplitMix64::new(seed),
            batch: Batch::new(room, 1),
            tuning: Some(Tuning::default()),
            next_read: Time(0),
            read_at: None,
            last_input: None,
            reply: None,
            is_finished: false,
        }
    }

    fn input(&self) -> &[u8] {
        self.batch.messages().next().unwrap_or_default()
    }

    /// Time when the reply to input that was read at `now` leaves.
    fn reply_time(&mut self, now: Time) -> Time {
        let mut due = now + self.faults.delay;
        if let Some((idle, delay)) = self.faults.after_idle
            && self.last_input.is_some_and(|last| now.since(last) >= idle)
        {
            due = due + delay;
        }
        if let Some((pause, share)) = self.faults.pause
            && self.random.uniform() < share
        {
            due = due + pause;
        }
        next_tick(self.faults.after_stall(due), self.faults.tick)
    }
}

impl Party for TroubledEcho {
    fn next_step(&mut self, now: Time) -> Step<'_> {
        if let Some(tuning) = self.tuning.take() {
            return Step::Tune(tuning);
        }
        if let Some((due, sent)) = self.reply {
            if due > now {
                return Step::Sleep(due);
            }
            let rest = &self.input()[sent..];
            let split = self.faults.split_write_bytes.filter(|_| self.framing == Framing::Stream);
            let bytes = &rest[..split.map_or(rest.len(), |split| rest.len().min(split as usize))];
            return Step::Send { bytes, message: bytes.len() };
        }
        if self.is_finished {
            return Step::Done;
        }
        let now_or_later = self.faults.after_stall(now.max(self.next_read));
        let read_at = *self.read_at.get_or_insert(next_tick(now_or_later, self.faults.poll));
        if read_at > now {
            return Step::Sleep(read_at);
        }
        // A program that polls looks once; others wait for input, at most until the next stall.
        let until = match (self.faults.poll, self.faults.stall) {
            (Some(_), _) => now,
            (None, Some((_, period))) => next_tick(Time(now.0 + 1), Some(period)),
            (None, None) => Time::NEVER,
        };
        Step::Receive { into: &mut self.batch, until }
    }

    fn on_sent(&mut self, bytes: usize, _at: Time) {
        let Some((due, sent)) = self.reply else { return };
        let sent = sent + bytes;
        let is_complete = self.framing == Framing::Message || sent >= self.input().len();
        self.reply = (!is_complete).then_some((due, sent));
    }

    fn on_received(&mut self, now: Time) {
        let length = self.input().len();
        if length > 0 && !self.faults.never_replies {
            self.reply = Some((self.reply_time(now), 0));
        }
        self.last_input = Some(now);
        self.read_at = None;
        let reading = self.faults.read_bps.map_or(0.0, |rate| 8.0 * length as f64 / rate);
        self.next_read = self.next_read.max(now) + Duration::from_secs_f64(reading);
    }

    fn on_timeout(&mut self, now: Time) {
        // Only the next tick brings another read.
        self.next_read = Time(now.0 + 1);
        self.read_at = None;
    }

    fn on_closed(&mut self, _now: Time) -> Result<(), Fault> {
        self.is_finished = true;
        Ok(())
    }
}

struct TroubleService {
    faults: Faults,
    /// The seed of the next connection.
    next_seed: AtomicU64,
}

impl TroubleService {
    fn party(&self, caps: &Caps) -> TroubledEcho {
        TroubledEcho::new(self.faults, caps, self.next_seed.fetch_add(1, Relaxed))
    }
}

impl Service for TroubleService {
    fn new_party(&self, caps: &Caps, _from: &str) -> Box<dyn Party> {
        Box::new(self.party(caps))
    }

    fn admit_sender(&self, _first: &[u8], _from: &str, _reply: &mut Vec<u8>) -> Admission {
        // The faults need a state for each sender.
        Admission::Open
    }
}

const CONNECTION_LIMITS: ServerLimits = ServerLimits { idle_s: 600, ..ServerLimits::DEFAULT };

/// A running server with faults; stops when it is dropped.
pub struct TroubledServer {
    server: Server,
    lines: LineServer,
    _busy_cpus: BusyCpus,
}

impl TroubledServer {
    /// # Errors
    ///
    /// Fails if the faults contradict each other, or if an endpoint, line or CPU cannot be used.
    pub fn start(options: &TroubleOptions, mut dialer: Dialer) -> Result<TroubledServer, LabError> {
        options.faults.check()?;
        dialer.default_port = Some(DEFAULT_PORT);
        let busy_cpus = BusyCpus::start(&options.busy_cpus)?;
        let service =
            Arc::new(TroubleService { faults: options.faults, next_seed: AtomicU64::new(options.seed) });
        let lines = LineServer::start(&options.serial_lines, &dialer, |caps| service.party(caps))?;
        let service: Arc<dyn Service> = service;
        let server = Server::start(&options.listen, &service, &CONNECTION_LIMITS, &dialer)?;
        Ok(TroubledServer { server, lines, _busy_cpus: busy_cpus })
    }

    /// The effective listening endpoints.
    pub fn endpoints(&self) -> &[Endpoint] {
        self.server.endpoints()
    }

    /// Errors of lines that have failed, each once.
    pub fn line_errors(&self) -> impl Iterator<Item = LabError> {
        self.lines.errors()
    }

    /// Whether at least one endpoint or line works.
    pub fn is_reachable(&self) -> bool {
        !self.endpoints().is_empty() || self.lines.is_serving()
    }
}

/// Threads that compute all the time, each on its CPU, until they are dropped.
struct BusyCpus {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl BusyCpus {
    fn start(cpus: &[u32]) -> Result<BusyCpus, LabError> {
        let allowed = cpu::current_affinity();
        if let Some(cpu) = cpus.iter().find(|cpu| !allowed.contains(cpu)) {
            return Err(LabError::Invalid(format!(
                "CPU {cpu}: this process may use CPUs {allowed:?}; choose one of them"
            )));
        }
        let mut busy = BusyCpus { stop: Arc::default(), threads: Vec::new() };
        for &number in cpus {
            let stop = busy.stop.clone();
            let compute = move || {
                // The CPU is allowed, so only a change of the permissions in this moment could prevent it.
                if cpu::pin_to_cpu(number).is_ok() {
                    while !stop.load(Relaxed) {
                        std::hint::spin_loop();
                    }
                }
            };
            let thread = Builder::new().name(format!("busy CPU {number}")).spawn(compute);
            busy.threads.push(thread.map_err(LabError::system("start a thread"))?);
        }
        Ok(busy)
    }
}

impl Drop for BusyCpus {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            // A thread that panicked has already printed its message.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
