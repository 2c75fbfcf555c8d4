//! `udpst`: the UDP speed test of RFC 9946, as servers and clients of OB-UDPST speak it (protocol version 20).
//!
//! A setup request opens a connection, an activation starts its test. Then loads go one way and a status every 50 ms the
//! other. The server searches the rate of both directions; a client that sends obeys the row of the status. `wire` has the
//! messages, `auth` their signatures, `rates` the table and the search, `sender` with `transmitters` and `receiver` with
//! `counter` the parties of both ends, `server` the server.

mod auth;
mod counter;
mod rates;
mod receiver;
mod sender;
mod server;
mod transmitters;
pub mod wire;

use std::net::SocketAddr;
use std::sync::PoisonError;
use std::time::Duration;

use serde_json::{Map, Value};

use super::linkgauge::request_sender::{ParsedInput, RequestSender};
use super::stamp::time::WallClock;
use super::{
    CaseDraft, CaseError, ClientSession, ConnectContext, Flow, Protocol, ProtocolError, ReadyCase, Shorthand,
    open_flows, signing,
};
use crate::link::{Caps, Fault, Link, LinkDescriptor, LinkError, local_address, on_port, remote_address};
use crate::workload::capacity::Side;
use crate::workload::{FlowReport, FlowResult, FlowRole, Load, RecordingParty, ServerReport, TrafficKind};
use auth::TestKeys;
use linkgauge_model::endpoint::Endpoint;
use linkgauge_model::plan::{Direction, SocketSettings};
use linkgauge_model::run::SERVER_LIMIT_SECONDS;
use receiver::UdpstReceiver;
use sender::{SharedReportedLoad, TestSettings, UdpstSender};
use transmitters::SizeLimits;
use wire::{Activation, Row, Setup, refusal};

/// The `udpst` protocol.
pub(crate) const PROTOCOL: Protocol = Protocol {
    name: "udpst",
    summary: "a server or client of OB-UDPST (RFC 9946): the capacity of a path, by its search",
    // The second one is that of versions before 9.0.0.
    default_ports: &[("udp", DEFAULT_PORT), ("udp", 25_000)],
    traffic: &[(TrafficKind::CapacitySearch, &[Direction::Send, Direction::Receive])],
    options: &[
        (ALGORITHM_OPTION, "the search: B in steps of 10 Mbit/s, C in steps that double (B)"),
        signing::AUTHENTICATED,
        (KEY_ID_OPTION, "number of the key at the server, 0 to 255 (0)"),
    ],
    sizes: &[],
    is_measured_whole: true,
    shorthand: Some(Shorthand { option: None }),
    original_server: Some(|_, port| format!("udpst{}", on_port(port))),
    prepare_case,
    connect,
    serve: Some(server::new_service),
};

const DEFAULT_PORT: u16 = 24_601;

const ALGORITHM_OPTION: &str = "algorithm";
const KEY_ID_OPTION: &str = "key-id";

/// Most connections of a test.
const MAX_CONNECTIONS: u8 = 24;

/// Times that a test may have, in seconds.
const MIN_SECONDS: u16 = 5;
const MAX_SECONDS: u16 = 3600;

/// Time for which a test goes on after its own time, so that its last sub-interval is complete.
const STOP_MARGIN: Duration = Duration::from_millis(500);

/// Time between statuses.
const TRIAL_INTERVAL: Duration = Duration::from_millis(50);

/// Sub-intervals, whose highest rate is the capacity.
const PERIOD_MS: u16 = 1000;
const MIN_PERIOD_MS: u16 = 100;

/// Buffers of the sockets: with the system's default a sender waits for its own network card, and the search, which sees neither
/// losses nor delay then, goes on.
const SOCKET_BUFFER_BYTES: u32 = 1_000_000;

