//! Whole meshes without processes: a test plays the agents, on a clock of its own.

use std::collections::BTreeSet;

use serde_json::{Map, json};

use super::*;
use crate::mesh::{MeshFacts, earlier_tests, mesh_run};
use linkgauge_model::run::{BlamedPart, MeshPair};

const SECOND: u64 = 1_000_000_000;

fn list(hosts: usize, more: &str) -> HostList {
    let host = |index: usize| format!("[[host]]\nname = \"h{index}\"\naddress = \"192.0.2.{index}\"\n");
    let text = format!(
        "test.latency.time = \"5s\"\ntest.throughput.time = \"10s\"\n{}{more}",
        (0..hosts).map(host).collect::<String>()
    );
    HostList::from_toml(&text).unwrap()
}

fn options(sharing: Sharing) -> MeshOptions {
    MeshOptions { sharing, mesh_token: "mesh".to_owned(), server_token: Some("server".to_owned()) }
}

fn coordinator(list: HostList) -> Coordinator {
    Coordinator::new(list, options(Sharing::Exclusive), BTreeMap::new(), Time(0))
}

/// Behaviour of an agent.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Behaviour {
    Honest,
    /// Ends during the test after this number of results.
    EndsAfter(usize),
    /// Answers no order after this number of results.
    SilentAfter(usize),
    /// Sends the result of another test.
    Lies,
    /// Answers what was not asked for.
    Babbles,
    Refuses,
    OtherVersion,
    NeverStarts,
    /// Half of the rate of the others.
    Slow,
    /// Reports nothing of what its server has served.
    HidesLog,
}

/// Event at a time.
enum Due {
    Answer(usize, Answer),
    End(usize),
}

struct Simulation {
    coordinator: Coordinator,
    behaviours: Vec<Behaviour>,
    results: Vec<usize>,
    ended: BTreeSet<usize>,
    now: u64,
    due: BTreeMap<(u64, usize), Due>,
    serial: usize,
    /// Begin and end of the loads that each server has served, on the clock of its agent.
    served: Vec<Vec<[u64; 2]>>,
    seen: Simulated,
}

/// The clock of an agent, which differs from that of the coordinator.
fn agent_clock(host: usize, now: u64) -> u64 {
    now + 1000 * SECOND * (host as u64 + 1)
}

/// Record of what the agents saw.
#[derive(Default)]
struct Simulated {
    /// Throughput tests: their hosts, begin and end.
    loads: Vec<([usize; 2], u64, u64)>,
    orders: Vec<(usize, Order)>,
    ended: BTreeSet<usize>,
    elapsed: u64,
}

impl Simulated {
    /// Throughput tests that ran on one host at the same time.
    fn overlaps(&self) -> usize {
        let overlap = |a: &([usize; 2], u64, u64), b: &([usize; 2], u64, u64)| {
            a.0.iter().any(|host| b.0.contains(host)) && a.1 < b.2 && b.1 < a.2
        };
        let pairs = self.loads.iter().enumerate();
        pairs.map(|(index, a)| self.loads[index + 1..].iter().filter(|b| overlap(a, b)).count()).sum()
    }

    fn measured(&self) -> usize {
        self.orders.iter().filter(|(_, order)| matches!(order, Order::Measure { .. })).count()
    }
}

impl Simulation {
    pub fn new(coordinator: Coordinator, behaviours: Vec<Behaviour>) -> Simulation {
        let mut simulation = Simulation {
            results: vec![0; behaviours.len()],
            ended: BTreeSet::new(),
            now: 0,
            due: BTreeMap::new(),
            serial: 0,
            served: vec![Vec::new(); behaviours.len()],
            seen: Simulated::default(),
            coordinator,
            behaviours,
        };
        for host in 0..simulation.behaviours.len() {
            let version = match simulation.behaviours[host] {
                Behaviour::NeverStarts => continue,
                Behaviour::OtherVersion => PROTOCOL_VERSION + 1,
                _ => PROTOCOL_VERSION,
            };
            let ready = Answer::Ready { version, tool: "linkgauge test".to_owned(), environment: Map::new() };
            if simulation.coordinator.list.hosts[host].has_agent() {
                simulation.later(SECOND, Due::Answer(host, ready));
            }
        }
        simulation
    }

