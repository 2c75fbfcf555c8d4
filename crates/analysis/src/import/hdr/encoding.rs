//! The encodings of HdrHistogram: V0, V1 and V2, deflated or not, read as a histogram.
//!
//! Every encoding becomes V2 with a header as the decoder expects it. Writers differ in fields that change no count: the
//! one for JavaScript writes a normalizing offset of 1, the one for Go an integer 1 as ratio (5e-324 when read as a double). Counts
//! are stored by their logical index, so both fields can be replaced. Any other ratio would scale the values, and is refused.

use std::io::Read;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::read::ZlibDecoder;
use hdrhistogram::Histogram;

use linkgauge_model::sample::decode_histogram;

/// Maximum size after inflating.
const MAX_HISTOGRAM_BYTES: u64 = 4 << 20;
/// The bits of a cookie that hold the size of a count.
const WORD_SIZE_BITS: u32 = 0xf0;
/// Cookies without the size of a count: V0, V1 and V2, each plain and deflated.
const V0: u32 = 0x1c84_9308;
const V0_DEFLATED: u32 = 0x1c84_9309;
const V1: u32 = 0x1c84_9301;
const V1_DEFLATED: u32 = 0x1c84_9302;
const V2: u32 = 0x1c84_9303;
const V2_DEFLATED: u32 = 0x1c84_9304;
/// Cookies of histograms of doubles, plain and deflated.
const OF_DOUBLES: [u32; 2] = [0x0c72_124e, 0x0c72_124f];
/// The cookie of V2 in the form that the decoder knows.
const DECODED_COOKIE: u32 = V2 | 0x10;
/// Maximum count that fits into the number format of V2 here; a sum of such counts is checked by the decoder.
const MAX_COUNT: u64 = 1 << 53;

