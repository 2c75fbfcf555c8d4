//! The fuzz targets: one function for each parser of bytes from outside. Each takes any bytes. It may refuse them, but
//! must neither panic nor use more memory than their length justifies.
//!
//! `tests/it/fuzz_smoke.rs` lists them, and runs the same functions briefly on every stable toolchain.

// By path, because the tests include this file from elsewhere.
#[path = "targets/clients.rs"]
mod clients;
#[path = "targets/documents.rs"]
mod documents;
#[path = "targets/draw.rs"]
mod draw;
#[cfg(feature = "fleet")]
#[path = "targets/fleet.rs"]
mod fleet;
#[path = "targets/lines.rs"]
mod lines;
#[path = "targets/loggers.rs"]
mod loggers;
#[path = "targets/path.rs"]
mod path;
#[path = "targets/probes.rs"]
mod probes;
#[path = "targets/responders.rs"]
mod responders;
#[path = "targets/servers.rs"]
mod servers;

pub use clients::{client, session_client};
pub use documents::{compare, guest_output, mesh, monitor_input, quantities, store_document};
#[cfg(feature = "fleet")]
pub use fleet::fleet;
pub use lines::{echo_comparison, uart};
pub use loggers::{pakbus, pakbus_client};
pub use path::path;
pub use probes::probes;
pub use responders::responder;
pub use servers::{linx_bmark, memory, session_server};

use std::sync::Arc;
use std::time::Duration;

use linkgauge::Registry;
use linkgauge::clock::Time;
use linkgauge::endpoint::Endpoint;
use linkgauge::explain::{self, DeclaredFacts, ModelInput};
use linkgauge::host::radio::nl80211;
use linkgauge::import::{self, ImportOptions, TimeUnit};
use linkgauge::link::party::{Party, Step};
use linkgauge::link::serial_line::{
    ModemLines, OutputSignal, PortControl, PurgeTarget, SerialSettings, UartErrors,
};
use linkgauge::link::{Caps, Fault, Framing};
use linkgauge::lists::{MODELS, REPORT_FORMATS, import_format};
use linkgauge::plan;
use linkgauge::protocol::ask::reply_scanner::{
    LengthField, MAX_REPLY_BYTES, PatternSearch, ReplyEnd, ReplyScanner, ScanResult,
};
use linkgauge::protocol::chargen;
use linkgauge::protocol::iperf2::wire as iperf2_wire;
use linkgauge::protocol::iperf3::client::{ClientControl, ClientPlan};
use linkgauge::protocol::iperf3::datagram::DatagramHeader;
use linkgauge::protocol::iperf3::wire::{self as iperf3_wire, Cookie, Parameters, TestResults};
use linkgauge::protocol::jitter::SharedJitter;
use linkgauge::protocol::linkgauge::Hello;
use linkgauge::protocol::linkgauge::wire::{self, Attach, SessionReply, SessionRequest};
use linkgauge::protocol::netio::wire::{ControlWord, DialectGuess, FlaggedBlockParser, NetioDialect};
use linkgauge::protocol::sockperf;
use linkgauge::protocol::stamp::packet::{
    AUTHENTICATED_BYTES, HmacKey, ReflectorPacket as Reflected, SenderPacket as Test, UNAUTHENTICATED_BYTES,
};
use linkgauge::protocol::stamp::tlv;
use linkgauge::protocol::tipc_bench::message::{BenchCommand, BenchReply};
use linkgauge::protocol::{ServerConfig, ServerLimits, Service};
use linkgauge::report::{self, ReportOptions};
use linkgauge::run::Run;
use linkgauge::schedule;
use linkgauge::system::{IpFamily, TcpInfo};
use linkgauge::transport::linx::ConnectionRole;
use linkgauge::transport::linx::ethernet_cm::connection as ethernet;
use linkgauge::transport::linx::node::Node;
use linkgauge::transport::linx::rlnh::RlnhMessage;
use linkgauge::transport::linx::tcp_cm::{self, ControlOutcome, FrameKind, TcpConnection};
use linkgauge::transport::rfc2217::PortServer;
use linkgauge::transport::sdp::{SERIAL_PORT_UUID, SearchProgress, ServiceSearch};
use linkgauge::transport::{bluetooth::hci, bluez, icmp, tipc};
use linkgauge::workload::throughput::header::HeaderCodec;

