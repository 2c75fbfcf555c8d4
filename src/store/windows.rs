//! The windows of watched links, in tiers: minutes for days, hours for years.
//!
//! A window is merged into one row of every tier in one transaction. So a killed process leaves every tier complete, and
//! each percentile of a long window is that of all its probes.

use jiff::Timestamp;
use rusqlite::{OptionalExtension, Row, Transaction, params};

use super::{Store, StoreError};
use crate::sample::{Window, WindowCounts};

/// A tier: the length of its windows and the time for which they are kept, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tier {
    /// Length of a window.
    pub length: i64,
    /// Older windows are removed.
    pub kept: i64,
}

const DAY: i64 = 86_400;

/// The tiers, shortest first.
pub const TIERS: [Tier; 3] = [
    Tier { length: 60, kept: 14 * DAY },
    Tier { length: 600, kept: 90 * DAY },
    Tier { length: 3600, kept: 2 * 366 * DAY },
];

impl Tier {
    /// The start of the window of this tier that contains a time, in seconds since 1970.
    pub fn start(self, second: i64) -> i64 {
        second - second.rem_euclid(self.length)
    }
}

/// They are made when the first link is watched, so a store without them is complete, too.
const CREATE_WINDOW_TABLES_SQL: &str = "
    CREATE TABLE IF NOT EXISTS series (
        number INTEGER PRIMARY KEY,
        name TEXT NOT NULL UNIQUE,
        endpoint TEXT NOT NULL
    );
    CREATE TABLE IF NOT EXISTS window (
        series INTEGER NOT NULL REFERENCES series ON DELETE CASCADE,
        length INTEGER NOT NULL,
        start INTEGER NOT NULL,
        measured_ms INTEGER NOT NULL,
        due INTEGER NOT NULL,
        lost INTEGER NOT NULL,
        corrupt INTEGER NOT NULL,
        down_ms INTEGER NOT NULL,
        times BLOB NOT NULL,
        PRIMARY KEY (series, length, start)
    ) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS incident (
        series INTEGER NOT NULL REFERENCES series ON DELETE CASCADE,
        at_us INTEGER NOT NULL,
        kind TEXT NOT NULL,
        text TEXT NOT NULL,
        PRIMARY KEY (series, at_us, kind)
    ) WITHOUT ROWID;
";

/// A window of a series.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredWindow {
    /// Begin, in seconds since 1970.
    pub start: i64,
    /// What was measured.
    pub window: Window,
}

/// Something that happened to a watched link, or to the monitor.
#[derive(Debug, Clone, PartialEq)]
pub struct Incident {
    /// When.
    pub at: Timestamp,
    /// A word for programs: `alarm`, `clear`, `clock`, `start`, `stop`.
    pub kind: String,
    /// What happened, for people.
    pub text: String,
}

/// The number of a series in one store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeriesNumber(i64);

