//! Latency: round trips of a request and its reply, timed at the client. A closed loop has one request in flight. A
//! schedule does not wait for replies, so that a stall affects every message it delays.
//!
//! The client is [`Pinger`], the server `Reflector`. A protocol may replace the [`RequestReplyCodec`], but not the
//! pacing, the stop or the recorder.

mod echo;
mod outgoing;
mod pinger;
mod stages;
mod stamped;
mod window;

use std::ops::Range;
use std::time::Duration;

pub use echo::EchoCodec;
pub use pinger::Pinger;
pub(crate) use stages::ReplyStages;
pub use stamped::{STAGED_BYTES, STAMPED_BYTES, StampedEchoCodec, StampingReflector};

use super::{FlowRole, Load, MeasuredFlows, TrafficKind, Workload};
use crate::link::party::{Party, Step, Tuning};
use crate::link::{Batch, Fault, Framing};
use linkgauge_model::clock::Time;
use linkgauge_model::plan::{Direction, Pacing, StopCondition};
use linkgauge_model::run::Figures;
use linkgauge_model::sample::{CommonTime, ServerTimestamps};

/// The `latency` workload.
pub const WORKLOAD: Workload = Workload {
    name: "latency",
    summary: "round-trip time of messages, one at a time or on a schedule",
    traffic: TrafficKind::RoundTrips,
    default_stop: StopCondition {
        count: Some(10_000),
        time_ns: Some(10_000_000_000),
        volume_bytes: None,
        min_time_ns: None,
    },
    has_repetitions: true,
    default_direction: Direction::Loop,
    default_timeout: Duration::from_secs(1),
    default_size: |_| 1,
    // The first round trips include cold caches, ARP and slow start.
    default_warm_up: StopCondition {
        count: Some(100),
        time_ns: Some(500_000_000),
        volume_bytes: None,
        min_time_ns: None,
    },
    method,
    figures,
};

/// Maximum size of a receive, in bytes; a longer reply arrives in several chunks.
const MAX_CHUNK_BYTES: usize = 65_536;
/// Maximum size of a receive, in bytes, for each of many servers with timestamps, so that one takes a few kilobytes.
const MANY_CHUNK_BYTES: usize = 4096;

fn method(load: &Load) -> String {
    let loop_ = match load.pacing {
        Pacing::Closed => "closed",
        Pacing::Fixed { .. } => "fixed-schedule",
        Pacing::Poisson { .. } => "poisson-schedule",
        Pacing::ThinkTime { .. } => "think-time",
    };
    let stamps = if load.stamps { " stamps" } else { "" };
    format!("latency/1 {loop_}{stamps}")
}

pub(crate) fn figures(measured: &MeasuredFlows) -> Figures {
    super::merged_recorder(measured.flows, FlowRole::RoundTrip)
        .map_or_else(Figures::default, |all| all.latency_figures(measured.late_limits))
}

/// Encodes requests and decodes replies.
pub trait RequestReplyCodec: Send {
    /// Returns the request with this sequence number.
    fn encode_request(&mut self, sequence: u64) -> &[u8];

    /// Sets the current time before each request, for requests with a timestamp.
    fn set_time(&mut self, _now: Time) {}

    /// Parses received bytes; `waiting` are the sequence numbers without a reply.
    fn parse_reply(&mut self, data: &[u8], waiting: Range<u64>) -> ReplyStatus;

    /// Gives up waiting for a reply to this number.
    fn abandon(&mut self, _sequence: u64) {}

    /// Starts again after the link was opened again; no reply to an earlier request follows.
    fn restart(&mut self) {}

    /// Reason of the server for its refusal to reply, in one line.
    fn refusal_reason(&self) -> String {
        "the server refuses to reply".to_owned()
    }

    /// Whether complete replies have [`RequestReplyCodec::server_timestamps`].
    fn has_server_timestamps(&self) -> bool {
        false
    }

    /// Receive and send time of the last request, as the server reported them.
    fn server_timestamps(&self) -> Option<ServerTimestamps> {
        None
    }

    /// Offset of the clocks by common time, where both hosts follow it.
    fn common_time(&self) -> Option<CommonTime> {
        None
    }

    /// Whether complete replies have [`RequestReplyCodec::reply_stages`].
    fn has_reply_stages(&self) -> bool {
        false
    }

    /// Stages of the last round trip at the server, as it reported them, and the stamps of the reply before.
    fn reply_stages(&self) -> Option<ReplyStages> {
        None
    }

