//! The server: grants a test, and replies to each echo with its counts and times.
//!
//! The reply to an open packet holds a token, so it is longer than the request. Everything else needs that token, and a
//! reply to an echo is as long as the echo: the original sends the granted length whatever it receives.

use std::sync::Arc;
use std::time::Duration;

use super::MIN_INTERVAL;
use super::packet::{self, CLOSE, DualTime, OPEN, PacketKey, REPLY, ServerFields, TOKEN_BYTES};
use super::params::{Params, VERSION};
use super::token::{Grant, ServerFill};
use crate::link::party::{ClientTrust, Party, Step, Tuning};
use crate::link::{Admission, Batch, Caps, Fault, Framing};
use crate::protocol::signing::token_key;
use crate::protocol::stamp::time::WallClock;
use crate::protocol::{CaseError, ServerConfig, ServerLimits, ServerSetting, Service};
use linkgauge_model::clock::{Clock, Time};
use linkgauge_model::plan::SocketSettings;

/// Echoes that may arrive at once; after that one for each interval that the server allows.
const BURST_ECHOES: f64 = 5.0;

/// Time by which a test may last longer than granted.
const GRACE_PERIOD: Duration = Duration::from_secs(2);

/// The longest interval that is granted, so that no connection is idle for too long.
const MAX_INTERVAL: Duration = Duration::from_secs(15);

/// The reply to an open packet is at most this much longer: by the token, and by an interval that needs more digits.
const MAX_REPLY_GROWTH_BYTES: usize = TOKEN_BYTES + 3;

/// Longest packet that gets a reply: the maximum of the link.
const MAX_PACKET_BYTES: usize = 65_536;

pub(crate) fn new_service(config: &Arc<ServerConfig>) -> Arc<dyn Service> {
    Arc::new(IrttService(Arc::new(Granter {
        limits: config.limits,
        key: config.token.as_deref().map(|token| PacketKey::new(&token_key(token))),
        secret: config.secret,
    })))
}

/// State that the connections share: it stores nothing about clients.
struct Granter {
    limits: ServerLimits,
    /// If set, only packets signed with this key get a reply.
    key: Option<PacketKey>,
    secret: [u8; 32],
}

/// A packet of a client.
enum ClientPacket {
    /// Requests a test, or only the limits of the server.
    Open {
        params: Params,
        is_probe: bool,
    },
    Close {
        token: u64,
    },
    Echo {
        token: u64,
        number: u32,
    },
}

impl Granter {
    fn read(&self, packet: &[u8]) -> Option<ClientPacket> {
        let (flags, body) = packet::read_packet(packet, self.key.as_ref())?;
        if flags & REPLY != 0 {
            return None;
        }
        if flags & OPEN != 0 {
            let params = Params::read(body)?;
            return Some(ClientPacket::Open { params, is_probe: flags & CLOSE != 0 });
        }
        let (token, rest) = packet::split_token(body)?;
        if flags & CLOSE != 0 {
            return Some(ClientPacket::Close { token });
        }
        let (number, _) = packet::split_number(rest)?;
        Some(ClientPacket::Echo { token, number })
    }

    /// The parameters within the limits of this server.
    fn limited(&self, requested: &Params, from: &str) -> Params {
        let within = |ns: i64, least: Duration, most: Duration| {
            let most = i64::try_from(most.as_nanos()).unwrap_or(i64::MAX);
            ns.clamp(least.as_nanos() as i64, most)
        };
        // The traffic class belongs to IP.
        let is_ip = from.parse::<std::net::SocketAddr>().is_ok();
        Params {
            version: VERSION,
            duration_ns: within(
                requested.duration_ns,
                Duration::ZERO,
                Duration::from_secs(self.limits.duration_s),
            ),
            interval_ns: within(requested.interval_ns, MIN_INTERVAL, MAX_INTERVAL),
            length: requested.length.min(self.limits.message_bytes),
            traffic_class: if is_ip { requested.traffic_class } else { 0 },
            fill: match ServerFill::of_text(&requested.fill) {
                ServerFill::Pattern => Vec::new(),
                _ => requested.fill.clone(),
            },
            ..requested.clone()
        }
    }

    /// Writes the reply to an open packet.
    fn write_grant(&self, requested: &Params, is_probe: bool, from: &str, now: Time, reply: &mut Vec<u8>) {
        let params = self.limited(requested, from);
        let grant = Grant {
            layout: params.layout,
            fill: ServerFill::of_text(&params.fill),
            traffic_class: params.traffic_class,
            duration: params.duration(),
        };
        let (flags, token) = match is_probe {
            true => (OPEN | REPLY | CLOSE, 0),
            false => (OPEN | REPLY, grant.token(&self.secret, from, now)),
        };
        let parts: [&[u8]; 2] = [&token.to_le_bytes(), &params.to_bytes()];
        reply.clear();
        reply.extend(packet::packet_of(flags, &parts, self.key.as_ref()));
    }

