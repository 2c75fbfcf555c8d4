//! The connection to the hub: requests, messages and subscriptions of NATS that block the calling thread.
//!
//! The asynchronous client runs in one thread. JetStream is requests with JSON on subjects below `$JS.API`.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_nats::connection::State;
use async_nats::{ConnectOptions, Event, HeaderMap, Message, Request, ServerError, StatusCode, Subscriber};
use futures_util::StreamExt;
use serde_json::Value;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use super::certificate;
use super::signed::SecretKey;

/// The first version with atomic batches and schedules.
const MIN_VERSION: (u32, u32) = (2, 12);

/// Time for a connection, and for the response to a request.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Errors of JetStream: no such consumer, no such stream.
const UNDEFINED: [u64; 2] = [10014, 10059];

/// Longest pause between two attempts to connect.
const MAX_RECONNECT_PAUSE: Duration = Duration::from_secs(8);

/// Most bytes of the messages in one response. A single message is shorter.
const MAX_BATCH_BYTES: usize = 8 << 20;

/// Pause after a response without messages that came early.
const PAUSE_OF_OTHERS: Duration = Duration::from_millis(100);

/// Why a hub did not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HubError {
    /// The URL cannot be used.
    #[error("{url}: {why}")]
    Url {
        /// As written.
        url: String,
        /// What is wrong, and what to try.
        why: String,
    },
    /// There is no connection.
    #[error("{url}: the hub cannot be reached: {reason}")]
    Connect {
        /// The hub.
        url: String,
        /// The reason.
        reason: String,
    },
    /// The connection was lost; it is being restored.
    #[error("the hub is not connected")]
    Disconnected,
    /// No response arrived in time.
    #[error("{what}: the hub did not reply within {} s", TIMEOUT.as_secs())]
    Timeout {
        /// The subject of the request.
        what: String,
    },
    /// No program subscribes to the subject.
    #[error("{what}: no program listens there. If the hub is new, try: linkgauge fleet apply")]
    NoResponder {
        /// The subject of the request.
        what: String,
    },
    /// The hub has no such stream or consumer.
    #[error("{what}: the hub does not know it. Try: linkgauge fleet apply")]
    Undefined {
        /// The request.
        what: String,
    },
    /// The hub refused a request.
    #[error("{what}: the hub refused it: {reason} (error {code})")]
    Refused {
        /// The request.
        what: String,
        /// Number of the error in JetStream.
        code: u64,
        /// The reason.
        reason: String,
    },
    /// The server lacks what a fleet needs.
    #[error(
        "{url}: NATS {version} cannot be a hub: it lacks atomic batches and schedules. Install nats-server 2.12 or later"
    )]
    Version {
        /// The hub.
        url: String,
        /// The version.
        version: String,
    },
    /// The server has no JetStream.
    #[error(
        "{url}: this server has no JetStream. Add 'jetstream {{}}' to its configuration (contrib/nats-server.conf)"
    )]
    WithoutJetStream {
        /// The hub.
        url: String,
    },
    /// A response was not of the expected form.
    #[error("{what}: unexpected response of the hub: {reason}")]
    Response {
        /// The request.
        what: String,
        /// What was unexpected.
        reason: String,
    },
    /// The system refused a thread or its runtime.
    #[error("the connection to the hub has no thread: {0}")]
    System(#[from] std::io::Error),
}

/// What happens when the hub cannot be reached at first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InitialConnect {
    /// An error.
    Required,
    /// Is tried again in the background.
    Retried,
}

/// How to connect.
#[derive(Debug)]
pub struct HubOptions {
    /// `tls://HOST[:PORT]`, or `nats://` on loopback addresses.
    pub url: String,
    /// Proves who the client is.
    pub seed: SecretKey,
    /// Certificates that are trusted (PEM); `None`: those of the system.
    pub ca: Option<PathBuf>,
    /// Name of the client, which is also the prefix of its inbox. Without dots.
    pub name: String,
    /// What happens without a hub.
    pub initial: InitialConnect,
}

