//! irtt at the other end, in both roles, in each of its modes.

use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use linkgauge::run::{OneWayFigures, WarningCode};
use serde_json::Value;

use crate::client::{ClientRun, free_port, imported, linkgauge, serving};
use crate::program::Running;

/// A server of irtt, and the URL of its port.
fn irtt_server(arguments: &[&str]) -> (Running, String) {
    let place = format!("127.0.0.1:{}", free_port());
    let mut child = Command::new("irtt")
        .args(["server", "-b", &place])
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("irtt is needed for this test: apt-get install irtt");
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let is_ready = lines.by_ref().map_while(Result::ok).any(|line| line.contains("ListenerStart"));
    assert!(is_ready, "irtt server does not start");
    // It writes a line for each client, and must never wait for a reader.
    std::thread::spawn(move || lines.for_each(drop));
    (Running(child), format!("irtt://{place}"))
}

/// What `irtt client` prints, and the document that it writes.
fn irtt_client(url: &str, arguments: &[&str]) -> (String, Option<Value>) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("irtt.json");
    let output = Command::new("timeout")
        .args(["60", "irtt", "client", "-o", file.to_str().unwrap()])
        .args(arguments)
        .arg(url.rsplit('/').next().unwrap())
        .output()
        .expect("irtt is needed for this test: apt-get install irtt");
    let printed = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
    (printed, std::fs::read(&file).ok().map(|json| serde_json::from_slice(&json).unwrap()))
}

/// A test of `irtt client`. Every packet has a reply: servers take 5 at once, however late they or the client run.
fn irtt_test(url: &str, arguments: &[&str]) -> Value {
    let usual = ["-Q", "-i", "20ms", "-d", "100ms", "--wait=1s"];
    let (printed, document) = irtt_client(url, &[&usual, arguments].concat());
    let document = document.unwrap_or_else(|| panic!("{arguments:?}: {printed}"));
    let stats = &document["stats"];
    let count = |name: &str| stats[name].as_u64().unwrap();
    assert!(count("packets_sent") > 0, "{printed}");
    assert_eq!(
        (count("packets_received"), count("duplicates"), count("late_packets")),
        (count("packets_sent"), 0, 0),
        "{arguments:?}: {stats}"
    );
    document
}

fn ways(measured: &ClientRun) -> OneWayFigures {
    serde_json::from_value(measured.case()["one_way"].clone()).unwrap()
}

fn codes(measured: &ClientRun) -> Vec<&str> {
    let warnings = measured.case()["warnings"].as_array().unwrap();
    warnings.iter().map(|warning| warning["code"].as_str().unwrap()).collect()
}

#[test]
fn every_statistic_of_irtt_works_with_our_server() {
    let (_server, url) = serving(&["--protocol", "irtt"]);
    for (stats, counts) in [("none", false), ("count", true), ("window", false), ("both", true)] {
        let document = irtt_test(&url, &[&format!("--stats={stats}")]);
        let (sent, received) =
            (&document["stats"]["packets_sent"], &document["stats"]["server_packets_received"]);
        assert_eq!(received == sent, counts, "{stats}: {}", document["stats"]);
        assert_eq!(document["config"]["params"]["received_stats"], stats);
    }
}

#[test]
fn every_time_stamp_of_irtt_works_with_our_server() {
    let (_server, url) = serving(&["--protocol", "irtt"]);
    for stamp in ["none", "send", "receive", "both", "midpoint"] {
        for clock in ["wall", "monotonic", "both"] {
            let document = irtt_test(&url, &[&format!("--tstamp={stamp}"), &format!("--clock={clock}")]);
            for trip in document["round_trips"].as_array().unwrap() {
                let times = &trip["timestamps"]["server"];
                for end in ["send", "receive"] {
                    for name in ["wall", "monotonic"] {
                        let is_stamped = stamp == end || ["both", "midpoint"].contains(&stamp);
                        let is_read = is_stamped && (clock == name || clock == "both");
                        assert_eq!(times[end][name].is_u64(), is_read, "{stamp} {clock}: {trip}");
                    }
                }
                assert_eq!(
                    times["send"] == times["receive"],
                    ["none", "midpoint"].contains(&stamp),
                    "{trip}"
                );
            }
            let delays = document["stats"]["send_delay"]["n"] != 0;
            assert_eq!(delays, stamp != "none" && clock != "monotonic", "{stamp} {clock}");
        }
    }
}

