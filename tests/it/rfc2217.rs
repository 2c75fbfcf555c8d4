//! Serial ports behind device servers that are not ours: ser2net, pyserial's, and small liars.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use linkgauge::clock::Clock;
use linkgauge::link::line::{Parity, Purge, Settings, Signal};
use linkgauge::link::{self, Dialer, Link};

use crate::program::{PATIENCE, python};
use crate::ser2net::{Plug, Ser2net, free_port};

fn open(url: &str) -> Result<Box<dyn Link>, String> {
    Dialer::new(Clock::System).open(&url.parse().unwrap()).map_err(|error| error.to_string())
}

/// Every byte value, in an order of its own; returns when all of it has come back.
fn all_values_come_back(link: &mut dyn Link) {
    let sent: Vec<u8> = (0..4096u32).map(|n| (n.wrapping_mul(167) >> 3) as u8).chain([0xff; 100]).collect();
    let (mut got, mut offset) = (Vec::new(), 0);
    let until = Instant::now() + PATIENCE;
    let mut bytes = [0; 1000];
    while got.len() < sent.len() {
        assert!(Instant::now() < until, "{} of {} bytes came back", got.len(), sent.len());
        if offset < sent.len() {
            let end = sent.len().min(offset + 500);
            offset += link.send(&sent[offset..end], PATIENCE).unwrap();
        }
        let length = link.receive(&mut bytes, PATIENCE).unwrap();
        got.extend_from_slice(&bytes[..length]);
    }
    assert!(got == sent, "the bytes came back different");
}

#[test]
fn ser2net_does_what_the_url_says() {
    let plug = Plug::new();
    let ser2net = Ser2net::start("telnet(rfc2217),tcp", &plug.path(), free_port());
    let url = format!("rfc2217://127.0.0.1:{}?baud=19200&parity=odd&stop=2", ser2net.port);
    let mut link = open(&url).unwrap();
    assert_eq!(plug.settings().to_string(), "19200 8O2");
    let facts = link.facts();
    assert_eq!(facts["line_granted"], "19200 8O2");
    assert_eq!(facts["signature"], "ser2net");
    assert_eq!(link.caps(), &link::caps(&url.parse().unwrap()).unwrap());
    all_values_come_back(&mut *link);
    // A second client is told so by ser2net, and we tell the user; unless the reset that follows overtakes the words.
    let busy = open(&url).err().unwrap();
    assert!(busy.contains("in use") || busy.contains("does another client use it?"), "{busy}");
    // Another program's wishes go through the port; data go on behind them.
    let wanted = Settings { baud: 57_600, parity: Parity::Odd, ..Settings::default() };
    let port = link.port().unwrap();
    assert_eq!(port.set(&wanted).unwrap(), wanted);
    assert_eq!(port.settings().unwrap(), wanted);
    assert_eq!(plug.settings(), wanted);
    assert!(port.modem().is_some() && port.errors().is_some());
    port.signal(Signal::Dtr, false).unwrap();
    port.purge(Purge::Both).unwrap();
    all_values_come_back(&mut *link);
}

#[test]
fn one_half_sets_while_the_other_receives() {
    let plug = Plug::new();
    let ser2net = Ser2net::start("telnet(rfc2217),tcp", &plug.path(), free_port());
    let mut link = open(&format!("rfc2217://127.0.0.1:{}", ser2net.port)).unwrap();
    let mut half = link.other_half().unwrap();
    thread::scope(|scope| {
        let received = scope.spawn(move || {
            let mut bytes = [0; 10];
            let length = half.receive(&mut bytes, PATIENCE).unwrap();
            bytes[..length].to_vec()
        });
        for baud in [1200, 115_200, 300] {
            let wanted = Settings { baud, ..Settings::default() };
            assert_eq!(link.port().unwrap().set(&wanted).unwrap(), wanted);
            assert_eq!(plug.settings(), wanted);
        }
        link.send(b"\xff", PATIENCE).unwrap();
        assert_eq!(received.join().unwrap(), b"\xff");
    });
}

