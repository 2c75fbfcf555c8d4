//! Twins: the published systems, each rebuilt as a part of the lab with few parameters. Some of the published figures
//! determine the parameters, and the twin predicts the others.
//!
//! This module reads the twins of a study and says which figures belong to them. `crate::twin` runs them.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::{PlannedCase, PublishedFigure, Study, StudyError, StudyLength, StudyStatistic, find_statistic};
use linkgauge_model::run::CaseResult;
use linkgauge_model::units::{BitRate, ByteTime, Bytes, Share, Span};

/// The twins of a study.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TwinFile {
    /// Statistics that print another one again, in another unit: such a figure counts once.
    #[serde(default)]
    repeats: BTreeMap<String, String>,
    /// The model without a mechanism that the twins are compared with.
    pub(super) trivial: TrivialSpec,
    /// Origins of values, by their names.
    #[serde(default)]
    sources: BTreeMap<String, String>,
    #[serde(rename = "twin")]
    twins: Vec<Twin>,
}

/// A model without a mechanism: what it does not predict is informative.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TrivialSpec {
    /// The name in sentences: `the rate of the line alone`.
    pub(super) is: String,
    from: TrivialModel,
}

/// The origin of the values of a trivial model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum TrivialModel {
    /// The theoretical limits of the plan.
    Limit,
    /// The fitted figures of the same column: between two of them on a curve, beyond them the nearest.
    #[default]
    FittedFigures,
}

/// A published system, rebuilt.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Twin {
    /// The name within the study.
    pub name: String,
    /// Description of the twin, in a few words.
    pub is: String,
    /// The part of the lab that it is.
    lab: String,
    /// Selectors of the published figures of the twin.
    figures: Vec<FigureSelector>,
    /// The cases or rows whose figures determined the parameters.
    fit: Vec<String>,
    /// Derivation of the parameters.
    pub derivation: String,
    /// Figures that it does not explain.
    #[serde(default)]
    misses: Vec<Miss>,
    /// The parameters, fitted to published figures.
    #[serde(default)]
    pub parameters: toml::Table,
    /// Values that come from a standard, or from another twin.
    #[serde(default)]
    pub known: toml::Table,
    /// Origins of its values, where they differ from those of the study.
    #[serde(default)]
    sources: BTreeMap<String, String>,
}

/// Figures of a table, by the first words of row and column; all if absent.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FigureSelector {
    pub(super) table: String,
    row: Option<String>,
    column: Option<String>,
    /// The figures are bounds or conditions: statements judge them, and no deviation counts.
    #[serde(default)]
    judged: bool,
}

impl FigureSelector {
    pub(super) fn selects(&self, figure: &PublishedFigure) -> bool {
        let begins = |text: &str, start: &Option<String>| match start {
            Some(start) => {
                text.strip_prefix(start.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with(','))
            }
            None => true,
        };
        self.table == figure.table && begins(&figure.row, &self.row) && begins(&figure.column, &self.column)
    }
}

/// Figures that a twin does not explain.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Miss {
    /// Cases or rows of these figures.
    of: Vec<String>,
    /// The reason, or what is known.
    why: String,
}

