//! `linkgauge throughput`.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, Command};
use linkgauge::Registry;
use linkgauge::endpoint::Endpoint;
use linkgauge::plan::{CaseSpec, Direction, OneOrMany, ProbeSpec};
use linkgauge::units::{BitRate, Bytes, RateTarget, Span, UnitError};

use super::help::{DURATION, OUTPUT, TRAFFIC, change_arguments};
use super::measure::{
    Aims, CaseFlags, ExpectedResult, HalfWidth, one_or_many, parse_direction, parse_probe, run_spec,
    with_protocols,
};
use super::path::PathFlag;
use super::status::Status;

/// Measure the rate that gets through: upload, download or both
///
/// The rate is the delivered payload per second, by the receiver's clock. On links that allow a second connection a latency
/// probe runs beside the load.
#[derive(Args)]
pub struct Flags {
    #[command(flatten)]
    case: CaseFlags,
    /// Exit with status 1 if the result is unusual here, by at least 8 saved runs
    #[arg(long, help_heading = OUTPUT, hide_short_help = true, value_name = "WHAT")]
    expect: Option<ExpectedResult>,
    /// upload, download, both, or loop [list; default: upload]
    ///
    /// Direction of the payload. loop: through an echo.
    #[arg(long, short, help_heading = TRAFFIC, value_name = "DIRECTION", value_delimiter = ',', value_parser = parse_direction)]
    direction: Vec<Direction>,
    /// Download: the server sends
    #[arg(long, short = 'R', help_heading = TRAFFIC, conflicts_with_all = ["direction", "bidir"])]
    reverse: bool,
    /// Both directions at the same time
    #[arg(long, help_heading = TRAFFIC, hide_short_help = true, conflicts_with = "direction")]
    bidir: bool,
    /// Measure until the rate is known to this share, like 2%: ±2 %
    ///
    /// Rounds, each twice as long as the one before. The round after the first one with such an interval is
    /// the result. At most for --time [default: 1min].
    #[arg(long, help_heading = DURATION, value_name = "SHARE", conflicts_with_all = ["volume", "count", "repeat", "raw"])]
    precision: Option<HalfWidth>,
    /// Rate limit per connection [default: max; UDP: 1M]
    ///
    /// Like 10M or 10Mbit/s; max: no limit. The default is 1Mbit/s for UDP and icmp to other hosts.
    #[arg(long, alias = "bitrate", short, help_heading = TRAFFIC, value_name = "RATE|max", value_parser = parse_bit_rate_or_max)]
    bit_rate: Option<RateTarget<BitRate>>,
    /// Rate of the latency probe, or 'off' [default: 10/s]
    #[arg(long, help_heading = TRAFFIC, value_name = "RATE", value_parser = parse_probe)]
    probe: Option<ProbeSpec>,
    /// Probe the idle link for this time, before the load and after it, or 'off' [default: 1s]
    ///
    /// Shows the latency that the load adds, and the time to recover. After the load the probe continues until its round trips
    /// are as short as before, up to ten times as long. The default is 10 % of a shorter --time, and off with --volume,
    /// --count and --precision. Without --time the 10 s include the idle time; otherwise it is added.
    #[arg(long, help_heading = TRAFFIC, value_name = "TIME", value_parser = parse_idle, hide_short_help = true)]
    idle: Option<Span>,
    #[command(flatten)]
    path: PathFlag,
    /// Search the rate that the path carries without losses and delay (RFC 9097), over UDP
    #[arg(long, help_heading = TRAFFIC, hide_short_help = true, conflicts_with_all = ["bit_rate", "bidir", "volume", "precision"])]
    find_capacity: bool,
    /// Stop after this volume on each connection
    #[arg(long, help_heading = DURATION, value_name = "SIZE", conflicts_with = "time")]
    volume: Option<Bytes>,
    /// Leave out this time at the beginning, in seconds without a unit: --warm-up
    #[arg(long, short = 'O', help_heading = DURATION, value_name = "TIME", conflicts_with = "warm_up", hide_short_help = true)]
    omit: Option<Span>,
    #[command(flatten)]
    netio: NetioFlags,
    #[command(flatten)]
    iperf2: Iperf2Flags,
    #[command(flatten)]
    udpst: UdpstFlags,
}

/// The defaults and protocols of this command in the help of the shared flags.
pub fn with_own_help(command: Command) -> Command {
    change_arguments(
        command,
        &[
            ("protocol", &|protocol| with_protocols(protocol, "throughput")),
            ("size", &|size| {
                size.help("Message size [default: 256Ki, datagrams: 1400]").long_help(
                    "Message size [list: one case each; default: 262144 on streams, 1400 in datagrams, 10 ms' worth on serial \
                     lines; with --protocol netio 1 to 32 KB]",
                )
            }),
            ("time", &|time| time.help("Stop after this time [default: 10s]")),
            ("warm_up", &|warm_up| warm_up.help("Leave out this time or number of messages [default: 0]")),
            ("timeout", &|timeout| timeout.help("Fail when nothing arrives for this time [default: 5s]")),
        ],
    )
}

/// Options of `--protocol netio`.
#[derive(Args)]
#[command(next_help_heading = "Protocol netio")]
struct NetioFlags {
    /// Version of the remote NETIO: a (up to 1.14, upload only), b (1.15 to 1.22), c (from 1.23) [default: c]
    #[arg(long, value_name = "A|B|C", hide_short_help = true)]
    dialect: Option<String>,
}

