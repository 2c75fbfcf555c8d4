//! Debian's iperf3 as reference, in both roles. Counts that both ends must agree on are asserted to the byte: all
//! bytes that our server receives, all that our client receives, and the count that their server reports. The protocol
//! leaves two counts open: bytes that their client does not count at the end of `-R`, and bytes that their server has
//! not read at the end.

use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::client::{ClientRun, free_port, linkgauge};
use crate::program::{PATIENCE, Running, wait_for_progress, wait_until};

const IPERF3: &str = "/usr/bin/iperf3";

fn iperf3(arguments: &[&str]) -> Running {
    let mut command = Command::new(IPERF3);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Running(command.spawn().expect("iperf3 is needed for this test: apt-get install iperf3"))
}

/// Waits until a program listens there, without connecting: iperf3 would take that for a client.
fn listens(port: u16) {
    let entry = format!(":{port:04X} 00000000:0000 0A");
    wait_until("a listening iperf3", || {
        std::fs::read_to_string("/proc/net/tcp").unwrap().contains(&entry).then_some(())
    });
}

/// Our client against their server of one test: the output of both.
fn to_theirs(url: &str, flags: &str) -> (ClientRun, Value) {
    let port = free_port();
    let server = iperf3(&["-s", "-1", "-J", "-B", "127.0.0.1", "-p", &port.to_string()]);
    listens(port);
    let measured =
        linkgauge(&format!("throughput {url}://127.0.0.1:{port} --protocol iperf3 {flags}")).clean();
    let ended = server.ended();
    let theirs = serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{}", ended.stdout));
    (measured, theirs)
}

fn number(value: &Value, path: &str) -> u64 {
    value.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("no {path}: {value}")) as u64
}

#[test]
fn their_server_receives_over_tcp() {
    for flags in ["-t 500ms", "-t 500ms -P 4", "-t 500ms --bit-rate 20Mbit/s --size 64Ki", "--volume 5M -P 2"]
    {
        let (ours, theirs) = to_theirs("tcp", flags);
        let delivered = number(ours.case(), "/delivered_bytes");
        assert_eq!(delivered, number(&theirs, "/end/sum_received/bytes"), "{flags}");
        let sent: u64 = ours.case()["series"].as_array().unwrap().iter().map(|e| number(e, "/bytes")).sum();
        assert!(delivered > 0 && delivered <= sent, "{flags}: {delivered} of {sent}");
        assert!(
            number(ours.case(), "/throughput_bps") > 0 && number(ours.case(), "/cpu/server_seconds") < 100
        );
    }
}

#[test]
fn their_server_sends_over_tcp() {
    for flags in ["-t 500ms", "-t 500ms -P 4", "--volume 5M", "-t 500ms --bit-rate 20Mbit/s --size 64Ki"] {
        let (ours, theirs) = to_theirs("tcp", &format!("-d receive {flags}"));
        let delivered = number(ours.case(), "/delivered_bytes");
        assert_eq!(delivered, number(&theirs, "/end/sum_sent/bytes"), "{flags}");
        assert_eq!((delivered > 0, ours.count("lost")), (true, 0));
    }
}

#[test]
fn their_server_sends_and_receives_at_once() {
    let (ours, theirs) = to_theirs("tcp", "-d both -t 500ms -P 2");
    let (out, back) = ("/delivered_bytes", "/delivered_reverse_bytes");
    assert_eq!(number(ours.case(), out), number(&theirs, "/end/sum_received/bytes"));
    assert_eq!(number(ours.case(), back), number(&theirs, "/end/sum_sent_bidir_reverse/bytes"));
    assert!(number(ours.case(), out) > 0 && number(ours.case(), back) > 0);
}

