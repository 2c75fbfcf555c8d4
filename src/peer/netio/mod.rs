//! `netio`: Kai Uwe Rommel's NETIO, the network throughput benchmark, or whatever speaks like it.
//!
//! Blocks of one size go one way for a while; the last one has a flag in its first byte. The receiver says nothing back,
//! so NETIO's own figure of the sending direction is what it could hand to its system: it stands beside what the far
//! system acknowledged. All cases of a run that lead to one endpoint share a connection, as NETIO's sizes do.
//! This file is the session over streams, `datagram` the other one; `wire` the words, `sender` and `receiver` the client's
//! parties, `far` and `clients` the server.

mod clients;
mod datagram;
mod far;
mod receiver;
mod sender;
pub mod wire;

use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value};

use super::discard::acknowledged;
use super::{Flow, Kept, Near, Peer, PeerError, Session};
use crate::clock::{Clock, Time};
use crate::link::party::Tuning;
use crate::link::{Caps, Framing, Link, LinkError};
use crate::plan::{Case, Direction, Stop};
use crate::workload::throughput::Sink;
use crate::workload::{FarFlow, FarReport, Flowed, Role};
use receiver::Receiver;
use sender::Sender;
use wire::{Dialect, LARGEST, SIZES, Word};

pub const PEER: Peer = Peer {
    name: "netio",
    summary: "NETIO, the network throughput benchmark: blocks of 1 to 32 KB, its counts beside ours",
    default_ports: &[("tcp", 18767), ("udp", PORT_BESIDE), ("tcp", PORT_BESIDE)],
    workloads: &[("throughput", &[Direction::Send, Direction::Receive, Direction::Both])],
    options: &[(
        DIALECT,
        "a (NETIO up to 1.14, send only), b (1.15 to 1.22, from a little-endian machine), c (from 1.23, the default)",
    )],
    sizes: &SIZES,
    fit,
    connect,
    serve: Some(far::service),
};

/// Of the datagrams, and of the stream beside them.
const PORT_BESIDE: u16 = 18768;

const DIALECT: &str = "dialect";

/// A direction may take so much longer than the longest that is allowed, until its last bytes are through.
const GRACE: Duration = Duration::from_secs(10);

/// The client cannot end what a server sends, and the protocol does not say how long that takes: 6 s in the original, 10 s in
/// its older versions.
const FAR_SENDS: Duration = Duration::from_secs(10);

/// How long the last words of a connection may take.
const LAST_WORDS: Duration = Duration::from_millis(500);

fn dialect(case: &Case) -> Result<Dialect, String> {
    let Some(name) = case.peer_options.get(DIALECT) else { return Ok(Dialect::C) };
    Dialect::named(name).ok_or_else(|| format!("peer netio: there is no dialect '{name}' (known: a, b, c)"))
}

fn fit(case: &mut Case, caps: &Caps) -> Result<(), String> {
    let wrong = |what: String| Err(format!("peer netio: {what}"));
    let sends_only = case.direction.is_none_or(|direction| direction == Direction::Send);
    if dialect(case)? == Dialect::A && !sends_only {
        return wrong("dialect a only sends: use --direction send, or dialect c".to_owned());
    }
    if caps.framing == Framing::Message {
        if dialect(case)? == Dialect::A {
            return wrong("dialect a has no datagrams: use dialect b or c".to_owned());
        }
        datagram::fit(case).or_else(wrong)?;
    }
    if case.message_bytes > LARGEST {
        return wrong(format!(
            "blocks of {} bytes do not fit: use a --size of at most {LARGEST}",
            case.message_bytes
        ));
    }
    if case.warm_up.is_some_and(|warm_up| !warm_up.is_none()) {
        return wrong("it has no warm-up: leave it out".to_owned());
    }
    if case.direction == Some(Direction::Receive)
        && (case.stop.count.is_some() || case.stop.volume_bytes.is_some())
    {
        return wrong("the server alone decides how much it sends: leave count and volume out".to_owned());
    }
    Ok(())
}

