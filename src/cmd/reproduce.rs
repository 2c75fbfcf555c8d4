//! `linkgauge reproduce`: runs a published study again, in the lab or on hardware.
//!
//! `papers/` and `linkgauge::study` describe the studies. Cases run one after the other, each with only the part of the lab
//! that it needs, so that no other part disturbs it.

mod guest;
mod items;
mod lab_setup;
mod list;
mod parameters;
mod trial;
mod twin;
mod user_endpoints;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use clap::Args;
use linkgauge::Registry;
use linkgauge::clock::{Clock, Time};
use linkgauge::endpoint::Endpoint;
use linkgauge::explain::{self, DeclaredFacts, Finding, ModelInput};
use linkgauge::host;
use linkgauge::host::raise_open_file_limit;
use linkgauge::link::Dialer;
use linkgauge::lists::MODELS;
use linkgauge::plan::Plan;
use linkgauge::protocol::ConnectionCache;
use linkgauge::report::Detail;
use linkgauge::run::{Run, Shaping, Warning, WarningCode};
use linkgauge::schedule::{self, Observer, RunContext, RunEvent};
use linkgauge::study::{CaseOutcome, PlannedCase, STUDIES, Study, StudyLength};
use linkgauge::twin::NO_TWIN;
use linkgauge::units;

use super::help::{DURATION, OUTPUT, TARGET};
use super::lab::vm::GuestFlags;
use super::measure::{ended_before_result, run_status};
use super::output::{Messages, OutputFlags, RunText, finish_all, is_dash, print_message, print_text};
use super::progress::{ProgressDisplay, ProgressMode};
use super::signals::interrupt_flag;
use super::status::Status;
use super::store::SaveFlags;
use guest::GuestUse;
use lab_setup::LabSetup;
use user_endpoints::{CellEndpoints, CellSelector, UserEndpoints};

/// Reproduce a published study: published figures beside measured ones
///
/// Without --on everything is measured in the lab, without hardware. CSV has one row per published figure. docs/studies.md
/// describes the cells, and how to set up hardware.
#[derive(Args)]
pub struct Flags {
    /// Study
    #[arg(value_name = "STUDY", value_parser = study_values())]
    study: String,
    /// Minutes instead of hours: fewer requests, less data
    #[arg(long, help_heading = DURATION)]
    quick: bool,
    /// Only these tables of the study [list]
    #[arg(long = "table", help_heading = TARGET, value_name = "N", value_delimiter = ',')]
    tables: Vec<String>,
    /// Only these cells: tcp, tcp/4, tcp/4@9600 [list]
    #[arg(long = "cell", help_heading = TARGET, value_name = "CELL", value_delimiter = ',')]
    cells: Vec<CellSelector>,
    /// List the cells and their cases, without a measurement
    #[arg(long, help_heading = TARGET)]
    list: bool,
    /// List each table, figure and sentence of the study with its counterpart: twin, lab, hardware
    ///
    /// What cannot have one has the reason. The twins judge the sentences about figures.
    #[arg(long, help_heading = TARGET, conflicts_with_all = ["list", "twin", "on", "vm", "quick", "cells", "events"])]
    items: bool,
    /// List the values of the twins: their origin, and the interval that the published figures allow
    ///
    /// Within it the deviation stays within 10 % of the best one while the other parameters are fitted again.
    #[arg(long, help_heading = TARGET, conflicts_with_all = ["list", "items", "twin", "on", "vm", "quick", "cells", "events"])]
    parameters: bool,
    /// Measure a cell at this endpoint: tcp/4=tcp://box:7001
    ///
    /// Further ports are counted up from it. CELL is a name of --list: alone (native), with its number of ports (tcp/4), or
    /// also with a rate (tcp/4@9600). The most specific one applies. Cells without an endpoint are skipped.
    #[arg(long, help_heading = TARGET, value_name = "CELL=URL[,URL…]")]
    on: Vec<CellEndpoints>,
    /// With --on: protocol option, like security=17
    #[arg(long = "option", help_heading = TARGET, value_name = "NAME=VALUE", value_parser = parse_option, requires = "on")]
    options: Vec<(String, String)>,
    /// With --on: measure the other cells in the lab
    #[arg(long, help_heading = TARGET, requires = "on")]
    lab: bool,
    /// Compare the published figures with those of the twins: the published systems, rebuilt from a part of the figures
    ///
    /// The twins run on a virtual clock in this process. docs/studies.md describes them.
    #[arg(long, help_heading = TARGET, conflicts_with_all = ["on", "vm", "list", "events"])]
    twin: bool,
    /// With --twin: also run the twins on sockets and pseudo-terminals, and compare both
    ///
    /// An estimate comes first. Cases at low rates take long: --quick runs those that fit a minute, --cell chooses some.
    #[arg(long, help_heading = TARGET, requires = "twin")]
    real_time: bool,
    /// Use a guest for cells that this host's kernel cannot measure
    #[arg(long, help_heading = TARGET)]
    vm: bool,
    /// This process runs in this guest, and measures its cells
    #[arg(long, hide = true, value_name = "GUEST")]
    in_guest: Option<String>,
    #[command(flatten)]
    output: OutputFlags,
    /// Write events as JSON, one a line, while measuring
    #[arg(long, help_heading = OUTPUT, value_name = "FILE|-", hide_short_help = true)]
    events: Option<PathBuf>,
    #[command(flatten)]
    save: SaveFlags,
    #[command(flatten)]
    guest: GuestFlags,
}