/// A URL as typed or as written in a plan; it prints back as it was, and its transport reads or refuses it.
pub fn endpoint(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let Ok(endpoint) = text.parse::<Endpoint>() else { return };
    assert_eq!(endpoint.to_string().parse::<Endpoint>().as_ref(), Ok(&endpoint));
    // A bare host or device gets its scheme.
    assert!(!text.contains("://") || endpoint.to_string() == text);
    let _ = (endpoint.host_port(), Registry::standard().transports.caps(&endpoint));
    if let Ok(next) = endpoint.with_number_offset(3) {
        assert_eq!(next.scheme(), endpoint.scheme());
        assert!(next.options().eq(endpoint.options()), "{endpoint} {next}");
    }
    if let Ok(moved) = endpoint.with_port(7100) {
        assert_eq!(moved.host_port().map(|(_, port)| port), Ok(Some(7100)));
    }
}

/// A plan file; a valid plan is also looked up in the lists.
pub fn plan(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    if let Ok(plan) = plan::Plan::from_toml(text) {
        assert!(!plan.cases.is_empty());
        let _ = schedule::check(plan, Registry::standard()).map(|plan| schedule::estimate_duration(&plan));
    }
}

/// The messages of the linkgauge protocol: as a client reads them, as the accept filter of a server does, and as a
/// whole connection to a server, in chunks whose length the first byte gives.
pub fn session(data: &[u8]) {
    for used in [
        wire::decode_frame::<SessionRequest>(data, wire::MAX_JSON_BYTES)
            .ok()
            .flatten()
            .map(|(_, _, used)| used),
        wire::decode_frame::<SessionReply>(data, wire::MAX_JSON_BYTES)
            .ok()
            .flatten()
            .map(|(_, _, used)| used),
    ] {
        assert!(used.is_none_or(|used| used <= data.len()));
    }
    let _ = (
        Attach::parse(data),
        Hello::new().challenge_in(data),
        wire::decode_hex(&String::from_utf8_lossy(data)),
    );
    if let Some(ready) = wire::ready_reply(data, &[7; 32], "fuzz", 0) {
        assert_eq!(ready.len(), data.len(), "a reply is never longer than its request");
    }
    let service = server("linkgauge", ServerLimits::default());
    let mut reply = Vec::new();
    service.admit_sender(data, "fuzz", &mut reply);
    assert!(reply.len() <= data.len(), "a filter never sends more than it received");
    let Some((&size, rest)) = data.split_first() else { return };
    let mut party = service.new_party(&Caps::STREAM, "fuzz");
    connection(party.as_mut(), rest.chunks(usize::from(size).max(1)));
}

/// Messages of client and server of the TIPC benchmark, and of the topology server. Parsed messages encode to the same
/// bytes. A server that receives the bytes as commands and then as data, in chunks whose length the first byte gives,
/// is idle at the end.
pub fn tipc_bench(data: &[u8]) {
    assert!(tipc::parse_event(data).is_none() || data.len() == 48);
    if let Some(command) = BenchCommand::read(data) {
        assert_eq!(BenchCommand::read(&command.write()), Some(command));
    }
    if let Some(reply) = BenchReply::read(data) {
        assert_eq!(BenchReply::read(&reply.write()), Some(reply));
    }
    let service = server("tipc-bench", ServerLimits::default());
    let first = Caps { framing: Framing::Message, max_message_bytes: Some(66_000), ..Caps::STREAM };
    let messages = Caps { can_signal_close: false, ..first.clone() };
    let mut commands = service.new_party(&messages, "fuzz");
    let mut stream = service.new_party(&Caps::STREAM, "fuzz");
    connection(commands.as_mut(), data.chunks(16));
    connection(service.new_party(&first, "fuzz").as_mut(), data.chunks(16));
    let Some((&size, rest)) = data.split_first() else { return };
    connection(stream.as_mut(), rest.chunks(usize::from(size).max(1)));
}

