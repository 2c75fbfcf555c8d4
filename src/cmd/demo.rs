//! `linkgauge demo`: gauges every kind of link this host can open, against far ends of its own.
//!
//! Not for saying which cases make a demo (`plan`).

mod plan;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Args;
use linkgauge::clock::Clock;
use linkgauge::endpoint::Endpoint;
use linkgauge::host;
use linkgauge::lab::logger::{Device, Logger, Options, content};
use linkgauge::lab::{STAND_INS, Standing};
use linkgauge::link::{Dialer, TRANSPORTS};
use linkgauge::peer::{self, ServerFacts};
use linkgauge::run::Warning;
use linkgauge::schedule;
use linkgauge::serve::Server;
use linkgauge::units::print_duration;

use super::Status;
use super::measure::{Measurement, PlanFlags, measure, status};
use super::output::{OutputFlags, all_of, is_dash, tell};
use super::signals::on_interrupt;
use super::store::KeepFlags;

/// Start far ends of its own, gauge every link of this host, print and write report.html
///
/// All links are inside this machine: what it shows is this machine and this program, not your network. Writes
/// linkgauge-demo.json and report.html into the current directory, unless --json and --html name other files.
#[derive(Args)]
pub struct Flags {
    /// Fewer cases, and shorter ones: about 5 s
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    output: OutputFlags,
    #[command(flatten)]
    keep: KeepFlags,
}

pub fn run(flags: Flags) -> Result<Status> {
    let mut output = flags.output;
    let json = output.also_json("linkgauge-demo.json".into());
    let html = output.also_html("report.html".into());
    output.check(0)?;
    flags.keep.check()?;
    let quiet = output.quiet;
    // Before anything is made that is to be removed.
    on_interrupt()?;
    let directory = Directory::fresh()?;
    let dialer = Dialer::new(Clock::System);
    let mut found = find(&directory, &dialer);
    let server = serve(&found.urls, &dialer)?;
    let stand_ins = found.stand_ins();
    let links = found.links(&server, &stand_ins, &dialer);
    let pace = if flags.quick { &plan::QUICK } else { &plan::FULL };
    let cpus = host::cpu::current_affinity();
    let logger = found.logger();
    let mut plan = plan::plan(title(), &links, pace, &cpus)?;
    // Without the downloads: a plan cannot say how long they take, and here it is next to nothing.
    let time = plan::estimate(&plan);
    for endpoint in logger.iter().flat_map(Logger::endpoints) {
        plan.cases.extend(plan::download(endpoint)?);
    }
    let plan = schedule::check(plan)?;
    if !quiet {
        tell(format_args!(
            "linkgauge demo: {} cases in about {}; all links are inside this machine",
            plan.cases.len(),
            print_duration(time)
        ));
    }
    let mut plan_flags = PlanFlags::default();
    plan_flags.output = output;
    let Measurement { mut run, events } = measure(plan, &plan_flags, dialer)?;
    run.warnings.extend(notes(found.missing));
    let written = plan_flags.output.write(&run, true);
    flags.keep.keep(&run, quiet);
    all_of([events, written])?;
    if !quiet {
        tell_files(&[&html, &json]);
    }
    Ok(status(&run))
}

fn title() -> String {
    let name = rustix::system::uname();
    format!("linkgauge demo on {}", name.nodename().to_string_lossy())
}

/// What this host offers.
struct Found {
    urls: Vec<Endpoint>,
    /// What cannot be opened here, why, and the remedy.
    missing: Vec<Warning>,
}

/// Listens at every endpoint of every transport once.
fn find(directory: &Directory, dialer: &Dialer) -> Found {
    let mut found = Found { urls: Vec::new(), missing: Vec::new() };
    for transport in TRANSPORTS {
        if let Err(unavailable) = (transport.available)() {
            let what = format!("{}: {}", transport.summary, unavailable.reason);
            found.missing.push(left_out(what, unavailable.remedy));
            continue;
        }
        for url in (transport.loopback)(&directory.path.to_string_lossy()) {
            let tried = url.parse::<Endpoint>().map_err(anyhow::Error::from).and_then(|url| {
                dialer.listen(&url)?;
                Ok(url)
            });
            match tried {
                Ok(url) => found.urls.push(url),
                Err(error) => found.missing.push(left_out(format!("{error:#}"), LOOK)),
            }
        }
    }
    found
}

