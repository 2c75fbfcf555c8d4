//! The far side: a server for NETIO's clients of every dialect, any number of them at once.
//!
//! The first bytes of a connection tell its dialect. Then it is a plain loop of commands, as the original is: receive
//! blocks until the last one, send blocks for a while, end. Nothing is said back, but on a stream beside datagrams.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::GRACE;
use super::clients::{Client, Clients, Datagrams, Entered, LOOK};
use super::sender::Sender;
use super::wire::{Blocks, Dialect, LARGEST, Opening, WORD, Word};
use crate::clock::Time;
use crate::endpoint::Endpoint;
use crate::link::party::{Cost, Party, Standing, Step, Tuning};
use crate::link::{Admission, Batch, Caps, Fault, Framing, stream_beside};
use crate::peer::{Limits, ServerFacts, Service, Setting, far_case};
use crate::plan::{Case, Pacing, Stop};
use crate::sample::Recorder;

/// How long the original sends, a constant of its program (1.26 to 1.34).
const SENDS: Duration = Duration::from_secs(6);

/// Most payload of a datagram over IPv4: larger ones cannot be sent.
const LARGEST_DATAGRAM: u32 = 65_507;

/// A client of datagrams is sent none where none of its own has come until then: nobody knows where to.
const UNREACHABLE: Duration = Duration::from_millis(500);

/// Room for what one receive operation brings.
const ROOM: usize = 128 * 1024;

pub fn service(facts: &Arc<ServerFacts>) -> Arc<dyn Service> {
    Arc::new(NetioService { limits: facts.limits, clients: Arc::default(), beside: false })
}

struct NetioService {
    limits: Limits,
    clients: Arc<Clients>,
    /// Its streams say what is to happen with datagrams.
    beside: bool,
}

impl Service for NetioService {
    fn at(&self, endpoint: &Endpoint, all: &[Endpoint]) -> Option<Arc<dyn Service>> {
        // Ports that the system chooses are never the same.
        let has_port = matches!(endpoint.host_port(), Ok((_, Some(1..))));
        let is_beside = |datagrams: &Endpoint| {
            let stream = stream_beside(datagrams).ok().filter(|_| has_port);
            stream.is_some_and(|at| (at.scheme(), at.place()) == (endpoint.scheme(), endpoint.place()))
        };
        all.iter().any(is_beside).then(|| {
            let clients = self.clients.clone();
            Arc::new(NetioService { limits: self.limits, clients, beside: true }) as Arc<dyn Service>
        })
    }

    fn party(&self, caps: &Caps, from: &str) -> Box<dyn Party> {
        if caps.framing == Framing::Message {
            return match self.clients.find(from) {
                Some(found) => Box::new(Datagrams::new(found, self.limits, caps)),
                None => Box::new(Connection::refusing(self.limits, caps, "nobody told of these datagrams")),
            };
        }
        let mut connection = Connection::new(self.limits, caps);
        connection.entered = self.beside.then(|| self.clients.enter(from));
        Box::new(connection)
    }

