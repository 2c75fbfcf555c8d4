//! Counts refused, dropped and ended connections by reason, so that the server can report them in summary.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Maximum distinct reasons. A reason may contain numbers that a client chose.
const MAX_REASONS: usize = 32;

/// Reason that stands for all further reasons.
const OTHER_REASONS: &str = "other reasons";

/// A reason, its count, and the last client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The reason, in one line.
    pub reason: String,
    /// Number of occurrences.
    pub count: u64,
    /// The last refused client or sender.
    pub last_from: String,
}

/// All refusals since the last `take`.
#[derive(Debug, Default)]
pub struct Refusals(Mutex<BTreeMap<String, (u64, String)>>);

impl Refusals {
    /// Counts one refusal of `from`.
    pub fn record(&self, reason: &str, from: &str) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let reason = if all.len() < MAX_REASONS || all.contains_key(reason) { reason } else { OTHER_REASONS };
        // A flood with the same reason allocates nothing.
        if let Some((count, last_from)) = all.get_mut(reason) {
            *count += 1;
            last_from.clear();
            last_from.push_str(from);
        } else {
            all.insert(reason.to_owned(), (1, from.to_owned()));
        }
    }

    /// The refusals since the last call, the most frequent reason first.
    pub fn take(&self) -> Vec<Refusal> {
        let all = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let refusal = |(reason, (count, last_from))| Refusal { reason, count, last_from };
        let mut all: Vec<Refusal> = all.into_iter().map(refusal).collect();
        all.sort_by_key(|refusal| std::cmp::Reverse(refusal.count));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_counted_and_their_number_is_bounded() {
        let refusals = Refusals::default();
        for number in 0..2 * MAX_REASONS {
            refusals.record(&format!("reason {number}"), "192.0.2.7:1");
        }
        refusals.record("reason 1", "192.0.2.8:2");
        let taken = refusals.take();
        assert_eq!(taken.len(), MAX_REASONS + 1);
        let other = Refusal {
            reason: OTHER_REASONS.to_owned(),
            count: MAX_REASONS as u64,
            last_from: "192.0.2.7:1".to_owned(),
        };
        assert_eq!(taken[0], other);
        assert_eq!((taken[1].count, taken[1].last_from.as_str()), (2, "192.0.2.8:2"));
        assert!(refusals.take().is_empty());
    }
}
