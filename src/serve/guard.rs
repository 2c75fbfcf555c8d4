//! The guard of a connection: holds whatever a protocol's party does within the limits of the server.
//!
//! It stands between the loop and the party, so that no protocol can forget a limit:
//!
//! - silence: only what came, or what a reliable link took, is a sign of life. A client that never reads is silent, too;
//! - the length of a measurement;
//! - the rate of the source, in both directions: streams wait, datagrams beyond it are dropped;
//! - the length of a message, where the link has messages;
//! - on links without connections, which anybody can use in another's name: never more out than in, until the party says
//!   that the sender has proved its address.
//!
//! It allocates nothing and takes no lock while bytes move.

use std::time::Duration;

use super::hall::Ticket;
use super::rates::Meter;
use crate::clock::Time;
use crate::link::party::{Cost, Party, Standing, Step};
use crate::link::{Caps, Fault, Framing};
use crate::peer::Limits;

/// What a guard holds a connection to.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    pub idle: Duration,
    pub longest: Duration,
    pub message_bytes: usize,
}

impl Rules {
    /// `grace`: how much longer than a measurement its connection may take.
    pub fn new(limits: &Limits, grace: Duration) -> Rules {
        Rules {
            idle: Duration::from_secs(limits.idle_s),
            longest: Duration::from_secs(limits.duration_s).saturating_add(grace),
            message_bytes: limits.message_bytes as usize,
        }
    }
}

/// Why a guard ends a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Silence,
    Length,
    Message,
    /// More would go out than has come in.
    Debt,
    /// Another takes its place.
    Room,
}

impl Ending {
    fn reason(self) -> &'static str {
        match self {
            Ending::Silence => "nothing moved for longer than this server waits",
            Ending::Length => "longer than this server allows",
            Ending::Message => "a message is longer than this server allows",
            Ending::Debt => "a sender that has not proved its address gets no more than it sends",
            Ending::Room => "others need the place of a connection that has not introduced itself",
        }
    }
}

pub struct Guard {
    party: Box<dyn Party>,
    rules: Rules,
    /// The link loses nothing, so what it took counts as a sign of life, and what is not read waits.
    is_reliable: bool,
    has_messages: bool,
    /// The client's address is known to be its own.
    is_proved: bool,
    meter: Option<Meter>,
    /// While the client has not introduced itself.
    ticket: Option<Ticket>,
    began: Option<Time>,
    /// The last sign of life.
    alive: Time,
    /// Since then the link takes nothing of what the party has to send.
    stalled: Option<Time>,
    /// No limit of time is reached before.
    look: Time,
    /// When the party wants to know that nothing came.
    until: Time,
    /// Bytes in and out.
    got: u64,
    given: u64,
    /// What came is beyond the rate.
    is_beyond: bool,
    ending: Option<Ending>,
}

impl Guard {
    pub fn new(party: Box<dyn Party>, caps: &Caps, rules: Rules) -> Guard {
        Guard {
            is_proved: caps.closes || party.standing() >= Standing::Proved,
            party,
            rules,
            is_reliable: caps.reliable,
            has_messages: caps.framing == Framing::Message,
            meter: None,
            ticket: None,
            began: None,
            alive: Time(0),
            stalled: None,
            look: Time(0),
            until: Time::NEVER,
            got: 0,
            given: 0,
            is_beyond: false,
            ending: None,
        }
    }

    pub fn metered(self, meter: Option<Meter>) -> Guard {
        Guard { meter, ..self }
    }

    /// Holds the place of a client that has not introduced itself, until it has.
    pub fn holding(self, ticket: Option<Ticket>) -> Guard {
        Guard { ticket, ..self }
    }

    /// Looks whether a limit of time is reached, and when one can be next.
    fn judge(&mut self, now: Time) -> Option<Ending> {
        let began = *self.began.get_or_insert_with(|| {
            self.alive = now;
            now
        });
        let deadlines = |began: Time, alive: Time| (alive + self.rules.idle, began + self.rules.longest);
        let (silent, long) = deadlines(began, self.alive);
        if now < silent.min(long) {
            self.look = silent.min(long);
            return None;
        }
        if self.party.standing() == Standing::Vouched {
            (self.began, self.alive) = (Some(now), now);
            let (silent, long) = deadlines(now, now);
            self.look = silent.min(long);
            return None;
        }
        Some(if now >= silent { Ending::Silence } else { Ending::Length })
    }

