//! `stamp` and `twamp-light`: the server reports the receive time of a request and the send time of its reply (RFC
//! 8762, RFC 5357). This separates server time from network delay, and forward from reverse delay.
//!
//! Neither has a control connection. A token is the key of STAMP's authenticated mode. Packets are in `packet`,
//! extensions in `tlv`, wall-clock times in `time`, the server in `reflector`.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde_json::{Map, Value};

use super::signing::{self, AUTHENTICATED_OPTION, is_authenticated};
use super::{
    CaseDraft, CaseError, ClientSession, ConnectContext, Flow, Protocol, ProtocolError, ReadyCase, open_flows,
};
use crate::link::time_of_day::TimeOfDay;
use crate::link::{Caps, Framing, Link, MAX_HOP_LIMIT, set_hop_limit};
use crate::workload::latency::{Pinger, ReplyStatus, RequestReplyCodec};
use crate::workload::{FlowRole, Load, TrafficKind};
use linkgauge_model::clock::Time;
use linkgauge_model::plan::Direction;
use linkgauge_model::sample::{CommonTime, ServerTimestamps};

pub mod packet;
mod reflector;
pub(crate) mod time;
pub mod tlv;

pub(super) use reflector::new_service as new_reflector;

use packet::{
    AUTHENTICATED_BYTES, HmacKey, MIN_REQUEST_BYTES, ReflectorPacket, SenderPacket, TWAMP_REPLY_BYTES,
    UNAUTHENTICATED_BYTES, base_bytes,
};
use time::{ClockError, ErrorEstimate, WallClock};

/// The `stamp` protocol (RFC 8762).
pub(crate) const PROTOCOL: Protocol = Protocol {
    name: "stamp",
    summary: "reports when a request arrived and its reply left (STAMP, RFC 8762)",
    default_ports: &[("udp", DEFAULT_PORT)],
    traffic: &[(TrafficKind::RoundTrips, &[Direction::Loop])],
    options: &[signing::AUTHENTICATED],
    sizes: &[],
    is_measured_whole: false,
    shorthand: None,
    original_server: None,
    prepare_case: |case, caps| prepare_case(case, caps, StampVariant::Stamp),
    connect: |case, context| connect(case, context, StampVariant::Stamp),
    serve: Some(|facts| reflector::new_service(facts, StampVariant::Stamp)),
};

/// The `twamp-light` protocol (RFC 5357, appendix I).
pub(crate) const TWAMP_LIGHT: Protocol = Protocol {
    name: "twamp-light",
    summary: "the same without a control connection, as in TWAMP (RFC 5357)",
    options: &[],
    prepare_case: |case, caps| prepare_case(case, caps, StampVariant::TwampLight),
    connect: |case, context| connect(case, context, StampVariant::TwampLight),
    serve: Some(|facts| reflector::new_service(facts, StampVariant::TwampLight)),
    ..PROTOCOL
};

/// Name of the protocol with a control connection.
pub(super) const TWAMP_NAME: &str = "twamp";

/// Port of reflectors.
const DEFAULT_PORT: u16 = 862;

/// The packet format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StampVariant {
    /// Format of RFC 8762: request and reply have the same length.
    Stamp,
    /// Format of RFC 5357, appendix I: the request is shorter than the reply, apart from its padding.
    TwampLight,
    /// Packets of [`StampVariant::TwampLight`], where a control connection has announced the sender.
    Twamp,
}

impl StampVariant {
    /// The name of its protocol.
    fn name(self) -> &'static str {
        match self {
            StampVariant::Stamp => PROTOCOL.name,
            StampVariant::TwampLight => TWAMP_LIGHT.name,
            StampVariant::Twamp => TWAMP_NAME,
        }
    }
}

/// Checks that the size is possible for a packet, or sets the default.
pub(super) fn prepare_case(
    case: &mut CaseDraft,
    caps: &Caps,
    dialect: StampVariant,
) -> Result<(), CaseError> {
    let (peer, url) = (dialect.name(), &case.endpoints[0]);
    if caps.framing == Framing::Stream {
        return Err(CaseError::Link(format!(
            "{url}: the protocol {peer} needs messages, not a stream: use udp"
        )));
    }
    let signed = is_authenticated(peer, &case.options)?;
    let (usual, least, more) = match (dialect, signed) {
        (StampVariant::Stamp, false) => {
            (UNAUTHENTICATED_BYTES, UNAUTHENTICATED_BYTES, tlv::min_extension_bytes(signed))
        }
        (StampVariant::Stamp, true) => {
            (AUTHENTICATED_BYTES, AUTHENTICATED_BYTES, tlv::min_extension_bytes(signed))
        }
        // A TWAMP reply is as long as the request only if the request has at least this size.
        (StampVariant::TwampLight | StampVariant::Twamp, _) => (TWAMP_REPLY_BYTES, MIN_REQUEST_BYTES, 0),
    };
    let bytes = case.message_bytes.map_or(usual, |bytes| bytes as usize);
    if bytes < least || (least < bytes && bytes < least + more) {
        let from = if more > 0 {
            format!("{least}, or {} and more", least + more)
        } else {
            format!("{least} and more")
        };
        return Err(CaseError::MessageSize(format!(
            "{url}: a packet of {peer} has {from} bytes, not {bytes}: choose another --size"
        )));
    }
    case.message_bytes = Some(bytes as u32);
    Ok(())
}

