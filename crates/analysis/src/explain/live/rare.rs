//! Rare pauses: requests far above the median of their block, in all blocks of the explanation. The screen alone is too short
//! for what happens once in some seconds.

use super::super::causes::{self, CausePlace, Target};
use super::blocks::BlockSummary;
use super::path::Path;
use super::places;
use super::signatures::{self, Sighting};
use linkgauge_model::sample::Sample;
use linkgauge_model::stats;
use linkgauge_model::units::format_nanoseconds;

/// Half of the shortest pause.
const MIN_WAIT_NS: f64 = 7.5e6;
/// Minimum number of pauses that are not by chance.
const MIN_PAUSES: usize = 3;
/// Waits for a CPU that are this share of the pauses of a block explain them.
const MIN_HOST_SHARE: f64 = 0.5;
/// Periods of pauses fit this often into the time between the first and the last.
const MIN_CYCLES: f64 = 5.0;
/// Maximum share of slow requests; if more are slow, they are no exceptions.
const MAX_SHARE: f64 = 0.1;

/// The blocks of the whole explanation.
pub(super) struct RareLog<'a>(pub(super) &'a [BlockSummary]);

/// Whether threads that waited for a CPU, or losses, explain the slow requests. `usual_ns`: each wake-up waits a little.
fn is_explained(block: &BlockSummary, usual_ns: f64) -> bool {
    let waited_ns = block.waited_ns - usual_ns * block.requests as f64;
    block.again > 0 || waited_ns > MIN_HOST_SHARE * block.excess_ns()
}

impl RareLog<'_> {
    fn observed_ns(&self) -> f64 {
        self.0.iter().map(|block| block.observed_ns).sum()
    }

    fn requests(&self) -> usize {
        self.0.iter().map(|block| block.requests).sum()
    }

    /// The slow requests that this host does not explain.
    fn slow(&self) -> (Vec<Sample>, Vec<f64>) {
        let quiet = self.0.iter().filter(|block| block.slow.is_empty());
        let waits: Vec<f64> = quiet.map(|block| block.waited_ns / block.requests.max(1) as f64).collect();
        let usual_ns = stats::median(&waits).unwrap_or(0.0);
        let open = self.0.iter().filter(|block| !is_explained(block, usual_ns));
        open.flat_map(|block| block.slow.iter().copied()).unzip()
    }

    /// Losses: as many slow requests as segments that were sent again.
    fn losses(&self, target: &Target) -> Option<Sighting> {
        let repaired = |block: &BlockSummary| block.slow.len().min(block.again);
        let count: usize = self.0.iter().map(repaired).sum();
        let all: usize = self.0.iter().map(|block| block.slow.len()).sum();
        let excess: f64 = self.0.iter().filter(|block| block.again > 0).map(BlockSummary::excess_ns).sum();
        let mean_ns = excess / self.requests().max(1) as f64;
        let evidence = format!(
            "{count} of {all} slow requests had segments that were sent again: this costs {} per request in the mean",
            format_nanoseconds(mean_ns)
        );
        let cause = causes::named(target, "path_loss").filter(|_| count >= MIN_PAUSES && 2 * count > all)?;
        Some(Sighting::new(cause, 0.0, evidence).with_mean(mean_ns))
    }

    /// The losses, or the pauses at their place.
    pub(super) fn sighting(&self, target: &Target, path: Option<&Path>) -> Option<Sighting> {
        self.losses(target).or_else(|| self.pauses(target, path))
    }

    /// A group of slow requests: the long tail of a network has more that are almost slow.
    fn pauses(&self, target: &Target, path: Option<&Path>) -> Option<Sighting> {
        let (slow, excess_ns) = self.slow();
        let count = slow.len();
        let almost: usize = self.0.iter().map(|block| block.almost).sum();
        if count < MIN_PAUSES || 2 * almost > count || count as f64 > MAX_SHARE * self.requests() as f64 {
            return None;
        }
        let sum: f64 = excess_ns.iter().sum();
        let longest = excess_ns.iter().copied().fold(0.0, f64::max);
        // Of a pause, a request at any time meets the half on average.
        let squares: f64 = excess_ns.iter().map(|excess| excess * excess).sum();
        let mean_ns = squares / (2.0 * self.observed_ns().max(sum));
        let place =
            path.map_or(CausePlace::Unknown, |path| places::place_of_pauses(&slow, MIN_WAIT_NS, path));
        let (id, why) = match place {
            CausePlace::Host => return None,
            CausePlace::Path => ("path_stall", "handshakes are late as well"),
            CausePlace::Server => (PAUSE, "handshakes meanwhile are not late"),
            _ => (PAUSE, "nothing shows whether the server or the path pauses"),
        };
        // The blocks have gaps, so only periods that fit often into the whole time are known.
        let ends: Vec<f64> = slow.iter().map(|sample| sample.received.0 as f64 / 1e6).collect();
        let whole_ms = ends.last().zip(ends.first()).map_or(0.0, |(last, first)| last - first);
        let period = signatures::pause_period(&ends, whole_ms / MIN_CYCLES, signatures::LEVEL);
        let id = if period.is_some() && id == PAUSE { "periodic_pause" } else { id };
        let period = period.map(|grid| format!(", at one phase of {}", signatures::format_period(&grid)));
        let evidence = format!(
            "{count} pauses in {} of requests{}, about {} each, at most {}; {why}: a request at any time waits {} on average",
            format_nanoseconds(self.observed_ns()),
            period.unwrap_or_default(),
            format_nanoseconds(sum / count as f64),
            format_nanoseconds(longest),
            format_nanoseconds(mean_ns)
        );
        Some(Sighting::new(causes::named(target, id)?, 0.0, evidence).with_mean(mean_ns))
    }
}

