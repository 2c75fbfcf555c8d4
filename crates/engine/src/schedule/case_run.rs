//! One run of one case: connects, runs the flows, waits for data in transit, and evaluates what client and server report.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::accumulator::CaseAccumulator;
use super::check::{self, CheckedCase};
use super::default_pacing::apply_default_pacing;
use super::flow_runner::{FlowEnd, LoadTimes, RanFlows, errors_of_lines, results_of, run_flows};
use super::flow_threads::{FlowThreads, can_be_guests};
use super::live::{ArrivedCounts, LiveReport, LiveSums, ServerSilence};
use super::{LiveValues, RunContext, RunEvent, no_data, split};
use crate::host::load::HostSnapshot;
use crate::link::serial_line::UartErrors;
use crate::link::{Dialer, Fault, Framing, Link, LinkError};
use crate::protocol::{
    ClientSession, ConnectContext, Flow, IdleTimes, Protocol, ProtocolError, ReadyCase, auto,
};
use crate::workload::report_check::LocalObservations;
use crate::workload::{FlowResult, FlowRole, ServerReport, receiving_ns};
use linkgauge_model::clock::{Clock, Time};
use linkgauge_model::plan::Direction;
use linkgauge_model::run::{CLIENT_THREADS_FACT, Failure, FailureKind};
use linkgauge_model::sample::{
    FlowProgress, LiveTimes, LoadWindow, RecordedTimes, Recorder, ReplySource, SharedRecording,
};
use linkgauge_model::units::format_plural;

/// Interval between queries while the server still receives.
const DRAIN_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Protocols that were detected, by endpoint.
pub(super) type DetectedProtocols = BTreeMap<String, &'static Protocol>;

/// The place of a run of a case in its plan.
#[derive(Debug, Clone, Copy)]
pub(super) struct CasePosition {
    pub(super) case: usize,
    pub(super) repetition: u32,
    /// Number of repetitions.
    pub(super) repeat: u32,
    /// Whether each repetition is a part of the case.
    pub(super) is_part: bool,
}

impl CasePosition {
    /// The number of the repetition, from 1, if there are several.
    fn number(&self) -> Option<u32> {
        (self.repeat > 1).then_some(self.repetition + 1)
    }
}

/// One run of one case.
pub(super) struct CaseRun {
    position: CasePosition,
    case: ReadyCase,
    dialer: Dialer,
    /// Progress of the flows that the display counts.
    progress: Mutex<Vec<Arc<FlowProgress>>>,
    /// Progress of the flows that send payload which does not come back.
    upload_progress: Mutex<Vec<Arc<FlowProgress>>>,
    /// Progress of the probes beside a load.
    probe_progress: Mutex<Vec<Arc<FlowProgress>>>,
    /// Flows with raw samples so far.
    raw_flows: AtomicUsize,
    /// Connections with a log of their replies so far, by endpoint.
    connections: Mutex<BTreeMap<usize, usize>>,
    /// Recordings that many flows of one role and endpoint share, while they are made.
    shared: Mutex<BTreeMap<(FlowRole, usize), SharedRecording>>,
    /// Counts that the display has shown.
    arrived: Mutex<ArrivedCounts>,
    /// The begin and the end of the load.
    window: Arc<LoadWindow>,
}

/// Longest time for which a remote that replies can be silent: the timeout, and longer where probes are rare.
fn longest_silence(case: &ReadyCase) -> Duration {
    let between_probes = case.probe_per_second.map_or(0.0, |rate| 2.0 / rate);
    case.load.timeout.max(Duration::try_from_secs_f64(between_probes).unwrap_or(Duration::MAX))
}

