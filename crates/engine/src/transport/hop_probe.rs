//! Kinds of hop-limited probes to an endpoint: they depend on its transport.

use super::{icmp, tcp, udp};

/// Kind of the probes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeKind {
    /// Datagrams to a port where nothing is expected to listen.
    Udp,
    /// Echo requests.
    Icmp,
    /// Openings of connections.
    Tcp,
}

impl ProbeKind {
    const ALL: [ProbeKind; 3] = [ProbeKind::Udp, ProbeKind::Icmp, ProbeKind::Tcp];

    /// The scheme of its transport: its name on the command line and in documents.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ProbeKind::Udp => udp::TRANSPORT.scheme,
            ProbeKind::Icmp => icmp::TRANSPORT.scheme,
            ProbeKind::Tcp => tcp::TRANSPORT.scheme,
        }
    }

    /// The kind of that name. `None`: a transport without hops.
    #[must_use]
    pub fn of_name(name: &str) -> Option<ProbeKind> {
        ProbeKind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}
