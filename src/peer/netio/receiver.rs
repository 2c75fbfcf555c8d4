//! The receiving end of one direction at the client: a [`Sink`] counts and records, the blocks say when it is over.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::wire::{Blocks, LAST, WORD};
use super::{FAR_SENDS, Handoff, Tally};
use crate::clock::Time;
use crate::link::Fault;
use crate::link::party::{Cost, Party, SLICE, Step};
use crate::plan::Case;
use crate::sample::Recorder;
use crate::workload::Measured;
use crate::workload::throughput::{Sink, overtime};

/// Bytes that are shown of what is no block.
const SHOWN: usize = 16;

pub struct Receiver {
    sink: Sink,
    blocks: Blocks,
    size: u32,
    /// The word that asks for the blocks, where this end sends it, and how much of it is out.
    word: Option<[u8; WORD]>,
    offset: usize,
    timeout: Duration,
    since: Option<Time>,
    handoff: Arc<Handoff>,
    begun: bool,
    begun_at: Option<Time>,
    fault: Option<Fault>,
    /// As NETIO counts, to the end of the last block, which counts as well; it begins with the word.
    tally: Tally,
    told: Arc<Mutex<Tally>>,
}

impl Receiver {
    /// Blocks that `word` asks for; without it they begin once the other flow has asked.
    pub fn new(sink: Sink, case: &Case, word: Option<[u8; WORD]>, handoff: Arc<Handoff>) -> Receiver {
        Receiver {
            sink,
            blocks: Blocks::new(case.message_bytes),
            size: case.message_bytes,
            word,
            offset: 0,
            timeout: case.timeout,
            since: None,
            handoff,
            begun: false,
            begun_at: None,
            fault: None,
            tally: Tally::default(),
            told: Arc::default(),
        }
    }

    /// Where its count will stand once it has ended.
    pub fn tally(&self) -> Arc<Mutex<Tally>> {
        self.told.clone()
    }

    /// Why the blocks ended too early.
    fn broken_off(&self, how: &str) -> Fault {
        Fault::Other(match (self.blocks.whole(), self.blocks.begun()) {
            (0, 0) => format!("no block came: the far end {how}"),
            (blocks, 0) => format!("the far end {how} after {blocks} blocks, before its last one"),
            (_, into) => format!("the far end {how} in mid-block, after {into} of {} bytes", self.size),
        })
    }

    /// What came cannot be what a NETIO server sends.
    fn strange(&self, taken: usize) -> Option<String> {
        let came = self.sink.batch();
        let first = || {
            let shown = came.messages().next().unwrap_or_default();
            shown[..shown.len().min(SHOWN)].escape_ascii().to_string()
        };
        if !self.begun {
            return Some(format!("it said \"{}\" before it was asked for blocks", first()));
        }
        let flag = self.blocks.flag();
        if self.sink.position() == came.total() && flag != 0 && flag != LAST {
            return Some(format!("no block begins like \"{}\": does it speak NETIO?", first()));
        }
        (taken < came.total() as usize).then(|| "it goes on behind its last block".to_owned())
    }
}

impl Party for Receiver {
    #[inline]
    fn next(&mut self, now: Time) -> Step<'_> {
        if let Some(fault) = self.fault.take() {
            return Step::Fail(fault);
        }
        if let Some(word) = self.word.as_ref().filter(|word| self.offset < word.len()) {
            if now > *self.since.get_or_insert(now) + self.timeout {
                return Step::Fail(Fault::TimedOut);
            }
            return Step::Send { bytes: &word[self.offset..], message: word.len() };
        }
        if !self.begun {
            // In this order: whoever asked says so before it says that it is over.
            let is_over = self.handoff.is_over();
            self.begun = self.handoff.is_asking();
            if !self.begun && is_over {
                return Step::Done;
            }
            self.sink.wait_from(now);
        }
        if self.blocks.is_over() {
            return Step::Done;
        }
        if self.begun && now > *self.begun_at.get_or_insert(now) + FAR_SENDS + overtime(FAR_SENDS) {
            return Step::Fail(self.broken_off("did not end in time"));
        }
        match self.sink.next(now) {
            Step::Receive { into, .. } if !self.begun => Step::Receive { into, until: now + SLICE },
            step => step,
        }
    }

    fn sent(&mut self, bytes: usize, at: Time) {
        self.offset += bytes;
        if self.word.is_some_and(|word| word.len() == self.offset) {
            self.handoff.asks();
            self.handoff.ask(at);
        }
    }

    #[inline]
    fn received(&mut self, now: Time) {
        // It may have been asked while this end waited.
        self.begun |= self.handoff.is_asking();
        let taken: usize = self.sink.batch().messages().map(|bytes| self.blocks.take(bytes)).sum();
        self.sink.received(now);
        self.tally.bytes += taken as u64;
        self.tally.last = Some(now);
        if let Some(what) = self.strange(taken) {
            self.fault = Some(Fault::Other(what));
        }
    }

    fn timed_out(&mut self, _now: Time) {
        if self.begun {
            self.fault = Some(self.broken_off("fell silent"));
        }
    }

    fn closed(&mut self, _now: Time) -> Result<(), Fault> {
        Err(self.broken_off("closed the link"))
    }

    fn ended(&mut self, cost: Cost) {
        self.sink.ended(cost);
        self.tally.over = self.blocks.is_over();
        *self.told.lock().unwrap_or_else(PoisonError::into_inner) = std::mem::take(&mut self.tally);
    }
}

impl Measured for Receiver {
    fn recorder(&self) -> &Recorder {
        self.sink.recorder()
    }

    fn into_recorder(self: Box<Self>) -> Recorder {
        Box::new(self.sink).into_recorder()
    }
}
