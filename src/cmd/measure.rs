//! What all measuring commands share: their flags, and running a plan.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Arg, Args};
use linkgauge::Registry;
use linkgauge::clock::Clock;
use linkgauge::consistency;
use linkgauge::endpoint::Endpoint;
use linkgauge::host;
use linkgauge::host::raise_open_file_limit;
use linkgauge::link::{Dialer, REPORT_TIME};
use linkgauge::metric::{Metric, Threshold};
use linkgauge::path::{PathBeside, PathPlan};
use linkgauge::plan::{Case, CaseSpec, Direction, OneOrMany, Plan, ProbeSpec};
use linkgauge::protocol::Protocol;
use linkgauge::run::{CaseResult, Run, WarningCode};
use linkgauge::sample::RawFile;
use linkgauge::schedule::{self, CheckedPlan, InvalidCase, Precision, RunContext};
use linkgauge::units::{self, Bytes, Count, MessageRate, Span};
use linkgauge::verdict;
use linkgauge::workload::download::{ContentSender, PartialContent};

use super::device_changes::{ChangeFlags, DeviceChanges};
use super::help::{ADVANCED, DURATION, OUTPUT, SERVER, TARGET, TRAFFIC};
use super::input::read_text;
use super::ip::IpFlags;
use super::output::{OutputFlags, RunText, finish_all, is_dash, print_message};
use super::progress::{ProgressDisplay, ProgressMode};
use super::replies::ReplyPrinter;
use super::signals::interrupt_flag;
use super::stamp_cost::add_stamp_costs;
use super::status::Status;
use super::store::SaveFlags;

/// Flags that every workload has: targets, protocol, message size, stop conditions.
///
/// The order of the fields is the order of the headings of the help page.
#[derive(Args, Clone, Default)]
pub struct CaseFlags {
    /// Endpoints, like 192.0.2.7 or /dev/ttyS0; each one is a case
    ///
    /// A host stands for tcp://HOST:7100, and /dev/ttyS0 for serial:///dev/ttyS0. docs/transports.md lists all schemes and
    /// their options, like serial:///dev/ttyS0?baud=9600.
    #[arg(required = true, value_name = "URL")]
    pub urls: Vec<Endpoint>,
    /// Protocol that the remote speaks
    #[arg(long, help_heading = TARGET, value_name = "PROTOCOL", default_value = "auto", hide_possible_values = true)]
    pub protocol: String,
    #[command(flatten)]
    ip: IpFlags,
    /// Connections to each endpoint [list: one case each]
    #[arg(long, short = 'P', help_heading = TARGET, value_name = "N", value_delimiter = ',')]
    parallel: Vec<u32>,
    /// Measure all the URLs at the same time, as ports of one case
    #[arg(long, help_heading = TARGET, hide_short_help = true)]
    together: bool,
    /// Use N ports at once, counted up from the last number of the URL [list: one case each]
    #[arg(long, help_heading = TARGET, hide_short_help = true, value_name = "N", value_delimiter = ',')]
    ports: Vec<u32>,
    /// Message size
    #[arg(long, short, short_alias = 'l', help_heading = TRAFFIC, value_name = "SIZE", value_delimiter = ',')]
    size: Vec<Bytes>,
    /// Stop after this time, in seconds without a unit
    #[arg(long, short = 't', help_heading = DURATION, value_name = "TIME")]
    time: Option<Span>,
    /// Stop after this number of messages
    #[arg(long, short = 'n', short_alias = 'c', help_heading = DURATION, value_name = "N")]
    count: Option<Count>,
    /// Leave out this time or number of messages
    #[arg(long, help_heading = DURATION, value_name = "TIME|N")]
    warm_up: Option<WarmUp>,
    /// Give up after this time
    #[arg(long, help_heading = DURATION, value_name = "TIME")]
    timeout: Option<Span>,
    #[command(flatten)]
    pub plan: PlanFlags,
    /// Exit with status 1 unless met, like 'p99 < 2ms' [list]
    ///
    /// Further examples: 'loss = 0', 'rate > 99 %'. docs/plan.md lists the metrics.
    #[arg(long, help_heading = OUTPUT, value_name = "THRESHOLD", value_delimiter = ',')]
    threshold: Vec<Threshold>,
    /// Length of an entry of the time series, and time between progress events [default: 100ms, and 1s or half
    /// of a repetition]
    #[arg(long, help_heading = OUTPUT, hide_short_help = true, value_name = "TIME")]
    interval: Option<Span>,
    /// Threads of this program for the connections [default: one each, up to the number of CPUs]
    ///
    /// More connections than threads share them. A link without a descriptor, like linx, keeps a thread of its own.
    #[arg(long, help_heading = ADVANCED, hide_short_help = true, value_name = "N")]
    threads: Option<u32>,
    /// Wait by polling, at both ends: shorter round trips, but each end keeps a CPU busy
    #[arg(long, help_heading = ADVANCED, hide_short_help = true)]
    busy_poll: bool,
    #[command(flatten)]
    changes: ChangeFlags,
    /// Socket options at the server, like rcvbuf=64Ki,quickack=1 (linkgauge protocol only)
    ///
    /// Also sndbuf and nodelay. Options of the sockets at this end belong to the URL.
    #[arg(long, help_heading = ADVANCED, hide_short_help = true, value_name = "NAME=VALUE", value_delimiter = ',', value_parser = parse_server_option)]
    server_socket: Vec<(String, String)>,
    /// Measure forward and reverse delay as well (linkgauge protocol only)
    ///
    /// The server writes its times into round trips, beside a load into those of the probe. The clocks need not agree: each
    /// delay has its largest error. Queueing delays need no clock at all.
    #[arg(long, help_heading = TRAFFIC, hide_short_help = true)]
    one_way: bool,
    /// CPUs to run on: of this program, and of the server (linkgauge protocol only)
    #[arg(long, help_heading = ADVANCED, hide_short_help = true, value_name = "LOCAL[,REMOTE]", value_delimiter = ',', num_args = 1, value_parser = parse_cpu)]
    pin: Vec<u32>,
}

