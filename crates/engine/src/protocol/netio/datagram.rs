//! Client over datagrams: each datagram is a block without a header; a separate stream carries the control words.
//!
//! Client and server both use the server's port number, because the server sends its datagrams to that port. The counts
//! of sender and receiver are sent on the stream; datagrams still in transit then count as lost.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use super::sender::BlockSender;
use super::wire::{ControlWord, NetioDialect, WORD_BYTES, loss_percent, make_block};
use super::{CachedConnection, DATAGRAM_PORT, DIALECT_OPTION, MAX_SERVER_SEND_TIME, PROTOCOL};
use crate::link::party::Tuning;
use crate::link::{Dialer, Fault, Link, LinkError, keep_alive};
use crate::protocol::{
    CaseDraft, CaseError, ClientSession, ConnectContext, ConnectionCache, Flow, ProtocolError, ReadyCase,
};
use crate::transport::companion_stream;
use crate::workload::throughput::Sink;
use crate::workload::throughput::header::{HeaderCodec, ParsedHeader};
use crate::workload::{FlowReport, FlowResult, FlowRole, Load, ServerReport};
use linkgauge_model::clock::{Clock, Time};
use linkgauge_model::endpoint::Endpoint;
use linkgauge_model::plan::{Direction, StopCondition};

/// Format of plain datagrams, which have no numbers.
struct NoHeader;

impl HeaderCodec for NoHeader {
    fn length(&self) -> usize {
        0
    }

    fn write(&mut self, _message: &mut [u8], _number: u64, _now: Time) {}

    fn read(&mut self, _message: &[u8], next: u64, _now: Time) -> ParsedHeader {
        ParsedHeader::Sequence(next)
    }
}

/// Splits an endpoint into the stream and the datagram endpoint, each with its local address and port.
fn split_endpoint(endpoint: &Endpoint) -> Result<(Endpoint, Endpoint), Fault> {
    let (_, port) = endpoint.host_port()?;
    let port = port.unwrap_or(DATAGRAM_PORT);
    let at = endpoint.with_port(port)?;
    let stream = companion_stream(&at)?;
    let from = bind_address(endpoint, port)?;
    let others = endpoint.options().filter(|(name, _)| *name != BIND_OPTION);
    let options: String = others.map(|(name, value)| format!("&{name}={value}")).collect();
    let datagrams = format!("{}://{}?{BIND_OPTION}={from}:{port}{options}", at.scheme(), at.address())
        .parse::<Endpoint>()?;
    Ok((stream, datagrams))
}

const BIND_OPTION: &str = "bind";

/// Returns the address to send from, as it stands before a port; empty if the system chooses it.
fn bind_address(endpoint: &Endpoint, port: u16) -> Result<String, Fault> {
    let from = endpoint.option(BIND_OPTION).unwrap_or_default();
    // An IPv6 address before a port needs brackets.
    let address = from.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, port).to_string());
    let from = address.unwrap_or_else(|| if from.is_empty() { format!(":{port}") } else { from.to_owned() });
    let own_port = format!(":{port}");
    from.strip_suffix(&own_port).map(str::to_owned).ok_or_else(|| {
        Fault::Invalid(format!(
            "{BIND_OPTION}={from}: NETIO sends from the number of the server's port, {port}"
        ))
    })
}

/// Checks the requirements of datagram endpoints.
pub(crate) fn check_case(case: &CaseDraft) -> Result<(), CaseError> {
    if case.direction == Direction::Both || case.parallel > 1 {
        return Err(CaseError::Parallel(
            "protocol netio: datagrams allow one connection and one direction at a time: use --direction send,receive"
                .to_owned(),
        ));
    }
    for endpoint in &case.endpoints {
        split_endpoint(endpoint).map_err(|fault| CaseError::Endpoint(format!("protocol netio: {fault}")))?;
    }
    Ok(())
}

/// Stream of one port.
struct DatagramControl {
    link: Box<dyn Link>,
    endpoint: Endpoint,
    /// Time at which the server was requested to send.
    requested_at: Option<Time>,
    /// Time of a round trip to the server without datagrams in flight.
    round_trip: Duration,
    /// Arrival time of the server's count.
    counted_at: Option<Time>,
}

/// Minimum duration of the opening with one datagram. The original measures in steps of 1/1024 s and divides by the
/// duration.
const MIN_OPENING_TIME: Duration = Duration::from_millis(20);

impl DatagramControl {
    fn link_error(&self, fault: Fault) -> ProtocolError {
        LinkError::new(&self.endpoint, fault).into()
    }
}

struct NetioDatagramSession {
    flows: Vec<Flow>,
    controls: Vec<DatagramControl>,
    case: ReadyCase,
    dialect: NetioDialect,
    connection_cache: Arc<ConnectionCache>,
    clock: Clock,
    effective_settings: Map<String, Value>,
}

