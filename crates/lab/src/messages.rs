//! Two nodes with messages between them: a LINX node that clients reach through a relay. The relay adds what each
//! message costs the processors of both nodes and the line between them.
//!
//! Clients speak LINX with the relay, and the relay speaks LINX with the node.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::LabError;
use super::shaper::{Shaper, ShaperOptions};
use linkgauge_engine::link::Dialer;
use linkgauge_engine::link::shaped::Shape;
use linkgauge_engine::serve::Server;
use linkgauge_engine::transport::linx::with_raw_signals;
use linkgauge_model::endpoint::Endpoint;

/// The protocol of the node: the benchmark of LINX, with echoes and bursts.
const PROTOCOL: &str = "linx-bmark";

/// Distinguishes the nodes of a process.
static NODE_COUNT: AtomicU32 = AtomicU32::new(0);

/// Running nodes; they stop when they are dropped.
pub struct MessageNodes {
    // Before the node that it leads to.
    relay: Shaper,
    _node: Server,
}

impl MessageNodes {
    /// Starts a node that clients reach at `listen`, through links of these shapes: from the clients, and to them.
    ///
    /// # Errors
    ///
    /// Fails if `listen` is no LINX endpoint, or if the node or the relay cannot be started.
    pub fn start(
        listen: &Endpoint,
        [up, down]: [Shape; 2],
        dialer: &Dialer,
    ) -> Result<MessageNodes, LabError> {
        let listen = with_raw_signals(listen)?;
        if listen.option("raw").is_none() {
            return Err(LabError::Invalid(format!(
                "{listen} is not a LINX endpoint. Use one like linx://127.0.0.1/server, or lab shaper for other links"
            )));
        }
        let number = NODE_COUNT.fetch_add(1, Relaxed);
        let url = format!("linx:///linkgauge-nodes-{}-{number}", std::process::id());
        let node = Server::on(&url).protocol(PROTOCOL).start_with(dialer)?;
        let to = with_raw_signals(&node.endpoints()[0])?;
        let options = ShaperOptions { listen, to, up, down, seed: 1, log: None };
        Ok(MessageNodes { relay: Shaper::start(&options, dialer)?, _node: node })
    }

    /// Endpoint that clients connect to.
    pub fn endpoint(&self) -> &Endpoint {
        self.relay.endpoint()
    }

    /// Errors of connections since the last call, one line each.
    pub fn events(&self) -> impl Iterator<Item = String> {
        self.relay.events()
    }
}