    fn grant_of(&self, token: u64, from: &str, now: Time) -> Option<Grant> {
        Grant::of_token(token, &self.secret, from, now)
    }
}

struct IrttService(Arc<Granter>);

impl Service for IrttService {
    fn check_link(&self, caps: &Caps) -> Result<(), CaseError> {
        match caps.framing {
            Framing::Message => Ok(()),
            Framing::Stream => {
                Err(CaseError::Link("packets of irtt need messages, not a stream: use udp".to_owned()))
            }
        }
    }

    fn new_party(&self, caps: &Caps, from: &str) -> Box<dyn Party> {
        let most = caps.max_message_bytes.unwrap_or(MAX_PACKET_BYTES).min(MAX_PACKET_BYTES);
        Box::new(IrttConnection {
            granter: self.0.clone(),
            from: from.to_owned(),
            wall_clock: WallClock::now(&Clock::System),
            batch: Batch::new(most, 1),
            test: None,
            must_tune: None,
            output: Output::Nothing,
            reply: Vec::with_capacity(most),
            is_finished: false,
        })
    }

    fn admit_sender(&self, first: &[u8], from: &str, reply: &mut Vec<u8>) -> Admission {
        let now = Clock::System.now();
        let is_granted = |token| self.0.grant_of(token, from, now).is_some();
        match self.0.read(first) {
            Some(ClientPacket::Open { params, is_probe }) => {
                self.0.write_grant(&params, is_probe, from, now, reply);
                Admission::Reply
            }
            Some(ClientPacket::Echo { token, .. }) if is_granted(token) => Admission::Open,
            Some(ClientPacket::Close { token }) if is_granted(token) => Admission::Ignore,
            _ => Admission::Drop,
        }
    }

    fn max_reply_growth_bytes(&self) -> usize {
        MAX_REPLY_GROWTH_BYTES
    }

    /// A client chooses its port (`--local`). No server replies to a reply, which has the flag of replies.
    fn replies_to_server_port(&self, _port: u16, _first: &[u8], _reply: &[u8]) -> bool {
        true
    }

    fn grace_period(&self) -> Duration {
        2 * GRACE_PERIOD
    }

    fn supported_settings(&self) -> &'static [ServerSetting] {
        &[ServerSetting::Token]
    }
}

/// Requests that have arrived.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Receipts {
    count: u32,
    newest: Option<u32>,
    /// Bit 0 is the newest.
    window: u64,
}

impl Receipts {
    /// Notes a request. Returns its count and window; the window of a late request is 0.
    pub(crate) fn note(&mut self, number: u32) -> (u32, u64) {
        self.count = self.count.wrapping_add(1);
        let newest = *self.newest.get_or_insert(number);
        let window = match number.checked_sub(newest) {
            Some(distance) => {
                self.newest = Some(number);
                self.window = self.window.checked_shl(distance).unwrap_or(0) | 1;
                self.window
            }
            None => {
                self.window |= 1_u64.checked_shl(newest - number).unwrap_or(0);
                0
            }
        };
        (self.count, window)
    }
}

/// The test of a client.
struct ServedTest {
    token: u64,
    grant: Grant,
    receipts: Receipts,
    began_at: Time,
    /// Echoes that may arrive now, and when that was counted.
    allowance: f64,
    counted_at: Time,
}

impl ServedTest {
    fn new(token: u64, grant: Grant, now: Time) -> ServedTest {
        let receipts = Receipts::default();
        ServedTest { token, grant, receipts, began_at: now, allowance: BURST_ECHOES, counted_at: now }
    }

    /// Whether an echo is within the rate.
    fn take_allowance(&mut self, now: Time) -> bool {
        let elapsed = now.since(self.counted_at).as_secs_f64() / MIN_INTERVAL.as_secs_f64();
        self.counted_at = now;
        self.allowance = (self.allowance + elapsed).min(BURST_ECHOES);
        let is_within = self.allowance >= 1.0;
        self.allowance -= if is_within { 1.0 } else { 0.0 };
        is_within
    }
}

/// The next output.
enum Output {
    Nothing,
    /// The reply to an open packet is written.
    Grant,
    /// The reply to an echo is written when the clock has been read again.
    Echo {
        fields: ServerFields,
        number: u32,
        has_reread_clock: bool,
        is_last: bool,
    },
}

/// The server side of a link.
struct IrttConnection {
    granter: Arc<Granter>,
    from: String,
    wall_clock: WallClock,
    batch: Batch,
    test: Option<ServedTest>,
    /// The traffic class to set.
    must_tune: Option<u8>,
    output: Output,
    reply: Vec<u8>,
    is_finished: bool,
}

