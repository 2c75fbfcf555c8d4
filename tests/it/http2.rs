//! Responsiveness over HTTP/2: our client and our server, and clients that break the rules.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use linkgauge::http2::{HttpMeasurement, HttpServer, HttpServerOptions, Trust, UNSENT_BYTES, measure};
use linkgauge::plan::Direction;

use crate::program::{command, run};

fn server() -> HttpServer {
    HttpServer::start(&HttpServerOptions::new("127.0.0.1:0".parse().unwrap())).unwrap()
}

fn plan(url: String, direction: Direction) -> HttpMeasurement {
    HttpMeasurement {
        url,
        trust: Trust::Anything,
        direction,
        connections: 2,
        time: Duration::from_millis(2500),
        idle: Duration::from_millis(200),
        probes_per_second: 20.0,
        timeout: Duration::from_secs(20),
        unsent_bytes: UNSENT_BYTES,
    }
}

#[test]
#[ignore = "long"]
fn both_directions_have_a_load_and_probes() {
    let server = server();
    for direction in [Direction::Send, Direction::Receive] {
        let result = measure(&plan(server.url(), direction), &AtomicBool::new(false), &|_, _| {}).unwrap();
        let responsiveness = result.figures.responsiveness.unwrap();
        assert!(responsiveness.goodput_bps > Some(1e6), "{direction:?} {responsiveness:?}");
        assert!(responsiveness.rpm > Some(0.0), "{direction:?} {responsiveness:?}");
        for figures in [&result.figures, &result.beside, &result.idle] {
            assert!(figures.counts.received > 0 && figures.times.latency_ns.is_some(), "{direction:?}");
        }
        assert_eq!(result.tls_version, "TLS 1.3");
    }
}

#[test]
fn a_certificate_without_an_authority_is_refused() {
    let server = server();
    let plan = HttpMeasurement { trust: Trust::System, ..plan(server.url(), Direction::Send) };
    let error = measure(&plan, &AtomicBool::new(false), &|_, _| {}).unwrap_err();
    // Without any trusted certificate on this host the refusal comes before the connection.
    let text = error.to_string();
    assert!(text.contains("certificate"), "{text}");
    let stranger = tempfile::NamedTempFile::new().unwrap();
    let made = rcgen::generate_simple_self_signed(["other".to_owned()]).unwrap();
    let encoded = STANDARD.encode(made.cert.der());
    let pem = format!("-----BEGIN CERTIFICATE-----\n{encoded}\n-----END CERTIFICATE-----\n");
    std::fs::write(stranger.path(), pem).unwrap();
    let plan = HttpMeasurement { trust: Trust::File(stranger.path().to_owned()), ..plan };
    let text = measure(&plan, &AtomicBool::new(false), &|_, _| {}).unwrap_err().to_string();
    let remedy = "Name its file with ?ca=FILE, or accept any with ?insecure=1";
    assert!(
        text.starts_with("TLS handshake: invalid peer certificate: ") && text.ends_with(remedy),
        "{text}"
    );
}

#[test]
fn the_commands_measure_and_name_what_is_wrong() {
    let server = server();
    let url = format!("{}?insecure=1", server.url());
    let ended = run(&["responsiveness", &url, "--time", "2s", "--idle", "200ms", "--no-store"]);
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""), "{}", ended.stdout);
    let answer: String = ended.stdout.lines().take(4).collect();
    assert!(answer.contains("RTT") && answer.contains("RPM") && !answer.contains("(https)"), "{answer}");
    assert!(!answer.contains("over 16 connections"), "{answer}");
    for (arguments, reason) in [
        (&["responsiveness", "https://127.0.0.1:4043?colour=blue"][..], "https has no option colour"),
        (&["responsiveness", "https://127.0.0.1:4043", "-d", "loop"], "use upload or download"),
        (&["serve", "https://127.0.0.1:0?key=x"], "a certificate needs its key"),
        (&["serve", "https://127.0.0.1:0", "tcp://127.0.0.1:0"], "cannot share a server"),
        (&["serve", "https://127.0.0.1:0", "--max-rate", "1M"], "--max-rate: https does not support it"),
    ] {
        let ended = run(arguments);
        assert_eq!((ended.status, ended.stderr.lines().count()), (Some(2), 1), "{}", ended.stderr);
        assert!(ended.stderr.contains(reason), "{}", ended.stderr);
    }
}

#[test]
fn a_server_prints_the_address_that_it_listens_on() {
    for host in ["0.0.0.0", "[::]", "127.0.0.1"] {
        let ended = run(&["serve", &format!("https://{host}:0"), "--time", "100ms"]);
        assert_eq!(ended.status, Some(0), "{}", ended.stderr);
        assert!(ended.stdout.starts_with(&format!("listening on https://{host}:")), "{}", ended.stdout);
    }
}

#[test]
fn a_server_that_is_not_there_is_an_error() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let output = command(&["responsiveness", &format!("https://{free}?insecure=1"), "--no-store"]).output();
    let output = output.unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{text}");
    let remedy =
        "no server listens on this port. Start 'linkgauge serve https://…' there, or name another port";
    assert!(text.contains("connection refused") && text.contains(remedy), "{text}");
}

#[test]
fn garbage_and_silence_leave_the_server_alive() {
    let server = server();
    let silent: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
    for length in 0..200 {
        let mut client = TcpStream::connect(server.address()).unwrap();
        let garbage: Vec<u8> =
            (0..length).map(|index: u32| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let _ = client.write_all(&garbage);
        drop(client);
    }
    // Plain HTTP is not TLS: the server closes.
    let mut plain = TcpStream::connect(server.address()).unwrap();
    plain.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    plain.write_all(b"GET /small HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut reply = Vec::new();
    let _ = plain.read_to_end(&mut reply);
    assert!(!reply.starts_with(b"HTTP"));
    let result =
        measure(&plan(server.url(), Direction::Receive), &AtomicBool::new(false), &|_, _| {}).unwrap();
    assert!(result.figures.counts.received > 0);
    drop(silent);
}
