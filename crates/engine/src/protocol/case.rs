//! Case on its way from the typed text to a case that can run. `schedule::check` is the only place that makes one.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::time::Duration;

use super::{Protocol, Registry};
use crate::link::{Caps, Framing};
use crate::workload::capacity::MIN_DATAGRAM_BYTES;
use crate::workload::pattern::SEQUENCE_BYTES;
use crate::workload::responsiveness::{MAX_BLOCK_BYTES, MIN_BLOCK_BYTES};
use crate::workload::{Load, TrafficKind, Workload, planned_time};
use linkgauge_model::endpoint::Endpoint;
use linkgauge_model::metric::Threshold;
use linkgauge_model::plan::{Direction, Pacing, RequestedRate, StopCondition};

/// Error of a case that a protocol does not accept, with a remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CaseError {
    /// The URL, or the number of URLs, is invalid.
    #[error("{0}")]
    Endpoint(String),
    /// An option of the protocol is missing or invalid, or contradicts another one.
    #[error("{0}")]
    Option(String),
    /// The protocol does not support this kind of link.
    #[error("{0}")]
    Link(String),
    /// The protocol does not support the workload or its direction.
    #[error("{0}")]
    Workload(String),
    /// The message size is not supported.
    #[error("{0}")]
    MessageSize(String),
    /// The number of connections is not supported.
    #[error("{0}")]
    Parallel(String),
    /// The pacing is not supported.
    #[error("{0}")]
    Pacing(String),
    /// The warm-up, or the end of the measurement, is not supported.
    #[error("{0}")]
    Duration(String),
}

/// Option of a protocol whose server writes its times into round trips.
pub(super) const ONE_WAY_OPTION: &str = "one-way";

/// Option of a protocol whose client can open a new connection after some requests.
pub const RECONNECT_OPTION: &str = "reconnect-every";

/// Option [`RECONNECT_OPTION`] with its meaning, for the list of a protocol.
pub(super) const RECONNECT: (&str, &str) =
    (RECONNECT_OPTION, "latency: open a new connection after this number of requests");

/// Options of a protocol by name, as typed. Only the protocol interprets them.
pub type ProtocolOptions = BTreeMap<String, String>;

/// Case that a protocol may still complete: it reads its options, refuses what it does not support, and sets the values
/// that only it can know.
#[derive(Debug, Clone)]
pub struct CaseDraft {
    /// Kind of measurement.
    pub workload: &'static Workload,
    /// Direction of the payload.
    pub direction: Direction,
    /// Ports of the case; never empty.
    pub endpoints: Vec<Endpoint>,
    /// Options of the protocol as typed.
    pub options: ProtocolOptions,
    /// Message size in bytes; `None`: the workload chooses after the protocol.
    pub message_bytes: Option<u32>,
    /// Number of connections to each endpoint, at least 1.
    pub parallel: u32,
    /// Send times of the messages.
    pub pacing: Pacing,
    /// Condition that ends a flow.
    pub stop: StopCondition,
    /// Messages before the measurement, which no figure includes.
    pub warm_up: StopCondition,
    /// Whether the plan sets no stop condition.
    pub(crate) has_default_stop: bool,
    /// Requests on one connection, after which a flow opens a new one; the protocol sets it.
    pub(crate) requests_per_connection: Option<NonZeroU64>,
    /// Requests per second of a case that names no rate; the protocol sets it. `None`: full speed.
    pub(crate) default_per_second: Option<f64>,
    /// Time for which a probe runs on the idle link, before the load and again after it.
    pub idle: Duration,
    /// Idle times before and after the load, as far as the protocol can have them.
    pub(crate) planned_idle: Duration,
    /// Whether the kernels stamp the messages.
    pub stamps: bool,
}

impl CaseDraft {
    /// Plans the idle times around a load. The default time includes them.
    pub(super) fn plan_idle_times(&mut self, caps: &Caps) {
        if self.workload.traffic != TrafficKind::Load || !caps.can_open_parallel {
            return;
        }
        self.planned_idle = 2 * self.idle;
        if self.has_default_stop {
            let idle_ns = self.planned_idle.as_nanos() as u64;
            let default = self.workload.default_stop.time_ns;
            let time_ns = default.map(|time_ns| time_ns.saturating_sub(idle_ns).max(time_ns / 2));
            self.stop = StopCondition { time_ns, ..self.stop };
        }
    }

    /// Sets the message size that the options of the protocol determine.
    ///
    /// # Errors
    ///
    /// The plan has another size; `refusal` makes the text.
    pub(super) fn fix_message_bytes(
        &mut self,
        bytes: u32,
        refusal: impl FnOnce(u32) -> String,
    ) -> Result<(), CaseError> {
        match self.message_bytes.replace(bytes) {
            Some(other) if other != bytes => Err(CaseError::MessageSize(refusal(other))),
            _ => Ok(()),
        }
    }

