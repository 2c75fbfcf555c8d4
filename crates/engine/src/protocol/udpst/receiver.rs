//! The receiver of a load: counts, and sends a status every trial interval. That of a server also searches the rate.

use std::time::Duration;

use super::counter::LoadCounter;
use super::rates::RowSearch;
use super::sender::TestSettings;
use super::wire::{STATUS_BYTES, STOP, SplitTime, StatusMessage, TEST, UdpstLoad};
use crate::link::party::{Party, Step};
use crate::link::{Batch, Fault};
use crate::workload::RecordingParty;
use crate::workload::capacity::{Side, ip_rate_bps};
use linkgauge_model::clock::Time;
use linkgauge_model::sample::Recorder;

/// Maximum datagrams of one receive.
const MAX_BATCH: usize = 64;

/// Time without a load after which a status says that it has stopped.
const STOPPED_AFTER: Duration = Duration::from_secs(1);

/// Time for which a server says that it stops.
const STOPPING_TIME: Duration = Duration::from_secs(1);

/// Whether the test goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReceiverStage {
    Receiving,
    /// Says that it stops, since this time.
    Stopping(Time),
    Finished,
}

/// Receiver of a load.
pub(super) struct UdpstReceiver {
    settings: TestSettings,
    must_tune: bool,
    search: Option<RowSearch>,
    batch: Batch,
    counter: LoadCounter,
    encoded: [u8; STATUS_BYTES],
    number: u32,
    /// Beginning of the first load, of the trial interval and of the sub-interval.
    first_at: Option<Time>,
    trial_from: Time,
    sub_from: Time,
    sub_intervals: StatusMessage,
    newest_at: Option<Time>,
    next_status: Time,
    began_at: Option<Time>,
    received_bytes: u64,
    status_bytes: u64,
    stage: ReceiverStage,
    rates: Vec<f64>,
    recorder: Recorder,
}

impl UdpstReceiver {
    /// Memory of a receiver, in bytes.
    pub(super) fn memory_bytes(max_payload: u32) -> u64 {
        Batch::bytes_for(max_payload as usize, MAX_BATCH) as u64
    }

    /// A receiver; that of a server has a search.
    pub(super) fn new(
        settings: TestSettings,
        search: Option<RowSearch>,
        recorder: Recorder,
    ) -> UdpstReceiver {
        UdpstReceiver {
            must_tune: true,
            search,
            batch: Batch::new(settings.sizes.max_payload as usize, MAX_BATCH),
            counter: LoadCounter::default(),
            encoded: [0; STATUS_BYTES],
            number: 0,
            first_at: None,
            trial_from: Time(0),
            sub_from: Time(0),
            sub_intervals: StatusMessage::default(),
            newest_at: None,
            next_status: Time::NEVER,
            began_at: None,
            received_bytes: 0,
            status_bytes: 0,
            stage: ReceiverStage::Receiving,
            rates: Vec::new(),
            recorder,
            settings,
        }
    }

    /// Whether nothing has been received of the test.
    pub(super) fn is_unheard(&self) -> bool {
        self.first_at.is_none()
    }

    /// The last received batch.
    pub(super) fn batch(&self) -> &Batch {
        &self.batch
    }

