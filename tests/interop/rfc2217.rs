//! Serial ports behind third-party device servers: ser2net and pyserial.

use std::io::{BufRead, BufReader};
use std::thread;
use std::time::Instant;

use linkgauge::Registry;
use linkgauge::clock::Clock;
use linkgauge::link::Link;
use linkgauge::link::serial_line::{OutputSignal, Parity, PurgeTarget, SerialSettings};

use crate::client::free_port;
use crate::program::PATIENCE;
use crate::ser2net::{Plug, Ser2net};
use crate::tools::python;

fn open(url: &str) -> Result<Box<dyn Link>, String> {
    Registry::standard().dialer(Clock::System).open(&url.parse().unwrap()).map_err(|error| error.to_string())
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
fn ser2net_applies_the_settings_of_the_url() {
    let plug = Plug::new();
    let ser2net = Ser2net::start("telnet(rfc2217),tcp", &plug.path(), free_port());
    let url = format!("rfc2217://127.0.0.1:{}?baud=19200&parity=odd&stop=2", ser2net.port);
    let mut link = open(&url).unwrap();
    assert_eq!(plug.settings().to_string(), "19200 8O2");
    let facts = link.facts();
    assert_eq!(facts["line_granted"], "19200 8O2");
    assert_eq!(facts["signature"], "ser2net");
    assert_eq!(link.caps(), &Registry::standard().transports.caps(&url.parse().unwrap()).unwrap());
    all_values_come_back(&mut *link);
    // ser2net sends a message to a second client, and we show it, unless the following reset arrives first.
    let busy = open(&url).err().unwrap();
    assert!(busy.contains("in use") || busy.contains("another client uses it"), "{busy}");
    // The settings of another program pass through the port, followed by its data.
    let wanted = SerialSettings { baud: 57_600, parity: Parity::Odd, ..SerialSettings::default() };
    let port = link.port_control().unwrap();
    assert_eq!(port.configure(&wanted).unwrap(), wanted);
    assert_eq!(port.settings().unwrap(), wanted);
    assert_eq!(plug.settings(), wanted);
    assert!(port.modem_lines().is_some() && port.uart_errors().is_some());
    port.set_signal(OutputSignal::Dtr, false).unwrap();
    port.purge(PurgeTarget::Both).unwrap();
    all_values_come_back(&mut *link);
}

#[test]
fn one_half_sets_while_the_other_receives() {
    let plug = Plug::new();
    let ser2net = Ser2net::start("telnet(rfc2217),tcp", &plug.path(), free_port());
    let mut link = open(&format!("rfc2217://127.0.0.1:{}", ser2net.port)).unwrap();
    let mut half = link.second_handle().unwrap();
    thread::scope(|scope| {
        let received = scope.spawn(move || {
            let mut bytes = [0; 10];
            let length = half.receive(&mut bytes, PATIENCE).unwrap();
            bytes[..length].to_vec()
        });
        for baud in [1200, 115_200, 300] {
            let wanted = SerialSettings { baud, ..SerialSettings::default() };
            assert_eq!(link.port_control().unwrap().configure(&wanted).unwrap(), wanted);
            assert_eq!(plug.settings(), wanted);
        }
        link.send(b"\xff", PATIENCE).unwrap();
        assert_eq!(received.join().unwrap(), b"\xff");
    });
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
fn pyserials_server_applies_the_settings_of_the_url() {
    let mut python = python(&["-c", PORT_MANAGER]);
    let mut lines = BufReader::new(python.0.stdout.take().unwrap()).lines();
    let port: u16 = lines.next().unwrap().unwrap().parse().unwrap();
    let mut link =
        open(&format!("rfc2217://127.0.0.1:{port}?baud=115200&data=7&parity=even&stop=2")).unwrap();
    assert_eq!(link.facts()["line_granted"], "115200 7E2");
    all_values_come_back(&mut *link);
    // A later reply means a later receipt.
    let port = link.port_control().unwrap();
    port.set_signal(OutputSignal::Dtr, false).unwrap();
    let wanted = SerialSettings { baud: 57_600, ..port.settings().unwrap() };
    assert_eq!(port.configure(&wanted).unwrap(), wanted);
    drop(link);
    assert_eq!(lines.next().unwrap().unwrap(), "57600 E 7 2 False");
}
