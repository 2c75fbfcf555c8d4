//! Samples: one exchange each, and the recorder that keeps what a run of any length needs in fixed memory.
//!
//! Recording happens inside the measuring loop: nothing here allocates, locks or prints after it was made.

mod figures;
mod frames;
mod histogram;
mod raw;
mod series;
mod times;
mod transfer;
mod ways;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::clock::Time;
use crate::run::Defect;

pub use frames::{Frames, MOST_MISSED};
pub use histogram::{decoded, histogram};
pub use raw::{RawFile, RawSink};
pub use series::Series;
pub use times::Times;
pub use transfer::{Records, Transfer};
pub use ways::{Stages, Ways};

/// One answered exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    pub sequence: u64,
    /// When the schedule wanted it sent; the same as `sent` without a schedule.
    pub intended: Time,
    pub sent: Time,
    pub received: Time,
}

impl Sample {
    /// Received − sent.
    pub fn service_ns(&self) -> u64 {
        self.received.0.saturating_sub(self.sent.0)
    }

    /// Received − intended.
    pub fn response_ns(&self) -> u64 {
        self.received.0.saturating_sub(self.intended.0)
    }
}

/// What was counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages of a one-way flow before the measurement: sent, or passed by where some were lost.
    pub warm_up: u64,
    pub sent: u64,
    pub received: u64,
    pub lost: u64,
    pub late: u64,
    pub duplicate: u64,
    /// Before their request.
    pub early: u64,
    pub reordered: u64,
    pub corrupt_bytes: u64,
    pub corrupt_messages: u64,
    /// Of a stream that came back.
    pub lost_bytes: u64,
    pub inserted_bytes: u64,
    pub missed_sends: u64,
    /// The end that records was stopped while more could still come: what is missing is not lost.
    pub broken_off: bool,
    /// Payload bytes delivered to the end that records.
    pub bytes: u64,
}

impl Counts {
    pub fn merge(&mut self, other: &Counts) {
        self.warm_up += other.warm_up;
        self.sent += other.sent;
        self.received += other.received;
        self.lost += other.lost;
        self.late += other.late;
        self.duplicate += other.duplicate;
        self.early += other.early;
        self.reordered += other.reordered;
        self.corrupt_bytes += other.corrupt_bytes;
        self.corrupt_messages += other.corrupt_messages;
        self.lost_bytes += other.lost_bytes;
        self.inserted_bytes += other.inserted_bytes;
        self.missed_sends += other.missed_sends;
        self.broken_off |= other.broken_off;
        self.bytes += other.bytes;
    }
}

/// What others may read while the loop runs: messages answered or delivered, and their bytes.
#[derive(Debug, Default)]
pub struct Progress {
    pub messages: AtomicU64,
    pub bytes: AtomicU64,
    /// How many bytes it will be, where the far end told; 0 before.
    pub planned_bytes: AtomicU64,
}

/// Takes the samples and counts of one flow.
#[derive(Debug)]
pub struct Recorder {
    pub counts: Counts,
    pub service: Times,
    /// Only with a schedule.
    pub response: Option<Times>,
    /// Only with a schedule, where somebody said what is too late.
    pub frames: Option<Frames>,
    pub series: Series,
    /// Only where the far end tells them apart.
    pub ways: Option<Box<Ways>>,
    /// First and last instant that counts: first send to last receipt.
    pub first: Option<Time>,
    pub last: Option<Time>,
    /// What was wrong with a stream that came back, where: of the first flow that had anything.
    pub defects: Vec<Defect>,
    /// Where pieces are asked for one by one.
    pub transfer: Option<Transfer>,
    /// Bytes delivered at the very first instant, which took none of the time that follows.
    pub head_bytes: u64,
    progress: Arc<Progress>,
    raw: Option<RawSink>,
}

impl Recorder {
    /// `scheduled`: messages have intended times, so response times mean something.
    pub fn new(scheduled: bool, interval_ns: u64, progress: Arc<Progress>, raw: Option<RawSink>) -> Recorder {
        Recorder {
            counts: Counts::default(),
            service: Times::new(),
            response: scheduled.then(Times::new),
            frames: None,
            series: Series::new(interval_ns),
            ways: None,
            first: None,
            last: None,
            defects: Vec::new(),
            transfer: None,
            head_bytes: 0,
            progress,
            raw,
        }
    }

    /// For a far end, that only counts.
    pub fn counting() -> Recorder {
        Recorder::new(false, 1_000_000_000, Arc::default(), None)
    }

