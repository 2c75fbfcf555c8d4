//! The rate that a server grants to one source, whatever it opens: on all its connections and in both directions together.
//!
//! Memory does not grow with the number of sources: each has a slot of a fixed table, and two sources may share one.

use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::source::Source;
use crate::clock::Time;

const SLOTS: usize = 1 << 16;

/// A source may be ahead of its rate by so much, so that it can catch up after a pause.
const BURST: Duration = Duration::from_millis(250);

/// The rate counts payload. What the protocols themselves say comes on top.
const MARGIN: f64 = 1.02;

/// For each slot the instant at which everything that passed it is paid for.
pub struct Rates {
    ns_per_byte: f64,
    slots: Box<[AtomicU64]>,
    hasher: RandomState,
}

impl Rates {
    pub fn new(bits_per_second: f64) -> Rates {
        Rates {
            ns_per_byte: 8e9 / (bits_per_second * MARGIN).max(1.0),
            slots: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(),
            hasher: RandomState::new(),
        }
    }

    pub fn meter(self: &Arc<Rates>, source: &Source) -> Meter {
        Meter { slot: slot(&self.hasher, source), rates: self.clone() }
    }

    /// Takes so many bytes of a source if it is within its rate.
    pub fn takes(&self, source: &Source, bytes: usize, now: Time) -> bool {
        let slot = &self.slots[slot(&self.hasher, source)];
        let takes = ready(slot, now).is_none();
        if takes {
            pay(slot, bytes as u64, self.ns_per_byte, now);
        }
        takes
    }
}

fn slot(hasher: &RandomState, key: impl Hash) -> usize {
    hasher.hash_one(key) as usize % SLOTS
}

/// When the slot may be used again, if not yet.
fn ready(slot: &AtomicU64, now: Time) -> Option<Time> {
    let at = Time(slot.load(Relaxed).saturating_sub(BURST.as_nanos() as u64));
    (at > now).then_some(at)
}

fn pay(slot: &AtomicU64, bytes: u64, ns_per_byte: f64, now: Time) {
    let cost = (bytes as f64 * ns_per_byte) as u64;
    // Always succeeds: the function gives a value for any.
    let _ = slot.fetch_update(Relaxed, Relaxed, |paid| Some(paid.max(now.0).saturating_add(cost)));
}

/// The rate of one source.
pub struct Meter {
    rates: Arc<Rates>,
    slot: usize,
}

impl Meter {
    /// When the next byte may move, if not yet.
    #[inline]
    pub fn ready(&self, now: Time) -> Option<Time> {
        ready(&self.rates.slots[self.slot], now)
    }

    #[inline]
    pub fn pay(&self, bytes: u64, now: Time) {
        pay(&self.rates.slots[self.slot], bytes, self.rates.ns_per_byte, now);
    }
}

/// Counts how often one sender repeats one datagram: two programs that answer each other's answers do so for ever, while a
/// client numbers what it sends.
pub struct Repeats {
    slots: Box<[AtomicU64]>,
    hasher: RandomState,
}

/// A datagram is answered so often before the rate of its repetition counts.
pub const REPEATS: u64 = 16_384;

/// From then on it is answered this often.
const REPEATED: Duration = Duration::from_millis(10);

/// Enough to tell datagrams apart: numbers stand in front.
const COMPARED: usize = 64;

impl Repeats {
    pub fn new() -> Repeats {
        let slots = (0..SLOTS).map(|_| AtomicU64::new(0)).collect();
        Repeats { slots, hasher: RandomState::new() }
    }

    /// Whether this datagram of that sender may be answered.
    pub fn takes(&self, from: &str, datagram: &[u8], now: Time) -> bool {
        let key = (from, datagram.len(), &datagram[..datagram.len().min(COMPARED)]);
        let (each, most) = (REPEATED.as_nanos() as u64, REPEATED.as_nanos() as u64 * REPEATS);
        let counted = |paid: u64| {
            let paid = paid.max(now.0) + each;
            (paid <= now.0 + most).then_some(paid)
        };
        self.slots[slot(&self.hasher, key)].fetch_update(Relaxed, Relaxed, counted).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_has_its_rate_whatever_it_opens() {
        let rates = Arc::new(Rates::new(8e6 / MARGIN));
        let source = Source::of("192.0.2.7:1");
        let meters = [rates.meter(&source), rates.meter(&Source::of("192.0.2.7:2"))];
        // A megabyte a second, on both connections together.
        let (mut now, mut moved) = (Time(0), 0);
        while now < Time(2_000_000_000) {
            for meter in &meters {
                match meter.ready(now) {
                    Some(at) => now = at,
                    None => {
                        meter.pay(1000, now);
                        moved += 1000;
                    }
                }
            }
        }
        assert!((2_240_000..=2_260_000).contains(&moved), "{moved}");
        assert!(!rates.takes(&source, 1, now) || !rates.takes(&source, 1, now));
    }

    #[test]
    fn what_one_sender_repeats_is_answered_ever_more_rarely() {
        let repeats = Repeats::new();
        let answered = |from: &str, count: u64| {
            (0..count).filter(|_| repeats.takes(from, b"hello", Time(0))).count() as u64
        };
        assert_eq!(answered("192.0.2.7:1", 2 * REPEATS), REPEATS);
        assert_eq!(answered("192.0.2.7:2", 10), 10);
        // What a client numbers is never the same.
        for number in 0..3 * REPEATS {
            assert!(repeats.takes("192.0.2.7:1", &number.to_le_bytes(), Time(number * 10_000)));
        }
    }
}
