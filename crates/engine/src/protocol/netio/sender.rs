//! Sender of one direction, for client and server. A [`Source`] defines timing and amount; the bytes are NETIO's
//! blocks, with the control word that announces them and the last block at the end.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::wire::{ControlWord, LAST_BLOCK_FLAG, NetioDialect, WORD_BYTES, make_block};
use super::{BlockTally, Handoff};
use crate::link::party::{Party, PartyCost, Step};
use crate::link::{Batch, Caps, Fault, Framing};
use crate::protocol::ServerLimits;
use crate::workload::throughput::Source;
use crate::workload::{Load, RecordingParty};
use linkgauge_model::clock::Time;
use linkgauge_model::plan::{Pacing, StopCondition};
use linkgauge_model::sample::Recorder;

/// Current part of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SendStage {
    /// Control word that announces the blocks.
    Announcement,
    Blocks,
    /// Rest of a block that has begun.
    BlockRest,
    /// Check for input, which a receiver never sends.
    CheckReply,
    /// Block with the flag.
    LastBlock,
    /// Control word of the next direction.
    NextRequest,
    Finished,
}

/// Number of bytes of unexpected input from a receiver to show.
const MAX_SHOWN_BYTES: usize = 16;

/// Send time of the original, a constant (1.26 to 1.34).
const SERVER_SEND_TIME: Duration = Duration::from_secs(6);

/// Time for which a server with these limits sends.
pub(crate) fn send_time(limits: &ServerLimits) -> Duration {
    SERVER_SEND_TIME.min(Duration::from_secs(limits.duration_s))
}

/// Load of a sending server, within its limits.
pub(crate) fn sending_load(limits: &ServerLimits, size: u32) -> Load {
    let per_second = |rate: f64| rate / 8.0 / f64::from(size);
    Load {
        pacing: limits.bit_rate.map_or(Pacing::Closed, |rate| Pacing::Fixed { per_second: per_second(rate) }),
        stop: StopCondition::after_time(send_time(limits)),
        timeout: Duration::from_secs(limits.idle_s),
        ..Load::endless(size)
    }
}

pub(crate) struct BlockSender {
    source: Source,
    timeout: Duration,
    /// Consecutive blocks, as many as the source offers at once.
    block_buffer: Vec<u8>,
    block_bytes: usize,
    /// Number of sent bytes of the current block.
    block_offset: usize,
    stage: SendStage,
    /// Number of sent bytes of the current stage.
    stage_offset: usize,
    stage_since: Option<Time>,
    announcement: Option<[u8; WORD_BYTES]>,
    last_block: Vec<u8>,
    checks_reply: bool,
    /// Whether another party continues on the link.
    keeps_link_open: bool,
    next_request: Option<([u8; WORD_BYTES], Arc<Handoff>)>,
    reply_batch: Batch,
    /// Count as in NETIO: whole blocks, from the start of the first to the end of the last one without the flag.
    local_tally: BlockTally,
    shared_tally: Arc<Mutex<BlockTally>>,
}

impl BlockSender {
    /// Sends only blocks; the other functions add the parts around them.
    pub fn new(load: &Load, caps: &Caps, recorder: Recorder) -> BlockSender {
        let size = load.message_bytes as usize;
        let at_once = match caps.framing {
            Framing::Stream => 1,
            Framing::Message => crate::link::MAX_COALESCED_BYTES / size.max(1) + 1,
        };
        let one = make_block(size);
        BlockSender {
            source: Source::new(load, caps, recorder),
            timeout: load.timeout,
            block_buffer: one.repeat(at_once),
            block_bytes: size,
            block_offset: 0,
            stage: SendStage::Announcement,
            stage_offset: 0,
            stage_since: None,
            announcement: None,
            last_block: Vec::new(),
            checks_reply: false,
            keeps_link_open: false,
            next_request: None,
            reply_batch: Batch::new(MAX_SHOWN_BYTES, 1),
            local_tally: BlockTally::default(),
            shared_tally: Arc::default(),
        }
    }

    /// Announces the blocks, in dialects with control words, and checks for input after them. For clients.
    pub(crate) fn with_announcement(mut self, dialect: NetioDialect) -> BlockSender {
        self.checks_reply = true;
        if dialect != NetioDialect::A {
            self.announcement = Some(ControlWord::ClientSends(self.block_bytes as u32).encode(dialect));
            self = self.with_last_block();
        }
        self
    }

    /// Ends with the flagged block.
    pub(crate) fn with_last_block(mut self) -> BlockSender {
        self.last_block = self.block_buffer[..self.block_bytes].to_vec();
        self.last_block[0] = LAST_BLOCK_FLAG;
        self
    }

    /// Leaves the link open for another party.
    pub(crate) fn keeping_link_open(mut self) -> BlockSender {
        self.keeps_link_open = true;
        self
    }

    /// Requests data from the server after the last block, and records the time for the other flow.
    pub(crate) fn with_next_request(mut self, dialect: NetioDialect, handoff: Arc<Handoff>) -> BlockSender {
        self.next_request =
            Some((ControlWord::ServerSends(self.block_bytes as u32).encode(dialect), handoff));
        self
    }

    /// Tally, complete once the party has ended.
    pub(crate) fn shared_tally(&self) -> Arc<Mutex<BlockTally>> {
        self.shared_tally.clone()
    }

    /// Whether all output has been sent.
    pub(crate) fn is_finished(&self) -> bool {
        self.stage == SendStage::Finished
    }

