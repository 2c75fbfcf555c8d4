//! Tests that every rule finds what breaks it, and that an import keeps what does not contradict.

use std::collections::BTreeMap;

use super::*;
use crate::plan::Direction;
use crate::run::{Delivery, Distribution, MessageCounts, RoundTripTimes, SCHEMA, TOOL};
use crate::stats::Interval;

fn latency() -> Distribution {
    let percentiles = [("p50", 20), ("p90", 30), ("p99", 40)];
    serde_json::from_value(serde_json::json!({
        "count": 90, "min": 10, "mean": 21.0, "standard_deviation": 5.0, "max": 50, "mean_fastest_95_percent": null,
        "later_than_ms": {"50": 0.2, "100": 0.1},
        "p50": percentiles[0].1, "p90": percentiles[1].1, "p99": null,
    }))
    .unwrap()
}

/// Round trips without a contradiction.
fn case() -> CaseResult {
    let figures = Figures {
        counts: MessageCounts { sent: 100, received: 90, lost: 10, ..MessageCounts::default() },
        times: RoundTripTimes { latency_ns: Some(latency()), ..RoundTripTimes::default() },
        delivery: Delivery {
            throughput_bps: Some(8e6),
            delivered_bytes: Some(1_000_000),
            ..Delivery::default()
        },
        intervals: BTreeMap::from([("latency_ns.p50".to_owned(), Interval { low: 15.0, high: 25.0 })]),
        ..Figures::default()
    };
    let mut case = CaseResult::of_figures("file".to_owned(), "latency", Direction::Loop, figures);
    case.elapsed_ns = 1_000_000_000;
    case.requested.insert("imported_from".to_owned(), "file".into());
    case
}

fn texts(case: &CaseResult) -> Vec<String> {
    let found = contradictions(&CheckedFigures { case, is_imported: true });
    found.into_iter().map(|(_, contradiction)| contradiction.text).collect()
}

fn run_of(case: CaseResult) -> Run {
    let started = jiff::Timestamp::UNIX_EPOCH;
    let run = Run::of_cases(started, case.elapsed_ns, vec![case], crate::run::Environment::default());
    assert_eq!((run.schema.as_str(), run.tool.as_str()), (SCHEMA, TOOL));
    run
}

/// Changes the figures of a case.
type Breakage = fn(&mut Figures);

const BREAKAGES: [(Breakage, &str); 21] = [
    (|of| times(of).min = 60, "min 60 ns is above max 50 ns"),
    (|of| times(of).mean = 51.0, "mean 51 ns is not between"),
    (|of| times(of).mean = f64::NAN, "mean NaN µs is not between"),
    (|of| times(of).standard_deviation = Some(41.0), "deviation 41 ns is not possible"),
    (|of| times(of).mean_fastest_95_percent = Some(22.0), "mean of the fastest 95 % 22 ns"),
    (|of| _ = times(of).percentiles.insert("p90".to_owned(), Some(19)), "p90 19 ns is below p50 20 ns"),
    (|of| _ = times(of).percentiles.insert("p99".to_owned(), Some(51)), "p99 51 ns is above max 50 ns"),
    (|of| _ = times(of).percentiles.insert("p50".to_owned(), None), "p90 30 ns was reached, but p50 was not"),
    (|of| _ = times(of).later_than_ms.insert("200".to_owned(), 0.15), "more were later than 200 ms"),
    (|of| _ = times(of).later_than_ms.insert("10".to_owned(), 1.5), "the share 1.5 later than 10 ms"),
    (|of| times(of).count = 91, "91 latencies of 90 replies"),
    (|of| of.counts.received = 101, "101 messages received of 100 sent"),
    (|of| of.counts.lost = 11, "90 messages received and 11 lost of 100 sent"),
    (|of| of.counts.late = 11, "11 late replies"),
    (|of| (of.counts.receiver_socket_drops, of.counts.network_lost) = (Some(3), Some(8)), "are not 10 lost"),
    (|of| of.delivery.throughput_bps = Some(4e6), "1000000 bytes at 4.000 Mbit/s are not those of 1.000 s"),
    (|of| of.delivery.throughput_bps = Some(40e6), "1000000 bytes at 40.00 Mbit/s are not those of 1.000 s"),
    (|of| of.delivery.throughput_bps = Some(f64::INFINITY), "a rate of inf bit/s"),
    (|of| interval(of, 5.0, 25.0), "reaches beyond what is possible (10 to inf)"),
    (|of| interval(of, 21.0, 25.0), "does not hold its figure 20"),
    (|of| interval(of, 25.0, 15.0), "is none"),
];

fn times(figures: &mut Figures) -> &mut Distribution {
    figures.times.latency_ns.as_mut().unwrap()
}

fn interval(figures: &mut Figures, low: f64, high: f64) {
    figures.intervals.insert("latency_ns.p50".to_owned(), Interval { low, high });
}

#[test]
fn every_rule_finds_its_contradiction() {
    assert_eq!(texts(&case()), Vec::<String>::new());
    for (breakage, expected) in BREAKAGES {
        let mut broken = case();
        breakage(&mut broken.figures);
        assert!(
            texts(&broken).iter().any(|text| text.contains(expected)),
            "{expected}: {:?}",
            texts(&broken)
        );
        // Such figures are found in a repetition, too, which is named.
        let mut repeated = case();
        repeated.repeats = vec![crate::run::PartResult::new("file", 1_000_000_000, repeated.figures.clone())];
        breakage(&mut repeated.repeats[0].figures);
        let named = texts(&repeated);
        assert!(
            named.iter().all(|text| text.starts_with("repetition 1: ")) && !named.is_empty(),
            "{named:?}"
        );
    }
}

#[test]
fn an_import_keeps_what_does_not_contradict() {
    for (breakage, expected) in BREAKAGES {
        let mut broken = case();
        breakage(&mut broken.figures);
        let mut run = run_of(broken);
        assert!(drop_contradictions(&mut run), "{expected}");
        let case = &run.cases[0];
        assert!(
            case.warnings.iter().any(|warning| warning.text.contains(expected)),
            "{expected}: {:?}",
            case.warnings
        );
        assert!(case.figures.has_measurements());
        let again = contradictions(&CheckedFigures { case, is_imported: true });
        assert_eq!(again, [], "{expected}");
    }
    let mut sound = run_of(case());
    assert!(drop_contradictions(&mut sound));
    assert_eq!(sound.cases[0], case());
}

#[test]
fn a_measured_case_keeps_its_figures_and_says_so() {
    let mut case = case();
    assert_eq!(measured_warning(&case), None);
    case.figures.counts.received = 101;
    let warning = measured_warning(&case).unwrap();
    assert_eq!(warning.code, WarningCode::Contradiction);
    assert!(warning.text.starts_with("figures contradict each other: 101 messages received of 100 sent"));
    assert!(warning.remedy.contains("report it"));
}

#[test]
fn an_interval_ends_where_figures_are_impossible() {
    let mut case = case();
    interval(&mut case.figures, 3.0, 90.0);
    case.figures.within_run_intervals = case.figures.intervals.clone();
    limit_intervals(&mut case);
    assert_eq!(case.figures.within_run_intervals, case.figures.intervals);
    assert_eq!(case.figures.intervals["latency_ns.p50"], Interval { low: 10.0, high: 90.0 });
}
