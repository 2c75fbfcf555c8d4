//! Tests of the client as a state machine, with a given time and input and without a link.

use std::sync::Arc;

use super::*;
use crate::workload::latency::EchoCodec;
use linkgauge_model::plan::{Pacing, StopCondition};
use linkgauge_model::sample::RecordedTimes;

mod events;

const STREAM: Caps = Caps::STREAM;
const LOSSY_STREAM: Caps = Caps { is_reliable: false, ..Caps::STREAM };
const MESSAGES: Caps =
    Caps { framing: Framing::Message, max_message_bytes: Some(65_536), is_reliable: false, ..Caps::STREAM };

const TIMEOUT_NS: u64 = 1_000;

/// Pinger and its time.
struct PingerHarness {
    pinger: Pinger,
    now: Time,
}

/// Next step of the pinger, with the bytes it offers.
#[derive(Debug, PartialEq)]
enum WantedStep {
    Send(Vec<u8>),
    Receive(Time),
    Sleep(Time),
    Done,
    Fail,
}

fn harness(caps: &Caps, size: u32, count: u64, rate: Option<f64>, warm_up: u64) -> PingerHarness {
    let load = Load {
        pacing: rate.map_or(Pacing::Closed, |per_second| Pacing::Fixed { per_second }),
        stop: StopCondition::after_count(count),
        warm_up: StopCondition { count: Some(warm_up).filter(|&count| count > 0), ..Default::default() },
        timeout: Duration::from_nanos(TIMEOUT_NS),
        ..Load::endless(size)
    };
    let times = rate.map_or(RecordedTimes::Service, |_| RecordedTimes::ServiceAndResponse);
    let recorder = Recorder::new(times, 1_000_000_000, Arc::default(), None);
    let mut pinger = Pinger::new(Box::new(EchoCodec::new(&load, caps)), &load, caps, recorder);
    assert!(matches!(pinger.next_step(Time(0)), Step::Tune(_)));
    PingerHarness { pinger, now: Time(0) }
}

impl PingerHarness {
    fn next_step(&mut self) -> WantedStep {
        match self.pinger.next_step(self.now) {
            Step::Send { bytes, .. } => WantedStep::Send(bytes.to_vec()),
            Step::Receive { until, .. } => WantedStep::Receive(until),
            Step::Sleep(until) => WantedStep::Sleep(until),
            Step::Done => WantedStep::Done,
            Step::Fail(_) => WantedStep::Fail,
            Step::Tune(_) | Step::FinishSending | Step::Reopen | Step::ReadStamps(_) => {
                panic!("once, at the start, or never")
            }
        }
    }

    /// Takes the request that the pinger wants to send now.
    fn request(&mut self) -> Vec<u8> {
        let mut wants = self.next_step();
        // Without sequence numbers in replies, the pinger drains its input first.
        if wants == WantedStep::Receive(self.now) {
            self.pinger.on_timeout(self.now);
            wants = self.next_step();
        }
        let WantedStep::Send(request) = wants else { panic!("no request is due") };
        self.pinger.on_sent(request.len(), self.now);
        request
    }

    /// Delivers received bytes.
    fn deliver(&mut self, bytes: &[u8]) {
        let Step::Receive { into, .. } = self.pinger.next_step(self.now) else {
            panic!("it does not listen")
        };
        into.clear();
        into.bytes[..bytes.len()].copy_from_slice(bytes);
        into.push_span(0, bytes.len());
        self.pinger.on_received(self.now);
    }

    fn at(&mut self, now: u64) -> &mut PingerHarness {
        self.now = Time(now);
        self
    }

    fn counts(&mut self) -> linkgauge_model::sample::Counts {
        self.pinger.record_pending();
        self.pinger.recorder.counts
    }
}

#[test]
fn messages_of_any_size_come_back_as_themselves() {
    for size in [1, 2, 3, 7, 8, 9, 100] {
        for caps in [&STREAM, &LOSSY_STREAM, &MESSAGES] {
            let mut bench = harness(caps, size, 1_000, None, 0);
            for round in 0..1_000 {
                let request = bench.at(10 * round).request();
                bench.at(10 * round + 4).deliver(&request);
            }
            assert_eq!(bench.next_step(), WantedStep::Done);
            let counts = bench.counts();
            assert_eq!((counts.sent, counts.received, counts.lost), (1_000, 1_000, 0), "{size}");
            assert_eq!((counts.corrupt_bytes, counts.corrupt_messages), (0, 0), "{size}");
            assert_eq!(bench.pinger.recorder.service_times.ranks().value_at_rank(1_000), 4);
        }
    }
}

