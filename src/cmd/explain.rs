//! `linkgauge explain`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use linkgauge::explain::{self, Declared, Evidence, Finding};
use linkgauge::paper::{STUDIES, Study};
use linkgauge::report;
use linkgauge::run::Run;
use linkgauge::units;

use super::Status;
use super::output::{all_of, is_dash, options, put, put_json, to_file};
use super::store::{StoreFlag, is_file, runs};

/// Say where the time goes: models fitted to what was measured, or published
///
/// What can be said is said, piece by piece. docs/explain.md tells how to read it.
#[derive(Args)]
#[command(after_help = pieces())]
pub struct Flags {
    /// A run: a file ('-': standard input), or from the store: an id, how it begins or ends, 'last', 'tag:NAME'; or the
    /// name of a study for its published figures
    #[arg(value_name = "RUN|STUDY")]
    of: String,
    /// What the line under the messages carries: its rate (bit/s without a unit), and how much of a frame is payload
    /// [default: all of it]
    #[arg(long, value_name = "RATE[*PAYLOAD/FRAME]", value_parser = line_bps)]
    line: Option<f64>,
    /// Write the findings as JSON ('-': standard output, instead of the text)
    #[arg(long, value_name = "FILE|-")]
    json: Option<PathBuf>,
    #[command(flatten)]
    store: StoreFlag,
}

/// Bits of payload a second: `1Gbit/s`, or `1Gbit/s*1488/1538` where each frame of 1538 bytes has 1488 of payload.
fn line_bps(text: &str) -> Result<f64, String> {
    let (rate, share) = text.split_once('*').unwrap_or((text, "1/1"));
    let rate = units::bit_rate(rate).map_err(|error| error.to_string())?;
    let parts = share.split_once('/').map(|(payload, frame)| (payload.parse::<u32>(), frame.parse::<u32>()));
    match parts {
        Some((Ok(payload), Ok(frame))) if 0 < payload && payload <= frame => {
            Ok(rate * f64::from(payload) / f64::from(frame))
        }
        _ => Err(format!("'{share}' is no share of a frame: write it like 1Gbit/s*1488/1538")),
    }
}

fn pieces() -> String {
    let lines = explain::PIECES.iter().map(|piece| format!("\n  {:<8}  {}", piece.name, piece.summary));
    format!("Pieces:{}", lines.collect::<String>())
}

pub fn run(flags: Flags) -> Result<Status> {
    let declared = Declared { line_bps: flags.line };
    let findings = if STUDIES.iter().any(|study| study.name == flags.of) && !Path::new(&flags.of).is_file() {
        found(&flags.of, &Evidence::Study(&Study::named(&flags.of)?), &declared)?
    } else {
        found(&flags.of, &Evidence::Run(&run_named(&flags.of, &flags.store)?), &declared)?
    };
    let document = || serde_json::to_string_pretty(&explain::document(&flags.of, &findings));
    let document = flags.json.as_ref().map(|_| document()).transpose()?.unwrap_or_default();
    match &flags.json {
        Some(path) if is_dash(path) => put_json(|stdout| writeln!(stdout, "{document}"))?,
        Some(path) => all_of([to_file(path, |file| writeln!(file, "{document}")), print(&findings)])?,
        None => print(&findings)?,
    }
    Ok(Status::Complete)
}

/// The one run of that name.
fn run_named(named: &str, store: &StoreFlag) -> Result<Run> {
    let no_study = || {
        let names: Vec<&str> = STUDIES.iter().map(|study| study.name).collect();
        format!("'{named}' is no study ({})", names.join(", "))
    };
    let found = runs(named, store);
    let mut found = if is_file(named) { found? } else { found.with_context(no_study)? };
    match (found.pop(), found.len()) {
        (Some(run), 0) => Ok(run),
        (_, more) => bail!("'{named}' names {} runs: one is explained at a time", more + 1),
    }
}

/// What is found, or one line that says what is missing.
fn found(of: &str, evidence: &Evidence, declared: &Declared) -> Result<Vec<Finding>> {
    explain::explain(evidence, declared).or_else(|silent| {
        let why: Vec<String> = silent.iter().map(|(piece, why)| format!("{piece}: {why}")).collect();
        bail!("{of}: nothing can be explained: {}", why.join("; "))
    })
}

/// Prints findings.
pub fn print(findings: &[Finding]) -> Result<()> {
    put(|stdout| report::explanation(findings, &options(), stdout))
}
