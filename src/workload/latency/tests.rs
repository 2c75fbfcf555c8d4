//! The near end as a state machine: told the time and what came, never on a link.

use std::sync::Arc;

use super::*;
use crate::plan::{CaseSpec, OneOrMany, Wait};
use crate::units::{Bytes, Count, MessageRate, Span, UpTo};

const STREAM: Caps = Caps::STREAM;
const LOSSY_STREAM: Caps = Caps { reliable: false, ..Caps::STREAM };
const MESSAGES: Caps =
    Caps { framing: Framing::Message, max_message: Some(65_536), reliable: false, ..Caps::STREAM };

const TIMEOUT: u64 = 1_000;

/// A pinger and the time it is told.
struct Bench {
    pinger: Pinger,
    now: Time,
}

/// What the pinger wants, with the bytes it offers.
#[derive(Debug, PartialEq)]
enum Wants {
    Send(Vec<u8>),
    Receive(Time),
    Sleep(Time),
    Done,
    Fail,
}

fn bench(caps: &Caps, size: u64, count: u64, rate: Option<f64>, warm_up: u64) -> Bench {
    let spec = CaseSpec {
        url: Some(OneOrMany::One("mem://x".parse().unwrap())),
        workload: Some("latency".to_owned()),
        size: Some(OneOrMany::One(Bytes(size))),
        count: Some(Count(count)),
        rate: rate.map(|rate| UpTo::At(MessageRate(rate))),
        warm_up_count: Some(Count(warm_up)).filter(|_| warm_up > 0),
        timeout: Some(Span(Duration::from_nanos(TIMEOUT))),
        ..CaseSpec::default()
    };
    let case = spec.expand().unwrap().remove(0);
    assert_eq!(case.wait, Wait::Block);
    let recorder = Recorder::new(rate.is_some(), 1_000_000_000, Arc::default(), None);
    let mut pinger = Pinger::new(Box::new(Echo::new(&case, caps)), &case, caps, recorder);
    assert!(matches!(pinger.next(Time(0)), Step::Tune(_)));
    Bench { pinger, now: Time(0) }
}

impl Bench {
    fn wants(&mut self) -> Wants {
        match self.pinger.next(self.now) {
            Step::Send { bytes, .. } => Wants::Send(bytes.to_vec()),
            Step::Receive { until, .. } => Wants::Receive(until),
            Step::Sleep(until) => Wants::Sleep(until),
            Step::Done => Wants::Done,
            Step::Fail(_) => Wants::Fail,
            Step::Tune(_) | Step::Finish | Step::Reopen => panic!("once, at the start, or never"),
        }
    }

    /// Takes the request that it wants to send now.
    fn request(&mut self) -> Vec<u8> {
        let mut wants = self.wants();
        // Where answers have no numbers it first looks whether something is still to come.
        if wants == Wants::Receive(self.now) {
            self.pinger.timed_out(self.now);
            wants = self.wants();
        }
        let Wants::Send(request) = wants else { panic!("no request is due") };
        self.pinger.sent(request.len(), self.now);
        request
    }

    /// Hands over bytes that came.
    fn answer(&mut self, bytes: &[u8]) {
        let Step::Receive { into, .. } = self.pinger.next(self.now) else { panic!("it does not listen") };
        into.clear();
        into.bytes[..bytes.len()].copy_from_slice(bytes);
        into.push(0, bytes.len());
        self.pinger.received(self.now);
    }

    fn at(&mut self, now: u64) -> &mut Bench {
        self.now = Time(now);
        self
    }

    fn counts(&mut self) -> crate::sample::Counts {
        self.pinger.record_pending();
        self.pinger.recorder.counts
    }
}

#[test]
fn messages_of_any_size_come_back_as_themselves() {
    for size in [1, 2, 3, 7, 8, 9, 100] {
        for caps in [&STREAM, &LOSSY_STREAM, &MESSAGES] {
            let mut bench = bench(caps, size, 1_000, None, 0);
            for round in 0..1_000 {
                let request = bench.at(10 * round).request();
                bench.at(10 * round + 4).answer(&request);
            }
            assert_eq!(bench.wants(), Wants::Done);
            let counts = bench.counts();
            assert_eq!((counts.sent, counts.received, counts.lost), (1_000, 1_000, 0), "{size}");
            assert_eq!((counts.corrupt_bytes, counts.corrupt_messages), (0, 0), "{size}");
            assert_eq!(bench.pinger.recorder.service.ranks().value(1_000), 4);
        }
    }
}