#[test]
fn a_chunked_reply_counts_when_complete() {
    for size in [2, 3, 8, 9, 40] {
        let mut bench = harness(&STREAM, size, 2, None, 0);
        for round in 0..2 {
            let request = bench.at(round * 500).request();
            for (index, byte) in request.iter().enumerate() {
                bench.at(round * 500 + index as u64 + 1).deliver(&[*byte]);
            }
        }
        assert_eq!(bench.next_step(), WantedStep::Done);
        assert_eq!(bench.counts().received, 2);
        assert_eq!(bench.pinger.recorder.service_times.min(), u64::from(size));
    }
}

#[test]
fn a_request_sent_in_chunks_is_timed_from_its_first_byte() {
    let mut bench = harness(&STREAM, 20, 1, None, 0);
    let WantedStep::Send(request) = bench.at(5).next_step() else { panic!() };
    bench.pinger.on_sent(3, Time(5));
    // The pinger receives pending input before it sends the rest.
    assert_eq!(bench.at(6).next_step(), WantedStep::Receive(Time(6)));
    bench.pinger.on_timeout(Time(6));
    assert_eq!(bench.next_step(), WantedStep::Send(request[3..].to_vec()));
    bench.pinger.on_sent(17, Time(6));
    bench.at(105).deliver(&request);
    assert_eq!(bench.next_step(), WantedStep::Done);
    assert_eq!(bench.counts().received, 1);
    assert_eq!(bench.pinger.recorder.service_times.max(), 100);
}

#[test]
fn a_reply_may_begin_before_its_request_is_sent() {
    let mut bench = harness(&STREAM, 200_000, 1, None, 0);
    let mut sent = Vec::new();
    let mut back = 0;
    for now in 0.. {
        match bench.at(now).next_step() {
            WantedStep::Send(chunk) => {
                assert!(chunk.len() <= MAX_CHUNK_BYTES);
                bench.pinger.on_sent(chunk.len(), Time(now));
                sent.extend(chunk);
            }
            WantedStep::Receive(_) if back < sent.len() => {
                let end = sent.len().min(back + 50_000);
                bench.deliver(&sent[back..end]);
                back = end;
            }
            WantedStep::Receive(until) => bench.pinger.on_timeout(until),
            WantedStep::Done => break,
            other => panic!("{other:?}"),
        }
    }
    let counts = bench.counts();
    assert_eq!((counts.received, counts.corrupt_bytes, sent.len(), back), (1, 0, 200_000, 200_000));
}

#[test]
fn a_link_that_takes_nothing_fails_after_the_timeout() {
    for taken in [0, 3] {
        let mut bench = harness(&STREAM, 20, 10, None, 0);
        assert!(matches!(bench.at(0).next_step(), WantedStep::Send(_)));
        if taken > 0 {
            bench.pinger.on_sent(taken, Time(0));
        }
        let mut ended = None;
        for now in 1..3 * TIMEOUT_NS {
            match bench.at(now).next_step() {
                // Offered, but not taken.
                WantedStep::Send(_) => {}
                WantedStep::Receive(_) => bench.pinger.on_timeout(Time(now)),
                WantedStep::Fail => {
                    ended = Some(now);
                    break;
                }
                other => panic!("{other:?}"),
            }
        }
        let ended = ended.expect("it gives up");
        assert!((TIMEOUT_NS..=TIMEOUT_NS + 2).contains(&ended), "{ended}");
        bench.pinger.on_ended(PartyCost::default());
        assert_eq!(bench.counts().sent, 0);
    }
}

#[test]
fn a_reply_after_the_timeout_is_late_however_late() {
    let mut bench = harness(&MESSAGES, 8, 20, None, 0);
    let mut requests = Vec::new();
    for round in 0..20 {
        requests.push(bench.at(round * TIMEOUT_NS).request());
        assert_eq!(bench.next_step(), WantedStep::Receive(Time((round + 1) * TIMEOUT_NS)));
    }
    for request in requests {
        bench.deliver(&request);
    }
    let counts = bench.counts();
    assert_eq!((counts.sent, counts.received, counts.lost, counts.late), (20, 1, 19, 19));
    assert_eq!((counts.corrupt_messages, counts.duplicate, counts.reordered), (0, 0, 0));
}

