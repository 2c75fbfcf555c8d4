//! The intervals of a case's figures: over whole repetitions, or from the time series of a single transfer.

use std::time::Duration;

use crate::workload::FlowResult;
use linkgauge_model::metric::LOSS_INTERVAL;
use linkgauge_model::run::{AddedLatency, Figures, PartResult, SeriesEntry};
use linkgauge_model::stats::{self, Interval, series_intervals};

/// A figure with an interval over repetitions: name and accessor.
type RepeatedFigure = (&'static str, fn(&Figures) -> Option<f64>);

fn percentile(figures: &Figures, name: &str) -> Option<f64> {
    figures.times.latency_ns.as_ref()?.percentile(name).map(|ns| ns as f64)
}

const REPEATED: [RepeatedFigure; 6] = [
    ("latency_ns.p50", |figures| percentile(figures, "p50")),
    ("latency_ns.p90", |figures| percentile(figures, "p90")),
    ("latency_ns.p99", |figures| percentile(figures, "p99")),
    (RATE, |figures| figures.delivery.throughput_bps),
    (REVERSE_RATE, |figures| figures.delivery.throughput_reverse_bps),
    (ADDED, |figures| figures.added_latency.as_ref()?.added_p50_ns),
];

const RATE: &str = "throughput_bps";
const REVERSE_RATE: &str = "throughput_reverse_bps";
const ADDED: &str = "added_p50_ns";

/// Sets the intervals over the repetitions. Intervals within one repetition stay with it.
pub(super) fn set_intervals(figures: &mut Figures, parts: &[PartResult]) {
    for (name, get) in REPEATED {
        let values: Vec<f64> = parts.iter().filter_map(|part| get(&part.figures)).collect();
        let interval = get(figures).and_then(|value| stats::run_interval(value, &values));
        figures.intervals.extend(interval.map(|interval| (name.to_owned(), interval)));
    }
    figures.within_run_intervals.clear();
}

/// Standard deviation of the rates of two transfers over a link that limits them, as a share. Behind a shaper of 20 Mbit/s it
/// was 0.1 to 0.4 %.
const LINK_LIMITED_DEVIATION: f64 = 0.003;

/// Standard deviation of the rates of two transfers where a host limits them: the CPUs on which connections and programs run
/// differ. Over loopback on a quiet host it was 3 to 6 %.
const HOST_LIMITED_DEVIATION: f64 = 0.05;

/// Share of the time from which on the CPU of a program limits the rate.
const HOST_LIMITED_SHARE: f64 = 0.4;

/// The normal deviate of 95 %.
const NORMAL_DEVIATE: f64 = 1.96;

/// Standard deviation of the latency that a load adds, as a share. Within a run it varies far more than this.
const ADDED_LATENCY_DEVIATION: f64 = 0.05;

/// Standard deviation of a percentile of round trips, as a share: that of a host, which a link hardly ever exceeds.
const ROUND_TRIP_DEVIATION: f64 = HOST_LIMITED_DEVIATION;

/// The intervals of the percentiles of round trips that were measured once: those within the run, widened by what runs differ.
pub(super) fn set_round_trip_intervals(figures: &mut Figures) {
    for (name, get) in REPEATED.iter().filter(|(name, _)| name.starts_with("latency_ns.")) {
        let within = figures.within_run_intervals.get(*name).copied();
        let Some((value, own)) =
            get(figures).zip(within).filter(|(value, own)| *value > 0.0 && own.low > 0.0)
        else {
            continue;
        };
        let reach = |share: f64| share.ln().abs().hypot(NORMAL_DEVIATE * ROUND_TRIP_DEVIATION).exp();
        let interval =
            Interval { low: value / reach(value / own.low), high: value * reach(own.high / value) };
        figures.intervals.insert((*name).to_owned(), interval);
    }
}

/// Series of a single transfer, beside its figures.
#[derive(Default)]
pub(super) struct TransferSeries {
    /// Bytes that arrived in equal times, in the direction of `throughput_bps`.
    pub(super) forward: Vec<f64>,
    /// Bytes that arrived in equal times, in the direction of `throughput_reverse_bps`.
    pub(super) reverse: Vec<f64>,
    /// Mean round trips of the probe in equal times of the load, in ns.
    pub(super) loaded_ns: Vec<f64>,
    /// Share of the time in which the CPUs of one side were busy with the transfer, or its threads waited for one.
    pub busy_share: f64,
    /// Whether the link is a reliable stream, which loses nothing.
    pub(super) is_reliable_stream: bool,
}

impl TransferSeries {
    /// The intervals of a transfer that was measured once.
    pub(super) fn set_intervals(&self, figures: &mut Figures) {
        let is_host = self.busy_share >= HOST_LIMITED_SHARE;
        let between_runs = if is_host { HOST_LIMITED_DEVIATION } else { LINK_LIMITED_DEVIATION };
        let delivery = figures.delivery;
        for (name, value, parts) in [
            (RATE, delivery.throughput_bps, &self.forward),
            (REVERSE_RATE, delivery.throughput_reverse_bps, &self.reverse),
        ] {
            if let Some(found) = value.and_then(|value| series_intervals(value, parts, between_runs)) {
                figures.intervals.insert(name.to_owned(), found.of_runs);
                figures.within_run_intervals.insert(name.to_owned(), found.within_run);
            }
        }
        if let Some(loss) = loss_interval(figures).filter(|_| !self.is_reliable_stream) {
            figures.intervals.insert(LOSS_INTERVAL.to_owned(), loss);
        }
        if let Some(AddedLatency { idle_p50_ns, added_p50_ns: Some(added), .. }) = figures.added_latency
            && let Some(found) =
                series_intervals(idle_p50_ns + added, &self.loaded_ns, ADDED_LATENCY_DEVIATION)
        {
            let above = |of: Interval| Interval { low: of.low - idle_p50_ns, high: of.high - idle_p50_ns };
            figures.intervals.insert(ADDED.to_owned(), above(found.of_runs));
            figures.within_run_intervals.insert(ADDED.to_owned(), above(found.within_run));
        }
    }
}

/// The interval of the share of lost messages: of a constant stream, what does not arrive varies as what arrives. Where nothing was
/// lost, it ends at 3 messages: with more, none would be lost in fewer than 1 of 20 transfers.
fn loss_interval(figures: &Figures) -> Option<Interval> {
    const LOST_UNSEEN: f64 = 3.0;
    let share = figures.loss_share()?;
    if share == 0.0 {
        return Some(Interval { low: 0.0, high: (LOST_UNSEEN / figures.counts.sent as f64).min(1.0) });
    }
    let (rate, around) = (figures.delivery.throughput_bps?, figures.intervals.get(RATE)?);
    let of = |end: f64| (1.0 - (1.0 - share) * end / rate).clamp(0.0, 1.0);
    Some(Interval { low: of(around.high), high: of(around.low) })
}

/// The bytes of the entries that have their whole length.
pub(super) fn whole_parts(entries: &[SeriesEntry]) -> Vec<f64> {
    let whole = entries.split_last().map_or(entries, |(_, whole)| whole);
    whole.iter().map(|entry| entry.bytes as f64).collect()
}

/// The mean round trips of the entries that have any.
pub(super) fn mean_round_trips(entries: &[SeriesEntry]) -> Vec<f64> {
    entries.iter().filter_map(|entry| entry.latency_mean_ns).collect()
}

/// The share of `elapsed` in which the CPUs of one side were busy, or its threads waited for one. At most one thread counts: a
/// transfer is as slow as its slowest part.
pub(super) fn busy_share(flows: &[FlowResult], server_seconds: Option<f64>, elapsed: Duration) -> f64 {
    let waited = |flow: &FlowResult| flow.thread.run_queue_wait_ns.unwrap_or(0) as f64 * 1e-9;
    let client = flows.iter().map(|flow| flow.cpu_seconds).sum::<f64>();
    let longest_wait = flows.iter().map(waited).fold(0.0, f64::max);
    let seconds = (client + longest_wait).max(server_seconds.unwrap_or(0.0));
    if elapsed.is_zero() { 0.0 } else { seconds / elapsed.as_secs_f64() }
}