const LOOK: &str = "see what this host has: linkgauge doctor; ip address";

fn left_out(what: String, remedy: impl Into<String>) -> Warning {
    Warning::new("unavailable", format!("left out: {what}"), remedy)
}

impl Found {
    /// The lab's far ends of links that nobody can listen on, running.
    fn stand_ins(&mut self) -> Vec<Box<dyn Standing>> {
        let mut standing = Vec::new();
        for stand_in in STAND_INS {
            match (stand_in.start)() {
                Ok(started) => standing.push(started),
                Err(error) => self.missing.push(left_out(format!("{}: {error}", stand_in.summary), LOOK)),
            }
        }
        standing
    }

    /// A data logger of the lab with a file, each piece of which takes it a moment.
    fn logger(&mut self) -> Option<Logger> {
        let device = Device {
            files: vec![(plan::FILE.to_owned(), content(1, plan::FILE_BYTES))],
            processing: plan::PIECE_TIME,
            ..Device::default()
        };
        let listen = "tcp://127.0.0.1:0".parse().into_iter().collect();
        match Logger::start(&Options { listen, lines: Vec::new(), device }) {
            Ok(logger) => Some(logger),
            Err(error) => {
                self.missing.push(left_out(error.to_string(), LOOK));
                None
            }
        }
    }

    /// The links to where the server really listens, in the order of the transports, and to the stand-ins; those that
    /// do not open are left out.
    fn links(
        &mut self,
        server: &Server,
        stand_ins: &[Box<dyn Standing>],
        dialer: &Dialer,
    ) -> Vec<plan::Kind> {
        let mut links = Vec::new();
        let stand_ins = stand_ins.iter().flat_map(|standing| standing.typical());
        for endpoint in server.endpoints().iter().cloned().chain(stand_ins) {
            match dialer.open(&endpoint) {
                Ok(link) => links.push(plan::Kind {
                    caps: link.caps().clone(),
                    inside: server.is_inside(&endpoint),
                    endpoint,
                }),
                Err(error) => self.missing.push(left_out(error.to_string(), LOOK)),
            }
        }
        links
    }
}

/// One far end for all of them.
fn serve(urls: &[Endpoint], dialer: &Dialer) -> Result<Server> {
    let far = peer::peer("linkgauge").and_then(|peer| peer.serve).context("our own session can be served")?;
    let facts = ServerFacts { environment: host::facts(), ..ServerFacts::default() };
    let limits = facts.limits;
    Ok(Server::start(urls, &far(&Arc::new(facts)), &limits, dialer)?)
}

/// What holds for the run as a whole.
fn notes(missing: Vec<Warning>) -> Vec<Warning> {
    let inside = Warning::new(
        "inside_this_machine",
        "all links are inside this machine: this shows what it and this program can do, not a network",
        "on the other machine: linkgauge serve tcp://0.0.0.0; here: linkgauge latency tcp://OTHER",
    );
    [inside].into_iter().chain(missing).collect()
}

fn tell_files(files: &[&Path]) {
    let files: Vec<String> =
        files.iter().filter(|path| !is_dash(path)).map(|path| path.display().to_string()).collect();
    if !files.is_empty() {
        tell(format_args!("\nwritten: {}", files.join(" and ")));
    }
}

/// A directory of our own that goes when the demo does.
struct Directory {
    path: PathBuf,
}

impl Directory {
    fn fresh() -> Result<Directory> {
        use std::os::unix::fs::DirBuilderExt;
        // Short: a Unix socket's path has at most 107 bytes.
        let path = std::env::temp_dir().join(format!("linkgauge-{:04x}", fastrand::u16(..)));
        std::fs::DirBuilder::new().mode(0o700).create(&path).with_context(|| {
            format!("{}: cannot be made; set TMPDIR to a directory you may write to", path.display())
        })?;
        Ok(Directory { path })
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // What is left in the temporary directory is swept by the system.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
