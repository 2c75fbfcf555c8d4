//! `lab shaper` between our own client and server: data arrives completely, later, and as counted.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::{Duration, Instant};

use linkgauge::Registry;
use linkgauge::clock::Clock;
use linkgauge::endpoint::Endpoint;
use linkgauge::lab::shaper::{PROFILES, Shaper, ShaperOptions};
use linkgauge::link::Link;
use linkgauge::link::shaped::{Occurrence, Shape};
use rustix::process::Signal;

use super::echo_server::{EchoServer, GOODBYE};
use super::program::{PATIENCE, Running, command, run, wait_until};

const LONG: Duration = Duration::from_secs(20);

fn start(listen: &str, to: &Endpoint, up: Shape, down: Shape) -> Shaper {
    let options =
        ShaperOptions { listen: listen.parse().unwrap(), to: to.clone(), up, down, seed: 1, log: None };
    Shaper::start(&options, &Registry::standard().dialer(Clock::System))
        .unwrap_or_else(|error| panic!("{error}"))
}

/// A shaper in front of a TCP server of this test, and the address to connect to.
fn before(server: &TcpListener, up: Shape, down: Shape) -> (Shaper, String) {
    let to = format!("tcp://{}", server.local_addr().unwrap()).parse().unwrap();
    let shaper = start("tcp://127.0.0.1:0", &to, up, down);
    let place = shaper.endpoint().address().to_owned();
    (shaper, place)
}

fn listen() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").unwrap()
}

fn connect(place: &str) -> TcpStream {
    let stream = TcpStream::connect(place).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn accept(server: &TcpListener) -> TcpStream {
    let stream = server.accept().unwrap().0;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn delayed(ms: u64) -> Shape {
    Shape { delay: Duration::from_millis(ms), ..Shape::default() }
}

fn open(shaper: &Shaper) -> Box<dyn Link> {
    Registry::standard().dialer(Clock::System).open(shaper.endpoint()).unwrap()
}

/// Bytes that identify their position.
fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..length).map(|_| random.u8(..)).collect()
}

fn send_all(link: &mut dyn Link, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        bytes = &bytes[link.send(bytes, LONG).unwrap()..];
    }
}

#[test]
fn a_rate_is_never_exceeded_and_shared_by_all() {
    let server = listen();
    let slow = Shape { bits_per_second: 8e6, queue_bytes: 20_000, ..Shape::default() };
    let (_shaper, place) = before(&server, slow.clone(), slow);
    let senders = [1u64, 2].map(|seed| {
        let mut stream = connect(&place);
        thread::spawn(move || {
            stream.write_all(&pattern(150_000, seed)).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).unwrap();
        })
    });
    let began = Instant::now();
    let mut got: Vec<Vec<u8>> = thread::scope(|scope| {
        let readers = [(); 2].map(|()| {
            let mut stream = accept(&server);
            scope.spawn(move || {
                let mut bytes = Vec::new();
                stream.read_to_end(&mut bytes).unwrap();
                bytes
            })
        });
        readers.map(|reader| reader.join().unwrap()).to_vec()
    });
    // Data that passed before the clock was read: less than the queue.
    assert!(began.elapsed() >= Duration::from_millis(300 - 20), "{:?}", began.elapsed());
    let mut sent = vec![pattern(150_000, 1), pattern(150_000, 2)];
    got.sort();
    sent.sort();
    assert!(got == sent, "streams arrive whole");
    senders.into_iter().for_each(|sender| sender.join().unwrap());
}

#[test]
fn two_hundred_connections_at_once() {
    let echo = EchoServer::listen("tcp://127.0.0.1:0");
    let shaper = start("tcp://127.0.0.1:0", &echo.endpoint, delayed(50), delayed(50));
    let mut links: Vec<_> = (0..200).map(|_| open(&shaper)).collect();
    for round in 0..2u64 {
        for (number, link) in links.iter_mut().enumerate() {
            send_all(&mut **link, &pattern(500, number as u64 * 2 + round));
        }
        for (number, link) in links.iter_mut().enumerate() {
            let (mut got, mut length) = ([0; 500], 0);
            while length < 500 {
                length += link.receive(&mut got[length..], LONG).unwrap();
            }
            assert!(got[..] == pattern(500, number as u64 * 2 + round), "connection {number}");
        }
    }
    assert_eq!(shaper.counters().open.load(SeqCst), 200);
    drop(links);
    wait_until("the end of all connections", || (shaper.counters().open.load(SeqCst) == 0).then_some(()));
    assert_eq!(shaper.counters().failed.load(SeqCst), 0);
}

