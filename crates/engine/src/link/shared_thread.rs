//! Runs many parties in one thread: waits until one of their links is ready or a time is reached, and then performs the
//! steps of that party with the same [`perform_step`] as a party with a thread of its own.
//!
//! It needs links with a descriptor; the others keep a thread ([`Link::descriptor`]). Once a party is added, running it
//! allocates nothing.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use super::party::{Party, PartyCost, StepMode, StepOutcome, Tuning, perform_step};
pub use super::waker::Waker;
use super::{Caps, Fault, Framing, Link, prefetch};
use crate::host::cpu;
use linkgauge_model::clock::{Clock, Time};
use linkgauge_model::traffic::WaitMode;
use linkgauge_system::{AsHandle, EventFlags, EventQueue, Events};

/// A party on its link, as a shared thread runs it.
pub trait Member {
    /// The party and its link.
    fn ends(&mut self) -> (&mut dyn Party, &mut dyn Link);

    /// Decides about the thread after the party has tuned its link.
    ///
    /// # Errors
    ///
    /// The thread cannot be set up as requested. This ends the party.
    fn place(&mut self, tuning: &Tuning) -> Result<ThreadChoice, Fault>;

    /// Asks the CPU to load what [`Member::ends`] reads besides the member itself.
    fn prefetch_ends(&self) {}
}

/// Place where a party continues after it has tuned its link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThreadChoice {
    /// The party stays in the shared thread, which waits in this way for all its links.
    Stay(WaitMode),
    /// The party gets a separate thread.
    Leave,
}

/// A member that the thread does not run any more.
pub enum Departure<M> {
    /// The party has ended; [`Party::on_ended`] has been called.
    Ended {
        /// The member.
        member: M,
        /// The share of the thread's work.
        cost: Box<PartyCost>,
        /// The fault of the party or of the link that ended the party.
        result: Result<(), Fault>,
    },
    /// The party continues elsewhere, with this tuning still to be applied.
    Moved {
        /// The member.
        member: M,
        /// Tuning that the party requested.
        tuning: Tuning,
    },
}

/// Method by which the thread learns that a link has no more input, and kind of input that the events report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EndOfInput {
    /// A receive gets nothing: several messages may have arrived together. The events report input as long as there is some.
    FailedReceive,
    /// The thread does not ask: after one receive, the events report the input that is left.
    NextEvents,
    /// A receive gets less than it has room for. The events report only new input, which takes the kernel less time.
    ShortReceive,
}

impl EndOfInput {
    fn of(caps: &Caps) -> EndOfInput {
        match caps.framing {
            Framing::Message => EndOfInput::FailedReceive,
            Framing::Stream if caps.is_exhausted_by_short_transfer => EndOfInput::ShortReceive,
            Framing::Stream => EndOfInput::NextEvents,
        }
    }
}

/// Event that a member waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Awaited {
    Input,
    Output,
    /// The next opening of the link.
    Opening,
    Time,
}

/// One member and its state. Fields that each turn uses come first.
#[repr(C)]
struct Place<M> {
    awaited: Awaited,
    /// Event of this link that the event descriptor watches.
    watched: Option<Awaited>,
    is_queued: bool,
    mode: StepMode,
    /// Method by which a step shows that the link has no more input.
    end_of_input: EndOfInput,
    /// The remote has closed the link or it failed: that is read after the last input.
    is_ending: bool,
    /// The member runs again at this time at the latest.
    wake_at: Time,
    /// The time of its entry in the timer queue; an entry with another time is void.
    timer_at: Time,
    /// Time of this member's steps.
    busy: Duration,
    member: M,
    /// The reading of the whole thread when it was added.
    added: ThreadUse,
}

/// Resources that the thread has used so far.
#[derive(Debug, Clone, Copy, Default)]
struct ThreadUse {
    cpu_seconds: f64,
    busy_polled: Duration,
    /// Time of the steps of all members.
    busy: Duration,
}

