//! `linkgauge monitor`.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use clap::{Args, Command};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use linkgauge::Registry;
use linkgauge::clock::Clock;
use linkgauge::endpoint::Endpoint;
use linkgauge::host::{self, raise_open_file_limit};
use linkgauge::link::{Dialer, REPORT_TIME, return_freed_buffers};
use linkgauge::monitor::{
    self, AlarmCause, AlarmExplanation, Config, DEFAULT_PUSH_INTERVAL, Live, METRICS_PATH, MonitorContext,
    MonitorEvent, MonitorObserver, MonitorStatus, Push, Rule, Site, SiteServer, Snapshot, Transition,
    WatchState, describe_clock_change,
};
use linkgauge::plan::{CaseSpec, OneOrMany};
use linkgauge::report::{ReportOptions, printable};
use linkgauge::run::Run;
use linkgauge::system::may_run;
use linkgauge::units::{MessageRate, RateTarget, Span, format_nanoseconds, format_period, format_plural};

use super::help::{DURATION, OUTPUT, SERVER, TRAFFIC};
use super::history::PointInTime;
use super::input::read_text;
use super::measure::read_token;
use super::output::{print_message, print_text};
use super::signals::{interrupt_flag, protected_interrupt_flag, reload_flag};
use super::status::Status;
use super::store::{SaveFlags, StoreFlags};

mod replay;
#[cfg(feature = "tui")]
mod screen;
#[cfg(feature = "tui")]
mod view;

/// Watch links for weeks, with a history and alarms, until Ctrl-C
///
/// FILE.toml names links, tests and alarms (docs/monitor.md). URLs alone are probed all the time. Windows of a minute, ten
/// minutes and an hour go into the store; every percentile is that of all probes.
#[derive(Args)]
pub struct Flags {
    /// A file in TOML, or URLs
    #[arg(required = true, value_name = "FILE.toml|URL")]
    targets: Vec<String>,
    /// Probes per second of each URL
    #[arg(long, help_heading = TRAFFIC, value_name = "RATE", default_value = "10/s")]
    rate: MessageRate,
    /// Protocol that the URLs speak
    #[arg(long, help_heading = TRAFFIC, value_name = "PROTOCOL", default_value = "auto")]
    protocol: String,
    /// Alarm for each URL, like 'loss > 5 % (normal 0.5 %), at most one false alarm a month'
    ///
    /// Also 'late 20ms > 10 %' and 'late p99 > 10 %': later than the p99 of the first 3688 replies.
    #[arg(long, help_heading = TRAFFIC, value_name = "RULE")]
    alert: Vec<Rule>,
    /// Stop after this time [default: at Ctrl-C]
    #[arg(long, help_heading = DURATION, value_name = "TIME")]
    time: Option<Span>,
    /// File with the token that the servers require [default: the variable LINKGAUGE_TOKEN]
    #[arg(long, help_heading = SERVER, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Print a table of the last minute this often [default: 1min on a terminal, else never]
    #[arg(long, help_heading = OUTPUT, value_name = "TIME")]
    table: Option<Span>,
    /// Show the links on the whole terminal, with keys to sort, pause and open them
    ///
    /// The events are shown below them, and the log is not printed.
    #[cfg(feature = "tui")]
    #[arg(long, help_heading = OUTPUT, conflicts_with = "table")]
    tui: bool,
    /// Where to serve the live page, and the metrics for Prometheus at /metrics; 'off': nowhere
    ///
    /// Other machines can connect to an address that is not a loopback address. Then a token is required.
    #[arg(long, help_heading = SERVER, value_name = "ADDRESS|off", default_value = DEFAULT_LISTEN)]
    listen: String,
    /// File with the token that readers of the pages must send; a browser asks for it as a password
    #[arg(long, help_heading = SERVER, value_name = "FILE")]
    page_token_file: Option<PathBuf>,
    /// Push the metrics to this receiver of Prometheus remote write every 15 s, as [push] of the file does
    #[arg(long, help_heading = OUTPUT, value_name = "URL")]
    push: Option<String>,
    /// Check the file, print what its alarms promise, and end
    #[arg(long, help_heading = OUTPUT)]
    check: bool,
    /// With --check: also print what changes from this file, as a reload would
    #[arg(long, help_heading = OUTPUT, value_name = "FILE.toml", requires = "check")]
    against: Option<String>,
    /// Report when this alarm would have been on in the stored history, and how often without an outage near it; then end
    #[arg(long, help_heading = OUTPUT, value_name = "RULE", conflicts_with_all = ["check", "time"])]
    replay: Option<Rule>,
    /// With --replay: the history since then [YYYY-MM-DD, or how long ago]
    #[arg(long, help_heading = OUTPUT, value_name = "WHEN", default_value = "30d", requires = "replay")]
    since: PointInTime,
    #[command(flatten)]
    save: SaveFlags,
}