    /// Output of this stage, except for blocks.
    fn stage_bytes(&self) -> &[u8] {
        match self.stage {
            SendStage::Announcement => self.announcement.as_ref().map_or(&[], |head| head),
            // Nothing was begun if the offset is at a block boundary.
            SendStage::BlockRest if self.block_offset > 0 => {
                &self.block_buffer[self.block_offset..self.block_bytes]
            }
            SendStage::LastBlock => &self.last_block,
            SendStage::NextRequest => self.next_request.as_ref().map_or(&[], |(word, _)| word),
            SendStage::BlockRest | SendStage::Blocks | SendStage::CheckReply | SendStage::Finished => &[],
        }
    }

    fn advance(&mut self, now: Time) {
        self.stage = match self.stage {
            SendStage::Announcement => SendStage::Blocks,
            SendStage::Blocks => SendStage::BlockRest,
            SendStage::BlockRest => {
                if self.block_offset > 0 {
                    self.local_tally.bytes += (self.block_bytes - self.block_offset) as u64;
                    self.block_offset = 0;
                }
                self.local_tally.last_instant = Some(now);
                SendStage::CheckReply
            }
            SendStage::CheckReply => SendStage::LastBlock,
            SendStage::LastBlock => {
                if let Some((_, handoff)) = &self.next_request {
                    handoff.start_request();
                }
                SendStage::NextRequest
            }
            SendStage::NextRequest | SendStage::Finished => SendStage::Finished,
        };
        (self.stage_offset, self.stage_since) = (0, None);
    }

    /// Returns the bytes that complete the current block and add the last one, so that the receiver sees a valid end.
    fn owed_bytes(&self) -> Vec<u8> {
        let begun = match (self.stage, self.block_offset) {
            (_, 0) => &[],
            (SendStage::BlockRest, into) => &self.block_buffer[into + self.stage_offset..self.block_bytes],
            (_, into) => &self.block_buffer[into..self.block_bytes],
        };
        match self.stage {
            SendStage::Announcement if self.stage_offset == 0 => Vec::new(),
            SendStage::Announcement => {
                self.stage_bytes()[self.stage_offset..].iter().chain(&self.last_block).copied().collect()
            }
            SendStage::Blocks | SendStage::BlockRest | SendStage::CheckReply => {
                [begun, &self.last_block].concat()
            }
            SendStage::LastBlock => self.last_block[self.stage_offset..].to_vec(),
            SendStage::NextRequest | SendStage::Finished => Vec::new(),
        }
    }
}

impl Party for BlockSender {
    #[inline]
    fn next_step(&mut self, now: Time) -> Step<'_> {
        loop {
            match self.stage {
                SendStage::Blocks => match self.source.next_step(now) {
                    Step::Send { bytes, message } => {
                        let length = bytes.len();
                        self.local_tally.first_instant.get_or_insert(now);
                        return Step::Send {
                            bytes: &self.block_buffer[self.block_offset..self.block_offset + length],
                            message,
                        };
                    }
                    Step::FinishSending | Step::Done => {}
                    Step::Tune(tuning) => return Step::Tune(tuning),
                    Step::Sleep(until) => return Step::Sleep(until),
                    Step::Fail(fault) => return Step::Fail(fault),
                    _ => return Step::Done,
                },
                SendStage::CheckReply if self.checks_reply => {
                    return Step::Receive { into: &mut self.reply_batch, until: now };
                }
                SendStage::Finished if self.keeps_link_open => return Step::Sleep(now),
                SendStage::Finished => return Step::Done,
                _ if self.stage_offset < self.stage_bytes().len() => {
                    if now > *self.stage_since.get_or_insert(now) + self.timeout {
                        return Step::Fail(Fault::TimedOut);
                    }
                    let chunk = self.stage_bytes();
                    return Step::Send { bytes: &chunk[self.stage_offset..], message: chunk.len() };
                }
                _ => {}
            }
            self.advance(now);
        }
    }

    #[inline]
    fn on_sent(&mut self, bytes: usize, at: Time) {
        if self.stage == SendStage::Blocks {
            self.source.on_sent(bytes, at);
            self.local_tally.bytes += bytes as u64;
            self.local_tally.last_instant = Some(at);
            self.block_offset = (self.block_offset + bytes) % self.block_bytes;
            return;
        }
        (self.stage_offset, self.stage_since) = (self.stage_offset + bytes, Some(at));
        if let (SendStage::NextRequest, Some((word, handoff))) = (self.stage, &self.next_request)
            && self.stage_offset == word.len()
        {
            handoff.mark_requested(at);
        }
        while !matches!(self.stage, SendStage::Blocks | SendStage::CheckReply | SendStage::Finished)
            && self.stage_offset == self.stage_bytes().len()
        {
            self.advance(at);
        }
    }

    fn on_received(&mut self, now: Time) {
        self.local_tally.last_instant = Some(now);
        let reply = self.reply_batch.messages().next().unwrap_or_default().escape_ascii().to_string();
        self.local_tally.fault =
            Some(format!("a NETIO server sends nothing while it receives, but this one sent \"{reply}\""));
        self.stage = SendStage::Finished;
    }

    fn on_send_blocked(&mut self, now: Time, unacknowledged: Option<u64>) {
        self.source.on_send_blocked(now, unacknowledged);
    }

    fn on_timeout(&mut self, now: Time) {
        self.local_tally.last_instant = Some(now);
        self.stage = SendStage::LastBlock;
    }

    fn on_ended(&mut self, cost: PartyCost) {
        self.source.on_ended(cost);
        self.local_tally.owed_bytes = self.owed_bytes();
        if let Some((_, handoff)) = &self.next_request {
            handoff.give_up();
        }
        *self.shared_tally.lock().unwrap_or_else(PoisonError::into_inner) =
            std::mem::take(&mut self.local_tally);
    }
}

impl RecordingParty for BlockSender {
    fn recorder(&self) -> &Recorder {
        self.source.recorder()
    }

    fn into_recorder(self: Box<Self>) -> Recorder {
        Box::new(self.source).into_recorder()
    }
}
