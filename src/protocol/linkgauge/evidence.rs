//! The evidence of a server: collected for clients that ask for it, and checked by the client.

use crate::clock::{Clock, Time};
use crate::host::evidence::{
    ThreadCounters, differences, host_counters, is_known_host_counter, is_known_thread_counter,
};
use crate::link::counters;
use crate::run::{ConnectionEvidence, Counters, EndEvidence};

/// The counters of the server's host when the measurement began.
pub struct HostStart {
    at: Time,
    counters: Counters,
}

impl HostStart {
    /// The counters now.
    pub fn now() -> HostStart {
        HostStart { at: Clock::System.now(), counters: host_counters() }
    }

    /// The evidence since then, with that of the flows.
    pub fn evidence<'a>(&self, flows: impl Iterator<Item = &'a EndEvidence>) -> EndEvidence {
        let mut all = EndEvidence {
            observed_ns: Clock::System.now().since(self.at).as_nanos() as u64,
            host: differences(&self.counters, &host_counters()),
            ..EndEvidence::default()
        };
        flows.for_each(|flow| all.add_flows(flow));
        all
    }
}

/// The evidence of one flow that has ended.
pub fn of_flow(connections: ConnectionEvidence, thread: ThreadCounters) -> EndEvidence {
    EndEvidence { connections, threads: thread.named(), ..EndEvidence::default() }
}

/// The evidence of a server without names that this version does not know.
fn checked(mut evidence: EndEvidence) -> EndEvidence {
    evidence.connections.counters.retain(|name, _| counters::is_known(name));
    evidence.connections.gauges.retain(|name, _| counters::is_known(name));
    evidence.connections.series.clear();
    evidence.threads.retain(|name, _| is_known_thread_counter(name));
    evidence.host.retain(|name, _| is_known_host_counter(name));
    evidence
}

/// The evidence of several servers: flows are summed, and the host is that of the first.
pub fn merge(all: Option<EndEvidence>, of_next: Option<EndEvidence>) -> Option<EndEvidence> {
    match (all, of_next.map(checked)) {
        (Some(mut all), Some(of_next)) => {
            all.add_flows(&of_next);
            Some(all)
        }
        (all, of_next) => all.or(of_next),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_names_are_dropped() {
        let counters =
            |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), 1)).collect::<Counters>();
        let mut evidence = EndEvidence {
            threads: counters(&["thread_cpu_ns", "<script>"]),
            host: counters(&["softnet_dropped", "TcpExt.DelayedACKs", "TcpExt.x"]),
            ..EndEvidence::default()
        };
        evidence.connections.counters = counters(&["tcp_busy_ns", "socket_drops", "tcp_x"]);
        let checked = checked(evidence);
        assert_eq!(checked.threads, counters(&["thread_cpu_ns"]));
        assert_eq!(checked.host, counters(&["softnet_dropped", "TcpExt.DelayedACKs"]));
        assert_eq!(checked.connections.counters, counters(&["tcp_busy_ns", "socket_drops"]));
    }

    #[test]
    fn flows_share_the_counters_of_the_host() {
        let start = HostStart::now();
        let thread = ThreadCounters { run_queue_wait_ns: Some(5), ..ThreadCounters::default() };
        let flows =
            [of_flow(ConnectionEvidence::default(), thread), of_flow(ConnectionEvidence::default(), thread)];
        let all = start.evidence(flows.iter());
        assert_eq!(all.counter("thread_run_queue_wait_ns"), Some(10));
        assert_eq!(all.counter("thread_cpu_ns"), None);
        assert!(all.host.contains_key("softnet_processed"));
    }
}
