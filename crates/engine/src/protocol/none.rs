//! `none`: no protocol. Connections are opened and closed, and nothing is sent on them, so any server will do.

use super::case::check_reconnects;
use super::{
    CaseDraft, CaseError, ClientSession, ConnectContext, Flow, FlowsOnlySession, Protocol, ProtocolError,
    ReadyCase, open_flows,
};
use crate::link::Caps;
use crate::workload::connect::Connector;
use crate::workload::{FlowRole, TrafficKind};
use linkgauge_model::plan::Direction;

pub(crate) const PROTOCOL: Protocol = Protocol {
    name: "none",
    summary: "accepts connections; nothing is sent on them",
    default_ports: &[],
    traffic: &[(TrafficKind::Connections, &[Direction::Loop])],
    options: &[],
    sizes: &[],
    is_measured_whole: false,
    shorthand: None,
    original_server: None,
    prepare_case,
    connect,
    serve: None,
};

fn prepare_case(case: &mut CaseDraft, caps: &Caps) -> Result<(), CaseError> {
    check_reconnects(&case.endpoints[0], caps)
}

fn connect(case: &ReadyCase, context: &ConnectContext) -> Result<Box<dyn ClientSession>, ProtocolError> {
    let flows = open_flows(case, context, |load, port, link, flows| {
        let recorder = (context.new_recorder)(FlowRole::RoundTrip, port);
        let party = Box::new(Connector::new(load, recorder));
        flows.push(Flow { role: FlowRole::RoundTrip, endpoint_index: port, link, party });
        Ok(())
    })?;
    Ok(FlowsOnlySession::boxed(flows))
}
