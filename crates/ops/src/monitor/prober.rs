//! Performs probes on request: each in a thread of its own, a limited number at once, and none longer than its client waits.
//!
//! The figures of one probe are gauges. The round trips of all probes of a target are also summed in a histogram, as for a watched link,
//! so that percentiles over any time can be computed; the number of targets that are remembered is limited.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::access::RequestRefusal;
use super::families::{FamilyKind, MetricFamily, MetricLabel, MetricSample, MetricValue, Snapshot};
use super::probe::{MAX_SAMPLES, ProbeModule, ProbeRequest, ProbeSettings};
use linkgauge_engine::Registry;
use linkgauge_engine::link::Dialer;
use linkgauge_engine::schedule::{self, RunContext};
use linkgauge_model::clock::{Clock, Time};
use linkgauge_model::endpoint::Endpoint;
use linkgauge_model::plan::{OneOrMany, Plan};
use linkgauge_model::run::Run;
use linkgauge_model::sample::{RawFile, Window, WindowCounts};

/// Targets whose sums are remembered. Of more, those that were asked for longest ago are forgotten.
const MAX_TARGETS: usize = 2_000;

/// The percentiles of one probe, in percent.
const PERCENTILES: [f64; 2] = [50.0, 100.0];

/// The probes of a monitor. A changed file keeps the sums.
#[derive(Debug, Default)]
pub struct ScrapeProber {
    settings: Mutex<Option<Arc<ProbeSettings>>>,
    token: Mutex<Option<String>>,
    running: AtomicUsize,
    sums: Mutex<TargetSums>,
}

/// The sums of all probes of a target, by module and target.
#[derive(Debug, Default)]
struct TargetSums {
    of_target: BTreeMap<(String, String), (u64, Window)>,
    asked: u64,
}

impl TargetSums {
    /// Adds the probes of one request, and returns all.
    fn add(&mut self, key: (String, String), probes: &Window) -> Window {
        self.asked += 1;
        if self.of_target.len() >= MAX_TARGETS && !self.of_target.contains_key(&key) {
            let oldest = self.of_target.iter().min_by_key(|(_, (asked, _))| *asked);
            let oldest = oldest.map(|(key, _)| key.clone());
            oldest.map(|key| self.of_target.remove(&key));
        }
        let (asked, sum) = self.of_target.entry(key).or_default();
        *asked = self.asked;
        sum.merge(probes);
        sum.clone()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A place among the probes that run at the same time.
struct ProbePlace(Arc<ScrapeProber>);

impl Drop for ProbePlace {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, SeqCst);
    }
}

/// A probe that is ready to run.
pub(super) struct ReadyProbe {
    request: ProbeRequest,
    module: ProbeModule,
    endpoint: Endpoint,
    place: ProbePlace,
}

impl ScrapeProber {
    /// Sets what can be probed from now on, with the secret of servers that require one. `None`: nothing.
    pub fn set(&self, settings: Option<ProbeSettings>, token: Option<String>) {
        *locked(&self.settings) = settings.map(Arc::new);
        *locked(&self.token) = token;
    }

    /// Checks a request, and takes one of the places.
    pub(super) fn prepare(self: &Arc<ScrapeProber>, query: &str) -> Result<ReadyProbe, RequestRefusal> {
        let settings = locked(&self.settings).clone().ok_or(RequestRefusal::NotFound)?;
        let mut request = ProbeRequest::parse(query)?;
        let (name, endpoint) = settings.check(&request)?;
        let module = settings.modules[name].clone();
        request.module = name.to_owned();
        let place = ProbePlace(self.clone());
        if self.running.fetch_add(1, SeqCst) >= settings.concurrent {
            return Err(RequestRefusal::Busy);
        }
        Ok(ReadyProbe { module, request, endpoint, place })
    }
}

/// Results of a probe.
#[derive(Debug, Default)]
struct Found {
    is_success: bool,
    duration: Duration,
    /// Times to resolve the name, to open the link, and to send the requests and receive the replies. `None`: no such phase.
    phases: [Option<Duration>; 3],
    address: Option<IpAddr>,
    probes: Window,
    /// The kind of the failure, and its text for people.
    failure: Option<(String, String)>,
    missed: Vec<String>,
}

impl ReadyProbe {
    /// Performs it, until it has ended or `cancel` is set.
    pub(super) fn run(self, cancel: Arc<AtomicBool>) -> ProbeReport {
        let mut dialer = Registry::standard().dialer(Clock::System);
        dialer.cancel = cancel;
        let began = dialer.now();
        let mut found = Found::default();
        self.measure(dialer.clone(), &mut found);
        found.duration = dialer.now().since(began);
        let prober = &self.place.0;
        let key = (self.request.module.clone(), self.endpoint.as_str().to_owned());
        let sum = locked(&prober.sums).add(key, &found.probes);
        let families = families(&found, sum);
        let text = self.request.is_debug.then(|| self.describe(&found));
        ProbeReport { snapshot: Arc::new(Snapshot { families }), text }
    }

