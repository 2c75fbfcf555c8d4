//! The store: an SQLite file with the whole document of every run, and searchable columns.
//!
//! The program knows the path of the file. The store does not interpret runs.
//!
//! Several processes may save runs at the same time. Each run is one transaction, and processes wait for a locked
//! file. It uses the rollback journal rather than the write-ahead log: transactions are few and short, there is one
//! file at rest, and a store on a read-only disk can be read. If a process is killed, the file has the old state or
//! the whole run.

mod backup;
mod companions;
mod search;
mod windows;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rusqlite::{
    Connection, ErrorCode, OpenFlags, OptionalExtension, Transaction, TransactionBehavior, params,
};
use serde_json::Value;

use linkgauge_model::metric::Metric;
use linkgauge_model::run::{Run, RunError, is_valid_id, quote_id};

pub mod document;

pub use backup::StoreContents;
pub use companions::{PlantedFile, check_companions};
pub use search::{Filter, Listing, RunEntry, Trend, TrendPoint};
pub use windows::{Incident, SeriesNumber, StoredSeries, StoredWindow, TIERS, Tier};

/// Identifies the file as ours: "LGst".
const APPLICATION_ID: i32 = 0x4c47_7374;
/// Version of the tables below.
const VERSION: i32 = 3;
/// Maximum wait for other writers: far longer than a queue of short transactions takes.
const LOCK_TIMEOUT: Duration = Duration::from_secs(30);
/// Remaining wait after a stop request.
const STOP_GRACE_PERIOD: Duration = Duration::from_millis(500);
/// SQLite's own wait. Stop requests are checked in between.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Documents have a separate table, so that searches do not read them.
const CREATE_TABLES_SQL: &str = "
    CREATE TABLE run (
        number INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        started_us INTEGER NOT NULL,
        host TEXT,
        title TEXT,
        tool TEXT NOT NULL,
        complete INTEGER NOT NULL
    );
    CREATE INDEX run_started ON run (started_us);
    CREATE TABLE document (
        run INTEGER PRIMARY KEY REFERENCES run ON DELETE CASCADE,
        deflated BLOB NOT NULL
    );
    CREATE TABLE measured (
        run INTEGER NOT NULL REFERENCES run ON DELETE CASCADE,
        number INTEGER NOT NULL,
        endpoint TEXT NOT NULL,
        protocol TEXT NOT NULL,
        workload TEXT NOT NULL,
        direction TEXT NOT NULL,
        message_bytes INTEGER NOT NULL,
        ports INTEGER NOT NULL,
        parallel INTEGER NOT NULL,
        method TEXT NOT NULL,
        settings TEXT NOT NULL,
        headline TEXT NOT NULL,
        figures TEXT NOT NULL,
        PRIMARY KEY (run, number)
    ) WITHOUT ROWID;
    CREATE TABLE tag (
        name TEXT NOT NULL,
        run INTEGER NOT NULL REFERENCES run ON DELETE CASCADE,
        PRIMARY KEY (name, run)
    ) WITHOUT ROWID;
    CREATE INDEX tag_run ON tag (run);
";

