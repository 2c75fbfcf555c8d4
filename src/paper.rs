//! A published study that can be run again: its plan, its tables, and the join of what was published and what was
//! measured.
//!
//! Not for running anything and not for where links lead: whoever runs it says so, cell by cell. The studies are
//! folders of `papers/`; what holds for one of them only stands there.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::endpoint::Endpoint;
use crate::plan::{Case, CaseSpec, Direction, OneOrMany};
use crate::run::{CaseResult, Figures, Paper, PaperRow, PaperTable};
use crate::units::{Bytes, Span, UpTo};

mod beside;
mod counted;
mod download;
mod guest;
mod messages;
mod sizes;
mod spread;
mod stand_in;
mod trial;

use download::Rates;
pub use download::{Download, Exchange, Path};
pub use guest::Guest;
pub use sizes::PublishedSize;

/// The texts of a study, as they lie in its folder.
pub struct Texts {
    pub name: &'static str,
    plan: &'static str,
    tables: &'static str,
}

/// Every study that can be run again.
pub static STUDIES: &[Texts] = &[
    Texts {
        name: "sena",
        plan: include_str!("../papers/sena/plan.toml"),
        tables: include_str!("../papers/sena/tables.csv"),
    },
    Texts {
        name: "loggernet",
        plan: include_str!("../papers/loggernet/plan.toml"),
        tables: include_str!("../papers/loggernet/tables.csv"),
    },
    Texts {
        name: "netio",
        plan: include_str!("../papers/netio/plan.toml"),
        tables: include_str!("../papers/netio/tables.csv"),
    },
    Texts {
        name: "wireless",
        plan: include_str!("../papers/wireless/plan.toml"),
        tables: include_str!("../papers/wireless/tables.csv"),
    },
    Texts {
        name: "linx",
        plan: include_str!("../papers/linx/plan.toml"),
        tables: include_str!("../papers/linx/tables.csv"),
    },
];

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
    /// Its links are serial lines; what follows the `@` of a place is their rate in bit/s.
    #[serde(default)]
    line: Option<LinePlan>,
    /// It downloads by request and answer; what follows the `@` of a place is the delay each way in ms.
    #[serde(default)]
    exchange: Option<Exchange>,
    /// Kinds of guests, by name, for cells that need more of a kernel than a host may have.
    #[serde(default, rename = "guest")]
    guests: BTreeMap<String, Guest>,
    #[serde(rename = "cell")]
    pub cells: Vec<Cell>,
    #[serde(rename = "measure")]
    measures: Vec<Measure>,
    #[serde(rename = "table")]
    tables: Vec<Table>,
    /// Run after the tables.
    #[serde(default)]
    trial: Option<trial::Trial>,
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
    /// What it is measured at, for measures that do not say.
    #[serde(default)]
    at: Vec<String>,
    /// Options that its URLs get, `{at}` being the rate.
    #[serde(default)]
    options: String,
    /// What its results say of where it is: the kind of network, hops.
    #[serde(default)]
    pub placement: Map<String, Value>,
    /// What lies before it.
    #[serde(default)]
    link: Option<Rates>,
    /// The line under it in the study, where that is known.
    #[serde(default)]
    frames: Option<sizes::Frames>,
    /// What the lab starts for it.
    #[serde(default)]
    pub lab: Option<String>,
    /// What a process of this program does for it, as typed; and for a quick run. `{ports}` and `{at}` are those of the
    /// place, `{id}` differs between runs, `here:rfcomm` is an endpoint of this host over that transport.
    #[serde(default)]
    command: String,
    #[serde(default)]
    quick_command: Option<String>,
    /// The link in front of it: a profile of the shaper.
    #[serde(default)]
    pub shaper: Option<String>,
    /// Words before that, which say where it runs: `ip netns exec far`.
    #[serde(default)]
    pub under: String,
    /// Where links lead to it, if it names that otherwise.
    #[serde(default)]
    pub near: Option<Endpoint>,
    /// The kind of guest that it is measured in where this host cannot.
    #[serde(default)]
    guest: Option<String>,
    /// The kernel modules that it needs; without any all of that guest's.
    #[serde(default)]
    modules: Vec<String>,
    /// What that is called wherever its figures appear.
    #[serde(default)]
    pub stand_in: Option<String>,
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
    /// Rates of the line, in bit/s; without any what the cells say.
    #[serde(default)]
    at: Vec<String>,
    case: CaseSpec,
    /// One case follows the other in the same place: what stands there stays, and what their peer leaves open.
    #[serde(default)]
    together: bool,
    /// Measured before it at the same place.
    #[serde(default)]
    before: Option<CaseSpec>,
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

