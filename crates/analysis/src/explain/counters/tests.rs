//! Tests of each rule of the counters model, with the counters of measured plants.

use super::*;
use linkgauge_model::plan::Direction;
use linkgauge_model::run::{
    ConnectionEvidence, Counters, Distribution, Evidence as CaseEvidence, Gauge, LineErrors, Run,
};

fn gauge(median: u64) -> Gauge {
    Gauge { min: median, median, max: median, readings: 10 }
}

/// Evidence of the sender: counters and gauges of a transfer of 10 s.
fn sender(counters: &[(&str, u64)], gauges: &[(&str, u64)]) -> EndEvidence {
    EndEvidence {
        observed_ns: 10_000_000_000,
        connections: ConnectionEvidence {
            count: 1,
            counters: counters.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect(),
            gauges: gauges.iter().map(|(name, median)| ((*name).to_owned(), gauge(*median))).collect(),
            series: Vec::new(),
        },
        ..EndEvidence::default()
    }
}

/// A case of this workload with the evidence of the client.
fn case(workload: &str, client: EndEvidence) -> CaseResult {
    let mut case = crate::report::sample_runs::minimal().cases.remove(0);
    case.workload = workload.to_owned();
    case.direction = if workload == "latency" { Direction::Loop } else { Direction::Send };
    case.evidence = Some(CaseEvidence { client, server: None });
    case.figures.delivery.throughput_bps = Some(47.4e6);
    case
}

fn ids(case: &CaseResult) -> Vec<&'static str> {
    counted_causes(case).iter().map(|cause| cause.id).collect()
}

/// Times of a sender on a path of 20 ms, as measured behind netem.
const BUSY: (&str, u64) = ("tcp_busy_ns", 10_000_000_000);

