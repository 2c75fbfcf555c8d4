//! The client over datagrams: blocks are datagrams without any head, what is to happen is said on a stream beside them.
//!
//! Both ends use the server's port, this one too, because the server sends its datagrams there. The sender's count and
//! the receiver's are exchanged on the stream; what is still on its way then counts as lost.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use super::sender::Sender;
use super::wire::{Dialect, WORD, Word, block, loss_percent};
use super::{Connection, DIALECT, FAR_SENDS, PEER, PORT_BESIDE};
use crate::clock::{Clock, Time};
use crate::endpoint::Endpoint;
use crate::link::party::Tuning;
use crate::link::{Fault, Link, LinkError, stream_beside};
use crate::peer::{Flow, Kept, Near, PeerError, Session};
use crate::plan::{Case, Direction, Stop};
use crate::workload::throughput::Sink;
use crate::workload::throughput::head::{Head, Read};
use crate::workload::{FarFlow, FarReport, Flowed, Role};

/// Datagrams as they are: nothing tells one from another.
struct Bare;

impl Head for Bare {
    fn length(&self) -> usize {
        0
    }

    fn write(&mut self, _message: &mut [u8], _number: u64, _now: Time) {}

    fn read(&mut self, _message: &[u8], next: u64, _now: Time) -> Read {
        Read::Number(next)
    }
}

/// Where the stream and the datagrams of an endpoint go, each with this end's address and port.
fn places(endpoint: &Endpoint) -> Result<(Endpoint, Endpoint), Fault> {
    let (_, port) = endpoint.host_port()?;
    let port = port.unwrap_or(PORT_BESIDE);
    let at = endpoint.with_port(port)?;
    let stream = stream_beside(&at)?;
    let from = endpoint.option(BIND).unwrap_or_default();
    let others = endpoint.options().filter(|(name, _)| *name != BIND);
    let options: String = others.map(|(name, value)| format!("&{name}={value}")).collect();
    // An address of IPv6 stands in brackets before a port.
    let from = if from.contains(':') { format!("[{from}]") } else { from.to_owned() };
    let datagrams =
        format!("{}://{}?{BIND}={from}:{port}{options}", at.scheme(), at.place()).parse::<Endpoint>()?;
    Ok((stream, datagrams))
}

const BIND: &str = "bind";

/// Checks what only an endpoint of datagrams can get wrong.
pub fn fit(case: &Case) -> Result<(), String> {
    if case.direction == Some(Direction::Both) || case.parallel > 1 {
        return Err(
            "over datagrams one connection and one way at a time: --direction send,receive".to_owned()
        );
    }
    for endpoint in &case.endpoints {
        places(endpoint).map_err(|fault| fault.to_string())?;
    }
    Ok(())
}

/// The stream of one port.
struct Control {
    link: Box<dyn Link>,
    endpoint: Endpoint,
    /// When the server was asked to send.
    asked: Option<Time>,
    /// How long the server took to answer when no datagrams were on their way.
    round_trip: Duration,
    /// When the server's count was here.
    counted: Option<Time>,
}

/// How long the round with the one datagram lasts at least. The original counts time in steps of 1/1024 s and divides by it.
const OPENING: Duration = Duration::from_millis(20);

impl Control {
    fn fault(&self, fault: Fault) -> PeerError {
        LinkError::new(&self.endpoint, fault).into()
    }
}

struct DatagramSession {
    flows: Vec<Flow>,
    controls: Vec<Control>,
    case: Case,
    dialect: Dialect,
    kept: Arc<Kept>,
    clock: Clock,
    got: Map<String, Value>,
}

pub fn connect(case: &Case, near: &Near, dialect: Dialect) -> Result<Box<dyn Session>, PeerError> {
    let mut session = DatagramSession {
        flows: Vec::new(),
        controls: Vec::new(),
        case: case.clone(),
        dialect,
        kept: near.kept.clone(),
        clock: near.dialer.clock.clone(),
        got: Map::from_iter([(DIALECT.to_owned(), dialect.name().into())]),
    };
    for port in 0..case.endpoints.len() {
        session.open(near, port)?;
    }
    for port in 0..case.endpoints.len() {
        session.begin(port)?;
    }
    Ok(Box::new(session))
}

impl DatagramSession {
    fn sends(&self) -> bool {
        self.case.direction != Some(Direction::Receive)
    }

    fn key(&self, endpoint: &Endpoint) -> String {
        format!("{} {} {endpoint}", PEER.name, self.dialect.name())
    }

    /// The socket is there before anybody is asked to send to it.
    fn open(&mut self, near: &Near, port: usize) -> Result<(), PeerError> {
        let at = &self.case.endpoints[port];
        let (stream, datagrams) = places(at).map_err(|fault| LinkError::new(at, fault))?;
        let link = near.dialer.open(&datagrams)?;
        let caps = link.caps().clone();
        let tuning = Tuning { wait: self.case.wait, cpu: self.case.pin.near, batches_of: None };
        let role = if self.sends() { Role::Outward } else { Role::Inward };
        let recorder = (near.recorder)(role, port);
        let party: Box<dyn crate::workload::Measured> = if self.sends() {
            Box::new(Sender::new(&self.case, &caps, tuning, recorder))
        } else {
            let case = Case { stop: Stop::after(FAR_SENDS), ..self.case.clone() };
            Box::new(Sink::new(&case, &caps, tuning, recorder).with_head(Box::new(Bare)))
        };
        self.flows.push(Flow { role, port, link, party });
        let kept = near.kept.take::<Connection>(&self.key(&stream)).and_then(Connection::into_link);
        let link = match kept {
            Some(link) => link,
            None => near.dialer.open(&stream)?,
        };
        self.controls.push(Control {
            link,
            endpoint: stream,
            asked: None,
            round_trip: Duration::ZERO,
            counted: None,
        });
        Ok(())
    }

