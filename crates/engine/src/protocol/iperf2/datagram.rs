//! The datagrams of a test: their header for sender and receiver, and the sender, which ends with a last datagram and
//! waits for the server's report.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::wire::{DatagramFormat, REPORT_BYTES, Report};
use crate::link::party::{Party, PartyCost, Step};
use crate::link::{Batch, Caps, Fault};
use crate::protocol::jitter::{JitterMeter, SharedJitter};
use crate::protocol::stamp::time::WallClock;
use crate::workload::throughput::Source;
use crate::workload::throughput::header::{HeaderCodec, ParsedHeader};
use crate::workload::{Load, RecordingParty};
use linkgauge_model::clock::Time;
use linkgauge_model::sample::Recorder;

/// The last datagram is sent again after this time without a report, this number of times in all.
const REPORT_INTERVAL: Duration = Duration::from_millis(250);
const MAX_LAST_DATAGRAMS: u32 = 10;

/// Fault of a test without a report.
const NO_REPORT: &str = "no report of an iperf 2 server arrived: it is not there, a firewall drops UDP, or it counts nothing, \
                         as that of ESP-IDF";

/// Layout of the datagrams of one sender.
#[derive(Clone)]
pub(crate) struct DatagramLayout {
    pub(crate) format: DatagramFormat,
    /// Settings in each datagram, behind number and time.
    pub(crate) settings: Vec<u8>,
    pub(crate) wall_clock: WallClock,
}

impl DatagramLayout {
    /// The number of the first datagram.
    fn first_number(&self) -> u64 {
        u64::from(self.format != DatagramFormat::OLD)
    }

    /// Writes the header of a datagram. The numbers here begin with 0.
    pub(crate) fn write(&self, datagram: &mut [u8], number: u64, now: Time) {
        let number = number.saturating_add(self.first_number()) as i64;
        self.write_number(datagram, number, now);
    }

    /// Writes the header of the last datagram, after this number of others.
    fn write_last(&self, datagram: &mut [u8], number: u64, now: Time) {
        // Never 0, which would be that of a first datagram.
        let number = number.saturating_add(self.first_number()).max(1) as i64;
        self.write_number(datagram, -number, now);
    }

    fn write_number(&self, datagram: &mut [u8], number: i64, now: Time) {
        self.format.write(datagram, number, self.wall_clock.unix_us_at(now));
        let room = datagram.get_mut(self.format.header_bytes..).unwrap_or_default();
        let length = room.len().min(self.settings.len());
        room[..length].copy_from_slice(&self.settings[..length]);
    }
}

/// The number of datagrams that a sender has sent, as its last one says.
#[derive(Debug, Clone)]
pub(crate) struct SharedTotal(Arc<AtomicU64>);

impl Default for SharedTotal {
    fn default() -> SharedTotal {
        SharedTotal(Arc::new(AtomicU64::new(u64::MAX)))
    }
}

impl SharedTotal {
    /// `None`: the last datagram has not arrived.
    pub(crate) fn get(&self) -> Option<u64> {
        Some(self.0.load(Relaxed)).filter(|total| *total != u64::MAX)
    }
}

/// The header of datagrams.
pub(crate) struct DatagramCodec {
    layout: DatagramLayout,
    jitter: JitterMeter,
    total: SharedTotal,
}

impl DatagramCodec {
    pub fn new(layout: DatagramLayout, jitter: SharedJitter, total: SharedTotal) -> DatagramCodec {
        DatagramCodec { layout, jitter: JitterMeter::new(jitter), total }
    }
}

impl HeaderCodec for DatagramCodec {
    fn length(&self) -> usize {
        self.layout.format.header_bytes
    }

    #[inline]
    fn write(&mut self, message: &mut [u8], number: u64, now: Time) {
        self.layout.write(message, number, now);
    }

    #[inline]
    fn read(&mut self, message: &[u8], _next: u64, now: Time) -> ParsedHeader {
        let Some(head) = self.layout.format.read(message) else { return ParsedHeader::Foreign };
        let Some(number) = head.number.checked_sub(self.layout.first_number()) else {
            return ParsedHeader::Foreign;
        };
        if head.is_last {
            self.total.0.store(number, Relaxed);
            return ParsedHeader::End;
        }
        self.jitter.observe(head.sent_us as i64, now);
        ParsedHeader::Sequence(number)
    }
}

/// The server's report, once it has arrived.
pub(crate) type SharedReport = Arc<Mutex<Option<Report>>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DatagramSendStage {
    Payload,
    /// Sends the last datagram, since this time.
    LastDatagram(Time),
    AwaitingReport(Time),
    Finished,
}

