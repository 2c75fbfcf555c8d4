//! Messages of the linkgauge protocol: encoding and decoding without I/O.
//!
//! Every message starts with an eight-byte magic, which distinguishes our clients from all others:
//!
//! ```text
//! hello   "LGhello1" nonce[24]                           32 bytes
//! ready   "LGready1" challenge[16] proof[8]              32 bytes, never longer than the hello
//! attach  "LGattch1" session[8] flow[4] mac[12]          32 bytes
//! done    "LGattok1" session[8] flow[4] mac[12]          32 bytes
//! alive   "LGalive1" session[8] flow[4] mac[12]          32 bytes
//! frame   "LGframe1" length[4] number[4] JSON[length]
//! signed  "LGframe1" length[4] number[4] JSON[length - 16] mac[16]
//! ```
//!
//! Numbers are big-endian. Requests and replies are JSON. A reply has the number of its request, so that a request can be
//! repeated on a link that loses messages without being executed twice. With a token, all frames after the reply that
//! opens the session are signed. On links without connections the receiver of a flow sends `alive` a few times a second.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::proof::{CHALLENGE_BYTES, KEY_BYTES, NONCE_BYTES, compute_mac, is_valid_mac, make_challenge};
use crate::link::time_of_day::TimeOfDay;
use crate::protocol::{ServerLimits, random_bytes};
use crate::workload::{MovedBytes, ServerReport};
use linkgauge_model::plan::{MAX_IDLE_TIME, Pacing, SocketSettings, StopCondition, WaitMode};

pub use super::hex::{decode_hex, encode_hex};

/// The capability of a server whose flows can wait after the start: [`ServerPlan::lead_in_ns`].
pub(crate) const LEAD_IN_CAPABILITY: &str = "lead_in";

/// Protocol version; client and server must have the same.
pub const VERSION: u32 = 2;

/// Length of the magic at the start of every message.
pub(crate) const MAGIC_BYTES: usize = 8;
/// Start of a hello.
pub const HELLO_MAGIC: &[u8; MAGIC_BYTES] = b"LGhello1";
const READY_MAGIC: &[u8; MAGIC_BYTES] = b"LGready1";
/// Start of an attach request.
pub const ATTACH_MAGIC: &[u8; MAGIC_BYTES] = b"LGattch1";
const ATTACHED_MAGIC: &[u8; MAGIC_BYTES] = b"LGattok1";
/// Start of a keepalive.
pub(crate) const ALIVE_MAGIC: &[u8; MAGIC_BYTES] = b"LGalive1";
/// Start of a frame.
pub const FRAME_MAGIC: &[u8; MAGIC_BYTES] = b"LGframe1";

/// Length of a hello, of its reply and of an attach.
pub const HANDSHAKE_BYTES: usize = 32;
/// Bytes before the JSON of a frame.
pub const FRAME_HEADER_BYTES: usize = 16;
/// Maximum JSON of a frame; the reports of a thousand flows need about a fifth.
pub const MAX_JSON_BYTES: usize = 1 << 20;
/// Maximum JSON from a client without a session: a request to open one needs about a tenth.
pub(crate) const MAX_OPEN_JSON_BYTES: usize = 4096;

/// Bytes of the signature of a frame.
const SIGNATURE_BYTES: usize = 16;

/// The first message of a client.
#[derive(Debug, Clone)]
pub struct Hello {
    bytes: [u8; HANDSHAKE_BYTES],
}

impl Hello {
    /// A hello with a random nonce.
    #[allow(clippy::new_without_default)] // each one is different
    pub fn new() -> Hello {
        let mut bytes = [0; HANDSHAKE_BYTES];
        bytes[..MAGIC_BYTES].copy_from_slice(HELLO_MAGIC);
        bytes[MAGIC_BYTES..].copy_from_slice(&random_bytes::<NONCE_BYTES>());
        Hello { bytes }
    }

    /// The encoded message.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The client's random bytes; `NONCE_BYTES` long.
    pub fn nonce(&self) -> &[u8] {
        &self.bytes[MAGIC_BYTES..]
    }

    /// The challenge in these bytes; `None` if they are not a linkgauge server's reply to this hello.
    pub fn challenge_in<'a>(&self, reply: &'a [u8]) -> Option<&'a [u8]> {
        let body = reply.strip_prefix(READY_MAGIC).filter(|_| reply.len() == HANDSHAKE_BYTES)?;
        let (challenge, proof) = body.split_at(CHALLENGE_BYTES);
        (proof == ready_proof(self.nonce(), challenge)).then_some(challenge)
    }
}

