//! Connect: time to open a connection, and number of connections that can be opened in a second. Nothing is sent on them.
//!
//! The party is `Connector`. It has one connection at a time, which it closes before it opens the next one.

use std::time::Duration;

use super::phases::{Phase, PhaseTracker, SendSchedule};
use super::redial::{OpeningEnd, Redial};
use super::silence::FinalSilence;
use super::{FlowRole, Load, MeasuredFlows, RecordingParty, TrafficKind, Workload};
use crate::link::Fault;
use crate::link::party::{Party, PartyCost, Step, Tuning};
use linkgauge_model::clock::Time;
use linkgauge_model::plan::{Direction, StopCondition};
use linkgauge_model::run::Figures;
use linkgauge_model::sample::{Recorder, Sample};

/// The `connect` workload.
pub const WORKLOAD: Workload = Workload {
    name: "connect",
    summary: "time to open a connection, and connections per second",
    traffic: TrafficKind::Connections,
    default_stop: StopCondition {
        count: Some(10_000),
        time_ns: Some(10_000_000_000),
        volume_bytes: None,
        min_time_ns: None,
    },
    has_repetitions: true,
    default_direction: Direction::Loop,
    default_timeout: Duration::from_secs(1),
    default_size: |_| 0,
    default_warm_up: StopCondition {
        count: Some(100),
        time_ns: Some(500_000_000),
        volume_bytes: None,
        min_time_ns: None,
    },
    method,
    figures,
};

fn method(load: &Load) -> String {
    let kind = if load.pacing.per_second().is_some() { "schedule" } else { "closed" };
    format!("connect/1 {kind}")
}

pub(super) fn figures(measured: &MeasuredFlows) -> Figures {
    super::merged_recorder(measured.flows, FlowRole::RoundTrip)
        .map_or_else(Figures::default, |all| all.latency_figures(measured.late_limits))
}

/// The connection that is being opened.
#[derive(Debug, Clone, Copy)]
struct PendingConnection {
    intended: Time,
    is_measured: bool,
}

/// Opens and closes connections, and records the time that opening took.
pub(crate) struct Connector {
    schedule: SendSchedule,
    phases: PhaseTracker,
    recorder: Recorder,
    tuning: Option<Tuning>,
    is_first_measured: bool,
    redial: Redial,
    opening: Option<PendingConnection>,
    next_sequence: u64,
    silence: FinalSilence,
    last_opened: Option<Time>,
    timeout: Duration,
}

impl Connector {
    /// Client for one flow; its link is open.
    pub fn new(load: &Load, recorder: Recorder) -> Connector {
        let schedule = SendSchedule::new(load.pacing).sharing(load.flow_index, load.flows);
        let phases = PhaseTracker::new(load.warm_up, load.stop);
        Connector {
            phases: if schedule.is_shared() { phases } else { phases.with_first_message() },
            schedule,
            recorder,
            tuning: Some(load.tuning()),
            is_first_measured: false,
            redial: Redial::new(),
            opening: None,
            next_sequence: 0,
            silence: FinalSilence::default(),
            last_opened: None,
            timeout: load.timeout,
        }
    }

    /// Counts the attempt that has ended at `now`.
    fn record(&mut self, opening: PendingConnection, ended: OpeningEnd, now: Time) {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        self.schedule.advance();
        self.phases.count_sent(1, 0);
        if !opening.is_measured {
            return;
        }
        let (intended, began) = (opening.intended, ended.began);
        self.recorder.counts.sent += 1;
        let held_up = !self.schedule.is_closed_loop() && self.schedule.due(began) <= began;
        self.recorder.counts.late_sends += u64::from(held_up);
        if ended.is_open {
            self.silence.on_reply();
            self.last_opened = Some(now);
            self.recorder.record_reply(Sample { sequence, intended, sent: began, received: now }, 0);
        } else {
            self.silence.on_loss();
            self.recorder.record_loss(now);
            // The rate is that of the whole time: an attempt that fails takes longest.
            self.recorder.last_instant = Some(now);
            self.recorder.record_missed_frame(sequence, intended);
        }
    }
}

impl Party for Connector {
    fn next_step(&mut self, now: Time) -> Step<'_> {
        if let Some(tuning) = self.tuning.take() {
            return Step::Tune(tuning);
        }
        if let Some(step) = self.redial.close().or_else(|| self.redial.continue_opening()) {
            return step;
        }
        let (phase, begins) = self.phases.advance_to(now);
        self.is_first_measured |= begins;
        if phase == Phase::Finished {
            self.recorder.counts.missed_sends += self.schedule.take_overdue(self.phases.time_limit(), now);
            let counts = &self.recorder.counts;
            let is_lost = self.silence.shows_lost_server(counts, self.last_opened, self.timeout, now);
            if !is_lost {
                return Step::Done;
            }
            // The rate is that of the time in which there was a server.
            self.recorder.last_instant = self.last_opened;
            return Step::Fail(Fault::TimedOut);
        }
        if let Some(step) = self.redial.give_up() {
            return step;
        }
        let due = self.schedule.due(now).max(self.redial.not_before());
        if due > now {
            return Step::Sleep(if self.schedule.is_shared() {
                due.min(self.phases.time_limit())
            } else {
                due
            });
        }
        let is_measured = phase == Phase::Measuring;
        if std::mem::take(&mut self.is_first_measured) && !self.schedule.is_shared() {
            self.phases.set_begin(now);
        }
        if is_measured && self.recorder.first_instant.is_none() {
            self.recorder.begin(now);
        }
        let intended = if self.schedule.is_closed_loop() { now } else { due };
        self.opening = Some(PendingConnection { intended, is_measured });
        self.redial.open(now)
    }

    fn on_reopened(&mut self, outcome: Result<(), Fault>, now: Time) -> Result<(), Fault> {
        let Some(opening) = self.opening.take() else { return outcome };
        let ended = self.redial.end_opening(outcome, now)?;
        self.record(opening, ended, now);
        Ok(())
    }

    fn on_sent(&mut self, _bytes: usize, _at: Time) {}

    fn on_received(&mut self, _now: Time) {}

    fn on_timeout(&mut self, _now: Time) {}

    fn on_ended(&mut self, _cost: PartyCost) {
        self.recorder.finish();
    }
}

impl RecordingParty for Connector {
    fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    fn into_recorder(self: Box<Self>) -> Recorder {
        self.recorder
    }
}
