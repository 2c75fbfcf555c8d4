//! The server among clients of every kind: idle, many, vanished, greedy, mad.

use std::io::{Read, Write};
use std::net::UdpSocket;
use std::sync::Arc;
use std::time::{Duration, Instant};

use linkgauge::Registry;
use linkgauge::clock::Clock;
use linkgauge::endpoint::Endpoint;
use linkgauge::host::raise_open_file_limit;
use linkgauge::lab::uart::{self, LabUarts};
use linkgauge::plan::{Plan, StopCondition};
use linkgauge::protocol::linkgauge::wire::{self, FlowKind, Hello, SessionReply, SessionRequest};
use linkgauge::protocol::{ServerConfig, ServerLimits};
use linkgauge::run::Run;
use linkgauge::schedule::{self, RunContext};
use linkgauge::serve::Server;
use rustix::process::Signal;

use crate::memory::status_kib;
use crate::program::{PATIENCE, Running, Serving, wait_for_progress, wait_until};
use crate::raw_client::{RawClient, RawDatagrams, address, connect, plan};

/// A server in this process, on TCP and UDP.
pub fn serve(limits: ServerLimits, token: Option<&str>) -> Server {
    let facts =
        ServerConfig { limits, token: token.map(str::to_owned), secret: [9; 32], ..ServerConfig::default() };
    let service = Registry::standard().protocol("linkgauge").unwrap().serve.unwrap()(&Arc::new(facts));
    let urls = ["tcp://127.0.0.1:0", "udp://127.0.0.1:0"].map(|url| url.parse().unwrap());
    Server::start(&urls, &service, &limits, &Registry::standard().dialer(Clock::System)).unwrap()
}

/// Runs one case against an endpoint.
pub fn measure(endpoint: &Endpoint, case: &str, token: Option<&str>) -> Run {
    let plan = Plan::from_toml(&format!("[[case]]\nurl = \"{endpoint}\"\n{case}")).unwrap();
    let mut bench = RunContext::new(Registry::standard().dialer(Clock::System), &());
    bench.token = token.map(str::to_owned);
    schedule::run(&schedule::check(plan, Registry::standard()).unwrap(), &mut bench)
}

/// Why a run failed.
pub fn failure(run: &Run) -> String {
    assert!(!run.is_complete());
    let incomplete =
        |warning: &&linkgauge::run::Warning| warning.code == linkgauge::run::WarningCode::Incomplete;
    run.cases[0].warnings.iter().find(incomplete).expect("it names the reason").text.clone()
}

const LATENCY: &str = "workload = \"latency\"\ncount = 200\nwarm_up_count = 0\ntimeout = \"10s\"";

fn works(endpoint: &Endpoint) {
    let run = measure(endpoint, LATENCY, None);
    assert!(run.is_complete(), "{:?}", run.cases[0].warnings);
    assert_eq!(run.cases[0].figures.counts.received, 200);
}

#[test]
#[ignore = "long"]
fn ten_thousand_idle_sessions_leave_room_for_a_hundred_that_work_at_once() {
    raise_open_file_limit();
    let server = Serving::start(&[]);
    let idle: Vec<_> = (0..10_000).map(|_| RawClient::open(&server.tcp).expect("a session")).collect();
    let resident = status_kib(&server.pid(), "VmRSS");
    std::thread::scope(|scope| {
        for number in 0..100 {
            let endpoint = [&server.tcp, &server.udp][number % 2];
            scope.spawn(move || works(endpoint));
        }
    });
    assert_eq!(idle.len(), 10_000);
    println!("{resident} KiB resident with ten thousand idle sessions");
    assert!(resident < 200 * 1024, "{resident} KiB");
}

/// Bytes of a client that is none.
fn garbage(random: &mut fastrand::Rng) -> Vec<u8> {
    let mut noise = |length: usize| (0..length).map(|_| random.u8(..)).collect::<Vec<u8>>();
    let frame = |json: &[u8], length: u32| {
        let mut bytes = wire::FRAME_MAGIC.to_vec();
        bytes.extend(length.to_be_bytes());
        bytes.extend(1u32.to_be_bytes());
        bytes.extend(json);
        bytes
    };
    let short = noise(24);
    let long = noise(3000);
    match random.u32(..10) {
        0 => long,
        1 => wire::HELLO_MAGIC[..random.usize(1..8)].to_vec(),
        2 => [&wire::HELLO_MAGIC[..], &short[..random.usize(..24)]].concat(),
        3 => frame(b"", u32::MAX),
        4 => [&wire::ATTACH_MAGIC[..], &short[..]].concat(),
        5 => frame(b"{\"request\":\"fly\"}", 17),
        6 => frame(&vec![b'['; 4000], 4000),
        7 => [Hello::new().bytes(), &frame(b"{\"request\":\"start\"}", 19)].concat(),
        8 => frame(&long, 1 << 20),
        _ => Vec::new(),
    }
}

