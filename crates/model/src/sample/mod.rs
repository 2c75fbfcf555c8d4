//! Samples, one per round trip, and the recorder that stores them in fixed memory for a run of any length.
//!
//! Recording happens inside the measuring loop: after construction nothing here allocates, locks or prints.

mod bins;
mod figures;
mod frames;
mod histogram;
mod idle;
mod interval_times;
mod live_times;
mod one_way;
mod probe_log;
mod queueing;
mod raw;
mod reply_log;
mod stages;
mod time_series;
mod times;
mod transfer;
mod window;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::clock::Time;
use crate::run::{Defect, ResponsivenessFigures};

use frames::MAX_MISSED_FRAMES_OF_MANY;
pub(crate) use frames::MissedFrameLog;
pub use histogram::{decode_figures_histogram, decode_histogram};
pub use idle::{IdleRecorders, LoadWindow, ProbePeriod, idle_limit_ns};
pub use live_times::LiveTimes;
pub use one_way::{CommonTime, OneWayDelays, ServerTimestamps};
pub use probe_log::ProbeLog;
pub use queueing::{QueueingDelay, set_queueing};
pub use raw::{CollectedSamples, RawFile, RawSink};
pub use reply_log::event_ns;
pub use reply_log::{ReplyEvent, ReplyEventKind, ReplyLog, ReplyLogs, ReplySource};
pub use stages::{LocalStamps, RemoteStages, StageTimes, StampedEnds};
pub use time_series::TimeSeries;
pub use time_series::append_entries;
pub use times::{SharedRecording, TimeSamples};
pub use transfer::TransferCounts;
pub use window::{Window, WindowCounts};

/// One round trip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Number of the request, from 0.
    pub sequence: u64,
    /// Time at which the schedule wanted the request sent. Equals `sent` without a schedule.
    pub intended: Time,
    /// Time at which the request was handed to the link.
    pub sent: Time,
    /// Time at which the reply had arrived.
    pub received: Time,
}

impl Sample {
    /// Service time: received − sent.
    pub fn service_ns(&self) -> u64 {
        self.received.0.saturating_sub(self.sent.0)
    }

    /// Response time: received − intended.
    pub fn response_ns(&self) -> u64 {
        self.received.0.saturating_sub(self.intended.0)
    }
}

/// Counters of one flow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages of a one-way flow before the measurement: sent, or skipped after a loss.
    pub warm_up: u64,
    /// Messages or requests sent.
    pub sent: u64,
    /// Messages or valid replies received.
    pub received: u64,
    /// Messages that did not arrive, or requests without a reply within the timeout.
    pub lost: u64,
    /// Replies that arrived after the timeout; their requests count as lost.
    pub late: u64,
    /// Messages or replies that arrived more than once.
    pub duplicate: u64,
    /// Replies that arrived before their request was sent.
    pub early: u64,
    /// Messages or replies that arrived after a later one.
    pub reordered: u64,
    /// Bytes with unexpected content.
    pub corrupt_bytes: u64,
    /// Messages with unexpected content, and messages of other senders.
    pub corrupt_messages: u64,
    /// Number of missing bytes of an echoed stream.
    pub lost_bytes: u64,
    /// Unexpected additional bytes of an echoed stream.
    pub inserted_bytes: u64,
    /// Messages that left when the next one was already due.
    pub late_sends: u64,
    /// Messages that were due until the end and never left.
    pub missed_sends: u64,
    /// The receiver was stopped while more data could still arrive: missing data is not lost.
    pub is_interrupted: bool,
    /// Payload bytes delivered to the receiver.
    pub delivered_bytes: u64,
    /// Connections that did not open in time.
    pub failed_connections: u64,
}

impl Counts {
    /// Adds the counts of another flow.
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
        self.late_sends += other.late_sends;
        self.missed_sends += other.missed_sends;
        self.is_interrupted |= other.is_interrupted;
        self.delivered_bytes += other.delivered_bytes;
        self.failed_connections += other.failed_connections;
    }
}

