//! Lists of the transports, protocols and workloads of a program.

use std::fmt;

use super::Protocol;
use crate::link::{Dialer, Transports};
use crate::workload::Workload;
use linkgauge_model::clock::Clock;
use linkgauge_model::plan::Direction;

/// Transports, protocols and workloads of a program. Each list is in the order of help and documentation, and the first entry
/// that fits is the default.
#[derive(Clone, Copy)]
pub struct Registry {
    /// Kinds of links.
    pub transports: Transports,
    /// Protocols. `auto` is not in the list: it detects which of these the server uses.
    pub protocols: &'static [Protocol],
    /// Kinds of measurement.
    pub workloads: &'static [Workload],
}

impl Registry {
    /// Dialer for these transports that blocks, with a timeout of 1 s and without default port.
    pub fn dialer(&self, clock: Clock) -> Dialer {
        let ports = self.protocols.iter().flat_map(|protocol| protocol.default_ports);
        let ports: Vec<u16> = ports.map(|(_, port)| *port).collect();
        Dialer::new(self.transports, &ports, clock)
    }

    /// Protocol of that name.
    pub fn protocol(&self, name: &str) -> Option<&'static Protocol> {
        self.protocols.iter().find(|protocol| protocol.name == name)
    }

    /// Workload of that name.
    pub fn workload(&self, name: &str) -> Option<&'static Workload> {
        self.workloads.iter().find(|workload| workload.name == name)
    }

    /// Workloads that a protocol supports, each with its directions.
    pub fn workloads_of(
        &self,
        protocol: &Protocol,
    ) -> impl Iterator<Item = (&'static Workload, &'static [Direction])> + use<> {
        let workloads = self.workloads;
        protocol.traffic.iter().flat_map(move |&(kind, directions)| {
            let carried = workloads.iter().filter(move |workload| workload.traffic == kind);
            carried.map(move |workload| (workload, directions))
        })
    }

    /// Protocols that support the workload of that name.
    pub fn protocols_with(&self, workload: &str) -> impl Iterator<Item = &'static Protocol> + use<> {
        let kind = self.workload(workload).map(|workload| workload.traffic);
        let has_kind =
            move |protocol: &&Protocol| protocol.traffic.iter().any(|(carried, _)| Some(*carried) == kind);
        self.protocols.iter().filter(has_kind)
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Registry")
    }
}
