//! The state of a monitor for people, as the live page and the terminal view show it.
//!
//! The ledger's thread makes it after each slice. Readers share what is ready and compute nothing.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use serde::Serialize;

use super::columns::{Column, HistorySpan, LatestColumns, SPANS, p99_ns};
use super::health::LinkHealth;
use super::ledger::{MonitorEvent, WatchState};

/// Events that are shown.
const MAX_EVENTS: usize = 100;

/// Minutes in the small chart of a link.
pub const SPARK_MINUTES: i64 = 60;

/// The length of a minute's column in seconds.
const MINUTE: i64 = 60;

/// The spans that are in memory: ten minutes of slices and an hour of minutes.
const IN_MEMORY: [&HistorySpan; 2] = [&SPANS[0], &SPANS[1]];

/// State of a link at one time. Times are those of the last minute, in ns; infinite (`null`) if the percentile is a lost probe.
#[derive(Debug, Clone, Serialize)]
pub struct LinkView {
    /// Name of the watch.
    pub name: String,
    /// The endpoint, as typed.
    pub endpoint: String,
    /// Protocol of the remote.
    pub protocol: String,
    /// The workload.
    pub workload: String,
    /// Whether it needs attention.
    pub state: LinkHealth,
    /// Reason why the link is down, if it could not be opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Begin of the outage, in seconds since 1970, while it is down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub down_since: Option<i64>,
    /// Whether it is tested at intervals, in the place of continuous probes.
    pub is_tested: bool,
    /// The rules of the alarms that are on.
    pub alarms: Vec<String>,
    /// Probes that were due.
    pub due: u64,
    /// Probes without a reply.
    pub lost: u64,
    /// Median.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_ns: Option<f64>,
    /// 99th percentile. Absent with fewer than 100 probes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_ns: Option<f64>,
    /// The slowest reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_ns: Option<u64>,
    /// Payload delivered in the last test.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bits_per_second: Option<f64>,
    /// The median of each minute of the last hour; `null`: nothing was measured, or it is a lost probe.
    pub spark_ns: Vec<Option<f64>>,
    /// The rate of each of the last tests, in bit/s; `null`: the test failed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub spark_bps: Vec<Option<f64>>,
}

impl LinkView {
    /// Order by trouble: the state, then the share of lost probes, worst first.
    pub fn trouble(&self) -> (LinkHealth, std::cmp::Reverse<u64>) {
        // In millionths, so that it has an order.
        (self.state, std::cmp::Reverse((self.lost * 1_000_000).checked_div(self.due).unwrap_or(0)))
    }
}

/// An event of the log.
#[derive(Debug, Clone, Serialize)]
pub struct LiveEvent {
    /// Time of the event, in seconds since 1970.
    pub at: i64,
    /// Name of the watch, if it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// Description of the event, for people.
    pub text: String,
    /// The id of a saved run about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
}

/// State of the monitor and of all links at one time.
#[derive(Debug, Clone, Serialize)]
pub struct Overview {
    /// The version of the monitor. A page of another version loads itself again.
    pub version: &'static str,
    /// The host of the monitor.
    pub host: String,
    /// Time of the overview, in seconds since 1970.
    pub at: i64,
    /// Start of this monitor, in seconds since 1970.
    pub since: i64,
    /// The links, in the order of the configuration.
    pub links: Vec<LinkView>,
    /// The latest events, latest first.
    pub events: Vec<LiveEvent>,
}

/// The state of a monitor, shared by those who show it.
#[derive(Debug)]
pub struct Live(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    overview: Arc<Overview>,
    events: VecDeque<LiveEvent>,
    /// The columns of each link, for each of `IN_MEMORY`.
    columns: Vec<LinkColumns>,
}

type LinkColumns = [LatestColumns; IN_MEMORY.len()];

fn new_columns() -> LinkColumns {
    IN_MEMORY.map(LatestColumns::new)
}

