//! The model of a path: exact, with correct counters for all traffic.

use proptest::prelude::*;

use super::link::MAX_LINK_IN_FLIGHT_BYTES;
use super::*;
use crate::link::party::{Party, Step};
use crate::link::{Batch, Dialer, Fault, Link};
use crate::protocol::Registry;
use linkgauge_model::clock::Clock;

const MS: u64 = 1_000_000;

fn at(ms: u64) -> Time {
    Time(ms * MS)
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn path(shape: Shape) -> ShapedPath {
    ShapedPath::new(shape, 1)
}

/// All messages that have arrived by `now`.
fn all(pipe: &mut ShapedPipe, now: Time) -> Vec<Vec<u8>> {
    let mut buffer = [0; 2000];
    std::iter::from_fn(|| pipe.receive(&mut buffer, now).map(|length| buffer[..length].to_vec())).collect()
}

#[test]
fn a_chunk_arrives_after_transmission_and_delay() {
    let mut path = path(Shape { delay: ms(500), bits_per_second: 80_000.0, ..Shape::default() });
    let mut pipe = ShapedPipe::new(Framing::Message);
    pipe.send(&mut path, &[1; 1000], at(0));
    pipe.send(&mut path, &[2; 100], at(0));
    // The schedule starts again after the line has been idle.
    pipe.send(&mut path, &[3; 10], at(1000));
    for (due, byte) in [(600, 1), (610, 2), (1501, 3)] {
        assert_eq!(pipe.next_due(), Some(at(due)));
        assert_eq!(pipe.receive(&mut [0; 2000], Time(at(due).0 - 1)), None);
        assert_eq!(all(&mut pipe, at(due))[0][0], byte);
    }
}

#[test]
fn a_rate_does_not_drift() {
    // A byte takes 2/3 ns more than a whole number of ns; the rounding must not accumulate over a million
    // bytes.
    let mut path = path(Shape { bits_per_second: 3e6, ..Shape::default() });
    let mut pipe = ShapedPipe::new(Framing::Stream);
    for _ in 0..1_000_000 {
        pipe.send(&mut path, &[0], Time(7));
        pipe.receive(&mut [0; 9], Time::NEVER);
    }
    pipe.send(&mut path, &[0], Time(7));
    assert_eq!(pipe.next_due(), Some(Time(7 + 2_666_669_333)));
}

#[test]
fn connections_share_the_link_rate() {
    let mut path = path(Shape { bits_per_second: 8000.0, ..Shape::default() });
    let mut pipes = [ShapedPipe::new(Framing::Stream), ShapedPipe::new(Framing::Stream)];
    for pipe in &mut pipes {
        pipe.send(&mut path, &[0; 100], at(0));
    }
    assert_eq!(pipes.map(|pipe| pipe.next_due()), [Some(at(100)), Some(at(200))]);
}

#[test]
fn a_full_queue_drops_messages() {
    let mut path = path(Shape { bits_per_second: 8000.0, queue_bytes: 250, ..Shape::default() });
    let mut pipe = ShapedPipe::new(Framing::Message);
    for _ in 0..4 {
        pipe.send(&mut path, &[0; 100], at(0));
    }
    assert_eq!((path.counters.dropped, pipe.next_due()), (2, Some(at(100))));
    assert_eq!((path.free_bytes(at(0)), path.free_bytes(at(150)), path.half_empty_at()), (50, 200, at(75)));
    pipe.send(&mut path, &[0; 100], at(50));
    assert_eq!(path.counters.dropped, 2, "50 bytes have gone");
    pipe.send(&mut path, &[0; 1000], at(299));
    assert_eq!(path.counters.dropped, 3);
    pipe.send(&mut path, &[0; 1000], at(300));
    assert_eq!(path.counters.dropped, 3, "nothing else is in the queue");
}

#[test]
fn jitter_is_uniform_and_streams_stay_in_order() {
    let shape = Shape { delay: ms(10), jitter: ms(10), ..Shape::default() };
    let mut bins = [0; 4];
    let mut random = path(shape.clone());
    for n in 0..4000 {
        let mut pipe = ShapedPipe::new(Framing::Message);
        pipe.send(&mut random, &[0], at(n));
        let delay = pipe.next_due().unwrap() - at(n);
        assert!(delay <= ms(20));
        bins[(delay.as_nanos() as usize / 5_000_001).min(3)] += 1;
    }
    // Expected 1000 each; the standard deviation is 27.
    assert!(bins.iter().all(|&count| (890..1110).contains(&count)), "{bins:?}");

    for framing in [Framing::Stream, Framing::Message] {
        let (mut path, mut pipe) = (path(shape.clone()), ShapedPipe::new(framing));
        for n in 0..200u8 {
            pipe.send(&mut path, &[n], at(u64::from(n)));
        }
        let received = all(&mut pipe, at(1000)).concat();
        let in_order = received.is_sorted();
        assert_eq!((received.len(), in_order), (200, framing == Framing::Stream));
    }
}

#[test]
fn fault_shares_hold_and_the_seed_repeats_them() {
    let shape = Shape {
        delay: ms(5),
        loss: Occurrence::Share(0.1),
        duplicate: Occurrence::Share(0.05),
        reorder: Occurrence::Share(0.02),
        ..Shape::default()
    };
    let run = |seed| {
        let (mut path, mut pipe) = (ShapedPath::new(shape.clone(), seed), ShapedPipe::new(Framing::Message));
        for n in 0..10_000u32 {
            pipe.send(&mut path, &n.to_be_bytes(), Time(u64::from(n) * 1000));
        }
        (path.counters, all(&mut pipe, Time::NEVER))
    };
    let (tally, received) = run(1);
    // Within five standard deviations.
    assert!((850..1150).contains(&tally.lost), "{tally:?}");
    assert!((340..560).contains(&tally.duplicated), "{tally:?}");
    assert!((110..250).contains(&tally.overtaken), "{tally:?}");
    assert_eq!(received.len() as u64, 10_000 - tally.lost + tally.duplicated);
    assert!(run(1) == (tally, received), "the same seed");
    assert!(run(2).0 != tally, "another seed");
}

#[test]
fn a_stream_ends_when_its_last_byte_has_arrived() {
    let mut path = path(Shape { delay: ms(5), ..Shape::default() });
    let mut pipe = ShapedPipe::new(Framing::Stream);
    pipe.send(&mut path, b"end", at(0));
    let end = path.transit_end(at(3));
    pipe.finish(end);
    assert_eq!((pipe.is_ended(at(8)), all(&mut pipe, at(8)).concat()), (false, b"end".to_vec()));
    assert_eq!((pipe.is_ended(Time(at(8).0 - 1)), pipe.is_ended(at(8))), (false, true));
}

/// The delays of `count` messages, one per millisecond.
fn delays(shape: Shape, count: u64) -> Vec<Duration> {
    let mut path = path(shape);
    let delay = |n| {
        let mut pipe = ShapedPipe::new(Framing::Message);
        pipe.send(&mut path, &[0], at(n));
        pipe.next_due().unwrap() - at(n)
    };
    (0..count).map(delay).collect()
}

#[test]
fn a_tail_is_long() {
    let all = delays(Shape { delay: ms(10), tail: ms(1), ..Shape::default() }, 10_000);
    let over = |limit: u64| all.iter().filter(|&&delay| delay > ms(10 + limit)).count();
    assert!(all.iter().all(|&delay| delay >= ms(10) && delay <= ms(10 + 999)));
    // Expected 5000, 1000, 100; within five standard deviations.
    let records = [over(1), over(9), over(99)];
    assert!((4750..5250).contains(&records[0]) && (850..1150).contains(&records[1]), "{records:?}");
    assert!((50..150).contains(&records[2]), "{records:?}");
}

#[test]
fn spikes_add_exactly_their_delay_to_their_share() {
    let shape = Shape {
        delay: ms(10),
        spike_occurrence: Occurrence::Share(0.02),
        spike_delay: ms(300),
        ..Shape::default()
    };
    let all = delays(shape, 10_000);
    let spikes = all.iter().filter(|&&delay| delay == ms(310)).count();
    // Expected 200; within five standard deviations.
    assert!((130..270).contains(&spikes), "{spikes}");
    assert_eq!(all.iter().filter(|&&delay| delay == ms(10)).count(), 10_000 - spikes);
}

#[test]
fn a_share_of_the_messages_waits_exponentially() {
    let shape = Shape {
        delay: ms(2),
        wait_occurrence: Occurrence::Share(0.35),
        mean_wait: ms(3),
        ..Shape::default()
    };
    let all = delays(shape, 20_000);
    let waits: Vec<f64> =
        all.iter().map(|&delay| (delay - ms(2)).as_secs_f64() * 1e3).filter(|&wait| wait > 0.0).collect();
    let share = waits.len() as f64 / 20_000.0;
    assert!((0.33..0.37).contains(&share), "{share}");
    // Five standard deviations of the mean of 7000 waits, and of the share beyond twice the mean: e⁻² of them.
    let mean = waits.iter().sum::<f64>() / waits.len() as f64;
    assert!((2.82..3.18).contains(&mean), "{mean}");
    let late = waits.iter().filter(|&&wait| wait > 6.0).count() as f64 / waits.len() as f64;
    assert!((0.115..0.156).contains(&late), "{late}");
}

#[test]
fn messages_queue_for_the_nodes_and_the_line_works_meanwhile() {
    let costs = NodeCosts { message: ms(30), busy: ms(10), ..NodeCosts::default() };
    let mut path =
        path(Shape { costs: Some(costs), bits_per_second: 80_000.0, delay: ms(1), ..Shape::default() });
    let mut pipe = ShapedPipe::new(Framing::Message);
    for (bytes, now) in [(10, 0), (10, 0), (10, 5), (1000, 5), (10, 200)] {
        pipe.send(&mut path, &vec![0; bytes], at(now));
    }
    // Three messages of 1 ms on the line, each 10 ms after the one before it; the long one is on the line until 106 ms.
    for due in [31, 41, 51, 107, 231] {
        assert_eq!(pipe.next_due(), Some(at(due)));
        all(&mut pipe, at(due));
    }
}

#[test]
fn a_token_bucket_limits_the_mean_rate_only() {
    let shape =
        Shape { bits_per_second: 80_000.0, burst_bytes: 2000, overhead_bytes: 100, ..Shape::default() };
    let mut path = path(shape);
    let mut pipe = ShapedPipe::new(Framing::Message);
    let mut send = |bytes: usize, now| {
        pipe.send(&mut path, &vec![0; bytes], now);
        let due = pipe.next_due().unwrap();
        assert_eq!(all(&mut pipe, due).len(), 1);
        due
    };
    // A full bucket holds two packets of 1000 bytes, headers included; the third waits until it has filled again.
    assert_eq!([send(900, at(0)), send(900, at(0)), send(900, at(0))], [at(0), at(0), at(100)]);
    // One packet per 100 ms fits the rate. At 350 ms the bucket holds one packet and a half.
    assert_eq!([send(900, at(200)), send(900, at(350)), send(900, at(350))], [at(200), at(350), at(400)]);
    // A packet larger than the bucket leaves when the line would have sent the rest of it.
    assert_eq!(send(3900, at(2000)), at(2200));
}

#[test]
fn a_token_bucket_delays_the_end_of_a_stream_no_longer_than_its_bytes() {
    let mut path = path(Shape { bits_per_second: 8000.0, burst_bytes: 100, ..Shape::default() });
    let mut pipe = ShapedPipe::new(Framing::Stream);
    pipe.send(&mut path, &[0; 300], at(0));
    assert_eq!((pipe.next_due(), path.transit_end(at(1))), (Some(at(200)), at(200)));
}

#[test]
fn arrivals_are_aligned_to_slots_and_never_early() {
    let slot = Duration::from_micros(1_250);
    let shape = Shape { delay: ms(3), tail: Duration::from_micros(50), slot, ..Shape::default() };
    for (n, delay) in delays(shape, 1_000).into_iter().enumerate() {
        let due = at(n as u64) + delay;
        assert_eq!((due.0 % 1_250_000, delay >= ms(3)), (0, true), "{due:?}");
    }
    let exact = delays(Shape { delay: ms(3), slot, ..Shape::default() }, 5);
    assert_eq!(exact, [3_750, 4_000, 3_000, 3_250, 3_500].map(Duration::from_micros), "to the next one");
}

#[test]
fn a_stream_waits_behind_a_spike() {
    let shape = Shape { spike_occurrence: Occurrence::Every(3), spike_delay: ms(100), ..Shape::default() };
    let (mut path, mut pipe) = (path(shape), ShapedPipe::new(Framing::Stream));
    (0..5u8).for_each(|n| pipe.send(&mut path, &[n], at(u64::from(n))));
    assert_eq!(all(&mut pipe, at(101)).concat(), [0, 1]);
    assert_eq!(all(&mut pipe, at(102)).concat(), [2, 3, 4]);
}

#[test]
fn the_log_records_the_fate_of_each_message() {
    let shape = Shape {
        delay: ms(5),
        bits_per_second: 8000.0,
        queue_bytes: 3,
        loss: Occurrence::Every(2),
        duplicate: Occurrence::Every(3),
        ..Shape::default()
    };
    let mut path = path(shape);
    let records = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let log = records.clone();
    path.log = Some(MessageLog(Box::new(move |deed| log.lock().unwrap().push(deed))));
    let mut pipe = ShapedPipe::new(Framing::Message);
    (0..4).for_each(|_| pipe.send(&mut path, &[0], at(1)));
    let deed = |number, fate, delay| MessageRecord { number, arrival: at(1), bytes: 1, fate, delay };
    assert_eq!(
        *records.lock().unwrap(),
        [
            deed(0, MessageFate::Passed, Some(ms(6))),
            deed(1, MessageFate::Lost, None),
            deed(2, MessageFate::Duplicated, Some(ms(8))),
            deed(3, MessageFate::Dropped, None),
        ]
    );
    assert_eq!((path.counters.lost, path.counters.duplicated, path.counters.dropped), (1, 1, 1));
    let _ = path.transit(1, Framing::Stream, at(9));
    assert_eq!(records.lock().unwrap().len(), 4, "a stream has no messages");
}

fn shapes() -> impl Strategy<Value = Shape> {
    let often = || {
        prop_oneof![
            Just(Occurrence::Never),
            (0.0..1.0).prop_map(Occurrence::Share),
            (1u64..5).prop_map(Occurrence::Every)
        ]
    };
    let rate = (prop_oneof![Just(f64::INFINITY), 1e3..1e9], 0..3000u64, 0..100u64);
    let nodes = (often(), 0..40u64, prop::option::of(0..20u64));
    let radio = (0..3u64, often(), 0..400u64, 0..20u64);
    (0..50u64, 0..50u64, radio, rate, nodes, 1..5000u64, [often(), often(), often()]).prop_map(
        |(delay, jitter, radio, rate, nodes, queue, [loss, duplicate, reorder])| Shape {
            delay: ms(delay),
            jitter: ms(jitter.min(delay)),
            tail: ms(radio.0),
            spike_occurrence: radio.1,
            spike_delay: ms(radio.2),
            slot: ms(radio.3),
            bits_per_second: rate.0,
            burst_bytes: rate.1,
            overhead_bytes: rate.2,
            wait_occurrence: nodes.0,
            mean_wait: ms(nodes.1),
            costs: nodes.2.map(|busy| NodeCosts {
                message: ms(3),
                busy: ms(busy),
                byte_ns: 20.0,
                ..NodeCosts::default()
            }),
            queue_bytes: queue,
            loss,
            duplicate,
            reorder,
            queue_management: QueueManagement::TailDrop,
            police: None,
        },
    )
}

proptest! {
    #[test]
    fn a_stream_is_whole_and_in_order(shape in shapes(), writes in prop::collection::vec((1..400usize, 0..30u64), 1..40)) {
        let shape = Shape { loss: Occurrence::Never, duplicate: Occurrence::Never, reorder: Occurrence::Never, ..shape };
        let (mut path, mut pipe) = (path(shape), ShapedPipe::new(Framing::Stream));
        let (mut sent, mut received, mut now) = (Vec::new(), Vec::new(), 0);
        for (length, pause) in writes {
            let bytes: Vec<u8> = (0..length).map(|n| (sent.len() + n) as u8).collect();
            pipe.send(&mut path, &bytes, at(now));
            sent.extend(bytes);
            now += pause;
            let mut buffer = [0; 97];
            if let Some(length) = pipe.receive(&mut buffer, at(now)) {
                received.extend_from_slice(&buffer[..length]);
            }
            prop_assert_eq!(pipe.held_bytes(), sent.len() - received.len());
        }
        received.extend(all(&mut pipe, Time::NEVER).concat());
        prop_assert_eq!((received, pipe.memory_bytes()), (sent, 0));
    }

    #[test]
    fn messages_add_up(shape in shapes(), messages in prop::collection::vec((0..400usize, 0..30u64), 1..40)) {
        // A message that waits is overtaken.
        let is_overtaken = [shape.spike_occurrence, shape.wait_occurrence] != [Occurrence::Never; 2];
        let even = shape.jitter.is_zero() && shape.tail.is_zero() && !is_overtaken;
        let fault_free = !shape.has_faults() && even;
        let (mut path, mut pipe) = (path(shape), ShapedPipe::new(Framing::Message));
        let (mut received, mut now) = (Vec::new(), 0);
        for (number, &(length, pause)) in messages.iter().enumerate() {
            pipe.send(&mut path, &vec![number as u8; length], at(now));
            now += pause;
            received.extend(all(&mut pipe, at(now)));
        }
        received.extend(all(&mut pipe, Time::NEVER));
        let tally = path.counters;
        prop_assert_eq!(received.len() as u64 + tally.dropped + tally.lost, messages.len() as u64 + tally.duplicated);
        for message in received.iter().filter(|message| !message.is_empty()) {
            prop_assert_eq!(message, &vec![message[0]; messages[usize::from(message[0])].0], "a message as it was");
        }
        let numbers: Vec<u8> = received.iter().filter_map(|message| message.first().copied()).collect();
        prop_assert!(!fault_free || numbers.is_sorted());
        prop_assert_eq!(pipe.memory_bytes(), 0);
    }
}

/// An echo; finishes when the other end has finished.
struct Echo(Batch, usize, bool);

impl Party for Echo {
    fn next_step(&mut self, _now: Time) -> Step<'_> {
        if self.2 {
            return Step::Done;
        }
        if self.0.is_empty() {
            return Step::Receive { into: &mut self.0, until: Time::NEVER };
        }
        let message = self.0.messages().next().unwrap();
        Step::Send { bytes: &message[self.1..], message: message.len() }
    }
    fn on_sent(&mut self, bytes: usize, _at: Time) {
        self.1 += bytes;
        if self.1 as u64 == self.0.total_bytes() {
            self.0.clear();
        }
    }
    fn on_received(&mut self, _now: Time) {
        self.1 = 0;
    }
    fn on_timeout(&mut self, _now: Time) {}
    fn on_closed(&mut self, _now: Time) -> Result<(), Fault> {
        self.2 = true;
        Ok(())
    }
}

