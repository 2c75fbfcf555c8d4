//! The server of the linkgauge protocol: one party for each connection, and a shared registry of sessions.
//!
//! The first bytes of a connection identify it: a control connection (hello), a flow of a session (attach), or a client
//! with another protocol, which gets an echo.

use std::sync::Arc;
use std::time::Duration;

mod alive_timer;
mod flow;
mod flow_party;
mod memory_limits;
mod message_link;
mod plan_check;
mod session;

use alive_timer::AliveTimer;
pub(super) use flow::is_connectionless;
use flow::{Attachment, ServerFlow, max_duration};
use flow_party::{FlowGrant, FlowParty};
use memory_limits::{CONNECTION_STATE_BYTES, LongRequest, MAX_REQUEST_BYTES_PER_FLOW, receive_bytes};
use message_link::{MessageLinkState, ReceiverLiveness};
pub(super) use plan_check::VALID_MESSAGE_RATES;
use plan_check::{capabilities, granted_rate};
use session::{OpenRequest, STAGE_CUT, STAGE_FINISHING, ServerSession, SessionRegistry};

use super::wire::{
    self, Attach, FlowKind, FrameCodec, HANDSHAKE_BYTES, SessionRefusal, SessionReply, SessionRequest,
    SessionWireError,
};
use crate::link::party::{ClientTrust, CostDetail, Party, PartyCost, Step, StopReason, Tuning};
use crate::link::shared_thread::Waker;
use crate::link::time_of_day::TimeOfDay;
use crate::link::{Admission, Batch, Caps, Fault, Framing, Link};
use crate::protocol::{
    MemoryBudget, MemoryRefusal, ServerConfig, ServerLimits, ServerSetting, Service, echo,
};
use crate::workload::MovedBytes;
use crate::workload::throughput::overtime;
use linkgauge_model::clock::{Clock, Time};
use linkgauge_model::run::MAX_OBSERVED_CONNECTIONS;

/// Time for which the start of a possible linkgauge message is held before it counts as another protocol.
const IDENTIFY_TIMEOUT: Duration = Duration::from_millis(200);

/// Maximum time from the first hello to the opening of a session; then the connection is closed.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) fn new_service(facts: &Arc<ServerConfig>) -> Arc<dyn Service> {
    Arc::new(LinkgaugeService { registry: Arc::new(SessionRegistry::new(facts)) })
}

struct LinkgaugeService {
    registry: Arc<SessionRegistry>,
}

impl Service for LinkgaugeService {
    fn new_party(&self, caps: &Caps, from: &str) -> Box<dyn Party> {
        Box::new(LinkgaugeConnection::new(self.registry.clone(), caps.clone(), from.to_owned()))
    }

    fn limits_sessions_itself(&self) -> bool {
        true
    }

    /// Time that receivers of the longest plan wait for data in the queue of a slow link.
    fn grace_period(&self) -> Duration {
        let limits = &self.registry.config.limits;
        overtime(Duration::from_secs(limits.duration_s), limits.flows)
    }

    fn supported_settings(&self) -> &'static [ServerSetting] {
        &[ServerSetting::Token, ServerSetting::MessageBytes, ServerSetting::Flows]
    }

    fn memory_budget(&self) -> Option<MemoryBudget> {
        Some(self.registry.memory.clone())
    }

    /// Bytes of an identified connection; flows and echoes are charged when they begin.
    fn connection_bytes(&self, caps: &Caps) -> usize {
        CONNECTION_STATE_BYTES + if caps.framing == Framing::Message { receive_bytes(caps) } else { 0 }
    }

    fn admit_sender(&self, first: &[u8], from: &str, reply: &mut Vec<u8>) -> Admission {
        let facts = &self.registry.config;
        if let Some(ready) = wire::ready_reply(first, &facts.secret, from, self.registry.uptime_s()) {
            reply.extend_from_slice(&ready);
            return Admission::Reply;
        }
        let frame = wire::decode_frame(first, wire::MAX_OPEN_JSON_BYTES);
        if let Ok(Some((_, request @ SessionRequest::Open { .. }, _))) = frame {
            let known = OpenRequest::from_request(request)
                .is_some_and(|opening| self.registry.is_own_challenge(from, &opening));
            return if known { Admission::Open } else { Admission::Drop };
        }
        if let Some(attach) = Attach::parse(first) {
            let session = self.registry.session(attach.session_id);
            let known = session.is_some_and(|session| attach.is_valid_request(first, &session.key));
            return if known { Admission::Open } else { Admission::Drop };
        }
        // Possibly the keepalive of a flow that has already ended.
        if first.starts_with(wire::ALIVE_MAGIC) {
            return Admission::Ignore;
        }
        if facts.token.is_some() {
            return Admission::Drop;
        }
        reply.extend_from_slice(first);
        Admission::Reply
    }

    /// Whether the reply is no echo: only an echo can go back and forth.
    fn replies_to_server_port(&self, _port: u16, first: &[u8], reply: &[u8]) -> bool {
        reply != first
    }
}

