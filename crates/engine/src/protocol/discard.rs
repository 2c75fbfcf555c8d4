//! `discard`: the server reads and drops (RFC 863). It reports nothing, so the delivered bytes are those that the
//! remote system has acknowledged, as reported by the local system.

use std::sync::Arc;
use std::time::Duration;

use super::{
    CaseDraft, CaseError, ClientSession, ConnectContext, Flow, Protocol, ProtocolError, ReadyCase, Service,
    open_flows,
};
use crate::link::party::{Party, Step};
use crate::link::{Admission, Batch, Caps, Fault, Framing, Link};
use crate::workload::throughput::Source;
use crate::workload::{FlowReport, FlowResult, FlowRole, ServerReport, TrafficKind};
use linkgauge_model::clock::{Clock, Time};
use linkgauge_model::endpoint::Endpoint;
use linkgauge_model::plan::Direction;

pub(crate) const PROTOCOL: Protocol = Protocol {
    name: "discard",
    summary: "reads and drops (RFC 863); delivery is counted by acknowledged bytes",
    default_ports: &[("tcp", 9), ("udp", 9)],
    traffic: &[(TrafficKind::Load, &[Direction::Send])],
    options: &[],
    sizes: &[],
    is_measured_whole: false,
    shorthand: None,
    original_server: None,
    prepare_case,
    connect,
    serve: Some(|_| Arc::new(DiscardService)),
};

fn prepare_case(case: &mut CaseDraft, caps: &Caps) -> Result<(), CaseError> {
    match caps.framing {
        Framing::Stream => Ok(()),
        Framing::Message => Err(CaseError::Link(format!(
            "{}: discard does not count datagrams: use --protocol linkgauge or echo, or a stream",
            case.endpoints[0]
        ))),
    }
}

fn connect(case: &ReadyCase, context: &ConnectContext) -> Result<Box<dyn ClientSession>, ProtocolError> {
    let flows = open_flows(case, context, |load, port, link, flows| {
        let caps = link.caps().clone();
        let party = Source::new(load, &caps, (context.new_recorder)(FlowRole::Upload, port));
        flows.push(Flow { role: FlowRole::Upload, endpoint_index: port, link, party: Box::new(party) });
        Ok(())
    })?;
    Ok(Box::new(DiscardSession {
        flows,
        clock: context.dialer.clock.clone(),
        timeout: case.load.timeout,
        message_bytes: u64::from(case.load.message_bytes).max(1),
        endpoints: case.endpoints.clone(),
    }))
}

struct DiscardSession {
    flows: Vec<Flow>,
    clock: Clock,
    timeout: Duration,
    message_bytes: u64,
    endpoints: Vec<Endpoint>,
}

/// Interval between checks of the send queue while it drains.
const POLL_INTERVAL: Duration = Duration::from_micros(200);

impl ClientSession for DiscardSession {
    fn take_flows(&mut self) -> Vec<Flow> {
        std::mem::take(&mut self.flows)
    }

    fn finish(
        &mut self,
        flows: &[FlowResult],
        links: Vec<Box<dyn Link>>,
    ) -> Result<Option<ServerReport>, ProtocolError> {
        let links: Vec<_> = flows.iter().zip(links.iter().map(AsRef::as_ref)).collect();
        let mut flows = drain_and_report(&links, self.message_bytes, &self.clock, self.timeout);
        for flow in &mut flows {
            flow.fault = flow.fault.take().map(|fault| format!("{}: {fault}", self.endpoints[flow.port]));
        }
        Ok(Some(ServerReport { flows, ..ServerReport::default() }))
    }
}

/// State of a link that drains.
#[derive(Clone, Copy)]
struct DrainState {
    /// Bytes that the remote system has not acknowledged.
    unacknowledged_bytes: u64,
    /// Time of the last decrease of that number.
    last_progress: Time,
    /// Whether the link is fully acknowledged, or given up.
    is_finished: bool,
}

impl DrainState {
    fn update(&mut self, flowed: &FlowResult, link: &dyn Link, now: Time, gives_up: Time, timeout: Duration) {
        if self.is_finished {
            return;
        }
        let status = link.status();
        if status.is_broken {
            // The system no longer reports the queue, so the count of the end of the flow stands.
            if let Some(acknowledged) = flowed.acknowledged_bytes {
                let left = flowed.recorder.counts.delivered_bytes.saturating_sub(acknowledged);
                self.unacknowledged_bytes = self.unacknowledged_bytes.min(left);
                self.last_progress = flowed.recorder.last_instant.unwrap_or(self.last_progress);
            }
            self.is_finished = true;
            return;
        }
        let left = status.unacknowledged_bytes.unwrap_or(0);
        if left < self.unacknowledged_bytes {
            (self.unacknowledged_bytes, self.last_progress) = (left, now);
        }
        self.is_finished =
            left == 0 || flowed.fault.is_some() || now >= gives_up || now >= self.last_progress + timeout;
    }

