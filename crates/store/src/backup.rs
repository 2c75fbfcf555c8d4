//! Copies of a whole store while other processes use it: runs, tags, windows and incidents.

use std::path::Path;

use rusqlite::{Transaction, params};

use super::windows::{FIGURE_COLUMNS, create_window_tables};
use super::{Store, StoreError};

/// What a backup holds, or what it added to a store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoreContents {
    /// Runs.
    pub runs: u64,
    /// Windows of watched links, in all tiers.
    pub windows: u64,
    /// Incidents of watched links.
    pub incidents: u64,
}

/// Tables that a backup may lack: no link was watched.
const WINDOW_TABLE: &str = "window";

/// Adds runs and tags that are not in the store. A run that is stays as it is.
const ADD_RUNS_SQL: &str = "
    INSERT INTO main.run (id, started_us, host, title, tool, complete)
        SELECT id, started_us, host, title, tool, complete FROM backup.run
        WHERE id NOT IN (SELECT id FROM main.run) ORDER BY number;
    INSERT OR IGNORE INTO main.document (run, deflated)
        SELECT own.number, other.deflated FROM backup.document AS other
        JOIN backup.run AS its ON its.number = other.run JOIN main.run AS own ON own.id = its.id;
    INSERT OR IGNORE INTO main.measured
        SELECT own.number, other.number, endpoint, protocol, workload, direction, message_bytes, ports, parallel, method, settings,
            headline, figures
        FROM backup.measured AS other
        JOIN backup.run AS its ON its.number = other.run JOIN main.run AS own ON own.id = its.id;
    INSERT OR IGNORE INTO main.tag (name, run)
        SELECT other.name, own.number FROM backup.tag AS other
        JOIN backup.run AS its ON its.number = other.run JOIN main.run AS own ON own.id = its.id;
";

/// Adds windows and incidents. Of two windows of the same time the one with more probes stays: the other is a part of it.
const ADD_WINDOWS_SQL: &str = "
    INSERT OR IGNORE INTO main.series (name, endpoint) SELECT name, endpoint FROM backup.series;
    INSERT INTO main.window
            (series, length, start, measured_ms, due, lost, corrupt, down_ms, times, p50_ns, p99_ns, max_ns)
        SELECT own.number, length, start, measured_ms, due, lost, corrupt, down_ms, times, p50_ns, p99_ns, max_ns
        FROM backup.window AS other
        JOIN backup.series AS its ON its.number = other.series JOIN main.series AS own ON own.name = its.name
        WHERE true
        ON CONFLICT DO UPDATE SET measured_ms = excluded.measured_ms, due = excluded.due, lost = excluded.lost,
            corrupt = excluded.corrupt, down_ms = excluded.down_ms, times = excluded.times, p50_ns = excluded.p50_ns,
            p99_ns = excluded.p99_ns, max_ns = excluded.max_ns
        WHERE excluded.due > main.window.due;
    INSERT OR IGNORE INTO main.incident (series, at_us, kind, text)
        SELECT own.number, at_us, kind, text FROM backup.incident AS other
        JOIN backup.series AS its ON its.number = other.series JOIN main.series AS own ON own.name = its.name;
";

impl Store {
    /// Writes a copy of everything to an empty file, as of one moment. Other processes may use the store meanwhile; those that write wait.
    ///
    /// # Errors
    ///
    /// The store cannot be read, or the file cannot be written.
    pub fn back_up(&self, file: &Path) -> Result<StoreContents, StoreError> {
        let name = file.to_string_lossy();
        self.retry_while_locked("copied", || self.connection.execute("VACUUM INTO ?1", [&name]))?;
        Store::open_existing(file)?.contents()
    }

    /// What the store holds.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn contents(&self) -> Result<StoreContents, StoreError> {
        let count = |table: &str| -> rusqlite::Result<u64> {
            if !self.connection.table_exists(None, table)? {
                return Ok(0);
            }
            let count = self
                .connection
                .query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get::<_, i64>(0));
            Ok(count?.max(0) as u64)
        };
        self.retry_while_locked("read", || {
            Ok(StoreContents {
                runs: count("run")?,
                windows: count(WINDOW_TABLE)?,
                incidents: count("incident")?,
            })
        })
    }

    /// Adds what a backup holds and this store does not: all of it or nothing. Returns what was added.
    ///
    /// # Errors
    ///
    /// The backup is no store of this version, or one of the files cannot be read or written.
    pub fn restore(&mut self, backup: &Path) -> Result<StoreContents, StoreError> {
        let other = Store::open_existing(backup)?;
        let has_windows = other.add_figure_columns()?;
        drop(other);
        let before = self.contents()?;
        let name = backup.to_string_lossy();
        let cannot = |error| self.store_error("restored", error);
        self.connection.execute("ATTACH DATABASE ?1 AS backup", params![name]).map_err(cannot)?;
        let added = self.begin_write("restored").and_then(|transaction| {
            add_all(&transaction, has_windows).map_err(cannot)?;
            self.commit(transaction, "restored")
        });
        let detached = self.connection.execute_batch("DETACH DATABASE backup");
        added?;
        detached.map_err(cannot)?;
        let after = self.contents()?;
        Ok(StoreContents {
            runs: after.runs - before.runs.min(after.runs),
            windows: after.windows - before.windows.min(after.windows),
            incidents: after.incidents - before.incidents.min(after.incidents),
        })
    }
}

