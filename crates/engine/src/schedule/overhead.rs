//! Cost of the measurement itself: the round trip over a link without a system call.

use std::time::Duration;

use super::{RunContext, check, run};
use crate::link::party::Party;
use crate::protocol::Registry;
use crate::protocol::echo_reflector;
use linkgauge_model::clock::Clock;
use linkgauge_model::endpoint::Endpoint;
use linkgauge_model::plan::{CaseSpec, OneOrMany, Plan};
use linkgauge_model::units::{Count, Span};

/// Measurement overhead of a round trip: the median over `mem://` in real time, in nanoseconds. Takes 10 ms at most, also on a
/// slow host: fewer round trips are enough for a median.
pub fn measure_overhead_ns() -> f64 {
    const ROUND_TRIPS: u64 = 20_000;
    const TIME: Duration = Duration::from_millis(10);
    let measure = || -> Option<f64> {
        let dialer = Registry::standard().dialer(Clock::System);
        let endpoint: Endpoint = "mem://floor".parse().ok()?;
        let mut listener = dialer.listen(&endpoint).ok()?;
        let caps = dialer.transports.caps(&endpoint).ok()?;
        let new_server =
            move |_: &str| -> Box<dyn Party> { Box::new(echo_reflector(&caps, Duration::from_secs(60))) };
        listener.set_party_factory(Box::new(new_server)).ok()?;
        let spec = CaseSpec {
            url: Some(OneOrMany::One(endpoint)),
            protocol: Some("echo".to_owned()),
            workload: Some("latency".to_owned()),
            count: Some(Count(ROUND_TRIPS)),
            time: Some(Span(TIME)),
            ..Default::default()
        };
        let plan = check(Plan::new(spec.expand().ok()?).ok()?, Registry::standard()).ok()?;
        let mut context = RunContext::new(dialer, &());
        let run = run(&plan, &mut context);
        run.cases.first()?.figures.times.latency_ns.as_ref()?.percentile("p50").map(|ns| ns as f64)
    };
    // The in-memory link cannot fail; 0 means that no overhead is shown.
    measure().unwrap_or(0.0)
}
