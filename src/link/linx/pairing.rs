//! Two nodes and what is between them: one connection, on which all endpoints of this one talk to those of the other.
//!
//! Whoever waits for a message reads the connection, and hands out what is for others. So a lone receiver needs nobody
//! to wake it. If several wait, one of them reads for all; one that has read for others only leaves it to them. The
//! thread that stays with the connection sees to what is due and reads only when nobody else does.
//!
//! A message for a mailbox that is full stays where it is, and so does everything behind it: memory is bounded, and
//! the far node's system holds its senders.

use std::ops::Deref;
use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
    fence,
};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::Builder;
use std::time::Duration;

use super::super::{Facts, Fault};
use super::Ending;
use super::book::{Book, Service, greeting};
use super::carrier::{Carrier, Control, Incoming, Item, Outgoing};
use super::mailbox::{FINISHED, Mailbox, PAYLOAD, Room, Style};
use crate::clock::{Clock, Time};
use crate::plan::Wait;

/// The keeper looks around at least this often, and so does whoever waits for another to read.
const TICK: Duration = Duration::from_millis(100);

/// How long the end of a connection may take. A real node does not notice that we have gone before it misses our answers
/// to two of its pings, 2 s later at most; only then does it close its side.
pub const LAST_WORDS: Duration = Duration::from_secs(3);

/// The keeper's needs.
const STACK: usize = 128 * 1024;

/// Told of each client that comes, and of the end.
pub type Arrivals = dyn Fn(Option<(Arc<Pairing>, Arc<Mailbox>)>) + Send + Sync;

/// A connection as long as somebody uses it. The last user closes it, and has seen it closed when it goes on: a process
/// that ended before would reset the connection instead, and real nodes take a reset badly.
pub struct Pairing(Arc<Core>);

impl Deref for Pairing {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.0
    }
}

/// What the users of a connection and its keeper work on.
pub struct Core {
    clock: Clock,
    reading: Mutex<Box<dyn Incoming>>,
    writing: Mutex<Box<dyn Outgoing>>,
    control: Arc<dyn Control>,
    book: Mutex<Book>,
    arrivals: Option<Box<Arrivals>>,
    this: OnceLock<Weak<Pairing>>,
    /// Somebody is reading.
    led: AtomicBool,
    /// Our address whose mailbox is full; 0: none.
    stuck: AtomicU32,
    /// The keeper's rounds, and the one in which somebody read last.
    round: AtomicU32,
    read_in: AtomicU32,
    /// Those who wait for another to read: all, and those who would read themselves.
    waiters: AtomicUsize,
    ready: AtomicUsize,
    turn: Mutex<()>,
    free: Condvar,
    changed: Condvar,
    over: OnceLock<Ending>,
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What came of an attempt to read.
enum Led {
    /// Nothing in the time allowed.
    InVain,
    /// Something has changed: look again.
    Again,
    /// Another should read.
    Follow,
}

/// What was found in what has come.
#[derive(Default)]
struct Found {
    /// Something for whoever asked.
    mine: bool,
    /// Something for another.
    other: bool,
    /// Something that others may wait for.
    news: bool,
}

impl Pairing {
    /// Takes a connection over and starts its keeper.
    pub fn start(
        carrier: Carrier,
        clock: &Clock,
        service: Option<Service>,
        arrivals: Option<Box<Arrivals>>,
    ) -> Result<Arc<Pairing>, Fault> {
        let Carrier { incoming, outgoing, control } = carrier;
        let core = Arc::new(Core {
            clock: clock.clone(),
            reading: Mutex::new(incoming),
            writing: Mutex::new(outgoing),
            control,
            book: Mutex::new(Book::new(service)),
            arrivals,
            this: OnceLock::new(),
            led: AtomicBool::new(false),
            stuck: AtomicU32::new(0),
            round: AtomicU32::new(2),
            read_in: AtomicU32::new(0),
            waiters: AtomicUsize::new(0),
            ready: AtomicUsize::new(0),
            turn: Mutex::new(()),
            free: Condvar::new(),
            changed: Condvar::new(),
            over: OnceLock::new(),
        });
        let pairing = Arc::new(Pairing(core.clone()));
        let _ = core.this.set(Arc::downgrade(&pairing));
        core.settle();
        Builder::new()
            .name("linx keeper".to_owned())
            .stack_size(STACK)
            .spawn(move || keep(&core))
            .map_err(Fault::system("start a thread"))?;
        Ok(pairing)
    }
}

impl Drop for Pairing {
    fn drop(&mut self) {
        self.leave(self.clock.now() + LAST_WORDS);
    }
}

impl Core {
    /// Nobody uses the connection any more: lets the last words through and closes it, at the latest then.
    pub fn leave(&self, until: Time) {
        if self.over.set(Ending::Closed).is_err() {
            return;
        }
        self.notify();
        {
            let mut outgoing = lock(&self.writing);
            let _ = outgoing.flush(Wait::Block, until.since(self.clock.now()));
        }
        self.control.close(until);
    }

