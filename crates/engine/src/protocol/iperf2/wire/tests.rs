//! Bytes of iperf 2.1.8, 2.2.5 and 2.0.6 on the wire.

use std::time::Duration;

use super::bounceback;
use super::*;
use crate::protocol::ask::text;

fn bytes(hex: &str) -> Vec<u8> {
    text::parse_bytes(&format!("hex:{hex}")).unwrap()
}

const ONE_SECOND: Amount = Amount::Time(Duration::from_secs(1));

fn limited(mode: TestMode, port: u16) -> Settings {
    Settings { rate_bps: 0xa0_0000, ..Settings::new(mode, port, ONE_SECOND) }
}

/// The settings of 2.1.8 with these flags, port and upper flags.
fn captured(flags: &str, port: &str, upper: &str) -> Vec<u8> {
    bytes(&format!(
        "{flags} 00000001 {port} 00000000 00000000 ffffff9c 00000000 00000000 {upper} 0000 00020001 00080003 0000 0000 \
         00a00000 00000000 00000000"
    ))
}

#[test]
fn settings_on_a_stream_are_those_of_the_original() {
    for (mode, port, flags, word, upper) in [
        (TestMode::Plain, 5001, "40010078", "00001389", "0000"),
        (TestMode::Dual, 5002, "c0010079", "0000138a", "0000"),
        (TestMode::TradeOff, 5002, "c0010078", "0000138a", "0000"),
        (TestMode::Reverse, 5001, "44010078", "00001389", "0400"),
        (TestMode::FullDuplex, 5001, "44010078", "00001389", "0800"),
    ] {
        let (settings, captured) = (limited(mode, port), captured(flags, word, upper));
        assert_eq!(settings.encode(0), captured, "{mode:?}");
        assert_eq!(Settings::parse(&captured), Some(settings), "{mode:?}");
        assert_eq!(StreamStart::of(*captured.first_chunk().unwrap()), StreamStart::Settings(60));
    }
    let volume = Settings::new(TestMode::Plain, 5001, Amount::Bytes(0x32000));
    assert_eq!(volume.encode(0)[20..24], [0, 3, 0x20, 0]);
    assert_eq!(Settings::parse(&volume.encode(0)), Some(volume));
    let fast = Settings { rate_bps: 0x12_3456_789a, ..volume };
    assert_eq!(Settings::parse(&fast.encode(0)), Some(fast), "a rate beyond 32 bits");
}

#[test]
fn settings_of_old_and_new_versions_are_read() {
    for (flags, mode) in
        [("80000001", TestMode::Dual), ("80000000", TestMode::TradeOff), ("00000000", TestMode::Plain)]
    {
        let old = bytes(&format!("{flags} 00000001 0000138a 00000000 00000000 ffffff9c"));
        let settings = Settings::parse(&old).unwrap();
        assert_eq!((settings.mode, settings.port, settings.amount), (mode, 5002, ONE_SECOND));
        assert_eq!(settings.encode(0), old);
        let start = StreamStart::of(*old.first_chunk().unwrap());
        let wanted = if mode == TestMode::Plain { StreamStart::Payload } else { StreamStart::Settings(24) };
        assert_eq!(start, wanted, "flags of 0: the rest has no meaning");
    }
    assert_eq!(StreamStart::of([0x40, 1, 0, 0x80]), StreamStart::Settings(64), "2.2.5");
    assert_eq!(StreamStart::of([0xc0, 1, 0, 0x81]), StreamStart::Settings(64), "2.2.5 -d");
    let mut numbered = captured("40010080", "00001389", "0000");
    numbered[4..8].copy_from_slice(&0x8010_0003_u32.to_be_bytes());
    assert_eq!(Settings::parse(&numbered).unwrap().threads, 3, "a number of a transfer in the upper bits");
    let trip_times = captured("400100a0", "00001389", "0010");
    assert!(Settings::parse(&trip_times).unwrap().has_trip_times);
    assert_eq!(StreamStart::of([0x40, 1, 0, 0xa0]), StreamStart::Settings(80));
    let full = [&trip_times[..], &bytes("00000000 6b0829f7 0005b635 00000000 00000000")].concat();
    assert_eq!(start_time_us(&full), Some(0x6b08_29f7 * 1_000_000 + 0x5_b635));
}

