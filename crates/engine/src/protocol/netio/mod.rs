//! `netio`: Kai Uwe Rommel's NETIO, the network throughput benchmark, and compatible programs.
//!
//! Blocks of one size go in one direction for some time; the last one has a flag in its first byte. The receiver sends
//! no reply, so NETIO's own figure of the sending direction is the data accepted by the local system. It is reported in
//! addition to the data that the remote system acknowledged. All cases of a run with one endpoint share a connection,
//! as NETIO's sizes do. This file is the session over streams, `datagram` the other one; `wire` the control words,
//! `sender` and `receiver` the client's parties, `server` and `clients` the server.

mod clients;
mod datagram;
mod receiver;
mod sender;
mod server;
pub mod wire;

use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value};

use super::discard::drain_and_report;
use super::{
    CaseDraft, CaseError, ClientSession, ConnectContext, ConnectionCache, Flow, Protocol, ProtocolError,
    ProtocolOptions, ReadyCase,
};
use crate::link::{Caps, Framing, Link, LinkError, on_port};
use crate::workload::throughput::Sink;
use crate::workload::{FlowReport, FlowResult, FlowRole, Load, ServerReport, TrafficKind};
use linkgauge_model::clock::{Clock, Time};
use linkgauge_model::plan::{Direction, StopCondition};
use receiver::BlockReceiver;
use sender::BlockSender;
use wire::{BLOCK_SIZES, ControlWord, MAX_BLOCK_BYTES, NetioDialect};

/// The `netio` protocol.
pub(crate) const PROTOCOL: Protocol = Protocol {
    name: "netio",
    summary: "NETIO, the network throughput benchmark: blocks of 1 to 32 KB, its counts beside those of linkgauge",
    default_ports: &[("tcp", 18767), ("udp", DATAGRAM_PORT), ("tcp", DATAGRAM_PORT)],
    traffic: &[(TrafficKind::Load, &[Direction::Send, Direction::Receive, Direction::Both])],
    options: &[(
        DIALECT_OPTION,
        "a (NETIO up to 1.14, send only), b (1.15 to 1.22, from a little-endian machine), c (from 1.23, the default)",
    )],
    sizes: &BLOCK_SIZES,
    is_measured_whole: true,
    shorthand: None,
    original_server: Some(|_, port| format!("netio -s{}", on_port(port))),
    prepare_case,
    connect,
    serve: Some(server::new_service),
};

/// Port of the datagrams, and of the stream that controls them.
const DATAGRAM_PORT: u16 = 18768;

const DIALECT_OPTION: &str = "dialect";

/// Extra time for the last bytes of a direction with the maximum duration.
const GRACE_PERIOD: Duration = Duration::from_secs(10);

/// Maximum send time of a server. The client cannot stop the server and does not know its send time: 6 s in the
/// original, 10 s in its older versions.
const MAX_SERVER_SEND_TIME: Duration = Duration::from_secs(10);

/// Timeout of the last messages of a connection.
const FINAL_SEND_TIMEOUT: Duration = Duration::from_millis(500);

fn parse_dialect(options: &ProtocolOptions) -> Result<NetioDialect, CaseError> {
    let Some(name) = options.get(DIALECT_OPTION) else { return Ok(NetioDialect::C) };
    NetioDialect::from_name(name).ok_or_else(|| {
        CaseError::Option(format!("protocol netio: unknown dialect '{name}' (known: a, b, c)"))
    })
}