/// Settings of the socket of a test: its traffic class, and large buffers. Other links have none.
fn socket_settings(caps: &Caps, traffic_class: u8) -> SocketSettings {
    match caps.descriptor {
        LinkDescriptor::None | LinkDescriptor::Events => SocketSettings::default(),
        LinkDescriptor::Replaced | LinkDescriptor::Lasting => SocketSettings {
            send_buffer_bytes: Some(SOCKET_BUFFER_BYTES),
            receive_buffer_bytes: Some(SOCKET_BUFFER_BYTES),
            traffic_class: Some(traffic_class).filter(|class| *class != 0),
            ..SocketSettings::default()
        },
    }
}

/// Setup requests with other sizes, after the server has refused those of the ones before.
const MAX_SETUPS: usize = 3;

/// Options of a case.
#[derive(Debug, Clone, Copy)]
struct UdpstOptions {
    is_c: bool,
    key_id: u8,
}

impl UdpstOptions {
    fn parse(options: &super::ProtocolOptions) -> Result<UdpstOptions, CaseError> {
        let invalid = |text: String| CaseError::Option(format!("protocol udpst: {text}"));
        let is_c = match options.get(ALGORITHM_OPTION).map(String::as_str) {
            None | Some("B" | "b") => false,
            Some("C" | "c") => true,
            Some(other) => return Err(invalid(format!("{ALGORITHM_OPTION} '{other}' is neither B nor C"))),
        };
        let key_id = |text: &String| {
            text.parse()
                .map_err(|_| invalid(format!("{KEY_ID_OPTION} '{text}' is not a number from 0 to 255")))
        };
        Ok(UdpstOptions { is_c, key_id: options.get(KEY_ID_OPTION).map_or(Ok(0), key_id)? })
    }
}

fn prepare_case(case: &mut CaseDraft, caps: &Caps) -> Result<(), CaseError> {
    UdpstOptions::parse(&case.options)?;
    signing::is_authenticated(PROTOCOL.name, &case.options)?;
    if case.message_bytes.is_some() {
        let text = "the server decides about the sizes of the datagrams of udpst: leave out --size";
        return Err(CaseError::MessageSize(text.to_owned()));
    }
    let longest_ns = u64::from(MAX_SECONDS) * 1_000_000_000;
    if case.stop.time_ns.is_some_and(|time_ns| time_ns > longest_ns) {
        return Err(CaseError::Duration(format!(
            "a test of udpst takes at most {MAX_SECONDS} s: use a shorter --time"
        )));
    }
    case.check_capacity_search(caps, MAX_CONNECTIONS.into())
}

fn connect(case: &ReadyCase, context: &ConnectContext) -> Result<Box<dyn ClientSession>, ProtocolError> {
    let connections = case.endpoints.len() as u32 * case.parallel;
    let mut client = TestOpener {
        case,
        context,
        options: UdpstOptions::parse(&case.options)?,
        key: signing::case_key(case, context)?.map(|key| key.into_owned()),
        wall_clock: WallClock::now(&context.dialer.clock),
        test: fastrand::u16(1..),
        connections: connections as u8,
        modifier: wire::JUMBO,
        reports: Vec::new(),
        settings: Map::new(),
    };
    let flows = open_flows(case, context, |load, port, link, flows| {
        let flow = client.open(load, port, link, flows.len() as u8)?;
        flows.push(flow);
        Ok(())
    })?;
    let TestOpener { reports, mut settings, options, .. } = client;
    let algorithm = if options.is_c { "C" } else { "B" };
    settings.insert(ALGORITHM_OPTION.to_owned(), algorithm.into());
    let method = format!("udpst/{} {algorithm}", wire::VERSION);
    Ok(Box::new(UdpstSession { flows, reports, settings, method }))
}

/// Opens the connections of a test.
struct TestOpener<'a, 'b> {
    case: &'a ReadyCase,
    context: &'a ConnectContext<'b>,
    options: UdpstOptions,
    key: Option<Vec<u8>>,
    wall_clock: WallClock,
    /// Number of the test.
    test: u16,
    connections: u8,
    /// Sizes that the server wants.
    modifier: u8,
    reports: Vec<SharedReportedLoad>,
    settings: Map<String, Value>,
}