fn connect(
    case: &ReadyCase,
    context: &ConnectContext,
    dialect: StampVariant,
) -> Result<Box<dyn ClientSession>, ProtocolError> {
    let mut sessions = SessionMaker::new(case, context, dialect)?;
    open_flows(case, context, |load, port, link, _| {
        sessions.add(*load, port, link);
        Ok(())
    })?;
    Ok(Box::new(sessions.into_session()))
}

/// Makes the flows of a case: each has a sender of test packets.
pub(super) struct SessionMaker<'a> {
    context: &'a ConnectContext<'a>,
    variant: StampVariant,
    wall_clock: WallClock,
    local_error: Option<ClockError>,
    key: Option<HmacKey>,
    /// Whether the packets to each endpoint have the largest TTL: it has no other one.
    leaves_with_max_hop_limit: Vec<bool>,
    session: StampSession,
}

impl<'a> SessionMaker<'a> {
    pub(super) fn new(
        case: &ReadyCase,
        context: &'a ConnectContext<'a>,
        variant: StampVariant,
    ) -> Result<SessionMaker<'a>, ProtocolError> {
        let key = signing::case_key(case, context)?.map(|key| HmacKey::new(&key));
        let time_of_day = context.dialer.read_time_of_day();
        let now = context.dialer.now();
        let session = StampSession {
            flows: Vec::new(),
            last_reply: Arc::default(),
            time_of_day,
            is_authenticated: key.is_some(),
        };
        Ok(SessionMaker {
            context,
            variant,
            wall_clock: WallClock::now(&context.dialer.clock),
            local_error: time_of_day
                .and_then(|time| Some(ClockError { stated_ns: time.error_ns?, stated_at: now })),
            key,
            leaves_with_max_hop_limit: case.endpoints.iter().map(|url| url.option("ttl").is_none()).collect(),
            session,
        })
    }

    /// Adds a flow over the link to an endpoint.
    pub(super) fn add(&mut self, load: Load, port: usize, link: Box<dyn Link>) {
        let last_reply = self.session.last_reply.clone();
        let bytes = load.message_bytes as usize;
        let mut codec = StampCodec::new(self.variant, self.key.clone(), self.wall_clock, bytes, last_reply);
        codec.local_error = self.local_error;
        if self.leaves_with_max_hop_limit[port] {
            set_hop_limit(link.as_ref(), MAX_HOP_LIMIT);
        }
        let recorder = (self.context.new_recorder)(FlowRole::RoundTrip, port);
        let party = Box::new(Pinger::new(Box::new(codec), &load, &link.caps().clone(), recorder));
        self.session.flows.push(Flow { role: FlowRole::RoundTrip, endpoint_index: port, link, party });
    }

    pub(super) fn into_session(self) -> StampSession {
        self.session
    }
}

/// Error estimate and TTL of the last reply, and whether there was one.
#[derive(Default)]
struct LastReply(AtomicU64);

impl LastReply {
    const PRESENT_FLAG: u64 = 1 << 32;
    /// Flag: the reply had valid times.
    const TIMES_FLAG: u64 = 1 << 33;

    fn record(&self, reply: &ReflectorPacket) {
        let times = if reply.times().is_some() { Self::TIMES_FLAG } else { 0 };
        self.0.store(
            Self::PRESENT_FLAG | times | u64::from(reply.error_estimate.0) << 8 | u64::from(reply.ttl),
            Relaxed,
        );
    }

    fn facts(&self) -> Map<String, Value> {
        let mut facts = Map::new();
        let last_reply = self.0.load(Relaxed);
        if last_reply & Self::PRESENT_FLAG == 0 {
            return facts;
        }
        let (error, ttl) = (ErrorEstimate((last_reply >> 8) as u16), last_reply as u8);
        let mut note = |name: &str, value: Value| facts.insert(name.to_owned(), value);
        let format = match (last_reply & Self::TIMES_FLAG != 0, error.is_ptp()) {
            (false, _) => "none",
            (true, true) => "ptp",
            (true, false) => "ntp",
        };
        note("server_time_stamps", format.into());
        if format != "none" {
            note("server_clock_synchronised", error.is_synchronised().into());
        }
        // The error estimate of an unsynchronised clock has no meaning.
        if format != "none" && error.is_synchronised() {
            note("server_clock_error_seconds", error.seconds().into());
        }
        if ttl > 0 {
            note("ttl_at_server", ttl.into());
        }
        facts
    }
}

