//! How long a client waits for what it sent to arrive: as long as it does, and a while longer.

use std::time::Duration;

use crate::clock::Time;
use crate::link::Link;
use crate::plan::{Case, Direction};
use crate::workload::throughput::{overtime, planned_time};

/// So much longer than its time-out a client waits: a server whose receivers give up after the time-out has to say so.
const LEEWAY: Duration = Duration::from_secs(2);

/// However it moves, nothing is waited for longer than this where no time was planned.
const LONGEST: Duration = Duration::from_secs(150);

/// What is known of the bytes on their way once all flows have ended.
pub struct Drain {
    patience: Duration,
    longest: Duration,
    /// What this host still holds is payload that is to arrive.
    sends_load: bool,
    began: Option<Time>,
    /// When fewer were on their way than before.
    moved: Time,
    /// Bytes that this host still holds, and that the server has.
    local: u64,
    remote: u64,
    over: bool,
}

impl Drain {
    /// Server and client agree on how long bytes may be late, so that the client hears the report of one that waited.
    pub fn new(case: &Case) -> Drain {
        let patience = case.timeout.saturating_add(LEEWAY);
        let sends_load = case.workload != "latency" && case.direction != Some(Direction::Receive);
        let late = match sends_load {
            true => planned_time(case.stop, case.warm_up.unwrap_or_default()).map(overtime),
            false => Some(Duration::ZERO),
        };
        let longest = late.map_or(LONGEST, |late| late.saturating_add(patience));
        Drain { patience, longest, sends_load, began: None, moved: Time(0), local: 0, remote: 0, over: false }
    }

    /// Whether it begins with this call.
    pub fn begins(&mut self, now: Time) -> bool {
        if self.began.is_some() {
            return false;
        }
        (self.began, self.moved) = (Some(now), now);
        true
    }

    /// It was waited for long enough, in vain.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Whether this host still holds bytes that leave it.
    pub fn local(&mut self, now: Time, links: &[Box<dyn Link>]) -> bool {
        if !self.sends_load {
            return false;
        }
        let held = links.iter().filter_map(|link| link.unacknowledged()).sum();
        let before = std::mem::replace(&mut self.local, held);
        if held < before {
            self.moved = now;
        }
        held > 0 && self.waits(now)
    }

    /// The server has so many bytes and waits for more; whether that is worth waiting for.
    pub fn remote(&mut self, now: Time, bytes: u64) -> bool {
        if std::mem::replace(&mut self.remote, bytes) != bytes {
            self.moved = now;
        }
        self.over |= !self.waits(now);
        !self.over
    }

    fn waits(&self, now: Time) -> bool {
        now.since(self.moved) < self.patience
            && self.began.is_none_or(|began| now.since(began) < self.longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::far_case;
    use crate::plan::Stop;

    fn seconds(seconds: u64) -> Time {
        Time(seconds * 1_000_000_000)
    }

    fn drain(time_s: Option<u64>, workload: &str) -> Drain {
        let stop = time_s.map_or(Stop::default(), |seconds| Stop::after(Duration::from_secs(seconds)));
        let timeout = Duration::from_secs(5);
        Drain::new(&Case { timeout, stop, workload: workload.to_owned(), ..far_case(1000) })
    }

    #[test]
    fn a_server_that_still_receives_is_waited_for() {
        let mut drain = drain(Some(100), "throughput");
        assert!(drain.begins(seconds(100)) && !drain.begins(seconds(101)));
        for second in 0..60 {
            assert!(drain.remote(seconds(100 + second), 1000 * second));
        }
        assert!(drain.remote(seconds(165), 59_000), "silent for six seconds");
        assert!(!drain.remote(seconds(167), 59_000) && drain.is_over());
    }

    #[test]
    fn one_that_never_ends_is_not_waited_for_without_end() {
        for (time_s, workload, longest) in [
            (Some(1), "throughput", 9),
            (Some(30), "throughput", 37),
            (Some(1000), "throughput", 127),
            (None, "throughput", 150),
            (Some(1000), "latency", 7),
        ] {
            let mut drain = drain(time_s, workload);
            drain.begins(seconds(0));
            let waited = (0..1000).take_while(|second| drain.remote(seconds(*second), second + 1)).count();
            assert_eq!(waited, longest, "{time_s:?} {workload}");
        }
    }
}
