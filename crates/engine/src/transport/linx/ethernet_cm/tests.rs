//! Frames byte for byte: from real nodes, and invalid ones.

use super::*;
use crate::transport::linx::tests::{captured, hex};

const A: MacAddress = [0x52, 0x54, 0, 0, 0, 0x0a];
const B: MacAddress = [0x52, 0x54, 0, 0, 0, 0x0b];

#[test]
fn the_handshake_is_that_of_real_nodes() {
    let connect = |kind, to, from, mtu| ConnectFrame { kind, window: 7, id: 1, to, from, mtu };
    let frames = [
        (
            "1600001d f2ce0001 52540000000a 52540000000b 000000000000000000",
            connect(ConnectKind::Connect, A, B, None),
        ),
        (
            "1600001d f3ce0001 52540000000b 52540000000a 6d74753a3135303000",
            connect(ConnectKind::ConnectAck, B, A, Some(1500)),
        ),
        (
            "1600001d f4ce0001 52540000000a 52540000000b 6d74753a3135303000",
            connect(ConnectKind::Ack, A, B, Some(1500)),
        ),
        (
            "1600001d f1ce0001 52540000000a 52540000000b 000000000000000000",
            connect(ConnectKind::Reset, A, B, None),
        ),
    ];
    for (text, connect) in frames {
        assert_eq!(EthernetFrame::parse(&hex(text)), Ok(EthernetFrame::Connect(connect.clone())), "{text}");
        assert_eq!(connect.encode(), hex(text));
    }
    // As short as possible, and padded.
    let short = hex("16000015 f2ce0001 52540000000a 52540000000b 00 00*39");
    assert_eq!(
        EthernetFrame::parse(&short),
        Ok(EthernetFrame::Connect(connect(ConnectKind::Connect, A, B, None)))
    );
}

#[test]
fn data_and_acknowledgements_are_those_of_real_nodes() {
    let mut frame = Vec::new();
    encode_data(
        &DataHeader { id: 1, has_more: false, tag: UNFRAGMENTED_TAG, to: 0, from: 0 },
        [&hex("00000005"), &hex("00000002")],
        &mut frame,
    );
    write_sequence(&mut frame, AckRequest::None, 0, 0);
    assert_eq!(frame, hex("4600801c 20000000 f0007fff 00000000 00000000 00000005 00000002"));
    write_sequence(&mut frame, AckRequest::Wanted, 2, 3);
    assert_eq!(frame[4..8], hex("28002003"));
    let mut long = Vec::new();
    encode_data(
        &DataHeader { id: 1, has_more: true, tag: 1, to: 1, from: 1 },
        [&hex("00002873"), &[0; 1476]],
        &mut long,
    );
    write_sequence(&mut long, AckRequest::None, 2, 5);
    assert_eq!(long[..24], hex("460085dc 20002005 f0008001 00000001 00000001 00002873"));
    let mut last = Vec::new();
    encode_fragment(1, false, 1, &[7; 8], &mut last);
    write_sequence(&mut last, AckRequest::None, 2, 7);
    assert_eq!(last, hex("46008014 30002007 f0000001 07*8"));
    assert_eq!(encode_nack(1, 6, 6, 1).to_vec(), hex("4600800c 50006000 f0010006"));
    assert_eq!(encode_ack(1, AckRequest::Wanted, 2).to_vec(), hex("46008008 f8002000"));
    assert_eq!(encode_ack(1, AckRequest::None, 8).to_vec(), hex("46008008 f0008000"));
    let read = EthernetFrame::parse(&last).unwrap();
    let body = FrameBody::Fragment { more: false, tag: 1, bytes: &[7; 8] };
    assert_eq!(read, EthernetFrame::Ack { id: 1, request: AckRequest::None, ack: 2, sequence: 7, body });
    // With the header for several cores, which the size includes.
    let core = hex("00010200 4600800c f8002000");
    let nothing = EthernetFrame::Ack {
        id: 1,
        request: AckRequest::Wanted,
        ack: 2,
        sequence: 0,
        body: FrameBody::Empty,
    };
    assert_eq!(EthernetFrame::parse(&core), Ok(nothing));
}

#[test]
fn malformed_frames_are_refused() {
    for text in [
        "",
        "460080",
        "46008008",
        "46008008 f8",
        "4600ffff f8002000",
        "46008007 f8002000",
        "26008008 f8002000",
        "46008008 68002000",
        "4600800c 20000000 f0007fff",
        "4600800c 50006000 40010006",
        "1600001d f0ce0001 52540000000a 52540000000b 000000000000000000",
        "1600001d f28e0001 52540000000a 52540000000b 000000000000000000",
    ] {
        assert!(EthernetFrame::parse(&hex(text)).is_err(), "{text}");
    }
    let error = EthernetFrame::parse(&hex("14000015 f2ce0001 52540000000a 52540000000b 00")).unwrap_err();
    assert_eq!(
        error,
        DisconnectReason::VersionMismatch {
            protocol: "Ethernet connection manager",
            remote_version: 2,
            local_version: 3
        }
    );
}

#[test]
fn every_captured_frame_is_read() {
    let captures = [include_str!("../captured/ethernet.txt"), include_str!("../captured/ethernet_loss.txt")];
    for (index, capture) in captures.into_iter().enumerate() {
        let mut nacks = 0;
        for (_, frame) in captured(capture) {
            match EthernetFrame::parse(&frame).unwrap() {
                // Real nodes leave old bytes after the first NUL.
                EthernetFrame::Connect(connect) => {
                    assert_eq!(
                        connect.mtu.is_some(),
                        matches!(connect.kind, ConnectKind::ConnectAck | ConnectKind::Ack)
                    );
                }
                EthernetFrame::Ack { id, request, ack, sequence, body } => {
                    assert_eq!(id, 1);
                    nacks += usize::from(matches!(body, FrameBody::Nack { .. }));
                    let mut again = frame.clone();
                    write_sequence(&mut again, request, ack, sequence);
                    assert_eq!(again, frame);
                }
            }
        }
        assert_eq!(nacks > 0, index == 1, "{nacks}");
    }
}

#[test]
fn frames_of_a_message_are_counted() {
    let sizes = [0, 4, 1480, 1481, 2968, 2969, 65_536];
    assert_eq!(sizes.map(|size| frame_count(size, 1500)), [1, 1, 1, 2, 2, 3, 45]);
    assert_eq!(frame_count(100, 0), 101);
}
