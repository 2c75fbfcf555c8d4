//! `irtt`: the isochronous round-trip tester (heistp/irtt, protocol version 1).
//!
//! An open packet requests a test, and the reply grants it, within the limits of the server. Then requests leave on a
//! schedule, and each reply reports when its request arrived, when the reply left, and which requests have arrived so
//! far. So linkgauge separates server time from network delay, forward from reverse delay, and lost requests from lost
//! replies. A token of linkgauge is the key of irtt's HMAC. Packets are in `packet`, parameters in `params`, what a
//! server grants in `token`, the server in `server`.

use std::ops::Range;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::linkgauge::request_sender::{ParsedInput, RequestSender};
use super::stamp::time::WallClock;
use super::{
    CaseDraft, CaseError, ClientSession, ConnectContext, Flow, Protocol, ProtocolError, ReadyCase, Shorthand,
    open_flows, signing,
};
use crate::link::{Caps, Dialer, Fault, Framing, Link, LinkError};
use crate::transport::internet::requested_traffic_class;
use crate::workload::latency::{Pinger, ReplyStatus, RequestReplyCodec};
use crate::workload::pattern::{Alphabet, PatternMessage};
use crate::workload::{FlowResult, FlowRole, Load, ServerReport, TrafficKind, planned_time};
use linkgauge_model::endpoint::Endpoint;
use linkgauge_model::plan::{Direction, Pacing, StopCondition};
use linkgauge_model::run::{SERVER_LIMIT_MESSAGES_PER_SECOND, SERVER_LIMIT_SECONDS};
use linkgauge_model::sample::ServerTimestamps;

pub mod packet;
pub mod params;
mod server;
mod token;

use packet::{CLOSE, Layout, NUMBER_BYTES, OPEN, PacketKey, REPLY, ReplyFields, TOKEN_BYTES, packet_of};
use params::{Params, VERSION};

/// The `irtt` protocol.
pub(crate) const PROTOCOL: Protocol = Protocol {
    name: "irtt",
    summary: "replies as an irtt server does, with its times and counts",
    default_ports: &[("udp", 2112)],
    traffic: &[(TrafficKind::RoundTrips, &[Direction::Loop])],
    options: &[signing::AUTHENTICATED],
    sizes: &[],
    is_measured_whole: false,
    shorthand: Some(Shorthand { option: None }),
    original_server: Some(|_, port| {
        format!("irtt server{}", port.map_or(String::new(), |port| format!(" -b :{port}")))
    }),
    prepare_case,
    connect,
    serve: Some(server::new_service),
};

/// The shortest interval of a server by default, ours and the original.
const MIN_INTERVAL: Duration = Duration::from_millis(10);

/// The rate that such a server allows.
const DEFAULT_PER_SECOND: f64 = 100.0;

/// Servers grant no longer interval, and forget a client that is silent for four times as long.
const MAX_INTERVAL: Duration = Duration::from_secs(15);
const MAX_SILENCE: Duration = Duration::from_secs(50);

/// The requested duration of a test without a planned end.
const ENDLESS: Duration = Duration::from_secs(30 * 24 * 3600);

/// Checks size and pacing, and sets the defaults.
fn prepare_case(case: &mut CaseDraft, caps: &Caps) -> Result<(), CaseError> {
    let url = &case.endpoints[0];
    if caps.framing == Framing::Stream {
        return Err(CaseError::Link(format!(
            "{url}: the protocol irtt needs messages, not a stream: use udp"
        )));
    }
    let is_signed = signing::is_authenticated(PROTOCOL.name, &case.options)?;
    let least = Layout::FULL.min_packet_bytes(is_signed.then(|| PacketKey::new(&[])).as_ref()) as u32;
    let bytes = *case.message_bytes.get_or_insert(least);
    if bytes < least {
        return Err(CaseError::MessageSize(format!(
            "{url}: a packet of irtt has {least} bytes or more, not {bytes}: choose another --size"
        )));
    }
    let flows = f64::from(case.parallel);
    match case.pacing {
        Pacing::Closed => {}
        Pacing::Fixed { per_second } if per_second / flows * MAX_SILENCE.as_secs_f64() >= 1.0 => {}
        Pacing::Fixed { .. } => {
            return Err(CaseError::Pacing(format!(
                "{url}: a server of irtt forgets a silent client: send a request at least every {} s",
                MAX_SILENCE.as_secs()
            )));
        }
        Pacing::Poisson { .. } | Pacing::ThinkTime { .. } => {
            return Err(CaseError::Pacing(format!(
                "{url}: irtt sends at equal intervals, without random pauses: use --rate or --every alone"
            )));
        }
    }
    case.default_per_second = Some(DEFAULT_PER_SECOND);
    Ok(())
}

