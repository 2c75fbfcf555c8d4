//! `linkgauge serve`.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use linkgauge::clock::Clock;
use linkgauge::endpoint::Endpoint;
use linkgauge::host;
use linkgauge::link::{self, Dialer, Framing};
use linkgauge::protocol::{self, ServerConfig, ServerLimits, ServerSetting};
use linkgauge::serve::{Refusal, Server, raise_open_file_limit};
use linkgauge::units::{BitRate, Bytes, Span, format_plural};

use super::Status;
use super::measure::{read_token, wait_until_interrupted};
use super::output::{print_message, print_text};
use super::signals::interrupt_flag;

/// What is refused is reported at once, and then at most this often.
const REFUSAL_REPORT_INTERVAL: Duration = Duration::from_secs(60);

/// Be the far end: answer any number of clients until Ctrl-C
///
/// Without a URL it listens on TCP and UDP of loop-back only, on the port of what it speaks (ours: 7100); give
/// tcp://0.0.0.0 to be reached from elsewhere. Whoever does not speak our session gets back what he sends, unless a token is set.
#[derive(Args)]
pub struct Flags {
    /// Where to listen [default: tcp://127.0.0.1 udp://127.0.0.1]
    #[arg(value_name = "URL")]
    urls: Vec<Endpoint>,
    /// Port of every URL that names none [default: that of the protocol]
    #[arg(long, short, value_name = "PORT")]
    port: Option<u16>,
    /// What to speak
    #[arg(long, value_name = "PEER", value_parser = protocol_values(), default_value = "linkgauge")]
    peer: String,
    /// File with a token that clients must know (or the variable LINKGAUGE_TOKEN); for linkgauge and stamp
    #[arg(long, value_name = "FILE")]
    token_file: Option<std::path::PathBuf>,
    /// Protocols stamp and twamp-light: number answers as their requests are, and count for nobody
    #[arg(long)]
    stateless: bool,
    /// Sessions at once
    #[arg(long, value_name = "N", default_value_t = ServerLimits::default().sessions)]
    max_sessions: u32,
    /// Longest measurement of a client; where the protocol has none, longest connection
    #[arg(long, value_name = "TIME", default_value = "24h")]
    max_time: Span,
    /// Highest rate of payload for one client address, on all its connections and in both directions together
    #[arg(long, value_name = "RATE")]
    max_rate: Option<BitRate>,
    /// Largest message [default: 1Gi]
    #[arg(long, value_name = "SIZE")]
    max_size: Option<Bytes>,
    /// Connections of one session [default: 2048]
    #[arg(long, value_name = "N")]
    max_flows: Option<u32>,
    /// Close a connection on which nothing comes, or nothing is taken, for so long
    #[arg(long, value_name = "TIME", default_value = "60s")]
    idle: Span,
    /// Stop by itself after this time
    #[arg(long, value_name = "TIME")]
    time: Option<Span>,
    /// Do not print where it listens
    #[arg(long, short)]
    quiet: bool,
}

fn protocol_values() -> clap::builder::PossibleValuesParser {
    // The others are no slips of the finger: they get an answer of their own.
    let value = |peer: &protocol::Protocol| {
        clap::builder::PossibleValue::new(peer.name).help(peer.summary).hide(peer.serve.is_none())
    };
    protocol::PROTOCOLS.iter().map(value).collect::<Vec<_>>().into()
}