fn prepare_case(case: &mut CaseDraft, caps: &Caps) -> Result<(), CaseError> {
    let wrong = |kind: fn(String) -> CaseError, what: &str| Err(kind(format!("protocol netio: {what}")));
    let dialect = parse_dialect(&case.options)?;
    if dialect == NetioDialect::A && case.direction != Direction::Send {
        return wrong(CaseError::Workload, "dialect a only sends: use --direction send, or dialect c");
    }
    if caps.framing == Framing::Message {
        if dialect == NetioDialect::A {
            return wrong(CaseError::Link, "dialect a has no datagrams: use dialect b or c");
        }
        datagram::check_case(case)?;
    }
    if let Some(bytes) = case.message_bytes.filter(|&bytes| bytes > MAX_BLOCK_BYTES) {
        let what = format!("blocks of {bytes} bytes do not fit: use a --size of at most {MAX_BLOCK_BYTES}");
        return wrong(CaseError::MessageSize, &what);
    }
    if !case.warm_up.is_unlimited() {
        return wrong(CaseError::Duration, "it has no warm-up: leave it out");
    }
    if case.direction == Direction::Receive && (case.stop.count.is_some() || case.stop.volume_bytes.is_some())
    {
        let what = "only the server decides how much it sends: leave out count and volume";
        return wrong(CaseError::Duration, what);
    }
    Ok(())
}

fn connect(case: &ReadyCase, context: &ConnectContext) -> Result<Box<dyn ClientSession>, ProtocolError> {
    let dialect = parse_dialect(&case.options)?;
    if case.caps[0].framing == Framing::Message {
        return datagram::connect(case, context, dialect);
    }
    let mut session = NetioSession {
        flows: Vec::new(),
        connections: Vec::new(),
        dialect,
        block_bytes: u64::from(case.load.message_bytes).max(1),
        connection_cache: context.connection_cache.clone(),
        clock: context.dialer.clock.clone(),
        timeout: case.load.timeout,
        endpoints: case.endpoints.iter().map(ToString::to_string).collect(),
        effective_settings: Map::from_iter([(DIALECT_OPTION.to_owned(), dialect.name().into())]),
    };
    for (port, endpoint) in case.endpoints.iter().enumerate() {
        for _ in 0..case.parallel {
            let key = session.cache_key(port);
            let link = match context
                .connection_cache
                .take::<CachedConnection>(&key)
                .and_then(CachedConnection::into_link)
            {
                Some(link) => link,
                None => context.dialer.open(endpoint)?,
            };
            session.add_connection(case, context, port, link)?;
        }
    }
    Ok(Box::new(session))
}

/// Counts and state of one side of a direction, as in NETIO.
#[derive(Debug, Default)]
struct BlockTally {
    bytes: u64,
    first_instant: Option<Time>,
    last_instant: Option<Time>,
    /// Whether the receiver saw the last block.
    is_complete: bool,
    /// Bytes that a stopped sender still has to send, to complete its block and add the last one.
    owed_bytes: Vec<u8>,
    fault: Option<String>,
}

/// Request that reverses a connection, shared by the two flows that use it.
#[derive(Debug, Default)]
struct Handoff {
    /// Whether the request is about to be sent: data may arrive before its sender has recorded the time.
    request_started: AtomicBool,
    /// Time at which the request was sent; 0 before.
    requested_ns: AtomicU64,
    /// Whether the request will never be sent.
    given_up: AtomicBool,
}

impl Handoff {
    fn start_request(&self) {
        self.request_started.store(true, Relaxed);
    }

    fn is_request_started(&self) -> bool {
        self.request_started.load(Relaxed)
    }

    fn mark_requested(&self, at: Time) {
        self.requested_ns.store(at.0.max(1), Relaxed);
    }

    fn give_up(&self) {
        self.given_up.store(true, Release);
    }

    fn requested_at(&self) -> Option<Time> {
        Some(self.requested_ns.load(Relaxed)).filter(|&at| at > 0).map(Time)
    }

    fn is_given_up(&self) -> bool {
        self.given_up.load(Acquire)
    }
}

/// Connection between two cases: sends QUIT on drop unless it is used again.
struct CachedConnection {
    link: Option<Box<dyn Link>>,
    dialect: NetioDialect,
}

impl CachedConnection {
    /// Returns the link, unless the server has closed it.
    fn into_link(mut self) -> Option<Box<dyn Link>> {
        self.link.take().filter(|link| !link.status().is_hung_up)
    }
}

