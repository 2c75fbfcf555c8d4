//! The limits of an agent, in a file on its own host. Nothing that arrives from outside raises them.

use std::net::{IpAddr, ToSocketAddrs};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use super::signed::PublicKey;
use linkgauge_model::plan::toml_text;
use linkgauge_model::units::{BitRate, Bytes, Span};
use linkgauge_ops::mesh::{AgentLimits, InvalidAddressRange};

/// Longest measurement, where the file sets none.
const DEFAULT_MAX_TIME: Duration = Duration::from_secs(60);

/// Why a file of limits cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// Is not valid TOML, or has unknown keys.
    #[error("{0}")]
    Toml(String),
    /// A value makes no sense.
    #[error("{key}: {why}")]
    Value {
        /// The key.
        key: &'static str,
        /// What is wrong, and what to try.
        why: String,
    },
}

/// A host has no address that this agent measures.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{host}: {why}")]
pub struct AddressRefused {
    host: String,
    why: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyToml {
    operator: String,
    fleet_key: PathBuf,
    #[serde(default)]
    allow: Vec<String>,
    listen: Option<IpAddr>,
    ports: Option<[u16; 2]>,
    max_time: Option<Span>,
    max_rate: Option<BitRate>,
    max_bytes: Option<Bytes>,
}

/// What an agent does for a fleet.
#[derive(Debug)]
pub struct AgentPolicy {
    /// Signs the list and the orders.
    pub operator: PublicKey,
    /// File with the secret that the agents of the fleet share.
    pub fleet_key_file: PathBuf,
    /// Limits of each measurement.
    pub limits: AgentLimits,
    /// Ports of its servers; `None`: any.
    pub ports: Option<RangeInclusive<u16>>,
}

impl AgentPolicy {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// The file is invalid.
    pub fn from_toml(text: &str) -> Result<AgentPolicy, PolicyError> {
        let file: PolicyToml =
            toml::from_str(text).map_err(|error| PolicyError::Toml(toml_text::describe(&error, text)))?;
        let operator = PublicKey::read(&file.operator);
        let operator =
            operator.map_err(|error| PolicyError::Value { key: "operator", why: error.to_string() })?;
        let ports = match file.ports {
            Some([first, last]) if first == 0 || first > last => {
                let why = "a range is two ports, the lower one first, like [7100, 7199]".to_owned();
                return Err(PolicyError::Value { key: "ports", why });
            }
            ports => ports.map(|[first, last]| first..=last),
        };
        let allowed =
            file.allow.iter().map(|range| range.parse()).collect::<Result<_, InvalidAddressRange>>();
        let limits = AgentLimits {
            time: file.max_time.map_or(DEFAULT_MAX_TIME, |time| time.0),
            bits_per_second: file.max_rate.map(|rate| rate.0),
            bytes: file.max_bytes.map(|bytes| bytes.0),
            allowed: allowed.map_err(|error| PolicyError::Value { key: "allow", why: error.to_string() })?,
            listen: file.listen.unwrap_or(IpAddr::from([0, 0, 0, 0])),
            port: None,
        };
        Ok(AgentPolicy { operator, fleet_key_file: file.fleet_key, limits, ports })
    }

    /// The address of a host that may be measured. Private and loopback addresses must be listed.
    ///
    /// # Errors
    ///
    /// It has no address that this agent measures.
    pub(crate) fn address_of(&self, host: &str) -> Result<IpAddr, AddressRefused> {
        let refused = |why: String| AddressRefused { host: host.to_owned(), why };
        let addresses = (host, 0).to_socket_addrs().map_err(|error| refused(error.to_string()))?;
        let is_allowed = |address: &IpAddr| match self.limits.allowed.as_slice() {
            [] => is_public(*address),
            ranges => ranges.iter().any(|range| range.contains(*address)),
        };
        let forbidden = match self.limits.allowed.is_empty() {
            true => "it is a private address. List its range in 'allow' of the limits of this agent",
            false => "this agent does not measure it ('allow' in its limits)",
        };
        let found = addresses.map(|address| address.ip()).find(is_allowed);
        found.ok_or_else(|| refused(forbidden.to_owned()))
    }
}

/// Whether an address belongs to no private network, link or host.
fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            let is_shared = address.octets()[0] == 100 && address.octets()[1] & 0xc0 == 64;
            let is_special = address.is_unspecified() || address.is_broadcast() || address.is_multicast();
            !(address.is_private()
                || address.is_loopback()
                || address.is_link_local()
                || is_shared
                || is_special)
        }
        IpAddr::V6(address) => {
            let is_local = address.is_unique_local() || address.is_unicast_link_local();
            !(address.is_loopback() || is_local || address.is_unspecified() || address.is_multicast())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signed::SecretKey;

    fn policy(more: &str) -> Result<AgentPolicy, PolicyError> {
        let operator = SecretKey::random().public_key();
        AgentPolicy::from_toml(&format!("operator = \"{operator}\"\nfleet_key = \"/k\"\n{more}"))
    }

    #[test]
    fn private_addresses_must_be_listed() {
        let public = policy("").unwrap();
        for (address, is_measured) in [
            ("198.51.100.7", true),
            ("2001:db8::1", true),
            ("10.0.0.1", false),
            ("127.0.0.1", false),
            ("169.254.169.254", false),
            ("100.64.0.1", false),
            ("::1", false),
            ("fd00::1", false),
            ("::ffff:10.0.0.1", false),
            ("0.0.0.0", false),
        ] {
            assert_eq!(public.address_of(address).is_ok(), is_measured, "{address}");
        }
        let listed = policy("allow = [\"10.0.0.0/8\"]").unwrap();
        assert!(listed.address_of("10.1.2.3").is_ok());
        assert!(listed.address_of("198.51.100.7").is_err(), "only what is listed");
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for wrong in
            ["max_tiem = \"1s\"", "ports = [9, 8]", "ports = [0, 8]", "allow = [\"x\"]", "command = \"id\""]
        {
            assert!(policy(wrong).is_err(), "{wrong}");
        }
        assert!(AgentPolicy::from_toml("operator = \"U\"\nfleet_key = \"k\"").is_err());
        let policy = policy("max_time = \"5s\"\nports = [7100, 7101]").unwrap();
        assert_eq!((policy.limits.time.as_secs(), policy.ports), (5, Some(7100..=7101)));
    }
}
