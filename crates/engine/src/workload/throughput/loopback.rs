//! Receiver's side of a loop: the bytes of a [`super::Source`] return unchanged.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Duration;

use super::comparison::{LoopbackState, StreamComparison};
use crate::link::{Caps, Framing};
use crate::workload::pattern::{self, Alphabet};
use linkgauge_model::clock::Time;
use linkgauge_model::sample::Recorder;

/// Longest loss, as time on the line: if more data is missing at the end, the line has stopped, and the data was not lost.
const STALLED_LINE_TIME: Duration = Duration::from_secs(1);

/// Received data so far.
#[derive(Debug, Clone, Copy)]
pub struct Received {
    /// All received bytes.
    pub position: u64,
    /// Bytes of different messages. Duplicates and foreign messages do not replace missing ones.
    pub(crate) distinct_bytes: u64,
}

/// Expected content.
enum ExpectedEcho {
    Stream(Box<StreamComparison>),
    Message(pattern::PatternMessage),
}

/// State of a loop at its receiver.
pub(crate) struct Loopback {
    state: Arc<LoopbackState>,
    expected: ExpectedEcho,
    /// Maximum missing data at the end of a stream that may lose bytes, in bytes. If more are missing, the line has stopped.
    max_missing_tail_bytes: Option<u64>,
}

impl Loopback {
    /// Creates the state. `receive_bytes`: size of a receive from a stream; `message_bytes`: size of a message.
    pub fn new(
        caps: &Caps,
        state: Arc<LoopbackState>,
        receive_bytes: usize,
        message_bytes: usize,
    ) -> Loopback {
        let alphabet = Alphabet::from_caps(caps);
        let expected = match caps.framing {
            Framing::Stream => {
                ExpectedEcho::Stream(Box::new(StreamComparison::new(receive_bytes, &alphabet)))
            }
            Framing::Message => ExpectedEcho::Message(pattern::PatternMessage::new(message_bytes, alphabet)),
        };
        let on_line = || caps.link_rate.map_or(u64::MAX, |line| line.bytes_in(STALLED_LINE_TIME));
        Loopback { state, expected, max_missing_tail_bytes: (!caps.is_reliable).then(on_line) }
    }

    /// Compares received bytes. Returns the corrupt bytes of a message; those of a stream are known at its end.
    #[inline]
    pub(crate) fn compare(&mut self, received: &[u8]) -> u64 {
        match &mut self.expected {
            ExpectedEcho::Stream(comparison) => {
                comparison.push(received);
                0
            }
            ExpectedEcho::Message(expected) => {
                let body = received.get(pattern::SEQUENCE_BYTES..).unwrap_or_default();
                pattern::count_differing(body, expected.body())
            }
        }
    }

    /// Time at which the first byte was sent.
    pub(crate) fn first_sent(&self) -> Time {
        Time(self.state.first_sent_ns.load(Relaxed))
    }

    /// Whether the last sent byte has returned, as far as known.
    pub(crate) fn has_received_all(&self, received: Received) -> bool {
        self.state.is_all_sent.load(Acquire) && self.has_received_all_so_far(received)
    }

    /// Whether all that has been sent until now has returned.
    pub(crate) fn has_received_all_so_far(&self, received: Received) -> bool {
        let position = match &self.expected {
            ExpectedEcho::Stream(comparison) if self.max_missing_tail_bytes.is_some() => {
                comparison.position()
            }
            ExpectedEcho::Stream(_) => received.position,
            ExpectedEcho::Message(_) => received.distinct_bytes,
        };
        position >= self.state.sent_bytes.load(Relaxed)
    }

    /// Whether all has returned and later input cannot change the result.
    #[inline]
    pub(crate) fn is_complete(&self, received: Received) -> bool {
        let is_settled = match &self.expected {
            ExpectedEcho::Stream(comparison) if self.max_missing_tail_bytes.is_some() => {
                comparison.is_in_sync()
            }
            _ => true,
        };
        is_settled && self.has_received_all(received)
    }

    /// Whether silence is the end of a stream: on a line that loses bytes, the missing ones are counted.
    pub(crate) fn may_end_in_silence(&self, received: Received) -> bool {
        let ExpectedEcho::Stream(comparison) = &self.expected else { return true };
        let rest = self.state.sent_bytes.load(Relaxed).saturating_sub(comparison.position());
        // If nothing ever arrived, report it.
        self.has_received_all(received)
            || self.max_missing_tail_bytes.is_some_and(|most| rest <= most || received.position == 0)
    }

    /// Ends the loop, and records its defects. `has_ended`: whether it ended without an interrupt.
    pub fn finish(&mut self, has_ended: bool, recorder: &mut Recorder) {
        self.state.is_finished.store(true, Relaxed);
        let ExpectedEcho::Stream(comparison) = &mut self.expected else { return };
        // After an interruption it is unknown how much more would have returned.
        let sent = if has_ended { self.state.sent_bytes.load(Relaxed) } else { comparison.position() };
        comparison.finish(sent);
        let counts = &mut recorder.counts;
        counts.corrupt_bytes += comparison.changed;
        counts.lost_bytes += comparison.lost;
        counts.inserted_bytes += comparison.inserted;
        counts.reordered += comparison.reordered;
        recorder.defects = std::mem::take(&mut comparison.defects);
    }
}