    fn later(&mut self, delay: u64, due: Due) {
        self.serial += 1;
        self.due.insert((self.now + delay, self.serial), due);
    }

    /// Runs until every test has an outcome.
    fn run(mut self) -> (Run, Simulated) {
        while !self.step() {}
        self.seen.elapsed = self.now;
        self.seen.ended = self.ended;
        (document(self.coordinator), self.seen)
    }

    /// Returns whether all tests have an outcome.
    fn step(&mut self) -> bool {
        while let Some(action) = self.coordinator.next_action() {
            self.perform(action);
        }
        if self.coordinator.is_over() {
            return true;
        }
        let deadline = self.coordinator.next_deadline().map(|deadline| deadline.0);
        let next = self.due.first_key_value().map(|((at, _), _)| *at);
        match (next, deadline) {
            (Some(at), deadline) if deadline.is_none_or(|deadline| at <= deadline) => {
                self.now = at;
                match self.due.pop_first().unwrap().1 {
                    Due::Answer(host, answer) => self.coordinator.on_answer(host, answer, Time(self.now)),
                    Due::End(host) => self.coordinator.on_end(host, "it ended".to_owned(), Time(self.now)),
                }
            }
            (_, Some(deadline)) => {
                self.now = deadline;
                self.coordinator.on_time(Time(deadline));
            }
            _ => panic!("nothing happens any more"),
        }
        false
    }

    fn perform(&mut self, action: CoordinatorAction) {
        match action {
            CoordinatorAction::End { host } => {
                self.ended.insert(host);
            }
            CoordinatorAction::Send { host, order } => {
                assert!(!self.ended.contains(&host), "an order to an agent that was ended");
                self.seen.orders.push((host, order.clone()));
                self.obey(host, order);
            }
        }
    }

    fn obey(&mut self, host: usize, order: Order) {
        let (id, url, test) = match order {
            Order::Serve { id, .. } => {
                let now_ns = agent_clock(host, self.now + SECOND / 20);
                return self
                    .later(SECOND / 10, Due::Answer(host, Answer::Serving { id, port: 4000, now_ns }));
            }
            Order::ReportLoads { .. } if self.behaviours[host] == Behaviour::HidesLog => return,
            Order::ReportLoads { id } => {
                let now_ns = agent_clock(host, self.now + SECOND / 20);
                let loads = self.served[host].clone();
                let answer = Answer::ServedLoads { id, now_ns, loads, left_out: 0 };
                return self.later(SECOND / 10, Due::Answer(host, answer));
            }
            Order::Measure { id, url, test, .. } => (id, url, test),
            Order::Stop {} => return,
        };
        let took = test.time_ms() * 1_000_000 + SECOND / 5;
        let other = url.rsplit('.').next().and_then(|last| last.split(':').next()?.parse().ok()).unwrap();
        let is_load = matches!(test, TestOrder::Throughput { .. });
        if is_load {
            self.seen.loads.push(([host, other], self.now, self.now + took));
            let served = [self.now + SECOND / 20, self.now + took - SECOND / 20];
            self.served[other].push(served.map(|at| agent_clock(other, at)));
        }
        let is_slow = [host, other].iter().any(|host| self.behaviours[*host] == Behaviour::Slow);
        let rate = if is_slow { 4e8 } else { 9e8 } * (1.0 + 0.001 * (id % 7) as f64);
        let answer = match self.behaviours[host] {
            Behaviour::EndsAfter(limit) if self.results[host] >= limit => {
                return self.later(took / 2, Due::End(host));
            }
            Behaviour::SilentAfter(limit) if self.results[host] >= limit => return,
            Behaviour::Refuses => Answer::Refused { id, why: "not here".to_owned() },
            Behaviour::Babbles => Answer::Serving { id: 77_777, port: 1, now_ns: 0 },
            Behaviour::Lies => measured(id, "connect", took, rate),
            _ => measured(id, if is_load { "throughput" } else { "latency" }, took, rate),
        };
        self.results[host] += 1;
        self.later(took, Due::Answer(host, answer));
    }
}