/// Maximum bytes of flows in one part of a report: a datagram with few fragments, or a chunk of a stream small enough
/// for a thousand clients that do not read.
const MAX_DATAGRAM_REPORT_BYTES: usize = 8 * 1024;
const MAX_STREAM_REPORT_BYTES: usize = 32 * 1024;

/// A connection of any kind.
struct LinkgaugeConnection {
    registry: Arc<SessionRegistry>,
    caps: Caps,
    client: String,
    /// Unparsed input; unsent output.
    input: Vec<u8>,
    output: Vec<u8>,
    output_sent: usize,
    batch: Batch,
    state: LinkgaugeConnectionState,
    last_activity: Option<Time>,
    /// The time of the last event.
    now: Time,
    frame_codec: FrameCodec,
    refusal_reason: Option<String>,
    /// Long request, set while its rest is awaited.
    long_request: Option<LongRequest>,
    /// The shared thread of the connection, if it has no other.
    thread: Option<Waker>,
    alive: AliveTimer,
}

enum LinkgaugeConnectionState {
    /// Connection that has not been identified yet.
    Unidentified,
    /// The control connection of a client; `None` until it has opened a session.
    Control {
        session: Option<Arc<ServerSession>>,
        /// The last request, and the reply to it if replies may be lost.
        last_reply: (u32, Vec<u8>),
    },
    /// A flow, or an echo for a client with another protocol.
    Delegated(Box<dyn Party>),
    Closed,
}

impl Drop for LinkgaugeConnection {
    fn drop(&mut self) {
        // A session lives as long as its control connection.
        self.end_session();
    }
}

impl LinkgaugeConnection {
    pub fn new(registry: Arc<SessionRegistry>, caps: Caps, from: String) -> LinkgaugeConnection {
        let batch = match caps.framing {
            // Thousands of idle sessions wait here.
            Framing::Stream => Batch::lent(4096),
            Framing::Message => Batch::new(receive_bytes(&caps), 1),
        };
        LinkgaugeConnection {
            registry,
            caps,
            client: from,
            input: Vec::new(),
            output: Vec::new(),
            output_sent: 0,
            batch,
            state: LinkgaugeConnectionState::Unidentified,
            last_activity: None,
            now: Time(0),
            frame_codec: FrameCodec::default(),
            refusal_reason: None,
            long_request: None,
            thread: None,
            alive: AliveTimer::default(),
        }
    }

    /// Sends the report as soon as the load has ended: a request for it would wait in the queue that the load has filled.
    fn report_unasked(&mut self, now: Time) {
        if let LinkgaugeConnectionState::Control { session: Some(session), .. } = &self.state
            && session.take_unasked_report()
        {
            session.load.end(now);
            self.alive.restart();
            self.output = self.frame_codec.encode(0, &self.report_part(session, 0));
        }
    }

    /// Sends a message once the control connection has been silent for long enough. It is not silent after the measurement.
    fn keep_alive(&mut self, now: Time) {
        if now >= self.alive.due(now) {
            self.alive.restart();
            let moved = match &self.state {
                LinkgaugeConnectionState::Control { session: Some(session), .. } => {
                    session.measured_bytes(now)
                }
                _ => MovedBytes::default(),
            };
            self.output = self.frame_codec.encode(0, &SessionReply::Alive(moved));
        }
    }

    fn limits(&self) -> &ServerLimits {
        &self.registry.config.limits
    }

    fn idle_timeout(&self) -> Duration {
        match &self.state {
            LinkgaugeConnectionState::Unidentified if !self.input.is_empty() => IDENTIFY_TIMEOUT,
            LinkgaugeConnectionState::Control { session: None, .. } => HANDSHAKE_TIMEOUT,
            _ => Duration::from_secs(self.limits().idle_s),
        }
    }

    fn has_no_session(&self) -> bool {
        matches!(self.state, LinkgaugeConnectionState::Control { session: None, .. })
    }

