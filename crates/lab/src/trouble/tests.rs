//! Each fault on the virtual clock: when the reply to a message arrives.

use std::time::Duration;

use super::*;
use linkgauge_engine::Registry;
use linkgauge_engine::link::Link;
use linkgauge_model::clock::Clock;

const MS: Duration = Duration::from_millis(1);

/// A client of a server with these faults.
struct Client {
    _server: TroubledServer,
    dialer: Dialer,
    link: Box<dyn Link>,
}

impl Client {
    fn of(faults: Faults) -> Client {
        let dialer = Registry::standard().dialer(Clock::new_virtual());
        let listen: Vec<Endpoint> = vec!["mem://trouble".parse().unwrap()];
        let options = TroubleOptions { listen, faults, seed: 1, ..TroubleOptions::default() };
        let server = TroubledServer::start(&options, dialer.clone()).unwrap();
        let link = dialer.open(&options.listen[0]).unwrap();
        Client { _server: server, dialer, link }
    }

    /// The chunks of the reply to 10 bytes, and the time until the last one.
    pub fn round_trip(&mut self) -> (Vec<usize>, Duration) {
        let began = self.dialer.now();
        assert_eq!(self.link.send(&[7; 10], MS).unwrap(), 10);
        let (mut chunks, mut room) = (Vec::new(), [0; 100]);
        while chunks.iter().sum::<usize>() < 10 {
            chunks.push(self.link.receive(&mut room, 1000 * MS).unwrap());
        }
        (chunks, self.dialer.now() - began)
    }

    /// Times of round trips that follow each other at once, in milliseconds.
    fn times_ms(&mut self, count: usize) -> Vec<u128> {
        (0..count).map(|_| self.round_trip().1.as_millis()).collect()
    }

    fn wait_until_ms(&self, ms: u32) {
        self.dialer.clock.sleep_until(Time(0) + ms * MS);
    }
}

#[test]
fn without_a_fault_it_is_an_echo() {
    assert_eq!(Client::of(Faults::default()).round_trip(), (vec![10], Duration::ZERO));
}

#[test]
fn a_reply_is_delayed_and_split() {
    let mut client = Client::of(Faults { delay: 3 * MS, split_write_bytes: Some(4), ..Faults::default() });
    let (chunks, time) = client.round_trip();
    assert_eq!(time, 3 * MS);
    assert!(chunks.iter().all(|chunk| *chunk <= 10) && chunks.iter().sum::<usize>() == 10);
}

#[test]
fn writes_are_split_on_streams_only() {
    let faults = Faults { split_write_bytes: Some(4), ..Faults::default() };
    let writes = |caps: &Caps| {
        let mut party = TroubledEcho::new(faults, caps, 1);
        party.tuning = None;
        party.batch.bytes[..10].copy_from_slice(&[7; 10]);
        party.batch.push_span(0, 10);
        party.on_received(Time(0));
        let mut writes = Vec::new();
        while let Step::Send { bytes, .. } = party.next_step(Time(0)) {
            let length = bytes.len();
            writes.push(length);
            party.on_sent(length, Time(0));
        }
        writes
    };
    assert_eq!(writes(&Caps::STREAM), [4, 4, 2]);
    let messages = Caps { framing: Framing::Message, max_message_bytes: Some(100), ..Caps::STREAM };
    assert_eq!(writes(&messages), [10]);
}

#[test]
fn a_share_of_the_replies_is_paused() {
    let mut client = Client::of(Faults { pause: Some((50 * MS, 0.1)), ..Faults::default() });
    let times = client.times_ms(1000);
    assert!(times.iter().all(|time| [0, 50].contains(time)));
    let paused = times.iter().filter(|time| **time == 50).count();
    assert!((70..130).contains(&paused), "{paused}");
}

#[test]
fn input_waits_for_the_poll_and_replies_for_the_tick() {
    for faults in [
        Faults { poll: Some(20 * MS), ..Faults::default() },
        Faults { tick: Some(20 * MS), ..Faults::default() },
    ] {
        let mut client = Client::of(faults);
        client.wait_until_ms(5);
        // The first arrives 15 ms before the tick; each next one just after a tick.
        assert_eq!(client.times_ms(3)[0], 15, "{faults:?}");
        client.wait_until_ms(119);
        assert_eq!(client.times_ms(1), [1], "{faults:?}");
    }
}

#[test]
fn a_poll_reads_although_the_clock_wakes_it_late() {
    let mut party = TroubledEcho::new(Faults { poll: Some(20 * MS), ..Faults::default() }, &Caps::STREAM, 1);
    party.tuning = None;
    assert!(matches!(party.next_step(Time(0) + 5 * MS), Step::Sleep(until) if until == Time(0) + 20 * MS));
    assert!(matches!(party.next_step(Time(0) + 21 * MS), Step::Receive { .. }));
}

#[test]
fn nothing_moves_during_a_stall() {
    let mut client = Client::of(Faults { stall: Some((50 * MS, 1000 * MS)), ..Faults::default() });
    client.wait_until_ms(100);
    assert_eq!(client.times_ms(2), [0, 0]);
    client.wait_until_ms(1010);
    assert_eq!(client.times_ms(2), [40, 0]);
}

#[test]
fn only_the_first_reply_after_a_pause_is_late() {
    let mut client = Client::of(Faults { after_idle: Some((100 * MS, 40 * MS)), ..Faults::default() });
    assert_eq!(client.times_ms(2), [0, 0]);
    client.wait_until_ms(200);
    assert_eq!(client.times_ms(2), [40, 0]);
}

#[test]
fn a_slow_reader_takes_its_rate() {
    // 80 kbit/s: 10 bytes a millisecond. The reply leaves at once, the next read waits.
    let mut client = Client::of(Faults { read_bps: Some(80e3), ..Faults::default() });
    assert_eq!(client.times_ms(3), [0, 1, 1]);
}

#[test]
fn contradictions_are_refused() {
    let tick = Some(Duration::ZERO);
    for faults in [
        Faults { stall: Some((MS, MS)), ..Faults::default() },
        Faults { poll: tick, ..Faults::default() },
        Faults { tick, ..Faults::default() },
        Faults { split_write_bytes: Some(0), ..Faults::default() },
        Faults { read_bps: Some(0.0), ..Faults::default() },
    ] {
        assert!(faults.check().is_err(), "{faults:?}");
    }
    let error = BusyCpus::start(&[100_000]).err().unwrap().to_string();
    assert!(error.starts_with("CPU 100000: this process may use CPUs ["), "{error}");
}
