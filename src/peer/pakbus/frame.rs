//! Frames: what stands between two sync bytes on the line, with the signature that proves it whole.
//!
//! Not for what a packet says (`packet.rs`). A receiver drops what it cannot read without a word, so all it can do is
//! count.

/// Begins and ends every frame, and stands nowhere inside one.
pub const SYNC: u8 = 0xBD;
/// Announces a byte that could be taken for something else.
const QUOTE: u8 = 0xBC;
/// What is added to such a byte.
const SHIFT: u8 = 0x20;

/// Most bytes of a packet with its nullifier that a receiver takes (BMP5 manual).
pub const LONGEST: usize = 1010;

const NULLIFIER: usize = 2;

/// Bytes of the shortest packet: the state of a link, and a nullifier.
const SHORTEST: usize = 4 + NULLIFIER;

/// Where the signature of a packet or a table definition begins.
pub const SEED: u16 = 0xAAAA;

/// The signature over `bytes`, going on from `seed`.
pub fn signature(seed: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(seed, |signature, &byte| {
        let [high, low] = signature.to_be_bytes();
        let next = low.rotate_left(1).wrapping_add(high).wrapping_add(byte);
        u16::from_be_bytes([low, next])
    })
}

/// The two bytes that bring a signature to zero.
pub fn nullifier(signature: u16) -> [u8; NULLIFIER] {
    let [high, low] = signature.to_be_bytes();
    [low.rotate_left(1).wrapping_add(high).wrapping_neg(), low.wrapping_neg()]
}

/// Appends the frame of a packet. Both its sync bytes are its own: some clients miss a frame that shares one.
pub fn write(packet: &[u8], into: &mut Vec<u8>) {
    into.push(SYNC);
    for &byte in packet.iter().chain(&nullifier(signature(SEED, packet))) {
        match byte {
            SYNC | QUOTE => into.extend([QUOTE, byte.wrapping_add(SHIFT)]),
            byte => into.push(byte),
        }
    }
    into.push(SYNC);
}

/// What a receiver has seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Whole packets.
    pub packets: u64,
    /// Frames whose signature was not zero: the errors of the line.
    pub bad_signatures: u64,
    /// Frames that were too short, too long or wrongly quoted.
    pub malformed: u64,
    /// Bytes before the first sync byte.
    pub junk: u64,
}

/// Takes packets out of a stream of bytes. Needs no more memory than the longest packet, whatever comes.
#[derive(Debug)]
pub struct Decoder {
    /// Of the frame under way, without quotes.
    packet: Vec<u8>,
    state: State,
    counts: Counts,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// No sync byte was ever seen.
    Outside,
    Inside,
    /// Behind a quote.
    Quoted,
    /// In a frame that is already known to be wrong.
    Skipping,
    /// Behind a whole packet, which stays where it is until the caller reads on.
    Whole,
}

impl Default for Decoder {
    fn default() -> Decoder {
        Decoder { packet: Vec::with_capacity(LONGEST), state: State::Outside, counts: Counts::default() }
    }
}

impl Decoder {
    /// Reads on until a packet is whole: how many of the bytes were taken, and the packet without its nullifier.
    /// `None` means that all were taken.
    pub fn read(&mut self, bytes: &[u8]) -> (usize, Option<&[u8]>) {
        if self.state == State::Whole {
            self.packet.clear();
            self.state = State::Inside;
        }
        for (at, &byte) in bytes.iter().enumerate() {
            if byte == SYNC {
                if self.close() {
                    return (at + 1, Some(&self.packet[..self.packet.len() - NULLIFIER]));
                }
            } else {
                self.take(byte);
            }
        }
        (bytes.len(), None)
    }

    /// What was seen since this was asked last.
    pub fn take_counts(&mut self) -> Counts {
        std::mem::take(&mut self.counts)
    }

    /// One byte that is no sync byte.
    fn take(&mut self, byte: u8) {
        match (self.state, byte) {
            (State::Outside, _) => self.counts.junk += 1,
            (State::Skipping, _) => {}
            (State::Inside | State::Whole, QUOTE) => self.state = State::Quoted,
            (State::Inside | State::Whole, _) => self.keep(byte),
            (State::Quoted, _) => {
                self.state = State::Inside;
                match byte.wrapping_sub(SHIFT) {
                    byte @ (SYNC | QUOTE) => self.keep(byte),
                    _ => self.state = State::Skipping,
                }
            }
        }
    }

    fn keep(&mut self, byte: u8) {
        if self.packet.len() == LONGEST {
            self.state = State::Skipping;
        } else {
            self.packet.push(byte);
        }
    }

