//! A published study that can be run again: its plan, its tables, and the join of what was published and what was
//! measured.
//!
//! Not for running anything and not for where links lead: whoever runs it says so, cell by cell. The studies are
//! folders of `papers/`; what holds for one of them only stands there.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::Deserialize;

use crate::endpoint::Endpoint;
use crate::plan::{Case, CaseSpec, OneOrMany};
use crate::run::{CaseResult, Figures, Paper, PaperRow, PaperTable};
use crate::units::{Bytes, Span};

/// The texts of a study, as they lie in its folder.
pub struct Texts {
    pub name: &'static str,
    plan: &'static str,
    tables: &'static str,
}

/// Every study that can be run again.
pub static STUDIES: &[Texts] = &[Texts {
    name: "sena",
    plan: include_str!("../papers/sena/plan.toml"),
    tables: include_str!("../papers/sena/tables.csv"),
}];

/// What was wrong with the texts of a study.
#[derive(Debug, thiserror::Error)]
pub enum PaperError {
    #[error("there is no study '{name}' (known: {known})")]
    Unknown { name: String, known: String },
    #[error("plan of the study: {0}")]
    Plan(String),
    #[error("tables of the study: {0}")]
    Tables(String),
    #[error("the study has no table {number} (known: {known})")]
    NoTable { number: String, known: String },
}

/// A study.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Study {
    pub name: String,
    pub title: String,
    /// Who published it, and when.
    pub source: String,
    /// What a quick run does shorter than the study did.
    pub shortened: String,
    line: LinePlan,
    #[serde(rename = "cell")]
    pub cells: Vec<Cell>,
    #[serde(rename = "measure")]
    measures: Vec<Measure>,
    #[serde(rename = "table")]
    tables: Vec<Table>,
    #[serde(skip)]
    rows: Vec<Row>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct LinePlan {
    bits_per_character: f64,
}

/// A kind of place where links lead.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    pub name: String,
    /// What stands there.
    pub is: String,
    /// Numbers of ports that the study used at once.
    pub ports: Vec<u32>,
    /// Options that its URLs get, `{at}` being the rate.
    options: String,
    /// What the lab starts for it.
    #[serde(default)]
    pub lab: Option<String>,
    /// Why the lab has nothing that stands for it.
    #[serde(default)]
    pub not_in_lab: Option<String>,
}

/// What is measured at cells, at several rates of the line.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Measure {
    name: String,
    cells: Vec<String>,
    /// Rates of the line, in bit/s.
    at: Vec<String>,
    case: CaseSpec,
    /// What a quick run does otherwise.
    #[serde(default)]
    quick: CaseSpec,
    /// A quick run's volume: what the line carries in this time.
    #[serde(default)]
    quick_line_time: Option<Span>,
    /// Volume by rate.
    #[serde(default)]
    volume: BTreeMap<String, Bytes>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    number: String,
    title: String,
    rows_are: String,
}

/// One published figure.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    table: String,
    row: String,
    column: String,
    published: String,
    unit: String,
    case: String,
    statistic: String,
    note: String,
}

/// A cell with its number of ports, at one rate: `tcp/4@9600`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub cell: String,
    pub ports: u32,
    /// Rate of the line, in bit/s.
    pub at: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}@{}", self.cell, self.ports, self.at)
    }
}

/// A case of the study's plan.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedCase {
    /// As the tables name it: `latency:tcp/4@9600`.
    pub name: String,
    pub place: Place,
    spec: CaseSpec,
    line: Line,
}

/// The physical line of a case.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Line {
    bits_per_second: f64,
    bits_per_character: f64,
}

impl Line {
    /// Seconds that so many characters take; a plug returns each while it is being sent.
    fn seconds(&self, characters: u64) -> f64 {
        characters as f64 * self.bits_per_character / self.bits_per_second
    }
}

