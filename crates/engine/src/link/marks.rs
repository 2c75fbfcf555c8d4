//! Marks in the IP headers of received messages: congestion (CE of RFC 3168), and changes of the ECN field and of the DSCP on
//! the path.

use serde::{Deserialize, Serialize};

/// The two bits of ECN in the traffic class.
const ECN_MASK: u8 = 3;
/// Congestion experienced.
const CE: u8 = 3;

/// Counts of the messages that one end received, by what the network did with their header. A receiver expects the class that
/// it sends with: both ends of a linkgauge session send with the requested one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MarkCounts {
    /// Messages whose class was read.
    pub messages: u64,
    /// Messages with congestion experienced (CE).
    pub(crate) ce: u64,
    /// Messages with another ECN field than they were sent with, but not CE.
    pub(crate) ecn_changed: u64,
    /// Messages with another DSCP than they were sent with.
    pub(crate) dscp_changed: u64,
}

impl MarkCounts {
    /// Counts messages that were sent with the class `expected`, and arrived with `received`. Returns those with CE.
    #[inline]
    pub(crate) fn count(&mut self, expected: u8, received: u8, messages: u64) -> u64 {
        let ecn = received & ECN_MASK;
        let ce = if ecn == CE { messages } else { 0 };
        self.messages += messages;
        self.ce += ce;
        if ecn != CE && ecn != expected & ECN_MASK {
            self.ecn_changed += messages;
        }
        if received & !ECN_MASK != expected & !ECN_MASK {
            self.dscp_changed += messages;
        }
        ce
    }

    /// Adds the counts of another flow, which may come from an untrusted server.
    pub fn add(&mut self, other: &MarkCounts) {
        for (sum, more) in [
            (&mut self.messages, other.messages),
            (&mut self.ce, other.ce),
            (&mut self.ecn_changed, other.ecn_changed),
            (&mut self.dscp_changed, other.dscp_changed),
        ] {
            *sum = sum.saturating_add(more);
        }
    }
}

/// Reads the class of each message that a link receives.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MarkReader {
    /// The traffic class of the messages when they were sent.
    pub(crate) expected: u8,
    pub(crate) counts: MarkCounts,
}

impl MarkReader {
    pub fn new(expected: u8) -> MarkReader {
        MarkReader { expected, counts: MarkCounts::default() }
    }

    /// Counts messages with this class. Returns those with CE.
    #[inline]
    pub(crate) fn count(&mut self, class: Option<u8>, messages: u64) -> u64 {
        class.map_or(0, |class| self.counts.count(self.expected, class, messages))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_counted_by_their_kind() {
        // EF with ECT(0).
        let mut reader = MarkReader::new(46 << 2 | 2);
        let ce: Vec<u64> = [
            (Some(46 << 2 | 2), 10),
            (Some(46 << 2 | 3), 3),
            (Some(46 << 2), 2),
            (Some(2), 4),
            (Some(3), 1),
            (None, 100),
        ]
        .map(|(class, messages)| reader.count(class, messages))
        .to_vec();
        assert_eq!(ce, [0, 3, 0, 0, 1, 0]);
        let counts = MarkCounts { messages: 20, ce: 4, ecn_changed: 2, dscp_changed: 5 };
        assert_eq!(reader.counts, counts);
        let mut sum = MarkCounts { ce: u64::MAX, ..counts };
        sum.add(&counts);
        assert_eq!(sum, MarkCounts { messages: 40, ce: u64::MAX, ecn_changed: 4, dscp_changed: 10 });
    }
}
