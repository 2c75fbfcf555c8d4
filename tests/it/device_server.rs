//! The device server between serial lines and clients: quick, slow, many, vanished.

mod control;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use linkgauge::Registry;
use linkgauge::clock::Clock;
use linkgauge::endpoint::Endpoint;
use linkgauge::lab::device_server::{
    BusyPolicy, DeviceServer, DeviceServerEvent, DeviceServerOptions, TransferCosts,
};
use linkgauge::lab::packing::{DelimiterProcess, PackingRules};
use linkgauge::lab::uart::{LabUarts, UartOptions};
use linkgauge::link::serial_line::{self, SerialSettings};
use rustix::process::Signal;

use crate::device::{Device, all_bytes, client, counters, event, gone, is_closed, read, serve, works};
use crate::program::{PATIENCE, Running, run, wait_until};
use crate::raw_client::address;

#[test]
fn every_byte_passes_in_both_directions_on_every_port() {
    let devices = [Device::new(), Device::new(), Device::new()];
    let server = serve(&devices.each_ref(), |_| {});
    let mut clients: Vec<_> = (0..3).map(|port| client(&server, port)).collect();
    for (number, (client, device)) in clients.iter_mut().zip(&devices).enumerate() {
        let bytes = [all_bytes(), vec![number as u8; 3000]].concat();
        client.write_all(&bytes).unwrap();
        assert!(device.hear(bytes.len()) == bytes, "to line {number}");
        device.say(&bytes);
        assert!(read(client, bytes.len()) == bytes, "from line {number}");
        let passed = || counters(&server, number).to_line.load(Relaxed) == bytes.len() as u64;
        wait_until("the count", || passed().then_some(()));
    }
}

#[test]
fn ports_are_counted_up_from_the_first() {
    let devices = [Device::new(), Device::new(), Device::new()];
    let directory = tempfile::tempdir().unwrap();
    let base: Endpoint = format!("unix://{}/port1", directory.path().display()).parse().unwrap();
    let server = serve(&devices.each_ref(), |options| options.listen = base.clone());
    let expected: Vec<_> = (0..3).map(|n| base.with_number_offset(n).unwrap()).collect();
    assert_eq!(server.endpoints(), expected);
}

#[test]
fn our_own_link_to_a_declared_line() {
    let device = Device::new();
    let server = serve(&[&device], |_| {});
    let url = format!("{}?baud=115200&parity=even", server.endpoints()[0]);
    let dialer = Registry::standard().dialer(Clock::System);
    let mut link = dialer.open(&url.parse().unwrap()).unwrap();
    assert_eq!(link.caps().link_rate.unwrap().bits_per_byte, 11.0);
    assert_eq!(link.send(b"question", PATIENCE).unwrap(), 8);
    assert_eq!(device.hear(8), b"question");
    device.say(b"answer");
    let mut reply = [0; 100];
    let length = link.receive(&mut reply, PATIENCE).unwrap();
    assert_eq!(&reply[..length], b"answer");
}

/// Bytes that identify their position.
fn pattern(length: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(1);
    (0..length).map(|_| random.u8(..)).collect()
}

#[test]
fn a_client_that_does_not_read_blocks_the_line_and_loses_nothing() {
    let devices = [Device::new(), Device::new()];
    // Small buffers, so that they are full soon.
    let server = serve(&devices.each_ref(), |options| {
        options.listen = "tcp://127.0.0.1:0?sndbuf=32k".parse().unwrap();
    });
    let mut lazy = client(&server, 0);
    rustix::net::sockopt::set_socket_recv_buffer_size(&lazy, 32_768).unwrap();
    let bytes = pattern(4 << 20);
    let (mut sent, mut moved) = (0, Instant::now());
    while moved.elapsed() < Duration::from_millis(500) {
        let taken = devices[0].say_some(&bytes[sent..]);
        if taken == 0 {
            std::thread::sleep(Duration::from_millis(1));
        } else {
            sent += taken;
            moved = Instant::now();
        }
    }
    assert!(sent < bytes.len(), "the line was never held up");
    assert!(sent > 0);
    // Its data still goes to the line, and the other port has not noticed.
    lazy.write_all(b"patience").unwrap();
    assert_eq!(devices[0].hear(8), b"patience");
    works(&mut client(&server, 1), &devices[1]);
    std::thread::scope(|scope| {
        scope.spawn(|| devices[0].say(&bytes[sent..]));
        assert!(read(&mut lazy, bytes.len()) == bytes, "lost, changed or out of order");
    });
}

