//! Plan of a run: the cases and how to run them, from a TOML file or from flags. Its form is checked before anything is opened.
//!
//! This module has no side effects and does not know which protocols, workloads or transports exist. It handles names;
//! `schedule::check` looks them up and fills in what was left open.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::endpoint::Endpoint;
use crate::metric::Threshold;
pub use crate::traffic::{Direction, SocketSettings, WaitMode};
use crate::units::{
    BitRate, Bytes, Count, MAX_MESSAGES_PER_SECOND, MessageRate, RateTarget, Span, format_duration,
};

mod build;
mod error;
mod expand;
mod file;
mod one_or_many;
pub mod toml_text;

pub use error::{CaseSpecError, PlanError};
pub use one_or_many::OneOrMany;

/// Cases to run, in order. Repetitions are interleaved: all cases once, then all cases again.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Title of the reports.
    pub title: Option<String>,
    /// Runs of each case, at least 1.
    pub repeat: u32,
    /// Whether to continue with the next case after a failure.
    pub keep_going: bool,
    /// Cases of the plan, at least one.
    pub cases: Vec<Case>,
}

/// One endpoint × protocol × workload × direction × size × number of ports, as requested.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// The ports of this case, run side by side; never empty.
    pub endpoints: Vec<Endpoint>,
    /// The name of a protocol, or `auto`.
    pub protocol: String,
    /// Options of the protocol (`send`, `until`, …), as typed.
    pub protocol_options: BTreeMap<String, String>,
    /// The name of a workload.
    pub workload: String,
    /// Direction of the payload, as the client sees it. `None`: the protocol chooses.
    pub direction: Option<Direction>,
    /// Payload bytes of one message. `None`: the protocol or the workload chooses.
    pub message_bytes: Option<u32>,
    /// Connections to each endpoint, at least 1.
    pub parallel: u32,
    /// Threads of the client for its connections, at least 1. `None`: one for each connection, up to the number of CPUs.
    pub threads: Option<u32>,
    /// The requested pacing.
    pub rate: RequestedRate,
    /// The effective pacing, as far as the plan decides it.
    pub pacing: Pacing,
    /// End of the measurement. Unlimited: the workload chooses.
    pub stop: StopCondition,
    /// Phase that is excluded from every figure. `None`: the workload chooses.
    pub warm_up: Option<StopCondition>,
    /// A request without a reply by then is lost. `None`: the workload chooses.
    pub timeout: Option<Duration>,
    /// Wait mode of client and server.
    pub wait: WaitMode,
    /// CPUs for the threads of client and server. Empty: the operating system schedules them.
    pub pin: CpuPinning,
    /// Rate of the latency probe beside a load; `None` switches it off.
    pub probe_per_second: Option<f64>,
    /// Time for which the probe runs on the idle link, before a load and again after it; zero: not at all.
    pub idle: Duration,
    /// The kernels stamp the messages of round trips, where the links support it.
    pub stamps: bool,
    /// Length of one interval of the time series.
    pub series_interval: Duration,
    /// Time between two progress events.
    pub progress_interval: Duration,
    /// Limits for the shares of late requests.
    pub late_limits: Vec<Duration>,
    /// Limits that the figures must meet.
    pub thresholds: Vec<Threshold>,
}

/// Due time of the next message.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Pacing {
    /// Next message after the previous round trip (latency), or when the link accepts more (throughput).
    Closed,
    /// Messages on a fixed schedule, independent of earlier messages.
    Fixed {
        /// Messages per second, above zero.
        per_second: f64,
    },
    /// Messages on a schedule with exponential intervals.
    Poisson {
        /// Mean messages per second, above zero.
        per_second: f64,
        /// Seed of the intervals: the same seed gives the same ones.
        seed: u64,
    },
    /// An exponential time after the previous round trip, with one request in flight (latency only). No plan requests it:
    /// `explain` uses it, because then neither queues nor a constant latency look like a clock of the remote.
    ThinkTime {
        /// Mean pause, above zero.
        mean_seconds: f64,
        /// Seed of the pauses: the same seed gives the same ones.
        seed: u64,
    },
}

