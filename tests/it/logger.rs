//! The emulated logger as clients meet it: PyCampbellCR1000, which none of us wrote, over TCP, through the shaper and over a
//! serial line; many clients at once; its own command line.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use linkgauge::lab::logger::content;
use linkgauge::peer::pakbus::frame::{self, Decoder};
use linkgauge::peer::pakbus::message::{Code, Command as Ask, Fetch, Selection, Span};
use linkgauge::peer::pakbus::packet::{Hop, LinkState, Packet, Route};
use linkgauge::peer::pakbus::record::{self, Content};
use linkgauge::peer::pakbus::reply::Reply;
use linkgauge::peer::pakbus::table;
use linkgauge::peer::pakbus::value::Value as Stored;
use rustix::process::Signal;
use serde_json::Value;

use super::program::{PATIENCE, Running, run, wait_until};

/// A logger and where it listens.
struct Logger {
    process: Running,
    place: String,
}

impl Logger {
    fn start(flags: &[&str]) -> Logger {
        let mut process = Running::start(&[&["lab", "logger"], flags].concat());
        let mut line = String::new();
        BufReader::new(process.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let (_, place) = line.trim().rsplit_once(" on ").unwrap_or_else(|| panic!("'{line}'"));
        let place = place.split_once("://").unwrap().1.to_owned();
        Logger { process, place }
    }

    /// On a TCP port of its own.
    fn on_tcp(flags: &[&str]) -> Logger {
        Logger::start(&[&["--listen", "tcp://127.0.0.1:0"], flags].concat())
    }

    /// What it says when it is told to stop.
    fn summary(mut self) -> String {
        self.process.signal(Signal::INT);
        let status = self.process.wait();
        assert!(status.success(), "{status}");
        let mut said = String::new();
        self.process.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        said
    }
}

/// A client of our own: one command at a time.
struct Client {
    stream: TcpStream,
    decoder: Decoder,
    unread: Vec<u8>,
    address: u16,
    transaction: u8,
}

impl Client {
    fn connect(place: &str, address: u16) -> Client {
        let stream = TcpStream::connect(place).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client { stream, decoder: Decoder::default(), unread: Vec::new(), address, transaction: 0 }
    }

    fn ask(&mut self, command: &Ask) -> Reply {
        self.transaction += 1;
        let (protocol, message) = command.write(self.transaction);
        let hop = Hop { state: LinkState::READY, to: 1, from: self.address, expect_more: 1, priority: 1 };
        let route = Route { protocol, to: 1, from: self.address, hops: 0 };
        let mut bytes = Vec::new();
        frame::write(&Packet { hop, message: Some((route, &message)) }.write(), &mut bytes);
        self.stream.write_all(&bytes).unwrap();
        loop {
            let (used, packet) = self.decoder.read(&self.unread);
            let packet = packet.map(<[u8]>::to_vec);
            self.unread.drain(..used);
            if let Some(packet) = packet {
                let (route, message) = Packet::read(&packet).unwrap().message.unwrap();
                assert_eq!((route.to, route.from), (self.address, 1));
                let (transaction, reply) = Reply::read(route.protocol, message).unwrap();
                assert_eq!(transaction, self.transaction);
                return reply;
            }
            let mut bytes = [0; 4096];
            let length = self.stream.read(&mut bytes).unwrap();
            assert!(length > 0, "the logger closed the connection");
            self.unread.extend(&bytes[..length]);
        }
    }

    fn file(&mut self, name: &str) -> Vec<u8> {
        let mut file = Vec::new();
        loop {
            let offset = file.len() as u32;
            let fetch = Fetch { security: 0, name: name.to_owned(), close: false, offset, swath: 991 };
            let Reply::Fetch { code: Code::COMPLETE, data, .. } = self.ask(&Ask::Fetch(fetch)) else {
                panic!("{name} is refused")
            };
            file.extend(&data);
            if data.len() < 991 {
                return file;
            }
        }
    }

