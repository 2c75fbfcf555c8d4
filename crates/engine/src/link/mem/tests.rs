//! The link in memory on the virtual clock: exact to the nanosecond.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use super::*;
use crate::link::party::{Party, Step};
use crate::link::{Batch, Dialer};
use crate::protocol::Registry;
use linkgauge_model::clock::Clock;

/// An echo that counts messages and closes.
struct Echo {
    batch: Batch,
    offset: usize,
    seen: Arc<[AtomicUsize; 2]>,
}

impl Party for Echo {
    fn next_step(&mut self, _now: Time) -> Step<'_> {
        if self.batch.is_empty() {
            return Step::Receive { into: &mut self.batch, until: Time::NEVER };
        }
        let message = self.batch.messages().next().unwrap();
        Step::Send { bytes: &message[self.offset..], message: message.len() }
    }

    fn on_sent(&mut self, bytes: usize, _at: Time) {
        self.offset += bytes;
        if self.offset as u64 >= self.batch.total_bytes() {
            self.batch.clear();
        }
    }

    fn on_received(&mut self, _now: Time) {
        self.offset = 0;
        self.seen[0].fetch_add(1, SeqCst);
    }

    fn on_timeout(&mut self, _now: Time) {}

    fn on_closed(&mut self, _now: Time) -> Result<(), Fault> {
        self.seen[1].fetch_add(1, SeqCst);
        Err(Fault::Closed)
    }
}

const LONG_TIMEOUT: Duration = Duration::from_secs(3600);

/// A dialer on a virtual clock with an echo at `mem://echo`, and the counters of the echo.
fn net() -> (Dialer, Arc<[AtomicUsize; 2]>) {
    let dialer = Registry::standard().dialer(Clock::new_virtual());
    let seen = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    let mut listener = dialer.listen(&"mem://echo".parse().unwrap()).unwrap();
    let shared = seen.clone();
    let factory: PartyFactory =
        Box::new(move |_| Box::new(Echo { batch: Batch::new(1 << 17, 1), offset: 0, seen: shared.clone() }));
    assert!(listener.set_party_factory(factory).is_ok());
    (dialer, seen)
}

fn open(dialer: &Dialer, options: &str) -> Box<dyn Link> {
    dialer.open(&format!("mem://echo{options}").parse().unwrap()).unwrap()
}

/// The round-trip time of `bytes`.
pub fn round_trip(options: &str, bytes: usize) -> Duration {
    let (dialer, _) = net();
    let mut link = open(&dialer, options);
    assert_eq!(link.send(&vec![1; bytes], LONG_TIMEOUT).unwrap(), bytes);
    let (mut received, mut buffer) = (0, vec![0; bytes]);
    while received < bytes {
        received += link.receive(&mut buffer, LONG_TIMEOUT).unwrap();
    }
    dialer.now().since(Time(0))
}

/// Sends `count` numbered messages at once and returns the numbers in the order of their replies.
fn numbers(options: &str, count: u8) -> Vec<u8> {
    let (dialer, _) = net();
    let mut link = open(&dialer, options);
    for number in 1..=count {
        link.send(&[number; 3], LONG_TIMEOUT).unwrap();
    }
    let mut received = Vec::new();
    let mut buffer = [0; 8];
    while let Ok(3) = link.receive(&mut buffer, Duration::from_secs(1)) {
        assert!(buffer[..3].iter().all(|&byte| byte == buffer[0]));
        received.push(buffer[0]);
    }
    received
}

#[test]
fn delay_and_rate_are_exact() {
    assert_eq!(round_trip("", 1), Duration::ZERO);
    assert_eq!(round_trip("?delay=1ms", 1), Duration::from_millis(2));
    assert_eq!(round_trip("?rate=8kbit/s", 100), Duration::from_millis(200));
    assert_eq!(round_trip("?rate=8kbit/s&type=message", 100), Duration::from_millis(200));
    assert_eq!(round_trip("?rate=9600bit/s&delay=10ms&type=message", 1), Duration::from_nanos(21_666_666));
}

#[test]
fn jitter_spikes_and_slots_delay_each_connection_in_its_own_way() {
    let times = |options: &str| {
        let (dialer, _) = net();
        let mut trips = Vec::new();
        for _ in 0..2 {
            let mut link = open(&dialer, options);
            for _ in 0..50 {
                let sent = dialer.now();
                link.send(&[1], LONG_TIMEOUT).unwrap();
                link.receive(&mut [0; 8], LONG_TIMEOUT).unwrap();
                trips.push(dialer.now().since(sent).as_micros());
            }
        }
        trips
    };
    let jitter = times("?delay=1ms&jitter=200us&type=message");
    assert!(jitter.iter().all(|trip| (1600..=2400).contains(trip)), "{jitter:?}");
    assert!(jitter[..50] != jitter[50..], "connections have their own sequences");
    assert_eq!(jitter, times("?delay=1ms&jitter=200us&type=message"), "the same seed, the same delays");
    assert_ne!(jitter, times("?delay=1ms&jitter=200us&type=message&seed=1"));
    let spikes = times("?delay=1ms&spike=50ms@10%&type=message");
    let slow = spikes.iter().filter(|trip| **trip > 50_000).count();
    assert!((8..=32).contains(&slow), "19 of 100 are expected: {slow}");
    assert!(times("?delay=1ms&slot=5ms&type=message").iter().skip(1).all(|trip| *trip == 10_000));
    let (dialer, _) = net();
    assert!(dialer.open(&"mem://echo?delay=1ms&jitter=2ms".parse().unwrap()).is_err());
}

