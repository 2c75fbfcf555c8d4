//! Marks in IP headers: Wireshark's dissector judges what both ends send, and a firewall stands for the network that changes it.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::icmp::in_a_network;

/// Runs a command (`sh -c`) and writes the packets that leave meanwhile to a capture file: `capture.py FILE COMMAND`.
const CAPTURE: &str = r#"
import socket, struct, subprocess, sys
path, command = sys.argv[1:]
judge = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
judge.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 26)
judge.setblocking(False)
subprocess.run(command, shell=True, check=True)
with open(path, "wb") as capture:
    capture.write(struct.pack("<IHHiIII", 0xa1b2c3d4, 2, 4, 0, 0, 65535, 1))
    while True:
        try:
            frame, (device, kind, direction, *_) = judge.recvfrom(65535)
        except BlockingIOError:
            break
        # On loopback every packet is seen twice: as sent and as received.
        if direction == socket.PACKET_OUTGOING:
            capture.write(struct.pack("<IIII", 0, 0, len(frame), len(frame)) + frame)
"#;

/// A server, the firewall's rules, and a measurement with these arguments: its case, and the capture.
fn measured(rules: &str, arguments: &str, directory: &Path) -> Value {
    std::fs::write(directory.join("capture.py"), CAPTURE).unwrap();
    let place = directory.display();
    let script = format!(
        "ready=$(mktemp -u)\nmkfifo $ready\n$LG serve udp://127.0.0.1:7100 tcp://127.0.0.1:7100 > $ready 2> /dev/null &\n\
         trap \"kill $!\" EXIT\nexec 9< $ready\nread -r line <&9\nrm $ready\n{rules}\n\
         python3 {place}/capture.py {place}/packets.pcap \"$LG {arguments} -q --json {place}/run.json\""
    );
    let ended = in_a_network(&script);
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""));
    let run: Value =
        serde_json::from_str(&std::fs::read_to_string(directory.join("run.json")).unwrap()).unwrap();
    run["cases"][0].clone()
}

/// Source port, DSCP and ECN of each UDP packet, as tshark reads them.
fn dissected(directory: &Path) -> Vec<[u16; 3]> {
    let output = Command::new("tshark")
        .args(["-r", directory.join("packets.pcap").to_str().unwrap(), "-Y", "udp", "-T", "fields"])
        .args(["-e", "udp.srcport", "-e", "ip.dsfield.dscp", "-e", "ip.dsfield.ecn"])
        .output()
        .unwrap_or_else(|error| panic!("tshark: {error}: ./check --all installs it"));
    let read = String::from_utf8(output.stdout).unwrap();
    let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("{read}"));
    let line = |line: &str| {
        let numbers: Vec<u16> = line.split('\t').map(number).collect();
        numbers.try_into().unwrap_or_else(|_| panic!("{read}"))
    };
    read.lines().map(line).collect()
}

const EF: u16 = 46;
const ECT0: u16 = 2;
const CE: u16 = 3;

#[test]
fn both_ends_send_with_the_requested_class() {
    let directory = tempfile::tempdir().unwrap();
    let case =
        measured("", "latency 'udp://127.0.0.1:7100?dscp=EF&ecn=ect0' -n 100 --repeat 1", directory.path());
    let packets = dissected(directory.path());
    let (server, client): (Vec<_>, Vec<_>) = packets.into_iter().partition(|[port, ..]| *port == 7100);
    assert!(client.len() > 100 && client.iter().all(|[_, dscp, ecn]| [*dscp, *ecn] == [EF, ECT0]));
    // The handshake has no class yet.
    let replies = server.iter().filter(|[_, dscp, ecn]| [*dscp, *ecn] == [EF, ECT0]).count();
    assert!(replies >= 100, "{replies} of {}", server.len());
    for figure in ["ce", "ecn_changed", "dscp_changed"] {
        for direction in ["forward", "reverse"] {
            assert_eq!(case[format!("{direction}_{figure}")], 0, "{direction} {figure}");
        }
    }
}

#[test]
fn changes_on_the_path_are_counted_in_their_direction() {
    let directory = tempfile::tempdir().unwrap();
    // To the server DSCP is bleached; from it every second packet is marked.
    let rules = "iptables -t mangle -A OUTPUT -p udp --dport 7100 -j TOS --set-tos 0x00/0xfc\n\
                 iptables -t mangle -A OUTPUT -p udp --sport 7100 -m dscp --dscp 46 -m statistic --mode nth --every 2 \
                 --packet 0 -j TOS --set-tos 0x03/0x03";
    let arguments = "latency 'udp://127.0.0.1:7100?dscp=EF&ecn=ect0' -n 100 --warm-up 0 --repeat 1";
    let case = measured(rules, arguments, directory.path());
    let packets = dissected(directory.path());
    let marked = packets.iter().filter(|packet| packet[0] == 7100 && packet[2] == CE).count();
    assert!((45..=55).contains(&marked), "{marked}");
    assert_eq!(case["reverse_ce"], marked);
    assert_eq!((&case["forward_ce"], &case["reverse_dscp_changed"]), (&0.into(), &0.into()));
    assert!(case["forward_dscp_changed"].as_u64() >= Some(100), "{}", case["forward_dscp_changed"]);
    assert!(packets.iter().all(|[port, dscp, _]| *port == 7100 || *dscp == 0));
    let codes: Vec<&Value> =
        case["warnings"].as_array().unwrap().iter().map(|warning| &warning["code"]).collect();
    assert!(codes.contains(&&"marks_changed".into()), "{codes:?}");
}

#[test]
fn marked_segments_are_those_of_the_kernel() {
    let directory = tempfile::tempdir().unwrap();
    let rules = "sysctl -qw net.ipv4.tcp_ecn=1\n\
                 iptables -t mangle -A OUTPUT -p tcp --dport 7100 -m length --length 1000:65535 -m statistic --mode nth \
                 --every 5 --packet 0 -j TOS --set-tos 0x03/0x03";
    let arguments =
        "throughput tcp://127.0.0.1:7100 -d upload --volume 20M --repeat 1 --idle off --probe off";
    let case = measured(rules, arguments, directory.path());
    let counters = &case["evidence"]["client"]["connections"]["counters"];
    assert_eq!(case["evidence"]["client"]["connections"]["gauges"]["tcp_ecn"]["max"], 1, "{counters:#}");
    assert!(case["forward_ce"].as_u64() > Some(0), "{counters:#}");
    assert_eq!(case["forward_ce"], counters["tcp_delivered_ce_segments"]);
    assert_eq!(case["reverse_ce"], 0, "nothing was marked in that direction");
}
