//! Probes that a client of `linkgauge monitor` asks for, with clients and targets that misbehave.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

use rustix::process::Signal;

use crate::memory::status_kib;
use crate::program::{Running, Serving, run, wait_until};

/// A monitor of this file, and the address of its pages.
fn monitor(file: &std::path::Path) -> (Running, String) {
    let file = file.display().to_string();
    let mut monitor = Running::start(&["monitor", &file, "--listen", "127.0.0.1:0", "--no-store"]);
    let mut messages = BufReader::new(monitor.0.stderr.take().unwrap());
    let mut first = String::new();
    messages.read_line(&mut first).unwrap();
    let address = first.trim().strip_prefix("metrics: http://").expect("it prints where the metrics are");
    std::thread::spawn(move || messages.read_to_string(&mut String::new()));
    (monitor, address.strip_suffix("/metrics").unwrap().to_owned())
}

/// A connection on which a probe was asked for, with the seconds that its client waits.
fn ask(address: &str, query: &str, limit: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!("Host: {address}\r\nX-Prometheus-Scrape-Timeout-Seconds: {limit}");
    let _ = write!(stream, "GET /probe?{query} HTTP/1.1\r\n{head}\r\n\r\n");
    stream
}

fn probe(address: &str, query: &str, limit: &str) -> String {
    let mut response = String::new();
    ask(address, query, limit).read_to_string(&mut response).unwrap();
    response
}

/// A server that accepts connections and never says anything.
fn silent_server() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap().to_string();
    (listener, target)
}

const FILE: &str = "[probe]\nallow = [\"127.0.0.1\"]\nconcurrent = 2\n[module.tcp]\nscheme = \"tcp\"\nprotocol = \"echo\"\ntimeout = \"1h\"\n";

#[test]
fn a_probe_has_its_result_and_its_sums() {
    let place = tempfile::tempdir().unwrap();
    let serving = Serving::start(&[]);
    let file = place.path().join("probe.toml");
    std::fs::write(&file, "[probe]\nallow = [\"127.0.0.1\"]\n[module.tcp]\nscheme = \"tcp\"\ncount = 3\n")
        .unwrap();
    let (monitor, address) = monitor(&file);
    let query = format!("module=tcp&target={}", serving.tcp.as_str().replace("://", "%3A%2F%2F"));
    for sum in [3, 6] {
        let response = probe(&address, &query, "30");
        assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
        for line in [
            "probe_success 1".to_owned(),
            "probe_ip_protocol 4".to_owned(),
            format!("linkgauge_probe_requests_total{{result=\"replied\"}} {sum}"),
            format!("linkgauge_probe_latency_seconds_count {sum}"),
        ] {
            assert!(response.lines().any(|found| found == line), "{line}\n{response}");
        }
        assert!(response.contains("linkgauge_probe_phase_seconds{phase=\"open\"} "), "{response}");
    }
    // Another file, without this module.
    std::fs::write(&file, FILE.replace("module.tcp", "module.other")).unwrap();
    monitor.signal(Signal::HUP);
    wait_until("the other file", || probe(&address, &query, "30").starts_with("HTTP/1.1 400 ").then_some(()));
    let refused = probe(&address, "module=other&target=127.0.0.2", "30");
    assert!(
        refused.starts_with("HTTP/1.1 403 ") && refused.contains("not in 'allow' of [probe]"),
        "{refused}"
    );
}

#[test]
fn a_probe_ends_before_its_client_and_leaves_its_place() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("probe.toml");
    std::fs::write(&file, FILE).unwrap();
    let (_monitor, address) = monitor(&file);
    let (_silent, target) = silent_server();
    let query = format!("target={target}&debug=true");
    // Its own timeout is an hour.
    let ended = probe(&address, &query, "0.4");
    for line in ["probe_success 0", "linkgauge_probe_failure{kind=\"deadline\"} 1", "success: false"] {
        assert!(ended.lines().any(|found| found == line), "{line}\n{ended}");
    }
    // Two at a time. Those whose clients have left are over.
    let waiting = [(); 2].map(|()| ask(&address, &query, "1000"));
    wait_until("a full monitor", || {
        probe(&address, &query, "0.2").starts_with("HTTP/1.1 503 ").then_some(())
    });
    drop(waiting);
    wait_until("a free place", || probe(&address, &query, "0.2").starts_with("HTTP/1.1 200 ").then_some(()));
}

