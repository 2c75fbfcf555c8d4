//! Identifies the source of a connection or datagram for the limits of a server.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::link::sender_identity;

/// A sender without its port. All addresses of an IPv6 /64 network are one source, because a client usually has all of
/// them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ClientId {
    /// An address of IPv4, or the first of a /64 network.
    Address(IpAddr),
    /// A sender of another address family, or of this process.
    Other(Box<str>),
}

impl ClientId {
    /// The source of a sender that its link calls `from`.
    pub fn from_sender(from: &str) -> ClientId {
        match from.parse::<SocketAddr>().map(|from| from.ip().to_canonical()) {
            Ok(IpAddr::V6(address)) => {
                let network = u128::from(address) & (u128::MAX << 64);
                ClientId::Address(Ipv6Addr::from(network).into())
            }
            Ok(address) => ClientId::Address(address),
            Err(_) => ClientId::Other(sender_identity(from).into()),
        }
    }
}

/// The network of a source: an IPv4 /24, an IPv6 /48. Each other source is a separate network.
pub(crate) fn network_of(client: &ClientId) -> ClientId {
    match client {
        ClientId::Address(IpAddr::V4(address)) => {
            ClientId::Address(Ipv4Addr::from(u32::from(*address) & (u32::MAX << 8)).into())
        }
        ClientId::Address(IpAddr::V6(address)) => {
            ClientId::Address(Ipv6Addr::from(u128::from(*address) & (u128::MAX << 80)).into())
        }
        other => other.clone(),
    }
}

/// Counts per source.
#[derive(Default)]
pub struct ClientQuotas(Mutex<HashMap<ClientId, usize>>);

impl ClientQuotas {
    fn counts(&self) -> MutexGuard<'_, HashMap<ClientId, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds one for that source, unless it has `most`.
    pub fn try_take(self: &Arc<ClientQuotas>, source: &ClientId, most: usize) -> Option<QuotaSlot> {
        let mut counts = self.counts();
        let count = counts.entry(source.clone()).or_default();
        (*count < most).then(|| {
            *count += 1;
            QuotaSlot { quotas: self.clone(), client: source.clone() }
        })
    }
}

/// Unit of a source's count, released on drop.
pub struct QuotaSlot {
    quotas: Arc<ClientQuotas>,
    client: ClientId,
}

impl Drop for QuotaSlot {
    fn drop(&mut self) {
        let mut counts = self.quotas.counts();
        if let Some(count) = counts.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_an_address_or_a_64_bit_network() {
        let of = ClientId::from_sender;
        assert_eq!(of("192.0.2.7:1"), of("[::ffff:192.0.2.7]:2"));
        assert_ne!(of("192.0.2.7:1"), of("192.0.2.8:1"));
        assert_eq!(of("[2001:db8::1]:5"), of("[2001:db8::ffff:1]:6"));
        assert_ne!(of("[2001:db8::1]:5"), of("[2001:db8:0:1::1]:5"));
        // For other families, too, the socket does not matter.
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
    fn each_client_has_its_own_quota() {
        let shares: Arc<ClientQuotas> = Arc::default();
        let (one, other) = (ClientId::from_sender("192.0.2.7:1"), ClientId::from_sender("192.0.2.8:1"));
        let held: Vec<_> = (0..3).filter_map(|_| shares.try_take(&one, 2)).collect();
        assert_eq!((held.len(), shares.try_take(&other, 2).is_some()), (2, true));
        drop(held);
        assert!(shares.try_take(&one, 2).is_some());
        assert!(shares.counts().is_empty(), "nothing is remembered of those that went");
    }
}