fn ready_proof(nonce: &[u8], challenge: &[u8]) -> [u8; 8] {
    let digest = Sha256::new().chain_update(b"linkgauge ready").chain_update(nonce).chain_update(challenge);
    digest.finalize()[..8].try_into().expect("a digest has 32 bytes")
}

/// The reply to a hello, `now_s` seconds after the start of the server; `None` if it is not a hello.
pub fn ready_reply(hello: &[u8], secret: &[u8; 32], from: &str, now_s: u32) -> Option<[u8; HANDSHAKE_BYTES]> {
    let nonce = hello.strip_prefix(HELLO_MAGIC).filter(|nonce| nonce.len() == NONCE_BYTES)?;
    let challenge = make_challenge(secret, from, nonce, now_s);
    let mut reply = [0; HANDSHAKE_BYTES];
    reply[..MAGIC_BYTES].copy_from_slice(READY_MAGIC);
    reply[MAGIC_BYTES..MAGIC_BYTES + CHALLENGE_BYTES].copy_from_slice(&challenge);
    reply[MAGIC_BYTES + CHALLENGE_BYTES..].copy_from_slice(&ready_proof(nonce, &challenge));
    Some(reply)
}

/// Identifies the session and flow of a new connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attach {
    /// Number of the session, chosen by the server.
    pub session_id: u64,
    /// Index of the flow in the plan of the session.
    pub flow_index: u32,
}

impl Attach {
    /// The unsigned start of the message.
    fn header(self, magic: &[u8; MAGIC_BYTES]) -> [u8; 20] {
        let mut head = [0; 20];
        head[..8].copy_from_slice(magic);
        head[8..16].copy_from_slice(&self.session_id.to_be_bytes());
        head[16..].copy_from_slice(&self.flow_index.to_be_bytes());
        head
    }

    fn encode(self, magic: &[u8; MAGIC_BYTES], key: &[u8]) -> [u8; HANDSHAKE_BYTES] {
        let head = self.header(magic);
        let mut bytes = [0; HANDSHAKE_BYTES];
        bytes[..20].copy_from_slice(&head);
        bytes[20..].copy_from_slice(&compute_mac(key, &[&head])[..12]);
        bytes
    }

    fn matches(self, magic: &[u8; MAGIC_BYTES], key: &[u8], bytes: &[u8]) -> bool {
        let head = self.header(magic);
        bytes.strip_prefix(&head).is_some_and(|tag| tag.len() == 12 && is_valid_mac(key, &[&head], tag))
    }

    /// The message of a client that attaches a connection, signed with the key of the session.
    pub fn request(self, key: &[u8]) -> [u8; HANDSHAKE_BYTES] {
        self.encode(ATTACH_MAGIC, key)
    }

    /// The server's reply to a valid request, signed with the same key.
    pub fn reply(self, key: &[u8]) -> [u8; HANDSHAKE_BYTES] {
        self.encode(ATTACHED_MAGIC, key)
    }

    /// A keepalive of the receiver of this flow.
    pub fn keepalive(self, key: &[u8]) -> [u8; HANDSHAKE_BYTES] {
        self.encode(ALIVE_MAGIC, key)
    }

    /// Parses a request without checking its MAC, because the key depends on the session.
    pub fn parse(bytes: &[u8]) -> Option<Attach> {
        let body = bytes.strip_prefix(ATTACH_MAGIC).filter(|_| bytes.len() == HANDSHAKE_BYTES)?;
        let session = u64::from_be_bytes(body[..8].try_into().ok()?);
        let flow = u32::from_be_bytes(body[8..12].try_into().ok()?);
        Some(Attach { session_id: session, flow_index: flow })
    }

    /// Whether `bytes` are this request, signed with the key.
    pub(crate) fn is_valid_request(self, bytes: &[u8], key: &[u8]) -> bool {
        self.matches(ATTACH_MAGIC, key, bytes)
    }

    /// Whether `bytes` are the server's reply to this request, signed with the key.
    pub fn is_valid_reply(self, bytes: &[u8], key: &[u8]) -> bool {
        self.matches(ATTACHED_MAGIC, key, bytes)
    }
}