#[test]
fn a_side_that_does_not_read_delays_no_other() {
    let server = listen();
    let shape = Shape { bits_per_second: 800e6, queue_bytes: 100_000, ..Shape::default() };
    let (shaper, place) = before(&server, shape.clone(), shape);
    let mut stalled = connect(&place);
    let never_reads = accept(&server);
    stalled.set_nonblocking(true).unwrap();
    // Until all buffers of the path are full.
    let mut sent = 0;
    let mut last = Instant::now();
    while last.elapsed() < Duration::from_millis(500) {
        match stalled.write(&[7; 65_536]) {
            Ok(length) => (sent, last) = (sent + length, Instant::now()),
            Err(_) => thread::sleep(Duration::from_millis(5)),
        }
    }
    assert!(sent > 100_000);
    for _ in 0..3 {
        let mut client = connect(&place);
        let mut echo = accept(&server);
        client.write_all(b"question").unwrap();
        let mut got = [0; 8];
        echo.read_exact(&mut got).unwrap();
        echo.write_all(&got).unwrap();
        client.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"question");
    }
    // And it loses nothing when it reads at last.
    stalled.set_nonblocking(false).unwrap();
    stalled.shutdown(Shutdown::Write).unwrap();
    let mut all = Vec::new();
    { never_reads }.read_to_end(&mut all).unwrap();
    assert!(all.len() == sent && all.iter().all(|&byte| byte == 7));
    drop(stalled);
    wait_until("the end of all connections", || (shaper.counters().open.load(SeqCst) == 0).then_some(()));
}

#[test]
fn the_buffers_in_front_of_a_slow_line_are_small() {
    let server = listen();
    let slow = Shape { bits_per_second: 800e3, queue_bytes: 65_536, ..Shape::default() };
    let (shaper, place) = before(&server, slow.clone(), slow);
    assert_eq!(shaper.endpoint().options().count(), 0, "{}", shaper.endpoint());
    let mut sender = connect(&place);
    let _receiver = accept(&server);
    sender.set_nonblocking(true).unwrap();
    let (mut sent, began, mut last) = (0, Instant::now(), Instant::now());
    while last.elapsed() < Duration::from_millis(100) && began.elapsed() < Duration::from_secs(1) {
        match sender.write(&[7; 65_536]) {
            Ok(length) => (sent, last) = (sent + length, Instant::now()),
            Err(_) => thread::sleep(Duration::from_millis(1)),
        }
    }
    // The queue, what leaves meanwhile, and some more; several megabytes with the buffers of loopback.
    assert!((65_536..800_000).contains(&sent), "{sent}");
}

#[test]
fn a_refusing_server_closes_the_client() {
    let unused = { listen().local_addr().unwrap() };
    let to: Endpoint = format!("tcp://{unused}").parse().unwrap();
    let shaper = start("tcp://127.0.0.1:0", &to, delayed(1), delayed(1));
    let mut client = connect(shaper.endpoint().address());
    assert_eq!(client.read(&mut [0; 10]).unwrap(), 0);
    let line = wait_until("the reason", || shaper.events().next());
    assert!(line.contains(&format!("{to}: connection refused")), "{line}");
    assert_eq!(shaper.counters().failed.load(SeqCst), 1);
}

#[test]
fn data_before_the_end_arrives_before_it() {
    let server = listen();
    let (shaper, place) = before(&server, delayed(30), delayed(30));
    // The server sends a message and closes, though the client has not finished.
    let mut client = connect(&place);
    accept(&server).write_all(b"goodbye").unwrap();
    let mut got = Vec::new();
    client.read_to_end(&mut got).unwrap();
    assert_eq!(got, b"goodbye");
    drop(client);
    wait_until("the end of the connection", || (shaper.counters().open.load(SeqCst) == 0).then_some(()));

    // The client finishes, and the server replies after that.
    let mut client = connect(&place);
    let mut echo = accept(&server);
    client.write_all(b"question").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    got.clear();
    echo.read_to_end(&mut got).unwrap();
    echo.write_all(b"answer").unwrap();
    drop(echo);
    client.read_to_end(&mut got).unwrap();
    assert_eq!(got, b"questionanswer");
}

