//! STAMP and TWAMP-Light with judges of other people: scapy's packets at either end, and Wireshark's decoder.

use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use linkgauge::run::OneWayFigures;
use serde_json::Value;

use crate::client::{ClientRun, linkgauge, serving};
use crate::program::Running;
use crate::tools::python;

fn ways(measured: &ClientRun) -> OneWayFigures {
    serde_json::from_value(measured.case()["one_way"].clone()).unwrap()
}

/// A reflector made of scapy's layers that takes 2 ms for a reply. It prints its port and ends when its time is over.
const REFLECTOR: &str = r#"
import os, socket, threading, time
from decimal import Decimal
from scapy.contrib.stamp import *
def now():
    return Decimal(time.time_ns()) / 10**9 + 2208988800
here = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
here.bind(("127.0.0.1", 0))
print(here.getsockname()[1], flush=True)
threading.Timer(60, lambda: os._exit(0)).start()
replies = 0
while True:
    data, sender = here.recvfrom(65536)
    came = now()
    asked = STAMPSessionSenderTestUnauthenticated(data)
    assert asked.err_estimate.Z == 0 and asked.err_estimate.multiplier > 0 and asked.mbz == 0, asked
    assert [(t.type, int(t.flags)) for t in asked.tlv_objects] == ([(1, 0x80)] if len(data) > 44 else []), asked
    time.sleep(0.002)
    reply = STAMPSessionReflectorTestUnauthenticated(
        seq=replies, ts=now(), err_estimate=ErrorEstimate(S=1, scale=10, multiplier=5), ssid=asked.ssid, ts_rx=came,
        seq_sender=asked.seq, ts_sender=asked.ts, err_estimate_sender=asked.err_estimate, tlv_objects=asked.tlv_objects)
    here.sendto(bytes(reply), sender)
    replies += 1
"#;

/// The tests' Python with a script that prints one line when it is ready.
fn script(text: &str, arguments: &[&str]) -> (Running, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("script.py");
    std::fs::write(&path, text).unwrap();
    let mut running = python(&[&[path.to_str().unwrap()], arguments].concat());
    let mut line = String::new();
    BufReader::new(running.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (running, line.trim_end().to_owned())
}

#[test]
fn scapy_reflects_what_we_send() {
    let (_reflector, port) = script(REFLECTOR, &[]);
    for size in [44, 48, 1000] {
        let url = format!("udp://127.0.0.1:{port}");
        let measured = linkgauge(&format!(
            "latency {url} --protocol stamp -n 50 --warm-up 3 --size {size} --timeout 20s"
        ))
        .clean();
        assert_eq!((measured.count("received"), measured.count("message_bytes")), (50, size));
        let (ways, got) = (ways(&measured), &measured.case()["effective"]);
        assert!(ways.turnaround_ns.min >= 1_900_000, "it slept 2 ms: {:?}", ways.turnaround_ns);
        assert!(ways.path_ns.max < measured.case()["latency_ns"]["max"].as_u64().unwrap() - 1_900_000);
        assert_eq!((ways.forward_lost, ways.reverse_lost), (Some(0), Some(0)));
        assert_eq!(
            (&got["server_clock_synchronised"], &got["ttl_at_server"]),
            (&Value::from(true), &Value::from(255))
        );
        assert!(
            got["server_clock_error_seconds"].as_f64().is_some_and(|error| (error - 1.192e-6).abs() < 1e-9)
        );
    }
}

/// Packets made of scapy's layers, and the replies decoded by them.
const SENDER: &str = r#"
import socket, sys, time
from decimal import Decimal
from scapy.contrib.stamp import *
there = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
there.settimeout(20)
there.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 77)
there.connect(("127.0.0.1", int(sys.argv[1])))
def now():
    return Decimal(time.time_ns()) / 10**9 + 2208988800
