//! What is fuzzed: one function for each parser that reads what others wrote. Each takes any bytes; it may refuse them,
//! and must neither panic nor need more than they deserve.
//!
//! `tests/it/fuzz_smoke.rs` runs the same functions on every stable toolchain, for a moment.

use std::sync::Arc;
use std::time::Duration;

use linkgauge::clock::{Clock, Time};
use linkgauge::endpoint::Endpoint;
use linkgauge::lab::logger::{Device, Logger, Options as LoggerOptions};
use linkgauge::link::line::{Errors, Modem, Port, Purge, Settings, Signal};
use linkgauge::link::linx::Side;
use linkgauge::link::linx::ethernet_cm::connection as ethernet;
use linkgauge::link::linx::node::Node;
use linkgauge::link::linx::rlnh::Message;
use linkgauge::link::linx::tcp_cm::{self, Connection, Heard, Kind};
use linkgauge::link::party::{Party, Step};
use linkgauge::link::rfc2217::Server;
use linkgauge::link::{self, Caps, Dialer, Fault};
use linkgauge::peer::ask::reply::{End, Found, LONGEST, LengthField, Reply as Answer, Search};
use linkgauge::peer::linkgauge::Hello;
use linkgauge::peer::linkgauge::wire::{self, Attach, Reply, Request};
use linkgauge::peer::pakbus::frame::{self, Decoder};
use linkgauge::peer::pakbus::packet::Packet;
use linkgauge::peer::pakbus::{directory, message, record, reply, table, value};
use linkgauge::peer::{Limits, ServerFacts, Service, peer};
use linkgauge::plan::Plan;
use linkgauge::report::{self, FORMATS, Options};
use linkgauge::run::Run;
use linkgauge::schedule;

/// A name and its function.
pub type Target = (&'static str, fn(&[u8]));

/// Every target.
pub const TARGETS: [Target; 8] = [
    ("endpoint", endpoint),
    ("plan", plan),
    ("session", session),
    ("run_document", run_document),
    ("ask", ask),
    ("rfc2217", rfc2217),
    ("pakbus", pakbus),
    ("linx", linx),
];

/// A URL as typed or as written in a plan; it prints back as it was, and its transport reads or refuses it.
pub fn endpoint(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let Ok(endpoint) = text.parse::<Endpoint>() else { return };
    assert_eq!(endpoint.to_string(), text);
    let _ = (endpoint.host_port(), link::caps(&endpoint));
    if let Ok(next) = endpoint.counted_up(3) {
        assert_eq!(next.scheme(), endpoint.scheme());
        assert!(next.options().eq(endpoint.options()), "{endpoint} {next}");
    }
    if let Ok(moved) = endpoint.with_port(7100) {
        assert_eq!(moved.host_port().map(|(_, port)| port), Ok(Some(7100)));
    }
}

/// A plan file; what is a plan is also looked up in the lists.
pub fn plan(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    if let Ok(plan) = Plan::from_toml(text) {
        assert!(!plan.cases.is_empty());
        let _ = schedule::check(plan).map(|plan| schedule::estimate(&plan));
    }
}

/// The words of our session: as a client reads them, as a server's door does, and as a whole connection to a server,
/// in pieces whose length the first byte tells.
pub fn session(data: &[u8]) {
    for used in [
        wire::read_frame::<Request>(data, wire::LONGEST).ok().flatten().map(|(_, _, used)| used),
        wire::read_frame::<Reply>(data, wire::LONGEST).ok().flatten().map(|(_, _, used)| used),
    ] {
        assert!(used.is_none_or(|used| used <= data.len()));
    }
    let _ =
        (Attach::read(data), Hello::new().challenge_in(data), wire::unhex(&String::from_utf8_lossy(data)));
    if let Some(ready) = wire::ready(data, &[7; 32], "fuzz") {
        assert_eq!(ready.len(), data.len(), "an answer is never longer than what it answers");
    }
    let service = server();
    let mut reply = Vec::new();
    service.door(data, "fuzz", &mut reply);
    assert!(reply.len() <= data.len(), "a door never says more than it heard");
    let Some((&size, rest)) = data.split_first() else { return };
    let mut party = service.party(&Caps::STREAM, "fuzz");
    connection(party.as_mut(), rest.chunks(usize::from(size).max(1)));
}

/// Our own server, as it is without a token.
fn server() -> Arc<dyn Service> {
    let facts = ServerFacts {
        limits: Limits::default(),
        token: None,
        environment: Default::default(),
        secret: [7; 32],
    };
    let serve = peer("linkgauge").and_then(|peer| peer.serve).expect("our own peer can be served");
    serve(&Arc::new(facts))
}

/// Lets a far end run on bytes that arrive, until it ends or waits for more.
fn connection<'a>(party: &mut dyn Party, mut pieces: impl Iterator<Item = &'a [u8]>) {
    let mut now = Time(0);
    // Far more than an honest connection of so few bytes takes; one that never rests would be a fault.
    for _ in 0..100_000 {
        now = now + Duration::from_micros(1);
        match party.next(now) {
            Step::Send { bytes, .. } => {
                let length = bytes.len();
                assert!(length > 0, "nothing is no message");
                party.sent(length, now);
            }
            Step::Receive { into, until } => match pieces.next() {
                Some(piece) => {
                    let piece = &piece[..piece.len().min(into.bytes.len())];
                    into.clear();
                    into.bytes[..piece.len()].copy_from_slice(piece);
                    into.push(0, piece.len());
                    party.received(now);
                }
                None => {
                    now = now.max(until);
                    if party.closed(now).is_err() {
                        return;
                    }
                }
            },
            Step::Sleep(until) => now = now.max(until),
            Step::Tune(_) | Step::Finish => {}
            Step::Done | Step::Fail(_) => return,
        }
    }
    panic!("the far end never rests");
}

