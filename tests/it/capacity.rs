//! The capacity search on the virtual clock, over links with a known rate.

use crate::virtual_net::VirtualNet;
use linkgauge::Registry;

#[test]
fn the_search_finds_the_rate_of_the_link() {
    for direction in ["send", "receive"] {
        // 48 Mbit/s of payload and a queue of 256 KiB, which is 44 ms: above the rate the delay rises and stops the search.
        let run = VirtualNet::serving("linkgauge").run(&format!(
            "[[case]]\nurl = \"mem://far-messages?type=message&rate=48Mbit/s&delay=5ms&buffer=256Ki\"\nprotocol = \"linkgauge\"\n\
             workload = \"capacity\"\ndirection = \"{direction}\"\ntime = \"10s\"\nidle = \"2s\""
        ));
        let case = &run.cases[0];
        assert!(run.is_complete(), "{:?}", case.warnings);
        // The headers of IP and UDP are not on this link.
        let expected = 48e6 * 1250.0 / 1222.0;
        let capacity = case.figures.delivery.capacity_bps.unwrap();
        assert!((capacity / expected - 1.0).abs() < 0.02, "{direction}: {capacity}");
        let average = case.figures.delivery.throughput_bps.unwrap();
        assert!(average > 0.7 * 48e6 && average <= 48.1e6, "{direction}: {average}");
        assert_eq!(
            case.figures.counts.corrupt_messages, 0,
            "{direction}: the server sends until the client ends"
        );
        assert_eq!(case.method, "9097/B own");
    }
}

#[test]
fn settings_without_a_meaning_are_refused() {
    for (case, why) in [
        ("url = \"mem://far\"", "needs messages"),
        ("url = \"mem://far-messages?type=message\"\nparallel = 2", "one connection"),
        ("url = \"mem://far-messages?type=message\"\nsize = 20", "use a --size of 64"),
        ("url = \"mem://far-messages?type=message\"\ncount = 5", "ends after --time"),
    ] {
        let text = format!("[[case]]\nworkload = \"capacity\"\nprotocol = \"linkgauge\"\n{case}");
        let plan = linkgauge::plan::Plan::from_toml(&text).unwrap();
        let error = linkgauge::schedule::check(plan, Registry::standard()).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}
