//! `linkgauge`: the native protocol. Client and server agree on a plan, both count, the server reports.
//!
//! A control connection has requests and replies (`wire`). Every flow has a connection of its own; its first message
//! attaches it to the session. This file is the client, `server` the server.

mod attach;
mod control;
mod drain;
mod evidence;
mod flows;
mod hex;
mod one_way;
pub mod proof;
pub(crate) mod request_sender;
mod server;
mod server_socket;
pub mod wire;

use std::time::Duration;

use serde_json::{Map, Value};

use super::{CaseDraft, CaseError, ClientSession, ConnectContext, Flow, Protocol, ProtocolError, ReadyCase};
use crate::link::dialer::GreetedLink;
use crate::link::{Caps, Fault, Link, unacknowledged_time};
use crate::workload::throughput::{overtime, planned_time};
use crate::workload::{FlowReport, FlowResult, FlowRole, MovedBytes, ServerReport, TrafficKind};
use linkgauge_model::clock::{Clock, Time};
use linkgauge_model::endpoint::Endpoint;
use linkgauge_model::plan::{Direction, MAX_IDLE_TIME, Pacing, SocketSettings, StopCondition};
use linkgauge_model::sample::CommonTime;

use attach::{SessionKey, open_attached};
use control::ControlConnection;
pub(crate) use control::GreetedConnection;
use drain::DrainTracker;
use flows::{FlowMaker, flow_kinds};
pub(crate) use request_sender::try_times;
use server::is_connectionless;
pub use wire::Hello;
use wire::{FlowKind, LEAD_IN_CAPABILITY, MAX_SERIES_FLOWS, ServerPlan, SessionReply, SessionRequest};

/// Names and meanings of the options.
const OPTIONS: &[(&str, &str)] = {
    let [nodelay, quick_ack, send_buffer, receive_buffer] = *server_socket::OPTIONS;
    &[nodelay, quick_ack, send_buffer, receive_buffer, one_way::OPTION]
};

/// The `linkgauge` protocol.
pub(crate) const PROTOCOL: Protocol = Protocol {
    name: "linkgauge",
    summary: "the protocol of linkgauge: client and server agree on a plan, count and report",
    default_ports: &[],
    traffic: &[
        (TrafficKind::RoundTrips, &[Direction::Loop]),
        (TrafficKind::Load, &[Direction::Send, Direction::Receive, Direction::Both]),
        (TrafficKind::ProbedLoad, &[Direction::Send, Direction::Receive]),
        (TrafficKind::CapacitySearch, &[Direction::Send, Direction::Receive]),
    ],
    options: OPTIONS,
    sizes: &[],
    is_measured_whole: false,
    shorthand: None,
    original_server: None,
    prepare_case,
    connect,
    serve: Some(server::new_service),
};

fn connect(case: &ReadyCase, context: &ConnectContext) -> Result<Box<dyn ClientSession>, ProtocolError> {
    let mut session = LinkgaugeSession {
        endpoint_sessions: Vec::new(),
        flows: Vec::new(),
        clock: context.dialer.clock.clone(),
        timeout: case.load.timeout,
        longest_silence: case
            .longest_server_silence(alive_interval(case, matches!(context.dialer.clock, Clock::System))),
        drain: match case.sends() {
            true => DrainTracker::for_upload(&case.load),
            false => DrainTracker::for_report(case.load.timeout),
        },
        // The client ends a load with probes.
        longest_sending: planned_time(case.load.stop, case.load.warm_up)
            .filter(|_| case.workload.traffic != TrafficKind::ProbedLoad)
            .map(|planned| planned.saturating_add(overtime(planned, case.load.flows))),
        lead_in: Duration::ZERO,
    };
    for port in 0..case.endpoints.len() {
        session.endpoint_sessions.push(EndpointSession::open(case, context, port, &mut session.flows)?);
    }
    // The flows of all ports begin together.
    let lead_ins = session.endpoint_sessions.iter().map(|port| port.lead_in);
    session.lead_in = lead_ins.max().unwrap_or_default();
    for port in &mut session.endpoint_sessions {
        port.control.request(&SessionRequest::Start)?;
    }
    Ok(Box::new(session))
}

