//! The party of a flow at the server, and the memory that it takes.

use std::time::Duration;

use crate::link::counters::ConnectionLog;
use crate::link::party::Party;
use crate::link::{Batch, Caps, Framing};
use crate::protocol::linkgauge::wire::{FlowKind, ServerPlan};
use crate::protocol::{ServerLimits, echo};
use crate::workload::capacity::{CapacityReceiver, CapacitySender, Side};
use crate::workload::latency::{Reflector, STAMPED_BYTES, StampingReflector};
use crate::workload::responsiveness::{ProbedReceiver, ProbedSender};
use crate::workload::throughput::{Sink, Source};
use crate::workload::{Load, MAX_REPORTED_INTERVALS, RecordingParty};
use linkgauge_model::plan::{Pacing, WaitMode};
use linkgauge_model::run::MAX_OBSERVED_CONNECTIONS;
use linkgauge_model::sample::{Recorder, TimeSeries};

/// Largest chunk that each of many flows returns at once. A flow whose client does not read keeps one.
const MANY_ECHO_BYTES: usize = 4096;

/// The state of a flow beside the messages of its party: its place in the session, the party, its counts, its report.
const FLOW_STATE_BYTES: usize = 4096;

/// Bytes of memory that all flows of a plan take at most on links like this one.
pub(crate) fn plan_memory_bytes(plan: &ServerPlan, caps: &Caps) -> u64 {
    let (own, shared) = plan.flows.iter().fold((0u64, 0), |(own, shared), kind| {
        let (more, common) = flow_memory_bytes(*kind, plan, caps);
        (own.saturating_add(more as u64), shared.max(common))
    });
    let observed = if plan.evidence { plan.flows.len().min(MAX_OBSERVED_CONNECTIONS) } else { 0 };
    own.saturating_add((shared + observed * ConnectionLog::MAX_BYTES) as u64)
}

/// Bytes of one flow: its own, and those that all flows of its kind share.
pub(crate) fn flow_memory_bytes(kind: FlowKind, plan: &ServerPlan, caps: &Caps) -> (usize, usize) {
    let load = flow_load(kind, plan, FlowGrant { per_second: None, wait: plan.wait });
    let of_party = match kind {
        FlowKind::Reflect if is_lent(&load, caps) => (MANY_ECHO_BYTES, 0),
        FlowKind::Reflect => (echo::receive_bytes(caps), 0),
        FlowKind::ReflectStamped | FlowKind::ReflectStaged => {
            (StampingReflector::receive_bytes(caps, &load), 0)
        }
        FlowKind::Receive => (Sink::memory_bytes(&load, caps), 0),
        FlowKind::Send => Source::memory_bytes(&load, caps),
        FlowKind::ProbedReceive => (ProbedReceiver::MEMORY_BYTES, 0),
        FlowKind::ProbedSend => (ProbedSender::memory_bytes(&load), 0),
        FlowKind::CapacityReceive => (CapacityReceiver::memory_bytes(&load), 0),
        FlowKind::CapacitySend => (CapacitySender::memory_bytes(&load), 0),
    };
    let series = plan.series_interval().map_or(0, |_| TimeSeries::bytes_of(MAX_REPORTED_INTERVALS));
    (of_party.0.saturating_add(FLOW_STATE_BYTES + 2 * series), of_party.1)
}

/// Whether a reflector receives into memory of its thread.
fn is_lent(load: &Load, caps: &Caps) -> bool {
    load.is_one_of_many() && caps.framing == Framing::Stream
}

pub(crate) enum FlowParty {
    Reflect(Reflector),
    ReflectStamped(StampingReflector),
    Receive(Box<Sink>),
    Send(Box<Source>),
    ProbedReceive(Box<ProbedReceiver>),
    ProbedSend(Box<ProbedSender>),
    CapacityReceive(Box<CapacityReceiver>),
    CapacitySend(Box<CapacitySender>),
}

/// Message rate and wait mode that the server grants to a flow.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FlowGrant {
    /// Message rate, if the server limits it.
    pub(crate) per_second: Option<f64>,
    pub(crate) wait: WaitMode,
}

impl FlowParty {
    pub fn new(
        kind: FlowKind,
        plan: &ServerPlan,
        grant: FlowGrant,
        caps: &Caps,
        limits: &ServerLimits,
    ) -> FlowParty {
        let load = flow_load(kind, plan, grant);
        let recorder = plan.series_interval().map_or_else(Recorder::for_counting, |interval| {
            Recorder::for_counting_in(interval, MAX_REPORTED_INTERVALS)
        });
        match kind {
            FlowKind::Reflect => {
                let idle = Duration::from_secs(limits.idle_s);
                FlowParty::Reflect(match is_lent(&load, caps) {
                    true => {
                        Reflector::new(caps.framing, MANY_ECHO_BYTES, load.tuning(), idle).with_lent_memory()
                    }
                    false => echo::new_reflector(caps, load.tuning(), idle),
                })
            }
            FlowKind::ReflectStamped | FlowKind::ReflectStaged => {
                let idle = Duration::from_secs(limits.idle_s);
                let message_bytes =
                    if is_probe(kind, plan) { STAMPED_BYTES } else { plan.message_bytes as usize };
                FlowParty::ReflectStamped(StampingReflector::new(caps, &load, message_bytes, idle))
            }
            FlowKind::Receive => {
                let sink = Sink::new(&load, caps, recorder);
                FlowParty::Receive(Box::new(if load.is_one_of_many() {
                    sink.with_lent_memory()
                } else {
                    sink
                }))
            }
            FlowKind::Send => FlowParty::Send(Box::new(Source::new(&load, caps, recorder))),
            FlowKind::ProbedReceive => {
                FlowParty::ProbedReceive(Box::new(ProbedReceiver::new(&load, recorder)))
            }
            FlowKind::ProbedSend => FlowParty::ProbedSend(Box::new(ProbedSender::new(&load, recorder))),
            FlowKind::CapacityReceive => {
                FlowParty::CapacityReceive(Box::new(CapacityReceiver::new(Side::Server, &load, recorder)))
            }
            FlowKind::CapacitySend => {
                FlowParty::CapacitySend(Box::new(CapacitySender::new(Side::Server, &load, caps, recorder)))
            }
        }
    }

