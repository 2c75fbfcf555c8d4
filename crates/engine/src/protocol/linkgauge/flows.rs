//! The flows of a session: which ones a case needs, and the client's party on each.

use std::time::Duration;

use super::one_way;
use super::wire::FlowKind;
use crate::link::party::{Party, PartyCost, Step};
use crate::link::{Caps, Fault, Link, LinkError};
use crate::protocol::{ConnectContext, Flow, ProtocolError, ReadyCase};
use crate::workload::capacity::{CapacityReceiver, CapacitySender, Side};
use crate::workload::latency::{EchoCodec, Pinger, STAMPED_BYTES, StampedEchoCodec};
use crate::workload::responsiveness::ConnectionParties;
use crate::workload::throughput::{Sink, Source};
use crate::workload::{FlowRole, Load, RecordingParty};
use linkgauge_model::clock::Time;
use linkgauge_model::plan::{Direction, Pacing, WaitMode};
use linkgauge_model::sample::{CommonTime, Recorder};

/// Bytes of a probe: enough for a number, small compared to any load.
const PROBE_BYTES: u32 = 14;

/// The flows of one endpoint: the kind for the server and the role for the client.
pub(crate) fn flow_kinds(case: &ReadyCase, caps: &Caps) -> Vec<(FlowKind, FlowRole)> {
    let one: &[(FlowKind, FlowRole)] = match case.direction {
        Direction::Receive if case.is_capacity_search() => &[(FlowKind::CapacitySend, FlowRole::Download)],
        _ if case.is_capacity_search() => &[(FlowKind::CapacityReceive, FlowRole::Upload)],
        Direction::Receive if case.is_probed_load() => &[(FlowKind::ProbedSend, FlowRole::Download)],
        _ if case.is_probed_load() => &[(FlowKind::ProbedReceive, FlowRole::Upload)],
        Direction::Loop => &[(FlowKind::Reflect, FlowRole::RoundTrip)],
        Direction::Receive => &[(FlowKind::Send, FlowRole::Download)],
        Direction::Both => &[(FlowKind::Receive, FlowRole::Upload), (FlowKind::Send, FlowRole::Download)],
        Direction::Send => &[(FlowKind::Receive, FlowRole::Upload)],
    };
    let mut kinds = one.repeat(case.parallel as usize);
    if !case.workload.is_round_trip() && case.probe_per_second.is_some() && caps.can_open_parallel {
        kinds.push((FlowKind::Reflect, FlowRole::Probe));
    }
    if case.load.stamps && case.workload.is_round_trip() {
        kinds.iter_mut().for_each(|(kind, _)| *kind = FlowKind::ReflectStaged);
    } else if has_stamps(case) {
        let reflecting = kinds.iter_mut().filter(|(kind, _)| kind.is_round_trip());
        reflecting.for_each(|(kind, _)| *kind = FlowKind::ReflectStamped);
    }
    kinds
}

/// Whether the server writes its times into round trips.
fn has_stamps(case: &ReadyCase) -> bool {
    // The option was checked when the case was prepared.
    one_way::is_requested(&case.options).unwrap_or(false)
}

/// Makes the flows of one endpoint.
pub(crate) struct FlowMaker<'a> {
    case: &'a ReadyCase,
    /// The load that the server granted.
    load: Load,
    context: &'a ConnectContext<'a>,
    endpoint_index: usize,
    /// Flows made so far.
    made: u32,
    /// Parties of a load that carries probes.
    probed: Option<ConnectionParties>,
    /// Common time of both hosts, if they follow one.
    pub(crate) common_time: Option<CommonTime>,
}