/// The result of a test.
fn measured(id: u64, workload: &str, elapsed_ns: u64, rate: f64) -> Answer {
    let times = json!({
        "count": 100, "min": 900_000, "mean": 1e6, "standard_deviation": 1e4, "max": 1_200_000,
        "mean_fastest_95_percent": 1e6, "p50": 1_000_000, "p99": 1_100_000, "later_than_ms": {},
    });
    let mut case = json!({
        "endpoint": "tcp://192.0.2.1:4000", "protocol": "linkgauge", "workload": workload, "direction": "send",
        "message_bytes": 64, "ports": 1, "parallel": 1, "method": "test", "complete": true,
        "elapsed_ns": elapsed_ns, "sent": 100, "received": 100, "lost": 0, "requested": {}, "effective": {},
        "placement": {}, "warnings": [],
    });
    let (name, value) =
        if workload == "latency" { ("latency_ns", times) } else { ("throughput_bps", json!(rate)) };
    case[name] = value;
    let run = json!({
        "schema": "linkgauge.run.v1", "id": "x", "tool": "t", "started": "2026-11-23T00:00:00Z", "elapsed_ns": 1,
        "cases": [case], "environment": {"client": {}}, "warnings": [],
    });
    Answer::Measured { id, run: Box::new(serde_json::from_value(run).unwrap()) }
}

fn document(coordinator: Coordinator) -> Run {
    let facts = MeshFacts {
        started: "2026-11-23T00:00:00Z".parse().unwrap(),
        elapsed: Duration::from_secs(1),
        interrupted: false,
        environment: Map::new(),
        resumed_from: None,
    };
    mesh_run(coordinator.into_parts(), facts)
}

/// The names of the hosts of the pairs without a complete result.
fn failed(run: &Run) -> Vec<(u32, u32)> {
    let pairs = run.mesh.as_ref().unwrap().pairs.iter();
    pairs.filter(|pair| pair.failure.is_some()).map(|pair| (pair.from, pair.to)).collect()
}

#[test]
fn twelve_hosts_are_near_the_least_time_and_never_overlap() {
    let (run, seen) = Simulation::new(coordinator(list(12, "")), vec![Behaviour::Honest; 12]).run();
    let mesh = run.mesh.as_ref().unwrap();
    assert_eq!((run.cases.len(), mesh.pairs.len(), seen.loads.len()), (264, 132, 132));
    assert!(run.is_complete());
    assert_eq!(seen.overlaps(), 0);
    assert_eq!(mesh.lower_bound_ns, (5 + 22 * 10) * SECOND);
    let ratio = mesh.tests_elapsed_ns as f64 / mesh.lower_bound_ns as f64;
    assert!(ratio <= 1.15, "{ratio:.3}");
    assert!(mesh.pairs.iter().all(|pair| !pair.is_under_load()));
    let served = mesh.served.as_ref().unwrap();
    assert_eq!((served.throughput_tests, served.overlapping, served.unlogged), (132, 0, 0));
    assert_eq!(served.clock_error_ns, SECOND / 20);
    assert_eq!((mesh.latency_blame.len(), mesh.throughput_blame.len()), (0, 0));
    assert!(seen.ended.is_empty());
}

#[test]
fn a_host_that_fails_costs_only_its_pairs() {
    for behaviour in [
        Behaviour::EndsAfter(3),
        Behaviour::SilentAfter(3),
        Behaviour::Lies,
        Behaviour::Babbles,
        Behaviour::OtherVersion,
        Behaviour::NeverStarts,
    ] {
        let mut behaviours = vec![Behaviour::Honest; 6];
        behaviours[2] = behaviour;
        let (run, seen) = Simulation::new(coordinator(list(6, "")), behaviours).run();
        let failed = failed(&run);
        assert!(
            !failed.is_empty() && failed.iter().all(|(from, to)| *from == 2 || *to == 2),
            "{behaviour:?}"
        );
        let mesh = run.mesh.as_ref().unwrap();
        assert!(mesh.hosts[2].lost.is_some() && !run.is_complete(), "{behaviour:?}");
        assert_eq!(mesh.hosts.iter().filter(|host| host.lost.is_some()).count(), 1, "{behaviour:?}");
        assert_eq!((seen.overlaps(), seen.ended.len()), (0, 1), "{behaviour:?}");
        // The others wait for it once.
        assert!(seen.elapsed <= (60 + 5 + 10 * 10 + 40) * SECOND, "{behaviour:?}: {}", seen.elapsed / SECOND);
    }
}

