//! `linkgauge doctor`: properties of this host that distort measurements, and the measurement overhead.
//!
//! `overhead` measures the overhead, and `text` formats the findings.

mod overhead;
mod text;

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;

use anyhow::Result;
use clap::Args;
use linkgauge::Registry;
use linkgauge::host::check::{self, Check, CheckVerdict};
use linkgauge::host::serial;
use linkgauge::link::Transport;
use linkgauge::report::escape_json;
use linkgauge::units::format_plural;
use serde::Serialize;

use super::help::OUTPUT;
use super::output::{
    finish_all, is_dash, print_json, print_message, print_text, terminal_options, write_file,
};
use super::signals::interrupt_flag;
use super::status::Status;
use overhead::MeasurementOverhead;

/// Check whether this host can measure well
///
/// Checks clocks, timers, permissions, transports and serial ports, and measures the overhead. Changes nothing. The exit
/// status is 0 even with findings, unless a check could not be made.
#[derive(Args)]
pub struct Flags {
    /// Write the findings as JSON ('-': standard output, instead of the text)
    #[arg(long, help_heading = OUTPUT, value_name = "FILE|-")]
    json: Option<PathBuf>,
    /// Print every check, transport and serial port
    #[arg(long, help_heading = OUTPUT)]
    all: bool,
}

/// All findings, in the form of the JSON.
#[derive(Serialize)]
struct DoctorReport {
    schema: &'static str,
    checks: Vec<Check>,
    transports: Vec<TransportStatus>,
    serial_ports: Vec<serial::PortInfo>,
    overhead: MeasurementOverhead,
    verdict: CheckVerdict,
    summary: String,
}

/// Availability of a transport.
#[derive(Serialize)]
struct TransportStatus {
    scheme: &'static str,
    summary: &'static str,
    available: bool,
    /// Whether many flows can share a thread. If not, each has one for itself.
    shares_threads: bool,
    /// The reason if it is unavailable, or its limitation.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

pub fn run(flags: Flags) -> Result<Status> {
    let interrupt = interrupt_flag()?;
    let findings = examine_host();
    if interrupt.load(Relaxed) {
        print_message("interrupted: nothing was measured");
        return Ok(Status::Interrupted);
    }
    let render = if flags.all { text::render_all } else { text::render_summary };
    let page = || print_text(|stdout| stdout.write_all(render(&findings, &terminal_options()).as_bytes()));
    match flags.json {
        Some(path) if is_dash(&path) => print_json(|stdout| write_json(&findings, stdout))?,
        Some(path) => finish_all([write_file(&path, |file| write_json(&findings, file)), page()])?,
        None => page()?,
    }
    Ok(if findings.overhead.is_complete() { Status::Complete } else { Status::Incomplete })
}

fn write_json(findings: &DoctorReport, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", escape_json(&serde_json::to_string_pretty(findings)?))
}

fn examine_host() -> DoctorReport {
    let mut checks = check::run_checks();
    checks.push(check::interrupt_coalescing(&linkgauge::transport::internet::all_interface_facts()));
    let transports = Registry::standard().transports.0.iter().map(|transport| {
        let missing = (transport.available)();
        let available = missing.is_ok();
        let limit = missing.err().or_else(transport.limitation);
        TransportStatus {
            scheme: transport.scheme,
            summary: transport.summary,
            available,
            shares_threads: shares_threads(transport),
            reason: limit.as_ref().map(|limit| limit.reason.clone()),
            remedy: limit.map(|limit| limit.remedy),
        }
    });
    let transports = transports.collect();
    let serial_ports = serial::list_ports();
    let overhead = overhead::measure_overhead();
    let verdict = checks.iter().map(|check| check.verdict).max().unwrap_or(CheckVerdict::Good);
    let summary = summary(&checks);
    DoctorReport {
        schema: "linkgauge.doctor.v1",
        checks,
        transports,
        serial_ports,
        overhead,
        verdict,
        summary,
    }
}

fn shares_threads(transport: &Transport) -> bool {
    let caps = transport
        .example
        .parse()
        .ok()
        .and_then(|example| Registry::standard().transports.caps(&example).ok());
    caps.is_some_and(|caps| caps.descriptor.can_share_thread())
}

/// The verdict in one sentence.
fn summary(checks: &[Check]) -> String {
    let names = |verdict: CheckVerdict| -> Vec<&str> {
        checks.iter().filter(|check| check.verdict == verdict).map(|check| check.name).collect()
    };
    let (bad, doubtful) = (names(CheckVerdict::Bad), names(CheckVerdict::Doubtful));
    let things =
        |names: &[&str]| format!("{} ({})", format_plural(names.len() as u64, "finding"), names.join(", "));
    match (bad.as_slice(), doubtful.as_slice()) {
        ([], []) => "Ready to measure: no check found a problem.".to_owned(),
        ([], doubtful) => format!("Usable: {} can distort results.", things(doubtful)),
        (bad, doubtful) => {
            let others =
                if doubtful.is_empty() { String::new() } else { format!(", and {} more", doubtful.len()) };
            format!(
                "Not suitable for absolute figures: {}{others}. Compare results only with others of this machine.",
                things(bad)
            )
        }
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
        Ready to measure: no check found a problem.
        Usable: 1 finding (frequency) can distort results.
        Not suitable for absolute figures: 1 finding (hypervisor), and 1 more. Compare results only with others of this machine.
        ");
    }
}
