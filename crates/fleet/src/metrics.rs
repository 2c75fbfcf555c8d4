//! What a collector has received, as metrics for the exporter of the monitor.
//!
//! Pairs have no series of their own: a fleet of 1,000 hosts has a million. Each test adds its percentiles to the histograms of the
//! host that measured.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::collect::{CollectedTest, TestOutcome};
use linkgauge_engine::workload::latency;
use linkgauge_model::run::Run;
use linkgauge_model::sample::Window;
use linkgauge_ops::mesh::HostList;
use linkgauge_ops::monitor::{FamilyKind, MetricFamily, MetricLabel, MetricSample, MetricValue, Snapshot};

/// What a collector did with a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Receipt {
    /// Was saved.
    Saved,
    /// Was saved before.
    Duplicate,
    /// The test failed, so there was nothing to save.
    Failed,
    /// Was dropped: another run with its id was saved before.
    Conflicting,
    /// Was dropped: the database does not take it.
    Refused,
}

const RECEIPTS: [(Receipt, &str); 5] = [
    (Receipt::Saved, "saved"),
    (Receipt::Duplicate, "duplicate"),
    (Receipt::Failed, "failed"),
    (Receipt::Conflicting, "conflicting"),
    (Receipt::Refused, "refused"),
];

/// The percentiles of each test, by name and label. A test with too few samples for one does not have it.
const PERCENTILES: [(&str, &str); 3] = [("p50", "50"), ("p90", "90"), ("p99", "99")];

/// What one agent has sent.
#[derive(Debug)]
struct FromAgent {
    labels: Arc<[MetricLabel]>,
    results: [u64; RECEIPTS.len()],
    last: Option<Timestamp>,
    /// The percentiles of its tests.
    times: [Window; PERCENTILES.len()],
}

impl FromAgent {
    pub fn new(agent: &str) -> FromAgent {
        let labels = [("agent", agent.to_owned())].into();
        FromAgent { labels, results: Default::default(), last: None, times: Default::default() }
    }

    fn record(&mut self, run: &Run) {
        let Some(case) = run.cases.first().filter(|case| case.workload == latency::WORKLOAD.name) else {
            return;
        };
        let Some(times) = &case.figures.times.latency_ns else { return };
        for ((name, _), window) in PERCENTILES.iter().zip(&mut self.times) {
            // Nor has a percentile a time that was not reached, because too many were lost.
            times.percentile(name).into_iter().for_each(|time| window.record(time));
        }
    }

    fn results(&self) -> Vec<MetricSample> {
        let count = |((_, name), count): (&(Receipt, &str), &u64)| {
            let label = ("result", (*name).to_owned());
            MetricSample::new(&self.labels, Some(label), MetricValue::Count(*count))
        };
        RECEIPTS.iter().zip(&self.results).map(count).collect()
    }

    fn last(&self) -> Option<MetricSample> {
        let seconds = self.last?.as_millisecond() as f64 / 1e3;
        Some(MetricSample::new(&self.labels, None, MetricValue::Number(seconds)))
    }

    fn percentiles(&self) -> impl Iterator<Item = MetricSample> {
        let measured = PERCENTILES.iter().zip(&self.times).filter(|(_, window)| window.replies() > 0);
        measured.map(move |((_, percentile), window)| {
            let label = ("percentile", (*percentile).to_owned());
            MetricSample::new(&self.labels, Some(label), MetricValue::Times(Arc::new(window.clone())))
        })
    }
}

/// Which connections a collector has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connections {
    /// To the hub.
    pub hub: bool,
    /// To the database; `None`: results are saved in a file.
    pub database: Option<bool>,
}

/// Counts and times of a collector since its start.
#[derive(Debug)]
pub struct CollectorMetrics {
    agents: BTreeMap<String, FromAgent>,
    unreadable: u64,
}

impl CollectorMetrics {
    /// A collector of these hosts that has received nothing.
    pub fn new(list: &HostList) -> CollectorMetrics {
        let agents = list.hosts.iter().map(|host| (host.name.clone(), FromAgent::new(&host.name)));
        CollectorMetrics { agents: agents.collect(), unreadable: 0 }
    }

    /// A result arrived.
    pub fn on_result(&mut self, test: &CollectedTest, receipt: Receipt, at: Timestamp) {
        let Some(agent) = self.agents.get_mut(&test.from) else { return };
        agent.results[receipt as usize] += 1;
        agent.last = Some(at);
        if let (Receipt::Saved, TestOutcome::Measured(run)) = (receipt, &test.outcome) {
            agent.record(run);
        }
    }

