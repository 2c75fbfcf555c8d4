//! The short report: the answer, one table, and the notes that change how the figures are to be read.

use super::{BOLD, INDENT, LABEL_COLUMNS, TextReport, WarningGroup, YELLOW, group_warnings};
use crate::report::explain::push_block;
use crate::report::flows::flows_text;
use crate::report::layout::CaseNumbers;
use crate::report::mesh;
use crate::report::overview;
use crate::report::path::{hop_lines, is_path, limited_note, queue_sentence};
use crate::report::presentation::{
    IDLE_AND_LOADED, LOADED, LOWEST_AND_LOADED, differ_in_direction, filled_figure_table, is_latency,
    reason_without_result, run_answer,
};
use crate::report::sparkline::case_sparkline;
use crate::report::study;
use crate::report::table::build_tables;
use crate::report::wording::{format_case_list, one_way_sentence, per_run_text, printable};
use anstyle::Style;
use linkgauge_model::run::{CaseResult, MeshResult, Run, Warning, WarningCode};

/// Maximum number of notes; more would hide the figures.
const MAX_NOTES: usize = 3;

/// Warnings in the order of their importance: wrong figures, then figures of something else than the link, then imprecise ones.
/// Codes without a place stand in the middle.
static IMPORTANT: [WarningCode; 12] = [
    WarningCode::ImplausibleReport,
    WarningCode::Unconfirmed,
    WarningCode::LoadStalled,
    WarningCode::HostBusy,
    WarningCode::Early,
    WarningCode::Corrupt,
    WarningCode::LostBytes,
    WarningCode::BeyondLine,
    WarningCode::LineErrors,
    WarningCode::ReceiverSocketDrops,
    WarningCode::MissedSends,
    WarningCode::DefaultRate,
];
static UNIMPORTANT: [WarningCode; 6] = [
    WarningCode::SlowStart,
    WarningCode::Drift,
    WarningCode::FewSamples,
    WarningCode::InsideThisMachine,
    WarningCode::Unavailable,
    WarningCode::Interrupted,
];

/// Warnings that do not change how the minimum and the median of a few round trips are to be read.
static OF_TAIL: [WarningCode; 4] =
    [WarningCode::HostBusy, WarningCode::NearOverhead, WarningCode::SlowStart, WarningCode::Drift];

/// Whether there are so few round trips that the median is their only percentile.
fn has_no_tail(case: &CaseResult) -> bool {
    let times = case.figures.times.latency_ns.as_ref();
    is_latency(case) && times.is_some_and(|times| times.percentiles.keys().all(|name| name == "p50"))
}

fn rank(code: &WarningCode) -> usize {
    let middle = IMPORTANT.len();
    let late = UNIMPORTANT.iter().position(|other| other == code).map(|at| middle + 1 + at);
    IMPORTANT.iter().position(|other| other == code).or(late).unwrap_or(middle)
}

/// Titles of the columns whose figures the answer has.
const ANSWER_COLUMNS: [&str; 5] = ["rate", "p50", IDLE_AND_LOADED, LOWEST_AND_LOADED, LOADED];

impl TextReport {
    pub(crate) fn render_summary(mut self, run: &Run) -> String {
        if overview::replaces_tables(run) {
            return self.render_overview(run);
        }
        self.push_answer(run);
        if let Some(mesh) = &run.mesh {
            self.push_mesh(run, mesh);
            self.push_status(run);
            return self.out;
        }
        match (&run.study, run.cases.as_slice()) {
            (Some(paper), _) => self.push_study(run, paper),
            (None, [case]) => {
                self.push_figures(&run.cases);
                // A few probes have no distribution.
                if !is_path(case) {
                    self.push_case_sparkline(case);
                }
                self.push_flows(case);
                self.push_one_way(case);
            }
            (None, cases) if differ_in_direction(cases) => self.push_figures(cases),
            (None, _) => self.push_tables(run),
        }
        run.cases.iter().for_each(|case| self.push_path(case));
        self.push_important_notes(run);
        self.push_thresholds(run);
        self.push_status(run);
        self.out
    }

    /// The first line of every report.
    pub(crate) fn push_answer(&mut self, run: &Run) {
        let title = run.title.as_deref().map_or(String::new(), |title| format!("{}: ", printable(title)));
        let answer = match (&run.study, &run.mesh) {
            (Some(paper), _) => study::answer(paper),
            (None, Some(mesh)) => mesh::answer(run, mesh),
            (None, None) => run_answer(run),
        };
        for line in self.options.format_answer(&format!("{title}{answer}")).lines() {
            self.push_line(line, BOLD);
        }
    }

    /// The pairs of a mesh.
    pub(crate) fn push_mesh(&mut self, run: &Run, mesh: &MeshResult) {
        let options = self.options;
        for block in mesh::blocks(run, mesh, (options.detail, self.width)) {
            push_block(&block, &options, &mut self.out);
        }
    }

