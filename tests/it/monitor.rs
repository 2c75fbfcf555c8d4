//! `linkgauge monitor` as a process: what it prints, what it stores, what it does with a file that changes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;

use linkgauge::store::{Store, TIERS};
use rustix::process::Signal;

use crate::program::{Ended, Running, Serving, run, wait_until};

fn write_file(path: &Path, text: &str) -> String {
    std::fs::write(path, text).unwrap();
    path.display().to_string()
}

#[test]
fn a_file_is_checked_before_anything_is_opened() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/monitor.toml");
    let Ended { status, stdout, stderr } = run(&["monitor", &example.display().to_string(), "--check"]);
    assert_eq!((status, stderr.as_str()), (Some(0), ""));
    let lines: Vec<&str> = stdout.lines().collect();
    assert_eq!(lines.len(), 4, "{stdout}");
    assert_eq!(lines[0], "watching this machine: 10 probes per second");
    assert!(lines[1].starts_with(
        "  alarm loss > 5 % (normal 0.5 %), at most one false alarm a month: such a change is noticed after"
    ));
    assert_eq!(lines[3], "watching upload to this machine: throughput every 6 h");
    let tagged = run(&["monitor", "tcp://127.0.0.1:1", "--tag", "x"]);
    assert_eq!((tagged.status, tagged.stderr.contains("names of their links")), (Some(2), true));
    let place = tempfile::tempdir().unwrap();
    for (text, why) in [("", "0 links to watch"), ("[[watch]]\nurl = 1", "url"), ("[[", "TOML")] {
        let file = write_file(&place.path().join("wrong.toml"), text);
        let ended = run(&["monitor", &file]);
        assert_eq!((ended.status, ended.stdout.as_str()), (Some(2), ""), "{text}");
        assert!(ended.stderr.contains(why) && ended.stderr.contains("wrong.toml"), "{}", ended.stderr);
    }
}

/// The response to a GET.
fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

#[test]
fn probes_are_stored_and_a_changed_file_is_read() {
    let place = tempfile::tempdir().unwrap();
    let serving = Serving::start(&[]);
    let store = place.path().join("runs.sqlite");
    let watch = format!("[[watch]]\nname = \"link\"\nurl = \"{}\"\nrate = \"50/s\"\n", serving.tcp);
    let file = write_file(&place.path().join("links.toml"), &watch);
    let mut monitor = Running::start(&[
        "monitor",
        &file,
        "--store",
        &store.display().to_string(),
        "--listen",
        "127.0.0.1:0",
    ]);
    let mut messages = BufReader::new(monitor.0.stderr.take().unwrap());
    let mut first = String::new();
    messages.read_line(&mut first).unwrap();
    let page = first.trim().strip_prefix("metrics: http://").expect("it prints where the metrics are");
    let page = page.strip_suffix("/metrics").unwrap().to_owned();
    let probes = |at_least: u64| {
        let mut stored = Store::open_existing(&store).ok()?;
        let series = stored.series("link", serving.tcp.as_str()).ok()?;
        let windows = stored.windows(series, TIERS[2], 0, i64::MAX).ok()?;
        let (due, lost) = windows.iter().fold((0, 0), |(due, lost), stored| {
            (due + stored.window.counts.due, lost + stored.window.counts.lost)
        });
        (due >= at_least).then_some(lost)
    };
    assert_eq!(wait_until("a slice in the store", || probes(1)), 0);
    let metrics = get(&page, "/metrics");
    assert!(metrics.contains("linkgauge_probes_total{") && metrics.ends_with("# EOF\n"), "{metrics}");
    assert!(get(&page, "/healthz").ends_with("\r\n\r\nok\n"));
    write_file(&place.path().join("links.toml"), "[[");
    monitor.signal(Signal::HUP);
    std::thread::sleep(std::time::Duration::from_millis(500));
    write_file(&place.path().join("links.toml"), &watch.replace("50/s", "20/s"));
    monitor.signal(Signal::HUP);
    std::thread::sleep(std::time::Duration::from_millis(500));
    monitor.signal(Signal::INT);
    let status = monitor.wait().code();
    let (mut stdout, mut stderr) = (String::new(), String::new());
    monitor.0.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
    messages.read_to_string(&mut stderr).unwrap();
    assert_eq!(status, Some(0), "{stderr}");
    assert!(stdout.starts_with("watching link: 50 probes per second\n"), "{stdout}");
    let logged: Vec<&str> = stderr.lines().collect();
    assert!(stderr.contains(": the monitor goes on as before\n"), "{stderr}");
    assert!(logged.last().unwrap().ends_with("links.toml: read again"), "{stderr}");
    assert_eq!(probes(1), Some(0), "no probe is lost when the monitor stops or reads its file");
}
