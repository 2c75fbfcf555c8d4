//! LINX over Ethernet between two network namespaces, with the program as people run it. Needs root and `ip`.

use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use linkgauge::Registry;
use linkgauge::clock::Clock;
use linkgauge::link::Dialer;

use crate::program::{Running, wait_for_progress, wait_until};
use crate::tools::interpreter;

/// Two namespaces joined by a pair of devices, `server0` and `client0`; gone with the test.
struct Joined {
    names: [String; 2],
}

const SERVER_MAC: &str = "02:00:00:00:00:01";
const CLIENT_MAC: &str = "02:00:00:00:00:02";

fn ip(words: &str) {
    let output = Command::new("ip").args(words.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "ip {words}: {}", String::from_utf8_lossy(&output.stderr));
}

impl Joined {
    fn new() -> Joined {
        let number = fastrand::u32(..);
        let names = ["server", "client"].map(|name| format!("lg-linx-{name}-{number:08x}"));
        let joined = Joined { names };
        let [server, client] = &joined.names;
        ip(&format!("netns add {server}"));
        ip(&format!("netns add {client}"));
        ip(&format!(
            "-n {server} link add server0 address {SERVER_MAC} type veth peer name client0 address {CLIENT_MAC} netns {client}"
        ));
        ip(&format!("-n {server} link set server0 up"));
        ip(&format!("-n {client} link set client0 up"));
        joined.names.iter().for_each(|name| ip(&format!("-n {name} link set lo up")));
        joined
    }

    fn serve(&self) -> Running {
        serve(&self.names[0], &[])
    }

    /// The client program.
    fn client(&self, words: &str) -> Command {
        let url = format!("linx+eth://client0/{SERVER_MAC}/server");
        let words: Vec<String> = words.split_whitespace().map(|word| word.replace("URL", &url)).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        linkgauge(&self.names[1], &words)
    }

    /// Runs the program to its end: status, output, errors.
    fn run(&self, words: &str) -> (Option<i32>, String, String) {
        let output = self.client(words).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    }

    fn await_reply(&self) {
        wait_until("a reply over Ethernet", || {
            let (status, ..) = self.run("latency URL -n 1 --quiet --timeout 5s");
            (status == Some(0)).then_some(())
        });
    }
}

fn linkgauge(namespace: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace, env!("CARGO_BIN_EXE_linkgauge")]).args(arguments);
    command.env("LINKGAUGE_STORE", "");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn serve(namespace: &str, flags: &[&str]) -> Running {
    let url = format!("linx+eth://server0/{CLIENT_MAC}/server");
    Running(linkgauge(namespace, &[&["serve", &url], flags].concat()).spawn().unwrap())
}

impl Drop for Joined {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = Command::new("ip").args(["netns", "del", name]).output();
        }
    }
}

#[test]
fn messages_of_all_sizes_pass_between_two_namespaces() {
    let joined = Joined::new();
    let _server = joined.serve();
    joined.await_reply();
    for size in ["1", "1476", "1477", "20000", "65532"] {
        let (status, out, errors) =
            joined.run(&format!("latency URL -n 100 -s {size} --warm-up 0 --timeout 10s --json -"));
        assert_eq!(status, Some(0), "{size}: {errors}");
        let run: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert_eq!(run["cases"][0]["received"], 100, "{size}");
        assert!(run["cases"][0]["corrupt_bytes"].as_u64().unwrap_or(0) == 0, "{size}");
    }
    let words = "throughput URL --direction both -s 1000 --volume 2M --timeout 10s --json -";
    let (status, out, errors) = joined.run(words);
    assert_eq!(status, Some(0), "{errors}");
    let run: serde_json::Value = serde_json::from_str(&out).unwrap();
    let case = &run["cases"][0];
    assert_eq!(case["received"], 4000, "{case}");
    assert_eq!(case["lost"].as_u64().unwrap_or(0), 0);
}

/// The case of a measurement with stamps, and the mean of each of its stages.
fn stages(document: &str) -> (serde_json::Value, Vec<(String, f64)>) {
    let run: serde_json::Value = serde_json::from_str(document).unwrap();
    let case = run["cases"][0].clone();
    let stages = case["stages"].as_object().unwrap_or_else(|| panic!("{case:#}"));
    let parts =
        stages.iter().filter(|(name, _)| name.ends_with("_ns") && !PARTS_OF_NONE.contains(&&name[..]));
    let medians = parts.map(|(name, times)| (name.clone(), times["p50"].as_f64().unwrap())).collect();
    (case, medians)
}

/// What is no stage of its own.
const PARTS_OF_NONE: [&str; 3] = ["beyond_ns", "sum_error_ns", "cost_ns"];