#[test]
fn every_fill_and_length_of_irtt_works_with_our_server() {
    let (_server, url) = serving(&["--protocol", "irtt"]);
    for length in ["0", "100", "1472", "9000"] {
        let document = irtt_test(&url, &["-l", length]);
        let bytes = length.parse::<u64>().unwrap().max(60);
        let stats = &document["stats"];
        let sent = stats["packets_sent"].as_u64().unwrap() * bytes;
        assert_eq!(
            (stats["bytes_sent"].as_u64(), stats["bytes_received"].as_u64()),
            (Some(sent), Some(sent))
        );
    }
    for (fill, server_fill) in
        [("none", "none"), ("rand", "rand"), ("pattern:6162", "rand"), ("rand", "none")]
    {
        irtt_test(&url, &["-l", "200", &format!("--fill={fill}"), &format!("--sfill={server_fill}")]);
    }
    // Another pattern is not granted.
    let (printed, _) = irtt_client(&url, &["-d", "40ms", "-i", "20ms", "--sfill=pattern:6162"]);
    assert!(printed.contains("server restricted fill"), "{printed}");
}

#[test]
fn a_key_of_irtt_works_with_our_server() {
    let directory = tempfile::tempdir().unwrap();
    let key = directory.path().join("key");
    std::fs::write(&key, "hex:736573616d65\n").unwrap();
    let (_server, url) = serving(&["--protocol", "irtt", "--token-file", key.to_str().unwrap()]);
    for key in ["sesame", "0x736573616d65"] {
        irtt_test(&url, &[&format!("--hmac={key}"), "-l", "200"]);
    }
    for wrong in [&["--hmac=open"][..], &[]] {
        let (printed, _) = irtt_client(&url, &[&["--timeouts=200ms"], wrong].concat());
        assert!(printed.contains("no reply from server"), "{printed}");
    }
}

#[test]
fn irtt_keeps_to_the_limits_of_our_server() {
    let (_server, url) =
        serving(&["--protocol", "irtt", "--time", "1min", "--max-time", "1s", "--max-size", "200"]);
    let beyond = ["-i", "1ms", "-d", "3s", "-l", "1000"];
    let (printed, _) = irtt_client(&url, &[&["-n"][..], &beyond].concat());
    assert!(printed.contains("ServerRestriction"), "{printed}");
    let (printed, _) = irtt_client(&url, &[&["-n", "--loose"][..], &beyond].concat());
    for restriction in [
        "server reduced duration from 3s to 1s",
        "server increased interval from 1ms to 10ms",
        "server reduced length from 1000 to 200",
    ] {
        assert!(printed.contains(restriction), "{restriction}: {printed}");
    }
    let (printed, document) = irtt_client(&url, &[&["-Q", "--loose"][..], &beyond].concat());
    let document = document.unwrap_or_else(|| panic!("{printed}"));
    let params = &document["config"]["params"];
    assert_eq!((&params["duration"], &params["interval"]), (&1_000_000_000.into(), &10_000_000.into()));
    assert_eq!(params["length"], 200);
}

#[test]
fn replies_of_our_server_have_the_requested_traffic_class() {
    let (_server, url) = serving(&["--protocol", "irtt"]);
    let document = irtt_test(&url, &["--dscp=0xb8"]);
    assert_eq!(document["config"]["params"]["dscp"], 0xb8);
    let (_server, url) = irtt_server(&[]);
    let measured = linkgauge(&format!("latency {url}?dscp=46 -n 5 --warm-up 0")).clean();
    assert!(!codes(&measured).contains(&"marks_changed"), "{}", measured.run);
}

/// Passes packets on, both ways, and drops those that `drops` names: from the client or not, and its number.
fn relay(url: &str, drops: fn(bool, u32) -> bool) -> (String, Arc<Mutex<Vec<Vec<u8>>>>) {
    let (near, far) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
    far.connect(url.rsplit('/').next().unwrap()).unwrap();
    let place = format!("irtt://{}", near.local_addr().unwrap());
    let replies: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
    let (client, kept) = (Arc::new(Mutex::new(None)), replies.clone());
    let is_dropped = move |from_client: bool, packet: &[u8]| {
        let number = packet.get(12..16).map(|bytes| u32::from_le_bytes(bytes.try_into().unwrap()));
        packet[3] & 0b101 == 0 && number.is_some_and(|number| drops(from_client, number))
    };
    let sockets = (near.try_clone().unwrap(), far.try_clone().unwrap(), client.clone(), is_dropped);
    std::thread::spawn(move || {
        let ((near, far, client, is_dropped), mut room) = (sockets, [0; 65_536]);
        while let Ok((length, from)) = near.recv_from(&mut room) {
            *client.lock().unwrap() = Some(from);
            if !is_dropped(true, &room[..length]) {
                let _ = far.send(&room[..length]);
            }
        }
    });
    std::thread::spawn(move || {
        let mut room = [0; 65_536];
        while let Ok(length) = far.recv(&mut room) {
            let packet = &room[..length];
            if packet[3] == 2 {
                kept.lock().unwrap().push(packet.to_vec());
            }
            let to = *client.lock().unwrap();
            if let Some(to) = to.filter(|_| !is_dropped(false, packet)) {
                let _ = near.send_to(packet, to);
            }
        }
    });
    (place, replies)
}