    /// The values of some records of the second table.
    fn records(&mut self, from: u32, before: u32) -> Vec<record::Record> {
        let definitions = table::read(&self.file(".TDF")).unwrap();
        let mut records: Vec<record::Record> = Vec::new();
        while from + (records.len() as u32) < before {
            let span = Span::Numbers(from + records.len() as u32, before);
            let signature = definitions[1].signature();
            let selections = vec![Selection { table: 2, signature, span, fields: Vec::new() }];
            let reply = self.ask(&Ask::Collect { security: 0, mode: span.mode(), selections });
            let Reply::Collect(Ok(body)) = reply else { panic!("{reply:?}") };
            let (blocks, _) = record::read(&definitions, &body).unwrap();
            let Content::Records(more) = &blocks[0].content else { panic!() };
            assert!(!more.is_empty());
            records.extend(more.iter().cloned());
        }
        records
    }
}

/// All that PyCampbellCR1000 can do with Python 3. The file goes to a file, the rest to standard output. Before its first
/// command it waits twice its time-out for any packet, longer than a test may take: the logger has to greet it.
const PYCAMPBELL: &str = r#"
import datetime, json, sys
from pycampbellcr1000 import CR1000
url, path = sys.argv[1:]
logger = CR1000.from_url(url, timeout=300)
now = logger.gettime()
program = logger.getprogstat()
settings = [(setting['SettingId'], list(setting['SettingValue'])) for setting in logger.settings]
files = [name.decode() for name in logger.list_files()]
with open(path, 'wb') as file:
    file.write(logger.getfile('CPU:bench.bin'))
tables = [(table['Header']['TableName'].decode(), table['Signature']) for table in logger.table_def]
epoch = datetime.datetime(1990, 1, 1)
records = [
    (record['RecNbr'], (record['Datetime'] - epoch).total_seconds(),
     [record["b'Seq'"], record["b'Batt'"], record["b'Temp'"]])
    for record in logger.get_data('Bench', now - datetime.timedelta(seconds=200), now)
]
logger.bye()
print(json.dumps({
    'now': (now - epoch).total_seconds(), 'os': program['OSVer'].decode(), 'compiled': program['CompResult'].decode(),
    'settings': settings, 'files': files, 'tables': tables, 'records': records,
}))
"#;

/// The Python with the client in it; `./check` installs it.
fn python() -> PathBuf {
    match std::env::var_os("LINKGAUGE_TEST_PYTHON") {
        Some(python) => python.into(),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("target/test-venv/bin/python"),
    }
}

/// What PyCampbellCR1000 gets from the logger at a URL of its own kind, and the file it fetched.
fn pycampbell(url: &str) -> (Value, Vec<u8>) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bench.bin");
    let child = Command::new(python())
        .args(["-c", PYCAMPBELL, url, path.to_str().unwrap()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("./check installs a Python with PyCampbellCR1000");
    // It waits for ever for the end of a frame: `ended` kills it when it takes too long.
    let ended = Running(child).ended();
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    (serde_json::from_str(&ended.stdout).unwrap(), std::fs::read(path).unwrap())
}

/// All bytes, those that must be quoted among them, and an end that fills no chunk.
fn bench_file() -> (tempfile::TempDir, String, Vec<u8>) {
    let directory = tempfile::tempdir().unwrap();
    let bytes = [vec![0xBD; 600], content(9, 2500)].concat();
    let path = directory.path().join("bench");
    std::fs::write(&path, &bytes).unwrap();
    let flag = format!("CPU:bench.bin={}", path.display());
    (directory, flag, bytes)
}

/// What PyCampbellCR1000 got is what the logger holds.
fn is_all_there(got: &Value) {
    assert_eq!(
        (&got["os"], got["files"].to_string()),
        (&"CR1000.Std.24".into(), r#"["CPU:","CPU:bench.bin"]"#.into())
    );
    assert!(got["compiled"].as_str().unwrap().contains("emulated"));
    assert!(got["settings"].to_string().contains("[49,[3,232]]"), "{}", got["settings"]);
    assert_eq!(got["tables"][0], serde_json::json!(["Status", 0xA3D5]));
    assert_eq!(got["tables"][1][0], "Bench");
    let since_1970 = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
    let behind = since_1970 - 631_152_000.0 - got["now"].as_f64().unwrap();
    assert!(behind.abs() < 120.0, "{behind} s");
    let records = got["records"].as_array().unwrap();
    assert!(records.len() >= 199, "{}", records.len());
    for (record, next) in records.iter().zip(&records[1..]) {
        assert_eq!(record[0].as_u64().unwrap() + 1, next[0].as_u64().unwrap());
        assert_eq!(record[1].as_f64().unwrap() + 1.0, next[1].as_f64().unwrap());
        assert_eq!(record[0], record[2][0]);
    }
}

#[test]
fn pycampbellcr1000_over_tcp() {
    let (_directory, file, bytes) = bench_file();
    let logger = Logger::on_tcp(&["--file", &file, "--chunk-time", "2ms"]);
    let (got, fetched) = pycampbell(&format!("tcp:{}", logger.place));
    assert!(fetched == bytes, "{} of {} bytes", fetched.len(), bytes.len());
    is_all_there(&got);
    // What it collected is what another client collects.
    let theirs = got["records"].as_array().unwrap();
    let first = theirs[0][0].as_u64().unwrap() as u32;
    let ours = Client::connect(&logger.place, 7).records(first, first + theirs.len() as u32);
    for (theirs, ours) in theirs.iter().zip(&ours) {
        assert_eq!(
            (theirs[0].as_u64(), theirs[1].as_f64()),
            (Some(ours.number.into()), Some(ours.time.seconds.into()))
        );
        for (theirs, ours) in theirs[2].as_array().unwrap().iter().zip(&ours.values) {
            let ours = match ours {
                Stored::Integer(number) => *number as f64,
                Stored::Real(number) => *number,
                other => panic!("{other:?}"),
            };
            assert_eq!(theirs.as_f64(), Some(ours));
        }
    }
    let summary = logger.summary();
    assert!(summary.starts_with("served 2 connections, answered "), "{summary}");
    assert!(!summary.contains(';'), "nothing went wrong: {summary}");
}

#[test]
fn pycampbellcr1000_through_the_shaper() {
    let (_directory, file, bytes) = bench_file();
    let logger = Logger::on_tcp(&["--file", &file, "--chunk-time", "2ms"]);
    let to = format!("tcp://{}", logger.place);
    let link = ["--delay", "20ms", "--rate-down", "20kBps", "--rate-up", "1000kBps"];
    let flags = [&["lab", "shaper", "--listen", "tcp://127.0.0.1:0", "--to", &to], &link[..]].concat();
    let mut shaper = Running::start(&flags);
    let mut line = String::new();
    let mut said = BufReader::new(shaper.0.stdout.take().unwrap());
    said.read_line(&mut line).unwrap();
    let (_, place) = line.trim().rsplit_once(" on tcp://").unwrap_or_else(|| panic!("'{line}'"));

    let (direct, fetched_directly) = pycampbell(&format!("tcp:{}", logger.place));
    let (shaped, fetched) = pycampbell(&format!("tcp:{place}"));
    assert!(fetched == bytes && fetched_directly == bytes, "{} of {} bytes", fetched.len(), bytes.len());
    is_all_there(&shaped);
    for what in ["os", "compiled", "settings", "files", "tables"] {
        assert_eq!(shaped[what], direct[what]);
    }
    // The table grew between the two, and the older records are no longer asked for.
    let records = |got: &Value| got["records"].as_array().unwrap().clone();
    let (direct, shaped) = (records(&direct), records(&shaped));
    let both = direct.iter().filter(|record| record[0].as_u64() >= shaped[0][0].as_u64());
    let alike = both.zip(&shaped).filter(|(direct, shaped)| direct == shaped).count();
    assert!(alike >= 100, "{alike} records");
    let before = direct.iter().filter(|record| record[0].as_u64() < shaped[0][0].as_u64()).count();
    assert_eq!(alike, direct.len() - before);

    shaper.signal(Signal::INT);
    assert!(shaper.wait().success());
    let mut said = String::new();
    shaper.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("relayed 1 connection, refused 0, failed 0"), "{said}");
    assert_eq!(logger.summary().trim().split(", ").next(), Some("served 2 connections"));
}

/// Two terminals that are one line, until it is dropped.
fn line(directory: &Path) -> (Running, [String; 2]) {
    let ends = ["logger", "client"].map(|name| directory.join(name).display().to_string());
    let socat = Command::new("/usr/bin/socat")
        .args(["-T", "60"])
        .args(ends.each_ref().map(|end| format!("PTY,raw,echo=0,link={end}")))
        .stdin(Stdio::null())
        .spawn()
        .expect("socat is needed for this test: apt-get install socat");
    wait_until("two terminals", || ends.iter().all(|end| Path::new(end).exists()).then_some(()));
    (Running(socat), ends)
}

#[test]
fn pycampbellcr1000_over_a_serial_line() {
    let (directory, file, bytes) = bench_file();
    let (socat, [ours, theirs]) = line(directory.path());
    let url = format!("serial://{ours}?baud=115200");
    let mut logger = Logger::start(&["--serial", &url, "--file", &file]);
    assert_eq!(logger.place, format!("{ours}?baud=115200"));
    let (got, fetched) = pycampbell(&format!("serial:{theirs}:115200"));
    assert!(fetched == bytes, "{} of {} bytes", fetched.len(), bytes.len());
    is_all_there(&got);
    // The line vanishes, and with it all that the logger answered on.
    drop(socat);
    assert_eq!(logger.process.wait().code(), Some(2));
    let mut said = String::new();
    logger.process.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains(&url) && said.contains("no line is left"), "{said}");
}

#[test]
fn many_clients_at_once_get_each_their_answers() {
    let logger =
        Logger::on_tcp(&["--file", "CPU:a:20k", "--file", "CPU:b:9910", "--queue", "255", "--seed", "5"]);
    let (a, b) = (content(5, 20_000), content(6, 9910));
    std::thread::scope(|scope| {
        for address in 100..120 {
            let (place, a, b) = (&logger.place, &a, &b);
            scope.spawn(move || {
                let mut client = Client::connect(place, address);
                assert!(client.file("CPU:a") == *a && client.file("CPU:b") == *b);
            });
        }
    });
    // 21 pieces of one, 10 whole ones of the other and the end.
    let summary = logger.summary();
    assert_eq!(summary.trim(), "served 20 connections, answered 640 commands");
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
fn it_stops_by_itself_and_says_nothing_when_asked_not_to() {
    let ended = run(&["lab", "logger", "--listen", "tcp://127.0.0.1:0", "--time", "100ms", "-q"]);
    assert_eq!((ended.status, ended.stdout.as_str(), ended.stderr.as_str()), (Some(0), "", ""));
}

#[test]
fn what_cannot_be_is_said_in_one_line() {
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
        (&["--listen", "udp://127.0.0.1"], &["udp://127.0.0.1", "streams"]),
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
