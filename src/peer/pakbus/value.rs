//! What stands in the fields of a table: times, numbers in the logger's own formats, texts.

use super::Malformed;
use super::text::{Reader, Write, bytes, latin};

/// Seconds from 1970 to 1990, where a logger's clock begins. Loggers know no time zones.
pub const UNIX_1990: i64 = 631_152_000;

const SECOND: i64 = 1_000_000_000;

/// A time of a logger's clock, since the beginning of 1990, or a span of time; both parts carry the sign of a span.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant {
    pub seconds: i32,
    pub nanoseconds: i32,
}

impl Instant {
    pub fn from_nanoseconds(nanoseconds: i64) -> Instant {
        let seconds = nanoseconds.div_euclid(SECOND).clamp(i32::MIN.into(), i32::MAX.into());
        Instant { seconds: seconds as i32, nanoseconds: nanoseconds.rem_euclid(SECOND) as i32 }
    }

    /// As one number; nanoseconds beyond a second, which some loggers send, count as they stand.
    pub fn as_nanoseconds(self) -> i64 {
        i64::from(self.seconds) * SECOND + i64::from(self.nanoseconds)
    }
}

/// The type of a field, by its code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Type(pub u8);

impl Type {
    pub const UINT2: Type = Type(2);
    pub const UINT4: Type = Type(3);
    pub const INT4: Type = Type(6);
    pub const FP2: Type = Type(7);
    pub const IEEE4: Type = Type(9);
    pub const BOOL: Type = Type(10);
    pub const ASCII: Type = Type(11);
    pub const IEEE8: Type = Type(18);
}

/// One value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Integer(i64),
    Real(f64),
    Boolean(bool),
    Text(String),
    Time(Instant),
    /// Of a type whose meaning is not agreed upon.
    Raw(Vec<u8>),
}

impl Value {
    /// Reads one value; an ASCII text has `length` bytes.
    pub fn read(kind: Type, length: usize, reader: &mut Reader) -> Result<Value, Malformed> {
        let little = |bytes: &[u8]| bytes.iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte));
        Ok(match kind.0 {
            1 | 17 => Value::Integer(reader.u8()?.into()),
            2 => Value::Integer(reader.u16()?.into()),
            3 => Value::Integer(reader.u32()?.into()),
            4 => Value::Integer((reader.u8()? as i8).into()),
            5 => Value::Integer((reader.u16()? as i16).into()),
            6 | 12 => Value::Integer(reader.i32()?.into()),
            7 => Value::Real(decimal(reader.u16()?.into(), FP2)),
            8 => Value::Raw(reader.take(4)?.to_vec()),
            9 => Value::Real(f32::from_bits(reader.u32()?).into()),
            10 => Value::Boolean(reader.u8()? != 0),
            11 => Value::Text(latin(reader.take(length)?).trim_end_matches(['\0', ' ']).to_owned()),
            13 => Value::Raw(reader.take(6)?.to_vec()),
            14 => Value::Time(reader.instant()?),
            15 => {
                let (high, low) = (reader.u8()?, reader.u16()?);
                Value::Real(decimal(u32::from(high) << 16 | u32::from(low), FP3))
            }
            16 => Value::Text(reader.text()?),
            18 => {
                let (high, low) = (reader.u32()?, reader.u32()?);
                Value::Real(f64::from_bits(u64::from(high) << 32 | u64::from(low)))
            }
            19 => Value::Integer((little(reader.take(2)?) as i16).into()),
            20 => Value::Integer((little(reader.take(4)?) as i32).into()),
            21 => Value::Integer((little(reader.take(2)?) as u16).into()),
            22 => Value::Integer((little(reader.take(4)?) as u32).into()),
            23 => {
                let seconds = little(reader.take(4)?) as i32;
                Value::Time(Instant { seconds, nanoseconds: little(reader.take(4)?) as i32 })
            }
            24 => Value::Real(f32::from_bits(little(reader.take(4)?) as u32).into()),
            25 => Value::Real(f64::from_bits(little(reader.take(8)?))),
            27 => Value::Boolean(reader.u16()? != 0),
            28 => Value::Boolean(reader.u32()? != 0),
            _ => return Err(Malformed::Unknown),
        })
    }

    /// Writes the value as a field of this type, a number cut to the type's range, a text to `length` bytes. Writes
    /// nothing where a stand-in for a logger has no fields of the type.
    pub fn write(&self, kind: Type, length: usize, into: &mut Vec<u8>) {
        match (kind, self) {
            (Type::UINT2, Value::Integer(value)) => into.u16(*value as u16),
            (Type::UINT4, Value::Integer(value)) => into.u32(*value as u32),
            (Type::INT4, Value::Integer(value)) => into.u32(*value as i32 as u32),
            (Type::FP2, Value::Real(value)) => into.u16(fp2(*value)),
            (Type::IEEE4, Value::Real(value)) => into.u32((*value as f32).to_bits()),
            (Type::IEEE8, Value::Real(value)) => into.extend(value.to_be_bytes()),
            // Loggers say true with all bits.
            (Type::BOOL, Value::Boolean(value)) => into.u8(if *value { 0xFF } else { 0 }),
            (Type::ASCII, Value::Text(text)) => {
                let end = into.len() + length;
                into.extend(bytes(text).take(length));
                into.resize(end, 0);
            }
            _ => {}
        }
    }
}

