//! The TCP connection manager byte for byte, and on a made-up clock for a day.

use super::*;
use crate::link::linx::tests::hex;

#[test]
fn frames_are_those_of_real_nodes() {
    let bytes = hex("55038000 00000001 00000002 00000004 00002873");
    let header = Header { kind: Kind::Data, out_of_band: true, source: 1, destination: 2, size: 4 };
    assert_eq!(frame(&bytes), Ok(Some((header, &bytes[16..]))));
    assert_eq!(header.write(), bytes[..16]);
    for (text, kind) in [("43", Kind::Connect), ("50", Kind::Ping), ("51", Kind::Pong)] {
        let bytes = hex(&format!("{text}030000 00000000 00000000 00000000"));
        assert_eq!(frame(&bytes), Ok(Some((Header::bare(kind), &[][..]))));
        assert_eq!(Header::bare(kind).write(), bytes[..]);
    }
    for length in 0..bytes.len() {
        assert_eq!(frame(&bytes[..length]), Ok(None), "{length} bytes");
    }
}

#[test]
fn strange_frames_are_named() {
    let error = |text: &str| frame(&hex(text)).unwrap_err().to_string();
    insta::assert_snapshot!([
        "48545450 2f312e31 20343030 20426164",
        "43020000 00000000 00000000 00000000",
        "55030000 00000001 00000002 00010001",
    ].map(error).join("\n"), @r"
    it does not speak LINX: no frame begins like this
    the far node speaks version 2 of the LINX TCP connection manager, we speak 3: use LINX 2.0 or later there
    a message is longer than LINX over TCP allows
    ");
}

const MILLISECOND: Duration = Duration::from_millis(1);

/// Two nodes and the wire between them, on a made-up clock.
struct Pair {
    ends: [Connection; 2],
    now: Time,
    delay: Duration,
    /// What is on its way: when it arrives, at which end.
    wire: Vec<(Time, usize, Vec<u8>)>,
    cut: bool,
}

impl Pair {
    fn up(delay: Duration) -> Pair {
        let (now, mut first, mut none) = (Time(0), Vec::new(), Vec::new());
        let ends =
            [Connection::new(Side::Active, now, &mut first), Connection::new(Side::Passive, now, &mut none)];
        assert!(none.is_empty(), "who is called waits");
        let mut pair = Pair { ends, now, delay, wire: vec![(now + delay, 1, first)], cut: false };
        while !pair.ends.iter().all(|end| end.up) {
            pair.step().unwrap();
        }
        pair
    }

    /// Goes to the next instant at which something happens.
    fn step(&mut self) -> Result<(), (Time, Ending)> {
        let due = self.ends.iter().map(Connection::due);
        let arrival = self.wire.iter().map(|(at, _, _)| *at);
        self.now = due.chain(arrival).min().unwrap();
        let arrived: Vec<_> = self.wire.extract_if(.., |(at, _, _)| *at <= self.now).collect();
        for (_, end, bytes) in arrived {
            let mut rest = &bytes[..];
            while let Some((header, _)) = frame(rest).unwrap() {
                rest = &rest[HEADER..];
                let mut out = Vec::new();
                self.ends[end]
                    .control(header.kind, self.now, &mut out)
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
        // What is on its way still arrives; from then on there is silence.
        let last = pair.wire.iter().map(|(at, _, _)| *at).max().unwrap_or(pair.now).max(pair.now);
        let (noticed, ending) = loop {
            if let Err(end) = pair.step() {
                break end;
            }
        };
        assert!(matches!(ending, Ending::Silent(_)), "{ending}");
        assert!(noticed - last <= Duration::from_secs(2), "{:?}", noticed - last);
    }
}

#[test]
fn a_call_waits_for_its_answer_and_a_caller_who_is_silent_is_given_up() {
    let mut out = Vec::new();
    let mut active = Connection::new(Side::Active, Time(0), &mut out);
    assert_eq!(out, hex("43030000 00000000 00000000 00000000"));
    // A real node looks at a call up to 10 s later.
    let late = Time(0) + Duration::from_secs(11);
    assert_eq!(active.tick(late, false, &mut out), Ok(()));
    assert_eq!(active.control(Kind::Connect, late, &mut out), Ok(Heard::Up));
    assert_eq!(active.due(), late + CHECK);
    let mut passive = Connection::new(Side::Passive, Time(0), &mut out);
    assert_eq!(passive.tick(Time(0) + (HANDSHAKE - MILLISECOND), false, &mut out), Ok(()));
    assert!(matches!(passive.tick(Time(0) + HANDSHAKE, true, &mut out), Err(Ending::Silent(_))));
}

#[test]
fn bytes_that_nobody_has_read_yet_are_a_sign_of_life() {
    let mut out = Vec::new();
    let mut passive = Connection::new(Side::Passive, Time(0), &mut out);
    assert_eq!(passive.control(Kind::Connect, Time(0), &mut out), Ok(Heard::Up));
    for second in 1..100 {
        assert_eq!(passive.tick(Time(second * 1_000_000_000), second > 1, &mut out), Ok(()));
    }
}

#[test]
fn the_order_of_the_handshake_is_kept() {
    let mut out = Vec::new();
    let mut passive = Connection::new(Side::Passive, Time(0), &mut out);
    assert!(matches!(passive.message(), Err(Ending::Broken(_))));
    passive.control(Kind::Connect, Time(0), &mut out).unwrap();
    assert_eq!(passive.message(), Ok(()));
    assert_eq!(
        passive.control(Kind::Connect, Time(0), &mut out),
        Err(Ending::Closed),
        "a second CONN ends it"
    );
}
