//! ICMP echo: the refusals of its URLs and commands, and replies to other links.

use std::time::Duration;

use super::echo_server::EchoServer;
use super::program::command;

/// Without the filter of a raw socket they fill its buffer, and its own reply is lost.
#[test]
fn replies_to_other_links_take_no_room() {
    const SOON: Duration = Duration::from_secs(10);
    for host in ["127.0.0.1", "[::1]"] {
        let kernel = EchoServer::standing(format!("icmp://{host}").parse().unwrap());
        let (mut quiet, mut loud) = (kernel.open(), kernel.open());
        let mut buffer = vec![7; 60_000];
        for _ in 0..20 {
            loud.send(&buffer, SOON).unwrap();
            assert_eq!(loud.receive(&mut buffer, SOON).unwrap(), buffer.len(), "{host}");
        }
        quiet.send(b"one", SOON).unwrap();
        let received = quiet.receive(&mut buffer, SOON).unwrap_or_else(|fault| panic!("{host}: {fault}"));
        assert_eq!(&buffer[..received], b"one");
    }
}

#[test]
fn no_listener_supports_icmp() {
    for (line, words) in [
        ("serve icmp://127.0.0.1", "icmp cannot listen: its remote is a device or a kernel"),
        ("latency icmp://127.0.0.1:7 -n 1", "ICMP has no ports"),
        ("latency icmp://127.0.0.1?ttl=256 -n 1", "not a number from 1 to 255"),
        ("latency icmp://127.0.0.1 --size 65508 -n 1", "--size of at most 65507"),
    ] {
        let arguments: Vec<&str> = line.split(' ').collect();
        let output = command(&arguments).output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains(words) && errors.lines().count() == 1, "{errors}");
    }
}
