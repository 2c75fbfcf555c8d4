//! Requests in flight, by their numbers, and those before them whose replies may still arrive.
//!
//! A lost request does not hold up those after it: its number is skipped until its reply can no longer be taken for another one.

use std::ops::Range;
use std::time::Duration;

use crate::link::prefetch;
use linkgauge_model::clock::Time;
use linkgauge_model::sample::ProbePeriod;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestState {
    Waiting,
    Received,
    Lost,
}

/// One request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestSlot {
    /// The number in the message.
    pub(crate) number: u64,
    /// Number of numbers before it that no request has.
    skipped: u32,
    pub(crate) intended: Time,
    pub(crate) sent: Time,
    /// Duration of the round trip in nanoseconds, if the reply arrived in time.
    latency_ns: Option<u64>,
    pub(crate) state: RequestState,
    pub(crate) is_measured: bool,
    pub(crate) period: ProbePeriod,
}

impl RequestSlot {
    /// Number of requests before this one.
    #[inline]
    pub(crate) fn sequence(&self) -> u64 {
        self.number - u64::from(self.skipped)
    }

    /// Time until which no other request gets a number with the same place.
    #[inline]
    fn kept_until(&self, timeout: Duration, is_ambiguous: bool) -> Time {
        match self.state {
            RequestState::Received => Time(0),
            RequestState::Waiting => self.sent + timeout,
            RequestState::Lost if is_ambiguous => self.sent + 2 * timeout,
            RequestState::Lost => Time(0),
        }
    }
}

/// Sizes of a [`RequestWindow`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct WindowSize {
    /// Maximum number of requests in flight.
    pub(crate) max_outstanding: u64,
    /// Minimum number of requests that are remembered.
    pub(crate) min_tracked: u64,
    /// Number of different numbers, if a message has fewer than may be needed until a request is lost.
    pub(crate) numbers: Option<u64>,
}

/// Window of the latest requests.
pub(crate) struct RequestWindow {
    /// Ring of requests, indexed by number. It is twice the window, to recognise late and duplicate replies; or as long as the
    /// number of different numbers.
    slots: Vec<RequestSlot>,
    /// Whether a reply names only the place in the ring.
    is_ambiguous: bool,
    oldest_outstanding: u64,
    next_number: u64,
    skipped: u32,
    highest_received: Option<u64>,
    in_flight: u64,
    max_outstanding: u64,
}

impl RequestWindow {
    pub fn new(size: WindowSize) -> RequestWindow {
        let slot = RequestSlot {
            number: u64::MAX,
            skipped: 0,
            intended: Time(0),
            sent: Time(0),
            latency_ns: None,
            state: RequestState::Received,
            is_measured: false,
            period: ProbePeriod::Loaded,
        };
        let tracked = (2 * size.max_outstanding).max(size.min_tracked).next_power_of_two();
        RequestWindow {
            slots: vec![slot; size.numbers.unwrap_or(tracked) as usize],
            is_ambiguous: size.numbers.is_some(),
            oldest_outstanding: 0,
            next_number: 0,
            skipped: 0,
            highest_received: None,
            in_flight: 0,
            max_outstanding: size.max_outstanding,
        }
    }

    /// Number of the next request.
    #[inline]
    pub(crate) fn next_number(&self) -> u64 {
        self.next_number
    }

    /// Number of requests before the next one.
    #[inline]
    pub(crate) fn next_sequence(&self) -> u64 {
        self.next_number - u64::from(self.skipped)
    }

    /// Numbers from the oldest request in flight to the next request, as far back as all numbers of messages differ.
    #[inline]
    pub(crate) fn outstanding(&self) -> Range<u64> {
        let newest = self.next_number.saturating_sub(self.slots.len() as u64 / 2);
        self.oldest_outstanding.max(newest)..self.next_number
    }

    /// The requests in flight.
    pub(crate) fn in_flight(&self) -> impl Iterator<Item = &RequestSlot> {
        let numbers = self.oldest_outstanding..self.next_number;
        numbers
            .map(|number| (number, self.slot(number)))
            .filter(|(number, slot)| slot.number == *number && slot.state == RequestState::Waiting)
            .map(|(_, slot)| slot)
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.in_flight == 0
    }

    /// Whether no further request can be in flight now. Skips the numbers that are not free.
    #[inline]
    pub(crate) fn is_full(&mut self, now: Time, timeout: Duration) -> bool {
        self.in_flight >= self.max_outstanding || !self.skip_to_free_number(now, timeout)
    }

    #[inline]
    fn skip_to_free_number(&mut self, now: Time, timeout: Duration) -> bool {
        for ahead in 0..self.slots.len() as u64 {
            let slot = self.slot(self.next_number + ahead);
            if now >= slot.kept_until(timeout, self.is_ambiguous) {
                self.next_number += ahead;
                self.skipped += ahead as u32;
                return true;
            }
        }
        false
    }

