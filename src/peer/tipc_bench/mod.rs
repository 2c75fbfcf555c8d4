//! `tipc-bench`: the benchmark of tipcutils, as client and (`far`) as server. The link says which generation is meant: a
//! stream is the second and third, which speak with each other; one with message bounds is the `first`.
//!
//! Commands go to all servers at once by a name, answers come to a name of the client's; the data goes over streams to a
//! third name. A server is told how many messages will follow, so a case has a count and not a time.

pub mod far;
mod first;
pub mod message;

use std::time::Duration;

use serde_json::{Map, Value};

use super::{Flow, Near, Peer, PeerError, Session, flows};
use crate::clock::{Clock, Time};
use crate::endpoint::{Endpoint, EndpointError};
use crate::link::party::Tuning;
use crate::link::{Caps, Dialer, Fault, Framing, Link, LinkError, caps};
use crate::plan::{Case, Direction, Stop};
use crate::workload::latency::{self, Echo, Pinger};
use crate::workload::throughput::{self, Source};
use crate::workload::{FarFlow, FarReport, Flowed, Role};
use message::{Answer, Command, LONGEST, Word};

pub const PEER: Peer = Peer {
    name: "tipc-bench",
    summary: "the benchmark of tipcutils, client and server",
    default_ports: &[],
    workloads: &[("latency", &[Direction::Loop]), ("throughput", &[Direction::Send])],
    options: &[],
    sizes: &[],
    fit,
    connect,
    serve: Some(far::service),
};

/// Where its data goes.
const DATA: &str = "a stream of TIPC: type 18888, instance 0, and type=stream; for the benchmark of before 2014 type \
                    17777, instance 0, and type=seqpacket";

/// Where servers hear commands, and where the client hears answers.
const SERVERS: &str = "17777:0";
const CLIENT: &str = "16666:0";

/// Old server processes need this time to go after a restart, and new ones after connecting to begin to listen.
const PAUSE: Duration = Duration::from_secs(1);

/// The endpoint for words that belongs to one for data.
fn beside(endpoint: &Endpoint, options: &str) -> Result<Endpoint, EndpointError> {
    format!("{}://{SERVERS}?type=rdm&{options}", endpoint.scheme()).parse()
}

/// How the client reaches all servers.
fn commands(endpoint: &Endpoint) -> Result<Endpoint, EndpointError> {
    beside(endpoint, &format!("multicast=1&bind={CLIENT}"))
}

/// How many messages of such a size the third generation sends, unless told otherwise.
fn usual_count(size: u32) -> u64 {
    640_000 >> ((size.max(64) / 64).ilog2() / 2)
}

fn fit(case: &mut Case, link: &Caps) -> Result<(), String> {
    let names = case.endpoints.iter().all(|endpoint| commands(endpoint).is_ok_and(|url| caps(&url).is_ok()));
    if !names || link.framing != Framing::Stream && !first::is_meant(link) {
        return Err(format!("peer tipc-bench: needed is {DATA}"));
    }
    if case.message_bytes == 0 {
        case.message_bytes = 64;
    }
    if case.message_bytes > LONGEST {
        return Err(format!(
            "peer tipc-bench: messages have at most {LONGEST} bytes, not {}",
            case.message_bytes
        ));
    }
    if first::is_meant(link) {
        return match case.workload.as_str() {
            "latency" => Ok(()),
            _ => Err("peer tipc-bench: before 2014 it had echoes only: take 'latency' with --parallel 8"
                .to_owned()),
        };
    }
    if case.endpoints.len() > 1 {
        return Err(
            "peer tipc-bench: there is one benchmark at a time in a cluster: name one endpoint".to_owned()
        );
    }
    let size = u64::from(case.message_bytes);
    let count = match case.stop {
        Stop { count: Some(count), time_ns: None, .. } => count,
        Stop { volume_bytes: Some(volume), time_ns: None, .. } => volume.div_ceil(size),
        Stop { count: Some(count), .. } if case.stop == latency::WORKLOAD.default_stop => count,
        stop if stop == throughput::WORKLOAD.default_stop => usual_count(case.message_bytes),
        _ => {
            return Err(
                "peer tipc-bench: a server is told how many messages come: give --count or --volume, \
                        no time"
                    .to_owned(),
            );
        }
    };
    case.stop = Stop::after_count(count);
    let warm_up = case.warm_up.unwrap_or_default();
    if warm_up.count.is_none() && !warm_up.is_none() {
        return Err("peer tipc-bench: give the warm-up in messages".to_owned());
    }
    case.warm_up = Some(Stop { time_ns: None, volume_bytes: None, ..warm_up });
    match u32::try_from(all_messages(case)) {
        Ok(1..) => Ok(()),
        _ => Err(format!("peer tipc-bench: 1 to {} messages on a connection, not {count}", u32::MAX)),
    }
}

