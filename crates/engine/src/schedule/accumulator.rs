//! Accumulates the repetitions and ports of a case and makes the result of them.

mod idle;
mod intervals;
mod line_figures;
mod marks;
mod tcp;

use std::time::Duration;

use serde_json::{Map, Value, json};

use self::idle::{Beside, IdleRecords};
use self::intervals::{
    TransferSeries, busy_share, mean_round_trips, set_intervals, set_round_trip_intervals, whole_parts,
};
use super::check::CheckedCase;
use crate::host::load::HostSnapshot;
use crate::link::{Facts, LinkRate};
use crate::protocol::{ClientSession, Flow, ReadyCase};
use crate::workload::flow_figures::flow_figures;
use crate::workload::report_check::{CheckedReport, LocalObservations, check_report};
use crate::workload::{FlowResult, FlowRole, MeasuredFlows, ServerReport, merged_recorder};
use linkgauge_model::consistency;
use linkgauge_model::plan::{Direction, StopCondition};
use linkgauge_model::run::{
    CaseResult, CpuUse, Delivery, EXCEPTIONS_FACT, EndEvidence, Evidence, Failure, FailureKind, Figures,
    FlowFigures, HostLoad, MTU_REPORTER_FACT, ONE_REPETITION_FACT, PATH_MTU_FACT, PartResult, Placement,
    RECEIVED_SERIES, RELIABLE_STREAM_FACT, RETRANSMITS_FACT, SERIES_FACT, SPLIT_FACT, SeriesEntry, Warning,
    WarningCode,
};
use linkgauge_model::sample::{Recorder, append_entries, set_queueing};
use linkgauge_model::stats;
use linkgauge_model::warnings;

/// Latencies in which trends are looked for.
const MAX_TREND_SAMPLES: usize = 100_000;

/// Data of a case so far.
pub(super) struct CaseAccumulator {
    pub(super) case: ReadyCase,
    /// Planned repetitions.
    pub(super) repeat: u32,
    /// Stop condition of the case as checked, which is not split.
    checked_stop: StopCondition,
    requested: Map<String, Value>,
    pub(super) effective: Map<String, Value>,
    /// Link rates, one for each port.
    link_rates: Vec<Option<LinkRate>>,
    pub(super) server_environment: Map<String, Value>,
    pub(super) repetitions: Vec<PartResult>,
    per_endpoint: Vec<PartResult>,
    /// Round trips of all repetitions, including those of the probe.
    round_trips: Option<Recorder>,
    probes: Option<Recorder>,
    idle: IdleRecords,
    /// The first latencies of one flow, in order.
    first_latencies: Vec<u64>,
    series: Vec<SeriesEntry>,
    /// Number of repetitions whose series of an upload is the server's.
    received_series: usize,
    /// Series of the probes beside the load.
    probe_series: Vec<SeriesEntry>,
    /// Series of the last repetition.
    transfer: TransferSeries,
    cpu: CpuUse,
    retransmits: Option<u64>,
    /// Other load of the host, in the worst repetition.
    host_load: Option<HostLoad>,
    /// Evidence of each repetition, at this end and at the server.
    pub(super) client_evidence: Vec<EndEvidence>,
    pub(super) server_evidence: Vec<EndEvidence>,
    /// Method of measurement, if the protocol decides about it.
    method: Option<String>,
    elapsed: Duration,
    pub(super) failures: Vec<Failure>,
    /// A signal arrived during the case.
    pub(super) was_interrupted: bool,
    /// Repetitions without a receive report of the server.
    unconfirmed_repetitions: usize,
    /// Implausible values that the server reported.
    report_problems: Vec<String>,
}

