//! The figures of each case as metrics in the text format of Prometheus, for the textfile collector of node_exporter. Times are in seconds.
//! What was not measured is absent; a percentile that was not reached is infinite.

use std::io;

use super::ReportOptions;
use super::wording::printable;
use linkgauge_model::run::{CaseResult, NUMBERS, ReadNumber, Run};

/// Round-trip times of a case by percentile, in seconds.
fn percentiles(case: &CaseResult) -> Vec<(String, f64)> {
    let Some(times) = &case.figures.times.latency_ns else { return Vec::new() };
    let seconds = |ns: Option<u64>| ns.map_or(f64::INFINITY, |ns| ns as f64 / 1e9);
    let named = |(name, ns): (&String, &Option<u64>)| (name.trim_start_matches('p').to_owned(), seconds(*ns));
    let ends = [("0", times.min), ("100", times.max)].map(|(name, ns)| (name.to_owned(), seconds(Some(ns))));
    times.percentiles.iter().map(named).chain(ends).collect()
}

pub(crate) fn write(run: &Run, _: &ReportOptions, out: &mut dyn io::Write) -> io::Result<()> {
    let mut text = String::new();
    let cases: Vec<(String, &CaseResult)> =
        run.cases.iter().zip(1..).map(|(case, number)| (labels(case, number), case)).collect();
    let started = run.started.as_second();
    metric(&mut text, "started_timestamp_seconds", "start of the run", [(String::new(), started as f64)]);
    let complete = cases.iter().map(|(labels, case)| (labels.clone(), f64::from(u8::from(case.complete))));
    metric(&mut text, "complete", "1 if everything planned was measured", complete);
    let times = cases.iter().flat_map(|(labels, case)| {
        let labelled = |(percent, value)| (format!("{labels},percentile=\"{percent}\""), value);
        percentiles(case).into_iter().map(labelled).collect::<Vec<_>>()
    });
    let meaning = "round-trip times by percentile (0: the fastest, 100: the slowest)";
    metric(&mut text, "latency_seconds", meaning, times);
    let judged = cases.iter().flat_map(|(labels, case)| {
        let measured = case.thresholds.iter().filter(|judged| judged.is_measured());
        measured.map(move |judged| {
            let labels = format!("{labels},threshold=\"{}\"", escape(&judged.threshold));
            (labels, f64::from(u8::from(judged.passed)))
        })
    });
    metric(&mut text, "threshold_passed", "1 if the threshold holds; absent if it was not measured", judged);
    for number in NUMBERS {
        let (name, scale) = base_unit(number.field);
        let read = |case: &CaseResult| match number.read {
            ReadNumber::Count(read) => read(&case.figures).map(|count| count as f64),
            ReadNumber::Value(read) => read(&case.figures),
        };
        let values = cases.iter().filter_map(|(labels, case)| Some((labels.clone(), read(case)? * scale)));
        metric(&mut text, &name, number.meaning, values);
    }
    out.write_all(text.as_bytes())
}

/// The name of a field with the unit that Prometheus expects, and the factor to it.
fn base_unit(field: &str) -> (String, f64) {
    match field.rsplit_once('_') {
        Some((name, "ns")) => (format!("{name}_seconds"), 1e-9),
        Some((name, "bps")) => (format!("{name}_bits_per_second"), 1.0),
        _ => (field.to_owned(), 1.0),
    }
}

/// Adds a metric with its values by labels. One without values is left out.
fn metric(text: &mut String, name: &str, meaning: &str, values: impl IntoIterator<Item = (String, f64)>) {
    let mut values = values.into_iter().peekable();
    if values.peek().is_none() {
        return;
    }
    text.push_str(&format!("# HELP linkgauge_run_{name} {meaning}\n# TYPE linkgauge_run_{name} gauge\n"));
    for (labels, value) in values {
        let labels = if labels.is_empty() { labels } else { format!("{{{labels}}}") };
        let value = if value.is_infinite() { "+Inf".to_owned() } else { value.to_string() };
        text.push_str(&format!("linkgauge_run_{name}{labels} {value}\n"));
    }
}

/// The value of a label.
fn escape(text: &str) -> String {
    printable(text).replace('\\', "\\\\").replace('"', "\\\"")
}

/// The labels that name a case.
fn labels(case: &CaseResult, number: usize) -> String {
    let pairs = [
        ("case", number.to_string()),
        ("endpoint", case.endpoint.clone()),
        ("protocol", case.protocol.clone()),
        ("workload", case.workload.clone()),
        ("direction", case.direction.name().to_owned()),
        ("message_bytes", case.message_bytes.to_string()),
    ];
    pairs.map(|(name, value)| format!("{name}=\"{}\"", escape(&value))).join(",")
}

#[cfg(test)]
mod tests {
    use crate::report::sample_runs;
    use crate::report::{ReportOptions, prometheus};

    #[test]
    fn metrics_have_base_units_and_only_what_was_measured() {
        let mut out = Vec::new();
        prometheus::write(&sample_runs::full(), &ReportOptions::default(), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let of = |name: &str| {
            text.lines().filter(|line| line.starts_with(&format!("linkgauge_run_{name}{{"))).count()
        };
        assert!(of("latency_seconds") > 0 && of("sent") > 0, "{text}");
        assert_eq!(of("capacity_bits_per_second"), 0, "{text}");
        assert!(!text.contains("_ns{") && !text.contains("_bps{"), "{text}");
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let value = line.rsplit(' ').next().unwrap();
            assert!(value == "+Inf" || value.parse::<f64>().is_ok(), "{line}");
        }
    }
}
