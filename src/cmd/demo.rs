//! `linkgauge demo`: measures every kind of link that this host can open, with its own servers.
//!
//! `plan` selects the cases, `directory` holds the sockets.

mod directory;
mod plan;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Args;
use linkgauge::Registry;
use linkgauge::clock::Clock;
use linkgauge::endpoint::Endpoint;
use linkgauge::host;
use linkgauge::host::check::{self, CheckVerdict};
use linkgauge::lab::logger::{Logger, LoggerConfig, LoggerOptions, generate_content};
use linkgauge::lab::{RunningStandIn, STAND_INS};
use linkgauge::link::Dialer;
use linkgauge::protocol::ServerConfig;
use linkgauge::run::{Warning, WarningCode};
use linkgauge::schedule;
use linkgauge::serve::Server;

use super::help::DURATION;
use super::measure::{MeasuredRun, PlanFlags, ended_before_result, measure, run_status};
use super::output::{Messages, OutputFlags, RunText, finish_all, is_dash, print_message};
use super::signals::interrupt_flag;
use super::status::Status;
use super::store::SaveFlags;
use directory::TemporaryDirectory;

/// Measure every kind of link inside this machine
///
/// The demo starts its own servers. All links are inside this machine, so the figures describe this machine and this program,
/// not your network. Writes linkgauge-demo.json and report.html to the current directory (linkgauge-demo-2.json and
/// report-2.html if one of them exists), unless --json and --html name other files.
#[derive(Args)]
pub struct Flags {
    /// Fewer and shorter cases: about 5 s
    #[arg(long, help_heading = DURATION)]
    quick: bool,
    #[command(flatten)]
    output: OutputFlags,
    #[command(flatten)]
    save: SaveFlags,
}

pub fn run(flags: Flags) -> Result<Status> {
    let (mut output, requested) = (flags.output.clone(), flags.output);
    let [json, html] = default_paths();
    let (json, html) = (output.json_or(json), output.html_or(html));
    output.check_writable(0)?;
    flags.save.check()?;
    let messages = output.messages();
    // Before the temporary directory is created, so that Ctrl-C removes it.
    interrupt_flag()?;
    let directory = TemporaryDirectory::create()?;
    let dialer = Registry::standard().dialer(Clock::System);
    let mut found = probe_transports(&directory, &dialer);
    let server = start_server(&found.loopback_urls, &dialer)?;
    let stand_ins = found.start_stand_ins();
    let links = found.open_links(&server, &stand_ins, &dialer);
    let pace = if flags.quick { &plan::QUICK_TIMING } else { &plan::FULL_TIMING };
    let cpus = host::cpu::current_affinity();
    let logger = found.start_logger();
    let mut plan = plan::build_plan(title(), &links, pace, &cpus)?;
    // Without the downloads, which take almost no time here.
    let time = plan::estimate_duration(&schedule::check(plan.clone(), Registry::standard())?);
    for endpoint in logger.iter().flat_map(Logger::endpoints) {
        plan.cases.extend(plan::download_cases(endpoint)?);
    }
    let plan = schedule::check(plan, Registry::standard())?;
    if messages == Messages::All {
        load_warning().into_iter().for_each(print_message);
        print_message(format_args!(
            "linkgauge demo: {} cases in about {:.0} s; all links are inside this machine",
            plan.cases().len(),
            time.as_secs_f64().ceil()
        ));
    }
    let mut plan_flags = PlanFlags::default();
    plan_flags.output = output;
    let MeasuredRun { mut run, events } = measure(&plan, &plan_flags, dialer)?;
    if ended_before_result(&run) {
        finish_all([events, requested.write(&run, RunText::Omitted)])?;
        return Ok(run_status(&run));
    }
    run.warnings.extend(run_warnings(found.unavailable));
    let written = plan_flags.output.write(&run, RunText::Printed);
    if messages == Messages::All {
        print_written_files(&[&html, &json]);
        print_message(NEXT_STEPS);
    }
    flags.save.save_and_print(&run, messages);
    finish_all([events, written])?;
    Ok(run_status(&run))
}

/// The document and the page in the current directory, with the first number of which neither exists.
fn default_paths() -> [PathBuf; 2] {
    let named = |number: u32| {
        let suffix = if number == 1 { String::new() } else { format!("-{number}") };
        [format!("linkgauge-demo{suffix}.json"), format!("report{suffix}.html")].map(PathBuf::from)
    };
    // A symbolic link counts as well, even a broken one.
    let is_free = |paths: &[PathBuf; 2]| paths.iter().all(|path| path.symlink_metadata().is_err());
    (1..).map(named).find(is_free).expect("a directory has fewer files")
}

const NEXT_STEPS: &str =
    "To measure a network: linkgauge serve tcp://0.0.0.0 on the other machine, linkgauge latency OTHER here.";

/// A warning if other programs keep this host busy.
fn load_warning() -> Option<String> {
    let load = check::run_checks().into_iter().find(|check| check.name == "load")?;
    (load.verdict != CheckVerdict::Good)
        .then(|| format!("warning: {}. The figures will be worse than usual.", load.finding))
}

