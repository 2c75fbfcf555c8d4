//! The JSON of OB-UDPST (`udpst -f json`): one document per test. It has rates at the IP layer, losses and delay variations. It has neither
//! counts of datagrams nor of bytes, so there is no throughput.

use std::io::{BufRead, Read};

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::{ForeignResult, ImportError, ImportFormat, ImportOptions, ImportedFile, base_case, format_error};
use linkgauge_model::plan::Direction;
use linkgauge_model::run::{CaseResult, Figures, Warning, WarningCode};

pub(crate) const FORMAT: ImportFormat = ImportFormat {
    name: "udpst",
    summary: "results of OB-UDPST: udpst -f json (also jsonb and jsonf)",
    flags: &[],
    read,
};

/// Maximum size of a file, in bytes: that of some tests with all their sub-intervals. The file is held in memory.
const MAX_FILE_BYTES: u64 = 128 << 20;

/// Maximum number of tests in one file.
const MAX_TESTS: usize = 1000;

/// Highest rate that counts, in Mbit/s: more than the highest row of the table on all connections.
const MAX_MEGABITS: f64 = 24.0 * 100_000.0;

/// Facts of the summary of a test, by their name here, and the factor to their unit.
const SUMMARY_FACTS: [(&str, &str, f64); 7] = [
    ("ip_rate_bps", "IPLayerCapacitySummary", 1e6),
    ("lost_datagrams", "LossCount", 1.0),
    ("loss_ratio", "LossRatioSummary", 1.0),
    ("one_way_variation_mean_ns", "PDVAvg", 1e9),
    ("one_way_variation_max_ns", "PDVMax", 1e9),
    ("round_trip_min_ns", "MinRTTSummary", 1e9),
    ("round_trip_variation_max_ns", "RTTMax", 1e9),
];

fn read(file: &mut dyn BufRead, about: &ImportOptions) -> Result<ImportedFile, ImportError> {
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(format_error("longer than 128 MiB: split the file"));
    }
    let mut imported = ForeignResult {
        measured_by: "OB-UDPST".to_owned(),
        started: None,
        elapsed_ns: 0,
        cases: Vec::new(),
        warnings: Vec::new(),
    };
    let (mut count, mut first_failure) = (0, None);
    for document in serde_json::Deserializer::from_slice(&bytes).into_iter::<Value>() {
        let document =
            document.map_err(|error| format_error(format!("not a result of udpst -f json: {error}")))?;
        count += 1;
        if count > MAX_TESTS {
            return Err(format_error(format!("more than {MAX_TESTS} tests in one file: split it")));
        }
        if let Some(version) = document["IPLayerCapSupported"]["SoftwareVersion"].as_str() {
            imported.measured_by = format!("OB-UDPST {version}");
        }
        let began = document["Output"]["BOMTime"].as_str().and_then(|text| text.parse().ok());
        imported.started = imported.started.or(began);
        match case_of(&document, began, about) {
            Ok(case) => {
                imported.elapsed_ns = imported.elapsed_ns.saturating_add(case.elapsed_ns);
                imported.cases.push(case);
            }
            Err(error) => first_failure = first_failure.or(Some(error)),
        }
    }
    match first_failure {
        Some(error) if imported.cases.is_empty() => return Err(error),
        Some(error) => {
            let failed = count - imported.cases.len();
            let text = format!("{failed} of {count} tests in the file have no result: {error}");
            let warning = Warning::new(WarningCode::Incomplete, text, "run these tests again if they matter");
            imported.warnings.push(warning);
        }
        None if count == 0 => return Err(format_error("not a result of udpst -f json: the file is empty")),
        None => {}
    }
    Ok(ImportedFile::Foreign(imported))
}

/// The case of a test; as the error, why it has no result.
fn case_of(
    document: &Value,
    began: Option<Timestamp>,
    about: &ImportOptions,
) -> Result<CaseResult, ImportError> {
    let (input, output) = (&document["Input"], &document["Output"]);
    if document["IPLayerCapSupported"].is_null() && output.is_null() {
        return Err(format_error("not a result of udpst -f json: it has no 'Output'"));
    }
    let megabits = output["AtMax"]["MaxIPLayerCapacity"].as_f64();
    let Some(megabits) = megabits.filter(|rate| (0.0..MAX_MEGABITS).contains(rate)) else {
        let message = document["ErrorMessage"].as_str().filter(|text| !text.is_empty());
        return Err(format_error(match message {
            Some(text) => format!("the test has no highest rate: {}", super::line_reader::quote(text)),
            None => "the test has no highest rate".to_owned(),
        }));
    };
    let direction = match input["Role"].as_str() {
        Some("Sender") => Direction::Send,
        Some("Receiver") => Direction::Receive,
        _ => return Err(format_error("the test has no direction (Input.Role)")),
    };
    let mut figures = Figures::default();
    figures.delivery.capacity_bps = Some(megabits * 1e6);
    figures.counts.forget_losses();
    let mut case = base_case(about, &FORMAT, "capacity", direction, figures);
    case.protocol = "udpst".to_owned();
    if about.endpoint.is_none()
        && let Some(endpoint) = endpoint_of(input)
    {
        case.endpoint = endpoint;
    }
    let connections = input["NumberOfConnections"].as_u64().and_then(|count| u32::try_from(count).ok());
    case.parallel = connections.filter(|count| (1..=24).contains(count)).unwrap_or(1);
    case.effective = facts_of(input, &output["Summary"]);
    let ended = output["EOMTime"].as_str().and_then(|text| text.parse::<Timestamp>().ok());
    let elapsed = began.zip(ended).map(|(began, ended)| ended.duration_since(began).as_nanos());
    case.elapsed_ns = elapsed.and_then(|ns| u64::try_from(ns).ok()).unwrap_or(0);
    case.complete = output["Status"].as_str() == Some("Complete");
    if !case.complete {
        let text = "the test was not complete, so its highest rate is a lower limit";
        case.warnings.push(Warning::new(WarningCode::Incomplete, text, "run the test again"));
    }
    Ok(case)
}

/// The server of a test.
fn endpoint_of(input: &Value) -> Option<String> {
    let host = input["Host"].as_str().filter(|host| !host.is_empty())?;
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    let port = input["HostList"][0]["ControlPort"].as_u64();
    Some(format!("udp://{host}{}", port.map_or(String::new(), |port| format!(":{port}"))))
}

/// Settings of a test, and figures that have no metric here.
fn facts_of(input: &Value, summary: &Value) -> Map<String, Value> {
    let mut facts = Map::new();
    if let Some(algorithm) = input["RateAdjAlgorithm"].as_str().filter(|name| ["B", "C"].contains(name)) {
        facts.insert("algorithm".to_owned(), algorithm.into());
    }
    for (name, key, factor) in SUMMARY_FACTS {
        let value = summary[key].as_f64().filter(|value| (0.0..1e15).contains(value));
        if let Some(value) = value {
            facts.insert(name.to_owned(), (value * factor).into());
        }
    }
    facts
}

#[cfg(test)]
mod tests;
