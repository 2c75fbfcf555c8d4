//! `iperf2`: a client for servers of iperf 2 and programs that speak its protocol, and a server for their clients.
//!
//! There is no control connection: the data begin with the settings of the test, and only datagrams have a report. This
//! file is the client; `stream` and `datagram` are its parties, `bounceback` its round trips, `return_link` the links that
//! a server opens to the client, `server` the server, `wire` the messages.

mod bounceback;
mod datagram;
mod return_link;
mod server;
mod stream;
pub mod wire;

use std::sync::PoisonError;
use std::time::Duration;

use serde_json::{Map, Value};

use super::discard::drain_and_report;
use super::jitter::SharedJitter;
use super::stamp::time::WallClock;
use super::{
    CaseDraft, CaseError, ClientSession, ConnectContext, Flow, FlowsOnlySession, Protocol, ProtocolError,
    ProtocolOptions, ReadyCase, open_flows,
};
use crate::link::{Caps, Framing, Link, LinkError, on_port};
use crate::workload::latency::Pinger;
use crate::workload::throughput::Sink;
use crate::workload::{FlowReport, FlowResult, FlowRole, Load, RecordingParty, ServerReport, TrafficKind};
use bounceback::BouncebackCodec;
use datagram::{DatagramCodec, DatagramLayout, DatagramSender, SharedReport, SharedTotal};
use linkgauge_model::clock::{Clock, Time};
use linkgauge_model::endpoint::Endpoint;
use linkgauge_model::plan::{Direction, Pacing, StopCondition};
use return_link::{FlowLinks, ReturnListener};
use stream::{Digits, Receiver, RepeatedSettings, SharedClose, StreamSender};
use wire::bounceback as bounceback_wire;
use wire::{Amount, DatagramFormat, Report, Settings, TestMode};

/// The `iperf2` protocol.
pub(crate) const PROTOCOL: Protocol = Protocol {
    name: "iperf2",
    summary: "a server or client of iperf 2, lwiperf or zperf over TCP or UDP; round trips by --bounceback",
    default_ports: &[("tcp", DEFAULT_PORT), ("udp", DEFAULT_PORT)],
    traffic: &[
        (TrafficKind::Load, &[Direction::Send, Direction::Receive, Direction::Both]),
        (TrafficKind::RoundTrips, &[Direction::Loop]),
    ],
    options: &[
        (
            CALLBACK_OPTION,
            "a port: the server connects to it and sends there, as for -r and -d; for servers without --reverse (0: a free port)",
        ),
        (
            COMPAT_OPTION,
            "1: what 2.0.5 sends: plain data over TCP, 32-bit numbers over UDP; for programs that read nothing else (0)",
        ),
    ],
    sizes: &[],
    is_measured_whole: false,
    shorthand: Some(super::Shorthand { option: Some(CALLBACK_OPTION) }),
    original_server: Some(|framing, port| {
        format!("iperf -s{}{}", if framing == Framing::Message { " -u" } else { "" }, on_port(port))
    }),
    prepare_case,
    connect,
    serve: Some(server::new_service),
};

const DEFAULT_PORT: u16 = 5001;

const CALLBACK_OPTION: &str = "callback";
const COMPAT_OPTION: &str = "compat";

/// One write of the original. The receiver in lwIP compares the settings at the start of each.
const BLOCK_BYTES: u32 = 128 * 1024;

/// Largest payload of a datagram over IPv4.
const MAX_DATAGRAM_BYTES: u32 = 65_507;

/// Fault of a server that sends nothing.
const NO_DATA: &str = "the server sends nothing: it is older than iperf 2.0.13, or not iperf 2. Use --callback 0 if it supports \
                       -r, or the direction send";

/// Fault of a server that sends no datagram.
const NO_DATAGRAMS: &str = "no datagram arrived: the server is not there or older than iperf 2.0.13, a firewall drops UDP, or a \
                            linkgauge server lacks --trust-senders";

/// Fault of a server that connects and sends nothing.
const NO_RETURN_DATA: &str = "the server connected and sends nothing";

/// The options of a case.
#[derive(Debug, Clone, Copy)]
struct Iperf2Options {
    callback: Option<u16>,
    is_compatible: bool,
}

