//! Accounting: parts of each round trip that add up, and their shares of the median, of the spread and of the tail.
//!
//! Medians of parts do not add up, means do. So every share is one of conditional means: of the requests near the median,
//! and of the slowest. The shares of each column add up to 1.
//! Source of the shares of the spread: the covariance of a part with the sum, divided by the variance of the sum.

use serde::Serialize;

use super::places::shape;
use super::screen::Screen;
use super::signatures::slow_limit;
use linkgauge_model::stats;

/// The requests near the median: their ranks, as shares.
const MIDDLE: (f64, f64) = (0.45, 0.55);
/// The slowest requests.
const TAIL_SHARE: f64 = 0.01;
/// Minimum number of slowest requests that show a tail.
const MIN_TAIL: usize = 5;

/// A part of every round trip.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Stage {
    /// Stable name: `line`, `fixed`, `variation`, `slow`.
    pub id: &'static str,
    /// Name for people.
    pub name: &'static str,
    /// Mean over all requests, in ns. The means of all parts add up to the mean round trip.
    pub mean_ns: f64,
    /// Share of the round trips near the median, 0 to 1.
    pub median_share: f64,
    /// Share of the variance of the round trips. Absent if they do not vary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread_share: Option<f64>,
    /// Share of what the slowest hundredth takes more than the median. Absent below 500 requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tail_share: Option<f64>,
}

/// The parts of the round trips without a pause.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Accounting {
    /// Mean round trip, in ns.
    pub mean_ns: f64,
    /// Time that no setting can remove, in ns: the characters on a serial line, or the shortest round trip of the kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minimum_ns: Option<f64>,
    /// Source of this minimum, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) minimum_by: Option<&'static str>,
    /// Shape of the distribution: `constant`, `random`, or two groups.
    pub(crate) shape: String,
    /// Distribution of the round trips without a pause.
    pub unpaused: Spread,
    /// Distribution of the round trips after a pause, which a program that seldom sends sees.
    pub paused: Spread,
    /// The parts.
    pub stages: Vec<Stage>,
}

/// Distribution of round trips, in ns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Spread {
    /// Mean.
    pub mean_ns: f64,
    /// Median.
    pub p50_ns: f64,
    /// 90th percentile.
    pub p90_ns: f64,
    /// 99th percentile: the slowest, of fewer than 100.
    pub p99_ns: f64,
}

impl Spread {
    fn of(latencies: &[f64]) -> Spread {
        let mut sorted = latencies.to_vec();
        sorted.sort_by(f64::total_cmp);
        let rank = |share: f64| {
            let rank = stats::nearest_rank(sorted.len() as u64, share) as usize;
            rank.checked_sub(1).map_or(0.0, |index| sorted[index])
        };
        let p50_ns = stats::median(&sorted).unwrap_or(0.0);
        Spread { mean_ns: mean(latencies), p50_ns, p90_ns: rank(0.9), p99_ns: rank(0.99) }
    }
}

/// The parts of the round trips of the screen.
pub(super) fn account(screen: &Screen) -> Accounting {
    let result = &screen.closed.result;
    let latencies = screen.closed.latencies_ns();
    let fastest = latencies.iter().copied().fold(f64::INFINITY, f64::min);
    let line_ns = result.line.as_ref().map_or(0.0, |line| {
        let one_way = f64::from(result.message_bytes) * line.bits_per_byte / line.bits_per_second * 1e9;
        // A loopback plug returns each character at once.
        if 2.0 * one_way > fastest { one_way.min(fastest) } else { 2.0 * one_way }
    });
    let kernel = result.evidence.as_ref().and_then(|evidence| evidence.client.gauge("tcp_min_rtt_ns"));
    let (minimum_ns, minimum_by) = match kernel {
        _ if line_ns > 0.0 => (Some(line_ns), Some("the characters on the line")),
        Some(shortest) if shortest.min > 0 => {
            (Some((shortest.min as f64).min(fastest)), Some("the shortest round trip of the kernel"))
        }
        _ => (None, None),
    };
    Accounting {
        mean_ns: mean(&latencies),
        minimum_ns,
        minimum_by,
        shape: shape(&latencies),
        unpaused: Spread::of(&latencies),
        paused: Spread::of(&screen.paused.latencies_ns()),
        stages: stages(&latencies, line_ns),
    }
}

