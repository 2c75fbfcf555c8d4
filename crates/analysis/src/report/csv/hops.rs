//! The hops of paths as a table: a row for each hop.

use std::io;

use super::super::ReportOptions;
use super::{format_count, format_number, write_header, write_row};
use linkgauge_model::run::{HopTimes, PathHop, Run};

/// The columns and their meanings.
pub(super) const COLUMNS: [(&str, &str); 19] = [
    ("run", "name of the run"),
    ("started", "start of the run, in UTC"),
    ("case", "number of the case in the run, from 1"),
    ("endpoint", "the endpoint, as typed"),
    ("hop", "hop limit of the probes"),
    ("addresses", "who replied, the most frequent first, separated by spaces"),
    ("names", "their names, where they are known"),
    ("sent", "probes that were sent"),
    ("answered", "probes that were answered; the rest is no loss unless later hops show it"),
    ("latency_min_ns", "fastest round trip"),
    ("latency_p50_ns", "median round trip"),
    ("latency_p99_ns", "99th percentile by nearest rank: up to 99 replies the slowest"),
    ("latency_max_ns", "slowest round trip"),
    ("jitter_ns", "mean difference of consecutive round trips"),
    ("loaded_sent", "probes that were sent under load"),
    ("loaded_answered", "probes that were answered under load"),
    ("loaded_latency_p50_ns", "median round trip under load"),
    ("added_ns", "median under load minus idle median"),
    ("lasting_ns", "least growth of this hop and all later ones"),
];

/// Writes a row for each hop of each path.
pub(crate) fn write_hops(run: &Run, _: &ReportOptions, out: &mut dyn io::Write) -> io::Result<()> {
    let mut table = csv::Writer::from_writer(out);
    write_header(&mut table, COLUMNS.iter().map(|(name, _)| *name))?;
    for (case, number) in run.cases.iter().zip(1u64..) {
        for hop in case.path.iter().flat_map(|path| &path.hops) {
            let mut cells = vec![run.id.clone(), run.started.to_string(), number.to_string()];
            cells.push(case.endpoint.clone());
            cells.extend(hop_cells(hop));
            write_row(&mut table, &cells)?;
        }
    }
    table.flush()
}

/// Cells of a hop in the order of the columns, from `hop` on.
fn hop_cells(hop: &PathHop) -> [String; 15] {
    let addresses: Vec<String> = hop.hosts.iter().map(|host| host.address.to_string()).collect();
    let names: Vec<&str> = hop.hosts.iter().filter_map(|host| host.name.as_deref()).collect();
    let of = |times: Option<HopTimes>, read: fn(&HopTimes) -> u64| format_count(times.as_ref().map(read));
    let times = hop.latency_ns;
    let loaded = hop.loaded.as_ref();
    [
        hop.hop.to_string(),
        addresses.join(" "),
        names.join(" "),
        hop.sent.to_string(),
        hop.answered.to_string(),
        of(times, |times| times.min),
        of(times, |times| times.p50),
        of(times, |times| times.p99),
        of(times, |times| times.max),
        format_number(times.and_then(|times| times.jitter)),
        format_count(loaded.map(|loaded| loaded.sent)),
        format_count(loaded.map(|loaded| loaded.answered)),
        of(loaded.and_then(|loaded| loaded.latency_ns), |times| times.p50),
        format_number(loaded.and_then(|loaded| loaded.added_ns)),
        format_number(loaded.and_then(|loaded| loaded.lasting_ns)),
    ]
}
