//! The agent: serves measurements and makes them, as the orders on its input say, within the limits of its own host.

use std::io::{BufRead, Write};
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value};

use super::hosts::url_of;
use super::wire::{
    Answer, MAX_ORDER_BYTES, Order, PROTOCOL_VERSION, TestDirection, TestOrder, WireError, parse_order,
    read_line, to_line,
};
use linkgauge_engine::Registry;
use linkgauge_engine::link::Dialer;
use linkgauge_engine::protocol::{LoadLog, ServerLimits};
use linkgauge_engine::schedule::{self, RunContext};
use linkgauge_engine::serve::{RateLimiter, Server};
use linkgauge_engine::workload::{latency, throughput};
use linkgauge_model::endpoint::Endpoint;
use linkgauge_model::plan::{CaseSpec, Direction, OneOrMany, Plan};
use linkgauge_model::run::{CaseResult, Environment, Run, TOOL};
use linkgauge_model::units::{BitRate, Bytes, Count, MessageRate, RateTarget, Span, format_duration};

mod address;
mod budget;

use budget::{AgentBudget, BudgetRequest, BudgetShare};

pub use address::{AddressRange, InvalidAddressRange};

/// Timeout of a test for its connections, and for each reply. A busy host needs more than a second to accept a connection.
const TEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of measurements at a time. One more order is refused, so orders cost no more threads than that.
const MAX_AT_ONCE: usize = 256;

/// Largest payload of a load, as a multiple of its rate times its time: a sender may end late.
const LOAD_MARGIN: f64 = 1.1;

/// Limits that no single order, and no set of orders together, can exceed.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentLimits {
    /// Longest measurement.
    pub time: Duration,
    /// Highest payload rate in both directions: of all measurements together that the agent makes, and of all clients of its servers
    /// together.
    pub bits_per_second: Option<f64>,
    /// Payload of all measurements together that the agent makes, in both directions.
    pub bytes: Option<u64>,
    /// Addresses that it measures; empty: all.
    pub allowed: Vec<AddressRange>,
    /// The address on which its server listens.
    pub listen: IpAddr,
    /// The only port of its server; `None`: as ordered.
    pub port: Option<u16>,
}

/// Carries out orders until the input ends, a `Stop` arrives, or the output is closed.
///
/// # Errors
///
/// A line is no order. The measurements in progress are stopped then.
pub fn run_agent(
    input: &mut dyn BufRead,
    output: Box<dyn Write + Send>,
    limits: AgentLimits,
    dialer: &Dialer,
    environment: Map<String, Value>,
) -> Result<(), WireError> {
    let (tester, orders) = (Tester::new(limits), AtomicUsize::new(0));
    let agent = Agent { output: Mutex::new(output), tester, orders, dialer: dialer.clone() };
    agent.answer(&Answer::Ready { version: PROTOCOL_VERSION, tool: TOOL.to_owned(), environment });
    let mut server = None;
    std::thread::scope(|scope| {
        let ended = loop {
            let line = match read_line(input, MAX_ORDER_BYTES) {
                Ok(Some(line)) => line,
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            };
            match parse_order(&line) {
                Ok(Order::Stop {}) => break Ok(()),
                Ok(Order::Serve { id, transport, port, token }) => {
                    agent.answer(&agent.serve(&mut server, id, (&transport, port), &token));
                }
                Ok(Order::ReportLoads { id }) => agent.answer(&agent.served_loads(id)),
                Ok(Order::Measure { id, url, token, test }) => {
                    let agent = &agent;
                    let refuse = |why: String| agent.answer(&Answer::Refused { id, why });
                    let Some(guard) = TestGuard::take(&agent.orders, MAX_AT_ONCE) else {
                        refuse(AgentRefusal::too_many().to_string());
                        continue;
                    };
                    let measure = move || {
                        let _guard = guard;
                        agent.answer(&agent.measure(id, &url, token, test));
                    };
                    if let Err(error) = std::thread::Builder::new().spawn_scoped(scope, measure) {
                        refuse(format!("the host of the agent has no thread for the test: {error}"));
                    }
                }
                Err(error) => break Err(error),
            }
            if agent.dialer.cancel.load(Relaxed) {
                break Ok(());
            }
        };
        agent.dialer.cancel.store(true, Relaxed);
        ended
    })
}

