//! `iperf3`: a client for iperf3 servers, and a server for iperf3 clients. A control connection carries the parameters
//! and, afterwards, the counts of each side. Payload uses separate streams, TCP or UDP.
//!
//! This file is the client; `server` the server, `wire` the messages, `data` a stream on either side.

pub mod client;
mod control_channel;
mod data;
pub mod datagram;
mod server;
pub mod wire;

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value};

use super::{CaseDraft, CaseError, ClientSession, ConnectContext, Flow, Protocol, ProtocolError, ReadyCase};
use crate::link::party::{CANCEL_CHECK_INTERVAL, Tuning, drive};
use crate::link::{Caps, Dialer, Fault, Framing, Link, LinkError, keep_alive, on_port, send_all};
use crate::transport::companion_stream;
use crate::workload::{FlowReport, FlowResult, FlowRole, Load, ServerReport, TrafficKind};
use client::{ClientControl, ClientPlan, ControlParty, ControlSlot};
use data::entry::{Identification, MAX_HELLO_TRIES, StreamEntry};
use data::{StreamParams, StreamResult, TestState, TestStream};
use linkgauge_model::clock::{Clock, Time};
use linkgauge_model::endpoint::Endpoint;
use linkgauge_model::plan::{Direction, Pacing, StopCondition, WaitMode};
use wire::{Cookie, Parameters, StreamCounts};

#[cfg(test)]
mod tests;

/// The `iperf3` protocol.
pub(crate) const PROTOCOL: Protocol = Protocol {
    name: "iperf3",
    summary: "an iperf3 server or client over TCP or UDP; client and server count",
    default_ports: &[("tcp", 5201), ("udp", 5201)],
    traffic: &[(TrafficKind::Load, &[Direction::Send, Direction::Receive, Direction::Both])],
    options: &[],
    sizes: &[],
    is_measured_whole: true,
    shorthand: None,
    original_server: Some(|_, port| format!("iperf3 -s{}", on_port(port))),
    prepare_case,
    connect,
    serve: Some(server::new_service),
};

/// Checks for settings that iperf3 does not support.
fn prepare_case(case: &mut CaseDraft, caps: &Caps) -> Result<(), CaseError> {
    let endpoint = &case.endpoints[0];
    let invalid = |kind: fn(String) -> CaseError, what: &str| Err(kind(format!("{endpoint}: iperf3 {what}")));
    if caps.is_device || !caps.can_open_parallel {
        return invalid(CaseError::Link, "needs a network, with several connections");
    }
    if caps.framing == Framing::Message && companion_stream(endpoint).is_err() {
        return invalid(CaseError::Link, "needs a stream beside the datagrams, which such links do not have");
    }
    if case.parallel > wire::MAX_STREAMS {
        let what = format!("has at most {} connections: use a smaller --parallel", wire::MAX_STREAMS);
        return invalid(CaseError::Parallel, &what);
    }
    let (least, most) = match caps.framing {
        Framing::Stream => (1, wire::MAX_BLOCK_BYTES),
        Framing::Message => (*wire::DATAGRAM_BYTES.start(), *wire::DATAGRAM_BYTES.end()),
    };
    if let Some(bytes) = case.message_bytes.filter(|bytes| !(least..=most).contains(bytes)) {
        let what = format!("takes sizes from {least} to {most} here, not {bytes}");
        return invalid(CaseError::MessageSize, &what);
    }
    let omit_ns = case.warm_up.time_ns.unwrap_or(0);
    if case.warm_up.count.is_some()
        || !omit_ns.is_multiple_of(SECOND_NS)
        || omit_ns / SECOND_NS > wire::MAX_OMIT_SECONDS
    {
        let most = wire::MAX_OMIT_SECONDS;
        let what = format!("supports a warm-up of whole seconds, at most {most}: use a --warm-up like 1s");
        return invalid(CaseError::Duration, &what);
    }
    if case.direction != Direction::Send && matches!(case.pacing, Pacing::Poisson { .. }) {
        return invalid(CaseError::Pacing, "sends on a fixed schedule, not on a random one");
    }
    if case.stop.time_ns.is_some_and(|time| time / SECOND_NS > wire::MAX_TEST_SECONDS) {
        let what = format!("measures for at most {} s: use a shorter --time", wire::MAX_TEST_SECONDS);
        return invalid(CaseError::Duration, &what);
    }
    Ok(())
}

