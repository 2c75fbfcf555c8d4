//! `linkgauge explain`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use linkgauge::explain::{self, Evidence, Finding};
use linkgauge::paper::{STUDIES, Study};
use linkgauge::report;
use linkgauge::run::Run;

use super::Status;
use super::output::{is_dash, options, put};

/// Say where the time goes: models fitted to what was measured, or published
///
/// What can be said is said, piece by piece. docs/explain.md tells how to read it.
#[derive(Args)]
#[command(after_help = pieces())]
pub struct Flags {
    /// A run document (JSON file), or the name of a study for its published figures
    #[arg(value_name = "RUN|STUDY")]
    of: String,
    /// Write the findings as JSON ('-': standard output, instead of the text)
    #[arg(long, value_name = "FILE|-")]
    json: Option<PathBuf>,
}

fn pieces() -> String {
    let lines = explain::PIECES.iter().map(|piece| format!("\n  {:<8}  {}", piece.name, piece.summary));
    format!("Pieces:{}", lines.collect::<String>())
}

pub fn run(flags: Flags) -> Result<Status> {
    let findings = if STUDIES.iter().any(|study| study.name == flags.of) && !Path::new(&flags.of).is_file() {
        found(&flags.of, &Evidence::Study(&Study::named(&flags.of)?))?
    } else {
        let names: Vec<&str> = STUDIES.iter().map(|study| study.name).collect();
        let text = std::fs::read_to_string(&flags.of).with_context(|| {
            format!("{}: cannot be read; name a run document or a study ({})", flags.of, names.join(", "))
        })?;
        found(&flags.of, &Evidence::Run(&Run::from_json(&text).with_context(|| flags.of.clone())?))?
    };
    let document = || serde_json::to_string_pretty(&explain::document(&flags.of, &findings));
    match &flags.json {
        Some(path) if is_dash(path) => {
            let document = document()?;
            put(|stdout| writeln!(stdout, "{document}"))?;
            return Ok(Status::Complete);
        }
        Some(path) => std::fs::write(path, document()? + "\n")
            .with_context(|| format!("{}: could not be written", path.display()))?,
        None => {}
    }
    print(&findings)?;
    Ok(Status::Complete)
}

/// What is found, or one line that says what is missing.
fn found(of: &str, evidence: &Evidence) -> Result<Vec<Finding>> {
    explain::explain(evidence).or_else(|silent| {
        let why: Vec<String> = silent.iter().map(|(piece, why)| format!("{piece}: {why}")).collect();
        bail!("{of}: nothing can be explained: {}", why.join("; "))
    })
}

/// Prints findings.
pub fn print(findings: &[Finding]) -> Result<()> {
    put(|stdout| report::explanation(findings, &options(), stdout))
}
