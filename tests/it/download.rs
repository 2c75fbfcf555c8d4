//! Downloads over real links: the received data is that of the logger, through links that break and loggers that
//! misbehave. Incomplete data stays in a partial file, with one clear line and exit status 2.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use linkgauge::lab::logger::{Logger, LoggerConfig, LoggerOptions, generate_content};
use linkgauge::lab::uart::{LabUarts, PortWiring, UartOptions};
use linkgauge::protocol::pakbus::frame::{self, FrameDecoder};
use rustix::process::Signal;
use serde_json::Value;

use super::program::{Ended, Running, Serving, run, wait_until};

const FILE: &str = "CPU:data.dat";

/// A logger in this process, on a TCP port of its own.
fn logger(size: usize, device: LoggerConfig) -> Logger {
    let device = LoggerConfig {
        files: vec![(FILE.to_owned(), generate_content(7, size))],
        tables: vec!["Bench:10s:Seq=Int4,Temp=FP2:300".parse().unwrap()],
        ..device
    };
    let listen = vec!["tcp://127.0.0.1:0".parse().unwrap()];
    Logger::start(&LoggerOptions { listen, serial_lines: Vec::new(), config: device }).unwrap()
}

/// Host and port of the logger.
fn place(logger: &Logger) -> String {
    logger.endpoints()[0].address().to_owned()
}

/// A directory, and the name of a download in it.
fn target() -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data.dat").to_str().unwrap().to_owned();
    (directory, path)
}

fn download(url: &str, path: &str, flags: &[&str]) -> Ended {
    let common = ["download", url, "--file", FILE, "--output", path, "--json", &format!("{path}.json")];
    run(&[&common, flags].concat())
}

fn figures(path: &str) -> Value {
    let text = std::fs::read_to_string(format!("{path}.json")).unwrap();
    serde_json::from_str::<Value>(&text).unwrap()["cases"][0].clone()
}

fn partial(path: &str) -> PathBuf {
    Path::new(&format!("{path}.part")).to_owned()
}

/// Changes a frame of the logger: the relay passes on these bytes.
type FrameChange = fn(packet: Vec<u8>, frame: Vec<u8>) -> Vec<u8>;

/// A relay before a logger.
struct Relay {
    place: String,
    connections: Arc<AtomicUsize>,
}

impl Relay {
    /// Passes connections on; the first `cuts` of them are cut after a number of bytes from the logger.
    fn cutting(logger: &Logger, cuts: usize, after: usize) -> Relay {
        Relay::start(logger, move |connection, client, server| {
            let mut left = if connection <= cuts { after } else { usize::MAX };
            let mut bytes = [0; 1000];
            while let Ok(length) = server.read(&mut bytes)
                && length > 0
                && left > 0
            {
                let length = length.min(left);
                left -= length;
                if client.write_all(&bytes[..length]).is_err() {
                    break;
                }
            }
        })
    }

    /// Meddles with all frames of the logger but the first ones.
    fn changing_frames(logger: &Logger, spared: usize, change_frame: FrameChange) -> Relay {
        Relay::start(logger, move |_, client, server| {
            let (mut decoder, mut seen) = (FrameDecoder::default(), 0);
            let mut bytes = [0; 1000];
            while let Ok(length) = server.read(&mut bytes)
                && length > 0
            {
                let mut rest = &bytes[..length];
                while !rest.is_empty() {
                    let (used, packet) = decoder.read(rest);
                    rest = &rest[used..];
                    let Some(packet) = packet.map(<[u8]>::to_vec) else { continue };
                    let mut framed = Vec::new();
                    frame::write(&packet, &mut framed);
                    seen += 1;
                    let forwarded = if seen > spared { change_frame(packet, framed) } else { framed };
                    if client.write_all(&forwarded).is_err() {
                        return;
                    }
                }
            }
        })
    }

    fn start(
        logger: &Logger,
        back: impl Fn(usize, &mut TcpStream, &mut TcpStream) + Send + Sync + 'static,
    ) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let place = listener.local_addr().unwrap().to_string();
        let (logger, back) = (self::place(logger), Arc::new(back));
        let connections = Arc::new(AtomicUsize::new(0));
        let count = connections.clone();
        // Ends with the test's process.
        thread::spawn(move || {
            for client in listener.incoming() {
                let (mut client, mut server) = (client.unwrap(), TcpStream::connect(&logger).unwrap());
                let connection = count.fetch_add(1, Relaxed) + 1;
                let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Both);
                });
                let back = back.clone();
                thread::spawn(move || {
                    back(connection, &mut client, &mut server);
                    let _ = (client.shutdown(Shutdown::Both), server.shutdown(Shutdown::Both));
                });
            }
        });
        Relay { place, connections }
    }

    fn url(&self) -> String {
        format!("pakbus://{}/1", self.place)
    }
}

