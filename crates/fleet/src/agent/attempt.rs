//! One order of an agent: lease, slot at the peer, measurement, result.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use super::{AgentNotice, HubAgent, SlotReply, SlotRequest, lock};
use crate::hub::HubError;
use crate::lease::{LEASE_TTL, Lease};
use crate::leases::{LeaseTerms, release, renew, take};
use crate::order::{FleetOrder, OrderedTest};
use crate::outbox::{OutboxError, PendingResult};
use crate::slot::slot_token;
use crate::streams::{ACK_WAIT, FleetResult, result_subject, slot_subject};
use linkgauge_engine::link::Dialer;
use linkgauge_model::clock::Time;
use linkgauge_model::run::Run;
use linkgauge_ops::mesh::{AgentRefusal, url_of};

/// Time between two looks at the lease of a running test.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Pauses before an order is tried again: the hosts are in use; the peer or the hub is away. The hub ends a lease up to 350 ms late,
/// and the next test is to begin within a second.
const LEASE_PAUSE: Duration = Duration::from_millis(200);
const FAILURE_PAUSE: Duration = Duration::from_secs(2);

/// Longest text of a failure in a result.
pub(super) const MAX_FAILURE_CHARS: usize = 300;

/// How an attempt ended.
enum Attempt {
    /// The test is complete.
    Measured(Box<Run>),
    /// Is tried again after a pause.
    Later(Duration),
    /// Is tried again, unless its time is over.
    Failed(String),
    /// Can never succeed here.
    Refused(String),
}

/// Carries out an order that was checked: its result is kept, or it is delivered again. `delivery` answers the hub.
pub(crate) fn carry_out(
    agent: &HubAgent,
    order: &FleetOrder,
    plan: &OrderedTest,
    (signed, delivery): (&str, &str),
) {
    let what = format!("{} → {}", order.from, order.to);
    let attempt = attempt(agent, order, plan, (signed, delivery));
    let (run, failure) = match attempt {
        Attempt::Measured(run) => (Some(run), None),
        Attempt::Refused(why) => (None, Some(why)),
        Attempt::Failed(why) => {
            let is_last = agent.now().unix_ms + 2 * FAILURE_PAUSE.as_millis() as u64 > order.not_after_ms;
            if !is_last {
                agent.report(&AgentNotice::TriedAgain(format!("{what}: {why}")));
                return give_up(agent, order, delivery, FAILURE_PAUSE);
            }
            (None, Some(why))
        }
        Attempt::Later(pause) => return give_up(agent, order, delivery, pause),
    };
    let notice = match &failure {
        None => AgentNotice::Measured(what),
        Some(why) => AgentNotice::Failed(format!("{what}: {why}")),
    };
    match keep(agent, order, run, failure) {
        Ok(()) => {
            agent.report(&notice);
            agent.acknowledge(delivery, "+ACK");
        }
        Err(why) => {
            agent.report(&AgentNotice::Storage(why.to_string()));
            give_up(agent, order, delivery, FAILURE_PAUSE);
        }
    }
}

fn give_up(agent: &HubAgent, order: &FleetOrder, delivery: &str, pause: Duration) {
    lock(&agent.book).give_up(order);
    agent.postpone(delivery, pause);
}

/// Keeps the result until the hub has it.
fn keep(
    agent: &HubAgent,
    order: &FleetOrder,
    run: Option<Box<Run>>,
    failure: Option<String>,
) -> Result<(), OutboxError> {
    let run = run.map(|mut run| {
        run.id = format!("{}-{}", run.started.strftime("%Y%m%dT%H%M%SZ"), order.id);
        run
    });
    let result = FleetResult {
        order: order.id.clone(),
        from: order.from.clone(),
        to: order.to.clone(),
        test: order.test,
        run,
        failure: failure.map(|why| why.chars().take(MAX_FAILURE_CHARS).collect()),
    };
    let body = serde_json::to_vec(&result).expect("results have text as keys and finite numbers");
    let id = result.run.as_ref().map_or_else(|| format!("failed-{}", order.id), |run| run.id.clone());
    let result = PendingResult { id, subject: result_subject(&agent.name, &order.id), body };
    let now = agent.now();
    lock(&agent.outbox).finish((&order.id, order.not_after_ms), &result, now.unix_ms)?;
    lock(&agent.book).finish(order, now);
    agent.has_result.notify_all();
    Ok(())
}