#[test]
fn payload_is_not_taken_for_settings() {
    for first in [b"0123", b"\0\0\0\0", b"\0\0\0\x07", b"GET "] {
        assert_ne!(StreamStart::of(*first), StreamStart::Bounceback);
        let head = [&first[..], &[0x37; 60]].concat();
        let start = StreamStart::of(*first);
        assert!(start == StreamStart::Payload || Settings::parse(&head).is_none(), "{first:?}");
    }
    // Noise with a flag of settings: neither its threads nor its port are possible.
    assert_eq!(Settings::parse(&[0xc3; 256]), None);
    assert_eq!(
        Settings::parse(&bytes("80000001 00000001 00010000 00000000 00000000 ffffff9c")),
        None,
        "a port"
    );
    assert_eq!(
        Settings::parse(&bytes("80000001 00000081 00001389 00000000 00000000 ffffff9c")),
        None,
        "threads"
    );
    for cut in 0..36 {
        assert_eq!(Settings::parse(&captured("40010078", "00001389", "0000")[..cut]), None, "{cut}");
    }
}

#[test]
fn acknowledgements_are_those_of_the_original() {
    let plain = "00000002 0000001c 00000000 00020001 00080003 00000000 00000000";
    assert_eq!(acknowledgement(None), bytes(plain));
    let times = [0x5_b635, 0x5_b9e0, 0x5_ba36].map(|micros| 0x6b08_29f7 * 1_000_000 + micros);
    let with_times = "00000002 00000034 00000000 00020001 00080003 00000000 00000000 6b0829f7 0005b635 6b0829f7 0005b9e0 \
                      6b0829f7 0005ba36";
    assert_eq!(acknowledgement(Some(times)), bytes(with_times));
}

#[test]
fn datagrams_are_those_of_the_original() {
    let rest = "00000001 00001389 00000000 00000000 ffffff9c 00000000 00000000 0000 0000 00020001 00080003 0000 0000 00100000 \
                00000000 00000000";
    let first = bytes(&format!("00000001 6b082a08 0007143b 00000000 48010098 {rest}"));
    let last = bytes(&format!("ffffffa3 6b082a09 00076630 ffffffff 48010098 {rest}"));
    assert_eq!(
        (DatagramFormat::of(&first), DatagramFormat::of(&last)),
        (DatagramFormat::MODERN, DatagramFormat::MODERN)
    );
    let settings = Settings {
        rate_bps: 1 << 20,
        has_wide_numbers: true,
        ..Settings::new(TestMode::Plain, 5001, ONE_SECOND)
    };
    assert_eq!(Settings::parse(&first[16..]), Some(settings));
    assert_eq!(settings.encode(16), first[16..]);
    for (datagram, number, is_last) in [(&first, 1, false), (&last, 93, true)] {
        let sent_us = micros_at(datagram, 4).unwrap();
        let head = DatagramHead { number, is_last, sent_us };
        assert_eq!(DatagramFormat::MODERN.read(datagram), Some(head));
        let mut written = datagram.clone();
        written[..16].fill(0xee);
        DatagramFormat::MODERN.write(&mut written, if is_last { -93 } else { 1 }, sent_us);
        assert_eq!(&written, datagram);
    }
    for (mode, flags, upper) in
        [(TestMode::Reverse, 0x6c01_0098_u32, 0x0400_u16), (TestMode::FullDuplex, 0x6c01_0098, 0x0808)]
    {
        let encoded = Settings { mode, ..settings }.encode(16);
        assert_eq!(
            (word(&encoded, 0), encoded[32..34].to_vec()),
            (Some(flags), upper.to_be_bytes().to_vec())
        );
    }
}

