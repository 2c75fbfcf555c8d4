//! Files of irtt 0.9.0, over a relay that loses, copies and delays packets of its choice.

use serde_json::Value;

use crate::import::tests::{import_bytes, import_options, warning_codes};
use linkgauge_model::run::{BoundSource, CaseResult, OneWayFigures};

const LOSS: &str = include_str!("loss.json");
const DUPLICATES: &str = include_str!("duplicates.json");
const HMAC: &str = include_str!("hmac.json");
const ONE_WAY: &str = include_str!("one-way.json");
const MIDPOINT: &str = include_str!("midpoint.json");

fn case_of(text: &str) -> CaseResult {
    let mut run = import_bytes("irtt", text.as_bytes(), &import_options()).unwrap();
    assert_eq!(warning_codes(&run.warnings), ["imported"]);
    assert!(run.warnings[0].text.contains("was measured by irtt 0.9.0"), "{:?}", run.warnings);
    assert_eq!(run.started.to_string()[..10], *"2026-11-27");
    run.cases.remove(0)
}

fn ways(case: &CaseResult) -> &OneWayFigures {
    case.figures.one_way.as_ref().unwrap()
}

/// The smallest and largest time of a statistic, and its mean.
fn stat(text: &str, name: &str) -> (u64, u64, f64) {
    let document: Value = serde_json::from_str(text).unwrap();
    let times = &document["stats"][name];
    let number = |name: &str| times[name].as_u64().unwrap();
    (number("min"), number("max"), number("mean") as f64)
}

#[test]
fn losses_have_their_direction() {
    let case = case_of(LOSS);
    let counts = &case.figures.counts;
    assert_eq!((counts.sent, counts.received, counts.lost), (8, 5, 3));
    assert_eq!((ways(&case).forward_lost, ways(&case).reverse_lost), (Some(2), Some(1)));
    assert_eq!((case.protocol.as_str(), case.message_bytes), ("irtt", 60));
    assert_eq!(case.endpoint, "udp://127.0.0.1:21161");
    assert_eq!(case.method, "latency/imported/irtt");
    assert_eq!(case.series.iter().filter_map(|entry| entry.messages).sum::<u64>(), 5);
}

#[test]
fn figures_are_those_of_irtt() {
    for text in [LOSS, DUPLICATES, HMAC] {
        let case = case_of(text);
        let ways = ways(&case);
        let (least, most, mean) = stat(text, "rtt");
        assert_eq!(
            (ways.path_ns.min, ways.path_ns.max),
            (least, most),
            "irtt leaves out the time of the server"
        );
        assert!((ways.path_ns.mean - mean).abs() <= 1.0);
        let (least, most, _) = stat(text, "server_processing_time");
        assert_eq!((ways.turnaround_ns.min, ways.turnaround_ns.max), (least, most));
        let latency = case.figures.times.latency_ns.as_ref().unwrap();
        assert!(latency.min > ways.path_ns.min, "the whole round trip");
        assert_eq!(ways.bound_source, BoundSource::RoundTrips);
    }
}

#[test]
fn copies_and_late_packets_count_once() {
    let case = case_of(DUPLICATES);
    let counts = &case.figures.counts;
    assert_eq!((counts.sent, counts.received, counts.lost), (7, 7, 0));
    assert_eq!((counts.duplicate, counts.reordered), (1, 1));
    assert_eq!(ways(&case).forward_lost, Some(0));
    let case = case_of(HMAC);
    assert_eq!((case.figures.counts.lost, case.message_bytes), (1, 200));
    assert_eq!((ways(&case).forward_lost, ways(&case).reverse_lost), (Some(0), Some(1)));
}

#[test]
fn one_way_delays_need_both_stamps() {
    // Both ends of the file have one clock, so each delay of irtt is true.
    let case = case_of(ONE_WAY);
    let ways = ways(&case);
    let (send, receive) = (stat(ONE_WAY, "send_delay"), stat(ONE_WAY, "receive_delay"));
    for (p50, (least, most, _)) in [(ways.forward_p50_ns, send), (ways.reverse_p50_ns, receive)] {
        let bound = ways.one_way_error_bound_ns;
        assert!(p50 >= least as f64 - bound && p50 <= most as f64 + bound, "{ways:?}");
    }
    // irtt reads the time of day for each packet, the import once.
    assert!(ways.forward_variation_ns.max.abs_diff(send.1 - send.0) < 1_000, "{ways:?}");
    let case = case_of(MIDPOINT);
    assert!(case.figures.one_way.is_none());
    assert_eq!((case.figures.counts.sent, case.figures.counts.lost), (5, 1));
    let (least, most, _) = stat(MIDPOINT, "rtt");
    let latency = case.figures.times.latency_ns.unwrap();
    assert_eq!((latency.min, latency.max), (least, most));
}

#[test]
fn a_file_that_contradicts_itself_has_no_losses() {
    let other = LOSS.replace("\"packets_sent\": 8", "\"packets_sent\": 9");
    let run = import_bytes("irtt", other.as_bytes(), &import_options()).unwrap();
    assert_eq!(warning_codes(&run.warnings), ["imported", "contradiction"]);
    let figures = &run.cases[0].figures;
    assert_eq!((figures.counts.known_lost(), figures.counts.received), (None, 5));
    assert_eq!(figures.one_way.as_ref().unwrap().forward_lost, None);
}

#[test]
fn other_files_are_refused() {
    let refusal = |text: &str| import_bytes("irtt", text.as_bytes(), &import_options()).unwrap_err();
    let backwards =
        LOSS.replacen("\"seqno\": 0", "\"seqno\": 7", 1).replacen("\"monotonic\": ", "\"monotonic\": -", 2);
    insta::assert_snapshot!(
        [refusal(""), refusal("1.5\n"), refusal("{}"), refusal("{\"round_trips\": []}"), refusal("{\"round_trips\": [{}]}")].join("\n"),
        @r"
    the file is empty or cut off: import the whole file that irtt client -o FILE wrote after its end
    not a result of irtt client -o FILE: invalid type: floating point `1.5`, expected an object at line 2 column 0
    not a result of irtt client -o FILE: it contains no round trips
    not a result of irtt client -o FILE: it contains no round trips
    not a result of irtt client -o FILE: missing field `seqno` at line 1 column 19
    "
    );
    let never = LOSS.replacen("\"monotonic\": ", "\"monotonic\": 9000000000000000000, \"other\": ", 1);
    for (text, number) in [(&backwards, 7), (&never, 0)] {
        let complaint = format!("the times of round trip {number} are impossible");
        assert!(refusal(text).contains(&complaint), "{}", refusal(text));
    }
    assert!(refusal(&LOSS[..LOSS.len() / 2]).contains("empty or cut off"), "{}", refusal(&LOSS[..5000]));
}
