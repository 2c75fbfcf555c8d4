//! ICMP echo: the refusals of its URLs and commands.

use super::program::command;

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