/// Warm-up included: to the server they are all the same.
fn all_messages(case: &Case) -> u64 {
    let count = |stop: Option<Stop>| stop.and_then(|stop| stop.count).unwrap_or(0);
    count(Some(case.stop)).saturating_add(count(case.warm_up))
}

fn connect(case: &Case, near: &Near) -> Result<Box<dyn Session>, PeerError> {
    if caps(&case.endpoints[0]).is_ok_and(|link| first::is_meant(&link)) {
        return first::connect(case, near);
    }
    let mut control = Control::open(&case.endpoints[0], near.dialer)?;
    control.say(Command::Restart)?;
    control.pause();
    control.forget();
    control.say(Command::Listen { longest: LONGEST, tcp: false })?;
    control.node = Some(control.hear(Word::Listening, near.dialer.timeout)?);
    let tuning = Tuning { wait: case.wait, cpu: case.pin.near, batches_of: None };
    let flows = flows(case, near, |port, link, flows| {
        let caps = link.caps().clone();
        flows.push(match case.workload.as_str() {
            "latency" => {
                let recorder = (near.recorder)(Role::Exchange, port);
                let party = Pinger::new(Box::new(Echo::new(case, &caps)), case, &caps, recorder);
                Flow { role: Role::Exchange, port, link, party: Box::new(party) }
            }
            _ => {
                let party = Source::new(case, &caps, tuning, (near.recorder)(Role::Outward, port));
                Flow { role: Role::Outward, port, link, party: Box::new(party.stays_open()) }
            }
        });
        Ok(())
    })?;
    control.pause();
    let echo = case.workload == "latency";
    let count = all_messages(case) as u32;
    control.say(Command::Measure { size: case.message_bytes, count, echo })?;
    control.hear_of_each(Word::Ready, case.parallel, near.dialer.timeout)?;
    Ok(Box::new(BenchSession {
        control,
        flows,
        connections: case.parallel,
        count: case.stop.count.unwrap_or(0),
        timeout: case.timeout,
        echo,
    }))
}

struct BenchSession {
    control: Control,
    flows: Vec<Flow>,
    connections: u32,
    /// Messages on each, without the warm-up.
    count: u64,
    timeout: Duration,
    echo: bool,
}

impl Session for BenchSession {
    fn flows(&mut self) -> Vec<Flow> {
        std::mem::take(&mut self.flows)
    }

    fn finish(
        &mut self,
        flows: &[Flowed],
        mut links: Vec<Box<dyn Link>>,
    ) -> Result<Option<FarReport>, PeerError> {
        let whole = |flow: &Flowed| flow.fault.is_none() && flow.recorder.counts.sent >= self.count;
        if !flows.iter().all(whole) {
            // The server waits for the rest of what was broken off, and says nothing.
            return Ok(None);
        }
        let finished = self.control.hear_of_each(Word::Finished, self.connections, self.timeout);
        links.iter_mut().for_each(|link| drop(link.finish()));
        let at = finished?;
        if self.echo {
            return Ok(None);
        }
        let all_came = |flowed: &Flowed| FarFlow {
            port: flowed.port,
            bytes: flowed.recorder.counts.bytes,
            messages: flowed.recorder.counts.sent,
            elapsed_ns: at.since(flowed.recorder.first.unwrap_or(at)).as_nanos() as u64,
            ..FarFlow::default()
        };
        Ok(Some(FarReport { flows: flows.iter().map(all_came).collect(), ..FarReport::default() }))
    }

    fn got(&self) -> Map<String, Value> {
        let node = self.control.node.map(|node| format!("{node:x}").into());
        node.map(|node| ("server_node".to_owned(), node)).into_iter().collect()
    }
}

/// Where commands go out and answers come in.
struct Control {
    link: Box<dyn Link>,
    endpoint: Endpoint,
    clock: Clock,
    /// Of the server that is measured; others may hear the commands and answer too.
    node: Option<u32>,
}

impl Control {
    fn open(endpoint: &Endpoint, dialer: &Dialer) -> Result<Control, PeerError> {
        let url = commands(endpoint).map_err(|error| PeerError::Unfit(error.to_string()))?;
        let dialer = Dialer { wait: crate::plan::Wait::Block, ..dialer.clone() };
        let (link, clock) = (dialer.open(&url)?, dialer.clock);
        Ok(Control { link, endpoint: endpoint.clone(), clock, node: None })
    }

    fn pause(&self) {
        self.clock.sleep_until(self.clock.now() + PAUSE);
    }

    fn fault(&self, fault: Fault) -> PeerError {
        LinkError::new(&self.endpoint, fault).into()
    }

