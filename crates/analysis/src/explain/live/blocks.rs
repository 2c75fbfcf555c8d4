//! Blocks: short measurements of one case, each on a fresh connection, with the samples of each request.

use std::any::Any;
use std::cell::RefCell;
use std::time::Duration;

use super::{DeviceChanger, LiveError};
use linkgauge_engine::Registry;
use linkgauge_engine::host::local_server::{LocalServer, ServerWatch};
use linkgauge_engine::host::power;
use linkgauge_engine::link::Dialer;
use linkgauge_engine::schedule::{self, FirstFailure, RunContext};
use linkgauge_model::clock::{Clock, Time};
use linkgauge_model::plan::{Case, CpuPinning, Pacing, Plan, StopCondition, WaitMode};
use linkgauge_model::run::{CaseResult, Failure, FailureKind};
use linkgauge_model::sample::{RawFile, Sample};
use linkgauge_model::stats;
use linkgauge_model::units::format_duration;

/// Samples of a block that are handed over at once.
const COLLECTED_AT_ONCE: usize = 4096;

/// Limits of the time after which a message counts as lost.
const MIN_TIMEOUT: Duration = Duration::from_millis(250);
const MAX_TIMEOUT: Duration = Duration::from_secs(1);

/// Pause before a block without any reply is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// A server may free a port only some time after the client of the block before has closed its connection, and the only
/// message of a warm-up may be lost.
fn max_tries(failure: &Failure) -> u32 {
    match failure.kind {
        FailureKind::Remote => 5,
        FailureKind::TimedOut | FailureKind::NoData => 2,
        _ => 1,
    }
}

/// A setting that differs from the baseline.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Change {
    /// A different value of an option of the URL.
    UrlOption(&'static str, &'static str),
    /// A different value of a setting of the device.
    DeviceSetting(&'static str, &'static str),
    /// Waiting by polling.
    BusyPoll,
    /// Threads bound to CPUs.
    Pin(CpuPinning),
    /// CPUs without sleep states.
    CpuWakeLatency,
    /// A different message size.
    MessageBytes(u32),
    /// Several connections at once.
    Parallel(u32),
    /// A different timeout of each reply.
    Timeout(Duration),
}

impl Change {
    /// Description of the change, as printed: `quickack=1`.
    pub(super) fn describe(&self) -> String {
        match self {
            Change::UrlOption(name, value) | Change::DeviceSetting(name, value) => format!("{name}={value}"),
            Change::BusyPoll => "busy-poll".to_owned(),
            Change::Pin(CpuPinning { client: Some(client), server: Some(server) }) => {
                format!("the mean, client on CPU {client} and server on CPU {server}")
            }
            Change::Pin(CpuPinning { client, .. }) => {
                format!("the mean, client on CPU {}", client.unwrap_or_default())
            }
            Change::CpuWakeLatency => "/dev/cpu_dma_latency 0".to_owned(),
            Change::MessageBytes(bytes) => format!("{bytes} bytes"),
            Change::Timeout(timeout) => format!("a timeout of {}", format_duration(*timeout)),
            Change::Parallel(connections) => format!("{connections} connections"),
        }
    }
}

/// Length and pacing of a block.
#[derive(Debug, Clone, Copy)]
pub(super) struct BlockPlan {
    /// Times at which requests are sent.
    pub(super) pacing: Pacing,
    /// Maximum number of requests.
    pub(super) count: u64,
    /// Time at most.
    pub(super) time: Duration,
    /// Requests that are left out at the start.
    pub(super) warm_up: u64,
}

/// A measured block.
#[derive(Debug, Clone)]
pub(super) struct Block {
    /// All requests that got a reply, in order.
    pub(super) samples: Vec<Sample>,
    /// Figures and settings.
    pub(super) result: CaseResult,
    /// Time that a server on this host waited for a CPU meanwhile, in ns.
    pub(super) server_wait_ns: Option<u64>,
}

impl Block {
    /// Round-trip times in nanoseconds, in order.
    pub(super) fn latencies_ns(&self) -> Vec<f64> {
        self.samples.iter().map(|sample| sample.service_ns() as f64).collect()
    }

