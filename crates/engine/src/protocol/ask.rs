//! `ask`: for devices that reply to a request but do not echo. Sends the same request repeatedly; an option defines the
//! end of a reply. Sends nothing but the request.
//!
//! Neither request nor reply has a number, so only one request is in flight, and a schedule waits for the reply (the
//! response time includes that wait). After a lost request the client drains the line for the duration of another
//! timeout, or until the late reply is complete. A reply that arrives even later is taken for the reply to the next
//! request.

use std::ops::Range;

use super::case::RECONNECT;
use super::{
    CaseDraft, CaseError, ClientSession, ConnectContext, Flow, FlowsOnlySession, Protocol, ProtocolError,
    ProtocolOptions, ReadyCase, open_flows,
};
use crate::link::{Caps, Framing};
use crate::workload::latency::{Pinger, ReplyStatus, RequestReplyCodec};
use crate::workload::{FlowRole, TrafficKind};
use linkgauge_model::plan::Direction;

pub mod reply_scanner;
pub(crate) mod text;

use reply_scanner::{LengthField, MAX_REPLY_BYTES, PatternSearch, ReplyEnd, ReplyScanner, ScanResult};
use text::InvalidText;

/// The `ask` protocol.
pub(crate) const PROTOCOL: Protocol = Protocol {
    name: "ask",
    summary: "replies to a request of your choice (Modbus, SCPI, AT commands); only the request is sent",
    default_ports: &[],
    traffic: &[(TrafficKind::RoundTrips, &[Direction::Loop])],
    options: &[
        ("send", "the request: text with \\r \\n \\t \\0 \\\\ \\xHH, or hex:01 03 0A"),
        ("reply-end", "the reply ends with these bytes"),
        ("reply-bytes", "the reply always has this number of bytes"),
        ("reply-length", "the reply holds its length: offset,size,endian,add (Modbus/TCP: 4,2,big,6)"),
        ("message", "true: the next message is the reply (the default on message links)"),
        ("reply-contains", "bytes that the reply must contain, or it counts as corrupt"),
        RECONNECT,
    ],
    sizes: &[],
    is_measured_whole: false,
    shorthand: None,
    original_server: None,
    prepare_case,
    connect,
    serve: None,
};

/// Request and the end of its reply.
struct RequestSpec {
    request: Vec<u8>,
    scanner: ReplyScanner,
}

impl RequestSpec {
    fn parse(options: &ProtocolOptions, caps: &Caps) -> Result<RequestSpec, CaseError> {
        let option = |name: &str| options.get(name).map(String::as_str);
        let wrong = |what: &str| CaseError::Option(format!("protocol ask: {what}"));
        let named = |name: &'static str| move |what: InvalidText| wrong(&format!("{name} {what}"));
        let send = option("send").ok_or_else(|| wrong("no request: use --send 'AT\\r'"))?;
        let request = text::parse_bytes(send).map_err(named("send"))?;
        let mut ends = Vec::new();
        if let Some(text) = option("reply-end") {
            ends.push(ReplyEnd::Terminator(PatternSearch::parse(text).map_err(named("reply-end"))?));
        }
        if let Some(text) = option("reply-bytes") {
            let bytes = text.parse().ok().filter(|bytes| (1..=MAX_REPLY_BYTES).contains(bytes));
            let what = || {
                wrong(&format!("reply-bytes '{text}' is not a number of bytes: use 1 to {MAX_REPLY_BYTES}"))
            };
            ends.push(ReplyEnd::FixedLength(bytes.ok_or_else(what)?));
        }
        if let Some(text) = option("reply-length") {
            ends.push(ReplyEnd::LengthField(LengthField::parse(text).map_err(named("reply-length"))?));
        }
        match option("message") {
            None => {}
            Some("true") if caps.framing == Framing::Message => ends.push(ReplyEnd::Message),
            Some("true") => {
                return Err(wrong("a stream has no messages: use reply-end, reply-bytes or reply-length"));
            }
            Some(other) => return Err(wrong(&format!("message '{other}' is not true"))),
        }
        if ends.is_empty() && caps.framing == Framing::Message {
            ends.push(ReplyEnd::Message);
        }
        let [end] = <[ReplyEnd; 1]>::try_from(ends).map_err(|ends| match ends.len() {
            0 => wrong("the end of the reply is unknown: use reply-end, reply-bytes or reply-length"),
            _ => wrong(
                "the end of the reply is declared several times: use one of reply-end, reply-bytes, reply-length and message",
            ),
        })?;
        let expect = option("reply-contains")
            .map(PatternSearch::parse)
            .transpose()
            .map_err(named("reply-contains"))?;
        Ok(RequestSpec { request, scanner: ReplyScanner::new(end, expect) })
    }
}

