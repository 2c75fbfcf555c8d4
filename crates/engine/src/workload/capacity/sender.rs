//! Sender: its rate follows the search, which the receiver feeds. Client and server use the same code.

use std::time::Duration;

use super::meter::CapacityMeter;
use super::search::{RateSearch, TRIAL_INTERVAL};
use super::wire::{LOAD_HEADER_BYTES, LoadHeader, LoadStatus, STATUS_BYTES};
use crate::link::party::{Party, Step, Tuning};
use crate::link::{Batch, Caps, Fault};
use crate::workload::pattern::{Alphabet, PatternMessage};
use crate::workload::{Load, RecordingParty};
use linkgauge_model::clock::Time;
use linkgauge_model::sample::Recorder;

/// Maximum datagrams of one send.
const MAX_BATCH: usize = 32;

/// Maximum delay for which a sender sends more datagrams to catch up.
const MAX_LAG: Duration = Duration::from_millis(5);

/// Time without a status after which nothing is sent: the receiver may be gone, or may never have asked.
const STATUS_TIMEOUT: Duration = TRIAL_INTERVAL.saturating_mul(4);

/// Interval between checks for a status while datagrams are always due.
const STATUS_CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// Side of the measurement: the client sends at the lowest rate until a status arrives, the server waits for the first status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The end that measures.
    Client,
    /// The other end.
    Server,
}

/// Sender of a capacity search.
pub struct CapacitySender {
    side: Side,
    tuning: Option<Tuning>,
    search: RateSearch,
    meter: CapacityMeter,
    batch: Batch,
    /// Datagrams back to back; only their headers change.
    datagrams: Vec<u8>,
    datagram_bytes: usize,
    /// Number of the last datagram.
    number: u64,
    next_due: Option<Time>,
    next_check: Time,
    began_at: Option<Time>,
    time: Duration,
    timeout: Duration,
    last_status: Option<(Time, LoadStatus)>,
    shortest_rtt: Duration,
    recorder: Recorder,
}

impl CapacitySender {
    /// Maximum memory of a sender, in bytes: one datagram, and copies of it.
    pub(crate) fn memory_bytes(load: &Load) -> usize {
        (load.message_bytes as usize).max(LOAD_HEADER_BYTES).saturating_mul(1 + MAX_BATCH)
    }

    /// A sender of one flow.
    pub fn new(side: Side, load: &Load, caps: &Caps, recorder: Recorder) -> CapacitySender {
        let datagram_bytes = (load.message_bytes as usize).max(LOAD_HEADER_BYTES);
        let datagram = PatternMessage::new(datagram_bytes, Alphabet::from_caps(caps));
        CapacitySender {
            side,
            tuning: Some(load.batch_tuning()),
            search: RateSearch::default(),
            meter: CapacityMeter::default(),
            batch: Batch::new(2 * STATUS_BYTES, 1),
            datagrams: datagram.bytes().repeat(MAX_BATCH),
            datagram_bytes,
            number: 0,
            next_due: None,
            next_check: Time(0),
            began_at: None,
            // The client decides when the search ends.
            time: match side {
                Side::Client => load.stop.time_ns.map_or(Duration::MAX, Duration::from_nanos),
                Side::Server => Duration::MAX,
            },
            timeout: load.timeout,
            last_status: None,
            shortest_rtt: Duration::MAX,
            recorder,
        }
    }

    /// Bytes sent so far.
    pub fn position(&self) -> u64 {
        self.recorder.counts.delivered_bytes
    }

    /// The last received batch.
    pub fn batch(&self) -> &Batch {
        &self.batch
    }

    /// Whether the receiver has reported recently, or may not have had the time to report.
    fn may_send(&self, now: Time) -> bool {
        match self.last_status {
            Some((at, _)) => now <= at + STATUS_TIMEOUT,
            None => self.side == Side::Client,
        }
    }

    fn interval(&self) -> Duration {
        Duration::from_secs_f64(1.0 / self.search.datagrams_per_second(self.datagram_bytes as u32))
    }

