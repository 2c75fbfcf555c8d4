//! Searching the store: which runs there are, and how a figure went over time. Reads columns, never documents.

use std::collections::BTreeMap;

use jiff::Timestamp;
use rusqlite::types::{Type, Value};
use rusqlite::{Row, ToSql, params_from_iter};

use super::{Store, StoreError};
use crate::metric::Metric;

/// Which runs; what is `None` lets all through.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Part of the endpoint of one of its cases.
    pub endpoint: Option<String>,
    pub host: Option<String>,
    pub tag: Option<String>,
    pub workload: Option<String>,
    /// Began then or later.
    pub since: Option<Timestamp>,
    /// Began before.
    pub until: Option<Timestamp>,
    /// Only so many, those that began last.
    pub limit: Option<usize>,
}

/// A run as the list shows it.
#[derive(Debug, Clone, PartialEq)]
pub struct RunEntry {
    pub id: String,
    pub started: Timestamp,
    pub host: Option<String>,
    pub title: Option<String>,
    pub complete: bool,
    /// How many it has.
    pub cases: u32,
    /// Of its first case.
    pub endpoint: Option<String>,
    /// The figure that stands for its first case: name of the metric, and value where there is one.
    pub headline: Option<(String, Option<f64>)>,
    pub tags: Vec<String>,
}

/// A case over time: the same in everything that a figure depends on.
#[derive(Debug, Clone, PartialEq)]
pub struct Trend {
    pub endpoint: String,
    pub peer: String,
    pub workload: String,
    pub direction: String,
    pub message_bytes: u32,
    pub ports: u32,
    pub parallel: u32,
    pub method: String,
    /// `100/s`, `spin`; mostly empty.
    pub settings: String,
    pub host: Option<String>,
    /// Oldest first.
    pub points: Vec<TrendPoint>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct TrendPoint {
    pub id: String,
    pub started: Timestamp,
    /// In the metric's unit; infinite where it was not reached.
    pub value: f64,
}

/// What was found; what cannot be read hides nothing else.
#[derive(Debug, Clone, PartialEq)]
pub struct Listing<T> {
    pub entries: Vec<T>,
    /// Which rows are damaged, and how.
    pub damaged: Vec<String>,
}

impl<T> Default for Listing<T> {
    fn default() -> Listing<T> {
        Listing { entries: Vec::new(), damaged: Vec::new() }
    }
}

/// Conditions on `run`, with what they are to be compared with.
struct FilterCondition {
    text: String,
    values: Vec<Value>,
}

impl FilterCondition {
    fn from_filter(filter: &Filter) -> FilterCondition {
        let mut found = FilterCondition { text: "1".to_owned(), values: Vec::new() };
        let text = |text: &Option<String>| text.clone().map(Value::Text);
        let time = |time: Option<Timestamp>| time.map(|time| Value::Integer(time.as_microsecond()));
        let part = "run.number IN (SELECT run FROM measured WHERE instr(endpoint, ?) > 0)";
        found.add(part, text(&filter.endpoint));
        found.add("run.number IN (SELECT run FROM measured WHERE workload = ?)", text(&filter.workload));
        found.add("run.number IN (SELECT run FROM tag WHERE name = ?)", text(&filter.tag));
        found.add("run.host = ?", text(&filter.host));
        found.add("run.started_us >= ?", time(filter.since));
        found.add("run.started_us < ?", time(filter.until));
        found
    }

    fn add(&mut self, condition: &str, value: Option<Value>) {
        if let Some(value) = value {
            self.text += " AND ";
            self.text += condition;
            self.values.push(value);
        }
    }
}

/// SQL for "all of them".
const NO_LIMIT: i64 = -1;

impl Store {
    /// The runs that the filter lets through, the last one first.
    pub fn runs(&self, filter: &Filter) -> Result<Listing<RunEntry>, StoreError> {
        let FilterCondition { text, mut values } = FilterCondition::from_filter(filter);
        values.push(Value::Integer(filter.limit.map_or(NO_LIMIT, |limit| limit as i64)));
        let statement = format!(
            "SELECT id, started_us, host, title, complete,
                 (SELECT count(*) FROM measured WHERE measured.run = run.number),
                 first.endpoint, first.headline, CASE WHEN json_valid(first.figures)
                     THEN json_extract(first.figures, '$.\"' || first.headline || '\"') END,
                 (SELECT group_concat(name, char(10)) FROM tag WHERE tag.run = run.number)
             FROM run LEFT JOIN measured AS first ON first.run = run.number AND first.number = 1
             WHERE {text} ORDER BY started_us DESC, run.number DESC LIMIT ?"
        );
        self.query_rows(&statement, values, 0, read_entry)
    }

    /// How a metric went, for each case that the filter lets through and that has it; the filter's limit counts runs.
    pub fn trends(&self, filter: &Filter, metric: &Metric) -> Result<Listing<Trend>, StoreError> {
        let FilterCondition { text, values } = FilterCondition::from_filter(filter);
        let path = Value::Text(format!("$.\"{}\"", metric.name()));
        // Of what is no JSON the type is this word.
        let kind = "CASE WHEN json_valid(figures) THEN json_type(figures, ?) ELSE 'damaged' END";
        let value = "CASE WHEN json_valid(figures) THEN json_extract(figures, ?) END";
        let mut all = vec![path.clone(), path.clone()];
        all.extend(values);
        all.push(Value::Integer(filter.limit.map_or(NO_LIMIT, |limit| limit as i64)));
        all.push(path);
        let mut conditions = String::new();
        for (column, value) in [("endpoint", &filter.endpoint), ("workload", &filter.workload)] {
            if let Some(value) = value {
                let how = if column == "endpoint" { "instr(endpoint, ?) > 0" } else { "workload = ?" };
                conditions += &format!(" AND {how}");
                all.push(Value::Text(value.clone()));
            }
        }
        let statement = format!(
            "SELECT endpoint, peer, workload, direction, message_bytes, ports, parallel, method, host, id, started_us,
                 {value}, {kind}, settings
             FROM (SELECT * FROM run WHERE {text} ORDER BY started_us DESC, run.number DESC LIMIT ?) AS run
             JOIN measured ON measured.run = run.number
             WHERE {kind} IS NOT NULL{conditions} ORDER BY started_us, run.number, measured.number"
        );
        let mut trends: BTreeMap<String, Trend> = BTreeMap::new();
        let found = self.query_rows(&statement, all, 9, read_point)?;
        for (trend, point) in found.entries {
            // What tells the cases apart is everything but the points.
            let key = format!("{trend:?}");
            trends.entry(key).or_insert(trend).points.push(point);
        }
        Ok(Listing { entries: trends.into_values().collect(), damaged: found.damaged })
    }

