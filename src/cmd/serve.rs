//! `linkgauge serve`.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use linkgauge::Registry;
use linkgauge::clock::Clock;
use linkgauge::endpoint::Endpoint;
use linkgauge::host;
use linkgauge::host::{open_file_limit, raise_open_file_limit};
use linkgauge::link::{DEFAULT_PORT, Framing};
use linkgauge::protocol::{self, ServerConfig, ServerLimits, ServerSetting};
use linkgauge::serve::{Refusal, Server};
use linkgauge::units::{BitRate, Bytes, Span, format_plural};

#[cfg(feature = "http")]
mod https;

use super::help::{DURATION, LIMITS, OUTPUT, SERVER};
use super::measure::{protocol_list, read_token, wait_until_interrupted};
use super::output::{print_message, print_text};
use super::signals::interrupt_flag;
use super::status::Status;

/// The first refusal is reported at once, later ones at most this often.
const REFUSAL_REPORT_INTERVAL: Duration = Duration::from_secs(60);

/// Run a server, until Ctrl-C
///
/// It accepts any number of clients. Without a URL it listens on TCP and UDP of this machine only, on the port of the
/// protocol (linkgauge: 7100). Use tcp://0.0.0.0 for other machines. tcp://[::] alone serves IPv6 and IPv4, as the system does by
/// default; beside tcp://0.0.0.0 it serves IPv6. Clients that do not use the linkgauge protocol get an
/// echo, unless a token is set.
/// https://0.0.0.0:4043 serves measurements of responsiveness over HTTP/2, also those of other programs.
#[derive(Args)]
pub struct Flags {
    /// Where to listen [default: tcp://127.0.0.1 udp://127.0.0.1]
    #[arg(value_name = "URL")]
    urls: Vec<Endpoint>,
    /// Port of every URL that names none [default: that of the protocol]
    #[arg(long, short, help_heading = SERVER, value_name = "PORT")]
    port: Option<u16>,
    /// Protocol to serve
    #[arg(
        long,
        help_heading = SERVER,
        value_name = "PROTOCOL",
        value_parser = protocol_values(),
        long_help = protocol_help(),
        default_value = "linkgauge",
        hide_possible_values = true
    )]
    protocol: String,
    /// File with a token that clients must know; for linkgauge and stamp [default: the variable LINKGAUGE_TOKEN]
    #[arg(long, help_heading = SERVER, value_name = "FILE")]
    token_file: Option<std::path::PathBuf>,
    /// stamp and twamp-light: take the sequence numbers from the requests, and keep no counts
    #[arg(long, help_heading = SERVER, hide_short_help = true)]
    stateless: bool,
    /// iperf2: also send where a client only claims to be (UDP --reverse), and connect to it (-d, -r)
    ///
    /// Only on a network where addresses cannot be forged: with a forged one, a single datagram sends a whole test to another host.
    #[arg(long, help_heading = SERVER, hide_short_help = true)]
    trust_senders: bool,
    /// Threads for the connections of large measurements [default: one for each CPU]
    ///
    /// A measurement with a few connections has a thread for each of them, whatever this number is.
    #[arg(long, help_heading = SERVER, value_name = "N", hide_short_help = true, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
    /// Maximum payload rate per client address: all connections, both directions together [default: no limit]
    #[arg(long, help_heading = LIMITS, value_name = "RATE")]
    max_rate: Option<BitRate>,
    /// Maximum number of sessions at the same time
    #[arg(long, help_heading = LIMITS, value_name = "N", default_value_t = ServerLimits::default().sessions, value_parser = clap::value_parser!(u32).range(1..))]
    max_sessions: u32,
    /// Maximum number of connections of one session [default: 16384]
    #[arg(long, help_heading = LIMITS, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_flows: Option<u32>,
    /// Maximum message size [default: 1Gi]
    #[arg(long, help_heading = LIMITS, value_name = "SIZE")]
    max_size: Option<Bytes>,
    /// Maximum memory for all clients together; one session gets at most a quarter of it [default: 1Gi]
    #[arg(long, help_heading = LIMITS, value_name = "SIZE")]
    max_memory: Option<Bytes>,
    /// Maximum duration of a measurement, or of a connection if the protocol has no measurements
    #[arg(long, help_heading = LIMITS, value_name = "TIME", default_value = "24h")]
    max_time: Span,
    /// Close a connection that makes no progress for this time
    #[arg(long, help_heading = LIMITS, value_name = "TIME", default_value = "60s")]
    idle: Span,
    /// Stop after this time [default: at Ctrl-C]
    #[arg(long, help_heading = DURATION, value_name = "TIME")]
    time: Option<Span>,
    /// Print errors only
    #[arg(long, short, help_heading = OUTPUT)]
    quiet: bool,
}

