//! Download: a file or the records of a table, in chunks that are requested one by one. The round trip determines the
//! rate, so each chunk is a sample.
//!
//! The protocol provides the party that requests the chunks. This file defines the figures; `records` checks the
//! records for every such protocol.

use std::sync::mpsc::SyncSender;
use std::time::Duration;

use super::{FlowRole, MeasuredFlows, TrafficKind, Workload};
use linkgauge_model::plan::{Direction, StopCondition};
use linkgauge_model::run::Figures;

mod records;

pub(crate) use records::{RecordChecker, RecordStatus};

/// The `download` workload.
pub(crate) const WORKLOAD: Workload = Workload {
    name: "download",
    summary: "a file or a table in chunks: rate, time per chunk, round trips",
    traffic: TrafficKind::Content,
    // Until the end of the file or table.
    default_stop: StopCondition::UNLIMITED,
    has_repetitions: false,
    default_direction: Direction::Receive,
    // Timeout of data logger clients (Campbell's own, PakBus).
    default_timeout: Duration::from_secs(5),
    default_size: |_| 1_000,
    default_warm_up: StopCondition::UNLIMITED,
    method: |_| "download/1".to_owned(),
    figures,
};

/// Receives the content in order and in chunks. A party never blocks on it: while it is full the party requests no
/// more, which limits the memory to the requested chunks.
pub type ContentSender = SyncSender<Vec<u8>>;

/// Queue length in chunks: enough for a pause of the disk. A chunk has at most 4 KiB, so at most 4 MiB are queued.
pub const MAX_QUEUED_CHUNKS: usize = 1024;

/// Part of a file that an earlier download has left. The next download requests the last of these bytes again, and compares them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartialContent {
    /// Number of saved bytes, from the beginning of the file.
    pub bytes: u64,
    /// Last ones of the saved bytes, to be compared; not empty.
    pub tail: Vec<u8>,
}

impl PartialContent {
    /// Position of the first byte that is compared.
    pub(crate) fn compared_from(&self) -> u64 {
        self.bytes.saturating_sub(self.tail.len() as u64)
    }
}

/// Fact of a case: the bytes of an earlier download that this one has continued. Its figures do not include them.
pub const RESUMED_FACT: &str = "resumed_bytes";

/// Fact of a case: whether the whole file or table arrived, not only the part that the plan requested.
pub const WHOLE_FACT: &str = "whole";

/// Figures of a download. The time runs from the first request to the last reply, so the rate includes all waits.
pub fn figures(measured: &MeasuredFlows) -> Figures {
    let Some(all) = super::merged_recorder(measured.flows, FlowRole::Download) else {
        return Figures::default();
    };
    let elapsed_ns = all.elapsed_ns();
    let mut figures = all.latency_figures(measured.late_limits);
    let bytes = all.counts.delivered_bytes;
    figures.delivery.delivered_bytes = Some(bytes);
    figures.delivery.throughput_bps = (elapsed_ns > 0).then(|| bytes as f64 * 8e9 / elapsed_ns as f64);
    figures
}
