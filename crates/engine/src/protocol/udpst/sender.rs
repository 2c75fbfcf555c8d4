//! The sender of a load. The sender of a client obeys the rows of the server; that of a server follows its search.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::rates::RowSearch;
use super::transmitters::{DueDatagrams, SizeLimits, Transmitters};
use super::wire::{RANDOM_SIZE, Row, STATUS_BYTES, STOP, SplitTime, StatusMessage, TEST, UdpstLoad};
use crate::link::party::{Party, Step, Tuning};
use crate::link::{Batch, Fault};
use crate::protocol::stamp::time::WallClock;
use crate::workload::capacity::{Side, ip_rate_bps};
use crate::workload::{FlowReport, RecordingParty};
use linkgauge_model::clock::Time;
use linkgauge_model::sample::Recorder;

/// Maximum datagrams of one send.
const MAX_BATCH: usize = 32;

/// Statuses received at once.
const MAX_STATUSES: usize = 8;

/// Trial intervals without a status after which the sender is at its slowest: the receiver may be gone.
const MAX_SILENT_INTERVALS: u32 = 4;

/// Time for which a server sends that it stops.
const STOPPING_TIME: Duration = Duration::from_secs(1);

/// Interval between checks for a status while datagrams are always due.
const STATUS_CHECK_INTERVAL: Duration = Duration::from_millis(2);

/// The slowest row.
const SLOWEST: Row =
    Row { intervals: [0, 50_000], payloads: [0, 0], bursts: [0, 0], addon: 1222 | RANDOM_SIZE };

/// Test as both ends agreed on it.
#[derive(Clone)]
pub(super) struct TestSettings {
    pub(super) side: Side,
    pub(super) tuning: Tuning,
    pub(super) sizes: SizeLimits,
    /// Time of the load, after which it ends.
    pub(super) time: Duration,
    /// Time without a message of the other end after which it is gone.
    pub(super) timeout: Duration,
    pub(super) trial_interval: Duration,
    /// Length of a sub-interval.
    pub(super) period: Duration,
    pub(super) wall_clock: WallClock,
    /// Whether the receiver must not send more than it gets.
    pub(super) is_balanced: bool,
}

/// Counts of the sub-intervals that a receiver has reported.
#[derive(Debug, Clone, Default)]
pub(super) struct ReportedLoad {
    /// Number of the last sub-interval.
    number: u32,
    datagrams: u64,
    bytes: u64,
    lost: u64,
    duplicate: u64,
    reordered: u64,
    elapsed: Duration,
    rates: Vec<f64>,
}

impl ReportedLoad {
    /// Datagrams that were sent in these sub-intervals.
    fn sent(&self) -> u64 {
        (self.datagrams + self.lost).saturating_sub(self.duplicate)
    }

    /// The report of a flow.
    pub(super) fn report(&self, port: usize) -> Option<FlowReport> {
        (self.number > 0).then(|| FlowReport {
            port,
            bytes: self.bytes,
            messages: self.datagrams.saturating_sub(self.duplicate),
            elapsed_ns: self.elapsed.as_nanos() as u64,
            duplicate: self.duplicate,
            reordered: self.reordered,
            ..FlowReport::default()
        })
    }

    /// Adds the sub-interval of a status. `sent`: datagrams and bytes so far. Returns `false` if its counts are impossible.
    fn add(
        &mut self,
        status: &StatusMessage,
        sent: (u64, u64),
        since_begin: Duration,
        period: Duration,
    ) -> bool {
        if status.sub_interval <= self.number {
            return true;
        }
        let tally = &status.sub_tally;
        let time = Duration::from_micros(status.sub_us.into());
        let mut sum = self.clone();
        sum.number = status.sub_interval;
        sum.datagrams += u64::from(tally.datagrams);
        sum.bytes = sum.bytes.saturating_add(tally.bytes);
        sum.lost += u64::from(tally.lost);
        sum.duplicate += u64::from(tally.duplicate);
        sum.reordered += u64::from(tally.reordered);
        sum.elapsed += time;
        // A network that duplicates datagrams is no reason for a rate above that of the sender.
        let is_possible = sum.sent() <= sent.0
            && sum.bytes <= sent.1
            && sum.number.max(1) as u128 * period.as_nanos() <= 2 * since_begin.as_nanos()
            && time >= period / 2
            && sum.elapsed <= since_begin + period;
        if is_possible {
            sum.rates.push(ip_rate_bps(tally.datagrams.into(), tally.bytes, time));
            *self = sum;
        }
        is_possible
    }
}

