//! One connection to the logger: a party that extracts frames from the input and sends replies when they are due.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use super::machine::{DuePacket, LoggerMachine};
use linkgauge_engine::link::party::{Party, Step};
use linkgauge_engine::link::{Batch, Caps, Fault};
use linkgauge_engine::protocol::Service;
use linkgauge_engine::protocol::pakbus::frame::{self, FrameDecoder, SYNC_BYTE};
use linkgauge_model::clock::{BUSY_POLL_LEAD, Time};

/// Maximum number of bytes read from a link at once.
const MAX_CHUNK_BYTES: usize = 4096;

/// A network connection without input is closed after this time. A serial line stays open.
const IDLE_TIMEOUT: Duration = Duration::from_secs(600);

/// A client wakes a logger with this many sync bytes. If nothing else follows within the delay below, the logger sends
/// a hello. PyCampbellCR1000 waits for a packet before its first request, otherwise for twice its timeout. Clients
/// that send a request at once never see the hello.
const WAKE_UP_SYNC_BYTES: usize = 6;
const GREETING_DELAY: Duration = Duration::from_millis(100);

/// The logger that all connections share.
#[derive(Clone)]
pub(crate) struct SharedMachine(Arc<Mutex<LoggerMachine>>);

impl SharedMachine {
    pub fn new(machine: LoggerMachine) -> SharedMachine {
        SharedMachine(Arc::new(Mutex::new(machine)))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, LoggerMachine> {
        // A panic in one connection leaves no state that the others cannot use.
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Service for SharedMachine {
    fn new_party(&self, caps: &Caps, _from: &str) -> Box<dyn Party> {
        Box::new(LoggerConnection::new(self.clone(), caps))
    }

    fn speaks_first(&self, _caps: &Caps) -> bool {
        true
    }
}

/// The logger's side of a link.
pub(crate) struct LoggerConnection {
    logger: SharedMachine,
    decoder: FrameDecoder,
    received: Batch,
    /// Replies, the next one on top. Those due at the same time keep their order.
    pending: BinaryHeap<Reverse<(Time, u64, Vec<u8>)>>,
    next_sequence: u64,
    /// The frames being sent, and how many of their bytes were sent.
    outgoing: Vec<u8>,
    sent_bytes: usize,
    idle_timeout: Option<Duration>,
    last_received: Option<Time>,
    /// Consecutive sync bytes.
    sync_bytes: usize,
    /// Time to greet a client that woke the logger without a request.
    greeting_due: Option<Time>,
    is_closed: bool,
}

impl LoggerConnection {
    pub fn new(logger: SharedMachine, caps: &Caps) -> LoggerConnection {
        LoggerConnection {
            logger,
            decoder: FrameDecoder::default(),
            received: Batch::new(MAX_CHUNK_BYTES, 1),
            pending: BinaryHeap::new(),
            next_sequence: 0,
            outgoing: Vec::new(),
            sent_bytes: 0,
            idle_timeout: caps.can_signal_close.then_some(IDLE_TIMEOUT),
            last_received: None,
            sync_bytes: 0,
            greeting_due: None,
            is_closed: false,
        }
    }

    /// Appends the packets that are due to the outgoing frames.
    fn collect_due(&mut self, now: Time) {
        self.outgoing.clear();
        self.sent_bytes = 0;
        if self.greeting_due.is_some_and(|greets| greets <= now) {
            self.greeting_due = None;
            frame::write(&self.logger.lock().greeting(), &mut self.outgoing);
        }
        while let Some(due) = self.pending.peek_mut()
            && due.0.0 <= now
        {
            let Reverse((_, _, packet)) = PeekMut::pop(due);
            frame::write(&packet, &mut self.outgoing);
        }
    }

    /// Detects a client that wakes the logger and then waits.
    fn detect_wake_up(&mut self, now: Time) {
        for chunk in self.received.messages() {
            let syncs = chunk.iter().rev().take_while(|byte| **byte == SYNC_BYTE).count();
            let nothing_else = syncs == chunk.len();
            self.sync_bytes = if nothing_else { self.sync_bytes.saturating_add(syncs) } else { 0 };
        }
        self.greeting_due = (self.sync_bytes >= WAKE_UP_SYNC_BYTES)
            .then(|| self.greeting_due.unwrap_or(now + GREETING_DELAY));
    }

    fn process_input(&mut self, now: Time) {
        self.detect_wake_up(now);
        let mut machine = self.logger.lock();
        let mut replies = Vec::new();
        for mut chunk in self.received.messages() {
            while !chunk.is_empty() {
                let (used, packet) = self.decoder.read(chunk);
                packet.into_iter().for_each(|packet| machine.handle_packet(packet, now, &mut replies));
                chunk = &chunk[used..];
            }
        }
        let counts = self.decoder.take_counts();
        machine.counters.damaged += counts.bad_signatures + counts.malformed;
        for DuePacket { at, packet } in replies {
            self.next_sequence += 1;
            self.pending.push(Reverse((at, self.next_sequence, packet)));
        }
    }
}

impl Party for LoggerConnection {
    fn next_step(&mut self, now: Time) -> Step<'_> {
        if self.sent_bytes == self.outgoing.len() {
            self.collect_due(now);
        }
        if self.sent_bytes < self.outgoing.len() {
            return Step::Send { bytes: &self.outgoing[self.sent_bytes..], message: usize::MAX };
        }
        let due = self.pending.peek().map_or(Time::NEVER, |due| due.0.0);
        let due = due.min(self.greeting_due.unwrap_or(Time::NEVER));
        let idle =
            self.idle_timeout.map_or(Time::NEVER, |idle| *self.last_received.get_or_insert(now) + idle);
        if due == Time::NEVER && (self.is_closed || now >= idle) {
            return Step::Done;
        }
        if self.is_closed {
            return Step::Sleep(due);
        }
        // A timer wakes late, so the last moment before a reply is busy-polled.
        let awake = Time(due.0.saturating_sub(BUSY_POLL_LEAD.as_nanos() as u64));
        if now >= awake {
            return Step::Sleep(due);
        }
        Step::Receive { into: &mut self.received, until: awake.min(idle) }
    }

    fn on_sent(&mut self, bytes: usize, _at: Time) {
        self.sent_bytes += bytes;
    }

    fn on_received(&mut self, now: Time) {
        self.last_received = Some(now);
        self.process_input(now);
    }

    fn on_timeout(&mut self, _now: Time) {}

    fn on_closed(&mut self, _now: Time) -> Result<(), Fault> {
        // A client that closed one direction may still read.
        self.is_closed = true;
        Ok(())
    }
}
