//! The lab UART as programs meet it: our own links, and its command line.

use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use linkgauge::Registry;
use linkgauge::clock::Clock;
use linkgauge::endpoint::Endpoint;
use linkgauge::lab::uart::{
    CharacterTiming, DeliveryMode, FrameOverride, LabUarts, LineNoise, PortWiring, UartCounters, UartOptions,
};
use linkgauge::link::serial_line::{
    self, FlowControl, Parity, PurgeTarget, SerialSettings, StopBits, XOFF, XON,
};
use linkgauge::link::{Fault, Link};
use rustix::process::Signal;

use super::program::{self, Running, wait_until};

const LONG: Duration = Duration::from_secs(20);

/// Long enough for all data in flight to arrive, or to show that none arrives.
const SHORT: Duration = Duration::from_millis(300);

const FAST: SerialSettings = SerialSettings {
    baud: 1_000_000,
    data_bits: 8,
    parity: Parity::None,
    stop_bits: StopBits::One,
    flow_control: FlowControl::None,
};

fn start(options: UartOptions) -> LabUarts {
    LabUarts::start(&options).unwrap()
}

fn plug() -> LabUarts {
    start(UartOptions::default())
}

fn null_modem() -> LabUarts {
    start(UartOptions { wiring: PortWiring::NullModem, ..UartOptions::default() })
}

fn open(path: &Path, line: &SerialSettings) -> Box<dyn Link> {
    let endpoint: Endpoint = serial_line::port_endpoint(path, line).unwrap();
    Registry::standard().dialer(Clock::System).open(&endpoint).unwrap_or_else(|error| panic!("{error}"))
}

fn send(link: &mut dyn Link, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        bytes = &bytes[link.send(bytes, LONG).unwrap()..];
    }
}

/// Exactly this number of bytes.
fn receive(link: &mut dyn Link, count: usize) -> Vec<u8> {
    let mut got = vec![0; count];
    let mut length = 0;
    while length < count {
        length += link.receive(&mut got[length..], LONG).unwrap();
    }
    got
}

/// All bytes until the line is silent.
fn rest(link: &mut dyn Link) -> Vec<u8> {
    let mut all = Vec::new();
    let mut some = vec![0; 65_536];
    let until = Instant::now() + LONG;
    loop {
        assert!(Instant::now() < until, "it does not end");
        match link.receive(&mut some, SHORT) {
            Ok(length) => all.extend_from_slice(&some[..length]),
            Err(Fault::TimedOut) => return all,
            Err(fault) => panic!("{fault}"),
        }
    }
}

fn pattern(length: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(length as u64);
    (0..length).map(|_| random.u8(..)).collect()
}

/// Sends and receives at the same time.
fn round_trip(link: &mut dyn Link, bytes: &[u8]) -> Vec<u8> {
    let mut half = link.second_handle().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| send(&mut *half, bytes));
        receive(link, bytes.len())
    })
}

fn only(tallies: Vec<UartCounters>) -> UartCounters {
    let [tally] = &tallies[..] else { panic!("{} ends", tallies.len()) };
    tally.clone()
}

#[test]
fn a_plug_returns_everything_and_never_early() {
    let sent = pattern(2000);
    for (baud, stop, bits) in [(19_200, StopBits::One, 10), (115_200, StopBits::Two, 11)] {
        let uarts = plug();
        let mut link = open(&uarts.paths()[0], &SerialSettings { baud, stop_bits: stop, ..FAST });
        let began = Instant::now();
        let got = round_trip(&mut *link, &sent);
        let took = began.elapsed();
        assert!(got == sent, "{baud}");
        let line = Duration::from_secs_f64(2000.0 * f64::from(bits) / f64::from(baud));
        assert!(took >= line, "{took:?} instead of {line:?}");
        let tally = only(uarts.stop().unwrap());
        assert_eq!((tally.sent, tally.received, tally.overruns), (2000, 2000, 0));
        assert!(!tally.lateness.is_empty());
    }
}

#[test]
fn a_null_modem_joins_two_programs() {
    let uarts = null_modem();
    let paths = uarts.paths();
    let (mut one, mut other) = (open(&paths[0], &FAST), open(&paths[1], &FAST));
    let sent = pattern(5000);
    send(&mut *one, &sent);
    send(&mut *other, b"back");
    assert!(receive(&mut *other, 5000) == sent);
    assert_eq!(receive(&mut *one, 4), b"back");
    let tallies = uarts.stop().unwrap();
    assert_eq!([tallies[0].sent, tallies[0].received], [5000, 4]);
    assert_eq!([tallies[1].sent, tallies[1].received], [4, 5000]);
}

