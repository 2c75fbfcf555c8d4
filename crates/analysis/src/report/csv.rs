//! A run as tables for spreadsheets and data frames. Each file has one kind of row: cases, or their repetitions, ports or intervals.
//!
//! The tables are not complete: histograms, settings, the environment and rarer figures are in the JSON document.
//!
//! Columns keep their names and meanings. Read them by name: their order may change. An empty cell was not measured. `inf` is
//! a percentile that was not reached because too many requests were lost (a lost request ranks slowest). A text that a
//! spreadsheet would treat as a formula starts with an apostrophe.

mod hops;
mod series;

use std::io;

use super::ReportOptions;
use super::wording::{line_time_ns, printable};
use linkgauge_model::run::{CaseResult, CpuUse, Distribution, Figures, NUMBERS, PartResult, ReadNumber, Run};
use linkgauge_model::spreadsheet::escape_formula;
use linkgauge_model::stats::Interval;

pub(crate) use hops::write_hops;
pub(crate) use series::write_series;

/// A column.
struct CsvColumn {
    /// Name of the column, with the unit.
    name: &'static str,
    /// Meaning for documents. Empty: the meaning of the number.
    meaning: &'static str,
    cell: CsvCell,
}

/// Content of a column.
#[derive(Clone, Copy)]
enum CsvCell {
    Text(fn(&CsvRow) -> String),
    /// The number of [`NUMBERS`] that has the name of the column.
    Number,
}

const fn column(name: &'static str, meaning: &'static str, cell: fn(&CsvRow) -> String) -> CsvColumn {
    CsvColumn { name, meaning, cell: CsvCell::Text(cell) }
}

const fn number(name: &'static str) -> CsvColumn {
    CsvColumn { name, meaning: "", cell: CsvCell::Number }
}

/// Identity of a case.
static CASE_COLUMNS: &[CsvColumn] = &[
    column("run", "name of the run", |row| row.run.id.clone()),
    column("started", "start of the run, in UTC", |row| row.run.started.to_string()),
    column("case", "number of the case in the run, from 1", |row| row.case_number.to_string()),
    column("endpoint", "the endpoint, as typed", |row| row.case.endpoint.clone()),
    column("protocol", "what the remote spoke", |row| row.case.protocol.clone()),
    column("workload", "what was measured", |row| row.case.workload.clone()),
    column("direction", "direction of the payload, as the client sees it", |row| {
        row.case.direction.name().to_owned()
    }),
    column("message_bytes", "payload of one message; 0: unknown", |row| {
        row.said("message_bytes", row.case.message_bytes.into())
    }),
    column("ports", "ports measured at the same time", |row| row.case.ports.to_string()),
    column("parallel", "connections to each port", |row| row.case.parallel.to_string()),
    column("method", "identity of the measuring method", |row| row.case.method.clone()),
    column("complete", "true: everything planned was measured", |row| row.case.complete.to_string()),
    column("elapsed_ns", "duration", |row| row.said("elapsed_ns", row.case.elapsed_ns)),
];

/// Identity of a repetition or a port of a case.
static PART_COLUMNS: &[CsvColumn] = &[
    column("run", "name of the run", |row| row.run.id.clone()),
    column("started", "start of the run, in UTC", |row| row.run.started.to_string()),
    column("case", "number of the case in the run, from 1", |row| row.case_number.to_string()),
    column("number", "number of the repetition or port, from 1", |row| {
        row.part.map_or(String::new(), |(number, _)| number.to_string())
    }),
    column("endpoint", "the endpoint, as typed", |row| {
        row.part.map_or(String::new(), |(_, part)| part.endpoint.clone())
    }),
    column("elapsed_ns", "duration", |row| {
        row.part.map_or(String::new(), |(_, part)| part.elapsed_ns.to_string())
    }),
    column("client_cpu", "CPU of the client's thread", |row| {
        format_count(row.part.and_then(|(_, part)| part.client_cpu).map(u64::from))
    }),
    column("server_cpu", "CPU of the server's thread, if it reports that", |row| {
        format_count(row.part.and_then(|(_, part)| part.server_cpu).map(u64::from))
    }),
];