/// The port that Prometheus lists for exporters of this kind.
const DEFAULT_LISTEN: &str = "127.0.0.1:9464";

/// The time between tables on a terminal.
const TABLE_INTERVAL: Duration = Duration::from_secs(60);

/// How often files of targets are looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// Runs of a monitor have the names of their links.
pub fn with_own_help(command: Command) -> Command {
    command.mut_arg("tags", |tags| tags.hide(true))
}

pub fn run(flags: Flags) -> Result<Status> {
    if flags.save.has_tags() {
        bail!(
            "--tag: the runs of a monitor are tagged with the names of their links. Set 'name' in the file"
        );
    }
    let config = read_config(&flags)?;
    if let Some(rule) = &flags.replay {
        let store = StoreFlags::of(&flags.save).open()?;
        replay::print(&config, rule, &store, flags.since.0)?;
        return Ok(Status::Complete);
    }
    if flags.has_screen() {
        check_screen()?;
    }
    print_promises(&config)?;
    if flags.check {
        if let Some(before) = &flags.against {
            print_changes(&config, &read_file(before)?)?;
        }
        return Ok(Status::Complete);
    }
    let reload = reload_flag()?;
    let stop = if flags.has_screen() { protected_interrupt_flag()? } else { interrupt_flag()? };
    return_freed_buffers();
    raise_open_file_limit();
    let host = host::facts().get("hostname").and_then(|name| name.as_str()).unwrap_or_default().to_owned();
    let live = Arc::new(Live::new(host.clone(), Timestamp::now()));
    let site = Arc::new(Site::new(live.clone(), Box::new(render_run)));
    let token = read_token(flags.token_file.as_deref())?;
    site.prober().set(config.probe.clone(), token.clone());
    let _server = serve_pages(&flags, &site)?;
    site.set_store(flags.save.path()?);
    let session = MonitorSession {
        token,
        until: flags.time.map(|time| Instant::now() + time.0),
        log: Log { live: live.clone(), has_screen: flags.has_screen() },
        status: Arc::default(),
        tables: TablePrinter::new(&flags),
        flags: &flags,
        host,
        live: live.clone(),
        site,
        stop: stop.clone(),
        reload,
    };
    let screen = flags.has_screen().then(|| std::thread::spawn(move || show_screen(live, &stop)));
    let ended = session.run(config);
    session.stop.store(true, Relaxed);
    let shown = screen.map(|screen| screen.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
    session.tables.print_now(&ended?);
    shown.transpose().context("the terminal view ended")?;
    Ok(Status::Complete)
}

/// A monitor while it runs, over changes of its file.
struct MonitorSession<'a> {
    flags: &'a Flags,
    token: Option<String>,
    until: Option<Instant>,
    host: String,
    live: Arc<Live>,
    site: Arc<Site>,
    log: Log,
    status: Arc<MonitorStatus>,
    tables: TablePrinter,
    stop: Arc<AtomicBool>,
    reload: Arc<AtomicBool>,
}

