//! Statistics of round trips as studies of radio links print them: the mean of the fastest, percentiles, shares that came
//! late, missed frames, time-outs. Of everything that was sent: what is lost counts as later than anything. No line limits them.

use super::Statistic;
use super::counted::UNLIMITED;
use crate::run::{CaseResult, Distribution};

pub(super) static STATISTICS: [Statistic; 22] = [
    Statistic {
        name: "latency_mean_fastest_95_percent_ms",
        of: |case, _| Some(latency(case)?.mean_fastest_95_percent? / 1e6),
        ..IN_MS
    },
    Statistic { name: "latency_p10_ms", of: |case, _| percentile(latency(case), "p10"), ..IN_MS },
    Statistic { name: "latency_p20_ms", of: |case, _| percentile(latency(case), "p20"), ..IN_MS },
    Statistic { name: "latency_p30_ms", of: |case, _| percentile(latency(case), "p30"), ..IN_MS },
    Statistic { name: "latency_p40_ms", of: |case, _| percentile(latency(case), "p40"), ..IN_MS },
    Statistic { name: "latency_p50_ms", of: |case, _| percentile(latency(case), "p50"), ..IN_MS },
    Statistic { name: "latency_p60_ms", of: |case, _| percentile(latency(case), "p60"), ..IN_MS },
    Statistic { name: "latency_p70_ms", of: |case, _| percentile(latency(case), "p70"), ..IN_MS },
    Statistic { name: "latency_p80_ms", of: |case, _| percentile(latency(case), "p80"), ..IN_MS },
    Statistic { name: "latency_p90_ms", of: |case, _| percentile(latency(case), "p90"), ..IN_MS },
    Statistic { name: "latency_p99_ms", of: |case, _| percentile(latency(case), "p99"), ..IN_MS },
    Statistic { name: "response_p50_ms", of: |case, _| percentile(response(case), "p50"), ..IN_MS },
    Statistic { name: "response_p90_ms", of: |case, _| percentile(response(case), "p90"), ..IN_MS },
    Statistic { name: "response_p99_ms", of: |case, _| percentile(response(case), "p99"), ..IN_MS },
    Statistic { name: "latency_over_50ms_percent", of: |case, _| over(case, "50"), ..IN_PERCENT },
    Statistic { name: "latency_over_100ms_percent", of: |case, _| over(case, "100"), ..IN_PERCENT },
    Statistic { name: "latency_over_200ms_percent", of: |case, _| over(case, "200"), ..IN_PERCENT },
    Statistic { name: "latency_over_300ms_percent", of: |case, _| over(case, "300"), ..IN_PERCENT },
    Statistic { name: "timeout_percent", of: |case, _| of_sent(case, case.figures.lost), ..IN_PERCENT },
    Statistic { name: "missed_16.7ms_percent", of: |case, _| missed(case, "16.7"), ..IN_PERCENT },
    Statistic { name: "missed_50ms_percent", of: |case, _| missed(case, "50"), ..IN_PERCENT },
    Statistic { name: "missed_100ms_percent", of: |case, _| missed(case, "100"), ..IN_PERCENT },
];

const IN_MS: Statistic = Statistic { unit: "ms", counts_lost: true, ..UNLIMITED };
const IN_PERCENT: Statistic = Statistic { unit: "%", ..IN_MS };

fn latency(case: &CaseResult) -> Option<&Distribution> {
    case.figures.latency_ns.as_ref()
}

/// From when a message was due.
fn response(case: &CaseResult) -> Option<&Distribution> {
    case.figures.response_ns.as_ref()
}

/// None where so few were sent that it tells nothing, or so few were answered that it is among the lost.
fn percentile(times: Option<&Distribution>, name: &str) -> Option<f64> {
    let value = *times?.percentiles.get(name)?;
    value.map(|value| value as f64 / 1e6)
}

fn over(case: &CaseResult, limit_ms: &str) -> Option<f64> {
    latency(case)?.later_than_ms.get(limit_ms).map(|share| 100.0 * share)
}

fn of_sent(case: &CaseResult, count: u64) -> Option<f64> {
    let sent = case.figures.sent;
    (sent > 0).then(|| 100.0 * count as f64 / sent as f64)
}

/// Of the frames of a schedule.
fn missed(case: &CaseResult, limit_ms: &str) -> Option<f64> {
    of_sent(case, *case.figures.missed_frames.as_ref()?.count_later_than_ms.get(limit_ms)?)
}
