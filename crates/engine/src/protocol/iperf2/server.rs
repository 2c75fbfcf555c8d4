//! A server for clients of iperf 2 and of programs that speak its protocol, any number of them at once.
//!
//! Each connection is a test of its own, and so is each sender of datagrams. A client may request that the server opens
//! connections to it, or that it sends datagrams to an address that is not proved: the server does so only if it
//! trusts its senders.

mod bounce;
mod callback;
mod counter;
mod datagram;
mod stream;

use std::sync::Arc;
use std::time::Duration;

use super::wire::{Amount, DatagramFormat, Settings};
use crate::link::party::Party;
use crate::link::{Admission, Batch, Caps, Framing};
use crate::protocol::{MemoryBudget, ServerConfig, ServerLimits, ServerSetting, Service};
use crate::workload::Load;
use callback::Callbacks;
use linkgauge_model::plan::{Pacing, StopCondition};

/// Bytes of a receive of a stream, in memory of the thread.
const RECEIVE_BYTES: usize = 128 * 1024;

/// Bytes of a write of a stream: small, so that the other direction is read in between.
const WRITE_BYTES: u32 = 16 * 1024;

/// Most bytes that a connection takes: a sender with its noise, or a message that is returned and what has come of the next.
const STREAM_BYTES: usize = 2 * RECEIVE_BYTES;

/// Most bytes that a sender of datagrams takes: two receives, and the sent data.
const DATAGRAM_BYTES: usize = 4 * MAX_DATAGRAM_BYTES;

/// Most bytes of a datagram.
const MAX_DATAGRAM_BYTES: usize = 65_536;

/// Bytes and rate of datagrams that are sent, if the client says nothing about them: those of the original.
const DEFAULT_DATAGRAM_BYTES: u32 = 1470;
const DEFAULT_DATAGRAM_BPS: u64 = 1 << 20;

/// Reason to refuse what needs trust.
const NEEDS_TRUST: &str = "the client wants data at an address that is not proved: see --trust-senders";

pub(crate) fn new_service(facts: &Arc<ServerConfig>) -> Arc<dyn Service> {
    let memory = MemoryBudget::new(facts.limits.memory_bytes);
    let callbacks = Arc::new(Callbacks::new(memory.clone()));
    Arc::new(Iperf2Service { limits: facts.limits, trusts_senders: facts.trusts_senders, memory, callbacks })
}

struct Iperf2Service {
    limits: ServerLimits,
    trusts_senders: bool,
    memory: MemoryBudget,
    callbacks: Arc<Callbacks>,
}

/// Facts of the server that each connection needs.
#[derive(Clone)]
struct ServerFacts {
    limits: ServerLimits,
    trusts_senders: bool,
    callbacks: Arc<Callbacks>,
    /// The address of the client.
    from: String,
}

impl Service for Iperf2Service {
    fn memory_budget(&self) -> Option<MemoryBudget> {
        Some(self.memory.clone())
    }

    fn connection_bytes(&self, caps: &Caps) -> usize {
        match caps.framing {
            Framing::Stream => STREAM_BYTES,
            Framing::Message => DATAGRAM_BYTES,
        }
    }

    fn new_party(&self, caps: &Caps, from: &str) -> Box<dyn Party> {
        let facts = ServerFacts {
            limits: self.limits,
            trusts_senders: self.trusts_senders,
            callbacks: self.callbacks.clone(),
            from: from.to_owned(),
        };
        match caps.framing {
            Framing::Stream => Box::new(stream::StreamConnection::new(facts, caps)),
            Framing::Message => Box::new(datagram::DatagramConnection::new(facts, caps)),
        }
    }

    fn supported_settings(&self) -> &'static [ServerSetting] {
        &[ServerSetting::TrustSenders]
    }

    /// Clients choose their port (`-B`). A report is no last datagram, so no server replies to it; services of low ports may.
    fn replies_to_server_port(&self, port: u16, _first: &[u8], _reply: &[u8]) -> bool {
        port >= 1024
    }

    /// A test begins with any of its datagrams, because the first one may be lost, but not with its last one.
    fn admit_sender(&self, first: &[u8], _from: &str, _reply: &mut Vec<u8>) -> Admission {
        match DatagramFormat::of(first).read(first) {
            Some(head) if head.is_last => Admission::Ignore,
            Some(_) if first.len() >= DatagramFormat::OLD.header_bytes => Admission::Open,
            _ => Admission::Drop,
        }
    }
}

/// Load that the server sends, within its limits.
fn sending_load(settings: &Settings, limits: &ServerLimits, framing: Framing) -> Load {
    let (bytes, default_bps) = match framing {
        Framing::Stream => (WRITE_BYTES, 0),
        Framing::Message => (datagram_bytes(settings, limits), DEFAULT_DATAGRAM_BPS),
    };
    let requested = if settings.rate_bps > 0 { settings.rate_bps } else { default_bps };
    let requested = (requested > 0).then_some(requested as f64);
    let rate = requested.into_iter().chain(limits.bit_rate).reduce(f64::min);
    let longest = Duration::from_secs(limits.duration_s);
    let (time, volume_bytes) = match settings.amount {
        Amount::Time(time) => (time.min(longest), None),
        Amount::Bytes(bytes) => (longest, Some(bytes.into())),
    };
    Load {
        pacing: rate
            .map_or(Pacing::Closed, |rate| Pacing::Fixed { per_second: rate / 8.0 / f64::from(bytes) }),
        stop: StopCondition { volume_bytes, ..StopCondition::after_time(time) },
        timeout: Duration::from_secs(limits.idle_s),
        ..Load::endless(bytes)
    }
}

/// Bytes of a datagram that the server sends.
fn datagram_bytes(settings: &Settings, limits: &ServerLimits) -> u32 {
    let least = DatagramFormat::MODERN.min_bytes() as u32;
    let wanted = if settings.buffer_bytes > 0 { settings.buffer_bytes } else { DEFAULT_DATAGRAM_BYTES };
    wanted.min(limits.message_bytes).clamp(least, super::MAX_DATAGRAM_BYTES)
}

/// Memory of a receive of datagrams, for the first one of any size.
fn first_batch(caps: &Caps) -> Batch {
    Batch::new(caps.max_message_bytes.unwrap_or(MAX_DATAGRAM_BYTES).min(MAX_DATAGRAM_BYTES), 1)
}
