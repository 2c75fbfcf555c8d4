//! Messages of iperf3: cookie, states, parameters, results, errors. Encoding and decoding only.
//!
//! Written from the protocol of iperf3 3.0 to 3.21 as observed on the wire; contains none of its code.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// Bytes of a cookie: 36 letters and digits, and a zero.
pub(crate) const COOKIE_BYTES: usize = 37;

/// The alphabet of base32, as iperf3 uses it.
const COOKIE_ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// Identifies a test: the first message on each of its streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cookie([u8; COOKIE_BYTES]);

impl Cookie {
    /// A cookie for a new test.
    pub fn random() -> Cookie {
        let mut cookie = [0; COOKIE_BYTES];
        cookie[..COOKIE_BYTES - 1].fill_with(|| COOKIE_ALPHABET[fastrand::usize(..COOKIE_ALPHABET.len())]);
        Cookie(cookie)
    }

    /// The cookie at the start of `bytes`, if there is one.
    pub fn parse(bytes: &[u8]) -> Option<Cookie> {
        let cookie: [u8; COOKIE_BYTES] = bytes.get(..COOKIE_BYTES)?.try_into().ok()?;
        let (zero, letters) = cookie.split_last()?;
        (*zero == 0 && Cookie::is_valid_prefix(letters)).then_some(Cookie(cookie))
    }

    /// Whether the bytes can start a cookie. Clients before 3.2 include their host name and the time.
    pub(crate) fn is_valid_prefix(bytes: &[u8]) -> bool {
        bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(byte))
    }

    /// The cookie as it is sent, with its zero.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// One byte on the control connection: the next state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum ControlState {
    /// Sent by the server: all streams are open.
    TestStart = 1,
    /// Sent by the server: payload may flow.
    TestRunning = 2,
    /// Sent by the client, in either direction of the payload.
    TestEnd = 4,
    /// Requests the parameters of the client.
    ParameterExchange = 9,
    /// Requests the streams of the test.
    CreateStreams = 10,
    /// The server ends the test early.
    ServerTerminates = 11,
    /// The client ends the test early.
    ClientTerminates = 12,
    /// Requests the results of the client, then the server sends its own.
    ExchangeResults = 13,
    /// Sent by the server after both results.
    DisplayResults = 14,
    /// Sent by the client: the test is complete.
    Done = 16,
    /// Two numbers follow: an error of iperf3 and one of the system.
    ServerError = 0xFE,
    /// Busy.
    AccessDenied = 0xFF,
}

impl ControlState {
    /// The state with this number, if there is one.
    pub(crate) fn from_byte(byte: u8) -> Option<ControlState> {
        use ControlState::*;
        let all = [
            TestStart,
            TestRunning,
            TestEnd,
            ParameterExchange,
            CreateStreams,
            ServerTerminates,
            ClientTerminates,
            ExchangeResults,
            DisplayResults,
            Done,
            ServerError,
            AccessDenied,
        ];
        all.into_iter().find(|state| *state as u8 == byte)
    }
}

/// Bytes of the two numbers after [`ControlState::ServerError`].
pub(crate) const ERROR_BYTES: usize = 8;

/// The last message of a server that ends a test.
pub(crate) fn encode_error(code: ErrorCode) -> [u8; 1 + ERROR_BYTES] {
    let mut bytes = [0; 1 + ERROR_BYTES];
    bytes[0] = ControlState::ServerError as u8;
    bytes[1..5].copy_from_slice(&(code as i32).to_be_bytes());
    bytes
}

/// Reported errors, by iperf3's numbers (3.21).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum ErrorCode {
    /// The test is longer than the server allows.
    Duration = 5,
    /// More streams than the server allows.
    Streams = 6,
    /// The block of a stream is too large.
    Block = 7,
    /// The omitted start is too long.
    Omit = 12,
    /// The server does not support the request.
    NotDone = 13,
    /// The server does not support SCTP.
    Sctp = 18,
    /// The size of a datagram is not in `DATAGRAM_BYTES`.
    Datagram = 20,
    /// Both `reverse` and `bidirectional` are set.
    Directions = 25,
    /// The rate is above the limit of the server.
    Rate = 27,
    /// The test is longer than this server allows; since 3.20, older clients print the number.
    ServerDuration = 37,
    /// The parameters are invalid.
    Parameters = 114,
    /// The results are invalid.
    Results = 117,
    /// The server cannot run on the requested CPU.
    Processor = 132,
    /// The client has no valid credentials.
    Authorisation = 142,
    /// No data moved for longer than the server waits.
    Silent = 144,
    /// The test took longer than this server allows; since 3.20.
    DurationExpired = 160,
    /// The streams did not open in time.
    StreamAccept = 204,
    /// A stream broke during the test.
    StreamRead = 206,
}

