//! Counts of messages, and defects of the bytes that arrived. Where only the received messages are known, the document has
//! neither `sent` nor `lost`; where only the sent ones are, neither `received` nor `lost`.

use serde::{Deserialize, Serialize};

use super::{add_optional, is_zero};
use crate::run::defects::Defect;

/// Messages sent, received and lost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "WrittenCounts", into = "WrittenCounts")]
pub struct MessageCounts {
    /// Messages that the client sent (or the server, in a download).
    pub sent: u64,
    /// Messages received in time.
    pub received: u64,
    /// Messages sent that were not received in time.
    pub lost: u64,
    /// Whether only the received messages are known, as an imported file may lack the others; or only the sent ones, as the
    /// receiver did not report. Unknown counts are 0 here and absent in documents.
    pub losses_unknown: bool,
    /// An imported file counts no messages, as that of a stream. They are 0 here and absent in documents.
    pub messages_unknown: bool,
    /// Lost messages that the receiver's socket dropped, and messages that the network lost.
    pub receiver_socket_drops: Option<u64>,
    /// Messages that the network lost.
    pub network_lost: Option<u64>,
    /// Replies that arrived after their timeout. They count as lost.
    pub late: u64,
    /// Messages that arrived more than once.
    pub duplicate: u64,
    /// Replies that arrived before their request was sent.
    pub early: u64,
    /// Messages that arrived after one that was sent later.
    pub reordered: u64,
    /// Messages that arrived with changed content.
    pub corrupt_messages: u64,
    /// Messages that left when the next one of the schedule was already due.
    pub late_sends: u64,
    /// Messages of the schedule that were never sent: what is sent and these are the schedule.
    pub missed_sends: u64,
    /// Counts that an imported file says although they are 0.
    pub said_zeros: SaidZeros,
}

/// A set of the counts that most runs have none of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SaidZeros(u8);

/// Counts that are absent where there are none, in the order of the bits.
const RARE_COUNTS: [&str; 7] =
    ["late", "duplicate", "early", "reordered", "corrupt_messages", "late_sends", "missed_sends"];

impl SaidZeros {
    /// Adds a count that the file says.
    pub fn insert(&mut self, name: &str) {
        let place = RARE_COUNTS.iter().position(|rare| *rare == name);
        self.0 |= place.map_or(0, |place| 1 << place);
    }

    /// Whether the file says this count.
    pub fn contains(self, name: &str) -> bool {
        RARE_COUNTS.iter().position(|rare| *rare == name).is_some_and(|place| self.0 >> place & 1 == 1)
    }
}

/// The counts in a document: what is not known is absent, and so is what there is none of, unless an imported file says it.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct WrittenCounts {
    #[serde(skip_serializing_if = "Option::is_none")]
    sent: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    received: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lost: Option<u64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    losses_unknown: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    receiver_socket_drops: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    network_lost: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    late: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    duplicate: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    early: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reordered: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    corrupt_messages: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    late_sends: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    missed_sends: Option<u64>,
}

impl From<MessageCounts> for WrittenCounts {
    fn from(counts: MessageCounts) -> WrittenCounts {
        let said = |name, count| (count > 0 || counts.said_zeros.contains(name)).then_some(count);
        let are_known = !counts.messages_unknown;
        WrittenCounts {
            sent: counts.known_sent().filter(|_| are_known),
            received: counts.known_received().filter(|_| are_known),
            lost: counts.known_lost().filter(|_| are_known),
            losses_unknown: counts.losses_unknown,
            receiver_socket_drops: counts.receiver_socket_drops,
            network_lost: counts.network_lost,
            late: said("late", counts.late),
            duplicate: said("duplicate", counts.duplicate),
            early: said("early", counts.early),
            reordered: said("reordered", counts.reordered),
            corrupt_messages: said("corrupt_messages", counts.corrupt_messages),
            late_sends: said("late_sends", counts.late_sends),
            missed_sends: said("missed_sends", counts.missed_sends),
        }
    }
}

impl From<WrittenCounts> for MessageCounts {
    fn from(written: WrittenCounts) -> MessageCounts {
        let mut said_zeros = SaidZeros::default();
        let mut read = |name, count: Option<u64>| {
            if count == Some(0) {
                said_zeros.insert(name);
            }
            count.unwrap_or(0)
        };
        MessageCounts {
            late: read("late", written.late),
            duplicate: read("duplicate", written.duplicate),
            early: read("early", written.early),
            reordered: read("reordered", written.reordered),
            corrupt_messages: read("corrupt_messages", written.corrupt_messages),
            late_sends: read("late_sends", written.late_sends),
            missed_sends: read("missed_sends", written.missed_sends),
            sent: written.sent.unwrap_or(0),
            received: written.received.unwrap_or(0),
            lost: written.lost.unwrap_or(0),
            losses_unknown: written.losses_unknown,
            messages_unknown: !written.losses_unknown && written.sent.or(written.received).is_none(),
            receiver_socket_drops: written.receiver_socket_drops,
            network_lost: written.network_lost,
            said_zeros,
        }
    }
}

impl MessageCounts {
    /// Drops the counts that are not known: what was sent, and what of it was lost.
    pub fn forget_losses(&mut self) {
        let MessageCounts { received, duplicate, reordered, corrupt_messages, said_zeros, .. } = *self;
        let known = MessageCounts { received, duplicate, reordered, corrupt_messages, ..Default::default() };
        *self = MessageCounts { losses_unknown: true, said_zeros, ..known };
    }