/// Reads the options. The request is the message, so its length is the message size of the case.
fn prepare_case(case: &mut CaseDraft, caps: &Caps) -> Result<(), CaseError> {
    let length = RequestSpec::parse(&case.options, caps)?.request.len();
    let length = u32::try_from(length).map_err(|_| {
        CaseError::MessageSize(format!("protocol ask: a request of {length} bytes is too long"))
    })?;
    case.fix_message_bytes(length, |other| {
        format!("protocol ask: the size is the request's ({length} bytes), not {other}: leave it out")
    })?;
    case.read_reconnect_option(caps)
}

fn connect(case: &ReadyCase, context: &ConnectContext) -> Result<Box<dyn ClientSession>, ProtocolError> {
    let flows = open_flows(case, context, |load, port, link, flows| {
        let caps = link.caps().clone();
        let question = RequestSpec::parse(&case.options, &caps)?;
        let party = Pinger::new(
            Box::new(AskCodec::new(question)),
            load,
            &caps,
            (context.new_recorder)(FlowRole::RoundTrip, port),
        );
        flows.push(Flow { role: FlowRole::RoundTrip, endpoint_index: port, link, party: Box::new(party) });
        Ok(())
    })?;
    Ok(FlowsOnlySession::boxed(flows))
}

/// Codec that accepts any next message as the reply.
pub(crate) fn any_reply_codec(request: Vec<u8>) -> Box<dyn RequestReplyCodec> {
    Box::new(AskCodec::new(RequestSpec { request, scanner: ReplyScanner::new(ReplyEnd::Message, None) }))
}

/// Request to which the next byte belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AskState {
    /// No request: none is in flight, or the input was not a reply.
    Idle,
    /// Request in flight, with this number.
    Awaiting(u64),
    /// Expired request.
    Late(u64),
}

/// Codec of one request in flight.
struct AskCodec {
    spec: RequestSpec,
    state: AskState,
}

impl AskCodec {
    pub fn new(question: RequestSpec) -> AskCodec {
        AskCodec { spec: question, state: AskState::Idle }
    }
}

impl RequestReplyCodec for AskCodec {
    fn encode_request(&mut self, sequence: u64) -> &[u8] {
        // Called again while the link takes the request in parts.
        if self.state != AskState::Awaiting(sequence) {
            self.state = AskState::Awaiting(sequence);
            self.spec.scanner.restart();
        }
        &self.spec.request
    }

    fn parse_reply(&mut self, data: &[u8], _waiting: Range<u64>) -> ReplyStatus {
        let (AskState::Awaiting(sequence) | AskState::Late(sequence)) = self.state else {
            return ReplyStatus::Unrelated { used: data.len() };
        };
        let found = self.spec.scanner.scan(data);
        if found != ScanResult::Incomplete {
            self.state = AskState::Idle;
        }
        match found {
            ScanResult::Incomplete => ReplyStatus::Incomplete,
            ScanResult::Complete { used, is_expected: true } => {
                ReplyStatus::Complete { sequence, used, corrupt_bytes: 0 }
            }
            ScanResult::Complete { used, is_expected: false } => ReplyStatus::Unexpected { sequence, used },
            ScanResult::Malformed { used } => ReplyStatus::Malformed { used },
        }
    }

    fn abandon(&mut self, sequence: u64) {
        if self.state == AskState::Awaiting(sequence) {
            self.state = AskState::Late(sequence);
        }
    }

    fn restart(&mut self) {
        self.state = AskState::Idle;
    }

    fn has_sequence_numbers(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests;
