//! Programs of other people on a local port that leads elsewhere.

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering::Relaxed;

use linkgauge::lab::redirect::RedirectorEvent;
use linkgauge::link::serial_line::SerialSettings;

use crate::client::free_port;
use crate::local_port::{Local, read};
use crate::program::{Running, wait_until};
use crate::ser2net::{Plug, Ser2net};
use crate::socat::Socat;
use crate::tools::python;

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
    let mut printed = String::new();
    let mut program = python(&["-c", script, local.path().to_str().unwrap()]);
    program.0.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
    assert_eq!(printed, "ok\n");
    assert_eq!(plug.settings().to_string(), "1200 8N1");
    let events: Vec<String> = local.redirector.events().map(|event| event.to_string()).collect();
    assert_eq!(events, ["connected", "set to 57600 8N2", "set to 1200 8N1"]);
    let counters = local.redirector.counters();
    // A byte is counted after the program may have read it.
    let count = || (counters.to_remote.load(Relaxed), counters.from_remote.load(Relaxed));
    wait_until("the counters", || (count() == (2052, 2052)).then_some(()));
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
fn a_lost_connection_is_reopened() {
    let plug = Plug::new();
    let port = free_port();
    let ser2net = Ser2net::start("telnet(rfc2217),tcp", &plug.path(), port);
    let mut local = Local::start(&format!("rfc2217://127.0.0.1:{port}"));
    let mut terminal = local.open();
    linkgauge::system::set_line(&terminal, &SerialSettings { baud: 2400, ..SerialSettings::default() })
        .unwrap();
    terminal.write_all(b"one").unwrap();
    assert_eq!(read(&mut terminal, 3), b"one");
    drop(ser2net);
    local.wait_for(|event| matches!(event, RedirectorEvent::ConnectionLost { .. }));
    local.wait_for(
        |event| matches!(event, RedirectorEvent::ConnectFailed { why } if why.contains("the port is closed")),
    );
    // Buffered in the local port until the connection is open again, and so are the settings.
    terminal.write_all(b"two").unwrap();
    let _again = Ser2net::start("telnet(rfc2217),tcp", &plug.path(), port);
    local.wait_for(|event| *event == RedirectorEvent::Connected);
    assert_eq!(read(&mut terminal, 3), b"two");
    assert_eq!(plug.settings().baud, 2400);
    assert_eq!(local.redirector.counters().connections.load(Relaxed), 2);
}