impl CaseAccumulator {
    pub fn new(checked: &CheckedCase, repeat: u32) -> CaseAccumulator {
        let case = &checked.ready;
        CaseAccumulator {
            case: case.clone(),
            repeat,
            checked_stop: case.load.stop,
            requested: checked.requested.clone(),
            effective: Map::new(),
            link_rates: vec![None; case.endpoints.len()],
            server_environment: Map::new(),
            repetitions: Vec::new(),
            per_endpoint: Vec::new(),
            round_trips: None,
            probes: None,
            idle: IdleRecords::default(),
            first_latencies: Vec::new(),
            series: Vec::new(),
            received_series: 0,
            probe_series: Vec::new(),
            transfer: TransferSeries::default(),
            cpu: CpuUse::default(),
            retransmits: None,
            host_load: None,
            client_evidence: Vec::new(),
            server_evidence: Vec::new(),
            method: None,
            elapsed: Duration::ZERO,
            failures: Vec::new(),
            was_interrupted: false,
            unconfirmed_repetitions: 0,
            report_problems: Vec::new(),
        }
    }

    /// Plans one repetition instead of parts.
    pub(super) fn measure_as_a_whole(&mut self, reason: &str) {
        self.repeat = 1;
        self.requested.remove(SPLIT_FACT);
        self.requested.insert("stop".to_owned(), json!(self.checked_stop));
        self.requested.insert(ONE_REPETITION_FACT.to_owned(), reason.into());
    }

    /// Effective settings of the links; the first link represents all.
    pub(super) fn record_links(&mut self, flows: &[Flow], session: &dyn ClientSession) {
        if let Some(flow) = flows.first() {
            let exceptions = self.effective.remove_entry(EXCEPTIONS_FACT);
            self.effective = flow.link.facts();
            self.effective.extend(exceptions);
            self.effective.insert("framing".to_owned(), flow.link.caps().framing.name().into());
            if self.case.is_reliable_stream() {
                self.effective.insert(RELIABLE_STREAM_FACT.to_owned(), true.into());
            }
        }
        if self.requested.get("pacing") != Some(&json!(self.case.load.pacing)) {
            self.effective.insert("pacing".to_owned(), json!(self.case.load.pacing));
        }
        for flow in flows {
            self.link_rates[flow.endpoint_index] = flow.link.caps().link_rate;
        }
        self.effective.extend(session.effective_settings());
        self.method = session.method();
    }

    /// Settings at the end of a repetition. Exceptions are those of all repetitions.
    pub(super) fn record_ended_settings(&mut self, mut settings: Map<String, Value>) {
        if let (Some(Value::Object(before)), Some(Value::Object(counts))) =
            (self.effective.get(EXCEPTIONS_FACT), settings.get_mut(EXCEPTIONS_FACT))
        {
            for (code, earlier) in before {
                let count = |value: Option<&Value>| value.and_then(Value::as_u64).unwrap_or(0);
                let sum = count(Some(earlier)).saturating_add(count(counts.get(code)));
                counts.insert(code.clone(), sum.into());
            }
        }
        self.effective.extend(settings);
    }

    /// Notes the facts that the kernel has learnt about the path while datagrams were sent.
    pub(super) fn note_path_mtu(&mut self, facts: &Facts) {
        for name in [PATH_MTU_FACT, MTU_REPORTER_FACT] {
            self.effective.extend(facts.get(name).map(|value| (name.to_owned(), value.clone())));
        }
    }

    /// Removes implausible values from the report. Adds a reason for an incomplete case if no rate is left.
    pub(super) fn check_report(
        &mut self,
        report: Option<ServerReport>,
        known: &LocalObservations,
    ) -> (Option<ServerReport>, Option<Failure>) {
        let Some(report) = report else { return (None, None) };
        let CheckedReport { report, problems: doubts, is_rate_unknown } = check_report(report, known);
        let unknown = doubts.first().filter(|_| is_rate_unknown);
        let unknown = unknown.map(|doubt| {
            let message = format!("{doubt}: that is impossible, so throughput is unknown");
            Failure::new(FailureKind::ImplausibleReport, message)
        });
        // Problems repeat in each repetition; list each once.
        let new =
            doubts.into_iter().filter(|doubt| !self.report_problems.contains(doubt)).collect::<Vec<_>>();
        self.report_problems.extend(new);
        (Some(report), unknown)
    }

    /// The longest round trip of a probe that counts as one of the idle link, in ns; 0 if none is known.
    pub(super) fn idle_limit_ns(&self) -> u64 {
        self.idle.limit_ns()
    }

