//! One measurement in one expression, for programs that use the library.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::{CheckedPlan, InvalidCase, Observer, RunContext, RunEvent, check, run};
use crate::link::Dialer;
use crate::protocol::Registry;
use crate::workload::{download, latency, throughput};
use linkgauge_model::clock::Clock;
use linkgauge_model::endpoint::{Endpoint, EndpointError};
use linkgauge_model::plan::{CaseSpec, CaseSpecError, Direction, OneOrMany, Plan, PlanError};
use linkgauge_model::run::CaseResult;
use linkgauge_model::units::{BitRate, Bytes, Count, MessageRate, RateTarget, Span};

/// Round-trip times of messages.
#[derive(Debug)]
pub struct Latency;

/// Payload delivered per second.
#[derive(Debug)]
pub struct Throughput;

/// A file or a table, requested in chunks.
#[derive(Debug)]
pub struct Download;

impl Latency {
    /// A measurement of the latency to this endpoint.
    pub fn to(url: &str) -> Measurement {
        Measurement::new(url, latency::WORKLOAD.name)
    }
}

impl Throughput {
    /// A measurement of the throughput to this endpoint, or from it (see [`Measurement::direction`]).
    pub fn to(url: &str) -> Measurement {
        Measurement::new(url, throughput::WORKLOAD.name)
    }
}

impl Download {
    /// A download from this endpoint. The options of the protocol name the file or the table.
    pub fn from(url: &str) -> Measurement {
        Measurement::new(url, download::WORKLOAD.name)
    }
}

/// A measurement that is described step by step and then run. Settings that are not made have the default of the program.
#[derive(Debug, Clone)]
#[must_use = "a measurement does nothing until it runs"]
pub struct Measurement {
    url: String,
    case: CaseSpec,
    repeat: u32,
    token: Option<String>,
}

/// Error of a measurement without a complete result.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum MeasureError {
    /// The URL is not that of an endpoint.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// A setting is invalid, or the protocol or the link does not support it. Nothing was opened.
    #[error(transparent)]
    InvalidCase(#[from] InvalidCase),
    /// A setting is invalid on its own.
    #[error(transparent)]
    InvalidSetting(#[from] CaseSpecError),
    /// The number of repetitions is invalid.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The protocol measures several message sizes, unless one is chosen.
    #[error("the protocol measures {sizes} message sizes by default: choose one with size()")]
    SeveralSizes {
        /// Number of sizes that the protocol measures by default.
        sizes: usize,
    },
    /// The measurement could not be started, or ended early.
    #[error("{reason}")]
    Incomplete {
        /// Endpoint, cause and remedy, for people.
        reason: String,
        /// Figures measured until then.
        result: Box<CaseResult>,
    },
    /// The cancel flag of the dialer was set.
    #[error("the measurement was interrupted")]
    Interrupted {
        /// Figures measured until then.
        result: Box<CaseResult>,
    },
}

/// Formats the error without the result, which takes pages.
impl fmt::Debug for MeasureError {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            MeasureError::Endpoint(error) => f.debug_tuple("Endpoint").field(error).finish(),
            MeasureError::InvalidCase(error) => f.debug_tuple("InvalidCase").field(error).finish(),
            MeasureError::InvalidSetting(error) => f.debug_tuple("InvalidSetting").field(error).finish(),
            MeasureError::Plan(error) => f.debug_tuple("Plan").field(error).finish(),
            MeasureError::SeveralSizes { sizes } => {
                f.debug_struct("SeveralSizes").field("sizes", sizes).finish()
            }
            MeasureError::Incomplete { reason, .. } => {
                f.debug_struct("Incomplete").field("reason", reason).finish_non_exhaustive()
            }
            MeasureError::Interrupted { .. } => f.debug_struct("Interrupted").finish_non_exhaustive(),
        }
    }
}

impl Measurement {
    pub(crate) fn new(url: &str, workload: &str) -> Measurement {
        let case = CaseSpec { workload: Some(workload.to_owned()), ..CaseSpec::default() };
        Measurement { url: url.to_owned(), case, repeat: 1, token: None }
    }

    /// Sets the protocol of the remote: one of [`Registry::protocols`](crate::protocol::Registry::protocols). Default: detected.
    pub fn protocol(mut self, name: &str) -> Measurement {
        self.case.protocol = Some(name.to_owned());
        self
    }