impl ErrorCode {
    /// Reason for which a server refuses a client or ends its test, for the server's own log.
    pub fn reason(self) -> &'static str {
        match self {
            ErrorCode::Duration | ErrorCode::ServerDuration => {
                "a client requested a longer test than this server allows"
            }
            ErrorCode::DurationExpired => "a test took longer than this server allows",
            ErrorCode::Streams => "a client requested more connections than this server allows",
            ErrorCode::Block | ErrorCode::Datagram => {
                "a client requested longer messages than this server allows"
            }
            ErrorCode::Rate => "a client requested a higher rate than this server allows",
            ErrorCode::Omit | ErrorCode::NotDone | ErrorCode::Sctp | ErrorCode::Directions => {
                "a client requested something that this server does not support"
            }
            ErrorCode::Parameters | ErrorCode::Results => "the messages of a client cannot be read",
            ErrorCode::Processor => "a client requested a CPU that this server does not have",
            ErrorCode::Authorisation => "a client has no token, which iperf3 cannot send",
            ErrorCode::Silent => "no data moved for longer than this server waits",
            ErrorCode::StreamAccept => "a client did not open the connections of its test in time",
            ErrorCode::StreamRead => "a connection of a test broke",
        }
    }
}

/// Explains a server's two error numbers (those of iperf3 3.21). The second may be missing: iperf3 3.12 omits it when
/// it refuses a test.
pub(crate) fn explain_error(error: &[u8]) -> String {
    let number = |bytes: &[u8; 4]| i32::from_be_bytes(*bytes);
    let Some((code, system)) = error.split_first_chunk() else {
        return "the server refused the test and closed the connection without a reason".to_owned();
    };
    let (code, system) = (number(code), system.first_chunk().map_or(0, number));
    let what = match code {
        5 => "the time is too long for it",
        6 => "too many connections: use a smaller --parallel",
        7 => "blocks too large for it: use a smaller --size",
        8 => "socket buffers too large for it",
        12 => "it cannot leave out so long a time at the beginning: use a shorter --warm-up",
        13 => "it does not support the request",
        18 => "it has no SCTP",
        20 => "datagrams of a size that it does not take",
        25 => "it cannot do both directions at once",
        27 => "more than the rate that it allows: use a --bit-rate below its limit",
        30 | 144 => "no data arrived for longer than it waits",
        37 => {
            "longer than it allows (--server-max-duration): use a shorter --time, without --volume and --count"
        }
        109 => "a connection closed unexpectedly",
        110 => "it could not read the messages of this client",
        114 => "it could not read the parameters",
        117 => "it could not read the results",
        119 => "it reports that this client ended the test",
        120 => "it was stopped",
        121 => "it is busy with another test: try again later",
        123 | 124 | 130 | 140 | 141 | 148 => "its system refused a setting of the sockets",
        132 => "it cannot run on that CPU: choose another for the server in --pin",
        134 => "it does not have that congestion control",
        142 => "it requires a user name and a password, which linkgauge does not have: use a server without",
        160 => "the test took longer than it allows (--server-max-duration): use a shorter --time",
        200..=208 => "its data connections failed",
        _ => return format!("the server reports error {code} (system error {system})"),
    };
    format!("the server refused: {what} (error {code})")
}

/// Maximum size of the parameters; the limit of iperf3.
pub const MAX_PARAMETERS_BYTES: usize = 8 * 1024;

/// Maximum results of a client, with 256 streams of about 250 bytes; and of a server, including its printed output.
pub(crate) const MAX_CLIENT_RESULTS_BYTES: usize = 1 << 17;
/// Maximum results of a server, including its printed output.
pub const MAX_RESULTS_BYTES: usize = 1 << 20;

/// JSON with a length prefix.
pub fn encode_framed(value: &Value) -> Vec<u8> {
    let text = value.to_string();
    let mut bytes = (text.len() as u32).to_be_bytes().to_vec();
    bytes.extend_from_slice(text.as_bytes());
    bytes
}