/// A statistic that meets a published figure.
struct Statistic {
    name: &'static str,
    /// Of the published figure, and of what `of` and `limit` return.
    unit: &'static str,
    of: fn(&CaseResult, &Line) -> Option<f64>,
    limit: fn(&PlannedCase) -> f64,
    /// Whether a measured figure is beyond its limit.
    too_good: fn(f64, f64) -> bool,
}

/// What is said of a figure that no line of the planned rate can have given.
const TOO_GOOD: &str = "better than a line of this rate allows: it is set to another, or is none";
/// Both ends of a line understand each other as long as their clocks differ by less than this share: half a bit in the
/// ten of a character, half of that for each.
const CLOCK_TOLERANCE: f64 = 0.025;

fn below(measured: f64, limit: f64) -> bool {
    measured < limit * (1.0 - CLOCK_TOLERANCE)
}

fn above(measured: f64, limit: f64) -> bool {
    measured > limit * (1.0 + CLOCK_TOLERANCE)
}

static STATISTICS: &[Statistic] = &[
    Statistic {
        name: "latency_mean_ms",
        unit: "ms",
        of: |case, _| case.figures.latency_ns.as_ref().map(|latency| latency.mean / 1e6),
        limit: |case| 1e3 * case.line.seconds(case.message_bytes()),
        too_good: below,
    },
    Statistic {
        name: "port_line_bps",
        unit: "bit/s",
        of: port_line_bps,
        limit: |case| case.line.bits_per_second,
        too_good: above,
    },
    Statistic {
        name: "port_line_rate_percent",
        unit: "%",
        of: |case, line| port_line_bps(case, line).map(|rate| 100.0 * rate / line.bits_per_second),
        limit: |_| 100.0,
        too_good: above,
    },
];

/// Bits a second on the line of one port, start and stop bits counted; the mean of the ports.
fn port_line_bps(case: &CaseResult, line: &Line) -> Option<f64> {
    let ports: Vec<&Figures> = match case.per_port.as_slice() {
        [] => vec![&case.figures],
        ports => ports.iter().map(|part| &part.figures).collect(),
    };
    let rates: Option<Vec<f64>> = ports.iter().map(|figures| figures.throughput_bps).collect();
    rates.map(|rates| {
        rates.iter().sum::<f64>() / rates.len() as f64 / f64::from(u8::BITS) * line.bits_per_character
    })
}

fn statistic(name: &str) -> Option<&'static Statistic> {
    STATISTICS.iter().find(|statistic| statistic.name == name)
}

/// What became of a case.
pub enum Outcome<'a> {
    Run {
        /// Of the case in the document, from 1.
        number: usize,
        case: &'a CaseResult,
        /// It ran in the lab: no hardware.
        stand_in: bool,
    },
    /// And why.
    NotRun(String),
}

impl Study {
    /// The study of that name.
    pub fn named(name: &str) -> Result<Study, PaperError> {
        let texts = STUDIES.iter().find(|study| study.name == name).ok_or_else(|| {
            let known: Vec<&str> = STUDIES.iter().map(|study| study.name).collect();
            PaperError::Unknown { name: name.to_owned(), known: known.join(", ") }
        })?;
        Study::read(texts.plan, texts.tables)
    }

    fn read(plan: &str, tables: &str) -> Result<Study, PaperError> {
        let mut study: Study = toml::from_str(plan).map_err(|error| PaperError::Plan(error.to_string()))?;
        let rows: Result<Vec<Row>, csv::Error> =
            csv::Reader::from_reader(tables.as_bytes()).into_deserialize().collect();
        study.rows = rows.map_err(|error| PaperError::Tables(error.to_string()))?;
        Ok(study)
    }

    /// Numbers of the tables, in the study's order.
    pub fn table_numbers(&self) -> Vec<&str> {
        self.tables.iter().map(|table| table.number.as_str()).collect()
    }

