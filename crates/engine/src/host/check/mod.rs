//! Checks of this machine's fitness for measuring. Each check has a finding and the command that helps.
//!
//! `link` checks the transports. Nothing here prints or changes anything.
//!
//! To add a check: one function and its line in `CHECKS`.

mod environment;
mod permission;
mod processor;
mod radio;
mod time;

pub use environment::interrupt_coalescing;

use serde::Serialize;

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckVerdict {
    /// Figures represent the link.
    Good,
    /// Figures may be worse, or vary more, than those of the link.
    Doubtful,
    /// Figures do not represent the link.
    Bad,
}

/// One check and its outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// The name in `doctor` and in documents.
    pub name: &'static str,
    /// The severity of the finding.
    pub verdict: CheckVerdict,
    /// The finding, in one line.
    pub finding: String,
    /// The remedy: an introduction and the command to type. Always present unless good.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl Check {
    fn good(name: &'static str, finding: impl Into<String>) -> Check {
        Check { name, verdict: CheckVerdict::Good, finding: finding.into(), remedy: None }
    }

    fn doubtful(name: &'static str, finding: impl Into<String>, remedy: impl Into<String>) -> Check {
        Check { name, verdict: CheckVerdict::Doubtful, finding: finding.into(), remedy: Some(remedy.into()) }
    }

    fn bad(name: &'static str, finding: impl Into<String>, remedy: impl Into<String>) -> Check {
        Check { name, verdict: CheckVerdict::Bad, finding: finding.into(), remedy: Some(remedy.into()) }
    }
}

/// All checks, in the order of the report.
pub(crate) const CHECKS: &[fn() -> Check] = &[
    time::clock_source,
    time::clock_reading,
    time::timer_error,
    processor::cpus,
    processor::quota,
    processor::load,
    processor::steal,
    processor::frequency,
    processor::idle,
    processor::smt,
    environment::hypervisor,
    environment::container,
    environment::socket_buffers,
    environment::usb_serial_timers,
    radio::wifi,
    radio::bluetooth,
    permission::capabilities,
    permission::real_time,
    permission::open_files,
    permission::ping,
];

/// Runs all checks; takes about a second, most of it asleep.
pub fn run_checks() -> Vec<Check> {
    CHECKS.iter().map(|check| check()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn every_check_is_quick_and_has_a_remedy() {
        let start = Instant::now();
        let checks = run_checks();
        assert!(start.elapsed().as_secs_f64() < 3.0, "took {:?}", start.elapsed());
        for check in &checks {
            assert!(!check.finding.is_empty() && !check.finding.contains('\n'), "{check:?}");
            assert_eq!(check.remedy.is_none(), check.verdict == CheckVerdict::Good, "{check:?}");
        }
        let mut names: Vec<_> = checks.iter().map(|check| check.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CHECKS.len());
    }

    #[test]
    fn the_worst_verdict_is_the_greatest() {
        assert!(CheckVerdict::Good < CheckVerdict::Doubtful && CheckVerdict::Doubtful < CheckVerdict::Bad);
    }
}
