//! A server on an open network: each limit holds for each protocol, including new ones.
//!
//! The list gives the protocols. A new one needs the first message of its clients in [`opening`].

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use linkgauge::Registry;
use linkgauge::clock::Clock;
use linkgauge::endpoint::Endpoint;
use linkgauge::host::raise_open_file_limit;
use linkgauge::protocol::device::wire::{DeviceHeader, DeviceMessage, HEADER_BYTES};
use linkgauge::protocol::irtt::packet::{OPEN, packet_of};
use linkgauge::protocol::irtt::params::Params;
use linkgauge::protocol::linkgauge::wire::{self, Hello};
use linkgauge::protocol::{Protocol, ServerConfig, ServerLimits};
use linkgauge::serve::Server;
use socket2::{Domain, Socket, Type};

use super::memory::status_kib;
use super::program::{PATIENCE, Running, Serving, run, wait_until};
use super::raw_client::{address, connect};

fn serve_at(peer: &Protocol, url: &str, limits: ServerLimits) -> Option<Server> {
    let facts = ServerConfig { limits, secret: [9; 32], ..ServerConfig::default() };
    let service = peer.serve?(&Arc::new(facts));
    Server::start(&[url.parse().unwrap()], &service, &limits, &Registry::standard().dialer(Clock::System))
        .ok()
}

/// The protocols that can be served there, each with a server.
fn all(url: &str, limits: ServerLimits) -> Vec<(&'static str, Server)> {
    let serve = |peer: &'static Protocol| Some((peer.name, serve_at(peer, url, limits)?));
    let all: Vec<_> = Registry::standard().protocols.iter().filter_map(serve).collect();
    assert!(all.len() >= 2, "{url}");
    all
}

/// A message that a client of a protocol repeats on a stream, so that the server continues.
fn opening(protocol: &str) -> Vec<u8> {
    match protocol {
        "linkgauge" | "echo" | "discard" => vec![b'x'; 1000],
        "chargen" => Vec::new(),
        // A message of 1000 bytes that requests a reply.
        "sockperf" => {
            let mut message = vec![0; 1000];
            message[..14].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, 1, 0, 3, 0, 0, 0x03, 0xe8]);
            message
        }
        // An echo of 1000 bytes.
        "device" => device_message(DeviceMessage::Echo, 1000),
        // Blocks of 8 bytes follow, and all of those are zeros.
        "netio" => [&[0, 0, 0, 1, 0, 0, 0, 8][..], &[0; 992]].concat(),
        // Messages of 1000 bytes that are to be returned.
        "iperf2" => {
            let mut message = vec![0; 1000];
            message[..8].copy_from_slice(&[0, 0x80, 0, 0, 0, 0, 0x03, 0xe8]);
            message
        }
        "iperf3" => b"a0123456789b0123456789c0123456789d012\0".to_vec(),
        other => panic!("add the first message of a client of {other} here"),
    }
}

/// A message of the device protocol.
fn device_message(kind: DeviceMessage, bytes: u16) -> Vec<u8> {
    let header = DeviceHeader { kind, is_reply: false, length: bytes, session: 7, number: 0 };
    let mut message = vec![0; bytes.into()];
    message[..HEADER_BYTES].copy_from_slice(&header.encode());
    message
}

/// The bytes after the opening.
fn more(protocol: &str) -> Vec<u8> {
    if protocol == "netio" { vec![0; 1000] } else { opening(protocol) }
}

/// Protocols whose clients may repeat the same message for an unlimited time.
fn endless(limits: ServerLimits, options: &str) -> Vec<(&'static str, Server)> {
    let mut all = all(&format!("tcp://127.0.0.1:0{options}"), limits);
    all.retain(|(name, _)| !matches!(*name, "iperf3" | "twamp"));
    assert_eq!(all.len(), 8, "all but iperf3 and twamp");
    all
}

