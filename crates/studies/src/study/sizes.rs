//! Published message times by size, of studies that have sizes.
//!
//! This module does not interpret them: `explain` fits lines to them.

use serde::Deserialize;

use super::{PlannedCase, Study, StudyError, StudyLength};

/// The link under a cell: its rate and the payload share of each frame.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FrameFormat {
    bits_per_second: f64,
    payload_bytes: f64,
    /// Frame bytes that carry this payload, including headers, preamble and interframe gap.
    of_bytes: f64,
}

impl FrameFormat {
    /// Maximum payload bits per second.
    fn limit_bps(self) -> f64 {
        self.bits_per_second * self.payload_bytes / self.of_bytes
    }
}

/// The published time of a message of one size.
#[derive(Debug, Clone, PartialEq)]
pub struct PublishedTime {
    /// Number and title of the table.
    pub table: String,
    /// The series in the table: rows that differ only in size.
    pub series: String,
    /// Payload bytes of the message.
    pub message_bytes: u32,
    /// Published time of one message.
    pub time_ns: f64,
    /// A round trip, which no link rate compares with.
    pub is_round_trip: bool,
    /// Maximum payload bits per second of the link.
    pub line_bps: Option<f64>,
}

impl Study {
    /// Published message times, table by table. Empty for a study without sizes.
    ///
    /// # Errors
    ///
    /// Fails if the plan is invalid.
    pub fn published_sizes(&self) -> Result<Vec<PublishedTime>, StudyError> {
        let cases = self.all_cases(StudyLength::Full)?;
        let mut found = Vec::new();
        for table in self.tables.iter().filter(|_| self.has_sizes()) {
            for row in self.table_rows(table) {
                let Some(case) = cases.iter().find(|case| case.name == row.case) else { continue };
                let Some(time_ns) = message_time_ns(&row.published, &row.unit, case.point.value) else {
                    continue;
                };
                let frames = self.find_cell(&case.point.cell).and_then(|cell| cell.frames);
                found.push(PublishedTime {
                    table: format!("Table {}: {}", table.number, table.title),
                    series: row.column.clone(),
                    message_bytes: case.point.value,
                    time_ns,
                    is_round_trip: case.is_latency(),
                    line_bps: frames.map(FrameFormat::limit_bps),
                });
            }
        }
        Ok(found)
    }
}

impl PlannedCase {
    /// Whether the times of the case are round trips.
    fn is_latency(&self) -> bool {
        self.spec.workload.as_deref() == Some("latency")
    }
}

/// The time of a message, from a published time or rate.
fn message_time_ns(published: &str, unit: &str, message_bytes: u32) -> Option<f64> {
    let value: f64 = published.parse().ok().filter(|value| *value > 0.0)?;
    match unit {
        "µs" => Some(value * 1e3),
        "ms" => Some(value * 1e6),
        "KByte/s" => Some(1e9 * f64::from(message_bytes) / (1024.0 * value)),
        _ => None,
    }
}