    /// Load of the host since the start of a repetition.
    pub(super) fn record_load(&mut self, before: &HostSnapshot, elapsed: Duration, flows: &[FlowResult]) {
        let waited_ns = flows.iter().filter_map(|flow| flow.thread.run_queue_wait_ns).max();
        let waited = waited_ns.unwrap_or(0) as f64 * 1e-9;
        let load = HostSnapshot::now().since(before, elapsed.as_secs_f64(), waited);
        self.host_load = Some(self.host_load.take().unwrap_or_default().worst_of(load));
    }

    pub(super) fn record(&mut self, flows: Vec<FlowResult>, report: Option<ServerReport>, elapsed: Duration) {
        let figures = self.figures(&flows, report.as_ref());
        let mut figures = line_figures::with_line_figures(figures, &self.link_rates, &flows);
        figures.marks = marks::packet_marks(&flows, report.as_ref());
        let elapsed_ns = elapsed.as_nanos() as u64;
        let is_unconfirmed = self.is_unconfirmed(&flows, report.as_ref());
        self.unconfirmed_repetitions += usize::from(is_unconfirmed);
        let is_unreported = match self.case.direction {
            Direction::Loop => false,
            Direction::Receive => is_unconfirmed,
            // Also where a report is left out, because it cannot be true.
            Direction::Send | Direction::Both => figures.delivery.delivered_bytes.is_none(),
        };
        if is_unreported && figures.counts.sent > 0 && figures.counts.lost == 0 {
            figures.counts.forget_lost();
        }
        let mut part = PartResult::new(self.case.endpoints[0].as_str(), elapsed_ns, figures);
        // Further flows run elsewhere.
        let is_load = |flow: &&FlowResult| !matches!(flow.role, FlowRole::Probe | FlowRole::Control);
        if let [flow] = flows.iter().filter(is_load).collect::<Vec<_>>()[..] {
            part.client_cpu = flow.cpu;
            part.server_cpu = report.as_ref().and_then(|report| report.cpu);
        }
        self.repetitions.push(part);
        self.cpu.client_seconds += flows.iter().map(|flow| flow.cpu_seconds).sum::<f64>();
        let waiting: f64 = flows.iter().map(|flow| flow.busy_poll_seconds).sum();
        if waiting > 0.0 {
            *self.cpu.client_busy_poll_seconds.get_or_insert(0.0) += waiting;
        }
        if let Some(seconds) = report.as_ref().and_then(|report| report.cpu_seconds) {
            *self.cpu.server_seconds.get_or_insert(0.0) += seconds;
        }
        let uploads = flows.iter().filter(|flow| flow.role == FlowRole::Upload);
        let retransmits = uploads.filter_map(|flow| flow.retransmits);
        self.retransmits = self.retransmits.into_iter().chain(retransmits).reduce(u64::saturating_add);
        let is_split = self.requested.contains_key(SPLIT_FACT);
        if let Some(flow) = flows.iter().find(|flow| flow.role == FlowRole::RoundTrip) {
            if !is_split {
                self.first_latencies.clear();
            }
            let left = MAX_TREND_SAMPLES.saturating_sub(self.first_latencies.len());
            self.first_latencies.extend(flow.recorder.service_times.first_times().iter().take(left));
        }
        // A download with a request per chunk has round trips as well.
        let chunks =
            merged_recorder(&flows, FlowRole::Download).filter(|recorder| recorder.transfer_counts.is_some());
        for (recorder, all) in [
            (merged_recorder(&flows, FlowRole::RoundTrip).or(chunks), &mut self.round_trips),
            (merged_recorder(&flows, FlowRole::Probe), &mut self.probes),
        ] {
            if let Some(recorder) = recorder {
                all.get_or_insert_with(|| recorder.empty_like()).merge(&recorder);
            }
        }
        self.record_series(&flows, report.as_ref(), elapsed);
        self.record_added_latency(&flows);
        if self.case.endpoints.len() > 1 {
            self.per_endpoint = self.figures_per_endpoint(flows, report, elapsed_ns);
        }
    }

