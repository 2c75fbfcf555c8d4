//! `linkgauge lab router`.

use std::str::FromStr;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use linkgauge::lab::router::{Chain, LinkLimits, Replies, Routers, describe_link};
use linkgauge::units::{BitRate, Bytes, Span, format_duration, format_plural};

use crate::cmd::help::{DURATION, OUTPUT};
use crate::cmd::measure::wait_until_interrupted;
use crate::cmd::output::print_text;
use crate::cmd::signals::interrupt_flag;
use crate::cmd::status::Status;

const LINKS: &str = "Links (link 1 is that of the client)";
const ROUTERS: &str = "Routers";

/// Run a chain of routers between a client and a server, with the kernel's own TCP
///
/// The routers, the client and the server are network namespaces of this host. The command prints how to start programs in them. All of it
/// vanishes when the command ends. It needs root or user namespaces, and the programs ip, tc, unshare and nsenter.
#[derive(Args)]
pub struct Flags {
    /// Number of routers
    #[arg(long, short = 'n', help_heading = ROUTERS, value_name = "N", default_value_t = 3)]
    routers: usize,
    /// Router that never answers a packet whose TTL has run out; repeat for several
    #[arg(long, help_heading = ROUTERS, value_name = "K")]
    silent: Vec<usize>,
    /// Router that answers such packets once for each interval, after a burst of 6, like 2:500ms; repeat for several
    #[arg(long, help_heading = ROUTERS, value_name = "K:TIME", value_parser = parse_at::<Span>)]
    icmp_interval: Vec<(usize, Span)>,
    /// Rate of a link, each direction, like 2:10Mbit/s; repeat for several links
    #[arg(long, help_heading = LINKS, value_name = "K:RATE", value_parser = parse_at::<BitRate>)]
    rate: Vec<(usize, BitRate)>,
    /// The same towards the server
    #[arg(long, help_heading = LINKS, value_name = "K:RATE", value_parser = parse_at::<BitRate>)]
    rate_up: Vec<(usize, BitRate)>,
    /// The same towards the client
    #[arg(long, help_heading = LINKS, value_name = "K:RATE", value_parser = parse_at::<BitRate>)]
    rate_down: Vec<(usize, BitRate)>,
    /// Queue in front of a link with a rate, like 2:64Ki [default: what the link sends in 100 ms]
    #[arg(long, help_heading = LINKS, value_name = "K:SIZE", value_parser = parse_at::<Bytes>)]
    queue: Vec<(usize, Bytes)>,
    /// Largest packet of a link, like 3:1400 [default: 1500]
    #[arg(long, help_heading = LINKS, value_name = "K:SIZE", value_parser = parse_at::<Bytes>)]
    mtu: Vec<(usize, Bytes)>,
    /// Stop after this time [default: at Ctrl-C]
    #[arg(long, help_heading = DURATION, value_name = "TIME")]
    time: Option<Span>,
    /// Do not print the chain
    #[arg(long, short, help_heading = OUTPUT)]
    quiet: bool,
}

/// A value of one link or router, after its number.
fn parse_at<T: FromStr<Err: Into<anyhow::Error>>>(text: &str) -> Result<(usize, T)> {
    let (number, value) = text.split_once(':').context("write a number and a value, like 2:10Mbit/s")?;
    let number = number.parse().with_context(|| format!("'{number}' is not a number"))?;
    Ok((number, value.parse().map_err(Into::into)?))
}

impl Flags {
    fn chain(&self) -> Result<Chain> {
        let mut chain = Chain::of(self.routers)?;
        for (number, BitRate(rate)) in &self.rate {
            let link = link(&mut chain, *number)?;
            (link.up, link.down) = (Some(*rate), Some(*rate));
        }
        for (number, BitRate(rate)) in &self.rate_up {
            link(&mut chain, *number)?.up = Some(*rate);
        }
        for (number, BitRate(rate)) in &self.rate_down {
            link(&mut chain, *number)?.down = Some(*rate);
        }
        for (number, Bytes(queue)) in &self.queue {
            link(&mut chain, *number)?.queue_bytes = Some(*queue);
        }
        for (number, Bytes(mtu)) in &self.mtu {
            link(&mut chain, *number)?.mtu_bytes = *mtu;
        }
        let silent = self.silent.iter().map(|number| (*number, Replies::Silent));
        let limited =
            self.icmp_interval.iter().map(|(number, interval)| (*number, Replies::Every(interval.0)));
        for (number, replies) in limited.chain(silent) {
            let routers = self.routers;
            ensure!((1..=routers).contains(&number), "router {number}: choose 1 to {routers}");
            chain.routers[number - 1] = replies;
        }
        Ok(chain)
    }
}

fn link(chain: &mut Chain, number: usize) -> Result<&mut LinkLimits> {
    let count = chain.links.len();
    match number.checked_sub(1).and_then(|index| chain.links.get_mut(index)) {
        Some(link) => Ok(link),
        None => bail!("link {number}: choose 1 to {count}"),
    }
}

pub fn run(flags: Flags) -> Result<Status> {
    let chain = flags.chain()?;
    let cancel = interrupt_flag()?;
    let routers = Routers::start(chain)?;
    if !flags.quiet {
        print_text(|stdout| {
            let (chain, last) = (routers.chain(), routers.server());
            let count = format_plural(chain.routers.len() as u64, "router");
            writeln!(
                stdout,
                "{count} between client 10.77.1.1, fd77:1::1 and server 10.77.{last}.2, fd77:{last}::2"
            )?;
            for (index, limits) in chain.links.iter().enumerate() {
                let number = index + 1;
                let node = match chain.routers.get(index) {
                    None => "server".to_owned(),
                    Some(Replies::Default) => format!("router {number}"),
                    Some(Replies::Silent) => format!("router {number} (silent)"),
                    Some(Replies::Every(interval)) => {
                        format!("router {number} (answers every {})", format_duration(*interval))
                    }
                };
                writeln!(stdout, "  link {number}: {}, to {node} 10.77.{number}.2", describe_link(limits))?;
            }
            let [client, server] = [0, last].map(|node| routers.enter(node).join(" "));
            writeln!(stdout, "on the server: {server} linkgauge serve tcp://0.0.0.0 udp://0.0.0.0")?;
            writeln!(stdout, "on the client: {client} linkgauge latency tcp://10.77.{last}.2")
        })?;
    }
    wait_until_interrupted(&cancel, flags.time, || Ok(()))?;
    Ok(Status::Complete)
}
