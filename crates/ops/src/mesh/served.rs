//! Whether throughput tests overlapped on what they share, as the logs of the servers say.
//!
//! Each server logs its tests on its own clock. Two orders to its agent, before the tests and after them, relate that clock to the
//! one here; the time until the answer bounds the error. Only an overlap that is longer than the errors counts.

use std::collections::BTreeSet;

use super::hosts::HostList;
use linkgauge_engine::protocol::MAX_LOGGED_LOADS;
use linkgauge_model::clock::Time;
use linkgauge_model::run::MeshServed;

/// The clock of an agent, read between an order and its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockReading {
    agent_ns: u64,
    /// Time of the clock here minus that of the agent; the middle between order and answer.
    offset_ns: i128,
    error_ns: u64,
}

impl ClockReading {
    /// `agent_ns` was read after `sent` and before `received`.
    pub fn new(sent: Time, received: Time, agent_ns: u64) -> ClockReading {
        let middle = (i128::from(sent.0) + i128::from(received.0)) / 2;
        ClockReading {
            agent_ns,
            offset_ns: middle - i128::from(agent_ns),
            error_ns: received.0.saturating_sub(sent.0).div_ceil(2),
        }
    }
}

/// Loads that the server of a host has served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerLog {
    /// Readings of its clock before and after all loads.
    clock: [ClockReading; 2],
    /// Begin and end of each throughput test, on the clock of the agent.
    loads: Vec<[u64; 2]>,
}

impl ServerLog {
    /// Makes a log. Logs are foreign: loads without a length, or more than a server logs, are left out.
    pub fn new(clock: [ClockReading; 2], mut loads: Vec<[u64; 2]>) -> ServerLog {
        loads.truncate(MAX_LOGGED_LOADS);
        loads.retain(|[began, ended]| began < ended);
        ServerLog { clock, loads }
    }

    /// A time of the agent on the clock here. Between the readings the offset is interpolated, because the clocks drift.
    fn time_here(&self, agent_ns: u64) -> i128 {
        let [first, last] = &self.clock;
        let length = last.agent_ns.saturating_sub(first.agent_ns).max(1) as f64;
        let share = agent_ns.saturating_sub(first.agent_ns) as f64 / length;
        let drift = (last.offset_ns - first.offset_ns) as f64 * share.min(1.0);
        i128::from(agent_ns) + first.offset_ns + drift as i128
    }

    fn error_ns(&self) -> u64 {
        self.clock[0].error_ns.max(self.clock[1].error_ns)
    }
}

/// A throughput test of this run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OrderedLoad {
    /// Index of its pair.
    pub(crate) pair: usize,
    /// Times of the order and of its answer.
    pub(crate) interval: (Time, Time),
    /// Whether it measured something, so that a server has served it.
    pub(crate) has_result: bool,
}

/// A load of a log, on the clock here.
struct LoadSpan {
    began: i128,
    ended: i128,
    error: i128,
    server: usize,
    /// The test that it belongs to.
    pair: Option<usize>,
}

