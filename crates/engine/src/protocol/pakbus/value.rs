//! Values in the fields of a table: times, numbers in the logger's own formats, texts.

use super::PakBusParseError;
use super::codec::{MessageReader, MessageWriter, from_latin1, to_latin1};

pub use super::time::LoggerTime;

/// Seconds from 1970 to 1990, the epoch of a logger's clock. Loggers have no time zones.
pub const LOGGER_EPOCH_UNIX_SECONDS: i64 = 631_152_000;

/// Type code of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldType(pub u8);

impl FieldType {
    /// Unsigned integer of 2 bytes.
    pub const UINT2: FieldType = FieldType(2);
    /// Unsigned integer of 4 bytes.
    pub const UINT4: FieldType = FieldType(3);
    /// Signed integer of 4 bytes.
    pub const INT4: FieldType = FieldType(6);
    /// Decimal number of 2 bytes in the logger's own format, with at most four digits.
    pub const FP2: FieldType = FieldType(7);
    /// IEEE 754 number of 4 bytes.
    pub const IEEE4: FieldType = FieldType(9);
    /// Boolean of 1 byte.
    pub const BOOL: FieldType = FieldType(10);
    /// Text of fixed length.
    pub const ASCII: FieldType = FieldType(11);
    /// IEEE 754 number of 8 bytes.
    pub const IEEE8: FieldType = FieldType(18);
}

/// One value.
#[derive(Debug, Clone, PartialEq)]
pub enum FieldValue {
    /// An integer of any width.
    Integer(i64),
    /// A floating-point or decimal number.
    Real(f64),
    /// A boolean of any width.
    Boolean(bool),
    /// A text without padding.
    Text(String),
    /// A time of the logger's clock.
    Time(LoggerTime),
    /// Bytes of an unsupported type.
    Raw(Vec<u8>),
}

impl FieldValue {
    /// Reads one value; an ASCII text has `length` bytes.
    ///
    /// # Errors
    ///
    /// [`PakBusParseError::TooShort`] for a truncated value, [`PakBusParseError::Unknown`] for an unsupported type.
    pub fn read(
        kind: FieldType,
        length: usize,
        reader: &mut MessageReader,
    ) -> Result<FieldValue, PakBusParseError> {
        let little = |bytes: &[u8]| bytes.iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte));
        Ok(match kind.0 {
            1 | 17 => FieldValue::Integer(reader.u8()?.into()),
            2 => FieldValue::Integer(reader.u16()?.into()),
            3 => FieldValue::Integer(reader.u32()?.into()),
            4 => FieldValue::Integer((reader.u8()? as i8).into()),
            5 => FieldValue::Integer((reader.u16()? as i16).into()),
            6 | 12 => FieldValue::Integer(reader.i32()?.into()),
            7 => FieldValue::Real(decode_decimal(reader.u16()?.into(), FP2)),
            8 => FieldValue::Raw(reader.take(4)?.to_vec()),
            9 => FieldValue::Real(f32::from_bits(reader.u32()?).into()),
            10 => FieldValue::Boolean(reader.u8()? != 0),
            11 => {
                FieldValue::Text(from_latin1(reader.take(length)?).trim_end_matches(['\0', ' ']).to_owned())
            }
            13 => FieldValue::Raw(reader.take(6)?.to_vec()),
            14 => FieldValue::Time(reader.instant()?),
            15 => {
                let (high, low) = (reader.u8()?, reader.u16()?);
                FieldValue::Real(decode_decimal(u32::from(high) << 16 | u32::from(low), FP3))
            }
            16 => FieldValue::Text(reader.text()?),
            18 => {
                let (high, low) = (reader.u32()?, reader.u32()?);
                FieldValue::Real(f64::from_bits(u64::from(high) << 32 | u64::from(low)))
            }
            19 => FieldValue::Integer((little(reader.take(2)?) as i16).into()),
            20 => FieldValue::Integer((little(reader.take(4)?) as i32).into()),
            21 => FieldValue::Integer((little(reader.take(2)?) as u16).into()),
            22 => FieldValue::Integer((little(reader.take(4)?) as u32).into()),
            23 => {
                let seconds = little(reader.take(4)?) as i32;
                FieldValue::Time(LoggerTime { seconds, nanoseconds: little(reader.take(4)?) as i32 })
            }
            24 => FieldValue::Real(f32::from_bits(little(reader.take(4)?) as u32).into()),
            25 => FieldValue::Real(f64::from_bits(little(reader.take(8)?))),
            27 => FieldValue::Boolean(reader.u16()? != 0),
            28 => FieldValue::Boolean(reader.u32()? != 0),
            _ => return Err(PakBusParseError::Unknown),
        })
    }

    /// Writes the value as a field of this type. Numbers are clamped to the type's range, a text is cut to `length`
    /// bytes. Writes nothing for types that the emulated logger does not support.
    pub fn write(&self, kind: FieldType, length: usize, into: &mut Vec<u8>) {
        match (kind, self) {
            (FieldType::UINT2, FieldValue::Integer(value)) => into.u16(*value as u16),
            (FieldType::UINT4, FieldValue::Integer(value)) => into.u32(*value as u32),
            (FieldType::INT4, FieldValue::Integer(value)) => into.u32(*value as i32 as u32),
            (FieldType::FP2, FieldValue::Real(value)) => into.u16(encode_fp2(*value)),
            (FieldType::IEEE4, FieldValue::Real(value)) => into.u32((*value as f32).to_bits()),
            (FieldType::IEEE8, FieldValue::Real(value)) => into.extend(value.to_be_bytes()),
            // Loggers encode true as all ones.
            (FieldType::BOOL, FieldValue::Boolean(value)) => into.u8(if *value { 0xFF } else { 0 }),
            (FieldType::ASCII, FieldValue::Text(text)) => {
                let end = into.len() + length;
                into.extend(to_latin1(text).take(length));
                into.resize(end, 0);
            }
            _ => {}
        }
    }
}

