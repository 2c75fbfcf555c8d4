//! The work of the measuring loop for every message, and the processing of its records afterwards.
//!
//! Links of the system are not benchmarked here: those belong to whole measurements, beside other tools.

use std::cell::RefCell;
use std::time::Duration;

use divan::counter::{BytesCount, ItemsCount};
use divan::{Bencher, black_box};
use linkgauge::Registry;
use linkgauge::clock::{Clock, Time};
use linkgauge::endpoint::Endpoint;
use linkgauge::link::party::{Party, StepMode, StepOutcome, perform_step};
use linkgauge::link::{Caps, Link};
use linkgauge::plan::{Pacing, SocketSettings, StopCondition, WaitMode};
use linkgauge::protocol::echo_reflector;
use linkgauge::protocol::linkgauge::wire::{self, FlowKind, ServerPlan, SessionRequest};
use linkgauge::sample::{RecordedTimes, Recorder, Sample, TimeSamples};
use linkgauge::stats;
use linkgauge::workload::Load;
use linkgauge::workload::latency::{EchoCodec, Pinger};

fn main() {
    divan::main();
}

/// Latencies as they are: skewed, scrambled, the same every time.
fn latencies(count: u64) -> Vec<u64> {
    (0..count).map(|i| 12_000 + (i * 7919 % 1009).pow(2) / 10).collect()
}

#[divan::bench]
fn times_record(bencher: Bencher) {
    let mut times = TimeSamples::new();
    let mut nanoseconds = 12_000;
    bencher.counter(ItemsCount::new(1u32)).bench_local(|| {
        nanoseconds = 12_000 + (nanoseconds * 7919) % 100_003;
        times.record(black_box(nanoseconds));
    });
}

#[divan::bench(args = [RecordedTimes::Service, RecordedTimes::ServiceAndResponse])]
fn recorder_reply(bencher: Bencher, times: RecordedTimes) {
    let mut recorder = Recorder::new(times, 1_000_000_000, Default::default(), None);
    recorder.begin(Time(0));
    let mut now = Time(0);
    let mut sequence = 0;
    bencher.counter(ItemsCount::new(1u32)).bench_local(|| {
        sequence += 1;
        let sent = now;
        now = now + Duration::from_nanos(12_000 + sequence % 977);
        recorder.record_reply(black_box(Sample { sequence, intended: sent, sent, received: now }), 1);
    });
}

/// A latency case on `mem://` without an end.
fn endless(message_bytes: u32) -> (Endpoint, Load, Caps) {
    let endpoint: Endpoint = "mem://bench".parse().expect("an endpoint");
    let caps = Registry::standard().transports.caps(&endpoint).expect("mem is a transport");
    (endpoint, Load { timeout: Duration::from_secs(1), ..Load::endless(message_bytes) }, caps)
}

/// A client with its link to an echo in memory.
struct RoundTrip {
    clock: Clock,
    party: Pinger,
    link: Box<dyn Link>,
    now: Time,
}

impl RoundTrip {
    fn new(clock: Clock, message_bytes: u32) -> RoundTrip {
        let (endpoint, load, caps) = endless(message_bytes);
        let dialer = Registry::standard().dialer(clock.clone());
        let server = caps.clone();
        let hosting =
            move |_: &str| -> Box<dyn Party> { Box::new(echo_reflector(&server, Duration::from_secs(60))) };
        let hosted = dialer.listen(&endpoint).expect("mem listens").set_party_factory(Box::new(hosting));
        assert!(hosted.is_ok(), "mem runs its own servers");
        let recorder = Recorder::new(RecordedTimes::Service, 1_000_000_000, Default::default(), None);
        let party = Pinger::new(Box::new(EchoCodec::new(&load, &caps)), &load, &caps, recorder);
        let link = dialer.open(&endpoint).expect("mem opens");
        let now = clock.now();
        RoundTrip { clock, party, link, now }
    }

    /// Sends one message and receives its reply.
    fn once(&mut self) {
        let before = self.received();
        while self.received() == before {
            let acted = perform_step(
                &mut self.party,
                self.link.as_mut(),
                &self.clock,
                &mut self.now,
                StepMode::Blocking(Duration::from_secs(1)),
            );
            assert!(!matches!(acted, Ok(StepOutcome::Done) | Err(_)), "a round trip without an end");
        }
    }

    fn received(&self) -> u64 {
        linkgauge::workload::RecordingParty::recorder(&self.party).counts.received
    }
}

/// Both ends of a round trip and the link between them: the measurement overhead of every latency.
#[divan::bench(args = [1, 1400], sample_size = 1000)]
fn round_trip_in_memory(bencher: Bencher, message_bytes: u32) {
    let round_trip = RefCell::new(RoundTrip::new(Clock::System, message_bytes));
    bencher.counter(ItemsCount::new(1u32)).bench_local(|| round_trip.borrow_mut().once());
}

/// The same without reading the system's clock.
#[divan::bench(args = [1, 1400], sample_size = 1000)]
fn round_trip_in_virtual_time(bencher: Bencher, message_bytes: u32) {
    let round_trip = RefCell::new(RoundTrip::new(Clock::new_virtual(), message_bytes));
    bencher.counter(ItemsCount::new(1u32)).bench_local(|| round_trip.borrow_mut().once());
}

/// All figures of a case: percentiles with their intervals, histogram, shares.
#[divan::bench(args = [10_000, 1_000_000])]
fn latency_figures(bencher: Bencher, count: u64) {
    let mut recorder = Recorder::new(RecordedTimes::Service, 1_000_000_000, Default::default(), None);
    recorder.begin(Time(0));
    for (sequence, ns) in latencies(count).into_iter().enumerate() {
        let sent = Time(sequence as u64 * 1_000_000);
        let received = sent + Duration::from_nanos(ns);
        recorder.record_reply(Sample { sequence: sequence as u64, intended: sent, sent, received }, 1);
    }
    let late = [Duration::from_millis(50), Duration::from_millis(300)];
    bencher.bench_local(|| recorder.latency_figures(black_box(&late)));
}

#[divan::bench(args = [1_000, 10_000, 1_000_000])]
fn interval_ranks(bencher: Bencher, count: u64) {
    bencher.bench_local(|| [0.5, 0.9, 0.99].map(|p| stats::interval_ranks(black_box(count), p, 0.95)));
}

#[divan::bench]
fn drift_of_10000(bencher: Bencher) {
    let series: Vec<f64> = latencies(10_000).into_iter().map(|ns| ns as f64).collect();
    bencher.bench_local(|| stats::detect_drift(black_box(&series)));
}

#[divan::bench]
fn read_frame(bencher: Bencher) {
    let plan = ServerPlan {
        flows: vec![FlowKind::Receive; 8],
        message_bytes: 1400,
        pacing: Pacing::Closed,
        stop: StopCondition::after_time(Duration::from_secs(10)),
        warm_up: StopCondition::default(),
        timeout_ns: 5_000_000_000,
        wait: WaitMode::Block,
        cpu: None,
        socket: SocketSettings::default(),
        evidence: false,
        lead_in_ns: 0,
        series_interval_ns: 0,
        time_of_day: false,
        alive_interval_ns: 0,
    };
    let frame = wire::encode_frame(1, &SessionRequest::Plan(plan));
    bencher.counter(BytesCount::new(frame.len())).bench_local(|| {
        wire::decode_frame::<SessionRequest>(black_box(&frame), wire::MAX_JSON_BYTES).expect("our own words")
    });
}