    /// Time from the first to the last reply, in ms.
    pub(super) fn duration_ms(&self) -> f64 {
        let ends = self.samples.first().zip(self.samples.last());
        ends.map_or(0.0, |(first, last)| last.received.since(first.received).as_secs_f64() * 1e3)
    }

    /// Time that the threads of both ends waited for a CPU, as far as it is known, in ns.
    pub(super) fn waited_ns(&self) -> f64 {
        const NAME: &str = "thread_run_queue_wait_ns";
        let evidence = self.result.evidence.as_ref();
        let client = evidence.and_then(|evidence| evidence.client.counter(NAME));
        let reported = evidence.and_then(|evidence| evidence.server.as_ref()?.counter(NAME));
        let server = reported.max(self.server_wait_ns);
        (client.unwrap_or(0) as f64) + server.unwrap_or(0) as f64
    }

    /// Requests without a reply.
    pub(super) fn lost(&self) -> u64 {
        self.result.figures.counts.lost
    }
}

/// A slow request takes this much more than the median, and this multiple of it: hosts have shorter pauses of their own.
const MIN_PAUSE_NS: f64 = 15e6;
const MIN_PAUSE_RATIO: f64 = 10.0;
/// Divisor of the limit of slow requests: a request that is late by this part of it belongs to a tail that reaches them.
const ALMOST: f64 = 3.0;

/// Data that are kept of each block.
pub(super) struct BlockSummary {
    pub(super) observed_ns: f64,
    pub(super) requests: usize,
    /// Slow requests of the block, each with its time above the median.
    pub(super) slow: Vec<(Sample, f64)>,
    /// Requests that are late by a third of that limit or more, without being slow.
    pub(super) almost: usize,
    /// Time that threads waited for a CPU.
    pub(super) waited_ns: f64,
    /// Segments that the sockets of the connection sent again.
    pub(super) again: usize,
}

impl BlockSummary {
    /// Summary of a block; `None` of a block without replies.
    pub(super) fn of(block: &Block) -> Option<BlockSummary> {
        let latencies = block.latencies_ns();
        let median = stats::median(&latencies)?;
        let limit = MIN_PAUSE_NS.max(MIN_PAUSE_RATIO * median);
        let late = block.samples.iter().zip(&latencies).filter(|(_, latency)| **latency - median > limit);
        let slow: Vec<(Sample, f64)> = late.map(|(sample, latency)| (*sample, latency - median)).collect();
        let late = latencies.iter().filter(|latency| **latency - median > limit / ALMOST).count();
        let evidence = block.result.evidence.as_ref();
        let ends = evidence.iter().flat_map(|evidence| [Some(&evidence.client), evidence.server.as_ref()]);
        let again = ends.flatten().filter_map(|end| end.counter("tcp_retransmitted_segments")).sum::<u64>();
        Some(BlockSummary {
            observed_ns: 1e6 * block.duration_ms(),
            requests: latencies.len(),
            almost: late - slow.len(),
            slow,
            waited_ns: block.waited_ns(),
            again: again as usize,
        })
    }

    pub(super) fn excess_ns(&self) -> f64 {
        self.slow.iter().map(|(_, excess)| excess).sum()
    }
}

/// Runs blocks of one case.
pub(super) struct BlockRunner {
    pub(super) dialer: Dialer,
    pub(super) token: Option<String>,
    /// Changes settings of the device, if the user allows it.
    pub(super) change_device: Option<DeviceChanger>,
    /// End of the budget.
    pub(super) deadline: Time,
    /// The case of the baseline.
    pub(super) case: Case,
    /// The server, if it is another program of this host.
    pub(super) server: Option<LocalServer>,
    /// Summaries of all blocks.
    pub(super) summaries: RefCell<Vec<BlockSummary>>,
}

impl BlockRunner {
    /// Rest of the budget.
    pub(super) fn left(&self) -> Duration {
        self.deadline.since(self.dialer.now())
    }

    /// The protocol was found out: detected once, and its port is that of the handshakes as well.
    pub(super) fn use_protocol(&mut self, name: &str) {
        name.clone_into(&mut self.case.protocol);
        let scheme = self.case.endpoints[0].scheme();
        let default = Registry::standard().protocol(name).and_then(|protocol| protocol.default_port(scheme));
        self.dialer.default_port = default;
    }