/// The idle link is probed for at least this number of round trips: the replies to the probes of the last one are too late.
const IDLE_ROUND_TRIPS: u32 = 2;

/// A message size for any server environment.
const MIN_MESSAGE_BYTES: usize = 16 * 1024;

/// Control messages are separate from the payload, so any payload works.
fn prepare_case(case: &mut CaseDraft, caps: &Caps) -> Result<(), CaseError> {
    server_socket::parse(&case.options)?;
    if one_way::is_requested(&case.options)? || case.stamps {
        one_way::prepare_case(case, caps)?;
    }
    if case.workload.traffic == TrafficKind::ProbedLoad {
        case.check_probed_load(caps)?;
    }
    if case.workload.traffic == TrafficKind::CapacitySearch {
        case.check_capacity_search(caps, 1)?;
    }
    case.plan_idle_times(caps);
    match (caps.can_open_parallel, caps.max_message_bytes) {
        (true, Some(most)) if most < MIN_MESSAGE_BYTES => Err(CaseError::Link(format!(
            "linkgauge: a session needs messages of {} and more, and this link allows {most} bytes: see its options, or \
             use --protocol echo",
            linkgauge_model::units::format_bytes(MIN_MESSAGE_BYTES as u64)
        ))),
        (true, _) => Ok(()),
        (false, _) => Err(CaseError::Link(
            "linkgauge: a session needs two connections, and this link allows one at a time: use --protocol echo, \
             which 'linkgauge serve' supports too"
                .to_owned(),
        )),
    }
}

struct LinkgaugeSession {
    endpoint_sessions: Vec<EndpointSession>,
    flows: Vec<Flow>,
    clock: Clock,
    /// The timeout of the flows.
    timeout: Duration,
    /// Longest silence of servers that report without a request.
    longest_silence: Duration,
    drain: DrainTracker,
    /// Longest time that the server may send, if it is planned.
    longest_sending: Option<Duration>,
    /// Time that the servers wait before the load.
    lead_in: Duration,
}

/// The session with the server of one endpoint.
struct EndpointSession {
    control: ControlConnection,
    flow_kinds: Vec<FlowKind>,
    /// Time that the server waits before the load.
    lead_in: Duration,
    effective_settings: Map<String, Value>,
    server_environment: Map<String, Value>,
    /// The first part of the report, or why there is none.
    report: Option<Result<ServerReport, ProtocolError>>,
}

