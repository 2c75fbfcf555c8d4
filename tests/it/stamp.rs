//! STAMP and TWAMP-Light with judges that none of us wrote: scapy's packets at either end, and Wireshark's decoder. Then
//! our two ends together, on the virtual clock to the nanosecond, and far ends that lie.

use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use linkgauge::run::{Run, Ways};
use serde_json::Value;

use super::peers::{Said, linkgauge};
use super::program::{Running, python};
use super::virtual_net::VirtualNet;

/// `linkgauge serve` of a peer over UDP, and its URL.
fn serving(arguments: &[&str]) -> (Running, String) {
    let mut server = Running::start(&[&["serve", "udp://127.0.0.1:0"], arguments].concat());
    let mut line = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let url = line.trim_end().rsplit_once(" on ").expect("serving … on …").1.to_owned();
    (server, url)
}

fn ways(said: &Said) -> Ways {
    serde_json::from_value(said.case()["ways"].clone()).unwrap()
}

/// A reflector made of scapy's layers, which takes 2 ms for an answer. Says its port; ends by itself.
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
answers = 0
while True:
    data, sender = here.recvfrom(65536)
    came = now()
    asked = STAMPSessionSenderTestUnauthenticated(data)
    assert asked.err_estimate.Z == 0 and asked.err_estimate.multiplier > 0 and asked.mbz == 0, asked
    assert [(t.type, int(t.flags)) for t in asked.tlv_objects] == ([(1, 0x80)] if len(data) > 44 else []), asked
    time.sleep(0.002)
    answer = STAMPSessionReflectorTestUnauthenticated(
        seq=answers, ts=now(), err_estimate=ErrorEstimate(S=1, scale=10, multiplier=5), ssid=asked.ssid, ts_rx=came,
        seq_sender=asked.seq, ts_sender=asked.ts, err_estimate_sender=asked.err_estimate, tlv_objects=asked.tlv_objects)
    here.sendto(bytes(answer), sender)
    answers += 1
"#;

/// The tests' Python with a script that says one line when it is ready.
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
        let said =
            linkgauge(&format!("latency {url} --peer stamp -n 50 --warm-up 3 --size {size} --timeout 20s"))
                .clean();
        assert_eq!((said.count("received"), said.count("message_bytes")), (50, size));
        let (ways, got) = (ways(&said), &said.case()["got"]);
        assert!(ways.turnaround_ns.min >= 1_900_000, "it slept 2 ms: {:?}", ways.turnaround_ns);
        assert!(ways.path_ns.max < said.case()["latency_ns"]["max"].as_u64().unwrap() - 1_900_000);
        assert_eq!((ways.lost_there, ways.lost_back), (Some(0), Some(0)));
        assert_eq!(
            (&got["far_clock_synchronised"], &got["ttl_at_far_end"]),
            (&Value::from(true), &Value::from(255))
        );
        assert!(got["far_clock_error_seconds"].as_f64().is_some_and(|error| (error - 1.192e-6).abs() < 1e-9));
    }
}

/// Packets made of scapy's layers, and what comes back read by them.
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
    let (_server, url) = serving(&["--peer", "stamp"]);
    let port = url.rsplit(':').next().unwrap();
    assert_eq!(script(SENDER, &[port]).1, "all well");
}

/// Lets packets pass between our two ends over a socket of its own, and keeps them: to port 862, and from there.
fn overheard(peer: &'static str, size: u32) -> Vec<(bool, Vec<u8>)> {
    let (_server, url) = serving(&["--peer", peer]);
    let relay = UdpSocket::bind("127.0.0.1:0").unwrap();
    relay.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let place = format!("udp://{}", relay.local_addr().unwrap());
    let ours = std::thread::spawn(move || {
        linkgauge(&format!("latency {place} --peer {peer} -n 5 --warm-up 0 --size {size} --timeout 20s"))
            .answered_all(5);
    });
    let far: std::net::SocketAddr = url.strip_prefix("udp://").unwrap().parse().unwrap();
    let (mut packets, mut near, mut room) = (Vec::new(), None, [0; 2000]);
    while packets.len() < 10 {
        let (length, from) = relay.recv_from(&mut room).unwrap();
        let asks = from != far;
        if asks {
            near = Some(from);
        }
        relay.send_to(&room[..length], if asks { far } else { near.unwrap() }).unwrap();
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
fn wireshark_reads_what_we_say() {
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
            // It takes a long request for an answer, whose number stands where we have zeros.
            let (from, of_sender) = if index % 2 == 0 { ("40000", "0") } else { ("862", number.as_str()) };
            assert_eq!(*line, [from, number.as_str(), of_sender, "", ""], "{peer} {size}:\n{read}");
        }
    }
}