impl MonitorSession<'_> {
    fn is_over(&self) -> bool {
        self.stop.load(Relaxed) || self.until.is_some_and(|until| Instant::now() >= until)
    }

    /// Watches the links to the end, and reads the file again when it has to.
    fn run(&self, mut config: Config) -> Result<Vec<WatchState>> {
        let mut states = Vec::new();
        self.status.set_read(Timestamp::now());
        while !self.is_over() {
            states = self.watch(&config, states)?;
            if self.reload.swap(false, Relaxed) {
                config = self.reread_config(config);
            }
        }
        Ok(states)
    }

    /// Watches the links until the end or until the file has changed.
    fn watch(&self, config: &Config, states: Vec<WatchState>) -> Result<Vec<WatchState>> {
        let dialer = Dialer { report_time: REPORT_TIME, ..Registry::standard().dialer(Clock::System) };
        let cancel = dialer.cancel.clone();
        let context = MonitorContext {
            dialer,
            observer: &self.log,
            on_states: &|states| self.show(states),
            token: self.token.clone(),
            zone: TimeZone::system(),
            status: self.status.clone(),
        };
        self.site.set_reload(self.reload.clone());
        self.site.prober().set(config.probe.clone(), self.token.clone());
        let store = self.flags.save.open()?;
        let ended = std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut looked = Instant::now();
                while !self.is_over() && !self.reload.load(Relaxed) && !cancel.load(Relaxed) {
                    std::thread::sleep(Duration::from_millis(100));
                    if looked.elapsed() >= LOOK_INTERVAL {
                        looked = Instant::now();
                        let has_changed = config.targets.now() != config.targets;
                        self.reload.fetch_or(has_changed, Relaxed);
                    }
                }
                cancel.store(true, Relaxed);
            });
            let ended = monitor::run(config, states, store, &context);
            cancel.store(true, Relaxed);
            ended
        });
        Ok(ended?)
    }

    fn show(&self, states: &[WatchState]) {
        self.site.set_metrics(Snapshot::new(states, &self.host).with_status(&self.status, &self.host));
        self.site.publish(&self.live.update(states, Timestamp::now()));
        self.tables.print(states);
    }

    /// A file that has become invalid does not end the monitor: it goes on as before.
    fn reread_config(&self, mut before: Config) -> Config {
        let targets = before.targets.now();
        match read_config(self.flags) {
            Ok(config) => {
                self.status.set_read(Timestamp::now());
                for change in config.changes_since(&before) {
                    self.log.message(format!("change: {change}"));
                }
                self.log.message(format!("{}: read again", self.flags.targets[0]));
                config
            }
            Err(error) => {
                self.status.set_unreadable();
                self.log.message(format!("{error:#}: the monitor goes on as before"));
                // Files of targets that are as wrong as now are not read again.
                before.targets = targets;
                before
            }
        }
    }
}

#[cfg(feature = "tui")]
impl Flags {
    fn has_screen(&self) -> bool {
        self.tui
    }
}

#[cfg(feature = "tui")]
use screen::{check as check_screen, show as show_screen};

#[cfg(not(feature = "tui"))]
impl Flags {
    fn has_screen(&self) -> bool {
        false
    }
}

#[cfg(not(feature = "tui"))]
fn check_screen() -> Result<()> {
    Ok(())
}

#[cfg(not(feature = "tui"))]
fn show_screen(_live: Arc<Live>, _stop: &AtomicBool) -> std::io::Result<()> {
    Ok(())
}

/// Serves the pages. A default address that is taken is no reason not to measure.
fn serve_pages(flags: &Flags, site: &Arc<Site>) -> Result<Option<SiteServer>> {
    let address = match flags.listen.as_str() {
        "off" => return Ok(None),
        text => text
            .parse()
            .with_context(|| format!("'{text}' is not an address. Write it like {DEFAULT_LISTEN}, or off"))?,
    };
    let token = flags.page_token_file.as_deref().map(|file| read_token(Some(file))).transpose()?.flatten();
    match SiteServer::start(address, token, site.clone()) {
        Ok(server) => {
            let address = server.address();
            print_message(format_args!("metrics: http://{address}{METRICS_PATH}"));
            print_message(format_args!("live page: http://{address}/"));
            Ok(Some(server))
        }
        Err(error) if flags.listen == DEFAULT_LISTEN => {
            print_message(format_args!(
                "warning: {address}: no pages are served: {error}. Try --listen with another port, or --listen off"
            ));
            Ok(None)
        }
        Err(error) => Err(error).with_context(|| format!("{address}: the pages cannot be served")),
    }
}

fn read_config(flags: &Flags) -> Result<Config> {
    let mut config = read_targets(flags)?;
    config.actions.iter().filter_map(|action| action.program()).try_for_each(check_program)?;
    if let Some(url) = &flags.push {
        let push = Push::new(url.clone(), DEFAULT_PUSH_INTERVAL);
        config.push = Some(push.map_err(|why| anyhow!("--push {url}: {why}"))?);
    }
    Ok(config)
}

/// Checks that the program of an action exists, as the system looks for it when an alarm begins.
fn check_program(program: &str) -> Result<()> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let is_found = match program.contains('/') {
        true => may_run(Path::new(program)),
        false => std::env::split_paths(&paths).any(|folder| may_run(&folder.join(program))),
    };
    if !is_found {
        bail!(
            "the command '{}' of an action is no program that can be run: name another",
            printable(program)
        );
    }
    Ok(())
}

