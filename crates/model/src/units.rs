//! Durations, sizes, rates and shares: parsed from user input, and formatted for users.
//!
//! Measurements are plain integers with the unit in their name.
//!
//! `k` is 1000 and `Ki` is 1024 everywhere. A bare number has the unit of ping and iperf3: seconds, messages
//! per second, bits per second. Bit rates are bits per second, `kbps` included; `kBps`, `MBps` are kilo- and
//! megabytes per second (`tc` calls kilobytes per second `kbps`).

use std::time::Duration;

use serde::{Deserialize, Deserializer, de};

/// The error in a typed quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not {wanted}")]
pub struct UnitError {
    text: String,
    wanted: &'static str,
}

fn unit_error(text: &str, wanted: &'static str) -> UnitError {
    // Enough to recognise it: a number in a file may have hundreds of digits.
    const MAX_CHARACTERS: usize = 40;
    let mut shown: String = text.chars().take(MAX_CHARACTERS).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    UnitError { text: shown, wanted }
}

/// Splits `12.5ms` into its number and its unit; rejects negative, infinite and missing numbers.
fn split_unit(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let value: f64 = number.replace('_', "").parse().ok()?;
    Some((value, unit.trim_start()))
}

/// The factor of a decimal (`k M G T`) or binary (`Ki Mi Gi Ti`) prefix and what follows it; small letters are the same, as for
/// iperf3 and tc, since these quantities have no thousandths.
fn split_prefix(unit: &str) -> (f64, &str) {
    const DECIMAL: [([char; 2], f64, f64); 4] = [
        (['k', 'K'], 1e3, 1024.0),
        (['m', 'M'], 1e6, 1_048_576.0),
        (['g', 'G'], 1e9, 1_073_741_824.0),
        (['t', 'T'], 1e12, 1_099_511_627_776.0),
    ];
    for (letters, decimal, binary) in DECIMAL {
        if let Some(rest) = unit.strip_prefix(letters) {
            return match rest.strip_prefix('i') {
                Some(rest) => (binary, rest),
                None => (decimal, rest),
            };
        }
    }
    (1.0, unit)
}

/// A duration: `250ms`, `10s`, `1.5 min`, `20us`. Units `ns us µs ms s min h d`, default seconds; at most 100
/// years.
///
/// # Errors
///
/// Fails for an unknown unit, and for a number that is invalid or out of range.
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    const WANTED: &str = "a duration (like 250ms, 10s, 2min; seconds without a unit)";
    let (value, unit) = split_unit(text).ok_or_else(|| unit_error(text, WANTED))?;
    let nanoseconds = value
        * match unit {
            "ns" => 1.0,
            "us" | "µs" | "μs" => 1e3,
            "ms" => 1e6,
            "s" | "sec" | "" => 1e9,
            "min" => 60e9,
            "h" => 3600e9,
            "d" => 86_400e9,
            _ => return Err(unit_error(text, WANTED)),
        };
    if nanoseconds > 100.0 * 365.25 * 86_400e9 {
        return Err(unit_error(text, "a duration below 100 years"));
    }
    Ok(Duration::from_nanos(nanoseconds.round() as u64))
}

/// A time per byte, in nanoseconds with their fraction: `2.19ns`, `7.95us`. Units as for [`parse_duration`], without a default.
///
/// # Errors
///
/// Fails for a number that is invalid, and for an unknown or missing unit.
pub(crate) fn parse_byte_time(text: &str) -> Result<f64, UnitError> {
    const WANTED: &str = "a time per byte with its unit (like 2.19ns, 7.95us)";
    let (value, unit) = split_unit(text).ok_or_else(|| unit_error(text, WANTED))?;
    let factor = match unit {
        "ns" => 1.0,
        "us" | "µs" | "μs" => 1e3,
        "ms" => 1e6,
        _ => return Err(unit_error(text, WANTED)),
    };
    Some(value * factor)
        .filter(|ns| *ns <= MAX_BYTE_TIME_NS)
        .ok_or_else(|| unit_error(text, "at most a minute per byte"))
}