#[test]
fn a_file_over_tcp_is_the_same() {
    let logger = logger(100_000, LoggerConfig::default());
    for window in ["1", "8"] {
        let (_directory, path) = target();
        let got = download(&format!("pakbus://{}/1", place(&logger)), &path, &["--window", window]);
        assert_eq!(got.status, Some(0), "{}", got.stderr);
        assert!(std::fs::read(&path).unwrap() == generate_content(7, 100_000));
        assert!(!partial(&path).exists());
        assert!(
            got.stderr.contains("100 000 bytes") && got.stdout.starts_with("TCP download from 127.0.0.1:"),
            "{}",
            got.stdout
        );
        assert_eq!(figures(&path)["delivered_bytes"], 100_000);
    }
}

#[test]
#[ignore = "long"]
fn a_download_through_a_link_that_is_cut_five_times_is_complete() {
    let logger = logger(100_000, LoggerConfig::default());
    for window in ["1", "8"] {
        let relay = Relay::cutting(&logger, 5, 15_000);
        let (_directory, path) = target();
        let got = download(&relay.url(), &path, &["--window", window]);
        assert_eq!(got.status, Some(0), "{}", got.stderr);
        assert!(std::fs::read(&path).unwrap() == generate_content(7, 100_000));
        assert_eq!((figures(&path)["reconnects"].as_u64(), relay.connections.load(Relaxed)), (Some(5), 6));
        assert!(
            figures(&path)["warnings"].as_array().unwrap().iter().any(|one| one["code"] == "reconnected"),
            "{}",
            got.stdout
        );
    }
}

#[test]
#[ignore = "long"]
fn a_table_resumes_as_well() {
    let logger = logger(0, LoggerConfig::default());
    let relay = Relay::cutting(&logger, 2, 1000);
    let got = run(&["download", &relay.url(), "--table", "Bench", "--output", "-"]);
    assert_eq!(got.status, Some(0), "{}", got.stderr);
    assert!((301..=303).contains(&got.stdout.lines().count()), "{}", got.stdout);
    assert_eq!(relay.connections.load(Relaxed), 3);
}

#[test]
#[ignore = "long"]
fn a_silent_logger_is_reconnected() {
    let logger = logger(100_000, LoggerConfig::default());
    let relay = Relay::start(&logger, |connection, client, server| {
        let (mut bytes, mut passed) = ([0; 1000], 0);
        while let Ok(length) = server.read(&mut bytes)
            && length > 0
        {
            passed += length;
            if connection > 1 || passed < 10_000 {
                client.write_all(&bytes[..length]).unwrap();
            }
        }
    });
    let (_directory, path) = target();
    let got = download(&relay.url(), &path, &["--timeout", "300ms", "--retries", "1"]);
    assert_eq!(got.status, Some(0), "{}", got.stderr);
    assert!(std::fs::read(&path).unwrap() == generate_content(7, 100_000));
    assert_eq!(figures(&path)["reconnects"], 1);
}

#[test]
#[ignore = "long"]
fn reconnects_are_limited() {
    let logger = logger(100_000, LoggerConfig::default());
    let relay = Relay::cutting(&logger, usize::MAX, 15);
    let (_directory, path) = target();
    let got = download(&relay.url(), &path, &[]);
    assert_eq!(got.status, Some(2));
    assert!(got.stderr.contains("closed"), "{}", got.stderr);

    // Greeting and directory pass, then some chunks.
    let relay = Relay::cutting(&logger, 1, 10_000);
    let got = download(&relay.url(), &path, &["--reconnects", "0"]);
    assert_eq!(got.status, Some(2));
    assert_eq!(got.stderr.lines().count(), 2, "{}", got.stderr);
    assert!(
        got.stderr.contains("the connection was lost at byte ") && got.stderr.contains("--reconnects"),
        "{}",
        got.stderr
    );
    is_partial(&path, &got);
}

/// The data before the error is in the partial file.
fn is_partial(path: &str, got: &Ended) {
    let kept = std::fs::read(partial(path)).unwrap();
    assert!(!kept.is_empty() && generate_content(7, 100_000).starts_with(&kept));
    assert!(!Path::new(path).exists());
    let message = format!("partial: {path}.part holds the first ");
    assert!(got.stderr.contains(&message), "{}", got.stderr);
}