/// A message of the hub.
#[derive(Debug, Clone, PartialEq)]
pub struct HubMessage {
    /// The subject.
    pub subject: String,
    /// Where a response goes.
    pub reply: Option<String>,
    /// The status, if the message is a report of the server (404: no message).
    pub status: Option<u16>,
    /// The content.
    pub body: Vec<u8>,
    headers: Option<HeaderMap>,
}

impl HubMessage {
    fn of(message: Message) -> HubMessage {
        HubMessage {
            subject: message.subject.to_string(),
            reply: message.reply.map(|reply| reply.to_string()),
            status: message.status.map(|status| status.as_u16()),
            body: message.payload.to_vec(),
            headers: message.headers,
        }
    }

    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.as_ref()?.get(name).map(|value| value.as_str())
    }
}

/// A header of a message: name and value.
pub type Header<'a> = (&'a str, String);

/// Why the last attempt to connect failed.
type LastFailure = Arc<Mutex<HubFailure>>;

/// What the hub or the connection to it has refused.
#[derive(Debug, Default)]
struct HubFailure {
    /// Why the last attempt to connect failed.
    reason: Option<String>,
    /// A subject was refused to the key.
    has_refused: bool,
}

/// A connection to the hub, which is restored after a failure. Threads share it.
#[derive(Debug)]
pub struct Hub {
    url: String,
    client: async_nats::Client,
    handle: Handle,
    failure: LastFailure,
    /// Dropped: the thread of the runtime ends.
    _stop: oneshot::Sender<()>,
}

impl Hub {
    /// Connects.
    ///
    /// # Errors
    ///
    /// The URL is invalid or unprotected, the hub cannot be reached, or it refuses the seed.
    pub fn connect(options: &HubOptions) -> Result<Hub, HubError> {
        check_url(&options.url)?;
        let (stop, stopped) = oneshot::channel::<()>();
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        std::thread::Builder::new().name("hub".to_owned()).spawn(move || {
            let _ = runtime.block_on(stopped);
            // Messages that wait to be written get a moment.
            runtime.shutdown_timeout(Duration::from_millis(100));
        })?;
        let failure = LastFailure::default();
        let connect = nats_options(options, &failure).connect(options.url.as_str());
        let failed = |error: async_nats::ConnectError| HubError::Connect {
            url: options.url.clone(),
            reason: connect_failure(&error),
        };
        let client = handle.block_on(connect).map_err(failed)?;
        Ok(Hub { url: options.url.clone(), client, handle, failure, _stop: stop })
    }

    /// Whether there is a connection now.
    pub fn is_connected(&self) -> bool {
        self.client.connection_state() == State::Connected
    }

