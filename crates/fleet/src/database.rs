//! Collected results in PostgreSQL: `linkgauge fleet collect --database`.
//!
//! A run is saved once: collectors take turns, and each batch is one transaction. `tables` has the schema, `address` says where the
//! database is and whether the connection is encrypted, `tls` encrypts it.
//!
//! The asynchronous client works only while a caller waits for it, in the thread of the caller.

mod address;
mod tables;
mod tls;

use std::collections::BTreeMap;
use std::error::Error as _;
use std::fmt;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::Client;
use tokio_postgres::error::{DbError, SqlState};

use super::certificate;
use super::collect::{CollectedTest, TestOutcome};
use super::metrics::Receipt;
use address::Address;
use linkgauge_model::run::Run;
use tables::{Month, RunRow};

/// Time for a connection, and for a batch of results.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Remaining time after a stop request.
const STOP_GRACE_PERIOD: Duration = Duration::from_secs(2);

/// Time between two looks at the stop request.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Results that are older, or younger than now, are refused. So the clock of one agent cannot make thousands of partitions.
const MAX_AGE: Duration = Duration::from_secs(366 * 86_400);
const MAX_LEAD: Duration = Duration::from_secs(86_400);

/// More than any id of ours has.
const MAX_ID_CHARS: usize = 64;

/// Settings of each session: no lock is waited for longer than a batch may take, none outlives a collector that was lost, and a committed
/// batch is on the disk whatever the server usually does.
const SESSION: &str = "SET statement_timeout = '25s'; SET lock_timeout = '10s'; SET idle_in_transaction_session_timeout = '30s';
    SET synchronous_commit = on; SET TimeZone = 'UTC'; SET client_min_messages = warning";

/// Why a database did not save results.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DatabaseError {
    /// The URL cannot be used. It is not repeated: it may hold a password.
    #[error("--database: {0}. Write it like postgresql://collector@db.example/links")]
    Url(String),
    /// Certificates cannot be read.
    #[error("{}: no certificates in PEM form: {reason}", .path.display())]
    Certificates {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// There is no connection.
    #[error("{url}: the database cannot be reached: {reason}")]
    Connect {
        /// Without a password.
        url: String,
        /// Why, and what to try.
        reason: String,
    },
    /// A newer version made the tables.
    #[error(
        "{url}: its tables have version {version}, this program knows {}. Use a newer linkgauge",
        tables::VERSION
    )]
    Newer {
        /// Without a password.
        url: String,
        /// Version of the tables.
        version: i32,
    },
    /// The database refused what was asked, or the connection was lost.
    #[error("{url}: {what}: {reason}")]
    Failed {
        /// Without a password.
        url: String,
        /// What failed.
        what: &'static str,
        /// Why.
        reason: String,
    },
    /// The caller was asked to stop, and the database did not respond.
    #[error("{0}: stopped before the database responded")]
    Stopped(String),
    /// The system refused a runtime.
    #[error("the connection to the database cannot be prepared: {0}")]
    System(#[from] std::io::Error),
}

/// Why a single result was not saved. It would be refused again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("run {id}: {why}")]
pub struct RejectedResult {
    id: String,
    why: String,
}

impl RejectedResult {
    pub(crate) fn new(id: &str, why: String) -> RejectedResult {
        // An id that is refused may be refused for its length.
        RejectedResult { id: id.chars().take(MAX_ID_CHARS).collect(), why }
    }
}

/// Why work at the database ended early.
#[derive(Debug)]
enum WorkFailure {
    Sql(tokio_postgres::Error),
    Timeout,
    Stopped,
    Newer(i32),
}

impl From<tokio_postgres::Error> for WorkFailure {
    fn from(error: tokio_postgres::Error) -> WorkFailure {
        WorkFailure::Sql(error)
    }
}

impl fmt::Display for WorkFailure {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            WorkFailure::Sql(error) => f.write_str(&reason(error)),
            WorkFailure::Timeout => write!(f, "no reply within {} s", TIMEOUT.as_secs()),
            WorkFailure::Stopped => f.write_str("stopped"),
            WorkFailure::Newer(version) => write!(f, "tables of version {version}"),
        }
    }
}

