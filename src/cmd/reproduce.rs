//! `linkgauge reproduce`: a published study run again, in the lab or on hardware, published beside measured.
//!
//! Not for what the study is: `papers/` and `linkgauge::paper` hold that. Cases run one after the other, each with the
//! lab it needs, so that no piece of the lab disturbs a case that does not use it.

mod guest;
mod lab_setup;
mod list;
mod trial;
mod user_endpoints;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use clap::Args;
use linkgauge::clock::{Clock, Time};
use linkgauge::endpoint::Endpoint;
use linkgauge::explain::{self, DeclaredFacts, Evidence};
use linkgauge::host;
use linkgauge::link::Dialer;
use linkgauge::plan::Plan;
use linkgauge::protocol::ConnectionCache;
use linkgauge::run::{Run, Warning};
use linkgauge::schedule::{self, Observer, RunContext, RunEvent};
use linkgauge::serve::raise_open_file_limit;
use linkgauge::study::{CaseOutcome, PlannedCase, STUDIES, Study};
use linkgauge::units;

use super::Status;
use super::lab::vm::GuestFlags;
use super::measure::{ProgressDisplay, run_status};
use super::output::{OutputFlags, finish_all, is_dash, print_message, print_text};
use super::signals::interrupt_flag;
use super::store::SaveFlags;
use lab_setup::LabSetup;
use user_endpoints::{CellEndpoints, CellSelector, UserEndpoints};

/// Run a published study again: its figures beside what is measured now
///
/// Without --on all is measured in the lab: links made of software, no hardware. CSV is one row a published figure.
/// docs/papers.md tells what the cells are, and how to set up hardware.
#[derive(Args)]
pub struct Flags {
    /// The study
    #[arg(value_name = "STUDY", value_parser = study_values())]
    study: String,
    /// Minutes instead of hours: every case, but fewer exchanges and less data; the report says so
    #[arg(long)]
    quick: bool,
    /// Only these tables of the study [list]
    #[arg(long = "table", value_name = "N", value_delimiter = ',')]
    tables: Vec<String>,
    /// Only these cells: tcp, tcp/4, tcp/4@9600 [list]
    #[arg(long = "cell", value_name = "CELL", value_delimiter = ',')]
    cells: Vec<CellSelector>,
    /// Measure a cell at this endpoint, its other ports counted up from it: tcp/4=tcp://box:7001. CELL is a name of
    /// --list, alone (native), with its number of ports (tcp/4), or with a rate besides (tcp/4@9600); the most precise
    /// holds. Cells without an endpoint are not run then
    #[arg(long, value_name = "CELL=URL[,URL…]")]
    on: Vec<CellEndpoints>,
    /// With --on: another value for an option of the peer, like file=CPU:data.dat or security=17
    #[arg(long = "option", value_name = "NAME=VALUE", value_parser = parse_option, requires = "on")]
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
    save: SaveFlags,
}

fn parse_option(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or_else(|| format!("'{text}': write NAME=VALUE"))?;
    Ok((name.to_owned(), value.to_owned()))
}

fn study_values() -> clap::builder::PossibleValuesParser {
    STUDIES.iter().map(|study| study.name).collect::<Vec<_>>().into()
}

pub fn run(flags: Flags) -> Result<Status> {
    let mut study = Study::by_name(&flags.study)?;
    study.select_tables(&flags.tables)?;
    if flags.list {
        return list::print_cells(&study);
    }
    let events_on_stdout = flags.events.as_deref().is_some_and(is_dash);
    flags.output.check_writable(usize::from(events_on_stdout))?;
    flags.save.check()?;
    if flags.guest.any_set() && !flags.vm {
        bail!("--virtual-time, --limit and --cache say how the guest is run: add --vm");
    }
    let dialer = Dialer::new(Clock::System);
    let cases = study.cases(flags.quick)?;
    flags.cells.iter().try_for_each(|cell| cell.check_exists("--cell", &cases))?;
    let given = UserEndpoints::new(&study, &cases, &flags.on, &dialer)?;
    let with_site = |mut case: PlannedCase| {
        let chosen = flags.cells.is_empty() || flags.cells.iter().any(|cell| cell.matches(&case.point));
        let site = match chosen {
            true => choose_site(&study, &given, &mut case, &flags)?,
            false => MeasuringSite::NotMeasured(NOT_SELECTED.to_owned()),
        };
        Ok((site, case))
    };
    let cases: Vec<(MeasuringSite, PlannedCase)> = cases.into_iter().map(with_site).collect::<Result<_>>()?;
    print_overview(&study, &cases, flags.quick, flags.output.quiet)?;

    let screen = ProgressDisplay::new(flags.output.quiet, flags.events.as_deref())?;
    let cancel = interrupt_flag()?;
    raise_open_file_limit();
    let mut measured = StudyRun::new(&study, flags.quick, &dialer, &cancel);
    measured.measure_all(&cases, &screen);
    measured.measure_in_guests(&cases, &flags.guest, &screen);
    measured.attach_tables(&cases)?;
    measured.run_window_trial(&cases, &screen, flags.output.quiet)?;
    let complete = measured.failures.is_empty();
    let run = measured.finish(&screen);
    let events = screen.finish();
    let written = flags.output.write(&run, !events_on_stdout);
    flags.save.save_or_warn(&run, flags.output.quiet);
    finish_all([events, written])?;
    if flags.output.prints_text() && !events_on_stdout {
        // Most studies have nothing that a piece explains.
        explain::explain(&Evidence::Run(&run), &DeclaredFacts::default()).map_or(Ok(()), |found| {
            print_text(|stdout| writeln!(stdout))?;
            super::explain::print_findings(&found)
        })?;
    }
    Ok(match run_status(&run) {
        Status::Complete if !complete => Status::Incomplete,
        status => status,
    })
}