/// A request of the client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub enum SessionRequest {
    /// Opens a session. The first request of a connection.
    Open {
        /// Protocol version of the client, [`VERSION`].
        version: u32,
        /// Name and version of the client program.
        tool: String,
        /// Nonce, returned to the server, which does not store it.
        nonce: String,
        /// The server's challenge, as hexadecimal digits.
        challenge: String,
        /// Proof that the client knows the token; see [`TokenProof::proof`](super::proof::TokenProof::proof).
        #[serde(skip_serializing_if = "Option::is_none", default)]
        proof: Option<String>,
    },
    /// Sets the server's part of the case.
    Plan(ServerPlan),
    /// All connections are attached; the server may send.
    Start,
    /// The client's flows have ended: ends round trips, and requests the report.
    Finish,
    /// Acts as [`SessionRequest::Finish`], and stops flows that still receive: the report covers the data so far.
    Cut,
    /// Requests the part of the report that begins with this flow.
    Rest {
        /// Index of the first flow of that part.
        from: u32,
    },
    /// Ends the session.
    Bye,
}

/// Maximum number of flows in a report with series; with more flows, a report has no series.
pub(crate) const MAX_SERIES_FLOWS: usize = 16;
/// Shortest interval of a series.
const MIN_SERIES_INTERVAL: Duration = Duration::from_millis(1);

/// Shortest interval of [`SessionReply::Alive`].
const MIN_ALIVE_INTERVAL: Duration = Duration::from_millis(100);

/// The server's part of a case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServerPlan {
    /// The purpose of each flow; the index of a flow is its number in [`Attach`].
    pub flows: Vec<FlowKind>,
    /// Payload bytes of one message.
    pub message_bytes: u32,
    /// Pacing of the server's messages.
    pub pacing: Pacing,
    /// Condition that ends the flows that the server sends.
    pub stop: StopCondition,
    /// Messages before the measurement, which no figure includes.
    pub warm_up: StopCondition,
    /// Time without progress, in nanoseconds, after which a flow has failed.
    pub timeout_ns: u64,
    /// Way in which the server's threads wait for data.
    pub wait: WaitMode,
    /// The CPU for the server's threads; absent if the operating system chooses.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cpu: Option<u32>,
    /// Settings of the flows' sockets at the server.
    #[serde(skip_serializing_if = "SocketSettings::is_empty", default)]
    pub socket: SocketSettings,
    /// The report includes what the server's system counted.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub evidence: bool,
    /// Time from the start, in nanoseconds, in which the flows that send or receive wait, so that the client can measure the
    /// idle link. At most [`MAX_IDLE_TIME`].
    #[serde(skip_serializing_if = "is_zero", default)]
    pub lead_in_ns: u64,
    /// Length of the intervals, in nanoseconds, of which the server reports what each flow received. 0: of none.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub series_interval_ns: u64,
    /// The server reports its time of day.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub time_of_day: bool,
    /// Silence of the control connection, in nanoseconds, after which the server sends [`SessionReply::Alive`]. 0: never.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub alive_interval_ns: u64,
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

impl ServerPlan {
    /// The time that the flows of the load wait after the start.
    pub(crate) fn lead_in(&self) -> Duration {
        Duration::from_nanos(self.lead_in_ns).min(MAX_IDLE_TIME)
    }

    /// The intervals of the series that the report includes; `None` without them, and for many flows.
    pub(crate) fn series_interval(&self) -> Option<Duration> {
        let is_wanted = self.series_interval_ns > 0 && self.flows.len() <= MAX_SERIES_FLOWS;
        is_wanted
            .then(|| Duration::from_nanos(self.series_interval_ns).clamp(MIN_SERIES_INTERVAL, MAX_IDLE_TIME))
    }

    /// The longest silence of the control connection, if the client limits it.
    pub(crate) fn alive_interval(&self) -> Option<Duration> {
        let interval = Duration::from_nanos(self.alive_interval_ns).max(MIN_ALIVE_INTERVAL);
        (self.alive_interval_ns > 0).then_some(interval)
    }

    /// Whether a flow moves payload in one direction.
    pub(crate) fn has_load(&self) -> bool {
        self.flows.iter().any(|kind| !kind.is_round_trip())
    }

    /// Number of flows that are to busy-poll.
    pub(crate) fn busy_poll_flows(&self) -> u32 {
        if self.wait == WaitMode::BusyPoll { self.flows.len() as u32 } else { 0 }
    }
}

