//! `linkgauge agent`.

use std::io::{self, Write};
use std::net::IpAddr;

use anyhow::{Result, bail};
use clap::Args;
use linkgauge::clock::Clock;
use linkgauge::host::{self, raise_open_file_limit};
use linkgauge::link::Dialer;
use linkgauge::mesh::{AddressRange, AgentLimits, run_agent};
use linkgauge::units::{BitRate, Bytes, Span};

use super::Status;
use super::help::{LIMITS, SERVER};

/// Measure other hosts for 'linkgauge mesh', which starts it
///
/// Orders arrive on standard input and results leave on standard output, as JSON, one a line (docs/fleet.md). An order names a
/// host and a port, never a command or a file. The limits of this command hold for every order. It ends when its input ends.
#[derive(Args)]
pub struct Flags {
    /// Take orders from standard input
    #[arg(long, required = true)]
    stdio: bool,
    /// Address on which it accepts measurements
    #[arg(long, help_heading = SERVER, value_name = "ADDRESS", default_value = "0.0.0.0")]
    listen: IpAddr,
    /// Port on which it accepts measurements [default: that of the order]
    #[arg(long, short, help_heading = SERVER, value_name = "PORT")]
    port: Option<u16>,
    /// Addresses that it measures, like 192.0.2.0/24 [list; default: all]
    #[arg(long, help_heading = LIMITS, value_name = "RANGE", value_delimiter = ',')]
    allow: Vec<AddressRange>,
    /// Longest measurement
    #[arg(long, help_heading = LIMITS, value_name = "TIME", default_value = "10min")]
    max_time: Span,
    /// Highest payload rate, of its measurements and of each client [default: no limit]
    #[arg(long, help_heading = LIMITS, value_name = "RATE")]
    max_rate: Option<BitRate>,
    /// Payload of all its measurements together [default: no limit]
    #[arg(long, help_heading = LIMITS, value_name = "SIZE")]
    max_bytes: Option<Bytes>,
}

pub fn run(flags: Flags) -> Result<Status> {
    if !flags.stdio {
        bail!("an agent needs a source of orders. Use --stdio");
    }
    raise_open_file_limit();
    let limits = AgentLimits {
        time: flags.max_time.0,
        bits_per_second: flags.max_rate.map(|rate| rate.0),
        bytes: flags.max_bytes.map(|bytes| bytes.0),
        allowed: flags.allow,
        listen: flags.listen,
        port: flags.port,
    };
    let output: Box<dyn Write + Send> = Box::new(io::stdout());
    let dialer = Dialer::new(Clock::System);
    run_agent(&mut io::stdin().lock(), output, limits, &dialer, host::facts())?;
    Ok(Status::Complete)
}
