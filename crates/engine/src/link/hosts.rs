//! The addresses of hosts by name: their order, and which of them has answered.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use linkgauge_model::clock::Time;

/// Names whose addresses are known, and the address of each that answered last. The links of a dialer share it, so a dead address
/// costs time only once.
#[derive(Debug, Clone, Default)]
pub struct Hosts(Arc<Mutex<BTreeMap<String, KnownAddresses>>>);

/// Known addresses of a name.
#[derive(Debug, Default)]
struct KnownAddresses {
    /// Addresses in place of those of the resolver; empty: the addresses of the resolver.
    addresses: Vec<IpAddr>,
    answered: Option<(IpAddr, Time)>,
}

/// Time after which an answer no longer counts: the names and routes of a network change.
const ANSWER_LIFETIME: Duration = Duration::from_secs(60);

impl Hosts {
    /// Gives a name these addresses, instead of those of the resolver.
    pub fn insert(&self, name: &str, addresses: Vec<IpAddr>) {
        self.with(name, |host| host.addresses = addresses);
    }

    /// The addresses of a name, in the order in which they are tried: families take turns, beginning with the resolver's choice
    /// (RFC 8305, 4), and an address that has answered comes first.
    ///
    /// # Errors
    ///
    /// Fails as the resolver does: the name is unknown, or no server of names replies.
    pub fn resolve(&self, name: &str, port: u16, now: Time) -> io::Result<Vec<SocketAddr>> {
        let known = self.with(name, |host| host.addresses.clone());
        let found: Vec<SocketAddr> = match known.is_empty() {
            true => (name, port).to_socket_addrs()?.collect(),
            false => known.into_iter().map(|address| SocketAddr::new(address, port)).collect(),
        };
        let mut addresses = interleaved(found);
        if let Some(answered) = self.answered(name, now) {
            addresses.sort_by_key(|address| address.ip() != answered);
        }
        Ok(addresses)
    }

    /// The address of a name that has answered recently.
    pub(crate) fn answered(&self, name: &str, now: Time) -> Option<IpAddr> {
        let answered = self.with(name, |host| host.answered)?;
        (now.since(answered.1) < ANSWER_LIFETIME).then_some(answered.0)
    }

    /// Stores that an address of a name answers.
    pub(crate) fn note_answer(&self, name: &str, address: IpAddr, now: Time) {
        self.with(name, |host| host.answered = Some((address, now)));
    }

    fn with<T>(&self, name: &str, act: impl FnOnce(&mut KnownAddresses) -> T) -> T {
        let mut hosts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        act(hosts.entry(name.to_owned()).or_default())
    }
}

/// The addresses without repetitions; families take turns, beginning with the first one.
fn interleaved(found: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let starts_with_v6 = found.first().is_some_and(SocketAddr::is_ipv6);
    let (first, second): (Vec<_>, Vec<_>) =
        found.into_iter().partition(|address| address.is_ipv6() == starts_with_v6);
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    let mut addresses = Vec::new();
    loop {
        let pair = [first.next(), second.next()];
        if pair == [None, None] {
            return addresses;
        }
        for address in pair.into_iter().flatten() {
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_take_turns_and_an_answer_comes_first() {
        let now = linkgauge_model::clock::Clock::System.now();
        let hosts = Hosts::default();
        let [six, sixth, four] =
            ["2001:db8::1", "2001:db8::2", "192.0.2.1"].map(|text| text.parse().unwrap());
        hosts.insert("a", vec![six, sixth, six, four]);
        let order = |now| -> Vec<IpAddr> {
            hosts.resolve("a", 7, now).unwrap().into_iter().map(|address| address.ip()).collect()
        };
        assert_eq!(order(now), [six, four, sixth]);
        hosts.note_answer("a", four, now);
        assert_eq!(order(now), [four, six, sixth]);
        assert_eq!(order(now + ANSWER_LIFETIME), [six, four, sixth], "an old answer");
    }
}