    /// The figures of a single case or of several directions, these with the rate over time.
    fn push_figures(&mut self, cases: &[CaseResult]) {
        let mut rows = filled_figure_table(cases);
        if cases.len() + 1 == rows.len() && cases.len() > 1 {
            let charts =
                cases.iter().map(|case| case_sparkline(case).map_or(String::new(), |chart| chart.glyphs));
            let charts = std::iter::once(String::new()).chain(charts);
            rows.iter_mut().zip(charts).for_each(|(row, chart)| row.push(chart));
        }
        let mut columns: Vec<usize> = (0..rows[0].len()).collect();
        if columns.len() < 2 {
            return;
        }
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let label_columns = width(0).max(LABEL_COLUMNS);
        let used = |columns: &[usize]| {
            INDENT.len() + label_columns + columns[1..].iter().map(|column| width(*column) + 2).sum::<usize>()
        };
        while used(&columns) > self.width && columns.len() > 2 {
            // What the answer says is shown as long as there is room for anything beside it.
            let is_of_answer = |column: &usize| ANSWER_COLUMNS.contains(&rows[0][*column].as_str());
            let last = columns.iter().rposition(|column| !is_of_answer(column)).filter(|&at| at > 0);
            columns.remove(last.unwrap_or(columns.len() - 1));
        }
        for (index, row) in rows.iter().enumerate() {
            let cells = columns[1..].iter().map(|&column| format!("  {:>1$}", row[column], width(column)));
            let line = format!("{INDENT}{:label_columns$}{}", row[0], cells.collect::<String>());
            self.push_line(line.trim_end(), if index == 0 { Style::new().dimmed() } else { Style::new() });
        }
    }

    fn push_case_sparkline(&mut self, case: &CaseResult) {
        let per_run = per_run_text(case).map_or(String::new(), |text| format!("   {text}"));
        let indent = format!("{INDENT}{:LABEL_COLUMNS$}  ", "");
        match case_sparkline(case) {
            Some(chart) => {
                let line = format!("{indent}{}  {}", chart.glyphs, chart.range);
                let whole = format!("{line}{per_run}");
                let fits = |line: &str| line.chars().count() <= self.width;
                let shown = if fits(&whole) {
                    whole
                } else if fits(&line) {
                    line
                } else {
                    indent + &chart.glyphs
                };
                self.push_line(shown.trim_end(), Style::new());
            }
            None if !per_run.is_empty() => {
                self.push_line(&format!("{indent}{}", per_run.trim_start()), Style::new())
            }
            None => {}
        }
    }

    fn push_flows(&mut self, case: &CaseResult) {
        if let Some(text) = flows_text(case) {
            let indent = format!("{INDENT}{:LABEL_COLUMNS$}  ", "");
            self.push_paragraph(&text, Style::new(), &indent, &indent);
        }
    }

    /// Adds the one-way delays, which are measured on request.
    fn push_one_way(&mut self, case: &CaseResult) {
        if let Some(text) = one_way_sentence(case).filter(|_| is_latency(case)) {
            let indent = format!("{INDENT}{:LABEL_COLUMNS$}  ", "");
            self.push_paragraph(&text, Style::new(), &indent, &indent);
        }
    }

    /// The place of the queue, the hops of the path, and how to read those that answer little.
    pub(crate) fn push_path(&mut self, case: &CaseResult) {
        let Some(path) = &case.path else { return };
        if let Some(text) = queue_sentence(case) {
            self.push_paragraph(&text, BOLD, "", INDENT);
        }
        for (index, line) in hop_lines(path, self.width - INDENT.len()).iter().enumerate() {
            let style = if index == 0 { Style::new().dimmed() } else { Style::new() };
            self.push_line(&format!("{INDENT}{line}"), style);
        }
        if let Some(note) = limited_note(path) {
            self.push_note("note", &note, YELLOW);
        }
    }

    /// The tables of the workloads, without the columns that need an explanation.
    fn push_tables(&mut self, run: &Run) {
        for mut table in build_tables(run) {
            self.out.push('\n');
            table.drop_extra_columns();
            table.drop_detail_columns();
            self.push_table(table, CaseNumbers::for_cases(run.cases.len()));
        }
    }

    fn push_important_notes(&mut self, run: &Run) {
        let mut groups = group_warnings(run);
        // The status line states this.
        groups.retain(|group| group.warning.code != WarningCode::Interrupted);
        // The answer states this.
        if run.cases.len() == 1 && reason_without_result(&run.cases[0]).is_some() {
            groups.retain(|group| group.warning.code != WarningCode::Incomplete);
        }
        if !run.cases.is_empty() && run.cases.iter().all(has_no_tail) {
            groups.retain(|group| !OF_TAIL.contains(&group.warning.code));
        }
        groups.sort_by_key(|group| rank(&group.warning.code));
        // Tables end with rows of many columns, which a note would touch.
        if run.cases.len() > 1 && !groups.is_empty() {
            self.out.push('\n');
        }
        for group in groups.iter().take(MAX_NOTES) {
            self.push_warning_note(run, group);
        }
        if let Some(more @ 1..) = groups.len().checked_sub(MAX_NOTES) {
            let word = if more == 1 { "note" } else { "notes" };
            self.push_note("", &format!("{more} further {word}: --notes"), Style::new());
        }
    }

    fn push_warning_note(&mut self, run: &Run, group: &WarningGroup) {
        let Warning { text, remedy, .. } = group.warning;
        let of = match (group.cases.is_empty() || run.cases.len() == 1, group.differ) {
            (true, _) => String::new(),
            (false, false) => format!("{}: ", format_case_list(&group.cases)),
            (false, true) => format!("{}, first: ", format_case_list(&group.cases)),
        };
        let remedy = if remedy.is_empty() { String::new() } else { format!(". Try: {remedy}") };
        let text = printable(&format!("{of}{}{remedy}", text.trim_end_matches('.')));
        self.push_note("note", &text, YELLOW);
    }
}