/// Compares the logs of the servers. `tests` are the throughput tests that this run ordered; `None` without any.
pub(crate) fn compare_logs(
    list: &HostList,
    tests: &[OrderedLoad],
    logs: &[Option<ServerLog>],
) -> Option<MeshServed> {
    if tests.is_empty() {
        return None;
    }
    let mut loads = Vec::new();
    for (server, log) in logs.iter().enumerate() {
        let Some(log) = log else { continue };
        let own: Vec<&OrderedLoad> =
            tests.iter().filter(|test| list.client_and_server(test.pair)[1] == server).collect();
        loads.extend(log.loads.iter().map(|[began, ended]| {
            let (began, ended) = (log.time_here(*began), log.time_here(*ended));
            let error = i128::from(log.error_ns());
            let is_inside = |test: &&&OrderedLoad| {
                let (sent, answered) = test.interval;
                i128::from(sent.0) - error <= began && began <= i128::from(answered.0) + error
            };
            // With an error, a load can seem to lie in two tests that followed each other.
            let distance = |test: &&&OrderedLoad| (began - i128::from(test.interval.0.0)).abs();
            let test = own.iter().filter(is_inside).min_by_key(distance);
            LoadSpan { began, ended, error, server, pair: test.map(|test| test.pair) }
        }));
    }
    loads.sort_by_key(|load| load.began);
    let logged: BTreeSet<usize> = loads.iter().filter_map(|load| load.pair).collect();
    Some(MeshServed {
        throughput_tests: loads.len() as u32,
        overlapping: overlapping(list, &loads) as u32,
        unlogged: tests.iter().filter(|test| test.has_result && !logged.contains(&test.pair)).count() as u32,
        clock_error_ns: logs.iter().flatten().map(ServerLog::error_ns).max().unwrap_or(0),
    })
}

/// Loads, in the order of their begins, that began while something that they use carried as many as it may.
fn overlapping(list: &HostList, loads: &[LoadSpan]) -> usize {
    let mut open: Vec<&LoadSpan> = Vec::new();
    let mut overlapping = 0;
    for load in loads {
        open.retain(|other| other.ended > load.began);
        let beside: Vec<&LoadSpan> = open.iter().copied().filter(|other| is_certain(other, load)).collect();
        let is_host_busy = hosts_of(list, load)
            .iter()
            .any(|host| beside.iter().any(|other| hosts_of(list, other).contains(host)));
        let is_resource_full = load.pair.is_some_and(|pair| {
            list.resources.iter().filter(|resource| resource.is_used_by(list.pairs[pair])).any(|resource| {
                let uses =
                    |other: &&&LoadSpan| other.pair.is_some_and(|pair| resource.is_used_by(list.pairs[pair]));
                beside.iter().filter(uses).count() >= resource.capacity as usize
            })
        });
        overlapping += usize::from(is_host_busy || is_resource_full);
        open.push(load);
    }
    overlapping
}

/// Whether two loads ran at the same time for longer than the errors of their clocks. One clock has no error.
fn is_certain(earlier: &LoadSpan, later: &LoadSpan) -> bool {
    let error = if earlier.server == later.server { 0 } else { earlier.error + later.error };
    earlier.ended.min(later.ended) - later.began > error
}

