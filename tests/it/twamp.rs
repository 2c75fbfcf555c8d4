//! TWAMP with both ends ours, and with servers that do not follow it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use linkgauge::run::Run;

use crate::client::free_port;
use crate::program::{Running, run};

/// A server on a free port of this host; the URL of its clients.
fn serving() -> (Running, String) {
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let mut server = Running::start(&["serve", "--protocol", "twamp", &format!("tcp://{address}")]);
    let lines = BufReader::new(server.0.stdout.take().unwrap()).lines();
    assert_eq!(lines.take(2).filter(Result::is_ok).count(), 2, "it serves both");
    (server, format!("twamp://{address}"))
}

#[test]
fn each_flow_has_a_session() {
    let (_server, url) = serving();
    let flags = ["--count", "20", "--rate", "200/s", "--parallel", "3", "--warm-up", "0", "--json", "-"];
    let ended = run(&[&["latency", url.as_str()][..], &flags].concat());
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    let document = Run::from_json(&ended.stdout).unwrap();
    let figures = &document.cases[0].figures;
    assert_eq!((figures.counts.sent, figures.counts.received), (60, 60));
    let ways = figures.one_way.as_ref().unwrap();
    assert_eq!((ways.forward_lost, ways.reverse_lost), (Some(0), Some(0)));
    assert_eq!(document.cases[0].protocol, "twamp");
}

#[test]
fn shorter_requests_than_replies_are_answered_on_a_control_connection_only() {
    let (_server, url) = serving();
    let ended = run(&["latency", &url, "--count", "3", "--size", "14", "--warm-up", "0"]);
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    let udp = url.replace("twamp://", "udp://");
    let arguments = ["latency", &udp, "--protocol", "twamp-light", "--count", "3", "--timeout", "100ms"];
    let ended = run(&arguments);
    assert_eq!(ended.status, Some(2), "{}", ended.stdout);
}

/// What a server does with its connection.
type Dialogue = fn(&mut TcpStream);

fn greet(stream: &mut TcpStream, modes: u8) {
    let mut greeting = [0; 64];
    greeting[15] = modes;
    let _ = stream.write_all(&greeting);
}

/// Reads a message of the client, and replies with these bytes and zeros.
fn answer(stream: &mut TcpStream, request_bytes: usize, first: &[u8], reply_bytes: usize) {
    let _ = stream.read_exact(&mut vec![0; request_bytes]);
    let mut reply = vec![0; reply_bytes];
    reply[..first.len()].copy_from_slice(first);
    let _ = stream.write_all(&reply);
}

#[test]
fn servers_that_do_not_follow_it_get_one_line() {
    let dialogues: [(Dialogue, &str); 6] = [
        (|_| {}, "closed the link"),
        (|stream| greet(stream, 0), "the server wants no connection from this host"),
        (|stream| greet(stream, 2), "the server has no open mode (its modes are 2)"),
        (
            |stream| {
                let _ = stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n");
                let _ = stream.read(&mut [0; 1]);
            },
            "check that it speaks TWAMP with a control connection",
        ),
        (
            |stream| {
                greet(stream, 1);
                answer(stream, 164, &[0; 15], 48);
                answer(stream, 112, &[5], 48);
            },
            "a test session: the server lacks the resources for it now",
        ),
        (
            |stream| {
                greet(stream, 1);
                answer(stream, 164, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3], 48);
            },
            "the open mode: the server does not support it",
        ),
    ];
    for (dialogue, text) in dialogues {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("twamp://{}", listener.local_addr().unwrap());
        let server = thread::spawn(move || dialogue(&mut listener.accept().unwrap().0));
        let ended = run(&["latency", &url, "--count", "3", "--timeout", "5s"]);
        server.join().unwrap();
        assert_eq!((ended.status, ended.stderr.lines().count()), (Some(2), 1), "{text}: {}", ended.stderr);
        assert!(ended.stderr.contains(text), "{text}: {}", ended.stderr);
    }
}
