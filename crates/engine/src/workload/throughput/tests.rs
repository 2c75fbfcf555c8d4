//! Timeouts of source and sink as state machines.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::keepalive::KEEPALIVE_INTERVAL;
use super::sender_limits::MIN_QUIET_TIME;
use super::*;
use crate::link::party::{Party, PartyCost, Step};
use crate::link::{Fault, own_socket};
use crate::protocol::Registry;
use crate::workload::{Load, RecordingParty};
use linkgauge_model::clock::{Clock, Time};
use linkgauge_model::plan::StopCondition;
use linkgauge_model::sample::Recorder;
use socket2::SockRef;

fn load(message_bytes: u32) -> Load {
    Load { timeout: Duration::from_secs(5), ..Load::endless(message_bytes) }
}

/// Delivers a message of 1400 bytes with this number.
fn message(sink: &mut Sink, number: u64, now: Time) {
    let Step::Receive { into, .. } = sink.next_step(now) else { panic!("it listens") };
    into.clear();
    into.bytes[..8].copy_from_slice(&number.to_le_bytes());
    into.push_span(0, 1400);
    sink.on_received(now);
}

/// Time for which a sink waits for more after its first message.
fn receive_timeout(closes: bool) -> Duration {
    let caps = Caps {
        framing: Framing::Message,
        max_message_bytes: Some(65_536),
        can_signal_close: closes,
        can_half_close: false,
        ..Caps::STREAM
    };
    let mut sink = Sink::new(&load(1400), &caps, Recorder::for_counting());
    assert!(matches!(sink.next_step(Time(0)), Step::Tune(_)));
    message(&mut sink, 0, Time(0));
    let Step::Receive { until, .. } = sink.next_step(Time(0)) else { panic!("it goes on") };
    sink.on_timeout(until);
    assert_eq!(matches!(sink.next_step(until), Step::Fail(Fault::TimedOut)), closes);
    until - Time(0)
}

#[test]
fn a_pause_ends_a_flow_only_on_links_without_close() {
    assert_eq!(receive_timeout(false), MIN_QUIET_TIME);
    assert_eq!(receive_timeout(true), Duration::from_secs(5));
}

#[test]
fn strange_messages_are_no_reason_to_wait_on() {
    let caps = Caps {
        framing: Framing::Message,
        max_message_bytes: Some(65_536),
        can_signal_close: false,
        ..Caps::STREAM
    };
    for looped in [false, true] {
        let mut sink = Sink::new(&load(1400), &caps, Recorder::for_counting());
        if looped {
            sink = sink.looped(&caps, Arc::default());
        }
        assert!(matches!(sink.next_step(Time(0)), Step::Tune(_)));
        message(&mut sink, 0, Time(0));
        let mut now = Time(0);
        while let Step::Receive { .. } = sink.next_step(now) {
            if now >= Time(0) + MIN_QUIET_TIME {
                sink.on_timeout(now);
                continue;
            }
            now = now + MIN_QUIET_TIME / 100;
            message(&mut sink, u64::MAX, now);
        }
        assert_eq!(now, Time(0) + MIN_QUIET_TIME, "{looped}");
    }
}

#[test]
fn a_loop_that_brings_back_a_little_for_ever_is_left() {
    let planned = StopCondition::after_time(Duration::from_secs(10));
    let load = Load { stop: planned, ..load(1000) };
    let looped = Arc::<LoopbackState>::default();
    looped.sent_bytes.store(1_000_000, Relaxed);
    let mut sink = Sink::new(&load, &Caps::STREAM, Recorder::for_counting());
    sink = sink.looped(&Caps::STREAM, looped);
    assert!(matches!(sink.next_step(at(0)), Step::Tune(_)));
    for second in 0..=41 {
        let Step::Receive { into, .. } = sink.next_step(at(second)) else { panic!("{second}") };
        into.clear();
        into.push_span(0, 1);
        sink.on_received(at(second));
    }
    assert!(matches!(sink.next_step(at(41)), Step::Fail(Fault::LimitReached(_))));
    sink.on_ended(PartyCost::default());
    assert!(sink.recorder().counts.is_interrupted);
    assert_eq!(sink.recorder().counts.lost_bytes, 0, "the rest may still be on its way");
}

#[test]
fn what_arrives_long_after_the_planned_time_is_left() {
    let load = Load { stop: StopCondition::after_time(Duration::from_secs(1)), ..load(1000) };
    {
        let mut sink = Sink::new(&load, &Caps::STREAM, Recorder::for_counting());
        assert!(matches!(sink.next_step(at(0)), Step::Tune(_)));
        let mut seconds = 0;
        while let Step::Receive { into, .. } = sink.next_step(at(seconds)) {
            into.clear();
            into.push_span(0, 1000);
            sink.on_received(at(seconds));
            seconds += 1;
        }
        // Its time, and six times that for what the buffers of a link hold.
        assert_eq!(seconds, 9);
        assert!(matches!(sink.next_step(at(seconds)), Step::Done));
        sink.on_ended(PartyCost::default());
        assert!(sink.recorder().counts.is_interrupted, "the rest may still be on its way");
    }
}

