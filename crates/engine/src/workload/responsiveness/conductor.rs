//! Starts the connections one by one, ends the measurement, and computes its result. It runs inside the party that collects
//! the probes of the first connection.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::algorithm::{
    AVERAGED_INTERVALS, Decision, INTERVAL, RampUp, RoundTripsPerMinute, trimmed_mean_ns,
};
use super::shared::LoadState;
use linkgauge_model::clock::Time;
use linkgauge_model::run::ResponsivenessFigures;
use linkgauge_model::sample::ProbeLog;

/// The plan of a measurement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConductorPlan {
    /// Connections that can be started.
    pub(crate) connections: u32,
    /// Time without load at the beginning, for links on which no other connection measures it.
    pub(crate) idle: Duration,
    /// Longest time of the load.
    pub(crate) max_time: Duration,
}

/// The state of a measurement.
#[derive(Debug)]
pub(crate) struct Conductor {
    state: Arc<LoadState>,
    plan: ConductorPlan,
    ramp: RampUp,
    /// Beginning of the load.
    begins_at: Option<Time>,
    /// Beginning of the current interval.
    interval_began: Time,
    /// Time of the last call.
    last_call: Time,
    /// Scratch memory.
    times_ns: Vec<u64>,
}

impl Conductor {
    /// A conductor before its first call.
    pub fn new(state: Arc<LoadState>, plan: ConductorPlan) -> Conductor {
        Conductor {
            state,
            plan,
            ramp: RampUp::default(),
            begins_at: None,
            interval_began: Time(0),
            last_call: Time(0),
            times_ns: ProbeLog::new_buffer(),
        }
    }

    /// Performs the actions that are due. The first call begins the measurement. Returns the time of the next call.
    pub(crate) fn advance(&mut self, now: Time) -> Time {
        let begins_at = *self.begins_at.get_or_insert_with(|| {
            let begins_at = now + self.plan.idle;
            self.state.window.set_begin(begins_at);
            self.interval_began = begins_at;
            begins_at
        });
        self.last_call = now;
        if now < begins_at {
            return begins_at;
        }
        if self.state.running_connections.load(Relaxed) == 0 {
            self.state.begin(now);
            self.state.running_connections.store(1, Relaxed);
        }
        let ends_at = begins_at + self.plan.max_time;
        while now >= self.interval_began + INTERVAL && !self.state.is_over() {
            self.end_interval();
        }
        if now >= ends_at {
            self.state.end();
        }
        if self.state.is_over() && self.state.window.end() == Time::NEVER {
            self.state.window.set_end(now);
        }
        (self.interval_began + INTERVAL).min(ends_at)
    }

    pub fn end_interval(&mut self) {
        let (from, to) = (self.interval_began, self.interval_began + INTERVAL);
        self.interval_began = to;
        let probes = self.round_trips_per_minute(from, to);
        match self.ramp.end_interval(self.state.arrived(), probes) {
            Decision::AddConnection => {
                let running = self.state.running_connections.load(Relaxed);
                self.state.running_connections.store((running + 1).min(self.plan.connections), Relaxed);
            }
            Decision::Continue => {}
            Decision::Finish => self.state.end(),
        }
    }

    /// Number of round trips per minute of the replies from `from` until before `to`.
    fn round_trips_per_minute(&mut self, from: Time, to: Time) -> RoundTripsPerMinute {
        let [foreign, own] = [&self.state.foreign_probes, &self.state.own_probes].map(|log| {
            log.read_into(&mut self.times_ns, from, to);
            trimmed_mean_ns(&mut self.times_ns)
        });
        RoundTripsPerMinute::from_means_ns(foreign, own)
    }

    /// Result of the last complete intervals or, without one, of everything. `None` before the load has begun.
    pub(crate) fn into_figures(mut self) -> Option<ResponsivenessFigures> {
        let begins_at = self.begins_at?;
        let averaged = self.ramp.intervals().min(AVERAGED_INTERVALS) as u32;
        let (from, to) = match averaged {
            0 => (begins_at, Time::NEVER),
            _ => (Time(self.interval_began.0 - (INTERVAL * averaged).as_nanos() as u64), self.interval_began),
        };
        let probes = self.round_trips_per_minute(from, to);
        let stall_ns = self.state.longest_stall_ns(self.state.window.end().min(self.last_call));
        let figures = self.ramp.figures(probes, self.state.running_connections.load(Relaxed));
        Some(ResponsivenessFigures { longest_stall_ns: Some(stall_ns as f64), ..figures })
    }
}
