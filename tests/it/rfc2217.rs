//! Serial ports behind device servers that reply wrongly, late or not at all.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use linkgauge::Registry;
use linkgauge::clock::Clock;
use linkgauge::link::{Fault, Link};

use crate::client::free_port;
use crate::program::{PATIENCE, run};

fn open(url: &str) -> Result<Box<dyn Link>, String> {
    Registry::standard().dialer(Clock::System).open(&url.parse().unwrap()).map_err(|error| error.to_string())
}

/// Runs a dishonest server for one client: it gets the connection and ends with it.
fn liar(lie: impl FnOnce(&mut TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("rfc2217://{}", listener.local_addr().unwrap());
    thread::spawn(move || lie(&mut listener.accept().unwrap().0));
    url
}

/// Holds the connection open and reads everything, until the client leaves.
fn take_all(stream: &mut TcpStream) {
    let _ = std::io::copy(stream, &mut std::io::sink());
}

fn refusal(lie: impl FnOnce(&mut TcpStream) + Send + 'static) -> String {
    let url = liar(lie);
    let error = open(&url).err().expect("the liar was believed");
    error.replace(url.trim_start_matches("rfc2217://"), "HOST")
}

/// Agrees to control of the port; returns when the client has begun to.
fn agree(stream: &mut TcpStream) {
    stream.write_all(b"\xff\xfd\x2c").unwrap();
    let mut bytes = [0; 1000];
    while !bytes.windows(2).any(|pair| pair == b"\xff\xfa") {
        let _ = stream.read(&mut bytes).unwrap();
    }
}

/// Eight data bits, no parity, one stop bit, no flow control are granted.
const SET: &[u8] =
    b"\xff\xfa\x2c\x66\x08\xff\xf0\xff\xfa\x2c\x67\x01\xff\xf0\xff\xfa\x2c\x68\x01\xff\xf0\xff\xfa\x2c\x69\x01\xff\xf0";

#[test]
fn a_server_without_rfc2217_is_recognised() {
    insta::assert_snapshot!(refusal(take_all), @"rfc2217://HOST: this is a raw port without Telnet (RFC 2217). Use tcp://HOST?baud=…");
    insta::assert_snapshot!(refusal(|stream| {
        stream.write_all(b"login: ").unwrap();
        take_all(stream);
    }), @"rfc2217://HOST: this is a raw port without Telnet (RFC 2217). Use tcp://HOST?baud=…");
    insta::assert_snapshot!(refusal(|stream| {
        let mut bytes = [0; 1000];
        while let Ok(length @ 1..) = stream.read(&mut bytes) {
            let _ = stream.write_all(&bytes[..length]);
        }
    }), @"rfc2217://HOST: sent bytes come back: this is a raw port with a loopback plug. Use tcp://…?baud=…");
    insta::assert_snapshot!(refusal(|stream| {
        stream.write_all(b"\xff\xfd\x03\xff\xfe\x2c").unwrap();
        take_all(stream);
    }), @"rfc2217://HOST: the server refuses control of its port (RFC 2217). Enable it there, or use tcp://HOST?baud=…");
    insta::assert_snapshot!(refusal(|stream| {
        stream.write_all(b"Port busy\r\n").unwrap();
    }), @"rfc2217://HOST: the server sent 'Port busy' and closed the connection");
    insta::assert_snapshot!(refusal(|_| {}), @"rfc2217://HOST: the server closed the connection before its port was ready. Check whether another client uses it");
    insta::assert_snapshot!(open("rfc2217://127.0.0.1").err().unwrap(), @"rfc2217://127.0.0.1: needed is the device server's host and port, like rfc2217://host:7001");
    let unused = format!("rfc2217://127.0.0.1:{}", free_port());
    assert!(open(&unused).err().unwrap().contains("the port is closed"));
}

#[test]
#[ignore = "long"]
fn a_server_that_replies_garbage_or_nothing_is_given_up() {
    let began = Instant::now();
    insta::assert_snapshot!(refusal(|stream| {
        stream.write_all(b"\xff\xfd\x03").unwrap();
        take_all(stream);
    }), @"rfc2217://HOST: the server uses Telnet, but did not agree to control of its port (RFC 2217) in 3 s: enable it there, or use tcp://HOST?baud=…");
    assert!(began.elapsed() >= Duration::from_secs(3));
    // It agrees, and stops in the middle of its first reply.
    insta::assert_snapshot!(refusal(|stream| {
        agree(stream);
        stream.write_all(&[SET, b"\xff\xfa\x2c\x65\x00\x00"].concat()).unwrap();
        take_all(stream);
    }), @"rfc2217://HOST: no reply in 3 s to the setting of the rate. See the device server's log");
    // It never stops negotiating.
    insta::assert_snapshot!(refusal(|stream| {
        let _ = stream.set_write_timeout(Some(PATIENCE));
        while stream.write_all(&b"\xff\xfd\x55\xff\xfb\x55\xff\xfc\x2c\xff\xfa\x63".repeat(100)).is_ok() {}
    }), @"rfc2217://HOST: the server uses Telnet, but did not agree to control of its port (RFC 2217) in 3 s: enable it there, or use tcp://HOST?baud=…");
    // It agrees, and sends without end.
    let flood = refusal(|stream| {
        agree(stream);
        while stream.write_all(&[7; 10_000]).is_ok() {}
    });
    assert!(flood.contains("sends data without end") || flood.contains("no reply in 3 s"), "{flood}");
}

#[test]
fn effective_settings_are_used() {
    let url = liar(|stream| {
        // 9580 is 9600 to any UART; seven data bits differ from the request.
        let odd = b"\xff\xfa\x2c\x65\x00\x00\x25\x6c\xff\xf0\xff\xfa\x2c\x66\x07\xff\xf0\xff\xfa\x2c\x70\x03\xff\xf0";
        agree(stream);
        stream.write_all(&[SET, odd, b"\xff\xfa\x2c\x6a\x08\xff\xf0hello"].concat()).unwrap();
        take_all(stream);
    });
    let mut link = open(&url).unwrap();
    assert_eq!(link.facts()["line_requested"], "9600 8N1");
    assert_eq!(link.facts()["line_granted"], "9580 7N1");
    let line = link.caps().link_rate.unwrap();
    assert_eq!((line.bits_per_second, line.bits_per_byte), (9580.0, 9.0));
    assert_eq!(link.port_control().unwrap().uart_errors().unwrap().framing, 1);

    insta::assert_snapshot!(refusal(|stream| {
        let slow = b"\xff\xfa\x2c\x65\x00\x00\x04\xb0\xff\xf0";
        agree(stream);
        stream.write_all(&[SET, slow].concat()).unwrap();
        take_all(stream);
    }), @"rfc2217://HOST: the port uses 1200 baud, 9600 were requested. Choose a rate that it supports");
}

/// The system accepts the second client of such a server, and its program does not.
#[test]
fn a_server_that_serves_another_client_is_no_raw_port() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("rfc2217://{}", listener.local_addr().unwrap());
    let error = open(&url).err().unwrap();
    assert!(error.contains("no program reads it: it probably serves another client"), "{error}");
}