/// Counters that other threads read while the loop runs: messages with a reply, or delivered, and their bytes.
#[derive(Debug, Default)]
pub struct FlowProgress {
    /// Messages or replies so far.
    pub messages: AtomicU64,
    /// Payload bytes of those messages.
    pub bytes: AtomicU64,
    /// Total size in bytes as reported by the server; 0 before.
    pub planned_bytes: AtomicU64,
    /// Messages lost so far.
    pub lost: AtomicU64,
    /// Round trips so far.
    pub times: LiveTimes,
    /// Time of the first delivered payload, by the clock of the loop; 0 before.
    pub first_ns: AtomicU64,
}

/// Times of a round trip that are recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordedTimes {
    /// Time from sending to receiving.
    Service,
    /// Time from sending, and time from the intended time of sending, which messages of a schedule have.
    ServiceAndResponse,
}

impl RecordedTimes {
    /// A record of response times, if they are recorded.
    fn response<T>(self, new: impl FnOnce() -> T) -> Option<T> {
        (self == RecordedTimes::ServiceAndResponse).then(new)
    }
}

/// The memory that a recorder allocates before the measurement. It takes more only if the measurement has more than expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Round trips.
    pub samples: usize,
    /// Intervals of the time series.
    pub intervals: usize,
}

/// Collects the samples and counters of one flow.
#[derive(Debug)]
pub struct Recorder {
    /// Counts of the flow.
    pub counts: Counts,
    /// Service times: received − sent of each round trip.
    pub service_times: TimeSamples,
    /// Response times, only with a schedule.
    pub response_times: Option<TimeSamples>,
    /// Times to open a connection, only where a flow opens further connections beside its round trips.
    pub(crate) connect_times: Option<TimeSamples>,
    /// Missed frames, only with a schedule and limits for late replies.
    pub(crate) missed_frame_log: Option<MissedFrameLog>,
    /// Counts and latency in each interval.
    pub time_series: TimeSeries,
    /// One-way delays, only where the server reports receive and send times.
    pub(crate) one_way_delays: Option<Box<OneWayDelays>>,
    /// Times of the stages, only where the kernels stamp messages.
    pub stages: Option<Box<StageTimes>>,
    /// First and last instant of the measurement: first send to last receipt.
    pub first_instant: Option<Time>,
    /// Time of the last receipt.
    pub last_instant: Option<Time>,
    /// Defects of an echoed stream and their positions, from the first flow that had any.
    pub defects: Vec<Defect>,
    /// Counts of the transfer, only where a client requests each chunk.
    pub transfer_counts: Option<TransferCounts>,
    /// Bytes delivered at the very first instant, or after the time of the load. They took no measured time.
    pub untimed_bytes: u64,
    /// Records outside of the load, only of a probe that also runs on the idle link.
    pub idle: Option<Box<IdleRecorders>>,
    /// Log of the probes, only where another thread judges the round trips while they are measured.
    pub probe_log: Option<Arc<ProbeLog>>,
    /// Log of the replies, only where another thread prints the fate of each request.
    pub reply_log: Option<Arc<ReplyLog>>,
    /// Responsiveness, only of the flow that conducted its measurement.
    pub responsiveness: Option<Box<ResponsivenessFigures>>,
    /// Rates of the seconds at the IP layer, in bits per second, or the highest of them alone; only of a capacity search.
    pub capacity_rates: Vec<f64>,
    progress: Arc<FlowProgress>,
    /// Whether other flows count in the same progress.
    shares_progress: bool,
    raw_sink: Option<RawSink>,
}

impl Recorder {
    /// Recorder for one flow, with a time series of this interval.
    pub fn new(
        times: RecordedTimes,
        interval_ns: u64,
        progress: Arc<FlowProgress>,
        raw: Option<RawSink>,
    ) -> Recorder {
        Recorder {
            service_times: TimeSamples::new(),
            response_times: times.response(TimeSamples::new),
            ..Recorder::without_times(TimeSeries::new(interval_ns), progress, raw)
        }
    }