impl Iperf2Options {
    fn parse(options: &ProtocolOptions) -> Result<Iperf2Options, CaseError> {
        let invalid = |what: String| CaseError::Option(format!("protocol iperf2: {what}"));
        let port = |text: &String| {
            text.parse()
                .map_err(|_| invalid(format!("{CALLBACK_OPTION} '{text}' is no port: use 0 to 65535")))
        };
        let is_compatible = match options.get(COMPAT_OPTION).map(String::as_str) {
            None | Some("0" | "false") => false,
            Some("1" | "true") => true,
            Some(other) => return Err(invalid(format!("{COMPAT_OPTION} '{other}' is neither 0 nor 1"))),
        };
        Ok(Iperf2Options { callback: options.get(CALLBACK_OPTION).map(port).transpose()?, is_compatible })
    }

    /// Mode in which the server sends in this direction.
    fn mode(self, direction: Direction) -> TestMode {
        match (direction, self.callback) {
            (Direction::Receive, None) => TestMode::Reverse,
            (Direction::Receive, Some(_)) => TestMode::TradeOff,
            (Direction::Both, None) => TestMode::FullDuplex,
            (Direction::Both, Some(_)) => TestMode::Dual,
            (Direction::Send | Direction::Loop, _) => TestMode::Plain,
        }
    }

    fn datagram_format(self) -> DatagramFormat {
        if self.is_compatible { DatagramFormat::OLD } else { DatagramFormat::MODERN }
    }
}

/// Checks for settings that iperf 2 does not support.
fn prepare_case(case: &mut CaseDraft, caps: &Caps) -> Result<(), CaseError> {
    let endpoint = case.endpoints[0].clone();
    let invalid = |kind: fn(String) -> CaseError, what: &str| Err(kind(format!("{endpoint}: iperf2 {what}")));
    let options = Iperf2Options::parse(&case.options)?;
    if caps.is_device || !caps.can_open_parallel {
        return invalid(CaseError::Link, "needs a network, with several connections");
    }
    if case.workload.is_round_trip() {
        return prepare_round_trips(case, caps);
    }
    if case.parallel > wire::MAX_THREADS {
        let what = format!("has at most {} connections: use a smaller --parallel", wire::MAX_THREADS);
        return invalid(CaseError::Parallel, &what);
    }
    if !case.warm_up.is_unlimited() {
        return invalid(CaseError::Duration, "has no warm-up: leave it out");
    }
    let answers = options.mode(case.direction) != TestMode::Plain;
    if caps.framing == Framing::Message && answers && (options.callback.is_some() || options.is_compatible) {
        return invalid(
            CaseError::Option,
            "receives datagrams on its own link only: leave out --callback and --compat",
        );
    }
    if answers && options.is_compatible && options.callback.is_none() {
        return invalid(
            CaseError::Option,
            "--compat only sends: use --direction send, or --callback as well",
        );
    }
    if answers && matches!(case.pacing, Pacing::Poisson { .. }) {
        return invalid(CaseError::Pacing, "sends on a fixed schedule, not on a random one");
    }
    prepare_sizes(case, caps, options)
}

/// The sizes and the amount of a load.
fn prepare_sizes(case: &mut CaseDraft, caps: &Caps, options: Iperf2Options) -> Result<(), CaseError> {
    let endpoint = &case.endpoints[0];
    let least = options.datagram_format().min_bytes() as u32;
    match (caps.framing, case.message_bytes) {
        (Framing::Stream, None) => case.message_bytes = Some(BLOCK_BYTES),
        (Framing::Message, Some(bytes)) if !(least..=MAX_DATAGRAM_BYTES).contains(&bytes) => {
            return Err(CaseError::MessageSize(format!(
                "{endpoint}: datagrams of iperf2 have {least} to {MAX_DATAGRAM_BYTES} bytes, not {bytes}: choose another --size"
            )));
        }
        _ => {}
    }
    let volume = requested_volume(&case.stop, case.message_bytes.unwrap_or(1));
    if case.direction != Direction::Send && volume.is_some_and(|volume| volume > i32::MAX as u64) {
        return Err(CaseError::Duration(format!(
            "{endpoint}: an iperf2 server sends at most {} bytes: use a smaller volume, or --time",
            i32::MAX
        )));
    }
    Ok(())
}

