//! Carries out a mesh: which agent gets which order when, what each answer means, and what a silent host costs.
//!
//! The coordinator is a state machine without I/O, so a test can play all agents. Agents are not trusted: an answer that belongs
//! to no order, or to another test, ends that agent. A host that is lost costs only its own pairs.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::dispatch::Dispatcher;
use super::hosts::{HostList, Reach, Sharing, url_of};
use super::outcome::{PairOutcome, TestKind, TestRecord};
use super::served::{ClockReading, ServerLog};
use super::timetable::Timetable;
use super::wire::{Answer, Order, PROTOCOL_VERSION, TestDirection, TestOrder};
use linkgauge_engine::workload::{latency, throughput};
use linkgauge_model::clock::Time;
use linkgauge_model::run::Run;

/// Time until an agent must have started; ssh may be slow.
const MAX_START_TIME: Duration = Duration::from_secs(60);

/// Time until a server must listen.
const MAX_SERVE_TIME: Duration = Duration::from_secs(15);

/// Time in which an agent must report what its server has served.
const MAX_REPORT_TIME: Duration = Duration::from_secs(10);

/// Time beyond its length that a test may take: connecting, waiting for late data, sending the result.
const MAX_TEST_OVERHEAD: Duration = Duration::from_secs(15);

/// Next action of the caller.
#[derive(Debug, Clone, PartialEq)]
pub enum CoordinatorAction {
    /// Sends an order to the agent of a host.
    Send {
        /// Index of the host.
        host: usize,
        /// The order.
        order: Order,
    },
    /// Ends the agent of a host. Later answers of it do not count.
    End {
        /// Index of the host.
        host: usize,
    },
}

/// Options of a mesh.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeshOptions {
    /// Whether tests keep clear of each other. If not, latency and throughput are measured at the same time.
    pub sharing: Sharing,
    /// The secret between the agents of this mesh.
    pub mesh_token: String,
    /// The secret of servers without an agent.
    pub server_token: Option<String>,
}

/// Progress of a mesh.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MeshProgress {
    /// Hosts that are not ready yet.
    pub starting: usize,
    /// Tests that run.
    pub running: usize,
    /// Tests that are over.
    pub done: usize,
    /// Tests without a complete result among them.
    pub failed: usize,
    /// All tests.
    pub total: usize,
    /// Time until all are over, if each takes as long as planned.
    pub remaining: Duration,
}

/// State of a host.
#[derive(Debug, Clone, PartialEq)]
enum HostState {
    /// The agent has not sent its first line.
    Starting,
    /// The agent starts a server.
    Preparing,
    /// The server listens here.
    Up { url: String },
    /// Host that takes no part any more.
    Lost { why: String },
}

/// An order without an answer.
#[derive(Debug, Clone, Copy)]
struct Pending {
    host: usize,
    purpose: Purpose,
    sent: Time,
    deadline: Time,
}

/// Purpose of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Serve,
    /// A test, by its kind and its pair.
    Test(TestKind, usize),
    ReportLoads,
}

impl Pending {
    fn test(&self) -> Option<(TestKind, usize)> {
        match self.purpose {
            Purpose::Test(kind, pair) => Some((kind, pair)),
            Purpose::Serve | Purpose::ReportLoads => None,
        }
    }
}

/// The tests of one kind.
struct TestPhase {
    kind: TestKind,
    dispatcher: Dispatcher,
    time: Duration,
}

/// Carries out a mesh.
pub struct Coordinator {
    list: HostList,
    options: MeshOptions,
    hosts: Vec<HostState>,
    /// The program of each agent.
    tools: Vec<Option<String>>,
    /// The clock of each agent when its server began to listen.
    clocks: Vec<Option<ClockReading>>,
    /// Loads that the server of each agent has served.
    logs: Vec<Option<ServerLog>>,
    /// Whether the agents were ordered to report these loads, or there is nothing to report.
    has_asked_logs: bool,
    stages: Vec<TestPhase>,
    /// Records of the tests, by kind and pair.
    records: BTreeMap<(TestKind, usize), TestRecord>,
    pending: BTreeMap<u64, Pending>,
    next_id: u64,
    start_deadline: Time,
    has_begun: bool,
    lower_bound_ns: u64,
    actions: VecDeque<CoordinatorAction>,
}