impl Flags {
    fn length(&self) -> StudyLength {
        if self.quick { StudyLength::Quick } else { StudyLength::Full }
    }

    fn guest_use(&self) -> GuestUse<'_> {
        match &self.in_guest {
            Some(name) => GuestUse::Inside(name),
            None if self.vm => GuestUse::Wanted,
            None => GuestUse::Unwanted,
        }
    }
}

fn parse_option(text: &str) -> Result<(String, String)> {
    let (name, value) = text.split_once('=').ok_or_else(|| anyhow!("'{text}': write NAME=VALUE"))?;
    Ok((name.to_owned(), value.to_owned()))
}

fn study_values() -> clap::builder::PossibleValuesParser {
    STUDIES.iter().map(|study| study.name).collect::<Vec<_>>().into()
}

pub fn run(flags: Flags) -> Result<Status> {
    let mut study = Study::by_name(&flags.study)?;
    study.select_tables(&flags.tables)?;
    flags.in_guest.iter().for_each(|guest| study.enter_guest(guest));
    if let Some(status) = run_without_lab(&study, &flags) {
        return status;
    }
    let events_on_stdout = flags.events.as_deref().is_some_and(is_dash);
    flags.output.check_writable(usize::from(events_on_stdout))?;
    flags.save.check()?;
    if flags.guest.any_set() && !flags.vm {
        bail!("--virtual-time, --limit and --cache are options of the guest. Add --vm");
    }
    let mut dialer = Registry::standard().dialer(Clock::System);
    let cases = study.cases(flags.length())?;
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
    print_overview(&study, &cases, flags.length(), flags.output.messages())?;

    let screen = ProgressDisplay::new(flags.output.messages(), ProgressMode::Auto, flags.events.as_deref())?;
    dialer.cancel = interrupt_flag()?;
    raise_open_file_limit();
    let mut measured = StudyRun::new(&study, flags.length(), &dialer);
    measured.measure_all(&cases, &screen);
    measured.measure_in_guests(&cases, &flags.guest, &screen);
    measured.attach_tables(&cases)?;
    measured.run_window_trial(&cases, &screen, flags.output.messages())?;
    let complete = measured.failures.is_empty();
    let run = measured.finish(&screen);
    let events = screen.finish();
    if ended_before_result(&run) {
        finish_all([events, flags.output.write(&run, RunText::Omitted)])?;
        return Ok(run_status(&run));
    }
    let written = flags.output.write(&run, RunText::printed_if(!events_on_stdout));
    flags.save.save_and_print(&run, flags.output.messages());
    finish_all([events, written])?;
    if flags.output.prints_text() && !events_on_stdout {
        print_measured_findings(&run)?;
    }
    Ok(match run_status(&run) {
        Status::Complete if !complete => Status::Incomplete,
        status => status,
    })
}

