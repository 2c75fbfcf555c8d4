//! The protocol of iperf3 without iperf3: servers of another protocol, options that iperf3 lacks, and both ends ours.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;

use super::virtual_net::VirtualNet;
use crate::client::{ClientRun, linkgauge};
use crate::program::run;

/// Our client against a server that sends these messages to each client, and then listens or closes.
fn against(words: &'static [u8], closes: bool) -> ClientRun {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.write_all(words);
        if !closes {
            let _ = stream.read_to_end(&mut Vec::new());
        }
    });
    linkgauge(&format!("throughput tcp://127.0.0.1:{port} --protocol iperf3 -t 200ms --timeout 1s"))
}

#[test]
fn a_server_that_is_not_iperf3_is_named_in_one_line() {
    against(b"HTTP/1.1 400 Bad Request\r\n\r\n", true).refused(&["the server is not iperf3", "HTTP/1.1 400"]);
    against(b"SSH-2.0-OpenSSH_9.2\r\n", false).refused(&[
        "the server is not iperf3",
        "SSH-2.0",
        "--protocol",
    ]);
    against(b"", false).refused(&["no iperf3 server replied in time"]);
    against(b"", true).refused(&["closed the connection: check that it is iperf3"]);
    against(b"\xFF", true).refused(&["the server is busy"]);
    against(b"\x09\xFE\x00\x00\x00\x8E\x00\x00\x00\x00", true).refused(&["user name and a password"]);
    against(b"\x09\x0B", false).refused(&["the server was stopped"]);
    against(b"\x09\x63", false).refused(&["the server sent 'c'"]);
    against(b"\x09", false).refused(&["did not reply in time"]);
    // Whether it has read our parameters by then is open.
    against(b"\x09", true).refused(&["the server closed the connection"]);
    against(b"\x09\x0A\x01\x02", true).refused(&["127.0.0.1"]);
}

#[test]
fn a_server_on_one_transport_says_which_tests_fail() {
    for (url, says) in [
        ("tcp://127.0.0.1:0", "Tests over UDP fail: they need udp://127.0.0.1:"),
        ("udp://127.0.0.1:0", "Each test fails: its control connection needs tcp://127.0.0.1:"),
    ] {
        let ended = run(&["serve", "--protocol", "iperf3", url, "--time", "100ms"]);
        assert!(ended.stderr.contains(says) && !ended.stderr.contains(":0 "), "{}", ended.stderr);
    }
    let both =
        run(&["serve", "--protocol", "iperf3", "tcp://127.0.0.1:0", "udp://127.0.0.1:0", "--time", "100ms"]);
    assert!(!both.stderr.contains("fail"), "{}", both.stderr);
}

#[test]
fn options_that_iperf3_lacks_are_refused_before_a_link_is_opened() {
    let refused = |flags: &str, word: &str| {
        linkgauge(&format!("throughput {flags} --protocol iperf3")).refused(&[word]);
    };
    refused("tcp://127.0.0.1:1 --warm-up 100ms", "whole seconds");
    refused("tcp://127.0.0.1:1 -P 200", "at most 128 connections");
    refused("tcp://127.0.0.1:1 --size 2Mi", "sizes from 1 to 1048576");
    refused("udp://127.0.0.1:1 --size 10", "sizes from 16 to 65507");
    refused("tcp://127.0.0.1:1 -d loop", "does not support the direction loop");
    refused("serial:///dev/null", "needs a network");
    refused("unix:///nowhere?type=dgram", "such links do not have");
}

#[test]
fn our_client_and_server_agree_to_the_byte_on_the_virtual_clock() {
    for direction in ["send", "receive", "both"] {
        for stop in ["volume = \"1M\"", "time = \"1s\""] {
            let case = format!(
                "[[case]]\nurl = \"mem://far?rate=8Mbit/s&delay=3ms\"\nprotocol = \"iperf3\"\nworkload = \"throughput\"\n\
                 direction = \"{direction}\"\nsize = 1000\nparallel = 2\n{stop}"
            );
            let run = VirtualNet::serving("iperf3").run(&case);
            let figures = &run.cases[0].figures;
            assert!(run.is_complete(), "{direction} {stop}: {:?}", run.cases[0].warnings);
            let volumes = [figures.delivery.delivered_bytes, figures.delivery.delivered_reverse_bytes];
            assert_eq!(
                (figures.counts.lost, figures.counts.sent),
                (0, figures.counts.received),
                "{direction} {stop}"
            );
            for delivered in volumes.into_iter().flatten() {
                // Whatever is in the buffers when time is over arrives as well, and the server sends on meanwhile.
                let whole =
                    if stop.starts_with("volume") { 2_000_000..2_200_000 } else { 2_000_000..6_300_000 };
                assert!(whole.contains(&delivered), "{direction} {stop}: {delivered}");
            }
            let rates = [figures.delivery.throughput_bps, figures.delivery.throughput_reverse_bps];
            for rate in rates.into_iter().flatten() {
                assert!((rate / 16e6 - 1.0).abs() < 0.05, "{direction} {stop}: {rate}");
            }
        }
    }
}
