//! `linkgauge explain`.

use std::collections::BTreeSet;
use std::net::ToSocketAddrs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use linkgauge::endpoint::Endpoint;
use linkgauge::explain::mesh::explain_pair;
use linkgauge::explain::{self, DeclaredFacts, Finding, ModelInput, mechanisms};
use linkgauge::lists::MODELS;
use linkgauge::report::{self, Detail, ReportOptions};
use linkgauge::run::{CaseResult, Run};
use linkgauge::study::{STUDIES, Study};
use linkgauge::twin;
use linkgauge::units;

use super::help::{OUTPUT, TARGET};
use super::output::{finish_all, is_dash, print_json, print_text, terminal_options, write_file};
use super::status::Status;
use super::store::{StoreFlags, is_saved, load_runs, names_a_file, names_a_saved_run};

mod live;
mod throughput;

/// Explain where the time goes: of a link, a run or a study
///
/// A URL is measured for a minute: round trips after random pauses show what looks like a cause, and each suspect that a setting
/// can remove is tested in pairs, with and without it. With --workload throughput, the same is done for what limits the rate. For
/// runs and studies, models are fitted to the figures.
/// Nothing is saved: --json and --html write the result to files. docs/explain.md explains how to read it.
#[derive(Args)]
#[command(after_help = models_help())]
pub struct Flags {
    /// Endpoints to measure, like 192.0.2.7; or a run (a file, the id or tag of a saved run, 'last'), or the name of a study
    /// for its published figures
    #[arg(value_name = "URL|RUN|STUDY", default_value = "last")]
    of: Vec<String>,
    #[command(flatten)]
    live: live::LiveFlags,
    #[command(flatten)]
    transfer: throughput::TransferFlags,
    /// Rate of the link (bit/s without a unit), and the payload share of a frame [default: all of it]
    #[arg(long, help_heading = TARGET, value_name = "RATE[*PAYLOAD/FRAME]", value_parser = parse_line_bps)]
    line: Option<f64>,
    /// Explain one pair of hosts of 'linkgauge mesh', both ways
    #[arg(long, help_heading = TARGET, num_args = 2, value_names = ["FROM", "TO"])]
    pair: Vec<String>,
    /// Write the findings as JSON ('-': standard output, instead of the text)
    #[arg(long, help_heading = OUTPUT, value_name = "FILE|-")]
    json: Option<PathBuf>,
    /// Write a self-contained HTML page with the pairs of each proof of a URL ('-': standard output)
    #[arg(long, help_heading = OUTPUT, value_name = "FILE|-")]
    html: Option<PathBuf>,
    /// Print also ruled-out causes and the parts of a round trip; of a study, all its figures
    #[arg(long, visible_alias = "notes", help_heading = OUTPUT)]
    all: bool,
    /// Print errors only
    #[arg(long, short, help_heading = OUTPUT)]
    quiet: bool,
    #[command(flatten)]
    store: StoreFlags,
}

/// Bits of payload a second: `1Gbit/s`, or `1Gbit/s*1488/1538` where each frame of 1538 bytes has 1488 of payload.
fn parse_line_bps(text: &str) -> Result<f64> {
    let (rate, share) = text.split_once('*').unwrap_or((text, "1/1"));
    let rate = units::parse_bit_rate(rate)?;
    let parts = share.split_once('/').map(|(payload, frame)| (payload.parse::<u32>(), frame.parse::<u32>()));
    match parts {
        Some((Ok(payload), Ok(frame))) if 0 < payload && payload <= frame => {
            Ok(rate * f64::from(payload) / f64::from(frame))
        }
        _ => bail!("'{share}' is not a share of a frame. Write it like 1Gbit/s*1488/1538"),
    }
}

fn models_help() -> String {
    let lines = MODELS.iter().map(|model| format!("\n  {:<10}  {}", model.name, model.summary));
    format!("Models:{}", lines.collect::<String>())
}

pub fn run(flags: Flags) -> Result<Status> {
    if flags.of.iter().any(|named| live::is_endpoint(named) || is_bare_host(named, &flags.store)) {
        if !flags.pair.is_empty() {
            bail!("--pair names two hosts of a run of 'linkgauge mesh'. Name the run instead of a URL");
        }
        return if flags.transfer.is_used() { throughput::run(&flags) } else { live::run(&flags) };
    }
    flags.live.check_unused()?;
    flags.transfer.check_unused()?;
    if flags.html.is_some() {
        bail!(
            "--html needs a URL to measure, like tcp://192.0.2.7. Of a run: linkgauge show RUN --html FILE"
        );
    }
    let [of] = flags.of.as_slice() else {
        bail!("only one run or study can be explained at a time. Name one")
    };
    explain_document(of, &flags)
}