/// What explains the measured figures. The counters describe this host, and the mechanisms (`explain STUDY`) the published systems.
fn print_measured_findings(run: &Run) -> Result<()> {
    let others = [explain::counters::MODEL.name, explain::mechanisms::MODEL.name];
    let findings =
        explain::explain(MODELS, &ModelInput::Run(run), &DeclaredFacts::default()).unwrap_or_default();
    let findings: Vec<Finding> =
        findings.into_iter().filter(|finding| !others.contains(&finding.model)).collect();
    if findings.is_empty() {
        return Ok(());
    }
    print_text(|stdout| writeln!(stdout))?;
    super::explain::print_findings(&findings, Detail::Full)
}

/// Runs what needs neither the lab nor hardware: lists and twins. `None`: nothing of that kind was requested.
fn run_without_lab(study: &Study, flags: &Flags) -> Option<Result<Status>> {
    match flags {
        Flags { list: true, .. } => Some(list::print_cells(study)),
        Flags { items: true, .. } => Some(items::print_items(study)),
        Flags { parameters: true, .. } => Some(parameters::print_parameters(study, flags.output.detail())),
        Flags { twin: true, .. } => Some(run_twins(study, flags)),
        _ => None,
    }
}

fn run_twins(study: &Study, flags: &Flags) -> Result<Status> {
    if flags.quick && !flags.real_time {
        bail!(
            "--twin runs whole on the virtual clock: it takes seconds. Leave out --quick, or add --real-time"
        );
    }
    let cases = study.cases(StudyLength::Full)?;
    flags.cells.iter().try_for_each(|cell| cell.check_exists("--cell", &cases))?;
    let tables = study.join_results(StudyLength::Full, &|_| CaseOutcome::NotMeasured(NO_TWIN.to_owned()))?;
    match (flags.real_time, flags.cells.as_slice()) {
        (true, cells) => twin::run_in_real_time(study, tables, (cells, flags.length()), &flags.output),
        (false, []) => twin::run(study, tables, &flags.output),
        (false, _) => bail!("--twin runs all cells: it takes seconds. Leave out --cell"),
    }
}

/// The reason for a case that `--cell` excludes.
const NOT_SELECTED: &str = "--cell excludes it";

/// Where a case is measured.
enum MeasuringSite {
    /// At endpoints of --on.
    UserEndpoints(Vec<Endpoint>),
    Lab,
    /// The lab, in the guest of that name.
    Guest(String),
    /// With the reason.
    NotMeasured(String),
}

