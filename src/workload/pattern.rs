//! The payload: what is sent, so that what comes back can be told from anything else.
//!
//! A message begins with its sequence number (little-endian, as many of its eight bytes as the message has) and goes
//! on with fixed noise. A stream is the same noise without numbers, told apart by its position.

/// Bytes of a sequence number in front of a message.
pub const HEADER: usize = 8;

/// The noise repeats after so many bytes: a prime, so that no block or page size hides a shift.
const PERIOD: usize = 65_521;

/// `length` bytes of the noise from `offset` on.
fn noise(offset: usize, length: usize) -> Vec<u8> {
    (offset..offset + length).map(|at| noise_at((at % PERIOD) as u32)).collect()
}

/// One byte of noise: a multiplicative hash of its position (Knuth), its top bits.
fn noise_at(position: u32) -> u8 {
    ((position.wrapping_add(1)).wrapping_mul(2_654_435_761) >> 24) as u8
}

/// The bytes of one message; writing the next number into it is all that changes.
#[derive(Debug, Clone)]
pub struct Message {
    bytes: Vec<u8>,
}

impl Message {
    pub fn new(length: usize) -> Message {
        let mut bytes = noise(0, length);
        bytes[..length.min(HEADER)].fill(0);
        Message { bytes }
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    #[inline]
    pub fn numbered(&mut self, sequence: u64) -> &[u8] {
        write_number(&mut self.bytes, sequence);
        &self.bytes
    }

    /// What follows the number.
    pub fn body(&self) -> &[u8] {
        &self.bytes[self.bytes.len().min(HEADER)..]
    }
}

/// Writes a number in front of a message of any length.
#[inline]
pub fn write_number(message: &mut [u8], sequence: u64) {
    let length = message.len().min(HEADER);
    message[..length].copy_from_slice(&sequence.to_le_bytes()[..length]);
}

/// How many bytes differ; those that one of the two lacks count as well.
#[inline]
pub fn differing(a: &[u8], b: &[u8]) -> u64 {
    if a == b {
        return 0;
    }
    a.iter().zip(b).filter(|(a, b)| a != b).count() as u64 + a.len().abs_diff(b.len()) as u64
}

/// Reads the number in front of a message; of a short one, the number nearest to `near`.
#[inline]
pub fn read_number(message: &[u8], near: u64) -> u64 {
    let length = message.len().min(HEADER);
    let mut bytes = [0; HEADER];
    bytes[..length].copy_from_slice(&message[..length]);
    let low = u64::from_le_bytes(bytes);
    if length == HEADER {
        return low;
    }
    let modulus = 1u64 << (8 * length);
    // The distance modulo, taken as a signed step of at most half the modulus.
    let step = low.wrapping_sub(near) & (modulus - 1);
    if step < modulus / 2 { near.wrapping_add(step) } else { near.wrapping_sub(modulus - step) }
}

/// How many messages can be told apart at once by numbers of that length; half of them on each side of now.
pub fn distinguishable(message_bytes: usize) -> u64 {
    match message_bytes {
        0 => 1,
        length if length >= 3 => 1 << 20,
        length => 1 << (8 * length - 1),
    }
}

/// Endless noise to send from: any position is one slice.
#[derive(Debug)]
pub struct Stream {
    bytes: Vec<u8>,
}

impl Stream {
    /// Slices of up to `longest` bytes.
    pub fn new(longest: usize) -> Stream {
        Stream { bytes: noise(0, PERIOD + longest) }
    }

    /// `length` bytes of the stream from `position` on; `length` at most what it was made for.
    #[inline]
    pub fn at(&self, position: u64, length: usize) -> &[u8] {
        let start = (position % PERIOD as u64) as usize;
        &self.bytes[start..start + length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn short_numbers_find_their_neighbourhood() {
        assert_eq!(read_number(&[0xFF], 256), 255);
        assert_eq!(read_number(&[0x00], 255), 256);
        assert_eq!(read_number(&[1, 0], 65_535), 65_537);
    }

    #[test]
    fn noise_does_not_repeat_soon() {
        let stream = Stream::new(4096);
        assert_ne!(stream.at(0, 64), stream.at(1, 64));
        assert_ne!(stream.at(0, 64), stream.at(4096, 64));
        assert_eq!(stream.at(0, 64), stream.at(PERIOD as u64, 64));
    }

    proptest! {
        #[test]
        fn numbers_come_back(length in 1usize..12, number in any::<u64>(), off in -60i64..60) {
            let mut message = Message::new(length);
            let near = number.wrapping_add_signed(off);
            prop_assert_eq!(read_number(message.numbered(number), near), number);
        }
    }
}