#[test]
fn a_rate_is_shared_by_what_is_sent_at_once() {
    let (dialer, _) = net();
    let mut link = open(&dialer, "?rate=8kbit/s&type=message");
    for _ in 0..3 {
        link.send(&[0; 100], LONG_TIMEOUT).unwrap();
    }
    let mut buffer = [0; 100];
    // Forward one after the other, each reply while the next request is sent: 100 ms apart.
    for expected in [200, 300, 400] {
        link.receive(&mut buffer, LONG_TIMEOUT).unwrap();
        assert_eq!(dialer.now(), Time(expected * 1_000_000));
    }
}

#[test]
fn a_full_buffer_accepts_nothing_until_it_drains() {
    let (dialer, _) = net();
    let mut link = open(&dialer, "?buffer=65536&rate=524288bit/s");
    assert_eq!(link.send(&vec![0; 100_000], LONG_TIMEOUT).unwrap(), 65_536);
    assert!(matches!(link.send(&[0], Duration::from_millis(999)), Err(Fault::TimedOut)));
    assert_eq!(dialer.now(), Time(999_000_000));
    assert_eq!(link.send(&[0], LONG_TIMEOUT).unwrap(), 1);
    assert_eq!(dialer.now(), Time(1_000_000_000), "65536 bytes at 65536 bytes per second");
}

fn direction(url: &str) -> MemDirection {
    let options = Options::from_endpoint(&url.parse().unwrap()).unwrap();
    let path = MemPath::Own(Box::new(ShapedPath::new(options.shape.clone(), 0)));
    MemDirection::new(&options, path)
}

#[test]
fn links_to_a_listener_take_the_shapes_that_the_network_gives_it() {
    let (dialer, _) = net();
    let delay = |ms| Shape { delay: Duration::from_millis(ms), ..Shape::default() };
    let lossy = Shape { loss: Occurrence::Every(2), ..delay(5) };
    dialer.memory_network.shape_links("echo", [delay(2), lossy], 1);
    let mut link = open(&dialer, "?type=message&delay=1s");
    assert!(!link.caps().is_reliable);
    let mut buffer = [0; 8];
    link.send(&[1], LONG_TIMEOUT).unwrap();
    link.send(&[2], LONG_TIMEOUT).unwrap();
    link.receive(&mut buffer, LONG_TIMEOUT).unwrap();
    assert_eq!((dialer.now(), buffer[0]), (Time(7_000_000), 1));
    assert!(matches!(link.receive(&mut buffer, Duration::from_secs(9)), Err(Fault::TimedOut)));
}

#[test]
fn every_nth_message_is_lost_doubled_or_overtaken() {
    assert_eq!(numbers("?type=message", 6), [1, 2, 3, 4, 5, 6]);
    // Each direction loses every third message: 3 and 6 forward, then of 1 2 4 5 7 8 those at positions 3 and
    // 6.
    assert_eq!(numbers("?type=message&drop=3", 8), [1, 2, 5, 7]);
    // Doubled forward: 1 2 2 3 4 4; in reverse every second of those.
    assert_eq!(numbers("?type=message&double=2", 4), [1, 2, 2, 2, 3, 3, 4, 4, 4]);
    // 4 overtakes 3 forward, and the third reply is overtaken again.
    assert_eq!(numbers("?type=message&swap=3&delay=1ms", 5), [1, 2, 3, 4, 5]);
    let mut way = direction("mem://x?type=message&swap=3&delay=1ms");
    for number in 1..=8 {
        way.send(&[number], Time(0)).unwrap();
    }
    let mut buffer = [0];
    let order = std::iter::from_fn(|| way.pipe.receive(&mut buffer, Time(1_000_000)).map(|_| buffer[0]));
    assert_eq!(order.collect::<Vec<_>>(), [1, 2, 4, 3, 5, 7, 6, 8]);
}

