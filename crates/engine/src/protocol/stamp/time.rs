//! Timestamps of STAMP and TWAMP: 64 bits of NTP or PTP time, and the error estimate of the clock.

use crate::link::time_of_day::offset_bounds;
use linkgauge_model::clock::{Clock, Time};

/// Seconds from 1900-01-01 to 1970-01-01.
const NTP_TO_UNIX_SECONDS: u64 = 2_208_988_800;

const NANOSECONDS_PER_SECOND: i128 = 1_000_000_000;

/// Seconds since 1900 modulo 2³² (again 0 in February 2036), and the fraction in units of 2⁻³² s.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NtpTime(pub u64);

impl NtpTime {
    /// Converts nanoseconds since 1970, up to 136 years.
    pub(crate) fn from_unix_ns(nanoseconds: i128) -> NtpTime {
        let seconds = nanoseconds.div_euclid(NANOSECONDS_PER_SECOND) as u64;
        let fraction = (nanoseconds.rem_euclid(NANOSECONDS_PER_SECOND) << 32) / NANOSECONDS_PER_SECOND;
        NtpTime(seconds.wrapping_add(NTP_TO_UNIX_SECONDS) << 32 | fraction as u64)
    }

    /// PTP's truncated form: 32 bits of seconds since 1970, and nanoseconds. `None` if the nanoseconds are a second or
    /// more.
    fn from_ptp(bits: u64) -> Option<NtpTime> {
        let (seconds, nanoseconds) = (bits >> 32, bits as u32);
        (nanoseconds < 1_000_000_000).then(|| {
            NtpTime::from_unix_ns(i128::from(seconds) * NANOSECONDS_PER_SECOND + i128::from(nanoseconds))
        })
    }

    /// Nanoseconds from `earlier` to this instant, in a range of ±68 years.
    pub fn since(self, earlier: NtpTime) -> i64 {
        let units = i128::from(self.0.wrapping_sub(earlier.0) as i64);
        // Encoding truncates to less than one unit, so rounding restores the original nanosecond.
        ((units * NANOSECONDS_PER_SECOND + (1 << 31)) >> 32) as i64
    }
}

/// Maps the measuring clock to wall-clock time. Read once, so that it never jumps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WallClock {
    clock_time: Time,
    unix_ns: i128,
}

impl WallClock {
    /// Reads both clocks now.
    pub(crate) fn now(clock: &Clock) -> WallClock {
        let (low, high) = offset_bounds(clock);
        let clock_time = clock.now();
        WallClock { clock_time, unix_ns: i128::from(clock_time.0) + i128::from(low + (high - low) / 2) }
    }

    /// The wall-clock time at an instant of the clock, in nanoseconds since 1970.
    pub(crate) fn unix_ns_at(&self, at: Time) -> i128 {
        self.unix_ns + i128::from(at.0) - i128::from(self.clock_time.0)
    }

    /// Wall-clock time at an instant of the clock, in microseconds since 1970; never before 1970.
    pub(crate) fn unix_us_at(&self, at: Time) -> u64 {
        u64::try_from(self.unix_ns_at(at) / 1000).unwrap_or(0)
    }

    /// Wall-clock time at an instant of the clock, in NTP's format.
    pub(crate) fn ntp_at(&self, at: Time) -> NtpTime {
        NtpTime::from_unix_ns(self.unix_ns_at(at))
    }

    /// A time in nanoseconds since 1970, in nanoseconds of our clock, off by the difference between the two clocks.
    pub(crate) fn clock_ns_of_unix(&self, unix_ns: i64) -> i64 {
        (self.clock_time.0 as i64).wrapping_add(unix_ns.wrapping_sub(self.unix_ns as i64))
    }

    /// Converts a time in NTP's format to nanoseconds of our clock, off by the difference between the two clocks.
    pub(crate) fn clock_ns_of(&self, time: NtpTime) -> i64 {
        (self.clock_time.0 as i64).wrapping_add(time.since(NtpTime::from_unix_ns(self.unix_ns)))
    }
}

/// The largest error of a synchronised clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClockError {
    /// Error as stated, in nanoseconds.
    pub(crate) stated_ns: u64,
    /// Time when the error was stated.
    pub stated_at: Time,
}

impl ClockError {
    /// Error at a later time, in nanoseconds: the kernel lets it grow by 500 ppm.
    pub(crate) fn at(&self, now: Time) -> u64 {
        let growth = now.since(self.stated_at) / 2_000;
        self.stated_ns.saturating_add(growth.as_nanos() as u64)
    }
}

/// Error estimate of a clock (RFC 4656 4.1.2, RFC 8186).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorEstimate(pub u16);

impl ErrorEstimate {
    /// A clock that may not be synchronised, with an unknown error: the largest value that can be encoded.
    pub(crate) const UNKNOWN: ErrorEstimate = ErrorEstimate(0x3fff);

    const SYNCHRONISED: u16 = 1 << 15;
    const PTP: u16 = 1 << 14;

