//! `sockperf`: messages as Mellanox's sockperf sends them. Its server is an echo that changes a flag, so a plain echo
//! will not do at either end.
//!
//! A header of 14 bytes in network order: number (from 1), flags, length of the message. On streams messages lie end to
//! end. Not for sockperf's multicast, nor for its under-load and throughput modes, which our far end takes in silence.

use std::ops::Range;
use std::sync::Arc;

use super::{Flow, Near, Peer, PeerError, Plain, Service, Session, flows};
use crate::clock::Time;
use crate::link::party::{Party, Step};
use crate::link::{Admission, Batch, Caps, Fault, Framing};
use crate::plan::{Case, Direction};
use crate::workload::Role;
use crate::workload::latency::{Answer, Exchange, Pinger};
use crate::workload::pattern::{Alphabet, Message, differing};

pub const PEER: Peer = Peer {
    name: "sockperf",
    summary: "answers as a sockperf server does, TCP and UDP",
    default_ports: &[("tcp", 11111), ("udp", 11111)],
    workloads: &[("latency", &[Direction::Loop])],
    options: &[],
    sizes: &[],
    fit: |case, _| {
        if case.message_bytes == 0 {
            case.message_bytes = HEADER as u32;
        }
        match case.message_bytes as usize {
            HEADER.. => Ok(()),
            bytes => Err(format!(
                "a message of sockperf has {HEADER} bytes or more, not {bytes}: choose another --size"
            )),
        }
    },
    connect,
    serve: Some(|_| Arc::new(Server)),
};

/// Bytes of the header, and so of the shortest message.
pub const HEADER: usize = 14;

const FROM_CLIENT: u16 = 1;
/// The sender wants an answer.
const PONG: u16 = 2;

/// What stands in front of every message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub number: u64,
    pub flags: u16,
    /// Bytes of the message, this header included.
    pub length: u32,
}

impl Header {
    pub fn read(bytes: &[u8; HEADER]) -> Header {
        let [n7, n6, n5, n4, n3, n2, n1, n0, f1, f0, length @ ..] = *bytes;
        Header {
            number: u64::from_be_bytes([n7, n6, n5, n4, n3, n2, n1, n0]),
            flags: u16::from_be_bytes([f1, f0]),
            length: u32::from_be_bytes(length),
        }
    }

    pub fn write(&self, into: &mut [u8]) {
        into[..8].copy_from_slice(&self.number.to_be_bytes());
        into[8..10].copy_from_slice(&self.flags.to_be_bytes());
        into[10..HEADER].copy_from_slice(&self.length.to_be_bytes());
    }

    /// The header of the answer; `None` where none is wanted. Servers do not answer each other.
    fn answer(self) -> Option<Header> {
        const ASKS: u16 = FROM_CLIENT | PONG;
        (self.flags & ASKS == ASKS).then_some(Header { flags: self.flags & !FROM_CLIENT, ..self })
    }
}

fn connect(case: &Case, near: &Near) -> Result<Box<dyn Session>, PeerError> {
    let flows = flows(case, near, |port, link, flows| {
        let caps = link.caps().clone();
        let exchange = Box::new(PingPong::new(case.message_bytes as usize, &caps));
        let party = Pinger::new(exchange, case, &caps, (near.recorder)(Role::Exchange, port));
        flows.push(Flow { role: Role::Exchange, port, link, party: Box::new(party) });
        Ok(())
    })?;
    Ok(Plain::boxed(flows))
}

/// The near end of a ping-pong.
struct PingPong {
    message: Vec<u8>,
    is_stream: bool,
    /// The answer that is coming in on a stream: its header, and how much of it is here.
    head: [u8; HEADER],
    got: usize,
    corrupt: u64,
}

impl PingPong {
    fn new(length: usize, caps: &Caps) -> PingPong {
        let noise = Message::new(length, Alphabet::of(caps)).bytes().to_vec();
        PingPong {
            message: noise,
            is_stream: caps.framing == Framing::Stream,
            head: [0; HEADER],
            got: 0,
            corrupt: 0,
        }
    }

    /// The number that a header answers.
    fn answered(&self, head: &[u8; HEADER]) -> Option<u64> {
        let header = Header::read(head);
        let ours =
            header.flags & (FROM_CLIENT | PONG) == PONG && header.length as usize == self.message.len();
        ours.then(|| header.number.checked_sub(1)).flatten()
    }