/// The server side of a protocol, without a token.
fn server(name: &str, limits: ServerLimits) -> Arc<dyn Service> {
    let facts = ServerConfig { limits, secret: [7; 32], ..ServerConfig::default() };
    let serve =
        Registry::standard().protocol(name).and_then(|peer| peer.serve).expect("this peer can be served");
    serve(&Arc::new(facts))
}

/// Messages of a NETIO client to a server, in chunks whose length the first byte gives; and the blocks in them, whose
/// positions do not depend on the chunks.
pub fn netio(data: &[u8]) {
    let Some((&size, rest)) = data.split_first() else { return };
    let chunks = || rest.chunks(usize::from(size).max(1));
    // So slow that every direction is over after a few steps.
    let limits = ServerLimits { bit_rate: Some(8.0), ..ServerLimits::default() };
    connection(server("netio", limits).new_party(&Caps::STREAM, "fuzz").as_mut(), chunks());
    let mut whole = FlaggedBlockParser::new(u32::from(size));
    let taken = whole.push(rest);
    let mut split = FlaggedBlockParser::new(u32::from(size));
    assert_eq!(chunks().map(|chunk| split.push(chunk)).sum::<usize>(), taken);
    assert_eq!((whole.whole_blocks(), whole.is_finished()), (split.whole_blocks(), split.is_finished()));
    assert_eq!(whole.block_offset() + whole.whole_blocks() as usize * usize::from(size).max(1), taken);
    assert!(whole.is_finished() || taken == rest.len());
    if let Some(word) = rest.first_chunk()
        && let DialectGuess::Known(dialect @ (NetioDialect::B | NetioDialect::C)) =
            DialectGuess::from_first_bytes(rest)
    {
        let read = ControlWord::decode(*word, dialect);
        assert_eq!(ControlWord::decode(read.encode(dialect), dialect), read);
    }
}

/// Runs a server on received bytes, until it ends or waits for more.
fn connection<'a>(party: &mut dyn Party, mut chunks: impl Iterator<Item = &'a [u8]>) {
    let mut now = Time(0);
    // Far more than an honest connection of so few bytes takes; one that never rests would be a fault.
    let mut rest: &[u8] = &[];
    for _ in 0..100_000 {
        now = now + Duration::from_micros(1);
        match party.next_step(now) {
            Step::Send { bytes, .. } => {
                let length = bytes.len();
                assert!(length > 0, "nothing is no message");
                party.on_sent(length, now);
            }
            Step::Receive { into, until } => {
                match Some(rest).filter(|rest| !rest.is_empty()).or_else(|| chunks.next()) {
                    Some(chunk) => {
                        into.borrow_memory();
                        let (chunk, behind) = chunk.split_at(chunk.len().min(into.bytes.len()));
                        rest = behind;
                        into.clear();
                        into.bytes[..chunk.len()].copy_from_slice(chunk);
                        into.push_span(0, chunk.len());
                        party.on_received(now);
                    }
                    None => {
                        now = now.max(until);
                        if party.on_closed(now).is_err() {
                            return;
                        }
                    }
                }
            }
            Step::Sleep(until) => now = now.max(until),
            Step::Tune(_) | Step::FinishSending | Step::ReadStamps(_) => {}
            Step::Done | Step::Fail(_) | Step::Reopen => return,
        }
    }
    panic!("the server never becomes idle");
}

/// Settings, datagrams and reports of iperf 2, and connections of its clients to our server, in chunks whose length the first
/// byte gives.
pub fn iperf2(data: &[u8]) {
    let _ = (
        iperf2_wire::Settings::parse(data),
        data.first_chunk().map(|flags| iperf2_wire::StreamStart::of(*flags)),
    );
    let format = iperf2_wire::DatagramFormat::of(data);
    if let Some(head) = format.read(data) {
        assert!(head.number <= 1 << 63);
    }
    if let Some(report) = iperf2_wire::Report::parse(data) {
        let again = iperf2_wire::Report::parse(&report.encode(iperf2_wire::DatagramFormat::MODERN));
        assert_eq!(
            again.map(|again| (again.bytes, again.lost, again.highest)),
            Some((report.bytes, report.lost, report.highest))
        );
    }
    let Some((&size, rest)) = data.split_first() else { return };
    let messages = Caps {
        framing: Framing::Message,
        max_message_bytes: Some(2000),
        can_signal_close: false,
        ..Caps::STREAM
    };
    let limits = ServerLimits { bit_rate: Some(1e9), duration_s: 1, ..ServerLimits::default() };
    let service = server("iperf2", limits);
    let mut reply = Vec::new();
    service.admit_sender(rest, "192.0.2.1:5", &mut reply);
    assert!(reply.is_empty(), "only a link gets a report");
    for caps in [Caps::STREAM, messages] {
        let mut party = service.new_party(&caps, "192.0.2.1:5");
        connection(party.as_mut(), rest.chunks(usize::from(size).max(1)));
    }
}