#[test]
#[ignore = "long"]
fn a_blocked_line_blocks_the_client_and_loses_nothing() {
    let device = Device::new();
    let server = serve(&[&device], |_| {});
    let mut client = client(&server, 0);
    let bytes = pattern(1 << 20);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            client.write_all(&bytes).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
        });
        std::thread::sleep(Duration::from_millis(300));
        assert!(counters(&server, 0).to_line.load(Relaxed) < bytes.len() as u64);
        assert!(device.hear(bytes.len()) == bytes, "lost, changed or out of order");
    });
    // It had closed long before the line took the last byte.
    assert_eq!(gone(&server), "it closed the link");
}

#[test]
fn a_blocked_line_does_not_reserve_the_port_for_a_dead_client() {
    let device = Device::new();
    let server = serve(&[&device], |_| {});
    let mut first = client(&server, 0);
    // More than a line holds that is held up, less than the network holds: its end must get through.
    first.write_all(&[0; 60_000]).unwrap();
    drop(first);
    assert_eq!(gone(&server), "it closed the link, and the line did not take what it had sent");
    drop(client(&server, 0));
}

#[test]
fn a_second_client_is_refused_until_the_first_has_gone() {
    let device = Device::new();
    let server = serve(&[&device], |_| {});
    let mut first = client(&server, 0);
    works(&mut first, &device);
    assert!(is_closed(&mut client(&server, 0)));
    works(&mut first, &device);
    assert_eq!(counters(&server, 0).refused.load(Relaxed), 1);
    // At once is at once: not one of those that come next finds the port taken by the one before.
    for _ in 0..20 {
        drop(first);
        first = client(&server, 0);
        works(&mut first, &device);
    }
    assert_eq!(counters(&server, 0).refused.load(Relaxed), 1);
    assert_eq!(counters(&server, 0).sessions.load(Relaxed), 21);
}

#[test]
fn a_new_client_replaces_the_first_if_configured() {
    let device = Device::new();
    let server = serve(&[&device], |options| options.busy_policy = BusyPolicy::Replace);
    let mut first = client(&server, 0);
    works(&mut first, &device);
    let mut second = client(&server, 0);
    works(&mut second, &device);
    assert!(is_closed(&mut first));
    assert_eq!(gone(&server), "it had to make room");
}

#[test]
fn clients_that_share_a_port_all_receive_the_data_of_the_line() {
    let device = Device::new();
    let server = serve(&[&device], |options| options.max_clients = 3);
    let mut clients: Vec<_> = (0..3).map(|_| client(&server, 0)).collect();
    for client in &mut clients {
        client.write_all(b"!").unwrap();
    }
    assert_eq!(device.hear(3), b"!!!");
    assert!(is_closed(&mut client(&server, 0)));
    device.say(b"to all of you");
    for client in &mut clients {
        assert_eq!(read(client, 13), b"to all of you");
    }
}

#[test]
fn bytes_without_a_client_are_dropped_and_counted() {
    let device = Device::new();
    let server = serve(&[&device], |_| {});
    device.say(b"is a client here?");
    wait_until("the bytes", || (counters(&server, 0).unclaimed.load(Relaxed) == 17).then_some(()));
    let mut client = client(&server, 0);
    works(&mut client, &device);
    assert_eq!(counters(&server, 0).unclaimed.load(Relaxed), 17);
}

#[test]
fn packed_bytes_of_one_client_are_not_sent_to_the_next() {
    let device = Device::new();
    let server = serve(&[&device], |options| {
        options.packing = PackingRules { packet_bytes: 6, ..PackingRules::default() }
    });
    let mut first = client(&server, 0);
    works(&mut first, &device);
    device.say(b"half");
    wait_until("the bytes", || (counters(&server, 0).from_line.load(Relaxed) == 10).then_some(()));
    drop(first);
    gone(&server);
    works(&mut client(&server, 0), &device);
    assert_eq!(counters(&server, 0).unclaimed.load(Relaxed), 4);
}