impl EndpointSession {
    fn open(
        case: &ReadyCase,
        context: &ConnectContext,
        port: usize,
        flows: &mut Vec<Flow>,
    ) -> Result<EndpointSession, ProtocolError> {
        let endpoint = &case.endpoints[port];
        let (mut control, greeting) = ControlConnection::open(endpoint, case.registry, context)?;
        let opened = control.open_session(greeting, context.token)?;
        let kinds = flow_kinds(case, control.link.caps());
        check_capabilities(endpoint, &kinds, &opened.capabilities)?;
        let socket = server_socket::requested(case, control.link.as_ref(), endpoint, &opened.capabilities)?;
        // On the virtual clock the system counts nothing that belongs to the run.
        let evidence = matches!(context.dialer.clock, Clock::System);
        // An older server begins at once, so its idle link cannot be measured.
        let can_wait = opened.capabilities.iter().any(|name| name == LEAD_IN_CAPABILITY);
        let is_probed = kinds.iter().any(|(_, role)| *role == FlowRole::Probe);
        let lead_in = match can_wait && is_probed && !case.idle.before.is_zero() {
            true => case.idle.before.max(IDLE_ROUND_TRIPS * opened.round_trip).min(MAX_IDLE_TIME),
            false => Duration::ZERO,
        };
        let lead_in_ns = lead_in.as_nanos() as u64;
        let has_times = kinds.iter().any(|(kind, _)| kind.has_times());
        let local_time = context.dialer.read_time_of_day().filter(|_| has_times);
        let stated_at = context.dialer.now();
        let time_of_day = local_time.is_some();
        let plan = ServerPlan { socket, lead_in_ns, time_of_day, ..server_plan(case, &kinds, evidence) };
        let granted = control.request_plan(&plan, case.load)?;
        let session = SessionKey { session_id: opened.session_id, key: opened.key.into() };
        let target = context.dialer.connected_endpoint(endpoint, control.link.as_ref());
        let links = open_attached(&target, context.dialer, &session, kinds.len())?;
        let common_time = local_time.zip(granted.time_of_day).and_then(|(local, remote)| {
            let (offset_ns, error_ns) = local.offset_of(&remote)?;
            Some(CommonTime { offset_ns, error_ns, stated_at })
        });
        let mut flow_maker = FlowMaker::new(case, granted.load, context, port);
        flow_maker.common_time = common_time;
        for (number, ((_, role), GreetedLink { link, result })) in kinds.iter().zip(links).enumerate() {
            if let Err(fault) = result {
                flow_maker.add_failed(*role, link, fault, flows)?;
                continue;
            }
            let keepalive = || session.attach(number).keepalive(&session.key).to_vec();
            let sign = is_connectionless(link.caps()).then(keepalive);
            flow_maker.add(*role, link, sign, flows)?;
        }
        let mut effective_settings = granted.settings;
        effective_settings.extend(local_time.into_iter().flat_map(|time| time.facts("")));
        effective_settings.extend(granted.time_of_day.into_iter().flat_map(|time| time.facts("server_")));
        effective_settings.insert("server_tool".to_owned(), opened.tool.into());
        Ok(EndpointSession {
            control,
            flow_kinds: plan.flows,
            lead_in,
            effective_settings,
            server_environment: opened.environment,
            report: None,
        })
    }
}

/// Whether the server supports these kinds of flow.
fn check_capabilities(
    endpoint: &Endpoint,
    kinds: &[(FlowKind, FlowRole)],
    capabilities: &[String],
) -> Result<(), ProtocolError> {
    let is_missing = |(kind, _): &&(FlowKind, FlowRole)| !capabilities.iter().any(|name| name == kind.name());
    let Some((kind, _)) = kinds.iter().find(is_missing) else { return Ok(()) };
    let what = format!(
        "the server does not support {}: use the same version of linkgauge on both hosts",
        kind.name()
    );
    Err(ProtocolError::unexpected_reply(endpoint, what))
}

/// The pacing of messages that the server sends. It sends none after a pause, and servers need not know that pacing.
fn server_pacing(pacing: Pacing) -> Pacing {
    match pacing {
        Pacing::ThinkTime { .. } => Pacing::Closed,
        pacing => pacing,
    }
}

/// Interval between the server's reports without a request.
fn alive_interval(case: &ReadyCase, evidence: bool) -> Duration {
    // The display shows what arrives at the server. There is none on the virtual clock.
    let is_shown = evidence && case.sends();
    if is_shown { ALIVE_INTERVAL.min(case.progress_interval) } else { ALIVE_INTERVAL }
}

/// Plan of the server's part of a case.
fn server_plan(case: &ReadyCase, kinds: &[(FlowKind, FlowRole)], evidence: bool) -> ServerPlan {
    let load = &case.load;
    ServerPlan {
        flows: kinds.iter().map(|(kind, _)| *kind).collect(),
        message_bytes: load.message_bytes,
        pacing: server_pacing(load.pacing),
        // A reflecting server has no stop condition of its own.
        stop: StopCondition { min_time_ns: None, ..load.stop },
        warm_up: load.warm_up,
        timeout_ns: load.timeout.as_nanos() as u64,
        wait: load.wait,
        cpu: case.server_cpu,
        socket: SocketSettings::default(),
        evidence,
        lead_in_ns: 0,
        time_of_day: false,
        alive_interval_ns: alive_interval(case, evidence).as_nanos() as u64,
        // Only the server knows when data has arrived.
        series_interval_ns: match case.direction {
            Direction::Send => case.series_interval.as_nanos() as u64,
            Direction::Receive | Direction::Both | Direction::Loop => 0,
        },
    }
}

