//! `linkgauge download`.

mod list;
mod writer;

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::builder::PossibleValue;
use clap::{ArgGroup, Args};
use linkgauge::clock::Clock;
use linkgauge::endpoint::Endpoint;
use linkgauge::link::Dialer;
use linkgauge::plan::{Case, CaseSpec, OneOrMany, Plan};
use linkgauge::protocol::PROTOCOLS;
use linkgauge::run::{CaseResult, Run};
use linkgauge::schedule::{self, CheckedPlan};
use linkgauge::units::{Bytes, Span};
use linkgauge::workload::download::WHOLE_FACT;

use self::writer::DownloadWriter;
use super::Status;
use super::ip::IpFlags;
use super::measure::{
    Measurement, PlanFlags, measure, measure_with_content, one_or_many, report_and_save, run_status,
};
use super::output::{finish_all, is_dash};

/// Download a file or a table from a data logger, and measure it
///
/// Every piece is asked for and waited for, so the round trip decides: the time of each piece stands beside the rate. Writes
/// what it downloads as it comes, to NAME.part until it is whole. A lost link is opened anew, and the download goes on where
/// it was.
#[derive(Args, Clone)]
#[command(group = ArgGroup::new("what").required(true))]
pub struct Flags {
    /// Where the logger is: pakbus://host:6785/ADDRESS, tcp://host:6785, serial:///dev/ttyS0?baud=9600; each is a download of
    /// its own
    #[arg(required = true, value_name = "URL")]
    urls: Vec<Endpoint>,
    /// File to download, with its drive: CPU:data.dat
    #[arg(long, value_name = "NAME", group = "what")]
    file: Option<String>,
    /// Table to download, from its oldest record to its newest
    #[arg(long, value_name = "NAME", group = "what")]
    table: Option<String>,
    /// List the files and the tables of the logger, and download nothing else
    #[arg(long, group = "what")]
    list: bool,
    /// Write it to this file, over what is there ('-': standard output) [default: the file's own name, TABLE.csv or
    /// TABLE.dat, in this directory, never over what is there]
    #[arg(long, short, value_name = "PATH|-")]
    output: Option<PathBuf>,
    /// Keep nothing: only measure; needed for several downloads
    #[arg(long, conflicts_with = "output")]
    no_output: bool,
    /// How a table is written
    #[arg(long, value_name = "FORMAT", value_parser = table_format_values(), default_value = "csv")]
    table_format: String,
    /// Stop after so many bytes; what ends before the file does stays NAME.part
    #[arg(long, value_name = "SIZE")]
    volume: Option<Bytes>,
    /// Stop after this time
    #[arg(long, short = 't', value_name = "TIME")]
    time: Option<Span>,
    #[command(flatten)]
    requests: RequestFlags,
    #[command(flatten)]
    ip: IpFlags,
    #[command(flatten)]
    plan: PlanFlags,
}

/// How the logger is asked; options of the peer.
#[derive(Args, Clone)]
#[command(next_help_heading = "Asking")]
struct RequestFlags {
    /// What the far end speaks
    #[arg(long, value_name = "PEER", value_parser = protocol_values(), default_value = "pakbus")]
    peer: String,
    /// PakBus address of the logger, 1 to 4094 [default: 1]
    #[arg(long, value_name = "ADDRESS")]
    node: Option<String>,
    /// Security code of the logger [default: none]
    #[arg(long, value_name = "CODE")]
    security: Option<String>,
    /// Bytes of a file that are asked for at once, at most 991 [list: one case each; default: 991]
    #[arg(long, short, value_name = "SIZE", value_delimiter = ',')]
    size: Vec<Bytes>,
    /// Requests kept on their way; fewer where the logger does not bear so many [list: one case each; default: 1, the next
    /// one waits for the answer]
    #[arg(long, value_name = "N", value_delimiter = ',')]
    window: Vec<String>,
    /// Ask again when no answer has come by then [default: 5s; on a line four times the piece's time more]
    #[arg(long, value_name = "TIME")]
    timeout: Option<Span>,
    /// Ask so often again [default: 3]
    #[arg(long, value_name = "N")]
    retries: Option<String>,
    /// Open a lost link so often anew without getting further [default: 10]
    #[arg(long, value_name = "N")]
    reconnects: Option<String>,
}

fn table_format_values() -> clap::builder::PossibleValuesParser {
    let csv = PossibleValue::new("csv").help("one line of names, then a line a record");
    let toa5 = PossibleValue::new("toa5").help("as the logger's own programs write it");
    [csv, toa5].into()
}

fn protocol_values() -> clap::builder::PossibleValuesParser {
    let can = PROTOCOLS.iter().filter(|peer| peer.workloads.iter().any(|(name, _)| *name == WORKLOAD_NAME));
    can.map(|peer| PossibleValue::new(peer.name).help(peer.summary)).collect::<Vec<_>>().into()
}