/// Completes a case of round trips.
fn prepare_round_trips(case: &mut CaseDraft, caps: &Caps) -> Result<(), CaseError> {
    let endpoint = &case.endpoints[0];
    if caps.framing != Framing::Stream {
        return Err(CaseError::Link(format!(
            "{endpoint}: round trips of iperf2 (--bounceback) need a stream: use tcp"
        )));
    }
    let (least, most) = (bounceback_wire::MIN_BYTES as u32, bounceback_wire::MAX_BYTES as u32);
    let bytes = *case.message_bytes.get_or_insert(bounceback_wire::DEFAULT_BYTES as u32);
    if !(least..=most).contains(&bytes) {
        return Err(CaseError::MessageSize(format!(
            "{endpoint}: messages of iperf2 --bounceback have {least} to {most} bytes, not {bytes}: choose another --size"
        )));
    }
    Ok(())
}

/// The bytes of a flow, if they end it.
fn requested_volume(stop: &StopCondition, message_bytes: u32) -> Option<u64> {
    let of_count = stop.count.map(|count| count.saturating_mul(message_bytes.into()));
    [stop.volume_bytes, of_count].into_iter().flatten().min()
}

/// The settings of one flow.
fn flow_settings(case: &ReadyCase, load: &Load, mode: TestMode, port: u16) -> Settings {
    let volume = requested_volume(&load.stop, load.message_bytes).filter(|_| load.stop.time_ns.is_none());
    let time = Duration::from_nanos(load.stop.time_ns.unwrap_or(10_000_000_000));
    let amount =
        volume.map_or(Amount::Time(time), |volume| Amount::Bytes(volume.min(i32::MAX as u64) as u32));
    let bits = 8.0 * f64::from(load.message_bytes);
    let rate_bps = load.pacing.per_second().map_or(0.0, |per_second| per_second * bits);
    Settings {
        threads: case.parallel,
        buffer_bytes: load.message_bytes,
        rate_bps: rate_bps.round() as u64,
        ..Settings::new(mode, port, amount)
    }
}

fn connect(case: &ReadyCase, context: &ConnectContext) -> Result<Box<dyn ClientSession>, ProtocolError> {
    let wall_clock = WallClock::now(&context.dialer.clock);
    if case.workload.is_round_trip() {
        let time = context.dialer.read_time_of_day();
        let is_synchronised = time.is_some_and(|time| time.error_ns.is_some());
        let flows = open_flows(case, context, |load, port, link, flows| {
            let codec =
                Box::new(BouncebackCodec::new(load.message_bytes as usize, wall_clock, is_synchronised));
            let recorder = (context.new_recorder)(FlowRole::RoundTrip, port);
            let party = Pinger::new(codec, load, link.caps(), recorder);
            flows.push(Flow {
                role: FlowRole::RoundTrip,
                endpoint_index: port,
                link,
                party: Box::new(party),
            });
            Ok(())
        })?;
        return Ok(FlowsOnlySession::boxed(flows));
    }
    let options = Iperf2Options::parse(&case.options)?;
    let mode = options.mode(case.direction);
    let mut opening =
        FlowOpening { case, context, options, mode, wall_clock, listeners: Vec::new(), ends: Vec::new() };
    let flows = open_flows(case, context, |load, port, link, flows| opening.open(load, port, link, flows))?;
    Ok(Box::new(Iperf2Session {
        flows,
        ends: opening.ends,
        clock: context.dialer.clock.clone(),
        timeout: case.load.timeout,
        message_bytes: u64::from(case.load.message_bytes).max(1),
        endpoints: case.endpoints.clone(),
        effective_settings: Map::new(),
    }))
}

/// Evidence from which a flow learns what the server has received or sent.
enum DeliveryEvidence {
    /// The server closes the connection once it has read everything.
    Close(SharedClose),
    /// Acknowledgements of the server's system.
    Acknowledgement,
    /// The server reports.
    Report(SharedReport),
    /// The last datagram holds the number of all.
    LastDatagram(SharedTotal, SharedJitter),
    /// A stream loses nothing.
    Received,
}

