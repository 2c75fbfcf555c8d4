//! Counters of a transfer that requests each chunk: round trips, errors and records.

use serde_json::{Map, Value};

use crate::run::{Figures, RecordFault};

/// Counts of one transfer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TransferCounts {
    /// Requests that were answered.
    pub round_trips: u64,
    /// Requests that were sent again.
    pub retransmissions: u64,
    /// Number of times the server asked for more time.
    pub please_waits: u64,
    /// Requests refused by the server because it had no room.
    pub refusals: u64,
    /// Number of times the link was opened again.
    pub reconnects: u64,
    /// Requests in flight at the end.
    pub window: u64,
    /// Facts that the server reported about itself, for the document.
    pub server_facts: Map<String, Value>,
    /// Present if records were received.
    pub records: Option<RecordCounts>,
}

/// Counts of numbered records.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecordCounts {
    /// Distinct records received.
    pub received: u64,
    pub missing: u64,
    pub repeated: u64,
    pub out_of_order: u64,
    /// The first faults.
    pub faults: Vec<RecordFault>,
}

impl TransferCounts {
    pub fn merge(&mut self, other: &TransferCounts) {
        self.round_trips += other.round_trips;
        self.retransmissions += other.retransmissions;
        self.please_waits += other.please_waits;
        self.refusals += other.refusals;
        self.reconnects += other.reconnects;
        self.window = if self.window == 0 { other.window } else { self.window.min(other.window) };
        self.server_facts.extend(other.server_facts.clone());
        if let Some(more) = &other.records {
            let all = self.records.get_or_insert_default();
            all.received += more.received;
            all.missing = all.missing.saturating_add(more.missing);
            all.repeated += more.repeated;
            all.out_of_order += more.out_of_order;
            if all.faults.is_empty() {
                all.faults.clone_from(&more.faults);
            }
        }
    }

    /// Adds the counters to the figures of the run document.
    pub fn fill_figures(&self, figures: &mut Figures) {
        figures.round_trips = Some(self.round_trips);
        figures.retransmissions = Some(self.retransmissions);
        figures.please_waits = Some(self.please_waits);
        figures.refusals = Some(self.refusals);
        figures.reconnects = Some(self.reconnects);
        figures.window = Some(self.window);
        if let Some(records) = &self.records {
            figures.records = Some(records.received);
            figures.record_gaps = Some(records.missing);
            figures.record_repeats = Some(records.repeated);
            figures.records_out_of_order = Some(records.out_of_order);
            figures.record_faults.clone_from(&records.faults);
        }
    }
}
