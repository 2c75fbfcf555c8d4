//! Missed frames: exchanges on a schedule whose answer came too late after they were due, or never.
//!
//! Keeps the first of them. Not for how many there were: the response times tell that, for any limit.

use std::time::Duration;

use super::Sample;
use crate::clock::Time;
use crate::run::MissedFrame;

/// So many are kept: three seconds of a 60 Hz loop that misses them all, and some 20 kB of a document.
pub const MOST_MISSED: usize = 200;

/// The frames of one flow that were missed.
#[derive(Debug, Clone)]
pub struct Frames {
    limit_ns: u64,
    missed: Vec<MissedFrame>,
}

impl Frames {
    /// Misses begin above the shortest of these limits.
    pub fn new(limits: &[Duration]) -> Frames {
        let shortest = limits.iter().min().map_or(u64::MAX, |limit| limit.as_nanos() as u64);
        Frames { limit_ns: shortest, missed: Vec::with_capacity(MOST_MISSED) }
    }

    #[inline]
    pub fn answered(&mut self, sample: Sample, began: Time) {
        let response_ns = sample.response_ns();
        if response_ns > self.limit_ns {
            self.note(sample.sequence, sample.intended, began, Some(response_ns));
        }
    }

    pub fn lost(&mut self, sequence: u64, intended: Time, began: Time) {
        self.note(sequence, intended, began, None);
    }

    fn note(&mut self, sequence: u64, intended: Time, began: Time, response_ns: Option<u64>) {
        if self.missed.len() < MOST_MISSED {
            let due_ns = intended.0.saturating_sub(began.0);
            self.missed.push(MissedFrame { sequence, due_ns, response_ns });
        }
    }

    /// Those of the first flow that missed any.
    pub fn merge(&mut self, other: &Frames) {
        if self.missed.is_empty() {
            self.missed.clone_from(&other.missed);
        }
    }

    /// In the order in which they were due; a lost one is known as such only after the time-out.
    pub fn first(&self) -> Vec<MissedFrame> {
        let mut first = self.missed.clone();
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
    fn those_above_the_shortest_limit_are_kept_in_the_order_they_were_due() {
        let mut frames = Frames::new(&[Duration::from_millis(50), Duration::from_millis(16)]);
        let began = Time(16 * MS);
        for (sequence, response_ms) in [(1, 16), (2, 17), (4, 60)] {
            frames.answered(sample(sequence, response_ms), began);
        }
        frames.lost(3, Time(48 * MS), began);
        let missed = |sequence, due_ms, response_ms: Option<u64>| MissedFrame {
            sequence,
            due_ns: due_ms * MS,
            response_ns: response_ms.map(|ms| ms * MS),
        };
        assert_eq!(frames.first(), [missed(2, 16, Some(17)), missed(3, 32, None), missed(4, 48, Some(60))]);
    }

    #[test]
    fn a_day_of_misses_takes_no_more_memory() {
        let mut frames = Frames::new(&[Duration::ZERO]);
        (0..1_000_000).for_each(|sequence| frames.answered(sample(sequence, 1), Time(0)));
        let mut merged = Frames::new(&[]);
        merged.merge(&frames);
        merged.merge(&Frames::new(&[]));
        assert_eq!((frames.missed.len(), merged.first().last().unwrap().sequence), (MOST_MISSED, 199));
    }
}
