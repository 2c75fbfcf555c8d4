//! Returns each message of a client, with the times of its arrival and its return.

use super::super::wire::bounceback;
use super::RECEIVE_BYTES;
use crate::link::Batch;
use crate::link::party::Step;
use crate::protocol::stamp::time::WallClock;
use linkgauge_model::clock::{Clock, Time};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BounceStage {
    Receiving,
    /// The message arrived; it is returned at the second time.
    Holding(Time, Time),
    /// Bytes of the message that have been returned.
    Replying(usize),
    Finished,
}

pub(super) struct Bouncer {
    message_bytes: usize,
    /// The message, and what has come of the next one.
    input: Vec<u8>,
    stage: BounceStage,
    wall_clock: WallClock,
    batch: Batch,
}

impl Bouncer {
    /// Creates the bouncer for messages of this number of bytes, after the first bytes of a client.
    pub fn new(message_bytes: usize, first: &[u8]) -> Bouncer {
        Bouncer {
            message_bytes,
            input: first.to_vec(),
            stage: BounceStage::Receiving,
            wall_clock: WallClock::now(&Clock::System),
            batch: Batch::lent(RECEIVE_BYTES.min(message_bytes)),
        }
    }

    /// Continues with a message that is complete.
    pub(super) fn check_input(&mut self, now: Time) {
        if self.stage == BounceStage::Receiving && self.input.len() >= self.message_bytes {
            self.stage = BounceStage::Holding(now, now + bounceback::hold(&self.input));
        }
    }

    pub(super) fn next_step(&mut self, now: Time) -> Step<'_> {
        if let BounceStage::Holding(arrived, until) = self.stage
            && now >= until
        {
            let times = [arrived, now].map(|at| self.wall_clock.unix_us_at(at));
            bounceback::write_reply(&mut self.input, times[0], times[1]);
            self.stage = BounceStage::Replying(0);
        }
        match self.stage {
            BounceStage::Receiving => Step::Receive { into: &mut self.batch, until: Time::NEVER },
            BounceStage::Holding(_, until) => Step::Sleep(until),
            BounceStage::Replying(sent) => {
                Step::Send { bytes: &self.input[sent..self.message_bytes], message: self.message_bytes }
            }
            BounceStage::Finished => Step::Done,
        }
    }

    pub(super) fn on_sent(&mut self, bytes: usize, at: Time) {
        let BounceStage::Replying(sent) = &mut self.stage else { return };
        *sent += bytes;
        if *sent == self.message_bytes {
            self.input.drain(..self.message_bytes);
            self.stage = BounceStage::Receiving;
            self.check_input(at);
        }
    }

    pub(super) fn on_received(&mut self, now: Time) {
        self.batch.messages().for_each(|chunk| self.input.extend_from_slice(chunk));
        self.batch.return_memory();
        self.check_input(now);
    }

    pub(super) fn on_closed(&mut self) {
        self.stage = BounceStage::Finished;
    }
}
