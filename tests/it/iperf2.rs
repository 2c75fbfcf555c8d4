//! The protocol of iperf 2 without iperf: small servers that behave like lwiperf and zperf, servers of another protocol, and
//! both ends ours.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::thread::{self, JoinHandle};

use super::virtual_net::VirtualNet;
use crate::client::{ClientRun, linkgauge};

/// Our client with a server at this port.
fn throughput(url: &str, flags: &str) -> ClientRun {
    linkgauge(&format!("throughput {url} --protocol iperf2 --idle off -t 300ms --timeout 1s {flags}"))
}

/// The settings of a client, as lwiperf keeps them: the first 24 bytes.
type LwipSettings = [u8; 24];

/// The server of lwIP with one connection: it needs all settings in its first receive, compares the digits behind them if
/// `checks_digits` is set, and in tests with a return sends to the port of the settings, at once or afterwards.
fn lwiperf(checks_digits: bool) -> (String, JoinHandle<u64>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("tcp://{}", listener.local_addr().unwrap());
    let serve = move || {
        let (mut stream, client) = listener.accept().unwrap();
        let mut chunk = vec![0; 131_072];
        let first = stream.read(&mut chunk[..24]).unwrap();
        assert_eq!(first, 24, "all settings at once");
        let settings: LwipSettings = chunk[..24].try_into().unwrap();
        let word = |at: usize| u32::from_be_bytes(settings[at..at + 4].try_into().unwrap());
        let (flags, port) = (word(0), word(8) as u16);
        let send = move || {
            let mut back = TcpStream::connect((client.ip(), port)).unwrap();
            let block = [&settings[..], &[b'7'; 1000]].concat();
            (0..1024).for_each(|_| back.write_all(&block).unwrap());
        };
        let at_once = (flags >> 31 == 1 && flags & 1 == 1).then(|| thread::spawn(send));
        let (mut bytes, mut next) = (first as u64, b'4');
        loop {
            let length = stream.read(&mut chunk).unwrap();
            if length == 0 {
                break;
            }
            for byte in chunk[..length].iter().filter(|_| checks_digits) {
                assert_eq!(*byte, next, "after {bytes} bytes");
                next = if next == b'9' { b'0' } else { next + 1 };
            }
            bytes += length as u64;
        }
        drop(stream);
        match at_once {
            Some(sender) => sender.join().unwrap(),
            None if flags >> 31 == 1 => send(),
            None => {}
        }
        bytes
    };
    (url, thread::spawn(serve))
}

#[test]
fn lwiperf_receives_and_calls_back() {
    for (flags, checks_digits, settings) in [("", false, 60), ("--compat", true, 24)] {
        let (url, server) = lwiperf(checks_digits);
        let ours = throughput(&url, flags).clean();
        assert_eq!(server.join().unwrap(), ours.count("delivered_bytes") + settings, "{flags}");
    }
    let (url, server) = lwiperf(false);
    let ours = throughput(&url, "-R --callback 0").clean();
    assert_eq!((ours.count("delivered_bytes"), server.join().unwrap()), (1024 * 1024, 24));
    let (url, server) = lwiperf(false);
    let ours = throughput(&url, "--bidir --callback 0").clean();
    assert_eq!(ours.count("delivered_reverse_bytes"), 1024 * 1024);
    assert_eq!(server.join().unwrap(), ours.count("delivered_bytes") + 24);
}

/// The UDP server of zperf: numbers of 32 bits from 0, and a report of 52 bytes. `lost` datagrams are not counted, and
/// `unanswered` last ones get no report.
fn zperf(lost: u32, unanswered: u32) -> String {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let url = format!("udp://{}", socket.local_addr().unwrap());
    thread::spawn(move || {
        let (mut bytes, mut highest, mut lasts, mut room) = (0_u32, 0, 0, [0; 2000]);
        loop {
            let (length, from) = socket.recv_from(&mut room).unwrap();
            let number = i32::from_be_bytes(room[..4].try_into().unwrap());
            if lasts == 0 && !(1..=lost as i32).contains(&number) {
                bytes += length as u32;
            }
            highest = highest.max(number.unsigned_abs());
            if number >= 0 {
                continue;
            }
            lasts += 1;
            if lasts > unanswered {
                let words = [0, 0, 0, 0x8000_0000, 0, bytes, 0, 290_000, lost, 0, highest, 0, 7];
                let report: Vec<u8> = words.into_iter().flat_map(u32::to_be_bytes).collect();
                socket.send_to(&report, from).unwrap();
            }
        }
    });
    url
}