#[test]
fn a_flood_does_not_keep_a_request_from_being_sent() {
    let mut bench = harness(&STREAM, 200_000, 1, None, 0);
    let mut sent = 0;
    // Every receive finds input.
    while sent < 200_000 {
        match bench.next_step() {
            WantedStep::Send(chunk) => {
                bench.pinger.on_sent(chunk.len(), bench.now);
                sent += chunk.len();
            }
            WantedStep::Receive(_) => bench.deliver(b"strange"),
            other => panic!("{other:?}"),
        }
        bench.now = Time(bench.now.0 + 1);
        assert!(bench.now < Time(TIMEOUT_NS), "{sent} bytes in that time");
    }
}

#[test]
fn copies_are_counted_and_nothing_else() {
    let mut bench = harness(&MESSAGES, 2, 2, None, 0);
    let first = bench.request();
    bench.deliver(&first);
    let second = bench.request();
    bench.deliver(&first);
    bench.deliver(&first);
    bench.deliver(&second);
    assert_eq!(bench.next_step(), WantedStep::Done);
    let counts = bench.counts();
    assert_eq!((counts.duplicate, counts.lost, counts.reordered), (2, 0, 0));
}

#[test]
fn replies_before_their_request_are_counted_and_nothing_else() {
    for size in [1, 8] {
        let mut bench = harness(&MESSAGES, size, 3, Some(1e8), 1);
        let mut reply = bench.request();
        bench.at(1).deliver(&reply.clone());
        // The warm-up is over: this reply has the number after the next.
        let first = bench.at(10).request();
        reply[0] += 3;
        bench.at(11).deliver(&reply);
        bench.deliver(&first);
        let second = bench.at(20).request();
        bench.at(21).deliver(&second);
        let third = bench.at(30).request();
        assert_eq!(third, reply);
        bench.at(35).deliver(&third);
        assert_eq!(bench.next_step(), WantedStep::Done);
        let counts = bench.counts();
        assert_eq!((counts.received, counts.early, counts.duplicate, counts.corrupt_messages), (3, 1, 0, 0));
        assert_eq!(bench.pinger.recorder.service_times.first_times(), [1, 1, 5], "{size}");
    }
}

#[test]
fn replies_out_of_order_are_counted_on_a_schedule() {
    let mut bench = harness(&MESSAGES, 8, 4, Some(1e9), 0);
    let requests: Vec<_> = (0..4).map(|now| bench.at(now).request()).collect();
    // 1 overtakes 0; 3 overtakes 2.
    for (now, number) in [(10, 1), (11, 0), (12, 3), (13, 2)] {
        bench.at(now).deliver(&requests[number]);
    }
    assert_eq!(bench.next_step(), WantedStep::Done);
    let counts = bench.counts();
    assert_eq!((counts.received, counts.reordered, counts.duplicate), (4, 2, 0));
    let times: Vec<_> = bench.pinger.recorder.service_times.first_times().to_vec();
    assert_eq!(times, [9, 11, 9, 11]);
}

#[test]
fn wrong_bytes_are_counted_one_by_one() {
    for caps in [&STREAM, &MESSAGES] {
        let mut bench = harness(caps, 20, 2, None, 0);
        let mut request = bench.request();
        for at in [8, 13, 19] {
            request[at] ^= 0x40;
        }
        bench.deliver(&request);
        let request = bench.request();
        bench.deliver(&request);
        assert_eq!(bench.next_step(), WantedStep::Done);
        let counts = bench.counts();
        assert_eq!((counts.received, counts.corrupt_bytes, counts.corrupt_messages), (2, 3, 1));
    }
    // A truncated message, or one with extra bytes.
    let mut bench = harness(&MESSAGES, 20, 2, None, 0);
    let request = bench.request();
    bench.deliver(&request[..15]);
    let mut request = bench.request();
    request.extend([0; 4]);
    bench.deliver(&request);
    let counts = bench.counts();
    assert_eq!((counts.received, counts.corrupt_bytes, counts.corrupt_messages), (2, 9, 2));
}

