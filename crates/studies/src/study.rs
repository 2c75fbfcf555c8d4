//! A published study that can be run again: its plan, its tables, and the join of published and measured figures.
//!
//! This module does not run cases and does not know their endpoints. The program that runs a study supplies both for
//! each cell. The studies are folders of `papers/`; details of one study belong there.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::Deserialize;

use linkgauge_model::endpoint::Endpoint;
use linkgauge_model::plan::{Case, CaseSpec, CaseSpecError, Direction, OneOrMany};
use linkgauge_model::run::{CaseResult, StudyResult, StudyRow, StudyTable};
use linkgauge_model::units::{Bytes, RateTarget, Span};

mod cases;
mod distribution;
mod download;
mod error;
mod facts;
mod guest;
mod items;
mod join;
mod length;
mod line_statistics;
mod message_times;
mod protocol_counters;
mod sizes;
mod stand_in;
mod trial;
mod twin;

use download::LinkRates;
pub use download::{ChunkProtocol, DelayedLink, DownloadPlan, PublishedDownload};
pub use error::StudyError;
pub use guest::GuestSpec;
pub use items::{Counterparts, Item};
pub use length::StudyLength;
pub use sizes::PublishedTime;
pub use twin::{DeviceServerTwin, MessageTwin, RadioTwin, Twin, TwinFigure, TwinModel};

/// The texts in a study's folder.
pub struct StudyFiles {
    /// The name of the study, as in commands.
    pub name: &'static str,
    plan: &'static str,
    tables: &'static str,
    twins: &'static str,
    facts: &'static str,
    items: &'static str,
}

/// The files of the folder `papers/NAME`.
macro_rules! study_files {
    ($name:literal) => {
        StudyFiles {
            name: $name,
            plan: include_str!(concat!("../../../papers/", $name, "/plan.toml")),
            tables: include_str!(concat!("../../../papers/", $name, "/tables.csv")),
            twins: include_str!(concat!("../../../papers/", $name, "/twins.toml")),
            facts: include_str!(concat!("../../../papers/", $name, "/facts.toml")),
            items: include_str!(concat!("../../../papers/", $name, "/items.toml")),
        }
    };
}

/// All studies that can be run again.
pub static STUDIES: &[StudyFiles] = &[
    study_files!("sena"),
    study_files!("loggernet"),
    study_files!("netio"),
    study_files!("wireless"),
    study_files!("linx"),
];

/// A study.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Study {
    /// The name, as in commands.
    pub name: String,
    /// The title of the publication.
    pub title: String,
    /// Authors and date.
    pub source: String,
    /// Differences by which a quick run is shorter than the study.
    pub shortened: String,
    /// Serial lines, if the links are such. The value after `@` in a cell is then the line's bit/s.
    #[serde(default)]
    line: Option<SerialLineSpec>,
    /// Protocol of the study if it downloads by request and reply. The value after `@` in a cell is then the one-way delay in ms.
    #[serde(default)]
    download: Option<ChunkProtocol>,
    /// Guests by name, for cells that need kernel features a host may lack.
    #[serde(default, rename = "guest")]
    guests: BTreeMap<String, GuestSpec>,
    /// The kinds of endpoints that the study measured.
    #[serde(rename = "cell")]
    pub cells: Vec<Cell>,
    #[serde(rename = "measure")]
    measures: Vec<MeasureSpec>,
    #[serde(rename = "table")]
    tables: Vec<StudyTableSpec>,
    /// The trial that runs after the tables.
    #[serde(default)]
    trial: Option<trial::WindowTrial>,
    #[serde(skip)]
    rows: Vec<PublishedFigure>,
    /// The published systems, rebuilt from some of their figures.
    #[serde(skip)]
    twins: twin::TwinFile,
    /// Statements of the study besides its figures.
    #[serde(skip)]
    facts: facts::FactFile,
    /// Everything that the study contains, in its order.
    #[serde(skip)]
    items: items::ItemFile,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct SerialLineSpec {
    bits_per_character: f64,
}