    /// Appends the time series of a repetition, and adds its duration. An upload's series is the server's, if it reported one.
    fn record_series(&mut self, flows: &[FlowResult], report: Option<&ServerReport>, elapsed: Duration) {
        let offset_ns = self.elapsed.as_nanos() as u64;
        self.elapsed += elapsed;
        let shown = [FlowRole::RoundTrip, FlowRole::Download, FlowRole::Upload];
        let server_seconds = report.and_then(|report| report.cpu_seconds);
        self.transfer = TransferSeries {
            busy_share: busy_share(flows, server_seconds, elapsed),
            is_reliable_stream: self.case.is_reliable_stream(),
            ..TransferSeries::default()
        };
        let Some(main) = shown.into_iter().find_map(|role| merged_recorder(flows, role)) else { return };
        let received = report
            .and_then(ServerReport::received_series)
            .map(|(series, elapsed_ns)| series.entries(elapsed_ns));
        let own = main.time_series.entries(main.elapsed_ns());
        let own_parts = whole_parts(&own);
        let received_parts = received.as_deref().map(whole_parts);
        (self.transfer.forward, self.transfer.reverse) = match self.case.direction {
            Direction::Both => (received_parts.unwrap_or_default(), own_parts),
            _ => (received_parts.unwrap_or(own_parts), Vec::new()),
        };
        let received = received.filter(|_| self.case.direction == Direction::Send);
        self.received_series += usize::from(received.is_some());
        let mut entries = received.unwrap_or(own);
        let origin = main.time_series.start();
        set_queueing(&mut entries, origin, main.queueing());
        append_entries(&mut self.series, entries, offset_ns);
        let probe = merged_recorder(flows, FlowRole::Probe);
        let queueing = probe.as_ref().map_or(&[][..], Recorder::queueing);
        if let Some(probe) = &probe {
            let mut entries = probe.time_series.entries_beside(&main.time_series, probe.elapsed_ns());
            self.transfer.loaded_ns = mean_round_trips(&entries);
            set_queueing(&mut entries, origin, queueing);
            append_entries(&mut self.probe_series, entries, offset_ns);
        }
        self.idle.record(&self.case, flows, Beside { main: &main.time_series, offset_ns, queueing });
    }

    /// Adds to the last repetition what its load added to the round trips of its probe.
    fn record_added_latency(&mut self, flows: &[FlowResult]) {
        let Some(probe) = merged_recorder(flows, FlowRole::Probe) else { return };
        let added = self.idle.added(Some(&probe.latency_figures(&self.case.late_limits)), &[]);
        if let Some(part) = self.repetitions.last_mut() {
            part.figures.added_latency = added;
        }
    }

    /// The figures of these flows.
    pub fn figures(&self, flows: &[FlowResult], report: Option<&ServerReport>) -> Figures {
        let measured = MeasuredFlows {
            direction: self.case.direction,
            is_reliable_stream: self.case.is_reliable_stream(),
            late_limits: &self.case.late_limits,
            message_bytes: self.case.load.message_bytes,
            flows,
            report,
        };
        let figures = (self.case.workload.figures)(&measured);
        // The connections of a growing load cannot be alike.
        let is_comparable = self.case.parallel > 1 && figures.responsiveness.is_none();
        let flows = is_comparable.then(|| flow_figures(&measured)).flatten();
        Figures { flows, ..figures }
    }

    /// The figures of each port in the last repetition.
    fn figures_per_endpoint(
        &self,
        flows: Vec<FlowResult>,
        report: Option<ServerReport>,
        elapsed_ns: u64,
    ) -> Vec<PartResult> {
        let mut ports: Vec<Vec<FlowResult>> = self.case.endpoints.iter().map(|_| Vec::new()).collect();
        for flow in flows {
            ports[flow.endpoint_index].push(flow);
        }
        let parts = ports.iter().enumerate().map(|(port, flows)| {
            let report = report.as_ref().map(|report| ServerReport {
                flows: report.flows.iter().filter(|flow| flow.port == port).cloned().collect(),
                ..ServerReport::default()
            });
            let figures = self.figures(flows, report.as_ref());
            let figures = line_figures::with_line_figures(figures, &self.link_rates[port..=port], flows);
            PartResult::new(self.case.endpoints[port].as_str(), elapsed_ns, figures)
        });
        parts.collect()
    }

