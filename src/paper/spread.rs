//! Statistics of round trips as studies of radio links print them: the mean of the fastest, deciles, shares that came late,
//! time-outs. Of everything that was sent: what is lost counts as later than anything. No line limits them.

use super::counted::UNLIMITED;
use super::{PlannedCase, Statistic};
use crate::run::{CaseResult, Distribution};

pub(super) static STATISTICS: [Statistic; 15] = [
    Statistic {
        name: "latency_mean_fastest_95_percent_ms",
        unit: "ms",
        of: |case, _| Some(latency(case)?.mean_fastest_95_percent? / 1e6),
        ..OF_ALL
    },
    Statistic { name: "latency_p10_ms", of: decile::<10>, ..IN_MS },
    Statistic { name: "latency_p20_ms", of: decile::<20>, ..IN_MS },
    Statistic { name: "latency_p30_ms", of: decile::<30>, ..IN_MS },
    Statistic { name: "latency_p40_ms", of: decile::<40>, ..IN_MS },
    Statistic { name: "latency_p50_ms", of: decile::<50>, ..IN_MS },
    Statistic { name: "latency_p60_ms", of: decile::<60>, ..IN_MS },
    Statistic { name: "latency_p70_ms", of: decile::<70>, ..IN_MS },
    Statistic { name: "latency_p80_ms", of: decile::<80>, ..IN_MS },
    Statistic { name: "latency_p90_ms", of: decile::<90>, ..IN_MS },
    Statistic { name: "latency_over_50ms_percent", of: over::<50>, ..IN_PERCENT },
    Statistic { name: "latency_over_100ms_percent", of: over::<100>, ..IN_PERCENT },
    Statistic { name: "latency_over_200ms_percent", of: over::<200>, ..IN_PERCENT },
    Statistic { name: "latency_over_300ms_percent", of: over::<300>, ..IN_PERCENT },
    Statistic { name: "timeout_percent", of: time_outs, ..IN_PERCENT },
];

const OF_ALL: Statistic = Statistic { counts_lost: true, ..UNLIMITED };
const IN_MS: Statistic = Statistic { unit: "ms", ..OF_ALL };
const IN_PERCENT: Statistic = Statistic { unit: "%", ..OF_ALL };

fn latency(case: &CaseResult) -> Option<&Distribution> {
    case.figures.latency_ns.as_ref()
}

/// None where that many were not sent, or not answered.
fn decile<const P: u32>(case: &CaseResult, _: &PlannedCase) -> Option<f64> {
    let value = latency(case)?.percentiles.get(&format!("p{P}"))?;
    value.map(|value| value as f64 / 1e6)
}

fn over<const MS: u32>(case: &CaseResult, _: &PlannedCase) -> Option<f64> {
    latency(case)?.later_than_ms.get(&MS.to_string()).map(|share| 100.0 * share)
}

fn time_outs(case: &CaseResult, _: &PlannedCase) -> Option<f64> {
    let figures = &case.figures;
    (figures.sent > 0).then(|| 100.0 * figures.lost as f64 / figures.sent as f64)
}