/// The requested rate. [`Pacing`] is the effective one.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum RequestedRate {
    /// Full speed, where that disturbs no other traffic: no pacing was requested.
    #[default]
    Default,
    /// Full speed.
    Max,
    /// Messages on each connection; round trips: on all connections to an endpoint together.
    Messages {
        /// Messages per second, above zero.
        per_second: f64,
    },
    /// Payload on each connection, in bits; round trips: on all connections to an endpoint together.
    Bits {
        /// Bits of payload per second, above zero.
        per_second: f64,
    },
}

impl RequestedRate {
    fn from_options(
        rate: Option<RateTarget<MessageRate>>,
        bit_rate: Option<RateTarget<BitRate>>,
    ) -> Result<RequestedRate, CaseSpecError> {
        Ok(match (rate, bit_rate) {
            (Some(_), Some(_)) => {
                let what = "a case has a rate and a bit_rate: use one of them";
                return Err(CaseSpecError::new("rate", what));
            }
            (Some(RateTarget::Max), None) | (None, Some(RateTarget::Max)) => RequestedRate::Max,
            (Some(RateTarget::Fixed(rate)), None) => RequestedRate::Messages { per_second: rate.0 },
            (None, Some(RateTarget::Fixed(rate))) => RequestedRate::Bits { per_second: rate.0 },
            (None, None) => RequestedRate::Default,
        })
    }

    /// Messages of this size per second. `None` without pacing.
    pub fn per_second(self, message_bytes: u32) -> Option<f64> {
        match self {
            RequestedRate::Default | RequestedRate::Max => None,
            RequestedRate::Messages { per_second } => Some(per_second),
            RequestedRate::Bits { per_second } => Some(per_second / (8.0 * f64::from(message_bytes))),
        }
    }
}

impl Pacing {
    /// Messages per second. `None` without a schedule.
    pub fn per_second(self) -> Option<f64> {
        match self {
            Pacing::Closed | Pacing::ThinkTime { .. } => None,
            Pacing::Fixed { per_second } | Pacing::Poisson { per_second, .. } => Some(per_second),
        }
    }
}

/// The end of a phase: the first condition that is met. All `None`: the phase has no length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StopCondition {
    /// Number of messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Time in nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_ns: Option<u64>,
    /// Payload bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_bytes: Option<u64>,
    /// The count ends the phase only after this time, in nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub min_time_ns: Option<u64>,
}

impl StopCondition {
    /// No condition.
    pub const UNLIMITED: StopCondition =
        StopCondition { count: None, time_ns: None, volume_bytes: None, min_time_ns: None };

    /// A condition that ends a phase after these messages.
    pub fn after_count(count: u64) -> StopCondition {
        StopCondition { count: Some(count), ..StopCondition::default() }
    }

    /// A condition that ends a phase after this time.
    pub fn after_time(time: Duration) -> StopCondition {
        StopCondition {
            time_ns: Some(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)),
            ..StopCondition::default()
        }
    }

    /// Whether no condition is set.
    pub fn is_unlimited(&self) -> bool {
        *self == StopCondition::default()
    }

    /// Whether the phase is over after these messages, time and bytes.
    #[inline]
    pub fn is_reached(&self, count: u64, elapsed: Duration, bytes: u64) -> bool {
        let is_past = |time_ns: u64| elapsed.as_nanos() >= u128::from(time_ns);
        self.count.is_some_and(|limit| count >= limit && self.min_time_ns.is_none_or(is_past))
            || self.volume_bytes.is_some_and(|limit| bytes >= limit)
            || self.time_ns.is_some_and(is_past)
    }
}

/// CPUs that client and server run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CpuPinning {
    /// CPU of the client, from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<u32>,
    /// CPU of the server, from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<u32>,
}

