//! `linkgauge download`.

mod list;
mod writer;

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::builder::PossibleValue;
use clap::{ArgGroup, Args};
use linkgauge::Registry;
use linkgauge::clock::Clock;
use linkgauge::endpoint::Endpoint;
use linkgauge::plan::{Case, CaseSpec, OneOrMany};
use linkgauge::protocol::Protocol;
use linkgauge::run::{CaseResult, Run};
use linkgauge::schedule::{self, CheckedPlan};
use linkgauge::units::{Bytes, Span};
use linkgauge::workload::download::WHOLE_FACT;

use self::writer::DownloadWriter;
use super::help::{DURATION, OUTPUT, TARGET, TRAFFIC};
use super::ip::IpFlags;
use super::measure::{
    MeasuredRun, PlanFlags, measure, measure_with_content, one_or_many, report_and_save, run_status,
};
use super::output::{Messages, RunText, finish_all, is_dash};
use super::status::Status;

/// Download a file or a table from a data logger, and measure it
///
/// The logger sends one chunk per request, so the round trip limits the rate: the time of each chunk stands beside the
/// rate. The content goes to NAME.part until it is complete. After a lost link the download reconnects and continues. A later
/// download of the file continues NAME.part, after the end of it was compared with the file of the logger.
#[derive(Args, Clone)]
#[command(group = ArgGroup::new("what").required(true))]
pub struct Flags {
    /// Loggers, like pakbus://host:6785/ADDRESS; each is a download
    ///
    /// Also tcp://host:6785 or serial:///dev/ttyS0?baud=9600.
    #[arg(required = true, value_name = "URL")]
    urls: Vec<Endpoint>,
    /// File to download, with its drive: CPU:data.dat
    #[arg(long, help_heading = TARGET, value_name = "NAME", group = "what")]
    file: Option<String>,
    /// Table to download, from its oldest record to its newest
    #[arg(long, help_heading = TARGET, value_name = "NAME", group = "what")]
    table: Option<String>,
    /// List the files and tables of the logger, without a download
    #[arg(long, help_heading = TARGET, group = "what")]
    list: bool,
    #[command(flatten)]
    requests: RequestFlags,
    #[command(flatten)]
    ip: IpFlags,
    /// Stop after this time
    #[arg(long, short = 't', help_heading = DURATION, value_name = "TIME")]
    time: Option<Span>,
    /// Stop after this volume
    ///
    /// An incomplete file keeps the name NAME.part.
    #[arg(long, help_heading = DURATION, value_name = "SIZE")]
    volume: Option<Bytes>,
    /// File for the content ('-': standard output)
    ///
    /// An existing file is overwritten. Default: the file's own name, TABLE.csv or TABLE.dat, in this directory, never
    /// overwritten.
    #[arg(long, short, help_heading = OUTPUT, value_name = "PATH|-")]
    output: Option<PathBuf>,
    /// Do not write the content
    ///
    /// Required for several downloads.
    #[arg(long, help_heading = OUTPUT, conflicts_with = "output")]
    no_output: bool,
    /// Format of a table
    #[arg(long, help_heading = OUTPUT, value_name = "FORMAT", value_parser = table_format_values(), default_value = "csv")]
    table_format: String,
    #[command(flatten)]
    plan: PlanFlags,
}

/// The requests to the logger; options of the protocol.
#[derive(Args, Clone)]
struct RequestFlags {
    /// Protocol that the logger speaks
    #[arg(
        long,
        help_heading = TARGET,
        value_name = "PROTOCOL",
        value_parser = protocol_values(),
        default_value = "pakbus",
        hide_short_help = true
    )]
    protocol: String,
    /// PakBus address of the logger, 1 to 4094 [default: 1]
    #[arg(long, help_heading = TARGET, value_name = "ADDRESS")]
    node: Option<String>,
    /// PakBus address of the router that leads to the logger [default: none]
    #[arg(long, help_heading = TARGET, value_name = "ADDRESS")]
    router: Option<String>,
    /// Security code of the logger [default: none]
    #[arg(long, help_heading = TARGET, value_name = "CODE")]
    security: Option<String>,
    /// Chunk size of a file, at most 991 [list; default: 991]
    #[arg(long, short, help_heading = TRAFFIC, value_name = "SIZE", value_delimiter = ',')]
    size: Vec<Bytes>,
    /// Requests in flight [list: one case each; default: 1]
    ///
    /// At most as many as the logger accepts.
    #[arg(long, help_heading = TRAFFIC, value_name = "N", value_delimiter = ',')]
    window: Vec<String>,
    /// Repeat a request without a reply after this time [default: 5s]
    ///
    /// On a serial line 4 times the chunk's time more.
    #[arg(long, help_heading = TRAFFIC, value_name = "TIME")]
    timeout: Option<Span>,
    /// Repeat a request at most N times [default: 3]
    #[arg(long, help_heading = TRAFFIC, value_name = "N", hide_short_help = true)]
    retries: Option<String>,
    /// Reconnect at most N times in a row without progress [default: 10]
    #[arg(long, help_heading = TRAFFIC, value_name = "N", hide_short_help = true)]
    reconnects: Option<String>,
}

