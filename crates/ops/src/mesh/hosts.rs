//! The host list: a file in TOML with the hosts of a mesh, how each is reached, what they share, and what is measured.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::demand::Demand;
use super::timetable::HostPair;
use linkgauge_model::endpoint::{Endpoint, EndpointError};
use linkgauge_model::run::number_groups;
use linkgauge_model::units::{format_bit_rate, format_bytes, format_duration, format_number, format_plural};

mod file;

/// Maximum number of hosts. More need several meshes, one for each site and one between the sites.
pub const MAX_HOSTS: usize = 1000;

/// Maximum number of tests. More would take weeks.
pub(crate) const MAX_TESTS: usize = 200_000;

/// Longest text of a name or an address.
const MAX_NAME_BYTES: usize = 255;

/// Latency tests that run on a host at a time. They need little of it.
const LATENCY_TESTS_AT_ONCE: u32 = 64;

/// Error of a host list that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostListError {
    /// The file is not valid TOML, or has unknown keys.
    #[error("{0}")]
    Toml(String),
    /// A host is described in a way that cannot work.
    #[error("host '{name}': {why}")]
    Host {
        /// The name, or its number.
        name: String,
        /// Problem, and what to try.
        why: String,
    },
    /// A resource is described in a way that cannot work.
    #[error("resource '{name}': {why}")]
    Resource {
        /// The name.
        name: String,
        /// Problem, and what to try.
        why: String,
    },
    /// An address cannot be part of a URL.
    #[error("host '{name}': {error}")]
    Address {
        /// The host.
        name: String,
        /// Problem with the address.
        error: EndpointError,
    },
    /// The line of the file that another error is about.
    #[error("line {line}: {error}")]
    At {
        /// Number of the line, from 1.
        line: usize,
        /// Problem in that line.
        error: Box<HostListError>,
    },
    /// Problem of the whole list.
    #[error("{0}")]
    Invalid(String),
}

/// A mesh: hosts, what they share, which pairs are measured, and how.
#[derive(Debug, Clone, PartialEq)]
pub struct HostList {
    /// Title of the run.
    pub title: Option<String>,
    /// The hosts, at least two.
    pub hosts: Vec<Host>,
    /// Resources that the hosts share.
    pub resources: Vec<SharedResource>,
    /// Ordered pairs to measure: indexes of the sending and of the receiving host.
    pub pairs: Vec<[usize; 2]>,
    /// Round trips; `None`: not measured.
    pub latency: Option<LatencyTest>,
    /// Rates; `None`: not measured.
    pub throughput: Option<ThroughputTest>,
    /// Scheme of the URLs.
    pub transport: String,
}

/// A host and how it is reached.
#[derive(Debug, Clone, PartialEq)]
pub struct Host {
    /// Name of the host, unique in the mesh.
    pub name: String,
    /// Name or address that the other hosts connect to.
    pub address: String,
    /// The port that its server uses; 0: any.
    pub port: u16,
    /// The site, or another set of hosts that reach the others in the same way.
    pub group: Option<String>,
    /// Way in which orders reach the host.
    pub reach: Reach,
}

/// Ways in which orders reach a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reach {
    /// Agent that is started over ssh on the host.
    Ssh(String),
    /// A program on this machine that is, or leads to, the agent.
    Command(Vec<String>),
    /// Agent that runs on this machine.
    Local,
    /// Running server without an agent: others measure to it and from it.
    Server(Endpoint),
}

impl Host {
    /// Whether it can be ordered to measure others.
    pub(crate) fn has_agent(&self) -> bool {
        !matches!(self.reach, Reach::Server(_))
    }
}

/// Something that several hosts share, so that only some tests may use it at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedResource {
    /// Name of the resource, unique in the mesh.
    pub name: String,
    /// Throughput tests at a time, at least 1.
    pub capacity: u32,
    /// Indexes of the hosts that share it.
    pub hosts: BTreeSet<usize>,
    /// Whether tests inside the set do not use it, as for the uplink of a site.
    pub(crate) is_uplink: bool,
}

/// Settings of the latency tests.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LatencyTest {
    /// Length of a test.
    pub time: Duration,
    /// Requests per second.
    pub per_second: f64,
    /// Payload of a request.
    pub message_bytes: u32,
}

/// Settings of the throughput tests.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ThroughputTest {
    /// Length of a test.
    pub time: Duration,
    /// Connections.
    pub parallel: u32,
    /// Payload bits per second; `None`: as fast as the link allows.
    pub bits_per_second: Option<f64>,
}