/// A case as written: all fields optional, lists for a sweep. Flags fill the same struct.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CaseSpec {
    /// The endpoints.
    pub url: Option<OneOrMany<Endpoint>>,
    /// The URLs are ports of one case and run side by side.
    pub together: Option<bool>,
    /// Number of ports to measure at once, counted up from the port of the URL.
    pub ports: Option<OneOrMany<u32>>,
    /// Protocol of the remote. Default: `auto`.
    pub protocol: Option<String>,
    /// Options of the protocol by name.
    #[serde(deserialize_with = "as_text")]
    pub protocol_options: BTreeMap<String, String>,
    /// Name of the workload.
    pub workload: Option<String>,
    /// Direction of the payload, as the client sees it.
    pub direction: Option<OneOrMany<Direction>>,
    /// Payload of one message.
    pub size: Option<OneOrMany<Bytes>>,
    /// Connections to each endpoint.
    pub parallel: Option<OneOrMany<u32>>,
    /// Threads of the client for its connections.
    pub threads: Option<u32>,
    /// Messages per second on each connection, or full speed.
    pub rate: Option<RateTarget<MessageRate>>,
    /// Bits of payload per second on each connection, or full speed.
    pub bit_rate: Option<RateTarget<BitRate>>,
    /// Whether the intervals between messages are exponential.
    pub poisson: Option<bool>,
    /// Seed of the random intervals.
    pub seed: Option<u64>,
    /// Number of messages after which the measurement ends.
    pub count: Option<Count>,
    /// Time after which the measurement ends.
    pub time: Option<Span>,
    /// Payload after which the measurement ends.
    pub volume: Option<Bytes>,
    /// Number of first messages that are excluded.
    pub warm_up_count: Option<Count>,
    /// Time at the start that is excluded.
    pub warm_up_time: Option<Span>,
    /// A request without a reply by then is lost.
    pub timeout: Option<Span>,
    /// Whether both ends wait by polling.
    pub busy_poll: Option<bool>,
    /// CPUs of client and server.
    pub pin: Option<OneOrMany<u32>>,
    /// Messages per second of the probe during a load. `probe = false` in a file disables it.
    pub probe: Option<ProbeSpec>,
    /// The probe also runs on the idle link, for this time before the load and after it.
    pub idle: Option<Span>,
    /// Length of one interval of the time series.
    pub interval: Option<Span>,
    /// The kernels stamp the messages of round trips.
    pub stamps: Option<bool>,
    /// Limits for the shares of late requests.
    pub late: Option<Vec<Span>>,
    /// Limits that the figures must meet.
    pub thresholds: Option<Vec<Threshold>>,
}

/// Reads protocol options, which may be text, numbers or booleans. Only the protocol interprets them.
fn as_text<'de, D: serde::Deserializer<'de>>(values: D) -> Result<BTreeMap<String, String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "an option is text in quotes, a whole number, true or false")]
    enum Written {
        Text(String),
        Number(i64),
        Switch(bool),
    }
    let written = BTreeMap::<String, Written>::deserialize(values)?;
    let text = written.into_iter().map(|(name, value)| match value {
        Written::Text(text) => (name, text),
        Written::Number(number) => (name, number.to_string()),
        Written::Switch(on) => (name, on.to_string()),
    });
    Ok(text.collect())
}

/// The latency probe during a load: a rate, or off.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(untagged, expecting = "a probe is true, false or a rate like 10")]
pub enum ProbeSpec {
    /// Off, or on at the default rate.
    Switch(bool),
    /// Probes per second.
    Rate(MessageRate),
}

/// Default rate of probes, per second: enough for a p90 in ten seconds of load, and far below the load's own packet rate.
const DEFAULT_PROBE_PER_SECOND: f64 = 10.0;

/// Reason why a limit of lateness of 0 is refused.
pub const ZERO_LATE_LIMIT: &str = "a limit of 0 is exceeded by every reply: use 1ms or more, or leave it out";

