//! Ports that clients control in their stream (RFC 2217): our own link, and clients that send garbage.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use linkgauge::Registry;
use linkgauge::clock::Clock;

use crate::device::{Device, all_bytes, client, gone, is_set, read, serve_controlled};
use crate::program::PATIENCE;

/// The Telnet offer of a client for the serial port option.
const WILL_CONTROL: &[u8] = &[0xFF, 0xFB, 44];

fn command(code: u8, value: &[u8]) -> Vec<u8> {
    [&[0xFF, 0xFA, 44, code], value, &[0xFF, 0xF0]].concat()
}

/// Reads until these bytes have come; everything that came.
fn read_until(stream: &mut TcpStream, end: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    while !bytes.ends_with(end) {
        bytes.extend(read(stream, 1));
    }
    bytes
}

#[test]
fn a_suspended_client_gets_its_data_later() {
    let device = Device::new();
    let server = serve_controlled(&device);
    let mut client = client(&server, 0);
    client.write_all(&[WILL_CONTROL, &command(8, &[]), &command(0, &[])].concat()).unwrap();
    let greeting = read_until(&mut client, &[0xFF, 0xF0]);
    assert!(greeting.windows(2).any(|pair| pair == [0xFD, 44]), "{greeting:?}");
    // Its request gets a reply, and the data waits.
    let signature = command(100, linkgauge::run::TOOL.as_bytes());
    if !greeting.ends_with(&signature) {
        read_until(&mut client, &signature);
    }
    device.say(b"patience");
    client.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    assert_eq!(client.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(&command(9, &[])).unwrap();
    assert_eq!(read(&mut client, 8), b"patience");
    // A client that suspends the data and leaves does not block the next.
    client.write_all(&command(8, &[])).unwrap();
    device.say(b"lost");
    drop(client);
    let mut next = self::client(&server, 0);
    next.write_all(&[WILL_CONTROL, &command(0, &[]), b"?"].concat()).unwrap();
    read_until(&mut next, &signature);
    assert_eq!(device.hear(1), b"?");
}

#[test]
fn settings_in_the_middle_of_data_lose_none_of_it() {
    let device = Device::new();
    let server = serve_controlled(&device);
    let mut client = client(&server, 0);
    let fast = command(1, &115_200u32.to_be_bytes());
    let slow = command(1, &300u32.to_be_bytes());
    client.write_all(&[WILL_CONTROL, b"one", &fast, b"two", &slow, b"three"].concat()).unwrap();
    assert_eq!(device.hear(11), b"onetwothree");
    read_until(&mut client, &command(101, &300u32.to_be_bytes()));
    is_set(&device, "300");
    drop(client);
    is_set(&device, "9600");
}

#[test]
fn garbage_after_an_escape_ends_nothing() {
    let device = Device::new();
    let server = serve_controlled(&device);
    let mut client = client(&server, 0);
    let mut random = fastrand::Rng::with_seed(3);
    for _ in 0..2000 {
        let mut bytes: Vec<u8> = (0..random.usize(1..30)).map(|_| random.u8(230..)).collect();
        bytes[0] = 0xFF;
        client.write_all(&bytes).unwrap();
        client.set_nonblocking(true).unwrap();
        while client.read(&mut [0; 4096]).is_ok_and(|count| count > 0) {}
        client.set_nonblocking(false).unwrap();
    }
    drop(client);
    gone(&server);
    is_set(&device, "9600");
    let mut next = self::client(&server, 0);
    next.write_all(&[WILL_CONTROL, &command(0, &[])].concat()).unwrap();
    read_until(&mut next, &command(100, linkgauge::run::TOOL.as_bytes()));
}

#[test]
fn our_own_link_controls_a_port() {
    let device = Device::new();
    let server = serve_controlled(&device);
    let place = server.link_endpoints()[0].address().to_owned();
    let url = format!("rfc2217://{place}?baud=19200&parity=odd&stop=2");
    let mut link = Registry::standard().dialer(Clock::System).open(&url.parse().unwrap()).unwrap();
    is_set(&device, "19200,8O2");
    link.send(&all_bytes(), PATIENCE).unwrap();
    assert_eq!(device.hear(256), all_bytes());
    let port = link.port_control().unwrap();
    let wanted = "57600,8N1,rtscts".parse().unwrap();
    assert_eq!(port.configure(&wanted).unwrap(), wanted);
    assert!(port.modem_lines().unwrap().cts);
    is_set(&device, "57600,8N1,rtscts");
    drop(link);
    is_set(&device, "9600");
}