    /// The whole id of a run that somebody named.
    pub fn resolve_id(&self, text: &str) -> Result<String, StoreError> {
        let newest = "SELECT id FROM run ORDER BY started_us DESC, number DESC LIMIT 1";
        let fitting = "SELECT id FROM run WHERE id = ?1
             UNION SELECT id FROM run WHERE instr(id, ?1) = 1 OR instr(id, '-' || ?1) > 0";
        let id = |row: &Row| row.get::<_, String>(0);
        let mut found = match text {
            "last" => self.query_rows(newest, Vec::new(), 0, id)?.entries,
            "" => Vec::new(),
            _ => self.query_rows(fitting, vec![Value::Text(text.to_owned())], 0, id)?.entries,
        };
        match found.len() {
            0 => Err(StoreError::Unknown(text.to_owned())),
            1 => Ok(found.remove(0)),
            _ if found.iter().any(|id| id == text) => Ok(text.to_owned()),
            count => Err(StoreError::Ambiguous { text: text.to_owned(), count }),
        }
    }

    /// The ids of the runs that have this tag, the oldest first; there is at least one.
    pub fn ids_with_tag(&self, tag: &str) -> Result<Vec<String>, StoreError> {
        let ids = self.ids(&Filter { tag: Some(tag.to_owned()), ..Filter::default() })?;
        if ids.is_empty() {
            return Err(StoreError::UnknownTag(tag.to_owned()));
        }
        Ok(ids)
    }

    /// The ids of the runs that the filter lets through, the oldest first: of those as well whose other columns are damaged.
    pub fn ids(&self, filter: &Filter) -> Result<Vec<String>, StoreError> {
        let FilterCondition { text, values } = FilterCondition::from_filter(filter);
        let statement = format!("SELECT id FROM run WHERE {text} ORDER BY started_us, run.number");
        Ok(self.query_rows(&statement, values, 0, |row| row.get(0))?.entries)
    }

    /// All rows of a statement; `id` is the column that names the run of a damaged one.
    fn query_rows<T>(
        &self,
        statement: &str,
        values: Vec<Value>,
        id: usize,
        read: impl Fn(&Row) -> rusqlite::Result<T>,
    ) -> Result<Listing<T>, StoreError> {
        self.retry_while_locked("read", || {
            let mut statement = self.connection.prepare(statement)?;
            let values = values.iter().map(|value| value as &dyn ToSql);
            let mut rows = statement.query(params_from_iter(values))?;
            let mut listing = Listing::default();
            while let Some(row) = rows.next()? {
                match read(row) {
                    Ok(entry) => listing.entries.push(entry),
                    Err(error) => listing.damaged.push(format!("{}: {error}", run_label(row, id))),
                }
            }
            Ok(listing)
        })
    }
}

/// Of the run that a row belongs to.
fn run_label(row: &Row, id: usize) -> String {
    row.get(id).map_or("a run whose id cannot be read".to_owned(), |id: String| format!("run {id}"))
}

fn read_timestamp(row: &Row, column: usize) -> rusqlite::Result<Timestamp> {
    let microseconds: i64 = row.get(column)?;
    Timestamp::from_microsecond(microseconds)
        .map_err(|_| rusqlite::Error::IntegralValueOutOfRange(column, microseconds))
}

fn read_entry(row: &Row) -> rusqlite::Result<RunEntry> {
    let tags: Option<String> = row.get(9)?;
    let headline: Option<String> = row.get(7)?;
    let value: Option<f64> = row.get(8)?;
    Ok(RunEntry {
        id: row.get(0)?,
        started: read_timestamp(row, 1)?,
        host: row.get(2)?,
        title: row.get(3)?,
        complete: row.get(4)?,
        cases: row.get(5)?,
        endpoint: row.get(6)?,
        headline: headline.map(|name| (name, value)),
        tags: tags.map(|tags| tags.lines().map(str::to_owned).collect()).unwrap_or_default(),
    })
}

fn read_point(row: &Row) -> rusqlite::Result<(Trend, TrendPoint)> {
    let kind: String = row.get(12)?;
    if kind == "damaged" {
        return Err(rusqlite::Error::InvalidColumnType(11, "figures".to_owned(), Type::Text));
    }
    let value = if kind == "null" { f64::INFINITY } else { row.get(11)? };
    let trend = Trend {
        endpoint: row.get(0)?,
        peer: row.get(1)?,
        workload: row.get(2)?,
        direction: row.get(3)?,
        message_bytes: row.get(4)?,
        ports: row.get(5)?,
        parallel: row.get(6)?,
        method: row.get(7)?,
        settings: row.get(13)?,
        host: row.get(8)?,
        points: Vec::new(),
    };
    Ok((trend, TrendPoint { id: row.get(9)?, started: read_timestamp(row, 10)?, value }))
}
