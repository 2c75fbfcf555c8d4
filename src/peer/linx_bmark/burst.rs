//! The near end of a burst: asks for as many signals as a burst has, counts them as they come, and asks again. An echo is
//! a burst of one signal that looks like the asking.
//!
//! What is delivered counts from the asking, so the rate holds one round trip for each burst, as the original's does.

use std::time::Duration;

use super::Style;
use super::signal::{self, ALLOC_FINI, BURST_SIGNO, ECHO, number};
use crate::clock::Time;
use crate::link::party::{Party, Step, Tuning};
use crate::link::{Batch, Fault, MOST_IN_BATCH};
use crate::plan::Case;
use crate::sample::Recorder;
use crate::workload::Measured;
use crate::workload::pattern::differing;
use crate::workload::phases::{Phase, Phases};

/// Bytes taken in one receive operation at most, as far as a signal allows.
const ROOM: usize = 128 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nothing is on its way: the next burst can be asked for.
    Idle,
    /// Signals are to be made ready.
    Allocates,
    AwaitsAllocated,
    Asks,
    /// So many signals are still to come.
    Counts(u32),
}

pub struct Burst {
    stage: Stage,
    allocate: Option<Vec<u8>>,
    ask: Vec<u8>,
    /// Number of the signals that are asked for.
    wanted: u32,
    count: u32,
    size: u64,
    phases: Phases,
    timeout: Duration,
    since: Option<Time>,
    tuning: Option<Tuning>,
    batch: Batch,
    fault: Option<Fault>,
    recorder: Recorder,
}

impl Burst {
    pub fn new(case: &Case, style: Style, count: u32, recorder: Recorder) -> Burst {
        let (allocate, ask) = signal::burst(style, count, case.message_bytes);
        Burst { allocate, ..Burst::of(case, ask, BURST_SIGNO, count, recorder) }
    }

    /// `echo`: the signal that goes out and back.
    pub fn echoes(case: &Case, echo: Vec<u8>, recorder: Recorder) -> Burst {
        Burst::of(case, echo, ECHO, 1, recorder)
    }

    fn of(case: &Case, ask: Vec<u8>, wanted: u32, count: u32, recorder: Recorder) -> Burst {
        let size = case.message_bytes;
        let at_once = (ROOM / size as usize).clamp(1, MOST_IN_BATCH);
        Burst {
            stage: Stage::Idle,
            allocate: None,
            ask,
            wanted,
            count,
            size: size.into(),
            phases: Phases::new(case.warm_up.unwrap_or_default(), case.stop),
            timeout: case.timeout,
            since: None,
            tuning: Some(Tuning { wait: case.wait, cpu: case.pin.near, batches_of: Some(size) }),
            batch: Batch::new(size as usize, at_once),
            fault: None,
            recorder,
        }
    }

    fn begin(&mut self, now: Time) -> bool {
        let (phase, begins) = self.phases.at(now);
        if begins {
            self.recorder.begin(now);
        }
        self.since = Some(now);
        self.stage = if self.allocate.is_some() { Stage::Allocates } else { Stage::Asks };
        phase != Phase::Over
    }
}

impl Party for Burst {
    fn next(&mut self, now: Time) -> Step<'_> {
        if let Some(tuning) = self.tuning.take() {
            return Step::Tune(tuning);
        }
        if let Some(fault) = self.fault.take() {
            return Step::Fail(fault);
        }
        if self.stage == Stage::Idle && !self.begin(now) {
            return Step::Done;
        }
        let until = *self.since.get_or_insert(now) + self.timeout;
        match (self.stage, &self.allocate) {
            _ if now >= until => Step::Fail(Fault::TimedOut),
            (Stage::Allocates, Some(allocate)) => Step::Send { bytes: allocate, message: allocate.len() },
            (Stage::Asks, _) => Step::Send { bytes: &self.ask, message: self.ask.len() },
            _ => Step::Receive { into: &mut self.batch, until },
        }
    }

    fn sent(&mut self, _bytes: usize, at: Time) {
        self.since = Some(at);
        self.stage = match self.stage {
            Stage::Allocates => Stage::AwaitsAllocated,
            _ => {
                if self.phases.phase() == Phase::Measuring {
                    self.recorder.counts.sent += u64::from(self.count);
                }
                Stage::Counts(self.count)
            }
        };
    }

    fn received(&mut self, now: Time) {
        let (mut messages, mut strange, mut corrupt) = (0, 0, 0);
        for signal in self.batch.messages() {
            match (self.stage, number(signal)) {
                (Stage::AwaitsAllocated, Some(ALLOC_FINI)) => self.stage = Stage::Asks,
                (Stage::Counts(left), Some(number))
                    if number == self.wanted && signal.len() as u64 == self.size =>
                {
                    messages += 1;
                    if self.wanted == ECHO {
                        corrupt += differing(signal, &self.ask);
                    }
                    self.stage = if left > 1 { Stage::Counts(left - 1) } else { Stage::Idle };
                }
                _ => strange += 1,
            }
        }
        if messages > 0 {
            self.since = Some(now);
            self.phases.sent(messages, messages * self.size);
        }
        if self.phases.phase() == Phase::Measuring {
            self.recorder.counts.corrupt_messages += strange;
            self.recorder.counts.corrupt_bytes += corrupt;
            self.recorder.delivered(now, messages, messages * self.size);
        }
    }

    fn timed_out(&mut self, _now: Time) {
        self.fault = Some(Fault::TimedOut);
    }
}

impl Measured for Burst {
    fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    fn into_recorder(self: Box<Self>) -> Recorder {
        self.recorder
    }
}