/// The purpose of a flow, for the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FlowKind {
    /// Returns received data.
    Reflect,
    /// Returns received messages, with the times at which they arrived and left.
    ReflectStamped,
    /// Returns received messages as [`FlowKind::ReflectStamped`] does, and the kernel stamps the messages.
    ReflectStaged,
    /// Receives and counts.
    Receive,
    /// Sends.
    Send,
    /// Receives blocks, and answers the probes in them.
    ProbedReceive,
    /// Sends blocks with the newest probe of the client, from its first probe on.
    ProbedSend,
    /// Receives datagrams, and reports them while a search decides their rate.
    CapacityReceive,
    /// Sends datagrams at the rate of a search.
    CapacitySend,
}

impl FlowKind {
    /// Every kind that this version supports.
    pub const ALL: [FlowKind; 9] = [
        FlowKind::Reflect,
        FlowKind::ReflectStamped,
        FlowKind::ReflectStaged,
        FlowKind::Receive,
        FlowKind::Send,
        FlowKind::ProbedReceive,
        FlowKind::ProbedSend,
        FlowKind::CapacityReceive,
        FlowKind::CapacitySend,
    ];

    /// Whether the flow carries round trips.
    pub fn is_round_trip(self) -> bool {
        matches!(self, FlowKind::Reflect | FlowKind::ReflectStamped | FlowKind::ReflectStaged)
    }

    /// Whether the server sends the load.
    pub(crate) fn is_sender(self) -> bool {
        matches!(self, FlowKind::Send | FlowKind::ProbedSend | FlowKind::CapacitySend)
    }

    /// Data that the server has moved if a flow of this kind has moved this number of bytes of the load, for this time.
    pub(crate) fn moved_bytes(self, bytes: u64, moving_ns: Option<u64>) -> MovedBytes {
        MovedBytes {
            receiving_ns: moving_ns.filter(|_| !self.is_sender() && !self.is_round_trip()),
            sent_bytes: self.is_sender().then_some(bytes),
            received_bytes: (!self.is_sender() && !self.is_round_trip()).then_some(bytes),
        }
    }

    /// Whether the server writes its times into the messages.
    pub(crate) fn has_times(self) -> bool {
        matches!(self, FlowKind::ReflectStamped | FlowKind::ReflectStaged)
    }

    /// The name of the kind in messages.
    pub fn name(self) -> &'static str {
        match self {
            FlowKind::Reflect => "reflect",
            FlowKind::ReflectStamped => "reflect_stamped",
            FlowKind::ReflectStaged => "reflect_staged",
            FlowKind::Receive => "receive",
            FlowKind::Send => "send",
            FlowKind::ProbedReceive => "probed_receive",
            FlowKind::ProbedSend => "probed_send",
            FlowKind::CapacityReceive => "capacity_receive",
            FlowKind::CapacitySend => "capacity_send",
        }
    }
}

/// A reply of the server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub enum SessionReply {
    /// The session is open.
    Opened {
        /// Protocol version of the server, [`VERSION`].
        version: u32,
        /// Name and version of the server program.
        tool: String,
        /// Names of the supported kinds of flow; a newer server may have more.
        capabilities: Vec<String>,
        /// Limits that the server enforces.
        limits: ServerLimits,
        /// Number of the session, hexadecimal because JSON numbers are not exact in this range.
        session: String,
        /// Key of the session; absent if both sides derive it from their token.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        key: Option<String>,
        /// Facts of the server's host.
        environment: Map<String, Value>,
    },
    /// The plan is accepted.
    Planned {
        /// Message rate granted to each flow, if the server limits it.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        per_second: Option<f64>,
        /// Number of flows, from the first, that busy-poll as planned, if not all may.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        busy_poll_flows: Option<u32>,
        /// The server's time of day, if the plan asks for it.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        time_of_day: Option<TimeOfDay>,
    },
    /// The server may send on all flows.
    Started,
    /// The control connection has been silent for a while, and devices on the path may not forget it. Not a reply to a request:
    /// its number is 0.
    Alive(MovedBytes),
    /// Flows have not ended; request again. Data still arrives as long as the byte count changes.
    Pending {
        /// Payload bytes moved so far, including the warm-up.
        bytes: u64,
        /// Bytes of the measurement.
        #[serde(flatten)]
        measured: MovedBytes,
    },
    /// Report with as many flows as one frame holds.
    Report(ServerReport),
    /// The request is refused.
    Refused {
        /// The reason, in one line.
        reason: String,
    },
}