#[test]
fn a_stream_resynchronises_after_garbage() {
    for size in [8, 9, 50] {
        for garbage in 1..20 {
            for chunk_bytes in [1, 3, 7, 8, 9, 1000] {
                let mut bench = harness(&STREAM, size, 3, None, 0);
                for round in 0..3 {
                    let request = bench.request();
                    let mut back = if round == 1 { vec![0xEE; garbage] } else { Vec::new() };
                    back.extend(request);
                    for chunk in back.chunks(chunk_bytes) {
                        bench.deliver(chunk);
                    }
                }
                assert_eq!(bench.next_step(), WantedStep::Done, "{size} {garbage} {chunk_bytes}");
                let counts = bench.counts();
                assert_eq!((counts.received, counts.lost), (3, 0));
                assert_eq!(counts.corrupt_bytes, garbage as u64, "{size} {chunk_bytes}");
            }
        }
    }
}

#[test]
fn a_lossy_line_is_drained_before_the_next_request() {
    for size in [2, 20] {
        let mut bench = harness(&LOSSY_STREAM, size, 2, None, 0);
        let request = bench.request();
        bench.deliver(&request[1..]);
        assert_eq!(bench.at(TIMEOUT_NS).next_step(), WantedStep::Receive(Time(2 * TIMEOUT_NS)));
        bench.pinger.on_timeout(Time(2 * TIMEOUT_NS));
        let request = bench.at(2 * TIMEOUT_NS).request();
        bench.at(2 * TIMEOUT_NS + 7).deliver(&request);
        assert_eq!(bench.next_step(), WantedStep::Done);
        let counts = bench.counts();
        assert_eq!((counts.sent, counts.received, counts.lost, counts.corrupt_bytes), (2, 1, 1, 0));
        assert_eq!(bench.pinger.recorder.service_times.max(), 7);
    }
}

#[test]
fn a_late_reply_on_a_line_is_counted_as_late() {
    for size in [1, 2, 20] {
        let mut bench = harness(&LOSSY_STREAM, size, 2, None, 0);
        let first = bench.request();
        bench.deliver(&first[..first.len() / 2]);
        // The rest arrives during the drain.
        assert_eq!(bench.at(TIMEOUT_NS).next_step(), WantedStep::Receive(Time(2 * TIMEOUT_NS)));
        bench.at(TIMEOUT_NS + 10).deliver(&first[first.len() / 2..]);
        let second = bench.request();
        bench.at(TIMEOUT_NS + 17).deliver(&second);
        let counts = bench.counts();
        assert_eq!((counts.received, counts.lost, counts.late, counts.corrupt_bytes), (1, 1, 1, 0), "{size}");
        assert_eq!(bench.pinger.recorder.service_times.max(), 7);
    }
    // The whole reply arrives after the drain: its number still identifies it.
    for size in [1, 2, 20] {
        let mut bench = harness(&LOSSY_STREAM, size, 2, None, 0);
        let first = bench.request();
        assert_eq!(bench.at(TIMEOUT_NS).next_step(), WantedStep::Receive(Time(2 * TIMEOUT_NS)));
        bench.pinger.on_timeout(Time(2 * TIMEOUT_NS));
        let second = bench.at(2 * TIMEOUT_NS).request();
        bench.deliver(&[first, second].concat());
        let counts = bench.counts();
        assert_eq!((counts.received, counts.lost, counts.late, counts.corrupt_bytes), (1, 1, 1, 0), "{size}");
    }
}

#[test]
fn a_byte_changed_on_a_line_corrupts_one_round_trip() {
    for size in [1, 2, 8, 20] {
        for at in [0, size as usize - 1] {
            for bit in 0..8 {
                let mut bench = harness(&LOSSY_STREAM, size, 300, None, 0);
                for round in 0..300 {
                    let mut reply = bench.at(10 * round).request();
                    if round == 200 {
                        reply[at] ^= 1 << bit;
                    }
                    bench.deliver(&reply);
                }
                assert_eq!(bench.next_step(), WantedStep::Done);
                let counts = bench.counts();
                let wrong = (counts.corrupt_bytes, counts.corrupt_messages, counts.duplicate, counts.late);
                assert_eq!((counts.received, counts.lost), (300, 0), "{size} {at} {bit}");
                assert_eq!(wrong, (1, 1, 0, 0), "{size} {at} {bit}");
            }
        }
    }
}

#[test]
fn inserted_bytes_are_counted_and_skipped() {
    let mut bench = harness(&LOSSY_STREAM, 4, 2, None, 0);
    let mut reply = bench.request();
    reply.extend([0xEE; 3]);
    bench.deliver(&reply);
    let reply = bench.request();
    bench.deliver(&reply);
    let counts = bench.counts();
    assert_eq!((counts.received, counts.lost, counts.corrupt_bytes), (2, 0, 3));
}