/// Makes the flows of a load.
struct FlowOpening<'a> {
    case: &'a ReadyCase,
    context: &'a ConnectContext<'a>,
    options: Iperf2Options,
    mode: TestMode,
    wall_clock: WallClock,
    listeners: Vec<ReturnListener>,
    ends: Vec<DeliveryEvidence>,
}

impl FlowOpening<'_> {
    /// Adds the flows of one link.
    fn open(
        &mut self,
        load: &Load,
        port: usize,
        link: Box<dyn Link>,
        flows: &mut Vec<Flow>,
    ) -> Result<(), ProtocolError> {
        let FlowLinks { upload, download } = self.open_directions(load, port, link)?;
        if let Some(link) = upload {
            let (party, end) = self.sender(load, port, link.as_ref());
            flows.push(Flow { role: FlowRole::Upload, endpoint_index: port, link, party });
            self.ends.push(end);
        }
        if let Some(link) = download {
            let (party, end) = self.receiver(load, port, link.caps());
            flows.push(Flow { role: FlowRole::Download, endpoint_index: port, link, party });
            self.ends.push(end);
        }
        Ok(())
    }

    /// The links of both directions, from the one that was opened.
    fn open_directions(
        &mut self,
        load: &Load,
        port: usize,
        link: Box<dyn Link>,
    ) -> Result<FlowLinks, ProtocolError> {
        let endpoint = &self.case.endpoints[port];
        Ok(match self.mode {
            TestMode::Plain => FlowLinks { upload: Some(link), download: None },
            TestMode::Reverse => FlowLinks { upload: None, download: Some(link) },
            // Over datagrams these are two tests at the same time: one in full duplex has no report.
            TestMode::FullDuplex if link.caps().framing == Framing::Message => {
                FlowLinks { upload: Some(link), download: Some(self.context.dialer.open(endpoint)?) }
            }
            TestMode::FullDuplex => {
                let second = link.second_handle().map_err(|fault| LinkError::new(endpoint, fault))?;
                FlowLinks { upload: Some(link), download: Some(second) }
            }
            TestMode::TradeOff | TestMode::Dual => {
                let dialer = self.context.dialer;
                if self.listeners.len() <= port {
                    let chosen = self.options.callback.unwrap_or(0);
                    self.listeners.push(ReturnListener::open(endpoint, link.as_ref(), chosen, dialer)?);
                }
                let settings = self.settings(load, self.listeners[port].port());
                self.listeners[port].open_return(link, &settings, dialer)?
            }
        })
    }

    /// The settings of one flow. `port`: where the server connects to, if it does.
    fn settings(&self, load: &Load, port: u16) -> Settings {
        let settings = flow_settings(self.case, load, self.mode, port);
        // Small servers expect nothing but the block where they call back; only the extension has the rate at which they send.
        let may_be_extended = !self.mode.calls_back() || settings.rate_bps > 0;
        Settings { is_extended: !self.options.is_compatible && may_be_extended, ..settings }
    }

    /// Layout of the datagrams of a test.
    fn layout(&self, load: &Load, port: u16, mode: TestMode) -> DatagramLayout {
        let format = self.options.datagram_format();
        let is_extended = !self.options.is_compatible;
        let settings = flow_settings(self.case, load, mode, port);
        let settings = Settings { has_wide_numbers: format.is_wide, is_extended, ..settings };
        DatagramLayout { format, settings: settings.encode(format.header_bytes), wall_clock: self.wall_clock }
    }

    fn port_of(&self, port: usize) -> u16 {
        let given = self.case.endpoints[port].host_port().ok().and_then(|(_, port)| port);
        given.filter(|port| *port > 0).unwrap_or(DEFAULT_PORT)
    }

    fn sender(
        &self,
        load: &Load,
        port: usize,
        link: &dyn Link,
    ) -> (Box<dyn RecordingParty>, DeliveryEvidence) {
        let caps = link.caps();
        let recorder = (self.context.new_recorder)(FlowRole::Upload, port);
        let number = self.port_of(port);
        if caps.framing == Framing::Message {
            let sender =
                DatagramSender::new(load, caps, recorder, self.layout(load, number, TestMode::Plain));
            let report = sender.shared_report();
            return (Box::new(sender), DeliveryEvidence::Report(report));
        }
        let settings = match self.listeners.get(port) {
            // They have been sent.
            Some(listener) => self.settings(load, listener.port()),
            None => self.settings(load, number),
        };
        let opening = if self.mode == TestMode::Dual { Vec::new() } else { settings.encode(0) };
        let before = opening.len();
        let mut sender =
            StreamSender::new(load, caps, recorder, opening).with_drain_time(link.second_handle().ok());
        if self.options.is_compatible {
            sender = sender.with_header(Box::new(Digits::new(load.message_bytes, before)), caps);
        } else if self.mode == TestMode::Dual {
            sender = sender.with_header(Box::new(RepeatedSettings(settings.encode(0))), caps);
        }
        if self.mode == TestMode::FullDuplex {
            return (Box::new(sender.without_replies()), DeliveryEvidence::Acknowledgement);
        }
        let close = sender.shared_close();
        (Box::new(sender), DeliveryEvidence::Close(close))
    }

    fn receiver(&self, load: &Load, port: usize, caps: &Caps) -> (Box<dyn RecordingParty>, DeliveryEvidence) {
        let recorder = (self.context.new_recorder)(FlowRole::Download, port);
        let sink = Sink::new(load, caps, recorder).with_latest_end();
        if caps.framing == Framing::Message {
            let layout = self.layout(load, self.port_of(port), TestMode::Reverse);
            let mut first = vec![0; load.message_bytes as usize];
            layout.write(&mut first, 0, self.context.dialer.now());
            let (total, jitter) = (SharedTotal::default(), SharedJitter::default());
            let codec = DatagramCodec::new(layout, jitter.clone(), total.clone());
            let receiver = Receiver::new(sink.with_header(Box::new(codec)), load.timeout, NO_DATAGRAMS);
            let mut asking = receiver.with_request(first, true);
            if self.mode == TestMode::FullDuplex {
                asking = asking.with_delay();
            }
            return (Box::new(asking), DeliveryEvidence::LastDatagram(total, jitter));
        }
        let receiver = match self.mode.calls_back() {
            true => Receiver::new(sink, load.timeout, NO_RETURN_DATA),
            false => Receiver::new(sink, load.timeout, NO_DATA),
        };
        let request = || self.settings(load, self.port_of(port)).encode(0);
        let receiver = match self.mode {
            TestMode::Reverse => receiver.with_request(request(), false),
            _ => receiver,
        };
        (Box::new(receiver), DeliveryEvidence::Received)
    }
}

