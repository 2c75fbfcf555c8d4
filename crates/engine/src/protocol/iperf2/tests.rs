//! Parties of the client that no other program of the tests provokes.

use super::*;
use crate::link::party::{Party, Step};
use crate::link::{Batch, Fault};
use linkgauge_model::sample::Recorder;

fn datagrams() -> Caps {
    Caps {
        framing: Framing::Message,
        max_message_bytes: Some(65_507),
        is_reliable: false,
        can_signal_close: false,
        ..Caps::STREAM
    }
}

fn sender(format: DatagramFormat) -> DatagramSender {
    let load =
        Load { stop: StopCondition::after_count(3), timeout: Duration::from_secs(5), ..Load::endless(80) };
    let settings = Settings {
        has_wide_numbers: format.is_wide,
        ..Settings::new(TestMode::Plain, 5001, Amount::Bytes(240))
    };
    let layout = DatagramLayout {
        format,
        settings: settings.encode(format.header_bytes),
        wall_clock: WallClock::now(&Clock::System),
    };
    DatagramSender::new(&load, &datagrams(), Recorder::for_counting(), layout)
}

fn arrive(into: &mut Batch, message: &[u8]) {
    into.clear();
    into.bytes[..message.len()].copy_from_slice(message);
    into.push_span(0, message.len());
}

/// The numbers that a sender sends until it ends, with a reply to each attempt at a report.
fn numbers(
    format: DatagramFormat,
    replies: &[Option<&[u8]>],
) -> (Vec<(u64, bool)>, Option<Fault>, SharedReport) {
    let mut party = sender(format);
    let report = party.shared_report();
    let (mut numbers, mut now, mut replies) = (Vec::new(), Time(1), replies.iter());
    for _ in 0..1000 {
        match party.next_step(now) {
            Step::Send { bytes, message } => {
                for datagram in bytes.chunks(message) {
                    let head = format.read(datagram).unwrap();
                    numbers.push((head.number, head.is_last));
                }
                let length = bytes.len();
                party.on_sent(length, now);
            }
            Step::Receive { into, until } => {
                now = until;
                match replies.next().copied().flatten() {
                    Some(reply) => {
                        arrive(into, reply);
                        party.on_received(now);
                    }
                    None => party.on_timeout(now),
                }
            }
            Step::Done => return (numbers, None, report),
            Step::Fail(fault) => return (numbers, Some(fault), report),
            _ => {}
        }
    }
    panic!("it never ends");
}

#[test]
fn the_last_datagram_is_repeated_until_the_report_arrives() {
    let report = wire::Report { bytes: 320, highest: 4, ..wire::Report::default() };
    for format in [DatagramFormat::MODERN, DatagramFormat::OLD] {
        let first = u64::from(format.is_wide);
        let encoded = report.encode(format);
        let (sent, fault, received) = numbers(format, &[None, Some(b"unrelated"), Some(&encoded)]);
        assert!(fault.is_none(), "{fault:?}");
        assert_eq!(sent[..3], [first, first + 1, first + 2].map(|number| (number, false)));
        assert_eq!(sent[3..], [(first + 3, true); 2], "the same number again");
        let received = received.lock().unwrap().unwrap();
        assert_eq!(received, report);
    }
    let (sent, fault, _) = numbers(DatagramFormat::MODERN, &[]);
    assert_eq!(sent.iter().filter(|(_, is_last)| *is_last).count(), 10);
    assert!(matches!(fault, Some(Fault::NoReply(_))));
}

#[test]
fn digits_continue_over_blocks() {
    use crate::workload::throughput::header::HeaderCodec;
    let mut digits = Digits::new(37, 24);
    let mut stream = Vec::new();
    for number in 0..4 {
        let mut block = vec![0; 37];
        digits.write(&mut block, number, Time(0));
        stream.extend_from_slice(&block);
    }
    let wanted: Vec<u8> = (24..24 + stream.len()).map(|at| b'0' + (at % 10) as u8).collect();
    assert_eq!(stream, wanted, "the receiver in lwIP compares them");
}

#[test]
fn options_decide_how_the_server_sends() {
    let parse = |name: &str, value: &str| {
        Iperf2Options::parse(&[(name.to_owned(), value.to_owned())].into_iter().collect())
    };
    let plain = Iperf2Options::parse(&ProtocolOptions::new()).unwrap();
    let called = parse("callback", "0").unwrap();
    for (direction, same_link, callback) in [
        (Direction::Send, TestMode::Plain, TestMode::Plain),
        (Direction::Receive, TestMode::Reverse, TestMode::TradeOff),
        (Direction::Both, TestMode::FullDuplex, TestMode::Dual),
    ] {
        assert_eq!((plain.mode(direction), called.mode(direction)), (same_link, callback));
    }
    assert!(parse("callback", "65536").is_err() && parse("compat", "maybe").is_err());
}
