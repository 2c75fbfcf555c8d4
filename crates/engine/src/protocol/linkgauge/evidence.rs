//! The evidence of a server: collected for clients that ask for it, and checked by the client.

use std::time::Duration;

use crate::host::evidence::{
    ThreadCounters, differences, host_counters, is_known_host_counter, is_known_thread_counter,
};
use crate::link::counters;
use linkgauge_model::clock::{Clock, Time};
use linkgauge_model::run::{ConnectionEvidence, Counters, EndEvidence, thin};

/// The counters of the server's host when the measurement began.
pub(crate) struct HostStart {
    at: Time,
    counters: Counters,
}

impl HostStart {
    /// The counters now.
    pub(crate) fn now() -> HostStart {
        HostStart { at: Clock::System.now(), counters: host_counters() }
    }

    /// The evidence since then, with that of the flows.
    pub(crate) fn evidence<'a>(&self, flows: impl Iterator<Item = &'a EndEvidence>) -> EndEvidence {
        let mut all = EndEvidence {
            observed_ns: Clock::System.now().since(self.at).as_nanos() as u64,
            host: differences(&self.counters, &host_counters()),
            ..EndEvidence::default()
        };
        flows.for_each(|flow| all.add_flows(flow));
        begin_series_at(&mut all, self.at.0);
        all
    }
}

/// The evidence of one flow that has ended.
pub(crate) fn of_flow(connections: ConnectionEvidence, thread: ThreadCounters) -> EndEvidence {
    EndEvidence { connections, threads: thread.named(), ..EndEvidence::default() }
}

/// Lets the readings of the connection begin at this time.
fn begin_series_at(evidence: &mut EndEvidence, begin_ns: u64) {
    let series = &mut evidence.connections.series;
    series.retain(|reading| reading.at_ns >= begin_ns);
    series.iter_mut().for_each(|reading| reading.at_ns -= begin_ns);
}

/// The evidence of a server without what this version does not know. Its readings begin with the load, after the lead-in.
fn checked(mut evidence: EndEvidence, lead_in: Duration) -> EndEvidence {
    begin_series_at(&mut evidence, lead_in.as_nanos() as u64);
    let series = &mut evidence.connections.series;
    if !series.is_sorted_by_key(|reading| reading.at_ns) {
        series.clear();
    }
    thin(series);
    evidence.connections.counters.retain(|name, _| counters::is_known(name));
    evidence.connections.gauges.retain(|name, _| counters::is_known(name));
    evidence.threads.retain(|name, _| is_known_thread_counter(name));
    evidence.host.retain(|name, _| is_known_host_counter(name));
    evidence
}

/// The evidence of several servers: flows are summed, and the host is that of the first. `lead_in`: the time that the next one
/// waited before the load.
pub(crate) fn merge(
    all: Option<EndEvidence>,
    of_next: Option<EndEvidence>,
    lead_in: Duration,
) -> Option<EndEvidence> {
    match (all, of_next.map(|evidence| checked(evidence, lead_in))) {
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
    use linkgauge_model::run::ConnectionReading;

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
        let reading = |ms: u64| ConnectionReading { at_ns: ms * 1_000_000, ..ConnectionReading::default() };
        evidence.connections.series = vec![reading(900), reading(1_000), reading(1_100)];
        let backwards = |mut evidence: EndEvidence| {
            evidence.connections.series.reverse();
            checked(evidence, Duration::ZERO).connections.series
        };
        assert_eq!(backwards(evidence.clone()), []);
        let checked = checked(evidence, Duration::from_secs(1));
        assert_eq!(checked.connections.series, [reading(0), reading(100)]);
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
