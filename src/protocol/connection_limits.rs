//! A leash for a connection of a client: rate, time and silence within a server's limits, whatever was planned on it.

use std::time::Duration;

use crate::clock::Time;
use crate::protocol::ServerLimits;

/// What a connection may do, whatever was planned on it.
pub struct ConnectionLimits {
    /// Bytes a second, and a second's worth more.
    max_bytes_per_second: Option<f64>,
    idle_timeout: Duration,
    max_duration: Duration,
    started_at: Option<Time>,
    /// When bytes moved last, and how many had by then.
    last_progress: (Time, u64),
}

/// Why a connection is ended.
pub const RATE_EXCEEDED: &str = "more than the rate that this server allows";
pub const DURATION_EXCEEDED: &str = "longer than this server allows";
pub const IDLE_EXCEEDED: &str = "nothing moved for longer than this server waits";

/// A plan that tells its length may take so much longer, until its last bytes are through.
pub const GRACE_PERIOD: Duration = Duration::from_secs(10);

impl ConnectionLimits {
    /// `sharing` connections have the rate together; `grace` is what it may take longer.
    pub fn new(limits: &ServerLimits, sharing: u32, grace: Duration) -> ConnectionLimits {
        let longest = Duration::from_secs(limits.duration_s);
        ConnectionLimits {
            max_bytes_per_second: limits.bit_rate.map(|rate| rate / 8.0 / f64::from(sharing.max(1))),
            idle_timeout: Duration::from_secs(limits.idle_s),
            max_duration: longest.saturating_add(grace),
            started_at: None,
            last_progress: (Time(0), 0),
        }
    }

    /// Why it has to end at `now`, after `bytes` in all.
    #[inline]
    pub fn exceeded_limit(&mut self, now: Time, bytes: u64) -> Option<&'static str> {
        let first = *self.started_at.get_or_insert_with(|| {
            self.last_progress.0 = now;
            now
        });
        if bytes != self.last_progress.1 {
            self.last_progress = (now, bytes);
        }
        if let Some(most) = self.max_bytes_per_second
            && bytes as f64 > most * (now.since(first).as_secs_f64() + 1.0) * 1.1 + 1e6
        {
            return Some(RATE_EXCEEDED);
        }
        if now.since(first) > self.max_duration {
            return Some(DURATION_EXCEEDED);
        }
        (now.since(self.last_progress.0) > self.idle_timeout).then_some(IDLE_EXCEEDED)
    }
}
