//! Serial ports, on pseudo-terminals: locked for one program, restored as found; and runs whose line returns nothing,
//! returns less than was sent, or vanishes.
//!
//! Not covered: the model of a line, and properties of hardware (wires, counters, RS-485).

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use linkgauge::Registry;
use linkgauge::clock::Clock;
use linkgauge::lab::device_server::{DeviceServer, DeviceServerOptions};
use linkgauge::link::Link;
use linkgauge::link::serial_line::{FlowControl, OutputSignal, Parity, SerialSettings};
use linkgauge::system::{Pty, PtyPacket};
use rustix::process::{Signal as Kill, getuid};
use serde_json::Value;

use crate::device::counters;
use crate::program::{Ended, Running, command, run, wait_for_progress};

/// A line that returns the first bytes it is sent, and swallows the others. Gone when it is dropped.
struct Plug {
    pty: Arc<Pty>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Plug {
    fn returning(most: usize) -> Plug {
        let (pty, stop) = (Arc::new(Pty::open().unwrap()), Arc::new(AtomicBool::new(false)));
        let left = AtomicUsize::new(most);
        let (line, stopped) = (pty.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            let mut chunk = [0; 4096];
            while !stopped.load(Relaxed) {
                match rustix::io::read(&line.master, &mut chunk) {
                    Ok(length) if length > 1 => {
                        let data = PtyPacket::parse(&chunk[..length]).data();
                        let returned = left.load(Relaxed).min(data.len());
                        left.fetch_sub(returned, Relaxed);
                        // The sent bytes fit the buffer of a pseudo-terminal.
                        let _ = rustix::io::write(&line.master, &data[..returned]);
                    }
                    _ => std::thread::sleep(Duration::from_micros(200)),
                }
            }
        });
        Plug { pty, stop, thread: Some(thread) }
    }

    fn new() -> Plug {
        Plug::returning(usize::MAX)
    }

    fn url(&self, options: &str) -> String {
        format!("serial://{}{options}", self.pty.path.display())
    }
}

impl Drop for Plug {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// All settings of a terminal, as another program sees them.
fn stty(path: &Path) -> String {
    let output = Command::new("stty").arg("-F").arg(path).arg("-g").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// An endless run, after its first measured values.
fn under_way(url: &str, directory: &Path) -> Running {
    let path = |name: &str| directory.join(name).to_str().unwrap().to_owned();
    let (events, document) = (path("events"), path("document"));
    let running = Running::start(&[
        "latency",
        url,
        "--time",
        "1h",
        "--interval",
        "20ms",
        "--events",
        &events,
        "--json",
        &document,
    ]);
    wait_for_progress(Path::new(&events));
    running
}

fn document(directory: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(directory.join("document")).unwrap()).unwrap()
}

fn refused(ended: &Ended, line: &str) {
    assert_eq!((ended.stderr.as_str(), ended.status), (format!("error: {line}\n").as_str(), Some(2)));
}

#[test]
fn a_port_is_restored() {
    let plug = Plug::new();
    let mut set = Command::new("stty");
    set.arg("-F").arg(&plug.pty.path).args(["19200", "cstopb", "echo", "icanon"]);
    assert!(set.status().unwrap().success());
    let before = stty(&plug.pty.path);
    let url = plug.url("?baud=115200&flow=rtscts");
    let ended = run(&["latency", &url, "--count", "50", "--quiet"]);
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""));
    assert_eq!(stty(&plug.pty.path), before);

    for signal in [Kill::INT, Kill::TERM, Kill::HUP] {
        let directory = tempfile::tempdir().unwrap();
        let running = under_way(&url, directory.path());
        let during = plug.pty.settings().unwrap();
        assert_eq!(
            during,
            SerialSettings { baud: 115_200, flow_control: FlowControl::RtsCts, ..SerialSettings::default() }
        );
        running.signal(signal);
        assert_eq!(running.ended().status, Some(130));
        assert_eq!(stty(&plug.pty.path), before, "{signal:?}");
    }
}