/// The default limits of lateness: those of the published wireless study. With a schedule: one, three and six frames
/// of a 60 Hz game loop.
pub fn default_late_limits(pacing: Pacing) -> Vec<Duration> {
    let limits_us: &[u64] = match pacing {
        Pacing::Closed | Pacing::ThinkTime { .. } => &[50_000, 100_000, 200_000, 300_000],
        Pacing::Fixed { .. } | Pacing::Poisson { .. } => &[16_700, 50_000, 100_000],
    };
    limits_us.iter().copied().map(Duration::from_micros).collect()
}

/// Maximum number of threads; more are a typing error.
const MAX_THREADS: u32 = 1024;

macro_rules! over {
    ($upper:ident, $lower:ident; $($field:ident),*) => {
        CaseSpec {
            protocol_options: $lower.protocol_options.clone().into_iter().chain($upper.protocol_options.clone()).collect(),
            $($field: $upper.$field.clone().or_else(|| $lower.$field.clone()),)*
        }
    };
}

impl CaseSpec {
    /// Returns the case with missing fields taken from `defaults`.
    pub fn with_defaults(&self, defaults: &CaseSpec) -> CaseSpec {
        over!(self, defaults; url, together, ports, protocol, workload, direction, size, parallel, threads, rate, bit_rate, poisson,
            seed, count, time, volume, warm_up_count, warm_up_time, timeout, busy_poll, pin, probe, idle, interval, stamps, late, thresholds)
    }

    fn build_case(
        &self,
        endpoints: &[Endpoint],
        workload: &str,
        direction: Option<Direction>,
        parallel: u32,
        message_bytes: Option<u32>,
    ) -> Result<Case, CaseSpecError> {
        let rate = RequestedRate::from_options(self.rate, self.bit_rate)?;
        let pacing = self.pacing(rate, message_bytes)?;
        Ok(Case {
            endpoints: endpoints.to_vec(),
            protocol: self.protocol.clone().unwrap_or_else(|| "auto".to_owned()),
            protocol_options: self.protocol_options.clone(),
            workload: workload.to_owned(),
            direction,
            message_bytes,
            parallel,
            threads: self.checked_threads()?,
            rate,
            pacing,
            stop: self.stop_condition()?,
            warm_up: (self.warm_up_count.is_some() || self.warm_up_time.is_some()).then(|| StopCondition {
                count: self.warm_up_count.map(|count| count.0),
                time_ns: nanoseconds(self.warm_up_time),
                ..StopCondition::default()
            }),
            timeout: self.checked_timeout()?,
            wait: if self.busy_poll.unwrap_or(false) { WaitMode::BusyPoll } else { WaitMode::Block },
            pin: self.pinning()?,
            probe_per_second: match self.probe {
                None | Some(ProbeSpec::Switch(true)) => Some(DEFAULT_PROBE_PER_SECOND),
                Some(ProbeSpec::Switch(false)) => None,
                Some(ProbeSpec::Rate(rate)) => Some(rate.0),
            },
            idle: self.checked_idle()?,
            stamps: self.stamps.unwrap_or(false),
            series_interval: self.interval_or(DEFAULT_SERIES_INTERVAL)?,
            progress_interval: self.interval_or(DEFAULT_PROGRESS_INTERVAL)?,
            late_limits: self.checked_late_limits(pacing)?,
            thresholds: self.thresholds.clone().unwrap_or_default(),
        })
    }
}

fn nanoseconds(span: Option<Span>) -> Option<u64> {
    span.map(|span| u64::try_from(span.0.as_nanos()).unwrap_or(u64::MAX))
}

/// The longest time that a probe runs on the idle link. Servers wait no longer before they send.
pub const MAX_IDLE_TIME: Duration = Duration::from_secs(10);

