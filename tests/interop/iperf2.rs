//! Debian's iperf 2 as reference, in both roles. Its counts include the settings at the start of a stream, and the last
//! datagram of a test; otherwise both ends count the same to the byte.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use serde_json::Value;

use crate::client::{ClientRun, free_port, linkgauge};
use crate::program::{PATIENCE, Running, run_within, wait_until};

/// Bytes of the settings with their extension, and as 2.0.5 sends them. Of those without flags the first four do not count.
const SETTINGS: u64 = 60;
const OLD_SETTINGS: u64 = 24;
const PLAIN_SETTINGS: u64 = 20;

fn iperf(arguments: &[&str]) -> Command {
    // It would hold its lines back.
    let mut command = Command::new("stdbuf");
    command.args(["-oL", "iperf"]).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Waits until a program listens there, without connecting.
fn listens(transport: &str, port: u16) {
    let entry = format!(":{port:04X} 00000000:0000 {}", if transport == "tcp" { "0A" } else { "07" });
    wait_until("a listening iperf: apt-get install iperf", || {
        std::fs::read_to_string(format!("/proc/net/{transport}")).unwrap().contains(&entry).then_some(())
    });
}

/// Their server and the lines that it prints.
struct Theirs {
    _process: Running,
    lines: Receiver<String>,
    url: String,
}

impl Theirs {
    fn start(transport: &str, format: &[&str]) -> Theirs {
        let port = free_port();
        let mut arguments = vec!["-s", "-B", "127.0.0.1", "-p"];
        let number = port.to_string();
        arguments.push(&number);
        arguments.extend(format);
        if transport == "udp" {
            arguments.push("-u");
        }
        let mut process = Running(iperf(&arguments).spawn().unwrap());
        let stdout = BufReader::new(process.0.stdout.take().unwrap());
        let (sender, lines) = channel();
        thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        listens(transport, port);
        Theirs { _process: process, lines, url: format!("{transport}://127.0.0.1:{port}") }
    }

    /// Our client with it.
    fn measured(&self, flags: &str) -> ClientRun {
        linkgauge(&format!("throughput {} --protocol iperf2 --idle off {flags}", self.url)).clean()
    }

    /// The bytes of its next results: those that it received, and those that it sent.
    fn bytes(&self, results: usize) -> [u64; 2] {
        let mut sums = [0; 2];
        for _ in 0..results {
            let fields = loop {
                let line = self.lines.recv_timeout(PATIENCE).expect("their server prints its results");
                let fields: Vec<String> = line.split(',').map(str::to_owned).collect();
                if fields.len() >= 9 {
                    break fields;
                }
            };
            // The sender comes first. A sum of several connections has no number.
            let port = self.url.rsplit_once(':').unwrap().1;
            let has_sent = fields[2] == port || fields[4] != port;
            if fields[5] != "-1" {
                sums[usize::from(has_sent)] += fields[7].parse::<u64>().unwrap();
            }
        }
        sums
    }
}

fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_else(|| panic!("no {name}: {value:#}"))
}