/// Error of an invalid message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Iperf3WireError {
    /// The announced length, in bytes, exceeds the limit.
    #[error("it announces {0} bytes at once")]
    TooLong(usize),
    /// The message is not a JSON object.
    #[error("it sent no JSON object")]
    NotAnObject,
    /// The field with this name is missing or is not a number.
    #[error("'{0}' is missing or not a number")]
    NotANumber(&'static str),
    /// The field with this name is below zero.
    #[error("'{0}' is negative")]
    Negative(&'static str),
    /// The results list other streams than those of the test.
    #[error("the results are not about the streams of this test")]
    StreamMismatch,
}

/// A JSON message.
pub(crate) type JsonObject = Map<String, Value>;

/// The JSON at the start of `bytes` and its length; `None` if it is incomplete.
///
/// # Errors
///
/// A length above `longest`, or JSON that is not an object.
pub fn decode_framed(bytes: &[u8], longest: usize) -> Result<Option<(JsonObject, usize)>, Iperf3WireError> {
    let Some((length, rest)) = bytes.split_first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_be_bytes(*length) as usize;
    if length > longest {
        return Err(Iperf3WireError::TooLong(length));
    }
    let Some(text) = rest.get(..length) else { return Ok(None) };
    // The parser limits the nesting depth.
    let object = serde_json::from_slice(text).map_err(|_| Iperf3WireError::NotAnObject)?;
    Ok(Some((object, 4 + length)))
}

/// iperf3 writes some numbers in unusual forms (−1 as 2⁶⁴ − 1), so all are read as floats.
fn get_number(object: &JsonObject, name: &str) -> Option<f64> {
    object.get(name)?.as_f64()
}

/// A required count. Values that an f64 cannot represent exactly are invalid.
fn get_count(object: &JsonObject, name: &'static str) -> Result<u64, Iperf3WireError> {
    if let Some(count) = object.get(name).and_then(Value::as_u64) {
        return Ok(count);
    }
    match get_number(object, name) {
        None => Err(Iperf3WireError::NotANumber(name)),
        Some(number) if number < 0.0 => Err(Iperf3WireError::Negative(name)),
        Some(number) => Ok(number as u64),
    }
}

fn get_flag(object: &JsonObject, name: &str) -> bool {
    match object.get(name) {
        Some(Value::Bool(on)) => *on,
        Some(Value::Number(number)) => number.as_f64().is_some_and(|number| number != 0.0),
        _ => false,
    }
}

/// The parameters of a test.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameters {
    /// Payload over UDP; otherwise over TCP.
    pub udp: bool,
    /// Seconds omitted at the start.
    pub(crate) omit_s: u64,
    /// Seconds of the test; 0: until this many bytes or blocks are transferred, on all streams together.
    pub(crate) time_s: u64,
    /// Payload bytes of the test; 0 without such a limit.
    pub bytes: u64,
    /// Blocks or datagrams of the test; 0 without such a limit.
    pub blocks: u64,
    /// Streams in each direction.
    pub parallel: u32,
    /// The server sends.
    pub reverse: bool,
    /// Both sides send, each on its own streams.
    pub(crate) bidirectional: bool,
    /// Bytes of a block or datagram.
    pub length: u32,
    /// Bit rate of each stream; 0: unlimited.
    pub bits_per_second: f64,
    /// Datagram numbers have 64 bits instead of 32.
    pub(crate) counters_64bit: bool,
    /// The client requests the printed output of the server.
    pub(crate) server_output: bool,
    /// The CPU for the server.
    pub server_cpu: Option<u32>,
    /// Minor version of a 3.x client; 0 if unknown.
    pub(crate) client_minor: u32,
}

/// The emulated minor version.
pub(crate) const PROTOCOL_MINOR_VERSION: u32 = 21;

/// Versions from this one on have error codes for tests that are too long.
const MIN_MINOR_WITH_DURATION_CODES: u32 = 20;

/// The transport of the payload: exactly one is true, and only that one is sent.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct TransportFlags {
    #[serde(skip_serializing_if = "is_false")]
    tcp: bool,
    #[serde(skip_serializing_if = "is_false")]
    udp: bool,
    #[serde(skip_serializing_if = "is_false")]
    sctp: bool,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

/// Maximum streams in each direction (iperf3's own limit).
pub(crate) const MAX_STREAMS: u32 = 128;

/// Maximum block of a stream, minimum and maximum datagram (iperf3's own limits).
pub(crate) const MAX_BLOCK_BYTES: u32 = 1 << 20;
/// Payload of a datagram in bytes.
pub(crate) const DATAGRAM_BYTES: std::ops::RangeInclusive<u32> = 16..=65_507;

