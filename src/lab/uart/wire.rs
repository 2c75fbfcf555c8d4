//! One direction of a serial line: when each character is through, and when it is handed over.
//!
//! A state machine that is told the time; nothing here waits, reads a clock or a file. What happens to the bits on the
//! way is `noise`'s business, what becomes of the characters at the end `inbox`'s.
//!
//! A character begins when the one before it has ended, or when it is offered if the line is free, and ends one
//! character time later. Ends are counted from where a run of characters began, in whole numbers, so that however long
//! the run and however late anybody looks, nothing drifts.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::Time;
use crate::link::line::Settings;

/// When the receiving side hands over what has come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandOver {
    /// At the end of a run of characters, and within one as often as this (zero: each character by itself).
    Batch(Duration),
    /// As a 16550 does: when so many characters are in, or when nothing came for so many character times.
    Fifo { trigger: u32, idle_characters: u32 },
    /// As a USB adapter does: when 62 characters are in, or when the timer runs out that starts again with each
    /// packet.
    Timer(Duration),
}

/// Characters of a full packet: the 64 bytes of a USB full-speed packet without the two that tell the line's state.
pub const PACKET: u64 = 62;

/// How often a run of characters is handed over where nobody asked for something else.
pub const BATCH: Duration = Duration::from_millis(1);

/// Characters that can wait for the line: the transmit buffer of Linux's serial drivers (a page).
const QUEUE: usize = 4096;

/// Fast lines can queue so much time instead, so that a pause of this process does not become one of the line.
const QUEUE_TIME: Duration = Duration::from_millis(40);

/// What will be handed over next, unless something happens before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    pub at: Time,
    /// Nothing follows: somebody may be waiting for just this.
    pub ends_run: bool,
}

/// Characters that follow each other on the line without a gap and at one rate.
#[derive(Debug, Clone)]
struct Run {
    settings: Settings,
    /// When its first character begins; [`Time::NEVER`] while the line is held.
    start: Time,
    length: u64,
    /// Of them handed over already.
    handed: u64,
    /// Goes even while the line is held.
    first: bool,
}

impl Run {
    fn left(&self) -> u64 {
        self.length - self.handed
    }
}

/// Characters on the line and in front of it.
pub struct Wire {
    paced: bool,
    hand_over: HandOver,
    runs: VecDeque<Run>,
    /// All characters of all runs that were not handed over.
    characters: VecDeque<u8>,
    /// When the line had nothing more to carry.
    free: Time,
    held: bool,
    /// When something was to be handed over last.
    last: Time,
}

impl Wire {
    /// An idle line; where it is not `paced` characters take no time.
    pub fn new(paced: bool, hand_over: HandOver, now: Time) -> Wire {
        Wire {
            paced,
            hand_over,
            runs: VecDeque::new(),
            characters: VecDeque::new(),
            free: now,
            held: false,
            last: now,
        }
    }

    /// How many characters may be offered now.
    pub fn room(&self, settings: &Settings) -> usize {
        let fast = count(settings, QUEUE_TIME).min(1 << 20) as usize;
        QUEUE.max(fast).saturating_sub(self.characters.len())
    }

    /// Characters that the sender hands to the line, at the settings it has now.
    pub fn offer(&mut self, characters: &[u8], settings: &Settings, now: Time) {
        if characters.is_empty() {
            return;
        }
        self.characters.extend(characters);
        let length = characters.len() as u64;
        let start = if self.held { Time::NEVER } else { self.end().max(now) };
        let busy = |end: Time| if self.held { end == Time::NEVER } else { end > now };
        let goes_on = self.paced && busy(self.end());
        match self.runs.back_mut() {
            Some(last) if goes_on && last.settings == *settings && !last.first => last.length += length,
            _ => self.runs.push_back(Run { settings: *settings, start, length, handed: 0, first: false }),
        }
    }

    /// A character that does not wait behind those that have not begun, nor for a held line: XON and XOFF.
    pub fn offer_first(&mut self, character: u8, settings: &Settings, now: Time) {
        let begun = self.cut(now);
        let ahead = self.runs.range(begun..).take_while(|run| run.first).count();
        let next = begun + ahead;
        let before: u64 = self.runs.range(..next).map(Run::left).sum();
        self.characters.insert(before as usize, character);
        let run = Run { settings: *settings, start: Time::NEVER, length: 1, handed: 0, first: true };
        self.runs.insert(next, run);
        self.begin(next, now);
    }

    /// Stops the line after the character that is on it, or lets it go on.
    pub fn hold(&mut self, held: bool, at: Time) {
        if self.held != held {
            let next = self.cut(at);
            self.held = held;
            self.begin(next, at);
        }
    }

    /// Throws away the characters that have not begun; returns how many.
    pub fn flush(&mut self, now: Time) -> u64 {
        let next = self.cut(now);
        let dropped: u64 = self.runs.drain(next..).map(|run| run.length).sum();
        self.characters.truncate(self.characters.len() - dropped as usize);
        dropped
    }

