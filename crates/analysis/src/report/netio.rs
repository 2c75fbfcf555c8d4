//! Throughput in the format of NETIO, for comparison with its tables: KByte and MByte based on 1024, and NETIO's own
//! counts if the run has them (protocol `netio`). Other workloads are omitted.
//!
//! Dialect A prints the lines of 1.14, followed by bytes and time. The others print those of 1.29 and later.

use std::io;

use super::ReportOptions;
use super::wording::{printable, threshold_results};
use linkgauge_model::plan::Direction;
use linkgauge_model::run::{CaseResult, Run, Warning, WarningCode};

/// NETIO chooses the unit by the amount in this time, independent of the actual duration.
const DEFAULT_DURATION_SECONDS: f64 = 6.0;

/// Minimum amount, in bytes, that 1.14 prints in KByte: 100 KByte per second in its 10 s.
const OLD_KBYTE_THRESHOLD_BYTES: f64 = 100.0 * 1024.0 * 10.0;

/// Bytes in one direction and their time.
struct TransferAmount {
    bytes: f64,
    seconds: f64,
    loss_percent: Option<u64>,
}

impl TransferAmount {
    /// Amount by NETIO's count (`tx`, `rx`) if present, else by the receiver's.
    fn from_case(case: &CaseResult, way: &str, bytes: Option<u64>, bps: Option<f64>) -> TransferAmount {
        let value_of =
            |what: &str| case.effective.get(&format!("{way}_{what}")).and_then(serde_json::Value::as_u64);
        let (bytes, seconds) = match (value_of("bytes"), value_of("ns")) {
            (Some(bytes), Some(ns)) => (bytes as f64, ns as f64 / 1e9),
            _ => {
                let bytes = bytes.unwrap_or(0) as f64;
                (bytes, bps.map_or(0.0, |bps| bytes * 8.0 / bps))
            }
        };
        TransferAmount { bytes, seconds, loss_percent: value_of("loss_percent") }
    }

    fn bytes_per_second(&self) -> Option<f64> {
        Some(self.bytes / self.seconds).filter(|rate| rate.is_finite() && self.bytes > 0.0)
    }

    /// The result field of 1.29 and later, with its leading blank.
    fn result_field(&self) -> String {
        let Some(rate) = self.bytes_per_second() else { return " (failed)".to_owned() };
        const KBYTE: f64 = 1024.0;
        let below = |limit: f64| self.bytes < limit * DEFAULT_DURATION_SECONDS;
        let rate = if below(10.0 * KBYTE) {
            format!(" {rate:.0} Byte/s")
        } else if below(10.0 * KBYTE.powi(2)) {
            format!(" {:.2} KByte/s", rate / KBYTE)
        } else if below(KBYTE.powi(3)) {
            format!(" {:.2} MByte/s", rate / KBYTE.powi(2))
        } else {
            format!(" {:.3} GByte/s", rate / KBYTE.powi(3))
        };
        rate + &self.loss_percent.map_or(String::new(), |percent| format!(" ({percent}%)"))
    }

    /// The line of 1.14 after the size.
    fn old_result_field(&self) -> String {
        let Some(rate) = self.bytes_per_second() else { return "(failed)".to_owned() };
        let rate = if self.bytes < OLD_KBYTE_THRESHOLD_BYTES {
            format!("{rate:.0} Byte/s")
        } else {
            format!("{:.0} KByte/s", rate / 1024.0)
        };
        format!("{rate} ({:.0} Byte in {:.2} s)", self.bytes, self.seconds)
    }
}

/// Formats a size like NETIO: 32767 is 32k.
fn format_size(bytes: u32) -> String {
    match bytes % 1024 {
        0 | 1023 => format!("{:2}k", kbytes(bytes)),
        _ => bytes.to_string(),
    }
}

fn kbytes(bytes: u32) -> u32 {
    bytes.saturating_add(512) / 1024
}

fn is_old_dialect(case: &CaseResult) -> bool {
    case.effective.get("dialect").and_then(serde_json::Value::as_str) == Some("a")
}

fn result_line(case: &CaseResult) -> String {
    let figures = &case.figures;
    let (bytes, bps) = (figures.delivery.delivered_bytes, figures.delivery.throughput_bps);
    if is_old_dialect(case) {
        let sent = TransferAmount::from_case(case, "tx", bytes, bps).old_result_field();
        return format!("Packet size {:2} KByte:   {sent}", kbytes(case.message_bytes));
    }
    let tx = || format!("{} Tx", TransferAmount::from_case(case, "tx", bytes, bps).result_field());
    let rx = |bytes, bps| format!("{} Rx", TransferAmount::from_case(case, "rx", bytes, bps).result_field());
    let results = match case.direction {
        Direction::Receive => rx(bytes, bps),
        Direction::Both => {
            format!(
                "{}, {}",
                tx(),
                rx(figures.delivery.delivered_reverse_bytes, figures.delivery.throughput_reverse_bps)
            )
        }
        Direction::Send | Direction::Loop => tx(),
    };
    format!("Packet size {} bytes: {results}.", format_size(case.message_bytes))
}

