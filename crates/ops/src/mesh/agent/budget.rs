//! The rate and the bytes of an agent, which its tests share. A test takes its part before it begins, so tests that run at the same time
//! stay within the limits together.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::AgentRefusal;
use linkgauge_model::units::{format_bit_rate, format_bytes};

/// Rate and bytes that the tests of an agent may use together. Without a limit everything is granted.
#[derive(Debug)]
pub(super) struct AgentBudget {
    bits_per_second: Option<f64>,
    bytes: Option<u64>,
    used: Mutex<BudgetUse>,
}

#[derive(Debug, Default)]
struct BudgetUse {
    /// Rate of the tests that run.
    bits_per_second: f64,
    /// Bytes of the tests that run.
    reserved_bytes: u64,
    /// Bytes of the tests that have ended.
    moved_bytes: u64,
}

/// Budget that a test needs, from the least with which it makes sense to the most that it can use: bits per second and bytes of
/// payload, in both directions together.
#[derive(Debug, Clone, Copy)]
pub(super) struct BudgetRequest {
    pub(super) bits_per_second: [f64; 2],
    pub bytes: [u64; 2],
}

/// The part of a test. Its rate and the bytes that the test did not move go back when it is dropped.
#[derive(Debug)]
pub(super) struct BudgetShare<'a> {
    budget: &'a AgentBudget,
    /// Rate, at most as requested; infinite where neither the request nor the agent limits it.
    pub(super) bits_per_second: f64,
    /// Bytes of payload; `None`: no limit.
    pub bytes: Option<u64>,
    /// Bytes of payload that the test has moved.
    pub(super) moved_bytes: u64,
}

impl AgentBudget {
    pub fn new(bits_per_second: Option<f64>, bytes: Option<u64>) -> AgentBudget {
        AgentBudget { bits_per_second, bytes, used: Mutex::default() }
    }

    fn used(&self) -> MutexGuard<'_, BudgetUse> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a part for a test.
    ///
    /// # Errors
    ///
    /// The limits forbid the test, or other tests use what it needs.
    pub(super) fn take(&self, request: BudgetRequest) -> Result<BudgetShare<'_>, AgentRefusal> {
        let mut used = self.used();
        let [least, most] = request.bits_per_second;
        let mut bits_per_second = most;
        if let Some(limit) = self.bits_per_second {
            let shown = format_bit_rate(limit);
            if least > limit {
                let least = format_bit_rate(least);
                let why = format!("{least} of payload: this agent allows {shown} (--max-rate)");
                return Err(AgentRefusal::Limited(why));
            }
            // Sums of fractions have rounding errors.
            bits_per_second = most.min(limit - used.bits_per_second);
            if bits_per_second < least * (1.0 - 1e-9) {
                let why = format!("other tests use the {shown} of this agent (--max-rate). Try again later");
                return Err(AgentRefusal::Busy(why));
            }
        }
        let mut bytes = None;
        if let Some(limit) = self.bytes {
            let [least, most] = request.bytes;
            let shown = format_bytes(limit);
            let left = limit.saturating_sub(used.moved_bytes);
            if left < least {
                let why = format!(
                    "the test needs more than is left of the {shown} of this agent (--max-bytes). Start it again for more"
                );
                return Err(AgentRefusal::Limited(why));
            }
            let free = left.saturating_sub(used.reserved_bytes);
            if free < least {
                let why = format!(
                    "other tests use what is left of the {shown} of this agent (--max-bytes). Try again later"
                );
                return Err(AgentRefusal::Busy(why));
            }
            bytes = Some(most.min(free));
        }
        if self.bits_per_second.is_some() {
            used.bits_per_second += bits_per_second;
        }
        used.reserved_bytes = used.reserved_bytes.saturating_add(bytes.unwrap_or(0));
        Ok(BudgetShare { budget: self, bits_per_second, bytes, moved_bytes: 0 })
    }
}

impl Drop for BudgetShare<'_> {
    fn drop(&mut self) {
        let mut used = self.budget.used();
        if self.budget.bits_per_second.is_some() {
            used.bits_per_second = (used.bits_per_second - self.bits_per_second).max(0.0);
        }
        used.reserved_bytes = used.reserved_bytes.saturating_sub(self.bytes.unwrap_or(0));
        used.moved_bytes = used.moved_bytes.saturating_add(self.moved_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(rate: [f64; 2], bytes: [u64; 2]) -> BudgetRequest {
        BudgetRequest { bits_per_second: rate, bytes }
    }

    fn why(refusal: Result<BudgetShare<'_>, AgentRefusal>) -> String {
        match refusal.unwrap_err() {
            AgentRefusal::Limited(why) => format!("never: {why}"),
            AgentRefusal::Busy(why) => format!("later: {why}"),
            AgentRefusal::Invalid(why) => why,
        }
    }

    #[test]
    fn tests_at_the_same_time_share_the_rate() {
        let budget = AgentBudget::new(Some(2e6), None);
        let small = request([0.3e6, 0.3e6], [0, 0]);
        let mut running: Vec<_> = (0..6).map(|_| budget.take(small).unwrap()).collect();
        insta::assert_snapshot!(why(budget.take(small)), @"later: other tests use the 2.000 Mbit/s of this agent (--max-rate). Try again later");
        let load = budget.take(request([1.0, f64::INFINITY], [0, 0])).unwrap();
        assert!((load.bits_per_second - 0.2e6).abs() < 1.0 && load.bytes.is_none());
        insta::assert_snapshot!(why(budget.take(request([1.0, 5e6], [0, 0]))), @"later: other tests use the 2.000 Mbit/s of this agent (--max-rate). Try again later");
        drop(load);
        running.clear();
        assert_eq!(budget.take(request([2e6, 2e6], [0, 0])).unwrap().bits_per_second, 2e6);
        insta::assert_snapshot!(why(budget.take(request([3e6, 3e6], [0, 0]))), @"never: 3.000 Mbit/s of payload: this agent allows 2.000 Mbit/s (--max-rate)");
    }

    #[test]
    fn tests_share_the_bytes_for_good() {
        let budget = AgentBudget::new(None, Some(1000));
        let mut first = budget.take(request([1.0, 1.0], [600, 600])).unwrap();
        insta::assert_snapshot!(why(budget.take(request([1.0, 1.0], [500, 500]))), @"later: other tests use what is left of the 1.000 kB of this agent (--max-bytes). Try again later");
        assert_eq!(budget.take(request([1.0, f64::INFINITY], [1, u64::MAX])).unwrap().bytes, Some(400));
        // It moved less than it had taken.
        first.moved_bytes = 300;
        drop(first);
        let mut second = budget.take(request([1.0, 1.0], [500, 500])).unwrap();
        // A peer sent more than it should.
        second.moved_bytes = 5000;
        drop(second);
        insta::assert_snapshot!(why(budget.take(request([1.0, 1.0], [1, 1]))), @"never: the test needs more than is left of the 1.000 kB of this agent (--max-bytes). Start it again for more");
    }

    #[test]
    fn without_limits_everything_is_granted() {
        let budget = AgentBudget::new(None, None);
        let share = budget.take(request([1.0, f64::INFINITY], [1, u64::MAX])).unwrap();
        assert_eq!((share.bits_per_second, share.bytes), (f64::INFINITY, None));
        drop(share);
        assert!(budget.take(request([1e12, 1e12], [u64::MAX, u64::MAX])).is_ok());
    }
}