/// A volume as it is sent on a byte stream. Receivers since 3.21 count whole blocks only.
pub(crate) fn in_whole_blocks(bytes: u64, block_bytes: u32) -> u64 {
    bytes.checked_next_multiple_of(u64::from(block_bytes.max(1))).unwrap_or(bytes)
}

/// Maximum duration of a test, and of the omitted start (iperf3's own limits), in seconds.
pub(crate) const MAX_TEST_SECONDS: u64 = 86_400;
/// Maximum omitted start in seconds (iperf3's own limit).
pub(crate) const MAX_OMIT_SECONDS: u64 = 60;

impl Parameters {
    /// Encodes the parameters for the server; booleans are sent only if true.
    pub fn to_json(&self) -> Value {
        let carrier = json!(TransportFlags { tcp: !self.udp, udp: self.udp, sctp: false });
        let mut object = carrier.as_object().cloned().unwrap_or_default();
        let mut say = |name: &str, value: Value| object.insert(name.to_owned(), value);
        say("omit", self.omit_s.into());
        if let Some(cpu) = self.server_cpu {
            say("server_affinity", cpu.into());
        }
        say("time", self.time_s.into());
        say("num", self.bytes.into());
        say("blockcount", self.blocks.into());
        say("parallel", self.parallel.into());
        for (name, on) in [("reverse", self.reverse), ("bidirectional", self.bidirectional)] {
            if on {
                say(name, true.into());
            }
        }
        say("len", self.length.into());
        if self.bits_per_second > 0.0 || self.udp {
            say("bandwidth", (self.bits_per_second.round() as u64).into());
        }
        say("pacing_timer", 1000.into());
        // Numbers, not booleans: servers since 3.18 ignore any other type.
        for (name, on) in
            [("get_server_output", self.server_output), ("udp_counters_64bit", self.counters_64bit)]
        {
            if on {
                say(name, 1.into());
            }
        }
        // The protocol's version, for servers that check it.
        say("client_version", format!("3.{}", self.client_minor).into());
        Value::Object(object)
    }

    /// Parses a client's parameters; an error is sent to the client.
    ///
    /// # Errors
    ///
    /// The code for a value that is invalid or exceeds a limit of the protocol.
    pub fn from_json(object: &JsonObject) -> Result<Parameters, ErrorCode> {
        let carrier = TransportFlags::deserialize(object).map_err(|_| ErrorCode::Parameters)?;
        if carrier.sctp {
            return Err(ErrorCode::Sctp);
        }
        let udp = carrier.udp;
        if !udp && !carrier.tcp {
            return Err(ErrorCode::NotDone);
        }
        let or = |name: &'static str, otherwise: u64, code: ErrorCode| match get_count(object, name) {
            Ok(count) => Ok(count),
            Err(Iperf3WireError::NotANumber(_)) if !object.contains_key(name) => Ok(otherwise),
            Err(_) => Err(code),
        };
        let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let parameters = Parameters {
            udp,
            omit_s: or("omit", 0, ErrorCode::Omit)?,
            time_s: or("time", 0, ErrorCode::Duration)?,
            bytes: or("num", 0, ErrorCode::Parameters)?,
            blocks: or("blockcount", 0, ErrorCode::Parameters)?,
            parallel: small(or("parallel", 1, ErrorCode::Streams)?),
            reverse: get_flag(object, "reverse"),
            bidirectional: get_flag(object, "bidirectional"),
            length: small(or("len", 0, if udp { ErrorCode::Datagram } else { ErrorCode::Block })?),
            bits_per_second: or("bandwidth", 0, ErrorCode::Parameters)? as f64,
            counters_64bit: get_flag(object, "udp_counters_64bit"),
            server_output: get_flag(object, "get_server_output"),
            // −1 means not set.
            server_cpu: get_number(object, "server_affinity").filter(|cpu| *cpu >= 0.0).map(|cpu| cpu as u32),
            client_minor: object
                .get("client_version")
                .and_then(Value::as_str)
                .and_then(parse_minor_version)
                .unwrap_or(0),
        };
        parameters.check_limits()
    }

    /// Checks the limits of the protocol.
    fn check_limits(self) -> Result<Parameters, ErrorCode> {
        match () {
            () if self.parallel == 0 || self.parallel > MAX_STREAMS => Err(ErrorCode::Streams),
            () if self.udp && !DATAGRAM_BYTES.contains(&self.length) => Err(ErrorCode::Datagram),
            () if !self.udp && !(1..=MAX_BLOCK_BYTES).contains(&self.length) => Err(ErrorCode::Block),
            () if self.reverse && self.bidirectional => Err(ErrorCode::Directions),
            () if self.time_s > MAX_TEST_SECONDS => Err(ErrorCode::Duration),
            () if self.omit_s > MAX_OMIT_SECONDS => Err(ErrorCode::Omit),
            () => Ok(self),
        }
    }

    /// This code for a test that is too long, or a code that the client supports.
    pub(crate) fn duration_code(&self, code: ErrorCode) -> ErrorCode {
        if self.client_minor >= MIN_MINOR_WITH_DURATION_CODES { code } else { ErrorCode::Duration }
    }

    /// Streams of the test, both directions together.
    pub fn stream_count(&self) -> usize {
        self.parallel as usize * if self.bidirectional { 2 } else { 1 }
    }

    /// Whether the client sends on the stream with this number; numbers follow the order of opening.
    pub(crate) fn is_upload(&self, stream: usize) -> bool {
        if self.bidirectional { stream < self.parallel as usize } else { !self.reverse }
    }
}