/// Reported load of a sender, for the session.
pub(super) type SharedReportedLoad = Arc<Mutex<ReportedLoad>>;

/// Last status.
struct HeardStatus {
    at: Time,
    number: u32,
    time: SplitTime,
    /// Statuses that were missing before it.
    gap: u16,
}

/// Whether the load goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SenderStage {
    Sending,
    /// Says that it stops, since this time.
    Stopping(Time),
    Finished,
}

/// Sender of a load.
pub(super) struct UdpstSender {
    settings: TestSettings,
    must_tune: bool,
    transmitters: Transmitters,
    /// Row of the other end, or of the search.
    row: Row,
    search: Option<RowSearch>,
    /// No status arrives, so the load is at its slowest.
    is_muted: bool,
    batch: Batch,
    /// Datagrams back to back; only their headers change.
    datagrams: Vec<u8>,
    offered: DueDatagrams,
    number: u32,
    sent_bytes: u64,
    began_at: Option<Time>,
    heard: Option<HeardStatus>,
    next_check: Time,
    stage: SenderStage,
    report: SharedReportedLoad,
    recorder: Recorder,
}

impl UdpstSender {
    /// Memory of a sender, in bytes.
    pub(super) fn memory_bytes(max_payload: u32) -> u64 {
        max_payload as u64 * MAX_BATCH as u64 + Batch::bytes_for(STATUS_BYTES, MAX_STATUSES) as u64
    }

    /// A sender that begins with this row, or with that of the search.
    pub(super) fn new(
        settings: TestSettings,
        row: Row,
        search: Option<RowSearch>,
        recorder: Recorder,
    ) -> UdpstSender {
        UdpstSender {
            must_tune: true,
            transmitters: Transmitters::new(settings.sizes),
            row,
            search,
            is_muted: false,
            batch: Batch::new(STATUS_BYTES, MAX_STATUSES),
            datagrams: vec![0; settings.sizes.max_payload as usize * MAX_BATCH],
            offered: DueDatagrams::default(),
            number: 0,
            sent_bytes: 0,
            began_at: None,
            heard: None,
            next_check: Time(0),
            stage: SenderStage::Sending,
            report: SharedReportedLoad::default(),
            recorder,
            settings,
        }
    }

    /// Shared place of what the receiver reports.
    pub(super) fn shared_report(&self) -> SharedReportedLoad {
        self.report.clone()
    }

    /// Whether nothing has been received of the test.
    pub(super) fn is_unheard(&self) -> bool {
        self.heard.is_none()
    }

    /// The last received batch.
    pub(super) fn batch(&self) -> &Batch {
        &self.batch
    }

