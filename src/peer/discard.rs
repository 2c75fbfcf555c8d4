//! `discard`: the far end reads and drops (RFC 863). It reports nothing, so what counts as delivered is what the
//! near system says the far system has acknowledged.

use std::sync::Arc;
use std::time::Duration;

use super::{Flow, Near, Peer, PeerError, Service, Session, flows};
use crate::clock::{Clock, Time};
use crate::endpoint::Endpoint;
use crate::link::party::{Party, Step, Tuning};
use crate::link::{Batch, Caps, Fault, Framing, Link};
use crate::plan::{Case, Direction};
use crate::workload::throughput::Source;
use crate::workload::{FarFlow, FarReport, Flowed, Role};

pub const PEER: Peer = Peer {
    name: "discard",
    summary: "reads and drops (RFC 863); delivery is counted by acknowledged bytes",
    default_ports: &[("tcp", 9), ("udp", 9)],
    workloads: &[("throughput", &[Direction::Send])],
    options: &[],
    sizes: &[],
    fit,
    connect,
    serve: Some(|_| Arc::new(DiscardService)),
};

fn fit(case: &mut Case, caps: &Caps) -> Result<(), String> {
    match caps.framing {
        Framing::Stream => Ok(()),
        Framing::Message => Err(format!(
            "{}: nobody counts what a discard over datagrams gets: use --peer linkgauge or echo, or a stream",
            case.endpoints[0]
        )),
    }
}

fn connect(case: &Case, near: &Near) -> Result<Box<dyn Session>, PeerError> {
    let tuning = Tuning { wait: case.wait, cpu: case.pin.near, batches_of: None };
    let flows = flows(case, near, |port, link, flows| {
        let caps = link.caps().clone();
        let party = Source::new(case, &caps, tuning, (near.recorder)(Role::Outward, port));
        flows.push(Flow { role: Role::Outward, port, link, party: Box::new(party) });
        Ok(())
    })?;
    Ok(Box::new(DiscardSession {
        flows,
        clock: near.dialer.clock.clone(),
        timeout: case.timeout,
        message_bytes: u64::from(case.message_bytes).max(1),
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

/// How often the send queue is looked at while it drains.
const LOOK: Duration = Duration::from_micros(200);

impl Session for DiscardSession {
    fn flows(&mut self) -> Vec<Flow> {
        std::mem::take(&mut self.flows)
    }

    fn finish(
        &mut self,
        flows: &[Flowed],
        links: Vec<Box<dyn Link>>,
    ) -> Result<Option<FarReport>, PeerError> {
        let links: Vec<_> = flows.iter().zip(links.iter().map(AsRef::as_ref)).collect();
        let mut flows = acknowledged(&links, self.message_bytes, &self.clock, self.timeout);
        for flow in &mut flows {
            flow.fault = flow.fault.take().map(|fault| format!("{}: {fault}", self.endpoints[flow.port]));
        }
        Ok(Some(FarReport { flows, ..FarReport::default() }))
    }
}

/// A link that is to drain.
#[derive(Clone, Copy)]
struct Draining {
    /// Bytes that the remote system has not acknowledged.
    left: u64,
    /// When that became fewer for the last time.
    since: Time,
    /// Nothing more is expected of it.
    over: bool,
}

impl Draining {
    fn look(&mut self, flowed: &Flowed, link: &dyn Link, now: Time, gives_up: Time, timeout: Duration) {
        if self.over {
            return;
        }
        if link.is_broken() {
            // What it still held is forgotten there, so the last count stands.
            self.over = true;
            return;
        }
        let left = link.unacknowledged().unwrap_or(0);
        if left < self.left {
            (self.left, self.since) = (left, now);
        }
        self.over = left == 0 || flowed.fault.is_some() || now >= gives_up || now >= self.since + timeout;
    }

    /// Why it does not count as delivered in whole.
    fn fault(&self, flowed: &Flowed, timeout: Duration) -> Option<String> {
        (self.left > 0 && flowed.fault.is_none()).then(|| {
            format!(
                "{} of {} bytes were not acknowledged within {timeout:?}: does the server still read? Check --timeout, too",
                self.left, flowed.recorder.counts.bytes
            )
        })
    }
}

/// What the remote system has acknowledged of what these flows sent, once their links have drained, or none of it moves for
/// the time-out; messages have `message_bytes`, at least 1. Draining takes no longer than sending and the time-out.
pub(super) fn acknowledged(
    sent: &[(&Flowed, &dyn Link)],
    message_bytes: u64,
    clock: &Clock,
    timeout: Duration,
) -> Vec<FarFlow> {
    let began = clock.now();
    let sending_ns = sent.iter().map(|(flowed, _)| flowed.recorder.elapsed_ns()).max().unwrap_or(0);
    let gives_up = began + timeout + Duration::from_nanos(sending_ns);
    // All are looked at in turn, so that none is timed while it waits for another to drain.
    let all = |(flowed, _): &(&Flowed, &dyn Link)| Draining {
        left: flowed.recorder.counts.bytes,
        since: began,
        over: false,
    };
    let mut draining: Vec<Draining> = sent.iter().map(all).collect();
    loop {
        let now = clock.now();
        for (draining, (flowed, link)) in draining.iter_mut().zip(sent) {
            draining.look(flowed, *link, now, gives_up, timeout);
        }
        if draining.iter().all(|draining| draining.over) {
            break;
        }
        clock.sleep_until(now + LOOK);
    }
    let of_one = |((flowed, _), draining): (&(&Flowed, &dyn Link), Draining)| {
        let (counts, first) = (&flowed.recorder.counts, flowed.recorder.first.unwrap_or(draining.since));
        let bytes = counts.bytes.saturating_sub(draining.left);
        FarFlow {
            port: flowed.port,
            bytes,
            messages: if draining.left == 0 { counts.sent } else { counts.sent.min(bytes / message_bytes) },
            // No bytes took no time, which gives no rate.
            elapsed_ns: if bytes > 0 { draining.since.since(first).as_nanos() as u64 } else { 0 },
            fault: draining.fault(flowed, timeout),
            ..FarFlow::default()
        }
    };
    sent.iter().zip(draining).map(of_one).collect()
}

struct DiscardService;

impl Service for DiscardService {
    fn party(&self, caps: &Caps, _from: &str) -> Box<dyn Party> {
        Box::new(Dropper { batch: Batch::new(caps.max_message.unwrap_or(256 * 1024), 1), over: false })
    }
}

/// Reads and forgets.
struct Dropper {
    batch: Batch,
    over: bool,
}

impl Party for Dropper {
    fn next(&mut self, _now: Time) -> Step<'_> {
        if self.over {
            return Step::Done;
        }
        Step::Receive { into: &mut self.batch, until: Time::NEVER }
    }

    fn sent(&mut self, _bytes: usize, _at: Time) {}

    fn received(&mut self, _now: Time) {}

    fn timed_out(&mut self, _now: Time) {}

    fn closed(&mut self, _now: Time) -> Result<(), Fault> {
        self.over = true;
        Ok(())
    }
}
