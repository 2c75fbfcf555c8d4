//! Replay of an alarm rule on the stored history of a link: when it would have fired, and how often without an outage near it.
//!
//! Windows hold the number of bad probes, not their places, so these are drawn at random, with the same result each time.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::super::alert::{Alert, Transition};
use super::resume::{DOWN, LEARNT, UP};
use linkgauge_model::sample::Window;
use linkgauge_model::stats::SplitMix64;
use linkgauge_store::{Incident, SeriesNumber, Store, StoreError, StoredWindow, TIERS};

/// An outage this close to an alarm may be its reason.
const NEAR: SignedDuration = SignedDuration::from_mins(10);

/// Alarm that a rule would have raised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplayedAlarm {
    /// Begin of the alarm, to the length of a stored window.
    pub began: Timestamp,
    /// End of the alarm; `None`: it is on at the end of the history.
    pub ended: Option<Timestamp>,
    /// Whether the link was down within ten minutes (or the length of a window) of it.
    pub is_near_outage: bool,
}

/// What a rule would have done on a history.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Replay {
    /// Time in which probes were due.
    pub measured: Duration,
    /// The alarms, in order of time.
    pub alarms: Vec<ReplayedAlarm>,
}

impl Replay {
    /// Replays an alert on the history of a link since then. `None`: the store has none.
    ///
    /// # Errors
    ///
    /// The store cannot be read.
    pub fn of(
        mut alert: Alert,
        store: &Store,
        link: &str,
        since: Timestamp,
    ) -> Result<Option<Replay>, StoreError> {
        let Some(series) = store.find_series(link)? else { return Ok(None) };
        let windows = stored_windows(store, series, since.as_second())?;
        if windows.is_empty() {
            return Ok(None);
        }
        let learnt = store.latest_incident(series, LEARNT, None)?;
        if let Some(limit_ns) = learnt.and_then(|incident| incident.text.parse().ok()) {
            alert.set_learnt(limit_ns);
        }
        let outages = outages(&store.incidents(series, usize::MAX)?);
        Ok(Some(replay(&mut alert, &windows, &outages)))
    }

    /// Alarms without an outage near them.
    pub fn without_outage(&self) -> usize {
        self.alarms.iter().filter(|alarm| !alarm.is_near_outage).count()
    }
}

/// The windows since a second with their lengths, oldest first: of each time the shortest that are kept.
fn stored_windows(
    store: &Store,
    series: SeriesNumber,
    since: i64,
) -> Result<Vec<(i64, StoredWindow)>, StoreError> {
    let (mut windows, mut until) = (Vec::new(), i64::MAX);
    for tier in TIERS {
        let mut found = store.windows(series, tier, since, until)?;
        found.retain(|stored| stored.start <= until - tier.length);
        until = found.first().map_or(until, |first| first.start);
        windows.splice(0..0, found.into_iter().map(|stored| (tier.length, stored)));
    }
    Ok(windows)
}

/// Begin and end of each outage, from incidents that are listed latest first.
fn outages(incidents: &[Incident]) -> Vec<(Timestamp, Timestamp)> {
    let mut end = Timestamp::MAX;
    let mut outages = Vec::new();
    for incident in incidents {
        match incident.kind.as_str() {
            UP => end = incident.at,
            DOWN => outages.push((incident.at, end)),
            _ => (),
        }
    }
    outages
}

