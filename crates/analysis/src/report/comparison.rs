//! A comparison as text for a terminal, with the wording that the page (`overlay`) shares.
//!
//! `verdict` does the comparing.

use super::ReportOptions;
use super::wording::{ABSENT, format_change, plural, printable, shorten, to_ascii, wrap};
use linkgauge_model::stats::Interval;
use linkgauge_model::units::format_bytes;
use linkgauge_model::verdict::{
    CaseKey, MIN_PAIRS, MIN_REPETITIONS, MetricComparison, RunComparison, SIGNIFICANCE_LEVEL, Sensitivity,
    ShiftTest, Verdict,
};

/// Columns of a line for the details of a case.
const DETAIL_COLUMNS: usize = 36;
/// An endpoint in a heading has these columns in the narrowest terminal.
const MIN_ENDPOINT_COLUMNS: usize = 24;

/// The whole comparison for a terminal: the verdict, the figures, the runs.
pub fn render_comparison(comparison: &RunComparison, options: &ReportOptions) -> String {
    let width = options.width;
    // Columns of a line for an endpoint: all but the details of its case.
    let endpoint_columns = width.saturating_sub(DETAIL_COLUMNS).max(MIN_ENDPOINT_COLUMNS);
    let mut text = options.format_answer(&headline(comparison));
    let mut above = None;
    for compared in &comparison.cases {
        let case = (&compared.case, &compared.case_b);
        if above != Some(case) {
            text += &format!("  {}\n", case_name(&compared.case, endpoint_columns));
            if let Some(other) = &compared.case_b {
                text += &format!(
                    "  B: {}\n",
                    shorten(&printable(&other.endpoint), width.saturating_sub("  B: ".len()))
                );
            }
            above = Some(case);
        }
        // The headline has the figures of a single case.
        if !is_one_case(comparison) {
            text += &wrap(&metric_line(compared), width, "    ", "      ");
        }
    }
    for (side, names) in [("A", &comparison.only_a), ("B", &comparison.only_b)] {
        for case in names {
            text += &format!("  only in {side}: {}\n", case_name(case, endpoint_columns));
        }
    }
    text += &format!("  A: {}\n  B: {}\n", run_names(&comparison.a), run_names(&comparison.b));
    for sentence in verdict_legend(comparison) {
        text += &wrap(&sentence, width, "  ", "  ");
    }
    for warning in &comparison.warnings {
        let note = printable(&format!("{}. Try: {}", warning.text, warning.remedy));
        text += &wrap(&note, width, "  note      ", "            ");
    }
    if options.unicode { text } else { to_ascii(&text) }
}

fn run_names(ids: &[String]) -> String {
    match ids {
        [id] => printable(id),
        ids => format!("{} runs, {} to {}", ids.len(), printable(&ids[0]), printable(&ids[ids.len() - 1])),
    }
}

/// The verdict in one sentence.
pub(crate) fn headline(comparison: &RunComparison) -> String {
    if is_one_case(comparison) {
        return case_headline(&comparison.cases);
    }
    let all =
        [Verdict::Worse, Verdict::Better, Verdict::NotDecidable, Verdict::Unchanged, Verdict::NotMeasured];
    let count = |verdict| comparison.cases.iter().filter(|compared| compared.verdict == verdict).count();
    let present: Vec<(Verdict, usize)> =
        all.into_iter().map(|verdict| (verdict, count(verdict))).filter(|(_, count)| *count > 0).collect();
    let Some((worst, _)) = present.first() else { return "Nothing to compare.".to_owned() };
    let counts: Vec<String> =
        present.iter().map(|(verdict, count)| format!("{count} {}", verdict.label())).collect();
    format!(
        "{}: {} of {}.",
        worst.label().to_uppercase(),
        counts.join(", "),
        plural(comparison.cases.len(), "figure")
    )
}

fn is_one_case(comparison: &RunComparison) -> bool {
    let cases = &comparison.cases;
    cases.first().is_some_and(|first| cases.iter().all(|compared| compared.case == first.case))
}