    fn whole_message(&self, data: &[u8]) -> Answer {
        let used = data.len();
        let Some((head, body)) = data.split_first_chunk().filter(|_| used == self.message.len()) else {
            return Answer::Broken { used };
        };
        match self.answered(head) {
            Some(sequence) => {
                Answer::Whole { sequence, used, corrupt_bytes: differing(body, &self.message[HEADER..]) }
            }
            None => Answer::Broken { used },
        }
    }

    fn part(&mut self, data: &[u8]) -> Answer {
        let in_head = (HEADER - self.got.min(HEADER)).min(data.len());
        self.head[self.got.min(HEADER)..][..in_head].copy_from_slice(&data[..in_head]);
        self.got += in_head;
        if self.got < HEADER {
            return Answer::Partial;
        }
        let Some(sequence) = self.answered(&self.head) else {
            self.got = 0;
            return Answer::Broken { used: data.len() };
        };
        let rest = &self.message[self.got..];
        let in_body = rest.len().min(data.len() - in_head);
        self.corrupt += differing(&data[in_head..][..in_body], &rest[..in_body]);
        self.got += in_body;
        if self.got < self.message.len() {
            return Answer::Partial;
        }
        self.got = 0;
        Answer::Whole { sequence, used: in_head + in_body, corrupt_bytes: std::mem::take(&mut self.corrupt) }
    }
}

impl Exchange for PingPong {
    fn request(&mut self, sequence: u64) -> &[u8] {
        let length = self.message.len() as u32;
        Header { number: sequence + 1, flags: FROM_CLIENT | PONG, length }.write(&mut self.message);
        &self.message
    }

    fn answer(&mut self, data: &[u8], _waiting: Range<u64>) -> Answer {
        if self.is_stream { self.part(data) } else { self.whole_message(data) }
    }
}

struct Server;

impl Service for Server {
    fn party(&self, caps: &Caps, _from: &str) -> Box<dyn Party> {
        let room = caps.max_message.unwrap_or(CHUNK);
        Box::new(Answerer {
            batch: Batch::new(room, 1),
            is_stream: caps.framing == Framing::Stream,
            answers: Answers::default(),
            out: Vec::with_capacity(room + HEADER),
            sent: 0,
            over: false,
            broken: false,
        })
    }

    fn door(&self, first: &[u8], _from: &str, reply: &mut Vec<u8>) -> Admission {
        match Answers::default().of_message(first, reply) {
            Some(()) => Admission::Reply,
            None => Admission::Drop,
        }
    }
}

/// Largest piece taken of a stream at once.
const CHUNK: usize = 65_536;

/// What is said in answer, as messages come in.
#[derive(Debug, Default)]
pub struct Answers {
    head: [u8; HEADER],
    got: usize,
    /// Bytes of the message that are still to come, and whether they go back.
    left: usize,
    returns: bool,
}

impl Answers {
    /// Answers whatever is whole of a stream; fails where no message begins.
    pub fn of_stream(&mut self, mut data: &[u8], out: &mut Vec<u8>) -> Option<()> {
        while !data.is_empty() {
            if self.left > 0 {
                let (body, rest) = data.split_at(self.left.min(data.len()));
                if self.returns {
                    out.extend_from_slice(body);
                }
                (self.left, data) = (self.left - body.len(), rest);
                continue;
            }
            let (part, rest) = data.split_at((HEADER - self.got).min(data.len()));
            self.head[self.got..][..part.len()].copy_from_slice(part);
            (self.got, data) = (self.got + part.len(), rest);
            if self.got == HEADER {
                self.got = 0;
                self.begin(out)?;
            }
        }
        Some(())
    }

    /// Answers a message, if it wants an answer and has the length that it says.
    fn of_message(&mut self, message: &[u8], out: &mut Vec<u8>) -> Option<()> {
        let (head, body) = message.split_first_chunk()?;
        let header = Header::read(head);
        let answer = header.answer().filter(|_| header.length as usize == message.len())?;
        out.resize(HEADER, 0);
        answer.write(out);
        out.extend_from_slice(body);
        Some(())
    }

    fn begin(&mut self, out: &mut Vec<u8>) -> Option<()> {
        let header = Header::read(&self.head);
        self.left = (header.length as usize).checked_sub(HEADER)?;
        let answer = header.answer();
        self.returns = answer.is_some();
        if let Some(answer) = answer {
            let at = out.len();
            out.resize(at + HEADER, 0);
            answer.write(&mut out[at..]);
        }
        Some(())
    }
}

