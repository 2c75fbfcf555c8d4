//! Links against socat, as an echo server and as a client.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::UdpSocket;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use linkgauge::Registry;
use linkgauge::clock::Clock;
use linkgauge::link::Link;

use super::echo_server::EchoServer;

const LONG: Duration = Duration::from_secs(10);

/// A running socat that is ended, by its process id, with the test.
pub struct Socat {
    child: Child,
    /// Stays open: it would get an error for its next notice.
    notices: Option<BufReader<ChildStderr>>,
}

impl Socat {
    fn start(arguments: &[&str]) -> Socat {
        let child = Command::new("/usr/bin/socat")
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("socat is needed for this test: apt-get install socat");
        Socat { child, notices: None }
    }

    /// An echo server; returns when it is ready, with the place where it listens.
    fn echo(address: &str) -> (Socat, String) {
        Socat::listening(address, "PIPE")
    }

    /// A server that connects its clients to `other`; returns when it is ready, with the place where it listens.
    pub fn listening(address: &str, other: &str) -> (Socat, String) {
        // It ends if this process is killed.
        let mut socat = Socat::start(&["-d", "-d", "-T", "30", address, other]);
        let mut notices = BufReader::new(socat.child.stderr.take().unwrap());
        for line in notices.by_ref().lines().map_while(Result::ok) {
            if line.contains(" listening on ") || line.contains(" receiving on ") {
                let place = line.rsplit(' ').next().unwrap().trim_matches('"').to_owned();
                socat.notices = Some(notices);
                return (socat, place);
            }
        }
        panic!("socat {address} ended before it listened");
    }
}

impl Drop for Socat {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn open(url: &str) -> Box<dyn Link> {
    Registry::standard()
        .dialer(Clock::System)
        .open(&url.parse().unwrap())
        .unwrap_or_else(|error| panic!("{error}"))
}

/// Sends messages of several sizes and gets each back.
fn echoes(url: &str) {
    let mut link = open(url);
    for size in [1usize, 14, 1000, 3000] {
        let sent = vec![size as u8; size];
        assert_eq!(link.send(&sent, LONG).unwrap(), size);
        let (mut got, mut length) = (vec![0; size], 0);
        let until = Instant::now() + LONG;
        while length < size {
            length += link.receive(&mut got[length..], until - Instant::now()).unwrap();
        }
        assert!(got == sent, "{url}: {size} bytes came back different");
    }
}

#[test]
fn tcp_to_socat() {
    let (_socat, place) = Socat::echo("TCP-LISTEN:0,bind=127.0.0.1,fork");
    echoes(&format!("tcp://{place}"));
}

#[test]
fn udp_to_socat() {
    let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (_socat, place) = Socat::echo(&format!("UDP-RECVFROM:{free},bind=127.0.0.1,fork"));
    echoes(&format!("udp://{place}"));
}

#[test]
fn unix_stream_to_socat() {
    let directory = tempfile::tempdir().unwrap();
    let (_socat, place) = Socat::echo(&format!("UNIX-LISTEN:{}/s,fork", directory.path().display()));
    echoes(&format!("unix://{place}"));
}

#[test]
fn unix_seqpacket_to_socat() {
    let directory = tempfile::tempdir().unwrap();
    let (_socat, place) = Socat::echo(&format!("UNIX-LISTEN:{}/s,fork,type=5", directory.path().display()));
    echoes(&format!("unix://{place}?type=seqpacket"));
}

#[test]
fn unix_dgram_to_socat() {
    let directory = tempfile::tempdir().unwrap();
    let (_socat, place) = Socat::echo(&format!("UNIX-RECVFROM:{}/s,fork", directory.path().display()));
    echoes(&format!("unix://{place}?type=dgram"));
}

/// One line through a socat client, three times on one connection.
fn gets_replies(address: &str) {
    let mut socat = Socat::start(&["-T", "10", "STDIO", address]);
    let mut stdin = socat.child.stdin.take().unwrap();
    let mut stdout = socat.child.stdout.take().unwrap();
    for line in ["one", "two", "three"] {
        stdin.write_all(line.as_bytes()).unwrap();
        let mut got = vec![0; line.len()];
        stdout.read_exact(&mut got).unwrap();
        assert_eq!(got, line.as_bytes(), "{address}");
    }
}

#[test]
fn socat_to_tcp() {
    let server = EchoServer::listen("tcp://127.0.0.1:0");
    gets_replies(&format!("TCP:{}", server.endpoint.address()));
}

#[test]
fn socat_to_udp() {
    for host in ["127.0.0.1", "0.0.0.0", "[::]"] {
        let server = EchoServer::listen(&format!("udp://{host}:0"));
        let (_, port) = server.endpoint.host_port().unwrap();
        // An address of this host that a socket bound to all addresses would not choose; socat accepts no other.
        gets_replies(&format!("UDP:127.0.0.{}:{}", if host == "127.0.0.1" { 1 } else { 3 }, port.unwrap()));
    }
}

#[test]
fn socat_to_unix() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let server = EchoServer::listen(&format!("unix://{}", path("stream")));
    gets_replies(&format!("UNIX-CONNECT:{}", server.endpoint.address()));
    let server = EchoServer::listen(&format!("unix://{}?type=dgram", path("dgram")));
    // One that names the path each time, and one that connects to it.
    gets_replies(&format!("UNIX-SENDTO:{},bind={}", server.endpoint.address(), path("sendto")));
    gets_replies(&format!("UNIX-CONNECT:{},bind={},type=2", server.endpoint.address(), path("connected")));
}
