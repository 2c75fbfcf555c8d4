//! Protocol `netio` against clients and servers of this file, which follow NETIO's wire format, or violate it. The
//! tests assert bytes, counts and texts.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use linkgauge::run::Run;
use rustix::process::Signal;

use crate::program::{Ended, PATIENCE, Running, Serving, run, wait_for_progress, wait_until};

/// A control message, big-endian.
fn word(command: u32, data: u32) -> [u8; 8] {
    (u64::from(command) << 32 | u64::from(data)).to_be_bytes()
}

/// The same as a little-endian machine writes it.
fn swapped(word: [u8; 8]) -> [u8; 8] {
    let [a, b, c, d, e, f, g, h] = word;
    [d, c, b, a, h, g, f, e]
}

/// A stream that does not wait for ever.
fn bounded(stream: TcpStream) -> TcpStream {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// A server of one connection, in a thread.
fn server<T: Send + 'static>(serve: impl FnOnce(TcpStream) -> T + Send + 'static) -> (String, JoinHandle<T>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("tcp://{}", listener.local_addr().unwrap());
    (url, std::thread::spawn(move || serve(bounded(listener.accept().unwrap().0))))
}

/// The received messages and actions of an honest server, one line each.
#[derive(Debug, PartialEq)]
enum Done {
    /// Block size, bytes with the last block.
    Received(u32, u64),
    Sent(u32, u64),
    Quit,
    Vanished,
}

/// The command loop of the original, in one byte order; sends three blocks and the last one.
fn honest(mut stream: TcpStream, little: bool) -> Vec<Done> {
    let mut done = Vec::new();
    loop {
        let mut received = [0; 8];
        if stream.read_exact(&mut received).is_err() {
            done.push(Done::Vanished);
            return done;
        }
        let received = if little { swapped(received) } else { received };
        let size = u32::from_be_bytes(received[4..].try_into().unwrap());
        let mut block = vec![0; size as usize];
        match received[..4] {
            [0, 0, 0, 1] => {
                let mut bytes = 0;
                while block[..1] != [1] {
                    stream.read_exact(&mut block).unwrap();
                    assert!(block[0] <= 1, "no flag is {}", block[0]);
                    bytes += u64::from(size);
                }
                done.push(Done::Received(size, bytes));
            }
            [0, 0, 0, 2] => {
                for flag in [0, 0, 0, 1] {
                    block[0] = flag;
                    stream.write_all(&block).unwrap();
                }
                done.push(Done::Sent(size, 4 * u64::from(size)));
            }
            _ => {
                done.push(Done::Quit);
                return done;
            }
        }
    }
}

/// Runs `linkgauge throughput URL --protocol netio` with these flags.
fn client(url: &str, flags: &[&str]) -> (Ended, Option<Run>) {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("run.json");
    let fixed = ["throughput", url, "--protocol", "netio", "--quiet", "--json", json.to_str().unwrap()];
    let ended = run(&[&fixed[..], flags].concat());
    let run = std::fs::read_to_string(&json).ok().map(|text| Run::from_json(&text).unwrap());
    (ended, run)
}

fn number(run: &Run, case: usize, name: &str) -> u64 {
    let got = &run.cases[case].effective;
    got.get(name).and_then(|value| value.as_u64()).unwrap_or_else(|| panic!("{name}: {got:?}"))
}

/// An original that is closed in mid-block looks for the rest for ever, at 100 % CPU; an error ends it.
#[test]
fn a_blocked_server_is_given_up_with_an_error_and_not_within_a_block() {
    let (url, server) = server(|mut stream| {
        let mut received = [0; 8];
        stream.read_exact(&mut received).unwrap();
        // Until the client has given up.
        let left = wait_until("the end of the client", || {
            use rustix::net::sockopt::socket_error;
            let error = socket_error(&stream).unwrap();
            let mut poll = [rustix::event::PollFd::new(&stream, rustix::event::PollFlags::RDHUP)];
            let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
            let ended = rustix::event::poll(&mut poll, Some(&now)).unwrap() > 0;
            ended.then_some(error)
        });
        left.is_ok() && stream.read_to_end(&mut Vec::new()).is_ok()
    });
    let (ended, _) = client(&url, &["--size", "1000", "--time", "60s", "--timeout", "1s"]);
    assert_eq!(ended.status, Some(2), "{}", ended.stderr);
    assert!(!server.join().unwrap(), "a plain end in mid-block");
}