    /// Parses input while the output is empty: the server stops reading from a client that does not read.
    fn process_input(&mut self) {
        while self.output.is_empty() {
            let before = self.input.len();
            match self.state {
                LinkgaugeConnectionState::Unidentified => self.identify(),
                LinkgaugeConnectionState::Control { .. } => self.handle_control(),
                LinkgaugeConnectionState::Delegated(_) | LinkgaugeConnectionState::Closed => return,
            }
            if self.input.is_empty() || self.input.len() == before {
                return;
            }
        }
    }

    fn identify(&mut self) {
        let begins = |magic: &[u8]| {
            let common = self.input.len().min(magic.len());
            self.input[..common] == magic[..common]
        };
        if begins(wire::HELLO_MAGIC) || begins(wire::FRAME_MAGIC) {
            if self.input.len() >= wire::MAGIC_BYTES {
                self.state = LinkgaugeConnectionState::Control { session: None, last_reply: (0, Vec::new()) };
                self.handle_control();
            }
        } else if begins(wire::ATTACH_MAGIC) {
            if self.input.len() >= HANDSHAKE_BYTES {
                self.attach_flow();
            }
        } else {
            self.become_echo();
        }
    }

    /// Returns the bytes of a client with another protocol, unless this server requires a token.
    fn become_echo(&mut self) {
        if self.registry.config.token.is_some() {
            self.state = LinkgaugeConnectionState::Closed;
            return;
        }
        let Ok(memory) = self.registry.memory.charge(echo::receive_bytes(&self.caps) as u64) else {
            self.refusal_reason = Some(MemoryRefusal::Server.to_string());
            self.state = LinkgaugeConnectionState::Closed;
            return;
        };
        let idle = Duration::from_secs(self.limits().idle_s);
        let reflector =
            echo::new_reflector(&self.caps, Tuning::default(), idle).with_initial_bytes(&self.input);
        // The other party has buffers of its own.
        (self.input, self.batch) = Default::default();
        let longest = Duration::from_secs(self.limits().duration_s);
        let flow = ServerFlow::new(FlowParty::Reflect(reflector), None, longest).with_memory(memory);
        self.state = LinkgaugeConnectionState::Delegated(Box::new(flow));
    }

    fn attach_flow(&mut self) {
        let request: Vec<u8> = self.input.drain(..).take(HANDSHAKE_BYTES).collect();
        self.state = LinkgaugeConnectionState::Closed;
        let Some(attach) = Attach::parse(&request) else { return };
        let Some(session) = self.registry.session(attach.session_id) else { return };
        if !attach.is_valid_request(&request, &session.key) {
            return;
        }
        let Some((kind, plan, place)) = session.claim_flow(attach.flow_index, &self.caps) else { return };
        let limits = *self.limits();
        // If the flow is refused on this kind of connection, its slot is released.
        let Ok(per_second) = granted_rate(&plan, &limits, &self.caps) else { return };
        let is_connectionless = is_connectionless(&self.caps);
        let wants_evidence = plan.evidence && place.flow_index < MAX_OBSERVED_CONNECTIONS;
        let liveness = (is_connectionless && kind == FlowKind::Send)
            .then(|| ReceiverLiveness::new(attach.keepalive(&session.key)));
        let reply = attach.reply(&session.key).to_vec();
        self.output = reply.clone();
        self.output_sent = 0;
        let messages = (self.caps.framing == Framing::Message)
            .then(|| Box::new(MessageLinkState::new(request, reply, liveness)));
        let task = Attachment {
            slot: place,
            messages,
            counts_bytes: plan.flows.first().is_some_and(|first| !first.is_round_trip()),
            session_flows: plan.flows.len() as u32,
            is_swept: false,
            is_connectionless,
            wants_evidence,
            lead_in: plan.lead_in(),
            wants_series: kind == FlowKind::Receive && plan.series_interval().is_some(),
        };
        let grant = FlowGrant { per_second, wait: task.slot.wait };
        let role = FlowParty::new(kind, &plan, grant, &self.caps, &limits);
        let longest = max_duration(&plan, &limits);
        // As above.
        (self.input, self.batch) = Default::default();
        let mut flow = ServerFlow::new(role, Some(task), longest);
        if let Some(thread) = self.thread.take() {
            flow.on_shared(&thread);
        }
        self.state = LinkgaugeConnectionState::Delegated(Box::new(flow));
    }

