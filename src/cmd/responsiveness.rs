//! `linkgauge responsiveness`.

use std::time::Duration;

use anyhow::Result;
use clap::{Args, Command};
use linkgauge::plan::{CaseSpec, Direction, OneOrMany, ProbeSpec};
use linkgauge::units::{MessageRate, Span};

#[cfg(feature = "http")]
mod https;

use super::help::{TRAFFIC, change_arguments};
use super::measure::{Aims, CaseFlags, one_or_many, parse_direction, parse_probe, run_spec, with_protocols};
use super::path::PathFlag;
use super::status::Status;

/// Measure how fast replies are while connections load the link
///
/// Every second one more connection loads the link, until the goodput is stable. Then the measurement continues until the
/// responsiveness is stable. The result has the round trip idle, beside the load, and on the connections of the load, and
/// round trips per minute (RPM) by draft-ietf-ippm-responsiveness-09. docs/metrics.md describes the differences from it.
/// https://HOST:PORT measures over HTTP/2 and TLS; ?ca=FILE or ?insecure=1 accepts certificates that this host does not trust.
#[derive(Args)]
pub struct Flags {
    #[command(flatten)]
    case: CaseFlags,
    /// upload, download, or loop [list; default: upload]
    ///
    /// Direction of the load. loop: through an echo.
    #[arg(long, short, help_heading = TRAFFIC, value_name = "DIRECTION", value_delimiter = ',', value_parser = parse_direction)]
    direction: Vec<Direction>,
    /// Download: the server sends the load
    #[arg(long, short = 'R', help_heading = TRAFFIC, conflicts_with = "direction")]
    reverse: bool,
    /// Rate of the probes beside the load and on each of its connections [default: 20/s]
    #[arg(long, help_heading = TRAFFIC, value_name = "RATE", value_parser = parse_probe)]
    probe: Option<ProbeSpec>,
    /// Probe the idle link for this time, before the load and after it [default: 1s]
    #[arg(long, help_heading = TRAFFIC, value_name = "TIME", hide_short_help = true)]
    idle: Option<Span>,
    #[command(flatten)]
    path: PathFlag,
}

/// The defaults and protocols of this command in the help of the shared flags.
pub fn with_own_help(command: Command) -> Command {
    change_arguments(
        command,
        &[
            ("protocol", &|protocol| with_protocols(protocol, "responsiveness")),
            ("size", &|size| {
                size.help("Block size, 16 to 65536 [default: 16384]").long_help(
                    "Block size, 16 to 65536 bytes [list: one case each; default: 16384, 10 ms' worth on serial lines]",
                )
            }),
            ("parallel", &|parallel| {
                parallel.help("Connections of the load, at most [list: one case each; default: 16]")
            }),
            ("time", &|time| time.help("Longest time of the load [default: 20s]")),
            ("count", &|count| count.hide(true)),
            ("warm_up", &|warm_up| warm_up.hide(true)),
            ("together", &|together| together.hide(true)),
            ("ports", &|ports| ports.hide(true)),
            ("timeout", &|timeout| timeout.help("Fail when nothing arrives for this time [default: 5s]")),
        ],
    )
}

/// Connections of the load, at most: MNP of the draft.
const MAX_CONNECTIONS: u32 = 16;

/// Probes beside the load, per second: enough for a median of each second, and little on a link of 1 Mbit/s.
const PROBES_PER_SECOND: f64 = 20.0;

/// Time on the idle link.
const IDLE_TIME: Duration = Duration::from_secs(1);

pub fn run(flags: Flags) -> Result<Status> {
    let direction =
        if flags.reverse { Some(OneOrMany::One(Direction::Receive)) } else { one_or_many(&flags.direction) };
    let case = flags.case.spec("responsiveness")?;
    let spec = CaseSpec {
        direction,
        parallel: case.parallel.clone().or(Some(OneOrMany::One(MAX_CONNECTIONS))),
        probe: flags.probe.or(Some(ProbeSpec::Rate(MessageRate(PROBES_PER_SECOND)))),
        idle: flags.idle.or(Some(Span(IDLE_TIME))),
        ..case
    };
    let path = flags.path.plan(&flags.case.urls)?;
    if flags.case.urls.iter().any(|url| url.scheme() == "https") {
        #[cfg(feature = "http")]
        return https::run(&spec, &flags.case.plan, path);
        #[cfg(not(feature = "http"))]
        anyhow::bail!("{}", super::status::WITHOUT_HTTP);
    }
    let _changes = flags.case.change_devices()?;
    run_spec(spec, &flags.case.plan, Aims { path, ..Aims::default() })
}