/// A part of the lab with the parameters of a twin.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "lab", rename_all = "kebab-case", deny_unknown_fields)]
pub enum TwinModel {
    /// A serial port with a loopback plug.
    Uart {
        /// Characters that cause an interrupt.
        trigger: u32,
        /// Character times of silence that cause one.
        idle_characters: u32,
    },
    /// Ports of a device server with a loopback plug each.
    DeviceServer(DeviceServerTwin),
    /// A serial adapter that packs the data of its line before it sends them over a radio.
    Adapter {
        /// Time of silence after which the data are sent.
        silence: Span,
        /// Number of bytes after which the data are sent.
        length: u32,
        /// Rate of the radio, in bits per second of the line, start and stop bits included.
        ceiling: BitRate,
    },
    /// A data logger behind a token bucket.
    Logger {
        /// Bytes of the file per round trip.
        chunk: u32,
        /// Time of the logger per chunk.
        chunk_time: Span,
        /// Size of the bucket.
        burst: Bytes,
        /// Bytes of headers per chunk on the link.
        overhead: Bytes,
        /// A collection misses records while the logger is busy.
        #[serde(default)]
        skips_records: bool,
    },
    /// Wi-Fi.
    Radio(RadioTwin),
    /// A link with frames of fixed length, as Bluetooth behind USB.
    Frames {
        /// The shortest round trip.
        base: Span,
        /// Length of a frame: each direction misses one frame with a probability of one half.
        frame: Span,
        /// A share of the round trips takes this much longer.
        spike: Span,
        /// Share of the spikes.
        spike_share: Share,
    },
    /// Nodes that send each other messages.
    Messages(MessageTwin),
    /// A slow computer that sends or receives a stream.
    Board {
        /// Rate of the line; absent: none limits.
        line: Option<BitRate>,
        /// The processor needs this time to send a byte.
        send_byte: Option<ByteTime>,
        /// Time that each receive call takes.
        receive_call: Option<Span>,
    },
}

/// A device server with one slow processor.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceServerTwin {
    /// Installed ports.
    pub ports: u32,
    /// Largest transfer.
    pub block: u32,
    /// Transfers start at multiples of this time.
    pub poll: Span,
    /// Processor time of a transfer.
    pub budget: Option<Span>,
    /// Processor time per byte.
    pub byte_time: Option<ByteTime>,
    /// Processor time of a transfer per open session, and added to the poll interval per installed port.
    pub port_time: Option<Span>,
    /// The share of the processor that an active line takes.
    pub line_load: Option<Share>,
    /// The line rests for this time after each full block.
    pub drain_pause: Option<Span>,
    /// Minimum rate of the line at which it rests after full blocks.
    pub drain_from: Option<BitRate>,
    /// Delay of the network in front of it, in each direction.
    pub network_delay: Option<Span>,
}

/// A radio link whose devices wait for each other.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RadioTwin {
    /// The shortest round trip.
    pub base: Span,
    /// Maximum time that each direction waits for a slot.
    pub contention: Span,
    /// The share of the round trips that wait for other devices.
    pub deferred: Share,
    /// The mean of that wait.
    pub wait: Span,
    /// The share of the round trips that lose a message.
    pub lost: Share,
    /// A lost message arrives this much later; absent: never.
    pub retransmission: Option<Span>,
}

/// Nodes that send each other messages; the fields of [`NodeCosts`](linkgauge_engine::link::shaped::NodeCosts).
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MessageTwin {
    /// Time of every message.
    pub message: Option<Span>,
    /// Time that a message waits for the interrupt of its receiver.
    pub interrupt_wait: Option<Span>,
    /// Time of the receiver per frame.
    pub frame: Option<Span>,
    /// Time per byte of the first frame.
    pub first_frame_byte: Option<ByteTime>,
    /// Transmissions of the first frame, one after the other.
    #[serde(default)]
    pub hops: u32,
    /// Time to copy a byte.
    pub byte: Option<ByteTime>,
    /// Bytes that fit in the cache.
    pub cache: Option<f64>,
    /// Messages that share the cache in throughput.
    pub queue: Option<f64>,
    /// Time of the sender per message.
    pub busy_message: Option<Span>,
    /// Time of the sender per frame.
    pub busy_frame: Option<Span>,
    /// Shortest time from one message to the next.
    pub busy: Option<Span>,
    /// Time of the receiver per byte, beside `busy`, while the message arrives.
    pub busy_byte: Option<ByteTime>,
    /// Rate of the line.
    pub bits_per_second: Option<BitRate>,
    /// Header of each frame in bytes.
    #[serde(default)]
    pub header: u64,
    /// Payload of the first frame in bytes.
    #[serde(default)]
    pub(crate) first_payload: u64,
    /// Payload of the other frames in bytes.
    #[serde(default)]
    pub payload: u64,
}

