//! The control connection of a client: requests with replies, and the server's reports without a request.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use super::proof::TokenProof;
use super::request_sender::{ParsedInput, RequestSender};
use super::server::VALID_MESSAGE_RATES;
use super::wire::{
    self, FrameCodec, HANDSHAKE_BYTES, Hello, ServerPlan, SessionReply, SessionRequest, SessionWireError,
};
use crate::link::time_of_day::TimeOfDay;
use crate::link::{Dialer, Fault, Framing, Link, LinkError, keep_alive, send_all};
use crate::protocol::unknown_server::{NoReply, describe_reply};
use crate::protocol::{ConnectContext, ProtocolError, Registry};
use crate::workload::{Load, MovedBytes, ServerReport};
use linkgauge_model::clock::Time;
use linkgauge_model::endpoint::Endpoint;
use linkgauge_model::plan::Pacing;
use linkgauge_model::run::SERVER_LIMIT_MESSAGES_PER_SECOND;
use linkgauge_model::units::format_number;

/// Plan that the server granted.
pub(super) struct GrantedPlan {
    /// The load of the client, within the server's limits.
    pub(super) load: Load,
    /// Effective settings for the document.
    pub(super) settings: Map<String, Value>,
    pub(super) time_of_day: Option<TimeOfDay>,
}

/// Rejects a granted rate that is invalid or higher than requested: a server may only reduce the rate.
fn check_granted_rate(endpoint: &Endpoint, per_second: f64, requested: Pacing) -> Result<(), ProtocolError> {
    let requested = requested.per_second();
    if VALID_MESSAGE_RATES.contains(&per_second) && requested.is_none_or(|requested| per_second <= requested)
    {
        return Ok(());
    }
    let requested =
        requested.map_or_else(|| "no rate was".to_owned(), |rate| format!("{} were", format_number(rate)));
    Err(ProtocolError::unexpected_reply(
        endpoint,
        format!(
            "the server grants {} messages/s where {requested} requested: use the same version of linkgauge on both hosts",
            format_number(per_second)
        ),
    ))
}

/// A server's text, made safe to print: one line of limited length, without control characters.
pub(super) fn single_line(text: &str) -> String {
    const MOST: usize = 200;
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MOST).collect()
}

/// Error of a server that returns the requests of a session: it was started since, or it ended the session because its messages
/// could not be sent.
const RESTARTED_SERVER: &str = "the server does not know this session any more: it was restarted, or its network was down for a while. Run again";

/// The server's reply to the opening of a session.
pub(super) struct OpenedSession {
    pub(super) tool: String,
    pub(super) capabilities: Vec<String>,
    pub(super) session_id: u64,
    pub(super) key: Vec<u8>,
    pub(super) environment: Map<String, Value>,
    /// Round trip of the first request.
    pub(super) round_trip: Duration,
}

/// A hello and the reply of the server.
pub(super) struct Greeting {
    hello: Hello,
    challenge: Vec<u8>,
    round_trip: Duration,
}

/// A connection on which a server has replied to a hello. Detection leaves it for the session, which saves two round trips.
pub(crate) struct GreetedConnection {
    pub(crate) link: Box<dyn Link>,
    pub(crate) hello: Hello,
    pub(crate) challenge: Vec<u8>,
    /// Time between the hello and its reply.
    pub(crate) round_trip: Duration,
}

impl GreetedConnection {
    /// The name among the connections of a run.
    pub(crate) fn cache_name(endpoint: &Endpoint) -> String {
        format!("greeted {endpoint}")
    }
}

/// The control connection.
pub(super) struct ControlConnection {
    pub(super) link: Box<dyn Link>,
    pub(super) endpoint: Endpoint,
    /// Dialer of the session. Until the session is open, an interrupt ends the waits for replies.
    pub(super) dialer: Dialer,
    /// Protocols that a server may speak instead.
    registry: &'static Registry,
    last_request: u32,
    frames: FrameCodec,
    /// Input of a stream that is not parsed yet.
    input: Vec<u8>,
    /// Messages that the server sent without a request.
    unasked: Unasked,
}