    fn check_times(&mut self, now: Time, began: Time) -> Option<Step<'static>> {
        match self.stage {
            ReceiverStage::Finished => return Some(Step::Done),
            ReceiverStage::Stopping(since) if now > since + STOPPING_TIME => return Some(Step::Done),
            // The time of the test is that of its load.
            ReceiverStage::Receiving if now >= self.first_at.unwrap_or(now) + self.settings.time => {
                self.stage = ReceiverStage::Stopping(now);
            }
            ReceiverStage::Receiving | ReceiverStage::Stopping(_) => {}
        }
        let is_over = now > self.newest_at.unwrap_or(began) + self.settings.timeout;
        is_over.then_some(match self.settings.side {
            Side::Server => Step::Done,
            Side::Client => Step::Fail(Fault::TimedOut),
        })
    }

    /// Ends the sub-interval if it is long enough.
    fn end_sub_interval(&mut self, now: Time) {
        let time = now.since(self.sub_from);
        if time <= self.settings.period.saturating_sub(self.settings.trial_interval / 2) {
            return;
        }
        self.sub_from = now;
        let (tally, round_trips) = self.counter.end_sub_interval();
        self.rates.push(ip_rate_bps(tally.datagrams.into(), tally.bytes, time));
        let elapsed = now.since(self.first_at.unwrap_or(now));
        self.sub_intervals = StatusMessage {
            sub_interval: self.sub_intervals.sub_interval.saturating_add(1),
            sub_tally: tally,
            sub_us: micros(time),
            sub_round_trips: round_trips,
            elapsed_ms: elapsed.as_millis().min(u32::MAX.into()) as u32,
            ..StatusMessage::default()
        };
    }

    /// The status of the trial interval that ends now.
    fn end_trial_interval(&mut self, now: Time) {
        self.end_sub_interval(now);
        let wall = self.settings.wall_clock.unix_ns_at(now);
        let mut status = StatusMessage {
            action: if self.stage == ReceiverStage::Receiving { TEST } else { STOP },
            has_stopped: self.newest_at.is_some_and(|newest| now > newest + STOPPED_AFTER),
            number: self.number + 1,
            trial_us: micros(now.since(self.trial_from)),
            time: SplitTime::from_unix_ns(wall),
            ..self.sub_intervals
        };
        self.counter.end_trial_interval(&mut status);
        if let Some(search) = &mut self.search {
            search.end_interval(&status, false);
            status.row = search.row();
        }
        self.trial_from = now;
        self.encoded = status.encode();
    }

    fn take(&mut self, header: &UdpstLoad, now: Time, first: bool) {
        if first {
            (self.trial_from, self.sub_from) = (now, now);
            self.next_status = now + self.settings.trial_interval;
        }
        if header.action != TEST {
            // The client sends its last status; a server is done.
            self.stage = match (self.settings.side, self.stage) {
                (Side::Client, ReceiverStage::Receiving) => ReceiverStage::Stopping(now),
                (Side::Client, stage) => stage,
                (Side::Server, _) => ReceiverStage::Finished,
            };
        }
    }

    /// Whether the sender, which may be forged, has sent more than it would have got.
    fn may_send_status(&self) -> bool {
        !self.settings.is_balanced || self.status_bytes + STATUS_BYTES as u64 <= self.received_bytes
    }
}

fn micros(time: Duration) -> u32 {
    time.as_micros().min(u32::MAX.into()) as u32
}

impl Party for UdpstReceiver {
    fn next_step(&mut self, now: Time) -> Step<'_> {
        if std::mem::take(&mut self.must_tune) {
            return Step::Tune(self.settings.tuning);
        }
        let began = *self.began_at.get_or_insert(now);
        if let Some(step) = self.check_times(now, began) {
            return step;
        }
        let is_last = self.settings.side == Side::Client && self.stage != ReceiverStage::Receiving;
        if (now >= self.next_status || is_last) && self.may_send_status() {
            self.end_trial_interval(now);
            return Step::Send { bytes: &self.encoded, message: STATUS_BYTES };
        }
        let until =
            if self.next_status > now { self.next_status } else { now + self.settings.trial_interval };
        Step::Receive { into: &mut self.batch, until }
    }

    fn on_sent(&mut self, bytes: usize, at: Time) {
        if bytes == 0 {
            return;
        }
        self.number += 1;
        self.status_bytes += bytes as u64;
        let next = self.next_status + self.settings.trial_interval;
        self.next_status = if next > at { next } else { at + self.settings.trial_interval };
        if self.settings.side == Side::Client && self.stage != ReceiverStage::Receiving {
            self.stage = ReceiverStage::Finished;
        }
    }

    fn on_received(&mut self, now: Time) {
        let batch = std::mem::take(&mut self.batch);
        let wall = SplitTime::from_unix_ns(self.settings.wall_clock.unix_ns_at(now));
        let (mut datagrams, mut bytes) = (0, 0);
        for datagram in batch.messages() {
            let Some(header) = UdpstLoad::parse(datagram) else {
                self.recorder.counts.corrupt_messages += 1;
                continue;
            };
            datagrams += 1;
            bytes += datagram.len() as u64;
            self.counter.add(&header, datagram.len(), wall);
            self.take(&header, now, self.first_at.is_none());
            self.first_at.get_or_insert(now);
        }
        self.batch = batch;
        if datagrams == 0 {
            return;
        }
        self.received_bytes += bytes;
        self.newest_at = Some(now);
        if self.recorder.first_instant.is_none() {
            self.recorder.begin_with_bytes(now, bytes);
        }
        self.recorder.record_delivery(now, datagrams, bytes);
    }

    fn on_timeout(&mut self, _now: Time) {}
}

impl RecordingParty for UdpstReceiver {
    fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    fn into_recorder(mut self: Box<Self>) -> Recorder {
        self.recorder.capacity_rates = self.rates;
        let totals = self.counter.totals();
        let counts = &mut self.recorder.counts;
        // Copies are no messages of their own.
        counts.duplicate = totals.duplicate;
        counts.received = counts.received.saturating_sub(totals.duplicate);
        counts.reordered = totals.reordered;
        counts.sent = counts.received + totals.lost;
        self.recorder
    }
}
