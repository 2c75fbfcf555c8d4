//! The client: connections of the load, probes beside it and on it, and the conductor that decides with the algorithm.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::config::{MAX_CONFIG_BYTES, ServerUrls};
use super::error::HttpError;
use super::runtime::runtime;
use super::tls::Trust;
use connection::{HttpConnection, HttpTarget};
use linkgauge_engine::workload::responsiveness::algorithm::{
    AVERAGED_INTERVALS, Arrived, Decision, INTERVAL, RampUp, RoundTripsPerMinute, trimmed_mean_ns,
};
use linkgauge_model::clock::{Clock, Time};
use linkgauge_model::plan::Direction;
use linkgauge_model::run::Figures;
use linkgauge_model::sample::{ProbeLog, RecordedTimes, Recorder, Sample};

mod connection;

/// A measurement to make.
#[derive(Debug, Clone)]
pub struct HttpMeasurement {
    /// The server, like `https://host:4043`; the path of the list of URLs is the usual one, if it has none.
    pub url: String,
    /// Which certificates are accepted.
    pub trust: Trust,
    /// Direction of the load: `Send` or `Receive`.
    pub direction: Direction,
    /// Connections of the load, at most.
    pub connections: u32,
    /// Longest time of the load.
    pub time: Duration,
    /// Time on the idle link before.
    pub idle: Duration,
    /// Probes of each kind per second.
    pub probes_per_second: f64,
    /// For each reply, and for the first connection.
    pub timeout: Duration,
    /// Bytes that a connection may hold unsent, before the probes on it (`TCP_NOTSENT_LOWAT`).
    pub unsent_bytes: u32,
}

/// What was measured.
#[derive(Debug, Clone)]
pub struct HttpResult {
    /// Round trips on the connections of the load, its rate, and the result of the algorithm.
    pub figures: Figures,
    /// Probes on new connections beside the load: a third of the times of TCP, TLS and HTTP each.
    pub beside: Figures,
    /// The same before the load.
    pub idle: Figures,
    /// Time of the load.
    pub elapsed: Duration,
    /// Version of TLS.
    pub tls_version: &'static str,
}

/// Probes of a kind that may wait for replies at the same time.
const MAX_WAITING_PROBES: usize = 32;

/// How often the conductor looks whether an interval is over.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Measures.
///
/// # Errors
///
/// The URL or its server is unusable, or the first connection fails. What fails later ends the load of its connection.
pub fn measure(
    plan: &HttpMeasurement,
    cancel: &AtomicBool,
    progress: &dyn Fn(Duration, u64),
) -> Result<HttpResult, HttpError> {
    runtime()?.block_on(async {
        let target = HttpTarget::find(plan).await?;
        let first = HttpConnection::open(&target, plan.timeout).await?;
        let document = first.get(&target.urls.small, MAX_CONFIG_BYTES, plan.timeout).await?;
        let target = target.with_urls(ServerUrls::parse(&document)?).await?;
        let state = Arc::new(ClientContext::new(target, plan.timeout));
        let mut run = LoadRun { plan, cancel, progress, state, tasks: JoinSet::new() };
        run.measure_idle().await;
        let outcome = run.measure_load().await?;
        run.tasks.shutdown().await;
        Ok(outcome.into_result(&run.state, first.tls_version))
    })
}

/// When a probe was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// On a new connection of the idle link.
    Idle,
    /// On a new connection beside the load.
    Beside,
    /// On a connection of the load.
    Own,
}

/// What the tasks share.
struct ClientContext {
    target: HttpTarget,
    timeout: Duration,
    /// Payload of the load so far.
    moved_bytes: AtomicU64,
    /// Times of TCP, TLS and HTTP of the probes beside the load.
    foreign: [ProbeLog; 3],
    own: ProbeLog,
    /// By [`Kind`].
    recorders: Mutex<[Recorder; 3]>,
    /// Connections of the load.
    connections: Mutex<Vec<HttpConnection>>,
    /// The first failure of the load.
    failure: Mutex<Option<HttpError>>,
}

