//! Measurements on serial lines, on the virtual clock: losses are counted and located, and every case ends in time.
//! And measurements on many terminals at once.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use linkgauge::Registry;
use linkgauge::clock::Clock;
use linkgauge::plan::Plan;
use linkgauge::run::{CaseResult, DefectKind};
use linkgauge::schedule::{self, RunContext};
use linkgauge::system::{Pty, PtyPacket};

use crate::virtual_net::VirtualNet;

/// Runs one case over a line with an echo at its other end, whose characters so go over a line twice.
fn line(options: &str, case: &str) -> CaseResult {
    let plan = format!("[[case]]\nurl = \"mem://far?type=line&{options}\"\n{case}");
    let run = VirtualNet::serving("echo").run(&plan);
    run.cases.into_iter().next().unwrap()
}

fn looped(options: &str, more: &str) -> CaseResult {
    line(options, &format!("workload = \"throughput\"\n{more}"))
}

/// A character of 9600 8N1, in nanoseconds.
const CHARACTER: u64 = 1_041_667;

fn codes(case: &CaseResult) -> Vec<&str> {
    case.warnings.iter().map(|warning| warning.code.name()).collect()
}

#[test]
fn a_loop_has_the_rate_of_the_line_for_every_write_size() {
    for more in ["", "size = 1\n", "size = 4096\n", "size = 100000\n"] {
        let case = looped("baud=9600", &format!("volume = \"9600\"\n{more}"));
        assert!(case.complete, "{:?}", case.warnings);
        assert_eq!(case.figures.delivery.delivered_bytes, Some(9600));
        // From the first byte out to the last one back: a character more than the volume, over an echo.
        assert_eq!(case.elapsed_ns, 10_000_000_000 + CHARACTER, "{more}");
        let percent = case.figures.delivery.line_rate_percent.unwrap();
        assert!((percent - 100.0 * 9600.0 / 9601.0).abs() < 1e-3, "{more}{percent}");
        assert_eq!(case.line.unwrap().max_payload_bps, Some(7680.0));
        assert_eq!((case.figures.byte_errors.lost_bytes, case.figures.byte_errors.corrupt_bytes), (0, 0));
    }
}

#[test]
fn a_loop_with_a_time_sends_the_volume_of_the_line() {
    // Its buffer would take a quarter of an hour's worth at once.
    let case = looped("baud=75", "time = \"10s\"");
    assert_eq!(case.figures.delivery.delivered_bytes, Some(75));
    let character = 133_333_334;
    assert_eq!(case.elapsed_ns, 10_000_000_000 + character);
    // The default is ten seconds as well.
    assert_eq!(looped("baud=75", "").figures.delivery.delivered_bytes, Some(75));
}

#[test]
fn a_volume_smaller_than_a_write_is_one_write() {
    let case = looped("baud=9600", "volume = 3");
    assert_eq!((case.message_bytes, case.figures.counts.sent, case.figures.counts.received), (3, 1, 1));
    // One that was asked for stays as it is, and no whole one is counted.
    let case = looped("baud=9600", "volume = 3\nsize = 1000");
    assert_eq!(
        (case.message_bytes, case.figures.counts.sent, case.figures.delivery.delivered_bytes),
        (1000, 0, Some(3))
    );
    assert!(case.complete, "{:?}", case.warnings);
}