fn is_end(error: &std::io::Error) -> bool {
    !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

fn wait_for_none(name: &str, server: &Server) {
    let open = || server.counters().open.load(std::sync::atomic::Ordering::SeqCst);
    wait_until(&format!("the end of a connection to {name}"), || (open() == 0).then_some(()));
}

/// Repeats the message, and reads if `reads` is set, until the server ends the connection.
fn talk_until_ended(stream: &mut TcpStream, protocol: &str, reads: bool) -> (u64, Duration) {
    stream.set_nonblocking(true).unwrap();
    let (first, more) = (opening(protocol), more(protocol));
    let (began, mut written, mut room) = (Instant::now(), 0, vec![0; 65_536]);
    loop {
        assert!(began.elapsed() < PATIENCE, "{protocol}: the server does not end it");
        let at = written as usize;
        let bytes =
            if at < first.len() { &first[at..] } else { &more[(at - first.len()) % more.len().max(1)..] };
        let wrote = match stream.write(bytes) {
            Ok(length) => length,
            Err(error) if is_end(&error) => return (written, began.elapsed()),
            Err(_) => 0,
        };
        written += wrote as u64;
        let read = match if reads { stream.read(&mut room) } else { Err(ErrorKind::WouldBlock.into()) } {
            Ok(0) => return (written, began.elapsed()),
            Ok(length) => length,
            Err(error) if is_end(&error) => return (written, began.elapsed()),
            Err(_) => 0,
        };
        if wrote + read == 0 {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

#[test]
#[ignore = "long"]
fn a_client_that_never_reads_is_closed_in_every_protocol() {
    for (name, server) in endless(ServerLimits { idle_s: 1, ..ServerLimits::default() }, "") {
        // These servers send nothing.
        if matches!(name, "discard" | "netio") {
            continue;
        }
        let mut stream = connect(&server.endpoints()[0]);
        if name == "chargen" {
            // The first byte shows that it has begun.
            stream.read_exact(&mut [0]).unwrap();
        } else {
            talk_until_ended(&mut stream, name, false);
        }
        wait_for_none(name, &server);
    }
}

#[test]
#[ignore = "long"]
fn the_maximum_time_holds_in_every_protocol() {
    for (name, server) in endless(ServerLimits { duration_s: 1, idle_s: 600, ..ServerLimits::default() }, "")
    {
        // Its echo has the time that a flow of a plan may take longer.
        if name == "linkgauge" {
            continue;
        }
        let (_, took) = talk_until_ended(&mut connect(&server.endpoints()[0]), name, true);
        assert!(took >= Duration::from_millis(900), "{name}: {took:?}");
        wait_for_none(name, &server);
    }
}

#[test]
#[ignore = "long"]
fn the_rate_limit_holds_for_received_data_in_every_protocol() {
    let limits = ServerLimits { bit_rate: Some(8e6), duration_s: 2, idle_s: 600, ..ServerLimits::default() };
    for (name, server) in endless(limits, "?rcvbuf=64Ki&sndbuf=64Ki") {
        if matches!(name, "linkgauge" | "chargen") {
            continue;
        }
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_send_buffer_size(65_536).unwrap();
        socket.connect(&address(&server.endpoints()[0]).into()).unwrap();
        let (written, took) = talk_until_ended(&mut socket.into(), name, true);
        // A megabyte a second; the rest lies in the buffers of both ends.
        let most = 1.1e6 * (took.as_secs_f64() + 0.25) + 600_000.0;
        assert!((written as f64) < most, "{name}: {written} bytes in {took:?}");
        assert!(written > 500_000, "{name}: {written} bytes in {took:?}");
    }
}

#[test]
fn two_connections_of_one_address_share_its_rate() {
    let limits = ServerLimits { bit_rate: Some(8e6), duration_s: 2, ..ServerLimits::default() };
    let server =
        serve_at(Registry::standard().protocol("chargen").unwrap(), "tcp://127.0.0.1:0?sndbuf=64Ki", limits)
            .unwrap();
    let began = Instant::now();
    let read = || {
        let mut all = Vec::new();
        let _ = connect(&server.endpoints()[0]).read_to_end(&mut all);
        all.len()
    };
    let total: usize = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..4).map(|_| scope.spawn(read)).collect();
        readers.into_iter().map(|reader| reader.join().unwrap()).sum()
    });
    let most = 1.1e6 * (began.elapsed().as_secs_f64() + 0.25) + 100_000.0;
    assert!((total as f64) < most && total > 500_000, "{total} bytes");
}

/// Whether the server continues to serve this client: it replies, or keeps the connection open.
fn is_served(endpoint: &Endpoint, protocol: &str) -> Option<TcpStream> {
    let mut stream = connect(endpoint);
    let _ = stream.write_all(&opening(protocol));
    stream.set_read_timeout(Some(Duration::from_millis(1500))).unwrap();
    match stream.read(&mut [0; 4096]) {
        Ok(0) => None,
        Ok(_) => Some(stream),
        Err(error) if is_end(&error) => None,
        Err(_) => Some(stream),
    }
}

#[test]
#[ignore = "long"]
fn the_session_limit_holds_in_every_protocol() {
    let limits = ServerLimits { sessions: 2, ..ServerLimits::default() };
    for (name, server) in endless(limits, "") {
        // Its echo is not a session; `server.rs` counts sessions.
        if name == "linkgauge" {
            continue;
        }
        let endpoint = &server.endpoints()[0];
        let (first, second) = (is_served(endpoint, name), is_served(endpoint, name));
        assert!(first.is_some() && second.is_some(), "{name}");
        assert!(is_served(endpoint, name).is_none(), "{name}: a third");
        drop(first);
        wait_until("a free place", || is_served(endpoint, name));
    }
}

/// Requests for a test of irtt: what its client sends, the smallest one, and one for a long test with every parameter.
fn irtt_requests() -> Vec<Vec<u8>> {
    let usual = Params::read(b"\x01\x02\x02\x80\x8c\x8d\x9e\x02\x03\x80\x84\xaf\x5f\x05\x06\x06\x06\x07\x06")
        .unwrap();
    let smallest = Params::read(b"\x01\x02\x02\x02\x03\x02").unwrap();
    let longest = [&usual.to_bytes()[..], b"\x04\x80\x17\x08\xf0\x02\x09\x04rand"].concat();
    let requests = [usual.to_bytes(), smallest.to_bytes(), longest];
    requests.iter().map(|params| packet_of(OPEN, &[params], None)).collect()
}

/// A setup request of udpst, and activations in both directions, the second one for as much as there is.
fn udpst_requests() -> Vec<Vec<u8>> {
    let setup = b"\xac\xe1\0\x14\0\x01\0\x07\x01\0\0\0\0\0\x01";
    let activation = b"\xac\xe2\0\x14\x01\0\0\x1e\0\x5a\0\x32\0\x0a\0\0\x04\x80\0\x0a\0\x03\0\x0a\x01";
    let padded = |start: &[u8], length| {
        let mut message = start.to_vec();
        message.resize(length, 0);
        message
    };
    let (upload, mut download) = (padded(activation, 104), padded(activation, 104));
    download[4] = 2;
    vec![padded(setup, 56), upload, download]
}

/// First datagrams that other programs, or attackers, would send.
fn datagrams() -> Vec<Vec<u8>> {
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>();
    let mut all = vec![opening("sockperf")];
    all.push(Hello::new().bytes().to_vec());
    for kind in [
        DeviceMessage::Hello,
        DeviceMessage::Echo,
        DeviceMessage::Data,
        DeviceMessage::End,
        DeviceMessage::Report,
    ] {
        all.extend([16, 32, 56, 100].map(|bytes| device_message(kind, bytes)));
    }
    all.extend(irtt_requests());
    all.extend(udpst_requests());
    for magic in [wire::HELLO_MAGIC, wire::FRAME_MAGIC, wire::ATTACH_MAGIC] {
        all.push([&magic[..], &[7; 90]].concat());
    }
    // Bursts of linx_bmark, in both styles.
    for number in 0..0x40 {
        all.push(words(&[number, 10_000, 7, 1000]));
        all.push(words(&[0x2870 + number, 10_000, 7, 1000]));
    }
    for length in [14, 41, 44, 112, 1000] {
        let mut request = vec![0; length];
        request[13] = 1;
        all.push(request);
    }
    all.push(b"9876".to_vec());
    all.push(words(&[0, 66_000, 0, 0]));
    all.push(words(&[2, 1000, 1000, 1]));
    all.extend((0..200).map(|length| vec![1; length]));
    all
}

/// Bytes out and in for first datagrams, each from a port of its own. A reply may be longer by `growth` bytes.
fn exchanged(endpoint: &Endpoint, growth: usize) -> (usize, usize) {
    let mut sent = Vec::new();
    for (number, datagram) in datagrams().into_iter().enumerate() {
        if number % 16 == 0 {
            // The listener's buffer is small.
            std::thread::sleep(Duration::from_millis(10));
        }
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        // Of other tests that had this port nothing arrives.
        socket.connect(address(endpoint)).unwrap();
        socket.send(&datagram).unwrap();
        socket.set_nonblocking(true).unwrap();
        sent.push((socket, datagram));
    }
    // By then every continuing sender has started.
    std::thread::sleep(Duration::from_millis(500));
    let (mut out, mut into, mut room) = (0, 0, vec![0; 65_536]);
    for (socket, datagram) in sent {
        let mut replied = 0;
        while let Ok(length) = socket.recv(&mut room) {
            replied += length;
        }
        assert!(replied <= datagram.len() + growth, "{endpoint}: {replied} bytes for {datagram:?}");
        (out, into) = (out + replied, into + if replied > 0 { datagram.len() } else { 0 });
    }
    (out, into)
}

#[test]
#[ignore = "long"]
fn no_datagram_gets_a_longer_reply_in_any_protocol() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/security.md")).unwrap();
    let mut served = Vec::new();
    for (name, server) in all("udp://127.0.0.1:0", ServerLimits::default()) {
        // The token of its handshake, and an interval that needs more digits.
        let growth = if name == "irtt" { 11 } else { 0 };
        let (out, into) = exchanged(&server.endpoints()[0], growth);
        println!("{name}: {out} bytes out for {into} in");
        let row = format!("| `{name}` | {:.2} |", out as f64 / into.max(1) as f64);
        assert!(page.contains(&row), "docs/security.md lacks {row}");
        served.push((name, out > 0));
    }
    assert_eq!(
        served,
        [
            ("linkgauge", true),
            ("echo", true),
            ("discard", false),
            ("chargen", true),
            ("stamp", true),
            ("twamp-light", true),
            ("irtt", true),
            ("sockperf", true),
            ("iperf3", false),
            ("iperf2", false),
            ("udpst", true),
            ("netio", false),
            ("device", true)
        ]
    );
}

