//! Statistics of round trips as studies of radio links print them: the mean of the fastest, percentiles, shares that came
//! late, missed frames, time-outs. Of everything that was sent: what is lost counts as later than anything. No line limits them.

use super::StudyStatistic;
use super::protocol_counters::UNLIMITED;
use crate::run::{CaseResult, Distribution};

pub(super) static STATISTICS: [StudyStatistic; 22] = [
    StudyStatistic {
        name: "latency_mean_fastest_95_percent_ms",
        measured: |case, _| Some(latency(case)?.mean_fastest_95_percent? / 1e6),
        ..MILLISECOND_STATISTIC
    },
    StudyStatistic {
        name: "latency_p10_ms",
        measured: |case, _| percentile_ms(latency(case), "p10"),
        ..MILLISECOND_STATISTIC
    },
    StudyStatistic {
        name: "latency_p20_ms",
        measured: |case, _| percentile_ms(latency(case), "p20"),
        ..MILLISECOND_STATISTIC
    },
    StudyStatistic {
        name: "latency_p30_ms",
        measured: |case, _| percentile_ms(latency(case), "p30"),
        ..MILLISECOND_STATISTIC
    },
    StudyStatistic {
        name: "latency_p40_ms",
        measured: |case, _| percentile_ms(latency(case), "p40"),
        ..MILLISECOND_STATISTIC
    },
    StudyStatistic {
        name: "latency_p50_ms",
        measured: |case, _| percentile_ms(latency(case), "p50"),
        ..MILLISECOND_STATISTIC
    },
    StudyStatistic {
        name: "latency_p60_ms",
        measured: |case, _| percentile_ms(latency(case), "p60"),
        ..MILLISECOND_STATISTIC
    },
    StudyStatistic {
        name: "latency_p70_ms",
        measured: |case, _| percentile_ms(latency(case), "p70"),
        ..MILLISECOND_STATISTIC
    },
    StudyStatistic {
        name: "latency_p80_ms",
        measured: |case, _| percentile_ms(latency(case), "p80"),
        ..MILLISECOND_STATISTIC
    },
    StudyStatistic {
        name: "latency_p90_ms",
        measured: |case, _| percentile_ms(latency(case), "p90"),
        ..MILLISECOND_STATISTIC
    },
    StudyStatistic {
        name: "latency_p99_ms",
        measured: |case, _| percentile_ms(latency(case), "p99"),
        ..MILLISECOND_STATISTIC
    },
    StudyStatistic {
        name: "response_p50_ms",
        measured: |case, _| percentile_ms(response(case), "p50"),
        ..MILLISECOND_STATISTIC
    },
    StudyStatistic {
        name: "response_p90_ms",
        measured: |case, _| percentile_ms(response(case), "p90"),
        ..MILLISECOND_STATISTIC
    },
    StudyStatistic {
        name: "response_p99_ms",
        measured: |case, _| percentile_ms(response(case), "p99"),
        ..MILLISECOND_STATISTIC
    },
    StudyStatistic {
        name: "latency_over_50ms_percent",
        measured: |case, _| late_percent(case, "50"),
        ..PERCENT_STATISTIC
    },
    StudyStatistic {
        name: "latency_over_100ms_percent",
        measured: |case, _| late_percent(case, "100"),
        ..PERCENT_STATISTIC
    },
    StudyStatistic {
        name: "latency_over_200ms_percent",
        measured: |case, _| late_percent(case, "200"),
        ..PERCENT_STATISTIC
    },
    StudyStatistic {
        name: "latency_over_300ms_percent",
        measured: |case, _| late_percent(case, "300"),
        ..PERCENT_STATISTIC
    },
    StudyStatistic {
        name: "timeout_percent",
        measured: |case, _| percent_of_sent(case, case.figures.lost),
        ..PERCENT_STATISTIC
    },
    StudyStatistic {
        name: "missed_16.7ms_percent",
        measured: |case, _| missed_percent(case, "16.7"),
        ..PERCENT_STATISTIC
    },
    StudyStatistic {
        name: "missed_50ms_percent",
        measured: |case, _| missed_percent(case, "50"),
        ..PERCENT_STATISTIC
    },
    StudyStatistic {
        name: "missed_100ms_percent",
        measured: |case, _| missed_percent(case, "100"),
        ..PERCENT_STATISTIC
    },
];

const MILLISECOND_STATISTIC: StudyStatistic = StudyStatistic { unit: "ms", includes_lost: true, ..UNLIMITED };
const PERCENT_STATISTIC: StudyStatistic = StudyStatistic { unit: "%", ..MILLISECOND_STATISTIC };

fn latency(case: &CaseResult) -> Option<&Distribution> {
    case.figures.latency_ns.as_ref()
}

/// From when a message was due.
fn response(case: &CaseResult) -> Option<&Distribution> {
    case.figures.response_ns.as_ref()
}

/// None where so few were sent that it tells nothing, or so few were answered that it is among the lost.
fn percentile_ms(times: Option<&Distribution>, name: &str) -> Option<f64> {
    let value = *times?.percentiles.get(name)?;
    value.map(|value| value as f64 / 1e6)
}

fn late_percent(case: &CaseResult, limit_ms: &str) -> Option<f64> {
    latency(case)?.later_than_ms.get(limit_ms).map(|share| 100.0 * share)
}

fn percent_of_sent(case: &CaseResult, count: u64) -> Option<f64> {
    let sent = case.figures.sent;
    (sent > 0).then(|| 100.0 * count as f64 / sent as f64)
}

/// Of the frames of a schedule.
fn missed_percent(case: &CaseResult, limit_ms: &str) -> Option<f64> {
    percent_of_sent(case, *case.figures.missed_frames.as_ref()?.count_later_than_ms.get(limit_ms)?)
}
