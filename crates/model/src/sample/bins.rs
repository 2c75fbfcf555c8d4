//! The bins of a window: times rounded to 1 %, their numbers, and a code for them that takes few bytes.
//!
//! The bins are those of an HdrHistogram of two digits. The code is an adaptive Golomb-Rice code of the counts, with a run length
//! where bins are empty, as in JPEG-LS (Weinberger, Seroussi and Sapiro 2000): half the bytes of a list of counts.

/// Maximum time, in ns: longer ones count as one hour.
pub(super) const MAX_TIME_NS: u64 = 3_600_000_000_000;

/// Bins of the first range; each further range has half as many, twice as wide.
const FIRST_BINS: u64 = 256;
const RANGE_BINS: u64 = FIRST_BINS / 2;

/// A longer unary part is replaced by a number in the gamma code of Elias.
const MAX_UNARY: u32 = 12;

/// Weight of an occupied bin in the mean of the last counts: one half to this power. The mean has eight binary places.
const MEAN_SHIFT: u32 = 3;

/// Limit of the mean of the last counts, one half, below which the number of empty bins is coded.
const SPARSE_BELOW: u64 = 128;

/// A bin of times that holds replies, without padding: a monitor keeps many of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, packed(2))]
pub(super) struct Bin {
    pub(crate) index: u16,
    pub(crate) count: u32,
}

impl Bin {
    /// The bin of a time.
    pub(crate) fn index_of(nanoseconds: u64) -> u16 {
        let time = nanoseconds.min(MAX_TIME_NS);
        // 0 in the first range.
        let range = (time | (FIRST_BINS - 1)).ilog2() - (FIRST_BINS - 1).ilog2();
        (u64::from(range) * RANGE_BINS + (time >> range)) as u16
    }

    /// The width of the bin as a power of two, and its lowest time in ns.
    fn width_and_lowest(self) -> (u32, u64) {
        let index = u64::from(self.index);
        let range = (index / RANGE_BINS).saturating_sub(1);
        (range as u32, (index - range * RANGE_BINS) << range)
    }

    /// The highest time in ns.
    pub(crate) fn highest(self) -> u64 {
        let (width, lowest) = self.width_and_lowest();
        lowest + (1 << width) - 1
    }

    /// The time in its middle, in ns.
    pub(crate) fn middle(self) -> u64 {
        let (width, lowest) = self.width_and_lowest();
        lowest + ((1 << width) >> 1)
    }
}

/// The mean of the last counts: encoder and decoder know it, and choose the code of the next count by it.
#[derive(Default)]
struct Mean(u64);

impl Mean {
    fn is_sparse(&self) -> bool {
        self.0 < SPARSE_BELOW
    }

    fn rice_bits(&self) -> u32 {
        (self.0 >> 8).checked_ilog2().unwrap_or(0)
    }

    fn update(&mut self, count: u32) {
        self.0 = self.0 - (self.0 >> MEAN_SHIFT) + (u64::from(count) << (8 - MEAN_SHIFT));
    }
}

/// Appends the code of bins in order of their index, none of them empty.
pub(super) fn encode(bins: &[Bin], bytes: &mut Vec<u8>) {
    let mut bits = BitWriter { bytes, used: 8 };
    bits.write_gamma(bins.len() as u64 + 1);
    let (mut mean, mut next) = (Mean::default(), 0);
    for bin in bins {
        while !mean.is_sparse() && next < bin.index {
            bits.write_rice(0, mean.rice_bits());
            mean.update(0);
            next += 1;
        }
        if mean.is_sparse() {
            bits.write_gamma(u64::from(bin.index - next) + 1);
            bits.write_rice(u64::from(bin.count) - 1, 0);
        } else {
            bits.write_rice(u64::from(bin.count), mean.rice_bits());
        }
        mean.update(bin.count);
        next = bin.index + 1;
    }
}