    /// Reads the option [`RECONNECT_OPTION`].
    ///
    /// # Errors
    ///
    /// The option is not a number above zero, it does not belong to the workload, or the link has no connections.
    pub(super) fn read_reconnect_option(&mut self, caps: &Caps) -> Result<(), CaseError> {
        let Some(text) = self.options.get(RECONNECT_OPTION) else { return Ok(()) };
        let requests = text.parse().map_err(|_| {
            CaseError::Option(format!("{RECONNECT_OPTION} = {text}: use a number of requests, 1 or more"))
        })?;
        if self.workload.traffic != TrafficKind::RoundTrips {
            let text = format!("{RECONNECT_OPTION} needs round trips: use the workload latency");
            return Err(CaseError::Workload(text));
        }
        self.requests_per_connection = Some(requests);
        // A linkgauge server holds a single byte that could begin its own protocol.
        self.message_bytes.get_or_insert(SEQUENCE_BYTES as u32);
        check_reconnects(&self.endpoints[0], caps)
    }

    /// Checks a case whose rate a search decides, on this number of connections at most.
    ///
    /// # Errors
    ///
    /// The first setting that such a case cannot have.
    pub(super) fn check_capacity_search(&self, caps: &Caps, max_connections: u32) -> Result<(), CaseError> {
        if caps.framing != Framing::Message {
            let text = "a capacity search needs messages, but this link is a stream: use udp://, or measure the throughput";
            return Err(CaseError::Link(text.to_owned()));
        }
        if let Some(bytes) = self.message_bytes.filter(|bytes| *bytes < MIN_DATAGRAM_BYTES) {
            let text = format!(
                "a datagram of {bytes} bytes is too short for a search: use a --size of {MIN_DATAGRAM_BYTES} and more"
            );
            return Err(CaseError::MessageSize(text));
        }
        let connections = (self.endpoints.len() as u64).saturating_mul(self.parallel.into());
        if connections > max_connections.into() {
            let text = match max_connections {
                1 => "a capacity search has one connection: leave out --parallel, --together and --ports"
                    .to_owned(),
                most => format!("a capacity search has at most {most} connections: use a smaller --parallel"),
            };
            return Err(CaseError::Parallel(text));
        }
        if self.pacing != Pacing::Closed {
            return Err(CaseError::Pacing("the search decides the rate: leave it out".to_owned()));
        }
        let StopCondition { count, volume_bytes, time_ns, .. } = self.stop;
        if count.is_some() || volume_bytes.is_some() || time_ns.is_none() || !self.warm_up.is_unlimited() {
            let text = "a capacity search ends after --time: leave out the number of messages, the volume and the warm-up";
            return Err(CaseError::Duration(text.to_owned()));
        }
        Ok(())
    }

    /// Checks a case whose load carries probes.
    ///
    /// # Errors
    ///
    /// The first setting that such a case cannot have.
    pub(super) fn check_probed_load(&self, caps: &Caps) -> Result<(), CaseError> {
        if caps.framing != Framing::Stream {
            let text = "responsiveness needs a stream, but this link carries messages: use tcp:// or another stream, or \
                        'linkgauge throughput', whose probe shows the latency under load";
            return Err(CaseError::Link(text.to_owned()));
        }
        if self.endpoints.len() > 1 {
            let text = "responsiveness is measured at one endpoint at a time: name one URL for each case";
            return Err(CaseError::Endpoint(text.to_owned()));
        }
        if let Some(bytes) =
            self.message_bytes.filter(|bytes| !(MIN_BLOCK_BYTES..=MAX_BLOCK_BYTES).contains(bytes))
        {
            let text = format!(
                "a block of {bytes} bytes is not possible: use a --size from {MIN_BLOCK_BYTES} to {MAX_BLOCK_BYTES}"
            );
            return Err(CaseError::MessageSize(text));
        }
        if self.pacing != Pacing::Closed {
            let text = "responsiveness needs a load at full speed: leave out the rate";
            return Err(CaseError::Pacing(text.to_owned()));
        }
        let StopCondition { count, volume_bytes, time_ns, .. } = self.stop;
        if count.is_some() || volume_bytes.is_some() || time_ns.is_none() || !self.warm_up.is_unlimited() {
            let text = "responsiveness ends when it is stable, or after --time: leave out the number of messages, the \
                        volume and the warm-up";
            return Err(CaseError::Duration(text.to_owned()));
        }
        Ok(())
    }
}

