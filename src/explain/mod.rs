//! Where the time goes: from what was measured, or published, to causes.
//!
//! For: models that few figures can tell apart, with what they miss said beside them. Not for measuring, and not for the
//! layout: a finding is a handful of blocks, `report` draws them. Pure functions.

use serde_json::{Value, json};

use crate::run::{Run, TOOL};
use crate::study::{Study, StudyError};

pub mod size;
pub mod window;

/// What is to be explained.
pub enum Evidence<'a> {
    Run(&'a Run),
    Study(&'a Study),
}

/// What somebody says of what was measured, that the evidence need not hold.
#[derive(Debug, Clone, Copy, Default)]
pub struct DeclaredFacts {
    /// What the line can carry of payload, in bit/s.
    pub line_bps: Option<f64>,
}

/// A question that evidence may answer.
pub struct Model {
    pub name: &'static str,
    /// For help and documents.
    pub summary: &'static str,
    pub explain: fn(&Evidence, &DeclaredFacts) -> Result<Finding, ExplainError>,
}

/// Every piece, in the order in which findings are shown.
pub static MODELS: &[Model] = &[window::MODEL, size::MODEL];

/// Why there is nothing to say.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    /// What the piece needs and does not find.
    #[error("{0}")]
    InsufficientData(String),
    #[error("{0}")]
    Study(#[from] StudyError),
}

/// What a piece found.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    pub model: &'static str,
    /// Every figure, with its unit in the name.
    pub figures: Value,
    /// The same for people.
    pub blocks: Vec<FindingBlock>,
}

/// A part of a finding as people read it.
#[derive(Debug, Clone, PartialEq)]
pub enum FindingBlock {
    Heading(String),
    Text(String),
    Table {
        /// Columns that hold words, the first ones; the others hold figures.
        text_columns: usize,
        header: Vec<String>,
        rows: Vec<Vec<String>>,
    },
}

/// What all pieces say, or why none says anything, a reason each.
pub fn explain(
    evidence: &Evidence,
    declared: &DeclaredFacts,
) -> Result<Vec<Finding>, Vec<(&'static str, ExplainError)>> {
    let (mut findings, mut silent) = (Vec::new(), Vec::new());
    for piece in MODELS {
        match (piece.explain)(evidence, declared) {
            Ok(finding) => findings.push(finding),
            Err(why) => silent.push((piece.name, why)),
        }
    }
    if findings.is_empty() { Err(silent) } else { Ok(findings) }
}

/// The findings as a document.
pub fn findings_document(of: &str, findings: &[Finding]) -> Value {
    let findings = findings.iter().map(|finding| (finding.model.to_owned(), finding.figures.clone()));
    json!({ "explained": of, "tool": TOOL, "findings": findings.collect::<serde_json::Map<_, _>>() })
}