#[test]
fn a_port_is_for_one_program() {
    let plug = Plug::new();
    let (url, directory) = (plug.url(""), tempfile::tempdir().unwrap());
    let _first = under_way(&url, directory.path());
    let second = run(&["latency", &url, "--count", "1"]);
    let expected = format!("error: {url}: another program has this port open (");
    assert!(second.stderr.starts_with(&expected), "{}", second.stderr);
    assert!(second.stderr.ends_with("): close that one, or choose another port\n"), "{}", second.stderr);
    assert_eq!(second.status, Some(2));
}

#[test]
fn a_missing_permission_is_explained() {
    let plug = Plug::new();
    std::fs::set_permissions(&plug.pty.path, PermissionsExt::from_mode(0o000)).unwrap();
    let url = plug.url("");
    let ours = command(&["latency", &url, "--count", "1"]);
    let mut ours = if getuid().is_root() {
        // Root without its capabilities is a user like any other.
        let mut without = Command::new("setpriv");
        without
            .args(["--bounding-set=-all", "--inh-caps=-all"])
            .arg(ours.get_program())
            .args(ours.get_args());
        without
    } else {
        ours
    };
    let output = ours.output().unwrap();
    let path = plug.pty.path.display();
    let expected =
        format!("error: {url}: this user may not open it: take it over: sudo chown $USER {path}\n");
    assert_eq!(String::from_utf8(output.stderr).unwrap(), expected);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn unsupported_settings_of_the_driver_are_named() {
    let plug = Plug::new();
    for option in ["low_latency=1", "rs485=1"] {
        let url = plug.url(&format!("?{option}"));
        let line = format!("{url}: the driver of this port does not support '{option}': leave it out");
        refused(&run(&["latency", &url]), &line);
    }
    assert_eq!(plug.pty.settings().unwrap(), SerialSettings::default());
}

#[test]
fn a_vanished_line_leaves_the_results_so_far() {
    let plug = Plug::new();
    let (url, directory) = (plug.url(""), tempfile::tempdir().unwrap());
    let running = under_way(&url, directory.path());
    drop(plug);
    refused(
        &running.ended(),
        &format!(
            "{url}: the remote closed the link: check whether the server or device still runs, and its log"
        ),
    );
    let case = &document(directory.path())["cases"][0];
    assert_eq!((&case["complete"], &case["effective"]["virtual"]), (&Value::Bool(false), &Value::Bool(true)));
    assert!(case["received"].as_u64().unwrap() > 0, "{case}");
}

const CHECK_LINE: &str = "check the loopback plug or the device, rate, flow control, and --timeout";

#[test]
fn a_line_stays_open_between_repetitions_and_cases() {
    let plug = Plug::new();
    let ports = vec![plug.url("?baud=115200").parse().unwrap()];
    let options = DeviceServerOptions::new("tcp://127.0.0.1:0".parse().unwrap(), ports);
    let server = DeviceServer::start(&options).unwrap();
    let url = format!("tcp://{}?baud=115200", server.endpoints()[0].address());
    let sessions = || counters(&server, 0).sessions.load(Relaxed);
    for (flags, repetitions) in [
        (&["-n", "200"][..], 10),
        (&["-n", "20", "--repeat", "3"], 3),
        (&["-n", "20", "-s", "1,8", "--repeat", "2"], 2),
    ] {
        let before = sessions();
        let command: Vec<&str> =
            ["latency", &url, "--json", "-", "--no-store"].iter().chain(flags).copied().collect();
        let ended = run(&command);
        assert_eq!(ended.status, Some(0), "{}", ended.stderr);
        let document: Value = serde_json::from_str(&ended.stdout).unwrap();
        for case in document["cases"].as_array().unwrap() {
            assert_eq!((case["repeats"].as_array().unwrap().len(), &case["lost"]), (repetitions, &0.into()));
        }
        assert_eq!(sessions() - before, 1, "{flags:?}");
    }
}

#[test]
fn a_line_that_returns_nothing_suggests_the_plug() {
    let plug = Plug::returning(0);
    let url = plug.url("");
    let ended = run(&["latency", &url, "--count", "3", "--timeout", "50ms"]);
    refused(&ended, &format!("{url}: none of 3 messages arrived: {CHECK_LINE}"));
    let ended = run(&["throughput", &url, "--volume", "1k", "--timeout", "100ms"]);
    refused(&ended, &format!("{url}: none of 125 messages arrived: {CHECK_LINE}"));
}

#[test]
fn a_lossy_line_is_measured_with_its_losses() {
    // Losses up to the bytes of one second count; above, the line has stopped.
    for (volume, lost, status) in [("1500", 500, 0), ("4k", 3000, 2)] {
        let plug = Plug::returning(1000);
        let (url, directory) = (plug.url(""), tempfile::tempdir().unwrap());
        let path = directory.path().join("document");
        let flags = ["--volume", volume, "--timeout", "300ms", "--json", path.to_str().unwrap()];
        let ended = run(&[&["throughput", &url], &flags[..]].concat());
        assert_eq!(ended.status, Some(status), "{}", ended.stderr);
        assert_eq!(ended.stderr.contains("the line is silent"), status == 2, "{}", ended.stderr);
        let case = &document(directory.path())["cases"][0];
        assert_eq!((&case["delivered_bytes"], &case["lost_bytes"]), (&1000.into(), &lost.into()), "{case}");
        assert_eq!(case["defects"][0]["offset"], 1000, "{case}");
        assert!(ended.stdout.contains("bytes not returned"), "{}", ended.stdout);
    }
}

#[test]
fn a_transfer_shorter_than_one_message_is_reported() {
    let plug = Plug::new();
    let ended = run(&["throughput", &plug.url(""), "--volume", "1k"]);
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""));
    assert!(ended.stdout.starts_with("serial loop through /dev/"), "{}", ended.stdout);
}

