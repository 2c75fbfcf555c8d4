//! Wireshark's dissector reads our LINX frames without a complaint. Needs tshark.
//!
//! It takes one message a TCP segment, and calls PUBLISH_PEER malformed even when it is right: so none is shown to it.

use std::process::Command;

use linkgauge::transport::linx::ethernet_cm::{self, ConnectFrame, ConnectKind, UNFRAGMENTED_TAG};
use linkgauge::transport::linx::rlnh::RlnhMessage;
use linkgauge::transport::linx::tcp_cm::FrameHeader;

/// Messages of two nodes about names.
fn words() -> Vec<Vec<u8>> {
    let all = [
        RlnhMessage::Init { version: 2 },
        RlnhMessage::InitReply { supported: true },
        RlnhMessage::Publish { address: 1, name: b"client".to_vec() },
        RlnhMessage::QueryName { asker: 1, name: b"server".to_vec() },
        RlnhMessage::Unpublish { address: 1 },
        RlnhMessage::UnpublishAck { address: 1 },
    ];
    all.iter().map(RlnhMessage::encode).collect()
}

/// A capture file of packets, each with its Ethernet header.
fn capture(packets: &[Vec<u8>], ethertype: u16) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4u32, 0x0002_0004, 0, 0, 65_535, 1] {
        file.extend_from_slice(&word.to_be_bytes());
    }
    for (number, packet) in packets.iter().enumerate() {
        let length = packet.len() as u32 + 14;
        for word in [number as u32, 0, length, length] {
            file.extend_from_slice(&word.to_be_bytes());
        }
        file.extend_from_slice(&[0x52, 0x54, 0, 0, 0, 0x0b, 0x52, 0x54, 0, 0, 0, 0x0a]);
        file.extend_from_slice(&ethertype.to_be_bytes());
        file.extend_from_slice(packet);
    }
    file
}

/// A segment of one TCP connection to port 19790, in IPv4.
fn segment(sequence: u32, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0];
    packet.extend_from_slice(&(40 + payload.len() as u16).to_be_bytes());
    packet.extend_from_slice(&[0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    packet.extend_from_slice(&50_000u16.to_be_bytes());
    packet.extend_from_slice(&19_790u16.to_be_bytes());
    packet.extend_from_slice(&sequence.to_be_bytes());
    packet.extend_from_slice(&[0, 0, 0, 1, 0x50, 0x18, 0xff, 0xff, 0, 0, 0, 0]);
    packet.extend_from_slice(payload);
    packet
}

/// One line for each packet, as tshark understands it.
fn understood(packets: &[Vec<u8>], ethertype: u16) -> Vec<String> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("linx.pcap");
    std::fs::write(&path, capture(packets, ethertype)).unwrap();
    let output = Command::new("tshark")
        .args(["-d", "tcp.port==19790,linxtcp", "-o", "tcp.desegment_tcp_streams:FALSE", "-V", "-r"])
        .arg(&path)
        .output()
        .unwrap_or_else(|error| panic!("tshark: {error}: ./check --all installs it"));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!text.contains("alformed"), "{text}");
    text.split("\nFrame ").map(str::to_owned).collect()
}

#[test]
fn frames_of_the_tcp_connection_manager() {
    let frame = |header: FrameHeader, message: &[u8]| [&header.encode()[..], message].concat();
    let mut frames: Vec<Vec<u8>> =
        words().iter().map(|word| frame(FrameHeader::data(0, 0, word.len()), word)).collect();
    frames.push(frame(FrameHeader::data(1, 2, 8), &[0, 0, 0x28, 0x73, 1, 2, 3, 4]));
    let mut sequence = 1;
    let mut packets = Vec::new();
    for frame in &frames {
        packets.push(segment(sequence, frame));
        sequence += frame.len() as u32;
    }
    let shown = understood(&packets, 0x0800);
    assert_eq!(shown.len(), packets.len());
    assert!(shown.iter().all(|packet| packet.contains("ENEA LINX over TCP")));
}

#[test]
fn frames_of_the_ethernet_connection_manager() {
    let connect = |kind, mtu| {
        ConnectFrame {
            kind,
            window: 7,
            id: 5,
            to: [0x52, 0x54, 0, 0, 0, 0x0b],
            from: [0x52, 0x54, 0, 0, 0, 0x0a],
            mtu,
        }
        .encode()
    };
    let mut frames = vec![
        connect(ConnectKind::Connect, None),
        connect(ConnectKind::ConnectAck, Some(1500)),
        connect(ConnectKind::Ack, Some(1500)),
        connect(ConnectKind::Reset, None),
        ethernet_cm::encode_ack(5, ethernet_cm::AckRequest::Wanted, 2).to_vec(),
        ethernet_cm::encode_nack(5, 6, 6, 1).to_vec(),
    ];
    for (number, word) in words().iter().enumerate() {
        let mut frame = Vec::new();
        let header =
            ethernet_cm::DataHeader { id: 5, has_more: false, tag: UNFRAGMENTED_TAG, to: 0, from: 0 };
        ethernet_cm::encode_data(&header, [&[], word], &mut frame);
        ethernet_cm::write_sequence(&mut frame, ethernet_cm::AckRequest::None, 1, number as u16);
        frames.push(frame);
    }
    let (mut first, mut last) = (Vec::new(), Vec::new());
    let header = ethernet_cm::DataHeader { id: 5, has_more: true, tag: 1, to: 2, from: 1 };
    ethernet_cm::encode_data(&header, [&[0, 0, 0x28, 0x73], &[0; 1476]], &mut first);
    ethernet_cm::write_sequence(&mut first, ethernet_cm::AckRequest::Wanted, 1, 7);
    ethernet_cm::encode_fragment(5, false, 1, &[0; 8], &mut last);
    ethernet_cm::write_sequence(&mut last, ethernet_cm::AckRequest::None, 1, 8);
    frames.extend([first, last]);
    let shown = understood(&frames, 0x8911);
    assert_eq!(shown.len(), frames.len());
    assert!(shown.iter().all(|packet| packet.contains("LINX")));
}