impl Coordinator {
    /// A mesh that begins now. `earlier` holds complete results that are not measured again, by kind and index of the pair.
    pub fn new(
        list: HostList,
        options: MeshOptions,
        earlier: BTreeMap<(TestKind, usize), TestRecord>,
        now: Time,
    ) -> Coordinator {
        let state = |host: &super::hosts::Host| match &host.reach {
            Reach::Server(url) => HostState::Up { url: url.as_str().to_owned() },
            _ => HostState::Starting,
        };
        let mut coordinator = Coordinator {
            hosts: list.hosts.iter().map(state).collect(),
            tools: vec![None; list.hosts.len()],
            clocks: vec![None; list.hosts.len()],
            logs: vec![None; list.hosts.len()],
            has_asked_logs: false,
            stages: Vec::new(),
            records: earlier,
            pending: BTreeMap::new(),
            next_id: 1,
            start_deadline: now + MAX_START_TIME,
            has_begun: false,
            lower_bound_ns: 0,
            actions: VecDeque::new(),
            options,
            list,
        };
        coordinator.plan();
        coordinator.advance(now);
        coordinator
    }

    /// Plans the tests that have no result yet.
    fn plan(&mut self) {
        if let Some(test) = self.list.latency {
            let (demand, pairs) = self.list.latency_demand(test.time);
            self.add_stage(TestKind::Latency, demand, &pairs, test.time);
        }
        if let Some(test) = self.list.throughput {
            let (demand, pairs) = self.list.throughput_demand(self.options.sharing, test.time);
            self.add_stage(TestKind::Throughput, demand, &pairs, test.time);
        }
    }

    fn add_stage(
        &mut self,
        kind: TestKind,
        demand: super::demand::Demand,
        pairs: &[super::timetable::HostPair],
        time: Duration,
    ) {
        let timetable = Timetable::new(&demand, pairs);
        let mut dispatcher = Dispatcher::new(demand, &timetable);
        for index in 0..self.list.pairs.len() {
            match self.records.contains_key(&(kind, index)) {
                true => dispatcher.finish(index as u32),
                false => drop(self.records.insert((kind, index), TestRecord::default())),
            }
        }
        // Of the tests that are left: a resumed mesh has fewer.
        let bound = match dispatcher.unfinished() == self.list.pairs.len() {
            true => timetable.lower_bound_ns,
            false if dispatcher.unfinished() == 0 => 0,
            false => dispatcher.remaining_ns().max(time.as_nanos() as u64),
        };
        self.lower_bound_ns = match self.options.sharing {
            Sharing::Exclusive => self.lower_bound_ns.saturating_add(bound),
            Sharing::Ignored => self.lower_bound_ns.max(bound),
        };
        self.stages.push(TestPhase { kind, dispatcher, time });
    }

    /// The next action, if there is one.
    pub fn next_action(&mut self) -> Option<CoordinatorAction> {
        self.actions.pop_front()
    }

