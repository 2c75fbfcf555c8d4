//! Programs that know nothing of networks, on a local port that leads elsewhere.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use linkgauge::lab::redirect::{Event, Options, Redirector};
use linkgauge::link::Fault;
use linkgauge::link::line::{Errors, Modem, Port, Purge, Settings, Signal};
use linkgauge::link::rfc2217::Server;
use linkgauge::link::tty;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal as ProcessSignal;
use rustix::termios::{QueueSelector, tcflush};

use crate::foreign::Socat;
use crate::program::{PATIENCE, Running, python, run, wait_until};
use crate::ser2net::{Plug, Ser2net, free_port};

/// A redirector with a link in a directory of its own.
struct Local {
    redirector: Redirector,
    directory: tempfile::TempDir,
    seen: Vec<Event>,
}

impl Local {
    fn start(remote: &str) -> Local {
        Local::with(remote, |_| {})
    }

    fn with(remote: &str, change: impl FnOnce(&mut Options)) -> Local {
        let directory = tempfile::tempdir().unwrap();
        let mut options = Options::new(remote.parse().unwrap());
        options.link = Some(directory.path().join("ttyV0"));
        change(&mut options);
        let redirector = Redirector::start(&options).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(redirector.path(), directory.path().join("ttyV0"));
        Local { redirector, directory, seen: Vec::new() }
    }

    fn path(&self) -> PathBuf {
        self.redirector.path().to_owned()
    }

    /// The local port as a raw terminal, as a program opens it.
    fn open(&self) -> File {
        let terminal = OpenOptions::new().read(true).write(true).open(self.path()).unwrap();
        tty::set(&terminal, &Settings::default()).unwrap();
        terminal
    }

    /// Waits for an event.
    fn wait_for(&mut self, what: impl Fn(&Event) -> bool) {
        wait_until("an event", || {
            self.seen.extend(self.redirector.events());
            let place = self.seen.iter().position(&what)?;
            self.seen.drain(..=place);
            Some(())
        });
    }
}

/// Reads so many bytes, or fails.
fn read(terminal: &mut File, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let mut got = 0;
    let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
    while got < length {
        let ready = poll(&mut [PollFd::new(&terminal.as_fd(), PollFlags::IN)], Some(&patience)).unwrap();
        assert!(ready > 0, "{got} of {length} bytes came");
        got += terminal.read(&mut bytes[got..]).unwrap();
    }
    bytes
}

#[test]
fn pyserial_sets_a_port_it_cannot_see() {
    let plug = Plug::new();
    let ser2net = Ser2net::start("telnet(rfc2217),tcp", &plug.path(), free_port());
    let local = Local::start(&format!("rfc2217://127.0.0.1:{}", ser2net.port));
    let script = "
import serial, sys
port = serial.Serial(sys.argv[1], 57600, stopbits=2, timeout=30)
every = bytes(range(256)) * 8
port.write(every)
assert port.read(len(every)) == every
port.baudrate, port.stopbits = 1200, 1
port.write(b'slow')
assert port.read(4) == b'slow'
print('ok')
";
    let mut said = String::new();
    let mut program = python(&["-c", script, local.path().to_str().unwrap()]);
    program.0.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(said, "ok\n");
    assert_eq!(plug.settings().to_string(), "1200 8N1");
    let events: Vec<String> = local.redirector.events().map(|event| event.to_string()).collect();
    assert_eq!(events, ["connected", "set to 57600 8N2", "set to 1200 8N1"]);
    let counters = local.redirector.counters();
    assert_eq!((counters.to_remote.load(Relaxed), counters.from_remote.load(Relaxed)), (2052, 2052));
}

#[test]
fn socat_goes_through_to_a_raw_port() {
    let (_echo, place) = Socat::listening("TCP4-LISTEN:0,bind=127.0.0.1,fork", "PIPE");
    let local = Local::start(&format!("tcp://{place}?baud=9600"));
    let mut socat = Command::new("/usr/bin/socat")
        .args(["-t", "30", "-", &format!("{},rawer", local.path().display())])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let sent: Vec<u8> = (0..=255).collect();
    socat.stdin.take().unwrap().write_all(&sent).unwrap();
    let mut got = vec![0; sent.len()];
    socat.stdout.take().unwrap().read_exact(&mut got).unwrap();
    drop(Running(socat));
    assert!(got == sent, "{got:?}");
}

