//! Prints findings on a terminal. `explain` makes them.

use std::io;

use anstyle::Style;

use super::wording::{printable, shorten, to_ascii, wrap};
use super::{Detail, ReportOptions};
use crate::explain::{Finding, FindingBlock};

const INDENT: &str = "  ";
/// Preferred space between two columns.
const COLUMN_GAP: usize = 2;
/// Minimum width of a name in the first column.
const MIN_NAME_COLUMNS: usize = 8;

/// Writes the findings below each other; with [`Detail::Summary`] their summaries, where they have one.
///
/// # Errors
///
/// Writing fails.
pub fn write_findings(
    findings: &[Finding],
    options: &ReportOptions,
    out: &mut dyn io::Write,
) -> io::Result<()> {
    let mut text = String::new();
    for (index, finding) in findings.iter().enumerate() {
        if index > 0 {
            text.push('\n');
        }
        let is_short = options.detail == Detail::Summary && !finding.summary.is_empty();
        let blocks = if is_short { &finding.summary } else { &finding.blocks };
        blocks.iter().for_each(|block| push_block(block, options, &mut text));
    }
    let text = if options.unicode { text } else { to_ascii(&text) };
    out.write_all(text.as_bytes())
}

pub(super) fn push_block(block: &FindingBlock, options: &ReportOptions, text: &mut String) {
    match block {
        FindingBlock::Heading(heading) if text.is_empty() => {
            text.push_str(&bold_line(&options.format_answer(&printable(heading)), options))
        }
        FindingBlock::Heading(heading) => {
            text.push_str(&bold_line(&wrap(&printable(heading), options.width, "", INDENT), options))
        }
        FindingBlock::Text(sentence) => {
            text.push_str(&wrap(&printable(sentence), options.width, INDENT, "    "))
        }
        FindingBlock::Table { text_columns: words, header: head, rows } => {
            if !text.ends_with("\n\n") {
                text.push('\n');
            }
            let all: Vec<Vec<String>> = std::iter::once(head)
                .chain(rows)
                .map(|cells| cells.iter().map(|cell| printable(cell)).collect())
                .collect();
            let (widths, gap) = fit_columns(&all, options.width.saturating_sub(INDENT.len()));
            for (index, cells) in all.iter().enumerate() {
                let line = format_line(cells, *words, &widths, gap);
                text.push_str(&if index == 0 { bold_line(&line, options) } else { line });
            }
            text.push('\n');
        }
    }
}

fn bold_line(line: &str, options: &ReportOptions) -> String {
    let style = Style::new().bold();
    if options.colour { format!("{style}{}{style:#}\n", line.trim_end()) } else { line.to_owned() }
}

/// Column widths and the space between columns. The names in the first column are shortened first.
fn fit_columns(all: &[Vec<String>], room: usize) -> (Vec<usize>, usize) {
    let columns = all.first().map_or(0, Vec::len);
    let widest = |column: usize| {
        all.iter().filter_map(|cells| cells.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let mut widths: Vec<usize> = (0..columns).map(widest).collect();
    let taken = |widths: &[usize], gap: usize| widths.iter().sum::<usize>() + gap * columns.saturating_sub(1);
    let gap = if taken(&widths, COLUMN_GAP) <= room { COLUMN_GAP } else { 1 };
    let above = taken(&widths, gap).saturating_sub(room);
    if let Some(names) = widths.first_mut() {
        *names = names.saturating_sub(above).max(MIN_NAME_COLUMNS.min(*names));
    }
    (widths, gap)
}

/// Formats a line. Text columns are left-aligned, figures right-aligned.
fn format_line(cells: &[String], words: usize, widths: &[usize], gap: usize) -> String {
    let mut line = INDENT.to_owned();
    for (index, (cell, &width)) in cells.iter().zip(widths).enumerate() {
        let cell = shorten(cell, width);
        line += &if index < words { format!("{cell:<width$}") } else { format!("{cell:>width$}") };
        line += &" ".repeat(gap);
    }
    line.trim_end().to_owned() + "\n"
}