/// The bits of a decimal floating-point number: sign, exponent, mantissa; the value is mantissa / 10^exponent.
#[derive(Clone, Copy)]
struct Decimal {
    exponent: u32,
    mantissa: u32,
}

const FP2: Decimal = Decimal { exponent: 2, mantissa: 13 };
const FP3: Decimal = Decimal { exponent: 3, mantissa: 20 };

/// Special values of FP2.
const NOT_A_NUMBER: u16 = 0x9FFE;
const INFINITE: u16 = 0x1FFF;
const MINUS_INFINITE: u16 = 0x9FFF;
/// Largest mantissa that loggers store in an FP2.
const MOST_FP2: f64 = 7999.0;

fn decimal(bits: u32, layout: Decimal) -> f64 {
    if layout.mantissa == FP2.mantissa {
        match bits as u16 {
            NOT_A_NUMBER => return f64::NAN,
            INFINITE => return f64::INFINITY,
            MINUS_INFINITE => return f64::NEG_INFINITY,
            _ => {}
        }
    }
    let mantissa = bits & ((1 << layout.mantissa) - 1);
    let exponent = bits >> layout.mantissa & ((1 << layout.exponent) - 1);
    let value = f64::from(mantissa) / f64::from(10u32.pow(exponent));
    if bits >> (layout.mantissa + layout.exponent) & 1 == 1 { -value } else { value }
}

