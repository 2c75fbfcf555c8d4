//! What a fleet has on the server: streams, consumers, subjects, and what each agent may do there.
//!
//! | stream | subjects | content |
//! | --- | --- | --- |
//! | `LIST` | `list.fleet` | the signed list of hosts and tests |
//! | `ORDERS` | `plan.HOST.ORDER`, `order.HOST.ORDER` | orders until they are due, and due orders: the server moves them |
//! | `LEASE` | `lease.host.HOST`, `lease.resource.NAME.PLACE` | who uses a host or what hosts share |
//! | `RESULTS` | `result.HOST.ORDER` | results |
//! | `AGENTS` | `state.HOST` | the last report of each agent |

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::hub::{Hub, HubError};
use super::order::{FleetOrder, SignedList, subject_part};
use super::signed::{SecretKey, sign};
use linkgauge_model::run::Run;
use linkgauge_ops::mesh::TestKind;

/// The streams.
pub(crate) const LEASE_STREAM: &str = "LEASE";
pub(crate) const LIST_STREAM: &str = "LIST";
pub(crate) const ORDER_STREAM: &str = "ORDERS";
pub(crate) const RESULT_STREAM: &str = "RESULTS";
const AGENT_STREAM: &str = "AGENTS";

/// The subject of the list.
pub(crate) const LIST_SUBJECT: &str = "list.fleet";

/// The consumer that collects results.
pub(crate) const COLLECTOR: &str = "collector";

/// Time after which an order that its agent has not confirmed is delivered again.
pub(crate) const ACK_WAIT: Duration = Duration::from_secs(15);

/// Results stay on the server for this time, and a copy of one is dropped for a day.
const RESULT_AGE: Duration = Duration::from_secs(30 * 86_400);
const DUPLICATE_WINDOW: Duration = Duration::from_secs(86_400);

/// The hub's number of the error that a stream has another definition.
const STREAM_EXISTS: u64 = 10058;

/// What an agent reports of itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentState {
    /// The program and version.
    pub tool: String,
    /// Id of its list; `None`: it has no valid one, so it measures nothing.
    pub list: Option<String>,
    /// Results that wait for the hub.
    pub pending: u64,
    /// Orders that it has refused since its start.
    pub refused: u64,
    /// Its tests without a result since its start.
    #[serde(default)]
    pub failed: u64,
    /// Why it refused or failed last.
    #[serde(default)]
    pub last_failure: Option<String>,
    /// Facts about its host.
    pub environment: Map<String, Value>,
}

/// The result of an order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FleetResult {
    /// Id of the order.
    pub order: String,
    /// The host that measured.
    pub from: String,
    /// The host that was measured.
    pub to: String,
    /// What was measured.
    pub test: TestKind,
    /// The document, with one case and without time series.
    pub run: Option<Box<Run>>,
    /// Why there is none.
    pub failure: Option<String>,
}

/// The consumer of a host's orders.
pub(crate) fn order_consumer(host: &str) -> String {
    format!("agent-{}", subject_part(host))
}

/// Where a host reports itself.
pub(crate) fn state_subject(host: &str) -> String {
    format!("state.{}", subject_part(host))
}

/// Where a host sends the result of an order.
pub(crate) fn result_subject(host: &str, order: &str) -> String {
    format!("result.{}.{}", subject_part(host), subject_part(order))
}

/// Where `to` is asked for a slot by `from`.
pub(crate) fn slot_subject(to: &str, from: &str) -> String {
    format!("slot.{}.{}", subject_part(to), subject_part(from))
}

fn nanoseconds(time: Duration) -> u64 {
    time.as_nanos() as u64
}

/// The definitions of the streams.
fn streams() -> [Value; 5] {
    [
        json!({
            "name": LEASE_STREAM, "subjects": ["lease.>"], "storage": "file", "max_msgs_per_subject": 1,
            "allow_msg_ttl": true, "subject_delete_marker_ttl": nanoseconds(Duration::from_secs(1)),
            "allow_rollup_hdrs": true, "allow_atomic": true, "allow_direct": true,
        }),
        json!({
            "name": LIST_STREAM, "subjects": [LIST_SUBJECT], "storage": "file", "max_msgs_per_subject": 1, "allow_direct": true,
        }),
        json!({
            "name": ORDER_STREAM, "subjects": ["plan.>", "order.>"], "storage": "file", "retention": "workqueue",
            "allow_msg_schedules": true, "allow_msg_ttl": true,
        }),
        json!({
            "name": RESULT_STREAM, "subjects": ["result.>"], "storage": "file", "max_age": nanoseconds(RESULT_AGE),
            "duplicate_window": nanoseconds(DUPLICATE_WINDOW), "deny_delete": true,
        }),
        json!({
            "name": AGENT_STREAM, "subjects": ["state.>"], "storage": "file", "max_msgs_per_subject": 1, "allow_direct": true,
        }),
    ]
}