/// The first fault of a flow. Of several connections to an endpoint, it names the one that failed.
fn first_fault(flows: &[FlowResult], parallel: u32) -> Option<Failure> {
    let failed: Vec<(usize, &FlowResult, &Failure)> = flows
        .iter()
        .enumerate()
        .filter_map(|(index, flow)| Some((index, flow, flow.fault.as_ref()?)))
        .collect();
    let &(index, flow, fault) = failed.first()?;
    if parallel == 1 || matches!(flow.role, FlowRole::Probe | FlowRole::Control) {
        return Some(fault.clone());
    }
    let is_like =
        |other: &&FlowResult| other.role == flow.role && other.endpoint_index == flow.endpoint_index;
    let begun = flows.iter().filter(|flow| flow.recorder.first_instant.is_some()).filter(is_like).count();
    let is_same = |(_, _, other): &(usize, &FlowResult, &Failure)| other.message == fault.message;
    if begun > 1 && failed.len() >= begun && failed.iter().all(is_same) {
        return Some(fault.clone());
    }
    let number = flows[..=index].iter().filter(is_like).count();
    let others = match failed.len() - 1 {
        0 => String::new(),
        more => format!(", and {} more", format_plural(more as u64, "fault")),
    };
    let message = format!("connection {number} of {parallel}{others}: {}", fault.message);
    Some(Failure { message, ..fault.clone() })
}

/// A case with open links, before its flows run.
pub(super) struct OpenCase {
    case_run: CaseRun,
    session: Box<dyn ClientSession>,
    flows: Vec<Flow>,
    idle: IdleTimes,
}

impl OpenCase {
    /// Runs the flows, and adds the case to its accumulator. The error is the reason why it is incomplete.
    pub(super) fn run(self, context: &RunContext, accumulator: &mut CaseAccumulator) -> Result<(), Failure> {
        let OpenCase { case_run, session, flows, idle } = self;
        let session = RefCell::new(session);
        let times =
            LoadTimes { idle, window: case_run.window.clone(), silence: longest_silence(&case_run.case) };
        // On the virtual clock, host load has no relation to the run.
        let before = matches!(case_run.dialer.clock, Clock::System).then(HostSnapshot::now);
        let started = case_run.dialer.now();
        let silence = RefCell::new(ServerSilence::new(&case_run.case));
        let report_progress = |elapsed, held_bytes| {
            let moved = session.borrow_mut().moved_bytes();
            case_run.report_progress(context, &LiveReport { elapsed, held_bytes, moved });
            let received = case_run.received_messages();
            silence.borrow_mut().is_over(case_run.dialer.now(), moved.map(|(at, _)| at), received)
        };
        let ran = run_flows(flows, &case_run.dialer, &case_run.case, &times, &report_progress);
        if let Some(before) = before {
            accumulator.record_load(&before, case_run.dialer.now().since(started), &ran.flows);
        }
        case_run.finish(session.into_inner(), ran, context, accumulator)
    }

    /// Whether the flows can run in threads that other runs use as well.
    pub(super) fn can_be_guest(&self) -> bool {
        can_be_guests(&self.case_run.case, &self.flows)
    }

    /// Starts the flows in these threads, and calls `on_ended` in one of them when all have ended. Nothing is read from the host
    /// meanwhile: that would be done for each of the runs.
    pub(super) fn start_as_guest(
        mut self,
        threads: &FlowThreads,
        on_ended: impl FnOnce(EndedCase) + Send + 'static,
    ) {
        let errors_before = errors_of_lines(&mut self.flows);
        let OpenCase { case_run, session, flows, .. } = self;
        case_run.window.set_begin(case_run.dialer.now());
        threads.run(flows, move |ended| {
            case_run.window.set_end(case_run.dialer.now());
            on_ended(EndedCase { case_run, session, ended, errors_before });
        });
    }
}

/// A case whose flows have run in threads of others.
pub(super) struct EndedCase {
    case_run: CaseRun,
    session: Box<dyn ClientSession>,
    ended: Vec<(Flow, FlowEnd)>,
    errors_before: Vec<UartErrors>,
}

impl EndedCase {
    /// Adds the case to its accumulator. The error is the reason why it is incomplete.
    pub fn finish(self, context: &RunContext, accumulator: &mut CaseAccumulator) -> Result<(), Failure> {
        let EndedCase { case_run, session, ended, errors_before } = self;
        let elapsed = case_run.window.end().since(case_run.window.begin());
        let ran =
            RanFlows { elapsed, ..results_of(ended, &errors_before, &case_run.case, case_run.dialer.now()) };
        case_run.finish(session, ran, context, accumulator)
    }
}

