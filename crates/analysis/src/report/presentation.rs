//! Presentation of each workload in reports: its columns, sentence, figures and charts. One entry per workload that differs from
//! plain round trips and plain rates.

use super::column::TableColumn;
use super::path::is_path;
use super::wording::{ABSENT, format_context, format_elapsed, link_and_target, plural, printable, wait_mode};
use linkgauge_engine::Registry;
use linkgauge_model::plan::Direction;
use linkgauge_model::run::{CaseResult, Run};

mod capacity;
mod connect;
mod download;
mod latency;
mod path;
mod responsiveness;
mod throughput;

pub(crate) use throughput::{IDLE_AND_LOADED, LOADED, LOWEST_AND_LOADED};

/// The figure that a workload is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MainFigure {
    RoundTrip,
    Rate,
}

/// A row of figures of a case.
pub struct FigureRow {
    /// Name of the figures; `None`: the main figures of the case.
    pub label: Option<&'static str>,
    /// Cells of the row, one per column of the workload.
    pub cells: Vec<String>,
}

/// The presentation of a workload.
pub struct Presentation {
    pub workload: &'static str,
    pub main_figure: MainFigure,
    /// Whether cases differ in their direction.
    pub(crate) has_direction: bool,
    /// Columns after those that describe the case.
    pub columns: &'static [TableColumn],
    /// Rows with those columns, the main one first.
    pub rows: fn(&CaseResult) -> Vec<FigureRow>,
    /// Unit of the number of messages: `requests`. `None`: the number is of no use.
    pub counted: Option<&'static str>,
    /// Measured quantity, before the endpoint: `round trip to`.
    pub subject: fn(&CaseResult) -> &'static str,
    /// The result in words: `13.6 µs median, 59.5 µs p99; no loss`.
    pub answer: fn(&CaseResult) -> String,
    /// The result of several cases in words: `p50 13.8 µs to 2.22 ms`. `None` without results.
    pub range: fn(&[&CaseResult]) -> Option<String>,
    /// The figures of a single case as a small table, header first.
    pub(crate) figure_table: fn(&CaseResult) -> Vec<Vec<String>>,
}

static PRESENTATIONS: [Presentation; 7] = [
    latency::PRESENTATION,
    throughput::PRESENTATION,
    responsiveness::PRESENTATION,
    capacity::PRESENTATION,
    download::PRESENTATION,
    connect::PRESENTATION,
    path::PRESENTATION,
];

/// The presentation of a workload. One without an entry is shown as round trips or as a rate. A foreign document may name an
/// unknown one, which is shown as a rate.
pub fn presentation(workload: &str) -> &'static Presentation {
    let own = PRESENTATIONS.iter().find(|one| one.workload == workload);
    own.unwrap_or_else(|| match Registry::standard().workload(workload) {
        Some(found) if found.is_round_trip() => &PRESENTATIONS[0],
        _ => &PRESENTATIONS[1],
    })
}

/// Whether the workload is about round trips, not about a rate.
pub(crate) fn is_latency(case: &CaseResult) -> bool {
    presentation(&case.workload).main_figure == MainFigure::RoundTrip
}

/// Whether the workload is about a rate.
pub fn measures_rate(workload: &str) -> bool {
    presentation(workload).main_figure == MainFigure::Rate
}

/// The title of a run: that of the user, or its content: `TCP latency to gw:7100, 2026-11-22`.
pub(crate) fn run_title(run: &Run) -> String {
    if let Some(title) = &run.title {
        return title.clone();
    }
    let content = match run.cases.as_slice() {
        [] => "Nothing measured".to_owned(),
        _ if run.mesh.is_some() => mesh_title(run),
        cases => {
            let mut names: Vec<&str> = cases.iter().map(|case| case.workload.as_str()).collect();
            names.sort_unstable();
            names.dedup();
            let (link, target) = link_and_target(&cases[0]);
            let is_same = |case: &CaseResult| link_and_target(case) == (link.clone(), target.clone());
            let more = match cases.len() {
                1 => String::new(),
                count if cases.iter().all(is_same) => format!(" ({count} cases)"),
                count => format!(" and more ({count} cases)"),
            };
            format!("{link} {} to {target}{more}", printable(&names.join(" and "))).trim_start().to_owned()
        }
    };
    format!("{content}, {}", run.started.strftime("%Y-%m-%d"))
}

fn mesh_title(run: &Run) -> String {
    format!("Mesh of {}", plural(run.mesh.as_ref().map_or(0, |mesh| mesh.hosts.len()), "host"))
}

/// One case in one sentence: `TCP round trip to gw:7100: 13.6 µs median, 59.5 µs p99; no loss.`
pub fn case_sentence(case: &CaseResult) -> String {
    format!("{}.", case_answer(case))
}

fn case_answer(case: &CaseResult) -> String {
    let shown = presentation(&case.workload);
    let (link, target) = link_and_target(case);
    let subject = format!("{link} {} {target}", (shown.subject)(case));
    let answer = match reason_without_result(case) {
        Some(_) if has_hops(case) => return (shown.answer)(case),
        Some(reason) => reason,
        None if case.complete || is_zero_import(case) => (shown.answer)(case),
        None => format!("{}; stopped early", (shown.answer)(case)),
    };
    // The answer names the host.
    if case.path.is_some() && is_path(case) {
        return answer;
    }
    format!("{}: {answer}", subject.trim_start())
}

/// Whether the case is a path on which routers replied, whether the host did or not.
fn has_hops(case: &CaseResult) -> bool {
    is_path(case) && case.path.as_ref().is_some_and(|path| !path.hops.is_empty())
}

