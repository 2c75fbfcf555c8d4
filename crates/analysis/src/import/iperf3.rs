//! The JSON of iperf3 3, of a client or a server: `--json` (one document per test; a server concatenates them) and
//! `--json-stream` (one event per line). It has rates, volumes, losses and CPU time. It has no samples, so there is no
//! latency. Its jitter (smoothed, one way) is not comparable with ours and is omitted.
//!
//! Versions differ, and files may have text around the objects (`documents`). So every value is optional here, and a value of another
//! kind is absent.

mod directions;
mod documents;
mod test;

use std::io::{BufRead, Read};

use jiff::Timestamp;
use serde_json::Value;

use super::{ForeignResult, ImportError, ImportFormat, ImportOptions, ImportedFile, format_error};
use documents::{FoundDocuments, find_documents};
use linkgauge_model::run::{Warning, WarningCode};
use test::TestDocument;

pub(crate) const FORMAT: ImportFormat =
    ImportFormat { name: "iperf3", summary: "results of iperf3 --json and --json-stream", flags: &[], read };

/// Maximum size of a file, in bytes: several days with some streams. The file is held in memory.
const MAX_FILE_BYTES: u64 = 128 << 20;

fn read(file: &mut dyn BufRead, about: &ImportOptions) -> Result<ImportedFile, ImportError> {
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(format_error("longer than 128 MiB: split the file"));
    }
    let mut found = find_documents(&bytes);
    let tests = tests_of(std::mem::take(&mut found.values));
    if tests.is_empty() {
        return Err(no_result(&found, bytes.is_empty()));
    }
    let started = tests.first().and_then(|test| test.start["timestamp"]["timesecs"].as_f64());
    let mut imported = ForeignResult {
        measured_by: "iperf3".to_owned(),
        started: started.and_then(|seconds| Timestamp::from_second(seconds as i64).ok()),
        elapsed_ns: 0,
        cases: Vec::new(),
        warnings: Vec::new(),
    };
    let (count, mut failures) = (tests.len(), Vec::new());
    for test in tests {
        if let Some(version) = test.start["version"].as_str().filter(|version| !version.is_empty()) {
            version.clone_into(&mut imported.measured_by);
        }
        match test.into_case(about) {
            Ok(case) => {
                imported.elapsed_ns = imported.elapsed_ns.saturating_add(case.elapsed_ns);
                imported.cases.push(case);
            }
            Err(error) => failures.push(error),
        }
    }
    let failed = failures.len();
    if let Some(error) = failures.into_iter().next() {
        if imported.cases.is_empty() {
            return Err(error);
        }
        let text = format!("{failed} of {count} tests in the file have no result: {error}");
        imported.warnings.push(incomplete(text));
    }
    imported.warnings.extend(file_warnings(&found));
    Ok(ImportedFile::Foreign(imported))
}

fn incomplete(text: String) -> Warning {
    Warning::new(WarningCode::Incomplete, text, "run these tests again if they matter")
}

/// Error of a file without a test.
fn no_result(found: &FoundDocuments, is_empty: bool) -> ImportError {
    let what = if found.broken > 0 {
        found.first_fault.as_str()
    } else if found.has_text_output {
        "it is the text output of iperf3: run iperf3 with --json"
    } else if is_empty {
        "the file is empty"
    } else {
        "it contains no JSON object"
    };
    format_error(format!("not a result of iperf3 --json: {what}"))
}

/// Warnings about content of the file besides whole tests.
fn file_warnings(found: &FoundDocuments) -> Vec<Warning> {
    let mut warnings = Vec::new();
    if found.broken > 0 {
        warnings.push(incomplete(format!("the file also holds an incomplete result: {}", found.first_fault)));
    }
    if found.text_lines > 0 {
        let (lines, first) = (found.text_lines, &found.first_text);
        let text = match lines {
            1 => format!("1 line of the file is no JSON and was skipped: {first}"),
            _ => format!("{lines} lines of the file are no JSON and were skipped, the first: {first}"),
        };
        warnings.push(Warning::new(
            WarningCode::SkippedText,
            text,
            "check that the line belongs to no result",
        ));
    }
    warnings
}

/// The tests of a file, in order, from its documents and events.
fn tests_of(values: Vec<Value>) -> Vec<TestDocument> {
    let mut tests: Vec<TestDocument> = Vec::new();
    for mut value in values {
        let Some(event) = value.get("event").and_then(Value::as_str).map(str::to_owned) else {
            let document = TestDocument::of(value);
            // After its events, --json-stream-full-output repeats them as one document.
            if !tests.last().is_some_and(|test| test.is_same_test(&document)) {
                tests.push(document);
            }
            continue;
        };
        let data = value["data"].take();
        if event == "start" || tests.is_empty() {
            tests.push(TestDocument::default());
        }
        let Some(test) = tests.last_mut() else { continue };
        match event.as_str() {
            "start" => test.start = data,
            "interval" => test.intervals.push(data),
            "end" => {
                let is_second = !test.end.is_null();
                test.end = data;
                if is_second {
                    mark_mixed_tests(&mut tests);
                }
            }
            "error" => test.error = data,
            // Output of the server.
            _ => {}
        }
    }
    tests
}

/// A second end belongs to an earlier test that has none: two tests wrote to one file at a time, and no event names its test.
fn mark_mixed_tests(tests: &mut [TestDocument]) {
    let Some((last, earlier)) = tests.split_last_mut() else { return };
    if let Some(open) = earlier.iter_mut().rfind(|test| test.end.is_null() && test.error.is_null()) {
        (open.is_mixed, last.is_mixed) = (true, true);
    }
}

#[cfg(test)]
mod tests;