pub fn run(flags: Flags) -> Result<Status> {
    let cancel = interrupt_flag()?;
    let peer = protocol::find_protocol(&flags.peer).context("clap knows only peers of the list")?;
    let Some(serve) = peer.serve else {
        bail!("peer {} cannot be served{}", peer.name, stand_in_hint(peer.name));
    };
    let defaults = ServerLimits::default();
    let facts = Arc::new(ServerConfig {
        limits: ServerLimits {
            sessions: flags.max_sessions,
            duration_s: flags.max_time.0.as_secs().max(1),
            bit_rate: flags.max_rate.map(|rate| rate.0),
            message_bytes: flags.max_size.map_or(defaults.message_bytes, |size| size.0.min(1 << 30) as u32),
            flows: flags.max_flows.unwrap_or(defaults.flows),
            idle_s: flags.idle.0.as_secs().max(1),
        },
        token: read_token(flags.token_file.as_deref())?,
        is_stateless: flags.stateless,
        environment: host::facts(),
        ..ServerConfig::default()
    });
    let dialer = Dialer::new(Clock::System);
    let urls = match flags.urls.as_slice() {
        [] => default_urls(peer, flags.port)?,
        urls => urls.to_vec(),
    };
    let with_port = |url| with_default_port(url, peer, flags.port);
    let urls = urls.into_iter().map(with_port).collect::<Result<Vec<_>>>()?;
    let service = serve(&facts);
    for (setting, flag) in given_settings(&flags, &facts) {
        let on_messages = setting == ServerSetting::MessageBytes && all_keep_message_boundaries(&urls);
        if !service.supported_settings().contains(&setting) && !on_messages {
            bail!(
                "{flag}: the protocol {} cannot honour it: leave it out, or serve another protocol",
                peer.name
            );
        }
    }
    raise_open_file_limit();
    let server = Server::start(&urls, &service, &facts.limits, &dialer)?;
    if !flags.quiet {
        print_text(|stdout| {
            server
                .endpoints()
                .iter()
                .try_for_each(|endpoint| writeln!(stdout, "serving {} on {endpoint}", peer.name))
        })?;
        if flags.urls.is_empty() {
            let open: Vec<String> =
                urls.iter().map(|url| url.as_str().replace("127.0.0.1", "0.0.0.0")).collect();
            let open = open.join(" ");
            print_message(format_args!(
                "loop-back only: nobody else can reach this; give {open} to change that"
            ));
        }
    }
    let mut reported = None;
    wait_until_interrupted(&cancel, flags.time, || {
        if !flags.quiet && reported.is_none_or(|at: Instant| at.elapsed() >= REFUSAL_REPORT_INTERVAL) {
            reported = print_refusals(&server).then(Instant::now).or(reported);
        }
        Ok(())
    })?;
    if !flags.quiet {
        print_refusals(&server);
        let counters = server.counters();
        let (accepted, refused) = (counters.accepted.load(Relaxed), counters.refused.load(Relaxed));
        print_message(format_args!("served {}, refused {refused}", format_plural(accepted, "connection")));
    }
    Ok(Status::Complete)
}

/// Prints what was refused or dropped since the last time; whether there was anything.
fn print_refusals(server: &Server) -> bool {
    let refusals = server.refusals().take();
    for Refusal { reason, count, last_from } in &refusals {
        print_message(format_args!(
            "refused {}, last from {last_from}: {reason}",
            format_plural(*count, "time")
        ));
    }
    !refusals.is_empty()
}

/// The settings that were given and that not every protocol can honour, each with what it was given by.
fn given_settings(flags: &Flags, facts: &ServerConfig) -> Vec<(ServerSetting, &'static str)> {
    let token = match flags.token_file {
        Some(_) => "--token-file",
        None => "a token (the variable LINKGAUGE_TOKEN)",
    };
    let all = [
        (facts.token.is_some(), ServerSetting::Token, token),
        (flags.stateless, ServerSetting::Stateless, "--stateless"),
        (flags.max_size.is_some(), ServerSetting::MessageBytes, "--max-size"),
        (flags.max_flows.is_some(), ServerSetting::Flows, "--max-flows"),
    ];
    all.into_iter().filter(|(is_given, ..)| *is_given).map(|(_, setting, flag)| (setting, flag)).collect()
}

/// Whether every link keeps messages apart, so that the server can measure them.
fn all_keep_message_boundaries(urls: &[Endpoint]) -> bool {
    urls.iter().all(|url| link::endpoint_caps(url).is_ok_and(|caps| caps.framing == Framing::Message))
}

/// What stands in for a far end that is a device.
fn stand_in_hint(peer: &str) -> &'static str {
    match peer {
        "pakbus" => ": be a data logger with 'linkgauge lab logger'",
        _ => ": the far end is a device",
    }
}

/// Loop-back, on the transports and ports of the peer, or on one port of them all.
fn default_urls(peer: &protocol::Protocol, port: Option<u16>) -> Result<Vec<Endpoint>> {
    let urls: Vec<Endpoint> = if peer.default_ports.is_empty() {
        let urls = ["tcp://127.0.0.1:7100", "udp://127.0.0.1:7100"].map(str::parse);
        urls.into_iter().collect::<Result<_, _>>()?
    } else {
        let url = |(scheme, port): &(_, _)| format!("{scheme}://127.0.0.1:{port}").parse();
        peer.default_ports.iter().map(url).collect::<Result<_, _>>()?
    };
    match port {
        Some(port) => Ok(urls.iter().map(|url| url.with_port(port)).collect::<Result<_, _>>()?),
        None => Ok(urls),
    }
}

/// The port given, else the peer's own, where the URL names none.
fn with_default_port(url: Endpoint, peer: &protocol::Protocol, port: Option<u16>) -> Result<Endpoint> {
    let own = || peer.default_ports.iter().find(|(scheme, _)| *scheme == url.scheme()).map(|(_, port)| *port);
    match (port.or_else(own), url.host_port()) {
        (Some(port), Ok((_, None))) => Ok(url.with_port(port)?),
        _ => Ok(url),
    }
}
