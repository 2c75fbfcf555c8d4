//! Flags for IP. They become options of every endpoint of a command.

use anyhow::Result;
use clap::Args;
use linkgauge::endpoint::Endpoint;
use linkgauge::link::LinkError;

use super::help::TARGET;

/// The options of an endpoint itself have priority.
#[derive(Args, Clone, Default)]
pub struct IpFlags {
    /// Port of every endpoint that names none
    #[arg(long, short, help_heading = TARGET, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// Use UDP: hosts and tcp:// become udp://
    #[arg(long, short, help_heading = TARGET)]
    udp: bool,
    /// Use IPv4 only
    #[arg(long, short = '4', help_heading = TARGET, conflicts_with = "ipv6", hide_short_help = true)]
    ipv4: bool,
    /// Use IPv6 only
    #[arg(long, short = '6', help_heading = TARGET, hide_short_help = true)]
    ipv6: bool,
    /// Local address to send from, optionally with a port
    #[arg(long, help_heading = TARGET, value_name = "ADDRESS", hide_short_help = true)]
    bind: Option<String>,
    /// Network interface to send and receive by
    #[arg(long, help_heading = TARGET, value_name = "INTERFACE", hide_short_help = true)]
    device: Option<String>,
    /// Class of service of sent packets, like EF, CS1, AF41, or 0 to 63
    #[arg(long, help_heading = TARGET, value_name = "CLASS", hide_short_help = true)]
    dscp: Option<String>,
    /// ECN bits of sent datagrams: not-ect, ect1, ect0, ce, or 0 to 3
    #[arg(long, help_heading = TARGET, value_name = "BITS", hide_short_help = true)]
    ecn: Option<String>,
}

impl IpFlags {
    /// The endpoints with these options.
    pub fn apply_all(&self, urls: &[Endpoint]) -> Result<Vec<Endpoint>> {
        urls.iter().map(|url| self.apply(url.clone())).collect()
    }

    pub fn apply(&self, mut url: Endpoint) -> Result<Endpoint> {
        if self.udp {
            url = linkgauge::transport::companion_datagrams(&url)
                .map_err(|fault| LinkError::new(&url, fault))?;
        }
        if let Some(port) = self.port
            && url.host_port()?.1.is_none()
        {
            url = url.with_port(port)?;
        }
        let family = match (self.ipv4, self.ipv6) {
            (true, _) => Some("4"),
            (_, true) => Some("6"),
            _ => None,
        };
        let options = [
            ("family", family),
            ("bind", self.bind.as_deref()),
            ("device", self.device.as_deref()),
            ("dscp", self.dscp.as_deref()),
            ("ecn", self.ecn.as_deref()),
        ];
        for (name, value) in options {
            if let Some(value) = value
                && url.option(name).is_none()
            {
                url = url.with_option(name, value)?;
            }
        }
        Ok(url)
    }
}
