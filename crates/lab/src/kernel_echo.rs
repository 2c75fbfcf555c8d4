//! The kernel of this host as the remote: it replies to echo requests without any program.

use super::{RunningStandIn, StandIn};
use linkgauge_model::endpoint::Endpoint;

pub(crate) const STAND_IN: StandIn = StandIn {
    summary: "the kernel, which replies to ICMP echo",
    start: || {
        Ok(Box::new(KernelEcho { endpoints: vec!["icmp://127.0.0.1".parse()?, "icmp://[::1]".parse()?] }))
    },
};

struct KernelEcho {
    endpoints: Vec<Endpoint>,
}

impl RunningStandIn for KernelEcho {
    fn endpoints(&self) -> Vec<Endpoint> {
        self.endpoints.clone()
    }
}