/// The protocols that serve a workload, as the values of a flag. The others are accepted, because their error is more precise.
pub fn with_protocols(argument: Arg, workload: &'static str) -> Arg {
    let serves =
        |name: &str| Registry::standard().protocols_with(workload).any(|serving| serving.name == name);
    let value = |protocol: &Protocol| PossibleValue::new(protocol.name).hide(!serves(protocol.name));
    let values =
        [PossibleValue::new("auto")].into_iter().chain(Registry::standard().protocols.iter().map(value));
    let auto = ("auto", "asks the remote; a serial device or a kernel is an echo");
    let listed =
        Registry::standard().protocols_with(workload).map(|protocol| (protocol.name, protocol.summary));
    let long_help = protocol_list("Protocol that the remote speaks", [auto].into_iter().chain(listed));
    argument.value_parser(PossibleValuesParser::from(values.collect::<Vec<_>>())).long_help(long_help)
}

/// A long help that lists protocols.
pub fn protocol_list(first: &str, protocols: impl Iterator<Item = (&'static str, &'static str)>) -> String {
    let lines = protocols.map(|(name, summary)| format!("\n- {:<12} {summary}", format!("{name}:")));
    format!("{first}\n{}", lines.collect::<String>())
}

/// What a result is expected to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ExpectedResult {
    /// Where earlier results of the same case on this host lead to expect it
    Usual,
}

/// A warm-up: a time, or a number of messages.
#[derive(Debug, Clone, Copy)]
enum WarmUp {
    Time(Span),
    Messages(Count),
}

impl std::str::FromStr for WarmUp {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<WarmUp> {
        let time = || text.parse().map(WarmUp::Time);
        text.parse().map(WarmUp::Messages).or_else(|_| time()).map_err(|_: units::UnitError| {
            anyhow!("'{text}' is neither a time (500ms) nor a number of messages (100)")
        })
    }
}