/// Layout of a decimal floating-point number: sign, exponent, mantissa; the value is mantissa / 10^exponent.
#[derive(Clone, Copy)]
struct DecimalLayout {
    exponent_bits: u32,
    mantissa_bits: u32,
}

const FP2: DecimalLayout = DecimalLayout { exponent_bits: 2, mantissa_bits: 13 };
const FP3: DecimalLayout = DecimalLayout { exponent_bits: 3, mantissa_bits: 20 };

/// Special values of FP2.
const FP2_NAN: u16 = 0x9FFE;
const FP2_INFINITY: u16 = 0x1FFF;
const FP2_NEGATIVE_INFINITY: u16 = 0x9FFF;
/// Largest mantissa that loggers store in an FP2.
const MAX_FP2_MANTISSA: f64 = 7999.0;

fn decode_decimal(bits: u32, layout: DecimalLayout) -> f64 {
    if layout.mantissa_bits == FP2.mantissa_bits {
        match bits as u16 {
            FP2_NAN => return f64::NAN,
            FP2_INFINITY => return f64::INFINITY,
            FP2_NEGATIVE_INFINITY => return f64::NEG_INFINITY,
            _ => {}
        }
    }
    let mantissa = bits & ((1 << layout.mantissa_bits) - 1);
    let exponent = bits >> layout.mantissa_bits & ((1 << layout.exponent_bits) - 1);
    let value = f64::from(mantissa) / f64::from(10u32.pow(exponent));
    if bits >> (layout.mantissa_bits + layout.exponent_bits) & 1 == 1 { -value } else { value }
}

