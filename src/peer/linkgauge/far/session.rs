//! The sessions of a server: who has one, what was planned in it, what became of its flows.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::host::cpu;
use crate::link::Caps;
use crate::peer::linkgauge::wire::{self, FarPlan, FlowKind};
use crate::peer::{Limits, ServerFacts};
use crate::plan::Pacing;
use crate::workload::{FarFlow, FarReport};

/// All sessions of a server.
pub struct Registry {
    pub facts: Arc<ServerFacts>,
    pub sessions: Mutex<HashMap<u64, Arc<FarSession>>>,
    pub opened: AtomicU64,
}

impl Registry {
    pub fn new(facts: &Arc<ServerFacts>) -> Registry {
        Registry { facts: facts.clone(), sessions: Mutex::default(), opened: AtomicU64::default() }
    }

    pub fn sessions(&self) -> MutexGuard<'_, HashMap<u64, Arc<FarSession>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn session(&self, id: u64) -> Option<Arc<FarSession>> {
        self.sessions().get(&id).cloned()
    }

    pub fn open(&self) -> Result<Arc<FarSession>, String> {
        let mut sessions = self.sessions();
        let most = self.facts.limits.sessions;
        if sessions.len() >= most as usize {
            return Err(format!("it has {most} sessions open, its limit; try again later"));
        }
        let (id, key) = wire::session(&self.facts.secret, self.opened.fetch_add(1, Relaxed));
        let session = Arc::new(FarSession {
            id,
            key,
            plan: Mutex::default(),
            started: AtomicBool::new(false),
            finishing: AtomicBool::new(false),
        });
        sessions.insert(session.id, session.clone());
        Ok(session)
    }
}

/// What the connections of one session share.
pub struct FarSession {
    pub id: u64,
    pub key: [u8; 16],
    pub plan: Mutex<Option<Planned>>,
    pub started: AtomicBool,
    pub finishing: AtomicBool,
}

pub struct Planned {
    pub plan: FarPlan,
    pub flows: Vec<FlowState>,
}

pub enum FlowState {
    Expected,
    Running,
    Ended(FarFlow, f64),
}

impl FarSession {
    pub fn plan(&self) -> MutexGuard<'_, Option<Planned>> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the place of a flow, once; what it has to do.
    pub fn take(&self, flow: u32) -> Option<(FlowKind, FarPlan)> {
        let mut plan = self.plan();
        let planned = plan.as_mut()?;
        let state = planned.flows.get_mut(flow as usize)?;
        if !matches!(state, FlowState::Expected) {
            return None;
        }
        *state = FlowState::Running;
        Some((planned.plan.flows[flow as usize], planned.plan.clone()))
    }

    pub fn has_running(&self) -> bool {
        self.plan().as_ref().is_some_and(|p| p.flows.iter().any(|flow| matches!(flow, FlowState::Running)))
    }

    /// The report, once every flow that was attached has ended.
    pub fn report(&self) -> Option<FarReport> {
        if self.has_running() {
            return None;
        }
        let mut report = FarReport { cpu_seconds: Some(0.0), ..FarReport::default() };
        for state in &self.plan().as_ref()?.flows {
            let (flow, seconds) = match state {
                FlowState::Ended(flow, seconds) => (flow.clone(), *seconds),
                _ => (FarFlow::default(), 0.0),
            };
            report.flows.push(flow);
            report.cpu_seconds = report.cpu_seconds.map(|sum| sum + seconds);
        }
        Some(report)
    }
}

/// Checks a plan against the limits; the message rate granted to each flow where the server limits it.
pub fn granted(plan: &FarPlan, limits: &Limits, caps: &Caps) -> Result<Option<f64>, String> {
    if plan.flows.len() > limits.flows as usize {
        return Err(format!("{} connections are too many, its limit is {}", plan.flows.len(), limits.flows));
    }
    if plan.message_bytes == 0 || plan.message_bytes > limits.message_bytes {
        return Err(format!(
            "messages of {} bytes: its limit is {}",
            plan.message_bytes, limits.message_bytes
        ));
    }
    if let Some(most) = caps.max_message.filter(|most| plan.message_bytes as usize > *most) {
        return Err(format!("messages of {} bytes: the link bears {most}", plan.message_bytes));
    }
    if planned_time(plan).is_some_and(|time| time > Duration::from_secs(limits.duration_s)) {
        return Err(format!("that takes too long, its limit is {} s", limits.duration_s));
    }
    if let Some(cpu) = plan.cpu.filter(|cpu| !cpu::current_affinity().contains(cpu)) {
        return Err(format!("it has no CPU {cpu}: choose another for the far end in --pin"));
    }
    if let Pacing::Fixed { per_second } | Pacing::Poisson { per_second, .. } = plan.pacing
        && !(per_second.is_finite() && per_second > 0.0)
    {
        return Err("a rate must be above zero".to_owned());
    }
    let bits = 8.0 * f64::from(plan.message_bytes) * f64::from(sharing(plan));
    let most = limits.bit_rate.map(|rate| rate / bits);
    let asked = match plan.pacing {
        Pacing::Closed => None,
        Pacing::Fixed { per_second } | Pacing::Poisson { per_second, .. } => Some(per_second),
    };
    Ok(most.filter(|most| asked.is_none_or(|asked| asked > *most)))
}

/// How many flows share the rate: the loads, or all where there is no load. A probe beside a load is too small to count.
pub fn sharing(plan: &FarPlan) -> u32 {
    let loads = plan.flows.iter().filter(|kind| **kind != FlowKind::Reflect).count();
    (if loads > 0 { loads } else { plan.flows.len() }).max(1) as u32
}

/// Warm-up and measurement, where the plan says how long they are.
pub fn planned_time(plan: &FarPlan) -> Option<Duration> {
    let time = plan.stop.time_ns?.saturating_add(plan.warm_up.time_ns.unwrap_or(0));
    Some(Duration::from_nanos(time))
}
