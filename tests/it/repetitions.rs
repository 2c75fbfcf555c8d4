//! Several repetitions in the document, on the virtual clock.

use std::time::Duration;

use linkgauge::Registry;
use linkgauge::clock::Clock;
use linkgauge::link::{self};
use linkgauge::plan::Plan;
use linkgauge::protocol::echo_reflector;
use linkgauge::run::Run;
use linkgauge::schedule::{self, RunContext};

/// Runs a plan against echoes on every `mem://` endpoint it names.
fn run(text: &str) -> Run {
    let plan = schedule::check(Plan::from_toml(text).unwrap(), Registry::standard()).unwrap();
    let dialer = Registry::standard().dialer(Clock::new_virtual());
    for endpoint in plan.cases().flat_map(|case| &case.endpoints) {
        let caps = Registry::standard().transports.caps(endpoint).unwrap();
        let server = move |_: &str| -> Box<dyn link::party::Party> {
            Box::new(echo_reflector(&caps, Duration::from_secs(60)))
        };
        let hosted = dialer.listen(endpoint).unwrap().set_party_factory(Box::new(server));
        assert!(hosted.is_ok(), "mem runs its own servers");
    }
    let mut bench = RunContext::new(dialer, &());
    schedule::run(&plan, &mut bench)
}

#[test]
fn a_rate_does_not_count_the_time_between_repetitions() {
    let run = run(r#"
        repeat = 3
        [defaults]
        workload = "latency"
        protocol = "echo"
        count = 500
        [[case]]
        url = "mem://a?delay=1ms"
        [[case]]
        url = "mem://b?delay=5ms"
    "#);
    assert!(run.is_complete());
    for (case, per_second) in run.cases.iter().zip([500.0, 100.0]) {
        assert_eq!(case.repeats.len(), 3);
        assert_eq!(case.figures.counts.received, 1500);
        assert_eq!(case.figures.delivery.messages_per_second, Some(per_second));
    }
}
