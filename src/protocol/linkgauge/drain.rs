//! How long a client waits for sent data to arrive: while data moves, plus a margin.

use std::time::Duration;

use crate::clock::Time;
use crate::link::Link;
use crate::workload::Load;
use crate::workload::throughput::{overtime, planned_time};

/// Extra wait of the client after its time-out, so that it receives the report of a server whose receivers time out.
const DRAIN_MARGIN: Duration = Duration::from_secs(2);

/// Maximum total wait if no time was planned, even while data moves.
const MAX_DRAIN_TIME: Duration = Duration::from_secs(150);

/// Progress of the data in transit after all flows have ended.
pub struct DrainTracker {
    stall_timeout: Duration,
    longest: Duration,
    /// This host sends payload, so its queued bytes count.
    sends_load: bool,
    began_at: Option<Time>,
    /// Time of the last progress.
    last_progress: Time,
    /// Bytes queued on this host, and bytes received by the server.
    local_bytes: u64,
    remote_bytes: u64,
    has_timed_out: bool,
}

impl DrainTracker {
    /// Server and client use the same limits for late data, so that the client receives the report of a server that
    /// waited.
    pub fn for_upload(load: &Load) -> DrainTracker {
        let base = DrainTracker::for_report(load.timeout);
        let late = planned_time(load.stop, load.warm_up).map(|planned| overtime(planned, load.flows));
        let longest = late.map_or(MAX_DRAIN_TIME, |late| late.saturating_add(base.stall_timeout));
        DrainTracker { longest, sends_load: true, ..base }
    }

    /// For a client that sends no load: only the report is awaited.
    pub fn for_report(timeout: Duration) -> DrainTracker {
        let stall_timeout = timeout.saturating_add(DRAIN_MARGIN);
        DrainTracker {
            stall_timeout,
            longest: stall_timeout,
            sends_load: false,
            began_at: None,
            last_progress: Time(0),
            local_bytes: 0,
            remote_bytes: 0,
            has_timed_out: false,
        }
    }

    /// Returns whether this call starts the drain.
    pub fn begin(&mut self, now: Time) -> bool {
        if self.began_at.is_some() {
            return false;
        }
        (self.began_at, self.last_progress) = (Some(now), now);
        true
    }

    /// The wait has ended without success.
    pub fn has_timed_out(&self) -> bool {
        self.has_timed_out
    }

    /// Whether queued bytes of this host still drain.
    pub fn update_local(&mut self, now: Time, links: &[Box<dyn Link>]) -> bool {
        if !self.sends_load {
            return false;
        }
        // The queue of a broken link no longer drains.
        let intact = links.iter().map(|link| link.status()).filter(|status| !status.is_broken);
        let held = intact.filter_map(|status| status.unacknowledged_bytes).sum();
        let before = std::mem::replace(&mut self.local_bytes, held);
        if held < before {
            self.last_progress = now;
        }
        held > 0 && self.may_wait(now)
    }

    /// The server has this many bytes and still receives. Returns whether to wait for more.
    pub fn update_remote(&mut self, now: Time, bytes: u64) -> bool {
        if std::mem::replace(&mut self.remote_bytes, bytes) != bytes {
            self.last_progress = now;
        }
        self.has_timed_out |= !self.may_wait(now);
        !self.has_timed_out
    }

    fn may_wait(&self, now: Time) -> bool {
        now.since(self.last_progress) < self.stall_timeout
            && self.began_at.is_none_or(|began| now.since(began) < self.longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::StopCondition;

    const TIMEOUT: Duration = Duration::from_secs(5);

    fn seconds(seconds: u64) -> Time {
        Time(seconds * 1_000_000_000)
    }

    fn upload(time_s: Option<u64>) -> DrainTracker {
        let stop = time_s.map_or(StopCondition::default(), |seconds| {
            StopCondition::after_time(Duration::from_secs(seconds))
        });
        DrainTracker::for_upload(&Load { timeout: TIMEOUT, stop, ..Load::endless(1000) })
    }

    #[test]
    fn a_server_that_still_receives_is_waited_for() {
        let mut drain = upload(Some(100));
        assert!(drain.begin(seconds(100)) && !drain.begin(seconds(101)));
        for second in 0..60 {
            assert!(drain.update_remote(seconds(100 + second), 1000 * second));
        }
        assert!(drain.update_remote(seconds(165), 59_000), "silent for six seconds");
        assert!(!drain.update_remote(seconds(167), 59_000) && drain.has_timed_out());
    }

    #[test]
    fn draining_has_a_maximum_time() {
        for (mut drain, longest) in [
            (upload(Some(1)), 9),
            (upload(Some(30)), 37),
            (upload(Some(1000)), 127),
            (upload(None), 150),
            (DrainTracker::for_report(TIMEOUT), 7),
        ] {
            drain.begin(seconds(0));
            let waited =
                (0..1000).take_while(|second| drain.update_remote(seconds(*second), second + 1)).count();
            assert_eq!(waited, longest);
        }
    }
}
