//! Limits on the memory that the sessions of a server may take together before their flows run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::link::Caps;
use crate::protocol::linkgauge::wire::SessionRefusal;
use crate::protocol::{ServerLimits, max_session_connections};

/// Planned flows for each connection that the server allows: sessions with a plan may wait for others to end.
const PLANS_PER_CONNECTION: u32 = 4;

/// Flows in the plans of all sessions, which take memory before they run.
#[derive(Clone)]
pub(crate) struct PlannedFlows {
    count: Arc<AtomicU32>,
    most: u32,
}

impl PlannedFlows {
    pub fn new(limits: &ServerLimits) -> PlannedFlows {
        let most = PLANS_PER_CONNECTION.saturating_mul(max_session_connections(limits));
        PlannedFlows { count: Arc::default(), most }
    }

    pub fn add(&self, flows: u32) -> Result<CountedFlows, SessionRefusal> {
        let most = self.most;
        let sum = |count: u32| count.checked_add(flows).filter(|sum| *sum <= most);
        match self.count.fetch_update(Relaxed, Relaxed, sum) {
            Ok(_) => Ok(CountedFlows { all: self.clone(), flows }),
            Err(_) => Err(SessionRefusal(format!(
                "the plans of all its sessions may have {most} connections: try again later"
            ))),
        }
    }
}

/// The flows of a plan, counted until the session ends.
pub(crate) struct CountedFlows {
    all: PlannedFlows,
    flows: u32,
}

impl Drop for CountedFlows {
    fn drop(&mut self) {
        self.all.count.fetch_sub(self.flows, Relaxed);
    }
}

/// Maximum requests that are longer than an opening, of all sessions, whose rest has not arrived yet.
const MAX_LONG_REQUESTS: u32 = 64;

/// Long requests whose rest is awaited.
#[derive(Default)]
pub(crate) struct LongRequests(Arc<AtomicU32>);

impl LongRequests {
    /// Allows the server to wait for the rest of a long request, if few others take memory for that.
    pub fn begin(&self) -> Option<LongRequest> {
        let begun = |count: u32| (count < MAX_LONG_REQUESTS).then_some(count + 1);
        let allowed = self.0.fetch_update(Relaxed, Relaxed, begun).is_ok();
        allowed.then(|| LongRequest(self.0.clone()))
    }
}

/// Counts a long request until the rest of it has arrived.
pub(crate) struct LongRequest(Arc<AtomicU32>);

impl Drop for LongRequest {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// Input, output and state of a connection that is not a flow yet.
pub(super) const CONNECTION_STATE_BYTES: usize = 8 * 1024;

/// Bytes of one message of a control connection.
pub(super) fn receive_bytes(caps: &Caps) -> usize {
    caps.max_message_bytes.unwrap_or(65_536).min(65_536)
}

/// Maximum bytes of a request for each flow of its plan.
pub(super) const MAX_REQUEST_BYTES_PER_FLOW: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_long_requests_are_awaited_at_once() {
        let requests = LongRequests::default();
        let held: Vec<_> = (0..2 * MAX_LONG_REQUESTS).filter_map(|_| requests.begin()).collect();
        assert_eq!(held.len() as u32, MAX_LONG_REQUESTS);
        drop(held);
        assert!(requests.begin().is_some());
    }
}