impl MeasuringSite {
    /// The reason for a case without a result.
    fn reason(&self) -> String {
        match self {
            MeasuringSite::NotMeasured(why) => why.clone(),
            MeasuringSite::UserEndpoints(_) | MeasuringSite::Lab | MeasuringSite::Guest(_) => {
                "interrupted before it started".to_owned()
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
        // Checked first, so that errors appear before the measurement.
        schedule::check(plan_of_case(case, &endpoints)?, Registry::standard())?;
        return Ok(MeasuringSite::UserEndpoints(endpoints));
    }
    if !given.is_empty() && !flags.lab {
        return Ok(MeasuringSite::NotMeasured("no --on for its cell".to_owned()));
    }
    let cell = study.find_cell(&case.point.cell).ok_or_else(|| anyhow!("no cell {}", case.point.cell))?;
    Ok(match &cell.not_in_lab {
        Some(why) => MeasuringSite::NotMeasured(why.clone()),
        None => guest::lab_site(study, cell, flags.guest_use()),
    })
}

fn plan_of_case(case: &PlannedCase, endpoints: &[Endpoint]) -> Result<Plan> {
    let cases = case.expand(endpoints)?;
    Ok(Plan { keep_going: true, ..Plan::new(cases)? })
}

/// Time to open links, and to start and stop the lab, per case.
const CASE_OVERHEAD: Duration = Duration::from_millis(150);

/// The cases that can run.
fn runnable_cases(
    cases: &[(MeasuringSite, PlannedCase)],
) -> impl Iterator<Item = &(MeasuringSite, PlannedCase)> {
    cases.iter().filter(|(site, _)| !matches!(site, MeasuringSite::NotMeasured(_)))
}

/// Lower bound of the duration: the time on the line alone.
fn min_duration<'a>(cases: impl Iterator<Item = &'a PlannedCase>) -> Duration {
    cases.map(|case| case.min_duration() + CASE_OVERHEAD).sum()
}

/// Lower bound of the duration of a case at its site. The processing time is known only for devices of the lab.
fn least_time_at(site: &MeasuringSite, case: &PlannedCase) -> Duration {
    match site {
        MeasuringSite::UserEndpoints(_) => case.without_processing().min_duration(),
        MeasuringSite::Lab | MeasuringSite::Guest(_) | MeasuringSite::NotMeasured(_) => case.min_duration(),
    }
}

/// Prints the planned work and its duration. Fails if no case can run.
fn print_overview(
    study: &Study,
    cases: &[(MeasuringSite, PlannedCase)],
    length: StudyLength,
    messages: Messages,
) -> Result<()> {
    let count = runnable_cases(cases).count();
    if count == 0 {
        let reasons = || cases.iter().map(|(site, _)| site.reason());
        let why = reasons().find(|why| why != NOT_SELECTED).or_else(|| reasons().next()).unwrap_or_default();
        bail!("no case can run: {why}. Use --on CELL=URL for hardware; --list prints the cells");
    }
    if messages == Messages::ErrorsOnly {
        return Ok(());
    }
    let is_lab = |site: &MeasuringSite| matches!(site, MeasuringSite::Lab | MeasuringSite::Guest(_));
    let in_lab = runnable_cases(cases).filter(|(site, _)| is_lab(site)).count();
    let in_guest = runnable_cases(cases).filter(|(site, _)| matches!(site, MeasuringSite::Guest(_))).count();
    let mut place = match (in_lab, count - in_lab) {
        (_, 0) => {
            format!("in the lab: {}", [study.stand_ins(), vec!["no hardware".to_owned()]].concat().join(", "))
        }
        (0, _) => "at the endpoints of --on".to_owned(),
        (in_lab, given) => format!("{in_lab} in the lab, {given} at the endpoints of --on"),
    };
    if in_guest > 0 {
        place += &format!("; {in_guest} of them in a guest, which takes longer");
    }
    let trial = trial::min_duration(study, cases, length)?;
    let time: Duration =
        runnable_cases(cases).map(|(site, case)| least_time_at(site, case) + CASE_OVERHEAD).sum();
    let time = list::format_rough_duration(time + trial);
    let hint = if length.is_quick() { "" } else { " (--quick: minutes; --table N: a part)" };
    let name = &study.name;
    let speed = if study.has_sizes() { "" } else { " at the speed of the lines" };
    print_message(format_args!(
        "{name}: {}, at least {time}{speed}{hint}; {place}",
        units::format_plural(count as u64, "case")
    ));
    if let Some(why) = trial::left_out(study, cases, length)? {
        print_message(why);
    }
    Ok(())
}

/// A document of this host without cases.
fn empty_run(title: &str, dialer: &Dialer) -> Run {
    let mut context = RunContext::new(dialer.clone(), &());
    context.environment = host::facts();
    let nothing = Plan { title: Some(title.to_owned()), repeat: 1, keep_going: true, cases: Vec::new() };
    let nothing = schedule::check(nothing, Registry::standard()).expect("no case is no invalid case");
    schedule::run(&nothing, &mut context)
}

/// The results so far.
struct StudyRun<'a> {
    study: &'a Study,
    length: StudyLength,
    dialer: &'a Dialer,
    cancel: &'a AtomicBool,
    overhead_ns: f64,
    began: Time,
    run: Run,
    /// Index of the result of each case in the document.
    result_index: BTreeMap<String, usize>,
    /// Reasons of the cases that could not start.
    failures: BTreeMap<String, String>,
    setup: Option<SharedSetup>,
}

/// State shared by consecutive cases of one place.
struct SharedSetup {
    /// The place, and whether it is in the lab.
    key: (String, bool),
    // Before the lab, because closing a connection may send messages to it.
    connection_cache: Arc<ConnectionCache>,
    lab: Option<LabSetup>,
}