/// What the server says, or the reason below the errors of the client.
fn reason(error: &tokio_postgres::Error) -> String {
    if let Some(said) = error.as_db_error() {
        let detail = said.detail().map(|detail| format!(" ({detail})")).unwrap_or_default();
        return format!("{}{detail}{}", said.message(), remedy(said));
    }
    if let Some(remedy) = certificate::remedy(error, "?sslrootcert=FILE at the end of the URL") {
        return remedy;
    }
    let mut text = error.to_string();
    let mut below = error.source();
    while let Some(error) = below {
        text = format!("{text}: {error}");
        below = error.source();
    }
    if text.contains("password missing") {
        text += PASSWORD;
    }
    text
}

/// Where a password is taken from.
const PASSWORD: &str = ". Set PGPASSWORD, or use --password-file";

fn remedy(said: &DbError) -> &'static str {
    match *said.code() {
        SqlState::INVALID_PASSWORD | SqlState::INVALID_AUTHORIZATION_SPECIFICATION => PASSWORD,
        SqlState::INSUFFICIENT_PRIVILEGE => {
            ". The user must own the schema linkgauge, or be allowed to create it"
        }
        _ => "",
    }
}

/// Whether this result is refused, whenever it is tried: a value that the database cannot hold.
fn is_of_value(error: &tokio_postgres::Error) -> bool {
    // Data exceptions, and limits such as the length of an indexed text.
    error.code().is_some_and(|code| ["22", "54"].iter().any(|class| code.code().starts_with(class)))
}

/// Where results are saved, and by whom.
#[derive(Debug)]
pub struct DatabaseOptions {
    /// `postgresql://USER@HOST[:PORT]/NAME`, without a password.
    pub url: String,
    /// The password, if the server asks for one.
    pub password: Option<String>,
    /// Set on a stop request: then nothing is waited for any more.
    pub stop: Arc<AtomicBool>,
}

/// A database of results. The connection is made again when it was lost.
pub struct Database {
    address: Address,
    // Dropped before the runtime.
    client: Option<Client>,
    runtime: Runtime,
    stop: Arc<AtomicBool>,
}

impl Database {
    /// Connects, and makes the tables or brings them up to date.
    ///
    /// # Errors
    ///
    /// The URL is invalid, the server cannot be reached or refuses the user, or the tables cannot be made.
    pub fn open(options: DatabaseOptions) -> Result<Database, DatabaseError> {
        let address = Address::of_url(&options.url, options.password)?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let mut database = Database { address, client: None, runtime, stop: options.stop };
        database.client = Some(database.connect()?);
        Ok(database)
    }

    fn connect(&self) -> Result<Client, DatabaseError> {
        let connected = wait(&self.runtime, &self.stop, connect(&self.address));
        let mut client = connected.map_err(|failure| match failure {
            WorkFailure::Stopped => DatabaseError::Stopped(self.address.url.clone()),
            failure => DatabaseError::Connect { url: self.address.url.clone(), reason: failure.to_string() },
        })?;
        let updated = wait(&self.runtime, &self.stop, tables::update(&mut client));
        updated.map_err(|failure| self.failed("its tables cannot be made", failure))?;
        Ok(client)
    }

    fn failed(&self, what: &'static str, failure: WorkFailure) -> DatabaseError {
        let url = self.address.url.clone();
        match failure {
            WorkFailure::Newer(version) => DatabaseError::Newer { url, version },
            WorkFailure::Stopped => DatabaseError::Stopped(url),
            failure => DatabaseError::Failed { url, what, reason: failure.to_string() },
        }
    }

    /// Saves the runs of these tests with these tags, and returns what became of each. Afterwards they are on the disk.
    ///
    /// # Errors
    ///
    /// The database did not save them: try again. Those that it did save are duplicates then.
    pub fn save(
        &mut self,
        tests: &[&CollectedTest],
        tags: &[String],
    ) -> Result<Vec<Result<Receipt, RejectedResult>>, DatabaseError> {
        let now = Timestamp::now();
        let mut receipts: Vec<Option<Result<Receipt, RejectedResult>>> = vec![None; tests.len()];
        let mut first: BTreeMap<&str, &Run> = BTreeMap::new();
        let mut rows = Vec::new();
        for (test, receipt) in tests.iter().zip(&mut receipts) {
            let TestOutcome::Measured(run) = &test.outcome else {
                *receipt = Some(Ok(Receipt::Failed));
                continue;
            };
            match first.get(run.id.as_str()) {
                Some(other) if **other == **run => *receipt = Some(Ok(Receipt::Duplicate)),
                Some(_) => *receipt = Some(Ok(Receipt::Conflicting)),
                None => match check_time(run, now) {
                    Err(refusal) => *receipt = Some(Err(refusal)),
                    Ok(month) => {
                        first.insert(&run.id, run);
                        rows.push((RunRow::new(test, run, tags), month));
                    }
                },
            }
        }
        let mut saved = self.save_rows(&rows)?.into_iter();
        let complete =
            |receipt: Option<_>| receipt.unwrap_or_else(|| saved.next().expect("one for each row"));
        Ok(receipts.into_iter().map(complete).collect())
    }

