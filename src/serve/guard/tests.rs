//! What a guard does with parties that break each limit, on made-up time.

use std::sync::{Arc, Mutex};

use super::*;
use crate::link::Batch;
use crate::serve::rates::Rates;
use crate::serve::source::Source;

/// What a party does, and what it saw.
struct Told {
    batch: Batch,
    sends: bool,
    standing: Standing,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Party for Told {
    fn next(&mut self, _now: Time) -> Step<'_> {
        match self.sends {
            true => Step::Send { bytes: &self.batch.bytes, message: self.batch.bytes.len() },
            false => Step::Receive { into: &mut self.batch, until: Time::NEVER },
        }
    }

    fn sent(&mut self, _bytes: usize, _at: Time) {}

    fn received(&mut self, _now: Time) {
        self.seen.lock().unwrap().push("received".to_owned());
    }

    fn timed_out(&mut self, _now: Time) {}

    fn standing(&self) -> Standing {
        self.standing
    }

    fn stopped(&mut self, reason: &'static str) {
        self.seen.lock().unwrap().push(reason.to_owned());
    }
}

const SECOND: u64 = 1_000_000_000;

const RULES: Rules =
    Rules { idle: Duration::from_secs(10), longest: Duration::from_secs(60), message_bytes: 500 };

const DATAGRAMS: Caps = Caps {
    framing: Framing::Message,
    max_message: Some(1000),
    reliable: false,
    closes: false,
    ..Caps::STREAM
};

type Seen = Arc<Mutex<Vec<String>>>;

/// A guard of a party that sends 100 bytes at a time, or listens.
fn guard(caps: &Caps, sends: bool, standing: Standing) -> (Guard, Seen) {
    let seen = Seen::default();
    let told = Told { batch: Batch::new(100, 1), sends, standing, seen: seen.clone() };
    (Guard::new(Box::new(told), caps, RULES), seen)
}

/// Lets something arrive, as the loop does.
fn arrive(guard: &mut Guard, bytes: usize, now: Time) {
    assert!(matches!(guard.next(now), Step::Receive { .. }));
    guard.arriving(bytes as u64, bytes, now);
    guard.received(now);
}

fn failed(step: Step) -> String {
    let Step::Fail(fault) = step else { panic!("it goes on") };
    fault.to_string()
}

#[test]
fn a_client_that_says_nothing_is_ended_after_the_idle_time() {
    for caps in [Caps::STREAM, DATAGRAMS] {
        let (mut guard, seen) = guard(&caps, false, Standing::Guest);
        arrive(&mut guard, 10, Time(0));
        arrive(&mut guard, 10, Time(9 * SECOND));
        let Step::Receive { until, .. } = guard.next(Time(10 * SECOND)) else { panic!("it listens") };
        assert_eq!(until, Time(19 * SECOND));
        assert!(matches!(guard.next(Time(19 * SECOND)), Step::Done));
        assert_eq!(seen.lock().unwrap().last().unwrap(), "nothing moved for longer than this server waits");
    }
}

#[test]
fn a_client_that_never_reads_is_ended_after_the_idle_time() {
    for standing in [Standing::Guest, Standing::Proved, Standing::Vouched] {
        let (mut guard, _) = guard(&Caps::STREAM, true, standing);
        for second in 0..5 {
            assert!(matches!(guard.next(Time(second * SECOND)), Step::Send { .. }));
            guard.sent(100, Time(second * SECOND));
        }
        // From here on the link takes nothing, however often it is offered.
        for second in 5..14 {
            assert!(matches!(guard.next(Time(second * SECOND)), Step::Send { .. }), "{standing:?}");
        }
        let _ = guard.next(Time(15 * SECOND));
        assert!(matches!(guard.next(Time(15 * SECOND)), Step::Done), "{standing:?}");
    }
}

