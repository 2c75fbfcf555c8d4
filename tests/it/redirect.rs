//! Programs that know nothing of networks, on a local port that leads elsewhere.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use linkgauge::lab::redirect::RedirectorEvent;
use linkgauge::link::Fault;
use linkgauge::link::serial_line::{
    ModemLines, OutputSignal, PortControl, PurgeTarget, SerialSettings, UartErrors,
};
use linkgauge::transport::rfc2217::PortServer;
use rustix::process::Signal as ProcessSignal;
use rustix::termios::{QueueSelector, tcflush};

use crate::client::free_port;
use crate::echo_server::EchoServer;
use crate::local_port::{Local, read};
use crate::program::{Running, run, wait_until};

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
fn it_gives_up_after_the_given_time() {
    let unused = format!("rfc2217://127.0.0.1:{}", free_port());
    let mut local = Local::with(&unused, |options| {
        options.retry = true;
        options.give_up_after = Some(Duration::from_millis(300));
    });
    local.wait_for(|event| *event == RedirectorEvent::GaveUp);
    wait_until("its end", || local.redirector.has_ended().then_some(()));
    let ended = run(&["lab", "redirect", "--retry", "--give-up", "100ms", &unused]);
    assert_eq!(ended.status, Some(2));
    assert!(
        ended.stderr.contains("the port is closed") && ended.stderr.contains("giving up"),
        "{}",
        ended.stderr
    );
}

#[test]
fn invalid_options_get_one_line() {
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
    // A failure leaves no link behind.
    let link = directory.path().join("ttyV1");
    refused(&["--link", link.to_str().unwrap(), &format!("tcp://127.0.0.1:{}?baud=9600", free_port())]);
    assert!(link.symlink_metadata().is_err());
}

#[test]
fn the_program_ends_on_a_signal() {
    let echo = EchoServer::listen("tcp://127.0.0.1:0");
    let place = echo.endpoint.address();
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

/// A port that counts discarded bytes.
#[derive(Default)]
struct Purged {
    settings: SerialSettings,
    done: Vec<String>,
}

impl PortControl for Purged {
    fn settings(&mut self) -> Result<SerialSettings, Fault> {
        Ok(self.settings)
    }

    fn configure(&mut self, wanted: &SerialSettings) -> Result<SerialSettings, Fault> {
        self.settings = *wanted;
        self.done.push(wanted.to_string());
        Ok(self.settings)
    }

    fn set_signal(&mut self, _signal: OutputSignal, _on: bool) -> Result<(), Fault> {
        Ok(())
    }

    fn modem_lines(&mut self) -> Option<ModemLines> {
        None
    }

    fn purge(&mut self, purge: PurgeTarget) -> Result<(), Fault> {
        self.done.push(format!("purge {purge:?}"));
        Ok(())
    }

    fn uart_errors(&mut self) -> Option<UartErrors> {
        None
    }
}

/// Serves one client; returns the operations on the port in order, including the data.
fn serve_one(listener: &TcpListener) -> Vec<String> {
    let (mut stream, _) = listener.accept().unwrap();
    let mut server = PortServer::new(SerialSettings::default(), "test");
    let (mut port, mut out, mut bytes) = (Purged::default(), Vec::new(), [0; 1000]);
    server.write_greeting(&mut out);
    stream.write_all(&out).unwrap();
    while let Ok(length @ 1..) = stream.read(&mut bytes) {
        let mut rest = &bytes[..length];
        while !rest.is_empty() {
            let (mut data, mut replies) = (Vec::new(), Vec::new());
            let used = server.handle_bytes(rest, &mut data, &mut replies, &mut port).unwrap();
            stream.write_all(&replies).unwrap();
            if !data.is_empty() {
                port.done.push(String::from_utf8(data).unwrap());
            }
            rest = &rest[used..];
        }
    }
    port.done
}

#[test]
fn a_flush_purges_the_remote_port() {
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
    linkgauge::system::set_line(&terminal, &SerialSettings { baud: 4800, ..SerialSettings::default() })
        .unwrap();
    terminal.write_all(b"two").unwrap();
    carried(6);
    drop(local);
    let done = serving.join().unwrap();
    // Opening purges, flushing does, and a new rate takes effect before the bytes written after it.
    assert_eq!(done.iter().filter(|what| *what == "purge Received").count(), 1, "{done:?}");
    let rest: Vec<&String> = done.iter().filter(|what| *what != "purge Received").collect();
    assert_eq!(rest, ["purge Both", "one", "4800 8N1", "two"]);
}

#[test]
fn the_link_goes_with_the_redirector() {
    let echo = EchoServer::listen("tcp://127.0.0.1:0");
    let place = echo.endpoint.address();
    let Local { redirector, directory, .. } = Local::start(&format!("tcp://{place}?baud=9600"));
    let link = directory.path().join("ttyV0");
    assert!(Path::exists(&link));
    drop(redirector);
    assert!(link.symlink_metadata().is_err());
}