    /// When something is to be handed over next, if nothing happens before.
    pub fn due(&self) -> Option<Due> {
        let at = match self.hand_over {
            _ if !self.paced => self.through(1)?,
            HandOver::Batch(batch) => {
                let first = self.through(1)?;
                let tick = first.0.next_multiple_of((batch.as_nanos() as u64).max(1));
                self.through(self.through_by(Time(tick)))?
            }
            HandOver::Fifo { trigger, idle_characters } => {
                self.fifo(trigger.into(), idle_characters.into())?
            }
            HandOver::Timer(period) => {
                let waited = self.through(1)?.since(self.last).as_nanos() as u64;
                let period = (period.as_nanos() as u64).max(1);
                let fires = self.last + Duration::from_nanos(waited.next_multiple_of(period).max(period));
                self.through(PACKET).map_or(fires, |full| full.min(fires))
            }
        };
        Some(Due { at, ends_run: at >= self.end_before(self.runs.len()) })
    }

    /// Takes what is due by now, one hand-over at a time: the settings each part was sent at, and its characters.
    /// Returns when it was due; call until nothing is.
    pub fn take(&mut self, now: Time, mut take: impl FnMut(&Settings, &[u8])) -> Option<Time> {
        let due = self.due().filter(|due| due.at <= now)?;
        let mut count = self.through_by(due.at);
        while count > 0 {
            let run = self.runs.front_mut()?;
            let taken = count.min(run.left());
            run.handed += taken;
            count -= taken;
            let (one, other) = self.characters.as_slices();
            let split = one.len().min(taken as usize);
            take(&run.settings, &one[..split]);
            take(&run.settings, &other[..taken as usize - split]);
            self.characters.drain(..taken as usize);
            if run.left() == 0 {
                self.free = self.end_of(0);
                self.runs.pop_front();
            }
        }
        self.last = due.at;
        Some(due.at)
    }

    /// When a 16550 with this trigger raises its interrupt: full enough, or nothing came for a while.
    fn fifo(&self, trigger: u64, idle: u64) -> Option<Time> {
        let mut held = 0;
        let mut over: Option<Time> = None;
        let begins = |run: &Run| run.start != Time::NEVER && run.left() > 0;
        for (index, run) in self.runs.iter().enumerate().filter(|(_, run)| begins(run)) {
            if let Some(over) = over.filter(|over| *over < self.through_in(run, run.handed + 1)) {
                return Some(over);
            }
            let left = run.left();
            if held + left >= trigger {
                return Some(self.through_in(run, run.handed + trigger - held));
            }
            held += left;
            over = Some(self.end_of(index) + self.time_of(&run.settings, idle));
        }
        over
    }

    /// When the n-th character from here is through; `None` if there is none or the line is held before it.
    fn through(&self, mut n: u64) -> Option<Time> {
        for run in &self.runs {
            let left = run.left();
            if n <= left {
                return Some(self.through_in(run, run.handed + n)).filter(|at| *at != Time::NEVER);
            }
            n -= left;
        }
        None
    }

    /// How many of the characters from here are through at that time.
    fn through_by(&self, at: Time) -> u64 {
        let through = |run: &Run| self.count_in(run, at).min(run.length).saturating_sub(run.handed);
        self.runs.iter().take_while(|run| run.start <= at).map(through).sum()
    }

    /// When a run's n-th character is through.
    fn through_in(&self, run: &Run, n: u64) -> Time {
        run.start + self.time_of(&run.settings, n)
    }

    fn time_of(&self, settings: &Settings, characters: u64) -> Duration {
        if self.paced { settings.time_of(characters) } else { Duration::ZERO }
    }

    /// How many characters of a run would be through at that time, were it long enough.
    fn count_in(&self, run: &Run, at: Time) -> u64 {
        if !self.paced {
            return run.length;
        }
        count(&run.settings, at.since(run.start))
    }

    fn end_of(&self, index: usize) -> Time {
        let run = &self.runs[index];
        self.through_in(run, run.length)
    }

    /// When the last character before a run is through.
    fn end_before(&self, index: usize) -> Time {
        // Those that the line is held before have no end.
        let begun = (0..index).rev().find(|&index| self.runs[index].start != Time::NEVER);
        begun.map_or(self.free, |index| self.end_of(index))
    }

    /// When the last of all characters is through; never while the line is held before it.
    fn end(&self) -> Time {
        self.runs.len().checked_sub(1).map_or(self.free, |last| self.end_of(last))
    }

    /// Puts a border between the characters that have begun by now and the others; returns the index of the first run
    /// behind it.
    fn cut(&mut self, now: Time) -> usize {
        for index in 0..self.runs.len() {
            let run = &self.runs[index];
            if run.start >= now {
                return index;
            }
            // The one that is on the line counts as begun.
            let through = self.count_in(run, now).min(run.length);
            let begun = through + u64::from(through < run.length && self.through_in(run, through) < now);
            if begun < run.length {
                let rest = Run { length: run.length - begun, handed: 0, ..run.clone() };
                self.runs[index].length = begun;
                self.runs.insert(index + 1, rest);
                self.begin(index + 1, now);
                return index + 1;
            }
        }
        self.runs.len()
    }

    /// Has the runs from here on, none of which has begun, begin one after the other: as soon as the line is free, or
    /// not until it is let go.
    fn begin(&mut self, from: usize, now: Time) {
        for index in from..self.runs.len() {
            let start = self.end_before(index).max(now);
            let run = &mut self.runs[index];
            run.start = if self.held && !run.first { Time::NEVER } else { start };
        }
    }
}

/// How many whole characters fit into a time: what [`Settings::time_of`] turns round.
fn count(settings: &Settings, time: Duration) -> u64 {
    let halves = time.as_nanos() * 2 * u128::from(settings.baud.max(1));
    u64::try_from(halves / (u128::from(settings.half_bits()) * 1_000_000_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
