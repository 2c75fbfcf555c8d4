//! Everything that linkgauge has. The lists are on the roof: code below this file looks things up in the registry that it was given.

use crate::link::{self, Transports};
use crate::protocol::{self, Registry};
use crate::transport;
use crate::workload;

static STANDARD: Registry = Registry {
    transports: Transports(&[
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
        link::mem::TRANSPORT,
    ]),
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
        protocol::udpst::PROTOCOL,
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
}