/// The most important change of one case, and what happened to its other metrics.
fn case_headline(metrics: &[MetricComparison]) -> String {
    let importance = |compared: &&MetricComparison| match compared.verdict {
        Verdict::Worse => 3,
        Verdict::Better => 2,
        Verdict::Unchanged | Verdict::NotDecidable => 1,
        Verdict::NotMeasured => 0,
    };
    let size = |compared: &&MetricComparison| match compared.verdict {
        Verdict::Worse | Verdict::Better => compared.relative_shift.map_or(0.0, |share| share.ln_1p().abs()),
        _ => 0.0,
    };
    // The first of equal metrics is named: it is the headline figure.
    let first = metrics.iter().rev().max_by(|a, b| {
        (importance(a), size(a)).partial_cmp(&(importance(b), size(b))).unwrap_or(std::cmp::Ordering::Equal)
    });
    let Some(first) = first else { return String::new() };
    let others = metrics.iter().filter(|other| other.metric != first.metric).map(|other| {
        let name = metric_label(&other.metric);
        let in_brackets = |text: String| format!(" ({text})");
        let change = format_shift(other).map(in_brackets).unwrap_or_default();
        match other.verdict {
            Verdict::Worse | Verdict::Better => {
                let (before, after) =
                    (format_value(other, other.a.median), format_value(other, other.b.median));
                format!("; {name} {}: {before} → {after}{change}", other.verdict.label())
            }
            Verdict::NotDecidable => {
                let range = format_interval(other).map_or(change, in_brackets);
                format!("; {name} {}{range}", other.verdict.label())
            }
            Verdict::Unchanged | Verdict::NotMeasured => {
                format!("; {name} {}{change}", other.verdict.label())
            }
        }
    });
    let others: String = others.collect();
    metric_line(first) + &others
}

/// The name of a metric in a sentence.
fn metric_label(name: &str) -> &str {
    match name {
        "added_p50" => "added latency",
        name => name,
    }
}

/// Line such as `WORSE: p50 100.9 µs → 121.1 µs (+20.0 %, 95 % CI +19.3 % to +20.7 %, p < 0.001, n = 10/10)`.
fn metric_line(compared: &MetricComparison) -> String {
    let (a, b) = (&compared.a, &compared.b);
    let [before, after] = [a.median, b.median].map(|median| format_value(compared, median));
    let count = match compared.test {
        ShiftTest::SignedRank => format!("n = {}", plural(a.repetitions, "pair")),
        ShiftTest::MannWhitney | ShiftTest::Intervals => {
            format!("n = {}/{}", a.repetitions, b.repetitions)
        }
    };
    let facts = [
        format_shift(compared),
        format_interval(compared).map(|interval| format!("95 % CI {interval}")),
        format_p_value(compared),
        Some(count),
    ];
    let facts: Vec<String> = facts.into_iter().flatten().collect();
    let verdict = compared.verdict.label().to_uppercase();
    let name = metric_label(&compared.metric);
    match compared.verdict {
        Verdict::NotMeasured => format!("{verdict}: {name}"),
        _ => format!("{verdict}: {name} {before} → {after} ({})", facts.join(", ")),
    }
}

/// Explains the verdicts.
pub(crate) fn verdict_legend(comparison: &RunComparison) -> Vec<String> {
    let margin = (comparison.margin * 1e3).round() / 10.0;
    let mut legend = vec![format!(
        "Worse and better: p below {SIGNIFICANCE_LEVEL}, and a change of more than {margin} % of A. Unchanged: the \
         95 % interval of the change lies within {margin} % of A."
    )];
    if comparison.cases.iter().any(|compared| compared.is_shown_in_units) {
        legend.push("A latency under load is compared with A's whole round trip.".to_owned());
    }
    let has_test = |test| comparison.cases.iter().any(|compared| compared.test == test);
    if has_test(ShiftTest::SignedRank) {
        legend.push(
            "p: signed-rank test of the pairs of neighbouring repetitions. It assumes that both of a pair met \
             the same conditions."
                .to_owned(),
        );
    }
    if has_test(ShiftTest::Intervals) {
        legend.push(
            "p: by the intervals of both runs, which hold how much runs differ here, as far as earlier runs in \
             the store or the repetitions show it. Four runs on each side, or linkgauge ab, show smaller changes."
                .to_owned(),
        );
    }
    if has_test(ShiftTest::MannWhitney) {
        legend.push(
            "p: Mann–Whitney test. It assumes that the repetitions of both sides met the same conditions and \
             do not depend on each other."
                .to_owned(),
        );
    }
    legend.extend(sensitivity_sentence(comparison));
    let follows = |compared: &MetricComparison| shift_of(compared).is_none();
    if has_test(ShiftTest::SignedRank) && !comparison.cases.iter().all(follows) {
        legend.push("In pairs: the middle change from a repetition of A to that of B beside it.".to_owned());
    }
    if has_test(ShiftTest::MannWhitney) && !comparison.cases.iter().all(follows) {
        legend.push("Of all pairs: the middle change from any value of A to any value of B.".to_owned());
    }
    if comparison
        .cases
        .iter()
        .any(|compared| compared.verdict == Verdict::NotDecidable && compared.p.is_none())
    {
        let needed = if has_test(ShiftTest::SignedRank) { MIN_PAIRS } else { MIN_REPETITIONS };
        legend.push(format!(
            "A verdict needs a figure with an interval on each side, or {needed} repetitions. Try --repeat 10."
        ));
    }
    legend
}

