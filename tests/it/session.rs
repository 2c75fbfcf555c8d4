//! The linkgauge protocol between a server and hand-written clients, and over slow links.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use linkgauge::Registry;
use linkgauge::clock::Clock;
use linkgauge::lab::shaper::{Shaper, ShaperOptions};
use linkgauge::link::shaped::Shape;
use linkgauge::plan::{Pacing, StopCondition, WaitMode};
use linkgauge::protocol::linkgauge::proof::TokenProof;
use linkgauge::protocol::linkgauge::wire::{
    self, FlowKind, FrameCodec, Hello, ServerPlan, SessionReply, SessionRequest,
};
use linkgauge::protocol::{ServerConfig, ServerLimits};

use crate::memory::status_kib;
use crate::program::{PATIENCE, Serving, run};
use crate::raw_client::{RawClient, RawDatagrams, connect, plan};
use crate::server::{measure, serve};

/// Requests of one segment, from number `first` on.
fn finishes(first: u32, count: u32) -> Vec<u8> {
    (first..first + count).flat_map(|number| wire::encode_frame(number, &SessionRequest::Finish)).collect()
}

#[test]
fn replies_that_are_not_read_do_not_pile_up() {
    const CLIENTS: u64 = 20;
    let server = Serving::start(&[]);
    let ready_to_report = || {
        let mut client = RawClient::open(&server.tcp).unwrap();
        let wanted = plan(&[FlowKind::Send; 2048], 1000, StopCondition::default());
        assert!(matches!(client.ask(&SessionRequest::Plan(wanted)).unwrap(), SessionReply::Planned { .. }));
        client
    };
    let before = status_kib(&server.pid(), "VmRSS");
    let mut silent: Vec<_> = (0..CLIENTS).map(|_| ready_to_report()).collect();
    for client in &mut silent {
        client.stream.write_all(&finishes(3, 113)).unwrap();
    }
    // A client that reads gets every reply meanwhile, and the server has seen the requests of the others.
    let mut reader = ready_to_report();
    reader.stream.write_all(&finishes(3, 113)).unwrap();
    let (mut received, mut chunk, mut next) = (Vec::new(), vec![0; 65_536], 3);
    while next < 3 + 113 {
        let length = reader.stream.read(&mut chunk).unwrap();
        assert!(length > 0, "closed after {next}");
        received.extend_from_slice(&chunk[..length]);
        while let Some((number, reply, used)) =
            wire::decode_frame::<SessionReply>(&received, wire::MAX_JSON_BYTES).unwrap()
        {
            assert!(matches!(reply, SessionReply::Report(_)) && number == next);
            received.drain(..used);
            next += 1;
        }
    }
    let during = status_kib(&server.pid(), "VmHWM");
    println!("{before} KiB before, {during} KiB at most with {CLIENTS} clients that do not read");
    assert!(during < before + 32 * 1024, "{before} {during}");
    drop(silent);
}

/// The next message of the server.
fn next_frame(client: &mut RawClient, received: &mut Vec<u8>) -> (u32, SessionReply) {
    let mut chunk = [0; 4096];
    loop {
        if let Some((number, reply, used)) = wire::decode_frame(received, wire::MAX_JSON_BYTES).unwrap() {
            received.drain(..used);
            return (number, reply);
        }
        let length = client.stream.read(&mut chunk).unwrap();
        assert!(length > 0, "closed");
        received.extend_from_slice(&chunk[..length]);
    }
}

#[test]
fn the_report_is_sent_unasked_when_the_load_has_ended() {
    const BYTES: usize = 70_000;
    let server = serve(ServerLimits::default(), None);
    let mut client = RawClient::open(&server.endpoints()[0]).unwrap();
    let wanted = plan(&[FlowKind::Receive, FlowKind::Reflect], 1000, StopCondition::default());
    assert!(matches!(client.ask(&SessionRequest::Plan(wanted)).unwrap(), SessionReply::Planned { .. }));
    let (mut load, mut probe) = (client.attach(0), client.attach(1));
    assert_eq!(client.ask(&SessionRequest::Start).unwrap(), SessionReply::Started);
    load.write_all(&[0; BYTES]).unwrap();
    drop(load);
    let mut received = Vec::new();
    let (number, SessionReply::Report(report)) = next_frame(&mut client, &mut received) else {
        panic!("no report")
    };
    assert_eq!((number, report.flows[0].bytes), (0, BYTES as u64));
    // The round trips beside the load continue.
    let mut echo = [0; 5];
    probe.write_all(b"probe").unwrap();
    probe.read_exact(&mut echo).unwrap();
    assert_eq!(&echo, b"probe");
    // A request that was on its way gets the same report.
    client.stream.write_all(&wire::encode_frame(9, &SessionRequest::Finish)).unwrap();
    let (number, SessionReply::Report(again)) = next_frame(&mut client, &mut received) else {
        panic!("no report")
    };
    assert_eq!((number, again.flows[0].bytes), (9, BYTES as u64));
}

