//! A comparison as text for a terminal, with the wording that the page (`overlay`) shares.
//!
//! `verdict` does the comparing.

use super::ReportOptions;
use super::wording::{ABSENT, format_change, plural, printable, shorten, to_ascii, wrap};
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
    // What a line has for an endpoint: all but the details of its case.
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
        [Verdict::Worse, Verdict::Better, Verdict::NoDifferenceShown, Verdict::TooFew, Verdict::NotMeasured];
    let count = |verdict| comparison.cases.iter().filter(|compared| compared.verdict == verdict).count();
    let present: Vec<(Verdict, usize)> =
        all.into_iter().map(|verdict| (verdict, count(verdict))).filter(|(_, count)| *count > 0).collect();
    let Some((worst, _)) = present.first() else { return "Nothing to compare.".to_owned() };
    let counts: Vec<String> = present
        .iter()
        .map(|(verdict, count)| format!("{count} {}", verdict_word(*verdict).to_lowercase()))
        .collect();
    format!(
        "{}: {} of {}.",
        verdict_word(*worst),
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
        Verdict::Worse => 4,
        Verdict::Better => 3,
        Verdict::TooFew => 2,
        Verdict::NoDifferenceShown => 1,
        Verdict::NotMeasured => 0,
    };
    let size =
        |compared: &&MetricComparison| compared.relative_shift.map_or(0.0, |share| share.ln_1p().abs());
    // Of equals the first is named: it is the headline figure.
    let first = metrics.iter().rev().max_by(|a, b| {
        (importance(a), size(a)).partial_cmp(&(importance(b), size(b))).unwrap_or(std::cmp::Ordering::Equal)
    });
    let Some(first) = first else { return String::new() };
    let others = metrics.iter().filter(|other| other.metric != first.metric).map(|other| {
        let name = metric_label(&other.metric);
        let change = format_shift(other).map(|shift| format!(" ({shift})")).unwrap_or_default();
        match other.verdict {
            Verdict::NoDifferenceShown => format!("; {name} unchanged{change}"),
            Verdict::Worse | Verdict::Better => {
                let (before, after) =
                    (format_value(other, other.a.median), format_value(other, other.b.median));
                format!("; {name} {}: {before} → {after}{change}", other.verdict.label())
            }
            Verdict::TooFew => format!("; {name} not decidable{change}"),
            Verdict::NotMeasured => format!("; {name} not measured"),
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

fn verdict_word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Worse => "WORSE",
        Verdict::Better => "BETTER",
        Verdict::NoDifferenceShown => "NO CHANGE DETECTED",
        Verdict::TooFew => "NOT DECIDABLE",
        Verdict::NotMeasured => "NOT MEASURED",
    }
}

/// `WORSE: p50 100.9 µs → 121.1 µs (+20.0 %, 95 % CI +19.3 % to +20.7 %, p < 0.001, n = 10/10)`.
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
    let verdict = verdict_word(compared.verdict);
    format!("{verdict}: {} {before} → {after} ({})", metric_label(&compared.metric), facts.join(", "))
}

/// Explains the verdicts.
pub(crate) fn verdict_legend(comparison: &RunComparison) -> Vec<String> {
    let margin = (comparison.margin * 1e3).round() / 10.0;
    let mut legend = vec![format!(
        "Worse and better: p below {SIGNIFICANCE_LEVEL}, and a change of more than {margin} % of A's median."
    )];
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
    if comparison.has_verdict(Verdict::TooFew) {
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

/// For both sides, with the number of repetitions: `100.9 µs (10)`.
pub(crate) fn format_medians(compared: &MetricComparison) -> (String, String) {
    let (a, b) = (&compared.a, &compared.b);
    let side = |median, repetitions| format!("{} ({repetitions})", format_value(compared, median));
    (side(a.median, a.repetitions), side(b.median, b.repetitions))
}

fn format_percent(share: f64) -> String {
    format!("{:+.1} %", share * 100.0)
}

/// `+20.0 %`; in the metric's unit if there is no relative shift.
pub(crate) fn format_shift(compared: &MetricComparison) -> Option<String> {
    compared.a.median?;
    let shift = compared.shift?;
    Some(compared.relative_shift.map_or_else(|| format_value(compared, Some(shift)), format_percent))
}

/// `+19.3 % to +20.7 %`.
pub(crate) fn format_interval(compared: &MetricComparison) -> Option<String> {
    let interval = compared.relative_shift_interval?;
    Some(format!("{} to {}", format_percent(interval.low), format_percent(interval.high)))
}

pub(crate) fn format_p_value(compared: &MetricComparison) -> Option<String> {
    compared.p.map(|p| if p < 0.001 { "p < 0.001".to_owned() } else { format!("p = {p:.3}") })
}

#[cfg(test)]
mod tests {
    use linkgauge_model::run::{AddedLatency, Run};
    use linkgauge_model::stats::Interval;
    use linkgauge_model::verdict::{CompareOptions, compare};

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
        let around = |value: f64| Interval { low: value * 0.6, high: value * 1.4 };
        case.figures.intervals.insert("throughput_bps".to_owned(), around(19e6));
        case.figures.intervals.insert("added_p50_ns".to_owned(), around(added_ms * 1e6));
        run
    }

    #[test]
    fn the_first_line_names_the_change() {
        let comparison = compare(&[transfer(102.0)], &[transfer(12.9)], &CompareOptions::default()).unwrap();
        let text = render_comparison(&comparison, &Default::default());
        let first = text.lines().take(2).collect::<Vec<_>>().join(" ");
        assert!(first.starts_with("BETTER: added latency 102.0 ms → 12.90 ms (-87.4 %"), "{text}");
        assert!(text.contains("rate unchanged"), "{text}");
    }
}