#[test]
fn a_round_trip_splits_into_the_stages_of_both_kernels() {
    let joined = Joined::new();
    let _server = joined.serve();
    joined.await_reply();
    for size in ["64", "1476", "1477", "65532"] {
        let words = format!("latency URL --stamps -n 300 -s {size} --repeat 1 --timeout 10s --json -");
        let (status, out, errors) = joined.run(&words);
        assert_eq!(status, Some(0), "{size}: {errors}");
        let (case, medians) = stages(&out);
        let stages = &case["stages"];
        println!("{size}: {medians:?} {}", stages["sum_error_ns"]);
        assert_eq!(
            (&stages["stamped"], &stages["unstamped"]),
            (&299.into(), &1.into()),
            "{size}: {stages:#}"
        );
        assert_eq!(medians.len(), 8, "{medians:?}");
        assert!(stages["sum_error_ns"]["p50"].as_u64() <= Some(2_000), "{size}: {stages:#}");
        assert!(stages["sum_error_ns"]["mean"].as_f64() <= Some(1_000.0), "{size}: {stages:#}");
        assert_eq!(case["method"], "latency/1 closed stamps");
    }
    let (_, out, _) = joined.run("latency URL -n 300 --repeat 1 --timeout 10s --json -");
    assert!(!out.contains("\"stages\""), "nothing was requested: {out}");
}

#[test]
fn a_delay_of_the_wire_lies_in_the_network() {
    let wired = Wired::new(SLOW_WIRE);
    let _server = serve(&wired.names[0], &[]);
    let url = format!("linx+eth://{}/{SERVER_MAC}/server", wired.client);
    let words =
        ["latency", &url, "--stamps", "-n", "30", "--repeat", "1", "--timeout", "20s", "-q", "--json", "-"];
    let mut client = Command::new(env!("CARGO_BIN_EXE_linkgauge"));
    let output = client.args(words).env("LINKGAUGE_STORE", "").stdin(Stdio::null()).output().unwrap();
    let (case, medians) = stages(&String::from_utf8(output.stdout).unwrap());
    println!("{medians:?}");
    assert_eq!(case["stages"]["stamped"], 29, "{:#}", case["stages"]);
    let longest = medians.iter().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
    assert!(longest.0 == "network_ns" && longest.1 >= 20e6, "{medians:?}");
    // It is not in another one as well.
    let others: f64 = medians.iter().map(|(_, ns)| ns).sum::<f64>() - longest.1;
    assert!(others < 20e6, "{medians:?}");
}

#[test]
fn a_missing_node_and_a_missing_device_are_one_line_each() {
    let joined = Joined::new();
    let (status, _, errors) = joined.run("latency URL -n 1 --quiet --timeout 1s");
    assert_eq!((status, errors.lines().count()), (Some(2), 1), "{errors}");
    assert!(errors.contains("no LINX node replied"), "{errors}");
    let (status, _, errors) = joined.run("latency linx+eth://eth77/02:00:00:00:00:01/server -n 1 --quiet");
    assert_eq!((status, errors.lines().count()), (Some(2), 1), "{errors}");
    assert!(errors.contains("no network device 'eth77'"), "{errors}");
}

/// Replies to a frame with one of another version, or with a truncated one.
const OTHER_VERSION: &str = "
import socket
node = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x8911))
node.bind(('server0', 0x8911))
while True:
    frame = node.recv(2048)
    node.send(frame[6:12] + frame[:6] + b'\\x89\\x11' + bytes([frame[14] & 0xf1 | 2 << 1]) + frame[15:])
";

#[test]
fn a_node_of_another_version_is_one_line() {
    let joined = Joined::new();
    let mut node = Command::new("ip");
    node.args(["netns", "exec", &joined.names[0]]).arg(interpreter()).args(["-c", OTHER_VERSION]);
    let _node = Running(node.stdin(Stdio::null()).spawn().unwrap());
    let (status, _, errors) = joined.run("latency URL -n 1 --quiet --timeout 10s");
    assert_eq!((status, errors.lines().count()), (Some(2), 1), "{errors}");
    assert!(
        errors.contains("uses version 2 of the LINX Ethernet connection manager, linkgauge uses 3"),
        "{errors}"
    );
}

#[test]
fn a_link_that_goes_down_ends_the_run_with_its_results_so_far() {
    let joined = Joined::new();
    let _server = joined.serve();
    joined.await_reply();
    let directory = tempfile::tempdir().unwrap();
    let events = directory.path().join("events");
    let words = "latency URL -n 1G --warm-up 0 --timeout 5s --quiet --json - --events";
    let run = Running(joined.client(&format!("{words} {}", events.display())).spawn().unwrap());
    wait_for_progress(&events);
    ip(&format!("-n {} link set server0 down", joined.names[0]));
    let ended = run.ended();
    assert_eq!((ended.status, ended.stderr.lines().count()), (Some(2), 1), "{}", ended.stderr);
    assert!(ended.stderr.contains("the remote node stopped replying"), "{}", ended.stderr);
    let run: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(run["cases"][0]["complete"], false);
    assert!(run["cases"][0]["received"].as_u64().unwrap() > 0, "{run}");
    // A link that is up again can be used again.
    ip(&format!("-n {} link set server0 up", joined.names[0]));
    joined.await_reply();
}

