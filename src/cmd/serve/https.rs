//! `linkgauge serve https://…`: the server for measurements of responsiveness over HTTP/2.

use std::net::{SocketAddr, ToSocketAddrs};

use anyhow::{Context, Result, bail};
use linkgauge::endpoint::Endpoint;
use linkgauge::host::raise_open_file_limit;
use linkgauge::http2::{HttpServer, HttpServerOptions, Identity};

use super::Flags;
use crate::cmd::measure::wait_until_interrupted;
use crate::cmd::output::{print_message, print_text};
use crate::cmd::signals::interrupt_flag;
use crate::cmd::status::Status;

/// Port that clients of such servers try in examples.
const DEFAULT_PORT: u16 = 4043;

/// Serves until Ctrl-C or the end of `--time`.
pub fn run(flags: &Flags) -> Result<Status> {
    let cancel = interrupt_flag()?;
    let unsupported = [
        ("--token-file", flags.token_file.is_some()),
        ("--stateless", flags.stateless),
        ("--max-rate", flags.max_rate.is_some()),
        ("--max-flows", flags.max_flows.is_some()),
        ("--max-size", flags.max_size.is_some()),
    ];
    if let Some((flag, _)) = unsupported.iter().find(|(_, is_used)| *is_used) {
        bail!("{flag}: https does not support it. Leave it out");
    }
    raise_open_file_limit();
    let servers = flags.urls.iter().map(|url| start(url, flags)).collect::<Result<Vec<_>>>()?;
    for server in servers.iter().filter(|_| !flags.quiet) {
        print_text(|out| {
            writeln!(out, "listening on https://{} (responsiveness over HTTP/2)", server.address())
        })?;
    }
    if !flags.quiet && flags.urls.iter().any(|url| url.option("certificate").is_none()) {
        print_message(
            "The certificate is made for this start. Clients need ?insecure=1, or use ?certificate=FILE&key=FILE here",
        );
    }
    wait_until_interrupted(&cancel, flags.time, || Ok(()))?;
    drop(servers);
    Ok(Status::Complete)
}

fn start(url: &Endpoint, flags: &Flags) -> Result<HttpServer> {
    if url.scheme() != "https" {
        bail!("{url}: https cannot share a server with other transports. Start a second one");
    }
    let (host, port) = url.host_port()?;
    let place = (host, port.or(flags.port).unwrap_or(DEFAULT_PORT));
    let address: SocketAddr = place
        .to_socket_addrs()
        .with_context(|| url.to_string())?
        .next()
        .context("the host has no address")?;
    if let Some((name, _)) = url.options().find(|(name, _)| !["certificate", "key"].contains(name)) {
        bail!("{url}: https has no option {name} for a server: use certificate=FILE and key=FILE");
    }
    let mut options = HttpServerOptions::new(address);
    options.identity = match (url.option("certificate"), url.option("key")) {
        (Some(certificate), Some(key)) => {
            Identity::Files { certificate: certificate.into(), key: key.into() }
        }
        (None, None) => Identity::SelfSigned,
        _ => bail!("{url}: a certificate needs its key: use certificate=FILE and key=FILE"),
    };
    (options.max_time, options.idle) = (flags.max_time.0, flags.idle.0);
    options.memory_bytes = flags.max_memory.map_or(options.memory_bytes, |memory| memory.0);
    options.max_connections = options.max_connections.min(flags.max_sessions as usize);
    Ok(HttpServer::start(&options)?)
}
