//! Forward and reverse delay with the linkgauge protocol, on the virtual clock.

use linkgauge::run::CaseResult;

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

#[test]
fn a_message_without_room_for_the_times_is_refused() {
    let text = "[[case]]\nurl = \"mem://far\"\nprotocol = \"linkgauge\"\nworkload = \"latency\"\nsize = 23\n\
                protocol_options = { one-way = \"1\" }";
    let plan = linkgauge::plan::Plan::from_toml(text).unwrap();
    let error = linkgauge::schedule::check(plan).unwrap_err().to_string();
    assert!(error.contains("use a --size of 24"), "{error}");
}
