//! The server: accepts a connection, agrees on the parameters of its test, and lets its party run.
//!
//! It stores nothing for a setup request, whose reply is as long as it: the keys of a test are those of one of the last
//! seconds. The test has the port of the server, so messages from another address reach no test. A sender that may be forged
//! gets no load.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use super::auth::{self, TestKeys};
use super::rates::{MAX_ROW, RateTable, RowSearch};
use super::receiver::UdpstReceiver;
use super::sender::{TestSettings, UdpstSender};
use super::transmitters::SizeLimits;
use super::wire::{self, ACTIVATION_BYTES, Activation, Setup, refusal};
use super::{MAX_CONNECTIONS, MAX_SECONDS, MIN_SECONDS, STOP_MARGIN, socket_settings};
use crate::link::party::{ClientTrust, Party, Step, Tuning};
use crate::link::{Admission, Batch, Caps, Fault, Framing};
use crate::protocol::signing::token_key;
use crate::protocol::stamp::time::WallClock;
use crate::protocol::{
    CaseError, MemoryBudget, MemoryCharge, ServerConfig, ServerLimits, ServerSetting, Service,
};
use crate::workload::capacity::Side;
use linkgauge_model::clock::{Clock, Time};
use linkgauge_model::endpoint::Endpoint;
use linkgauge_model::sample::Recorder;

/// Time without a message of the client after which a test is over.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(3);

/// The table of this server. Clients must use the same one; this is the default of the original.
const TABLE: RateTable = RateTable { is_traditional: false, is_jumbo: true };

/// Reason to refuse a download.
const NEEDS_TRUST: &str =
    "the client wants data at an address that is not proved: see --token-file and --trust-senders";

pub(crate) fn new_service(config: &Arc<ServerConfig>) -> Arc<dyn Service> {
    Arc::new(UdpstService {
        port: 0,
        facts: Arc::new(UdpstServer {
            limits: config.limits,
            trusts_senders: config.trusts_senders,
            key: config.token.as_deref().map(|token| token_key(token).into_owned()),
            memory: MemoryBudget::new(config.limits.memory_bytes),
        }),
    })
}

/// State that the connections share: it stores nothing about clients.
struct UdpstServer {
    limits: ServerLimits,
    trusts_senders: bool,
    /// If set, only signed requests are accepted.
    key: Option<Vec<u8>>,
    memory: MemoryBudget,
}

impl UdpstServer {
    /// The highest row within the rate limit.
    fn max_row(&self) -> u32 {
        let megabits = self.limits.bit_rate.map_or(f64::INFINITY, |bps| bps / 1e6);
        // Above 1 Gbit/s a row is much more than 1 Mbit/s.
        if megabits > 1000.0 { MAX_ROW } else { megabits as u32 }
    }

    /// The answer to a setup request, signed if the request is.
    fn answer(&self, request: &[u8], port: u16, now: u32) -> Option<[u8; wire::SETUP_BYTES]> {
        let setup = Setup::parse(request).filter(|setup| setup.command == wire::REQUEST)?;
        let (mode, time) = (auth::mode_of(request), auth::time_of(request));
        let keys = self.key.as_deref().filter(|_| mode == auth::SIGNED_MODE);
        let keys = keys.map(|key| TestKeys::derive(key, time));
        let most_mbit = self.limits.bit_rate.map_or(f64::INFINITY, |bps| bps / 1e6);
        let is_refused = [
            (setup.version != wire::VERSION, refusal::VERSION),
            (
                setup.count == 0 || setup.count > MAX_CONNECTIONS || setup.index >= setup.count,
                refusal::CONNECTIONS,
            ),
            (setup.modifier & wire::JUMBO == 0, refusal::JUMBO),
            (setup.modifier & wire::TRADITIONAL_MTU != 0, refusal::MTU),
            (f64::from(setup.bandwidth & 0x7fff) > most_mbit, refusal::BANDWIDTH),
            (mode > auth::SIGNED_MODE, refusal::MODE),
            (mode != 0 && self.key.is_none(), refusal::NO_KEY),
            (mode == 0 && self.key.is_some(), refusal::UNSIGNED),
            (keys.is_some() && !auth::is_near(time, now), refusal::TIME),
            (keys.as_ref().is_some_and(|keys| !keys.client.has_signed(request, now)), refusal::SIGNATURE),
        ];
        let refused = is_refused.iter().find(|(is_wrong, _)| *is_wrong).map(|(_, code)| *code);
        let response = refused.unwrap_or(refusal::ACCEPTED);
        let port = if refused.is_none() { port } else { setup.port };
        let mut reply =
            Setup { version: wire::VERSION, command: wire::RESPONSE, response, port, ..setup }.encode();
        if let Some(keys) = keys.filter(|_| refused.is_none()) {
            keys.server.sign(&mut reply, now, auth::key_id_of(request));
        }
        Some(reply)
    }