    /// Time at which [`Coordinator::on_time`] is due.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let of_orders = self.pending.values().map(|pending| pending.deadline);
        let of_start = self.hosts.contains(&HostState::Starting).then_some(self.start_deadline);
        of_orders.chain(of_start).min()
    }

    /// Whether every test has an outcome, and the servers have reported what they served.
    pub fn is_over(&self) -> bool {
        let is_report = |order: &Pending| order.purpose == Purpose::ReportLoads;
        let has_logs = self.has_asked_logs && !self.pending.values().any(is_report);
        self.are_tests_over() && (has_logs || !self.has_begun)
    }

    fn are_tests_over(&self) -> bool {
        self.stages.iter().all(|stage| stage.dispatcher.unfinished() == 0)
    }

    /// Progress of the mesh.
    pub fn progress(&self) -> MeshProgress {
        let over = || self.records.values().filter(|record| record.is_over());
        let remaining = self.stages.iter().map(|stage| stage.dispatcher.remaining_ns());
        let remaining = match self.options.sharing {
            Sharing::Exclusive => remaining.sum(),
            Sharing::Ignored => remaining.max().unwrap_or(0),
        };
        let is_starting = |host: &&HostState| matches!(host, HostState::Starting | HostState::Preparing);
        MeshProgress {
            starting: self.hosts.iter().filter(is_starting).count(),
            running: self.pending.values().filter(|pending| pending.test().is_some()).count(),
            done: over().count(),
            failed: over().filter(|record| record.failure().is_some()).count(),
            total: self.records.len(),
            remaining: Duration::from_nanos(remaining),
        }
    }

    /// An agent sent an answer.
    pub fn on_answer(&mut self, host: usize, answer: Answer, now: Time) {
        let state = self.hosts[host].clone();
        match (answer, state) {
            (_, HostState::Lost { .. }) => {}
            (Answer::Ready { version: PROTOCOL_VERSION, tool, .. }, HostState::Starting) => {
                self.tools[host] = Some(tool.chars().take(100).collect());
                self.hosts[host] = HostState::Preparing;
                let order = |id| Order::Serve {
                    id,
                    transport: self.list.transport.clone(),
                    port: self.list.hosts[host].port,
                    token: self.options.mesh_token.clone(),
                };
                let (id, order) = (self.next_id, order(self.next_id));
                self.send(host, (id, order), Purpose::Serve, now + MAX_SERVE_TIME, now);
            }
            (Answer::Ready { tool, .. }, HostState::Starting) => {
                let tool: String = tool.chars().take(100).collect();
                let why = format!("its agent ({tool}) does not fit: install the same version on all hosts");
                self.lose(host, why, now);
            }
            (Answer::Serving { id, port, now_ns }, HostState::Preparing)
                if self.is_pending(id, host, Purpose::Serve) =>
            {
                self.clocks[host] =
                    self.pending.remove(&id).map(|order| ClockReading::new(order.sent, now, now_ns));
                match url_of(&self.list.transport, &self.list.hosts[host].address, port) {
                    Ok(url) => self.hosts[host] = HostState::Up { url: url.as_str().to_owned() },
                    Err(error) => self.lose(host, error.to_string(), now),
                }
            }
            (Answer::ServedLoads { id, now_ns, loads, .. }, _)
                if self.is_pending(id, host, Purpose::ReportLoads) =>
            {
                let last = self.pending.remove(&id).map(|order| ClockReading::new(order.sent, now, now_ns));
                let clock = self.clocks[host].zip(last);
                self.logs[host] = clock.map(|(first, last)| ServerLog::new([first, last], loads));
            }
            // It came too late.
            (Answer::ServedLoads { .. }, _) if self.has_asked_logs => {}
            (Answer::Refused { id, why }, _) if self.pending.get(&id).is_some_and(|one| one.host == host) => {
                let why: String = why.chars().take(500).collect();
                match self.pending.remove(&id) {
                    Some(Pending { purpose: Purpose::Test(kind, pair), sent, .. }) => {
                        self.end_test((kind, pair), PairOutcome::Failed(why), Some((sent, now)));
                    }
                    Some(Pending { purpose: Purpose::ReportLoads, .. }) | None => {}
                    Some(Pending { purpose: Purpose::Serve, .. }) => self.lose(host, why, now),
                }
            }
            (Answer::Measured { id, run }, _)
                if self.pending.get(&id).is_some_and(|one| one.host == host) =>
            {
                self.on_measured(host, id, *run, now);
            }
            _ => self.lose(host, "its agent sent an answer that belongs to no order".to_owned(), now),
        }
        self.advance(now);
    }

    fn is_pending(&self, id: u64, host: usize, purpose: Purpose) -> bool {
        self.pending.get(&id).is_some_and(|pending| pending.host == host && pending.purpose == purpose)
    }

    fn on_measured(&mut self, host: usize, id: u64, run: Run, now: Time) {
        let Some(Pending { purpose: Purpose::Test(kind, pair), sent, .. }) = self.pending.get(&id).copied()
        else {
            return self.lose(host, "its agent sent a result instead of a port".to_owned(), now);
        };
        let workload = match kind {
            TestKind::Latency => latency::WORKLOAD.name,
            TestKind::Throughput => throughput::WORKLOAD.name,
        };
        let took = now.since(sent) + Duration::from_secs(1);
        let fits = match run.cases.as_slice() {
            [case] => case.workload == workload && u128::from(case.elapsed_ns) <= took.as_nanos(),
            _ => false,
        };
        if !fits {
            return self.lose(host, "its agent sent the result of another test".to_owned(), now);
        }
        self.pending.remove(&id);
        let mut cases = run.cases;
        let Some(case) = cases.pop() else { return };
        self.end_test((kind, pair), PairOutcome::Measured(Box::new(case)), Some((sent, now)));
    }

    /// The agent of a host has ended.
    pub fn on_end(&mut self, host: usize, why: String, now: Time) {
        self.lose(host, why, now);
        self.advance(now);
    }

    /// Deadlines may have passed.
    pub(crate) fn on_time(&mut self, now: Time) {
        if now >= self.start_deadline {
            for host in 0..self.hosts.len() {
                if self.hosts[host] == HostState::Starting {
                    let seconds = MAX_START_TIME.as_secs();
                    let why = format!("its agent did not start within {seconds} s. Try its command by hand");
                    self.lose(host, why, now);
                }
            }
        }
        // A host whose tests are over is not lost.
        self.pending.retain(|_, order| order.purpose != Purpose::ReportLoads || now < order.deadline);
        let late: Vec<Pending> =
            self.pending.values().filter(|pending| now >= pending.deadline).copied().collect();
        for pending in late {
            let waited = now.since(pending.sent).as_secs();
            self.lose(pending.host, format!("its agent did not answer for {waited} s"), now);
        }
        self.advance(now);
    }

    /// Stops all tests: they have no result.
    pub(crate) fn interrupt(&mut self, now: Time) {
        for order in std::mem::take(&mut self.pending).into_values() {
            if let Some(record) = order.test().and_then(|test| self.records.get_mut(&test)) {
                record.interval = Some((order.sent, now));
            }
        }
        self.has_asked_logs = true;
        for stage in &mut self.stages {
            for index in 0..self.list.pairs.len() {
                stage.dispatcher.finish(index as u32);
            }
        }
        for record in self.records.values_mut().filter(|record| !record.is_over()) {
            record.outcome = Some(PairOutcome::Failed("interrupted".to_owned()));
        }
        self.actions.clear();
        self.actions.extend((0..self.hosts.len()).map(|host| CoordinatorAction::End { host }));
    }

    /// The list, the program of each agent, why hosts were lost, and the tests.
    pub fn into_parts(self) -> MeshParts {
        let lost = self.hosts.into_iter().map(|host| match host {
            HostState::Lost { why } => Some(why),
            _ => None,
        });
        MeshParts {
            lost: lost.collect(),
            list: self.list,
            tools: self.tools,
            logs: self.logs,
            records: self.records,
            sharing: self.options.sharing,
            lower_bound_ns: self.lower_bound_ns,
        }
    }

    /// A host takes no part any more. Tests that another host makes to it end by themselves.
    fn lose(&mut self, host: usize, why: String, now: Time) {
        if matches!(self.hosts[host], HostState::Lost { .. }) {
            return;
        }
        self.actions.push_back(CoordinatorAction::End { host });
        let name = &self.list.hosts[host].name;
        let failure = format!("'{name}' was lost: {why}");
        self.hosts[host] = HostState::Lost { why };
        let own: Vec<u64> =
            self.pending.iter().filter(|(_, one)| one.host == host).map(|(id, _)| *id).collect();
        let stopped: Vec<Pending> = own.iter().filter_map(|id| self.pending.remove(id)).collect();
        for order in stopped {
            let Some(test) = order.test() else { continue };
            self.end_test(test, PairOutcome::Failed(failure.clone()), Some((order.sent, now)));
        }
        let running: Vec<(TestKind, usize)> = self.pending.values().filter_map(Pending::test).collect();
        let waits = |((kind, pair), record): (&(TestKind, usize), &TestRecord)| {
            let is_of_host = self.list.pairs[*pair].contains(&host);
            (is_of_host && !record.is_over() && !running.contains(&(*kind, *pair))).then_some((*kind, *pair))
        };
        let left: Vec<(TestKind, usize)> = self.records.iter().filter_map(waits).collect();
        for test in left {
            self.end_test(test, PairOutcome::Failed(failure.clone()), None);
        }
    }

    /// Ends a test. `interval` lasts from the order to its answer, if there was an order.
    fn end_test(
        &mut self,
        (kind, pair): (TestKind, usize),
        outcome: PairOutcome,
        interval: Option<(Time, Time)>,
    ) {
        if let Some(record) = self.records.get_mut(&(kind, pair)) {
            *record = TestRecord { outcome: Some(outcome), interval };
        }
        if let Some(stage) = self.stages.iter_mut().find(|stage| stage.kind == kind) {
            stage.dispatcher.finish(pair as u32);
        }
    }

    /// Sends the orders of all tests that can begin.
    fn advance(&mut self, now: Time) {
        if !self.has_begun {
            let is_settled = |host: &HostState| matches!(host, HostState::Up { .. } | HostState::Lost { .. });
            self.has_begun = self.hosts.iter().all(is_settled);
        }
        if !self.has_begun {
            return;
        }
        for index in 0..self.stages.len() {
            loop {
                let ready = self.stages[index].dispatcher.take_ready();
                if ready.is_empty() {
                    break;
                }
                let kind = self.stages[index].kind;
                ready.into_iter().for_each(|test| self.begin_test((kind, test as usize), now));
            }
            // One kind after the other, unless tests may disturb each other.
            let is_last =
                self.options.sharing == Sharing::Exclusive && self.stages[index].dispatcher.unfinished() > 0;
            if is_last {
                break;
            }
        }
        if self.are_tests_over() {
            self.ask_logs(now);
        }
    }

    /// Orders the agents to report what their servers have served, once, if there was anything to serve.
    fn ask_logs(&mut self, now: Time) {
        let is_load = |((kind, _), record): (&(TestKind, usize), &TestRecord)| {
            *kind == TestKind::Throughput && record.interval.is_some()
        };
        if std::mem::replace(&mut self.has_asked_logs, true) || !self.records.iter().any(is_load) {
            return;
        }
        for host in 0..self.hosts.len() {
            if self.clocks[host].is_some() && matches!(self.hosts[host], HostState::Up { .. }) {
                let id = self.next_id;
                let order = (id, Order::ReportLoads { id });
                self.send(host, order, Purpose::ReportLoads, now + MAX_REPORT_TIME, now);
            }
        }
    }

    fn begin_test(&mut self, test: (TestKind, usize), now: Time) {
        let from = self.list.pairs[test.1][0];
        let [client, server] = self.list.client_and_server(test.1);
        let url = match (&self.hosts[client], &self.hosts[server]) {
            (HostState::Up { .. }, HostState::Up { url }) => url.clone(),
            // Its tests were ended when it was lost.
            _ => return self.end_test(test, PairOutcome::Failed("a host was lost".to_owned()), None),
        };
        let token = match self.list.hosts[server].has_agent() {
            true => Some(self.options.mesh_token.clone()),
            false => self.options.server_token.clone(),
        };
        let direction = if client == from { TestDirection::Send } else { TestDirection::Receive };
        let Some(order) = self.test_order(test.0, direction) else { return };
        let time =
            self.stages.iter().find(|stage| stage.kind == test.0).map_or(Duration::ZERO, |stage| stage.time);
        let id = self.next_id;
        let order = Order::Measure { id, url, token, test: order };
        self.send(client, (id, order), Purpose::Test(test.0, test.1), now + time + MAX_TEST_OVERHEAD, now);
    }

    fn test_order(&self, kind: TestKind, direction: TestDirection) -> Option<TestOrder> {
        Some(match kind {
            TestKind::Latency => {
                let test = self.list.latency?;
                TestOrder::Latency {
                    time_ms: test.time.as_millis() as u64,
                    per_second: test.per_second,
                    message_bytes: test.message_bytes,
                }
            }
            TestKind::Throughput => {
                let test = self.list.throughput?;
                TestOrder::Throughput {
                    time_ms: test.time.as_millis() as u64,
                    direction,
                    parallel: test.parallel,
                    bits_per_second: test.bits_per_second,
                }
            }
        })
    }

    fn send(&mut self, host: usize, (id, order): (u64, Order), purpose: Purpose, deadline: Time, sent: Time) {
        self.next_id += 1;
        self.pending.insert(id, Pending { host, purpose, sent, deadline });
        self.actions.push_back(CoordinatorAction::Send { host, order });
    }
}

/// Results that a mesh leaves behind.
#[derive(Debug)]
pub struct MeshParts {
    /// The host list.
    pub list: HostList,
    /// The program of each agent.
    pub tools: Vec<Option<String>>,
    /// Reason for the loss of each host, if it was lost.
    pub lost: Vec<Option<String>>,
    /// Loads that the server of each agent has served.
    pub logs: Vec<Option<ServerLog>>,
    /// The tests, by kind and index of the pair.
    pub records: BTreeMap<(TestKind, usize), TestRecord>,
    /// Whether tests kept clear of each other.
    pub sharing: Sharing,
    /// Time that no order of the tests can undercut.
    pub lower_bound_ns: u64,
}

#[cfg(test)]
mod tests;