#[test]
fn an_invalid_rate_is_refused_and_leaves_the_session_free() {
    let server = serve(ServerLimits { sessions: 1, ..ServerLimits::default() }, None);
    let tcp = &server.endpoints()[0];
    for per_second in [0.0, -1.0, 1e-300, 5e-324, -1e308, 1e308] {
        for pacing in [Pacing::Fixed { per_second }, Pacing::Poisson { per_second, seed: 3 }] {
            let mut client = crate::program::wait_until("a free session", || RawClient::open(tcp));
            let wanted = plan(&[FlowKind::Send], 1000, StopCondition::default());
            let reply = client.ask(&SessionRequest::Plan(ServerPlan { pacing, ..wanted })).unwrap();
            let SessionReply::Refused { reason } = reply else { panic!("{reply:?}") };
            assert!(reason.starts_with("a rate of "), "{reason}");
            // Another plan is welcome.
            let wanted = plan(&[FlowKind::Send], 1000, StopCondition::default());
            assert_eq!(
                client.ask(&SessionRequest::Plan(wanted)).unwrap(),
                SessionReply::Planned { per_second: None, busy_poll_flows: None, time_of_day: None }
            );
        }
    }
}

#[test]
fn a_session_is_planned_once_and_all_its_flows_share_the_rate() {
    let server = serve(ServerLimits { bit_rate: Some(8e6), ..ServerLimits::default() }, None);
    let tcp = &server.endpoints()[0];
    let mut client = RawClient::open(tcp).unwrap();
    let wanted = || SessionRequest::Plan(plan(&[FlowKind::Reflect; 20], 1000, StopCondition::default()));
    assert!(matches!(client.ask(&wanted()).unwrap(), SessionReply::Planned { .. }));
    let SessionReply::Refused { reason } = client.ask(&wanted()).unwrap() else { panic!("planned twice") };
    assert_eq!(reason, "this session has a plan already: open another");
    let streams: Vec<_> = (0..20).map(|flow| client.attach(flow)).collect();
    client.ask(&SessionRequest::Start).unwrap();
    let began = Instant::now();
    // Each sends and takes back as fast as it can.
    let returned = |mut stream: std::net::TcpStream| {
        let (mut room, mut all) = (vec![7; 16_384], 0);
        while began.elapsed() < Duration::from_secs(2)
            && stream.write_all(&room).is_ok()
            && stream.read_exact(&mut room).is_ok()
        {
            all += room.len();
        }
        all
    };
    let back: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = streams.into_iter().map(|stream| scope.spawn(|| returned(stream))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    let allowed = 1e6 * (began.elapsed().as_secs_f64() + 1.0) + 20.0 * 65_536.0;
    assert!(back > 0 && (back as f64) < allowed, "{back} bytes, {allowed} allowed");
}

#[test]
fn busy_polling_leaves_a_cpu_of_the_server_free() {
    let server = serve(ServerLimits::default(), None);
    let mut client = RawClient::open(&server.endpoints()[0]).unwrap();
    let wanted = plan(&[FlowKind::Reflect; 2048], 1000, StopCondition::default());
    let reply = client.ask(&SessionRequest::Plan(ServerPlan { wait: WaitMode::BusyPoll, ..wanted })).unwrap();
    let cpus = linkgauge::host::cpu::current_affinity().len() as u32;
    let granted = Some(cpus.saturating_sub(1).clamp(1, 2047));
    assert_eq!(
        reply,
        SessionReply::Planned { per_second: None, busy_poll_flows: granted, time_of_day: None }
    );
}

#[test]
#[ignore = "long"]
fn a_receiver_of_datagrams_must_confirm_that_it_is_there() {
    let server = serve(ServerLimits::default(), None);
    let udp = &server.endpoints()[1];
    let mut client = RawDatagrams::open(udp);
    let wanted = plan(&[FlowKind::Send], 1000, StopCondition::default());
    let pacing = Pacing::Fixed { per_second: 1000.0 };
    client.ask(&SessionRequest::Plan(ServerPlan { pacing, ..wanted }));
    let (flow, alive) = client.attach(udp, 0);
    assert_eq!(client.ask(&SessionRequest::Start), SessionReply::Started);
    let mut room = [0; 2000];
    flow.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    assert!(flow.recv(&mut room).is_err(), "it was not heard yet");
    flow.send(&alive[..31]).unwrap();
    assert!(flow.recv(&mut room).is_err(), "that is no sign of life");
    // The client sends, and then becomes silent. The server detects this although it sends to the client.
    flow.send(&alive).unwrap();
    flow.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let began = Instant::now();
    while flow.recv(&mut room).is_ok() {
        assert!(began.elapsed() < PATIENCE, "it does not end");
    }
    let SessionReply::Report(report) = client.ask(&SessionRequest::Finish) else { panic!("no report") };
    assert_eq!(report.flows[0].fault.as_deref(), Some("the client sent no keepalive"));
    assert!(report.flows[0].messages > 0);
    // A measuring receiver confirms that it is there.
    let case = "workload = \"throughput\"\ndirection = \"receive\"\ntime = \"4s\"\nrate = \"200/s\"\nsize = 100\nprobe = false";
    let run = measure(udp, case, None);
    assert!(run.is_complete(), "{:?}", run.cases[0].warnings);
    assert!(run.cases[0].elapsed_ns > 3_900_000_000);
}

#[test]
fn the_report_of_many_flows_comes_in_parts() {
    let server = serve(ServerLimits::default(), None);
    let udp = &server.endpoints()[1];
    let mut client = RawDatagrams::open(udp);
    let reply =
        client.ask(&SessionRequest::Plan(plan(&[FlowKind::Reflect; 2000], 100, StopCondition::default())));
    assert_eq!(reply, SessionReply::Planned { per_second: None, busy_poll_flows: None, time_of_day: None });
    let SessionReply::Report(mut report) = client.ask(&SessionRequest::Finish) else { panic!("no report") };
    let mut parts = 1;
    while report.flows.len() < 2000 {
        let from = report.flows.len() as u32;
        let SessionReply::Report(part) = client.ask(&SessionRequest::Rest { from }) else {
            panic!("no part")
        };
        assert!(!part.flows.is_empty() && part.flows.len() < 200);
        report.flows.extend(part.flows);
        parts += 1;
    }
    assert!(report.flows.len() == 2000 && parts > 10, "{parts}");
    let SessionReply::Report(none) = client.ask(&SessionRequest::Rest { from: 2000 }) else {
        panic!("no part")
    };
    assert!(none.flows.is_empty());
}

#[test]
fn a_challenge_opens_one_session() {
    let server = serve(ServerLimits::default(), None);
    let mut client = RawDatagrams::connect(&server.endpoints()[1]);
    let opening = client.opening();
    assert!(matches!(client.ask(&opening), SessionReply::Opened { .. }));
    client.socket.send(&wire::encode_frame(2, &SessionRequest::Bye)).unwrap();
    // From the same address, and in time.
    client.socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let mut client = crate::program::wait_until("the end of the session", || {
        // Requests during the end of the old session get no reply.
        let again = client.reply_to(&wire::encode_frame(9, &opening))?;
        let (_, reply, _) =
            wire::decode_frame::<SessionReply>(&again, wire::MAX_JSON_BYTES).unwrap().unwrap();
        let SessionReply::Refused { reason } = reply else { panic!("{reply:?}") };
        let ended = reason == "that challenge has opened a session before: send another hello";
        ended.then(|| RawDatagrams::connect(&server.endpoints()[1]))
    });
    let opening = client.opening();
    assert!(matches!(client.ask(&opening), SessionReply::Opened { .. }));
}

#[test]
fn a_relayed_proof_opens_no_usable_session() {
    let server = serve(ServerLimits::default(), Some("secret"));
    let tcp = &server.endpoints()[0];
    let mut stream = connect(tcp);
    let hello = Hello::new();
    stream.write_all(hello.bytes()).unwrap();
    let mut ready = [0; wire::HANDSHAKE_BYTES];
    stream.read_exact(&mut ready).unwrap();
    let challenge = hello.challenge_in(&ready).unwrap();
    // The proof that a rogue server gets from an honest client.
    let token = TokenProof { token: "secret", nonce: hello.nonce(), challenge };
    let open = SessionRequest::Open {
        version: wire::VERSION,
        tool: "rogue".to_owned(),
        nonce: wire::encode_hex(hello.nonce()),
        challenge: wire::encode_hex(challenge),
        proof: Some(token.proof()),
    };
    stream.write_all(&wire::encode_frame(1, &open)).unwrap();
    let mut received = Vec::new();
    let (session, key) = loop {
        let mut chunk = [0; 4096];
        let length = stream.read(&mut chunk).unwrap();
        received.extend_from_slice(&chunk[..length]);
        match wire::decode_frame::<SessionReply>(&received, wire::MAX_JSON_BYTES).unwrap() {
            Some((_, SessionReply::Opened { session, key, .. }, _)) => break (session, key),
            Some((_, reply, _)) => panic!("{reply:?}"),
            None => {}
        }
    };
    assert_eq!(key, None, "it does not go over the wire");
    // It cannot plan: a frame is not signed, or not with that key.
    let wanted = SessionRequest::Plan(plan(&[FlowKind::Send], 1000, StopCondition::default()));
    stream.write_all(&wire::encode_frame(2, &wanted)).unwrap();
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).unwrap();
    assert!(wire::decode_frame::<SessionReply>(&reply, wire::MAX_JSON_BYTES).is_err(), "it is signed");
    let key = token.session_key(u64::from_str_radix(&session, 16).unwrap());
    let (_, reply, _) =
        FrameCodec::signed(key).decode::<SessionReply>(&reply, wire::MAX_JSON_BYTES).unwrap().unwrap();
    let SessionReply::Refused { reason } = reply else { panic!("{reply:?}") };
    assert!(reason.ends_with("not signed with the token of this session"), "{reason}");
}