#[test]
fn an_answer_in_pieces_counts_when_it_is_whole() {
    for size in [2, 3, 8, 9, 40] {
        let mut bench = bench(&STREAM, size, 2, None, 0);
        for round in 0..2 {
            let request = bench.at(round * 500).request();
            for (index, byte) in request.iter().enumerate() {
                bench.at(round * 500 + index as u64 + 1).answer(&[*byte]);
            }
        }
        assert_eq!(bench.wants(), Wants::Done);
        assert_eq!(bench.counts().received, 2);
        assert_eq!(bench.pinger.recorder.service.min(), size);
    }
}

#[test]
fn a_request_taken_in_pieces_is_timed_from_its_first_byte() {
    let mut bench = bench(&STREAM, 20, 1, None, 0);
    let Wants::Send(request) = bench.at(5).wants() else { panic!() };
    bench.pinger.sent(3, Time(5));
    // First it takes what lies ready, then it offers the rest.
    assert_eq!(bench.at(6).wants(), Wants::Receive(Time(6)));
    bench.pinger.timed_out(Time(6));
    assert_eq!(bench.wants(), Wants::Send(request[3..].to_vec()));
    bench.pinger.sent(17, Time(6));
    bench.at(105).answer(&request);
    assert_eq!(bench.wants(), Wants::Done);
    assert_eq!(bench.counts().received, 1);
    assert_eq!(bench.pinger.recorder.service.max(), 100);
}

#[test]
fn an_answer_may_begin_before_its_request_is_sent() {
    let mut bench = bench(&STREAM, 200_000, 1, None, 0);
    let mut sent = Vec::new();
    let mut back = 0;
    for now in 0.. {
        match bench.at(now).wants() {
            Wants::Send(piece) => {
                assert!(piece.len() <= CHUNK);
                bench.pinger.sent(piece.len(), Time(now));
                sent.extend(piece);
            }
            Wants::Receive(_) if back < sent.len() => {
                let end = sent.len().min(back + 50_000);
                bench.answer(&sent[back..end]);
                back = end;
            }
            Wants::Receive(until) => bench.pinger.timed_out(until),
            Wants::Done => break,
            other => panic!("{other:?}"),
        }
    }
    let counts = bench.counts();
    assert_eq!((counts.received, counts.corrupt_bytes, sent.len(), back), (1, 0, 200_000, 200_000));
}

#[test]
fn a_link_that_takes_nothing_fails_after_the_time_out() {
    for taken in [0, 3] {
        let mut bench = bench(&STREAM, 20, 10, None, 0);
        assert!(matches!(bench.at(0).wants(), Wants::Send(_)));
        if taken > 0 {
            bench.pinger.sent(taken, Time(0));
        }
        let mut ended = None;
        for now in 1..3 * TIMEOUT {
            match bench.at(now).wants() {
                // Offered, and not taken.
                Wants::Send(_) => {}
                Wants::Receive(_) => bench.pinger.timed_out(Time(now)),
                Wants::Fail => {
                    ended = Some(now);
                    break;
                }
                other => panic!("{other:?}"),
            }
        }
        let ended = ended.expect("it gives up");
        assert!((TIMEOUT..=TIMEOUT + 2).contains(&ended), "{ended}");
        bench.pinger.ended(Cost::default());
        assert_eq!(bench.counts().sent, 0);
    }
}

