//! The evidence of a run: what both systems counted, in real time.

use linkgauge::Registry;
use linkgauge::clock::Clock;
use linkgauge::lab::trouble::{Faults, TroubleOptions, TroubledServer};
use serde_json::Value;

use crate::program::{Serving, run};

/// The only case of a measurement with these arguments.
fn case(arguments: &[&str]) -> Value {
    let ended = run(&[arguments, &["-q", "--json", "-"]].concat());
    let document: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{}", ended.stderr));
    document["cases"][0].clone()
}

fn number(evidence: &Value, path: &str) -> u64 {
    evidence.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("no {path} in {evidence:#}"))
}

#[test]
fn both_ends_report_what_their_systems_counted() {
    let server = Serving::start(&[]);
    let url = server.tcp.to_string();
    let case =
        case(&["latency", &url, "--protocol", "linkgauge", "--repeat", "10", "-n", "50", "--size", "100"]);
    let [client, server] = ["client", "server"].map(|end| &case["evidence"][end]);
    for end in [client, server] {
        assert_eq!(number(end, "/connections/count"), 10, "one for each repetition");
        assert!(number(end, "/connections/counters/tcp_sent_bytes") >= 50_000);
        assert!(number(end, "/connections/counters/tcp_received_bytes") >= 50_000);
        assert!(number(end, "/connections/gauges/tcp_rtt_ns/median") > 0);
        // A thread that blocks for each reply gives its CPU away.
        assert!(number(end, "/threads/thread_voluntary_switches") > 0);
        assert!(end["threads"]["thread_run_queue_wait_ns"].is_u64(), "{end:#}");
        assert!(number(end, "/host/Tcp.OutSegs") >= 1000);
        assert!(number(end, "/observed_ns") > 0);
    }
    assert!(client["connections"]["series"].as_array().is_some_and(|series| series.len() >= 10));
    assert_eq!(server["connections"]["series"], Value::Null);
}

#[test]
fn the_server_reads_its_connections_while_it_receives() {
    let server = Serving::start(&[]);
    let url = server.tcp.to_string();
    let case = case(&["throughput", &url, "--protocol", "linkgauge", "--time", "2s", "--repeat", "1"]);
    // About ten readings a second; a busy host may give fewer.
    let unread = "/evidence/server/connections/gauges/socket_unread_bytes/readings";
    assert!(number(&case, unread) >= 5, "{:#}", case["evidence"]["server"]["connections"]);
}

#[test]
fn socket_options_of_the_server_take_effect() {
    let server = Serving::start(&[]);
    let url = server.tcp.to_string();
    let buffer = |options: &[&str]| {
        let arguments = ["latency", &url, "--protocol", "linkgauge", "-n", "50"];
        let case = case(&[&arguments, options].concat());
        number(&case, "/evidence/server/connections/gauges/socket_receive_buffer_bytes/max")
    };
    // The kernel doubles the size.
    assert_eq!(buffer(&["--server-socket", "rcvbuf=32Ki"]), 65_536);
    assert!(buffer(&[]) > 65_536);
}

#[test]
fn a_datagram_socket_has_no_counters_of_tcp() {
    let server = Serving::start(&[]);
    let case = case(&["latency", &server.udp.to_string(), "--protocol", "echo", "-n", "50"]);
    assert_eq!(case["evidence"]["server"], Value::Null, "an echo reports nothing");
    let connections = &case["evidence"]["client"]["connections"];
    assert_eq!(number(connections, "/counters/socket_drops"), 0);
    let names =
        [&connections["counters"], &connections["gauges"]].map(|group| group.as_object().unwrap().keys());
    assert!(names.into_iter().flatten().all(|name| !name.starts_with("tcp_")), "{connections:#}");
}

#[test]
fn delayed_acknowledgements_are_counted() {
    let faults = Faults { split_write_bytes: Some(10), ..Faults::default() };
    let listen = vec!["tcp://127.0.0.1:0?nodelay=0".parse().unwrap()];
    let options = TroubleOptions { listen, faults, ..TroubleOptions::default() };
    let server = TroubledServer::start(&options, Registry::standard().dialer(Clock::System)).unwrap();
    let url = server.endpoints()[0].to_string();
    let case = case(&["latency", &url, "--protocol", "echo", "--size", "100", "-n", "30"]);
    let delayed = number(&case, "/evidence/client/host/TcpExt.DelayedACKs");
    assert!(delayed >= 25, "{delayed}");
}