    /// Why there is no connection, if an attempt has failed.
    pub fn failure(&self) -> Option<String> {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner).reason.clone();
        failure.filter(|_| !self.is_connected())
    }

    /// Whether the hub has refused a subject to the key.
    pub fn has_refused(&self) -> bool {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).has_refused
    }

    /// The address of the hub.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Checks that the server has what a fleet needs.
    ///
    /// # Errors
    ///
    /// It is too old, or has no JetStream.
    pub fn check_server(&self) -> Result<(), HubError> {
        let info = self.client.server_info();
        if !is_recent(&info.version) {
            return Err(HubError::Version { url: self.url.clone(), version: info.version });
        }
        match info.jetstream {
            true => Ok(()),
            false => Err(HubError::WithoutJetStream { url: self.url.clone() }),
        }
    }

    /// Sends a request and waits for the response.
    ///
    /// # Errors
    ///
    /// There is no connection, no program that responds, or no response in time.
    pub fn request(&self, subject: &str, headers: &[Header], body: Vec<u8>) -> Result<HubMessage, HubError> {
        self.request_within(subject, headers, body, TIMEOUT)
    }

    /// The same with another time for the response.
    ///
    /// # Errors
    ///
    /// As [`Hub::request`].
    pub fn request_within(
        &self,
        subject: &str,
        headers: &[Header],
        body: Vec<u8>,
        timeout: Duration,
    ) -> Result<HubMessage, HubError> {
        let mut request = Request::new().payload(body.into()).timeout(Some(timeout));
        if let Some(headers) = header_map(headers) {
            request = request.headers(headers);
        }
        self.send(subject, request)
    }

    fn send(&self, subject: &str, request: Request) -> Result<HubMessage, HubError> {
        // A request that waited for a connection would be carried out when no caller expects it any more.
        if !self.is_connected() {
            return Err(HubError::Disconnected);
        }
        let response = self.handle.block_on(self.client.send_request(subject.to_owned(), request));
        response.map(HubMessage::of).map_err(|error| match error.kind() {
            async_nats::RequestErrorKind::NoResponders => HubError::NoResponder { what: subject.to_owned() },
            async_nats::RequestErrorKind::TimedOut => HubError::Timeout { what: subject.to_owned() },
            _ => HubError::Response { what: subject.to_owned(), reason: error.to_string() },
        })
    }

    /// Sends a message without waiting.
    ///
    /// # Errors
    ///
    /// There is no connection.
    pub fn publish(&self, subject: &str, headers: &[Header], body: Vec<u8>) -> Result<(), HubError> {
        if !self.is_connected() {
            return Err(HubError::Disconnected);
        }
        let subject = subject.to_owned();
        let sent = self.handle.block_on(async {
            match header_map(headers) {
                Some(headers) => self.client.publish_with_headers(subject, headers, body.into()).await,
                None => self.client.publish(subject, body.into()).await,
            }
        });
        sent.map_err(|_| HubError::Disconnected)
    }

    /// Receives the messages of a subject from now on.
    ///
    /// # Errors
    ///
    /// The subject is invalid.
    pub(crate) fn subscribe(self: &Arc<Hub>, subject: &str) -> Result<HubSubscription, HubError> {
        let subscribed = self.handle.block_on(self.client.subscribe(subject.to_owned()));
        let failed = |error: async_nats::SubscribeError| HubError::Response {
            what: subject.to_owned(),
            reason: error.to_string(),
        };
        Ok(HubSubscription { subscriber: subscribed.map_err(failed)?, hub: Arc::clone(self) })
    }

    /// A request to JetStream.
    ///
    /// # Errors
    ///
    /// As [`Hub::request`], and the hub refuses it.
    pub fn api(&self, call: &str, body: &Value) -> Result<Value, HubError> {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let response = self.request(&format!("$JS.API.{call}"), &[], body)?;
        parse_response(call, &response.body)
    }

    /// Stores a message in a stream, and returns its number there.
    ///
    /// # Errors
    ///
    /// As [`Hub::api`].
    pub fn store(&self, subject: &str, headers: &[Header], body: Vec<u8>) -> Result<u64, HubError> {
        let response = self.request(subject, headers, body)?;
        let acknowledged = parse_response(subject, &response.body)?;
        let without_number =
            || HubError::Response { what: subject.to_owned(), reason: "no number".to_owned() };
        acknowledged["seq"].as_u64().ok_or_else(without_number)
    }

    /// The last message of a subject in a stream; `None`: there is none.
    ///
    /// # Errors
    ///
    /// As [`Hub::request`].
    pub(crate) fn last_message(&self, stream: &str, subject: &str) -> Result<Option<HubMessage>, HubError> {
        let call = format!("$JS.API.DIRECT.GET.{stream}.{subject}");
        let message = self.request(&call, &[], Vec::new())?;
        match message.status {
            None => Ok(Some(message)),
            Some(404) => Ok(None),
            Some(status) => Err(HubError::Response { what: call, reason: format!("status {status}") }),
        }
    }

    /// The next message of a consumer; `None`: none arrived within `wait`. It is acknowledged on its reply subject.
    ///
    /// # Errors
    ///
    /// As [`Hub::request`].
    pub(crate) fn next_message(
        &self,
        (stream, consumer): (&str, &str),
        wait: Duration,
    ) -> Result<Option<HubMessage>, HubError> {
        let call = format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}");
        let expires = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
        let body = serde_json::json!({ "batch": 1, "expires": expires }).to_string().into_bytes();
        // The message keeps its own subject, so the common inbox of the client would not recognise it.
        let request = Request::new().payload(body.into()).timeout(Some(wait + TIMEOUT));
        match self.send(&call, request.inbox(self.client.new_inbox())) {
            Ok(message) if message.status.is_none() => Ok(Some(message)),
            Ok(_) | Err(HubError::Timeout { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The messages of a consumer that wait, at most this number; if none waits, the first that arrive within `wait`. Each is
    /// acknowledged on its reply subject.
    ///
    /// # Errors
    ///
    /// As [`Hub::request`].
    pub(crate) fn next_messages(
        &self,
        (stream, consumer): (&str, &str),
        most: usize,
        wait: Duration,
    ) -> Result<Vec<HubMessage>, HubError> {
        if !self.is_connected() {
            return Err(HubError::Disconnected);
        }
        let call = format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}");
        let expires = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
        // With both, the response ends with the messages that wait, or after the time.
        let body = serde_json::json!({ "batch": most, "max_bytes": MAX_BATCH_BYTES, "no_wait": true, "expires": expires });
        let began = Instant::now();
        let messages = self.handle.block_on(self.pull(&call, body.to_string(), most, wait + TIMEOUT))?;
        if messages.is_empty() {
            // The hub says at once that all waiting messages are for another collector.
            std::thread::sleep(PAUSE_OF_OTHERS.min(wait.saturating_sub(began.elapsed())));
        }
        Ok(messages)
    }

    /// Sends a request and receives until the response ends.
    async fn pull(
        &self,
        call: &str,
        body: String,
        most: usize,
        longest: Duration,
    ) -> Result<Vec<HubMessage>, HubError> {
        let deadline = tokio::time::Instant::now() + longest;
        let inbox = self.client.new_inbox();
        let subscribed = self.client.subscribe(inbox.clone()).await;
        let mut subscriber = subscribed.map_err(|_| HubError::Disconnected)?;
        let sent = self.client.publish_with_reply(call.to_owned(), inbox, body.into()).await;
        sent.map_err(|_| HubError::Disconnected)?;
        let mut messages = Vec::new();
        while messages.len() < most {
            let next = tokio::time::timeout_at(deadline, subscriber.next()).await;
            let Some(message) = next.ok().flatten() else {
                let timeout = HubError::Timeout { what: call.to_owned() };
                return if messages.is_empty() { Err(timeout) } else { Ok(messages) };
            };
            match message.status {
                None => messages.push(HubMessage::of(message)),
                Some(StatusCode::NO_RESPONDERS) => {
                    return Err(HubError::NoResponder { what: call.to_owned() });
                }
                Some(_) => break,
            }
        }
        Ok(messages)
    }
}

/// Messages of a subject.
#[derive(Debug)]
pub struct HubSubscription {
    subscriber: Subscriber,
    hub: Arc<Hub>,
}

impl HubSubscription {
    /// The next message; `None`: none arrived in time.
    pub fn next(&mut self, wait: Duration) -> Option<HubMessage> {
        let next = async { tokio::time::timeout(wait, self.subscriber.next()).await };
        let message = self.hub.handle.block_on(next).ok()??;
        Some(HubMessage::of(message))
    }
}

fn nats_options(options: &HubOptions, failure: &LastFailure) -> ConnectOptions {
    let failure = Arc::clone(failure);
    let note = move |event: Event| {
        let mut state = failure.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::ClientError(error) => state.reason = Some(reconnect_failure(&error.to_string())),
            Event::ServerError(ServerError::Other(error)) => {
                state.has_refused |= error.to_ascii_lowercase().contains("permissions violation");
            }
            _ => {}
        }
        std::future::ready(())
    };
    let pause = |attempt: usize| {
        let base = Duration::from_millis(100 * (1u64 << attempt.min(10)));
        // Agents that lost the same hub do not return at the same moment.
        base.min(MAX_RECONNECT_PAUSE).mul_f64(0.5 + fastrand::f64() / 2.0)
    };
    let mut nats = ConnectOptions::with_nkey(options.seed.text().to_owned())
        .name(format!("linkgauge {}", options.name))
        .custom_inbox_prefix(format!("_INBOX.{}", options.name))
        .connection_timeout(TIMEOUT)
        .ping_interval(Duration::from_secs(20))
        .event_callback(note)
        .max_reconnects(None)
        .reconnect_delay_callback(pause)
        .ignore_discovered_servers()
        .require_tls(options.url.starts_with("tls://"));
    if let Some(ca) = &options.ca {
        nats = nats.add_root_certificates(ca.clone());
    }
    match options.initial {
        InitialConnect::Required => nats,
        InitialConnect::Retried => nats.retry_on_initial_connect(),
    }
}