/// Forwards frames of LINX between two devices in both directions, except every seventh.
const LOSSY_WIRE: &str = "
import select, socket, sys
ends = [socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x8911)) for name in sys.argv[1:]]
for end, name in zip(ends, sys.argv[1:]):
    end.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)  # SO_RCVBUFFORCE
    end.bind((name, 0x8911))
    end.setblocking(False)
frames = 0
while True:
    for end in select.select(ends, [], [])[0]:
        other = ends[1 - ends.index(end)]
        for turn in range(64):
            try:
                frame, (_, _, kind, *_) = end.recvfrom(2048)
            except BlockingIOError:
                break
            if kind == socket.PACKET_OUTGOING:
                continue
            frames += 1
            if frames % 7:
                try:
                    other.send(frame)
                except BlockingIOError:
                    pass
";

/// The same, and each frame takes 10 ms; one after the other.
const SLOW_WIRE: &str = "
import select, socket, sys, time
ends = [socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x8911)) for name in sys.argv[1:]]
for end, name in zip(ends, sys.argv[1:]):
    end.bind((name, 0x8911))
while True:
    for end in select.select(ends, [], [])[0]:
        frame, (_, _, kind, *_) = end.recvfrom(2048)
        if kind != socket.PACKET_OUTGOING:
            time.sleep(0.01)
            ends[1 - ends.index(end)].send(frame)
";

/// A namespace and this one, and between them a wire: one of these programs.
struct Wired {
    names: [String; 2],
    client: String,
    wire: Option<Running>,
}

impl Wired {
    fn new(program: &str) -> Wired {
        let number = fastrand::u32(..);
        let names = ["server", "wire"].map(|name| format!("lg-linx-{name}-{number:08x}"));
        let mut wired = Wired { names, client: format!("lgl{number:08x}"), wire: None };
        let ([server, middle], client) = (&wired.names, &wired.client);
        ip(&format!("netns add {server}"));
        ip(&format!("netns add {middle}"));
        ip(&format!(
            "-n {server} link add server0 address {SERVER_MAC} type veth peer name wire0 netns {middle}"
        ));
        ip(&format!("link add {client} address {CLIENT_MAC} type veth peer name wire1 netns {middle}"));
        for device in [format!("-n {server} link set server0"), format!("link set {client}")] {
            ip(&format!("{device} up"));
        }
        for device in ["wire0", "wire1"] {
            ip(&format!("-n {middle} link set {device} up promisc on"));
        }
        let mut wire = Command::new("ip");
        wire.args(["netns", "exec", middle]).arg(interpreter()).args(["-c", program, "wire0", "wire1"]);
        wired.wire = Some(Running(wire.stdin(Stdio::null()).spawn().unwrap()));
        wired
    }
}

impl Drop for Wired {
    fn drop(&mut self) {
        self.wire = None;
        for name in &self.names {
            let _ = Command::new("ip").args(["netns", "del", name]).output();
        }
    }
}

/// How many messages cross the lossy wire; all that were asked for once:
///
/// ```text
/// LINKGAUGE_TEST_MESSAGES=10000 cargo test --test interop lossy_wire
/// ```
const MESSAGES: &str = "LINKGAUGE_TEST_MESSAGES";

/// Message number so-and-so: of any size, the largest and the smallest among them, its number in front if it fits.
fn message(number: usize) -> Vec<u8> {
    // The payload of a signal of 65536 bytes after its number.
    const LARGEST: usize = 65_532;
    let mut random = fastrand::Rng::with_seed(number as u64);
    let size = match number % 100 {
        0 => LARGEST,
        1 => 1,
        _ => random.usize(1..=LARGEST),
    };
    let mut bytes = vec![random.u8(..); size];
    for (at, byte) in bytes.iter_mut().zip((number as u64).to_be_bytes()) {
        *at = byte;
    }
    bytes
}

#[test]
fn over_a_lossy_wire_all_messages_arrive_in_order_and_once() {
    let messages = std::env::var(MESSAGES).map_or(200, |count| count.parse().unwrap());
    let wired = Wired::new(LOSSY_WIRE);
    let _server = serve(&wired.names[0], &["--protocol", "echo"]);
    let url = format!("linx+eth://{}/{SERVER_MAC}/server", wired.client).parse().unwrap();
    let dialer = Dialer { timeout: Duration::from_secs(20), ..Registry::standard().dialer(Clock::System) };
    let mut link = dialer.open(&url).unwrap();
    let mut outward = link.second_handle().unwrap();
    let patience = Duration::from_secs(30);
    let sender = thread::spawn(move || {
        for number in 0..messages {
            let message = message(number);
            assert_eq!(outward.send(&message, patience).unwrap(), message.len());
        }
    });
    let mut got = vec![0; 65_536];
    for number in 0..messages {
        let length = link.receive(&mut got, patience).unwrap();
        assert!(got[..length] == message(number), "message {number}: {length} bytes");
    }
    sender.join().unwrap();
    assert!(link.receive(&mut got, Duration::from_millis(500)).is_err(), "one more");
}