#[test]
fn zperf_reports_at_another_place() {
    for flags in ["", "--compat"] {
        for (lost, unanswered) in [(0, 0), (0, 2), (5, 0)] {
            let url = zperf(lost, unanswered);
            let ours = throughput(&url, &format!("--size 500 --bit-rate 1M {flags}")).clean();
            assert!(ours.count("sent") > 50);
            assert_eq!(
                ours.count("received"),
                ours.count("sent") - u64::from(lost),
                "{flags} {lost} {unanswered}"
            );
            assert_eq!(ours.case()["effective"]["outward_jitter_ns"], 7_000);
        }
    }
}

#[test]
fn a_server_that_is_not_iperf2_is_named_in_one_line() {
    // It reads datagrams and reports nothing.
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let url = format!("udp://{}", silent.local_addr().unwrap());
    throughput(&url, "--size 500 --bit-rate 1M").refused(&["no report of an iperf 2 server arrived"]);
    throughput(&url, "--size 500 --bit-rate 1M -R").refused(&["no datagram arrived", "--trust-senders"]);
    // As an iperf 2.0.5, it does not know --reverse.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("tcp://{}", listener.local_addr().unwrap());
    let _accepts = thread::spawn(move || listener.incoming().map_while(Result::ok).collect::<Vec<_>>());
    throughput(&url, "-R").refused(&["the server sends nothing", "--callback 0"]);
    throughput(&url, "-R --callback 0").refused(&["does not connect to --callback"]);
}

#[test]
fn options_that_iperf2_lacks_are_refused_before_a_link_is_opened() {
    let refused = |flags: &str, word: &str| {
        linkgauge(&format!("throughput {flags} --protocol iperf2")).refused(&[word]);
    };
    refused("tcp://127.0.0.1:1 --warm-up 1s", "has no warm-up");
    refused("tcp://127.0.0.1:1 -P 200", "at most 128 connections");
    refused("udp://127.0.0.1:1 --size 75", "76 to 65507 bytes, not 75");
    refused("udp://127.0.0.1:1 --size 35 --compat", "36 to 65507 bytes, not 35");
    refused("udp://127.0.0.1:1 -R --callback 0", "leave out --callback");
    refused("tcp://127.0.0.1:1 -R --compat", "--compat only sends");
    refused("tcp://127.0.0.1:1 -R --volume 3Gi", "at most 2147483647 bytes");
    refused("serial:///dev/null", "needs a network");
    linkgauge("latency udp://127.0.0.1:1 --protocol iperf2").refused(&["need a stream: use tcp"]);
    linkgauge("latency tcp://127.0.0.1:1 --protocol iperf2 --size 10")
        .refused(&["64 to 65536 bytes, not 10"]);
}

#[test]
fn our_client_and_server_agree_to_the_byte_on_the_virtual_clock() {
    for direction in ["send", "receive", "both"] {
        for stop in ["volume = \"1M\"", "time = \"1s\""] {
            let case = format!(
                "[[case]]\nurl = \"mem://far?rate=8Mbit/s&delay=3ms\"\nprotocol = \"iperf2\"\nworkload = \"throughput\"\n\
                 direction = \"{direction}\"\nsize = 1000\nparallel = 2\n{stop}"
            );
            let run = VirtualNet::serving("iperf2").run(&case);
            let figures = &run.cases[0].figures;
            assert!(run.is_complete(), "{direction} {stop}: {:?}", run.cases[0].warnings);
            assert_eq!(
                (figures.counts.lost, figures.counts.sent),
                (0, figures.counts.received),
                "{direction} {stop}"
            );
            let volumes = [figures.delivery.delivered_bytes, figures.delivery.delivered_reverse_bytes];
            for delivered in volumes.into_iter().flatten() {
                let whole =
                    if stop.starts_with("volume") { 2_000_000..2_000_001 } else { 1_900_000..6_300_000 };
                assert!(whole.contains(&delivered), "{direction} {stop}: {delivered}");
            }
        }
    }
}
