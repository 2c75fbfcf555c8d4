//! The small services of the network as `serve` roles: clients that get nothing, and servers of another protocol.

use std::io::Write;
use std::net::{TcpListener, UdpSocket};
use std::thread;
use std::time::Duration;

use super::program::{PATIENCE, Serving};
use crate::client::linkgauge;

#[test]
fn our_echo_leaves_servers_alone() {
    let serving = Serving::start(&["--protocol", "echo"]);
    let echo = |socket: &UdpSocket| socket.send_to(b"echo", serving.udp.address()).unwrap();
    // A server on 7100 would reply to the reply; the test has its own address, because others may use the port.
    let server = UdpSocket::bind("127.77.7.1:7100").unwrap();
    server.set_nonblocking(true).unwrap();
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    echo(&server);
    echo(&client);
    assert_eq!(client.recv(&mut [0; 10]).ok(), Some(4));
    // Replies have the order of the requests, so an earlier request would have its reply by now.
    assert!(server.recv(&mut [0; 10]).is_err());
}

#[test]
fn an_echo_is_not_taken_for_sockperf() {
    let serving = Serving::start(&["--protocol", "echo"]);
    for url in [&serving.tcp, &serving.udp] {
        linkgauge(&format!("latency {url} --protocol sockperf -n 3 --warm-up 0 --timeout 200ms"))
            .refused(&["none of 3 messages got a reply", "the server uses sockperf"]);
    }
}

#[test]
fn a_server_that_is_not_chargen_is_reported() {
    let serving = Serving::start(&["--protocol", "echo"]);
    linkgauge(&format!("throughput {} --protocol chargen -t 1s --timeout 300ms", serving.tcp))
        .refused(&["no reply in time"]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"hello\n").unwrap();
        thread::sleep(Duration::from_secs(1));
    });
    let measured = linkgauge(&format!("throughput tcp://{place} --protocol chargen -t 10s"));
    assert_eq!((measured.status, measured.count("delivered_bytes")), (2, 6), "{}", measured.run);
    assert!(measured.errors.contains("the remote closed the link"), "{}", measured.errors);
    assert!(measured.count("corrupt_bytes") > 0);
}
