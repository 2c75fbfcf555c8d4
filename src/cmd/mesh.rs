//! `linkgauge mesh`.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use linkgauge::clock::{Clock, wall_clock_date};
use linkgauge::host;
use linkgauge::mesh::{
    Agents, Coordinator, HostList, MeshFacts, MeshOptions, MeshProgress, Sharing, TestKind, TestRecord,
    Timetable, earlier_tests, mesh_run,
};
use linkgauge::run::Run;
use linkgauge::units::{format_nanoseconds, format_plural};

use super::help::{DURATION, OUTPUT, SERVER, TRAFFIC};
use super::input::read_text;
use super::measure::{ended_before_result, read_token, run_status};
use super::output::{OutputFlags, RunText, finish_all, print_message, print_text, supports_unicode};
use super::signals::interrupt_flag;
use super::status::Status;
use super::store::{SaveFlags, StoreFlags, load_runs, print_saved, short_id};

/// Measure every pair of many hosts, each test by itself
///
/// HOSTS.toml names the hosts and what they share (docs/fleet.md). An agent on each host is started over ssh, or by a command of the
/// file, and ends with this program. Round trips of all pairs are measured first, then the rates, so that no test disturbs another.
#[derive(Args)]
pub struct Flags {
    /// Hosts, pairs and tests, in TOML
    #[arg(value_name = "HOSTS.toml")]
    file: PathBuf,
    /// Ignore shared resources, and measure round trips and rates at the same time: faster, and tests disturb each other
    #[arg(long, help_heading = TRAFFIC)]
    overlap: bool,
    /// Continue a saved run: measure only the pairs that it lacks
    #[arg(long, help_heading = DURATION, value_name = "RUN")]
    resume: Option<String>,
    /// Print the number of tests and the time they take, and end
    #[arg(long, help_heading = OUTPUT)]
    check: bool,
    /// File with the token of servers without an agent [default: the variable LINKGAUGE_TOKEN]
    #[arg(long, help_heading = SERVER, value_name = "FILE")]
    token_file: Option<PathBuf>,
    #[command(flatten)]
    output: OutputFlags,
    #[command(flatten)]
    save: SaveFlags,
}

pub fn run(flags: Flags) -> Result<Status> {
    let list = read_list(&flags.file)?;
    let sharing = if flags.overlap { Sharing::Ignored } else { Sharing::Exclusive };
    if flags.check {
        print_plan(&list, sharing)?;
        return Ok(Status::Complete);
    }
    flags.output.check_writable(0)?;
    flags.save.check()?;
    let earlier = flags.resume.as_deref().map(|named| load_earlier(named, &flags.save)).transpose()?;
    let done = earlier.as_ref().map_or_else(BTreeMap::new, |run| earlier_tests(&list, run));
    if let Some(run) = &earlier {
        check_tests(&list, run).with_context(|| flags.file.display().to_string())?;
        let left = (tests(&list) - done.len()) as u64;
        print_message(format_args!("{}: {} left to measure", run.id, format_plural(left, "test")));
    }
    let options = MeshOptions {
        sharing,
        mesh_token: new_token(),
        server_token: read_token(flags.token_file.as_deref())?,
    };
    let run = carry_out(&flags, list, options, (done, earlier.map(|run| run.id)))?;
    let measured = run.cases.iter().any(|case| case.figures.has_measurements());
    let text = if ended_before_result(&run) { RunText::Omitted } else { RunText::Printed };
    let written = flags.output.write(&run, text);
    if measured && flags.save.save_or_warn(&run) && !flags.output.quiet {
        print_saved(&run);
        if !run.is_complete() {
            let (file, id) = (flags.file.display(), short_id(&run.id));
            print_message(format_args!("To measure what is missing: linkgauge mesh {file} --resume {id}"));
        }
    }
    finish_all([written])?;
    Ok(run_status(&run))
}

fn read_list(file: &Path) -> Result<HostList> {
    let name = file.display();
    let text = read_text(file, "the file")?;
    HostList::from_toml(&text).with_context(|| name.to_string())
}

/// Tests of a mesh.
fn tests(list: &HostList) -> usize {
    list.pairs.len() * (usize::from(list.latency.is_some()) + usize::from(list.throughput.is_some()))
}

/// A run of this command, which another one continues.
fn load_earlier(named: &str, save: &SaveFlags) -> Result<Run> {
    let mut runs = load_runs(named, &StoreFlags::of(save))?;
    match (runs.pop(), runs.len()) {
        (Some(run), 0) if run.mesh.is_some() => Ok(run),
        (Some(run), 0) => bail!("{}: not a run of 'linkgauge mesh'. Name one", run.id),
        (_, more) => bail!("'{named}' names {} runs, but one can be continued. Name one", more + 1),
    }
}