/// Reads what [`encode`] wrote. `None` if it is damaged.
pub(super) fn decode(bytes: &[u8]) -> Option<Vec<Bin>> {
    let max_index = u64::from(Bin::index_of(MAX_TIME_NS));
    let mut bits = BitReader { bytes, at: 0 };
    let count = bits.read_gamma()? - 1;
    if count > max_index + 1 {
        return None;
    }
    let mut bins = Vec::with_capacity(count as usize);
    let (mut mean, mut next) = (Mean::default(), 0u64);
    while (bins.len() as u64) < count {
        let number = if mean.is_sparse() {
            next = next.checked_add(bits.read_gamma()? - 1)?;
            bits.read_rice(0)?.checked_add(1)?
        } else {
            bits.read_rice(mean.rice_bits())?
        };
        if next > max_index {
            return None;
        }
        let number = u32::try_from(number).ok()?;
        mean.update(number);
        if number > 0 {
            bins.push(Bin { index: next as u16, count: number });
        }
        next += 1;
    }
    Some(bins)
}

/// Writes bits, the highest of each byte first.
struct BitWriter<'a> {
    bytes: &'a mut Vec<u8>,
    /// Bits of the last byte that are used.
    used: u32,
}

impl BitWriter<'_> {
    fn write_bit(&mut self, bit: bool) {
        if self.used == 8 {
            self.bytes.push(0);
            self.used = 0;
        }
        if let Some(last) = self.bytes.last_mut() {
            *last |= u8::from(bit) << (7 - self.used);
        }
        self.used += 1;
    }

    fn write_bits(&mut self, number: u64, count: u32) {
        (0..count).rev().for_each(|bit| self.write_bit(number >> bit & 1 == 1));
    }

    /// A number above zero.
    fn write_gamma(&mut self, number: u64) {
        let length = number.ilog2();
        self.write_bits(0, length);
        self.write_bits(number, length + 1);
    }

    fn write_rice(&mut self, number: u64, low_bits: u32) {
        let high = number >> low_bits;
        for _ in 0..high.min(u64::from(MAX_UNARY)) {
            self.write_bits(1, 1);
        }
        match high.checked_sub(u64::from(MAX_UNARY)) {
            None => self.write_bits(0, 1),
            Some(more) => self.write_gamma(more + 1),
        }
        self.write_bits(number, low_bits);
    }
}

/// Reads what [`BitWriter`] wrote; `None` after the end.
struct BitReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl BitReader<'_> {
    fn read_bit(&mut self) -> Option<bool> {
        let byte = self.bytes.get(self.at / 8)?;
        let bit = byte >> (7 - self.at % 8) & 1 == 1;
        self.at += 1;
        Some(bit)
    }

    fn read_bits(&mut self, count: u32) -> Option<u64> {
        (0..count).try_fold(0, |number, _| Some(number << 1 | u64::from(self.read_bit()?)))
    }

    fn read_gamma(&mut self) -> Option<u64> {
        let mut length = 0;
        while !self.read_bit()? {
            length += 1;
        }
        (length < 63).then(|| self.read_bits(length).map(|rest| 1 << length | rest))?
    }

    fn read_rice(&mut self, low_bits: u32) -> Option<u64> {
        let mut high = 0;
        while high < u64::from(MAX_UNARY) && self.read_bit()? {
            high += 1;
        }
        if high == u64::from(MAX_UNARY) {
            high += self.read_gamma()? - 1;
        }
        let low = self.read_bits(low_bits)?;
        (high.leading_zeros() > low_bits).then_some(high << low_bits | low)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encoded(bins: &[Bin]) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode(bins, &mut bytes);
        bytes
    }

    #[test]
    fn damaged_codes_are_refused() {
        let bins =
            [(3, 1), (700, 60_000), (701, 1), (3000, u32::MAX)].map(|(index, count)| Bin { index, count });
        let bytes = encoded(&bins);
        assert_eq!(decode(&bytes).as_deref(), Some(&bins[..]));
        for damaged in [&bytes[..bytes.len() - 1], &[], &[0; 20], &[0x00, 0xff, 0xff, 0xff]] {
            assert_eq!(decode(damaged), None, "{damaged:?}");
        }
    }

    proptest! {
        #[test]
        fn codes_can_be_read(
            counts in prop::collection::btree_map(
                0u16..4000, prop_oneof![1u32..4, 1u32..1000, any::<u32>().prop_map(|n| n.max(1))], 0..300),
        ) {
            let bins: Vec<Bin> = counts.into_iter().map(|(index, count)| Bin { index, count }).collect();
            prop_assert_eq!(decode(&encoded(&bins)), Some(bins));
        }

        #[test]
        fn no_bytes_break_the_reader(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&bytes);
        }
    }
}
