//! `linkgauge reproduce`: a published study run again, in the lab or on hardware, published beside measured.
//!
//! Not for what the study is: `papers/` and `linkgauge::paper` hold that. Cases run one after the other, each with the
//! lab it needs, so that no piece of the lab disturbs a case that does not use it.

mod given;
mod guest;
mod list;
mod stand;
mod trial;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use clap::Args;
use linkgauge::clock::{Clock, Time};
use linkgauge::endpoint::Endpoint;
use linkgauge::explain::{self, Declared, Evidence};
use linkgauge::host;
use linkgauge::link::Dialer;
use linkgauge::paper::{Outcome, PlannedCase, STUDIES, Study};
use linkgauge::peer::Kept;
use linkgauge::plan::Plan;
use linkgauge::run::{Run, Warning};
use linkgauge::schedule::{self, Bench, Event, Observer};
use linkgauge::serve::raise_open_files;
use linkgauge::units;

use super::Status;
use super::lab::vm::GuestFlags;
use super::measure::{Screen, status};
use super::output::{OutputFlags, all_of, is_dash, put, tell};
use super::signals::on_interrupt;
use super::store::KeepFlags;
use given::{Given, Name, On};
use stand::Stand;

/// Run a published study again: its figures beside what is measured now
///
/// Without --on all is measured in the lab: links made of software, no hardware. CSV is one row a published figure.
/// docs/papers.md tells what the cells are, and how to set up hardware.
#[derive(Args)]
pub struct Flags {
    /// The study
    #[arg(value_name = "STUDY", value_parser = studies())]
    study: String,
    /// Minutes instead of hours: every case, but fewer exchanges and less data; the report says so
    #[arg(long)]
    quick: bool,
    /// Only these tables of the study [list]
    #[arg(long = "table", value_name = "N", value_delimiter = ',')]
    tables: Vec<String>,
    /// Only these cells: tcp, tcp/4, tcp/4@9600 [list]
    #[arg(long = "cell", value_name = "CELL", value_delimiter = ',')]
    cells: Vec<Name>,
    /// Measure a cell at this endpoint, its other ports counted up from it: tcp/4=tcp://box:7001. CELL is a name of
    /// --list, alone (native), with its number of ports (tcp/4), or with a rate besides (tcp/4@9600); the most precise
    /// holds. Cells without an endpoint are not run then
    #[arg(long, value_name = "CELL=URL[,URL…]")]
    on: Vec<On>,
    /// With --on: another value for an option of the peer, like file=CPU:data.dat or security=17
    #[arg(long = "option", value_name = "NAME=VALUE", value_parser = option, requires = "on")]
    options: Vec<(String, String)>,
    /// With --on: measure the other cells in the lab
    #[arg(long, requires = "on")]
    lab: bool,
    /// Measure in a guest with a kernel of its own what this host's kernel cannot (as 'lab vm' does)
    #[arg(long)]
    vm: bool,
    #[command(flatten)]
    guest: GuestFlags,
    /// We are in this guest, and measure its cells
    #[arg(long, hide = true, value_name = "GUEST")]
    in_guest: Option<String>,
    /// Print the cells with their cases, the time they take and what they need; measure nothing
    #[arg(long)]
    list: bool,
    /// Write events as JSON, one a line, while running
    #[arg(long, value_name = "FILE|-")]
    events: Option<PathBuf>,
    #[command(flatten)]
    output: OutputFlags,
    #[command(flatten)]
    keep: KeepFlags,
}

fn option(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or_else(|| format!("'{text}': write NAME=VALUE"))?;
    Ok((name.to_owned(), value.to_owned()))
}

fn studies() -> clap::builder::PossibleValuesParser {
    STUDIES.iter().map(|study| study.name).collect::<Vec<_>>().into()
}

