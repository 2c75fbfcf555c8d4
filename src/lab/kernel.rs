//! The kernel of this host as a far end: it answers echo requests by itself, so nothing has to be started.

use super::{LabError, StandIn, Standing};
use crate::endpoint::{Endpoint, EndpointError};

pub const STAND_IN: StandIn = StandIn {
    summary: "the kernel, which answers ICMP echo",
    start: || {
        let endpoints =
            ["icmp://127.0.0.1", "icmp://[::1]"].map(str::parse).into_iter().collect::<Result<_, _>>();
        Ok(Box::new(Kernel {
            endpoints: endpoints.map_err(|error: EndpointError| LabError(error.to_string()))?,
        }))
    },
};

struct Kernel {
    endpoints: Vec<Endpoint>,
}

impl Standing for Kernel {
    fn endpoints(&self) -> Vec<Endpoint> {
        self.endpoints.clone()
    }
}