fn is_recent(version: &str) -> bool {
    let mut parts = version.split(['.', '-']).map(str::parse::<u32>);
    match (parts.next(), parts.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= MIN_VERSION,
        _ => false,
    }
}

/// Orders and results are confidential, and the list of hosts as well.
fn check_url(url: &str) -> Result<(), HubError> {
    let wrong = |why: &str| Err(HubError::Url { url: url.to_owned(), why: why.to_owned() });
    if url.starts_with("tls://") {
        return Ok(());
    }
    let Some(rest) = url.strip_prefix("nats://") else {
        return wrong("not the URL of a hub. Write it like tls://hub.example:4222");
    };
    let host = match rest.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => rest.split([':', '/']).next().unwrap_or_default(),
    };
    if host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback()) {
        return Ok(());
    }
    wrong("without TLS others can read orders and results. Use tls://")
}

fn connect_failure(error: &async_nats::ConnectError) -> String {
    match error.kind() {
        async_nats::ConnectErrorKind::AuthorizationViolation => {
            "it does not accept the key. Add its public key to the configuration of the server".to_owned()
        }
        async_nats::ConnectErrorKind::TimedOut => format!("no reply within {} s", TIMEOUT.as_secs()),
        _ => certificate::remedy(error, HUB_CA).unwrap_or_else(|| error.to_string()),
    }
}

