//! The server's end of a connection of the load: receives it and replies to the probes in it, or sends it and puts the newest
//! probe of the client into its blocks.

use std::time::Duration;

use super::block::{BlockHeader, BlockNote, BlockReader, HEADER_BYTES};
use super::{RECEIVE_BYTES, UNSENT_BYTES, block_bytes};
use crate::link::party::{Party, Step, Tuning};
use crate::link::{Batch, Fault, Link, socket_settings};
use crate::workload::{Load, RecordingParty};
use linkgauge_model::clock::Time;
use linkgauge_model::sample::Recorder;

/// Maximum bytes of replies that may wait: a client that never reads them is stopped.
const MAX_PENDING_REPLY_BYTES: usize = 16 * 1024;

/// Interval between counts of the load that has arrived.
const COUNT_INTERVAL: Duration = Duration::from_millis(100);

/// Interval between looks for a probe while sending.
const PROBE_CHECK_INTERVAL: Duration = Duration::from_millis(1);

/// State of a connection whose load has any direction.
struct ConnectionState {
    tuning: Option<Tuning>,
    batch: Batch,
    reader: BlockReader,
    /// Number of bytes of the load so far.
    position: u64,
    is_closed: bool,
    fault: Option<Fault>,
    recorder: Recorder,
}

impl ConnectionState {
    pub fn new(load: &Load, receive_bytes: usize, recorder: Recorder) -> ConnectionState {
        ConnectionState {
            tuning: Some(load.batch_tuning()),
            batch: Batch::new(receive_bytes, 1),
            reader: BlockReader::default(),
            position: 0,
            is_closed: false,
            fault: None,
            recorder,
        }
    }

    /// Step that comes before all others: tuning, a fault, the end.
    fn first_step(&mut self) -> Option<Step<'static>> {
        let tuning = self.tuning.take().map(Step::Tune);
        tuning.or_else(|| self.fault.take().map(Step::Fail)).or_else(|| self.is_closed.then_some(Step::Done))
    }
}

/// Receives the load and returns its probes.
pub struct ProbedReceiver {
    connection: ConnectionState,
    replies: Vec<u8>,
    next_count: Time,
    /// Number of bytes in the last count.
    counted: u64,
    block_bytes: u64,
}

impl ProbedReceiver {
    /// Memory of a receiver, in bytes.
    pub(crate) const MEMORY_BYTES: usize = RECEIVE_BYTES + MAX_PENDING_REPLY_BYTES;

    /// A receiver for one connection.
    pub fn new(load: &Load, recorder: Recorder) -> ProbedReceiver {
        ProbedReceiver {
            connection: ConnectionState::new(load, RECEIVE_BYTES, recorder),
            replies: Vec::with_capacity(MAX_PENDING_REPLY_BYTES),
            next_count: Time(0),
            counted: 0,
            block_bytes: block_bytes(load) as u64,
        }
    }

    /// Bytes received so far.
    pub fn position(&self) -> u64 {
        self.connection.position
    }

    /// Sends a count of the received bytes, unless a count was sent a moment ago.
    fn count(&mut self, now: Time) {
        let has_room = self.replies.len() + HEADER_BYTES <= MAX_PENDING_REPLY_BYTES;
        if now >= self.next_count && self.connection.position > self.counted && has_room {
            (self.next_count, self.counted) = (now + COUNT_INTERVAL, self.connection.position);
            self.replies.extend_from_slice(&BlockHeader::count(self.counted).encode());
        }
    }

    /// The last received batch.
    pub fn batch(&self) -> &Batch {
        &self.connection.batch
    }

    /// Whether the client has closed its side.
    pub(crate) fn has_seen_end(&self) -> bool {
        self.connection.is_closed
    }
}

impl Party for ProbedReceiver {
    fn next_step(&mut self, _now: Time) -> Step<'_> {
        if let Some(step) = self.connection.first_step() {
            return step;
        }
        if !self.replies.is_empty() {
            return Step::Send { bytes: &self.replies, message: self.replies.len() };
        }
        // A connection may starve beside others, and a client that has left is stopped by the limits of the server.
        let is_counted = self.counted == self.connection.position;
        let until = if is_counted { Time::NEVER } else { self.next_count };
        Step::Receive { into: &mut self.connection.batch, until }
    }

    fn on_sent(&mut self, bytes: usize, _at: Time) {
        self.replies.drain(..bytes);
    }

    fn on_received(&mut self, now: Time) {
        for chunk in self.connection.batch.messages() {
            let bytes = chunk.len() as u64;
            let replies = &mut self.replies;
            let mut is_flooded = false;
            let read = self.connection.reader.push(chunk, |note| {
                let BlockNote::Probe(number) = note else { return };
                is_flooded |= replies.len() + HEADER_BYTES > MAX_PENDING_REPLY_BYTES;
                if !is_flooded {
                    replies.extend_from_slice(&BlockHeader::alone(number).encode());
                }
            });
            self.connection.fault = read.err().or(self.connection.fault.take());
            if is_flooded {
                self.connection.fault = Some(Fault::LimitReached("too many probes at once".to_owned()));
            }
            if self.connection.recorder.first_instant.is_none() {
                self.connection.recorder.begin_with_bytes(now, bytes);
            }
            let blocks = (self.connection.position + bytes) / self.block_bytes
                - self.connection.position / self.block_bytes;
            self.connection.position += bytes;
            self.connection.recorder.record_delivery(now, blocks, bytes);
        }
        self.count(now);
    }

    /// Counts the rest of a burst as well.
    fn on_timeout(&mut self, now: Time) {
        self.count(now);
    }

    fn on_closed(&mut self, _now: Time) -> Result<(), Fault> {
        self.connection.is_closed = true;
        Ok(())
    }
}