impl TestOpener<'_, '_> {
    fn seconds(&self) -> u32 {
        self.wall_clock.unix_ns_at(self.context.dialer.now()).div_euclid(1_000_000_000) as u32
    }

    fn is_download(&self) -> bool {
        self.case.direction == Direction::Receive
    }

    /// Opens one connection of the test, and makes its flow.
    fn open(
        &mut self,
        load: &Load,
        port: usize,
        mut link: Box<dyn Link>,
        index: u8,
    ) -> Result<Flow, ProtocolError> {
        let endpoint = &self.case.endpoints[port];
        let setup_time = self.seconds();
        let keys = self.key.as_deref().map(|key| TestKeys::derive(key, setup_time));
        let test_port = self.set_up(link.as_mut(), endpoint, index, (keys.as_ref(), setup_time))?;
        link = self.to_test_port(link, endpoint, test_port)?;
        let asked = self.activation(load, endpoint);
        let granted = self.activate(link.as_mut(), endpoint, &asked, keys.as_ref())?;
        self.note_limit(&asked, &granted);
        let role = if self.is_download() { FlowRole::Download } else { FlowRole::Upload };
        let recorder = (self.context.new_recorder)(role, port);
        let settings = self.test_settings(load, link.as_ref(), &granted);
        let party: Box<dyn RecordingParty> = match role {
            FlowRole::Download => Box::new(UdpstReceiver::new(settings, None, recorder)),
            _ => {
                let sender = UdpstSender::new(settings, granted.row, None, recorder);
                self.reports.push(sender.shared_report());
                Box::new(sender)
            }
        };
        Ok(Flow { role, endpoint_index: port, link, party })
    }

    /// Requests a connection. Returns the port of its test.
    fn set_up(
        &mut self,
        link: &mut dyn Link,
        endpoint: &Endpoint,
        index: u8,
        (keys, time): (Option<&TestKeys>, u32),
    ) -> Result<u16, ProtocolError> {
        let mut code = refusal::NONE;
        for _ in 0..MAX_SETUPS {
            let setup = Setup {
                version: wire::VERSION,
                index,
                count: self.connections,
                test: self.test,
                command: wire::REQUEST,
                response: refusal::NONE,
                bandwidth: 0,
                port: 0,
                modifier: self.modifier,
            };
            let mut request = setup.encode();
            if let Some(keys) = keys {
                keys.client.sign(&mut request, time, self.options.key_id);
            }
            let reply = self.request(link, endpoint, &request, |reply| {
                let answer = Setup::parse(reply)?;
                let is_own = (answer.test, answer.index) == (setup.test, setup.index);
                // Refusals need not be signed: the server may lack the key.
                let is_signed = answer.response != refusal::ACCEPTED
                    || keys.is_none_or(|keys| keys.server.has_signed(reply, self.seconds()));
                (answer.command == wire::RESPONSE && is_own && is_signed).then_some(answer)
            })?;
            code = reply.response;
            match code {
                refusal::ACCEPTED => return Ok(reply.port),
                refusal::JUMBO => self.modifier ^= wire::JUMBO,
                refusal::MTU => self.modifier ^= wire::TRADITIONAL_MTU,
                _ => break,
            }
        }
        let text = format!("the server refuses a test: {}", refusal::reason(code));
        Err(LinkError::new(endpoint, Fault::Refused(text)).into())
    }

