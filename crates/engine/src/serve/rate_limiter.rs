//! Limits the rate of one source, or of all sources together, over all connections and both directions.
//!
//! Memory does not grow with the number of sources: each has a slot of a fixed table, and two sources may share one.

use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::client_id::ClientId;
use linkgauge_model::clock::Time;

const TABLE_SLOTS: usize = 1 << 16;

/// Maximum burst, as time at the full rate, to catch up after a pause.
const MAX_BURST: Duration = Duration::from_millis(250);

/// Factor that adds the protocol overhead: the rate counts payload.
const RATE_MARGIN: f64 = 1.02;

/// Limiter of rates: for each slot, the time until which its rate is used up.
#[derive(Debug)]
pub struct RateLimiter {
    ns_per_byte: f64,
    slots: Box<[AtomicU64]>,
    hasher: RandomState,
}

impl RateLimiter {
    pub(crate) fn new(bits_per_second: f64) -> RateLimiter {
        RateLimiter::with_slots(bits_per_second, TABLE_SLOTS)
    }

    /// Makes a limiter whose rate all sources share.
    pub fn of_all_sources(bits_per_second: f64) -> RateLimiter {
        RateLimiter::with_slots(bits_per_second, 1)
    }

    fn with_slots(bits_per_second: f64, slots: usize) -> RateLimiter {
        RateLimiter {
            ns_per_byte: 8e9 / (bits_per_second * RATE_MARGIN).max(1.0),
            slots: (0..slots).map(|_| AtomicU64::new(0)).collect(),
            hasher: RandomState::new(),
        }
    }

    pub(crate) fn meter(self: &Arc<RateLimiter>, source: &ClientId) -> RateMeter {
        RateMeter { slot: self.slot_of(source), limiter: self.clone() }
    }

    fn slot_of(&self, source: &ClientId) -> usize {
        slot_index(&self.hasher, source) % self.slots.len()
    }

    /// Charges bytes to a source; returns `false` if they exceed its rate.
    pub(crate) fn try_charge(&self, source: &ClientId, bytes: usize, now: Time) -> bool {
        let slot = &self.slots[self.slot_of(source)];
        let takes = next_allowed(slot, now).is_none();
        if takes {
            charge(slot, bytes as u64, self.ns_per_byte, now);
        }
        takes
    }
}

fn slot_index(hasher: &RandomState, key: impl Hash) -> usize {
    hasher.hash_one(key) as usize % TABLE_SLOTS
}

/// Time at which the slot may be used again, if not now.
fn next_allowed(slot: &AtomicU64, now: Time) -> Option<Time> {
    let at = Time(slot.load(Relaxed).saturating_sub(MAX_BURST.as_nanos() as u64));
    (at > now).then_some(at)
}

fn charge(slot: &AtomicU64, bytes: u64, ns_per_byte: f64, now: Time) {
    let cost = (bytes as f64 * ns_per_byte) as u64;
    // Always succeeds, because the closure never returns `None`.
    let _ = slot.fetch_update(Relaxed, Relaxed, |paid| Some(paid.max(now.0).saturating_add(cost)));
}

/// The rate of one source.
pub(crate) struct RateMeter {
    limiter: Arc<RateLimiter>,
    slot: usize,
}

impl RateMeter {
    /// Time at which the next byte may move, if not now.
    #[inline]
    pub(crate) fn next_allowed(&self, now: Time) -> Option<Time> {
        next_allowed(&self.limiter.slots[self.slot], now)
    }

    #[inline]
    pub(crate) fn charge(&self, bytes: u64, now: Time) {
        charge(&self.limiter.slots[self.slot], bytes, self.limiter.ns_per_byte, now);
    }
}

/// Limits repeated datagrams of one sender. Two programs that reply to each other's replies form an endless loop, while
/// a client numbers its datagrams.
pub(crate) struct RepeatLimiter {
    slots: Box<[AtomicU64]>,
    hasher: RandomState,
}

/// Number of replies to equal datagrams before the limit applies.
pub(crate) const MAX_FREE_REPEATS: u64 = 16_384;

/// Interval between replies after that.
const REPEAT_INTERVAL: Duration = Duration::from_millis(10);

/// Compared bytes: enough, because sequence numbers are at the start.
const MAX_KEY_BYTES: usize = 64;

impl RepeatLimiter {
    pub fn new() -> RepeatLimiter {
        let slots = (0..TABLE_SLOTS).map(|_| AtomicU64::new(0)).collect();
        RepeatLimiter { slots, hasher: RandomState::new() }
    }

    /// Whether this datagram of that sender may have a reply.
    pub(crate) fn try_count(&self, from: &str, datagram: &[u8], now: Time) -> bool {
        let key = (from, datagram.len(), &datagram[..datagram.len().min(MAX_KEY_BYTES)]);
        let (each, most) =
            (REPEAT_INTERVAL.as_nanos() as u64, REPEAT_INTERVAL.as_nanos() as u64 * MAX_FREE_REPEATS);
        let counted = |paid: u64| {
            let paid = paid.max(now.0) + each;
            (paid <= now.0 + most).then_some(paid)
        };
        self.slots[slot_index(&self.hasher, key)].fetch_update(Relaxed, Relaxed, counted).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_connections_of_a_client_share_its_rate() {
        let rates = Arc::new(RateLimiter::new(8e6 / RATE_MARGIN));
        let source = ClientId::from_sender("192.0.2.7:1");
        let meters = [rates.meter(&source), rates.meter(&ClientId::from_sender("192.0.2.7:2"))];
        // A megabyte per second over both connections.
        let (mut now, mut moved) = (Time(0), 0);
        while now < Time(2_000_000_000) {
            for meter in &meters {
                match meter.next_allowed(now) {
                    Some(at) => now = at,
                    None => {
                        meter.charge(1000, now);
                        moved += 1000;
                    }
                }
            }
        }
        assert!((2_240_000..=2_260_000).contains(&moved), "{moved}");
        assert!(!rates.try_charge(&source, 1, now) || !rates.try_charge(&source, 1, now));
    }

    #[test]
    fn all_sources_share_a_rate() {
        let rates = RateLimiter::of_all_sources(8e6);
        let sources = ["192.0.2.7:1", "[2001:db8::1]:1", "198.51.100.1:1"].map(ClientId::from_sender);
        let charged = |round: u64| {
            let now = Time(round * 1_000_000);
            sources.iter().filter(|source| rates.try_charge(source, 1000, now)).count()
        };
        // A megabyte per second, and a burst.
        let moved: usize = (0..2000).map(charged).sum();
        assert!((2_000..=2_350).contains(&moved), "{moved}");
    }

    #[test]
    fn repeated_datagrams_are_rate_limited() {
        let repeats = RepeatLimiter::new();
        let replied = |from: &str, count: u64| {
            (0..count).filter(|_| repeats.try_count(from, b"hello", Time(0))).count() as u64
        };
        assert_eq!(replied("192.0.2.7:1", 2 * MAX_FREE_REPEATS), MAX_FREE_REPEATS);
        assert_eq!(replied("192.0.2.7:2", 10), 10);
    }

    #[test]
    fn numbered_datagrams_never_repeat() {
        // A limiter of its own: a datagram that shares the slot of a limited sender is limited, too.
        let repeats = RepeatLimiter::new();
        for number in 0..3 * MAX_FREE_REPEATS {
            assert!(repeats.try_count("192.0.2.7:1", &number.to_le_bytes(), Time(number * 10_000)));
        }
    }
}
