//! What an agent keeps in its own SQLite file: results that wait for the hub, and orders that are done.
//!
//! A result and the end of its order are one transaction. So an agent that is killed either makes the test again, or has its
//! result. A result leaves the file when the hub has confirmed that it is stored there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, params};

use linkgauge_store::{PlantedFile, check_companions};

/// Results that wait, at most. Then the agent measures no more.
pub(crate) const MAX_PENDING: u64 = 20_000;

/// First and longest pause after a failed upload.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

const CREATE_TABLES_SQL: &str = "
    CREATE TABLE IF NOT EXISTS pending (
        number INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        subject TEXT NOT NULL,
        body BLOB NOT NULL
    );
    CREATE TABLE IF NOT EXISTS done (id TEXT PRIMARY KEY, not_after_ms INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS list (one INTEGER PRIMARY KEY CHECK (one = 1), issued_ms INTEGER NOT NULL);
";

/// The file of an agent failed.
#[derive(Debug, thiserror::Error)]
pub enum OutboxError {
    /// SQLite reports an error.
    #[error("{}: results cannot be kept: {error}", .path.display())]
    Sql {
        /// The file.
        path: PathBuf,
        /// The error.
        error: rusqlite::Error,
    },
    /// SQLite would use this file beside it, and another user can have written it.
    #[error("{}: results cannot be kept: this file beside those of the agent is a link or belongs to another user. Remove it", .0.display())]
    PlantedFile(PathBuf),
}

/// A result that the hub has not confirmed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingResult {
    /// Unique: the hub stores it once.
    pub id: String,
    /// Where it is sent.
    pub subject: String,
    /// The content.
    pub body: Vec<u8>,
}

/// The file of an agent.
#[derive(Debug)]
pub struct Outbox {
    connection: Connection,
    path: PathBuf,
}

impl Outbox {
    /// Opens the file, and creates it if necessary, but not its directory.
    ///
    /// # Errors
    ///
    /// The file cannot be opened, or is not one of SQLite, or another user can have put a file beside it that SQLite would use.
    pub fn open(path: &Path) -> Result<Outbox, OutboxError> {
        let failed = |error| OutboxError::Sql { path: path.to_owned(), error };
        check_companions(path).map_err(|PlantedFile(at)| OutboxError::PlantedFile(at))?;
        let open = || -> rusqlite::Result<Connection> {
            let connection = Connection::open(path)?;
            connection.busy_timeout(Duration::from_secs(10))?;
            connection.pragma_update(None, "trusted_schema", false)?;
            connection.execute_batch(CREATE_TABLES_SQL)?;
            Ok(connection)
        };
        Ok(Outbox { connection: open().map_err(failed)?, path: path.to_owned() })
    }

    fn failed(&self, error: rusqlite::Error) -> OutboxError {
        OutboxError::Sql { path: self.path.clone(), error }
    }

    /// Keeps the result of an order, which is done with it. Orders whose time is over are forgotten.
    ///
    /// # Errors
    ///
    /// The file cannot be written: nothing was changed.
    pub fn finish(
        &mut self,
        (order, not_after_ms): (&str, u64),
        result: &PendingResult,
        now_ms: u64,
    ) -> Result<(), OutboxError> {
        let path = self.path.clone();
        let mut write = || -> rusqlite::Result<()> {
            let transaction = self.connection.transaction()?;
            transaction.execute("DELETE FROM done WHERE not_after_ms < ?1", [now_ms as i64])?;
            let is_new = transaction.execute(
                "INSERT OR IGNORE INTO done (id, not_after_ms) VALUES (?1, ?2)",
                params![order, not_after_ms as i64],
            )?;
            if is_new > 0 {
                transaction.execute(
                    "INSERT OR IGNORE INTO pending (id, subject, body) VALUES (?1, ?2, ?3)",
                    params![result.id, result.subject, result.body],
                )?;
            }
            transaction.commit()
        };
        write().map_err(|error| OutboxError::Sql { path, error })
    }