#[test]
fn hostile_requests_probe_nothing_and_cost_little() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("probe.toml");
    std::fs::write(&file, FILE).unwrap();
    let (monitor, address) = monitor(&file);
    let process = monitor.0.id().to_string();
    let memory = status_kib(&process, "VmRSS");
    let mut random = fastrand::Rng::with_seed(11);
    let alphabet: Vec<char> = "%0aAfF&=?#@:/.[]*+127localhostmdulegtpic\u{e9}".chars().collect();
    for _ in 0..1_000 {
        let text: String = (0..random.usize(0..60)).map(|_| random.choice(&alphabet).unwrap()).collect();
        let response = probe(&address, &format!("module=tcp&target=x{text}"), "0.1");
        assert!(!response.contains("probe_success"), "{text}: {response}");
    }
    let long = "1".repeat(7_000);
    for query in [format!("target={long}"), format!("module={long}&target=127.0.0.1"), format!("{long}=1")] {
        // With the header its head is too long.
        for limit in ["1", &long] {
            let mut response = Vec::new();
            let _ = ask(&address, &query, limit).read_to_end(&mut response);
            let refused = response.is_empty() || response.starts_with(b"HTTP/1.1 4");
            assert!(refused, "{}", String::from_utf8_lossy(&response));
        }
    }
    // Thousands of ports without a server: sums of a limited number of targets.
    for port in 1..3_000 {
        let response = probe(&address, &format!("target=127.0.0.1:{}", 60_000 + port % 5_000), "0.2");
        assert!(response.contains("probe_success") || response.contains(" 503 "), "{response}");
    }
    let at_end = status_kib(&process, "VmRSS");
    assert!(at_end < memory + 64_000, "{memory} KiB before, {at_end} KiB");
}

#[test]
fn files_with_impossible_modules_are_refused() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("probe.toml");
    for (text, why) in [
        ("[module.a]\nscheme = \"tcp\"", "line 1: module: modules need the targets they may probe"),
        ("[probe]\nallow = [\"*\"]", "line 1: probe: a probe needs a module"),
        (
            "[probe]\nallow = [\"192.0.2.*\"]\n[module.a]\nscheme = \"tcp\"",
            "line 2: probe.allow: '192.0.2.*' names no targets",
        ),
        ("[probe]\nallow = []\n[module.a]\ncount = 1", "line 3: module.a: "),
        ("[probe]\nallow = []\n[module.a]\nscheme = \"morse\"", "unknown scheme 'morse'"),
        (
            "[probe]\nallow = []\n[module.a]\nscheme = \"tcp\"\nurl = \"tcp://a\"",
            "its target is in the request",
        ),
        (
            "[probe]\nallow = []\n[module.a]\nscheme = \"tcp\"\nworkload = \"throughput\"",
            "measures latency or connect",
        ),
        ("[probe]\nallow = []\n[module.a]\nscheme = \"tcp\"\ncount = 100000", "1 to 10000 requests"),
        ("[probe]\nallow = []\n[module.a]\nscheme = \"tcp\"\nsize = [1, 2]", "measures one combination"),
        ("[probe]\nallow = []\n[module.a]\nscheme = \"tcp\"\ncolour = 1", "line 5: unknown field `colour`"),
        (
            "[probe]\nallow = []\nconcurrent = 0\n[module.a]\nscheme = \"tcp\"",
            "line 3: probe.concurrent: 0 probes",
        ),
    ] {
        std::fs::write(&file, text).unwrap();
        let ended = run(&["monitor", &file.display().to_string(), "--check"]);
        assert!(ended.status == Some(2) && ended.stderr.contains(why), "{text}: {}", ended.stderr);
    }
}
