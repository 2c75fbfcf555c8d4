//! Forward and reverse delay with the linkgauge protocol, on the virtual clock.

use std::time::Duration;

use linkgauge::Registry;
use linkgauge::link::ptp::PtpClock;
use linkgauge::link::shaped::{Shape, SharedPath};
use linkgauge::link::time_of_day::TimeOfDay;
use linkgauge::protocol::ServerConfig;
use linkgauge::run::{BoundSource, CaseResult, WarningCode};

use crate::virtual_net::VirtualNet;

fn session(case: &str) -> CaseResult {
    let text =
        format!("[[case]]\nprotocol = \"linkgauge\"\nprotocol_options = {{ one-way = \"1\" }}\n{case}");
    let run = VirtualNet::serving("linkgauge").run(&text);
    assert!(run.is_complete(), "{:?}", run.cases[0].warnings);
    run.cases.into_iter().next().unwrap()
}

#[test]
fn both_delays_are_known_over_streams_and_messages() {
    for url in ["mem://far?delay=5ms", "mem://far-messages?type=message&delay=5ms"] {
        for size in [24, 32, 1400] {
            let case =
                session(&format!("url = \"{url}\"\nworkload = \"latency\"\ncount = 200\nsize = {size}"));
            let ways = case.figures.one_way.unwrap();
            assert_eq!((ways.forward_p50_ns, ways.reverse_p50_ns), (5e6, 5e6), "{url}");
            assert_eq!((ways.turnaround_ns.max, ways.path_ns.min), (0, 10_000_000));
            assert_eq!((ways.forward_variation_ns.max, ways.clock_offset_ns), (0, 0.0));
            assert!(
                (4e6..=5e6 + 1.0).contains(&ways.one_way_error_bound_ns),
                "{}",
                ways.one_way_error_bound_ns
            );
            assert_eq!(case.figures.byte_errors.corrupt_bytes, 0);
        }
    }
}

#[test]
fn several_requests_in_a_chunk_have_their_times() {
    // 100 requests per second over a line that carries one in 12 ms: they queue at the client's end.
    let case = session(
        "url = \"mem://far?rate=20kbit/s&delay=1ms\"\nworkload = \"latency\"\nrate = \"100/s\"\ncount = 100\nsize = 30\n\
         warm_up_count = 0",
    );
    let ways = case.figures.one_way.unwrap();
    assert_eq!(case.figures.counts.received, 100);
    assert!(ways.forward_variation_ns.max > 100_000_000 && ways.reverse_variation_ns.max < 15_000_000);
}

#[test]
fn the_direction_that_a_load_delays_is_known() {
    let link = "mem://far?rate=1Mbit/s&delay=20ms&buffer=64Ki&share=yes";
    for (direction, is_forward) in [("send", true), ("receive", false)] {
        let case = session(&format!(
            "url = \"{link}\"\nworkload = \"throughput\"\ndirection = \"{direction}\"\ntime = \"3s\"\nsize = 1000\n\
             probe = \"50/s\"\nidle = \"1s\""
        ));
        let added = case.figures.added_latency.unwrap();
        let [forward, reverse] = [added.added_forward_p50_ns, added.added_reverse_p50_ns].map(Option::unwrap);
        let (delayed, other) = if is_forward { (forward, reverse) } else { (reverse, forward) };
        assert!((delayed / added.added_p50_ns.unwrap() - 1.0).abs() < 1e-3, "{direction}: {added:?}");
        assert!(other < 1e5, "{direction}: {added:?}");
    }
}

/// 10 ms to the server and 30 ms back, between hosts that state this about their times of day. Their clocks agree.
fn with_stated_times(local: TimeOfDay, remote: TimeOfDay) -> CaseResult {
    let url = "mem://far-messages?type=message&share=yes";
    let config = ServerConfig { time_of_day: Some(remote), ..ServerConfig::default() };
    let mut net = VirtualNet::configured("linkgauge", config);
    let delays = [10, 30].map(|ms| Shape { delay: Duration::from_millis(ms), ..Shape::NONE });
    net.dialer.memory_network.share_paths(url, delays.map(|shape| SharedPath::new(shape, 1)));
    net.dialer.time_of_day = Some(local);
    let mut run = net.run(&format!(
        "[[case]]\nurl = \"{url}\"\nprotocol = \"linkgauge\"\nprotocol_options = {{ one-way = \"1\" }}\n\
         workload = \"latency\"\ncount = 10"
    ));
    assert!(run.is_complete(), "{:?}", run.cases[0].warnings);
    run.cases.remove(0)
}

const STATED: TimeOfDay =
    TimeOfDay { offset_ns: 1_700_000_000_000_000_000, error_ns: Some(200_000), ptp: None };

#[test]
fn hosts_with_common_time_know_the_asymmetry() {
    let ptp = Some(PtpClock { number: 0, distance_ns: 400 });
    let remote = TimeOfDay { offset_ns: STATED.offset_ns + 250_000, error_ns: Some(100_000), ptp };
    let case = with_stated_times(STATED, remote);
    let ways = case.figures.one_way.as_ref().unwrap();
    assert_eq!(ways.bound_source, BoundSource::CommonTime);
    // Some hundred milliseconds after the statement.
    assert!((300e3..1.5e6).contains(&ways.one_way_error_bound_ns), "{ways:?}");
    for (delay, expected) in [(ways.forward_p50_ns, 10e6), (ways.reverse_p50_ns, 30e6)] {
        assert!((delay - expected).abs() <= ways.one_way_error_bound_ns, "{ways:?}");
    }
    for (name, value) in [
        ("clock_error_ns", "200000"),
        ("clock_synchronised_by", "\"adjtimex\""),
        ("server_clock_error_ns", "100000"),
        ("server_clock_synchronised_by", "\"ptp0\""),
    ] {
        assert_eq!(case.effective[name].to_string(), value, "{name}");
    }
}

#[test]
fn without_common_time_the_round_trips_decide() {
    let free = TimeOfDay { error_ns: None, ..STATED };
    for (local, remote, is_contradicted) in [
        (STATED, free, false),
        (free, STATED, false),
        // Not worth more than the round trips, and wrong by more than 10 ms.
        (STATED, TimeOfDay { error_ns: Some(50_000_000), ..STATED }, false),
        (STATED, TimeOfDay { offset_ns: STATED.offset_ns - 15_000_000, ..STATED }, true),
    ] {
        let case = with_stated_times(local, remote);
        let ways = case.figures.one_way.as_ref().unwrap();
        assert_eq!(ways.bound_source, BoundSource::RoundTrips, "{local:?} {remote:?}");
        assert!((ways.one_way_error_bound_ns / 20e6 - 1.0).abs() < 0.01, "{ways:?}");
        let warned = case.warnings.iter().any(|warning| warning.code == WarningCode::ClocksDisagree);
        assert_eq!((ways.clock_disagreement_ns.is_some(), warned), (is_contradicted, is_contradicted));
    }
}

#[test]
fn a_message_without_room_for_the_times_is_refused() {
    let text = "[[case]]\nurl = \"mem://far\"\nprotocol = \"linkgauge\"\nworkload = \"latency\"\nsize = 23\n\
                protocol_options = { one-way = \"1\" }";
    let plan = linkgauge::plan::Plan::from_toml(text).unwrap();
    let error = linkgauge::schedule::check(plan, Registry::standard()).unwrap_err().to_string();
    assert!(error.contains("use a --size of 24"), "{error}");
}