    /// Recorder for one flow that takes few samples.
    pub fn with_room(
        times: RecordedTimes,
        interval_ns: u64,
        room: Room,
        progress: Arc<FlowProgress>,
        raw: Option<RawSink>,
    ) -> Recorder {
        Recorder {
            service_times: TimeSamples::with_room(room.samples),
            response_times: times.response(|| TimeSamples::with_room(room.samples)),
            ..Recorder::without_times(TimeSeries::with_room(interval_ns, room.intervals), progress, raw)
        }
    }

    /// Recorder for one of several flows that share their times, until [`Recorder::end_sharing`], and their progress.
    pub fn sharing(times: &mut SharedRecording, interval_ns: u64, raw: Option<RawSink>) -> Recorder {
        Recorder {
            service_times: TimeSamples::sharing(&times.service),
            response_times: times.response.as_ref().map(TimeSamples::sharing),
            connect_times: times.connect.as_ref().map(TimeSamples::sharing),
            shares_progress: true,
            ..Recorder::without_times(TimeSeries::new(interval_ns), times.next_progress(), raw)
        }
    }

    fn without_times(time_series: TimeSeries, progress: Arc<FlowProgress>, raw: Option<RawSink>) -> Recorder {
        Recorder {
            counts: Counts::default(),
            service_times: TimeSamples::without_times(),
            response_times: None,
            connect_times: None,
            missed_frame_log: None,
            time_series,
            one_way_delays: None,
            stages: None,
            first_instant: None,
            last_instant: None,
            defects: Vec::new(),
            transfer_counts: None,
            untimed_bytes: 0,
            idle: None,
            probe_log: None,
            reply_log: None,
            responsiveness: None,
            capacity_rates: Vec::new(),
            progress,
            shares_progress: false,
            raw_sink: raw,
        }
    }

    /// Recorder for a server that only counts.
    pub fn for_counting() -> Recorder {
        Recorder::without_times(TimeSeries::for_totals(), Arc::default(), None)
    }

    /// Recorder for a server that only counts, also in each of these intervals, of which it reports `most`.
    pub fn for_counting_in(interval: Duration, most: usize) -> Recorder {
        let series = TimeSeries::with_max_entries(interval.as_nanos() as u64, most);
        Recorder::without_times(series, Arc::default(), None)
    }

    /// Ends sharing of the times. The last of the flows to end it gets the times of all of them.
    pub fn end_sharing(&mut self) {
        self.service_times.end_sharing();
        self.response_times.iter_mut().for_each(TimeSamples::end_sharing);
        self.connect_times.iter_mut().for_each(TimeSamples::end_sharing);
    }

    /// The flow opens further connections beside its round trips.
    pub fn with_connections(self) -> Recorder {
        Recorder { connect_times: Some(TimeSamples::new()), ..self }
    }

    /// Records how long opening a connection took; `None`: it did not open in time.
    pub fn record_connection(&mut self, time: Option<Duration>) {
        let Some(times) = &mut self.connect_times else { return };
        match time {
            Some(time) => times.record(time.as_nanos() as u64),
            None => {
                times.record_gap();
                self.counts.failed_connections += 1;
            }
        }
    }

    /// Keeps the round-trip times of each interval of the series for its percentiles.
    pub fn watch_interval_percentiles(&mut self) {
        self.time_series = self.time_series.empty_like().with_percentiles();
    }

    /// The server will report when requests arrived and replies left.
    pub fn expect_server_timestamps(&mut self) {
        self.one_way_delays = Some(Box::new(OneWayDelays::new()));
    }

    /// Uses the common time that both hosts follow. Does nothing without timestamps of the server.
    pub fn use_common_time(&mut self, common_time: CommonTime) {
        if let Some(delays) = &mut self.one_way_delays {
            delays.use_common_time(common_time);
        }
    }