    /// Replies to hellos and requests.
    fn handle_control(&mut self) {
        if self.input.starts_with(wire::HELLO_MAGIC) {
            if self.input.len() >= HANDSHAKE_BYTES {
                let hello: Vec<u8> = self.input.drain(..HANDSHAKE_BYTES).collect();
                let now_s = self.registry.uptime_s();
                if let Some(ready) =
                    wire::ready_reply(&hello, &self.registry.config.secret, &self.client, now_s)
                {
                    self.output.extend_from_slice(&ready);
                }
            }
            return;
        }
        let longest = match self.state {
            LinkgaugeConnectionState::Control { session: Some(_), .. } => {
                wire::MAX_OPEN_JSON_BYTES + MAX_REQUEST_BYTES_PER_FLOW * self.limits().flows as usize
            }
            _ => wire::MAX_OPEN_JSON_BYTES,
        };
        match self.frame_codec.decode::<SessionRequest>(&self.input, longest) {
            Ok(None) if self.input.len() > wire::MAX_OPEN_JSON_BYTES && self.long_request.is_none() => {
                self.long_request = self.registry.long_requests.begin();
                if self.long_request.is_none() {
                    self.refuse("too many long requests at once: try again later".to_owned());
                }
            }
            Ok(None) => {}
            Ok(Some((number, request, used))) => {
                self.input.drain(..used);
                self.long_request = None;
                self.handle_request(number, request);
            }
            // The reply that opened the session was lost, or the message is forged.
            Err(SessionWireError::Unsigned) if self.caps.framing == Framing::Message => {
                if let Ok(Some((number, SessionRequest::Open { .. }, _))) =
                    wire::decode_frame(&self.input, longest)
                {
                    self.repeat_reply(number);
                }
                self.input.clear();
            }
            Err(error) => self.refuse(format!("the message cannot be read: {error}")),
        }
    }

    /// Ends the connection with a reason, as the reply to no request in particular.
    fn refuse(&mut self, reason: String) {
        self.refusal_reason = Some(reason.clone());
        self.output = self.frame_codec.encode(0, &SessionReply::Refused { reason });
        self.input.clear();
        self.close_after_output();
    }

    /// Whether this request already has a reply: then the same reply is sent again, and the request is not repeated.
    fn repeat_reply(&mut self, number: u32) -> bool {
        let LinkgaugeConnectionState::Control { last_reply: (last, words), .. } = &self.state else {
            return false;
        };
        if number == *last {
            self.output.extend_from_slice(words);
        }
        number <= *last
    }

    fn close_after_output(&mut self) {
        self.end_session();
        self.state = LinkgaugeConnectionState::Closed;
    }

    fn end_session(&mut self) {
        if let LinkgaugeConnectionState::Control { session: Some(session), .. } = &self.state {
            // The report cannot be requested any more.
            session.advance_stage(STAGE_CUT);
            session.load.end(self.now);
            self.registry.sessions().remove(&session.id);
        }
    }

    fn handle_request(&mut self, number: u32, request: SessionRequest) {
        if self.repeat_reply(number) {
            return;
        }
        let frames = self.frame_codec.clone();
        let (reply, over) = match self.reply_to(request) {
            Some((reply, over)) => {
                if let SessionReply::Refused { reason } = &reply {
                    self.refusal_reason = Some(reason.clone());
                }
                (frames.encode(number, &reply), over)
            }
            None => (Vec::new(), true),
        };
        self.output.extend_from_slice(&reply);
        if let LinkgaugeConnectionState::Control { last_reply, .. } = &mut self.state {
            *last_reply = (number, if self.caps.is_reliable { Vec::new() } else { reply });
        }
        if over {
            self.close_after_output();
        }
    }