fn read_file(file: &str) -> Result<Config> {
    let text = read_text(Path::new(file), "the file")?;
    let folder = Path::new(file).parent().unwrap_or(Path::new(""));
    Config::from_toml_in(&text, folder).with_context(|| file.to_owned())
}

fn read_targets(flags: &Flags) -> Result<Config> {
    let is_file = |target: &String| target.ends_with(".toml") || Path::new(target).is_file();
    match flags.targets.as_slice() {
        [file] if is_file(file) => read_file(file),
        targets if targets.iter().any(is_file) => {
            bail!("one FILE.toml, or URLs: add the URLs to the file")
        }
        targets => {
            let urls = targets.iter().map(|target| target.parse()).collect::<Result<Vec<Endpoint>, _>>()?;
            let spec = CaseSpec {
                url: Some(OneOrMany::Many(urls)),
                protocol: Some(flags.protocol.clone()),
                rate: Some(RateTarget::Fixed(flags.rate)),
                ..CaseSpec::default()
            };
            Ok(Config::from_case(spec, None, flags.alert.clone())?)
        }
    }
}

/// What the alarms promise, before anything is opened.
fn print_promises(config: &Config) -> Result<()> {
    print_text(|stdout| {
        for watch in &config.watches {
            writeln!(stdout, "watching {}: {}", printable(&watch.name), watch.describe())?;
            for promise in watch.promises() {
                writeln!(stdout, "  {promise}")?;
            }
        }
        for (name, module) in config.probe.iter().flat_map(|probe| &probe.modules) {
            writeln!(stdout, "probes on request: /probe?module={name}&target={}://…", module.scheme)?;
        }
        for action in &config.actions {
            let repeat = config.repeat.map(|repeat| format!(", again every {}", format_period(repeat)));
            let text = format!("a change {}{}", action.describe(), repeat.unwrap_or_default());
            writeln!(stdout, "{}", printable(&text))?;
        }
        for silence in &config.silences {
            writeln!(stdout, "actions receive nothing about {}", printable(&silence.describe()))?;
        }
        if let Some(push) = &config.push {
            writeln!(stdout, "metrics {}", printable(&push.describe()))?;
        }
        Ok(())
    })
}

/// What a reload would change.
fn print_changes(config: &Config, before: &Config) -> Result<()> {
    let changes = config.changes_since(before);
    print_text(|stdout| {
        if changes.is_empty() {
            writeln!(stdout, "nothing changes")?;
        }
        changes.iter().try_for_each(|change| writeln!(stdout, "change: {}", printable(change)))
    })
}

/// The page of a run, as every command writes it.
fn render_run(run: &Run) -> Option<String> {
    let format = linkgauge::lists::report_format("html")?;
    let mut page = Vec::new();
    (format.write)(run, &ReportOptions::default(), &mut page).ok()?;
    String::from_utf8(page).ok()
}

/// Prints events, one a line with its date.
struct Log {
    live: Arc<Live>,
    /// The terminal belongs to the view, which shows the events.
    has_screen: bool,
}

impl Log {
    fn message(&self, text: String) {
        let now = Timestamp::now();
        self.live.note_message(now, text.clone());
        if !self.has_screen {
            print_message(format_args!("{now:.0} {text}"));
        }
    }
}

impl MonitorObserver for Log {
    fn event(&self, at: Timestamp, event: &MonitorEvent) {
        let text = describe(event);
        self.live.note(at, event, text.clone());
        if self.has_screen {
            return;
        }
        let _ = print_text(|stdout| writeln!(stdout, "{:.0} {}", at, printable(&text)));
    }
}

