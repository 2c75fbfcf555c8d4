//! Counters of a transfer that requests each chunk: requests and records.

use serde_json::{Map, Value};

use crate::run::{RecordCounts, RequestCounts};

/// Counts of one transfer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TransferCounts {
    /// Counts of requests.
    pub requests: RequestCounts,
    /// Facts that the server reported about itself, for the document.
    pub server_facts: Map<String, Value>,
    /// Counts of records, if records were received.
    pub records: Option<RecordCounts>,
}

impl TransferCounts {
    /// Adds the counts of another transfer.
    pub(crate) fn merge(&mut self, other: &TransferCounts) {
        self.requests.add(&other.requests);
        self.server_facts.extend(other.server_facts.clone());
        if let Some(more) = &other.records {
            self.records.get_or_insert_default().add(more);
        }
    }
}