impl Store {
    /// The series of this name, created if necessary.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn series(&mut self, name: &str, endpoint: &str) -> Result<SeriesNumber, StoreError> {
        let transaction = self.begin_write("written")?;
        transaction
            .execute_batch(CREATE_WINDOW_TABLES_SQL)
            .map_err(|error| self.store_error("written", error))?;
        let insert = "INSERT INTO series (name, endpoint) VALUES (?1, ?2)
            ON CONFLICT (name) DO UPDATE SET endpoint = ?2 RETURNING number";
        let number = transaction.query_row(insert, [name, endpoint], |row| row.get(0));
        let number = number.map_err(|error| self.store_error("written", error))?;
        self.commit(transaction, "written")?;
        Ok(SeriesNumber(number))
    }

    /// Adds windows to those of all tiers that contain the second at which they begin.
    ///
    /// # Errors
    ///
    /// The file cannot be written; then nothing has changed.
    pub fn add_windows<'a>(
        &mut self,
        windows: impl IntoIterator<Item = (SeriesNumber, i64, &'a Window)>,
    ) -> Result<(), StoreError> {
        let transaction = self.begin_write("written")?;
        for (series, second, window) in windows {
            for tier in TIERS {
                merge_row(&transaction, (series.0, tier.length, tier.start(second)), window)
                    .map_err(|error| self.store_error("written", error))?;
            }
        }
        self.commit(transaction, "written")
    }

    /// The windows of a tier from one second to another, oldest first. Windows that cannot be read are left out.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn windows(
        &self,
        series: SeriesNumber,
        tier: Tier,
        from: i64,
        to: i64,
    ) -> Result<Vec<StoredWindow>, StoreError> {
        let read = || {
            let mut statement = self.connection.prepare(
                "SELECT start, measured_ms, due, lost, corrupt, down_ms, times FROM window
                    WHERE series = ?1 AND length = ?2 AND start >= ?3 AND start < ?4 ORDER BY start",
            )?;
            let rows = statement.query_map(params![series.0, tier.length, from, to], |row| {
                Ok(read_window(row, 1)?.map(|window| StoredWindow { start: row.get_unwrap(0), window }))
            })?;
            rows.filter_map(Result::transpose).collect()
        };
        self.retry_while_locked("read", read)
    }

    /// Notes an incident. A second one of the same kind and time replaces the first.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn add_incident(&mut self, series: SeriesNumber, incident: &Incident) -> Result<(), StoreError> {
        let transaction = self.begin_write("written")?;
        let insert = "INSERT OR REPLACE INTO incident (series, at_us, kind, text) VALUES (?1, ?2, ?3, ?4)";
        transaction
            .execute(insert, params![series.0, incident.at.as_microsecond(), incident.kind, incident.text])
            .map_err(|error| self.store_error("written", error))?;
        self.commit(transaction, "written")
    }

    /// The latest incidents of a series, latest first.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn incidents(&self, series: SeriesNumber, limit: usize) -> Result<Vec<Incident>, StoreError> {
        let read = || {
            let mut statement = self.connection.prepare(
                "SELECT at_us, kind, text FROM incident WHERE series = ?1 ORDER BY at_us DESC LIMIT ?2",
            )?;
            let rows =
                statement.query_map(params![series.0, i64::try_from(limit).unwrap_or(i64::MAX)], |row| {
                    let at = Timestamp::from_microsecond(row.get(0)?).unwrap_or(Timestamp::UNIX_EPOCH);
                    Ok(Incident { at, kind: row.get(1)?, text: row.get(2)? })
                })?;
            rows.collect()
        };
        self.retry_while_locked("read", read)
    }

    /// The latest incident of a kind.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn latest_incident(&self, series: SeriesNumber, kind: &str) -> Result<Option<Incident>, StoreError> {
        Ok(self.incidents(series, usize::MAX)?.into_iter().find(|incident| incident.kind == kind))
    }

    /// Removes windows that are older than their tier keeps, some thousands at most; returns how many.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn remove_old_windows(&mut self, now: i64) -> Result<usize, StoreError> {
        let transaction = self.begin_write("written")?;
        let mut removed = 0;
        for tier in TIERS {
            let delete = "DELETE FROM window WHERE (series, length, start) IN
                (SELECT series, length, start FROM window WHERE length = ?1 AND start < ?2 LIMIT 1000)";
            removed += transaction
                .execute(delete, params![tier.length, now - tier.kept])
                .map_err(|error| self.store_error("written", error))?;
        }
        self.commit(transaction, "written")?;
        Ok(removed)
    }
}

/// The place of a window: series, length, start.
type Place = (i64, i64, i64);