/// Errors of a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// There is no file at the path.
    #[error("{}: no run was saved yet. Measure something, or name another store with --store", .0.display())]
    Missing(PathBuf),
    /// The file is no store.
    #[error("{}: this file is no store of linkgauge: name another with --store", .0.display())]
    NotAStore(PathBuf),
    /// Another version wrote the store.
    #[error("{}: a store of version {version}, this linkgauge reads {VERSION}: use the version that wrote it", .path.display())]
    OtherVersion {
        /// The file.
        path: PathBuf,
        /// The version of the store.
        version: i32,
    },
    /// SQLite reports an error.
    #[error("{}: the store cannot be {what}: {error}", .path.display())]
    Sql {
        /// The file.
        path: PathBuf,
        /// The failed operation, as a participle.
        what: &'static str,
        /// The error.
        error: rusqlite::Error,
    },
    /// Another process has locked the store for too long.
    #[error("{}: the store cannot be {what}: another program has locked it", .path.display())]
    Locked {
        /// The file.
        path: PathBuf,
        /// The failed operation, as a participle.
        what: &'static str,
    },
    /// No run fits this text.
    #[error("no run or tag '{0}' in the store: 'linkgauge history' lists them")]
    Unknown(String),
    /// No run has this tag.
    #[error("no run is tagged '{0}': 'linkgauge history' shows the tags")]
    UnknownTag(String),
    /// Several runs fit the text.
    #[error("'{text}' fits {count} runs: write more of the id")]
    Ambiguous {
        /// The prefix of an id.
        text: String,
        /// The number of runs that fit.
        count: usize,
    },
    /// The id of a run cannot be part of a command or the name of a file.
    #[error("the id '{0}' is not that of a run: it has letters, digits and - _ . only, and at most 200")]
    InvalidId(String),
    /// SQLite would use this file as the store or beside it, and another user can have put it there.
    #[error("{}: the store cannot be opened: this file is a link or belongs to another user. Remove it", .0.display())]
    PlantedFile(PathBuf),
    /// The store has another run with this id.
    #[error("run {0}: another run of this id is in the store already: it was left as it is")]
    ConflictingRun(String),
    /// The document of the run with this id is missing or cannot be decompressed.
    #[error("run {0}: its document in the store is damaged")]
    Damaged(String),
    /// The document of the run is invalid.
    #[error("run {id}: {error}")]
    Document {
        /// The id of the run.
        id: String,
        /// Why the document is invalid.
        error: RunError,
    },
}

/// The outcome of saving a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SaveOutcome {
    /// The run was added to the store.
    Saved,
    /// The same run was in the store.
    AlreadySaved,
}

/// An open store.
#[derive(Debug)]
pub struct Store {
    connection: Connection,
    path: PathBuf,
    /// Set on a stop request: the store then stops waiting for other processes.
    stop: Arc<AtomicBool>,
}

impl Store {
    /// Opens a store for writing. Creates the file if necessary, but not its directory.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be opened or created, is no store, or is of a newer version.
    pub fn open(path: &Path) -> Result<Store, StoreError> {
        Store::open_until(path, Arc::default())
    }

    /// The same. Once `stop` is set, it waits for a locked store only for the grace period.
    ///
    /// # Errors
    ///
    /// As [`Store::open`], and [`StoreError::Locked`] if another process locks the store for too long.
    pub fn open_until(path: &Path, stop: Arc<AtomicBool>) -> Result<Store, StoreError> {
        let store = Store::connect(path, OpenFlags::SQLITE_OPEN_CREATE, stop)?;
        if store.read_state()? == FileState::Empty {
            let transaction = store.begin_write("made")?;
            // Another process may have created the tables first.
            if file_state(&transaction).map_err(|error| store_error(path, "made", error))? == FileState::Empty
            {
                create_tables(&transaction).map_err(|error| store_error(path, "made", error))?;
            }
            store.commit(transaction, "made")?;
        }
        store.check_version()?;
        Ok(store)
    }

    /// Opens an existing store.
    ///
    /// # Errors
    ///
    /// As [`Store::open`], and [`StoreError::Missing`] if there is no file.
    pub fn open_existing(path: &Path) -> Result<Store, StoreError> {
        if !path.exists() {
            return Err(StoreError::Missing(path.to_owned()));
        }
        let store = Store::connect(path, OpenFlags::empty(), Arc::default())?;
        store.check_version()?;
        Ok(store)
    }

    fn connect(path: &Path, how: OpenFlags, stop: Arc<AtomicBool>) -> Result<Store, StoreError> {
        check_companions(path).map_err(|PlantedFile(at)| StoreError::PlantedFile(at))?;
        let opened = || {
            let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | how;
            let connection = Connection::open_with_flags(path, flags)?;
            connection.busy_timeout(POLL_INTERVAL)?;
            connection.pragma_update(None, "foreign_keys", true)?;
            // The file may be from an untrusted source.
            connection.pragma_update(None, "trusted_schema", false)?;
            // Only a commit waits for readers, and it can be retried. A full cache would wait in the middle of a
            // transaction.
            connection.pragma_update(None, "cache_spill", false)?;
            Ok(connection)
        };
        let connection =
            retry_while_locked(&stop, opened).map_err(|error| store_error(path, "opened", error))?;
        Ok(Store { connection, path: path.to_owned(), stop })
    }

    fn read_state(&self) -> Result<FileState, StoreError> {
        self.retry_while_locked("opened", || file_state(&self.connection))
    }

