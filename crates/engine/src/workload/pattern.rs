//! The payload: a pattern that distinguishes the received bytes from any other data.
//!
//! A message begins with its sequence number (little-endian, up to eight bytes), followed by fixed noise. A stream is
//! the same noise without numbers; the position identifies each byte. On a line that does not carry every byte value,
//! numbers and noise use only the values that it carries.

use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use crate::link::serial_line::{XOFF, XON};
use crate::link::{Caps, LinkRate};

/// Bytes of the sequence number at the start of a message.
pub(crate) const SEQUENCE_BYTES: usize = 8;

/// Period of the noise in bytes: a prime, so that no block or page size hides a shift.
pub(crate) const NOISE_PERIOD_BYTES: usize = 65_521;

/// The bytes of an alphabet, and the shared noise made of them.
type CachedNoise = (Arc<[u8]>, Weak<[u8]>);

/// The byte values that a link carries unchanged.
#[derive(Debug, Clone)]
pub struct Alphabet {
    /// Byte values in ascending order.
    bytes: Arc<[u8]>,
    /// Index of each byte value in the alphabet.
    index_of_byte: Arc<[Option<u8>]>,
}

/// All byte values, which almost every link carries: thousands of flows share them.
static ALL_BYTES: LazyLock<Alphabet> = LazyLock::new(|| Alphabet::of_bytes((0..=u8::MAX).collect()));

impl Alphabet {
    /// Alphabet of links with these capabilities.
    pub fn from_caps(caps: &Caps) -> Alphabet {
        let (data_bits, in_band) = caps
            .link_rate
            .map_or((8, false), |LinkRate { data_bits, has_in_band_flow_control: in_band, .. }| {
                (data_bits, in_band)
            });
        let carried = |byte: &u8| {
            // Drivers that check seven bits also treat values with the eighth bit set as control characters.
            let steers = in_band && [XON, XOFF].contains(&(byte & 0x7f));
            u32::from(*byte) < 1 << data_bits && !steers
        };
        match (data_bits, in_band) {
            (8, false) => ALL_BYTES.clone(),
            _ => Alphabet::of_bytes((0..=u8::MAX).filter(carried).collect()),
        }
    }

    /// Alphabet of these values, which are in ascending order.
    fn of_bytes(bytes: Vec<u8>) -> Alphabet {
        let mut places = vec![None; 256];
        for (place, byte) in bytes.iter().enumerate() {
            places[usize::from(*byte)] = Some(place as u8);
        }
        Alphabet { bytes: bytes.into(), index_of_byte: places.into() }
    }

    fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// One byte of noise: a hash of its position (the finaliser of MurmurHash3), so that all positions look different.
    fn noise_byte(&self, position: u32) -> u8 {
        let mut hash = position.wrapping_add(1);
        hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
        hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
        self.bytes[(hash ^ hash >> 16) as usize % self.bytes.len()]
    }

    /// The first `length` bytes of the noise.
    fn noise_bytes(&self, length: usize) -> Vec<u8> {
        let mut noise = Vec::with_capacity(length);
        noise.extend((0..length.min(NOISE_PERIOD_BYTES)).map(|at| self.noise_byte(at as u32)));
        while noise.len() < length {
            let more = (length - noise.len()).min(NOISE_PERIOD_BYTES);
            noise.extend_from_within(..more);
        }
        noise
    }

    /// Returns the first `length` bytes of the noise, in memory that all concurrent users share: a mebibyte for a thousand flows.
    fn shared_noise(&self, length: usize) -> Arc<[u8]> {
        static IN_USE: Mutex<Vec<CachedNoise>> = Mutex::new(Vec::new());
        let mut in_use = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
        in_use.retain(|(_, noise)| noise.strong_count() > 0);
        let alike = in_use.iter().filter(|(bytes, _)| *bytes == self.bytes);
        let longest = alike.filter_map(|(_, noise)| noise.upgrade()).max_by_key(|noise| noise.len());
        if let Some(noise) = longest.filter(|noise| noise.len() >= length) {
            return noise;
        }
        let noise: Arc<[u8]> = self.noise_bytes(length).into();
        in_use.push((self.bytes.clone(), Arc::downgrade(&noise)));
        noise
    }

    /// Number of messages that the numbers can distinguish at once; half of them before, half after the current one.
    pub(crate) fn max_distinguishable(&self, message_bytes: usize) -> u64 {
        const MOST: u64 = 1 << 20;
        let digits = message_bytes.min(SEQUENCE_BYTES) as u32;
        (self.size().saturating_pow(digits) / 2).clamp(1, MOST)
    }
}