/// Reason why an order is not carried out, for people.
#[derive(Debug, thiserror::Error)]
pub enum AgentRefusal {
    /// Order that no agent could carry out.
    #[error("{0}")]
    Invalid(String),
    /// Order that the limits of this agent forbid.
    #[error("{0}")]
    Limited(String),
    /// Order that is refused because other measurements run.
    #[error("{0}")]
    Busy(String),
}

impl AgentRefusal {
    fn invalid(error: impl std::fmt::Display) -> AgentRefusal {
        AgentRefusal::Invalid(error.to_string())
    }

    fn too_many() -> AgentRefusal {
        let why = format!("{MAX_AT_ONCE} measurements run already: an agent makes no more at a time");
        AgentRefusal::Busy(why)
    }
}

struct Agent {
    output: Mutex<Box<dyn Write + Send>>,
    tester: Tester,
    /// Measure orders that are being carried out.
    orders: AtomicUsize,
    dialer: Dialer,
}

/// Makes the tests of this host, within its limits. Threads share it.
#[derive(Debug)]
pub struct Tester {
    limits: AgentLimits,
    running: AtomicUsize,
    throughput_running: AtomicUsize,
    budget: AgentBudget,
    /// Limit on the rate of all clients of all its servers together, which share it.
    served_rate: Option<Arc<RateLimiter>>,
    /// The throughput tests that its server has served.
    load_log: LoadLog,
}

/// Counts a measurement until it is dropped.
struct TestGuard<'a>(&'a AtomicUsize);

impl<'a> TestGuard<'a> {
    fn take(counter: &'a AtomicUsize, limit: usize) -> Option<TestGuard<'a>> {
        let guard = TestGuard(counter);
        (counter.fetch_add(1, Relaxed) < limit).then_some(guard)
    }
}

impl Drop for TestGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Agent {
    /// Sends an answer. A closed output means that the coordinator has gone.
    fn answer(&self, answer: &Answer) {
        let line = to_line(answer);
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        if output.write_all(&line).and_then(|()| output.flush()).is_err() {
            self.dialer.cancel.store(true, Relaxed);
        }
    }

    fn serve(
        &self,
        server: &mut Option<Server>,
        id: u64,
        (transport, port): (&str, u16),
        token: &str,
    ) -> Answer {
        if server.is_some() {
            return Answer::Refused { id, why: "the agent serves already".to_owned() };
        }
        match self.tester.serve((transport, port), token, &self.dialer) {
            Ok((started, port)) => {
                *server = Some(started);
                Answer::Serving { id, port, now_ns: self.dialer.clock.now().0 }
            }
            Err(refusal) => Answer::Refused { id, why: refusal.to_string() },
        }
    }

    fn served_loads(&self, id: u64) -> Answer {
        let logged = self.tester.load_log.read();
        let loads = logged.loads.iter().map(|load| [load.began.0, load.ended.0]).collect();
        Answer::ServedLoads { id, now_ns: self.dialer.clock.now().0, loads, left_out: logged.left_out }
    }

    fn measure(&self, id: u64, url: &str, token: Option<String>, test: TestOrder) -> Answer {
        match self.tester.measure(url, token, test, &self.dialer) {
            Ok(run) => Answer::Measured { id, run: Box::new(run) },
            Err(refusal) => Answer::Refused { id, why: refusal.to_string() },
        }
    }
}

impl Tester {
    /// Makes tests within these limits.
    pub fn new(limits: AgentLimits) -> Tester {
        Tester {
            running: AtomicUsize::new(0),
            throughput_running: AtomicUsize::new(0),
            budget: AgentBudget::new(limits.bits_per_second, limits.bytes),
            served_rate: limits.bits_per_second.map(|rate| Arc::new(RateLimiter::of_all_sources(rate))),
            limits,
            load_log: LoadLog::default(),
        }
    }

