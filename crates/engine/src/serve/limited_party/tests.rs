//! Parties that exceed each limit, on virtual time.

use std::sync::{Arc, Mutex};

use super::*;
use crate::link::Batch;
use crate::serve::client_id::ClientId;
use crate::serve::rate_limiter::RateLimiter;

/// The script of a party and its events.
struct ScriptedParty {
    batch: Batch,
    is_sending: bool,
    standing: ClientTrust,
    events: Arc<Mutex<Vec<String>>>,
}

impl Party for ScriptedParty {
    fn next_step(&mut self, _now: Time) -> Step<'_> {
        match self.is_sending {
            true => Step::Send { bytes: &self.batch.bytes, message: self.batch.bytes.len() },
            false => Step::Receive { into: &mut self.batch, until: Time::NEVER },
        }
    }

    fn on_sent(&mut self, _bytes: usize, _at: Time) {}

    fn on_received(&mut self, _now: Time) {
        self.events.lock().unwrap().push("received".to_owned());
    }

    fn on_timeout(&mut self, _now: Time) {}

    fn client_trust(&self) -> ClientTrust {
        self.standing
    }

    fn on_stopped(&mut self, reason: StopReason) {
        self.events.lock().unwrap().push(reason.message().to_owned());
    }
}

const SECOND_NS: u64 = 1_000_000_000;

const LIMITS: PartyLimits = PartyLimits {
    idle_timeout: Duration::from_secs(10),
    max_duration: Duration::from_secs(60),
    max_message_bytes: 500,
};

const DATAGRAMS: Caps = Caps {
    framing: Framing::Message,
    max_message_bytes: Some(1000),
    is_reliable: false,
    can_signal_close: false,
    ..Caps::STREAM
};

type EventLog = Arc<Mutex<Vec<String>>>;

/// A limited party that sends 100 bytes at a time, or receives.
fn limited_party(caps: &Caps, sends: bool, standing: ClientTrust) -> (LimitedParty, EventLog) {
    let seen = EventLog::default();
    let party =
        ScriptedParty { batch: Batch::new(100, 1), is_sending: sends, standing, events: seen.clone() };
    (LimitedParty::new(Box::new(party), caps, LIMITS), seen)
}

/// Delivers input, as the loop does.
fn deliver(guard: &mut LimitedParty, bytes: usize, now: Time) {
    assert!(matches!(guard.next_step(now), Step::Receive { .. }));
    guard.on_arriving(bytes as u64, bytes, now);
    guard.on_received(now);
}

fn failed(step: Step) -> String {
    let Step::Fail(fault) = step else { panic!("it goes on") };
    fault.to_string()
}

#[test]
fn a_silent_client_is_stopped_after_the_idle_timeout() {
    for caps in [Caps::STREAM, DATAGRAMS] {
        let (mut guard, seen) = limited_party(&caps, false, ClientTrust::Unverified);
        deliver(&mut guard, 10, Time(0));
        deliver(&mut guard, 10, Time(9 * SECOND_NS));
        let Step::Receive { until, .. } = guard.next_step(Time(10 * SECOND_NS)) else { panic!("it listens") };
        assert_eq!(until, Time(19 * SECOND_NS));
        assert!(matches!(guard.next_step(Time(19 * SECOND_NS)), Step::Done));
        assert_eq!(seen.lock().unwrap().last().unwrap(), "no data moved for longer than this server waits");
    }
}

#[test]
fn a_client_that_never_reads_is_stopped_after_the_idle_timeout() {
    for standing in [ClientTrust::Unverified, ClientTrust::AddressVerified, ClientTrust::Exempt] {
        let (mut guard, _) = limited_party(&Caps::STREAM, true, standing);
        for second in 0..5 {
            assert!(matches!(guard.next_step(Time(second * SECOND_NS)), Step::Send { .. }));
            guard.on_sent(100, Time(second * SECOND_NS));
        }
        // From here on the link takes nothing.
        for second in 5..14 {
            assert!(matches!(guard.next_step(Time(second * SECOND_NS)), Step::Send { .. }), "{standing:?}");
        }
        let _ = guard.next_step(Time(15 * SECOND_NS));
        assert!(matches!(guard.next_step(Time(15 * SECOND_NS)), Step::Done), "{standing:?}");
    }
}