fn merge_row(transaction: &Transaction, place: Place, window: &Window) -> rusqlite::Result<()> {
    let (series, length, start) = place;
    let select = "SELECT measured_ms, due, lost, corrupt, down_ms, times FROM window
        WHERE series = ?1 AND length = ?2 AND start = ?3";
    let stored = transaction
        .prepare(select)?
        .query_row(params![series, length, start], |row| read_window(row, 0))
        .optional()?;
    let mut merged = window.clone();
    if let Some(Some(stored)) = stored {
        merged.merge(&stored);
    }
    let counts = merged.counts;
    let insert = "INSERT OR REPLACE INTO window VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
    transaction.prepare(insert)?.execute(params![
        series,
        length,
        start,
        counts.measured_ms as i64,
        counts.due as i64,
        counts.lost as i64,
        counts.corrupt as i64,
        counts.down_ms as i64,
        merged.encoded_times(),
    ])?;
    Ok(())
}

/// A window from five counts and the times, from this column on. `None` if the times are damaged.
fn read_window(row: &Row, first: usize) -> rusqlite::Result<Option<Window>> {
    let count = |column: usize| row.get::<_, i64>(first + column).map(|count| count.max(0) as u64);
    let counts = WindowCounts {
        measured_ms: count(0)?,
        due: count(1)?,
        lost: count(2)?,
        corrupt: count(3)?,
        down_ms: count(4)?,
    };
    Ok(Window::decode(counts, row.get_ref(first + 5)?.as_blob()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> (tempfile::TempDir, Store) {
        let place = tempfile::tempdir().unwrap();
        let store = Store::open(&place.path().join("runs.sqlite")).unwrap();
        (place, store)
    }

    fn window(times: &[u64], lost: u64) -> Window {
        let due = times.len() as u64 + lost;
        let mut window =
            Window::new(WindowCounts { measured_ms: 10_000, due, lost, ..WindowCounts::default() });
        times.iter().for_each(|time| window.record(*time));
        window
    }

    #[test]
    fn every_tier_has_all_probes() {
        let (_place, mut store) = store();
        let series = store.series("gateway", "tcp://gw").unwrap();
        assert_eq!(store.series("gateway", "tcp://gw").unwrap(), series);
        let mut together = Window::default();
        for second in (0..7200).step_by(10) {
            let part = window(&[1_000_000 + second as u64 * 1000, 2_000_000], u64::from(second % 600 == 0));
            store.add_windows([(series, second, &part)]).unwrap();
            together.merge(&part);
        }
        for (tier, rows) in TIERS.into_iter().zip([120, 12, 2]) {
            let windows = store.windows(series, tier, 0, 7200).unwrap();
            assert_eq!(windows.len(), rows);
            assert!(
                windows.iter().all(|window| window.window.counts.measured_ms == 1000 * tier.length as u64)
            );
            let mut merged = Window::default();
            windows.iter().for_each(|stored| merged.merge(&stored.window));
            assert_eq!(merged, together);
        }
        assert_eq!(store.windows(series, TIERS[0], 60, 180).unwrap()[1].start, 120);
    }

    #[test]
    fn old_windows_leave_their_tier_only() {
        let (_place, mut store) = store();
        let series = store.series("gateway", "tcp://gw").unwrap();
        store.add_windows([(series, 0, &window(&[5_000_000], 0))]).unwrap();
        let now = 15 * DAY;
        store.add_windows([(series, now, &window(&[6_000_000], 0))]).unwrap();
        assert_eq!(store.remove_old_windows(now).unwrap(), 1);
        let counts = TIERS.map(|tier| store.windows(series, tier, 0, now + 1).unwrap().len());
        assert_eq!(counts, [1, 2, 2]);
    }

    #[test]
    fn incidents_are_listed_latest_first() {
        let (_place, mut store) = store();
        let series = store.series("gateway", "tcp://gw").unwrap();
        for second in [3, 9, 6] {
            let at = Timestamp::from_second(second).unwrap();
            let incident = Incident { at, kind: "alarm".to_owned(), text: format!("at {second}") };
            store.add_incident(series, &incident).unwrap();
        }
        let texts: Vec<String> =
            store.incidents(series, 2).unwrap().into_iter().map(|incident| incident.text).collect();
        assert_eq!(texts, ["at 9", "at 6"]);
    }
}