    #[inline]
    fn place(&self, number: u64) -> usize {
        (number % self.slots.len() as u64) as usize
    }

    #[inline]
    fn slot(&self, number: u64) -> &RequestSlot {
        &self.slots[self.place(number)]
    }

    /// The recent request that a reply with this number belongs to.
    #[inline]
    pub(crate) fn find(&mut self, number: u64) -> Option<&mut RequestSlot> {
        let (next, place, is_ambiguous) = (self.next_number, self.place(number), self.is_ambiguous);
        let slot = &mut self.slots[place];
        let is_own = slot.number == number && number < next;
        // A request whose number was skipped since, or which is so old that its number seems to follow.
        let is_kept = is_ambiguous && slot.number < number && slot.state != RequestState::Received;
        (is_own || is_kept).then_some(slot)
    }

    /// Notes that the first byte of the next request was sent.
    #[inline]
    pub(crate) fn begin_request(
        &mut self,
        intended: Time,
        sent: Time,
        is_measured: bool,
        period: ProbePeriod,
    ) {
        let (number, skipped, place) = (self.next_number, self.skipped, self.place(self.next_number));
        let state = RequestState::Waiting;
        self.slots[place] =
            RequestSlot { number, skipped, intended, sent, latency_ns: None, state, is_measured, period };
    }

    /// Notes that all of the next request was sent.
    #[inline]
    pub(crate) fn advance(&mut self) -> &RequestSlot {
        self.next_number += 1;
        self.in_flight += 1;
        self.slot(self.next_number - 1)
    }

    /// Time at which the oldest request in flight expires.
    #[inline]
    fn next_expiry(&self, timeout: Duration) -> Time {
        match self.is_empty() {
            true => Time::NEVER,
            false => self.slot(self.oldest_outstanding).sent + timeout,
        }
    }

    /// Time at which a request expires, or a number is free again for a client that waits for one.
    #[inline]
    pub(crate) fn next_change(&self, timeout: Duration, is_waiting_for_number: bool) -> Time {
        if !is_waiting_for_number || self.in_flight >= self.max_outstanding {
            return self.next_expiry(timeout);
        }
        let kept = self.slots.iter().map(|slot| slot.kept_until(timeout, self.is_ambiguous));
        kept.min().unwrap_or(Time::NEVER)
    }

    /// Next overdue request, which is lost from now on. The window moves past all settled requests.
    #[inline]
    pub(crate) fn expire_next(&mut self, now: Time, timeout: Duration) -> Option<RequestSlot> {
        while self.oldest_outstanding < self.next_number {
            let (number, place) = (self.oldest_outstanding, self.place(self.oldest_outstanding));
            let slot = &mut self.slots[place];
            if slot.number == number && slot.state == RequestState::Waiting {
                if now < slot.sent + timeout {
                    return None;
                }
                slot.state = RequestState::Lost;
                let lost = *slot;
                self.in_flight -= 1;
                self.oldest_outstanding += 1;
                return Some(lost);
            }
            self.oldest_outstanding += 1;
        }
        None
    }

    /// Whether a later request may get this number. Numbers further ahead were never used.
    pub(crate) fn is_ahead(&self, number: u64) -> bool {
        (self.next_number..self.next_number + self.slots.len() as u64).contains(&number)
    }

    /// Whether a later request has its reply.
    #[inline]
    pub(crate) fn is_overtaken(&self, number: u64) -> bool {
        self.highest_received.is_some_and(|highest| number < highest)
    }

    /// Notes the reply, which arrived after this time. Returns the durations of the round trips just before and just after, as
    /// far as they have a reply: a lost request has no duration.
    #[inline]
    pub(crate) fn mark_received(&mut self, number: u64, latency_ns: u64) -> [Option<u64>; 2] {
        let place = self.place(number);
        let slot = &mut self.slots[place];
        (slot.state, slot.latency_ns) = (RequestState::Received, Some(latency_ns));
        let (sequence, period) = (slot.sequence(), slot.period);
        self.in_flight -= 1;
        self.highest_received = self.highest_received.max(Some(number));
        let neighbour = |number: u64, sequence: u64| {
            let slot = self.slot(number);
            let is_next = slot.number == number && slot.sequence() == sequence;
            slot.latency_ns.filter(|_| is_next && slot.is_measured && slot.period == period)
        };
        let before = number.checked_sub(1).and_then(|number| neighbour(number, sequence.wrapping_sub(1)));
        [before, neighbour(number + 1, sequence + 1)]
    }

    /// Asks the CPU to load the oldest request in flight.
    pub(crate) fn prefetch_oldest(&self) {
        prefetch(self.slot(self.oldest_outstanding));
    }

    /// Clears the window: nothing is in flight any more.
    pub(crate) fn clear(&mut self) {
        self.oldest_outstanding = self.next_number;
        self.in_flight = 0;
    }
}