/// The far end.
struct Answerer {
    batch: Batch,
    is_stream: bool,
    answers: Answers,
    out: Vec<u8>,
    /// How much of it has gone.
    sent: usize,
    over: bool,
    broken: bool,
}

impl Party for Answerer {
    fn next(&mut self, _now: Time) -> Step<'_> {
        if self.sent < self.out.len() {
            return Step::Send { bytes: &self.out[self.sent..], message: self.out.len() };
        }
        if self.broken {
            return Step::Fail(Fault::Other("this is no message of sockperf".to_owned()));
        }
        if self.over {
            return Step::Done;
        }
        Step::Receive { into: &mut self.batch, until: Time::NEVER }
    }

    fn sent(&mut self, bytes: usize, _at: Time) {
        self.sent += bytes;
    }

    fn received(&mut self, _now: Time) {
        self.out.clear();
        self.sent = 0;
        let data = self.batch.messages().next().unwrap_or_default();
        if self.is_stream {
            self.broken = self.answers.of_stream(data, &mut self.out).is_none();
        } else {
            // What is no message, or wants no answer, gets none.
            let _ = self.answers.of_message(data, &mut self.out);
        }
    }

    fn timed_out(&mut self, _now: Time) {}

    fn closed(&mut self, _now: Time) -> Result<(), Fault> {
        self.over = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::ask::text;

    fn bytes(hex: &str) -> Vec<u8> {
        text::bytes(&format!("hex:{hex}")).unwrap()
    }

    /// As sockperf 3.7 said them.
    const ASKED: &str = "0000000000000001 0003 00000020 D4ABB2CDC69BB454110E827441213DDC8770";
    const ANSWERED: &str = "0000000000000001 0002 00000020 D4ABB2CDC69BB454110E827441213DDC8770";

    fn answers<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Option<Vec<u8>> {
        let (mut answers, mut out) = (Answers::default(), Vec::new());
        for piece in pieces {
            answers.of_stream(piece, &mut out)?;
        }
        Some(out)
    }

    #[test]
    fn the_server_clears_a_flag() {
        let (asked, answered) = (bytes(ASKED), bytes(ANSWERED));
        let mut out = Vec::new();
        assert_eq!(Answers::default().of_message(&asked, &mut out), Some(()));
        assert_eq!(out, answered);
        // On a stream in pieces of any length, several messages after each other, one of which wants no answer.
        let silent = bytes("0000000000000002 0001 00000010 FFFF");
        let stream = [&asked[..], &silent, &asked].concat();
        for size in 1..stream.len() {
            assert_eq!(answers(stream.chunks(size)), Some([&answered[..], &answered].concat()), "{size}");
        }
        assert_eq!(
            answers([&b"GET / HTTP/1.0\r\n"[..]].into_iter()).map(|out| out.len()),
            Some(0),
            "it waits"
        );
        assert_eq!(answers([&[0; 14][..]].into_iter()), None, "a message of no length");
    }

    #[test]
    fn the_client_takes_answers_to_its_own_alone() {
        for caps in
            [Caps::STREAM, Caps { framing: Framing::Message, max_message: Some(1000), ..Caps::STREAM }]
        {
            let mut near = PingPong::new(32, &caps);
            let asked = near.request(6).to_vec();
            assert_eq!(asked[..HEADER], bytes("0000000000000007 0003 00000020"));
            let mut answered = asked.clone();
            answered[9] = 2;
            assert_eq!(
                near.answer(&answered, 6..7),
                Answer::Whole { sequence: 6, used: 32, corrupt_bytes: 0 }
            );
            assert_eq!(near.answer(&asked, 6..7), Answer::Broken { used: 32 }, "an echo is none");
            answered[20] ^= 1;
            assert_eq!(
                near.answer(&answered, 6..7),
                Answer::Whole { sequence: 6, used: 32, corrupt_bytes: 1 }
            );
        }
        let mut near = PingPong::new(32, &Caps::STREAM);
        let mut answered = near.request(0).to_vec();
        answered[9] = 2;
        for at in 0..31 {
            assert_eq!(near.answer(&answered[at..=at], 0..1), Answer::Partial);
        }
        let two = [&answered[31..], &answered].concat();
        assert_eq!(near.answer(&two, 0..1), Answer::Whole { sequence: 0, used: 1, corrupt_bytes: 0 });
        assert_eq!(near.answer(&answered, 0..1), Answer::Whole { sequence: 0, used: 32, corrupt_bytes: 0 });
    }
}