impl ClientContext {
    pub fn new(target: HttpTarget, timeout: Duration) -> ClientContext {
        let recorder =
            || Recorder::new(RecordedTimes::Service, INTERVAL.as_nanos() as u64, Arc::default(), None);
        ClientContext {
            target,
            timeout,
            moved_bytes: AtomicU64::new(0),
            foreign: Default::default(),
            own: ProbeLog::default(),
            recorders: Mutex::new([recorder(), recorder(), recorder()]),
            connections: Mutex::default(),
            failure: Mutex::default(),
        }
    }

    /// Records a probe; without a time it was lost.
    fn record(&self, kind: Kind, sent: Time, service: Option<Duration>) {
        let mut recorders = lock(&self.recorders);
        let recorder = &mut recorders[kind as usize];
        if recorder.first_instant.is_none() {
            recorder.begin(sent);
        }
        recorder.counts.sent += 1;
        match service {
            Some(service) => {
                let sequence = recorder.counts.received;
                recorder.record_reply(Sample { sequence, intended: sent, sent, received: sent + service }, 0);
            }
            None => recorder.counts.lost += 1,
        }
    }

    /// A probe on a new connection: TCP, TLS, and a request. Each takes a round trip.
    async fn probe_on_new_connection(self: Arc<Self>, kind: Kind) {
        let began = Clock::System.now();
        let times = timeout(self.timeout, HttpConnection::probe(&self.target, self.timeout)).await;
        let times = times.ok().and_then(Result::ok);
        if let Some(times) = times.filter(|_| kind == Kind::Beside) {
            self.foreign.iter().zip(times).for_each(|(log, time)| push(log, time));
        }
        self.record(kind, began, times.map(|times| times.iter().sum::<Duration>() / 3));
    }

    /// A request on one of the connections of the load.
    async fn probe_in_load(self: Arc<Self>) {
        let chosen = {
            let connections = lock(&self.connections);
            match connections.as_slice() {
                [] => return,
                all => all[fastrand::usize(..all.len())].clone(),
            }
        };
        let began = Clock::System.now();
        let reply = chosen.get(&self.target.urls.small, 1, self.timeout).await;
        let time = reply.ok().map(|_| Clock::System.now().since(began));
        if let Some(time) = time {
            push(&self.own, time);
        }
        self.record(Kind::Own, began, time);
    }

    /// A connection of the load, until it fails or the task is dropped.
    async fn carry_load(self: Arc<Self>, direction: Direction) {
        let loaded = async {
            let connection = HttpConnection::open(&self.target, self.timeout).await?;
            lock(&self.connections).push(connection.clone());
            match direction {
                Direction::Receive => connection.download(&self.target, &self.moved_bytes).await,
                _ => connection.upload(&self.target, &self.moved_bytes).await,
            }
        };
        if let Err(error) = loaded.await {
            lock(&self.failure).get_or_insert(error);
        }
    }

    /// Round trips per minute of the probes from `from` until before `to`: the trimmed means of TCP, TLS and HTTP have the same weight.
    fn round_trips_per_minute(&self, from: Time, to: Time) -> RoundTripsPerMinute {
        let mut times_ns = ProbeLog::new_buffer();
        let mut mean = |log: &ProbeLog| {
            log.read_into(&mut times_ns, from, to);
            trimmed_mean_ns(&mut times_ns)
        };
        let foreign: Option<Vec<f64>> = self.foreign.iter().map(&mut mean).collect();
        let foreign = foreign.map(|means| means.iter().sum::<f64>() / means.len() as f64);
        RoundTripsPerMinute::from_means_ns(foreign, mean(&self.own))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Stores a time that ends now.
pub fn push(log: &ProbeLog, time: Duration) {
    let received = Clock::System.now();
    let sent = Time(received.0.saturating_sub(time.as_nanos() as u64));
    log.push(Sample { sequence: 0, intended: sent, sent, received });
}

/// A measurement that runs.
struct LoadRun<'a> {
    plan: &'a HttpMeasurement,
    cancel: &'a AtomicBool,
    progress: &'a dyn Fn(Duration, u64),
    state: Arc<ClientContext>,
    /// Ends its tasks when it is dropped.
    tasks: JoinSet<()>,
}

impl LoadRun<'_> {
    fn probe_interval(&self) -> Duration {
        Duration::from_secs_f64(1.0 / self.plan.probes_per_second.clamp(0.1, 1000.0))
    }