fn title() -> String {
    format!("linkgauge demo on {}", linkgauge::system::host_name().unwrap_or_default())
}

/// The links of this host.
struct HostLinks {
    loopback_urls: Vec<Endpoint>,
    /// Transports that cannot be opened here, with reason and remedy.
    unavailable: Vec<Warning>,
}

/// Listens at every endpoint of every transport once.
fn probe_transports(directory: &TemporaryDirectory, dialer: &Dialer) -> HostLinks {
    let mut found = HostLinks { loopback_urls: Vec::new(), unavailable: Vec::new() };
    for transport in Registry::standard().transports.0 {
        if let Err(unavailable) = (transport.available)() {
            let what = format!("{}: {}: {}", transport.scheme, transport.summary, unavailable.reason);
            found.unavailable.push(unavailable_warning(what, unavailable.remedy));
            continue;
        }
        for url in (transport.loopback_urls)(&directory.path().to_string_lossy()) {
            let tried = url.parse::<Endpoint>().map_err(anyhow::Error::from).and_then(|url| {
                dialer.listen(&url)?;
                Ok(url)
            });
            match tried {
                Ok(url) => found.loopback_urls.push(url),
                Err(error) => {
                    found.unavailable.push(unavailable_warning(format!("{error:#}"), UNAVAILABLE_REMEDY));
                }
            }
        }
    }
    found
}

const UNAVAILABLE_REMEDY: &str = "linkgauge doctor; ip address";

/// `what` begins with the name of the kind, up to a colon.
fn unavailable_warning(what: String, remedy: impl Into<String>) -> Warning {
    Warning::new(WarningCode::Unavailable, format!("skipped: {what}"), remedy)
}

impl HostLinks {
    /// Starts the stand-ins of the lab, for transports on which no server can listen.
    fn start_stand_ins(&mut self) -> Vec<Box<dyn RunningStandIn>> {
        let mut standing = Vec::new();
        for stand_in in STAND_INS {
            match (stand_in.start)() {
                Ok(started) => standing.push(started),
                Err(error) => self
                    .unavailable
                    .push(unavailable_warning(format!("{}: {error}", stand_in.summary), UNAVAILABLE_REMEDY)),
            }
        }
        standing
    }

    /// Starts a data logger of the lab with a file, and with a processing time per chunk.
    fn start_logger(&mut self) -> Option<Logger> {
        let device = LoggerConfig {
            files: vec![(plan::DEMO_FILE_NAME.to_owned(), generate_content(1, plan::DEMO_FILE_BYTES))],
            command_time: plan::CHUNK_TIME,
            ..LoggerConfig::default()
        };
        let listen = "tcp://127.0.0.1:0".parse().into_iter().collect();
        match Logger::start(&LoggerOptions { listen, serial_lines: Vec::new(), config: device }) {
            Ok(logger) => Some(logger),
            Err(error) => {
                self.unavailable.push(unavailable_warning(error.to_string(), UNAVAILABLE_REMEDY));
                None
            }
        }
    }

    /// Opens the links to the server, in the order of the transports, and to the stand-ins. Omits those that do not open.
    fn open_links(
        &mut self,
        server: &Server,
        stand_ins: &[Box<dyn RunningStandIn>],
        dialer: &Dialer,
    ) -> Vec<plan::DemoLink> {
        let mut links = Vec::new();
        let stand_ins = stand_ins.iter().flat_map(|standing| standing.typical_endpoints());
        for endpoint in server.endpoints().iter().cloned().chain(stand_ins) {
            match dialer.open(&endpoint) {
                Ok(link) => links.push(plan::DemoLink {
                    caps: link.caps().clone(),
                    in_process: server.is_inline(&endpoint),
                    endpoint,
                }),
                Err(error) => {
                    self.unavailable.push(unavailable_warning(error.to_string(), UNAVAILABLE_REMEDY))
                }
            }
        }
        links
    }
}

/// One server for all endpoints.
fn start_server(urls: &[Endpoint], dialer: &Dialer) -> Result<Server> {
    let service = Registry::standard()
        .protocol("linkgauge")
        .and_then(|peer| peer.serve)
        .context("the linkgauge protocol can be served")?;
    let facts = ServerConfig { environment: host::facts(), ..ServerConfig::default() };
    let limits = facts.limits;
    Ok(Server::start(urls, &service(&Arc::new(facts)), &limits, dialer)?)
}

/// Warnings of the whole run.
fn run_warnings(missing: Vec<Warning>) -> Vec<Warning> {
    let inside = Warning::new(
        WarningCode::InsideThisMachine,
        "all links are inside this machine, so the figures describe the machine and this program, not a network",
        "on the other machine: linkgauge serve tcp://0.0.0.0; here: linkgauge latency tcp://OTHER",
    );
    [inside].into_iter().chain(missing).collect()
}

fn print_written_files(files: &[&Path]) {
    let files: Vec<String> =
        files.iter().filter(|path| !is_dash(path)).map(|path| path.display().to_string()).collect();
    if !files.is_empty() {
        print_message(format_args!("Written: {}", files.join(" and ")));
    }
}
