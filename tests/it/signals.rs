//! Signals that end the program in order: SIGHUP, as when a terminal closes or a connection to this host is lost, does what
//! SIGTERM does.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use linkgauge::run::Run;
use linkgauge::store::{Filter, Store};
use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, Signal, kill_process_group};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::program::{Running, Serving, command, wait_for_progress, wait_until};

const HOW: [Signal; 2] = [Signal::HUP, Signal::TERM];

/// Flags of an endless run, with its files in a directory.
fn endless<'a>(files: &'a [String; 3], url: &'a str) -> Vec<&'a str> {
    let [events, json, store] = files.each_ref().map(String::as_str);
    [
        "latency",
        url,
        "--time",
        "1h",
        "--interval",
        "20ms",
        "--events",
        events,
        "--json",
        json,
        "--store",
        store,
    ]
    .to_vec()
}

fn files(directory: &Path) -> [String; 3] {
    ["events", "json", "store"].map(|name| directory.join(name).display().to_string())
}

/// Fails unless a run was interrupted, reported and saved.
fn is_reported(files: &[String; 3]) {
    let run = Run::from_json(&std::fs::read_to_string(&files[1]).unwrap()).unwrap();
    assert!(run.interrupted && run.cases[0].figures.counts.received > 0);
    assert_eq!(Store::open_existing(Path::new(&files[2])).unwrap().load(&run.id).unwrap(), run);
}

#[test]
fn a_run_is_reported_and_saved() {
    let server = Serving::start(&[]);
    for signal in HOW {
        let directory = tempfile::tempdir().unwrap();
        let files = files(directory.path());
        let running = Running::start(&endless(&files, server.tcp.as_str()));
        wait_for_progress(Path::new(&files[0]));
        running.signal(signal);
        let ended = running.ended();
        assert_eq!(ended.status, Some(130), "{}", ended.stderr);
        is_reported(&files);
    }
}

/// The result of the second plan is not known yet.
#[test]
fn a_comparison_that_is_cut_short_was_interrupted() {
    let server = Serving::start(&[]);
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name).display().to_string();
    for (name, url) in [("a", &server.tcp), ("b", &server.udp)] {
        std::fs::write(
            file(name),
            format!(
                "[[case]]\nworkload = \"latency\"\nurl = \"{url}\"\ntime = \"1h\"\ninterval = \"20ms\"\n"
            ),
        )
        .unwrap();
    }
    let (a, b, events) = (file("a"), file("b"), file("events"));
    let running = Running::start(&["ab", "--a", &a, "--b", &b, "--events", &events]);
    wait_for_progress(Path::new(&events));
    running.signal(Signal::INT);
    let ended = running.ended();
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(130), ""));
}

/// The shell and the kernel each send the signal, and later output is discarded.
#[test]
fn a_terminal_that_closes_costs_nothing() {
    let server = Serving::start(&[]);
    let directory = tempfile::tempdir().unwrap();
    let files = files(directory.path());
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&terminal).and_then(|()| unlockpt(&terminal)).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let side = open(&name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).unwrap();
    let mut command = command(&endless(&files, server.tcp.as_str()));
    command.stdin(side.try_clone().unwrap()).stdout(side.try_clone().unwrap()).stderr(side).process_group(0);
    let mut running = Running(command.spawn().unwrap());
    drop(command);
    wait_for_progress(Path::new(&files[0]));
    drop(terminal);
    for _ in 0..2 {
        // It may have ended by now.
        let _ = kill_process_group(Pid::from_child(&running.0), Signal::HUP);
    }
    assert_eq!(running.wait().code(), Some(130));
    is_reported(&files);
}

#[test]
fn an_ignored_sighup_ends_nothing() {
    let server = Serving::start(&[]);
    let directory = tempfile::tempdir().unwrap();
    let files = files(directory.path());
    let program = command(&endless(&files, server.tcp.as_str()));
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' HUP; exec \"$@\"", "sh"]).arg(program.get_program()).args(program.get_args());
    shell.env("LINKGAUGE_STORE", "").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = Running(shell.spawn().unwrap());
    wait_for_progress(Path::new(&files[0]));
    running.signal(Signal::HUP);
    let before = std::fs::metadata(&files[0]).unwrap().len();
    wait_until("more progress", || {
        (std::fs::metadata(&files[0]).unwrap().len() > before + 1_000).then_some(())
    });
    assert!(running.0.try_wait().unwrap().is_none());
    running.signal(Signal::TERM);
    assert_eq!(running.wait().code(), Some(130));
    is_reported(&files);
}

