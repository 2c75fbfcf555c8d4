//! Writes latency histograms for run documents, and reads them from there and from histogram logs.
//!
//! Recording happens in `times`. Few times are encoded without a histogram, which takes 270 kB however few they are. Input may be
//! hostile: sizes and counts are checked before the decoder runs,
//! because it trusts the length in the header and may overflow on a run of zeros.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;

use crate::run::Figures;

/// Histograms of linkgauge take 20 to 200 kB. Larger ones, encoded or decoded, are rejected.
const MAX_HISTOGRAM_BYTES: usize = 4 << 20;
/// Cookie of HdrHistogram V2 without deflate: `0x1c849303 | 0x10`.
const HDR_V2_COOKIE: u32 = 0x1c84_9313;
/// Length of the header: cookie, payload length, offset, digits (4 bytes each), lowest, highest, ratio (8 bytes each).
const HEADER_BYTES: usize = 40;

/// The number of digits that the histograms of runs keep: a percentile is accurate to 0.1 %.
pub(super) const SIGNIFICANT_DIGITS: u8 = 3;

/// The longest time of the histograms of runs in ns: one hour.
pub(super) const MAX_TIME_NS: u64 = 3_600_000_000_000;

/// Half of the counts with one resolution: a count covers less than 0.1 % of its value.
pub(super) const HALF_BUCKET: u64 = 1024;

/// The histogram of sorted times in ns, encoded as V2 without deflate.
pub(super) fn encode_sorted_times(times: &[u64]) -> Vec<u8> {
    let (mut payload, mut next) = (Vec::new(), 0);
    let index = |time: &u64| count_index((*time).min(MAX_TIME_NS)) as i64;
    for same in times.chunk_by(|a, b| index(a) == index(b)) {
        let at = index(&same[0]);
        match at - next {
            0 => {}
            1 => push_number(&mut payload, 0),
            zeros => push_number(&mut payload, -zeros),
        }
        push_number(&mut payload, same.len() as i64);
        next = at + 1;
    }
    let mut bytes = Vec::with_capacity(HEADER_BYTES + payload.len());
    for word in [HDR_V2_COOKIE, payload.len() as u32, 0, SIGNIFICANT_DIGITS.into()] {
        bytes.extend(word.to_be_bytes());
    }
    bytes.extend(1u64.to_be_bytes());
    bytes.extend(MAX_TIME_NS.to_be_bytes());
    bytes.extend(1f64.to_be_bytes());
    bytes.append(&mut payload);
    bytes
}

/// Number of bits of a value that a count drops.
fn dropped_bits(value: u64) -> u32 {
    value.checked_ilog2().unwrap_or(0).saturating_sub(HALF_BUCKET.ilog2())
}

/// The index of the count of a value.
pub(super) fn count_index(value: u64) -> usize {
    let dropped = dropped_bits(value);
    (u64::from(dropped) * HALF_BUCKET + (value >> dropped)) as usize
}