#[test]
fn bursts_need_a_connection() {
    let outcome = run(&["serve", "--protocol", "linx-bmark", "udp://127.0.0.1:0"]);
    assert_eq!((outcome.status, outcome.stderr.lines().count()), (Some(2), 1), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("links with connections"), "{}", outcome.stderr);
}

#[test]
fn unsupported_limits_are_refused_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let token = directory.path().join("token");
    std::fs::write(&token, "secret").unwrap();
    let token = token.to_str().unwrap();
    for peer in Registry::standard()
        .protocols
        .iter()
        .filter(|peer| peer.serve.is_some() && !["linkgauge", "stamp", "irtt", "udpst"].contains(&peer.name))
    {
        let outcome = run(&["serve", "--protocol", peer.name, "--token-file", token, "--time", "1ms"]);
        assert_eq!(
            (outcome.status, outcome.stderr.lines().count()),
            (Some(2), 1),
            "{}: {}",
            peer.name,
            outcome.stderr
        );
        assert!(outcome.stderr.contains("--token-file: the protocol "), "{}", outcome.stderr);
    }
    for (line, flag) in [
        ("--protocol echo --stateless", "--stateless"),
        ("--protocol linkgauge --stateless", "--stateless"),
        ("--protocol discard --max-size 1k tcp://127.0.0.1:0", "--max-size"),
        ("--protocol sockperf --max-flows 3", "--max-flows"),
    ] {
        let arguments: Vec<&str> = ["serve", "--time", "1ms"].into_iter().chain(line.split(' ')).collect();
        let outcome = run(&arguments);
        assert_eq!(
            (outcome.status, outcome.stderr.lines().count()),
            (Some(2), 1),
            "{line}: {}",
            outcome.stderr
        );
        assert!(outcome.stderr.contains(&format!("{flag}: the protocol ")), "{}", outcome.stderr);
    }
    // With messages the server measures them.
    let fine = ["serve", "--time", "1ms", "--protocol", "echo", "--max-size", "1k", "udp://127.0.0.1:0"];
    assert_eq!(run(&fine).status, Some(0));
}