#[test]
fn irtt_reads_the_times_that_our_server_wrote() {
    let (_server, url) = serving(&["--protocol", "irtt"]);
    let (place, replies) = relay(&url, |_, _| false);
    let document = irtt_test(&place, &[]);
    let replies = replies.lock().unwrap();
    let trips = document["round_trips"].as_array().unwrap();
    assert_eq!(replies.len(), trips.len());
    for (reply, trip) in replies.iter().zip(trips) {
        let time = |at: usize| i64::from_le_bytes(reply[at..at + 8].try_into().unwrap());
        let times = &trip["timestamps"]["server"];
        for (at, end, clock) in [
            (28, "receive", "wall"),
            (36, "receive", "monotonic"),
            (44, "send", "wall"),
            (52, "send", "monotonic"),
        ] {
            assert_eq!(times[end][clock].as_i64(), Some(time(at)), "{trip}");
        }
        let client = &trip["timestamps"]["client"];
        let ns = |end: &Value| end["monotonic"].as_i64().unwrap();
        let whole = ns(&client["receive"]) - ns(&client["send"]);
        let hold = time(52) - time(36);
        assert!(hold > 0 && hold < whole, "{trip}");
        assert_eq!(trip["delay"]["rtt"].as_i64(), Some(whole - hold), "{trip}");
        // Both ends have one clock: the two delays are those of the trip.
        let delays = ["send", "receive"].map(|way| trip["delay"][way].as_i64().unwrap());
        assert!(delays.iter().all(|delay| *delay > 0), "{trip}");
        assert!((delays[0] + delays[1] - (whole - hold)).abs() < 1_000_000, "{trip}");
    }
}

#[test]
fn irtt_and_we_agree_on_lost_requests_and_lost_replies() {
    let (_server, url) = serving(&["--protocol", "irtt"]);
    fn drops(from_client: bool, number: u32) -> bool {
        if from_client { number % 5 == 2 } else { number % 7 == 3 }
    }
    let (place, _) = relay(&url, drops);
    let (printed, document) = irtt_client(&place, &["-Q", "-i", "100ms", "-d", "2500ms"]);
    let document = document.unwrap_or_else(|| panic!("{printed}"));
    let trips = document["round_trips"].as_array().unwrap();
    let lost = |flag: &str| trips.iter().filter(|trip| trip["lost"] == flag).count() as u64;
    // The imported document says the same.
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("irtt.json");
    std::fs::write(&file, document.to_string()).unwrap();
    let run = imported("irtt", &file, &[]);
    let figures = &run.cases[0].figures;
    let one_way = figures.one_way.as_ref().unwrap();
    assert_eq!(one_way.forward_lost, Some(lost("true_up")));
    assert_eq!(one_way.reverse_lost, Some(lost("true_down") + lost("true")));
    for number in 0..trips.len() as u32 {
        let expected = match (drops(true, number), drops(false, number)) {
            (true, _) => ["true_up", "true"],
            (false, true) => ["true_down", "true"],
            (false, false) => ["false"; 2],
        };
        let flag = trips[number as usize]["lost"].as_str().unwrap();
        assert!(expected.contains(&flag), "{}", trips[number as usize]);
    }
    // Our client against the server of irtt, over the same losses.
    let (_server, url) = irtt_server(&[]);
    let (place, _) = relay(&url, drops);
    let measured = linkgauge(&format!("latency {place} -n 25 --warm-up 0 --timeout 2s --every 100ms"));
    assert_eq!((measured.status, measured.count("sent")), (0, 25), "{}", measured.errors);
    let expected = |from_client: bool| {
        let is_lost = |number: &u32| drops(from_client, *number) && (from_client || !drops(true, *number));
        (0..25).filter(is_lost).count() as u64
    };
    let ways = ways(&measured);
    assert_eq!((ways.forward_lost, ways.reverse_lost), (Some(expected(true)), Some(expected(false))));
}