#[test]
fn a_misbehaving_logger_is_one_line_and_keeps_the_received_data() {
    let logger = logger(100_000, LoggerConfig::default());
    let wrong: [(&str, FrameChange); 5] = [
        ("not PakBus", |_, _| b"login: ".to_vec()),
        ("too short", |mut packet, mut frame| {
            packet.truncate(12);
            frame.clear();
            frame::write(&packet, &mut frame);
            frame
        }),
        ("wrong signatures", |_, mut frame| {
            frame[5] ^= 1;
            frame
        }),
        ("wrong offsets", |mut packet, mut frame| {
            if packet.len() > 14 {
                packet[14] ^= 1;
            }
            frame.clear();
            frame::write(&packet, &mut frame);
            frame
        }),
        ("nothing came", |_, _| Vec::new()),
    ];
    // Cuts in the whole conversation, and after greeting, directory and a few chunks.
    for (what, change_frame) in wrong {
        for spared in [0, 9] {
            let relay = Relay::changing_frames(&logger, spared, change_frame);
            let (_directory, path) = target();
            let flags = ["--timeout", "150ms", "--retries", "1", "--reconnects", "0"];
            let got = download(&relay.url(), &path, &flags);
            assert_eq!(got.status, Some(2), "{what}: {}", got.stderr);
            let errors: Vec<&str> = got.stderr.lines().filter(|line| line.starts_with("error: ")).collect();
            assert_eq!(errors.len(), 1, "{what}: {}", got.stderr);
            assert!(errors[0].contains("no reply from PakBus address 1 in 2 tries"), "{what}: {}", errors[0]);
            if spared == 0 {
                assert!(!partial(&path).exists());
            } else {
                is_partial(&path, &got);
            }
        }
    }
}

