//! The server of STAMP and TWAMP-Light: replies to each request with its receive time and the send time of the reply.
//!
//! Each sender has a link, and a counter for each of its sessions. A stateless reflector has neither: it replies to first
//! messages. A reply is never longer than its request, so a TWAMP sender without padding gets none, unless senders are trusted. Replies
//! leave with a TTL of 255, as the standards require, so that senders see the routers of the reverse direction.

use std::sync::Arc;
use std::time::Duration;

use super::packet::{
    HmacKey, MIN_REQUEST_BYTES, ReflectorPacket, SenderPacket, TWAMP_REPLY_BYTES, base_bytes,
};
use super::time::{ClockError, ErrorEstimate, NtpTime, WallClock};
use super::tlv::{self, SessionCounts};
use super::{DEFAULT_PORT, StampVariant};
use crate::link::party::{ClientTrust, Party, Step, Tuning};
use crate::link::time_of_day::TimeOfDay;
use crate::link::{Admission, Batch, Caps, Fault, Framing, Link, MAX_HOP_LIMIT, set_hop_limit};
use crate::protocol::signing::token_key;
use crate::protocol::{CaseError, ServerConfig, ServerSetting, Service};
use linkgauge_model::clock::{Clock, Time};

/// Maximum sessions of one sender that are counted separately; a further one replaces the oldest.
const MAX_SESSIONS: usize = 16;

/// Maximum age of our reply when a looped reply to it arrives.
const MAX_LOOP_AGE: Duration = Duration::from_secs(60);

/// Longest packet that gets a reply: the maximum of the link.
const MAX_PACKET_BYTES: usize = 65_536;

pub(crate) fn new_service(facts: &Arc<ServerConfig>, dialect: StampVariant) -> Arc<dyn Service> {
    Arc::new(StampService {
        variant: dialect,
        is_stateless: facts.is_stateless,
        trusts_senders: facts.trusts_senders,
        time_of_day: facts.time_of_day,
        // TWAMP's own signatures need its control connection.
        key: facts
            .token
            .as_deref()
            .filter(|_| dialect == StampVariant::Stamp)
            .map(|token| HmacKey::new(&token_key(token))),
    })
}

struct StampService {
    variant: StampVariant,
    is_stateless: bool,
    /// Shorter requests than their replies get one.
    trusts_senders: bool,
    /// Time of day that the reflector states. `None`: it is read for each sender.
    time_of_day: Option<TimeOfDay>,
    /// If set, only packets signed with this key get a reply.
    key: Option<HmacKey>,
}

impl StampService {
    /// The largest error of the time of day in nanoseconds, if it is synchronised.
    fn stated_error_ns(&self) -> Option<u64> {
        self.time_of_day.or_else(|| TimeOfDay::read(&Clock::System)).and_then(|time| time.error_ns)
    }
}

impl Service for StampService {
    fn check_link(&self, caps: &Caps) -> Result<(), CaseError> {
        match caps.framing {
            Framing::Message => Ok(()),
            Framing::Stream => {
                Err(CaseError::Link("test packets need messages, not a stream: use udp".to_owned()))
            }
        }
    }

    fn new_party(&self, caps: &Caps, _from: &str) -> Box<dyn Party> {
        Box::new(StampReflector {
            variant: self.variant,
            is_stateless: self.is_stateless,
            trusts_senders: self.trusts_senders,
            must_tune: true,
            key: self.key.clone(),
            wall_clock: WallClock::now(&Clock::System),
            stated_error_ns: self.stated_error_ns(),
            clock_error: None,
            batch: Batch::with_ip_fields(
                caps.max_message_bytes.unwrap_or(MAX_PACKET_BYTES).min(MAX_PACKET_BYTES),
            ),
            pending: None,
            reply: Vec::with_capacity(MAX_PACKET_BYTES),
            sessions: Vec::with_capacity(MAX_SESSIONS),
            is_finished: false,
        })
    }