#[test]
fn we_measure_a_server_of_irtt() {
    let (_server, url) = irtt_server(&[]);
    let (place, replies) = relay(&url, |_, _| false);
    let measured = linkgauge(&format!("latency {place} -n 100 --warm-up 0 --timeout 10s")).clean();
    // A server that was late takes 5 requests at once, and drops others.
    assert_eq!(measured.count("received") + measured.count("lost"), 100);
    assert_eq!(measured.case()["endpoint"].as_str().unwrap(), place.replace("irtt", "udp"));
    assert_eq!(measured.case()["effective"]["server_time_stamps"], "both");
    // The server's time is that between its monotonic stamps.
    let replies = replies.lock().unwrap();
    let time = |reply: &[u8], at: usize| u64::from_le_bytes(reply[at..at + 8].try_into().unwrap());
    let holds: Vec<u64> = replies.iter().map(|reply| time(reply, 52) - time(reply, 36)).collect();
    let ways = ways(&measured);
    assert_eq!(
        (ways.turnaround_ns.count, measured.count("received")),
        (holds.len() as u64, holds.len() as u64)
    );
    let (least, most) = (*holds.iter().min().unwrap(), *holds.iter().max().unwrap());
    assert_eq!((ways.turnaround_ns.min, ways.turnaround_ns.max), (least, most));
    let latency = &measured.case()["latency_ns"];
    assert!(ways.path_ns.max <= latency["max"].as_u64().unwrap());
    // Both ends use one clock, so the offset is within the bound.
    assert!(ways.clock_offset_ns.abs() <= ways.one_way_error_bound_ns + 50_000.0, "{ways:?}");
}

#[test]
fn a_key_works_with_a_server_of_irtt() {
    let directory = tempfile::tempdir().unwrap();
    let key = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (key, wrong) = (key("key", "sesame\n"), key("wrong", "open\n"));
    let (_server, url) = irtt_server(&["--hmac=sesame"]);
    let flags = "-n 5 --warm-up 0 --timeout 1s";
    let signed = |key: &str| linkgauge(&format!("latency {url} {flags} --authenticated --token-file {key}"));
    let measured = signed(&key).clean();
    assert_eq!((measured.count("received"), measured.count("message_bytes")), (5, 76));
    assert_eq!(measured.case()["effective"]["authenticated"], true);
    signed(&wrong).refused(&["no server of irtt replied", "its key is another one"]);
    linkgauge(&format!("latency {url} {flags}"))
        .refused(&["no server of irtt replied", "it may require a key"]);
}

#[test]
fn we_keep_to_the_limits_of_a_server_of_irtt() {
    let (_server, url) = irtt_server(&["-d", "1s", "-i", "50ms", "-l", "100"]);
    let measured = linkgauge(&format!("latency {url} --rate 500/s -t 10s --warm-up 0 --repeat 1")).clean();
    // Fewer, if this host was late.
    assert!((1..=21).contains(&measured.count("sent")), "{}", measured.run);
    let effective = &measured.case()["effective"];
    assert_eq!(effective["server_limit_messages_per_second"], 20.0);
    assert_eq!(effective["server_limit_seconds"], 1.0);
    assert!(codes(&measured).contains(&WarningCode::ServerLimit.name()), "{}", measured.run);
    linkgauge(&format!("latency {url} --size 200 -n 5"))
        .refused(&["packets of 100 bytes, not 200", "--size 100"]);
    linkgauge(&format!("latency {url} --warm-up 2s -n 5")).refused(&["ends a test after 1s", "--warm-up 0"]);
    // A server with fewer stamps.
    for mode in ["single", "none"] {
        let (_server, url) = irtt_server(&[&format!("--tstamp={mode}")]);
        let measured = linkgauge(&format!("latency {url} -n 5 --warm-up 0")).clean();
        assert_eq!((measured.count("received"), measured.count("corrupt_messages")), (5, 0));
        assert_eq!(measured.case()["effective"]["server_time_stamps"], "none");
        assert!(measured.case().get("one_way").is_none(), "{}", measured.run);
    }
}

#[test]
fn several_connections_keep_one_schedule() {
    let (_server, url) = irtt_server(&[]);
    let measured =
        linkgauge(&format!("latency {url} -P 4 --rate 200/s -n 5 --warm-up 0 --timeout 5s")).clean();
    assert_eq!((measured.count("received"), measured.count("lost")), (20, 0));
    assert!(!codes(&measured).contains(&WarningCode::ServerLimit.name()), "{}", measured.run);
}

#[test]
fn a_packed_document_of_irtt_is_imported() {
    let (_server, url) = serving(&["--protocol", "irtt"]);
    let directory = tempfile::tempdir().unwrap();
    // Without an extension it packs the file.
    let file = directory.path().join("result");
    let place = url.rsplit('/').next().unwrap();
    let output = Command::new("irtt")
        .args(["client", "-Q", "-i", "20ms", "-d", "100ms", "-o", file.to_str().unwrap(), place])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let packed = Path::new(&format!("{}.json.gz", file.display())).to_owned();
    let run = imported("irtt", &packed, &[]);
    assert_eq!(run.cases[0].figures.counts.received, run.cases[0].figures.counts.sent);
    assert!(
        run.started.as_second() > 1_700_000_000 && run.elapsed_ns < Duration::from_secs(10).as_nanos() as u64
    );
}