#[test]
fn every_server_has_its_own_secret() {
    let [one, other] = [ServerConfig::default().secret, ServerConfig::default().secret];
    assert!(one != other && one != [0; 32] && other != [0; 32]);
}

#[test]
#[ignore = "long"]
fn an_upload_over_a_slow_link_has_the_rate_of_its_receiver() {
    let server = serve(ServerLimits::default(), None);
    // The buffers of both hosts hold several times the data that this link carries in the requested time.
    let rate = 400e3;
    let up = Shape {
        delay: Duration::from_millis(25),
        bits_per_second: rate,
        queue_bytes: 64 << 10,
        ..Shape::default()
    };
    let down = Shape { delay: Duration::from_millis(25), bits_per_second: 1.5e6, ..Shape::default() };
    let options = ShaperOptions {
        listen: "tcp://127.0.0.1:0".parse().unwrap(),
        to: server.endpoints()[0].clone(),
        up,
        down,
        seed: 1,
        log: None,
    };
    let shaper = Shaper::start(&options, &Registry::standard().dialer(Clock::System)).unwrap();
    let case = "workload = \"throughput\"\ntime = \"2s\"\ntimeout = \"2s\"\nprobe = false";
    let run = measure(shaper.endpoint(), case, None);
    assert!(run.is_complete(), "{:?}", run.cases[0].warnings);
    let figures = &run.cases[0].figures;
    let measured = figures.delivery.throughput_bps.expect("the receiver's rate");
    assert!((0.7..1.1).contains(&(measured / rate)), "{measured}");
    assert_eq!(figures.counts.lost, 0);
}