    /// The result for the document.
    pub(super) fn into_result(mut self, overhead_ns: Option<f64>) -> CaseResult {
        if let Some(segments) = self.retransmits {
            self.effective.insert(RETRANSMITS_FACT.to_owned(), segments.into());
        }
        if self.received_series > 0 && self.received_series == self.repetitions.len() {
            self.effective.insert(SERIES_FACT.to_owned(), RECEIVED_SERIES.into());
        }
        let case = &self.case;
        let complete = self.failures.is_empty()
            && !self.was_interrupted
            && self.repetitions.len() == self.repeat as usize;
        let under_load = self.probes.as_ref().map(|probes| probes.latency_figures(&case.late_limits));
        let mut figures = self.total_figures();
        if !self.failures.is_empty() {
            forget_rates_of_a_moment(&mut figures.delivery);
        }
        // Where no other connection has probes, those of the load are compared with the idle link.
        figures.added_latency =
            self.idle.added(Some(under_load.as_ref().unwrap_or(&figures)), &self.repetitions);
        self.set_intervals(&mut figures);
        let evidence = combine_evidence(&self.client_evidence, &self.server_evidence);
        marks::add_segment_marks(&mut figures.marks, evidence.as_ref());
        let mut result = CaseResult {
            protocol: case.protocol.name.to_owned(),
            message_bytes: case.load.message_bytes,
            ports: case.endpoints.len() as u32,
            parallel: case.parallel,
            method: self.method.clone().unwrap_or_else(|| (case.workload.method)(&case.load)),
            complete,
            failures: self.failures.clone(),
            elapsed_ns: self.elapsed.as_nanos() as u64,
            cpu: self.cpu_use(&figures),
            under_load,
            idle: self.idle.before().map(|idle| idle.latency_figures(&case.late_limits)),
            fairness: line_figures::fairness(&self.per_endpoint),
            port_latency_ratio: line_figures::port_latency_ratio(&self.per_endpoint),
            series: self.series.clone(),
            under_load_series: self.probe_series.clone(),
            idle_series: self.idle.series(),
            recovery_series: self.idle.recovery_series().to_vec(),
            requested: self.requested.clone(),
            effective: self.effective.clone(),
            line: line_figures::line_facts(case, &self.link_rates),
            placement: placement(case, self.host_load.as_ref()),
            evidence,
            repeats: if self.repetitions.len() > 1 { self.repetitions.clone() } else { Vec::new() },
            per_port: self.per_endpoint.clone(),
            ..CaseResult::of_figures(
                case.endpoints[0].to_string(),
                case.workload.name,
                case.direction,
                figures,
            )
        };
        result.figures.tcp = tcp::tcp_figures(&result);
        consistency::limit_intervals(&mut result);
        result.thresholds = case.thresholds.iter().map(|threshold| threshold.evaluate(&result)).collect();
        result.warnings = self.warnings(&result, overhead_ns);
        result
    }

    /// Sets the intervals of the figures: over the repetitions, or within the only one.
    fn set_intervals(&self, figures: &mut Figures) {
        match &self.repetitions[..] {
            [_] => self.transfer.set_intervals(figures),
            parts => set_intervals(figures, parts),
        }
        if self.requested.contains_key(ONE_REPETITION_FACT) {
            set_round_trip_intervals(figures);
        }
    }

    /// The figures of all repetitions together.
    fn total_figures(&self) -> Figures {
        let mut figures = combine_repetitions(&self.repetitions);
        if let Some(round_trips) = &self.round_trips {
            // Pauses between repetitions do not count for the rates.
            let Figures { delivery, line_errors, flows, responsiveness, marks, .. } = figures;
            let times = round_trips.latency_figures(&self.case.late_limits);
            figures = Figures { delivery, line_errors, flows, responsiveness, marks, ..times };
        }
        figures
    }

