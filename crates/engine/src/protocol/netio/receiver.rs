//! Receiver of one direction on the client: a [`Sink`] counts and records, the blocks signal the end.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::wire::{FlaggedBlockParser, LAST_BLOCK_FLAG, WORD_BYTES};
use super::{BlockTally, Handoff, MAX_SERVER_SEND_TIME};
use crate::link::Fault;
use crate::link::party::{CANCEL_CHECK_INTERVAL, Party, PartyCost, Step};
use crate::workload::throughput::{Sink, overtime};
use crate::workload::{Load, RecordingParty};
use linkgauge_model::clock::Time;
use linkgauge_model::sample::Recorder;

/// Number of bytes of unexpected data to show.
const MAX_SHOWN_BYTES: usize = 16;

pub(crate) struct BlockReceiver {
    sink: Sink,
    blocks: FlaggedBlockParser,
    block_bytes: u32,
    /// Control word that requests the blocks, if the receiver sends it, and number of its bytes that have been sent.
    request_word: Option<[u8; WORD_BYTES]>,
    word_sent_bytes: usize,
    timeout: Duration,
    word_since: Option<Time>,
    handoff: Arc<Handoff>,
    has_begun: bool,
    begun_at: Option<Time>,
    fault: Option<Fault>,
    /// Count as in NETIO, from the request to the end of the last block, which is included.
    local_tally: BlockTally,
    shared_tally: Arc<Mutex<BlockTally>>,
}

impl BlockReceiver {
    /// Receives the blocks that `word` requests; without it they begin after the other flow's request.
    pub fn new(
        sink: Sink,
        load: &Load,
        word: Option<[u8; WORD_BYTES]>,
        handoff: Arc<Handoff>,
    ) -> BlockReceiver {
        BlockReceiver {
            sink,
            blocks: FlaggedBlockParser::new(load.message_bytes),
            block_bytes: load.message_bytes,
            request_word: word,
            word_sent_bytes: 0,
            timeout: load.timeout,
            word_since: None,
            handoff,
            has_begun: false,
            begun_at: None,
            fault: None,
            local_tally: BlockTally::default(),
            shared_tally: Arc::default(),
        }
    }

    /// Tally, complete once the party has ended.
    pub(crate) fn shared_tally(&self) -> Arc<Mutex<BlockTally>> {
        self.shared_tally.clone()
    }

    /// Fault of blocks that ended too early.
    fn interrupted_fault(&self, how: &str) -> Fault {
        Fault::EndedEarly(match (self.blocks.whole_blocks(), self.blocks.block_offset()) {
            (0, 0) => format!("no block arrived: the server {how}"),
            (blocks, 0) => format!("the server {how} after {blocks} blocks, before its last one"),
            (_, into) => {
                format!("the server {how} within a block, after {into} of {} bytes", self.block_bytes)
            }
        })
    }

    /// Describes data that a NETIO server cannot have sent.
    fn unexpected_data(&self, taken: usize) -> Option<String> {
        let received = self.sink.batch();
        let first = || {
            let shown = received.messages().next().unwrap_or_default();
            shown[..shown.len().min(MAX_SHOWN_BYTES)].escape_ascii().to_string()
        };
        if !self.has_begun {
            return Some(format!("it sent \"{}\" before blocks were requested", first()));
        }
        let flag = self.blocks.block_flag();
        if self.sink.position() == received.total_bytes() && flag != 0 && flag != LAST_BLOCK_FLAG {
            return Some(format!("no block begins like \"{}\": it may not be a NETIO server", first()));
        }
        (taken < received.total_bytes() as usize).then(|| "it continues after its last block".to_owned())
    }
}

impl Party for BlockReceiver {
    #[inline]
    fn next_step(&mut self, now: Time) -> Step<'_> {
        if let Some(fault) = self.fault.take() {
            return Step::Fail(fault);
        }
        if let Some(word) = self.request_word.as_ref().filter(|word| self.word_sent_bytes < word.len()) {
            if now > *self.word_since.get_or_insert(now) + self.timeout {
                return Step::Fail(Fault::TimedOut);
            }
            return Step::Send { bytes: &word[self.word_sent_bytes..], message: word.len() };
        }
        if !self.has_begun {
            // In this order: the sender sets the request flag before it gives up.
            let is_over = self.handoff.is_given_up();
            self.has_begun = self.handoff.is_request_started();
            if !self.has_begun && is_over {
                return Step::Done;
            }
            self.sink.start_waiting(now);
        }
        if self.blocks.is_finished() {
            return Step::Done;
        }
        if self.has_begun
            && now
                > *self.begun_at.get_or_insert(now) + MAX_SERVER_SEND_TIME + overtime(MAX_SERVER_SEND_TIME, 1)
        {
            return Step::Fail(self.interrupted_fault("did not end in time"));
        }
        match self.sink.next_step(now) {
            Step::Receive { into, .. } if !self.has_begun => {
                Step::Receive { into, until: now + CANCEL_CHECK_INTERVAL }
            }
            step => step,
        }
    }

    fn on_sent(&mut self, bytes: usize, at: Time) {
        self.word_sent_bytes += bytes;
        if self.request_word.is_some_and(|word| word.len() == self.word_sent_bytes) {
            self.handoff.start_request();
            self.handoff.mark_requested(at);
        }
    }

    #[inline]
    fn on_received(&mut self, now: Time) {
        // The request may have been sent during the wait.
        self.has_begun |= self.handoff.is_request_started();
        let taken: usize = self.sink.batch().messages().map(|bytes| self.blocks.push(bytes)).sum();
        self.sink.on_received(now);
        self.local_tally.bytes += taken as u64;
        self.local_tally.last_instant = Some(now);
        if let Some(what) = self.unexpected_data(taken) {
            self.fault = Some(Fault::UnexpectedData(what));
        }
    }

    fn on_timeout(&mut self, _now: Time) {
        if self.has_begun {
            self.fault = Some(self.interrupted_fault("became silent"));
        }
    }

    fn on_closed(&mut self, _now: Time) -> Result<(), Fault> {
        Err(self.interrupted_fault("closed the link"))
    }

    fn on_ended(&mut self, cost: PartyCost) {
        self.sink.on_ended(cost);
        self.local_tally.is_complete = self.blocks.is_finished();
        *self.shared_tally.lock().unwrap_or_else(PoisonError::into_inner) =
            std::mem::take(&mut self.local_tally);
    }
}

impl RecordingParty for BlockReceiver {
    fn recorder(&self) -> &Recorder {
        self.sink.recorder()
    }

    fn into_recorder(self: Box<Self>) -> Recorder {
        Box::new(self.sink).into_recorder()
    }
}
