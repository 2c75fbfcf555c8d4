//! The times of recent requests by their numbers, so that the jitter compares consecutive requests in whatever order the file has them.

use std::collections::BTreeMap;

use linkgauge_model::clock::Time;
use linkgauge_model::sample::{ProbePeriod, Recorder, Sample};

/// Replies that arrive later than this number of later requests have no neighbours.
const MAX_RECENT: usize = 1024;

#[derive(Default)]
pub(super) struct RecentTimes(BTreeMap<u64, u64>);

impl RecentTimes {
    /// Records the reply to the request with the number of the sample.
    pub(super) fn record(&mut self, recorder: &mut Recorder, sample: Sample) {
        let number = sample.sequence;
        let time_of = |number: Option<u64>| self.0.get(&number?).copied();
        let neighbours_ns = [time_of(number.checked_sub(1)), time_of(number.checked_add(1))];
        recorder.record_reply_beside(neighbours_ns, ProbePeriod::Loaded, sample, 0);
        self.0.insert(number, sample.service_ns());
        if self.0.len() > MAX_RECENT {
            self.0.pop_first();
        }
    }

    /// The number of a request whose number in the file has 16 bits.
    pub(super) fn unwrapped(&self, number: u64) -> u64 {
        let Some((&last, _)) = self.0.last_key_value() else { return (number & 0xFFFF) + (1 << 16) };
        let ahead = (number as u16).wrapping_sub(last as u16) as i16;
        last.saturating_add_signed(ahead.into())
    }

    /// The number of the request after the last one, in a file without numbers. `lost`: requests between them.
    pub(super) fn next(&self, lost: u64) -> u64 {
        self.0.last_key_value().map_or(0, |(&last, _)| last.saturating_add(1)).saturating_add(lost)
    }
}

/// The sample of a request that is known only by its duration.
pub(super) fn sample_of_duration(sequence: u64, nanoseconds: u64) -> Sample {
    Sample { sequence, intended: Time(0), sent: Time(0), received: Time(nanoseconds) }
}
