//! Statistics of studies of serial lines and of downloads: means, and rates beside those of the line or the link.

use super::protocol_counters::UNLIMITED;
use super::{PhysicalLine, StudyStatistic, is_above_limit, is_below_limit};
use linkgauge_model::run::{CaseResult, Figures};

const BITS_PER_BYTE: f64 = 8.0;

pub(super) static STATISTICS: [StudyStatistic; 7] = [
    StudyStatistic {
        name: "latency_mean_ms",
        unit: "ms",
        measured: |case, _| case.figures.times.latency_ns.as_ref().map(|latency| latency.mean / 1e6),
        theoretical_limit: |planned| Some(1e3 * planned.line?.transfer_seconds(planned.message_bytes())),
        predicted: |_| None,
        is_beyond_limit: is_below_limit,
        includes_lost: false,
    },
    StudyStatistic {
        name: "port_line_bps",
        unit: "bit/s",
        measured: |case, planned| line_bps_per_port(case, &planned.line?),
        theoretical_limit: |planned| Some(planned.line?.bits_per_second),
        predicted: |_| None,
        is_beyond_limit: is_above_limit,
        includes_lost: false,
    },
    StudyStatistic {
        name: "port_line_rate_percent",
        unit: "%",
        measured: |case, planned| {
            let line = planned.line?;
            line_bps_per_port(case, &line).map(|rate| 100.0 * rate / line.bits_per_second)
        },
        theoretical_limit: |_| Some(100.0),
        predicted: |_| None,
        is_beyond_limit: is_above_limit,
        includes_lost: false,
    },
    StudyStatistic {
        name: "download_bytes_per_second",
        unit: "B/s",
        measured: |case, _| case.figures.delivery.throughput_bps.map(|rate| rate / BITS_PER_BYTE),
        theoretical_limit: |planned| Some(planned.download?.max_rate()).filter(|limit| limit.is_finite()),
        predicted: |planned| Some(planned.download?.predicted_rate(planned.window(), planned.volume())),
        is_beyond_limit: is_above_limit,
        includes_lost: false,
    },
    StudyStatistic {
        name: "download_kbit_per_second",
        unit: "kbit/s",
        measured: |case, _| case.figures.delivery.throughput_bps.map(|rate| rate / 1e3),
        theoretical_limit: |planned| {
            Some(planned.download?.max_rate() * BITS_PER_BYTE / 1e3).filter(|limit| limit.is_finite())
        },
        predicted: |planned| {
            let download = planned.download?;
            Some(download.predicted_rate(planned.window(), planned.volume()) * BITS_PER_BYTE / 1e3)
        },
        is_beyond_limit: is_above_limit,
        includes_lost: false,
    },
    StudyStatistic {
        name: "missing_records",
        unit: "records",
        measured: |case, _| Some(case.figures.records.as_ref()?.missing as f64),
        ..UNLIMITED
    },
    StudyStatistic {
        name: "link_rate_percent",
        unit: "%",
        measured: |case, planned| {
            let path = planned.download?.link?;
            case.figures.delivery.throughput_bps.map(|rate| 100.0 * rate / path.rate_from)
        },
        theoretical_limit: |planned| {
            let download = planned.download?;
            Some(100.0 * BITS_PER_BYTE * download.max_rate() / download.link?.rate_from)
        },
        predicted: |planned| {
            let (download, window) = (planned.download?, planned.window());
            let predicted = download.predicted_rate(window, planned.volume());
            Some(100.0 * BITS_PER_BYTE * predicted / download.link?.rate_from)
        },
        is_beyond_limit: is_above_limit,
        includes_lost: false,
    },
];

/// Bits per second on the line of one port, including start and stop bits; the mean of the ports.
pub(super) fn line_bps_per_port(case: &CaseResult, line: &PhysicalLine) -> Option<f64> {
    let ports: Vec<&Figures> = match case.per_port.as_slice() {
        [] => vec![&case.figures],
        ports => ports.iter().map(|part| &part.figures).collect(),
    };
    let rates: Option<Vec<f64>> = ports.iter().map(|figures| figures.delivery.throughput_bps).collect();
    rates
        .map(|rates| rates.iter().sum::<f64>() / rates.len() as f64 / BITS_PER_BYTE * line.bits_per_character)
}