#[test]
fn rejected_settings_are_reported() {
    let plug = Plug::new();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("document");
    for (options, granted, warned) in [
        ("?parity=even", "9600 8N1", true),
        // As many bits as were asked for.
        ("?data=7&parity=even", "9600 8N1", false),
        ("?parity=odd&baud=250000", "250000 8O1", false),
    ] {
        let url = plug.url(options);
        let ended = run(&["latency", &url, "--count", "400", "--quiet", "--json", path.to_str().unwrap()]);
        assert_eq!(ended.status, Some(0), "{}", ended.stderr);
        let case = &document(directory.path())["cases"][0];
        assert_eq!(case["effective"]["line_granted"], granted, "{options}");
        let codes = case["warnings"].as_array().unwrap().iter().map(|warning| &warning["code"]);
        assert_eq!(
            codes.filter(|code| *code == "line_not_granted").count(),
            usize::from(warned),
            "{options}"
        );
    }
}

#[test]
fn a_pseudo_terminal_has_no_wires_and_counts_nothing() {
    let plug = Plug::new();
    let mut link =
        Registry::standard().dialer(Clock::System).open(&plug.url("?baud=300").parse().unwrap()).unwrap();
    let per_second = |link: &dyn Link| link.caps().link_rate.unwrap().bits_per_second;
    assert_eq!(per_second(&*link), 300.0);
    let port = link.port_control().unwrap();
    for signal in [OutputSignal::Dtr, OutputSignal::Rts, OutputSignal::Break] {
        port.set_signal(signal, true).unwrap();
        port.set_signal(signal, false).unwrap();
    }
    assert_eq!((port.modem_lines(), port.uart_errors()), (None, None));
    let wanted = SerialSettings { baud: 1200, parity: Parity::Odd, ..SerialSettings::default() };
    assert_eq!((port.configure(&wanted).unwrap(), port.settings().unwrap()), (wanted, wanted));
    assert_eq!((per_second(&*link), plug.pty.settings().unwrap()), (1200.0, wanted));
    assert_eq!(link.facts()["line_requested"], "1200 8O1");
}
