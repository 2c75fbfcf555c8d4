//! Results of a mesh of hosts in a run: the hosts, which case measured which pair, and which part explains the worst pairs.

use serde::{Deserialize, Serialize};

/// A mesh of hosts. The cases of the run are its tests.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MeshResult {
    /// The hosts.
    pub hosts: Vec<MeshHost>,
    /// The tests of each ordered pair.
    pub pairs: Vec<MeshPair>,
    /// Resources that hosts share.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub resources: Vec<MeshResource>,
    /// Whether no test disturbed another: each host and each shared resource carried only as many as it may.
    pub exclusive: bool,
    /// Time that no order of the tests can undercut.
    pub lower_bound_ns: u64,
    /// Time from the begin of the first test to the end of the last.
    pub tests_elapsed_ns: u64,
    /// Parts that explain the worst round-trip times, the most important first. Effects are in nanoseconds.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub latency_blame: Vec<MeshBlame>,
    /// Parts that explain the worst rates, the most important first. Effects are differences of natural logarithms: 0.69 is half
    /// of the rate.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub throughput_blame: Vec<MeshBlame>,
    /// Logs of the servers. Absent: no throughput was measured.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub served: Option<MeshServed>,
    /// Description of the tests of a pair: `round trips of 1 B at 100/s for 5.000 s; rates over 1 connection for 5.000 s`.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub tests: String,
    /// Id of the run that this one continues.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub resumed_from: Option<String>,
}

/// The throughput tests in the logs of the servers. Tests of an earlier run, which this one continues, do not count.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeshServed {
    /// Tests in the logs of all servers.
    pub throughput_tests: u32,
    /// Tests that began while one of their hosts was in another test, or a resource carried as many as it may. Overlaps that are
    /// shorter than the errors of the clocks do not count.
    pub overlapping: u32,
    /// Tests that are in no log: the server has no agent, or its host was lost.
    pub unlogged: u32,
    /// The largest error of the clock of a host.
    pub clock_error_ns: u64,
}

/// The group of each host as a number, in the order in which the hosts name them. All hosts without a group are one.
pub fn number_groups<'a>(groups: impl Iterator<Item = Option<&'a str>>) -> Vec<usize> {
    let mut known = Vec::new();
    let number = |group: Option<&'a str>| {
        known.iter().position(|other| *other == group).unwrap_or_else(|| {
            known.push(group);
            known.len() - 1
        })
    };
    groups.map(number).collect()
}

impl MeshResult {
    /// The group of each host as a number; see [`number_groups`].
    pub fn group_numbers(&self) -> Vec<usize> {
        number_groups(self.hosts.iter().map(|host| host.group.as_deref()))
    }
}

/// A host of a mesh.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeshHost {
    /// The name.
    pub name: String,
    /// Address to which the others connect.
    pub address: String,
    /// The group that it belongs to, such as a site.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub group: Option<String>,
    /// The program and version of its agent, if it has one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tool: Option<String>,
    /// Reason why the host took no part, or not to the end.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lost: Option<String>,
}

/// A resource that several hosts share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeshResource {
    /// The name.
    pub name: String,
    /// Throughput tests at a time.
    pub capacity: u32,
}

/// The tests of an ordered pair of hosts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeshPair {
    /// Index of the host that sends, from 0.
    pub from: u32,
    /// Index of the host that receives.
    pub to: u32,
    /// The round trips: number of the case, from 1.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub latency_case: Option<u32>,
    /// The rate.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub throughput_case: Option<u32>,
    /// Throughput cases that ran on one of its hosts or on a resource of them while its round trips were measured. Such round
    /// trips count as those under load.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub under_load_of: Vec<u32>,
    /// Number of throughput tests without a result on these hosts or resources while its round trips were measured.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub under_failed_loads: u32,
    /// Reason why a test is missing.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub failure: Option<String>,
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl MeshPair {
    /// Whether a throughput test disturbed its round trips.
    pub fn is_under_load(&self) -> bool {
        !self.under_load_of.is_empty() || self.under_failed_loads > 0
    }
}

/// A part of a mesh, and what it adds to its pairs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct MeshBlame {
    /// The part.
    #[serde(flatten)]
    pub part: BlamedPart,
    /// Delay or loss of rate that the part adds to each of its pairs; above zero.
    pub effect: f64,
    /// Half of the 95 % interval of the effect.
    pub effect_error: f64,
    /// Number of pairs of the part.
    pub pairs: u32,
}

/// A part of a mesh that can be slow. Hosts by their index, from 0; groups by their number, in the
/// order in which the hosts name them, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "part", rename_all = "snake_case")]
pub enum BlamedPart {
    /// A host, in both directions.
    Host {
        /// The host.
        host: usize,
    },
    /// Messages that a host sends.
    HostSends {
        /// The host.
        host: usize,
    },
    /// Messages that a host receives.
    HostReceives {
        /// The host.
        host: usize,
    },
    /// Connection of a group to the others.
    Uplink {
        /// The group.
        group: usize,
    },
    /// One direction between two hosts.
    Pair {
        /// The host that sends.
        from: usize,
        /// The host that receives.
        to: usize,
    },
    /// Both directions between two hosts.
    PairBothWays {
        /// The host with the lower index.
        a: usize,
        /// The other host.
        b: usize,
    },
}

impl BlamedPart {
    /// Whether the part lies between two hosts. `groups` holds the number of each host's group.
    pub fn affects(&self, [from, to]: [usize; 2], groups: &[usize]) -> bool {
        match *self {
            BlamedPart::Host { host } => from == host || to == host,
            BlamedPart::HostSends { host } => from == host,
            BlamedPart::HostReceives { host } => to == host,
            BlamedPart::Uplink { group } => {
                let [from, to] = [from, to].map(|host| groups.get(host).copied());
                from != to && (from == Some(group) || to == Some(group))
            }
            BlamedPart::Pair { from: a, to: b } => [a, b] == [from, to],
            BlamedPart::PairBothWays { a, b } => [[a, b], [b, a]].contains(&[from, to]),
        }
    }
}