/// [`parse_duration`] with a mandatory unit, where a bare number could also mean milliseconds.
///
/// # Errors
///
/// Same errors as [`parse_duration`], and an error for a number without unit.
pub fn parse_duration_with_unit(text: &str) -> Result<Duration, UnitError> {
    const WITH_UNIT: &str = "a duration with its unit (like 250ms, 10s, 2min)";
    match split_unit(text) {
        Some((value, "")) if value != 0.0 => Err(unit_error(text, WITH_UNIT)),
        Some(_) => parse_duration(text),
        None => Err(unit_error(text, WITH_UNIT)),
    }
}

/// A number of bytes: `14`, `3420k` (3 420 000), `1Mi` (1 048 576), `1.5kB`. Rejects fractions of a byte.
///
/// # Errors
///
/// Fails for an unknown unit, and for a number that is invalid or out of range.
pub fn parse_bytes(text: &str) -> Result<u64, UnitError> {
    const WANTED: &str = "a number of bytes (like 14, 3420k, 1Mi)";
    let (value, unit) = split_unit(text).ok_or_else(|| unit_error(text, WANTED))?;
    let (factor, rest) = split_prefix(unit);
    to_whole_number(value * factor)
        .filter(|_| rest.is_empty() || rest == "B")
        .ok_or_else(|| unit_error(text, WANTED))
}

/// A count: `10000`, `10k`, `1_000_000`.
///
/// # Errors
///
/// Fails for an unknown unit, and for a number that is invalid or out of range.
pub fn parse_count(text: &str) -> Result<u64, UnitError> {
    const WANTED: &str = "a count (like 10000 or 10k)";
    let (value, unit) = split_unit(text).ok_or_else(|| unit_error(text, WANTED))?;
    let (factor, rest) = split_prefix(unit);
    to_whole_number(value * factor).filter(|_| rest.is_empty()).ok_or_else(|| unit_error(text, WANTED))
}

fn to_whole_number(value: f64) -> Option<u64> {
    (value.fract() == 0.0 && value < 2f64.powi(53)).then_some(value as u64)
}

/// Messages per second: `100`, `100/s`, `6/min`, `60Hz`, `1.5k/s`. Above zero.
///
/// # Errors
///
/// Fails for an unknown unit, and for a number that is invalid or out of range.
pub fn parse_message_rate(text: &str) -> Result<f64, UnitError> {
    const WANTED: &str = "a message rate above zero (like 100/s or 60Hz)";
    // A thousandth of a hertz is a rate, too.
    let (value, unit) = split_unit(text)
        .filter(|(_, unit)| !unit.starts_with('m'))
        .ok_or_else(|| unit_error(text, WANTED))?;
    let (factor, rest) = split_prefix(unit);
    let per_second = value * factor
        / match rest {
            "" | "/s" | "Hz" => 1.0,
            "/min" => 60.0,
            "/h" => 3600.0,
            _ => return Err(unit_error(text, WANTED)),
        };
    match per_second {
        rate if rate > MAX_MESSAGES_PER_SECOND => Err(unit_error(text, "a message rate of at most 1000G/s")),
        rate if rate >= MIN_RATE_PER_SECOND => Ok(rate),
        _ => Err(unit_error(text, WANTED)),
    }
}