    /// Sets an option of the protocol.
    pub fn option(mut self, name: &str, value: &str) -> Measurement {
        self.case.protocol_options.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Stops after this number of messages.
    pub fn count(mut self, messages: u64) -> Measurement {
        self.case.count = Some(Count(messages));
        self
    }

    /// Stops after this time.
    pub fn time(mut self, time: Duration) -> Measurement {
        self.case.time = Some(Span(time));
        self
    }

    /// Stops after this amount of payload.
    pub fn volume(mut self, bytes: u64) -> Measurement {
        self.case.volume = Some(Bytes(bytes));
        self
    }

    /// Sets the payload of one message.
    pub fn size(mut self, bytes: u32) -> Measurement {
        self.case.size = Some(OneOrMany::One(Bytes(bytes.into())));
        self
    }

    /// Sends this number of messages per second, on a fixed schedule.
    pub fn rate(mut self, messages_per_second: f64) -> Measurement {
        self.case.rate = Some(RateTarget::Fixed(MessageRate(messages_per_second)));
        self
    }

    /// Sends this number of payload bits per second on each connection.
    pub fn bit_rate(mut self, bits_per_second: f64) -> Measurement {
        self.case.bit_rate = Some(RateTarget::Fixed(BitRate(bits_per_second)));
        self
    }

    /// Probes the idle link for this time, before the load and after it.
    pub fn idle(mut self, time: Duration) -> Measurement {
        self.case.idle = Some(Span(time));
        self
    }

    /// Direction of the payload.
    pub fn direction(mut self, direction: Direction) -> Measurement {
        self.case.direction = Some(OneOrMany::One(direction));
        self
    }

    /// Measures on this number of concurrent connections.
    pub fn parallel(mut self, connections: u32) -> Measurement {
        self.case.parallel = Some(OneOrMany::One(connections));
        self
    }

    /// Runs for this time before the measurement starts.
    pub fn warm_up(mut self, time: Duration) -> Measurement {
        self.case.warm_up_time = Some(Span(time));
        self
    }

    /// Sets the timeout: a request without a reply by then is lost; a flow without progress for that long has failed.
    pub fn timeout(mut self, timeout: Duration) -> Measurement {
        self.case.timeout = Some(Span(timeout));
        self
    }

    /// Measures this number of times. With two or more the figures have intervals.
    pub fn repeat(mut self, times: u32) -> Measurement {
        self.repeat = times;
        self
    }

    /// The secret that the server requires.
    pub fn token(mut self, token: &str) -> Measurement {
        self.token = Some(token.to_owned());
        self
    }

    /// Runs the measurement in this thread.
    ///
    /// # Errors
    /// The URL or a setting is invalid, or the measurement is incomplete; then the error holds what was measured.
    pub fn run(self) -> Result<CaseResult, MeasureError> {
        self.run_with(Registry::standard().dialer(Clock::System))
    }

    /// Runs the measurement with the clock, the links and the cancel flag of this dialer.
    ///
    /// # Errors
    /// As for [`Measurement::run`].
    pub fn run_with(self, dialer: Dialer) -> Result<CaseResult, MeasureError> {
        let plan = self.plan()?;
        let failure = FirstFailure::default();
        let mut context = RunContext::new(dialer, &failure);
        context.token = self.token;
        let mut run = run(&plan, &mut context);
        let result = run.cases.remove(0);
        if result.complete {
            return Ok(result);
        }
        let (reason, result) = (failure.into_reason(), Box::new(result));
        Err(match reason {
            None => MeasureError::Interrupted { result },
            Some(_) if run.interrupted => MeasureError::Interrupted { result },
            Some(reason) => MeasureError::Incomplete { reason, result },
        })
    }

    fn plan(&self) -> Result<CheckedPlan, MeasureError> {
        let endpoint: Endpoint = self.url.parse()?;
        let case = CaseSpec { url: Some(OneOrMany::One(endpoint)), ..self.case.clone() };
        let cases = case.expand()?;
        let plan = check(Plan::new(cases)?.repeated(self.repeat)?, Registry::standard())?;
        let sizes = plan.cases().len();
        match sizes {
            1 => Ok(plan),
            _ => Err(MeasureError::SeveralSizes { sizes }),
        }
    }
}

/// The first reason why a case is incomplete.
#[derive(Default)]
pub struct FirstFailure(Mutex<Option<String>>);

impl FirstFailure {
    /// The reason; `None` if every case is complete.
    pub fn into_reason(self) -> Option<String> {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for FirstFailure {
    fn event(&self, event: &RunEvent) {
        if let RunEvent::Failed { reason, .. } = event {
            let mut first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            first.get_or_insert_with(|| (*reason).to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;
    use crate::serve::Server;

    fn served(protocol: &str) -> (Dialer, Server) {
        let dialer = Registry::standard().dialer(Clock::new_virtual());
        let server = Server::on("mem://server?delay=1ms").protocol(protocol).start_with(&dialer).unwrap();
        (dialer, server)
    }

    #[test]
    fn a_measurement_is_one_expression() {
        let (dialer, server) = served("linkgauge");
        let result = Latency::to(server.url()).count(50).size(100).run_with(dialer.clone()).unwrap();
        assert_eq!(
            (result.protocol.as_str(), result.message_bytes, result.figures.counts.received),
            ("linkgauge", 100, 50)
        );
        assert_eq!(result.figures.times.latency_ns.unwrap().min, 2_000_000);
        let load =
            Throughput::to("mem://server?rate=8Mbit/s").volume(1_000_000).direction(Direction::Receive);
        let result = load.protocol("linkgauge").run_with(dialer).unwrap();
        assert_eq!(result.figures.delivery.delivered_bytes, Some(1_000_000));
    }

    #[test]
    fn errors_can_be_matched() {
        let (dialer, _server) = served("echo");
        let run = |measurement: Measurement| measurement.run_with(dialer.clone());
        assert!(matches!(run(Latency::to("no scheme://")), Err(MeasureError::Endpoint(_))));
        let download = Measurement::new("mem://server", "download").protocol("echo");
        assert!(matches!(run(download), Err(MeasureError::InvalidCase(_))));
        let netio = Throughput::to("mem://server").protocol("netio");
        assert!(matches!(run(netio), Err(MeasureError::SeveralSizes { .. })));
        let Err(MeasureError::Incomplete { reason, result }) =
            run(Latency::to("mem://absent").protocol("echo"))
        else {
            panic!("nothing listens there")
        };
        assert!(reason.starts_with("mem://absent: ") && !result.complete, "{reason}");
        dialer.cancel.store(true, Relaxed);
        assert!(matches!(run(Latency::to("mem://server")), Err(MeasureError::Interrupted { .. })));
    }
}
