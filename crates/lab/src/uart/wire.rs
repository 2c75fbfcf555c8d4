//! One direction of a serial line: when each character ends, and when it is delivered.
//!
//! A state machine that is given the time. It does not wait and reads no clock and no file. `noise` changes bits, and
//! `receive_queue` handles received characters.
//!
//! A character starts when the previous one ends, or when it is offered to an idle line, and lasts one character time.
//! Times are computed in integers from the start of a run of characters, so long runs and late calls cause no drift.

use std::collections::VecDeque;
use std::time::Duration;

use linkgauge_engine::link::serial_line::SerialSettings;
use linkgauge_model::clock::Time;

/// Time for which characters are on the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CharacterTiming {
    /// Time by the rate and the frame.
    LineRate,
    /// Bytes arrive immediately, and no sender causes an overrun.
    Immediate,
}

/// Times at which the receiving side delivers received characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryMode {
    /// Delivery at the end of a run of characters, and during a run at this interval (zero: each character separately).
    Batch(Duration),
    /// Delivery of a 16550: after `trigger` characters, or after `idle_characters` character times of silence.
    Fifo {
        /// Characters that cause an interrupt.
        trigger: u32,
        /// Character times of silence that cause one.
        idle_characters: u32,
    },
    /// Delivery of a USB adapter: after 62 characters, or when the timer expires, which restarts with each packet.
    Timer(Duration),
}

/// Characters of a full packet: the 64 bytes of a USB full-speed packet minus two bytes of line status.
pub(crate) const USB_PACKET_CHARACTERS: u64 = 62;

/// Default interval between deliveries during a run.
pub const DEFAULT_BATCH_INTERVAL: Duration = Duration::from_millis(1);

/// Default interval for this number of ports: with many ports the system calls of more deliveries would take all CPU time.
pub fn default_batch_interval(ports: u32) -> Duration {
    DEFAULT_BATCH_INTERVAL * ports.div_ceil(100).max(1)
}

/// Minimum capacity of the transmit queue in characters: the buffer of Linux's serial drivers (a page).
const MIN_QUEUE_CHARACTERS: usize = 4096;

/// Minimum capacity in time, for fast lines, so that a pause of this process does not become one of the line.
const MIN_QUEUE_TIME: Duration = Duration::from_millis(40);

/// The next delivery, if no event precedes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextDelivery {
    /// The time of the delivery.
    pub at: Time,
    /// Whether nothing follows, so that a program may be waiting for this delivery.
    pub(crate) ends_run: bool,
}

/// Consecutive characters on the line, without a pause and at one rate.
#[derive(Debug, Clone)]
struct CharacterRun {
    settings: SerialSettings,
    /// Start of the first character; [`Time::NEVER`] while the line is held.
    start: Time,
    length: u64,
    /// Characters already delivered.
    delivered: u64,
    /// Whether the run is sent even while the line is held.
    is_priority: bool,
}

impl CharacterRun {
    fn remaining(&self) -> u64 {
        self.length - self.delivered
    }
}

/// Characters on the line and in the queue in front of it.
pub struct Wire {
    timing: CharacterTiming,
    delivery: DeliveryMode,
    runs: VecDeque<CharacterRun>,
    /// Characters of all runs that are not delivered yet.
    characters: VecDeque<u8>,
    /// Time when the line became idle.
    free_at: Time,
    is_held: bool,
    /// Time of the last delivery.
    last_delivery: Time,
}

impl Wire {
    /// An idle line.
    pub fn new(timing: CharacterTiming, delivery: DeliveryMode, now: Time) -> Wire {
        Wire {
            timing,
            delivery,
            runs: VecDeque::new(),
            characters: VecDeque::new(),
            free_at: now,
            is_held: false,
            last_delivery: now,
        }
    }

    fn is_paced(&self) -> bool {
        self.timing == CharacterTiming::LineRate
    }

    /// Number of characters that the line accepts now.
    pub fn free_characters(&self, settings: &SerialSettings) -> usize {
        let fast = characters_within(settings, MIN_QUEUE_TIME).min(1 << 20) as usize;
        MIN_QUEUE_CHARACTERS.max(fast).saturating_sub(self.characters.len())
    }

