//! State of the client that it settles before it sends: the rest of a request, and late replies without a number.

use std::time::Duration;

use super::MAX_CHUNK_BYTES;
use crate::link::Framing;
use linkgauge_model::clock::Time;

/// Request that is being sent.
pub(crate) struct OutgoingRequest {
    /// Size of the current request, and number of its bytes that the link has taken.
    request_bytes: usize,
    sent_bytes: usize,
    /// Maximum bytes of a request for one send.
    max_send_bytes: usize,
    /// Whether a send is pending: the link takes the bytes or reports that it could not.
    is_send_pending: bool,
    /// Time since which the link has taken nothing of an unfinished request.
    stalled_since: Option<Time>,
    /// Whether to receive pending input before the next send: the server may be blocked until the client reads.
    pub(crate) must_receive_first: bool,
}

impl OutgoingRequest {
    pub fn new(framing: Framing) -> OutgoingRequest {
        OutgoingRequest {
            request_bytes: 0,
            sent_bytes: 0,
            max_send_bytes: if framing == Framing::Stream { MAX_CHUNK_BYTES } else { usize::MAX },
            is_send_pending: false,
            stalled_since: None,
            must_receive_first: false,
        }
    }

    /// Whether the link has taken a part of the request.
    #[inline]
    pub(crate) fn is_begun(&self) -> bool {
        self.sent_bytes > 0
    }

    /// Settles a pending send, when the party has its turn again: the link could not take it.
    #[inline]
    pub(crate) fn settle_send(&mut self, now: Time) {
        if std::mem::take(&mut self.is_send_pending) {
            self.must_receive_first = true;
            self.stalled_since.get_or_insert(now);
        }
    }

    #[inline]
    pub(crate) fn is_stalled(&self, now: Time, timeout: Duration) -> bool {
        self.stalled_since.is_some_and(|since| now >= since + timeout)
    }

    /// Ends the requests: none follows, so none can stall.
    pub fn end(&mut self) {
        self.stalled_since = None;
    }

    /// Next part of the request to send.
    #[inline]
    pub(crate) fn next_part<'a>(&mut self, request: &'a [u8]) -> &'a [u8] {
        self.request_bytes = request.len();
        self.is_send_pending = true;
        let rest = &request[self.sent_bytes..];
        &rest[..rest.len().min(self.max_send_bytes)]
    }

    /// Returns whether the link has taken all of the request.
    #[inline]
    pub(crate) fn mark_sent(&mut self, bytes: usize, at: Time) -> bool {
        self.sent_bytes += bytes;
        self.is_send_pending = false;
        if self.sent_bytes < self.request_bytes {
            (self.stalled_since, self.must_receive_first) = (Some(at), true);
            return false;
        }
        (self.sent_bytes, self.stalled_since) = (0, None);
        true
    }
}

/// Late replies to lost requests. Without numbers they would be taken for the reply to the next request.
pub(crate) struct LateReplies {
    has_sequence_numbers: bool,
    /// Whether the last receive found no input, so that the next request can be sent.
    is_drained: bool,
    /// End of the wait for the late reply to a lost request.
    until: Time,
    since: Option<Time>,
    /// Time without input before each request, and its end.
    silence: Duration,
    silent_at: Time,
}

impl LateReplies {
    pub fn new(has_sequence_numbers: bool, silence: Duration) -> LateReplies {
        LateReplies {
            has_sequence_numbers,
            is_drained: has_sequence_numbers,
            until: Time(0),
            since: None,
            silence,
            silent_at: Time(0),
        }
    }

    /// Notes that input has arrived.
    #[inline]
    pub(crate) fn note_input(&mut self, now: Time) {
        self.silent_at = now + self.silence;
    }

    /// Time until which to drain late input before the next request. The wait is bounded for devices that send continuously.
    #[inline]
    pub(crate) fn drain_until(&mut self, now: Time, timeout: Duration) -> Option<Time> {
        if self.has_sequence_numbers {
            return None;
        }
        let since = *self.since.get_or_insert(now);
        (!self.is_drained && now < since + 2 * timeout).then(|| self.until.max(self.silent_at).max(now))
    }

    /// Notes a lost request, whose reply may arrive until this time. With the time of its arrival the wait ends.
    pub(crate) fn expect_until(&mut self, until: Time) {
        self.until = until;
    }

    /// Notes that a receive found no input.
    pub(crate) fn mark_drained(&mut self, now: Time) {
        self.is_drained |= now >= self.silent_at;
    }

    /// Notes that a request was sent: the next one needs another check.
    #[inline]
    pub(crate) fn restart(&mut self) {
        (self.is_drained, self.since) = (self.has_sequence_numbers, None);
    }
}
