//! The state of a monitor as metrics: families of samples with labels, in base units (seconds, bytes per second). Text, protobuf and
//! remote write are encodings of it.
//!
//! A lost probe is a counter and makes quantiles infinite; it is never a time of zero.

use std::sync::Arc;

use super::alert::Alert;
use super::ledger::WatchState;
use super::status::MonitorStatus;
use linkgauge_engine::workload::latency;
use linkgauge_model::sample::Window;
use linkgauge_model::traffic::Direction;

/// The percentiles of the last minute, in percent.
const PERCENTILES: [f64; 4] = [50.0, 90.0, 99.0, 100.0];

/// A label and its value.
pub type MetricLabel = (&'static str, String);

/// The metrics at one time.
#[derive(Debug, Default)]
pub struct Snapshot {
    pub(super) families: Vec<MetricFamily>,
}

/// The samples of one name.
#[derive(Debug)]
pub struct MetricFamily {
    /// Name with its unit, without the suffix of its kind.
    pub name: &'static str,
    /// Description of the family, in one line.
    pub help: &'static str,
    /// Kind of its samples.
    pub kind: FamilyKind,
    /// The samples, each with other labels.
    pub samples: Vec<MetricSample>,
}

/// Kind of the samples of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FamilyKind {
    /// A count that only grows.
    Counter,
    /// A value.
    Gauge,
    /// The distribution of times.
    Histogram,
    /// A gauge of 1, with what it says in its labels.
    Info,
}

/// One value.
#[derive(Debug)]
pub struct MetricSample {
    /// The labels that it shares with others.
    shared: Arc<[MetricLabel]>,
    /// A label of its own.
    further: Option<MetricLabel>,
    pub(super) value: MetricValue,
}

/// The value of a sample.
#[derive(Debug)]
pub enum MetricValue {
    /// A count.
    Count(u64),
    /// A number in the unit of its family.
    Number(f64),
    /// The times of a histogram.
    Times(Arc<Window>),
}

impl MetricSample {
    /// A sample with the labels that it shares with others, and one of its own.
    pub fn new(
        shared: &Arc<[MetricLabel]>,
        further: Option<MetricLabel>,
        value: MetricValue,
    ) -> MetricSample {
        MetricSample { shared: shared.clone(), further, value }
    }

    pub(super) fn labels(&self) -> impl Iterator<Item = &MetricLabel> {
        self.shared.iter().chain(&self.further)
    }
}

/// A link with its state and labels.
struct LabelledLink<'a> {
    state: &'a WatchState,
    labels: Arc<[MetricLabel]>,
    /// The last minute.
    minute: Window,
}