#[test]
fn an_answer_after_the_time_out_is_late_however_late() {
    let mut bench = bench(&MESSAGES, 8, 20, None, 0);
    let mut requests = Vec::new();
    for round in 0..20 {
        requests.push(bench.at(round * TIMEOUT).request());
        assert_eq!(bench.wants(), Wants::Receive(Time((round + 1) * TIMEOUT)));
    }
    for request in requests {
        bench.answer(&request);
    }
    let counts = bench.counts();
    assert_eq!((counts.sent, counts.received, counts.lost, counts.late), (20, 1, 19, 19));
    assert_eq!((counts.corrupt_messages, counts.duplicate, counts.reordered), (0, 0, 0));
}

#[test]
fn a_flood_does_not_keep_a_request_from_being_sent() {
    let mut bench = bench(&STREAM, 200_000, 1, None, 0);
    let mut sent = 0;
    // Whenever it looks, something is there.
    while sent < 200_000 {
        match bench.wants() {
            Wants::Send(piece) => {
                bench.pinger.sent(piece.len(), bench.now);
                sent += piece.len();
            }
            Wants::Receive(_) => bench.answer(b"strange"),
            other => panic!("{other:?}"),
        }
        bench.now = Time(bench.now.0 + 1);
        assert!(bench.now < Time(TIMEOUT), "{sent} bytes in that time");
    }
}

#[test]
fn copies_are_counted_and_nothing_else() {
    let mut bench = bench(&MESSAGES, 2, 2, None, 0);
    let first = bench.request();
    bench.answer(&first);
    let second = bench.request();
    bench.answer(&first);
    bench.answer(&first);
    bench.answer(&second);
    assert_eq!(bench.wants(), Wants::Done);
    let counts = bench.counts();
    assert_eq!((counts.duplicate, counts.lost, counts.reordered), (2, 0, 0));
}

#[test]
fn replies_before_their_request_are_counted_and_nothing_else() {
    for size in [1, 8] {
        let mut bench = bench(&MESSAGES, size, 3, Some(1e8), 1);
        let mut reply = bench.request();
        bench.at(1).answer(&reply.clone());
        // The warm-up is over: this one answers the number after the next.
        let first = bench.at(10).request();
        reply[0] += 3;
        bench.at(11).answer(&reply);
        bench.answer(&first);
        let second = bench.at(20).request();
        bench.at(21).answer(&second);
        let third = bench.at(30).request();
        assert_eq!(third, reply);
        bench.at(35).answer(&third);
        assert_eq!(bench.wants(), Wants::Done);
        let counts = bench.counts();
        assert_eq!((counts.received, counts.early, counts.duplicate, counts.corrupt_messages), (3, 1, 0, 0));
        assert_eq!(bench.pinger.recorder.service.head(), [1, 1, 5], "{size}");
    }
}

#[test]
fn answers_out_of_order_are_counted_on_a_schedule() {
    let mut bench = bench(&MESSAGES, 8, 4, Some(1e9), 0);
    let requests: Vec<_> = (0..4).map(|now| bench.at(now).request()).collect();
    // 1 overtakes 0; 3 overtakes 2.
    for (now, number) in [(10, 1), (11, 0), (12, 3), (13, 2)] {
        bench.at(now).answer(&requests[number]);
    }
    assert_eq!(bench.wants(), Wants::Done);
    let counts = bench.counts();
    assert_eq!((counts.received, counts.reordered, counts.duplicate), (4, 2, 0));
    let times: Vec<_> = bench.pinger.recorder.service.head().to_vec();
    assert_eq!(times, [9, 11, 9, 11]);
}

#[test]
fn wrong_bytes_are_counted_one_by_one() {
    for caps in [&STREAM, &MESSAGES] {
        let mut bench = bench(caps, 20, 2, None, 0);
        let mut request = bench.request();
        for at in [8, 13, 19] {
            request[at] ^= 0x40;
        }
        bench.answer(&request);
        let request = bench.request();
        bench.answer(&request);
        assert_eq!(bench.wants(), Wants::Done);
        let counts = bench.counts();
        assert_eq!((counts.received, counts.corrupt_bytes, counts.corrupt_messages), (2, 3, 1));
    }
    // A message cut short, or with more behind it.
    let mut bench = bench(&MESSAGES, 20, 2, None, 0);
    let request = bench.request();
    bench.answer(&request[..15]);
    let mut request = bench.request();
    request.extend([0; 4]);
    bench.answer(&request);
    let counts = bench.counts();
    assert_eq!((counts.received, counts.corrupt_bytes, counts.corrupt_messages), (2, 9, 2));
}