/// What a device answers: after two lines, the end as it was typed and what is expected, comes what it says. Read whole
/// and in pieces whose length the first byte tells it gives the same answers.
pub fn ask(data: &[u8]) {
    let mut parts = data.splitn(3, |&byte| byte == b'\n');
    let (Some(end), Some(expect), Some(said)) = (parts.next(), parts.next(), parts.next()) else { return };
    let (end, expect) = (String::from_utf8_lossy(end), String::from_utf8_lossy(expect));
    let expect = Search::parse(&expect).ok();
    let ends = [
        LengthField::parse(&end).ok().map(End::Length),
        Search::parse(&end).ok().map(End::Until),
        end.parse().ok().filter(|bytes| (1..=LONGEST).contains(bytes)).map(End::Bytes),
    ];
    let Some((&size, said)) = said.split_first() else { return };
    for end in ends.into_iter().flatten() {
        let whole = answers(Answer::new(end.clone(), expect.clone()), said.chunks(said.len().max(1)));
        let pieces = answers(Answer::new(end, expect.clone()), said.chunks(usize::from(size).max(1)));
        assert_eq!(whole, pieces);
    }
}

/// Where each answer ends in what comes in these pieces, and what it was.
fn answers<'a>(mut reply: Answer, pieces: impl Iterator<Item = &'a [u8]>) -> Vec<(usize, &'static str)> {
    let (mut found, mut at) = (Vec::new(), 0);
    for mut piece in pieces {
        while !piece.is_empty() {
            let (used, what) = match reply.read(piece) {
                Found::Partial => (piece.len(), None),
                Found::Whole { used, expected: true } => (used, Some("whole")),
                Found::Whole { used, expected: false } => (used, Some("unexpected")),
                Found::Broken { used } => (used, Some("broken")),
            };
            assert!(used > 0, "an answer takes something");
            (at, piece) = (at + used, &piece[used..]);
            found.extend(what.map(|what| (at, what)));
        }
    }
    found
}

