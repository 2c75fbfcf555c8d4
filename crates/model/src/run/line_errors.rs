//! Errors of serial lines.

use serde::{Deserialize, Serialize};

/// Errors that serial ports counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineErrors {
    /// Characters without a valid stop bit.
    #[serde(rename = "framing_errors")]
    pub framing: u64,
    /// Characters with wrong parity.
    #[serde(rename = "parity_errors")]
    pub parity: u64,
    /// Break conditions.
    pub breaks: u64,
    /// Characters that the port lost.
    pub overruns: u64,
}

impl LineErrors {
    /// Adds the counts of another repetition.
    pub fn add(&mut self, other: &LineErrors) {
        self.framing = self.framing.saturating_add(other.framing);
        self.parity = self.parity.saturating_add(other.parity);
        self.breaks = self.breaks.saturating_add(other.breaks);
        self.overruns = self.overruns.saturating_add(other.overruns);
    }
}
