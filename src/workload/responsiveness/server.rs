//! The server's end of a connection of the load: receives it and answers the probes in it, or sends it and puts the newest
//! probe of the client into its blocks.

use std::time::Duration;

use super::block::{BlockHeader, BlockReader, HEADER_BYTES};
use super::{RECEIVE_BYTES, UNSENT_BYTES, block_bytes};
use crate::clock::Time;
use crate::link::party::{Party, Step, Tuning};
use crate::link::{Batch, Fault, Link, socket_settings};
use crate::sample::Recorder;
use crate::workload::{Load, RecordingParty};

/// Replies that may wait: a client that never reads them is stopped.
const MAX_PENDING_REPLY_BYTES: usize = 16 * 1024;

/// Interval between looks for a probe while sending.
const PROBE_CHECK_INTERVAL: Duration = Duration::from_millis(1);

/// Receives the load and returns its probes.
pub struct AnsweringReceiver {
    tuning: Option<Tuning>,
    batch: Batch,
    reader: BlockReader,
    replies: Vec<u8>,
    timeout: Duration,
    /// Since when nothing has moved, once the load has begun.
    waiting_since: Option<Time>,
    block_bytes: u64,
    position: u64,
    is_closed: bool,
    fault: Option<Fault>,
    recorder: Recorder,
}

impl AnsweringReceiver {
    /// A receiver for one connection.
    pub fn new(load: &Load, recorder: Recorder) -> AnsweringReceiver {
        AnsweringReceiver {
            tuning: Some(load.batch_tuning()),
            batch: Batch::new(RECEIVE_BYTES, 1),
            reader: BlockReader::default(),
            replies: Vec::with_capacity(MAX_PENDING_REPLY_BYTES),
            timeout: load.timeout,
            waiting_since: None,
            block_bytes: block_bytes(load) as u64,
            position: 0,
            is_closed: false,
            fault: None,
            recorder,
        }
    }

    /// Bytes received so far.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The last received batch.
    pub fn batch(&self) -> &Batch {
        &self.batch
    }

    /// Whether the client has closed its side.
    pub fn has_seen_end(&self) -> bool {
        self.is_closed
    }
}

impl Party for AnsweringReceiver {
    fn next_step(&mut self, now: Time) -> Step<'_> {
        if let Some(tuning) = self.tuning.take() {
            return Step::Tune(tuning);
        }
        if let Some(fault) = self.fault.take() {
            return Step::Fail(fault);
        }
        if self.is_closed {
            return Step::Done;
        }
        let until = self.waiting_since.map_or(Time::NEVER, |since| since + self.timeout);
        if now > until {
            return Step::Fail(Fault::TimedOut);
        }
        if !self.replies.is_empty() {
            return Step::Send { bytes: &self.replies, message: self.replies.len() };
        }
        Step::Receive { into: &mut self.batch, until }
    }

    fn on_sent(&mut self, bytes: usize, _at: Time) {
        self.replies.drain(..bytes);
    }

    fn on_received(&mut self, now: Time) {
        self.waiting_since = Some(now);
        for chunk in self.batch.messages() {
            let bytes = chunk.len() as u64;
            let replies = &mut self.replies;
            let mut is_flooded = false;
            let read = self.reader.push(chunk, |number| {
                is_flooded |= replies.len() + HEADER_BYTES > MAX_PENDING_REPLY_BYTES;
                if !is_flooded {
                    replies.extend_from_slice(&BlockHeader::alone(number).encode());
                }
            });
            self.fault = read.err().or(self.fault.take());
            if is_flooded {
                self.fault = Some(Fault::LimitReached("too many probes at once".to_owned()));
            }
            if self.recorder.first_instant.is_none() {
                self.recorder.begin_with_bytes(now, bytes);
            }
            let blocks = (self.position + bytes) / self.block_bytes - self.position / self.block_bytes;
            self.position += bytes;
            self.recorder.record_delivery(now, blocks, bytes);
        }
    }

    fn on_timeout(&mut self, _now: Time) {}

    fn on_closed(&mut self, _now: Time) -> Result<(), Fault> {
        self.is_closed = true;
        Ok(())
    }
}

impl RecordingParty for AnsweringReceiver {
    fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    fn into_recorder(self: Box<Self>) -> Recorder {
        self.recorder
    }
}

/// Sends the load from the first probe on, with the newest probe in each block.
pub struct AnsweringSender {
    tuning: Option<Tuning>,
    batch: Batch,
    reader: BlockReader,
    newest_probe: u64,
    block: Vec<u8>,
    sent_bytes: usize,
    next_check: Time,
    timeout: Duration,
    stalled_since: Option<Time>,
    position: u64,
    is_closed: bool,
    fault: Option<Fault>,
    recorder: Recorder,
}

impl AnsweringSender {
    /// A sender for one connection.
    pub fn new(load: &Load, recorder: Recorder) -> AnsweringSender {
        AnsweringSender {
            tuning: Some(load.batch_tuning()),
            batch: Batch::new(64 * HEADER_BYTES, 1),
            reader: BlockReader::default(),
            newest_probe: 0,
            block: vec![0xA5; block_bytes(load)],
            sent_bytes: 0,
            next_check: Time(0),
            timeout: load.timeout,
            stalled_since: None,
            position: 0,
            is_closed: false,
            fault: None,
            recorder,
        }
    }

    /// Bytes sent so far.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The last received batch.
    pub fn batch(&self) -> &Batch {
        &self.batch
    }
}

impl Party for AnsweringSender {
    fn next_step(&mut self, now: Time) -> Step<'_> {
        if let Some(tuning) = self.tuning.take() {
            return Step::Tune(tuning);
        }
        if let Some(fault) = self.fault.take() {
            return Step::Fail(fault);
        }
        if self.is_closed {
            return Step::Done;
        }
        if self.newest_probe == 0 {
            return Step::Receive { into: &mut self.batch, until: Time::NEVER };
        }
        if now >= self.next_check {
            self.next_check = now + PROBE_CHECK_INTERVAL;
            return Step::Receive { into: &mut self.batch, until: now };
        }
        if now > *self.stalled_since.get_or_insert(now) + self.timeout {
            return Step::Fail(Fault::TimedOut);
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
        if self.recorder.first_instant.is_none() {
            self.recorder.begin(at);
        }
        self.stalled_since = Some(at);
        self.position += bytes as u64;
        self.sent_bytes += bytes;
        let blocks = u64::from(self.sent_bytes == self.block.len());
        if blocks > 0 {
            self.sent_bytes = 0;
        }
        self.recorder.counts.sent += blocks;
        self.recorder.record_delivery(at, blocks, bytes as u64);
    }

    fn on_received(&mut self, _now: Time) {
        for chunk in self.batch.messages() {
            let newest = &mut self.newest_probe;
            let read = self.reader.push(chunk, |number| *newest = number);
            self.fault = read.err().or(self.fault.take());
        }
    }

    fn on_timeout(&mut self, _now: Time) {}

    fn on_closed(&mut self, _now: Time) -> Result<(), Fault> {
        self.is_closed = true;
        Ok(())
    }

    /// Probes shall not wait in this host.
    fn on_tuned(&mut self, link: &dyn Link) {
        socket_settings::limit_unsent_bytes(link.descriptor(), UNSENT_BYTES);
    }
}

impl RecordingParty for AnsweringSender {
    fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    fn into_recorder(self: Box<Self>) -> Recorder {
        self.recorder
    }
}