/// Bits per second: `10M` and `10Mbit/s` are bits, `10kBps` and `10kB/s` are bytes per second. Above zero.
///
/// # Errors
///
/// Fails for an unknown unit, and for a number that is invalid or out of range.
pub fn parse_bit_rate(text: &str) -> Result<f64, UnitError> {
    const WANTED: &str = "a rate above zero (like 10Mbit/s, or 10kBps in bytes)";
    let (value, unit) = split_unit(text).ok_or_else(|| unit_error(text, WANTED))?;
    let (factor, rest) = split_prefix(unit);
    let bits = value
        * factor
        * match rest {
            "" | "bit/s" | "bps" | "b/s" | "bit" | "b" => 1.0,
            "B/s" | "Bps" => 8.0,
            _ => return Err(unit_error(text, WANTED)),
        };
    match bits {
        bits if bits > MAX_BITS_PER_SECOND => Err(unit_error(text, "a rate of at most 100 Tbit/s")),
        bits if bits >= MIN_RATE_PER_SECOND => Ok(bits),
        _ => Err(unit_error(text, WANTED)),
    }
}

/// Parses a bit rate that has a unit.
///
/// # Errors
///
/// Same errors as [`parse_bit_rate`], and an error without a unit.
pub fn parse_bit_rate_with_unit(text: &str) -> Result<f64, UnitError> {
    match split_unit(text) {
        Some((_, "")) => Err(unit_error(text, "a rate with its unit (like 10Mbit/s, or 10kBps in bytes)")),
        _ => parse_bit_rate(text),
    }
}

/// Minimum rate, per second: about once in thirty years. Lower rates are rejected.
const MIN_RATE_PER_SECOND: f64 = 1e-9;

/// Maximum rates, above those of any link. Higher rates are rejected.
pub(crate) const MAX_MESSAGES_PER_SECOND: f64 = 1e12;
const MAX_BITS_PER_SECOND: f64 = 1e14;

/// The longest time per byte, in nanoseconds: a minute.
const MAX_BYTE_TIME_NS: f64 = 60e9;

/// A share, from 0 to 1: `1%`, `0.5 %`. At most 100 %.
///
/// # Errors
///
/// Fails for an unknown unit, and for a number that is invalid or out of range.
pub fn parse_share(text: &str) -> Result<f64, UnitError> {
    const WANTED: &str = "a share in percent (like 1%)";
    let (value, unit) = split_unit(text).ok_or_else(|| unit_error(text, WANTED))?;
    if unit == "%" && value <= 100.0 { Ok(value / 100.0) } else { Err(unit_error(text, WANTED)) }
}

/// Formats a value that an SI prefix scaled with four significant digits: `1.042`, `13.25`, `999.9`.
pub fn format_four_digits(value: f64) -> String {
    // A value that rounds to 10, 100 or 1000 has the digits of the rounded value.
    let digits = match value.abs() {
        v if v >= 999.95 => 0,
        v if v >= 99.995 => 1,
        v if v >= 9.999_5 => 2,
        _ => 3,
    };
    format!("{value:.digits$}")
}

