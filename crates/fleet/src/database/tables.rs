//! The tables of collected results, and how a batch of results gets into them.
//!
//! Both tables have a partition for each month (UTC), which is made when the first run of that month arrives.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::Serialize;
use serde_json::{Map, Value};
use tokio_postgres::{Client, Transaction};

use super::WorkFailure;
use crate::collect::CollectedTest;
use crate::metrics::Receipt;
use linkgauge_model::metric::Metric;
use linkgauge_model::run::{CaseResult, Run};

/// What makes each version of the tables out of the one before.
const UPDATES: [&str; 1] = ["
    CREATE TABLE linkgauge.run (
        id text NOT NULL,
        started timestamptz NOT NULL,
        round text NOT NULL,
        from_host text NOT NULL,
        to_host text NOT NULL,
        tool text NOT NULL,
        complete boolean NOT NULL,
        tags text[] NOT NULL,
        document jsonb NOT NULL,
        PRIMARY KEY (id, started)
    ) PARTITION BY RANGE (started);
    CREATE TABLE linkgauge.measured (
        run text NOT NULL,
        number integer NOT NULL,
        started timestamptz NOT NULL,
        round text NOT NULL,
        from_host text NOT NULL,
        to_host text NOT NULL,
        workload text NOT NULL,
        protocol text NOT NULL,
        direction text NOT NULL,
        message_bytes bigint NOT NULL,
        ports integer NOT NULL,
        parallel integer NOT NULL,
        method text NOT NULL,
        settings text NOT NULL,
        headline text NOT NULL,
        figures jsonb NOT NULL,
        PRIMARY KEY (run, number, started)
    ) PARTITION BY RANGE (started);
    CREATE INDEX ON linkgauge.measured (from_host, to_host, started);
"];

/// The version of the tables that this program writes.
pub(crate) const VERSION: usize = UPDATES.len();

/// Number of the lock that collectors take in turns: "LGst", as in the file of a store.
const LOCK: i64 = 0x4c47_7374;

const PARTITIONED: [&str; 2] = ["run", "measured"];

/// Saves the runs that are not in the table yet, and returns the others with whether they are the same.
const SAVE: &str = "
    WITH arrived AS MATERIALIZED (
        SELECT * FROM jsonb_to_recordset($1::text::jsonb) AS arrived (
            id text, started timestamptz, round text, from_host text, to_host text, tool text, complete boolean,
            tags text[], document jsonb, cases jsonb)
    ), known AS MATERIALIZED (
        SELECT id, run.document = arrived.document AS same FROM arrived JOIN linkgauge.run USING (id)
    ), missing AS MATERIALIZED (
        SELECT * FROM arrived WHERE id NOT IN (SELECT id FROM known)
    ), saved AS (
        INSERT INTO linkgauge.run (id, started, round, from_host, to_host, tool, complete, tags, document)
        SELECT id, started, round, from_host, to_host, tool, complete, tags, document FROM missing
    ), measured AS (
        INSERT INTO linkgauge.measured (run, number, started, round, from_host, to_host, workload, protocol,
            direction, message_bytes, ports, parallel, method, settings, headline, figures)
        SELECT id, number, started, round, from_host, to_host, workload, protocol,
            direction, message_bytes, ports, parallel, method, settings, headline, figures
        FROM missing, jsonb_to_recordset(cases) AS each (
            number integer, workload text, protocol text, direction text, message_bytes bigint, ports integer,
            parallel integer, method text, settings text, headline text, figures jsonb)
    )
    SELECT id, same FROM known";

/// A run, and what belongs to it.
#[derive(Serialize)]
pub(crate) struct RunRow<'a> {
    id: &'a str,
    started: Timestamp,
    round: &'a str,
    from_host: &'a str,
    to_host: &'a str,
    tool: &'a str,
    complete: bool,
    tags: &'a [String],
    document: &'a Run,
    cases: Vec<CaseRow<'a>>,
}

#[derive(Serialize)]
struct CaseRow<'a> {
    number: usize,
    workload: &'a str,
    protocol: &'a str,
    direction: &'static str,
    message_bytes: u32,
    ports: u32,
    parallel: u32,
    method: &'a str,
    settings: String,
    headline: String,
    figures: Map<String, Value>,
}

