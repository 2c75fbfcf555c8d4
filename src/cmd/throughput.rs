//! `linkgauge throughput`.

use std::collections::BTreeMap;

use anyhow::Result;
use clap::Args;
use linkgauge::plan::{CaseSpec, Direction, OneOrMany, ProbeSpec};
use linkgauge::units::{BitRate, Bytes, RateTarget, Span, UnitError};

use super::Status;
use super::measure::{CaseFlags, one_or_many, parse_direction, parse_probe, run_spec};

/// Measure delivered payload per second, one or both ways
///
/// What counts is what the receiver got, by the receiver's clock. On links that keep a second connection a latency
/// probe runs beside the load.
#[derive(Args)]
pub struct Flags {
    /// send, receive, both (own session, iperf3, netio) or loop (over an echo) [list: one case each]
    #[arg(long, short, value_name = "DIRECTION", value_delimiter = ',', value_parser = parse_direction)]
    direction: Vec<Direction>,
    /// The server sends: --direction receive
    #[arg(long, short = 'R', conflicts_with_all = ["direction", "bidir"])]
    reverse: bool,
    /// Both send at the same time: --direction both
    #[arg(long, conflicts_with = "direction")]
    bidir: bool,
    /// Stop after so many bytes on each connection
    #[arg(long, value_name = "SIZE", conflicts_with = "time")]
    volume: Option<Bytes>,
    /// Send no faster than this on each connection, like 10Mbit/s or 10M; max: as fast as it goes [default: max; for UDP and
    /// icmp to another host 1Mbit/s]
    #[arg(long, visible_alias = "bitrate", short, value_name = "RATE|max", value_parser = parse_bit_rate_or_max)]
    bit_rate: Option<RateTarget<BitRate>>,
    /// Leave out this time at the beginning, in seconds without a unit: --warm-up
    #[arg(long, short = 'O', value_name = "TIME", conflicts_with = "warm_up")]
    omit: Option<Span>,
    /// Rate of the latency probe beside the load, or 'off' [default: 10/s]
    #[arg(long, value_name = "RATE", value_parser = parse_probe)]
    probe: Option<ProbeSpec>,
    // Last: the headings of its groups would take in what follows.
    #[command(flatten)]
    case: CaseFlags,
    #[command(flatten)]
    netio: NetioFlags,
}

/// Options of `--peer netio`.
#[derive(Args)]
#[command(next_help_heading = "Peer netio")]
struct NetioFlags {
    /// What the NETIO at the far end speaks: a (up to 1.14, only send), b (1.15 to 1.22), c (from 1.23) [default: c]
    #[arg(long, value_name = "A|B|C")]
    dialect: Option<String>,
}

impl NetioFlags {
    /// The options as a plan holds them; the peer checks them.
    fn protocol_options(self) -> BTreeMap<String, String> {
        self.dialect.into_iter().map(|dialect| ("dialect".to_owned(), dialect)).collect()
    }
}

/// A rate; 0 is as much as goes, as for iperf3.
fn parse_bit_rate_or_max(text: &str) -> Result<RateTarget<BitRate>, UnitError> {
    if text == "0" { Ok(RateTarget::Max) } else { text.parse() }
}

pub fn run(flags: Flags) -> Result<Status> {
    let direction = match (flags.reverse, flags.bidir) {
        (true, _) => Some(OneOrMany::One(Direction::Receive)),
        (_, true) => Some(OneOrMany::One(Direction::Both)),
        _ => one_or_many(&flags.direction),
    };
    let case = flags.case.spec("throughput")?;
    let spec = CaseSpec {
        direction,
        warm_up_time: flags.omit.or(case.warm_up_time),
        volume: flags.volume,
        bit_rate: flags.bit_rate,
        probe: flags.probe,
        peer_options: flags.netio.protocol_options(),
        ..case
    };
    run_spec(spec, &flags.case.plan)
}
