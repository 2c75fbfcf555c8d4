//! Counts of messages, and defects of the bytes that arrived. Where only the received messages are known, the document has
//! neither `sent` nor `lost`; where only the sent ones are, neither `received` nor `lost`.

use serde::{Deserialize, Serialize, Serializer};

use super::{add_optional, is_zero};
use crate::run::defects::Defect;

/// Messages sent, received and lost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MessageCounts {
    /// Messages that the client sent (or the server, in a download).
    pub sent: u64,
    /// Messages received in time.
    pub received: u64,
    /// Messages sent that were not received in time.
    pub lost: u64,
    /// Only the received messages are known, as an imported file may lack the others; or only the sent ones, as the receiver did
    /// not report. What is unknown is 0 here and absent in documents.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub losses_unknown: bool,
    /// Lost messages that the receiver's socket dropped, and messages that the network lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receiver_socket_drops: Option<u64>,
    /// Messages that the network lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_lost: Option<u64>,
    /// Replies that arrived after their timeout. They count as lost.
    #[serde(skip_serializing_if = "is_zero")]
    pub late: u64,
    /// Messages that arrived more than once.
    #[serde(skip_serializing_if = "is_zero")]
    pub duplicate: u64,
    /// Replies that arrived before their request was sent.
    #[serde(skip_serializing_if = "is_zero")]
    pub early: u64,
    /// Messages that arrived after one that was sent later.
    #[serde(skip_serializing_if = "is_zero")]
    pub reordered: u64,
    /// Messages that arrived with changed content.
    #[serde(skip_serializing_if = "is_zero")]
    pub corrupt_messages: u64,
    /// Messages that left when the next one of the schedule was already due.
    #[serde(skip_serializing_if = "is_zero")]
    pub late_sends: u64,
    /// Messages of the schedule that were never sent: what is sent and these are the schedule.
    #[serde(skip_serializing_if = "is_zero")]
    pub missed_sends: u64,
}

impl MessageCounts {
    /// Drops the counts that are not known: what was sent, and what of it was lost.
    pub fn forget_losses(&mut self) {
        let MessageCounts { received, duplicate, reordered, corrupt_messages, .. } = *self;
        let known = MessageCounts { received, duplicate, reordered, corrupt_messages, ..Default::default() };
        *self = MessageCounts { losses_unknown: true, ..known };
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
        self.receiver_socket_drops = add_optional(self.receiver_socket_drops, other.receiver_socket_drops);
        self.network_lost = add_optional(self.network_lost, other.network_lost);
    }
}

/// Writes the counts that are known.
pub(super) fn write_counts<S: Serializer>(counts: &MessageCounts, to: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct KnownCounts {
        #[serde(skip_serializing_if = "Option::is_none")]
        sent: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        received: Option<u64>,
        losses_unknown: bool,
        #[serde(skip_serializing_if = "is_zero")]
        duplicate: u64,
        #[serde(skip_serializing_if = "is_zero")]
        reordered: u64,
        #[serde(skip_serializing_if = "is_zero")]
        corrupt_messages: u64,
    }
    let MessageCounts { losses_unknown, duplicate, reordered, corrupt_messages, .. } = *counts;
    let (sent, received) = (counts.known_sent(), counts.known_received());
    match losses_unknown {
        true => KnownCounts { sent, received, losses_unknown, duplicate, reordered, corrupt_messages }
            .serialize(to),
        false => counts.serialize(to),
    }
}

/// Defects of the bytes that arrived.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ByteErrors {
    /// Bytes that arrived with another value.
    pub corrupt_bytes: u64,
    /// Bytes that a loop did not return.
    #[serde(skip_serializing_if = "is_zero")]
    pub lost_bytes: u64,
    /// Bytes that a loop returned although they were not sent, or were sent once and returned twice.
    #[serde(skip_serializing_if = "is_zero")]
    pub inserted_bytes: u64,
    /// The first defects of a loop, by position.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub defects: Vec<Defect>,
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