    /// The cell of that name.
    pub fn cell(&self, name: &str) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.name == name)
    }

    /// Leaves only these tables; none leaves all.
    pub fn choose(&mut self, numbers: &[String]) -> Result<(), PaperError> {
        if let Some(number) = numbers.iter().find(|number| !self.table_numbers().contains(&number.as_str())) {
            let known = self.table_numbers().join(", ");
            return Err(PaperError::NoTable { number: number.clone(), known });
        }
        if !numbers.is_empty() {
            self.tables.retain(|table| numbers.contains(&table.number));
        }
        Ok(())
    }

    /// The rows of the chosen tables.
    fn chosen(&self) -> impl Iterator<Item = &Row> {
        self.tables.iter().flat_map(|table| self.rows_of(table))
    }

    fn rows_of<'a>(&'a self, table: &'a Table) -> impl Iterator<Item = &'a Row> {
        self.rows.iter().filter(|row| row.table == table.number)
    }

    /// The cases that the chosen tables name, each once, in the order in which they name them.
    pub fn cases(&self, quick: bool) -> Result<Vec<PlannedCase>, PaperError> {
        let mut all: BTreeMap<String, PlannedCase> =
            self.all_cases(quick)?.into_iter().map(|case| (case.name.clone(), case)).collect();
        Ok(self.chosen().filter_map(|row| all.remove(&row.case)).collect())
    }

    fn all_cases(&self, quick: bool) -> Result<Vec<PlannedCase>, PaperError> {
        let mut cases = Vec::new();
        for measure in &self.measures {
            for name in &measure.cells {
                let cell = self.cell(name).ok_or_else(|| PaperError::Plan(format!("no cell '{name}'")))?;
                for &ports in &cell.ports {
                    for at in &measure.at {
                        let rate: u32 =
                            at.parse().map_err(|_| PaperError::Plan(format!("'{at}' is no rate")))?;
                        cases.push(self.case(measure, cell, ports, rate, quick));
                    }
                }
            }
        }
        Ok(cases)
    }

    fn case(&self, measure: &Measure, cell: &Cell, ports: u32, at: u32, quick: bool) -> PlannedCase {
        let place = Place { cell: cell.name.clone(), ports, at };
        let line = Line { bits_per_second: f64::from(at), bits_per_character: self.line.bits_per_character };
        let mut spec = if quick { measure.quick.over(&measure.case) } else { measure.case.clone() };
        let short = measure.quick_line_time.filter(|_| quick).map(|time| {
            let characters = time.0.as_secs_f64() * line.bits_per_second / line.bits_per_character;
            Bytes((characters.ceil() as u64).max(1))
        });
        spec.volume = short.or_else(|| measure.volume.get(&at.to_string()).copied()).or(spec.volume);
        // A message that is never whole would never count.
        if let (Some(OneOrMany::One(size)), Some(volume)) = (&mut spec.size, spec.volume) {
            size.0 = size.0.min(volume.0);
        }
        PlannedCase { name: format!("{}:{place}", measure.name), place, spec, line }
    }

    /// The chosen tables, each published figure beside what `outcome` says became of its case.
    pub fn join<'a>(
        &self,
        quick: bool,
        outcome: &dyn Fn(&PlannedCase) -> Outcome<'a>,
    ) -> Result<Paper, PaperError> {
        let cases: BTreeMap<String, PlannedCase> =
            self.cases(quick)?.into_iter().map(|case| (case.name.clone(), case)).collect();
        let table = |table: &Table| {
            let rows: Result<Vec<PaperRow>, PaperError> =
                self.rows_of(table).map(|row| row.beside(&cases, outcome)).collect();
            rows.map(|rows| PaperTable {
                number: table.number.clone(),
                title: table.title.clone(),
                rows_are: table.rows_are.clone(),
                rows,
            })
        };
        Ok(Paper {
            name: self.name.clone(),
            title: self.title.clone(),
            source: self.source.clone(),
            shortened: quick.then(|| self.shortened.clone()),
            tables: self.tables.iter().map(table).collect::<Result<_, _>>()?,
        })
    }
}