/// Shortest interval of the time series.
const MIN_SERIES_INTERVAL: Duration = Duration::from_millis(1);
const DEFAULT_SERIES_INTERVAL: Duration = Duration::from_millis(100);
const DEFAULT_PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// The values of a case, each checked by itself.
impl CaseSpec {
    fn checked_late_limits(&self, pacing: Pacing) -> Result<Vec<Duration>, CaseSpecError> {
        let Some(late) = &self.late else { return Ok(default_late_limits(pacing)) };
        match late.iter().any(|limit| limit.0.is_zero()) {
            true => Err(CaseSpecError::new("late", ZERO_LATE_LIMIT)),
            false => Ok(late.iter().map(|limit| limit.0).collect()),
        }
    }

    fn pacing(&self, rate: RequestedRate, message_bytes: Option<u32>) -> Result<Pacing, CaseSpecError> {
        // Without a size, the link determines it later.
        let sized = message_bytes.is_some() || !matches!(rate, RequestedRate::Bits { .. });
        let per_second = rate.per_second(message_bytes.unwrap_or(1)).filter(|_| sized);
        match (per_second, self.poisson.unwrap_or(false)) {
            (None, true) if !sized => {
                let what = "a Poisson schedule at a bit rate needs a message size: add a size";
                Err(CaseSpecError::new("size", what))
            }
            (None, false) => Ok(Pacing::Closed),
            (None, true) => Err(CaseSpecError::new("rate", "a Poisson schedule needs a rate: add one")),
            (Some(per_second), _) if per_second > MAX_MESSAGES_PER_SECOND => {
                let what = format!("{per_second:e} messages/s: use a lower bit rate, or a larger size");
                Err(CaseSpecError::new("bit_rate", what))
            }
            (Some(per_second), false) => Ok(Pacing::Fixed { per_second }),
            (Some(per_second), true) => Ok(Pacing::Poisson { per_second, seed: self.seed.unwrap_or(1) }),
        }
    }

    fn stop_condition(&self) -> Result<StopCondition, CaseSpecError> {
        let stop = StopCondition {
            count: self.count.map(|count| count.0),
            time_ns: nanoseconds(self.time),
            volume_bytes: self.volume.map(|volume| volume.0),
            min_time_ns: None,
        };
        if stop.count == Some(0) || stop.volume_bytes == Some(0) {
            let field = if stop.count == Some(0) { "count" } else { "volume" };
            return Err(CaseSpecError::new(field, "a count or volume of 0 measures nothing: use 1 or more"));
        }
        if stop.time_ns == Some(0) {
            return Err(CaseSpecError::new("time", "a time of 0 measures nothing: use a longer time"));
        }
        Ok(stop)
    }

    fn checked_timeout(&self) -> Result<Option<Duration>, CaseSpecError> {
        match self.timeout {
            Some(Span(Duration::ZERO)) => Err(CaseSpecError::new(
                "timeout",
                "a timeout of 0 leaves no time for a reply: use 1ms or more, or leave it out",
            )),
            timeout => Ok(timeout.map(|span| span.0)),
        }
    }

    fn checked_idle(&self) -> Result<Duration, CaseSpecError> {
        match self.idle.map_or(Duration::ZERO, |span| span.0) {
            idle if idle > MAX_IDLE_TIME => Err(CaseSpecError::new(
                "idle",
                format!(
                    "an idle time of {} is too long: use up to {}",
                    format_duration(idle),
                    format_duration(MAX_IDLE_TIME)
                ),
            )),
            idle => Ok(idle),
        }
    }

    fn interval_or(&self, default: Duration) -> Result<Duration, CaseSpecError> {
        match self.interval.map_or(default, |span| span.0) {
            interval if interval < MIN_SERIES_INTERVAL => Err(CaseSpecError::new(
                "interval",
                format!(
                    "an interval of {} is too short for a time series: use 1ms or more",
                    format_duration(interval)
                ),
            )),
            interval => Ok(interval),
        }
    }

    fn checked_threads(&self) -> Result<Option<u32>, CaseSpecError> {
        match self.threads {
            Some(threads) if !(1..=MAX_THREADS).contains(&threads) => {
                Err(CaseSpecError::new("threads", format!("threads = {threads}: use 1 to {MAX_THREADS}")))
            }
            threads => Ok(threads),
        }
    }

