//! Statements of a study besides its figures, for a terminal and for the page.

use minijinja::context;
use minijinja::value::Value;

use super::INDENT;
use crate::report::layout::LineKind;
use crate::report::wording::{plural, printable, wrap};
use crate::report::{Detail, chart};
use linkgauge_model::run::{Run, StudyFact, StudyResult, StudyTable};

const COLUMN_GAP: &str = "  ";

/// The facts as lines for a terminal of that width; a summary only says that there are some.
pub(crate) fn fact_lines(paper: &StudyResult, detail: Detail, width: usize) -> Vec<(String, LineKind)> {
    let mut lines = Vec::new();
    if paper.facts.is_empty() {
        return lines;
    }
    lines.push((String::new(), LineKind::Row));
    if detail == Detail::Summary {
        let drawings = paper.facts.iter().filter(|fact| !fact.drawing.is_empty()).count();
        let text = format!(
            "Machines, versions and set-up of the study: {} and {}, with --all.",
            plural(paper.facts.len() - drawings, "table"),
            plural(drawings, "drawing")
        );
        push_wrapped(&mut lines, (&text, "", INDENT), width, LineKind::Row);
        return lines;
    }
    push_wrapped(
        &mut lines,
        ("Machines, versions and set-up of the study", "", INDENT),
        width,
        LineKind::Header,
    );
    for fact in &paper.facts {
        lines.push((String::new(), LineKind::Row));
        let heading = printable(&format!("{}: {}", fact.of, fact.title));
        push_wrapped(&mut lines, (&heading, "", INDENT), width, LineKind::Header);
        lines.extend(aligned_rows(fact, width).unwrap_or_else(|| wrapped_rows(fact, width)));
        // A drawing is of no use in parts.
        let drawing = || fact.drawing.lines().map(|line| format!("{INDENT}{}", printable(line)));
        if drawing().all(|line| line.chars().count() <= width) {
            lines.extend(drawing().map(|line| (line, LineKind::Row)));
        }
    }
    lines
}

fn push_wrapped(
    lines: &mut Vec<(String, LineKind)>,
    (text, first, rest): (&str, &str, &str),
    width: usize,
    kind: LineKind,
) {
    lines.extend(wrap(text, width, first, rest).lines().map(|line| (line.to_owned(), kind)));
}

/// The rows in columns; `None` if they do not fit.
fn aligned_rows(fact: &StudyFact, width: usize) -> Option<Vec<(String, LineKind)>> {
    let all: Vec<Vec<String>> = std::iter::once(&fact.head)
        .chain(&fact.rows)
        .map(|row| row.iter().map(|cell| printable(cell)).collect())
        .collect();
    let column_width = |column: usize| {
        all.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..fact.head.len()).map(column_width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        format!("{INDENT}{}", cells.collect::<Vec<_>>().join(COLUMN_GAP)).trim_end().to_owned()
    };
    let lines: Vec<String> = all.iter().filter(|row| !row.is_empty()).map(line).collect();
    let kinds = std::iter::once(LineKind::Header).chain(std::iter::repeat(LineKind::Row));
    lines.iter().all(|line| line.chars().count() <= width).then(|| lines.iter().cloned().zip(kinds).collect())
}

/// Rows of a fact, each as a sentence.
fn wrapped_rows(fact: &StudyFact, width: usize) -> Vec<(String, LineKind)> {
    let mut lines = Vec::new();
    for row in &fact.rows {
        let Some((first, rest)) = row.split_first() else { continue };
        let text = format!("{first}: {}", rest.join("; "));
        push_wrapped(&mut lines, (&text, INDENT, "    "), width, LineKind::Row);
    }
    lines
}

/// The facts for the template.
pub(crate) fn fact_contexts(paper: &StudyResult) -> Vec<Value> {
    let fact = |fact: &StudyFact| {
        context! {
            of => fact.of.clone(), title => fact.title.clone(), head => fact.head.clone(), rows => fact.rows.clone(),
            drawing => fact.drawing.clone(), picture => picture_context(&fact.drawing),
        }
    };
    paper.facts.iter().map(fact).collect()
}

/// Width of a character, height of a row and of a box, and space between boxes, in SVG units.
const CHARACTER: usize = 8;
const ROW: usize = 44;
const BOX: usize = 28;
const GAP: usize = 36;
/// Rows and parts of a picture: a bound for malicious documents.
const MAX_PICTURE_PARTS: usize = 32;