impl Drop for CachedConnection {
    fn drop(&mut self) {
        if let (Some(link), true) = (&mut self.link, self.dialect != NetioDialect::A) {
            // The server may have ended already.
            let _ = link.send(&ControlWord::Quit.encode(self.dialect), FINAL_SEND_TIMEOUT);
        }
    }
}

/// Shared tally of one side.
type SharedTally = Arc<Mutex<BlockTally>>;

/// Connection of the case: its flows run one after the other, the sender first.
struct ConnectionFlows {
    endpoint_index: usize,
    sender: Option<SharedTally>,
    receiver: Option<SharedTally>,
    handoff: Arc<Handoff>,
}

/// Result of one flow of a connection.
struct NetioDirectionResult<'a> {
    tally: BlockTally,
    flow: &'a FlowResult,
    link: Box<dyn Link>,
}

/// Maximum time until a server that does not know a control word closes the connection; one that closes it later was ended.
const MAX_REFUSAL_NS: u64 = 1_000_000_000;

/// Result of a connection whose flows have ended.
struct ConnectionResult<'a> {
    endpoint_index: usize,
    sent: Option<NetioDirectionResult<'a>>,
    received: Option<NetioDirectionResult<'a>>,
}

impl ConnectionResult<'_> {
    /// Reason for an early end.
    fn fault(&self, endpoint: &str) -> Option<String> {
        let ran = self.sent.iter().chain(&self.received);
        let tally_fault =
            |ran: &NetioDirectionResult| ran.tally.fault.as_ref().map(|what| format!("{endpoint}: {what}"));
        let failure = || ran.clone().find_map(|ran| Some(ran.flow.fault.as_ref()?.message.clone()));
        ran.clone().find_map(tally_fault).or_else(failure)
    }

    /// Whether the server sent nothing that is valid in this dialect.
    fn is_wrong_dialect(&self) -> bool {
        match (&self.sent, &self.received) {
            (_, Some(ran)) if ran.tally.first_instant.is_some() => ran.tally.bytes == 0,
            (Some(ran), _) => {
                let is_early = ran.flow.recorder.elapsed_ns() < MAX_REFUSAL_NS;
                is_early && ran.tally.fault.is_none() && ran.link.status().is_hung_up
            }
            _ => false,
        }
    }

    /// Returns the link and the bytes to send before the next control word; `None` while the server still sends.
    fn into_idle_link(self) -> Option<(Box<dyn Link>, Vec<u8>)> {
        if self
            .received
            .as_ref()
            .is_some_and(|ran| ran.tally.first_instant.is_some() && !ran.tally.is_complete)
        {
            return None;
        }
        let ran = self.sent.or(self.received)?;
        // A server with another protocol gets no more data.
        ran.tally.fault.is_none().then_some((ran.link, ran.tally.owed_bytes))
    }
}

struct NetioSession {
    flows: Vec<Flow>,
    connections: Vec<ConnectionFlows>,
    dialect: NetioDialect,
    block_bytes: u64,
    connection_cache: Arc<ConnectionCache>,
    clock: Clock,
    timeout: Duration,
    endpoints: Vec<String>,
    effective_settings: Map<String, Value>,
}

impl NetioSession {
    /// Key of a cached connection.
    fn cache_key(&self, port: usize) -> String {
        format!("{} {} {}", PROTOCOL.name, self.dialect.name(), self.endpoints[port])
    }