#[test]
fn their_server_with_datagrams() {
    for flags in ["-d send", "-d send -P 3", "-d receive", "-d both"] {
        let (ours, theirs) = to_theirs("udp", &format!("{flags} -t 500ms --size 1000 --bit-rate 4Mbit/s"));
        let (sent, received) = (ours.count("sent"), ours.count("received"));
        assert!(received > 0 && sent == received + ours.count("lost"), "{flags}: {sent} {received}");
        let delivered = number(ours.case(), "/delivered_bytes");
        match flags {
            "-d receive" => assert_eq!(number(&theirs, "/end/sum/packets"), sent),
            "-d both" => assert!(number(ours.case(), "/delivered_reverse_bytes") > 0),
            _ => assert_eq!(
                number(&theirs, "/end/sum/packets") - number(&theirs, "/end/sum/lost_packets"),
                received
            ),
        }
        assert!(delivered > 0 && delivered.is_multiple_of(1000), "{flags}");
        let jitter = if flags == "-d receive" { "inward_jitter_ns" } else { "outward_jitter_ns" };
        assert!(ours.case()["effective"][jitter].is_u64(), "{flags}: {}", ours.case()["effective"]);
    }
}

#[test]
fn their_server_leaves_out_the_beginning() {
    let (ours, theirs) = to_theirs("tcp", "-t 500ms --warm-up 1s --bit-rate 20Mbit/s --size 64Ki");
    assert_eq!(number(&theirs, "/start/test_start/omit"), 1);
    let delivered = number(ours.case(), "/delivered_bytes");
    // Half a second of 20 Mbit/s, not one and a half.
    assert!((600_000..2_500_000).contains(&delivered), "{delivered}");
}

/// Our server, on one port of TCP and UDP.
struct Ours {
    process: Running,
    port: u16,
}

impl Ours {
    fn start(flags: &[&str]) -> Ours {
        let port = free_port();
        let urls = [format!("tcp://127.0.0.1:{port}"), format!("udp://127.0.0.1:{port}")];
        let serve = ["serve", "--protocol", "iperf3", &urls[0], &urls[1]];
        let mut process = Running::start(&[&serve, flags].concat());
        let mut measured = [0; 60];
        process.0.stdout.as_mut().unwrap().read_exact(&mut measured).expect("it prints where it listens");
        listens(port);
        Ours { process, port }
    }

    /// Their client, running.
    fn client(&self, flags: &str) -> Running {
        let port = self.port.to_string();
        let mut arguments = vec!["-c", "127.0.0.1", "-p", &port, "-J"];
        arguments.extend(flags.split_whitespace());
        iperf3(&arguments)
    }