#[test]
fn a_schedule_on_a_line_matches_replies_by_number() {
    let mut bench = harness(&LOSSY_STREAM, 20, 3, Some(1e7), 0);
    let requests = [bench.request(), bench.at(100).request(), bench.at(200).request()];
    bench.at(300).deliver(&requests.concat());
    let counts = bench.counts();
    assert_eq!((counts.received, counts.missed_sends, counts.corrupt_bytes), (3, 0, 0));
}

#[test]
fn strange_messages_are_no_replies() {
    let mut bench = harness(&MESSAGES, 8, 1, None, 0);
    let request = bench.request();
    bench.deliver(&[]);
    bench.deliver(&[1, 2, 3]);
    bench.deliver(&[0xFF; 32]);
    bench.deliver(&request);
    assert_eq!(bench.next_step(), WantedStep::Done);
    let counts = bench.counts();
    assert_eq!((counts.received, counts.corrupt_bytes, counts.corrupt_messages), (1, 3, 1));
}

#[test]
fn a_stall_is_seen_by_every_message_it_held_up() {
    let mut bench = harness(&STREAM, 1, 4, Some(1e7), 0);
    // Due at 0, 100, 200, 300; the thread runs again only at 250.
    let mut requests = vec![bench.request()];
    requests.extend([bench.at(250).request(), bench.request()]);
    assert_eq!(bench.next_step(), WantedStep::Receive(Time(300)));
    bench.at(260).deliver(&requests.concat());
    let last = bench.at(300).request();
    bench.at(310).deliver(&last);
    assert_eq!(bench.next_step(), WantedStep::Done);
    let counts = bench.counts();
    // The third was due already when the second was sent.
    assert_eq!((counts.received, counts.late_sends, counts.missed_sends), (4, 1, 0));
    let recorder = &bench.pinger.recorder;
    assert_eq!(recorder.service_times.first_times(), [260, 10, 10, 10]);
    assert_eq!(recorder.response_times.as_ref().unwrap().first_times(), [260, 160, 60, 10]);
}

#[test]
fn outstanding_requests_are_lost_only_if_the_link_closed() {
    for closes in [false, true] {
        let mut bench = harness(&STREAM, 8, 10, None, 0);
        let request = bench.request();
        bench.deliver(&request);
        bench.request();
        if closes {
            assert!(bench.pinger.on_closed(Time(5)).is_err());
        }
        bench.pinger.on_ended(PartyCost::default());
        let counts = bench.counts();
        let expected = if closes { (2, 1, 1) } else { (1, 1, 0) };
        assert_eq!((counts.sent, counts.received, counts.lost), expected);
    }
}

#[test]
fn warm_up_counts_nothing() {
    let mut bench = harness(&MESSAGES, 8, 2, None, 2);
    let mut requests = Vec::new();
    for round in 0..2 {
        let request = bench.at(10 * round).request();
        bench.deliver(&[0xFF; 32]);
        bench.deliver(&[1]);
        bench.deliver(&request);
        requests.push(request);
    }
    for _ in 0..2 {
        let request = bench.request();
        bench.deliver(&requests[1]);
        bench.deliver(&request);
    }
    assert_eq!(bench.next_step(), WantedStep::Done);
    let counts = bench.counts();
    assert_eq!((counts.sent, counts.received), (2, 2));
    assert_eq!((counts.corrupt_bytes, counts.corrupt_messages, counts.duplicate), (0, 0, 0));
}

#[test]
fn the_think_time_begins_with_the_reply() {
    let load = Load {
        pacing: Pacing::ThinkTime { mean_seconds: 1e-3, seed: 3 },
        stop: StopCondition::after_count(500),
        timeout: Duration::from_secs(1),
        ..Load::endless(8)
    };
    let recorder = Recorder::new(RecordedTimes::Service, 1_000_000_000, Arc::default(), None);
    let pinger = Pinger::new(Box::new(EchoCodec::new(&load, &STREAM)), &load, &STREAM, recorder);
    let mut harness = PingerHarness { pinger, now: Time(0) };
    assert!(matches!(harness.pinger.next_step(Time(0)), Step::Tune(_)));
    let mut pauses = Vec::new();
    for _ in 0..500 {
        let WantedStep::Sleep(due) = harness.next_step() else { panic!("it pauses before each request") };
        pauses.push(due.since(harness.now).as_nanos() as f64);
        let request = harness.at(due.0).request();
        // The reply takes 300 ns; until then the next pause does not begin.
        assert!(matches!(harness.next_step(), WantedStep::Receive(_)));
        harness.at(due.0 + 300).deliver(&request);
    }
    assert_eq!(harness.next_step(), WantedStep::Done);
    let mean = pauses.iter().sum::<f64>() / 500.0;
    assert!((0.9e6..1.1e6).contains(&mean), "{mean} ns");
    assert_eq!((harness.counts().received, harness.counts().late_sends), (500, 0));
}