#[test]
fn a_client_runs_its_cases_in_one_connection_as_the_original_does() {
    for (dialect, little) in [("c", false), ("b", true)] {
        let (url, server) = server(move |stream| honest(stream, little));
        let flags = ["--dialect", dialect, "--direction", "both", "--size", "1000,32767", "--time", "150ms"];
        let (ended, run) = client(&url, &flags);
        assert_eq!(ended.status, Some(0), "{}", ended.stderr);
        let run = run.unwrap();
        let sent =
            |case: usize, size: u64| Done::Received(size as u32, number(&run, case, "tx_bytes") + size);
        let wanted = [
            sent(0, 1000),
            Done::Sent(1000, 4000),
            sent(1, 32_767),
            Done::Sent(32_767, 4 * 32_767),
            Done::Quit,
        ];
        assert_eq!(server.join().unwrap(), wanted);
        for (case, size) in [1000, 32_767].into_iter().enumerate() {
            assert_eq!(number(&run, case, "rx_bytes"), 4 * size);
            assert_eq!(number(&run, case, "tx_bytes") % size, 0);
            assert!(number(&run, case, "tx_ns") >= 150_000_000, "never too early");
            let figures = &run.cases[case].figures;
            assert_eq!((figures.counts.lost, figures.delivery.delivered_reverse_bytes), (0, Some(4 * size)));
            assert!(figures.delivery.delivered_bytes.unwrap() <= number(&run, case, "tx_bytes"));
        }
    }
}

#[test]
fn without_a_size_a_client_runs_the_six_of_the_original() {
    let (url, server) = server(|mut stream| {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        all
    });
    let (ended, run) = client(&url, &["--dialect", "a", "--time", "20ms"]);
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    let run = run.unwrap();
    let sizes: Vec<u32> = run.cases.iter().map(|case| case.message_bytes).collect();
    assert_eq!(sizes, [1024, 2048, 4096, 8192, 16_384, 32_767]);
    let sent: u64 = (0..6).map(|case| number(&run, case, "tx_bytes")).sum();
    let all = server.join().unwrap();
    assert_eq!(all.len() as u64, sent, "no word, no last block, nothing between the sizes");
    assert!(all.starts_with(&[0x00, 0x67, 0xc6, 0x69, 0x73, 0x51, 0xff, 0x4a, 0xec, 0x29, 0xcd, 0xba]));
}

#[test]
fn an_interrupted_client_completes_the_block_and_sends_quit() {
    let (url, server) = server(|stream| honest(stream, false));
    let directory = tempfile::tempdir().unwrap();
    let events = directory.path().join("events");
    let flags =
        ["--size", "4096", "--time", "60s", "--interval", "20ms", "--events", events.to_str().unwrap()];
    let process = Running::start(&[&["throughput", &url, "--protocol", "netio"][..], &flags].concat());
    wait_for_progress(&events);
    process.signal(Signal::INT);
    assert_eq!(process.ended().status, Some(130));
    let done = server.join().unwrap();
    assert!(matches!(done[..], [Done::Received(4096, _), Done::Quit]), "{done:?}");
}

/// The output of the program for a server that behaves like this; it must end soon.
fn message(flags: &[&str], serve: impl FnOnce(TcpStream) + Send + 'static) -> String {
    let (url, server) = server(serve);
    let began = Instant::now();
    let (ended, _) =
        client(&url, &[&["--size", "1024", "--timeout", "500ms", "--time", "1s"], flags].concat());
    assert!(began.elapsed() < PATIENCE, "{}", ended.stderr);
    assert_eq!(ended.status, Some(2), "{}", ended.stderr);
    assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
    server.join().unwrap();
    let text = ended.stderr.replace(&url, "URL");
    // A busy host wakes the program later.
    match text
        .split_once("nothing has moved for ")
        .and_then(|(before, rest)| Some((before, rest.split_once(':')?)))
    {
        Some((before, (_, rest))) => format!("{before}nothing has moved for TIME:{rest}"),
        None => text,
    }
}

/// Reads the first control message.
fn first_word(stream: &mut TcpStream) {
    stream.read_exact(&mut [0; 8]).unwrap();
}

/// Waits until the other end has gone away.
fn wait_for_close(stream: &mut TcpStream) {
    let _ = stream.read_to_end(&mut Vec::new());
}