#[test]
fn every_character_format_and_flow_control_carries_the_payload() {
    for (frame, bits) in [
        ("data=5&stop=1.5", 7.5),
        ("data=5&flow=xonxoff", 7.0),
        ("data=6&parity=odd", 9.0),
        ("data=7&parity=even&stop=2", 11.0),
        ("data=7&flow=xonxoff", 9.0),
        ("flow=xonxoff", 10.0),
        ("parity=mark&stop=2", 12.0),
    ] {
        let options = format!("baud=115200&{frame}");
        let case = looped(&options, "volume = \"20k\"");
        let figures = &case.figures;
        assert_eq!(
            (
                figures.byte_errors.lost_bytes,
                figures.byte_errors.inserted_bytes,
                figures.byte_errors.corrupt_bytes
            ),
            (0, 0, 0),
            "{frame}"
        );
        assert_eq!(figures.delivery.delivered_bytes, Some(20_000), "{frame}");
        assert!((figures.delivery.line_rate_percent.unwrap() - 100.0).abs() < 0.01, "{frame}");
        for size in [1, 2, 9, 40] {
            let case = line(&options, &format!("workload = \"latency\"\nsize = {size}\ncount = 600"));
            let figures = &case.figures;
            assert_eq!(
                (figures.counts.received, figures.counts.lost, figures.byte_errors.corrupt_bytes),
                (600, 0, 0),
                "{frame} {size}"
            );
            let floor = (f64::from(size) * bits / 115_200.0 * 1e9) as u64;
            assert!(case.line.unwrap().transmission_ns.unwrap().abs_diff(floor) <= 1, "{frame} {size}");
        }
    }
}

#[test]
fn losses_of_a_line_are_counted_and_located() {
    // Every 1000th of 9600 characters is lost forward, and every 1000th of the others in reverse.
    let case = looped("baud=9600&drop=1000", "volume = \"9600\"");
    let lost = 9 + 9;
    assert!(case.complete, "{:?}", case.warnings);
    let figures = &case.figures;
    assert_eq!(
        (
            figures.byte_errors.lost_bytes,
            figures.byte_errors.inserted_bytes,
            figures.byte_errors.corrupt_bytes
        ),
        (lost, 0, 0)
    );
    assert_eq!(figures.delivery.delivered_bytes, Some(9600 - lost));
    // The first one there and the first one back are neighbours.
    let first = figures.byte_errors.defects[0];
    // Of two equal adjacent bytes the missing one cannot be identified.
    assert!(
        first.offset.abs_diff(999) <= 2 && (first.bytes, first.kind) == (2, DefectKind::Lost),
        "{first:?}"
    );
    assert_eq!(figures.byte_errors.defects.len(), 16);
    assert!(codes(&case).contains(&"lost_bytes") && !codes(&case).contains(&"corrupt"));
    let text = &case
        .warnings
        .iter()
        .find(|warning| warning.code == linkgauge::run::WarningCode::LostBytes)
        .unwrap()
        .text;
    assert!(text.contains(&format!("the first at byte {}", first.offset)), "{text}");
    // The last byte returned, so the client did not wait.
    assert!(case.elapsed_ns < 9700 * CHARACTER, "{}", case.elapsed_ns);
}

#[test]
fn a_loop_whose_end_is_lost_ends_after_silence() {
    let case = looped("baud=9600&drop=5000", "volume = \"5000\"");
    assert!(case.complete, "{:?}", case.warnings);
    assert_eq!((case.figures.byte_errors.lost_bytes, case.figures.delivery.delivered_bytes), (1, Some(4999)));
    assert_eq!(case.figures.byte_errors.defects[0].offset, 4999);
    // Five seconds after the last byte, plus four times the time of a write of 8.
    assert_eq!(case.elapsed_ns, 5_208_333_334 + 5_000_000_000 + 4 * 8_333_333);
    // The time of the rate ends with the last byte that came.
    assert!((case.figures.delivery.line_rate_percent.unwrap() - 100.0).abs() < 0.03);
}