const SECOND_NS: u64 = 1_000_000_000;

/// The case as iperf3 parameters.
fn test_parameters(case: &ReadyCase, framing: Framing) -> Parameters {
    let load = &case.load;
    let StopCondition { count, time_ns, volume_bytes, .. } = load.stop;
    let seconds = |time_ns: Option<u64>| time_ns.unwrap_or(0).div_ceil(SECOND_NS);
    let all = |one: Option<u64>| one.unwrap_or(0).saturating_mul(case.parallel.into());
    let bits = 8.0 * f64::from(load.message_bytes);
    Parameters {
        udp: framing == Framing::Message,
        omit_s: seconds(load.warm_up.time_ns),
        // The protocol has one stop condition; the client enforces the others.
        time_s: seconds(time_ns),
        bytes: if time_ns.is_some() { 0 } else { all(volume_bytes) },
        blocks: if time_ns.is_some() || volume_bytes.is_some() { 0 } else { all(count) },
        parallel: case.parallel,
        reverse: case.direction == Direction::Receive,
        bidirectional: case.direction == Direction::Both,
        length: load.message_bytes,
        bits_per_second: match load.pacing {
            Pacing::Closed | Pacing::ThinkTime { .. } => 0.0,
            Pacing::Fixed { per_second } | Pacing::Poisson { per_second, .. } => per_second * bits,
        },
        counters_64bit: framing == Framing::Message && needs_wide_counters(load),
        server_output: false,
        server_cpu: case.server_cpu,
        client_minor: wire::PROTOCOL_MINOR_VERSION,
    }
}

/// More datagrams a second than any single flow sends.
const MAX_DATAGRAMS_PER_SECOND: f64 = 1e7;

/// Whether 32 bits may not suffice for the numbers of the datagrams. Wider numbers are requested only then, because
/// servers before 3.1 do not support them.
fn needs_wide_counters(load: &Load) -> bool {
    max_datagrams(load) > f64::from(u32::MAX)
}

/// Maximum datagrams of one flow.
fn max_datagrams(load: &Load) -> f64 {
    let per_second = match load.pacing {
        Pacing::Closed | Pacing::ThinkTime { .. } => MAX_DATAGRAMS_PER_SECOND,
        Pacing::Fixed { per_second } | Pacing::Poisson { per_second, .. } => per_second,
    };
    let of = |stop: StopCondition| {
        let of_volume = stop.volume_bytes.map(|bytes| bytes as f64 / f64::from(load.message_bytes.max(1)));
        let of_time = stop.time_ns.map(|time_ns| time_ns as f64 / SECOND_NS as f64 * per_second);
        [stop.count.map(|count| count as f64), of_volume, of_time].into_iter().flatten().reduce(f64::min)
    };
    let warm_up = of(load.warm_up).unwrap_or(0.0);
    of(load.stop).map_or(f64::INFINITY, |most| most + warm_up)
}

/// The client's plan for one server.
fn client_plan(case: &ReadyCase, framing: Framing) -> ClientPlan {
    let StopCondition { count, time_ns, volume_bytes, .. } = case.load.stop;
    let of_count = count.map(|count| count.saturating_mul(case.load.message_bytes.into()));
    let volume = [volume_bytes, of_count].into_iter().flatten().min();
    let warm_up = Duration::from_nanos(case.load.warm_up.time_ns.unwrap_or(0));
    ClientPlan {
        parameters: test_parameters(case, framing),
        framing,
        reply_timeout: case.load.timeout.max(Duration::from_secs(1)),
        max_time: time_ns.map(|time| Duration::from_nanos(time).saturating_add(warm_up)),
        max_bytes: volume.map(|volume| volume.saturating_mul(case.parallel.into())),
    }
}