/// A published figure with the twin that explains or predicts it.
pub struct TwinFigure<'a> {
    /// The twin.
    pub twin: &'a Twin,
    /// The case that measures it.
    pub case: PlannedCase,
    /// The published value; `None` if a statement judges the row.
    pub published: Option<f64>,
    /// The value of the model without a mechanism, where it has one.
    pub trivial: Option<f64>,
    /// Whether the figure determined parameters of the twin.
    pub is_fitted: bool,
    /// Whether the figure prints another one again: in another unit, or in another table.
    pub(crate) is_repeat: bool,
    /// Reason why the twin misses the figure, if it does and the reason is known.
    pub miss: Option<&'a str>,
    figure: &'a PublishedFigure,
    statistic: &'static StudyStatistic,
}

impl TwinFile {
    pub(super) fn parse(text: &str) -> Result<TwinFile, StudyError> {
        let file: TwinFile = toml::from_str(text).map_err(|error| StudyError::Twins(error.to_string()))?;
        file.twins.iter().try_for_each(|twin| twin.model().map(|_| ()))?;
        Ok(file)
    }
}

impl TwinModel {
    /// The command of the lab that starts such a part with `--like`; `None` if there is none.
    pub fn lab_command(&self) -> Option<&'static str> {
        match self {
            TwinModel::Uart { .. } | TwinModel::Adapter { .. } => None,
            TwinModel::DeviceServer(_) => Some("device-server"),
            TwinModel::Logger { .. } => Some("logger"),
            TwinModel::Messages(_) => Some("messages"),
            TwinModel::Radio(_) | TwinModel::Frames { .. } | TwinModel::Board { .. } => Some("shaper"),
        }
    }
}

impl Twin {
    /// The part of the lab that this twin is.
    ///
    /// # Errors
    ///
    /// Fails if a parameter is missing, unknown or invalid.
    pub fn model(&self) -> Result<TwinModel, StudyError> {
        self.model_with(self.values())
    }

    /// All values, with their names.
    pub(crate) fn values(&self) -> toml::Table {
        self.parameters.clone().into_iter().chain(self.known.clone()).collect()
    }

    /// The same part of the lab with other values.
    pub(crate) fn model_with(&self, mut values: toml::Table) -> Result<TwinModel, StudyError> {
        values.insert("lab".to_owned(), self.lab.clone().into());
        values.try_into().map_err(|error| StudyError::Twins(format!("{}: {error}", self.name)))
    }

    /// The selector of the figure; `None` if it is a figure of another twin.
    fn selector(&self, figure: &PublishedFigure) -> Option<&FigureSelector> {
        self.figures.iter().find(|selector| selector.selects(figure))
    }

    pub(super) fn owns(&self, figure: &PublishedFigure) -> bool {
        self.selector(figure).is_some()
    }
}

/// Whether these names of cases or rows contain the figure.
fn names_figure(names: &[String], figure: &PublishedFigure) -> bool {
    names.iter().any(|name| *name == figure.case || *name == figure.row)
}

impl Study {
    /// The twins of the study.
    pub fn twins(&self) -> &[Twin] {
        &self.twins.twins
    }