#[test]
fn a_stream_finds_its_step_again_after_garbage() {
    for size in [8, 9, 50] {
        for garbage in 1..20 {
            for piece in [1, 3, 7, 8, 9, 1000] {
                let mut bench = bench(&STREAM, size, 3, None, 0);
                for round in 0..3 {
                    let request = bench.request();
                    let mut back = if round == 1 { vec![0xEE; garbage] } else { Vec::new() };
                    back.extend(request);
                    for piece in back.chunks(piece) {
                        bench.answer(piece);
                    }
                }
                assert_eq!(bench.wants(), Wants::Done, "{size} {garbage} {piece}");
                let counts = bench.counts();
                assert_eq!((counts.received, counts.lost), (3, 0));
                assert_eq!(counts.corrupt_bytes, garbage as u64, "{size} {piece}");
            }
        }
    }
}

#[test]
fn a_line_that_lost_a_byte_is_listened_to_before_the_next_exchange() {
    for size in [2, 20] {
        let mut bench = bench(&LOSSY_STREAM, size, 2, None, 0);
        let request = bench.request();
        bench.answer(&request[1..]);
        assert_eq!(bench.at(TIMEOUT).wants(), Wants::Receive(Time(2 * TIMEOUT)));
        bench.pinger.timed_out(Time(2 * TIMEOUT));
        let request = bench.at(2 * TIMEOUT).request();
        bench.at(2 * TIMEOUT + 7).answer(&request);
        assert_eq!(bench.wants(), Wants::Done);
        let counts = bench.counts();
        assert_eq!((counts.sent, counts.received, counts.lost, counts.corrupt_bytes), (2, 1, 1, 0));
        assert_eq!(bench.pinger.recorder.service.max(), 7);
    }
}

#[test]
fn a_late_answer_on_a_line_is_late_and_no_other() {
    for size in [1, 2, 20] {
        let mut bench = bench(&LOSSY_STREAM, size, 2, None, 0);
        let first = bench.request();
        bench.answer(&first[..first.len() / 2]);
        // The rest comes while it listens.
        assert_eq!(bench.at(TIMEOUT).wants(), Wants::Receive(Time(2 * TIMEOUT)));
        bench.at(TIMEOUT + 10).answer(&first[first.len() / 2..]);
        let second = bench.request();
        bench.at(TIMEOUT + 17).answer(&second);
        let counts = bench.counts();
        assert_eq!((counts.received, counts.lost, counts.late, counts.corrupt_bytes), (1, 1, 1, 0), "{size}");
        assert_eq!(bench.pinger.recorder.service.max(), 7);
    }
    // All of it comes when nobody listens any longer: it still has its number.
    for size in [1, 2, 20] {
        let mut bench = bench(&LOSSY_STREAM, size, 2, None, 0);
        let first = bench.request();
        assert_eq!(bench.at(TIMEOUT).wants(), Wants::Receive(Time(2 * TIMEOUT)));
        bench.pinger.timed_out(Time(2 * TIMEOUT));
        let second = bench.at(2 * TIMEOUT).request();
        bench.answer(&[first, second].concat());
        let counts = bench.counts();
        assert_eq!((counts.received, counts.lost, counts.late, counts.corrupt_bytes), (1, 1, 1, 0), "{size}");
    }
}

#[test]
fn a_byte_changed_on_a_line_spoils_one_exchange() {
    for size in [1, 2, 8, 20] {
        for at in [0, size as usize - 1] {
            for bit in 0..8 {
                let mut bench = bench(&LOSSY_STREAM, size, 300, None, 0);
                for round in 0..300 {
                    let mut answer = bench.at(10 * round).request();
                    if round == 200 {
                        answer[at] ^= 1 << bit;
                    }
                    bench.answer(&answer);
                }
                assert_eq!(bench.wants(), Wants::Done);
                let counts = bench.counts();
                let wrong = (counts.corrupt_bytes, counts.corrupt_messages, counts.duplicate, counts.late);
                assert_eq!((counts.received, counts.lost), (300, 0), "{size} {at} {bit}");
                assert_eq!(wrong, (1, 1, 0, 0), "{size} {at} {bit}");
            }
        }
    }
}