/// A kind of endpoint that the study measured.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    /// The name in the tables, before the number of ports.
    pub name: String,
    /// The device or program at this endpoint.
    pub is: String,
    /// Numbers of ports that the study used simultaneously.
    pub ports: Vec<u32>,
    /// Values after `@`, for measures that give none.
    #[serde(default)]
    at: Vec<String>,
    /// Options for its URLs. `{at}` stands for the rate.
    #[serde(default)]
    options: String,
    /// The published network, and the links between its two ends.
    pub network: Option<String>,
    /// Number of relays between the ends.
    pub hops: Option<u32>,
    /// The link in front of it.
    #[serde(default)]
    link: Option<LinkRates>,
    /// The link under it in the study, if known.
    #[serde(default)]
    frames: Option<sizes::FrameFormat>,
    /// The lab device that replaces it.
    #[serde(default)]
    pub lab: Option<String>,
    /// The linkgauge command that replaces it, as typed, and its variant for a quick run. `{ports}` and `{at}` are
    /// those of the cell, `{id}` differs between runs, `here:rfcomm` is an endpoint of this host over that transport.
    #[serde(default)]
    command: String,
    #[serde(default)]
    quick_command: Option<String>,
    /// The twin whose link is in front of it, or whose nodes it is: `wireless/tcp`.
    #[serde(default)]
    pub like: Option<String>,
    /// Prefix of the command that selects where it runs: `ip netns exec far`.
    #[serde(default)]
    pub under: String,
    /// The address for the client, if that differs from the command's endpoint.
    #[serde(default)]
    pub address: Option<Endpoint>,
    /// The guest to measure it in if this host cannot.
    #[serde(default)]
    guest: Option<String>,
    /// The kernel modules that it needs. Empty: all modules of its guest.
    #[serde(default)]
    modules: Vec<String>,
    /// The cell that it is compared with. If a guest measures that one, the same guest measures this one.
    #[serde(default)]
    pub beside: Option<String>,
    /// Replacement of the cell in that guest.
    #[serde(default)]
    in_guest: Option<guest::GuestPlace>,
    /// A lab logger omits records while it is busy.
    #[serde(default)]
    pub skips_records: bool,
    /// The name of the replacement wherever its figures appear.
    #[serde(default)]
    pub stand_in: Option<String>,
    /// Reason why the lab has no replacement.
    #[serde(default)]
    pub not_in_lab: Option<String>,
}

/// A measurement of cells, at several rates of the line.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct MeasureSpec {
    name: String,
    cells: Vec<String>,
    /// Rates of the line, in bit/s. Empty: those of the cells.
    #[serde(default)]
    at: Vec<String>,
    case: CaseSpec,
    /// The cases run in sequence on the same replacement, which keeps running. So does any state that the protocol
    /// leaves.
    #[serde(default)]
    together: bool,
    /// Case that is measured first, at the same endpoint.
    #[serde(default)]
    before: Option<CaseSpec>,
    /// Overrides for a quick run.
    #[serde(default)]
    quick: CaseSpec,
    /// Duration that sets a quick run's volume, at the line's rate.
    #[serde(default)]
    quick_line_time: Option<Span>,
    /// Volume by rate.
    #[serde(default)]
    volume: BTreeMap<String, Bytes>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct StudyTableSpec {
    number: String,
    title: String,
    rows_are: String,
}

/// One published figure.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct PublishedFigure {
    table: String,
    row: String,
    column: String,
    published: String,
    unit: String,
    case: String,
    statistic: String,
    note: String,
}

/// A cell with its number of ports and one rate, delay or size: `tcp/4@9600`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct MeasuringPoint {
    /// The name of the cell.
    pub cell: String,
    /// Ports used at once.
    pub ports: u32,
    /// Line rate in bit/s, link delay in ms, or message size in bytes.
    pub value: u32,
}

impl fmt::Display for MeasuringPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}@{}", self.cell, self.ports, self.value)
    }
}

