//! Log of the loads that a server has served. A coordinator of several servers compares their logs: two loads
//! that overlapped on a shared resource have disturbed each other.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use linkgauge_model::clock::Time;

/// Maximum number of loads that a log holds; further ones are only counted.
pub const MAX_LOGGED_LOADS: usize = 4096;

/// Measurement that moved payload, from its start to the report of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServedLoad {
    /// Time at which the client started it.
    pub began: Time,
    /// Time at which the server had its report ready, or the client had disconnected.
    pub ended: Time,
}

/// Content of a log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoggedLoads {
    /// Loads in the order of their ends.
    pub loads: Vec<ServedLoad>,
    /// Number of loads beyond [`MAX_LOGGED_LOADS`].
    pub left_out: u64,
}

/// Log of the loads that a server has served. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct LoadLog(Arc<Mutex<LoggedLoads>>);

impl LoadLog {
    /// Loads that have ended.
    pub fn read(&self) -> LoggedLoads {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn record(&self, load: ServedLoad) {
        let mut logged = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match logged.loads.len() < MAX_LOGGED_LOADS {
            true => logged.loads.push(load),
            false => logged.left_out += 1,
        }
    }
}

/// Load of a session, which is recorded once, at its end.
#[derive(Debug)]
pub(crate) struct OpenLoad {
    log: Option<LoadLog>,
    /// Time at which the load began, in ns; `u64::MAX`: none is open.
    began_ns: AtomicU64,
}

impl OpenLoad {
    /// Load that is not open yet. Without a log, nothing is recorded.
    pub fn new(log: Option<LoadLog>) -> OpenLoad {
        OpenLoad { log, began_ns: AtomicU64::new(u64::MAX) }
    }

    pub fn begin(&self, now: Time) {
        self.began_ns.store(now.0, Relaxed);
    }

    pub fn end(&self, now: Time) {
        let began = Time(self.began_ns.swap(u64::MAX, Relaxed));
        if let Some(log) = self.log.as_ref().filter(|_| began != Time::NEVER) {
            log.record(ServedLoad { began, ended: now.max(began) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_recorded_once_and_the_log_is_bounded() {
        let log = LoadLog::default();
        let open = OpenLoad::new(Some(log.clone()));
        open.end(Time(1));
        assert_eq!(log.read(), LoggedLoads::default(), "nothing has begun");
        open.begin(Time(5));
        open.end(Time(9));
        open.end(Time(12));
        assert_eq!(log.read().loads, [ServedLoad { began: Time(5), ended: Time(9) }]);
        for _ in 0..MAX_LOGGED_LOADS {
            open.begin(Time(20));
            open.end(Time(21));
        }
        assert_eq!((log.read().loads.len(), log.read().left_out), (MAX_LOGGED_LOADS, 1));
    }
}