    fn say(&mut self, command: Command) -> Result<(), PeerError> {
        self.link.send(&command.write(), PAUSE).map(|_| ()).map_err(|fault| self.fault(fault))
    }

    /// Drops what an earlier run has left, which is not much.
    fn forget(&mut self) {
        let mut room = [0; Answer::BYTES];
        for _ in 0..1000 {
            if self.link.receive(&mut room, Duration::ZERO).is_err() {
                return;
            }
        }
    }

    /// Waits for a word; the node that said it.
    fn hear(&mut self, word: Word, within: Duration) -> Result<u32, PeerError> {
        // One byte more than an answer has, so that a longer message is none.
        let mut room = [0; Answer::BYTES + 1];
        let until = self.clock.now() + within;
        loop {
            let length = match self.link.receive(&mut room, until.since(self.clock.now())) {
                Ok(length) => length,
                Err(Fault::TimedOut) => return Err(PeerError::protocol(&self.endpoint, silence(word))),
                Err(fault) => return Err(self.fault(fault)),
            };
            let answer = Answer::read(&room[..length]).filter(|answer| answer.word == word);
            if let Some(answer) = answer.filter(|answer| self.node.is_none_or(|node| node == answer.node)) {
                return Ok(answer.node);
            }
        }
    }

    /// Waits for a word of each connection; when the last was heard.
    fn hear_of_each(&mut self, word: Word, connections: u32, within: Duration) -> Result<Time, PeerError> {
        let until = self.clock.now() + within;
        for _ in 0..connections {
            self.hear(word, until.since(self.clock.now()))?;
        }
        Ok(self.clock.now())
    }
}

/// What it means that a word did not come.
fn silence(word: Word) -> &'static str {
    match word {
        Word::Listening => {
            "a benchmark has published its name and does not answer: is it busy with another client, or one of before \
             2014 (type 17777, instance 0, and type=seqpacket)?"
        }
        Word::Ready => {
            "the server did not say for each connection that it is ready: is another client at work?"
        }
        Word::Finished => "the server did not confirm all messages in time: raise --timeout",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{CaseSpec, OneOrMany};
    use crate::units::{Bytes, Count};

    fn fitted(url: &str, workload: &str, size: u64, count: Option<u64>) -> Result<Case, String> {
        let spec = CaseSpec {
            url: Some(OneOrMany::One(url.parse().unwrap())),
            workload: Some(workload.to_owned()),
            size: Some(OneOrMany::One(Bytes(size))),
            count: count.map(Count),
            ..CaseSpec::default()
        };
        let mut case = spec.expand()?.remove(0);
        if case.stop.is_none() {
            case.stop = crate::workload::workload(workload).unwrap().default_stop;
        }
        let link = caps(&case.endpoints[0]).unwrap();
        fit(&mut case, &link)?;
        Ok(case)
    }

    const STREAM: &str = "tipc://18888:0?type=stream";

    #[test]
    fn counts_are_those_of_the_third_generation() {
        let count = |size| fitted(STREAM, "throughput", size, None).unwrap().stop.count.unwrap();
        let sizes = [64, 256, 1024, 4096, 16384, 65536];
        assert_eq!(sizes.map(count), [640_000, 320_000, 160_000, 80_000, 40_000, 20_000]);
        assert_eq!(fitted(STREAM, "latency", 64, Some(7)).unwrap().stop, Stop::after_count(7));
    }

    #[test]
    fn the_first_generation_is_echoes_for_as_long_as_one_likes() {
        let url = "tipc://17777:0";
        let usual = crate::workload::workload("latency").unwrap().default_stop;
        assert_eq!(fitted(url, "latency", 64, None).unwrap().stop, usual);
        assert!(fitted(url, "throughput", 64, None).unwrap_err().contains("--parallel 8"));
    }

    #[test]
    fn what_does_not_fit_is_said() {
        let error = |url, size, count| fitted(url, "latency", size, count).unwrap_err();
        insta::assert_snapshot!([
            error("tipc://18888:0?type=rdm", 64, None),
            error("tcp://127.0.0.1:18888", 64, None),
            error(STREAM, 66_001, None),
            error(STREAM, 64, Some(1 << 32)),
        ].join("\n"), @r"
        peer tipc-bench: needed is a stream of TIPC: type 18888, instance 0, and type=stream; for the benchmark of before 2014 type 17777, instance 0, and type=seqpacket
        peer tipc-bench: needed is a stream of TIPC: type 18888, instance 0, and type=stream; for the benchmark of before 2014 type 17777, instance 0, and type=seqpacket
        peer tipc-bench: messages have at most 66000 bytes, not 66001
        peer tipc-bench: 1 to 4294967295 messages on a connection, not 4294967296
        ");
    }
}