    fn measure(&self, dialer: Dialer, found: &mut Found) {
        let began = dialer.now();
        let resolved = match self.resolve(&dialer) {
            Ok(resolved) => resolved,
            Err(error) => {
                let requests = self.module.requests();
                let counts = WindowCounts { due: requests, lost: requests, ..WindowCounts::default() };
                found.probes = Window::new(counts);
                let reason = format!("{}: its address is unknown: {error}", self.endpoint);
                return found.failure = Some(("not_found".to_owned(), reason));
            }
        };
        let opened = dialer.now();
        found.address = resolved.first().copied();
        if self.endpoint.host_port().is_ok_and(|(host, _)| host.parse::<IpAddr>().is_err()) {
            found.phases[0] = Some(opened.since(began));
        }
        let spec = self.module.spec.clone();
        let spec =
            linkgauge_model::plan::CaseSpec { url: Some(OneOrMany::One(self.endpoint.clone())), ..spec };
        let plan = spec.expand().ok().and_then(|cases| Plan::new(cases).ok());
        let plan = match plan.map(|plan| schedule::check(plan, Registry::standard())) {
            Some(Ok(plan)) => plan,
            Some(Err(error)) => return found.failure = Some(("invalid_case".to_owned(), error.to_string())),
            None => return,
        };
        let (raw, samples) = RawFile::collect(MAX_SAMPLES as usize);
        let clock = dialer.clock.clone();
        let mut context = RunContext::new(dialer, &());
        context.raw = Some(raw);
        context.token = locked(&self.place.0.token).clone();
        let run = schedule::run(&plan, &mut context);
        let ended = clock.now();
        drop(context);
        let samples = samples.take();
        if let Some(sent) = samples.iter().map(|sample| sample.sent).min() {
            found.phases[1] = Some(sent.since(opened));
            let last = samples.iter().map(|sample| sample.received).max().unwrap_or(ended);
            found.phases[2] = Some(last.since(sent));
        }
        let times: Vec<u64> = samples.iter().map(|sample| sample.response_ns()).collect();
        found.judge(&run, self.module.requests(), &times);
    }

    /// The addresses of the target. They are given to the dialer, so that the time of the resolver is that of this phase.
    fn resolve(&self, dialer: &Dialer) -> io::Result<Vec<IpAddr>> {
        let Ok((host, _)) = self.endpoint.host_port() else { return Ok(Vec::new()) };
        if let Ok(address) = host.parse() {
            return Ok(vec![address]);
        }
        let resolved = dialer.hosts.resolve(host, 1, Time(0))?;
        let addresses: Vec<IpAddr> = resolved.iter().map(|address| address.ip()).collect();
        dialer.hosts.insert(host, addresses.clone());
        Ok(addresses)
    }

    fn describe(&self, found: &Found) -> String {
        let mut text = format!("module {}\ntarget {}\n", self.request.module, self.endpoint);
        let mut line = |name: &str, value: String| text.push_str(&format!("{name}: {value}\n"));
        if let Some(address) = found.address {
            line("address", address.to_string());
        }
        line("probes", format!("{} sent, {} lost", found.probes.counts.due, found.probes.counts.lost));
        if let Some((kind, reason)) = &found.failure {
            line("failure", format!("{kind}: {reason}"));
        }
        found.missed.iter().for_each(|missed| line("threshold missed", missed.clone()));
        line("success", found.is_success.to_string());
        text
    }
}

impl Found {
    /// Takes the result of a run. It is a success if there was a reply, no failure, and each threshold was met.
    fn judge(&mut self, run: &Run, requests: u64, times: &[u64]) {
        let Some(case) = run.cases.first() else { return };
        let counts = &case.figures.counts;
        let failure = case.failures.first();
        // Requests that a failure prevented are lost.
        let planned = if failure.is_some() || run.interrupted { requests } else { 0 };
        let due = counts.sent.max(times.len() as u64).max(planned);
        let counts = WindowCounts {
            due,
            lost: due - times.len() as u64,
            corrupt: counts.corrupt_messages,
            ..WindowCounts::default()
        };
        self.probes = Window::new(counts);
        times.iter().for_each(|time| self.probes.record(*time));
        let name = |kind| serde_json::to_value(kind).ok().and_then(|kind| kind.as_str().map(str::to_owned));
        self.failure = match failure {
            Some(failure) => Some((name(failure.kind).unwrap_or_default(), failure.message.clone())),
            None if run.interrupted => {
                Some(("deadline".to_owned(), "the time of the scrape is over".to_owned()))
            }
            None => None,
        };
        let missed = case.thresholds.iter().filter(|judged| !judged.passed);
        self.missed = missed.map(|judged| format!("{}: {}", judged.threshold, judged.measured)).collect();
        self.is_success = self.failure.is_none() && self.missed.is_empty() && !times.is_empty();
    }
}

