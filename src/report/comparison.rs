//! A comparison in words: lines for a terminal, and the same words for the page (`overlay`).
//!
//! Not for comparing: `verdict`.

use super::words::{ABSENT, plain, printable, shorten, wrap};
use crate::units::print_bytes;
use crate::verdict::{Compared, Comparison, FEWEST, Name, SIGNIFICANT, Verdict};

/// Of an endpoint in a heading.
const ENDPOINT: usize = 44;
const WIDTH: usize = 80;

/// The whole comparison for a terminal; `unicode` as in [`super::Options`].
pub fn comparison(comparison: &Comparison, unicode: bool) -> String {
    let set = |ids: &[String]| match ids {
        [id] => printable(id),
        ids => format!("{} runs, {} to {}", ids.len(), printable(&ids[0]), printable(&ids[ids.len() - 1])),
    };
    let mut text = format!("A: {}\nB: {}\n", set(&comparison.a), set(&comparison.b));
    for compared in &comparison.cases {
        text += &one(compared);
    }
    for (side, names) in [("A", &comparison.only_a), ("B", &comparison.only_b)] {
        for case in names {
            text += &format!("\nonly in {side}: {}\n", name(case, ENDPOINT));
        }
    }
    text.push('\n');
    for sentence in legend(comparison) {
        text += &wrap(&sentence, WIDTH, "  ", "  ");
    }
    for warning in &comparison.warnings {
        text += &wrap(&printable(&warning.text), WIDTH, &format!("\nwarning[{}]: ", warning.code), "    ");
        text += &wrap(&warning.remedy, WIDTH, "  try: ", "    ");
    }
    if unicode { text } else { plain(&text) }
}

/// What the verdicts mean.
pub fn legend(comparison: &Comparison) -> Vec<String> {
    let margin = (comparison.margin * 1e3).round() / 10.0;
    let mut legend = vec![format!(
        "worse and better: p below {SIGNIFICANT} and a shift of more than {margin} % of A's median; the shift is \
         between the repetitions, with its 95 % interval."
    )];
    if comparison.any(Verdict::TooFew) {
        legend.push(format!(
            "too few: a verdict needs {FEWEST} repetitions a side; --repeat 10 gives a good one."
        ));
    }
    legend
}

/// Endpoint, what is measured there, and what tells it from others; the endpoint at most `width` characters.
pub fn name(case: &Name, width: usize) -> String {
    let endpoint = shorten(&printable(&case.endpoint), width);
    let particulars = particulars(case.message_bytes, case.ports, case.parallel, &case.settings);
    format!("{endpoint}, {} {}{particulars}", printable(&case.workload), case.direction.name())
}

/// What tells a case from others at its endpoint: `, 14 B, 4 ports, spin`.
pub fn particulars(message_bytes: u32, ports: u32, parallel: u32, settings: &str) -> String {
    let mut words = Vec::new();
    // An imported file need not tell the size.
    if message_bytes > 0 {
        words.push(print_bytes(message_bytes.into()));
    }
    let several = [(ports, "ports"), (parallel, "connections")].into_iter().filter(|(number, _)| *number > 1);
    words.extend(several.map(|(number, what)| format!("{number} {what}")));
    words.push(printable(settings));
    words.iter().filter(|word| !word.is_empty()).map(|word| format!(", {word}")).collect()
}

fn one(compared: &Compared) -> String {
    let mut text = format!("\n{}\n", name(&compared.case, ENDPOINT));
    if let Some(other) = &compared.case_b {
        text += &format!("B: {}\n", shorten(&printable(&other.endpoint), 76));
    }
    let (a, b) = medians(compared);
    text += &format!("  {:8} A {a}   B {b}\n", compared.metric);
    let shift = shift(compared).map(|shift| format!("shift {shift}"));
    let facts = [Some(compared.verdict.words().to_owned()), shift, interval(compared), p(compared)];
    text + &format!("  {:8} {}\n", "", facts.into_iter().flatten().collect::<Vec<_>>().join(", "))
}

fn print(compared: &Compared, value: Option<f64>) -> String {
    match (value, compared.unit) {
        (Some(value), Some(unit)) => unit.print(value),
        _ => ABSENT.to_owned(),
    }
}

/// Of both sides, each with the number of its repetitions: `100.9 µs (10)`.
pub fn medians(compared: &Compared) -> (String, String) {
    let (a, b) = (&compared.a, &compared.b);
    let side = |median, repetitions| format!("{} ({repetitions})", print(compared, median));
    (side(a.median, a.repetitions), side(b.median, b.repetitions))
}

fn percent(share: f64) -> String {
    format!("{:+.1} %", share * 100.0)
}

/// `+20.0 %`; in the metric's unit where there is no share of anything.
pub fn shift(compared: &Compared) -> Option<String> {
    compared.a.median?;
    let shift = compared.shift?;
    Some(compared.relative_shift.map_or_else(|| print(compared, Some(shift)), percent))
}

/// `+19.3 % to +20.7 %`.
pub fn interval(compared: &Compared) -> Option<String> {
    let (median, interval) = (compared.a.median?, compared.shift_interval?);
    compared.relative_shift?;
    Some(format!("{} to {}", percent(interval.low / median), percent(interval.high / median)))
}

pub fn p(compared: &Compared) -> Option<String> {
    compared.p.map(|p| if p < 0.001 { "p < 0.001".to_owned() } else { format!("p = {p:.3}") })
}
