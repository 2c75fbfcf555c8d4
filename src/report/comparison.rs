//! A comparison as text for a terminal, with the wording that the page (`overlay`) shares.
//!
//! `verdict` does the comparing.

use super::wording::{ABSENT, printable, shorten, to_ascii, wrap};
use crate::units::format_bytes;
use crate::verdict::{
    CaseKey, MIN_REPETITIONS, MetricComparison, RunComparison, SIGNIFICANCE_LEVEL, Verdict,
};

/// Maximum width of an endpoint in a heading.
const MAX_ENDPOINT_COLUMNS: usize = 44;
const LINE_COLUMNS: usize = 80;

/// The whole comparison for a terminal. `unicode` as in [`super::ReportOptions`].
pub fn render_comparison(comparison: &RunComparison, unicode: bool) -> String {
    let set = |ids: &[String]| match ids {
        [id] => printable(id),
        ids => format!("{} runs, {} to {}", ids.len(), printable(&ids[0]), printable(&ids[ids.len() - 1])),
    };
    let mut text = format!("A: {}\nB: {}\n", set(&comparison.a), set(&comparison.b));
    for compared in &comparison.cases {
        text += &render_metric(compared);
    }
    for (side, names) in [("A", &comparison.only_a), ("B", &comparison.only_b)] {
        for case in names {
            text += &format!("\nonly in {side}: {}\n", case_name(case, MAX_ENDPOINT_COLUMNS));
        }
    }
    text.push('\n');
    for sentence in verdict_legend(comparison) {
        text += &wrap(&sentence, LINE_COLUMNS, "  ", "  ");
    }
    for warning in &comparison.warnings {
        text +=
            &wrap(&printable(&warning.text), LINE_COLUMNS, &format!("\nwarning[{}]: ", warning.code), "    ");
        text += &wrap(&warning.remedy, LINE_COLUMNS, "  try: ", "    ");
    }
    if unicode { text } else { to_ascii(&text) }
}

/// Explains the verdicts.
pub fn verdict_legend(comparison: &RunComparison) -> Vec<String> {
    let margin = (comparison.margin * 1e3).round() / 10.0;
    let mut legend = vec![format!(
        "worse and better: p below {SIGNIFICANCE_LEVEL} and a shift of more than {margin} % of A's median; the shift is \
         between the repetitions, with its 95 % interval."
    )];
    if comparison.has_verdict(Verdict::TooFew) {
        legend.push(format!(
            "too few: a verdict needs {MIN_REPETITIONS} repetitions a side; --repeat 10 gives a good one."
        ));
    }
    legend
}

/// Endpoint, workload and distinguishing details. The endpoint has at most `width` characters.
pub fn case_name(case: &CaseKey, width: usize) -> String {
    let endpoint = shorten(&printable(&case.endpoint), width);
    let particulars = case_details(case.message_bytes, case.ports, case.parallel, &case.settings);
    format!("{endpoint}, {} {}{particulars}", printable(&case.workload), case.direction.name())
}

/// Details that distinguish a case from others at its endpoint: `, 14 B, 4 ports, spin`.
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

fn render_metric(compared: &MetricComparison) -> String {
    let mut text = format!("\n{}\n", case_name(&compared.case, MAX_ENDPOINT_COLUMNS));
    if let Some(other) = &compared.case_b {
        text += &format!("B: {}\n", shorten(&printable(&other.endpoint), 76));
    }
    let (a, b) = format_medians(compared);
    text += &format!("  {:8} A {a}   B {b}\n", compared.metric);
    let shift = format_shift(compared).map(|shift| format!("shift {shift}"));
    let facts = [
        Some(compared.verdict.label().to_owned()),
        shift,
        format_interval(compared),
        format_p_value(compared),
    ];
    text + &format!("  {:8} {}\n", "", facts.into_iter().flatten().collect::<Vec<_>>().join(", "))
}

fn format_value(compared: &MetricComparison, value: Option<f64>) -> String {
    match (value, compared.unit) {
        (Some(value), Some(unit)) => unit.format(value),
        _ => ABSENT.to_owned(),
    }
}

/// For both sides, with the number of repetitions: `100.9 µs (10)`.
pub fn format_medians(compared: &MetricComparison) -> (String, String) {
    let (a, b) = (&compared.a, &compared.b);
    let side = |median, repetitions| format!("{} ({repetitions})", format_value(compared, median));
    (side(a.median, a.repetitions), side(b.median, b.repetitions))
}

fn format_percent(share: f64) -> String {
    format!("{:+.1} %", share * 100.0)
}

/// `+20.0 %`; in the metric's unit if there is no relative shift.
pub fn format_shift(compared: &MetricComparison) -> Option<String> {
    compared.a.median?;
    let shift = compared.shift?;
    Some(compared.relative_shift.map_or_else(|| format_value(compared, Some(shift)), format_percent))
}

/// `+19.3 % to +20.7 %`.
pub fn format_interval(compared: &MetricComparison) -> Option<String> {
    let (median, interval) = (compared.a.median?, compared.shift_interval?);
    compared.relative_shift?;
    Some(format!("{} to {}", format_percent(interval.low / median), format_percent(interval.high / median)))
}

pub fn format_p_value(compared: &MetricComparison) -> Option<String> {
    compared.p.map(|p| if p < 0.001 { "p < 0.001".to_owned() } else { format!("p = {p:.3}") })
}
