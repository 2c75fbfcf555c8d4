//! The emulated logger and PyCampbellCR1000: over TCP, through the shaper and over a serial line.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};

use linkgauge::lab::logger::generate_content;
use linkgauge::protocol::pakbus::value::FieldValue as Stored;
use rustix::process::Signal;
use serde_json::Value;

use crate::lab_logger::{Client, Logger};
use crate::program::{Running, wait_until};
use crate::tools::interpreter;

/// All that PyCampbellCR1000 can do with Python 3. The file goes to a file, the rest to standard output. Before its first
/// command it waits twice its timeout for any packet, longer than a test may take: the logger has to greet it.
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

/// The data that PyCampbellCR1000 gets from the logger at a URL in its own format, and the file that it fetched.
fn pycampbell(url: &str) -> (Value, Vec<u8>) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bench.bin");
    let child = Command::new(interpreter())
        .args(["-c", PYCAMPBELL, url, path.to_str().unwrap()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("./check --all installs a Python with PyCampbellCR1000");
    // It waits for ever for the end of a frame: `ended` kills it when it takes too long.
    let ended = Running(child).ended();
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    (serde_json::from_str(&ended.stdout).unwrap(), std::fs::read(path).unwrap())
}

/// All bytes, those that must be quoted among them, and an end that fills no chunk.
fn bench_file() -> (tempfile::TempDir, String, Vec<u8>) {
    let directory = tempfile::tempdir().unwrap();
    let bytes = [vec![0xBD; 600], generate_content(9, 2500)].concat();
    let path = directory.path().join("bench");
    std::fs::write(&path, &bytes).unwrap();
    let flag = format!("CPU:bench.bin={}", path.display());
    (directory, flag, bytes)
}

/// PyCampbellCR1000 received the contents of the logger.
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
    // It collected the same records as another client.
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
    assert!(summary.starts_with("served 2 connections, replied to "), "{summary}");
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
    let mut printed = BufReader::new(shaper.0.stdout.take().unwrap());
    printed.read_line(&mut line).unwrap();
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
    let mut printed = String::new();
    shaper.0.stderr.take().unwrap().read_to_string(&mut printed).unwrap();
    assert!(printed.contains("relayed 1 connection, refused 0, failed 0"), "{printed}");
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
    // The line vanishes, and with it all replies of the logger.
    drop(socat);
    assert_eq!(logger.process.wait().code(), Some(2));
    let mut printed = String::new();
    logger.process.0.stderr.take().unwrap().read_to_string(&mut printed).unwrap();
    assert!(printed.contains(&url) && printed.contains("all lines have failed"), "{printed}");
}
