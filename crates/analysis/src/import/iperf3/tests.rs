//! Files as versions of iperf3 and their users save them: repeated names, invalid numbers, text around, interrupted tests.

use serde_json::{Value, json};

use crate::import::tests::{import_bytes, import_options, warning_codes};
use linkgauge_model::plan::Direction;
use linkgauge_model::run::{CaseResult, Run};

fn import(text: &str) -> Result<Run, String> {
    import_bytes("iperf3", text.as_bytes(), &import_options())
}

fn case(text: &str) -> CaseResult {
    import(text).unwrap().cases.remove(0)
}

fn start(protocol: &str, more: &Value) -> Value {
    let mut test = json!({"protocol": protocol, "num_streams": 1, "blksize": 1448, "omit": 0, "duration": 3, "reverse": 0});
    test.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({
        "version": "iperf 3.7", "cookie": "c", "timestamp": {"timesecs": 1_619_000_000},
        "connecting_to": {"host": "192.0.2.7", "port": 5201}, "test_start": test,
    })
}

fn sum(bytes: f64, is_sender: bool) -> String {
    let rate = bytes * 8.0 / 3.0;
    format!(
        r#"{{"start": 0, "end": 3, "seconds": 3, "bytes": {bytes}, "bits_per_second": {rate}, "sender": {is_sender}}}"#
    )
}

/// The result of `--bidir` of 3.7 to 3.10: every name of a sum twice.
fn bidirectional() -> String {
    let (sent, received) = (sum(360e6, true), sum(359e6, true));
    let (sent_back, received_back) = (sum(91e6, false), sum(90e6, false));
    format!(
        r#"{{"start": {}, "intervals": [{{"sum": {sent}, "sum": {sent_back}}}], "end": {{
        "streams": [{{"sender": {sent}, "receiver": {received}}}, {{"sender": {sent_back}, "receiver": {received_back}}}],
        "sum_sent": {sent}, "sum_received": {received}, "sum_sent": {sent_back}, "sum_received": {received_back}}}}}"#,
        start("TCP", &json!({}))
    )
}

#[test]
fn both_directions_under_repeated_names() {
    // A filter of JSON keeps the last of two equal names: the streams show the rest.
    let filtered = serde_json::from_str::<Value>(&bidirectional()).unwrap().to_string();
    for (text, series) in [(bidirectional(), 91_000_000), (filtered, 91_000_000)] {
        let case = case(&text);
        let delivery = &case.figures.delivery;
        assert_eq!(case.direction, Direction::Both);
        assert_eq!(
            (delivery.delivered_bytes, delivery.delivered_reverse_bytes),
            (Some(359_000_000), Some(90_000_000))
        );
        assert_eq!(delivery.throughput_bps.map(f64::round), Some(957_333_333.0));
        assert_eq!(delivery.throughput_reverse_bps, Some(240e6));
        assert_eq!(case.series[0].bytes, series, "what this side received");
        assert!(case.warnings.is_empty(), "{:?}", case.warnings);
    }
}

/// A UDP result whose values are texts of JSON or of something else.
fn datagrams(packets: &str, lost: &str, bytes: &str) -> String {
    format!(
        r#"{{"start": {}, "intervals": [{{"sum": {{"start": 0, "seconds": 3, "bytes": 0, "bits_per_second": -nan,
        "packets": 0, "lost_packets": 0, "lost_percent": -nan}}}}], "end": {{
        "sum_sent": {{"seconds": 3, "bytes": 17376, "packets": 12}},
        "sum_received": {{"seconds": 3, "bytes": {bytes}, "bits_per_second": nan, "packets": {packets}, "lost_packets": {lost},
        "jitter_ms": inf, "lost_percent": nan}}, "cpu_utilization_percent": {{"host_total": 12.5, "remote_total": 20}}}}}}"#,
        start("UDP", &json!({}))
    )
}

#[test]
fn numbers_that_are_none_are_not_measured() {
    let case = case(&datagrams("12", "2", "14480"));
    let counts = case.figures.counts;
    assert_eq!((counts.sent, counts.received, counts.lost), (12, 10, 2));
    assert_eq!(case.figures.delivery.throughput_bps, None);
    assert_eq!(case.cpu.unwrap().seconds_per_gigabyte, None, "14 kB say nothing about a gigabyte");
}