#[test]
fn an_arrived_message_is_not_overtaken() {
    let mut way = direction("mem://x?type=message&swap=2&delay=1ms");
    let mut buffer = [0; 4];
    for (number, now) in [(1, 0), (2, 0), (3, 1_000_000)] {
        way.send(&[number], Time(now)).unwrap();
    }
    assert_eq!(way.pipe.receive(&mut buffer, Time(999_999)), None);
    for number in [1, 2] {
        assert_eq!(way.pipe.receive(&mut buffer, Time(1_000_000)), Some(1));
        assert_eq!(buffer[0], number);
    }
    assert_eq!(way.pipe.next_due(), Some(Time(2_000_000)));
    assert_eq!(way.pipe.receive(&mut buffer, Time(2_000_000)), Some(1));

    // Number 4 is in flight when 5 is sent half a millisecond later: both arrive when 5 does.
    way.send(&[4], Time(2_000_000)).unwrap();
    way.send(&[5], Time(2_500_000)).unwrap();
    assert_eq!(way.pipe.receive(&mut buffer, Time(3_000_000)), None);
    for number in [5, 4] {
        assert_eq!(way.pipe.receive(&mut buffer, Time(3_500_000)), Some(1));
        assert_eq!(buffer[0], number);
    }
}

#[test]
fn a_timeout_is_exact() {
    let (dialer, _) = net();
    let mut link = open(&dialer, "?delay=1s");
    link.send(&[1], LONG_TIMEOUT).unwrap();
    assert!(matches!(link.receive(&mut [0], Duration::from_nanos(1_999_999_999)), Err(Fault::TimedOut)));
    assert_eq!(dialer.now(), Time(1_999_999_999));
    assert_eq!(link.receive(&mut [0], Duration::from_nanos(1)).unwrap(), 1);
}

#[test]
fn data_in_flight_arrives_after_the_link_is_dropped() {
    let (dialer, seen) = net();
    let mut link = open(&dialer, "?delay=1s&type=message");
    link.send(&[1], LONG_TIMEOUT).unwrap();
    drop(link);
    assert_eq!(seen[0].load(SeqCst), 0);
    dialer.memory_network.advance(Time::NEVER);
    assert_eq!(dialer.now(), Time(1_000_000_000));
    dialer.memory_network.advance(dialer.now());
    assert_eq!((seen[0].load(SeqCst), seen[1].load(SeqCst)), (1, 0), "its reply has no receiver");
    assert_eq!(dialer.memory_network.lock_state().connections.iter().flatten().count(), 0);
}

#[test]
fn a_server_party_starts_when_the_link_is_opened() {
    struct Begins(Arc<Mutex<Option<Time>>>);
    impl Party for Begins {
        fn next_step(&mut self, now: Time) -> Step<'_> {
            self.0.lock().unwrap().get_or_insert(now);
            Step::Done
        }
        fn on_sent(&mut self, _bytes: usize, _at: Time) {}
        fn on_received(&mut self, _now: Time) {}
        fn on_timeout(&mut self, _now: Time) {}
    }
    let dialer = Registry::standard().dialer(Clock::new_virtual());
    let began = Arc::new(Mutex::new(None));
    let shared = began.clone();
    let mut listener = dialer.listen(&"mem://late".parse().unwrap()).unwrap();
    assert!(listener.set_party_factory(Box::new(move |_| Box::new(Begins(shared.clone())))).is_ok());
    dialer.clock.sleep_until(Time(5_000));
    let mut link = dialer.open(&"mem://late".parse().unwrap()).unwrap();
    assert!(matches!(link.receive(&mut [0], LONG_TIMEOUT), Err(Fault::Closed)));
    assert_eq!(*began.lock().unwrap(), Some(Time(5_000)));
}

#[test]
fn empty_messages_are_messages() {
    let (dialer, _) = net();
    let mut link = open(&dialer, "?type=message");
    assert_eq!(link.send(&[], LONG_TIMEOUT).unwrap(), 0);
    assert_eq!(link.receive(&mut [0; 4], LONG_TIMEOUT).unwrap(), 0);
}

#[test]
fn a_server_that_sleeps_forever_lets_time_end() {
    struct Sleeps;
    impl Party for Sleeps {
        fn next_step(&mut self, _now: Time) -> Step<'_> {
            Step::Sleep(Time::NEVER)
        }
        fn on_sent(&mut self, _bytes: usize, _at: Time) {}
        fn on_received(&mut self, _now: Time) {}
        fn on_timeout(&mut self, _now: Time) {}
    }
    let dialer = Registry::standard().dialer(Clock::new_virtual());
    let mut listener = dialer.listen(&"mem://asleep".parse().unwrap()).unwrap();
    assert!(listener.set_party_factory(Box::new(|_| Box::new(Sleeps))).is_ok());
    let mut link = dialer.open(&"mem://asleep".parse().unwrap()).unwrap();
    assert!(matches!(link.receive(&mut [0], LONG_TIMEOUT), Err(Fault::TimedOut)));
    for _ in 0..2 {
        dialer.memory_network.advance(Time::NEVER);
        assert_eq!(dialer.now(), Time::NEVER);
    }
    assert!(matches!(link.receive(&mut [0], LONG_TIMEOUT), Err(Fault::TimedOut)));
}