#[test]
#[ignore = "long"]
fn servers_that_lie_stall_or_vanish_get_one_clear_line() {
    const RECEIVE: [&str; 2] = ["--direction", "receive"];
    insta::assert_snapshot!([
        // Another protocol, which waits for a reply.
        message(&RECEIVE, |mut stream| {
            stream.write_all(b"SSH-2.0-OpenSSH_9.9\r\n").unwrap();
            wait_for_close(&mut stream);
        }),
        // A server that ignores control messages, as one of another dialect does.
        message(&RECEIVE, |mut stream| wait_for_close(&mut stream)),
        message(&RECEIVE, drop),
        message(&[], drop),
        message(&RECEIVE, |mut stream| {
            first_word(&mut stream);
            stream.write_all(&[0; 1500]).unwrap();
            wait_for_close(&mut stream);
        }),
        message(&RECEIVE, |mut stream| {
            first_word(&mut stream);
            stream.write_all(&[0; 1500]).unwrap();
        }),
        message(&RECEIVE, |mut stream| {
            first_word(&mut stream);
            stream.write_all(&[1; 1100]).unwrap();
            wait_for_close(&mut stream);
        }),
        // One that never reads.
        message(&[], |stream| {
            std::thread::sleep(Duration::from_secs(3));
            drop(stream);
        }),
        // One that speaks while it should listen.
        message(&[], |mut stream| {
            stream.write_all(b"220 mail.example.org ESMTP\r\n").unwrap();
            wait_for_close(&mut stream);
        }),
    ].concat(), @r#"
    error: URL: no block begins like "SSH-2.0-OpenSSH_": it may not be a NETIO server
    error: URL: no block arrived: the server became silent; a NETIO of 1.15 to 1.22 needs --dialect b, one before it --dialect a
    error: URL: no block arrived: the server closed the link; a NETIO of 1.15 to 1.22 needs --dialect b, one before it --dialect a
    error: URL: the remote closed the link: check whether the server or device still runs, and its log; a NETIO of 1.15 to 1.22 needs --dialect b, one before it --dialect a
    error: URL: the server became silent within a block, after 476 of 1024 bytes
    error: URL: the server closed the link within a block, after 476 of 1024 bytes
    error: URL: it continues after its last block
    error: URL: nothing has moved for TIME: the link was lost, a firewall drops its packets, or the server stopped. The figures are those before
    error: URL: a NETIO server sends nothing while it receives, but this one sent "220 mail.example"
    "#);
}

#[test]
fn errors_are_reported_before_a_link_is_opened() {
    let error_of = |url: &str, flags: &[&str]| {
        let (ended, _) = client(url, flags);
        assert_eq!(ended.status, Some(2), "{}", ended.stderr);
        ended.stderr
    };
    let tcp = "tcp://127.0.0.1:1";
    insta::assert_snapshot!([
        error_of(tcp, &["--dialect", "d"]),
        error_of(tcp, &["--dialect", "a", "--direction", "receive", "--size", "1k"]),
        error_of(tcp, &["--direction", "loop", "--size", "1k"]),
        error_of(tcp, &["--size", "65537"]),
        error_of(tcp, &["--size", "1k", "--warm-up", "1s"]),
        error_of(tcp, &["--size", "1k", "--direction", "receive", "--volume", "1M"]),
    ].concat(), @r"
    error: case 1: protocol netio: unknown dialect 'd' (known: a, b, c)
    error: protocol netio: dialect a only sends: use --direction send, or dialect c
    error: tcp://127.0.0.1:1: the protocol netio does not support the direction loop: use send, receive, both
    error: protocol netio: blocks of 65537 bytes do not fit: use a --size of at most 65536
    error: protocol netio: it has no warm-up: leave it out
    error: protocol netio: only the server decides how much it sends: leave out count and volume
    ");
}

fn serving(flags: &[&str]) -> Serving {
    Serving::start(&[&["--protocol", "netio", "--max-time", "1s"], flags].concat())
}

fn connect(remote: &Serving) -> TcpStream {
    bounded(TcpStream::connect(remote.tcp.address()).unwrap())
}

/// Blocks until the one with the flag; how many.
fn blocks(stream: &mut TcpStream, size: usize) -> usize {
    let mut block = vec![0; size];
    for count in 1.. {
        stream.read_exact(&mut block).unwrap();
        if block[0] != 0 {
            assert_eq!(block[0], 1);
            return count;
        }
    }
    unreachable!()
}

#[test]
fn a_server_serves_clients_of_every_dialect_at_once() {
    let remote = serving(&[]);
    let client = |little: bool| {
        let mut stream = connect(&remote);
        let word =
            move |command, data| if little { swapped(word(command, data)) } else { word(command, data) };
        std::thread::spawn(move || {
            stream.write_all(&word(1, 16)).unwrap();
            for flag in [0, 0, 1] {
                stream.write_all(&[[flag; 1].as_slice(), &[0xa1; 15]].concat()).unwrap();
            }
            // Nothing comes back before it is asked for.
            stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
            assert!(stream.read(&mut [0; 1]).is_err());
            let mut stream = bounded(stream);
            for size in [16, 65_536] {
                stream.write_all(&word(2, size)).unwrap();
                assert!(blocks(&mut stream, size as usize) > 1);
            }
            stream.write_all(&word(0, 0)).unwrap();
            assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0, "QUIT closes");
        })
    };
    let clients = [client(false), client(true), client(false)];
    let mut old = connect(&remote);
    old.write_all(&[[0].as_slice(), &[0x5a; 40_000]].concat()).unwrap();
    for client in clients {
        client.join().unwrap();
    }
    old.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(old.read(&mut [0; 1]).unwrap(), 0, "a client without control messages gets no reply");
}

#[test]
fn a_server_closes_other_protocols_and_continues_to_serve() {
    let remote = serving(&["--idle", "1s"]);
    for request in [&word(1, 65_537)[..], &word(2, u32::MAX), &word(2, 0), b"GET / HTTP/1.1\r\n\r\n", &[0; 8]]
    {
        let mut stream = connect(&remote);
        stream.write_all(request).unwrap();
        assert!(matches!(stream.read(&mut [0; 1]), Ok(0) | Err(_)), "{request:?} ends the connection");
    }
    // A client that becomes silent within a block is closed after the idle time; one that vanishes there, at once.
    let mut silent = connect(&remote);
    silent.write_all(&[&word(1, 1024)[..], &[0; 100]].concat()).unwrap();
    drop(connect(&remote).write_all(&[&word(1, 1024)[..], &[0; 100]].concat()));
    assert!(matches!(silent.read(&mut [0; 1]), Ok(0) | Err(_)));
    let (ended, run) =
        client(remote.tcp.as_str(), &["--size", "4096", "--time", "100ms", "--direction", "both"]);
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    assert!(number(&run.unwrap(), 0, "rx_bytes") > 4096);
}

#[test]
fn a_stopped_server_releases_clients_within_a_block() {
    let remote = serving(&[]);
    let mut stream = connect(&remote);
    stream.write_all(&[&word(1, 1024)[..], &[0; 100]].concat()).unwrap();
    remote.process.signal(Signal::INT);
    let Serving { mut process, .. } = remote;
    assert!(wait_until("the end of the server", || process.0.try_wait().unwrap()).code().is_some());
}

/// Stopped in the second size: the first is complete, the rest is not run, and no process or file is left behind.
#[test]
fn the_study_runs_in_one_connection_to_another_process() {
    let directory = tempfile::tempdir().unwrap();
    let [json, events] = ["run.json", "events"].map(|name| directory.path().join(name));
    let flags = ["--quick", "--json", json.to_str().unwrap(), "--events", events.to_str().unwrap()];
    let process = Running::start(&[&["reproduce", "netio"][..], &flags].concat());
    wait_until("the third size", || {
        let text = std::fs::read_to_string(&events).ok()?;
        (text.matches("\"case_begins\"").count() > 2).then_some(())
    });
    process.signal(Signal::INT);
    let ended = process.ended();
    assert_eq!(ended.status, Some(130), "{}", ended.stderr);
    let run = Run::from_json(&std::fs::read_to_string(&json).unwrap()).unwrap();
    let local = |case: usize| run.cases[case].effective["local"].clone();
    assert_eq!((run.cases[0].message_bytes, run.cases[1].message_bytes), (1024, 2048));
    assert_eq!(local(0), local(1), "both in one connection");
    assert_eq!(run.cases[0].effective["dialect"], "a");
    let paper = run.study.as_ref().unwrap();
    assert_eq!(paper.tables.len(), 3);
    let rows = &paper.tables[0].rows;
    let [rate, bytes, seconds] = [0, 1, 2].map(|at| rows[at].measured.unwrap());
    assert_eq!((rows[0].published.as_str(), rows[1].published.as_str()), ("8876", "90951680"));
    // The line of the twin: 1 ÷ 111.6 ns are 8751 KByte/s, and what its buffers hold counts as sent.
    assert!(rate < 1.3 * 8751.0 && rows[0].stand_in, "{rate}");
    assert_eq!(bytes, number(&run, 0, "tx_bytes") as f64);
    assert!(
        (1.0..PATIENCE.as_secs_f64()).contains(&seconds)
            && (rate * 1024.0 * seconds / bytes - 1.0).abs() < 1e-9
    );
    assert!(rows[29].measured.is_none() && paper.tables[2].rows.iter().all(|row| row.measured.is_none()));
    let (_, server) = run.cases[0].endpoint.split_once("://").unwrap();
    assert!(TcpStream::connect(server).is_err(), "the server went with the program");
}