/// A case of the study's plan.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedCase {
    /// The name in the tables: `latency:tcp/4@9600`.
    pub name: String,
    /// The cell, number of ports and value of the case.
    pub point: MeasuringPoint,
    /// Cases of the same group run in sequence at one endpoint.
    pub group: String,
    spec: CaseSpec,
    preparation: Option<CaseSpec>,
    line: Option<PhysicalLine>,
    /// The settings of the download, in studies of downloads.
    pub download: Option<DownloadPlan>,
    /// The link that messages cross.
    pub link: Option<DelayedLink>,
}

/// The physical line of a case.
#[derive(Debug, Clone, Copy, PartialEq)]
struct PhysicalLine {
    bits_per_second: f64,
    bits_per_character: f64,
}

impl PhysicalLine {
    /// Seconds that this many characters take. A loopback plug returns each character while it is sent.
    fn transfer_seconds(&self, characters: u64) -> f64 {
        characters as f64 * self.bits_per_character / self.bits_per_second
    }
}

/// A statistic that corresponds to a published figure.
struct StudyStatistic {
    name: &'static str,
    /// Unit of the published figure and of the results of `of` and `limit`.
    unit: &'static str,
    measured: fn(&CaseResult, &PlannedCase) -> Option<f64>,
    theoretical_limit: fn(&PlannedCase) -> Option<f64>,
    predicted: fn(&PlannedCase) -> Option<f64>,
    /// Whether a measured figure exceeds its limit.
    is_beyond_limit: fn(f64, f64) -> bool,
    /// The statistic counts losses, so losses do not make it doubtful.
    includes_lost: bool,
}

/// Note for figures that were measured while the host was busy.
pub const HOST_BUSY_NOTE: &str = "other programs kept the host busy meanwhile, see the warning host_busy";

/// Note for a figure that is impossible at the planned line rate.
const BEYOND_LIMIT_NOTE: &str = "better than a line of this rate allows: the line has another rate or none";
/// Maximum difference of the clocks of both devices of a line that understand each other, as a share: half a bit in the ten of a
/// character, half of that for each.
const CLOCK_TOLERANCE: f64 = 0.025;

/// Typical lower bound of a round trip over a network.
const MIN_ROUND_TRIP: Duration = Duration::from_micros(100);

fn is_below_limit(measured: f64, limit: f64) -> bool {
    measured < limit * (1.0 - CLOCK_TOLERANCE)
}

fn is_above_limit(measured: f64, limit: f64) -> bool {
    measured > limit * (1.0 + CLOCK_TOLERANCE)
}

fn find_statistic(name: &str) -> Option<&'static StudyStatistic> {
    line_statistics::STATISTICS
        .iter()
        .chain(&protocol_counters::STATISTICS)
        .chain(&distribution::STATISTICS)
        .chain(&message_times::STATISTICS)
        .find(|statistic| statistic.name == name)
}

/// The outcome of a case.
pub enum CaseOutcome<'a> {
    /// The case has figures.
    Measured {
        /// Index of the case in the document, from 1.
        number: usize,
        /// The figures.
        case: &'a CaseResult,
        /// Whether the figure was measured with lab devices, not hardware.
        is_stand_in: bool,
        /// Whether the figure was measured in a guest.
        is_guest: bool,
    },
    /// The reason.
    NotMeasured(String),
}

impl Study {
    /// Finds the study of that name.
    ///
    /// # Errors
    ///
    /// Fails if there is no such study, or if its texts are invalid.
    pub fn by_name(name: &str) -> Result<Study, StudyError> {
        let texts = STUDIES.iter().find(|study| study.name == name).ok_or_else(|| {
            let known: Vec<&str> = STUDIES.iter().map(|study| study.name).collect();
            StudyError::Unknown { name: name.to_owned(), known: known.join(", ") }
        })?;
        Study::parse(texts)
    }

