//! Missed frames: requests on a schedule whose reply arrived too long after the request was due, or never.
//!
//! Stores the first ones only. The response times give the number of missed frames for any limit.

use std::time::Duration;

use super::Sample;
use crate::clock::Time;
use crate::run::MissedFrame;

/// Stores three seconds of a 60 Hz loop that misses every frame; about 20 kB of a document.
pub const MAX_MISSED_FRAMES: usize = 200;

/// The missed frames of one flow.
#[derive(Debug, Clone)]
pub struct MissedFrameLog {
    limit_ns: u64,
    missed_frames: Vec<MissedFrame>,
}

impl MissedFrameLog {
    /// A frame is missed if its response time exceeds the shortest of these limits.
    pub fn new(limits: &[Duration]) -> MissedFrameLog {
        let shortest = limits.iter().min().map_or(u64::MAX, |limit| limit.as_nanos() as u64);
        MissedFrameLog { limit_ns: shortest, missed_frames: Vec::with_capacity(MAX_MISSED_FRAMES) }
    }

    /// Stores the frame if its reply arrived too late. `began` is the start of the measurement.
    #[inline]
    pub fn record_reply(&mut self, sample: Sample, began: Time) {
        let response_ns = sample.response_ns();
        if response_ns > self.limit_ns {
            self.record_miss(sample.sequence, sample.intended, began, Some(response_ns));
        }
    }

    /// Stores the frame of a lost request. `began` is the start of the measurement.
    pub fn record_loss(&mut self, sequence: u64, intended: Time, began: Time) {
        self.record_miss(sequence, intended, began, None);
    }

    fn record_miss(&mut self, sequence: u64, intended: Time, began: Time, response_ns: Option<u64>) {
        if self.missed_frames.len() < MAX_MISSED_FRAMES {
            let due_ns = intended.0.saturating_sub(began.0);
            self.missed_frames.push(MissedFrame { sequence, due_ns, response_ns });
        }
    }

    /// Takes the frames of the first flow that missed any.
    pub fn merge(&mut self, other: &MissedFrameLog) {
        if self.missed_frames.is_empty() {
            self.missed_frames.clone_from(&other.missed_frames);
        }
    }

    /// Sorted by due time. A lost request is recorded only after its timeout.
    pub fn first_missed(&self) -> Vec<MissedFrame> {
        let mut first = self.missed_frames.clone();
        first.sort_by_key(|frame| frame.sequence);
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn sample(sequence: u64, response_ms: u64) -> Sample {
        let intended = Time(sequence * 16 * MS);
        Sample { sequence, intended, sent: intended, received: Time(intended.0 + response_ms * MS) }
    }

    #[test]
    fn misses_above_the_shortest_limit_are_stored_in_due_order() {
        let mut frames = MissedFrameLog::new(&[Duration::from_millis(50), Duration::from_millis(16)]);
        let began = Time(16 * MS);
        for (sequence, response_ms) in [(1, 16), (2, 17), (4, 60)] {
            frames.record_reply(sample(sequence, response_ms), began);
        }
        frames.record_loss(3, Time(48 * MS), began);
        let missed = |sequence, due_ms, response_ms: Option<u64>| MissedFrame {
            sequence,
            due_ns: due_ms * MS,
            response_ns: response_ms.map(|ms| ms * MS),
        };
        assert_eq!(
            frames.first_missed(),
            [missed(2, 16, Some(17)), missed(3, 32, None), missed(4, 48, Some(60))]
        );
    }

    #[test]
    fn a_day_of_misses_takes_no_more_memory() {
        let mut frames = MissedFrameLog::new(&[Duration::ZERO]);
        (0..1_000_000).for_each(|sequence| frames.record_reply(sample(sequence, 1), Time(0)));
        let mut merged = MissedFrameLog::new(&[]);
        merged.merge(&frames);
        merged.merge(&MissedFrameLog::new(&[]));
        assert_eq!(
            (frames.missed_frames.len(), merged.first_missed().last().unwrap().sequence),
            (MAX_MISSED_FRAMES, 199)
        );
    }
}