#[test]
fn packets_leave_by_the_rules_and_never_too_early() {
    const WAIT: Duration = Duration::from_millis(100);
    let rules = [
        PackingRules { inter_character_timeout: WAIT, ..PackingRules::default() },
        PackingRules { force_transmit_after: WAIT, ..PackingRules::default() },
        // The delimiter does not come.
        PackingRules { force_transmit_after: WAIT, delimiter: b"\n".to_vec(), ..PackingRules::default() },
    ];
    for packing in rules {
        let device = Device::new();
        let server = serve(&[&device], |options| options.packing = packing.clone());
        let mut client = client(&server, 0);
        works(&mut client, &device);
        let began = Instant::now();
        device.say(b"late");
        assert_eq!(read(&mut client, 4), b"late");
        assert!(began.elapsed() >= WAIT, "{packing:?}");
    }
    let device = Device::new();
    let server = serve(&[&device], |options| {
        options.packing = PackingRules {
            delimiter: b"\r\n".to_vec(),
            delimiter_process: DelimiterProcess::Strip,
            ..PackingRules::default()
        };
    });
    let mut client = client(&server, 0);
    wait_until("a client", || (counters(&server, 0).sessions.load(Relaxed) == 1).then_some(()));
    device.say(b"one\r\ntwo\r");
    device.say(b"\n...");
    assert_eq!(read(&mut client, 6), b"onetwo");
}

#[test]
fn a_slow_device_is_never_faster_than_configured() {
    const BUDGET: Duration = Duration::from_millis(30);
    let devices = [Device::new(), Device::new()];
    let server = serve(&devices.each_ref(), |options| options.costs.transfer_time = BUDGET);
    let began = Instant::now();
    std::thread::scope(|scope| {
        for (port, device) in devices.iter().enumerate() {
            let mut client = client(&server, port);
            scope.spawn(move || (0..3).for_each(|_| works(&mut client, device)));
        }
    });
    // Two ports, three round trips, two transfers each, one processor.
    assert!(began.elapsed() >= 12 * BUDGET, "{:?}", began.elapsed());

    drop(server);
    const POLL: Duration = Duration::from_millis(50);
    let server = serve(&devices.each_ref(), |options| options.costs.poll_interval = POLL);
    let mut client = client(&server, 1);
    works(&mut client, &devices[1]);
    let began = Instant::now();
    (0..4).for_each(|_| works(&mut client, &devices[1]));
    // The two transfers of one round trip may fall on the same point of the grid, but the next ones cannot.
    assert!(began.elapsed() >= 3 * POLL, "{:?}", began.elapsed());
}

/// The silence that shows the end of a transmission takes 40 ms at 300 baud. A box that recognises it only then misses
/// the next poll.
#[test]
fn a_slow_device_takes_part_in_the_poll_after_the_last_character() {
    const POLL: Duration = Duration::from_millis(100);
    let uarts = LabUarts::start(&UartOptions::default()).unwrap();
    let line = SerialSettings { baud: 300, ..SerialSettings::default() };
    let serial = uarts.paths().iter().map(|path| serial_line::port_endpoint(path, &line).unwrap()).collect();
    let server = DeviceServer::start(&DeviceServerOptions {
        costs: TransferCosts {
            poll_interval: POLL,
            transfer_time: Duration::from_millis(30),
            block_bytes: 512,
            ..TransferCosts::default()
        },
        ..DeviceServerOptions::new("tcp://127.0.0.1:0".parse().unwrap(), serial)
    })
    .unwrap();
    let mut client = client(&server, 0);
    let mut round_trip = || {
        let began = Instant::now();
        client.write_all(b"x").unwrap();
        assert_eq!(read(&mut client, 1), b"x");
        began.elapsed()
    };
    // The first one begins between two polls.
    round_trip();
    let best = (0..6).map(|_| round_trip()).min().unwrap();
    assert!(best < 5 * POLL / 2, "two polls, not three: {best:?}");
}

#[test]
fn a_line_that_disappears_closes_its_port_and_no_other() {
    let (lost, stays) = (Device::new(), Device::new());
    let server = serve(&[&lost, &stays], |_| {});
    let (mut first, mut second) = (client(&server, 0), client(&server, 1));
    works(&mut first, &lost);
    works(&mut second, &stays);
    drop(lost);
    assert!(is_closed(&mut first));
    let line = event(&server, "the loss", |event| {
        matches!(event, DeviceServerEvent::PortLost { .. }).then(|| event.to_string())
    });
    assert_eq!(line, "port 1: closed: its line has disappeared. Check whether the adapter is plugged in");
    wait_until("a closed listener", || {
        TcpStream::connect(address(&server.endpoints()[0])).is_err().then_some(())
    });
    works(&mut second, &stays);
    assert_eq!(server.open_ports(), 1);
    assert!(
        !server.events().any(|event| matches!(event, DeviceServerEvent::PortLost { .. })),
        "it is reported once"
    );
}

