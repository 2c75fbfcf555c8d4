//! `linkgauge agent`.

#[cfg(feature = "fleet")]
mod hub;

use std::io::{self, Write};
use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use linkgauge::Registry;
use linkgauge::clock::Clock;
use linkgauge::host::{self, raise_open_file_limit};
use linkgauge::link::{Dialer, REPORT_TIME};
use linkgauge::mesh::{AddressRange, AgentLimits, run_agent};
use linkgauge::units::{BitRate, Bytes, Span};

use super::help::{LIMITS, SERVER, TARGET};
use super::status::Status;

/// Measure other hosts for 'linkgauge mesh', which starts it, or for 'linkgauge fleet'
///
/// With --stdio orders arrive on standard input and results leave on standard output, as JSON, one a line (docs/fleet.md). It ends when
/// its input ends. With --hub it connects to a hub, and nothing connects to it but the hosts that measure it. An order names hosts,
/// never a command or a file. The limits of its own host hold for all orders together.
#[derive(Args)]
pub struct Flags {
    /// Take orders from standard input
    #[arg(long, required_unless_present = "hub", conflicts_with = "hub")]
    stdio: bool,
    #[command(flatten)]
    hub: AgentHubFlags,
    /// Address on which it accepts measurements
    #[arg(long, help_heading = SERVER, value_name = "ADDRESS", default_value = "0.0.0.0", conflicts_with = "hub")]
    listen: IpAddr,
    /// Port on which it accepts measurements [default: that of the order]
    #[arg(long, short, help_heading = SERVER, value_name = "PORT", conflicts_with = "hub")]
    port: Option<u16>,
    /// Addresses that it measures, like 192.0.2.0/24 [list; default: all]
    #[arg(long, help_heading = LIMITS, value_name = "RANGE", value_delimiter = ',', conflicts_with = "hub")]
    allow: Vec<AddressRange>,
    /// Longest measurement
    #[arg(long, help_heading = LIMITS, value_name = "TIME", default_value = "10min", conflicts_with = "hub")]
    max_time: Span,
    /// Highest payload rate of its measurements together, and of its clients together [default: no limit]
    #[arg(long, help_heading = LIMITS, value_name = "RATE", conflicts_with = "hub")]
    max_rate: Option<BitRate>,
    /// Payload of all its measurements together [default: no limit]
    #[arg(long, help_heading = LIMITS, value_name = "SIZE", conflicts_with = "hub")]
    max_bytes: Option<Bytes>,
}

/// Orders from a hub.
#[derive(Args)]
#[cfg_attr(not(feature = "fleet"), allow(dead_code, reason = "without a hub only the first flag is read"))]
struct AgentHubFlags {
    /// Take orders from this hub (NATS), like tls://hub.example:4222
    #[arg(long, help_heading = TARGET, value_name = "URL", requires_all = ["name", "seed", "limits"])]
    hub: Option<String>,
    /// Name of this host in the list of the fleet
    #[arg(long, help_heading = TARGET, requires = "hub")]
    name: Option<String>,
    /// File with the key of this host; 'linkgauge fleet key' makes it
    #[arg(long, help_heading = TARGET, value_name = "FILE", requires = "hub")]
    seed: Option<PathBuf>,
    /// Certificates that the hub's must follow (PEM) [default: those of this system]
    #[arg(long, help_heading = TARGET, value_name = "FILE", requires = "hub")]
    ca: Option<PathBuf>,
    /// File with the limits of this host, in TOML (docs/fleet.md)
    #[arg(long, help_heading = LIMITS, value_name = "FILE", requires = "hub")]
    limits: Option<PathBuf>,
    /// File for results that wait for the hub [default: agent-NAME.sqlite in the user's data directory]
    #[arg(long, help_heading = LIMITS, value_name = "FILE", requires = "hub")]
    outbox: Option<PathBuf>,
}

pub fn run(flags: Flags) -> Result<Status> {
    raise_open_file_limit();
    if flags.hub.hub.is_some() {
        #[cfg(feature = "fleet")]
        return hub::run(flags.hub);
        #[cfg(not(feature = "fleet"))]
        anyhow::bail!("{}", super::status::WITHOUT_FLEET);
    }
    let limits = AgentLimits {
        time: flags.max_time.0,
        bits_per_second: flags.max_rate.map(|rate| rate.0),
        bytes: flags.max_bytes.map(|bytes| bytes.0),
        allowed: flags.allow,
        listen: flags.listen,
        port: flags.port,
    };
    let output: Box<dyn Write + Send> = Box::new(io::stdout());
    let dialer = Dialer { report_time: REPORT_TIME, ..Registry::standard().dialer(Clock::System) };
    run_agent(&mut io::stdin().lock(), output, limits, &dialer, host::facts())?;
    Ok(Status::Complete)
}