    /// Number of datagrams that are due; as an error, the time of the next one.
    fn due_datagrams(&mut self, now: Time) -> Result<usize, Time> {
        let due = *self.next_due.get_or_insert(now);
        if due > now {
            return Err(due);
        }
        if now.since(due) > MAX_LAG {
            self.next_due = Some(now);
            return Ok(1);
        }
        let more = now.since(due).as_secs_f64() / self.interval().as_secs_f64();
        Ok((1 + more as usize).min(MAX_BATCH))
    }

    /// Applies a status: a trial interval is over.
    fn apply(&mut self, status: LoadStatus, now: Time) {
        let before = self.last_status.map_or_else(LoadStatus::default, |(_, before)| before);
        if self.last_status.is_some() && status.at_ns <= before.at_ns {
            return;
        }
        self.last_status = Some((now, status));
        self.meter.push(status.at_ns, status.datagrams, status.bytes);
        let arrived = status.datagrams.saturating_sub(before.datagrams);
        let passed = status.highest.saturating_sub(before.highest);
        if arrived == 0 && passed == 0 || status.highest > self.number {
            return;
        }
        let round_trip = now.0.saturating_sub(status.newest_sent_ns).saturating_sub(status.newest_age_ns);
        let round_trip = Duration::from_nanos(round_trip);
        self.shortest_rtt = self.shortest_rtt.min(round_trip);
        let late = round_trip - self.shortest_rtt;
        let row = self.search.row();
        self.search.end_interval(passed.saturating_sub(arrived), Some(late));
        if self.search.row() != row {
            // The next datagram is due after the new interval at the latest.
            let soon = now + self.interval();
            self.next_due = self.next_due.map(|due| due.min(soon));
        }
    }
}

impl Party for CapacitySender {
    fn next_step(&mut self, now: Time) -> Step<'_> {
        if let Some(tuning) = self.tuning.take() {
            return Step::Tune(tuning);
        }
        let began = *self.began_at.get_or_insert(now);
        if now >= began + self.time {
            return Step::Done;
        }
        let heard = match (self.last_status, self.side) {
            (Some((at, _)), _) => at,
            (None, Side::Client) => began,
            // The client may measure the idle link first.
            (None, Side::Server) => now,
        };
        if now > heard + self.timeout && self.side == Side::Server {
            // The client has ended, or is gone.
            return Step::Done;
        }
        if now > heard + self.timeout {
            return Step::Fail(Fault::NoReply(
                "the receiver reports nothing: check the network and firewalls".to_owned(),
            ));
        }
        if !self.may_send(now) {
            self.next_due = None;
            return Step::Receive { into: &mut self.batch, until: now + TRIAL_INTERVAL };
        }
        let due = self.due_datagrams(now);
        if due.is_ok() && now >= self.next_check {
            self.next_check = now + STATUS_CHECK_INTERVAL;
            return Step::Receive { into: &mut self.batch, until: now };
        }
        match due {
            Err(until) => Step::Receive { into: &mut self.batch, until },
            Ok(count) => {
                let offered = &mut self.datagrams[..count * self.datagram_bytes];
                for (index, datagram) in offered.chunks_mut(self.datagram_bytes).enumerate() {
                    LoadHeader { number: self.number + 1 + index as u64, sent_ns: now.0 }.write(datagram);
                }
                Step::Send { bytes: offered, message: self.datagram_bytes }
            }
        }
    }

    fn on_sent(&mut self, bytes: usize, at: Time) {
        let count = bytes / self.datagram_bytes;
        if count == 0 {
            return;
        }
        if self.recorder.first_instant.is_none() {
            self.recorder.begin(at);
        }
        self.number += count as u64;
        self.next_due = self.next_due.map(|due| due + self.interval() * count as u32);
        self.recorder.counts.sent += count as u64;
        self.recorder.record_delivery(at, count as u64, bytes as u64);
    }

    fn on_received(&mut self, now: Time) {
        let newest = self.batch.messages().filter_map(LoadStatus::parse).max_by_key(|status| status.at_ns);
        if let Some(status) = newest {
            self.apply(status, now);
        }
    }

    fn on_timeout(&mut self, _now: Time) {}
}

impl RecordingParty for CapacitySender {
    fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    fn into_recorder(mut self: Box<Self>) -> Recorder {
        self.recorder.capacity_rates = self.meter.into_rates();
        self.recorder
    }
}