/// The cause of pauses that are not on the path.
const PAUSE: &str = "random_pause";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::live::blocks::Block;
    use crate::explain::live::path::Handshake;
    use linkgauge_model::clock::Time;
    use linkgauge_model::run::{EndEvidence, Evidence};

    /// Requests of 20 µs, one each ms; each 1500th takes 60 ms more.
    fn block(waited_ns: u64) -> Block {
        let mut result = crate::report::sample_runs::minimal().cases.remove(0);
        let mut client = EndEvidence::default();
        client.threads.insert("thread_run_queue_wait_ns".to_owned(), waited_ns);
        result.evidence = Some(Evidence { client, server: None });
        let mut at = 0;
        let samples = (0..9000).map(|sequence| {
            let sent = Time(at);
            let latency = if sequence % 1500 == 700 { 60_020_000 } else { 20_000 };
            at += latency + 1_000_000;
            Sample { sequence, intended: sent, sent, received: Time(sent.0 + latency) }
        });
        Block { samples: samples.collect(), result, server_wait_ns: None }
    }

    #[test]
    fn rare_pauses_are_found_over_all_blocks_and_at_their_place() {
        let target = Target::new("tcp://192.0.2.7:7".parse().unwrap()).unwrap();
        let seen = |waited_ns, path: Option<&Path>| {
            RareLog(&[BlockSummary::of(&block(waited_ns)).unwrap()]).sighting(&target, path)
        };
        let pauses = seen(0, None).unwrap();
        assert_eq!(pauses.cause.id, "random_pause", "{}", pauses.evidence);
        // Six pauses of 60 ms in 9.5 s: 60² · 6 / (2 · 9540).
        assert!((pauses.mean_ns / 1.13e6 - 1.0).abs() < 0.02, "{}", pauses.mean_ns);
        assert!(pauses.evidence.starts_with("6 pauses in 9."), "{}", pauses.evidence);
        assert!(seen(200_000_000, None).is_none(), "threads waited for a CPU");
        let mut tail = block(0);
        for (index, sample) in tail.samples.iter_mut().enumerate().filter(|(index, _)| index % 2000 == 1) {
            sample.received = Time(sample.sent.0 + 6_000_000 + index as u64);
        }
        let tail = BlockSummary::of(&tail).unwrap();
        assert_eq!((tail.slow.len(), tail.almost), (6, 5));
        assert!(RareLog(&[tail]).sighting(&target, None).is_none(), "a long tail");
        let mut lossy = block(0);
        let client = &mut lossy.result.evidence.as_mut().unwrap().client;
        client.connections.counters.insert("tcp_retransmitted_segments".to_owned(), 5);
        let losses = RareLog(&[BlockSummary::of(&lossy).unwrap()]).sighting(&target, None).unwrap();
        assert!(
            losses.cause.id == "path_loss" && losses.evidence.starts_with("5 of 6 slow"),
            "{}",
            losses.evidence
        );
        let path = |took: fn(&Sample) -> f64| {
            let block = block(0);
            let late = block.samples.iter().filter(|sample| sample.service_ns() > 1_000_000);
            let usual = block.samples.iter().take(20);
            let handshakes = late.chain(usual).map(|sample| Handshake::at(sample.sent, took(sample)));
            Path::of(handshakes.collect()).unwrap()
        };
        let mut busy = path(|_| 2e4);
        for handshake in &mut busy.handshakes[..3] {
            (handshake.late_ns, handshake.began) = (5e7, Time(handshake.began.0 + 50_000_000));
        }
        assert!(seen(0, Some(&busy)).is_none(), "three of six wake-ups of this host were late meanwhile");
        assert_eq!(seen(0, Some(&path(|_| 2e4))).unwrap().cause.id, "random_pause");
        assert_eq!(seen(0, Some(&path(|sample| sample.service_ns() as f64))).unwrap().cause.id, "path_stall");
    }
}
