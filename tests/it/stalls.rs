//! Servers that stop: they read nothing, return too little, or close too early. On the virtual clock; every run ends
//! in bounded time and reports that it is incomplete.

use std::time::Duration;

use linkgauge::Registry;
use linkgauge::clock::{Clock, Time};
use linkgauge::link::party::{Party, Step};
use linkgauge::link::{Batch, Fault};
use linkgauge::plan::Plan;
use linkgauge::run::CaseResult;
use linkgauge::schedule::{self, RunContext};

/// Reads and returns this number of bytes, and then performs `then`.
#[derive(Clone, Copy)]
struct Stops {
    returns: usize,
    then: Then,
}

#[derive(Clone, Copy, PartialEq)]
enum Then {
    Sleeps,
    Swallows,
    Closes,
}

struct Stopping {
    stops: Stops,
    batch: Batch,
    pending: usize,
    returned: usize,
}

impl Party for Stopping {
    fn next_step(&mut self, _now: Time) -> Step<'_> {
        let left = self.stops.returns - self.returned;
        match self.stops.then {
            _ if self.pending.min(left) > 0 => {
                Step::Send { bytes: &self.batch.bytes[..self.pending.min(left)], message: left }
            }
            Then::Closes if left == 0 => Step::Done,
            Then::Sleeps if left == 0 => Step::Sleep(Time::NEVER),
            _ => Step::Receive { into: &mut self.batch, until: Time::NEVER },
        }
    }

    fn on_sent(&mut self, bytes: usize, _at: Time) {
        self.returned += bytes;
        self.batch.bytes.copy_within(bytes..self.pending, 0);
        self.pending -= bytes;
    }

    fn on_received(&mut self, _now: Time) {
        self.pending = self.batch.total_bytes() as usize;
    }

    fn on_timeout(&mut self, _now: Time) {}

    fn on_closed(&mut self, _now: Time) -> Result<(), Fault> {
        Err(Fault::Closed)
    }
}

/// Runs one case, which may take at most `most` of virtual time; it must not be complete.
fn incomplete(stops: Stops, most: Duration, case: &str) -> CaseResult {
    let dialer = Registry::standard().dialer(Clock::new_virtual());
    let url = "mem://stops?buffer=65536&rate=100Mbit/s";
    let mut listener = dialer.listen(&url.parse().unwrap()).unwrap();
    let server = move |_: &str| -> Box<dyn Party> {
        Box::new(Stopping { stops, batch: Batch::new(16_384, 1), pending: 0, returned: 0 })
    };
    assert!(listener.set_party_factory(Box::new(server)).is_ok());
    let plan = Plan::from_toml(&format!("[[case]]\nurl = \"{url}\"\n{case}")).unwrap();
    let plan = schedule::check(plan, Registry::standard()).unwrap_or_else(|error| panic!("{error}"));
    let mut bench = RunContext::new(dialer.clone(), &());
    let mut run = schedule::run(&plan, &mut bench);
    assert!(!run.is_complete(), "{case}");
    assert!(dialer.now() < Time(0) + most, "{case}: took {:?}", dialer.now());
    run.cases.remove(0)
}

const THENS: [Then; 3] = [Then::Sleeps, Then::Swallows, Then::Closes];

#[test]
fn a_loop_of_bytes() {
    for then in THENS {
        for returns in [0, 1, 100_000] {
            for stop in
                ["time = \"2s\"", "volume = \"1M\"", "volume = \"1M\"\nsize = 1000\nbit_rate = \"10Mbit/s\""]
            {
                let case = incomplete(
                    Stops { returns, then },
                    Duration::from_secs(10),
                    &format!("workload = \"throughput\"\nprotocol = \"echo\"\n{stop}"),
                );
                let figures = &case.figures;
                assert!(figures.delivery.delivered_bytes.unwrap_or(0) <= returns as u64, "{stop}");
                assert_eq!(figures.byte_errors.corrupt_bytes, 0);
            }
        }
    }
}

/// All was taken, but the last of it did not come back.
#[test]
fn a_loop_that_loses_its_tail() {
    for then in [Then::Swallows, Then::Closes] {
        let case = incomplete(
            Stops { returns: 99_990, then },
            Duration::from_secs(10),
            "workload = \"throughput\"\nprotocol = \"echo\"\nvolume = \"100k\"\nsize = 1000",
        );
        assert_eq!((case.figures.delivery.delivered_bytes, case.figures.counts.lost), (Some(99_990), 1));
    }
}

#[test]
fn a_discard_that_does_not_read() {
    for then in [Then::Sleeps, Then::Closes] {
        for stop in ["volume = \"1M\"", "volume = \"1M\"\nsize = 1000\nbit_rate = \"10Mbit/s\""] {
            let case = format!("workload = \"throughput\"\nprotocol = \"discard\"\n{stop}");
            incomplete(Stops { returns: 0, then }, Duration::from_secs(10), &case);
        }
        // It stops before the end of the time: bytes that its system never acknowledged do not count as delivered.
        let case = "workload = \"throughput\"\nprotocol = \"discard\"\ntime = \"1s\"\ntimeout = \"2s\"";
        let case = incomplete(Stops { returns: 0, then }, Duration::from_secs(4), case);
        assert_eq!(
            (case.figures.delivery.delivered_bytes, case.figures.delivery.throughput_bps),
            (Some(0), None)
        );
    }
}

#[test]
fn requests_that_are_never_read() {
    for pacing in ["", "rate = \"50/s\""] {
        incomplete(
            Stops { returns: 0, then: Then::Sleeps },
            Duration::from_secs(30),
            &format!("workload = \"latency\"\nprotocol = \"echo\"\nsize = \"20k\"\ncount = 1000\n{pacing}"),
        );
    }
}