#[test]
fn changes_and_copies_on_a_line_are_distinguished() {
    let case = looped("baud=9600&change=2500", "volume = \"9600\"");
    let figures = &case.figures;
    assert_eq!(
        (
            figures.byte_errors.corrupt_bytes,
            figures.byte_errors.lost_bytes,
            figures.byte_errors.inserted_bytes
        ),
        (0, 0, 0),
        "twice changed"
    );
    let case = looped("baud=9600&change=2500&drop=4000", "volume = \"9600\"");
    let figures = &case.figures;
    // After the first loss, the changes of the other direction hit other bytes.
    assert_eq!(
        (
            figures.byte_errors.corrupt_bytes,
            figures.byte_errors.lost_bytes,
            figures.byte_errors.inserted_bytes
        ),
        (4, 4, 0)
    );
    assert!(codes(&case).contains(&"corrupt") && codes(&case).contains(&"lost_bytes"));
    let case = looped("baud=9600&double=3000", "volume = \"9600\"");
    assert_eq!((case.figures.byte_errors.lost_bytes, case.figures.byte_errors.inserted_bytes), (0, 6));
}

#[test]
fn a_line_that_returns_nothing_suggests_the_plug() {
    let case = looped("baud=9600&delay=1h", "volume = \"100\"");
    assert!(!case.complete);
    let text = &case.warnings[0].text;
    assert!(text.contains("check the loopback plug or the device"), "{text}");
    assert_eq!(case.elapsed_ns, 5_000_000_000 + 4 * 8_333_333);
    // A volume below a message is shown in bytes.
    let case = looped("baud=9600&delay=1h", "volume = \"100\"\nsize = 1000\ntimeout = \"1s\"");
    assert!(case.warnings[0].text.contains("none of 100 bytes arrived"), "{:?}", case.warnings);
}

#[test]
fn the_end_of_a_slow_line_has_a_time_limit() {
    let case = line("baud=9600&delay=1h", "workload = \"latency\"\ntimeout = \"1s\"");
    assert!(!case.complete);
    assert!(
        case.warnings[0].text.contains("the line is silent: check the loopback plug or the device"),
        "{:?}",
        case.warnings
    );
    // Five timeouts, and in between it listened for as long again.
    assert_eq!(case.elapsed_ns, 9_000_000_000);
}

#[test]
fn round_trips_on_a_lossy_line_stay_in_step() {
    for size in [1, 2, 9, 20] {
        // A prime, so that the loss falls on every byte of a message.
        let case = line(
            "baud=115200&drop=101",
            &format!(
                "workload = \"latency\"\nsize = {size}\ncount = 1000\nwarm_up_count = 0\ntimeout = \"10ms\""
            ),
        );
        let figures = &case.figures;
        // Each lost byte costs one round trip; sometimes two are lost in one.
        let there = 1000 * size / 101;
        let back = (1000 * size - there) / 101;
        let bytes = there + back;
        assert!(
            (bytes * 8 / 10..=bytes).contains(&figures.counts.lost),
            "{size}: {bytes} {}",
            figures.counts.lost
        );
        assert_eq!(figures.counts.received + figures.counts.lost, 1000, "{size}");
        assert_eq!(
            (figures.byte_errors.corrupt_bytes, figures.counts.late, figures.counts.duplicate),
            (0, 0, 0),
            "{size}"
        );
        let latency = figures.times.latency_ns.as_ref().unwrap();
        assert!(latency.max - latency.min <= 2, "{size}: {latency:?}");
    }
}

#[test]
fn a_changed_byte_on_a_line_loses_no_round_trip() {
    for size in [1, 9, 20] {
        let case = line(
            "baud=115200&change=2001",
            &format!("workload = \"latency\"\nsize = {size}\ncount = 3000\nwarm_up_count = 0"),
        );
        let figures = &case.figures;
        assert_eq!(
            (figures.counts.received, figures.counts.lost, figures.counts.late),
            (3000, 0, 0),
            "{size}"
        );
        // A byte that is changed in both directions is unchanged.
        assert_eq!(figures.byte_errors.corrupt_bytes, 0, "{size}");
    }
    let case = line(
        "baud=115200&change=2001&drop=3001",
        "workload = \"latency\"\ncount = 9000\nwarm_up_count = 0\ntimeout = \"10ms\"",
    );
    let figures = &case.figures;
    assert!(
        figures.byte_errors.corrupt_bytes > 0
            && figures.byte_errors.corrupt_bytes == figures.counts.corrupt_messages,
        "{figures:?}"
    );
    assert_eq!(figures.counts.received + figures.counts.lost, 9000);
}

