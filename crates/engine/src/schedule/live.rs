//! State of a transfer while it runs: the data that has arrived, and the time that the rest will take.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::protocol::ReadyCase;
use crate::workload::throughput::{drain_time, planned_time};
use crate::workload::{Load, MovedBytes, TrafficKind};
use linkgauge_model::clock::Time;
use linkgauge_model::sample::FlowProgress;

/// Shortest drain that is shown.
const MIN_SHOWN_DRAIN: Duration = Duration::from_secs(1);

/// Values that are known beside the counts of the flows.
pub(super) struct LiveReport {
    /// Time since the begin of the load.
    pub(super) elapsed: Duration,
    /// Sent bytes that TCP has not delivered.
    pub(super) held_bytes: u64,
    /// Arrival time of the server's last report, and the bytes that the server has moved, if it reports that.
    pub(super) moved: Option<(Time, MovedBytes)>,
}

/// Notices that a server has vanished while this host sends: datagrams have no acknowledgements, and the system of a program that
/// stopped takes the data of TCP for a while.
pub(super) struct ServerSilence {
    /// The longest silence of a server that reports. `None`: received data shows that the server is alive.
    longest: Option<Duration>,
    last_heard: Time,
    received: u64,
}

impl ServerSilence {
    pub(super) fn new(case: &ReadyCase) -> ServerSilence {
        let longest = case.sends().then(|| case.longest_server_silence(case.progress_interval));
        ServerSilence { longest, last_heard: Time(0), received: 0 }
    }

    /// Whether the server was silent for too long. `reported_at`: when its last report arrived, if it reports. `received`: counts
    /// everything else that has arrived.
    pub(super) fn is_over(&mut self, now: Time, reported_at: Option<Time>, received: u64) -> bool {
        let (Some(longest), Some(at)) = (self.longest, reported_at) else { return false };
        let is_new = std::mem::replace(&mut self.received, received) != received;
        self.last_heard = self.last_heard.max(if is_new { now } else { at });
        now.since(self.last_heard) >= longest
    }
}

impl LiveReport {
    /// Bytes of the sent payload that have arrived, as far as is known.
    pub(super) fn delivered_bytes(&self, sent: u64) -> u64 {
        match self.moved.and_then(|(_, moved)| moved.received_bytes) {
            Some(received) => received.min(sent),
            None => sent.saturating_sub(self.held_bytes),
        }
    }

    /// Time at which the server had received the delivered bytes, since the begin of the load.
    pub(super) fn delivered_at_ns(&self, begin: Time) -> Option<u64> {
        let (at, moved) = self.moved?;
        moved.received_bytes.map(|_| at.since(begin).as_nanos() as u64)
    }

    /// Time for which data will arrive after the planned time, if long. `sent` and `received`: bytes by the client's counts.
    pub(super) fn expected_drain(
        &self,
        case: &ReadyCase,
        begin: Time,
        sent: u64,
        received: u64,
    ) -> Option<ExpectedDrain> {
        let Load { stop, warm_up, flows, .. } = case.load;
        let planned = planned_time(stop, warm_up).filter(|_| case.workload.traffic == TrafficKind::Load)?;
        let (at, moved) = self.moved?;
        let elapsed = self.elapsed.as_secs_f64();
        // The count of the server is older than that of the client, so it is continued at the same rate.
        let upload = moved.received_bytes.map(|bytes| {
            let rate = bytes as f64 / at.since(begin).as_secs_f64();
            (sent as f64 - rate * elapsed, rate)
        });
        let download = moved.sent_bytes.map(|bytes| {
            let queued = bytes.saturating_sub(received);
            (queued as f64, received as f64 / elapsed)
        });
        let seconds = |(queued, rate): (f64, f64)| queued / rate;
        let rest = [upload, download].into_iter().flatten().map(seconds).fold(0.0, f64::max);
        let rest = Duration::try_from_secs_f64(rest).unwrap_or(Duration::MAX);
        let so_far = self.elapsed.saturating_sub(planned);
        let total = so_far.saturating_add(rest).min(drain_time(planned, flows));
        let left = (self.elapsed >= planned).then(|| total.saturating_sub(so_far));
        (total >= MIN_SHOWN_DRAIN && !rest.is_zero()).then_some(ExpectedDrain { total, left })
    }
}