/// Splits round trips, in ns, of which the line needs `line_ns`.
fn stages(latencies: &[f64], line_ns: f64) -> Vec<Stage> {
    let mut sorted = latencies.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (Some(fastest), Some(median)) = (sorted.first().copied(), stats::median(&sorted)) else {
        return vec![];
    };
    let limit = slow_limit(median);
    let (variation, slow): (Vec<f64>, Vec<f64>) =
        sorted.iter().map(|total| (total.min(limit) - fastest, (total - limit).max(0.0))).unzip();
    let same = |value: f64| vec![value; sorted.len()];
    [
        ("line", "characters on the line", same(line_ns)),
        ("fixed", "the rest of the fastest round trip", same(fastest - line_ns)),
        ("variation", "variation above the fastest", variation),
        ("slow", "beyond the limit of slow requests", slow),
    ]
    .into_iter()
    .filter(|(_, _, parts)| parts.iter().any(|part| *part > 0.0))
    .map(|(id, name, parts)| stage((id, name), &parts, &sorted))
    .collect()
}

/// Makes one part of round trips that are sorted by their sum.
fn stage((id, name): (&'static str, &'static str), parts: &[f64], totals: &[f64]) -> Stage {
    let count = totals.len() as f64;
    let rank = |share: f64| ((share * count) as usize).min(totals.len() - 1);
    let middle = rank(MIDDLE.0)..=rank(MIDDLE.1);
    let tail = (TAIL_SHARE * count) as usize;
    let (of_middle, middle_total) = (mean(&parts[middle.clone()]), mean(&totals[middle]));
    let tail_share = (tail >= MIN_TAIL).then(|| {
        let from = totals.len() - tail;
        (mean(&parts[from..]) - of_middle) / (mean(&totals[from..]) - middle_total)
    });
    let (mean_part, mean_total) = (mean(parts), mean(totals));
    let apart = parts.iter().zip(totals).map(|(part, total)| (part - mean_part, total - mean_total));
    let (covariance, variance) =
        apart.fold((0.0, 0.0), |(both, own), (part, total)| (both + part * total, own + total * total));
    Stage {
        id,
        name,
        mean_ns: mean_part,
        median_share: of_middle / middle_total,
        spread_share: Some(covariance / variance).filter(|share| share.is_finite()),
        tail_share: tail_share.filter(|share| share.is_finite()),
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(stages: &[Stage], of: impl Fn(&Stage) -> f64) -> f64 {
        stages.iter().map(of).sum()
    }

    #[test]
    fn every_column_adds_up() {
        // 1000 round trips of 2.0 to 2.999 ms; 20 of them take 50 ms more.
        let latencies: Vec<f64> =
            (0..1000).map(|i| 2e6 + 1e3 * f64::from(i) + if i % 50 == 7 { 5e7 } else { 0.0 }).collect();
        let stages = stages(&latencies, 5e5);
        assert_eq!(
            stages.iter().map(|stage| stage.id).collect::<Vec<_>>(),
            ["line", "fixed", "variation", "slow"]
        );
        assert!((sum(&stages, |stage| stage.mean_ns) / mean(&latencies) - 1.0).abs() < 1e-12);
        let columns: [fn(&Stage) -> f64; 3] = [
            |stage| stage.median_share,
            |stage| stage.spread_share.unwrap(),
            |stage| stage.tail_share.unwrap(),
        ];
        for column in columns {
            assert!((sum(&stages, column) - 1.0).abs() < 1e-9, "{stages:#?}");
        }
        // Constants take no part in the spread; the tail consists of the slow requests.
        assert!(stages[0].spread_share.unwrap().abs() < 1e-9 && stages[1].tail_share.unwrap().abs() < 1e-9);
        assert!(stages[3].median_share == 0.0 && stages[3].tail_share.unwrap() > 0.75, "{stages:#?}");
    }

    #[test]
    fn percentiles_are_those_of_the_nearest_rank() {
        let spread = Spread::of(&(1..=200).map(f64::from).collect::<Vec<_>>());
        assert_eq!(spread, Spread { mean_ns: 100.5, p50_ns: 100.5, p90_ns: 180.0, p99_ns: 198.0 });
        assert_eq!(Spread::of(&[]), Spread::default());
    }

    #[test]
    fn round_trips_that_do_not_vary_have_no_spread_and_few_have_no_tail() {
        let stages = stages(&[1e6; 20], 0.0);
        assert_eq!(stages.len(), 1);
        assert_eq!((stages[0].id, stages[0].mean_ns, stages[0].median_share), ("fixed", 1e6, 1.0));
        assert_eq!((stages[0].spread_share, stages[0].tail_share), (None, None));
        assert!(super::stages(&[], 0.0).is_empty());
    }
}