/// Why a case is not measured that `--cell` leaves out.
const NOT_SELECTED: &str = "it is not among the cells asked for";

/// Where a case is measured.
enum MeasuringSite {
    /// At endpoints that --on names.
    UserEndpoints(Vec<Endpoint>),
    Lab,
    /// The lab, in the guest of that name.
    Guest(String),
    /// And why not.
    NotMeasured(String),
}

impl MeasuringSite {
    /// Why a case that has no result has none.
    fn reason(&self) -> String {
        match self {
            MeasuringSite::NotMeasured(why) => why.clone(),
            MeasuringSite::UserEndpoints(_) | MeasuringSite::Lab | MeasuringSite::Guest(_) => {
                "stopped before its turn".to_owned()
            }
        }
    }
}

fn choose_site(
    study: &Study,
    given: &UserEndpoints,
    case: &mut PlannedCase,
    flags: &Flags,
) -> Result<MeasuringSite> {
    if let Some(endpoints) = given.endpoints(&case.point)? {
        case.set_options(&flags.options);
        // Whatever is wrong with it is told before anything is measured.
        schedule::check(plan_of_case(case, &endpoints)?)?;
        return Ok(MeasuringSite::UserEndpoints(endpoints));
    }
    if !given.is_empty() && !flags.lab {
        return Ok(MeasuringSite::NotMeasured("no --on names its cell".to_owned()));
    }
    let cell = study.find_cell(&case.point.cell).ok_or_else(|| anyhow!("no cell {}", case.point.cell))?;
    Ok(match &cell.not_in_lab {
        Some(why) => MeasuringSite::NotMeasured(why.clone()),
        None => guest::lab_site(study, cell, flags.vm, flags.in_guest.as_deref()),
    })
}

fn plan_of_case(case: &PlannedCase, endpoints: &[Endpoint]) -> Result<Plan> {
    let cases = case.expand(endpoints).map_err(anyhow::Error::msg)?;
    Ok(Plan::new(None, 1, true, cases)?)
}

/// To open links, to start and stop the lab, around every case.
const CASE_OVERHEAD: Duration = Duration::from_millis(150);

/// Those that can be run.
fn runnable_cases(
    cases: &[(MeasuringSite, PlannedCase)],
) -> impl Iterator<Item = &(MeasuringSite, PlannedCase)> {
    cases.iter().filter(|(site, _)| !matches!(site, MeasuringSite::NotMeasured(_)))
}

/// What these cases take at least, the line being all that takes time.
fn min_duration<'a>(cases: impl Iterator<Item = &'a PlannedCase>) -> Duration {
    cases.map(|case| case.min_duration() + CASE_OVERHEAD).sum()
}

/// What a case takes at least at its site. Only of the lab's own device is it known how long it works.
fn least_time_at(site: &MeasuringSite, case: &PlannedCase) -> Duration {
    match site {
        MeasuringSite::UserEndpoints(_) => case.without_processing().min_duration(),
        MeasuringSite::Lab | MeasuringSite::Guest(_) | MeasuringSite::NotMeasured(_) => case.min_duration(),
    }
}

