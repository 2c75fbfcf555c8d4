//! Tests each format with hand-made files. `tests/interop/import.rs` reads files of the real programs.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};

use super::*;
use crate::lists::{IMPORT_FORMATS, import_format};

pub(super) fn import_options() -> ImportOptions {
    let late = [50, 100, 200, 300].map(Duration::from_millis).to_vec();
    ImportOptions {
        file_name: "results.txt".to_owned(),
        modified: Some(Timestamp::UNIX_EPOCH),
        late_limits: late,
        ..ImportOptions::default()
    }
}

pub(super) fn import_bytes(format: &str, text: &[u8], about: &ImportOptions) -> Result<Run, String> {
    read(import_format(format).unwrap(), &mut &*text, about).map_err(|error| error.to_string())
}

/// Endpoint, sent, received, lost and median (in ns) of each case.
pub(super) fn counted(run: &Run) -> Vec<(&str, u64, u64, u64, Option<u64>)> {
    let of = |case: &'_ CaseResult| {
        let (counts, times) = (&case.figures.counts, &case.figures.times);
        let median = times.latency_ns.as_ref().and_then(|times| times.percentile("p50"));
        (counts.sent, counts.received, counts.lost, median)
    };
    run.cases
        .iter()
        .map(|case| (case.endpoint.as_str(), of(case)))
        .map(|(e, (a, b, c, d))| (e, a, b, c, d))
        .collect()
}

/// Samples in milliseconds, 999 for a timeout.
fn import_milliseconds(text: &str) -> Run {
    let about = ImportOptions {
        unit: Some(TimeUnit::Milliseconds),
        lost_marker: Some("999".to_owned()),
        ..import_options()
    };
    import_bytes("samples", text.as_bytes(), &about).unwrap()
}

#[test]
fn sample_log_gives_the_figures_of_a_live_run() {
    // 1 … 96 ms and four timeouts, shuffled.
    let mut lines: Vec<String> = (0..96).map(|i| (i * 37 % 96 + 1).to_string()).collect();
    lines.splice(40..40, std::iter::repeat_n("999".to_owned(), 4));
    let run = import_milliseconds(&format!("# the study's log\n\n{}\r\n", lines.join("\n")));
    let figures = &run.cases[0].figures;
    assert_eq!((figures.counts.sent, figures.counts.received, figures.counts.lost), (100, 96, 4));
    let latency = figures.times.latency_ns.as_ref().unwrap();
    // The fastest 95 of the 100 requests: 1 … 95.
    assert_eq!(latency.mean_fastest_95_percent, Some(48e6));
    for (name, rank) in [("p10", 10), ("p50", 50), ("p90", 90), ("p95", 95)] {
        assert_eq!(latency.percentiles[name], Some(rank * 1_000_000), "{name}");
    }
    let later = ["50", "100", "200", "300"].map(|limit| latency.later_than_ms[limit]);
    assert_eq!(later, [0.50, 0.04, 0.04, 0.04], "the lost are late");
    assert_eq!((latency.min, latency.max), (1_000_000, 96_000_000));
    assert_eq!(
        (figures.delivery.messages_per_second, run.cases[0].series.len()),
        (None, 0),
        "no time of sending is known"
    );
    assert_eq!(run.started, Timestamp::UNIX_EPOCH);
}

#[test]
fn sorted_latencies_have_no_jitter() {
    let of = |values: &[u64]| {
        let run = import_milliseconds(&values.iter().map(|value| format!("{value}\n")).collect::<String>());
        let is_sorted =
            run.warnings.iter().any(|warning| warning.code == linkgauge_model::run::WarningCode::Sorted);
        (is_sorted, run.cases[0].figures.times.jitter_ns.is_some())
    };
    let rising: Vec<u64> = (1..=50).chain([50, 50, 999, 999]).collect();
    let falling: Vec<u64> = rising.iter().rev().copied().collect();
    let mut measured = rising.clone();
    measured.swap(20, 21);
    assert_eq!((of(&rising), of(&falling), of(&measured)), ((true, false), (true, false), (false, true)));
    // A few values, or equal ones, may be sorted by chance.
    assert_eq!((of(&[1, 2, 3, 4]), of(&[2; 100])), ((false, true), (false, true)));
}

