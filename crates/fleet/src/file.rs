//! The file of a fleet: a host list of `mesh` with a section for the hub.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

use super::order::list_id;
use super::signed::PublicKey;
use linkgauge_model::plan::toml_text;
use linkgauge_ops::mesh::{HostList, HostListError, Reach};

/// Why a file cannot be used for a fleet.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FleetFileError {
    /// The host list is invalid.
    #[error(transparent)]
    Hosts(#[from] HostListError),
    /// The section of the hub is missing or invalid.
    #[error("[fleet]: {0}")]
    Section(String),
    /// A host is reached in another way.
    #[error("host '{0}': in a fleet its agent connects to the hub. Remove ssh, command, local or server")]
    Reached(String),
    /// A host has no key, or an invalid one.
    #[error("host '{name}': {why}")]
    Key {
        /// The host.
        name: String,
        /// What is wrong, and what to try.
        why: String,
    },
}

#[derive(Deserialize)]
struct FleetToml {
    fleet: Option<Section>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Section {
    hub: String,
    ca: Option<PathBuf>,
    #[serde(default)]
    keys: BTreeMap<String, String>,
}

/// A fleet.
#[derive(Debug)]
pub struct FleetFile {
    /// URL of the hub.
    pub hub: String,
    /// Certificates that are trusted (PEM).
    pub ca: Option<PathBuf>,
    /// The hosts and their tests.
    pub list: HostList,
    /// The public key of each host, in the order of the list.
    pub keys: Vec<String>,
    /// The host list as the agents get it: without the section of the hub.
    pub hosts: String,
}

impl FleetFile {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// The file is invalid, or a host has no key.
    pub fn from_toml(text: &str) -> Result<FleetFile, FleetFileError> {
        let list = HostList::from_toml(text)?;
        let section = |error: toml::de::Error| FleetFileError::Section(toml_text::describe(&error, text));
        let file: FleetToml = toml::from_str(text).map_err(section)?;
        let missing =
            || FleetFileError::Section("the section is missing. Name the hub and the keys there".to_owned());
        let Section { hub, ca, keys } = file.fleet.ok_or_else(missing)?;
        for host in &list.hosts {
            // Without a key of its own, a host is reached by ssh under its name.
            if host.reach != Reach::Ssh(host.name.clone()) {
                return Err(FleetFileError::Reached(host.name.clone()));
            }
        }
        let keys = list.hosts.iter().map(|host| key_of(&keys, &host.name)).collect::<Result<_, _>>()?;
        let mut table: toml::Table = toml::from_str(text).map_err(section)?;
        table.remove("fleet");
        let hosts = toml::to_string(&table).map_err(|error| FleetFileError::Section(error.to_string()))?;
        Ok(FleetFile { hub, ca, list, keys, hosts })
    }

    /// Identifies the hosts and their tests.
    pub fn list_id(&self) -> String {
        list_id(&self.hosts)
    }
}

fn key_of(keys: &BTreeMap<String, String>, name: &str) -> Result<String, FleetFileError> {
    let wrong = |why: String| FleetFileError::Key { name: name.to_owned(), why };
    let missing = || {
        wrong(
            "its public key is missing in [fleet.keys]. 'linkgauge fleet key FILE' on that host prints it"
                .to_owned(),
        )
    };
    let key = keys.get(name).ok_or_else(missing)?;
    match PublicKey::read(key) {
        Ok(_) => Ok(key.trim().to_owned()),
        Err(error) => Err(wrong(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signed::SecretKey;

    fn file(host: &str, keys: &str) -> Result<FleetFile, FleetFileError> {
        FleetFile::from_toml(&format!(
            "[fleet]\nhub = \"tls://hub.example\"\n[fleet.keys]\n{keys}\n[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n{host}"
        ))
    }

    #[test]
    fn agents_get_the_hosts_and_not_the_section_of_the_hub() {
        let [a, b] = [SecretKey::random().public_key(), SecretKey::random().public_key()];
        let keys = format!("a = \"{a}\"\nb = \"{b}\"");
        let fleet = file("", &keys).unwrap();
        assert_eq!((fleet.keys.clone(), fleet.hub.as_str()), (vec![a, b], "tls://hub.example"));
        assert!(!fleet.hosts.contains("hub.example") && fleet.hosts.contains("[[host]]"), "{}", fleet.hosts);
        assert_eq!(HostList::from_toml(&fleet.hosts).unwrap(), fleet.list);
        for host in ["ssh = \"x\"", "local = true", "command = [\"id\"]", "server = \"tcp://192.0.2.1\""] {
            assert!(matches!(file(host, &keys), Err(FleetFileError::Reached(_))), "{host}");
        }
        assert!(matches!(file("", ""), Err(FleetFileError::Key { .. })));
        assert!(matches!(file("", "a = \"U\""), Err(FleetFileError::Key { .. })));
    }

    #[test]
    fn the_same_file_is_a_host_list() {
        assert!(
            HostList::from_toml("[fleet]\nhub = \"x\"\n[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n")
                .is_ok()
        );
        assert!(HostList::from_toml("[fleat]\n[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n").is_err());
    }
}