/// An unsigned frame with its number.
pub fn encode_frame(number: u32, body: &impl Serialize) -> Vec<u8> {
    FrameCodec::default().encode(number, body)
}

/// Encodes and decodes the frames of a connection; signed if both sides have a key.
#[derive(Clone, Default)]
pub struct FrameCodec {
    key: Option<[u8; KEY_BYTES]>,
}

impl FrameCodec {
    /// A codec that signs each frame with this key, and refuses frames without a valid signature.
    pub fn signed(key: [u8; KEY_BYTES]) -> FrameCodec {
        FrameCodec { key: Some(key) }
    }

    /// Encodes one frame.
    pub fn encode(&self, number: u32, body: &impl Serialize) -> Vec<u8> {
        let json = serde_json::to_vec(body).expect("our own words are JSON");
        let length = json.len() + self.key.map_or(0, |_| SIGNATURE_BYTES);
        let mut bytes = Vec::with_capacity(FRAME_HEADER_BYTES + length);
        bytes.extend_from_slice(FRAME_MAGIC);
        bytes.extend_from_slice(&(length as u32).to_be_bytes());
        bytes.extend_from_slice(&number.to_be_bytes());
        bytes.extend_from_slice(&json);
        if let Some(key) = &self.key {
            let mac = compute_mac(key, &[b"frame", &bytes]);
            bytes.extend_from_slice(&mac[..SIGNATURE_BYTES]);
        }
        bytes
    }

    /// Decodes one frame at the start of `bytes`: its number, its body and its length. `None`: incomplete.
    ///
    /// # Errors
    ///
    /// A frame without the magic, above `longest` bytes, without a valid signature, or with invalid JSON.
    pub fn decode<T: for<'de> Deserialize<'de>>(
        &self,
        bytes: &[u8],
        longest: usize,
    ) -> Result<Option<(u32, T, usize)>, SessionWireError> {
        let magic = bytes.len().min(MAGIC_BYTES);
        if bytes[..magic] != FRAME_MAGIC[..magic] {
            return Err(SessionWireError::NotLinkgauge);
        }
        let Some(head) = bytes.get(MAGIC_BYTES..FRAME_HEADER_BYTES) else { return Ok(None) };
        let word = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let length = word(0) as usize;
        if length > longest {
            return Err(SessionWireError::TooLong(length));
        }
        let whole = FRAME_HEADER_BYTES + length;
        let Some(mut json) = bytes.get(FRAME_HEADER_BYTES..whole) else { return Ok(None) };
        if let Some(key) = &self.key {
            let (body, tag) = json
                .split_at_checked(length.wrapping_sub(SIGNATURE_BYTES))
                .ok_or(SessionWireError::Unsigned)?;
            if !is_valid_mac(key, &[b"frame", &bytes[..FRAME_HEADER_BYTES], body], tag) {
                return Err(SessionWireError::Unsigned);
            }
            json = body;
        }
        let body =
            serde_json::from_slice(json).map_err(|error| SessionWireError::Unreadable(error.to_string()))?;
        Ok(Some((word(4), body, whole)))
    }
}

/// Error of a refused session or plan: the server's reason, as sent to the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SessionRefusal(pub String);

/// Error of an invalid message from the remote.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SessionWireError {
    /// The message does not start with the magic of a frame.
    #[error("its message does not belong to a linkgauge session")]
    NotLinkgauge,
    /// The announced length, in bytes, exceeds the limit.
    #[error("it announces a message of {0} bytes, which is too long")]
    TooLong(usize),
    /// The number of the reply belongs to no pending request.
    #[error("its reply does not belong to the request")]
    UnrelatedReply,
    /// The signature is missing or invalid.
    #[error("its message is not signed with the token of this session")]
    Unsigned,
    /// The request came back: the server echoes, as it does where no session is open.
    #[error("it returns the request")]
    Echoed,
    /// The JSON does not match the expected type; with the parser's message.
    #[error("its content is invalid: {0}")]
    Unreadable(String),
}