#[test]
fn a_client_that_vanishes_closes_the_server_side() {
    let server = listen();
    let (shaper, place) = before(&server, delayed(1), delayed(1));
    let client = connect(&place);
    let mut echo = accept(&server);
    echo.write_all(&[0; 1000]).unwrap();
    wait_until("something to leave unread", || (client.peek(&mut [0; 1]).ok()? == 1).then_some(()));
    // Closing with bytes unread resets the connection.
    drop(client);
    assert_eq!(echo.read(&mut [0; 10]).unwrap(), 0);
    // The server side neither closes nor sends anything, and still no connection is left.
    wait_until("the end of the connection", || (shaper.counters().open.load(SeqCst) == 0).then_some(()));
    drop(echo);
}

#[test]
fn datagrams_are_lost_doubled_and_counted() {
    let echo = EchoServer::listen("udp://127.0.0.1:0");
    let faulty = Shape {
        delay: Duration::from_millis(2),
        loss: Occurrence::Share(0.2),
        duplicate: Occurrence::Share(0.1),
        reorder: Occurrence::Share(0.1),
        ..Shape::default()
    };
    let shaper = start("udp://127.0.0.1:0", &echo.endpoint, faulty, Shape::default());
    let mut link = open(&shaper);
    let mut room = [0; 100];
    let mut got: Vec<u32> = Vec::new();
    for first in (0..1000u32).step_by(10) {
        for number in first..first + 10 {
            link.send(&number.to_be_bytes(), LONG).unwrap();
        }
        // No faster than a socket buffer can absorb on a busy machine.
        while let Ok(4) = link.receive(&mut room, Duration::from_millis(20)) {
            got.push(u32::from_be_bytes(room[..4].try_into().unwrap()));
        }
    }
    let [up, down] = shaper.tallies();
    // The seed decides on 1000 messages; five standard deviations.
    assert!((135..265).contains(&up.lost) && (30..140).contains(&up.duplicated), "{up:?}");
    assert!(up.overtaken > 20, "{up:?}");
    assert_eq!(got.len() as u64, 1000 - up.lost + up.duplicated);
    assert_eq!((up.bytes, down.bytes), (got.len() as u64 * 4, got.len() as u64 * 4));
    assert!(!got.is_sorted());
    got.sort_unstable();
    got.dedup();
    assert!(got.len() as u64 >= 1000 - up.lost, "copies of those that arrived");
}

#[test]
fn a_restarted_server_serves_old_clients_over_datagrams() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("unix://{}/far?type=dgram", directory.path().display());
    let echo = EchoServer::listen(&url);
    let shaper = start("udp://127.0.0.1:0", &echo.endpoint, delayed(1), delayed(1));
    let mut link = open(&shaper);
    let mut replies = || {
        link.send(b"there?", LONG).unwrap();
        matches!(link.receive(&mut [0; 10], Duration::from_millis(200)), Ok(6))
    };
    // On a busy machine a reply may take longer than `replies` waits, and arrive for the next request.
    wait_until("a reply", || replies().then_some(()));
    drop(echo);
    wait_until("silence", || (!replies()).then_some(()));
    let _echo = EchoServer::listen(&url);
    wait_until("a reply", || replies().then_some(()));
}