/// Defines streams and consumers on the server; definitions that exist are brought up to date.
///
/// # Errors
///
/// The server is too old, or refuses a definition.
pub fn apply<'a>(hub: &Hub, hosts: impl Iterator<Item = &'a str>) -> Result<(), HubError> {
    hub.check_server()?;
    for stream in streams() {
        let name = stream["name"].as_str().unwrap_or_default().to_owned();
        match hub.api(&format!("STREAM.CREATE.{name}"), &stream) {
            Err(HubError::Refused { code: STREAM_EXISTS, .. }) => {
                hub.api(&format!("STREAM.UPDATE.{name}"), &stream)?;
            }
            created => drop(created?),
        }
    }
    for host in hosts {
        let consumer = json!({
            "durable_name": order_consumer(host), "ack_policy": "explicit", "ack_wait": nanoseconds(ACK_WAIT),
            "filter_subject": format!("order.{}.>", subject_part(host)), "max_ack_pending": 10_000,
        });
        define_consumer(hub, ORDER_STREAM, consumer)?;
    }
    let collector = json!({
        "durable_name": COLLECTOR, "ack_policy": "explicit", "ack_wait": nanoseconds(Duration::from_secs(30)),
        "max_ack_pending": 1000,
    });
    define_consumer(hub, RESULT_STREAM, collector)
}

fn define_consumer(hub: &Hub, stream: &str, config: Value) -> Result<(), HubError> {
    let name = config["durable_name"].as_str().unwrap_or_default().to_owned();
    let call = match config["filter_subject"].as_str() {
        Some(filter) => format!("CONSUMER.CREATE.{stream}.{name}.{filter}"),
        None => format!("CONSUMER.CREATE.{stream}.{name}"),
    };
    let mut config = config;
    config["name"] = name.into();
    hub.api(&call, &json!({ "stream_name": stream, "config": config })).map(drop)
}

/// The user of an agent in the configuration of the server: it reads only its own orders, and publishes only its own results.
fn agent_user(host: &str, key: &str) -> String {
    let part = subject_part(host);
    let consumer = order_consumer(host);
    let publish = [
        format!("result.{part}.>"),
        format!("state.{part}"),
        format!("slot.*.{part}"),
        "lease.>".to_owned(),
        format!("$JS.API.CONSUMER.MSG.NEXT.{ORDER_STREAM}.{consumer}"),
        format!("$JS.ACK.{ORDER_STREAM}.{consumer}.>"),
        format!("$JS.API.DIRECT.GET.{LEASE_STREAM}.>"),
        format!("$JS.API.DIRECT.GET.{LIST_STREAM}.>"),
    ];
    let publish = publish.map(|subject| format!("\"{subject}\"")).join(", ");
    format!(
        "{{ nkey: {key}, permissions: {{\n    publish: [{publish}],\n    subscribe: [\"slot.{part}.*\", \"_INBOX.{part}.>\"],\n    \
         allow_responses: {{ max: 1, expires: \"15s\" }} }} }}"
    )
}

/// The account of a fleet for the configuration of the server: the operator may do everything in it, agents what they need.
pub fn server_account<'a>(operator: &str, agents: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let agents: String =
        agents.map(|(host, key)| format!("  # {host}\n  {}\n", agent_user(host, key))).collect();
    format!(
        "accounts {{ FLEET {{ jetstream: enabled, users: [\n  # the operator\n  {{ nkey: {operator} }}\n{agents}] }} }}\n"
    )
}

/// Signs the list and shows it to the agents.
///
/// # Errors
///
/// As [`Hub::store`].
pub fn publish_list(hub: &Hub, list: &SignedList, key: &SecretKey) -> Result<(), HubError> {
    hub.store(LIST_SUBJECT, &[], signed(list, key)?).map(drop)
}

fn signed(value: &impl Serialize, key: &SecretKey) -> Result<Vec<u8>, HubError> {
    let failed = |error| HubError::Response { what: "signing".to_owned(), reason: format!("{error}") };
    sign(value, key).map_err(failed)
}

