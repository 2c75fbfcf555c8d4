//! Reading the logger's clock: the shortest question that its processor answers, as an exchange of `latency`.

use std::ops::Range;

use super::talk::{CLIENT, WAKE};
use super::{DENIED, Options};
use crate::peer::pakbus::frame::{self, Decoder};
use crate::peer::pakbus::message::{Code, Command};
use crate::peer::pakbus::packet::{Hop, LinkState, Packet, Route};
use crate::peer::pakbus::reply::{Reply, Why};
use crate::peer::pakbus::value::Instant;
use crate::workload::latency::{Answer, Exchange};

/// Bytes of the question on a line, its sync bytes included and nothing quoted.
pub const LENGTH: u32 = 24;

/// Transaction numbers go from 1 to 255.
const NUMBERS: u64 = 255;

/// One question after the other, told apart by their transaction numbers.
pub struct Clock {
    options: Options,
    decoder: Decoder,
    request: Vec<u8>,
    /// The number that stands in the request.
    written: Option<u64>,
    refusal: String,
}

impl Clock {
    pub fn new(options: Options) -> Clock {
        Clock {
            options,
            decoder: Decoder::default(),
            request: Vec::with_capacity(64),
            written: None,
            refusal: String::new(),
        }
    }

    fn write(&mut self, sequence: u64) {
        self.request.clear();
        if self.written.is_none() {
            self.request.extend(WAKE);
        }
        let command = Command::Clock { security: self.options.security, adjustment: Instant::default() };
        let (protocol, message) = command.write(transaction(sequence));
        let (to, from) = (self.options.node, CLIENT);
        let hop = Hop { state: LinkState::READY, to, from, expect_more: 2, priority: 1 };
        let route = Route { protocol, to, from, hops: 0 };
        frame::write(&Packet { hop, message: Some((route, &message)) }.write(), &mut self.request);
        self.written = Some(sequence);
    }
}

fn transaction(sequence: u64) -> u8 {
    (sequence % NUMBERS + 1) as u8
}

/// What became of a question.
enum Told {
    Time,
    /// The logger has no room for it now.
    Busy,
    Refused(String),
}

/// The number of the question that a packet answers, and what it tells.
fn answered(packet: &[u8], node: u16, waiting: &Range<u64>) -> Option<(u64, Told)> {
    let packet = Packet::read(packet).ok()?;
    let (route, message) = packet.message.filter(|(route, _)| route.from == node && route.to == CLIENT)?;
    let (number, told) = match Reply::read(route.protocol, message).ok()? {
        (number, Reply::Clock(Ok(_))) => (number, Told::Time),
        (number, Reply::Clock(Err(Code::DENIED))) => (number, Told::Refused(DENIED.to_owned())),
        (number, Reply::Clock(Err(code))) => (number, Told::Refused(format!("the logger says: {code}"))),
        (_, Reply::Failure(failure)) if failure.why == Why::OVERFLOW => (failure.command()?.1, Told::Busy),
        (_, Reply::Failure(failure)) => {
            (failure.command()?.1, Told::Refused(format!("the logger says: {}", failure.why)))
        }
        _ => return None,
    };
    waiting.clone().find(|&sequence| transaction(sequence) == number).map(|sequence| (sequence, told))
}

impl Exchange for Clock {
    fn request(&mut self, sequence: u64) -> &[u8] {
        // Asked for again while the link takes it in parts.
        if self.written != Some(sequence) {
            self.write(sequence);
        }
        &self.request
    }

    fn answer(&mut self, data: &[u8], waiting: Range<u64>) -> Answer {
        let mut used = 0;
        while used < data.len() {
            let (taken, packet) = self.decoder.read(&data[used..]);
            used += taken;
            if let Some((sequence, told)) =
                packet.and_then(|packet| answered(packet, self.options.node, &waiting))
            {
                return match told {
                    Told::Time => Answer::Whole { sequence, used, corrupt_bytes: 0 },
                    Told::Busy => Answer::Wrong { sequence, used },
                    Told::Refused(why) => {
                        self.refusal = why;
                        Answer::Refused
                    }
                };
            }
        }
        Answer::Partial
    }

    fn refusal(&self) -> String {
        self.refusal.clone()
    }

    /// A logger carries out one command after the other, and may have no room for those that wait.
    fn is_numbered(&self) -> bool {
        false
    }
}