/// Flags of the plan as a whole.
#[derive(Args, Clone, Default)]
pub struct PlanFlags {
    /// Run every case N times, in turn
    ///
    /// Each is a whole measurement. From 6 on the figures have intervals over the repetitions. Without this flag, a transfer is
    /// measured once, with an interval from its time series, and latency splits its requests into 10 repetitions on fresh
    /// connections, unless connecting takes long. With --time or --rate it is one measurement, without a gap.
    #[arg(long, help_heading = DURATION, value_name = "N")]
    pub repeat: Option<u32>,
    /// File with the token that the server requires [default: the variable LINKGAUGE_TOKEN]
    #[arg(long, help_heading = SERVER, hide_short_help = true, value_name = "FILE")]
    token_file: Option<PathBuf>,
    #[command(flatten)]
    pub output: OutputFlags,
    /// Title of the report
    #[arg(long, help_heading = OUTPUT, hide_short_help = true, value_name = "TEXT")]
    pub title: Option<String>,
    /// Write every sample to this CSV file while measuring
    #[arg(long, help_heading = OUTPUT, hide_short_help = true, value_name = "FILE")]
    raw: Option<PathBuf>,
    /// Write events as JSON, one a line, while measuring
    #[arg(long, help_heading = OUTPUT, hide_short_help = true, value_name = "FILE|-")]
    events: Option<PathBuf>,
    /// Progress: a bar on a terminal, or a line per --interval
    #[arg(long, help_heading = OUTPUT, hide_short_help = true, value_enum, default_value_t)]
    progress: ProgressMode,
    #[command(flatten)]
    pub save: SaveFlags,
    /// Continue with the next case when one fails; the exit status is 2 nevertheless
    #[arg(long, help_heading = ADVANCED, hide_short_help = true)]
    pub keep_going: bool,
}

impl CaseFlags {
    /// Makes the requested changes of the measured devices, until the result is dropped.
    pub fn change_devices(&self) -> Result<Option<DeviceChanges>> {
        self.changes.make(&self.urls)
    }

    /// The case that these flags describe, of one workload.
    pub fn spec(&self, workload: &str) -> Result<CaseSpec> {
        let (warm_up_count, warm_up_time) = match self.warm_up {
            Some(WarmUp::Messages(count)) => (Some(count), None),
            Some(WarmUp::Time(time)) => (None, Some(time)),
            None => (None, None),
        };
        self.check_protocol()?;
        Ok(CaseSpec {
            url: Some(OneOrMany::Many(self.ip.apply_all(&self.urls)?)),
            together: Some(self.together),
            ports: one_or_many(&self.ports),
            protocol: Some(self.effective_protocol()),
            workload: Some(workload.to_owned()),
            size: one_or_many(&self.size),
            parallel: one_or_many(&self.parallel),
            threads: self.threads,
            count: self.count,
            time: self.time,
            warm_up_count,
            warm_up_time,
            timeout: self.timeout,
            busy_poll: Some(self.busy_poll),
            pin: one_or_many(&self.pin),
            protocol_options: self.protocol_options(),
            interval: self.interval,
            thresholds: (!self.threshold.is_empty()).then(|| self.threshold.clone()),
            ..CaseSpec::default()
        })
    }
}

impl CaseFlags {
    /// One-way delays and sockets of the server need no detection: one protocol has these flags.
    fn effective_protocol(&self) -> String {
        let is_open = (self.one_way || !self.server_socket.is_empty()) && self.protocol == "auto";
        if is_open { "linkgauge".to_owned() } else { self.protocol.clone() }
    }

    fn check_protocol(&self) -> Result<()> {
        let flags = [("--one-way", self.one_way), ("--server-socket", !self.server_socket.is_empty())];
        match flags.into_iter().find(|(_, is_set)| *is_set && self.effective_protocol() != "linkgauge") {
            Some((flag, _)) => {
                bail!("{flag} needs the protocol linkgauge, not {}: leave out one of them", self.protocol)
            }
            None => Ok(()),
        }
    }

    fn protocol_options(&self) -> BTreeMap<String, String> {
        let one_way = self.one_way.then(|| ("one-way".to_owned(), "1".to_owned()));
        self.server_socket.iter().cloned().chain(one_way).collect()
    }
}

/// Parses a socket option of the server into the option of the protocol.
fn parse_server_option(text: &str) -> Result<(String, String)> {
    let (name, value) =
        text.split_once('=').with_context(|| format!("'{text}' has no value: write it like rcvbuf=64Ki"))?;
    match name {
        "nodelay" | "quickack" | "rcvbuf" | "sndbuf" => Ok((format!("server-{name}"), value.to_owned())),
        _ => bail!("the server has no socket option '{name}': use nodelay, quickack, rcvbuf or sndbuf"),
    }
}

impl CaseFlags {}

fn parse_cpu(text: &str) -> Result<u32> {
    text.parse()
        .map_err(|_| anyhow!("'{text}' is not the number of a CPU: use numbers from 0, like 0 or 0,1"))
}