#[test]
fn ends_with_different_settings_get_garbage() {
    let uarts = null_modem();
    let paths = uarts.paths();
    let mut one = open(&paths[0], &FAST);
    let mut other = open(&paths[1], &SerialSettings { baud: 500_000, ..FAST });
    send(&mut *one, &[0x41; 100]);
    assert_ne!(receive(&mut *other, 100), [0x41; 100]);
    assert_eq!(uarts.stop().unwrap()[0].defects.framing, 100);
}

#[test]
fn without_flow_control_an_idle_reader_is_overrun() {
    let uarts = null_modem();
    let paths = uarts.paths();
    let (mut one, mut other) = (open(&paths[0], &FAST), open(&paths[1], &FAST));
    let sent = pattern(100_000);
    send(&mut *one, &sent);
    // The reader starts after all bytes were on the line.
    thread::sleep(FAST.transmission_time(130_000));
    let got = rest(&mut *other);
    let tally = &uarts.stop().unwrap()[1];
    assert_eq!(got.len() as u64 + tally.overruns, 100_000);
    assert!(tally.overruns > 10_000 && got[..] == sent[..got.len()], "{}", got.len());
    assert_eq!(tally.received, got.len() as u64);
}

#[test]
#[ignore = "long"]
fn with_flow_control_an_idle_reader_loses_nothing() {
    // Characters with an in-band meaning are left out; on wires they would not matter.
    let sent: Vec<u8> = pattern(100_000).into_iter().filter(|byte| ![XON, XOFF].contains(byte)).collect();
    for flow in [FlowControl::RtsCts, FlowControl::XonXoff] {
        for wiring in [PortWiring::Plug, PortWiring::NullModem] {
            let uarts = start(UartOptions { wiring, ..UartOptions::default() });
            let paths = uarts.paths();
            let line = SerialSettings { flow_control: flow, ..FAST };
            let mut one = open(&paths[0], &line);
            let mut other = match wiring {
                PortWiring::Plug => one.second_handle().unwrap(),
                PortWiring::NullModem => open(&paths[1], &line),
            };
            let got = thread::scope(|scope| {
                scope.spawn(|| send(&mut *one, &sent));
                // Longer than all of it would take.
                thread::sleep(Duration::from_millis(1500));
                receive(&mut *other, sent.len())
            });
            assert!(got == sent, "{flow:?} {wiring:?}");
            let overruns: u64 = uarts.stop().unwrap().iter().map(|tally| tally.overruns).sum();
            assert_eq!(overruns, 0, "{flow:?} {wiring:?}");
        }
    }
}

#[test]
fn flushed_characters_are_discarded() {
    let uarts = null_modem();
    let paths = uarts.paths();
    let slow = SerialSettings { baud: 9600, ..FAST };
    let (mut one, mut other) = (open(&paths[0], &slow), open(&paths[1], &slow));
    send(&mut *one, &[0x41; 2000]);
    receive(&mut *other, 10);
    one.port_control().unwrap().purge(PurgeTarget::ToSend).unwrap();
    let more = rest(&mut *other);
    assert!(more.len() < 1000, "{} of 2000 characters after a flush", more.len());
    send(&mut *one, b"end");
    assert_eq!(receive(&mut *other, 3), b"end");
    let sent = uarts.stop().unwrap()[0].sent;
    assert_eq!(sent, 10 + more.len() as u64 + 3);
}

#[test]
fn a_full_queue_can_be_flushed_too() {
    // At 75 baud all that is written waits for minutes.
    let uarts = plug();
    let mut link = open(&uarts.paths()[0], &SerialSettings { baud: 75, ..FAST });
    let mut written = 0;
    while let Ok(count) = link.send(&[0x41; 4096], SHORT) {
        written += count;
    }
    assert!(written > 4096, "{written}");
    link.port_control().unwrap().purge(PurgeTarget::ToSend).unwrap();
    // Nothing is left after the character on the line.
    link.port_control().unwrap().configure(&FAST).unwrap();
    wait_until("the last character", || (rest(&mut *link).is_empty()).then_some(()));
    send(&mut *link, b"end");
    assert_eq!(receive(&mut *link, 3), b"end");
}

#[test]
fn noise_is_counted_and_the_same_each_time() {
    let noisy = |seed| {
        let noise = LineNoise { bit_error_probability: 1e-3, breaks_per_second: 100.0, seed };
        let uarts = start(UartOptions { noise, ..UartOptions::default() });
        let mut link = open(&uarts.paths()[0], &SerialSettings { parity: Parity::Odd, ..FAST });
        send(&mut *link, &[0x55; 10_000]);
        (rest(&mut *link), only(uarts.stop().unwrap()))
    };
    let (got, tally) = noisy(3);
    let defects = tally.defects;
    assert_eq!(got.len() as u64, 10_000 - defects.lost);
    assert!(defects.lost > 0 && defects.framing > 0 && defects.parity > 0 && defects.breaks > 0);
    assert_eq!((noisy(3).0, noisy(3).1.defects), (got.clone(), defects));
    assert_ne!(noisy(4).0, got);
}