fn of_rtt(rtt_us: u64) -> [(&'static str, u64); 4] {
    let flight = [("tcp_unacknowledged_segments", 1190), ("tcp_segment_bytes", 1448)];
    [("tcp_rtt_ns", rtt_us * 1000), ("tcp_min_rtt_ns", 20_700_000), flight[0], flight[1]]
}

#[test]
fn measured_transfers_have_their_limit() {
    let rwnd = ("tcp_receive_window_limited_ns", 9_900_000_000);
    let segments = ("tcp_sent_segments", 10_000);
    let app_limited = ("tcp_application_limited", 1);
    for (counters, gauges, expected) in [
        (vec![BUSY, rwnd], of_rtt(21_300).to_vec(), vec!["receive_window"]),
        (vec![BUSY], [of_rtt(21_000).to_vec(), vec![app_limited]].concat(), vec!["application_limited"]),
        (
            vec![BUSY, segments, ("tcp_retransmitted_segments", 46)],
            of_rtt(22_900).to_vec(),
            vec!["loss_limited_window"],
        ),
        (
            vec![BUSY, segments, ("tcp_retransmitted_segments", 0)],
            of_rtt(291_600).to_vec(),
            vec!["bufferbloat"],
        ),
        (vec![BUSY, segments, ("tcp_retransmitted_segments", 0)], of_rtt(22_000).to_vec(), vec![]),
        (vec![], vec![], vec![]),
    ] {
        assert_eq!(ids(&case("throughput", sender(&counters, &gauges))), expected, "{counters:?} {gauges:?}");
    }
}

#[test]
fn a_long_round_trip_without_data_in_flight_is_no_queue() {
    let gauges = [("tcp_unacknowledged_segments", 2), ("tcp_segment_bytes", 1448)];
    let times = [("tcp_rtt_ns", 33_000_000), ("tcp_min_rtt_ns", 11_000)];
    assert_eq!(ids(&case("throughput", sender(&[BUSY], &[gauges, times].concat()))), [""; 0]);
}

#[test]
fn a_serial_port_counts_its_errors() {
    let with = |errors: LineErrors| {
        let mut case = case("throughput", sender(&[], &[]));
        case.figures.line_errors = Some(errors);
        ids(&case)
    };
    assert_eq!(with(LineErrors { overruns: 1, ..LineErrors::default() }), ["uart_overrun"]);
    assert_eq!(with(LineErrors { framing: 2, parity: 1, ..LineErrors::default() }), ["line_noise"]);
    assert_eq!(with(LineErrors::default()), [""; 0]);
}

#[test]
fn a_receiver_that_delays_its_acknowledgements_stops_the_sender() {
    let with = |endpoint: &str, delayed: u64| {
        let mut case = case("throughput", sender(&[BUSY], &[]));
        endpoint.clone_into(&mut case.endpoint);
        let host = Counters::from([("TcpExt.DelayedACKs".to_owned(), delayed)]);
        let server = EndEvidence { observed_ns: 10_000_000_000, host, ..EndEvidence::default() };
        case.evidence.as_mut().unwrap().server = Some(server);
        ids(&case)
    };
    assert_eq!(with("tcp://192.0.2.1", 240), ["delayed_ack"]);
    assert_eq!(with("tcp://192.0.2.1", 40), [""; 0]);
    assert_eq!(with("udp://192.0.2.1", 240), [""; 0], "those of other programs");
}

#[test]
fn a_full_window_belongs_to_the_buffer_or_to_the_program() {
    let rwnd = [BUSY, ("tcp_receive_window_limited_ns", 9_900_000_000)];
    let path = |rtt_ns, window| [("tcp_min_rtt_ns", rtt_ns), ("tcp_send_window_bytes", window)];
    // 47.4 Mbit/s: 123 kB on a path of 20.7 ms, 59 B on one of 10 µs.
    assert_eq!(ids(&case("throughput", sender(&rwnd, &path(20_700_000, 131_072)))), ["receive_window"]);
    assert_eq!(ids(&case("throughput", sender(&rwnd, &path(10_000, 65_536)))), ["slow_reader"]);
    assert_eq!(ids(&case("throughput", sender(&rwnd, &path(20_700_000, 0)))), ["slow_reader"], "closed");
    let mut known = case("throughput", sender(&rwnd, &path(20_700_000, 131_072)));
    let unread =
        |bytes| sender(&[], &[("socket_unread_bytes", bytes), ("socket_receive_buffer_bytes", 262_144)]);
    known.evidence.as_mut().unwrap().server = Some(unread(120_000));
    assert_eq!(ids(&known), ["slow_reader"], "the server's socket is full");
    let tiny = [("socket_unread_bytes", 4_096), ("socket_receive_buffer_bytes", 8_192)];
    known.evidence.as_mut().unwrap().server = Some(sender(&[], &tiny));
    assert_eq!(ids(&known), ["receive_window"], "a tiny buffer is always full");
    assert_eq!(ids(&case("throughput", sender(&rwnd, &path(10_000, 2_304)))), ["receive_window"]);
    known.evidence.as_mut().unwrap().server = Some(unread(2_000));
    assert_eq!(ids(&known), ["receive_window"]);
}

#[test]
fn datagrams_lines_and_requested_rates_have_rules_of_their_own() {
    let mut overflow = case("throughput", EndEvidence::default());
    let counts = &mut overflow.figures.counts;
    (counts.sent, counts.lost, counts.receiver_socket_drops) = (1000, 300, Some(280));
    assert_eq!(ids(&overflow), ["receiver_socket_overflow"]);
    overflow.figures.counts.receiver_socket_drops = Some(20);
    assert_eq!(ids(&overflow), [""; 0], "the network lost most of them");
    let mut line = case("throughput", EndEvidence::default());
    line.figures.delivery.line_rate_percent = Some(98.0);
    assert_eq!(ids(&line), ["link_rate_reached"]);
    line.figures.delivery.line_rate_percent = Some(60.0);
    assert_eq!(ids(&line), [""; 0]);
}

#[test]
fn a_single_reading_after_the_end_shows_no_idle_program() {
    let mut end = sender(&[BUSY], &[("tcp_application_limited", 1)]);
    end.connections.count = 10;
    assert_eq!(ids(&case("throughput", end)), [""; 0]);
}

#[test]
fn a_download_is_limited_by_its_server() {
    let mut download = case("throughput", EndEvidence::default());
    download.direction = Direction::Receive;
    assert_eq!(ids(&download), [""; 0], "the server reported nothing");
    let server = sender(&[BUSY, ("tcp_receive_window_limited_ns", 9_000_000_000)], &[]);
    download.evidence = Some(CaseEvidence { client: EndEvidence::default(), server: Some(server) });
    assert_eq!(ids(&download), ["receive_window"]);
}

#[test]
fn a_requested_pacing_limits_a_rate() {
    let mut paced = case("throughput", sender(&[BUSY], &of_rtt(21_000)));
    paced.effective.insert("pacing_limit_bps".to_owned(), 50_000_000.into());
    paced.figures.delivery.throughput_bps = Some(49.1e6);
    assert_eq!(ids(&paced), ["requested_pacing"]);
    paced.figures.delivery.throughput_bps = Some(20e6);
    assert_eq!(ids(&paced), [""; 0]);
}

/// A latency of this median, with 40 requests.
fn latency(median_ns: u64, client: EndEvidence) -> CaseResult {
    let mut case = case("latency", client);
    case.figures.counts.received = 40;
    let mut latency: Distribution =
        crate::report::sample_runs::full().cases[0].figures.times.latency_ns.clone().unwrap();
    latency.percentiles.insert("p50".to_owned(), Some(median_ns));
    latency.mean = median_ns as f64;
    case.figures.times.latency_ns = Some(latency);
    case
}

#[test]
fn delayed_acknowledgements_belong_to_slow_replies() {
    let client = EndEvidence {
        host: Counters::from([("TcpExt.DelayedACKs".to_owned(), 40)]),
        ..EndEvidence::default()
    };
    let of_link = |endpoint: &str, median_ns| {
        let mut case = latency(median_ns, client.clone());
        endpoint.clone_into(&mut case.endpoint);
        ids(&case)
    };
    assert_eq!(of_link("tcp://192.0.2.1", 43_999_000), ["delayed_ack_nagle"]);
    assert_eq!(of_link("rfc2217://192.0.2.1:4001", 43_999_000), ["delayed_ack_nagle"]);
    assert_eq!(of_link("tcp://192.0.2.1", 26_000), [""; 0], "another program's");
    assert_eq!(of_link("udp://192.0.2.1", 43_999_000), [""; 0], "another program's");
}

#[test]
fn waits_for_a_cpu_are_compared_with_the_mean() {
    let client = |wait_ns| EndEvidence {
        threads: Counters::from([("thread_run_queue_wait_ns".to_owned(), wait_ns)]),
        ..EndEvidence::default()
    };
    assert_eq!(ids(&latency(100_000, client(400_000))), ["run_queue"], "10 µs of 100 µs");
    assert_eq!(ids(&latency(100_000, client(40_000))), [""; 0]);
}

#[test]
fn hosts_are_disturbed_by_steal_quota_and_full_sockets() {
    let mut end = sender(&[("socket_drops", 3)], &[]);
    end.host = [("cpu_steal_ns", 500_000_000), ("cgroup_throttled_periods", 2)]
        .map(|(name, count)| (name.to_owned(), count))
        .into();
    assert_eq!(ids(&case("throughput", end)), ["steal", "cpu_quota", "receiver_socket_overflow"]);
}

#[test]
fn every_rule_names_a_cause_of_the_catalogue() {
    let source = concat!(include_str!("../counters.rs"), include_str!("rates.rs"));
    let named = source.split("counted(\"").skip(1).filter_map(|rest| rest.split('"').next());
    let mut count = 0;
    for id in named {
        assert!(catalogued(id).is_some(), "{id}");
        count += 1;
    }
    assert!(count >= 10, "{count}");
}

#[test]
fn a_run_without_counters_says_so() {
    let run: Run = crate::report::sample_runs::minimal();
    let error = explain(&ModelInput::Run(&run)).unwrap_err().to_string();
    assert_eq!(error, "no case has counters: measure it again with this version");
}

#[test]
fn the_finding_reads_as_text() {
    let mut run = crate::report::sample_runs::minimal();
    run.cases = vec![
        case("throughput", sender(&[BUSY, ("tcp_receive_window_limited_ns", 9_900_000_000)], &[])),
        case("throughput", sender(&[BUSY], &[])),
    ];
    let finding = explain(&ModelInput::Run(&run)).unwrap();
    let texts: Vec<String> = finding
        .blocks
        .iter()
        .map(|block| match block {
            FindingBlock::Heading(text) | FindingBlock::Text(text) => text.clone(),
            FindingBlock::Table { .. } => String::new(),
        })
        .collect();
    assert_eq!(texts[0], "Counted in 1 of 2 cases: receive window too small.");
    assert!(texts[1].starts_with("1. mem://a, throughput: receive window too small (counted): the receiver's window was full for 99 %"), "{}", texts[1]);
    assert_eq!(texts[2], "No counter agrees with a cause: case 2.");
    assert_eq!(finding.figures["cases"][0]["causes"][0]["id"], "receive_window");

    run.cases.remove(0);
    let nothing = explain(&ModelInput::Run(&run)).unwrap();
    let answer = "No counter agrees with a cause in 1 case.";
    assert_eq!(nothing.blocks[0], FindingBlock::Heading(answer.to_owned()));
}

#[test]
fn a_policer_is_separated_from_losses_of_the_path() {
    use linkgauge_model::run::SeriesEntry;
    let series = |bytes: &[u64]| {
        let entry =
            |bytes: &u64| SeriesEntry { length_ns: 100_000_000, bytes: *bytes, ..SeriesEntry::default() };
        bytes.iter().map(entry).collect::<Vec<_>>()
    };
    // Counters as measured behind iptables' hashlimit of 20 Mbit/s: without a queue, the first 0.1 s at 127 Mbit/s.
    let counters = [BUSY, ("tcp_sent_segments", 9813), ("tcp_retransmitted_segments", 1628)];
    let gauges = [
        ("tcp_rtt_ns", 512_000),
        ("tcp_min_rtt_ns", 4000),
        ("tcp_unacknowledged_segments", 51),
        ("tcp_segment_bytes", 1448),
    ];
    let mut policed = case("throughput", sender(&counters, &gauges));
    policed.direction = Direction::Receive;
    policed.evidence.as_mut().unwrap().server = Some(sender(&counters, &gauges));
    policed.figures.delivery.throughput_bps = Some(39e6);
    policed.series = series(&[1_585_896, 0, 498_168, 0, 556_032, 0, 524_176, 300_000]);
    let found = counted_causes(&policed);
    assert_eq!(found[0].id, "policed_rate");
    assert!(
        found[0].evidence.contains("no queue grew. Less load decides: --bit-rate "),
        "{}",
        found[0].evidence
    );
    // Packets of 64 KiB are lost as a whole, so losses of the path keep this window at a high rate.
    let mut fast = policed.clone();
    fast.figures.delivery.throughput_bps = Some(2e9);
    assert_eq!(ids(&fast).first(), Some(&"loss_limited_window"));
    // A steady rate with as many losses, and a window that these losses explain.
    let mut steady = policed.clone();
    steady.series = series(&[300_000; 8]);
    assert_ne!(ids(&steady).first(), Some(&"policed_rate"));
    let few = [
        ("tcp_rtt_ns", 512_000),
        ("tcp_min_rtt_ns", 4000),
        ("tcp_unacknowledged_segments", 3),
        ("tcp_segment_bytes", 1448),
    ];
    policed.evidence.as_mut().unwrap().server = Some(sender(&counters, &few));
    assert_ne!(ids(&policed).first(), Some(&"policed_rate"));
}

#[test]
fn a_buffer_that_was_full_for_a_part_of_the_time_has_its_share_and_its_end() {
    let counters = [BUSY, ("tcp_receive_window_limited_ns", 4_600_000_000)];
    let mut transfer = case("throughput", sender(&counters, &of_rtt(21_300)));
    let found = counted_causes(&transfer);
    assert_eq!((found[0].id, found[0].partial_share), ("receive_window", Some(0.46)));
    assert!(
        found[0]
            .evidence
            .ends_with("full for 46 % of the busy time. A larger buffer decides: --server-socket rcvbuf=4Mi")
    );
    transfer.direction = Direction::Receive;
    transfer.evidence.as_mut().unwrap().server = Some(sender(&counters, &of_rtt(21_300)));
    assert!(counted_causes(&transfer)[0].evidence.ends_with("decides: ?rcvbuf=4Mi"));
    // In the first and only tenth of the time.
    let short = sender(&[BUSY, ("tcp_receive_window_limited_ns", 400_000_000)], &of_rtt(21_300));
    assert!(counted_causes(&case("throughput", short)).is_empty());
}
