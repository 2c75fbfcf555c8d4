//! Protocol `netio` over datagrams, against clients and servers of this file. Both ends use the same port, so each has
//! its own loopback address.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::thread::JoinHandle;
use std::time::Duration;

use linkgauge::run::Run;

use crate::program::{Ended, PATIENCE, Running, run};

const SERVER: &str = "127.0.0.1";
const CLIENT: &str = "127.0.0.2";

fn word(command: u32, data: u32) -> [u8; 8] {
    (u64::from(command) << 32 | u64::from(data)).to_be_bytes()
}

/// A port that is free for both at both addresses.
fn free_port() -> u16 {
    loop {
        let port = TcpListener::bind((SERVER, 0)).unwrap().local_addr().unwrap().port();
        if [SERVER, CLIENT].iter().all(|address| UdpSocket::bind((*address, port)).is_ok()) {
            return port;
        }
    }
}

/// `linkgauge serve --protocol netio` with a stream beside its datagrams.
fn serving(port: u16) -> Running {
    serving_with(port, &["--max-time", "1s"])
}

fn serving_with(port: u16, flags: &[&str]) -> Running {
    let urls = ["tcp", "udp"].map(|scheme| format!("{scheme}://{SERVER}:{port}"));
    let process = Running::start(&[&["serve", "--protocol", "netio", &urls[0], &urls[1]], flags].concat());
    crate::program::wait_until("the server", || TcpStream::connect((SERVER, port)).ok());
    process
}

fn client(port: u16, flags: &[&str]) -> (Ended, Option<Run>) {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("run.json");
    let url = format!("udp://{SERVER}:{port}?bind={CLIENT}");
    let fixed = ["throughput", &url, "--protocol", "netio", "--size", "1024", "--time", "300ms"];
    let ended = run(&[&fixed[..], flags, &["--quiet", "--json", json.to_str().unwrap()]].concat());
    let run = std::fs::read_to_string(&json).ok().map(|text| Run::from_json(&text).unwrap());
    (ended, run)
}

fn bounded(stream: TcpStream) -> TcpStream {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn read_message(stream: &mut TcpStream) -> [u8; 8] {
    let mut received = [0; 8];
    stream.read_exact(&mut received).unwrap();
    received
}

#[test]
fn client_and_server_agree_on_the_counts_of_each_direction() {
    let port = free_port();
    let _server = serving(port);
    let (ended, run) = client(port, &["--direction", "send,receive"]);
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    let run = run.unwrap();
    for (case, way) in run.cases.iter().zip(["tx", "rx"]) {
        let figures = &case.figures;
        assert!(
            figures.counts.received > 0
                && figures.counts.received + figures.counts.lost == figures.counts.sent,
            "{figures:?}"
        );
        let got = |what: &str| case.effective[&format!("{way}_{what}")].as_u64().unwrap();
        assert_eq!(got("bytes"), figures.counts.received * 1024);
        assert_eq!(
            got("loss_percent"),
            figures.counts.lost * 100 / figures.counts.sent,
            "cut off, as NETIO does"
        );
    }
}

/// The stream is silent while datagrams arrive.
#[test]
fn an_upload_may_take_longer_than_the_idle_time() {
    let port = free_port();
    let _server = serving_with(port, &["--idle", "1s"]);
    // The port may stand in the address to send from.
    let url = format!("udp://{SERVER}:{port}?bind={CLIENT}:{port}");
    let ended = run(&["throughput", &url, "--protocol", "netio", "-s", "1024", "-t", "2500ms", "-b", "1M"]);
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    let url = format!("udp://{SERVER}:{port}?bind={CLIENT}:1");
    let ended = run(&["throughput", &url, "--protocol", "netio", "-s", "1024", "-t", "1s"]);
    let message = "NETIO sends from the number of the server's port";
    assert!(ended.status == Some(2) && ended.stderr.contains(message), "{}", ended.stderr);
}

/// The messages and datagrams of an original client.
#[test]
fn a_server_follows_the_transcript() {
    let port = free_port();
    let _server = serving(port);
    let datagrams = UdpSocket::bind((CLIENT, port)).unwrap();
    datagrams.connect((SERVER, port)).unwrap();
    datagrams.set_read_timeout(Some(PATIENCE)).unwrap();
    // The stream comes from the same address.
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let address = |host: &str, port: u16| format!("{host}:{port}").parse::<std::net::SocketAddr>().unwrap();
    socket.bind(&address(CLIENT, 0).into()).unwrap();
    socket.connect(&address(SERVER, port).into()).unwrap();
    let mut stream = bounded(socket.into());
    for size in [1024, 64] {
        stream.write_all(&word(1, size)).unwrap();
        assert_eq!(read_message(&mut stream), word(1, size), "go");
        for _ in 0..20 {
            datagrams.send(&vec![0; size as usize]).unwrap();
        }
        std::thread::sleep(Duration::from_millis(300));
        stream.write_all(&word(3, size)).unwrap();
        assert_eq!(read_message(&mut stream), word(3, 20));
    }
    stream.write_all(&word(2, 1024)).unwrap();
    assert_eq!(datagrams.recv(&mut [0; 2000]).unwrap(), 1024);
    let [0, 0, 0, 3, count @ ..] = read_message(&mut stream) else { panic!("no result") };
    assert!(u32::from_be_bytes(count) > 0);
    stream.write_all(&word(0, 0)).unwrap();
    assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0, "QUIT closes");
}

