//! Sentences of a study about its figures, judged by the measured ones.

use minijinja::context;
use minijinja::value::Value;

use super::{INDENT, format_digits};
use crate::report::Detail;
use crate::report::layout::LineKind;
use crate::report::wording::{plural, printable, wrap};
use linkgauge_model::run::{StudyResult, StudyStatement};

/// Whether a sentence holds, with its value and bounds: `holds: 307.9 ms (270 to 330)`.
pub fn statement_verdict(statement: &StudyStatement) -> String {
    let number = |value: f64| format_digits(value, 0).replace('-', "−");
    let bounds = match (statement.least, statement.most) {
        (Some(least), Some(most)) => format!("{} to {}", number(least), number(most)),
        (Some(least), None) => format!("{} or more", number(least)),
        (None, Some(most)) => format!("{} or less", number(most)),
        (None, None) => "any".to_owned(),
    };
    let holds = if statement.holds { "holds" } else { "does not hold" };
    let fitted = if statement.fitted { ", fitted" } else { "" };
    format!("{holds}: {} {} ({bounds}{fitted})", number(statement.value), statement.unit)
}

/// How many sentences hold: `14 of 17 statements of the study hold`; `None` if no value judges one.
pub fn statements_summary(statements: &[StudyStatement]) -> Option<String> {
    let hold = statements.iter().filter(|statement| statement.holds).count();
    let fitted = statements.iter().filter(|statement| statement.fitted).count();
    let of_those = if fitted > 0 { format!(", {fitted} of them by construction") } else { String::new() };
    (!statements.is_empty())
        .then(|| format!("{hold} of {} of the study hold{of_those}", plural(statements.len(), "statement")))
}

/// The sentences as lines for a terminal of that width; a summary has only those that do not hold.
pub(super) fn statement_lines(paper: &StudyResult, detail: Detail, width: usize) -> Vec<(String, LineKind)> {
    let Some(summary) = statements_summary(&paper.statements) else { return Vec::new() };
    let mut lines = vec![(String::new(), LineKind::Row)];
    let more = if detail == Detail::Summary { " (all: --all)" } else { "" };
    let mut put = |text: &str, (first, rest): (&str, &str), kind| {
        lines.extend(wrap(text, width, first, rest).lines().map(|line| (line.to_owned(), kind)));
    };
    put(&format!("{summary}{more}"), ("", INDENT), LineKind::Header);
    for statement in paper.statements.iter().filter(|one| detail == Detail::Full || !one.holds) {
        let text = format!("{}: {}: {}", statement.of, statement.says, statement_verdict(statement));
        put(&printable(&text), (INDENT, "    "), LineKind::Row);
    }
    lines
}

/// The sentences for the template.
pub(super) fn statement_contexts(paper: &StudyResult) -> Vec<Value> {
    let statement = |statement: &StudyStatement| {
        context! {
            of => statement.of.clone(), says => statement.says.clone(), holds => statement.holds,
            verdict => statement_verdict(statement),
        }
    };
    paper.statements.iter().map(statement).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample_runs;

    fn paper() -> StudyResult {
        let statement = |says: &str, value, (least, most), holds| StudyStatement {
            of: "Footnote".to_owned(),
            says: says.to_owned(),
            value,
            unit: "times".to_owned(),
            least,
            most,
            holds,
            fitted: holds,
        };
        let mut paper = sample_runs::study().study.unwrap();
        paper.statements = vec![
            statement("about ten times", 10.0, (Some(8.0), Some(12.0)), true),
            statement("not slower", 1.2, (None, Some(1.0)), false),
        ];
        paper
    }

    #[test]
    fn a_summary_has_what_does_not_hold() {
        let text = |detail| {
            let lines = statement_lines(&paper(), detail, 80).into_iter();
            lines.map(|(line, _)| line).collect::<Vec<_>>().join("\n")
        };
        insta::assert_snapshot!(text(Detail::Summary), @r"

        1 of 2 statements of the study hold, 1 of them by construction (all: --all)
          Footnote: not slower: does not hold: 1.200 times (1 or less)
        ");
        assert!(text(Detail::Full).contains("about ten times: holds: 10 times (8 to 12, fitted)"));
        assert!(statement_lines(&sample_runs::study().study.unwrap(), Detail::Full, 80).is_empty());
    }
}
