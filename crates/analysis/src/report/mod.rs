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
mod csv;
mod explain;
mod explanation;
mod flows;
mod history;
mod html;
mod json;
mod junit;
mod layout;
mod mesh;
mod netio;
mod overlay;
mod overview;
mod path;
mod presentation;
mod rate_explanation;
mod sparkline;
mod study;
mod svg;
mod table;
mod text;
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
pub use wording::{is_unprintable, printable, shorten, to_ascii, wrap};

/// The JSON Schema of the run document.
pub const RUN_SCHEMA: &str = include_str!("../../../../schema/run.v1.json");

/// The JSON schema of the explanation of a link.
pub const EXPLANATION_SCHEMA: &str = include_str!("../../../../schema/explain.v1.json");

/// The JSON schema of the explanation of a throughput.
pub const RATE_EXPLANATION_SCHEMA: &str = include_str!("../../../../schema/explain-throughput.v1.json");

/// How much a text report shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Detail {
    /// The answer, a table, and the notes that change how the figures are to be read.
    #[default]
    Summary,
    /// Everything.
    Full,
}

/// Options of the reports. Each format uses those that apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReportOptions {
    /// ANSI colours (text).
    pub colour: bool,
    /// Columns of the terminal, at least 40 (text).
    pub width: usize,
    /// True if `µ`, `–` and similar characters can be displayed (text).
    pub unicode: bool,
    /// The first sentence stays on one line, for programs that read lines (text).
    pub keeps_answer_whole: bool,
    /// Text.
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
    /// One line for `--help`.
    pub summary: &'static str,
    /// File extension without the dot.
    pub extension: &'static str,
    /// Writes the whole report. Fails only if the sink fails.
    pub write: fn(&Run, &ReportOptions, &mut dyn io::Write) -> io::Result<()>,
}

/// All output formats.
pub static FORMATS: &[ReportFormat] = &[
    ReportFormat { name: "text", summary: "tables for a terminal", extension: "txt", write: text::write },
    ReportFormat {
        name: "json",
        summary: "the run document, whole (schema/run.v1.json)",
        extension: "json",
        write: json::write,
    },
    ReportFormat {
        name: "csv",
        summary: "one row per case, for spreadsheets",
        extension: "csv",
        write: |run, options, out| match &run.study {
            Some(study) => study::write_csv(run, study, out),
            None => csv::write(run, options, out),
        },
    },
    ReportFormat {
        name: "csv-repetitions",
        summary: "one row per repetition of each case",
        extension: "csv",
        write: csv::write_repetitions,
    },
    ReportFormat {
        name: "csv-ports",
        summary: "one row per port of each case",
        extension: "csv",
        write: csv::write_ports,
    },
    ReportFormat {
        name: "csv-series",
        summary: "one row per interval of each time series",
        extension: "csv",
        write: csv::write_series,
    },
    ReportFormat {
        name: "csv-hops",
        summary: "one row per hop of each path",
        extension: "csv",
        write: csv::write_hops,
    },
    ReportFormat {
        name: "html",
        summary: "one self-contained page with tables and charts",
        extension: "html",
        write: html::write,
    },
    ReportFormat {
        name: "netio",
        summary: "throughput as NETIO prints it, KByte of 1024",
        extension: "txt",
        write: netio::write,
    },
    ReportFormat {
        name: "junit",
        summary: "JUnit XML for CI: one test per case and per threshold",
        extension: "xml",
        write: junit::write,
    },
];

/// Finds the format of that name.
pub fn report_format(name: &str) -> Option<&'static ReportFormat> {
    FORMATS.iter().find(|format| format.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_writes_every_sample() {
        for format in FORMATS {
            for run in sample_runs::all_samples() {
                let mut out = Vec::new();
                (format.write)(&run, &ReportOptions::default(), &mut out).unwrap();
                let out = String::from_utf8(out).unwrap();
                assert!(out.ends_with('\n'), "{}", format.name);
            }
        }
    }

    /// What terminals obey, in every text of an untrusted document.
    #[test]
    fn no_format_passes_on_control_characters() {
        let unprintable = |text: &str| text.chars().find(|&c| c != '\n' && is_unprintable(c));
        for run in sample_runs::all_samples() {
            let text = serde_json::to_string(&run).unwrap();
            let hostile =
                text.replace("\\u001b[2J", "\\u001b[2J\\u009b31m\\u202e\\r\\u007f\\u2028\\ufeff\\b");
            let run = Run::from_json(&hostile).unwrap();
            for format in FORMATS {
                let mut out = Vec::new();
                (format.write)(&run, &ReportOptions::default(), &mut out).unwrap();
                assert_eq!(unprintable(&String::from_utf8(out).unwrap()), None, "{}", format.name);
            }
            let mut page = Vec::new();
            let named = RunGroup { name: "\u{1b}[2Ja\r", runs: std::slice::from_ref(&run) };
            write_overlay(&[named, named], None, &mut page).unwrap();
            assert_eq!(unprintable(&String::from_utf8(page).unwrap()), None, "an overlay");
        }
    }

    #[test]
    fn names_are_unique() {
        for (index, one) in FORMATS.iter().enumerate() {
            assert!(std::ptr::eq(report_format(one.name).unwrap(), &FORMATS[index]));
        }
        assert!(report_format("pdf").is_none());
    }

    #[test]
    fn a_full_disk_is_reported() {
        struct Full;
        impl io::Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::Error::from(io::ErrorKind::StorageFull))
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        for format in FORMATS {
            let error =
                (format.write)(&sample_runs::full(), &ReportOptions::default(), &mut Full).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{}", format.name);
        }
    }
}