pub(crate) fn write(run: &Run, _: &ReportOptions, out: &mut dyn io::Write) -> io::Result<()> {
    let cases: Vec<&CaseResult> = run.cases.iter().filter(|case| case.workload == "throughput").collect();
    if cases.is_empty() {
        writeln!(out, "no throughput was measured")?;
    }
    for together in cases.chunk_by(|a, b| a.endpoint == b.endpoint && is_old_dialect(a) == is_old_dialect(b))
    {
        let (scheme, _) = together[0].endpoint.split_once("://").unwrap_or_default();
        let (old, scheme) = (is_old_dialect(together[0]), printable(scheme).to_uppercase());
        writeln!(out, "\n{scheme}{} connection established.", if old { "/IP" } else { "" })?;
        for case in together {
            writeln!(out, "{}", result_line(case))?;
        }
        if !old {
            writeln!(out, "Done.")?;
        }
    }
    // NETIO sends as fast as it can.
    let is_paced = |warning: &&Warning| warning.code == WarningCode::DefaultRate;
    if let Some(paced) = cases.iter().flat_map(|case| &case.warnings).find(is_paced) {
        writeln!(out, "NOTE {}. Try: {}", printable(&paced.text), printable(&paced.remedy))?;
    }
    // NETIO has no thresholds, so only failed ones are printed.
    threshold_results(run).0.iter().try_for_each(|missed| writeln!(out, "FAIL {missed}"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;
    use crate::report::sample_runs;

    fn case(direction: Direction, bytes: u32, facts: serde_json::Value) -> CaseResult {
        let mut run = sample_runs::full();
        let at = run.cases.iter().position(|case| case.workload == "throughput").unwrap();
        let facts = facts.as_object().cloned().unwrap_or_else(Map::new);
        let endpoint = "tcp://box:18767".to_owned();
        CaseResult { direction, message_bytes: bytes, effective: facts, endpoint, ..run.cases.remove(at) }
    }

    fn write_netio(cases: Vec<CaseResult>) -> String {
        let mut out = Vec::new();
        write(&Run { cases, ..sample_runs::minimal() }, &ReportOptions::default(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_default_rate_is_named() {
        let mut paced = case(Direction::Send, 1024, json!({ "dialect": "c" }));
        paced.warnings = vec![Warning::new(WarningCode::DefaultRate, "sent at 1 Mbit/s", "--bit-rate max")];
        assert!(write_netio(vec![paced]).ends_with("Done.\nNOTE sent at 1 Mbit/s. Try: --bit-rate max\n"));
    }

    #[test]
    fn tables_match_netio() {
        let count = |tx: f64, rx: f64| {
            let bytes = |mbyte: f64| (mbyte * 1048576.0 * 6.0).ceil() as u64;
            json!({ "dialect": "c", "tx_bytes": bytes(tx), "tx_ns": 6_000_000_000_u64,
                "rx_bytes": bytes(rx), "rx_ns": 6_000_000_000_u64 })
        };
        let mut lossy = count(248.65, 251.11);
        lossy["tx_loss_percent"] = json!(1);
        lossy["rx_loss_percent"] = json!(0);
        insta::assert_snapshot!(write_netio(vec![
            case(Direction::Both, 1024, count(208.85, 275.84)),
            case(Direction::Both, 32_767, count(0.001, 2000.0)),
            case(Direction::Send, 1000, count(1.0, 0.0)),
            case(Direction::Receive, 2048, count(0.0, 0.0)),
            case(Direction::Both, 1024, lossy),
        ]), @"

        TCP connection established.
        Packet size  1k bytes:  208.85 MByte/s Tx,  275.84 MByte/s Rx.
        Packet size 32k bytes:  1049 Byte/s Tx,  1.953 GByte/s Rx.
        Packet size 1000 bytes:  1024.00 KByte/s Tx.
        Packet size  2k bytes:  (failed) Rx.
        Packet size  1k bytes:  248.65 MByte/s (1%) Tx,  251.11 MByte/s (0%) Rx.
        Done.
        ");
    }

    /// Figures as in the study of a board.
    #[test]
    fn old_dialect_prints_bytes_and_time() {
        let count = |bytes: u64, ns: u64| json!({ "dialect": "a", "tx_bytes": bytes, "tx_ns": ns });
        insta::assert_snapshot!(write_netio(vec![
            case(Direction::Send, 1024, count(90_951_680, 10_006_800_000)),
            case(Direction::Send, 32_767, count(90_207_551, 10_007_000_000)),
            case(Direction::Send, 8192, count(8192, 10_000_000_000)),
        ]), @"

        TCP/IP connection established.
        Packet size  1 KByte:   8876 KByte/s (90951680 Byte in 10.01 s)
        Packet size 32 KByte:   8803 KByte/s (90207551 Byte in 10.01 s)
        Packet size  8 KByte:   819 Byte/s (8192 Byte in 10.00 s)
        ");
    }

    #[test]
    fn other_protocols_show_delivered_payload() {
        let text = write_netio(vec![case(Direction::Send, 1024, json!({}))]);
        assert!(text.contains("Byte/s Tx.") && !text.contains("failed"), "{text}");
        assert_eq!(write_netio(Vec::new()), "no throughput was measured\n");
    }

    #[test]
    fn failed_thresholds_are_printed() {
        let text = write_netio(sample_runs::serial_line().cases);
        assert!(text.ends_with("\nFAIL case 2: loss = 0 %, measured 0.5 %\n"), "{text}");
    }
}