/// Reason why a text is not a histogram.
#[derive(Debug, thiserror::Error)]
pub(super) enum HistogramFault {
    #[error("its histogram is not base64 ({0})")]
    Text(#[from] base64::DecodeError),
    #[error("its histogram is truncated")]
    Truncated,
    #[error("its histogram cannot be inflated ({0})")]
    Deflate(#[from] std::io::Error),
    #[error("its histogram is one of doubles, which are not supported")]
    OfDoubles,
    #[error("its histogram has the unknown encoding {0:#010x} (known: V0, V1, V2)")]
    Encoding(u32),
    #[error("its histogram has counts of {0} bytes")]
    CountSize(usize),
    #[error("its histogram scales its values by {0}, which is not supported")]
    Ratio(f64),
    #[error("its histogram is larger than {MAX_HISTOGRAM_BYTES} bytes")]
    Large,
    #[error("its histogram has {0} bytes after its counts")]
    Excess(usize),
    #[error("its histogram has an impossible header or impossible counts")]
    Content,
}

/// The histogram in this text.
pub(super) fn parse_histogram(text: &str) -> Result<Histogram<u64>, HistogramFault> {
    let bytes = STANDARD.decode(text)?;
    let plain = inflate(&bytes)?;
    let reader = HeaderReader(&plain);
    let cookie = reader.word(0)?;
    let encoded = match cookie & !WORD_SIZE_BITS {
        V2 => {
            let payload = reader.payload()?;
            v2_bytes(reader.word(12)?, [reader.long(16)?, reader.long(24)?], payload)
        }
        V1 => {
            let counts = counts(reader.payload()?, cookie)?;
            v2_bytes(reader.word(12)?, [reader.long(16)?, reader.long(24)?], &counts)
        }
        V0 => {
            let counts = counts(reader.0.get(32..).ok_or(HistogramFault::Truncated)?, cookie)?;
            v2_bytes(reader.word(4)?, [reader.long(8)?, reader.long(16)?], &counts)
        }
        _ => return Err(unknown_cookie(cookie)),
    };
    decode_histogram(&encoded).ok_or(HistogramFault::Content)
}

/// The bytes of a plain encoding.
fn inflate(bytes: &[u8]) -> Result<Vec<u8>, HistogramFault> {
    let cookie = HeaderReader(bytes).word(0)?;
    match cookie & !WORD_SIZE_BITS {
        V0 | V1 | V2 => return Ok(bytes.to_vec()),
        V0_DEFLATED | V1_DEFLATED | V2_DEFLATED => {}
        _ => return Err(unknown_cookie(cookie)),
    }
    let mut plain = Vec::new();
    let deflated = bytes.get(8..).unwrap_or_default();
    ZlibDecoder::new(deflated).take(MAX_HISTOGRAM_BYTES + 1).read_to_end(&mut plain)?;
    if plain.len() as u64 > MAX_HISTOGRAM_BYTES {
        return Err(HistogramFault::Large);
    }
    Ok(plain)
}

fn unknown_cookie(cookie: u32) -> HistogramFault {
    if OF_DOUBLES.contains(&cookie) { HistogramFault::OfDoubles } else { HistogramFault::Encoding(cookie) }
}

/// A V2 encoding with this content.
fn v2_bytes(digits: u32, [lowest, highest]: [u64; 2], payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(40 + payload.len());
    for word in [DECODED_COOKIE, payload.len() as u32, 0, digits] {
        bytes.extend(word.to_be_bytes());
    }
    bytes.extend(lowest.to_be_bytes());
    bytes.extend(highest.to_be_bytes());
    bytes.extend(1f64.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// Reads big-endian fields.
struct HeaderReader<'a>(&'a [u8]);

impl HeaderReader<'_> {
    fn bytes<const N: usize>(&self, at: usize) -> Result<[u8; N], HistogramFault> {
        let bytes = self.0.get(at..at + N).and_then(|bytes| bytes.try_into().ok());
        bytes.ok_or(HistogramFault::Truncated)
    }

    fn word(&self, at: usize) -> Result<u32, HistogramFault> {
        self.bytes(at).map(u32::from_be_bytes)
    }

    fn long(&self, at: usize) -> Result<u64, HistogramFault> {
        self.bytes(at).map(u64::from_be_bytes)
    }

    /// The counts of V1 and V2, after a header with their length and the ratio of the values.
    fn payload(&self) -> Result<&[u8], HistogramFault> {
        let ratio = f64::from_bits(self.long(32)?);
        if ratio != 1.0 && ratio.to_bits() != 1 {
            return Err(HistogramFault::Ratio(ratio));
        }
        let payload = &self.0[40..];
        let (payload, rest) =
            payload.split_at_checked(self.word(4)? as usize).ok_or(HistogramFault::Truncated)?;
        match rest.iter().any(|byte| *byte != 0) {
            true => Err(HistogramFault::Excess(rest.len())),
            false => Ok(payload),
        }
    }
}

/// The counts of V0 and V1, all of one size, in the number format of V2. A run of zeros becomes one number.
fn counts(payload: &[u8], cookie: u32) -> Result<Vec<u8>, HistogramFault> {
    let size = ((cookie & WORD_SIZE_BITS) >> 4 & 0xe) as usize;
    if ![2, 4, 8].contains(&size) {
        return Err(HistogramFault::CountSize(size));
    }
    if !payload.len().is_multiple_of(size) {
        return Err(HistogramFault::Truncated);
    }
    let (mut numbers, mut zeros) = (Vec::new(), 0i64);
    for word in payload.chunks_exact(size) {
        let count = word.iter().fold(0u64, |count, byte| count << 8 | u64::from(*byte));
        if count == 0 {
            zeros += 1;
            continue;
        }
        if count > MAX_COUNT {
            return Err(HistogramFault::Content);
        }
        if zeros > 0 {
            push_number(&mut numbers, if zeros == 1 { 0 } else { -zeros });
        }
        zeros = 0;
        push_number(&mut numbers, count as i64);
    }
    Ok(numbers)
}

/// Appends a number in zig-zag LEB128, for numbers of less than 56 bits.
fn push_number(bytes: &mut Vec<u8>, number: i64) {
    let mut rest = ((number << 1) ^ (number >> 63)) as u64;
    while rest >= 0x80 {
        bytes.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    bytes.push(rest as u8);
}

#[cfg(test)]
mod tests {
    use hdrhistogram::serialization::{Serializer, V2Serializer};

    use super::*;

    fn recorded() -> Histogram<u64> {
        let mut histogram = Histogram::<u64>::new_with_bounds(1, 100_000, 2).unwrap();
        [3, 3, 40, 1000, 99_000].iter().for_each(|value| histogram.record(*value).unwrap());
        histogram
    }

    /// Cookie, fields and counts of an encoding, deflated under `cookie`.
    fn encoded(cookie: u32, plain: &[u8]) -> String {
        use std::io::Write;
        let mut deflated = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
        deflated.write_all(plain).unwrap();
        let deflated = deflated.finish().unwrap();
        let mut bytes = cookie.to_be_bytes().to_vec();
        bytes.extend((deflated.len() as u32).to_be_bytes());
        bytes.extend(deflated);
        STANDARD.encode(bytes)
    }

    /// Every count up to the last one that is not zero, of `size` bytes.
    fn all_counts(size: usize) -> Vec<u8> {
        let histogram = recorded();
        let values = histogram.iter_all().map(|step| step.count_at_value());
        let mut counts: Vec<u64> = values.collect();
        counts.truncate(counts.iter().rposition(|count| *count > 0).unwrap() + 1);
        counts.iter().flat_map(|count| count.to_be_bytes()[8 - size..].to_vec()).collect()
    }

    #[test]
    fn every_encoding_gives_the_same_histogram() {
        let mut v2 = Vec::new();
        V2Serializer::new().serialize(&recorded(), &mut v2).unwrap();
        assert_eq!(parse_histogram(&encoded(V2_DEFLATED | 0x10, &v2)).unwrap(), recorded());
        assert_eq!(parse_histogram(&STANDARD.encode(&v2)).unwrap(), recorded(), "not deflated");
        let mut by_javascript = v2.clone();
        by_javascript[11] = 1;
        let mut by_go = v2.clone();
        by_go[32..40].copy_from_slice(&1u64.to_be_bytes());
        for plain in [by_javascript, by_go] {
            assert_eq!(parse_histogram(&encoded(V2_DEFLATED | 0x10, &plain)).unwrap(), recorded());
        }
        for size in [2, 4, 8] {
            let (word_size, counts) = ((size as u32) << 4, all_counts(size));
            let mut v1 = v2[..40].to_vec();
            v1[..4].copy_from_slice(&(V1 | word_size).to_be_bytes());
            v1[4..8].copy_from_slice(&(counts.len() as u32).to_be_bytes());
            v1.extend(&counts);
            assert_eq!(
                parse_histogram(&encoded(V1_DEFLATED | word_size, &v1)).unwrap(),
                recorded(),
                "V1 {size}"
            );
            let mut v0 = (V0 | word_size).to_be_bytes().to_vec();
            v0.extend(2u32.to_be_bytes());
            [1u64, 100_000, 5].iter().for_each(|field| v0.extend(field.to_be_bytes()));
            v0.extend(&counts);
            assert_eq!(
                parse_histogram(&encoded(V0_DEFLATED | word_size, &v0)).unwrap(),
                recorded(),
                "V0 {size}"
            );
        }
    }

    #[test]
    fn a_header_that_does_not_fit_its_counts_is_refused() {
        let mut v2 = Vec::new();
        V2Serializer::new().serialize(&recorded(), &mut v2).unwrap();
        let with_ratio = |ratio: f64| {
            let mut bytes = v2.clone();
            bytes[32..40].copy_from_slice(&ratio.to_be_bytes());
            bytes
        };
        let mut short_length = v2.clone();
        short_length[7] -= 2;
        let v1 = |counts: Vec<u8>| {
            let mut bytes = v2[..40].to_vec();
            bytes[..4].copy_from_slice(&(V1 | 0x20).to_be_bytes());
            bytes[4..8].copy_from_slice(&(counts.len() as u32).to_be_bytes());
            [bytes, counts].concat()
        };
        let (mut odd, mut cut) = (all_counts(2), v1(all_counts(2)));
        odd.pop();
        cut.truncate(cut.len() - 2);
        for (plain, shown) in [
            (with_ratio(2.0), "its histogram scales its values by 2, which is not supported"),
            (with_ratio(f64::NAN), "its histogram scales its values by NaN, which is not supported"),
            (v2[..v2.len() - 1].to_vec(), "its histogram is truncated"),
            (v1(odd), "its histogram is truncated"),
            (cut, "its histogram is truncated"),
            (short_length, "its histogram has 2 bytes after its counts"),
        ] {
            assert_eq!(parse_histogram(&encoded(V2_DEFLATED | 0x10, &plain)).unwrap_err().to_string(), shown);
        }
        let bomb = [&v2[..40], &[0; MAX_HISTOGRAM_BYTES as usize]].concat();
        let shown = "its histogram is larger than 4194304 bytes";
        assert_eq!(parse_histogram(&encoded(V2_DEFLATED | 0x10, &bomb)).unwrap_err().to_string(), shown);
        let padded = [&v2[..], &[0; 3]].concat();
        assert_eq!(parse_histogram(&encoded(V2_DEFLATED | 0x10, &padded)).unwrap(), recorded(), "padded");
    }

    #[test]
    fn a_refusal_has_a_reason() {
        let of = |bytes: &[u8]| parse_histogram(&STANDARD.encode(bytes)).unwrap_err().to_string();
        insta::assert_snapshot!(
            [
                parse_histogram("HISTFAAAA").unwrap_err().to_string(),
                of(b"abc"),
                of(&V2_DEFLATED.to_be_bytes()),
                of(&[0, 0, 0, 9]),
                of(&OF_DOUBLES[0].to_be_bytes()),
                of(&(V2 | 0x10).to_be_bytes()),
                of(&[&(V0 | 0x60).to_be_bytes()[..], &[0; 40]].concat()),
                of(&[&(V2 | 0x10).to_be_bytes()[..], &[0; 28], &1f64.to_be_bytes()].concat()),
            ]
            .join("\n"),
            @r"
        its histogram is not base64 (Invalid input length: 9)
        its histogram is truncated
        its histogram cannot be inflated (incomplete deflate stream)
        its histogram has the unknown encoding 0x00000009 (known: V0, V1, V2)
        its histogram is one of doubles, which are not supported
        its histogram is truncated
        its histogram has counts of 6 bytes
        its histogram has an impossible header or impossible counts
        "
        );
    }
}