#[test]
fn times_of_zero_are_below_a_coarse_resolution() {
    let run = import_milliseconds("0\n2\n999\n0\n3\n");
    let case = &run.cases[0];
    let latency = case.figures.times.latency_ns.as_ref().unwrap();
    assert_eq!((latency.min, latency.max, latency.below_ns), (1_000_000, 3_000_000, Some(1_000_000)));
    assert_eq!((latency.percentile("p50"), latency.mean), (Some(2_000_000), 1_750_000.0));
    assert_eq!((latency.standard_deviation, case.figures.times.jitter_ns), (None, None));
    assert_eq!(warning_codes(&case.warnings), ["upper_bound"]);
    let text = &case.warnings[0].text;
    assert!(text.starts_with("2 of 4 times are below the resolution of the file (1 ms)"), "{text}");
    let mut answer = Vec::new();
    let of_text = crate::lists::report_format("text").unwrap();
    (of_text.write)(&run, &crate::report::ReportOptions::default(), &mut answer).unwrap();
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.contains("2.00 ms median, 3.00 ms max"), "{answer}");
    assert!(answer.contains("≤ 1.000 ms"), "{answer}");

    let all = import_milliseconds("0\n0\n");
    assert_eq!(
        (all.cases[0].figures.times.latency_ns.as_ref(), all.cases[0].figures.counts.received),
        (None, 2)
    );
    assert!(
        all.cases[0].warnings[0].text.starts_with("all 2 times are below"),
        "{:?}",
        all.cases[0].warnings
    );
    // No round trip is shorter than a nanosecond.
    let fine = import_milliseconds("0.000000\n2.000001\n");
    assert_eq!(
        (&fine.cases[0].figures.times.latency_ns, warning_codes(&fine.cases[0].warnings)),
        (&None, vec!["contradiction"])
    );
}

#[test]
fn a_last_line_that_may_be_cut_off_counts_for_nothing() {
    let run = import_milliseconds("12\n999\n13\n99");
    let figures = &run.cases[0].figures;
    assert_eq!((figures.counts.sent, figures.counts.lost), (3, 1));
    assert_eq!(figures.times.latency_ns.as_ref().unwrap().max, 13_000_000);
    assert_eq!(warning_codes(&run.warnings), ["imported", "skipped_text"]);
    // Neither a remark nor spaces are samples.
    assert_eq!(warning_codes(&import_milliseconds("12\n# the end").warnings), ["imported"]);
    let about = ImportOptions { unit: Some(TimeUnit::Milliseconds), ..import_options() };
    assert!(import_bytes("samples", b"12", &about).unwrap_err().contains("may be cut off"));
}

/// An iperf3 result with this start and end, as a client or a server of 3.21 writes it.
fn iperf3_document(start: &str, test: &str, end: &str) -> String {
    format!(
        r#"{{"start": {{"connected": [{{"local_host": "192.0.2.7", "local_port": 5201, "remote_host": "192.0.2.9",
        "remote_port": 40002}}], "version": "iperf 3.21", "timestamp": {{"timesecs": 1700000000}}, "cookie": "one",
        {start}, "test_start": {{"num_streams": 1, "blksize": 1000, "duration": 2, {test}}}}},
        "intervals": [{{"sum": {{"start": 0, "seconds": 1, "bytes": 5000, "omitted": false}}}}],
        "end": {{{end}, "cpu_utilization_percent": {{"host_total": 20, "remote_total": 30}}}}}}"#
    )
}

const SERVER_START: &str = r#""accepted_connection": {"host": "192.0.2.9", "port": 40000}"#;
const CLIENT_START: &str = r#""connecting_to": {"host": "192.0.2.7", "port": 5201}"#;
const TCP_REVERSE: &str = r#""protocol": "TCP", "reverse": 1, "omit": 0"#;

pub(super) fn warning_codes(warnings: &[Warning]) -> Vec<&str> {
    warnings.iter().map(|warning| warning.code.name()).collect()
}