fn explain_document(of: &str, flags: &Flags) -> Result<Status> {
    let declared = DeclaredFacts { line_bps: flags.line };
    // Only studies have such long derivations that their answers need a short form.
    let mut detail = if flags.all { Detail::Full } else { Detail::Summary };
    let findings = if STUDIES.iter().any(|study| study.name == of) && !Path::new(of).is_file() {
        if !flags.pair.is_empty() {
            bail!("--pair names two hosts of a run of 'linkgauge mesh', and {of} is a study. Name a run");
        }
        let study = Study::by_name(of)?;
        let mut findings = explain_input(of, &ModelInput::Study(&study), &declared)?;
        if flags.all {
            findings.push(mechanisms::fit(&twin::compare(&study)?));
        }
        findings
    } else {
        let run = load_run(of, &flags.store)?;
        if run.study.is_none() {
            detail = Detail::Full;
        }
        match flags.pair.as_slice() {
            [from, to] => {
                vec![explain_pair(&run, [from.as_str(), to.as_str()]).with_context(|| of.to_owned())?]
            }
            _ => explain_input(of, &ModelInput::Run(&run), &declared)?,
        }
    };
    let document = || serde_json::to_string_pretty(&explain::findings_document(of, &findings));
    let document = flags.json.as_ref().map(|_| document()).transpose()?.unwrap_or_default();
    let document = report::escape_json(&document);
    match &flags.json {
        Some(path) if is_dash(path) => print_json(|stdout| writeln!(stdout, "{document}"))?,
        Some(path) => {
            let written = write_file(path, |file| writeln!(file, "{document}"));
            let printed = if flags.quiet { Ok(()) } else { print_findings(&findings, detail) };
            finish_all([written, printed])?
        }
        None if flags.quiet => {}
        None => print_findings(&findings, detail)?,
    }
    Ok(Status::Complete)
}

/// The one run of that name.
fn load_run(named: &str, store: &StoreFlags) -> Result<Run> {
    let no_study = || {
        let names: Vec<&str> = STUDIES.iter().map(|study| study.name).collect();
        format!("'{named}' is neither the name of a host nor a study ({})", names.join(", "))
    };
    let found = load_runs(named, store);
    let is_clear = names_a_file(named) || names_a_saved_run(named);
    let mut found = if is_clear { found? } else { found.with_context(no_study)? };
    match (found.pop(), found.len()) {
        (Some(run), 0) => Ok(run),
        (_, more) => bail!("'{named}' names {} runs, but only one run can be explained. Name one", more + 1),
    }
}

/// Whether an argument is a host without a scheme. Studies and saved runs of this name have priority.
fn is_bare_host(named: &str, store: &StoreFlags) -> bool {
    let is_known = || STUDIES.iter().any(|study| study.name == named) || is_saved(named, store);
    if names_a_file(named) || names_a_saved_run(named) || is_known() {
        return false;
    }
    let Ok(endpoint) = named.parse::<Endpoint>() else { return false };
    // A name with a domain is one of a host, known or not.
    endpoint.host_port().is_ok_and(|(host, _)| host.contains('.') || (host, 0).to_socket_addrs().is_ok())
}

/// Whether models treat the workload of a case: plain round trips and plain transfers.
fn is_explainable(case: &CaseResult) -> bool {
    ["latency", "throughput"].contains(&case.workload.as_str())
}

/// The findings, or one line with the missing data.
fn explain_input(of: &str, input: &ModelInput, declared: &DeclaredFacts) -> Result<Vec<Finding>> {
    explain::explain(MODELS, input, declared).or_else(|silent| {
        let why: Vec<String> = silent.iter().map(|(model, why)| format!("{model}: {why}")).collect();
        let why = why.join("; ");
        match input {
            ModelInput::Run(run) if run.cases.is_empty() => {
                bail!("{of}: the run has no case, so there is nothing to explain. Try 'linkgauge explain URL' to measure the link")
            }
            ModelInput::Run(run) if !run.cases.iter().any(is_explainable) => {
                let workloads: BTreeSet<&str> = run.cases.iter().map(|case| case.workload.as_str()).collect();
                let workloads = Vec::from_iter(workloads).join(", ");
                bail!(
                    "{of}: a run of {workloads} has nothing that a model explains. Try 'linkgauge show {of}' for its figures, or \
                     'linkgauge explain URL' to measure the link"
                )
            }
            _ => bail!("{of}: no model fits these data: {why}"),
        }
    })
}

/// Prints findings.
pub fn print_findings(findings: &[Finding], detail: Detail) -> Result<()> {
    let options = ReportOptions { detail, ..terminal_options() };
    print_text(|stdout| report::write_findings(findings, &options, stdout))
}
