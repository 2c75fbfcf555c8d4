//! The wall clock of a monitor: aligned windows, quiet hours, and what disturbs the clock.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::civil::Time as CivilTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use linkgauge_model::clock::{Clock, Time, wall_clock_date};

/// Length of a slice of probes. Slices end at multiples of it on the wall clock; alarms are evaluated after each.
pub const SLICE: Duration = Duration::from_secs(10);

/// A wall clock that moves by more than this beside the monotonic one was set.
const MAX_SLEWED: SignedDuration = SignedDuration::from_secs(1);

/// The machine was suspended if it slept for longer than this.
const MIN_SUSPENDED: Duration = Duration::from_millis(100);

/// The clocks at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockSnapshot {
    /// Stands still while the machine is suspended.
    pub(crate) monotonic: Time,
    /// The date.
    pub wall: Timestamp,
    /// Time since the start of the machine in which it was suspended.
    suspended: Duration,
}

/// Change of the clocks between two moments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockChange {
    /// The machine was suspended for this time.
    Suspended(Duration),
    /// The wall clock was set, forward or back.
    Set(SignedDuration),
}

/// The clocks of a monitor.
#[derive(Debug, Clone)]
pub struct Calendar {
    clock: Clock,
    /// The date at the origin of a virtual clock.
    origin: Timestamp,
    disturbance: Arc<Mutex<Disturbance>>,
}

/// Change of the wall clock of a virtual machine.
#[derive(Debug, Default)]
struct Disturbance {
    set: SignedDuration,
    suspended: Duration,
}

impl Calendar {
    /// The clocks of this machine, or a virtual one that starts at a date.
    pub fn new(clock: Clock, origin: Timestamp) -> Calendar {
        Calendar { clock, origin, disturbance: Arc::default() }
    }

    /// Sets the wall clock of a virtual machine forward or back, in simulations.
    pub fn set_virtual_wall(&self, by: SignedDuration) {
        self.disturbance.lock().unwrap_or_else(PoisonError::into_inner).set += by;
    }

    /// Suspends a virtual machine for this time, in simulations: only the wall clock goes on.
    pub fn suspend_virtual_machine(&self, time: Duration) {
        self.disturbance.lock().unwrap_or_else(PoisonError::into_inner).suspended += time;
    }

    /// The clocks now.
    pub fn now(&self) -> ClockSnapshot {
        let monotonic = self.clock.now();
        match self.clock {
            Clock::Virtual(_) => {
                let elapsed = SignedDuration::from_nanos(i64::try_from(monotonic.0).unwrap_or(i64::MAX));
                let disturbance = self.disturbance.lock().unwrap_or_else(PoisonError::into_inner);
                let suspended = disturbance.suspended;
                let away = disturbance.set + SignedDuration::try_from(suspended).unwrap_or_default();
                let wall = self.origin.checked_add(elapsed + away).unwrap_or(Timestamp::MAX);
                ClockSnapshot { monotonic, wall, suspended }
            }
            Clock::System => {
                let boot = Time(linkgauge_system::monotonic_ns_with_sleep());
                ClockSnapshot { monotonic, wall: wall_clock_date(), suspended: boot.since(monotonic) }
            }
        }
    }
}

impl ClockSnapshot {
    /// The date in whole seconds since 1970.
    pub(crate) fn second(&self) -> i64 {
        self.wall.as_second()
    }

    /// Change of the clocks since an earlier moment, if there was one.
    pub(crate) fn change_since(&self, earlier: &ClockSnapshot) -> Option<ClockChange> {
        let suspended = self.suspended.saturating_sub(earlier.suspended);
        if suspended >= MIN_SUSPENDED {
            return Some(ClockChange::Suspended(suspended));
        }
        let elapsed = SignedDuration::try_from(self.monotonic.since(earlier.monotonic));
        let set = self.wall.duration_since(earlier.wall) - elapsed.unwrap_or(SignedDuration::MAX);
        (set.abs() > MAX_SLEWED).then_some(ClockChange::Set(set))
    }

    /// Clocks at this moment with a wall clock that was set forward or back by `by`.
    pub(crate) fn shifted(self, by: SignedDuration) -> ClockSnapshot {
        ClockSnapshot { wall: self.wall.checked_add(by).unwrap_or(self.wall), ..self }
    }

    /// Time until the wall clock reaches the next multiple of a period.
    pub(crate) fn until_next(&self, period: Duration) -> Duration {
        let nanoseconds = self.wall.as_nanosecond().rem_euclid(period.as_nanos().max(1) as i128);
        period.saturating_sub(Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(0)))
    }
}

/// Hours of a day without measurements: `22:00-06:00`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuietHours {
    from: CivilTime,
    to: CivilTime,
}

/// The error in the text of quiet hours.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' are no quiet hours. Write them like 22:00-06:00")]
pub struct InvalidQuietHours(String);

impl std::str::FromStr for QuietHours {
    type Err = InvalidQuietHours;

