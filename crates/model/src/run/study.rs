//! A published study in a run document: its figures beside the measured ones, and what it states besides them.

use serde::{Deserialize, Serialize};

use super::is_false;

/// A published study: its figures beside the measured ones.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StudyResult {
    /// Name of the study.
    pub name: String,
    /// Title of the plan.
    pub title: String,
    /// Authors and date.
    pub source: String,
    /// Differences by which this run is shorter than the study.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub shortened: Option<String>,
    /// Names of the lab devices that replace hardware: `emulated logger`.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub stand_ins: Vec<String>,
    /// Descriptions of the guests that cases were measured in.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub guests: Vec<String>,
    /// The requested tables, in the study's order.
    pub tables: Vec<StudyTable>,
    /// Accuracy with which the twins of the study predict its figures. If present, the measured figures are those of the twins.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub twins: Option<String>,
    /// The charts of the study that combine several of these tables.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub charts: Vec<StudyChart>,
    /// Statements of the study besides its figures: machines, versions, parameters, set-ups.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub facts: Vec<StudyFact>,
    /// Sentences of the study about its figures, judged by the measured ones.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub statements: Vec<StudyStatement>,
}

/// A sentence of a study about figures, and whether the measured ones agree.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StudyStatement {
    /// The place in the study: `Text`, `Footnote`.
    pub of: String,
    /// The sentence, in our words.
    pub says: String,
    /// The measured value, which is the least favourable one of a sentence about several figures.
    pub value: f64,
    /// Unit of the values.
    pub unit: String,
    /// Smallest value with which the sentence holds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub least: Option<f64>,
    /// Largest value with which the sentence holds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub most: Option<f64>,
    /// Whether the sentence holds.
    pub holds: bool,
    /// The sentence determined parameters of the twin that gave the value.
    #[serde(skip_serializing_if = "is_false", default)]
    pub fitted: bool,
}

/// A chart of a study that combines several tables.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StudyChart {
    /// The name in the study: `Figure 4`.
    pub of: String,
    /// Title, in our words.
    pub title: String,
    /// The meaning of the row names: products, rates.
    pub rows_are: String,
    /// Numbers of the tables.
    pub tables: Vec<String>,
}

/// A table of facts, or a drawing of a set-up.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StudyFact {
    /// The name in the study: `Table 1`, `Figure 2`.
    pub of: String,
    /// Title, in our words.
    pub title: String,
    /// Names of the columns. Empty for a drawing.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub head: Vec<String>,
    /// Cells as text, as many per row as columns.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub rows: Vec<Vec<String>>,
    /// Lines of characters of equal width. Empty for a table.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub drawing: String,
}

/// A table of a study.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StudyTable {
    /// Number of the table, as in the study.
    pub number: String,
    /// Title of the plan.
    pub title: String,
    /// The meaning of the row names: products, rates.
    pub rows_are: String,
    /// All figures of the table, row by row.
    pub rows: Vec<StudyRow>,
}

/// One published figure and its counterpart. `published`, `measured`, `predicted` and `limit` are in `unit`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StudyRow {
    /// Row of the table.
    pub row: String,
    /// Column of the table.
    pub column: String,
    /// Published value as printed, including `Not Available` and the like.
    pub published: String,
    /// Unit of the figures of this row.
    pub unit: String,
    /// The corresponding case of the study's plan. Several rows may share one.
    pub planned_case: String,
    /// The statistic of that case.
    pub statistic: String,
    /// The measured value, if there is one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub measured: Option<f64>,
    /// The value expected from the study's settings.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub predicted: Option<f64>,
    /// The best value that the physical line allows.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub theoretical_limit: Option<f64>,
    /// The case in this document, from 1.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub case: Option<usize>,
    /// Whether the figure was measured with lab devices, not hardware.
    #[serde(skip_serializing_if = "is_false", default)]
    pub stand_in: bool,
    /// Whether the figure was measured in a guest. Such figures compare only with each other.
    #[serde(skip_serializing_if = "is_false", default)]
    pub guest: bool,
    /// The published figure determined parameters of the twin that gave the measured one.
    #[serde(skip_serializing_if = "is_false", default)]
    pub fitted: bool,
    /// Reason why nothing was measured, or why the measured figure is doubtful.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
    /// A remark on the published figure.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub note: Option<String>,
}