/// Formats a number with four significant digits without trailing zeros, or as a whole number: `2.5`, `446.4`, `1 235`. Outside
/// of what is counted, as in documents that were changed, a power of ten.
pub fn format_number(value: f64) -> String {
    const MIN_WHOLE: f64 = 999.95;
    const MAX_WHOLE: f64 = 1e15;
    if value < 0.0 {
        return format!("-{}", format_number(-value));
    }
    if value >= MAX_WHOLE {
        return if value.is_finite() { format!("{value:.3e}") } else { value.to_string() };
    }
    if value >= MIN_WHOLE {
        return format_count(value.round() as u64);
    }
    let text = format_four_digits(value);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

fn format_scaled(value: f64, steps: &[(f64, &str)]) -> String {
    let (factor, unit) =
        steps.iter().rev().find(|(factor, _)| value.abs() >= *factor * 0.999_95).unwrap_or(&steps[0]);
    format!("{} {unit}", format_four_digits(value / factor))
}

/// Formats nanoseconds: `13.25 µs`, `1.042 ms`, `2.000 s`.
pub fn format_nanoseconds(nanoseconds: f64) -> String {
    if nanoseconds.abs() < 1e3 {
        return format!("{nanoseconds:.0} ns");
    }
    format_scaled(nanoseconds, &[(1e3, "µs"), (1e6, "ms"), (1e9, "s")])
}

/// Formats a duration as it is typed: `10s`, `250ms`, `1.5ms`.
pub fn format_duration(duration: Duration) -> String {
    let nanoseconds = duration.as_nanos();
    for (factor, unit) in [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")] {
        if nanoseconds >= factor {
            let text = format!("{:.3}", nanoseconds as f64 / factor as f64);
            return format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'));
        }
    }
    format!("{nanoseconds}ns")
}

/// A period that people chose, in its largest whole unit: `30 s`, `90 min`, `6 h`, `7 d`.
pub fn format_period(period: Duration) -> String {
    let seconds = period.as_secs();
    let units = [(86_400, "d"), (3600, "h"), (60, "min"), (1, "s")];
    let whole = units.iter().find(|(length, _)| seconds > 0 && seconds.is_multiple_of(*length));
    match whole {
        Some((length, unit)) if period.subsec_nanos() == 0 => format!("{} {unit}", seconds / length),
        _ => format_nanoseconds(period.as_nanos() as f64),
    }
}

/// Milliseconds of a limit, as in documents: `16.7`, `50`.
pub fn format_milliseconds(duration: Duration) -> String {
    format!("{}", duration.as_nanos() as f64 / 1e6)
}

/// Formats bits per second: `9.600 kbit/s`, `41.30 Gbit/s`.
pub fn format_bit_rate(bits_per_second: f64) -> String {
    format_scaled(bits_per_second, &[(1.0, "bit/s"), (1e3, "kbit/s"), (1e6, "Mbit/s"), (1e9, "Gbit/s")])
}

/// Formats bits per second as bytes per second: `91.64 MB/s`.
pub fn format_byte_rate(bits_per_second: f64) -> String {
    let steps = [(1.0, "B/s"), (1e3, "kB/s"), (1e6, "MB/s"), (1e9, "GB/s")];
    format_scaled(bits_per_second / f64::from(u8::BITS), &steps)
}

/// Formats a number of bytes: `14 B`, `1.024 kB`, `3.420 MB`.
pub fn format_bytes(bytes: u64) -> String {
    if bytes < 1000 {
        return format!("{bytes} B");
    }
    format_scaled(bytes as f64, &[(1e3, "kB"), (1e6, "MB"), (1e9, "GB"), (1e12, "TB")])
}

/// Formats a size without zeros at its end, for sentences: `1 kB`, `1.024 kB`.
pub fn format_size(bytes: u64) -> String {
    trim_zeros(&format_bytes(bytes))
}

/// Removes zeros at the end: `10.00 µs` becomes `10 µs`.
pub fn trim_zeros(text: &str) -> String {
    match text.split_once(' ') {
        Some((number, unit)) if number.contains('.') => {
            format!("{} {unit}", number.trim_end_matches('0').trim_end_matches('.'))
        }
        _ => text.to_owned(),
    }
}

/// A count with thin groups of three: `10 000`.
pub fn format_count(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(digit);
    }
    out
}

/// A count with its noun: `1 request`, `2 requests`, `10 000 requests`.
pub fn format_plural(count: u64, thing: &str) -> String {
    format!("{} {thing}{}", format_count(count), if count == 1 { "" } else { "s" })
}

/// Text, or a bare number where the unit is unambiguous (in a plan file).
#[derive(Deserialize)]
#[serde(untagged, expecting = "use a number, or text with a unit in quotes")]
enum TextOrNumber {
    Number(u64),
    Fraction(f64),
    Text(String),
}

impl TextOrNumber {
    fn into_text(self) -> String {
        match self {
            TextOrNumber::Number(number) => number.to_string(),
            TextOrNumber::Fraction(number) => number.to_string(),
            TextOrNumber::Text(text) => text,
        }
    }
}

/// A rate, or the maximum rate: `max`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RateTarget<T> {
    /// Maximum rate: as fast as possible.
    Max,
    /// The rate.
    Fixed(T),
}

