//! `linkgauge doctor`: what about this host spoils a measurement, and what the tool itself costs here.
//!
//! Not for measuring the floor (`floor`) nor for how it is printed (`page`).

mod overhead;
mod text;

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use linkgauge::host::check::{self, Check, CheckVerdict};
use linkgauge::host::serial;
use linkgauge::link::{self, TRANSPORTS};
use serde::Serialize;

use super::Status;
use super::output::{finish_all, is_dash, print_json, print_text, supports_unicode, write_file};
use overhead::MeasurementOverhead;

/// Is this host fit to measure? Clocks, timers, permissions, transports, serial ports, with the remedy
///
/// Changes nothing. A doubtful finding is advice, not a failure: the exit status is 0 unless something could not be
/// examined.
#[derive(Args)]
pub struct Flags {
    /// Write the findings as JSON ('-': standard output, instead of the text)
    #[arg(long, value_name = "FILE|-")]
    json: Option<PathBuf>,
}

/// Everything that was found, as the JSON shows it.
#[derive(Serialize)]
struct DoctorReport {
    schema: &'static str,
    checks: Vec<Check>,
    transports: Vec<TransportStatus>,
    serial_ports: Vec<serial::PortInfo>,
    floor: MeasurementOverhead,
    verdict: CheckVerdict,
    summary: String,
}

/// Whether links of one kind can be opened here.
#[derive(Serialize)]
struct TransportStatus {
    scheme: &'static str,
    summary: &'static str,
    available: bool,
    /// Why it is not, or what limits it.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

pub fn run(flags: Flags) -> Result<Status> {
    let findings = examine_host();
    let page =
        || print_text(|stdout| stdout.write_all(text::render(&findings, supports_unicode()).as_bytes()));
    match flags.json {
        Some(path) if is_dash(&path) => print_json(|stdout| write_json(&findings, stdout))?,
        Some(path) => finish_all([write_file(&path, |file| write_json(&findings, file)), page()])?,
        None => page()?,
    }
    Ok(if findings.floor.is_complete() { Status::Complete } else { Status::Incomplete })
}

fn write_json(findings: &DoctorReport, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, findings)?;
    writeln!(out)
}

fn examine_host() -> DoctorReport {
    let mut checks = check::run_checks();
    checks.push(check::interrupt_coalescing(&link::all_interface_facts()));
    let transports = TRANSPORTS.iter().map(|transport| {
        let missing = (transport.available)();
        let available = missing.is_ok();
        let limit = missing.err().or_else(transport.limitation);
        TransportStatus {
            scheme: transport.scheme,
            summary: transport.summary,
            available,
            reason: limit.as_ref().map(|limit| limit.reason.clone()),
            remedy: limit.map(|limit| limit.remedy),
        }
    });
    let transports = transports.collect();
    let serial_ports = serial::list_ports();
    let floor = overhead::measure_overhead();
    let verdict = checks.iter().map(|check| check.verdict).max().unwrap_or(CheckVerdict::Good);
    let summary = summary(&checks);
    DoctorReport { schema: "linkgauge.doctor.v1", checks, transports, serial_ports, floor, verdict, summary }
}

/// The whole in one line.
fn summary(checks: &[Check]) -> String {
    let names = |verdict: CheckVerdict| -> Vec<&str> {
        checks.iter().filter(|check| check.verdict == verdict).map(|check| check.name).collect()
    };
    let (bad, doubtful) = (names(CheckVerdict::Bad), names(CheckVerdict::Doubtful));
    match (bad.as_slice(), doubtful.as_slice()) {
        ([], []) => "fit to measure".to_owned(),
        ([], doubtful) => {
            format!(
                "usable, with doubts ({}): figures may be worse than the link deserves",
                doubtful.join(", ")
            )
        }
        (bad, _) => format!(
            "not fit to tell about links ({}): compare figures only with others of this machine",
            bad.join(", ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worst_check_decides_the_verdict() {
        let check = |name, verdict| Check { name, verdict, finding: String::new(), remedy: None };
        let good = check("load", CheckVerdict::Good);
        let doubtful = check("frequency", CheckVerdict::Doubtful);
        let bad = check("hypervisor", CheckVerdict::Bad);
        let all = [summary(&[]), summary(&[good.clone(), doubtful.clone()]), summary(&[good, doubtful, bad])];
        insta::assert_snapshot!(all.join("\n"), @r"
        fit to measure
        usable, with doubts (frequency): figures may be worse than the link deserves
        not fit to tell about links (hypervisor): compare figures only with others of this machine
        ");
    }
}