#[test]
fn no_gap_of_a_slow_schedule_is_lost_to_the_warm_up() {
    // A request every 2 µs, and a warm-up of 0.5 µs.
    let load = Load {
        pacing: Pacing::Fixed { per_second: 0.5e6 },
        stop: StopCondition::after_count(3),
        warm_up: StopCondition { count: Some(100), time_ns: Some(500), ..StopCondition::default() },
        timeout: Duration::from_nanos(TIMEOUT_NS),
        ..Load::endless(8)
    };
    let times = RecordedTimes::ServiceAndResponse;
    let recorder = Recorder::new(times, 1_000_000_000, Arc::default(), None);
    let codec = Box::new(EchoCodec::new(&load, &MESSAGES));
    let mut pinger = Pinger::new(codec, &load, &MESSAGES, recorder);
    assert!(matches!(pinger.next_step(Time(0)), Step::Tune(_)));
    let mut bench = PingerHarness { pinger, now: Time(0) };
    let warm_up = bench.request();
    assert!(matches!(bench.at(10).next_step(), WantedStep::Receive(_)), "its reply comes first");
    bench.at(40).deliver(&warm_up);
    for due in [41, 2041, 4041] {
        if due > 41 {
            assert_eq!(bench.at(due - 1).next_step(), WantedStep::Sleep(Time(due)));
        }
        let request = bench.at(due).request();
        bench.at(due + 40).deliver(&request);
    }
    assert_eq!(bench.next_step(), WantedStep::Done, "nothing is awaited after the last reply");
    assert_eq!((bench.counts().sent, bench.counts().received), (3, 3));
    let response = bench.pinger.recorder.response_times.as_ref().unwrap();
    assert_eq!((response.min(), response.max()), (40, 40));
}

/// Runs a schedule of one request every 2 ns. `delay` is the delay of the reply to each request, if one comes: an odd
/// number, so that no reply arrives when a request is due.
fn run_schedule(
    size: u32,
    stop: StopCondition,
    delay: impl Fn(u64) -> Option<u64>,
) -> linkgauge_model::sample::Recorder {
    let load = Load {
        pacing: Pacing::Fixed { per_second: 5e8 },
        stop,
        timeout: Duration::from_nanos(TIMEOUT_NS),
        ..Load::endless(size)
    };
    let recorder = Recorder::new(RecordedTimes::ServiceAndResponse, 1_000_000_000, Arc::default(), None);
    let pinger = Pinger::new(Box::new(EchoCodec::new(&load, &MESSAGES)), &load, &MESSAGES, recorder);
    let mut bench = PingerHarness { pinger, now: Time(0) };
    assert!(matches!(bench.pinger.next_step(Time(0)), Step::Tune(_)));
    let (mut replies, mut sent) = (std::collections::BTreeMap::new(), 0);
    loop {
        let until = match bench.next_step() {
            WantedStep::Send(request) => {
                bench.pinger.on_sent(request.len(), bench.now);
                delay(sent)
                    .map(|delay| replies.insert((bench.now + Duration::from_nanos(delay), sent), request));
                sent += 1;
                continue;
            }
            WantedStep::Receive(until) | WantedStep::Sleep(until) => until,
            WantedStep::Done => break,
            WantedStep::Fail => panic!("it does not fail"),
        };
        match replies.first_key_value() {
            Some((&(arrival, number), _)) if arrival <= until => {
                let reply = replies.remove(&(arrival, number)).unwrap();
                bench.now = bench.now.max(arrival);
                bench.deliver(&reply);
            }
            _ => {
                assert!(until > bench.now && until < Time::NEVER, "it waits for something: {until:?}");
                bench.now = until;
                bench.pinger.on_timeout(until);
            }
        }
    }
    bench.pinger.on_ended(PartyCost::default());
    Box::new(bench.pinger).into_recorder()
}