#[test]
fn their_server_receives_over_tcp() {
    let theirs = Theirs::start("tcp", &["-y", "C"]);
    for (flags, connections, settings) in [
        ("-t 500ms", 1, SETTINGS),
        ("-t 500ms -P 3", 3, SETTINGS),
        ("-t 500ms --bit-rate 20Mbit/s --size 16Ki", 1, SETTINGS),
        ("--volume 5M", 1, SETTINGS),
        ("-t 500ms --compat", 1, PLAIN_SETTINGS),
    ] {
        let ours = theirs.measured(flags);
        let [received, _] = theirs.bytes(connections);
        let delivered = number(ours.case(), "delivered_bytes");
        assert_eq!(received, delivered + settings * connections as u64, "{flags}");
        assert!(delivered > 0 && ours.case()["throughput_bps"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn their_server_sends_over_tcp() {
    let theirs = Theirs::start("tcp", &["-y", "C"]);
    for flags in ["-t 500ms", "--volume 5M", "-t 500ms --bit-rate 20Mbit/s"] {
        let ours = theirs.measured(&format!("-d receive {flags}"));
        let [_, sent] = theirs.bytes(1);
        assert_eq!(number(ours.case(), "delivered_bytes"), sent, "{flags}");
    }
}

#[test]
fn their_server_sends_and_receives_on_one_connection() {
    let theirs = Theirs::start("tcp", &["-y", "C"]);
    let ours = theirs.measured("-d both -t 500ms");
    let [received, sent] = theirs.bytes(2);
    assert_eq!(number(ours.case(), "delivered_bytes") + SETTINGS, received);
    assert_eq!(number(ours.case(), "delivered_reverse_bytes"), sent);
}

#[test]
fn their_server_calls_back() {
    for (direction, results) in [("receive", 2), ("both", 2)] {
        let theirs = Theirs::start("tcp", &["-y", "C"]);
        let ours = theirs.measured(&format!("-d {direction} -t 500ms --callback 0"));
        let [received, sent] = theirs.bytes(results);
        let (upload, download) = match direction {
            "receive" => (0, number(ours.case(), "delivered_bytes")),
            _ => (number(ours.case(), "delivered_bytes"), number(ours.case(), "delivered_reverse_bytes")),
        };
        assert_eq!((received, sent), (upload + OLD_SETTINGS, download), "{direction}");
        assert!(download > 0);
    }
}

#[test]
fn their_server_returns_messages() {
    let theirs = Theirs::start("tcp", &[]);
    for flags in ["-n 200", "-n 50 --size 1000", "-n 50 -P 2"] {
        let ours =
            linkgauge(&format!("latency {} --protocol iperf2 --repeat 1 --warm-up 0 {flags}", theirs.url));
        assert_eq!(ours.status, 0, "{flags}: {}", ours.errors);
        assert_eq!((ours.count("received"), ours.count("lost")), (ours.count("sent"), 0), "{flags}");
        assert!(ours.count("received") >= 50);
    }
}

#[test]
fn their_server_with_datagrams() {
    let theirs = Theirs::start("udp", &["-y", "C"]);
    let paced = "-t 500ms --size 1000 --bit-rate 4Mbit/s";
    let ours = theirs.measured(&format!("-d send {paced}"));
    let delivered = number(ours.case(), "delivered_bytes");
    assert_eq!(theirs.bytes(1), [delivered + 1000, 0], "the last datagram");
    assert_eq!(number(&ours.case()["effective"], "server_bytes"), delivered + 1000);
    assert_eq!(ours.count("sent"), ours.count("received") + ours.count("lost"));
    assert!(ours.case()["effective"]["outward_jitter_ns"].is_u64());
    // Between two clients it may miss datagrams.
    let theirs = Theirs::start("udp", &["-y", "C"]);
    let ours = theirs.measured(&format!("-d send {paced} --compat"));
    // It does not count number 0, with which old versions begin.
    assert_eq!(theirs.bytes(1), [number(ours.case(), "delivered_bytes"), 0]);
    let theirs = Theirs::start("udp", &["-y", "C"]);
    let ours = theirs.measured(&format!("-d receive {paced}"));
    let [_, sent] = theirs.bytes(1);
    assert_eq!(sent, 1000 * (ours.count("sent") + 1), "the last datagram");
    assert_eq!(ours.count("sent"), ours.count("received") + ours.count("lost"));
    assert!(ours.case()["effective"]["inward_jitter_ns"].is_u64());
}

/// 2.1.8 loses a second sender of datagrams that comes beside the first, so this server is ours.
#[test]
fn datagrams_in_both_directions() {
    let server = Ours::start(&["--trust-senders"]);
    let ours = linkgauge(&format!(
        "throughput udp://127.0.0.1:{} --protocol iperf2 --idle off -d both -t 500ms --size 1000 --bit-rate 4Mbit/s",
        server.port
    ))
    .clean();
    assert!(number(ours.case(), "delivered_bytes") > 0 && number(ours.case(), "delivered_reverse_bytes") > 0);
}

/// Our server, on one port of TCP and UDP.
struct Ours {
    _process: Running,
    port: String,
}

impl Ours {
    fn start(flags: &[&str]) -> Ours {
        let port = free_port();
        let urls = [format!("tcp://127.0.0.1:{port}"), format!("udp://127.0.0.1:{port}")];
        let serve = ["serve", "--protocol", "iperf2", &urls[0], &urls[1]];
        let mut process = Running::start(&[&serve, flags].concat());
        process.0.stdout.as_mut().unwrap().read_exact(&mut [0; 60]).expect("it prints where it listens");
        listens("udp", port);
        Ours { _process: process, port: port.to_string() }
    }

    /// What their client prints.
    fn serves(&self, flags: &str) -> String {
        let mut arguments = vec!["-c", "127.0.0.1", "-p", &self.port];
        arguments.extend(flags.split_whitespace());
        let ended = run_within(PATIENCE, &mut iperf(&arguments));
        assert!(
            ended.status == Some(0) && !ended.stderr.contains("failed"),
            "{flags}: {} {}",
            ended.stdout,
            ended.stderr
        );
        ended.stdout
    }
}

/// The bytes of the lines of results.
fn results(output: &str) -> Vec<u64> {
    let bytes = |line: &str| line.split(',').nth(7)?.parse().ok();
    output.lines().filter_map(bytes).collect()
}

#[test]
fn their_clients_send_over_tcp() {
    let ours = Ours::start(&[]);
    for flags in
        ["-t 0.5", "-t 0.5 -P 3", "-n 3M", "-t 0.5 -b 20M -i 0.5", "-t 0.5 --trip-times", "-t 0.5 -l 10K"]
    {
        let bytes = results(&ours.serves(&format!("{flags} -y C")));
        assert!(!bytes.is_empty() && bytes.iter().all(|bytes| *bytes > 0), "{flags}: {bytes:?}");
    }
}

#[test]
fn their_clients_receive_over_tcp() {
    let ours = Ours::start(&[]);
    assert_eq!(results(&ours.serves("-n 3M --reverse -y C")), [3 << 20]);
    // The rate of the client is that of the server.
    let bytes = results(&ours.serves("-t 1 --reverse -b 20M -y C"));
    assert!(bytes.len() == 1 && bytes[0].abs_diff(2_621_440) <= 200_000, "{bytes:?}");
    let bytes = results(&ours.serves("-t 1 --full-duplex -b 20M -y C"));
    assert!(bytes.iter().filter(|bytes| bytes.abs_diff(2_621_440) <= 200_000).count() >= 2, "{bytes:?}");
}

#[test]
fn their_clients_get_their_messages_back() {
    let ours = Ours::start(&[]);
    let output = ours.serves("-t 1 --bounceback");
    assert!(output.contains(" BB cnt="), "{output}");
    let output = ours.serves("-t 1 --bounceback --trip-times");
    assert!(output.contains("OWD Delays (ms)"), "our times are in the messages: {output}");
}

/// Lost and all datagrams of a line, and whether it is that of our report.
fn losses(output: &str) -> Vec<(u64, u64)> {
    let of_line = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let at = fields
            .iter()
            .position(|field| field.contains('/') && field.split('/').all(|n| n.parse::<u64>().is_ok()))?;
        let (lost, all) = fields[at].split_once('/')?;
        Some((lost.parse().ok()?, all.parse().ok()?))
    };
    output.lines().filter_map(of_line).collect()
}

/// Datagrams that their client says it sent: one too many.
fn sent(output: &str) -> u64 {
    let line = output.lines().find(|line| line.contains("Sent ")).expect("a number of datagrams");
    line.split("Sent ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn their_clients_get_our_report() {
    let ours = Ours::start(&[]);
    for flags in ["-b 4M -l 1000", "-b 2M -l 100", "-b 2M -l 20", "-b 4M -l 1000 --trip-times"] {
        let output = ours.serves(&format!("-u -t 0.5 {flags}"));
        assert!(output.contains("Server Report:"), "{flags}: {output}");
        let (lost, all) = losses(&output)[0];
        assert_eq!(all, sent(&output) - 1, "{flags}: {output}");
        assert!(lost <= all);
    }
    let output = ours.serves("-u -t 0.5 -b 2M -P 3");
    assert_eq!(output.matches("Server Report:").count(), 3, "{output}");
}

#[test]
fn their_clients_receive_datagrams_from_a_server_that_trusts_them() {
    let ours = Ours::start(&["--trust-senders"]);
    let output = ours.serves("-u -t 1 -b 4M -l 1000 --reverse");
    let (_, all) = losses(&output)[0];
    // A second of 4 Mbit/s, with the binary units of the original, and the last one.
    assert!(all.abs_diff(4 * 1024 * 1024 / 8000) <= 3, "{output}");
    let output = ours.serves("-u -t 1 -b 4M -l 1000 --full-duplex");
    assert!(losses(&output)[0].1 > 400, "{output}");
}

#[test]
fn their_clients_are_called_by_a_server_that_trusts_them() {
    let ours = Ours::start(&["--trust-senders"]);
    for transport in ["", "-u"] {
        for mode in ["-d", "-r"] {
            let port = free_port().to_string();
            let output = ours.serves(&format!("{transport} -t 0.5 -b 4M {mode} -L {port}"));
            let called = format!("local 127.0.0.1 port {port} connected with 127.0.0.1");
            assert!(output.contains(&called), "{transport} {mode}: {output}");
        }
    }
    let ours = Ours::start(&[]);
    let port = free_port().to_string();
    let mut command = iperf(&["-c", "127.0.0.1", "-p", &ours.port, "-t", "0.5", "-d", "-L", &port]);
    let mut client = Running(command.spawn().unwrap());
    let mut output = String::new();
    // It waits for the call for ever, so only its first lines are read.
    let stdout = client.0.stdout.take().unwrap();
    for line in BufReader::new(stdout).lines().take(8).map_while(Result::ok) {
        output += &line;
    }
    assert!(!output.contains(&format!("port {port} connected with")), "{output}");
}