/// Messages of an iperf3 client to our server, and of a server to our client: the messages alone, and a whole control
/// connection with its cookie, in chunks whose length the first byte gives. The server's streams never arrive.
pub fn iperf3(data: &[u8]) {
    for longest in [iperf3_wire::MAX_PARAMETERS_BYTES, iperf3_wire::MAX_RESULTS_BYTES] {
        let Ok(Some((object, used))) = iperf3_wire::decode_framed(data, longest) else { continue };
        assert!(used <= data.len());
        let streams = Parameters::from_json(&object).map_or(1, |parameters| parameters.stream_count());
        if let Ok(results) = TestResults::from_json(&object, streams) {
            let framed = iperf3_wire::encode_framed(&results.to_json());
            let again = iperf3_wire::decode_framed(&framed, iperf3_wire::MAX_RESULTS_BYTES);
            assert!(again.is_ok_and(|again| again.is_some()));
        }
    }
    let Some((&size, rest)) = data.split_first() else { return };
    let service = server("iperf3", ServerLimits::default());
    let mut reply = Vec::new();
    service.admit_sender(rest, "192.0.2.1:5", &mut reply);
    assert!(reply.is_empty(), "a filter without clients sends nothing");
    let cookie = Cookie::random();
    for input in [rest.to_vec(), [cookie.bytes(), rest].concat()] {
        let mut party = service.new_party(&Caps::STREAM, "192.0.2.1:5");
        connection(party.as_mut(), input.chunks(usize::from(size).max(1)));
    }
    for wide in [false, true] {
        let mut head = DatagramHeader::new(wide, SharedJitter::default());
        let _ = [0, 1, u64::MAX].map(|next| head.read(rest, next, Time(u64::MAX)));
    }
    // A client, at each point at which its session can continue differently.
    let parameters = Parameters::from_json(&asked()).expect("these are parameters");
    let (timeout, time) = (Duration::from_secs(1), Some(Duration::from_secs(1)));
    let plan = ClientPlan {
        parameters,
        framing: Framing::Stream,
        reply_timeout: timeout,
        max_time: time,
        max_bytes: None,
    };
    let mut chunks = rest.chunks(usize::from(size).max(1));
    let test = Arc::default();
    let mut client = ClientControl::new(&cookie, plan, Arc::clone(&test));
    connection(&mut client, chunks.by_ref());
    if client.open_streams(Box::new(|| Some(true))) {
        test.add_ready_stream();
        connection(&mut client, chunks);
    }
}

/// The default parameters of iperf3 3.12.
fn asked() -> serde_json::Map<String, serde_json::Value> {
    let asked = r#"{"tcp":true,"omit":0,"time":1,"num":0,"blockcount":0,"parallel":1,"len":131072}"#;
    serde_json::from_str(asked).expect("this is JSON")
}

/// Replies of a device: after two lines, the end as typed and the expected bytes, follow the bytes that the device
/// sends. The replies are the same whether the bytes are read at once or in chunks whose length the first byte gives.
pub fn ask(data: &[u8]) {
    let mut parts = data.splitn(3, |&byte| byte == b'\n');
    let (Some(end), Some(expect), Some(input)) = (parts.next(), parts.next(), parts.next()) else { return };
    let (end, expect) = (String::from_utf8_lossy(end), String::from_utf8_lossy(expect));
    let expect = PatternSearch::parse(&expect).ok();
    let ends = [
        LengthField::parse(&end).ok().map(ReplyEnd::LengthField),
        PatternSearch::parse(&end).ok().map(ReplyEnd::Terminator),
        end.parse().ok().filter(|bytes| (1..=MAX_REPLY_BYTES).contains(bytes)).map(ReplyEnd::FixedLength),
    ];
    let Some((&size, input)) = input.split_first() else { return };
    for end in ends.into_iter().flatten() {
        let whole = replies(ReplyScanner::new(end.clone(), expect.clone()), input.chunks(input.len().max(1)));
        let chunks = replies(ReplyScanner::new(end, expect.clone()), input.chunks(usize::from(size).max(1)));
        assert_eq!(whole, chunks);
    }
}