/// More of it by hand: `LINKGAUGE_TEST_GARBAGE=10000 cargo test --release --test it -- garbage_on --nocapture`.
#[test]
fn garbage_on_connections_is_survived_in_bounded_memory() {
    let connections =
        std::env::var("LINKGAUGE_TEST_GARBAGE").map_or(2000, |number| number.parse::<u32>().unwrap());
    let server = Serving::start(&["--idle", "5s"]);
    works(&server.tcp);
    let before = status_kib(&server.pid(), "VmRSS");
    let mut random = fastrand::Rng::with_seed(1);
    let mut open = std::collections::VecDeque::new();
    for _ in 0..connections {
        let mut stream = connect(&server.tcp);
        // The server may close before the client has sent everything.
        let _ = stream.write_all(&garbage(&mut random));
        // Some stay and some go.
        open.push_back(stream);
        if open.len() > 200 {
            open.pop_front();
        }
    }
    let during = status_kib(&server.pid(), "VmRSS");
    works(&server.tcp);
    drop(open);
    works(&server.tcp);
    let after = status_kib(&server.pid(), "VmRSS");
    println!("{connections} connections of garbage: {before} KiB before, {during} during, {after} after");
    assert!(during.max(after) < before + 64 * 1024, "{before} {during} {after}");
}

#[test]
fn garbage_in_datagrams_never_gets_a_longer_reply() {
    let server = serve(ServerLimits::default(), None);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(address(&server.endpoints()[1])).unwrap();
    let mut room = vec![0; 65_536];
    let mut reply = |request: &[u8], wait: u64| {
        socket.set_read_timeout(Some(Duration::from_millis(wait))).unwrap();
        socket.send(request).unwrap();
        let length = socket.recv(&mut room).ok();
        if let Some(length) = length {
            assert!(length <= request.len(), "{} bytes got {length}", request.len());
        }
        length
    };
    assert_eq!(reply(Hello::new().bytes(), 5000), Some(wire::HANDSHAKE_BYTES));
    // A challenge that this server never gave, whatever comes with it.
    let open = SessionRequest::Open {
        version: wire::VERSION,
        tool: "test".to_owned(),
        nonce: "00".repeat(24),
        challenge: "00".repeat(16),
        proof: None,
    };
    assert_eq!(reply(&wire::encode_frame(1, &open), 200), None);
    assert_eq!(reply(&[&wire::ATTACH_MAGIC[..], &[0; 24]].concat(), 200), None);
    let mut random = fastrand::Rng::with_seed(2);
    for size in 0..2000 {
        let mut noise: Vec<u8> = (0..size).map(|_| random.u8(..)).collect();
        for magic in [&b""[..], wire::HELLO_MAGIC, wire::FRAME_MAGIC, wire::ATTACH_MAGIC] {
            if size >= magic.len() && (size.is_multiple_of(50) || magic.is_empty()) {
                noise[..magic.len()].copy_from_slice(magic);
                reply(&noise, 20);
            }
        }
    }
    works(&server.endpoints()[1]);
}

#[test]
fn a_client_that_vanishes_frees_its_session() {
    let server = serve(ServerLimits { sessions: 1, ..ServerLimits::default() }, None);
    let tcp = &server.endpoints()[0];
    let first = RawClient::open(tcp).expect("the only session");
    assert!(RawClient::open(tcp).is_none());
    let run = measure(tcp, LATENCY, None);
    assert!(failure(&run).contains("its limit of 1 sessions is reached"), "{}", failure(&run));
    drop(first);
    drop(wait_until("a free session", || RawClient::open(tcp)));
}

#[test]
fn a_client_killed_in_the_middle_frees_its_session() {
    let directory = tempfile::tempdir().unwrap();
    for direction in ["send", "receive"] {
        let server = Serving::start(&["--max-sessions", "1"]);
        let url = server.tcp.as_str();
        let events = directory.path().join(direction);
        let events_path = events.to_str().unwrap();
        let arguments =
            ["throughput", url, "--direction", direction, "--time", "60s", "--interval", "100ms", "--quiet"];
        let mut client = Running::start(&[&arguments[..], &["--events", events_path]].concat());
        wait_for_progress(&events);
        assert!(RawClient::open(&server.tcp).is_none(), "the session is taken");
        client.0.kill().unwrap();
        client.wait();
        drop(wait_until("a free session", || RawClient::open(&server.tcp)));
    }
}