    /// Starts a server for clients with the token; returns it with its port. Port 0 is any.
    ///
    /// # Errors
    ///
    /// The limits forbid it, or the system refuses the port.
    pub fn serve(
        &self,
        (transport, port): (&str, u16),
        token: &str,
        dialer: &Dialer,
    ) -> Result<(Server, u16), AgentRefusal> {
        if token.is_empty() {
            return Err(AgentRefusal::invalid("a server without a token would be open to all: send one"));
        }
        let port = self.limits.port.unwrap_or(port);
        let limits = ServerLimits {
            duration_s: self.limits.time.as_secs().saturating_add(10),
            bit_rate: self.limits.bits_per_second,
            ..ServerLimits::default()
        };
        let url = url_of(transport, &self.limits.listen.to_string(), port).map_err(AgentRefusal::invalid)?;
        let server = Server::on(url.as_str()).token(token).limits(limits).load_log(&self.load_log);
        let server = server.rate_limiter(self.served_rate.clone());
        let server = server.start_with(dialer).map_err(AgentRefusal::invalid)?;
        let port = server.endpoints()[0].host_port().ok().and_then(|(_, port)| port);
        let without_port = || AgentRefusal::Invalid(format!("{url}: the server has no port. Use tcp or udp"));
        Ok((server, port.ok_or_else(without_port)?))
    }

    /// Measures another host. The run has one case and no time series; it may be incomplete. `dialer.cancel` stops it.
    ///
    /// # Errors
    ///
    /// The test is invalid, the limits forbid it, or too many others run.
    pub fn measure(
        &self,
        url: &str,
        token: Option<String>,
        test: TestOrder,
        dialer: &Dialer,
    ) -> Result<Run, AgentRefusal> {
        let endpoint = self.checked_endpoint(url)?;
        let request = self.check_test(test)?;
        let _guard = TestGuard::take(&self.running, MAX_AT_ONCE).ok_or_else(AgentRefusal::too_many)?;
        let is_load = matches!(test, TestOrder::Throughput { .. });
        let _only = match is_load {
            true => Some(TestGuard::take(&self.throughput_running, 1).ok_or_else(|| {
                AgentRefusal::Busy("another throughput test runs: an agent makes one at a time".to_owned())
            })?),
            false => None,
        };
        let mut share = self.budget.take(request)?;
        let spec = CaseSpec { url: Some(OneOrMany::One(endpoint)), ..case_of(test, &share) };
        let cases = spec.expand().map_err(AgentRefusal::invalid)?;
        let plan = Plan::new(cases).map_err(AgentRefusal::invalid)?;
        let plan = schedule::check(plan, Registry::standard()).map_err(AgentRefusal::invalid)?;
        let mut context = RunContext::new(dialer.clone(), &());
        context.token = token;
        let mut run = schedule::run(&plan, &mut context);
        share.moved_bytes = run.cases.iter().map(|case| moved_bytes(case, test)).sum();
        shorten(&mut run);
        Ok(run)
    }

    /// Checks the endpoint of an order, which names a host and a port, nothing else.
    fn checked_endpoint(&self, url: &str) -> Result<Endpoint, AgentRefusal> {
        let endpoint: Endpoint = url.parse().map_err(AgentRefusal::invalid)?;
        let (host, port) = endpoint.host_port().map_err(AgentRefusal::invalid)?;
        let port = port.filter(|port| *port > 0);
        let port = port.ok_or_else(|| AgentRefusal::Invalid(format!("{url}: an order names a port")))?;
        if endpoint.options().next().is_some() {
            return Err(AgentRefusal::Invalid(format!("{url}: an order has no options")));
        }
        let caps = Registry::standard().transports.caps(&endpoint).map_err(AgentRefusal::invalid)?;
        if caps.is_device || !caps.can_open_parallel {
            return Err(AgentRefusal::Invalid(format!("{url}: an agent measures other hosts, not devices")));
        }
        if self.limits.allowed.is_empty() {
            return Ok(endpoint);
        }
        // The address that was checked is the one that is used.
        let addresses = (host, port).to_socket_addrs().map_err(AgentRefusal::invalid)?;
        let is_allowed = |ip: &IpAddr| self.limits.allowed.iter().any(|range| range.contains(*ip));
        let allowed = addresses.map(|address| address.ip()).find(is_allowed);
        let forbidden =
            || AgentRefusal::Limited(format!("{url}: this agent does not measure that address (--allow)"));
        let allowed = allowed.ok_or_else(forbidden)?;
        url_of(endpoint.scheme(), &allowed.to_string(), port).map_err(AgentRefusal::invalid)
    }