/// Time for which data arrives after the planned time.
pub(super) struct ExpectedDrain {
    pub(super) total: Duration,
    /// Remaining time, once the planned time is over.
    pub(super) left: Option<Duration>,
}

/// The sums of some flows while they run.
#[derive(Default)]
pub struct LiveSums {
    pub(super) messages: u64,
    pub bytes: u64,
    pub(super) planned_bytes: u64,
    pub(super) lost: u64,
    /// Time at which the first bytes were counted.
    first: Option<Time>,
}

impl LiveSums {
    pub(super) fn of(flows: &Mutex<Vec<Arc<FlowProgress>>>) -> LiveSums {
        let mut sums = LiveSums::default();
        for progress in flows.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            sums.messages += progress.messages.load(Relaxed);
            sums.bytes += progress.bytes.load(Relaxed);
            sums.planned_bytes += progress.planned_bytes.load(Relaxed);
            sums.lost += progress.lost.load(Relaxed);
            let first = Some(progress.first_ns.load(Relaxed)).filter(|first| *first > 0).map(Time);
            sums.first = [sums.first, first].into_iter().flatten().min();
        }
        sums
    }

    /// Time since the first bytes.
    fn moving_ns(&self, now: Time) -> Option<u64> {
        self.first.map(|first| now.since(first).as_nanos() as u64)
    }
}

/// The time in which the bytes of both directions arrive at the sum of their rates. The report of the server is older than the
/// count of the client, so each direction has a separate time. `None` before the first byte.
fn common_time(directions: &[(u64, Option<u64>)]) -> Option<u64> {
    let moved =
        directions.iter().filter_map(|&(bytes, ns)| Some((bytes as f64, ns.filter(|ns| *ns > 0)? as f64)));
    let (bytes, rate) = moved.fold((0.0, 0.0), |(sum, rate), (bytes, ns)| (sum + bytes, rate + bytes / ns));
    let longest = directions.iter().filter_map(|(_, ns)| *ns).max();
    if rate > 0.0 { Some((bytes / rate).round() as u64) } else { longest }
}

/// Counts of what has arrived, which never fall: a report of the server is older than the client's estimate before it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ArrivedCounts {
    pub(super) messages: u64,
    pub(super) bytes: u64,
    /// Arrival time of the server's report with these bytes, since the begin of the load.
    pub(super) at_ns: Option<u64>,
    /// Time since the first byte.
    pub(super) receiving_ns: Option<u64>,
}

impl ArrivedCounts {
    /// Counts the data that has arrived by these sums of downloads and uploads.
    pub(super) fn count(
        live: &LiveReport,
        (received, sent): (&LiveSums, &LiveSums),
        begin: Time,
        message_bytes: u32,
    ) -> ArrivedCounts {
        let now = begin + live.elapsed;
        let uploaded = live.delivered_bytes(sent.bytes);
        let of_uploaded = uploaded / u64::from(message_bytes.max(1));
        let messages = if uploaded == sent.bytes { sent.messages } else { of_uploaded };
        let of_server = live.moved.filter(|(_, moved)| moved.received_bytes.is_some());
        let upload_ns = match of_server {
            Some((_, moved)) => moved.receiving_ns,
            None => sent.moving_ns(now),
        };
        ArrivedCounts {
            messages: received.messages + messages,
            bytes: received.bytes + uploaded,
            at_ns: live.delivered_at_ns(begin),
            receiving_ns: common_time(&[(received.bytes, received.moving_ns(now)), (uploaded, upload_ns)]),
        }
    }