fn hosts_of(list: &HostList, load: &LoadSpan) -> Vec<usize> {
    load.pair.map_or(vec![load.server], |pair| list.pairs[pair].to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn list(more: &str) -> HostList {
        let host = |index: usize| format!("[[host]]\nname = \"h{index}\"\n");
        HostList::from_toml(&format!("{}{more}", (0..4).map(host).collect::<String>())).unwrap()
    }

    /// A log of an agent whose clock is 7 s behind, and 1 ms further behind at its end: begins and ends in milliseconds here.
    fn log(loads: &[[u64; 2]]) -> Option<ServerLog> {
        let reading = |at: u64, behind: u64| {
            ClockReading::new(Time((at - 2) * MS), Time((at + 2) * MS), at * MS - behind)
        };
        let clock = [reading(10_000, 7000 * MS), reading(110_000, 7001 * MS)];
        let there = |at: u64| at * MS - 7000 * MS - (at - 10_000) * MS / 100_000;
        Some(ServerLog::new(clock, loads.iter().map(|load| load.map(there)).collect()))
    }

    fn test(list: &HostList, pair: [usize; 2], interval: [u64; 2]) -> OrderedLoad {
        let [sent, answered] = interval.map(|at| Time(at * MS));
        let pair = list.pairs.iter().position(|known| *known == pair).unwrap();
        OrderedLoad { pair, interval: (sent, answered), has_result: true }
    }

    fn overlapping_of(list: &HostList, tests: &[OrderedLoad], logs: &[Option<ServerLog>]) -> u32 {
        let served = compare_logs(list, tests, logs).unwrap();
        assert_eq!((served.unlogged, served.clock_error_ns), (0, 2 * MS));
        served.overlapping
    }

    #[test]
    fn a_drifting_clock_is_followed() {
        let log = log(&[]).unwrap();
        assert_eq!(log.time_here(3000 * MS), i128::from(10_000 * MS));
        assert_eq!(log.time_here(60_000 * MS - 7000 * MS - MS / 2), i128::from(60_000 * MS));
    }

    #[test]
    fn tests_of_other_hosts_may_run_together_and_those_of_one_host_may_not() {
        let list = list("");
        let apart = [test(&list, [0, 1], [20_000, 30_000]), test(&list, [2, 3], [20_000, 30_000])];
        let logs = |third: [u64; 2]| [None, log(&[[20_100, 29_900]]), None, log(&[third])];
        assert_eq!(overlapping_of(&list, &apart, &logs([20_100, 29_900])), 0);
        let shared = [test(&list, [0, 1], [20_000, 30_000]), test(&list, [0, 3], [29_000, 40_000])];
        assert_eq!(overlapping_of(&list, &shared, &logs([29_500, 39_000])), 1);
        // Within the errors of both clocks.
        assert_eq!(overlapping_of(&list, &shared, &logs([29_897, 39_000])), 0);
        assert_eq!(overlapping_of(&list, &shared, &logs([29_895, 39_000])), 1);
    }

    #[test]
    fn one_server_has_one_clock() {
        let list = list("");
        let tests = [test(&list, [0, 1], [20_000, 30_000]), test(&list, [2, 1], [30_000, 40_000])];
        let logs = |begin: u64| [None, log(&[[20_100, 29_999], [begin, 39_000]]), None, None];
        assert_eq!(overlapping_of(&list, &tests, &logs(29_998)), 1);
        assert_eq!(overlapping_of(&list, &tests, &logs(30_000)), 0);
    }

    #[test]
    fn a_resource_carries_as_many_as_it_may() {
        let tests =
            |list: &HostList| [test(list, [0, 1], [20_000, 30_000]), test(list, [2, 3], [20_000, 30_000])];
        let logs = [None, log(&[[20_100, 29_900]]), None, log(&[[21_000, 29_000]])];
        let cell = |capacity: u32| {
            list(&format!("[[resource]]\nname = \"cell\"\nhosts = [\"h0\", \"h2\"]\ncapacity = {capacity}\n"))
        };
        let (one, two) = (cell(1), cell(2));
        assert_eq!(overlapping_of(&one, &tests(&one), &logs), 1);
        assert_eq!(overlapping_of(&two, &tests(&two), &logs), 0);
    }

    #[test]
    fn tests_without_a_log_are_counted() {
        let list = list("");
        let tests = [test(&list, [0, 1], [20_000, 30_000]), test(&list, [0, 2], [30_000, 40_000])];
        let served = compare_logs(&list, &tests, &[None, log(&[[20_500, 29_000]]), None, None]).unwrap();
        assert_eq!((served.throughput_tests, served.unlogged, served.overlapping), (1, 1, 0));
        assert_eq!(compare_logs(&list, &[], &[None, None, None, None]), None);
    }

    #[test]
    fn foreign_numbers_do_no_harm() {
        let list = list("");
        let tests = [test(&list, [0, 1], [20_000, 30_000])];
        let reading = ClockReading::new(Time(u64::MAX), Time(0), 0);
        let clock = [ClockReading::new(Time(0), Time(u64::MAX), u64::MAX), reading];
        let loads = vec![[0, u64::MAX], [5, 5], [u64::MAX, 0], [u64::MAX - 1, u64::MAX]];
        let log = ServerLog::new(clock, loads);
        assert_eq!(log.loads.len(), 2);
        assert!(compare_logs(&list, &tests, &[None, Some(log), None, None]).is_some());
    }
}
