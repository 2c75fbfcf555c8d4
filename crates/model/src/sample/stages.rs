//! The stages of round trips, from stamps of the kernels at both ends.
//!
//! Times of two hosts are only subtracted from times of the same host, so the clocks need not agree. The stages of a round
//! trip add up to it.

use super::figures::distribution;
use super::{Sample, TimeSamples};
use crate::clock::Time;
use crate::run::StageFigures;

/// A later stamp may be up to this much earlier than the one before it, because stamps are converted and rounded.
const ROUNDING_NS: i64 = 1_000;

/// Stamps of the kernel of the client for one round trip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalStamps {
    /// The request was put into the queue of the device.
    pub queued: Time,
    /// The request left the host.
    pub departed: Time,
    /// The reply arrived at the host.
    pub arrived: Time,
}

/// Report of a server about one round trip, in nanoseconds between two of its own times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteStages {
    /// Time from the arrival of the request at the host of the server until its program had it.
    pub receive_ns: u64,
    /// Time from the receipt of the request by the program until the program sent the reply.
    pub program_ns: u64,
    /// Time from the send call of the program until the reply was put into the queue of the device.
    pub send_ns: u64,
    /// Time from entering the queue of the device until the reply left the host.
    pub queue_ns: u64,
}

impl RemoteStages {
    fn total_ns(&self) -> u64 {
        self.receive_ns
            .saturating_add(self.program_ns)
            .saturating_add(self.send_ns)
            .saturating_add(self.queue_ns)
    }
}

/// The stages of the round trips of one flow, or of several flows merged.
#[derive(Debug, Clone)]
pub struct StageTimes {
    /// Round trips without all their stamps.
    unstamped: u64,
    local_send: TimeSamples,
    local_queue: TimeSamples,
    beyond: TimeSamples,
    local_receive: TimeSamples,
    sum_error: TimeSamples,
    remote: Option<Box<RemoteTimes>>,
}

#[derive(Debug, Clone, Default)]
struct RemoteTimes {
    receive: TimeSamples,
    program: TimeSamples,
    send: TimeSamples,
    queue: TimeSamples,
    network: TimeSamples,
}

/// Hosts that stamp the messages of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StampedEnds {
    /// The host of the client only.
    Local,
    /// Both hosts.
    Both,
}

impl StageTimes {
    /// Makes a collection without times; allocates all its memory.
    pub fn new(ends: StampedEnds) -> StageTimes {
        StageTimes {
            unstamped: 0,
            local_send: TimeSamples::new(),
            local_queue: TimeSamples::new(),
            beyond: TimeSamples::new(),
            local_receive: TimeSamples::new(),
            sum_error: TimeSamples::new(),
            remote: (ends == StampedEnds::Both).then(Box::default),
        }
    }

    /// Records a round trip with all its stamps. Stamps that contradict each other count as none.
    pub fn record(&mut self, sample: Sample, local: LocalStamps, remote: Option<RemoteStages>) {
        let Some(times) = stage_times(sample, local, remote.map_or(0, |remote| remote.total_ns())) else {
            self.unstamped += 1;
            return;
        };
        let [send, queue, beyond, network, receive] = times;
        let middle = remote.map_or(beyond, |remote| network + remote.total_ns());
        self.sum_error.record((send + queue + middle + receive).abs_diff(sample.service_ns()));
        self.local_send.record(send);
        self.local_queue.record(queue);
        self.beyond.record(beyond);
        self.local_receive.record(receive);
        if let (Some(times), Some(remote)) = (&mut self.remote, remote) {
            times.receive.record(remote.receive_ns);
            times.program.record(remote.program_ns);
            times.send.record(remote.send_ns);
            times.queue.record(remote.queue_ns);
            times.network.record(network);
        }
    }

    /// Counts a round trip that got not all of its stamps.
    pub fn record_unstamped(&mut self) {
        self.unstamped += 1;
    }

    /// Adds the round trips of another flow.
    pub fn merge(&mut self, other: &StageTimes) {
        self.unstamped += other.unstamped;
        self.local_send.merge(&other.local_send);
        self.local_queue.merge(&other.local_queue);
        self.beyond.merge(&other.beyond);
        self.local_receive.merge(&other.local_receive);
        self.sum_error.merge(&other.sum_error);
        if let (Some(remote), Some(other)) = (&mut self.remote, &other.remote) {
            remote.receive.merge(&other.receive);
            remote.program.merge(&other.program);
            remote.send.merge(&other.send);
            remote.queue.merge(&other.queue);
            remote.network.merge(&other.network);
        }
    }

    /// Makes a collection for the same hosts, without times.
    pub fn empty_like(&self) -> StageTimes {
        let ends = if self.remote.is_some() { StampedEnds::Both } else { StampedEnds::Local };
        StageTimes::new(ends)
    }

