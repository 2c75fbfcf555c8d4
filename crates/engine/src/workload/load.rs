//! Load of one flow for its parties: message size, pacing, and end.

use std::num::NonZeroU64;
use std::time::Duration;

use crate::link::party::Tuning;
use linkgauge_model::plan::{Pacing, SocketSettings, StopCondition, WaitMode};
use linkgauge_model::sample::Room;

/// Maximum number of samples of a flow with little memory; a flow with more gets memory for any number of them.
const MAX_FEW_SAMPLES: usize = 4096;

/// The load of one flow.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    /// Payload bytes of one message.
    pub message_bytes: u32,
    /// Send times of the messages.
    pub pacing: Pacing,
    /// Condition that ends the flow.
    pub stop: StopCondition,
    /// Warm-up, which is excluded from every figure.
    pub warm_up: StopCondition,
    /// Timeout: a request without a reply by then is lost; a flow without progress for that long has failed.
    pub timeout: Duration,
    /// Way in which the flow's thread waits for data.
    pub wait: WaitMode,
    /// The CPU of the flow's thread; `None` leaves the choice to the system.
    pub cpu: Option<u32>,
    /// Options of the flow's socket, besides those of its endpoint.
    pub socket: SocketSettings,
    /// Number of flows of the case at one endpoint: with more of them, each may take longer to end.
    pub flows: u32,
    /// Requests on one connection, after which the flow opens a new one; `None`: all on one connection.
    pub requests_per_connection: Option<NonZeroU64>,
    /// Number of this flow among them, from 0. The pacing of round trips is that of one flow; together they follow one
    /// schedule.
    pub flow_index: u32,
    /// Whether the kernels stamp the messages of round trips, where the links support it.
    pub stamps: bool,
    /// Whether requests of a schedule that are overdue when the next one is due are left out: the server takes a burst for too
    /// many.
    pub skips_overdue: bool,
}

impl Load {
    /// Load of one flow at full speed, without an end, a warm-up or a timeout.
    pub fn endless(message_bytes: u32) -> Load {
        Load {
            message_bytes,
            pacing: Pacing::Closed,
            stop: StopCondition::default(),
            warm_up: StopCondition::default(),
            timeout: Duration::MAX,
            wait: WaitMode::Block,
            cpu: None,
            socket: SocketSettings::default(),
            flows: 1,
            requests_per_connection: None,
            flow_index: 0,
            stamps: false,
            skips_overdue: false,
        }
    }

    /// Load of another flow, with equal settings.
    pub(crate) fn of_flow(self, flow_index: u32) -> Load {
        Load { flow_index, ..self }
    }

    /// Whether the flow is one of many, so that each must take little memory.
    pub(crate) fn is_one_of_many(&self) -> bool {
        self.flows > 32
    }

    /// The memory for the samples of a flow of few messages, in intervals of this length; `None`: it may have many.
    pub fn room(&self, interval: Duration) -> Option<Room> {
        let (samples, time) = self.few_samples()?;
        let intervals = time.as_secs_f64() / interval.as_secs_f64() + 2.0;
        Some(Room { samples, intervals: intervals as usize })
    }

    /// Whether the flow has few messages, and is idle most of the time.
    pub(crate) fn has_few_samples(&self) -> bool {
        self.few_samples().is_some()
    }

    /// Maximum number of samples, and their time; `None`: there may be many.
    fn few_samples(&self) -> Option<(usize, Duration)> {
        let time_ns = self.warm_up.time_ns.unwrap_or(0).saturating_add(self.stop.time_ns?);
        let time = Duration::from_nanos(time_ns).saturating_add(self.timeout);
        // Twice the mean, because random gaps bunch them.
        let samples = (2.0 * self.pacing.per_second()? * time.as_secs_f64() + 64.0) as usize;
        (samples <= MAX_FEW_SAMPLES).then_some((samples, time))
    }

    /// Settings of the link and the thread for one message at a time.
    pub(crate) fn tuning(&self) -> Tuning {
        let Load { wait, cpu, socket, flows, stamps, .. } = *self;
        Tuning { wait, cpu, batch_message_bytes: None, socket, flows, stamps }
    }

    /// Settings of the link and the thread for many messages at a time.
    pub(crate) fn batch_tuning(&self) -> Tuning {
        Tuning { batch_message_bytes: Some(self.message_bytes), ..self.tuning() }
    }
}
