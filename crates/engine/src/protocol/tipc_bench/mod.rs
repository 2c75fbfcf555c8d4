//! `tipc-bench`: the benchmark of tipcutils, as client and as `server`. The link type selects the generation: a stream
//! means the second and third, which are compatible; a link with message boundaries means the `first_generation`.
//!
//! Commands are multicast to a name of the servers, replies go to a name of the client, and data goes over streams to a
//! third name. A server needs the number of messages in advance, so a case has a count and not a time.

mod first_generation;
pub mod message;
pub(crate) mod server;

use std::time::Duration;

use serde_json::{Map, Value};

use super::{
    CaseDraft, CaseError, ClientSession, ConnectContext, Flow, Protocol, ProtocolError, ReadyCase, open_flows,
};
use crate::link::{Caps, Dialer, Fault, Framing, Link, LinkError};
use crate::workload::latency::{EchoCodec, Pinger};
use crate::workload::throughput::Source;
use crate::workload::{FlowReport, FlowResult, FlowRole, ServerReport, TrafficKind};
use linkgauge_model::clock::Time;
use linkgauge_model::endpoint::{Endpoint, EndpointError};
use linkgauge_model::plan::{Direction, StopCondition};
use message::{BenchCommand, BenchReply, BenchStatus, MAX_MESSAGE_BYTES};

/// The `tipc-bench` protocol.
pub(crate) const PROTOCOL: Protocol = Protocol {
    name: "tipc-bench",
    summary: "the benchmark of tipcutils, client and server",
    default_ports: &[],
    traffic: &[(TrafficKind::RoundTrips, &[Direction::Loop]), (TrafficKind::Load, &[Direction::Send])],
    options: &[],
    sizes: &[],
    is_measured_whole: true,
    shorthand: None,
    original_server: None,
    prepare_case,
    connect,
    serve: Some(server::new_service),
};

/// Endpoint for the data.
const REQUIRED_ENDPOINT: &str = "a stream of TIPC: type 18888, instance 0, and type=stream; for the benchmark of before 2014 type \
                    17777, instance 0, and type=seqpacket";

/// Names for the commands to servers and for the replies to the client.
const SERVER_ADDRESS: &str = "17777:0";
const CLIENT_ADDRESS: &str = "16666:0";

/// Time for old server processes to end after a restart, and for new ones to listen after a connect.
const RESTART_PAUSE: Duration = Duration::from_secs(1);

/// Returns the control endpoint that belongs to a data endpoint.
fn control_endpoint(endpoint: &Endpoint, options: &str) -> Result<Endpoint, EndpointError> {
    format!("{}://{SERVER_ADDRESS}?type=rdm&{options}", endpoint.scheme()).parse()
}

/// Returns the endpoint that reaches all servers.
fn command_endpoint(endpoint: &Endpoint) -> Result<Endpoint, EndpointError> {
    control_endpoint(endpoint, &format!("multicast=1&bind={CLIENT_ADDRESS}"))
}

/// Default message count of the third generation for this size.
fn default_count(size: u32) -> u64 {
    640_000 >> ((size.max(64) / 64).ilog2() / 2)
}