    /// Says what is about to come; before it sends, this end waits for the same word back. Before it receives it lets one
    /// datagram through the other way, counted as NETIO counts: servers like ours, and what lies between, then know where
    /// this end is.
    fn begin(&mut self, port: usize) -> Result<(), PeerError> {
        let size = self.case.message_bytes;
        let said = self.clock.now();
        self.say(port, Word::ClientSends(size))?;
        let go = self.hear(port)?;
        self.controls[port].round_trip = self.clock.now().since(said);
        if Word::read(go, self.dialect) != Word::ClientSends(size) {
            return Err(self.strange(port, go));
        }
        if self.sends() {
            return Ok(());
        }
        let (one, timeout) = (block(size as usize), self.case.timeout);
        let sent = self.flows[port].link.send(&one, timeout);
        sent.map_err(|fault| LinkError::new(&self.case.endpoints[port], fault))?;
        self.clock.sleep_until(self.clock.now() + OPENING);
        self.say(port, Word::Result(size))?;
        self.count(port)?;
        self.say(port, Word::ServerSends(size))?;
        self.controls[port].asked = Some(self.clock.now());
        Ok(())
    }

    fn strange(&self, port: usize, said: [u8; WORD]) -> PeerError {
        let said = said.escape_ascii();
        let what = format!("it said \"{said}\", which NETIO does not here: does it speak another dialect?");
        PeerError::protocol(&self.controls[port].endpoint, what)
    }

    fn say(&mut self, port: usize, word: Word) -> Result<(), PeerError> {
        let (timeout, control) = (self.case.timeout, &mut self.controls[port]);
        let said = control.link.send(&word.bytes(self.dialect), timeout);
        // So few bytes go at once, or not at all.
        said.map(|_| ()).map_err(|fault| control.fault(fault))
    }

    fn hear(&mut self, port: usize) -> Result<[u8; WORD], PeerError> {
        let until = self.clock.now() + self.case.timeout;
        let (clock, control) = (self.clock.clone(), &mut self.controls[port]);
        let (mut word, mut filled) = ([0; WORD], 0);
        while filled < WORD {
            match control.link.receive(&mut word[filled..], until.since(clock.now())) {
                Ok(length) => filled += length,
                Err(fault) => return Err(control.fault(fault)),
            }
        }
        Ok(word)
    }

    /// The count of the far end.
    fn count(&mut self, port: usize) -> Result<u64, PeerError> {
        let said = self.hear(port)?;
        match Word::read(said, self.dialect) {
            Word::Result(count) => Ok(count.into()),
            _ => Err(self.strange(port, said)),
        }
    }

    /// What the case comes to by both counts; more cannot arrive than was sent.
    fn booked(&mut self, port: usize, flow: &Flowed, told: u64) -> Result<FarFlow, PeerError> {
        let (recorder, size) = (&flow.recorder, u64::from(self.case.message_bytes));
        let here = if self.sends() { recorder.counts.sent } else { recorder.counts.received };
        let (sent, received) = if self.sends() { (here, told) } else { (told, here) };
        let Some(percent) = loss_percent(sent, received) else {
            let what = format!("{received} of {sent} datagrams arrived, by its count and ours: one is wrong");
            return Err(PeerError::protocol(&self.controls[port].endpoint, what));
        };
        let control = &self.controls[port];
        let elapsed = match control.asked {
            Some(asked) => recorder.last.map_or(0, |last| last.since(asked).as_nanos() as u64),
            None => recorder.elapsed_ns(),
        };
        // NETIO's own figure of sending is by the sender's time. What waited in a queue then arrived later: the server has
        // it when it counts, which is known here half a round trip later than the first datagram was on its way.
        let counting = control.counted.zip(recorder.first).map(|(counted, first)| counted.since(first));
        let counting = counting.map(|time| time.saturating_sub(control.round_trip).as_nanos() as u64);
        let receiving = counting.filter(|_| self.sends()).map_or(elapsed, |time| time.max(elapsed));
        let way = if self.sends() { "tx" } else { "rx" };
        for (what, value) in [("bytes", received * size), ("ns", elapsed), ("loss_percent", percent)] {
            self.got.insert(format!("{way}_{what}"), value.into());
        }
        let (bytes, messages) =
            if self.sends() { (told * size, told) } else { (recorder.counts.bytes, told) };
        let inward = !self.sends();
        // The first datagram marks the beginning of that time and takes none of it.
        let head_bytes = if self.sends() { size.min(bytes) } else { 0 };
        Ok(FarFlow { port, bytes, messages, head_bytes, elapsed_ns: receiving, inward, ..FarFlow::default() })
    }
}

impl Session for DatagramSession {
    fn flows(&mut self) -> Vec<Flow> {
        std::mem::take(&mut self.flows)
    }

    fn finish(
        &mut self,
        flows: &[Flowed],
        _links: Vec<Box<dyn Link>>,
    ) -> Result<Option<FarReport>, PeerError> {
        let mut report = FarReport::default();
        for (port, flow) in flows.iter().enumerate() {
            if self.sends() {
                self.say(port, Word::Result(self.case.message_bytes))?;
            }
            let told = self.count(port)?;
            self.controls[port].counted = Some(self.clock.now());
            report.flows.push(self.booked(port, flow, told)?);
        }
        for Control { link, endpoint, .. } in std::mem::take(&mut self.controls) {
            let connection = Connection { link: Some(link), dialect: self.dialect };
            self.kept.keep(self.key(&endpoint), connection);
        }
        Ok(Some(report))
    }

    fn got(&self) -> Map<String, Value> {
        self.got.clone()
    }
}