/// What a client of a serial port on the network says: whole, and in pieces whose length the first byte tells.
pub fn rfc2217(data: &[u8]) {
    let Some((&size, said)) = data.split_first() else { return };
    let whole = served(said.chunks(said.len().max(1)));
    assert_eq!(whole, served(said.chunks(usize::from(size).max(1))));
    let (data, answers) = whole;
    assert!(data.len() <= said.len());
    // The greeting, the inputs that are told unasked, and for each question an answer of up to three times its length.
    assert!(answers.len() <= 15 + 8 + 3 * said.len(), "{} bytes of answers", answers.len());
}

/// What reaches the line, and what the client is told.
fn served<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<u8>, Vec<u8>) {
    let mut server = Server::new(Settings::default(), "linkgauge");
    let (mut line, mut answers, mut port) = (Vec::new(), Vec::new(), Wired(Settings::default()));
    server.greeting(&mut answers);
    for mut piece in pieces {
        while !piece.is_empty() {
            let mut data = Vec::new();
            let used = server.received(piece, &mut data, &mut answers, &mut port).expect("the port is there");
            assert!(used > 0, "something is taken");
            line.append(&mut data);
            piece = &piece[used..];
        }
    }
    (line, answers)
}

/// A serial port that takes everything.
struct Wired(Settings);

impl Port for Wired {
    fn settings(&mut self) -> Result<Settings, Fault> {
        Ok(self.0)
    }

    fn set(&mut self, wanted: &Settings) -> Result<Settings, Fault> {
        self.0 = *wanted;
        Ok(self.0)
    }

    fn signal(&mut self, _signal: Signal, _on: bool) -> Result<(), Fault> {
        Ok(())
    }

    fn modem(&mut self) -> Option<Modem> {
        None
    }

    fn purge(&mut self, _purge: Purge) -> Result<(), Fault> {
        Ok(())
    }

    fn errors(&mut self) -> Option<Errors> {
        None
    }
}

/// What comes from a logger or from its client, on a line: read whole and in pieces whose length the first byte tells it
/// gives the same packets; what can be read of a packet says the same once written; and a logger answers, or does not,
/// and rests. A changed frame is no frame, so everything between two sync bytes is also framed anew.
pub fn pakbus(data: &[u8]) {
    let Some((&size, said)) = data.split_first() else { return };
    let size = usize::from(size).max(1);
    assert_eq!(packets(said.chunks(said.len().max(1))), packets(said.chunks(size)));
    let mut framed = Vec::new();
    for between in said.split(|&byte| byte == frame::SYNC) {
        let packet = &between[..between.len().saturating_sub(2)];
        frame::write(packet, &mut framed);
        parts(packet);
    }
    for said in [said, &framed] {
        logger(said.chunks(size));
    }
}

fn packets<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Vec<Vec<u8>> {
    let (mut decoder, mut packets) = (Decoder::default(), Vec::new());
    for mut piece in pieces {
        while !piece.is_empty() {
            let (used, packet) = decoder.read(piece);
            packets.extend(packet.map(<[u8]>::to_vec));
            piece = &piece[used..];
        }
    }
    packets
}

/// A packet, and the files and records that bytes like these may be.
fn parts(bytes: &[u8]) {
    if let Ok(tables) = table::read(bytes) {
        assert_eq!(table::write(&tables), bytes);
    }
    if let Ok(entries) = directory::read(bytes) {
        assert_eq!(directory::write(&entries), bytes);
    }
    let Ok(packet) = Packet::read(bytes) else { return };
    assert_eq!(packet.write(), bytes);
    let Some((route, said)) = packet.message else { return };
    if let Ok((transaction, command)) = message::Command::read(route.protocol, said) {
        let (protocol, written) = command.write(transaction);
        assert_eq!(message::Command::read(protocol, &written), Ok((transaction, command)));
    }
    if let Ok((transaction, reply)) = reply::Reply::read(route.protocol, said) {
        let (protocol, written) = reply.write(transaction);
        assert_eq!(reply::Reply::read(protocol, &written), Ok((transaction, reply)));
    }
    let field = |kind| table::Field::new("f", value::Type(kind), 3);
    let fields = (0..32).map(field).collect();
    let table = table::Table::new("t", 9, value::Instant { seconds: 1, nanoseconds: 0 }, fields);
    let _ = record::read(&[table], said);
}

