//! How long a client waits for what it sent to arrive: as long as it does, and a while longer.

use std::time::Duration;

use crate::clock::Time;
use crate::link::Link;
use crate::plan::{Case, Direction};
use crate::workload::throughput::{overtime, planned_time};

/// So much longer than its time-out a client waits: a server whose receivers give up after the time-out has to say so.
const DRAIN_MARGIN: Duration = Duration::from_secs(2);

/// However it moves, nothing is waited for longer than this where no time was planned.
const MAX_DRAIN_TIME: Duration = Duration::from_secs(150);

/// What is known of the bytes on their way once all flows have ended.
pub struct DrainTracker {
    stall_timeout: Duration,
    longest: Duration,
    /// What this host still holds is payload that is to arrive.
    sends_load: bool,
    began_at: Option<Time>,
    /// When fewer were on their way than before.
    last_progress: Time,
    /// Bytes that this host still holds, and that the server has.
    local_bytes: u64,
    remote_bytes: u64,
    has_timed_out: bool,
}

impl DrainTracker {
    /// Server and client agree on how long bytes may be late, so that the client hears the report of one that waited.
    pub fn new(case: &Case) -> DrainTracker {
        let patience = case.timeout.saturating_add(DRAIN_MARGIN);
        let sends_load = case.workload != "latency" && case.direction != Some(Direction::Receive);
        let late = match sends_load {
            true => planned_time(case.stop, case.warm_up.unwrap_or_default()).map(overtime),
            false => Some(Duration::ZERO),
        };
        let longest = late.map_or(MAX_DRAIN_TIME, |late| late.saturating_add(patience));
        DrainTracker {
            stall_timeout: patience,
            longest,
            sends_load,
            began_at: None,
            last_progress: Time(0),
            local_bytes: 0,
            remote_bytes: 0,
            has_timed_out: false,
        }
    }

    /// Whether it begins with this call.
    pub fn begin(&mut self, now: Time) -> bool {
        if self.began_at.is_some() {
            return false;
        }
        (self.began_at, self.last_progress) = (Some(now), now);
        true
    }

    /// It was waited for long enough, in vain.
    pub fn has_timed_out(&self) -> bool {
        self.has_timed_out
    }

    /// Whether this host still holds bytes that leave it.
    pub fn update_local(&mut self, now: Time, links: &[Box<dyn Link>]) -> bool {
        if !self.sends_load {
            return false;
        }
        let held = links.iter().filter_map(|link| link.unacknowledged_bytes()).sum();
        let before = std::mem::replace(&mut self.local_bytes, held);
        if held < before {
            self.last_progress = now;
        }
        held > 0 && self.may_wait(now)
    }

    /// The server has so many bytes and waits for more; whether that is worth waiting for.
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
    use crate::protocol::server_case;

    fn seconds(seconds: u64) -> Time {
        Time(seconds * 1_000_000_000)
    }

    fn drain(time_s: Option<u64>, workload: &str) -> DrainTracker {
        let stop = time_s.map_or(StopCondition::default(), |seconds| {
            StopCondition::after_time(Duration::from_secs(seconds))
        });
        let timeout = Duration::from_secs(5);
        DrainTracker::new(&Case { timeout, stop, workload: workload.to_owned(), ..server_case(1000) })
    }

    #[test]
    fn a_server_that_still_receives_is_waited_for() {
        let mut drain = drain(Some(100), "throughput");
        assert!(drain.begin(seconds(100)) && !drain.begin(seconds(101)));
        for second in 0..60 {
            assert!(drain.update_remote(seconds(100 + second), 1000 * second));
        }
        assert!(drain.update_remote(seconds(165), 59_000), "silent for six seconds");
        assert!(!drain.update_remote(seconds(167), 59_000) && drain.has_timed_out());
    }

    #[test]
    fn draining_has_a_maximum_time() {
        for (time_s, workload, longest) in [
            (Some(1), "throughput", 9),
            (Some(30), "throughput", 37),
            (Some(1000), "throughput", 127),
            (None, "throughput", 150),
            (Some(1000), "latency", 7),
        ] {
            let mut drain = drain(time_s, workload);
            drain.begin(seconds(0));
            let waited =
                (0..1000).take_while(|second| drain.update_remote(seconds(*second), second + 1)).count();
            assert_eq!(waited, longest, "{time_s:?} {workload}");
        }
    }
}