fn prepare_case(case: &mut CaseDraft, link: &Caps) -> Result<(), CaseError> {
    // The first generation has no commands, so any link with message boundaries will do.
    let names = || {
        case.endpoints.iter().all(|endpoint| {
            command_endpoint(endpoint).is_ok_and(|url| crate::transport::tipc::TRANSPORT.has(&url))
        })
    };
    if !first_generation::is_first_generation(link) && (link.framing != Framing::Stream || !names()) {
        return Err(CaseError::Link(format!("protocol tipc-bench: it needs {REQUIRED_ENDPOINT}")));
    }
    let bytes = *case.message_bytes.get_or_insert(64);
    if bytes > MAX_MESSAGE_BYTES {
        return Err(CaseError::MessageSize(format!(
            "protocol tipc-bench: messages have at most {MAX_MESSAGE_BYTES} bytes, not {bytes}"
        )));
    }
    if first_generation::is_first_generation(link) {
        return match case.workload.is_round_trip() {
            true => Ok(()),
            false => Err(CaseError::Workload(
                "protocol tipc-bench: before 2014 it had echoes only: use 'latency' with --parallel 8"
                    .to_owned(),
            )),
        };
    }
    if case.endpoints.len() > 1 {
        return Err(CaseError::Endpoint(
            "protocol tipc-bench: a cluster runs one benchmark at a time: use one endpoint".to_owned(),
        ));
    }
    let count = match case.stop {
        StopCondition { count: Some(count), time_ns: None, .. } => count,
        StopCondition { volume_bytes: Some(volume), time_ns: None, .. } => volume.div_ceil(bytes.into()),
        stop if stop == case.workload.default_stop => stop.count.unwrap_or_else(|| default_count(bytes)),
        _ => {
            return Err(CaseError::Duration(
                "protocol tipc-bench: a server needs the number of messages in advance: use --count or --volume, \
                        no time"
                    .to_owned(),
            ));
        }
    };
    case.stop = StopCondition::after_count(count);
    let warm_up = case.warm_up;
    if warm_up.count.is_none() && !warm_up.is_unlimited() {
        return Err(CaseError::Duration(
            "protocol tipc-bench: a warm-up has a number of messages: use one without a unit".to_owned(),
        ));
    }
    case.warm_up = StopCondition { time_ns: None, volume_bytes: None, ..warm_up };
    match u32::try_from(total_messages(case.stop, case.warm_up)) {
        Ok(1..) => Ok(()),
        _ => Err(CaseError::Duration(format!(
            "protocol tipc-bench: 1 to {} messages on a connection, not {count}",
            u32::MAX
        ))),
    }
}

/// Number of messages with the warm-up, which the server does not distinguish.
fn total_messages(stop: StopCondition, warm_up: StopCondition) -> u64 {
    stop.count.unwrap_or(0).saturating_add(warm_up.count.unwrap_or(0))
}

fn connect(case: &ReadyCase, context: &ConnectContext) -> Result<Box<dyn ClientSession>, ProtocolError> {
    if first_generation::is_first_generation(&case.caps[0]) {
        return first_generation::connect(case, context);
    }
    let mut control = CommandChannel::open(&case.endpoints[0], context.dialer)?;
    control.send_command(BenchCommand::Restart)?;
    control.pause();
    control.discard_pending();
    control.send_command(BenchCommand::Listen { max_message_bytes: MAX_MESSAGE_BYTES, tcp: false })?;
    control.server_node = Some(control.await_status(BenchStatus::Listening, context.dialer.timeout)?);
    let load = &case.load;
    let flows = open_flows(case, context, |load, port, link, flows| {
        let caps = link.caps().clone();
        flows.push(match case.workload.is_round_trip() {
            true => {
                let recorder = (context.new_recorder)(FlowRole::RoundTrip, port);
                let party = Pinger::new(Box::new(EchoCodec::new(load, &caps)), load, &caps, recorder);
                Flow { role: FlowRole::RoundTrip, endpoint_index: port, link, party: Box::new(party) }
            }
            false => {
                let party = Source::new(load, &caps, (context.new_recorder)(FlowRole::Upload, port));
                Flow {
                    role: FlowRole::Upload,
                    endpoint_index: port,
                    link,
                    party: Box::new(party.without_finish()),
                }
            }
        });
        Ok(())
    })?;
    control.pause();
    let echo = case.workload.is_round_trip();
    let count = total_messages(load.stop, load.warm_up) as u32;
    control.send_command(BenchCommand::Measure { message_bytes: load.message_bytes, count, echo })?;
    control.await_all(BenchStatus::Ready, case.parallel, context.dialer.timeout)?;
    Ok(Box::new(TipcBenchSession {
        control,
        flows,
        connections: case.parallel,
        messages_per_connection: load.stop.count.unwrap_or(0),
        timeout: load.timeout,
        is_echo: echo,
    }))
}