impl PlanFlags {
    pub fn repeat(&self) -> u32 {
        self.repeat.unwrap_or(1)
    }

    /// A plan of these cases under the flags.
    pub fn plan_of(&self, cases: Vec<Case>, repeat: u32) -> Result<Plan> {
        let plan = Plan::new(cases)?.titled(self.title.clone()).repeated(repeat)?;
        Ok(Plan { keep_going: self.keep_going, ..plan })
    }

    /// Whether a flag is set that only measurements with a server and repetitions have.
    pub fn has_measuring_flags(&self) -> bool {
        self.repeat.is_some() || self.raw.is_some() || self.token_file.is_some() || self.keep_going
    }

    pub fn events_on_stdout(&self) -> bool {
        self.events.as_deref().is_some_and(is_dash)
    }

    /// Checks before the measurement that the results can be written. `others`: further users of standard output.
    pub fn check_output(&self, others: usize) -> Result<()> {
        self.output.check_writable(others + usize::from(self.events_on_stdout()))
    }
}

pub fn one_or_many<T: Clone>(values: &[T]) -> Option<OneOrMany<T>> {
    (!values.is_empty()).then(|| OneOrMany::Many(values.to_vec()))
}

/// What a result is to be.
#[derive(Debug, Clone, Default)]
pub struct Aims {
    pub expect: Option<ExpectedResult>,
    /// The interval of its headline figure.
    pub precision: Option<HalfWidth>,
    /// Each reply has a line, so the measurement is not split into repetitions.
    pub prints_replies: bool,
    /// Hop-limited probes go beside the load.
    pub path: Option<PathPlan>,
}

/// Half of an interval, as a share of the figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HalfWidth(pub f64);

impl std::str::FromStr for HalfWidth {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<HalfWidth> {
        let number = text.strip_prefix('±').or_else(|| text.strip_prefix("+-")).unwrap_or(text).trim_start();
        let share = units::parse_share(number).ok().filter(|share| *share > 0.0);
        share
            .map(HalfWidth)
            .with_context(|| format!("'{text}' is not an interval. Use half of it in percent, like 2%"))
    }
}

/// Default time limit for `--precision`.
const DEFAULT_PRECISION_TIME: Duration = Duration::from_secs(60);

/// Runs one case specification under the flags of its plan.
pub fn run_spec(spec: CaseSpec, flags: &PlanFlags, aims: Aims) -> Result<Status> {
    let max_time = spec.time.map_or(DEFAULT_PRECISION_TIME, |time| time.0);
    let cases = spec.expand()?;
    let plan = flags.plan_of(cases, flags.repeat())?;
    let plan = schedule::check(plan, Registry::standard())?;
    let precision = aims.precision.map(|HalfWidth(half_width)| Precision { half_width, max_time });
    let is_whole = flags.repeat.is_some() || precision.is_some() || aims.prints_replies;
    let expect = aims.expect;
    let plan = if is_whole { plan } else { plan.split_into_repetitions() };
    let (run, status) = run_checked_plan(&plan, flags, precision, aims)?;
    let is_unusual =
        |case: &CaseResult| case.warnings.iter().any(|warning| warning.code == WarningCode::Unusual);
    Ok(match (expect, status) {
        (Some(ExpectedResult::Usual), Status::Complete) if run.cases.iter().any(is_unusual) => Status::Failed,
        _ => status,
    })
}

/// Runs a plan from a file with this text. Flags override the file.
pub fn run_plan_file(file: &Path, text: &str, flags: &PlanFlags) -> Result<Status> {
    let mut plan = Plan::from_toml(text).with_context(|| file.display().to_string())?;
    plan.repeat = flags.repeat.unwrap_or(plan.repeat);
    plan.keep_going |= flags.keep_going;
    plan.title = flags.title.clone().or(plan.title);
    let plan =
        schedule::check(plan, Registry::standard()).map_err(|error| in_file(error, &file.display(), text))?;
    Ok(run_checked_plan(&plan, flags, None, Aims::default())?.1)
}

/// The error about a case with the file and the line of its entry.
pub fn in_file(error: InvalidCase, name: &dyn Display, text: &str) -> anyhow::Error {
    let line = Plan::line_of_case(text, error.case.unwrap_or(1));
    let line = line.map_or(String::new(), |line| format!(": line {line}"));
    anyhow::Error::new(error).context(format!("{name}{line}"))
}