/// Checks that connections to an endpoint can be opened again and again.
///
/// # Errors
///
/// The link has no connections, or supports one user.
pub(super) fn check_reconnects(endpoint: &Endpoint, caps: &Caps) -> Result<(), CaseError> {
    match (caps.can_signal_close, caps.can_open_parallel && !caps.is_device) {
        (true, true) => Ok(()),
        _ => Err(CaseError::Link(format!(
            "{endpoint}: this link has no connections that could be opened again and again: use tcp, unix, sctp, vsock, tipc or linx"
        ))),
    }
}

/// Times for which a probe runs on the idle link around the load of one repetition. Zero: not at all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IdleTimes {
    /// Time before the load.
    pub before: Duration,
    /// Time after the load; longer, up to [`MAX_RECOVERY_FACTOR`] times, while the queues are not empty.
    pub after: Duration,
}

/// Maximum ratio of the time after the load to [`IdleTimes::after`].
pub const MAX_RECOVERY_FACTOR: u32 = 10;

/// Case that can run: every name is resolved and every value is set.
#[derive(Debug, Clone)]
pub struct ReadyCase {
    /// Registry that it was checked with.
    pub(crate) registry: &'static Registry,
    /// Protocol of the server.
    pub protocol: &'static Protocol,
    /// Kind of measurement.
    pub workload: &'static Workload,
    /// Direction of the payload.
    pub direction: Direction,
    /// Ports of the case, run side by side; never empty.
    pub endpoints: Vec<Endpoint>,
    /// Capabilities of the links to each endpoint.
    pub caps: Vec<Caps>,
    /// Options of the protocol, checked by it.
    pub options: ProtocolOptions,
    /// Number of connections to each endpoint, at least 1.
    pub parallel: u32,
    /// Number of threads for the connections; `None`: one for each, up to the number of CPUs.
    pub threads: Option<u32>,
    /// The load of each connection.
    pub load: Load,
    /// The requested rate; the pacing of the load is the effective one.
    pub rate: RequestedRate,
    /// Requests per second if none are requested, as the protocol decides.
    pub(crate) default_per_second: Option<f64>,
    /// The CPU for the threads of the server; `None`: the operating system schedules them.
    pub server_cpu: Option<u32>,
    /// Rate of the latency probe beside a load; `None` switches it off.
    pub(crate) probe_per_second: Option<f64>,
    /// Times for which the probe runs on the idle link.
    pub idle: IdleTimes,
    /// The part of these times that is planned.
    pub(crate) planned_idle: Duration,
    /// Length of one interval of the time series.
    pub(crate) series_interval: Duration,
    /// Time between two progress events.
    pub(crate) progress_interval: Duration,
    /// Limits for the shares of late requests.
    pub late_limits: Vec<Duration>,
    /// Limits that the figures must meet.
    pub thresholds: Vec<Threshold>,
}

/// Number of reports that may be lost one after the other.
const MAX_LOST_REPORTS: u32 = 3;

impl ReadyCase {
    /// Longest silence of a server that reports every `interval`: then its program has stopped, or the link is dead.
    pub(crate) fn longest_server_silence(&self, interval: Duration) -> Duration {
        self.load.timeout.max(interval.saturating_mul(MAX_LOST_REPORTS))
    }

    /// Planned duration of one repetition with its idle times, if the plan determines it.
    pub(crate) fn planned_time(&self) -> Option<Duration> {
        planned_time(&self.load, &self.caps).map(|planned| planned.saturating_add(self.planned_idle))
    }

    /// Whether all links deliver every byte in order or break.
    pub(crate) fn is_reliable_stream(&self) -> bool {
        self.caps.iter().all(|caps| caps.is_reliable && caps.framing == Framing::Stream)
    }

    /// Whether the flows open further connections while they are measured.
    pub(crate) fn reopens_connections(&self) -> bool {
        self.workload.traffic == TrafficKind::Connections || self.load.requests_per_connection.is_some()
    }

    /// Whether the client sends payload that does not come back.
    pub(crate) fn sends(&self) -> bool {
        matches!(self.direction, Direction::Send | Direction::Both)
    }

    /// Whether the load carries probes.
    pub(crate) fn is_probed_load(&self) -> bool {
        self.workload.traffic == TrafficKind::ProbedLoad
    }

    /// Whether a search decides the rate.
    pub(crate) fn is_capacity_search(&self) -> bool {
        self.workload.traffic == TrafficKind::CapacitySearch
    }

    /// Whether the client receives payload that it did not send.
    pub(crate) fn receives(&self) -> bool {
        matches!(self.direction, Direction::Receive | Direction::Both)
    }
}