/// Whether another program's test ran to its end, and a direction of it delivered nothing.
fn is_zero_import(case: &CaseResult) -> bool {
    let delivery = &case.figures.delivery;
    case.is_imported() && [delivery.delivered_bytes, delivery.delivered_reverse_bytes].contains(&Some(0))
}

/// Reason why a case has no result, without the endpoint, which the answer names. `None` if anything arrived.
pub(crate) fn reason_without_result(case: &CaseResult) -> Option<String> {
    let failure = case.failures.first().filter(|_| !case.has_arrivals())?;
    Some(printable(failure.reason(&case.endpoint).trim_end_matches('.')))
}

/// Whether these are several cases of throughput that differ only in their direction, each with one.
pub(crate) fn differ_in_direction(cases: &[CaseResult]) -> bool {
    let setup = |case: &CaseResult| {
        let CaseResult { endpoint, protocol, workload, message_bytes, ports, parallel, .. } = case;
        (
            endpoint.clone(),
            protocol.clone(),
            workload.clone(),
            *message_bytes,
            *ports,
            *parallel,
            wait_mode(case),
        )
    };
    let is_repeated =
        |index: usize| cases[..index].iter().any(|case| case.direction == cases[index].direction);
    cases.len() > 1
        && presentation(&cases[0].workload).has_direction
        && measures_rate(&cases[0].workload)
        && cases.iter().all(|case| setup(case) == setup(&cases[0]))
        && !(0..cases.len()).any(is_repeated)
}

/// The figures of a case, or of cases that differ only in their direction, without empty columns, header first.
pub(crate) fn filled_figure_table(cases: &[CaseResult]) -> Vec<Vec<String>> {
    let mut rows: Vec<Vec<String>> = Vec::new();
    for case in cases {
        let mut table = (presentation(&case.workload).figure_table)(case);
        if cases.len() > 1 && case.direction == Direction::Both {
            table[1..].iter_mut().for_each(|row| row[0] = format!("both: {}", row[0]));
        }
        rows.extend(table.drain(usize::from(!rows.is_empty())..));
    }
    let is_filled = |column: &usize| {
        *column == 0 || rows[1..].iter().any(|row| !["", ABSENT].contains(&row[*column].as_str()))
    };
    let columns: Vec<usize> = (0..rows[0].len()).filter(is_filled).collect();
    rows.iter().map(|row| columns.iter().map(|&column| row[column].clone()).collect()).collect()
}

/// The answer of a run in one sentence.
pub(crate) fn run_answer(run: &Run) -> String {
    match run.cases.as_slice() {
        [] => "Nothing was measured.".to_owned(),
        [case] if !case.figures.has_measurements() => case_sentence(case),
        [case] => format!(
            "{}. {}",
            case_answer(case),
            format_context(run, case, presentation(&case.workload).counted)
        ),
        cases if differ_in_direction(cases) => {
            let (link, target) = link_and_target(&cases[0]);
            let answer = throughput::directions_answer(cases);
            let subject = format!("{link} to {target}");
            format!("{}: {answer}. {}", subject.trim_start(), format_elapsed(run)).trim_end().to_owned()
        }
        cases => {
            let mut workloads: Vec<&str> = cases.iter().map(|case| case.workload.as_str()).collect();
            let mut seen = Vec::new();
            workloads.retain(|name| {
                !seen.contains(name) && {
                    seen.push(*name);
                    true
                }
            });
            let parts: Vec<String> = workloads.iter().map(|name| group_answer(cases, name)).collect();
            format!("{}. {}", parts.join("; "), format_elapsed(run)).trim_end().to_owned()
        }
    }
}

/// Answer such as `4 throughput cases: 310 Mbit/s to 41.3 Gbit/s`.
fn group_answer(cases: &[CaseResult], workload: &str) -> String {
    let group: Vec<&CaseResult> = cases.iter().filter(|case| case.workload == workload).collect();
    let range = (presentation(workload).range)(&group).unwrap_or_else(|| "nothing was measured".to_owned());
    let word = if group.len() == 1 { "case" } else { "cases" };
    format!("{} {} {word}: {range}", group.len(), printable(workload))
}

/// The smallest and the largest of the values, formatted: `1 ms to 2 ms`, or one of them if they are equal.
fn format_range(values: impl Iterator<Item = f64>, format: fn(f64) -> String) -> Option<String> {
    let (low, high) = values
        .filter(|value| value.is_finite())
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (value.min(low), value.max(high)));
    if low > high {
        return None;
    }
    let [low, high] = [low, high].map(format);
    Some(if low == high { low } else { format!("{low} to {high}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workloads_of_round_trips_are_shown_as_such() {
        for workload in Registry::standard().workloads.iter().filter(|workload| workload.is_round_trip()) {
            assert_eq!(presentation(workload.name).main_figure, MainFigure::RoundTrip, "{}", workload.name);
        }
        assert_eq!(presentation("of another program").workload, "throughput");
    }

    #[test]
    fn rows_have_a_cell_per_column() {
        for run in crate::report::sample_runs::all_samples() {
            for case in &run.cases {
                let shown = presentation(&case.workload);
                for row in (shown.rows)(case) {
                    assert_eq!(row.cells.len(), shown.columns.len(), "{}", case.workload);
                }
                let table = (shown.figure_table)(case);
                assert!(table.iter().all(|row| row.len() == table[0].len()), "{table:?}");
            }
        }
    }
}