struct Iperf2Session {
    flows: Vec<Flow>,
    ends: Vec<DeliveryEvidence>,
    clock: Clock,
    timeout: Duration,
    message_bytes: u64,
    endpoints: Vec<Endpoint>,
    effective_settings: Map<String, Value>,
}

impl Iperf2Session {
    /// The report of a stream whose last byte moved at this time, with this number of bytes left: none where the server closed it after
    /// it had read everything.
    fn closed_report(&self, flow: &FlowResult, closed: Time, left: u64) -> FlowReport {
        let counts = &flow.recorder.counts;
        let bytes = counts.delivered_bytes.saturating_sub(left);
        let first = flow.recorder.first_instant.unwrap_or(closed);
        FlowReport {
            port: flow.endpoint_index,
            bytes,
            messages: if left == 0 { counts.sent } else { bytes / self.message_bytes },
            elapsed_ns: if bytes > 0 { closed.since(first).as_nanos() as u64 } else { 0 },
            ..FlowReport::default()
        }
    }

    /// Datagrams of the payload that the server has received. Its count of bytes has the last datagram, in old versions not the
    /// first, and its number of all is that of the received ones in some: so the losses count where they agree with the others.
    fn delivered_datagrams(&self, flow: &FlowResult, report: &Report) -> u64 {
        let (sent, counted) = (flow.recorder.counts.sent, report.bytes / self.message_bytes);
        let by_losses = sent.saturating_sub(report.lost);
        let agrees = (by_losses..=by_losses.saturating_add(1)).contains(&counted);
        if agrees { by_losses } else { counted.saturating_sub(1) }
    }

