//! Servers that are killed or restarted during a measurement, and devices on the path that forget idle connections.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use linkgauge::plan::StopCondition;
use linkgauge::protocol::linkgauge::wire::{self, FlowKind, ServerPlan, SessionReply, SessionRequest};

use crate::client::{free_port, linkgauge, serving};
use crate::program::Serving;
use crate::raw_client::{RawClient, address, plan};
use crate::server::in_the_middle;

#[test]
fn counts_of_datagrams_from_a_killed_server_are_conserved() {
    let mut server = Serving::start(&[]);
    let flags = ["-R", "-t", "60s", "--bit-rate", "2Mbit/s", "--timeout", "500ms"];
    let arguments = [&["throughput", server.udp.as_str()], &flags[..]].concat();
    let (ended, document) = in_the_middle(&arguments, |_| server.process.0.kill().unwrap());
    assert_eq!(ended.status, Some(2), "{}", ended.stderr);
    let case = &document["cases"][0];
    let count = |name: &str| case[name].as_u64();
    assert!(count("received").unwrap() > 0, "{case}");
    // What was lost after the last one received is not known.
    let is_counted = count("lost")
        .is_some_and(|lost| lost > 0 && count("sent") == Some(count("received").unwrap() + lost));
    assert!(is_counted || case["losses_unknown"] == true && count("lost").is_none(), "{case}");
    assert!(!ended.stdout.contains("no loss"), "{}", ended.stdout);
    let codes: Vec<&str> =
        case["warnings"].as_array().unwrap().iter().filter_map(|warning| warning["code"].as_str()).collect();
    assert!(codes.contains(&"unconfirmed"), "{codes:?}");
}

#[test]
fn losses_that_a_killed_server_did_not_report_are_unknown() {
    for flags in [&[][..], &["--bidir"], &["--find-capacity"]] {
        let mut server = Serving::start(&[]);
        let url = server.udp.clone();
        let given =
            ["throughput", url.as_str(), "-t", "60s", "--timeout", "500ms", "--threshold", "lost < 1"];
        let rate = if flags == ["--find-capacity"] { &[][..] } else { &["--bit-rate", "2Mbit/s"] };
        let (ended, document) =
            in_the_middle(&[&given[..], rate, flags].concat(), |_| server.process.0.kill().unwrap());
        assert_eq!(ended.status, Some(2), "{}", ended.stderr);
        let case = &document["cases"][0];
        assert_eq!(
            (&case["losses_unknown"], &case["lost"]),
            (&true.into(), &serde_json::Value::Null),
            "{case}"
        );
        assert!(case["sent"].as_u64().is_some_and(|sent| sent > 0), "{case}");
        assert!(case["lost_reverse"].is_null(), "{case}");
        // The search may still have been rising.
        let is_limit = ended.stdout.contains("capacity at least") || case["capacity_bps"].is_null();
        assert!(case["workload"] != "capacity" || is_limit, "{}", ended.stdout);
        assert_ne!(case["thresholds"][0]["verdict"], "met", "{case}");
    }
}

/// Forwards datagrams to a server, which can be replaced by another one without a trace at the client.
struct SwitchingRelay {
    address: SocketAddr,
    target: Arc<Mutex<SocketAddr>>,
}

impl SwitchingRelay {
    fn start(to: SocketAddr) -> SwitchingRelay {
        let socket = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
        let (address, target) = (socket.local_addr().unwrap(), Arc::new(Mutex::new(to)));
        let current = target.clone();
        thread::spawn(move || {
            let (mut room, mut upstream) = (vec![0; 65_536], HashMap::<_, Arc<UdpSocket>>::new());
            while let Ok((length, client)) = socket.recv_from(&mut room) {
                let to = *current.lock().unwrap();
                let link = upstream.entry((client, to)).or_insert_with(|| {
                    let link = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
                    link.connect(to).unwrap();
                    let (replies, back) = (link.clone(), socket.clone());
                    thread::spawn(move || {
                        let mut room = vec![0; 65_536];
                        while let Ok(length) = replies.recv(&mut room) {
                            let _ = back.send_to(&room[..length], client);
                        }
                    });
                    link
                });
                let _ = link.send(&room[..length]);
            }
        });
        SwitchingRelay { address, target }
    }
}

#[test]
fn figures_stay_and_the_advice_fits_when_a_server_is_killed_in_the_middle() {
    for (protocol, flags, measured) in [
        ("echo", &["--size", "16k"][..], "throughput_bps"),
        ("netio", &["--size", "16k", "--direction", "send", "--timeout", "1s"], "delivered_bytes"),
        ("netio", &["--size", "16k", "--direction", "both", "--timeout", "1s"], "delivered_bytes"),
    ] {
        let mut server = Serving::start(&["--protocol", protocol]);
        let url = server.tcp.as_str().to_owned();
        let arguments = [&["throughput", &url, "--protocol", protocol, "-t", "60s"], flags].concat();
        let (ended, document) = in_the_middle(&arguments, |_| {
            // A server that refuses a request does so at once.
            thread::sleep(Duration::from_millis(1100));
            server.process.0.kill().unwrap();
        });
        assert_eq!(ended.status, Some(2), "{}", ended.stderr);
        assert!(ended.stderr.contains("check whether the server or device still runs"), "{}", ended.stderr);
        let case = &document["cases"][0];
        assert!(case[measured].as_f64().is_some_and(|figure| figure > 0.0), "{protocol} {flags:?}: {case}");
        for wrong in ["flow control", "--dialect", "Start one there"] {
            let texts = [&ended.stderr, &ended.stdout, &case["warnings"].to_string()]
                .map(|text| text.contains(wrong));
            assert_eq!(texts, [false; 3], "{wrong}: {case}");
        }
    }
}

