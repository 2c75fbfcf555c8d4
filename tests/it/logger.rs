//! The emulated logger as clients meet it: many clients at once, and its own command line.

use std::time::{Duration, Instant};

use linkgauge::lab::logger::generate_content;

use crate::lab_logger::{Client, Logger};
use crate::program::run;

#[test]
fn many_clients_at_once_each_get_their_replies() {
    let logger =
        Logger::on_tcp(&["--file", "CPU:a:20k", "--file", "CPU:b:9910", "--queue", "255", "--seed", "5"]);
    let (a, b) = (generate_content(5, 20_000), generate_content(6, 9910));
    std::thread::scope(|scope| {
        for address in 100..120 {
            let (place, a, b) = (&logger.place, &a, &b);
            scope.spawn(move || {
                let mut client = Client::connect(place, address);
                assert!(client.file("CPU:a") == *a && client.file("CPU:b") == *b);
            });
        }
    });
    // 21 chunks of one, 10 whole chunks of the other and the end.
    let summary = logger.summary();
    assert_eq!(summary.trim(), "served 20 connections, replied to 640 commands");
}

#[test]
fn a_logger_takes_its_time() {
    let logger = Logger::on_tcp(&["--file", "CPU:a:10k", "--chunk-time", "20ms"]);
    let began = Instant::now();
    let file = Client::connect(&logger.place, 4000).file("CPU:a");
    assert_eq!(file.len(), 10_000);
    assert!(began.elapsed() >= 11 * Duration::from_millis(20), "{:?}", began.elapsed());
}

#[test]
fn it_stops_after_its_time_and_is_quiet_on_request() {
    let ended = run(&["lab", "logger", "--listen", "tcp://127.0.0.1:0", "--time", "100ms", "-q"]);
    assert_eq!((ended.status, ended.stdout.as_str(), ended.stderr.as_str()), (Some(0), "", ""));
}

#[test]
fn invalid_options_are_one_line() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = format!("tcp://{}", taken.local_addr().unwrap());
    for (flags, words) in [
        (&["--file", "bench.bin:5"][..], &["bench.bin", "CPU:name"][..]),
        (&["--file", "CPU:bench.bin"], &["CPU:bench.bin", "CPU:NAME=PATH"]),
        (&["--file", "CPU:a=/nowhere/a"], &["/nowhere/a", "cannot be read"]),
        (&["--file", "CPU:a:2G"], &["CPU:a:2G", "1 GiB"]),
        (&["--address", "4095"], &["4095", "4094"]),
        (&["--queue", "0"], &["queue", "255"]),
        (&["--max-packet", "1k", "--max-packet", "2000"], &["max-packet"]),
        (&["--max-packet", "2000"], &["2000", "1000"]),
        (&["--listen", "udp://127.0.0.1"], &["udp://127.0.0.1", "needs a stream"]),
        (&["--listen", &taken], &[&taken, "another program"]),
        (&["--serial", "/nowhere/tty"], &["/nowhere/tty", "no such serial port"]),
        (&["--serial", "ttyS0"], &["ttyS0", "/dev/ttyS0"]),
        (&["--listen", "serial:///dev/ttyS0"], &["serial:///dev/ttyS0", "listen"]),
    ] {
        let ended = run(&[&["lab", "logger"], flags].concat());
        assert_eq!(ended.status, Some(2), "{flags:?}: {}", ended.stderr);
        let line = ended.stderr.lines().next().unwrap_or_default();
        for word in words {
            assert!(line.contains(word), "{flags:?}: '{word}' is not in: {line}");
        }
    }
}