    /// Share of the budget that a test takes, if it makes sense and no limit of a single test forbids it.
    fn check_test(&self, test: TestOrder) -> Result<BudgetRequest, AgentRefusal> {
        let time = Duration::from_millis(test.time_ms());
        if time.is_zero() || time > self.limits.time {
            let [time, limit] = [time, self.limits.time].map(format_duration);
            let what = format!("a test of {time}: this agent allows up to {limit} (--max-time)");
            return Err(AgentRefusal::Limited(what));
        }
        match test {
            TestOrder::Latency { per_second, message_bytes, .. } => {
                let is_sane =
                    (0.01..=10_000.0).contains(&per_second) && (1..=65_000).contains(&message_bytes);
                if !is_sane {
                    let what = "a latency test has 0.01 to 10000 requests per second of 1 to 65000 bytes";
                    return Err(AgentRefusal::invalid(what));
                }
                let round_trip_bytes = 2.0 * f64::from(message_bytes);
                // Random times: four standard deviations more than the mean, and the first one, which does not count.
                let mean = per_second * time.as_secs_f64();
                let most = (mean + 4.0 * mean.sqrt() + 2.0).ceil();
                let bytes = (most * round_trip_bytes) as u64;
                let bits_per_second = 8.0 * per_second * round_trip_bytes;
                Ok(BudgetRequest { bits_per_second: [bits_per_second; 2], bytes: [bytes; 2] })
            }
            TestOrder::Throughput { parallel, bits_per_second, .. } => {
                let is_sane = bits_per_second.is_none_or(|rate| (1.0..=1e13).contains(&rate));
                if !is_sane || !(1..=128).contains(&parallel) {
                    let what = "a throughput test has 1 to 128 connections, and a rate of 1 bit/s or more";
                    return Err(AgentRefusal::invalid(what));
                }
                let rate = bits_per_second.unwrap_or(f64::INFINITY);
                let rate = self.limits.bits_per_second.map_or(rate, |limit| rate.min(limit));
                let bytes = (rate / 8.0 * time.as_secs_f64() * LOAD_MARGIN).ceil() as u64;
                // At least a byte for each connection.
                let least = parallel.into();
                Ok(BudgetRequest { bits_per_second: [1.0, rate], bytes: [least, bytes.max(least)] })
            }
        }
    }
}

/// The case of a test, within its share of the budget.
fn case_of(test: TestOrder, share: &BudgetShare) -> CaseSpec {
    let common = CaseSpec {
        protocol: Some("linkgauge".to_owned()),
        time: Some(Span(Duration::from_millis(test.time_ms()))),
        timeout: Some(Span(TEST_TIMEOUT)),
        ..CaseSpec::default()
    };
    match test {
        TestOrder::Latency { per_second, message_bytes, .. } => CaseSpec {
            workload: Some(latency::WORKLOAD.name.to_owned()),
            rate: Some(RateTarget::Fixed(MessageRate(per_second))),
            poisson: Some(true),
            seed: Some(fastrand::u64(..)),
            size: Some(OneOrMany::One(Bytes(message_bytes.into()))),
            warm_up_count: Some(Count(1)),
            ..common
        },
        TestOrder::Throughput { direction, parallel, .. } => {
            let of_connection = share.bits_per_second / f64::from(parallel);
            CaseSpec {
                workload: Some(throughput::WORKLOAD.name.to_owned()),
                direction: Some(OneOrMany::One(match direction {
                    TestDirection::Send => Direction::Send,
                    TestDirection::Receive => Direction::Receive,
                })),
                parallel: Some(OneOrMany::One(parallel)),
                bit_rate: of_connection.is_finite().then_some(RateTarget::Fixed(BitRate(of_connection))),
                volume: share.bytes.map(|bytes| Bytes(bytes / u64::from(parallel))),
                ..common
            }
        }
    }
}

/// Payload that a test has moved, in bytes. Payload that did not arrive was sent nevertheless.
fn moved_bytes(case: &CaseResult, test: TestOrder) -> u64 {
    let figures = &case.figures;
    let sent = figures.counts.sent.saturating_mul(u64::from(case.message_bytes));
    match test {
        TestOrder::Latency { .. } => sent.saturating_mul(2),
        TestOrder::Throughput { .. } => sent.max(figures.delivery.delivered_bytes.unwrap_or(0)),
    }
}

/// Leaves out what makes a document large, and what is the same for all of a host's documents.
fn shorten(run: &mut Run) {
    run.environment = Environment::default();
    for case in &mut run.cases {
        case.series.clear();
        case.under_load_series.clear();
        case.idle_series.clear();
        case.recovery_series.clear();
        case.evidence = None;
    }
}

#[cfg(test)]
mod tests;