fn protocol_values() -> clap::builder::PossibleValuesParser {
    // The others are accepted here, because their error message is more precise.
    let value = |peer: &protocol::Protocol| {
        clap::builder::PossibleValue::new(peer.name).help(peer.summary).hide(peer.serve.is_none())
    };
    Registry::standard().protocols.iter().map(value).collect::<Vec<_>>().into()
}

fn protocol_help() -> String {
    let served = Registry::standard().protocols.iter().filter(|protocol| protocol.serve.is_some());
    protocol_list("Protocol to serve", served.map(|protocol| (protocol.name, protocol.summary)))
}

/// Fewer bytes hold no message of a client.
const MIN_MEMORY_BYTES: u64 = 64 << 10;

/// Refuses limits with which no client could be served.
fn check_limits(flags: &Flags) -> Result<()> {
    if flags.idle.0.is_zero() || flags.max_time.0.is_zero() {
        bail!("--idle and --max-time: a time of 0 closes every connection at once: use 1s or more");
    }
    if let Some(Bytes(memory)) = flags.max_memory.filter(|memory| memory.0 < MIN_MEMORY_BYTES) {
        bail!("--max-memory {memory}: no client can be served with it: use 64Ki or more");
    }
    Ok(())
}

pub fn run(flags: Flags) -> Result<Status> {
    check_limits(&flags)?;
    if flags.urls.iter().any(|url| url.scheme() == "https") {
        #[cfg(feature = "http")]
        return https::run(&flags);
        #[cfg(not(feature = "http"))]
        bail!("{}", super::status::WITHOUT_HTTP);
    }
    serve(&flags)
}

