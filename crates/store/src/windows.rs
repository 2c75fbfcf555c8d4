//! The windows of watched links, in tiers: minutes for days, hours for years.
//!
//! A window is merged into one row of every tier in one transaction. So a killed process leaves every tier complete, and
//! each percentile of a long window is that of all its probes.

use jiff::Timestamp;
use rusqlite::{OptionalExtension, Row, Transaction, params};

use super::{Store, StoreError};
use linkgauge_model::sample::{Window, WindowCounts};

/// A tier: the length of its windows and the time for which they are kept, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tier {
    /// Length of a window.
    pub length: i64,
    /// Older windows are removed.
    pub kept: i64,
}

const DAY: i64 = 86_400;

/// Incidents of one kind that can be noted for the same moment.
const MAX_SAME_TIME: i64 = 1000;

/// The tiers, shortest first.
pub const TIERS: [Tier; 3] = [
    Tier { length: 60, kept: 7 * DAY },
    Tier { length: 600, kept: 30 * DAY },
    Tier { length: 3600, kept: 2 * 366 * DAY },
];

impl Tier {
    /// The start of the window of this tier that contains a time, in seconds since 1970.
    pub fn start(self, second: i64) -> i64 {
        second - second.rem_euclid(self.length)
    }
}

/// Tables of windows. They are made when the first link is watched, so a store without them is complete, too.
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
        p50_ns REAL,
        p99_ns REAL,
        max_ns REAL,
        PRIMARY KEY (series, length, start)
    ) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS incident (
        series INTEGER NOT NULL REFERENCES series ON DELETE CASCADE,
        at_us INTEGER NOT NULL,
        kind TEXT NOT NULL,
        text TEXT NOT NULL,
        PRIMARY KEY (series, at_us, kind)
    ) WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS incident_of_kind ON incident (series, kind, at_us);
";

/// Percentiles over all probes beside the times, for programs that read the tables; infinite if a percentile is a lost probe.
pub(super) const FIGURE_COLUMNS: [&str; 3] = ["p50_ns", "p99_ns", "max_ns"];

/// Creates the tables of windows, and columns that those of an earlier version lack.
pub(super) fn create_window_tables(transaction: &Transaction) -> rusqlite::Result<()> {
    transaction.execute_batch(CREATE_WINDOW_TABLES_SQL)?;
    for column in FIGURE_COLUMNS {
        if !transaction.column_exists(None, "window", column)? {
            transaction.execute_batch(&format!("ALTER TABLE window ADD COLUMN {column} REAL"))?;
        }
    }
    Ok(())
}