    /// A stateless reflector replies at once. It does not learn the TTL of the request.
    fn admit_sender(&self, first: &[u8], _from: &str, reply: &mut Vec<u8>) -> Admission {
        let clock = Clock::System;
        let (received, key) = (clock.now(), self.key.as_ref());
        let Some(request) = read_request(first, self.variant, key, self.trusts_senders) else {
            return Admission::Drop;
        };
        if !self.is_stateless {
            return Admission::Open;
        }
        let wall_clock = WallClock::now(&clock);
        if is_looped_reply(first, key, wall_clock.ntp_at(received)) {
            return Admission::Drop;
        }
        let packet = ReflectorPacket {
            sequence: request.sequence,
            error_estimate: ErrorEstimate::from_error_ns(self.stated_error_ns()),
            session_id: request.session_id,
            received: wall_clock.ntp_at(received).0,
            sent: wall_clock.ntp_at(clock.now()).0,
            request,
            ttl: 0,
        };
        append_reply(reply, first, &packet, (self.variant, key), None);
        Admission::Reply
    }

    /// Senders of routers use the port of the reflectors, or one of their configuration. Replies to replies are
    /// recognised; services with low ports reply to anything.
    fn replies_to_server_port(&self, port: u16, _first: &[u8], _reply: &[u8]) -> bool {
        port == DEFAULT_PORT || port >= 1024
    }

    fn supported_settings(&self) -> &'static [ServerSetting] {
        match self.variant {
            StampVariant::Stamp => {
                &[ServerSetting::Token, ServerSetting::Stateless, ServerSetting::TrustSenders]
            }
            StampVariant::TwampLight => &[ServerSetting::Stateless, ServerSetting::TrustSenders],
            StampVariant::Twamp => &[ServerSetting::Stateless],
        }
    }
}

/// Reads a request that may get a reply: at least as long as its reply unless its sender is proved, and signed if there is a key.
/// Longer replies would allow amplification with forged senders.
fn read_request(
    bytes: &[u8],
    dialect: StampVariant,
    key: Option<&HmacKey>,
    trusts_senders: bool,
) -> Option<SenderPacket> {
    let least = match dialect {
        _ if trusts_senders && key.is_none() => MIN_REQUEST_BYTES,
        StampVariant::Stamp => base_bytes(key),
        StampVariant::TwampLight => TWAMP_REPLY_BYTES,
        StampVariant::Twamp => MIN_REQUEST_BYTES,
    };
    let request = SenderPacket::read(bytes, key).filter(|_| bytes.len() >= least)?;
    // TWAMP has padding in place of STAMP's session number.
    Some(SenderPacket {
        session_id: if dialect == StampVariant::Stamp { request.session_id } else { 0 },
        ..request
    })
}

/// A session of a sender.
struct ReflectorSession {
    id: u16,
    counts: SessionCounts,
}

/// A request whose reply is pending.
struct PendingRequest {
    request: SenderPacket,
    received_at: Time,
    /// The clock was read again after the receipt.
    has_reread_clock: bool,
}

struct StampReflector {
    variant: StampVariant,
    is_stateless: bool,
    trusts_senders: bool,
    must_tune: bool,
    key: Option<HmacKey>,
    wall_clock: WallClock,
    /// The largest error of the time of day in nanoseconds, if it is synchronised, as it was before the first request.
    stated_error_ns: Option<u64>,
    /// Largest error of the time of day, if it is synchronised, from the first request on.
    clock_error: Option<ClockError>,
    batch: Batch,
    pending: Option<PendingRequest>,
    reply: Vec<u8>,
    sessions: Vec<ReflectorSession>,
    is_finished: bool,
}

impl StampReflector {
    /// The session of that number; creates it if needed.
    fn session(&mut self, id: u16) -> &mut ReflectorSession {
        let at = self.sessions.iter().position(|session| session.id == id).unwrap_or_else(|| {
            if self.sessions.len() == MAX_SESSIONS {
                self.sessions.remove(0);
            }
            self.sessions.push(ReflectorSession { id, counts: SessionCounts::default() });
            self.sessions.len() - 1
        });
        &mut self.sessions[at]
    }

    /// Writes the reply that is sent now.
    fn write_reply(&mut self, request: SenderPacket, received: Time, now: Time) {
        let stateless = self.is_stateless;
        let counts = self.session(request.session_id).counts;
        let reply = ReflectorPacket {
            sequence: if stateless { request.sequence } else { counts.sent },
            sent: self.wall_clock.ntp_at(now).0,
            error_estimate: ErrorEstimate::from_error_ns(self.clock_error.map(|error| error.at(now))),
            session_id: request.session_id,
            received: self.wall_clock.ntp_at(received).0,
            request,
            ttl: self.batch.ip_fields().ttl.unwrap_or(0),
        };
        let bytes = self.batch.messages().next().unwrap_or_default();
        self.reply.clear();
        let counts = SessionCounts { traffic_class: self.batch.ip_fields().traffic_class, ..counts };
        let counts = Some(&counts).filter(|_| !stateless);
        append_reply(&mut self.reply, bytes, &reply, (self.variant, self.key.as_ref()), counts);
    }
}

