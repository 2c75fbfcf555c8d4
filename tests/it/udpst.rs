//! `udpst` with both ends ours on the virtual clock: the rate of a link, signatures, limits.

use linkgauge::protocol::{ServerConfig, ServerLimits};
use linkgauge::run::Run;

use super::program::run;
use super::virtual_net::VirtualNet;

/// A search over a link with 48 Mbit/s of payload; `more` is added to the case.
fn searched(config: ServerConfig, direction: &str, more: &str) -> Run {
    VirtualNet::configured("udpst", config).run(&format!(
        "[[case]]\nurl = \"mem://far-messages?type=message&rate=48Mbit/s&delay=5ms&buffer=256Ki\"\nprotocol = \"udpst\"\n\
         workload = \"capacity\"\ndirection = \"{direction}\"\ntime = \"8s\"\n{more}"
    ))
}

fn trusting() -> ServerConfig {
    ServerConfig { trusts_senders: true, ..ServerConfig::default() }
}

#[test]
fn the_search_finds_the_rate_of_the_link() {
    for (direction, algorithm) in [("send", "B"), ("receive", "B"), ("send", "C"), ("receive", "C")] {
        let more = format!("protocol_options = {{ algorithm = \"{algorithm}\" }}");
        let run = searched(trusting(), direction, &more);
        let case = &run.cases[0];
        assert!(run.is_complete(), "{:?}", case.warnings);
        // The headers of IP and UDP are not on this link; datagrams of the slowest rows are smaller than others.
        let expected = 48e6 * 1250.0 / 1222.0;
        let capacity = case.figures.delivery.capacity_bps.unwrap();
        assert!((capacity / expected - 1.0).abs() < 0.01, "{direction} {algorithm}: {capacity}");
        let average = case.figures.delivery.throughput_bps.unwrap();
        assert!(average > 0.7 * 48e6 && average <= 48.1e6, "{direction} {algorithm}: {average}");
        assert_eq!(case.figures.counts.corrupt_messages, 0, "{direction} {algorithm}");
        assert_eq!(case.method, format!("udpst/20 {algorithm}"));
        assert_eq!(case.effective["algorithm"], algorithm);
    }
}

#[test]
fn connections_share_the_link() {
    for direction in ["send", "receive"] {
        let run = searched(trusting(), direction, "parallel = 3");
        let case = &run.cases[0];
        assert!(run.is_complete(), "{:?}", case.warnings);
        // Each connection has a link of its own here.
        let capacity = case.figures.delivery.capacity_bps.unwrap();
        assert!((capacity / (3.0 * 48e6 * 1250.0 / 1222.0) - 1.0).abs() < 0.02, "{direction}: {capacity}");
    }
}

#[test]
fn a_download_needs_trust() {
    let run = searched(ServerConfig::default(), "receive", "");
    let text = &run.cases[0].failures[0].message;
    assert!(text.contains("refuses a download"), "{text}");
    // What the client sends itself needs none.
    assert!(searched(ServerConfig::default(), "send", "").is_complete());
}

#[test]
fn a_server_does_not_exceed_its_limits() {
    let limits = ServerLimits { duration_s: 5, bit_rate: Some(20e6), ..ServerLimits::default() };
    let run = searched(ServerConfig { limits, ..trusting() }, "receive", "");
    let case = &run.cases[0];
    let capacity = case.figures.delivery.capacity_bps.unwrap();
    assert!(capacity > 17e6 && capacity < 20.5e6, "{capacity}");
    assert!(
        case.warnings.iter().any(|warning| warning.text.contains("tests of 5.000 s")),
        "{:?}",
        case.warnings
    );
}

#[test]
fn settings_without_a_meaning_are_refused() {
    for (case, why) in [
        ("url = \"mem://far\"", "needs messages"),
        ("url = \"mem://far-messages?type=message\"\nparallel = 25", "at most 24 connections"),
        ("url = \"mem://far-messages?type=message\"\nsize = 1000", "leave out --size"),
        ("url = \"mem://far-messages?type=message\"\ntime = \"2h\"", "at most 3600 s"),
        (
            "url = \"mem://far-messages?type=message\"\nprotocol_options = { algorithm = \"A\" }",
            "neither B nor C",
        ),
        (
            "url = \"mem://far-messages?type=message\"\nprotocol_options = { key-id = \"256\" }",
            "from 0 to 255",
        ),
    ] {
        let text = format!("[[case]]\nworkload = \"capacity\"\nprotocol = \"udpst\"\n{case}");
        let plan = linkgauge::plan::Plan::from_toml(&text).unwrap();
        let error =
            linkgauge::schedule::check(plan, linkgauge::Registry::standard()).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn a_throughput_is_the_search_of_this_protocol() {
    // Nothing listens there, so the case was accepted.
    let ended = run(&["throughput", "udpst://127.0.0.1:1", "--timeout", "1s", "--quiet"]);
    assert!(ended.stderr.contains("udp://127.0.0.1:1: connection refused"), "{}", ended.stderr);
}
