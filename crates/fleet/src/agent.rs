//! The agent of a fleet: keeps the list, gets orders, serves slots to its peers, and uploads what it has measured.
//!
//! Four threads wait for the hub, one for each of these tasks; each test has a thread of its own (`attempt`). Without the hub
//! the agent measures nothing after a while, and keeps its results.

mod attempt;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Scope;
use std::time::Duration;

use attempt::{MAX_FAILURE_CHARS, carry_out};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::hub::{Hub, HubError, HubMessage, HubOptions, parse_response};
use super::order::{FleetOrder, HostTime, OrderBook, OrderRefusal, OrderedTest, Role, SignedList};
use super::outbox::{Backoff, MAX_PENDING, Outbox, OutboxError};
use super::policy::AgentPolicy;
use super::signed::{SignatureError, open_signed};
use super::slot::slot_token;
use super::streams::{
    AgentState, LIST_STREAM, LIST_SUBJECT, ORDER_STREAM, order_consumer, slot_subject, state_subject,
};
use linkgauge_engine::link::Dialer;
use linkgauge_engine::serve::Server;
use linkgauge_model::clock::Time;
use linkgauge_model::run::TOOL;
use linkgauge_ops::mesh::{AgentRefusal, TestKind, Tester};

/// Time between two looks at the list, and after a failed one.
const LIST_INTERVAL: Duration = Duration::from_secs(30);
const LIST_RETRY: Duration = Duration::from_secs(2);

/// Time between two reports of the agent.
const STATE_INTERVAL: Duration = Duration::from_secs(15);

/// Longest wait before a thread looks whether it is to end.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Latency tests that run at a time, and slots that peers have at a time.
const MAX_LATENCY_TESTS: usize = 64;
const MAX_SLOTS: usize = 128;

/// A slot stays open longer than its test by this: connecting, waiting for late data.
const SLOT_OVERHEAD: Duration = Duration::from_secs(20);

/// Pauses before an order is delivered again: others wait for the list, or for the end of a test.
const LIST_PAUSE: Duration = Duration::from_secs(1);
const BUSY_PAUSE: Duration = Duration::from_millis(300);

/// What an agent is.
#[derive(Debug)]
pub struct HubAgentOptions {
    /// How it connects.
    pub hub: HubOptions,
    /// The name in the list.
    pub name: String,
    /// The limits.
    pub policy: AgentPolicy,
    /// The secret that the agents of the fleet share.
    pub fleet_key: Vec<u8>,
    /// The own file.
    pub outbox: PathBuf,
    /// Facts about its host.
    pub environment: Map<String, Value>,
}

/// What people may want to know of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentNotice {
    /// The hub is connected.
    Connected,
    /// Not connected, for this reason.
    Disconnected(String),
    /// Another list is in use: its id.
    List(String),
    /// A list was refused.
    ListRefused(String),
    /// There is no valid list any more.
    ListEnded,
    /// An order was refused.
    OrderRefused(String),
    /// A slot was refused to a peer.
    SlotRefused(String),
    /// A test has a result: which one.
    Measured(String),
    /// A test has none: which one, and why.
    Failed(String),
    /// A test has none yet, and is tried again: which one, and why.
    TriedAgain(String),
    /// The hub does not allow the key of this agent what an agent of this name does.
    ForeignKey(String),
    /// Results cannot be kept.
    Storage(String),
}

impl std::fmt::Display for AgentNotice {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            AgentNotice::Connected => write!(formatter, "connected"),
            AgentNotice::Disconnected(why) => write!(formatter, "not connected: {why}. Results wait here"),
            AgentNotice::List(id) => write!(formatter, "list {id}"),
            AgentNotice::ListRefused(why) => write!(formatter, "list refused: {why}"),
            AgentNotice::ListEnded => write!(formatter, "no valid list: measuring nothing"),
            AgentNotice::OrderRefused(why) => write!(formatter, "order refused: {why}"),
            AgentNotice::SlotRefused(why) => write!(formatter, "slot refused: {why}"),
            AgentNotice::Measured(what) => write!(formatter, "{what}: measured"),
            AgentNotice::TriedAgain(what) => write!(formatter, "{what}. It is tried again"),
            AgentNotice::ForeignKey(name) => write!(
                formatter,
                "the hub does not allow this key to act as '{name}': use the key (--seed) whose public key [fleet.keys] has for \
                 '{name}', and the configuration of the server that 'linkgauge fleet apply' prints"
            ),
            AgentNotice::Failed(what) | AgentNotice::Storage(what) => write!(formatter, "{what}"),
        }
    }
}