    pub fn is_over(&self) -> bool {
        self.over.get().is_some()
    }

    /// Whether another link may use the connection.
    pub fn is_usable(&self) -> bool {
        !self.is_over() && !self.control.is_closed_by_node()
    }

    fn fault(&self) -> Option<Fault> {
        self.over.get().map(Ending::fault)
    }

    fn end(&self, ending: Ending) -> Fault {
        let _ = self.over.set(ending);
        self.control.abort();
        self.notify();
        if let Some(arrivals) = &self.arrivals {
            arrivals(None);
        }
        self.fault().unwrap_or(Fault::Closed)
    }

    /// A failed operation of the socket ends the connection; one that took too long does not.
    fn judge(&self, fault: Fault) -> Fault {
        match fault {
            Fault::TimedOut => Fault::TimedOut,
            Fault::Closed => self.end(Ending::Closed),
            fault => self.end(Ending::System(fault.to_string())),
        }
    }

    /// Something has come: wakes whoever waits for another to read.
    fn notify(&self) {
        fence(SeqCst);
        if self.waiters.load(SeqCst) > 0 {
            drop(lock(&self.turn));
            self.changed.notify_all();
            self.free.notify_all();
        }
    }

    /// Nobody reads: wakes those who would.
    fn release(&self) {
        fence(SeqCst);
        if self.ready.load(SeqCst) > 0 {
            drop(lock(&self.turn));
            self.free.notify_all();
        }
    }

    /// Sends what is owed, unless somebody is sending: that one will.
    fn settle(&self) {
        while self.control.owes() {
            let Ok(mut outgoing) = self.writing.try_lock() else { return };
            if let Err(fault) = outgoing.flush(Wait::Block, Duration::ZERO) {
                drop(outgoing);
                self.judge(fault);
                return;
            }
        }
    }

    /// Does something with the book and sends what comes of it.
    pub fn with_book<T>(&self, act: impl FnOnce(&mut Book) -> T) -> T {
        let (result, arrived) = {
            let mut book = lock(&self.book);
            let result = act(&mut book);
            self.say(&mut book);
            (result, std::mem::take(&mut book.arrived))
        };
        self.settle();
        self.admit(arrived);
        result
    }

    fn say(&self, book: &mut Book) {
        for message in book.said.drain(..) {
            self.control.say(0, 0, &message.write());
        }
        for mailbox in &book.arrived {
            if let Some(signal) = greeting(mailbox) {
                self.control.say(mailbox.own, mailbox.partner(), &signal);
            }
        }
    }

    /// Clients have come.
    fn admit(&self, arrived: Vec<Arc<Mailbox>>) {
        for mailbox in arrived {
            match (&self.arrivals, self.this.get().and_then(Weak::upgrade)) {
                (Some(arrivals), Some(this)) => arrivals(Some((this, mailbox))),
                _ => self.close(mailbox.own),
            }
        }
    }

    // ---- receiving ----