    /// Replaces the counts, unless they would fall.
    pub(super) fn update(&mut self, counted: ArrivedCounts) -> ArrivedCounts {
        if counted.bytes >= self.bytes && counted.messages >= self.messages {
            *self = counted;
        }
        *self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_what_has_arrived_never_fall() {
        let ms = |ms: u64| Time(ms * 1_000_000);
        let begin = ms(500);
        let sent = LiveSums { messages: 30, bytes: 30_000, first: Some(ms(700)), ..LiveSums::default() };
        let none = LiveSums::default();
        let live = |elapsed_ms: u64, moved: Option<MovedBytes>| LiveReport {
            elapsed: Duration::from_millis(elapsed_ms),
            held_bytes: 10_000,
            moved: moved.map(|moved| (ms(500 + elapsed_ms), moved)),
        };
        let count = |live: &LiveReport| ArrivedCounts::count(live, (&none, &sent), begin, 1000);
        let mut shown = ArrivedCounts::default();
        let before = shown.update(count(&live(1000, None)));
        assert_eq!((before.bytes, before.receiving_ns, before.at_ns), (20_000, Some(800_000_000), None));
        let report = |bytes, receiving_ms: u64| {
            Some(MovedBytes {
                received_bytes: Some(bytes),
                receiving_ns: Some(receiving_ms * 1_000_000),
                ..MovedBytes::default()
            })
        };
        assert_eq!(shown.update(count(&live(1100, report(15_000, 600)))), before, "an older count");
        let later = shown.update(count(&live(2000, report(25_000, 1000))));
        assert_eq!((later.bytes, later.messages, later.receiving_ns), (25_000, 25, Some(1_000_000_000)));
    }

    #[test]
    fn the_first_rate_of_both_directions_is_the_sum_of_their_rates() {
        // Each direction has 8 Mbit/s. The download began after 50 ms; the report covers the first 700 ms of the upload.
        let (received, sent) = (
            LiveSums { bytes: 950_000, first: Some(Time(50_000_000)), ..LiveSums::default() },
            LiveSums { bytes: 1_000_000, ..LiveSums::default() },
        );
        let moved = MovedBytes {
            received_bytes: Some(700_000),
            receiving_ns: Some(700_000_000),
            ..MovedBytes::default()
        };
        let elapsed = Duration::from_secs(1);
        let live = LiveReport { elapsed, held_bytes: 0, moved: Some((Time(720_000_000), moved)) };
        let counts = ArrivedCounts::count(&live, (&received, &sent), Time(0), 1000);
        assert_eq!(counts.bytes, 1_650_000);
        let rate = counts.bytes as f64 * 8e9 / counts.receiving_ns.unwrap() as f64;
        assert!((rate / 16e6 - 1.0).abs() < 1e-6, "{rate}");
        // One direction has its own time.
        assert_eq!(common_time(&[(0, None), (5, Some(7))]), Some(7));
        assert_eq!(common_time(&[(0, Some(3)), (0, None)]), Some(3));
        assert_eq!(common_time(&[(0, None), (0, None)]), None);
    }

    #[test]
    fn a_server_that_neither_reports_nor_sends_is_lost() {
        let seconds = |seconds: u64| Time(seconds * 1_000_000_000);
        let mut silence =
            ServerSilence { longest: Some(Duration::from_secs(3)), last_heard: Time(0), received: 0 };
        assert!(!silence.is_over(seconds(60), None, 0), "it does not report");
        assert!(!silence.is_over(seconds(60), Some(seconds(59)), 10));
        assert!(!silence.is_over(seconds(62), Some(seconds(59)), 10), "heard at 60");
        assert!(!silence.is_over(seconds(62), Some(seconds(59)), 11), "a reply to a probe");
        assert!(!silence.is_over(seconds(64), Some(seconds(59)), 11));
        assert!(silence.is_over(seconds(65), Some(seconds(59)), 11));
        assert!(!silence.is_over(seconds(65), Some(seconds(65)), 11), "a late report");
    }
}
