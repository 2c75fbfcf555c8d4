//! Restores what was known before a restart.

use super::super::condition::{Condition, ConditionDetails};
use super::super::level::{LEVEL_WINDOW_S, MAX_LEVEL_WINDOWS};
use super::WatchState;
use linkgauge_store::{Incident, SeriesNumber, Store, StoreError, TIERS};

/// The kind of the incident that holds the learnt p99 in ns.
pub(super) const LEARNT: &str = "learnt";

/// The kinds of incidents for the begin and the end of an alarm, with its rule as text, and for a new level, with both levels in ns.
pub(super) const ALARM: &str = "alarm";
pub(super) const CLEAR: &str = "clear";
pub(super) const LEVEL: &str = "level";

/// The kinds of incidents for the begin of an outage, with its reason, for a reason that became known later, and for its end.
pub(super) const DOWN: &str = "down";
pub(super) const REASON: &str = "reason";
pub(super) const UP: &str = "up";

/// The limit of slow replies stays the one that was learnt at first, alarms and outages that were on can end, and the level of the
/// median is compared with that of the last hours.
pub(super) fn from_store(
    state: &mut WatchState,
    store: &Store,
    series: SeriesNumber,
) -> Result<(), StoreError> {
    let learnt = store.latest_incident(series, LEARNT, None)?.and_then(|incident| incident.text.parse().ok());
    for alert in &mut state.alerts {
        if let Some(limit_ns) = learnt {
            alert.set_learnt(limit_ns);
        }
        if let Some(began) = unended(store, series, (ALARM, CLEAR), Some(&alert.rule.text))? {
            alert.resume_raised(began.at);
        }
    }
    if let Some(began) = unended(store, series, (DOWN, UP), None)? {
        let reason = Some(began.text);
        state.outage.resume(began.at, ConditionDetails { reason, ..ConditionDetails::default() });
    }
    resume_missed(&mut state.missed, store, series)?;
    let shift =
        store.latest_incident(series, LEVEL, None)?.map_or(i64::MIN, |incident| incident.at.as_second());
    let Some(last) = store.last_window(series, TIERS[1])? else { return Ok(()) };
    let from = shift.max(last - LEVEL_WINDOW_S * MAX_LEVEL_WINDOWS as i64);
    let windows = store.windows(series, TIERS[1], from, i64::MAX)?;
    state.level.resume(windows.into_iter().map(|stored| (stored.start, stored.window)));
    Ok(())
}

/// The kinds of incidents of tests that missed and met their thresholds, with the first one missed as text.
pub(super) const MISSED: &str = "missed";
pub(super) const MET: &str = "met";

fn resume_missed(missed: &mut Condition, store: &Store, series: SeriesNumber) -> Result<(), StoreError> {
    if let Some(began) = unended(store, series, (MISSED, MET), None)? {
        let rule = Some(began.text);
        missed.resume(began.at, ConditionDetails { rule, ..ConditionDetails::default() });
    }
    Ok(())
}

/// The latest incident of the first kind, unless one of the second kind followed.
fn unended(
    store: &Store,
    series: SeriesNumber,
    (begin, end): (&str, &str),
    text: Option<&str>,
) -> Result<Option<Incident>, StoreError> {
    let ended = store.latest_incident(series, end, text)?.map(|incident| incident.at);
    let began = store.latest_incident(series, begin, text)?;
    Ok(began.filter(|began| ended.is_none_or(|at| at < began.at)))
}