fn connect(case: &Case, near: &Near) -> Result<Box<dyn Session>, PeerError> {
    let dialect = dialect(case).map_err(PeerError::Unfit)?;
    let framing = crate::link::caps(&case.endpoints[0]).map(|caps| caps.framing);
    if framing.is_ok_and(|framing| framing == Framing::Message) {
        return datagram::connect(case, near, dialect);
    }
    let mut session = NetioSession {
        flows: Vec::new(),
        lines: Vec::new(),
        dialect,
        block_bytes: u64::from(case.message_bytes).max(1),
        kept: near.kept.clone(),
        clock: near.dialer.clock.clone(),
        timeout: case.timeout,
        endpoints: case.endpoints.iter().map(ToString::to_string).collect(),
        got: Map::from_iter([(DIALECT.to_owned(), dialect.name().into())]),
    };
    for (port, endpoint) in case.endpoints.iter().enumerate() {
        for _ in 0..case.parallel {
            let key = session.key(port);
            let link = match near.kept.take::<Connection>(&key).and_then(Connection::into_link) {
                Some(link) => link,
                None => near.dialer.open(endpoint)?,
            };
            session.put(case, near, port, link)?;
        }
    }
    Ok(Box::new(session))
}

/// What one end of a direction counted as NETIO does, and how far it came.
#[derive(Debug, Default)]
struct Tally {
    bytes: u64,
    first: Option<Time>,
    last: Option<Time>,
    /// The receiver saw the last block.
    over: bool,
    /// What a sender that was stopped owes the far end, so that this sees a whole block and the last one.
    owed: Vec<u8>,
    fault: Option<String>,
}

/// The word that turns a connection round, between the two flows that use it.
#[derive(Debug, Default)]
struct Handoff {
    /// The word is about to be sent: the answer may be here before its sender knows that it is out.
    asking: AtomicBool,
    /// When it was sent; 0 before.
    asked_ns: AtomicU64,
    /// Nobody will ask any more.
    over: AtomicBool,
}

impl Handoff {
    fn asks(&self) {
        self.asking.store(true, Relaxed);
    }

    fn is_asking(&self) -> bool {
        self.asking.load(Relaxed)
    }

    fn ask(&self, at: Time) {
        self.asked_ns.store(at.0.max(1), Relaxed);
    }

    fn give_up(&self) {
        self.over.store(true, Release);
    }

    fn asked(&self) -> Option<Time> {
        Some(self.asked_ns.load(Relaxed)).filter(|&at| at > 0).map(Time)
    }

    fn is_over(&self) -> bool {
        self.over.load(Acquire)
    }
}

/// A connection between two cases: says QUIT when nobody takes it up.
struct Connection {
    link: Option<Box<dyn Link>>,
    dialect: Dialect,
}

impl Connection {
    /// The link, unless the far end has left it.
    fn into_link(mut self) -> Option<Box<dyn Link>> {
        self.link.take().filter(|link| !link.hung_up())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let (Some(link), true) = (&mut self.link, self.dialect != Dialect::A) {
            // A server that is gone needs no word.
            let _ = link.send(&Word::Quit.bytes(self.dialect), LAST_WORDS);
        }
    }
}

/// Where the count of one end will stand.
type Told = Arc<Mutex<Tally>>;

/// A connection of the case: its flows follow each other, the one that sends first.
struct Line {
    port: usize,
    sender: Option<Told>,
    receiver: Option<Told>,
    handoff: Arc<Handoff>,
}

/// What one end of a connection did.
struct Ran<'a> {
    tally: Tally,
    flow: &'a Flowed,
    link: Box<dyn Link>,
}

/// A connection whose flows have ended.
struct Used<'a> {
    port: usize,
    sent: Option<Ran<'a>>,
    received: Option<Ran<'a>>,
}

impl Used<'_> {
    /// Why it ended early.
    fn fault(&self, endpoint: &str) -> Option<String> {
        let ran = self.sent.iter().chain(&self.received);
        let told = |ran: &Ran| ran.tally.fault.as_ref().map(|what| format!("{endpoint}: {what}"));
        ran.clone().find_map(told).or_else(|| ran.clone().find_map(|ran| ran.flow.fault.clone()))
    }

    /// The far end did nothing that this dialect has.
    fn is_misunderstood(&self) -> bool {
        match (&self.sent, &self.received) {
            (_, Some(ran)) if ran.tally.first.is_some() => ran.tally.bytes == 0,
            (Some(ran), _) => ran.tally.fault.is_none() && ran.link.hung_up(),
            _ => false,
        }
    }

    /// The link, and what the far end is owed before it listens for a word; none while it still sends.
    fn at_rest(self) -> Option<(Box<dyn Link>, Vec<u8>)> {
        if self.received.as_ref().is_some_and(|ran| ran.tally.first.is_some() && !ran.tally.over) {
            return None;
        }
        let ran = self.sent.or(self.received)?;
        // What speaks otherwise is sent nothing more.
        ran.tally.fault.is_none().then_some((ran.link, ran.tally.owed))
    }
}

