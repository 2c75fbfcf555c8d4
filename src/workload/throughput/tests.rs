//! The ends as state machines: how long they wait.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::bounds::QUIET;
use super::sign::SIGNS;
use super::*;
use crate::clock::Time;
use crate::link::Fault;
use crate::link::party::{Cost, Party, Step, Tuning};
use crate::plan::{Case, CaseSpec, OneOrMany};
use crate::sample::Recorder;
use crate::units::Bytes;
use crate::workload::Measured;

fn case(message_bytes: u64) -> Case {
    let url = Some(OneOrMany::One("mem://x".parse().unwrap()));
    let workload = Some("throughput".to_owned());
    let size = Some(OneOrMany::One(Bytes(message_bytes)));
    let case = CaseSpec { url, workload, size, ..CaseSpec::default() }.expand().unwrap().remove(0);
    Case { timeout: Duration::from_secs(5), ..case }
}

/// Lets a message of 1400 bytes with this number arrive.
fn message(sink: &mut Sink, number: u64, now: Time) {
    let Step::Receive { into, .. } = sink.next(now) else { panic!("it listens") };
    into.clear();
    into.bytes[..8].copy_from_slice(&number.to_le_bytes());
    into.push(0, 1400);
    sink.received(now);
}

/// How long a sink waits for more after its first message.
fn patience(closes: bool) -> Duration {
    let case = case(1400);
    let caps = Caps {
        framing: Framing::Message,
        max_message: Some(65_536),
        closes,
        half_closes: false,
        ..Caps::STREAM
    };
    let mut sink = Sink::new(&case, &caps, Tuning::default(), Recorder::counting());
    assert!(matches!(sink.next(Time(0)), Step::Tune(_)));
    message(&mut sink, 0, Time(0));
    let Step::Receive { until, .. } = sink.next(Time(0)) else { panic!("it goes on") };
    sink.timed_out(until);
    assert_eq!(matches!(sink.next(until), Step::Fail(Fault::TimedOut)), closes);
    until - Time(0)
}

#[test]
fn a_pause_ends_a_flow_of_messages_only_where_nothing_else_can() {
    assert_eq!(patience(false), QUIET);
    assert_eq!(patience(true), Duration::from_secs(5));
}

#[test]
fn strange_messages_are_no_reason_to_wait_on() {
    let caps = Caps { framing: Framing::Message, max_message: Some(65_536), closes: false, ..Caps::STREAM };
    for looped in [false, true] {
        let mut sink = Sink::new(&case(1400), &caps, Tuning::default(), Recorder::counting());
        if looped {
            sink = sink.looped(&caps, Arc::default());
        }
        assert!(matches!(sink.next(Time(0)), Step::Tune(_)));
        message(&mut sink, 0, Time(0));
        let mut now = Time(0);
        while let Step::Receive { .. } = sink.next(now) {
            if now >= Time(0) + QUIET {
                sink.timed_out(now);
                continue;
            }
            now = now + QUIET / 100;
            message(&mut sink, u64::MAX, now);
        }
        assert_eq!(now, Time(0) + QUIET, "{looped}");
    }
}

#[test]
fn a_loop_that_brings_back_a_little_for_ever_is_left() {
    let planned = Stop::after(Duration::from_secs(10));
    let case = Case { stop: planned, ..case(1000) };
    let looped = Arc::<Looped>::default();
    looped.sent_bytes.store(1_000_000, Relaxed);
    let mut sink = Sink::new(&case, &Caps::STREAM, Tuning::default(), Recorder::counting());
    sink = sink.looped(&Caps::STREAM, looped);
    assert!(matches!(sink.next(at(0)), Step::Tune(_)));
    for second in 0..=21 {
        let Step::Receive { into, .. } = sink.next(at(second)) else { panic!("{second}") };
        into.clear();
        into.push(0, 1);
        sink.received(at(second));
    }
    assert!(matches!(sink.next(at(21)), Step::Fail(Fault::Other(_))));
    sink.ended(Cost::default());
    assert!(sink.recorder().counts.broken_off);
    assert_eq!(sink.recorder().counts.lost_bytes, 0, "the rest may still be on its way");
}

fn at(seconds: u64) -> Time {
    Time(seconds * 1_000_000_000)
}

#[test]
fn a_link_that_empties_its_buffer_is_not_stuck() {
    let mut source = Source::new(&case(1000), &Caps::STREAM, Tuning::default(), Recorder::counting());
    assert!(matches!(source.next(at(0)), Step::Tune(_)));
    assert!(matches!(source.next(at(0)), Step::Send { .. }));
    source.sent(1000, at(0));
    // A satellite takes nothing for a while, but what it holds becomes less.
    for second in 1..60 {
        source.waits(at(second), Some(100_000 - second));
        assert!(matches!(source.next(at(second)), Step::Send { .. }), "{second}");
    }
    for second in 60..=64 {
        source.waits(at(second), Some(100_000 - 59));
        assert!(matches!(source.next(at(second)), Step::Send { .. }), "{second}");
    }
    source.waits(at(65), Some(100_000 - 59));
    assert!(matches!(source.next(at(65)), Step::Fail(Fault::TimedOut)));
}

#[test]
fn a_receiver_without_a_connection_says_that_it_is_there() {
    let caps = Caps { framing: Framing::Message, max_message: Some(65_507), closes: false, ..Caps::STREAM };
    let mut sink = Sink::new(&case(1400), &caps, Tuning::default(), Recorder::counting());
    sink = sink.with_sign(b"here".to_vec());
    assert!(matches!(sink.next(at(0)), Step::Tune(_)));
    let (mut now, mut signs) = (at(0), 0);
    // Also where nothing comes; and that is no reason to give up before the time-out.
    loop {
        match sink.next(now) {
            Step::Send { bytes, .. } => {
                assert_eq!(bytes, b"here");
                sink.sent(4, now);
                signs += 1;
            }
            Step::Receive { until, .. } => {
                assert!(until.since(now) <= SIGNS);
                now = until;
                sink.timed_out(now);
            }
            Step::Fail(Fault::TimedOut) => break,
            _ => panic!("neither"),
        }
    }
    assert_eq!((now, signs), (at(5), 25));
}