#[test]
fn both_ends_are_ours() {
    let directory = tempfile::tempdir().unwrap();
    let key = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (key, wrong) = (key("key", "secret\n"), key("wrong", "hex:00"));
    let (_open, open) = serving(&["--peer", "stamp"]);
    let (_stateless, stateless) = serving(&["--peer", "stamp", "--stateless"]);
    let (_light, light) = serving(&["--peer", "twamp-light"]);
    let (_signed, signed) = serving(&["--peer", "stamp", "--token-file", &key]);
    for line in [
        format!("{open} --peer stamp"),
        format!("{open} --peer stamp --rate 2000/s -P 3 --timeout 20s"),
        format!("{open} --peer stamp --size 1472 --spin"),
        format!("{open} --peer twamp-light --size 44"),
        format!("{stateless} --peer stamp"),
        format!("{light} --peer twamp-light"),
        format!("{light} --peer stamp --size 100"),
        format!("{signed} --peer stamp --authenticated --token-file {key}"),
        format!("{signed} --peer stamp --authenticated --token-file {key} --size 500"),
    ] {
        let said = linkgauge(&format!("latency {line} -n 300 --warm-up 10")).clean();
        let count = if line.contains("-P 3") { 900 } else { 300 };
        assert_eq!((said.count("received"), said.count("lost")), (count, 0), "{line}");
        let ways = ways(&said);
        assert_eq!((ways.path_ns.count, ways.turnaround_ns.count), (count, count));
        assert!(ways.turnaround_ns.max > 0 && ways.path_ns.min > 0, "{line}: {ways:?}");
        // Both clocks are one, so nobody is further ahead of the other than the bound allows.
        assert!(ways.clock_offset_ns.abs() <= ways.one_way_error_bound_ns + 50_000.0, "{line}: {ways:?}");
        assert_eq!(said.case()["got"]["authenticated"], line.contains("--authenticated"));
    }
    let lost = |line: &str| linkgauge(&format!("latency {line} -n 3 --warm-up 0 --timeout 200ms"));
    lost(&format!("{signed} --peer stamp")).refused(&["none of 3 messages came through"]);
    lost(&format!("{signed} --peer stamp --authenticated --token-file {wrong}"))
        .refused(&["none of 3 messages came"]);
    lost(&format!("{open} --peer stamp --authenticated")).refused(&["--token-file"]);
    lost(&format!("{open} --peer stamp --size 43"))
        .refused(&["a packet of stamp has 44, or 48 and more bytes"]);
    // An answer would be longer than the question.
    lost(&format!("{light} --peer twamp-light --size 14")).refused(&["none of 3 messages came through"]);
    lost("tcp://127.0.0.1:862 --peer stamp").refused(&["needs messages, not a stream"]);
    lost("udp://127.0.0.1:862 --peer echo --authenticated")
        .refused(&["peer echo has no option 'authenticated'"]);
}

/// A run over a made-up network; `more` stands in the URL of the near end.
fn virtually(peer: &str, url: &str, more: &str) -> Run {
    VirtualNet::serving(peer).run(&format!(
        "[[case]]\nurl = \"{url}\"\nworkload = \"latency\"\npeer = \"{peer}\"\nwarm_up_count = 0\n{more}"
    ))
}

#[test]
fn a_path_of_known_length_has_that_length() {
    for peer in ["stamp", "twamp-light"] {
        let run = virtually(peer, "mem://far-messages?type=message&delay=3ms", "count = 200\n");
        let figures = &run.cases[0].figures;
        let ways = figures.ways.as_ref().unwrap();
        assert_eq!((ways.path_ns.min, ways.path_ns.max, ways.turnaround_ns.max), (6_000_000, 6_000_000, 0));
        assert_eq!((ways.there_variation_ns.max, ways.back_variation_ns.max), (0, 0));
        assert_eq!((ways.one_way_error_bound_ns, ways.clock_drift_ppm), (3e6, 0.0));
        assert_eq!((ways.there_p50_ns, ways.back_p50_ns), (3e6, 3e6));
    }
}

