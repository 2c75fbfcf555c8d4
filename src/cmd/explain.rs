//! `linkgauge explain`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use linkgauge::explain::{self, DeclaredFacts, Evidence, Finding};
use linkgauge::report;
use linkgauge::run::Run;
use linkgauge::study::{STUDIES, Study};
use linkgauge::units;

use super::Status;
use super::output::{finish_all, is_dash, print_json, print_text, terminal_options, write_file};
use super::store::{StoreFlags, load_runs, names_a_file};

/// Say where the time goes: models fitted to what was measured, or published
///
/// What can be said is said, piece by piece. docs/explain.md tells how to read it.
#[derive(Args)]
#[command(after_help = models_help())]
pub struct Flags {
    /// A run: a file ('-': standard input), or from the store: an id, how it begins or ends, 'last', 'tag:NAME'; or the
    /// name of a study for its published figures
    #[arg(value_name = "RUN|STUDY")]
    of: String,
    /// What the line under the messages carries: its rate (bit/s without a unit), and how much of a frame is payload
    /// [default: all of it]
    #[arg(long, value_name = "RATE[*PAYLOAD/FRAME]", value_parser = parse_line_bps)]
    line: Option<f64>,
    /// Write the findings as JSON ('-': standard output, instead of the text)
    #[arg(long, value_name = "FILE|-")]
    json: Option<PathBuf>,
    #[command(flatten)]
    store: StoreFlags,
}

/// Bits of payload a second: `1Gbit/s`, or `1Gbit/s*1488/1538` where each frame of 1538 bytes has 1488 of payload.
fn parse_line_bps(text: &str) -> Result<f64, String> {
    let (rate, share) = text.split_once('*').unwrap_or((text, "1/1"));
    let rate = units::parse_bit_rate(rate).map_err(|error| error.to_string())?;
    let parts = share.split_once('/').map(|(payload, frame)| (payload.parse::<u32>(), frame.parse::<u32>()));
    match parts {
        Some((Ok(payload), Ok(frame))) if 0 < payload && payload <= frame => {
            Ok(rate * f64::from(payload) / f64::from(frame))
        }
        _ => Err(format!("'{share}' is no share of a frame: write it like 1Gbit/s*1488/1538")),
    }
}

fn models_help() -> String {
    let lines = explain::MODELS.iter().map(|piece| format!("\n  {:<8}  {}", piece.name, piece.summary));
    format!("Pieces:{}", lines.collect::<String>())
}

pub fn run(flags: Flags) -> Result<Status> {
    let declared = DeclaredFacts { line_bps: flags.line };
    let findings = if STUDIES.iter().any(|study| study.name == flags.of) && !Path::new(&flags.of).is_file() {
        explain_evidence(&flags.of, &Evidence::Study(&Study::by_name(&flags.of)?), &declared)?
    } else {
        explain_evidence(&flags.of, &Evidence::Run(&load_run(&flags.of, &flags.store)?), &declared)?
    };
    let document = || serde_json::to_string_pretty(&explain::findings_document(&flags.of, &findings));
    let document = flags.json.as_ref().map(|_| document()).transpose()?.unwrap_or_default();
    match &flags.json {
        Some(path) if is_dash(path) => print_json(|stdout| writeln!(stdout, "{document}"))?,
        Some(path) => {
            finish_all([write_file(path, |file| writeln!(file, "{document}")), print_findings(&findings)])?
        }
        None => print_findings(&findings)?,
    }
    Ok(Status::Complete)
}

/// The one run of that name.
fn load_run(named: &str, store: &StoreFlags) -> Result<Run> {
    let no_study = || {
        let names: Vec<&str> = STUDIES.iter().map(|study| study.name).collect();
        format!("'{named}' is no study ({})", names.join(", "))
    };
    let found = load_runs(named, store);
    let mut found = if names_a_file(named) { found? } else { found.with_context(no_study)? };
    match (found.pop(), found.len()) {
        (Some(run), 0) => Ok(run),
        (_, more) => bail!("'{named}' names {} runs: one is explained at a time", more + 1),
    }
}

/// What is found, or one line that says what is missing.
fn explain_evidence(of: &str, evidence: &Evidence, declared: &DeclaredFacts) -> Result<Vec<Finding>> {
    explain::explain(evidence, declared).or_else(|silent| {
        let why: Vec<String> = silent.iter().map(|(piece, why)| format!("{piece}: {why}")).collect();
        bail!("{of}: nothing can be explained: {}", why.join("; "))
    })
}

/// Prints findings.
pub fn print_findings(findings: &[Finding]) -> Result<()> {
    print_text(|stdout| report::write_findings(findings, &terminal_options(), stdout))
}