#[test]
fn own_sending_is_no_sign_of_life_where_nobody_acknowledges() {
    let (mut guard, _) = guard(&DATAGRAMS, true, Standing::Proved);
    let mut now = Time(0);
    while let Step::Send { .. } = guard.next(now) {
        guard.sent(100, now);
        now = Time(now.0 + SECOND);
        assert!(now < Time(30 * SECOND), "it goes on for ever");
    }
    assert_eq!(now, Time(10 * SECOND));
}

#[test]
fn who_is_vouched_for_may_be_silent_and_stay() {
    let (mut guard, _) = guard(&DATAGRAMS, true, Standing::Vouched);
    for second in 0..1000 {
        assert!(matches!(guard.next(Time(second * SECOND)), Step::Send { .. }));
        guard.sent(100, Time(second * SECOND));
    }
}

#[test]
fn a_connection_ends_after_the_longest_time() {
    let (mut guard, seen) = guard(&Caps::STREAM, false, Standing::Guest);
    for second in 0..60 {
        arrive(&mut guard, 10, Time(second * SECOND));
    }
    assert_eq!(failed(guard.next(Time(60 * SECOND))), "longer than this server allows");
    assert_eq!(seen.lock().unwrap().last().unwrap(), "longer than this server allows");
}

#[test]
fn a_sender_that_may_be_forged_gets_no_more_than_it_sent() {
    let (mut listening, _) = guard(&DATAGRAMS, false, Standing::Guest);
    arrive(&mut listening, 99, Time(0));
    let (mut forged, _) = guard(&DATAGRAMS, true, Standing::Guest);
    (forged.got, forged.given) = (listening.got, listening.given);
    assert!(matches!(forged.next(Time(0)), Step::Sleep(_)), "100 bytes for 99");
    assert!(failed(forged.next(Time(0))).contains("no more than it sends"));
    for (caps, standing) in [(DATAGRAMS, Standing::Proved), (Caps::STREAM, Standing::Guest)] {
        assert!(matches!(guard(&caps, true, standing).0.next(Time(0)), Step::Send { .. }));
    }
}

#[test]
fn a_message_is_no_longer_than_allowed() {
    let messages = Caps { closes: true, reliable: true, ..DATAGRAMS };
    let (mut guard, seen) = guard(&messages, false, Standing::Guest);
    arrive(&mut guard, 500, Time(0));
    arrive(&mut guard, 501, Time(0));
    assert_eq!(failed(guard.next(Time(0))), "a message is longer than this server allows");
    assert_eq!(seen.lock().unwrap().iter().filter(|event| *event == "received").count(), 1);
}

#[test]
fn streams_wait_and_datagrams_are_dropped_beyond_the_rate() {
    let rates = Arc::new(Rates::new(8e6));
    let meter = || Some(rates.meter(&Source::of("192.0.2.7:1")));
    // A megabyte a second, and a quarter of that at once.
    let (stream, seen) = guard(&Caps::STREAM, false, Standing::Guest);
    let mut stream = stream.metered(meter());
    arrive(&mut stream, 1_020_000, Time(0));
    let Step::Sleep(until) = stream.next(Time(0)) else { panic!("it reads on") };
    assert_eq!(until, Time(750_000_000));
    assert!(matches!(stream.next(until), Step::Receive { .. }));
    assert_eq!(seen.lock().unwrap().len(), 1);
    // Another connection of the same source shares the rate.
    let (datagrams, seen) = guard(&DATAGRAMS, false, Standing::Guest);
    let mut datagrams = datagrams.metered(meter());
    arrive(&mut datagrams, 100, Time(0));
    assert!(seen.lock().unwrap().is_empty(), "dropped");
    arrive(&mut datagrams, 100, until);
    assert_eq!(seen.lock().unwrap().len(), 1);
    let (sender, _) = guard(&DATAGRAMS, true, Standing::Proved);
    let mut sender = sender.metered(meter());
    assert!(matches!(sender.next(Time(0)), Step::Sleep(_)), "what goes out waits");
}