/// Results of the flows and the session.
struct EndedFlows {
    began: Time,
    /// Time from the start to the end of the flows.
    elapsed: Duration,
    flows: Vec<FlowResult>,
    report: Result<Option<ServerReport>, ProtocolError>,
    /// Reason why no request had a reply, where the network reports it.
    silence: Option<Fault>,
}

impl CaseRun {
    /// Prepares a case. With `auto`, the protocol is detected first, once for each endpoint.
    pub(super) fn prepare(
        context: &RunContext,
        checked: &CheckedCase,
        position: CasePosition,
        detected: &mut DetectedProtocols,
    ) -> Result<CaseRun, Failure> {
        let mut dialer = context.dialer.clone();
        let load = &checked.ready.load;
        (dialer.wait, dialer.timeout) = (load.wait, load.timeout);
        let mut case = match &checked.undetected {
            None => checked.ready.clone(),
            Some(requested) => {
                let endpoint = &requested.endpoints[0];
                let protocol = match detected.get(endpoint.as_str()) {
                    Some(protocol) => protocol,
                    None => {
                        auto::detect(endpoint, checked.ready.registry, &dialer, &context.connection_cache)?
                    }
                };
                detected.insert(endpoint.to_string(), protocol);
                check::resolve(requested, protocol, checked.ready.registry)
                    .map_err(|error| Failure::new(FailureKind::InvalidCase, error.to_string()))?
            }
        };
        dialer.default_port = case.protocol.default_port(case.endpoints[0].scheme());
        apply_default_pacing(&mut case, &dialer);
        if position.is_part {
            case.load = split::load_of_repetition(&case, position.repetition, position.repeat);
            case.progress_interval = split::progress_interval(&case);
        }
        let (progress, upload_progress, probe_progress, raw_flows, connections, shared, arrived) =
            Default::default();
        let window = Arc::new(LoadWindow::new(0));
        Ok(CaseRun {
            position,
            case,
            dialer,
            progress,
            upload_progress,
            arrived,
            probe_progress,
            raw_flows,
            connections,
            shared,
            window,
        })
    }

    /// Opens the links of the case. The error is the reason why it is incomplete.
    pub(super) fn open(
        mut self,
        context: &RunContext,
        accumulator: &mut CaseAccumulator,
    ) -> Result<OpenCase, Failure> {
        accumulator.case = self.case.clone();
        self.window = Arc::new(LoadWindow::new(accumulator.idle_limit_ns()));
        context.observer.event(&RunEvent::CaseBegins {
            case: self.position.case,
            repetition: self.position.repetition,
            endpoint: self.case.endpoints[0].as_str(),
            protocol: self.case.protocol.name,
            workload: self.case.workload.name,
            message_bytes: self.case.load.message_bytes,
        });
        let mut session = self.connect(context)?;
        let flows = session.take_flows();
        accumulator.record_links(&flows, session.as_ref());
        let idle = self.idle_times(session.as_ref(), accumulator);
        Ok(OpenCase { case_run: self, session, flows, idle })
    }