pub(crate) fn connect(
    case: &ReadyCase,
    context: &ConnectContext,
    dialect: NetioDialect,
) -> Result<Box<dyn ClientSession>, ProtocolError> {
    let mut session = NetioDatagramSession {
        flows: Vec::new(),
        controls: Vec::new(),
        case: case.clone(),
        dialect,
        connection_cache: context.connection_cache.clone(),
        clock: context.dialer.clock.clone(),
        effective_settings: Map::from_iter([(DIALECT_OPTION.to_owned(), dialect.name().into())]),
    };
    for port in 0..case.endpoints.len() {
        session.open_endpoint(context, port)?;
    }
    for port in 0..case.endpoints.len() {
        session.begin_endpoint(context.dialer, port)?;
    }
    Ok(Box::new(session))
}

impl NetioDatagramSession {
    fn is_sending(&self) -> bool {
        self.case.direction != Direction::Receive
    }

    fn cache_key(&self, endpoint: &Endpoint) -> String {
        format!("{} {} {endpoint}", PROTOCOL.name, self.dialect.name())
    }

    /// Opens the socket before the server receives the request to send to it.
    fn open_endpoint(&mut self, context: &ConnectContext, port: usize) -> Result<(), ProtocolError> {
        let at = &self.case.endpoints[port];
        let (stream, datagrams) = split_endpoint(at).map_err(|fault| LinkError::new(at, fault))?;
        let mut link = context.dialer.open(&datagrams)?;
        // Tuning takes time, and the server sends as soon as it is asked.
        link.tune(&Tuning { cpu: None, ..self.case.load.batch_tuning() });
        let caps = link.caps().clone();
        let role = if self.is_sending() { FlowRole::Upload } else { FlowRole::Download };
        let recorder = (context.new_recorder)(role, port);
        let party: Box<dyn crate::workload::RecordingParty> = if self.is_sending() {
            Box::new(BlockSender::new(&self.case.load, &caps, recorder))
        } else {
            let load = Load { stop: StopCondition::after_time(MAX_SERVER_SEND_TIME), ..self.case.load };
            Box::new(Sink::new(&load, &caps, recorder).with_latest_end().with_header(Box::new(NoHeader)))
        };
        self.flows.push(Flow { role, endpoint_index: port, link, party });
        let cached = context
            .connection_cache
            .take::<CachedConnection>(&self.cache_key(&stream))
            .and_then(CachedConnection::into_link);
        let link = match cached {
            Some(link) => link,
            None => context.dialer.open(&stream)?,
        };
        keep_alive(link.as_ref());
        self.controls.push(DatagramControl {
            link,
            endpoint: stream,
            requested_at: None,
            round_trip: Duration::ZERO,
            counted_at: None,
        });
        Ok(())
    }

    /// Announces the direction. Before it sends, the client waits for the same word from the server. Before it
    /// receives, it sends one datagram, counted as NETIO counts, so that linkgauge servers and NAT devices learn the
    /// client's address.
    fn begin_endpoint(&mut self, dialer: &Dialer, port: usize) -> Result<(), ProtocolError> {
        let size = self.case.load.message_bytes;
        let sent = self.clock.now();
        self.send_word(port, ControlWord::ClientSends(size))?;
        let go = self.receive_word(port, Some(dialer))?;
        self.controls[port].round_trip = self.clock.now().since(sent);
        if ControlWord::decode(go, self.dialect) != ControlWord::ClientSends(size) {
            return Err(self.unexpected_word(port, go));
        }
        if self.is_sending() {
            return Ok(());
        }
        let (one, timeout) = (make_block(size as usize), self.case.load.timeout);
        let sent = self.flows[port].link.send(&one, timeout);
        sent.map_err(|fault| LinkError::new(&self.case.endpoints[port], fault))?;
        self.clock.sleep_until(self.clock.now() + MIN_OPENING_TIME);
        self.send_word(port, ControlWord::Result(size))?;
        self.receive_count(port, Some(dialer))?;
        self.send_word(port, ControlWord::ServerSends(size))?;
        self.controls[port].requested_at = Some(self.clock.now());
        Ok(())
    }

    fn unexpected_word(&self, port: usize, word: [u8; WORD_BYTES]) -> ProtocolError {
        let word = word.escape_ascii();
        let what = format!("it sent \"{word}\", which is not NETIO: it may use another dialect");
        ProtocolError::unexpected_reply(&self.controls[port].endpoint, what)
    }

    fn send_word(&mut self, port: usize, word: ControlWord) -> Result<(), ProtocolError> {
        let (timeout, control) = (self.case.load.timeout, &mut self.controls[port]);
        let sent = control.link.send(&word.encode(self.dialect), timeout);
        // A message this short is sent whole or not at all.
        sent.map(|_| ()).map_err(|fault| control.link_error(fault))
    }

