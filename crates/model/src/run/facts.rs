//! Facts that the figures of a case depend on: the line, the shaping of the link, the place of both programs.

use serde::{Deserialize, Serialize};

use crate::traffic::WaitMode;

/// A serial line, or another link whose endpoint declares a rate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct LineFacts {
    /// Rate of the first port.
    pub bits_per_second: f64,
    /// Bits that a byte of payload takes (8N1: 10), of the first port.
    pub bits_per_byte: f64,
    /// Payload that the lines of all ports can carry together.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub max_payload_bps: Option<f64>,
    /// Latency: time of the message on the line, one way; of several lines the slowest.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub transmission_ns: Option<u64>,
}

/// Delay and rates that the lab adds to a link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Shaping {
    /// Delay in each direction.
    pub delay_ns: u64,
    /// Rate towards the server.
    pub rate_to_bps: f64,
    /// Rate from the server.
    pub rate_from_bps: f64,
}

/// Placement and wait mode of client and server, and the other load of this host. Figures cannot be compared without them.
/// Imported results have none.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Placement {
    /// CPU of the client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_cpu: Option<CpuChoice>,
    /// CPU of the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_cpu: Option<CpuChoice>,
    /// Wait mode of client and server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<WaitMode>,
    /// Load of this host by other programs.
    #[serde(flatten)]
    pub host_load: HostLoad,
    /// The network of a published measurement, and the links between its two ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// Links between the two ends of the published measurement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hops: Option<u32>,
    /// The lab's replacement for hardware: `emulated logger`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stand_in: Option<String>,
    /// Description of the guest that the case was measured in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guest: Option<String>,
}

impl Placement {
    /// The CPUs that client and server were pinned to.
    pub fn pinned_cpus(&self) -> [Option<u32>; 2] {
        [self.client_cpu, self.server_cpu].map(|choice| match choice {
            Some(CpuChoice::Number(cpu)) => Some(cpu),
            Some(CpuChoice::Any) | None => None,
        })
    }
}

/// The CPU of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CpuChoice {
    /// The operating system schedules the thread.
    Any,
    /// Number of the CPU, from 0.
    #[serde(untagged)]
    Number(u32),
}

impl From<Option<u32>> for CpuChoice {
    fn from(cpu: Option<u32>) -> CpuChoice {
        cpu.map_or(CpuChoice::Any, CpuChoice::Number)
    }
}

/// Load of this host during a measurement, as a share of its time. Shares of CPU time refer to all CPUs together.
/// Absent where the kernel does not count it, and on the virtual clock.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostLoad {
    /// CPU time of other programs: excludes this process and other processes of linkgauge, such as a server.
    #[serde(rename = "host_other_cpu_percent", skip_serializing_if = "Option::is_none")]
    pub other_percent: Option<f64>,
    /// The other program with the largest CPU time.
    #[serde(rename = "host_busiest_program", skip_serializing_if = "Option::is_none")]
    pub busiest: Option<String>,
    /// CPU time that the hypervisor gave to other guests.
    #[serde(rename = "host_steal_percent", skip_serializing_if = "Option::is_none")]
    pub steal_percent: Option<f64>,
    /// Time in which some thread of the host waited for a CPU.
    #[serde(rename = "host_cpu_pressure_percent", skip_serializing_if = "Option::is_none")]
    pub pressure_percent: Option<f64>,
    /// Longest wait for a CPU of any thread of this measurement.
    #[serde(rename = "host_cpu_wait_percent", skip_serializing_if = "Option::is_none")]
    pub wait_percent: Option<f64>,
}

impl HostLoad {
    /// The maximum of both, figure by figure.
    pub fn worst_of(self, other: HostLoad) -> HostLoad {
        let max = |a: Option<f64>, b: Option<f64>| a.into_iter().chain(b).reduce(f64::max);
        let busiest = if other.other_percent > self.other_percent { other.busiest } else { self.busiest };
        HostLoad {
            other_percent: max(self.other_percent, other.other_percent),
            busiest,
            steal_percent: max(self.steal_percent, other.steal_percent),
            pressure_percent: max(self.pressure_percent, other.pressure_percent),
            wait_percent: max(self.wait_percent, other.wait_percent),
        }
    }

    /// The shares to one decimal, as the document holds them.
    pub fn rounded(&self) -> HostLoad {
        let tenths = |percent: Option<f64>| percent.map(|percent| (10.0 * percent).round() / 10.0);
        HostLoad {
            other_percent: tenths(self.other_percent),
            busiest: self.busiest.clone(),
            steal_percent: tenths(self.steal_percent),
            pressure_percent: tenths(self.pressure_percent),
            wait_percent: tenths(self.wait_percent),
        }
    }
}