/// Messages that a server sends without a request: they have number 0.
#[derive(Default)]
struct Unasked {
    /// The last count of what the server has moved, and when it arrived.
    moved: Option<(Time, MovedBytes)>,
    /// The report, or its first part.
    report: Option<ServerReport>,
}

impl Unasked {
    /// Result of a request, if the reply with this number shows it: `None` if the request still has no reply. A number that was
    /// not used is an error.
    fn sort(
        &mut self,
        other: u32,
        reply: SessionReply,
        (number, request): (u32, &SessionRequest),
        now: Time,
    ) -> Option<Result<SessionReply, SessionWireError>> {
        let is_reply = match &reply {
            // The error reply to an unreadable request has no number.
            SessionReply::Refused { .. } => true,
            // It was sent before the request arrived.
            SessionReply::Report(_) if other == 0 => {
                matches!(request, SessionRequest::Finish | SessionRequest::Cut)
            }
            _ => other == number,
        };
        if let SessionReply::Pending { measured, .. } = reply
            && is_reply
        {
            self.moved = Some((now, measured));
        }
        match (is_reply, other) {
            (true, _) => Some(Ok(reply)),
            (false, 0) => {
                self.keep(reply, now);
                None
            }
            // A reply that was repeated, or that an unasked report has overtaken.
            (false, other) => (other > number).then_some(Err(SessionWireError::UnrelatedReply)),
        }
    }

    /// Stores the content of a message.
    fn keep(&mut self, reply: SessionReply, now: Time) {
        match reply {
            SessionReply::Alive(bytes) => self.moved = Some((now, bytes)),
            SessionReply::Report(report) => self.report = Some(report),
            _ => {}
        }
    }
}

impl ControlConnection {
    /// Continues on a connection that detection has left, or opens one. Sends a hello if there was none.
    pub(super) fn open(
        endpoint: &Endpoint,
        registry: &'static Registry,
        context: &ConnectContext,
    ) -> Result<(ControlConnection, Greeting), ProtocolError> {
        let dialer = Dialer { wait: linkgauge_model::plan::WaitMode::Block, ..context.dialer.clone() };
        let left = context.connection_cache.take(&GreetedConnection::cache_name(endpoint));
        let (link, greeting) = match left {
            Some(GreetedConnection { link, hello, challenge, round_trip }) => {
                (link, Some(Greeting { hello, challenge, round_trip }))
            }
            None => (dialer.open(endpoint)?, None),
        };
        keep_alive(link.as_ref());
        let mut control = ControlConnection {
            link,
            endpoint: endpoint.clone(),
            dialer,
            registry,
            last_request: 0,
            frames: FrameCodec::default(),
            input: Vec::new(),
            unasked: Unasked::default(),
        };
        let greeting = match greeting {
            Some(greeting) => greeting,
            None => control.greet()?,
        };
        Ok((control, greeting))
    }

    pub(super) fn link_error(&self, fault: Fault) -> ProtocolError {
        LinkError::new(&self.endpoint, fault).into()
    }

    pub(super) fn unexpected_reply(&self, reply: &SessionReply) -> ProtocolError {
        let what = match reply {
            SessionReply::Refused { reason } => format!("the server refused: {}", single_line(reason)),
            _ => "the reply does not belong to the request: the server may have another version".to_owned(),
        };
        ProtocolError::unexpected_reply(&self.endpoint, what)
    }

    /// A fault of a flow, as reported by the server.
    pub(super) fn server_fault(&self, fault: &str) -> String {
        format!("{}: the server ended it: {}", self.endpoint, single_line(fault))
    }

