//! The sending end of one direction: a [`Source`] says when and how much, what goes out are NETIO's blocks, with the
//! control word that announces them before and the last block behind. The same at the client and at the server.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::wire::{Dialect, LAST, WORD, Word, block};
use super::{Handoff, Tally};
use crate::clock::Time;
use crate::link::party::{Cost, Party, Step, Tuning};
use crate::link::{Batch, Caps, Fault, Framing};
use crate::plan::Case;
use crate::sample::Recorder;
use crate::workload::Measured;
use crate::workload::throughput::Source;

/// What stands before the blocks, behind them, and between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The word that announces the blocks.
    Head,
    Blocks,
    /// Of the block that was begun.
    Rest,
    /// Has the far end said anything? A receiver says nothing.
    Look,
    /// The block with the flag.
    Last,
    /// What is to follow at once.
    Next,
    Over,
}

/// Bytes that are shown of what a receiver should not have said.
const SHOWN: usize = 16;

pub struct Sender {
    source: Source,
    timeout: Duration,
    /// Blocks end to end, as many as the source offers at once.
    blocks: Vec<u8>,
    size: usize,
    /// Of the block that has begun, bytes sent.
    into: usize,
    stage: Stage,
    /// Of the piece that is being sent in this stage.
    offset: usize,
    since: Option<Time>,
    head: Option<[u8; WORD]>,
    last: Vec<u8>,
    looks: bool,
    /// Another party goes on with the link.
    hands_on: bool,
    next: Option<([u8; WORD], Arc<Handoff>)>,
    heard: Batch,
    /// As NETIO counts: whole blocks, from the first one's beginning to the end of the last one without the flag.
    tally: Tally,
    told: Arc<Mutex<Tally>>,
}

impl Sender {
    /// Blocks alone; what stands around them is added by the other functions.
    pub fn new(case: &Case, caps: &Caps, tuning: Tuning, recorder: Recorder) -> Sender {
        let size = case.message_bytes as usize;
        let at_once = match caps.framing {
            Framing::Stream => 1,
            Framing::Message => crate::link::COALESCED / size.max(1) + 1,
        };
        let one = block(size);
        Sender {
            source: Source::new(case, caps, tuning, recorder),
            timeout: case.timeout,
            blocks: one.repeat(at_once),
            size,
            into: 0,
            stage: Stage::Head,
            offset: 0,
            since: None,
            head: None,
            last: Vec::new(),
            looks: false,
            hands_on: false,
            next: None,
            heard: Batch::new(SHOWN, 1),
            tally: Tally::default(),
            told: Arc::default(),
        }
    }

    /// A client announces the blocks, in the dialects that have words, and listens behind them.
    pub fn announced(mut self, dialect: Dialect) -> Sender {
        self.looks = true;
        if dialect != Dialect::A {
            self.head = Some(Word::ClientSends(self.size as u32).bytes(dialect));
            self = self.ended_by_flag();
        }
        self
    }

    /// The block with the flag comes last.
    pub fn ended_by_flag(mut self) -> Sender {
        self.last = self.blocks[..self.size].to_vec();
        self.last[0] = LAST;
        self
    }

    /// When it is over, another party goes on with the link.
    pub fn handed_on(mut self) -> Sender {
        self.hands_on = true;
        self
    }

    /// Behind the last block the server is asked to send, and the other flow is told when.
    pub fn then_asks(mut self, dialect: Dialect, handoff: Arc<Handoff>) -> Sender {
        self.next = Some((Word::ServerSends(self.size as u32).bytes(dialect), handoff));
        self
    }

    /// Where its count will stand once it has ended.
    pub fn tally(&self) -> Arc<Mutex<Tally>> {
        self.told.clone()
    }