    /// The published figures of the selected tables that belong to a twin, in their order, each once.
    ///
    /// # Errors
    ///
    /// Fails if the plan or the tables are invalid.
    pub fn twin_figures(&self) -> Result<Vec<TwinFigure<'_>>, StudyError> {
        let is_figure = |figure: &TwinFigure| !figure.is_repeat && figure.published.is_some();
        Ok(self.twin_rows()?.into_iter().filter(is_figure).collect())
    }

    /// All rows of the selected tables that belong to a twin: repetitions of figures, and words that statements judge, too.
    ///
    /// # Errors
    ///
    /// Fails if the plan or the tables are invalid.
    pub(crate) fn twin_rows(&self) -> Result<Vec<TwinFigure<'_>>, StudyError> {
        let cases: BTreeMap<String, PlannedCase> =
            self.all_cases(StudyLength::Full)?.into_iter().map(|case| (case.name.clone(), case)).collect();
        let mut seen = BTreeSet::new();
        let mut figures = Vec::new();
        for figure in self.selected_rows() {
            for twin in &self.twins.twins {
                let Some(selector) = twin.selector(figure) else { continue };
                let published = figure.published.parse().ok().filter(|_| !selector.judged);
                if published.is_none() && !selector.judged {
                    continue;
                }
                let what = self.twins.repeats.get(&figure.statistic).unwrap_or(&figure.statistic);
                let is_repeat = !seen.insert((&twin.name, &figure.case, what));
                let unknown = || StudyError::Tables(format!("{} {}", figure.case, figure.statistic));
                let case = cases.get(&figure.case).ok_or_else(unknown)?.clone();
                let statistic = find_statistic(&figure.statistic).ok_or_else(unknown)?;
                let trivial = match self.twins.trivial.from {
                    TrivialModel::Limit => (statistic.theoretical_limit)(&case),
                    TrivialModel::FittedFigures => self.curve_through_fitted(twin, figure),
                };
                let is_missed = |miss: &&Miss| names_figure(&miss.of, figure);
                figures.push(TwinFigure {
                    twin,
                    case,
                    published,
                    trivial,
                    is_fitted: names_figure(&twin.fit, figure),
                    is_repeat,
                    miss: twin.misses.iter().find(is_missed).map(|miss| &*miss.why),
                    figure,
                    statistic,
                });
            }
        }
        Ok(figures)
    }

    /// The value at this figure of a curve through the fitted figures of its column.
    fn curve_through_fitted(&self, twin: &Twin, figure: &PublishedFigure) -> Option<f64> {
        let is_beside = |other: &&PublishedFigure| {
            (&other.table, &other.column, &other.unit) == (&figure.table, &figure.column, &figure.unit)
        };
        let column: Vec<&PublishedFigure> = self.rows.iter().filter(is_beside).collect();
        let here = column.iter().position(|other| std::ptr::eq(*other, figure))?;
        let fitted = column.iter().enumerate().filter(|(_, other)| names_figure(&twin.fit, other));
        let known: Vec<(usize, f64)> =
            fitted.filter_map(|(place, other)| Some((place, other.published.parse().ok()?))).collect();
        let (before, after) = known.split_at(known.partition_point(|(place, _)| *place <= here));
        Some(match (before.last(), after.first()) {
            (Some(&(low, first)), Some(&(high, second))) => {
                let share = (here - low) as f64 / (high - low) as f64;
                // Rows are powers of two as a rule, so the curve is a straight line on logarithmic paper.
                match first > 0.0 && second > 0.0 {
                    true => first * (second / first).powf(share),
                    false => first + (second - first) * share,
                }
            }
            (Some(&(_, nearest)), None) | (None, Some(&(_, nearest))) => nearest,
            (None, None) => return None,
        })
    }

    /// The name of the model without a mechanism.
    pub(crate) fn trivial_name(&self) -> &str {
        &self.twins.trivial.is
    }

    /// The origin of a value of a twin.
    pub fn source_of<'a>(&'a self, twin: &'a Twin, name: &str) -> Option<&'a str> {
        twin.sources.get(name).or_else(|| self.twins.sources.get(name)).map(String::as_str)
    }
}

impl TwinFigure<'_> {
    /// The number of its table.
    pub fn table(&self) -> &str {
        &self.figure.table
    }

    /// The row in the table.
    pub fn row(&self) -> &str {
        &self.figure.row
    }

    /// The column in the table.
    pub fn column(&self) -> &str {
        &self.figure.column
    }

    /// The unit.
    pub fn unit(&self) -> &str {
        &self.figure.unit
    }

    /// The name of its statistic.
    pub(crate) fn statistic(&self) -> &'static str {
        self.statistic.name
    }

    /// The value of the figure in the result of its case.
    pub fn value(&self, result: &CaseResult) -> Option<f64> {
        (self.statistic.measured)(result, &self.case)
    }
}

#[cfg(test)]
mod tests;
