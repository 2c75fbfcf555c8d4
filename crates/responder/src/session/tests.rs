//! Tests of the device protocol.

extern crate std;

use std::vec;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;

const DEVICE: Device = Device { max_message_bytes: 2000, tick_ns: 80 };

fn message(kind: DeviceMessage, length: usize, number: u64) -> Vec<u8> {
    let mut bytes = vec![0x5a; length];
    let header = DeviceHeader { kind, is_reply: false, length: length as u16, session: 7, number };
    bytes[..HEADER_BYTES].copy_from_slice(&header.encode());
    bytes
}

#[test]
fn the_header_is_that_of_the_page() {
    let header = DeviceHeader {
        kind: DeviceMessage::Data,
        is_reply: false,
        length: 300,
        session: 0xabcd,
        number: 0x0102_0304_0506,
    };
    let bytes = header.encode();
    assert_eq!(bytes[..14], *b"LG\x03\x01\x01\x2c\xab\xcd\x01\x02\x03\x04\x05\x06");
    assert_eq!(DeviceHeader::read(&bytes), Some(header));
    for bit in 0..8 * HEADER_BYTES {
        let mut changed = bytes;
        changed[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(DeviceHeader::read(&changed), None, "bit {bit}");
    }
}

proptest! {
    #[test]
    fn every_header_is_read_back(length in 16u16.., session: u16, number in 0u64..1 << 48, is_reply: bool) {
        let header = DeviceHeader { kind: DeviceMessage::Echo, is_reply, length, session, number };
        prop_assert_eq!(DeviceHeader::read(&header.encode()), Some(header));
    }
}

#[test]
fn a_checksum_carries_twice() {
    for number in 0..1 << 17 {
        let header = DeviceHeader {
            kind: DeviceMessage::Echo,
            is_reply: false,
            length: 32,
            session: 0xffff,
            number: number << 16,
        };
        assert_eq!(DeviceHeader::read(&header.encode()), Some(header));
    }
}

#[test]
fn a_session_over_packets_counts() {
    let mut device = PacketSessions::<2>::new(DEVICE);
    let mut send = |now, mut bytes: Vec<u8>| {
        device.on_packet(now, 1, &mut bytes).map(|length| {
            bytes.truncate(length);
            bytes
        })
    };
    assert_eq!(send(0, message(DeviceMessage::Report, 56, 0)), None, "no session");
    assert_eq!(Device::read(&send(0, message(DeviceMessage::Hello, 40, 0)).unwrap()), Some(DEVICE));
    let echo = send(1, message(DeviceMessage::Echo, 100, 9)).unwrap();
    assert!(
        DeviceHeader::read(echo.first_chunk().unwrap())
            .is_some_and(|header| header.is_reply && header.number == 9)
    );
    assert_eq!(echo[HEADER_BYTES..], [0x5a; 84]);
    // 1 is missing, 2 comes twice, 3 before 2.
    for (now, number) in [(10, 0), (20, 3), (30, 2), (40, 2), (50, 4)] {
        assert_eq!(send(now, message(DeviceMessage::Data, 100, number)), None);
    }
    let counts = |missing| DeviceCounts { messages: 4, bytes: 400, elapsed_ns: 40, missing, duplicate: 1 };
    assert_eq!(
        DeviceCounts::read(&send(60, message(DeviceMessage::Report, 56, 0)).unwrap()),
        Some(counts(1))
    );
    assert_eq!(send(70, message(DeviceMessage::End, 16, 6)), None);
    assert_eq!(
        DeviceCounts::read(&send(80, message(DeviceMessage::Report, 60, 0)).unwrap()),
        Some(counts(2)),
        "the last is missing"
    );
}

#[test]
fn what_is_cut_too_long_or_a_reply_gets_nothing() {
    let mut device = PacketSessions::<1>::new(DEVICE);
    for length in 0..40 {
        let mut cut = message(DeviceMessage::Echo, 40, 0)[..length].to_vec();
        assert_eq!(device.on_packet(0, 0, &mut cut), None, "{length}");
    }
    assert_eq!(device.on_packet(0, 0, &mut message(DeviceMessage::Echo, 2001, 0)), None);
    assert_eq!(
        device.on_packet(0, 0, &mut message(DeviceMessage::Hello, HELLO_BYTES - 1, 0)),
        None,
        "a longer reply"
    );
    let mut echo = message(DeviceMessage::Echo, 40, 0);
    assert_eq!(device.on_packet(0, 0, &mut echo), Some(40));
    assert_eq!(device.on_packet(0, 0, &mut echo), None, "a reply to a reply");
}

/// The output of a stream device for input in these chunks, with this room for output at a time.
fn run_stream(input: &[u8], chunk: usize, room: usize) -> Vec<u8> {
    let (mut device, mut all) = (StreamSessions::new(DEVICE), Vec::new());
    for mut chunk in input.chunks(chunk) {
        while !chunk.is_empty() {
            let mut output = vec![0; room];
            let progress = device.on_bytes(5, chunk, &mut output);
            assert!(progress.consumed > 0 && progress.consumed <= chunk.len());
            all.extend_from_slice(&output[..progress.produced]);
            chunk = &chunk[progress.consumed..];
        }
    }
    all
}

proptest! {
    #[test]
    fn a_stream_is_the_same_in_any_chunks(
        lengths in prop::collection::vec((1u8..=5, 56usize..300), 0..12), chunk in 1usize..400, room in REPORT_BYTES..500,
    ) {
        let mut packets = PacketSessions::<1>::new(DEVICE);
        let (mut input, mut expected) = (Vec::new(), Vec::new());
        for (number, (kind, length)) in lengths.into_iter().enumerate() {
            let kind = [DeviceMessage::Hello, DeviceMessage::Echo, DeviceMessage::Data, DeviceMessage::End, DeviceMessage::Report][kind as usize - 1];
            let mut bytes = message(kind, length, number as u64);
            input.extend_from_slice(&bytes);
            if let Some(length) = packets.on_packet(5, 0, &mut bytes) {
                expected.extend_from_slice(&bytes[..length]);
            }
        }
        prop_assert_eq!(run_stream(&input, chunk, room), expected);
    }

    #[test]
    fn noise_before_a_message_is_skipped(noise in prop::collection::vec(any::<u8>(), 0..60), chunk in 1usize..90) {
        // Noise that happens to begin like a header is resolved by what follows.
        let input = [&noise[..], &[0; HEADER_BYTES], &message(DeviceMessage::Echo, 60, 3)].concat();
        let output = run_stream(&input, chunk, 100);
        prop_assert_eq!(output.len(), 60);
        prop_assert_eq!(&output[HEADER_BYTES..], &[0x5a; 44]);
    }

    #[test]
    fn any_bytes_are_taken(input in prop::collection::vec(any::<u8>(), 0..300), chunk in 1usize..90) {
        run_stream(&input, chunk, REPORT_BYTES);
    }
}