    /// The figures. Without a stamped round trip they hold its count only.
    pub fn figures(&self) -> StageFigures {
        let of = |times: &TimeSamples| distribution(times, 0, &[]);
        let of_remote = |get: fn(&RemoteTimes) -> &TimeSamples| of(get(self.remote.as_deref()?));
        StageFigures {
            stamped: self.local_send.count(),
            unstamped: self.unstamped,
            local_send_ns: of(&self.local_send),
            local_queue_ns: of(&self.local_queue),
            beyond_ns: of(&self.beyond),
            network_ns: of_remote(|remote| &remote.network),
            remote_receive_ns: of_remote(|remote| &remote.receive),
            remote_program_ns: of_remote(|remote| &remote.program),
            remote_send_ns: of_remote(|remote| &remote.send),
            remote_queue_ns: of_remote(|remote| &remote.queue),
            local_receive_ns: of(&self.local_receive),
            sum_error_ns: of(&self.sum_error),
            cost_ns: None,
        }
    }
}

/// Times of send, queue, beyond the host, of that the network, and receive, in nanoseconds. `None` if a stage is negative.
fn stage_times(sample: Sample, local: LocalStamps, remote_ns: u64) -> Option<[u64; 5]> {
    let LocalStamps { queued, departed, arrived } = local;
    let between = |from: Time, to: Time| (to.0 as i64).wrapping_sub(from.0 as i64);
    let beyond = between(departed, arrived);
    let stages = [
        between(sample.sent, queued),
        between(queued, departed),
        beyond,
        beyond.checked_sub_unsigned(remote_ns)?,
        between(arrived, sample.received),
    ];
    stages.iter().all(|stage| *stage >= -ROUNDING_NS).then(|| stages.map(|stage| stage.max(0) as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: Sample =
        Sample { sequence: 0, intended: Time(1_000_000), sent: Time(1_000_000), received: Time(1_100_000) };
    const LOCAL: LocalStamps =
        LocalStamps { queued: Time(1_003_000), departed: Time(1_004_000), arrived: Time(1_090_000) };
    const REMOTE: RemoteStages =
        RemoteStages { receive_ns: 7_000, program_ns: 500, send_ns: 2_000, queue_ns: 1_500 };

    #[test]
    fn the_stages_add_up_to_the_round_trip() {
        let mut times = StageTimes::new(StampedEnds::Both);
        times.record(SAMPLE, LOCAL, Some(REMOTE));
        let figures = times.figures();
        let means: Vec<(&str, f64)> =
            figures.parts().iter().map(|(name, times)| (*name, times.unwrap().mean)).collect();
        assert_eq!(
            means,
            [
                ("local send", 3_000.0),
                ("local queue", 1_000.0),
                ("network", 75_000.0),
                ("remote receive", 7_000.0),
                ("remote program", 500.0),
                ("remote send", 2_000.0),
                ("remote queue", 1_500.0),
                ("local receive", 10_000.0),
            ]
        );
        assert_eq!(means.iter().map(|(_, mean)| mean).sum::<f64>(), SAMPLE.service_ns() as f64);
        assert_eq!(figures.sum_error_ns.map(|times| times.max), Some(0));
        let mut near = StageTimes::new(StampedEnds::Local);
        near.record(SAMPLE, LOCAL, None);
        let figures = near.figures();
        let means = figures.parts().iter().map(|(_, times)| times.unwrap().mean).sum::<f64>();
        assert_eq!((means, figures.parts().len()), (SAMPLE.service_ns() as f64, 4));
    }

    #[test]
    fn stamps_that_contradict_each_other_do_not_count() {
        let mut times = StageTimes::new(StampedEnds::Both);
        times.record_unstamped();
        times.record(SAMPLE, LocalStamps { queued: Time(998_000), ..LOCAL }, Some(REMOTE));
        times.record(SAMPLE, LocalStamps { arrived: Time(1_102_000), ..LOCAL }, Some(REMOTE));
        times.record(SAMPLE, LOCAL, Some(RemoteStages { program_ns: 90_000, ..REMOTE }));
        times.record(SAMPLE, LOCAL, Some(RemoteStages { program_ns: u64::MAX, ..REMOTE }));
        let mut all = times.empty_like();
        all.merge(&times);
        let figures = all.figures();
        assert_eq!((figures.stamped, figures.unstamped, figures.local_send_ns), (0, 5, None));
        // Stamps are rounded.
        times.record(SAMPLE, LocalStamps { queued: Time(999_500), ..LOCAL }, Some(REMOTE));
        let figures = times.figures();
        assert_eq!(figures.local_send_ns.map(|times| times.max), Some(0));
        assert_eq!(figures.sum_error_ns.map(|times| times.max), Some(500), "a stage of -500 ns counts as 0");
    }
}