    /// Receives for the owner of a mailbox.
    pub fn receive(
        &self,
        mailbox: &Mailbox,
        room: &mut Room,
        wait: Wait,
        within: Duration,
    ) -> Result<(), Fault> {
        let (mut left, mut until) = (within, None);
        loop {
            let ended = mailbox.is_ended();
            if mailbox.has_mail() {
                mailbox.take(room);
                mailbox.stir();
                self.unstick(mailbox);
            }
            if room.has_some() {
                return Ok(());
            }
            if ended {
                return Err(Fault::Closed);
            }
            if let Some(fault) = self.fault() {
                return Err(fault);
            }
            match self.try_lead(Some((mailbox, room)), wait, left) {
                // What came before the end has come.
                Err(_) if room.has_some() => {}
                Err(fault) => return Err(fault),
                Ok(Led::Again) => {}
                Ok(Led::InVain | Led::Follow) if left.is_zero() => return Err(Fault::TimedOut),
                Ok(Led::InVain) => {}
                Ok(Led::Follow) => self.follow(mailbox, left),
            }
            if room.has_some() {
                return Ok(());
            }
            let now = self.clock.now();
            left = until.get_or_insert(now + within).since(now);
        }
    }

    /// The mailbox was full and is no longer: reading can go on.
    fn unstick(&self, mailbox: &Mailbox) {
        if self.stuck.load(SeqCst) == mailbox.own && mailbox.has_room() {
            self.stuck.store(0, SeqCst);
            self.notify();
        }
    }

    /// Whether the owner of a mailbox should read.
    fn may_lead(&self, mailbox: Option<&Mailbox>) -> bool {
        let nobody = || self.round.load(Relaxed).wrapping_sub(self.read_in.load(Relaxed)) > 1;
        self.stuck.load(SeqCst) == 0 && (mailbox.is_none_or(|mailbox| !mailbox.is_patient()) || nobody())
    }

    /// Reads, if it is our turn.
    fn try_lead(
        &self,
        asked: Option<(&Mailbox, &mut Room)>,
        wait: Wait,
        left: Duration,
    ) -> Result<Led, Fault> {
        if !self.may_lead(asked.as_ref().map(|(mailbox, _)| *mailbox)) {
            return Ok(Led::Follow);
        }
        let Ok(mut incoming) = self.reading.try_lock() else { return Ok(Led::Follow) };
        self.led.store(true, SeqCst);
        self.read_in.store(self.round.load(Relaxed), Relaxed);
        let led = self.read(incoming.as_mut(), asked, wait, left);
        self.led.store(false, SeqCst);
        drop(incoming);
        if self.control.owes() {
            self.settle();
        }
        self.release();
        led
    }

    /// Reads until something has come for us, or for another who waits.
    fn read(
        &self,
        incoming: &mut dyn Incoming,
        mut asked: Option<(&Mailbox, &mut Room)>,
        wait: Wait,
        left: Duration,
    ) -> Result<Led, Fault> {
        // What came before we had the lead lies in the mailbox.
        if asked.as_ref().is_some_and(|(mailbox, _)| mailbox.has_mail() || mailbox.is_ended()) {
            return Ok(Led::Again);
        }
        for tries in 0.. {
            let found = self.hand_out(incoming, asked.as_mut())?;
            if found.mine || asked.as_ref().is_some_and(|(mailbox, _)| mailbox.is_ended()) {
                return Ok(Led::Again);
            }
            if self.stuck.load(SeqCst) != 0 {
                return Ok(Led::Follow);
            }
            if let Some((mailbox, _)) = asked.as_ref().filter(|_| found.other)
                && mailbox.read_for_others()
            {
                return Ok(Led::Follow);
            }
            if found.news {
                return Ok(Led::Again);
            }
            if tries > 0 {
                break;
            }
            match incoming.fill(wait, left) {
                Ok(()) => {}
                Err(Fault::TimedOut) => return Ok(Led::InVain),
                // What has come before the end is still handed out.
                Err(fault) => return Err(self.judge(fault)),
            }
        }
        Ok(Led::Again)
    }