    fn is_cancelled(&self) -> bool {
        self.cancel.load(Relaxed)
    }

    /// Probes the idle link, one probe after the other.
    async fn measure_idle(&self) {
        let began = Clock::System.now();
        while Clock::System.now().since(began) < self.plan.idle && !self.is_cancelled() {
            self.state.clone().probe_on_new_connection(Kind::Idle).await;
            sleep(self.probe_interval()).await;
        }
    }

    /// Starts the probes beside the load and on it.
    fn start_probes(&mut self) {
        let interval = self.probe_interval();
        for kind in [Kind::Beside, Kind::Own] {
            let (state, waiting) = (self.state.clone(), Arc::new(Semaphore::new(MAX_WAITING_PROBES)));
            self.tasks.spawn(async move {
                let mut probes = JoinSet::new();
                while let Ok(slot) = waiting.clone().acquire_owned().await {
                    let state = state.clone();
                    probes.spawn(async move {
                        let _slot = slot;
                        match kind {
                            Kind::Own => state.probe_in_load().await,
                            _ => state.probe_on_new_connection(kind).await,
                        }
                    });
                    sleep(interval).await;
                    while probes.try_join_next().is_some() {}
                }
            });
        }
    }

    fn add_connection(&mut self) {
        let (state, direction) = (self.state.clone(), self.plan.direction);
        self.tasks.spawn(state.carry_load(direction));
    }

    /// Adds connections until the goodput is stable, and ends when the responsiveness is.
    async fn measure_load(&mut self) -> Result<LoadOutcome, HttpError> {
        let (mut ramp, mut connections) = (RampUp::default(), 1);
        self.add_connection();
        self.start_probes();
        let began = Clock::System.now();
        let (mut interval_began, mut is_over) = (began, false);
        while !is_over && !self.is_cancelled() && Clock::System.now().since(began) < self.plan.time {
            sleep(POLL_INTERVAL).await;
            if lock(&self.state.connections).is_empty()
                && let Some(error) = lock(&self.state.failure).take()
            {
                return Err(error);
            }
            let interval_ends = interval_began + INTERVAL;
            if Clock::System.now() < interval_ends {
                continue;
            }
            let moved = self.state.moved_bytes.load(Relaxed);
            (self.progress)(interval_ends.since(began), moved);
            let probes = self.state.round_trips_per_minute(interval_began, interval_ends);
            interval_began = interval_ends;
            match ramp.end_interval(Arrived { bytes: moved, at: interval_ends }, probes) {
                Decision::AddConnection if connections < self.plan.connections => {
                    self.add_connection();
                    connections += 1;
                }
                Decision::AddConnection | Decision::Continue => {}
                Decision::Finish => is_over = true,
            }
        }
        Ok(LoadOutcome { ramp, began, interval_began, connections })
    }
}

/// How the load ended.
struct LoadOutcome {
    ramp: RampUp,
    began: Time,
    /// End of the last complete interval.
    interval_began: Time,
    connections: u32,
}

impl LoadOutcome {
    fn into_result(self, state: &ClientContext, tls_version: &'static str) -> HttpResult {
        let elapsed = Clock::System.now().since(self.began);
        let averaged = self.ramp.intervals().min(AVERAGED_INTERVALS) as u32;
        let (from, to) = match averaged {
            0 => (self.began, Time::NEVER),
            _ => (Time(self.interval_began.0 - (INTERVAL * averaged).as_nanos() as u64), self.interval_began),
        };
        let probes = state.round_trips_per_minute(from, to);
        let moved = state.moved_bytes.load(Relaxed);
        let recorders = lock(&state.recorders);
        let [idle, beside, mut figures] = std::array::from_fn(|kind| recorders[kind].latency_figures(&[]));
        figures.delivery.messages_per_second = None;
        figures.delivery.delivered_bytes = Some(moved);
        figures.delivery.throughput_bps =
            (!elapsed.is_zero()).then(|| moved as f64 * 8.0 / elapsed.as_secs_f64());
        figures.responsiveness = Some(self.ramp.figures(probes, self.connections));
        HttpResult { figures, beside, idle, elapsed, tls_version }
    }
}