    /// The reply to a request, and whether it ends the connection. A goodbye has no reply.
    fn reply_to(&mut self, request: SessionRequest) -> Option<(SessionReply, bool)> {
        let LinkgaugeConnectionState::Control { session, .. } = &self.state else { return None };
        let Some(session) = session.clone() else { return Some(self.open_session(request)) };
        let reply = match request {
            SessionRequest::Bye => return None,
            SessionRequest::Open { .. } => {
                return Some((
                    SessionReply::Refused { reason: "this session is open already".to_owned() },
                    true,
                ));
            }
            SessionRequest::Plan(plan) => {
                let granted = granted_rate(&plan, self.limits(), &self.caps);
                let wanted = plan.busy_poll_flows();
                // A refused plan starts no measurement.
                self.alive = AliveTimer::new(plan.alive_interval());
                let stated = self.registry.config.time_of_day;
                let time_of_day =
                    plan.time_of_day.then(|| stated.or_else(|| TimeOfDay::read(&Clock::System))).flatten();
                let planned =
                    granted.and_then(|per_second| Ok((per_second, session.set_plan(plan, &self.caps)?)));
                match planned {
                    Ok((per_second, busy_poll)) => SessionReply::Planned {
                        per_second,
                        busy_poll_flows: Some(busy_poll).filter(|count| *count < wanted),
                        time_of_day,
                    },
                    Err(SessionRefusal(reason)) => SessionReply::Refused { reason },
                }
            }
            SessionRequest::Start => {
                session.start(self.now);
                SessionReply::Started
            }
            SessionRequest::Finish => self.finish_flows(&session, STAGE_FINISHING),
            SessionRequest::Cut => self.finish_flows(&session, STAGE_CUT),
            SessionRequest::Rest { from } => self.report_part(&session, from as usize),
        };
        Some((reply, false))
    }

    fn finish_flows(&mut self, session: &ServerSession, stage: u8) -> SessionReply {
        self.alive = AliveTimer::default();
        session.advance_stage(stage);
        if !session.can_report() {
            return session.pending_reply(self.now);
        }
        session.load.end(self.now);
        session.set_reported();
        self.report_part(session, 0)
    }

    fn report_part(&self, session: &ServerSession, from: usize) -> SessionReply {
        let room = if self.caps.framing == Framing::Stream {
            MAX_STREAM_REPORT_BYTES
        } else {
            MAX_DATAGRAM_REPORT_BYTES
        };
        SessionReply::Report(session.report_from(from, room))
    }

    /// The reply to a client without a session.
    fn open_session(&mut self, request: SessionRequest) -> (SessionReply, bool) {
        let refused = |reason: String| (SessionReply::Refused { reason }, true);
        let Some(opening) = OpenRequest::from_request(request) else {
            return refused("open a session first".to_owned());
        };
        let opened = match self.registry.admit(&self.client, &opening) {
            Ok(opened) => opened,
            Err(SessionRefusal(reason)) => return refused(reason),
        };
        let facts = &self.registry.config;
        let reply = SessionReply::Opened {
            version: wire::VERSION,
            tool: linkgauge_model::run::TOOL.to_owned(),
            capabilities: capabilities(),
            limits: facts.limits,
            session: format!("{:016x}", opened.id),
            key: (!opened.is_key_derived).then(|| wire::encode_hex(&opened.key)),
            environment: facts.environment.clone(),
        };
        self.frame_codec = opened.frame_codec.clone();
        if let LinkgaugeConnectionState::Control { session, .. } = &mut self.state {
            *session = Some(opened);
        }
        (reply, false)
    }
}