#[test]
fn a_long_message_on_a_slow_line_has_a_longer_timeout() {
    let case = line("baud=75", "workload = \"latency\"\nsize = 100\ncount = 3\nwarm_up_count = 0");
    assert_eq!((case.figures.counts.received, case.figures.counts.lost), (3, 0));
    assert_eq!(case.requested["timeout_ns"], 1_000_000_000 + 4 * 13_333_333_333_u64);
    assert_eq!(case.line.unwrap().transmission_ns, Some(13_333_333_333));
}

#[test]
fn several_lines_have_joint_and_separate_figures() {
    let net = VirtualNet::serving("echo");
    let run = net.run(
        "[[case]]\nurl = [\"mem://far0?type=line&baud=9600\", \"mem://far1?type=line&baud=19200\"]\ntogether = true\n\
         workload = \"throughput\"\nvolume = \"9600\"",
    );
    let case = &run.cases[0];
    assert!(case.complete, "{:?}", case.warnings);
    for port in &case.per_port {
        assert!(
            (port.figures.delivery.line_rate_percent.unwrap() - 100.0).abs() < 0.02,
            "{:?}",
            port.figures
        );
    }
    // The fast one had nothing to do in the second half.
    assert!((case.figures.delivery.line_rate_percent.unwrap() - 100.0 * 2.0 / 3.0).abs() < 0.01);
    assert!((case.fairness.unwrap() - 0.5).abs() < 1e-4, "{:?}", case.fairness);
    assert_eq!(case.line.unwrap().max_payload_bps, Some(7680.0 + 15_360.0));

    let run = net.run(
        "[[case]]\nurl = [\"mem://far0?type=line&baud=9600\", \"mem://far1?type=line&baud=19200\"]\ntogether = true\n\
         workload = \"latency\"\ncount = 100\nsize = 10",
    );
    let case = &run.cases[0];
    assert!((case.port_latency_ratio.unwrap() - 2.0).abs() < 1e-4, "{:?}", case.port_latency_ratio);
    assert_eq!(case.fairness, None);
    assert_eq!(case.line.unwrap().transmission_ns, Some(10_416_667));
}

#[test]
fn the_estimate_of_a_plan_includes_the_line() {
    let estimate = |case: &str| {
        let text = format!("[[case]]\nurl = \"mem://far?type=line&baud=9600\"\n{case}");
        let plan = schedule::check(Plan::from_toml(&text).unwrap(), Registry::standard()).unwrap();
        schedule::estimate_duration(&plan).map(|time| time.as_millis())
    };
    assert_eq!(estimate("workload = \"throughput\"\nvolume = \"96k\""), Some(100_000));
    assert_eq!(estimate("workload = \"latency\"\nsize = 96\ncount = 10"), Some(1000));
    assert_eq!(estimate("workload = \"throughput\"\ntime = \"2s\""), Some(2000));
}

/// Whether the so manieth byte comes back, from 1.
type Keeps = fn(usize) -> bool;