#[test]
fn impossible_losses_are_unknown() {
    for (packets, lost) in
        [("12", "-3"), ("4294967307", "4294967295"), ("12", "18446744073709551615"), ("12", "null")]
    {
        let case = case(&datagrams(packets, lost, "17376"));
        assert_eq!((case.figures.loss_share(), case.figures.counts.received), (None, 12), "{lost}");
        assert_eq!(warning_codes(&case.warnings), ["contradiction"], "{lost}");
        assert_eq!(case.figures.delivery.delivered_bytes, Some(17_376));
    }
}

#[test]
fn more_cpu_than_there_are_threads_is_left_out() {
    let with_cpu = |percent: &str| {
        case(&bidirectional().replacen(
            r#""sum_sent""#,
            &format!(
                r#""cpu_utilization_percent": {{"host_total": {percent}, "remote_total": 5}}, "sum_sent""#
            ),
            1,
        ))
    };
    assert!(with_cpu("250").cpu.is_some(), "two directions and a thread that controls");
    let case = with_cpu("8600000");
    assert_eq!((case.cpu, warning_codes(&case.warnings)), (None, vec!["contradiction"]));
    assert!(with_cpu("-nan").cpu.is_none());
}

#[test]
fn text_around_results_is_skipped() {
    let run =
        import(&format!("\u{feff}$ iperf3 -c gw -J\n{}\niperf3: interrupt\n", bidirectional())).unwrap();
    assert_eq!((run.cases.len(), warning_codes(&run.warnings)), (1, vec!["imported", "skipped_text"]));
    assert!(
        run.warnings[1]
            .text
            .starts_with("2 lines of the file are no JSON and were skipped, the first: '$ iperf3")
    );
    // The last of several is cut off.
    let whole = bidirectional();
    let run = import(&format!("{whole}\n{}", &whole[..whole.len() / 2])).unwrap();
    assert_eq!((run.cases.len(), warning_codes(&run.warnings)), (1, vec!["imported", "incomplete"]));
    let error = import(&whole[..whole.len() / 2]).unwrap_err();
    assert_eq!(
        error,
        "not a result of iperf3 --json: the object of line 1: it ends before its last brace: the file is cut off"
    );
    // Documents in a list, as some scripts collect them.
    let other = whole.replace("\"c\"", "\"d\"");
    let run = import(&format!("[\n{whole},\n{other}\n]\n")).unwrap();
    assert_eq!((run.cases.len(), run.warnings.len()), (2, 1));
}

#[test]
fn parameters_that_iperf3_cannot_have_are_refused() {
    let json = bidirectional();
    for (from, to, shown) in [
        (
            "\"num_streams\":1,",
            "\"num_streams\":1e9,",
            "'num_streams' of the test is 1000000000.0: iperf3 has 1 to 128",
        ),
        ("\"num_streams\":1,", "\"num_streams\":-1,", "'num_streams' of the test is -1: iperf3 has 1 to 128"),
        ("\"blksize\":1448,", "\"blksize\":1e30,", "'blksize' of the test is 1e+30: iperf3 has 1 to 1048576"),
    ] {
        let changed = json.replace(from, to);
        assert_ne!(changed, json);
        assert_eq!(import(&changed).unwrap_err(), shown);
    }
}

#[test]
fn text_output_is_named() {
    let text = "Connecting to host gw, port 5201\n[ ID] Interval           Transfer     Bitrate\n\
                [  5]   0.00-3.00   sec  1.00 GBytes  2.86 Gbits/sec\n";
    assert!(import(text).unwrap_err().ends_with("it is the text output of iperf3: run iperf3 with --json"));
}

#[test]
fn an_interrupted_test_has_what_this_side_counted() {
    let with_error = |reverse: u32| {
        format!(
            r#"{{"start": {}, "end": {{"sum_sent": {}, "sum_received": {}}}, "error": "interrupt - the client has terminated"}}"#,
            start("TCP", &json!({"reverse": reverse})),
            sum(3e6, reverse == 0),
            sum(2e6, reverse == 0)
        )
    };
    let received = case(&with_error(1));
    assert_eq!((received.figures.delivery.delivered_bytes, received.complete), (Some(2_000_000), false));
    assert_eq!(warning_codes(&received.warnings), ["incomplete"]);
    assert!(
        import(&with_error(0)).unwrap_err().contains("the client has terminated"),
        "the server did not report"
    );
}

