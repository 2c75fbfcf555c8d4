//! `ask`: a device that answers but does not echo. The same request goes out again and again; where the answer ends is
//! told by an option. Nothing but the request is ever sent.
//!
//! Neither request nor answer has a number, so there is one question at a time, and a schedule waits for the answer
//! (the response time tells for how long). After a lost exchange the line is listened to for as long as the time-out
//! again, until the late answer is whole: a later one still would be taken for the answer to the next question.

use std::ops::Range;

use super::{Flow, Near, Peer, PeerError, Plain, Session, flows};
use crate::link::{Caps, Framing};
use crate::plan::{Case, Direction};
use crate::workload::Role;
use crate::workload::latency::{Answer, Exchange, Pinger};

pub mod reply;
pub mod text;

use reply::{End, Found, LONGEST, LengthField, Reply, Search};

pub const PEER: Peer = Peer {
    name: "ask",
    summary: "answers a question (Modbus, SCPI, AT commands); nothing but the question is sent",
    default_ports: &[],
    workloads: &[("latency", &[Direction::Loop])],
    options: &[
        ("send", "the request: text with \\r \\n \\t \\0 \\\\ \\xHH, or hex:01 03 0A"),
        ("until", "the answer ends with these bytes"),
        ("reply-bytes", "the answer always has so many bytes"),
        ("reply-length", "the answer says its length: offset,size,endian,add (Modbus/TCP: 4,2,big,6)"),
        ("message", "true: the next message is the answer (the default on message links)"),
        ("expect", "bytes that must stand in the answer, or it counts as corrupt"),
    ],
    sizes: &[],
    fit,
    connect,
    serve: None,
};

/// What is asked, and how the answer is read.
struct Question {
    request: Vec<u8>,
    reply: Reply,
}

impl Question {
    fn of(case: &Case, caps: &Caps) -> Result<Question, String> {
        let option = |name: &str| case.peer_options.get(name).map(String::as_str);
        let named = |name: &'static str| move |what: String| format!("peer ask: {name} {what}");
        let send = option("send").ok_or("peer ask: say what to send (--send 'AT\\r')")?;
        let request = text::bytes(send).map_err(named("send"))?;
        let mut ends = Vec::new();
        if let Some(text) = option("until") {
            ends.push(End::Until(Search::parse(text).map_err(named("until"))?));
        }
        if let Some(text) = option("reply-bytes") {
            let bytes = text.parse().ok().filter(|bytes| (1..=LONGEST).contains(bytes));
            let wrong = || format!("'{text}' is not a number of bytes: use 1 to {LONGEST}");
            ends.push(End::Bytes(bytes.ok_or_else(wrong).map_err(named("reply-bytes"))?));
        }
        if let Some(text) = option("reply-length") {
            ends.push(End::Length(LengthField::parse(text).map_err(named("reply-length"))?));
        }
        match option("message") {
            None => {}
            Some("true") if caps.framing == Framing::Message => ends.push(End::Message),
            Some("true") => {
                return Err(
                    "peer ask: a stream has no messages; use until, reply-bytes or reply-length".to_owned()
                );
            }
            Some(other) => return Err(format!("peer ask: message '{other}' is not true")),
        }
        if ends.is_empty() && caps.framing == Framing::Message {
            ends.push(End::Message);
        }
        let [end] = <[End; 1]>::try_from(ends).map_err(|ends| match ends.len() {
            0 => "peer ask: say where the answer ends, with until, reply-bytes or reply-length".to_owned(),
            _ => "peer ask: only one of until, reply-bytes, reply-length and message tells where the answer ends".to_owned(),
        })?;
        let expect = option("expect").map(Search::parse).transpose().map_err(named("expect"))?;
        Ok(Question { request, reply: Reply::new(end, expect) })
    }
}

/// Reads the options; the request is the message, so its length is the case's.
fn fit(case: &mut Case, caps: &Caps) -> Result<(), String> {
    let length = Question::of(case, caps)?.request.len();
    let length =
        u32::try_from(length).map_err(|_| format!("peer ask: a request of {length} bytes is too long"))?;
    if case.message_bytes != 0 && case.message_bytes != length {
        let asked = case.message_bytes;
        return Err(format!(
            "peer ask: the size is the request's ({length} bytes), not {asked}: leave it out"
        ));
    }
    case.message_bytes = length;
    Ok(())
}

fn connect(case: &Case, near: &Near) -> Result<Box<dyn Session>, PeerError> {
    let flows = flows(case, near, |port, link, flows| {
        let caps = link.caps().clone();
        let question = Question::of(case, &caps).map_err(PeerError::Unfit)?;
        let party =
            Pinger::new(Box::new(Ask::new(question)), case, &caps, (near.recorder)(Role::Exchange, port));
        flows.push(Flow { role: Role::Exchange, port, link, party: Box::new(party) });
        Ok(())
    })?;
    Ok(Plain::boxed(flows))
}

/// The exchange in which whatever message comes next is the answer.
pub fn any_message(request: Vec<u8>) -> Box<dyn Exchange> {
    Box::new(Ask::new(Question { request, reply: Reply::new(End::Message, None) }))
}

/// Whom the next byte belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nobody: nothing was asked, or what came was no answer.
    Idle,
    /// The question of that number.
    Asked(u64),
    /// A question that was given up.
    Late(u64),
}

/// One question at a time.
struct Ask {
    question: Question,
    state: State,
}

impl Ask {
    fn new(question: Question) -> Ask {
        Ask { question, state: State::Idle }
    }
}

impl Exchange for Ask {
    fn request(&mut self, sequence: u64) -> &[u8] {
        // Asked for again while the link takes it in parts.
        if self.state != State::Asked(sequence) {
            self.state = State::Asked(sequence);
            self.question.reply.restart();
        }
        &self.question.request
    }

    fn answer(&mut self, data: &[u8], _waiting: Range<u64>) -> Answer {
        let (State::Asked(sequence) | State::Late(sequence)) = self.state else {
            return Answer::Stray { used: data.len() };
        };
        let found = self.question.reply.read(data);
        if found != Found::Partial {
            self.state = State::Idle;
        }
        match found {
            Found::Partial => Answer::Partial,
            Found::Whole { used, expected: true } => Answer::Whole { sequence, used, corrupt_bytes: 0 },
            Found::Whole { used, expected: false } => Answer::Wrong { sequence, used },
            Found::Broken { used } => Answer::Broken { used },
        }
    }

    fn given_up(&mut self, sequence: u64) {
        if self.state == State::Asked(sequence) {
            self.state = State::Late(sequence);
        }
    }

    fn is_numbered(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests;