/// Plugs on terminals: echoes the bytes that it passes, until it is stopped. Returns all bytes that it saw.
fn plugs(terminals: Vec<Pty>, keeps: Keeps, over: &AtomicBool) -> Vec<u8> {
    let mut seen = Vec::new();
    let mut masters: Vec<File> = terminals.iter().map(|pty| pty.master.try_clone().unwrap().into()).collect();
    let mut waiting: Vec<Vec<u8>> = masters.iter().map(|_| Vec::new()).collect();
    while !over.load(Relaxed) {
        for (master, waiting) in masters.iter_mut().zip(&mut waiting) {
            let mut chunk = [0; 512];
            match master.read(&mut chunk) {
                Ok(length) => {
                    for byte in PtyPacket::parse(&chunk[..length]).data() {
                        seen.push(*byte);
                        waiting.extend(keeps(seen.len()).then_some(*byte));
                    }
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
            if let Ok(length) = master.write(waiting) {
                waiting.drain(..length);
            }
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    seen
}

/// A loop over this number of terminals at once, and the bytes that their plugs saw.
fn looped_over(ports: usize, options: &str, timeout: &str, keeps: Keeps) -> (CaseResult, Vec<u8>) {
    let terminals: Vec<Pty> = (0..ports).map(|_| Pty::open().unwrap()).collect();
    let urls: Vec<String> =
        terminals.iter().map(|pty| format!("\"serial://{}?{options}\"", pty.path.display())).collect();
    let plan = format!(
        "[[case]]\nurl = [{}]\ntogether = true\nworkload = \"throughput\"\nvolume = 3000\ntimeout = \"{timeout}\"",
        urls.join(", ")
    );
    let plan = schedule::check(Plan::from_toml(&plan).unwrap(), Registry::standard()).unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let plugs = scope.spawn(|| plugs(terminals, keeps, &over));
        let run = schedule::run(&plan, &mut RunContext::new(Registry::standard().dialer(Clock::System), &()));
        over.store(true, Relaxed);
        (run.cases.into_iter().next().unwrap(), plugs.join().unwrap())
    })
}

#[test]
fn many_terminals_at_once_return_the_sent_bytes() {
    let (case, seen) = looped_over(64, "baud=230400&flow=xonxoff", "10s", |_| true);
    assert!(case.complete, "{:?}", case.warnings);
    assert_eq!((case.ports, case.per_port.len(), seen.len()), (64, 64, 64 * 3000));
    for port in &case.per_port {
        let figures = &port.figures;
        assert_eq!(
            (figures.delivery.delivered_bytes, figures.byte_errors.lost_bytes),
            (Some(3000), 0),
            "{}",
            port.endpoint
        );
        assert_eq!(
            (figures.byte_errors.corrupt_bytes, figures.byte_errors.inserted_bytes),
            (0, 0),
            "{}",
            port.endpoint
        );
    }
    assert!(case.fairness.is_some_and(|fairness| fairness > 0.0 && fairness <= 1.0), "{:?}", case.fairness);
    assert!(!seen.iter().any(|byte| [0x11, 0x13, 0x91, 0x93].contains(byte)));
}

#[test]
fn losses_of_terminals_are_located() {
    let (case, seen) = looped_over(1, "baud=115200", "10s", |byte| byte % 700 != 0);
    assert!(case.complete, "{:?}", case.warnings);
    assert_eq!(seen.len(), 3000);
    let figures = &case.figures;
    assert_eq!(
        (
            figures.byte_errors.lost_bytes,
            figures.byte_errors.corrupt_bytes,
            figures.byte_errors.inserted_bytes
        ),
        (4, 0, 0)
    );
    let offsets = figures.byte_errors.defects.iter().map(|defect| defect.offset);
    assert!(offsets.zip([699, 1399, 2099, 2799]).all(|(found, lost)| lost - found <= 2), "{figures:?}");
}

#[test]
fn a_line_that_stops_differs_from_one_that_loses_bytes() {
    let (case, _) = looped_over(1, "baud=9600", "1s", |byte| byte <= 1000);
    assert!(!case.complete);
    assert!(case.warnings[0].text.contains("the line is silent"), "{:?}", case.warnings);
    assert_eq!(
        (case.figures.delivery.delivered_bytes, case.figures.byte_errors.lost_bytes),
        (Some(1000), 2000)
    );
    // Less than a second of it may be lost.
    let (case, _) = looped_over(1, "baud=9600", "1s", |byte| byte <= 2500);
    assert!(case.complete, "{:?}", case.warnings);
    assert_eq!(case.figures.byte_errors.lost_bytes, 500);
}
