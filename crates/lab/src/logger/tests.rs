//! The whole logger on the virtual clock: its replies and their exact times.

use std::time::Duration;

use super::*;
use linkgauge_engine::Registry;
use linkgauge_engine::link::{Fault, Link};
use linkgauge_engine::protocol::pakbus::frame::{self, FrameDecoder};
use linkgauge_engine::protocol::pakbus::message::{
    FetchRequest, HelloFields, LoggerCommand, RecordRange, RecordSelection, ReplyCode, StoreRequest,
};
use linkgauge_engine::protocol::pakbus::packet::{BMP5, Hop, LinkState, PacketRoute, PakBusPacket};
use linkgauge_engine::protocol::pakbus::record::{self, BlockContent};
use linkgauge_engine::protocol::pakbus::reply::{FailureCode, LoggerReply};
use linkgauge_engine::protocol::pakbus::{BROADCAST_ADDRESS, directory, table};
use linkgauge_model::clock::Time;

/// Bytes as hexadecimal digits, spaces anywhere.
fn parse_hex(digits: &str) -> Vec<u8> {
    let digits: String = digits.split_whitespace().collect();
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

/// Longer than any reply takes here, and shorter than the idle timeout of a connection.
const LONG_WAIT: Duration = Duration::from_secs(300);
const MILLISECOND: Duration = Duration::from_millis(1);

/// The address of the client.
const CLIENT_ADDRESS: u16 = 4094;

/// A logger and its client.
struct LoggerFixture {
    logger: Logger,
    dialer: Dialer,
    link: Box<dyn Link>,
    decoder: FrameDecoder,
    unread: Vec<u8>,
}

impl LoggerFixture {
    /// Starts a logger with one file and one table.
    pub fn new(device: LoggerConfig) -> LoggerFixture {
        let dialer = Registry::standard().dialer(Clock::new_virtual());
        let device = LoggerConfig {
            files: vec![("CPU:a.bin".to_owned(), generate_content(1, 2000))],
            tables: vec!["Bench:10s:Seq=Int4,Temp=FP2:90".parse().unwrap()],
            ..device
        };
        let listen: Vec<Endpoint> = vec!["mem://logger".parse().unwrap()];
        let options = LoggerOptions { listen, serial_lines: Vec::new(), config: device };
        let clock = LoggerTime { seconds: 1000, nanoseconds: 0 };
        let logger = Logger::start_with(&options, clock, dialer.clone()).unwrap();
        let link = dialer.open(&options.listen[0]).unwrap();
        LoggerFixture { logger, dialer, link, decoder: FrameDecoder::default(), unread: Vec::new() }
    }

    fn write(&mut self, bytes: &[u8]) {
        assert_eq!(self.link.send(bytes, LONG_WAIT).unwrap(), bytes.len());
    }

    fn send(&mut self, transaction: u8, command: &LoggerCommand) {
        self.send_to(1, transaction, command);
    }

    fn send_to(&mut self, to: u16, transaction: u8, command: &LoggerCommand) {
        let (protocol, message) = command.write(transaction);
        self.send_message(to, protocol, &message);
    }

    fn send_message(&mut self, to: u16, protocol: u8, message: &[u8]) {
        let hop = Hop { state: LinkState::READY, to, from: CLIENT_ADDRESS, expect_more: 1, priority: 1 };
        let route = PacketRoute { protocol, to, from: CLIENT_ADDRESS, hops: 0 };
        let mut bytes = Vec::new();
        frame::write(&PakBusPacket { hop, message: Some((route, message)) }.write(), &mut bytes);
        self.write(&bytes);
    }

    /// The next packet and its time; `None` if none arrives.
    fn packet(&mut self) -> Option<(Vec<u8>, Time)> {
        loop {
            let (used, packet) = self.decoder.read(&self.unread);
            let packet = packet.map(<[u8]>::to_vec);
            self.unread.drain(..used);
            if let Some(packet) = packet {
                return Some((packet, self.dialer.now()));
            }
            let mut bytes = [0; 2000];
            let length = self.link.receive(&mut bytes, LONG_WAIT).ok()?;
            self.unread.extend(&bytes[..length]);
        }
    }

    /// The next reply, its transaction number, and its time.
    fn reply(&mut self) -> (u8, LoggerReply, Time) {
        let (bytes, at) = self.packet().expect("a reply");
        let packet = PakBusPacket::read(&bytes).unwrap();
        let (route, message) = packet.message.expect("a message");
        assert_eq!((packet.hop.state, packet.hop.from, packet.hop.to), (LinkState::READY, 1, CLIENT_ADDRESS));
        assert_eq!((route.from, route.to, route.hops), (1, CLIENT_ADDRESS, 0));
        let (transaction, reply) = LoggerReply::read(route.protocol, message).unwrap();
        (transaction, reply, at)
    }

    /// Sends a command and returns the reply.
    fn ask(&mut self, command: &LoggerCommand) -> LoggerReply {
        self.send(7, command);
        let (transaction, reply, _) = self.reply();
        assert_eq!(transaction, 7);
        reply
    }

    fn definitions(&mut self) -> Vec<table::TableDefinition> {
        let LoggerReply::Fetch { code: ReplyCode::COMPLETE, data, .. } =
            self.ask(&fetch_command(".TDF", 0, 991))
        else {
            panic!()
        };
        table::read(&data).unwrap()
    }

    fn collect(&mut self, transaction: u8, span: RecordRange, definitions: &[table::TableDefinition]) {
        let selection =
            RecordSelection { table: 2, signature: definitions[1].signature(), span, fields: Vec::new() };
        self.send(
            transaction,
            &LoggerCommand::Collect { security: 0, mode: span.mode(), selections: vec![selection] },
        );
    }
}

fn fetch_command(name: &str, offset: u32, swath: u16) -> LoggerCommand {
    LoggerCommand::Fetch(FetchRequest { security: 0, name: name.to_owned(), is_last: false, offset, swath })
}

fn store_command(offset: u32, data: &[u8], close: bool) -> LoggerCommand {
    LoggerCommand::Store(StoreRequest {
        security: 0,
        name: "CPU:new".to_owned(),
        is_last: close,
        offset,
        data: data.to_vec(),
    })
}

fn clock_command(adjustment: i32) -> LoggerCommand {
    LoggerCommand::Clock { security: 0, adjustment: LoggerTime { seconds: adjustment, nanoseconds: 0 } }
}

fn slow_logger(processing: Duration) -> LoggerConfig {
    LoggerConfig { command_time: processing, ..LoggerConfig::default() }
}

#[test]
fn link_states_and_messages_get_replies_of_their_kind() {
    let mut fixture = LoggerFixture::new(LoggerConfig::default());
    for (sent, expected) in
        [("BD BD BD BD BD BD 90010FFE 71D2 BD", "AFFE0001"), ("BD B0010FFE D353 BD", "8FFE0001")]
    {
        fixture.write(&parse_hex(sent));
        assert_eq!(fixture.packet().unwrap().0, parse_hex(expected));
    }
    let hello = LoggerCommand::Hello(HelloFields { is_router: true, metric: 3, verify: 300 });
    assert_eq!(
        fixture.ask(&hello),
        LoggerReply::Hello(HelloFields { is_router: false, metric: 3, verify: 300 })
    );
    // One known client sends a ring in front of a message. The logger sends only the reply.
    fixture.write(&parse_hex("BD 9001580200010802 0901 00020708 F686 BD"));
    let mut reply = Vec::new();
    frame::write(&fixture.packet().unwrap().0, &mut reply);
    let captured = parse_hex("BD A802100108020001 8901 00020708 2456 BD");
    // Only the priority differs.
    assert_eq!(reply, captured);
    assert!(fixture.packet().is_none());
}

#[test]
fn packets_for_other_addresses_are_ignored() {
    let mut fixture = LoggerFixture::new(LoggerConfig::default());
    fixture.send_to(2, 1, &clock_command(0));
    fixture.send_to(BROADCAST_ADDRESS, 1, &clock_command(0));
    fixture.send(0, &LoggerCommand::Bye);
    // A failure message and a reply.
    fixture.send_message(1, 0, &parse_hex("8100 04 1001 0FFE 1701"));
    fixture.send_message(1, BMP5, &parse_hex("9701 00"));
    fixture.write(&parse_hex("BD FF FF BD 01 02 03 04 05 06 07 BD"));
    assert!(fixture.packet().is_none());
    assert_eq!(fixture.logger.counters(), LoggerCounters { damaged: 2, ..LoggerCounters::default() });
    fixture.send_to(BROADCAST_ADDRESS, 0, &LoggerCommand::HelloRequest);
    let (packet, _) = fixture.packet().unwrap();
    let (route, message) = PakBusPacket::read(&packet).unwrap().message.unwrap();
    assert!(matches!(LoggerCommand::read(route.protocol, message), Ok((_, LoggerCommand::Hello(_)))));
    assert_eq!((route.from, route.to), (1, CLIENT_ADDRESS));
}

#[test]
fn unknown_messages_are_refused_with_a_reason() {
    let mut fixture = LoggerFixture::new(LoggerConfig::default());
    for (protocol, message, why) in [
        (BMP5, "1B01 0000", FailureCode::NO_SUCH_COMMAND),
        (0, "0501", FailureCode::NO_SUCH_COMMAND),
        (2, "0901", FailureCode::NO_SUCH_PROTOCOL),
        (BMP5, "1701 00", FailureCode::MALFORMED),
    ] {
        fixture.send_message(1, protocol, &parse_hex(message));
        let (transaction, LoggerReply::Failure(failure), _) = fixture.reply() else { panic!() };
        assert_eq!((transaction, failure.code, failure.message), (0, why, parse_hex(message)));
    }
}

#[test]
fn a_file_comes_in_chunks_that_fit_a_packet() {
    for (max_packet, swath, chunk) in
        [(1000, 991, 991), (1000, 65_535, 991), (1000, 512, 512), (200, 512, 191)]
    {
        let mut fixture =
            LoggerFixture::new(LoggerConfig { max_packet_bytes: max_packet, ..LoggerConfig::default() });
        let mut file = Vec::<u8>::new();
        loop {
            let LoggerReply::Fetch { code: ReplyCode::COMPLETE, offset, data } =
                fixture.ask(&fetch_command("CPU:a.bin", file.len() as u32, swath))
            else {
                panic!()
            };
            assert_eq!(offset as usize, file.len());
            assert!(data.len() == chunk || data.len() == (2000 - file.len()) % chunk);
            file.extend(&data);
            if data.is_empty() {
                break;
            }
        }
        assert_eq!(file, generate_content(1, 2000));
    }
    let mut fixture = LoggerFixture::new(LoggerConfig::default());
    assert_eq!(
        fixture.ask(&fetch_command("CPU:b", 5, 512)),
        LoggerReply::Fetch { code: ReplyCode::BAD_NAME, offset: 5, data: Vec::new() }
    );
}

#[test]
fn stored_files_can_be_fetched_and_deleted() {
    let mut fixture = LoggerFixture::new(LoggerConfig::default());
    let done = |offset| LoggerReply::Store { code: ReplyCode::COMPLETE, offset };
    assert_eq!(fixture.ask(&store_command(0, b"one", false)), done(0));
    assert_eq!(fixture.ask(&store_command(3, b"two", true)), done(3));
    assert_eq!(fixture.ask(&store_command(3, b"two", true)), done(3), "the reply was lost");
    assert_eq!(fixture.logger.counters().repeated, 1);
    let LoggerReply::Fetch { data, .. } = fixture.ask(&fetch_command("CPU:new", 0, 512)) else { panic!() };
    assert_eq!(data, b"onetwo");
    let LoggerReply::Fetch { data, .. } = fixture.ask(&fetch_command(".DIR", 0, 512)) else { panic!() };
    let names: Vec<_> = directory::read(&data).unwrap().into_iter().map(|entry| entry.name).collect();
    assert_eq!(names, ["CPU:", "CPU:a.bin", "CPU:new"]);
    let control = |action| LoggerCommand::Control { security: 0, name: "CPU:new".to_owned(), action };
    let code = |code| LoggerReply::Control { code, hold_off: 0 };
    assert_eq!(fixture.ask(&control(1)), code(ReplyCode::UNSUPPORTED));
    assert_eq!(fixture.ask(&control(4)), code(ReplyCode::COMPLETE));
    assert_eq!(fixture.ask(&control(4)), code(ReplyCode::COMPLETE), "the same command again");
    fixture.send(8, &control(4));
    assert_eq!(fixture.reply().1, code(ReplyCode::BAD_NAME), "another command");
    assert_eq!(fixture.ask(&store_command(0, b"again", true)), done(0));
    fixture.send(8, &control(4));
    assert_eq!(fixture.reply().1, code(ReplyCode::COMPLETE), "what failed is tried again");
}

#[test]
fn repeated_clock_command_moves_the_clock_once() {
    let mut fixture = LoggerFixture::new(slow_logger(MILLISECOND));
    let clock_ns = |reply| match reply {
        LoggerReply::Clock(Ok(instant)) => instant.as_nanoseconds(),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        clock_ns(fixture.ask(&clock_command(0))),
        1_000_001_000_000,
        "when it is read, not when it is asked"
    );
    assert_eq!(clock_ns(fixture.ask(&clock_command(50))), 1_000_002_000_000, "as it was before");
    assert_eq!(clock_ns(fixture.ask(&clock_command(50))), 1_000_002_000_000, "the same reply");
    assert_eq!(clock_ns(fixture.ask(&clock_command(0))), 1_050_004_000_000);
}

#[test]
fn settings_and_program_are_reported() {
    let mut fixture =
        LoggerFixture::new(LoggerConfig { address: 1, max_packet_bytes: 998, ..LoggerConfig::default() });
    let get = |range| LoggerCommand::Settings { security: 0, range };
    let LoggerReply::Settings(Ok(settings)) = fixture.ask(&get(Some((49, 49)))) else { panic!() };
    assert_eq!(settings.settings.len(), 1);
    assert_eq!(settings.settings[0].value, [3, 0xE6]);
    let LoggerReply::Settings(Ok(settings)) = fixture.ask(&get(None)) else { panic!() };
    assert_eq!(settings.settings.iter().map(|setting| setting.id).collect::<Vec<_>>(), [0, 1, 2, 3, 49]);
    let LoggerReply::Program(Ok(program)) = fixture.ask(&LoggerCommand::Program { security: 0 }) else {
        panic!()
    };
    assert!(program.result.contains("emulated"));
}

#[test]
fn wrong_security_code_is_denied() {
    let mut fixture = LoggerFixture::new(LoggerConfig { security_code: 77, ..LoggerConfig::default() });
    let security = 76;
    let denied = [
        (LoggerCommand::Settings { security, range: None }, LoggerReply::Settings(Err(2))),
        (clock_command(1), LoggerReply::Clock(Err(ReplyCode::DENIED))),
        (LoggerCommand::Program { security }, LoggerReply::Program(Err(ReplyCode::DENIED))),
        (
            fetch_command(".DIR", 9, 9),
            LoggerReply::Fetch { code: ReplyCode::DENIED, offset: 9, data: Vec::new() },
        ),
        (store_command(0, b"x", true), LoggerReply::Store { code: ReplyCode::DENIED, offset: 0 }),
        (
            LoggerCommand::Control { security, name: "CPU:a.bin".to_owned(), action: 4 },
            LoggerReply::Control { code: ReplyCode::DENIED, hold_off: 0 },
        ),
        (
            LoggerCommand::Collect { security, mode: 3, selections: Vec::new() },
            LoggerReply::Collect(Err(ReplyCode::DENIED)),
        ),
        (
            LoggerCommand::Values { security, table: "Bench".into(), kind: 6, field: "Seq".into(), count: 1 },
            LoggerReply::Values(Err(ReplyCode::DENIED)),
        ),
    ];
    for (command, reply) in denied {
        assert_eq!(fixture.ask(&command), reply, "{command:?}");
    }
    let hello = HelloFields { is_router: false, metric: 2, verify: 300 };
    assert_eq!(fixture.ask(&LoggerCommand::Hello(hello)), LoggerReply::Hello(hello), "greetings are free");
    let right = LoggerCommand::Clock { security: 77, adjustment: LoggerTime::default() };
    assert!(matches!(fixture.ask(&right), LoggerReply::Clock(Ok(_))));
}

#[test]
fn a_table_grows_while_it_is_collected() {
    let mut fixture = LoggerFixture::new(LoggerConfig::default());
    let definitions = fixture.definitions();
    let mut next = 85;
    // Two records are added in these 25 s.
    for (wait, expected) in [(0, 85..91), (25, 91..93)] {
        fixture.dialer.clock.sleep_until(fixture.dialer.now() + Duration::from_secs(wait));
        fixture.collect(3, RecordRange::From(next), &definitions);
        let (3, LoggerReply::Collect(Ok(body)), _) = fixture.reply() else { panic!() };
        let (blocks, more) = record::read(&definitions, &body).unwrap();
        let BlockContent::Records(records) = &blocks[0].content else { panic!() };
        assert!(records.iter().map(|record| record.number).eq(expected.clone()));
        assert!(!more);
        next = expected.end;
    }
    let values =
        LoggerCommand::Values { security: 0, table: "Bench".into(), kind: 6, field: "Seq".into(), count: 1 };
    assert_eq!(fixture.ask(&values), LoggerReply::Values(Ok(vec![0, 0, 0, 92])));
}

#[test]
fn commands_are_executed_in_order() {
    let mut fixture = LoggerFixture::new(slow_logger(10 * MILLISECOND));
    let began = fixture.dialer.now();
    for transaction in 1..=3 {
        fixture.send(transaction, &fetch_command("CPU:a.bin", 0, 100));
    }
    let hello = HelloFields { is_router: false, metric: 2, verify: 300 };
    fixture.send(9, &LoggerCommand::Hello(hello));
    assert_eq!(fixture.reply(), (9, LoggerReply::Hello(hello), began), "a greeting needs no processor");
    for transaction in 1..=3u8 {
        let (replied, _, at) = fixture.reply();
        assert_eq!((replied, at), (transaction, began + 10 * MILLISECOND * transaction.into()));
    }
}

#[test]
fn a_full_queue_refuses_or_drops() {
    let mut fixture = LoggerFixture::new(LoggerConfig { queue_commands: 2, ..slow_logger(MILLISECOND) });
    let send_three = |fixture: &mut LoggerFixture| {
        (1..=3).for_each(|transaction| fixture.send(transaction, &clock_command(0)))
    };
    send_three(&mut fixture);
    let (_, LoggerReply::Failure(failure), _) = fixture.reply() else { panic!() };
    assert_eq!((failure.code, failure.command()), (FailureCode::OVERFLOW, Some((0x17, 3))));
    assert_eq!([fixture.reply().0, fixture.reply().0], [1, 2]);
    assert_eq!(
        fixture.logger.counters(),
        LoggerCounters { replies: 2, overflowed: 1, ..LoggerCounters::default() }
    );

    let mut fixture = LoggerFixture::new(LoggerConfig {
        queue_commands: 2,
        full_queue_policy: FullQueuePolicy::Drop,
        ..slow_logger(MILLISECOND)
    });
    send_three(&mut fixture);
    assert_eq!([fixture.reply().0, fixture.reply().0], [1, 2]);
    assert!(fixture.packet().is_none());
}

#[test]
fn long_waits_are_announced_repeatedly() {
    let mut fixture = LoggerFixture::new(slow_logger(Duration::from_secs(40)));
    let began = fixture.dialer.now();
    fixture.send(5, &clock_command(0));
    for (at, seconds) in [(1, 30), (30, 10)] {
        let wait = LoggerReply::PleaseWait { command: 0x17, seconds };
        assert_eq!(fixture.reply(), (5, wait, began + Duration::from_secs(at)));
    }
    let (5, LoggerReply::Clock(Ok(_)), at) = fixture.reply() else { panic!() };
    assert_eq!(at, began + Duration::from_secs(40));
}

#[test]
fn records_are_skipped_under_load_only_on_request() {
    let skipping = LoggerConfig { skip_records: true, ..slow_logger(MILLISECOND) };
    for (device, expected) in [(skipping, [1, 2]), (slow_logger(MILLISECOND), [1, 1])] {
        let mut fixture = LoggerFixture::new(device);
        let definitions = fixture.definitions();
        let firsts: Vec<u32> = {
            fixture.collect(1, RecordRange::All, &definitions);
            fixture.collect(2, RecordRange::All, &definitions);
            (0..2)
                .map(|_| {
                    let (_, LoggerReply::Collect(Ok(body)), _) = fixture.reply() else { panic!() };
                    record::read(&definitions, &body).unwrap().0[0].first_record
                })
                .collect()
        };
        assert_eq!(firsts, expected);
        assert_eq!(fixture.logger.counters().skipped, u64::from(expected[1] == 2));
    }
}

#[test]
fn client_that_closes_still_gets_replies() {
    let mut fixture = LoggerFixture::new(slow_logger(MILLISECOND));
    fixture.send(1, &clock_command(0));
    fixture.link.finish_sending().unwrap();
    assert_eq!(fixture.reply().0, 1);
    assert!(fixture.packet().is_none());
}

#[test]
fn idle_client_is_disconnected() {
    let mut fixture = LoggerFixture::new(LoggerConfig::default());
    assert!(matches!(fixture.link.receive(&mut [0], 3 * LONG_WAIT), Err(Fault::Closed)));
    assert_eq!(fixture.dialer.now(), Time(0) + 2 * LONG_WAIT);
}

#[test]
fn invalid_configurations_are_refused() {
    let error = |device: LoggerConfig| device.check().unwrap_err().to_string();
    let device = LoggerConfig::default;
    insta::assert_snapshot!([
        error(LoggerConfig { address: 4095, ..device() }),
        error(LoggerConfig { queue_commands: 0, ..device() }),
        error(LoggerConfig { max_packet_bytes: 16, ..device() }),
        error(slow_logger(LONG_WAIT)),
        error(LoggerConfig { files: vec![("a.bin".to_owned(), Vec::new())], ..device() }),
        error(LoggerConfig { files: vec![("CPU:a".to_owned(), Vec::new()), ("CPU:a".to_owned(), Vec::new())], ..device() }),
        error(LoggerConfig { tables: ["A:1s:B=FP2", "A:2s:C=FP2"].map(|text| text.parse().unwrap()).to_vec(), ..device() }),
    ].join("\n"), @"
    address 4095: use 1 to 4094
    a queue of 0: use 1 to 255
    packets of 16 bytes: use 200 to 1000
    a command cannot take longer than a minute
    'a.bin' is not a file of a logger. Write CPU:name, at most 64 letters
    file 'CPU:a' is given twice
    table 'A' is given twice
    ");
    let listen = vec!["udp://127.0.0.1".parse().unwrap()];
    let refused = Logger::start(&LoggerOptions { listen, ..LoggerOptions::default() }).err().unwrap();
    assert_eq!(refused.to_string(), "udp://127.0.0.1: a logger needs a stream, like TCP");
}

#[test]
fn silent_client_is_greeted_after_waking_the_logger() {
    let mut fixture = LoggerFixture::new(LoggerConfig::default());
    let began = fixture.dialer.now();
    fixture.write(&[frame::SYNC_BYTE; 6]);
    let (packet, at) = fixture.packet().unwrap();
    assert_eq!(at.since(began), Duration::from_millis(100));
    let packet = PakBusPacket::read(&packet).unwrap();
    let (route, message) = packet.message.unwrap();
    assert_eq!((packet.hop.to, route.to, route.from), (BROADCAST_ADDRESS, BROADCAST_ADDRESS, 1));
    assert!(matches!(LoggerCommand::read(route.protocol, message), Ok((0, LoggerCommand::Hello(_)))));
    assert!(fixture.packet().is_none(), "greeted twice");
}

#[test]
fn client_that_sends_a_request_is_not_greeted() {
    let mut fixture = LoggerFixture::new(LoggerConfig::default());
    for syncs in [6, 25] {
        fixture.write(&vec![frame::SYNC_BYTE; syncs]);
        fixture.send(7, &LoggerCommand::Hello(HelloFields { is_router: false, metric: 2, verify: 1800 }));
        let (packet, _) = fixture.packet().unwrap();
        let (route, message) = PakBusPacket::read(&packet).unwrap().message.unwrap();
        assert_eq!((route.to, LoggerReply::read(route.protocol, message).unwrap().0), (CLIENT_ADDRESS, 7));
        assert!(fixture.packet().is_none(), "greeted after {syncs}");
    }
    // One sync byte too few does not wake the logger.
    fixture.write(&[frame::SYNC_BYTE; 5]);
    assert!(fixture.packet().is_none());
}
