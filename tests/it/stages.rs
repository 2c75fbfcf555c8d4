//! Stages of round trips, from stamps of the kernels on loopback.

use linkgauge::Registry;
use serde_json::Value;

use crate::marks::{case, serve};

const LATENCY: [&str; 7] = ["--stamps", "-n", "300", "--warm-up", "100", "--repeat", "1"];

const LOCAL: [&str; 3] = ["local_send_ns", "local_queue_ns", "local_receive_ns"];
const REMOTE: [&str; 5] =
    ["network_ns", "remote_receive_ns", "remote_program_ns", "remote_send_ns", "remote_queue_ns"];

/// The mean of a stage, which all stamped round trips have.
fn mean(case: &Value, stage: &str) -> f64 {
    let stages = &case["stages"];
    assert_eq!(stages[stage]["count"], stages["stamped"], "{stage}");
    stages[stage]["mean"].as_f64().unwrap()
}

fn has_warning(case: &Value, code: &str) -> bool {
    case["warnings"].as_array().unwrap().iter().any(|warning| warning["code"] == code)
}

#[test]
#[ignore = "long"]
fn the_stages_of_both_ends_add_up_to_the_round_trip() {
    for (url, sizes) in [("udp://127.0.0.1:0", ["64", "1000"]), ("tcp://127.0.0.1:0", ["44", "8000"])] {
        let server = serve("linkgauge", url);
        let url = server.endpoints()[0].to_string();
        for size in sizes {
            let case = case("latency", &url, &[&LATENCY[..], &["--size", size]].concat());
            let stamped = case["stages"]["stamped"].as_u64().unwrap();
            assert!(stamped >= 285 && !has_warning(&case, "unstamped"), "{url}: {:#}", case["stages"]);
            assert_eq!(case["method"], "latency/1 closed stamps");
            assert!(case["stages"]["cost_ns"].is_number(), "{:#}", case["stages"]);
            assert!(case["stages"]["sum_error_ns"]["p50"].as_u64() <= Some(2_000), "{:#}", case["stages"]);
            let sum = |names: &[&str]| names.iter().map(|name| mean(&case, name)).sum::<f64>();
            // A stage that is negative by rounding counts as 0.
            assert!((sum(&["beyond_ns"]) - sum(&REMOTE)).abs() < 1_000.0, "{url}");
            let all = sum(&LOCAL) + sum(&REMOTE);
            let limits = &case["latency_ns"];
            assert!(
                all >= limits["min"].as_f64().unwrap() && all <= limits["max"].as_f64().unwrap(),
                "{url}: {all} {limits:#}"
            );
            for stage in ["local_send_ns", "local_receive_ns", "remote_receive_ns", "remote_send_ns"] {
                assert!(mean(&case, stage) > 0.0, "{url} {stage}");
            }
        }
    }
}

#[test]
#[ignore = "long"]
fn a_message_of_several_frames_has_the_stamps_of_its_last_one() {
    let directory = tempfile::tempdir().unwrap();
    let transport = linkgauge::Registry::standard()
        .transports
        .0
        .iter()
        .find(|transport| transport.scheme == "linx+eth")
        .unwrap();
    let url = &(transport.loopback_urls)(directory.path().to_str().unwrap())[0];
    let _server = serve("linkgauge", url);
    for (size, connections) in [("64", 1), ("20000", 1), ("64", 4)] {
        let connections_flag = connections.to_string();
        let flags = [&LATENCY[..], &["--size", size, "--parallel", &connections_flag]].concat();
        let case = case("latency", url, &flags);
        let stages = &case["stages"];
        // All but the last of each connection.
        let count = 300 * connections;
        assert_eq!(stages["stamped"].as_u64(), Some(count - connections), "{size}: {stages:#}");
        assert_eq!(stages["unstamped"].as_u64(), Some(connections), "{size}");
        assert!(stages["sum_error_ns"]["p50"].as_u64() <= Some(2_000), "{size}: {stages:#}");
        // What the stages lack of the sum of all round trips is those without stages.
        let latency = |name: &str| case["latency_ns"][name].as_f64().unwrap();
        let sum_ns: f64 = LOCAL.iter().chain(&REMOTE).map(|name| mean(&case, name)).sum();
        let rest_ns = latency("mean") * count as f64 - sum_ns * (count - connections) as f64;
        let rounding_ns = (1.0 + mean(&case, "sum_error_ns")) * count as f64;
        let unstamped = latency("min") * connections as f64 - rounding_ns
            ..=latency("max") * connections as f64 + rounding_ns;
        assert!(unstamped.contains(&rest_ns), "{size}: {rest_ns} {:#}", case["latency_ns"]);
        assert!(stages["cost_ns"].is_number(), "{stages:#}");
    }
}

#[test]
#[ignore = "long"]
fn a_schedule_has_stages_as_well() {
    for url in ["udp://127.0.0.1:0", "tcp://127.0.0.1:0"] {
        let server = serve("linkgauge", url);
        let url = server.endpoints()[0].to_string();
        let case = case("latency", &url, &[&LATENCY[..], &["--rate", "500/s"]].concat());
        // On a busy host several requests are in flight, and TCP joins them.
        assert!(case["stages"]["stamped"].as_u64() >= Some(100), "{url}: {:#}", case["stages"]);
        assert!(case["stages"]["sum_error_ns"]["p50"].as_u64() <= Some(2_000), "{url}: {:#}", case["stages"]);
    }
}

#[test]
fn another_protocol_has_the_stages_of_this_host() {
    for url in ["udp://127.0.0.1:0", "tcp://127.0.0.1:0"] {
        let server = serve("echo", url);
        let url = server.endpoints()[0].to_string();
        let case = case("latency", &url, &[&LATENCY[..], &["--protocol", "echo"]].concat());
        // On a busy host some stamps come too late.
        let count = |name: &str| case["stages"][name].as_u64().unwrap();
        assert!(
            count("stamped") >= 150 && count("stamped") + count("unstamped") == 300,
            "{url}: {:#}",
            case["stages"]
        );
        let all: f64 = LOCAL.iter().chain(&["beyond_ns"]).map(|name| mean(&case, name)).sum();
        assert!(all >= case["latency_ns"]["min"].as_f64().unwrap(), "{url}");
        assert_eq!(case["stages"]["network_ns"], Value::Null);
        assert_eq!(case["method"], "latency/1 closed stamps");
    }
}

#[test]
fn a_link_without_stamps_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve("linkgauge", &format!("unix://{}/socket", directory.path().display()));
    let case = case("latency", &server.endpoints()[0].to_string(), &LATENCY);
    assert_eq!((&case["received"], &case["stages"]), (&300.into(), &Value::Null));
    assert!(has_warning(&case, "unstamped"), "{:#}", case["warnings"]);
}

#[test]
fn stamps_that_no_case_can_have_are_refused() {
    let refusal = |case: &str| {
        let text = format!("[[case]]\nurl = \"127.0.0.1\"\nprotocol = \"linkgauge\"\nstamps = true\n{case}");
        let plan = linkgauge::plan::Plan::from_toml(&text).unwrap();
        linkgauge::schedule::check(plan, Registry::standard()).unwrap_err().to_string()
    };
    let small = refusal("workload = \"latency\"\nsize = 43");
    assert!(small.contains("use a --size of 44"), "{small}");
    let load = refusal("workload = \"throughput\"");
    assert!(load.contains("stamps belong to round trips"), "{load}");
    let many = refusal("workload = \"latency\"\nparallel = 9");
    assert!(many.contains("use at most 8 connections"), "{many}");
}