    /// Adds the flows of one connection.
    fn add_connection(
        &mut self,
        case: &ReadyCase,
        context: &ConnectContext,
        port: usize,
        link: Box<dyn Link>,
    ) -> Result<(), ProtocolError> {
        let caps = link.caps().clone();
        let (dialect, handoff) = (self.dialect, Arc::<Handoff>::default());
        let (sends, receives) = (case.sends(), case.receives());
        let back = match sends && receives {
            true => Some(link.second_handle().map_err(|fault| LinkError::new(&case.endpoints[port], fault))?),
            false => None,
        };
        let mut links = [Some(link), back].into_iter().flatten();
        let mut line =
            ConnectionFlows { endpoint_index: port, sender: None, receiver: None, handoff: handoff.clone() };
        if sends && let Some(link) = links.next() {
            let recorder = (context.new_recorder)(FlowRole::Upload, port);
            let mut sender = BlockSender::new(&case.load, &caps, recorder).with_announcement(dialect);
            if receives {
                sender = sender.with_next_request(dialect, handoff.clone());
            }
            line.sender = Some(sender.shared_tally());
            self.flows.push(Flow {
                role: FlowRole::Upload,
                endpoint_index: port,
                link,
                party: Box::new(sender),
            });
        }
        if receives && let Some(link) = links.next() {
            // The server decides how long it sends; the sink only needs an upper limit.
            let load = Load { stop: StopCondition::after_time(MAX_SERVER_SEND_TIME), ..case.load };
            let sink = Sink::new(&load, &caps, (context.new_recorder)(FlowRole::Download, port));
            let word = (!sends).then(|| ControlWord::ServerSends(load.message_bytes).encode(dialect));
            let receiver = BlockReceiver::new(sink, &load, word, handoff);
            line.receiver = Some(receiver.shared_tally());
            self.flows.push(Flow {
                role: FlowRole::Download,
                endpoint_index: port,
                link,
                party: Box::new(receiver),
            });
        }
        self.connections.push(line);
        Ok(())
    }

    /// Returns the connections with the results of their flows.
    fn connection_results<'a>(
        &self,
        flows: &'a [FlowResult],
        links: Vec<Box<dyn Link>>,
    ) -> Vec<ConnectionResult<'a>> {
        let mut flows = flows.iter().zip(links);
        let mut ran = |tally: &Option<SharedTally>| {
            let tally = std::mem::take(&mut *tally.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner));
            flows.next().map(|(flow, link)| NetioDirectionResult { tally, flow, link })
        };
        let used = |line: &ConnectionFlows| {
            let mut used = ConnectionResult {
                endpoint_index: line.endpoint_index,
                sent: ran(&line.sender),
                received: ran(&line.receiver),
            };
            if let Some(received) = &mut used.received {
                // The receiver may have ended before the sender had recorded the time of the request.
                received.tally.first_instant = line.handoff.requested_at();
            }
            used
        };
        self.connections.iter().map(used).collect()
    }

    /// Adds the combined counts of one direction to the document.
    fn record_direction<'a>(
        &mut self,
        ran: impl Iterator<Item = &'a NetioDirectionResult<'a>> + Clone,
        bytes: &str,
        time: &str,
    ) {
        let tallies = ran.map(|ran| &ran.tally);
        let first = tallies.clone().filter_map(|tally| tally.first_instant).min();
        let last = tallies.clone().filter_map(|tally| tally.last_instant).max();
        if let (Some(first), Some(last)) = (first, last) {
            let sum: u64 = tallies.map(|tally| tally.bytes).sum();
            self.effective_settings.insert(bytes.to_owned(), sum.into());
            self.effective_settings.insert(time.to_owned(), (last.since(first).as_nanos() as u64).into());
        }
    }

    /// Reports the delivered payload: sent bytes that were acknowledged. If the server sends blocks afterwards, the first of
    /// them shows that it has read everything before.
    fn build_report(&self, used: &[ConnectionResult]) -> ServerReport {
        let sent: Vec<&NetioDirectionResult> = used.iter().filter_map(|used| used.sent.as_ref()).collect();
        let links: Vec<_> = sent.iter().map(|ran| (ran.flow, &*ran.link)).collect();
        let mut flows = drain_and_report(&links, self.block_bytes, &self.clock, self.timeout);
        for (flow, used) in flows.iter_mut().zip(used) {
            flow.fault = flow.fault.take().map(|fault| format!("{}: {fault}", self.endpoints[flow.port]));
            let first = |ran: &Option<NetioDirectionResult>| ran.as_ref()?.flow.recorder.first_instant;
            // Data that arrives before the request does not show that.
            let requested = used.received.as_ref().and_then(|ran| ran.tally.first_instant);
            if let (Some(sent), Some((first, back))) =
                (&used.sent, first(&used.sent).zip(first(&used.received)))
                && requested.is_some_and(|requested| requested <= back)
            {
                let counts = &sent.flow.recorder.counts;
                (flow.bytes, flow.messages, flow.fault) = (counts.delivered_bytes, counts.sent, None);
                flow.elapsed_ns = back.since(first).as_nanos() as u64;
            }
        }
        let received = used.iter().filter_map(|used| used.received.as_ref()).map(|ran| FlowReport {
            port: ran.flow.endpoint_index,
            inward: true,
            bytes: ran.flow.recorder.counts.delivered_bytes,
            messages: ran.flow.recorder.counts.received,
            ..FlowReport::default()
        });
        flows.extend(received);
        ServerReport { flows, ..ServerReport::default() }
    }

    /// Completes the current block to make the connection reusable; otherwise the connection is reset. After a regular
    /// close within a block, an original server waits for the rest in an endless loop at 100 % CPU.
    fn complete_block(&self, mut link: Box<dyn Link>, owed: &[u8]) -> Option<CachedConnection> {
        let mut left = owed;
        let until = self.clock.now() + FINAL_SEND_TIMEOUT;
        while !left.is_empty() {
            match link.send(left, until.since(self.clock.now())) {
                Ok(taken) => left = &left[taken..],
                Err(_) => {
                    link.abort();
                    return None;
                }
            }
        }
        Some(CachedConnection { link: Some(link), dialect: self.dialect })
    }
}