    /// Delay of each request and reply above the fastest, in the order of time, after the flow has ended.
    pub fn queueing(&self) -> &[QueueingDelay] {
        self.one_way_delays.as_ref().map_or(&[], |delays| delays.queueing())
    }

    /// Records missed frames, with a schedule: a frame is missed if it takes longer than the shortest of these limits.
    /// `repetition`: from 1, if there are several.
    pub fn watch_missed_frames(&mut self, limits: &[Duration], repetition: Option<u32>) {
        let log = || match self.shares_progress {
            true => MissedFrameLog::new(limits, repetition)
                .with_limit(MAX_MISSED_FRAMES_OF_MANY)
                .with_room(MAX_MISSED_FRAMES_OF_MANY),
            false => MissedFrameLog::new(limits, repetition).with_room(self.service_times.room()),
        };
        self.missed_frame_log = (self.response_times.is_some() && !limits.is_empty()).then(log);
    }

    /// The measurement begins: earlier counts were warm-up.
    pub fn begin(&mut self, at: Time) {
        self.first_instant = Some(at);
        self.time_series.begin(at);
    }

    /// The measurement begins with bytes that arrive at this instant.
    pub fn begin_with_bytes(&mut self, at: Time, bytes: u64) {
        self.begin(at);
        self.untimed_bytes = bytes;
    }

    /// Records a round trip with `bytes` of payload.
    #[inline]
    pub fn record_reply(&mut self, sample: Sample, bytes: u64) {
        let service = sample.service_ns();
        self.service_times.record(service);
        if let Some(response) = &mut self.response_times {
            response.record(sample.response_ns());
        }
        if let Some(frames) = &mut self.missed_frame_log {
            frames.record_reply(sample, self.first_instant.unwrap_or(Time(0)));
        }
        self.counts.received += 1;
        self.counts.delivered_bytes += bytes;
        self.last_instant = Some(sample.received);
        self.time_series.record_reply(sample.received, bytes, service);
        if let Some(raw) = &mut self.raw_sink {
            raw.push(sample);
        }
        if let Some(log) = &self.probe_log {
            log.push(sample);
        }
        match self.shares_progress {
            true => self.progress.times.record_shared(service),
            false => self.progress.times.record(service),
        }
        self.publish(1, bytes);
    }

    /// Records the server's timestamps of a round trip. Impossible values count as corrupt.
    #[inline]
    pub fn record_server_timestamps(&mut self, sample: Sample, stages: ServerTimestamps) {
        // Beside the load only; the idle link shows the clocks as well.
        let period = self.period_at(sample.sent);
        let Some(delays) = &mut self.one_way_delays else { return };
        let is_possible = match period {
            ProbePeriod::Loaded => delays.record_reply(sample, stages),
            ProbePeriod::Before | ProbePeriod::After => delays.record_idle_reply(sample, stages),
        };
        self.counts.corrupt_messages += u64::from(!is_possible);
    }

    /// The flow has ended.
    pub fn finish(&mut self) {
        if let Some(delays) = &mut self.one_way_delays {
            delays.finish();
            let corrupt = &mut self.counts.corrupt_messages;
            *corrupt = corrupt.saturating_sub(delays.explained_by_tick());
        }
    }

    /// Notes what became of a request, where another thread prints it.
    #[inline]
    pub fn note(&self, sequence: u64, kind: ReplyEventKind, time_ns: u64) {
        if let Some(log) = &self.reply_log {
            log.push(sequence, kind, time_ns);
        }
    }

    /// Records a request without a reply in time.
    pub fn record_loss(&mut self, now: Time) {
        self.counts.lost += 1;
        self.progress.lost.fetch_add(1, Relaxed);
        self.service_times.record_gap();
        if let Some(response) = &mut self.response_times {
            response.record_gap();
        }
        self.time_series.record_loss(now);
    }

    /// Stores which request was lost, where frames are watched.
    pub fn record_missed_frame(&mut self, sequence: u64, intended: Time) {
        if let Some(frames) = &mut self.missed_frame_log {
            frames.record_loss(sequence, intended, self.first_instant.unwrap_or(Time(0)));
        }
    }

