//! Evidence: what the systems of both ends counted during a case, beside its figures. It shows why a figure is as it is.
//!
//! A source that a system does not have is absent, never zero.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Counters by name, each with its unit unless it counts events. Names with a dot are those of the kernel.
pub type Counters = BTreeMap<String, u64>;

/// Evidence of a case.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Evidence {
    /// Evidence of this host.
    pub client: EndEvidence,
    /// Evidence of the server's host, if a linkgauge server reported it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<EndEvidence>,
}

/// Evidence of one end: the change of each counter during the case, all repetitions together.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EndEvidence {
    /// Time that the counters cover.
    pub observed_ns: u64,
    /// The connections of the flows, at most [`MAX_OBSERVED_CONNECTIONS`] of them.
    pub connections: ConnectionEvidence,
    /// The threads that moved the payload.
    #[serde(skip_serializing_if = "Counters::is_empty")]
    pub threads: Counters,
    /// The whole host, so other programs count as well.
    #[serde(skip_serializing_if = "Counters::is_empty")]
    pub host: Counters,
}

/// Maximum number of connections that are read; further ones are left out.
pub const MAX_OBSERVED_CONNECTIONS: usize = 16;

/// Counters of the system for the connections of the flows.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConnectionEvidence {
    /// Number of connections that were read.
    pub count: u64,
    /// Sums over the connections.
    #[serde(skip_serializing_if = "Counters::is_empty")]
    pub counters: Counters,
    /// Values that rise and fall, over all readings of all connections.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub gauges: BTreeMap<String, Gauge>,
    /// The first connection over time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<ConnectionReading>,
}

/// A value that rises and falls, over its readings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gauge {
    /// Smallest reading.
    pub min: u64,
    /// Median of the readings; over several repetitions the median of their medians.
    pub median: u64,
    /// Largest reading.
    pub max: u64,
    /// Number of readings.
    pub readings: u64,
}

/// One reading of a TCP connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConnectionReading {
    /// Time from the start of the case to the reading; pauses between repetitions are left out.
    pub at_ns: u64,
    /// Smoothed round trip time.
    pub rtt_ns: u64,
    /// Congestion window.
    pub congestion_window_segments: u64,
    /// Segments retransmitted since the connection was opened.
    pub retransmitted_segments: u64,
    /// The kernel's estimate of the rate of delivery.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery_rate_bps: Option<u64>,
}

/// Maximum length of a series. A longer one is thinned.
pub const MAX_SERIES_READINGS: usize = 512;

impl Gauge {
    /// The summary of these readings; `None` without any.
    pub fn of(readings: &[u64]) -> Option<Gauge> {
        let mut sorted = readings.to_vec();
        sorted.sort_unstable();
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        Some(Gauge { min, median: sorted[sorted.len() / 2], max, readings: sorted.len() as u64 })
    }

    fn combine(parts: &[Gauge]) -> Gauge {
        let medians: Vec<u64> = parts.iter().map(|part| part.median).collect();
        Gauge {
            min: parts.iter().map(|part| part.min).min().unwrap_or_default(),
            median: Gauge::of(&medians).map_or(0, |gauge| gauge.median),
            max: parts.iter().map(|part| part.max).max().unwrap_or_default(),
            readings: parts.iter().map(|part| part.readings).fold(0, u64::saturating_add),
        }
    }
}

/// Adds the counters of `from`.
pub fn add_counters(to: &mut Counters, from: &Counters) {
    for (name, count) in from {
        let sum = to.entry(name.clone()).or_default();
        *sum = sum.saturating_add(*count);
    }
}

impl EndEvidence {
    /// The counter of that name, wherever it was counted; `None` if the system does not have it.
    pub fn counter(&self, name: &str) -> Option<u64> {
        let groups = [&self.connections.counters, &self.threads, &self.host];
        groups.into_iter().find_map(|group| group.get(name)).copied()
    }

    /// The gauge of that name.
    pub fn gauge(&self, name: &str) -> Option<&Gauge> {
        self.connections.gauges.get(name)
    }

