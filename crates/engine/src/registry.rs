//! The lists of what a program can measure with. Code below this file looks things up in the registry that it was given.

use std::fmt;

use crate::link::{Caps, Dialer, Fault, Transport};
use crate::protocol::{self, Protocol};
use crate::transport;
use crate::workload::{self, Workload};
use linkgauge_model::clock::Clock;
use linkgauge_model::endpoint::Endpoint;
use linkgauge_model::plan::Direction;

/// What a program can measure with. Each list is in the order of help and documentation, and the first of several entries
/// that fit is the default.
#[derive(Clone, Copy)]
pub struct Registry {
    /// The kinds of links.
    pub transports: &'static [Transport],
    /// The protocols. `auto` is not in the list: it detects which of these the server uses.
    pub protocols: &'static [Protocol],
    /// The kinds of measurement.
    pub workloads: &'static [Workload],
}

static STANDARD: Registry = Registry {
    transports: &[
        transport::tcp::TRANSPORT,
        transport::udp::TRANSPORT,
        transport::icmp::TRANSPORT,
        transport::sctp::TRANSPORT,
        transport::unix::TRANSPORT,
        transport::vsock::TRANSPORT,
        transport::tipc::TRANSPORT,
        transport::linx::TRANSPORT,
        transport::linx::ETHERNET_TRANSPORT,
        transport::serial::TRANSPORT,
        transport::rfc2217::TRANSPORT,
        transport::rfcomm::TRANSPORT,
        transport::l2cap::TRANSPORT,
        transport::mem::TRANSPORT,
    ],
    protocols: &[
        protocol::linkgauge::PROTOCOL,
        protocol::echo::PROTOCOL,
        protocol::discard::PROTOCOL,
        protocol::chargen::PROTOCOL,
        protocol::stamp::PROTOCOL,
        protocol::stamp::TWAMP_LIGHT,
        protocol::twamp::PROTOCOL,
        protocol::irtt::PROTOCOL,
        protocol::sockperf::PROTOCOL,
        protocol::ask::PROTOCOL,
        protocol::modbus::PROTOCOL,
        protocol::iperf3::PROTOCOL,
        protocol::iperf2::PROTOCOL,
        protocol::netio::PROTOCOL,
        protocol::pakbus::client::PROTOCOL,
        protocol::tipc_bench::PROTOCOL,
        protocol::linx_bmark::PROTOCOL,
        protocol::device::PROTOCOL,
        protocol::none::PROTOCOL,
    ],
    workloads: &[
        workload::latency::WORKLOAD,
        workload::throughput::WORKLOAD,
        workload::responsiveness::WORKLOAD,
        workload::capacity::WORKLOAD,
        workload::download::WORKLOAD,
        workload::connect::WORKLOAD,
    ],
};

impl Registry {
    /// Everything that linkgauge has.
    pub fn standard() -> &'static Registry {
        &STANDARD
    }

    /// A dialer for these transports that blocks, with a timeout of 1 s and without default port.
    pub fn dialer(&'static self, clock: Clock) -> Dialer {
        Dialer::new(self, clock)
    }

    /// The transport of an endpoint.
    ///
    /// # Errors
    ///
    /// Fails if no transport has the scheme.
    pub fn transport(&self, endpoint: &Endpoint) -> Result<&'static Transport, Fault> {
        self.transports.iter().find(|transport| transport.scheme == endpoint.scheme()).ok_or_else(|| {
            let known: Vec<&str> = self.transports.iter().map(|transport| transport.scheme).collect();
            Fault::Invalid(format!("unknown scheme '{}' (known: {})", endpoint.scheme(), known.join(", ")))
        })
    }

    /// The capabilities of links to this endpoint, as far as the endpoint shows them.
    ///
    /// # Errors
    ///
    /// Fails if the transport does not support a part of the endpoint.
    pub fn caps(&self, endpoint: &Endpoint) -> Result<Caps, Fault> {
        Ok(self.transport(endpoint)?.caps(endpoint)?)
    }

    /// The protocol of that name.
    pub fn protocol(&self, name: &str) -> Option<&'static Protocol> {
        self.protocols.iter().find(|protocol| protocol.name == name)
    }

    /// The protocols with a default port of that number, on this scheme if one is given.
    pub(crate) fn protocols_of_port(&self, scheme: Option<&str>, port: u16) -> Vec<&'static Protocol> {
        let is_it =
            |&(of, default): &(&str, u16)| default == port && scheme.is_none_or(|scheme| scheme == of);
        self.protocols.iter().filter(|protocol| protocol.default_ports.iter().any(is_it)).collect()
    }

    /// The workload of that name.
    pub fn workload(&self, name: &str) -> Option<&'static Workload> {
        self.workloads.iter().find(|workload| workload.name == name)
    }

    /// The workloads that a protocol supports, each with its directions.
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

    /// The protocols that support the workload of that name.
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
