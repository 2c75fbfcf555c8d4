//! The kernel of this host as the remote: it replies to echo requests without any program.

use super::{LabError, RunningStandIn, StandIn};
use crate::endpoint::{Endpoint, EndpointError};

pub const STAND_IN: StandIn = StandIn {
    summary: "the kernel, which replies to ICMP echo",
    start: || {
        let endpoints =
            ["icmp://127.0.0.1", "icmp://[::1]"].map(str::parse).into_iter().collect::<Result<_, _>>();
        Ok(Box::new(KernelEcho {
            endpoints: endpoints.map_err(|error: EndpointError| LabError(error.to_string()))?,
        }))
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
