//! The file of a host list, in TOML: what is written there, and the checks that it passes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;
use std::time::Duration;

use serde::Deserialize;

use super::{
    Host, HostList, HostListError, LatencyTest, MAX_HOSTS, MAX_NAME_BYTES, MAX_TESTS, Reach, SharedResource,
    ThroughputTest, url_of,
};
use linkgauge_engine::Registry;
use linkgauge_engine::link::DEFAULT_PORT;
use linkgauge_model::endpoint::Endpoint;
use linkgauge_model::plan::toml_text::{self, line_of, line_of_entry};
use linkgauge_model::units::{BitRate, Bytes, MessageRate, Span, format_plural};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HostsToml {
    title: Option<String>,
    #[serde(default)]
    pairs: PairsEntry,
    #[serde(default)]
    hub: Vec<String>,
    representatives: Option<usize>,
    #[serde(default)]
    test: TestEntry,
    #[serde(default)]
    host: Vec<HostEntry>,
    #[serde(default)]
    resource: Vec<ResourceEntry>,
    /// Settings of `linkgauge fleet`, which reads them from the same file.
    #[serde(rename = "fleet")]
    _fleet: Option<serde::de::IgnoredAny>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "use a name like \"full\", or a list of pairs like [[\"a\", \"b\"]]")]
enum PairsEntry {
    Named(String),
    Listed(Vec<[String; 2]>),
}

impl Default for PairsEntry {
    fn default() -> PairsEntry {
        PairsEntry::Named("full".to_owned())
    }
}

#[derive(Debug, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct TestEntry {
    transport: Option<String>,
    latency: LatencyEntry,
    throughput: ThroughputEntry,
}