    /// The client has introduced itself, or proved its address, as soon as the party says so.
    fn introduce(&mut self) {
        if self.is_proved && self.ticket.is_none() {
            return;
        }
        let standing = self.party.standing();
        self.is_proved |= standing >= Standing::Proved;
        if standing > Standing::Stranger {
            self.ticket = None;
        }
    }

    fn end(&mut self, ending: Ending) -> Step<'_> {
        self.party.stopped(ending.reason());
        match ending {
            // The usual end of a link without connections.
            Ending::Silence => Step::Done,
            ending => Step::Fail(Fault::Other(ending.reason().to_owned())),
        }
    }
}

impl Party for Guard {
    #[inline]
    fn next(&mut self, now: Time) -> Step<'_> {
        if now >= self.look && self.ending.is_none() {
            self.ending = self.judge(now);
        }
        if self.ticket.as_ref().is_some_and(Ticket::is_over) {
            self.ending = Some(Ending::Room);
        }
        if let Some(ending) = self.ending {
            return self.end(ending);
        }
        let paid = self.meter.as_ref().and_then(|meter| meter.ready(now));
        if let Some(at) = paid.filter(|_| self.is_reliable) {
            // The client is not to blame for this pause.
            self.alive = now;
            return Step::Sleep(at.min(self.look));
        }
        match self.party.next(now) {
            Step::Receive { into, until } => {
                self.until = until;
                Step::Receive { into, until: until.min(self.look) }
            }
            Step::Send { bytes, message } => {
                if !self.is_proved && self.given + bytes.len() as u64 > self.got {
                    self.ending = Some(Ending::Debt);
                } else if now >= *self.stalled.get_or_insert(now) + self.rules.idle {
                    self.ending = Some(Ending::Silence);
                }
                match (self.ending, paid) {
                    (Some(_), _) => Step::Sleep(now),
                    (None, Some(at)) => Step::Sleep(at),
                    (None, None) => Step::Send { bytes, message },
                }
            }
            step => step,
        }
    }

    #[inline]
    fn sent(&mut self, bytes: usize, at: Time) {
        self.given += bytes as u64;
        self.stalled = None;
        if self.is_reliable && bytes > 0 {
            self.alive = at;
        }
        if let Some(meter) = &self.meter {
            meter.pay(bytes as u64, at);
        }
        self.party.sent(bytes, at);
    }

    #[inline]
    fn arriving(&mut self, bytes: u64, longest: usize, now: Time) {
        self.got += bytes;
        if self.has_messages && longest > self.rules.message_bytes {
            self.ending = Some(Ending::Message);
        }
        if let Some(meter) = &self.meter {
            // What a stream brought is taken; the next piece waits.
            self.is_beyond = !self.is_reliable && meter.ready(now).is_some();
            if !self.is_beyond {
                meter.pay(bytes, now);
            }
        }
    }

    #[inline]
    fn received(&mut self, now: Time) {
        self.alive = now;
        if self.is_beyond || self.ending.is_some() {
            return;
        }
        self.party.received(now);
        self.introduce();
    }

    fn waits(&mut self, now: Time, unacknowledged: Option<u64>) {
        self.party.waits(now, unacknowledged);
    }

    fn timed_out(&mut self, now: Time) {
        if now >= self.until {
            self.party.timed_out(now);
        }
    }

    fn closed(&mut self, now: Time) -> Result<(), Fault> {
        self.party.closed(now)
    }

    fn reopened(&mut self, outcome: Result<(), Fault>, now: Time) -> Result<(), Fault> {
        self.party.reopened(outcome, now)
    }

    fn standing(&self) -> Standing {
        self.party.standing()
    }

    fn refusal(&self) -> Option<&str> {
        self.ending.map(Ending::reason).or_else(|| self.party.refusal())
    }

    fn farewell(&mut self) -> &'static [u8] {
        self.party.farewell()
    }

    fn ended(&mut self, cost: Cost) {
        self.party.ended(cost);
    }
}

#[cfg(test)]
mod tests;
