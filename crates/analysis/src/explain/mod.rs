//! Explains times: from measured or published figures to causes.
//!
//! The models have few parameters, and each finding states how well its model fits. They are pure functions, and a finding
//! is a list of blocks that `report` draws. `live` measures: it looks for the `causes` of a link and proves them.

use serde_json::{Value, json};

use linkgauge_model::run::{Run, TOOL};
use linkgauge_studies::study::{Study, StudyError};

pub mod causes;
pub mod counters;
pub mod live;
pub mod mechanisms;
pub mod mesh;
pub(crate) mod size;
pub mod window;

/// The figures to explain.
pub enum ModelInput<'a> {
    /// A measured or imported run.
    Run(&'a Run),
    /// The published figures of a study.
    Study(&'a Study),
}

/// Facts that the user declares because the input may lack them.
#[derive(Debug, Clone, Copy, Default)]
pub struct DeclaredFacts {
    /// Maximum payload rate of the line, in bit/s.
    pub line_bps: Option<f64>,
}

/// A question that the input may answer.
pub struct Model {
    /// The name in documents and commands.
    pub name: &'static str,
    /// Description for help and documents.
    pub summary: &'static str,
    /// Applies the model.
    pub(crate) explain: fn(&ModelInput, &DeclaredFacts) -> Result<Finding, ExplainError>,
}

/// Error of a model that does not apply.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExplainError {
    /// The data that the model lacks.
    #[error("{0}")]
    InsufficientData(String),
    /// The texts of the study are invalid.
    #[error("{0}")]
    Study(#[from] StudyError),
}

/// The result of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// The name of the model.
    pub model: &'static str,
    /// All figures, with units in their names.
    pub figures: Value,
    /// The answer in few lines. Empty if `blocks` are few.
    pub summary: Vec<FindingBlock>,
    /// All figures, formatted for people.
    pub blocks: Vec<FindingBlock>,
}

/// A part of a formatted finding.
#[derive(Debug, Clone, PartialEq)]
pub enum FindingBlock {
    /// A heading.
    Heading(String),
    /// A paragraph.
    Text(String),
    /// A table.
    Table {
        /// Number of leading text columns. The others hold figures.
        text_columns: usize,
        /// The headings of the columns.
        header: Vec<String>,
        /// The cells of each row, as many as there are headings.
        rows: Vec<Vec<String>>,
    },
}

/// Applies these models.
///
/// # Errors
///
/// Fails if no model applies: the name of each model, and why it does not apply.
pub fn explain(
    models: &[Model],
    input: &ModelInput,
    declared: &DeclaredFacts,
) -> Result<Vec<Finding>, Vec<(&'static str, ExplainError)>> {
    let (mut findings, mut silent) = (Vec::new(), Vec::new());
    for model in models {
        match (model.explain)(input, declared) {
            Ok(finding) => findings.push(finding),
            Err(why) => silent.push((model.name, why)),
        }
    }
    if findings.is_empty() { Err(silent) } else { Ok(findings) }
}

/// The findings as a JSON document.
pub fn findings_document(of: &str, findings: &[Finding]) -> Value {
    let findings = findings.iter().map(|finding| (finding.model.to_owned(), finding.figures.clone()));
    json!({ "explained": of, "tool": TOOL, "findings": findings.collect::<serde_json::Map<_, _>>() })
}