    fn sender(&mut self) -> RequestSender<'_> {
        RequestSender::new(self.link.as_mut(), &self.dialer, &mut self.input)
    }

    /// Sends a hello and waits for its reply.
    fn greet(&mut self) -> Result<Greeting, ProtocolError> {
        let hello = Hello::new();
        let mut sender = self.sender();
        let challenge = sender.send_until_reply(hello.bytes(), |bytes| match hello.challenge_in(bytes) {
            Some(challenge) => ParsedInput::Parsed(Some(challenge.to_vec())),
            None if bytes.len() < HANDSHAKE_BYTES => ParsedInput::Incomplete,
            None => ParsedInput::Unexpected(None),
        });
        let round_trip = sender.time_of_try();
        let reply = std::mem::take(&mut self.input);
        let silence = match challenge {
            Ok(Some(challenge)) => return Ok(Greeting { hello, challenge, round_trip }),
            Ok(None) => NoReply::Open,
            Err(Fault::Closed) => NoReply::Closed,
            Err(Fault::TimedOut) if !reply.is_empty() => NoReply::Open,
            Err(fault) => return Err(LinkError::new(&self.endpoint, fault).into()),
        };
        let what = match reply == hello.bytes() {
            true => "the server is an echo: try --protocol echo".to_owned(),
            false => describe_reply(self.registry, &self.endpoint, &reply, ("not linkgauge", silence)),
        };
        Err(ProtocolError::unexpected_reply(&self.endpoint, what))
    }

    pub(super) fn open_session(
        &mut self,
        greeting: Greeting,
        token: Option<&str>,
    ) -> Result<OpenedSession, ProtocolError> {
        let Greeting { hello, challenge, round_trip } = greeting;
        let token = token.map(|token| TokenProof { token, nonce: hello.nonce(), challenge: &challenge });
        let open = SessionRequest::Open {
            version: wire::VERSION,
            tool: linkgauge_model::run::TOOL.to_owned(),
            nonce: wire::encode_hex(hello.nonce()),
            challenge: wire::encode_hex(&challenge),
            proof: token.as_ref().map(TokenProof::proof),
        };
        match self.request(&open)? {
            SessionReply::Opened { version, .. } if version != wire::VERSION => {
                let what = format!(
                    "the server uses session version {version}, this program uses {}: use the same version of linkgauge on both hosts",
                    wire::VERSION
                );
                Err(ProtocolError::unexpected_reply(&self.endpoint, what))
            }
            SessionReply::Opened { tool, capabilities, session, key, environment, .. } => {
                let session = u64::from_str_radix(&session, 16).ok();
                let key = match (&key, token, session) {
                    (Some(key), ..) => wire::decode_hex(key),
                    // A server with the token derives the same key, which signs all further messages.
                    (None, Some(token), Some(session)) => {
                        let key = token.session_key(session);
                        self.frames = FrameCodec::signed(key);
                        Some(key.to_vec())
                    }
                    _ => None,
                };
                match session.zip(key) {
                    Some((session, key)) => {
                        // The server is there. It reports after an interrupt too, and may need a while for it.
                        self.dialer.cancel = Arc::default();
                        self.dialer.timeout = self.dialer.timeout.max(MIN_REPLY_TIMEOUT);
                        Ok(OpenedSession {
                            tool: single_line(&tool),
                            capabilities,
                            session_id: session,
                            key,
                            environment,
                            round_trip,
                        })
                    }
                    None => Err(ProtocolError::unexpected_reply(
                        &self.endpoint,
                        "the server opened a session without a key",
                    )),
                }
            }
            reply => Err(self.unexpected_reply(&reply)),
        }
    }

    /// Requests a plan. The server may reduce the rate.
    pub(super) fn request_plan(
        &mut self,
        plan: &ServerPlan,
        mut load: Load,
    ) -> Result<GrantedPlan, ProtocolError> {
        let mut settings = Map::new();
        match self.request(&SessionRequest::Plan(plan.clone()))? {
            SessionReply::Planned { per_second, busy_poll_flows, time_of_day } => {
                if let Some(per_second) = per_second {
                    check_granted_rate(&self.endpoint, per_second, load.pacing)?;
                    // The server's limit applies to the client's sending, too.
                    settings.insert(SERVER_LIMIT_MESSAGES_PER_SECOND.to_owned(), per_second.into());
                    load.pacing = Pacing::Fixed { per_second };
                }
                if let Some(count) = busy_poll_flows {
                    settings.insert("server_busy_poll_flows".to_owned(), count.into());
                }
                Ok(GrantedPlan { load, settings, time_of_day })
            }
            reply => Err(self.unexpected_reply(&reply)),
        }
    }

    /// Sends a request and waits for its reply.
    pub(super) fn request(&mut self, request: &SessionRequest) -> Result<SessionReply, ProtocolError> {
        self.last_request += 1;
        let number = self.last_request;
        let frame = self.frames.encode(number, request);
        let ControlConnection { link, dialer, input, frames, unasked, .. } = self;
        let mut used_bytes = 0;
        let mut sender = RequestSender::new(link.as_mut(), dialer, input);
        let reply = sender.send_until_reply(&frame, |bytes| {
            match frames.decode::<SessionReply>(bytes, wire::MAX_JSON_BYTES) {
                _ if bytes == frame.as_slice() => ParsedInput::Parsed(Err(SessionWireError::Echoed)),
                Ok(Some((other, reply, used))) => {
                    let parsed = match unasked.sort(other, reply, (number, request), dialer.now()) {
                        Some(parsed) => parsed,
                        None => return ParsedInput::Skip { used },
                    };
                    used_bytes = used;
                    match parsed {
                        Ok(reply) => ParsedInput::Parsed(Ok(reply)),
                        Err(error) => ParsedInput::Unexpected(Err(error)),
                    }
                }
                Ok(None) => ParsedInput::Incomplete,
                Err(error) => ParsedInput::Unexpected(Err(error)),
            }
        });
        // A message that nothing asked for may follow the reply.
        self.input.drain(..used_bytes.min(self.input.len()));
        match reply {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(SessionWireError::Echoed)) => {
                Err(ProtocolError::unexpected_reply(&self.endpoint, RESTARTED_SERVER))
            }
            Ok(Err(error)) => {
                let what = format!("the server's messages cannot be read: {error}");
                Err(ProtocolError::unexpected_reply(&self.endpoint, what))
            }
            Err(fault) => Err(self.link_error(fault)),
        }
    }

    /// Data that the server has moved by its last count, and the count's arrival time. Takes what has arrived, without waiting.
    pub(super) fn read_moved_bytes(&mut self) -> Option<(Time, MovedBytes)> {
        self.read_unasked();
        self.unasked.moved
    }

    /// The report that the server sent without a request, if it has arrived.
    pub(super) fn take_report(&mut self) -> Option<ServerReport> {
        self.read_unasked();
        self.unasked.report.take()
    }

    /// Takes what has arrived, without waiting.
    fn read_unasked(&mut self) {
        let caps = self.link.caps();
        let is_stream = caps.framing == Framing::Stream;
        let mut chunk = vec![0; caps.max_message_bytes.unwrap_or(4096)];
        loop {
            while let Ok(Some((0, reply, used))) = self.frames.decode(&self.input, wire::MAX_JSON_BYTES)
                && matches!(reply, SessionReply::Alive(_) | SessionReply::Report(_))
            {
                self.unasked.keep(reply, self.dialer.now());
                self.input.drain(..used);
            }
            if !is_stream {
                self.input.clear();
            }
            // More than that is no such message: the next request finds it.
            if self.input.len() >= MAX_EARLY_BYTES {
                return;
            }
            let Ok(length) = self.link.receive(&mut chunk, Duration::ZERO) else { return };
            self.input.extend_from_slice(&chunk[..length]);
        }
    }

    /// Sends a request without a reply.
    pub(super) fn notify(&mut self, request: &SessionRequest) -> Result<(), Fault> {
        self.last_request += 1;
        let frame = self.frames.encode(self.last_request, request);
        send_all(self.link.as_mut(), &frame, self.dialer.timeout)
    }
}

/// Maximum number of bytes that are read before a request.
const MAX_EARLY_BYTES: usize = 64 * 1024;

/// Minimum timeout for replies of a server that has opened a session.
const MIN_REPLY_TIMEOUT: Duration = Duration::from_secs(1);