#[test]
fn a_server_that_is_silent_until_the_end_was_lost() {
    // Three requests after the last reply, one timeout each.
    let bench = |timeout: Duration| {
        let load = Load { timeout, stop: StopCondition::after_count(4), ..Load::endless(8) };
        let recorder = Recorder::new(RecordedTimes::Service, 1_000_000_000, Arc::default(), None);
        let pinger = Pinger::new(Box::new(EchoCodec::new(&load, &MESSAGES)), &load, &MESSAGES, recorder);
        let mut bench = PingerHarness { pinger, now: Time(1) };
        assert!(matches!(bench.pinger.next_step(Time(1)), Step::Tune(_)));
        let request = bench.request();
        bench.at(5).deliver(&request);
        loop {
            match bench.next_step() {
                WantedStep::Send(request) => bench.pinger.on_sent(request.len(), bench.now),
                WantedStep::Receive(until) => {
                    bench.now = until;
                    bench.pinger.on_timeout(until);
                }
                end => return end,
            }
        }
    };
    assert_eq!(bench(Duration::from_secs(1)), WantedStep::Fail);
    assert_eq!(bench(Duration::from_millis(100)), WantedStep::Done, "too short");
}

#[test]
fn a_lost_request_does_not_hold_up_a_schedule() {
    for size in [1, 2, 8] {
        // The timeout is that of 500 requests; a byte has 256 numbers.
        let recorder = run_schedule(size, StopCondition::after_count(2500), |n| (n % 100 != 3).then_some(5));
        let counts = recorder.counts;
        assert_eq!((counts.sent, counts.received, counts.lost), (2500, 2475, 25), "{size}");
        assert_eq!((counts.late_sends, counts.missed_sends), (0, 0), "{size}");
        assert_eq!((counts.early, counts.corrupt_messages), (0, 0), "{size}");
        assert_eq!(recorder.response_times.unwrap().max(), 5, "{size}");
    }
}

#[test]
fn a_late_reply_is_never_that_of_a_later_request() {
    for size in [1, 2, 8] {
        let delay = |n| if n % 50 == 7 { Some(1_901) } else { Some(5) };
        let recorder = run_schedule(size, StopCondition::after_count(2500), delay);
        let counts = recorder.counts;
        assert_eq!((counts.sent, counts.received, counts.lost), (2500, 2450, 50), "{size}");
        // The last ones are not awaited.
        assert!((40..=50).contains(&counts.late), "{size}: {}", counts.late);
        assert_eq!((counts.duplicate, counts.early, counts.corrupt_messages), (0, 0, 0), "{size}");
        assert_eq!((recorder.service_times.max(), counts.late_sends), (5, 0), "{size}");
    }
}

#[test]
fn an_outage_until_the_end_counts_all_requests() {
    for size in [1, 8] {
        let stop = StopCondition::after_time(Duration::from_nanos(5_000));
        let recorder = run_schedule(size, stop, |n| (n < 1_000).then_some(5));
        let counts = recorder.counts;
        assert_eq!((counts.received, counts.sent - counts.lost), (1_000, 1_000), "{size}");
        // The schedule has 2 500, and each of them is sent or missed.
        assert!((2_499..=2_500).contains(&(counts.sent + counts.missed_sends)), "{size}: {counts:?}");
        assert_eq!(counts.missed_sends > 0, size == 1, "{size}: {counts:?}");
    }
}

#[test]
fn the_jitter_compares_replies_of_consecutive_requests() {
    // The latencies rise by 10 ns in the place of each lost request, by 2 ns else, and the replies overtake each other.
    let latency = |n: u64| 21 + n / 5 * 10 % 70 + 2 * (n % 5);
    let delay = |n: u64| (n % 5 != 2).then_some(latency(n));
    let recorder = run_schedule(8, StopCondition::after_count(400), delay);
    let differences = (1..400u64).filter_map(|n| Some(delay(n)?.abs_diff(delay(n - 1)?)));
    let (count, sum) = differences.fold((0, 0), |(count, sum), difference| (count + 1, sum + difference));
    assert!(recorder.counts.reordered > 0 && recorder.counts.lost == 80);
    let jitter = recorder.latency_figures(&[]).times.jitter_ns.unwrap();
    assert!(
        (jitter / (sum as f64 / count as f64) - 1.0).abs() < 1e-9,
        "{jitter} {}",
        sum as f64 / count as f64
    );
}