/// The result of a probe.
pub(super) struct ProbeReport {
    /// Result as metrics.
    pub(super) snapshot: Arc<Snapshot>,
    /// Result for people, if they asked for it.
    pub(super) text: Option<String>,
}

impl ProbeReport {
    /// Report of a probe that does not end.
    pub(super) fn overdue(limit: Duration) -> ProbeReport {
        let failure = Some(("deadline".to_owned(), String::new()));
        let found = Found { duration: limit, failure, ..Found::default() };
        ProbeReport {
            snapshot: Arc::new(Snapshot { families: families(&found, Window::default()) }),
            text: None,
        }
    }
}

/// Makes a gauge. Without samples the encodings leave it out.
fn gauge(name: &'static str, help: &'static str, samples: Vec<MetricSample>) -> MetricFamily {
    MetricFamily { name, help, kind: FamilyKind::Gauge, samples }
}

fn number(label: Option<MetricLabel>, value: f64) -> MetricSample {
    MetricSample::new(&Arc::default(), label, MetricValue::Number(value))
}

fn count(label: Option<MetricLabel>, count: u64) -> MetricSample {
    MetricSample::new(&Arc::default(), label, MetricValue::Count(count))
}

fn families(found: &Found, sum: Window) -> Vec<MetricFamily> {
    let version = found.address.map(|address| if address.to_canonical().is_ipv4() { 4 } else { 6 });
    let resolve = found.phases[0].unwrap_or_default();
    let phases = ["resolve", "open", "requests"].into_iter().zip(found.phases);
    let phases = phases
        .filter_map(|(phase, time)| Some(number(Some(("phase", phase.to_owned())), time?.as_secs_f64())));
    let percentiles = PERCENTILES.into_iter().filter_map(|percentile| {
        let time = found.probes.quantile_with_losses_ns(percentile / 100.0)?;
        Some(number(Some(("percentile", percentile.to_string())), time / 1e9))
    });
    let failure = found.failure.iter().map(|(kind, _)| count(Some(("kind", kind.clone())), 1));
    let of_probe = [
        (
            "probe_success",
            "1 if the target replied, without a failure, and met each threshold",
            vec![count(None, found.is_success.into())],
        ),
        (
            "probe_duration_seconds",
            "Time of the whole probe",
            vec![number(None, found.duration.as_secs_f64())],
        ),
        (
            "probe_dns_lookup_time_seconds",
            "Time until the name was resolved",
            vec![number(None, resolve.as_secs_f64())],
        ),
        (
            "probe_ip_protocol",
            "4 or 6, by the address",
            version.map(|version| count(None, version)).into_iter().collect(),
        ),
        (
            "linkgauge_probe_phase_seconds",
            "Time of each phase: the name is resolved, the link opened, the requests replied",
            phases.collect(),
        ),
        (
            "linkgauge_probe_percentile_seconds",
            "Percentile of the requests of this probe; infinite if it is a lost one",
            percentiles.collect(),
        ),
        ("linkgauge_probe_failure", "1 for the kind of the failure", failure.collect()),
    ];
    let of_probe = of_probe.into_iter().map(|(name, help, samples)| gauge(name, help, samples));
    of_probe.chain(sums(sum)).collect()
}

/// Metrics of all probes of a target.
fn sums(sum: Window) -> Vec<MetricFamily> {
    if sum.counts.due == 0 {
        return Vec::new();
    }
    let result = |result: &str| Some(("result", result.to_owned()));
    let requests = vec![count(result("replied"), sum.replies()), count(result("lost"), sum.counts.lost)];
    let times = MetricSample::new(&Arc::default(), None, MetricValue::Times(Arc::new(sum)));
    vec![
        MetricFamily {
            name: "linkgauge_probe_requests",
            help: "Requests of all probes of this target by their result, since the start of the monitor",
            kind: FamilyKind::Counter,
            samples: requests,
        },
        MetricFamily {
            name: "linkgauge_probe_latency_seconds",
            help: "Round-trip time of the requests of all probes of this target, since the start of the monitor",
            kind: FamilyKind::Histogram,
            samples: vec![times],
        },
    ]
}

/// Sets the flag when it is dropped, as with a client that has left.
pub(super) struct CancelOnDrop(pub(super) Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}