pub fn run(flags: Flags) -> Result<Status> {
    let mut study = Study::named(&flags.study)?;
    study.choose(&flags.tables)?;
    if flags.list {
        return list::print(&study);
    }
    let events_on_stdout = flags.events.as_deref().is_some_and(is_dash);
    flags.output.check(usize::from(events_on_stdout))?;
    flags.keep.check()?;
    if flags.guest.any() && !flags.vm {
        bail!("--virtual-time, --limit and --cache say how the guest is run: add --vm");
    }
    let dialer = Dialer::new(Clock::System);
    let cases = study.cases(flags.quick)?;
    flags.cells.iter().try_for_each(|cell| cell.check("--cell", &cases))?;
    let given = Given::new(&study, &cases, &flags.on, &dialer)?;
    let with_site = |mut case: PlannedCase| {
        let chosen = flags.cells.is_empty() || flags.cells.iter().any(|cell| cell.covers(&case.place));
        let site = match chosen {
            true => site(&study, &given, &mut case, &flags)?,
            false => Site::Nowhere(NOT_ASKED_FOR.to_owned()),
        };
        Ok((site, case))
    };
    let cases: Vec<(Site, PlannedCase)> = cases.into_iter().map(with_site).collect::<Result<_>>()?;
    announce(&study, &cases, flags.quick, flags.output.quiet)?;

    let screen = Screen::new(flags.output.quiet, flags.events.as_deref())?;
    let cancel = on_interrupt()?;
    raise_open_files();
    let mut measured = Measured::new(&study, flags.quick, &dialer, &cancel);
    measured.all(&cases, &screen);
    measured.in_guests(&cases, &flags.guest, &screen);
    measured.beside_published(&cases)?;
    measured.trial(&cases, &screen, flags.output.quiet)?;
    let complete = measured.failed.is_empty();
    let run = measured.ended(&screen);
    let events = screen.end();
    let written = flags.output.write(&run, !events_on_stdout);
    flags.keep.keep(&run, flags.output.quiet);
    all_of([events, written])?;
    if flags.output.is_read() && !events_on_stdout {
        // Most studies have nothing that a piece explains.
        explain::explain(&Evidence::Run(&run), &Declared::default()).map_or(Ok(()), |found| {
            put(|stdout| writeln!(stdout))?;
            super::explain::print(&found)
        })?;
    }
    Ok(match status(&run) {
        Status::Complete if !complete => Status::Incomplete,
        status => status,
    })
}

/// Why a case is not measured that `--cell` leaves out.
const NOT_ASKED_FOR: &str = "it is not among the cells asked for";

/// Where a case is measured.
enum Site {
    /// At endpoints that --on names.
    Given(Vec<Endpoint>),
    Lab,
    /// The lab, in the guest of that name.
    Guest(String),
    /// And why not.
    Nowhere(String),
}

impl Site {
    /// Why a case that has no result has none.
    fn why_not(&self) -> String {
        match self {
            Site::Nowhere(why) => why.clone(),
            Site::Given(_) | Site::Lab | Site::Guest(_) => "stopped before its turn".to_owned(),
        }
    }
}

fn site(study: &Study, given: &Given, case: &mut PlannedCase, flags: &Flags) -> Result<Site> {
    if let Some(endpoints) = given.endpoints(&case.place)? {
        case.set_options(&flags.options);
        // Whatever is wrong with it is told before anything is measured.
        schedule::check(plan(case, &endpoints)?)?;
        return Ok(Site::Given(endpoints));
    }
    if !given.is_empty() && !flags.lab {
        return Ok(Site::Nowhere("no --on names its cell".to_owned()));
    }
    let cell = study.cell(&case.place.cell).ok_or_else(|| anyhow!("no cell {}", case.place.cell))?;
    Ok(match &cell.not_in_lab {
        Some(why) => Site::Nowhere(why.clone()),
        None => guest::site(study, cell, flags.vm, flags.in_guest.as_deref()),
    })
}

fn plan(case: &PlannedCase, endpoints: &[Endpoint]) -> Result<Plan> {
    let cases = case.cases(endpoints).map_err(anyhow::Error::msg)?;
    Ok(Plan::new(None, 1, true, cases)?)
}

/// To open links, to start and stop the lab, around every case.
const AROUND: Duration = Duration::from_millis(150);

/// Those that can be run.
fn runnable(cases: &[(Site, PlannedCase)]) -> impl Iterator<Item = &(Site, PlannedCase)> {
    cases.iter().filter(|(site, _)| !matches!(site, Site::Nowhere(_)))
}

/// What these cases take at least, the line being all that takes time.
fn least_time<'a>(cases: impl Iterator<Item = &'a PlannedCase>) -> Duration {
    cases.map(|case| case.least_time() + AROUND).sum()
}

/// What a case takes at least at its site. Only of the lab's own device is it known how long it works.
fn least_time_at(site: &Site, case: &PlannedCase) -> Duration {
    match site {
        Site::Given(_) => case.without_processing().least_time(),
        Site::Lab | Site::Guest(_) | Site::Nowhere(_) => case.least_time(),
    }
}

