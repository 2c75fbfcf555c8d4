//! Verdicts on synthetic repetitions: how often they are right, and which cases are not compared.

use std::sync::LazyLock;

use super::*;
use crate::run::PartResult;
use crate::run::sample_runs;
use crate::stats::simulate::log_normal;
use crate::stats::simulate::simulations;

/// A run with one case, without its histogram.
static BASE: LazyLock<Run> = LazyLock::new(|| {
    let mut run = sample_runs::full();
    run.cases.truncate(1);
    run.cases[0].figures.histogram_hdr_v2 = None;
    run.cases[0].figures.intervals.clear();
    run
});

/// A run with one case whose repetitions have these medians, in nanoseconds.
fn run_with_medians(medians: &[f64]) -> Run {
    let mut run = BASE.clone();
    let case = &mut run.cases[0];
    let figures = case.figures.clone();
    case.repeats = medians
        .iter()
        .map(|median| {
            let mut figures = figures.clone();
            let latency = figures.times.latency_ns.as_mut().unwrap();
            latency.percentiles.insert("p50".to_owned(), median.is_finite().then_some(*median as u64));
            PartResult::new(case.endpoint.as_str(), 1, figures)
        })
        .collect();
    let middle =
        crate::stats::median(medians).filter(|median| median.is_finite()).map(|median| median as u64);
    case.figures.times.latency_ns.as_mut().unwrap().percentiles.insert("p50".to_owned(), middle);
    run
}

fn compare_runs(a: &Run, b: &Run) -> Result<RunComparison, CompareError> {
    compare(std::slice::from_ref(a), std::slice::from_ref(b), &CompareOptions::default())
}

fn verdict_between(a: &[f64], b: &[f64]) -> Verdict {
    compare_one(a, b, &CompareOptions::default()).verdict
}

fn compare_one(a: &[f64], b: &[f64], options: &CompareOptions) -> MetricComparison {
    compare(&[run_with_medians(a)], &[run_with_medians(b)], options).unwrap().cases.remove(0)
}

/// The share of the seeds from 0 to 999, or of a part of them, for which this is true.
fn share(is: impl Fn(u64) -> bool) -> f64 {
    let seeds = simulations(1000);
    (0..seeds).filter(|&seed| is(seed)).count() as f64 / seeds as f64
}

/// Repetitions of around one millisecond, with a variation of 2 % between them.
fn repetitions(seed: u64, factor: f64) -> Vec<f64> {
    log_normal(10, 0.02, seed).into_iter().map(|value| value * 1e6 * factor).collect()
}

/// Verdicts that are neither worse nor better.
const NO_CHANGE: [Verdict; 2] = [Verdict::Unchanged, Verdict::NotDecidable];

/// The share of 1000 pairs, or of a part of them, with one of these verdicts: 10 repetitions each, log-normal with a deviation
/// of 2 %, with fixed seeds.
fn share_of_verdicts(factor: f64, margin: f64, wanted: &[Verdict]) -> f64 {
    let options = CompareOptions { margin, ..CompareOptions::default() };
    let is = |seed: u64| {
        let (a, b) = (repetitions(2 * seed, 1.0), repetitions(2 * seed + 1, factor));
        wanted.contains(&compare_one(&a, &b, &options).verdict)
    };
    share(is)
}

#[test]
fn no_shift_is_mostly_no_change() {
    let right = share_of_verdicts(1.0, 0.05, &NO_CHANGE);
    assert!(right >= 0.94, "{right}");
    // Without a margin only the test decides. Runs may differ as much as repetitions do, so it is wrong less than once in twenty.
    let right = share_of_verdicts(1.0, 0.0, &NO_CHANGE);
    assert!(right >= 0.94, "{right}");
}

#[test]
fn a_shift_of_a_sixth_is_found() {
    let found = share_of_verdicts(1.15, 0.05, &[Verdict::Worse]);
    assert!(found >= 0.95, "{found}");
    let found = share_of_verdicts(0.85, 0.05, &[Verdict::Better]);
    assert!(found >= 0.95, "{found}");
}

