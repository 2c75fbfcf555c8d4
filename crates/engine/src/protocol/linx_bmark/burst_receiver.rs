//! Client of a burst test: requests a burst of signals, counts them, and requests the next burst. An echo is a
//! burst of one signal that equals the request.
//!
//! The time starts at the request, so the rate includes one round trip for each burst, as in the original.

use std::time::Duration;

use super::ClientStyle;
use super::signal::{self, ALLOC_FINI, BURST_SIGNO, ECHO, signal_number};
use crate::link::party::{Party, Step, Tuning};
use crate::link::{Batch, Fault, MAX_BATCH_MESSAGES};
use crate::workload::pattern::count_differing;
use crate::workload::phases::{Phase, PhaseTracker};
use crate::workload::{Load, RecordingParty};
use linkgauge_model::clock::Time;
use linkgauge_model::sample::Recorder;

/// Maximum bytes of a receive, unless one signal is larger.
const MAX_BATCH_BYTES: usize = 128 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BurstStage {
    /// Nothing is in flight: the next burst can be requested.
    Idle,
    /// The server allocates the signals after a request.
    Allocating,
    AwaitingAllocation,
    Requesting,
    /// A burst is being received; this number of signals is still missing.
    Receiving(u32),
}

pub(crate) struct BurstReceiver {
    stage: BurstStage,
    allocation_request: Option<Vec<u8>>,
    burst_request: Vec<u8>,
    /// Number of the requested signals.
    signal_number: u32,
    signals_per_burst: u32,
    signal_bytes: u64,
    phases: PhaseTracker,
    timeout: Duration,
    last_progress: Option<Time>,
    tuning: Option<Tuning>,
    batch: Batch,
    fault: Option<Fault>,
    recorder: Recorder,
}

impl BurstReceiver {
    pub fn new(load: &Load, style: ClientStyle, count: u32, recorder: Recorder) -> BurstReceiver {
        let (allocate, ask) = signal::encode_burst(style, count, load.message_bytes);
        BurstReceiver {
            allocation_request: allocate,
            ..BurstReceiver::with_request(load, ask, BURST_SIGNO, count, recorder)
        }
    }

    /// Receiver of an echo. `echo`: the signal that goes to the server and returns.
    pub(crate) fn new_echo(load: &Load, echo: Vec<u8>, recorder: Recorder) -> BurstReceiver {
        BurstReceiver::with_request(load, echo, ECHO, 1, recorder)
    }

    fn with_request(load: &Load, ask: Vec<u8>, wanted: u32, count: u32, recorder: Recorder) -> BurstReceiver {
        let size = load.message_bytes;
        let at_once = (MAX_BATCH_BYTES / size as usize).clamp(1, MAX_BATCH_MESSAGES);
        BurstReceiver {
            stage: BurstStage::Idle,
            allocation_request: None,
            burst_request: ask,
            signal_number: wanted,
            signals_per_burst: count,
            signal_bytes: size.into(),
            phases: PhaseTracker::new(load.warm_up, load.stop),
            timeout: load.timeout,
            last_progress: None,
            tuning: Some(load.batch_tuning()),
            batch: Batch::new(size as usize, at_once),
            fault: None,
            recorder,
        }
    }

    fn begin_burst(&mut self, now: Time) -> bool {
        let (phase, begins) = self.phases.advance_to(now);
        if begins {
            self.recorder.begin(now);
        }
        self.last_progress = Some(now);
        self.stage =
            if self.allocation_request.is_some() { BurstStage::Allocating } else { BurstStage::Requesting };
        phase != Phase::Finished
    }
}

impl Party for BurstReceiver {
    fn next_step(&mut self, now: Time) -> Step<'_> {
        if let Some(tuning) = self.tuning.take() {
            return Step::Tune(tuning);
        }
        if let Some(fault) = self.fault.take() {
            return Step::Fail(fault);
        }
        if self.stage == BurstStage::Idle && !self.begin_burst(now) {
            return Step::Done;
        }
        let until = *self.last_progress.get_or_insert(now) + self.timeout;
        match (self.stage, &self.allocation_request) {
            _ if now >= until => Step::Fail(Fault::TimedOut),
            (BurstStage::Allocating, Some(allocate)) => {
                Step::Send { bytes: allocate, message: allocate.len() }
            }
            (BurstStage::Requesting, _) => {
                Step::Send { bytes: &self.burst_request, message: self.burst_request.len() }
            }
            _ => Step::Receive { into: &mut self.batch, until },
        }
    }

    fn on_sent(&mut self, _bytes: usize, at: Time) {
        self.last_progress = Some(at);
        self.stage = match self.stage {
            BurstStage::Allocating => BurstStage::AwaitingAllocation,
            _ => {
                if self.phases.phase() == Phase::Measuring {
                    self.recorder.counts.sent += u64::from(self.signals_per_burst);
                }
                BurstStage::Receiving(self.signals_per_burst)
            }
        };
    }

    fn on_received(&mut self, now: Time) {
        let (mut messages, mut strange, mut corrupt) = (0, 0, 0);
        for signal in self.batch.messages() {
            match (self.stage, signal_number(signal)) {
                (BurstStage::AwaitingAllocation, Some(ALLOC_FINI)) => self.stage = BurstStage::Requesting,
                (BurstStage::Receiving(left), Some(number))
                    if number == self.signal_number && signal.len() as u64 == self.signal_bytes =>
                {
                    messages += 1;
                    if self.signal_number == ECHO {
                        corrupt += count_differing(signal, &self.burst_request);
                    }
                    self.stage = if left > 1 { BurstStage::Receiving(left - 1) } else { BurstStage::Idle };
                }
                _ => strange += 1,
            }
        }
        if messages > 0 {
            self.last_progress = Some(now);
            self.phases.count_sent(messages, messages * self.signal_bytes);
        }
        if self.phases.phase() == Phase::Measuring {
            self.recorder.counts.corrupt_messages += strange;
            self.recorder.counts.corrupt_bytes += corrupt;
            self.recorder.record_delivery(now, messages, messages * self.signal_bytes);
        }
    }

    fn on_timeout(&mut self, _now: Time) {
        self.fault = Some(Fault::TimedOut);
    }
}

impl RecordingParty for BurstReceiver {
    fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    fn into_recorder(self: Box<Self>) -> Recorder {
        self.recorder
    }
}