    /// The evidence of consecutive repetitions as one. `loads_ns`: how long the load of each took at the client, whose time line
    /// the readings have. Without all of them there are no readings.
    pub fn of_repetitions(parts: &[EndEvidence], loads_ns: &[u64]) -> EndEvidence {
        let mut all = EndEvidence::default();
        for part in parts {
            all.observed_ns = all.observed_ns.saturating_add(part.observed_ns);
            add_counters(&mut all.host, &part.host);
            all.add_counts(part);
        }
        let mut start_ns = 0u64;
        for (part, load_ns) in parts.iter().zip(loads_ns).filter(|_| parts.len() == loads_ns.len()) {
            let moved = part.connections.series.iter().map(|reading| ConnectionReading {
                at_ns: reading.at_ns.saturating_add(start_ns),
                ..*reading
            });
            all.connections.series.extend(moved);
            start_ns = start_ns.saturating_add(*load_ns);
        }
        thin(&mut all.connections.series);
        all.connections.gauges = combine_gauges(parts);
        all
    }

    /// Adds the connections and threads of `other`, which ran at the same time. The readings are those of the first connection.
    pub fn add_flows(&mut self, other: &EndEvidence) {
        if self.connections.count == 0 {
            self.connections.series.clone_from(&other.connections.series);
        }
        self.add_counts(other);
    }

    fn add_counts(&mut self, other: &EndEvidence) {
        let connections = &mut self.connections;
        connections.count = connections.count.saturating_add(other.connections.count);
        add_counters(&mut connections.counters, &other.connections.counters);
        add_counters(&mut self.threads, &other.threads);
        for (name, gauge) in &other.connections.gauges {
            let both = connections.gauges.get(name).map_or(*gauge, |own| Gauge::combine(&[*own, *gauge]));
            connections.gauges.insert(name.clone(), both);
        }
    }
}

fn combine_gauges(parts: &[EndEvidence]) -> BTreeMap<String, Gauge> {
    let mut readings = BTreeMap::<String, Vec<Gauge>>::new();
    for (name, gauge) in parts.iter().flat_map(|part| &part.connections.gauges) {
        readings.entry(name.clone()).or_default().push(*gauge);
    }
    readings.into_iter().map(|(name, parts)| (name, Gauge::combine(&parts))).collect()
}

/// Removes every second reading until the series has at most `MAX_SERIES_READINGS`.
pub fn thin(series: &mut Vec<ConnectionReading>) {
    while series.len() > MAX_SERIES_READINGS {
        let mut index = 0;
        series.retain(|_| {
            index += 1;
            index % 2 == 1
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(count: u64, median: u64) -> EndEvidence {
        let counters: Counters = [("n".to_owned(), count)].into();
        let gauge = Gauge { min: median - 1, median, max: median + 1, readings: 3 };
        EndEvidence {
            observed_ns: 10,
            connections: ConnectionEvidence {
                count: 1,
                counters: counters.clone(),
                gauges: [("g".to_owned(), gauge)].into(),
                series: vec![ConnectionReading { at_ns: 4, ..ConnectionReading::default() }],
            },
            threads: [("t".to_owned(), count)].into(),
            host: [("h".to_owned(), count)].into(),
        }
    }

    #[test]
    fn repetitions_add_up() {
        let parts = [part(1, 5), part(2, 9), part(4, 7)];
        let all = EndEvidence::of_repetitions(&parts, &[10, 20, 30]);
        assert_eq!([all.counter("n"), all.counter("t"), all.counter("h")], [Some(7); 3]);
        assert_eq!(all.counter("x"), None, "absent, not zero");
        assert_eq!(all.gauge("g"), Some(&Gauge { min: 4, median: 7, max: 10, readings: 9 }));
        let times: Vec<u64> = all.connections.series.iter().map(|reading| reading.at_ns).collect();
        assert_eq!((times, all.observed_ns), (vec![4, 14, 34], 30));
        assert_eq!(
            EndEvidence::of_repetitions(&parts, &[10, 20]).connections.series,
            [],
            "one load is unknown"
        );
        assert_eq!(EndEvidence::of_repetitions(&[], &[]), EndEvidence::default());
    }

    #[test]
    fn flows_of_one_time_share_the_host() {
        let mut both = part(1, 5);
        both.add_flows(&part(2, 9));
        assert_eq!([both.counter("n"), both.counter("t"), both.counter("h")], [Some(3), Some(3), Some(1)]);
        assert_eq!((both.connections.count, both.observed_ns), (2, 10));
    }

    #[test]
    fn a_long_series_is_thinned() {
        let reading = |at_ns| ConnectionReading { at_ns, ..ConnectionReading::default() };
        let mut series: Vec<_> = (0..2000).map(reading).collect();
        thin(&mut series);
        assert_eq!((series.len(), series[1].at_ns), (500, 4));
    }
}