#[test]
fn certain_difference_within_the_margin_is_not_shown() {
    let (a, b) = ([100.0, 101.0, 102.0, 103.0, 104.0], [105.0, 106.0, 106.5, 106.7, 106.9]);
    let compared = compare_one(&a, &b, &CompareOptions::default());
    // The interval of the shift reaches beyond the margin.
    assert!(compared.p.unwrap() < 0.01 && compared.verdict == Verdict::NotDecidable);
    let wide = CompareOptions { margin: 0.1, ..CompareOptions::default() };
    assert_eq!(compare_one(&a, &b, &wide).verdict, Verdict::Unchanged);
    assert_eq!(
        compare_one(&a, &b, &CompareOptions { margin: 0.0, ..CompareOptions::default() }).verdict,
        Verdict::Worse
    );
}

#[test]
fn too_few_repetitions_give_no_verdict() {
    assert_eq!(verdict_between(&[1.0, 1.0, 1.0], &[9.0; 10]), Verdict::NotDecidable);
    assert_eq!(verdict_between(&[1.0; 10], &[9.0; 3]), Verdict::NotDecidable);
    assert_eq!(verdict_between(&[1.0, 2.0, 3.0, 4.0], &[9.0, 10.0, 11.0, 12.0]), Verdict::Worse);
    // A run without repetitions is one value. Several runs are a set.
    let set = |values: &[f64]| values.iter().map(|value| run_with_medians(&[*value])).collect::<Vec<_>>();
    let compared =
        compare(&set(&[9.0, 10.0, 11.0, 12.0]), &set(&[1.0, 2.0, 3.0, 4.0]), &CompareOptions::default());
    assert_eq!(compared.unwrap().cases[0].verdict, Verdict::Better);
}

#[test]
fn unreached_percentiles_rank_slowest() {
    let lost = [f64::INFINITY; 5];
    assert_eq!(verdict_between(&[1e6, 1.1e6, 1.2e6, 1.3e6, 1.4e6], &lost), Verdict::Worse);
    assert_eq!(verdict_between(&lost, &lost), Verdict::Unchanged);
    let json = serde_json::to_string(&compare_one(&[1e6; 5], &lost, &CompareOptions::default())).unwrap();
    assert!(json.contains("\"median\":null"), "{json}");
}

#[test]
fn more_of_a_rate_is_better() {
    let rate = CompareOptions { metrics: vec!["messages".parse().unwrap()], ..CompareOptions::default() };
    let set = |values: [f64; 4]| {
        values.map(|value| {
            let mut run = run_with_medians(&[1.0]);
            run.cases[0].repeats.clear();
            run.cases[0].figures.delivery.messages_per_second = Some(value);
            run
        })
    };
    let verdict = |a, b| compare(&set(a), &set(b), &rate).unwrap().cases[0].verdict;
    assert_eq!(verdict([1.0, 2.0, 3.0, 4.0], [9.0, 10.0, 11.0, 12.0]), Verdict::Better);
    assert_eq!(verdict([9.0, 10.0, 11.0, 12.0], [1.0, 2.0, 3.0, 4.0]), Verdict::Worse);
    let absent = CompareOptions { metrics: vec!["rate".parse().unwrap()], ..CompareOptions::default() };
    assert_eq!(compare_one(&[1.0; 5], &[2.0; 5], &absent).verdict, Verdict::NotMeasured);
}

#[test]
fn different_methods_are_not_compared_unless_forced() {
    let (a, mut b) = (run_with_medians(&[1.0; 5]), run_with_medians(&[2.0; 5]));
    b.cases[0].method = "latency/2 closed".to_owned();
    let error = compare_runs(&a, &b).unwrap_err().to_string();
    assert_eq!(
        error,
        "tcp://127.0.0.1:7100: measured in different ways (latency/closed/block/1 with protocol linkgauge, latency/2 closed \
         with protocol linkgauge): compare runs of one method, or use --force"
    );
    let forced = compare(&[a], &[b], &CompareOptions { force: true, ..CompareOptions::default() }).unwrap();
    assert_eq!(
        (forced.cases[0].verdict, forced.warnings[0].code.name()),
        (Verdict::Worse, "different_methods")
    );
}