fn attempt(
    agent: &HubAgent,
    order: &FleetOrder,
    plan: &OrderedTest,
    (signed, delivery): (&str, &str),
) -> Attempt {
    let address = match agent.policy.address_of(&plan.address) {
        Ok(address) => address,
        Err(refused) => return Attempt::Refused(refused.to_string()),
    };
    let terms = LeaseTerms { holder: format!("{} {}", agent.name, order.id), ttl: LEASE_TTL };
    let mut lease = None;
    if !plan.resources.is_empty() {
        match take(&agent.hub, &plan.resources, &terms, &agent.dialer.clock) {
            Ok(Some(taken)) => lease = Some(taken),
            // Agents that wait for the same host do not ask at the same moment.
            Ok(None) => return Attempt::Later(LEASE_PAUSE.mul_f64(0.5 + fastrand::f64())),
            Err(_) => return Attempt::Later(FAILURE_PAUSE),
        }
    }
    let fence = lease.as_ref().map_or(0, Lease::fence);
    let attempt = match open_slot(agent, order, (signed, fence)) {
        Err(attempt) => attempt,
        Ok(port) => match url_of(&plan.transport, &address.to_string(), port) {
            Err(error) => Attempt::Refused(error.to_string()),
            Ok(url) => {
                let keeper = Keeper { agent, terms: &terms, delivery, progress: agent.dialer.clock.now() };
                let token = slot_token(&agent.fleet_key, order);
                measure(keeper, &mut lease, plan, (url.as_str(), token))
            }
        },
    };
    let close = SlotRequest::Close { order: order.id.clone(), done: matches!(attempt, Attempt::Measured(_)) };
    let close = serde_json::to_vec(&close).unwrap_or_default();
    let _ = agent.hub.publish(&slot_subject(&order.to, &order.from), &[], close);
    if let Some(lease) = &lease {
        release(&agent.hub, lease);
    }
    attempt
}

/// Asks the peer for a slot: its port, or how the attempt ends.
fn open_slot(agent: &HubAgent, order: &FleetOrder, (signed, fence): (&str, u64)) -> Result<u16, Attempt> {
    let request = SlotRequest::Open { order: signed.to_owned(), fence };
    let body = serde_json::to_vec(&request).unwrap_or_default();
    let failed = |why: String| Attempt::Failed(format!("'{}': {why}", order.to));
    let response = match agent.hub.request(&slot_subject(&order.to, &order.from), &[], body) {
        Ok(response) => response,
        Err(HubError::NoResponder { .. }) => return Err(failed("its agent is not connected".to_owned())),
        Err(HubError::Timeout { .. }) => return Err(failed("its agent did not reply".to_owned())),
        Err(_) => return Err(Attempt::Later(FAILURE_PAUSE)),
    };
    match serde_json::from_slice(&response.body) {
        Ok(SlotReply::Opened { port }) if port > 0 => Ok(port),
        Ok(SlotReply::Opened { .. }) => Err(failed("its agent named port 0".to_owned())),
        Ok(SlotReply::Refused { why }) => Err(failed(why)),
        Err(error) => Err(failed(error.to_string())),
    }
}

/// Keeps lease and order while a test runs.
struct Keeper<'a> {
    agent: &'a HubAgent<'a>,
    terms: &'a LeaseTerms,
    delivery: &'a str,
    /// When the hub was last informed that the order is being carried out.
    progress: Time,
}

impl Keeper<'_> {
    /// Whether the test may go on.
    fn keep(&mut self, lease: &mut Option<Lease>) -> bool {
        let clock = &self.agent.dialer.clock;
        if clock.now() >= self.progress + ACK_WAIT / 3 {
            self.agent.acknowledge(self.delivery, "+WPI");
            self.progress = clock.now();
        }
        let Some(lease) = lease else { return !self.agent.is_over() };
        // First, because a renewal waits for the hub.
        if lease.is_lost(clock.now()) {
            return false;
        }
        if clock.now() >= lease.next_renewal() {
            renew(&self.agent.hub, lease, self.terms, clock);
        }
        !lease.is_lost(clock.now()) && !self.agent.is_over()
    }
}

fn measure(
    mut keeper: Keeper,
    lease: &mut Option<Lease>,
    plan: &OrderedTest,
    (url, token): (&str, String),
) -> Attempt {
    let agent = keeper.agent;
    let stop = Arc::new(AtomicBool::new(false));
    let dialer = Dialer { cancel: Arc::clone(&stop), ..agent.dialer.clone() };
    let measured = std::thread::scope(|scope| {
        let (sender, ended) = channel();
        let dialer = &dialer;
        let test = move || {
            let _ = sender.send(agent.tester.measure(url, Some(token), plan.test, dialer));
        };
        if std::thread::Builder::new().spawn_scoped(scope, test).is_err() {
            return None;
        }
        loop {
            match ended.recv_timeout(POLL_INTERVAL) {
                Ok(measured) => return Some(measured),
                Err(RecvTimeoutError::Timeout) if keeper.keep(lease) => {}
                Err(RecvTimeoutError::Timeout) => stop.store(true, Relaxed),
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    });
    if stop.load(Relaxed) {
        // Another agent may have used the hosts meanwhile.
        return Attempt::Later(FAILURE_PAUSE);
    }
    match measured {
        None | Some(Err(AgentRefusal::Busy(_))) => Attempt::Later(LEASE_PAUSE),
        Some(Err(refusal)) => Attempt::Refused(refusal.to_string()),
        Some(Ok(run)) => match run.cases.first() {
            Some(case) if case.complete => Attempt::Measured(Box::new(run)),
            Some(case) => {
                let failure =
                    case.failures.first().map_or("it ended early", |failure| failure.message.as_str());
                Attempt::Failed(failure.to_owned())
            }
            None => Attempt::Failed("it measured nothing".to_owned()),
        },
    }
}
