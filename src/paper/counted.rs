//! Statistics of what the peer's own program counts (`tx_…` and `rx_…` in `got`), for studies that published its count.
//! Not for what was delivered: that is in the figures. No line limits them.

use super::{Statistic, above};
use crate::run::CaseResult;

pub(super) static STATISTICS: [Statistic; 4] = [
    Statistic {
        name: "sent_kbyte_per_second",
        unit: "KByte/s",
        of: |case, _| kbyte_per_second(counted(case, "tx")?),
        ..UNLIMITED
    },
    Statistic {
        name: "received_kbyte_per_second",
        unit: "KByte/s",
        of: |case, _| kbyte_per_second(counted(case, "rx")?),
        ..UNLIMITED
    },
    Statistic {
        name: "sent_bytes",
        unit: "Byte",
        of: |case, _| counted(case, "tx").map(|(bytes, _)| bytes),
        ..UNLIMITED
    },
    Statistic {
        name: "sent_seconds",
        unit: "s",
        of: |case, _| counted(case, "tx").map(|(_, seconds)| seconds),
        ..UNLIMITED
    },
];

/// What nothing limits and nothing predicts.
pub(super) const UNLIMITED: Statistic = Statistic {
    name: "",
    unit: "",
    of: |_, _| None,
    limit: |_| None,
    predicted: |_| None,
    too_good: above,
    counts_lost: false,
};

/// Bytes and seconds as the peer's own program counts them.
fn counted(case: &CaseResult, way: &str) -> Option<(f64, f64)> {
    let got = |what: &str| case.got.get(&format!("{way}_{what}"))?.as_u64();
    Some((got("bytes")? as f64, got("ns")? as f64 / 1e9))
}

/// In units of 1024 bytes.
fn kbyte_per_second((bytes, seconds): (f64, f64)) -> Option<f64> {
    (seconds > 0.0).then(|| bytes / 1024.0 / seconds)
}
