//! Converts the contents of a recorder to the figures of the run document: percentiles with their intervals,
//! shares, jitter.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::{Counts, MissedFrameLog, Recorder, TimeSamples};
use crate::run::{
    ByteErrors, ConnectionCounts, Distribution, Figures, MessageCounts, MissedFrames, RoundTripTimes,
};
use crate::stats::{self, Interval};
use crate::units::format_milliseconds;

/// The percentiles that are printed when the sample supports them.
const REPORTED_PERCENTILES: [(&str, f64); 15] = [
    ("p10", 0.1),
    ("p20", 0.2),
    ("p30", 0.3),
    ("p40", 0.4),
    ("p50", 0.5),
    ("p60", 0.6),
    ("p70", 0.7),
    ("p80", 0.8),
    ("p90", 0.9),
    ("p95", 0.95),
    ("p99", 0.99),
    ("p99.9", 0.999),
    ("p99.99", 0.9999),
    ("p99.999", 0.99999),
    ("p99.9999", 0.999999),
];

/// Percentile that is printed for every sample.
const MEDIAN_NAME: &str = "p50";

/// Percentiles with intervals.
const WITH_INTERVAL: [&str; 3] = [MEDIAN_NAME, "p90", "p99"];

/// Samples from which the dependence between neighbours is computed.
const MAX_DEPENDENCE_SAMPLES: usize = 20_000;

impl Counts {
    /// The counts of messages, for the document.
    fn messages(&self) -> MessageCounts {
        MessageCounts {
            sent: self.sent,
            received: self.received,
            lost: self.lost,
            losses_unknown: false,
            messages_unknown: false,
            said_zeros: Default::default(),
            late: self.late,
            duplicate: self.duplicate,
            early: self.early,
            reordered: self.reordered,
            corrupt_messages: self.corrupt_messages,
            late_sends: self.late_sends,
            missed_sends: self.missed_sends,
            receiver_socket_drops: None,
            network_lost: None,
        }
    }
}

impl Recorder {
    /// The figures of a request and reply workload. `late` holds the limits of the shares.
    pub fn latency_figures(&self, late: &[Duration]) -> Figures {
        let counts = &self.counts;
        // Where most replies contradict themselves, the others fit by chance.
        let is_credible = 2 * counts.corrupt_messages <= counts.received;
        let ways = self.one_way_delays.as_ref().filter(|_| is_credible);
        let mut figures = Figures {
            counts: counts.messages(),
            byte_errors: ByteErrors { corrupt_bytes: counts.corrupt_bytes, ..ByteErrors::default() },
            times: RoundTripTimes { jitter_ns: self.service_times.jitter(), ..RoundTripTimes::default() },
            requests: self.transfer_counts.as_ref().map(|transfer| transfer.requests),
            records: self.transfer_counts.as_ref().and_then(|transfer| transfer.records.clone()),
            histogram_hdr_v2: self.service_times.encoded_histogram().map(|bytes| STANDARD.encode(bytes)),
            remote_clock: ways.and_then(|ways| ways.remote_clock()),
            one_way: ways.and_then(|ways| ways.figures(counts)),
            stages: self.stages.as_ref().map(|stages| stages.figures()),
            ..Figures::default()
        };
        figures.times.latency_ns = distribution(&self.service_times, counts.lost, late);
        let intervals = within_run_intervals(&self.service_times, counts.lost);
        figures.within_run_intervals.extend(intervals.map(|(name, i)| (format!("latency_ns.{name}"), i)));
        if let Some(response) = &self.response_times {
            figures.times.response_ns = distribution(response, counts.lost, late);
            let intervals = within_run_intervals(response, counts.lost);
            figures
                .within_run_intervals
                .extend(intervals.map(|(name, i)| (format!("response_ns.{name}"), i)));
        }
        if let Some(connect) = &self.connect_times {
            let failed = counts.failed_connections;
            figures.times.connect_ns = distribution(connect, failed, &[]);
            figures.connections =
                Some(ConnectionCounts { connections: connect.count(), failed_connections: failed });
        }
        figures.times.missed_frames = self.missed_frames(late);
        let elapsed_ns = self.elapsed_ns();
        if elapsed_ns > 0 && counts.received > 0 {
            figures.delivery.messages_per_second = Some(counts.received as f64 * 1e9 / elapsed_ns as f64);
        }
        figures
    }

    fn missed_frames(&self, late: &[Duration]) -> Option<MissedFrames> {
        let response = self.response_times.as_ref().filter(|_| self.counts.sent > 0 && !late.is_empty())?;
        let count_later_than_ms = count_later(response, self.counts.lost, late).collect();
        let first = self.missed_frame_log.as_ref().map(MissedFrameLog::first_missed).unwrap_or_default();
        Some(MissedFrames { count_later_than_ms, first })
    }
}

/// Number of round trips that took longer than each limit, in milliseconds, or were lost.
fn count_later(times: &TimeSamples, lost: u64, late: &[Duration]) -> impl Iterator<Item = (String, u64)> {
    late.iter()
        .map(move |limit| (format_milliseconds(*limit), times.count_above(limit.as_nanos() as u64) + lost))
}

/// The distribution of requests with and without a reply together; `None` without any reply.
pub(super) fn distribution(times: &TimeSamples, lost: u64, late: &[Duration]) -> Option<Distribution> {
    let received = times.count();
    let sent = received + lost;
    if received == 0 {
        return None;
    }
    let ranks = times.ranks();
    // A rank among the lost requests has no value: they rank slowest.
    let value = |rank: u64| (rank <= received).then(|| ranks.value_at_rank(rank));
    let mut percentiles = BTreeMap::new();
    for (name, p) in REPORTED_PERCENTILES {
        // Every sample has an observed median; only the interval of the median needs more samples.
        if name != MEDIAN_NAME && !stats::is_supported(sent, p) {
            continue;
        }
        percentiles.insert(name.to_owned(), value(stats::nearest_rank(sent, p)));
    }
    let fastest = stats::nearest_rank(sent, 0.95);
    let later_than_ms =
        count_later(times, lost, late).map(|(limit, count)| (limit, count as f64 / sent as f64));
    let moments = times.moments();
    Some(Distribution {
        count: received,
        min: times.min(),
        mean: moments.mean().unwrap_or(0.0),
        // One sample has none.
        standard_deviation: moments.standard_deviation(),
        max: times.max(),
        below_ns: None,
        mean_fastest_95_percent: (fastest <= received).then(|| ranks.mean_of_fastest(fastest)),
        percentiles,
        later_than_ms: later_than_ms.collect(),
    })
}

/// The intervals of percentiles within one run, by name.
fn within_run_intervals(times: &TimeSamples, lost: u64) -> impl Iterator<Item = (&'static str, Interval)> {
    let first_times = times.first_times();
    let first_times = &first_times[..first_times.len().min(MAX_DEPENDENCE_SAMPLES)];
    let series: Vec<f64> = first_times.iter().map(|&ns| ns as f64).collect();
    let (received, ranks) = (times.count(), times.ranks());
    let interval = move |(name, p): (&'static str, f64)| {
        let (low, high) = stats::within_run_ranks(received + lost, p, stats::dependence(&series, p)?)?;
        // A rank among the lost requests has no value.
        (high <= received).then(|| {
            let value = |rank| ranks.value_at_rank(rank) as f64;
            (name, Interval { low: value(low), high: value(high) })
        })
    };
    let wanted = REPORTED_PERCENTILES.into_iter().filter(|(name, _)| WITH_INTERVAL.contains(name));
    wanted.filter_map(interval).collect::<Vec<_>>().into_iter()
}
