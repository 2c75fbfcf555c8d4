//! `linx-bmark`: the benchmark of the LINX distribution (linx_bmark, 2.5 to 2.6.9), client and server.
//!
//! A client sends a connect signal to the server. The server creates an endpoint for this client, which replies and
//! then serves it: echoes, or bursts of a requested number of signals. A message is a whole signal, including its
//! number.

mod burst_receiver;
mod server;
mod signal;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use super::{
    CaseDraft, CaseError, ClientSession, ConnectContext, Flow, Protocol, ProtocolError, ProtocolOptions,
    ReadyCase, open_flows,
};
use crate::link::{Caps, Dialer, Fault, Framing, Link, LinkError};
use crate::transport::linx::ethernet_cm::frame_count;
use crate::transport::linx::with_raw_signals;
use crate::workload::latency::{Pinger, ReplyStatus, RequestReplyCodec};
use crate::workload::pattern::{Alphabet, PatternMessage, SEQUENCE_BYTES};
use crate::workload::{FlowReport, FlowResult, FlowRole, Load, ServerReport, TrafficKind};
use burst_receiver::BurstReceiver;
use linkgauge_model::clock::Clock;
use linkgauge_model::endpoint::Endpoint;
use linkgauge_model::plan::Direction;
use signal::{CONN_EST, ECHO, SIGNAL_NUMBER_BYTES, TERMINATE_REQ, signal_number};

pub(crate) const PROTOCOL: Protocol = Protocol {
    name: "linx-bmark",
    summary: "the LINX benchmark (linx_bmark): echoes and bursts of signals",
    default_ports: &[],
    traffic: &[
        (TrafficKind::RoundTrips, &[Direction::Loop]),
        (TrafficKind::Load, &[Direction::Receive, Direction::Loop]),
    ],
    options: &[
        ("style", "request of a burst as in LINX 2.6.8 and later: new (default); as before: old"),
        ("burst", "signals of one burst, 1 to 1M (40); over Ethernet no more than a real node queues"),
    ],
    sizes: &[],
    is_measured_whole: false,
    shorthand: None,
    original_server: Some(|_, _| "linx_bmark -S".to_owned()),
    prepare_case,
    connect,
    serve: Some(|_| Arc::new(server::BmarkService)),
};

/// Default size of a signal of the original, in bytes.
const DEFAULT_SIGNAL_BYTES: u32 = 2048;
const DEFAULT_BURST_SIGNALS: u32 = 40;

/// Maximum number of Ethernet frames in flight. A real node queues 2048 of a connection, and drops the connection beyond that.
/// Control frames need the difference.
const MAX_QUEUED_FRAMES: u32 = 1920;

/// Style of a client, by release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientStyle {
    Old,
    New,
}

fn parse_style(options: &ProtocolOptions) -> Result<ClientStyle, CaseError> {
    match options.get("style").map(String::as_str) {
        None | Some("new") => Ok(ClientStyle::New),
        Some("old") => Ok(ClientStyle::Old),
        Some(other) => {
            Err(CaseError::Option(format!("protocol linx-bmark: style '{other}' is neither new nor old")))
        }
    }
}

fn parse_burst(options: &ProtocolOptions) -> Result<u32, CaseError> {
    let Some(text) = options.get("burst") else { return Ok(DEFAULT_BURST_SIGNALS) };
    let count =
        linkgauge_model::units::parse_count(text).ok().filter(|count| (1..=1_000_000).contains(count));
    let count = count.and_then(|count| u32::try_from(count).ok());
    count.ok_or_else(|| {
        CaseError::Option(format!("protocol linx-bmark: burst '{text}' is not a count from 1 to 1M"))
    })
}