#[test]
fn losses_are_told_apart_by_the_way() {
    // Every fourth message is lost, each way: of 100 requests 25, and of the 75 answers 18.
    let url = "mem://far-messages?type=message&delay=1ms&drop=4";
    let run = virtually("stamp", url, "count = 100\ntimeout = \"10ms\"\n");
    let figures = &run.cases[0].figures;
    let ways = figures.ways.as_ref().unwrap();
    assert_eq!((figures.sent, figures.lost), (100, 43));
    let (there, back) = ways.lost_there.zip(ways.lost_back).unwrap();
    // What was lost after the last answer is nobody's to tell.
    assert!(there + back == 43 && (23..=25).contains(&there), "{there} there, {back} back");
}

/// A far end that answers each packet with what `answer` makes of it and of the last answer an honest reflector would
/// give; serves until the test program ends.
fn liar(answer: impl Fn(usize, &[u8]) -> Vec<Vec<u8>> + Send + 'static) -> String {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let url = format!("udp://{}", socket.local_addr().unwrap());
    std::thread::spawn(move || {
        let mut room = [0; 2000];
        for number in 0.. {
            let Ok((length, from)) = socket.recv_from(&mut room) else { return };
            for answer in answer(number, &room[..length]) {
                let _ = socket.send_to(&answer, from);
            }
        }
    });
    url
}

/// What a liar does to an honest answer.
type Change = fn(&mut Vec<u8>);

/// What an honest reflector answers at once.
fn honest(asked: &[u8]) -> Vec<u8> {
    let mut answer = vec![0; 44];
    answer[..16].copy_from_slice(&asked[..16]);
    answer[16..24].copy_from_slice(&asked[4..12]);
    answer[24..28].copy_from_slice(&asked[..4]);
    answer[28..38].copy_from_slice(&asked[4..14]);
    answer
}

#[test]
fn liars_are_counted_and_never_waited_for() {
    let waiting = |timeout: &str, url: &str| {
        linkgauge(&format!("latency {url} --peer stamp -n 20 --warm-up 0 --timeout {timeout}"))
    };
    // What is answered at all is answered in time, on a busy machine too.
    let patiently = |url: &str| waiting("10s", url);
    let measure = |url: &str| waiting("100ms", url);
    patiently(&liar(|_, asked| vec![honest(asked)])).answered_all(20);

    let with = |change: Change| {
        liar(move |_, asked| {
            let mut answer = honest(asked);
            change(&mut answer);
            vec![answer]
        })
    };
    let strange: [(&str, Change); 6] = [
        ("too short", |answer| answer.truncate(20)),
        ("another session", |answer| answer[14] ^= 1),
        ("gone before it came", |answer| answer[4] -= 1),
        ("no error estimate", |answer| answer[13] = 0),
        ("a number never sent", |answer| answer[24] = 0x80),
        ("no time of PTP", |answer| {
            answer[12..24].copy_from_slice(&[0x7f, 1, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff])
        }),
    ];
    for (what, change) in strange {
        let said = measure(&with(change));
        assert!(said.took < Duration::from_secs(20), "{what}: {:?}", said.took);
        assert_eq!((said.count("corrupt_messages"), said.count("received")), (20, 0), "{what}: {}", said.run);
        said.refused(&["none of 20 messages was answered", "does the server speak stamp"]);
    }
    let other = measure(&liar(|_, _| vec![b"220 mail.example ESMTP".to_vec()]));
    other.refused(&["none of 20 messages was answered"]);
    measure(&liar(|_, _| Vec::new())).refused(&["no answer in time: the server is silent"]);

    // Two hours at the far end of a round trip of microseconds: answered, and corrupt.
    let said = patiently(&with(|answer| answer[5] = answer[5].wrapping_add(1)));
    assert_eq!((said.count("received"), said.count("corrupt_messages")), (20, 20), "{}", said.run);
    assert!(said.case().get("ways").is_none());

    // Everything twice, and the first answer ever after.
    let said = patiently(&liar(|_, asked| vec![honest(asked), honest(asked)]));
    assert_eq!(said.count("received"), 20);
    assert!((18..=20).contains(&said.count("duplicate")), "{}", said.run);
    assert!(codes(&said).contains(&"duplicate".to_owned()), "{}", said.run);
    let first = std::sync::Mutex::new(None);
    let said = waiting(
        "300ms",
        &liar(move |_, asked| vec![first.lock().unwrap().get_or_insert_with(|| honest(asked)).clone()]),
    );
    assert_eq!(
        (said.count("received"), said.count("duplicate"), said.count("lost")),
        (1, 19, 19),
        "{}",
        said.run
    );
}

