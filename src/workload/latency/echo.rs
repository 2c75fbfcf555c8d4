//! The same bytes come back: the exchange of every peer that echoes.
//!
//! Answers are told apart by their numbers. Where bytes get lost or changed and one request is on its way at a time,
//! they are told by their place instead: what comes is the answer to that request, whatever it looks like.

use std::ops::Range;

use super::{Answer, Exchange, WINDOW};
use crate::link::{Caps, Framing};
use crate::plan::{Case, Pacing};
use crate::workload::pattern::{self, Alphabet, HEADER, Message};

pub struct Echo {
    message: Message,
    framing: Framing,
    /// Bytes may vanish from the stream, so an unfinished answer is dropped when it is given up.
    lossy: bool,
    /// The answer is known by its place.
    placed: bool,
    head: [u8; HEADER],
    got: usize,
    sequence: u64,
    corrupt: u64,
    /// By place: whose answer has not come whole, and the last one of those that was given up.
    asked: Option<u64>,
    given_up: Option<u64>,
}

impl Echo {
    pub fn new(case: &Case, caps: &Caps) -> Echo {
        let lossy = caps.framing == Framing::Stream && !caps.reliable;
        Echo {
            message: Message::new(case.message_bytes as usize, Alphabet::of(caps)),
            framing: caps.framing,
            lossy,
            placed: lossy && case.pacing == Pacing::Closed,
            head: [0; HEADER],
            got: 0,
            sequence: 0,
            corrupt: 0,
            asked: None,
            given_up: None,
        }
    }

    fn head_length(&self) -> usize {
        self.message.len().min(HEADER)
    }

    fn whole_message(&self, data: &[u8], waiting: &Range<u64>) -> Answer {
        let used = data.len();
        if used < self.head_length() {
            return Answer::Stray { used };
        }
        let (head, body) = data.split_at(self.head_length());
        let Some(sequence) = self.message.number(head, waiting.start) else { return Answer::Stray { used } };
        let corrupt_bytes = pattern::differing(body, self.message.body());
        Answer::Whole { sequence, used, corrupt_bytes }
    }

    /// What comes belongs to the one request that is on its way, or was given up last.
    fn by_place(&mut self, data: &[u8]) -> Answer {
        let Some(sequence) = self.asked else { return Answer::Stray { used: data.len() } };
        let rest = &self.message.bytes()[self.got..];
        let used = rest.len().min(data.len());
        self.corrupt += pattern::differing(&data[..used], &rest[..used]);
        let in_head = self.head_length().saturating_sub(self.got).min(used);
        self.head[self.got.min(HEADER)..][..in_head].copy_from_slice(&data[..in_head]);
        self.got += used;
        if self.got < self.message.len() {
            return Answer::Partial;
        }
        self.got = 0;
        let corrupt_bytes = std::mem::take(&mut self.corrupt);
        if corrupt_bytes > 0 && self.given_up.is_some() {
            // Later than anybody listened for it, and known by its number all the same.
            let number = self.message.number(&self.head[..self.head_length()], sequence);
            if number == self.given_up && number != self.asked {
                self.given_up = None;
                return Answer::Whole { sequence: number.unwrap_or(sequence), used, corrupt_bytes: 0 };
            }
        }
        // Nothing overtakes on a stream: what has not come by now is lost for good.
        (self.asked, self.given_up) = (None, None);
        Answer::Whole { sequence, used, corrupt_bytes }
    }

    /// The next answers of a stream, by their numbers.
    fn by_number(&mut self, data: &[u8], waiting: &Range<u64>) -> Answer {
        let mut used = 0;
        let head_length = self.head_length();
        if self.got < head_length {
            let part = (head_length - self.got).min(data.len());
            self.head[self.got..self.got + part].copy_from_slice(&data[..part]);
            self.got += part;
            used = part;
            if self.got < head_length {
                return Answer::Partial;
            }
            let recent = waiting.start.saturating_sub(2 * WINDOW)..waiting.end;
            let number = self.message.number(&self.head[..head_length], waiting.start);
            let Some(sequence) = number.filter(|number| recent.contains(number)) else {
                // Not the beginning of any of our messages: the stream is out of step by at least a byte. The others
                // are looked at again, those of this piece where they lie.
                let before = head_length - part;
                self.got = before.saturating_sub(1);
                if before == 0 {
                    return Answer::Stray { used: 1 };
                }
                self.head.copy_within(1..before, 0);
                self.corrupt += 1;
                return Answer::Stray { used: 0 };
            };
            self.sequence = sequence;
        }
        let body = self.message.body();
        let from = self.got - head_length;
        let part = (body.len() - from).min(data.len() - used);
        self.corrupt += pattern::differing(&data[used..used + part], &body[from..from + part]);
        self.got += part;
        used += part;
        if self.got < self.message.len() {
            return Answer::Partial;
        }
        self.got = 0;
        Answer::Whole { sequence: self.sequence, used, corrupt_bytes: std::mem::take(&mut self.corrupt) }
    }
}

impl Exchange for Echo {
    #[inline]
    fn request(&mut self, sequence: u64) -> &[u8] {
        // Asked for again while the link takes it in parts.
        if self.placed && self.asked != Some(sequence) {
            (self.asked, self.got, self.corrupt) = (Some(sequence), 0, 0);
        }
        self.message.numbered(sequence)
    }

    #[inline]
    fn answer(&mut self, data: &[u8], waiting: Range<u64>) -> Answer {
        match self.framing {
            Framing::Message => self.whole_message(data, &waiting),
            Framing::Stream if self.placed => self.by_place(data),
            Framing::Stream => self.by_number(data, &waiting),
        }
    }

    fn given_up(&mut self, sequence: u64) {
        if self.placed {
            self.given_up = Some(sequence);
        } else if self.lossy {
            (self.got, self.corrupt) = (0, 0);
        }
    }

    fn is_numbered(&self) -> bool {
        !self.placed
    }
}