impl<'a> LabelledLink<'a> {
    pub fn new(state: &'a WatchState, host: &str) -> LabelledLink<'a> {
        let direction = match (&state.last_test, state.workload == latency::WORKLOAD.name) {
            (Some(test), _) => Some(test.direction.name()),
            (None, true) => Some(Direction::Loop.name()),
            (None, false) => None,
        };
        let direction = direction.map(|name| ("direction", name.to_owned()));
        let labels = [
            ("host", host.to_owned()),
            ("link", state.name.clone()),
            ("endpoint", state.endpoint.clone()),
            ("protocol", state.protocol.clone()),
            ("workload", state.workload.clone()),
        ];
        let labels: Vec<MetricLabel> = labels.into_iter().chain(direction).collect();
        LabelledLink { state, labels: labels.into(), minute: state.last_minutes(1) }
    }

    fn sample(&self, value: MetricValue) -> MetricSample {
        MetricSample::new(&self.labels, None, value)
    }

    fn labelled(&self, name: &'static str, label: impl Into<String>, value: MetricValue) -> MetricSample {
        MetricSample::new(&self.labels, Some((name, label.into())), value)
    }

    fn has_probes(&self) -> bool {
        self.state.total.counts.due > 0
    }

    fn times(&self) -> Vec<MetricSample> {
        vec![self.sample(MetricValue::Times(Arc::new(self.state.total.clone())))]
    }

    fn percentiles(&self) -> Vec<MetricSample> {
        let sample = |percentile: f64| {
            let time = self.minute.quantile_with_losses_ns(percentile / 100.0)?;
            Some(self.labelled("percentile", percentile.to_string(), MetricValue::Number(time / 1e9)))
        };
        PERCENTILES.into_iter().filter_map(sample).collect()
    }

    fn probes(&self) -> Vec<MetricSample> {
        let total = &self.state.total;
        let results = [("replied", total.replies()), ("lost", total.counts.lost)];
        results.map(|(result, count)| self.labelled("result", result, MetricValue::Count(count))).into()
    }

    fn alarms(&self) -> Vec<MetricSample> {
        let sample = |alert: &Alert| {
            self.labelled("rule", alert.rule.text.clone(), MetricValue::Count(alert.is_raised().into()))
        };
        self.state.alerts.iter().map(sample).collect()
    }
}

/// A family of each link: its name, kind and help, and what each link has of it.
type LinkFamily = (&'static str, FamilyKind, &'static str, fn(&LabelledLink) -> Vec<MetricSample>);

/// Families of links that are probed.
const OF_PROBES: [LinkFamily; 5] = [
    (
        "linkgauge_latency_seconds",
        FamilyKind::Histogram,
        "Round-trip time of the probes that have a reply, from when they were due",
        |link| link.times(),
    ),
    (
        "linkgauge_minute_latency_seconds",
        FamilyKind::Gauge,
        "Percentile of the last minute over all probes; infinite if it is a lost one",
        |link| link.percentiles(),
    ),
    ("linkgauge_probes", FamilyKind::Counter, "Probes by their result", |link| link.probes()),
    ("linkgauge_corrupt_replies", FamilyKind::Counter, "Replies with unexpected content", |link| {
        vec![link.sample(MetricValue::Count(link.state.total.counts.corrupt))]
    }),
    ("linkgauge_missed_sends", FamilyKind::Counter, "Probes that this host could not send in time", |link| {
        vec![link.sample(MetricValue::Count(link.state.missed_sends))]
    }),
];

/// Families of all links.
const OF_ALL: [LinkFamily; 3] = [
    (
        "linkgauge_up",
        FamilyKind::Gauge,
        "1 if the link replies, 0 if the last three probes were lost or the last test failed",
        |link| {
            let sample = |is_up: bool| link.sample(MetricValue::Count(is_up.into()));
            link.state.is_up.map(sample).into_iter().collect()
        },
    ),
    (
        "linkgauge_throughput_bytes_per_second",
        FamilyKind::Gauge,
        "Payload delivered in the last test",
        |link| {
            let test = link.state.last_test.as_ref();
            let rate = test.and_then(|test| test.figures.delivery.throughput_bps);
            rate.map(|rate| link.sample(MetricValue::Number(rate / f64::from(u8::BITS))))
                .into_iter()
                .collect()
        },
    ),
    ("linkgauge_alarm", FamilyKind::Gauge, "1 while an alarm is on", |link| link.alarms()),
];

/// Gauges of the monitor itself: their names and help.
const OF_STATUS: [(&str, &str); 3] = [
    ("linkgauge_config_last_reload_successful", "1 if the file could be read last"),
    ("linkgauge_config_last_reload_success_timestamp_seconds", "When the file could be read last"),
    ("linkgauge_store_writable", "1 if the store could be written last"),
];

fn family_of<'a>(
    (name, kind, help, samples): LinkFamily,
    links: impl Iterator<Item = &'a LabelledLink<'a>>,
) -> MetricFamily {
    MetricFamily { name, help, kind, samples: links.flat_map(samples).collect() }
}

impl Snapshot {
    /// The metrics of these states, from a host of this name.
    pub fn new(states: &[WatchState], host: &str) -> Snapshot {
        let links: Vec<LabelledLink> = states.iter().map(|state| LabelledLink::new(state, host)).collect();
        let of_probes = OF_PROBES.map(|each| family_of(each, links.iter().filter(|link| link.has_probes())));
        let of_all = OF_ALL.map(|each| family_of(each, links.iter()));
        Snapshot::of_families(of_probes.into_iter().chain(of_all))
    }

    /// Adds the state of the monitor itself.
    #[must_use]
    pub fn with_status(self, status: &MonitorStatus, host: &str) -> Snapshot {
        let labels: Arc<[MetricLabel]> = [("host", host.to_owned())].into();
        let (last_read, is_writable) = (status.last_read(), status.is_store_writable());
        let flag = |flag: bool| f64::from(u8::from(flag));
        let values = [
            last_read.map(|(is_read, _)| flag(is_read)),
            last_read.map(|(_, at)| at.as_microsecond() as f64 / 1e6),
            is_writable.map(flag),
        ];
        let of_status = OF_STATUS.into_iter().zip(values).map(|((name, help), value)| {
            let sample = |value| MetricSample::new(&labels, None, MetricValue::Number(value));
            MetricFamily {
                name,
                help,
                kind: FamilyKind::Gauge,
                samples: value.map(sample).into_iter().collect(),
            }
        });
        Snapshot { families: self.families.into_iter().chain(of_status).collect() }
    }