impl<'a> StudyRun<'a> {
    fn new(study: &'a Study, length: StudyLength, dialer: &'a Dialer) -> StudyRun<'a> {
        let run = empty_run(
            &format!("{} again{}", study.name, if length.is_quick() { ", quick" } else { "" }),
            dialer,
        );
        let overhead_ns = schedule::measure_overhead_ns();
        StudyRun {
            study,
            length,
            dialer,
            cancel: &dialer.cancel,
            overhead_ns,
            began: dialer.now(),
            run,
            result_index: BTreeMap::new(),
            failures: BTreeMap::new(),
            setup: None,
        }
    }

    /// Measures the cases in order. A failure does not stop the others.
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

    /// Measures a case and stores its result, or the reason of its failure.
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
                // The trial uses the results of the others, so it comes last.
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
            // The previous lab stops before a new one starts.
            self.setup = None;
            let stand = match site {
                MeasuringSite::Lab => Some(LabSetup::start(cell, case, self.dialer, self.length)?),
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
        let plan = schedule::check(plan_of_case(case, endpoints)?, Registry::standard())?;
        let mut bench = RunContext::new(self.dialer.clone(), observer);
        if let Some(shared) = &self.setup {
            bench.connection_cache = shared.connection_cache.clone();
        }
        bench.overhead_ns = Some(self.overhead_ns);
        let mut run = schedule::run(&plan, &mut bench);
        if let Some((_, before)) = run.cases.split_last_mut() {
            // These few requests serve a median; their p99 is not used.
            before
                .iter_mut()
                .for_each(|case| case.warnings.retain(|warning| warning.code != WarningCode::FewSamples));
        }
        for result in &mut run.cases {
            if let Some(path) = case.download.and_then(|download| download.link).or(case.link) {
                result.shaped = Some(Shaping {
                    delay_ns: path.delay.as_nanos() as u64,
                    rate_to_bps: path.rate_to,
                    rate_from_bps: path.rate_from,
                });
            }
            (result.placement.network, result.placement.hops) = (cell.network.clone(), cell.hops);
            if let (MeasuringSite::Lab, Some(name)) = (site, &cell.stand_in) {
                result.placement.stand_in = Some(name.clone());
            }
        }
        Ok(run)
    }

    /// Adds the tables of the study to the document.
    fn attach_tables(&mut self, cases: &[(MeasuringSite, PlannedCase)]) -> Result<()> {
        let sites: BTreeMap<&str, &MeasuringSite> =
            cases.iter().map(|(site, case)| (case.name.as_str(), site)).collect();
        let mut paper = self.study.join_results(self.length, &|case| self.outcome(&sites, case))?;
        paper.guests = guest::guest_descriptions(&self.run);
        self.run.study = Some(paper);
        Ok(())
    }

    /// The outcome of a case.
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

    /// The finished document.
    fn finish(mut self, screen: &ProgressDisplay) -> Run {
        self.run.interrupted = self.cancel.load(Relaxed);
        self.run.elapsed_ns = self.dialer.now().since(self.began).as_nanos() as u64;
        let complete = self.run.is_complete() && self.failures.is_empty();
        screen.event(&RunEvent::Ends { complete, elapsed_ns: self.run.elapsed_ns });
        self.run.warnings.extend(failure_warnings(&self.failures));
        self.run
    }
}

/// One warning per reason, with the cases that could not start.
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
        Warning::new(WarningCode::Incomplete, text, "")
    };
    reasons.into_iter().map(warning).collect()
}

/// Forwards the events of one case with the case number of the whole run.
struct CaseObserver<'a> {
    display: &'a ProgressDisplay,
    case_number: usize,
}

impl Observer for CaseObserver<'_> {
    fn event(&self, event: &RunEvent) {
        let mut event = *event;
        match &mut event {
            RunEvent::CaseBegins { case, .. }
            | RunEvent::Progress { case, .. }
            | RunEvent::CaseEnds { case, .. }
            | RunEvent::Failed { case, .. } => *case = self.case_number,
            _ => return,
        }
        self.display.event(&event);
    }
}