#[test]
fn bytes_that_nobody_sent_into_a_line_are_counted_and_passed_over() {
    let mut bench = bench(&LOSSY_STREAM, 4, 2, None, 0);
    let mut answer = bench.request();
    answer.extend([0xEE; 3]);
    bench.answer(&answer);
    let answer = bench.request();
    bench.answer(&answer);
    let counts = bench.counts();
    assert_eq!((counts.received, counts.lost, counts.corrupt_bytes), (2, 0, 3));
}

#[test]
fn a_schedule_on_a_line_is_kept_and_answers_go_by_their_numbers() {
    let mut bench = bench(&LOSSY_STREAM, 20, 3, Some(1e7), 0);
    let requests = [bench.request(), bench.at(100).request(), bench.at(200).request()];
    bench.at(300).answer(&requests.concat());
    let counts = bench.counts();
    assert_eq!((counts.received, counts.missed_sends, counts.corrupt_bytes), (3, 0, 0));
}

#[test]
fn strange_messages_are_no_answers() {
    let mut bench = bench(&MESSAGES, 8, 1, None, 0);
    let request = bench.request();
    bench.answer(&[]);
    bench.answer(&[1, 2, 3]);
    bench.answer(&[0xFF; 32]);
    bench.answer(&request);
    assert_eq!(bench.wants(), Wants::Done);
    let counts = bench.counts();
    assert_eq!((counts.received, counts.corrupt_bytes, counts.corrupt_messages), (1, 3, 1));
}

#[test]
fn a_stall_is_seen_by_every_message_it_held_up() {
    let mut bench = bench(&STREAM, 1, 4, Some(1e7), 0);
    // Due at 0, 100, 200, 300; the thread comes back only at 250.
    let mut requests = vec![bench.request()];
    requests.extend([bench.at(250).request(), bench.request()]);
    assert_eq!(bench.wants(), Wants::Receive(Time(300)));
    bench.at(260).answer(&requests.concat());
    let last = bench.at(300).request();
    bench.at(310).answer(&last);
    assert_eq!(bench.wants(), Wants::Done);
    let counts = bench.counts();
    // The second left when the third was due already.
    assert_eq!((counts.received, counts.missed_sends), (4, 1));
    let recorder = &bench.pinger.recorder;
    assert_eq!(recorder.service.head(), [260, 10, 10, 10]);
    assert_eq!(recorder.response.as_ref().unwrap().head(), [260, 160, 60, 10]);
}

#[test]
fn what_is_on_its_way_at_the_end_is_lost_only_if_the_link_closed() {
    for closes in [false, true] {
        let mut bench = bench(&STREAM, 8, 10, None, 0);
        let request = bench.request();
        bench.answer(&request);
        bench.request();
        if closes {
            assert!(bench.pinger.closed(Time(5)).is_err());
        }
        bench.pinger.ended(Cost::default());
        let counts = bench.counts();
        let expected = if closes { (2, 1, 1) } else { (1, 1, 0) };
        assert_eq!((counts.sent, counts.received, counts.lost), expected);
    }
}

#[test]
fn warm_up_counts_nothing() {
    let mut bench = bench(&MESSAGES, 8, 2, None, 2);
    let mut requests = Vec::new();
    for round in 0..2 {
        let request = bench.at(10 * round).request();
        bench.answer(&[0xFF; 32]);
        bench.answer(&[1]);
        bench.answer(&request);
        requests.push(request);
    }
    for _ in 0..2 {
        let request = bench.request();
        bench.answer(&requests[1]);
        bench.answer(&request);
    }
    assert_eq!(bench.wants(), Wants::Done);
    let counts = bench.counts();
    assert_eq!((counts.sent, counts.received), (2, 2));
    assert_eq!((counts.corrupt_bytes, counts.corrupt_messages, counts.duplicate), (0, 0, 0));
}
