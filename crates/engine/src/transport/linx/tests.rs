//! Shared code of the LINX tests, and replays of messages captured from real nodes.

use super::ConnectionRole;
use super::node::{Node, NodeEvent};
use super::rlnh::RlnhMessage;
use super::tcp_cm::{self, ControlOutcome, FrameKind, HEADER_BYTES, TcpConnection};
use linkgauge_model::clock::Time;

/// Bytes in hexadecimal with optional spaces; `00*13` stands for thirteen zeros.
pub fn hex(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in text.split_whitespace() {
        let (digits, count) =
            word.split_once('*').map_or((word, 1), |(byte, count)| (byte, count.parse().unwrap()));
        let digits = digits.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
        let word: Vec<u8> = digits.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect();
        bytes.extend(word.repeat(count));
    }
    bytes
}

/// Side and bytes of each message of a capture.
pub(crate) fn captured(text: &str) -> Vec<(char, Vec<u8>)> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| (line.chars().next().unwrap(), hex(&line[2..]))).collect()
}

/// One line for a message, as both connection managers carry it.
pub(crate) fn described(source: u32, destination: u32, bytes: &[u8]) -> String {
    let text = |name: Vec<u8>| String::from_utf8(name).unwrap();
    if destination == 0 {
        return match RlnhMessage::parse(bytes).unwrap() {
            RlnhMessage::Publish { address, name } => format!("publish {address} = {}", text(name)),
            RlnhMessage::QueryName { asker, name } => format!("query from {asker}: {}", text(name)),
            message => format!("{message:?}"),
        };
    }
    let number = u32::from_be_bytes(*bytes.first_chunk().unwrap());
    format!("{source} -> {destination}: signal {number:04x}, {} bytes", bytes.len())
}

/// The lines without repetitions of one of the two lines before.
pub(crate) fn without_rows(lines: impl Iterator<Item = String>) -> String {
    let mut unique: Vec<String> = Vec::new();
    for line in lines {
        if !unique.iter().rev().take(2).any(|before| *before == line) {
            unique.push(line);
        }
    }
    unique.join("\n")
}

#[test]
fn a_captured_benchmark_over_tcp_is_read_as_it_was_meant() {
    let mut lines = Vec::new();
    for (from, bytes) in captured(include_str!("captured/tcp.txt")) {
        let mut rest = &bytes[..];
        while let Some((header, message)) = tcp_cm::split_first_frame(rest).unwrap() {
            assert_eq!(header.encode(), rest[..HEADER_BYTES]);
            rest = &rest[HEADER_BYTES + message.len()..];
            match header.kind {
                FrameKind::Ping | FrameKind::Pong => {}
                FrameKind::Data => {
                    lines.push(format!("{from} {}", described(header.source, header.destination, message)));
                }
                FrameKind::Connect => lines.push(format!("{from} connect")),
            }
        }
        assert!(rest.is_empty(), "a message in several parts");
    }
    insta::assert_snapshot!(without_rows(lines.into_iter()), @r"
    > connect
    < connect
    < Init { version: 2 }
    > Init { version: 2 }
    > InitReply { supported: true }
    < InitReply { supported: true }
    < publish 1 = client
    < query from 1: server
    > publish 1 = server
    < 1 -> 1: signal 2870, 16 bytes
    > publish 2 = linx_bmark_00000001
    > 2 -> 1: signal 2870, 16 bytes
    < 1 -> 2: signal 2873, 64 bytes
    > 2 -> 1: signal 2873, 64 bytes
    < 1 -> 2: signal 2874, 4 bytes
    > Unpublish { address: 2 }
    < UnpublishAck { address: 2 }
    < Unpublish { address: 1 }
    > UnpublishAck { address: 1 }
    < publish 2 = client
    < 2 -> 1: signal 2870, 16 bytes
    > publish 2 = linx_bmark_00000002
    > 2 -> 2: signal 2870, 16 bytes
    < 2 -> 2: signal 287a, 16 bytes
    > 2 -> 2: signal 287b, 16 bytes
    < 2 -> 2: signal 2875, 4 bytes
    > 2 -> 2: signal 8765, 64 bytes
    < 2 -> 2: signal 2874, 4 bytes
    > Unpublish { address: 2 }
    < UnpublishAck { address: 2 }
    < Unpublish { address: 2 }
    > UnpublishAck { address: 2 }
    < publish 1 = client
    < 1 -> 1: signal 2870, 16 bytes
    > publish 2 = linx_bmark_00000003
    > 2 -> 1: signal 2870, 16 bytes
    < 1 -> 2: signal 2877, 32 bytes
    > Unpublish { address: 2 }
    < UnpublishAck { address: 2 }
    < Unpublish { address: 1 }
    > UnpublishAck { address: 1 }
    ");
}

/// Our node gets one side of a capture: it replies like the other real node.
#[test]
fn our_node_replies_to_a_captured_one_as_a_real_one_did() {
    for (side, replayed) in
        [(ConnectionRole::Active, '>'), (ConnectionRole::Passive, '<'), (ConnectionRole::Passive, '>')]
    {
        let (mut out, mut output) = (Vec::new(), Vec::new());
        let (mut connection, mut node) = (TcpConnection::new(side, Time(0), &mut out), Node::default());
        let mut events = Vec::new();
        for (from, bytes) in captured(include_str!("captured/tcp.txt")) {
            let Some((header, message)) =
                tcp_cm::split_first_frame(&bytes).unwrap().filter(|_| from == replayed)
            else {
                continue;
            };
            match header.kind {
                FrameKind::Data if header.destination == 0 => {
                    connection.note_data().unwrap();
                    events.push(node.handle_bytes(message, &mut output).unwrap());
                }
                FrameKind::Data => connection.note_data().unwrap(),
                kind => {
                    let before = out.len();
                    if connection.handle_control(kind, Time(0), &mut out).unwrap() == ControlOutcome::Up {
                        node.start(&mut output);
                    }
                    let replied = &out[before..];
                    match (kind, side) {
                        (FrameKind::Ping, _) => assert_eq!(replied, hex("51030000 00*12")),
                        (FrameKind::Connect, ConnectionRole::Passive) => {
                            assert_eq!(replied, hex("43030000 00*12"))
                        }
                        _ => assert!(replied.is_empty()),
                    }
                }
            }
        }
        assert!(node.is_up());
        assert_eq!(
            output[..2],
            [RlnhMessage::Init { version: 2 }, RlnhMessage::InitReply { supported: true }]
        );
        let removed: Vec<u32> = events
            .iter()
            .filter_map(|event| match event {
                NodeEvent::EndpointGone(address) => Some(*address),
                _ => None,
            })
            .collect();
        let acknowledged: Vec<u32> = output
            .iter()
            .filter_map(|message| match message {
                RlnhMessage::UnpublishAck { address } => Some(*address),
                _ => None,
            })
            .collect();
        assert_eq!(acknowledged, removed);
        assert!(!removed.is_empty());
    }
}