    /// Saves all of these rows in one transaction. If the database cannot hold one of them, it is found and left out.
    fn save_rows(
        &mut self,
        rows: &[(RunRow, Month)],
    ) -> Result<Vec<Result<Receipt, RejectedResult>>, DatabaseError> {
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        // A connection in an unknown state is not used again.
        let mut client = match self.client.take().filter(|client| !client.is_closed()) {
            Some(client) => client,
            None => self.connect()?,
        };
        match wait(&self.runtime, &self.stop, tables::write(&mut client, rows)) {
            Ok(receipts) => {
                self.client = Some(client);
                Ok(receipts.into_iter().map(Ok).collect())
            }
            Err(WorkFailure::Sql(error)) if is_of_value(&error) => {
                self.client = Some(client);
                if let [(row, _)] = rows {
                    return Ok(vec![Err(RejectedResult::new(row.id(), reason(&error)))]);
                }
                let (before, after) = rows.split_at(rows.len() / 2);
                let mut receipts = self.save_rows(before)?;
                receipts.extend(self.save_rows(after)?);
                Ok(receipts)
            }
            Err(failure) => Err(self.failed("results cannot be saved", failure)),
        }
    }
}

/// The month of a run, if its time is possible.
fn check_time(run: &Run, now: Timestamp) -> Result<Month, RejectedResult> {
    if run.started < now - MAX_AGE || run.started > now + MAX_LEAD {
        let why = format!(
            "it began at {}: the clock of its host is wrong, or it is older than a year",
            run.started
        );
        return Err(RejectedResult::new(&run.id, why));
    }
    Ok(Month::of(run.started))
}

async fn connect(address: &Address) -> Result<Client, WorkFailure> {
    let (client, connection) = address.config.connect(address.tls.clone()).await?;
    // Its end is an error of the client's next request.
    tokio::spawn(async move { drop(connection.await) });
    client.batch_execute(SESSION).await?;
    Ok(client)
}

/// Waits for the database, until the timeout or a stop request.
fn wait<T>(
    runtime: &Runtime,
    stop: &AtomicBool,
    work: impl Future<Output = Result<T, WorkFailure>>,
) -> Result<T, WorkFailure> {
    runtime.block_on(async {
        let mut work = pin!(work);
        let (began, mut stopped) = (Instant::now(), None);
        loop {
            if let Ok(done) = tokio::time::timeout(POLL_INTERVAL, work.as_mut()).await {
                return done;
            }
            if began.elapsed() > TIMEOUT {
                return Err(WorkFailure::Timeout);
            }
            let is_stopped = stop.load(Relaxed);
            if is_stopped && stopped.get_or_insert_with(Instant::now).elapsed() > STOP_GRACE_PERIOD {
                return Err(WorkFailure::Stopped);
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_another_age_is_refused() {
        let document = include_str!("../../../tests/data/run-v1-latency.json");
        let mut run = Run::from_json(document).unwrap();
        let now: Timestamp = "2026-11-23T12:00:00Z".parse().unwrap();
        for (started, is_possible) in [
            ("2026-11-23T12:00:00Z", true),
            ("2026-11-24T11:00:00Z", true),
            ("2025-11-23T12:00:00Z", true),
            ("2026-11-25T12:00:00Z", false),
            ("2025-11-01T12:00:00Z", false),
            ("-009999-01-02T01:59:59Z", false),
        ] {
            run.started = started.parse().unwrap();
            assert_eq!(check_time(&run, now).is_ok(), is_possible, "{started}");
        }
    }
}
