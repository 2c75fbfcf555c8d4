//! `echo`: the far end sends back what it gets. RFC 862 over TCP and UDP, a loop-back plug, anything of that kind.
//!
//! Latency is the time of an exchange; throughput goes in a loop, out on one half of the link and back on the other.

use std::sync::Arc;
use std::time::Duration;

use super::{FITS, Flow, Near, Peer, PeerError, Plain, Service, Session, flows};
use crate::link::party::{Party, Tuning};
use crate::link::{Admission, Caps, Framing, LinkError};
use crate::plan::{Case, Direction};
use crate::workload::Role;
use crate::workload::latency::{Echo, Pinger, Reflector};
use crate::workload::throughput::{Looped, Sink, Source};

pub const PEER: Peer = Peer {
    name: "echo",
    summary: "sends back what it gets (RFC 862, a loop-back plug)",
    default_ports: &[("tcp", 7), ("udp", 7)],
    workloads: &[("latency", &[Direction::Loop]), ("throughput", &[Direction::Loop])],
    options: &[],
    sizes: &[],
    fit: FITS,
    connect,
    serve: Some(|facts| Arc::new(EchoService { idle: Duration::from_secs(facts.limits.idle_s) })),
};

fn connect(case: &Case, near: &Near) -> Result<Box<dyn Session>, PeerError> {
    let tuning = Tuning { wait: case.wait, cpu: case.pin.near, batches_of: None };
    let flows = flows(case, near, |port, link, flows| {
        let caps = link.caps().clone();
        if case.workload == "latency" {
            let exchange = Box::new(Echo::new(case, &caps));
            let party = Pinger::new(exchange, case, &caps, (near.recorder)(Role::Exchange, port));
            flows.push(Flow { role: Role::Exchange, port, link, party: Box::new(party) });
            return Ok(());
        }
        let looped = Arc::new(Looped::default());
        let back = link.other_half().map_err(|fault| LinkError::new(&case.endpoints[port], fault))?;
        let sink =
            Sink::new(case, &caps, tuning, (near.recorder)(Role::Inward, port)).looped(&caps, looped.clone());
        let source = Source::new(case, &caps, tuning, (near.recorder)(Role::Outward, port))
            .looped(case, &caps, looped);
        flows.push(Flow { role: Role::Inward, port, link: back, party: Box::new(sink) });
        flows.push(Flow { role: Role::Outward, port, link, party: Box::new(source) });
        Ok(())
    })?;
    Ok(Plain::boxed(flows))
}

/// Largest piece sent back at once.
pub const LARGEST: usize = 65_536;

struct EchoService {
    idle: Duration,
}

impl Service for EchoService {
    fn party(&self, caps: &Caps, _from: &str) -> Box<dyn Party> {
        Box::new(reflector(caps, Tuning::default(), self.idle))
    }

    fn door(&self, first: &[u8], _from: &str, reply: &mut Vec<u8>) -> Admission {
        reply.extend_from_slice(first);
        Admission::Reply
    }
}

/// The far end of an echo on a link that can do `caps`.
pub fn reflector(caps: &Caps, tuning: Tuning, idle: Duration) -> Reflector {
    let largest = match caps.framing {
        Framing::Stream => LARGEST,
        Framing::Message => caps.max_message.unwrap_or(LARGEST),
    };
    Reflector::new(caps.framing, largest, tuning, idle)
}
