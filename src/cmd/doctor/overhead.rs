//! The measurement overhead on this host. No figure of a link can be smaller.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use linkgauge::Registry;
use linkgauge::clock::{self, Clock};
use linkgauge::endpoint::Endpoint;
use linkgauge::host::cpu;
use linkgauge::link::Dialer;
use linkgauge::plan::{CaseSpec, OneOrMany, Plan, WaitMode};
use linkgauge::protocol::ServerConfig;
use linkgauge::schedule::{self, RunContext};
use linkgauge::serve::Server;
use linkgauge::units::{Bytes, Span};
use serde::Serialize;

use crate::cmd::signals::process_interrupt_flag;

#[derive(Debug, Serialize)]
pub struct MeasurementOverhead {
    pub clock_read_ns: f64,
    pub clock_step_ns: u64,
    /// Median round trip in memory: client and server in one thread, no system call.
    pub memory_round_trip_ns: f64,
    pub round_trips: Vec<LoopbackRoundTrip>,
}

/// TCP over loopback, with known placement of client and server.
#[derive(Debug, Serialize)]
pub struct LoopbackRoundTrip {
    pub wait: &'static str,
    pub client_cpu: Option<u32>,
    pub server_cpu: Option<u32>,
    pub count: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_ns: Option<u64>,
    /// The reason if it was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
}

/// Duration of each measurement.
const MEASURING_TIME: Duration = Duration::from_millis(400);
const WARM_UP_TIME: Duration = Duration::from_millis(50);
/// Message size, as in the demo.
const MESSAGE_BYTES: u64 = 14;

impl MeasurementOverhead {
    /// True if everything was measured that this host supports.
    pub fn is_complete(&self) -> bool {
        self.memory_round_trip_ns > 0.0 && self.round_trips.iter().all(|one| one.missing.is_none())
    }
}

/// Measures it all (about 1.5 s).
pub fn measure_overhead() -> MeasurementOverhead {
    let reading = clock::measure_read_cost();
    let cpus = cpu::current_affinity();
    let placements: Vec<(Option<u32>, Option<u32>, WaitMode)> = match cpus.as_slice() {
        [] => vec![(None, None, WaitMode::Block)],
        &[only] => vec![(Some(only), Some(only), WaitMode::Block)],
        // CPUs with adjacent numbers are often two threads of one core.
        &[first, .., last] => vec![
            (Some(first), Some(first), WaitMode::Block),
            (Some(first), Some(last), WaitMode::Block),
            (Some(first), Some(last), WaitMode::BusyPoll),
        ],
    };
    MeasurementOverhead {
        clock_read_ns: reading.read_ns,
        clock_step_ns: reading.step_ns,
        memory_round_trip_ns: schedule::measure_overhead_ns(),
        round_trips: placements
            .into_iter()
            .map(|(client, server, wait)| measure_round_trip(client, server, wait))
            .collect(),
    }
}

fn measure_round_trip(client_cpu: Option<u32>, server_cpu: Option<u32>, wait: WaitMode) -> LoopbackRoundTrip {
    let mut one = LoopbackRoundTrip {
        wait: match wait {
            WaitMode::Block => "block",
            WaitMode::BusyPoll => "busy_poll",
        },
        client_cpu,
        server_cpu,
        count: 0,
        p50_ns: None,
        p99_ns: None,
        missing: None,
    };
    if let Err(error) = run_latency_case(&mut one, wait) {
        one.missing = Some(format!("{error:#}"));
    }
    one
}

fn run_latency_case(one: &mut LoopbackRoundTrip, wait: WaitMode) -> Result<()> {
    let dialer = Dialer { cancel: process_interrupt_flag(), ..Registry::standard().dialer(Clock::System) };
    let service = Registry::standard()
        .protocol("linkgauge")
        .and_then(|protocol| protocol.serve)
        .context("the linkgauge protocol can be served")?;
    let facts = ServerConfig::default();
    let url: Endpoint = "tcp://127.0.0.1:0".parse()?;
    let limits = facts.limits;
    let server = Server::start(&[url], &service(&Arc::new(facts)), &limits, &dialer)?;
    let pin: Vec<u32> = [one.client_cpu, one.server_cpu].into_iter().flatten().collect();
    let spec = CaseSpec {
        url: Some(OneOrMany::Many(server.endpoints().to_vec())),
        protocol: Some("linkgauge".to_owned()),
        workload: Some("latency".to_owned()),
        size: Some(OneOrMany::One(Bytes(MESSAGE_BYTES))),
        time: Some(Span(MEASURING_TIME)),
        warm_up_time: Some(Span(WARM_UP_TIME)),
        busy_poll: Some(wait == WaitMode::BusyPoll),
        pin: (!pin.is_empty()).then_some(OneOrMany::Many(pin)),
        ..CaseSpec::default()
    };
    let plan = Plan::new(spec.expand()?)?;
    let plan = schedule::check(plan, Registry::standard())?;
    let mut bench = RunContext::new(dialer, &());
    let run = schedule::run(&plan, &mut bench);
    let case = run.cases.first().context("nothing was measured")?;
    if !case.complete {
        let why =
            case.warnings.iter().find(|warning| warning.code == linkgauge::run::WarningCode::Incomplete);
        bail!("{}", why.map_or("nothing was measured", |warning| warning.text.as_str()));
    }
    let latency = case.figures.times.latency_ns.as_ref().context("nothing was measured")?;
    one.count = latency.count;
    (one.p50_ns, one.p99_ns) = (latency.percentile("p50"), latency.percentile("p99"));
    Ok(())
}
