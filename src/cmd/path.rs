//! `linkgauge path`.

use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Args, Command, ValueEnum};
use linkgauge::Registry;
use linkgauge::endpoint::Endpoint;
use linkgauge::link;
use linkgauge::path::{self, PathPlan, UDP_PORT};
use linkgauge::transport::ProbeKind;
use linkgauge::units::Span;

use super::help::{DURATION, OUTPUT, TARGET, TRAFFIC, change_arguments};
use super::ip::IpFlags;
use super::measure::{PlanFlags, run_measurements};
use super::status::Status;

/// Show the routers to a host: round trips, loss, branches, and the size that fits
///
/// Sends probes whose hop limit is used up at each router in turn, which replies to this host. All probes of a flow have the same
/// ports, so routers that share the load by ports send them the same way. Only loss that all later hops show as well is loss on the
/// path: routers limit their replies. Needs no privileges on Linux. docs/path.md explains the figures.
#[derive(Args)]
pub struct Flags {
    /// Host, or URL of a service: 192.0.2.7, tcp://192.0.2.7:7100, https://example.org
    ///
    /// A host without a port gets UDP probes. A port of TCP gets connections to it, icmp:// echo requests.
    #[arg(value_name = "HOST|URL")]
    url: Endpoint,
    /// What to send [default: by the URL]
    #[arg(long, help_heading = TARGET, value_name = "KIND")]
    probe: Option<KindOfProbe>,
    #[command(flatten)]
    ip: IpFlags,
    /// Flows with different ports, which take turns: routers that share the load show their branches
    #[arg(long, short = 'P', help_heading = TRAFFIC, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    flows: u32,
    /// Search the largest packet that passes whole, and where larger ones vanish
    #[arg(long, help_heading = TRAFFIC)]
    mtu: bool,
    /// Probes for each hop, after a quick trace
    #[arg(long, short = 'c', help_heading = DURATION, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    count: u32,
    /// Time from one probe of a hop to the next
    ///
    /// Routers reply about once a second to one host, so faster probes show their limits, not the path.
    #[arg(long, short, help_heading = DURATION, value_name = "TIME", default_value = "1s")]
    interval: Span,
    /// A later reply counts as lost
    #[arg(long, short = 'w', help_heading = DURATION, value_name = "TIME", default_value = "1s")]
    timeout: Span,
    /// Look no further than this hop
    #[arg(long, short = 'm', help_heading = TRAFFIC, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u8).range(1..=64))]
    max_hops: u8,
    /// Print addresses only, and ask no resolver for names
    #[arg(long, short = 'n', help_heading = OUTPUT)]
    no_names: bool,
    #[command(flatten)]
    plan: PlanFlags,
}

/// A kind of probe on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum KindOfProbe {
    /// Datagrams to a port where nothing listens (33434)
    Udp,
    /// Echo requests, as ping sends them
    Icmp,
    /// Openings of TCP connections
    Tcp,
}

impl KindOfProbe {
    fn kind(self) -> ProbeKind {
        match self {
            KindOfProbe::Udp => ProbeKind::Udp,
            KindOfProbe::Icmp => ProbeKind::Icmp,
            KindOfProbe::Tcp => ProbeKind::Tcp,
        }
    }
}

/// Flags that a path does not have.
pub fn with_own_help(command: Command) -> Command {
    let hidden: &[&str] = &["repeat", "token_file", "raw", "keep_going"];
    let changes: Vec<(&str, &dyn Fn(clap::Arg) -> clap::Arg)> =
        hidden.iter().map(|id| (*id, &(|arg: clap::Arg| arg.hide(true)) as _)).collect();
    change_arguments(command, &changes)
}

/// The shortest time between two probes of a hop.
const MIN_INTERVAL: Duration = Duration::from_millis(10);

/// The longest time.
const MAX_TIME: Duration = Duration::from_secs(3600);

pub fn run(flags: Flags) -> Result<Status> {
    if flags.plan.has_measuring_flags() {
        bail!("path has none of --repeat, --raw, --token-file and --keep-going: use --count for more probes");
    }
    for (name, time, least) in
        [("interval", flags.interval.0, MIN_INTERVAL), ("timeout", flags.timeout.0, MIN_INTERVAL)]
    {
        if !(least..=MAX_TIME).contains(&time) {
            bail!("--{name} is 10ms to 1h");
        }
    }
    let (endpoint, kind) = probe_endpoint(&flags.ip.apply(flags.url)?, flags.probe)?;
    let plan = PathPlan {
        kind,
        default_port: default_port(kind),
        flows: flags.flows,
        max_hops: flags.max_hops,
        count: flags.count,
        interval: flags.interval.0,
        timeout: flags.timeout.0,
        finds_mtu: flags.mtu,
        finds_names: !flags.no_names,
        endpoint,
    };
    Ok(run_measurements(&flags.plan, |context| path::measure_path(&plan, context))?.1)
}

/// The port of a host without one.
fn default_port(kind: ProbeKind) -> u16 {
    if kind == ProbeKind::Udp { UDP_PORT } else { link::DEFAULT_PORT }
}