const LONG_TIMEOUT: Duration = Duration::from_secs(3600);

/// A link to an in-memory echo on the virtual clock, wrapped with `shape`.
fn shaped(options: &str, shape: Shape) -> (Dialer, SharedPath, ShapedLink) {
    let dialer = Registry::standard().dialer(Clock::new_virtual());
    let mut listener = dialer.listen(&"mem://echo".parse().unwrap()).unwrap();
    assert!(
        listener.set_party_factory(Box::new(|_| Box::new(Echo(Batch::new(1 << 16, 1), 0, false)))).is_ok()
    );
    let inner = dialer.open(&format!("mem://echo{options}").parse().unwrap()).unwrap();
    let path = SharedPath::new(shape, 1);
    let link = ShapedLink::new(inner, &dialer.clock, &path);
    (dialer, path, link)
}

fn receive_all(link: &mut dyn Link, bytes: usize) -> Vec<u8> {
    let mut received = Vec::new();
    while received.len() < bytes {
        let mut buffer = [0; 1000];
        let length = link.receive(&mut buffer, LONG_TIMEOUT).unwrap();
        received.extend_from_slice(&buffer[..length]);
    }
    received
}

#[test]
fn a_shaped_link_is_exact_on_the_virtual_clock() {
    let (dialer, path, mut link) =
        shaped("?delay=7ms", Shape { delay: ms(500), bits_per_second: 80_000.0, ..Shape::default() });
    for round in 1..=3 {
        link.send(&[round; 1000], LONG_TIMEOUT).unwrap();
        assert_eq!(receive_all(&mut link, 1000), [round; 1000]);
        assert_eq!(dialer.now(), at(u64::from(round) * (7 + 7 + 100 + 500)));
    }
    assert!(matches!(link.receive(&mut [0], ms(3)), Err(Fault::TimedOut)));
    assert_eq!(dialer.now(), at(3 * 614 + 3));
    assert_eq!(
        path.counters(),
        PathCounters { bytes: 3000, receive_count: 3, ..PathCounters::default() },
        "never late"
    );
    link.finish_sending().unwrap();
    assert!(matches!(link.receive(&mut [0], LONG_TIMEOUT), Err(Fault::Closed)));
    assert_eq!(dialer.now(), at(3 * 614 + 3 + 500), "the end takes as long as a byte");
}