    fn parse(texts: &StudyFiles) -> Result<Study, StudyError> {
        let StudyFiles { plan, tables, twins, facts, items, .. } = texts;
        let mut study: Study = toml::from_str(plan).map_err(|error| StudyError::Plan(error.to_string()))?;
        let rows: Result<Vec<PublishedFigure>, csv::Error> =
            csv::Reader::from_reader(tables.as_bytes()).into_deserialize().collect();
        study.rows = rows.map_err(|error| StudyError::Tables(error.to_string()))?;
        study.twins = twin::TwinFile::parse(twins)?;
        study.facts = facts::FactFile::parse(facts)?;
        study.items = items::ItemFile::parse(items)?;
        study.complete_guests()?;
        Ok(study)
    }

    /// Table numbers, in the study's order.
    pub fn table_numbers(&self) -> Vec<&str> {
        self.tables.iter().map(|table| table.number.as_str()).collect()
    }

    /// Whether the value after `@` is a message size. Such a study has no lines.
    pub fn has_sizes(&self) -> bool {
        self.line.is_none() && self.download.is_none()
    }

    /// Whether the value after `@` is a delay, not a rate.
    pub fn has_delays(&self) -> bool {
        self.download.is_some()
    }

    /// The cell of that name.
    pub fn find_cell(&self, name: &str) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.name == name)
    }

    /// Selects these tables. An empty list selects all.
    ///
    /// # Errors
    ///
    /// Fails if the study has no table of one of these numbers.
    pub fn select_tables(&mut self, numbers: &[String]) -> Result<(), StudyError> {
        if let Some(number) = numbers.iter().find(|number| !self.table_numbers().contains(&number.as_str())) {
            let known = self.table_numbers().join(", ");
            return Err(StudyError::NoTable { number: number.clone(), known });
        }
        if !numbers.is_empty() {
            self.tables.retain(|table| numbers.contains(&table.number));
        }
        Ok(())
    }

    /// The rows of the chosen tables.
    fn selected_rows(&self) -> impl Iterator<Item = &PublishedFigure> {
        self.tables.iter().flat_map(|table| self.table_rows(table))
    }

    fn table_rows<'a>(&'a self, table: &'a StudyTableSpec) -> impl Iterator<Item = &'a PublishedFigure> {
        self.rows.iter().filter(|row| row.table == table.number)
    }

    /// The selected tables: each published figure with the result that `outcome` gives for its case.
    ///
    /// # Errors
    ///
    /// Fails if the plan or the tables are invalid.
    pub fn join_results<'a>(
        &self,
        length: StudyLength,
        outcome: &dyn Fn(&PlannedCase) -> CaseOutcome<'a>,
    ) -> Result<StudyResult, StudyError> {
        let cases: BTreeMap<String, PlannedCase> =
            self.cases(length)?.into_iter().map(|case| (case.name.clone(), case)).collect();
        let table = |table: &StudyTableSpec| {
            let rows: Result<Vec<StudyRow>, StudyError> =
                self.table_rows(table).map(|row| row.join_outcome(&cases, outcome)).collect();
            rows.map(|rows| StudyTable {
                number: table.number.clone(),
                title: self.table_title(table, &rows),
                rows_are: table.rows_are.clone(),
                rows,
            })
        };
        let mut result = StudyResult {
            name: self.name.clone(),
            title: self.title.clone(),
            source: self.source.clone(),
            shortened: length.is_quick().then(|| self.shortened.clone()),
            stand_ins: self.stand_ins(),
            guests: Vec::new(),
            twins: None,
            tables: self.tables.iter().map(table).collect::<Result<_, _>>()?,
            charts: self.facts.charts_of(&self.table_numbers()),
            facts: self.facts.facts.clone(),
            statements: Vec::new(),
        };
        self.judge_statements(&mut result);
        Ok(result)
    }
}

impl Cell {
    /// The words of the command that replaces the hardware.
    pub fn command_words(&self, length: StudyLength) -> impl Iterator<Item = &str> {
        let short = self.quick_command.as_deref().filter(|_| length.is_quick());
        short.unwrap_or(&self.command).split_whitespace()
    }