/// Says this to a logger until all is said and answered.
fn logger<'a>(pieces: impl Iterator<Item = &'a [u8]>) {
    let dialer = Dialer::new(Clock::new_virtual());
    let listen: Endpoint = "mem://logger".parse().expect("an endpoint");
    let device = Device {
        files: vec![("CPU:a.bin".to_owned(), vec![0xBD; 2000])],
        tables: vec!["Bench:1s:Seq=Int4,Temp=FP2,Name=ASCII(2000):9".parse().expect("a table")],
        processing: Duration::from_secs(2),
        ..Device::default()
    };
    let options = LoggerOptions { listen: vec![listen.clone()], lines: Vec::new(), device };
    let clock = value::Instant { seconds: 1000, nanoseconds: 0 };
    let _logger = Logger::with(&options, clock, dialer.clone()).expect("it starts");
    let mut link = dialer.open(&listen).expect("it listens");
    let mut answer = [0; 4096];
    for piece in pieces {
        let mut rest = piece;
        while !rest.is_empty() {
            match link.send(rest, Duration::from_secs(1)) {
                Ok(sent) => rest = &rest[sent..],
                Err(_) => while link.receive(&mut answer, Duration::ZERO).is_ok() {},
            }
        }
    }
    // Far more than so few commands are worth.
    for _ in 0..10_000 {
        if link.receive(&mut answer, Duration::from_secs(60)).is_err() {
            return;
        }
    }
    panic!("the logger never rests");
}

/// What a LINX node says over TCP, its messages about names included; and the same bytes as such a message. What can be
/// read says the same once written.
pub fn linx(data: &[u8]) {
    if let Ok(message) = Message::read(data) {
        assert_eq!(Message::read(&message.write()), Ok(message));
    }
    linx_over_ethernet(data);
    let (mut rest, mut out, mut said) = (data, Vec::new(), Vec::new());
    let mut connection = Connection::new(Side::Passive, Time(0), &mut out);
    let mut node = Node::default();
    while let Ok(Some((header, message))) = tcp_cm::frame(rest) {
        rest = &rest[tcp_cm::HEADER + message.len()..];
        let heard = match header.kind {
            Kind::Data => connection.message().map(|()| Heard::Nothing),
            kind => connection.control(kind, Time(0), &mut out),
        };
        match heard {
            Ok(Heard::Up) => node.start(&mut said),
            Ok(Heard::Nothing) if header.kind == Kind::Data && header.destination == 0 => {
                if node.received(message, &mut said).is_err() {
                    return;
                }
            }
            Ok(Heard::Nothing) => {}
            Err(_) => return,
        }
    }
}

/// The same bytes as frames on Ethernet, each behind a byte that tells its length.
fn linx_over_ethernet(mut data: &[u8]) {
    let mut connection = ethernet::Connection::new(Side::Passive, [2; 6], [3; 6], 1500, 1, Time(0));
    let mut messages = Vec::new();
    while let Some((&length, rest)) = data.split_first() {
        let (frame, rest) = rest.split_at(rest.len().min(length.into()));
        data = rest;
        connection.received(frame, Time(0), &mut |_| {});
        messages.clear();
        let _ = connection.take(&mut messages, &mut |_| {});
        let mut left = &messages[..];
        while let Some((_, _, _, used)) = ethernet::entry(left) {
            left = &left[used..];
        }
        assert!(left.is_empty());
    }
}

/// A run document that somebody else wrote: read, its histograms decoded, every report made of it.
pub fn run_document(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let Ok(run) = Run::from_json(text) else { return };
    for case in &run.cases {
        let _ = report::histogram(&case.figures);
    }
    for format in FORMATS {
        let written = (format.write)(&run, &Options::default(), &mut std::io::sink());
        assert!(written.is_ok(), "{}: only a sink may fail", format.name);
    }
}