    /// A sync byte: whether it closes a whole packet. It opens the next frame as well.
    fn close(&mut self) -> bool {
        let counter = match self.state {
            State::Outside => None,
            State::Quoted | State::Skipping => Some(&mut self.counts.malformed),
            _ if self.packet.is_empty() => None,
            _ if self.packet.len() < SHORTEST => Some(&mut self.counts.malformed),
            _ if signature(SEED, &self.packet) != 0 => Some(&mut self.counts.bad_signatures),
            _ => {
                self.counts.packets += 1;
                self.state = State::Whole;
                return true;
            }
        };
        counter.into_iter().for_each(|counter| *counter += 1);
        self.packet.clear();
        self.state = State::Inside;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::pakbus::hex;
    use proptest::prelude::*;

    /// Packets in what came in these pieces, and what was counted.
    fn packets<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Vec<u8>>, Counts) {
        let (mut decoder, mut packets) = (Decoder::default(), Vec::new());
        for mut piece in pieces {
            while !piece.is_empty() {
                let (used, packet) = decoder.read(piece);
                packets.extend(packet.map(<[u8]>::to_vec));
                piece = &piece[used..];
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
            (&hex("A0025FF010020FF009E8FFFF060005F5C600006632000075600000"), 0x6300),
        ] {
            assert_eq!(signature(SEED, bytes), expected);
        }
        assert_eq!(signature(signature(SEED, b"1234"), b"56789"), 0xE0C1, "in pieces");
    }

    #[test]
    fn nullifiers_agree_with_the_manual_and_others() {
        let upload = [&hex("A001700410010004 1D1D0000")[..], b"CPU:Def.tdf", &hex("00 00 00000000 0080")];
        let values = [&hex("A001400410010004 1A1A0000")[..], b"Public", &hex("0009"), b"RH", &hex("000001")];
        for (bytes, expected) in [
            (vec![], [0x01, 0x56]),
            (hex("90010FFE"), [0x71, 0xD2]),
            (hex("AFFE0001"), [0x5A, 0x89]),
            (hex("A0014FFE10010FFE1717 00000000000000000000"), [0xB2, 0xB3]),
            (hex("AFFE00011FFE000197170 01BFA2A61C8000000"), [0x04, 0xFA]),
            (hex("A0025FF010020FF009E8FFFF060005F5C600006632000075600000"), [0x9D, 0x00]),
            (upload.concat(), [0x27, 0xEA]),
            (hex("A001700410010004 09090000 05 00034315 0000003C 0000"), [0xC7, 0xDF]),
            (values.concat(), [0x2A, 0xF9]),
        ] {
            assert_eq!(nullifier(signature(SEED, &bytes)), expected, "{bytes:02X?}");
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
            let frame = hex(frame);
            let (found, _) = packets([&frame[..]].into_iter());
            assert_eq!(found.len(), 1);
            assert_eq!(framed(&found[0]), frame);
        }
    }

    #[test]
    fn a_receiver_bears_what_stands_between_frames() {
        let (ring, ready) = (hex("90010FFE"), hex("AFFE0001"));
        let mut stream = b"login:".to_vec();
        stream.extend([SYNC; 6]);
        stream.extend(framed(&ring));
        // One sync byte closes a frame and opens the next.
        stream.pop();
        stream.extend(framed(&ready));
        let (found, counts) = packets([&stream[..]].into_iter());
        assert_eq!(found, [ring, ready]);
        assert_eq!(counts, Counts { packets: 2, junk: 6, ..Counts::default() });
    }

    #[test]
    fn what_is_wrong_is_dropped_and_counted() {
        let ring = framed(&hex("90010FFE"));
        let mut changed = ring.clone();
        changed[3] ^= 1;
        let mut long = vec![SYNC];
        long.resize(LONGEST + 2, 7);
        assert_eq!(packets([&framed(&[7; LONGEST - NULLIFIER])[..]].into_iter()).0.len(), 1);
        assert_eq!(packets([&framed(&[7; LONGEST - NULLIFIER + 1])[..]].into_iter()).0.len(), 0);
        let mut stream = Vec::new();
        for wrong in [&changed[..], &long, &hex("BD 01 BC"), &hex("BD 01 BC 41"), &hex("BD 00 01 56")] {
            stream.extend(wrong);
            stream.extend(&ring);
        }
        let (found, counts) = packets([&stream[..]].into_iter());
        assert_eq!(found.len(), 5, "each is followed by a whole one");
        assert_eq!(counts, Counts { packets: 5, bad_signatures: 1, malformed: 4, junk: 0 });
    }

    proptest! {
        #[test]
        fn packets_come_back_from_any_pieces(
            packet in prop::collection::vec(prop_oneof![any::<u8>(), Just(SYNC), Just(QUOTE)], 4..60),
            size in 1usize..50,
        ) {
            let mut stream = framed(&packet);
            prop_assert!(!stream[1..stream.len() - 1].contains(&SYNC));
            stream.extend(framed(&packet));
            let (found, counts) = packets(stream.chunks(size));
            prop_assert_eq!(found, [packet.clone(), packet]);
            prop_assert_eq!(counts, Counts { packets: 2, ..Counts::default() });
        }

        #[test]
        fn garbage_is_read_the_same_in_any_pieces(bytes: Vec<u8>, size in 1usize..9) {
            let whole = packets([&bytes[..]].into_iter());
            prop_assert_eq!(whole, packets(bytes.chunks(size)));
        }
    }
}
