//! Keepalive: shows a sender on a link without connections that the receiver is running.

use std::time::Duration;

use crate::link::party::Step;
use linkgauge_model::clock::Time;

/// Interval between keepalives.
pub(crate) const KEEPALIVE_INTERVAL: Duration = Duration::from_millis(200);

/// The keepalive message and its next time.
pub(crate) struct Keepalive {
    bytes: Vec<u8>,
    pub(crate) next_due: Time,
}

impl Keepalive {
    pub fn new(bytes: Vec<u8>) -> Keepalive {
        Keepalive { bytes, next_due: Time(0) }
    }

    pub(crate) fn send_step(&self) -> Step<'_> {
        Step::Send { bytes: &self.bytes, message: self.bytes.len() }
    }

    pub(crate) fn mark_sent(&mut self, at: Time) {
        self.next_due = at + KEEPALIVE_INTERVAL;
    }
}