    /// Drops the losses: the receiver did not report them.
    pub fn forget_lost(&mut self) {
        (self.losses_unknown, self.lost) = (true, 0);
        (self.receiver_socket_drops, self.network_lost) = (None, None);
    }

    /// Messages sent, if they are known.
    pub fn known_sent(&self) -> Option<u64> {
        (!self.losses_unknown || self.sent > 0).then_some(self.sent)
    }

    /// Messages received, if they are known.
    pub fn known_received(&self) -> Option<u64> {
        (!self.losses_unknown || self.received > 0 || self.sent == 0).then_some(self.received)
    }

    /// Messages lost, if they are known.
    pub fn known_lost(&self) -> Option<u64> {
        (!self.losses_unknown).then_some(self.lost)
    }

    /// The number that shares refer to: messages sent, or received where only these are known.
    pub fn reference(&self) -> u64 {
        self.known_sent().unwrap_or(self.received)
    }

    /// Whether the count of this name is absent in documents where there is none.
    pub(crate) fn is_rare(name: &str) -> bool {
        RARE_COUNTS.contains(&name)
    }

    /// Adds the counts of another repetition.
    pub fn add(&mut self, other: &MessageCounts) {
        for (sum, more) in [
            (&mut self.sent, other.sent),
            (&mut self.received, other.received),
            (&mut self.lost, other.lost),
            (&mut self.late, other.late),
            (&mut self.duplicate, other.duplicate),
            (&mut self.early, other.early),
            (&mut self.reordered, other.reordered),
            (&mut self.corrupt_messages, other.corrupt_messages),
            (&mut self.late_sends, other.late_sends),
            (&mut self.missed_sends, other.missed_sends),
        ] {
            *sum = sum.saturating_add(more);
        }
        self.losses_unknown |= other.losses_unknown;
        self.said_zeros.0 |= other.said_zeros.0;
        self.receiver_socket_drops = add_optional(self.receiver_socket_drops, other.receiver_socket_drops);
        self.network_lost = add_optional(self.network_lost, other.network_lost);
    }
}

/// Defects of the bytes that arrived.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "WrittenByteErrors", into = "WrittenByteErrors")]
pub struct ByteErrors {
    /// Bytes that arrived with another value.
    pub corrupt_bytes: u64,
    /// Bytes that a loop did not return.
    pub lost_bytes: u64,
    /// Bytes that a loop returned although they were not sent, or were sent once and returned twice.
    pub inserted_bytes: u64,
    /// The first defects of a loop, by position.
    pub defects: Vec<Defect>,
    /// An imported file says nothing of bytes. They are 0 here and absent in documents.
    pub are_unknown: bool,
}

/// The defects in a document: what is not known is absent.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct WrittenByteErrors {
    #[serde(skip_serializing_if = "Option::is_none")]
    corrupt_bytes: Option<u64>,
    #[serde(skip_serializing_if = "is_zero")]
    lost_bytes: u64,
    #[serde(skip_serializing_if = "is_zero")]
    inserted_bytes: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    defects: Vec<Defect>,
}

impl From<ByteErrors> for WrittenByteErrors {
    fn from(errors: ByteErrors) -> WrittenByteErrors {
        let ByteErrors { corrupt_bytes, lost_bytes, inserted_bytes, defects, are_unknown } = errors;
        let corrupt_bytes = Some(corrupt_bytes).filter(|_| !are_unknown);
        WrittenByteErrors { corrupt_bytes, lost_bytes, inserted_bytes, defects }
    }
}

impl From<WrittenByteErrors> for ByteErrors {
    fn from(written: WrittenByteErrors) -> ByteErrors {
        let WrittenByteErrors { corrupt_bytes, lost_bytes, inserted_bytes, defects } = written;
        ByteErrors {
            corrupt_bytes: corrupt_bytes.unwrap_or(0),
            lost_bytes,
            inserted_bytes,
            defects,
            are_unknown: corrupt_bytes.is_none(),
        }
    }
}

impl ByteErrors {
    /// The listed defects are those of the first that had any.
    pub fn add(&mut self, other: &ByteErrors) {
        self.corrupt_bytes = self.corrupt_bytes.saturating_add(other.corrupt_bytes);
        self.lost_bytes = self.lost_bytes.saturating_add(other.lost_bytes);
        self.inserted_bytes = self.inserted_bytes.saturating_add(other.inserted_bytes);
        if self.defects.is_empty() {
            self.defects.clone_from(&other.defects);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Figures;

    #[test]
    fn unknown_losses_are_absent() {
        let counts = MessageCounts { sent: 3229, ..MessageCounts::default() };
        let mut figures = Figures { counts, ..Figures::default() };
        figures.counts.forget_lost();
        let written = serde_json::to_value(&figures).unwrap();
        let keys = ["sent", "received", "lost", "losses_unknown"];
        let read = keys.map(|key| written.get(key).map(ToString::to_string).unwrap_or_default());
        assert_eq!(read, ["3229", "", "", "true"]);
        assert_eq!(serde_json::from_value::<Figures>(written).unwrap(), figures);
        assert_eq!((figures.loss_share(), figures.counts.reference()), (None, 3229));
        figures.counts.received = 7;
        assert_eq!(serde_json::to_value(&figures).unwrap()["received"], 7);
    }
}