/// The minor version of a text like 3.19.1 or 3.21+.
fn parse_minor_version(version: &str) -> Option<u32> {
    let digits = version.split('.').nth(1)?;
    digits[..digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len())].parse().ok()
}

/// The ID of a stream in the results: 1, 3, 4, 5, … in the order of opening; iperf3 skips 2.
pub(crate) fn stream_id(stream: usize) -> u64 {
    stream as u64 + if stream == 0 { 1 } else { 2 }
}

/// Counts of one stream on one side.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StreamCounts {
    /// Payload bytes sent, or received.
    pub bytes: u64,
    /// `None` if not counted: at the receiver, or if the system does not report them.
    pub(crate) retransmits: Option<u64>,
    /// Jitter in seconds, smoothed as in RFC 3550, section 6.4.1; 0 for TCP and for senders.
    pub(crate) jitter_s: Option<f64>,
    /// Datagrams lost, and sent; a receiver derives the latter from the highest number. Both include the omitted start.
    pub lost: u64,
    /// Datagrams sent; 0 for TCP.
    pub packets: u64,
    /// Lost and sent datagrams of the omitted start; reported since 3.16.
    pub(crate) omitted: Option<(u64, u64)>,
    /// Time of the transfer in seconds.
    pub seconds: f64,
}

/// The results of one side.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TestResults {
    /// CPU time of the process in % of the time of the test.
    pub(crate) cpu_percent: f64,
    /// Whether a sender counts retransmissions; `None` for receivers.
    pub(crate) has_retransmits: Option<bool>,
    /// Congestion control of this side's sockets, if any.
    pub(crate) congestion_control: Option<String>,
    /// Counts of the streams, in the order of opening.
    pub streams: Vec<StreamCounts>,
    /// The printed output of a server, if requested.
    pub(crate) server_output: Option<String>,
}

impl TestResults {
    /// The message to the other side; a missing count of retransmits is −1.
    pub fn to_json(&self) -> Value {
        let or_minus_one = |number: Option<u64>| number.map_or(json!(-1), Value::from);
        let stream = |(number, counted): (usize, &StreamCounts)| {
            let (omitted_lost, omitted_packets) = counted.omitted.unwrap_or_default();
            json!({
                "id": stream_id(number),
                "bytes": counted.bytes,
                "retransmits": or_minus_one(counted.retransmits),
                "jitter": clamp_finite(counted.jitter_s.unwrap_or(0.0)),
                "errors": counted.lost,
                "omitted_errors": omitted_lost,
                "packets": counted.packets,
                "omitted_packets": omitted_packets,
                "start_time": 0,
                "end_time": clamp_finite(counted.seconds),
            })
        };
        let mut value = json!({
            "cpu_util_total": clamp_finite(self.cpu_percent),
            "cpu_util_user": 0.0,
            "cpu_util_system": 0.0,
            "sender_has_retransmits": or_minus_one(self.has_retransmits.map(u64::from)),
            "streams": self.streams.iter().enumerate().map(stream).collect::<Vec<Value>>(),
        });
        for (name, text) in
            [("congestion_used", &self.congestion_control), ("server_output_text", &self.server_output)]
        {
            if let Some(text) = text {
                value[name] = text.as_str().into();
            }
        }
        value
    }