    /// Parameters of an activation, and the keys of its test. `None`: it is no request, or not signed as it must be.
    fn accept(&self, request: &[u8], now: u32) -> Option<(Activation, Option<TestKeys>)> {
        let asked = Activation::parse(request)
            .filter(|asked| asked.response == refusal::NONE)
            .filter(|asked| [wire::UPSTREAM, wire::DOWNSTREAM].contains(&asked.command))?;
        let Some(key) = self.key.as_deref() else {
            return (auth::mode_of(request) == 0).then_some((asked, None));
        };
        if auth::mode_of(request) != auth::SIGNED_MODE || !auth::is_near(auth::time_of(request), now) {
            return None;
        }
        // The setup request is at most as old as its reply may be.
        let latest = auth::time_of(request);
        let keys = (0..=auth::MAX_TIME_DIFFERENCE)
            .map(|age| TestKeys::derive(key, latest.wrapping_sub(age)))
            .find(|keys| keys.client.has_signed(request, now))?;
        Some((asked, Some(keys)))
    }
}

/// Parameters within their ranges; others are replaced.
fn within_ranges(asked: Activation, limits: &ServerLimits, max_row: u32) -> Activation {
    let or = |value: u16, range: std::ops::RangeInclusive<u16>, default: u16| {
        if range.contains(&value) { value } else { default }
    };
    let (mut low, mut high) = (or(asked.low_delay, 1..=10_000, 30), or(asked.high_delay, 1..=10_000, 90));
    if low > high {
        (low, high) = (30, 90);
    }
    let longest = u16::try_from(limits.duration_s).unwrap_or(u16::MAX).clamp(1, MAX_SECONDS);
    let time = or(asked.time, MIN_SECONDS..=MAX_SECONDS, 10).min(longest);
    Activation {
        response: refusal::ACCEPTED,
        low_delay: low,
        high_delay: high,
        trial_interval: or(asked.trial_interval, 5..=250, 50),
        time,
        index: if asked.index == wire::SEARCH { asked.index } else { asked.index.min(max_row as u16) },
        is_one_way: u8::from(asked.is_one_way != 0),
        fast_step: asked.fast_step.max(1),
        slow_after: asked.slow_after.max(1),
        ignores_reordered: u8::from(asked.ignores_reordered != 0),
        modifier: asked.modifier & wire::ROW_IS_START,
        algorithm: if asked.algorithm > 1 { 0 } else { asked.algorithm },
        period: or(asked.period, 100..=10_000, 1000).min(time.saturating_mul(1000)),
        row: wire::Row::default(),
        ..asked
    }
}

/// Service of one endpoint.
struct UdpstService {
    /// Its port.
    port: u16,
    facts: Arc<UdpstServer>,
}

fn unix_seconds() -> u32 {
    let clock = Clock::System;
    seconds_at(&WallClock::now(&clock), clock.now())
}

fn seconds_at(wall_clock: &WallClock, now: Time) -> u32 {
    wall_clock.unix_ns_at(now).div_euclid(1_000_000_000) as u32
}

impl Service for UdpstService {
    fn for_endpoint(&self, endpoint: &Endpoint, _all: &[Endpoint]) -> Option<Arc<dyn Service>> {
        let port = endpoint.host_port().ok().and_then(|(_, port)| port).unwrap_or(0);
        Some(Arc::new(UdpstService { port, facts: self.facts.clone() }))
    }