/// What a peer asks of another one.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "slot", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum SlotRequest {
    /// Accept the client of this order.
    Open {
        /// The order, as the operator signed it.
        order: String,
        /// The lease of the measured host; 0: the test needs none.
        fence: u64,
    },
    /// The test is over.
    Close {
        /// Id of the order.
        order: String,
        /// Whether it has its result.
        done: bool,
    },
}

/// The response.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "slot", rename_all = "snake_case")]
pub(crate) enum SlotReply {
    /// Clients with the token of the order can connect.
    Opened {
        /// The port.
        port: u16,
    },
    /// The slot was refused.
    Refused {
        /// Why, for people.
        why: String,
    },
}

/// An agent, as its threads share it.
pub(crate) struct HubAgent<'a> {
    pub(crate) hub: Arc<Hub>,
    pub name: String,
    pub(crate) policy: AgentPolicy,
    pub(crate) fleet_key: Vec<u8>,
    pub(crate) tester: Tester,
    pub(crate) dialer: Dialer,
    pub(crate) book: Mutex<OrderBook>,
    pub(crate) outbox: Mutex<Outbox>,
    /// Signalled when a result was kept.
    pub(crate) has_result: Condvar,
    /// Throughput and latency tests that run.
    pub loads: AtomicUsize,
    pub(crate) probes: AtomicUsize,
    refused: AtomicU64,
    failed: AtomicU64,
    last_failure: Mutex<Option<String>>,
    notice: &'a (dyn Fn(&AgentNotice) + Sync),
}

/// Carries out the orders of a fleet until `dialer.cancel` is set.
///
/// # Errors
///
/// The file of the agent cannot be used, or the connection to the hub cannot be set up. A hub that is away is no error.
pub fn run_hub_agent(
    options: HubAgentOptions,
    dialer: &Dialer,
    notice: &(dyn Fn(&AgentNotice) + Sync),
) -> Result<(), HubAgentError> {
    let outbox = Outbox::open(&options.outbox)?;
    let agent = HubAgent {
        hub: Arc::new(Hub::connect(&options.hub)?),
        tester: Tester::new(options.policy.limits.clone()),
        dialer: dialer.clone(),
        book: Mutex::new(OrderBook::new(&options.name, outbox.newest_list_ms()?, outbox.done()?)),
        outbox: Mutex::new(outbox),
        has_result: Condvar::new(),
        loads: AtomicUsize::new(0),
        probes: AtomicUsize::new(0),
        refused: AtomicU64::new(0),
        failed: AtomicU64::new(0),
        last_failure: Mutex::default(),
        name: options.name,
        policy: options.policy,
        fleet_key: options.fleet_key,
        notice,
    };
    let environment = options.environment;
    std::thread::scope(|scope| {
        let agent = &agent;
        scope.spawn(move || agent.keep_list(environment));
        scope.spawn(move || agent.upload());
        scope.spawn(move || agent.serve_slots());
        agent.take_orders(scope);
    });
    Ok(())
}

