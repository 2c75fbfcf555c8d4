//! A transfer is one transfer, on the virtual clock: its time, its loss, its rate and its interval.

use std::time::Duration;

use linkgauge::Registry;
use linkgauge::clock::Clock;
use linkgauge::link::shaped::{Shape, SharedPath};
use linkgauge::plan::Plan;
use linkgauge::run::{CaseResult, Run};
use linkgauge::schedule::{self, RunContext};
use linkgauge::serve::Server;

use crate::virtual_net::VirtualNet;

/// What a user gets who sets no repetitions, and the time that passes.
fn measure(url: &str, case: &str) -> (CaseResult, Duration) {
    let dialer = Registry::standard().dialer(Clock::new_virtual());
    let server = Server::on(url).start_with(&dialer).unwrap();
    let text = format!("[[case]]\nurl = \"{}\"\n{case}", server.url());
    let plan = schedule::check(Plan::from_toml(&text).unwrap(), Registry::standard())
        .unwrap()
        .split_into_repetitions();
    let began = dialer.now();
    let mut run: Run = schedule::run(&plan, &mut RunContext::new(dialer.clone(), &()));
    let elapsed = dialer.now().since(began);
    assert!(run.is_complete(), "{url}: {:?}", run.cases[0].failures);
    (run.cases.remove(0), elapsed)
}

/// A link of this rate and delay in both directions, whose queues hold 65,536 bytes and drop what does not fit.
fn measure_shaped(bits_per_second: f64, delay: Duration, case: &str) -> (CaseResult, Duration) {
    let url = "mem://far-messages?type=message&share=yes";
    let net = VirtualNet::serving("linkgauge");
    let shape = Shape { delay, bits_per_second, queue_bytes: QUEUE_BYTES, ..Shape::NONE };
    net.dialer
        .memory_network
        .share_paths(url, [SharedPath::new(shape.clone(), 1), SharedPath::new(shape, 2)]);
    let began = net.dialer.now();
    let text = format!(
        "[[case]]\nurl = \"{url}\"\nprotocol = \"linkgauge\"\nworkload = \"throughput\"\nsize = 1000\n{case}"
    );
    let plan = schedule::check(Plan::from_toml(&text).unwrap(), Registry::standard())
        .unwrap()
        .split_into_repetitions();
    let mut run = schedule::run(&plan, &mut RunContext::new(net.dialer.clone(), &()));
    assert!(run.is_complete(), "{:?}", run.cases[0].failures);
    (run.cases.remove(0), net.dialer.now().since(began))
}

const QUEUE_BYTES: u64 = 65_536;

#[test]
fn the_loss_of_an_overloaded_link_is_what_does_not_fit() {
    for (offered, seconds) in [(30.0, 4.0), (40.0, 4.0), (40.0, 1.0)] {
        let case = format!("bit_rate = \"{offered}M\"\ntime = \"{seconds}s\"");
        let (result, _) = measure_shaped(20e6, Duration::from_millis(2), &case);
        let loss = result.figures.loss_share().unwrap();
        let queued = QUEUE_BYTES as f64 * 8.0 / (offered * 1e6 * seconds);
        let expected = 1.0 - 20.0 / offered;
        assert!(loss < expected + 0.002 && loss > expected - queued - 0.002, "{loss} of {offered} Mbit/s");
        assert!(result.repeats.is_empty());
        let rate = result.figures.delivery.throughput_bps.unwrap();
        assert!((rate / 20e6 - 1.0).abs() < 0.005, "{rate}");
        // What was printed together agrees: what arrived is what was offered without what was lost.
        let counts = &result.figures.counts;
        assert_eq!(counts.sent, counts.received + counts.lost);
    }
}

#[test]
fn the_time_is_that_of_one_transfer_on_every_link() {
    for (rate, delay_ms) in [(384e3, 25), (2e6, 300), (100e6, 5)] {
        for direction in ["send", "receive"] {
            let case = format!(
                "direction = \"{direction}\"\nbit_rate = \"{rate}bit/s\"\ntime = \"5s\"\nprobe = false"
            );
            let (result, elapsed) = measure_shaped(rate, Duration::from_millis(delay_ms), &case);
            let set_up = 10 * Duration::from_millis(delay_ms);
            assert!(elapsed <= Duration::from_secs(6) + set_up, "{rate} {direction}: {elapsed:?}");
            let measured = result.figures.delivery.throughput_bps.unwrap();
            assert!((measured / rate - 1.0).abs() < 0.01, "{rate} {direction}: {measured}");
            let interval = result.figures.intervals["throughput_bps"];
            assert!(interval.low <= measured && measured <= interval.high);
            assert!((interval.high - interval.low) / measured < 0.05, "{rate} {direction}: {interval:?}");
        }
    }
}

#[test]
fn round_trips_are_split_only_where_connecting_is_cheap() {
    let latency = |delay: &str| measure(&format!("mem://far?delay={delay}"), "workload = \"latency\"");
    let (near, _) = latency("100us");
    assert_eq!(near.repeats.len(), 10);
    let (far, elapsed) = latency("100ms");
    assert!(
        far.repeats.is_empty() && far.requested["one_repetition_because"].is_string(),
        "{:?}",
        far.requested
    );
    assert!(elapsed < Duration::from_secs(14), "{elapsed:?}");
    assert!(!far.is_split() && far.figures.counts.lost == 0);
}

#[test]
fn a_schedule_and_a_given_time_have_no_gap() {
    for (case, sent) in [("rate = \"20/s\"\ntime = \"60s\"", Some(1200)), ("time = \"2s\"", None)] {
        let (result, _) = measure(
            "mem://far?delay=2ms&jitter=1ms&type=message",
            &format!("workload = \"latency\"\n{case}"),
        );
        assert!(result.repeats.is_empty() && !result.is_split(), "{case}");
        assert!(sent.is_none_or(|sent| result.figures.counts.sent == sent), "{:?}", result.figures.counts);
        let (median, interval) = (result.p50().unwrap(), result.figures.intervals["latency_ns.p50"]);
        let half = interval.high / median.as_nanos() as f64 - 1.0;
        assert!((0.08..0.2).contains(&half), "{case}: {half}");
    }
}