    fn check_link(&self, caps: &Caps) -> Result<(), CaseError> {
        match caps.framing {
            Framing::Message => Ok(()),
            Framing::Stream => {
                Err(CaseError::Link("messages of udpst need datagrams, not a stream: use udp".to_owned()))
            }
        }
    }

    fn memory_budget(&self) -> Option<MemoryBudget> {
        Some(self.facts.memory.clone())
    }

    fn connection_bytes(&self, _caps: &Caps) -> usize {
        // The test itself is charged when it begins.
        4 * ACTIVATION_BYTES
    }

    fn new_party(&self, caps: &Caps, from: &str) -> Box<dyn Party> {
        Box::new(UdpstConnection {
            port: self.port,
            facts: self.facts.clone(),
            caps: caps.clone(),
            is_ipv6: is_ipv6(from),
            wall_clock: WallClock::now(&Clock::System),
            batch: Batch::new(ACTIVATION_BYTES, 1),
            reply: Vec::new(),
            is_reply_due: false,
            test: None,
            is_proved: false,
            refused: None,
        })
    }

    fn admit_sender(&self, first: &[u8], _from: &str, reply: &mut Vec<u8>) -> Admission {
        let now = unix_seconds();
        if let Some(answer) = self.facts.answer(first, self.port, now) {
            reply.extend(answer);
            return Admission::Reply;
        }
        match self.facts.accept(first, now) {
            Some(_) => Admission::Open,
            None => Admission::Drop,
        }
    }

    /// Clients choose their port. No server replies to a response; services of low ports may.
    fn replies_to_server_port(&self, port: u16, _first: &[u8], _reply: &[u8]) -> bool {
        port >= 1024
    }

    fn grace_period(&self) -> Duration {
        STOP_MARGIN + CLIENT_TIMEOUT
    }

    fn supported_settings(&self) -> &'static [ServerSetting] {
        &[ServerSetting::Token, ServerSetting::TrustSenders]
    }
}

fn is_ipv6(from: &str) -> bool {
    let address = from.parse::<SocketAddr>().map(|address| address.ip().to_canonical());
    matches!(address, Ok(IpAddr::V6(_)))
}

/// Party of a test.
enum Test {
    Upload(Box<UdpstReceiver>),
    Download(Box<UdpstSender>),
}

impl Test {
    fn party(&mut self) -> &mut dyn Party {
        match self {
            Test::Upload(receiver) => receiver.as_mut(),
            Test::Download(sender) => sender.as_mut(),
        }
    }

    /// Whether the client asks again: the reply to its activation was lost.
    fn is_asked_again(&self) -> bool {
        let (is_unheard, batch) = match self {
            Test::Upload(receiver) => (receiver.is_unheard(), receiver.batch()),
            Test::Download(sender) => (sender.is_unheard(), sender.batch()),
        };
        is_unheard && batch.messages().any(|message| Activation::parse(message).is_some())
    }
}

/// The server side of a link.
struct UdpstConnection {
    port: u16,
    facts: Arc<UdpstServer>,
    caps: Caps,
    is_ipv6: bool,
    wall_clock: WallClock,
    batch: Batch,
    reply: Vec<u8>,
    is_reply_due: bool,
    test: Option<(Test, MemoryCharge)>,
    /// The client has the key.
    is_proved: bool,
    refused: Option<Fault>,
}

impl UdpstConnection {
    /// Answers an activation.
    fn activate(&mut self, asked: Activation, keys: Option<TestKeys>, key_id: u8, now: Time) {
        let max_row = self.facts.max_row();
        let mut granted = within_ranges(asked, &self.facts.limits, max_row);
        self.is_proved = keys.is_some();
        let is_download = granted.command == wire::DOWNSTREAM;
        if is_download && !self.may_send_load() {
            granted.response = 2;
            self.refused = Some(Fault::Refused(NEEDS_TRUST.to_owned()));
        } else if let Err(fault) = self.begin(&granted) {
            granted.response = 2;
            self.refused = Some(fault);
        }
        if let Some((Test::Upload(_), _)) = &self.test {
            granted.row = self.search(&granted).row();
        }
        let mut reply = granted.encode();
        if let Some(keys) = keys {
            keys.server.sign(&mut reply, seconds_at(&self.wall_clock, now), key_id);
        }
        self.reply = reply.to_vec();
        self.is_reply_due = true;
    }