/// Runs a liar for one client: it is given the connection and ends with it.
fn liar(lie: impl FnOnce(&mut TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("rfc2217://{}", listener.local_addr().unwrap());
    thread::spawn(move || lie(&mut listener.accept().unwrap().0));
    url
}

/// Keeps the connection open and takes what comes, until the client goes.
fn take_all(stream: &mut TcpStream) {
    let _ = std::io::copy(stream, &mut std::io::sink());
}

fn refusal(lie: impl FnOnce(&mut TcpStream) + Send + 'static) -> String {
    let url = liar(lie);
    let error = open(&url).err().expect("the liar was believed");
    error.replace(url.trim_start_matches("rfc2217://"), "HOST")
}

/// Agrees to control of the port; returns when the client has begun to.
fn agree(stream: &mut TcpStream) {
    stream.write_all(b"\xff\xfd\x2c").unwrap();
    let mut bytes = [0; 1000];
    while !bytes.windows(2).any(|pair| pair == b"\xff\xfa") {
        let _ = stream.read(&mut bytes).unwrap();
    }
}

/// Eight data bits, no parity, one stop bit, no flow control are granted.
const SET: &[u8] =
    b"\xff\xfa\x2c\x66\x08\xff\xf0\xff\xfa\x2c\x67\x01\xff\xf0\xff\xfa\x2c\x68\x01\xff\xf0\xff\xfa\x2c\x69\x01\xff\xf0";

#[test]
fn who_is_no_serial_port_is_told_apart() {
    insta::assert_snapshot!(refusal(take_all), @"rfc2217://HOST: this is a raw port, it does not speak Telnet (RFC 2217): use tcp://HOST?baud=…");
    insta::assert_snapshot!(refusal(|stream| {
        stream.write_all(b"login: ").unwrap();
        take_all(stream);
    }), @"rfc2217://HOST: this is a raw port, it does not speak Telnet (RFC 2217): use tcp://HOST?baud=…");
    insta::assert_snapshot!(refusal(|stream| {
        let mut bytes = [0; 1000];
        while let Ok(length @ 1..) = stream.read(&mut bytes) {
            let _ = stream.write_all(&bytes[..length]);
        }
    }), @"rfc2217://HOST: what is sent comes back: this is a raw port with a plug on its line; use tcp://…?baud=…");
    insta::assert_snapshot!(refusal(|stream| {
        stream.write_all(b"\xff\xfd\x03\xff\xfe\x2c").unwrap();
        take_all(stream);
    }), @"rfc2217://HOST: the far end refuses control of its port (RFC 2217): switch it on there, or use tcp://HOST?baud=…");
    insta::assert_snapshot!(refusal(|stream| {
        stream.write_all(b"Port busy\r\n").unwrap();
    }), @"rfc2217://HOST: the far end said 'Port busy' and closed the connection");
    insta::assert_snapshot!(refusal(|_| {}), @"rfc2217://HOST: the far end closed the connection before its port was ready: does another client use it?");
    insta::assert_snapshot!(open("rfc2217://127.0.0.1").err().unwrap(), @"rfc2217://127.0.0.1: needed is the device server's host and port, like rfc2217://host:7001");
    let nobody = format!("rfc2217://127.0.0.1:{}", free_port());
    assert!(open(&nobody).err().unwrap().contains("nobody listens there"));
}

#[test]
fn who_answers_garbage_or_nothing_is_given_up() {
    let began = Instant::now();
    insta::assert_snapshot!(refusal(|stream| {
        stream.write_all(b"\xff\xfd\x03").unwrap();
        take_all(stream);
    }), @"rfc2217://HOST: the far end speaks Telnet, but did not agree to control of its port (RFC 2217) in 3 s: switch it on there, or use tcp://HOST?baud=…");
    assert!(began.elapsed() >= Duration::from_secs(3));
    // It agrees, and stops in the middle of its first answer.
    insta::assert_snapshot!(refusal(|stream| {
        agree(stream);
        stream.write_all(&[SET, b"\xff\xfa\x2c\x65\x00\x00"].concat()).unwrap();
        take_all(stream);
    }), @"rfc2217://HOST: no answer in 3 s to the setting of the rate: see the device server's log");
    // It never stops negotiating.
    insta::assert_snapshot!(refusal(|stream| {
        let _ = stream.set_write_timeout(Some(PATIENCE));
        while stream.write_all(&b"\xff\xfd\x55\xff\xfb\x55\xff\xfc\x2c\xff\xfa\x63".repeat(100)).is_ok() {}
    }), @"rfc2217://HOST: the far end speaks Telnet, but did not agree to control of its port (RFC 2217) in 3 s: switch it on there, or use tcp://HOST?baud=…");
    // It agrees, and sends and sends.
    let flood = refusal(|stream| {
        agree(stream);
        while stream.write_all(&[7; 10_000]).is_ok() {}
    });
    assert!(flood.contains("sends and sends") || flood.contains("no answer in 3 s"), "{flood}");
}

#[test]
fn what_was_granted_is_what_counts() {
    let url = liar(|stream| {
        // 9580 is 9600 to any UART; seven data bits are not what was asked for.
        let odd = b"\xff\xfa\x2c\x65\x00\x00\x25\x6c\xff\xf0\xff\xfa\x2c\x66\x07\xff\xf0\xff\xfa\x2c\x70\x03\xff\xf0";
        agree(stream);
        stream.write_all(&[SET, odd, b"\xff\xfa\x2c\x6a\x08\xff\xf0hello"].concat()).unwrap();
        take_all(stream);
    });
    let mut link = open(&url).unwrap();
    assert_eq!(link.facts()["line_asked"], "9600 8N1");
    assert_eq!(link.facts()["line_granted"], "9580 7N1");
    let line = link.caps().line.unwrap();
    assert_eq!((line.bits_per_second, line.bits_per_byte), (9580.0, 9.0));
    assert_eq!(link.port().unwrap().errors().unwrap().framing, 1);

    insta::assert_snapshot!(refusal(|stream| {
        let slow = b"\xff\xfa\x2c\x65\x00\x00\x04\xb0\xff\xf0";
        agree(stream);
        stream.write_all(&[SET, slow].concat()).unwrap();
        take_all(stream);
    }), @"rfc2217://HOST: the port makes 1200 baud of the 9600 asked for: choose a rate that it can make");
}

/// pyserial's own server, with a plug on its port.
const PORT_MANAGER: &str = "
import socket, threading, serial, serial.rfc2217
port = serial.serial_for_url('loop://', baudrate=9600, timeout=0.05)
listener = socket.create_server(('127.0.0.1', 0))
print(listener.getsockname()[1], flush=True)
client, _ = listener.accept()
class Client:
    write = staticmethod(client.sendall)
manager = serial.rfc2217.PortManager(port, Client())
def from_line():
    while True:
        data = port.read(port.in_waiting or 1)
        if data: client.sendall(b''.join(manager.escape(data)))
threading.Thread(target=from_line, daemon=True).start()
try:
    while data := client.recv(1000):
        port.write(b''.join(manager.filter(data)))
except ConnectionError:
    pass
print(port.baudrate, port.parity, port.bytesize, port.stopbits, port.dtr, flush=True)
";

#[test]
fn pyserials_server_does_what_the_url_says() {
    let mut python = python(&["-c", PORT_MANAGER]);
    let mut lines = BufReader::new(python.0.stdout.take().unwrap()).lines();
    let port: u16 = lines.next().unwrap().unwrap().parse().unwrap();
    let mut link =
        open(&format!("rfc2217://127.0.0.1:{port}?baud=115200&data=7&parity=even&stop=2")).unwrap();
    assert_eq!(link.facts()["line_granted"], "115200 7E2");
    all_values_come_back(&mut *link);
    // What is answered later was heard later.
    let port = link.port().unwrap();
    port.signal(Signal::Dtr, false).unwrap();
    let wanted = Settings { baud: 57_600, ..port.settings().unwrap() };
    assert_eq!(port.set(&wanted).unwrap(), wanted);
    drop(link);
    assert_eq!(lines.next().unwrap().unwrap(), "57600 E 7 2 False");
}
