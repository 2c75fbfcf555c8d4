//! `none`: no protocol. Connections are opened and closed, and nothing is sent on them, so any server will do.

use super::{
    CaseDraft, CaseError, ClientSession, ConnectContext, Flow, FlowsOnlySession, Protocol, ProtocolError,
    ReadyCase,
};
use crate::link::Caps;
use crate::link::redial::RedialedLink;
use crate::plan::Direction;
use crate::workload::connect::Connector;
use crate::workload::{FlowRole, TrafficKind};

pub const PROTOCOL: Protocol = Protocol {
    name: "none",
    summary: "accepts connections; nothing is sent on them",
    default_ports: &[],
    traffic: &[(TrafficKind::Connections, &[Direction::Loop])],
    options: &[],
    sizes: &[],
    is_measured_whole: false,
    prepare_case,
    connect,
    serve: None,
};

fn prepare_case(case: &mut CaseDraft, caps: &Caps) -> Result<(), CaseError> {
    let endpoint = &case.endpoints[0];
    match (caps.can_signal_close, caps.can_open_parallel && !caps.is_device) {
        (true, true) => Ok(()),
        _ => Err(CaseError::Link(format!(
            "{endpoint}: this link has no connections that could be opened again and again: use tcp, unix, sctp, vsock, tipc or linx"
        ))),
    }
}

fn connect(case: &ReadyCase, context: &ConnectContext) -> Result<Box<dyn ClientSession>, ProtocolError> {
    let mut flows = Vec::new();
    for (port, endpoint) in case.endpoints.iter().enumerate() {
        for index in 0..case.parallel {
            let link = Box::new(RedialedLink::open(endpoint, context.dialer)?);
            let recorder = (context.new_recorder)(FlowRole::RoundTrip, port);
            let party = Box::new(Connector::new(&case.load.of_flow(index), recorder));
            flows.push(Flow { role: FlowRole::RoundTrip, endpoint_index: port, link, party });
        }
    }
    Ok(FlowsOnlySession::boxed(flows))
}