/// Figures of cases and their parts.
static FIGURE_COLUMNS: &[CsvColumn] = &[
    column("latency_min_ns", "fastest round trip", |row| {
        format_count(row.latency().map(|latency| latency.min))
    }),
    column("latency_mean_ns", "mean round trip", |row| {
        format_number(row.latency().map(|latency| latency.mean))
    }),
    column("latency_sd_ns", "standard deviation of the round trips", |row| {
        format_number(row.latency().and_then(|latency| latency.standard_deviation))
    }),
    column("latency_p50_ns", "median round trip", |row| format_percentile(row.latency(), "p50")),
    column("latency_p90_ns", "90th percentile of the round trips", |row| {
        format_percentile(row.latency(), "p90")
    }),
    column("latency_p99_ns", "99th percentile of the round trips", |row| {
        format_percentile(row.latency(), "p99")
    }),
    column("latency_p99.9_ns", "99.9th percentile of the round trips", |row| {
        format_percentile(row.latency(), "p99.9")
    }),
    column("latency_max_ns", "slowest round trip", |row| {
        format_count(row.latency().map(|latency| latency.max))
    }),
    column(
        "latency_below_ns",
        "limit of imported times that are known only to be below it; they count as it",
        |row| format_count(row.latency().and_then(|latency| latency.below_ns)),
    ),
    column("response_p50_ns", "median response time; with a schedule", |row| {
        format_percentile(row.figures.times.response_ns.as_ref(), "p50")
    }),
    column("response_p99_ns", "99th percentile of the response times", |row| {
        format_percentile(row.figures.times.response_ns.as_ref(), "p99")
    }),
    number("jitter_ns"),
    number("throughput_bps"),
    number("throughput_reverse_bps"),
    number("line_rate_percent"),
    number("messages_per_second"),
    number("sent"),
    number("received"),
    number("lost"),
    number("receiver_socket_drops"),
    number("network_lost"),
    number("duplicate"),
    number("reordered"),
    number("missed_sends"),
    number("corrupt_bytes"),
    number("delivered_bytes"),
    number("delivered_reverse_bytes"),
    number("forward_p50_ns"),
    number("reverse_p50_ns"),
    number("flow_fairness"),
];

/// Intervals, and figures that only a whole case has.
static WHOLE_COLUMNS: &[CsvColumn] = &[
    column("latency_p50_low_ns", "lower end of the 95 % interval of the median", |row| {
        format_number(row.interval("latency_ns.p50").map(|of| of.low))
    }),
    column("latency_p50_high_ns", "upper end of the 95 % interval of the median", |row| {
        format_number(row.interval("latency_ns.p50").map(|of| of.high))
    }),
    column("throughput_low_bps", "lower end of the 95 % interval of the throughput", |row| {
        format_number(row.interval("throughput_bps").map(|of| of.low))
    }),
    column("throughput_high_bps", "upper end of the 95 % interval of the throughput", |row| {
        format_number(row.interval("throughput_bps").map(|of| of.high))
    }),
    column("line_transmission_ns", "time of a message on the line, both ways", |row| {
        format_number(line_time_ns(row.case))
    }),
    column("loaded_latency_p50_ns", "median round trip of the probe under load", |row| {
        format_percentile(row.loaded_latency(), "p50")
    }),
    column("loaded_latency_p99_ns", "99th percentile of the probe under load", |row| {
        format_percentile(row.loaded_latency(), "p99")
    }),
    number("idle_p50_ns"),
    number("added_p50_ns"),
    number("added_p99_ns"),
    number("rpm"),
    number("goodput_bps"),
    number("capacity_bps"),
    column("cpu_client_seconds", "CPU time of the client", |row| {
        format_number(row.cpu().map(|cpu| cpu.client_seconds))
    }),
    column("cpu_server_seconds", "CPU time of the server", |row| {
        format_number(row.cpu().and_then(|cpu| cpu.server_seconds))
    }),
    column("warnings", "codes of the warnings", |row| row.warning_codes()),
    column("thresholds_failed", "thresholds that failed", |row| row.failed_thresholds()),
];

/// The columns of the cases, then those of their parts.
static TABLES: [&[&[CsvColumn]]; 2] =
    [&[CASE_COLUMNS, FIGURE_COLUMNS, WHOLE_COLUMNS], &[PART_COLUMNS, FIGURE_COLUMNS]];