    /// Adds what the flows measured to the accumulator. The error is the reason why the case is incomplete.
    pub fn finish(
        self,
        mut session: Box<dyn ClientSession>,
        ran: RanFlows,
        context: &RunContext,
        accumulator: &mut CaseAccumulator,
    ) -> Result<(), Failure> {
        let RanFlows { mut flows, mut links, elapsed, shared_threads, evidence } = ran;
        let threads = shared_threads.map(|count| (CLIENT_THREADS_FACT.to_owned(), count.into()));
        accumulator.effective.extend(threads);
        accumulator.client_evidence.extend(evidence);
        // An interrupted case has partial data but no fault of its own.
        accumulator.was_interrupted |= context.is_interrupted();
        let mut next_report = self.dialer.now() + self.case.progress_interval;
        while !context.is_interrupted() && session.is_draining(&flows, &mut links) {
            if self.dialer.now() >= next_report {
                next_report = next_report + self.case.progress_interval;
                let elapsed = self.dialer.now().since(self.window.begin());
                let moved = session.moved_bytes();
                self.report_progress(context, &LiveReport { elapsed, held_bytes: 0, moved });
            }
            self.dialer.clock.sleep_until(self.dialer.now() + DRAIN_POLL_INTERVAL);
        }
        if let Some(link) = links.first().filter(|link| link.caps().framing == Framing::Message) {
            accumulator.note_path_mtu(&link.facts());
        }
        // Only a server that has answered smaller messages describes itself.
        let may_be_size = self.dialer.can_be_silent(&self.case.endpoints[0])
            && !session.server_environment().is_empty()
            && !context.is_interrupted();
        let of_size = may_be_size.then(|| no_data::fault_of_size(&self.case.load, &mut flows)).flatten();
        let silence = of_size.or_else(|| self.explain_silence(&flows, &mut links));
        let silence = silence.filter(|_| !context.is_interrupted());
        let report = session.finish(&flows, links);
        accumulator.server_environment = session.server_environment();
        accumulator.record_ended_settings(session.effective_settings());
        let ended = EndedFlows { began: self.window.begin(), elapsed, flows, report, silence };
        self.evaluate(ended, context, accumulator)
    }

    /// Reason why no request had a reply: reports about them may still be on their way.
    fn explain_silence(&self, flows: &[FlowResult], links: &mut [Box<dyn Link>]) -> Option<Fault> {
        let is_unanswered = |flow: &FlowResult| {
            flow.role == FlowRole::RoundTrip && flow.recorder.counts.received == 0 && flow.fault.is_none()
        };
        let link = links.first_mut().filter(|_| flows.iter().all(is_unanswered))?;
        self.dialer.await_report(&self.case.endpoints[0], link.as_mut())
    }

    /// The idle times that this session can have. Without round trips of the idle link, the end of the
    /// recovery cannot be seen.
    fn idle_times(&self, session: &dyn ClientSession, accumulator: &CaseAccumulator) -> IdleTimes {
        let before = session.lead_in();
        let is_known = !before.is_zero() || accumulator.idle_limit_ns() > 0;
        let after = match is_known && !self.case.idle.after.is_zero() {
            // A session on a link with long round trips has a longer time before the load.
            true => self.case.idle.after.max(before),
            false => Duration::ZERO,
        };
        IdleTimes { before, after }
    }

    fn connect(&self, context: &RunContext) -> Result<Box<dyn ClientSession>, Failure> {
        let connect_context = ConnectContext {
            dialer: &self.dialer,
            token: context.token.as_deref(),
            content: context.content.as_ref(),
            partial_content: context.partial_content.as_ref(),
            connection_cache: &context.connection_cache,
            new_recorder: &|role, port| self.new_recorder(context, role, port),
        };
        let session = (self.case.protocol.connect)(&self.case, &connect_context).map_err(|error| {
            let server = self.case.protocol.server_hint(&self.case.endpoints[0], self.case.caps[0].framing);
            self.diagnosed(error.with_server(server).into())
        });
        // The flows alone share now, so that the last one to end takes the times.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).clear();
        session
    }

    /// The failure of a handshake; if nothing arrives from the host, with the reason for that.
    fn diagnosed(&self, failure: Failure) -> Failure {
        let endpoint = &self.case.endpoints[0];
        let is_silent = failure.kind == FailureKind::TimedOut;
        let reason = is_silent.then(|| self.dialer.diagnose_silence(endpoint)).flatten();
        reason.map_or(failure, |fault| LinkError::new(endpoint, fault).into())
    }