/// The parties of one thread.
pub struct SharedThread<M> {
    events: EventQueue,
    waker: Waker,
    /// Earliest time at which all members take a step again.
    next_sweep: Time,
    /// The member whose steps are performed now.
    running: Option<u32>,
    clock: Clock,
    places: Vec<Option<Place<M>>>,
    free: Vec<u32>,
    timers: BinaryHeap<Reverse<(Time, u32)>>,
    queue: VecDeque<u32>,
    is_busy_polling: bool,
    busy_polled: Duration,
    busy: Duration,
}

/// Steps of one member before the next one's turn, and the time after which it takes no further step: short, because the
/// others wait, and because the remote shall receive the bytes of this turn while they are in the caches.
const STEPS_PER_TURN: u32 = 16;
const TURN_TIME: Duration = Duration::from_micros(20);

/// Pause between sweeps, for each member: a step takes a tenth of it at most, so however many sessions begin and end, their sweeps
/// leave time for the work.
const SWEEP_PAUSE_OF_MEMBER: Duration = Duration::from_micros(10);

/// Shortest wait that may be rounded up to milliseconds, as waits for events are: a shorter one needs a separate, exact call.
const MIN_ROUNDED_WAIT: Duration = Duration::from_millis(50);

/// Maximum events of one wait.
const MAX_EVENTS: usize = 256;

/// Events of a link whose remote has closed it, or that has failed.
const ENDING: EventFlags = EventFlags::RDHUP.union(EventFlags::HUP).union(EventFlags::ERR);

/// Number of members below which their data stays in the caches.
const MIN_PREFETCHED_MEMBERS: usize = 256;

/// The index of the waker's events, which no member has.
const WAKER_INDEX: u32 = u32::MAX;

impl<M: Member> SharedThread<M> {
    /// A thread without members, with room for this number of them.
    ///
    /// # Errors
    ///
    /// The system gives no event descriptor.
    pub fn new(clock: &Clock, members: usize) -> Result<SharedThread<M>, Fault> {
        let events = EventQueue::new().map_err(Fault::system("make an event descriptor"))?;
        let waker = Waker::new()?;
        // Each write is an event, so the counter need not be read.
        events
            .add(waker.as_handle(), WAKER_INDEX.into(), EventFlags::IN | EventFlags::ET)
            .map_err(Fault::system("watch an event descriptor"))?;
        Ok(SharedThread {
            events,
            waker,
            next_sweep: Time(0),
            running: None,
            clock: clock.clone(),
            places: Vec::with_capacity(members),
            free: Vec::new(),
            timers: BinaryHeap::with_capacity(2 * members),
            queue: VecDeque::with_capacity(members),
            is_busy_polling: false,
            busy_polled: Duration::ZERO,
            busy: Duration::ZERO,
        })
    }

    /// Adds a member, which runs in the next turn.
    pub fn add(&mut self, mut member: M) {
        let end_of_input = EndOfInput::of(member.ends().1.caps());
        member.ends().0.on_shared(&self.waker);
        let place = Place {
            member,
            awaited: Awaited::Time,
            wake_at: Time::NEVER,
            timer_at: Time::NEVER,
            watched: None,
            is_queued: true,
            mode: StepMode::Shared,
            end_of_input,
            is_ending: false,
            busy: Duration::ZERO,
            added: self.thread_use(),
        };
        let index = match self.free.pop() {
            Some(index) => {
                self.places[index as usize] = Some(place);
                index
            }
            None => {
                self.places.push(Some(place));
                self.places.len() as u32 - 1
            }
        };
        self.queue.push_back(index);
    }

    /// Wakes this thread from others.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Removes the member whose party panicked in the last turn; the others continue.
    pub fn remove_panicked(&mut self) {
        if let Some(index) = self.running.take() {
            drop(self.take(index));
        }
        // The panic ended the turn before the others were queued again or run.
        self.queue.clear();
        for (index, place) in self.places.iter().enumerate() {
            if place.as_ref().is_some_and(|place| place.is_queued) {
                self.queue.push_back(index as u32);
            }
        }
    }