#[test]
fn numbers_of_old_datagrams_and_other_signs_are_read() {
    let mut old = [0; 36];
    old[12..].copy_from_slice(&bytes("00000000 00000001 00001389 00000000 00100000 ffffff9c"));
    assert_eq!(DatagramFormat::of(&old), DatagramFormat::OLD);
    // Of ESP-IDF, which sends a number and nothing else.
    assert_eq!(DatagramFormat::of(&[0; 12]), DatagramFormat::OLD);
    for (number, wanted) in
        [(7_u32, (7, false)), (0, (0, false)), ((-93_i32) as u32, (93, true)), (0x8000_005d, (93, true))]
    {
        old[..4].copy_from_slice(&number.to_be_bytes());
        let head = DatagramFormat::OLD.read(&old).unwrap();
        assert_eq!((head.number, head.is_last), wanted);
    }
    let mut wide = [0; 16];
    wide[12] = 0x80;
    wide[3] = 93;
    let head = DatagramFormat::MODERN.read(&wide).unwrap();
    assert_eq!((head.number, head.is_last), (93, true), "2.0.13 sets the sign only");
    DatagramFormat::MODERN.write(&mut wide, (1 << 40) + 5, 0);
    assert_eq!(DatagramFormat::MODERN.read(&wide).unwrap().number, (1 << 40) + 5);
}

#[test]
fn reports_are_read_at_both_places() {
    let captured = format!(
        "{} 88000000 00000000 00021606 00000001 00005219 00000000 00000000 0000005d 00000000 0000000a 00000000 00000002 \
         00000000 00000046 00000000 000003f8 00000000 0000000a 000020a8 0007381e 00000000 0000003b 0000005d 0000005b \
         00000001 00000000 00000000 00000000",
        "00".repeat(16)
    );
    let report = Report {
        bytes: 136_710,
        elapsed: Duration::from_micros(1_021_017),
        lost: 0,
        reordered: 0,
        highest: 93,
        jitter: Duration::from_micros(10),
        delays: None,
    };
    assert_eq!(Report::parse(&bytes(&captured)), Some(report), "delays without their flag have no meaning");
    let delays = Delays { min_us: 2, max_us: 70, sum_us: 1016, count: 93 };
    let with_delays = bytes(&captured.replacen("88000000", "c8000000", 1));
    assert_eq!(Report::parse(&with_delays), Some(Report { delays: Some(delays), ..report }));
    let wide = Report { lost: 5 << 32, highest: 9 << 32, bytes: 1 << 40, delays: Some(delays), ..report };
    assert_eq!(Report::parse(&wide.encode(DatagramFormat::MODERN)), Some(wide));
    assert_eq!(wide.encode(DatagramFormat::MODERN).len(), REPORT_BYTES);
    let old = report.encode(DatagramFormat::OLD);
    assert_eq!((old.len(), Report::parse(&old)), (52, Some(report)), "as zperf sends it");
    assert_eq!(Report::parse(&[0; 128]), None);
    for cut in 0..52 {
        assert_eq!(Report::parse(&old[..cut]), None, "{cut}");
    }
}

#[test]
fn returned_messages_are_those_of_the_original() {
    let mut request = bounceback::new_request(100, false);
    bounceback::write_request(&mut request, 1, 0x6b08_29fe * 1_000_000 + 0xe_190c);
    let captured = bytes(
        "00800000 00000064 00000001 8000 0000 00000000 6b0829fe 000e190c ffffffff ffffffff ffffffff ffffffff 00000000 \
         00000000 00000000 00000000",
    );
    assert_eq!((request.len(), &request[..60]), (100, &captured[..60]));
    assert_eq!(StreamStart::of(*request.first_chunk().unwrap()), StreamStart::Bounceback);
    assert_eq!(bounceback::message_bytes(*request.first_chunk().unwrap()), Some(100));
    assert_eq!((bounceback::id(&request), bounceback::server_times_us(&request)), (Some(1), None));
    let times = [0xe_1928, 0xe_19b8].map(|micros| 0x6b08_29fe * 1_000_000 + micros);
    bounceback::write_reply(&mut request, times[0], times[1]);
    assert_eq!(request[28..44], bytes("6b0829fe 000e1928 6b0829fe 000e19b8"));
    assert_eq!(bounceback::server_times_us(&request), Some(times));
    request[44..48].copy_from_slice(&u32::MAX.to_be_bytes());
    assert_eq!(
        bounceback::hold(&request),
        Duration::from_millis(100),
        "a client does not decide about our time"
    );
    for size in [0, 59, 65_537, u32::MAX] {
        request[4..8].copy_from_slice(&size.to_be_bytes());
        assert_eq!(bounceback::message_bytes(*request.first_chunk().unwrap()), None, "{size}");
    }
}
