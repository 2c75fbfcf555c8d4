//! `reproduce --items`: everything that a study contains, with its counterparts.

use std::fmt::Write as _;

use anyhow::Result;
use linkgauge::report::{Detail, statements_summary, wrap};
use linkgauge::run::StudyStatement;
use linkgauge::study::{CaseOutcome, Counterparts, Item, Study, StudyLength};
use linkgauge::twin::{self, NO_TWIN};
use linkgauge::units::format_plural;

use super::super::output::{print_text, terminal_options};
use super::super::status::Status;
use super::twin::{align, statements_text};

/// Prints the items, each with its counterparts or the reason why it has none.
pub fn print_items(study: &Study) -> Result<Status> {
    let statements = judged_statements(study)?;
    let items: Vec<(&Item, Counterparts)> =
        study.items().iter().map(|item| (item, study.counterparts(item))).collect();
    let options = terminal_options();
    let text = format!(
        "{}\n{}{}",
        options.format_answer(&answer(study, &items, &statements)),
        item_table(&items, options.width),
        statements_text(&statements, Detail::Full, options.width)
    );
    print_text(|stdout| write!(stdout, "{text}"))?;
    Ok(Status::Complete)
}

/// The sentences of the study about figures, judged by the twins.
fn judged_statements(study: &Study) -> Result<Vec<StudyStatement>> {
    if study.statement_count() == 0 {
        return Ok(Vec::new());
    }
    let not_measured = |_: &_| CaseOutcome::NotMeasured(NO_TWIN.to_owned());
    let mut result = study.join_results(StudyLength::Full, &not_measured)?;
    twin::compare(study)?.fill(study, &mut result)?;
    Ok(result.statements)
}

fn answer(study: &Study, items: &[(&Item, Counterparts)], statements: &[StudyStatement]) -> String {
    let measurable = items.iter().filter(|(_, found)| found.figures > 0).count();
    let reasons = items.len() - measurable;
    let others = match reasons {
        0 => String::new(),
        1 => "; one has nothing to measure, with the reason".to_owned(),
        _ => format!("; {reasons} have nothing to measure, each with the reason"),
    };
    let statements = statements_summary(statements).map_or(String::new(), |summary| format!("; {summary}"));
    format!(
        "{}: {measurable} of {} have a twin, a cell of the lab and one for hardware{others}{statements}.",
        study.name,
        format_plural(items.len() as u64, "item")
    )
}

fn item_table(items: &[(&Item, Counterparts)], width: usize) -> String {
    let mut lines = vec![["item", "figures", "twin", "lab", "page"].map(str::to_owned)];
    let mut descriptions =
        vec!["what it is; --on for hardware, or the reason without a counterpart".to_owned()];
    for (item, found) in items {
        let count = |number: usize| if found.figures == 0 { "–".to_owned() } else { number.to_string() };
        let page = if found.on_page || found.figures > 0 { "yes" } else { "–" };
        lines.push([
            item.of.clone(),
            count(found.figures),
            count(found.twin),
            count(found.lab),
            page.to_owned(),
        ]);
        let more = match &item.none {
            Some(why) => why.clone(),
            None => format!("--on {}", found.hardware.join(", ")),
        };
        descriptions.push(format!("{}; {more}", item.is));
    }
    let columns = align(&lines, [false, true, true, true, false]);
    let start = columns.lines().map(|line| line.chars().count()).max().unwrap_or(0) + "  ".len();
    let mut text = String::new();
    for (columns, description) in columns.lines().zip(&descriptions) {
        let _ =
            write!(text, "{}", wrap(description, width, &format!("{columns:<start$}"), &" ".repeat(start)));
    }
    text
}
