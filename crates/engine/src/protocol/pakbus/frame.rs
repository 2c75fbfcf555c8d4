//! Frames: the bytes between two sync bytes on the line, with a signature for error detection.
//!
//! The packet in a frame is parsed in `packet.rs`. A receiver drops invalid frames silently, so it can only count them.

/// Start and end of every frame; never occurs inside one.
pub const SYNC_BYTE: u8 = 0xBD;
/// Byte that escapes the next one.
const QUOTE_BYTE: u8 = 0xBC;
/// Value that is added to an escaped byte.
const QUOTE_OFFSET: u8 = 0x20;

/// Maximum packet with nullifier that a receiver accepts, in bytes (BMP5 manual).
pub(crate) const MAX_PACKET_BYTES: usize = 1010;

const NULLIFIER_BYTES: usize = 2;

/// Minimum size of a packet in bytes: the state of a link, and a nullifier.
const MIN_PACKET_BYTES: usize = 4 + NULLIFIER_BYTES;

/// Seed of the signature of a packet or a table definition.
pub(crate) const SIGNATURE_SEED: u16 = 0xAAAA;

/// Signature over `bytes`, continued from `seed`.
pub(crate) fn signature(seed: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(seed, |signature, &byte| {
        let [high, low] = signature.to_be_bytes();
        let next = low.rotate_left(1).wrapping_add(high).wrapping_add(byte);
        u16::from_be_bytes([low, next])
    })
}

/// Two bytes that make a signature zero.
pub(crate) fn nullifier(signature: u16) -> [u8; NULLIFIER_BYTES] {
    let [high, low] = signature.to_be_bytes();
    [low.rotate_left(1).wrapping_add(high).wrapping_neg(), low.wrapping_neg()]
}

/// Appends the frame of a packet. The frame does not share its two sync bytes: some clients miss a frame that shares one.
pub fn write(packet: &[u8], into: &mut Vec<u8>) {
    into.push(SYNC_BYTE);
    for &byte in packet.iter().chain(&nullifier(signature(SIGNATURE_SEED, packet))) {
        match byte {
            SYNC_BYTE | QUOTE_BYTE => into.extend([QUOTE_BYTE, byte.wrapping_add(QUOTE_OFFSET)]),
            byte => into.push(byte),
        }
    }
    into.push(SYNC_BYTE);
}

/// Counts of a receiver.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FrameCounts {
    /// Number of valid packets.
    pub(crate) packets: u64,
    /// Number of frames with a non-zero signature: line errors.
    pub bad_signatures: u64,
    /// Number of frames that were too short, too long or wrongly quoted.
    pub malformed: u64,
    /// Number of bytes before the first sync byte.
    pub(crate) junk_bytes: u64,
}

/// Extracts packets from a stream of bytes. Memory is bounded by the longest packet, whatever the input.
#[derive(Debug)]
pub struct FrameDecoder {
    /// Bytes of the current frame, unquoted.
    packet: Vec<u8>,
    state: FrameDecoderState,
    counts: FrameCounts,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FrameDecoderState {
    /// State before any sync byte.
    BeforeFirstSync,
    InFrame,
    /// State after a quote byte.
    AfterQuote,
    /// State in an invalid frame.
    Skipping,
    /// State after a valid packet, which stays in the buffer until the next call.
    PacketComplete,
}

impl Default for FrameDecoder {
    fn default() -> FrameDecoder {
        FrameDecoder {
            packet: Vec::with_capacity(MAX_PACKET_BYTES),
            state: FrameDecoderState::BeforeFirstSync,
            counts: FrameCounts::default(),
        }
    }
}

impl FrameDecoder {
    /// Reads until a packet is complete. Returns the number of bytes read, and the packet without its nullifier; `None`
    /// means that all bytes were read.
    pub fn read(&mut self, bytes: &[u8]) -> (usize, Option<&[u8]>) {
        if self.state == FrameDecoderState::PacketComplete {
            self.packet.clear();
            self.state = FrameDecoderState::InFrame;
        }
        for (at, &byte) in bytes.iter().enumerate() {
            if byte == SYNC_BYTE {
                if self.end_frame() {
                    return (at + 1, Some(&self.packet[..self.packet.len() - NULLIFIER_BYTES]));
                }
            } else {
                self.push_byte(byte);
            }
        }
        (bytes.len(), None)
    }