#[test]
fn a_slow_program_loses_nothing() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let place = listener.local_addr().unwrap();
    let echo = thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let _ = std::io::copy(&mut &stream, &mut &stream);
    });
    let local = Local::start(&format!("tcp://{place}?baud=115200"));
    let mut terminal = local.open();
    let mut writer = terminal.try_clone().unwrap();
    let sent: Vec<u8> = (0..200_000u32).map(|n| (n % 251) as u8).collect();
    let copy = sent.clone();
    let writing = thread::spawn(move || writer.write_all(&copy).unwrap());
    // More than a pseudo-terminal holds has come back before the program reads the first of it.
    let carried = &local.redirector.counters().to_remote;
    wait_until("the data", || (carried.load(Relaxed) > 50_000).then_some(()));
    assert!(read(&mut terminal, sent.len()) == sent);
    writing.join().unwrap();
    drop(local);
    echo.join().unwrap();
}

#[test]
fn a_lost_connection_is_made_again() {
    let plug = Plug::new();
    let port = free_port();
    let ser2net = Ser2net::start("telnet(rfc2217),tcp", &plug.path(), port);
    let mut local = Local::start(&format!("rfc2217://127.0.0.1:{port}"));
    let mut terminal = local.open();
    tty::set(&terminal, &Settings { baud: 2400, ..Settings::default() }).unwrap();
    terminal.write_all(b"one").unwrap();
    assert_eq!(read(&mut terminal, 3), b"one");
    drop(ser2net);
    local.wait_for(|event| matches!(event, Event::Lost { .. }));
    local.wait_for(|event| matches!(event, Event::Failed { why } if why.contains("nobody listens")));
    // Kept in the local port until there is a connection again; so are the settings.
    terminal.write_all(b"two").unwrap();
    let _again = Ser2net::start("telnet(rfc2217),tcp", &plug.path(), port);
    local.wait_for(|event| *event == Event::Connected);
    assert_eq!(read(&mut terminal, 3), b"two");
    assert_eq!(plug.settings().baud, 2400);
    assert_eq!(local.redirector.counters().connections.load(Relaxed), 2);
}

#[test]
fn it_gives_up_if_told_to() {
    let nobody = format!("rfc2217://127.0.0.1:{}", free_port());
    let mut local = Local::with(&nobody, |options| {
        options.retry = true;
        options.give_up = Some(Duration::from_millis(300));
    });
    local.wait_for(|event| *event == Event::GaveUp);
    wait_until("its end", || local.redirector.has_ended().then_some(()));
    let ended = run(&["lab", "redirect", "--retry", "--give-up", "100ms", &nobody]);
    assert_eq!(ended.status, Some(2));
    assert!(
        ended.stderr.contains("nobody listens there") && ended.stderr.contains("giving up"),
        "{}",
        ended.stderr
    );
}

#[test]
fn what_cannot_be_is_said_in_a_line() {
    let directory = tempfile::tempdir().unwrap();
    let taken = directory.path().join("ttyV0");
    std::fs::write(&taken, "mine").unwrap();
    let refused = |arguments: &[&str]| {
        let ended = run(&[&["lab", "redirect"], arguments].concat());
        assert_eq!(ended.status, Some(2), "{}", ended.stderr);
        assert_eq!(ended.stderr.trim_end().lines().count(), 1, "{}", ended.stderr);
        ended.stderr.replace(directory.path().to_str().unwrap(), "DIR")
    };
    insta::assert_snapshot!(refused(&["--link", taken.to_str().unwrap(), "tcp://127.0.0.1:9?baud=9600"]), @"error: DIR/ttyV0: something is there already: remove it, or choose another path");
    assert_eq!(std::fs::read_to_string(&taken).unwrap(), "mine");
    insta::assert_snapshot!(refused(&["rfc2217://no.such.host.invalid:7001"]), @"error: rfc2217://no.such.host.invalid:7001: the name 'no.such.host.invalid' was not found: check its spelling");
    insta::assert_snapshot!(refused(&["udp://127.0.0.1:7001"]), @"error: udp://127.0.0.1:7001: a serial port needs a stream");
    insta::assert_snapshot!(refused(&["rfc2217://box"]), @"error: rfc2217://box: needed is the device server's host and port, like rfc2217://host:7001");
    // What failed leaves no link behind.
    let link = directory.path().join("ttyV1");
    refused(&["--link", link.to_str().unwrap(), &format!("tcp://127.0.0.1:{}?baud=9600", free_port())]);
    assert!(link.symlink_metadata().is_err());
}