fn prepare_case(case: &mut CaseDraft, caps: &Caps) -> Result<(), CaseError> {
    parse_style(&case.options)?;
    parse_burst(&case.options)?;
    require_messages(caps)?;
    let bytes = *case.message_bytes.get_or_insert(DEFAULT_SIGNAL_BYTES);
    if (bytes as usize) < SIGNAL_NUMBER_BYTES {
        return Err(CaseError::MessageSize(format!(
            "protocol linx-bmark: a signal of {bytes} bytes is too short: use {SIGNAL_NUMBER_BYTES} or more, for its number"
        )));
    }
    for endpoint in &mut case.endpoints {
        *endpoint = with_raw_signals(endpoint).map_err(|error| CaseError::Endpoint(error.to_string()))?;
    }
    Ok(())
}

/// Checks that the link has messages: a stream has no signals.
fn require_messages(caps: &Caps) -> Result<(), CaseError> {
    match caps.framing {
        Framing::Message => Ok(()),
        Framing::Stream => Err(CaseError::Link(
            "protocol linx-bmark: signals need a link with messages, like linx://host/server".to_owned(),
        )),
    }
}

/// Limits a burst so that all signals in flight fit into the queue of a real node. `mtu`: bytes of a frame, where there
/// are frames.
fn limit_burst(count: u32, load: &Load, mtu: Option<u64>) -> u32 {
    let Some(mtu) = mtu else { return count };
    let frames = frame_count(load.message_bytes as usize, mtu as usize).saturating_mul(load.flows);
    count.min((MAX_QUEUED_FRAMES / frames.max(1)).max(1))
}

fn connect(case: &ReadyCase, context: &ConnectContext) -> Result<Box<dyn ClientSession>, ProtocolError> {
    let (style, count) = (parse_style(&case.options)?, parse_burst(&case.options)?);
    let clock = &context.dialer.clock;
    let mut effective = None;
    let flows = open_flows(case, context, |load, port, mut link, flows| {
        handshake(link.as_mut(), style, &case.endpoints[port], context.dialer)?;
        let caps = link.caps().clone();
        if case.workload.is_round_trip() {
            let codec = Box::new(SignalEchoCodec::new(load.message_bytes as usize, &caps));
            let party = Pinger::new(codec, load, &caps, (context.new_recorder)(FlowRole::RoundTrip, port));
            flows.push(Flow {
                role: FlowRole::RoundTrip,
                endpoint_index: port,
                link,
                party: Box::new(party),
            });
        } else {
            let recorder = (context.new_recorder)(FlowRole::Download, port);
            let party = match case.direction {
                Direction::Loop => BurstReceiver::new_echo(
                    load,
                    SignalEchoCodec::new(load.message_bytes as usize, &caps).signal,
                    recorder,
                ),
                _ => {
                    let mtu = link.facts().get("frame_bytes").and_then(Value::as_u64);
                    let count = limit_burst(count, load, mtu);
                    effective = Some(count);
                    BurstReceiver::new(load, style, count, recorder)
                }
            };
            flows.push(Flow { role: FlowRole::Download, endpoint_index: port, link, party: Box::new(party) });
        }
        Ok(())
    })?;
    Ok(Box::new(BmarkSession {
        flows,
        burst_signals: effective,
        clock: clock.clone(),
        timeout: context.dialer.timeout.max(MIN_END_TIMEOUT),
    }))
}

/// Sends the connect signal and waits for the reply of the endpoint that will serve this client.
fn handshake(
    link: &mut dyn Link,
    style: ClientStyle,
    endpoint: &Endpoint,
    dialer: &Dialer,
) -> Result<(), ProtocolError> {
    let until = dialer.now() + dialer.timeout;
    let fault = |fault| ProtocolError::Link(LinkError::new(endpoint, fault));
    link.send(&signal::encode_conn_est(style), dialer.timeout).map_err(fault)?;
    let mut reply = vec![0; link.caps().max_message_bytes.unwrap_or(1)];
    loop {
        match dialer.receive(link, &mut reply, until.since(dialer.now())) {
            Ok(length) if signal_number(&reply[..length]) == Some(CONN_EST) => return Ok(()),
            Ok(_) => {}
            Err(Fault::TimedOut | Fault::Closed) => {
                let what = "no linx_bmark server replied: start 'linx_bmark -S', or 'linkgauge serve --protocol \
                            linx-bmark'";
                return Err(ProtocolError::unexpected_reply(endpoint, what));
            }
            Err(other) => return Err(fault(other)),
        }
    }
}

