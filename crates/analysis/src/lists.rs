//! The lists: every report format, every import format and every model. Code below this file reads none of them.

use crate::explain::{self, Model};
use crate::import::{self, ImportFormat};
use crate::report::{self, ReportFormat};

/// All output formats.
pub static REPORT_FORMATS: &[ReportFormat] = &[
    ReportFormat {
        name: "text",
        summary: "tables for a terminal",
        extension: "txt",
        write: report::text::write,
    },
    ReportFormat {
        name: "json",
        summary: "the run document, whole (schema/run.v1.json)",
        extension: "json",
        write: report::json::write,
    },
    ReportFormat {
        name: "csv",
        summary: "one row per case, for spreadsheets",
        extension: "csv",
        write: |run, options, out| match &run.study {
            Some(study) => report::study::write_csv(run, study, out),
            None => report::csv::write(run, options, out),
        },
    },
    ReportFormat {
        name: "csv-repetitions",
        summary: "one row per repetition of each case",
        extension: "csv",
        write: report::csv::write_repetitions,
    },
    ReportFormat {
        name: "csv-ports",
        summary: "one row per port of each case",
        extension: "csv",
        write: report::csv::write_ports,
    },
    ReportFormat {
        name: "csv-series",
        summary: "one row per interval of each time series",
        extension: "csv",
        write: report::csv::write_series,
    },
    ReportFormat {
        name: "csv-hops",
        summary: "one row per hop of each path",
        extension: "csv",
        write: report::csv::write_hops,
    },
    ReportFormat {
        name: "html",
        summary: "one self-contained page with tables and charts",
        extension: "html",
        write: report::html::write,
    },
    ReportFormat {
        name: "netio",
        summary: "throughput as NETIO prints it, KByte of 1024",
        extension: "txt",
        write: report::netio::write,
    },
    ReportFormat {
        name: "hdr",
        summary: "interval log of HdrHistogram: the round trips of each case",
        extension: "hlog",
        write: report::hdr::write,
    },
    ReportFormat {
        name: "prometheus",
        summary: "metrics for the textfile collector of node_exporter",
        extension: "prom",
        write: report::prometheus::write,
    },
    ReportFormat {
        name: "junit",
        summary: "JUnit XML for CI: one test per case and per threshold",
        extension: "xml",
        write: report::junit::write,
    },
];

/// The report format of that name.
pub fn report_format(name: &str) -> Option<&'static ReportFormat> {
    REPORT_FORMATS.iter().find(|format| format.name == name)
}

/// All import formats, in the order of the help.
pub static IMPORT_FORMATS: &[ImportFormat] = &[
    import::run::FORMAT,
    import::samples::FORMAT,
    import::csv::FORMAT,
    import::ping::FORMAT,
    import::iperf3::FORMAT,
    import::irtt::FORMAT,
    import::flent::FORMAT,
    import::k6::FORMAT,
    import::udpst::FORMAT,
    import::ss::FORMAT,
    import::sockperf::FORMAT,
    import::hdr::FORMAT,
];

/// The import format of that name.
pub fn import_format(name: &str) -> Option<&'static ImportFormat> {
    IMPORT_FORMATS.iter().find(|format| format.name == name)
}

/// All models, in the order of their findings.
pub static MODELS: &[Model] = &[
    explain::mechanisms::MODEL,
    explain::window::MODEL,
    explain::size::MODEL,
    explain::counters::MODEL,
    explain::mesh::MODEL,
];

#[cfg(test)]
mod tests {
    use std::io;

    use linkgauge_model::run::Run;

    use super::*;
    use crate::report::{ReportOptions, RunGroup, is_unprintable, write_overlay};

    #[test]
    fn every_format_writes_every_sample() {
        for format in REPORT_FORMATS {
            for run in report::sample_runs::all_samples() {
                let mut out = Vec::new();
                (format.write)(&run, &ReportOptions::default(), &mut out).unwrap();
                let out = String::from_utf8(out).unwrap();
                assert!(out.ends_with('\n'), "{}", format.name);
            }
        }
    }

    /// Characters that terminals obey, in every text of an untrusted document.
    #[test]
    fn no_format_passes_on_control_characters() {
        let unprintable = |text: &str| text.chars().find(|&c| c != '\n' && is_unprintable(c));
        for run in report::sample_runs::all_samples() {
            let text = serde_json::to_string(&run).unwrap();
            let hostile =
                text.replace("\\u001b[2J", "\\u001b[2J\\u009b31m\\u202e\\r\\u007f\\u2028\\ufeff\\b");
            let run = Run::from_json(&hostile).unwrap();
            for format in REPORT_FORMATS {
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
        for (index, one) in REPORT_FORMATS.iter().enumerate() {
            assert!(std::ptr::eq(report_format(one.name).unwrap(), &REPORT_FORMATS[index]));
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
        for format in REPORT_FORMATS {
            let error = (format.write)(&report::sample_runs::full(), &ReportOptions::default(), &mut Full)
                .unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{}", format.name);
        }
    }
}