#[test]
fn strangers_get_nothing() {
    let (_server, url) = serving(&["--peer", "stamp"]);
    let place = url.strip_prefix("udp://").unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    for stranger in [&b"hello"[..], &[0; 43], &[0; 44], &[0; 2000]] {
        socket.send_to(stranger, place).unwrap();
        assert!(socket.recv(&mut [0; 100]).is_err(), "{} bytes were answered", stranger.len());
    }
    let mut asked = [0; 44];
    asked[13] = 1;
    socket.send_to(&asked, place).unwrap();
    assert_eq!(socket.recv(&mut [0; 100]).unwrap(), 44);
}

#[test]
fn a_reflector_that_vanishes_is_one_line() {
    let (server, url) = serving(&["--peer", "stamp"]);
    let client =
        std::thread::spawn(move || linkgauge(&format!("latency {url} --peer stamp -t 20s --timeout 500ms")));
    std::thread::sleep(Duration::from_secs(3));
    drop(server);
    let said = client.join().unwrap();
    assert_eq!(said.status, 2);
    assert!(said.took < Duration::from_secs(15) && said.count("received") > 0, "{}", said.errors);
    assert!(
        said.errors.lines().count() == 1 && said.errors.contains("Connection refused"),
        "{}",
        said.errors
    );
}

fn codes(said: &Said) -> Vec<String> {
    let warnings = said.case()["warnings"].as_array().unwrap();
    warnings.iter().map(|warning| warning["code"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_remote_clock_that_is_set_and_replies_before_their_request_are_reported() {
    let measure = |url: &str| {
        linkgauge(&format!("latency {url} --peer stamp -n 40 --rate 100/s --warm-up 0 --timeout 10s"))
    };
    // By the time of day, so that nothing arrives before it was sent.
    let later = |answer: &mut [u8], seconds: u64| {
        let unix = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let fraction = (u64::from(unix.subsec_nanos()) << 32) / 1_000_000_000;
        let time = (unix.as_secs() + 2_208_988_800 + seconds) << 32 | fraction;
        for at in [4, 16] {
            answer[at..at + 8].copy_from_slice(&time.to_be_bytes());
        }
    };
    // An hour forward, and back again.
    let said = measure(&liar(move |number, asked| {
        let mut answer = honest(asked);
        later(&mut answer, if (10..30).contains(&number) { 3_600 } else { 0 });
        vec![answer]
    }));
    assert_eq!((said.count("received"), ways(&said).clock_steps), (40, 2), "{}", said.run);
    assert!(ways(&said).there_variation_ns.max < 3_000_000_000, "{}", said.run);
    assert!(codes(&said).contains(&"remote_clock_set".to_owned()), "{}", said.run);

    let steady = measure(&liar(move |_, asked| {
        let mut answer = honest(asked);
        later(&mut answer, 3_600);
        vec![answer]
    }));
    assert_eq!((steady.count("received"), ways(&steady).clock_steps), (40, 0), "{}", steady.run);
    for code in ["remote_clock_set", "early", "duplicate"] {
        assert!(!codes(&steady).contains(&code.to_owned()), "{}", steady.run);
    }

    // Beside each reply the one to a request that is due long after.
    let said = measure(&liar(|_, asked| {
        let mut early = honest(asked);
        let number = u32::from_be_bytes(asked[..4].try_into().unwrap());
        early[24..28].copy_from_slice(&(number + 1_000).to_be_bytes());
        vec![honest(asked), early]
    }));
    assert_eq!(said.count("received"), 40, "{}", said.run);
    assert!((39..=40).contains(&said.count("early")), "{}", said.run);
    assert!(codes(&said).contains(&"early".to_owned()), "{}", said.run);
}
