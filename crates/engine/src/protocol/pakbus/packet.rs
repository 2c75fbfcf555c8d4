//! Packets: source, destination, the next neighbour, and the state of the link to it.
//!
//! The content of the message is in `message.rs`.

use super::PakBusParseError;
use super::codec::{MessageReader, MessageWriter};

/// State of a link as seen by the sender: the top four bits of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkState(pub u8);

impl LinkState {
    /// The link is closed.
    pub const OFF_LINE: LinkState = LinkState(0x8);
    /// Requests that the neighbour opens the link; the neighbour replies with [`LinkState::READY`].
    pub const RING: LinkState = LinkState(0x9);
    /// The link is open.
    pub const READY: LinkState = LinkState(0xA);
    /// The sender has nothing more to send; the neighbour replies with [`LinkState::OFF_LINE`].
    pub const FINISHED: LinkState = LinkState(0xB);
    /// The sender cannot receive for now.
    pub const PAUSE: LinkState = LinkState(0xC);
}

/// First half of a header: from one neighbour to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hop {
    /// The state of the link.
    pub state: LinkState,
    /// Address of the receiving neighbour; 4095 means every neighbour.
    pub to: u16,
    /// Address of the sending neighbour.
    pub from: u16,
    /// Announcement of the next message (0 none, 1 more, 2 unknown, 3 a reply is expected); receivers may ignore it.
    pub expect_more: u8,
    /// Priority, from 0 (low) to 3 (highest); receivers may ignore it.
    pub priority: u8,
}

/// Second half of a header: from source to destination, over any number of hops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketRoute {
    /// Protocol of the message: `PAKCTRL` or `BMP5`.
    pub protocol: u8,
    /// Address of the destination; 4095 means every node.
    pub to: u16,
    /// Address of the source.
    pub from: u16,
    /// Number of routers passed.
    pub hops: u8,
}

/// Protocol of routes and settings.
pub(crate) const PAKCTRL: u8 = 0;
/// Protocol of clocks, files and tables.
pub const BMP5: u8 = 1;

/// Packet of PakBus. Without a route it has only the state of the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PakBusPacket<'a> {
    /// Neighbours between which the packet passes.
    pub hop: Hop,
    /// Route and content; absent if the packet has only a state.
    pub message: Option<(PacketRoute, &'a [u8])>,
}

/// Splits a word into four flag bits and an address.
fn split_word(word: u16) -> (u8, u16) {
    ((word >> 12) as u8, word & 0xFFF)
}

fn join_word(bits: u8, address: u16) -> u16 {
    u16::from(bits) << 12 | address & 0xFFF
}

impl<'a> PakBusPacket<'a> {
    /// Parses a packet without its nullifier.
    ///
    /// # Errors
    ///
    /// [`PakBusParseError::TooShort`] for a truncated header.
    pub fn read(bytes: &'a [u8]) -> Result<PakBusPacket<'a>, PakBusParseError> {
        let mut reader = MessageReader(bytes);
        let (state, to) = split_word(reader.u16()?);
        let (bits, from) = split_word(reader.u16()?);
        let hop = Hop { state: LinkState(state), to, from, expect_more: bits >> 2, priority: bits & 3 };
        if reader.is_empty() {
            return Ok(PakBusPacket { hop, message: None });
        }
        let (protocol, to) = split_word(reader.u16()?);
        let (hops, from) = split_word(reader.u16()?);
        Ok(PakBusPacket { hop, message: Some((PacketRoute { protocol, to, from, hops }, reader.rest())) })
    }

    /// Encodes the packet without its nullifier.
    pub fn write(&self) -> Vec<u8> {
        let hop = &self.hop;
        let mut bytes = Vec::with_capacity(8 + self.message.map_or(0, |(_, message)| message.len()));
        bytes.u16(join_word(hop.state.0, hop.to));
        bytes.u16(join_word(hop.expect_more << 2 | hop.priority & 3, hop.from));
        if let Some((route, message)) = &self.message {
            bytes.u16(join_word(route.protocol, route.to));
            bytes.u16(join_word(route.hops, route.from));
            bytes.extend_from_slice(message);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::pakbus::{frame, parse_hex};
    use proptest::prelude::*;

    #[test]
    fn states_of_a_link_are_framed_as_in_the_manual() {
        let to_logger = Hop { state: LinkState::RING, to: 1, from: 4094, expect_more: 0, priority: 0 };
        let from_logger = Hop { state: LinkState::READY, to: 4094, from: 1, ..to_logger };
        for (hop, expected) in [
            (to_logger, "BD 90010FFE 71D2 BD"),
            (from_logger, "BD AFFE0001 5A89 BD"),
            (Hop { state: LinkState::FINISHED, ..to_logger }, "BD B0010FFE D353 BD"),
            (Hop { state: LinkState::OFF_LINE, ..from_logger }, "BD 8FFE0001 F608 BD"),
        ] {
            let packet = PakBusPacket { hop, message: None };
            let mut framed = Vec::new();
            frame::write(&packet.write(), &mut framed);
            assert_eq!(framed, parse_hex(expected));
            assert_eq!(PakBusPacket::read(&parse_hex(expected)[1..5]), Ok(packet));
        }
    }

    #[test]
    fn a_header_comes_apart() {
        let bytes = parse_hex("A001980210010802");
        let packet = PakBusPacket::read(&bytes).unwrap();
        let hop = Hop { state: LinkState::READY, to: 1, from: 0x802, expect_more: 2, priority: 1 };
        let route = PacketRoute { protocol: BMP5, to: 1, from: 0x802, hops: 0 };
        assert_eq!(packet, PakBusPacket { hop, message: Some((route, &[])) });
    }

    proptest! {
        #[test]
        fn what_can_be_read_writes_back(bytes: Vec<u8>) {
            match PakBusPacket::read(&bytes) {
                Ok(packet) => prop_assert_eq!(packet.write(), bytes),
                Err(_) => prop_assert!(bytes.len() < 8),
            }
        }
    }
}