    /// Hands out what has come, as far as there is room for it.
    #[inline]
    fn hand_out(
        &self,
        incoming: &mut dyn Incoming,
        mut asked: Option<&mut (&Mailbox, &mut Room)>,
    ) -> Result<Found, Fault> {
        let mut found = Found::default();
        let mut book = lock(&self.book);
        loop {
            let (source, destination, bytes) = match incoming.peek().map_err(|ending| self.end(ending))? {
                None => break,
                Some(Item::Up) => {
                    let Book { node, said, .. } = &mut *book;
                    node.start(said);
                    incoming.advance();
                    continue;
                }
                Some(Item::Message { source, destination, bytes }) => (source, destination, bytes),
            };
            if destination == 0 {
                found.news |= book.control(bytes).map_err(|ending| self.end(ending))?;
            } else if let Some(mailbox) = book.mailbox(source, destination, bytes) {
                if let Some(message) = mailbox.open(source, bytes) {
                    match &mut asked {
                        Some((asked, room)) if asked.own == mailbox.own => {
                            if !room.put(message) {
                                break;
                            }
                            found.mine = true;
                            mailbox.stir();
                        }
                        _ if !mailbox.push(message) => {
                            self.stuck.store(mailbox.own, SeqCst);
                            break;
                        }
                        _ => found.other = true,
                    }
                } else if mailbox.is_ended() {
                    found.news = true;
                }
            }
            incoming.advance();
        }
        self.say(&mut book);
        let arrived = std::mem::take(&mut book.arrived);
        drop(book);
        if !arrived.is_empty() {
            self.admit(arrived);
        }
        if found.news || found.other {
            self.notify();
        }
        Ok(found)
    }

    /// Waits until something comes that another has read, or it is our turn to read.
    fn follow(&self, mailbox: &Mailbox, left: Duration) {
        let would_read = !mailbox.is_patient();
        self.waiters.fetch_add(1, SeqCst);
        self.ready.fetch_add(usize::from(would_read), SeqCst);
        let turn = lock(&self.turn);
        let ready = mailbox.has_mail()
            || mailbox.is_ended()
            || self.is_over()
            || self.may_lead(Some(mailbox)) && !self.led.load(SeqCst);
        if !ready {
            let condition = if would_read { &self.free } else { &self.changed };
            drop(condition.wait_timeout(turn, left.min(TICK)));
        }
        self.ready.fetch_sub(usize::from(would_read), SeqCst);
        self.waiters.fetch_sub(1, SeqCst);
    }

    /// Waits until the book gives something, reading meanwhile if nobody else does.
    pub fn await_book<T>(
        &self,
        within: Duration,
        mut ready: impl FnMut(&mut Book) -> Option<T>,
    ) -> Result<T, Fault> {
        let until = self.clock.now() + within;
        loop {
            if let Some(fault) = self.fault() {
                return Err(fault);
            }
            if let Some(result) = self.with_book(&mut ready) {
                return Ok(result);
            }
            let left = until.since(self.clock.now());
            if left.is_zero() {
                return Err(Fault::TimedOut);
            }
            if let Led::Follow = self.try_lead(None, Wait::Block, left.min(TICK))? {
                self.waiters.fetch_add(1, SeqCst);
                let turn = lock(&self.turn);
                // Whoever reads meanwhile tells of news; a moment later we look for ourselves.
                drop(self.changed.wait_timeout(turn, left.min(TICK / 20)));
                self.waiters.fetch_sub(1, SeqCst);
            }
        }
    }

    // ---- sending ----