impl RecordingParty for ProbedReceiver {
    fn recorder(&self) -> &Recorder {
        &self.connection.recorder
    }

    fn into_recorder(self: Box<Self>) -> Recorder {
        self.connection.recorder
    }
}

/// Sends the load from the first probe on, with the newest probe in each block.
pub struct ProbedSender {
    connection: ConnectionState,
    newest_probe: u64,
    block: Vec<u8>,
    sent_bytes: usize,
    next_check: Time,
}

/// Bytes of one receive of a sender, which receives only probes.
const PROBE_RECEIVE_BYTES: usize = 64 * HEADER_BYTES;

impl ProbedSender {
    /// Memory of a sender, in bytes.
    pub(crate) fn memory_bytes(load: &Load) -> usize {
        PROBE_RECEIVE_BYTES + block_bytes(load)
    }

    /// A sender for one connection.
    pub fn new(load: &Load, recorder: Recorder) -> ProbedSender {
        ProbedSender {
            connection: ConnectionState::new(load, PROBE_RECEIVE_BYTES, recorder),
            newest_probe: 0,
            block: vec![0xA5; block_bytes(load)],
            sent_bytes: 0,
            next_check: Time(0),
        }
    }

    /// Bytes sent so far.
    pub fn position(&self) -> u64 {
        self.connection.position
    }

    /// The last received batch.
    pub fn batch(&self) -> &Batch {
        &self.connection.batch
    }
}

impl Party for ProbedSender {
    fn next_step(&mut self, now: Time) -> Step<'_> {
        if let Some(step) = self.connection.first_step() {
            return step;
        }
        if self.newest_probe == 0 {
            return Step::Receive { into: &mut self.connection.batch, until: Time::NEVER };
        }
        if now >= self.next_check {
            self.next_check = now + PROBE_CHECK_INTERVAL;
            return Step::Receive { into: &mut self.connection.batch, until: now };
        }
        if self.sent_bytes == 0 {
            let header = BlockHeader { block_bytes: self.block.len() as u32, probe: self.newest_probe };
            self.block[..HEADER_BYTES].copy_from_slice(&header.encode());
        }
        let rest = &self.block[self.sent_bytes..];
        Step::Send { bytes: rest, message: rest.len() }
    }

    fn on_sent(&mut self, bytes: usize, at: Time) {
        if bytes == 0 {
            return;
        }
        if self.connection.recorder.first_instant.is_none() {
            self.connection.recorder.begin(at);
        }
        self.connection.position += bytes as u64;
        self.sent_bytes += bytes;
        let blocks = u64::from(self.sent_bytes == self.block.len());
        if blocks > 0 {
            self.sent_bytes = 0;
        }
        self.connection.recorder.counts.sent += blocks;
        self.connection.recorder.record_delivery(at, blocks, bytes as u64);
    }

    fn on_received(&mut self, _now: Time) {
        for chunk in self.connection.batch.messages() {
            let newest = &mut self.newest_probe;
            let read = self.connection.reader.push(chunk, |note| {
                if let BlockNote::Probe(number) = note {
                    *newest = number;
                }
            });
            self.connection.fault = read.err().or(self.connection.fault.take());
        }
    }

    fn on_timeout(&mut self, _now: Time) {}

    fn on_closed(&mut self, _now: Time) -> Result<(), Fault> {
        self.connection.is_closed = true;
        Ok(())
    }

    /// Limits the unsent bytes, so that probes do not wait in this host.
    fn on_tuned(&mut self, link: &dyn Link) {
        socket_settings::limit_unsent_bytes(link.descriptor(), UNSENT_BYTES);
    }
}

impl RecordingParty for ProbedSender {
    fn recorder(&self) -> &Recorder {
        &self.connection.recorder
    }

    fn into_recorder(self: Box<Self>) -> Recorder {
        self.connection.recorder
    }
}