/// Reports what is about to run and how long it takes; fails where that is nothing.
fn print_overview(
    study: &Study,
    cases: &[(MeasuringSite, PlannedCase)],
    quick: bool,
    quiet: bool,
) -> Result<()> {
    let count = runnable_cases(cases).count();
    if count == 0 {
        let reasons = || cases.iter().map(|(site, _)| site.reason());
        let why = reasons().find(|why| why != NOT_SELECTED).or_else(|| reasons().next()).unwrap_or_default();
        bail!("nothing of this can be run: {why}; --on CELL=URL measures hardware, --list prints the cells");
    }
    if quiet {
        return Ok(());
    }
    let is_lab = |site: &MeasuringSite| matches!(site, MeasuringSite::Lab | MeasuringSite::Guest(_));
    let in_lab = runnable_cases(cases).filter(|(site, _)| is_lab(site)).count();
    let in_guest = runnable_cases(cases).filter(|(site, _)| matches!(site, MeasuringSite::Guest(_))).count();
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
    let trial = trial::min_duration(study, cases, quick)?;
    let time: Duration =
        runnable_cases(cases).map(|(site, case)| least_time_at(site, case) + CASE_OVERHEAD).sum();
    let time = list::format_rough_duration(time + trial);
    let hint = if quick { "" } else { " (--quick: minutes; --table N: a part)" };
    let name = &study.name;
    let speed = if study.has_sizes() { "" } else { " at the speed of the lines" };
    print_message(format_args!(
        "{name}: {}, at least {time}{speed}{hint}; {place}",
        units::format_plural(count as u64, "case")
    ));
    if let Some(why) = trial::left_out(study, cases, quick)? {
        print_message(why);
    }
    Ok(())
}

/// What has been measured so far.
struct StudyRun<'a> {
    study: &'a Study,
    quick: bool,
    dialer: &'a Dialer,
    cancel: &'a AtomicBool,
    overhead_ns: f64,
    began: Time,
    run: Run,
    /// Place of the result of each case in the document.
    result_index: BTreeMap<String, usize>,
    /// Why a case could not begin.
    failures: BTreeMap<String, String>,
    setup: Option<SharedSetup>,
}

/// What cases that belong together have in common, until one comes that does not.
struct SharedSetup {
    /// Of the cases, and whether they are the lab's.
    key: (String, bool),
    // Before the stand: it may have last words for it.
    connection_cache: Arc<ConnectionCache>,
    lab: Option<LabSetup>,
}

