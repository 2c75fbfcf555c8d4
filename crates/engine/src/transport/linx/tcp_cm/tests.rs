//! The TCP connection manager byte for byte, and for a day on a simulated clock.

use super::*;
use crate::transport::linx::tests::hex;

#[test]
fn frames_are_those_of_real_nodes() {
    let bytes = hex("55038000 00000001 00000002 00000004 00002873");
    let header = FrameHeader { kind: FrameKind::Data, out_of_band: true, source: 1, destination: 2, size: 4 };
    assert_eq!(split_first_frame(&bytes), Ok(Some((header, &bytes[16..]))));
    assert_eq!(header.encode(), bytes[..16]);
    for (text, kind) in [("43", FrameKind::Connect), ("50", FrameKind::Ping), ("51", FrameKind::Pong)] {
        let bytes = hex(&format!("{text}030000 00000000 00000000 00000000"));
        assert_eq!(split_first_frame(&bytes), Ok(Some((FrameHeader::without_message(kind), &[][..]))));
        assert_eq!(FrameHeader::without_message(kind).encode(), bytes[..]);
    }
    for length in 0..bytes.len() {
        assert_eq!(split_first_frame(&bytes[..length]), Ok(None), "{length} bytes");
    }
}

#[test]
fn malformed_frames_are_named() {
    let error = |text: &str| split_first_frame(&hex(text)).unwrap_err().to_string();
    insta::assert_snapshot!([
        "48545450 2f312e31 20343030 20426164",
        "43020000 00000000 00000000 00000000",
        "55030000 00000001 00000002 00010001",
    ].map(error).join("\n"), @r"
    the node does not use LINX: no LINX frame begins with these bytes
    the remote node uses version 2 of the LINX TCP connection manager, linkgauge uses 3. Use LINX 2.0 or later there
    a message is longer than LINX over TCP allows
    ");
}

const MILLISECOND: Duration = Duration::from_millis(1);

/// Two nodes and the wire between them, on a simulated clock.
struct Pair {
    ends: [TcpConnection; 2],
    now: Time,
    delay: Duration,
    /// Messages in flight: arrival time and receiving node.
    wire: Vec<(Time, usize, Vec<u8>)>,
    cut: bool,
}

impl Pair {
    fn up(delay: Duration) -> Pair {
        let (now, mut first, mut none) = (Time(0), Vec::new(), Vec::new());
        let ends = [
            TcpConnection::new(ConnectionRole::Active, now, &mut first),
            TcpConnection::new(ConnectionRole::Passive, now, &mut none),
        ];
        assert!(none.is_empty(), "who is called waits");
        let mut pair = Pair { ends, now, delay, wire: vec![(now + delay, 1, first)], cut: false };
        while !pair.ends.iter().all(|end| end.is_up) {
            pair.step().unwrap();
        }
        pair
    }

    /// Advances to the next event.
    fn step(&mut self) -> Result<(), (Time, DisconnectReason)> {
        let due = self.ends.iter().map(TcpConnection::next_due);
        let arrival = self.wire.iter().map(|(at, _, _)| *at);
        self.now = due.chain(arrival).min().unwrap();
        let arrived: Vec<_> = self.wire.extract_if(.., |(at, _, _)| *at <= self.now).collect();
        for (_, end, bytes) in arrived {
            let mut rest = &bytes[..];
            while let Some((header, _)) = split_first_frame(rest).unwrap() {
                rest = &rest[HEADER_BYTES..];
                let mut out = Vec::new();
                self.ends[end]
                    .handle_control(header.kind, self.now, &mut out)
                    .map_err(|ending| (self.now, ending))?;
                self.send(end, out);
            }
        }
        for end in 0..2 {
            let mut out = Vec::new();
            self.ends[end].tick(self.now, false, &mut out).map_err(|ending| (self.now, ending))?;
            self.send(end, out);
        }
        Ok(())
    }

    fn send(&mut self, from: usize, bytes: Vec<u8>) {
        if !bytes.is_empty() && !self.cut {
            self.wire.push((self.now + self.delay, 1 - from, bytes));
        }
    }
}

#[test]
fn a_healthy_link_lives_for_a_day_and_a_dead_one_is_noticed_in_two_seconds() {
    for delay in [MILLISECOND, 300 * MILLISECOND] {
        let mut pair = Pair::up(delay);
        while pair.now < Time(0) + Duration::from_secs(24 * 3600) {
            pair.step().unwrap_or_else(|(at, ending)| panic!("{ending} after {at:?}"));
        }
        pair.cut = true;
        // Messages in flight still arrive, followed by silence.
        let last = pair.wire.iter().map(|(at, _, _)| *at).max().unwrap_or(pair.now).max(pair.now);
        let (noticed, ending) = loop {
            if let Err(end) = pair.step() {
                break end;
            }
        };
        assert!(matches!(ending, DisconnectReason::Timeout(_)), "{ending}");
        assert!(noticed - last <= Duration::from_secs(2), "{:?}", noticed - last);
    }
}

#[test]
fn an_outgoing_call_waits_and_a_silent_caller_times_out() {
    let mut out = Vec::new();
    let mut active = TcpConnection::new(ConnectionRole::Active, Time(0), &mut out);
    assert_eq!(out, hex("43030000 00000000 00000000 00000000"));
    // A real node looks at a call after up to 10 s.
    let late = Time(0) + Duration::from_secs(11);
    assert_eq!(active.tick(late, false, &mut out), Ok(()));
    assert_eq!(active.handle_control(FrameKind::Connect, late, &mut out), Ok(ControlOutcome::Up));
    assert_eq!(active.next_due(), late + CHECK_INTERVAL);
    let mut passive = TcpConnection::new(ConnectionRole::Passive, Time(0), &mut out);
    assert_eq!(passive.tick(Time(0) + (HANDSHAKE_TIMEOUT - MILLISECOND), false, &mut out), Ok(()));
    assert!(matches!(
        passive.tick(Time(0) + HANDSHAKE_TIMEOUT, true, &mut out),
        Err(DisconnectReason::Timeout(_))
    ));
}

#[test]
fn unread_bytes_are_a_sign_of_life() {
    let mut out = Vec::new();
    let mut passive = TcpConnection::new(ConnectionRole::Passive, Time(0), &mut out);
    assert_eq!(passive.handle_control(FrameKind::Connect, Time(0), &mut out), Ok(ControlOutcome::Up));
    for second in 1..100 {
        assert_eq!(passive.tick(Time(second * 1_000_000_000), second > 1, &mut out), Ok(()));
    }
}

#[test]
fn the_order_of_the_handshake_is_enforced() {
    let mut out = Vec::new();
    let mut passive = TcpConnection::new(ConnectionRole::Passive, Time(0), &mut out);
    assert!(matches!(passive.note_data(), Err(DisconnectReason::ProtocolError(_))));
    passive.handle_control(FrameKind::Connect, Time(0), &mut out).unwrap();
    assert_eq!(passive.note_data(), Ok(()));
    assert_eq!(
        passive.handle_control(FrameKind::Connect, Time(0), &mut out),
        Err(DisconnectReason::Closed),
        "a second CONN ends it"
    );
}