/// Interval between checks for the end of the drain, and how long to drain after an interrupt.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
const CANCEL_DRAIN_TIME: Duration = Duration::from_millis(500);

/// Time within which a server stops its receivers.
const CUT_TIMEOUT: Duration = Duration::from_secs(3);

/// Time for a reply from a server that takes no data any more: enough for a satellite link.
const STALLED_REPLY_TIMEOUT: Duration = Duration::from_secs(2);

/// Longest silence of the control connection: some NAT devices forget connections that are idle for 5 s.
const ALIVE_INTERVAL: Duration = Duration::from_secs(3);

/// Fault of a server that ignores the time of the plan.
const NEVER_STOPS: &str =
    "the server sent for much longer than planned: use the same version of linkgauge on both hosts";

/// Fault of a flow without an end.
const UNFINISHED_FAULT: &str = "not all sent data arrived in time: check the link, and --timeout";

impl EndpointSession {
    /// Requests the report. Returns the bytes received so far if the server still receives.
    fn request_report(&mut self, request: &SessionRequest) -> Option<u64> {
        match self.control.request(request) {
            Ok(SessionReply::Pending { bytes, .. }) => return Some(bytes),
            Ok(SessionReply::Report(report)) => self.report = Some(Ok(report)),
            Ok(reply) => self.report = Some(Err(self.control.unexpected_reply(&reply))),
            Err(error) => self.report = Some(Err(error)),
        }
        None
    }

    /// Reason for the failure of a flow at the server, by its report. `longest`: the longest time that the server may send.
    fn fault_of(&self, flow: &FlowReport, kind: FlowKind, longest: Option<Duration>) -> Option<String> {
        let is_too_long = |longest| kind.is_sender() && Duration::from_nanos(flow.elapsed_ns) > longest;
        match &flow.fault {
            Some(fault) => Some(self.control.server_fault(fault)),
            None => {
                longest.is_some_and(is_too_long).then(|| format!("{}: {NEVER_STOPS}", self.control.endpoint))
            }
        }
    }

    /// The complete report, after all flows have ended.
    fn complete_report(&mut self) -> Result<ServerReport, ProtocolError> {
        let what = "the report does not belong to the flows of this case";
        let strange = ProtocolError::unexpected_reply(&self.control.endpoint, what);
        let mut report =
            self.report.take().unwrap_or_else(|| Err(self.control.link_error(Fault::TimedOut)))?;
        let count = self.flow_kinds.len();
        let is_bounded = |flow: &FlowReport| flow.is_bounded(count <= MAX_SERIES_FLOWS);
        if !report.flows.iter().all(is_bounded) {
            return Err(strange);
        }
        while report.flows.len() < count {
            match self.control.request(&SessionRequest::Rest { from: report.flows.len() as u32 })? {
                // Each part may be large; all of them together are not.
                SessionReply::Report(rest) if !rest.flows.is_empty() && rest.flows.iter().all(is_bounded) => {
                    report.flows.extend(rest.flows)
                }
                _ => return Err(strange),
            }
        }
        if report.flows.len() > count { Err(strange) } else { Ok(report) }
    }

    /// Stops the server's receivers if the report is not available yet.
    fn cut_off(&mut self, clock: &Clock) {
        let until = clock.now() + CUT_TIMEOUT;
        while self.report.is_none()
            && self.request_report(&SessionRequest::Cut).is_some()
            && clock.now() < until
        {
            clock.sleep_until(clock.now() + POLL_INTERVAL);
        }
    }
}