    /// The link to the port of the test, from the same port of this host, so that firewalls let its datagrams pass.
    fn to_test_port(
        &self,
        link: Box<dyn Link>,
        endpoint: &Endpoint,
        port: u16,
    ) -> Result<Box<dyn Link>, ProtocolError> {
        const BIND_OPTION: &str = "bind";
        let addresses = local_address(link.as_ref()).zip(remote_address(link.as_ref()));
        let moves = |(local, remote): (SocketAddr, SocketAddr)| {
            (![0, remote.port()].contains(&port)).then_some(local)
        };
        let Some(local) = addresses.and_then(moves) else { return Ok(link) };
        drop(link);
        let bound = endpoint
            .with_port(port)
            .and_then(|bound| bound.without_option(BIND_OPTION))
            .and_then(|bound| bound.with_option(BIND_OPTION, &local.to_string()))
            .map_err(|error| LinkError::new(endpoint, error.into()))?;
        Ok(self.context.dialer.open(&bound)?)
    }

    fn activation(&self, load: &Load, endpoint: &Endpoint) -> Activation {
        let time = Duration::from_nanos(load.stop.time_ns.unwrap_or(0));
        Activation {
            command: if self.is_download() { wire::DOWNSTREAM } else { wire::UPSTREAM },
            response: refusal::NONE,
            low_delay: 30,
            high_delay: 90,
            trial_interval: TRIAL_INTERVAL.as_millis() as u16,
            time: (time.as_secs_f64().ceil() as u16).clamp(MIN_SECONDS, MAX_SECONDS),
            traffic_class: crate::transport::internet::requested_traffic_class(endpoint).unwrap_or(0),
            index: wire::SEARCH,
            is_one_way: 0,
            fast_step: 10,
            slow_after: 3,
            max_missing: 10,
            ignores_reordered: 1,
            modifier: 0,
            algorithm: self.options.is_c.into(),
            row: Row::default(),
            period: (time.as_millis().min(PERIOD_MS.into()) as u16).max(MIN_PERIOD_MS),
        }
    }

    /// Starts the test.
    fn activate(
        &self,
        link: &mut dyn Link,
        endpoint: &Endpoint,
        asked: &Activation,
        keys: Option<&TestKeys>,
    ) -> Result<Activation, ProtocolError> {
        let mut request = asked.encode();
        if let Some(keys) = keys {
            keys.client.sign(&mut request, self.seconds(), self.options.key_id);
        }
        let granted = self.request(link, endpoint, &request, |reply| {
            let granted = Activation::parse(reply)?;
            let is_signed = keys.is_none_or(|keys| keys.server.has_signed(reply, self.seconds()));
            (granted.response != refusal::NONE && granted.command == asked.command && is_signed)
                .then_some(granted)
        })?;
        if granted.response != refusal::ACCEPTED {
            let text = match self.is_download() && keys.is_none() {
                true => {
                    "the server refuses a download: a linkgauge server sends only to clients with its key \
                     (--authenticated, --token-file), or needs --trust-senders"
                }
                false => "the server refuses the test: its limits are too low",
            };
            return Err(LinkError::new(endpoint, Fault::Refused(text.to_owned())).into());
        }
        let is_within = (5..=250).contains(&granted.trial_interval)
            && (1..=asked.time).contains(&granted.time)
            && (MIN_PERIOD_MS..=10_000).contains(&granted.period);
        match is_within {
            true => Ok(granted),
            false => Err(ProtocolError::unexpected_reply(
                endpoint,
                "the server grants a test that was not requested",
            )),
        }
    }

    /// Sends a request until its reply arrives.
    fn request<T>(
        &self,
        link: &mut dyn Link,
        endpoint: &Endpoint,
        request: &[u8],
        read: impl Fn(&[u8]) -> Option<T>,
    ) -> Result<T, ProtocolError> {
        let mut input = Vec::new();
        let mut sender = RequestSender::new(link, self.context.dialer, &mut input);
        let reply = sender.send_until_reply(request, |bytes| match read(bytes) {
            Some(reply) => ParsedInput::Parsed(Some(reply)),
            // Others are those of the server's firewall, or late.
            None => ParsedInput::Incomplete,
        });
        match reply {
            Ok(Some(reply)) => Ok(reply),
            Ok(None) => Err(ProtocolError::unexpected_reply(endpoint, "the reply is not that of udpst")),
            Err(Fault::TimedOut) => {
                let text = "no server of udpst replied: check that one runs there, and the keys of both ends";
                Err(LinkError::new(endpoint, Fault::NoReply(text.to_owned())).into())
            }
            Err(fault) => Err(LinkError::new(endpoint, fault).into()),
        }
    }

