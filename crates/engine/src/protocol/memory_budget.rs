//! Memory that clients may make a server use. It is charged before it is allocated, and returned when its user ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use linkgauge_model::units::format_size;

/// Divisor of the budget: one session may use this part, so that the others have the rest.
const SESSION_SHARE: u64 = 4;

/// Memory budget of a server. Its clones share it.
#[derive(Debug, Clone)]
pub struct MemoryBudget {
    used: Arc<AtomicU64>,
    most: u64,
}

/// Error of a session that gets no memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MemoryRefusal {
    /// The session needs more than any session may use.
    #[error(
        "its flows need {} of memory, and one session may use {}: use fewer connections or smaller messages, or a \
         larger --max-memory of the server", format_size(*.needed), format_size(*.most)
    )]
    Session { needed: u64, most: u64 },
    /// Others use the memory.
    #[error("its clients use all of its --max-memory: try again later")]
    Server,
}

impl MemoryBudget {
    /// Budget of this number of bytes.
    pub fn new(most: u64) -> MemoryBudget {
        MemoryBudget { used: Arc::default(), most }
    }

    /// Maximum bytes of one session.
    pub(crate) fn max_session_bytes(&self) -> u64 {
        self.most / SESSION_SHARE
    }

    /// Charges these bytes until the charge is dropped.
    pub(crate) fn charge(&self, bytes: u64) -> Result<MemoryCharge, MemoryRefusal> {
        let sum = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= self.most);
        match self.used.fetch_update(Relaxed, Relaxed, sum) {
            Ok(_) => Ok(MemoryCharge { used: self.used.clone(), bytes }),
            Err(_) => Err(MemoryRefusal::Server),
        }
    }

    /// Charges the bytes of all flows of one session.
    pub(crate) fn charge_session(&self, bytes: u64) -> Result<MemoryCharge, MemoryRefusal> {
        let most = self.max_session_bytes();
        if bytes > most {
            return Err(MemoryRefusal::Session { needed: bytes, most });
        }
        self.charge(bytes)
    }
}

/// Charged bytes; returned when the charge is dropped.
#[derive(Debug)]
pub(crate) struct MemoryCharge {
    used: Arc<AtomicU64>,
    bytes: u64,
}

impl Drop for MemoryCharge {
    fn drop(&mut self) {
        self.used.fetch_sub(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charges_never_exceed_the_budget_and_come_back() {
        let budget = MemoryBudget::new(1000);
        let whole = budget.charge(1000).unwrap();
        assert_eq!(budget.clone().charge_session(1).unwrap_err(), MemoryRefusal::Server);
        drop(whole);
        assert_eq!(budget.charge(u64::MAX).unwrap_err(), MemoryRefusal::Server);
        let charges: Vec<_> = std::iter::from_fn(|| budget.charge_session(250).ok()).collect();
        assert_eq!(charges.len(), 4);
        drop(charges);
        let refusal = budget.charge_session(251).unwrap_err();
        assert_eq!(refusal, MemoryRefusal::Session { needed: 251, most: 250 });
        assert_eq!(budget.used.load(Relaxed), 0);
    }
}