/// A cell with its number of ports, at one rate, delay or size: `tcp/4@9600`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub cell: String,
    pub ports: u32,
    /// Rate of the line in bit/s, delay of the link in ms, or bytes of a message.
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
    /// Cases of the same name here follow each other in one place.
    pub together: String,
    spec: CaseSpec,
    before: Option<CaseSpec>,
    line: Option<Line>,
    pub download: Option<Download>,
    /// What messages go over.
    pub link: Option<Path>,
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

/// A published rate of a download.
#[derive(Debug, Clone, PartialEq)]
pub struct PublishedDownload {
    /// Name of its row.
    pub row: String,
    pub bytes_per_second: f64,
    pub download: Download,
}

/// A statistic that meets a published figure.
struct Statistic {
    name: &'static str,
    /// Of the published figure, and of what `of` and `limit` return.
    unit: &'static str,
    of: fn(&CaseResult, &PlannedCase) -> Option<f64>,
    limit: fn(&PlannedCase) -> Option<f64>,
    predicted: fn(&PlannedCase) -> Option<f64>,
    /// Whether a measured figure is beyond its limit.
    too_good: fn(f64, f64) -> bool,
    /// It counts what is lost, which is no flaw of it then.
    counts_lost: bool,
}

/// What is said of figures that were measured while the host had other work.
pub const BUSY: &str = "other programs kept the host busy meanwhile, see the warning host_busy";

/// What is said of a figure that no line of the planned rate can have given.
const TOO_GOOD: &str = "better than a line of this rate allows: it is set to another, or is none";
/// Both ends of a line understand each other as long as their clocks differ by less than this share: half a bit in the
/// ten of a character, half of that for each.
const CLOCK_TOLERANCE: f64 = 0.025;

/// An exchange over a network; less is rare.
const LEAST_EXCHANGE: Duration = Duration::from_micros(100);

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
        limit: |planned| Some(1e3 * planned.line?.seconds(planned.message_bytes())),
        predicted: |_| None,
        too_good: below,
        counts_lost: false,
    },
    Statistic {
        name: "port_line_bps",
        unit: "bit/s",
        of: |case, planned| port_line_bps(case, &planned.line?),
        limit: |planned| Some(planned.line?.bits_per_second),
        predicted: |_| None,
        too_good: above,
        counts_lost: false,
    },
    Statistic {
        name: "port_line_rate_percent",
        unit: "%",
        of: |case, planned| {
            let line = planned.line?;
            port_line_bps(case, &line).map(|rate| 100.0 * rate / line.bits_per_second)
        },
        limit: |_| Some(100.0),
        predicted: |_| None,
        too_good: above,
        counts_lost: false,
    },
    Statistic {
        name: "download_bytes_per_second",
        unit: "B/s",
        of: |case, _| case.figures.throughput_bps.map(|rate| rate / f64::from(u8::BITS)),
        limit: |planned| Some(planned.download?.limit()).filter(|limit| limit.is_finite()),
        predicted: |planned| Some(planned.download?.predicted(planned.window(), planned.volume())),
        too_good: above,
        counts_lost: false,
    },
    Statistic {
        name: "link_rate_percent",
        unit: "%",
        of: |case, planned| {
            let path = planned.download?.path?;
            case.figures.throughput_bps.map(|rate| 100.0 * rate / path.rate_from)
        },
        limit: |planned| {
            let download = planned.download?;
            Some(100.0 * f64::from(u8::BITS) * download.limit() / download.path?.rate_from)
        },
        predicted: |planned| {
            let (download, window) = (planned.download?, planned.window());
            let predicted = download.predicted(window, planned.volume());
            Some(100.0 * f64::from(u8::BITS) * predicted / download.path?.rate_from)
        },
        too_good: above,
        counts_lost: false,
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
    STATISTICS
        .iter()
        .chain(&counted::STATISTICS)
        .chain(&spread::STATISTICS)
        .chain(&messages::STATISTICS)
        .find(|statistic| statistic.name == name)
}