/// Reports what is about to run and how long it takes; fails where that is nothing.
fn announce(study: &Study, cases: &[(Site, PlannedCase)], quick: bool, quiet: bool) -> Result<()> {
    let count = runnable(cases).count();
    if count == 0 {
        let reasons = || cases.iter().map(|(site, _)| site.why_not());
        let why = reasons().find(|why| why != NOT_ASKED_FOR).or_else(|| reasons().next()).unwrap_or_default();
        bail!("nothing of this can be run: {why}; --on CELL=URL measures hardware, --list prints the cells");
    }
    if quiet {
        return Ok(());
    }
    let is_lab = |site: &Site| matches!(site, Site::Lab | Site::Guest(_));
    let in_lab = runnable(cases).filter(|(site, _)| is_lab(site)).count();
    let in_guest = runnable(cases).filter(|(site, _)| matches!(site, Site::Guest(_))).count();
    let mut place = match (in_lab, count - in_lab) {
        (_, 0) => {
            format!("in the lab: {}", [study.stand_ins(), vec!["no hardware".to_owned()]].concat().join(", "))
        }
        (0, _) => "where --on says".to_owned(),
        (in_lab, given) => format!("{in_lab} in the lab, {given} where --on says"),
    };
    if in_guest > 0 {
        place += &format!("; {in_guest} of them in a guest, which takes longer");
    }
    let trial = trial::least_time(study, cases, quick)?;
    let time: Duration = runnable(cases).map(|(site, case)| least_time_at(site, case) + AROUND).sum();
    let time = list::about(time + trial);
    let hint = if quick { "" } else { " (--quick: minutes; --table N: a part)" };
    let name = &study.name;
    let speed = if study.is_of_sizes() { "" } else { " at the speed of the lines" };
    tell(format_args!(
        "{name}: {}, at least {time}{speed}{hint}; {place}",
        units::plural(count as u64, "case")
    ));
    if let Some(why) = trial::left_out(study, cases, quick)? {
        tell(why);
    }
    Ok(())
}

/// What has been measured so far.
struct Measured<'a> {
    study: &'a Study,
    quick: bool,
    dialer: &'a Dialer,
    cancel: &'a AtomicBool,
    floor_ns: f64,
    began: Time,
    run: Run,
    /// Place of the result of each case in the document.
    done: BTreeMap<String, usize>,
    /// Why a case could not begin.
    failed: BTreeMap<String, String>,
    shared: Option<Shared>,
}

/// What cases that belong together have in common, until one comes that does not.
struct Shared {
    /// Of the cases, and whether they are the lab's.
    name: (String, bool),
    // Before the stand: it may have last words for it.
    kept: Arc<Kept>,
    stand: Option<Stand>,
}