/// The end of each reply in these chunks, and the reply.
fn replies<'a>(
    mut reply: ReplyScanner,
    chunks: impl Iterator<Item = &'a [u8]>,
) -> Vec<(usize, &'static str)> {
    let (mut found, mut at) = (Vec::new(), 0);
    for mut chunk in chunks {
        while !chunk.is_empty() {
            let (used, what) = match reply.scan(chunk) {
                ScanResult::Incomplete => (chunk.len(), None),
                ScanResult::Complete { used, is_expected: true } => (used, Some("whole")),
                ScanResult::Complete { used, is_expected: false } => (used, Some("unexpected")),
                ScanResult::Malformed { used } => (used, Some("broken")),
            };
            assert!(used > 0, "a reply consumes bytes");
            (at, chunk) = (at + used, &chunk[used..]);
            found.extend(what.map(|what| (at, what)));
        }
    }
    found
}

/// The bytes of a network serial port client: whole, and in chunks whose length is the first byte.
pub fn rfc2217(data: &[u8]) {
    let Some((&size, input)) = data.split_first() else { return };
    let whole = served(input.chunks(input.len().max(1)));
    assert_eq!(whole, served(input.chunks(usize::from(size).max(1))));
    let (data, replies) = whole;
    assert!(data.len() <= input.len());
    // The greeting, the unrequested inputs, and for each request a reply of up to three times its length.
    assert!(replies.len() <= 15 + 8 + 3 * input.len(), "{} bytes of replies", replies.len());
}

/// The bytes for the line, and those for the client.
fn served<'a>(chunks: impl Iterator<Item = &'a [u8]>) -> (Vec<u8>, Vec<u8>) {
    let mut server = PortServer::new(SerialSettings::default(), "linkgauge");
    let (mut line, mut replies, mut port) = (Vec::new(), Vec::new(), Wired(SerialSettings::default()));
    server.write_greeting(&mut replies);
    for mut chunk in chunks {
        while !chunk.is_empty() {
            let mut data = Vec::new();
            let used =
                server.handle_bytes(chunk, &mut data, &mut replies, &mut port).expect("the port is there");
            assert!(used > 0, "something is taken");
            line.append(&mut data);
            chunk = &chunk[used..];
        }
    }
    (line, replies)
}

/// A serial port that takes everything.
struct Wired(SerialSettings);

impl PortControl for Wired {
    fn settings(&mut self) -> Result<SerialSettings, Fault> {
        Ok(self.0)
    }

    fn configure(&mut self, wanted: &SerialSettings) -> Result<SerialSettings, Fault> {
        self.0 = *wanted;
        Ok(self.0)
    }

    fn set_signal(&mut self, _signal: OutputSignal, _on: bool) -> Result<(), Fault> {
        Ok(())
    }

    fn modem_lines(&mut self) -> Option<ModemLines> {
        None
    }

    fn purge(&mut self, _purge: PurgeTarget) -> Result<(), Fault> {
        Ok(())
    }

    fn uart_errors(&mut self) -> Option<UartErrors> {
        None
    }
}

