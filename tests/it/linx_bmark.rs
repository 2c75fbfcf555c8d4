//! linx_bmark in both roles, compared with captured traffic of a real client and a real server; and our own protocols
//! over the same links.

use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use linkgauge::Registry;
use linkgauge::clock::Clock;
use linkgauge::endpoint::Endpoint;
use linkgauge::link::Fault;
use linkgauge::protocol::{ServerConfig, ServerLimits};
use linkgauge::run::Run;
use linkgauge::serve::Server;

use super::linx::{CONNECT, INIT, INIT_REPLY, Node, PUBLISH_SERVER, hex};
use super::server::{failure, measure};
use crate::program::{PATIENCE, Running, run};

/// Frames of the benchmark's two nodes: true for those of the client's. Pings are left out.
fn captured() -> Vec<(bool, Vec<u8>)> {
    let text = include_str!("../../crates/engine/src/transport/linx/captured/tcp.txt");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let frames = lines.map(|line| (line.starts_with('<'), hex(&line[2..])));
    frames.filter(|(_, frame)| !b"PQ".contains(&frame[0])).collect()
}

const ECHO: [u8; 4] = [0, 0, 0x28, 0x73];

/// Without the padding after the feature string that real nodes send, and the length that counts it.
fn essence(frame: &[u8]) -> Vec<u8> {
    let reply = hex(INIT_REPLY);
    match frame[16..].starts_with(&reply[16..]) {
        true => reply,
        false => frame.to_vec(),
    }
}

fn serve(name: &str, url: &str) -> Server {
    let limits = ServerLimits::default();
    let facts = ServerConfig { limits, secret: [9; 32], ..ServerConfig::default() };
    let service = Registry::standard().protocol(name).unwrap().serve.unwrap()(&Arc::new(facts));
    Server::start(&[url.parse().unwrap()], &service, &limits, &Registry::standard().dialer(Clock::System))
        .unwrap()
}

#[test]
fn a_captured_client_gets_the_replies_of_a_real_server() {
    let server = serve("linx-bmark", "linx://127.0.0.1:0/server?as=linx_bmark_");
    let place = server.endpoints()[0].address().split('/').next().unwrap().to_owned();
    let mut node = Node::of(TcpStream::connect(place).unwrap());
    let frames = captured();
    // The real server's node had called, ours is called.
    node.write(&frames[1].1);
    assert_eq!(node.frame(), frames[0].1);
    let mut received = 0;
    for (of_client, frame) in &frames[2..] {
        if *of_client {
            node.write(frame);
        } else {
            assert_eq!(essence(&node.frame()), essence(frame), "after {received} frames");
            received += 1;
        }
    }
    assert!(received > 20);
}

#[test]
fn each_conn_est_of_a_client_gets_its_own_endpoint() {
    let server = serve("linx-bmark", "linx://127.0.0.1:0/server?as=linx_bmark_");
    let place = server.endpoints()[0].address().split('/').next().unwrap().to_owned();
    let mut node = Node::of(TcpStream::connect(place).unwrap());
    node.say(CONNECT);
    assert_eq!(node.frame(), hex(CONNECT));
    node.say(INIT);
    assert_eq!(node.frame(), hex(INIT));
    assert_eq!(node.frame(), hex(INIT_REPLY));
    node.say(INIT_REPLY);
    node.say("55030000 00000000 00000000 00000010 00000002 00000001 636c6965 6e740000");
    node.say("55030000 00000000 00000000 00000010 00000001 00000001 73657276 65720000");
    assert_eq!(node.frame(), hex(PUBLISH_SERVER));
    let conn_est = "55030000 00000001 00000001 00000010 00002870 00000001 00*8";
    // Address of the endpoint that replied.
    let met = |node: &mut Node| {
        node.say(conn_est);
        let (published, reply) = (node.frame(), node.frame());
        assert_eq!((&published[16..20], &reply[16..20]), (&hex("00000002")[..], &hex("00002870")[..]));
        assert_eq!(published[20..24], reply[4..8], "it replies from the published endpoint");
        reply[4..8].to_vec()
    };
    let first = met(&mut node);
    let second = met(&mut node);
    assert_ne!(first, second);
    // One goes as the attach test wants it, the other stays; then one more.
    node.write(&[&hex("55030000 00000001")[..], &first, &hex("00000004 00002874")].concat());
    assert_eq!(node.frame()[16..], [&hex("00000003")[..], &first].concat());
    node.write(&[&hex("55030000 00000001")[..], &second, &hex("00000006 00002873 abcd")].concat());
    assert_eq!(
        node.frame(),
        [&hex("55030000")[..], &second, &hex("00000001 00000006 00002873 abcd")].concat()
    );
    let third = met(&mut node);
    assert!(third != first && third != second, "the address is not free before it is acknowledged");
}