for number in range(10):
    began = now()
    # Its names of the flags begin at the other end of the byte.
    padding = [STAMPTestTLV(flags=0x80, type=1, len=number, value=b"x" * number),
        STAMPTestTLV(flags=0x80, type=200, len=2, value=b"yz")]
    asked = STAMPSessionSenderTestUnauthenticated(seq=100 + number, ts=began, ssid=7, tlv_objects=padding if number else [],
        err_estimate=ErrorEstimate(S=1, scale=3, multiplier=9))
    there.send(bytes(asked))
    data = there.recv(65536)
    ended = now()
    assert len(data) == len(bytes(asked)), (len(data), len(bytes(asked)))
    got = STAMPSessionReflectorTestUnauthenticated(data)
    assert (got.seq, got.seq_sender, got.ssid, got.mbz1, got.mbz2) == (number, 100 + number, 7, 0, 0), got.show(dump=True)
    assert bytes(got.err_estimate_sender)[:2] == bytes(asked.err_estimate)[:2] and got.err_estimate.multiplier > 0
    assert data[28:36] == bytes(asked)[4:12]
    assert got.ttl_sender == (77 if number else 0), got.ttl_sender
    assert began <= got.ts_rx + Decimal("1e-6") and got.ts_rx <= got.ts <= ended + Decimal("1e-6"), (began, got.ts_rx, got.ts, ended)
    flags = [(t.type, int(t.flags)) for t in got.tlv_objects]
    assert flags == ([(1, 0), (200, 0x80)] if number else []), flags
print("all well")
"#;

#[test]
fn scapy_asks_our_reflector() {
    let (_server, url) = serving(&["--protocol", "stamp"]);
    let port = url.rsplit(':').next().unwrap();
    assert_eq!(script(SENDER, &[port]).1, "all well");
}

/// Lets packets pass between our two ends over a socket of its own, and keeps them: to port 862, and from there.
fn overheard(peer: &'static str, size: u32) -> Vec<(bool, Vec<u8>)> {
    let (_server, url) = serving(&["--protocol", peer]);
    let relay = UdpSocket::bind("127.0.0.1:0").unwrap();
    relay.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let place = format!("udp://{}", relay.local_addr().unwrap());
    let ours = std::thread::spawn(move || {
        linkgauge(&format!("latency {place} --protocol {peer} -n 5 --warm-up 0 --size {size} --timeout 20s"))
            .got_all_replies(5);
    });
    let remote: std::net::SocketAddr = url.strip_prefix("udp://").unwrap().parse().unwrap();
    let (mut packets, mut local, mut room) = (Vec::new(), None, [0; 2000]);
    while packets.len() < 10 {
        let (length, from) = relay.recv_from(&mut room).unwrap();
        let asks = from != remote;
        if asks {
            local = Some(from);
        }
        relay.send_to(&room[..length], if asks { remote } else { local.unwrap() }).unwrap();
        packets.push((asks, room[..length].to_vec()));
    }
    ours.join().unwrap();
    packets
}

/// A capture file of UDP over IPv4 without link headers, to and from port 862.
fn capture(packets: &[(bool, Vec<u8>)], path: &Path) {
    let mut file = Vec::new();
    // pcap, little-endian, version 2.4, whole packets, raw IP.
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 101] {
        file.extend(word.to_le_bytes());
    }
    for (asks, payload) in packets {
        let length = payload.len() as u16;
        for word in [1_735_689_600, 0, u32::from(length) + 28, u32::from(length) + 28] {
            file.extend(word.to_le_bytes());
        }
        file.extend([0x45, 0]);
        file.extend((length + 28).to_be_bytes());
        file.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1]);
        let ports: [u16; 2] = if *asks { [40_000, 862] } else { [862, 40_000] };
        ports.iter().for_each(|port| file.extend(port.to_be_bytes()));
        file.extend((length + 8).to_be_bytes());
        file.extend([0, 0]);
        file.extend(payload);
    }
    std::fs::write(path, file).unwrap();
}

#[test]
fn wireshark_decodes_our_packets() {
    for (peer, size) in [("stamp", 44), ("twamp-light", 41), ("twamp-light", 100)] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("test.pcap");
        capture(&overheard(peer, size), &path);
        let fields = [
            "udp.srcport",
            "twamp.test.seq_number",
            "twamp.test.sender_seq_number",
            "_ws.malformed",
            "_ws.expert",
        ];
        let output = Command::new("tshark")
            .args(["-r", path.to_str().unwrap(), "-d", "udp.port==862,twamp.test", "-T", "fields"])
            .args(fields.iter().flat_map(|field| ["-e", field]))
            .output()
            .expect("tshark is needed for this test: apt-get install tshark");
        let read = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<Vec<&str>> = read.lines().map(|line| line.split('\t').collect()).collect();
        assert_eq!(lines.len(), 10, "{}", String::from_utf8_lossy(&output.stderr));
        for (index, line) in lines.iter().enumerate() {
            let number = (index / 2).to_string();
            // It takes a long request for a reply, whose number is at the position of our zeros.
            let (from, of_sender) = if index % 2 == 0 { ("40000", "0") } else { ("862", number.as_str()) };
            assert_eq!(*line, [from, number.as_str(), of_sender, "", ""], "{peer} {size}:\n{read}");
        }
    }
}