/// The smallest change that the repetitions show, and what more of them would show.
fn sensitivity_sentence(comparison: &RunComparison) -> Option<String> {
    let all: Vec<&Sensitivity> =
        comparison.cases.iter().filter_map(|compared| compared.sensitivity.as_ref()).collect();
    let range = |values: Vec<f64>| {
        let [low, high] =
            [values.iter().copied().reduce(f64::min)?, values.iter().copied().reduce(f64::max)?];
        let [low_text, high_text] = [low, high].map(format_change);
        Some(if low_text == high_text { low_text } else { format!("{low_text} to {high_text}") })
    };
    let repetitions = all.iter().map(|one| one.with_repetitions).max()?;
    let would_show = range(all.iter().map(|one| one.would_show).collect())?;
    let shown = range(all.iter().filter_map(|one| one.smallest_change).collect());
    let shown =
        shown.map_or(String::new(), |shown| format!("Such repetitions show changes from {shown} on; "));
    Some(format!(
        "{shown}--repeat {repetitions} would show changes from {would_show} on (in 4 of 5 comparisons, if repetitions are \
         independent)."
    ))
}

/// Endpoint, workload and distinguishing details. The endpoint has at most `width` characters.
pub(crate) fn case_name(case: &CaseKey, width: usize) -> String {
    let endpoint = shorten(&printable(&case.endpoint), width);
    let particulars = case_details(case.message_bytes, case.ports, case.parallel, &case.settings);
    format!("{endpoint}, {} {}{particulars}", printable(&case.workload), case.direction.name())
}

/// Details that distinguish a case from others at its endpoint: `, 14 B, 4 ports, busy-poll`.
pub fn case_details(message_bytes: u32, ports: u32, parallel: u32, settings: &str) -> String {
    let mut words = Vec::new();
    // An imported file may lack the size.
    if message_bytes > 0 {
        words.push(format_bytes(message_bytes.into()));
    }
    let several = [(ports, "ports"), (parallel, "connections")].into_iter().filter(|(number, _)| *number > 1);
    words.extend(several.map(|(number, what)| format!("{number} {what}")));
    words.push(printable(settings));
    words.iter().filter(|word| !word.is_empty()).map(|word| format!(", {word}")).collect()
}

fn format_value(compared: &MetricComparison, value: Option<f64>) -> String {
    match (value, compared.unit) {
        (Some(value), Some(unit)) => unit.format(value),
        _ => ABSENT.to_owned(),
    }
}

/// Medians of both sides, with the number of repetitions: `100.9 µs (10)`.
pub(crate) fn format_medians(compared: &MetricComparison) -> (String, String) {
    let (a, b) = (&compared.a, &compared.b);
    let side = |median, repetitions| format!("{} ({repetitions})", format_value(compared, median));
    (side(a.median, a.repetitions), side(b.median, b.repetitions))
}

fn format_percent(share: f64) -> String {
    format!("{:+.1} %", share * 100.0)
}

/// Formats a shift with its sign: `+210.0 µs`.
fn format_signed(compared: &MetricComparison, shift: f64) -> String {
    let sign = if shift < 0.0 { "-" } else { "+" };
    format!("{sign}{}", format_value(compared, Some(shift.abs())))
}

/// `+20.0 %`; in the metric's unit if there is no relative shift, or the share does not matter. Says what it is the shift of, if
/// that is not the change from one printed figure to the other.
pub(crate) fn format_shift(compared: &MetricComparison) -> Option<String> {
    compared.a.median?;
    // The values say it where one was not reached.
    let shift = compared.shift.filter(|shift| shift.is_finite())?;
    let Some(share) = compared.relative_shift.filter(|_| !compared.is_shown_in_units) else {
        return Some(format_signed(compared, shift));
    };
    Some(match shift_of(compared) {
        Some((of, medians)) => {
            format!("{} {of}, medians {}", format_percent(share), format_percent(medians))
        }
        None => format_percent(share),
    })
}

/// Shares that differ by less are those of the same figures, as rounded.
const ROUNDED_SHARE: f64 = 1e-3;

/// Basis of the shift, and the share by which the printed figures differ, if the shift is not theirs.
fn shift_of(compared: &MetricComparison) -> Option<(&'static str, f64)> {
    let share = compared.relative_shift?;
    let medians = compared.b.median? / compared.a.median? - 1.0;
    let of = match compared.test {
        ShiftTest::SignedRank => "in pairs",
        ShiftTest::MannWhitney => "of all pairs",
        ShiftTest::Intervals => return None,
    };
    ((medians - share).abs() >= ROUNDED_SHARE * (1.0 + share.abs())).then_some((of, medians))
}

