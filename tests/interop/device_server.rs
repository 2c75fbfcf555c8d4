//! The lab's device server and clients of other people.

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering::Relaxed;

use rustix::process::Signal;

use crate::device::{Device, all_bytes, client, counters, gone, is_set, serve, serve_controlled, works};
use crate::program::Running;
use crate::tools::passes;

#[test]
fn pyserial_on_a_raw_port() {
    let device = Device::new();
    let server = serve(&[&device], |_| {});
    let script = "import serial, sys\n\
        port = serial.serial_for_url(sys.argv[1], timeout=30)\n\
        port.write(bytes(range(256)))\n\
        assert port.read(256) == bytes(range(256))\n\
        port.close()\n";
    let place = format!("socket://{}", server.endpoints()[0].address());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let received = device.hear(256);
            assert_eq!(received, all_bytes());
            device.say(&received);
        });
        passes(script, &[&place]);
    });
    assert_eq!(gone(&server), "it closed the link");
}

#[test]
fn a_client_that_is_killed_frees_the_port() {
    let device = Device::new();
    let server = serve(&[&device], |_| {});
    for signal in [Signal::KILL, Signal::TERM] {
        let socat = Command::new("/usr/bin/socat")
            .args(["-T", "30", "STDIO", &format!("TCP:{}", server.endpoints()[0].address())])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("socat is needed for this test: apt-get install socat");
        let mut socat = Running(socat);
        socat.0.stdin.as_mut().unwrap().write_all(b"question").unwrap();
        assert_eq!(device.hear(8), b"question");
        device.say(b"answer");
        let mut reply = [0; 6];
        socat.0.stdout.as_mut().unwrap().read_exact(&mut reply).unwrap();
        assert_eq!(&reply, b"answer");
        socat.signal(signal);
        socat.wait();
        works(&mut client(&server, 0), &device);
    }
    assert_eq!(counters(&server, 0).refused.load(Relaxed), 0);
}

#[test]
fn pyserial_controls_a_port() {
    let device = Device::new();
    let server = serve_controlled(&device);
    // It checks each reply itself: the value must be exactly the requested one.
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
    let place = format!("rfc2217://{}", server.endpoints()[0].address());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let received = device.hear(256);
            assert_eq!(received, all_bytes());
            is_set(&device, "115200");
            device.say(&received);
            for settings in ["75,8N1", "250000,8O2", "4000000,8M1", "65535,8S2", "65535,8S2,rtscts"] {
                assert_eq!(device.hear(3), if settings.ends_with("rtscts") { b"end" } else { b"set" });
                assert_eq!(device.settings(), settings.parse().unwrap());
                device.say(b"ok");
            }
        });
        passes(script, &[&place]);
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
    let received = device.hear(9);
    assert_eq!(received[..8], *b"question", "{received:?}");
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