#[test]
fn a_server_that_was_restarted_is_named() {
    let (first, second) = (Serving::start(&[]), Serving::start(&[]));
    let relay = SwitchingRelay::start(address(&first.udp));
    let url = format!("udp://{}", relay.address);
    let arguments = ["latency", &url, "--protocol", "linkgauge", "--rate", "100", "-t", "1s"];
    let (ended, _) = in_the_middle(&arguments, |_| *relay.target.lock().unwrap() = address(&second.udp));
    assert_eq!(ended.status, Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("it was restarted"), "{}", ended.stderr);
}

#[test]
fn a_silent_control_connection_is_kept_alive() {
    let server = Serving::start(&[]);
    let mut client = RawClient::open(&server.tcp).unwrap();
    let second = ServerPlan {
        alive_interval_ns: 1_000_000_000,
        ..plan(&[FlowKind::Reflect], 100, StopCondition::default())
    };
    let began = Instant::now();
    assert!(matches!(client.ask(&SessionRequest::Plan(second)).unwrap(), SessionReply::Planned { .. }));
    let mut received = Vec::new();
    for count in 1..=2u32 {
        let reply = loop {
            if let Some((number, reply, used)) =
                wire::decode_frame::<SessionReply>(&received, wire::MAX_JSON_BYTES).unwrap()
            {
                received.drain(..used);
                break (number, reply);
            }
            let mut chunk = [0; 100];
            let length = client.stream.read(&mut chunk).unwrap();
            assert!(length > 0, "it closed the connection");
            received.extend_from_slice(&chunk[..length]);
        };
        assert_eq!(reply, (0, SessionReply::Alive(Default::default())));
        assert!(began.elapsed() >= Duration::from_secs(count.into()), "{:?}", began.elapsed());
    }
}

/// Forwards TCP connections, and drops one that is idle for a while, as a NAT device does.
struct ForgetfulForwarder {
    address: SocketAddr,
}

impl ForgetfulForwarder {
    fn start(to: SocketAddr, idle: Duration) -> ForgetfulForwarder {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for client in listener.incoming() {
                let (client, server) = (client.unwrap(), TcpStream::connect(to).unwrap());
                let last = Arc::new(Mutex::new(Instant::now()));
                let ends = [(&client, &server), (&server, &client)];
                for (from, to) in ends.map(|(from, to)| (from.try_clone().unwrap(), to.try_clone().unwrap()))
                {
                    let last = last.clone();
                    thread::spawn(move || forward(from, to, &last));
                }
                thread::spawn(move || {
                    while last.lock().unwrap().elapsed() < idle {
                        thread::sleep(Duration::from_millis(50));
                    }
                    let _ = (client.shutdown(Shutdown::Both), server.shutdown(Shutdown::Both));
                });
            }
        });
        ForgetfulForwarder { address }
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream, last: &Mutex<Instant>) {
    let mut room = vec![0; 65_536];
    while let Ok(length @ 1..) = from.read(&mut room) {
        *last.lock().unwrap() = Instant::now();
        if to.write_all(&room[..length]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

#[test]
#[ignore = "long"]
fn a_measurement_survives_a_path_that_forgets_idle_connections() {
    let server = Serving::start(&[]);
    let forwarder = ForgetfulForwarder::start(address(&server.tcp), Duration::from_secs(5));
    for direction in ["send", "receive"] {
        let line = format!(
            "throughput tcp://{} --protocol linkgauge --direction {direction} -t 7s --bit-rate 1Mbit/s --size 1000",
            forwarder.address
        );
        let case = linkgauge(&line).clean();
        assert!(case.count("received") > 0);
    }
}

#[test]
#[ignore = "long"]
fn an_iperf3_test_whose_control_connection_is_forgotten_keeps_its_figures() {
    let url = format!("tcp://127.0.0.1:{}", free_port());
    let (server, _) = serving(&["--protocol", "iperf3", &url]);
    let forwarder = ForgetfulForwarder::start(address(&url.parse().unwrap()), Duration::from_secs(2));
    let line = format!(
        "throughput tcp://{} --protocol iperf3 -R -t 4s --bit-rate 1Mbit/s --size 1000 --timeout 1s",
        forwarder.address
    );
    let run = linkgauge(&line);
    assert!(run.count("received") > 0);
    run.refused(&["control connection", "NAT"]);
    drop(server);
}