struct NetioSession {
    flows: Vec<Flow>,
    lines: Vec<Line>,
    dialect: Dialect,
    block_bytes: u64,
    kept: Arc<Kept>,
    clock: Clock,
    timeout: Duration,
    endpoints: Vec<String>,
    got: Map<String, Value>,
}

impl NetioSession {
    /// What a connection is kept under.
    fn key(&self, port: usize) -> String {
        format!("{} {} {}", PEER.name, self.dialect.name(), self.endpoints[port])
    }

    /// The flows of one connection.
    fn put(&mut self, case: &Case, near: &Near, port: usize, link: Box<dyn Link>) -> Result<(), PeerError> {
        let caps = link.caps().clone();
        let tuning = Tuning { wait: case.wait, cpu: case.pin.near, batches_of: None };
        let (dialect, handoff) = (self.dialect, Arc::<Handoff>::default());
        let sends = case.direction != Some(Direction::Receive);
        let receives = matches!(case.direction, Some(Direction::Receive | Direction::Both));
        let back = match sends && receives {
            true => Some(link.other_half().map_err(|fault| LinkError::new(&case.endpoints[port], fault))?),
            false => None,
        };
        let mut links = [Some(link), back].into_iter().flatten();
        let mut line = Line { port, sender: None, receiver: None, handoff: handoff.clone() };
        if sends && let Some(link) = links.next() {
            let recorder = (near.recorder)(Role::Outward, port);
            let mut sender = Sender::new(case, &caps, tuning, recorder).announced(dialect);
            if receives {
                sender = sender.then_asks(dialect, handoff.clone());
            }
            line.sender = Some(sender.tally());
            self.flows.push(Flow { role: Role::Outward, port, link, party: Box::new(sender) });
        }
        if receives && let Some(link) = links.next() {
            // How long it takes is the server's business; the sink only needs to know what would be too much.
            let case = Case { stop: Stop::after(FAR_SENDS), ..case.clone() };
            let sink = Sink::new(&case, &caps, tuning, (near.recorder)(Role::Inward, port));
            let word = (!sends).then(|| Word::ServerSends(case.message_bytes).bytes(dialect));
            let receiver = Receiver::new(sink, &case, word, handoff);
            line.receiver = Some(receiver.tally());
            self.flows.push(Flow { role: Role::Inward, port, link, party: Box::new(receiver) });
        }
        self.lines.push(line);
        Ok(())
    }