impl<'a> Measured<'a> {
    fn new(study: &'a Study, quick: bool, dialer: &'a Dialer, cancel: &'a AtomicBool) -> Measured<'a> {
        let mut bench = Bench::new(dialer.clone(), &(), cancel);
        bench.environment = host::facts();
        let title = Some(format!("{} again{}", study.name, if quick { ", quick" } else { "" }));
        let nothing = Plan { title, repeat: 1, keep_going: true, cases: Vec::new() };
        let run = schedule::run(&nothing, &mut bench);
        let floor_ns = schedule::floor_ns();
        Measured {
            study,
            quick,
            dialer,
            cancel,
            floor_ns,
            began: dialer.now(),
            run,
            done: BTreeMap::new(),
            failed: BTreeMap::new(),
            shared: None,
        }
    }

    /// Measures one case after the other; where one fails, the others go on.
    fn all(&mut self, cases: &[(Site, PlannedCase)], screen: &Screen) {
        screen.event(&Event::Begins { cases: runnable(cases).count(), repeat: 1, estimate_ns: None });
        let here = |(_, (site, _)): &(usize, &(Site, PlannedCase))| !matches!(site, Site::Guest(_));
        for (number, (site, case)) in runnable(cases).enumerate().filter(here) {
            if self.cancel.load(Relaxed) {
                break;
            }
            self.measure(case, site, number, screen);
        }
        self.shared = None;
    }

    /// Measures a case and keeps its result, or why it has none.
    fn measure(&mut self, case: &PlannedCase, site: &Site, number: usize, screen: &Screen) {
        match self.one(case, site, &Numbered { screen, number }) {
            Ok(run) => {
                self.run.cases.extend(run.cases);
                // Last comes what the others only prepare.
                self.done.insert(case.name.clone(), self.run.cases.len() - 1);
            }
            Err(error) => {
                let reason = format!("{}: {error:#}", case.name);
                screen.event(&Event::Failed { case: number, repetition: 0, reason: &reason });
                self.failed.insert(case.name.clone(), format!("{error:#}"));
            }
        }
    }

    fn one(&mut self, case: &PlannedCase, site: &Site, observer: &dyn Observer) -> Result<Run> {
        let study = self.study;
        let cell = study.cell(&case.place.cell).ok_or_else(|| anyhow!("no cell {}", case.place.cell))?;
        let name = (case.together.clone(), matches!(site, Site::Lab));
        if self.shared.as_ref().is_none_or(|shared| shared.name != name) {
            // What the cases before had ends before anything new begins.
            self.shared = None;
            let stand = match site {
                Site::Lab => Some(Stand::start(cell, case, self.dialer, self.quick)?),
                Site::Given(_) | Site::Guest(_) | Site::Nowhere(_) => None,
            };
            self.shared = Some(Shared { name, kept: Arc::default(), stand });
        }
        let stand = self.shared.as_ref().and_then(|shared| shared.stand.as_ref());
        let endpoints = match site {
            Site::Given(endpoints) => endpoints,
            Site::Lab => stand.map_or(&[][..], |stand| &stand.endpoints),
            Site::Guest(name) => bail!("it is measured in the guest {name}"),
            Site::Nowhere(why) => bail!("{why}"),
        };
        let plan = schedule::check(plan(case, endpoints)?)?;
        let mut bench = Bench::new(self.dialer.clone(), observer, self.cancel);
        if let Some(shared) = &self.shared {
            bench.kept = shared.kept.clone();
        }
        bench.floor_ns = Some(self.floor_ns);
        let mut run = schedule::run(&plan, &mut bench);
        if let Some((_, before)) = run.cases.split_last_mut() {
            // A few readings tell a round trip; nobody asks for their p99.
            before.iter_mut().for_each(|case| case.warnings.retain(|warning| warning.code != "few_samples"));
        }
        for result in &mut run.cases {
            if let Some(path) = case.download.and_then(|download| download.path).or(case.link) {
                result.shaped = explain::window::shaped(path.delay, path.rate_to, path.rate_from);
            }
            result.placement.extend(cell.placement.clone());
            if let (Site::Lab, Some(name)) = (site, &cell.stand_in) {
                result.placement.insert("stand_in".to_owned(), name.as_str().into());
            }
        }
        Ok(run)
    }

    /// Gives the document the tables of the study.
    fn beside_published(&mut self, cases: &[(Site, PlannedCase)]) -> Result<()> {
        let sites: BTreeMap<&str, &Site> =
            cases.iter().map(|(site, case)| (case.name.as_str(), site)).collect();
        let mut paper = self.study.join(self.quick, &|case| self.outcome(&sites, case))?;
        paper.guests = guest::told(&self.run);
        self.run.paper = Some(paper);
        Ok(())
    }

    /// What became of a case.
    fn outcome(&self, sites: &BTreeMap<&str, &Site>, case: &PlannedCase) -> Outcome<'_> {
        let site = sites.get(case.name.as_str());
        let why_not = || self.failed.get(&case.name).cloned().or(site.map(|site| site.why_not()));
        match self.done.get(&case.name) {
            Some(&index) => Outcome::Run {
                number: index + 1,
                case: &self.run.cases[index],
                stand_in: matches!(site, Some(Site::Lab | Site::Guest(_))),
                guest: matches!(site, Some(Site::Guest(_))),
            },
            None => Outcome::NotRun(why_not().unwrap_or_default()),
        }
    }

    /// The document, when all has ended.
    fn ended(mut self, screen: &Screen) -> Run {
        self.run.interrupted = self.cancel.load(Relaxed);
        self.run.elapsed_ns = self.dialer.now().since(self.began).as_nanos() as u64;
        let complete = self.run.complete() && self.failed.is_empty();
        screen.event(&Event::Ends { complete, elapsed_ns: self.run.elapsed_ns });
        self.run.warnings.extend(not_measured(&self.failed));
        self.run
    }
}

/// One warning for each reason why cases could not begin.
fn not_measured(failed: &BTreeMap<String, String>) -> Vec<Warning> {
    let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (case, reason) in failed {
        reasons.entry(reason).or_default().push(case);
    }
    let warning = |(reason, cases): (&str, Vec<&str>)| {
        let more = match cases.len() {
            1 => String::new(),
            several => format!(" and {} more", several - 1),
        };
        let text = format!("not measured: {}{more}: {reason}", cases[0]);
        Warning::new("incomplete", text, "mend the cause and run again")
    };
    reasons.into_iter().map(warning).collect()
}

/// Passes on the events of one case as those of a case of the whole.
struct Numbered<'a> {
    screen: &'a Screen,
    number: usize,
}

impl Observer for Numbered<'_> {
    fn event(&self, event: &Event) {
        let case = self.number;
        self.screen.event(&match *event {
            Event::Begins { .. } | Event::Ends { .. } => return,
            Event::CaseBegins { repetition, endpoint, peer, workload, message_bytes, .. } => {
                Event::CaseBegins { case, repetition, endpoint, peer, workload, message_bytes }
            }
            Event::Progress { repetition, elapsed_ns, messages, bytes, share, .. } => {
                Event::Progress { case, repetition, elapsed_ns, messages, bytes, share }
            }
            Event::CaseEnds { repetition, figures, .. } => Event::CaseEnds { case, repetition, figures },
            Event::Failed { repetition, reason, .. } => Event::Failed { case, repetition, reason },
        });
    }
}