/// Plays the captured server for one client up to its end; returns the messages of the client.
fn play_server(node: &mut Node) -> Vec<Vec<u8>> {
    let mut signals = Vec::new();
    let mut frames = captured().into_iter().skip(2);
    node.say(CONNECT);
    // INIT of the server's node does not wait.
    for (of_client, frame) in frames.by_ref() {
        if of_client {
            if signals.is_empty() {
                assert_eq!(node.frame(), hex(CONNECT));
            }
            let received = node.frame();
            let is_last = received[16..] == hex("00000003 00000001");
            signals.push(received);
            if is_last {
                return signals;
            }
        } else if frame[16..].starts_with(&ECHO) {
            // The content is arbitrary.
            let mut echo = signals.last().cloned().unwrap();
            echo[4..12].rotate_left(4);
            node.write(&echo);
        } else {
            node.write(&frame);
        }
    }
    panic!("the captured client went on");
}

#[test]
fn a_captured_server_gets_the_requests_of_a_real_client() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint: Endpoint = format!("linx://{}/server", listener.local_addr().unwrap()).parse().unwrap();
    let server = thread::spawn(move || {
        let mut node = Node::of(listener.accept().unwrap().0);
        let signals = play_server(&mut node);
        node.is_closed();
        signals
    });
    let echoes =
        captured().iter().filter(|(client, frame)| *client && frame[16..].starts_with(&ECHO)).count();
    let case = format!(
        "workload = \"latency\"\nprotocol = \"linx-bmark\"\nsize = 64\ncount = {echoes}\nwarm_up_count = 0\ntimeout = \"10s\""
    );
    let run = measure(&endpoint, &case, None);
    assert!(run.is_complete(), "{:?}", run.cases[0].warnings);
    let real = captured().into_iter().filter(|(client, _)| *client).skip(1).map(|(_, frame)| frame);
    for (ours, real) in server.join().unwrap().iter().zip(real) {
        let shown = if real[16..].starts_with(&ECHO) { 20 } else { usize::MAX };
        let cut = |frame: &[u8]| essence(frame).into_iter().take(shown).collect::<Vec<u8>>();
        assert_eq!(cut(ours), cut(&real));
    }
}

fn complete(run: &Run) -> &linkgauge::run::Figures {
    assert!(run.is_complete(), "{:?}", run.cases[0].warnings);
    &run.cases[0].figures
}

#[test]
fn both_styles_of_burst_deliver_every_signal() {
    let server = serve("linx-bmark", "linx:///bmark-bursts");
    for style in ["new", "old"] {
        for size in [16, 64, 65_536] {
            let case = format!(
                "workload = \"throughput\"\nprotocol = \"linx-bmark\"\nsize = {size}\ncount = 400\ntimeout = \"10s\"\n\
                 protocol_options = {{ style = \"{style}\", burst = 100 }}"
            );
            let run = measure(&server.endpoints()[0], &case, None);
            let figures = complete(&run);
            assert_eq!(
                (figures.counts.sent, figures.counts.received, figures.counts.corrupt_messages),
                (400, 400, 0),
                "{style} {size}"
            );
            assert_eq!(figures.delivery.delivered_bytes, Some(400 * size));
        }
    }
}

