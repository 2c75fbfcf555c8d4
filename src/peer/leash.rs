//! A leash for a connection of a client: rate, time and silence within a server's limits, whatever was planned on it.

use std::time::Duration;

use crate::clock::Time;
use crate::peer::Limits;

/// What a connection may do, whatever was planned on it.
pub struct Leash {
    /// Bytes a second, and a second's worth more.
    most: Option<f64>,
    idle: Duration,
    longest: Duration,
    first: Option<Time>,
    /// When bytes moved last, and how many had by then.
    moved: (Time, u64),
}

/// Why a connection is ended.
pub const TOO_MUCH: &str = "more than the rate that this server allows";
pub const TOO_LONG: &str = "longer than this server allows";
pub const TOO_SILENT: &str = "nothing moved for longer than this server waits";

/// A plan that tells its length may take so much longer, until its last bytes are through.
pub const GRACE: Duration = Duration::from_secs(10);

impl Leash {
    /// `sharing` connections have the rate together; `grace` is what it may take longer.
    pub fn new(limits: &Limits, sharing: u32, grace: Duration) -> Leash {
        let longest = Duration::from_secs(limits.duration_s);
        Leash {
            most: limits.bit_rate.map(|rate| rate / 8.0 / f64::from(sharing.max(1))),
            idle: Duration::from_secs(limits.idle_s),
            longest: longest.saturating_add(grace),
            first: None,
            moved: (Time(0), 0),
        }
    }

    /// Why it has to end at `now`, after `bytes` in all.
    #[inline]
    pub fn ends(&mut self, now: Time, bytes: u64) -> Option<&'static str> {
        let first = *self.first.get_or_insert_with(|| {
            self.moved.0 = now;
            now
        });
        if bytes != self.moved.1 {
            self.moved = (now, bytes);
        }
        if let Some(most) = self.most
            && bytes as f64 > most * (now.since(first).as_secs_f64() + 1.0) * 1.1 + 1e6
        {
            return Some(TOO_MUCH);
        }
        if now.since(first) > self.longest {
            return Some(TOO_LONG);
        }
        (now.since(self.moved.0) > self.idle).then_some(TOO_SILENT)
    }
}
