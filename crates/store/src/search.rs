//! Searches the store for runs and for the trend of a figure. Reads columns, never documents.

use std::collections::BTreeMap;

use jiff::Timestamp;
use rusqlite::types::{Type, Value};
use rusqlite::{Row, ToSql, params_from_iter};

use super::{Store, StoreError};
use linkgauge_model::metric::Metric;
use linkgauge_model::run::CaseResult;

/// Selects runs. `None` does not restrict.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// A substring of the endpoint of one of its cases.
    pub endpoint: Option<String>,
    /// The host on which the run was made.
    pub host: Option<String>,
    /// A tag of the run.
    pub tag: Option<String>,
    /// The workload of one of its cases.
    pub workload: Option<String>,
    /// Started at this time or later.
    pub since: Option<Timestamp>,
    /// Started before this time.
    pub until: Option<Timestamp>,
    /// Maximum number of runs; the latest are selected.
    pub limit: Option<usize>,
}

/// A run in a list.
#[derive(Debug, Clone, PartialEq)]
pub struct RunEntry {
    /// The id of the run.
    pub id: String,
    /// Start of the run.
    pub started: Timestamp,
    /// The host on which the run was made, if it is known.
    pub host: Option<String>,
    /// The title that the user gave the run.
    pub title: Option<String>,
    /// Everything that was planned was measured.
    pub complete: bool,
    /// Number of cases.
    pub cases: u32,
    /// Endpoint of its first case.
    pub endpoint: Option<String>,
    /// Workload of its first case.
    pub workload: Option<String>,
    /// Headline figure of its first case: metric name, and value if there is one.
    pub headline: Option<(String, Option<f64>)>,
    /// The tags of the run.
    pub tags: Vec<String>,
}

/// A case over time. All points have the same settings.
#[derive(Debug, Clone, PartialEq)]
pub struct Trend {
    /// The endpoint, as typed.
    pub endpoint: String,
    /// The protocol that the remote used.
    pub protocol: String,
    /// Name of the workload.
    pub workload: String,
    /// Direction of the payload.
    pub direction: String,
    /// Payload bytes of one message.
    pub message_bytes: u32,
    /// Number of endpoints used at once.
    pub ports: u32,
    /// Connections to each endpoint.
    pub parallel: u32,
    /// Identity of the measuring method.
    pub method: String,
    /// `100/s`, `busy-poll`; often empty.
    pub settings: String,
    /// The host on which the runs were made, if it is known.
    pub host: Option<String>,
    /// Oldest first.
    pub points: Vec<TrendPoint>,
}

impl Trend {
    /// Whether the points are results of this case on this host.
    pub fn is_of(&self, case: &CaseResult, host: Option<&str>) -> bool {
        self.endpoint == case.endpoint
            && self.protocol == case.protocol
            && self.workload == case.workload
            && self.direction == case.direction.name()
            && self.message_bytes == case.message_bytes
            && (self.ports, self.parallel) == (case.ports, case.parallel)
            && self.method == case.method
            && self.settings == case.history_label()
            && self.host.as_deref() == host
    }
}

/// The figure of one run.
#[derive(Debug, Clone, PartialEq)]
pub struct TrendPoint {
    /// The id of the run.
    pub id: String,
    /// Start of the run.
    pub started: Timestamp,
    /// In the metric's unit; infinite if it was not reached.
    pub value: f64,
}

/// The results. A damaged row does not hide the others.
#[derive(Debug, Clone, PartialEq)]
pub struct Listing<T> {
    /// The readable rows.
    pub entries: Vec<T>,
    /// Descriptions of the damaged rows.
    pub damaged: Vec<String>,
}

impl<T> Default for Listing<T> {
    fn default() -> Listing<T> {
        Listing { entries: Vec::new(), damaged: Vec::new() }
    }
}

/// Conditions on `run` and their parameters.
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

    pub fn add(&mut self, condition: &str, value: Option<Value>) {
        if let Some(value) = value {
            self.text += " AND ";
            self.text += condition;
            self.values.push(value);
        }
    }
}

/// SQL for no limit.
const NO_LIMIT: i64 = -1;