/// Whether all loads that have begun waited for their timeout, or all probes would have, which end without it. A responsiveness begins
/// its connections one by one, and a second flow on each of them only collects the round trips of its probes.
fn have_flows_stalled(flows: &[FlowResult], now: Time, timeout: Duration) -> bool {
    let is_silent = |flow: &FlowResult| flow.recorder.last_instant.is_some_and(|last| now >= last + timeout);
    let mut probes = flows.iter().filter(|flow| flow.role == FlowRole::Probe).peekable();
    if probes.peek().is_some() && probes.all(is_silent) {
        return true;
    }
    let is_one_way = |flow: &FlowResult| matches!(flow.role, FlowRole::Upload | FlowRole::Download);
    let are_one_way = flows.iter().any(is_one_way);
    let is_load = |flow: &&FlowResult| is_one_way(flow) || !are_one_way && flow.role == FlowRole::RoundTrip;
    let has_begun = |flow: &&FlowResult| flow.is_stalled || flow.recorder.first_instant.is_some();
    let mut loads = flows.iter().filter(is_load).filter(has_begun).peekable();
    let has_stalled =
        |flow: &FlowResult| flow.is_stalled || flow.role == FlowRole::Download && is_silent(flow);
    loads.peek().is_some() && loads.all(has_stalled)
}

impl LinkgaugeSession {
    /// Time for which no load has made progress, as far as is known.
    fn idle_time(&self, flows: &[FlowResult], links: &[Box<dyn Link>]) -> Duration {
        // A flow that stalled has waited for its timeout already.
        if have_flows_stalled(flows, self.clock.now(), self.timeout) {
            return self.timeout;
        }
        links.iter().filter_map(|link| unacknowledged_time(link.as_ref())).min().unwrap_or_default()
    }

    /// Whether no server has reported for so long that none is there any more.
    fn are_servers_silent(&mut self) -> bool {
        let reported = self.endpoint_sessions.iter_mut().filter_map(|port| port.control.read_moved_bytes());
        let last = reported.map(|(at, _)| at).max();
        last.is_some_and(|at| self.clock.now().since(at) >= self.longest_silence)
    }

    /// Limits the wait for each reply.
    fn limit_replies(&mut self, timeout: Duration) {
        for port in &mut self.endpoint_sessions {
            port.control.dialer.timeout = port.control.dialer.timeout.min(timeout);
        }
    }
}

impl ClientSession for LinkgaugeSession {
    fn take_flows(&mut self) -> Vec<Flow> {
        std::mem::take(&mut self.flows)
    }

    fn lead_in(&self) -> Duration {
        self.lead_in
    }

    fn moved_bytes(&mut self) -> Option<(Time, MovedBytes)> {
        let mut all: Option<(Time, MovedBytes)> = None;
        for port in &mut self.endpoint_sessions {
            let (at, moved) = port.control.read_moved_bytes()?;
            let (oldest, sum) = all.get_or_insert((at, MovedBytes::default()));
            *oldest = at.min(*oldest);
            sum.add(moved);
        }
        all
    }

    fn is_draining(&mut self, flows: &[FlowResult], links: &mut [Box<dyn Link>]) -> bool {
        let now = self.clock.now();
        if !self.drain.has_begun() {
            let idle = self.idle_time(flows, links);
            if idle >= self.timeout {
                self.limit_replies(STALLED_REPLY_TIMEOUT);
            }
            self.drain.begin(now, idle);
            // Receiving servers see the end of the data; a fault here appears in the report.
            links.iter_mut().for_each(|link| drop(link.finish_sending()));
        }
        for port in self.endpoint_sessions.iter_mut().filter(|port| port.report.is_none()) {
            port.report = port.control.take_report().map(Ok);
        }
        if self.endpoint_sessions.iter().all(|port| port.report.is_some()) {
            return false;
        }
        // Requests would queue behind the data that this host still holds.
        // The queue of a broken link no longer drains.
        let queued = || {
            let intact = links.iter().map(|link| link.status()).filter(|status| !status.is_broken);
            intact.filter_map(|status| status.unacknowledged_bytes).sum()
        };
        let are_silent = self.are_servers_silent();
        if !are_silent && self.drain.update_local(now, queued) {
            return true;
        }
        if are_silent || self.drain.is_stalled() {
            self.limit_replies(STALLED_REPLY_TIMEOUT);
        }
        let mut bytes = None;
        for port in self.endpoint_sessions.iter_mut().filter(|port| port.report.is_none()) {
            if let Some(more) = port.request_report(&SessionRequest::Finish) {
                bytes = Some(bytes.unwrap_or(0u64).saturating_add(more));
            }
        }
        bytes.is_some_and(|bytes| self.drain.update_remote(self.clock.now(), bytes))
    }

