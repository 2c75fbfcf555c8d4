//! Decides whether the figure of a case is usual here, by earlier results of the same case on the same host.

use crate::metric::Metric;
use crate::run::{CaseResult, EARLIER_RUNS_FACT, Warning, WarningCode};
use crate::stats;

/// A warning if the headline figure of the case is unusual by `earlier` values of it, oldest first. `None` if it is usual,
/// and if the earlier values since the last change of level are fewer than 8.
pub fn unusual(case: &CaseResult, earlier: &[f64]) -> Option<Warning> {
    let metric = Metric::headline(case);
    let value = metric.value_of_case(case)?;
    let usual = stats::usual(earlier)?;
    let is_low = value < usual.interval.low;
    if !is_low && value <= usual.interval.high {
        return None;
    }
    let counted = &earlier[usual.since..];
    let passed = counted.iter().filter(|&&other| if is_low { value < other } else { value > other }).count();
    let print = |value: f64| metric.unit().format(value);
    let text = format!(
        "{} is {}, usual here: {} … {} (last {} runs); it is {} than in {passed} of them",
        metric.name(),
        print(value),
        print(usual.interval.low),
        print(usual.interval.high),
        counted.len(),
        if is_low { "lower" } else { "higher" },
    );
    let remedy =
        format!("measure again; 'linkgauge history --metric {}' shows when it changed", metric.name());
    Some(Warning::new(WarningCode::Unusual, text, remedy))
}

/// The metrics whose intervals depend on earlier runs.
const WITH_EARLIER_RUNS: [&str; 6] = ["p50", "p90", "p99", "rate", "rate_reverse", "added_p50"];

/// Corrects the intervals of a case by earlier runs of it. `earlier` returns the values of a metric in these runs, oldest
/// first.
pub fn correct_intervals(case: &mut CaseResult, earlier: impl Fn(&CaseResult, &Metric) -> Vec<f64>) {
    for name in WITH_EARLIER_RUNS {
        let metric: Metric = name.parse().expect("a name of the list");
        let Some(name) = metric.interval_name() else { continue };
        let Some(interval) = case.figures.intervals.get(&name).copied() else { continue };
        let Some(value) = metric.value_of_case(case) else { continue };
        let values = earlier(case, &metric);
        let repetitions: Vec<f64> =
            case.repeats.iter().filter_map(|part| metric.value_of_part(case, &part.figures)).collect();
        let within_run = case.figures.within_run_intervals.get(&name).copied();
        let error = stats::error_interval(value, &repetitions).or(within_run);
        let corrected = stats::interval_with_earlier_runs(interval, value, error, &values);
        if corrected != interval {
            case.effective.insert(EARLIER_RUNS_FACT.to_owned(), values.len().into());
            case.figures.intervals.insert(name, corrected);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Run;
    use crate::stats::simulate::log_normal;

    /// A case with this rate, in Mbit/s.
    fn case(rate: f64) -> CaseResult {
        let text = include_str!("../../../../tests/data/run-v1-throughput.json");
        let mut case = Run::from_json(text).unwrap().cases.remove(0);
        case.figures.delivery.throughput_bps = Some(rate * 1e6);
        case
    }

    #[test]
    fn a_figure_outside_of_the_earlier_ones_is_unusual() {
        let earlier: Vec<f64> = log_normal(20, 0.02, 1).iter().map(|value| value * 100e6).collect();
        assert_eq!(unusual(&case(101.0), &earlier), None);
        let warning = unusual(&case(50.0), &earlier).unwrap();
        assert!(warning.text.starts_with("rate is 50.00 Mbit/s, usual here: "), "{}", warning.text);
        assert!(warning.text.ends_with("(last 20 runs); it is lower than in 20 of them"), "{}", warning.text);
        assert!(unusual(&case(200.0), &earlier).unwrap().text.contains("higher than in 20"));
        assert_eq!(unusual(&case(50.0), &earlier[..7]), None);
    }

    #[test]
    fn earlier_runs_correct_the_interval_of_their_metric() {
        let mut case = case(100.0);
        let narrow = stats::Interval { low: 99e6, high: 101e6 };
        case.figures.intervals = [("throughput_bps".to_owned(), narrow)].into();
        correct_intervals(&mut case, |_, _| vec![100e6; 7]);
        assert_eq!(case.figures.intervals["throughput_bps"], narrow);
        assert!(!case.effective.contains_key(EARLIER_RUNS_FACT));
        correct_intervals(&mut case, |_, metric| match metric.name() {
            "rate" => log_normal(20, 0.1, 1).iter().map(|value| value * 100e6).collect(),
            _ => panic!("it has no interval of {}", metric.name()),
        });
        let wide = case.figures.intervals["throughput_bps"];
        assert!(wide.low < 95e6 && wide.high > 105e6, "{wide:?}");
        assert_eq!(case.effective[EARLIER_RUNS_FACT], 20);
    }

    #[test]
    fn usual_means_since_the_last_change() {
        let level = |level: f64, seed| log_normal(15, 0.02, seed).into_iter().map(move |value| value * level);
        let earlier: Vec<f64> = level(100e6, 1).chain(level(200e6, 2)).collect();
        assert_eq!(unusual(&case(201.0), &earlier), None);
        assert!(unusual(&case(100.0), &earlier).unwrap().text.contains("(last 15 runs)"));
    }
}