    /// The report of a server about datagrams. It counts the last one, which is no payload.
    fn datagram_report(&mut self, flow: &FlowResult, report: Report) -> FlowReport {
        let bytes = self.delivered_datagrams(flow, &report) * self.message_bytes;
        let reported_ns = report.elapsed.as_nanos() as u64;
        self.add_setting("server_bytes", report.bytes, |sum, more| sum.saturating_add(more));
        self.add_setting("server_ns", reported_ns, u64::max);
        self.add_setting("outward_jitter_ns", report.jitter.as_nanos() as u64, u64::max);
        if let Some(delays) = report.delays.filter(|delays| delays.count > 0) {
            self.add_setting("outward_delay_min_ns", delays.min_us.saturating_mul(1000), u64::min);
            self.add_setting("outward_delay_max_ns", delays.max_us.saturating_mul(1000), u64::max);
        }
        FlowReport {
            port: flow.endpoint_index,
            bytes,
            messages: bytes / self.message_bytes,
            head_bytes: self.message_bytes.min(bytes),
            elapsed_ns: reported_ns,
            reordered: report.reordered,
            ..FlowReport::default()
        }
    }

    /// Adds a fact of a flow to the document.
    fn add_setting(&mut self, name: &str, value: u64, combine: fn(u64, u64) -> u64) {
        let before = self.effective_settings.get(name).and_then(Value::as_u64);
        let value = before.map_or(value, |before| combine(before, value));
        self.effective_settings.insert(name.to_owned(), value.into());
    }

    /// Report of the data that the server has received or sent of one flow, if that is known without its system.
    fn report_of(&mut self, flow: &FlowResult, end: &DeliveryEvidence) -> Option<FlowReport> {
        let counts = &flow.recorder.counts;
        let inward = |messages| FlowReport {
            port: flow.endpoint_index,
            inward: true,
            bytes: counts.delivered_bytes,
            messages,
            ..FlowReport::default()
        };
        match end {
            DeliveryEvidence::Close(close) => match (close.get(), close.lost()) {
                (Some(closed), _) if flow.fault.is_none() => Some(self.closed_report(flow, closed, 0)),
                (None, Some((last, left))) => Some(self.closed_report(flow, last, left)),
                _ => None,
            },
            DeliveryEvidence::Report(report) => {
                let reported = report.lock().unwrap_or_else(PoisonError::into_inner).take()?;
                Some(self.datagram_report(flow, reported))
            }
            DeliveryEvidence::LastDatagram(total, jitter) => {
                if let Some(seconds) = jitter.seconds() {
                    self.add_setting("inward_jitter_ns", (seconds * 1e9).round() as u64, u64::max);
                }
                Some(inward(total.get().unwrap_or(0).max(counts.sent)))
            }
            DeliveryEvidence::Received => Some(inward(counts.received)),
            DeliveryEvidence::Acknowledgement => None,
        }
    }
}

impl ClientSession for Iperf2Session {
    fn take_flows(&mut self) -> Vec<Flow> {
        std::mem::take(&mut self.flows)
    }

    fn finish(
        &mut self,
        flows: &[FlowResult],
        links: Vec<Box<dyn Link>>,
    ) -> Result<Option<ServerReport>, ProtocolError> {
        let (mut reports, mut draining) = (Vec::new(), Vec::new());
        for ((flow, link), end) in flows.iter().zip(&links).zip(std::mem::take(&mut self.ends)) {
            match (self.report_of(flow, &end), end) {
                (Some(report), _) => reports.push(report),
                (None, DeliveryEvidence::Close(_) | DeliveryEvidence::Acknowledgement) => {
                    draining.push((flow, link.as_ref()))
                }
                (None, _) => {}
            }
        }
        for mut report in drain_and_report(&draining, self.message_bytes, &self.clock, self.timeout) {
            report.fault = report.fault.map(|fault| format!("{}: {fault}", self.endpoints[report.port]));
            reports.push(report);
        }
        Ok((!reports.is_empty()).then(|| ServerReport { flows: reports, ..ServerReport::default() }))
    }

    fn effective_settings(&self) -> Map<String, Value> {
        self.effective_settings.clone()
    }
}

#[cfg(test)]
mod tests;