impl<'a> RunRow<'a> {
    /// The row of a test that was measured.
    pub fn new(test: &'a CollectedTest, run: &'a Run, tags: &'a [String]) -> RunRow<'a> {
        RunRow {
            id: &run.id,
            started: run.started,
            round: &test.round,
            from_host: &test.from,
            to_host: &test.to,
            tool: &run.tool,
            complete: run.is_complete(),
            tags,
            document: run,
            cases: run.cases.iter().zip(1..).map(CaseRow::new).collect(),
        }
    }

    /// Number of the run.
    pub(crate) fn id(&self) -> &str {
        self.id
    }
}

impl<'a> CaseRow<'a> {
    pub fn new((case, number): (&'a CaseResult, usize)) -> CaseRow<'a> {
        CaseRow {
            number,
            workload: &case.workload,
            protocol: &case.protocol,
            direction: case.direction.name(),
            message_bytes: case.message_bytes,
            ports: case.ports,
            parallel: case.parallel,
            method: &case.method,
            settings: case.history_label(),
            headline: Metric::headline(case).name().to_owned(),
            figures: Metric::json_of_case(case),
        }
    }
}

/// A month in UTC, which has a partition of each table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Month(Date);

impl Month {
    /// The month of a time.
    pub(crate) fn of(time: Timestamp) -> Month {
        Month(TimeZone::UTC.to_datetime(time).date().first_of_month())
    }

    fn next(self) -> Month {
        Month(self.0.last_of_month().tomorrow().unwrap_or(self.0))
    }

    fn partition(self, table: &str) -> String {
        format!("linkgauge.{table}_{:04}_{:02}", self.0.year(), self.0.month())
    }
}

/// The first moment of the month.
impl fmt::Display for Month {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} 00:00:00+00", self.0)
    }
}

/// Begins a transaction when no other collector has one.
pub async fn begin(client: &mut Client) -> Result<Transaction<'_>, tokio_postgres::Error> {
    let transaction = client.transaction().await?;
    transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK]).await?;
    Ok(transaction)
}

/// Makes the tables, or brings them up to date.
pub(crate) async fn update(client: &mut Client) -> Result<(), WorkFailure> {
    let transaction = begin(client).await?;
    let exists = transaction.query_one("SELECT to_regclass('linkgauge.version') IS NOT NULL", &[]).await?;
    if !exists.get::<_, bool>(0) {
        // A user that may not make a schema can have one made.
        let made = transaction.query_one("SELECT to_regnamespace('linkgauge') IS NULL", &[]).await?;
        if made.get::<_, bool>(0) {
            transaction.batch_execute("CREATE SCHEMA linkgauge").await?;
        }
        let version = "CREATE TABLE linkgauge.version (number integer NOT NULL); INSERT INTO linkgauge.version VALUES (0)";
        transaction.batch_execute(version).await?;
    }
    let version: i32 = transaction.query_one("SELECT number FROM linkgauge.version", &[]).await?.get(0);
    let known = usize::try_from(version).ok().filter(|version| *version <= VERSION);
    let missing = &UPDATES[known.ok_or(WorkFailure::Newer(version))?..];
    for update in missing {
        transaction.batch_execute(update).await?;
        transaction.execute("UPDATE linkgauge.version SET number = number + 1", &[]).await?;
    }
    Ok(transaction.commit().await?)
}

/// Saves all of these rows, whose ids differ, or none. When it returns they are on the disk.
pub(crate) async fn write(
    client: &mut Client,
    rows: &[(RunRow<'_>, Month)],
) -> Result<Vec<Receipt>, WorkFailure> {
    let transaction = begin(client).await?;
    make_partitions(&transaction, &rows.iter().map(|(_, month)| *month).collect()).await?;
    let documents: Vec<&RunRow> = rows.iter().map(|(row, _)| row).collect();
    let documents =
        serde_json::to_string(&documents).expect("a run has only texts as keys, and its numbers are finite");
    let known = transaction.query(SAVE, &[&documents]).await?;
    transaction.commit().await?;
    let known: BTreeMap<String, bool> = known.iter().map(|row| (row.get(0), row.get(1))).collect();
    let receipt = |row: &RunRow| match known.get(row.id) {
        None => Receipt::Saved,
        Some(true) => Receipt::Duplicate,
        Some(false) => Receipt::Conflicting,
    };
    Ok(rows.iter().map(|(row, _)| receipt(row)).collect())
}

/// Makes the partitions that are missing. Attached partitions do not wait for readers of the table, unlike new ones.
async fn make_partitions(
    transaction: &Transaction<'_>,
    months: &BTreeSet<Month>,
) -> Result<(), tokio_postgres::Error> {
    for month in months {
        for table in PARTITIONED {
            let partition = month.partition(table);
            let missing = transaction.query_one("SELECT to_regclass($1) IS NULL", &[&partition]).await?;
            if missing.get::<_, bool>(0) {
                let statements = format!(
                    "CREATE TABLE {partition} (LIKE linkgauge.{table});
                     ALTER TABLE linkgauge.{table} ATTACH PARTITION {partition} FOR VALUES FROM ('{month}') TO ('{}')",
                    month.next()
                );
                transaction.batch_execute(&statements).await?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_month_begins_and_ends_in_utc() {
        let month = |time: &str| Month::of(time.parse().unwrap());
        let december = month("2026-12-31T23:59:59.999999999Z");
        assert_eq!(december, month("2026-12-01T00:00:00Z"));
        assert_eq!(december.partition("run"), "linkgauge.run_2026_12");
        assert_eq!(december.to_string(), "2026-12-01 00:00:00+00");
        assert_eq!(december.next(), month("2027-01-01T00:00:00Z"));
    }
}
