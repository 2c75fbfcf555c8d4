//! The program as users run it, without a server, or with options of another protocol.

use std::net::UdpSocket;
use std::time::Duration;

use linkgauge::Registry;
use linkgauge::clock::Clock;
use linkgauge::link::Fault;

use crate::client::{free_port, linkgauge};
use crate::program::PATIENCE;

#[test]
fn auto_reports_a_missing_listener() {
    for scheme in ["tcp", "udp"] {
        let url = format!("{scheme}://127.0.0.1:{}", free_port());
        let measured = linkgauge(&format!("latency {url}"));
        assert!(measured.took < Duration::from_secs(20), "{:?}", measured.took);
        measured.refused(&[&url, "connection refused", "linkgauge serve"]);
    }
}

#[test]
fn options_of_ask_belong_to_ask() {
    for peer in ["--protocol echo", "--protocol auto", ""] {
        linkgauge(&format!("latency tcp://127.0.0.1:9 --send x {peer}")).refused(&["option 'send'"]);
    }
}

#[test]
fn a_port_without_a_listener_refuses() {
    let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("udp://127.0.0.1:{free}").parse().unwrap();
    let mut link = Registry::standard().dialer(Clock::System).open(&url).unwrap();
    link.send(b"?", PATIENCE).unwrap();
    let error = link.receive(&mut [0; 10], PATIENCE).unwrap_err();
    assert!(
        matches!(&error, Fault::System { source, .. } if source.kind() == std::io::ErrorKind::ConnectionRefused),
        "{error}"
    );
}