/// Messages of a LINX node over TCP, including those about names; and the same bytes as such a message. Parsed
/// messages encode to the same bytes.
pub fn linx(data: &[u8]) {
    if let Ok(message) = RlnhMessage::parse(data) {
        assert_eq!(RlnhMessage::parse(&message.encode()), Ok(message));
    }
    linx_over_ethernet(data);
    let (mut rest, mut out, mut input) = (data, Vec::new(), Vec::new());
    let mut connection = TcpConnection::new(ConnectionRole::Passive, Time(0), &mut out);
    let mut node = Node::default();
    while let Ok(Some((header, message))) = tcp_cm::split_first_frame(rest) {
        rest = &rest[tcp_cm::HEADER_BYTES + message.len()..];
        let received = match header.kind {
            FrameKind::Data => connection.note_data().map(|()| ControlOutcome::Nothing),
            kind => connection.handle_control(kind, Time(0), &mut out),
        };
        match received {
            Ok(ControlOutcome::Up) => node.start(&mut input),
            Ok(ControlOutcome::Nothing) if header.kind == FrameKind::Data && header.destination == 0 => {
                if node.handle_bytes(message, &mut input).is_err() {
                    return;
                }
            }
            Ok(ControlOutcome::Nothing) => {}
            Err(_) => return,
        }
    }
}

/// The same bytes as Ethernet frames, each after a byte with its length.
fn linx_over_ethernet(mut data: &[u8]) {
    let mut connection =
        ethernet::EthernetConnection::new(ConnectionRole::Passive, [[2; 6], [3; 6]], 1500, 1, Time(0));
    let mut messages = Vec::new();
    while let Some((&length, rest)) = data.split_first() {
        let (frame, rest) = rest.split_at(rest.len().min(length.into()));
        data = rest;
        connection.handle_frame(frame, Time(0), &mut |_, _| true);
        messages.clear();
        let _ = connection.take_messages(&mut messages, &mut |_, _| true);
        let mut left = &messages[..];
        while let Some((_, rest)) = ethernet::split_first_message(left) {
            left = rest;
        }
        assert!(left.is_empty());
    }
}

/// A run document from another source: read, its histograms decoded, written in every report format, and explained.
pub fn run_document(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let Ok(run) = Run::from_json(text) else { return };
    for case in &run.cases {
        let _ = report::decode_figures_histogram(&case.figures);
    }
    for format in REPORT_FORMATS {
        let written = (format.write)(&run, &ReportOptions::default(), &mut std::io::sink());
        assert!(written.is_ok(), "{}: only a sink may fail", format.name);
    }
    if let Ok(findings) = explain::explain(MODELS, &ModelInput::Run(&run), &DeclaredFacts::default()) {
        assert!(report::write_findings(&findings, &ReportOptions::default(), &mut std::io::sink()).is_ok());
    }
}

/// Bytes of radio links: a device's replies about its services, in chunks that each start with their length in one
/// byte; the messages of the bus; the kernel's messages about an interface and a connection; and the signal values of a controller.
pub fn radio(data: &[u8]) {
    let info = TcpInfo::from_bytes(data);
    assert!(info.counters().chain(info.gauges()).count() <= data.len());
    let handle = u16::from_le_bytes([data.get(7).copied().unwrap_or(0), data.get(8).copied().unwrap_or(0)]);
    let _ = hci::parse_rssi(data, handle);
    if let Ok(text) = str::from_utf8(data) {
        let mut words = text.split_whitespace();
        if let (Some(Ok(local)), Some(Ok(remote))) =
            (words.next().map(str::parse), words.next().map(str::parse))
        {
            let _ = hci::parse_credits(text, local, remote, 5);
        }
    }
    let (mut search, mut rest) = (ServiceSearch::new(SERIAL_PORT_UUID), data);
    while let Some((&size, input)) = rest.split_first() {
        let (reply, after) = input.split_at(usize::from(size).min(input.len()));
        if !matches!(search.handle_response(reply), Ok(SearchProgress::Continue)) {
            break;
        }
        assert!(search.request().len() < 100, "a question stays short");
        rest = after;
    }
    if let Some((_, used)) = bluez::DbusReply::parse(data) {
        assert!(used <= data.len());
    }
    for (_, body) in nl80211::messages(data) {
        let _ = (nl80211::RadioInterface::parse(body), nl80211::RadioStation::parse(body));
        let _ = (nl80211::parse_family(body), nl80211::parse_power_save(body));
    }
}

