//! `linkgauge lab redirect`.

use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;

use anyhow::{Result, bail};
use clap::Args;
use linkgauge::endpoint::Endpoint;
use linkgauge::lab::redirect::{Redirector, RedirectorOptions};
use linkgauge::units::{Span, format_bytes, format_plural};

use crate::cmd::help::{DURATION, OUTPUT, TARGET};
use crate::cmd::measure::wait_until_interrupted;
use crate::cmd::output::{print_message, print_text};
use crate::cmd::signals::interrupt_flag;
use crate::cmd::status::Status;

/// Make a remote serial port available as a local one
///
/// The rate, stop bits, flow control and odd parity that a program sets are also set at the remote port, if it supports
/// RFC 2217. Data bits and even parity are those of the URL, because a pseudo-terminal cannot carry them. After a lost
/// connection it reconnects.
#[derive(Args)]
pub struct Flags {
    /// The remote port, like rfc2217://host:7001 or tcp://host:4001?baud=9600
    #[arg(value_name = "URL")]
    remote: Endpoint,
    /// Symbolic link to the local port, removed at the end
    #[arg(long, help_heading = TARGET, value_name = "PATH")]
    link: Option<PathBuf>,
    /// Maximum time to connect
    #[arg(long, help_heading = TARGET, value_name = "TIME", default_value = "1s")]
    timeout: Span,
    /// Retry even if the first connection fails
    #[arg(long, help_heading = TARGET)]
    retry: bool,
    /// Stop after this time without a connection [default: never]
    #[arg(long, help_heading = DURATION, value_name = "TIME")]
    give_up: Option<Span>,
    /// Stop after this time [default: at Ctrl-C]
    #[arg(long, help_heading = DURATION, value_name = "TIME")]
    time: Option<Span>,
    /// Print errors only
    #[arg(long, short, help_heading = OUTPUT)]
    quiet: bool,
}

pub fn run(flags: Flags) -> Result<Status> {
    let cancel = interrupt_flag()?;
    let redirector = Redirector::start(&RedirectorOptions {
        link: flags.link,
        timeout: flags.timeout.0,
        retry: flags.retry,
        give_up_after: flags.give_up.map(|time| time.0),
        ..RedirectorOptions::new(flags.remote.clone())
    })?;
    if !flags.quiet {
        print_text(|stdout| {
            writeln!(stdout, "serial port {} leads to {}", redirector.path().display(), flags.remote)
        })?;
    }
    wait_until_interrupted(&cancel, flags.time, || {
        redirector.events().filter(|_| !flags.quiet).for_each(print_message);
        if redirector.has_ended() {
            bail!("{}: no connection", flags.remote);
        }
        Ok(())
    })?;
    if !flags.quiet {
        let counters = redirector.counters();
        print_message(format_args!(
            "{} to the remote port, {} from it, {}",
            format_bytes(counters.to_remote.load(Relaxed)),
            format_bytes(counters.from_remote.load(Relaxed)),
            format_plural(counters.connections.load(Relaxed), "connection")
        ));
    }
    Ok(Status::Complete)
}