#[test]
fn a_client_that_never_reads_is_closed_after_the_idle_time() {
    let server = serve(ServerLimits { idle_s: 2, ..ServerLimits::default() }, None);
    let mut client = RawClient::open(&server.endpoints()[0]).unwrap();
    // Of unlimited length, and with a timeout that never ends.
    let wanted = plan(&[FlowKind::Send], 100_000, StopCondition::default());
    assert!(matches!(client.ask(&SessionRequest::Plan(wanted)).unwrap(), SessionReply::Planned { .. }));
    let stream = client.attach(0);
    assert_eq!(client.ask(&SessionRequest::Start).unwrap(), SessionReply::Started);
    // The control connection must not be idle, or it would end all.
    let began = Instant::now();
    std::thread::sleep(Duration::from_millis(3000));
    let SessionReply::Report(report) = client.ask(&SessionRequest::Finish).unwrap() else {
        panic!("no report")
    };
    assert_eq!(report.flows[0].fault.as_deref(), Some("no data moved for longer than this server waits"));
    assert!(report.flows[0].bytes > 0);
    assert!(began.elapsed() < PATIENCE);
    drop(stream);
}

#[test]
fn exceeded_limits_are_one_line() {
    let limits = ServerLimits { duration_s: 2, message_bytes: 1000, flows: 2, ..ServerLimits::default() };
    let server = serve(limits, None);
    for endpoint in server.endpoints() {
        for (case, reason) in [
            (
                "workload = \"throughput\"\ntime = \"10s\"\nsize = 1000",
                "the measurement takes too long: its limit is 2 s",
            ),
            (
                "workload = \"latency\"\ntime = \"2s\"\nwarm_up_time = \"1s\"",
                "the measurement takes too long: its limit is 2 s",
            ),
            ("workload = \"latency\"\nsize = 1001", "messages of 1001 bytes: its limit is 1000"),
            ("workload = \"latency\"\nparallel = 3", "3 connections are too many, its limit is 2"),
            (
                "workload = \"latency\"\ntime = \"1s\"\npin = [0, 900]",
                "it may not run on CPU 900: choose another CPU for the server (--pin)",
            ),
        ] {
            let run = measure(endpoint, case, None);
            let expected = format!("not measured as planned: {endpoint}: the server refused: {reason}");
            assert_eq!(failure(&run), expected);
        }
    }
}

/// Each of these plans of a few hundred bytes would take gigabytes.
#[test]
fn a_plan_that_takes_too_much_memory_is_refused_before_anything_is_allocated() {
    let server = serve(ServerLimits::default(), None);
    let [tcp, udp] = [0, 1].map(|index| &server.endpoints()[index]);
    for kind in [FlowKind::CapacityReceive, FlowKind::CapacitySend] {
        let mut client = RawClient::open(tcp).expect("a session");
        let wanted = plan(&[kind; 4], 1 << 30, StopCondition::default());
        let SessionReply::Refused { reason } = client.ask(&SessionRequest::Plan(wanted)).unwrap() else {
            panic!("{kind:?} is planned")
        };
        assert_eq!(reason, "a capacity search needs messages, and this link is a stream: use udp://");
        let mut client = RawDatagrams::open(udp);
        let reply = client.ask(&SessionRequest::Plan(plan(&[kind; 300], 65_507, StopCondition::default())));
        let SessionReply::Refused { reason } = reply else { panic!("{kind:?} is planned") };
        let expected = "and one session may use 268.4 MB: use fewer connections or smaller messages, or a larger --max-memory";
        assert!(reason.starts_with("its flows need ") && reason.contains(expected), "{reason}");
    }
    // Many sessions, each within its own part.
    let plans = |_| {
        let mut client = RawDatagrams::open(udp);
        let wanted = plan(&[FlowKind::CapacitySend; 100], 65_507, StopCondition::default());
        (client.ask(&SessionRequest::Plan(wanted)), client)
    };
    let asked: Vec<_> = (0..8).map(plans).collect();
    let planned = asked.iter().filter(|(reply, _)| matches!(reply, SessionReply::Planned { .. })).count();
    assert_eq!(planned, 4, "{:?}", asked.last().map(|(reply, _)| reply));
    works(tcp);
}