    /// The number of members.
    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Whether there are no members.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Waits until a member can run, for `max_wait` at most, and runs all that can, each for a few steps. Members that
    /// end or move are appended to `departed`.
    pub fn turn(&mut self, max_wait: Duration, departed: &mut Vec<Departure<M>>) {
        let now = self.expire_timers();
        let until_sweep = if self.waker.has_sweep() { self.next_sweep.since(now) } else { Duration::MAX };
        self.collect_events(now, max_wait.min(until_sweep));
        if self.waker.has_sweep() {
            self.sweep();
        }
        let mut now = self.clock.now();
        for _ in 0..self.queue.len() {
            let Some(index) = self.queue.pop_front() else { break };
            self.running = Some(index);
            if self.places.len() >= MIN_PREFETCHED_MEMBERS {
                self.prefetch_next();
            }
            let departure = self.run(index, &mut now);
            self.running = None;
            if let Some(departure) = departure {
                departed.push(departure);
                now = self.clock.now();
            }
        }
    }

    /// Asks the CPU to load what the next members use, while the system calls of this one take their time. The address of a part is
    /// read from the part before it, so the parts of a member are loaded in four stages, one in each of the four turns before its own.
    fn prefetch_next(&mut self) {
        let [first, second, third, fourth] =
            [0, 1, 2, 3].map(|ahead| self.queue.get(ahead).map(|&index| index as usize));
        if let Some(index) = fourth {
            prefetch(&self.places[index]);
        }
        if let Some(place) = third.and_then(|index| self.places[index].as_ref()) {
            place.member.prefetch_ends();
        }
        if let Some(place) = second.and_then(|index| self.places[index].as_mut()) {
            let (party, link) = place.member.ends();
            prefetch(party);
            prefetch(link);
        }
        if let Some(place) = first.and_then(|index| self.places[index].as_mut()) {
            place.member.ends().0.prefetch_parts();
        }
    }

    /// Queues all members, unless that was done a short time ago.
    fn sweep(&mut self) {
        let now = self.clock.now();
        if now < self.next_sweep {
            return;
        }
        self.waker.take_sweep();
        for (index, place) in self.places.iter_mut().enumerate() {
            if let Some(place) = place.as_mut().filter(|place| !place.is_queued) {
                (place.is_queued, place.mode) = (true, StepMode::Shared);
                self.queue.push_back(index as u32);
            }
        }
        self.next_sweep = now + SWEEP_PAUSE_OF_MEMBER * self.queue.len() as u32;
    }

    /// Ends all members where they are, without a fault.
    pub fn end_all(&mut self, departed: &mut Vec<Departure<M>>) {
        self.queue.clear();
        for index in 0..self.places.len() as u32 {
            if self.places[index as usize].is_some() {
                departed.extend(self.end(index, Ok(())));
            }
        }
    }

    /// Queues the members whose time has come; returns the time now.
    fn expire_timers(&mut self) -> Time {
        let now = self.clock.now();
        while let Some(&Reverse((at, index))) = self.timers.peek()
            && at <= now
        {
            self.timers.pop();
            let Some(place) = &mut self.places[index as usize] else { continue };
            if place.timer_at != at {
                continue;
            }
            place.timer_at = Time::NEVER;
            if place.is_queued {
                continue;
            }
            if place.wake_at > now {
                // The member has waited for something else since.
                place.timer_at = place.wake_at;
                self.timers.push(Reverse((place.wake_at, index)));
                continue;
            }
            let (party, link) = place.member.ends();
            if place.awaited == Awaited::Output {
                party.on_send_blocked(now, link.status().unacknowledged_bytes);
            }
            (place.is_queued, place.mode) = (true, StepMode::Shared);
            self.queue.push_back(index);
        }
        now
    }