    /// The connections with what their ends did.
    fn used<'a>(&self, flows: &'a [Flowed], links: Vec<Box<dyn Link>>) -> Vec<Used<'a>> {
        let mut flows = flows.iter().zip(links);
        let mut ran = |told: &Option<Told>| {
            let tally = std::mem::take(&mut *told.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner));
            flows.next().map(|(flow, link)| Ran { tally, flow, link })
        };
        let used = |line: &Line| {
            let mut used = Used { port: line.port, sent: ran(&line.sender), received: ran(&line.receiver) };
            if let Some(received) = &mut used.received {
                // The end that received may have been through before the other one knew when it had asked.
                received.tally.first = line.handoff.asked();
            }
            used
        };
        self.lines.iter().map(used).collect()
    }

    /// What the ends of one direction counted together, for the document.
    fn note<'a>(&mut self, ran: impl Iterator<Item = &'a Ran<'a>> + Clone, bytes: &str, time: &str) {
        let tallies = ran.map(|ran| &ran.tally);
        let first = tallies.clone().filter_map(|tally| tally.first).min();
        let last = tallies.clone().filter_map(|tally| tally.last).max();
        if let (Some(first), Some(last)) = (first, last) {
            let sum: u64 = tallies.map(|tally| tally.bytes).sum();
            self.got.insert(bytes.to_owned(), sum.into());
            self.got.insert(time.to_owned(), (last.since(first).as_nanos() as u64).into());
        }
    }

    /// What became of the payload: of what was sent, what is acknowledged. Where blocks came back, the first of them
    /// says that everything before was read.
    fn report(&self, used: &[Used]) -> FarReport {
        let sent: Vec<&Ran> = used.iter().filter_map(|used| used.sent.as_ref()).collect();
        let links: Vec<_> = sent.iter().map(|ran| (ran.flow, &*ran.link)).collect();
        let mut flows = acknowledged(&links, self.block_bytes, &self.clock, self.timeout);
        for (flow, used) in flows.iter_mut().zip(used) {
            flow.fault = flow.fault.take().map(|fault| format!("{}: {fault}", self.endpoints[flow.port]));
            let first = |ran: &Option<Ran>| ran.as_ref()?.flow.recorder.first;
            // What comes before it was asked for says nothing of what was read.
            let asked = used.received.as_ref().and_then(|ran| ran.tally.first);
            if let (Some(sent), Some((first, back))) =
                (&used.sent, first(&used.sent).zip(first(&used.received)))
                && asked.is_some_and(|asked| asked <= back)
            {
                let counts = &sent.flow.recorder.counts;
                (flow.bytes, flow.messages, flow.fault) = (counts.bytes, counts.sent, None);
                flow.elapsed_ns = back.since(first).as_nanos() as u64;
            }
        }
        let received = used.iter().filter_map(|used| used.received.as_ref()).map(|ran| FarFlow {
            port: ran.flow.port,
            inward: true,
            bytes: ran.flow.recorder.counts.bytes,
            messages: ran.flow.recorder.counts.received,
            ..FarFlow::default()
        });
        flows.extend(received);
        FarReport { flows, ..FarReport::default() }
    }

    /// The connection at the border between two directions, if the rest of what was begun can be sent. Else it is
    /// reset: an original that is closed in mid-block looks for the rest at 100 % CPU for ever.
    fn completed(&self, mut link: Box<dyn Link>, owed: &[u8]) -> Option<Connection> {
        let mut left = owed;
        let until = self.clock.now() + LAST_WORDS;
        while !left.is_empty() {
            match link.send(left, until.since(self.clock.now())) {
                Ok(taken) => left = &left[taken..],
                Err(_) => {
                    link.abort();
                    return None;
                }
            }
        }
        Some(Connection { link: Some(link), dialect: self.dialect })
    }
}

impl Session for NetioSession {
    fn flows(&mut self) -> Vec<Flow> {
        std::mem::take(&mut self.flows)
    }

    fn finish(
        &mut self,
        flows: &[Flowed],
        links: Vec<Box<dyn Link>>,
    ) -> Result<Option<FarReport>, PeerError> {
        let used = self.used(flows, links);
        self.note(used.iter().filter_map(|used| used.sent.as_ref()), "tx_bytes", "tx_ns");
        self.note(used.iter().filter_map(|used| used.received.as_ref()), "rx_bytes", "rx_ns");
        let mut report = self.report(&used);
        let fault = used.iter().find_map(|used| {
            let fault = used.fault(&self.endpoints[used.port])?;
            Some(if used.is_misunderstood() { fault + hint(self.dialect) } else { fault })
        });
        if let (Some(fault), Some(flow)) = (fault, report.flows.first_mut()) {
            flow.fault = Some(fault);
        }
        // A server that does not read hears no next word either.
        let failed = report.flows.iter().any(|flow| flow.fault.is_some());
        for used in used {
            let port = used.port;
            if let Some((link, owed)) = used.at_rest()
                && let Some(connection) = self.completed(link, &owed)
                && !failed
            {
                self.kept.keep(self.key(port), connection);
            }
        }
        Ok(Some(report))
    }

    fn got(&self) -> Map<String, Value> {
        self.got.clone()
    }
}

/// What to try where the far end did not do as this dialect has it.
fn hint(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::C => "; a NETIO of 1.15 to 1.22 needs --dialect b, one before it --dialect a",
        Dialect::B => "; a NETIO from 1.23 on needs --dialect c",
        Dialect::A => "",
    }
}

#[cfg(test)]
mod tests;
