//! Bytes that a party has for its client.

use linkgauge_engine::link::party::Step;

/// Bytes to send, and how many of them the link has taken.
#[derive(Debug, Default)]
pub(crate) struct UnsentBytes {
    bytes: Vec<u8>,
    sent: usize,
}

impl UnsentBytes {
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn extend(&mut self, bytes: impl IntoIterator<Item = u8>) {
        self.bytes.extend(bytes);
    }

    /// Sends what the link has not taken yet.
    pub(crate) fn step(&self) -> Step<'_> {
        Step::Send { bytes: &self.bytes[self.sent..], message: self.bytes.len() }
    }

    /// The link has taken this number of bytes.
    pub(crate) fn mark_sent(&mut self, bytes: usize) {
        self.sent += bytes;
        if self.sent == self.bytes.len() {
            self.bytes.clear();
            self.sent = 0;
        }
    }
}