/// The endpoint that the probes go to, by a URL of any service on a network.
fn probe_endpoint(url: &Endpoint, asked: Option<KindOfProbe>) -> Result<(Endpoint, ProbeKind)> {
    let (host, _) = url.address().split_once('/').unwrap_or((url.address(), ""));
    let (of_url, service_port) = match (url.scheme(), ProbeKind::of_name(url.scheme())) {
        ("https", _) => (ProbeKind::Tcp, Some(443)),
        ("http", _) => (ProbeKind::Tcp, Some(80)),
        (_, Some(kind)) => (kind, None),
        (other, None) => {
            bail!("{url}: a path leads to a host, and {other} has none: name it, like 192.0.2.7")
        }
    };
    let options = url.as_str().split_once('?').map_or(String::new(), |(_, options)| format!("?{options}"));
    let typed: Endpoint = format!("tcp://{host}{options}").parse()?;
    let has_port = typed.host_port()?.1.is_some();
    let kind = match (asked, of_url) {
        (Some(asked), _) => asked.kind(),
        // A bare host has the scheme of TCP.
        (None, ProbeKind::Tcp) if !has_port && service_port.is_none() => ProbeKind::Udp,
        (None, of_url) => of_url,
    };
    let mut endpoint: Endpoint = format!("{}://{host}{options}", kind.name()).parse()?;
    if let (Some(port), false, true) = (service_port, has_port, kind == ProbeKind::Tcp) {
        endpoint = endpoint.with_port(port)?;
    }
    Registry::standard()
        .transports
        .caps(&endpoint)
        .map_err(|fault| link::LinkError::new(&endpoint, fault))?;
    Ok((endpoint, kind))
}

/// The flag of loads.
#[derive(Args, Clone, Default)]
pub struct PathFlag {
    /// Also find the hop where the load queues, by a probe for each hop per TIME [default: 1s]
    ///
    /// Hop-limited UDP probes go to the host before and during the load, see docs/path.md. The idle path takes six times TIME.
    #[arg(long, help_heading = TRAFFIC, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "1s", conflicts_with = "repeat", hide_short_help = true)]
    path: Option<Span>,
}

impl PathFlag {
    /// The path beside the load of the endpoints.
    pub fn plan(&self, urls: &[Endpoint]) -> Result<Option<PathPlan>> {
        match (self.path, urls) {
            (None, _) => Ok(None),
            (Some(interval), [url]) => plan_beside(url, interval.0).map(Some),
            (Some(_), _) => bail!("--path looks at the path to one host: give one URL"),
        }
    }
}

fn plan_beside(url: &Endpoint, interval: Duration) -> Result<PathPlan> {
    if !(MIN_INTERVAL..=MAX_TIME).contains(&interval) {
        bail!("--path is a time from 10ms to 1h");
    }
    let (endpoint, kind) = probe_endpoint(&without_port(url)?, Some(KindOfProbe::Udp))?;
    Ok(PathPlan {
        endpoint,
        kind,
        default_port: UDP_PORT,
        flows: 1,
        max_hops: 30,
        count: 1,
        interval,
        timeout: Duration::from_secs(1),
        finds_mtu: false,
        finds_names: false,
    })
}

/// The host with the options of IP alone. The port of the load may listen on UDP, and would not reply.
fn without_port(url: &Endpoint) -> Result<Endpoint> {
    if ProbeKind::of_name(url.scheme()).is_none() && url.scheme() != "https" {
        bail!("{url}: --path needs a host on a network, and {} has none", url.scheme());
    }
    let (host, _) = url.host_port()?;
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    let mut bare: Endpoint = format!("{}://{host}", url.scheme()).parse()?;
    for name in ["family", "device", "dscp", "ecn"] {
        if let Some(value) = url.option(name) {
            bare = bare.with_option(name, value)?;
        }
    }
    Ok(bare)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_decides_what_is_sent() {
        for (url, asked, expected) in [
            ("192.0.2.7", None, "udp://192.0.2.7"),
            ("192.0.2.7:443", None, "tcp://192.0.2.7:443"),
            ("https://example.org/page", None, "tcp://example.org:443"),
            ("http://[2001:db8::1]:8080", None, "tcp://[2001:db8::1]:8080"),
            ("icmp://192.0.2.7?family=4", None, "icmp://192.0.2.7?family=4"),
            ("udp://192.0.2.7:53", None, "udp://192.0.2.7:53"),
            ("192.0.2.7", Some(KindOfProbe::Icmp), "icmp://192.0.2.7"),
            ("https://example.org", Some(KindOfProbe::Udp), "udp://example.org"),
        ] {
            let (endpoint, kind) = probe_endpoint(&url.parse().unwrap(), asked).unwrap();
            assert_eq!(endpoint.as_str(), expected, "{url}");
            assert!(expected.starts_with(kind.name()));
        }
        let error = probe_endpoint(&"/dev/ttyS0".parse().unwrap(), None).unwrap_err();
        assert!(error.to_string().contains("a path leads to a host"), "{error}");
    }

    #[test]
    fn the_path_beside_a_load_leads_to_its_host() {
        for (url, expected) in [
            ("tcp://192.0.2.7:7100?nodelay=1&device=eth0", "udp://192.0.2.7?device=eth0"),
            ("tcp://[2001:db8::1]:7100", "udp://[2001:db8::1]"),
        ] {
            let plan = plan_beside(&url.parse().unwrap(), Duration::from_secs(1)).unwrap();
            assert_eq!(plan.endpoint.as_str(), expected);
        }
    }
}