/// Where the file of an authority is named.
const HUB_CA: &str = "ca = \"FILE\" in the section [fleet], or --ca FILE of an agent";

/// While it reconnects, the client library says only of which kind a failure is.
fn reconnect_failure(error: &str) -> String {
    match error.trim_start_matches("nats: ") {
        "IO error" => "it does not listen there, or its certificate is not accepted (--ca)".to_owned(),
        other => other.to_owned(),
    }
}

fn header_map(headers: &[Header]) -> Option<HeaderMap> {
    let mut map = HeaderMap::new();
    headers.iter().for_each(|(name, value)| map.insert(*name, value.as_str()));
    (!headers.is_empty()).then_some(map)
}

/// The JSON of a response.
///
/// # Errors
///
/// It reports an error, or is no JSON.
pub(crate) fn parse_response(what: &str, body: &[u8]) -> Result<Value, HubError> {
    let unexpected =
        |error: serde_json::Error| HubError::Response { what: what.to_owned(), reason: error.to_string() };
    let value: Value = serde_json::from_slice(body).map_err(unexpected)?;
    match value.get("error") {
        None => Ok(value),
        Some(error) if UNDEFINED.contains(&error["err_code"].as_u64().unwrap_or(0)) => {
            Err(HubError::Undefined { what: what.to_owned() })
        }
        Some(error) => Err(HubError::Refused {
            what: what.to_owned(),
            code: error["err_code"].as_u64().unwrap_or(0),
            reason: error["description"].as_str().unwrap_or("no reason").to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_needs_no_encryption() {
        for good in ["tls://hub.example", "tls://192.0.2.1:4222", "nats://127.0.0.1:4222", "nats://[::1]:1"] {
            assert!(check_url(good).is_ok(), "{good}");
        }
        for bad in ["nats://hub.example", "http://127.0.0.1", "hub.example", "nats://127.example"] {
            assert!(check_url(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn older_servers_are_refused() {
        for (version, is_enough) in [
            ("2.12.0", true),
            ("2.15.2", true),
            ("2.12.0-RC.1", true),
            ("3.0.0", true),
            ("2.11.9", false),
            ("2.9.10", false),
            ("", false),
        ] {
            assert_eq!(is_recent(version), is_enough, "{version}");
        }
    }

    #[test]
    fn an_error_of_the_hub_has_its_number() {
        let refused = br#"{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 2"},"stream":"LEASE"}"#;
        let error = parse_response("lease.host.a", refused).unwrap_err();
        assert!(matches!(error, HubError::Refused { code: 10071, .. }), "{error}");
        assert!(parse_response("x", b"+ACK").is_err());
    }
}