#[test]
fn a_shaped_link_has_the_state_of_the_inner_link() {
    let (_, _, mut link) = shaped("", Shape { delay: ms(5), ..Shape::default() });
    assert!(!link.status().is_hung_up);
    link.finish_sending().unwrap();
    assert!(matches!(link.receive(&mut [0], LONG_TIMEOUT), Err(Fault::Closed)));
    assert!(link.status().is_hung_up);
}

#[test]
fn a_stream_fills_the_link_rate_with_a_bounded_queue() {
    let (dialer, path, mut link) =
        shaped("", Shape { bits_per_second: 8e6, queue_bytes: 4000, ..Shape::default() });
    let sent: Vec<u8> = (0..1_000_000u32).map(|n| (n % 251) as u8).collect();
    let (mut left, mut received) = (&sent[..], Vec::new());
    while received.len() < sent.len() {
        left = &left[link.send(left, Duration::ZERO).unwrap_or(0)..];
        let mut buffer = [0; 5000];
        if let Ok(length) = link.receive(&mut buffer, ms(1)) {
            received.extend_from_slice(&buffer[..length]);
        }
        assert!(path.lock().backlog(dialer.now()) <= 4000);
    }
    assert!(received == sent);
    assert_eq!(dialer.now(), at(1000), "a megabyte at a megabyte per second");
}

