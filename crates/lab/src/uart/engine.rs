//! The thread of all ports: waits for programs and for the next delivery, and moves characters.
//!
//! `wire` decides when a delivery is due, and `receive_queue` what a full receiver does. This module connects both to
//! the pseudo-terminals.

use std::io;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::FrameOverride;
use super::due_queue::{DueQueue, NOTHING_DUE};
use super::early_wake::EarlyWake;
use super::noise::{LineDefects, NoiseSource};
use super::receive_queue::{ReceiveQueue, StopMethod};
use super::wire::{CharacterTiming, NextDelivery, Wire};
use linkgauge_engine::host::cpu;
use linkgauge_engine::link::serial_line::{FlowControl, SerialSettings, XOFF, XON};
use linkgauge_model::clock::{Clock, Time};
use linkgauge_system::{Errno, EventFlags, EventQueue, Events, Pty, PtyPacket, WakeEvent};

/// A full terminal is tried again after this time, although it should signal free space.
const RETRY_INTERVAL: Duration = Duration::from_millis(4);

/// Maximum result of one read from a pseudo-terminal: the packet-mode byte and a terminal's buffer.
const READ_BUFFER_BYTES: usize = 4096;

/// Counters of one end of a line.
#[derive(Debug, Clone)]
pub struct UartCounters {
    /// Characters sent on the line.
    pub sent: u64,
    /// Characters that arrived for the program.
    pub received: u64,
    /// Characters lost because the program did not read them and flow control did not stop the sender.
    pub overruns: u64,
    /// Defects of the characters sent from here.
    pub defects: LineDefects,
    /// Lateness of deliveries of characters sent from here, in nanoseconds, one entry per delivery.
    pub lateness: Histogram<u64>,
    /// Deliveries that were late by more than a character time.
    pub late_deliveries: u64,
}

impl Default for UartCounters {
    fn default() -> UartCounters {
        // Two digits up to ten seconds: 28 kB.
        let lateness = Histogram::new_with_bounds(1, 10_000_000_000, 2);
        UartCounters {
            sent: 0,
            received: 0,
            overruns: 0,
            defects: LineDefects::default(),
            lateness: lateness.expect("constant bounds within the histogram's own limits"),
            late_deliveries: 0,
        }
    }
}

impl UartCounters {
    /// Adds the counters of another terminal.
    pub fn merge(&mut self, other: &UartCounters) {
        self.sent += other.sent;
        self.received += other.received;
        self.overruns += other.overruns;
        self.defects.changed += other.defects.changed;
        self.defects.parity += other.defects.parity;
        self.defects.framing += other.defects.framing;
        self.defects.lost += other.defects.lost;
        self.defects.breaks += other.defects.breaks;
        self.lateness.add(&other.lateness).expect("both have the same bounds");
        self.late_deliveries += other.late_deliveries;
    }
}

/// A terminal, the line that leaves it, and the characters waiting for its program.
pub(crate) struct LineEnd {
    pub(crate) pty: Pty,
    pub(crate) wire: Wire,
    pub(crate) noise: NoiseSource,
    /// The other end of its line.
    pub(crate) peer_index: usize,
    settings: SerialSettings,
    inbox: ReceiveQueue,
    /// XOFF arrived, so its line waits for XON.
    is_xoff: bool,
    /// The terminal may have data for us.
    is_readable: bool,
    /// The data includes a packet-mode notice, which does not wait for room.
    has_notice: bool,
    /// Time to retry a terminal that was full.
    retry_at: Time,
    counters: UartCounters,
}

impl LineEnd {
    pub fn new(pty: Pty, wire: Wire, disturber: NoiseSource, other: usize) -> LineEnd {
        LineEnd {
            pty,
            wire,
            noise: disturber,
            peer_index: other,
            settings: SerialSettings::default(),
            inbox: ReceiveQueue::default(),
            is_xoff: false,
            is_readable: true,
            has_notice: true,
            retry_at: Time::NEVER,
            counters: UartCounters::default(),
        }
    }

    /// Discards written data that has no room on the line yet. When a program flushes, the kernel discards data on its
    /// way to the master, but not data that has reached it.
    fn discard_written(&self, buffer: &mut [u8]) {
        let mut left = self.pty.unread_bytes();
        while left > 0 {
            match self.pty.read(&mut buffer[..left.min(READ_BUFFER_BYTES - 1) + 1]) {
                Ok(length) if length > 1 => left = left.saturating_sub(length - 1),
                _ => return,
            }
        }
    }

