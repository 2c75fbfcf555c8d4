//! `discard`: the far end reads and drops (RFC 863). It reports nothing, so what counts as delivered is what the
//! near system says the far system has acknowledged.

use std::sync::Arc;
use std::time::Duration;

use super::{Flow, Near, Peer, PeerError, ServerFacts, Service, Session, flows};
use crate::clock::{Clock, Time};
use crate::link::party::{Party, Step, Tuning};
use crate::link::{Admission, Batch, Caps, Fault, Framing, Link};
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
    serve: Some(|facts: &Arc<ServerFacts>| {
        Arc::new(DiscardService { idle: Duration::from_secs(facts.limits.idle_s) })
    }),
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
    }))
}

struct DiscardSession {
    flows: Vec<Flow>,
    clock: Clock,
    timeout: Duration,
    message_bytes: u64,
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
        let flows = acknowledged(&links, self.message_bytes, &self.clock, self.timeout);
        Ok(Some(FarReport { flows, cpu_seconds: None }))
    }
}

/// What the far system has acknowledged of what these flows sent, once their links have drained or the time is over;
/// messages have `message_bytes`, at least 1.
pub(super) fn acknowledged(
    sent: &[(&Flowed, &dyn Link)],
    message_bytes: u64,
    clock: &Clock,
    timeout: Duration,
) -> Vec<FarFlow> {
    let until = clock.now() + timeout;
    // All are looked at in turn, so that none is timed while it waits for another to drain.
    let mut drained: Vec<Option<(u64, Time)>> = vec![None; sent.len()];
    loop {
        let now = clock.now();
        for (drained, (flowed, link)) in drained.iter_mut().zip(sent) {
            let left = link.unacknowledged().unwrap_or(0);
            // What a broken connection still holds will never leave it.
            if drained.is_none() && (left == 0 || flowed.fault.is_some() || now >= until) {
                *drained = Some((left, now));
            }
        }
        if drained.iter().all(Option::is_some) {
            break;
        }
        clock.sleep_until(now + LOOK);
    }
    let of_one = |((flowed, _), (left, at)): (&(&Flowed, &dyn Link), (u64, Time))| {
        let (counts, first) = (&flowed.recorder.counts, flowed.recorder.first.unwrap_or(at));
        let bytes = counts.bytes.saturating_sub(left);
        FarFlow {
            port: flowed.port,
            bytes,
            messages: if left == 0 { counts.sent } else { counts.sent.min(bytes / message_bytes) },
            elapsed_ns: at.since(first).as_nanos() as u64,
            ..FarFlow::default()
        }
    };
    sent.iter().zip(drained.into_iter().flatten()).map(of_one).collect()
}

struct DiscardService {
    idle: Duration,
}

impl Service for DiscardService {
    fn party(&self, caps: &Caps, _from: &str) -> Box<dyn Party> {
        Box::new(Dropper {
            batch: Batch::new(caps.max_message.unwrap_or(256 * 1024), 1),
            idle: self.idle,
            last: None,
            over: false,
        })
    }

    fn door(&self, _first: &[u8], _from: &str, _reply: &mut Vec<u8>) -> Admission {
        Admission::Drop
    }
}

/// Reads and forgets.
struct Dropper {
    batch: Batch,
    idle: Duration,
    last: Option<Time>,
    over: bool,
}

impl Party for Dropper {
    fn next(&mut self, now: Time) -> Step<'_> {
        if self.over {
            return Step::Done;
        }
        let last = *self.last.get_or_insert(now);
        Step::Receive { into: &mut self.batch, until: last + self.idle }
    }

    fn sent(&mut self, _bytes: usize, _at: Time) {}

    fn received(&mut self, now: Time) {
        self.last = Some(now);
    }

    fn timed_out(&mut self, _now: Time) {
        self.over = true;
    }

    fn closed(&mut self, _now: Time) -> Result<(), Fault> {
        self.over = true;
        Ok(())
    }
}