#[test]
fn cases_are_matched_by_similarity() {
    let (mut a, mut b) = (sample_runs::full(), sample_runs::full());
    b.cases.reverse();
    // A case that differs only in its schedule is another case.
    let mut paced = a.cases[0].clone();
    paced.method = "latency/fixed/block/1".to_owned();
    paced.requested.insert("pacing".to_owned(), serde_json::json!({"kind": "fixed", "per_second": 100.0}));
    a.cases.push(paced.clone());
    b.cases.insert(0, paced);
    let all = compare_runs(&a, &b).unwrap();
    let headlines = all.cases.iter().filter(|compared| ["rate", "p50"].contains(&compared.metric.as_str()));
    assert_eq!((headlines.count(), all.only_a.len(), all.only_b.len()), (a.cases.len(), 0, 0));
    assert!(all.cases.iter().all(|compared| compared.case_b.is_none()));

    b.cases.retain(|case| case.workload == "latency");
    b.cases.iter_mut().for_each(|case| case.endpoint = "tcp://other:1".to_owned());
    let moved = compare_runs(&a, &b);
    let moved = moved.unwrap_or_else(|error| panic!("{error}"));
    assert!(moved.cases.iter().all(|compared| compared.case_b.as_ref().unwrap().endpoint == "tcp://other:1"));
    assert!(!moved.only_a.is_empty());

    b.cases.iter_mut().for_each(|case| case.message_bytes = 77);
    let CompareError::NothingInCommon(differ) = compare(&[a], &[b], &CompareOptions::default()).unwrap_err()
    else {
        panic!("they have nothing in common");
    };
    assert_eq!(differ, "endpoint (tcp://127.0.0.1:7100, tcp://other:1), message size (14 B, 77 B)");
}

/// The share of pairs of unchanged runs with a verdict. Each has 10 repetitions that differ by 2 %, and runs differ by as much.
#[test]
fn runs_that_differ_as_much_as_repetitions_are_rarely_called_different() {
    let options = CompareOptions { margin: 0.0, ..CompareOptions::default() };
    let wrong = share(|seed| {
        let levels = log_normal(2, 0.02, 5000 + seed);
        let [a, b] = [0, 1].map(|side| repetitions(2 * seed + side, levels[side as usize]));
        !NO_CHANGE.contains(&compare_one(&a, &b, &options).verdict)
    });
    assert!(wrong <= 0.06, "{wrong}");
    // The ranks of repetitions, which do not know that, would be wrong in most pairs.
    let by_ranks = share(|seed| {
        let levels = log_normal(2, 0.02, 5000 + seed);
        let [a, b] = [0, 1].map(|side| repetitions(2 * seed + side, levels[side as usize]));
        crate::stats::mann_whitney_p(&a, &b) < SIGNIFICANCE_LEVEL
    });
    assert!(by_ranks > 0.4, "{by_ranks}");
}

/// A transfer that was measured once, with its intervals of ± 2 % and ± 40 %.
fn transfer(rate: f64, added_ms: f64) -> Run {
    let text = include_str!("../../../../tests/data/run-v1-throughput.json");
    let mut run = Run::from_json(text).unwrap();
    run.cases.truncate(1);
    let case = &mut run.cases[0];
    case.repeats.clear();
    case.figures.intervals.clear();
    case.figures.delivery.throughput_bps = Some(rate);
    case.figures.added_latency = Some(crate::run::AddedLatency {
        added_p50_ns: Some(added_ms * 1e6),
        ..crate::run::AddedLatency::new(10_000_000, None)
    });
    let around =
        |value: f64, share: f64| Interval { low: value * (1.0 - share), high: value * (1.0 + share) };
    case.figures.intervals.insert("throughput_bps".to_owned(), around(rate, 0.02));
    case.figures.intervals.insert("added_p50_ns".to_owned(), around(added_ms * 1e6, 0.4));
    run
}