    /// Parses the results of a test with this many streams.
    ///
    /// # Errors
    ///
    /// A missing or invalid number, or other streams than those of the test.
    pub fn from_json(object: &JsonObject, streams: usize) -> Result<TestResults, Iperf3WireError> {
        let entries =
            object.get("streams").and_then(Value::as_array).ok_or(Iperf3WireError::StreamMismatch)?;
        if entries.len() != streams {
            return Err(Iperf3WireError::StreamMismatch);
        }
        let mut all = vec![None; streams];
        for stream in entries {
            let stream = stream.as_object().ok_or(Iperf3WireError::NotAnObject)?;
            let id = get_count(stream, "id")?;
            let place = (0..streams)
                .find(|number| stream_id(*number) == id)
                .ok_or(Iperf3WireError::StreamMismatch)?;
            all[place] = Some(StreamCounts {
                bytes: get_count(stream, "bytes")?,
                retransmits: get_count(stream, "retransmits")
                    .ok()
                    .filter(|count| *count < u64::from(u32::MAX)),
                // A jitter below 0 is none.
                jitter_s: get_number(stream, "jitter").filter(|jitter| *jitter >= 0.0).map(clamp_finite),
                lost: get_count(stream, "errors")?,
                packets: get_count(stream, "packets")?,
                omitted: get_count(stream, "omitted_errors")
                    .ok()
                    .zip(get_count(stream, "omitted_packets").ok()),
                seconds: clamp_finite(
                    get_number(stream, "end_time").unwrap_or(0.0)
                        - get_number(stream, "start_time").unwrap_or(0.0),
                ),
            });
        }
        let cpu_percent =
            get_number(object, "cpu_util_total").ok_or(Iperf3WireError::NotANumber("cpu_util_total"))?;
        let has_retransmits = get_number(object, "sender_has_retransmits");
        let text = |name: &str| object.get(name).and_then(Value::as_str).map(str::to_owned);
        Ok(TestResults {
            cpu_percent: clamp_finite(cpu_percent),
            has_retransmits: has_retransmits.filter(|has| (0.0..=1.0).contains(has)).map(|has| has > 0.0),
            streams: all.into_iter().collect::<Option<_>>().ok_or(Iperf3WireError::StreamMismatch)?,
            congestion_control: text("congestion_used"),
            server_output: text("server_output_text"),
        })
    }
}

/// Clamps a float to 0 and the maximum of any test.
fn clamp_finite(number: f64) -> f64 {
    if number.is_finite() { number.clamp(0.0, 1e9) } else { 0.0 }
}

/// Opens a UDP stream: a number in the byte order of the machine, here of a little-endian one.
pub(crate) const UDP_HELLO: [u8; 4] = *b"9876";
/// Reply to [`UDP_HELLO`].
pub(crate) const UDP_REPLY: [u8; 4] = *b"6789";

/// Hello and reply of programs before 3.10.
const LEGACY_UDP_HELLO: u32 = 123_456_789;
const LEGACY_UDP_REPLY: u32 = 987_654_321;

/// The reply to a hello, as its sender expects it: in its byte order, and of its age. A machine of the other byte order
/// sends our reply as its hello.
pub(crate) fn udp_reply(hello: &[u8]) -> [u8; 4] {
    match hello {
        hello if hello == UDP_REPLY => UDP_HELLO,
        hello if hello == LEGACY_UDP_HELLO.to_le_bytes() => LEGACY_UDP_REPLY.to_le_bytes(),
        hello if hello == LEGACY_UDP_HELLO.to_be_bytes() => LEGACY_UDP_REPLY.to_be_bytes(),
        _ => UDP_REPLY,
    }
}

/// Whether a server replies with this to a hello, whatever its byte order and age.
pub(crate) fn is_udp_reply(message: &[u8]) -> bool {
    let legacy = LEGACY_UDP_REPLY;
    [UDP_REPLY, UDP_HELLO, legacy.to_le_bytes(), legacy.to_be_bytes()].iter().any(|reply| message == reply)
}

/// Whether this is a hello or a reply to one.
pub(crate) fn is_udp_greeting(message: &[u8]) -> bool {
    let legacy = LEGACY_UDP_HELLO;
    is_udp_reply(message) || message == legacy.to_le_bytes() || message == legacy.to_be_bytes()
}

#[cfg(test)]
mod tests;