    /// Ends the load, or slows it down, as time passes.
    fn check_times(&mut self, now: Time, began: Time) -> Option<Step<'static>> {
        let heard = self.heard.as_ref().map_or(began, |heard| heard.at);
        match self.stage {
            SenderStage::Finished => return Some(Step::Done),
            SenderStage::Stopping(since) if now > since + STOPPING_TIME => return Some(Step::Done),
            SenderStage::Sending if now >= began + self.settings.time => {
                self.stage = SenderStage::Stopping(now)
            }
            SenderStage::Sending | SenderStage::Stopping(_) => {}
        }
        if now > heard + self.settings.timeout {
            return Some(match self.settings.side {
                Side::Server => Step::Done,
                Side::Client => Step::Fail(Fault::NoReply(
                    "the receiver reports nothing: check the network and firewalls".to_owned(),
                )),
            });
        }
        let is_silent = now > heard + self.settings.trial_interval * MAX_SILENT_INTERVALS;
        if is_silent && !self.is_muted {
            self.is_muted = true;
            self.transmitters.set_row(SLOWEST, now);
        }
        None
    }

    fn offer(&mut self, now: Time) -> Step<'_> {
        let due = self.offered;
        let size = due.size as usize;
        let time = SplitTime::from_unix_ns(self.settings.wall_clock.unix_ns_at(now));
        let heard = self.heard.as_ref();
        let age = heard.map_or(0, |heard| now.since(heard.at).as_millis().min(u16::MAX.into()) as u16);
        let action = if self.stage == SenderStage::Sending { TEST } else { STOP };
        let offered = &mut self.datagrams[..size * due.count as usize];
        for (index, datagram) in offered.chunks_mut(size).enumerate() {
            let header = UdpstLoad {
                action,
                number: self.number.wrapping_add(1 + index as u32),
                size: size as u16,
                status_gap: heard.map_or(0, |heard| heard.gap),
                status_time: heard.map_or(SplitTime::default(), |heard| heard.time),
                time,
                status_age: age,
            };
            header.write(datagram);
        }
        Step::Send { bytes: offered, message: size }
    }

    fn apply(&mut self, status: &StatusMessage, now: Time) {
        let last = self.heard.as_ref().map_or(0, |heard| heard.number);
        let gap = match status.number {
            number if number > last => (number - last - 1).min(u32::from(u16::MAX) - 1) as u16,
            _ => u16::MAX,
        };
        self.heard = Some(HeardStatus { at: now, number: status.number.max(last), time: status.time, gap });
        if status.action != TEST {
            // The client answers with its next datagram; a server is done.
            self.stage = match (self.settings.side, self.stage) {
                (Side::Client, SenderStage::Sending) => SenderStage::Stopping(now),
                (Side::Client, stage) => stage,
                (Side::Server, _) => SenderStage::Finished,
            };
        }
        match &mut self.search {
            Some(search) => {
                let is_too_slow = self.transmitters.take_lost_time() > self.settings.trial_interval / 5;
                search.end_interval(status, is_too_slow);
                self.row = search.row();
            }
            None => {
                self.row = status.row;
                self.add_report(status, now);
            }
        }
        self.is_muted = false;
        self.transmitters.set_row(self.row, now);
    }

    fn add_report(&mut self, status: &StatusMessage, now: Time) {
        let since_begin = now.since(self.began_at.unwrap_or(now));
        let sent = (self.number.into(), self.sent_bytes);
        let mut report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        let is_possible = report.add(status, sent, since_begin, self.settings.period);
        self.recorder.counts.corrupt_messages += u64::from(!is_possible);
    }
}

impl Party for UdpstSender {
    fn next_step(&mut self, now: Time) -> Step<'_> {
        if std::mem::take(&mut self.must_tune) {
            return Step::Tune(self.settings.tuning);
        }
        let began = match self.began_at {
            Some(began) => began,
            None => {
                self.began_at = Some(now);
                self.transmitters.set_row(self.row, now);
                now
            }
        };
        if let Some(step) = self.check_times(now, began) {
            return step;
        }
        if now >= self.next_check {
            self.next_check = now + STATUS_CHECK_INTERVAL;
            return Step::Receive { into: &mut self.batch, until: now };
        }
        match self.transmitters.due(now) {
            Ok(due) => {
                let most = if self.stage == SenderStage::Sending { MAX_BATCH as u32 } else { 1 };
                self.offered = DueDatagrams { count: due.count.min(most), ..due };
                self.offer(now)
            }
            Err(next) => {
                let until = next.min(now + self.settings.trial_interval);
                Step::Receive { into: &mut self.batch, until }
            }
        }
    }

    fn on_sent(&mut self, bytes: usize, at: Time) {
        let count = (bytes / (self.offered.size.max(1) as usize)) as u32;
        if count == 0 {
            return;
        }
        if self.recorder.first_instant.is_none() {
            self.recorder.begin(at);
        }
        self.number = self.number.wrapping_add(count);
        self.sent_bytes += bytes as u64;
        self.transmitters.note_sent(count);
        self.recorder.counts.sent += u64::from(count);
        self.recorder.record_delivery(at, count.into(), bytes as u64);
        if self.settings.side == Side::Client && self.stage != SenderStage::Sending {
            self.stage = SenderStage::Finished;
        }
    }

    fn on_received(&mut self, now: Time) {
        let batch = std::mem::take(&mut self.batch);
        for message in batch.messages() {
            match StatusMessage::parse(message) {
                Some(status) => self.apply(&status, now),
                None => self.recorder.counts.corrupt_messages += 1,
            }
        }
        self.batch = batch;
    }

    fn on_timeout(&mut self, _now: Time) {}
}

impl RecordingParty for UdpstSender {
    fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    fn into_recorder(mut self: Box<Self>) -> Recorder {
        let report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        self.recorder.capacity_rates.clone_from(&report.rates);
        if report.number > 0 {
            // What was sent after the last report has no fate.
            self.recorder.counts.sent = report.sent();
        }
        drop(report);
        self.recorder
    }
}