/// Clients up to 1.31 with `-h`: the datagrams come from that address, the stream from another.
#[test]
fn datagrams_from_another_address_are_counted_for_the_client_that_announced_some() {
    let port = free_port();
    let _server = serving(port);
    let datagrams = UdpSocket::bind((CLIENT, port)).unwrap();
    let mut stream = bounded(TcpStream::connect((SERVER, port)).unwrap());
    for _ in 0..2 {
        stream.write_all(&word(1, 1024)).unwrap();
        assert_eq!(read_message(&mut stream), word(1, 1024), "go");
        for _ in 0..20 {
            datagrams.send_to(&[0; 1024], (SERVER, port)).unwrap();
        }
        std::thread::sleep(Duration::from_millis(300));
        stream.write_all(&word(3, 1024)).unwrap();
        assert_eq!(read_message(&mut stream), word(3, 20));
    }
    // A client with a forged address must not cause datagrams to it.
    stream.write_all(&word(2, 1024)).unwrap();
    assert_eq!(read_message(&mut stream), word(3, 1));
    datagrams.set_nonblocking(true).unwrap();
    assert!(datagrams.recv(&mut [0; 2000]).is_err());
}

#[test]
fn a_server_ignores_unexpected_messages() {
    let port = free_port();
    let _server = serving(port);
    let reply_to = |request: &[u8]| {
        let mut stream = bounded(TcpStream::connect((SERVER, port)).unwrap());
        stream.write_all(request).unwrap();
        let mut reply = [0; 8];
        stream.read_exact(&mut reply).ok().map(|()| reply)
    };
    assert_eq!(reply_to(&word(1, 65_508)), None, "no datagram is so long");
    // The destination is unknown: the count is that of one lost datagram. The original divides by that count.
    assert_eq!(reply_to(&word(2, 1024)), Some(word(3, 1)));
    let stranger = UdpSocket::bind(("127.0.0.3", 0)).unwrap();
    stranger.send_to(&[0; 100], (SERVER, port)).unwrap();
    assert_eq!(reply_to(&word(1, 1024)), Some(word(1, 1024)));
}

/// A server that replies to the first message with `go`, to the second with `result`, and reads no datagram.
fn server(port: u16, go: [u8; 8], result: [u8; 8]) -> JoinHandle<()> {
    let listener = TcpListener::bind((SERVER, port)).unwrap();
    std::thread::spawn(move || {
        let _datagrams = UdpSocket::bind((SERVER, port)).unwrap();
        let mut stream = bounded(listener.accept().unwrap().0);
        for reply in [go, result] {
            if stream.read_exact(&mut [0; 8]).is_err() {
                return;
            }
            stream.write_all(&reply).unwrap();
        }
        let _ = stream.read_to_end(&mut Vec::new());
    })
}