#[test]
fn a_full_queue_takes_a_little_of_every_connection() {
    // 100 ms.
    let shape = Shape { bits_per_second: 8e6, queue_bytes: 100_000, ..Shape::default() };
    let (dialer, path, mut load) = shaped("", shape);
    let inner = dialer.open(&"mem://echo".parse().unwrap()).unwrap();
    let mut probe = ShapedLink::new(inner, &dialer.clock, &path);
    // Until less than a segment is free.
    let mut fill = || {
        while path.lock().backlog(dialer.now()) <= 98_540 {
            load.send(&[1; 10_000], Duration::ZERO).unwrap_or(0);
            let _ = load.receive(&mut [0; 5_000], Duration::ZERO);
        }
    };
    fill();
    let sent = dialer.now();
    probe.send(&[2], LONG_TIMEOUT).unwrap();
    while probe.receive(&mut [0; 9], ms(1)).is_err() {
        fill();
        assert!(dialer.now() - sent <= ms(110), "it waits for more than the queue");
    }
    assert!(dialer.now() - sent >= ms(98));
}

#[test]
fn greedy_connections_have_equal_shares_of_a_full_queue() {
    // 100 ms.
    let shape = Shape { bits_per_second: 8e6, queue_bytes: 100_000, ..Shape::default() };
    let (dialer, path, mut first) = shaped("", shape);
    let inner = dialer.open(&"mem://echo".parse().unwrap()).unwrap();
    let mut second = ShapedLink::new(inner, &dialer.clock, &path);
    let mut received = [0; 2];
    while dialer.now() < at(3_000) {
        // The first one comes first, always.
        for (link, received) in [&mut first, &mut second].into_iter().zip(&mut received) {
            link.send(&[1; 10_000], Duration::ZERO).unwrap_or(0);
            for _ in 0..3 {
                *received += link.receive(&mut [0; 5_000], Duration::ZERO).unwrap_or(0);
            }
        }
        dialer.clock.sleep_until(dialer.now() + ms(1));
    }
    let [less, more] = [received.iter().min().unwrap(), received.iter().max().unwrap()];
    assert!(less + more > 2_800_000, "the line is busy: {received:?}");
    assert!(10 * less > 9 * more, "{received:?}");
    // A connection that ends has no share any more.
    drop(first);
    assert!(path.lock().held_up_streams <= 1);
    drop(second);
    assert_eq!(path.lock().held_up_streams, 0);
}

