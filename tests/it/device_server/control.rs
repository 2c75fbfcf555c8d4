//! Ports that clients control in their stream (RFC 2217): pyserial, a plain terminal, our own link, and mischief.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use linkgauge::clock::Clock;
use linkgauge::lab::device_server::DeviceServer;
use linkgauge::link::Dialer;
use linkgauge::link::line::Settings;

use super::{Device, all_bytes, client, gone, python, read, serve};
use crate::program::{PATIENCE, Running, wait_until};

/// A port that speaks RFC 2217.
fn serve_controlled(device: &Device) -> DeviceServer {
    serve(&[device], |options| options.rfc2217 = true)
}

/// Waits until the port is set like this.
fn is_set(device: &Device, wanted: &str) {
    let wanted: Settings = wanted.parse().unwrap();
    wait_until("the settings", || (device.0.settings().unwrap() == wanted).then_some(()));
}

#[test]
fn pyserial_controls_a_port() {
    let device = Device::new();
    let server = serve_controlled(&device);
    // It checks each answer itself: the value has to be exactly the one it asked for.
    let script = r#"import serial, sys
port = serial.serial_for_url(sys.argv[1], baudrate=115200, timeout=30)
assert port.cts and port.dsr and port.cd and not port.ri
port.write(bytes(range(256)))
assert port.read(256) == bytes(range(256))
for baud, parity, stop in [(75, 'N', 1), (250000, 'O', 2), (4000000, 'M', 1), (65535, 'S', 2)]:
    port.baudrate, port.parity, port.stopbits = baud, parity, stop
    port.write(b'set')
    assert port.read(2) == b'ok'
port.rtscts = True
port.dtr = False
port.rts = True
port.send_break(0.01)
port.reset_input_buffer()
port.reset_output_buffer()
port.write(b'end')
assert port.read(2) == b'ok'
port.close()
"#;
    let place = format!("rfc2217://{}", server.endpoints()[0].place());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let heard = device.hear(256);
            assert_eq!(heard, all_bytes());
            is_set(&device, "115200");
            device.say(&heard);
            for settings in ["75,8N1", "250000,8O2", "4000000,8M1", "65535,8S2", "65535,8S2,rtscts"] {
                assert_eq!(device.hear(3), if settings.ends_with("rtscts") { b"end" } else { b"set" });
                assert_eq!(device.0.settings().unwrap(), settings.parse().unwrap());
                device.say(b"ok");
            }
        });
        python(script, &[&place]);
    });
    assert_eq!(gone(&server), "it closed the link");
    is_set(&device, "9600");
}

#[test]
fn a_plain_terminal_works_on_a_controlled_port() {
    let device = Device::new();
    let server = serve_controlled(&device);
    let (_, port) = server.endpoints()[0].host_port().unwrap();
    let port = port.unwrap().to_string();
    let telnet = Command::new("timeout")
        .args(["30", "inetutils-telnet", "127.0.0.1", &port])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("telnet is needed for this test: apt-get install inetutils-telnet");
    let mut telnet = Running(telnet);
    telnet.0.stdin.as_mut().unwrap().write_all(b"question\n").unwrap();
    let heard = device.hear(9);
    assert_eq!(heard[..8], *b"question", "{heard:?}");
    device.say(b"an\xffswer");
    let mut shown = Vec::new();
    let mut stdout = telnet.0.stdout.take().unwrap();
    while !shown.ends_with(b"an\xffswer") {
        let mut room = [0; 100];
        let count = stdout.read(&mut room).unwrap();
        assert!(count > 0, "{}", shown.escape_ascii());
        shown.extend(&room[..count]);
    }
}

/// What a Telnet client says of the option for serial ports.
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
fn a_client_that_wants_no_data_for_now_gets_it_later() {
    let device = Device::new();
    let server = serve_controlled(&device);
    let mut client = client(&server, 0);
    client.write_all(&[WILL_CONTROL, &command(8, &[]), &command(0, &[])].concat()).unwrap();
    let greeting = read_until(&mut client, &[0xFF, 0xF0]);
    assert!(greeting.windows(2).any(|pair| pair == [0xFD, 44]), "{greeting:?}");
    // Its question is answered, and the data waits.
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
    // One that wants none and goes is no obstacle to the next.
    client.write_all(&command(8, &[])).unwrap();
    device.say(b"lost");
    drop(client);
    let mut next = self::client(&server, 0);
    next.write_all(&[WILL_CONTROL, &command(0, &[]), b"?"].concat()).unwrap();
    read_until(&mut next, &signature);
    assert_eq!(device.hear(1), b"?");
}

#[test]
fn settings_in_the_middle_of_data_cost_none_of_it() {
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
    let place = server.links()[0].place().to_owned();
    let url = format!("rfc2217://{place}?baud=19200&parity=odd&stop=2");
    let mut link = Dialer::new(Clock::System).open(&url.parse().unwrap()).unwrap();
    is_set(&device, "19200,8O2");
    link.send(&all_bytes(), PATIENCE).unwrap();
    assert_eq!(device.hear(256), all_bytes());
    let port = link.port().unwrap();
    let wanted = "57600,8N1,rtscts".parse().unwrap();
    assert_eq!(port.set(&wanted).unwrap(), wanted);
    assert!(port.modem().unwrap().cts);
    is_set(&device, "57600,8N1,rtscts");
    drop(link);
    is_set(&device, "9600");
}