impl<T: std::str::FromStr<Err = UnitError>> std::str::FromStr for RateTarget<T> {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<RateTarget<T>, UnitError> {
        if text == "max" { Ok(RateTarget::Max) } else { text.parse().map(RateTarget::Fixed) }
    }
}

impl<'de, T: std::str::FromStr<Err = UnitError>> Deserialize<'de> for RateTarget<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        TextOrNumber::deserialize(from)?.into_text().parse().map_err(de::Error::custom)
    }
}

/// A quantity that serde parses with one of the functions above: `Typed<Bytes>` and so on.
macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident, $inner:ty, $parse:ident, bare: $bare:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
        pub struct $name(pub $inner);

        impl std::str::FromStr for $name {
            type Err = UnitError;
            fn from_str(text: &str) -> Result<Self, UnitError> {
                $parse(text).map($name)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                match TextOrNumber::deserialize(from)? {
                    TextOrNumber::Text(text) => text.parse().map_err(de::Error::custom),
                    number if $bare => number.into_text().parse().map_err(de::Error::custom),
                    number => Err(de::Error::custom(format!("{} needs its unit, as text", number.into_text()))),
                }
            }
        }
    };
}

quantity!(/// A [`parse_duration`].
    Span, Duration, parse_duration, bare: true);
quantity!(/// Nanoseconds per byte, see `parse_byte_time`.
    ByteTime, f64, parse_byte_time, bare: false);
quantity!(/// A number of [`parse_bytes`].
    Bytes, u64, parse_bytes, bare: true);
quantity!(/// A [`parse_count`].
    Count, u64, parse_count, bare: true);
quantity!(/// Messages per second, see [`parse_message_rate`].
    MessageRate, f64, parse_message_rate, bare: true);
quantity!(/// Bits per second, see [`parse_bit_rate`].
    BitRate, f64, parse_bit_rate, bare: true);
