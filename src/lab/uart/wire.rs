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
use crate::link::serial_line::SerialSettings;

/// When the receiving side hands over what has come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryMode {
    /// At the end of a run of characters, and within one as often as this (zero: each character by itself).
    Batch(Duration),
    /// As a 16550 does: when so many characters are in, or when nothing came for so many character times.
    Fifo { trigger: u32, idle_characters: u32 },
    /// As a USB adapter does: when 62 characters are in, or when the timer runs out that starts again with each
    /// packet.
    Timer(Duration),
}

/// Characters of a full packet: the 64 bytes of a USB full-speed packet without the two that tell the line's state.
pub const USB_PACKET_CHARACTERS: u64 = 62;

/// How often a run of characters is handed over where nobody asked for something else.
pub const DEFAULT_BATCH_INTERVAL: Duration = Duration::from_millis(1);

/// Characters that can wait for the line: the transmit buffer of Linux's serial drivers (a page).
const MIN_QUEUE_CHARACTERS: usize = 4096;

/// Fast lines can queue so much time instead, so that a pause of this process does not become one of the line.
const MIN_QUEUE_TIME: Duration = Duration::from_millis(40);

/// What will be handed over next, unless something happens before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextDelivery {
    pub at: Time,
    /// Nothing follows: somebody may be waiting for just this.
    pub ends_run: bool,
}

/// Characters that follow each other on the line without a gap and at one rate.
#[derive(Debug, Clone)]
struct CharacterRun {
    settings: SerialSettings,
    /// When its first character begins; [`Time::NEVER`] while the line is held.
    start: Time,
    length: u64,
    /// Of them handed over already.
    delivered: u64,
    /// Goes even while the line is held.
    is_priority: bool,
}

impl CharacterRun {
    fn remaining(&self) -> u64 {
        self.length - self.delivered
    }
}

/// Characters on the line and in front of it.
pub struct Wire {
    is_paced: bool,
    delivery: DeliveryMode,
    runs: VecDeque<CharacterRun>,
    /// All characters of all runs that were not handed over.
    characters: VecDeque<u8>,
    /// When the line had nothing more to carry.
    free_at: Time,
    is_held: bool,
    /// When something was to be handed over last.
    last_delivery: Time,
}

impl Wire {
    /// An idle line; where it is not `paced` characters take no time.
    pub fn new(paced: bool, hand_over: DeliveryMode, now: Time) -> Wire {
        Wire {
            is_paced: paced,
            delivery: hand_over,
            runs: VecDeque::new(),
            characters: VecDeque::new(),
            free_at: now,
            is_held: false,
            last_delivery: now,
        }
    }

    /// How many characters may be offered now.
    pub fn free_characters(&self, settings: &SerialSettings) -> usize {
        let fast = characters_within(settings, MIN_QUEUE_TIME).min(1 << 20) as usize;
        MIN_QUEUE_CHARACTERS.max(fast).saturating_sub(self.characters.len())
    }

    /// Characters that the sender hands to the line, at the settings it has now.
    pub fn offer(&mut self, characters: &[u8], settings: &SerialSettings, now: Time) {
        if characters.is_empty() {
            return;
        }
        self.characters.extend(characters);
        let length = characters.len() as u64;
        let start = if self.is_held { Time::NEVER } else { self.end_of_queue().max(now) };
        let busy = |end: Time| if self.is_held { end == Time::NEVER } else { end > now };
        let goes_on = self.is_paced && busy(self.end_of_queue());
        match self.runs.back_mut() {
            Some(last) if goes_on && last.settings == *settings && !last.is_priority => last.length += length,
            _ => self.runs.push_back(CharacterRun {
                settings: *settings,
                start,
                length,
                delivered: 0,
                is_priority: false,
            }),
        }
    }

    /// A character that does not wait behind those that have not begun, nor for a held line: XON and XOFF.
    pub fn offer_priority(&mut self, character: u8, settings: &SerialSettings, now: Time) {
        let begun = self.split_runs(now);
        let ahead = self.runs.range(begun..).take_while(|run| run.is_priority).count();
        let next = begun + ahead;
        let before: u64 = self.runs.range(..next).map(CharacterRun::remaining).sum();
        self.characters.insert(before as usize, character);
        let run = CharacterRun {
            settings: *settings,
            start: Time::NEVER,
            length: 1,
            delivered: 0,
            is_priority: true,
        };
        self.runs.insert(next, run);
        self.restart_runs(next, now);
    }

    /// Stops the line after the character that is on it, or lets it go on.
    pub fn set_held(&mut self, held: bool, at: Time) {
        if self.is_held != held {
            let next = self.split_runs(at);
            self.is_held = held;
            self.restart_runs(next, at);
        }
    }

    /// Throws away the characters that have not begun; returns how many.
    pub fn flush(&mut self, now: Time) -> u64 {
        let next = self.split_runs(now);
        let dropped: u64 = self.runs.drain(next..).map(|run| run.length).sum();
        self.characters.truncate(self.characters.len() - dropped as usize);
        dropped
    }

    /// When something is to be handed over next, if nothing happens before.
    pub fn next_delivery(&self) -> Option<NextDelivery> {
        let at = match self.delivery {
            _ if !self.is_paced => self.end_of_character(1)?,
            DeliveryMode::Batch(batch) => {
                let first = self.end_of_character(1)?;
                let tick = first.0.next_multiple_of((batch.as_nanos() as u64).max(1));
                self.end_of_character(self.characters_ended_by(Time(tick)))?
            }
            DeliveryMode::Fifo { trigger, idle_characters } => {
                self.fifo_due(trigger.into(), idle_characters.into())?
            }
            DeliveryMode::Timer(period) => {
                let waited = self.end_of_character(1)?.since(self.last_delivery).as_nanos() as u64;
                let period = (period.as_nanos() as u64).max(1);
                let fires =
                    self.last_delivery + Duration::from_nanos(waited.next_multiple_of(period).max(period));
                self.end_of_character(USB_PACKET_CHARACTERS).map_or(fires, |full| full.min(fires))
            }
        };
        Some(NextDelivery { at, ends_run: at >= self.end_before_run(self.runs.len()) })
    }

