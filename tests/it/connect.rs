//! `connect`: the time to open connections, and how many open in a second.

use std::net::TcpListener;

use linkgauge::protocol::ServerLimits;

use crate::program::run;
use crate::server::{measure, serve};
use crate::virtual_net::VirtualNet;

#[test]
fn connections_are_opened_and_counted() {
    let server = serve(ServerLimits::default(), None);
    let unix = std::env::temp_dir().join(format!("linkgauge-connect-{}", std::process::id()));
    let listener = std::os::unix::net::UnixListener::bind(&unix).unwrap();
    std::thread::spawn(move || listener.incoming().for_each(drop));
    let unix_url = format!("unix://{}", unix.display()).parse().unwrap();
    for (endpoint, parallel) in [(&server.endpoints()[0], 1), (&server.endpoints()[0], 3), (&unix_url, 2)] {
        let case = format!("workload = \"connect\"\nparallel = {parallel}\ncount = 40\nwarm_up_count = 5");
        let run = measure(endpoint, &case, None);
        let case = &run.cases[0];
        assert!(run.is_complete(), "{:?}", case.failures);
        assert_eq!((case.protocol.as_str(), case.message_bytes), ("none", 0));
        let counts = &case.figures.counts;
        assert_eq!((counts.sent, counts.received, counts.lost), (40 * parallel, 40 * parallel, 0));
        let times = case.figures.times.latency_ns.as_ref().unwrap();
        assert!(times.min > 0 && times.count == 40 * parallel);
        assert!(case.figures.delivery.messages_per_second.unwrap() > 0.0);
    }
    std::fs::remove_file(unix).unwrap();
}

#[test]
fn connections_on_a_schedule_are_due_in_turns() {
    let net = VirtualNet::serving("linkgauge");
    let run = net.run(
        "[[case]]\nurl = \"mem://far\"\nworkload = \"connect\"\nparallel = 4\nrate = \"100/s\"\ntime = \"2s\"\nwarm_up_count = 0",
    );
    let figures = &run.cases[0].figures;
    assert_eq!((figures.counts.sent, figures.counts.received), (200, 200));
    assert_eq!(figures.delivery.messages_per_second, Some(200.0 * 1e9 / 1_990_000_000.0));
    assert_eq!(figures.flows.as_ref().unwrap().min_max_ratio, 1.0);
}

#[test]
fn a_port_without_a_server_and_links_without_connections_are_refused() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let ended = run(&["connect", &closed.to_string(), "--count", "5"]);
    assert_eq!(ended.status, Some(2));
    assert!(ended.stderr.contains("the port is closed"), "{}", ended.stderr);
    let ended = run(&["connect", "udp://127.0.0.1:9", "--count", "5"]);
    assert_eq!(ended.status, Some(2));
    assert!(ended.stderr.contains("this link has no connections"), "{}", ended.stderr);
}

#[test]
fn the_first_line_has_the_time_and_the_rate() {
    let server = serve(ServerLimits::default(), None);
    let url = server.endpoints()[0].as_str();
    let ended = run(&["connect", url, "--count", "50", "--repeat", "1", "-P", "2"]);
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    let first = ended.stdout.lines().take(3).collect::<Vec<_>>().join(" ");
    assert!(
        first.contains("TCP connection to") && first.contains(" median, ") && first.contains("/s; no loss"),
        "{first}"
    );
}