pub(super) struct StampSession {
    flows: Vec<Flow>,
    last_reply: Arc<LastReply>,
    time_of_day: Option<TimeOfDay>,
    is_authenticated: bool,
}

impl ClientSession for StampSession {
    fn take_flows(&mut self) -> Vec<Flow> {
        std::mem::take(&mut self.flows)
    }

    fn effective_settings(&self) -> Map<String, Value> {
        let mut settings = self.last_reply.facts();
        settings.extend(self.time_of_day.into_iter().flat_map(|time| time.facts("")));
        settings.insert(AUTHENTICATED_OPTION.to_owned(), self.is_authenticated.into());
        settings
    }
}

/// Encodes requests and reads replies.
pub(crate) struct StampCodec {
    key: Option<HmacKey>,
    wall_clock: WallClock,
    /// Identifies our replies; 0 in formats without a session number.
    session_id: u16,
    packet: Vec<u8>,
    now: Time,
    server_timestamps: Option<ServerTimestamps>,
    last_reply: Arc<LastReply>,
    /// Error of the time of day here, if it is synchronised.
    local_error: Option<ClockError>,
    common_time: Option<CommonTime>,
}

impl StampCodec {
    fn new(
        dialect: StampVariant,
        key: Option<HmacKey>,
        wall: WallClock,
        length: usize,
        last_reply: Arc<LastReply>,
    ) -> StampCodec {
        let mut packet = vec![0; length];
        if dialect == StampVariant::Stamp {
            tlv::write_padding(&mut packet[base_bytes(key.as_ref())..], key.as_ref());
        }
        let session = if dialect == StampVariant::Stamp { fastrand::u16(1..) } else { 0 };
        StampCodec {
            key,
            wall_clock: wall,
            session_id: session,
            packet,
            now: Time(0),
            server_timestamps: None,
            last_reply,
            local_error: None,
            common_time: None,
        }
    }
}

impl StampCodec {
    /// The first statement of the reflector counts, as long as its clock is synchronised.
    fn note_common_time(&mut self, remote: ErrorEstimate) {
        let Some(local) = self.local_error.filter(|_| remote.is_synchronised()) else {
            self.common_time = None;
            return;
        };
        self.common_time.get_or_insert(CommonTime {
            // Both times are those of the time of day.
            offset_ns: 0,
            error_ns: local.stated_ns.saturating_add((remote.seconds() * 1e9) as u64),
            stated_at: local.stated_at,
        });
    }
}

impl RequestReplyCodec for StampCodec {
    fn set_time(&mut self, now: Time) {
        self.now = now;
    }

    fn encode_request(&mut self, sequence: u64) -> &[u8] {
        let request = SenderPacket {
            sequence: sequence as u32,
            sent: self.wall_clock.ntp_at(self.now).0,
            error_estimate: ErrorEstimate::from_error_ns(self.local_error.map(|error| error.at(self.now))),
            session_id: self.session_id,
        };
        request.write(&mut self.packet, self.key.as_ref());
        &self.packet
    }

    fn parse_reply(&mut self, data: &[u8], waiting: Range<u64>) -> ReplyStatus {
        let used = data.len();
        self.server_timestamps = None;
        let Some(reply) = ReflectorPacket::read(data, self.key.as_ref()) else {
            return ReplyStatus::Malformed { used };
        };
        // A reflector without support for sessions sends 0.
        let ours = reply.session_id == self.session_id || reply.session_id == 0;
        if !ours || reply.copies_nothing() {
            return ReplyStatus::Malformed { used };
        }
        let distance = reply.request.sequence.wrapping_sub(waiting.start as u32) as i32;
        let Some(sequence) = waiting.start.checked_add_signed(distance.into()) else {
            return ReplyStatus::Malformed { used };
        };
        self.last_reply.record(&reply);
        if let Some((received, sent)) = reply.times() {
            self.note_common_time(reply.error_estimate);
            self.server_timestamps = Some(ServerTimestamps {
                received_ns: self.wall_clock.clock_ns_of(received),
                sent_ns: self.wall_clock.clock_ns_of(sent),
                reply_number: reply.sequence,
            });
        }
        ReplyStatus::Complete { sequence, used, corrupt_bytes: 0 }
    }

    fn common_time(&self) -> Option<CommonTime> {
        self.common_time
    }

    fn has_server_timestamps(&self) -> bool {
        true
    }

    fn server_timestamps(&self) -> Option<ServerTimestamps> {
        self.server_timestamps
    }
}

#[cfg(test)]
mod tests;