/// Formats the interval: `+19.3 % to +20.7 %`; in the metric's unit as the shift.
pub(crate) fn format_interval(compared: &MetricComparison) -> Option<String> {
    let of_share = compared.relative_shift_interval.filter(|_| !compared.is_shown_in_units);
    if let Some(interval) = of_share {
        return Some(format!("{} to {}", format_percent(interval.low), format_percent(interval.high)));
    }
    let is_finite = |interval: &Interval| interval.low.is_finite() && interval.high.is_finite();
    let interval = compared.shift_interval.filter(is_finite).filter(|_| compared.a.median.is_some())?;
    Some(format!("{} to {}", format_signed(compared, interval.low), format_signed(compared, interval.high)))
}

pub(crate) fn format_p_value(compared: &MetricComparison) -> Option<String> {
    compared.p.map(|p| if p < 0.001 { "p < 0.001".to_owned() } else { format!("p = {p:.3}") })
}

#[cfg(test)]
mod tests {
    use linkgauge_model::run::{AddedLatency, CaseResult, PartResult, Run};
    use linkgauge_model::stats::Interval;
    use linkgauge_model::verdict::{CompareOptions, Pairing, compare};

    use super::render_comparison;

    /// A transfer at 19 Mbit/s that was measured once.
    fn transfer(added_ms: f64) -> Run {
        let mut run = Run::from_json(include_str!("../../../../tests/data/run-v1-throughput.json")).unwrap();
        run.cases.truncate(1);
        let case = &mut run.cases[0];
        case.repeats.clear();
        case.figures.intervals.clear();
        case.figures.delivery.throughput_bps = Some(19e6);
        case.figures.added_latency =
            Some(AddedLatency { added_p50_ns: Some(added_ms * 1e6), ..AddedLatency::new(10_000_000, None) });
        let around =
            |value: f64, share: f64| Interval { low: value * (1.0 - share), high: value * (1.0 + share) };
        case.figures.intervals.insert("throughput_bps".to_owned(), around(19e6, 0.02));
        case.figures.intervals.insert("added_p50_ns".to_owned(), around(added_ms * 1e6, 0.4));
        run
    }

    #[test]
    fn the_first_line_names_the_change() {
        let comparison = compare(&[transfer(102.0)], &[transfer(12.9)], &CompareOptions::default()).unwrap();
        let text = render_comparison(&comparison, &Default::default());
        let first = text.lines().take(2).collect::<Vec<_>>().join(" ");
        assert!(first.starts_with("BETTER: added latency 102.0 ms → 12.90 ms (-87.4 %"), "{text}");
        assert!(text.contains("rate unchanged (+0.0 %)"), "{text}");
        // A large share of a small time.
        let comparison = compare(&[transfer(0.1)], &[transfer(0.3)], &CompareOptions::default()).unwrap();
        let text = render_comparison(&comparison, &Default::default());
        assert!(text.contains("added latency unchanged (+200.0 µs)"), "{text}");
    }

    #[test]
    fn what_is_not_known_is_not_called_unchanged() {
        let comparison = compare(&[transfer(60.0)], &[transfer(80.0)], &CompareOptions::default()).unwrap();
        let text = render_comparison(&comparison, &Default::default()).replace('\n', " ");
        assert!(text.starts_with("UNCHANGED: rate 19.00 Mbit/s → 19.00 Mbit/s (+0.0 %"), "{text}");
        assert!(text.contains("added latency not decidable (-27.7 % to +"), "{text}");
        assert!(!text.contains("added latency unchanged"), "{text}");
    }

    #[test]
    fn a_share_that_the_printed_figures_do_not_have_says_what_it_is_of() {
        let run = |rates: [f64; 6]| {
            let mut run = transfer(0.0);
            let case = run.cases.remove(0);
            let parts = rates.map(|rate| {
                let mut part = case.figures.clone();
                part.delivery.throughput_bps = Some(rate * 1e6);
                PartResult::new(case.endpoint.as_str(), 1, part)
            });
            run.cases.push(CaseResult { repeats: parts.into(), ..case });
            run
        };
        let options = CompareOptions {
            pairing: Pairing::Interleaved,
            metrics: vec!["rate".parse().unwrap()],
            ..CompareOptions::default()
        };
        let line = |a: [f64; 6], b: [f64; 6]| {
            let text =
                render_comparison(&compare(&[run(a)], &[run(b)], &options).unwrap(), &Default::default());
            text.replace('\n', " ")
        };
        let drifting = [10.0, 20.0, 40.0, 80.0, 160.0, 320.0];
        let faster = drifting.map(|rate| rate * 1.5);
        assert!(line(drifting, faster).contains("(+50.0 %, 95 % CI"), "{}", line(drifting, faster));
        // Each pair but one is faster by half; the medians differ by less.
        let text = line(drifting, [15.0, 30.0, 60.0, 20.0, 240.0, 480.0]);
        assert!(
            text.contains(" % in pairs, medians ") && text.contains("In pairs: the middle change"),
            "{text}"
        );
    }
}