    fn into_counters(mut self) -> UartCounters {
        self.counters.overruns = self.inbox.overruns;
        self.counters.defects = self.noise.defects;
        self.counters
    }
}

/// All ends and their due times.
pub(crate) struct UartEngine {
    ends: Vec<LineEnd>,
    due: DueQueue,
    frame_override: FrameOverride,
    /// A sender never causes an overrun, whatever its settings.
    is_lossless: bool,
    events: EventQueue,
    clock: Clock,
    early_wake: EarlyWake,
    buffer: Vec<u8>,
    arrived: Vec<u8>,
}

/// Whether characters wait for free space in the terminal of an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waiting {
    Nothing,
    Characters,
}

/// Maximum events of one wait.
const MAX_EVENTS: usize = 64;

/// Identifies the stop event.
const STOP_EVENT: u64 = u64::MAX;

/// A write by a terminal's program wakes us once. A flag stays set until all data is read.
const WAKE_EVENTS: EventFlags = EventFlags::IN.union(EventFlags::PRI).union(EventFlags::ET);

impl UartEngine {
    /// The engine ends when `stop` becomes readable.
    pub fn new(
        ends: Vec<LineEnd>,
        frame: FrameOverride,
        timing: CharacterTiming,
        stop: &WakeEvent,
        clock: Clock,
    ) -> io::Result<UartEngine> {
        let events = EventQueue::new()?;
        events.add(stop, STOP_EVENT, EventFlags::IN)?;
        for (index, end) in ends.iter().enumerate() {
            events.add(&end.pty.master, index as u64, WAKE_EVENTS)?;
        }
        Ok(UartEngine {
            due: DueQueue::new(ends.len()),
            ends,
            frame_override: frame,
            is_lossless: timing == CharacterTiming::Immediate,
            events,
            early_wake: EarlyWake::new(clock.now()),
            clock,
            buffer: vec![0; READ_BUFFER_BYTES],
            arrived: Vec::with_capacity(READ_BUFFER_BYTES),
        })
    }

    /// Runs until it is stopped. Returns the counters of each end.
    pub(crate) fn run(mut self) -> io::Result<Vec<UartCounters>> {
        // If refused, timers are slightly later, which is measured.
        let _ = cpu::set_timer_slack_ns(1);
        let mut events = Events::new();
        loop {
            self.wait_for_events(&mut events)?;
            for (number, flags) in events.iter() {
                if number == STOP_EVENT {
                    return Ok(self.ends.into_iter().map(LineEnd::into_counters).collect());
                }
                let index = number as usize;
                let end = &mut self.ends[index];
                end.is_readable |= flags.intersects(EventFlags::IN | EventFlags::PRI);
                end.has_notice |= flags.contains(EventFlags::PRI);
                if flags.contains(EventFlags::OUT) {
                    end.retry_at = Time(0);
                }
                self.read_program(index)?;
                self.schedule_end(index);
            }
            let now = self.clock.now();
            while let Some(index) = self.due.pop_due(now) {
                self.serve_end(index)?;
            }
        }
    }

    /// Waits until something is due, or for an earlier event.
    fn wait_for_events(&mut self, events: &mut Events<MAX_EVENTS>) -> io::Result<()> {
        events.clear();
        let due = self.due.earliest();
        let now = self.clock.now();
        if due.at <= now {
            return self.poll_events(events);
        }
        let early = if due.ends_run { self.early_wake.lead_time(now) } else { Duration::ZERO };
        let until = Time(due.at.0.saturating_sub(early.as_nanos() as u64));
        if until > now {
            // Not the timeout of the queue, which is in milliseconds on older kernels.
            match self.events.wait_exactly(until.since(now)) {
                Ok(false) => self.early_wake.record_wake(self.clock.now().since(until)),
                Ok(true) => return self.poll_events(events),
                Err(Errno::INTR) => return Ok(()),
                Err(errno) => return Err(errno.into()),
            }
        }
        if early > Duration::ZERO {
            let began = self.clock.now();
            let mut now = began;
            while now < due.at && events.is_empty() {
                self.poll_events(events)?;
                now = self.clock.now();
            }
            self.early_wake.record_busy_poll(now.since(began));
        }
        Ok(())
    }

