//! Takes, renews and releases leases on the hub. All resources of a test change in one atomic batch, so no agent holds one while
//! it waits for another, and there is no order of resources to keep.
//!
//! A lease is the last message of a subject; it vanishes after its time. A message without content means that the lease is free,
//! as does the marker that the hub leaves for a second. Each change names the number of the message that it follows, so only
//! one of two agents succeeds, and a late owner is refused.

use std::time::Duration;

use super::hub::{Header, Hub, HubError, parse_response};
use super::lease::Lease;
use super::streams::LEASE_STREAM;
use linkgauge_model::clock::Clock;

/// The hub's number of the error that another message came first.
const WRONG_LAST_SEQUENCE: u64 = 10071;

/// The same, where the server does not say which.
const WRONG_LAST_SEQUENCE_UNNAMED: u64 = 10164;

/// Shorter than a third of the time of a lease, so that a hub that is silent does not hide its end.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Who takes a lease, and for how long.
#[derive(Debug, Clone)]
pub struct LeaseTerms {
    /// For people: the agent and its order.
    pub holder: String,
    /// Time until the hub gives it up.
    pub ttl: Duration,
}

/// Takes one subject of each resource, all or none. `None`: another agent has one of them.
///
/// # Errors
///
/// As [`Hub::request`]. The hub may have granted the lease nevertheless; it ends by itself.
pub fn take(
    hub: &Hub,
    resources: &[Vec<String>],
    terms: &LeaseTerms,
    clock: &Clock,
) -> Result<Option<Lease>, HubError> {
    let mut free = Vec::new();
    for choices in resources {
        match first_free(hub, choices)? {
            Some(found) => free.push(found),
            None => return Ok(None),
        }
    }
    let asked = clock.now();
    let expected: Vec<(&str, u64)> = free.iter().map(|(subject, last)| (subject.as_str(), *last)).collect();
    let last = store_batch(hub, &expected, terms.holder.as_bytes(), Some(terms.ttl))?;
    let subjects = free.iter().map(|(subject, _)| subject.clone()).collect();
    Ok(last.map(|last| Lease::taken(subjects, last, terms.ttl, asked)))
}

/// Renews a lease, and notes the outcome in it.
pub fn renew(hub: &Hub, lease: &mut Lease, terms: &LeaseTerms, clock: &Clock) {
    let asked = clock.now();
    let stored = store_batch(hub, &lease.expected(), terms.holder.as_bytes(), Some(terms.ttl));
    match stored {
        Ok(Some(last)) => lease.on_renewed(last, asked),
        Ok(None) => lease.on_refused(),
        Err(_) => lease.on_no_reply(clock.now()),
    }
}

/// Gives a lease back. If that fails, it ends by itself.
pub fn release(hub: &Hub, lease: &Lease) {
    let _ = store_batch(hub, &lease.expected(), b"", None);
}

/// The first of some subjects that is free, with the number of its last message.
fn first_free(hub: &Hub, choices: &[String]) -> Result<Option<(String, u64)>, HubError> {
    for subject in choices {
        let last = match hub.last_message(LEASE_STREAM, subject)? {
            None => Some(0),
            Some(message) if message.body.is_empty() => {
                message.header("Nats-Sequence").and_then(|number| number.parse().ok())
            }
            Some(_) => None,
        };
        if let Some(last) = last {
            return Ok(Some((subject.clone(), last)));
        }
    }
    Ok(None)
}

/// Stores a message in each subject, all or none, if each follows the message with this number. Returns the number of the last
/// one; `None`: at least one subject has another last message.
fn store_batch(
    hub: &Hub,
    expected: &[(&str, u64)],
    body: &[u8],
    ttl: Option<Duration>,
) -> Result<Option<u64>, HubError> {
    let batch = format!("{:032x}", fastrand::u128(..));
    let headers = |index: usize, last: u64| {
        let mut headers: Vec<Header> = vec![
            ("Nats-Batch-Id", batch.clone()),
            ("Nats-Batch-Sequence", (index + 1).to_string()),
            ("Nats-Expected-Last-Subject-Sequence", last.to_string()),
        ];
        headers.extend(ttl.map(|ttl| ("Nats-TTL", format!("{}s", ttl.as_secs().max(1)))));
        headers
    };
    let Some((commit, others)) = expected.split_last() else { return Ok(None) };
    for (index, (subject, last)) in others.iter().enumerate() {
        hub.publish(subject, &headers(index, *last), body.to_vec())?;
    }
    let mut last_headers = headers(others.len(), commit.1);
    last_headers.push(("Nats-Batch-Commit", "1".to_owned()));
    let response = hub.request_within(commit.0, &last_headers, body.to_vec(), TIMEOUT)?;
    match parse_response(commit.0, &response.body) {
        Ok(stored) => Ok(stored["seq"].as_u64()),
        Err(HubError::Refused { code: WRONG_LAST_SEQUENCE | WRONG_LAST_SEQUENCE_UNNAMED, .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