    /// Gives up a message that can be lost after this time, within limits.
    pub(super) fn limit_timeout(&mut self, wanted: Duration) {
        let is_reliable =
            self.dialer.transports.caps(&self.case.endpoints[0]).is_ok_and(|caps| caps.is_reliable);
        if !is_reliable && matches!(self.dialer.clock, Clock::System) {
            let usual = self.case.timeout.unwrap_or(MAX_TIMEOUT);
            self.case.timeout = Some(wanted.clamp(MIN_TIMEOUT.min(usual), usual));
        }
    }

    /// Runs a block with these changes, and watches the server if it runs on this host.
    ///
    /// # Errors
    ///
    /// The case cannot run, or no request got a reply.
    pub(super) fn run(&self, changes: &[Change], block: BlockPlan) -> Result<Block, LiveError> {
        let watch = self.server.as_ref().and_then(LocalServer::watch);
        let block = self.run_changed(changes, block);
        let server_wait_ns = watch.map(ServerWatch::finish);
        let block = Block { server_wait_ns, ..block? };
        self.summaries.borrow_mut().extend(BlockSummary::of(&block));
        Ok(block)
    }

    fn run_changed(&self, changes: &[Change], block: BlockPlan) -> Result<Block, LiveError> {
        let mut case = Case {
            pacing: block.pacing,
            stop: StopCondition { count: Some(block.count), ..StopCondition::after_time(block.time) },
            warm_up: Some(StopCondition { count: Some(block.warm_up), ..StopCondition::default() }),
            ..self.case.clone()
        };
        let mut held: Vec<Box<dyn Any>> = Vec::new();
        for change in changes {
            match change {
                Change::UrlOption(name, value) => {
                    let bare = case.endpoints[0].without_option(name).map_err(LiveError::invalid)?;
                    case.endpoints[0] = bare.with_option(name, value).map_err(LiveError::invalid)?;
                }
                Change::BusyPoll => case.wait = WaitMode::BusyPoll,
                Change::Pin(pinning) => case.pin = *pinning,
                Change::MessageBytes(bytes) => case.message_bytes = Some(*bytes),
                Change::Timeout(timeout) => case.timeout = Some(*timeout),
                Change::Parallel(connections) => case.parallel = *connections,
                Change::CpuWakeLatency => {
                    held.push(Box::new(power::request_wake_latency(0).map_err(LiveError::invalid)?))
                }
                Change::DeviceSetting(name, value) => {
                    let changer = self
                        .change_device
                        .as_ref()
                        .ok_or_else(|| LiveError::invalid("device settings must not be changed"))?;
                    held.push(changer.change(&format!("{name}={value}"))?);
                }
            }
        }
        let block = self.run_case(case);
        drop(held);
        block
    }

    fn run_case(&self, case: Case) -> Result<Block, LiveError> {
        let plan = Plan::new(vec![case]).map_err(LiveError::invalid)?;
        let plan = schedule::check(plan, Registry::standard()).map_err(LiveError::invalid)?;
        let mut tries = 0;
        loop {
            tries += 1;
            let failure = FirstFailure::default();
            let mut context = RunContext::new(self.dialer.clone(), &failure);
            context.token.clone_from(&self.token);
            let (raw, collected) = RawFile::collect(COLLECTED_AT_ONCE);
            context.raw = Some(raw);
            let mut run = schedule::run(&plan, &mut context);
            let samples = collected.take();
            let result = run.cases.swap_remove(0);
            if !samples.is_empty() && !run.interrupted {
                return Ok(Block { samples, result, server_wait_ns: None });
            }
            if run.interrupted {
                return Err(LiveError::Interrupted);
            } else if tries >= result.failures.first().map_or(1, max_tries) {
                let reason = failure.into_reason().unwrap_or_else(|| "no request got a reply".to_owned());
                return Err(LiveError::Measurement(reason));
            }
            self.dialer.clock.sleep_until(self.dialer.now() + RETRY_PAUSE);
        }
    }
}