impl IrttConnection {
    fn stamp(&self, at: Time) -> DualTime {
        DualTime { wall: self.wall_clock.unix_ns_at(at) as i64, monotonic: at.0 as i64 }
    }

    /// Handles an echo: the first one with a token begins its test.
    fn accept_echo(&mut self, token: u64, number: u32, length: usize, now: Time) -> Option<Output> {
        if self.test.as_ref().is_none_or(|test| test.token != token) {
            let grant = self.granter.grant_of(token, &self.from, now)?;
            self.must_tune = Some(grant.traffic_class).filter(|class| *class != 0);
            self.test = Some(ServedTest::new(token, grant, now));
        }
        let received = self.stamp(now);
        let test = self.test.as_mut()?;
        let is_whole = length >= test.grant.layout.min_packet_bytes(self.granter.key.as_ref());
        if !is_whole || !test.take_allowance(now) {
            return None;
        }
        let (count, window) = test.receipts.note(number);
        let fields = ServerFields { count, window, received, sent: received };
        let is_last = now.since(test.began_at) > test.grant.duration + GRACE_PERIOD;
        Some(Output::Echo { fields, number, has_reread_clock: false, is_last })
    }

    /// Writes the reply to the echo in the batch, as long as it.
    fn write_reply(&mut self, fields: &ServerFields, number: u32, is_last: bool) {
        let Some(ServedTest { token, grant, .. }) = &self.test else { return };
        let key = self.granter.key.as_ref();
        let request = self.batch.messages().next().unwrap_or_default();
        self.reply.clear();
        self.reply.resize(packet::prefix_bytes(key), 0);
        self.reply.extend(token.to_le_bytes());
        self.reply.extend(number.to_le_bytes());
        grant.layout.write(fields, &mut self.reply);
        let data = request.get(self.reply.len()..).unwrap_or_default();
        match grant.fill {
            ServerFill::Echo => self.reply.extend_from_slice(data),
            ServerFill::Pattern => self.reply.extend(b"irtt".iter().cycle().take(data.len())),
            ServerFill::Random => {
                let start = self.reply.len();
                self.reply.resize(request.len(), 0);
                fastrand::fill(&mut self.reply[start..]);
            }
        }
        packet::seal(&mut self.reply, if is_last { REPLY | CLOSE } else { REPLY }, key);
    }
}

impl Party for IrttConnection {
    fn next_step(&mut self, now: Time) -> Step<'_> {
        if let Some(class) = self.must_tune.take() {
            let socket = SocketSettings { traffic_class: Some(class), ..SocketSettings::default() };
            return Step::Tune(Tuning { socket, ..Tuning::default() });
        }
        match self.output {
            Output::Nothing if self.is_finished => return Step::Done,
            Output::Nothing => return Step::Receive { into: &mut self.batch, until: Time::NEVER },
            Output::Grant => {}
            Output::Echo { has_reread_clock: ref mut has_reread @ false, .. } => {
                // The send time differs from the receive time: read the clock again.
                *has_reread = true;
                return Step::Sleep(now);
            }
            Output::Echo { fields, number, is_last, .. } => {
                let fields = ServerFields { sent: self.stamp(now), ..fields };
                self.write_reply(&fields, number, is_last);
            }
        }
        Step::Send { bytes: &self.reply, message: self.reply.len() }
    }

    fn on_sent(&mut self, _bytes: usize, _at: Time) {
        let output = std::mem::replace(&mut self.output, Output::Nothing);
        self.is_finished |= matches!(output, Output::Echo { is_last: true, .. });
    }

    fn on_received(&mut self, now: Time) {
        let packet = self.batch.messages().next().unwrap_or_default();
        let length = packet.len();
        self.output = match self.granter.read(packet) {
            Some(ClientPacket::Open { params, is_probe }) => {
                self.granter.write_grant(&params, is_probe, &self.from, now, &mut self.reply);
                Output::Grant
            }
            Some(ClientPacket::Echo { token, number }) => {
                self.accept_echo(token, number, length, now).unwrap_or(Output::Nothing)
            }
            Some(ClientPacket::Close { token }) => {
                self.is_finished = self.test.as_ref().is_some_and(|test| test.token == token);
                Output::Nothing
            }
            None => Output::Nothing,
        };
    }

    fn on_timeout(&mut self, _now: Time) {}

    fn on_closed(&mut self, _now: Time) -> Result<(), Fault> {
        self.is_finished = true;
        Ok(())
    }

    /// Trust in the client, which has sent a token that went to its address.
    fn client_trust(&self) -> ClientTrust {
        ClientTrust::AddressVerified
    }
}