/// A server over a link that fills a queue: it counts when the queue is empty, long after the sender has ended.
#[test]
fn queued_data_does_not_raise_the_rate_to_that_of_the_sender() {
    const QUEUE: Duration = Duration::from_millis(600);
    let port = free_port();
    let listener = TcpListener::bind((SERVER, port)).unwrap();
    let datagrams = UdpSocket::bind((SERVER, port)).unwrap();
    let server = std::thread::spawn(move || {
        let mut stream = bounded(listener.accept().unwrap().0);
        let go = read_message(&mut stream);
        stream.write_all(&go).unwrap();
        read_message(&mut stream);
        std::thread::sleep(QUEUE);
        datagrams.set_nonblocking(true).unwrap();
        let count = std::iter::from_fn(|| datagrams.recv(&mut [0; 2000]).ok()).count();
        stream.write_all(&word(3, count as u32)).unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let (ended, run) = client(port, &["--bit-rate", "500kbit/s"]);
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    server.join().unwrap();
    let case = &run.unwrap().cases[0];
    let (bytes, rate) = (
        case.figures.delivery.delivered_bytes.unwrap() - 1024,
        case.figures.delivery.throughput_bps.unwrap(),
    );
    let took = Duration::from_secs_f64(bytes as f64 * 8.0 / rate);
    let sender = Duration::from_nanos(case.effective["tx_ns"].as_u64().unwrap());
    assert!(bytes > 0 && took >= sender + QUEUE / 2, "{took:?} {sender:?}");
}

/// The original divides by the time of a round in steps of 1/1024 s.
#[test]
fn the_opening_round_takes_a_time_that_can_be_divided_by() {
    let port = free_port();
    let listener = TcpListener::bind((SERVER, port)).unwrap();
    let datagrams = UdpSocket::bind((SERVER, port)).unwrap();
    let server = std::thread::spawn(move || {
        let mut stream = bounded(listener.accept().unwrap().0);
        let go = read_message(&mut stream);
        let began = std::time::Instant::now();
        stream.write_all(&go).unwrap();
        read_message(&mut stream);
        let took = began.elapsed();
        stream.write_all(&word(3, 1)).unwrap();
        assert_eq!(read_message(&mut stream), word(2, 1024));
        for _ in 0..10 {
            datagrams.send_to(&[0; 1024], (CLIENT, port)).unwrap();
        }
        std::thread::sleep(Duration::from_millis(100));
        stream.write_all(&word(3, 10)).unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
        took
    });
    let (ended, run) = client(port, &["--direction", "receive"]);
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    let took = server.join().unwrap();
    assert!(took >= Duration::from_millis(10), "{took:?}");
    assert_eq!(run.unwrap().cases[0].figures.counts.received, 10);
}

#[test]
fn impossible_counts_get_one_clear_line() {
    let message = |go, result| {
        let port = free_port();
        let server = server(port, go, result);
        let (ended, _) = client(port, &["--timeout", "1s", "--bit-rate", "10Mbit/s"]);
        assert_eq!((ended.status, ended.stderr.lines().count()), (Some(2), 1), "{}", ended.stderr);
        server.join().unwrap();
        let line = ended.stderr.replace(&port.to_string(), "PORT");
        // The number of sent datagrams does not matter here.
        line.split(" of ")
            .map(|part| part.trim_start_matches(|c: char| c.is_ascii_digit()))
            .collect::<String>()
    };
    let go = word(1, 1024);
    insta::assert_snapshot!([
        message(go, word(3, u32::MAX)),
        message(go, word(1, 1)),
        message(word(1, 1 << 30), go),
        message(*b"HTTP/1.1", go),
    ].concat(), @r#"
    error: tcp://127.0.0.1:PORT?bind=127.0.0.2: 4294967295 datagrams arrived according to server and client: one count is wrong
    error: tcp://127.0.0.1:PORT?bind=127.0.0.2: it sent "\x00\x00\x00\x01\x00\x00\x00\x01", which is not NETIO: it may use another dialect
    error: tcp://127.0.0.1:PORT?bind=127.0.0.2: it sent "\x00\x00\x00\x01@\x00\x00\x00", which is not NETIO: it may use another dialect
    error: tcp://127.0.0.1:PORT?bind=127.0.0.2: it sent "HTTP/1.1", which is not NETIO: it may use another dialect
    "#);
    let port = free_port();
    let (ended, _) = client(port, &["--direction", "both"]);
    assert!(ended.stderr.contains("one direction at a time"), "{}", ended.stderr);
    let (ended, _) = client(port, &["--dialect", "a"]);
    assert!(ended.stderr.contains("dialect a has no datagrams"), "{}", ended.stderr);
}