    /// A message arrived that is no result of the fleet.
    pub fn on_unreadable(&mut self) {
        self.unreadable += 1;
    }

    /// The metrics now.
    pub fn snapshot(&self, connections: Connections) -> Snapshot {
        let agents = self.agents.values();
        let alone = |value: u64| vec![MetricSample::new(&Arc::default(), None, MetricValue::Count(value))];
        let mut families = vec![
            MetricFamily {
                name: "linkgauge_fleet_results",
                help: "Results that arrived, by the agent that measured and by what the collector did with them",
                kind: FamilyKind::Counter,
                samples: agents.clone().flat_map(FromAgent::results).collect(),
            },
            MetricFamily {
                name: "linkgauge_fleet_unreadable_results",
                help: "Messages that are no results of tests of the fleet; they were dropped",
                kind: FamilyKind::Counter,
                samples: alone(self.unreadable),
            },
            MetricFamily {
                name: "linkgauge_fleet_last_result_timestamp_seconds",
                help: "When the last result of an agent arrived, in seconds since 1970",
                kind: FamilyKind::Gauge,
                samples: agents.clone().filter_map(FromAgent::last).collect(),
            },
            MetricFamily {
                name: "linkgauge_fleet_pair_latency_seconds",
                help: "Percentile of the round trips of a pair, one value for each latency test",
                kind: FamilyKind::Histogram,
                samples: agents.flat_map(FromAgent::percentiles).collect(),
            },
            MetricFamily {
                name: "linkgauge_fleet_hub_up",
                help: "1 while the collector is connected to the hub",
                kind: FamilyKind::Gauge,
                samples: alone(connections.hub.into()),
            },
        ];
        families.extend(connections.database.map(|is_up| MetricFamily {
            name: "linkgauge_fleet_database_up",
            help: "0 while the database does not save results",
            kind: FamilyKind::Gauge,
            samples: alone(is_up.into()),
        }));
        Snapshot::of_families(families)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linkgauge_ops::monitor::MetricsFormat;

    fn list() -> HostList {
        HostList::from_toml("[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n").unwrap()
    }

    fn test(outcome: TestOutcome) -> CollectedTest {
        let [from, to, pair] = ["a", "b", "a → b"].map(str::to_owned);
        CollectedTest { round: String::new(), from, to, pair, outcome }
    }

    fn measured() -> CollectedTest {
        let document = include_str!("../../../tests/data/run-v1-latency.json");
        test(TestOutcome::Measured(Box::new(Run::from_json(document).unwrap())))
    }

    #[test]
    fn each_saved_test_adds_its_percentiles_once() {
        let mut metrics = CollectorMetrics::new(&list());
        let at = Timestamp::from_second(1_000).unwrap();
        metrics.on_result(&measured(), Receipt::Saved, at);
        metrics.on_result(&measured(), Receipt::Duplicate, at);
        metrics.on_result(&test(TestOutcome::Failed("why".to_owned())), Receipt::Failed, at);
        metrics.on_unreadable();
        let text = MetricsFormat::PlainText
            .render(&Arc::new(metrics.snapshot(Connections { hub: true, database: Some(false) })));
        let text = String::from_utf8(text).unwrap();
        for line in [
            "linkgauge_fleet_results_total{agent=\"a\",result=\"saved\"} 1",
            "linkgauge_fleet_results_total{agent=\"a\",result=\"duplicate\"} 1",
            "linkgauge_fleet_results_total{agent=\"a\",result=\"failed\"} 1",
            "linkgauge_fleet_results_total{agent=\"b\",result=\"saved\"} 0",
            "linkgauge_fleet_unreadable_results_total 1",
            "linkgauge_fleet_last_result_timestamp_seconds{agent=\"a\"} 1000.0",
            "linkgauge_fleet_pair_latency_seconds_count{agent=\"a\",percentile=\"50\"} 1",
            "linkgauge_fleet_pair_latency_seconds_count{agent=\"a\",percentile=\"90\"} 1",
            "linkgauge_fleet_hub_up 1",
            "linkgauge_fleet_database_up 0",
        ] {
            assert!(text.lines().any(|printed| printed == line), "{line}\n{text}");
        }
        assert!(!text.contains("timestamp_seconds{agent=\"b\"}"), "{text}");
        assert!(!text.contains("percentile=\"99\""), "300 round trips have no p99: {text}");
    }
}