/// The bytes of one message; only the number changes between messages.
#[derive(Debug, Clone)]
pub(crate) struct PatternMessage {
    bytes: Vec<u8>,
    alphabet: Alphabet,
}

impl PatternMessage {
    /// A message of `length` bytes with pseudorandom content from the alphabet.
    pub fn new(length: usize, alphabet: Alphabet) -> PatternMessage {
        let mut bytes = alphabet.noise_bytes(length);
        bytes[..length.min(SEQUENCE_BYTES)].fill(0);
        PatternMessage { bytes, alphabet }
    }

    /// Sets these bytes to zero, for fields of a protocol.
    pub(crate) fn clear(&mut self, field: std::ops::Range<usize>) {
        self.bytes[field].fill(0);
    }

    /// Length of the message in bytes.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether the message has no bytes.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The message with this number.
    #[inline]
    pub(crate) fn set_sequence(&mut self, sequence: u64) -> &[u8] {
        if self.alphabet.size() == 256 {
            write_sequence(&mut self.bytes, sequence);
        } else {
            let (mut left, length) = (sequence, self.bytes.len().min(SEQUENCE_BYTES));
            for digit in &mut self.bytes[..length] {
                *digit = self.alphabet.bytes[(left % self.alphabet.size()) as usize];
                left /= self.alphabet.size();
            }
        }
        &self.bytes
    }

    /// The number nearest to `expected` that `head` can represent; `None` if it holds no number.
    #[inline]
    pub(crate) fn read_sequence(&self, head: &[u8], expected: u64) -> Option<u64> {
        if self.alphabet.size() == 256 {
            return Some(read_sequence(head, expected));
        }
        let (mut low, mut modulus) = (0u64, 1u64);
        for byte in &head[..head.len().min(SEQUENCE_BYTES)] {
            low += modulus * u64::from(self.alphabet.index_of_byte[usize::from(*byte)]?);
            // At most 252 to the eighth power.
            modulus *= self.alphabet.size();
        }
        // Numbers cannot be negative; use the next one of the same residue.
        let step = (low + modulus - expected % modulus) % modulus;
        Some(match expected.checked_sub(modulus - step) {
            Some(below) if step > modulus / 2 => below,
            _ => expected.saturating_add(step),
        })
    }

    /// The message with its last number.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes after the number.
    pub(crate) fn body(&self) -> &[u8] {
        &self.bytes[self.bytes.len().min(SEQUENCE_BYTES)..]
    }
}

/// Writes a number at the start of a message of any length.
#[inline]
pub(crate) fn write_sequence(message: &mut [u8], sequence: u64) {
    let length = message.len().min(SEQUENCE_BYTES);
    message[..length].copy_from_slice(&sequence.to_le_bytes()[..length]);
}

/// Number of different bytes; surplus bytes of the longer slice count as well.
#[inline]
pub(crate) fn count_differing(a: &[u8], b: &[u8]) -> u64 {
    if a == b {
        return 0;
    }
    a.iter().zip(b).filter(|(a, b)| a != b).count() as u64 + a.len().abs_diff(b.len()) as u64
}

/// Reads the number of a message; from a short message, the number nearest to `expected`.
#[inline]
pub(crate) fn read_sequence(message: &[u8], expected: u64) -> u64 {
    let length = message.len().min(SEQUENCE_BYTES);
    let mut bytes = [0; SEQUENCE_BYTES];
    bytes[..length].copy_from_slice(&message[..length]);
    let low = u64::from_le_bytes(bytes);
    if length == SEQUENCE_BYTES {
        return low;
    }
    let modulus = 1u64 << (8 * length);
    // The distance modulo, as a signed step of at most half the modulus.
    let step = low.wrapping_sub(expected) & (modulus - 1);
    if step < modulus / 2 { expected.wrapping_add(step) } else { expected.wrapping_sub(modulus - step) }
}

/// Endless noise to send from: any position is one slice.
#[derive(Debug)]
pub struct PatternStream {
    bytes: Arc<[u8]>,
}

impl PatternStream {
    /// Supports slices of up to `longest` bytes.
    pub fn new(longest: usize, alphabet: &Alphabet) -> PatternStream {
        PatternStream { bytes: alphabet.shared_noise(NOISE_PERIOD_BYTES + longest) }
    }