const WORKLOAD_NAME: &str = "download";

impl Flags {
    /// The cases these flags stand for.
    fn cases(&self) -> Result<Vec<Case>> {
        let asking = &self.requests;
        let named = [
            ("file", &self.file),
            ("table", &self.table),
            ("node", &asking.node),
            ("security", &asking.security),
            ("retries", &asking.retries),
            ("reconnects", &asking.reconnects),
        ];
        let mut options: BTreeMap<String, String> =
            named.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value.clone()?))).collect();
        if self.table.is_some() {
            options.insert("format".to_owned(), self.table_format.clone());
        }
        let spec = CaseSpec {
            url: Some(OneOrMany::Many(self.ip.apply_all(&self.urls)?)),
            peer: Some(asking.peer.clone()),
            workload: Some(WORKLOAD_NAME.to_owned()),
            size: one_or_many(&asking.size),
            volume: self.volume,
            time: self.time,
            timeout: asking.timeout,
            peer_options: options,
            ..CaseSpec::default()
        };
        let windows: Vec<Option<&String>> = match asking.window.as_slice() {
            [] => vec![None],
            windows => windows.iter().map(Some).collect(),
        };
        let mut cases = Vec::new();
        for window in windows {
            let mut spec = spec.clone();
            spec.peer_options.extend(window.map(|window| ("window".to_owned(), window.clone())));
            cases.extend(spec.expand().map_err(anyhow::Error::msg)?);
        }
        Ok(cases)
    }

    /// Where it is kept; nowhere with `--no-output`.
    fn output_path(&self, downloads: usize) -> Result<Option<PathBuf>> {
        if self.no_output {
            return Ok(None);
        }
        if downloads > 1 {
            bail!(
                "{downloads} downloads cannot go to one file: keep nothing (--no-output), or make one at a time"
            );
        }
        if let Some(path) = &self.output {
            return Ok(Some(path.clone()));
        }
        let name = match (&self.file, &self.table) {
            (Some(file), _) => default_file_name(file),
            (None, Some(table)) if self.table_format == "toa5" => default_file_name(&format!("{table}.dat")),
            (None, table) => default_file_name(&format!("{}.csv", table.as_deref().unwrap_or_default())),
        };
        // A link counts as well, wherever it leads.
        if Path::new(&name).symlink_metadata().is_ok() {
            bail!(
                "{name}: is there already: name another file, or this one (--output), or keep nothing (--no-output)"
            );
        }
        Ok(Some(name.into()))
    }
}

/// The name of a logger's file without its drive, and without what leads to other directories.
fn default_file_name(name: &str) -> String {
    let name = name.rsplit([':', '/', '\\']).next().unwrap_or_default();
    if name.trim_start_matches('.').is_empty() { "download".to_owned() } else { name.to_owned() }
}

pub fn run(flags: Flags) -> Result<Status> {
    if flags.list {
        return list::print_listing(&flags);
    }
    let repeat = flags.plan.repeat();
    let cases = flags.cases()?;
    let place = flags.output_path(cases.len() * repeat as usize)?;
    let plan = Plan::new(flags.plan.title.clone(), repeat, flags.plan.keep_going, cases)?;
    // What cannot be run as planned leaves no file behind.
    let plan = schedule::check(plan)?;
    let on_stdout = place.as_deref().is_some_and(is_dash);
    if on_stdout && io::stdout().is_terminal() {
        bail!(
            "--output -: the content may be binary and is not printed on a terminal: name a file, or use a pipe"
        );
    }
    flags.plan.check_output(usize::from(on_stdout))?;
    flags.plan.save.check()?;
    let (Measurement { run, events }, kept) = match place {
        Some(place) => download_to_file(&plan, &flags.plan, &place)?,
        None => (measure(&plan, &flags.plan, Dialer::new(Clock::System))?, Ok(())),
    };
    let written = report_and_save(&run, &flags.plan, !on_stdout && !flags.plan.events_on_stdout());
    finish_all([kept, events, written])?;
    Ok(run_status(&run))
}

/// Downloads to a file; returns as well whether that could be written.
fn download_to_file(
    plan: &CheckedPlan,
    flags: &PlanFlags,
    place: &Path,
) -> Result<(Measurement, Result<()>)> {
    let (keeper, content) = DownloadWriter::create(place)?;
    let measured = measure_with_content(plan, flags, Dialer::new(Clock::System), Some(content));
    let cut = |case: &CaseResult| case.got.get(WHOLE_FACT).is_some_and(|whole| whole == false);
    let is_whole = |run: &Run| run.is_complete() && !run.cases.iter().any(cut);
    let whole = measured.as_ref().is_ok_and(|measured| is_whole(&measured.run));
    let kept = keeper.finish(whole, flags.output.quiet);
    Ok((measured?, kept))
}