fn replay(alert: &mut Alert, windows: &[(i64, StoredWindow)], outages: &[(Timestamp, Timestamp)]) -> Replay {
    let mut replay = Replay::default();
    let (mut measured, mut random) = (Window::default(), SplitMix64::new(1));
    for (length, StoredWindow { start, window }) in windows {
        replay.measured += Duration::from_millis(window.counts.measured_ms);
        let Some(limit_ns) = alert.limit_ns() else {
            measured.merge(window);
            alert.learn(&measured);
            continue;
        };
        let all = window.replies() + window.counts.lost;
        let mut bad = all - window.replies_within(limit_ns);
        for place in 0..all {
            if bad == 0 && alert.is_at_rest() {
                break;
            }
            let is_bad = random.uniform() * ((all - place) as f64) < bad as f64;
            bad -= u64::from(is_bad);
            let after = SignedDuration::from_secs_f64(*length as f64 * place as f64 / all as f64);
            let at = Timestamp::from_second(*start).unwrap_or_default() + after;
            match (alert.record((!is_bad).then_some(0)), replay.alarms.last_mut()) {
                (Some(Transition::Raised), _) => {
                    let near = NEAR.max(SignedDuration::from_secs(*length));
                    let is_near = |(begin, end): &(Timestamp, Timestamp)| {
                        at.duration_since(*begin) >= -near && at.duration_since(*end) <= near
                    };
                    let is_near_outage = outages.iter().any(is_near);
                    replay.alarms.push(ReplayedAlarm { began: at, ended: None, is_near_outage });
                }
                (Some(Transition::Cleared), Some(alarm)) => alarm.ended = Some(at),
                _ => (),
            }
        }
    }
    replay
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3600;

    fn alert(rule: &str) -> Alert {
        Alert::new(rule.parse().unwrap(), 1.0).unwrap()
    }

    fn minute(good: usize, lost: u64) -> Window {
        Window::of_probes(&vec![1_000_000; good], lost)
    }

    /// A day of good minutes, with an outage at 5 h and losses of 20 % at 12 h, both for ten minutes.
    fn store() -> (tempfile::TempDir, Store) {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open(&folder.path().join("runs.sqlite")).unwrap();
        let series = store.series("a", "mem://a").unwrap();
        let windows: Vec<(i64, Window)> = (0..24 * 60)
            .map(|number| match number {
                300..310 => (60 * number, minute(0, 60)),
                720..730 => (60 * number, minute(48, 12)),
                _ => (60 * number, minute(60, 0)),
            })
            .collect();
        store.add_windows(windows.iter().map(|(second, window)| (series, *second, window))).unwrap();
        for (kind, second) in [(DOWN, 5 * HOUR + 2), (UP, 5 * HOUR + 600)] {
            let at = Timestamp::from_second(second).unwrap();
            let incident = Incident { at, kind: kind.to_owned(), text: String::new() };
            store.add_incident(series, &incident).unwrap();
        }
        (folder, store)
    }

    fn begins(replay: &Replay) -> Vec<(i64, bool)> {
        replay.alarms.iter().map(|alarm| (alarm.began.as_second() / 600, alarm.is_near_outage)).collect()
    }

    #[test]
    fn an_alarm_is_near_an_outage_or_not() {
        let (_folder, store) = store();
        let replay = Replay::of(alert("loss > 5 %"), &store, "a", Timestamp::UNIX_EPOCH).unwrap().unwrap();
        assert_eq!(begins(&replay), [(30, true), (72, false)]);
        assert_eq!(replay.without_outage(), 1);
        assert!(replay.alarms.iter().all(|alarm| alarm.ended.is_some()), "{replay:?}");
        let later = Timestamp::from_second(6 * HOUR).unwrap();
        let since = Replay::of(alert("loss > 5 %"), &store, "a", later).unwrap().unwrap();
        assert_eq!(begins(&since), [(72, false)], "only since then");
        let rare = Replay::of(alert("loss > 60 %"), &store, "a", Timestamp::UNIX_EPOCH).unwrap().unwrap();
        assert_eq!(begins(&rare), [(30, true)]);
    }

    #[test]
    fn a_link_without_history_is_none() {
        let (_folder, store) = store();
        assert_eq!(Replay::of(alert("loss > 5 %"), &store, "b", Timestamp::UNIX_EPOCH).unwrap(), None);
        let late = Timestamp::from_second(25 * HOUR).unwrap();
        assert_eq!(Replay::of(alert("loss > 5 %"), &store, "a", late).unwrap(), None);
    }

    #[test]
    fn longer_windows_are_used_where_the_short_ones_are_gone() {
        let (_folder, mut store) = store();
        store.remove_old_windows(TIERS[0].kept + 12 * HOUR).unwrap();
        let series = store.find_series("a").unwrap().unwrap();
        let windows = stored_windows(&store, series, 0).unwrap();
        assert_eq!(windows.first().map(|(length, window)| (*length, window.start)), Some((600, 0)));
        assert_eq!(windows.last().map(|(length, _)| *length), Some(60));
        assert!(windows.is_sorted_by_key(|(_, window)| window.start));
        let replay = Replay::of(alert("loss > 5 %"), &store, "a", Timestamp::UNIX_EPOCH).unwrap().unwrap();
        assert_eq!(begins(&replay), [(30, true), (72, false)]);
    }

    #[test]
    fn a_learnt_limit_is_that_of_the_monitor() {
        let (_folder, mut store) = store();
        let series = store.find_series("a").unwrap().unwrap();
        let slow = Window::of_probes(&[50_000_000; 60], 0);
        store.add_windows((0..10).map(|number| (series, 20 * HOUR + 60 * number, &slow))).unwrap();
        let late = |store: &Store| {
            let replay = Replay::of(alert("late p99 > 10 %"), store, "a", Timestamp::UNIX_EPOCH).unwrap();
            begins(&replay.unwrap())
        };
        assert_eq!(late(&store), [(30, true), (72, false), (120, false)], "learnt from the first replies");
        let learnt =
            Incident { at: Timestamp::UNIX_EPOCH, kind: LEARNT.to_owned(), text: "60000000".to_owned() };
        store.add_incident(series, &learnt).unwrap();
        assert_eq!(late(&store), [(30, true), (72, false)]);
    }
}