#[test]
fn the_program_ends_when_it_is_told_to() {
    let (_echo, place) = Socat::listening("TCP4-LISTEN:0,bind=127.0.0.1,fork", "PIPE");
    let directory = tempfile::tempdir().unwrap();
    let link = directory.path().join("ttyV0");
    let remote = format!("tcp://{place}?baud=9600");
    let running = Running::start(&["lab", "redirect", "--link", link.to_str().unwrap(), &remote]);
    wait_until("the local port", || link.exists().then_some(()));
    running.signal(ProcessSignal::INT);
    let ended = running.ended();
    assert_eq!(ended.status, Some(0));
    assert!(link.symlink_metadata().is_err());
    assert!(ended.stdout.is_empty() || ended.stdout.starts_with("serial port "), "{}", ended.stdout);
}

/// A port that counts what is thrown away.
#[derive(Default)]
struct Purged {
    settings: Settings,
    done: Vec<String>,
}

impl Port for Purged {
    fn settings(&mut self) -> Result<Settings, Fault> {
        Ok(self.settings)
    }

    fn set(&mut self, wanted: &Settings) -> Result<Settings, Fault> {
        self.settings = *wanted;
        self.done.push(wanted.to_string());
        Ok(self.settings)
    }

    fn signal(&mut self, _signal: Signal, _on: bool) -> Result<(), Fault> {
        Ok(())
    }

    fn modem(&mut self) -> Option<Modem> {
        None
    }

    fn purge(&mut self, purge: Purge) -> Result<(), Fault> {
        self.done.push(format!("purge {purge:?}"));
        Ok(())
    }

    fn errors(&mut self) -> Option<Errors> {
        None
    }
}

/// Serves one client; what was done to the port, in order, with the data among it.
fn serve_one(listener: &TcpListener) -> Vec<String> {
    let (mut stream, _) = listener.accept().unwrap();
    let mut server = Server::new(Settings::default(), "test");
    let (mut port, mut out, mut bytes) = (Purged::default(), Vec::new(), [0; 1000]);
    server.greeting(&mut out);
    stream.write_all(&out).unwrap();
    while let Ok(length @ 1..) = stream.read(&mut bytes) {
        let mut rest = &bytes[..length];
        while !rest.is_empty() {
            let (mut data, mut answers) = (Vec::new(), Vec::new());
            let used = server.received(rest, &mut data, &mut answers, &mut port).unwrap();
            stream.write_all(&answers).unwrap();
            if !data.is_empty() {
                port.done.push(String::from_utf8(data).unwrap());
            }
            rest = &rest[used..];
        }
    }
    port.done
}

#[test]
fn what_a_program_throws_away_is_purged_far_away() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let remote = format!("rfc2217://{}", listener.local_addr().unwrap());
    let serving = thread::spawn(move || serve_one(&listener));
    let local = Local::start(&remote);
    let mut terminal = local.open();
    terminal.write_all(b"one").unwrap();
    let carried = |bytes| {
        let counter = &local.redirector.counters().to_remote;
        wait_until("the data", || (counter.load(Relaxed) == bytes).then_some(()));
    };
    carried(3);
    tcflush(terminal.as_fd(), QueueSelector::IFlush).unwrap();
    tty::set(&terminal, &Settings { baud: 4800, ..Settings::default() }).unwrap();
    terminal.write_all(b"two").unwrap();
    carried(6);
    drop(local);
    let done = serving.join().unwrap();
    // Opening purges, flushing does, and a new rate is in force before what is written after it.
    assert_eq!(done.iter().filter(|what| *what == "purge Received").count(), 1, "{done:?}");
    let rest: Vec<&String> = done.iter().filter(|what| *what != "purge Received").collect();
    assert_eq!(rest, ["purge Both", "one", "4800 8N1", "two"]);
}

#[test]
fn the_link_goes_with_the_redirector() {
    let (_echo, place) = Socat::listening("TCP4-LISTEN:0,bind=127.0.0.1,fork", "PIPE");
    let Local { redirector, directory, .. } = Local::start(&format!("tcp://{place}?baud=9600"));
    let link = directory.path().join("ttyV0");
    assert!(Path::exists(&link));
    drop(redirector);
    assert!(link.symlink_metadata().is_err());
}