    fn honours(&self) -> &'static [Setting] {
        &[Setting::MessageBytes]
    }

    fn door(&self, _first: &[u8], from: &str, _reply: &mut Vec<u8>) -> Admission {
        if self.clients.find(from).is_some() { Admission::Open } else { Admission::Drop }
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
    /// A word of this end, and how much of it is out.
    Saying([u8; WORD], usize),
    /// Datagrams are being sent, at the latest until then.
    Waiting(Time),
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
    /// Of a stream beside datagrams.
    entered: Option<Entered>,
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
            entered: None,
        }
    }

    fn refusing(limits: Limits, caps: &Caps, why: &str) -> Connection {
        Connection { state: State::Refused(why.to_owned()), ..Connection::new(limits, caps) }
    }

    fn idle(&self) -> Duration {
        Duration::from_secs(self.limits.idle_s)
    }

    /// Deals with what has come and was not looked at yet, until this end has to send or to hear more.
    fn digest(&mut self, now: Time) {
        while matches!(self.state, State::Words | State::Receiving(_) | State::Draining) {
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
                    (self.state, self.began) = (State::Draining, Some(now));
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
        let word = Word::read(self.word, dialect);
        if let Some(entered) = &self.entered {
            self.state = self.heed_beside(&entered.client, word, dialect, now);
            return;
        }
        self.state = match word {
            Word::ClientSends(0) | Word::ServerSends(0) | Word::Quit | Word::Result(_) => State::Over,
            Word::ClientSends(size) | Word::ServerSends(size) if size > self.largest() => {
                State::Refused(format!("blocks of {size} bytes: at most {}", self.largest()))
            }
            Word::ClientSends(size) => State::Receiving(Blocks::new(size)),
            Word::ServerSends(size) => State::Sending(Box::new(self.sender(size))),
        };
    }

    /// What a word means where the blocks are datagrams.
    fn heed_beside(&self, client: &Client, word: Word, dialect: Dialect, now: Time) -> State {
        let largest = self.largest().min(LARGEST_DATAGRAM);
        client.announces.store(matches!(word, Word::ClientSends(_)), Relaxed);
        match word {
            Word::ClientSends(0) | Word::ServerSends(0) | Word::Quit => State::Over,
            Word::ClientSends(size) | Word::ServerSends(size) if size > largest => {
                State::Refused(format!("datagrams of {size} bytes: at most {largest}"))
            }
            Word::ClientSends(_) => {
                client.packets.store(0, Relaxed);
                State::Saying(word.bytes(dialect), 0)
            }
            Word::ServerSends(size) => {
                client.order(size);
                State::Waiting(now + sends(&self.limits) + GRACE)
            }
            Word::Result(_) => {
                let packets = u32::try_from(client.packets.load(Relaxed)).unwrap_or(u32::MAX);
                State::Saying(Word::Result(packets).bytes(dialect), 0)
            }
        }
    }

    /// Whether the datagrams that a client waits for are out; then it is told how many.
    fn look_after(&mut self, until: Time, now: Time) {
        let (Some(entered), Some(dialect)) = (&self.entered, self.dialect) else { return };
        let nowhere = !entered.client.reachable.load(Relaxed)
            && self.began.is_some_and(|began| now > began + UNREACHABLE);
        if nowhere {
            entered.client.order(0);
        }
        if let Some(sent) = entered.client.outcome() {
            // Never none: the original divides by it.
            let sent = u32::try_from(sent.max(1)).unwrap_or(u32::MAX);
            self.state = State::Saying(Word::Result(sent).bytes(dialect), 0);
        } else if now > until {
            self.state = State::Refused("its datagrams could not be sent".to_owned());
        }
    }

    fn largest(&self) -> u32 {
        self.limits.message_bytes.min(LARGEST)
    }

    fn sender(&self, size: u32) -> Sender {
        let case = sending_case(&self.limits, size);
        Sender::new(&case, &self.caps, Tuning::default(), Recorder::counting()).ended_by_flag()
    }
}

/// How long this end sends.
fn sends(limits: &Limits) -> Duration {
    SENDS.min(Duration::from_secs(limits.duration_s))
}

/// What this end sends when it is asked to, as far as it is allowed to.
pub fn sending_case(limits: &Limits, size: u32) -> Case {
    let per_second = |rate: f64| rate / 8.0 / f64::from(size);
    Case {
        pacing: limits.bit_rate.map_or(Pacing::Closed, |rate| Pacing::Fixed { per_second: per_second(rate) }),
        stop: Stop::after(sends(limits)),
        timeout: Duration::from_secs(limits.idle_s),
        ..far_case(size)
    }
}

impl Party for Connection {
    #[inline]
    fn next(&mut self, now: Time) -> Step<'_> {
        let until = *self.moved.get_or_insert(now) + self.idle();
        let longest = Duration::from_secs(self.limits.duration_s) + GRACE;
        if matches!(self.state, State::Receiving(_) | State::Draining)
            && self.began.is_some_and(|began| now > began + longest)
        {
            self.state = State::Refused("longer than this server allows".to_owned());
        }
        if matches!(&self.state, State::Sending(sender) if sender.is_over()) {
            (self.state, self.moved) = (State::Words, Some(now));
            self.digest(now);
        }
        if self.entered.as_ref().is_some_and(|entered| entered.client.is_over()) {
            return Step::Done;
        }
        if let State::Waiting(until) = self.state {
            self.look_after(until, now);
        }
        if let State::Saying(_, WORD) = self.state {
            (self.state, self.moved) = (State::Words, Some(now));
            self.digest(now);
        }
        match &mut self.state {
            State::Sending(sender) => sender.next(now),
            State::Saying(word, said) => Step::Send { bytes: &word[*said..], message: WORD },
            State::Waiting(_) => Step::Sleep(now + LOOK),
            State::Over => Step::Done,
            State::Refused(why) => Step::Fail(Fault::Other(why.clone())),
            _ => Step::Receive { into: &mut self.batch, until },
        }
    }

    #[inline]
    fn sent(&mut self, bytes: usize, at: Time) {
        match &mut self.state {
            State::Sending(sender) => sender.sent(bytes, at),
            State::Saying(_, said) => *said += bytes,
            _ => {}
        }
    }

    #[inline]
    fn received(&mut self, now: Time) {
        (self.moved, self.used) = (Some(now), 0);
        self.digest(now);
    }

    /// Its limits are those of each direction, of which a client has many, one after the other.
    fn standing(&self) -> Standing {
        Standing::Vouched
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