/// What became of a case.
pub enum Outcome<'a> {
    Run {
        /// Of the case in the document, from 1.
        number: usize,
        case: &'a CaseResult,
        /// It ran in the lab: no hardware.
        stand_in: bool,
        /// It ran in a guest.
        guest: bool,
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

    /// Whether what follows the `@` of a place is the size of a message: of a study without lines.
    pub fn is_of_sizes(&self) -> bool {
        self.line.is_none() && self.exchange.is_none()
    }

    /// Whether what follows the `@` of a place is a delay, not a rate.
    pub fn is_of_delays(&self) -> bool {
        self.exchange.is_some()
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
                let at = if measure.at.is_empty() { &cell.at } else { &measure.at };
                for &ports in &cell.ports {
                    for at in at {
                        let at: u32 =
                            at.parse().map_err(|_| PaperError::Plan(format!("'{at}' is no number")))?;
                        cases.push(self.case(measure, cell, ports, at, quick));
                    }
                }
            }
        }
        Ok(cases)
    }

    fn case(&self, measure: &Measure, cell: &Cell, ports: u32, at: u32, quick: bool) -> PlannedCase {
        let place = Place { cell: cell.name.clone(), ports, at };
        let line = self
            .line
            .as_ref()
            .map(|plan| Line { bits_per_second: f64::from(at), bits_per_character: plan.bits_per_character });
        let delay = Duration::from_millis(at.into());
        let download = self
            .exchange
            .map(|exchange| Download { exchange, path: cell.link.map(|rates| rates.with_delay(delay)) });
        let mut spec = if quick { measure.quick.over(&measure.case) } else { measure.case.clone() };
        if self.is_of_sizes() {
            spec.size = Some(OneOrMany::One(Bytes(at.into())));
        }
        let short = measure.quick_line_time.filter(|_| quick).zip(line).map(|(time, line)| {
            let characters = time.0.as_secs_f64() * line.bits_per_second / line.bits_per_character;
            Bytes((characters.ceil() as u64).max(1))
        });
        spec.volume = short.or_else(|| measure.volume.get(&at.to_string()).copied()).or(spec.volume);
        // A message that is never whole would never count.
        if let (Some(OneOrMany::One(size)), Some(volume)) = (&mut spec.size, spec.volume) {
            size.0 = size.0.min(volume.0);
        }
        if spec.bit_rate.is_none() {
            // A study says all that it wants slower.
            spec.rate.get_or_insert(UpTo::Max);
        }
        let before = measure.before.clone();
        let name = format!("{}:{place}", measure.name);
        let together =
            if measure.together { format!("{}:{}", measure.name, cell.name) } else { name.clone() };
        let link = cell.link.filter(|_| self.is_of_sizes()).map(|rates| rates.with_delay(Duration::ZERO));
        PlannedCase { name, place, together, spec, before, line, download, link }
    }

    /// Published rates of downloads, with what they were downloaded over.
    pub fn published_downloads(&self) -> Result<Vec<PublishedDownload>, PaperError> {
        let cases = self.all_cases(false)?;
        let published = |row: &Row| {
            let download = cases.iter().find(|case| case.name == row.case)?.download?;
            let bytes_per_second = row.published.parse().ok()?;
            (row.unit == "B/s").then(|| PublishedDownload {
                row: row.row.clone(),
                bytes_per_second,
                download,
            })
        };
        Ok(self.chosen().filter_map(published).collect())
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
                title: self.title(table, &rows),
                rows_are: table.rows_are.clone(),
                rows,
            })
        };
        Ok(Paper {
            name: self.name.clone(),
            title: self.title.clone(),
            source: self.source.clone(),
            shortened: quick.then(|| self.shortened.clone()),
            stand_ins: self.stand_ins(),
            guests: Vec::new(),
            tables: self.tables.iter().map(table).collect::<Result<_, _>>()?,
        })
    }
}