    /// The output of their client after its end.
    fn serves(&self, flags: &str) -> Value {
        let ended = self.client(flags).ended();
        let theirs: Value = serde_json::from_str(&ended.stdout).unwrap_or_default();
        assert_eq!((ended.status, &theirs["error"]), (Some(0), &Value::Null), "{flags}: {}", ended.stdout);
        theirs
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Its reply to these bytes, until it closes.
    fn reply(&self, words: &[u8]) -> Vec<u8> {
        let mut stream = self.connect();
        let mut reply = Vec::new();
        // It may have closed before it has read all of that; a reset is an end as well.
        let _ = stream.write_all(words);
        let _ = stream.read_to_end(&mut reply);
        reply
    }
}

/// The report of their client about both ends of one direction.
fn sums(theirs: &Value, direction: &str) -> (u64, u64) {
    let sum = |end: &str| number(theirs, &format!("/end/sum_{end}{direction}/bytes"));
    (sum("sent"), sum("received"))
}

#[test]
fn their_clients_are_served_side_by_side() {
    let ours = Ours::start(&[]);
    thread::scope(|scope| {
        for flags in
            ["-t 1", "-t 1 -P 4", "-n 3M", "-n 3M -P 3 -l 10000", "-k 40 -b 100M", "-t 1 --get-server-output"]
        {
            let ours = &ours;
            scope.spawn(move || {
                let theirs = ours.serves(flags);
                let (sent, received) = sums(&theirs, "");
                assert!(sent > 0 && sent == received, "{flags}: {sent} {received}");
                assert_eq!(theirs["server_output_text"].is_string(), flags.contains("output"));
                assert!(theirs["end"]["receiver_tcp_congestion"].is_string(), "{flags}: {}", theirs["end"]);
            });
        }
        for flags in ["-t 1 -R", "-t 1 -R -P 4", "-t 1 -R -b 10M"] {
            let ours = &ours;
            scope.spawn(move || {
                let theirs = ours.serves(flags);
                let (sent, received) = sums(&theirs, "");
                // Their client stops counting when it announces the end.
                assert!(received > 0 && received <= sent, "{flags}: {sent} {received}");
                assert!(theirs["end"]["sum_sent"]["retransmits"].is_u64());
            });
        }
        let ours = &ours;
        scope.spawn(|| {
            let (sent, received) = sums(&ours.serves("-n 3M -R"), "");
            assert!(sent == 3 << 20 && received == sent, "{sent} {received}");
        });
        scope.spawn(|| {
            let theirs = ours.serves("-t 1 --bidir -P 2");
            let (sent, received) = sums(&theirs, "");
            assert!(sent > 0 && sent == received, "{sent} {received}");
            let (sent, received) = sums(&theirs, "_bidir_reverse");
            assert!(received > 0 && received <= sent, "{sent} {received}");
        });
    });
}

#[test]
fn their_clients_with_datagrams_are_served_side_by_side() {
    let ours = Ours::start(&[]);
    thread::scope(|scope| {
        for flags in [
            "-u -b 4M -l 1000 -t 1",
            "-u -b 4M -l 1000 -t 1 -P 3 --udp-counters-64bit",
            "-u -n 200K -l 1000 -b 4M",
            "-u -b 1M -l 1000 -t 1 -R",
            "-u -b 1M -l 1000 -t 1 --bidir -P 2",
            "-u -b 4M -l 1000 -t 1 --udp-counters-64bit -R",
        ] {
            let ours = &ours;
            scope.spawn(move || {
                let theirs = ours.serves(flags);
                let lost = number(&theirs, "/end/sum/lost_packets");
                let packets = number(&theirs, "/end/sum/packets");
                let received = number(&theirs, "/end/sum_received/bytes");
                let sent = number(&theirs, "/end/sum_sent/bytes");
                assert!(packets > 0 && sent >= 1000 * packets, "{flags}: {packets} {sent}");
                if !flags.contains("-R") {
                    assert_eq!((received, sent), (1000 * (packets - lost), 1000 * packets), "{flags}");
                }
                if flags.contains("--bidir") {
                    assert!(number(&theirs, "/end/sum_received_bidir_reverse/bytes") > 0);
                }
            });
        }
    });
}

#[test]
fn their_client_leaves_out_the_beginning() {
    let ours = Ours::start(&[]);
    thread::scope(|scope| {
        for flags in ["-t 1 -O 1 -b 8M", "-t 1 -O 1 -b 8M -R", "-u -t 1 -O 1 -b 8M -l 1000"] {
            let ours = &ours;
            scope.spawn(move || {
                let (sent, received) = sums(&ours.serves(flags), "");
                // One of two seconds counts; both ends start their clocks independently.
                for bytes in [sent, received] {
                    assert!((400_000..1_800_000).contains(&bytes), "{flags}: {sent} {received}");
                }
            });
        }
    });
}

#[test]
fn after_a_client_was_killed_the_next_is_served_at_once() {
    let ours = Ours::start(&[]);
    let words = ["cf3vgxvikyby5o5z4tc2kqvzdxchsc34rjek\0", "cf3vgxvikyby5o5z4tc2kqvzdxchsc34rjel\0\0\0"];
    let stuck = words.map(|words| {
        let mut stream = ours.connect();
        stream.write_all(words.as_bytes()).unwrap();
        stream
    });
    for flags in ["-t 60 -P 2", "-t 60 -R", "-t 60 -u -b 4M", "-t 60 -u -b 4M -R", "-t 60 --bidir"] {
        let client = ours.client(flags);
        thread::sleep(Duration::from_millis(300));
        client.signal(Signal::KILL);
        drop(client);
        let began = Instant::now();
        let next = flags.replace("-t 60", "-n 100K");
        ours.serves(&next);
        assert!(began.elapsed() < PATIENCE / 2, "{flags}: {:?}", began.elapsed());
    }
    drop(stuck);
    drop(ours.process);
}

/// Requests a test with these parameters: the reply after the request for them.
fn asked(ours: &Ours, parameters: &str) -> Vec<u8> {
    let mut words = b"cf3vgxvikyby5o5z4tc2kqvzdxchsc34rjek\0".to_vec();
    words.extend_from_slice(&(parameters.len() as u32).to_be_bytes());
    words.extend_from_slice(parameters.as_bytes());
    let reply = ours.reply(&words);
    assert_eq!(reply.first(), Some(&9), "{parameters}: {reply:?}");
    reply[1..].to_vec()
}

#[test]
fn their_clients_hear_that_our_server_was_stopped() {
    for flags in ["-t 60 -b 1M", "-t 60 -b 1M -R", "-t 60 -b 1M -u"] {
        let ours = Ours::start(&[]);
        let client = ours.client(flags);
        let entry = format!(":{:04X}", ours.port);
        wait_until("their client", || {
            let sockets = |file: &str| std::fs::read_to_string(file).unwrap().matches(&entry).count();
            // Listeners, and both ends of what their client has opened.
            (sockets("/proc/net/tcp") + sockets("/proc/net/udp") >= 6).then_some(())
        });
        thread::sleep(Duration::from_millis(300));
        ours.process.signal(Signal::INT);
        let measured: Value = serde_json::from_str(&client.ended().stdout).unwrap_or_default();
        assert!(
            measured["error"].as_str().is_some_and(|error| error.contains("server has terminated")),
            "{flags}: {measured}"
        );
        ours.process.ended();
    }
}

#[test]
fn nonsense_is_refused_and_the_next_served() {
    let ours = Ours::start(&["--max-flows", "8", "--max-time", "1h"]);
    let error = |code: u8| vec![0xFE, 0, 0, 0, code, 0, 0, 0, 0];
    for (parameters, code) in [
        (r#"{"tcp":true,"time":1,"parallel":100000,"len":1000}"#, 6),
        (r#"{"tcp":true,"time":1,"parallel":9,"len":1000}"#, 6),
        (r#"{"tcp":true,"time":4000,"parallel":1,"len":1000}"#, 5),
        (r#"{"tcp":true,"time":4000,"parallel":1,"len":1000,"client_version":"3.21"}"#, 37),
        (r#"{"tcp":true,"time":-5,"parallel":1,"len":1000}"#, 5),
        (r#"{"tcp":true,"time":1,"parallel":1,"len":1e18}"#, 7),
        (r#"{"udp":true,"time":1,"parallel":1,"len":70000}"#, 20),
        (r#"{"sctp":true,"time":1,"parallel":1,"len":1000}"#, 18),
        ("[1, 2, 3]", 114),
        ("", 114),
    ] {
        assert_eq!(asked(&ours, parameters), error(code), "{parameters}");
    }
    let cookie = "cf3vgxvikyby5o5z4tc2kqvzdxchsc34rjek\0";
    let huge = [cookie.as_bytes(), &[0xFF; 8]].concat();
    assert_eq!(ours.reply(&huge), [&[9][..], &error(114)].concat());
    let http = ours.reply(b"GET / HTTP/1.1\r\nHost: 127.0.0.1:5201\r\n\r\n");
    assert_eq!(http, b"");
    assert_eq!(ours.reply(&[0xFF; 100]), b"");
    // Closed in the middle of everything.
    for length in [0, 1, 36, 37, 39, 41] {
        drop(ours.connect().write_all(&[cookie.as_bytes(), &[0, 0, 0, 9, b'{']].concat()[..length]));
    }
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    stranger.send_to(b"9876", ("127.0.0.1", ours.port)).unwrap();
    ours.serves("-n 100K");
    // By now the unknown client has received its whole reply.
    stranger.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    assert!(stranger.recv(&mut [0; 9]).is_err(), "no test waits for a stream of datagrams");
}

#[test]
fn their_client_gets_the_reason_of_a_refusal() {
    let limited = Ours::start(&["--max-rate", "1Mbit/s", "--max-sessions", "1"]);
    let measured = |ours: &Ours, flags: &str| {
        let ended = ours.client(flags).ended();
        let measured: Value = serde_json::from_str(&ended.stdout).unwrap_or_default();
        measured["error"].as_str().unwrap_or_else(|| panic!("{flags}: {}", ended.stdout)).to_owned()
    };
    assert!(measured(&limited, "-t 1 -b 10M").contains("larger than server limit"));
    let mut first = limited.connect();
    first.write_all(b"cf3vgxvikyby5o5z4tc2kqvzdxchsc34rjek\0").unwrap();
    first.read_exact(&mut [0]).unwrap();
    assert!(measured(&limited, "-t 1 -b 1K").contains("busy"));
    drop(first);
    wait_until("a free place", || {
        let ended = limited.client("-n 1K -b 500K").ended();
        (!ended.stdout.contains("\"error\"")).then_some(())
    });
}

#[test]
fn results_before_ctrl_c_have_their_counts() {
    let port = free_port();
    let _server = iperf3(&["-s", "-B", "127.0.0.1", "-p", &port.to_string()]);
    listens(port);
    let directory = tempfile::tempdir().unwrap();
    for (scheme, direction) in [("tcp", "send"), ("tcp", "receive"), ("udp", "send"), ("udp", "receive")] {
        let path = |name: &str| directory.path().join(format!("{scheme}-{direction}.{name}"));
        let (json, events) = (path("json"), path("events"));
        let url = format!("{scheme}://127.0.0.1:{port}");
        let client = Running::start(&[
            "throughput",
            &url,
            "--protocol",
            "iperf3",
            "-d",
            direction,
            "-s",
            "1000",
            "-b",
            "4Mbit/s",
            "-t",
            "60s",
            "-q",
            "--interval",
            "50ms",
            "--json",
            json.to_str().unwrap(),
            "--events",
            events.to_str().unwrap(),
        ]);
        wait_for_progress(&events);
        client.signal(Signal::INT);
        let ended = client.ended();
        assert_eq!(ended.status, Some(130), "{}", ended.stderr);
        let run: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
        assert!(number(&run["cases"][0], "/delivered_bytes") > 0, "{run}");
        assert_eq!(run["cases"][0]["complete"], false);
    }
}

#[test]
fn the_loss_of_a_killed_server_is_unknown() {
    let port = free_port();
    let server = iperf3(&["-s", "-B", "127.0.0.1", "-p", &port.to_string()]);
    listens(port);
    let directory = tempfile::tempdir().unwrap();
    let (events, url) = (directory.path().join("events"), format!("tcp://127.0.0.1:{port}"));
    let mut arguments = vec!["throughput", &url, "--protocol", "iperf3", "-t", "60s", "--interval", "50ms"];
    arguments.extend(["-s", "1000", "-b", "4Mbit/s", "--events", events.to_str().unwrap()]);
    let client = Running::start(&arguments);
    wait_for_progress(&events);
    server.signal(Signal::KILL);
    let ended = client.ended();
    assert_eq!(ended.status, Some(2), "{}", ended.stderr);
    assert!(ended.stdout.contains("the server sent no receive report"), "{}", ended.stdout);
    assert!(!ended.stdout.contains("loss"), "{}", ended.stdout);
}

#[test]
fn a_busy_server_of_theirs_is_reported() {
    let port = free_port();
    let _server = iperf3(&["-s", "-B", "127.0.0.1", "-p", &port.to_string()]);
    listens(port);
    let first = iperf3(&["-c", "127.0.0.1", "-p", &port.to_string(), "-t", "60", "-b", "1M"]);
    let entry = format!(":{port:04X}");
    wait_until("their first client", || {
        let connections = std::fs::read_to_string("/proc/net/tcp").unwrap();
        // Two connections, both ends of each, and the listener.
        (connections.matches(&entry).count() >= 5).then_some(())
    });
    linkgauge(&format!("throughput tcp://127.0.0.1:{port} --protocol iperf3 -t 200ms")).refused(&["busy"]);
    drop(first);
}

#[test]
fn auto_names_the_remedy_for_an_iperf3_server() {
    let port = free_port();
    let _server = iperf3(&["-s", "-B", "127.0.0.1", "-p", &port.to_string()]);
    listens(port);
    linkgauge(&format!("throughput tcp://127.0.0.1:{port} -t 200ms --timeout 1s")).refused(&[
        "no reply",
        "--protocol",
        "iperf3",
    ]);
}