    /// Receives a word of the server. With a dialer, an interrupt ends the wait.
    fn receive_word(
        &mut self,
        port: usize,
        dialer: Option<&Dialer>,
    ) -> Result<[u8; WORD_BYTES], ProtocolError> {
        let until = self.clock.now() + self.case.load.timeout;
        let (clock, control) = (self.clock.clone(), &mut self.controls[port]);
        let (mut word, mut filled) = ([0; WORD_BYTES], 0);
        while filled < WORD_BYTES {
            let (rest, left) = (&mut word[filled..], until.since(clock.now()));
            let received = match dialer {
                Some(dialer) => dialer.receive(control.link.as_mut(), rest, left),
                None => control.link.receive(rest, left),
            };
            match received {
                Ok(length) => filled += length,
                Err(fault) => return Err(control.link_error(fault)),
            }
        }
        Ok(word)
    }

    /// Receives the count of the server.
    fn receive_count(&mut self, port: usize, dialer: Option<&Dialer>) -> Result<u64, ProtocolError> {
        let word = self.receive_word(port, dialer)?;
        match ControlWord::decode(word, self.dialect) {
            ControlWord::Result(count) => Ok(count.into()),
            _ => Err(self.unexpected_word(port, word)),
        }
    }

    /// Builds the report from both counts; no more can arrive than was sent.
    fn flow_report(
        &mut self,
        port: usize,
        flow: &FlowResult,
        remote_count: u64,
    ) -> Result<FlowReport, ProtocolError> {
        let (recorder, size) = (&flow.recorder, u64::from(self.case.load.message_bytes));
        let here = if self.is_sending() { recorder.counts.sent } else { recorder.counts.received };
        let (sent, received) = if self.is_sending() { (here, remote_count) } else { (remote_count, here) };
        let Some(percent) = loss_percent(sent, received) else {
            let what = format!(
                "{received} of {sent} datagrams arrived according to server and client: one count is wrong"
            );
            return Err(ProtocolError::unexpected_reply(&self.controls[port].endpoint, what));
        };
        let control = &self.controls[port];
        let elapsed = match control.requested_at {
            Some(requested) => {
                recorder.last_instant.map_or(0, |last| last.since(requested).as_nanos() as u64)
            }
            None => recorder.elapsed_ns(),
        };
        // NETIO's own send rate uses the sender's time, but queued datagrams arrive later. The server has them when it
        // counts. The client knows that half a round trip after the fact, as with the first datagram.
        let counting =
            control.counted_at.zip(recorder.first_instant).map(|(counted, first)| counted.since(first));
        let counting = counting.map(|time| time.saturating_sub(control.round_trip).as_nanos() as u64);
        let receiving = counting.filter(|_| self.is_sending()).map_or(elapsed, |time| time.max(elapsed));
        let way = if self.is_sending() { "tx" } else { "rx" };
        for (what, value) in [("bytes", received * size), ("ns", elapsed), ("loss_percent", percent)] {
            self.effective_settings.insert(format!("{way}_{what}"), value.into());
        }
        let (bytes, messages) = if self.is_sending() {
            (remote_count * size, remote_count)
        } else {
            (recorder.counts.delivered_bytes, remote_count)
        };
        let inward = !self.is_sending();
        // The first datagram marks the start of that time and takes none of it.
        let head_bytes = if self.is_sending() { size.min(bytes) } else { 0 };
        Ok(FlowReport {
            port,
            bytes,
            messages,
            head_bytes,
            elapsed_ns: receiving,
            inward,
            ..FlowReport::default()
        })
    }
}

impl ClientSession for NetioDatagramSession {
    fn take_flows(&mut self) -> Vec<Flow> {
        std::mem::take(&mut self.flows)
    }

    fn finish(
        &mut self,
        flows: &[FlowResult],
        _links: Vec<Box<dyn Link>>,
    ) -> Result<Option<ServerReport>, ProtocolError> {
        let mut report = ServerReport::default();
        for (port, flow) in flows.iter().enumerate() {
            if self.is_sending() {
                self.send_word(port, ControlWord::Result(self.case.load.message_bytes))?;
            }
            let remote_count = self.receive_count(port, None)?;
            self.controls[port].counted_at = Some(self.clock.now());
            report.flows.push(self.flow_report(port, flow, remote_count)?);
        }
        for DatagramControl { link, endpoint, .. } in std::mem::take(&mut self.controls) {
            let connection = CachedConnection { link: Some(link), dialect: self.dialect };
            self.connection_cache.store(self.cache_key(&endpoint), connection);
        }
        Ok(Some(report))
    }

    fn effective_settings(&self) -> Map<String, Value> {
        self.effective_settings.clone()
    }
}