#[test]
fn a_server_that_does_not_double_ff_is_noticed() {
    let url = liar(|stream| {
        agree(stream);
        let rate_9600 = b"\xff\xfa\x2c\x65\x00\x00\x25\x80\xff\xf0";
        stream.write_all(&[SET, rate_9600].concat()).unwrap();
        // Doubled, a command without content, and twice not doubled.
        let mut sent = Vec::new();
        while !sent.ends_with(b"go") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            sent.extend(byte);
        }
        stream.write_all(b"a\xff\xffb\xff\xf1c\xff\x00d\xff\x7fe").unwrap();
        take_all(stream);
    });
    let mut link = open(&url).unwrap();
    assert!(!link.facts().contains_key("undoubled_ff_bytes"));
    link.send(b"go", PATIENCE).unwrap();
    let mut received = Vec::new();
    while !received.ends_with(b"e") {
        let mut room = [0; 100];
        let length = link.receive(&mut room, PATIENCE).unwrap();
        received.extend_from_slice(&room[..length]);
    }
    assert_eq!(received, b"a\xffbcde");
    assert_eq!(link.facts()["undoubled_ff_bytes"], 2);
}

#[test]
fn a_device_server_that_goes_away_is_noticed() {
    let url = liar(|stream| {
        agree(stream);
        let rate_9600 = b"\xff\xfa\x2c\x65\x00\x00\x25\x80\xff\xf0";
        stream.write_all(&[SET, rate_9600].concat()).unwrap();
        let mut bytes = Vec::new();
        while !bytes.ends_with(b"bye") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            bytes.extend(byte);
        }
    });
    let mut link = open(&url).unwrap();
    assert!(!link.status().is_hung_up);
    link.send(b"bye", PATIENCE).unwrap();
    assert!(matches!(link.receive(&mut [0], PATIENCE), Err(Fault::Closed)));
    assert!(link.status().is_hung_up);
}

/// A raw port that speaks Telnet leads to the URL for it.
#[test]
fn telnet_on_a_raw_port_is_recognised() {
    let url = liar(|stream| {
        stream.write_all(b"\xff\xfd\x2c\xff\xfb\x03").unwrap();
        take_all(stream);
    });
    let raw = url.replace("rfc2217", "tcp");
    let ended = run(&["latency", &raw, "-n", "2", "--timeout", "200ms"]);
    assert_eq!(ended.status, Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("the port speaks Telnet"), "{}", ended.stderr);
    assert!(ended.stderr.contains(&format!("write {url}?baud=9600")), "{}", ended.stderr);
}
