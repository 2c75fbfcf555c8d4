//! Outputs of ss of iproute2 6.1 during an upload of iperf3, with the time of day before each.

use std::io::Cursor;

use super::*;
use crate::import::{ImportOptions, read};
use linkgauge_model::run::Run;

const SERIES: &str = include_str!("upload.txt");

fn imported(text: &str) -> Result<Run, String> {
    let about = ImportOptions { file_name: "a.txt".to_owned(), ..ImportOptions::default() };
    read(&FORMAT, &mut Cursor::new(text.as_bytes()), &about).map_err(|error| error.to_string())
}

#[test]
fn each_connection_has_its_readings() {
    let run = imported(SERIES).unwrap();
    assert_eq!(run.cases.len(), 2);
    let data = &run.cases[1];
    assert_eq!((data.endpoint.as_str(), data.elapsed_ns), ("tcp://10.77.0.2:5201", 800_000_000));
    assert_eq!(data.effective["local"], "10.77.0.1:59984");
    let client = &data.evidence.as_ref().unwrap().client;
    let round_trips = client.gauge("tcp_rtt_ns").unwrap();
    assert_eq!((round_trips.min, round_trips.median, round_trips.max), (3_703_000, 5_324_000, 5_359_000));
    assert_eq!(client.gauge("tcp_congestion_window_segments").unwrap().max, 57);
    assert_eq!(client.gauge("tcp_delivery_rate_bps").unwrap().min, 48_116_296);
    assert_eq!(client.counter("tcp_acknowledged_bytes"), Some(7_966_934 - 2_942_374));
    assert_eq!(client.counter("tcp_retransmitted_segments"), Some(0));
    let series = &client.connections.series;
    let of = |index: usize| (series[index].at_ns, series[index].congestion_window_segments);
    assert_eq!((series.len(), of(0), of(2)), (3, (0, 32), (800_000_000, 24)));
    assert_eq!(data.figures.delivery.throughput_bps, None, "ss counts from the start of the connection");
    assert_eq!(run.started.to_string(), "2026-11-28T09:13:26.1Z");
}

#[test]
fn outputs_without_times_have_no_series() {
    let lines = SERIES.lines().filter(|line| !line.starts_with("17")).collect::<Vec<_>>().join("\n") + "\n";
    let run = imported(&lines).unwrap();
    let client = &run.cases[1].evidence.as_ref().unwrap().client;
    assert_eq!((client.connections.series.len(), run.cases[1].elapsed_ns), (0, 0));
    assert_eq!(client.gauge("tcp_rtt_ns").unwrap().readings, 3);
}

#[test]
fn other_forms_of_the_output_are_read() {
    // One line for each connection (`-O`), a process, and units of old versions.
    let text = "ESTAB 0 0 [fe80::1%eth0]:5 [fe80::2]:80 users:((\"a\",pid=1,fd=3)) cubic rtt:1.5/0.5 cwnd:10 retrans:1/7 \
                send 1.5Mbps delivery_rate 2.5Mbps\n";
    let run = imported(text).unwrap();
    let client = &run.cases[0].evidence.as_ref().unwrap().client;
    assert_eq!(client.gauge("tcp_delivery_rate_bps").unwrap().max, 2_500_000);
    assert_eq!(client.counter("tcp_retransmitted_segments"), Some(7));
    assert_eq!(client.gauge("tcp_rtt_deviation_ns").unwrap().max, 500_000);
    let kind =
        "Netid State Recv-Q Send-Q Local Address:Port\ntcp ESTAB 0 36 a:1 b:2\n\t cubic rtt:2/1 cwnd:10\n";
    assert_eq!(imported(kind).unwrap().cases[0].endpoint, "tcp://b:2");
}

#[test]
fn files_without_connections_are_refused() {
    for text in ["", "rtt:1 cwnd:2\n", "ESTAB 0 0 a:1 b:2\n", "ESTAB 0 0 a:1 b:2\n\t cubic cwnd:10\n"] {
        assert!(imported(text).unwrap_err().contains("not the output of ss -ti"), "{text}");
    }
    // A number at the end may be cut off.
    assert!(imported("ESTAB 0 0 a:1 b:2\n\t rtt:1/1 cwnd:1").is_err());
    // Absurd numbers do not count.
    let run =
        imported("ESTAB 0 0 a:1 b:2\n\t rtt:5/1 cwnd:1e9 bytes_sent:99999999999999999999 lost:-3\n").unwrap();
    let client = &run.cases[0].evidence.as_ref().unwrap().client;
    assert_eq!(
        (client.gauge("tcp_congestion_window_segments"), client.counter("tcp_sent_bytes")),
        (None, None)
    );
}