#[test]
fn a_change_of_the_queue_alone_is_found_in_single_runs() {
    let between = |a: &Run, b: &Run| {
        let compared = compare_runs(a, b).unwrap();
        let found = compared.cases.iter().map(|one| (one.metric.clone(), one.verdict)).collect::<Vec<_>>();
        assert!(compared.cases.iter().all(|one| one.test == ShiftTest::Intervals));
        found
    };
    let queue = transfer(19e6, 102.0);
    let verdicts = |rate, added| vec![("rate".to_owned(), rate), ("added_p50".to_owned(), added)];
    assert_eq!(between(&queue, &transfer(19.1e6, 12.9)), verdicts(Verdict::Unchanged, Verdict::Better));
    assert_eq!(
        between(&transfer(19e6, 6.5), &transfer(19.1e6, 82.9)),
        verdicts(Verdict::Unchanged, Verdict::Worse)
    );
    assert_eq!(between(&queue, &transfer(15e6, 95.0)), verdicts(Verdict::Worse, Verdict::NotDecidable));
    // Small beside the round trip of the idle link, however clear: 0.1 ms of 10 ms.
    let [fast, faster] = [transfer(19e6, 0.2), transfer(19e6, 0.01)];
    assert_eq!(between(&fast, &faster)[1].1, Verdict::Unchanged);
}

#[test]
fn four_runs_on_each_side_show_what_is_clear() {
    let runs = |rate: f64, added_ms: f64| -> Vec<Run> {
        (0..4).map(|run| transfer(rate * (1.0 + 0.01 * f64::from(run)), added_ms + f64::from(run))).collect()
    };
    let verdicts = |a: &[Run], b: &[Run]| {
        let compared = compare(a, b, &CompareOptions::default()).unwrap();
        compared.cases.iter().map(|one| one.verdict).collect::<Vec<_>>()
    };
    let fast = runs(91e6, 5.0);
    assert_eq!(verdicts(&fast, &runs(9.5e6, 5.0)), [Verdict::Worse, Verdict::NotDecidable]);
    let lost: Vec<Run> = runs(91e6, 5.0)
        .into_iter()
        .map(|mut run| {
            let added = run.cases[0].figures.added_latency.as_mut().unwrap();
            (added.added_p50_ns, added.is_added_p50_lost) = (None, true);
            run
        })
        .collect();
    assert_eq!(verdicts(&fast, &lost), [Verdict::Unchanged, Verdict::Worse]);
    assert_eq!(verdicts(&lost, &fast), [Verdict::Unchanged, Verdict::Better]);
}

#[test]
fn different_machines_are_reported() {
    let (a, mut b) = (run_with_medians(&[1.0; 5]), run_with_medians(&[1.0; 5]));
    b.environment.client.insert("cpu_model".to_owned(), "another".into());
    let codes: Vec<String> = compare(&[a], &[b], &CompareOptions::default())
        .unwrap()
        .warnings
        .into_iter()
        .map(|w| String::from(w.code))
        .collect();
    assert_eq!(codes, ["different_machines"]);
}

