//! The thread behind all ports: waits for programs and for the next hand-over, and moves characters.
//!
//! When is what due is decided by `wire`, what a full receiver means by `inbox`; here they meet the pseudo-terminals.

use std::os::fd::OwnedFd;
use std::time::Duration;

use hdrhistogram::Histogram;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::Frame;
use super::inbox::{Inbox, Stopped};
use super::noise::{Defects, Disturber};
use super::pause::Pause;
use super::wire::{Due, Wire};
use crate::clock::{Clock, Time};
use crate::host::cpu;
use crate::link::line::{Flow, Settings, XOFF, XON};
use crate::link::tty::{Packet, Pty};

/// Nothing is due.
const NOTHING: Due = Due { at: Time::NEVER, ends_run: false };

/// A terminal that had no room is tried again after this, though it should say when it has.
const AGAIN: Duration = Duration::from_millis(4);

/// The most that one read from a pseudo-terminal gives: the notice and a terminal's buffer.
const READ: usize = 4096;

/// What one end of a line has seen.
#[derive(Debug, Clone)]
pub struct Tally {
    /// Characters that left on the line.
    pub sent: u64,
    /// Characters that arrived for the program.
    pub received: u64,
    /// Characters lost because the program did not read them and nothing stopped the sender.
    pub overruns: u64,
    /// What the line did to the characters that left here.
    pub defects: Defects,
    /// How late characters that left here were handed over, in nanoseconds, one entry a hand-over.
    pub lateness: Histogram<u64>,
    /// Hand-overs that were late by more than a character takes.
    pub late: u64,
}

impl Default for Tally {
    fn default() -> Tally {
        // Two digits up to ten seconds: 28 kB.
        let lateness = Histogram::new_with_bounds(1, 10_000_000_000, 2);
        Tally {
            sent: 0,
            received: 0,
            overruns: 0,
            defects: Defects::default(),
            lateness: lateness.expect("constant bounds within the histogram's own limits"),
            late: 0,
        }
    }
}

impl Tally {
    pub fn merge(&mut self, other: &Tally) {
        self.sent += other.sent;
        self.received += other.received;
        self.overruns += other.overruns;
        self.defects.changed += other.defects.changed;
        self.defects.parity += other.defects.parity;
        self.defects.framing += other.defects.framing;
        self.defects.lost += other.defects.lost;
        self.defects.breaks += other.defects.breaks;
        self.lateness.add(&other.lateness).expect("both have the same bounds");
        self.late += other.late;
    }
}

/// A terminal, the line that leaves it, and what waits for its program.
pub struct End {
    pub pty: Pty,
    pub wire: Wire,
    pub disturber: Disturber,
    /// Where its line leads, and where what it receives comes from.
    pub other: usize,
    settings: Settings,
    inbox: Inbox,
    /// XOFF arrived: its line waits for XON.
    xoff: bool,
    /// The terminal has something for us, as far as is known.
    readable: bool,
    /// A notice among it, that does not wait for room.
    notice: bool,
    /// When to try a terminal again that had no room.
    again: Time,
    tally: Tally,
}

impl End {
    pub fn new(pty: Pty, wire: Wire, disturber: Disturber, other: usize) -> End {
        End {
            pty,
            wire,
            disturber,
            other,
            settings: Settings::default(),
            inbox: Inbox::default(),
            xoff: false,
            readable: true,
            notice: true,
            again: Time::NEVER,
            tally: Tally::default(),
        }
    }

    /// Throws away what the program wrote but did not find room on the line: the kernel drops what is on its way to the
    /// master when a program flushes, but not what has reached it.
    fn discard(&self, buffer: &mut [u8]) {
        let mut left = rustix::io::ioctl_fionread(&self.pty.master).unwrap_or(0) as usize;
        while left > 0 {
            match rustix::io::read(&self.pty.master, &mut buffer[..left.min(READ - 1) + 1]) {
                Ok(length) if length > 1 => left = left.saturating_sub(length - 1),
                _ => return,
            }
        }
    }

    fn tally(mut self) -> Tally {
        self.tally.overruns = self.inbox.overruns;
        self.tally.defects = self.disturber.defects;
        self.tally
    }
}

