//! The requests in flight, by sequence number, and those before them whose replies may still arrive.

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

/// One sequence number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestSlot {
    pub(crate) intended: Time,
    pub(crate) sent: Time,
    pub(crate) state: RequestState,
    pub(crate) is_measured: bool,
    pub(crate) period: ProbePeriod,
}

/// The latest requests.
pub(crate) struct RequestWindow {
    /// A ring, indexed by sequence number. It is twice the window, to recognise late and duplicate replies.
    slots: Vec<RequestSlot>,
    oldest_outstanding: u64,
    next_sequence: u64,
    highest_received: Option<u64>,
    max_outstanding: u64,
}

impl RequestWindow {
    /// At most `max_outstanding` requests in flight, at least `min_tracked` remembered.
    pub fn new(max_outstanding: u64, min_tracked: u64) -> RequestWindow {
        let slot = RequestSlot {
            intended: Time(0),
            sent: Time(0),
            state: RequestState::Received,
            is_measured: false,
            period: ProbePeriod::Loaded,
        };
        let slots = (2 * max_outstanding).max(min_tracked).next_power_of_two();
        RequestWindow {
            slots: vec![slot; slots as usize],
            oldest_outstanding: 0,
            next_sequence: 0,
            highest_received: None,
            max_outstanding,
        }
    }

    /// Number of the next request.
    #[inline]
    pub(crate) fn next_sequence(&self) -> u64 {
        self.next_sequence
    }

    /// The numbers from the oldest request in flight to the next request.
    #[inline]
    pub(crate) fn outstanding(&self) -> Range<u64> {
        self.oldest_outstanding..self.next_sequence
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.outstanding().is_empty()
    }

    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.next_sequence - self.oldest_outstanding >= self.max_outstanding
    }

    #[inline]
    pub(crate) fn slot(&self, sequence: u64) -> &RequestSlot {
        &self.slots[sequence as usize & (self.slots.len() - 1)]
    }

    #[inline]
    fn slot_mut(&mut self, sequence: u64) -> &mut RequestSlot {
        let mask = self.slots.len() - 1;
        &mut self.slots[sequence as usize & mask]
    }

    /// The first byte of the next request was sent.
    #[inline]
    pub(crate) fn begin_request(&mut self, slot: RequestSlot) {
        *self.slot_mut(self.next_sequence) = slot;
    }

    /// All of the next request was sent.
    #[inline]
    pub(crate) fn advance(&mut self) -> &RequestSlot {
        self.next_sequence += 1;
        self.slot(self.next_sequence - 1)
    }

    /// When the oldest request in flight expires.
    #[inline]
    pub(crate) fn next_expiry(&self, timeout: Duration) -> Time {
        match self.is_empty() {
            true => Time::NEVER,
            false => self.slot(self.oldest_outstanding).sent + timeout,
        }
    }

    /// The next overdue request, which is lost from now on. The window moves past all settled requests.
    #[inline]
    pub(crate) fn expire_next(&mut self, now: Time, timeout: Duration) -> Option<(u64, RequestSlot)> {
        while self.oldest_outstanding < self.next_sequence {
            let sequence = self.oldest_outstanding;
            let slot = self.slot_mut(sequence);
            if slot.state == RequestState::Waiting {
                if now < slot.sent + timeout {
                    return None;
                }
                slot.state = RequestState::Lost;
                let lost = *slot;
                self.oldest_outstanding += 1;
                return Some((sequence, lost));
            }
            self.oldest_outstanding += 1;
        }
        None
    }

    /// Whether the request with this number was sent, or begun, recently.
    #[inline]
    pub(crate) fn is_tracked(&self, sequence: u64) -> bool {
        (self.next_sequence.saturating_sub(self.slots.len() as u64)..self.next_sequence).contains(&sequence)
    }

    /// Whether a later request may get this number. Numbers further ahead were never used.
    pub(crate) fn is_ahead(&self, sequence: u64) -> bool {
        (self.next_sequence..self.next_sequence + self.slots.len() as u64).contains(&sequence)
    }

    /// Whether a later request has its reply.
    #[inline]
    pub(crate) fn is_overtaken(&self, sequence: u64) -> bool {
        self.highest_received.is_some_and(|highest| sequence < highest)
    }

    /// The reply of a lost request arrived late: a further one is a duplicate.
    pub(crate) fn mark_late(&mut self, sequence: u64) {
        self.slot_mut(sequence).state = RequestState::Received;
    }

    #[inline]
    pub(crate) fn mark_received(&mut self, sequence: u64) {
        self.slot_mut(sequence).state = RequestState::Received;
        self.highest_received = self.highest_received.max(Some(sequence));
    }

    /// Asks the CPU to load the oldest request in flight.
    pub(crate) fn prefetch_oldest(&self) {
        prefetch(self.slot(self.oldest_outstanding));
    }

    /// Nothing is in flight any more.
    pub(crate) fn clear(&mut self) {
        self.oldest_outstanding = self.next_sequence;
    }
}