    /// Collects events without waiting.
    fn poll_events(&self, events: &mut Events<MAX_EVENTS>) -> io::Result<()> {
        match self.events.wait(events, Duration::ZERO) {
            Ok(()) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Updates the next due time of an end.
    fn schedule_end(&mut self, index: usize) {
        let end = &self.ends[index];
        let wire = end.wire.next_delivery().unwrap_or(NOTHING_DUE);
        let retry = NextDelivery { at: end.retry_at, ends_run: false };
        self.due.set(index, if retry.at < wire.at { retry } else { wire });
    }

    /// Serves an end.
    fn serve_end(&mut self, index: usize) -> io::Result<()> {
        if self.ends[index].retry_at <= self.clock.now() {
            self.write_program(index)?;
        }
        self.deliver_characters(index)?;
        // There is room now for data that the program could not write before.
        self.read_program(index)?;
        self.schedule_end(index);
        Ok(())
    }

    /// Reads the program's data as far as the line has room, and handles its flush requests.
    fn read_program(&mut self, index: usize) -> io::Result<()> {
        loop {
            let end = &mut self.ends[index];
            let room = end.wire.free_characters(&end.settings).min(READ_BUFFER_BYTES - 1);
            if !end.is_readable || (room == 0 && !end.has_notice) {
                return Ok(());
            }
            let length = match end.pty.read(&mut self.buffer[..room + 1]) {
                Ok(length) => length,
                Err(Errno::INTR) => continue,
                // Reported by a master whose terminal is not open anywhere. We hold ours open.
                Err(Errno::AGAIN | Errno::IO) => 0,
                Err(errno) => return Err(errno.into()),
            };
            let now = self.clock.now();
            // Data that arrives after a partial read triggers an event.
            let packet = PtyPacket::parse(&self.buffer[..length]);
            let is_notice = matches!(packet, PtyPacket::Notice { .. });
            end.is_readable = is_notice || length > room;
            end.has_notice &= is_notice;
            match packet {
                PtyPacket::Nothing => {}
                PtyPacket::Data(_) => {
                    let settings = end
                        .pty
                        .settings()
                        .map_or(end.settings, |settings| self.frame_override.apply_to(settings));
                    self.apply_settings(index, settings, now);
                    self.ends[index].wire.offer(&self.buffer[1..length], &settings, now);
                }
                PtyPacket::Notice { is_read_flushed: flush_read, is_write_flushed: flush_write } => {
                    if flush_write {
                        end.wire.flush(now);
                        if room == 0 {
                            end.discard_written(&mut self.buffer);
                        }
                    }
                    if flush_read {
                        end.inbox.flush();
                        self.resume_sender(index, now);
                    }
                }
            }
        }
    }

    /// Applies the program's settings.
    fn apply_settings(&mut self, index: usize, settings: SerialSettings, now: Time) {
        let end = &mut self.ends[index];
        end.settings = settings;
        if end.is_xoff && settings.flow_control != FlowControl::XonXoff {
            end.is_xoff = false;
            self.update_hold(index, now);
        }
    }

    /// Delivers the characters that are due on the line from an end.
    fn deliver_characters(&mut self, index: usize) -> io::Result<()> {
        let other = self.ends[index].peer_index;
        if other != index && self.due.next_of(index).at != Time::NEVER {
            let end = &mut self.ends[other];
            end.settings =
                end.pty.settings().map_or(end.settings, |settings| self.frame_override.apply_to(settings));
        }
        let receiver = (other != index).then(|| self.ends[other].settings);
        loop {
            let now = self.clock.now();
            self.arrived.clear();
            let end = &mut self.ends[index];
            let (mut count, mut character) = (0, Duration::ZERO);
            let due = end.wire.deliver(now, |sent, characters| {
                count += characters.len() as u64;
                character = sent.transmission_time(1);
                end.noise.transmit(sent, receiver.as_ref().unwrap_or(sent), characters, &mut self.arrived);
            });
            let Some(due) = due else { return Ok(()) };
            let late = now.since(due);
            end.counters.sent += count;
            end.counters.late_deliveries += u64::from(late > character);
            end.counters.lateness.saturating_record((late.as_nanos() as u64).max(1));
            self.receive_characters(other, due)?;
        }
    }

    /// Characters arrive at an end at time `at`.
    fn receive_characters(&mut self, index: usize, at: Time) -> io::Result<()> {
        let mut arrived = std::mem::take(&mut self.arrived);
        if self.ends[index].settings.flow_control == FlowControl::XonXoff {
            let last = arrived.iter().rev().find(|character| matches!(**character, XON | XOFF));
            if let Some(last) = last {
                self.ends[index].is_xoff = *last == XOFF;
                self.update_hold(index, self.clock.now());
                self.schedule_end(index);
                arrived.retain(|character| !matches!(*character, XON | XOFF));
            }
        }
        let holds = self.can_hold_sender(index);
        let end = &mut self.ends[index];
        let before = end.inbox.overruns;
        let mut rest = &arrived[..];
        while end.inbox.is_empty() && !rest.is_empty() {
            match end.pty.write(rest) {
                Ok(count) if count > 0 => rest = &rest[count..],
                Err(Errno::INTR) => {}
                Ok(_) | Err(Errno::AGAIN) => {
                    self.watch_for_room(index, Waiting::Characters)?;
                    break;
                }
                Err(errno) => return Err(errno.into()),
            }
        }
        let end = &mut self.ends[index];
        end.inbox.push(rest, holds);
        end.counters.received += arrived.len() as u64 - (end.inbox.overruns - before);
        self.arrived = arrived;
        if self.ends[index].inbox.should_stop_sender() {
            self.stop_sender(index, at);
        }
        Ok(())
    }

    /// Writes waiting characters to the program.
    fn write_program(&mut self, index: usize) -> io::Result<()> {
        let end = &mut self.ends[index];
        loop {
            let waiting = end.inbox.front();
            if waiting.is_empty() {
                break;
            }
            match end.pty.write(waiting) {
                Ok(count) if count > 0 => end.inbox.remove_written(count),
                Err(Errno::INTR) => {}
                Ok(_) | Err(Errno::AGAIN) => break,
                Err(errno) => return Err(errno.into()),
            }
        }
        let waiting = if end.inbox.is_empty() { Waiting::Nothing } else { Waiting::Characters };
        self.resume_sender(index, self.clock.now());
        self.watch_for_room(index, waiting)
    }

    /// Enables events for free space in an end's terminal while characters wait for it.
    fn watch_for_room(&mut self, index: usize, waiting: Waiting) -> io::Result<()> {
        let for_room = waiting == Waiting::Characters;
        let end = &mut self.ends[index];
        let listened = end.retry_at != Time::NEVER;
        end.retry_at = if for_room { self.clock.now() + RETRY_INTERVAL } else { Time::NEVER };
        if listened != for_room {
            let flags = if for_room { WAKE_EVENTS | EventFlags::OUT } else { WAKE_EVENTS };
            self.events.modify(&end.pty.master, index as u64, flags)?;
        }
        self.schedule_end(index);
        Ok(())
    }

    /// Whether the sender to an end stops in time: with hardware flow control, or in lossless mode.
    fn can_hold_sender(&self, index: usize) -> bool {
        let end = &self.ends[index];
        let both = [end, &self.ends[end.peer_index]].map(|end| end.settings.flow_control);
        self.is_lossless || both == [FlowControl::RtsCts; 2]
    }

    /// Stops the sender to an end, if it uses flow control.
    fn stop_sender(&mut self, index: usize, at: Time) {
        let end = &self.ends[index];
        let (other, settings) = (end.peer_index, end.settings);
        if self.can_hold_sender(index) {
            self.ends[index].inbox.stop_method = Some(StopMethod::HoldLine);
            self.update_hold(other, at);
        } else if settings.flow_control == FlowControl::XonXoff {
            let end = &mut self.ends[index];
            end.inbox.stop_method = Some(StopMethod::Xoff);
            end.wire.offer_priority(XOFF, &settings, self.clock.now());
            self.schedule_end(index);
        }
    }

    /// Resumes the sender to an end, if there is room again.
    fn resume_sender(&mut self, index: usize, now: Time) {
        let end = &mut self.ends[index];
        match end.inbox.take_resumable() {
            None => {}
            Some(StopMethod::HoldLine) => {
                let other = end.peer_index;
                self.update_hold(other, now);
                self.schedule_end(other);
            }
            Some(StopMethod::Xoff) => {
                let settings = end.settings;
                end.wire.offer_priority(XON, &settings, now);
                self.schedule_end(index);
            }
        }
    }

    /// Holds or releases the line from an end, as both ends require.
    fn update_hold(&mut self, index: usize, at: Time) {
        let end = &self.ends[index];
        let held = end.is_xoff || self.ends[end.peer_index].inbox.stop_method == Some(StopMethod::HoldLine);
        self.ends[index].wire.set_held(held, at);
    }
}