/// A watched link in a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredSeries {
    /// Its number.
    pub number: SeriesNumber,
    /// The name of the watch.
    pub name: String,
    /// The endpoint, as typed last.
    pub endpoint: String,
}

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
    /// A word for programs: `down`, `up`, `alarm`, `clear` … (`docs/store.md`).
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
        create_window_tables(&transaction).map_err(|error| self.store_error("written", error))?;
        let insert = "INSERT INTO series (name, endpoint) VALUES (?1, ?2)
            ON CONFLICT (name) DO UPDATE SET endpoint = ?2 RETURNING number";
        let number = transaction.query_row(insert, [name, endpoint], |row| row.get(0));
        let number = number.map_err(|error| self.store_error("written", error))?;
        self.commit(transaction, "written")?;
        Ok(SeriesNumber(number))
    }

    /// The series of this name, if there is one.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn find_series(&self, name: &str) -> Result<Option<SeriesNumber>, StoreError> {
        let select = "SELECT number FROM series WHERE name = ?1";
        self.retry_while_locked("read", || {
            let has_series = self.connection.table_exists(None, "series")?;
            let number = || self.connection.query_row(select, [name], |row| row.get(0)).optional();
            Ok(if has_series { number()?.map(SeriesNumber) } else { None })
        })
    }

    /// All series, by name.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn all_series(&self) -> Result<Vec<StoredSeries>, StoreError> {
        let read = || {
            if !self.connection.table_exists(None, "series")? {
                return Ok(Vec::new());
            }
            let mut statement =
                self.connection.prepare("SELECT number, name, endpoint FROM series ORDER BY name")?;
            let rows = statement.query_map([], |row| {
                Ok(StoredSeries {
                    number: SeriesNumber(row.get(0)?),
                    name: row.get(1)?,
                    endpoint: row.get(2)?,
                })
            })?;
            rows.collect()
        };
        self.retry_while_locked("read", read)
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

    /// Notes an incident. A second one of the same kind and time is noted a microsecond later.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn add_incident(&mut self, series: SeriesNumber, incident: &Incident) -> Result<(), StoreError> {
        let transaction = self.begin_write("written")?;
        let insert = "INSERT OR IGNORE INTO incident (series, at_us, kind, text) VALUES (?1, ?2, ?3, ?4)";
        let at_us = incident.at.as_microsecond();
        for at_us in at_us..at_us.saturating_add(MAX_SAME_TIME) {
            let noted = transaction.execute(insert, params![series.0, at_us, incident.kind, incident.text]);
            if noted.map_err(|error| self.store_error("written", error))? == 1 {
                break;
            }
        }
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
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            statement.query_map(params![series.0, limit], read_incident)?.collect()
        };
        self.retry_while_locked("read", read)
    }

    /// The latest incident of a kind, or of a kind with this text.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn latest_incident(
        &self,
        series: SeriesNumber,
        kind: &str,
        text: Option<&str>,
    ) -> Result<Option<Incident>, StoreError> {
        let select = "SELECT at_us, kind, text FROM incident WHERE series = ?1 AND kind = ?2
            AND (?3 IS NULL OR text = ?3) ORDER BY at_us DESC LIMIT 1";
        let read = || {
            let found = self.connection.query_row(select, params![series.0, kind, text], read_incident);
            found.optional()
        };
        self.retry_while_locked("read", read)
    }

    /// The begin of the last window of a tier, in seconds since 1970.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn last_window(&self, series: SeriesNumber, tier: Tier) -> Result<Option<i64>, StoreError> {
        let select = "SELECT max(start) FROM window WHERE series = ?1 AND length = ?2";
        let read = || self.connection.query_row(select, params![series.0, tier.length], |row| row.get(0));
        self.retry_while_locked("read", read)
    }

    /// Removes windows that are older than their tier keeps; returns how many.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn remove_old_windows(&mut self, now: i64) -> Result<usize, StoreError> {
        let mut removed = 0;
        for tier in TIERS {
            removed += self.remove_windows_before(tier, now - tier.kept)?;
        }
        Ok(removed)
    }

    /// Removes the oldest windows of the shortest tier, and so on, until the file uses at most this size, or only the last day is
    /// left; returns how many. The file does not shrink: its space is used again.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn limit_windows(&mut self, now: i64, max_bytes: u64) -> Result<usize, StoreError> {
        let mut removed = 0;
        // With a reserve, so that this is not necessary at each call.
        let wanted = max_bytes - max_bytes / 20;
        let mut is_over = self.used_bytes()? > max_bytes;
        for tier in TIERS {
            let mut before = now - tier.kept;
            while is_over && before < now - DAY {
                before = (before + tier.kept / 8).min(now - DAY);
                removed += self.remove_windows_before(tier, before)?;
                is_over = self.used_bytes()? > wanted;
            }
        }
        Ok(removed)
    }

    fn remove_windows_before(&mut self, tier: Tier, second: i64) -> Result<usize, StoreError> {
        let transaction = self.begin_write("written")?;
        // By series, so that the key finds them.
        let delete = "DELETE FROM window WHERE series = ?1 AND length = ?2 AND start < ?3";
        let remove = || -> rusqlite::Result<usize> {
            let mut statement = transaction.prepare("SELECT number FROM series")?;
            let series: Vec<i64> = statement.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
            let mut delete = transaction.prepare(delete)?;
            series.iter().map(|series| delete.execute(params![series, tier.length, second])).sum()
        };
        let removed = remove().map_err(|error| self.store_error("written", error))?;
        self.commit(transaction, "written")?;
        Ok(removed)
    }

    /// The part of the file that holds data, in bytes.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub(crate) fn used_bytes(&self) -> Result<u64, StoreError> {
        let pragma = |name: &str| self.connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
        let read = || -> rusqlite::Result<i64> {
            Ok((pragma("page_count")? - pragma("freelist_count")?) * pragma("page_size")?)
        };
        Ok(self.retry_while_locked("read", read)?.max(0) as u64)
    }
}

