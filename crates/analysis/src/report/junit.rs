//! JUnit XML for CI systems: one suite per run, one test per case, and one per threshold of a case. A failed test
//! reports the measured value. The other formats have the remaining figures.

use std::io;

use super::ReportOptions;
use super::presentation::case_sentence;
use super::wording::{measured_text, printable};
use linkgauge_model::run::{CaseResult, Run};

pub(crate) fn write(run: &Run, _: &ReportOptions, out: &mut dyn io::Write) -> io::Result<()> {
    let judged = run.cases.iter().flat_map(|case| &case.thresholds);
    let failures = judged.clone().filter(|judged| !judged.passed && judged.is_measured()).count();
    let not_measured = judged.clone().filter(|judged| !judged.is_measured()).count();
    let errors = run.cases.iter().filter(|case| !case.complete).count() + not_measured;
    let tests = run.cases.len() + judged.count();
    let title = escape_xml(run.title.as_deref().unwrap_or("linkgauge"));
    let seconds = run.elapsed_ns as f64 / 1e9;
    let counts =
        format!("tests=\"{tests}\" failures=\"{failures}\" errors=\"{errors}\" time=\"{seconds:.3}\"");
    writeln!(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>")?;
    writeln!(out, "<testsuites {counts}>")?;
    let started = run.started.strftime("%Y-%m-%dT%H:%M:%S");
    writeln!(out, "<testsuite name=\"{title}\" {counts} skipped=\"0\" timestamp=\"{started}\">")?;
    for (case, number) in run.cases.iter().zip(1..) {
        write_case_tests(case, number, out)?;
    }
    writeln!(out, "</testsuite>\n</testsuites>")
}

fn write_case_tests(case: &CaseResult, number: usize, out: &mut dyn io::Write) -> io::Result<()> {
    let class = escape_xml(&format!(
        "{}.{} {} {} B {}",
        number,
        case.workload,
        case.direction.name(),
        case.message_bytes,
        case.endpoint
    ));
    let seconds = case.elapsed_ns as f64 / 1e9;
    write!(out, "<testcase classname=\"{class}\" name=\"measured\" time=\"{seconds:.3}\"")?;
    if case.complete {
        writeln!(out, "/>")?;
    } else {
        writeln!(out, "><error message=\"{}\"/></testcase>", escape_xml(&case_sentence(case)))?;
    }
    for judged in &case.thresholds {
        write!(out, "<testcase classname=\"{class}\" name=\"{}\" time=\"0\"", escape_xml(&judged.threshold))?;
        if judged.passed {
            writeln!(out, "/>")?;
        } else {
            let element = if judged.is_measured() { "failure" } else { "error" };
            writeln!(out, "><{element} message=\"{}\"/></testcase>", escape_xml(&measured_text(judged)))?;
        }
    }
    Ok(())
}

/// Escapes text for an attribute, and replaces characters that XML cannot represent.
fn escape_xml(text: &str) -> String {
    let text = printable(text).replace(['\u{fffe}', '\u{ffff}'], "\u{fffd}");
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample_runs;

    fn write_junit(run: &Run) -> String {
        let mut out = Vec::new();
        write(run, &ReportOptions::default(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn cases_and_thresholds_become_tests() {
        insta::assert_snapshot!(write_junit(&sample_runs::serial_line()), @r#"
        <?xml version="1.0" encoding="UTF-8"?>
        <testsuites tests="4" failures="1" errors="0" time="42.100">
        <testsuite name="Loops through plugs" tests="4" failures="1" errors="0" time="42.100" skipped="0" timestamp="2026-11-20T10:00:00">
        <testcase classname="1.throughput loop 8 B serial:///dev/ttyUSB0?baud=9600" name="measured" time="10.000"/>
        <testcase classname="2.throughput loop 8 B serial:///dev/ttyUSB0?baud=9600" name="measured" time="10.000"/>
        <testcase classname="2.throughput loop 8 B serial:///dev/ttyUSB0?baud=9600" name="line_rate &gt; 90 %" time="0"/>
        <testcase classname="2.throughput loop 8 B serial:///dev/ttyUSB0?baud=9600" name="loss = 0 %" time="0"><failure message="measured 0.5 %"/></testcase>
        </testsuite>
        </testsuites>
        "#);
    }

    #[test]
    fn hostile_texts_are_escaped() {
        let text = write_junit(&sample_runs::hostile());
        assert!(!text.contains(sample_runs::HOSTILE_SCRIPT) && !text.contains('\u{1b}'));
        assert!(text.contains("&lt;script&gt;alert('x')&lt;/script&gt;"));
        // Quotes are balanced on every line, because every tag closes its attributes.
        assert!(text.lines().all(|line| line.matches('"').count() % 2 == 0));
    }
}
