//! `linkgauge compare`.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use linkgauge::metric::Metric;
use linkgauge::report::{self, RunGroup};
use linkgauge::units::parse_share;
use linkgauge::verdict::{self, CompareOptions, Pairing, Verdict};

use super::help::OUTPUT;
use super::output::{finish_all, is_dash, print_data, print_json, print_text, terminal_options, write_file};
use super::status::Status;
use super::store::{RUN_HELP, StoreFlags, load_runs};

/// Compare two runs, or two sets of runs: worse, better, unchanged, or not decidable
///
/// Compares a few runs by their intervals, and sets of 4 runs and more by their ranks (Mann-Whitney). The exit status is 1 if a
/// figure is worse, and 2 if a metric of --metric was not measured. See docs/compare.md.
#[derive(Args)]
pub struct Flags {
    #[arg(value_name = "A", help = format!("Baseline [default: the run before the last]. {RUN_HELP}"))]
    a: Option<String>,
    /// Runs to compare with it, in the same form [default: the last run]
    #[arg(value_name = "B", requires = "a")]
    b: Option<String>,
    #[command(flatten)]
    comparison: CompareFlags,
    /// Print JSON
    #[arg(long, help_heading = OUTPUT)]
    json: bool,
    /// Write a self-contained HTML page with the verdicts and overlaid charts ('-': standard output)
    #[arg(long, help_heading = OUTPUT, value_name = "FILE|-", conflicts_with = "json")]
    html: Option<PathBuf>,
    #[command(flatten)]
    store: StoreFlags,
}

/// How strictly to compare.
#[derive(Args)]
#[command(next_help_heading = "Comparison")]
pub struct CompareFlags {
    /// Ignore differences up to this share of A's median
    #[arg(long, value_name = "SHARE", default_value = "5%", value_parser = parse_share)]
    margin: f64,
    /// Metrics to compare [list; default: p50 of a latency; rate, added latency and loss of a transfer]
    #[arg(long, value_name = "METRIC", value_delimiter = ',')]
    metric: Vec<Metric>,
    /// Compare runs that were measured in different ways
    #[arg(long)]
    force: bool,
}

pub fn run(flags: Flags) -> Result<Status> {
    let names = match (flags.a, flags.b) {
        (Some(a), Some(b)) => [a, b],
        (Some(a), None) => [a, "last".to_owned()],
        _ => flags.store.last_two()?,
    };
    let [a, b] = [load_runs(&names[0], &flags.store)?, load_runs(&names[1], &flags.store)?];
    let sides = [RunGroup { name: &names[0], runs: &a }, RunGroup { name: &names[1], runs: &b }];
    let format = if flags.json { ComparisonFormat::Json } else { ComparisonFormat::Text };
    flags.comparison.compare(sides, Pairing::Independent, format, flags.html.as_deref())
}

/// How a comparison is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ComparisonFormat {
    Text,
    Json,
}

impl CompareFlags {
    /// Compares, prints the result, and returns the status.
    pub fn compare(
        &self,
        sides: [RunGroup; 2],
        pairing: Pairing,
        format: ComparisonFormat,
        html: Option<&Path>,
    ) -> Result<Status> {
        let options =
            CompareOptions { margin: self.margin, metrics: self.metric.clone(), force: self.force, pairing };
        let comparison = verdict::compare(sides[0].runs, sides[1].runs, &options)?;
        let page = |out: &mut dyn Write| report::write_overlay(&sides, Some(&comparison), out);
        let file = html.filter(|path| !is_dash(path)).map(|path| write_file(path, |file| page(file)));
        let printed = if html.is_some_and(is_dash) {
            print_data(page)
        } else if format == ComparisonFormat::Json {
            let json = serde_json::to_string_pretty(&comparison)?;
            print_json(|out| writeln!(out, "{json}"))
        } else {
            let text = report::render_comparison(&comparison, &terminal_options());
            print_text(|out| write!(out, "{text}"))
        };
        finish_all(file.into_iter().chain([printed]))?;
        let is_measured = |metric: &Metric| {
            let mut of_metric = comparison.cases.iter().filter(|compared| compared.metric == metric.name());
            of_metric.any(|compared| compared.verdict != Verdict::NotMeasured)
        };
        let lacks_named_metric = !self.metric.iter().all(is_measured);
        Ok(match comparison.has_verdict(Verdict::Worse) {
            true => Status::Failed,
            false if lacks_named_metric => Status::Incomplete,
            false => Status::Complete,
        })
    }
}
