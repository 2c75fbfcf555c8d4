//! One connection to the logger: a party that takes frames out of what comes and sends answers when they are due.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use super::machine::{Due, Machine};
use crate::clock::{SPIN, Time};
use crate::link::party::{Party, Step};
use crate::link::{Batch, Caps, Fault};
use crate::peer::Service;
use crate::peer::pakbus::frame::{self, Decoder, SYNC};

/// Bytes taken from a link at once.
const PIECE: usize = 4096;

/// A connection on which nothing comes for so long is closed. A line stays open for ever.
const IDLE: Duration = Duration::from_secs(600);

/// A client wakes a logger with so many sync bytes, and this long after them a logger that has heard nothing else says
/// hello. PyCampbellCR1000 waits for any packet before it asks, twice its time-out otherwise; clients that ask at once
/// never see it.
const ATTENTION: usize = 6;
const ATTENTION_PAUSE: Duration = Duration::from_millis(100);

/// The logger that all connections share.
#[derive(Clone)]
pub struct Shared(Arc<Mutex<Machine>>);

impl Shared {
    pub fn new(machine: Machine) -> Shared {
        Shared(Arc::new(Mutex::new(machine)))
    }

    pub fn machine(&self) -> MutexGuard<'_, Machine> {
        // A connection that panicked leaves nothing half done that the others could not bear.
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Service for Shared {
    fn party(&self, caps: &Caps, _from: &str) -> Box<dyn Party> {
        Box::new(Connection::new(self.clone(), caps))
    }

    fn speaks_first(&self, _caps: &Caps) -> bool {
        true
    }
}

/// The logger's end of a link.
pub struct Connection {
    logger: Shared,
    decoder: Decoder,
    received: Batch,
    /// Answers, the next one on top; those due at the same time in the order in which they were made.
    due: BinaryHeap<Reverse<(Time, u64, Vec<u8>)>>,
    made: u64,
    /// The frames under way, and how much of them is sent.
    outgoing: Vec<u8>,
    sent: usize,
    idle: Option<Duration>,
    heard: Option<Time>,
    /// Sync bytes since anything else came.
    syncs: usize,
    /// When a client that woke the logger and asked nothing is greeted.
    greets: Option<Time>,
    closed: bool,
}

impl Connection {
    pub fn new(logger: Shared, caps: &Caps) -> Connection {
        Connection {
            logger,
            decoder: Decoder::default(),
            received: Batch::new(PIECE, 1),
            due: BinaryHeap::new(),
            made: 0,
            outgoing: Vec::new(),
            sent: 0,
            idle: caps.closes.then_some(IDLE),
            heard: None,
            syncs: 0,
            greets: None,
            closed: false,
        }
    }

    /// Moves what is due by now to the outgoing frames.
    fn fetch(&mut self, now: Time) {
        self.outgoing.clear();
        self.sent = 0;
        if self.greets.is_some_and(|greets| greets <= now) {
            self.greets = None;
            frame::write(&self.logger.machine().greeting(), &mut self.outgoing);
        }
        while let Some(due) = self.due.peek_mut()
            && due.0.0 <= now
        {
            let Reverse((_, _, packet)) = PeekMut::pop(due);
            frame::write(&packet, &mut self.outgoing);
        }
    }

    /// Notices a client that wakes the logger and then waits.
    fn watch_attention(&mut self, now: Time) {
        for piece in self.received.messages() {
            let syncs = piece.iter().rev().take_while(|byte| **byte == SYNC).count();
            let nothing_else = syncs == piece.len();
            self.syncs = if nothing_else { self.syncs.saturating_add(syncs) } else { 0 };
        }
        self.greets = (self.syncs >= ATTENTION).then(|| self.greets.unwrap_or(now + ATTENTION_PAUSE));
    }

    fn hear(&mut self, now: Time) {
        self.watch_attention(now);
        let mut machine = self.logger.machine();
        let mut say = Vec::new();
        for mut piece in self.received.messages() {
            while !piece.is_empty() {
                let (used, packet) = self.decoder.read(piece);
                packet.into_iter().for_each(|packet| machine.hear(packet, now, &mut say));
                piece = &piece[used..];
            }
        }
        let counts = self.decoder.take_counts();
        machine.counters.damaged += counts.bad_signatures + counts.malformed;
        for Due { at, packet } in say {
            self.made += 1;
            self.due.push(Reverse((at, self.made, packet)));
        }
    }
}

impl Party for Connection {
    fn next(&mut self, now: Time) -> Step<'_> {
        if self.sent == self.outgoing.len() {
            self.fetch(now);
        }
        if self.sent < self.outgoing.len() {
            return Step::Send { bytes: &self.outgoing[self.sent..], message: usize::MAX };
        }
        let due = self.due.peek().map_or(Time::NEVER, |due| due.0.0);
        let due = due.min(self.greets.unwrap_or(Time::NEVER));
        let idle = self.idle.map_or(Time::NEVER, |idle| *self.heard.get_or_insert(now) + idle);
        if due == Time::NEVER && (self.closed || now >= idle) {
            return Step::Done;
        }
        if self.closed {
            return Step::Sleep(due);
        }
        // A timer wakes late; the last moment before an answer is spent awake.
        let awake = Time(due.0.saturating_sub(SPIN.as_nanos() as u64));
        if now >= awake {
            return Step::Sleep(due);
        }
        Step::Receive { into: &mut self.received, until: awake.min(idle) }
    }

    fn sent(&mut self, bytes: usize, _at: Time) {
        self.sent += bytes;
    }

    fn received(&mut self, now: Time) {
        self.heard = Some(now);
        self.hear(now);
    }

    fn timed_out(&mut self, _now: Time) {}

    fn closed(&mut self, _now: Time) -> Result<(), Fault> {
        // Who closed one half may still be reading the other.
        self.closed = true;
        Ok(())
    }
}