    /// Time without input before each request, if [`RequestReplyCodec::has_sequence_numbers`] is false.
    fn silence_before_request(&self) -> Duration {
        Duration::ZERO
    }

    /// Whether replies identify their requests. If not, only one request is in flight, and the input is drained before
    /// the next one: after a lost request for the duration of another timeout.
    fn has_sequence_numbers(&self) -> bool {
        true
    }
}

/// Result of parsing received bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyStatus {
    /// All bytes were consumed; the reply is not complete yet.
    Incomplete,
    /// The first `used` bytes are the reply to `sequence`; some of them may be corrupt.
    Complete {
        /// Sequence number of the request.
        sequence: u64,
        /// Bytes to remove from the input.
        used: usize,
        /// Bytes of the reply with unexpected content.
        corrupt_bytes: u64,
    },
    /// The first `used` bytes are a reply to `sequence`, but with unexpected content.
    Unexpected {
        /// Sequence number of the request.
        sequence: u64,
        /// Bytes to remove from the input.
        used: usize,
    },
    /// The first `used` bytes belong to no round trip.
    Unrelated {
        /// Bytes to remove from the input.
        used: usize,
    },
    /// The first `used` bytes are not a reply, and the end of the bad data is unknown.
    Malformed {
        /// Bytes to remove from the input.
        used: usize,
    },
    /// The server does not support this kind of request; see [`RequestReplyCodec::refusal_reason`].
    Refused,
}

/// Server of round trips: returns received bytes, message by message or as a stream.
pub(crate) struct Reflector {
    batch: Batch,
    /// The part of the batch that is still to be returned.
    unsent: Range<usize>,
    framing: Framing,
    /// Settings of the link, boxed because thousands of flows tune their link once and reflect for long.
    tuning: Option<Box<Tuning>>,
    idle_timeout: Duration,
    last_received: Option<Time>,
    returned_bytes: u64,
    is_finished: bool,
}

impl Reflector {
    /// Reflector that ends after `idle` without input.
    pub fn new(framing: Framing, largest: usize, tuning: Tuning, idle: Duration) -> Reflector {
        Reflector {
            batch: Batch::new(largest, 1),
            unsent: 0..0,
            framing,
            tuning: Some(Box::new(tuning)),
            idle_timeout: idle,
            last_received: None,
            returned_bytes: 0,
            is_finished: false,
        }
    }

    /// The last received batch.
    pub(crate) fn batch(&self) -> &Batch {
        &self.batch
    }

    /// Bytes returned so far.
    pub(crate) fn returned_bytes(&self) -> u64 {
        self.returned_bytes
    }

    /// Receives into memory that all parties of a thread share.
    pub(crate) fn with_lent_memory(mut self) -> Reflector {
        self.batch = Batch::lent(self.batch.slot_bytes);
        self
    }

    /// Returns `bytes` first: they arrived before the protocol was known to be an echo.
    pub(crate) fn with_initial_bytes(mut self, bytes: &[u8]) -> Reflector {
        self.batch.bytes[..bytes.len()].copy_from_slice(bytes);
        self.unsent = 0..bytes.len();
        self
    }
}

impl Party for Reflector {
    #[inline]
    fn next_step(&mut self, now: Time) -> Step<'_> {
        if let Some(tuning) = self.tuning.take() {
            return Step::Tune(*tuning);
        }
        if !self.unsent.is_empty() {
            return Step::Send { bytes: &self.batch.bytes[self.unsent.clone()], message: self.unsent.len() };
        }
        if self.is_finished {
            return Step::Done;
        }
        let last = *self.last_received.get_or_insert(now);
        Step::Receive { into: &mut self.batch, until: last + self.idle_timeout }
    }

    #[inline]
    fn on_sent(&mut self, bytes: usize, _at: Time) {
        self.unsent.start += bytes;
        self.returned_bytes += bytes as u64;
        if self.framing == Framing::Message {
            self.unsent = 0..0;
        }
        if self.unsent.is_empty() {
            self.batch.return_memory();
        }
    }

    #[inline]
    fn on_received(&mut self, now: Time) {
        self.last_received = Some(now);
        let length = self.batch.messages().next().map_or(0, <[u8]>::len);
        self.unsent = 0..length;
    }

    fn on_timeout(&mut self, _now: Time) {
        self.is_finished = true;
    }

    fn on_closed(&mut self, _now: Time) -> Result<(), Fault> {
        self.is_finished = true;
        Ok(())
    }
}