impl ClientSession for NetioSession {
    fn take_flows(&mut self) -> Vec<Flow> {
        std::mem::take(&mut self.flows)
    }

    fn finish(
        &mut self,
        flows: &[FlowResult],
        links: Vec<Box<dyn Link>>,
    ) -> Result<Option<ServerReport>, ProtocolError> {
        let used = self.connection_results(flows, links);
        self.record_direction(used.iter().filter_map(|used| used.sent.as_ref()), "tx_bytes", "tx_ns");
        self.record_direction(used.iter().filter_map(|used| used.received.as_ref()), "rx_bytes", "rx_ns");
        let mut report = self.build_report(&used);
        let fault = used.iter().find_map(|used| {
            let fault = used.fault(&self.endpoints[used.endpoint_index])?;
            Some(if used.is_wrong_dialect() { fault + dialect_hint(self.dialect) } else { fault })
        });
        if let (Some(fault), Some(flow)) = (fault, report.flows.first_mut()) {
            flow.fault = Some(fault);
        }
        // A server that does not read cannot receive a control word either.
        let failed = report.flows.iter().any(|flow| flow.fault.is_some());
        for used in used {
            let port = used.endpoint_index;
            if let Some((link, owed)) = used.into_idle_link()
                && let Some(connection) = self.complete_block(link, &owed)
                && !failed
            {
                self.connection_cache.store(self.cache_key(port), connection);
            }
        }
        Ok(Some(report))
    }

    fn effective_settings(&self) -> Map<String, Value> {
        self.effective_settings.clone()
    }
}

/// Suggests another dialect if the server did not follow this one.
fn dialect_hint(dialect: NetioDialect) -> &'static str {
    match dialect {
        NetioDialect::C => "; a NETIO of 1.15 to 1.22 needs --dialect b, one before it --dialect a",
        NetioDialect::B => "; a NETIO from 1.23 on needs --dialect c",
        NetioDialect::A => "",
    }
}

#[cfg(test)]
mod tests;