    /// Counts since the last call.
    pub fn take_counts(&mut self) -> FrameCounts {
        std::mem::take(&mut self.counts)
    }

    /// Adds a byte other than the sync byte.
    fn push_byte(&mut self, byte: u8) {
        match (self.state, byte) {
            (FrameDecoderState::BeforeFirstSync, _) => self.counts.junk_bytes += 1,
            (FrameDecoderState::Skipping, _) => {}
            (FrameDecoderState::InFrame | FrameDecoderState::PacketComplete, QUOTE_BYTE) => {
                self.state = FrameDecoderState::AfterQuote
            }
            (FrameDecoderState::InFrame | FrameDecoderState::PacketComplete, _) => self.store_byte(byte),
            (FrameDecoderState::AfterQuote, _) => {
                self.state = FrameDecoderState::InFrame;
                match byte.wrapping_sub(QUOTE_OFFSET) {
                    byte @ (SYNC_BYTE | QUOTE_BYTE) => self.store_byte(byte),
                    _ => self.state = FrameDecoderState::Skipping,
                }
            }
        }
    }

    fn store_byte(&mut self, byte: u8) {
        if self.packet.len() == MAX_PACKET_BYTES {
            self.state = FrameDecoderState::Skipping;
        } else {
            self.packet.push(byte);
        }
    }

    /// Handles a sync byte: returns whether it closes a valid packet. It opens the next frame as well.
    fn end_frame(&mut self) -> bool {
        let counter = match self.state {
            FrameDecoderState::BeforeFirstSync => None,
            FrameDecoderState::AfterQuote | FrameDecoderState::Skipping => Some(&mut self.counts.malformed),
            _ if self.packet.is_empty() => None,
            _ if self.packet.len() < MIN_PACKET_BYTES => Some(&mut self.counts.malformed),
            _ if signature(SIGNATURE_SEED, &self.packet) != 0 => Some(&mut self.counts.bad_signatures),
            _ => {
                self.counts.packets += 1;
                self.state = FrameDecoderState::PacketComplete;
                return true;
            }
        };
        counter.into_iter().for_each(|counter| *counter += 1);
        self.packet.clear();
        self.state = FrameDecoderState::InFrame;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::pakbus::parse_hex;
    use proptest::prelude::*;

    /// Packets and counts for an input in these chunks.
    fn packets<'a>(chunks: impl Iterator<Item = &'a [u8]>) -> (Vec<Vec<u8>>, FrameCounts) {
        let (mut decoder, mut packets) = (FrameDecoder::default(), Vec::new());
        for mut chunk in chunks {
            while !chunk.is_empty() {
                let (used, packet) = decoder.read(chunk);
                packets.extend(packet.map(<[u8]>::to_vec));
                chunk = &chunk[used..];
            }
        }
        (packets, decoder.take_counts())
    }

    fn framed(packet: &[u8]) -> Vec<u8> {
        let mut frame = Vec::new();
        write(packet, &mut frame);
        frame
    }

    #[test]
    fn signatures_agree_with_the_manual_and_others() {
        let all: Vec<u8> = (0..=255).collect();
        for (bytes, expected) in [
            (&b""[..], 0xAAAA),
            (&[0], 0xAAFF),
            (b"123456789", 0xE0C1),
            (&all, 0x28C2),
            (&parse_hex("A0025FF010020FF009E8FFFF060005F5C600006632000075600000"), 0x6300),
        ] {
            assert_eq!(signature(SIGNATURE_SEED, bytes), expected);
        }
        assert_eq!(signature(signature(SIGNATURE_SEED, b"1234"), b"56789"), 0xE0C1, "in two parts");
    }

