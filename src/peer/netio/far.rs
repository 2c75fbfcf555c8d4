//! The far side: a server for NETIO's clients of every dialect, any number of them at once.
//!
//! The first bytes of a connection tell its dialect. Then it is a plain loop of commands, as the original is: receive
//! blocks until the last one, send blocks for a while, end. Nothing is said back.

use std::sync::Arc;
use std::time::Duration;

use super::sender::Sender;
use super::wire::{Blocks, Dialect, LARGEST, Opening, WORD, Word};
use crate::clock::Time;
use crate::link::party::{Cost, Party, Step, Tuning};
use crate::link::{Admission, Batch, Caps, Fault};
use crate::peer::{Limits, ServerFacts, Service};
use crate::plan::{Case, Direction, Pacing, Pin, Stop, Wait};
use crate::sample::Recorder;

/// How long the original sends, a constant of its program (1.26 to 1.34).
const SENDS: Duration = Duration::from_secs(6);

/// Room for what one receive operation brings.
const ROOM: usize = 128 * 1024;

pub fn service(facts: &Arc<ServerFacts>) -> Arc<dyn Service> {
    Arc::new(NetioService { limits: facts.limits })
}

struct NetioService {
    limits: Limits,
}

impl Service for NetioService {
    fn party(&self, caps: &Caps, _from: &str) -> Box<dyn Party> {
        Box::new(Connection::new(self.limits, caps))
    }

    fn door(&self, _first: &[u8], _from: &str, _reply: &mut Vec<u8>) -> Admission {
        Admission::Drop
    }
}

/// What a connection is about.
enum State {
    /// The next word, or the first bytes of a client without words.
    Words,
    /// Blocks of the client.
    Receiving(Blocks),
    /// Bytes of a client without words, until it closes.
    Draining,
    Sending(Box<Sender>),
    Over,
    Refused(String),
}

struct Connection {
    limits: Limits,
    caps: Caps,
    dialect: Option<Dialect>,
    state: State,
    word: [u8; WORD],
    /// Bytes of the word that have come.
    filled: usize,
    batch: Batch,
    /// Bytes of the batch that have been dealt with.
    used: usize,
    /// When something moved last.
    moved: Option<Time>,
    /// When the direction began.
    began: Option<Time>,
}

impl Connection {
    fn new(limits: Limits, caps: &Caps) -> Connection {
        Connection {
            limits,
            caps: caps.clone(),
            dialect: None,
            state: State::Words,
            word: [0; WORD],
            filled: 0,
            batch: Batch::new(ROOM, 1),
            used: 0,
            moved: None,
            began: None,
        }
    }

    fn idle(&self) -> Duration {
        Duration::from_secs(self.limits.idle_s)
    }

    /// Deals with what has come and was not looked at yet, until this end has to send or to hear more.
    fn digest(&mut self, now: Time) {
        while !matches!(self.state, State::Sending(_) | State::Over | State::Refused(_)) {
            let came = self.batch.messages().next().unwrap_or_default();
            let rest = &came[self.used.min(came.len())..];
            if rest.is_empty() {
                return;
            }
            match &mut self.state {
                State::Receiving(blocks) => {
                    self.used += blocks.take(rest);
                    if blocks.is_over() {
                        self.state = State::Words;
                    }
                }
                State::Words => {
                    let length = rest.len().min(WORD - self.filled);
                    self.word[self.filled..self.filled + length].copy_from_slice(&rest[..length]);
                    (self.filled, self.used) = (self.filled + length, self.used + length);
                    self.heed(now);
                }
                _ => self.used = came.len(),
            }
        }
    }

    /// Does as the word says, once it is whole.
    fn heed(&mut self, now: Time) {
        let dialect = match self.dialect {
            Some(dialect) => dialect,
            None => match Opening::of(&self.word[..self.filled]) {
                Opening::Undecided => return,
                Opening::Stranger => {
                    let said = self.word[..self.filled].escape_ascii();
                    self.state = State::Refused(format!("no NETIO client begins with \"{said}\""));
                    return;
                }
                Opening::Speaks(Dialect::A) => {
                    self.state = State::Draining;
                    return;
                }
                Opening::Speaks(dialect) => *self.dialect.insert(dialect),
            },
        };
        if self.filled < WORD {
            return;
        }
        self.filled = 0;
        self.began = Some(now);
        self.state = match Word::read(self.word, dialect) {
            Word::ClientSends(0) | Word::ServerSends(0) | Word::Quit | Word::Result(_) => State::Over,
            Word::ClientSends(size) | Word::ServerSends(size) if size > self.largest() => {
                State::Refused(format!("blocks of {size} bytes: at most {}", self.largest()))
            }
            Word::ClientSends(size) => State::Receiving(Blocks::new(size)),
            Word::ServerSends(size) => State::Sending(Box::new(self.sender(size))),
        };
    }

    fn largest(&self) -> u32 {
        self.limits.message_bytes.min(LARGEST)
    }

    fn sender(&self, size: u32) -> Sender {
        let pacing = self
            .limits
            .bit_rate
            .map_or(Pacing::Closed, |rate| Pacing::Fixed { per_second: rate / 8.0 / f64::from(size) });
        let case = Case {
            endpoints: Vec::new(),
            peer: String::new(),
            peer_options: Default::default(),
            workload: String::new(),
            direction: Some(Direction::Send),
            message_bytes: size,
            parallel: 1,
            pacing,
            stop: Stop::after(SENDS.min(Duration::from_secs(self.limits.duration_s))),
            warm_up: None,
            timeout: self.idle(),
            wait: Wait::Block,
            pin: Pin::default(),
            probe_per_second: None,
            interval: Duration::from_secs(1),
            late: Vec::new(),
        };
        Sender::new(&case, &self.caps, Tuning::default(), Recorder::counting()).ended_by_flag()
    }
}

impl Party for Connection {
    #[inline]
    fn next(&mut self, now: Time) -> Step<'_> {
        let until = *self.moved.get_or_insert(now) + self.idle();
        let longest = Duration::from_secs(self.limits.duration_s) + super::GRACE;
        if matches!(self.state, State::Receiving(_)) && self.began.is_some_and(|began| now > began + longest)
        {
            self.state = State::Refused("longer than this server allows".to_owned());
        }
        if matches!(&self.state, State::Sending(sender) if sender.is_over()) {
            (self.state, self.moved) = (State::Words, Some(now));
            self.digest(now);
        }
        match &mut self.state {
            State::Sending(sender) => sender.next(now),
            State::Over => Step::Done,
            State::Refused(why) => Step::Fail(Fault::Other(why.clone())),
            _ => Step::Receive { into: &mut self.batch, until },
        }
    }

    #[inline]
    fn sent(&mut self, bytes: usize, at: Time) {
        if let State::Sending(sender) = &mut self.state {
            sender.sent(bytes, at);
        }
    }

    #[inline]
    fn received(&mut self, now: Time) {
        (self.moved, self.used) = (Some(now), 0);
        self.digest(now);
    }

    fn timed_out(&mut self, _now: Time) {
        self.state = State::Over;
    }

    fn closed(&mut self, _now: Time) -> Result<(), Fault> {
        // In the middle of anything that is a client that went away; there is nothing to wait for.
        self.state = State::Over;
        Ok(())
    }

    fn ended(&mut self, cost: Cost) {
        if let State::Sending(sender) = &mut self.state {
            sender.ended(cost);
        }
    }
}
