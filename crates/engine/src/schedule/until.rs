//! Measures until an interval is narrow enough.
//!
//! Each round is a whole measurement in repetitions and takes twice the time of the one before. Stopping at the first
//! interval that is narrow would prefer those that are narrow by chance, and they hold less often than they say. So the
//! first narrow round only decides that the next one is the last, and that one is the result, whatever its interval: a
//! decision that does not depend on the reported figures does not bias them.

use std::time::Duration;

use serde_json::json;

use super::{CheckedPlan, RunContext, run};
use linkgauge_model::metric::Metric;
use linkgauge_model::plan::StopCondition;
use linkgauge_model::run::{CaseResult, Run, UNTIL_FACT, Warning, WarningCode};

/// Time of the first round.
const FIRST_ROUND: Duration = Duration::from_secs(1);

/// A wanted interval, and the time to reach it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Precision {
    /// Half of the interval of the headline figure, as a share of the figure: 0.02 for ± 2 %.
    pub half_width: f64,
    /// Maximum time of all rounds together, without the time for connections.
    pub max_time: Duration,
}

impl Precision {
    /// Whether the interval of the case's headline figure is narrow enough.
    pub(crate) fn is_reached(&self, case: &CaseResult) -> bool {
        half_width(case).is_some_and(|width| width <= self.half_width)
    }
}

/// Half of the interval of the case's headline figure, its longer side, as a share of the figure.
fn half_width(case: &CaseResult) -> Option<f64> {
    let metric = Metric::headline(case);
    let value = metric.value_of_case(case)?;
    let interval = case.figures.intervals.get(&metric.interval_name()?)?;
    Some((interval.high - value).max(value - interval.low) / value)
}

/// Runs the plan in rounds until the intervals of all its cases are narrow enough or the time is over. The result is the
/// last round; a warning says where its interval is not narrow enough.
pub fn run_until(plan: &CheckedPlan, wanted: &Precision, context: &mut RunContext) -> Run {
    let mut rounds = Rounds { left: wanted.max_time, next: FIRST_ROUND, is_narrow: false };
    loop {
        let Round { time, is_last } = rounds.begin();
        let plan = plan.with_time(time, wanted).split_into_repetitions();
        let mut run = run(&plan, context);
        if is_last || !run.is_complete() {
            for case in &mut run.cases {
                case.warnings.extend(too_wide(case, wanted));
            }
            return run;
        }
        rounds.is_narrow = run.cases.iter().all(|case| wanted.is_reached(case));
    }
}

/// The length of a round, and whether it is the result.
#[derive(Debug, PartialEq)]
struct Round {
    time: Duration,
    is_last: bool,
}

/// The rounds to come.
struct Rounds {
    /// Time for all of them.
    left: Duration,
    /// Time of the next one.
    next: Duration,
    /// The last one had narrow intervals.
    is_narrow: bool,
}

impl Rounds {
    pub fn begin(&mut self) -> Round {
        // A round that only decides leaves time for the next one, which is twice as long.
        let is_last = self.is_narrow || self.left < self.next.saturating_mul(3);
        let time = if is_last && !self.is_narrow { self.left } else { self.next };
        self.left = self.left.saturating_sub(time);
        self.next = self.next.saturating_mul(2);
        Round { time, is_last }
    }
}

fn too_wide(case: &CaseResult, wanted: &Precision) -> Option<Warning> {
    if wanted.is_reached(case) {
        return None;
    }
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    let name = Metric::headline(case).name().to_owned();
    let is = half_width(case)
        .map_or("has no interval".to_owned(), |width| format!("is known to ± {} only", percent(width)));
    Some(Warning::new(
        WarningCode::TooWide,
        format!("{name} {is}; requested: ± {}", percent(wanted.half_width)),
        "a longer --time, where it differs within the run; CPUs of their own for both ends (--pin 0,1), where it differs from connection to connection",
    ))
}

impl CheckedPlan {
    /// The plan with this time for each case instead of its own stop condition.
    fn with_time(&self, time: Duration, wanted: &Precision) -> CheckedPlan {
        let mut plan = self.clone();
        let stop = StopCondition::after_time(time);
        for case in &mut plan.cases {
            case.ready.load.stop = stop;
            if let Some(typed) = &mut case.undetected {
                typed.stop = stop;
            }
            case.requested.insert("stop".to_owned(), json!(stop));
            case.requested.insert(UNTIL_FACT.to_owned(), json!(100.0 * wanted.half_width));
        }
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::protocol::Registry;
    use crate::schedule::check;
    use crate::serve::Server;
    use linkgauge_model::clock::Clock;
    use linkgauge_model::plan::Plan;

    /// The rounds, in seconds, if the intervals are narrow from this round on.
    fn rounds(limit: u64, narrow_from: usize) -> Vec<u64> {
        let mut rounds = Rounds { left: Duration::from_secs(limit), next: FIRST_ROUND, is_narrow: false };
        let mut times = Vec::new();
        loop {
            let Round { time, is_last } = rounds.begin();
            times.push(time.as_secs());
            if is_last {
                return times;
            }
            rounds.is_narrow = times.len() > narrow_from;
        }
    }

    #[test]
    fn the_round_after_the_first_narrow_one_is_the_last_and_all_take_the_limit_at_most() {
        assert_eq!(rounds(60, 0), [1, 2]);
        assert_eq!(rounds(60, 2), [1, 2, 4, 8]);
        assert_eq!(rounds(60, 99), [1, 2, 4, 8, 45]);
        assert_eq!(rounds(2, 0), [2]);
        assert_eq!(rounds(3, 0), [1, 2]);
        for limit in 1..100 {
            for narrow_from in 0..8 {
                let times = rounds(limit, narrow_from);
                assert!(times.iter().sum::<u64>() <= limit, "{limit}: {times:?}");
            }
        }
    }

    /// A run with this limit against an echo whose round trips all take 2 ms, and the time that passed.
    fn run_for(max_time: Duration) -> (Run, Duration) {
        let dialer = Registry::standard().dialer(Clock::new_virtual());
        let server = Server::on("mem://server?delay=1ms").protocol("echo").start_with(&dialer).unwrap();
        let text =
            format!("[[case]]\nurl = \"{}\"\nprotocol = \"echo\"\nworkload = \"latency\"", server.url());
        let plan = check(Plan::from_toml(&text).unwrap(), Registry::standard()).unwrap();
        let began = dialer.now();
        let mut context = RunContext::new(dialer.clone(), &());
        let run = run_until(&plan, &Precision { half_width: 0.02, max_time }, &mut context);
        (run, dialer.now().since(began))
    }

    #[test]
    fn a_narrow_interval_ends_the_measurement_before_its_limit() {
        let (run, elapsed) = run_for(Duration::from_secs(60));
        let case = &run.cases[0];
        assert!(case.complete && case.repeats.len() == 10, "{case:?}");
        assert_eq!(case.requested[UNTIL_FACT], 2.0);
        assert_eq!(case.requested["stop"]["time_ns"], 2_000_000_000_u64);
        assert!(case.warnings.iter().all(|warning| warning.code != WarningCode::TooWide));
        // Rounds of 1 s and 2 s, and the warm-up of each repetition.
        assert!((3.0..10.0).contains(&elapsed.as_secs_f64()), "{elapsed:?}");
    }

    #[test]
    fn an_interval_that_is_not_reached_is_reported() {
        // Too short for repetitions, so it has no interval.
        let (run, _) = run_for(Duration::from_millis(200));
        let warnings = &run.cases[0].warnings;
        assert!(warnings.iter().any(|warning| warning.code == WarningCode::TooWide), "{warnings:?}");
    }
}