    fn finish(
        &mut self,
        flows: &[FlowResult],
        mut links: Vec<Box<dyn Link>>,
    ) -> Result<Option<ServerReport>, ProtocolError> {
        // After an interrupt, data that arrives soon still counts.
        let soon = self.clock.now() + CANCEL_DRAIN_TIME;
        while !self.drain.has_timed_out() && self.is_draining(flows, &mut links) && self.clock.now() < soon {
            self.clock.sleep_until(self.clock.now() + POLL_INTERVAL);
        }
        let mut all = ServerReport::default();
        let several = self.endpoint_sessions.len() > 1;
        for (number, port) in self.endpoint_sessions.iter_mut().enumerate() {
            let cut = port.report.is_none();
            port.cut_off(&self.clock);
            let report = match port.complete_report() {
                Ok(report) => report,
                // The reports of the other ports remain valid.
                Err(error) if several => {
                    let fault = Some(error.to_string());
                    all.flows.push(FlowReport { port: number, fault, ..FlowReport::default() });
                    continue;
                }
                Err(error) => return Err(error),
            };
            all.cpu = all.cpu.or(report.flows.first().and_then(|flow| flow.cpu));
            let is_load =
                |kind: &FlowKind| *kind != FlowKind::Reflect || port.flow_kinds.first() == Some(kind);
            for (flow, _) in report.flows.iter().zip(&port.flow_kinds).filter(|(_, kind)| is_load(kind)) {
                flow.marks.iter().for_each(|marks| all.marks.get_or_insert_default().add(marks));
            }
            // Reflectors count nothing beyond the client's own counts.
            let counts =
                |(flow, kind): &(FlowReport, &FlowKind)| !kind.is_round_trip() || flow.fault.is_some();
            let counted = report.flows.into_iter().zip(&port.flow_kinds).filter(counts);
            let first = all.flows.len();
            all.flows.extend(counted.map(|(flow, kind)| FlowReport {
                port: number,
                inward: kind.is_sender(),
                fault: port.fault_of(&flow, *kind, self.longest_sending),
                ..flow
            }));
            if let Some(flow) = all.flows.get_mut(first).filter(|_| cut && self.drain.has_timed_out()) {
                flow.fault.get_or_insert_with(|| format!("{}: {UNFINISHED_FAULT}", port.control.endpoint));
            }
            all.evidence = evidence::merge(all.evidence.take(), report.evidence, port.lead_in);
            let seconds = report.cpu_seconds.filter(|seconds| (0.0..1e12).contains(seconds));
            if let Some(seconds) = seconds {
                *all.cpu_seconds.get_or_insert(0.0) += seconds;
            }
            // Without a goodbye the server would release the session later.
            let _ = port.control.notify(&SessionRequest::Bye);
        }
        drop(links);
        all.is_complete = !all.flows.iter().any(|flow| flow.unfinished);
        Ok(Some(all))
    }

    fn effective_settings(&self) -> Map<String, Value> {
        self.endpoint_sessions.iter().flat_map(|port| port.effective_settings.clone()).collect()
    }

    fn server_environment(&self) -> Map<String, Value> {
        self.endpoint_sessions.first().map(|port| port.server_environment.clone()).unwrap_or_default()
    }
}