impl Cell {
    /// What a process of this program does for it, word by word.
    pub fn command(&self, quick: bool) -> impl Iterator<Item = &str> {
        let short = self.quick_command.as_deref().filter(|_| quick);
        short.unwrap_or(&self.command).split_whitespace()
    }

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
    /// Gives the peer these options instead of the study's.
    pub fn set_options(&mut self, options: &[(String, String)]) {
        for spec in self.before.iter_mut().chain([&mut self.spec]) {
            spec.peer_options.extend(options.iter().cloned());
        }
    }

    /// What to run, the ports being at these endpoints: last the case itself, before it what its measure wants to have
    /// been measured there.
    pub fn cases(&self, endpoints: &[Endpoint]) -> Result<Vec<Case>, String> {
        let mut cases = Vec::new();
        for spec in self.before.iter().chain([&self.spec]) {
            let url = Some(OneOrMany::Many(endpoints.to_vec()));
            cases.extend(CaseSpec { url, together: Some(true), ..spec.clone() }.expand()?);
        }
        Ok(cases)
    }

    /// Requests under way at once.
    fn window(&self) -> u32 {
        self.spec.peer_options.get("window").and_then(|window| window.parse().ok()).unwrap_or(1)
    }

    fn volume(&self) -> u64 {
        self.spec.volume.map_or(0, |volume| volume.0)
    }

    fn message_bytes(&self) -> u64 {
        match &self.spec.size {
            Some(OneOrMany::One(size)) => size.0,
            _ => 1,
        }
    }

    /// The same with a device that takes no time to process a request: as little as any can take.
    pub fn without_processing(&self) -> PlannedCase {
        let download = self.download.map(Download::without_processing);
        PlannedCase { download, ..self.clone() }
    }

    /// How long it takes where nothing but line, link or the device of the lab takes time.
    pub fn least_time(&self) -> Duration {
        let own = self.least_time_of(&self.spec);
        own + self.before.as_ref().map_or(Duration::ZERO, |before| self.least_time_of(before))
    }

    fn least_time_of(&self, spec: &CaseSpec) -> Duration {
        let exchanges = spec.count.map(|count| count.0 + spec.warm_up_count.map_or(0, |count| count.0));
        let seconds = match (self.line, self.download, exchanges, spec.volume) {
            (Some(line), _, Some(exchanges), _) => line.seconds(exchanges * self.message_bytes()),
            (Some(line), _, None, Some(volume)) => line.seconds(volume.0),
            (_, Some(download), Some(exchanges), _) => {
                let path = download.path.map(|path| path.round_trip().as_secs_f64());
                exchanges as f64 * path.unwrap_or_default()
            }
            (_, Some(download), None, Some(volume)) => {
                volume.0 as f64 / download.predicted(self.window(), volume.0)
            }
            (_, _, Some(exchanges), _) => {
                let each = match spec.rate {
                    Some(UpTo::At(rate)) => 1.0 / rate.0,
                    Some(UpTo::Max) | None => LEAST_EXCHANGE.as_secs_f64(),
                };
                exchanges as f64 * each
            }
            _ => {
                let ways = if spec.direction == Some(OneOrMany::One(Direction::Both)) { 2.0 } else { 1.0 };
                ways * spec.time.map_or(0.0, |time| time.0.as_secs_f64())
            }
        };
        Duration::from_secs_f64(seconds)
    }
}

#[cfg(test)]
mod tests;