#[test]
fn many_pairs_send_echoes_side_by_side() {
    let server = serve("linx-bmark", "linx://127.0.0.1:0/server");
    let case = "workload = \"throughput\"\ndirection = \"loop\"\nprotocol = \"linx-bmark\"\nsize = 2048\ncount = 50\nparallel = 32\n\
                timeout = \"10s\"";
    let run = measure(&server.endpoints()[0], case, None);
    let figures = complete(&run);
    assert_eq!((figures.counts.sent, figures.counts.received, figures.counts.lost), (32 * 50, 32 * 50, 0));
    assert_eq!((figures.counts.corrupt_messages, figures.byte_errors.corrupt_bytes), (0, 0));
    assert_eq!(figures.delivery.delivered_bytes, Some(32 * 50 * 2048));
    assert!(figures.delivery.throughput_bps.unwrap() > 0.0);
    assert!(run.cases[0].cpu.as_ref().unwrap().client_seconds > 0.0);
}

#[test]
fn our_protocols_work_over_shared_connections() {
    let server = serve("linkgauge", "linx://127.0.0.1:0/server");
    let endpoint = &server.endpoints()[0];
    let run = measure(
        endpoint,
        "workload = \"latency\"\ncount = 300\nparallel = 3\nsize = 100\ntimeout = \"10s\"",
        None,
    );
    assert_eq!((complete(&run).counts.received, run.cases[0].figures.counts.lost), (900, 0));
    for direction in ["send", "receive", "both"] {
        let case = format!(
            "workload = \"throughput\"\ndirection = \"{direction}\"\ncount = 20000\nsize = 64\nparallel = 2\ntimeout = \"10s\""
        );
        let run = measure(endpoint, &case, None);
        let both = if direction == "both" { 2 } else { 1 };
        assert_eq!(
            (complete(&run).counts.received, run.cases[0].figures.counts.lost),
            (both * 40_000, 0),
            "{direction}"
        );
    }
    let echo = serve("echo", "linx:///bmark-echo");
    let case = "workload = \"throughput\"\nprotocol = \"echo\"\ncount = 5000\nsize = 1000\ntimeout = \"10s\"";
    let run = measure(&echo.endpoints()[0], case, None);
    assert_eq!((complete(&run).counts.received, run.cases[0].figures.byte_errors.corrupt_bytes), (5000, 0));
}

/// The error of a run whose remote node sends this after 50 echoes and then leaves.
fn broken_by(words: &'static [&str]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint: Endpoint = format!("linx://{}/server", listener.local_addr().unwrap()).parse().unwrap();
    let server = thread::spawn(move || {
        let mut node = Node::of(listener.accept().unwrap().0);
        node.frame();
        for word in [CONNECT, INIT, INIT_REPLY, PUBLISH_SERVER] {
            node.say(word);
        }
        let mut echoes = 0;
        while echoes < 50 {
            let mut frame = node.frame();
            if frame[4..12] == [0; 8] {
                continue;
            }
            // An echo from the name itself.
            frame[4..12].rotate_left(4);
            node.write(&frame);
            echoes += 1;
        }
        words.iter().for_each(|word| node.say(word));
        // Its messages arrive before it leaves.
        let _ = words.is_empty() || node.is_closed();
    });
    let case = "workload = \"latency\"\nprotocol = \"echo\"\ncount = 1000\nwarm_up_count = 0\nsize = 64\ntimeout = \"5s\"";
    let run = measure(&endpoint, case, None);
    server.join().unwrap();
    assert_eq!(run.cases[0].figures.counts.received, 50);
    failure(&run).replace(&endpoint.to_string(), "URL")
}