impl Store {
    /// The selected runs, latest first.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read.
    pub fn runs(&self, filter: &Filter) -> Result<Listing<RunEntry>, StoreError> {
        let FilterCondition { text, mut values } = FilterCondition::from_filter(filter);
        values.push(Value::Integer(filter.limit.map_or(NO_LIMIT, |limit| limit as i64)));
        let statement = format!(
            "SELECT id, started_us, host, title, complete,
                 (SELECT count(*) FROM measured WHERE measured.run = run.number),
                 first.endpoint, first.headline, CASE WHEN json_valid(first.figures)
                     THEN json_extract(first.figures, '$.\"' || first.headline || '\"') END,
                 (SELECT group_concat(name, char(10)) FROM tag WHERE tag.run = run.number), first.workload
             FROM run LEFT JOIN measured AS first ON first.run = run.number AND first.number = 1
             WHERE {text} ORDER BY started_us DESC, run.number DESC LIMIT ?"
        );
        self.query_rows(&statement, values, 0, read_entry)
    }

    /// The trend of a metric for each selected case that has it. The filter's limit counts runs.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read.
    pub fn trends(&self, filter: &Filter, metric: &Metric) -> Result<Listing<Trend>, StoreError> {
        let FilterCondition { text, values } = FilterCondition::from_filter(filter);
        let path = Value::Text(format!("$.\"{}\"", metric.name()));
        // The type of invalid JSON is this word.
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
            "SELECT endpoint, protocol, workload, direction, message_bytes, ports, parallel, method, host, id, started_us,
                 {value}, {kind}, settings
             FROM (SELECT * FROM run WHERE {text} ORDER BY started_us DESC, run.number DESC LIMIT ?) AS run
             JOIN measured ON measured.run = run.number
             WHERE {kind} IS NOT NULL{conditions} ORDER BY started_us, run.number, measured.number"
        );
        let mut trends: BTreeMap<String, Trend> = BTreeMap::new();
        let found = self.query_rows(&statement, all, 9, read_point)?;
        for (trend, point) in found.entries {
            // Everything except the points identifies the case.
            let key = format!("{trend:?}");
            trends.entry(key).or_insert(trend).points.push(point);
        }
        Ok(Listing { entries: trends.into_values().collect(), damaged: found.damaged })
    }

    /// The full id of a run that the user named.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unknown`] if no run fits the text, [`StoreError::Ambiguous`] if several do. Fails if the
    /// file cannot be read.
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

    /// The tags of the run with exactly this id; none if there is no such run.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read.
    pub fn tags_of(&self, id: &str) -> Result<Vec<String>, StoreError> {
        let select = "SELECT tag.name FROM run JOIN tag ON tag.run = run.number WHERE run.id = ?";
        let found = self.query_rows(select, vec![Value::Text(id.to_owned())], 0, |row| row.get(0))?;
        Ok(found.entries)
    }

    /// The ids of the runs with this tag, oldest first.
    ///
    /// # Errors
    ///
    /// [`StoreError::UnknownTag`] if no run has the tag. Fails if the file cannot be read.
    pub fn ids_with_tag(&self, tag: &str) -> Result<Vec<String>, StoreError> {
        let ids = self.ids(&Filter { tag: Some(tag.to_owned()), ..Filter::default() })?;
        if ids.is_empty() {
            return Err(StoreError::UnknownTag(tag.to_owned()));
        }
        Ok(ids)
    }

    /// The ids of the selected runs, oldest first, including runs whose other columns are damaged.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read.
    pub fn ids(&self, filter: &Filter) -> Result<Vec<String>, StoreError> {
        let FilterCondition { text, values } = FilterCondition::from_filter(filter);
        let statement = format!("SELECT id FROM run WHERE {text} ORDER BY started_us, run.number");
        Ok(self.query_rows(&statement, values, 0, |row| row.get(0))?.entries)
    }

    /// All rows of a statement. `id` is the column with the run's id, for damaged rows.
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

/// The run that a row belongs to.
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
        workload: row.get(10)?,
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
        protocol: row.get(1)?,
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
