//! Reads the evidence of one repetition on the system clock: before, about ten times a second, and after. The threads
//! that measure read nothing.

use std::time::Duration;

use crate::host::evidence::{ThreadCounters, differences, host_counters};
use crate::link::counters::{ConnectionLog, LinkProbe};
use crate::protocol::Flow;
use crate::workload::FlowRole;
use linkgauge_model::clock::Time;
use linkgauge_model::run::{Counters, EndEvidence, MAX_OBSERVED_CONNECTIONS, add_counters};

/// Time between readings of the connections.
const READING_INTERVAL: Duration = Duration::from_millis(100);

/// The evidence of a repetition while it runs.
pub(super) struct EvidenceRecorder {
    host_before: Counters,
    /// The time since the start and the counters at the end of the load.
    ended: Option<(Duration, Counters)>,
    logs: Vec<ConnectionLog>,
    /// Time of the next reading, from the start.
    next_reading: Duration,
}

/// Probes that can read the connections of the load.
pub(super) fn load_probes<'a>(flows: impl Iterator<Item = &'a Flow> + Clone) -> Vec<LinkProbe> {
    let moves_load = |flow: &Flow| matches!(flow.role, FlowRole::Upload | FlowRole::Download);
    // Beside a load, round trips run on its own connections.
    let has_load = flows.clone().any(moves_load);
    let measured = flows.filter(|flow| match flow.role {
        FlowRole::Probe | FlowRole::Control => false,
        FlowRole::RoundTrip => !has_load,
        FlowRole::Upload | FlowRole::Download => true,
    });
    let probes = measured.filter_map(|flow| LinkProbe::of(flow.link.as_ref()));
    probes.take(MAX_OBSERVED_CONNECTIONS).collect()
}

impl EvidenceRecorder {
    /// Takes the first readings, when the load begins.
    pub(super) fn start(probes: Vec<LinkProbe>) -> EvidenceRecorder {
        let logs = probes.into_iter().map(ConnectionLog::start).collect();
        let host_before = host_counters();
        let next_reading = READING_INTERVAL;
        EvidenceRecorder { logs, host_before, ended: None, next_reading }
    }

    /// Time at which the next reading is due, from the start.
    pub(super) fn next_reading(&self) -> Duration {
        self.next_reading
    }

    /// Reads the connections if a reading is due, this long after the start.
    pub(super) fn read_when_due(&mut self, elapsed: Duration) {
        if elapsed >= self.next_reading && self.ended.is_none() {
            self.read(elapsed);
            self.next_reading = elapsed + READING_INTERVAL;
        }
    }

    fn read(&mut self, elapsed: Duration) {
        for log in &mut self.logs {
            log.read(Time(elapsed.as_nanos() as u64));
        }
    }

    /// Sent bytes that TCP has not delivered, by the last readings.
    pub(super) fn held_bytes(&self) -> u64 {
        self.logs.iter().map(ConnectionLog::held_bytes).sum()
    }

    /// Takes the last readings, unless the load had ended before.
    pub(super) fn stop(&mut self, elapsed: Duration) {
        if self.ended.is_none() {
            self.read(elapsed);
            self.ended = Some((elapsed, host_counters()));
        }
    }

    /// The evidence from the start to [`EvidenceRecorder::stop`], at the latest until now. `threads`: the change of the
    /// counters of each measuring thread.
    pub fn finish(mut self, elapsed: Duration, threads: impl Iterator<Item = ThreadCounters>) -> EndEvidence {
        self.stop(elapsed);
        let (elapsed, host_after) = self.ended.take().unwrap_or_default();
        let mut evidence = EndEvidence {
            observed_ns: elapsed.as_nanos() as u64,
            host: differences(&self.host_before, &host_after),
            ..EndEvidence::default()
        };
        threads.for_each(|thread| add_counters(&mut evidence.threads, &thread.named()));
        for log in &self.logs {
            let connections = log.evidence();
            evidence.add_flows(&EndEvidence { connections, ..EndEvidence::default() });
        }
        evidence
    }
}