/// No input shows that the sender ends after its last byte has returned.
#[test]
fn a_loop_ends_soon_after_its_sender() {
    let looped = Arc::<LoopbackState>::default();
    looped.sent_bytes.store(10, Relaxed);
    let mut sink = Sink::new(&load(1000), &Caps::STREAM, Recorder::for_counting());
    sink = sink.looped(&Caps::STREAM, looped.clone());
    assert!(matches!(sink.next_step(at(0)), Step::Tune(_)));
    let Step::Receive { into, until } = sink.next_step(at(0)) else { panic!("it waits for the bytes") };
    assert!(until >= at(1));
    into.clear();
    into.push_span(0, 10);
    sink.on_received(at(0));
    assert!(matches!(sink.next_step(at(0)), Step::Receive { until, .. } if until < at(1)));
    looped.is_all_sent.store(true, Relaxed);
    assert!(matches!(sink.next_step(at(1)), Step::Done));
}

fn at(seconds: u64) -> Time {
    Time(seconds * 1_000_000_000)
}

#[test]
fn a_draining_link_is_not_stalled() {
    let mut source = Source::new(&load(1000), &Caps::STREAM, Recorder::for_counting());
    assert!(matches!(source.next_step(at(0)), Step::Tune(_)));
    assert!(matches!(source.next_step(at(0)), Step::Send { .. }));
    source.on_sent(1000, at(0));
    // A satellite link accepts nothing for a while, but its queue shrinks.
    for second in 1..60 {
        source.on_send_blocked(at(second), Some(100_000 - second));
        assert!(matches!(source.next_step(at(second)), Step::Send { .. }), "{second}");
    }
    for second in 60..=64 {
        source.on_send_blocked(at(second), Some(100_000 - 59));
        assert!(matches!(source.next_step(at(second)), Step::Send { .. }), "{second}");
    }
    source.on_send_blocked(at(65), Some(100_000 - 59));
    assert!(matches!(source.next_step(at(65)), Step::Fail(Fault::TimedOut)));
}

#[test]
fn a_connectionless_receiver_sends_keepalives() {
    let caps = Caps {
        framing: Framing::Message,
        max_message_bytes: Some(65_507),
        can_signal_close: false,
        ..Caps::STREAM
    };
    let mut sink = Sink::new(&load(1400), &caps, Recorder::for_counting());
    sink = sink.with_keepalive(b"here".to_vec());
    assert!(matches!(sink.next_step(at(0)), Step::Tune(_)));
    let (mut now, mut signs) = (at(0), 0);
    // The same without any data; the sink still waits for the full timeout.
    loop {
        match sink.next_step(now) {
            Step::Send { bytes, .. } => {
                assert_eq!(bytes, b"here");
                sink.on_sent(4, now);
                signs += 1;
            }
            Step::Receive { until, .. } => {
                assert!(until.since(now) <= KEEPALIVE_INTERVAL);
                now = until;
                sink.on_timeout(now);
            }
            Step::Fail(Fault::TimedOut) => break,
            _ => panic!("neither"),
        }
    }
    assert_eq!((now, signs), (at(5), 25));
}

/// Limits of unsent bytes of a TCP link at the start, and after 20 MiB of which each took `per_mebibyte`.
fn unsent_limits(options: &str, per_mebibyte: Duration, stop: StopCondition) -> [u32; 2] {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("tcp://{}{options}", listener.local_addr().unwrap());
    let link = Registry::standard().dialer(Clock::System).open(&url.parse().unwrap()).unwrap();
    let limit = || SockRef::from(&own_socket(link.as_ref()).unwrap()).tcp_notsent_lowat().unwrap();
    let load = Load { stop, ..load(1 << 20) };
    let mut source = Source::new(&load, &Caps::STREAM, Recorder::for_counting());
    let mut now = Time(0);
    assert!(matches!(source.next_step(now), Step::Tune(_)));
    source.on_tuned(link.as_ref());
    let first = limit();
    for _ in 0..20 {
        match source.next_step(now) {
            Step::Tune(_) => source.on_tuned(link.as_ref()),
            Step::Send { .. } => source.on_sent(1 << 20, now),
            _ => panic!("it sends"),
        }
        now = now + per_mebibyte;
    }
    [first, limit()]
}

#[test]
fn only_a_fast_link_may_hold_any_number_of_bytes_unsent() {
    let timed = StopCondition { time_ns: Some(60_000_000_000), ..StopCondition::default() };
    let (fast, slow) = (Duration::from_millis(10), Duration::from_millis(100));
    assert_eq!(unsent_limits("", fast, timed), [128 << 10, 0]);
    assert_eq!(unsent_limits("", slow, timed), [128 << 10, 128 << 10]);
    assert_eq!(unsent_limits("?notsent_lowat=16Ki", fast, timed), [16 << 10, 16 << 10]);
    let volume = StopCondition { volume_bytes: Some(1 << 40), ..StopCondition::default() };
    assert_eq!(unsent_limits("", slow, volume), [0, 0]);
}