    /// Estimate of a clock with this largest error in nanoseconds, rounded up. `None`: it is not synchronised.
    pub(crate) fn from_error_ns(error_ns: Option<u64>) -> ErrorEstimate {
        let Some(error_ns) = error_ns else { return ErrorEstimate::UNKNOWN };
        // In units of 2⁻³² s.
        let units = (u128::from(error_ns.max(1)) << 32).div_ceil(NANOSECONDS_PER_SECOND as u128);
        let scale = (u128::BITS - units.leading_zeros()).saturating_sub(8);
        let (scale, multiplier) = match units.div_ceil(1 << scale) {
            256 => (scale + 1, 128),
            multiplier => (scale, multiplier),
        };
        ErrorEstimate(Self::SYNCHRONISED | (scale as u16) << 8 | multiplier as u16)
    }

    /// A multiplier of zero is forbidden (RFC 4656, 4.1.2): a packet with it should be discarded. A reflector discards such
    /// requests; a sender uses such a reply for the round trip alone.
    pub(crate) fn is_valid(self) -> bool {
        self.0 & 0xff != 0
    }

    /// Whether the clock is synchronised to UTC from an external source.
    pub(crate) fn is_synchronised(self) -> bool {
        self.0 & Self::SYNCHRONISED != 0
    }

    /// Whether timestamps have the format of PTP instead of NTP (RFC 8186).
    pub(crate) fn is_ptp(self) -> bool {
        self.0 & Self::PTP != 0
    }

    /// The claimed error in seconds.
    pub(crate) fn seconds(self) -> f64 {
        let (scale, multiplier) = (self.0 >> 8 & 0x3f, self.0 & 0xff);
        f64::from(multiplier) * 2f64.powi(i32::from(scale) - 32)
    }

    /// Decodes a timestamp of this clock; `None` if it is invalid.
    pub(crate) fn read(self, bits: u64) -> Option<NtpTime> {
        if self.is_ptp() { NtpTime::from_ptp(bits) } else { Some(NtpTime(bits)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_day_match_rfc_5905() {
        for (unix_ns, bits) in [
            (0, 0x83aa_7e80_0000_0000),
            (500_000_000, 0x83aa_7e80_8000_0000),
            (1_735_689_600_123_456_789, 0xeb1f_0400_1f9a_dd37),
            // The first second of the next era, 2036-02-07 06:28:16.
            (2_085_978_496_000_000_000, 0),
        ] {
            assert_eq!(NtpTime::from_unix_ns(unix_ns), NtpTime(bits), "{unix_ns}");
        }
        assert_eq!(ErrorEstimate(0x4001).read(0x6774_8580_075b_cd15), Some(NtpTime(0xeb1f_0400_1f9a_dd37)));
        assert_eq!(ErrorEstimate(0x4001).read(0x6774_8580_3b9a_ca00), None, "a whole second of nanoseconds");
    }

    #[test]
    fn differences_are_exact_to_the_nanosecond() {
        let era = 2_085_978_496_000_000_000;
        for start in [0, 1_735_689_600_123_456_789, era - 7] {
            for difference in [0, 1, -1, 17, 999_999_999, -3_600_000_000_001, 1_234_567_890_123_456_789] {
                let (from, to) = (NtpTime::from_unix_ns(start), NtpTime::from_unix_ns(start + difference));
                assert_eq!(i128::from(to.since(from)), difference, "from {start}");
            }
        }
    }

    #[test]
    fn clock_and_wall_clock_convert_both_ways() {
        let wall = WallClock { clock_time: Time(1_000), unix_ns: 1_735_689_600_123_456_789 };
        assert_eq!(wall.ntp_at(Time(1_000)), NtpTime(0xeb1f_0400_1f9a_dd37));
        for at in [0, 999, 1_000, 123_456_789_012] {
            assert_eq!(wall.clock_ns_of(wall.ntp_at(Time(at))), at as i64);
            assert_eq!(wall.clock_ns_of_unix(wall.unix_ns_at(Time(at)) as i64), at as i64);
        }
    }

    #[test]
    fn errors_are_stated_and_never_too_small() {
        assert_eq!(ErrorEstimate::from_error_ns(Some(1_953_125)), ErrorEstimate(0x9080));
        assert_eq!(ErrorEstimate::from_error_ns(None), ErrorEstimate::UNKNOWN);
        for error_ns in [0, 1, 59, 60, 1_000, 250_101, 16_000_000_000, 1 << 40, u64::MAX] {
            let estimate = ErrorEstimate::from_error_ns(Some(error_ns));
            assert!(estimate.is_valid() && estimate.is_synchronised() && !estimate.is_ptp(), "{error_ns}");
            let share = estimate.seconds() * 1e9 / error_ns.max(1) as f64;
            // The unit is a quarter of a nanosecond.
            assert!(share >= 1.0 && (share < 1.01 || error_ns < 59), "{error_ns}: {share}");
        }
    }

    #[test]
    fn errors_are_read() {
        let known = ErrorEstimate(0x8a05);
        assert!(known.is_synchronised() && !known.is_ptp() && known.is_valid());
        assert!((known.seconds() - 1.192e-6).abs() < 1e-9);
        assert!(!ErrorEstimate(0x0100).is_valid());
        assert!(!ErrorEstimate::UNKNOWN.is_synchronised() && ErrorEstimate::UNKNOWN.seconds() > 1e11);
    }
}