/// Appends a count, or minus a number of counts that are zero: zig-zag LEB128, for numbers of less than 56 bits.
fn push_number(bytes: &mut Vec<u8>, number: i64) {
    let mut rest = ((number << 1) ^ (number >> 63)) as u64;
    while rest >= 0x80 {
        bytes.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    bytes.push(rest as u8);
}

/// The latencies in ns. `None` if there is no histogram or it is invalid.
pub fn decode_figures_histogram(figures: &Figures) -> Option<Histogram<u64>> {
    let text = figures.histogram_hdr_v2.as_deref()?;
    if text.len() > MAX_HISTOGRAM_BYTES / 3 * 4 {
        return None;
    }
    decode_histogram(&STANDARD.decode(text).ok()?)
}

/// Decodes a V2 histogram without deflate. `None` if it is invalid.
pub fn decode_histogram(bytes: &[u8]) -> Option<Histogram<u64>> {
    if bytes.len() > MAX_HISTOGRAM_BYTES {
        return None;
    }
    check_header(bytes)?;
    Deserializer::new().deserialize(&mut &*bytes).ok()
}

fn check_header(bytes: &[u8]) -> Option<()> {
    let word = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let long = |at: usize| Some(u64::from_be_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let payload = bytes.get(HEADER_BYTES..)?;
    let digits = word(12)?;
    let (lowest, highest) = (long(16)?, long(24)?);
    let sound = word(0)? == HDR_V2_COOKIE
        && word(4)? as usize == payload.len()
        && digits <= 5
        && lowest >= 1
        && highest <= i64::MAX as u64
        && lowest <= highest / 2;
    if !sound {
        return None;
    }
    let half_bits = f64::from(2 * 10u32.pow(digits)).log2().ceil() as u32 - 1;
    let buckets = (highest.ilog2() + 1).saturating_sub(lowest.ilog2() + half_bits).max(1) as usize;
    let counters = (buckets + 1) << half_bits;
    if counters * size_of::<u64>() > MAX_HISTOGRAM_BYTES {
        return None;
    }
    check_counts(payload, counters as u64)
}

/// Walks the counts (zig-zag LEB128 of 64 bits in at most 9 bytes). Ensures that runs of zeros stay inside
/// the array and that the sum of the counts does not overflow.
fn check_counts(payload: &[u8], counters: u64) -> Option<()> {
    let mut bytes = payload.iter();
    let mut total = 0u64;
    while !bytes.as_slice().is_empty() {
        let mut number = 0u64;
        for position in 0..9 {
            let byte = *bytes.next()?;
            if position == 8 {
                number |= u64::from(byte) << 56;
                break;
            }
            number |= u64::from(byte & 0x7f) << (7 * position);
            if byte < 0x80 {
                break;
            }
        }
        if number & 1 == 1 {
            if number >> 1 >= counters {
                return None;
            }
        } else {
            total = total.checked_add(number >> 1).filter(|total| *total <= i64::MAX as u64)?;
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use hdrhistogram::serialization::{Serializer, V2Serializer};
    use proptest::prelude::*;

    use super::*;

    fn encoded(histogram: &Histogram<u64>) -> Vec<u8> {
        let mut bytes = Vec::new();
        V2Serializer::new().serialize(histogram, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn few_times_are_encoded_without_a_histogram() {
        let scattered = (0..3000u64).map(|n| n * n * n * n / 7);
        for mut times in
            [vec![0], vec![2047, 2048, 2049, 4096], vec![MAX_TIME_NS, u64::MAX], scattered.collect()]
        {
            times.sort_unstable();
            let mut histogram = Histogram::new_with_bounds(1, MAX_TIME_NS, SIGNIFICANT_DIGITS).unwrap();
            times.iter().for_each(|time| histogram.saturating_record((*time).min(MAX_TIME_NS)));
            assert!(encode_sorted_times(&times) == encoded(&histogram), "{} times", times.len());
        }
    }

    fn decode(bytes: &[u8]) -> Option<Histogram<u64>> {
        let histogram_hdr_v2 = Some(STANDARD.encode(bytes));
        decode_figures_histogram(&Figures { histogram_hdr_v2, ..Figures::default() })
    }

    #[test]
    fn reads_back_a_recorded_histogram() {
        for (high, digits) in [(1_000, 2), (3_600_000_000_000, 3), (i64::MAX as u64, 3)] {
            let mut histogram = Histogram::<u64>::new_with_bounds(1, high, digits).unwrap();
            for value in 1..900 {
                histogram.record(value).unwrap();
            }
            histogram.record(high).unwrap();
            let read = decode(&encoded(&histogram)).unwrap();
            assert_eq!(read, histogram);
            assert_eq!(read.value_at_quantile(0.5), histogram.value_at_quantile(0.5));
        }
    }

    #[test]
    fn refuses_histograms_that_would_fill_memory() {
        let mut histogram = Histogram::<u64>::new_with_bounds(1, 1_000_000, 3).unwrap();
        histogram.record(5).unwrap();
        let good = encoded(&histogram);
        assert!(decode(&good).is_some());
        let changed = |at: usize, value: &[u8]| {
            let mut bytes = good.clone();
            bytes.splice(at..at + value.len(), value.iter().copied());
            decode(&bytes)
        };
        assert!(changed(4, &u32::MAX.to_be_bytes()).is_none(), "payload length");
        assert!(changed(12, &5u32.to_be_bytes()).is_some(), "five digits of a small range fit");
        let mut wide = good.clone();
        wide.splice(12..16, 5u32.to_be_bytes());
        wide.splice(24..32, (i64::MAX as u64).to_be_bytes());
        assert!(decode(&wide).is_none(), "five digits of a wide range do not");
        assert!(changed(24, &u64::MAX.to_be_bytes()).is_none(), "highest value");
        assert!(changed(16, &0u64.to_be_bytes()).is_none(), "lowest value");
        let mut overflow = good[..HEADER_BYTES].to_vec();
        overflow[4..8].copy_from_slice(&9u32.to_be_bytes());
        overflow.extend([0xff; 9]);
        assert!(decode(&overflow).is_none(), "i64::MIN zeros");
        let text = "A".repeat(MAX_HISTOGRAM_BYTES * 2);
        assert!(histogram_of_text(text).is_none());
        assert!(histogram_of_text("<script>".to_owned()).is_none());
        assert!(histogram_of_text(String::new()).is_none());
    }

    fn histogram_of_text(text: String) -> Option<Histogram<u64>> {
        super::decode_figures_histogram(&Figures { histogram_hdr_v2: Some(text), ..Figures::default() })
    }

    proptest! {
        #[test]
        fn nothing_panics(
            digits in 0u32..7, low in prop_oneof![Just(1u64), any::<u64>()], high in any::<u64>(),
            payload in prop::collection::vec(any::<u8>(), 0..64),
        ) {
            let mut bytes = HDR_V2_COOKIE.to_be_bytes().to_vec();
            bytes.extend((payload.len() as u32).to_be_bytes());
            bytes.extend(0u32.to_be_bytes());
            bytes.extend(digits.to_be_bytes());
            bytes.extend(low.to_be_bytes());
            bytes.extend(high.to_be_bytes());
            bytes.extend(1f64.to_be_bytes());
            bytes.extend(payload);
            if let Some(histogram) = decode(&bytes) {
                prop_assert!(histogram.iter_recorded().count() <= 64);
                let _ = (histogram.mean(), histogram.value_at_quantile(0.99));
            }
        }
    }
}