/// Whether the server has ended this connection, on which it sends nothing.
fn is_ended(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    match (&*stream).read(&mut [0; 64]) {
        Ok(length) => length == 0,
        Err(error) => is_end(&error),
    }
}

#[test]
fn clients_without_a_handshake_make_room_for_others() {
    // 20 connections of a source may wait.
    let limits = ServerLimits { flows: 4, idle_s: 600, ..ServerLimits::default() };
    let server =
        serve_at(Registry::standard().protocol("linkgauge").unwrap(), "tcp://127.0.0.1:0", limits).unwrap();
    let endpoint = &server.endpoints()[0];
    let silent: Vec<_> = (0..50).map(|_| connect(endpoint)).collect();
    wait_until("the end of the oldest", || silent[..30].iter().all(is_ended).then_some(()));
    assert!(!silent[30..].iter().any(is_ended), "the last ones wait");
    // A hello alone is treated in the same way.
    let half: Vec<_> = (0..20)
        .map(|_| {
            let mut stream = connect(endpoint);
            stream.write_all(Hello::new().bytes()).unwrap();
            stream
        })
        .collect();
    wait_until("the end of the silent ones", || silent.iter().all(is_ended).then_some(()));
    // Another source is not affected, and a client that sends is served.
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&"127.0.0.2:0".parse::<std::net::SocketAddr>().unwrap().into()).unwrap();
    socket.connect(&address(endpoint).into()).unwrap();
    let other: TcpStream = socket.into();
    let session = super::raw_client::RawClient::open(endpoint);
    assert!(session.is_some(), "a session");
    assert!(!is_ended(&other));
    drop(half);
}