/// Gives an order to the server, which delivers it when it is due. It vanishes when its time is over.
///
/// # Errors
///
/// As [`Hub::store`].
pub fn issue_order(hub: &Hub, order: &FleetOrder, key: &SecretKey) -> Result<(), HubError> {
    let (host, id) = (subject_part(&order.from), subject_part(&order.id));
    let due = Timestamp::from_millisecond(order.not_before_ms as i64);
    let late = |error: jiff::Error| HubError::Response { what: order.id.clone(), reason: error.to_string() };
    let validity_s = order.not_after_ms.saturating_sub(order.not_before_ms).div_ceil(1000).max(1);
    let headers = [
        ("Nats-Schedule", format!("@at {}", due.map_err(late)?)),
        ("Nats-Schedule-Target", format!("order.{host}.{id}")),
        ("Nats-Schedule-TTL", format!("{validity_s}s")),
        ("Nats-Msg-Id", order.id.clone()),
    ];
    hub.store(&format!("plan.{host}.{id}"), &headers, signed(order, key)?).map(drop)
}

/// A lease that an agent has now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldLease {
    /// The subject.
    pub subject: String,
    /// The agent and its order.
    pub holder: String,
}

/// The state of a fleet, as its hub knows it.
#[derive(Debug, Clone, PartialEq)]
pub struct FleetStatus {
    /// The last report of each host, and when it arrived. `None`: there is none.
    pub agents: Vec<Option<(Timestamp, AgentState)>>,
    /// Leases in use.
    pub leases: Vec<HeldLease>,
    /// Orders that are not due, or not confirmed.
    pub orders: u64,
    /// Results on the server.
    pub results: u64,
    /// Results that were not collected.
    pub uncollected: u64,
}

/// Time after which an agent that has not reported counts as away.
pub(crate) const AGENT_SILENCE: Duration = Duration::from_secs(45);

impl FleetStatus {
    /// Whether a host has reported lately.
    pub fn is_present(&self, host: usize, now: Timestamp) -> bool {
        let seen = self.agents.get(host).and_then(Option::as_ref);
        seen.is_some_and(|(seen, _)| now.duration_since(*seen).as_secs() <= AGENT_SILENCE.as_secs() as i64)
    }
}

/// Reads the state of a fleet with these hosts.
///
/// # Errors
///
/// As [`Hub::api`]; without streams, the hub refuses it.
pub fn read_status<'a>(hub: &Hub, hosts: impl Iterator<Item = &'a str>) -> Result<FleetStatus, HubError> {
    let mut agents = Vec::new();
    for host in hosts {
        let message = hub.last_message(AGENT_STREAM, &state_subject(host))?;
        agents.push(message.and_then(|message| {
            let seen = message.header("Nats-Time-Stamp")?.parse().ok()?;
            Some((seen, serde_json::from_slice(&message.body).ok()?))
        }));
    }
    let lease_info = hub.api(&format!("STREAM.INFO.{LEASE_STREAM}"), &json!({ "subjects_filter": ">" }))?;
    let mut leases = Vec::new();
    for subject in lease_info["state"]["subjects"].as_object().into_iter().flat_map(Map::keys) {
        let last = hub.last_message(LEASE_STREAM, subject)?;
        if let Some(last) = last.filter(|last| !last.body.is_empty()) {
            let holder = String::from_utf8_lossy(&last.body).into_owned();
            leases.push(HeldLease { subject: subject.clone(), holder });
        }
    }
    let messages = |stream: &str| {
        let info = hub.api(&format!("STREAM.INFO.{stream}"), &Value::Null)?;
        Ok::<u64, HubError>(info["state"]["messages"].as_u64().unwrap_or(0))
    };
    let collector = hub.api(&format!("CONSUMER.INFO.{RESULT_STREAM}.{COLLECTOR}"), &Value::Null)?;
    let waiting = |key: &str| collector[key].as_u64().unwrap_or(0);
    Ok(FleetStatus {
        agents,
        leases,
        orders: messages(ORDER_STREAM)?,
        results: messages(RESULT_STREAM)?,
        uncollected: waiting("num_pending") + waiting("num_ack_pending"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::LEASE_TTL;

    #[test]
    fn an_agent_may_use_only_its_own_subjects() {
        let text = agent_user("a.example", "UA");
        for own in
            ["\"result.a=2Eexample.>\"", "\"slot.*.a=2Eexample\"", "\"slot.a=2Eexample.*\"", "nkey: UA"]
        {
            assert!(text.contains(own), "{own}: {text}");
        }
        for forbidden in
            ["\"result.>\"", "\"$JS.API.>\"", "\"order.", "\"plan.", "\"list.", "\">\"", "_INBOX.>"]
        {
            assert!(!text.contains(forbidden), "{forbidden}: {text}");
        }
    }

    #[test]
    fn a_lease_outlives_two_failed_renewals_and_an_order_a_lease() {
        assert!(ACK_WAIT > LEASE_TTL);
        assert_eq!(streams().len(), 5);
    }
}
