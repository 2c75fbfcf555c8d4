//! Published times of messages by their size, of studies that have sizes.
//!
//! Not for what they show: `explain` fits lines to them.

use serde::Deserialize;

use super::{PlannedCase, Study, StudyError};

/// The line under a cell: its rate, and how much of each frame is payload.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FrameFormat {
    bits_per_second: f64,
    payload_bytes: f64,
    /// With all that goes with it: headers, preamble, gap.
    of_bytes: f64,
}

impl FrameFormat {
    /// Bits of payload that it can carry in a second.
    fn limit_bps(self) -> f64 {
        self.bits_per_second * self.payload_bytes / self.of_bytes
    }
}

/// What a message of one size took.
#[derive(Debug, Clone, PartialEq)]
pub struct PublishedTime {
    /// Number and title.
    pub table: String,
    /// What of the table: rows that differ in nothing but the size.
    pub series: String,
    pub message_bytes: u32,
    pub time_ns: f64,
    /// Out and back: no line's rate compares with it.
    pub is_round_trip: bool,
    /// What the line under it can carry of payload.
    pub line_bps: Option<f64>,
}

impl Study {
    /// What messages took, table by table; nothing of a study whose cells are not of sizes.
    pub fn published_sizes(&self) -> Result<Vec<PublishedTime>, StudyError> {
        let cases = self.all_cases(false)?;
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
    /// Whether its times are round trips.
    fn is_latency(&self) -> bool {
        self.spec.workload.as_deref() == Some("latency")
    }
}

/// The time of a message, published as such or as a rate.
fn message_time_ns(published: &str, unit: &str, message_bytes: u32) -> Option<f64> {
    let value: f64 = published.parse().ok().filter(|value| *value > 0.0)?;
    match unit {
        "µs" => Some(value * 1e3),
        "ms" => Some(value * 1e6),
        "KByte/s" => Some(1e9 * f64::from(message_bytes) / (1024.0 * value)),
        _ => None,
    }
}
