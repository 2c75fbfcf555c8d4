//! Receiver: counts, and reports every trial interval. Client and server use the same code.

use std::time::Duration;

use super::meter::CapacityMeter;
use super::search::TRIAL_INTERVAL;
use super::sender::Side;
use super::wire::{LoadHeader, LoadStatus, STATUS_BYTES};
use crate::link::party::{Party, Step, Tuning};
use crate::link::{Batch, Fault, MAX_BATCH_MESSAGES};
use crate::workload::{Load, RecordingParty};
use linkgauge_model::clock::Time;
use linkgauge_model::sample::Recorder;

/// Maximum datagrams of one receive.
const MAX_BATCH: usize = if MAX_BATCH_MESSAGES < 64 { MAX_BATCH_MESSAGES } else { 64 };

/// Receiver of a capacity search.
pub struct CapacityReceiver {
    side: Side,
    tuning: Option<Tuning>,
    batch: Batch,
    meter: CapacityMeter,
    status: LoadStatus,
    encoded: [u8; STATUS_BYTES],
    /// Arrival time of the newest datagram.
    newest_at: Option<Time>,
    next_status: Option<Time>,
    began_at: Option<Time>,
    time: Duration,
    timeout: Duration,
    recorder: Recorder,
}

impl CapacityReceiver {
    /// Memory of a receiver, in bytes.
    pub(crate) fn memory_bytes(load: &Load) -> usize {
        Batch::bytes_for(load.message_bytes as usize, MAX_BATCH)
    }

    /// A receiver of one flow.
    pub fn new(side: Side, load: &Load, recorder: Recorder) -> CapacityReceiver {
        CapacityReceiver {
            side,
            tuning: Some(load.batch_tuning()),
            batch: Batch::new(load.message_bytes as usize, MAX_BATCH),
            meter: CapacityMeter::default(),
            status: LoadStatus::default(),
            encoded: [0; STATUS_BYTES],
            newest_at: None,
            next_status: None,
            began_at: None,
            time: load.stop.time_ns.map_or(Duration::MAX, Duration::from_nanos),
            timeout: load.timeout,
            recorder,
        }
    }

    /// Bytes received so far.
    pub fn position(&self) -> u64 {
        self.status.bytes
    }

    /// The last received batch.
    pub fn batch(&self) -> &Batch {
        &self.batch
    }

    /// Time of the next status. The client reports from the beginning, so that the server sends; the server reports once
    /// something has arrived.
    fn status_due(&mut self, now: Time) -> Time {
        if self.side == Side::Server && self.newest_at.is_none() {
            return Time::NEVER;
        }
        *self.next_status.get_or_insert(now)
    }
}

impl Party for CapacityReceiver {
    fn next_step(&mut self, now: Time) -> Step<'_> {
        if let Some(tuning) = self.tuning.take() {
            return Step::Tune(tuning);
        }
        let began = *self.began_at.get_or_insert(now);
        if self.side == Side::Client && now >= began + self.time {
            return Step::Done;
        }
        if self.side == Side::Client && now > self.newest_at.unwrap_or(began) + self.timeout {
            return Step::Fail(Fault::TimedOut);
        }
        let due = self.status_due(now);
        if due > now {
            return Step::Receive { into: &mut self.batch, until: due };
        }
        self.status.at_ns = now.0;
        self.status.newest_age_ns = self.newest_at.map_or(0, |at| now.since(at).as_nanos() as u64);
        self.meter.push(now.0, self.status.datagrams, self.status.bytes);
        self.encoded = self.status.encode();
        Step::Send { bytes: &self.encoded, message: STATUS_BYTES }
    }

    fn on_sent(&mut self, _bytes: usize, at: Time) {
        self.next_status = Some(at + TRIAL_INTERVAL);
    }

    fn on_received(&mut self, now: Time) {
        let (mut datagrams, mut bytes) = (0, 0);
        for datagram in self.batch.messages() {
            let Some(header) = LoadHeader::parse(datagram) else {
                self.recorder.counts.corrupt_messages += 1;
                continue;
            };
            datagrams += 1;
            bytes += datagram.len() as u64;
            if header.number > self.status.highest {
                (self.status.highest, self.status.newest_sent_ns) = (header.number, header.sent_ns);
                self.newest_at = Some(now);
            }
        }
        if datagrams == 0 {
            return;
        }
        self.status.datagrams += datagrams;
        self.status.bytes += bytes;
        if self.recorder.first_instant.is_none() {
            self.recorder.begin_with_bytes(now, bytes);
        }
        self.recorder.record_delivery(now, datagrams, bytes);
    }

    fn on_timeout(&mut self, _now: Time) {}
}

impl RecordingParty for CapacityReceiver {
    fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    fn into_recorder(mut self: Box<Self>) -> Recorder {
        self.recorder.capacity_rates = self.meter.into_rates();
        self.recorder
    }
}