/// The geometry of a drawing whose lines are parts joined by `--` (wire) or `~` (radio), after a label and before a remark, which two
/// spaces separate; `None` for others.
fn picture_context(drawing: &str) -> Option<Value> {
    let mut rows = Vec::new();
    let mut width = 0;
    for (index, line) in drawing.lines().take(MAX_PICTURE_PARTS).enumerate() {
        let columns = line.trim().split("  ").map(str::trim).filter(|column| !column.is_empty());
        let columns: Vec<&str> = columns.collect();
        let joined = |column: &&str| column.contains(" -- ") || column.contains(" ~ ");
        let (mut parts, mut texts, mut left) = (Vec::new(), Vec::new(), 1);
        for column in &columns {
            if !joined(column) {
                texts.push(context! { x => left, text => *column });
                left += CHARACTER * column.chars().count() + GAP;
                continue;
            }
            let wired = column.replace(" ~ ", " -- ~");
            for part in wired.split(" -- ").take(MAX_PICTURE_PARTS) {
                let name = part.trim_start_matches('~');
                let wide = CHARACTER * (name.chars().count() + 2);
                let is_radio = part.starts_with('~');
                parts.push(context! { x => left, middle => left + wide / 2, wide => wide, text => name, radio => is_radio });
                left += wide + GAP;
            }
        }
        // A line at the edge of a box stays visible.
        width = width.max((left + 1).saturating_sub(GAP));
        rows.push(context! { y => index * ROW, parts => parts, texts => texts });
    }
    let is_picture = drawing.lines().any(|line| line.contains(" -- ") || line.contains(" ~ "));
    is_picture.then(|| {
        context! { width => width, height => rows.len() * ROW, rows => rows, gap => GAP, box => BOX }
    })
}

/// The charts that combine tables and have this one last.
pub(crate) fn combined_charts(run: &Run, paper: &StudyResult, table: &StudyTable) -> Vec<chart::Chart> {
    let ends_here = |tables: &[String]| tables.last() == Some(&table.number);
    let combined = paper.charts.iter().filter(|chart| ends_here(&chart.tables)).filter_map(|chart| {
        let parts = paper.tables.iter().filter(|table| chart.tables.contains(&table.number));
        let table = StudyTable {
            number: chart.of.clone(),
            title: format!("{}: {}", chart.of, chart.title),
            rows_are: chart.rows_are.clone(),
            rows: parts.flat_map(|table| table.rows.iter().cloned()).collect(),
        };
        chart::study_chart(run, &table)
    });
    combined.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample_runs;

    fn text(detail: Detail, width: usize) -> String {
        let run = sample_runs::study();
        let lines = fact_lines(run.study.as_ref().unwrap(), detail, width);
        lines.into_iter().map(|(line, _)| line).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn facts_are_tables_and_drawings() {
        insta::assert_snapshot!(text(Detail::Full, 80), @r"

        Machines, versions and set-up of the study

        Table 4: Products
          product  firmware
          STS1600  1.4.4, the one for sixteen ports
          LS100    1.4.4

        Figure 1: A box in use
          PC -- box -- device
        ");
        insta::assert_snapshot!(text(Detail::Full, 40), @r"

        Machines, versions and set-up of the
          study

        Table 4: Products
          STS1600: 1.4.4, the one for sixteen
            ports
          LS100: 1.4.4

        Figure 1: A box in use
          PC -- box -- device
        ");
        assert!(!text(Detail::Full, 20).contains("PC --"), "a drawing that does not fit is left out");
    }

    #[test]
    fn a_drawing_of_parts_has_a_picture() {
        let picture = picture_context("radio  PC ~ box -- device  far").unwrap();
        let row = picture.get_attr("rows").unwrap().get_item_by_index(0).unwrap();
        let parts = row.get_attr("parts").unwrap();
        let texts: Vec<String> =
            parts.try_iter().unwrap().map(|part| part.get_attr("text").unwrap().to_string()).collect();
        assert_eq!(texts, ["PC", "box", "device"]);
        assert!(parts.get_item_by_index(1).unwrap().get_attr("radio").unwrap().is_true());
        assert_eq!(row.get_attr("texts").unwrap().len(), Some(2));
        assert!(picture_context("a table\nof words").is_none());
    }

    #[test]
    fn a_summary_names_the_flag() {
        let text = text(Detail::Summary, 80);
        assert_eq!(
            text.trim(),
            "Machines, versions and set-up of the study: 1 table and 1 drawing, with --all."
        );
    }

    #[test]
    fn a_chart_combines_tables() {
        let mut run = sample_runs::study();
        let chart = linkgauge_model::run::StudyChart {
            of: "Figure 4".to_owned(),
            title: "All latencies".to_owned(),
            rows_are: "product".to_owned(),
            tables: vec!["6".to_owned()],
        };
        let paper = run.study.as_mut().unwrap();
        paper.charts = vec![chart];
        let paper = run.study.clone().unwrap();
        let titles = |index: usize| {
            let charts = combined_charts(&run, &paper, &paper.tables[index]);
            charts.into_iter().map(|chart| chart.title).collect::<Vec<_>>()
        };
        assert_eq!(titles(0), ["Figure 4: All latencies: open as published, filled as measured"]);
        assert!(titles(1).is_empty());
    }
}