#[test]
fn a_refusal_is_the_failure_of_a_pair_and_not_of_a_host() {
    let mut behaviours = vec![Behaviour::Honest; 4];
    behaviours[1] = Behaviour::Refuses;
    let (run, _) = Simulation::new(coordinator(list(4, "")), behaviours).run();
    assert_eq!(failed(&run), [(1, 0), (1, 2), (1, 3)]);
    let mesh = run.mesh.as_ref().unwrap();
    assert!(mesh.hosts.iter().all(|host| host.lost.is_none()));
    assert_eq!(mesh.pairs.iter().find_map(|pair| pair.failure.as_deref()), Some("not here"));
}

#[test]
fn tests_that_overlap_are_marked() {
    let options = options(Sharing::Ignored);
    let coordinator = Coordinator::new(list(4, ""), options, BTreeMap::new(), Time(0));
    let (run, seen) = Simulation::new(coordinator, vec![Behaviour::Honest; 4]).run();
    let mesh = run.mesh.as_ref().unwrap();
    assert!(!mesh.exclusive);
    // Hosts stay exclusive.
    assert_eq!(seen.overlaps(), 0);
    assert!(mesh.pairs.iter().all(MeshPair::is_under_load));
    assert_eq!(mesh.served.as_ref().unwrap().overlapping, 0);
    let first = &mesh.pairs[0];
    for load in &first.under_load_of {
        let load = mesh.pairs.iter().find(|pair| pair.throughput_case == Some(*load)).unwrap();
        assert!([load.from, load.to].iter().any(|host| [first.from, first.to].contains(host)));
    }
}

#[test]
fn a_resumed_mesh_measures_what_is_missing() {
    let mut behaviours = vec![Behaviour::Honest; 5];
    behaviours[4] = Behaviour::EndsAfter(5);
    let (first, _) = Simulation::new(coordinator(list(5, "")), behaviours).run();
    let missing = 2 * 20 - first.cases.len();
    assert!(missing > 0 && !first.is_complete());
    let list = list(5, "");
    let earlier = earlier_tests(&list, &first);
    assert_eq!(earlier.len(), first.cases.len());
    assert_eq!(first.mesh.as_ref().unwrap().tests, list.describe_tests());
    assert!(list.describe_tests().contains("rates over "), "{}", list.describe_tests());
    let coordinator = Coordinator::new(list, options(Sharing::Exclusive), earlier, Time(0));
    let (second, seen) = Simulation::new(coordinator, vec![Behaviour::Honest; 5]).run();
    assert!(second.is_complete());
    assert_eq!((second.cases.len(), seen.measured()), (40, missing));
}

#[test]
fn a_slow_host_is_blamed() {
    let mut behaviours = vec![Behaviour::Honest; 8];
    behaviours[5] = Behaviour::Slow;
    let (run, _) = Simulation::new(coordinator(list(8, "")), behaviours).run();
    let mesh = run.mesh.as_ref().unwrap();
    assert_eq!(mesh.throughput_blame.len(), 1);
    assert_eq!(mesh.throughput_blame[0].part, BlamedPart::Host { host: 5 });
    assert_eq!(mesh.throughput_blame[0].pairs, 14);
}