    /// Snapshot of these metrics, and of the version of the program.
    pub fn of_families(families: impl IntoIterator<Item = MetricFamily>) -> Snapshot {
        let version = ("version", env!("CARGO_PKG_VERSION").to_owned());
        let build = MetricFamily {
            name: "linkgauge_build",
            help: "The version of linkgauge",
            kind: FamilyKind::Info,
            samples: vec![MetricSample::new(&Arc::default(), Some(version), MetricValue::Count(1))],
        };
        Snapshot { families: families.into_iter().chain([build]).collect() }
    }
}

/// Upper limits of the classic buckets in ns: 1, 2 and 5 of each decade from 10 µs to 100 s. The last bucket has no limit.
const BUCKET_LIMITS_NS: [u64; 22] = {
    let mut limits = [0; 22];
    let (mut decade, mut at) = (10_000, 0);
    while at < 22 {
        limits[at] = decade * [1, 2, 5][at % 3];
        at += 1;
        if at % 3 == 0 {
            decade *= 10;
        }
    }
    limits
};

/// The upper limit of each classic bucket in seconds, and the replies up to it.
pub(super) fn classic_buckets(times: &Window) -> impl Iterator<Item = (f64, u64)> + '_ {
    let limits = BUCKET_LIMITS_NS.iter().map(|limit| (*limit as f64 / 1e9, times.replies_within(*limit)));
    limits.chain([(f64::INFINITY, times.replies())])
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::monitor::Config;
    use linkgauge_model::run::{CaseResult, Figures};
    use linkgauge_model::sample::WindowCounts;

    /// A link with three replies and a lost probe.
    pub(in crate::monitor) fn probed_state() -> WatchState {
        let text = "[[watch]]\nname = \"a \\\"link\\\"\"\nurl = \"mem://server\"\nprotocol = \"echo\"\nalert = [\"loss > 5 %\"]";
        let config = Config::from_toml(text).unwrap();
        let mut state = WatchState::new(&config.watches[0]);
        let counts = WindowCounts { measured_ms: 10_000, due: 4, lost: 1, ..WindowCounts::default() };
        let mut window = Window::new(counts);
        [15_000, 30_000, 2_000_000_000].iter().for_each(|time| window.record(*time));
        state.is_up = Some(true);
        state.total = window.clone();
        state.recent.push_back((0, window));
        state
    }

    #[test]
    fn bucket_limits_are_the_usual_ones() {
        let seconds = [0, 1, 2, 3, 21].map(|at| BUCKET_LIMITS_NS[at] as f64 / 1e9);
        assert_eq!(seconds, [1e-5, 2e-5, 5e-5, 1e-4, 100.0]);
    }

    #[test]
    fn a_rate_is_in_bytes_per_second() {
        let mut state = probed_state();
        let mut figures = Figures::default();
        figures.delivery.throughput_bps = Some(80e6);
        let test = CaseResult::of_figures("mem://a".to_owned(), "throughput", Direction::Send, figures);
        state.last_test = Some(Box::new(test));
        let snapshot = Snapshot::new(&[state], "here");
        let named = |family: &&MetricFamily| family.name == "linkgauge_throughput_bytes_per_second";
        let family = snapshot.families.iter().find(named).unwrap();
        assert!(matches!(family.samples[0].value, MetricValue::Number(rate) if rate == 10e6));
    }

    #[test]
    fn links_without_probes_have_no_times() {
        let mut state = probed_state();
        state.total = Window::default();
        let snapshot = Snapshot::new(&[state], "here");
        let samples =
            |name| snapshot.families.iter().find(|family| family.name == name).unwrap().samples.len();
        assert_eq!((samples("linkgauge_latency_seconds"), samples("linkgauge_up")), (0, 1));
    }

    #[test]
    fn a_status_becomes_metrics() {
        let status = MonitorStatus::default();
        let values = |status: &MonitorStatus| {
            let snapshot = Snapshot::new(&[], "here").with_status(status, "here");
            let samples = OF_STATUS.into_iter().flat_map(|(name, _)| {
                let family = snapshot.families.iter().find(|family| family.name == name).unwrap();
                let value = |sample: &MetricSample| match sample.value {
                    MetricValue::Number(number) => number,
                    _ => panic!("{family:?}"),
                };
                family.samples.iter().map(value).collect::<Vec<f64>>()
            });
            samples.collect::<Vec<f64>>()
        };
        status.set_unreadable();
        assert_eq!(values(&status), [] as [f64; 0], "nothing is known yet");
        status.set_read(jiff::Timestamp::from_second(1_000).unwrap());
        assert_eq!(status.set_store_writable(true), None);
        assert_eq!(values(&status), [1.0, 1_000.0, 1.0]);
        status.set_unreadable();
        assert_eq!(status.set_store_writable(false), Some(true));
        assert_eq!(values(&status), [0.0, 1_000.0, 0.0]);
    }
}
