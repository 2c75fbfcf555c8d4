//! `linkgauge ab`: two plans, measured alternately on the same machine, and their comparison.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use linkgauge::Registry;
use linkgauge::clock::Clock;
use linkgauge::endpoint::Endpoint;
use linkgauge::plan::{Case, CaseSpec, OneOrMany, Plan};
use linkgauge::report::{RunGroup, printable};
use linkgauge::run::Run;
use linkgauge::schedule;
use linkgauge::verdict::Pairing;

use super::compare::{CompareFlags, ComparisonFormat};
use super::help::{OUTPUT, TARGET};
use super::input::read_text;
use super::ip::IpFlags;
use super::measure::{MeasuredRun, PlanFlags, in_file, measure, run_status};
use super::output::{RunText, check_file_writable, finish_all, print_error};
use super::status::Status;

/// Run two plans alternately and compare them
///
/// The repetitions alternate, so slow changes of the machine affect both plans alike. Each repetition of B is compared with that of
/// A before it: a signed-rank test of the differences, and their Hodges-Lehmann estimate. Each plan is saved as its own run. The
/// exit status is 1 if B is worse.
#[derive(Args)]
pub struct Flags {
    /// Baseline: a plan in TOML, or a URL or host
    #[arg(long, help_heading = TARGET, value_name = "PLAN.toml|URL")]
    a: String,
    /// Compared with it: a plan with the same cases, or a URL or host
    #[arg(long, help_heading = TARGET, value_name = "PLAN.toml|URL")]
    b: String,
    /// Workload to measure at a URL
    #[arg(long, help_heading = TARGET, value_name = "NAME", default_value = "latency", value_parser = workload_values())]
    workload: String,
    #[command(flatten)]
    ip: IpFlags,
    #[command(flatten)]
    comparison: CompareFlags,
    #[command(flatten)]
    plan: PlanFlags,
    /// Print the comparison as JSON
    #[arg(long, help_heading = OUTPUT)]
    compare_json: bool,
    /// Write the comparison as a self-contained HTML page
    #[arg(long, help_heading = OUTPUT, value_name = "FILE")]
    compare_html: Option<PathBuf>,
}

fn workload_values() -> clap::builder::PossibleValuesParser {
    Registry::standard().workloads.iter().map(|workload| workload.name).collect::<Vec<_>>().into()
}

/// More than a verdict requires: the smallest possible p is 1 in 500.
const DEFAULT_REPETITIONS: u32 = 10;

pub fn run(flags: Flags) -> Result<Status> {
    // Standard output gets the comparison.
    flags.plan.output.check_writable(1)?;
    flags.compare_html.iter().try_for_each(|path| check_file_writable(path))?;
    flags.plan.save.check()?;
    let (a, b) = (load_plan(&flags.a, &flags)?, load_plan(&flags.b, &flags)?);
    let repeat = flags.plan.repeat.unwrap_or(a.repeat.max(b.repeat).max(DEFAULT_REPETITIONS));
    // A case without a size may become several.
    let count = schedule::check(a.clone(), Registry::standard())?.cases().len();
    let keep_going = a.keep_going || b.keep_going || flags.plan.keep_going;
    let cases: Vec<Case> = a.cases.into_iter().chain(b.cases).collect();
    let plan =
        schedule::check(Plan { keep_going, ..Plan::new(cases)?.repeated(repeat)? }, Registry::standard())?;
    let MeasuredRun { run, events } =
        measure(&plan, &flags.plan, Registry::standard().dialer(Clock::System))?;
    let ended = run_status(&run);
    let written = flags.plan.output.write(&run, RunText::Omitted);
    let titles = [a.title.unwrap_or(flags.a.clone()), b.title.unwrap_or(flags.b.clone())];
    let (a, b) = split_sides(run, count, titles);
    let measured: Vec<&Run> = [&a, &b]
        .into_iter()
        .filter(|run| run.cases.iter().any(|case| case.figures.has_measurements()))
        .collect();
    for run in &measured {
        flags.plan.save.save_or_warn(run);
    }
    if measured.len() < 2 {
        for (side, name) in [(&a, &flags.a), (&b, &flags.b)] {
            if !measured.iter().any(|run| std::ptr::eq(*run, side)) && ended != Status::Interrupted {
                print_error(&format!(
                    "{}: nothing was measured there, so nothing is compared",
                    printable(name)
                ));
            }
        }
        finish_all([events, written])?;
        return Ok(ended);
    }
    let sides = [RunGroup { name: &flags.a, runs: &[a] }, RunGroup { name: &flags.b, runs: &[b] }];
    let format = if flags.compare_json { ComparisonFormat::Json } else { ComparisonFormat::Text };
    let html = flags.compare_html.as_deref();
    if ended == Status::Interrupted {
        print_error("interrupted: what was measured until then is compared");
    }
    let compared = flags.comparison.compare(sides, Pairing::Interleaved, format, html);
    finish_all([events, written])?;
    match (ended, compared) {
        (Status::Interrupted, Err(error)) => {
            print_error(&format!("{error:#}"));
            Ok(ended)
        }
        // An incomplete measurement has priority over a regression.
        (ended, compared) => {
            compared.map(|compared| if ended == Status::Complete { compared } else { ended })
        }
    }
}

fn load_plan(named: &str, flags: &Flags) -> Result<Plan> {
    let is_file = Path::new(named).is_file() || named.ends_with(".toml");
    let is_endpoint = named.contains("://") || !is_file && named.parse::<Endpoint>().is_ok();
    if is_endpoint {
        let endpoint = flags.ip.apply(named.parse()?)?;
        let spec = CaseSpec {
            url: Some(OneOrMany::One(endpoint)),
            workload: Some(flags.workload.clone()),
            ..CaseSpec::default()
        };
        return Ok(Plan::new(spec.expand()?)?);
    }
    let text = read_text(Path::new(named), "the plan")?;
    let plan = Plan::from_toml(&text).with_context(|| named.to_owned())?;
    schedule::check(plan.clone(), Registry::standard()).map_err(|error| in_file(error, &named, &text))?;
    Ok(plan)
}

/// Splits the run into the runs of the two plans.
fn split_sides(run: Run, count: usize, titles: [String; 2]) -> (Run, Run) {
    let [title_a, title_b] = titles;
    let mut a = Run { id: format!("{}a", run.id), title: Some(title_a), ..run.clone() };
    let mut b = Run { id: format!("{}b", run.id), title: Some(title_b), ..run };
    a.cases.truncate(count);
    b.cases.drain(..count);
    (a, b)
}