fn serve(flags: &Flags) -> Result<Status> {
    let cancel = interrupt_flag()?;
    let peer =
        Registry::standard().protocol(&flags.protocol).context("clap accepts listed protocols only")?;
    let Some(serve) = peer.serve else {
        bail!("the protocol {} cannot be served: {}", peer.name, stand_in_hint(peer.name));
    };
    let config = Arc::new(server_config(flags)?);
    let dialer = Registry::standard().dialer(Clock::System);
    let urls = match flags.urls.as_slice() {
        [] => default_urls(peer, flags.port)?,
        urls => urls.to_vec(),
    };
    let with_port = |url| with_default_port(url, peer, flags.port);
    let urls = urls.into_iter().map(with_port).collect::<Result<Vec<_>>>()?;
    let service = serve(&config);
    for (setting, flag) in given_settings(flags, &config) {
        let on_messages = setting == ServerSetting::MessageBytes && all_keep_message_boundaries(&urls);
        if !service.supported_settings().contains(&setting) && !on_messages {
            bail!(
                "{flag}: the protocol {} does not support it. Leave it out, or serve another protocol",
                peer.name
            );
        }
    }
    raise_open_file_limit();
    let server = Server::start(&urls, &service, &config.limits, &dialer)?;
    if !flags.quiet {
        print_endpoints(&server, peer.name)?;
        service.missing_listener(server.endpoints()).into_iter().for_each(print_message);
        print_hints(&server, peer, if flags.urls.is_empty() { &urls } else { &[] });
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

fn server_config(flags: &Flags) -> Result<ServerConfig> {
    let defaults = ServerLimits::default();
    Ok(ServerConfig {
        limits: ServerLimits {
            sessions: flags.max_sessions,
            duration_s: flags.max_time.0.as_secs().max(1),
            bit_rate: flags.max_rate.map(|rate| rate.0),
            message_bytes: flags.max_size.map_or(defaults.message_bytes, |size| size.0.min(1 << 30) as u32),
            flows: flags.max_flows.unwrap_or(defaults.flows),
            idle_s: flags.idle.0.as_secs().max(1),
            memory_bytes: flags.max_memory.map_or(defaults.memory_bytes, |size| size.0),
            threads: flags.threads.and_then(NonZeroU32::new),
        },
        token: read_token(flags.token_file.as_deref())?,
        is_stateless: flags.stateless,
        trusts_senders: flags.trust_senders,
        environment: host::facts(),
        ..ServerConfig::default()
    })
}

fn print_endpoints(server: &Server, protocol: &str) -> Result<()> {
    print_text(|stdout| {
        server
            .endpoints()
            .iter()
            .try_for_each(|endpoint| writeln!(stdout, "serving {protocol} on {endpoint}"))
    })
}

/// Prints how other machines can connect, if the URLs are those of the default, and a limit of the system.
fn print_hints(server: &Server, peer: &protocol::Protocol, default_urls: &[Endpoint]) {
    if !default_urls.is_empty() {
        let open: Vec<String> =
            default_urls.iter().map(|url| url.as_str().replace("127.0.0.1", "0.0.0.0")).collect();
        let open = open.join(" ");
        let peer = match peer.default_ports {
            [] => String::new(),
            _ => format!("--protocol {} ", peer.name),
        };
        print_message(format_args!(
            "Only this machine can connect. For other machines: linkgauge serve {peer}{open}"
        ));
    }
    if let Some(limit) = open_file_limit().filter(|limit| *limit < server.max_files()) {
        print_message(format_args!(
            "At most about {} connections at once: the system allows this process {limit} open files. For more, raise \
             the hard limit (ulimit -Hn) first.",
            limit.saturating_sub(server.min_files())
        ));
    }
}

/// Prints the refusals since the last call. Returns true if there were any.
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

/// The requested settings that not every protocol supports, each with its flag.
fn given_settings(flags: &Flags, facts: &ServerConfig) -> Vec<(ServerSetting, &'static str)> {
    let token = match flags.token_file {
        Some(_) => "--token-file",
        None => "a token (the variable LINKGAUGE_TOKEN)",
    };
    let all = [
        (facts.token.is_some(), ServerSetting::Token, token),
        (flags.stateless, ServerSetting::Stateless, "--stateless"),
        (flags.trust_senders, ServerSetting::TrustSenders, "--trust-senders"),
        (flags.max_size.is_some(), ServerSetting::MessageBytes, "--max-size"),
        (flags.max_flows.is_some(), ServerSetting::Flows, "--max-flows"),
    ];
    all.into_iter().filter(|(is_given, ..)| *is_given).map(|(_, setting, flag)| (setting, flag)).collect()
}

/// True if every link preserves message boundaries, so that the server knows message sizes.
fn all_keep_message_boundaries(urls: &[Endpoint]) -> bool {
    urls.iter().all(|url| {
        Registry::standard().transports.caps(url).is_ok_and(|caps| caps.framing == Framing::Message)
    })
}

/// How to get a server of a protocol that only devices speak.
fn stand_in_hint(peer: &str) -> &'static str {
    match peer {
        "pakbus" => "its server is a data logger. Try 'linkgauge lab logger'",
        _ => "its server is a device",
    }
}

/// Loopback endpoints on the transports of the protocol, on its ports. `port` replaces the first of them, and the others keep
/// their distance to it.
fn default_urls(peer: &protocol::Protocol, port: Option<u16>) -> Result<Vec<Endpoint>> {
    let urls: Vec<Endpoint> = if peer.default_ports.is_empty() {
        let urls = ["tcp://127.0.0.1:7100", "udp://127.0.0.1:7100"].map(str::parse);
        urls.into_iter().collect::<Result<_, _>>()?
    } else {
        let url = |(scheme, port): &(_, _)| format!("{scheme}://127.0.0.1:{port}").parse();
        peer.default_ports.iter().map(url).collect::<Result<_, _>>()?
    };
    let Some(port) = port else { return Ok(urls) };
    let own = |url: &Endpoint| url.host_port().ok().and_then(|(_, port)| port).unwrap_or(DEFAULT_PORT);
    let first = own(&urls[0]);
    let moved = |url: &Endpoint| {
        let distance = own(url) - first;
        let number = if port == 0 { Some(0) } else { port.checked_add(distance) };
        let number = number.with_context(|| {
            format!("--port: {} also needs the port {distance} above it: choose a lower one", peer.name)
        })?;
        Ok(url.with_port(number)?)
    };
    urls.iter().map(moved).collect()
}

/// Adds the requested port, or else that of the protocol, to a URL without a port.
fn with_default_port(url: Endpoint, peer: &protocol::Protocol, port: Option<u16>) -> Result<Endpoint> {
    match (port.or_else(|| peer.default_port(url.scheme())), url.host_port()) {
        (Some(port), Ok((_, None))) => Ok(url.with_port(port)?),
        _ => Ok(url),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_keeps_the_default_urls_apart() {
        for peer in Registry::standard().protocols {
            for port in [None, Some(7323)] {
                let urls = default_urls(peer, port).unwrap();
                let unique: std::collections::BTreeSet<&str> = urls.iter().map(Endpoint::as_str).collect();
                assert_eq!(unique.len(), urls.len(), "{}: {unique:?}", peer.name);
            }
        }
        let netio = Registry::standard().protocol("netio").unwrap();
        let urls = default_urls(netio, Some(7323)).unwrap();
        let urls: Vec<&str> = urls.iter().map(Endpoint::as_str).collect();
        assert_eq!(urls, ["tcp://127.0.0.1:7323", "udp://127.0.0.1:7324", "tcp://127.0.0.1:7324"]);
        assert!(default_urls(netio, Some(u16::MAX)).unwrap_err().to_string().contains("choose a lower one"));
    }
}