/// The time in which a load sends its messages; `None`: it has no planned end.
fn sending_time(load: &Load) -> Option<Duration> {
    let of = |stop: StopCondition| match stop.is_unlimited() {
        true => Some(Duration::ZERO),
        false => planned_time(&Load { stop, ..*load }, &[]),
    };
    let least = Duration::from_nanos(load.stop.min_time_ns.unwrap_or(0));
    (!load.stop.is_unlimited()).then_some(())?;
    Some(of(load.warm_up)?.saturating_add(of(load.stop)?.max(least)))
}

fn connect(case: &ReadyCase, context: &ConnectContext) -> Result<Box<dyn ClientSession>, ProtocolError> {
    let key = signing::case_key(case, context)?.map(|key| PacketKey::new(&key));
    let wall_clock = WallClock::now(&context.dialer.clock);
    let (mut settings, mut closings) = (Map::new(), Vec::new());
    settings.insert(signing::AUTHENTICATED_OPTION.to_owned(), key.is_some().into());
    let flows = open_flows(case, context, |load, port, mut link, flows| {
        let endpoint = &case.endpoints[port];
        let caps = link.caps().clone();
        let requested = requested_params(load, endpoint);
        let opened = open_test(link.as_mut(), &requested, key.as_ref(), endpoint, context.dialer)?;
        let load = granted_load(load, &requested, &opened.params, endpoint, &mut settings)?;
        closings.push(packet_of(CLOSE, &[&opened.token.to_le_bytes()], key.as_ref()));
        let codec = IrttCodec::new(opened, key.clone(), wall_clock, &load, &caps);
        let recorder = (context.new_recorder)(FlowRole::RoundTrip, port);
        let party = Pinger::new(Box::new(codec), &load, &caps, recorder);
        flows.push(Flow { role: FlowRole::RoundTrip, endpoint_index: port, link, party: Box::new(party) });
        Ok(())
    })?;
    Ok(Box::new(IrttSession { flows, closings, settings }))
}

/// Parameters that are requested for a load.
fn requested_params(load: &Load, endpoint: &Endpoint) -> Params {
    let nanoseconds = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX).max(1);
    let per_second = load.pacing.per_second().unwrap_or(DEFAULT_PER_SECOND);
    let interval = Duration::try_from_secs_f64(1.0 / per_second).unwrap_or(MAX_INTERVAL);
    Params {
        version: VERSION,
        duration_ns: nanoseconds(sending_time(load).unwrap_or(ENDLESS)),
        interval_ns: nanoseconds(interval.min(MAX_INTERVAL)),
        length: load.message_bytes,
        layout: Layout::FULL,
        traffic_class: requested_traffic_class(endpoint).unwrap_or(0),
        fill: Vec::new(),
    }
}

/// A test that a server has granted.
struct OpenedTest {
    token: u64,
    params: Params,
}

/// Requests a test and waits for the reply.
fn open_test(
    link: &mut dyn Link,
    requested: &Params,
    key: Option<&PacketKey>,
    endpoint: &Endpoint,
    dialer: &Dialer,
) -> Result<OpenedTest, ProtocolError> {
    let request = packet_of(OPEN, &[&requested.to_bytes()], key);
    let mut input = Vec::new();
    let mut sender = RequestSender::new(link, dialer, &mut input);
    let reply = sender.send_until_reply(&request, |bytes| {
        let Some((flags, body)) = packet::read_packet(bytes, key) else {
            return ParsedInput::Unexpected(None);
        };
        let opened = packet::split_token(body)
            .and_then(|(token, rest)| Some(OpenedTest { token, params: Params::read(rest)? }));
        match flags {
            _ if flags == OPEN | REPLY => ParsedInput::Parsed(opened.filter(|opened| opened.token != 0)),
            _ if flags == OPEN | REPLY | CLOSE => ParsedInput::Parsed(None),
            _ => ParsedInput::Unexpected(None),
        }
    });
    let opened = match reply {
        Ok(opened) => opened,
        Err(Fault::TimedOut) => {
            let keyed = match key {
                Some(_) => "its key is another one, or it has none",
                None => "it may require a key (--authenticated, --token-file)",
            };
            let text = format!("no server of irtt replied: check that one runs there; {keyed}");
            return Err(LinkError::new(endpoint, Fault::NoReply(text)).into());
        }
        Err(fault) => return Err(LinkError::new(endpoint, fault).into()),
    };
    let unexpected = |what: &str| ProtocolError::unexpected_reply(endpoint, what);
    let opened = opened.ok_or_else(|| unexpected("the reply is not that of a server of irtt"))?;
    match opened.params.excess_over(requested) {
        Some(what) => Err(unexpected(&format!("the server grants {what}"))),
        None => Ok(opened),
    }
}