/// The message for output that excludes `--each`.
const REPLIES_CONFLICT: &str = "--each prints its lines on standard output: write other results to files (--json FILE), and leave out --quiet";

/// Prints a line for each reply meanwhile, if the aims say so.
fn run_checked_plan(
    plan: &CheckedPlan,
    flags: &PlanFlags,
    precision: Option<Precision>,
    Aims { prints_replies, path, .. }: Aims,
) -> Result<(Run, Status)> {
    if prints_replies && (!flags.output.prints_text() || flags.events_on_stdout()) {
        bail!(REPLIES_CONFLICT);
    }
    // The lines are the progress.
    let progress = if prints_replies { ProgressMode::Off } else { flags.progress };
    let flags = &PlanFlags { progress, ..flags.clone() };
    let mut printed = Ok(());
    let beside = start_path(path)?;
    let measured = run_measurements(flags, |context| {
        let printer = prints_replies.then(|| ReplyPrinter::start(context)).transpose();
        let printer = printer.unwrap_or_else(|error| {
            printed = Err(error);
            None
        });
        let mut run = match (precision, beside) {
            (Some(wanted), _) => schedule::run_until(plan, &wanted, context),
            (None, Some(beside)) => beside.run(context, |context| schedule::run(plan, context)),
            (None, None) => schedule::run(plan, context),
        };
        add_stamp_costs(&mut run);
        if let Some(printer) = printer {
            printed = printer.finish();
        }
        run
    })?;
    printed.map(|()| measured)
}

/// Begins to probe a path.
pub fn start_path(plan: Option<PathPlan>) -> Result<Option<PathBeside>> {
    let dialer = Dialer { cancel: interrupt_flag()?, ..Registry::standard().dialer(Clock::System) };
    Ok(plan.map(|plan| PathBeside::start(plan, &dialer)).transpose()?)
}

/// Measures by the flags of a plan, reports and saves.
pub fn run_measurements(
    flags: &PlanFlags,
    measure: impl FnOnce(&mut RunContext) -> Run,
) -> Result<(Run, Status)> {
    let events_on_stdout = flags.events_on_stdout();
    flags.check_output(0)?;
    flags.save.check()?;
    let dialer = Registry::standard().dialer(Clock::System);
    let MeasuredRun { mut run, events } = measure_with(flags, dialer, None, measure)?;
    compare_with_earlier(&mut run, &flags.save);
    finish_all([events, report_and_save(&run, flags, RunText::printed_if(!events_on_stdout))])?;
    let status = run_status(&run);
    Ok((run, status))
}

/// Saved runs of the same cases say what is unusual, and how much runs differ.
fn compare_with_earlier(run: &mut Run, save: &SaveFlags) {
    let earlier = save.earlier_results(run);
    for case in &mut run.cases {
        let values = earlier.values(case, &Metric::headline(case));
        case.warnings.extend(verdict::unusual(case, &values));
        verdict::correct_intervals(case, |case, metric| earlier.values(case, metric));
        consistency::limit_intervals(case);
    }
}

/// Reports and saves a run. If nothing arrived, the errors that were printed before are its text.
pub fn report_and_save(run: &Run, flags: &PlanFlags, text: RunText) -> Result<()> {
    let measured = run.cases.iter().any(|case| case.figures.has_measurements());
    let is_answered_by_errors = run.cases.iter().all(|case| {
        !case.failures.is_empty() && !case.has_arrivals() && case.thresholds.is_empty() && !has_hops(case)
    });
    let is_wanted = measured && !is_answered_by_errors;
    let written = flags.output.write(run, if is_wanted { text } else { RunText::Omitted });
    ended_before_result(run);
    if measured {
        flags.save.save_and_print(run, flags.output.messages());
    }
    written
}

/// Whether routers replied on the way to a host, reached or not.
fn has_hops(case: &CaseResult) -> bool {
    case.path.as_ref().is_some_and(|path| !path.hops.is_empty())
}

/// Whether the user ended the run before it had a result or an error. Then a line says so.
pub fn ended_before_result(run: &Run) -> bool {
    let has_answer = |case: &CaseResult| case.figures.has_measurements() || !case.failures.is_empty();
    let is_early = run.interrupted && !run.cases.iter().any(has_answer);
    if is_early {
        print_message("interrupted: nothing was measured");
    }
    is_early
}