    /// Repeats an operation that starts from scratch, while other processes lock the store.
    fn retry_while_locked<T>(
        &self,
        what: &'static str,
        done: impl FnMut() -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        retry_while_locked(&self.stop, done).map_err(|error| self.store_error(what, error))
    }

    fn check_version(&self) -> Result<(), StoreError> {
        match self.read_state()? {
            FileState::Linkgauge(VERSION) => Ok(()),
            FileState::Linkgauge(version) => {
                Err(StoreError::OtherVersion { path: self.path.clone(), version })
            }
            FileState::Empty | FileState::Foreign => Err(StoreError::NotAStore(self.path.clone())),
        }
    }

    fn store_error(&self, what: &'static str, error: rusqlite::Error) -> StoreError {
        store_error(&self.path, what, error)
    }

    /// Starts a write transaction. It waits for other processes now, never in the middle.
    /// Checks that the store can be written, without a change.
    ///
    /// # Errors
    ///
    /// The file or its directory cannot be written, or another program does not release the store.
    pub fn check_writable(&self) -> Result<(), StoreError> {
        // To begin a transaction needs no permission.
        let transaction = self.begin_write("written")?;
        let tried = transaction.execute_batch("CREATE TABLE tried (x)");
        tried.map_err(|error| self.store_error("written", error))
    }

    fn begin_write(&self, what: &'static str) -> Result<Transaction<'_>, StoreError> {
        self.retry_while_locked(what, || {
            Transaction::new_unchecked(&self.connection, TransactionBehavior::Immediate)
        })
    }

    /// Commits a write transaction after the current readers have finished.
    fn commit(&self, transaction: Transaction, what: &'static str) -> Result<(), StoreError> {
        self.retry_while_locked(what, || transaction.execute_batch("COMMIT"))
    }

    /// Saves a run. An existing run is neither duplicated nor overwritten.
    ///
    /// # Errors
    ///
    /// [`StoreError::ConflictingRun`] if the store has another run with this id, [`StoreError::InvalidId`] if the id is not
    /// that of a run. Fails if the file cannot be written.
    pub fn save(&mut self, run: &Run) -> Result<SaveOutcome, StoreError> {
        if !is_valid_id(&run.id) {
            return Err(StoreError::InvalidId(quote_id(&run.id)));
        }
        let cannot = |error| self.store_error("written", error);
        let transaction = self.begin_write("written")?;
        let there: Option<Vec<u8>> = transaction
            .query_row(
                "SELECT deflated FROM document JOIN run ON run.number = document.run WHERE id = ?1",
                [&run.id],
                |row| row.get(0),
            )
            .optional()
            .map_err(cannot)?;
        if let Some(there) = there {
            let there = document::inflate(&there).and_then(|text| Run::from_json(&text).ok());
            return if there.as_ref() == Some(run) {
                Ok(SaveOutcome::AlreadySaved)
            } else {
                Err(StoreError::ConflictingRun(run.id.clone()))
            };
        }
        insert_run(&transaction, run, &document::deflate(&document::to_json(run))).map_err(cannot)?;
        self.commit(transaction, "written")?;
        Ok(SaveOutcome::Saved)
    }

    /// Loads a run by id, by a prefix of the id, or by its random part. `last` is the run that started last.
    ///
    /// # Errors
    ///
    /// As [`Store::resolve_id`]. Fails if the document is damaged or invalid.
    pub fn load(&self, text: &str) -> Result<Run, StoreError> {
        let id = self.resolve_id(text)?;
        let document = "SELECT deflated FROM document JOIN run ON run.number = document.run WHERE id = ?1";
        let read = || self.connection.query_row(document, [&id], |row| row.get(0)).optional();
        let deflated: Option<Vec<u8>> = self.retry_while_locked("read", read)?;
        let deflated = deflated.ok_or_else(|| StoreError::Damaged(id.clone()))?;
        let text = document::inflate(&deflated).ok_or_else(|| StoreError::Damaged(id.clone()))?;
        Run::from_json(&text).map_err(|error| StoreError::Document { id, error })
    }

    /// Tags a run, so that runs can be found as a set. Existing tags are ignored.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be written.
    pub fn tag(&mut self, id: &str, names: &[String]) -> Result<(), StoreError> {
        self.change_tags(
            id,
            names,
            "INSERT OR IGNORE INTO tag (name, run) SELECT ?1, number FROM run WHERE id = ?2",
        )
    }

    /// Removes tags of a run. Missing tags are ignored.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be written.
    pub fn untag(&mut self, id: &str, names: &[String]) -> Result<(), StoreError> {
        self.change_tags(
            id,
            names,
            "DELETE FROM tag WHERE name = ?1 AND run = (SELECT number FROM run WHERE id = ?2)",
        )
    }

    fn change_tags(&mut self, id: &str, names: &[String], statement: &str) -> Result<(), StoreError> {
        let transaction = self.begin_write("written")?;
        for name in names {
            transaction.execute(statement, [name, id]).map_err(|error| self.store_error("written", error))?;
        }
        self.commit(transaction, "written")
    }

    /// Removes all of these runs or none, and shrinks the file.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be written.
    pub fn remove(&mut self, ids: &[String]) -> Result<(), StoreError> {
        let transaction = self.begin_write("written")?;
        for id in ids {
            transaction
                .execute("DELETE FROM run WHERE id = ?1", [id])
                .map_err(|error| self.store_error("written", error))?;
        }
        self.commit(transaction, "written")?;
        // If this fails, the file does not shrink and later runs reuse the space.
        let _ = self.retry_while_locked("written", || self.connection.execute_batch("VACUUM"));
        Ok(())
    }
}

fn store_error(path: &Path, what: &'static str, error: rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => StoreError::NotAStore(path.to_owned()),
        Some(ErrorCode::DatabaseBusy) => StoreError::Locked { path: path.to_owned(), what },
        _ => StoreError::Sql { path: path.to_owned(), what, error },
    }
}