#[test]
fn iperf3_sending_server_has_no_delivery() {
    let end = r#""sum_sent": {"seconds": 2, "bytes": 9000000, "bits_per_second": 36e6},
        "sum_received": {"seconds": 2, "bytes": 0, "bits_per_second": 0}"#;
    let run =
        import_bytes("iperf3", iperf3_document(SERVER_START, TCP_REVERSE, end).as_bytes(), &import_options())
            .unwrap();
    let case = &run.cases[0];
    assert_eq!((case.direction, case.endpoint.as_str()), (Direction::Receive, "tcp://192.0.2.7:5201"));
    assert_eq!((case.figures.delivery.delivered_bytes, case.figures.delivery.throughput_bps), (None, None));
    assert_eq!((case.figures.loss_share(), case.elapsed_ns), (None, 2_000_000_000));
    // The CPU use of the file is the server's. Its client values belong to the previous client.
    assert_eq!((&case.cpu, case.effective["server_cpu_percent"].as_f64()), (&None, Some(20.0)));
    assert_eq!(warning_codes(&case.warnings), ["unconfirmed"]);
    let run =
        import_bytes("iperf3", iperf3_document(CLIENT_START, TCP_REVERSE, end).as_bytes(), &import_options())
            .unwrap();
    assert_eq!(run.cases[0].figures.delivery.delivered_bytes, Some(0), "a client knows");
}

const UDP_BIDIRECTIONAL: &str = r#""protocol": "UDP", "reverse": 0, "bidir": 1, "omit": 0"#;
const UDP_SUMS: &str = r#"
    "sum": {"seconds": 2, "bytes": 40000000, "packets": 40000, "lost_packets": 1000},
    "sum_sent": {"seconds": 2, "bytes": 40000000, "packets": 40000, "lost_packets": 0},
    "sum_received": {"seconds": 2, "bytes": 38900000, "bits_per_second": 155.6e6, "packets": 39900, "lost_packets": 1000},
    "sum_sent_bidir_reverse": {"seconds": 2, "bytes": 31093000, "packets": 31093, "lost_packets": 0},
    "sum_received_bidir_reverse": {"seconds": 2, "bytes": 27199000, "bits_per_second": 108796000,
        "packets": 31093, "lost_packets": 3894}"#;

#[test]
fn datagrams_of_both_directions_of_iperf3_count() {
    let document = iperf3_document(CLIENT_START, UDP_BIDIRECTIONAL, UDP_SUMS);
    let run = import_bytes("iperf3", document.as_bytes(), &import_options()).unwrap();
    let figures = &run.cases[0].figures;
    // A hundred were lost after the last one that the server received.
    assert_eq!(
        (figures.counts.sent, figures.counts.received, figures.counts.lost),
        (71_093, 66_099, 1_100 + 3_894)
    );
    assert_eq!(
        (figures.delivery.delivered_bytes, figures.delivery.delivered_reverse_bytes),
        (Some(38_900_000), Some(27_199_000))
    );
    // A server knows its own side.
    let document = iperf3_document(SERVER_START, UDP_BIDIRECTIONAL, UDP_SUMS);
    let run = import_bytes("iperf3", document.as_bytes(), &import_options()).unwrap();
    let figures = &run.cases[0].figures;
    assert_eq!((figures.counts.sent, figures.counts.received, figures.counts.lost), (39_900, 38_900, 1_000));
    assert_eq!(
        (figures.delivery.delivered_bytes, figures.delivery.delivered_reverse_bytes),
        (Some(38_900_000), None)
    );
    assert_eq!(warning_codes(&run.cases[0].warnings), ["unconfirmed"]);
}