impl Live {
    /// A monitor on a host that begins now.
    pub fn new(host: String, since: Timestamp) -> Live {
        let since = since.as_second();
        let version = env!("CARGO_PKG_VERSION");
        let overview = Overview { version, host, at: since, since, links: Vec::new(), events: Vec::new() };
        Live(Mutex::new(Inner { overview: Arc::new(overview), events: VecDeque::new(), columns: Vec::new() }))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The latest state.
    pub fn overview(&self) -> Arc<Overview> {
        self.inner().overview.clone()
    }

    /// Adds an event, with its text for people.
    pub fn note(&self, at: Timestamp, event: &MonitorEvent, text: String) {
        let (link, run) = event.subject();
        let owned = |text: Option<&str>| text.map(str::to_owned);
        self.push(LiveEvent { at: at.as_second(), link: owned(link), text, run: owned(run) });
    }

    /// Adds a message of the monitor itself.
    pub fn note_message(&self, at: Timestamp, text: String) {
        self.push(LiveEvent { at: at.as_second(), link: None, text, run: None });
    }

    pub(crate) fn push(&self, event: LiveEvent) {
        let mut inner = self.inner();
        // What was measured later may be known earlier.
        let place = inner.events.iter().take_while(|known| known.at > event.at).count();
        inner.events.insert(place, event);
        inner.events.truncate(MAX_EVENTS);
    }

    /// Takes the states after a slice or a test.
    pub fn update(&self, states: &[WatchState], at: Timestamp) -> Arc<Overview> {
        let mut inner = self.inner();
        let mut before = std::mem::take(&mut inner.columns);
        let names = || inner.overview.links.iter().map(|link| &link.name);
        if !names().eq(states.iter().map(|state| &state.name)) {
            let mut of_link: BTreeMap<&String, LinkColumns> = names().zip(before).collect();
            let columns = |state: &WatchState| of_link.remove(&state.name).unwrap_or_else(new_columns);
            before = states.iter().map(columns).collect();
        }
        for (state, columns) in states.iter().zip(&mut before) {
            columns.iter_mut().for_each(|columns| columns.update(&state.recent));
        }
        let links =
            states.iter().zip(&before).map(|(state, [_, minutes])| link_view(state, minutes.columns()));
        let overview = Overview {
            version: inner.overview.version,
            host: inner.overview.host.clone(),
            at: at.as_second(),
            since: inner.overview.since,
            links: links.collect(),
            events: inner.events.iter().cloned().collect(),
        };
        inner.columns = before;
        inner.overview = Arc::new(overview);
        inner.overview.clone()
    }

    /// The columns of a link in a span that is in memory, oldest first. `None` if the span is not, or there is no such link.
    pub fn columns(&self, link: usize, span: &HistorySpan) -> Option<Vec<Column>> {
        let inner = self.inner();
        let place = IN_MEMORY.iter().position(|in_memory| *in_memory == span)?;
        Some(inner.columns.get(link)?[place].columns().iter().cloned().collect())
    }
}

fn link_view(state: &WatchState, minutes: &VecDeque<Column>) -> LinkView {
    let minute = state.last_minutes(1);
    let test = state.last_test.as_ref();
    let tested = test.and_then(|test| test.figures.times.latency_ns.as_ref());
    let of_test = |name: &str| tested.and_then(|times| times.percentile(name)).map(|time| time as f64);
    let counts = test.map(|test| &test.figures.counts);
    LinkView {
        name: state.name.clone(),
        endpoint: state.endpoint.clone(),
        protocol: state.protocol.clone(),
        workload: state.workload.clone(),
        state: state.health(),
        failure: state.failure.clone(),
        down_since: state.outage.since().filter(|_| state.is_up == Some(false)).map(Timestamp::as_second),
        is_tested: state.is_tested,
        alarms: state
            .alerts
            .iter()
            .filter(|alert| alert.is_raised())
            .map(|alert| alert.rule.text.clone())
            .chain(state.missed.rule().map(str::to_owned))
            .collect(),
        due: counts.map_or(minute.counts.due, |counts| counts.sent),
        lost: counts.map_or(minute.counts.lost, |counts| counts.lost),
        p50_ns: of_test("p50").or_else(|| minute.quantile_with_losses_ns(0.5)),
        p99_ns: of_test("p99").or_else(|| p99_ns(&minute)),
        max_ns: tested.map(|times| times.max).or_else(|| minute.quantile_ns(1.0)),
        bits_per_second: test.and_then(|test| test.figures.delivery.throughput_bps),
        spark_ns: spark(minutes),
        spark_bps: state.rates.iter().copied().skip_while(Option::is_none).collect(),
    }
}

/// The median of each of the last minutes, up to that of the last column.
fn spark(minutes: &VecDeque<Column>) -> Vec<Option<f64>> {
    let Some(last) = minutes.back() else { return Vec::new() };
    let first = minutes.front().map_or(last.start, |first| first.start);
    let length = ((last.start - first) / MINUTE + 1).min(SPARK_MINUTES);
    let mut spark = vec![None; length as usize];
    for column in minutes {
        let back = (last.start - column.start) / MINUTE;
        if let Some(place) = usize::try_from(length - 1 - back).ok().and_then(|place| spark.get_mut(place)) {
            *place = column.p50_ns.filter(|time| time.is_finite());
        }
    }
    spark
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitor::Config;
    use linkgauge_model::sample::{Window, WindowCounts};

    fn state(name: &str) -> WatchState {
        let text = format!("[[watch]]\nname = \"{name}\"\nurl = \"mem://server\"\nprotocol = \"echo\"");
        WatchState::new(&Config::from_toml(&text).unwrap().watches[0])
    }

    fn probed(mut state: WatchState, second: i64, times: &[u64]) -> WatchState {
        let counts = WindowCounts {
            measured_ms: 10_000,
            due: times.len() as u64 + 1,
            lost: 1,
            ..WindowCounts::default()
        };
        let mut window = Window::new(counts);
        times.iter().for_each(|time| window.record(*time));
        state.recent.push_back((second, window));
        state.is_up = Some(true);
        state
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn an_overview_shows_the_last_minute_and_the_hour() {
        let live = Live::new("here".to_owned(), at(1_000_000));
        assert!(live.overview().links.is_empty());
        let mut link = probed(state("a"), 1_000_020, &[1_000_000; 120]);
        link = probed(link, 1_000_140, &[3_000_000; 30]);
        let overview = live.update(&[link.clone(), state("b")], at(1_000_150));
        let [a, b] = &overview.links[..] else { panic!("two links") };
        assert_eq!((a.state, a.due, a.lost, a.p99_ns), (LinkHealth::Up, 31, 1, None));
        assert_eq!((b.state, b.p50_ns, b.spark_ns.len()), (LinkHealth::Unknown, None, 0));
        let shape: Vec<bool> = a.spark_ns.iter().map(Option::is_some).collect();
        assert_eq!(shape, [true, false, true], "a minute without probes is a gap");
        assert_eq!(live.columns(0, &SPANS[0]).unwrap().len(), 2);
        assert_eq!(live.columns(0, &SPANS[1]).unwrap()[0].due, 121);
        assert!(live.columns(0, &SPANS[2]).is_none() && live.columns(2, &SPANS[0]).is_none());
        let changed = live.update(&[state("b"), link], at(1_000_160));
        assert_eq!(changed.links[1].spark_ns.len(), 3, "columns follow their link");
        assert!(live.columns(0, &SPANS[1]).unwrap().is_empty());
    }

    #[test]
    fn the_latest_events_are_shown_first() {
        let live = Live::new("here".to_owned(), at(0));
        for second in 0..150 {
            let event = MonitorEvent::Up { name: "a".to_owned() };
            live.note(at(second), &event, format!("a: up {second}"));
        }
        live.note_message(at(140), "late".to_owned());
        let overview = live.update(&[state("a")], at(150));
        assert_eq!((overview.events.len(), overview.events[0].at), (MAX_EVENTS, 149));
        assert_eq!(overview.events[0].link.as_deref(), Some("a"));
        assert_eq!(overview.events[9].text, "late", "in order of time, not of arrival");
        assert!(overview.events.is_sorted_by_key(|event| std::cmp::Reverse(event.at)));
    }
}
