//! `linkgauge fleet …`: what the operator of a fleet does at its hub.

#[cfg(feature = "fleet")]
mod collect;
#[cfg(feature = "fleet")]
mod commands;
#[cfg(feature = "fleet")]
mod destination;

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Result, anyhow};
use clap::{Args, Subcommand};
use linkgauge::units::Span;

use super::help::{DURATION, OUTPUT, SERVER, STORAGE};
use super::output::OutputFlags;
use super::status::Status;
use super::store::{SaveFlags, StoreFlags};

#[cfg(feature = "fleet")]
pub use commands::{read_secret, read_seed};

/// Measure every pair of many hosts through a hub, with agents that connect to it
///
/// The hub is a NATS server with JetStream, 2.12 or later. It keeps orders until they are due, leases, and results until they are
/// collected. An agent runs on each host (linkgauge agent --hub). For up to about 50 hosts that ssh reaches, 'linkgauge mesh' needs
/// no hub. See docs/fleet.md.
#[derive(Args)]
#[command(arg_required_else_help = true)]
pub struct Flags {
    #[command(subcommand)]
    command: FleetCommand,
}

#[derive(Subcommand)]
#[cfg_attr(not(feature = "fleet"), allow(dead_code, reason = "without a hub no flag is read"))]
enum FleetCommand {
    Key(KeyFlags),
    Apply(ApplyFlags),
    Run(RunFlags),
    Status(StatusFlags),
    Collect(CollectFlags),
    Report(ReportFlags),
}

/// Make the key of a host or of the operator, and print its public half
///
/// The file gets the secret half. Other users cannot read it.
#[derive(Args)]
#[cfg_attr(not(feature = "fleet"), allow(dead_code, reason = "without a hub no flag is read"))]
struct KeyFlags {
    /// The new file
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Print the agents, leases, waiting orders and results
#[derive(Args)]
#[cfg_attr(not(feature = "fleet"), allow(dead_code, reason = "without a hub no flag is read"))]
struct StatusFlags {
    #[command(flatten)]
    hub: HubFlags,
}

/// The hub and its operator.
#[derive(Args)]
#[cfg_attr(not(feature = "fleet"), allow(dead_code, reason = "without a hub no flag is read"))]
struct HubFlags {
    /// Hub, keys, hosts and tests, in TOML
    #[arg(value_name = "FLEET.toml")]
    file: PathBuf,
    /// File with the key of the operator
    #[arg(long, value_name = "FILE")]
    seed: PathBuf,
}

/// Define streams and consumers on the hub, and sign the list of hosts
///
/// Prints the account of the fleet for the configuration of the server: the agents, and what each may do there.
#[derive(Args)]
#[cfg_attr(not(feature = "fleet"), allow(dead_code, reason = "without a hub no flag is read"))]
struct ApplyFlags {
    #[command(flatten)]
    hub: HubFlags,
    /// Print the account only: the server need not run
    #[arg(long, help_heading = OUTPUT)]
    account: bool,
}

/// Order rounds: every test once, each when its hosts are free
///
/// The hub delivers each order when it is due; this command ends before. Round trips of all pairs are measured first, then the rates.
#[derive(Args)]
#[cfg_attr(not(feature = "fleet"), allow(dead_code, reason = "without a hub no flag is read"))]
struct RunFlags {
    #[command(flatten)]
    hub: HubFlags,
    /// Number of rounds
    #[arg(long, help_heading = DURATION, value_name = "N", default_value = "1")]
    rounds: u32,
    /// Time from the begin of a round to that of the next one
    #[arg(long, help_heading = DURATION, value_name = "TIME", default_value = "1h")]
    every: Span,
    /// Time after its slot in which a test may still begin
    #[arg(long, help_heading = DURATION, value_name = "TIME", default_value = "10min")]
    valid: Span,
}

/// Save the results of the agents as they arrive, until Ctrl-C
///
/// Each result is confirmed when it is saved, so none is lost or saved twice. Saved runs have the tags 'fleet' and 'round-ID'.
#[derive(Args)]
#[cfg_attr(not(feature = "fleet"), allow(dead_code, reason = "without a hub no flag is read"))]
struct CollectFlags {
    #[command(flatten)]
    hub: HubFlags,
    /// End when no result waits
    #[arg(long, help_heading = DURATION)]
    once: bool,
    /// Where to serve metrics for Prometheus at /metrics, like 127.0.0.1:9464
    ///
    /// Other machines can connect to an address that is not a loopback address. Then a token is required.
    #[arg(long, help_heading = SERVER, value_name = "ADDRESS", value_parser = parse_address, conflicts_with = "once")]
    metrics: Option<SocketAddr>,
    /// File with the token that readers of the metrics must send
    #[arg(long, help_heading = SERVER, value_name = "FILE", requires = "metrics")]
    page_token_file: Option<PathBuf>,
    /// Save in PostgreSQL instead of a file, like postgresql://collector@db.example/links
    ///
    /// Its tables are made when they are missing (docs/fleet.md). The password is that of PGPASSWORD or --password-file.
    #[arg(long, help_heading = STORAGE, value_name = "URL", conflicts_with_all = ["store", "no_store"])]
    database: Option<String>,
    /// File with the password of the database
    #[arg(long, help_heading = STORAGE, value_name = "FILE", requires = "database")]
    password_file: Option<PathBuf>,
    #[command(flatten)]
    save: SaveFlags,
}

/// Report the collected results as one mesh: matrix, worst pairs, and what explains them
///
/// The latest of several results of a test counts.
#[derive(Args)]
#[cfg_attr(not(feature = "fleet"), allow(dead_code, reason = "without a hub no flag is read"))]
struct ReportFlags {
    /// Hub, keys, hosts and tests, in TOML
    #[arg(value_name = "FLEET.toml")]
    file: PathBuf,
    /// Only the results of this round
    #[arg(long, help_heading = STORAGE, value_name = "ID")]
    round: Option<String>,
    #[command(flatten)]
    output: OutputFlags,
    #[command(flatten)]
    store: StoreFlags,
}

fn parse_address(text: &str) -> Result<SocketAddr> {
    text.parse().map_err(|_| anyhow!("'{text}' is not an address with a port. Write it like 127.0.0.1:9464"))
}

pub fn run(flags: Flags) -> Result<Status> {
    #[cfg(feature = "fleet")]
    return match flags.command {
        FleetCommand::Key(flags) => commands::make_key(&flags),
        FleetCommand::Apply(flags) => commands::apply_file(&flags),
        FleetCommand::Run(flags) => commands::order_rounds(&flags),
        FleetCommand::Status(flags) => commands::print_status(&flags.hub),
        FleetCommand::Collect(flags) => collect::collect(&flags),
        FleetCommand::Report(flags) => commands::report(&flags),
    };
    #[cfg(not(feature = "fleet"))]
    {
        let Flags { command: _ } = flags;
        anyhow::bail!("{}", super::status::WITHOUT_FLEET);
    }
}
