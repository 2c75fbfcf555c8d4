//! The idle link around a load: what its probes measured there, and the latency that the load adds.

use crate::protocol::ReadyCase;
use crate::workload::FlowResult;
use crate::workload::throughput::planned_time;
use linkgauge_model::run::{AddedLatency, Figures, PartResult, SeriesEntry};
use linkgauge_model::sample::{
    IdleRecorders, QueueingDelay, Recorder, TimeSeries, append_entries, idle_limit_ns, set_queueing,
};
use linkgauge_model::stats::{self, nearest_rank};

/// Records of the probes on the idle link, of all repetitions.
#[derive(Default)]
pub(super) struct IdleRecords {
    before: Option<Recorder>,
    recovery_ns: Option<u64>,
    recovery_series: Vec<SeriesEntry>,
    /// Queueing delays of the probes of the first repetition.
    queueing: Vec<QueueingDelay>,
}

/// The load of a repetition: its series, which began `offset_ns` after the first, and the queueing delays of the probes.
pub(super) struct Beside<'a> {
    pub(super) main: &'a TimeSeries,
    pub(super) offset_ns: u64,
    pub(super) queueing: &'a [QueueingDelay],
}

impl IdleRecords {
    /// The longest round trip that counts as one of the idle link, in ns; 0 if none is known.
    pub(super) fn limit_ns(&self) -> u64 {
        self.before.as_ref().map_or(0, |before| idle_limit_ns(before.service_times.max()))
    }

    /// Adds the probes of a repetition of this case.
    pub(super) fn record(&mut self, case: &ReadyCase, flows: &[FlowResult], beside: Beside) {
        let Beside { main, offset_ns, queueing } = beside;
        let probes: Vec<&IdleRecorders> =
            flows.iter().filter_map(|flow| flow.recorder.idle.as_deref()).collect();
        for probe in &probes {
            if probe.before.counts.sent > 0 {
                self.before.get_or_insert_with(|| probe.before.empty_like()).merge(&probe.before);
                if self.queueing.is_empty() {
                    self.queueing = queueing.to_vec();
                }
            }
        }
        let Some(idle_ns) = self.median_ns().filter(|_| !case.idle.after.is_zero()) else { return };
        let planned = planned_time(case.load.stop, case.load.warm_up);
        let recovered: Option<Vec<u64>> =
            probes.iter().map(|probe| probe.recovery_ns(idle_ns, planned)).collect();
        let probed = probes.iter().any(|probe| probe.after.counts.sent > 0);
        if probed {
            // The slowest port decides.
            self.recovery_ns = recovered.and_then(|all| all.into_iter().max());
        }
        for probe in probes {
            let mut entries = probe.after.time_series.entries_beside(main, probe.after.elapsed_ns());
            set_queueing(&mut entries, main.start(), queueing);
            append_entries(&mut self.recovery_series, entries, offset_ns);
        }
    }

    fn median_ns(&self) -> Option<u64> {
        let times = &self.before.as_ref()?.service_times;
        (times.count() > 0).then(|| times.ranks().value_at_rank(nearest_rank(times.count(), 0.5)))
    }

    /// The records before the load.
    pub(super) fn before(&self) -> Option<&Recorder> {
        self.before.as_ref()
    }

    /// The series before the load.
    pub(super) fn series(&self) -> Vec<SeriesEntry> {
        let Some(before) = &self.before else { return Vec::new() };
        let mut entries = before.time_series.entries(before.elapsed_ns());
        set_queueing(&mut entries, before.time_series.start(), &self.queueing);
        entries
    }

    /// The series after the load.
    pub(super) fn recovery_series(&self) -> &[SeriesEntry] {
        &self.recovery_series
    }

    /// Latency that the load adds; `loaded` are the figures of the probe under load. The median is that of the repetitions, as in
    /// a comparison: each fills the queue in its own way.
    pub(super) fn added(&self, loaded: Option<&Figures>, repetitions: &[PartResult]) -> Option<AddedLatency> {
        let added = AddedLatency::new(self.median_ns()?, loaded);
        let of_each: Option<Vec<f64>> =
            repetitions.iter().map(|part| part.figures.added_latency?.added_p50()).collect();
        let middle = of_each.as_deref().and_then(stats::median).or(added.added_p50());
        Some(AddedLatency {
            added_p50_ns: middle.filter(|middle| middle.is_finite()),
            is_added_p50_lost: middle.is_some_and(f64::is_infinite),
            recovery_ns: self.recovery_ns.map(|ns| ns as f64),
            ..added
        })
    }
}