/// A table, and its columns with their meanings.
pub type CsvTable = (&'static str, Vec<(&'static str, &'static str)>);

/// The columns of all tables, for documents.
pub fn csv_tables() -> Vec<CsvTable> {
    let meaning = |column: &CsvColumn| match NUMBERS.iter().find(|number| number.field == column.name) {
        Some(number) if column.meaning.is_empty() => number.meaning,
        _ => column.meaning,
    };
    let columns = |table: &[&'static [CsvColumn]]| {
        table.iter().copied().flatten().map(|column| (column.name, meaning(column))).collect()
    };
    let [cases, parts] = TABLES;
    vec![
        ("--csv", columns(cases)),
        ("--csv-repetitions, --csv-ports", columns(parts)),
        ("--csv-series", series::COLUMNS.to_vec()),
        ("--csv-hops", hops::COLUMNS.to_vec()),
    ]
}

/// Writes a row for each case.
pub(crate) fn write(run: &Run, _: &ReportOptions, out: &mut dyn io::Write) -> io::Result<()> {
    let rows = rows_of_cases(run).map(|(case_number, case)| CsvRow {
        run,
        case,
        case_number,
        part: None,
        figures: &case.figures,
    });
    write_table(TABLES[0], rows, out)
}

/// Writes a row for each repetition of each case. A case with one repetition has none.
pub(crate) fn write_repetitions(run: &Run, _: &ReportOptions, out: &mut dyn io::Write) -> io::Result<()> {
    write_parts(run, |case| &case.repeats, out)
}

/// Writes a row for each port of each case. A case with one port has none.
pub(crate) fn write_ports(run: &Run, _: &ReportOptions, out: &mut dyn io::Write) -> io::Result<()> {
    write_parts(run, |case| &case.per_port, out)
}

fn write_parts(
    run: &Run,
    parts: fn(&CaseResult) -> &[PartResult],
    out: &mut dyn io::Write,
) -> io::Result<()> {
    let rows = rows_of_cases(run).flat_map(|(case_number, case)| {
        parts(case).iter().zip(1..).map(move |(part, number)| CsvRow {
            run,
            case,
            case_number,
            part: Some((number, part)),
            figures: &part.figures,
        })
    });
    write_table(TABLES[1], rows, out)
}

fn rows_of_cases(run: &Run) -> impl Iterator<Item = (usize, &CaseResult)> {
    (1..).zip(&run.cases)
}

fn write_table<'a>(
    columns: &[&[CsvColumn]],
    rows: impl Iterator<Item = CsvRow<'a>>,
    out: &mut dyn io::Write,
) -> io::Result<()> {
    let mut table = csv::Writer::from_writer(out);
    let columns = || columns.iter().copied().flatten();
    write_header(&mut table, columns().map(|column| column.name))?;
    for row in rows {
        let cells: Vec<String> = columns().map(|column| row.cell(column)).collect();
        write_row(&mut table, &cells)?;
    }
    table.flush()
}

/// Writes the names of the columns.
pub(super) fn write_header<'a>(
    table: &mut csv::Writer<impl io::Write>,
    names: impl Iterator<Item = &'a str>,
) -> io::Result<()> {
    table.write_record(names).map_err(system_error)
}

/// The error of the file, of which `csv` would keep the text only.
fn system_error(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    }
}

/// Writes a row. Texts come from outside, terminals show them, and spreadsheets open the file.
pub(super) fn write_row(table: &mut csv::Writer<impl io::Write>, cells: &[String]) -> io::Result<()> {
    table
        .write_record(cells.iter().map(|cell| escape_formula(&printable(cell)).into_owned()))
        .map_err(system_error)
}

/// A case, or one of its repetitions or ports.
struct CsvRow<'a> {
    run: &'a Run,
    case: &'a CaseResult,
    /// Number of the case, from 1.
    case_number: usize,
    /// The part with its number, from 1; `None` for the whole case.
    part: Option<(u64, &'a PartResult)>,
    figures: &'a Figures,
}

impl<'a> CsvRow<'a> {
    fn cell(&self, column: &CsvColumn) -> String {
        let number = match column.cell {
            CsvCell::Text(cell) => return cell(self),
            CsvCell::Number => NUMBERS.iter().find(|number| number.field == column.name),
        };
        match number.map(|number| number.read) {
            Some(ReadNumber::Count(read)) => {
                read(self.figures).map_or(String::new(), |count| self.said(column.name, count))
            }
            Some(ReadNumber::Value(read)) => format_number(read(self.figures)),
            None => String::new(),
        }
    }

    /// A count, unless an imported file does not say it.
    fn said(&self, field: &str, count: u64) -> String {
        if count == 0 && self.case.is_unsaid(field) { String::new() } else { count.to_string() }
    }

    fn latency(&self) -> Option<&'a Distribution> {
        self.figures.times.latency_ns.as_ref()
    }

    fn loaded_latency(&self) -> Option<&'a Distribution> {
        self.case.under_load.as_ref()?.times.latency_ns.as_ref()
    }

    fn cpu(&self) -> Option<&'a CpuUse> {
        self.case.cpu.as_ref()
    }

    fn interval(&self, figure: &str) -> Option<&'a Interval> {
        self.figures.intervals.get(figure)
    }

    fn warning_codes(&self) -> String {
        self.case.warnings.iter().map(|warning| warning.code.name()).collect::<Vec<_>>().join(" ")
    }

    fn failed_thresholds(&self) -> String {
        let failed = self.case.thresholds.iter().filter(|result| !result.passed);
        failed.map(|result| result.threshold.as_str()).collect::<Vec<_>>().join("; ")
    }
}

fn format_count(value: Option<u64>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

/// Formats a number with three decimals: a thousandth of a nanosecond has no meaning.
fn format_number(value: Option<f64>) -> String {
    let text = value.map(|value| format!("{value:.3}")).unwrap_or_default();
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

fn format_percentile(distribution: Option<&Distribution>, name: &str) -> String {
    match distribution.and_then(|distribution| distribution.percentiles.get(name)) {
        Some(Some(nanoseconds)) => nanoseconds.to_string(),
        Some(None) => "inf".to_owned(),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests;