#[test]
fn a_message_too_large_for_the_link_is_refused_by_the_server_too() {
    let server = serve(ServerLimits::default(), None);
    let udp = &server.endpoints()[1];
    let mut client = RawDatagrams::open(udp);
    let reply =
        client.ask(&SessionRequest::Plan(plan(&[FlowKind::Send; 2], 1 << 30, StopCondition::default())));
    let SessionReply::Refused { reason } = reply else { panic!("{reply:?}") };
    assert_eq!(reason, "messages of 1073741824 bytes are too large for the link: use at most 65507");
}

#[test]
#[ignore = "long"]
fn a_rate_limit_holds_for_sent_and_received_data() {
    let server = serve(ServerLimits { bit_rate: Some(8e6), duration_s: 3, ..ServerLimits::default() }, None);
    let tcp = &server.endpoints()[0];
    for direction in ["send", "receive", "both"] {
        let case = format!(
            "workload = \"throughput\"\ndirection = \"{direction}\"\ntime = \"1s\"\nsize = 1000\nprobe = false"
        );
        let run = measure(tcp, &case, None);
        assert!(run.is_complete(), "{:?}", run.cases[0].warnings);
        let figures = &run.cases[0].figures;
        let rate =
            figures.delivery.throughput_bps.unwrap() + figures.delivery.throughput_reverse_bps.unwrap_or(0.0);
        assert!(rate < 9.6e6 && rate > 1e6, "{direction} {rate}");
    }
    // One that does not care has to wait.
    let mut client = RawClient::open(tcp).unwrap();
    client.ask(&SessionRequest::Plan(plan(&[FlowKind::Receive], 1000, StopCondition::default()))).unwrap();
    let mut stream = client.attach(0);
    client.ask(&SessionRequest::Start).unwrap();
    let block = vec![0; 65_536];
    let mut written = 0;
    while let Ok(length) = stream.write(&block) {
        written += length;
        assert!(written < 1 << 30, "no limit stops it");
    }
    // Three megabytes, and the contents of the buffers of both ends.
    assert!(written < 24 << 20, "{written} bytes");
    let SessionReply::Report(report) = client.ask(&SessionRequest::Finish).unwrap() else {
        panic!("no report")
    };
    assert_eq!(report.flows[0].fault.as_deref(), Some("longer than this server allows"));
    // The echo for unknown clients does not bypass the limit.
    let mut stream = connect(tcp);
    stream.set_nonblocking(true).unwrap();
    let (mut back, mut room) = (0, vec![0; 65_536]);
    let began = Instant::now();
    loop {
        assert!(began.elapsed() < PATIENCE, "{back} bytes came back");
        let written = stream.write(&block);
        match stream.read(&mut room) {
            Ok(0) => break,
            Ok(length) => back += length,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                if written.is_err() {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            Err(_) => break,
        }
    }
}

#[test]
fn an_unlimited_flow_ends_at_the_limit_of_the_server() {
    let server = serve(ServerLimits { duration_s: 1, ..ServerLimits::default() }, None);
    let tcp = &server.endpoints()[0];
    let run = measure(tcp, "workload = \"latency\"\ncount = 1000000000\nwarm_up_count = 0", None);
    assert_eq!(
        failure(&run),
        format!("not measured as planned: {tcp}: the server ended it: longer than this server allows")
    );
    assert!(run.cases[0].figures.counts.received > 0, "the results so far are kept");
}

#[test]
fn only_a_token_opens_a_session() {
    let server = serve(ServerLimits::default(), Some("secret"));
    for endpoint in server.endpoints() {
        assert!(measure(endpoint, LATENCY, Some("secret")).is_complete());
        for (token, reason) in [
            (Some("guess"), "the token is wrong: use that of the server (--token-file)"),
            (None, "it requires a token: use --token-file"),
        ] {
            let run = measure(endpoint, LATENCY, token);
            let expected = format!("not measured as planned: {endpoint}: the server refused: {reason}");
            assert_eq!(failure(&run), expected);
        }
    }
    // Nor does it echo.
    let mut stream = connect(&server.endpoints()[0]);
    stream.write_all(b"who is there?").unwrap();
    let mut reply = Vec::new();
    let _ = stream.read_to_end(&mut reply);
    assert!(reply.is_empty());
}

#[test]
fn a_client_of_another_version_gets_the_reason() {
    let server = serve(ServerLimits::default(), None);
    let (_, reply) = RawClient::greet(&server.endpoints()[0], 1).unwrap();
    let reason = "it uses session version 2, the client uses 1: use the same version of linkgauge".to_owned();
    assert_eq!(reply, SessionReply::Refused { reason });
}

/// Starts a client with its document and events in files, then kills its server or signals the client itself during
/// the measurement; returns its status and its document.
pub fn in_the_middle(
    arguments: &[&str],
    act: impl FnOnce(&mut Running),
) -> (crate::program::Ended, serde_json::Value) {
    let directory = tempfile::tempdir().unwrap();
    let (json, events) = (directory.path().join("run.json"), directory.path().join("events"));
    let files =
        ["--json", json.to_str().unwrap(), "--events", events.to_str().unwrap(), "--interval", "100ms"];
    let mut client = Running::start(&[arguments, &files].concat());
    wait_for_progress(&events);
    act(&mut client);
    let ended = client.ended();
    let document: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    let schema: serde_json::Value = serde_json::from_str(include_str!("../../schema/run.v1.json")).unwrap();
    if let Err(error) = jsonschema::validate(&schema, &document) {
        panic!("{error}\n{document:#}");
    }
    (ended, document)
}

#[test]
fn a_killed_server_leaves_the_results_so_far() {
    for (workload, flags) in [
        ("latency", &["--count", "100M"][..]),
        ("throughput", &["--time", "60s", "--direction", "send"][..]),
        ("throughput", &["--time", "60s", "--direction", "receive"][..]),
    ] {
        let mut server = Serving::start(&[]);
        let url = server.tcp.to_string();
        let (ended, document) =
            in_the_middle(&[&[workload, &url], flags].concat(), |_| server.process.0.kill().unwrap());
        assert_eq!(ended.status, Some(2), "{}", ended.stderr);
        let lines: Vec<&str> = ended.stderr.lines().filter(|line| line.starts_with("error")).collect();
        assert_eq!(
            lines,
            [format!(
                "error: {url}: the remote closed the link: check whether the server or device still runs, and its log"
            )],
            "{}",
            ended.stderr
        );
        let case = &document["cases"][0];
        assert_eq!(case["complete"], false);
        assert_eq!(document.get("interrupted"), None);
        assert!(case["received"].as_u64().unwrap() > 0, "{case}");
        assert_eq!(case["warnings"][0]["code"], "incomplete");
        if flags.contains(&"send") {
            // Only the server knows what its program received, and it was killed. Its system acknowledged this much.
            assert!(case["throughput_bps"].as_f64().unwrap() > 0.0, "{case}");
            let unconfirmed = &case["warnings"][1];
            assert_eq!(unconfirmed["code"], "unconfirmed");
            assert!(unconfirmed["text"].as_str().unwrap().contains("acknowledged"), "{unconfirmed}");
        }
        assert!(!ended.stderr.contains("panicked"));
    }
}

#[test]
#[ignore = "long"]
fn a_stopped_server_ends_a_transfer_and_leaves_what_it_acknowledged() {
    let server = Serving::start(&[]);
    let flags = ["throughput", server.tcp.as_str(), "--time", "60s", "--timeout", "1s"];
    let (ended, document) = in_the_middle(&flags, |_| server.process.signal(Signal::STOP));
    assert_eq!(ended.status, Some(2), "{}", ended.stderr);
    let case = &document["cases"][0];
    assert!(case["throughput_bps"].as_f64().unwrap() > 0.0, "{case}");
    assert_eq!(case["warnings"][1]["code"], "unconfirmed");
}

#[test]
fn ctrl_c_reports_the_results_so_far() {
    let server = Serving::start(&[]);
    let plug = LabUarts::start(&uart::UartOptions::default()).unwrap();
    let slow = format!("serial://{}?baud=1200", plug.paths()[0].display());
    for (workload, url, flags) in [
        ("latency", server.tcp.as_str(), ["--count", "100M"]),
        ("throughput", server.tcp.as_str(), ["--time", "60s"]),
        // Data in the buffers of a slow link is not lost.
        ("throughput", &slow, ["--time", "60s"]),
    ] {
        let arguments = [&[workload, url], &flags[..]].concat();
        let (ended, document) = in_the_middle(&arguments, |client| client.signal(Signal::INT));
        assert_eq!(ended.status, Some(130), "{}", ended.stderr);
        assert_eq!(document["interrupted"], true);
        let case = &document["cases"][0];
        assert_eq!((&case["complete"], &case["lost"]), (&false.into(), &0.into()));
        assert!(case["received"].as_u64().unwrap() > 0);
        assert!(!ended.stdout.is_empty(), "the report of the results so far");
    }
}

#[test]
fn ctrl_c_ends_a_server_at_once() {
    let mut server = Serving::start(&[]);
    let _idle = RawClient::open(&server.tcp).unwrap();
    let began = Instant::now();
    server.process.signal(Signal::INT);
    let status = server.process.wait();
    assert_eq!(status.code(), Some(0));
    assert!(began.elapsed() < Duration::from_secs(5));
}