/// Messages of reflectors in a network and of the clients of ours: replies of ICMP; test packets of STAMP and TWAMP,
/// signed or not, with their extensions; packets of irtt; tests of udpst; messages of sockperf and lines of chargen, at once and in chunks whose length
/// the first byte gives. Our servers are idle after the last message.
pub fn reflectors(data: &[u8]) {
    let Some((&size, input)) = data.split_first() else { return };
    let size = usize::from(size).max(1);
    let families = [IpFamily::V4, IpFamily::V6];
    for (family, identifier) in families.into_iter().flat_map(|family| [(family, None), (family, Some(7))]) {
        let data = icmp::parse_reply(input, family, identifier).map_or(0, |(_, data)| data.len());
        assert!(data <= input.len());
    }
    for key in [None, Some(HmacKey::new(b"fuzz"))] {
        test_packets(input, key.as_ref());
    }
    let stream = |chunks: std::slice::Chunks<u8>| {
        let (mut replies, mut out) = (sockperf::ReplyBuilder::default(), Vec::new());
        let whole = chunks.into_iter().all(|chunk| replies.reply_to_stream(chunk, &mut out).is_some());
        (whole, out)
    };
    assert_eq!(stream(input.chunks(input.len().max(1))), stream(input.chunks(size)));
    let wrong = |chunks: std::slice::Chunks<u8>| -> u64 {
        let mut check = chargen::LineChecker::default();
        chunks.map(|chunk| check.count_wrong(chunk)).sum()
    };
    assert_eq!(wrong(input.chunks(input.len().max(1))), wrong(input.chunks(size)));

    let messages = Caps {
        framing: Framing::Message,
        max_message_bytes: Some(2000),
        can_signal_close: true,
        ..Caps::STREAM
    };
    servers::irtt(input);
    servers::udpst(input);
    for name in ["stamp", "twamp-light", "irtt", "sockperf", "udpst"] {
        for (token, caps) in [(None, &messages), (Some("fuzz".to_owned()), &messages), (None, &Caps::STREAM)]
        {
            let facts = ServerConfig { token, ..ServerConfig::default() };
            let service = Registry::standard()
                .protocol(name)
                .and_then(|peer| peer.serve)
                .expect("it can be served")(&Arc::new(facts));
            let mut reply = Vec::new();
            service.admit_sender(input, "192.0.2.1:40000", &mut reply);
            let most = input.len() + service.max_reply_growth_bytes();
            assert!(reply.len() <= most, "a filter sends no more than it received and a token");
            connection(service.new_party(caps, "192.0.2.1:40000").as_mut(), input.chunks(size));
        }
    }
}

/// Parsed packets encode to the same bytes; extensions keep their length.
fn test_packets(input: &[u8], key: Option<&HmacKey>) {
    let base = if key.is_some() { AUTHENTICATED_BYTES } else { UNAUTHENTICATED_BYTES };
    let mut written = vec![0; base];
    if let Some(request) = Test::read(input, key) {
        request.write(&mut written, key);
        assert_eq!(Test::read(&written, key), Some(Test { ..request }));
    }
    if let Some(reply) = Reflected::read(input, key) {
        let _ = reply.times();
        reply.write(&mut written, key);
        assert_eq!(Reflected::read(&written, key), Some(reply));
    }
    let mut extensions = input.to_vec();
    tlv::write_reply(&mut extensions, Some(&tlv::SessionCounts::default()), key);
    assert_eq!(extensions.len(), input.len());
}

/// A result of another program: a line with the name of its format, then the file. The parsed run is valid, and every
/// report can be written.
pub fn import(data: &[u8]) {
    let Some(end) = data.iter().position(|&byte| byte == b'\n') else { return };
    let Some(format) = str::from_utf8(&data[..end]).ok().and_then(import_format) else { return };
    let about = ImportOptions {
        file_name: "file".to_owned(),
        unit: Some(TimeUnit::Milliseconds),
        lost_marker: Some("999".to_owned()),
        late_limits: vec![Duration::from_millis(50)],
        ..ImportOptions::default()
    };
    let Ok(run) = import::read(format, &mut &data[end + 1..], &about) else { return };
    let mut json = Vec::new();
    for format in REPORT_FORMATS {
        (format.write)(&run, &ReportOptions::default(), &mut json).expect("memory takes everything");
        if format.name == "json" {
            let text = str::from_utf8(&json).expect("JSON is text");
            assert_eq!(Run::from_json(text).expect("it reads back").cases.len(), run.cases.len());
        }
        json.clear();
    }
}
