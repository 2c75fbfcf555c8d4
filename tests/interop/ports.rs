//! Every protocol at its documented ports: with client and server on one host, on two hosts, and from a chosen address and port.

use std::io::{BufRead, BufReader, Read};
use std::panic::resume_unwind;
use std::process::Command;

use linkgauge::Registry;
use linkgauge::protocol::Protocol;
use serde_json::Value;

use crate::program::{Ended, PATIENCE, Running, run_within};
use crate::two_hosts::{ADDRESSES, TwoHosts};

/// A server at the default ports of a protocol, and the URLs that it names.
fn serve(hosts: &TwoHosts, protocol: &Protocol, address: &str) -> (Running, Vec<String>) {
    let urls: Vec<String> = match protocol.name {
        // A TCP listener on the port of a UDP listener serves only datagrams.
        "netio" => [format!("tcp://{address}"), format!("tcp://{address}:18768"), format!("udp://{address}")]
            .to_vec(),
        // The client needs a stream, because nothing counts the datagrams.
        "discard" => [format!("tcp://{address}")].to_vec(),
        "stamp" | "twamp-light" | "irtt" => [format!("udp://{address}")].to_vec(),
        _ => ["tcp", "udp"].map(|scheme| format!("{scheme}://{address}")).to_vec(),
    };
    let urls_and_flags: Vec<&str> = urls.iter().map(String::as_str).chain(["--max-time", "1s"]).collect();
    let arguments = [&["serve", "--protocol", protocol.name][..], &urls_and_flags].concat();
    let mut process = Running(hosts.linkgauge(0, &arguments).spawn().unwrap());
    let lines: Vec<String> = BufReader::new(process.0.stdout.take().unwrap())
        .lines()
        .take(urls.len())
        .map(|line| line.unwrap().rsplit_once(" on ").unwrap().1.to_owned())
        .collect();
    if lines.len() < urls.len() {
        let mut errors = String::new();
        let _ = process.0.stderr.take().unwrap().read_to_string(&mut errors);
        panic!("{}: {errors}", protocol.name);
    }
    (process, lines)
}

/// A short measurement with what the protocol supports first.
fn measure(command: &mut Command, protocol: &Protocol, url: &str) {
    command.args(["--protocol", protocol.name, "--timeout", "2s", "--quiet", "--json", "-"]);
    let Ended { status, stdout, stderr } = run_within(PATIENCE, command);
    assert_eq!(status, Some(0), "{} {url}: {stderr}", protocol.name);
    let run: Value = serde_json::from_str(&stdout).unwrap();
    for case in run["cases"].as_array().unwrap() {
        let moved = ["received", "delivered_bytes"].iter().filter_map(|name| case[name].as_u64()).max();
        assert!(moved.is_some_and(|moved| moved > 0), "{} {url}: {case:#}", protocol.name);
    }
}

fn try_url(hosts: &TwoHosts, host: usize, protocol: &Protocol, url: &str) {
    // chargen replies to datagrams only.
    let is_stream = url.starts_with("tcp");
    let has_latency = match protocol.name {
        "chargen" => !is_stream,
        "iperf2" => is_stream,
        name => Registry::standard().protocols_with("latency").any(|known| known.name == name),
    };
    let flags: &[&str] = match (has_latency, !is_stream) {
        (true, _) => &["latency", url, "-n", "3", "--repeat", "1", "--warm-up", "0"],
        (false, true) => &["throughput", url, "--time", "200ms", "--bit-rate", "1M", "--size", "1024"],
        (false, false) => &["throughput", url, "--time", "200ms", "--size", "1024"],
    };
    measure(&mut hosts.linkgauge(host, flags), protocol, url);
    // A port of the client is in use for a minute after its TCP connection.
    if protocol.name == "netio" && !url.ends_with(":18767") {
        measure(hosts.linkgauge(host, flags).args(["--direction", "receive"]), protocol, url);
    }
}

/// Whether one measurement has several connections, which cannot share a port of the client.
fn has_several_connections(protocol: &Protocol, url: &str) -> bool {
    protocol.name == "linkgauge" || protocol.name == "iperf3" && url.starts_with("tcp")
}

/// Echo and chargen reply to everything, so a datagram from the port of such a server could go back and forth for ever.
fn replies_to_replies(protocol: &Protocol, url: &str) -> bool {
    matches!(protocol.name, "echo" | "chargen") && url.starts_with("udp")
}

fn try_protocol(protocol: &Protocol) {
    let hosts = TwoHosts::new();
    for (server, client, host) in [("127.0.0.1", "127.0.0.2", 0), (ADDRESSES[0], ADDRESSES[1], 1)] {
        let (_server, urls) = serve(&hosts, protocol, server);
        for url in &urls {
            // A stream beside datagrams serves only those.
            let is_beside = url.ends_with(":18768") || protocol.name == "twamp";
            if is_beside && url.starts_with("tcp") {
                continue;
            }
            let port = url.rsplit_once(':').unwrap().1;
            let is_netio_datagrams = protocol.name == "netio" && url.starts_with("udp");
            if host == 1 || !is_netio_datagrams {
                try_url(&hosts, host, protocol, url);
            }
            try_url(&hosts, host, protocol, &format!("{url}?bind={client}"));
            if !has_several_connections(protocol, url) && !replies_to_replies(protocol, url) {
                try_url(&hosts, host, protocol, &format!("{url}?bind={client}:{port}"));
            }
        }
    }
}

/// All that are served over TCP or UDP. A test of udpst has 5 s at least, so `tests/it/udpst.rs` has it.
fn served() -> impl Iterator<Item = &'static Protocol> {
    let is_served = |protocol: &&Protocol| {
        protocol.serve.is_some()
            && protocol.name != "udpst"
            && protocol.default_ports.iter().any(|(scheme, _)| matches!(*scheme, "tcp" | "udp"))
            || matches!(protocol.name, "linkgauge")
    };
    Registry::standard().protocols.iter().filter(is_served)
}

#[test]
fn every_protocol_works_at_its_documented_ports() {
    let names: Vec<_> = served().map(|protocol| protocol.name).collect();
    assert_eq!(
        names,
        [
            "linkgauge",
            "echo",
            "discard",
            "chargen",
            "stamp",
            "twamp-light",
            "twamp",
            "irtt",
            "sockperf",
            "iperf3",
            "iperf2",
            "netio",
            "device"
        ]
    );
    std::thread::scope(|scope| {
        let threads: Vec<_> = served().map(|protocol| scope.spawn(|| try_protocol(protocol))).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
    });
}