fn table_format_values() -> clap::builder::PossibleValuesParser {
    let csv = PossibleValue::new("csv").help("one line of names, then one line per record");
    let toa5 = PossibleValue::new("toa5").help("the format of the logger's own programs");
    [csv, toa5].into()
}

fn protocol_values() -> clap::builder::PossibleValuesParser {
    let value = |protocol: &Protocol| PossibleValue::new(protocol.name).help(protocol.summary);
    Registry::standard().protocols_with(WORKLOAD_NAME).map(value).collect::<Vec<_>>().into()
}

const WORKLOAD_NAME: &str = "download";

impl Flags {
    /// The cases that these flags describe.
    fn cases(&self) -> Result<Vec<Case>> {
        let requests = &self.requests;
        let named = [
            ("file", &self.file),
            ("table", &self.table),
            ("node", &requests.node),
            ("router", &requests.router),
            ("security", &requests.security),
            ("retries", &requests.retries),
            ("reconnects", &requests.reconnects),
        ];
        let mut options: BTreeMap<String, String> =
            named.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value.clone()?))).collect();
        if self.table.is_some() {
            options.insert("format".to_owned(), self.table_format.clone());
        }
        let spec = CaseSpec {
            url: Some(OneOrMany::Many(self.ip.apply_all(&self.urls)?)),
            protocol: Some(requests.protocol.clone()),
            workload: Some(WORKLOAD_NAME.to_owned()),
            size: one_or_many(&requests.size),
            volume: self.volume,
            time: self.time,
            timeout: requests.timeout,
            protocol_options: options,
            ..CaseSpec::default()
        };
        let windows: Vec<Option<&String>> = match requests.window.as_slice() {
            [] => vec![None],
            windows => windows.iter().map(Some).collect(),
        };
        let mut cases = Vec::new();
        for window in windows {
            let mut spec = spec.clone();
            spec.protocol_options.extend(window.map(|window| ("window".to_owned(), window.clone())));
            cases.extend(spec.expand()?);
        }
        Ok(cases)
    }

    /// The file for the content. `None` with `--no-output`.
    fn output_path(&self, downloads: usize) -> Result<Option<PathBuf>> {
        if self.no_output {
            return Ok(None);
        }
        if downloads > 1 {
            bail!("{downloads} downloads cannot go to one file. Use --no-output, or run one at a time");
        }
        if let Some(path) = &self.output {
            return Ok(Some(path.clone()));
        }
        let name = match (&self.file, &self.table) {
            (Some(file), _) => default_file_name(file),
            (None, Some(table)) if self.table_format == "toa5" => default_file_name(&format!("{table}.dat")),
            (None, table) => default_file_name(&format!("{}.csv", table.as_deref().unwrap_or_default())),
        };
        // A symbolic link counts as well, even a broken one.
        if Path::new(&name).symlink_metadata().is_ok() {
            bail!(
                "{name}: the file exists. Use --output FILE for another file or to overwrite, or --no-output"
            );
        }
        Ok(Some(name.into()))
    }
}

/// The name of a logger's file without its drive and without directories.
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
    let plan = flags.plan.plan_of(cases, repeat)?;
    // Checked first, so that an invalid plan creates no file.
    let plan = schedule::check(plan, Registry::standard())?;
    let on_stdout = place.as_deref().is_some_and(is_dash);
    if on_stdout && io::stdout().is_terminal() {
        bail!(
            "--output -: the content may be binary, so it is not printed on a terminal. Use a file or a pipe"
        );
    }
    flags.plan.check_output(usize::from(on_stdout))?;
    flags.plan.save.check()?;
    let (MeasuredRun { run, events }, kept) = match place {
        Some(place) => download_to_file(&plan, &flags.plan, &place, flags.file.is_some())?,
        None => (measure(&plan, &flags.plan, Registry::standard().dialer(Clock::System))?, Ok(())),
    };
    let text = RunText::printed_if(!on_stdout && !flags.plan.events_on_stdout());
    let written = report_and_save(&run, &flags.plan, text);
    finish_all([kept, events, written])?;
    Ok(run_status(&run))
}

/// Downloads to a file; a file of the logger continues what an earlier download has left. The second result is true if the file
/// was written.
fn download_to_file(
    plan: &CheckedPlan,
    flags: &PlanFlags,
    place: &Path,
    is_file: bool,
) -> Result<(MeasuredRun, Result<()>)> {
    let (keeper, content, partial) = DownloadWriter::create(place, is_file)?;
    if flags.output.messages() == Messages::All {
        keeper.print_resumption(partial.as_ref());
    }
    let measured =
        measure_with_content(plan, flags, Registry::standard().dialer(Clock::System), Some(content), partial);
    let cut = |case: &CaseResult| case.effective.get(WHOLE_FACT).is_some_and(|whole| whole == false);
    let is_whole = |run: &Run| run.is_complete() && !run.cases.iter().any(cut);
    let whole = measured.as_ref().is_ok_and(|measured| is_whole(&measured.run));
    let kept = keeper.finish(whole, flags.output.messages());
    Ok((measured?, kept))
}