/// Encodes the nearest FP2.
fn encode_fp2(value: f64) -> u16 {
    if value.is_nan() {
        return FP2_NAN;
    }
    let sign = u16::from(value < 0.0) << 15;
    for exponent in (0..4u16).rev() {
        let mantissa = (value.abs() * f64::from(10u32.pow(exponent.into()))).round();
        if mantissa == 0.0 && exponent > 0 {
            continue;
        }
        if mantissa <= MAX_FP2_MANTISSA {
            return sign | exponent << FP2.mantissa_bits | mantissa as u16;
        }
    }
    if sign == 0 { FP2_INFINITY } else { FP2_NEGATIVE_INFINITY }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::pakbus::parse_hex;
    use proptest::prelude::*;

    fn read(code: u8, bytes: &str) -> FieldValue {
        FieldValue::read(FieldType(code), 4, &mut MessageReader(&parse_hex(bytes))).unwrap()
    }

    #[test]
    fn fp2_agrees_with_real_loggers() {
        for (bits, value) in
            [(0x43E9, 10.01), (0xA07B, -12.3), (0x6001, 0.001), (0x3F0F, 795.1), (0, 0.0), (0x444B, 10.99)]
        {
            assert_eq!(decode_decimal(bits, FP2), value);
            assert_eq!(
                decode_decimal(encode_fp2(value).into(), FP2),
                value,
                "the same value, perhaps in other bits"
            );
        }
        assert_eq!([10.01, 0.001, 795.1, 0.0, 10.99].map(encode_fp2), [0x43E9, 0x6001, 0x3F0F, 0, 0x444B]);
        assert_eq!([f64::NAN, 1e9, -8000.0].map(encode_fp2), [FP2_NAN, FP2_INFINITY, FP2_NEGATIVE_INFINITY]);
        assert!(decode_decimal(FP2_NAN.into(), FP2).is_nan());
        assert_eq!(decode_decimal(FP2_NEGATIVE_INFINITY.into(), FP2), f64::NEG_INFINITY);
    }

    #[test]
    fn every_type_is_read() {
        let time = |seconds, nanoseconds| FieldValue::Time(LoggerTime { seconds, nanoseconds });
        for (code, bytes, value) in [
            (1, "FF", FieldValue::Integer(255)),
            (2, "FFFE", FieldValue::Integer(65_534)),
            (3, "FFFFFFFE", FieldValue::Integer(4_294_967_294)),
            (4, "FE", FieldValue::Integer(-2)),
            (5, "FFFE", FieldValue::Integer(-2)),
            (6, "FFFFFFFE", FieldValue::Integer(-2)),
            (7, "43E9", FieldValue::Real(10.01)),
            (8, "01020304", FieldValue::Raw(vec![1, 2, 3, 4])),
            (9, "414FD70A", FieldValue::Real(f64::from(12.99f32))),
            (10, "FF", FieldValue::Boolean(true)),
            (11, "41422000", FieldValue::Text("AB".to_owned())),
            (12, "00000001", FieldValue::Integer(1)),
            (13, "000000000001", FieldValue::Raw(vec![0, 0, 0, 0, 0, 1])),
            (14, "00000001 00000002", time(1, 2)),
            (15, "A003E9", FieldValue::Real(-10.01)),
            (16, "B04300", FieldValue::Text("°C".to_owned())),
            (17, "81", FieldValue::Integer(0x81)),
            (18, "4029000000000000", FieldValue::Real(12.5)),
            (19, "FEFF", FieldValue::Integer(-2)),
            (20, "FEFFFFFF", FieldValue::Integer(-2)),
            (21, "FEFF", FieldValue::Integer(65_534)),
            (22, "FEFFFFFF", FieldValue::Integer(4_294_967_294)),
            (23, "01000000 02000000", time(1, 2)),
            (24, "00004841", FieldValue::Real(12.5)),
            (25, "0000000000002940", FieldValue::Real(12.5)),
            (27, "0000", FieldValue::Boolean(false)),
            (28, "00000001", FieldValue::Boolean(true)),
        ] {
            assert_eq!(read(code, bytes), value, "type {code}");
            let short = &parse_hex(bytes)[1..];
            let kind = FieldType(code);
            assert_eq!(
                FieldValue::read(kind, 4, &mut MessageReader(&short[..short.len().min(3)])).is_err(),
                code != 16
            );
        }
        for unknown in [0, 26, 29, 255] {
            assert_eq!(
                FieldValue::read(FieldType(unknown), 4, &mut MessageReader(&[0; 9])),
                Err(PakBusParseError::Unknown)
            );
        }
    }

    #[test]
    fn times_before_1990_and_invalid_times_are_accepted() {
        assert_eq!(LoggerTime::from_nanoseconds(-1), LoggerTime { seconds: -1, nanoseconds: 999_999_999 });
        assert_eq!(LoggerTime { seconds: 1, nanoseconds: -1 }.as_nanoseconds(), 999_999_999);
        assert_eq!(LoggerTime::from_nanoseconds(i64::MAX).seconds, i32::MAX);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(number: i64, real in -7999.0..7999.0, text in "[ -~]{0,12}") {
            let again = |value: &FieldValue, kind: FieldType| {
                let mut bytes = Vec::new();
                value.write(kind, 9, &mut bytes);
                let mut reader = MessageReader(&bytes);
                let read = FieldValue::read(kind, 9, &mut reader).unwrap();
                assert!(reader.is_empty());
                read
            };
            prop_assert_eq!(again(&FieldValue::Integer(number), FieldType::UINT2), FieldValue::Integer((number as u16).into()));
            prop_assert_eq!(again(&FieldValue::Integer(number), FieldType::UINT4), FieldValue::Integer((number as u32).into()));
            prop_assert_eq!(again(&FieldValue::Integer(number), FieldType::INT4), FieldValue::Integer((number as i32).into()));
            prop_assert_eq!(again(&FieldValue::Real(real), FieldType::IEEE8), FieldValue::Real(real));
            prop_assert_eq!(again(&FieldValue::Real(real), FieldType::IEEE4), FieldValue::Real((real as f32).into()));
            let FieldValue::Real(rounded) = again(&FieldValue::Real(real), FieldType::FP2) else { panic!() };
            prop_assert!((rounded - real).abs() <= real.abs() / 1000.0 + 0.0005, "{} {}", rounded, real);
            let cut: String = text.chars().take(9).collect();
            prop_assert_eq!(again(&FieldValue::Text(text), FieldType::ASCII), FieldValue::Text(cut.trim_end().to_owned()));
        }
    }
}
