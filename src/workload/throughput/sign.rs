//! What tells a sender on a link without connections that somebody receives.

use std::time::Duration;

use crate::clock::Time;
use crate::link::party::Step;

/// How often a receiver says that it is there.
pub const SIGNS: Duration = Duration::from_millis(200);

/// The message that says so, and when it is due again.
pub struct Sign {
    bytes: Vec<u8>,
    pub due: Time,
}

impl Sign {
    pub fn new(bytes: Vec<u8>) -> Sign {
        Sign { bytes, due: Time(0) }
    }

    pub fn step(&self) -> Step<'_> {
        Step::Send { bytes: &self.bytes, message: self.bytes.len() }
    }

    pub fn was_sent(&mut self, at: Time) {
        self.due = at + SIGNS;
    }
}
