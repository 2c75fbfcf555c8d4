//! Tables with a header line (commas, semicolons or tabs): one column has the latencies, in the order of the requests. Another one may
//! name the test of each row, as the target of a probe; each of its values makes a case.

use std::io::BufRead;

use csv::{ReaderBuilder, StringRecord};

use super::by_name::ByName;
use super::line_reader::{LineReader, only_unfinished_line, quote, unfinished_line};
use super::samples::{SampleLog, TimeUnit, is_same_value, named_unit};
use super::{ForeignResult, ImportError, ImportFormat, ImportOptions, ImportedFile, format_error};
use linkgauge_model::run::{CaseResult, Warning};

pub(crate) const FORMAT: ImportFormat = ImportFormat {
    name: "csv",
    summary: "tables with a header line: a column of latencies (--column, --unit), and one that names the test of a row (--by)",
    flags: &["unit", "lost", "column", "by"],
    read,
};

const MAX_LINE_BYTES: u64 = 1 << 16;
/// Possible characters between the cells.
const DELIMITERS: [u8; 3] = [b',', b';', b'\t'];

/// Where the cells of a row are.
struct TableLayout {
    delimiter: u8,
    latency: usize,
    test: Option<usize>,
}

impl TableLayout {
    /// The layout of a table with this header line.
    fn of_header(line: &str, about: &ImportOptions) -> Result<TableLayout, ImportError> {
        let count = |delimiter: u8| line.bytes().filter(|byte| *byte == delimiter).count();
        let most = DELIMITERS.into_iter().max_by_key(|delimiter| (count(*delimiter), *delimiter == b','));
        let delimiter = most.unwrap_or(b',');
        let header = cells(line, delimiter).unwrap_or_default();
        let names = || header.iter().map(|name| quote(name.trim())).collect::<Vec<_>>().join(", ");
        let place = |flag: &str, wanted: &str| {
            header.iter().position(|name| name.trim() == wanted).ok_or_else(|| {
                format_error(format!(
                    "no column is named {} ({flag}). The columns are {}",
                    quote(wanted),
                    names()
                ))
            })
        };
        let latency = match &about.column {
            Some(name) => place("--column", name)?,
            None if header.len() == 1 => 0,
            None => {
                return Err(format_error(format!(
                    "name the column of the latencies with --column. The columns are {}",
                    names()
                )));
            }
        };
        let test = about.by.as_ref().map(|name| place("--by", name)).transpose()?;
        Ok(TableLayout { delimiter, latency, test })
    }
}

/// The cells of one line.
fn cells(line: &str, delimiter: u8) -> Option<StringRecord> {
    let mut reader = ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .delimiter(delimiter)
        .buffer_capacity(line.len().max(1))
        .from_reader(line.as_bytes());
    reader.records().next()?.ok()
}

/// The rows of a table by test.
struct Table<'a> {
    about: &'a ImportOptions,
    layout: TableLayout,
    unit: TimeUnit,
    tests: ByName<SampleLog>,
}

impl Table<'_> {
    fn add_row(&mut self, line: &str) -> Result<(), ImportError> {
        let row = cells(line, self.layout.delimiter).unwrap_or_default();
        let cell = |at: usize| row.get(at).map(str::trim);
        let Some(text) = cell(self.layout.latency) else {
            return Err(format_error(format!(
                "the row has {} cells, fewer than the header names",
                row.len()
            )));
        };
        let name = self.layout.test.and_then(cell).unwrap_or_default();
        let log = self.tests.entry(name, || SampleLog::new(self.unit))?;
        // Where a comma separates no cells it may be a decimal one.
        let number = if self.layout.delimiter == b',' { text.to_owned() } else { text.replace(',', ".") };
        if self.about.lost_marker.as_ref().is_some_and(|marker| is_same_value(marker, text)) {
            log.add_lost();
            return Ok(());
        }
        log.add(&number).ok_or_else(|| {
            let text = quote(text);
            format_error(format!("{text} is not a latency. If it marks a lost request: --lost={text}"))
        })
    }

    /// The cases of the tests, and the doubts about them.
    fn into_cases(self) -> (Vec<CaseResult>, Vec<Warning>) {
        let (mut cases, mut warnings) = (Vec::new(), Vec::new());
        for (name, log) in self.tests.into_values() {
            let (mut case, doubts) = log.into_case(self.about, &FORMAT);
            if self.layout.test.is_some() {
                let endpoint = self.about.endpoint.as_ref();
                case.endpoint = endpoint.map_or(name.clone(), |endpoint| format!("{endpoint}, {name}"));
            }
            warnings.extend(doubts);
            cases.push(case);
        }
        warnings.dedup();
        (cases, warnings)
    }
}

fn read(file: &mut dyn BufRead, about: &ImportOptions) -> Result<ImportedFile, ImportError> {
    let unit = named_unit(about)?;
    let mut lines = LineReader::new(file, MAX_LINE_BYTES);
    let header = lines.next_line()?.ok_or_else(|| format_error("the file is empty"))?.to_owned();
    let mut table =
        Table { about, layout: TableLayout::of_header(&header, about)?, unit, tests: ByName::new() };
    let mut cut_off = None;
    while let Some(line) = lines.next_line()?.map(str::to_owned) {
        if line.trim().is_empty() {
            continue;
        }
        match lines.is_unfinished() {
            true => cut_off = Some(unfinished_line()),
            false => table.add_row(&line).map_err(|error| lines.error(error.to_string()))?,
        }
    }
    if table.tests.is_empty() {
        let none = || format_error("no row follows the header");
        return Err(if cut_off.is_some() { only_unfinished_line() } else { none() });
    }
    let (cases, doubts) = table.into_cases();
    Ok(ImportedFile::Foreign(ForeignResult {
        measured_by: "another program".to_owned(),
        started: None,
        elapsed_ns: 0,
        cases,
        warnings: cut_off.into_iter().chain(doubts).collect(),
    }))
}

#[cfg(test)]
mod tests;