/// Why an agent ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HubAgentError {
    /// The own file.
    #[error(transparent)]
    Outbox(#[from] OutboxError),
    /// The hub.
    #[error(transparent)]
    Hub(#[from] HubError),
}

/// The guarded value; a thread that failed leaves nothing half done behind these locks.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl HubAgent<'_> {
    pub(crate) fn now(&self) -> HostTime {
        HostTime::now(&self.dialer.clock)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.dialer.cancel.load(Relaxed)
    }

    pub(crate) fn report(&self, notice: &AgentNotice) {
        let counted = match notice {
            AgentNotice::OrderRefused(why) | AgentNotice::SlotRefused(why) => Some((&self.refused, why)),
            AgentNotice::Failed(why) => Some((&self.failed, why)),
            _ => None,
        };
        if let Some((count, why)) = counted {
            count.fetch_add(1, Relaxed);
            *lock(&self.last_failure) = Some(why.chars().take(MAX_FAILURE_CHARS).collect());
        }
        (self.notice)(notice);
    }

    /// Answers the delivery of an order.
    pub(crate) fn acknowledge(&self, delivery: &str, answer: &str) {
        let _ = self.hub.publish(delivery, &[], answer.as_bytes().to_vec());
    }

    /// The order is delivered again after this time.
    pub(crate) fn postpone(&self, delivery: &str, pause: Duration) {
        self.acknowledge(delivery, &format!("-NAK {{\"delay\": {}}}", pause.as_nanos()));
    }

    /// Looks at the list and reports the agent, until the end.
    fn keep_list(&self, environment: Map<String, Value>) {
        let (list, pending, refused, failed, last_failure) = Default::default();
        let tool = TOOL.to_owned();
        let mut state = AgentState { tool, list, pending, refused, failed, last_failure, environment };
        let (mut next_list, mut next_state) = (Time(0), Time(0));
        let (mut was_connected, mut failure, mut is_foreign) = (false, None, false);
        while !self.is_over() {
            let is_connected = self.hub.is_connected();
            if is_connected && !was_connected {
                self.report(&AgentNotice::Connected);
                (next_list, next_state, failure) = (Time(0), Time(0), None);
            }
            was_connected = is_connected;
            let why = self.hub.failure();
            if why.is_some() && why != failure {
                failure.clone_from(&why);
                self.report(&AgentNotice::Disconnected(why.unwrap_or_default()));
            }
            if self.hub.has_refused() && !std::mem::replace(&mut is_foreign, true) {
                self.report(&AgentNotice::ForeignKey(self.name.clone()));
            }
            let now = self.now();
            if is_connected && now.time >= next_list {
                next_list = now.time + if self.read_list(now) { LIST_INTERVAL } else { LIST_RETRY };
            }
            let list = lock(&self.book).list_id(now).map(str::to_owned);
            if list != state.list {
                let notice = list.clone().map_or(AgentNotice::ListEnded, AgentNotice::List);
                self.report(&notice);
                (state.list, next_state) = (list, Time(0));
            }
            if is_connected && now.time >= next_state {
                state.pending = lock(&self.outbox).pending().unwrap_or(0);
                (state.refused, state.failed) = (self.refused.load(Relaxed), self.failed.load(Relaxed));
                state.last_failure.clone_from(&lock(&self.last_failure));
                let body = serde_json::to_vec(&state).unwrap_or_default();
                let _ = self.hub.publish(&state_subject(&self.name), &[], body);
                next_state = now.time + STATE_INTERVAL;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Whether the hub shows a list that is accepted.
    fn read_list(&self, now: HostTime) -> bool {
        let Ok(Some(message)) = self.hub.last_message(LIST_STREAM, LIST_SUBJECT) else { return false };
        let refused = |why: String| {
            self.report(&AgentNotice::ListRefused(why));
            false
        };
        let list: SignedList = match open_signed(&message.body, &self.policy.operator) {
            Ok(list) => list,
            Err(error) => return refused(error.to_string()),
        };
        let accepted = lock(&self.book).accept_list(&list, now);
        match accepted {
            Ok(_) => {
                if let Err(error) = lock(&self.outbox).accept_list(list.issued_ms) {
                    self.report(&AgentNotice::Storage(error.to_string()));
                }
                true
            }
            Err(error) => refused(error.to_string()),
        }
    }

    /// Uploads results, oldest first, until the end.
    fn upload(&self) {
        let mut backoff = Backoff::default();
        while !self.is_over() {
            let oldest = lock(&self.outbox).oldest();
            let result = match oldest {
                Ok(Some(result)) if self.hub.is_connected() => result,
                Ok(_) => {
                    let guard = lock(&self.outbox);
                    drop(self.has_result.wait_timeout(guard, POLL_INTERVAL));
                    continue;
                }
                Err(error) => {
                    self.report(&AgentNotice::Storage(error.to_string()));
                    self.sleep(backoff.on_failure(fastrand::f64()));
                    continue;
                }
            };
            let headers = [("Nats-Msg-Id", result.id.clone())];
            let stored = self.hub.request(&result.subject, &headers, result.body);
            match stored.and_then(|response| parse_response(&result.subject, &response.body)) {
                Ok(_) => {
                    backoff.on_success();
                    if let Err(error) = lock(&self.outbox).confirm(&result.id) {
                        self.report(&AgentNotice::Storage(error.to_string()));
                    }
                }
                Err(_) => self.sleep(backoff.on_failure(fastrand::f64())),
            }
        }
    }

    /// Sleeps, but not beyond the end.
    fn sleep(&self, time: Duration) {
        let until = self.dialer.clock.now() + time;
        while !self.is_over() && self.dialer.clock.now() < until {
            std::thread::sleep(POLL_INTERVAL.min(time));
        }
    }

    /// Gets orders until the end; each test has a thread.
    fn take_orders<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        let consumer = order_consumer(&self.name);
        let mut is_known = true;
        while !self.is_over() {
            let is_full = lock(&self.outbox).pending().is_ok_and(|pending| pending >= MAX_PENDING);
            if is_full || !self.hub.is_connected() || lock(&self.book).list_id(self.now()).is_none() {
                std::thread::sleep(POLL_INTERVAL);
                continue;
            }
            match self.hub.next_message((ORDER_STREAM, &consumer), 4 * POLL_INTERVAL) {
                Ok(Some(message)) => self.on_order(&message, scope),
                Ok(None) => {}
                Err(HubError::NoResponder { .. }) if is_known => {
                    is_known = false;
                    let why =
                        format!("the hub has no orders for '{}'. Try: linkgauge fleet apply", self.name);
                    self.report(&AgentNotice::OrderRefused(why));
                    self.sleep(LIST_RETRY);
                }
                Err(_) => self.sleep(LIST_RETRY),
            }
        }
    }

    fn on_order<'scope>(&'scope self, message: &HubMessage, scope: &'scope Scope<'scope, '_>) {
        let Some(delivery) = message.reply.clone() else { return };
        let order: FleetOrder = match open_signed(&message.body, &self.policy.operator) {
            Ok(order) => order,
            Err(error) => {
                self.report(&AgentNotice::OrderRefused(error.to_string()));
                return self.acknowledge(&delivery, "+TERM");
            }
        };
        let checked = lock(&self.book).check(&order, Role::Measures, self.now());
        let plan = match checked {
            Ok(plan) => plan,
            Err(OrderRefusal::TooEarly(ms)) => return self.postpone(&delivery, Duration::from_millis(ms)),
            Err(OrderRefusal::Running) => return,
            Err(OrderRefusal::Done) => return self.acknowledge(&delivery, "+ACK"),
            Err(OrderRefusal::NoList | OrderRefusal::OtherList) => {
                return self.postpone(&delivery, LIST_PAUSE);
            }
            Err(refusal) => {
                self.report(&AgentNotice::OrderRefused(format!("{}: {refusal}", order.id)));
                return self.acknowledge(&delivery, "+TERM");
            }
        };
        let (running, most) = match order.test {
            TestKind::Latency => (&self.probes, MAX_LATENCY_TESTS),
            TestKind::Throughput => (&self.loads, 1),
        };
        if running.load(Relaxed) >= most {
            return self.postpone(&delivery, BUSY_PAUSE);
        }
        running.fetch_add(1, Relaxed);
        lock(&self.book).begin(&order);
        let signed = String::from_utf8_lossy(&message.body).into_owned();
        let (given_up, answered) = (order.clone(), delivery.clone());
        let test = move || {
            carry_out(self, &order, &plan, (&signed, &delivery));
            running.fetch_sub(1, Relaxed);
        };
        if std::thread::Builder::new().spawn_scoped(scope, test).is_err() {
            // The system has no thread now.
            running.fetch_sub(1, Relaxed);
            lock(&self.book).give_up(&given_up);
            self.postpone(&answered, BUSY_PAUSE);
        }
    }

    /// Serves slots until the end.
    fn serve_slots(&self) {
        let subject = slot_subject(&self.name, "").trim_end_matches('.').to_owned() + ".*";
        let mut requests = match self.hub.subscribe(&subject) {
            Ok(requests) => requests,
            Err(error) => return self.report(&AgentNotice::SlotRefused(error.to_string())),
        };
        let mut slots: BTreeMap<String, OpenSlot> = BTreeMap::new();
        while !self.is_over() {
            let request = requests.next(POLL_INTERVAL);
            let now = self.dialer.clock.now();
            slots.retain(|_, slot| now < slot.ends);
            let Some(message) = request else { continue };
            let reply = match serde_json::from_slice(&message.body) {
                Ok(SlotRequest::Close { order, done }) => {
                    let is_asker =
                        |slot: &OpenSlot| message.subject == slot_subject(&self.name, &slot.order.from);
                    if slots.get(&order).is_some_and(is_asker)
                        && let Some(slot) = slots.remove(&order)
                        && done
                    {
                        lock(&self.book).finish(&slot.order, self.now());
                    }
                    continue;
                }
                Ok(SlotRequest::Open { order, fence }) => {
                    let opened = self.open_slot(&mut slots, (&order, fence), &message.subject);
                    opened.map_or_else(
                        |refusal| {
                            let why = refusal.to_string();
                            self.report(&AgentNotice::SlotRefused(why.clone()));
                            SlotReply::Refused { why }
                        },
                        |port| SlotReply::Opened { port },
                    )
                }
                Err(error) => SlotReply::Refused { why: format!("not a request for a slot: {error}") },
            };
            if let Some(asker) = &message.reply {
                let _ = self.hub.publish(asker, &[], serde_json::to_vec(&reply).unwrap_or_default());
            }
        }
    }

    /// Starts the server of a slot; its port, or why not.
    fn open_slot(
        &self,
        slots: &mut BTreeMap<String, OpenSlot>,
        (signed, fence): (&str, u64),
        subject: &str,
    ) -> Result<u16, SlotRefusal> {
        let order: FleetOrder = open_signed(signed.as_bytes(), &self.policy.operator)?;
        // The hub admits only the agent itself to this subject.
        if subject != slot_subject(&self.name, &order.from) {
            return Err(SlotRefusal::OtherAgent);
        }
        let plan = lock(&self.book).check(&order, Role::Serves, self.now())?;
        let time = Duration::from_millis(plan.test.time_ms());
        if time > self.policy.limits.time {
            return Err(SlotRefusal::TooLong);
        }
        let is_load = order.test == TestKind::Throughput;
        if is_load && slots.values().any(|slot| slot.is_load() && slot.fence > fence) {
            return Err(SlotRefusal::OldLease);
        }
        // What a late owner has left open ends with the next lease.
        slots.retain(|id, slot| *id != order.id && !(is_load && slot.is_load()));
        if slots.len() >= MAX_SLOTS {
            return Err(SlotRefusal::Full);
        }
        let (server, port) = self.start_server(&plan, &slot_token(&self.fleet_key, &order))?;
        let ends = self.dialer.clock.now() + time + SLOT_OVERHEAD;
        slots.insert(order.id.clone(), OpenSlot { order, fence, ends, _server: server });
        Ok(port)
    }

    /// On the first port of the policy that is free.
    fn start_server(&self, plan: &OrderedTest, token: &str) -> Result<(Server, u16), AgentRefusal> {
        let start = |port: u16| self.tester.serve((&plan.transport, port), token, &self.dialer);
        let Some(ports) = self.policy.ports.clone() else { return start(0) };
        let last = *ports.end();
        ports.into_iter().find_map(|port| start(port).ok()).map_or_else(|| start(last), Ok)
    }
}

/// Why a peer gets no slot.
#[derive(Debug, thiserror::Error)]
enum SlotRefusal {
    #[error(transparent)]
    Signature(#[from] SignatureError),
    #[error(transparent)]
    Order(#[from] OrderRefusal),
    #[error("the order is for another agent")]
    OtherAgent,
    #[error("this agent allows shorter tests only ('max_time' in its limits)")]
    TooLong,
    #[error("the lease of the test is older than that of another")]
    OldLease,
    #[error("this agent serves {MAX_SLOTS} tests already")]
    Full,
    #[error(transparent)]
    Server(#[from] AgentRefusal),
}

/// A server for one test.
struct OpenSlot {
    order: FleetOrder,
    fence: u64,
    ends: Time,
    _server: Server,
}

impl OpenSlot {
    fn is_load(&self) -> bool {
        self.order.test == TestKind::Throughput
    }
}