fn connect(case: &ReadyCase, context: &ConnectContext) -> Result<Box<dyn ClientSession>, ProtocolError> {
    let mut session = Iperf3Session {
        case: case.clone(),
        clock: context.dialer.clock.clone(),
        flows: Vec::new(),
        endpoint_tests: Vec::new(),
    };
    for port in 0..case.endpoints.len() {
        session.open_endpoint(context, port)?;
    }
    let mut leaders = Vec::new();
    for (number, port) in session.endpoint_tests.iter_mut().enumerate() {
        if let Some((control, link)) = port.control.take() {
            let (leader, home) =
                ControlParty::new(control, (context.new_recorder)(FlowRole::Control, number));
            port.control_slot = home;
            leaders.push(Flow {
                role: FlowRole::Control,
                endpoint_index: number,
                link,
                party: Box::new(leader),
            });
        }
    }
    // After the streams: the facts of the first link represent all.
    session.flows.append(&mut leaders);
    Ok(Box::new(session))
}

struct Iperf3Session {
    case: ReadyCase,
    clock: Clock,
    flows: Vec<Flow>,
    endpoint_tests: Vec<EndpointTest>,
}

/// The test with the server of one endpoint.
struct EndpointTest {
    endpoint: Endpoint,
    parameters: Parameters,
    test: Arc<TestState>,
    /// Control connection, held here until its flow starts.
    control: Option<(ClientControl, Box<dyn Link>)>,
    control_slot: ControlSlot,
}

impl Iperf3Session {
    /// Negotiates with the server of one endpoint and opens the streams. The last one enters the test in its thread.
    fn open_endpoint(&mut self, context: &ConnectContext, port: usize) -> Result<(), ProtocolError> {
        let (case, clock) = (&self.case, &self.clock);
        let endpoint = &case.endpoints[port];
        let fault = |fault: Fault| setup_error(endpoint, fault);
        let framing = context.dialer.transports.caps(endpoint).map_err(fault)?.framing;
        let beside = match framing {
            Framing::Stream => endpoint.clone(),
            Framing::Message => companion_stream(endpoint).map_err(fault)?,
        };
        let quiet = Dialer { wait: WaitMode::Block, ..context.dialer.clone() };
        let mut link = quiet.open(&beside)?;
        keep_alive(link.as_ref());
        let (cookie, test) = (Cookie::random(), Arc::new(TestState::default()));
        let mut control = ClientControl::new(&cookie, client_plan(case, framing), test.clone());
        let cancel = &context.dialer.cancel;
        drive(&mut control, link.as_mut(), clock, cancel, CANCEL_CHECK_INTERVAL).map_err(fault)?;
        if cancel.load(Relaxed) {
            return Err(fault(Fault::Interrupted));
        }

        let parameters = test_parameters(case, framing);
        let streams = TestStreams {
            case,
            context,
            port,
            framing,
            parameters: &parameters,
            cookie: &cookie,
            test: &test,
        };
        let uploads = streams.open(&mut control, &mut self.flows)?;
        let drained = move || {
            uploads.iter().try_fold(true, |all, half| Some(half.status().unacknowledged_bytes? == 0 && all))
        };
        control.open_streams(Box::new(drained));
        self.endpoint_tests.push(EndpointTest {
            endpoint: endpoint.clone(),
            parameters,
            test,
            control: Some((control, link)),
            control_slot: ControlSlot::default(),
        });
        Ok(())
    }
}

/// An error before the test started.
fn setup_error(endpoint: &Endpoint, fault: Fault) -> ProtocolError {
    match fault {
        // The server closed before the parameters were complete.
        Fault::Closed => ProtocolError::unexpected_reply(endpoint, client::CLOSED_EARLY),
        fault => LinkError::new(endpoint, fault).into(),
    }
}

