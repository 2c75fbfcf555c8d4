//! The server side of firmware, fed with whatever the fuzzer likes: no panic, no endless answer, no reply that is longer than its
//! request.

use linkgauge_responder::chargen::LineChecker;
use linkgauge_responder::linx::DeviceNode;
use linkgauge_responder::linx::frame::{Body, ConnectKind, ETHERTYPE, HandshakeFrame, Headers};
use linkgauge_responder::session::{
    Device, DeviceHeader, DeviceMessage, HEADER_BYTES, PacketSessions, REPORT_BYTES, StreamSessions,
};
use linkgauge_responder::stamp::TestReflector;

use super::draw::Draw;

const DEVICE: Device = Device { max_message_bytes: 600, tick_ns: 80 };
const OWN: [u8; 6] = [2, 0, 0, 0, 0, 1];
const PEER: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// The first byte chooses the service.
pub fn responder(data: &[u8]) {
    let mut draw = Draw(data);
    match draw.byte() % 4 {
        0 => stream(&mut draw),
        1 => packets(&mut draw),
        2 => linx(&mut draw),
        _ => {
            LineChecker::default().count_wrong(draw.0);
            stamp(&mut draw);
        }
    }
}

/// A message of the device protocol with a right checksum, or any bytes.
fn message(draw: &mut Draw) -> Vec<u8> {
    let kind = draw.one_of(&[
        None,
        Some(DeviceMessage::Hello),
        Some(DeviceMessage::Echo),
        Some(DeviceMessage::Data),
        Some(DeviceMessage::End),
        Some(DeviceMessage::Report),
    ]);
    let Some(kind) = kind else { return draw.short().to_vec() };
    let length = u16::from(draw.byte()) * 3;
    let (session, number) = (draw.byte().into(), draw.number() & 0xffff_ffff_ffff);
    let header = DeviceHeader { kind, is_reply: draw.byte() == 0, length: length.max(16), session, number };
    let mut bytes = header.encode().to_vec();
    bytes.resize(usize::from(length).max(HEADER_BYTES), 7);
    bytes
}

fn stream(draw: &mut Draw) {
    let (mut device, mut now) = (StreamSessions::new(DEVICE), 0_u64);
    while !draw.is_empty() {
        let bytes = message(draw);
        let mut rest = &bytes[..];
        now = now.wrapping_add(draw.number());
        let mut output = vec![0; REPORT_BYTES + usize::from(draw.byte())];
        while !rest.is_empty() {
            let progress = device.on_bytes(now, rest, &mut output);
            assert!(progress.consumed > 0 && progress.produced <= output.len());
            rest = &rest[progress.consumed..];
        }
    }
}

fn packets(draw: &mut Draw) {
    let (mut device, mut now) = (PacketSessions::<2>::new(DEVICE), 0_u64);
    while !draw.is_empty() {
        let mut bytes = message(draw);
        now = now.wrapping_add(draw.number());
        let length = device.on_packet(now, draw.byte().into(), &mut bytes);
        assert!(length.is_none_or(|length| length <= bytes.len()));
    }
}

fn stamp(draw: &mut Draw) {
    let (mut counting, mut stateless) = (TestReflector::<2>::new(1), TestReflector::<0>::new(1));
    while !draw.is_empty() {
        let mut packet = draw.short().to_vec();
        let mut same = packet.clone();
        let (now, sender) = (draw.number() >> 1, draw.byte().into());
        assert_eq!(counting.on_packet(now, sender, &mut packet), stateless.on_packet(now, sender, &mut same));
        assert!(packet.get(4..) == same.get(4..), "only the number differs");
    }
}

/// A frame to the node: its handshake, data at a distance that the fuzzer chooses, or any bytes.
fn frame(draw: &mut Draw, id: u8, next: &mut u16) -> Vec<u8> {
    let mut bytes = [&OWN[..], &PEER, &ETHERTYPE.to_be_bytes(), &[0; 1500]].concat();
    let into = &mut bytes[14..];
    let length = match draw.byte() % 8 {
        0 => {
            let kind = draw.one_of(&[
                ConnectKind::Reset,
                ConnectKind::Connect,
                ConnectKind::ConnectAck,
                ConnectKind::Ack,
            ]);
            HandshakeFrame { kind, window: draw.byte(), id: draw.byte(), mtu: None }.write([OWN, PEER], into)
        }
        1 => {
            let any = draw.short();
            into[..any.len()].copy_from_slice(any);
            any.len()
        }
        choice => {
            let headers = Headers {
                id,
                wants_ack: draw.byte() == 0,
                ack: draw.byte().into(),
                sequence: *next + u16::from(draw.byte() / 100),
            };
            *next = next.wrapping_add(1);
            let any = draw.short();
            let body = match choice {
                2 => Body::Nack { first: draw.byte().into(), count: draw.byte() },
                3 => Body::Empty,
                _ => {
                    let addresses =
                        (draw.byte() > 60).then(|| (draw.byte().into(), u32::from(draw.byte() % 9)));
                    Body::Data { addresses, more: draw.byte() > 200, tag: draw.byte().into(), bytes: any }
                }
            };
            let head = headers.write(&body, into);
            let data = if matches!(body, Body::Data { .. }) { any } else { &[] };
            into[head..][..data.len()].copy_from_slice(data);
            head + data.len()
        }
    };
    bytes.truncate(14 + length);
    bytes
}

fn linx(draw: &mut Draw) {
    let mut node = DeviceNode::<700, 2>::new(OWN);
    let (mut now, mut next) = (0_u64, 0);
    let mut out = [0; 1514];
    // Up, mostly: the ID of the first connection is 4.
    for kind in [ConnectKind::Connect, ConnectKind::Ack] {
        let mut bytes = [&OWN[..], &PEER, &ETHERTYPE.to_be_bytes(), &[0; 29]].concat();
        HandshakeFrame { kind, window: 7, id: 9, mtu: None }.write([OWN, PEER], &mut bytes[14..]);
        node.on_frame(now, &bytes);
    }
    assert!(node.is_up());
    while !draw.is_empty() {
        let bytes = frame(draw, 4, &mut next);
        now = now.wrapping_add(u64::from(draw.byte()) * 10_000_000);
        node.on_frame(now, &bytes);
        // A window of frames, what is sent again, and the answers.
        let sent = (0..64).take_while(|_| node.poll(now, &mut out).is_some()).count();
        assert!(sent < 64, "it never ends");
        assert!(node.next_due() > now || !node.is_up());
    }
}
