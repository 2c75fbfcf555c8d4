//! Single defects of received data: where they are, and of which kind.

use serde::{Deserialize, Serialize};

/// A defect of a stream that a loop returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Defect {
    /// Position in the sent stream, from 0.
    pub offset: u64,
    /// Length of the defect.
    pub bytes: u64,
    /// The kind of fault.
    pub kind: DefectKind,
}

/// The kind of a defect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DefectKind {
    /// The byte arrived with another value.
    Changed,
    /// The byte did not arrive.
    Lost,
    /// The byte was never sent, or was returned more than once.
    Inserted,
    /// The byte arrived after bytes that were sent later.
    Reordered,
}

impl DefectKind {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            DefectKind::Changed => "changed",
            DefectKind::Lost => "lost",
            DefectKind::Inserted => "inserted",
            DefectKind::Reordered => "reordered",
        }
    }
}

/// A fault in the sequence of record numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordFault {
    /// Number of the first record.
    pub first_record: u64,
    /// Consecutive records with this fault.
    pub records: u64,
    /// The kind of fault.
    pub kind: RecordFaultKind,
}

/// The kind of a fault in the sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordFaultKind {
    /// The record was never received.
    Missing,
    /// The record was received again.
    Repeated,
    /// The record arrived after records with higher numbers.
    OutOfOrder,
}

impl RecordFaultKind {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            RecordFaultKind::Missing => "missing",
            RecordFaultKind::Repeated => "again",
            RecordFaultKind::OutOfOrder => "out of order",
        }
    }
}