quantity!(/// A [`parse_share`].
    Share, f64, parse_share, bare: false);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_typed_quantities() {
        assert_eq!(parse_duration("250ms").unwrap(), Duration::from_millis(250));
        assert_eq!(parse_duration("1.5 s").unwrap(), Duration::from_millis(1500));
        assert_eq!(parse_duration("2min").unwrap(), Duration::from_secs(120));
        assert_eq!(parse_duration("0.2").unwrap(), Duration::from_millis(200));
        assert_eq!(parse_message_rate("10").unwrap(), 10.0);
        assert_eq!(parse_bytes("3420k").unwrap(), 3_420_000);
        assert_eq!(parse_bytes("1Mi").unwrap(), 1_048_576);
        assert_eq!(parse_bytes("1.5kB").unwrap(), 1500);
        assert_eq!(parse_count("1_000").unwrap(), 1000);
        assert_eq!(parse_message_rate("6/min").unwrap(), 0.1);
        assert_eq!(parse_message_rate("60Hz").unwrap(), 60.0);
        assert_eq!(parse_bit_rate("10kBps").unwrap(), 80_000.0);
        assert_eq!(parse_bit_rate("10kbps").unwrap(), 10_000.0);
        assert_eq!(parse_bit_rate("1MBps").unwrap(), 8e6);
        assert_eq!(parse_bit_rate("10M").unwrap(), 10e6);
        assert_eq!(parse_bit_rate("10m").unwrap(), 10e6);
        assert_eq!(parse_bit_rate("1.5gbit").unwrap(), 1.5e9);
        assert_eq!(parse_bit_rate("10Mb").unwrap(), 10e6);
        assert_eq!(parse_bytes("1m").unwrap(), 1_000_000);
        assert_eq!(parse_bytes("64ki").unwrap(), 65_536);
        assert_eq!(parse_share("2.5%").unwrap(), 0.025);
    }

    #[test]
    fn refuses_ambiguous_quantities() {
        for text in ["", "-1s", "1e3s", "ms", "1 fortnight", "inf", "200000d"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
        for text in ["", "1.5", "12bananas", "-3", "1KiBs"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
        let (never, always) = (format!("0.{:0>40}/s", 1), format!("{:9>400}/s", 9));
        assert_eq!(
            parse_message_rate(&always).unwrap_err().to_string(),
            format!("'{:9>40}…' is not a message rate of at most 1000G/s", 9)
        );
        assert!(parse_byte_time("61s").is_err() && parse_byte_time("60000.1ms").is_err());
        assert!(parse_bit_rate("101T").is_err() && parse_bit_rate("100T").is_ok());
        for text in ["0/s", "0", "5/fortnight", "10mHz", &never, &always] {
            assert!(parse_message_rate(text).is_err(), "{text}");
        }
        assert!(
            parse_bit_rate(&never.replace("/s", "")).is_err()
                && parse_bit_rate(&always.replace("/s", "")).is_err()
        );
        assert!(
            parse_duration_with_unit("10").is_err()
                && parse_duration_with_unit("10s").is_ok()
                && parse_duration_with_unit("0").is_ok()
        );
        assert!(parse_bit_rate("0").is_err());
        for text in ["0.1", "101%", "-1%", "%"] {
            assert!(parse_share(text).is_err(), "{text}");
        }
        assert_eq!(
            parse_duration("10x").unwrap_err().to_string(),
            "'10x' is not a duration (like 250ms, 10s, 2min; seconds without a unit)"
        );
    }

    #[test]
    fn reads_a_rate_or_max() {
        assert_eq!("max".parse(), Ok(RateTarget::<BitRate>::Max));
        assert_eq!("10M".parse(), Ok(RateTarget::Fixed(BitRate(10e6))));
        assert!("most".parse::<RateTarget<MessageRate>>().is_err());
    }

    #[test]
    fn formats_quantities() {
        assert_eq!(format_nanoseconds(13_250.0), "13.25 µs");
        assert_eq!(format_nanoseconds(1_041_667.0), "1.042 ms");
        let periods = [30, 5400, 21_600, 604_800].map(|seconds| format_period(Duration::from_secs(seconds)));
        assert_eq!(periods, ["30 s", "90 min", "6 h", "7 d"]);
        assert_eq!(format_period(Duration::from_millis(1500)), "1.500 s");
        assert_eq!(format_nanoseconds(830.0), "830 ns");
        assert_eq!(format_nanoseconds(999_980.0), "1.000 ms");
        assert_eq!(format_bit_rate(41.3e9), "41.30 Gbit/s");
        assert_eq!(format_bytes(14), "14 B");
        assert_eq!(format_bytes(3_420_000), "3.420 MB");
        assert_eq!(format_bit_rate(9_999_999.0), "10.00 Mbit/s");
        assert_eq!(format_bit_rate(99_999_000.0), "100.0 Mbit/s");
        assert_eq!(format_four_digits(999.96), "1000");
        assert_eq!(format_count(10_000), "10 000");
        assert_eq!(
            [0, 1, 2000].map(|count| format_plural(count, "request")),
            ["0 requests", "1 request", "2 000 requests"]
        );
        assert_eq!(format_duration(Duration::from_micros(1500)), "1.5ms");
        assert_eq!((parse_byte_time("2.19ns"), parse_byte_time("7.95 us")), (Ok(2.19), Ok(7950.0)));
        assert!(parse_byte_time("2.19").is_err() && parse_byte_time("1s").is_err());
    }

    proptest! {
        #[test]
        fn durations_print_back(ms in 0u64..1_000_000) {
            let duration_ = Duration::from_millis(ms);
            prop_assert_eq!(parse_duration(&format_duration(duration_)).unwrap(), duration_);
        }

        #[test]
        fn nothing_panics(text in ".{0,20}") {
            let _ = (parse_duration(&text), parse_bytes(&text), parse_count(&text), parse_message_rate(&text), parse_bit_rate(&text), parse_share(&text));
        }
    }
}