/// The FP2 nearest to a number.
fn fp2(value: f64) -> u16 {
    if value.is_nan() {
        return NOT_A_NUMBER;
    }
    let sign = u16::from(value < 0.0) << 15;
    for exponent in (0..4u16).rev() {
        let mantissa = (value.abs() * f64::from(10u32.pow(exponent.into()))).round();
        if mantissa == 0.0 && exponent > 0 {
            continue;
        }
        if mantissa <= MOST_FP2 {
            return sign | exponent << FP2.mantissa | mantissa as u16;
        }
    }
    if sign == 0 { INFINITE } else { MINUS_INFINITE }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::pakbus::hex;
    use proptest::prelude::*;

    fn read(code: u8, bytes: &str) -> Value {
        Value::read(Type(code), 4, &mut Reader(&hex(bytes))).unwrap()
    }

    #[test]
    fn fp2_agrees_with_real_loggers() {
        for (bits, value) in
            [(0x43E9, 10.01), (0xA07B, -12.3), (0x6001, 0.001), (0x3F0F, 795.1), (0, 0.0), (0x444B, 10.99)]
        {
            assert_eq!(decimal(bits, FP2), value);
            assert_eq!(decimal(fp2(value).into(), FP2), value, "the same value, perhaps in other bits");
        }
        assert_eq!([10.01, 0.001, 795.1, 0.0, 10.99].map(fp2), [0x43E9, 0x6001, 0x3F0F, 0, 0x444B]);
        assert_eq!([f64::NAN, 1e9, -8000.0].map(fp2), [NOT_A_NUMBER, INFINITE, MINUS_INFINITE]);
        assert!(decimal(NOT_A_NUMBER.into(), FP2).is_nan());
        assert_eq!(decimal(MINUS_INFINITE.into(), FP2), f64::NEG_INFINITY);
    }

    #[test]
    fn every_type_is_read() {
        let time = |seconds, nanoseconds| Value::Time(Instant { seconds, nanoseconds });
        for (code, bytes, value) in [
            (1, "FF", Value::Integer(255)),
            (2, "FFFE", Value::Integer(65_534)),
            (3, "FFFFFFFE", Value::Integer(4_294_967_294)),
            (4, "FE", Value::Integer(-2)),
            (5, "FFFE", Value::Integer(-2)),
            (6, "FFFFFFFE", Value::Integer(-2)),
            (7, "43E9", Value::Real(10.01)),
            (8, "01020304", Value::Raw(vec![1, 2, 3, 4])),
            (9, "414FD70A", Value::Real(f64::from(12.99f32))),
            (10, "FF", Value::Boolean(true)),
            (11, "41422000", Value::Text("AB".to_owned())),
            (12, "00000001", Value::Integer(1)),
            (13, "000000000001", Value::Raw(vec![0, 0, 0, 0, 0, 1])),
            (14, "00000001 00000002", time(1, 2)),
            (15, "A003E9", Value::Real(-10.01)),
            (16, "B04300", Value::Text("°C".to_owned())),
            (17, "81", Value::Integer(0x81)),
            (18, "4029000000000000", Value::Real(12.5)),
            (19, "FEFF", Value::Integer(-2)),
            (20, "FEFFFFFF", Value::Integer(-2)),
            (21, "FEFF", Value::Integer(65_534)),
            (22, "FEFFFFFF", Value::Integer(4_294_967_294)),
            (23, "01000000 02000000", time(1, 2)),
            (24, "00004841", Value::Real(12.5)),
            (25, "0000000000002940", Value::Real(12.5)),
            (27, "0000", Value::Boolean(false)),
            (28, "00000001", Value::Boolean(true)),
        ] {
            assert_eq!(read(code, bytes), value, "type {code}");
            let short = &hex(bytes)[1..];
            let kind = Type(code);
            assert_eq!(Value::read(kind, 4, &mut Reader(&short[..short.len().min(3)])).is_err(), code != 16);
        }
        for unknown in [0, 26, 29, 255] {
            assert_eq!(Value::read(Type(unknown), 4, &mut Reader(&[0; 9])), Err(Malformed::Unknown));
        }
    }

    #[test]
    fn times_before_1990_and_nonsense_are_borne() {
        assert_eq!(Instant::from_nanoseconds(-1), Instant { seconds: -1, nanoseconds: 999_999_999 });
        assert_eq!(Instant { seconds: 1, nanoseconds: -1 }.as_nanoseconds(), 999_999_999);
        assert_eq!(Instant::from_nanoseconds(i64::MAX).seconds, i32::MAX);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(number: i64, real in -7999.0..7999.0, text in "[ -~]{0,12}") {
            let again = |value: &Value, kind: Type| {
                let mut bytes = Vec::new();
                value.write(kind, 9, &mut bytes);
                let mut reader = Reader(&bytes);
                let read = Value::read(kind, 9, &mut reader).unwrap();
                assert!(reader.is_empty());
                read
            };
            prop_assert_eq!(again(&Value::Integer(number), Type::UINT2), Value::Integer((number as u16).into()));
            prop_assert_eq!(again(&Value::Integer(number), Type::UINT4), Value::Integer((number as u32).into()));
            prop_assert_eq!(again(&Value::Integer(number), Type::INT4), Value::Integer((number as i32).into()));
            prop_assert_eq!(again(&Value::Real(real), Type::IEEE8), Value::Real(real));
            prop_assert_eq!(again(&Value::Real(real), Type::IEEE4), Value::Real((real as f32).into()));
            let Value::Real(near) = again(&Value::Real(real), Type::FP2) else { panic!() };
            prop_assert!((near - real).abs() <= real.abs() / 1000.0 + 0.0005, "{} {}", near, real);
            let cut: String = text.chars().take(9).collect();
            prop_assert_eq!(again(&Value::Text(text), Type::ASCII), Value::Text(cut.trim_end().to_owned()));
        }
    }
}