#[test]
fn iperf3_omit_without_counts_of_one_period_has_no_loss() {
    let omits = UDP_BIDIRECTIONAL.replace(r#""omit": 0"#, r#""omit": 1"#);
    // Like 3.12: losses since the start.
    let mixed = UDP_SUMS.replace(r#""lost_packets": 3894"#, r#""lost_packets": 31000"#);
    let run =
        import_bytes("iperf3", iperf3_document(CLIENT_START, &omits, &mixed).as_bytes(), &import_options())
            .unwrap();
    let case = &run.cases[0];
    assert_eq!((case.figures.counts.known_lost(), case.figures.loss_share()), (None, None));
    assert_eq!((case.cpu.is_some(), warning_codes(&case.warnings)), (false, vec!["losses_unknown"]));
}

#[test]
fn events_and_several_tests_of_iperf3_are_read() {
    let document = iperf3_document(CLIENT_START, UDP_BIDIRECTIONAL, UDP_SUMS);
    let value: Value = serde_json::from_str(&document).unwrap();
    let event = |name: &str, data: &Value| format!("{}\n", serde_json::json!({"event": name, "data": data}));
    let events = [
        event("start", &value["start"]),
        event("interval", &value["intervals"][0]),
        event("server_output_text", &Value::from("hello")),
        event("end", &value["end"]),
    ];
    let cases = |text: &str| import_bytes("iperf3", text.as_bytes(), &import_options()).map(|run| run.cases);
    let one = cases(&document).unwrap();
    assert_eq!(cases(&events.concat()), Ok(one.clone()));
    // --json-stream-full-output repeats everything. A server concatenates tests.
    assert_eq!(cases(&format!("{}{document}", events.concat())), Ok(one.clone()));
    let other = document.replace("\"one\"", "\"two\"");
    assert_eq!(cases(&format!("{document}\n{other}")).unwrap().len(), 2);
    let failed = event("error", &Value::from("the client has terminated"));
    assert!(cases(&format!("{}{failed}", events[0])).unwrap_err().contains("the client has terminated"));
    let run =
        import_bytes("iperf3", format!("{document}{}{failed}", events[0]).as_bytes(), &import_options())
            .unwrap();
    assert_eq!((run.cases.len(), warning_codes(&run.warnings)), (1, vec!["imported", "incomplete"]));
    assert!(cases(&events[..2].concat()).unwrap_err().contains("'end' is missing"));
    assert!(cases("").unwrap_err().contains("the file is empty"));
}

#[test]
fn the_mean_of_the_fastest_needs_95_of_100() {
    let run = import_milliseconds(&(format!("{}{}", "1\n".repeat(94), "999\n".repeat(6))));
    let latency = run.cases[0].figures.times.latency_ns.as_ref().unwrap();
    assert_eq!((latency.mean_fastest_95_percent, latency.percentiles["p95"]), (None, None));
}

#[test]
fn the_same_file_is_the_same_run() {
    let id = |text: &str| import_milliseconds(text).id;
    assert_eq!(id("1\n2\n"), id("1\n2\n"));
    assert_ne!(id("1\n2\n"), id("1\n3\n"));
    let seconds = ImportOptions { unit: Some(TimeUnit::Seconds), ..import_options() };
    assert_ne!(import_bytes("samples", b"1\n2\n", &seconds).unwrap().id, id("1\n2\n"));
}

#[test]
fn errors_name_their_line() {
    let samples = |text: &[u8]| {
        let about = ImportOptions { unit: Some(TimeUnit::Seconds), ..import_options() };
        import_bytes("samples", text, &about).unwrap_err()
    };
    let long = "1".repeat(5000);
    insta::assert_snapshot!(
        [
            samples(b""),
            samples(b"# nothing\n"),
            samples(b"1\ntwo\n"),
            samples(b"1\n-2\n"),
            samples(b"1 2\n"),
            samples(b"NaN\n"),
            samples(b"1e300\n"),
            samples(b"\xff\n"),
            samples(long.as_bytes()),
            import_bytes("samples", b"1\n", &import_options()).unwrap_err(),
            import_bytes("sockperf", b"hello\n", &import_options()).unwrap_err(),
            import_bytes("sockperf", b"packet, txTime(sec), rxTime(sec), latency(usec)\n0, 1.0, 0.5, 1\n", &import_options()).unwrap_err(),
            import_bytes("iperf3", b"{\"error\": \"unable to connect\"}", &import_options()).unwrap_err(),
            import_bytes("iperf3", b"{\"start\": {}}", &import_options()).unwrap_err(),
            import_bytes("iperf3", b"{\"start\": {}, \"end\": {}}", &import_options()).unwrap_err(),
            import_bytes("iperf3", b"hello", &import_options()).unwrap_err(),
            import_bytes("hdr", b"#[StartTime: 1]\n", &import_options()).unwrap_err(),
            import_bytes("hdr", b"0.1,1.0,2.0,HISTFAAAA\n", &import_options()).unwrap_err(),
            import_bytes("run", b"{\"schema\": \"linkgauge.run.v2\"}", &import_options()).unwrap_err(),
            import_bytes("run", b"{\"schema\": ", &import_options()).unwrap_err(),
        ]
        .join("\n"),
        @r"
    there is no sample in it
    there is no sample in it
    line 2: 'two' is not a latency: write one number per line, and '#' before comments. If it marks a lost request: --lost='two'
    line 2: '-2' is not a latency: write one number per line, and '#' before comments. If it marks a lost request: --lost='-2'
    line 1: '1 2' is not a latency: write one number per line, and '#' before comments
    line 1: 'NaN' is not a latency: write one number per line, and '#' before comments. If it marks a lost request: --lost='NaN'
    line 1: '1e300' is not a latency: write one number per line, and '#' before comments. If it marks a lost request: --lost='1e300'
    line 1: not UTF-8 text: convert it with iconv
    line 1: longer than 4096 bytes
    the file does not contain the unit of the times: use --unit ms, us, ns or s
    not a full log of sockperf: no row follows 'packet, txTime(sec), rxTime(sec), …'. Try: sockperf … --full-log FILE
    line 2: '0, 1.0, 0.5, 1' is not a row of 'packet, txTime(sec), rxTime(sec), …'
    iperf3 ended with an error: unable to connect
    not a result of iperf3 --json: 'end' is missing
    iperf3 ended before it reported the received data
    not a result of iperf3 --json: it contains no JSON object
    no log of HdrHistogram: there is no interval with a value in it
    line 1: '0.1,1.0,2.0,HISTFAAAA' is no interval of an HdrHistogram log: its histogram is not base64 (Invalid input length: 9)
    a run document of schema 'linkgauge.run.v2', this version reads 'linkgauge.run.v1': use a newer linkgauge
    the document is cut off after line 1: name a whole file that --json or 'linkgauge export' wrote
    ");
}

#[test]
fn a_full_log_of_sockperf_gives_round_trips() {
    let text = "test was performed using the following parameters: --mps=200 --msg-size=14 --time=1\n\
                sockperf: # dropped messages = 2; # duplicated messages = 1; # out-of-order messages = 3\n\
                ------------------------------\n\
                packet, txTime(sec), rxTime(sec), latency(usec)\n\
                0, 2.000000000, 2.000036454, 18.227\n\
                1, 2.500000000, 2.500015613, 7.806\n\
                ------------------------------\n";
    let run = import_bytes("sockperf", text.as_bytes(), &import_options()).unwrap();
    let case = &run.cases[0];
    let figures = &case.figures;
    let latency = figures.times.latency_ns.as_ref().unwrap();
    assert_eq!((latency.min, latency.max), (15_613, 36_454), "whole round trips, exactly");
    assert_eq!((figures.counts.sent, figures.counts.received, figures.counts.lost), (4, 2, 2));
    assert_eq!((figures.counts.duplicate, figures.counts.reordered), (1, 3));
    assert_eq!((case.message_bytes, case.elapsed_ns), (14, 500_015_613));
}

#[test]
fn counts_of_sockperf_that_are_missing_or_impossible_are_no_losses() {
    let table = "packet, txTime(sec), rxTime(sec), latency(usec)\n0, 2.000000000, 2.000036454, 18.227\n";
    for (summary, reason) in [
        ("", "the log has no summary"),
        ("# dropped messages = 18446744073709551615; # duplicated messages = 0\n", "is impossible"),
        ("# dropped messages = -1; # duplicated messages = 0\n", "is impossible"),
        (
            "[Valid Duration] RunTime=0.5 sec; SentMessages=9; ReceivedMessages=9\n# dropped messages = 0\n",
            "the log has 1 of 9 replies",
        ),
    ] {
        let run =
            import_bytes("sockperf", format!("{summary}{table}").as_bytes(), &import_options()).unwrap();
        assert_eq!(
            (run.cases[0].figures.counts.known_lost(), run.cases[0].figures.counts.received),
            (None, 1)
        );
        assert!(run.warnings[1].text.contains(reason), "{:?}", run.warnings);
    }
}

#[test]
fn every_encoding_of_text_is_read_or_named() {
    let unit = |lost: &str| ImportOptions {
        unit: Some(TimeUnit::Milliseconds),
        lost_marker: Some(lost.to_owned()),
        ..import_options()
    };
    let counts = |text: &[u8], lost: &str| {
        let figures = import_bytes("samples", text, &unit(lost)).map(|run| run.cases[0].figures.clone());
        figures.map(|figures| (figures.counts.sent, figures.counts.lost))
    };
    assert_eq!(counts("\u{feff}30.4\r\n29.1\r\n31.5\r\n".as_bytes(), "999"), Ok((3, 0)));
    // A marker is a text or a number, in the range of latencies or not.
    for (line, marker) in
        [("-1", "-1"), ("-1.0", "-1"), ("999.00", "999"), ("-", "-"), ("*", "*"), ("NaN", "NaN")]
    {
        let text = format!("91.7\n{line}\n29.2\n{line}\n");
        assert_eq!(counts(text.as_bytes(), marker), Ok((4, 2)), "{line}");
    }
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(b"30.4\n999\n").unwrap();
    assert_eq!(counts(&packed.finish().unwrap(), "999"), Ok((2, 1)));
    let utf16 = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
    for (bytes, complaint) in [
        (utf16("\u{feff}30.4\n"), "the text is UTF-16"),
        (utf16("30.4\n"), "the text is UTF-16"),
        ("\u{feff}3".encode_utf16().flat_map(u16::to_be_bytes).collect(), "the text is UTF-16"),
        (vec![0x1f, 0x8b, 8], "cannot be read"),
        (b"30,4\n".to_vec(), "line 1: '30,4' has a decimal comma: write it with a point"),
        (
            b"3\n*\n".to_vec(),
            "line 2: '*' is not a latency: write one number per line, and '#' before comments. If it marks a lost request: --lost='*'",
        ),
    ] {
        let error = counts(&bytes, "999").unwrap_err();
        assert!(error.starts_with(complaint), "{error}");
    }
    let found = import_bytes("iperf3", &utf16("{}"), &import_options()).unwrap_err();
    assert!(found.contains("UTF-16"), "in every format: {found}");
}

#[test]
fn bytes_of_another_encoding_may_precede_the_percentage_of_ping() {
    let text =
        b"PING gw (192.0.2.1) 56(84) bytes of data.\n64 bytes from gw: icmp_seq=1 ttl=64 time=0.031 ms\n\n\
        --- gw ping statistics ---\n2 packets transmitted, 1 received,\xc550% packet loss, time 1001ms\n";
    let run = import_bytes("ping", text, &import_options()).unwrap();
    assert_eq!(run.cases[0].figures.counts.known_lost(), Some(1));
}

#[test]
fn unknown_losses_are_absent() {
    let about = ImportOptions { unit: Some(TimeUnit::Milliseconds), ..import_options() };
    let run = import_bytes("samples", b"1\n2\n3\n", &about).unwrap();
    let counts = run.cases[0].figures.counts;
    assert_eq!((counts.received, counts.known_sent(), counts.known_lost()), (3, None, None));
    assert_eq!(run.cases[0].figures.loss_share(), None);
    let text = serde_json::to_string(&run).unwrap();
    assert!(!text.contains("\"lost\"") && !text.contains("\"sent\""), "{text}");
    assert_eq!(Run::from_json(&text).unwrap(), run);
}

#[test]
fn an_end_in_milliseconds_is_no_length() {
    let mut histogram = Histogram::<u64>::new_with_bounds(1, 1000, 2).unwrap();
    histogram.record(540).unwrap();
    let mut bytes = Vec::new();
    hdrhistogram::serialization::Serializer::serialize(
        &mut V2DeflateSerializer::new(),
        &histogram,
        &mut bytes,
    )
    .unwrap();
    let text = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, &bytes);
    let duration = |rows: [[&str; 2]; 2]| {
        let rows = rows.map(|[start, second]| format!("{start},{second},540.000,{text}\n")).concat();
        let run = import_bytes("hdr", rows.as_bytes(), &import_options()).unwrap();
        (run.elapsed_ns, warning_codes(&run.warnings).contains(&"contradiction"))
    };
    let by_go = [["1502012685747.000", "1502012686748.000"], ["1502012686748.000", "1502012687748.000"]];
    assert_eq!(duration(by_go), (2_001_000_000, false));
    let first = format!("1502012685747.000,1502012686748.000,540.000,{text}\n");
    let run = import_bytes("hdr", first.as_bytes(), &import_options()).unwrap();
    assert_eq!(
        run.started.as_millisecond(),
        1_502_012_685_747,
        "without a start time, that of the first row"
    );
    assert_eq!(duration([["0.5", "77"], ["1.5", "81"]]), (0, true));
}

#[test]
fn a_log_of_histograms_is_read_whole() {
    let mut histogram = Histogram::<u64>::new_with_bounds(1, 3_600_000_000, 3).unwrap();
    (1..=1000u64).for_each(|value| histogram.record(value).unwrap());
    let mut text = Vec::new();
    let mut serializer = V2DeflateSerializer::new();
    let mut builder = IntervalLogWriterBuilder::new();
    builder.with_start_time(std::time::UNIX_EPOCH + Duration::from_secs(1_000_000));
    let mut writer = builder.begin_log_with(&mut text, &mut serializer).unwrap();
    let second = Duration::from_secs(1);
    for start in 0..3 {
        writer.write_histogram(&histogram, second * start, second, None).unwrap();
    }
    writer.write_histogram(&histogram, second, second, Tag::new("back")).unwrap();
    let about = ImportOptions { unit: Some(TimeUnit::Microseconds), ..import_options() };
    let run = import_bytes("hdr", &text, &about).unwrap();
    assert_eq!(run.started.as_second(), 1_000_000);
    let counts: Vec<(&str, u64)> =
        run.cases.iter().map(|case| (case.endpoint.as_str(), case.figures.counts.received)).collect();
    assert_eq!(counts, [("results.txt", 3000), ("results.txt back", 1000)]);
    let latency = run.cases[0].figures.times.latency_ns.as_ref().unwrap();
    assert_eq!((latency.min, latency.max, latency.percentiles["p50"]), (1_000, 1_000_000, Some(500_000)));
    assert_eq!(latency.mean, 500_500.0);
    assert_eq!((run.cases[0].elapsed_ns, run.cases[0].figures.times.jitter_ns), (3_000_000_000, None));
    text.truncate(text.len() - 40);
    let cut_off = import_bytes("hdr", &text, &about).unwrap();
    assert_eq!((cut_off.cases.len(), cut_off.cases[0].figures.counts.received), (1, 3000));
    assert_eq!(warning_codes(&cut_off.warnings), ["imported", "skipped_text", "losses_unknown"]);
    // In the middle of the file it is no cut.
    text.push(b'\n');
    let error = import_bytes("hdr", &text, &about).unwrap_err();
    assert!(error.contains("is no interval of an HdrHistogram log: its histogram"), "{error}");
}

/// A line from a log of jHiccup, which uses the Java library.
#[test]
fn java_histograms_are_read() {
    let line = "0.127,1.007,2.769,HISTFAAAAEV42pNpmSzMwMCgyAABTBDKT4GBgdnNYMcCBvsPEBEJISEuATEZMQ4uASkhIR4nrxg9v2lMaxhvMekILGZk\
                KmcCAEf2CsI=\n";
    let run = import_bytes("hdr", line.as_bytes(), &import_options()).unwrap();
    let latency = run.cases[0].figures.times.latency_ns.as_ref().unwrap();
    assert_eq!(latency.count, 741);
    // The log says 2.769 ms, the upper end of that two-digit bucket.
    assert_eq!(latency.max, 2_760_704);
}

#[test]
fn a_time_of_zero_at_a_fine_resolution_is_no_time() {
    let about = ImportOptions { unit: Some(TimeUnit::Milliseconds), ..import_options() };
    for text in ["0.000000\n0\n", "1e-9\n2\n"] {
        let case = import_bytes("samples", text.as_bytes(), &about).unwrap().cases.remove(0);
        assert_eq!((case.figures.times.latency_ns, case.figures.counts.received), (None, 2));
        assert_eq!(warning_codes(&case.warnings), ["contradiction"]);
    }
}

#[test]
fn names_are_unique() {
    for (index, format) in IMPORT_FORMATS.iter().enumerate() {
        assert!(std::ptr::eq(import_format(format.name).unwrap(), &IMPORT_FORMATS[index]));
    }
}

#[test]
fn an_imported_run_survives_its_document() {
    // The deviation of these samples is 12953.763931769021.
    let run = import_milliseconds("0.014\n0.046\n0.040\n0.044\n0.039\n");
    let text = serde_json::to_string(&run).unwrap();
    assert_eq!(Run::from_json(&text).unwrap(), run);
    assert_eq!(import_bytes("run", text.as_bytes(), &import_options()).unwrap(), run);
}

#[test]
fn a_comment_may_follow_a_sample() {
    let figures = &import_milliseconds("1 # first\n# none\n999# lost\n3\n").cases[0].figures;
    assert_eq!((figures.counts.sent, figures.counts.lost), (3, 1));
    let marked = ImportOptions {
        unit: Some(TimeUnit::Milliseconds),
        lost_marker: Some("#".to_owned()),
        ..import_options()
    };
    let run = import_bytes("samples", b"1\n#\n2\n", &marked).unwrap();
    assert_eq!(run.cases[0].figures.counts.lost, 1);
}

#[test]
fn what_a_file_does_not_say_is_absent() {
    let run = import_milliseconds("1\n2\n999\n");
    let text = serde_json::to_string(&run).unwrap();
    let case = serde_json::from_str::<serde_json::Value>(&text).unwrap()["cases"][0].take();
    for field in ["message_bytes", "elapsed_ns", "corrupt_bytes", "duplicate", "missed_sends"] {
        assert!(case.get(field).is_none(), "{field}: {case}");
    }
    assert_eq!((&case["sent"], &case["lost"]), (&3.into(), &1.into()));
    assert_eq!(Run::from_json(&text).unwrap(), run);
    let mut csv = Vec::new();
    (crate::lists::report_format("csv").unwrap().write)(&run, &Default::default(), &mut csv).unwrap();
    let mut table = ::csv::Reader::from_reader(csv.as_slice());
    let header = table.headers().unwrap().clone();
    let row = table.records().next().unwrap().unwrap();
    let cell = |name: &str| row.get(header.iter().position(|column| column == name).unwrap()).unwrap();
    for name in ["message_bytes", "elapsed_ns", "corrupt_bytes", "duplicate", "reordered", "missed_sends"] {
        assert_eq!(cell(name), "", "{name}");
    }
    assert_eq!((cell("sent"), cell("lost")), ("3", "1"));
}

#[test]
fn a_zero_that_a_file_says_is_a_figure() {
    let text = "sockperf: # dropped messages = 0; # duplicated messages = 0; # out-of-order messages = 0\n\
                packet, txTime(sec), rxTime(sec), latency(usec)\n\
                0, 2.000000000, 2.000036454, 18.227\n\
                1, 2.500000000, 2.500015613, 7.806\n";
    let run = import_bytes("sockperf", text.as_bytes(), &import_options()).unwrap();
    let document = serde_json::to_string(&run).unwrap();
    assert_eq!(Run::from_json(&document).unwrap(), run);
    let case = serde_json::from_str::<serde_json::Value>(&document).unwrap()["cases"][0].take();
    let of = |name: &str| case.get(name).map(ToString::to_string).unwrap_or_default();
    assert_eq!(
        ["lost", "duplicate", "reordered", "late", "corrupt_messages"].map(of),
        ["0", "0", "0", "", ""]
    );
    // In the order of every document, not of the alphabet.
    let place = |name: &str| document.find(&format!("\"{name}\"")).unwrap();
    assert!(place("endpoint") < place("direction") && place("direction") < place("complete"), "{document}");
    let mut csv = Vec::new();
    (crate::lists::report_format("csv").unwrap().write)(&run, &Default::default(), &mut csv).unwrap();
    let mut table = ::csv::Reader::from_reader(csv.as_slice());
    let header = table.headers().unwrap().clone();
    let row = table.records().next().unwrap().unwrap();
    let cell = |name: &str| row[header.iter().position(|column| column == name).unwrap()].to_owned();
    assert_eq!(["duplicate", "reordered", "missed_sends", "corrupt_bytes"].map(cell), ["0", "0", "", ""]);
}

#[test]
fn one_sample_has_no_deviation() {
    let latency = import_milliseconds("1\n").cases.remove(0).figures.times.latency_ns.unwrap();
    assert_eq!((latency.count, latency.standard_deviation), (1, None));
}
