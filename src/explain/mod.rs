//! Where the time goes: from what was measured, or published, to causes.
//!
//! For: models that few figures can tell apart, with what they miss said beside them. Not for measuring, and not for the
//! layout: a finding is a handful of blocks, `report` draws them. Pure functions.

use serde_json::{Value, json};

use crate::paper::{PaperError, Study};
use crate::run::{Run, TOOL};

pub mod size;
pub mod window;

/// What is to be explained.
pub enum Evidence<'a> {
    Run(&'a Run),
    Study(&'a Study),
}

/// What somebody says of what was measured, that the evidence need not hold.
#[derive(Debug, Clone, Copy, Default)]
pub struct Declared {
    /// What the line can carry of payload, in bit/s.
    pub line_bps: Option<f64>,
}

/// A question that evidence may answer.
pub struct Piece {
    pub name: &'static str,
    /// For help and documents.
    pub summary: &'static str,
    pub explain: fn(&Evidence, &Declared) -> Result<Finding, NotExplained>,
}

/// Every piece, in the order in which findings are shown.
pub static PIECES: &[Piece] = &[window::PIECE, size::PIECE];

/// Why there is nothing to say.
#[derive(Debug, thiserror::Error)]
pub enum NotExplained {
    /// What the piece needs and does not find.
    #[error("{0}")]
    Lacking(String),
    #[error("{0}")]
    Study(#[from] PaperError),
}

/// What a piece found.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    pub piece: &'static str,
    /// Every figure, with its unit in the name.
    pub figures: Value,
    /// The same for people.
    pub blocks: Vec<Block>,
}

/// A part of a finding as people read it.
#[derive(Debug, Clone, PartialEq)]
pub enum Block {
    Heading(String),
    Text(String),
    Table {
        /// Columns that hold words, the first ones; the others hold figures.
        words: usize,
        head: Vec<String>,
        rows: Vec<Vec<String>>,
    },
}

/// What all pieces say, or why none says anything, a reason each.
pub fn explain(
    evidence: &Evidence,
    declared: &Declared,
) -> Result<Vec<Finding>, Vec<(&'static str, NotExplained)>> {
    let (mut findings, mut silent) = (Vec::new(), Vec::new());
    for piece in PIECES {
        match (piece.explain)(evidence, declared) {
            Ok(finding) => findings.push(finding),
            Err(why) => silent.push((piece.name, why)),
        }
    }
    if findings.is_empty() { Err(silent) } else { Ok(findings) }
}

/// The findings as a document.
pub fn document(of: &str, findings: &[Finding]) -> Value {
    let findings = findings.iter().map(|finding| (finding.piece.to_owned(), finding.figures.clone()));
    json!({ "explained": of, "tool": TOOL, "findings": findings.collect::<serde_json::Map<_, _>>() })
}