    /// Takes what is due by now, one hand-over at a time: the settings each part was sent at, and its characters.
    /// Returns when it was due; call until nothing is.
    pub fn deliver(&mut self, now: Time, mut take: impl FnMut(&SerialSettings, &[u8])) -> Option<Time> {
        let due = self.next_delivery().filter(|due| due.at <= now)?;
        let mut count = self.characters_ended_by(due.at);
        while count > 0 {
            let run = self.runs.front_mut()?;
            let taken = count.min(run.remaining());
            run.delivered += taken;
            count -= taken;
            let (one, other) = self.characters.as_slices();
            let split = one.len().min(taken as usize);
            take(&run.settings, &one[..split]);
            take(&run.settings, &other[..taken as usize - split]);
            self.characters.drain(..taken as usize);
            if run.remaining() == 0 {
                self.free_at = self.end_of_run(0);
                self.runs.pop_front();
            }
        }
        self.last_delivery = due.at;
        Some(due.at)
    }

    /// When a 16550 with this trigger raises its interrupt: full enough, or nothing came for a while.
    fn fifo_due(&self, trigger: u64, idle: u64) -> Option<Time> {
        let mut held = 0;
        let mut over: Option<Time> = None;
        let begins = |run: &CharacterRun| run.start != Time::NEVER && run.remaining() > 0;
        for (index, run) in self.runs.iter().enumerate().filter(|(_, run)| begins(run)) {
            if let Some(over) = over.filter(|over| *over < self.end_within_run(run, run.delivered + 1)) {
                return Some(over);
            }
            let left = run.remaining();
            if held + left >= trigger {
                return Some(self.end_within_run(run, run.delivered + trigger - held));
            }
            held += left;
            over = Some(self.end_of_run(index) + self.time_of(&run.settings, idle));
        }
        over
    }

    /// When the n-th character from here is through; `None` if there is none or the line is held before it.
    fn end_of_character(&self, mut n: u64) -> Option<Time> {
        for run in &self.runs {
            let left = run.remaining();
            if n <= left {
                return Some(self.end_within_run(run, run.delivered + n)).filter(|at| *at != Time::NEVER);
            }
            n -= left;
        }
        None
    }

    /// How many of the characters from here are through at that time.
    fn characters_ended_by(&self, at: Time) -> u64 {
        let through =
            |run: &CharacterRun| self.ended_within_run(run, at).min(run.length).saturating_sub(run.delivered);
        self.runs.iter().take_while(|run| run.start <= at).map(through).sum()
    }

    /// When a run's n-th character is through.
    fn end_within_run(&self, run: &CharacterRun, n: u64) -> Time {
        run.start + self.time_of(&run.settings, n)
    }

    fn time_of(&self, settings: &SerialSettings, characters: u64) -> Duration {
        if self.is_paced { settings.transmission_time(characters) } else { Duration::ZERO }
    }

    /// How many characters of a run would be through at that time, were it long enough.
    fn ended_within_run(&self, run: &CharacterRun, at: Time) -> u64 {
        if !self.is_paced {
            return run.length;
        }
        characters_within(&run.settings, at.since(run.start))
    }

    fn end_of_run(&self, index: usize) -> Time {
        let run = &self.runs[index];
        self.end_within_run(run, run.length)
    }

    /// When the last character before a run is through.
    fn end_before_run(&self, index: usize) -> Time {
        // Those that the line is held before have no end.
        let begun = (0..index).rev().find(|&index| self.runs[index].start != Time::NEVER);
        begun.map_or(self.free_at, |index| self.end_of_run(index))
    }

    /// When the last of all characters is through; never while the line is held before it.
    fn end_of_queue(&self) -> Time {
        self.runs.len().checked_sub(1).map_or(self.free_at, |last| self.end_of_run(last))
    }

    /// Puts a border between the characters that have begun by now and the others; returns the index of the first run
    /// behind it.
    fn split_runs(&mut self, now: Time) -> usize {
        for index in 0..self.runs.len() {
            let run = &self.runs[index];
            if run.start >= now {
                return index;
            }
            // The one that is on the line counts as begun.
            let through = self.ended_within_run(run, now).min(run.length);
            let begun = through + u64::from(through < run.length && self.end_within_run(run, through) < now);
            if begun < run.length {
                let rest = CharacterRun { length: run.length - begun, delivered: 0, ..run.clone() };
                self.runs[index].length = begun;
                self.runs.insert(index + 1, rest);
                self.restart_runs(index + 1, now);
                return index + 1;
            }
        }
        self.runs.len()
    }

    /// Has the runs from here on, none of which has begun, begin one after the other: as soon as the line is free, or
    /// not until it is let go.
    fn restart_runs(&mut self, from: usize, now: Time) {
        for index in from..self.runs.len() {
            let start = self.end_before_run(index).max(now);
            let run = &mut self.runs[index];
            run.start = if self.is_held && !run.is_priority { Time::NEVER } else { start };
        }
    }
}

/// How many whole characters fit into a time: what [`SerialSettings::transmission_time`] turns round.
fn characters_within(settings: &SerialSettings, time: Duration) -> u64 {
    let halves = time.as_nanos() * 2 * u128::from(settings.baud.max(1));
    u64::try_from(halves / (u128::from(settings.half_bits()) * 1_000_000_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
