//! Measures a path beside the load of a run: where the load queues.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::drive::{ProbeThread, Trace};
use super::hops::{HopCount, hop_count, samples_on_path, times_of};
use super::measure::{PathPlan, path_of};
use super::prober::{HopSample, Schedule};
use super::queue::{HopPhases, SessionGrowth, growth_at, locate_queue};
use crate::link::{Dialer, LinkError};
use crate::schedule::{Observer, RunContext, RunEvent};
use linkgauge_model::clock::{Clock, Time};
use linkgauge_model::run::{CaseResult, LoadedHop, PathEnd, PathResult, Run};
use linkgauge_model::stats::median;

/// Rounds on the idle path before a load.
const IDLE_ROUNDS: u32 = 6;

/// Time that the queue of a load needs to fill.
const FILL_TIME: Duration = Duration::from_millis(700);

/// Timeout of probes under load, where a reply may take longer.
const LOADED_TIMEOUT: Duration = Duration::from_secs(3);

/// Probes of a path that go on while the cases of a run load it.
#[derive(Debug)]
pub struct PathBeside {
    plan: PathPlan,
    thread: ProbeThread,
    began: Time,
}

impl PathBeside {
    /// Begins to probe the idle path.
    ///
    /// # Errors
    ///
    /// Fails if the host has no address, or if the probes cannot be sent.
    pub fn start(plan: PathPlan, dialer: &Dialer) -> Result<PathBeside, LinkError> {
        let target = plan.resolve(dialer)?;
        let timeout = plan.timeout.max(LOADED_TIMEOUT);
        let schedule = Schedule { rounds: None, timeout, ..plan.schedule() };
        let thread = ProbeThread::start(target, schedule);
        let thread = thread.map_err(|fault| LinkError::new(&plan.endpoint, fault))?;
        Ok(PathBeside { plan, thread, began: dialer.now() })
    }

    /// Measures the idle path, lets `run` load it, and adds the path to the results.
    pub fn run(self, context: &mut RunContext, run: impl FnOnce(&mut RunContext) -> Run) -> Run {
        let idle_end = self.began + self.plan.interval * IDLE_ROUNDS;
        while context.dialer.now() < idle_end && !context.is_interrupted() {
            let soon = context.dialer.now() + Duration::from_millis(50);
            context.dialer.clock.sleep_until(soon.min(idle_end));
        }
        let idle_end = context.dialer.now();
        let (observer, clock) = (context.observer, context.dialer.clock.clone());
        let watch = LoadWatch { observer, clock, begins: Mutex::default() };
        let mut run = run(&mut context.observed_by(&watch));
        let trace = self.thread.finish();
        let begins = watch.begins.into_inner().unwrap_or_else(PoisonError::into_inner);
        for (index, case) in run.cases.iter_mut().enumerate() {
            let load = begins.get(index).copied().flatten();
            let load = load.map(|begin| (begin + FILL_TIME, begin + Duration::from_nanos(case.elapsed_ns)));
            case.path = Some(path_under_load(&self.plan, &trace, idle_end, load, case));
        }
        run
    }
}

/// Notes when the load of each case began.
struct LoadWatch<'a> {
    observer: &'a dyn Observer,
    clock: Clock,
    begins: Mutex<Vec<Option<Time>>>,
}

impl Observer for LoadWatch<'_> {
    fn event(&self, event: &RunEvent) {
        if let RunEvent::Progress { case, values, .. } = event {
            // Events are late, never early.
            let begin = Time(self.clock.now().0.saturating_sub(values.elapsed_ns));
            let mut begins = self.begins.lock().unwrap_or_else(PoisonError::into_inner);
            let length = begins.len().max(case + 1);
            begins.resize(length, None);
            let known = begins[*case].unwrap_or(Time::NEVER);
            begins[*case] = Some(known.min(begin));
        }
        self.observer.event(event);
    }
}

/// The path of a case with its load from one time to another.
fn path_under_load(
    plan: &PathPlan,
    trace: &Trace,
    idle_end: Time,
    load: Option<(Time, Time)>,
    case: &CaseResult,
) -> PathResult {
    let all = samples_on_path(&trace.samples, &trace.ends);
    let is_idle = |sample: &&HopSample| sample.sent < idle_end;
    let is_loaded =
        |sample: &&HopSample| load.is_some_and(|(from, to)| sample.sent >= from && sample.sent < to);
    let idle: Vec<HopSample> = all.iter().filter(is_idle).copied().collect();
    let loaded: Vec<HopSample> = all.iter().filter(is_loaded).copied().collect();
    let count = hop_count(&all, &trace.ends);
    let mut path = path_of(trace, plan, &idle, count);
    let of_hop = |samples: &[HopSample], hop: u8| -> Vec<f64> {
        let of_hop = samples.iter().filter(|sample| sample.hop == hop);
        of_hop.filter_map(HopSample::round_trip).map(|time| time.as_nanos() as f64).collect()
    };
    let phases: Vec<HopPhases> = (1..=count)
        .map(|hop| HopPhases { hop, idle: of_hop(&idle, hop), loaded: of_hop(&loaded, hop) })
        .collect();
    let is_behind_host = path.end == PathEnd::Reached && phases.last().is_some_and(HopPhases::is_usable);
    let added = case.figures.added_latency.and_then(|added| added.added_p50_ns);
    let session = added.map(|added| SessionGrowth { added, is_behind_host });
    let located = locate_queue(&phases, session);
    let mut counts = Vec::new();
    for (hop, phases) in path.hops.iter_mut().zip(&phases) {
        let of_hop = || loaded.iter().filter(|sample| sample.hop == hop.hop);
        let count = HopCount::of(of_hop());
        counts.push(count);
        let growth = growth_at(&located.growths, hop.hop);
        let added = || Some(median(&phases.loaded)? - median(&phases.idle)?);
        hop.loaded = Some(LoadedHop {
            sent: count.sent,
            answered: count.answered,
            latency_ns: times_of(of_hop()),
            added_ns: growth.map(|growth| growth.added).or_else(added),
            lasting_ns: growth.map(|growth| growth.lasting),
        });
    }
    path.loss = plan.loss_in(&counts);
    path.queue = Some(located.queue);
    path
}
