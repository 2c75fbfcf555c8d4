//! The clock of a logger.

const SECOND_NS: i64 = 1_000_000_000;

/// A time of a logger's clock since the start of 1990, or a duration. Both parts have the sign of a duration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LoggerTime {
    /// Whole seconds.
    pub seconds: i32,
    /// Nanoseconds beyond the whole seconds.
    pub nanoseconds: i32,
}

impl LoggerTime {
    /// Returns the time that is this many nanoseconds after the start of 1990; clamped to the range of 32-bit seconds.
    pub fn from_nanoseconds(nanoseconds: i64) -> LoggerTime {
        let seconds = nanoseconds.div_euclid(SECOND_NS).clamp(i32::MIN.into(), i32::MAX.into());
        LoggerTime { seconds: seconds as i32, nanoseconds: nanoseconds.rem_euclid(SECOND_NS) as i32 }
    }

    /// Total number of nanoseconds. Some loggers send more than 10⁹ nanoseconds; they are added unchanged.
    pub fn as_nanoseconds(self) -> i64 {
        i64::from(self.seconds) * SECOND_NS + i64::from(self.nanoseconds)
    }
}
