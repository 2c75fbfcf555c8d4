//! Detects whether a server had vanished when a measurement of round trips or connections ended.

use std::time::Duration;

use linkgauge_model::clock::Time;
use linkgauge_model::sample::Counts;

/// Minimum number of requests without a reply at the end, and the minimum time without a reply beside the timeout.
const MIN_LOST: u64 = 3;
const MIN_SILENCE: Duration = Duration::from_secs(1);

/// Probability below which this number of losses in a row is not caused by a lossy link.
const MAX_PROBABILITY: f64 = 0.01;

/// Requests without a reply since the last reply.
#[derive(Debug, Default)]
pub(crate) struct FinalSilence {
    lost: u64,
}

impl FinalSilence {
    pub(crate) fn on_reply(&mut self) {
        self.lost = 0;
    }

    pub(crate) fn on_loss(&mut self) {
        self.lost += 1;
    }

    /// Whether no reply arrived for so long before the end that the server or the link was lost. `last`: the last reply.
    pub(crate) fn shows_lost_server(
        &self,
        counts: &Counts,
        last: Option<Time>,
        timeout: Duration,
        now: Time,
    ) -> bool {
        let Some(last) = last else { return false };
        let before = counts.sent.saturating_sub(self.lost).max(1);
        let usual = counts.lost.saturating_sub(self.lost) as f64 / before as f64;
        self.lost >= MIN_LOST
            && now >= last + timeout + MIN_SILENCE
            && usual.powf(self.lost as f64) < MAX_PROBABILITY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lossy_link_is_not_a_lost_server() {
        let shows = |sent: u64, lost: u64, at_end: u64, seconds: u64| {
            let instant = Time(1_000_000_000);
            let counts = Counts { sent, lost: lost + at_end, ..Counts::default() };
            let mut silence = FinalSilence::default();
            silence.on_loss();
            silence.on_reply();
            (0..at_end).for_each(|_| silence.on_loss());
            let now = instant + Duration::from_secs(seconds);
            silence.shows_lost_server(&counts, Some(instant), Duration::from_secs(1), now)
        };
        assert!(shows(300, 0, 226, 4) && shows(6, 0, 4, 4) && shows(100, 5, 3, 2));
        assert!(!shows(300, 0, 226, 1), "too short");
        assert!(!shows(300, 0, 2, 10), "too few");
        assert!(!shows(100, 48, 4, 10), "every second one is lost anyway");
    }
}