    fn may_send_load(&self) -> bool {
        self.is_proved || self.facts.trusts_senders
    }

    fn search(&self, granted: &Activation) -> RowSearch {
        RowSearch::new(granted, TABLE, self.facts.max_row())
    }

    /// Makes the party of a test, within the budget.
    fn begin(&mut self, granted: &Activation) -> Result<(), Fault> {
        let most = TABLE.max_payload(self.facts.max_row()).min(self.facts.limits.message_bytes).max(64);
        let is_download = granted.command == wire::DOWNSTREAM;
        let bytes = match is_download {
            true => UdpstSender::memory_bytes(most),
            false => UdpstReceiver::memory_bytes(most),
        };
        let refused = |refusal: crate::protocol::MemoryRefusal| Fault::Refused(refusal.to_string());
        let charge = self.facts.memory.charge_session(bytes).map_err(refused)?;
        let socket = socket_settings(&self.caps, granted.traffic_class);
        let settings = TestSettings {
            side: Side::Server,
            tuning: Tuning { batch_message_bytes: Some(most), socket, ..Tuning::default() },
            sizes: SizeLimits { max_payload: most, is_ipv6: self.is_ipv6 },
            time: Duration::from_secs(granted.time.into()) + STOP_MARGIN,
            timeout: CLIENT_TIMEOUT,
            trial_interval: Duration::from_millis(granted.trial_interval.into()),
            period: Duration::from_millis(granted.period.into()),
            wall_clock: self.wall_clock,
            is_balanced: !self.may_send_load(),
        };
        let (search, recorder) = (self.search(granted), Recorder::for_counting());
        let test = match is_download {
            true => {
                Test::Download(Box::new(UdpstSender::new(settings, search.row(), Some(search), recorder)))
            }
            false => Test::Upload(Box::new(UdpstReceiver::new(settings, Some(search), recorder))),
        };
        self.test = Some((test, charge));
        Ok(())
    }
}

impl Party for UdpstConnection {
    fn next_step(&mut self, now: Time) -> Step<'_> {
        if self.is_reply_due {
            return Step::Send { bytes: &self.reply, message: self.reply.len() };
        }
        if let Some(fault) = self.refused.take() {
            return Step::Fail(fault);
        }
        match &mut self.test {
            Some((test, _)) => test.party().next_step(now),
            None => Step::Receive { into: &mut self.batch, until: Time::NEVER },
        }
    }

    fn on_sent(&mut self, bytes: usize, at: Time) {
        if self.is_reply_due {
            self.is_reply_due = bytes == 0;
            return;
        }
        if let Some((test, _)) = &mut self.test {
            test.party().on_sent(bytes, at);
        }
    }

    fn on_received(&mut self, now: Time) {
        if let Some((test, _)) = &mut self.test {
            self.is_reply_due |= test.is_asked_again();
            return test.party().on_received(now);
        }
        let message = self.batch.messages().next().unwrap_or_default();
        let seconds = seconds_at(&self.wall_clock, now);
        if let Some(answer) = self.facts.answer(message, self.port, seconds) {
            (self.reply, self.is_reply_due) = (answer.to_vec(), true);
        } else if let Some((asked, keys)) = self.facts.accept(message, seconds) {
            let key_id = auth::key_id_of(message);
            self.activate(asked, keys, key_id, now);
        }
    }

    fn on_send_blocked(&mut self, now: Time, unacknowledged: Option<u64>) {
        if let Some((test, _)) = &mut self.test {
            test.party().on_send_blocked(now, unacknowledged);
        }
    }

    fn on_timeout(&mut self, now: Time) {
        if let Some((test, _)) = &mut self.test {
            test.party().on_timeout(now);
        }
    }

    fn client_trust(&self) -> ClientTrust {
        if self.may_send_load() { ClientTrust::AddressVerified } else { ClientTrust::Unverified }
    }
}