    /// The far end will tell when requests came and answers left.
    pub fn expect_stages(&mut self) {
        self.ways = Some(Box::new(Ways::new()));
    }

    /// With a schedule, a frame is missed above the shortest of these limits.
    pub fn watch_frames(&mut self, limits: &[Duration]) {
        self.frames = self.response.is_some().then(|| Frames::new(limits));
    }

    /// The measurement begins: what was counted before was warm-up.
    pub fn begin(&mut self, at: Time) {
        self.first = Some(at);
        self.series.begin(at);
    }

    /// The measurement begins with bytes that arrive at this instant.
    pub fn begin_with(&mut self, at: Time, bytes: u64) {
        self.begin(at);
        self.head_bytes = bytes;
    }

    /// An answered exchange of `bytes` payload.
    #[inline]
    pub fn answered(&mut self, sample: Sample, bytes: u64) {
        let service = sample.service_ns();
        self.service.record(service);
        if let Some(response) = &mut self.response {
            response.record(sample.response_ns());
        }
        if let Some(frames) = &mut self.frames {
            frames.answered(sample, self.first.unwrap_or(Time(0)));
        }
        self.counts.received += 1;
        self.counts.bytes += bytes;
        self.last = Some(sample.received);
        self.series.answered(sample.received, bytes, service);
        if let Some(raw) = &mut self.raw {
            raw.push(sample);
        }
        self.publish();
    }

    /// What the far end told of an answered exchange; what cannot be true counts as corrupt.
    #[inline]
    pub fn staged(&mut self, sample: Sample, stages: Stages) {
        if let Some(ways) = &mut self.ways
            && !ways.answered(sample.sequence, sample.sent, sample.received, stages)
        {
            self.counts.corrupt_messages += 1;
        }
    }

    /// The flow has ended.
    pub fn settle(&mut self) {
        if let Some(ways) = &mut self.ways {
            ways.settle();
        }
    }

    /// An exchange without an answer in time.
    pub fn lost(&mut self, now: Time) {
        self.counts.lost += 1;
        self.service.gap();
        if let Some(response) = &mut self.response {
            response.gap();
        }
        self.series.lost(now);
    }

    /// Which one was lost, where frames are watched.
    pub fn missed(&mut self, sequence: u64, intended: Time) {
        if let Some(frames) = &mut self.frames {
            frames.lost(sequence, intended, self.first.unwrap_or(Time(0)));
        }
    }

    /// Delivered payload of a one-way flow.
    #[inline]
    pub fn delivered(&mut self, now: Time, messages: u64, bytes: u64) {
        self.counts.received += messages;
        self.counts.bytes += bytes;
        self.last = Some(now);
        self.series.delivered(now, messages, bytes);
        self.publish();
    }

    /// The far end told how many bytes it will be.
    pub fn plan(&self, bytes: u64) {
        self.progress.planned_bytes.store(bytes, Relaxed);
    }

    #[inline]
    fn publish(&self) {
        // Only this thread writes; a plain store is enough and costs nothing.
        self.progress.messages.store(self.counts.received, Relaxed);
        self.progress.bytes.store(self.counts.bytes, Relaxed);
    }

    /// From the first send to the last receipt.
    pub fn elapsed_ns(&self) -> u64 {
        match (self.first, self.last) {
            (Some(first), Some(last)) => last.0.saturating_sub(first.0),
            _ => 0,
        }
    }

    /// An empty recorder of the same kind, to merge several into.
    pub fn blank(&self) -> Recorder {
        Recorder::new(self.response.is_some(), self.series.interval_ns(), Arc::default(), None)
    }

    /// Joins what another flow of the same case recorded.
    pub fn merge(&mut self, other: &Recorder) {
        self.counts.merge(&other.counts);
        self.service.merge(&other.service);
        if let (Some(response), Some(other)) = (&mut self.response, &other.response) {
            response.merge(other);
        }
        if let Some(other) = &other.frames {
            self.frames.get_or_insert_with(|| Frames::new(&[])).merge(other);
        }
        self.series.merge(&other.series);
        if let Some(other) = &other.ways {
            self.ways.get_or_insert_with(|| Box::new(Ways::new())).merge(other);
        }
        self.first = [self.first, other.first].into_iter().flatten().min();
        self.last = self.last.max(other.last);
        self.head_bytes += other.head_bytes;
        if self.defects.is_empty() {
            self.defects.clone_from(&other.defects);
        }
        if let Some(other) = &other.transfer {
            self.transfer.get_or_insert_default().merge(other);
        }
    }
}