    fn from_str(text: &str) -> Result<QuietHours, InvalidQuietHours> {
        let time = |text: &str| {
            let (hour, minute) = text.trim().split_once(':')?;
            CivilTime::new(hour.parse().ok()?, minute.parse().ok()?, 0, 0).ok()
        };
        let (from, to) = text.split_once('-').ok_or_else(|| InvalidQuietHours(text.to_owned()))?;
        match (time(from), time(to)) {
            (Some(from), Some(to)) if from != to => Ok(QuietHours { from, to }),
            _ => Err(InvalidQuietHours(text.to_owned())),
        }
    }
}

impl std::fmt::Display for QuietHours {
    fn fmt(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        let [from, to] = [self.from, self.to].map(|time| (time.hour(), time.minute()));
        write!(formatter, "{:02}:{:02}-{:02}:{:02}", from.0, from.1, to.0, to.1)
    }
}

impl QuietHours {
    /// Whether a date is in these hours of its day.
    pub(crate) fn contain(&self, at: Timestamp, zone: &TimeZone) -> bool {
        self.contain_time(at.to_zoned(zone.clone()).time())
    }

    fn contain_time(&self, time: CivilTime) -> bool {
        if self.from < self.to {
            self.from <= time && time < self.to
        } else {
            self.from <= time || time < self.to
        }
    }
}

/// Whether these hours leave no time of a day.
pub(crate) fn cover_whole_day(hours: &[QuietHours]) -> bool {
    // Hours begin and end at whole minutes.
    let minutes = (0..24).flat_map(|hour| (0..60).map(move |minute| CivilTime::constant(hour, minute, 0, 0)));
    !hours.is_empty() && minutes.into_iter().all(|time| hours.iter().any(|quiet| quiet.contain_time(time)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(monotonic_s: u64, wall_s: i64, suspended_s: u64) -> ClockSnapshot {
        ClockSnapshot {
            monotonic: Time(monotonic_s * 1_000_000_000),
            wall: Timestamp::from_second(wall_s).unwrap(),
            suspended: Duration::from_secs(suspended_s),
        }
    }

    #[test]
    fn a_set_clock_and_a_suspended_machine_differ() {
        let before = moment(100, 1_000, 0);
        assert_eq!(moment(110, 1_010, 0).change_since(&before), None);
        assert_eq!(
            moment(110, 1_310, 300).change_since(&before),
            Some(ClockChange::Suspended(Duration::from_secs(300)))
        );
        let set = |by| Some(ClockChange::Set(SignedDuration::from_secs(by)));
        assert_eq!(moment(110, 4_610, 0).change_since(&before), set(3600));
        assert_eq!(moment(110, 910, 0).change_since(&before), set(-100));
    }

    #[test]
    fn windows_begin_at_multiples_of_their_length() {
        let ten = Duration::from_secs(10);
        assert_eq!(moment(0, 1_003, 0).until_next(ten), Duration::from_secs(7));
        assert_eq!(moment(0, 1_000, 0).until_next(ten), ten);
    }

    #[test]
    fn quiet_hours_may_pass_midnight() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let night: QuietHours = "22:00-06:30".parse().unwrap();
        let inside = ["2026-11-22T22:00:00Z", "2026-11-22T03:00:00Z"]
            .map(|date| night.contain(at(date), &TimeZone::UTC));
        let outside = ["2026-11-22T21:59:59Z", "2026-11-22T06:30:00Z"]
            .map(|date| night.contain(at(date), &TimeZone::UTC));
        assert_eq!((inside, outside), ([true; 2], [false; 2]));
        let noon: QuietHours = "12:00-13:00".parse().unwrap();
        assert!(noon.contain(at("2026-11-22T12:30:00Z"), &TimeZone::UTC));
        for wrong in ["", "22-6", "22:00", "25:00-06:00", "06:00-06:00", "a:b-c:d"] {
            assert!(wrong.parse::<QuietHours>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_virtual_clock_has_a_date() {
        let clock = Clock::new_virtual();
        let calendar = Calendar::new(clock.clone(), Timestamp::from_second(1_000).unwrap());
        clock.sleep_until(Time(5_000_000_000));
        assert_eq!(calendar.now().second(), 1_005);
        let before = calendar.now();
        calendar.clone().set_virtual_wall(SignedDuration::from_secs(-60));
        let change = calendar.now().change_since(&before);
        assert_eq!(change, Some(ClockChange::Set(SignedDuration::from_secs(-60))));
        let before = calendar.now();
        calendar.suspend_virtual_machine(Duration::from_secs(30));
        let change = calendar.now().change_since(&before);
        assert_eq!(change, Some(ClockChange::Suspended(Duration::from_secs(30))));
        assert_eq!(calendar.now().second(), 975);
        assert!(Calendar::new(Clock::System, Timestamp::UNIX_EPOCH).now().second() > 1_600_000_000);
    }
}
