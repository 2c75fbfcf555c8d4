//! `echo`: the server returns the bytes that it receives. RFC 862 over TCP and UDP, a loopback plug, and similar.
//!
//! Latency is the round trip. Throughput runs in a loop: out on one half of the link and back on the other.

use std::sync::Arc;
use std::time::Duration;

use super::case::RECONNECT;
use super::{
    CaseDraft, CaseError, ClientSession, ConnectContext, Flow, FlowsOnlySession, Protocol, ProtocolError,
    ReadyCase, Service, open_flows,
};
use crate::link::party::{Party, Tuning};
use crate::link::{Admission, Caps, Framing, LinkError};
use crate::workload::latency::{EchoCodec, Pinger, Reflector};
use crate::workload::responsiveness::ConnectionParties;
use crate::workload::throughput::{LoopbackState, Sink, Source};
use crate::workload::{FlowRole, TrafficKind};
use linkgauge_model::plan::Direction;

pub(crate) const PROTOCOL: Protocol = Protocol {
    name: "echo",
    summary: "returns what it receives (RFC 862, a loopback plug)",
    default_ports: &[("tcp", 7), ("udp", 7)],
    traffic: &[
        (TrafficKind::RoundTrips, &[Direction::Loop]),
        (TrafficKind::Load, &[Direction::Loop]),
        (TrafficKind::ProbedLoad, &[Direction::Loop]),
    ],
    options: &[RECONNECT],
    sizes: &[],
    is_measured_whole: false,
    shorthand: None,
    original_server: None,
    prepare_case,
    connect,
    serve: Some(|facts| Arc::new(EchoService { idle_timeout: Duration::from_secs(facts.limits.idle_s) })),
};

fn prepare_case(case: &mut CaseDraft, caps: &Caps) -> Result<(), CaseError> {
    case.read_reconnect_option(caps)?;
    if case.workload.traffic != TrafficKind::ProbedLoad {
        return Ok(());
    }
    if !caps.can_open_parallel {
        case.parallel = 1;
    }
    case.check_probed_load(caps)
}

fn connect(case: &ReadyCase, context: &ConnectContext) -> Result<Box<dyn ClientSession>, ProtocolError> {
    let mut probed =
        ConnectionParties::new(&case.load, case.parallel, case.idle.before, case.probe_per_second);
    let flows = open_flows(case, context, |load, port, link, flows| {
        let caps = link.caps().clone();
        if case.workload.is_round_trip() {
            let codec = Box::new(EchoCodec::new(load, &caps));
            let party = Pinger::new(codec, load, &caps, (context.new_recorder)(FlowRole::RoundTrip, port));
            flows.push(Flow {
                role: FlowRole::RoundTrip,
                endpoint_index: port,
                link,
                party: Box::new(party),
            });
            return Ok(());
        }
        let back = link.second_handle().map_err(|fault| LinkError::new(&case.endpoints[port], fault))?;
        if case.is_probed_load() {
            let recorders =
                [FlowRole::Upload, FlowRole::RoundTrip].map(|role| (context.new_recorder)(role, port));
            let [load, probes] = probed.looped(&caps, recorders);
            flows.push(Flow { role: FlowRole::RoundTrip, endpoint_index: port, link: back, party: probes });
            flows.push(Flow { role: FlowRole::Upload, endpoint_index: port, link, party: load });
            return Ok(());
        }
        let looped = Arc::new(LoopbackState::default());
        let sink = Sink::new(load, &caps, (context.new_recorder)(FlowRole::Download, port))
            .looped(&caps, looped.clone());
        let source = Source::new(load, &caps, (context.new_recorder)(FlowRole::Upload, port))
            .looped(load, &caps, looped);
        flows.push(Flow {
            role: FlowRole::Download,
            endpoint_index: port,
            link: back,
            party: Box::new(sink),
        });
        flows.push(Flow { role: FlowRole::Upload, endpoint_index: port, link, party: Box::new(source) });
        Ok(())
    })?;
    Ok(FlowsOnlySession::boxed(flows))
}

/// Largest chunk returned at once, in bytes.
pub(crate) const MAX_ECHO_BYTES: usize = 65_536;

struct EchoService {
    idle_timeout: Duration,
}

impl Service for EchoService {
    fn connection_bytes(&self, caps: &Caps) -> usize {
        receive_bytes(caps)
    }

    fn new_party(&self, caps: &Caps, _from: &str) -> Box<dyn Party> {
        Box::new(new_reflector(caps, Tuning::default(), self.idle_timeout))
    }

    fn admit_sender(&self, first: &[u8], _from: &str, reply: &mut Vec<u8>) -> Admission {
        reply.extend_from_slice(first);
        Admission::Reply
    }
}

/// Size of one receive of an echo in bytes, which is most of its memory.
pub(crate) fn receive_bytes(caps: &Caps) -> usize {
    match caps.framing {
        Framing::Stream => MAX_ECHO_BYTES,
        Framing::Message => caps.max_message_bytes.unwrap_or(MAX_ECHO_BYTES),
    }
}

/// Creates the server side of an echo on a link with these capabilities.
pub(crate) fn new_reflector(caps: &Caps, tuning: Tuning, idle: Duration) -> Reflector {
    Reflector::new(caps.framing, receive_bytes(caps), tuning, idle)
}