/// The sender of a test, at either end.
pub(crate) struct DatagramSender {
    source: Source,
    layout: DatagramLayout,
    last: Vec<u8>,
    stage: DatagramSendStage,
    /// Last datagrams sent.
    lasts_sent: u32,
    expects_report: bool,
    timeout: Duration,
    report: SharedReport,
    batch: Batch,
}

impl DatagramSender {
    /// A sender whose receiver reports.
    pub fn new(load: &Load, caps: &Caps, recorder: Recorder, layout: DatagramLayout) -> DatagramSender {
        let codec = DatagramCodec::new(layout.clone(), SharedJitter::default(), SharedTotal::default());
        DatagramSender {
            source: Source::new(load, caps, recorder).with_header(Box::new(codec), caps).without_finish(),
            layout,
            last: vec![0; load.message_bytes as usize],
            stage: DatagramSendStage::Payload,
            lasts_sent: 0,
            expects_report: true,
            timeout: load.timeout,
            report: SharedReport::default(),
            batch: Batch::new(REPORT_BYTES, 1),
        }
    }

    /// Ends with the last datagram.
    pub(crate) fn without_report(self) -> DatagramSender {
        DatagramSender { expects_report: false, ..self }
    }

    /// Shared place of the report.
    pub(crate) fn shared_report(&self) -> SharedReport {
        self.report.clone()
    }

    /// Whether all has been sent, and the report has arrived if there is one.
    pub(crate) fn is_finished(&self) -> bool {
        self.stage == DatagramSendStage::Finished
    }

    fn end_payload(&mut self, now: Time) {
        let sent = self.source.messages();
        self.layout.write_last(&mut self.last, sent, now);
        self.stage = DatagramSendStage::LastDatagram(now);
    }
}

impl Party for DatagramSender {
    #[inline]
    fn next_step(&mut self, now: Time) -> Step<'_> {
        if self.stage == DatagramSendStage::Payload && self.source.is_finished() {
            self.end_payload(now);
        }
        match self.stage {
            DatagramSendStage::Payload => match self.source.next_step(now) {
                // The last datagram follows.
                Step::Done => Step::Sleep(now),
                step => step,
            },
            DatagramSendStage::LastDatagram(since) if now > since + self.timeout => {
                Step::Fail(Fault::TimedOut)
            }
            DatagramSendStage::LastDatagram(_) => Step::Send { bytes: &self.last, message: self.last.len() },
            DatagramSendStage::AwaitingReport(_) if self.lasts_sent > MAX_LAST_DATAGRAMS => {
                Step::Fail(Fault::NoReply(NO_REPORT.to_owned()))
            }
            DatagramSendStage::AwaitingReport(until) => Step::Receive { into: &mut self.batch, until },
            DatagramSendStage::Finished => Step::Done,
        }
    }

    #[inline]
    fn on_sent(&mut self, bytes: usize, at: Time) {
        if self.stage == DatagramSendStage::Payload {
            return self.source.on_sent(bytes, at);
        }
        self.lasts_sent += 1;
        self.stage = match self.expects_report {
            true => DatagramSendStage::AwaitingReport(at + REPORT_INTERVAL),
            false => DatagramSendStage::Finished,
        };
    }

    fn on_received(&mut self, _now: Time) {
        if let Some(report) = self.batch.messages().find_map(Report::parse) {
            *self.report.lock().unwrap_or_else(PoisonError::into_inner) = Some(report);
            self.stage = DatagramSendStage::Finished;
        }
    }

    fn on_timeout(&mut self, now: Time) {
        if matches!(self.stage, DatagramSendStage::AwaitingReport(_)) {
            match self.lasts_sent < MAX_LAST_DATAGRAMS {
                true => self.stage = DatagramSendStage::LastDatagram(now),
                false => self.lasts_sent = MAX_LAST_DATAGRAMS + 1,
            }
        }
    }

    fn on_send_blocked(&mut self, now: Time, unacknowledged: Option<u64>) {
        self.source.on_send_blocked(now, unacknowledged);
    }

    fn on_tuned(&mut self, link: &dyn crate::link::Link) {
        self.source.on_tuned(link);
    }

    fn on_ended(&mut self, cost: PartyCost) {
        self.source.on_ended(cost);
    }
}

impl RecordingParty for DatagramSender {
    fn recorder(&self) -> &Recorder {
        self.source.recorder()
    }

    fn into_recorder(self: Box<Self>) -> Recorder {
        Box::new(self.source).into_recorder()
    }
}
