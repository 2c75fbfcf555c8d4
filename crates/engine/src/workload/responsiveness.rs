//! Responsiveness: how fast replies are while connections load the link, by draft-ietf-ippm-responsiveness-09.
//!
//! Every second, while the goodput still changes, one more connection carries a load. Probes run on a connection without
//! load (foreign) and on the connections of the load (own). `algorithm` decides without I/O; `conductor` applies it;
//! `client` and `server` have the parties, which send each other the blocks of `block`. Each connection of the client has two
//! halves: one moves the load, the other one collects the probes.

pub mod algorithm;
pub mod block;
mod client;
mod conductor;
mod figures;
mod server;
mod shared;

use std::sync::Arc;
use std::time::Duration;

use self::block::HEADER_BYTES;
use self::client::{LoadConnection, LoadReceiver, LoadSender, ProbeSender, ReplyReceiver};
use self::conductor::{Conductor, ConductorPlan};
use self::shared::LoadState;
use super::{Load, RecordingParty, TrafficKind, Workload};
use crate::link::Caps;
use linkgauge_model::plan::{Direction, StopCondition};
use linkgauge_model::sample::{ProbeLog, Recorder};
pub use server::{ProbedReceiver, ProbedSender};

/// The `responsiveness` workload.
pub(crate) const WORKLOAD: Workload = Workload {
    name: "responsiveness",
    summary: "round trips per minute while connections load the link",
    traffic: TrafficKind::ProbedLoad,
    default_stop: StopCondition {
        count: None,
        time_ns: Some(20_000_000_000),
        volume_bytes: None,
        min_time_ns: None,
    },
    has_repetitions: false,
    default_direction: Direction::Send,
    // Long enough for a retransmission timeout over a satellite.
    default_timeout: Duration::from_secs(5),
    default_size,
    default_warm_up: StopCondition::UNLIMITED,
    method: |_| "rpm/09 without-handshakes".to_owned(),
    figures: figures::figures,
};

/// Smallest block in bytes: its header.
pub(crate) const MIN_BLOCK_BYTES: u32 = HEADER_BYTES as u32;

/// Largest block in bytes. A probe waits for the block before it.
pub(crate) const MAX_BLOCK_BYTES: u32 = 65_536;

/// Smallest default block: a quarter of it is the header.
const MIN_DEFAULT_BLOCK_BYTES: u32 = 64;

/// Bytes that the client's and the server's system may hold unsent, where they can limit it: a probe waits for them.
const UNSENT_BYTES: u32 = 16_384;

/// Size of one receive, in bytes.
const RECEIVE_BYTES: usize = 64 * 1024;

/// Default block size in bytes. A block takes 26 ms at 5 Mbit/s; on a serial line, it has the bytes of 10 ms.
fn default_size(caps: &Caps) -> u32 {
    match caps.link_rate {
        Some(line) if caps.is_device => {
            let bytes = line.bytes_in(Duration::from_millis(10)).max(u64::from(MIN_DEFAULT_BLOCK_BYTES));
            1 << bytes.ilog2().min(14)
        }
        _ => 16_384,
    }
}

/// Bytes of a block of this load.
fn block_bytes(load: &Load) -> usize {
    load.message_bytes.clamp(MIN_BLOCK_BYTES, MAX_BLOCK_BYTES) as usize
}

/// The two halves of a connection of the client: the one that moves the load, and the one that collects the probes.
pub(crate) type ConnectionHalves = [Box<dyn RecordingParty>; 2];

/// Makes the parties of all connections of a case.
pub(crate) struct ConnectionParties {
    state: Arc<LoadState>,
    plan: ConductorPlan,
    probe_interval: Duration,
    load: Load,
    made: u32,
}

impl ConnectionParties {
    /// Parties for `connections` connections with this load each. `idle`: time without load at the beginning, in which the first
    /// connection carries probes only.
    pub fn new(
        load: &Load,
        connections: u32,
        idle: Duration,
        probe_per_second: Option<f64>,
    ) -> ConnectionParties {
        let max_time = load.stop.time_ns.map_or(Duration::MAX, Duration::from_nanos);
        let period = Duration::try_from_secs_f64(1.0 / probe_per_second.unwrap_or(DEFAULT_PROBES_PER_SECOND));
        ConnectionParties {
            state: Arc::default(),
            plan: ConductorPlan { connections, idle, max_time: max_time.min(MAX_TIME) },
            probe_interval: period.unwrap_or(Duration::MAX).clamp(MIN_PROBE_INTERVAL, MAX_PROBE_INTERVAL),
            load: *load,
            made: 0,
        }
    }

    /// Log of the probe beside the load, for its round trips.
    pub(crate) fn foreign_probes(&self) -> Arc<ProbeLog> {
        self.state.foreign_probes.clone()
    }

    fn next_connection(&mut self) -> (LoadConnection, Option<Conductor>) {
        let index = self.made;
        self.made += 1;
        let conductor = (index == 0).then(|| Conductor::new(self.state.clone(), self.plan));
        let connection = LoadConnection {
            state: self.state.clone(),
            load_probes: Arc::default(),
            index,
            probe_interval: self.probe_interval,
            load: self.load,
        };
        (connection, conductor)
    }

    /// Parties of the next connection, which sends its load to the server.
    pub(crate) fn upload(&mut self, [load, probes]: [Recorder; 2]) -> ConnectionHalves {
        let (connection, conductor) = self.next_connection();
        [
            Box::new(LoadSender::new(connection.clone(), load)),
            Box::new(ReplyReceiver::new(connection, conductor, probes)),
        ]
    }

    /// Parties of the next connection, whose load the server sends.
    pub(crate) fn download(&mut self, [load, probes]: [Recorder; 2]) -> ConnectionHalves {
        let (connection, conductor) = self.next_connection();
        [
            Box::new(LoadReceiver::new(connection.clone(), load)),
            Box::new(ProbeSender::new(connection, conductor, probes)),
        ]
    }

    /// Parties of the next connection, whose load returns to the client.
    pub(crate) fn looped(&mut self, caps: &Caps, [load, probes]: [Recorder; 2]) -> ConnectionHalves {
        if let Some(line) = caps.link_rate {
            // On the idle line too, probes must not wait for each other.
            let longest = line.transmission_time(4 * HEADER_BYTES as u64);
            self.probe_interval = self.probe_interval.max(longest);
        }
        let (connection, conductor) = self.next_connection();
        [
            Box::new(LoadSender::new(connection.clone(), load).looped(caps.can_half_close)),
            Box::new(ReplyReceiver::new(connection, conductor, probes).looped()),
        ]
    }
}

/// Probes on each connection, if the plan sets none.
const DEFAULT_PROBES_PER_SECOND: f64 = 20.0;

/// Limits of the time between the probes of a connection.
const MIN_PROBE_INTERVAL: Duration = Duration::from_millis(10);
const MAX_PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// Longest measurement.
const MAX_TIME: Duration = Duration::from_secs(24 * 3600);