    /// The oldest result that waits.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub(crate) fn oldest(&self) -> Result<Option<PendingResult>, OutboxError> {
        let read = |row: &rusqlite::Row| {
            Ok(PendingResult { id: row.get(0)?, subject: row.get(1)?, body: row.get(2)? })
        };
        let select = "SELECT id, subject, body FROM pending ORDER BY number LIMIT 1";
        self.connection.query_row(select, [], read).optional().map_err(|error| self.failed(error))
    }

    /// The hub has stored a result.
    ///
    /// # Errors
    ///
    /// The file cannot be written: the result is sent again, and the hub drops the copy.
    pub(crate) fn confirm(&self, id: &str) -> Result<(), OutboxError> {
        let delete = self.connection.execute("DELETE FROM pending WHERE id = ?1", [id]);
        delete.map(drop).map_err(|error| self.failed(error))
    }

    /// Number of results that wait.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn pending(&self) -> Result<u64, OutboxError> {
        let count = self.connection.query_row("SELECT count(*) FROM pending", [], |row| row.get::<_, i64>(0));
        count.map(|count| count as u64).map_err(|error| self.failed(error))
    }

    /// The orders that are done, with the end of their time.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn done(&self) -> Result<BTreeMap<String, u64>, OutboxError> {
        let read = || -> rusqlite::Result<BTreeMap<String, u64>> {
            let mut statement = self.connection.prepare("SELECT id, not_after_ms FROM done")?;
            let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)? as u64)))?;
            rows.collect()
        };
        read().map_err(|error| self.failed(error))
    }

    /// When the newest list that was accepted was issued; 0: none was.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub(crate) fn newest_list_ms(&self) -> Result<u64, OutboxError> {
        let read = self.connection.query_row("SELECT issued_ms FROM list", [], |row| row.get::<_, i64>(0));
        read.optional().map(|issued| issued.unwrap_or(0) as u64).map_err(|error| self.failed(error))
    }

    /// A list was accepted: older ones are refused from now on, also after a restart.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn accept_list(&self, issued_ms: u64) -> Result<(), OutboxError> {
        let set = "INSERT INTO list (one, issued_ms) VALUES (1, ?1) ON CONFLICT DO UPDATE SET issued_ms = max(issued_ms, ?1)";
        self.connection.execute(set, [issued_ms as i64]).map(drop).map_err(|error| self.failed(error))
    }
}

/// Pauses between attempts, which grow with each failure.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Backoff {
    failures: u32,
}

impl Backoff {
    /// Succeeded: the next failure has the first pause again.
    pub(crate) fn on_success(&mut self) {
        self.failures = 0;
    }

    /// Failed: the pause until the next attempt. `random` is from 0 to 1; agents that failed together do not return together.
    pub fn on_failure(&mut self, random: f64) -> Duration {
        let pause = FIRST_PAUSE.saturating_mul(1 << self.failures.min(16)).min(LONGEST_PAUSE);
        self.failures += 1;
        pause.mul_f64(0.5 + random / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(id: &str) -> PendingResult {
        PendingResult { id: id.to_owned(), subject: "result.a".to_owned(), body: id.as_bytes().to_vec() }
    }

    #[test]
    fn results_leave_oldest_first_when_they_are_confirmed_and_survive_the_agent() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("agent.sqlite");
        let mut outbox = Outbox::open(&path).unwrap();
        for (order, id) in [("o1", "r1"), ("o2", "r2"), ("o3", "r3")] {
            outbox.finish((order, 1000), &result(id), 0).unwrap();
        }
        assert_eq!(outbox.oldest().unwrap(), Some(result("r1")));
        outbox.confirm("r1").unwrap();
        drop(outbox);
        let outbox = Outbox::open(&path).unwrap();
        assert_eq!((outbox.pending().unwrap(), outbox.oldest().unwrap()), (2, Some(result("r2"))));
        assert_eq!(outbox.done().unwrap().len(), 3);
    }

    #[test]
    fn planted_files_beside_it_are_refused() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("agent.sqlite");
        for suffix in ["-journal", "-wal", "-shm"] {
            let planted = PathBuf::from(format!("{}{suffix}", path.display()));
            std::os::unix::fs::symlink(place.path().join("target"), &planted).unwrap();
            let error = Outbox::open(&path).unwrap_err();
            assert!(matches!(&error, OutboxError::PlantedFile(at) if *at == planted), "{error}");
            std::fs::remove_file(&planted).unwrap();
        }
        assert!(!path.exists() && !place.path().join("target").exists());
        Outbox::open(&path).unwrap();
    }

    #[test]
    fn an_order_has_one_result() {
        let place = tempfile::tempdir().unwrap();
        let mut outbox = Outbox::open(&place.path().join("agent.sqlite")).unwrap();
        outbox.finish(("o1", 1000), &result("r1"), 0).unwrap();
        outbox.finish(("o1", 1000), &result("r2"), 0).unwrap();
        assert_eq!((outbox.pending().unwrap(), outbox.oldest().unwrap()), (1, Some(result("r1"))));
        // Its time is over, so it needs no memory: it would be refused as expired.
        outbox.finish(("o2", 5000), &result("r3"), 2000).unwrap();
        assert_eq!(outbox.done().unwrap().into_keys().collect::<Vec<_>>(), ["o2"]);
    }

    #[test]
    fn an_older_list_does_not_come_back() {
        let place = tempfile::tempdir().unwrap();
        let outbox = Outbox::open(&place.path().join("agent.sqlite")).unwrap();
        assert_eq!(outbox.newest_list_ms().unwrap(), 0);
        for issued in [50, 40] {
            outbox.accept_list(issued).unwrap();
        }
        assert_eq!(outbox.newest_list_ms().unwrap(), 50);
    }

    #[test]
    fn pauses_grow_to_five_minutes() {
        let mut backoff = Backoff::default();
        let pauses: Vec<u64> = (0..12).map(|_| backoff.on_failure(1.0).as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]);
        backoff.on_success();
        assert_eq!(backoff.on_failure(0.0), Duration::from_millis(500));
    }
}
