//! Reports: a run document as text for a terminal, as JSON, as CSV or as one HTML page.
//!
//! Reports compute no statistics that the run lacks, except the line fits, which `explain` computes. They do not
//! access the terminal or the environment: the caller supplies width, colours and destination.
//!
//! A run may come from a foreign file, so every text in it is treated as hostile.

use std::io;

use linkgauge_model::run::Run;

mod chart;
mod column;
mod comparison;
pub(crate) mod csv;
mod explain;
mod explanation;
mod flows;
pub(crate) mod hdr;
mod history;
pub(crate) mod html;
pub(crate) mod json;
pub(crate) mod junit;
mod layout;
mod mesh;
pub(crate) mod netio;
mod overlay;
mod overview;
mod path;
mod presentation;
pub(crate) mod prometheus;
mod rate_explanation;
mod sparkline;
pub(crate) mod study;
mod svg;
mod table;
pub(crate) mod text;
mod wording;

#[cfg(test)]
#[path = "../../../model/src/run/sample_runs.rs"]
pub(crate) mod sample_runs;

pub use chart::history::{HistoryChange, HistoryTrend};
pub use comparison::{case_details, render_comparison};
pub use csv::csv_tables;
pub use explain::write_findings;
pub use explanation::{write_explanation, write_explanation_page};
pub use history::write_history;
pub use json::escape_json;
pub use linkgauge_model::sample::decode_figures_histogram;
pub use overlay::{MAX_RUN_GROUPS, RunGroup, write_overlay};
pub use presentation::{case_sentence, measures_rate};
pub use rate_explanation::{write_rate_explanation, write_rate_explanation_page};
pub use sparkline::sparkline_glyphs;
pub use study::{statement_verdict, statements_summary};
pub use wording::{is_unprintable, printable, shorten, to_ascii, wrap};

/// The JSON Schema of the run document.
pub const RUN_SCHEMA: &str = include_str!("../../../../schema/run.v1.json");

/// The JSON schema of the explanation of a link.
pub const EXPLANATION_SCHEMA: &str = include_str!("../../../../schema/explain.v1.json");

/// The JSON schema of the explanation of a throughput.
pub const RATE_EXPLANATION_SCHEMA: &str = include_str!("../../../../schema/explain-throughput.v1.json");

/// Amount of detail of a text report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Detail {
    /// The answer, a table, and the notes that change how the figures are to be read.
    #[default]
    Summary,
    /// All figures, notes and details.
    Full,
}

/// Options of the reports. Each format uses those that apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReportOptions {
    /// Whether to use ANSI colours (text).
    pub colour: bool,
    /// Columns of the terminal, at least 40 (text).
    pub width: usize,
    /// Whether `µ`, `–` and similar characters can be displayed (text).
    pub unicode: bool,
    /// The first sentence stays on one line, for programs that read lines (text).
    pub keeps_answer_whole: bool,
    /// Amount of detail (text).
    pub detail: Detail,
}

impl Default for ReportOptions {
    fn default() -> ReportOptions {
        ReportOptions::PLAIN
    }
}

impl ReportOptions {
    /// The default: a summary in 80 columns without colours.
    pub const PLAIN: ReportOptions = ReportOptions {
        colour: false,
        width: 80,
        unicode: true,
        keeps_answer_whole: false,
        detail: Detail::Summary,
    };

    /// The first line of a report: the answer. On a terminal it may become several.
    pub fn format_answer(&self, answer: &str) -> String {
        let width = if self.keeps_answer_whole { usize::MAX } else { self.width };
        wording::wrap(answer, width, "", "  ")
    }
}

/// An output format of a run.
#[derive(Debug)]
pub struct ReportFormat {
    /// Name for `--format`.
    pub name: &'static str,
    /// Description for `--help`, one line.
    pub summary: &'static str,
    /// File extension without the dot.
    pub extension: &'static str,
    /// Writes the whole report. Fails only if the sink fails.
    pub write: fn(&Run, &ReportOptions, &mut dyn io::Write) -> io::Result<()>,
}