#[test]
fn a_reliable_stream_loses_nothing_whatever_the_warm_up() {
    let server = serve(ServerLimits::default(), None);
    let tcp = &server.endpoints()[0];
    for parallel in [1, 4] {
        for direction in ["send", "receive", "both"] {
            let case = format!(
                "workload = \"throughput\"\ndirection = \"{direction}\"\nparallel = {parallel}\ntime = \"300ms\"\n\
                 warm_up_time = \"200ms\"\ntimeout = \"20s\""
            );
            let run = measure(tcp, &case, None);
            assert!(run.is_complete(), "{:?}", run.cases[0].warnings);
            let figures = &run.cases[0].figures;
            assert_eq!(
                (figures.counts.lost, figures.counts.sent),
                (0, figures.counts.received),
                "{direction} {parallel}"
            );
        }
    }
}

#[test]
fn socket_options_of_the_server_need_a_socket_that_has_them() {
    let server = Serving::start(&[]);
    let of = |url: &str, options: &str| {
        run(&["latency", url, "--protocol", "linkgauge", "-n", "20", "-q", "--server-socket", options])
    };
    let url = server.tcp.to_string();
    assert_eq!(of(&url, "quickack=1,nodelay=1,rcvbuf=64Ki,sndbuf=64Ki").status, Some(0));
    assert!(of(&url, "rcvbuf=0").stderr.contains("server-rcvbuf '0' is not a size from 1 to 64Mi bytes"));
    assert!(of(&url, "ttl=3").stderr.contains("use nodelay, quickack, rcvbuf or sndbuf"));
    let directory = tempfile::tempdir().unwrap();
    let unix = format!("unix://{}/socket", directory.path().display());
    let _server = Serving::start(&[&unix]);
    let refused = of(&unix, "quickack=1");
    assert_eq!(refused.status, Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("set TCP_QUICKACK"), "{}", refused.stderr);
}