#[test]
fn sent_datagrams_do_not_count_as_activity() {
    let (mut guard, _) = limited_party(&DATAGRAMS, true, ClientTrust::AddressVerified);
    let mut now = Time(0);
    while let Step::Send { .. } = guard.next_step(now) {
        guard.on_sent(100, now);
        now = Time(now.0 + SECOND_NS);
        assert!(now < Time(30 * SECOND_NS), "it goes on for ever");
    }
    assert_eq!(now, Time(10 * SECOND_NS));
}

#[test]
fn exempt_clients_may_be_silent() {
    let (mut guard, _) = limited_party(&DATAGRAMS, true, ClientTrust::Exempt);
    for second in 0..1000 {
        assert!(matches!(guard.next_step(Time(second * SECOND_NS)), Step::Send { .. }));
        guard.on_sent(100, Time(second * SECOND_NS));
    }
}

#[test]
fn a_connection_ends_after_the_longest_time() {
    let (mut guard, seen) = limited_party(&Caps::STREAM, false, ClientTrust::Unverified);
    for second in 0..60 {
        deliver(&mut guard, 10, Time(second * SECOND_NS));
    }
    assert_eq!(failed(guard.next_step(Time(60 * SECOND_NS))), "longer than this server allows");
    assert_eq!(seen.lock().unwrap().last().unwrap(), "longer than this server allows");
}

#[test]
fn an_unverified_sender_gets_no_more_than_it_sent() {
    let (mut listening, _) = limited_party(&DATAGRAMS, false, ClientTrust::Unverified);
    deliver(&mut listening, 99, Time(0));
    let (mut forged, _) = limited_party(&DATAGRAMS, true, ClientTrust::Unverified);
    (forged.received_bytes, forged.sent_bytes) = (listening.received_bytes, listening.sent_bytes);
    assert!(matches!(forged.next_step(Time(0)), Step::Sleep(_)), "100 bytes for 99");
    assert!(failed(forged.next_step(Time(0))).contains("no more than it sent"));
    for (caps, standing) in
        [(DATAGRAMS, ClientTrust::AddressVerified), (Caps::STREAM, ClientTrust::Unverified)]
    {
        assert!(matches!(limited_party(&caps, true, standing).0.next_step(Time(0)), Step::Send { .. }));
    }
}

#[test]
fn a_message_is_no_longer_than_allowed() {
    let messages = Caps { can_signal_close: true, is_reliable: true, ..DATAGRAMS };
    let (mut guard, seen) = limited_party(&messages, false, ClientTrust::Unverified);
    deliver(&mut guard, 500, Time(0));
    deliver(&mut guard, 501, Time(0));
    assert_eq!(failed(guard.next_step(Time(0))), "a message is longer than this server allows");
    assert_eq!(seen.lock().unwrap().iter().filter(|event| *event == "received").count(), 1);
}

#[test]
fn streams_wait_and_datagrams_are_dropped_beyond_the_rate() {
    let rates = Arc::new(RateLimiter::new(8e6));
    let meter = || Some(rates.meter(&ClientId::from_sender("192.0.2.7:1")));
    // A megabyte per second, and a burst of a quarter of that.
    let (stream, seen) = limited_party(&Caps::STREAM, false, ClientTrust::Unverified);
    let mut stream = stream.with_rate_meter(meter());
    deliver(&mut stream, 1_020_000, Time(0));
    let Step::Sleep(until) = stream.next_step(Time(0)) else { panic!("it reads on") };
    assert_eq!(until, Time(750_000_000));
    assert!(matches!(stream.next_step(until), Step::Receive { .. }));
    assert_eq!(seen.lock().unwrap().len(), 1);
    // Another connection of the same source shares the rate.
    let (datagrams, seen) = limited_party(&DATAGRAMS, false, ClientTrust::Unverified);
    let mut datagrams = datagrams.with_rate_meter(meter());
    deliver(&mut datagrams, 100, Time(0));
    assert!(seen.lock().unwrap().is_empty(), "dropped");
    deliver(&mut datagrams, 100, until);
    assert_eq!(seen.lock().unwrap().len(), 1);
    let (sender, _) = limited_party(&DATAGRAMS, true, ClientTrust::AddressVerified);
    let mut sender = sender.with_rate_meter(meter());
    assert!(matches!(sender.next_step(Time(0)), Step::Sleep(_)), "what goes out waits");
}
