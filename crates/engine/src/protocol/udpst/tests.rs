//! Messages as the original sends them, and messages of any content.

use proptest::prelude::*;

use super::auth::TestKeys;
use super::wire::{
    Activation, LOAD_HEADER_BYTES, RESPONSE, STATUS_BYTES, Setup, SplitTime, StatusMessage, UPSTREAM,
    UdpstLoad,
};
use crate::workload::capacity::ip_rate_bps;
use std::time::Duration;

/// Captured messages: set-up of their test, kind, bytes.
fn captured() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let lines = include_str!("vectors.txt").lines().filter(|line| !line.starts_with('#'));
    let bytes = |hex: &str| {
        let pairs = hex.as_bytes().chunks(2).map(|pair| str::from_utf8(pair).unwrap());
        pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
    };
    let fields = |line: &'static str| {
        let [test, kind, hex] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        (test, kind, bytes(hex))
    };
    lines.map(fields).collect()
}

/// Bytes in front of the signature of a control message.
fn unsigned(message: &[u8]) -> &[u8] {
    &message[..message.len() - 41]
}

#[test]
fn messages_of_the_original_are_read_and_written() {
    for (test, kind, message) in captured() {
        let context = format!("{test} {kind}");
        match kind {
            "setup" => {
                let setup = Setup::parse(&message).expect(&context);
                assert_eq!(unsigned(&setup.encode()), unsigned(&message), "{context}");
                assert_eq!((setup.version, setup.count, setup.modifier), (20, 1, 1), "{context}");
                assert_eq!(setup.command == RESPONSE, setup.port > 0, "{context}");
            }
            "activation" => {
                let activation = Activation::parse(&message).expect(&context);
                assert_eq!(unsigned(&activation.encode()), unsigned(&message), "{context}");
                assert_eq!((activation.index, activation.time), (10, 5), "{context}");
                let has_row = activation.row != super::Row::default();
                assert_eq!(has_row, activation.response == 1 && activation.command == UPSTREAM);
            }
            "load" => {
                let header = UdpstLoad::parse(&message).expect(&context);
                let mut written = [0; LOAD_HEADER_BYTES];
                header.write(&mut written);
                // The checksum is optional.
                assert_eq!(written[..30], message[..30], "{context}");
                assert_eq!(header.size, 1222);
            }
            "status" => {
                // A capture has the first 200 bytes only; what follows are old bytes of a buffer.
                let mut whole = message.clone();
                whole.resize(STATUS_BYTES, 0);
                let status = StatusMessage::parse(&whole).expect(&context);
                assert_eq!(status.encode()[..160], message[..160], "{context}");
            }
            "null" => assert_eq!(message.len(), 48),
            other => panic!("{other}"),
        }
    }
}

#[test]
fn the_rate_of_a_sub_interval_is_that_of_the_original() {
    let statuses = captured().into_iter().filter(|(_, kind, _)| *kind == "status");
    let last = statuses.map(|(_, _, mut message)| {
        message.resize(STATUS_BYTES, 0);
        StatusMessage::parse(&message).unwrap()
    });
    let last = last.into_iter().find(|status| status.sub_interval == 5).unwrap();
    let tally = last.sub_tally;
    assert_eq!((tally.datagrams, tally.bytes, last.sub_us), (898, 1_097_356, 1_002_981));
    let rate = ip_rate_bps(tally.datagrams.into(), tally.bytes, Duration::from_micros(last.sub_us.into()));
    assert_eq!((rate / 1e3).round(), 8_953.0);
}

#[test]
fn signatures_of_the_original_are_valid_and_ours_are_the_same() {
    let mut checked = 0;
    for (test, kind, message) in captured() {
        let setup_time = match test {
            "signed-down" => 1_795_308_750,
            "signed-up" => 1_795_308_759,
            _ => continue,
        };
        let keys = TestKeys::derive(b"linkgauge-key", setup_time);
        let is_of_client = match kind {
            "setup" => message[8] == 1,
            "activation" => message[5] == 0,
            "null" => false,
            _ => continue,
        };
        let (own, other) =
            if is_of_client { (&keys.client, &keys.server) } else { (&keys.server, &keys.client) };
        assert!(own.has_signed(&message, setup_time + 5), "{test} {kind}");
        assert!(!own.has_signed(&message, setup_time + 7), "{test} {kind}");
        assert!(!other.has_signed(&message, setup_time), "{test} {kind}");
        let mut again = message.clone();
        own.sign(&mut again, setup_time, message[message.len() - 4]);
        assert_eq!(again, message, "{test} {kind}");
        for changed in 0..message.len() - 2 {
            let mut wrong = message.clone();
            wrong[changed] ^= 1;
            assert!(!own.has_signed(&wrong, setup_time), "{test} {kind}: byte {changed}");
        }
        checked += 1;
    }
    assert_eq!(checked, 10);
}

#[test]
fn times_far_apart_do_not_overflow() {
    let time = |seconds, nanoseconds| SplitTime { seconds, nanoseconds };
    assert_eq!(time(5, 1_000_000).ms_since(time(4, 999_000_000)), 2);
    assert_eq!(time(4, 999_999_999).ms_since(time(5, 0)), -1);
    assert_eq!(time(0, 0).ms_since(time(1 << 31, u32::MAX)), i32::MIN);
    assert_eq!(time(0, 0).ms_since(time(u32::MAX, 0)), 1000);
    assert_eq!(SplitTime::from_unix_ns(-1), time(u32::MAX, 999_999_999));
}

proptest! {
    #[test]
    fn nothing_panics(bytes: Vec<u8>, id in 0..4_usize) {
        let mut bytes = bytes;
        bytes.resize(STATUS_BYTES, 7);
        let [first, second] = [[0xac, 0xe1], [0xac, 0xe2], [0xbe, 0xef], [0xfe, 0xed]][id];
        (bytes[0], bytes[1]) = (first, second);
        for length in [0, 1, 31, 32, 56, 104, STATUS_BYTES] {
            let message = &bytes[..length];
            let _ = (Setup::parse(message), Activation::parse(message), UdpstLoad::parse(message));
            if let Some(status) = StatusMessage::parse(message) {
                prop_assert_eq!(&status.encode()[..3], &message[..3]);
            }
        }
    }
}