#[derive(Debug, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct LatencyEntry {
    off: bool,
    time: Option<Span>,
    rate: Option<MessageRate>,
    size: Option<Bytes>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct ThroughputEntry {
    off: bool,
    time: Option<Span>,
    parallel: Option<u32>,
    bit_rate: Option<BitRate>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HostEntry {
    name: String,
    address: Option<String>,
    #[serde(default)]
    port: u16,
    group: Option<String>,
    ssh: Option<String>,
    command: Option<Vec<String>>,
    server: Option<Endpoint>,
    #[serde(default)]
    local: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ResourceEntry {
    name: String,
    capacity: Option<u32>,
    group: Option<String>,
    #[serde(default)]
    hosts: Vec<String>,
}

/// Reads a file.
pub(crate) fn read(text: &str) -> Result<HostList, HostListError> {
    let file: HostsToml =
        toml::from_str(text).map_err(|error| HostListError::Toml(toml_text::describe(&error, text)))?;
    let hosts = entries(file.host, |number| line_of_entry(text, "host", number, None), HostEntry::read)?;
    if !(2..=MAX_HOSTS).contains(&hosts.len()) {
        let count = format_plural(hosts.len() as u64, "host");
        let what = format!("{count}: a mesh has 2 to {MAX_HOSTS}. Add a [[host]] for each");
        return Err(HostListError::Invalid(what));
    }
    let at = |path: &'static [&'static str]| move |error| located(error, line_of(text, path));
    let names = indexes(&hosts)
        .map_err(|(index, error)| located(error, line_of_entry(text, "host", index + 1, Some("name"))))?;
    let line_of_resource = |number| line_of_entry(text, "resource", number, None);
    let resources = entries(file.resource, line_of_resource, |entry| entry.read(&hosts, &names));
    let choice = PairChoice { pairs: file.pairs, hub: file.hub, representatives: file.representatives };
    let list = HostList {
        title: file.title,
        pairs: choice.choose(&hosts, &names).map_err(at(&["pairs"]))?,
        resources: checked_resources(resources)?,
        transport: checked_transport(file.test.transport).map_err(at(&["test", "transport"]))?,
        latency: file.test.latency.read().map_err(at(&["test", "latency"]))?,
        throughput: file.test.throughput.read().map_err(at(&["test", "throughput"]))?,
        hosts,
    };
    check(&list)?;
    Ok(list)
}

/// The error with its line, if that is known.
fn located(error: HostListError, line: Option<usize>) -> HostListError {
    match line {
        Some(line) => HostListError::At { line, error: Box::new(error) },
        None => error,
    }
}

/// Reads the tables of a list; an error names the line of its table.
fn entries<E, T>(
    tables: Vec<E>,
    line: impl Fn(usize) -> Option<usize>,
    read: impl Fn(E) -> Result<T, HostListError>,
) -> Result<Vec<T>, HostListError> {
    let read = |(table, number)| read(table).map_err(|error| located(error, line(number)));
    tables.into_iter().zip(1..).map(read).collect()
}

fn check(list: &HostList) -> Result<(), HostListError> {
    let invalid = |what: String| Err(HostListError::Invalid(what));
    if list.latency.is_none() && list.throughput.is_none() {
        return invalid("latency and throughput are both off: leave one of them on".to_owned());
    }
    if list.pairs.is_empty() {
        return invalid("no pair is to be measured: list pairs, or use pairs = \"full\"".to_owned());
    }
    if list.pairs.len() > MAX_TESTS {
        let count = list.pairs.len();
        return invalid(format!(
            "{count} pairs: at most {MAX_TESTS} can be measured. Set groups and representatives = 3"
        ));
    }
    for pair in &list.pairs {
        let [a, b] = pair.map(|host| &list.hosts[host]);
        if !a.has_agent() && !b.has_agent() {
            return invalid(format!(
                "'{}' and '{}' have no agent, so they cannot measure each other: set ssh for one of them, or leave the \
                 pair out",
                a.name, b.name
            ));
        }
    }
    Ok(())
}

/// The index of each host by its name; or the index of the second host of a name.
fn indexes(hosts: &[Host]) -> Result<BTreeMap<String, usize>, (usize, HostListError)> {
    let mut names = BTreeMap::new();
    for (index, host) in hosts.iter().enumerate() {
        if names.insert(host.name.clone(), index).is_some() {
            let why = "two hosts have this name: give each a name of its own".to_owned();
            return Err((index, HostListError::Host { name: host.name.clone(), why }));
        }
    }
    Ok(names)
}

fn find(names: &BTreeMap<String, usize>, name: &str) -> Result<usize, HostListError> {
    names.get(name).copied().ok_or_else(|| {
        HostListError::Invalid(format!("no host is named '{name}': name one of the hosts of this file"))
    })
}

impl HostEntry {
    fn read(self) -> Result<Host, HostListError> {
        let name = self.name.clone();
        let wrong = |why: &str| HostListError::Host { name: name.clone(), why: why.to_owned() };
        if name.is_empty() || name.len() > MAX_NAME_BYTES || name.chars().any(char::is_control) {
            return Err(wrong("a name has 1 to 255 printable characters"));
        }
        let ways = [self.ssh.is_some(), self.command.is_some(), self.server.is_some(), self.local];
        if ways.iter().filter(|is_set| **is_set).count() > 1 {
            return Err(wrong("ssh, command, server and local exclude each other: leave one"));
        }
        let reach = match (self.ssh, self.command, self.server) {
            (Some(host), ..) if host.is_empty() || host.starts_with('-') => {
                return Err(wrong("ssh needs the name of a host, not an option"));
            }
            (Some(host), ..) => Reach::Ssh(host),
            (_, Some(command), _) if command.first().is_none_or(String::is_empty) => {
                return Err(wrong(
                    "the command is empty: write it like [\"ssh\", \"host\", \"linkgauge\", …]",
                ));
            }
            (_, Some(command), _) => Reach::Command(command),
            (.., Some(url)) => Reach::Server(with_port(&name, url)?),
            _ if self.local => Reach::Local,
            _ => Reach::Ssh(name.clone()),
        };
        let address = self.address.unwrap_or_else(|| match &reach {
            // The user name and the options of ssh are no part of the address.
            Reach::Ssh(host) => host.rsplit('@').next().unwrap_or(host).to_owned(),
            Reach::Server(url) => url.host_port().map_or(name.clone(), |(host, _)| host.to_owned()),
            _ => name.clone(),
        });
        // A colon in the address of a host is that of IPv6.
        let bare =
            address.trim_start_matches('[').trim_end_matches(']').split('%').next().unwrap_or_default();
        if bare.contains(':') && bare.parse::<Ipv6Addr>().is_err() {
            return Err(wrong("an address has no port: write 'port = NUMBER' beside it"));
        }
        url_of(Registry::standard().transports.0[0].scheme, &address, DEFAULT_PORT)
            .map_err(|error| HostListError::Address { name: name.clone(), error })?;
        if address.len() > MAX_NAME_BYTES {
            return Err(wrong("an address has at most 255 characters"));
        }
        Ok(Host { name: name.clone(), address, port: self.port, group: self.group, reach })
    }
}

/// The URL of a server with its port.
fn with_port(name: &str, url: Endpoint) -> Result<Endpoint, HostListError> {
    let wrong = |error| HostListError::Address { name: name.to_owned(), error };
    match url.host_port().map_err(wrong)?.1 {
        Some(_) => Ok(url),
        None => url.with_port(DEFAULT_PORT).map_err(wrong),
    }
}

impl ResourceEntry {
    fn read(self, hosts: &[Host], names: &BTreeMap<String, usize>) -> Result<SharedResource, HostListError> {
        let wrong = |why: String| HostListError::Resource { name: self.name.clone(), why };
        let (members, is_uplink): (BTreeSet<usize>, bool) = match &self.group {
            Some(_) if !self.hosts.is_empty() => {
                return Err(wrong("group and hosts exclude each other: leave one".to_owned()));
            }
            Some(group) => {
                let of_group =
                    hosts.iter().enumerate().filter(|(_, host)| host.group.as_ref() == Some(group));
                (of_group.map(|(index, _)| index).collect(), true)
            }
            None => {
                let members = self.hosts.iter().map(|name| find(names, name)).collect::<Result<_, _>>();
                (members?, false)
            }
        };
        if members.is_empty() {
            let why = "no host uses it: set hosts, or the group whose uplink it is".to_owned();
            return Err(wrong(why));
        }
        match self.capacity.unwrap_or(1) {
            0 => Err(wrong("a capacity of 0 allows no test: use 1 or more".to_owned())),
            capacity => Ok(SharedResource { name: self.name, capacity, hosts: members, is_uplink }),
        }
    }
}

fn checked_resources(
    resources: Result<Vec<SharedResource>, HostListError>,
) -> Result<Vec<SharedResource>, HostListError> {
    let resources = resources?;
    let mut names = BTreeSet::new();
    match resources.iter().find(|resource| !names.insert(&resource.name)) {
        Some(twice) => {
            let why = "two resources have this name: give each a name of its own".to_owned();
            Err(HostListError::Resource { name: twice.name.clone(), why })
        }
        None => Ok(resources),
    }
}

fn checked_transport(transport: Option<String>) -> Result<String, HostListError> {
    let transport = transport.unwrap_or_else(|| Registry::standard().transports.0[0].scheme.to_owned());
    match Registry::standard().transports.0.iter().any(|known| known.scheme == transport) {
        true => Ok(transport),
        false => {
            let known: Vec<&str> =
                Registry::standard().transports.0.iter().map(|known| known.scheme).collect();
            Err(HostListError::Invalid(format!(
                "unknown transport '{transport}' (known: {})",
                known.join(", ")
            )))
        }
    }
}

/// Times of a test.
const MIN_TEST_TIME: Duration = Duration::from_millis(100);
const MAX_TEST_TIME: Duration = Duration::from_secs(3600);

fn checked_time(time: Option<Span>, default: u64) -> Result<Duration, HostListError> {
    let time = time.map_or(Duration::from_secs(default), |time| time.0);
    match (MIN_TEST_TIME..=MAX_TEST_TIME).contains(&time) {
        true => Ok(time),
        false => Err(HostListError::Invalid("a test takes 100ms to 1h: change its time".to_owned())),
    }
}

impl LatencyEntry {
    fn read(self) -> Result<Option<LatencyTest>, HostListError> {
        if self.off {
            return Ok(None);
        }
        let per_second = self.rate.map_or(20.0, |rate| rate.0);
        if !(0.1..=1000.0).contains(&per_second) {
            return Err(HostListError::Invalid("the rate of latency is 0.1/s to 1000/s".to_owned()));
        }
        let message_bytes = self.size.map_or(64, |size| size.0);
        let message_bytes = u32::try_from(message_bytes).ok().filter(|bytes| (1..=65_000).contains(bytes));
        let message_bytes = message_bytes.ok_or_else(|| {
            HostListError::Invalid("the size of a latency message is 1 to 65000 bytes".to_owned())
        })?;
        Ok(Some(LatencyTest { time: checked_time(self.time, 5)?, per_second, message_bytes }))
    }
}

impl ThroughputEntry {
    fn read(self) -> Result<Option<ThroughputTest>, HostListError> {
        if self.off {
            return Ok(None);
        }
        let parallel = self.parallel.unwrap_or(1);
        if !(1..=128).contains(&parallel) {
            return Err(HostListError::Invalid("parallel is 1 to 128 connections".to_owned()));
        }
        let bits_per_second = self.bit_rate.map(|rate| rate.0);
        if bits_per_second.is_some_and(|rate| rate < 1.0) {
            return Err(HostListError::Invalid("bit_rate is 1 bit/s or more".to_owned()));
        }
        Ok(Some(ThroughputTest { time: checked_time(self.time, 10)?, parallel, bits_per_second }))
    }
}

/// Choice of the pairs to be measured, as written.
struct PairChoice {
    pairs: PairsEntry,
    hub: Vec<String>,
    representatives: Option<usize>,
}

impl PairChoice {
    fn choose(
        self,
        hosts: &[Host],
        names: &BTreeMap<String, usize>,
    ) -> Result<Vec<[usize; 2]>, HostListError> {
        let invalid = HostListError::Invalid;
        if self.representatives == Some(0) {
            return Err(invalid("representatives: use 1 or more hosts of each group".to_owned()));
        }
        let named = match self.pairs {
            PairsEntry::Listed(pairs) => return listed(&pairs, names),
            PairsEntry::Named(named) => named,
        };
        let all =
            || (0..hosts.len()).flat_map(|a| (0..hosts.len()).filter(move |b| *b != a).map(move |b| [a, b]));
        match named.as_str() {
            "full" => {
                let limit = self.representatives.unwrap_or(usize::MAX);
                let rank = ranks_in_group(hosts);
                let is_wanted = |[a, b]: &[usize; 2]| {
                    hosts[*a].group == hosts[*b].group || [a, b].iter().all(|host| rank[**host] < limit)
                };
                Ok(all().filter(is_wanted).collect())
            }
            "hub" if self.hub.is_empty() => {
                Err(invalid("pairs = \"hub\" needs the hosts in the middle: set hub = [\"name\"]".to_owned()))
            }
            "hub" => {
                let hub = self.hub.iter().map(|name| find(names, name)).collect::<Result<Vec<usize>, _>>()?;
                Ok(all().filter(|pair| pair.iter().any(|host| hub.contains(host))).collect())
            }
            other => Err(invalid(format!(
                "'{other}' are no pairs: use \"full\", \"hub\", or a list of pairs of names"
            ))),
        }
    }
}

/// Reads listed pairs, which are measured from the first host to the second.
fn listed(pairs: &[[String; 2]], names: &BTreeMap<String, usize>) -> Result<Vec<[usize; 2]>, HostListError> {
    let mut known = BTreeSet::new();
    let mut chosen = Vec::new();
    for [from, to] in pairs {
        let pair = [find(names, from)?, find(names, to)?];
        if pair[0] == pair[1] {
            let what = format!("the pair '{from}', '{to}' is one host: name two");
            return Err(HostListError::Invalid(what));
        }
        if known.insert(pair) {
            chosen.push(pair);
        }
    }
    Ok(chosen)
}

/// The number of each host within its group, from 0.
fn ranks_in_group(hosts: &[Host]) -> Vec<usize> {
    let mut counts: BTreeMap<&Option<String>, usize> = BTreeMap::new();
    let mut next = |host| {
        let count = counts.entry(host).or_default();
        *count += 1;
        *count - 1
    };
    hosts.iter().map(|host| next(&host.group)).collect()
}