    fn new_recorder(&self, context: &RunContext, role: FlowRole, port: usize) -> Recorder {
        let case = &self.case;
        let recorded = match role {
            FlowRole::Probe => RecordedTimes::ServiceAndResponse,
            FlowRole::RoundTrip if case.load.pacing.per_second().is_some() => {
                RecordedTimes::ServiceAndResponse
            }
            _ => RecordedTimes::Service,
        };
        // A sender's messages are not samples.
        let raw = context.raw.as_ref().filter(|_| role != FlowRole::Upload);
        let raw = raw.map(|raw| raw.sink(self.position.case, self.raw_flows.fetch_add(1, Relaxed)));
        let interval_ns = case.series_interval.as_nanos() as u64;
        let reconnects = case.load.requests_per_connection.is_some() && role == FlowRole::RoundTrip;
        let mut recorder = match case.load.is_one_of_many() && matches!(self.dialer.clock, Clock::System) {
            true => {
                let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
                let times = shared.entry((role, port)).or_insert_with(|| {
                    let times = SharedRecording::new(recorded);
                    let times = if reconnects { times.with_connections() } else { times };
                    self.show_progress(role, times.progress());
                    times
                });
                Recorder::sharing(times, interval_ns, raw)
            }
            false => {
                let progress = Arc::<FlowProgress>::default();
                self.show_progress(role, std::slice::from_ref(&progress));
                let recorder =
                    match case.load.room(case.series_interval).filter(|_| role == FlowRole::RoundTrip) {
                        Some(room) => Recorder::with_room(recorded, interval_ns, room, progress, raw),
                        None => Recorder::new(recorded, interval_ns, progress, raw),
                    };
                if reconnects { recorder.with_connections() } else { recorder }
            }
        };
        if matches!(role, FlowRole::RoundTrip | FlowRole::Probe) {
            recorder.watch_missed_frames(&case.late_limits, self.position.number());
            if !case.load.is_one_of_many() || role == FlowRole::Probe {
                recorder.watch_interval_percentiles();
            }
        }
        if let Some(logs) = context.replies.as_ref().filter(|_| role == FlowRole::RoundTrip) {
            recorder.reply_log = Some(logs.add(self.reply_source(port), case.load.is_one_of_many()));
        }
        if role == FlowRole::Probe {
            recorder.watch_idle(self.window.clone());
        }
        recorder
    }

    /// The next connection to an endpoint, for the log of its replies.
    fn reply_source(&self, port: usize) -> ReplySource {
        let case = &self.case;
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        let connection = connections.entry(port).or_default();
        *connection += 1;
        ReplySource {
            case: self.position.case,
            endpoint: case.endpoints[port].to_string(),
            message_bytes: case.load.message_bytes,
            connection: (case.parallel > 1).then_some(*connection),
            has_stamps: case.load.stamps,
        }
    }

    /// Includes the progress of these flows in the display.
    fn show_progress(&self, role: FlowRole, progress: &[Arc<FlowProgress>]) {
        let list = match role {
            FlowRole::RoundTrip | FlowRole::Download => &self.progress,
            FlowRole::Upload if self.case.direction != Direction::Loop => &self.upload_progress,
            FlowRole::Probe => &self.probe_progress,
            FlowRole::Upload | FlowRole::Control => return,
        };
        list.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(progress);
    }

    /// Number of messages of the loads, and of replies to probes, that have arrived.
    fn received_messages(&self) -> u64 {
        let [loads, probes] = [&self.progress, &self.probe_progress].map(LiveSums::of);
        loads.messages + probes.messages
    }