    #[inline]
    pub(crate) fn as_party(&mut self) -> &mut dyn Party {
        match self {
            FlowParty::Reflect(party) => party,
            FlowParty::ReflectStamped(party) => party,
            FlowParty::Receive(party) => party.as_mut(),
            FlowParty::Send(party) => party.as_mut(),
            FlowParty::ProbedReceive(party) => party.as_mut(),
            FlowParty::ProbedSend(party) => party.as_mut(),
            FlowParty::CapacityReceive(party) => party.as_mut(),
            FlowParty::CapacitySend(party) => party.as_mut(),
        }
    }

    /// Bytes moved so far.
    #[inline]
    pub(crate) fn moved_bytes(&self) -> u64 {
        match self {
            FlowParty::Reflect(party) => party.returned_bytes(),
            FlowParty::ReflectStamped(party) => party.reflector().returned_bytes(),
            FlowParty::Receive(party) => party.position(),
            FlowParty::Send(party) => party.position(),
            FlowParty::ProbedReceive(party) => party.position(),
            FlowParty::ProbedSend(party) => party.position(),
            FlowParty::CapacityReceive(party) => party.position(),
            FlowParty::CapacitySend(party) => party.position(),
        }
    }

    /// The last received batch; empty on a flow that only sends.
    pub(crate) fn batch(&self) -> Option<&Batch> {
        match self {
            FlowParty::Reflect(party) => Some(party.batch()),
            FlowParty::ReflectStamped(party) => Some(party.reflector().batch()),
            FlowParty::Receive(party) => Some(party.batch()),
            FlowParty::Send(_) => None,
            FlowParty::ProbedReceive(party) => Some(party.batch()),
            FlowParty::ProbedSend(party) => Some(party.batch()),
            FlowParty::CapacityReceive(party) => Some(party.batch()),
            FlowParty::CapacitySend(party) => Some(party.batch()),
        }
    }

    pub(crate) fn recorder(&self) -> Option<&Recorder> {
        match self {
            FlowParty::Reflect(_) | FlowParty::ReflectStamped(_) => None,
            FlowParty::Receive(party) => Some(party.recorder()),
            FlowParty::Send(party) => Some(party.recorder()),
            FlowParty::ProbedReceive(party) => Some(party.recorder()),
            FlowParty::ProbedSend(party) => Some(party.recorder()),
            FlowParty::CapacityReceive(party) => Some(party.recorder()),
            FlowParty::CapacitySend(party) => Some(party.recorder()),
        }
    }

    pub(crate) fn is_receiver(&self) -> bool {
        matches!(self, FlowParty::Receive(_) | FlowParty::ProbedReceive(_))
    }

    /// Whether this receiver has not seen the end of its data.
    pub(crate) fn is_unfinished(&self) -> bool {
        match self {
            FlowParty::Receive(party) => !party.has_seen_end(),
            FlowParty::ProbedReceive(party) => !party.has_seen_end(),
            FlowParty::Reflect(_)
            | FlowParty::ReflectStamped(_)
            | FlowParty::Send(_)
            | FlowParty::ProbedSend(_)
            | FlowParty::CapacityReceive(_)
            | FlowParty::CapacitySend(_) => false,
        }
    }
}

/// Whether a flow is a probe beside loads: the loads of a plan come first.
fn is_probe(kind: FlowKind, plan: &ServerPlan) -> bool {
    kind.is_round_trip() && plan.flows.first() != Some(&kind)
}

/// The load of one flow of the plan.
fn flow_load(kind: FlowKind, plan: &ServerPlan, grant: FlowGrant) -> Load {
    Load {
        message_bytes: plan.message_bytes,
        pacing: grant.per_second.map_or(plan.pacing, |per_second| Pacing::Fixed { per_second }),
        stop: plan.stop,
        warm_up: plan.warm_up,
        timeout: Duration::from_nanos(plan.timeout_ns),
        wait: grant.wait,
        cpu: plan.cpu,
        socket: plan.socket,
        // The replies of a probe must not wait in a thread that serves the loads.
        flows: if is_probe(kind, plan) { 1 } else { plan.flows.len() as u32 },
        requests_per_connection: None,
        flow_index: 0,
        stamps: kind == FlowKind::ReflectStaged,
        skips_overdue: false,
    }
}
