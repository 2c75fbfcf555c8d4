//! Where a connection or a datagram comes from, as a server counts it.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::link::sender_of;

/// A sender without its port. All addresses of an IPv6 network of 64 bits are one source: a client that has one usually has all.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Source {
    Address(IpAddr),
    /// A sender of another family, or of this process.
    Other(Box<str>),
}

impl Source {
    pub fn of(from: &str) -> Source {
        match from.parse::<SocketAddr>().map(|from| from.ip().to_canonical()) {
            Ok(IpAddr::V6(address)) => {
                let network = u128::from(address) & (u128::MAX << 64);
                Source::Address(Ipv6Addr::from(network).into())
            }
            Ok(address) => Source::Address(address),
            Err(_) => Source::Other(sender_of(from).into()),
        }
    }
}

/// How many things each source has.
#[derive(Default)]
pub struct Shares(Mutex<HashMap<Source, usize>>);

impl Shares {
    fn counts(&self) -> MutexGuard<'_, HashMap<Source, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more for that source, unless it has `most`.
    pub fn take(self: &Arc<Shares>, source: &Source, most: usize) -> Option<Share> {
        let mut counts = self.counts();
        let count = counts.entry(source.clone()).or_default();
        (*count < most).then(|| {
            *count += 1;
            Share { shares: self.clone(), source: source.clone() }
        })
    }
}

/// One thing of a source, given back when it is dropped.
pub struct Share {
    shares: Arc<Shares>,
    source: Source,
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut counts = self.shares.counts();
        if let Some(count) = counts.get_mut(&self.source) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.source);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_an_address_or_a_network() {
        let of = Source::of;
        assert_eq!(of("192.0.2.7:1"), of("[::ffff:192.0.2.7]:2"));
        assert_ne!(of("192.0.2.7:1"), of("192.0.2.8:1"));
        assert_eq!(of("[2001:db8::1]:5"), of("[2001:db8::ffff:1]:6"));
        assert_ne!(of("[2001:db8::1]:5"), of("[2001:db8:0:1::1]:5"));
        // Of other families too the socket does not matter.
        for (one, same, other) in [
            ("3:1024", "3:1025", "4:1024"),
            ("node 1001001, socket 7", "node 1001001, socket 8", "node 1001002, socket 7"),
            ("AA:BB:CC:DD:EE:01/3", "AA:BB:CC:DD:EE:01/4", "AA:BB:CC:DD:EE:02/3"),
            ("@linkgauge.1", "/run/x", "mem"),
        ] {
            assert_eq!(of(one), of(same));
            assert_ne!(of(one), of(other));
        }
    }

    #[test]
    fn each_source_has_its_share() {
        let shares: Arc<Shares> = Arc::default();
        let (one, other) = (Source::of("192.0.2.7:1"), Source::of("192.0.2.8:1"));
        let held: Vec<_> = (0..3).filter_map(|_| shares.take(&one, 2)).collect();
        assert_eq!((held.len(), shares.take(&other, 2).is_some()), (2, true));
        drop(held);
        assert!(shares.take(&one, 2).is_some());
        assert!(shares.counts().is_empty(), "nothing is remembered of those that went");
    }
}