/// The load within what the server granted; what it reduced goes into `settings`.
fn granted_load(
    load: &Load,
    requested: &Params,
    granted: &Params,
    endpoint: &Endpoint,
    settings: &mut Map<String, Value>,
) -> Result<Load, CaseError> {
    let mut load = Load { skips_overdue: true, ..*load };
    if granted.length < requested.length {
        return Err(CaseError::MessageSize(format!(
            "{endpoint}: the server allows packets of {} bytes, not {}: use --size {0}",
            granted.length, requested.length
        )));
    }
    if granted.interval_ns > requested.interval_ns {
        let per_second = 1.0 / granted.interval().as_secs_f64();
        load.pacing = Pacing::Fixed { per_second };
        settings.insert(SERVER_LIMIT_MESSAGES_PER_SECOND.to_owned(), per_second.into());
        settings.insert("pacing".to_owned(), json!(load.pacing));
    }
    if granted.duration_ns < requested.duration_ns {
        let warm_up = sending_time(&Load { stop: StopCondition::after_time(Duration::ZERO), ..load });
        let left = granted.duration().saturating_sub(warm_up.unwrap_or(Duration::ZERO));
        if left.is_zero() {
            return Err(CaseError::Duration(format!(
                "{endpoint}: the server ends a test after {:?}, before the warm-up is over: use --warm-up 0",
                granted.duration()
            )));
        }
        let left_ns = left.as_nanos() as u64;
        load.stop.time_ns = Some(load.stop.time_ns.map_or(left_ns, |time_ns| time_ns.min(left_ns)));
        if sending_time(&load).is_some() {
            settings.insert(SERVER_LIMIT_SECONDS.to_owned(), granted.duration().as_secs_f64().into());
        }
    }
    let times = if granted.has_both_times() { "both" } else { "none" };
    settings.insert("server_time_stamps".to_owned(), times.into());
    Ok(load)
}

struct IrttSession {
    flows: Vec<Flow>,
    /// The last packet of each flow.
    closings: Vec<Vec<u8>>,
    settings: Map<String, Value>,
}

impl ClientSession for IrttSession {
    fn take_flows(&mut self) -> Vec<Flow> {
        std::mem::take(&mut self.flows)
    }

    fn finish(
        &mut self,
        _flows: &[FlowResult],
        links: Vec<Box<dyn Link>>,
    ) -> Result<Option<ServerReport>, ProtocolError> {
        for (mut link, closing) in links.into_iter().zip(&self.closings) {
            // No reply follows; a server that does not receive it forgets the test after a while.
            let _ = link.send(closing, Duration::ZERO);
        }
        Ok(None)
    }

    fn effective_settings(&self) -> Map<String, Value> {
        self.settings.clone()
    }
}

/// Counts the requests that a server received, from what its replies report.
#[derive(Debug, Default)]
struct ReceivedRequests {
    /// Number, count and window of the newest reply.
    newest: Option<(u32, u32, u64)>,
    /// Requests received up to that one.
    received: u32,
}

impl ReceivedRequests {
    /// Notes a reply, and returns the number of requests received up to its request. The window has each request once, so
    /// it counts where it reaches; the count of the server includes duplicates.
    fn note(&mut self, number: u32, count: Option<u32>, window: Option<u64>) -> Option<u32> {
        let (count, window) = (count.unwrap_or(0), window.unwrap_or(0));
        if count == 0 && window == 0 {
            return None;
        }
        let more = match self.newest {
            // The window of a late reply may be that of another order.
            Some((newest, ..)) if newest >= number => 0,
            Some((newest, newest_count, newest_window)) => {
                let distance = number - newest;
                match window {
                    1.. if distance < u64::BITS => {
                        // Requests that have arrived late are in this window and not in the one before.
                        let known = newest_window << distance;
                        (window & !known).count_ones()
                    }
                    _ if count > 0 => count.wrapping_sub(newest_count),
                    _ => 1,
                }
            }
            None => 1,
        };
        if self.newest.is_none_or(|(newest, ..)| newest < number) {
            self.newest = Some((number, count, window));
        }
        self.received = self.received.wrapping_add(more);
        Some(self.received)
    }
}

