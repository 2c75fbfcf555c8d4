//! Time for which a client waits for sent data to arrive: while data moves, plus a margin.

use std::time::Duration;

use crate::workload::Load;
use crate::workload::throughput::{drain_time, planned_time};
use linkgauge_model::clock::Time;

/// Extra wait of the client after its timeout, so that it receives the report of a server whose receivers reach theirs.
const DRAIN_MARGIN: Duration = Duration::from_secs(2);

/// Maximum total wait if no time was planned, even while data moves.
const MAX_DRAIN_TIME: Duration = Duration::from_secs(150);

/// Progress of the data in transit after all flows have ended.
pub(crate) struct DrainTracker {
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
    is_stalled: bool,
}

impl DrainTracker {
    /// Server and client use the same limits for late data, so that the client receives the report of a server that
    /// waited.
    pub(crate) fn for_upload(load: &Load) -> DrainTracker {
        let base = DrainTracker::for_report(load.timeout);
        let late = planned_time(load.stop, load.warm_up).map(|planned| drain_time(planned, load.flows));
        let longest = late.map_or(MAX_DRAIN_TIME, |late| late.saturating_add(base.stall_timeout));
        DrainTracker { longest, sends_load: true, ..base }
    }

    /// Creates the tracker of a client that sends no load: only the report is awaited.
    pub(crate) fn for_report(timeout: Duration) -> DrainTracker {
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
            is_stalled: false,
        }
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.began_at.is_some()
    }

    /// Returns whether this call starts the drain. The flows made no progress for `idle` before.
    pub fn begin(&mut self, now: Time, idle: Duration) -> bool {
        if self.began_at.is_some() {
            return false;
        }
        let idle_ns = u64::try_from(idle.as_nanos()).unwrap_or(u64::MAX);
        (self.began_at, self.last_progress) = (Some(now), Time(now.0.saturating_sub(idle_ns)));
        true
    }

    /// The server's system took none of the queued bytes for the whole timeout: its program is stopped, or the link is
    /// dead.
    pub(crate) fn is_stalled(&self) -> bool {
        self.is_stalled
    }

    /// The wait has ended without success.
    pub(crate) fn has_timed_out(&self) -> bool {
        self.has_timed_out
    }

    /// Whether the queue of this host still drains. `queued` counts the bytes in it, which takes a while for many links.
    pub(crate) fn update_local(&mut self, now: Time, queued: impl FnOnce() -> u64) -> bool {
        if !self.sends_load {
            return false;
        }
        let held = queued();
        let before = std::mem::replace(&mut self.local_bytes, held);
        if held < before {
            self.last_progress = now;
        }
        if held == 0 {
            return false;
        }
        self.is_stalled = now.since(self.last_progress) + DRAIN_MARGIN >= self.stall_timeout;
        !self.is_stalled && self.may_wait(now)
    }

    /// The server has this many bytes and still receives. Returns whether to wait for more.
    pub(crate) fn update_remote(&mut self, now: Time, bytes: u64) -> bool {
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
    use linkgauge_model::plan::StopCondition;

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
        assert!(drain.begin(seconds(100), Duration::ZERO) && !drain.begin(seconds(101), Duration::ZERO));
        for second in 0..60 {
            assert!(drain.update_remote(seconds(100 + second), 1000 * second));
        }
        assert!(drain.update_remote(seconds(165), 59_000), "silent for six seconds");
        assert!(!drain.update_remote(seconds(167), 59_000) && drain.has_timed_out());
    }

    #[test]
    fn a_server_that_takes_nothing_is_given_up_after_one_timeout() {
        // Its system took the data of the last seconds, and its program is stopped.
        let mut drain = upload(Some(10));
        drain.begin(seconds(10), Duration::ZERO);
        assert!(drain.update_local(seconds(11), || 1000) && drain.update_local(seconds(12), || 900));
        assert!(drain.update_local(seconds(16), || 900) && !drain.is_stalled());
        assert!(!drain.update_local(seconds(17), || 900) && drain.is_stalled());
        // The flows have waited for the timeout already.
        let mut drain = upload(Some(10));
        drain.begin(seconds(10), TIMEOUT);
        assert!(!drain.update_local(seconds(10), || 1000) && drain.is_stalled());
    }

    #[test]
    fn draining_has_a_maximum_time() {
        for (mut drain, longest) in [
            (upload(Some(1)), 13),
            (upload(Some(30)), 37),
            (upload(Some(1000)), 127),
            (upload(None), 150),
            (DrainTracker::for_report(TIMEOUT), 7),
        ] {
            drain.begin(seconds(0), Duration::ZERO);
            let waited =
                (0..1000).take_while(|second| drain.update_remote(seconds(*second), second + 1)).count();
            assert_eq!(waited, longest);
        }
    }
}
