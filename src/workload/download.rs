//! Download: a file, or the records of a table, of which every piece is asked for and waited for. What decides is the
//! round trip, so each piece is a sample, as an exchange is.
//!
//! How pieces are asked for is the peer's protocol, and so is the party that does it. Here stands what is measured, and
//! the check of records, which any such protocol can use.

use std::sync::mpsc::SyncSender;
use std::time::Duration;

use super::{FlowResult, FlowRole, ServerReport, Workload};
use crate::plan::{Case, Direction, StopCondition};
use crate::run::Figures;

mod records;

pub use records::{RecordChecker, RecordStatus};

pub const WORKLOAD: Workload = Workload {
    name: "download",
    summary: "a file or a table, piece by piece: rate, time per piece, round trips",
    // To the end of it.
    default_stop: StopCondition { count: None, time_ns: None, volume_bytes: None },
    default_direction: Direction::Receive,
    // What clients of data loggers wait for an answer (Campbell's own, PakBus).
    default_timeout: Duration::from_secs(5),
    default_size: |_| 1_000,
    default_warm_up: StopCondition { count: None, time_ns: None, volume_bytes: None },
    method: |_| "download/1".to_owned(),
    figures,
};

/// Where the content goes, in order and in pieces. A party never waits for it: while there is no room it asks for no
/// more, so what is held in memory is what was asked for.
pub type ContentSender = SyncSender<Vec<u8>>;

/// Pieces on their way to where they are kept: enough to bear a disk that pauses. A piece has at most
/// 4 KiB, so no more than 4 MiB wait.
pub const MAX_QUEUED_CHUNKS: usize = 1024;

/// The fact of a case that tells whether all of the file or table came, and not only what the plan wanted of it.
pub const WHOLE_FACT: &str = "whole";

/// The time begins with the first request and ends with the last answer, so nothing is left out of the rate.
fn figures(case: &Case, flows: &[FlowResult], _far: Option<&ServerReport>) -> Figures {
    let Some(all) = super::merged_recorder(flows, FlowRole::Download) else { return Figures::default() };
    let elapsed_ns = all.elapsed_ns();
    let mut figures = Figures {
        delivered_bytes: Some(all.counts.delivered_bytes),
        throughput_bps: (elapsed_ns > 0).then(|| all.counts.delivered_bytes as f64 * 8e9 / elapsed_ns as f64),
        ..all.latency_figures(&case.late_limits)
    };
    if let Some(transfer) = &all.transfer_counts {
        transfer.fill_figures(&mut figures);
    }
    figures
}