impl<'a> FlowMaker<'a> {
    /// Creates the maker for the endpoint with this index.
    pub fn new(
        case: &'a ReadyCase,
        load: Load,
        context: &'a ConnectContext<'a>,
        endpoint_index: usize,
    ) -> FlowMaker<'a> {
        // The probe beside the load measures the idle link.
        let probed = case
            .is_probed_load()
            .then(|| ConnectionParties::new(&load, case.parallel, Duration::ZERO, case.probe_per_second));
        FlowMaker { case, load, context, endpoint_index, made: 0, probed, common_time: None }
    }

    /// Adds the flow on this link; `sign` is the keepalive message for links without connections.
    pub fn add(
        &mut self,
        role: FlowRole,
        link: Box<dyn Link>,
        sign: Option<Vec<u8>>,
        flows: &mut Vec<Flow>,
    ) -> Result<(), ProtocolError> {
        let endpoint_index = self.endpoint_index;
        let new_recorder = |role| (self.context.new_recorder)(role, endpoint_index);
        let mut recorder = new_recorder(role);
        if let (Some(probed), FlowRole::Upload | FlowRole::Download) = (&mut self.probed, role) {
            let other_half = link
                .second_handle()
                .map_err(|fault| LinkError::new(&self.case.endpoints[endpoint_index], fault))?;
            let recorders = [recorder, new_recorder(FlowRole::RoundTrip)];
            let [load, probes] = match role {
                FlowRole::Upload => probed.upload(recorders),
                _ => probed.download(recorders),
            };
            flows.push(Flow { role, endpoint_index, link, party: load });
            flows.push(Flow { role: FlowRole::RoundTrip, endpoint_index, link: other_half, party: probes });
            return Ok(());
        }
        let has_stamps = has_stamps(self.case);
        let load = match role {
            FlowRole::Probe if has_stamps => {
                let probe = probe_load(&self.load, self.case.probe_per_second);
                Load { message_bytes: STAMPED_BYTES as u32, ..probe }
            }
            FlowRole::Probe => probe_load(&self.load, self.case.probe_per_second),
            _ => self.load.of_flow(self.made),
        };
        self.made += 1;
        if let (Some(probed), FlowRole::Probe) = (&self.probed, role) {
            recorder.probe_log = Some(probed.foreign_probes());
        }
        let party: Box<dyn RecordingParty> = match role {
            FlowRole::RoundTrip | FlowRole::Probe if has_stamps || load.stamps => {
                let codec = StampedEchoCodec::new(&load, link.caps()).with_common_time(self.common_time);
                let codec = Box::new(codec);
                Box::new(Pinger::new(codec, &load, link.caps(), recorder))
            }
            FlowRole::Upload if self.case.is_capacity_search() => {
                Box::new(CapacitySender::new(Side::Client, &load, link.caps(), recorder))
            }
            FlowRole::Download if self.case.is_capacity_search() => {
                Box::new(CapacityReceiver::new(Side::Client, &load, recorder))
            }
            _ => new_party(&load, link.caps(), role, sign, recorder),
        };
        flows.push(Flow { role, endpoint_index, link, party });
        Ok(())
    }

    /// Adds a flow whose connection could not be attached. Its fault ends it, and the others continue.
    ///
    /// # Errors
    ///
    /// The fault, where the flows of a case need each other.
    pub(crate) fn add_failed(
        &mut self,
        role: FlowRole,
        link: Box<dyn Link>,
        fault: Fault,
        flows: &mut Vec<Flow>,
    ) -> Result<(), LinkError> {
        let endpoint_index = self.endpoint_index;
        if self.probed.is_some() || role == FlowRole::Probe {
            return Err(LinkError::new(&self.case.endpoints[endpoint_index], fault));
        }
        self.made += 1;
        let recorder = (self.context.new_recorder)(role, endpoint_index);
        let party = Box::new(UnattachedParty { fault: Some(fault), recorder });
        flows.push(Flow { role, endpoint_index, link, party });
        Ok(())
    }
}

/// The party on a connection that could not be attached.
struct UnattachedParty {
    fault: Option<Fault>,
    recorder: Recorder,
}

impl Party for UnattachedParty {
    fn next_step(&mut self, _now: Time) -> Step<'_> {
        self.fault.take().map_or(Step::Done, Step::Fail)
    }

    fn on_sent(&mut self, _bytes: usize, _at: Time) {}

    fn on_received(&mut self, _now: Time) {}

    fn on_timeout(&mut self, _now: Time) {}

    fn on_ended(&mut self, _cost: PartyCost) {
        self.recorder.finish();
    }
}

impl RecordingParty for UnattachedParty {
    fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    fn into_recorder(self: Box<Self>) -> Recorder {
        self.recorder
    }
}

/// The load of the latency probe beside another load. It continues until that load has ended.
fn probe_load(load: &Load, per_second: Option<f64>) -> Load {
    Load {
        pacing: Pacing::Fixed { per_second: per_second.unwrap_or(1.0) },
        timeout: load.timeout,
        cpu: load.cpu,
        // A probe sleeps; it must not take a CPU from the load.
        wait: WaitMode::Block,
        ..Load::endless(PROBE_BYTES)
    }
}

/// The client party of a flow; `sign` is the keepalive message for links without connections.
fn new_party(
    load: &Load,
    caps: &Caps,
    role: FlowRole,
    sign: Option<Vec<u8>>,
    recorder: Recorder,
) -> Box<dyn RecordingParty> {
    match role {
        FlowRole::Upload => Box::new(Source::new(load, caps, recorder)),
        FlowRole::Download => {
            let sink = Sink::new(load, caps, recorder);
            let sink = if load.is_one_of_many() { sink.with_lent_memory() } else { sink };
            Box::new(match sign {
                Some(sign) => sink.with_keepalive(sign),
                None => sink,
            })
        }
        // Control messages have a connection that is not a flow.
        FlowRole::RoundTrip | FlowRole::Probe | FlowRole::Control => {
            Box::new(Pinger::new(Box::new(EchoCodec::new(load, caps)), load, caps, recorder))
        }
    }
}