/// Retries while other processes lock the store, until the timeout or a stop request.
fn retry_while_locked<T>(
    stop: &AtomicBool,
    mut done: impl FnMut() -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    let mut until = Instant::now() + LOCK_TIMEOUT;
    loop {
        match done() {
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => {
                if stop.load(Relaxed) {
                    until = until.min(Instant::now() + STOP_GRACE_PERIOD);
                }
                if Instant::now() >= until {
                    return Err(error);
                }
                // SQLite returns immediately when it detects a deadlock.
                std::thread::sleep(Duration::from_millis(10));
            }
            done => return done,
        }
    }
}

/// The origin of a file.
#[derive(Debug, PartialEq, Eq)]
enum FileState {
    /// An empty file.
    Empty,
    /// A linkgauge store of this version.
    Linkgauge(i32),
    Foreign,
}

fn file_state(connection: &Connection) -> rusqlite::Result<FileState> {
    let number = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    Ok(match (number("application_id")?, number("user_version")?, tables) {
        (APPLICATION_ID, version, _) => FileState::Linkgauge(version),
        (0, 0, 0) => FileState::Empty,
        _ => FileState::Foreign,
    })
}

fn create_tables(transaction: &Transaction) -> rusqlite::Result<()> {
    transaction.execute_batch(CREATE_TABLES_SQL)?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", VERSION)
}

fn insert_run(transaction: &Transaction, run: &Run, deflated: &[u8]) -> rusqlite::Result<()> {
    let host = run.environment.client.get("hostname").and_then(|name| name.as_str());
    transaction
        .prepare(
            "INSERT INTO run (id, started_us, host, title, tool, complete) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute(params![
            run.id,
            run.started.as_microsecond(),
            host,
            run.title,
            run.tool,
            run.is_complete()
        ])?;
    let number = transaction.last_insert_rowid();
    transaction
        .prepare("INSERT INTO document (run, deflated) VALUES (?1, ?2)")?
        .execute(params![number, deflated])?;
    let mut measured = transaction.prepare(
        "INSERT INTO measured (run, number, endpoint, protocol, workload, direction, message_bytes, ports, parallel,
             method, settings, headline, figures) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
    )?;
    for (case, index) in run.cases.iter().zip(1i64..) {
        measured.execute(params![
            number,
            index,
            case.endpoint,
            case.protocol,
            case.workload,
            case.direction.name(),
            case.message_bytes,
            case.ports,
            case.parallel,
            case.method,
            case.history_label(),
            Metric::headline(case).name(),
            Value::Object(Metric::json_of_case(case)).to_string(),
        ])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