#[test]
fn unsupported_settings_of_a_pseudo_terminal_are_reported() {
    let frame = FrameOverride { data_bits: Some(7), parity: Some(Parity::Even) };
    let uarts = start(UartOptions { frame_override: frame, ..UartOptions::default() });
    let mut link = open(&uarts.paths()[0], &SerialSettings { baud: 9600, ..FAST });
    let began = Instant::now();
    let sent: Vec<u8> = (0..=255).collect();
    let got = round_trip(&mut *link, &sent);
    assert_eq!(got, sent.iter().map(|byte| byte & 0x7f).collect::<Vec<_>>());
    // 7E1 takes ten bits, as 8N1 does.
    assert!(began.elapsed() >= Duration::from_secs_f64(2560.0 / 9600.0));
}

#[test]
fn without_pacing_slow_lines_are_fast() {
    let uarts = start(UartOptions { timing: CharacterTiming::Immediate, ..UartOptions::default() });
    let mut link = open(&uarts.paths()[0], &SerialSettings { baud: 75, ..FAST });
    // At 75 baud it would take hours.
    let sent = pattern(100_000);
    assert!(round_trip(&mut *link, &sent) == sent);
    assert_eq!(only(uarts.stop().unwrap()).overruns, 0);
}

#[test]
fn a_latency_timer_delays_a_single_character() {
    let hand_over = DeliveryMode::Timer(Duration::from_millis(80));
    let uarts = start(UartOptions { delivery: hand_over, ..UartOptions::default() });
    let mut link = open(&uarts.paths()[0], &FAST);
    let began = Instant::now();
    for _ in 0..5 {
        send(&mut *link, b"a");
        receive(&mut *link, 1);
    }
    // Each reply restarts the timer, so the next one waits for its whole length.
    assert!(began.elapsed() >= 4 * Duration::from_millis(80), "{:?}", began.elapsed());
}

#[test]
fn many_ports_run_side_by_side() {
    let uarts = start(UartOptions { ports: 64, ..UartOptions::default() });
    let line = SerialSettings { baud: 57_600, flow_control: FlowControl::RtsCts, ..FAST };
    let mut links: Vec<_> = uarts.paths().iter().map(|path| open(path, &line)).collect();
    let sent: Vec<Vec<u8>> = (0..links.len()).map(|port| pattern(2000 + port)).collect();
    for (link, sent) in links.iter_mut().zip(&sent) {
        send(&mut **link, sent);
    }
    for (link, sent) in links.iter_mut().zip(&sent) {
        assert!(receive(&mut **link, sent.len()) == *sent);
    }
}

#[test]
fn the_command_prints_ports_and_totals() {
    let directory = tempfile::tempdir().unwrap();
    let link = directory.path().join("ttyV8");
    let flags = ["lab", "uart", "--ports", "2", "--null-modem", "--link", link.to_str().unwrap()];
    let mut running = Running::start(&flags);
    let names: Vec<_> = (8..12).map(|number| directory.path().join(format!("ttyV{number}"))).collect();
    wait_until("the links", || names.iter().all(|name| name.exists()).then_some(()));
    for name in &names {
        assert!(name.metadata().unwrap().file_type().is_char_device());
    }
    let (mut one, mut other) = (open(&names[2], &FAST), open(&names[3], &FAST));
    send(&mut *one, b"hello");
    assert_eq!(receive(&mut *other, 5), b"hello");
    drop((one, other));
    running.signal(Signal::INT);
    assert_eq!(running.wait().code(), Some(0));
    let ended = running.ended();
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    for (line, names) in lines.iter().zip(names.chunks(2)) {
        assert!(names.iter().all(|name| line.contains(name.to_str().unwrap())), "{line}");
    }
    assert!(ended.stderr.contains("5 sent, 0 received; 0 sent, 5 received"), "{}", ended.stderr);
    assert!(names.iter().all(|name| name.symlink_metadata().is_err()), "the links are still there");
}

#[test]
fn an_existing_path_is_not_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let link = directory.path().join("notes1");
    std::fs::write(&link, "mine").unwrap();
    let ended = program::run(&["lab", "uart", "--link", link.to_str().unwrap()]);
    assert_eq!(ended.status, Some(2));
    assert!(ended.stderr.contains("something is there already"), "{}", ended.stderr);
    assert_eq!(std::fs::read_to_string(&link).unwrap(), "mine");
    // A link to a terminal that no longer exists, as a killed run leaves it.
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink("/dev/pts/99999", &link).unwrap();
    let ended = program::run(&["lab", "uart", "--link", link.to_str().unwrap(), "--time", "50ms", "--quiet"]);
    assert_eq!((ended.status, &ended.stdout[..], &ended.stderr[..]), (Some(0), "", ""));
    assert!(link.symlink_metadata().is_err());
}