impl<'a> StudyRun<'a> {
    fn new(study: &'a Study, quick: bool, dialer: &'a Dialer, cancel: &'a AtomicBool) -> StudyRun<'a> {
        let mut bench = RunContext::new(dialer.clone(), &(), cancel);
        bench.environment = host::facts();
        let title = Some(format!("{} again{}", study.name, if quick { ", quick" } else { "" }));
        let nothing = Plan { title, repeat: 1, keep_going: true, cases: Vec::new() };
        let nothing = schedule::check(nothing).expect("no case is no invalid case");
        let run = schedule::run(&nothing, &mut bench);
        let floor_ns = schedule::measure_overhead_ns();
        StudyRun {
            study,
            quick,
            dialer,
            cancel,
            overhead_ns: floor_ns,
            began: dialer.now(),
            run,
            result_index: BTreeMap::new(),
            failures: BTreeMap::new(),
            setup: None,
        }
    }

    /// Measures one case after the other; where one fails, the others go on.
    fn measure_all(&mut self, cases: &[(MeasuringSite, PlannedCase)], screen: &ProgressDisplay) {
        screen.event(&RunEvent::Begins {
            cases: runnable_cases(cases).count(),
            repeat: 1,
            estimate_ns: None,
        });
        let here = |(_, (site, _)): &(usize, &(MeasuringSite, PlannedCase))| {
            !matches!(site, MeasuringSite::Guest(_))
        };
        for (number, (site, case)) in runnable_cases(cases).enumerate().filter(here) {
            if self.cancel.load(Relaxed) {
                break;
            }
            self.measure_case(case, site, number, screen);
        }
        self.setup = None;
    }

    /// Measures a case and keeps its result, or why it has none.
    fn measure_case(
        &mut self,
        case: &PlannedCase,
        site: &MeasuringSite,
        number: usize,
        screen: &ProgressDisplay,
    ) {
        match self.run_case(case, site, &CaseObserver { display: screen, case_number: number }) {
            Ok(run) => {
                self.run.cases.extend(run.cases);
                // Last comes what the others only prepare.
                self.result_index.insert(case.name.clone(), self.run.cases.len() - 1);
            }
            Err(error) => {
                let reason = format!("{}: {error:#}", case.name);
                screen.event(&RunEvent::Failed { case: number, repetition: 0, reason: &reason });
                self.failures.insert(case.name.clone(), format!("{error:#}"));
            }
        }
    }

    fn run_case(&mut self, case: &PlannedCase, site: &MeasuringSite, observer: &dyn Observer) -> Result<Run> {
        let study = self.study;
        let cell = study.find_cell(&case.point.cell).ok_or_else(|| anyhow!("no cell {}", case.point.cell))?;
        let name = (case.group.clone(), matches!(site, MeasuringSite::Lab));
        if self.setup.as_ref().is_none_or(|shared| shared.key != name) {
            // What the cases before had ends before anything new begins.
            self.setup = None;
            let stand = match site {
                MeasuringSite::Lab => Some(LabSetup::start(cell, case, self.dialer, self.quick)?),
                MeasuringSite::UserEndpoints(_) | MeasuringSite::Guest(_) | MeasuringSite::NotMeasured(_) => {
                    None
                }
            };
            self.setup = Some(SharedSetup { key: name, connection_cache: Arc::default(), lab: stand });
        }
        let stand = self.setup.as_ref().and_then(|shared| shared.lab.as_ref());
        let endpoints = match site {
            MeasuringSite::UserEndpoints(endpoints) => endpoints,
            MeasuringSite::Lab => stand.map_or(&[][..], |stand| &stand.endpoints),
            MeasuringSite::Guest(name) => bail!("it is measured in the guest {name}"),
            MeasuringSite::NotMeasured(why) => bail!("{why}"),
        };
        let plan = schedule::check(plan_of_case(case, endpoints)?)?;
        let mut bench = RunContext::new(self.dialer.clone(), observer, self.cancel);
        if let Some(shared) = &self.setup {
            bench.connection_cache = shared.connection_cache.clone();
        }
        bench.overhead_ns = Some(self.overhead_ns);
        let mut run = schedule::run(&plan, &mut bench);
        if let Some((_, before)) = run.cases.split_last_mut() {
            // A few readings tell a round trip; nobody asks for their p99.
            before.iter_mut().for_each(|case| case.warnings.retain(|warning| warning.code != "few_samples"));
        }
        for result in &mut run.cases {
            if let Some(path) = case.download.and_then(|download| download.link).or(case.link) {
                result.shaped = explain::window::shaped_facts(path.delay, path.rate_to, path.rate_from);
            }
            result.placement.extend(cell.placement.clone());
            if let (MeasuringSite::Lab, Some(name)) = (site, &cell.stand_in) {
                result.placement.insert("stand_in".to_owned(), name.as_str().into());
            }
        }
        Ok(run)
    }

    /// Gives the document the tables of the study.
    fn attach_tables(&mut self, cases: &[(MeasuringSite, PlannedCase)]) -> Result<()> {
        let sites: BTreeMap<&str, &MeasuringSite> =
            cases.iter().map(|(site, case)| (case.name.as_str(), site)).collect();
        let mut paper = self.study.join_results(self.quick, &|case| self.outcome(&sites, case))?;
        paper.guests = guest::guest_descriptions(&self.run);
        self.run.paper = Some(paper);
        Ok(())
    }

    /// What became of a case.
    fn outcome(&self, sites: &BTreeMap<&str, &MeasuringSite>, case: &PlannedCase) -> CaseOutcome<'_> {
        let site = sites.get(case.name.as_str());
        let why_not = || self.failures.get(&case.name).cloned().or(site.map(|site| site.reason()));
        match self.result_index.get(&case.name) {
            Some(&index) => CaseOutcome::Measured {
                number: index + 1,
                case: &self.run.cases[index],
                is_stand_in: matches!(site, Some(MeasuringSite::Lab | MeasuringSite::Guest(_))),
                is_guest: matches!(site, Some(MeasuringSite::Guest(_))),
            },
            None => CaseOutcome::NotMeasured(why_not().unwrap_or_default()),
        }
    }

    /// The document, when all has ended.
    fn finish(mut self, screen: &ProgressDisplay) -> Run {
        self.run.interrupted = self.cancel.load(Relaxed);
        self.run.elapsed_ns = self.dialer.now().since(self.began).as_nanos() as u64;
        let complete = self.run.is_complete() && self.failures.is_empty();
        screen.event(&RunEvent::Ends { complete, elapsed_ns: self.run.elapsed_ns });
        self.run.warnings.extend(failure_warnings(&self.failures));
        self.run
    }
}

/// One warning for each reason why cases could not begin.
fn failure_warnings(failed: &BTreeMap<String, String>) -> Vec<Warning> {
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
struct CaseObserver<'a> {
    display: &'a ProgressDisplay,
    case_number: usize,
}

impl Observer for CaseObserver<'_> {
    fn event(&self, event: &RunEvent) {
        let case = self.case_number;
        self.display.event(&match *event {
            RunEvent::Begins { .. } | RunEvent::Ends { .. } => return,
            RunEvent::CaseBegins { repetition, endpoint, peer, workload, message_bytes, .. } => {
                RunEvent::CaseBegins { case, repetition, endpoint, peer, workload, message_bytes }
            }
            RunEvent::Progress { repetition, elapsed_ns, messages, bytes, share, .. } => {
                RunEvent::Progress { case, repetition, elapsed_ns, messages, bytes, share }
            }
            RunEvent::CaseEnds { repetition, figures, .. } => {
                RunEvent::CaseEnds { case, repetition, figures }
            }
            RunEvent::Failed { repetition, reason, .. } => RunEvent::Failed { case, repetition, reason },
        });
    }
}
