//! The time of day of a host, and its largest error: both ends of a session compare their clocks by it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Facts;
use super::ptp::{self, PtpClock};
use linkgauge_model::clock::Clock;
use linkgauge_system::{self as system, ClockState};

/// Readings of both clocks, of which the fastest counts.
const READINGS: usize = 50;

/// The time of day against the clock of the measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeOfDay {
    /// Nanoseconds since 1970 minus those of the measuring clock.
    pub offset_ns: i64,
    /// The largest error in nanoseconds. Absent: no program keeps the clock of this host synchronised.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error_ns: Option<u64>,
    /// The PTP clock that it follows. Absent: none, or this program may not read it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ptp: Option<PtpClock>,
}

impl TimeOfDay {
    /// Time of day of this host, now. `None` on the virtual clock.
    pub fn read(clock: &Clock) -> Option<TimeOfDay> {
        if matches!(clock, Clock::Virtual(_)) {
            return None;
        }
        let bounds = offset_bounds(clock);
        let state = system::clock_state().filter(|state| state.is_synchronised);
        let ptp = state.and_then(|state| ptp::followed_clock(state.tai_offset_s));
        Some(TimeOfDay::from_states(bounds, state, ptp))
    }

    /// Makes a time of day from the bounds of the offset, the state of a synchronised clock, and the PTP clock that it follows.
    /// phc2sys states no error of its own, so the distance from that clock is the smallest possible error.
    fn from_states((low, high): (i64, i64), state: Option<ClockState>, ptp: Option<PtpClock>) -> TimeOfDay {
        let half_window_ns = (high - low).unsigned_abs().div_ceil(2);
        let error_ns = state.map(|state| {
            let stated_ns = state.max_error_us.saturating_mul(1000);
            let distance_ns = ptp.map_or(0, |clock| clock.distance_ns);
            stated_ns.max(distance_ns).saturating_add(half_window_ns)
        });
        TimeOfDay { offset_ns: low + (high - low) / 2, error_ns, ptp }
    }

    /// The largest error and how it is known, for the document: `ptp0` for that PTP clock, `adjtimex` for the state of the kernel
    /// alone. `prefix`: that of the names.
    pub fn facts(&self, prefix: &str) -> Facts {
        let source =
            || self.ptp.map_or_else(|| "adjtimex".to_owned(), |clock| format!("ptp{}", clock.number));
        let error = self.error_ns.map_or_else(|| "not synchronised".into(), Value::from);
        let source = self.error_ns.map(|_| source().into());
        let facts = [("clock_error_ns", Some(error)), ("clock_synchronised_by", source)];
        facts.into_iter().filter_map(|(name, fact)| Some((format!("{prefix}{name}"), fact?))).collect()
    }

    /// The offset of the measuring clocks of two hosts, remote minus local, and its largest error; both in nanoseconds. `None`
    /// unless both hosts know theirs.
    pub(crate) fn offset_of(&self, remote: &TimeOfDay) -> Option<(i64, u64)> {
        let error_ns = self.error_ns?.checked_add(remote.error_ns?)?;
        Some((self.offset_ns.checked_sub(remote.offset_ns)?, error_ns))
    }
}

/// The bounds of the time of day minus our time, in nanoseconds: of the fastest of many readings.
pub(crate) fn offset_bounds(clock: &Clock) -> (i64, i64) {
    let readings = std::iter::repeat_with(|| read_offset_bounds(clock)).take(READINGS);
    readings.min_by_key(|(low, high)| high - low).expect("there are readings")
}

/// The bounds of the time of day minus our time, in nanoseconds: of one reading.
pub(super) fn read_offset_bounds(clock: &Clock) -> (i64, i64) {
    let before = clock.now().0 as i64;
    let wall_ns = system::wall_ns();
    let after = clock.now().0 as i64;
    (wall_ns - after, wall_ns - before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_hosts_with_common_time_know_the_offset_of_their_clocks() {
        // This host was started 5 s before the other one.
        let local = TimeOfDay { offset_ns: 1_000_000_000_000, error_ns: Some(300_000), ptp: None };
        let remote = TimeOfDay { offset_ns: 1_005_000_000_000, error_ns: Some(200_000), ptp: None };
        assert_eq!(local.offset_of(&remote), Some((-5_000_000_000, 500_000)));
        assert_eq!(local.offset_of(&TimeOfDay { error_ns: None, ..remote }), None);
        assert_eq!(TimeOfDay { error_ns: Some(u64::MAX), ..local }.offset_of(&remote), None);
        let own = TimeOfDay::read(&Clock::System).unwrap();
        assert!(own.offset_ns.abs_diff(TimeOfDay::read(&Clock::System).unwrap().offset_ns) < 1_000_000);
        assert_eq!(TimeOfDay::read(&Clock::new_virtual()), None);
    }

    #[test]
    fn the_error_is_the_stated_one_or_the_distance_from_a_ptp_clock() {
        let bounds = (999_999_900, 1_000_000_101);
        let state = |max_error_us| ClockState { is_synchronised: true, max_error_us, tai_offset_s: 37 };
        let ptp = Some(PtpClock { number: 1, distance_ns: 700 });
        for (state, ptp, error_ns, source) in [
            (None, None, None, None),
            (Some(state(250)), None, Some(250_101), Some("adjtimex")),
            (Some(state(0)), ptp, Some(801), Some("ptp1")),
            (Some(state(3)), ptp, Some(3_101), Some("ptp1")),
            (Some(state(u64::MAX)), None, Some(u64::MAX), Some("adjtimex")),
        ] {
            let time = TimeOfDay::from_states(bounds, state, ptp);
            assert_eq!((time.offset_ns, time.error_ns), (1_000_000_000, error_ns));
            let facts = time.facts("server_");
            assert_eq!(facts.get("server_clock_synchronised_by").and_then(Value::as_str), source);
            assert!(facts["server_clock_error_ns"].is_u64() == source.is_some(), "{facts:?}");
            // An older program reports no PTP clock.
            let sent = serde_json::to_string(&TimeOfDay { ptp: None, ..time }).unwrap();
            assert!(!sent.contains("ptp"), "{sent}");
            assert_eq!(serde_json::from_str::<TimeOfDay>(&sent).unwrap(), TimeOfDay { ptp: None, ..time });
        }
    }
}