    /// `length` bytes of the stream at `position`; `length` is at most the maximum given to `new`.
    #[inline]
    pub fn slice_at(&self, position: u64, length: usize) -> &[u8] {
        let start = (position % NOISE_PERIOD_BYTES as u64) as usize;
        &self.bytes[start..start + length]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use proptest::prelude::*;

    #[test]
    fn short_numbers_resolve_to_the_nearest() {
        assert_eq!(read_sequence(&[0xFF], 256), 255);
        assert_eq!(read_sequence(&[0x00], 255), 256);
        assert_eq!(read_sequence(&[1, 0], 65_535), 65_537);
    }

    fn full() -> Alphabet {
        Alphabet::from_caps(&Caps::STREAM)
    }

    /// All alphabets that occur on serial lines.
    fn alphabets() -> Vec<Alphabet> {
        let line = |data_bits, in_band| LinkRate {
            data_bits,
            has_in_band_flow_control: in_band,
            ..LinkRate::without_overhead(9600.0)
        };
        let lines = (5..=8).flat_map(|bits| [line(bits, false), line(bits, true)]);
        lines.map(|line| Alphabet::from_caps(&Caps { link_rate: Some(line), ..Caps::STREAM })).collect()
    }

    #[test]
    fn noise_does_not_repeat_soon() {
        let stream = PatternStream::new(4096, &full());
        assert_eq!(stream.slice_at(0, 64), stream.slice_at(NOISE_PERIOD_BYTES as u64, 64));
        // For any shift, bytes agree only by chance.
        for shift in 1..NOISE_PERIOD_BYTES as u64 {
            let differing = count_differing(stream.slice_at(0, 128), stream.slice_at(shift, 128));
            assert!(differing > 115, "{shift}: {differing}");
        }
    }

    #[test]
    fn streams_send_from_the_same_memory() {
        let one = PatternStream::new(1 << 20, &full());
        let others: Vec<PatternStream> = (0..1000).map(|_| PatternStream::new(1 << 20, &full())).collect();
        // Parallel tests may use longer ones.
        let memories: BTreeSet<_> = others.iter().map(|other| other.bytes.as_ptr()).collect();
        assert!(memories.len() < 5, "{}", memories.len());
        assert!(PatternStream::new(4096, &full()).bytes.len() >= one.bytes.len(), "a shorter one as well");
        let line = LinkRate { data_bits: 7, ..LinkRate::without_overhead(9600.0) };
        let other = Alphabet::from_caps(&Caps { link_rate: Some(line), ..Caps::STREAM });
        assert!(!Arc::ptr_eq(&one.bytes, &PatternStream::new(1 << 20, &other).bytes));
        assert_eq!(
            one.slice_at(NOISE_PERIOD_BYTES as u64 - 3, 9),
            &one.bytes[NOISE_PERIOD_BYTES - 3..NOISE_PERIOD_BYTES + 6]
        );
        assert_eq!(one.slice_at(NOISE_PERIOD_BYTES as u64, 9), one.slice_at(0, 9));
    }

    #[test]
    fn a_line_gets_no_byte_that_it_does_not_carry() {
        let sizes = [32, 30, 64, 62, 128, 126, 256, 252];
        for (alphabet, size) in alphabets().iter().zip(sizes) {
            assert_eq!(alphabet.size(), size);
            let bits = size.next_power_of_two().ilog2();
            let in_band = !size.is_power_of_two();
            let wrong = |byte: &u8| {
                u32::from(*byte) >= 1 << bits || in_band && [0x11, 0x13, 0x91, 0x93].contains(byte)
            };
            assert!(!PatternStream::new(0, alphabet).slice_at(0, NOISE_PERIOD_BYTES - 1).iter().any(wrong));
            let mut message = PatternMessage::new(40, alphabet.clone());
            for number in (0..2000).chain(1 << 40..(1 << 40) + 2000) {
                assert!(!message.set_sequence(number).iter().any(wrong), "{size} {number}");
            }
        }
    }

    proptest! {
        #[test]
        fn numbers_come_back(
            length in 1usize..12, number in 0u64..1 << 38, off in -14i64..14, alphabet in 0usize..8,
        ) {
            let mut message = PatternMessage::new(length, alphabets().remove(alphabet));
            let expected = number.saturating_add_signed(off);
            let head = message.set_sequence(number).to_vec();
            prop_assert_eq!(message.read_sequence(&head, expected), Some(number));
        }
    }
}