    /// The endpoint with the study's line settings. Options that the endpoint names have priority, except the rate.
    ///
    /// # Errors
    ///
    /// Fails if the endpoint names the rate, or if the options do not fit it.
    pub fn configure_endpoint(&self, endpoint: &Endpoint, at: u32) -> Result<Endpoint, StudyError> {
        let mut text = endpoint.to_string();
        for option in self.options.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            match endpoint.option(name) {
                Some(_) if value.contains("{at}") => {
                    return Err(StudyError::SetByStudy {
                        endpoint: endpoint.clone(),
                        option: name.to_owned(),
                    });
                }
                Some(_) => continue,
                None => {}
            }
            text.push(if text.contains('?') { '&' } else { '?' });
            text += &format!("{name}={}", value.replace("{at}", &at.to_string()));
        }
        Ok(text.parse()?)
    }
}

impl PlannedCase {
    /// The settings of the case, without endpoints.
    pub fn spec(&self) -> &CaseSpec {
        &self.spec
    }

    /// Bits per second of the physical line, and bits per character; `None` without a line.
    pub(crate) fn line_rate(&self) -> Option<(f64, f64)> {
        self.line.map(|line| (line.bits_per_second, line.bits_per_character))
    }

    /// Replaces the study's protocol options.
    pub fn set_options(&mut self, options: &[(String, String)]) {
        for spec in self.preparation.iter_mut().chain([&mut self.spec]) {
            spec.protocol_options.extend(options.iter().cloned());
        }
    }

    /// The cases to run at these endpoints: first the preparatory one of the measure, last the case itself.
    ///
    /// # Errors
    ///
    /// Fails if the settings contradict each other.
    pub fn expand(&self, endpoints: &[Endpoint]) -> Result<Vec<Case>, CaseSpecError> {
        let mut cases = Vec::new();
        for spec in self.preparation.iter().chain([&self.spec]) {
            let url = Some(OneOrMany::Many(endpoints.to_vec()));
            cases.extend(CaseSpec { url, together: Some(true), ..spec.clone() }.expand()?);
        }
        Ok(cases)
    }

    /// Requests in flight.
    fn window(&self) -> u32 {
        self.spec.protocol_options.get("window").and_then(|window| window.parse().ok()).unwrap_or(1)
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

    /// Returns the case with a device that processes requests in no time: the theoretical minimum.
    pub fn without_processing(&self) -> PlannedCase {
        let download = self.download.map(DownloadPlan::without_processing);
        PlannedCase { download, ..self.clone() }
    }

    /// Duration if only the line, the link and the lab device take time.
    pub fn min_duration(&self) -> Duration {
        let own = self.min_duration_of(&self.spec);
        own + self.preparation.as_ref().map_or(Duration::ZERO, |before| self.min_duration_of(before))
    }

    fn min_duration_of(&self, spec: &CaseSpec) -> Duration {
        let round_trips = spec.count.map(|count| count.0 + spec.warm_up_count.map_or(0, |count| count.0));
        let seconds = match (self.line, self.download, round_trips, spec.volume) {
            (Some(line), _, Some(round_trips), _) => {
                line.transfer_seconds(round_trips * self.message_bytes())
            }
            (Some(line), _, None, Some(volume)) => line.transfer_seconds(volume.0),
            (_, Some(download), Some(round_trips), _) => {
                let path = download.link.map(|path| path.round_trip().as_secs_f64());
                round_trips as f64 * path.unwrap_or_default()
            }
            (_, Some(download), None, Some(volume)) => {
                volume.0 as f64 / download.predicted_rate(self.window(), volume.0)
            }
            (_, _, Some(round_trips), _) => {
                let each = match spec.rate {
                    Some(RateTarget::Fixed(rate)) => 1.0 / rate.0,
                    Some(RateTarget::Max) | None => MIN_ROUND_TRIP.as_secs_f64(),
                };
                round_trips as f64 * each
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