/// The streams of a test, before they are open.
struct TestStreams<'a> {
    case: &'a ReadyCase,
    context: &'a ConnectContext<'a>,
    port: usize,
    framing: Framing,
    parameters: &'a Parameters,
    cookie: &'a Cookie,
    test: &'a Arc<TestState>,
}

impl TestStreams<'_> {
    /// Opens all streams and adds their flows. Returns second handles of the uploads.
    fn open(
        &self,
        control: &mut ClientControl,
        flows: &mut Vec<Flow>,
    ) -> Result<Vec<Box<dyn Link>>, ProtocolError> {
        let endpoint = &self.case.endpoints[self.port];
        let mut uploads = Vec::new();
        let count = self.parameters.stream_count();
        let mut load = self.case.load;
        let volume = load.stop.volume_bytes.filter(|_| self.framing == Framing::Stream);
        load.stop.volume_bytes =
            volume.map(|bytes| wire::in_whole_blocks(bytes, load.message_bytes)).or(load.stop.volume_bytes);
        for number in 0..count {
            let mut link = self.context.dialer.open(endpoint)?;
            // What takes time comes before the server can send: as soon as it has the last stream.
            let is_last = number + 1 == count;
            if !is_last {
                self.register(link.as_mut()).map_err(|fault| self.stream_error(number, fault))?;
            }
            control.congestion_control = congestion_control(link.as_ref());
            let is_upload = self.parameters.is_upload(number);
            let role = if is_upload { FlowRole::Upload } else { FlowRole::Download };
            if is_upload {
                uploads.extend(link.second_handle().ok());
            }
            link.tune(&Tuning { cpu: None, ..self.case.load.batch_tuning() });
            let caps = link.caps().clone();
            let making = StreamParams {
                load: &load,
                caps: &caps,
                index: number,
                test: self.test,
                counters_64bit: self.parameters.counters_64bit,
                recorder: (self.context.new_recorder)(role, self.port),
            };
            let party = if is_upload { TestStream::sender(making) } else { TestStream::receiver(making) };
            let party = party.at_client(StreamEntry::new(is_last.then(|| self.identification(number))));
            flows.push(Flow { role, endpoint_index: self.port, link, party: Box::new(party) });
        }
        Ok(uploads)
    }

    /// Identifies the test that a new connection belongs to.
    fn register(&self, link: &mut dyn Link) -> Result<(), Fault> {
        match self.framing {
            Framing::Stream => send_all(link, self.cookie.bytes(), self.context.dialer.timeout),
            Framing::Message => open_datagram_stream(link, self.context.dialer),
        }
    }

    /// Identification of the test by the last stream, in its thread.
    fn identification(&self, number: usize) -> Identification {
        let bytes = match self.framing {
            Framing::Stream => self.cookie.bytes().to_vec(),
            Framing::Message => wire::UDP_HELLO.to_vec(),
        };
        let no_reply = match self.case.direction {
            Direction::Both => {
                format!("no connection for the second direction: {}", client::NO_BIDIRECTIONAL)
            }
            _ => NO_DATAGRAM_REPLY.to_owned(),
        };
        let timeout = self.context.dialer.timeout;
        Identification { bytes, framing: self.framing, timeout, no_reply, others: number }
    }

    fn stream_error(&self, number: usize, fault: Fault) -> ProtocolError {
        let endpoint = &self.case.endpoints[self.port];
        match self.case.direction {
            // An old server closes its port once it has the streams of one direction.
            Direction::Both if number >= self.case.parallel as usize => ProtocolError::unexpected_reply(
                endpoint,
                format!("no connection for the second direction: {}", client::NO_BIDIRECTIONAL),
            ),
            _ => setup_error(endpoint, fault),
        }
    }
}

fn congestion_control(link: &dyn Link) -> Option<String> {
    link.facts().get("congestion_control")?.as_str().map(str::to_owned)
}