    /// Waits for events and queues their members.
    fn collect_events(&mut self, now: Time, max_wait: Duration) {
        let next = self.timers.peek().map_or(Time::NEVER, |Reverse((at, _))| *at);
        let wait = match self.queue.is_empty() && !self.is_busy_polling {
            true => next.since(now).min(max_wait),
            false => Duration::ZERO,
        };
        let is_short = !wait.is_zero() && wait < MIN_ROUNDED_WAIT;
        let mut events = Events::<MAX_EVENTS>::new();
        let first_wait = if is_short { Duration::ZERO } else { wait };
        // An interrupted wait is repeated in the next turn.
        if self.events.wait(&mut events, first_wait).is_err() {
            return;
        }
        if is_short && events.is_empty() {
            // Only now, because one of many busy members is usually ready at once.
            let _ = self.events.wait_exactly(wait);
            if self.events.wait(&mut events, first_wait).is_err() {
                return;
            }
        }
        if self.is_busy_polling && events.is_empty() && self.queue.is_empty() {
            self.busy_polled += self.clock.now().since(now);
        }
        for (index, flags) in events.iter() {
            let index = index as u32;
            if index == WAKER_INDEX {
                self.waker.take_event();
            }
            let Some(place) = self.places.get_mut(index as usize).and_then(Option::as_mut) else { continue };
            place.mode = StepMode::Shared;
            place.is_ending |= flags.intersects(ENDING);
            if place.is_queued {
                continue;
            }
            if place.awaited == Awaited::Time {
                if place.end_of_input == EndOfInput::ShortReceive {
                    continue;
                }
                // Input that the party does not want yet would be reported again and again.
                place.unwatch(&self.events);
                continue;
            }
            place.is_queued = true;
            self.queue.push_back(index);
        }
    }

    /// Performs some steps of a member. `now` is the time before, and then the time after them.
    fn run(&mut self, index: u32, now: &mut Time) -> Option<Departure<M>> {
        let place = self.places[index as usize].as_mut()?;
        let began = *now;
        let mut result = Ok(StepOutcome::Progress);
        for _ in 0..STEPS_PER_TURN {
            let (party, link) = place.member.ends();
            result = perform_step(party, link, &self.clock, now, place.mode);
            match &result {
                Ok(StepOutcome::Reopened) => {
                    place.unwatch(&self.events);
                    place.is_ending = false;
                }
                Ok(outcome @ (StepOutcome::Progress | StepOutcome::ReceivedLessThanFits)) => {
                    if place.has_no_input_after(outcome) {
                        place.mode = StepMode::SharedWithoutInput;
                    }
                }
                _ => break,
            }
            if now.since(began) >= TURN_TIME {
                break;
            }
        }
        let busy = now.since(began);
        place.busy += busy;
        self.busy += busy;
        match result {
            Ok(StepOutcome::Progress | StepOutcome::ReceivedLessThanFits | StepOutcome::Reopened) => {
                self.queue.push_back(index);
            }
            Ok(StepOutcome::Tuned(tuning)) => return self.place_tuned(index, tuning),
            Ok(StepOutcome::Opening(until)) => return self.wait(index, Awaited::Opening, until),
            Ok(StepOutcome::Waiting(until)) => return self.wait(index, Awaited::Input, until),
            Ok(StepOutcome::SendBlocked(until)) => return self.wait(index, Awaited::Output, until),
            Ok(StepOutcome::Sleeping(until)) => return self.wait(index, Awaited::Time, until),
            Ok(StepOutcome::Done) => return self.end(index, Ok(())),
            Err(fault) => return self.end(index, Err(fault)),
        }
        None
    }

    fn place_tuned(&mut self, index: u32, tuning: Tuning) -> Option<Departure<M>> {
        let place = self.places[index as usize].as_mut()?;
        match place.member.place(&tuning) {
            Ok(ThreadChoice::Stay(wait)) => {
                self.is_busy_polling |= wait == WaitMode::BusyPoll;
                if tuning.batch_message_bytes.is_some() {
                    place.expect_bulk(&self.events);
                }
                place.member.ends().0.on_shared(&self.waker);
                self.queue.push_back(index);
                None
            }
            Ok(ThreadChoice::Leave) => {
                let Place { member, .. } = self.take(index)?;
                Some(Departure::Moved { member, tuning })
            }
            Err(fault) => self.end(index, Err(fault)),
        }
    }