#[test]
fn clients_that_come_and_go_do_no_harm() {
    let device = Device::new();
    let server = serve(&[&device], |_| {});
    let place = address(&server.endpoints()[0]);
    std::thread::scope(|scope| {
        for number in 0..256 {
            scope.spawn(move || {
                for round in 0..4 {
                    let Ok(mut stream) = TcpStream::connect(place) else { continue };
                    // Whether it had a place is not its fault.
                    let _ = stream.write(&[b'x'; 10]);
                    if (number + round) % 2 == 0 {
                        // With bytes unread, or with a reset.
                        let _ = rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO));
                    }
                }
            });
        }
    });
    let mut last = wait_until("a place", || {
        let mut stream = client(&server, 0);
        stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        (!is_closed(&mut stream)).then_some(stream)
    });
    last.write_all(b"question").unwrap();
    device.hear_until(b"question");
    works(&mut last, &device);
    assert_eq!(server.open_ports(), 1);
}

#[test]
fn an_unusable_port_is_one_line_and_status_2() {
    let device = Device::new();
    let endpoint = device.endpoint();
    let serial = endpoint.as_str();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = format!("tcp://{}", taken.local_addr().unwrap());
    let cases: [(&[&str], &str); 7] = [
        (&["--serial", "/dev/no-such-port"], ": no such serial port"),
        (&["--serial", "/dev/null"], ": this is not a serial port"),
        (&["--serial", "ttyS0"], "'ttyS0' is not a serial port. Write its absolute path, like /dev/ttyS0"),
        (&["--serial", serial, "--listen", &place], "another program uses it"),
        (&["--serial", serial, "--listen", "udp://127.0.0.1:0"], "a device server needs a stream"),
        (&["--serial", serial, "--length", "2k"], "packets of 2000 bytes do not fit in a buffer of 1024"),
        (
            &["--serial", serial, serial, "--ports", "3"],
            "--ports 3, but --serial names 2. Use only one of them",
        ),
    ];
    for (arguments, expected) in cases {
        let ended = run(&[&["lab", "device-server", "--time", "5s"], arguments].concat());
        assert_eq!(ended.status, Some(2), "{arguments:?}: {}{}", ended.stdout, ended.stderr);
        assert!(ended.stderr.contains(expected), "{arguments:?}: {}", ended.stderr);
        assert_eq!(ended.stderr.lines().count(), 1, "{arguments:?}: {}", ended.stderr);
        assert_eq!(ended.stdout, "");
    }
}

#[test]
fn the_program_reports_events_and_ends_on_a_signal() {
    let devices = [Device::new(), Device::new()];
    let serial = devices.each_ref().map(|device| device.endpoint().to_string());
    let begin = ["lab", "device-server", "--listen", "tcp://127.0.0.1:0", "--serial", &serial[0], &serial[1]];
    let mut process = Running::start(&begin);
    let mut stdout = std::io::BufReader::new(process.0.stdout.take().unwrap());
    let mut endpoint = |serial: &str| -> Endpoint {
        let mut line = String::new();
        std::io::BufRead::read_line(&mut stdout, &mut line).unwrap();
        let serial = Endpoint::address(&serial.parse().unwrap()).to_owned();
        let place = line.trim().strip_prefix(&format!("serving {serial} (9600 8N1) on ")).expect(&line);
        place.parse().unwrap()
    };
    let endpoints = serial.each_ref().map(|serial| endpoint(serial));
    let mut stream = TcpStream::connect(address(&endpoints[1])).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    works(&mut stream, &devices[1]);
    process.signal(Signal::INT);
    assert_eq!(process.wait().code(), Some(0));
    let mut printed = String::new();
    process.0.stderr.take().unwrap().read_to_string(&mut printed).unwrap();
    let from = stream.local_addr().unwrap();
    let expected =
        format!("port 2: {from} connected\nserved 1 session, refused 0; 8 B to the lines, 6 B from them\n");
    assert_eq!(printed, expected);

    // The command ends when no port is left.
    let begin = ["lab", "device-server", "--listen", "tcp://127.0.0.1:0", "--serial", &serial[0]];
    let mut process = Running::start(&begin);
    process.0.stdout.as_mut().unwrap().read_exact(&mut [0; 7]).unwrap();
    drop(devices);
    let ended = process.ended();
    assert_eq!(ended.status, Some(2));
    let expected = "port 1: closed: its line has disappeared. Check whether the adapter is plugged in\n\
        error: all serial ports have failed\n";
    assert_eq!(ended.stderr, expected);
}
