//! Blocks: short transfers of one case, each on fresh connections.

use std::time::Duration;

use super::{LiveError, LiveOptions, TransferOptions};
use crate::explain::causes::Target;
use crate::explain::counters::rates;
use linkgauge_engine::Registry;
use linkgauge_engine::link::Dialer;
use linkgauge_engine::schedule::{self, CheckedPlan, FirstFailure, RunContext};
use linkgauge_engine::workload::throughput;
use linkgauge_model::clock::Time;
use linkgauge_model::plan::{CaseSpec, OneOrMany, Plan, ProbeSpec};
use linkgauge_model::run::{CaseResult, EndEvidence};
use linkgauge_model::units::{BitRate, Bytes, MessageRate, RateTarget, Span};

/// Requests of the latency probe per second, on links without counters of their own.
const PROBES_PER_SECOND: f64 = 50.0;
/// Start of a block that is left out: slow start, at most this share of the block.
const WARM_UP_SHARE: f64 = 0.25;

/// A longer queue is not waited for.
const MAX_QUEUE: Duration = Duration::from_secs(2);

/// A setting that differs from the baseline.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum RateChange {
    /// A different value of an option of the URL; `None`: without the option.
    UrlOption(&'static str, Option<String>),
    /// A different value of an option of the protocol.
    ProtocolOption(&'static str, String),
    /// Connections.
    Connections(u32),
    /// A different message size.
    MessageBytes(u32),
    /// An offered rate of each connection, in bit/s.
    OfferedRate(f64),
}

impl RateChange {
    fn apply(&self, spec: &mut CaseSpec) -> Result<(), LiveError> {
        match self {
            RateChange::UrlOption(name, value) => {
                let Some(OneOrMany::One(url)) = &spec.url else { return Ok(()) };
                let bare = url.without_option(name).map_err(LiveError::invalid)?;
                let url = match value {
                    Some(value) => bare.with_option(name, value).map_err(LiveError::invalid)?,
                    None => bare,
                };
                spec.url = Some(OneOrMany::One(url));
            }
            RateChange::ProtocolOption(name, value) => {
                spec.protocol_options.insert((*name).to_owned(), value.clone());
            }
            RateChange::Connections(count) => spec.parallel = Some(OneOrMany::One(*count)),
            RateChange::MessageBytes(bytes) => spec.size = Some(OneOrMany::One(Bytes((*bytes).into()))),
            RateChange::OfferedRate(bps) => spec.bit_rate = Some(RateTarget::Fixed(BitRate(*bps))),
        }
        Ok(())
    }
}

/// The plan with one case.
fn check(spec: &CaseSpec) -> Result<CheckedPlan, LiveError> {
    let plan = Plan::new(spec.expand().map_err(LiveError::invalid)?).map_err(LiveError::invalid)?;
    schedule::check(plan, Registry::standard()).map_err(LiveError::invalid)
}

/// A measured block.
#[derive(Debug, Clone)]
pub(super) struct RateBlock {
    /// Delivered payload, in bit/s.
    pub(super) rate_bps: f64,
    /// Figures and settings.
    pub(super) result: CaseResult,
    /// Time that the block took beyond the plan.
    setup: Duration,
}

impl RateBlock {
    /// Time that the block took beyond the plan: connecting, emptying the queues.
    pub(super) fn setup(&self) -> Duration {
        self.setup
    }

    /// The round trip under this load, in ns: as the kernel of the sender sees it, or a probe beside the load.
    pub(super) fn round_trip_ns(&self) -> Option<f64> {
        let of_kernel = rates::sending_end(&self.result).and_then(|end| end.gauge("tcp_rtt_ns"));
        let of_probe = || self.result.under_load.as_ref()?.times.latency_ns.as_ref()?.percentile("p50");
        of_kernel.map(|gauge| gauge.median).or_else(of_probe).map(|round_trip| round_trip as f64)
    }

    /// The shortest round trip, in ns.
    pub(super) fn shortest_round_trip_ns(&self) -> Option<f64> {
        let of_kernel = rates::sending_end(&self.result).and_then(|end| end.gauge("tcp_min_rtt_ns"));
        let of_probe = || Some(self.result.under_load.as_ref()?.times.latency_ns.as_ref()?.min);
        of_kernel.map(|gauge| gauge.min).or_else(of_probe).map(|shortest| shortest as f64)
    }

    /// The time in which the queue of this load empties.
    fn queue(&self) -> Duration {
        let round_trips = self.round_trip_ns().zip(self.shortest_round_trip_ns());
        let queue_ns = round_trips.map_or(0.0, |(loaded, shortest)| (loaded - shortest).max(0.0));
        Duration::from_nanos(queue_ns as u64).min(MAX_QUEUE)
    }

    /// The share of messages that were lost, or of segments that were sent again, from 0 to 1.
    pub(super) fn loss_share(&self) -> Option<f64> {
        let of_segments = |end: &EndEvidence| {
            let sent = end.counter("tcp_sent_segments").filter(|sent| *sent > 0)?;
            Some(end.counter("tcp_retransmitted_segments")? as f64 / sent as f64)
        };
        let counts = &self.result.figures.counts;
        let of_messages = || (counts.sent > 0).then(|| counts.lost as f64 / counts.sent as f64);
        rates::sending_end(&self.result).and_then(of_segments).or_else(of_messages)
    }
}

/// Runs blocks of one case.
pub(super) struct RateBlocks {
    dialer: Dialer,
    token: Option<String>,
    /// End of the budget.
    deadline: Time,
    /// The case of the baseline.
    spec: CaseSpec,
}

impl RateBlocks {
    /// # Errors
    ///
    /// The link or the protocol cannot carry such a transfer.
    pub fn new(
        options: &LiveOptions,
        transfer: &TransferOptions,
        (dialer, deadline): (&Dialer, Time),
        target: &Target,
    ) -> Result<RateBlocks, LiveError> {
        let has_counters = target.has_delayed_acknowledgements();
        let probe = match target.caps.can_open_parallel && !has_counters {
            true => ProbeSpec::Rate(MessageRate(PROBES_PER_SECOND)),
            false => ProbeSpec::Switch(false),
        };
        let spec = CaseSpec {
            url: Some(OneOrMany::One(options.endpoint.clone())),
            protocol: Some(options.protocol.clone()),
            protocol_options: options.protocol_options.clone(),
            workload: Some(throughput::WORKLOAD.name.to_owned()),
            direction: transfer.direction.map(OneOrMany::One),
            size: options.message_bytes.map(|bytes| OneOrMany::One(Bytes(bytes.into()))),
            bit_rate: transfer.bit_rate,
            probe: Some(probe),
            timeout: options.timeout.map(Span),
            ..CaseSpec::default()
        };
        let blocks = RateBlocks { dialer: dialer.clone(), token: options.token.clone(), deadline, spec };
        check(&blocks.spec)?;
        Ok(blocks)
    }

    /// Uses what the first block found out: the protocol, and the direction that it chose.
    pub(super) fn detected(&mut self, result: &CaseResult) {
        self.spec.protocol = Some(result.protocol.clone());
        self.spec.direction = Some(OneOrMany::One(result.direction));
    }

    pub(super) fn now(&self) -> Time {
        self.dialer.now()
    }

    /// Rest of the budget.
    pub(super) fn left(&self) -> Duration {
        self.deadline.since(self.dialer.now())
    }

    /// # Errors
    ///
    /// The case cannot run, or nothing was delivered.
    pub(super) fn run(&self, changes: &[RateChange], time: Duration) -> Result<RateBlock, LiveError> {
        let plan = |warm_up: Duration| {
            let mut spec = CaseSpec {
                time: Some(Span(time.saturating_sub(warm_up))),
                warm_up_time: (!warm_up.is_zero()).then_some(Span(warm_up)),
                ..self.spec.clone()
            };
            changes.iter().try_for_each(|change| change.apply(&mut spec))?;
            check(&spec)
        };
        // Some protocols have a warm-up of whole seconds, or none.
        let plan = plan(time.mul_f64(WARM_UP_SHARE)).or_else(|_| plan(Duration::ZERO))?;
        let began = self.dialer.now();
        let result = self.run_plan(&plan)?;
        let rate_bps = result.figures.delivery.throughput_bps.filter(|rate| *rate > 0.0).ok_or_else(|| {
            LiveError::Measurement(
                "the server reported no received payload, so the rate is unknown. Try --protocol linkgauge or discard"
                    .to_owned(),
            )
        })?;
        let block = RateBlock { rate_bps, result, setup: Duration::ZERO };
        // What the block has queued must not slow the next one.
        self.dialer.clock.sleep_until(self.dialer.now() + block.queue());
        let setup = self.dialer.now().since(began).saturating_sub(time);
        Ok(RateBlock { setup, ..block })
    }

    fn run_plan(&self, plan: &CheckedPlan) -> Result<CaseResult, LiveError> {
        let failure = FirstFailure::default();
        let mut context = RunContext::new(self.dialer.clone(), &failure);
        context.token.clone_from(&self.token);
        let mut run = schedule::run(plan, &mut context);
        let result = run.cases.swap_remove(0);
        match failure.into_reason() {
            _ if run.interrupted => Err(LiveError::Interrupted),
            Some(reason) if result.figures.delivery.throughput_bps.is_none() => {
                Err(LiveError::Measurement(reason))
            }
            _ => Ok(result),
        }
    }
}