    /// The CPU time, if anything was measured.
    fn cpu_use(&self, figures: &Figures) -> Option<CpuUse> {
        if self.repetitions.is_empty() {
            return None;
        }
        let both = self.cpu.client_seconds + self.cpu.server_seconds.unwrap_or(0.0);
        let bytes = [figures.delivery.delivered_bytes, figures.delivery.delivered_reverse_bytes];
        let delivered = bytes.iter().map(|bytes| bytes.unwrap_or(0) as f64).sum::<f64>();
        // Undelivered data took time as well, so the rate is unknown without a server report.
        let is_known = delivered > 0.0 && bytes[0].is_some() && self.unconfirmed_repetitions == 0;
        let seconds_per_gigabyte = is_known.then(|| both * 1e9 / delivered);
        Some(CpuUse { seconds_per_gigabyte, ..self.cpu.clone() })
    }

    /// Reasons to doubt the result.
    fn warnings(&self, result: &CaseResult, overhead_ns: Option<f64>) -> Vec<Warning> {
        let mut list = Vec::new();
        for failure in &self.failures {
            let text = format!("not measured as planned: {failure}");
            list.push(Warning::new(WarningCode::Incomplete, text, ""));
        }
        if self.was_interrupted {
            let text = "the measurement was stopped before its end";
            list.push(Warning::new(WarningCode::Interrupted, text, "let it run to the end"));
        }
        list.extend(self.unconfirmed(&result.figures));
        list.extend(warnings::implausible_report(&self.report_problems));
        list.extend(warnings::case_warnings(result, &self.first_latencies, overhead_ns));
        list.extend(consistency::measured_warning(result));
        list
    }

    /// Whether the server did not report what it received, or how many numbered messages it sent over a link that loses some.
    fn is_unconfirmed(&self, flows: &[FlowResult], report: Option<&ServerReport>) -> bool {
        let has_upload = flows.iter().any(|flow| flow.role == FlowRole::Upload);
        let is_numbered =
            |flow: &FlowResult| flow.role == FlowRole::Download && flow.recorder.counts.sent > 0;
        match self.case.direction {
            Direction::Loop => false,
            Direction::Send | Direction::Both => report.is_none() && has_upload,
            Direction::Receive => {
                let has_report = report.is_some_and(|report| report.flows.iter().any(|flow| flow.inward));
                !has_report && !self.case.is_reliable_stream() && flows.iter().any(is_numbered)
            }
        }
    }

    /// The warning about repetitions without a receive report.
    fn unconfirmed(&self, figures: &Figures) -> Option<Warning> {
        let (missing, all) = (self.unconfirmed_repetitions, self.repetitions.len());
        let which = if all > 1 { format!(" for {missing} of {all} runs") } else { String::new() };
        let is_known = figures.delivery.delivered_bytes.is_some();
        let is_partly_known = is_known && !self.repetitions.iter().all(|part| has_delivery(&part));
        let (text, remedy) = match (is_known, is_partly_known) {
            (true, false) => (
                "the delivered bytes are those that its system acknowledged to this host, and its program may have \
                 read fewer",
                "find out why the server stopped, and run again",
            ),
            (true, true) => {
                ("these are left out of the figures", "find out why the server stopped, and run again")
            }
            (false, _) => ("throughput is unknown", "the time series shows what was handed to the link"),
        };
        if missing > 0 && self.case.direction == Direction::Receive {
            let text = format!(
                "the server sent no report{which}: messages that were lost after the last one received are not counted"
            );
            return Some(Warning::new(WarningCode::Unconfirmed, text, remedy));
        }
        let text = format!("the server sent no receive report{which}: {text}");
        (missing > 0).then(|| Warning::new(WarningCode::Unconfirmed, text, remedy))
    }
}

/// Whether both ends' counts of a transfer are known: by a report, or because the system reports acknowledged bytes.
fn has_delivery(part: &&PartResult) -> bool {
    part.figures.delivery.delivered_bytes.is_some()
}

