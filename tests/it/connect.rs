//! `connect`: the time to open connections, and how many open in a second.

use std::net::{SocketAddr, TcpListener};

use linkgauge::protocol::ServerLimits;
use socket2::{Domain, Socket, Type};

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
    assert!(ended.stderr.contains("connection refused: no server listens on this port"), "{}", ended.stderr);
    let ended = run(&["connect", "udp://127.0.0.1:9", "--count", "5"]);
    assert_eq!(ended.status, Some(2));
    assert!(ended.stderr.contains("this link has no connections"), "{}", ended.stderr);
}

#[test]
fn a_server_that_ends_after_some_connections_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("tcp://{}", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || listener.incoming().take(20).for_each(drop));
    let ended = run(&["connect", &url, "-t", "60s", "--rate", "200", "--warm-up", "0"]);
    server.join().unwrap();
    assert_eq!(ended.status, Some(2), "{}", ended.stderr);
    let reason =
        "the remote stopped replying during the run: its port is closed now. Check whether it still runs";
    assert!(ended.stderr.contains(reason), "{}", ended.stderr);
    assert!(ended.stdout.contains("median"), "{}", ended.stdout);
}

#[test]
fn a_server_that_takes_no_more_connections_is_no_complete_measurement() {
    // Its queue of one is full soon: then the packets of the next connections are dropped.
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    listener.listen(1).unwrap();
    let url = format!("tcp://{}", listener.local_addr().unwrap().as_socket().unwrap());
    let ended = run(&["connect", &url, "-t", "2s", "--timeout", "400ms", "--warm-up", "0"]);
    assert_eq!(ended.status, Some(2), "{}", ended.stdout);
    assert!(ended.stdout.contains("stopped early"), "{}", ended.stdout);
}

#[test]
fn the_first_line_has_the_time_and_the_rate() {
    let server = serve(ServerLimits::default(), None);
    let url = server.endpoints()[0].as_str();
    let ended = run(&["connect", url, "--count", "50", "--repeat", "1", "-P", "2"]);
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    let first = ended.stdout.lines().take(3).collect::<Vec<_>>().join(" ");
    assert!(
        first.contains("TCP connection to")
            && first.contains(" median, ")
            && first.contains("/s; none failed"),
        "{first}"
    );
}

#[test]
fn a_flow_opens_a_new_connection_after_its_requests() {
    let net = VirtualNet::serving("echo");
    let run = net.run(
        "[[case]]\nurl = \"mem://far?delay=1ms\"\nworkload = \"latency\"\nparallel = 3\ncount = 100\nwarm_up_count = 0\n\
         [case.protocol_options]\nreconnect-every = 10",
    );
    let case = &run.cases[0];
    assert_eq!(case.protocol, "echo", "no protocol needs to be detected");
    assert_eq!((case.figures.counts.sent, case.figures.counts.received), (300, 300));
    // The last connection serves the last ten requests.
    let connections = case.figures.connections.unwrap();
    assert_eq!((connections.connections, connections.failed_connections), (27, 0));
    let connect = case.figures.times.connect_ns.as_ref().unwrap();
    assert_eq!((connect.count, connect.max), (27, 0), "opening takes no virtual time");
    assert_eq!(case.figures.times.latency_ns.as_ref().unwrap().max, 2_000_000);
}

/// The response time of the request that waits for its connection includes it, because the next one is due while it is closed.
#[test]
fn requests_on_a_schedule_wait_for_the_replies_before_a_new_connection() {
    let net = VirtualNet::serving("echo");
    let run = net.run(
        "[[case]]\nurl = \"mem://far?delay=10ms\"\nworkload = \"latency\"\nrate = \"100/s\"\ncount = 100\nwarm_up_count = 0\n\
         protocol = \"echo\"\n[case.protocol_options]\nreconnect-every = 1",
    );
    let figures = &run.cases[0].figures;
    assert_eq!((figures.counts.sent, figures.counts.received), (100, 100));
    assert_eq!(figures.connections.unwrap().connections, 99);
    assert_eq!(figures.times.latency_ns.as_ref().unwrap().max, 20_000_000);
    // A request leaves every 20 ms at best, and one is due every 10 ms.
    assert!(figures.times.response_ns.as_ref().unwrap().max > 900_000_000);
}

#[test]
fn many_flows_open_new_connections_in_few_threads() {
    let server = serve(ServerLimits::default(), None);
    let unix = std::env::temp_dir().join(format!("linkgauge-reconnect-{}", std::process::id()));
    let listening = linkgauge::Server::on(&format!("unix://{}", unix.display())).start().unwrap();
    for (endpoint, flows) in
        [(&server.endpoints()[0], 40), (&server.endpoints()[0], 2), (&listening.endpoints()[0], 2)]
    {
        let case = format!(
            "workload = \"latency\"\nparallel = {flows}\ncount = 30\nwarm_up_count = 0\ntimeout = \"20s\"\n\
             [case.protocol_options]\nreconnect-every = 3"
        );
        let run = measure(endpoint, &case, None);
        let case = &run.cases[0];
        assert!(run.is_complete(), "{:?}", case.failures);
        assert_eq!((case.figures.counts.sent, case.figures.counts.received), (30 * flows, 30 * flows));
        assert_eq!(case.figures.connections.unwrap().connections, 9 * flows);
        let connect = case.figures.times.connect_ns.as_ref().unwrap();
        assert!(connect.min > 0 && connect.count == 9 * flows, "{connect:?}");
        assert_eq!(case.effective.contains_key("client_threads"), flows > 2, "{:?}", case.effective);
    }
}

#[test]
fn the_first_line_has_the_connections_of_a_latency() {
    let server = serve(ServerLimits::default(), None);
    let url = server.endpoints()[0].as_str();
    let ended =
        run(&["latency", url, "--count", "50", "--reconnect-every", "5", "--repeat", "1", "--warm-up", "0"]);
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    // The sentence takes two lines of a pipe if its numbers are long.
    let words = ended.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("9 further connections, "), "{}", ended.stdout);
    assert!(words.contains("median to open"), "{}", ended.stdout);
    assert!(ended.stdout.lines().any(|line| line.contains("connect ")), "{}", ended.stdout);
}

#[test]
fn new_connections_are_refused_where_they_mean_nothing() {
    for (arguments, words) in [
        (&["latency", "udp://127.0.0.1:9", "--reconnect-every", "5"][..], "this link has no connections"),
        (
            &["latency", "tcp://127.0.0.1:9", "--protocol", "linkgauge", "--reconnect-every", "5"],
            "has no option",
        ),
        (&["latency", "tcp://127.0.0.1:9", "--reconnect-every", "0"], "reconnect-every"),
    ] {
        let ended = run(arguments);
        assert_eq!(ended.status, Some(2), "{arguments:?}");
        assert!(ended.stderr.contains(words), "{}", ended.stderr);
    }
}