/// Appends a reply to the request in `bytes`, as long as it.
fn append_reply(
    to: &mut Vec<u8>,
    bytes: &[u8],
    reply: &ReflectorPacket,
    (variant, key): (StampVariant, Option<&HmacKey>),
    counts: Option<&SessionCounts>,
) {
    let head = match variant {
        StampVariant::Stamp => base_bytes(key),
        StampVariant::TwampLight | StampVariant::Twamp => TWAMP_REPLY_BYTES,
    };
    to.resize(head, 0);
    reply.write(to, key);
    // The end of the padding is copied, so that request and reply have the same length.
    to.extend_from_slice(bytes.get(head..).unwrap_or_default());
    if variant == StampVariant::Stamp {
        tlv::write_reply(&mut to[head..], counts, key);
    }
}

/// Whether the message is our own reply, or another reflector's reply to it: a field of replies contains our recent time.
/// A further reply would start an endless loop.
fn is_looped_reply(message: &[u8], key: Option<&HmacKey>, now: NtpTime) -> bool {
    let is_recent = |time: u64| (0..=MAX_LOOP_AGE.as_nanos() as i64).contains(&now.since(NtpTime(time)));
    let reply = ReflectorPacket::read(message, key);
    reply.is_some_and(|reply| is_recent(reply.request.sent) || is_recent(reply.received))
}

impl Party for StampReflector {
    fn next_step(&mut self, now: Time) -> Step<'_> {
        if std::mem::take(&mut self.must_tune) {
            return Step::Tune(Tuning::default());
        }
        if let Some(PendingRequest { request, received_at: received, has_reread_clock: ref mut late }) =
            self.pending
        {
            if !std::mem::replace(late, true) {
                // The send time differs from the receive time: read the clock again.
                return Step::Sleep(now);
            }
            self.write_reply(request, received, now);
            return Step::Send { bytes: &self.reply, message: self.reply.len() };
        }
        if self.is_finished {
            return Step::Done;
        }
        Step::Receive { into: &mut self.batch, until: Time::NEVER }
    }

    fn on_sent(&mut self, _bytes: usize, at: Time) {
        let sent = self.wall_clock.ntp_at(at).0;
        let Some(PendingRequest { request, .. }) = self.pending.take() else { return };
        let counts = &mut self.session(request.session_id).counts;
        counts.last_reply = Some((counts.sent, sent));
        counts.sent = counts.sent.wrapping_add(1);
    }

    fn on_received(&mut self, now: Time) {
        let message = self.batch.messages().next().unwrap_or_default();
        let request = read_request(message, self.variant, self.key.as_ref(), self.trusts_senders);
        let Some(request) = request else { return };
        if is_looped_reply(message, self.key.as_ref(), self.wall_clock.ntp_at(now)) {
            return;
        }
        // Several sessions may come from one port.
        let is_first = self.variant == StampVariant::Twamp && request.sequence == 0;
        if let Some(stated_ns) = self.stated_error_ns.take() {
            self.clock_error = Some(ClockError { stated_ns, stated_at: now });
        }
        let counts = &mut self.session(request.session_id).counts;
        if is_first {
            *counts = SessionCounts::default();
        }
        counts.received = counts.received.wrapping_add(1);
        self.pending = Some(PendingRequest { request, received_at: now, has_reread_clock: false });
    }

    fn on_tuned(&mut self, link: &dyn Link) {
        set_hop_limit(link, MAX_HOP_LIMIT);
    }

    fn client_trust(&self) -> ClientTrust {
        match self.variant {
            _ if self.trusts_senders => ClientTrust::AddressVerified,
            StampVariant::Twamp => ClientTrust::AddressVerified,
            StampVariant::Stamp | StampVariant::TwampLight => ClientTrust::Unverified,
        }
    }

    fn on_timeout(&mut self, _now: Time) {}

    fn on_closed(&mut self, _now: Time) -> Result<(), Fault> {
        self.is_finished = true;
        Ok(())
    }
}
