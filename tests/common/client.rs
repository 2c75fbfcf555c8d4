//! One run of the program from a line of arguments, and the document that it wrote.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

use linkgauge::run::Run;
use serde_json::Value;

use crate::program::{Running, run};

/// How a run of the program ended, and the document that it wrote.
pub struct ClientRun {
    pub status: i32,
    pub run: Value,
    pub errors: String,
    pub took: Duration,
}

impl ClientRun {
    /// The only case of the run.
    pub fn case(&self) -> &Value {
        assert_eq!(self.run["cases"].as_array().map(Vec::len), Some(1), "{}", self.errors);
        &self.run["cases"][0]
    }

    pub fn count(&self, name: &str) -> u64 {
        // Counts of nothing may be left out of the document.
        self.case()[name].as_u64().unwrap_or(0)
    }

    /// Everything planned was measured, and nothing came back changed.
    pub fn clean(self) -> ClientRun {
        assert_eq!(self.status, 0, "{}", self.errors);
        assert_eq!(self.case()["complete"], true);
        assert_eq!((self.count("corrupt_bytes"), self.count("corrupt_messages")), (0, 0), "{}", self.run);
        self
    }

    /// Every one of these requests got a reply.
    pub fn got_all_replies(self, count: u64) {
        let outcome = self.clean();
        assert_eq!(
            (outcome.count("sent"), outcome.count("received"), outcome.count("lost")),
            (count, count, 0)
        );
        assert!(outcome.case()["latency_ns"]["min"].as_u64().is_some_and(|min| min > 0));
    }

    /// It was refused with one line that contains all these words.
    pub fn refused(self, words: &[&str]) {
        assert_eq!(self.status, 2, "{}", self.errors);
        assert_eq!(self.errors.lines().count(), 1, "{}", self.errors);
        for word in words {
            assert!(self.errors.contains(word), "'{word}' is not in: {}", self.errors);
        }
    }
}

/// Runs the program with the arguments in a line; ends it if it takes too long.
pub fn linkgauge(line: &str) -> ClientRun {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("run.json");
    let mut arguments: Vec<&str> = line.split_whitespace().collect();
    arguments.extend(["--quiet", "--json", json.to_str().unwrap()]);
    let began = Instant::now();
    let ended = Running::start(&arguments).ended();
    let run = fs::read(&json).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
    ClientRun { status: ended.status.unwrap_or(-1), run, errors: ended.stderr, took: began.elapsed() }
}

/// A port that is free for TCP and UDP now.
pub fn free_port() -> u16 {
    loop {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        if UdpSocket::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// `linkgauge serve` of a protocol over UDP, and its URL.
pub fn serving(arguments: &[&str]) -> (Running, String) {
    let mut server = Running::start(&[&["serve", "udp://127.0.0.1:0"], arguments].concat());
    let mut line = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let url = line.trim_end().rsplit_once(" on ").expect("serving … on …").1.to_owned();
    (server, url)
}

/// The run that `import` makes of a file.
pub fn imported(format: &str, file: &Path, more: &[&str]) -> Run {
    let file = file.to_str().unwrap();
    let ended = run(&[&["import", format, file, "--json", "-"], more].concat());
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""));
    Run::from_json(&ended.stdout).unwrap()
}