/// The evidence of all repetitions, if there is some.
fn combine_evidence(client: &[EndEvidence], server: &[EndEvidence]) -> Option<Evidence> {
    let loads_ns: Vec<u64> = client.iter().map(|part| part.observed_ns).collect();
    (!client.is_empty()).then(|| Evidence {
        client: EndEvidence::of_repetitions(client, &loads_ns),
        server: (!server.is_empty()).then(|| EndEvidence::of_repetitions(server, &loads_ns)),
    })
}

/// Counts of all repetitions together; rates are those of the median repetition. If some repetitions lack the delivered
/// bytes because the server vanished, the others alone count: a loss needs the counts of both ends.
fn combine_repetitions(parts: &[PartResult]) -> Figures {
    let is_partly_known = parts.iter().any(|part| has_delivery(&part));
    let mut counted = parts.iter().filter(|part| !is_partly_known || has_delivery(part));
    let Some(first) = counted.next() else { return Figures::default() };
    let mut all = first.figures.clone();
    for part in counted {
        all.add_counts(&part.figures);
    }
    let ratio = |flows: &&FlowFigures| flows.min_max_ratio;
    let worst = parts.iter().filter_map(|part| part.figures.flows.as_ref());
    all.flows = worst.min_by(|a, b| ratio(a).total_cmp(&ratio(b))).cloned();
    let median = |get: fn(&Figures) -> Option<f64>| {
        stats::median(&parts.iter().filter_map(|part| get(&part.figures)).collect::<Vec<f64>>())
    };
    all.delivery = Delivery {
        throughput_bps: median(|figures| figures.delivery.throughput_bps),
        throughput_reverse_bps: median(|figures| figures.delivery.throughput_reverse_bps),
        messages_per_second: median(|figures| figures.delivery.messages_per_second),
        line_rate_percent: median(|figures| figures.delivery.line_rate_percent),
        drain_ns: parts.iter().filter_map(|part| part.figures.delivery.drain_ns).max(),
        ..all.delivery
    };
    all
}

/// Minimum time of a rate: a shorter time shows only the filling of buffers.
const MIN_RATE_TIME_NS: f64 = 1e8;

/// Leaves out the rates of a transfer that broke off at once.
fn forget_rates_of_a_moment(delivery: &mut Delivery) {
    let is_moment = |bytes: Option<u64>, rate: Option<f64>| {
        bytes.zip(rate).is_some_and(|(bytes, rate)| (bytes as f64 * 8e9) < rate * MIN_RATE_TIME_NS)
    };
    if is_moment(delivery.delivered_bytes, delivery.throughput_bps) {
        (delivery.throughput_bps, delivery.messages_per_second, delivery.line_rate_percent) =
            (None, None, None);
    }
    if is_moment(delivery.delivered_reverse_bytes, delivery.throughput_reverse_bps) {
        delivery.throughput_reverse_bps = None;
    }
}

/// Placement of both programs, wait mode and host load.
fn placement(case: &ReadyCase, load: Option<&HostLoad>) -> Placement {
    Placement {
        client_cpu: Some(case.load.cpu.into()),
        server_cpu: Some(case.server_cpu.into()),
        wait: Some(case.load.wait),
        host_load: load.map(HostLoad::rounded).unwrap_or_default(),
        ..Placement::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repetition_whose_server_vanished_has_no_share_in_the_loss() {
        let part = |sent, lost, delivered_bytes| {
            let mut figures = Figures::default();
            (figures.counts.sent, figures.counts.lost) = (sent, lost);
            figures.delivery.delivered_bytes = delivered_bytes;
            PartResult::new("udp://host", 1, figures)
        };
        let reported = part(100, 10, Some(90));
        let vanished = part(50, 0, None);
        let all = combine_repetitions(&[reported.clone(), vanished.clone()]);
        assert_eq!((all.counts.sent, all.counts.lost, all.delivery.delivered_bytes), (100, 10, Some(90)));
        // Where no repetition has the bytes, as for round trips, all count.
        assert_eq!(combine_repetitions(&[vanished.clone(), vanished]).counts.sent, 100);
    }
}
