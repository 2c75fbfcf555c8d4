//! A device server of the lab with a device on each of its lines, and clients of it.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use linkgauge::endpoint::Endpoint;
use linkgauge::lab::device_server::{DeviceServer, DeviceServerEvent, DeviceServerOptions, PortCounters};
use linkgauge::link::serial_line::{self, SerialSettings};
use linkgauge::system::{Pty, PtyPacket};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::program::{PATIENCE, wait_until};

/// The device at the other end of a serial port.
pub struct Device(Pty);

impl Device {
    pub fn new() -> Device {
        Device(Pty::open().unwrap())
    }

    /// The settings of the program at the other end.
    pub fn settings(&self) -> SerialSettings {
        self.0.settings().unwrap()
    }

    pub fn endpoint(&self) -> Endpoint {
        serial_line::port_endpoint(&self.0.path, &SerialSettings::default()).unwrap()
    }

    /// Sends as many bytes as the line accepts now.
    pub fn say_some(&self, bytes: &[u8]) -> usize {
        match rustix::io::write(&self.0.master, bytes) {
            Err(Errno::AGAIN) => 0,
            done => done.unwrap(),
        }
    }

    pub fn say(&self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            self.wait(PollFlags::OUT, "room on the line");
            bytes = &bytes[self.say_some(bytes)..];
        }
    }

    /// The next `length` bytes.
    pub fn hear(&self, length: usize) -> Vec<u8> {
        let mut received = Vec::new();
        while received.len() < length {
            self.hear_some(&mut received);
        }
        received
    }

    pub fn hear_until(&self, end: &[u8]) {
        let mut received = Vec::new();
        while !received.ends_with(end) {
            self.hear_some(&mut received);
        }
    }

    fn hear_some(&self, received: &mut Vec<u8>) {
        let mut room = [0; 4096];
        self.wait(PollFlags::IN, "bytes from the line");
        match rustix::io::read(&self.0.master, &mut room) {
            Ok(count) => received.extend(PtyPacket::parse(&room[..count]).data()),
            Err(Errno::AGAIN) => {}
            Err(error) => panic!("{error}"),
        }
    }

    fn wait(&self, flags: PollFlags, what: &str) {
        let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
        let ready = poll(&mut [PollFd::new(&self.0.master, flags)], Some(&patience)).unwrap();
        assert!(ready > 0, "{what} did not come");
    }
}

pub fn all_bytes() -> Vec<u8> {
    (0..=255).collect()
}

/// A box with one port for each device.
pub fn serve(devices: &[&Device], change: impl FnOnce(&mut DeviceServerOptions)) -> DeviceServer {
    let serial = devices.iter().map(|device| device.endpoint()).collect();
    let mut options = DeviceServerOptions::new("tcp://127.0.0.1:0".parse().unwrap(), serial);
    change(&mut options);
    DeviceServer::start(&options).unwrap_or_else(|error| panic!("{error}"))
}

pub fn client(server: &DeviceServer, port: usize) -> TcpStream {
    let stream = TcpStream::connect(server.endpoints()[port].address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

pub fn read(stream: &mut TcpStream, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).unwrap();
    bytes
}

/// Whether the remote closed, now or soon, without sending anything.
pub fn is_closed(stream: &mut TcpStream) -> bool {
    match stream.read(&mut [0]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

/// A round trip in each direction through a port.
pub fn works(stream: &mut TcpStream, device: &Device) {
    stream.write_all(b"question").unwrap();
    assert_eq!(device.hear(8), b"question");
    device.say(b"answer");
    assert_eq!(read(stream, 6), b"answer");
}

pub fn counters(server: &DeviceServer, port: usize) -> &PortCounters {
    server.counters().nth(port).unwrap()
}

/// The next event of the kind that is looked for.
pub fn event<T>(server: &DeviceServer, what: &str, wanted: impl Fn(&DeviceServerEvent) -> Option<T>) -> T {
    wait_until(what, || server.events().find_map(|event| wanted(&event)))
}

pub fn gone(server: &DeviceServer) -> String {
    event(server, "the end of a session", |event| match event {
        DeviceServerEvent::Disconnected { why, .. } => Some(why.clone()),
        _ => None,
    })
}

/// A port that speaks RFC 2217.
pub fn serve_controlled(device: &Device) -> DeviceServer {
    serve(&[device], |options| options.rfc2217 = true)
}

/// Waits until the port is set like this.
pub fn is_set(device: &Device, wanted: &str) {
    let wanted: SerialSettings = wanted.parse().unwrap();
    wait_until("the settings", || (device.settings() == wanted).then_some(()));
}
