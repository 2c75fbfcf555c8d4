//! The small services of the network as `serve` roles: what programs of others get from them, and who gets nothing.

use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::program::{Running, Serving};

/// Has a shell run socat; what it printed.
fn shell(line: &str) -> Vec<u8> {
    let child = Command::new("sh").args(["-c", line]).stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut child = Running(child.unwrap());
    let mut printed = Vec::new();
    std::io::Read::read_to_end(child.0.stdout.as_mut().unwrap(), &mut printed).unwrap();
    child.wait();
    printed
}

#[test]
fn our_echo_answers_socat() {
    let serving = Serving::start(&["--peer", "echo"]);
    let (tcp, udp) = (serving.tcp.place(), serving.udp.place());
    let printed =
        shell(&format!("head -c 1000000 /dev/zero | tr '\\0' x | socat -T 10 -t 10 STDIO TCP:{tcp}"));
    assert!(printed == vec![b'x'; 1_000_000], "{} bytes came back", printed.len());
    assert_eq!(shell(&format!("echo hello | socat -T 10 -t 2 STDIO UDP:{udp}")), b"hello\n");
}

#[test]
fn our_discard_says_nothing() {
    let serving = Serving::start(&["--peer", "discard"]);
    let (tcp, udp) = (serving.tcp.place(), serving.udp.place());
    assert_eq!(shell(&format!("head -c 1000000 /dev/zero | socat -T 10 -t 10 STDIO TCP:{tcp}")), b"");
    assert_eq!(shell(&format!("echo hello | socat -T 10 -t 0.3 STDIO UDP:{udp}")), b"");
}

#[test]
fn our_echo_leaves_servers_alone() {
    let serving = Serving::start(&["--peer", "echo"]);
    let ask = |socket: &UdpSocket| {
        socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        socket.send_to(b"echo", serving.udp.place()).unwrap();
        socket.recv(&mut [0; 10]).ok()
    };
    assert_eq!(ask(&UdpSocket::bind("127.0.0.1:0").unwrap()), Some(4));
    // 7100 would answer the answer; an address of its own, since others may use the port.
    let server = UdpSocket::bind("127.77.7.1:7100").unwrap();
    assert_eq!(ask(&server), None);
}