#[test]
fn a_broken_link_ends_the_run_with_its_results_so_far() {
    insta::assert_snapshot!([
        broken_by(&[]),
        broken_by(&["55030000 00*11 08 00000003 00000001"]),
        broken_by(&["55030000 00*11 08 00000003 ffffffff"]),
        broken_by(&["55030000 00000001 00000001 00010001"]),
        broken_by(&[INIT]),
        broken_by(&[CONNECT]),
    ].join("\n"), @r"
    not measured as planned: URL: the remote closed the link: check whether the server or device still runs, and its log
    not measured as planned: URL: the remote closed the link: check whether the server or device still runs, and its log
    not measured as planned: URL: the remote node used an address above 1024
    not measured as planned: URL: a message is longer than LINX over TCP allows
    not measured as planned: URL: the remote node restarted its handshake
    not measured as planned: URL: the remote closed the link: check whether the server or device still runs, and its log
    ");
}

/// Two DSPs on Ethernet of 100 Mbit/s. A message of 4096 bytes has frames of 1538, 1546 and 1186 bytes; its first frame crosses
/// the line twice, and each message takes 18.9 µs.
#[test]
fn nodes_of_the_lab_are_no_faster_than_their_processors_and_line() {
    let flags = ["lab", "messages", "--like", "linx/oseck-oseck", "--listen", "linx://127.0.0.1:0/server"];
    let mut nodes = Running::start(&flags);
    let mut line = String::new();
    BufReader::new(nodes.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let endpoint: Endpoint =
        line.trim().rsplit_once(" on ").expect("it prints where it listens").1.parse().unwrap();
    let case = |what: &str| {
        let run = measure(
            &endpoint,
            &format!("protocol = \"linx-bmark\"\nsize = 4096\ntimeout = \"90s\"\n{what}"),
            None,
        );
        assert!(run.is_complete(), "{:?}", run.cases[0].warnings);
        run.cases[0].figures.clone()
    };
    let began = Instant::now();
    let line_ns = |bytes: u64| bytes * 80;
    let one_way = 18_900 + 2 * line_ns(1538) + line_ns(1546) + line_ns(1186);
    let latency = case("workload = \"latency\"\ncount = 20\nwarm_up_count = 0").times.latency_ns.unwrap();
    assert!(latency.min >= 2 * one_way && latency.count == 20, "{latency:?}");
    let burst = "workload = \"throughput\"\ndirection = \"receive\"\nprobe = false\nvolume = 409_600";
    let rate = case(burst).delivery.messages_per_second.unwrap();
    // The end of the node's endpoint passes the relay, so no case waits for its timeout.
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
    let most = 1e9 / line_ns(1538 + 1546 + 1186) as f64;
    assert!(rate <= 1.02 * most, "{rate} of {most}");
}

#[test]
fn nodes_of_the_lab_need_a_linx_endpoint() {
    let ended = run(&["lab", "messages", "--listen", "tcp://127.0.0.1:0"]);
    assert_eq!(ended.status, Some(2));
    let line = "error: tcp://127.0.0.1:0 is not a LINX endpoint. Use one like linx://127.0.0.1/server, or lab shaper for other links\n";
    assert_eq!(ended.stderr, line);
    let ended = run(&["lab", "messages", "--like", "sena/STS400"]);
    assert_eq!(ended.stderr, "error: sena/STS400 is not a pair of nodes: use lab device-server\n");
}

#[test]
fn a_receive_waits_for_its_time_and_not_twice() {
    const WITHIN: Duration = Duration::from_secs(1);
    let server = serve("linx-bmark", "linx://127.0.0.1:0/server");
    let mut link = Registry::standard().dialer(Clock::System).open(&server.endpoints()[0]).unwrap();
    let began = Instant::now();
    assert!(matches!(link.receive(&mut [0; 100], WITHIN), Err(Fault::TimedOut)));
    let took = began.elapsed();
    assert!(took >= WITHIN && took < 2 * WITHIN, "{took:?}");
}