    /// Notes a limit of the server.
    fn note_limit(&mut self, asked: &Activation, granted: &Activation) {
        let planned = Duration::from_nanos(self.case.load.stop.time_ns.unwrap_or(0));
        if granted.time < asked.time && Duration::from_secs(granted.time.into()) < planned {
            self.settings.insert(SERVER_LIMIT_SECONDS.to_owned(), f64::from(granted.time).into());
        }
    }

    fn test_settings(&self, load: &Load, link: &dyn Link, granted: &Activation) -> TestSettings {
        let time = load.stop.time_ns.map_or(Duration::MAX, Duration::from_nanos);
        let table = rates::RateTable {
            is_traditional: self.modifier & wire::TRADITIONAL_MTU != 0,
            is_jumbo: self.modifier & wire::JUMBO != 0,
        };
        let max_payload = table.max_payload(rates::MAX_ROW);
        let mut tuning = load.batch_tuning();
        tuning.batch_message_bytes = Some(max_payload);
        tuning.socket = socket_settings(link.caps(), granted.traffic_class);
        TestSettings {
            side: Side::Client,
            tuning,
            sizes: SizeLimits {
                max_payload: max_payload
                    .min(link.caps().max_message_bytes.map_or(u32::MAX, |most| most as u32)),
                is_ipv6: remote_address(link).is_some_and(|remote| remote.ip().to_canonical().is_ipv6()),
            },
            time: time.min(Duration::from_secs(granted.time.into())) + STOP_MARGIN,
            timeout: load.timeout,
            trial_interval: Duration::from_millis(granted.trial_interval.into()),
            period: Duration::from_millis(granted.period.into()),
            wall_clock: self.wall_clock,
            is_balanced: false,
        }
    }
}

struct UdpstSession {
    flows: Vec<Flow>,
    /// What the server has reported about each upload.
    reports: Vec<SharedReportedLoad>,
    settings: Map<String, Value>,
    method: String,
}

impl ClientSession for UdpstSession {
    fn take_flows(&mut self) -> Vec<Flow> {
        std::mem::take(&mut self.flows)
    }

    fn finish(
        &mut self,
        flows: &[FlowResult],
        _links: Vec<Box<dyn Link>>,
    ) -> Result<Option<ServerReport>, ProtocolError> {
        let (uploads, downloads): (Vec<_>, Vec<_>) =
            flows.iter().partition(|flow| flow.role == FlowRole::Upload);
        let received = uploads.iter().zip(&self.reports).filter_map(|(flow, report)| {
            report.lock().unwrap_or_else(PoisonError::into_inner).report(flow.endpoint_index)
        });
        // The numbers show how much was sent up to the last datagram, which says that the server stops.
        let sent = downloads.iter().map(|flow| FlowReport {
            port: flow.endpoint_index,
            inward: true,
            bytes: flow.recorder.counts.delivered_bytes,
            messages: flow.recorder.counts.sent,
            ..FlowReport::default()
        });
        let flows: Vec<_> = received.chain(sent).collect();
        Ok((!flows.is_empty()).then(|| ServerReport {
            flows,
            has_other_sizes: true,
            ..ServerReport::default()
        }))
    }

    fn effective_settings(&self) -> Map<String, Value> {
        self.settings.clone()
    }

    fn method(&self) -> Option<String> {
        Some(self.method.clone())
    }
}

#[cfg(test)]
mod tests;
