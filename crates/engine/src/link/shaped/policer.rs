//! A policer: messages above a rate are dropped, the others pass without a delay.

use linkgauge_model::clock::Time;

/// A policed rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PolicedRate {
    /// Bits of payload per second that pass, above zero.
    pub bits_per_second: f64,
    /// Bytes that pass at once after an idle time.
    pub burst_bytes: u64,
}

/// The state of a policer: a bucket that fills at the rate, and pays for the messages that pass.
#[derive(Debug)]
pub(super) struct Policer {
    rate: PolicedRate,
    tokens_bytes: f64,
    filled_at: Time,
}

impl Policer {
    /// A full bucket.
    pub fn new(rate: PolicedRate) -> Policer {
        Policer { rate, tokens_bytes: rate.burst_bytes as f64, filled_at: Time(0) }
    }

    /// Whether a message of this size passes now.
    pub(super) fn admits(&mut self, bytes: usize, now: Time) -> bool {
        let filled = now.since(self.filled_at).as_secs_f64() * self.rate.bits_per_second / 8.0;
        self.tokens_bytes = (self.tokens_bytes + filled).min(self.rate.burst_bytes as f64);
        self.filled_at = now;
        let passes = self.tokens_bytes >= bytes as f64;
        if passes {
            self.tokens_bytes -= bytes as f64;
        }
        passes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_rate_passes_and_bursts_are_limited() {
        let mut policer = Policer::new(PolicedRate { bits_per_second: 8e6, burst_bytes: 10_000 });
        let passed = |policer: &mut Policer, at_ms: u64, messages: usize| {
            (0..messages).filter(|_| policer.admits(1000, Time(at_ms * 1_000_000))).count()
        };
        assert_eq!(passed(&mut policer, 1000, 20), 10, "the burst");
        // 1000 bytes each millisecond.
        assert_eq!(passed(&mut policer, 1003, 20), 3);
        assert_eq!(passed(&mut policer, 2000, 20), 10, "no more than the burst after a second");
        let steady: usize = (1..=100).map(|ms| passed(&mut policer, 2000 + ms, 2)).sum();
        assert_eq!(steady, 100);
    }
}