impl Party for LinkgaugeConnection {
    #[inline]
    fn next_step(&mut self, now: Time) -> Step<'_> {
        if self.output.is_empty() {
            self.report_unasked(now);
            self.keep_alive(now);
        }
        if self.output_sent < self.output.len() {
            return Step::Send { bytes: &self.output[self.output_sent..], message: self.output.len() };
        }
        let idle_at = *self.last_activity.get_or_insert(now) + self.idle_timeout();
        // With continuous input, no receive ever times out.
        if now >= idle_at && self.has_no_session() {
            self.close_after_output();
        }
        match &mut self.state {
            LinkgaugeConnectionState::Closed => Step::Done,
            LinkgaugeConnectionState::Delegated(party) => party.next_step(now),
            LinkgaugeConnectionState::Control { session: Some(session), .. } => {
                // This thread waits, so it reads the counters of the flows.
                session.read_when_due(now);
                let looks = session.next_reading().min(session.next_report_check(now));
                let until = idle_at.min(looks).min(self.alive.due(now));
                Step::Receive { into: &mut self.batch, until }
            }
            _ => Step::Receive { into: &mut self.batch, until: idle_at },
        }
    }

    #[inline]
    fn on_sent(&mut self, bytes: usize, at: Time) {
        if self.output_sent < self.output.len() {
            self.now = at;
            self.output_sent += bytes;
            if self.output_sent >= self.output.len() {
                (self.output, self.output_sent) = (Vec::new(), 0);
                // Requests that have arrived meanwhile.
                self.process_input();
            }
        } else if let LinkgaugeConnectionState::Delegated(party) = &mut self.state {
            party.on_sent(bytes, at);
        }
    }

    #[inline]
    fn on_received(&mut self, now: Time) {
        if let LinkgaugeConnectionState::Delegated(party) = &mut self.state {
            party.on_received(now);
            return;
        }
        self.now = now;
        self.alive.restart();
        let before = self.input.len();
        for message in self.batch.messages() {
            if self.caps.framing == Framing::Message {
                self.input.clear();
            }
            self.input.extend_from_slice(message);
        }
        self.batch.return_memory();
        let (input_bytes, had_no_session) = (self.input.len(), self.has_no_session());
        self.process_input();
        // Only complete messages and the first byte count as activity, not a trickle of bytes, and not repeated hellos.
        let is_word = before == 0 || self.input.len() < input_bytes;
        if is_word && !(had_no_session && self.has_no_session()) {
            self.last_activity = Some(now);
        }
    }

    fn client_trust(&self) -> ClientTrust {
        match &self.state {
            // It ends when it is idle and no flow of its session runs; flows have limits of their own.
            LinkgaugeConnectionState::Control { session: Some(_), .. } => ClientTrust::Exempt,
            // `admit_sender` has verified the challenge, or the key of the session.
            _ if !self.caps.can_signal_close => ClientTrust::AddressVerified,
            LinkgaugeConnectionState::Unidentified
            | LinkgaugeConnectionState::Control { session: None, .. } => ClientTrust::Unidentified,
            LinkgaugeConnectionState::Delegated(_) | LinkgaugeConnectionState::Closed => {
                ClientTrust::Unverified
            }
        }
    }

    fn on_shared(&mut self, waker: &Waker) {
        match &mut self.state {
            LinkgaugeConnectionState::Delegated(party) => party.on_shared(waker),
            _ => self.thread = Some(waker.clone()),
        }
    }

    fn on_timeout(&mut self, now: Time) {
        self.now = now;
        let idle_at = self.last_activity.map_or(now, |last| last + self.idle_timeout());
        match &mut self.state {
            LinkgaugeConnectionState::Delegated(party) => party.on_timeout(now),
            LinkgaugeConnectionState::Unidentified if !self.input.is_empty() => self.become_echo(),
            // A look at the flows, or silence that is to end.
            LinkgaugeConnectionState::Control { session: Some(_), .. } if now < idle_at => {}
            // No control messages are due while flows run; their own limits end them.
            LinkgaugeConnectionState::Control { session: Some(session), .. }
                if session.has_running_flows() =>
            {
                self.last_activity = Some(now)
            }
            _ => self.close_after_output(),
        }
    }

    fn on_send_blocked(&mut self, now: Time, unacknowledged: Option<u64>) {
        if let LinkgaugeConnectionState::Delegated(party) = &mut self.state {
            party.on_send_blocked(now, unacknowledged);
        }
    }

    fn on_closed(&mut self, now: Time) -> Result<(), Fault> {
        self.now = now;
        match &mut self.state {
            LinkgaugeConnectionState::Delegated(party) => party.on_closed(now),
            LinkgaugeConnectionState::Unidentified if !self.input.is_empty() => {
                self.become_echo();
                Ok(())
            }
            _ => {
                self.close_after_output();
                Ok(())
            }
        }
    }

    fn refusal(&self) -> Option<&str> {
        match &self.state {
            LinkgaugeConnectionState::Delegated(party) => party.refusal(),
            _ => self.refusal_reason.as_deref(),
        }
    }

    fn on_tuned(&mut self, link: &dyn Link) {
        if let LinkgaugeConnectionState::Delegated(party) = &mut self.state {
            party.on_tuned(link);
        }
    }

    fn on_stopped(&mut self, reason: StopReason) {
        if let LinkgaugeConnectionState::Delegated(party) = &mut self.state {
            party.on_stopped(reason);
        }
    }

    fn take_successor(&mut self) -> Option<Box<dyn Party>> {
        let is_delegated = matches!(self.state, LinkgaugeConnectionState::Delegated(_));
        if !is_delegated || !self.output.is_empty() {
            return None;
        }
        match std::mem::replace(&mut self.state, LinkgaugeConnectionState::Closed) {
            LinkgaugeConnectionState::Delegated(party) => Some(party),
            _ => None,
        }
    }

    fn cost_detail(&self) -> CostDetail {
        match &self.state {
            LinkgaugeConnectionState::Delegated(party) => party.cost_detail(),
            _ => CostDetail::Thread,
        }
    }

    fn on_ended(&mut self, cost: PartyCost) {
        if let LinkgaugeConnectionState::Delegated(party) = &mut self.state {
            party.on_ended(cost);
        }
    }
}
