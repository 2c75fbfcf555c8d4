//! Missed frames: requests on a schedule whose reply arrived too long after the request was due, or never.
//!
//! Stores the first ones only. The response times give the number of missed frames for any limit.

use std::time::Duration;

use super::Sample;
use crate::clock::Time;
use crate::run::MissedFrame;

/// Maximum number of stored frames: three seconds of a 60 Hz loop that misses every frame; about 20 kB of a document.
pub(crate) const MAX_MISSED_FRAMES: usize = 200;

/// Limit for each of many flows, whose records take little memory.
pub(super) const MAX_MISSED_FRAMES_OF_MANY: usize = 8;

/// The missed frames of one flow.
#[derive(Debug, Clone)]
pub(crate) struct MissedFrameLog {
    limit_ns: u64,
    /// The repetition of the flow, from 1, if there are several.
    repetition: Option<u32>,
    missed_frames: Vec<MissedFrame>,
    max_frames: usize,
}

impl MissedFrameLog {
    /// A frame is missed if its response time exceeds the shortest of these limits. `repetition`: from 1, if there are
    /// several.
    pub fn new(limits: &[Duration], repetition: Option<u32>) -> MissedFrameLog {
        let limit_ns = limits.iter().min().map_or(u64::MAX, |limit| limit.as_nanos() as u64);
        MissedFrameLog { limit_ns, repetition, missed_frames: Vec::new(), max_frames: MAX_MISSED_FRAMES }
    }

    /// Limits the log to this number of frames.
    pub(super) fn with_limit(self, max_frames: usize) -> MissedFrameLog {
        MissedFrameLog { max_frames, ..self }
    }

    /// Allocates the memory for the frames of this number of requests.
    pub fn with_room(self, requests: usize) -> MissedFrameLog {
        MissedFrameLog { missed_frames: Vec::with_capacity(self.max_frames.min(requests)), ..self }
    }

    /// Stores the frame if its reply arrived too late. `began` is the start of the measurement.
    #[inline]
    pub(crate) fn record_reply(&mut self, sample: Sample, began: Time) {
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
        if self.missed_frames.len() < self.max_frames {
            let due_ns = intended.0.saturating_sub(began.0);
            let repetition = self.repetition;
            self.missed_frames.push(MissedFrame { repetition, sequence, due_ns, response_ns });
        }
    }

    /// Takes the frames of the first flow that missed any, of each repetition.
    pub(crate) fn merge(&mut self, other: &MissedFrameLog) {
        let last = self.missed_frames.last().map(|frame| frame.repetition);
        let is_new = |frame: &&MissedFrame| last.is_none_or(|last| frame.repetition > last);
        let left = self.max_frames - self.missed_frames.len();
        self.missed_frames.extend(other.missed_frames.iter().filter(is_new).take(left));
    }

    /// Missed frames, sorted by repetition and due time. A lost request is recorded only after its timeout.
    pub(crate) fn first_missed(&self) -> Vec<MissedFrame> {
        let mut first = self.missed_frames.clone();
        first.sort_by_key(|frame| (frame.repetition, frame.sequence));
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
        let mut frames = MissedFrameLog::new(&[Duration::from_millis(50), Duration::from_millis(16)], None);
        let began = Time(16 * MS);
        for (sequence, response_ms) in [(1, 16), (2, 17), (4, 60)] {
            frames.record_reply(sample(sequence, response_ms), began);
        }
        frames.record_loss(3, Time(48 * MS), began);
        let missed = |sequence, due_ms, response_ms: Option<u64>| MissedFrame {
            repetition: None,
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
    fn every_repetition_has_its_frames_and_only_one_flow_of_it() {
        let mut merged = MissedFrameLog::new(&[], None);
        // Two flows each; the first one of the second repetition misses nothing.
        for (repetition, sequences) in
            [(1, vec![3, 4]), (1, vec![9]), (2, vec![]), (2, vec![1]), (3, vec![0])]
        {
            let mut frames = MissedFrameLog::new(&[Duration::ZERO], Some(repetition));
            sequences.into_iter().for_each(|sequence| frames.record_reply(sample(sequence, 1), Time(0)));
            merged.merge(&frames);
        }
        let found: Vec<(Option<u32>, u64)> =
            merged.first_missed().iter().map(|frame| (frame.repetition, frame.sequence)).collect();
        assert_eq!(found, [(Some(1), 3), (Some(1), 4), (Some(2), 1), (Some(3), 0)]);
    }

    #[test]
    fn a_day_of_misses_takes_no_more_memory() {
        let mut frames = MissedFrameLog::new(&[Duration::ZERO], None);
        (0..1_000_000).for_each(|sequence| frames.record_reply(sample(sequence, 1), Time(0)));
        let mut merged = MissedFrameLog::new(&[], None);
        merged.merge(&frames);
        merged.merge(&MissedFrameLog::new(&[], None));
        assert_eq!(
            (frames.missed_frames.len(), merged.first_missed().last().unwrap().sequence),
            (MAX_MISSED_FRAMES, 199)
        );
    }
}