    fn pinning(&self) -> Result<CpuPinning, CaseSpecError> {
        match self.pin.as_ref().map_or(&[][..], OneOrMany::as_slice) {
            [] => Ok(CpuPinning::default()),
            [client] => Ok(CpuPinning { client: Some(*client), server: None }),
            [client, server] => Ok(CpuPinning { client: Some(*client), server: Some(*server) }),
            _ => Err(CaseSpecError::new(
                "pin",
                "too many CPUs: pin takes one for the client and one for the server",
            )),
        }
    }
}

fn parse_message_bytes(size: &Bytes) -> Result<u32, CaseSpecError> {
    u32::try_from(size.0)
        .ok()
        .filter(|size| (1..=1 << 30).contains(size))
        .ok_or_else(|| CaseSpecError::new("size", format!("a message of {} bytes: use 1 to 1Gi", size.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_make_cases() {
        let plan = Plan::from_toml(
            r#"
            title = "sweep"
            repeat = 3
            [defaults]
            protocol = "echo"
            timeout = "250ms"
            [[case]]
            url = ["tcp://a:1", "tcp://b:1"]
            workload = "latency"
            size = ["1", "1k", 64]
            count = 100
            "#,
        )
        .unwrap();
        assert_eq!(plan.cases.len(), 6);
        assert_eq!(plan.repeat, 3);
        let last = &plan.cases[5];
        assert_eq!(last.endpoints[0].as_str(), "tcp://b:1");
        assert_eq!((last.message_bytes, last.timeout), (Some(64), Some(Duration::from_millis(250))));
        assert_eq!(last.stop, StopCondition::after_count(100));
    }

    #[test]
    fn ports_count_up_in_one_case() {
        let plan = Plan::from_toml(
            "[[case]]\nurl = \"tcp://box:7001\"\nworkload = \"latency\"\nports = [1, 4]\nrate = \"60Hz\"",
        )
        .unwrap();
        assert_eq!(plan.cases[1].endpoints[3].as_str(), "tcp://box:7004");
        assert_eq!(plan.cases[1].pacing, Pacing::Fixed { per_second: 60.0 });
    }

    #[test]
    fn an_unknown_key_shows_its_line() {
        let error = Plan::from_toml("[[case]]\nurl = \"tcp://a:1\"\nbanana = 1\n").unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("line 3: unknown field `banana`"), "{text}");
    }

    #[test]
    fn mistakes_are_named() {
        let what = |text: &str| Plan::from_toml(text).unwrap_err().to_string();
        let case =
            |line: &str| what(&format!("[[case]]\nurl = \"tcp://a:1\"\nworkload = \"latency\"\n{line}"));
        insta::assert_snapshot!([
            what(""),
            what("[[case]]\nworkload = \"latency\""),
            case("size = 0"),
            case("ports = 70000"),
            case("poisson = true"),
            case("count = 0"),
            case("pin = [0, 1, 2]"),
            case("timeout = 0"),
            case("late = [0]"),
            case("interval = 0"),
            case("interval = \"999us\""),
        ].join("\n"), @r"
        the plan has no case: add a [[case]] with a url
        line 1: case 1: a case has no endpoint: add a url
        line 4: case 1: a message of 0 bytes: use 1 to 1Gi
        line 4: case 1: ports = 70000: use 1 to 16384
        line 1: case 1: a Poisson schedule needs a rate: add one
        line 4: case 1: a count or volume of 0 measures nothing: use 1 or more
        line 4: case 1: too many CPUs: pin takes one for the client and one for the server
        line 4: case 1: a timeout of 0 leaves no time for a reply: use 1ms or more, or leave it out
        line 4: case 1: a limit of 0 is exceeded by every reply: use 1ms or more, or leave it out
        line 4: case 1: an interval of 0ns is too short for a time series: use 1ms or more
        line 4: case 1: an interval of 999us is too short for a time series: use 1ms or more
        ");
    }
}