struct TipcBenchSession {
    control: CommandChannel,
    flows: Vec<Flow>,
    connections: u32,
    /// Number of messages on each connection, without the warm-up.
    messages_per_connection: u64,
    timeout: Duration,
    is_echo: bool,
}

impl ClientSession for TipcBenchSession {
    fn take_flows(&mut self) -> Vec<Flow> {
        std::mem::take(&mut self.flows)
    }

    fn finish(
        &mut self,
        flows: &[FlowResult],
        mut links: Vec<Box<dyn Link>>,
    ) -> Result<Option<ServerReport>, ProtocolError> {
        let whole = |flow: &FlowResult| {
            flow.fault.is_none() && flow.recorder.counts.sent >= self.messages_per_connection
        };
        if !flows.iter().all(whole) {
            // After an abort, the server waits for the missing messages and reports nothing.
            return Ok(None);
        }
        let finished = self.control.await_all(BenchStatus::Finished, self.connections, self.timeout);
        links.iter_mut().for_each(|link| drop(link.finish_sending()));
        let at = finished?;
        if self.is_echo {
            return Ok(None);
        }
        let all_came = |flowed: &FlowResult| FlowReport {
            port: flowed.endpoint_index,
            bytes: flowed.recorder.counts.delivered_bytes,
            messages: flowed.recorder.counts.sent,
            elapsed_ns: at.since(flowed.recorder.first_instant.unwrap_or(at)).as_nanos() as u64,
            ..FlowReport::default()
        };
        Ok(Some(ServerReport { flows: flows.iter().map(all_came).collect(), ..ServerReport::default() }))
    }

    fn effective_settings(&self) -> Map<String, Value> {
        let node = self.control.server_node.map(|node| format!("{node:x}").into());
        node.map(|node| ("server_node".to_owned(), node)).into_iter().collect()
    }
}

/// Channel that sends commands and receives replies.
struct CommandChannel {
    link: Box<dyn Link>,
    endpoint: Endpoint,
    dialer: Dialer,
    /// Node of the measured server. Other servers may receive the commands and reply too.
    server_node: Option<u32>,
}

impl CommandChannel {
    fn open(endpoint: &Endpoint, dialer: &Dialer) -> Result<CommandChannel, ProtocolError> {
        let url = command_endpoint(endpoint).map_err(|error| CaseError::Endpoint(error.to_string()))?;
        let dialer = Dialer { wait: linkgauge_model::plan::WaitMode::Block, ..dialer.clone() };
        Ok(CommandChannel { link: dialer.open(&url)?, endpoint: endpoint.clone(), dialer, server_node: None })
    }

    fn pause(&self) {
        self.dialer.clock.sleep_until(self.dialer.now() + RESTART_PAUSE);
    }

    fn link_error(&self, fault: Fault) -> ProtocolError {
        LinkError::new(&self.endpoint, fault).into()
    }

    fn send_command(&mut self, command: BenchCommand) -> Result<(), ProtocolError> {
        self.link.send(&command.write(), RESTART_PAUSE).map(|_| ()).map_err(|fault| self.link_error(fault))
    }

    /// Drops the few messages that an earlier run has left.
    fn discard_pending(&mut self) {
        let mut room = [0; BenchReply::ENCODED_BYTES];
        for _ in 0..1000 {
            if self.link.receive(&mut room, Duration::ZERO).is_err() {
                return;
            }
        }
    }

    /// Waits for this status. Returns the node that sent it.
    fn await_status(&mut self, word: BenchStatus, within: Duration) -> Result<u32, ProtocolError> {
        // One extra byte detects a longer message.
        let mut room = [0; BenchReply::ENCODED_BYTES + 1];
        let until = self.dialer.now() + within;
        loop {
            let left = until.since(self.dialer.now());
            let length = match self.dialer.receive(self.link.as_mut(), &mut room, left) {
                Ok(length) => length,
                Err(Fault::TimedOut) => {
                    return Err(ProtocolError::unexpected_reply(&self.endpoint, describe_silence(word)));
                }
                Err(fault) => return Err(self.link_error(fault)),
            };
            let reply = BenchReply::read(&room[..length]).filter(|reply| reply.status == word);
            if let Some(reply) = reply.filter(|reply| self.server_node.is_none_or(|node| node == reply.node))
            {
                return Ok(reply.node);
            }
        }
    }

