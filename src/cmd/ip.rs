//! Flags for IP: options that every endpoint of a command gets.

use anyhow::Result;
use clap::Args;
use linkgauge::endpoint::Endpoint;
use linkgauge::link::{self, LinkError};

/// What an endpoint says itself comes first.
#[derive(Args, Clone, Default)]
#[command(next_help_heading = "IP (an endpoint's own options come first)")]
pub struct IpFlags {
    /// Port of every endpoint that names none
    #[arg(long, short, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// Use UDP: hosts and tcp:// become udp://
    #[arg(long, short)]
    udp: bool,
    /// Use IPv4 only: family=4
    #[arg(long, short = '4', conflicts_with = "ipv6")]
    ipv4: bool,
    /// Use IPv6 only: family=6
    #[arg(long, short = '6')]
    ipv6: bool,
    /// Address of this host to send from, also with a port: bind=ADDRESS
    #[arg(long, value_name = "ADDRESS")]
    bind: Option<String>,
    /// Interface to send and receive by: device=INTERFACE
    #[arg(long, value_name = "INTERFACE")]
    device: Option<String>,
    /// Class of service of what is sent, like EF, CS1, AF41, or 0 to 63: dscp=CLASS
    #[arg(long, value_name = "CLASS")]
    dscp: Option<String>,
    /// ECN bits of the datagrams sent: not-ect, ect1, ect0, ce, or 0 to 3: ecn=BITS
    #[arg(long, value_name = "BITS")]
    ecn: Option<String>,
}

impl IpFlags {
    /// The endpoints with these options.
    pub fn apply_all(&self, urls: &[Endpoint]) -> Result<Vec<Endpoint>> {
        urls.iter().map(|url| self.apply(url.clone())).collect()
    }

    pub fn apply(&self, mut url: Endpoint) -> Result<Endpoint> {
        if self.udp {
            url = link::companion_datagrams(&url).map_err(|fault| LinkError::new(&url, fault))?;
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