    /// Reason for which the transfer does not count as delivered in full.
    fn fault(&self, flowed: &FlowResult, timeout: Duration) -> Option<String> {
        (self.unacknowledged_bytes > 0 && flowed.fault.is_none()).then(|| {
            format!(
                "{} of {} bytes were not acknowledged within {timeout:?}: check that the server still reads, and --timeout",
                self.unacknowledged_bytes, flowed.recorder.counts.delivered_bytes
            )
        })
    }
}

/// Reports the bytes that the remote system has acknowledged for these flows, once their links have drained or made no progress
/// for the timeout. `message_bytes` is at least 1. Draining takes at most the duration of the flow plus the timeout.
pub(super) fn drain_and_report(
    sent: &[(&FlowResult, &dyn Link)],
    message_bytes: u64,
    clock: &Clock,
    timeout: Duration,
) -> Vec<FlowReport> {
    let began = clock.now();
    let sending_ns = sent.iter().map(|(flowed, _)| flowed.recorder.elapsed_ns()).max().unwrap_or(0);
    let gives_up = began + timeout + Duration::from_nanos(sending_ns);
    // Poll all links in turn, so that waiting for one does not affect the time of another.
    let all = |(flowed, _): &(&FlowResult, &dyn Link)| DrainState {
        unacknowledged_bytes: flowed.recorder.counts.delivered_bytes,
        last_progress: began,
        is_finished: false,
    };
    let mut draining: Vec<DrainState> = sent.iter().map(all).collect();
    loop {
        let now = clock.now();
        for (draining, (flowed, link)) in draining.iter_mut().zip(sent) {
            draining.update(flowed, *link, now, gives_up, timeout);
        }
        if draining.iter().all(|draining| draining.is_finished) {
            break;
        }
        clock.sleep_until(now + POLL_INTERVAL);
    }
    let of_one = |((flowed, _), draining): (&(&FlowResult, &dyn Link), DrainState)| {
        let (counts, first) =
            (&flowed.recorder.counts, flowed.recorder.first_instant.unwrap_or(draining.last_progress));
        let bytes = counts.delivered_bytes.saturating_sub(draining.unacknowledged_bytes);
        FlowReport {
            port: flowed.endpoint_index,
            bytes,
            messages: if draining.unacknowledged_bytes == 0 {
                counts.sent
            } else {
                counts.sent.min(bytes / message_bytes)
            },
            // Zero bytes take no time and give no rate.
            elapsed_ns: if bytes > 0 { draining.last_progress.since(first).as_nanos() as u64 } else { 0 },
            fault: draining.fault(flowed, timeout),
            ..FlowReport::default()
        }
    };
    sent.iter().zip(draining).map(of_one).collect()
}

struct DiscardService;

/// Size of one receive of a stream, in bytes.
const RECEIVE_BYTES: usize = 256 * 1024;

impl Service for DiscardService {
    fn connection_bytes(&self, caps: &Caps) -> usize {
        caps.max_message_bytes.unwrap_or(0)
    }

    fn new_party(&self, caps: &Caps, _from: &str) -> Box<dyn Party> {
        // What is dropped at once needs no memory of its own.
        let batch =
            caps.max_message_bytes.map_or_else(|| Batch::lent(RECEIVE_BYTES), |most| Batch::new(most, 1));
        Box::new(DiscardParty { batch, is_finished: false })
    }

    fn admit_sender(&self, _first: &[u8], _from: &str, _reply: &mut Vec<u8>) -> Admission {
        Admission::Ignore
    }
}

/// Party that reads and drops.
struct DiscardParty {
    batch: Batch,
    is_finished: bool,
}

impl Party for DiscardParty {
    fn next_step(&mut self, _now: Time) -> Step<'_> {
        if self.is_finished {
            return Step::Done;
        }
        Step::Receive { into: &mut self.batch, until: Time::NEVER }
    }

    fn on_sent(&mut self, _bytes: usize, _at: Time) {}

    fn on_received(&mut self, _now: Time) {
        self.batch.return_memory();
    }

    fn on_timeout(&mut self, _now: Time) {}

    fn on_closed(&mut self, _now: Time) -> Result<(), Fault> {
        self.is_finished = true;
        Ok(())
    }
}