    /// Records delivered payload of a one-way flow.
    #[inline]
    pub fn record_delivery(&mut self, now: Time, messages: u64, bytes: u64) {
        self.counts.received += messages;
        self.counts.delivered_bytes += bytes;
        self.last_instant = Some(now);
        self.time_series.record_delivery(now, messages, bytes);
        if self.progress.first_ns.load(Relaxed) == 0 {
            self.progress.first_ns.store(now.0.max(1), Relaxed);
        }
        self.publish(messages, bytes);
    }

    /// Records payload of a one-way flow that is delivered after the time of the load: no rate includes it.
    pub fn record_late_delivery(&mut self, messages: u64, bytes: u64) {
        self.counts.received += messages;
        self.counts.delivered_bytes += bytes;
        self.untimed_bytes += bytes;
    }

    /// Records received messages with a congestion mark.
    pub fn record_ce(&mut self, now: Time, messages: u64) {
        self.time_series.record_ce(now, messages);
    }

    /// The server reported the total size.
    pub fn set_planned_bytes(&self, bytes: u64) {
        self.progress.planned_bytes.store(bytes, Relaxed);
    }

    /// Shows these further messages to other threads.
    #[inline]
    fn publish(&self, messages: u64, bytes: u64) {
        if self.shares_progress {
            self.progress.messages.fetch_add(messages, Relaxed);
            self.progress.bytes.fetch_add(bytes, Relaxed);
        } else {
            // Only this thread writes, so a plain store is enough.
            self.progress.messages.store(self.counts.received, Relaxed);
            self.progress.bytes.store(self.counts.delivered_bytes, Relaxed);
        }
    }

    /// Time from the first send to the last receipt.
    pub fn elapsed_ns(&self) -> u64 {
        match (self.first_instant, self.last_instant) {
            (Some(first), Some(last)) => last.0.saturating_sub(first.0),
            _ => 0,
        }
    }

    /// An empty recorder of the same kind, for merging several recorders.
    pub fn empty_like(&self) -> Recorder {
        let times = match self.response_times {
            Some(_) => RecordedTimes::ServiceAndResponse,
            None => RecordedTimes::Service,
        };
        // Each merged recorder adds what it has.
        let room = Room { samples: 0, intervals: 0 };
        let interval_ns = self.time_series.interval_ns();
        let empty = Recorder::with_room(times, interval_ns, room, Arc::default(), None);
        Recorder { time_series: self.time_series.empty_like(), ..empty }
    }

    /// Merges the record of another flow of the same case.
    pub fn merge(&mut self, other: &Recorder) {
        self.counts.merge(&other.counts);
        self.service_times.merge(&other.service_times);
        if let (Some(response), Some(other)) = (&mut self.response_times, &other.response_times) {
            response.merge(other);
        }
        if let Some(other) = &other.connect_times {
            self.connect_times.get_or_insert_with(|| TimeSamples::with_room(0)).merge(other);
        }
        if let Some(other) = &other.missed_frame_log {
            self.missed_frame_log.get_or_insert_with(|| MissedFrameLog::new(&[], None)).merge(other);
        }
        self.time_series.merge(&other.time_series);
        if let Some(other) = &other.one_way_delays {
            self.one_way_delays.get_or_insert_with(|| Box::new(OneWayDelays::new())).merge(other);
        }
        if let Some(other) = &other.stages {
            self.stages.get_or_insert_with(|| Box::new(other.empty_like())).merge(other);
        }
        self.first_instant = [self.first_instant, other.first_instant].into_iter().flatten().min();
        self.last_instant = self.last_instant.max(other.last_instant);
        self.untimed_bytes += other.untimed_bytes;
        if self.defects.is_empty() {
            self.defects.clone_from(&other.defects);
        }
        if let Some(other) = &other.transfer_counts {
            self.transfer_counts.get_or_insert_default().merge(other);
        }
    }
}