#[test]
fn a_server_without_an_agent_is_measured_by_the_others() {
    let server = "[[host]]\nname = \"s\"\nserver = \"tcp://192.0.2.3:7100\"\n";
    let list = list(3, server);
    let (run, seen) = Simulation::new(coordinator(list), vec![Behaviour::Honest; 4]).run();
    assert!(run.is_complete(), "{:?}", failed(&run));
    assert_eq!(run.cases.len(), 24);
    let served = run.mesh.as_ref().unwrap().served.as_ref().unwrap();
    assert_eq!((served.throughput_tests, served.unlogged), (6, 6));
    let to_server = seen.orders.iter().filter_map(|(host, order)| match order {
        Order::Measure { url, token, test: TestOrder::Throughput { direction, .. }, .. }
            if url == "tcp://192.0.2.3:7100" =>
        {
            assert_eq!(token.as_deref(), Some("server"));
            Some((*host, *direction))
        }
        _ => None,
    });
    let mut to_server: Vec<(usize, TestDirection)> = to_server.collect();
    to_server.sort_by_key(|(host, direction)| (*host, *direction == TestDirection::Send));
    let both = [TestDirection::Receive, TestDirection::Send];
    let expected: Vec<_> = (0..3).flat_map(|host| both.map(|direction| (host, direction))).collect();
    assert_eq!(to_server, expected);
    assert!(seen.orders.iter().all(|(host, _)| *host < 3), "an order to a host without an agent");
}

#[test]
fn an_interrupt_ends_all_agents_and_keeps_what_was_measured() {
    let mut simulation = Simulation::new(coordinator(list(6, "")), vec![Behaviour::Honest; 6]);
    while simulation.now < 30 * SECOND {
        assert!(!simulation.step());
    }
    let now = Time(simulation.now);
    simulation.coordinator.interrupt(now);
    assert!(simulation.coordinator.is_over());
    assert!(simulation.step());
    assert_eq!(simulation.ended.len(), 6);
    let run = document(simulation.coordinator);
    assert!(run.cases.len() >= 30 && !run.is_complete());
}

#[test]
fn shared_resources_carry_one_test_at_a_time() {
    let cell = "[[resource]]\nname = \"cell\"\nhosts = [\"h0\", \"h1\", \"h2\", \"h3\"]\n";
    let (run, seen) = Simulation::new(coordinator(list(4, cell)), vec![Behaviour::Honest; 4]).run();
    assert!(run.is_complete());
    let mut loads = seen.loads.clone();
    loads.sort_by_key(|(_, began, _)| *began);
    assert!(loads.windows(2).all(|two| two[0].2 <= two[1].1), "two tests in one cell");
    assert_eq!(run.mesh.unwrap().lower_bound_ns, (5 + 12 * 10) * SECOND);
}

#[test]
fn logs_of_servers_show_tests_that_shared_a_resource() {
    let cell = "[[resource]]\nname = \"cell\"\nhosts = [\"h0\", \"h2\"]\n";
    for (sharing, is_shared) in [(Sharing::Exclusive, false), (Sharing::Ignored, true)] {
        let coordinator = Coordinator::new(list(4, cell), options(sharing), BTreeMap::new(), Time(0));
        let (run, _) = Simulation::new(coordinator, vec![Behaviour::Honest; 4]).run();
        let served = run.mesh.unwrap().served.unwrap();
        assert_eq!((served.throughput_tests, served.overlapping > 0), (12, is_shared), "{sharing:?}");
    }
}

#[test]
fn a_host_without_a_log_is_not_lost() {
    let mut behaviours = vec![Behaviour::Honest; 4];
    behaviours[2] = Behaviour::HidesLog;
    let (run, seen) = Simulation::new(coordinator(list(4, "")), behaviours).run();
    assert!(run.is_complete() && seen.ended.is_empty());
    let mesh = run.mesh.unwrap();
    assert!(mesh.hosts.iter().all(|host| host.lost.is_none()));
    let served = mesh.served.unwrap();
    assert_eq!((served.throughput_tests, served.overlapping, served.unlogged), (9, 0, 3));
}

#[test]
fn a_load_that_failed_disturbs_as_one_that_did_not() {
    let mut behaviours = vec![Behaviour::Honest; 4];
    // It is a client in the first round.
    behaviours[0] = Behaviour::EndsAfter(0);
    let coordinator = Coordinator::new(list(4, ""), options(Sharing::Ignored), BTreeMap::new(), Time(0));
    let (run, _) = Simulation::new(coordinator, behaviours).run();
    let mesh = run.mesh.unwrap();
    let disturbed: Vec<&MeshPair> = mesh.pairs.iter().filter(|pair| pair.under_failed_loads > 0).collect();
    assert!(!disturbed.is_empty());
    assert!(disturbed.iter().all(|pair| pair.is_under_load()));
}