/// Servers print a line at their end, and leave nothing behind.
#[test]
fn servers_end_in_order() {
    let (server, directory) = (Serving::start(&[]), tempfile::tempdir().unwrap());
    let link = directory.path().join("port").display().to_string();
    let ports = directory.path().join("ports").display().to_string();
    for arguments in [
        &["serve", "tcp://127.0.0.1:0"][..],
        &["lab", "uart", "--link", &ports],
        &["lab", "device-server", "--plug", "--listen", "tcp://127.0.0.1:0"],
        &["lab", "redirect", server.tcp.as_str(), "--link", &link],
        &["lab", "shaper", "--listen", "tcp://127.0.0.1:0", "--to", "tcp://127.0.0.1:1"],
        &["lab", "logger", "--listen", "tcp://127.0.0.1:0"],
    ] {
        for signal in HOW {
            let mut running = Running::start(arguments);
            let mut first = String::new();
            let mut lines = BufReader::new(running.0.stdout.take().unwrap());
            lines.read_line(&mut first).unwrap();
            assert!(!first.is_empty(), "{arguments:?} prints where it listens");
            running.signal(signal);
            running.0.stdout = Some(lines.into_inner());
            let ended = running.ended();
            assert_eq!(ended.status, Some(0), "{arguments:?}: {}", ended.stderr);
            assert!(!ended.stderr.is_empty(), "{arguments:?} prints its totals");
        }
    }
    let left: Vec<_> = directory.path().read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn the_demo_removes_its_folder() {
    for signal in HOW {
        let directory = tempfile::tempdir().unwrap();
        let (own, out) = (directory.path().join("own"), directory.path().join("out"));
        std::fs::create_dir(&own).and_then(|()| std::fs::create_dir(&out)).unwrap();
        let mut command = command(&["demo", "--quick"]);
        command.env("TMPDIR", &own).current_dir(&out).stdout(Stdio::piped()).stderr(Stdio::piped());
        let running = Running(command.spawn().unwrap());
        let sockets = || {
            let mut entries = own.read_dir().unwrap().next()?.ok()?.path().read_dir().ok()?.flatten();
            entries.find(|entry| entry.file_name() != "lock").map(drop)
        };
        wait_until("the sockets of the demo", sockets);
        running.signal(signal);
        let ended = running.ended();
        assert_eq!(ended.status, Some(130), "{}", ended.stderr);
        assert!(own.read_dir().unwrap().next().is_none(), "{signal:?}");
        // Files are written only if something was measured by then.
        let is_measured = !ended.stderr.contains("interrupted: nothing was measured\n");
        for name in ["linkgauge-demo.json", "report.html"] {
            assert_eq!(out.join(name).exists(), is_measured, "{}", ended.stderr);
        }
    }
}

#[test]
fn an_interrupted_study_is_reported() {
    for signal in HOW {
        let directory = tempfile::tempdir().unwrap();
        let [events, json, _] = files(directory.path());
        let running = Running::start(&[
            "reproduce",
            "sena",
            "--quick",
            "--json",
            &json,
            "--events",
            &events,
            "--no-store",
        ]);
        wait_until("the first case", || {
            std::fs::read_to_string(&events).ok()?.contains("case_begins").then_some(())
        });
        running.signal(signal);
        assert_eq!(running.ended().status, Some(130));
        assert!(Run::from_json(&std::fs::read_to_string(json).unwrap()).unwrap().interrupted);
    }
}

/// Another program has locked the store: Ctrl-C ends the wait for it.
#[test]
fn ctrl_c_ends_the_wait_for_a_locked_store() {
    let server = Serving::start(&[]);
    let directory = tempfile::tempdir().unwrap();
    let files = files(directory.path());
    let store = rusqlite::Connection::open(&files[2]).unwrap();
    drop(Store::open(Path::new(&files[2])).unwrap());
    let running = Running::start(&endless(&files, server.tcp.as_str()));
    wait_for_progress(Path::new(&files[0]));
    store.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let began = Instant::now();
    running.signal(Signal::INT);
    let ended = running.ended();
    // It waits at most half a minute.
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert_eq!(ended.status, Some(130), "{}", ended.stderr);
    let message = "the store cannot be opened: another program has locked it. Try --store FILE";
    assert!(ended.stderr.contains(message), "{}", ended.stderr);
    assert!(Run::from_json(&std::fs::read_to_string(&files[1]).unwrap()).unwrap().interrupted);
}

/// A server that accepts and stays silent.
#[test]
fn ctrl_c_ends_a_handshake() {
    for (scheme, protocol) in [("tcp", "linkgauge"), ("tcp", "iperf3"), ("udp", "netio")] {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("{scheme}://{}", silent.local_addr().unwrap());
        let running = Running::start(&["throughput", &url, "--protocol", protocol, "--timeout", "10min"]);
        let (connection, _) = silent.accept().unwrap();
        running.signal(Signal::INT);
        let ended = running.ended();
        assert_eq!(ended.status, Some(130), "{protocol}: {}", ended.stderr);
        drop(connection);
    }
}

/// Before a request got a reply there is nothing to explain.
#[test]
fn ctrl_c_ends_an_explanation() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("tcp://{}", silent.local_addr().unwrap());
    let running = Running::start(&["explain", &url, "--protocol", "echo"]);
    let (connection, _) = silent.accept().unwrap();
    running.signal(Signal::INT);
    let ended = running.ended();
    assert_eq!(ended.status, Some(130), "{}", ended.stderr);
    assert_eq!(
        ended.stderr,
        "error: interrupted before there was enough to explain. Try: a shorter --time\n"
    );
    drop(connection);
}

/// Agents that never start: there is no result, so neither a table nor a saved run.
#[test]
fn ctrl_c_before_the_first_result_is_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let [list, started, store] = ["hosts.toml", "started", "store"].map(|name| directory.path().join(name));
    let agent = format!("command = [\"sh\", \"-c\", \"touch {}; exec sleep 600\"]", started.display());
    let host = |name: &str| format!("[[host]]\nname = \"{name}\"\n{agent}\n");
    std::fs::write(&list, host("a") + &host("b")).unwrap();
    let [list, store_name] = [&list, &store].map(|path| path.to_str().unwrap());
    let running = Running::start(&["mesh", list, "--store", store_name]);
    wait_until("an agent", || started.exists().then_some(()));
    running.signal(Signal::INT);
    let ended = running.ended();
    assert_eq!((ended.status, ended.stdout.as_str()), (Some(130), ""), "{}", ended.stderr);
    assert_eq!(ended.stderr, "interrupted: nothing was measured\n");
    assert!(Store::open_existing(&store).unwrap().ids(&Filter::default()).unwrap().is_empty());
}