impl HostList {
    /// Describes how pairs are tested, in words.
    pub fn describe_tests(&self) -> String {
        let latency = self.latency.map(|LatencyTest { time, per_second, message_bytes }| {
            let (size, rate, time) =
                (format_bytes(message_bytes.into()), format_number(per_second), format_duration(time));
            format!("round trips of {size} at {rate}/s for {time}")
        });
        let throughput = self.throughput.map(|ThroughputTest { time, parallel, bits_per_second }| {
            let rate = bits_per_second.map_or(String::new(), |rate| format!(" at {}", format_bit_rate(rate)));
            let connections = format_plural(parallel.into(), "connection");
            format!("rates over {connections}{rate} for {}", format_duration(time))
        });
        [latency, throughput].into_iter().flatten().collect::<Vec<_>>().join("; ")
    }

    /// Reads a file.
    ///
    /// # Errors
    ///
    /// The file is invalid, or describes a mesh that cannot be measured. Nothing was opened or started.
    pub fn from_toml(text: &str) -> Result<HostList, HostListError> {
        file::read(text)
    }

    /// The hosts that measure a pair. Where the sender has no agent, the receiver is the client.
    pub(crate) fn client_and_server(&self, pair: usize) -> [usize; 2] {
        let [from, to] = self.pairs[pair];
        if self.hosts[from].has_agent() { [from, to] } else { [to, from] }
    }

    /// The group of each host as a number; see [`number_groups`].
    pub(crate) fn group_numbers(&self) -> Vec<usize> {
        number_groups(self.hosts.iter().map(|host| host.group.as_deref()))
    }

    /// Demand of the throughput tests, one test for each pair; and the hosts of each. `Sharing::Ignored` leaves out everything
    /// but the hosts.
    pub fn throughput_demand(&self, sharing: Sharing, time: Duration) -> (Demand, Vec<HostPair>) {
        let mut demand = Demand::default();
        let hosts: Vec<u32> = self.hosts.iter().map(|_| demand.add_resource(1)).collect();
        demand.add_class(hosts.clone());
        self.group_numbers_by_group().into_iter().for_each(|group| demand.add_class(group));
        let shared: Vec<u32> = match sharing {
            Sharing::Exclusive => {
                self.resources.iter().map(|resource| demand.add_resource(resource.capacity)).collect()
            }
            Sharing::Ignored => Vec::new(),
        };
        let uplinks = shared.iter().zip(&self.resources).filter(|(_, resource)| resource.is_uplink);
        demand.add_class(uplinks.map(|(number, _)| *number).collect());
        let mut pairs = Vec::with_capacity(self.pairs.len());
        for pair in &self.pairs {
            let of_hosts = pair.map(|host| hosts[host]);
            let used = shared.iter().zip(&self.resources).filter(|(_, resource)| resource.is_used_by(*pair));
            let used: Vec<u32> = of_hosts.into_iter().chain(used.map(|(number, _)| *number)).collect();
            demand.add_test(&used, time);
            pairs.push(of_hosts);
        }
        (demand, pairs)
    }

    /// Indexes of the hosts of each group with several.
    fn group_numbers_by_group(&self) -> Vec<Vec<u32>> {
        let mut groups: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
        for (host, group) in self.group_numbers().into_iter().enumerate() {
            groups.entry(group).or_default().push(host as u32);
        }
        groups.into_values().filter(|hosts| hosts.len() > 1 && hosts.len() < self.hosts.len()).collect()
    }

    /// Demand of the latency tests, one test for each pair; and the hosts of each.
    pub fn latency_demand(&self, time: Duration) -> (Demand, Vec<HostPair>) {
        let mut demand = Demand::default();
        let hosts: Vec<u32> = self.hosts.iter().map(|_| demand.add_resource(LATENCY_TESTS_AT_ONCE)).collect();
        let pairs: Vec<HostPair> = self.pairs.iter().map(|pair| pair.map(|host| hosts[host])).collect();
        for pair in &pairs {
            demand.add_test(pair, time);
        }
        (demand, pairs)
    }
}

/// Whether tests keep clear of each other on what hosts share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// Shared resources each carry only as many tests as they may.
    Exclusive,
    /// Shared resources are ignored: only hosts are exclusive.
    Ignored,
}

impl SharedResource {
    /// Whether a test between these hosts uses it.
    pub fn is_used_by(&self, pair: [usize; 2]) -> bool {
        let inside = pair.iter().filter(|host| self.hosts.contains(host)).count();
        if self.is_uplink { inside == 1 } else { inside > 0 }
    }
}

/// The URL of a server on a host.
///
/// # Errors
///
/// The address cannot be part of a URL.
pub fn url_of(transport: &str, address: &str, port: u16) -> Result<Endpoint, EndpointError> {
    let address = match address.contains(':') && !address.starts_with('[') {
        true => format!("[{address}]"),
        false => address.to_owned(),
    };
    let url: Endpoint = format!("{transport}://{address}:{port}").parse()?;
    url.host_port()?;
    url.check_options(&[])?;
    Ok(url)
}

#[cfg(test)]
mod tests;