/// Like [`FrameCodec::decode`], for an unsigned frame.
///
/// # Errors
///
/// Same errors as [`FrameCodec::decode`].
pub fn decode_frame<T: for<'de> Deserialize<'de>>(
    bytes: &[u8],
    longest: usize,
) -> Result<Option<(u32, T, usize)>, SessionWireError> {
    FrameCodec::default().decode(bytes, longest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_hello_gets_a_reply_of_equal_length_from_its_server_only() {
        let hello = Hello::new();
        let reply = ready_reply(hello.bytes(), &[7; 32], "10.0.0.1:4", 0).unwrap();
        assert_eq!(reply.len(), hello.bytes().len());
        assert!(hello.challenge_in(&reply).is_some());
        assert!(Hello::new().challenge_in(&reply).is_none(), "the reply to another nonce");
        assert!(hello.challenge_in(hello.bytes()).is_none(), "an echo");
        assert!(hello.challenge_in(&reply[..31]).is_none());
    }

    #[test]
    fn a_signed_frame_needs_the_key_and_is_not_changed() {
        let (ours, others) = (FrameCodec::signed([1; KEY_BYTES]), FrameCodec::signed([2; KEY_BYTES]));
        let bytes = ours.encode(7, &SessionRequest::Start);
        assert_eq!(ours.decode(&bytes, MAX_JSON_BYTES), Ok(Some((7, SessionRequest::Start, bytes.len()))));
        assert_eq!(ours.decode::<SessionRequest>(&bytes[..bytes.len() - 1], MAX_JSON_BYTES), Ok(None));
        assert_eq!(others.decode::<SessionRequest>(&bytes, MAX_JSON_BYTES), Err(SessionWireError::Unsigned));
        assert_eq!(
            ours.decode::<SessionRequest>(&encode_frame(7, &SessionRequest::Start), MAX_JSON_BYTES),
            Err(SessionWireError::Unsigned)
        );
        assert_eq!(
            ours.decode::<SessionRequest>(b"LGframe1\0\0\0\x02\0\0\0\x01{}", MAX_JSON_BYTES),
            Err(SessionWireError::Unsigned)
        );
        let mut renumbered = bytes;
        renumbered[FRAME_HEADER_BYTES - 1] += 1;
        assert_eq!(
            ours.decode::<SessionRequest>(&renumbered, MAX_JSON_BYTES),
            Err(SessionWireError::Unsigned)
        );
    }

    #[test]
    fn an_attach_needs_the_key() {
        let attach = Attach { session_id: 0x0123_4567_89ab_cdef, flow_index: 3 };
        let request = attach.request(b"key");
        assert_eq!(Attach::parse(&request), Some(attach));
        assert!(attach.is_valid_request(&request, b"key"));
        assert!(!attach.is_valid_request(&request, b"other"));
        assert!(attach.is_valid_reply(&attach.reply(b"key"), b"key"));
        assert!(!attach.is_valid_reply(&request, b"key"), "an echo is no grant");
        assert!(!attach.is_valid_request(&request[..31], b"key"));
        assert!(!attach.is_valid_request(&attach.keepalive(b"key"), b"key"));
    }

    #[test]
    fn an_excessive_length_is_rejected() {
        let mut bytes = encode_frame(1, &SessionRequest::Start);
        bytes[8..12].copy_from_slice(&u32::MAX.to_be_bytes());
        assert_eq!(
            decode_frame::<SessionRequest>(&bytes, MAX_JSON_BYTES),
            Err(SessionWireError::TooLong(u32::MAX as usize))
        );
    }

    proptest! {
        #[test]
        fn frames_are_parsed_only_when_complete(number: u32, cut in 0usize..60) {
            let bytes = encode_frame(number, &SessionRequest::Finish);
            let cut = cut.min(bytes.len() - 1);
            prop_assert_eq!(decode_frame::<SessionRequest>(&bytes[..cut], MAX_JSON_BYTES), Ok(None));
            prop_assert_eq!(decode_frame(&bytes, MAX_JSON_BYTES), Ok(Some((number, SessionRequest::Finish, bytes.len()))));
        }

        #[test]
        fn nothing_panics(bytes: Vec<u8>, text in ".{0,20}") {
            let _ = (decode_frame::<SessionRequest>(&bytes, MAX_JSON_BYTES), decode_frame::<SessionReply>(&bytes, MAX_JSON_BYTES), Attach::parse(&bytes));
            let _ = (ready_reply(&bytes, &[0; 32], &text, 0), decode_hex(&text), Hello::new().challenge_in(&bytes).is_some());
        }

        #[test]
        fn hexadecimal_comes_back(bytes: Vec<u8>) {
            prop_assert_eq!(decode_hex(&encode_hex(&bytes)), Some(bytes));
        }
    }
}