    /// Waits for a status from each connection. Returns the time of the last one.
    fn await_all(
        &mut self,
        word: BenchStatus,
        connections: u32,
        within: Duration,
    ) -> Result<Time, ProtocolError> {
        let until = self.dialer.now() + within;
        for _ in 0..connections {
            self.await_status(word, until.since(self.dialer.now()))?;
        }
        Ok(self.dialer.now())
    }
}

/// Describes the likely cause of a missing status.
fn describe_silence(word: BenchStatus) -> &'static str {
    match word {
        BenchStatus::Listening => {
            "a benchmark has published its name and does not reply: it is busy with another client, or from before 2014. \
             Wait, or use type 17777, instance 0, and type=seqpacket"
        }
        BenchStatus::Ready => {
            "the server did not report every connection as ready: check that no other client is active"
        }
        BenchStatus::Finished => "the server did not confirm all messages in time: raise --timeout",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linkgauge_model::plan::Pacing;

    fn fitted(url: &str, workload: &str, size: u32, count: Option<u64>) -> Result<CaseDraft, CaseError> {
        let workload = crate::Registry::standard().workload(workload).unwrap();
        let mut case = CaseDraft {
            workload,
            direction: workload.default_direction,
            endpoints: vec![url.parse().unwrap()],
            options: Default::default(),
            message_bytes: Some(size),
            parallel: 1,
            pacing: Pacing::Closed,
            stop: count.map_or(workload.default_stop, StopCondition::after_count),
            warm_up: workload.default_warm_up,
            has_default_stop: count.is_none(),
            requests_per_connection: None,
            default_per_second: None,
            idle: std::time::Duration::ZERO,
            planned_idle: Duration::ZERO,
            stamps: false,
        };
        let link = crate::Registry::standard().transports.caps(&case.endpoints[0]).unwrap();
        prepare_case(&mut case, &link)?;
        Ok(case)
    }

    const STREAM: &str = "tipc://18888:0?type=stream";

    #[test]
    fn counts_are_those_of_the_third_generation() {
        let count = |size| fitted(STREAM, "throughput", size, None).unwrap().stop.count.unwrap();
        let sizes = [64, 256, 1024, 4096, 16384, 65536];
        assert_eq!(sizes.map(count), [640_000, 320_000, 160_000, 80_000, 40_000, 20_000]);
        assert_eq!(fitted(STREAM, "latency", 64, Some(7)).unwrap().stop, StopCondition::after_count(7));
    }

    #[test]
    fn the_first_generation_has_echoes_without_a_limit() {
        let url = "tipc://17777:0";
        let usual = crate::Registry::standard().workload("latency").unwrap().default_stop;
        assert_eq!(fitted(url, "latency", 64, None).unwrap().stop, usual);
        assert!(matches!(
            fitted(url, "throughput", 64, None),
            Err(CaseError::Workload(what)) if what.contains("--parallel 8")
        ));
    }

    #[test]
    fn unsupported_cases_are_explained() {
        let error = |url, size, count| fitted(url, "latency", size, count).unwrap_err().to_string();
        insta::assert_snapshot!([
            error("tipc://18888:0?type=rdm", 64, None),
            error("tcp://127.0.0.1:18888", 64, None),
            error(STREAM, 66_001, None),
            error(STREAM, 64, Some(1 << 32)),
        ].join("\n"), @r"
        protocol tipc-bench: it needs a stream of TIPC: type 18888, instance 0, and type=stream; for the benchmark of before 2014 type 17777, instance 0, and type=seqpacket
        protocol tipc-bench: it needs a stream of TIPC: type 18888, instance 0, and type=stream; for the benchmark of before 2014 type 17777, instance 0, and type=seqpacket
        protocol tipc-bench: messages have at most 66000 bytes, not 66001
        protocol tipc-bench: 1 to 4294967295 messages on a connection, not 4294967296
        ");
    }
}
