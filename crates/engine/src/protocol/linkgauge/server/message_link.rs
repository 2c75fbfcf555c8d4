//! State of a flow on a link with message boundaries: its attach request may come again, and a receiver shows that it still
//! runs.

use std::time::Duration;

use crate::link::Batch;
use crate::protocol::linkgauge::wire::HANDSHAKE_BYTES;
use linkgauge_model::clock::Time;

/// State of a flow whose messages can get lost or come twice.
pub(crate) struct MessageLinkState {
    /// The attach request may be repeated until other data arrives.
    may_repeat_request: bool,
    request: Vec<u8>,
    pub(crate) reply: Vec<u8>,
    pub(crate) must_repeat_reply: bool,
    /// Receive buffer of a flow that itself receives nothing.
    pub(crate) batch: Batch,
    /// Liveness of the receiver, set for a flow that sends on a link without connections.
    liveness: Option<ReceiverLiveness>,
}

/// Action before the next step of the party.
pub(crate) enum MessageAction {
    /// No action.
    Go,
    /// The reply to the attach request is sent again.
    RepeatReply,
    /// The flow receives until then.
    Listen(Time),
    /// The flow sleeps until then.
    Sleep(Time),
    /// The flow fails for this reason.
    Fail(&'static str),
}

impl MessageLinkState {
    /// Creates the state after this request and reply.
    pub fn new(request: Vec<u8>, reply: Vec<u8>, liveness: Option<ReceiverLiveness>) -> MessageLinkState {
        MessageLinkState {
            may_repeat_request: true,
            request,
            reply,
            must_repeat_reply: false,
            batch: Batch::new(2 * HANDSHAKE_BYTES, 1),
            liveness,
        }
    }

    /// `start_check`: the flow may not send before it has checked again then. `also` is the time of the client's last
    /// message on another connection.
    pub(crate) fn next_action(
        &mut self,
        start_check: Option<Time>,
        now: Time,
        also: impl FnOnce() -> Time,
    ) -> MessageAction {
        if self.must_repeat_reply {
            return MessageAction::RepeatReply;
        }
        match (start_check, &mut self.liveness) {
            (Some(until), _) if self.may_repeat_request => MessageAction::Listen(until),
            (Some(until), _) => MessageAction::Sleep(until),
            (None, None) => MessageAction::Go,
            (None, Some(liveness)) => match liveness.check(now, also()) {
                Liveness::Alive => MessageAction::Go,
                Liveness::MustListen(until) => MessageAction::Listen(until),
                Liveness::Gone => MessageAction::Fail("the client sent no keepalive"),
            },
        }
    }

    /// Whether the received messages are for the session, not for the party of the flow. `batch` is that of the party, if it
    /// has received them.
    pub(crate) fn is_for_session(&mut self, batch: Option<&Batch>, now: Time) -> bool {
        let batch = batch.unwrap_or(&self.batch);
        if self.may_repeat_request {
            self.must_repeat_reply = batch.messages().any(|message| message == self.request.as_slice());
            if self.must_repeat_reply {
                return true;
            }
            self.may_repeat_request = false;
        }
        let Some(liveness) = &mut self.liveness else { return false };
        liveness.received(batch, now);
        true
    }
}

/// Whether a receiver on a link without connections is still running. A sender cannot know that from its own link.
pub(crate) struct ReceiverLiveness {
    keepalive: [u8; HANDSHAKE_BYTES],
    last_heard: Option<Time>,
    next_check: Time,
}

/// A sender stops after this time without a keepalive; receivers send about ten in that time.
const RECEIVER_TIMEOUT: Duration = Duration::from_secs(2);

/// Interval between checks for keepalives while sending.
const LIVENESS_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// State of a receiver.
enum Liveness {
    Alive,
    /// The flow listens before the next send: the receiver is not known yet, or a check is due and must not block.
    MustListen(Time),
    Gone,
}

impl ReceiverLiveness {
    pub fn new(sign: [u8; HANDSHAKE_BYTES]) -> ReceiverLiveness {
        ReceiverLiveness { keepalive: sign, last_heard: None, next_check: Time(0) }
    }

    /// `also` is the time of the client's last message on another connection.
    fn check(&mut self, now: Time, also: Time) -> Liveness {
        let Some(last_received) = self.last_heard else {
            return Liveness::MustListen(now + LIVENESS_CHECK_INTERVAL);
        };
        if now >= self.next_check {
            self.next_check = now + LIVENESS_CHECK_INTERVAL;
            return Liveness::MustListen(now);
        }
        if now.since(last_received.max(also)) > RECEIVER_TIMEOUT { Liveness::Gone } else { Liveness::Alive }
    }

    fn received(&mut self, batch: &Batch, now: Time) {
        if batch.messages().any(|message| message == self.keepalive) {
            self.last_heard = Some(now);
        }
        // More keepalives may be queued.
        self.next_check = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_sent_to_a_silent_receiver() {
        let mut lifeline = ReceiverLiveness::new([7; HANDSHAKE_BYTES]);
        let at = |milliseconds: u64| Time(milliseconds * 1_000_000);
        let mut sign = Batch::new(2 * HANDSHAKE_BYTES, 1);
        sign.bytes[..HANDSHAKE_BYTES].fill(7);
        sign.push_span(0, HANDSHAKE_BYTES);
        let mut strange = Batch::new(2 * HANDSHAKE_BYTES, 1);
        strange.push_span(0, HANDSHAKE_BYTES);
        lifeline.received(&strange, at(0));
        for now in [0, 1000, 100_000] {
            assert!(
                matches!(lifeline.check(at(now), Time(0)), Liveness::MustListen(until) if until > at(now))
            );
        }
        lifeline.received(&sign, at(100_000));
        // It checks without blocking, and sends in between.
        assert!(
            matches!(lifeline.check(at(100_000), Time(0)), Liveness::MustListen(until) if until == at(100_000))
        );
        assert!(matches!(lifeline.check(at(100_001), Time(0)), Liveness::Alive));
        let mut ends = |from: u64, also: Time| {
            (from..from + 10_000).find(|now| matches!(lifeline.check(at(*now), also), Liveness::Gone))
        };
        assert_eq!(ends(100_002, at(101_000)), Some(103_001), "other flows received from it");
        assert_eq!(ends(101_000, Time(0)), Some(102_001));
    }
}