#[test]
fn pairs_show_a_shift_that_a_common_drift_hides() {
    // Both sides become slower by half in the course of the comparison; B is 10 % slower throughout.
    let drift = |index: usize| 1.0 + 0.05 * index as f64;
    let a: Vec<f64> = repetitions(1, 1.0).iter().enumerate().map(|(i, value)| value * drift(i)).collect();
    let b: Vec<f64> = repetitions(2, 1.1).iter().enumerate().map(|(i, value)| value * drift(i)).collect();
    let paired = CompareOptions { pairing: Pairing::Interleaved, ..CompareOptions::default() };
    assert_eq!(verdict_between(&a, &b), Verdict::NotDecidable);
    let compared = compare_one(&a, &b, &paired);
    assert_eq!(
        (compared.verdict, compared.test, compared.p),
        (Verdict::Worse, ShiftTest::SignedRank, Some(0.001953125))
    );
    // 5 pairs are too few, and lists of different lengths have no pairs.
    assert_eq!(compare_one(&a[..5], &b[..5], &paired).verdict, Verdict::NotDecidable);
    assert_eq!(compare_one(&a, &b[..9], &paired).test, ShiftTest::Intervals);
    // A percentile that B never reaches is slower.
    let lost = compare_one(&a, &[f64::INFINITY; 10], &paired);
    assert_eq!((lost.verdict, lost.p), (Verdict::Worse, Some(0.001953125)));
}

#[test]
fn equal_pairs_are_mostly_no_difference() {
    let options = CompareOptions { margin: 0.0, pairing: Pairing::Interleaved, ..CompareOptions::default() };
    let right = share(|seed| {
        let (a, b) = (repetitions(2 * seed, 1.0), repetitions(2 * seed + 1, 1.0));
        NO_CHANGE.contains(&compare_one(&a, &b, &options).verdict)
    });
    // The largest level of 10 pairs below 5 % is 4.9 %.
    assert!((0.93..=0.97).contains(&right), "{right}");
}

#[test]
fn a_figure_is_unchanged_only_if_its_interval_lies_within_the_margin() {
    // Far apart, and known so badly that nothing follows.
    let wide = [10.0, 90.0, 20.0, 400.0, 15.0, 160.0].map(|value| value * 1e6);
    let far = wide.map(|value| value * 3.0);
    let paired = CompareOptions { pairing: Pairing::Interleaved, ..CompareOptions::default() };
    let noisy = compare_one(&wide, &[wide[3], wide[0], wide[5], far[1], far[4], far[2]], &paired);
    assert!(noisy.relative_shift.unwrap() > 0.5 && noisy.relative_shift_interval.unwrap().low < 0.0);
    assert_eq!(noisy.verdict, Verdict::NotDecidable);
    let same = compare_one(&[1e6; 6], &[1.001e6; 6], &paired);
    assert_eq!((same.verdict, same.is_shown_in_units), (Verdict::Unchanged, false));
    // The share is large, the time is not: 0.2 ms of 10 ms.
    let small = compare_runs(&transfer(19e6, 0.1), &transfer(19e6, 0.3)).unwrap();
    assert!(small.cases[1].relative_shift.unwrap() > 1.0);
    assert_eq!((small.cases[1].verdict, small.cases[1].is_shown_in_units), (Verdict::Unchanged, true));
}

#[test]
fn another_path_is_a_warning() {
    let (a, mut b) = (sample_runs::path(), sample_runs::path());
    let options = CompareOptions::default();
    let found = |a: &Run, b: &Run| {
        let compared = compare(std::slice::from_ref(a), std::slice::from_ref(b), &options).unwrap();
        compared
            .warnings
            .into_iter()
            .filter(|warning| warning.code == WarningCode::PathChanged)
            .collect::<Vec<_>>()
    };
    assert_eq!(found(&a, &b), []);
    let path = b.cases[0].path.as_mut().unwrap();
    path.hops[2].hosts.remove(0);
    assert_eq!(found(&a, &b), [], "one of its branches");
    let path = b.cases[0].path.as_mut().unwrap();
    path.hops[2].hosts[0].address = "203.0.113.99".parse().unwrap();
    let first = path.hops[0].hosts.clone();
    path.hops[1].hosts = first;
    path.hops.pop();
    let [warning] = &found(&a, &b)[..] else { panic!() };
    let text = "udp://www.example.org: the path differs: 4 hops instead of 5, hop 3 is 203.0.113.99 instead of 203.0.113.9 or \
                203.0.113.13";
    assert_eq!(warning.text, text, "a hop that was silent before is no change");
}
