//! Marks in the IP headers of received datagrams: what both ends of a linkgauge session read.

use linkgauge::Registry;
use linkgauge::clock::Clock;
use linkgauge::lab::shaper::{Shaper, ShaperOptions};
use linkgauge::link::shaped::Shape;
use linkgauge::protocol::{ServerConfig, ServerLimits};
use linkgauge::serve::Server;
use serde_json::{Value, json};

use crate::program::run;

/// A server of this protocol in this process.
pub fn serve(protocol: &str, url: &str) -> Server {
    let config = ServerConfig { secret: [9; 32], ..ServerConfig::default() };
    let service =
        Registry::standard().protocol(protocol).unwrap().serve.unwrap()(&std::sync::Arc::new(config));
    let dialer = Registry::standard().dialer(Clock::System);
    Server::start(&[url.parse().unwrap()], &service, &ServerLimits::DEFAULT, &dialer).unwrap()
}

/// The only case of a measurement with these arguments after the URL.
pub fn case(command: &str, url: &str, arguments: &[&str]) -> Value {
    let ended = run(&[&[command, url, "-q", "--json", "-"], arguments].concat());
    let document: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{}", ended.stderr));
    document["cases"][0].clone()
}

fn marks(case: &Value) -> [Option<u64>; 6] {
    let names = ["ce", "ecn_changed", "dscp_changed"];
    let names = names.map(|name| [format!("forward_{name}"), format!("reverse_{name}")]).concat();
    let counts: Vec<Option<u64>> = names.iter().map(|name| case[name].as_u64()).collect();
    counts.try_into().unwrap()
}

const LATENCY: [&str; 6] = ["-n", "50", "--warm-up", "0", "--repeat", "1"];

#[test]
fn both_ends_count_the_marks_that_arrive() {
    for host in ["127.0.0.1", "[::1]"] {
        let server = serve("linkgauge", &format!("udp://{host}:0"));
        let url = server.endpoints()[0].to_string();
        let plain = case("latency", &url, &LATENCY);
        assert_eq!(marks(&plain), [None; 6], "nothing was requested");
        let kept = case("latency", &format!("{url}?dscp=EF&ecn=ect0"), &LATENCY);
        assert_eq!(marks(&kept), [Some(0); 6], "{host}");
        // The sender marks in place of a congested router.
        let marked = case("latency", &format!("{url}?dscp=EF&ecn=ce"), &LATENCY);
        let [forward, reverse, rest @ ..] = marks(&marked);
        assert!(forward >= Some(50) && reverse >= Some(50), "{host}: {forward:?} {reverse:?}");
        assert_eq!(rest, [Some(0); 4]);
        let in_series = marked["series"].as_array().unwrap().iter().filter_map(|entry| entry["ce"].as_u64());
        assert_eq!(in_series.sum::<u64>(), 50);
    }
}

#[test]
fn a_transfer_has_its_marks_on_the_time_axis() {
    let server = serve("linkgauge", "udp://127.0.0.1:0");
    let url = format!("{}?ecn=ce", server.endpoints()[0]);
    for (direction, gso, end) in
        [("upload", "0", 0), ("upload", "1", 0), ("download", "0", 1), ("download", "1", 1)]
    {
        let url = format!("{url}&gso={gso}&gro={gso}");
        let arguments =
            ["-d", direction, "--bit-rate", "20M", "--time", "0.5s", "--size", "1000", "--idle", "off"];
        let case = case("throughput", &url, &[&arguments[..], &["--repeat", "1", "--warm-up", "0"]].concat());
        let received = case["received"].as_u64().unwrap();
        let counted = marks(&case)[end].unwrap_or_else(|| panic!("{case:#}"));
        assert!(received > 100 && counted >= received, "{direction} {gso}: {counted} of {received}");
        let in_series = case["series"].as_array().unwrap().iter().filter_map(|entry| entry["ce"].as_u64());
        assert_eq!(in_series.sum::<u64>(), received, "{direction} {gso}");
    }
}

#[test]
fn a_relay_that_resets_the_class_is_named() {
    let server = serve("linkgauge", "udp://127.0.0.1:0");
    let options = ShaperOptions {
        listen: "udp://127.0.0.1:0".parse().unwrap(),
        to: server.endpoints()[0].clone(),
        up: Shape::NONE,
        down: Shape::NONE,
        seed: 1,
        log: None,
    };
    // The relay sends datagrams of its own, without a class.
    let relay = Shaper::start(&options, &Registry::standard().dialer(Clock::System)).unwrap();
    let case = case("latency", &format!("{}?dscp=EF&ecn=ect1", relay.endpoint()), &LATENCY);
    let [forward_ce, reverse_ce, changed @ ..] = marks(&case);
    assert_eq!((forward_ce, reverse_ce), (Some(0), Some(0)));
    assert!(changed.iter().all(|count| *count >= Some(50)), "{changed:?}");
    let warnings = case["warnings"].as_array().unwrap();
    let warning = warnings.iter().find(|warning| warning["code"] == json!("marks_changed"));
    let text = warning.unwrap_or_else(|| panic!("{warnings:#?}"))["text"].as_str().unwrap();
    assert!(text.starts_with("the path changed the DSCP of 5") && text.contains("from the server"), "{text}");
}