/// Opens a stream of datagrams.
fn open_datagram_stream(link: &mut dyn Link, dialer: &Dialer) -> Result<(), Fault> {
    for _ in 0..MAX_HELLO_TRIES {
        link.send(&wire::UDP_HELLO, dialer.timeout)?;
        let mut reply = [0; wire::UDP_REPLY.len() + 1];
        match dialer.receive(link, &mut reply, dialer.timeout / MAX_HELLO_TRIES) {
            Ok(length) if wire::is_udp_reply(&reply[..length]) => return Ok(()),
            Ok(_) | Err(Fault::TimedOut) => {}
            Err(fault) => return Err(fault),
        }
    }
    Err(Fault::NoReply(NO_DATAGRAM_REPLY.to_owned()))
}

/// Error of a server without replies to datagrams.
const NO_DATAGRAM_REPLY: &str =
    "the server accepts the test but replies to no datagram: check whether a firewall drops UDP";

impl ClientSession for Iperf3Session {
    fn take_flows(&mut self) -> Vec<Flow> {
        std::mem::take(&mut self.flows)
    }

    fn finish(
        &mut self,
        flows: &[FlowResult],
        mut links: Vec<Box<dyn Link>>,
    ) -> Result<Option<ServerReport>, ProtocolError> {
        let mut all = ServerReport::default();
        for (number, port) in self.endpoint_tests.iter().enumerate() {
            let control = port.control_slot.lock().unwrap_or_else(PoisonError::into_inner).take();
            let place =
                flows.iter().position(|flow| flow.role == FlowRole::Control && flow.endpoint_index == number);
            let (Some(mut control), Some(place)) = (control, place) else { continue };
            // Interrupted here: the data so far still gets its counts.
            let whole = control.is_finished();
            if !whole {
                let never = AtomicBool::new(false);
                drive(&mut control, links[place].as_mut(), &self.clock, &never, CANCEL_CHECK_INTERVAL)
                    .map_err(|fault| LinkError::new(&port.endpoint, fault))?;
            }
            port.add_report(number, &control, whole, &mut all);
            *port.control_slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(control);
        }
        Ok((!all.flows.is_empty()).then_some(all))
    }

    fn effective_settings(&self) -> Map<String, Value> {
        let mut settings = Map::new();
        for port in &self.endpoint_tests {
            port.add_effective_settings(&mut settings);
        }
        settings
    }
}

impl EndpointTest {
    /// Adds the server's counts to the report.
    fn add_report(&self, number: usize, control: &ClientControl, whole: bool, all: &mut ServerReport) {
        let Some(results) = &control.results else { return };
        let ended = self.test.stream_results(self.parameters.stream_count());
        let mut longest = 0.0_f64;
        for (stream, (reported, own)) in results.streams.iter().zip(&ended).enumerate() {
            longest = longest.max(reported.seconds);
            let inward = !self.parameters.is_upload(stream);
            if self.parameters.udp && !inward && reported.lost > reported.packets {
                all.contradictions.push(format!(
                    "{}: it reports {} lost datagrams of {}",
                    self.endpoint, reported.lost, reported.packets
                ));
            }
            all.flows.push(FlowReport {
                port: number,
                inward,
                ..self.flow_report(control, reported, own, inward, whole)
            });
        }
        // A server that does not measure it reports zero.
        if results.cpu_percent > 0.0 {
            *all.cpu_seconds.get_or_insert(0.0) += results.cpu_percent / 100.0 * longest;
        }
    }