    /// All is out.
    pub fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }

    /// What is sent in this stage, but for the blocks.
    fn piece(&self) -> &[u8] {
        match self.stage {
            Stage::Head => self.head.as_ref().map_or(&[], |head| head),
            // Nothing was begun when the border of a block is where it stands.
            Stage::Rest if self.into > 0 => &self.blocks[self.into..self.size],
            Stage::Last => &self.last,
            Stage::Next => self.next.as_ref().map_or(&[], |(word, _)| word),
            Stage::Rest | Stage::Blocks | Stage::Look | Stage::Over => &[],
        }
    }

    fn advance(&mut self, now: Time) {
        self.stage = match self.stage {
            Stage::Head => Stage::Blocks,
            Stage::Blocks => Stage::Rest,
            Stage::Rest => {
                if self.into > 0 {
                    self.tally.bytes += (self.size - self.into) as u64;
                    self.into = 0;
                }
                self.tally.last = Some(now);
                Stage::Look
            }
            Stage::Look => Stage::Last,
            Stage::Last => {
                if let Some((_, handoff)) = &self.next {
                    handoff.asks();
                }
                Stage::Next
            }
            Stage::Next | Stage::Over => Stage::Over,
        };
        (self.offset, self.since) = (0, None);
    }

    /// What the receiver still has to get so that it sees a whole block and the last one.
    fn owed(&self) -> Vec<u8> {
        let begun = match (self.stage, self.into) {
            (_, 0) => &[],
            (Stage::Rest, into) => &self.blocks[into + self.offset..self.size],
            (_, into) => &self.blocks[into..self.size],
        };
        match self.stage {
            Stage::Head if self.offset == 0 => Vec::new(),
            Stage::Head => self.piece()[self.offset..].iter().chain(&self.last).copied().collect(),
            Stage::Blocks | Stage::Rest | Stage::Look => [begun, &self.last].concat(),
            Stage::Last => self.last[self.offset..].to_vec(),
            Stage::Next | Stage::Over => Vec::new(),
        }
    }
}

impl Party for Sender {
    #[inline]
    fn next(&mut self, now: Time) -> Step<'_> {
        loop {
            match self.stage {
                Stage::Blocks => match self.source.next(now) {
                    Step::Send { bytes, message } => {
                        let length = bytes.len();
                        self.tally.first.get_or_insert(now);
                        return Step::Send { bytes: &self.blocks[self.into..self.into + length], message };
                    }
                    Step::Finish | Step::Done => {}
                    Step::Tune(tuning) => return Step::Tune(tuning),
                    Step::Sleep(until) => return Step::Sleep(until),
                    Step::Fail(fault) => return Step::Fail(fault),
                    _ => return Step::Done,
                },
                Stage::Look if self.looks => return Step::Receive { into: &mut self.heard, until: now },
                Stage::Over if self.hands_on => return Step::Sleep(now),
                Stage::Over => return Step::Done,
                _ if self.offset < self.piece().len() => {
                    if now > *self.since.get_or_insert(now) + self.timeout {
                        return Step::Fail(Fault::TimedOut);
                    }
                    let piece = self.piece();
                    return Step::Send { bytes: &piece[self.offset..], message: piece.len() };
                }
                _ => {}
            }
            self.advance(now);
        }
    }

    #[inline]
    fn sent(&mut self, bytes: usize, at: Time) {
        if self.stage == Stage::Blocks {
            self.source.sent(bytes, at);
            self.tally.bytes += bytes as u64;
            self.tally.last = Some(at);
            self.into = (self.into + bytes) % self.size;
            return;
        }
        (self.offset, self.since) = (self.offset + bytes, Some(at));
        if let (Stage::Next, Some((word, handoff))) = (self.stage, &self.next)
            && self.offset == word.len()
        {
            handoff.ask(at);
        }
        while !matches!(self.stage, Stage::Blocks | Stage::Look | Stage::Over)
            && self.offset == self.piece().len()
        {
            self.advance(at);
        }
    }

    fn received(&mut self, now: Time) {
        self.tally.last = Some(now);
        let said = self.heard.messages().next().unwrap_or_default().escape_ascii().to_string();
        self.tally.fault =
            Some(format!("a NETIO server says nothing while it receives, but this one said \"{said}\""));
        self.stage = Stage::Over;
    }

    fn waits(&mut self, now: Time, unacknowledged: Option<u64>) {
        self.source.waits(now, unacknowledged);
    }

    fn timed_out(&mut self, now: Time) {
        self.tally.last = Some(now);
        self.stage = Stage::Last;
    }

    fn ended(&mut self, cost: Cost) {
        self.source.ended(cost);
        self.tally.owed = self.owed();
        if let Some((_, handoff)) = &self.next {
            handoff.give_up();
        }
        *self.told.lock().unwrap_or_else(PoisonError::into_inner) = std::mem::take(&mut self.tally);
    }
}

impl Measured for Sender {
    fn recorder(&self) -> &Recorder {
        self.source.recorder()
    }

    fn into_recorder(self: Box<Self>) -> Recorder {
        Box::new(self.source).into_recorder()
    }
}