#[test]
fn handles_share_data_in_flight() {
    let (dialer, _, mut link) = shaped("?type=message", Shape { delay: ms(5), ..Shape::default() });
    link.send(b"one", LONG_TIMEOUT).unwrap();
    assert!(matches!(link.receive(&mut [0; 9], ms(1)), Err(Fault::TimedOut)));
    assert!(!link.is_empty());
    let mut half = link.second_handle().unwrap();
    assert_eq!(half.receive(&mut [0; 9], LONG_TIMEOUT).unwrap(), 3);
    assert_eq!((dialer.now(), link.is_empty()), (at(5), true));
}

#[test]
fn data_in_flight_takes_bounded_memory() {
    for options in ["", "?type=message"] {
        let (_, path, mut link) = shaped(options, Shape { delay: LONG_TIMEOUT, ..Shape::default() });
        for _ in 0..(MAX_LINK_IN_FLIGHT_BYTES / 60_000 + 20) {
            link.send(&[0; 60_000], Duration::ZERO).unwrap_or(0);
            assert!(matches!(link.receive(&mut [0], Duration::ZERO), Err(Fault::TimedOut)));
        }
        let in_flight = path.lock().in_flight_bytes;
        assert!(
            (MAX_LINK_IN_FLIGHT_BYTES - 200_000..=MAX_LINK_IN_FLIGHT_BYTES + 66_000).contains(&in_flight),
            "{options}: {in_flight}"
        );
        drop(link);
        assert_eq!(path.lock().in_flight_bytes, 0);
    }
}