    /// Sends messages of `message` bytes that lie end to end; returns the bytes taken.
    #[inline]
    pub fn send(
        &self,
        mailbox: &Mailbox,
        messages: &[u8],
        message: usize,
        wait: Wait,
        within: Duration,
    ) -> Result<usize, Fault> {
        if let Some(fault) = self.fault() {
            return Err(fault);
        }
        if mailbox.is_gone() {
            return Err(Fault::Closed);
        }
        let number = PAYLOAD.to_be_bytes();
        let head = if mailbox.style == Style::Numbered { &number[..] } else { &[] };
        let partner = mailbox.partner();
        mailbox.stir();
        let mut outgoing = lock(&self.writing);
        let put = |outgoing: &mut dyn Outgoing| {
            let (mut taken, mut any) = (0, false);
            loop {
                let rest = &messages[taken..];
                let one = &rest[..rest.len().min(message)];
                if !outgoing.put(mailbox.own, partner, head, one) {
                    return any.then_some(taken);
                }
                (taken, any) = (taken + one.len(), true);
                if taken == messages.len() || one.is_empty() {
                    return Some(taken);
                }
            }
        };
        let taken = match put(outgoing.as_mut()) {
            Some(taken) => taken,
            None => {
                // Full of what went before.
                outgoing.flush(wait, within).map_err(|fault| self.judge(fault))?;
                put(outgoing.as_mut()).ok_or(Fault::TimedOut)?
            }
        };
        match outgoing.flush(wait, within) {
            // The rest goes before anything else does.
            Ok(()) | Err(Fault::TimedOut) => {}
            Err(fault) => return Err(self.judge(fault)),
        }
        drop(outgoing);
        if self.control.owes() {
            self.settle();
        }
        Ok(taken)
    }

    /// The partner is told that nothing more will come, where it understands that.
    pub fn finish(&self, mailbox: &Mailbox) {
        if mailbox.style == Style::Numbered && !mailbox.is_gone() && !self.is_over() {
            self.control.say(mailbox.own, mailbox.partner(), &FINISHED.to_be_bytes());
            self.settle();
        }
    }

    /// An endpoint of ours is gone.
    pub fn close(&self, own: u32) {
        self.with_book(|book| book.close(own));
        let _ = self.stuck.compare_exchange(own, 0, SeqCst, SeqCst);
        self.notify();
    }

    pub fn stop_serving(&self) {
        self.with_book(Book::stop_serving);
    }

    pub fn facts(&self) -> Facts {
        let mut facts = Facts::new();
        self.control.facts(&mut facts);
        facts
    }

    // ---- keeping ----

    /// One round of the keeper; how long it may rest, and whether it should read.
    fn round(&self) -> (Duration, bool) {
        let now = self.clock.now();
        let due = self.control.tick(now).unwrap_or_else(|ending| {
            self.end(ending);
            Time::NEVER
        });
        if let Ok(mut outgoing) = self.writing.try_lock() {
            // What a full socket did not take.
            if let Err(fault) = outgoing.flush(Wait::Block, Duration::ZERO) {
                self.judge(fault);
            }
        }
        let round = self.round.fetch_add(1, Relaxed);
        let idle = round.wrapping_sub(self.read_in.load(Relaxed)) > 1 && !self.led.load(SeqCst);
        (due.since(now).min(TICK), idle && self.stuck.load(SeqCst) == 0)
    }

    /// Reads what has come, if nobody else does.
    fn drain(&self) {
        if let Ok(mut incoming) = self.reading.try_lock() {
            self.led.store(true, SeqCst);
            // A fault has been told to everybody.
            while self.hand_out(incoming.as_mut(), None).is_ok()
                && self.stuck.load(SeqCst) == 0
                && match incoming.fill(Wait::Block, Duration::ZERO) {
                    Ok(()) => true,
                    Err(Fault::TimedOut) => false,
                    Err(fault) => {
                        self.judge(fault);
                        false
                    }
                }
            {}
            self.led.store(false, SeqCst);
        }
        self.settle();
        self.notify();
    }
}

/// The thread that stays with a connection until it is over.
fn keep(core: &Core) {
    while !core.is_over() {
        let (rest, reads) = core.round();
        if !reads {
            core.clock.sleep_until(core.clock.now() + rest);
        } else if core.control.wait(rest) && !core.is_over() {
            core.drain();
        }
    }
}
