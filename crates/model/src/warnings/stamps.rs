//! Round trips without stamps of the kernel.

use crate::run::{CaseResult, Warning, WarningCode};
use crate::units::format_count;

/// Stages that cover no round trip, or too few, although they were requested.
pub(crate) fn unstamped(case: &CaseResult) -> Option<Warning> {
    if case.requested.get("stamps") != Some(&true.into()) || case.figures.counts.received == 0 {
        return None;
    }
    let (text, remedy) = match &case.figures.stages {
        None => (
            "the kernel stamps no messages on this link, so the stages of the round trip are unknown"
                .to_owned(),
            "use tcp, udp, icmp or linx+eth, or leave out --stamps",
        ),
        Some(stages) if stages.unstamped > stages.stamped / 9 => (
            format!(
                "{} of {} round trips lack a stamp of a kernel, and no stage includes them",
                format_count(stages.unstamped),
                format_count(stages.unstamped.saturating_add(stages.stamped))
            ),
            "a driver may have no stamps, and none are used after the clock of a host was set: measure again",
        ),
        Some(_) => return None,
    };
    Some(Warning::new(WarningCode::Unstamped, text, remedy))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{Run, StageFigures};

    #[test]
    fn missing_stamps_are_named() {
        let text = include_str!("../../../../tests/data/run-v1-latency.json");
        let mut case = Run::from_json(text).unwrap().cases.remove(0);
        assert_eq!(unstamped(&case), None, "not requested");
        case.requested.insert("stamps".to_owned(), true.into());
        assert!(unstamped(&case).unwrap().text.starts_with("the kernel stamps no messages"));
        case.figures.stages = Some(StageFigures { stamped: 90, unstamped: 10, ..StageFigures::default() });
        assert_eq!(unstamped(&case), None);
        case.figures.stages = Some(StageFigures { stamped: 89, unstamped: 11, ..StageFigures::default() });
        assert!(unstamped(&case).unwrap().text.starts_with("11 of 100 round trips lack a stamp"));
    }
}