/// How a run ended.
pub fn run_status(run: &Run) -> Status {
    let lacks_samples = run.warnings.iter().any(|warning| warning.code == WarningCode::RawIncomplete);
    match (run.interrupted, run.is_complete() && !lacks_samples) {
        (true, _) => Status::Interrupted,
        (_, true) if run.thresholds_passed() => Status::Complete,
        (_, true) if run.misses_threshold() => Status::Failed,
        // The metric of a threshold was not measured.
        _ => Status::Incomplete,
    }
}

/// What was measured, and whether its events could be written.
pub struct MeasuredRun {
    pub run: Run,
    pub events: Result<()>,
}

/// Runs a plan. The run also holds partial results.
pub fn measure(plan: &CheckedPlan, flags: &PlanFlags, dialer: Dialer) -> Result<MeasuredRun> {
    measure_with_content(plan, flags, dialer, None, None)
}

/// The same; the content of a download goes to `content`, which has this part of an earlier one.
pub fn measure_with_content(
    plan: &CheckedPlan,
    flags: &PlanFlags,
    dialer: Dialer,
    content: Option<ContentSender>,
    partial: Option<PartialContent>,
) -> Result<MeasuredRun> {
    measure_with(flags, dialer, content, |context| {
        context.partial_content = partial;
        schedule::run(plan, context)
    })
}

/// Prepares a run by the flags, and lets `run` do it.
fn measure_with(
    flags: &PlanFlags,
    mut dialer: Dialer,
    content: Option<ContentSender>,
    run: impl FnOnce(&mut RunContext) -> Run,
) -> Result<MeasuredRun> {
    let create =
        |path: &Path| RawFile::create(path).with_context(|| format!("{}: cannot be written", path.display()));
    let raw = flags.raw.as_deref().map(create).transpose()?;
    let observer = ProgressDisplay::new(flags.output.messages(), flags.progress, flags.events.as_deref())?;
    raise_open_file_limit();
    dialer.cancel = interrupt_flag()?;
    dialer.report_time = REPORT_TIME;
    let mut bench = RunContext {
        dialer,
        observer: &observer,
        token: read_token(flags.token_file.as_deref())?,
        raw,
        replies: None,
        content,
        partial_content: None,
        environment: host::facts(),
        connection_cache: Default::default(),
        overhead_ns: Some(schedule::measure_overhead_ns()),
    };
    let run = run(&mut bench);
    Ok(MeasuredRun { run, events: observer.finish() })
}

/// The token from a file or the environment, without the line end that editors add.
pub fn read_token(file: Option<&std::path::Path>) -> Result<Option<String>> {
    let text = match file {
        Some(path) => Some(read_text(path, "the token")?),
        None => std::env::var("LINKGAUGE_TOKEN").ok(),
    };
    match text.map(|text| text.trim_end().to_owned()) {
        Some(token) if token.is_empty() => bail!("the token is empty"),
        token => Ok(token),
    }
}

/// Parses `--probe`.
pub fn parse_probe(text: &str) -> Result<ProbeSpec> {
    match text {
        "off" => Ok(ProbeSpec::Switch(false)),
        text => text
            .parse::<MessageRate>()
            .map(ProbeSpec::Rate)
            .map_err(|_| anyhow!("'{text}' is neither a rate (10/s) nor 'off'")),
    }
}

/// Parses a direction, as seen by the user or by this program.
pub fn parse_direction(text: &str) -> Result<Direction> {
    Ok(match text {
        "upload" => Direction::Send,
        "download" => Direction::Receive,
        "bidirectional" => Direction::Both,
        _ => Direction::ALL
            .into_iter()
            .find(|direction| direction.name() == text)
            .with_context(|| format!("'{text}' is not a direction. Use upload, download, both or loop."))?,
    })
}

/// Waits for Ctrl-C or the end of the time. Calls `look` meanwhile, and ends if it fails.
pub fn wait_until_interrupted(
    cancel: &AtomicBool,
    time: Option<Span>,
    mut look: impl FnMut() -> Result<()>,
) -> Result<()> {
    let clock = Clock::System;
    let until = time.map(|time| clock.now() + time.0);
    while !cancel.load(Relaxed) && until.is_none_or(|until| clock.now() < until) {
        std::thread::sleep(Duration::from_millis(50));
        look()?;
    }
    Ok(())
}