/// Tests with other settings have other figures.
fn check_tests(list: &HostList, run: &Run) -> Result<()> {
    let before = run.mesh.as_ref().map_or("", |mesh| &mesh.tests);
    let now = list.describe_tests();
    if before.is_empty() || before == now {
        return Ok(());
    }
    bail!(
        "it asks for other tests ({now}) than the run {} ({before}): use the tests of that run, or leave out --resume",
        short_id(&run.id)
    )
}

/// A secret that only this mesh knows.
fn new_token() -> String {
    linkgauge::system::random_bytes::<24>().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Tests that an earlier run has made, and its id.
type Earlier = (BTreeMap<(TestKind, usize), TestRecord>, Option<String>);

fn carry_out(
    flags: &Flags,
    list: HostList,
    options: MeshOptions,
    (done, resumed_from): Earlier,
) -> Result<Run> {
    let cancel = interrupt_flag()?;
    let clock = Clock::System;
    let (started, began) = (wall_clock_date(), Instant::now());
    let program = std::env::current_exe().context("the path of this program is unknown")?;
    let mut agents = Agents::start(&list, &program);
    let mut coordinator = Coordinator::new(list, options, done, clock.now());
    let display = Display::new(flags.output.quiet)?;
    agents.carry_out(&mut coordinator, &clock, &cancel, &mut |progress| display.show(progress));
    display.bar.finish_and_clear();
    drop(agents);
    let facts = MeshFacts {
        started,
        elapsed: began.elapsed(),
        interrupted: cancel.load(std::sync::atomic::Ordering::Relaxed),
        environment: host::facts(),
        resumed_from,
    };
    Ok(mesh_run(coordinator.into_parts(), facts))
}

/// What the tests would take.
fn print_plan(list: &HostList, sharing: Sharing) -> Result<()> {
    let latency = list.latency.map(|test| {
        let (demand, pairs) = list.latency_demand(test.time);
        ("round trips", Timetable::new(&demand, &pairs))
    });
    let throughput = list.throughput.map(|test| {
        let (demand, pairs) = list.throughput_demand(sharing, test.time);
        ("rates", Timetable::new(&demand, &pairs))
    });
    let plans: Vec<(&str, Timetable)> = latency.into_iter().chain(throughput).collect();
    let all = plans.iter().map(|(_, plan)| plan.length_ns);
    let length = if sharing == Sharing::Exclusive { all.sum() } else { all.max().unwrap_or(0) };
    print_text(|stdout| {
        writeln!(
            stdout,
            "{} of {} in about {}",
            format_plural(tests(list) as u64, "test"),
            format_plural(list.hosts.len() as u64, "host"),
            time_text(Duration::from_nanos(length))
        )?;
        for (name, plan) in &plans {
            let [length, bound] = [plan.length_ns, plan.lower_bound_ns].map(|time| time as f64);
            let ratio = if bound > 0.0 { length / bound } else { 1.0 };
            let length = format_nanoseconds(length);
            writeln!(stdout, "  {name}: {length}, {ratio:.2} times the least possible")?;
        }
        Ok(())
    })
}

/// `3 min`, `40 s`.
fn time_text(time: Duration) -> String {
    match time.as_secs() {
        seconds if seconds >= 7200 => format!("{:.1} h", seconds as f64 / 3600.0),
        seconds if seconds >= 120 => format!("{} min", seconds.div_ceil(60)),
        seconds => format!("{} s", seconds.max(1)),
    }
}

/// The progress on a terminal.
struct Display {
    bar: ProgressBar,
}

impl Display {
    fn new(is_quiet: bool) -> Result<Display> {
        let is_shown = !is_quiet && std::io::stderr().is_terminal();
        let target = if is_shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(None, target);
        let style = ProgressStyle::with_template("{bar:24} {percent:>3} %  {wide_msg}")?;
        bar.set_style(style.progress_chars(if supports_unicode() { "━╸─" } else { "=> " }));
        Ok(Display { bar })
    }

    fn show(&self, progress: &MeshProgress) {
        self.bar.set_length(progress.total as u64);
        self.bar.set_position(progress.done as u64);
        let failed = match progress.failed {
            0 => String::new(),
            failed => format!(", {failed} failed"),
        };
        self.bar.set_message(match progress.starting {
            0 => format!(
                "{} of {} tests{failed}, about {} left",
                progress.done,
                progress.total,
                time_text(progress.remaining)
            ),
            starting => format!("starting {}", format_plural(starting as u64, "agent")),
        });
    }
}