/// All ends, and what is due at each.
pub struct Engine {
    ends: Vec<End>,
    due: Vec<Due>,
    frame: Frame,
    /// Whether a sender is never overrun, whatever its settings say.
    lossless: bool,
    epoll: OwnedFd,
    clock: Clock,
    pause: Pause,
    buffer: Vec<u8>,
    arrived: Vec<u8>,
}

/// The mark of the event that ends it all.
const STOP: u64 = u64::MAX;

/// A write to a terminal by its program wakes us once; we remember until there is nothing left.
const AWAKE: EventFlags = EventFlags::IN.union(EventFlags::PRI).union(EventFlags::ET);

impl Engine {
    /// `stop` ends the engine when it can be read.
    pub fn new(
        ends: Vec<End>,
        frame: Frame,
        lossless: bool,
        stop: &OwnedFd,
        clock: Clock,
    ) -> Result<Engine, Errno> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, stop, EventData::new_u64(STOP), EventFlags::IN)?;
        for (index, end) in ends.iter().enumerate() {
            epoll::add(&epoll, &end.pty.master, EventData::new_u64(index as u64), AWAKE)?;
        }
        Ok(Engine {
            due: vec![NOTHING; ends.len()],
            ends,
            frame,
            lossless,
            epoll,
            pause: Pause::new(clock.now()),
            clock,
            buffer: vec![0; READ],
            arrived: Vec::with_capacity(READ),
        })
    }

    /// Runs until it is stopped; what each end has seen.
    pub fn run(mut self) -> Result<Vec<Tally>, Errno> {
        // Where it is refused timers are a little later, which is measured.
        let _ = cpu::set_timer_slack_ns(1);
        let mut events: Vec<Event> = Vec::with_capacity(self.ends.len() + 1);
        loop {
            self.wait(&mut events)?;
            for event in &events {
                // Copied: the event is packed.
                let (data, flags) = (event.data, event.flags);
                if data.u64() == STOP {
                    return Ok(self.ends.into_iter().map(End::tally).collect());
                }
                let index = data.u64() as usize;
                let end = &mut self.ends[index];
                end.readable |= flags.intersects(EventFlags::IN | EventFlags::PRI);
                end.notice |= flags.contains(EventFlags::PRI);
                if flags.contains(EventFlags::OUT) {
                    end.again = Time(0);
                }
                self.read(index)?;
                self.plan(index);
            }
            let now = self.clock.now();
            for index in 0..self.ends.len() {
                if self.due[index].at <= now {
                    self.serve(index)?;
                }
            }
        }
    }

    /// Waits for the next instant at which something is due, or for an event before that.
    fn wait(&mut self, events: &mut Vec<Event>) -> Result<(), Errno> {
        events.clear();
        let due = self.due.iter().min_by_key(|due| due.at).copied().unwrap_or(NOTHING);
        let now = self.clock.now();
        if due.at <= now {
            return self.events(events);
        }
        let early = if due.ends_run { self.pause.early(now) } else { Duration::ZERO };
        let until = Time(due.at.0.saturating_sub(early.as_nanos() as u64));
        if until > now {
            let timeout = (due.at != Time::NEVER).then(|| timespec(until.since(now)));
            // Not epoll's own waiting: its time-out is in milliseconds on the kernels that all have.
            match poll(&mut [PollFd::new(&self.epoll, PollFlags::IN)], timeout.as_ref()) {
                Ok(0) => self.pause.woke(self.clock.now().since(until)),
                Ok(_) => return self.events(events),
                Err(Errno::INTR) => return Ok(()),
                Err(errno) => return Err(errno),
            }
        }
        if early > Duration::ZERO {
            let began = self.clock.now();
            let mut now = began;
            while now < due.at && events.is_empty() {
                self.events(events)?;
                now = self.clock.now();
            }
            self.pause.spun(now.since(began));
        }
        Ok(())
    }

    /// What has happened, without waiting.
    fn events(&self, events: &mut Vec<Event>) -> Result<(), Errno> {
        match epoll::wait(
            &self.epoll,
            rustix::buffer::spare_capacity(events),
            Some(&timespec(Duration::ZERO)),
        ) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Notes when an end wants to be served next.
    fn plan(&mut self, index: usize) {
        let end = &self.ends[index];
        let wire = end.wire.due().unwrap_or(NOTHING);
        self.due[index] = if end.again < wire.at { Due { at: end.again, ends_run: false } } else { wire };
    }

    /// Does what is due at an end.
    fn serve(&mut self, index: usize) -> Result<(), Errno> {
        if self.ends[index].again <= self.clock.now() {
            self.write(index)?;
        }
        self.hand_over(index)?;
        // There is room for what the program could not be rid of.
        self.read(index)?;
        self.plan(index);
        Ok(())
    }

    /// Reads what the program wrote, as far as the line has room, and what it wants to be thrown away.
    fn read(&mut self, index: usize) -> Result<(), Errno> {
        loop {
            let end = &mut self.ends[index];
            let room = end.wire.room(&end.settings).min(READ - 1);
            if !end.readable || (room == 0 && !end.notice) {
                return Ok(());
            }
            let length = match rustix::io::read(&end.pty.master, &mut self.buffer[..room + 1]) {
                Ok(length) => length,
                Err(Errno::INTR) => continue,
                // The master of a terminal that nobody has open; ours never is.
                Err(Errno::AGAIN | Errno::IO) => 0,
                Err(errno) => return Err(errno),
            };
            let now = self.clock.now();
            // What came later than a read that was not filled has made an event.
            let packet = Packet::read(&self.buffer[..length]);
            let is_notice = matches!(packet, Packet::Notice { .. });
            end.readable = is_notice || length > room;
            end.notice &= is_notice;
            match packet {
                Packet::Nothing => {}
                Packet::Data(_) => {
                    let settings =
                        end.pty.settings().map_or(end.settings, |settings| self.frame.of(settings));
                    self.set(index, settings, now);
                    self.ends[index].wire.offer(&self.buffer[1..length], &settings, now);
                }
                Packet::Notice { flush_read, flush_write } => {
                    if flush_write {
                        end.wire.flush(now);
                        if room == 0 {
                            end.discard(&mut self.buffer);
                        }
                    }
                    if flush_read {
                        end.inbox.flush();
                        self.let_go(index, now);
                    }
                }
            }
        }
    }

    /// Takes note of the settings that the program has made.
    fn set(&mut self, index: usize, settings: Settings, now: Time) {
        let end = &mut self.ends[index];
        end.settings = settings;
        if end.xoff && settings.flow != Flow::XonXoff {
            end.xoff = false;
            self.hold(index, now);
        }
    }

    /// Hands over what is due on the line that leaves an end.
    fn hand_over(&mut self, index: usize) -> Result<(), Errno> {
        let other = self.ends[index].other;
        if other != index && self.due[index].at != Time::NEVER {
            let end = &mut self.ends[other];
            end.settings = end.pty.settings().map_or(end.settings, |settings| self.frame.of(settings));
        }
        let receiver = (other != index).then(|| self.ends[other].settings);
        loop {
            let now = self.clock.now();
            self.arrived.clear();
            let end = &mut self.ends[index];
            let (mut count, mut character) = (0, Duration::ZERO);
            let due = end.wire.take(now, |sent, characters| {
                count += characters.len() as u64;
                character = sent.time_of(1);
                end.disturber.pass(sent, receiver.as_ref().unwrap_or(sent), characters, &mut self.arrived);
            });
            let Some(due) = due else { return Ok(()) };
            let late = now.since(due);
            end.tally.sent += count;
            end.tally.late += u64::from(late > character);
            end.tally.lateness.saturating_record((late.as_nanos() as u64).max(1));
            self.arrive(other, due)?;
        }
    }

    /// Characters have arrived at an end, at that time.
    fn arrive(&mut self, index: usize, at: Time) -> Result<(), Errno> {
        let mut arrived = std::mem::take(&mut self.arrived);
        if self.ends[index].settings.flow == Flow::XonXoff {
            let last = arrived.iter().rev().find(|character| matches!(**character, XON | XOFF));
            if let Some(last) = last {
                self.ends[index].xoff = *last == XOFF;
                self.hold(index, self.clock.now());
                self.plan(index);
                arrived.retain(|character| !matches!(*character, XON | XOFF));
            }
        }
        let holds = self.holds_sender(index);
        let end = &mut self.ends[index];
        let before = end.inbox.overruns;
        let mut rest = &arrived[..];
        while end.inbox.is_empty() && !rest.is_empty() {
            match rustix::io::write(&end.pty.master, rest) {
                Ok(count) if count > 0 => rest = &rest[count..],
                Err(Errno::INTR) => {}
                Ok(_) | Err(Errno::AGAIN) => {
                    self.listen(index, true)?;
                    break;
                }
                Err(errno) => return Err(errno),
            }
        }
        let end = &mut self.ends[index];
        end.inbox.put(rest, holds);
        end.tally.received += arrived.len() as u64 - (end.inbox.overruns - before);
        self.arrived = arrived;
        if self.ends[index].inbox.is_high() {
            self.stop(index, at);
        }
        Ok(())
    }

    /// Gives a program what waits for it.
    fn write(&mut self, index: usize) -> Result<(), Errno> {
        let end = &mut self.ends[index];
        loop {
            let waiting = end.inbox.front();
            if waiting.is_empty() {
                break;
            }
            match rustix::io::write(&end.pty.master, waiting) {
                Ok(count) if count > 0 => end.inbox.written(count),
                Err(Errno::INTR) => {}
                Ok(_) | Err(Errno::AGAIN) => break,
                Err(errno) => return Err(errno),
            }
        }
        let waits = !end.inbox.is_empty();
        self.let_go(index, self.clock.now());
        self.listen(index, waits)
    }

    /// Whether to wait for room in the terminal of an end.
    fn listen(&mut self, index: usize, for_room: bool) -> Result<(), Errno> {
        let end = &mut self.ends[index];
        let listened = end.again != Time::NEVER;
        end.again = if for_room { self.clock.now() + AGAIN } else { Time::NEVER };
        if listened != for_room {
            let flags = if for_room { AWAKE | EventFlags::OUT } else { AWAKE };
            epoll::modify(&self.epoll, &end.pty.master, EventData::new_u64(index as u64), flags)?;
        }
        self.plan(index);
        Ok(())
    }

    /// Whether who sends to an end can be stopped by wire.
    fn holds_sender(&self, index: usize) -> bool {
        let end = &self.ends[index];
        let both = [end, &self.ends[end.other]].map(|end| end.settings.flow);
        self.lossless || both == [Flow::RtsCts; 2]
    }

    /// Stops whoever sends to an end, if he lets himself be stopped.
    fn stop(&mut self, index: usize, at: Time) {
        let end = &self.ends[index];
        let (other, settings) = (end.other, end.settings);
        if self.holds_sender(index) {
            self.ends[index].inbox.stopped = Some(Stopped::Line);
            self.hold(other, at);
        } else if settings.flow == Flow::XonXoff {
            let end = &mut self.ends[index];
            end.inbox.stopped = Some(Stopped::Xoff);
            end.wire.offer_first(XOFF, &settings, self.clock.now());
            self.plan(index);
        }
    }

    /// Lets whoever sends to an end go on, if there is room again.
    fn let_go(&mut self, index: usize, now: Time) {
        let end = &mut self.ends[index];
        match end.inbox.lets_go() {
            None => {}
            Some(Stopped::Line) => {
                let other = end.other;
                self.hold(other, now);
                self.plan(other);
            }
            Some(Stopped::Xoff) => {
                let settings = end.settings;
                end.wire.offer_first(XON, &settings, now);
                self.plan(index);
            }
        }
    }

    /// Has the line that leaves an end stand or go, as those at its ends want it.
    fn hold(&mut self, index: usize, at: Time) {
        let end = &self.ends[index];
        let held = end.xoff || self.ends[end.other].inbox.stopped == Some(Stopped::Line);
        self.ends[index].wire.hold(held, at);
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec { tv_sec: duration.as_secs() as i64, tv_nsec: i64::from(duration.subsec_nanos()) }
}