    fn report_progress(&self, context: &RunContext, live: &LiveReport) {
        let received = LiveSums::of(&self.progress);
        let sent = LiveSums::of(&self.upload_progress);
        let drain = live.expected_drain(&self.case, self.window.begin(), sent.bytes, received.bytes);
        let counted =
            ArrivedCounts::count(live, (&received, &sent), self.window.begin(), self.case.load.message_bytes);
        let shown = self.arrived.lock().unwrap_or_else(PoisonError::into_inner).update(counted);
        let ArrivedCounts { messages, bytes, at_ns, receiving_ns } = shown;
        let timed = [&self.probe_progress, &self.progress, &self.upload_progress]
            .map(|flows| flows.lock().unwrap_or_else(PoisonError::into_inner));
        let timed = timed.iter().find(|flows| !flows.is_empty());
        let percentile =
            |percent| LiveTimes::percentile(timed?.iter().map(|progress| &progress.times), percent);
        let elapsed_ns = live.elapsed.as_nanos() as u64;
        let drain_ns = drain.as_ref().map(|drain| drain.total.as_nanos() as u64);
        let drain_left_ns = drain.and_then(|drain| drain.left).map(|left| left.as_nanos() as u64);
        let stop = self.case.load.stop;
        let flows = u64::from(self.case.parallel) * self.case.endpoints.len() as u64;
        let part = |done: u64, of: Option<u64>| of.map(|of| done as f64 / of as f64);
        let of_all = |limit: Option<u64>| limit.map(|limit| limit * flows);
        let shares = [
            part(messages, of_all(stop.count)),
            part(bytes, of_all(stop.volume_bytes)),
            part(elapsed_ns, stop.time_ns.map(|time_ns| time_ns + drain_ns.unwrap_or(0))),
            part(bytes, Some(received.planned_bytes).filter(|&bytes| bytes > 0)),
        ];
        // The count ends the case only after this time.
        let until = part(elapsed_ns, stop.min_time_ns).unwrap_or(1.0);
        let [of_count, rest @ ..] = shares;
        let shares = of_count.map(|share| share.min(until)).into_iter().chain(rest.into_iter().flatten());
        let share = shares.max_by(f64::total_cmp).map(|share| share.min(1.0));
        let CasePosition { case, repetition, .. } = self.position;
        let values = LiveValues {
            elapsed_ns,
            messages,
            bytes,
            bytes_at_ns: at_ns,
            receiving_ns,
            lost: received.lost + sent.lost,
            p50_ns: percentile(50.0),
            p99_ns: percentile(99.0),
            share,
            drain_ns,
            drain_left_ns,
        };
        context.observer.event(&RunEvent::Progress { case, repetition, values });
    }

    /// Checks the server's report and records the repetition. The first reason why it is incomplete is the error.
    fn evaluate(
        &self,
        ended: EndedFlows,
        context: &RunContext,
        accumulator: &mut CaseAccumulator,
    ) -> Result<(), Failure> {
        let EndedFlows { began, elapsed, flows, report, silence } = ended;
        let client_fault = first_fault(&flows, self.case.parallel);
        let (report, report_fault) = match report {
            Ok(report) => (report, None),
            Err(error) => (None, Some(Failure::from(error))),
        };
        // Data accepted by the local system may still have been in transit for a while.
        let server_elapsed = receiving_ns(report.iter().flat_map(|report| &report.flows));
        let since = self.dialer.now().since(began);
        let elapsed = elapsed.max(Duration::from_nanos(server_elapsed).min(since));
        let known = LocalObservations {
            endpoints: &self.case.endpoints,
            load: &self.case.load,
            caps: &self.case.caps,
            flows: &flows,
            elapsed: since,
            was_interrupted: context.is_interrupted(),
        };
        let (mut report, problem) = accumulator.check_report(report, &known);
        let server_evidence = report.as_mut().and_then(|report| report.evidence.take());
        accumulator.server_evidence.extend(server_evidence);
        // After an abort by the server, the client sees only a closed link.
        let server_fault = report.iter().flat_map(|report| &report.flows).find_map(|flow| flow.fault.clone());
        let server_fault = server_fault.map(|fault| Failure::new(FailureKind::Remote, fault));
        accumulator.record(flows, report, elapsed);
        let mut missing = None;
        if let Some(part) = accumulator.repetitions.last() {
            let CasePosition { case, repetition, .. } = self.position;
            context.observer.event(&RunEvent::CaseEnds { case, repetition, figures: &part.figures });
            missing = no_data::find_failure(&self.case, &part.figures, silence)
                .filter(|_| !context.is_interrupted());
        }
        server_fault.or(client_fault).or(report_fault).or(problem).or(missing).map_or(Ok(()), Err)
    }
}
