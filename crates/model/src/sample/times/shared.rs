//! Times that many flows record together, so that a flow costs no histogram of its own.
//!
//! Several threads record without a lock: each count is an atomic number, and so is each of the first times.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use hdrhistogram::Histogram;

use super::{MAX_EXACT_SAMPLES, MAX_TIME_NS, new_histogram};
use crate::sample::histogram::{HALF_BUCKET, count_index};
use crate::sample::{FlowProgress, RecordedTimes};

/// The histogram and the first times of some flows.
#[derive(Debug)]
pub struct SharedTimes {
    counts: Box<[AtomicU64]>,
    first_times: Box<[AtomicU64]>,
    /// The number of first times; it may exceed their capacity.
    recorded: AtomicUsize,
}

impl Default for SharedTimes {
    fn default() -> SharedTimes {
        SharedTimes {
            counts: (0..=count_index(MAX_TIME_NS)).map(|_| AtomicU64::new(0)).collect(),
            first_times: (0..MAX_EXACT_SAMPLES).map(|_| AtomicU64::new(0)).collect(),
            recorded: AtomicUsize::new(0),
        }
    }
}

/// The lowest value of a count.
fn lowest_value(index: usize) -> u64 {
    let index = index as u64;
    let dropped = (index / HALF_BUCKET).saturating_sub(1);
    (index - dropped * HALF_BUCKET) << dropped
}

/// Records that the flows of one endpoint share.
#[derive(Debug)]
pub struct SharedRecording {
    pub(in crate::sample) service: Arc<SharedTimes>,
    pub(in crate::sample) response: Option<Arc<SharedTimes>>,
    pub(in crate::sample) connect: Option<Arc<SharedTimes>>,
    /// Parts of the progress, each for a part of the flows: few enough to stay in the caches, and threads seldom write to the
    /// same one.
    progress: Vec<Arc<FlowProgress>>,
    /// Flows so far.
    flows: usize,
}

/// The parts of the progress of many flows. Threads take the flows in turns too, so with a power of two of them each has its
/// own parts.
const PROGRESS_PARTS: usize = 64;

impl SharedRecording {
    /// Makes shared records without samples.
    pub fn new(times: RecordedTimes) -> SharedRecording {
        let progress = (0..PROGRESS_PARTS).map(|_| Arc::default()).collect();
        SharedRecording {
            service: Arc::default(),
            response: times.response(Arc::default),
            connect: None,
            progress,
            flows: 0,
        }
    }

    /// The flows open further connections beside their round trips.
    pub fn with_connections(self) -> SharedRecording {
        SharedRecording { connect: Some(Arc::default()), ..self }
    }

    /// The progress of all flows, in parts.
    pub fn progress(&self) -> &[Arc<FlowProgress>] {
        &self.progress
    }

    /// The part that the next flow counts in.
    pub(in crate::sample) fn next_progress(&mut self) -> Arc<FlowProgress> {
        self.flows += 1;
        self.progress[self.flows % PROGRESS_PARTS].clone()
    }
}

impl SharedTimes {
    /// Records one time. Does not allocate.
    #[inline]
    pub(crate) fn record(&self, nanoseconds: u64) {
        self.counts[count_index(nanoseconds.min(MAX_TIME_NS))].fetch_add(1, Relaxed);
        if self.recorded.load(Relaxed) < MAX_EXACT_SAMPLES
            && let Some(time) = self.first_times.get(self.recorded.fetch_add(1, Relaxed))
        {
            time.store(nanoseconds, Relaxed);
        }
    }

    /// The histogram and the first times. No thread records any more.
    pub(crate) fn into_times(self) -> (Histogram<u64>, Vec<u64>) {
        let mut histogram = new_histogram();
        let counts = self.counts.iter().map(|count| count.load(Relaxed));
        for (index, count) in counts.enumerate().filter(|(_, count)| *count > 0) {
            histogram.saturating_record_n(lowest_value(index), count);
        }
        let recorded = self.recorded.load(Relaxed);
        (histogram, self.first_times.iter().take(recorded).map(|time| time.load(Relaxed)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Time;
    use crate::sample::{LiveTimes, Recorder, Sample};

    #[test]
    fn counts_are_those_of_a_histogram_of_one_flow() {
        let (shared, mut own) = (SharedTimes::default(), new_histogram());
        let mut random = fastrand::Rng::with_seed(3);
        let edges = [0, 1, 1023, 1024, 2047, 2048, 4095, 4096, MAX_TIME_NS, u64::MAX];
        let times: Vec<u64> =
            edges.into_iter().chain((0..5000).map(|_| random.u64(..) >> random.u32(0..64))).collect();
        for &time in &times {
            shared.record(time);
            own.saturating_record(time.min(MAX_TIME_NS));
        }
        let (histogram, first_times) = shared.into_times();
        assert_eq!(first_times, times);
        assert_eq!(histogram.len(), own.len());
        for step in own.iter_recorded() {
            let value = step.value_iterated_to();
            assert_eq!(histogram.count_at(value), step.count_at_value(), "{value}");
        }
    }

    #[test]
    fn many_flows_count_in_few_parts() {
        let mut shared = SharedRecording::new(RecordedTimes::Service);
        let sample = Sample { sequence: 0, intended: Time(0), sent: Time(0), received: Time(9) };
        for _ in 0..1000 {
            let mut recorder = Recorder::sharing(&mut shared, 1_000_000, None);
            recorder.record_reply(sample, 7);
            recorder.record_loss(Time(9));
        }
        let sum = |get: fn(&FlowProgress) -> &AtomicU64| -> u64 {
            shared.progress().iter().map(|progress| get(progress).load(Relaxed)).sum()
        };
        assert_eq!(shared.progress().len(), PROGRESS_PARTS);
        let counts = [sum(|one| &one.messages), sum(|one| &one.bytes), sum(|one| &one.lost)];
        assert_eq!(counts, [1000, 7000, 1000]);
        let times = shared.progress().iter().map(|progress| &progress.times);
        assert!(LiveTimes::percentile(times, 50.0).is_some());
    }

    #[test]
    fn each_of_many_flows_stores_few_missed_frames() {
        let mut shared = SharedRecording::new(RecordedTimes::ServiceAndResponse);
        let mut all: Option<Recorder> = None;
        for _ in 0..3 {
            let mut recorder = Recorder::sharing(&mut shared, 1_000_000, None);
            recorder.watch_missed_frames(&[std::time::Duration::from_nanos(1)], None);
            for sequence in 0..20 {
                let (sent, received) = (Time(sequence), Time(sequence + 9));
                recorder.record_reply(Sample { sequence, intended: sent, sent, received }, 7);
            }
            all.get_or_insert_with(|| recorder.empty_like()).merge(&recorder);
        }
        let stored = all.unwrap().missed_frame_log.unwrap().first_missed();
        assert_eq!(stored.iter().map(|frame| frame.sequence).collect::<Vec<_>>(), (0..8).collect::<Vec<_>>());
    }

    #[test]
    fn threads_lose_no_time() {
        let shared = SharedTimes::default();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let shared = &shared;
                scope.spawn(move || (0..30_000).for_each(|n| shared.record(1000 * thread + n % 7)));
            }
        });
        let (histogram, first_times) = shared.into_times();
        assert_eq!((histogram.len(), first_times.len()), (120_000, MAX_EXACT_SAMPLES));
    }
}