#[test]
fn silent_clients_give_up_their_descriptors() {
    let line = format!(
        "ulimit -n 64; exec {} serve --protocol echo tcp://127.0.0.1:0",
        env!("CARGO_BIN_EXE_linkgauge")
    );
    let mut command = Command::new("sh");
    command.args(["-c", &line]).env("LINKGAUGE_STORE", "").stdin(Stdio::null()).stdout(Stdio::piped());
    let (_server, place) = place_of(Running(command.spawn().unwrap()));
    let endpoint: Endpoint = format!("tcp://{place}").parse().unwrap();
    let silent: Vec<_> = (0..100).map(|_| connect(&endpoint)).collect();
    let mut client = connect(&endpoint);
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(b"hello").unwrap();
    client.read_exact(&mut [0; 5]).unwrap();
    drop(silent);
}

#[test]
fn ten_thousand_idle_clients_cost_little_and_leave_nothing() {
    const MOST_KIB: u64 = 100 * 1024;
    raise_open_file_limit();
    for name in ["linkgauge", "echo", "sockperf", "chargen"] {
        let server = Serving::start(&["--protocol", name]);
        let resident = || status_kib(&server.pid(), "VmRSS");
        let before = resident();
        let idle: Vec<TcpStream> = (0..10_000).map(|_| connect(&server.tcp)).collect();
        let datagram = [&[0; 13][..], &[1], &[0; 30]].concat();
        for _ in 0..10_000 {
            // The ports are distinct, for the kernel takes them at random; the sockets need not live on.
            UdpSocket::bind("127.0.0.1:0").unwrap().send_to(&datagram, server.udp.address()).unwrap();
        }
        // A client that sends is served meanwhile.
        if name != "chargen" {
            drop(wait_until("a reply", || is_served(&server.tcp, name)));
        }
        let during = resident();
        drop(idle);
        wait_until("little memory", || (resident() < before + 20 * 1024).then_some(()));
        println!("{name}: {before} KiB before, {during} with ten thousand, {} after", resident());
        assert!(during < MOST_KIB, "{name}: {during} KiB");
    }
}