#[test]
fn missing_files_and_permissions_are_reported() {
    let locked = logger(5000, LoggerConfig { security_code: 77, ..LoggerConfig::default() });
    let open = logger(5000, LoggerConfig::default());
    let of = |logger: &Logger, flags: &[&str]| {
        let url = format!("tcp://{}", place(logger));
        let (directory, path) = target();
        let output = ["--output", &path, "--timeout", "1s", "--retries", "1"];
        let got = run(&[&["download", &url][..], &output, flags].concat());
        assert_eq!((got.status, got.stdout.as_str()), (Some(2), ""), "{}", got.stderr);
        assert_eq!(directory.path().read_dir().unwrap().count(), 0, "nothing is left behind");
        got.stderr.replace(&url, "URL")
    };
    insta::assert_snapshot!([
        of(&open, &["--file", FILE, "--node", "7"]),
        of(&locked, &["--file", FILE]),
        of(&locked, &["--table", "Bench", "--security", "76"]),
        of(&open, &["--file", "CPU:nothing.dat"]),
        of(&open, &["--table", "Wind"]),
    ].concat(), @r"
    error: URL: no reply from PakBus address 7 in 2 tries; nothing arrived: check that it is on, its address (--node), that encryption and the PakBus/TCP password are off, and --timeout
    error: URL: permission denied: the logger requires another security code (--security)
    error: URL: permission denied: the logger requires another security code (--security)
    error: URL: CPU:nothing.dat: the logger reports: invalid file name
    error: URL: unknown table 'Wind' (the logger has: Status, Bench)
    ");
    let (_directory, path) = target();
    let got = download(&format!("tcp://{}", place(&locked)), &path, &["--security", "77"]);
    assert_eq!(got.status, Some(0), "{}", got.stderr);
}

#[test]
fn a_file_downloads_over_a_serial_line() {
    let options = UartOptions { wiring: PortWiring::NullModem, ..UartOptions::default() };
    let uarts = LabUarts::start(&options).unwrap();
    let line = |end: usize| format!("serial://{}?baud=115200", uarts.paths()[end].display());
    let device = LoggerConfig {
        files: vec![(FILE.to_owned(), generate_content(7, 10_000))],
        ..LoggerConfig::default()
    };
    let lines = vec![line(0).parse().unwrap()];
    let _logger =
        Logger::start(&LoggerOptions { listen: Vec::new(), serial_lines: lines, config: device }).unwrap();
    let (_directory, path) = target();
    let got = download(&line(1), &path, &["--node", "1"]);
    assert_eq!(got.status, Some(0), "{}", got.stderr);
    assert!(std::fs::read(&path).unwrap() == generate_content(7, 10_000));
    let case = figures(&path);
    // 11 chunks, whose characters take 86.8 µs each.
    assert!(case["latency_ns"]["max"].as_f64().unwrap() >= 1000.0 * 86_805.0, "{case}");
    let percent = case["line_rate_percent"].as_f64().unwrap();
    assert!((10.0..100.0).contains(&percent), "{percent}");
}

#[test]
fn an_incomplete_download_stays_a_partial_file() {
    let logger = logger(30_000, LoggerConfig::default());
    let url = format!("pakbus://{}/1", place(&logger));
    let limits: [(&[&str], bool); 4] = [
        (&["--volume", "10k"], false),
        (&["--volume", "30k"], true),
        (&["--volume", "40k"], true),
        (&[], true),
    ];
    for (flags, whole) in limits {
        let (_directory, path) = target();
        let got = download(&url, &path, flags);
        assert_eq!(got.status, Some(0), "{}", got.stderr);
        assert_eq!((Path::new(&path).exists(), partial(&path).exists()), (whole, !whole), "{flags:?}");
        assert_eq!(figures(&path)["effective"]["whole"], whole, "{flags:?}");
        assert_eq!(
            got.stderr.contains("data.dat.part holds the first 10 000 bytes"),
            !whole,
            "{}",
            got.stderr
        );
    }
    // A table that is cut short.
    let (_directory, path) = target();
    let got = run(&["download", &url, "--table", "Bench", "--output", &path, "--volume", "1k"]);
    assert_eq!((got.status, Path::new(&path).exists(), partial(&path).exists()), (Some(0), false, true));
}

#[test]
fn an_echo_is_not_taken_for_a_logger() {
    let echo = Serving::start(&["--protocol", "echo"]);
    let flags =
        ["--protocol", "pakbus", "--no-output", "--timeout", "200ms", "--retries", "1", "--file", FILE];
    let got = run(&[&["download", echo.tcp.as_str()], &flags[..]].concat());
    assert_eq!(got.status, Some(2));
    assert!(got.stderr.contains("in 2 tries; the request itself returned: a plug"), "{}", got.stderr);
}

#[test]
fn earlier_partial_files_stay_and_links_are_not_followed() {
    let logger = logger(30_000, LoggerConfig::default());
    let url = format!("pakbus://{}/1", place(&logger));
    let (directory, path) = target();
    let victim = directory.path().join("victim");
    std::fs::write(&victim, "precious").unwrap();
    std::os::unix::fs::symlink(&victim, partial(&path)).unwrap();
    // There is no listener at this port: its former listener is closed.
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let unreachable = format!("pakbus://{gone}/1");
    let second = PathBuf::from(format!("{path}.2.part"));
    std::fs::write(&second, "the first half").unwrap();
    for url in [&unreachable, &url] {
        let got = download(url, &path, &["--volume", "10k", "--timeout", "1s", "--reconnects", "0"]);
        assert_eq!(got.status, Some(if *url == unreachable { 2 } else { 0 }), "{}", got.stderr);
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
        assert!(partial(&path).is_symlink());
        assert_eq!(std::fs::read_to_string(&second).unwrap(), "the first half");
        let third = PathBuf::from(format!("{path}.3.part"));
        assert_eq!(third.exists(), *url != unreachable);
        assert_eq!(got.stderr.contains("data.dat.3.part holds the first 10 000 bytes"), third.exists());
    }
    assert_eq!(std::fs::read(format!("{path}.3.part")).unwrap(), generate_content(7, 30_000)[..10_000]);
}

#[test]
fn a_later_download_continues_a_partial_file() {
    let logger = logger(30_000, LoggerConfig::default());
    let url = format!("pakbus://{}/1", place(&logger));
    let (_directory, path) = target();
    // In three runs, of which each continues the one before.
    for (flags, kept) in
        [(&["--volume", "10k"][..], None), (&["--volume", "5k"], Some(10_000)), (&[], Some(15_000))]
    {
        let got = download(&url, &path, flags);
        assert_eq!(got.status, Some(0), "{}", got.stderr);
        let case = figures(&path);
        assert_eq!(case["effective"]["resumed_bytes"].as_u64(), kept, "{}", got.stderr);
        let continues = kept.map_or(0, |_| 1);
        assert_eq!(
            got.stderr.matches("data.dat.part: continues after ").count(),
            continues,
            "{}",
            got.stderr
        );
    }
    assert_eq!(std::fs::read(&path).unwrap(), generate_content(7, 30_000));
    assert!(!partial(&path).exists());
    // The rates are those of the last run: the rest, and the bytes that were compared.
    assert_eq!(figures(&path)["delivered_bytes"], 15_000 + 4_096);
}

#[test]
fn a_partial_file_of_another_file_is_kept() {
    let logger = logger(30_000, LoggerConfig::default());
    let url = format!("pakbus://{}/1", place(&logger));
    let right = generate_content(7, 30_000);
    let changed = [&right[..9_999], b"?"].concat();
    let longer = [&right[..], b"more"].concat();
    for wrong in [changed, longer, vec![1; 10], vec![7; 100_000]] {
        let (_directory, path) = target();
        std::fs::write(partial(&path), &wrong).unwrap();
        let got = download(&url, &path, &[]);
        assert_eq!(got.status, Some(2), "{}", got.stderr);
        assert!(got.stderr.contains("were downloaded before: it has changed"), "{}", got.stderr);
        assert_eq!(std::fs::read(partial(&path)).unwrap(), wrong);
        assert!(!Path::new(&path).exists());
    }
    // One that has all of the file is complete; an empty one begins from its start.
    for right_so_far in [&right[..], b""] {
        let (_directory, path) = target();
        std::fs::write(partial(&path), right_so_far).unwrap();
        let got = download(&url, &path, &[]);
        assert_eq!(got.status, Some(0), "{}", got.stderr);
        assert_eq!((std::fs::read(&path).unwrap(), partial(&path).exists()), (right.clone(), false));
    }
}

#[test]
fn a_partial_file_that_is_still_written_is_not_continued() {
    let logger = logger(30_000, LoggerConfig::default());
    let url = format!("pakbus://{}/1", place(&logger));
    let (_directory, path) = target();
    std::fs::write(partial(&path), "of another program").unwrap();
    let other = std::fs::File::open(partial(&path)).unwrap();
    rustix::fs::flock(&other, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
    let got = download(&url, &path, &["--volume", "10k"]);
    assert_eq!(got.status, Some(0), "{}", got.stderr);
    assert!(got.stderr.contains("data.dat.2.part holds the first 10 000 bytes"), "{}", got.stderr);
    assert_eq!(std::fs::read_to_string(partial(&path)).unwrap(), "of another program");
}

#[test]
fn an_interrupted_download_stays_a_partial_file() {
    let logger =
        logger(100_000, LoggerConfig { command_time: Duration::from_millis(50), ..LoggerConfig::default() });
    let (_directory, path) = target();
    let url = format!("pakbus://{}/1", place(&logger));
    let running = Running::start(&["download", &url, "--file", FILE, "--output", &path]);
    let length =
        || std::fs::metadata(partial(&path)).ok().map(|data| data.len()).filter(|length| *length > 3000);
    wait_until("some chunks", length);
    running.signal(Signal::INT);
    let began = Instant::now();
    let got = running.ended();
    assert_eq!(got.status, Some(130), "{}", got.stderr);
    assert!(began.elapsed() < Duration::from_secs(10));
    is_partial(&path, &got);
}

#[test]
fn the_clock_is_read_by_its_shorthand() {
    let logger = logger(0, LoggerConfig::default());
    let got = run(&["latency", &format!("pakbus://{}/1", place(&logger)), "--count", "20"]);
    assert_eq!(got.status, Some(0), "{}", got.stderr);
    assert!(
        got.stdout.contains("(pakbus): ") && got.stdout.contains("20 requests of 24 B"),
        "{}",
        got.stdout
    );
}

#[test]
fn existing_files_are_not_overwritten() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("data.dat"), "mine").unwrap();
    let error_of = |arguments: &[&str]| {
        let mut command =
            super::program::command(&[&["download", "pakbus://127.0.0.1:1/1"], arguments].concat());
        let output = command.current_dir(&directory).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    };
    insta::assert_snapshot!([
        error_of(&["--file", FILE]),
        error_of(&["--file", FILE, "--window", "1,2"]),
        error_of(&["--file", FILE, "--output", "-", "--json", "-"]),
    ].concat(), @r"
    error: data.dat: the file exists. Use --output FILE for another file or to overwrite, or --no-output
    error: 2 downloads cannot go to one file. Use --no-output, or run one at a time
    error: only one result can go to standard output. Use files for the others
    ");
    assert_eq!(std::fs::read(directory.path().join("data.dat")).unwrap(), b"mine");
    assert_eq!(directory.path().read_dir().unwrap().count(), 1);
}