fn describe(event: &MonitorEvent) -> String {
    match event {
        MonitorEvent::Down { name, reason: Some(reason) } => format!("{name}: down: {reason}"),
        MonitorEvent::Down { name, reason: None } => format!("{name}: down: the last 3 probes have no reply"),
        MonitorEvent::Up { name } => format!("{name}: up"),
        MonitorEvent::Alarm { name, rule, transition: Transition::Cleared, .. } => {
            format!("{name}: alarm ends: {rule}")
        }
        MonitorEvent::Alarm { name, rule, run, .. } => match run {
            Some(run) => format!("{name}: ALARM: {rule}. The minute before: linkgauge show {run}"),
            None => format!("{name}: ALARM: {rule}"),
        },
        MonitorEvent::Learnt { name, p99_ns } => {
            format!("{name}: the normal p99 is {}", format_nanoseconds(*p99_ns as f64))
        }
        MonitorEvent::LevelShift { name, shift } => {
            let [before, after] = [shift.before_ns, shift.after_ns].map(format_nanoseconds);
            format!("{name}: the median is {after} since {:.0}, {before} before", shift.since)
        }
        MonitorEvent::Explained { name, explanation } => describe_explanation(name, explanation),
        MonitorEvent::ActionFailed { reason } => format!("action: {reason}"),
        MonitorEvent::Clock { change } => describe_clock_change(*change),
        MonitorEvent::Tested { name, run, failure: None } => format!("{name}: tested: linkgauge show {run}"),
        MonitorEvent::Tested { name, failure: Some(failure), .. } => {
            format!("{name}: test failed: {failure}")
        }
        MonitorEvent::NotStored { reason } => format!("{reason}. Results wait in memory"),
        MonitorEvent::StoredAgain => "the store can be written again".to_owned(),
        MonitorEvent::NotPushed { reason } => {
            format!("the metrics were not received: {reason}. They wait in memory and are sent again")
        }
        MonitorEvent::PushedAgain { dropped_points: 0 } => "the metrics are received again".to_owned(),
        MonitorEvent::PushedAgain { dropped_points } => {
            format!(
                "the metrics are received again, without {}",
                format_plural(*dropped_points, "older point")
            )
        }
    }
}

fn describe_explanation(name: &str, explanation: &AlarmExplanation) -> String {
    let cause = |cause: &AlarmCause| {
        let cost = cause.cost_ns.map_or_else(String::new, |cost| format!(", {}", format_nanoseconds(cost)));
        format!("{} ({}{cost})", cause.name, cause.verdict.label())
    };
    let causes: Vec<String> = explanation.causes.iter().map(cause).collect();
    let comparison = explanation.comparison.as_ref().map_or_else(String::new, |text| format!("; {text}"));
    match &explanation.failure {
        Some(failure) => format!("{name}: not explained: {failure}"),
        None if causes.is_empty() => format!("{name}: explain finds no cause{comparison}"),
        None => format!("{name}: causes: {}{comparison}", causes.join("; ")),
    }
}

/// The table of the last minute, now and then.
struct TablePrinter {
    interval: Option<Duration>,
    printed: Mutex<Instant>,
}

impl TablePrinter {
    fn new(flags: &Flags) -> TablePrinter {
        let on_terminal =
            std::io::stdout().is_terminal().then_some(TABLE_INTERVAL).filter(|_| !flags.has_screen());
        TablePrinter {
            interval: flags.table.map(|table| table.0).or(on_terminal),
            printed: Mutex::new(Instant::now()),
        }
    }

    fn print(&self, states: &[WatchState]) {
        let mut printed = self.printed.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if self.interval.is_some_and(|interval| printed.elapsed() >= interval) {
            *printed = Instant::now();
            self.print_now(states);
        }
    }

    fn print_now(&self, states: &[WatchState]) {
        if states.is_empty() {
            return;
        }
        let width = states.iter().map(|state| state.name.chars().count()).max().unwrap_or(0);
        let _ = print_text(|stdout| {
            writeln!(
                stdout,
                "{:width$}  state  {:>9} {:>9} {:>9} {:>8}  last minute",
                "link", "p50", "p99", "max", "loss"
            )?;
            for state in states {
                writeln!(stdout, "{:width$}  {}", printable(&state.name), row(state))?;
            }
            Ok(())
        });
    }
}

fn row(state: &WatchState) -> String {
    let word = state.health().word();
    let minute = state.last_minutes(1);
    let time = |time: Option<f64>| match time {
        Some(time) if time.is_infinite() => "lost".to_owned(),
        Some(time) => format_nanoseconds(time),
        None => "–".to_owned(),
    };
    let [p50, p99] = [0.5, 0.99].map(|share| time(minute.quantile_with_losses_ns(share)));
    let max = time(minute.quantile_ns(1.0).map(|time| time as f64));
    let loss =
        minute.counts.loss_share().map_or_else(|| "–".to_owned(), |loss| format!("{:.1} %", 100.0 * loss));
    format!("{word:5}  {p50:>9} {p99:>9} {max:>9} {loss:>8}")
}
