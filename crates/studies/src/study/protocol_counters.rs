//! Statistics that the protocol's own program counts (`tx_…` and `rx_…` in `effective`), for studies that published that
//! count. Delivered payload is in the figures instead. No line limits these statistics.

use super::{StudyStatistic, is_above_limit};
use linkgauge_model::run::CaseResult;

pub(super) static STATISTICS: [StudyStatistic; 4] = [
    StudyStatistic {
        name: "sent_kbyte_per_second",
        unit: "KByte/s",
        measured: |case, _| kbyte_per_second(protocol_count(case, "tx")?),
        ..UNLIMITED
    },
    StudyStatistic {
        name: "received_kbyte_per_second",
        unit: "KByte/s",
        measured: |case, _| kbyte_per_second(protocol_count(case, "rx")?),
        ..UNLIMITED
    },
    StudyStatistic {
        name: "sent_bytes",
        unit: "Byte",
        measured: |case, _| protocol_count(case, "tx").map(|(bytes, _)| bytes),
        ..UNLIMITED
    },
    StudyStatistic {
        name: "sent_seconds",
        unit: "s",
        measured: |case, _| protocol_count(case, "tx").map(|(_, seconds)| seconds),
        ..UNLIMITED
    },
];

/// A statistic without limit and prediction.
pub(super) const UNLIMITED: StudyStatistic = StudyStatistic {
    name: "",
    unit: "",
    measured: |_, _| None,
    theoretical_limit: |_| None,
    predicted: |_| None,
    is_beyond_limit: is_above_limit,
    includes_lost: false,
};

/// Bytes and seconds as the protocol's own program counts them.
fn protocol_count(case: &CaseResult, way: &str) -> Option<(f64, f64)> {
    let count_of = |what: &str| case.effective.get(&format!("{way}_{what}"))?.as_u64();
    Some((count_of("bytes")? as f64, count_of("ns")? as f64 / 1e9))
}

/// 1 kbyte is 1024 bytes.
fn kbyte_per_second((bytes, seconds): (f64, f64)) -> Option<f64> {
    (seconds > 0.0).then(|| bytes / 1024.0 / seconds)
}