impl Cell {
    /// The endpoint with what the study sets on the line; what it names itself stays, but for the rate.
    pub fn on_line(&self, endpoint: &Endpoint, at: u32) -> Result<Endpoint, String> {
        let mut text = endpoint.to_string();
        for option in self.options.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            match endpoint.option(name) {
                Some(_) if value.contains("{at}") => {
                    return Err(format!("{endpoint}: leave '{name}' out, the study sets it"));
                }
                Some(_) => continue,
                None => {}
            }
            text.push(if text.contains('?') { '&' } else { '?' });
            text += &format!("{name}={}", value.replace("{at}", &at.to_string()));
        }
        text.parse().map_err(|error: crate::endpoint::EndpointError| error.to_string())
    }
}

impl PlannedCase {
    /// What to run, the ports being at these endpoints.
    pub fn cases(&self, endpoints: &[Endpoint]) -> Result<Vec<Case>, String> {
        let url = Some(OneOrMany::Many(endpoints.to_vec()));
        CaseSpec { url, together: Some(true), ..self.spec.clone() }.expand()
    }

    fn message_bytes(&self) -> u64 {
        match &self.spec.size {
            Some(OneOrMany::One(size)) => size.0,
            _ => 1,
        }
    }

    /// How long it takes where nothing but the line takes time.
    pub fn least_time(&self) -> Duration {
        let exchanges =
            self.spec.count.map(|count| count.0 + self.spec.warm_up_count.map_or(0, |count| count.0));
        let characters = match (exchanges, self.spec.volume) {
            (Some(exchanges), _) => exchanges * self.message_bytes(),
            (None, Some(volume)) => volume.0,
            (None, None) => 0,
        };
        Duration::from_secs_f64(self.line.seconds(characters))
    }
}

impl Row {
    fn beside<'a>(
        &self,
        cases: &BTreeMap<String, PlannedCase>,
        outcome: &dyn Fn(&PlannedCase) -> Outcome<'a>,
    ) -> Result<PaperRow, PaperError> {
        let lacking = |what: &str| PaperError::Tables(format!("there is no {what}"));
        let planned = cases.get(&self.case).ok_or_else(|| lacking(&format!("case {}", self.case)))?;
        let statistic = statistic(&self.statistic)
            .filter(|statistic| statistic.unit == self.unit)
            .ok_or_else(|| lacking(&format!("statistic {} in {}", self.statistic, self.unit)))?;
        let mut row = PaperRow {
            row: self.row.clone(),
            column: self.column.clone(),
            published: self.published.clone(),
            unit: self.unit.clone(),
            planned_case: self.case.clone(),
            statistic: self.statistic.clone(),
            measured: None,
            limit: Some((statistic.limit)(planned)),
            case: None,
            stand_in: false,
            reason: None,
            note: Some(self.note.clone()).filter(|note| !note.is_empty()),
        };
        match outcome(planned) {
            Outcome::NotRun(reason) => row.reason = Some(reason),
            Outcome::Run { number, case, stand_in } => {
                row.measured = (statistic.of)(case, &planned.line);
                (row.case, row.stand_in) = (Some(number), stand_in);
                row.reason = match row.measured {
                    Some(measured) => flaw(case, (statistic.too_good)(measured, (statistic.limit)(planned))),
                    None => Some(why_not(case)),
                };
            }
        }
        Ok(row)
    }
}

/// What is wrong with a figure of this case.
fn flaw(case: &CaseResult, too_good: bool) -> Option<String> {
    let figures = &case.figures;
    if !case.complete {
        return Some(why_not(case));
    }
    if figures.corrupt_bytes > 0 {
        return Some(format!("{} bytes came back other than they were sent", figures.corrupt_bytes));
    }
    if figures.lost > 0 {
        return Some(format!("{} of {} were lost", figures.lost, figures.sent));
    }
    too_good.then(|| TOO_GOOD.to_owned())
}

/// Why a case is not whole, in its own words.
fn why_not(case: &CaseResult) -> String {
    let told =
        case.warnings.iter().find(|warning| matches!(warning.code.as_str(), "incomplete" | "interrupted"));
    told.map_or_else(|| "nothing was measured".to_owned(), |warning| warning.text.clone())
}

#[cfg(test)]
mod tests;