/// Minimum time to wait for the end of the serving endpoints.
const MIN_END_TIMEOUT: Duration = Duration::from_secs(1);

struct BmarkSession {
    flows: Vec<Flow>,
    /// Number of signals of one burst.
    burst_signals: Option<u32>,
    clock: Clock,
    timeout: Duration,
}

impl ClientSession for BmarkSession {
    fn take_flows(&mut self) -> Vec<Flow> {
        std::mem::take(&mut self.flows)
    }

    /// Terminates the serving endpoints and waits until they have ended.
    fn finish(
        &mut self,
        flows: &[FlowResult],
        mut links: Vec<Box<dyn Link>>,
    ) -> Result<Option<ServerReport>, ProtocolError> {
        let until = self.clock.now() + self.timeout;
        for link in &mut links {
            // The endpoint may have ended already.
            let _ = link.send(&TERMINATE_REQ.to_be_bytes(), self.timeout);
        }
        let mut rest = [0; SIGNAL_NUMBER_BYTES];
        for link in &mut links {
            while link.receive(&mut rest, until.since(self.clock.now())).is_ok() {}
        }
        let is_download = |flow: &&FlowResult| flow.role == FlowRole::Download;
        let reports = flows.iter().filter(is_download).map(|flow| FlowReport {
            port: flow.endpoint_index,
            messages: flow.recorder.counts.sent,
            inward: true,
            ..FlowReport::default()
        });
        Ok(Some(ServerReport { flows: reports.collect(), ..ServerReport::default() }))
    }

    fn effective_settings(&self) -> Map<String, Value> {
        self.burst_signals.map(|count| ("burst_signals".to_owned(), count.into())).into_iter().collect()
    }
}

/// Codec of an echo with a signal number in front.
struct SignalEchoCodec {
    signal: Vec<u8>,
    message: PatternMessage,
}

impl SignalEchoCodec {
    pub fn new(bytes: usize, caps: &Caps) -> SignalEchoCodec {
        let message = PatternMessage::new(bytes - SIGNAL_NUMBER_BYTES, Alphabet::from_caps(caps));
        let mut signal = ECHO.to_be_bytes().to_vec();
        signal.extend_from_slice(message.bytes());
        SignalEchoCodec { signal, message }
    }
}

impl RequestReplyCodec for SignalEchoCodec {
    #[inline]
    fn encode_request(&mut self, sequence: u64) -> &[u8] {
        let head = self.message.len().min(SEQUENCE_BYTES);
        self.signal[SIGNAL_NUMBER_BYTES..SIGNAL_NUMBER_BYTES + head]
            .copy_from_slice(&sequence.to_le_bytes()[..head]);
        &self.signal
    }

    #[inline]
    fn parse_reply(&mut self, data: &[u8], waiting: Range<u64>) -> ReplyStatus {
        let used = data.len();
        if signal_number(data) != Some(ECHO) || used < self.signal.len().min(SIGNAL_NUMBER_BYTES + 1) {
            return ReplyStatus::Unrelated { used };
        }
        let (head, body) = data[SIGNAL_NUMBER_BYTES..]
            .split_at((used - SIGNAL_NUMBER_BYTES).min(SEQUENCE_BYTES).min(self.message.len()));
        // Without a number it is the reply to the request in flight.
        let sequence = match self.has_sequence_numbers() {
            true => self.message.read_sequence(head, waiting.start),
            false => Some(waiting.start),
        };
        let Some(sequence) = sequence else { return ReplyStatus::Unrelated { used } };
        let corrupt_bytes = crate::workload::pattern::count_differing(body, self.message.body());
        ReplyStatus::Complete { sequence, used, corrupt_bytes }
    }

    fn has_sequence_numbers(&self) -> bool {
        !self.message.is_empty()
    }
}

#[cfg(test)]
mod tests;
