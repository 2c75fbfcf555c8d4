//! `linkgauge monitor` as a process: what it prints, what it stores, what it does with a file that changes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;

use linkgauge::store::{Store, TIERS};
use rustix::process::Signal;

use crate::memory::status_kib;
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
    assert_eq!(lines.len(), 7, "{stdout}");
    assert_eq!(lines[0], "watching this machine: 10 probes per second");
    assert!(lines[1].starts_with(
        "  alarm loss > 5 % (normal 0.5 %), at most one false alarm a month: such a change is noticed after"
    ));
    assert!(lines[1].contains(" on average, in 99 of 100 cases within "), "{stdout}");
    assert_eq!(lines[3], "  level shift of the median: noticed after about 1 h");
    assert_eq!(lines[4], "watching upload to this machine: throughput every 6 h");
    assert_eq!(lines[5], "a change runs logger --tag linkgauge, again every 4 h");
    assert!(
        lines[6].starts_with("actions receive nothing about upload* from 2026-12-24T21:00:00Z"),
        "{stdout}"
    );
    let tagged = run(&["monitor", "tcp://127.0.0.1:1", "--tag", "x"]);
    assert_eq!((tagged.status, tagged.stderr.contains("names of their links")), (Some(2), true));
    let place = tempfile::tempdir().unwrap();
    for (text, why) in [("", "0 links to watch"), ("[[watch]]\nurl = 1", "url"), ("[[", "line 1")] {
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
#[ignore = "long"]
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
    assert!(metrics.contains("\r\ncontent-type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{metrics}");
    assert!(metrics.contains("linkgauge_probes_total{") && !metrics.contains("# EOF"), "{metrics}");
    assert!(get(&page, "/healthz").ends_with("\r\n\r\nok\n"));
    let mut second = String::new();
    messages.read_line(&mut second).unwrap();
    assert_eq!(second, format!("live page: http://{page}/\n"));
    assert!(get(&page, "/").contains("<title>linkgauge monitor</title>"));
    let history = get(&page, "/history?link=0&span=10min");
    assert!(history.contains("\"link\":\"link\"") && history.contains("\"p50_ns\":"), "{history}");
    let mut wait_for_message = |end: &str| {
        let mut line = String::new();
        while !line.ends_with(end) {
            line.clear();
            assert!(messages.read_line(&mut line).unwrap() > 0, "it ends before it says: {end}");
        }
    };
    write_file(&place.path().join("links.toml"), "[[");
    monitor.signal(Signal::HUP);
    wait_for_message(": the monitor goes on as before\n");
    write_file(&place.path().join("links.toml"), &watch.replace("50/s", "20/s"));
    monitor.signal(Signal::HUP);
    wait_for_message("links.toml: read again\n");
    monitor.signal(Signal::INT);
    let status = monitor.wait().code();
    let (mut stdout, mut stderr) = (String::new(), String::new());
    monitor.0.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
    messages.read_to_string(&mut stderr).unwrap();
    assert_eq!(status, Some(0), "{stderr}");
    assert!(stdout.starts_with("watching link: 50 probes per second\n"), "{stdout}");
    assert_eq!(probes(1), Some(0), "no probe is lost when the monitor stops or reads its file");
}

/// Answers one POST, and returns its body.
fn receive_post(listener: &TcpListener) -> String {
    listener.set_nonblocking(true).unwrap();
    let (stream, _) = wait_until("a message to the webhook", || listener.accept().ok());
    stream.set_nonblocking(false).unwrap();
    let mut reader = BufReader::new(&stream);
    let (mut line, mut length) = (String::new(), 0);
    while reader.read_line(&mut line).unwrap() > 2 {
        if let Some((_, value)) =
            line.split_once(':').filter(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        {
            length = value.trim().parse().unwrap();
        }
        line.clear();
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    (&stream).write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
    String::from_utf8(body).unwrap()
}

#[test]
#[ignore = "long"]
fn an_alarm_reaches_its_actions_with_its_run_and_its_causes() {
    let place = tempfile::tempdir().unwrap();
    let serving = Serving::start(&[]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let webhook = format!("http://{}/alarms", listener.local_addr().unwrap());
    let (store, message) = (place.path().join("runs.sqlite"), place.path().join("message.json"));
    let text = format!(
        "[defaults]\nurl = \"{}\"\nrate = \"50/s\"\nalert = [\"late 1us > 50 % (normal 5 %)\"]\n\
         [[watch]]\nname = \"one\"\nexplain = \"3s\"\n[[watch]]\nname = \"two\"\n\
         [[action]]\ncommand = [\"false\"]\n[[action]]\nwebhook = \"{webhook}\"\n\
         [[action]]\ncommand = [\"tee\", \"{}\"]\n",
        serving.tcp,
        message.display()
    );
    let file = write_file(&place.path().join("links.toml"), &text);
    let monitor =
        Running::start(&["monitor", &file, "--store", &store.display().to_string(), "--listen", "off"]);
    let posted = receive_post(&listener);
    let written = wait_until("the message of the command", || {
        std::fs::read_to_string(&message).ok().filter(|text| text.len() == posted.len())
    });
    assert_eq!(written, posted);
    let document: serde_json::Value = serde_json::from_str(&posted).unwrap();
    let schema: serde_json::Value = serde_json::from_str(include_str!("../../schema/alarm.v1.json")).unwrap();
    jsonschema::validate(&schema, &document).unwrap_or_else(|error| panic!("{error}\n{document:#}"));
    let events = document["events"].as_array().unwrap();
    let mut links: Vec<&str> = events.iter().map(|event| event["link"].as_str().unwrap()).collect();
    links.sort_unstable();
    assert_eq!(links, ["one", "two"], "both in one message: {document:#}");
    for event in events {
        assert_eq!(event["event"], "alarm");
        let run = event["run"].as_str().expect("the last minute is saved");
        let shown = run_with_store(&["show", run], &store);
        assert_eq!(shown.status, Some(0), "{}", shown.stderr);
        assert_eq!(event["explanation"].is_object(), event["link"] == "one", "{document:#}");
    }
    let explained = events.iter().find(|event| event["link"] == "one").unwrap();
    assert!(explained["explanation"].get("failure").is_none(), "{document:#}");
    monitor.signal(Signal::INT);
    let ended = monitor.ended();
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    for said in ["one: ALARM: late 1us", "two: ALARM: late 1us", "action: false: it failed: exit status: 1"] {
        assert!(ended.stdout.contains(said), "{said}: {}", ended.stdout);
    }
    assert!(ended.stdout.contains("one: causes: ") || ended.stdout.contains("one: explain finds no cause"));
}

/// A command on this store.
fn run_with_store(arguments: &[&str], store: &Path) -> Ended {
    run(&[arguments, &["--store", &store.display().to_string()]].concat())
}

/// A monitor of these links, and where its pages are.
fn monitor_with_pages(arguments: &[&str]) -> (Running, String) {
    let pages = ["--listen", "127.0.0.1:0", "--no-store"];
    let mut monitor = Running::start(&[&["monitor"], arguments, &pages[..]].concat());
    let mut messages = BufReader::new(monitor.0.stderr.take().unwrap());
    let mut first = String::new();
    messages.read_line(&mut first).unwrap();
    let address =
        first.trim().strip_prefix("metrics: http://").unwrap().strip_suffix("/metrics").unwrap().to_owned();
    // Later messages have a reader, too.
    std::thread::spawn(move || messages.read_to_string(&mut String::new()));
    (monitor, address)
}

/// Probes with a reply so far.
fn replies(address: &str) -> Option<u64> {
    let metrics = get(address, "/metrics");
    let line = metrics
        .lines()
        .find(|line| line.starts_with("linkgauge_probes_total{") && line.contains("replied"))?;
    line.rsplit_once(' ')?.1.parse().ok()
}

#[test]
#[ignore = "long"]
fn a_monitor_measures_on_whatever_clients_do() {
    linkgauge::host::raise_open_file_limit();
    let serving = Serving::start(&[]);
    let (monitor, address) = monitor_with_pages(&[serving.tcp.as_str(), "--rate", "100/s"]);
    let before = wait_until("a slice", || replies(&address));
    let process = monitor.0.id().to_string();
    let memory = status_kib(&process, "VmRSS");
    let send = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(&address).unwrap();
        let _ = stream.write_all(bytes);
        stream
    };
    // Some send nothing, some stop in the middle, some never read what they asked for.
    let starts: [&[u8]; 3] = [b"", b"GET /metrics HTTP/1.1\r\nHost: local", b"GET /events HTTP/1.1\r\n\r\n"];
    let slow: Vec<TcpStream> = (0..1_000).map(|number| send(starts[number % starts.len()])).collect();
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..2_000 {
        let garbage: Vec<u8> = (0..random.usize(0..200)).map(|_| random.u8(..)).collect();
        send(&garbage);
    }
    let long = "x".repeat(1_000_000);
    for query in ["/history?link=0&span=1h&", "/history?link=99999&", "/run/", "/../../../etc/passwd?"] {
        for _ in 0..50 {
            send(format!("GET {query}{long} HTTP/1.1\r\n\r\n").as_bytes());
        }
    }
    let after = wait_until("another slice", || replies(&address).filter(|replies| *replies > before));
    assert!(after > before);
    let at_end = status_kib(&process, "VmRSS");
    assert!(at_end < memory + 32_000, "{memory} KiB before, {at_end} KiB");
    drop(slow);
}

/// A monitor of this number of links to a server, at a probe a second, and the address of its pages.
fn monitor_of_many(links: usize, url: &str, place: &Path) -> (Running, String) {
    let watch =
        |number: usize| format!("[[watch]]\nname = \"link {number}\"\nurl = \"{url}\"\nrate = \"1/s\"\n");
    let text: String = (0..links).map(watch).collect();
    monitor_with_pages(&[&write_file(&place.join(format!("{links}.toml")), &text)])
}

/// Values of all links in a family of metrics.
fn values(address: &str, family: &str) -> Vec<f64> {
    let metrics = get(address, "/metrics");
    let lines = metrics.lines().filter(|line| line.starts_with(&format!("{family}{{")));
    lines.map(|line| line.rsplit_once(' ').unwrap().1.parse().unwrap()).collect()
}

/// With a thread for each link, and what its stack and its last results took, it was 220 KiB.
const MAX_LINK_KIB: u64 = 150;

#[test]
#[ignore = "long"]
fn a_link_takes_little_memory_and_no_thread() {
    const FEW: usize = 40;
    const MANY: usize = 240;
    let place = tempfile::tempdir().unwrap();
    let serving = Serving::start(&[]);
    let used = [FEW, MANY].map(|links| {
        let (monitor, address) = monitor_of_many(links, serving.tcp.as_str(), place.path());
        wait_until("two slices of each link", || {
            let probes: f64 = values(&address, "linkgauge_probes_total").iter().sum();
            (probes >= 14.0 * links as f64).then_some(())
        });
        assert_eq!(values(&address, "linkgauge_up").len(), links);
        let process = monitor.0.id().to_string();
        let threads = || std::fs::read_dir(format!("/proc/{process}/task")).unwrap().count();
        wait_until("the threads that begin slices to end", || (threads() < 32).then_some(()));
        status_kib(&process, "RssAnon")
    });
    let each = used[1].saturating_sub(used[0]) / (MANY - FEW) as u64;
    assert!(each < MAX_LINK_KIB, "{each} KiB for each link: {used:?} KiB");
}