impl NetioFlags {
    /// The options in the form of a plan. The protocol checks them.
    fn protocol_options(self) -> BTreeMap<String, String> {
        self.dialect.into_iter().map(|dialect| ("dialect".to_owned(), dialect)).collect()
    }
}

/// Options of `--protocol iperf2`.
#[derive(Args)]
#[command(next_help_heading = "Protocol iperf2")]
struct Iperf2Flags {
    /// Download over a connection that the server opens to this port (0: a free one), for servers without --reverse
    #[arg(long, value_name = "PORT", hide_short_help = true)]
    callback: Option<u16>,
    /// Send as iperf 2.0.5 does: plain data over TCP, 32-bit numbers over UDP
    #[arg(long, hide_short_help = true)]
    compat: bool,
}

impl Iperf2Flags {
    /// The options in the form of a plan. The protocol checks them.
    fn protocol_options(self) -> BTreeMap<String, String> {
        let callback = self.callback.map(|port| ("callback".to_owned(), port.to_string()));
        let compat = self.compat.then(|| ("compat".to_owned(), "1".to_owned()));
        callback.into_iter().chain(compat).collect()
    }
}

/// Options of `--protocol udpst`.
#[derive(Args)]
#[command(next_help_heading = "Protocol udpst")]
struct UdpstFlags {
    /// Search of the server: B in steps of 10 Mbit/s, C in steps that double [default: B]
    #[arg(long, value_name = "B|C", hide_short_help = true)]
    algorithm: Option<String>,
    /// Sign requests with the token (--token-file)
    #[arg(long, hide_short_help = true)]
    authenticated: bool,
    /// Number of the key at the server [default: 0]
    #[arg(long, value_name = "N", hide_short_help = true)]
    key_id: Option<u8>,
}

impl UdpstFlags {
    /// The options in the form of a plan. The protocol checks them.
    fn protocol_options(self) -> BTreeMap<String, String> {
        let algorithm = self.algorithm.map(|name| ("algorithm".to_owned(), name));
        let authenticated = self.authenticated.then(|| ("authenticated".to_owned(), "true".to_owned()));
        let key_id = self.key_id.map(|id| ("key-id".to_owned(), id.to_string()));
        algorithm.into_iter().chain(authenticated).chain(key_id).collect()
    }
}

/// A rate. 0 means no limit, as for iperf3.
fn parse_bit_rate_or_max(text: &str) -> Result<RateTarget<BitRate>, UnitError> {
    if text == "0" { Ok(RateTarget::Max) } else { text.parse() }
}

/// A time, or none.
fn parse_idle(text: &str) -> Result<Span, UnitError> {
    if text == "off" { Ok(Span(Duration::ZERO)) } else { text.parse() }
}

/// Default time on the idle link: ten round trips of the probe at its default rate.
const DEFAULT_IDLE_TIME: Duration = Duration::from_secs(1);

/// The time on the idle link, if neither a flag nor an unknown duration speaks against it.
fn default_idle_time(spec: &CaseSpec) -> Span {
    match spec.time {
        _ if spec.volume.is_some() || spec.count.is_some() => Span(Duration::ZERO),
        Some(Span(time)) => Span((time / 10).min(DEFAULT_IDLE_TIME)),
        None => Span(DEFAULT_IDLE_TIME),
    }
}

/// The workload of a search.
const CAPACITY: &str = "capacity";

/// Whether the protocol, or that of each URL, has no other transfer than the search.
fn searches_only(protocol: &str, urls: &[Endpoint]) -> bool {
    let registry = Registry::standard();
    let searches = |name: &str| {
        let workloads = registry.protocol(name).map(|protocol| registry.workloads_of(protocol));
        workloads.is_some_and(|workloads| workloads.map(|(workload, _)| workload.name).eq([CAPACITY]))
    };
    searches(protocol) || urls.iter().all(|url| searches(url.scheme()))
}

pub fn run(flags: Flags) -> Result<Status> {
    let direction = match (flags.reverse, flags.bidir) {
        (true, _) => Some(OneOrMany::One(Direction::Receive)),
        (_, true) => Some(OneOrMany::One(Direction::Both)),
        _ => one_or_many(&flags.direction),
    };
    let mut case = flags.case.spec("throughput")?;
    if flags.find_capacity || searches_only(&flags.case.protocol, &flags.case.urls) {
        case.workload = Some(CAPACITY.to_owned());
    }
    let mut protocol_options = flags.netio.protocol_options();
    protocol_options.extend(flags.iperf2.protocol_options());
    protocol_options.extend(flags.udpst.protocol_options());
    protocol_options.extend(case.protocol_options.clone());
    let mut spec = CaseSpec {
        direction,
        warm_up_time: flags.omit.or(case.warm_up_time),
        volume: flags.volume,
        bit_rate: flags.bit_rate,
        probe: flags.probe,
        protocol_options,
        ..case
    };
    let default_idle =
        if flags.precision.is_some() { Span(Duration::ZERO) } else { default_idle_time(&spec) };
    spec.idle = flags.idle.or(Some(default_idle));
    let _changes = flags.case.change_devices()?;
    let path = flags.path.plan(&flags.case.urls)?;
    if path.is_some() && flags.precision.is_some() {
        anyhow::bail!("--path looks at one transfer: leave out --precision");
    }
    let aims = Aims { expect: flags.expect, precision: flags.precision, path, ..Aims::default() };
    run_spec(spec, &flags.case.plan, aims)
}