    /// The server's report of one stream.
    fn flow_report(
        &self,
        control: &ClientControl,
        reported: &StreamCounts,
        own: &StreamResult,
        inward: bool,
        whole: bool,
    ) -> FlowReport {
        let Parameters { udp, omit_s, length, .. } = self.parameters;
        let time = |from: Option<Time>, to: Option<Time>| from.zip(to).map(|(from, to)| to.since(from));
        // Datagrams have no acknowledgement: use the time of sending.
        let last = if udp { own.last_instant } else { control.drained_at };
        let local_elapsed = time(own.first_instant, last);
        // Client and server omit their start by their own clocks, so only the server's losses can be used.
        let lost = reported.omitted.map(|(lost, _)| reported.lost.saturating_sub(lost));
        if let (true, false, Some(lost), Some(local_elapsed)) =
            (udp && omit_s > 0, inward, lost, local_elapsed)
        {
            let messages = own.messages.saturating_sub(lost);
            return FlowReport {
                bytes: messages.saturating_mul(length.into()),
                messages,
                head_bytes: length.into(),
                elapsed_ns: local_elapsed.as_nanos() as u64,
                ..FlowReport::default()
            };
        }
        let elapsed = local_elapsed.filter(|_| omit_s == 0).or_else(|| {
            // The server's own time includes the wait for the end state after the last byte. Servers before 3.2 report
            // no time.
            let reported_time =
                Duration::try_from_secs_f64(reported.seconds).ok().filter(|time| !time.is_zero());
            let wait = time(last, control.ended_at).unwrap_or_default();
            reported_time.map(|time| time.saturating_sub(wait)).or(local_elapsed)
        });
        FlowReport {
            bytes: reported.bytes,
            messages: match (inward, udp) {
                // A stream loses nothing, even if the counts differ at its start and end.
                (true, false) => own.messages,
                (false, _) => reported.bytes / u64::from(length.max(1)),
                // Only the server counts losses at the end. Its count is that of the same time unless the start is omitted.
                (true, true) if whole && omit_s == 0 => own.sent_messages.max(reported.packets),
                (true, true) => own.sent_messages,
            },
            // The time runs from the first datagram to the last, so the first takes none of it.
            head_bytes: if udp && omit_s == 0 && !inward { length.into() } else { 0 },
            elapsed_ns: elapsed.unwrap_or_default().as_nanos() as u64,
            ..FlowReport::default()
        }
    }

    /// Adds reported facts of the streams that are not figures.
    fn add_effective_settings(&self, settings: &mut Map<String, Value>) {
        let home = self.control_slot.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(results) = home.as_ref().and_then(|control| control.results.as_ref()) else { return };
        let ended = self.test.stream_results(self.parameters.stream_count());
        let worse =
            |jitter: Option<f64>, other: Option<f64>| [jitter, other].into_iter().flatten().reduce(f64::max);
        let (mut outward, mut inward, mut retransmits) = (None, None, None::<u64>);
        for (stream, (reported, own)) in results.streams.iter().zip(&ended).enumerate() {
            match self.parameters.is_upload(stream) {
                // Two datagrams at least have a jitter; before that it is reported as zero.
                true if reported.packets.saturating_sub(reported.lost) < 2 => {}
                true => outward = worse(outward, reported.jitter_s),
                false => {
                    inward = worse(inward, own.jitter_s);
                    let more = reported.retransmits.filter(|_| results.has_retransmits == Some(true));
                    retransmits = more.map_or(retransmits, |more| Some(retransmits.unwrap_or(0) + more));
                }
            }
        }
        for (name, jitter) in [("outward_jitter_ns", outward), ("inward_jitter_ns", inward)] {
            if let Some(jitter) = jitter.filter(|_| self.parameters.udp) {
                settings.insert(name.to_owned(), ((jitter * 1e9).round() as u64).into());
            }
        }
        settings.extend(retransmits.map(|count| ("server_retransmits".to_owned(), count.into())));
        let congestion = results.congestion_control.as_deref();
        settings.extend(congestion.map(|name| ("server_congestion_control".to_owned(), name.into())));
        // A thread for each stream, one for the control connection and one for the system.
        let most_percent = 100.0 * (self.parameters.stream_count() + 2) as f64;
        if results.cpu_percent > 0.0 && results.cpu_percent <= most_percent {
            settings.insert("server_cpu_percent".to_owned(), results.cpu_percent.into());
        }
    }
}
