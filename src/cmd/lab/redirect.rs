//! `linkgauge lab redirect`.

use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;

use anyhow::{Result, bail};
use clap::Args;
use linkgauge::endpoint::Endpoint;
use linkgauge::lab::redirect::{Options, Redirector};
use linkgauge::units::{Span, plural, print_bytes};

use crate::cmd::Status;
use crate::cmd::measure::wait;
use crate::cmd::output::{put, tell};
use crate::cmd::signals::on_interrupt;

/// Join a local serial port to one elsewhere, for programs that know nothing of networks
///
/// What a program sets (rate, stop bits, flow control, odd parity) is set at the remote port too, where that can be
/// controlled (RFC 2217). Data bits and even parity are those of the URL: a pseudo-terminal cannot carry them. A lost
/// connection is made again.
#[derive(Args)]
pub struct Flags {
    /// The remote port, like rfc2217://host:7001 or tcp://host:4001?baud=9600
    #[arg(value_name = "URL")]
    remote: Endpoint,
    /// Symbolic link to the local port, removed at the end
    #[arg(long, value_name = "PATH")]
    link: Option<PathBuf>,
    /// For opening a connection
    #[arg(long, value_name = "TIME", default_value = "1s")]
    timeout: Span,
    /// Try again, too, if the first connection fails
    #[arg(long)]
    retry: bool,
    /// End if there was no connection for so long [default: never]
    #[arg(long, value_name = "TIME")]
    give_up: Option<Span>,
    /// Stop by itself after this time
    #[arg(long, value_name = "TIME")]
    time: Option<Span>,
    /// Print neither where the local port is nor what happens
    #[arg(long, short)]
    quiet: bool,
}

pub fn run(flags: Flags) -> Result<Status> {
    let cancel = on_interrupt()?;
    let redirector = Redirector::start(&Options {
        link: flags.link,
        timeout: flags.timeout.0,
        retry: flags.retry,
        give_up: flags.give_up.map(|time| time.0),
        ..Options::new(flags.remote.clone())
    })?;
    if !flags.quiet {
        put(|stdout| {
            writeln!(stdout, "serial port {} leads to {}", redirector.path().display(), flags.remote)
        })?;
    }
    wait(&cancel, flags.time, || {
        redirector.events().filter(|_| !flags.quiet).for_each(tell);
        if redirector.has_ended() {
            bail!("{}: no connection", flags.remote);
        }
        Ok(())
    })?;
    if !flags.quiet {
        let counters = redirector.counters();
        tell(format_args!(
            "{} to the remote port, {} from it, {}",
            print_bytes(counters.to_remote.load(Relaxed)),
            print_bytes(counters.from_remote.load(Relaxed)),
            plural(counters.connections.load(Relaxed), "connection")
        ));
    }
    Ok(Status::Complete)
}