/// A client's TCP upload whose receiver counted these bytes (a text of JSON) at this rate.
fn upload(received: &str, rate: f64) -> String {
    format!(
        r#"{{"start": {}, "intervals": [], "end": {{"sum_sent": {},
        "sum_received": {{"seconds": 3, "bytes": {received}, "bits_per_second": {rate}, "sender": true}}}}}}"#,
        start("TCP", &json!({})),
        sum(3e8, true)
    )
}

#[test]
fn impossible_amounts_of_data_are_left_out() {
    for (received, rate, what) in [
        ("300000000000", 8e11, "300000000000 bytes received of 300000000 sent"),
        ("-5", 8e8, "-5 bytes is no possible amount"),
        ("1e30", 8e8, "1000000000000000000000000000000 bytes is no possible amount"),
    ] {
        let case = case(&upload(received, rate));
        let delivery = &case.figures.delivery;
        assert_eq!((delivery.delivered_bytes, delivery.throughput_bps), (None, None), "{received}");
        assert_eq!(warning_codes(&case.warnings), ["contradiction"], "{received}");
        assert!(case.warnings[0].text.contains(what), "{:?}", case.warnings);
    }
    for (name, value) in [("num_streams", 1), ("blksize", 1448)] {
        let without = bidirectional().replace(&format!("\"{name}\":{value},"), &format!("\"{name}\":0,"));
        assert!(import(&without).unwrap_err().contains("of the test is 0"), "{name}");
    }
}

#[test]
fn a_direction_without_data_is_zero_and_incomplete() {
    let case = case(&upload("0", 0.0));
    let delivery = &case.figures.delivery;
    assert_eq!((delivery.delivered_bytes, delivery.throughput_bps), (Some(0), Some(0.0)));
    assert_eq!((case.complete, warning_codes(&case.warnings)), (false, vec!["incomplete"]));
}

#[test]
fn mixed_events_of_two_tests_are_no_result() {
    let [first, second] = [3e8, 9e8].map(|bytes| {
        let mut value: Value = serde_json::from_str(&upload(&bytes.to_string(), bytes * 8.0 / 3.0)).unwrap();
        ["start", "end"].map(|name| format!("{}\n", json!({"event": name, "data": value[name].take()})))
    });
    let apart = [&first[0], &first[1], &second[0], &second[1]].map(String::as_str).concat();
    assert_eq!(import(&apart).unwrap().cases.len(), 2);
    for end in [[&first[1], &second[1]], [&second[1], &first[1]]] {
        let mixed = format!("{}{}{}{}", first[0], second[0], end[0], end[1]);
        assert!(import(&mixed).unwrap_err().contains("the events of two tests are mixed"), "{mixed}");
    }
}