    /// Queues characters at the sender's current settings.
    pub fn offer(&mut self, characters: &[u8], settings: &SerialSettings, now: Time) {
        if characters.is_empty() {
            return;
        }
        self.characters.extend(characters);
        let length = characters.len() as u64;
        let start = if self.is_held { Time::NEVER } else { self.end_of_queue().max(now) };
        let busy = |end: Time| if self.is_held { end == Time::NEVER } else { end > now };
        let goes_on = self.is_paced() && busy(self.end_of_queue());
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

    /// Sends a character before those that have not started, even on a held line: XON and XOFF.
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

    /// Holds the line after the current character, or releases it.
    pub fn set_held(&mut self, held: bool, at: Time) {
        if self.is_held != held {
            let next = self.split_runs(at);
            self.is_held = held;
            self.restart_runs(next, at);
        }
    }

    /// Discards characters that have not started. Returns their number.
    pub fn flush(&mut self, now: Time) -> u64 {
        let next = self.split_runs(now);
        let dropped: u64 = self.runs.drain(next..).map(|run| run.length).sum();
        self.characters.truncate(self.characters.len() - dropped as usize);
        dropped
    }

    /// The next delivery, if no event precedes it.
    pub(crate) fn next_delivery(&self) -> Option<NextDelivery> {
        let at = match self.delivery {
            _ if !self.is_paced() => self.end_of_character(1)?,
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

    /// Delivers the characters that are due, one delivery per call: `take` gets the settings and characters of each
    /// part. Returns the due time. Call again until it returns `None`.
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

    /// Time when a 16550 with this trigger raises its interrupt: by fill level or by idle time.
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

    /// End of the n-th character from here; `None` if it does not exist or is behind a held line.
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

    /// Number of characters from here that have ended by `at`.
    fn characters_ended_by(&self, at: Time) -> u64 {
        let through =
            |run: &CharacterRun| self.ended_within_run(run, at).min(run.length).saturating_sub(run.delivered);
        self.runs.iter().take_while(|run| run.start <= at).map(through).sum()
    }

    /// End of a run's n-th character.
    fn end_within_run(&self, run: &CharacterRun, n: u64) -> Time {
        run.start + self.time_of(&run.settings, n)
    }

    fn time_of(&self, settings: &SerialSettings, characters: u64) -> Duration {
        if self.is_paced() { settings.transmission_time(characters) } else { Duration::ZERO }
    }

    /// Number of characters of a run that would end by `at` if the run were long enough.
    fn ended_within_run(&self, run: &CharacterRun, at: Time) -> u64 {
        if !self.is_paced() {
            return run.length;
        }
        characters_within(&run.settings, at.since(run.start))
    }

    fn end_of_run(&self, index: usize) -> Time {
        let run = &self.runs[index];
        self.end_within_run(run, run.length)
    }

    /// End of the last character before a run.
    fn end_before_run(&self, index: usize) -> Time {
        // Characters behind a held line have no end.
        let begun = (0..index).rev().find(|&index| self.runs[index].start != Time::NEVER);
        begun.map_or(self.free_at, |index| self.end_of_run(index))
    }

    /// End of the last character; never if it is behind a held line.
    fn end_of_queue(&self) -> Time {
        self.runs.len().checked_sub(1).map_or(self.free_at, |last| self.end_of_run(last))
    }

    /// Splits a run between started characters and the others. Returns the index of the first run that has not
    /// started.
    fn split_runs(&mut self, now: Time) -> usize {
        for index in 0..self.runs.len() {
            let run = &self.runs[index];
            if run.start >= now {
                return index;
            }
            // The character on the line counts as started.
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

    /// Schedules the runs from `from` on, none of which has started: in sequence from when the line is idle, or at
    /// [`Time::NEVER`] while it is held.
    fn restart_runs(&mut self, from: usize, now: Time) {
        for index in from..self.runs.len() {
            let start = self.end_before_run(index).max(now);
            let run = &mut self.runs[index];
            run.start = if self.is_held && !run.is_priority { Time::NEVER } else { start };
        }
    }
}

/// Number of whole characters that fit into a time: the inverse of [`SerialSettings::transmission_time`].
fn characters_within(settings: &SerialSettings, time: Duration) -> u64 {
    let halves = time.as_nanos() * 2 * u128::from(settings.baud.max(1));
    u64::try_from(halves / (u128::from(settings.half_bits()) * 1_000_000_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
