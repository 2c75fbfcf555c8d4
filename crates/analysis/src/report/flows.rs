//! One line about how evenly the connections of a case were served.

use super::wording::brief_time;
use linkgauge_model::run::{CaseResult, FlowFigures, SlowFlow};
use linkgauge_model::units::format_count;

/// `100 connections: fairness 0.998, least ÷ most 0.81; mean RTT 12.1 µs to 80.3 µs, median 14.0 µs; slowest: 17, 3`.
/// `None` for a case with one connection.
pub(crate) fn flows_text(case: &CaseResult) -> Option<String> {
    let flows = case.figures.flows.as_ref()?;
    let FlowFigures { count, fairness, min_max_ratio, .. } = flows;
    let mut parts = vec![format!(
        "{} connections: fairness {fairness:.3}, least ÷ most {min_max_ratio:.2}",
        format_count(*count)
    )];
    if let (Some(min), Some(median), Some(max)) = (flows.mean_min_ns, flows.mean_p50_ns, flows.mean_max_ns) {
        let [min, median, max] = [min, median, max].map(brief_time);
        parts.push(format!("mean RTT {min} to {max}, median {median}"));
    }
    let slowest: Vec<String> =
        flows.slowest_flows.iter().map(|SlowFlow { flow, .. }| flow.to_string()).collect();
    parts.push(format!("slowest: {}", slowest.join(", ")));
    Some(parts.join("; "))
}

#[cfg(test)]
mod tests {
    use crate::report::sample_runs;

    #[test]
    fn one_line_says_how_alike_the_connections_were_served() {
        let case = &sample_runs::one_way_delays().cases[0];
        insta::assert_snapshot!(super::flows_text(case).unwrap(), @"100 connections: fairness 0.998, least ÷ most 0.81; mean RTT 40.1 µs to 80.3 µs, median 41.3 µs; slowest: 17, 3");
        assert_eq!(super::flows_text(&sample_runs::full().cases[0]), None);
    }
}