    #[test]
    fn nullifiers_agree_with_the_manual_and_others() {
        let upload =
            [&parse_hex("A001700410010004 1D1D0000")[..], b"CPU:Def.tdf", &parse_hex("00 00 00000000 0080")];
        let values = [
            &parse_hex("A001400410010004 1A1A0000")[..],
            b"Public",
            &parse_hex("0009"),
            b"RH",
            &parse_hex("000001"),
        ];
        for (bytes, expected) in [
            (vec![], [0x01, 0x56]),
            (parse_hex("90010FFE"), [0x71, 0xD2]),
            (parse_hex("AFFE0001"), [0x5A, 0x89]),
            (parse_hex("A0014FFE10010FFE1717 00000000000000000000"), [0xB2, 0xB3]),
            (parse_hex("AFFE00011FFE000197170 01BFA2A61C8000000"), [0x04, 0xFA]),
            (parse_hex("A0025FF010020FF009E8FFFF060005F5C600006632000075600000"), [0x9D, 0x00]),
            (upload.concat(), [0x27, 0xEA]),
            (parse_hex("A001700410010004 09090000 05 00034315 0000003C 0000"), [0xC7, 0xDF]),
            (values.concat(), [0x2A, 0xF9]),
        ] {
            assert_eq!(nullifier(signature(SIGNATURE_SEED, &bytes)), expected, "{bytes:02X?}");
        }
    }

    #[test]
    fn nullifiers_are_quoted_too() {
        for frame in [
            "BD A0011FFE10010FFE18490000 BCDC50 BD",
            "BD A0011FFE10010FFE18670000 5CBCDD BD",
            "BD A0011FFE10010FFE189A0000 F6BCDD BD",
            "BD A0011FFE10010FFE18B40000 BCDD3B BD",
            "BD 9001580200010802091400020708 BCDC5C BD",
        ] {
            let frame = parse_hex(frame);
            let (found, _) = packets([&frame[..]].into_iter());
            assert_eq!(found.len(), 1);
            assert_eq!(framed(&found[0]), frame);
        }
    }

    #[test]
    fn bytes_between_frames_are_skipped() {
        let (ring, ready) = (parse_hex("90010FFE"), parse_hex("AFFE0001"));
        let mut stream = b"login:".to_vec();
        stream.extend([SYNC_BYTE; 6]);
        stream.extend(framed(&ring));
        // One sync byte closes a frame and opens the next.
        stream.pop();
        stream.extend(framed(&ready));
        let (found, counts) = packets([&stream[..]].into_iter());
        assert_eq!(found, [ring, ready]);
        assert_eq!(counts, FrameCounts { packets: 2, junk_bytes: 6, ..FrameCounts::default() });
    }

    #[test]
    fn invalid_frames_are_dropped_and_counted() {
        let ring = framed(&parse_hex("90010FFE"));
        let mut changed = ring.clone();
        changed[3] ^= 1;
        let mut long = vec![SYNC_BYTE];
        long.resize(MAX_PACKET_BYTES + 2, 7);
        assert_eq!(packets([&framed(&[7; MAX_PACKET_BYTES - NULLIFIER_BYTES])[..]].into_iter()).0.len(), 1);
        assert_eq!(
            packets([&framed(&[7; MAX_PACKET_BYTES - NULLIFIER_BYTES + 1])[..]].into_iter()).0.len(),
            0
        );
        let mut stream = Vec::new();
        for wrong in [
            &changed[..],
            &long,
            &parse_hex("BD 01 BC"),
            &parse_hex("BD 01 BC 41"),
            &parse_hex("BD 00 01 56"),
        ] {
            stream.extend(wrong);
            stream.extend(&ring);
        }
        let (found, counts) = packets([&stream[..]].into_iter());
        assert_eq!(found.len(), 5, "each is followed by a whole one");
        assert_eq!(counts, FrameCounts { packets: 5, bad_signatures: 1, malformed: 4, junk_bytes: 0 });
    }

    proptest! {
        #[test]
        fn packets_are_found_in_chunks_of_any_size(
            packet in prop::collection::vec(prop_oneof![any::<u8>(), Just(SYNC_BYTE), Just(QUOTE_BYTE)], 4..60),
            size in 1usize..50,
        ) {
            let mut stream = framed(&packet);
            prop_assert!(!stream[1..stream.len() - 1].contains(&SYNC_BYTE));
            stream.extend(framed(&packet));
            let (found, counts) = packets(stream.chunks(size));
            prop_assert_eq!(found, [packet.clone(), packet]);
            prop_assert_eq!(counts, FrameCounts { packets: 2, ..FrameCounts::default() });
        }

        #[test]
        fn garbage_is_read_the_same_in_chunks_of_any_size(bytes: Vec<u8>, size in 1usize..9) {
            let whole = packets([&bytes[..]].into_iter());
            prop_assert_eq!(whole, packets(bytes.chunks(size)));
        }
    }
}