impl Store {
    /// Whether there are windows; then their table has all columns.
    fn add_figure_columns(&self) -> Result<bool, StoreError> {
        let exists = |column: Option<&str>| {
            self.retry_while_locked("read", || match column {
                None => self.connection.table_exists(None, WINDOW_TABLE),
                Some(column) => self.connection.column_exists(None, WINDOW_TABLE, column),
            })
        };
        let has_windows = exists(None)?;
        if has_windows && !exists(FIGURE_COLUMNS.last().copied())? {
            let transaction = self.begin_write("read")?;
            create_window_tables(&transaction).map_err(|error| self.store_error("read", error))?;
            self.commit(transaction, "read")?;
        }
        Ok(has_windows)
    }
}

fn add_all(transaction: &Transaction, has_windows: bool) -> rusqlite::Result<()> {
    transaction.execute_batch(ADD_RUNS_SQL)?;
    if has_windows {
        create_window_tables(transaction)?;
        transaction.execute_batch(ADD_WINDOWS_SQL)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Filter, Incident, TIERS};
    use jiff::Timestamp;
    use linkgauge_model::run::Run;
    use linkgauge_model::sample::Window;

    const DOCUMENT: &str = include_str!("../../../tests/data/run-v1-latency.json");

    fn filled(path: &Path, id: &str, probes: usize) -> Store {
        let mut store = Store::open(path).unwrap();
        let run = Run { id: id.to_owned(), ..Run::from_json(DOCUMENT).unwrap() };
        store.save(&run).unwrap();
        store.tag(id, &["kept".to_owned()]).unwrap();
        let series = store.series("a link", "tcp://a").unwrap();
        store.add_windows([(series, 600, &Window::of_probes(&vec![1_000_000; probes], 1))]).unwrap();
        let at = Timestamp::from_second(600).unwrap();
        store.add_incident(series, &Incident { at, kind: "down".to_owned(), text: id.to_owned() }).unwrap();
        store
    }

    #[test]
    fn a_backup_of_a_store_in_use_restores_everything() {
        let place = tempfile::tempdir().unwrap();
        let [path, copy, other] = ["runs", "copy", "other"].map(|name| place.path().join(name));
        let store = filled(&path, "20260101T000000Z-aaaa", 5);
        // Another process has the store open, too.
        let reader = Store::open_existing(&path).unwrap();
        let all = StoreContents { runs: 1, windows: 3, incidents: 1 };
        assert_eq!(store.back_up(&copy).unwrap(), all);
        assert!(store.back_up(&copy).is_err(), "the file is not empty");
        drop(reader);
        let mut empty = Store::open(&other).unwrap();
        assert_eq!(empty.restore(&copy).unwrap(), all);
        assert_eq!(empty.restore(&copy).unwrap(), StoreContents::default(), "once more changes nothing");
        let run = empty.load("20260101T000000Z-aaaa").unwrap();
        assert_eq!(run, store.load("20260101T000000Z-aaaa").unwrap());
        assert_eq!(empty.ids_with_tag("kept").unwrap(), [run.id]);
        let series = empty.find_series("a link").unwrap().unwrap();
        let minutes = empty.windows(series, TIERS[0], 0, 6000).unwrap();
        assert_eq!(
            (minutes.len(), minutes[0].window.counts.due, minutes[0].window.quantile_ns(0.5)),
            (1, 6, store.windows(series, TIERS[0], 0, 6000).unwrap()[0].window.quantile_ns(0.5))
        );
        assert_eq!(empty.incidents(series, 9).unwrap()[0].text, "20260101T000000Z-aaaa");
        assert_eq!(empty.runs(&Filter::default()).unwrap().entries.len(), 1);
    }

    #[test]
    fn a_backup_is_merged_with_what_was_measured_since() {
        let place = tempfile::tempdir().unwrap();
        let [old, new, copy] = ["old", "new", "copy"].map(|name| place.path().join(name));
        let backed_up = filled(&old, "20260101T000000Z-aaaa", 9);
        // Its series have other numbers.
        let mut store = Store::open(&new).unwrap();
        store.series("another", "tcp://b").unwrap();
        drop(store);
        let mut store = filled(&new, "20260102T000000Z-bbbb", 4);
        backed_up.back_up(&copy).unwrap();
        let added = store.restore(&copy).unwrap();
        assert_eq!(
            added,
            StoreContents { runs: 1, windows: 0, incidents: 0 },
            "the incident has the same time and kind"
        );
        let series = store.find_series("a link").unwrap().unwrap();
        let due = |store: &Store| store.windows(series, TIERS[0], 0, 6000).unwrap()[0].window.counts.due;
        assert_eq!(due(&store), 10, "that with more probes");
        let mut fewer = filled(&place.path().join("fewer"), "20260103T000000Z-cccc", 1);
        store.back_up(&place.path().join("copy 2")).unwrap();
        fewer.restore(&place.path().join("copy 2")).unwrap();
        assert_eq!(fewer.runs(&Filter::default()).unwrap().entries.len(), 3);
    }

    #[test]
    fn other_files_are_no_backups() {
        let place = tempfile::tempdir().unwrap();
        let mut store = filled(&place.path().join("runs"), "20260101T000000Z-aaaa", 1);
        let text = place.path().join("text");
        std::fs::write(
            &text,
            "this text is no database, and it is as long as the head of one, so that it is read: 0123456789",
        )
        .unwrap();
        assert!(matches!(store.restore(&text), Err(StoreError::NotAStore(_))));
        assert!(matches!(store.restore(&place.path().join("missing")), Err(StoreError::Missing(_))));
        let before = store.contents().unwrap();
        assert_eq!(store.contents().unwrap(), before);
    }
}