#[test]
fn intervals_of_a_sender_of_datagrams_are_no_deliveries() {
    let of = |lost: &str| {
        let interval = |number: u32| {
            format!(
                r#"{{"sum": {{"start": {}, "seconds": 0.001, "bytes": 1000, "packets": 1{lost}}}}}"#,
                f64::from(number) / 1e3
            )
        };
        let intervals = (0..2000).map(interval).collect::<Vec<_>>().join(",");
        let text = datagrams("12", "2", "14480");
        let (before, after) = text.split_once("\"intervals\": [").unwrap();
        let (_, end) = after.split_once("}],").unwrap();
        case(&format!("{before}\"intervals\": [{intervals}],{end}"))
    };
    assert_eq!(of("").series, []);
    let series = of(r#", "lost_packets": 0"#).series;
    assert!(series.len() <= 600, "{}", series.len());
    assert_eq!(series.iter().filter_map(|entry| entry.messages).sum::<u64>(), 2000);
}

/// The sum of datagrams as in a file of 3.12.
fn datagram_sum(seconds: f64, bytes: u64, packets: u64, lost: Option<u64>, is_sender: bool) -> Value {
    json!({
        "start": 0, "end": seconds, "seconds": seconds, "bytes": bytes, "bits_per_second": bytes as f64 * 8.0 / seconds,
        "packets": packets, "lost_packets": lost, "sender": is_sender,
    })
}

#[test]
fn datagrams_of_both_directions_are_those_that_each_receiver_counted() {
    let blocks = |count: u64| count * 1448;
    let back = datagram_sum(1.012, blocks(57_460), 57_460, Some(54_269), false);
    let file = json!({"start": start("UDP", &json!({})), "intervals": [], "end": {
        "sum": datagram_sum(1.012, blocks(61_580), 61_580, Some(59_401), true),
        "sum_sent": datagram_sum(1.004, blocks(61_580), 61_580, Some(0), true),
        "sum_received": datagram_sum(1.012, blocks(1151), 60_552, Some(59_401), false),
        "sum_bidir_reverse": back,
        "sum_sent_bidir_reverse": datagram_sum(1.004, blocks(57_460), 57_460, Some(0), true),
        "sum_received_bidir_reverse": datagram_sum(1.012, blocks(1206), 55_475, Some(54_269), false),
    }});
    let case = case(&file.to_string());
    let delivery = &case.figures.delivery;
    assert_eq!(
        (delivery.delivered_bytes, delivery.delivered_reverse_bytes),
        (Some(blocks(1151)), Some(blocks(1206)))
    );
    let counts = case.figures.counts;
    assert_eq!((counts.sent, counts.received, counts.lost), (61_580 + 57_460, 1151 + 1206, 116_683));
    assert!(case.warnings.is_empty(), "{:?}", case.warnings);
}

#[test]
fn lost_datagrams_agree_with_the_bytes_that_arrived() {
    // 12 datagrams of 1448 bytes arrived: 2 of 12 were not lost.
    let case = case(&datagrams("12", "2", "17376"));
    assert_eq!((case.figures.loss_share(), case.figures.counts.received), (None, 12));
    assert_eq!(warning_codes(&case.warnings), ["contradiction"]);
}

#[test]
fn the_intervals_of_an_interrupted_server_decide() {
    let mut intervals = vec![datagram_sum(1.0, 77 * 1448, 77, Some(0), false)];
    let mut second = datagram_sum(1.0, 76 * 1448, 76, Some(0), false);
    second["start"] = json!(1.0);
    intervals.extend([second.clone(), second]);
    let intervals: Vec<Value> = intervals.into_iter().map(|sum| json!({"sum": sum})).collect();
    let mut start = start("UDP", &json!({}));
    start["connecting_to"] = Value::Null;
    start["accepted_connection"] = json!({"host": "192.0.2.1"});
    let file = json!({"start": start, "intervals": intervals, "error": "the client has terminated", "end": {
        "sum_sent": datagram_sum(2.0, 0, 0, Some(0), true),
        "sum_received": datagram_sum(2.0, 189 * 1448, 189, Some(0), false),
    }});
    let case = case(&file.to_string());
    assert_eq!(case.figures.delivery.throughput_bps, Some(153.0 * 1448.0 * 4.0));
    assert_eq!((case.figures.counts.sent, case.figures.counts.lost), (153, 0));
    assert_eq!(case.series.iter().map(|entry| entry.bytes).collect::<Vec<_>>(), [77 * 1448, 76 * 1448]);
    assert_eq!(warning_codes(&case.warnings), ["contradiction", "incomplete"]);
}

#[test]
fn cpu_time_that_was_not_reported_is_absent() {
    let with_cpu = |remote: &str, seconds: &str| {
        let cpu = format!(
            r#""cpu_utilization_percent": {{"host_total": 20, "remote_total": {remote}}}, "sum_sent""#
        );
        case(&bidirectional().replacen(r#""sum_sent""#, &cpu, 1).replace(r#""seconds": 3"#, seconds))
    };
    let cpu = with_cpu("0", r#""seconds": 3"#).cpu.unwrap();
    assert!(cpu.client_seconds > 0.0);
    assert_eq!((cpu.server_seconds, cpu.seconds_per_gigabyte), (None, None));
    let timeless = with_cpu("10", r#""no": 3"#);
    assert_eq!((timeless.cpu, timeless.series), (None, vec![]), "without a time");
}

#[test]
fn a_stream_counts_no_messages() {
    let run = import(&bidirectional()).unwrap();
    let text = serde_json::to_string(&run).unwrap();
    let case = serde_json::from_str::<Value>(&text).unwrap()["cases"][0].take();
    for (place, field) in [(&case, "sent"), (&case, "received"), (&case, "lost")] {
        assert!(place.get(field).is_none(), "{field}: {case}");
    }
    let entry = &case["series"][0];
    assert!(entry.get("messages").is_none() && entry.get("lost").is_none() && entry["bytes"] == 91_000_000);
    assert_eq!(Run::from_json(&text).unwrap(), run);
}