    /// Lets a member wait until its link is ready, or until this time.
    fn wait(&mut self, index: u32, awaited: Awaited, until: Time) -> Option<Departure<M>> {
        let place = self.places[index as usize].as_mut()?;
        (place.is_queued, place.awaited, place.wake_at) = (false, awaited, until);
        place.mode = StepMode::SharedWithoutInput;
        if until < place.timer_at {
            place.timer_at = until;
            self.timers.push(Reverse((until, index)));
        }
        match place.watch(&self.events, index) {
            Ok(()) => None,
            Err(fault) => self.end(index, Err(fault)),
        }
    }

    fn take(&mut self, index: u32) -> Option<Place<M>> {
        let mut place = self.places[index as usize].take()?;
        place.unwatch(&self.events);
        self.free.push(index);
        Some(place)
    }

    pub(crate) fn end(&mut self, index: u32, result: Result<(), Fault>) -> Option<Departure<M>> {
        let place = self.take(index)?;
        let cost = place.cost(&self.thread_use());
        let mut member = place.member;
        let (party, link) = member.ends();
        let cost = cost.with_link(link, party.cost_detail());
        party.on_ended(cost);
        Some(Departure::Ended { member, cost: Box::new(cost), result })
    }

    fn thread_use(&self) -> ThreadUse {
        ThreadUse { cpu_seconds: cpu::thread_cpu_seconds(), busy_polled: self.busy_polled, busy: self.busy }
    }
}

impl<M: Member> Place<M> {
    /// Whether this step has shown that the thread need not try to receive before the next event.
    fn has_no_input_after(&self, step: &StepOutcome) -> bool {
        match self.end_of_input {
            EndOfInput::FailedReceive => false,
            EndOfInput::NextEvents => true,
            EndOfInput::ShortReceive => matches!(step, StepOutcome::ReceivedLessThanFits) && !self.is_ending,
        }
    }

    /// Bulk data arrives while it is received, so most events that report new input would find it received already.
    fn expect_bulk(&mut self, events: &EventQueue) {
        if self.end_of_input == EndOfInput::ShortReceive {
            self.end_of_input = EndOfInput::NextEvents;
            self.unwatch(events);
        }
    }

    /// Reports what the member awaits.
    pub fn watch(&mut self, events: &EventQueue, index: u32) -> Result<(), Fault> {
        use EventFlags as Flags;
        if self.awaited == Awaited::Time || self.watched == Some(self.awaited) {
            return Ok(());
        }
        let flags = match self.awaited {
            Awaited::Input if self.end_of_input == EndOfInput::ShortReceive => {
                Flags::IN | Flags::RDHUP | Flags::ET
            }
            Awaited::Input => Flags::IN | Flags::RDHUP,
            _ => Flags::OUT,
        };
        if self.awaited == Awaited::Opening {
            // The closed descriptor has left.
            self.watched = None;
        }
        let Some(descriptor) = self.member.ends().1.descriptor() else {
            return Err(Fault::Internal("a link without a descriptor cannot share a thread".to_owned()));
        };
        let watched = match self.watched {
            None => events.add(descriptor, index.into(), flags),
            Some(_) => events.modify(descriptor, index.into(), flags),
        };
        watched.map_err(Fault::system("watch a link"))?;
        self.watched = Some(self.awaited);
        Ok(())
    }

    fn unwatch(&mut self, events: &EventQueue) {
        if self.watched.take().is_some()
            && let Some(descriptor) = self.member.ends().1.descriptor()
        {
            events.remove(descriptor);
        }
    }

    /// The part of what the thread has used since it was added, by the time of its steps.
    fn cost(&self, now: &ThreadUse) -> PartyCost {
        let busy = (now.busy - self.added.busy).as_secs_f64();
        let share = if busy > 0.0 { self.busy.as_secs_f64() / busy } else { 0.0 };
        let used = now.cpu_seconds - self.added.cpu_seconds;
        let busy_polled = (now.busy_polled - self.added.busy_polled).as_secs_f64().min(used);
        PartyCost {
            cpu_seconds: (used - busy_polled) * share,
            busy_poll_seconds: busy_polled * share,
            cpu: Some(cpu::current_cpu()),
            has_shared_thread: true,
            ..PartyCost::default()
        }
    }
}

#[cfg(test)]
mod tests;
