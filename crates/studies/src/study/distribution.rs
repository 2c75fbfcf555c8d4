//! Statistics of round trips as studies of radio links print them: the mean of the fastest, percentiles, late shares,
//! missed frames, timeouts. All refer to the requests sent; a lost request ranks slowest. No line limits them.

use super::protocol_counters::UNLIMITED;
use super::{PlannedCase, StudyStatistic};
use linkgauge_model::run::{CaseResult, Distribution};

pub(super) static STATISTICS: [StudyStatistic; 25] = [
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
    StudyStatistic { name: "latency_max_ms", measured: longest_ms, ..MILLISECOND_STATISTIC },
    StudyStatistic {
        name: "latency_replied_mean_ms",
        measured: |case, _| Some(latency(case)?.mean / 1e6),
        ..MILLISECOND_STATISTIC
    },
    StudyStatistic {
        name: "latency_standard_deviation_ms",
        measured: |case, _| Some(latency(case)?.standard_deviation? / 1e6),
        ..MILLISECOND_STATISTIC
    },
    StudyStatistic {
        name: "timeout_percent",
        measured: |case, _| percent_of_sent(case, case.figures.counts.lost),
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
    case.figures.times.latency_ns.as_ref()
}

/// Response time, measured from the due time.
fn response(case: &CaseResult) -> Option<&Distribution> {
    case.figures.times.response_ns.as_ref()
}

/// The longest of as many round trips as planned: of more, the percentile that one of the planned number exceeds, unless that was lost.
fn longest_ms(case: &CaseResult, planned: &PlannedCase) -> Option<f64> {
    let latency = latency(case)?;
    let planned = planned.spec.count.map_or(u64::MAX, |count| count.0);
    let rank = format!("p{}", 100.0 - 100.0 / planned as f64);
    let typical =
        latency.percentiles.get(&rank).copied().flatten().filter(|_| case.figures.counts.sent > planned);
    Some(typical.unwrap_or(latency.max) as f64 / 1e6)
}

/// `None` if the sample is too small, or if the percentile falls among the lost requests.
fn percentile_ms(times: Option<&Distribution>, name: &str) -> Option<f64> {
    let value = *times?.percentiles.get(name)?;
    value.map(|value| value as f64 / 1e6)
}

fn late_percent(case: &CaseResult, limit_ms: &str) -> Option<f64> {
    latency(case)?.later_than_ms.get(limit_ms).map(|share| 100.0 * share)
}

fn percent_of_sent(case: &CaseResult, count: u64) -> Option<f64> {
    let sent = case.figures.counts.sent;
    (sent > 0).then(|| 100.0 * count as f64 / sent as f64)
}

/// Percentage of missed frames of a schedule.
fn missed_percent(case: &CaseResult, limit_ms: &str) -> Option<f64> {
    percent_of_sent(case, *case.figures.times.missed_frames.as_ref()?.count_later_than_ms.get(limit_ms)?)
}