#[test]
#[ignore = "long"]
fn the_command_prints_its_settings_and_totals() {
    let echo = EchoServer::listen("tcp://127.0.0.1:0");
    let to = echo.endpoint.to_string();
    let flags = "--delay 5ms --rate-up 10kBps --queue 4k";
    let fixed = ["lab", "shaper", "--listen", "tcp://127.0.0.1:0", "--to", &to];
    let arguments: Vec<&str> = fixed.into_iter().chain(flags.split(' ')).collect();
    let mut running = Running::start(&arguments);
    let mut lines = BufReader::new(running.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let first = lines.next().unwrap();
    let place: Endpoint = first.strip_prefix(&format!("shaping {to} on ")).unwrap().parse().unwrap();
    assert_eq!(lines.next().unwrap(), "  up:   delay 5ms, 10.00 kB/s (80.00 kbit/s), queue 4.000 kB");
    assert_eq!(lines.next().unwrap(), "  down: delay 5ms, queue 4.000 kB");
    let mut link = Registry::standard().dialer(Clock::System).open(&place).unwrap();
    send_all(&mut *link, &[&[0; 100], GOODBYE].concat());
    let mut got = 0;
    while let Ok(length) = link.receive(&mut [0; 200], LONG) {
        got += length;
    }
    assert_eq!(got, 108);
    drop(link);
    running.signal(Signal::INT);
    let mut message = String::new();
    running.0.stderr.take().unwrap().read_to_string(&mut message).unwrap();
    assert_eq!(running.wait().code(), Some(0));
    assert!(
        message.starts_with("relayed 1 connection, refused 0, failed 0\n  up:   108 B; late by "),
        "{message}"
    );
}

#[test]
fn a_vanished_server_is_reported_once() {
    // A port without a listener.
    let gone = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let to = format!("udp://{gone}");
    let mut running = Running::start(&["lab", "shaper", "--listen", "udp://127.0.0.1:0", "--to", &to]);
    let first = BufReader::new(running.0.stdout.as_mut().unwrap()).lines().next().unwrap().unwrap();
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.connect(first.rsplit_once("udp://").unwrap().1).unwrap();
    for _ in 0..20 {
        client.send(b"hello").unwrap();
        thread::sleep(Duration::from_millis(50));
    }
    running.signal(Signal::INT);
    let mut message = String::new();
    running.0.stderr.take().unwrap().read_to_string(&mut message).unwrap();
    assert_eq!(running.wait().code(), Some(0));
    assert_eq!(message.matches("connection refused").count(), 1, "{message}");
    let failed = message.split_once("failed ").unwrap().1.lines().next().unwrap();
    assert!(failed.parse::<u32>().unwrap() > 1, "{message}");
}

#[test]
fn wrong_flags_get_one_line() {
    let wrong = |flags: &str| {
        let fixed = ["lab", "shaper", "--listen", "tcp://127.0.0.1:0", "--to"];
        let ended = run(&fixed.into_iter().chain(flags.split(' ')).collect::<Vec<_>>());
        assert_eq!((ended.status, ended.stdout.as_str()), (Some(2), ""), "{flags}");
        ended.stderr.lines().next().unwrap_or_default().to_owned()
    };
    insta::assert_snapshot!([
        "tcp://127.0.0.1:1 --loss 1%",
        "udp://127.0.0.1:1",
        "tcp://127.0.0.1:1 --delay 5ms --jitter 6ms",
        "tcp://127.0.0.1:1 --queue 0",
        "tcp://127.0.0.1:1 --loss 0.01",
        "tcp://127.0.0.1:1 --spike 300ms",
        "tcp://127.0.0.1:1 --spike 300x@2%",
        "tcp://127.0.0.1:1 --log log.csv",
        "tcp://127.0.0.1:1 --profile wifi --loss 1%",
    ].map(wrong).join("\n"), @r"
    error: tcp://127.0.0.1:0: nothing is lost, doubled or reordered in a stream: shape datagrams, or the device below (--netem)
    error: tcp://127.0.0.1:0 carries a stream, udp://127.0.0.1:1 messages: both must be streams, or both must have messages
    error: a jitter of 6ms around a delay of 5ms: no delay is below zero
    error: invalid value '0' for '--queue <SIZE>': a queue of 0 bytes passes nothing. Use 1 or more
    error: invalid value '0.01' for '--loss <SHARE>': '0.01' is not a share in percent (like 1%)
    error: invalid value '300ms' for '--spike <TIME@SHARE>': write a time and a share, like 300ms@2%
    error: invalid value '300x@2%' for '--spike <TIME@SHARE>': '300x' is not a duration (like 250ms, 10s, 2min; seconds without a unit)
    error: tcp://127.0.0.1:0: a stream has no datagrams to log. Leave out --log
    error: tcp://127.0.0.1:0: nothing is lost, doubled or reordered in a stream: shape datagrams, or the device below (--netem)
    ");
}

#[test]
fn profiles_are_links() {
    for profile in PROFILES {
        let fixed =
            ["lab", "shaper", "--listen", "tcp://127.0.0.1:0", "--to", "tcp://127.0.0.1:1", "--time", "0s"];
        let ended = run(&[&fixed[..], &["--profile", profile.name, "--delay-up", "7ms"]].concat());
        assert_eq!(ended.status, Some(0), "{}", ended.stderr);
        assert!(ended.stdout.contains("up:   delay 7ms, "), "{}", ended.stdout);
        let is_listed = ended.stdout.contains("\n  ignored, because streams are reliable: ");
        assert_eq!(is_listed, profile.shape.has_faults(), "{}", ended.stdout);
    }
}

/// A directory with a `tc` that records its arguments and then runs `script`.
fn fake_tc(script: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let tc = directory.path().join("tc");
    let log = directory.path().join("log").display().to_string();
    std::fs::write(&tc, format!("#!/bin/sh\necho \"$*\" >>{log}\n{script}\n")).unwrap();
    std::fs::set_permissions(&tc, std::fs::Permissions::from_mode(0o755)).unwrap();
    directory
}

fn log(directory: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(directory.join("log")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

const SHOW: &str = "qdisc show dev eth9";
const DELETE: &str = "qdisc del dev eth9 root handle 7100:";

#[test]
fn a_device_is_shaped_and_restored() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let directory = fake_tc("echo 'qdisc fq_codel 0: root refcnt 2 limit 10240p'");
        let flags = ["lab", "shaper", "--netem", "eth9", "--profile", "satellite", "--loss", "1%"];
        let mut shaper = command(&flags);
        shaper.env("PATH", directory.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let running = Running(shaper.spawn().unwrap());
        let add =
            "qdisc add dev eth9 root handle 7100: netem limit 1000 delay 300000us rate 2000000bit loss 1%";
        wait_until("the queue", || (log(directory.path()) == [SHOW, add]).then_some(()));
        (0..3).for_each(|_| running.signal(signal));
        let ended = running.ended();
        assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""));
        assert_eq!(
            ended.stdout,
            "shaping outgoing traffic of eth9: delay 300ms, 250.0 kB/s (2.000 Mbit/s), queue 65.54 kB, 1.0000 % lost\n"
        );
        assert_eq!(log(directory.path()), [SHOW, add, DELETE]);
    }
}

#[test]
fn a_device_that_cannot_be_shaped_gets_one_line() {
    let complains = |script: &str| {
        let directory = fake_tc(script);
        let flags = ["lab", "shaper", "--netem", "eth9", "--delay", "5ms"];
        let output = command(&flags).env("PATH", directory.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        let message = log(directory.path());
        assert!(!message.contains(&DELETE.to_owned()), "what is not ours is left alone: {message:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let on_add = |words: &str| format!("case $2 in add) echo '{words}' >&2; exit 2;; esac");
    insta::assert_snapshot!([
        "echo 'qdisc netem 7100: root refcnt 2 limit 1000 delay 5ms'".to_owned(),
        on_add("Error: Specified qdisc kind is unknown."),
        on_add("RTNETLINK answers: Operation not permitted"),
        on_add("Error: Exclusivity flag on, cannot modify."),
        "echo 'Cannot find device \"eth9\"' >&2; exit 1".to_owned(),
    ].map(|script| complains(&script)).concat(), @r#"
    error: eth9: 'lab shaper' already shapes it: another one runs, or one was killed. To remove it: tc qdisc del dev eth9 root
    error: eth9: tc: Error: Specified qdisc kind is unknown: this kernel has no netem: try 'modprobe sch_netem', or shape with a relay
    error: eth9: tc: RTNETLINK answers: Operation not permitted: only root may shape a device
    error: eth9: tc: Error: Exclusivity flag on, cannot modify: another program has installed a queue there. Remove it first
    error: eth9: tc: Cannot find device "eth9"
    "#);
    let refused = run(&["lab", "shaper", "--netem", "eth9", "--profile", "bluetooth"]);
    let why = "netem has no tail, spikes, waits, slots, bursts or overhead: shape with a relay";
    assert_eq!(refused.stderr, format!("error: eth9: {why}\n"));
    let nowhere = tempfile::tempdir().unwrap();
    let output = command(&["lab", "shaper", "--netem", "eth9"]).env("PATH", nowhere.path()).output().unwrap();
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        "error: tc is not installed: apt-get install iproute2\n"
    );
}