/// The key of a window: series, length, start.
type WindowKey = (i64, i64, i64);

fn merge_row(transaction: &Transaction, key: WindowKey, window: &Window) -> rusqlite::Result<()> {
    let (series, length, start) = key;
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
    let insert = "INSERT OR REPLACE INTO window
        (series, length, start, measured_ms, due, lost, corrupt, down_ms, times, p50_ns, p99_ns, max_ns)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";
    let quantile = |share| merged.quantile_with_losses_ns(share);
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
        quantile(0.5),
        quantile(0.99),
        quantile(1.0),
    ])?;
    Ok(())
}

fn read_incident(row: &Row) -> rusqlite::Result<Incident> {
    let at = Timestamp::from_microsecond(row.get(0)?).unwrap_or(Timestamp::UNIX_EPOCH);
    Ok(Incident { at, kind: row.get(1)?, text: row.get(2)? })
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
    use linkgauge_model::stats::SplitMix64;

    fn store() -> (tempfile::TempDir, Store) {
        let place = tempfile::tempdir().unwrap();
        let store = Store::open(&place.path().join("runs.sqlite")).unwrap();
        (place, store)
    }

    #[test]
    fn every_tier_has_all_probes() {
        let (_place, mut store) = store();
        let series = store.series("gateway", "tcp://gw").unwrap();
        assert_eq!(store.series("gateway", "tcp://gw").unwrap(), series);
        assert_eq!(store.find_series("gateway").unwrap(), Some(series));
        assert_eq!(store.find_series("other").unwrap(), None);
        let mut together = Window::default();
        for second in (0..7200).step_by(10) {
            let part = Window::of_probes(
                &[1_000_000 + second as u64 * 1000, 2_000_000],
                u64::from(second % 600 == 0),
            );
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
    fn windows_of_an_earlier_version_get_their_figures_when_they_grow() {
        let (_place, mut store) = store();
        let series = store.series("gateway", "tcp://gw").unwrap();
        let part = Window::of_probes(&[1_000_000, 3_000_000], 0);
        store.add_windows([(series, 0, &part)]).unwrap();
        for column in FIGURE_COLUMNS {
            store.connection.execute_batch(&format!("ALTER TABLE window DROP COLUMN {column}")).unwrap();
        }
        assert_eq!(store.series("gateway", "tcp://gw").unwrap(), series);
        let figures = |store: &Store| {
            let select = "SELECT p50_ns, max_ns FROM window WHERE length = 60";
            let read = |row: &Row| Ok((row.get::<_, Option<f64>>(0)?, row.get::<_, Option<f64>>(1)?));
            store.connection.query_row(select, [], read).unwrap()
        };
        assert_eq!(figures(&store), (None, None));
        store.add_windows([(series, 10, &Window::of_probes(&[1_000_000], 1))]).unwrap();
        let (p50, max) = figures(&store);
        assert!(p50.is_some_and(|time| (0.99e6..1.01e6).contains(&time)), "{p50:?}");
        assert_eq!(max, Some(f64::INFINITY), "a lost probe is slower than every reply");
    }

    #[test]
    fn old_windows_leave_their_tier_only() {
        let (_place, mut store) = store();
        let series = store.series("gateway", "tcp://gw").unwrap();
        store.add_windows([(series, 0, &Window::of_probes(&[5_000_000], 0))]).unwrap();
        let now = 8 * DAY;
        store.add_windows([(series, now, &Window::of_probes(&[6_000_000], 0))]).unwrap();
        assert_eq!(store.remove_old_windows(now).unwrap(), 1);
        let counts = TIERS.map(|tier| store.windows(series, tier, 0, now + 1).unwrap().len());
        assert_eq!(counts, [1, 2, 2]);
    }

    /// Replies around a millisecond as those of a network, some of them slow.
    fn network_replies(count: usize, random: &mut SplitMix64) -> Window {
        let mut window =
            Window::new(WindowCounts { measured_ms: 60_000, due: count as u64, ..WindowCounts::default() });
        for _ in 0..count {
            // Nearly normal.
            let deviation = (0..4).map(|_| random.uniform()).sum::<f64>() - 2.0;
            let slow = if random.uniform() < 0.01 { 1.0 + 20.0 * random.uniform() } else { 1.0 };
            window.record((1e6 * (0.3 * deviation).exp() * slow) as u64);
        }
        window
    }

    /// Fills a store with the windows that are left after a year, scaled: a tenth of the time in each tier. Returns the bytes for
    /// each series.
    fn tenth_of_a_year(per_second: usize) -> u64 {
        const SERIES: usize = 2;
        let (_place, mut store) = store();
        let series: Vec<SeriesNumber> =
            (0..SERIES).map(|index| store.series(&format!("link {index}"), "tcp://gw").unwrap()).collect();
        let empty = store.used_bytes().unwrap();
        let mut random = SplitMix64::new(1);
        let (mut second, year) = (0, 366 * DAY / 10);
        while second < year {
            let tier = *TIERS.iter().find(|tier| year - second <= tier.kept / 10).unwrap_or(&TIERS[2]);
            let replies = per_second * tier.length as usize;
            let windows: Vec<(SeriesNumber, i64, Window)> = series
                .iter()
                .map(|series| (*series, second, network_replies(replies, &mut random)))
                .collect();
            store
                .add_windows(windows.iter().map(|(series, second, window)| (*series, *second, window)))
                .unwrap();
            second += tier.length;
        }
        for (tier, kept) in TIERS.into_iter().zip([TIERS[0].kept / 10, TIERS[1].kept / 10, year]) {
            store.remove_windows_before(tier, year - kept).unwrap();
        }
        (store.used_bytes().unwrap() - empty) / SERIES as u64
    }

    #[test]
    fn a_series_takes_less_than_8_mb_in_a_year() {
        let bytes = tenth_of_a_year(1);
        assert!(
            (100_000..800_000).contains(&bytes),
            "{bytes} bytes in a tenth of a year at a probe a second"
        );
    }

    #[test]
    fn a_series_takes_less_than_250_bytes_a_minute() {
        let (_place, mut store) = store();
        let series = store.series("gateway", "tcp://gw").unwrap();
        let empty = store.used_bytes().unwrap();
        let mut random = SplitMix64::new(2);
        const MINUTES: i64 = 12 * 60;
        for minute in 0..MINUTES {
            store.add_windows([(series, minute * 60, &network_replies(60, &mut random))]).unwrap();
        }
        let each = (store.used_bytes().unwrap() - empty) / MINUTES as u64;
        assert!((30..250).contains(&each), "{each} bytes a minute");
    }

    #[test]
    fn a_store_has_a_limited_size() {
        let (_place, mut store) = store();
        let series = store.series("gateway", "tcp://gw").unwrap();
        let mut random = SplitMix64::new(2);
        let now = 6 * DAY;
        let windows: Vec<(i64, Window)> =
            (0..now).step_by(600).map(|second| (second, network_replies(600, &mut random))).collect();
        store.add_windows(windows.iter().map(|(second, window)| (series, *second, window))).unwrap();
        let full = store.used_bytes().unwrap();
        assert_eq!(store.limit_windows(now, full).unwrap(), 0);
        assert!(store.limit_windows(now, full * 9 / 10).unwrap() > 0);
        assert!(store.used_bytes().unwrap() <= full * 9 / 10);
        let counts = TIERS.map(|tier| store.windows(series, tier, 0, now).unwrap().len());
        assert!(counts[0] < 864 && counts[1..] == [864, 144], "minutes are removed first: {counts:?}");
        store.limit_windows(now, 0).unwrap();
        let counts = TIERS.map(|tier| store.windows(series, tier, 0, now).unwrap().len());
        assert_eq!(counts, [144, 144, 24], "the last day stays");
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
        let at = Timestamp::from_second(9).unwrap();
        let same_time = Incident { at, kind: "alarm".to_owned(), text: "another".to_owned() };
        store.add_incident(series, &same_time).unwrap();
        assert_eq!(store.incidents(series, 9).unwrap().len(), 4, "none replaces another");
        let latest = |text| store.latest_incident(series, "alarm", text).unwrap().unwrap().text;
        assert_eq!((latest(None), latest(Some("at 6"))), ("another".to_owned(), "at 6".to_owned()));
        assert_eq!(store.latest_incident(series, "clock", None).unwrap(), None);
    }
}
