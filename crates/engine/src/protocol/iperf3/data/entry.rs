//! Entry of a client's stream into its test. The server sends as soon as it has the last stream, so that one identifies
//! itself in the thread that then receives, once all others are set up as well: nothing arrives before its receiver is ready.

use std::time::Duration;

use super::TestState;
use crate::link::party::Step;
use crate::link::{Batch, Fault, Framing};
use crate::protocol::iperf3::wire;
use linkgauge_model::clock::Time;

/// Interval between checks whether the others are ready.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Maximum hellos for a UDP stream, since the hello or its reply may be lost.
pub(crate) const MAX_HELLO_TRIES: u32 = 5;

/// Identification of a stream, and the time that each reply may take.
pub(crate) struct Identification {
    /// The cookie on a byte stream, or a hello.
    pub bytes: Vec<u8>,
    pub(crate) framing: Framing,
    pub(crate) timeout: Duration,
    /// The error without a reply.
    pub(crate) no_reply: String,
    /// The streams that must be ready before this one.
    pub(crate) others: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EntryStage {
    Tuning,
    /// The last stream waits until all are tuned.
    AwaitingOthers,
    /// Has sent this many bytes.
    Identifying(usize),
    AwaitingReply(Time),
    Identified,
    /// A sender waits until the server has started the test.
    AwaitingStart,
}

/// The steps of a stream before its payload.
pub(crate) struct StreamEntry {
    stage: EntryStage,
    /// Identification of the last stream; the others have identified themselves.
    identification: Option<Identification>,
    tries: u32,
    fault: Option<Fault>,
    /// Batch for the reply to a sender. A receiver uses its own, because payload may come first.
    batch: Batch,
}

impl StreamEntry {
    pub fn new(identification: Option<Identification>) -> StreamEntry {
        let batch = Batch::new(wire::UDP_HELLO.len() + 1, 1);
        StreamEntry { stage: EntryStage::Tuning, identification, tries: 0, fault: None, batch }
    }

    /// Whether the next step is the first one of the stream's party, which tunes its link.
    pub(crate) fn begin_tuning(&mut self) -> bool {
        let tunes = self.stage == EntryStage::Tuning;
        if tunes {
            self.stage = EntryStage::AwaitingOthers;
        }
        tunes
    }

    /// Whether the payload may begin. Announces the stream to the others.
    pub(crate) fn is_over(&mut self, test: &TestState, is_sender: bool) -> bool {
        let is_ready = self.stage == EntryStage::Identified
            || (self.stage == EntryStage::AwaitingOthers && self.identification.is_none());
        if is_ready {
            test.add_ready_stream();
            self.stage = EntryStage::AwaitingStart;
        }
        match self.stage {
            EntryStage::AwaitingOthers => {
                if self.identification.as_ref().is_some_and(|last| test.ready_streams() >= last.others) {
                    self.stage = EntryStage::Identifying(0);
                }
                false
            }
            EntryStage::AwaitingStart => !is_sender || test.is_running(),
            _ => false,
        }
    }

    /// The next step; a receiver lends its batch.
    pub(crate) fn next_step<'a>(&'a mut self, now: Time, lent: Option<&'a mut Batch>) -> Step<'a> {
        if let Some(fault) = self.fault.take() {
            return Step::Fail(fault);
        }
        match (self.stage, &self.identification) {
            (EntryStage::Identifying(sent), Some(identification)) => {
                let bytes = &identification.bytes[sent..];
                Step::Send { bytes, message: bytes.len() }
            }
            (EntryStage::AwaitingReply(until), _) => {
                Step::Receive { into: lent.unwrap_or(&mut self.batch), until }
            }
            _ => Step::Sleep(now + POLL_INTERVAL),
        }
    }

    pub(crate) fn on_sent(&mut self, bytes: usize, at: Time) {
        let (EntryStage::Identifying(sent), Some(identification)) = (self.stage, &self.identification) else {
            return;
        };
        let sent = sent + bytes;
        self.stage = match identification.framing {
            _ if sent < identification.bytes.len() => EntryStage::Identifying(sent),
            Framing::Stream => EntryStage::Identified,
            Framing::Message => EntryStage::AwaitingReply(at + identification.timeout / MAX_HELLO_TRIES),
        };
    }

    /// Takes the reply. Payload shows that the reply was lost.
    pub(crate) fn on_received(&mut self, lent: Option<&Batch>) {
        let mut messages = lent.unwrap_or(&self.batch).messages();
        if messages.any(|message| wire::is_udp_reply(message) || message.len() > wire::UDP_HELLO.len()) {
            self.stage = EntryStage::Identified;
        }
    }

    /// Sends the hello again, up to a limit.
    pub(crate) fn on_timeout(&mut self) {
        if let (EntryStage::AwaitingReply(_), Some(identification)) = (self.stage, &self.identification) {
            self.tries += 1;
            if self.tries >= MAX_HELLO_TRIES {
                self.fault = Some(Fault::NoReply(identification.no_reply.clone()));
            }
            self.stage = EntryStage::Identifying(0);
        }
    }
}