#[test]
fn ten_thousand_senders_of_test_packets_cost_little() {
    raise_open_file_limit();
    let (server, place) = place_of(Running::start(&["serve", "--protocol", "stamp", "udp://127.0.0.1:0"]));
    let resident = || status_kib(&server.0.id().to_string(), "VmRSS");
    let mut request = [0; 44];
    request[13] = 1;
    let before = resident();
    // From a hundred addresses. More than the first three thousand are not taken, so the others need not live on.
    let mut sockets = Vec::new();
    for number in 0..10_000 {
        let socket = UdpSocket::bind(format!("127.0.{}.1:0", number % 100)).unwrap();
        socket.send_to(&request, &place).unwrap();
        if number < 3_000 {
            sockets.push(socket);
        }
    }
    let first = &sockets[0];
    first.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(first.recv(&mut [0; 100]).unwrap(), 44);
    let during = resident();
    println!("stamp: {before} KiB before, {during} with ten thousand");
    assert!(during < 100 * 1024, "{during} KiB");
}

/// A server on one endpoint, and where it is.
fn place_of(mut server: Running) -> (Running, String) {
    let mut line = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let place = line.trim().rsplit("://").next().unwrap().to_owned();
    (server, place)
}

/// A request of `stamp` and `twamp-light`.
const TEST_PACKET: [u8; 44] = [1; 44];

/// Sends a request every 20 ms, as a client does, until one has a reply; returns the number of the reply.
fn reply_number(socket: &UdpSocket) -> u32 {
    socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    wait_until("a reply of the reflector", || {
        socket.send(&TEST_PACKET).unwrap();
        let mut reply = [0; 100];
        socket.recv(&mut reply).is_ok().then(|| u32::from_be_bytes(*reply.first_chunk().unwrap()))
    })
}

#[test]
fn senders_with_unverified_addresses_make_room_for_others() {
    for (name, is_stateless) in [("stamp", false), ("twamp-light", false), ("stamp", true)] {
        let protocol = Registry::standard().protocol(name).unwrap();
        let limits = ServerLimits::default();
        let service =
            protocol.serve.unwrap()(&Arc::new(ServerConfig { is_stateless, ..ServerConfig::default() }));
        let endpoints = ["udp://127.0.0.1:0".parse().unwrap()];
        let server =
            Server::start(&endpoints, &service, &limits, &Registry::standard().dialer(Clock::System))
                .unwrap();
        let connected = |host: String| {
            let socket = UdpSocket::bind((host.as_str(), 0)).unwrap();
            socket.connect(address(&server.endpoints()[0])).unwrap();
            socket
        };
        let early = connected("127.0.0.2".to_owned());
        let first = reply_number(&early);
        // More than all places, from one host, and from many.
        let flood = |host: &dyn Fn(usize) -> String| {
            let send = |number| connected(host(number)).send(&TEST_PACKET).unwrap();
            (0..300).for_each(|number| assert_eq!(send(number), TEST_PACKET.len()));
        };
        flood(&|_| "127.0.0.3".to_owned());
        // A client that was there keeps its place, and its count of replies.
        if !is_stateless {
            assert!(reply_number(&early) > first, "{name}");
        }
        flood(&|number| format!("127.0.1.{}", number % 250 + 1));
        reply_number(&connected("127.0.0.4".to_owned()));
        let open = server.counters().open.load(std::sync::atomic::Ordering::SeqCst);
        assert!(if is_stateless { open == 0 } else { open <= 512 }, "{name}: {open} links");
    }
}