/// The delays of messages of 1000 bytes for 10 s, `per_second` on a line that carries 1000 of them in a second.
fn delays_at_rate(per_second: u64, queue_management: QueueManagement) -> (Vec<Duration>, PathCounters) {
    let shape = Shape { bits_per_second: 8e6, queue_bytes: 200_000, queue_management, ..Shape::default() };
    let mut path = path(shape);
    let mut delays = Vec::new();
    for number in 0..10 * per_second {
        let now = Time(number * 1_000_000_000 / per_second);
        let mut pipe = ShapedPipe::new(Framing::Message);
        pipe.send(&mut path, &[0; 1000], now);
        delays.extend(pipe.next_due().map(|due| due.since(now)));
    }
    (delays, path.counters)
}

#[test]
fn codel_keeps_the_queue_short_and_the_line_busy() {
    // 10 % more than the line carries, as a sender that adapts would probe.
    let (full, counters) = delays_at_rate(1100, QueueManagement::TailDrop);
    assert!(full.iter().max() > Some(&ms(190)) && counters.managed == 0);
    let (managed, counters) = delays_at_rate(1100, QueueManagement::Codel);
    assert!(counters.managed > 100 && counters.dropped == 0, "{counters:?}");
    assert!(managed.len() > 9_700, "the line stays busy: {}", managed.len());
    // A sender that does not react is controlled slowly: the interval shrinks with each drop.
    let late = &managed[managed.len() / 2..];
    let mut sorted = late.to_vec();
    sorted.sort_unstable();
    assert!(sorted[sorted.len() / 2] < ms(100), "{:?}", sorted[sorted.len() / 2]);
    // Below the rate nothing is dropped.
    let (free, counters) = delays_at_rate(900, QueueManagement::Codel);
    assert_eq!((free.len(), counters.managed), (9_000, 0));
}

#[test]
fn codel_lets_a_stream_wait_for_what_the_line_sends_in_5_ms() {
    let shape = Shape {
        bits_per_second: 8e6,
        queue_bytes: 200_000,
        queue_management: QueueManagement::Codel,
        ..Shape::default()
    };
    let mut path = path(shape);
    assert_eq!(path.free_bytes(at(0)), 5_000);
    let mut pipe = ShapedPipe::new(Framing::Stream);
    pipe.send(&mut path, &[0; 5_000], at(0));
    assert_eq!((path.free_bytes(at(0)), path.free_bytes(at(2))), (0, 2_000));
    let slow = Shape { bits_per_second: 1e6, ..path.shape().clone() };
    assert_eq!(ShapedPath::new(slow, 1).free_bytes(at(0)), 2 * 1514);
}