/// Makes the numbers of replies differ from those of requests, so that the recorder knows that the server counts.
const REPLY_NUMBER_BASE: u32 = 1 << 31;

/// Encodes requests and reads replies.
struct IrttCodec {
    key: Option<PacketKey>,
    token: u64,
    layout: Layout,
    wall_clock: WallClock,
    packet: Vec<u8>,
    received: ReceivedRequests,
    timestamps: Option<ServerTimestamps>,
}

impl IrttCodec {
    fn new(
        test: OpenedTest,
        key: Option<PacketKey>,
        wall_clock: WallClock,
        load: &Load,
        caps: &Caps,
    ) -> IrttCodec {
        let layout = test.params.layout;
        let least = layout.min_packet_bytes(key.as_ref());
        let mut packet =
            PatternMessage::new(load.message_bytes as usize, Alphabet::from_caps(caps)).bytes().to_vec();
        packet[..least].fill(0);
        let head = packet::prefix_bytes(key.as_ref());
        packet[head..head + TOKEN_BYTES].copy_from_slice(&test.token.to_le_bytes());
        IrttCodec {
            key,
            token: test.token,
            layout,
            wall_clock,
            packet,
            received: ReceivedRequests::default(),
            timestamps: None,
        }
    }

    /// The times of a reply with both. The hold is that of the clock that is never set, if there is one.
    fn timestamps(&self, fields: &ReplyFields, reply_number: u32) -> Option<ServerTimestamps> {
        let (received, sent) = (fields.received, fields.sent);
        let between = |from: Option<i64>, to: Option<i64>| Some(to?.wrapping_sub(from?));
        let hold_ns = between(received.monotonic, sent.monotonic).or(between(received.wall, sent.wall))?;
        let received_ns = received.wall.map(|wall| self.wall_clock.clock_ns_of_unix(wall));
        let received_ns = received_ns.or(received.monotonic)?;
        Some(ServerTimestamps { received_ns, sent_ns: received_ns.wrapping_add(hold_ns), reply_number })
    }
}

impl RequestReplyCodec for IrttCodec {
    fn encode_request(&mut self, sequence: u64) -> &[u8] {
        let at = packet::prefix_bytes(self.key.as_ref()) + TOKEN_BYTES;
        self.packet[at..at + NUMBER_BYTES].copy_from_slice(&(sequence as u32).to_le_bytes());
        packet::seal(&mut self.packet, 0, self.key.as_ref());
        &self.packet
    }

    fn parse_reply(&mut self, data: &[u8], waiting: Range<u64>) -> ReplyStatus {
        let used = data.len();
        self.timestamps = None;
        let Some((flags, body)) = packet::read_packet(data, self.key.as_ref()) else {
            return ReplyStatus::Malformed { used };
        };
        if flags == OPEN | REPLY {
            // The reply to an open packet that was repeated.
            return ReplyStatus::Incomplete;
        }
        let echo = packet::split_token(body).filter(|(token, _)| *token == self.token);
        let echo = echo.and_then(|(_, rest)| packet::split_number(rest));
        let echo = echo.and_then(|(number, rest)| Some((number, self.layout.read(rest)?)));
        let Some((number, fields)) = echo.filter(|_| flags & !CLOSE == REPLY && used == self.packet.len())
        else {
            return ReplyStatus::Malformed { used };
        };
        if flags & CLOSE != 0 {
            return ReplyStatus::Refused;
        }
        let distance = number.wrapping_sub(waiting.start as u32) as i32;
        let Some(sequence) = waiting.start.checked_add_signed(distance.into()) else {
            return ReplyStatus::Malformed { used };
        };
        let received = self.received.note(number, fields.count, fields.window);
        let reply_number = received.map_or(number, |received| received.wrapping_add(REPLY_NUMBER_BASE));
        self.timestamps = self.timestamps(&fields, reply_number);
        ReplyStatus::Complete { sequence, used, corrupt_bytes: 0 }
    }

    fn refusal_reason(&self) -> String {
        "the server ended the test".to_owned()
    }

    fn has_server_timestamps(&self) -> bool {
        true
    }

    fn server_timestamps(&self) -> Option<ServerTimestamps> {
        self.timestamps
    }
}

#[cfg(test)]
mod tests;
