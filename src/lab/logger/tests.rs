//! The whole logger on the virtual clock: what it answers, and exactly when.

use std::time::Duration;

use super::*;
use crate::clock::Time;
use crate::peer::pakbus::frame::{self, Decoder};
use crate::peer::pakbus::message::{Code, Command, Fetch, Hello, Selection, Span, Store};
use crate::peer::pakbus::packet::{BMP5, Hop, LinkState, Packet, Route};
use crate::peer::pakbus::record::{self, Content};
use crate::peer::pakbus::reply::{Reply, Why};
use crate::peer::pakbus::{BROADCAST, directory, hex, table};

/// Longer than any answer here takes, and shorter than a connection may be idle.
const LONG: Duration = Duration::from_secs(300);
const MILLISECOND: Duration = Duration::from_millis(1);

/// The address of the client.
const CLIENT: u16 = 4094;

/// A logger and a client of it.
struct Bench {
    logger: Logger,
    dialer: Dialer,
    link: Box<dyn Link>,
    decoder: Decoder,
    unread: Vec<u8>,
}

impl Bench {
    /// With one file and one table.
    fn new(device: Device) -> Bench {
        let dialer = Dialer::new(Clock::new_virtual());
        let device = Device {
            files: vec![("CPU:a.bin".to_owned(), content(1, 2000))],
            tables: vec!["Bench:10s:Seq=Int4,Temp=FP2:90".parse().unwrap()],
            ..device
        };
        let listen: Vec<Endpoint> = vec!["mem://logger".parse().unwrap()];
        let options = Options { listen, lines: Vec::new(), device };
        let clock = Instant { seconds: 1000, nanoseconds: 0 };
        let logger = Logger::with(&options, clock, dialer.clone()).unwrap();
        let link = dialer.open(&options.listen[0]).unwrap();
        Bench { logger, dialer, link, decoder: Decoder::default(), unread: Vec::new() }
    }

    fn write(&mut self, bytes: &[u8]) {
        assert_eq!(self.link.send(bytes, LONG).unwrap(), bytes.len());
    }

    fn send(&mut self, transaction: u8, command: &Command) {
        self.send_to(1, transaction, command);
    }

    fn send_to(&mut self, to: u16, transaction: u8, command: &Command) {
        let (protocol, message) = command.write(transaction);
        self.send_message(to, protocol, &message);
    }

    fn send_message(&mut self, to: u16, protocol: u8, message: &[u8]) {
        let hop = Hop { state: LinkState::READY, to, from: CLIENT, expect_more: 1, priority: 1 };
        let route = Route { protocol, to, from: CLIENT, hops: 0 };
        let mut bytes = Vec::new();
        frame::write(&Packet { hop, message: Some((route, message)) }.write(), &mut bytes);
        self.write(&bytes);
    }

    /// The next packet and when it came; `None` if none comes.
    fn packet(&mut self) -> Option<(Vec<u8>, Time)> {
        loop {
            let (used, packet) = self.decoder.read(&self.unread);
            let packet = packet.map(<[u8]>::to_vec);
            self.unread.drain(..used);
            if let Some(packet) = packet {
                return Some((packet, self.dialer.now()));
            }
            let mut bytes = [0; 2000];
            let length = self.link.receive(&mut bytes, LONG).ok()?;
            self.unread.extend(&bytes[..length]);
        }
    }

    /// The next reply, its transaction number, and when it came.
    fn reply(&mut self) -> (u8, Reply, Time) {
        let (bytes, at) = self.packet().expect("a reply");
        let packet = Packet::read(&bytes).unwrap();
        let (route, message) = packet.message.expect("a message");
        assert_eq!((packet.hop.state, packet.hop.from, packet.hop.to), (LinkState::READY, 1, CLIENT));
        assert_eq!((route.from, route.to, route.hops), (1, CLIENT, 0));
        let (transaction, reply) = Reply::read(route.protocol, message).unwrap();
        (transaction, reply, at)
    }

    /// The answer to a command.
    fn ask(&mut self, command: &Command) -> Reply {
        self.send(7, command);
        let (transaction, reply, _) = self.reply();
        assert_eq!(transaction, 7);
        reply
    }

    fn definitions(&mut self) -> Vec<table::Table> {
        let Reply::Fetch { code: Code::COMPLETE, data, .. } = self.ask(&fetch(".TDF", 0, 991)) else {
            panic!()
        };
        table::read(&data).unwrap()
    }

    fn collect(&mut self, transaction: u8, span: Span, definitions: &[table::Table]) {
        let selection =
            Selection { table: 2, signature: definitions[1].signature(), span, fields: Vec::new() };
        self.send(
            transaction,
            &Command::Collect { security: 0, mode: span.mode(), selections: vec![selection] },
        );
    }
}

fn fetch(name: &str, offset: u32, swath: u16) -> Command {
    Command::Fetch(Fetch { security: 0, name: name.to_owned(), close: false, offset, swath })
}

fn store(offset: u32, data: &[u8], close: bool) -> Command {
    Command::Store(Store { security: 0, name: "CPU:new".to_owned(), close, offset, data: data.to_vec() })
}

fn clock(adjustment: i32) -> Command {
    Command::Clock { security: 0, adjustment: Instant { seconds: adjustment, nanoseconds: 0 } }
}

fn slow(processing: Duration) -> Device {
    Device { processing, ..Device::default() }
}

#[test]
fn states_are_answered_with_states_and_messages_with_messages() {
    let mut bench = Bench::new(Device::default());
    for (said, answered) in
        [("BD BD BD BD BD BD 90010FFE 71D2 BD", "AFFE0001"), ("BD B0010FFE D353 BD", "8FFE0001")]
    {
        bench.write(&hex(said));
        assert_eq!(bench.packet().unwrap().0, hex(answered));
    }
    let hello = Command::Hello(Hello { router: true, metric: 3, verify: 300 });
    assert_eq!(bench.ask(&hello), Reply::Hello(Hello { router: false, metric: 3, verify: 300 }));
    // A ring in front of a message, as one known client sends it: nothing but the answer comes.
    bench.write(&hex("BD 9001580200010802 0901 00020708 F686 BD"));
    let mut answer = Vec::new();
    frame::write(&bench.packet().unwrap().0, &mut answer);
    let as_taken = hex("BD A802100108020001 8901 00020708 2456 BD");
    // Only the priority is ours.
    assert_eq!(answer, as_taken);
    assert!(bench.packet().is_none());
}

#[test]
fn only_what_is_meant_for_the_logger_is_answered() {
    let mut bench = Bench::new(Device::default());
    bench.send_to(2, 1, &clock(0));
    bench.send_to(BROADCAST, 1, &clock(0));
    bench.send(0, &Command::Bye);
    // A failure and an answer.
    bench.send_message(1, 0, &hex("8100 04 1001 0FFE 1701"));
    bench.send_message(1, BMP5, &hex("9701 00"));
    bench.write(&hex("BD FF FF BD 01 02 03 04 05 06 07 BD"));
    assert!(bench.packet().is_none());
    assert_eq!(bench.logger.counters(), Counters { damaged: 2, ..Counters::default() });
    bench.send_to(BROADCAST, 0, &Command::HelloRequest);
    let (packet, _) = bench.packet().unwrap();
    let (route, message) = Packet::read(&packet).unwrap().message.unwrap();
    assert!(matches!(Command::read(route.protocol, message), Ok((_, Command::Hello(_)))));
    assert_eq!((route.from, route.to), (1, CLIENT));
}

#[test]
fn what_is_not_understood_is_refused_with_its_reason() {
    let mut bench = Bench::new(Device::default());
    for (protocol, message, why) in [
        (BMP5, "1B01 0000", Why::NO_SUCH_COMMAND),
        (0, "0501", Why::NO_SUCH_COMMAND),
        (2, "0901", Why::NO_SUCH_PROTOCOL),
        (BMP5, "1701 00", Why::MALFORMED),
    ] {
        bench.send_message(1, protocol, &hex(message));
        let (transaction, Reply::Failure(failure), _) = bench.reply() else { panic!() };
        assert_eq!((transaction, failure.why, failure.message), (0, why, hex(message)));
    }
}

#[test]
fn a_file_comes_in_chunks_that_fit_a_packet() {
    for (max_packet, swath, chunk) in
        [(1000, 991, 991), (1000, 65_535, 991), (1000, 512, 512), (200, 512, 191)]
    {
        let mut bench = Bench::new(Device { max_packet, ..Device::default() });
        let mut file = Vec::<u8>::new();
        loop {
            let Reply::Fetch { code: Code::COMPLETE, offset, data } =
                bench.ask(&fetch("CPU:a.bin", file.len() as u32, swath))
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
        assert_eq!(file, content(1, 2000));
    }
    let mut bench = Bench::new(Device::default());
    assert_eq!(
        bench.ask(&fetch("CPU:b", 5, 512)),
        Reply::Fetch { code: Code::BAD_NAME, offset: 5, data: Vec::new() }
    );
}

#[test]
fn what_is_stored_can_be_fetched_and_deleted() {
    let mut bench = Bench::new(Device::default());
    let done = |offset| Reply::Store { code: Code::COMPLETE, offset };
    assert_eq!(bench.ask(&store(0, b"one", false)), done(0));
    assert_eq!(bench.ask(&store(3, b"two", true)), done(3));
    assert_eq!(bench.ask(&store(3, b"two", true)), done(3), "the answer was lost");
    assert_eq!(bench.logger.counters().repeated, 1);
    let Reply::Fetch { data, .. } = bench.ask(&fetch("CPU:new", 0, 512)) else { panic!() };
    assert_eq!(data, b"onetwo");
    let Reply::Fetch { data, .. } = bench.ask(&fetch(".DIR", 0, 512)) else { panic!() };
    let names: Vec<_> = directory::read(&data).unwrap().into_iter().map(|entry| entry.name).collect();
    assert_eq!(names, ["CPU:", "CPU:a.bin", "CPU:new"]);
    let control = |action| Command::Control { security: 0, name: "CPU:new".to_owned(), action };
    let code = |code| Reply::Control { code, hold_off: 0 };
    assert_eq!(bench.ask(&control(1)), code(Code::UNSUPPORTED));
    assert_eq!(bench.ask(&control(4)), code(Code::COMPLETE));
    assert_eq!(bench.ask(&control(4)), code(Code::COMPLETE), "the same command again");
    bench.send(8, &control(4));
    assert_eq!(bench.reply().1, code(Code::BAD_NAME), "another command");
    assert_eq!(bench.ask(&store(0, b"again", true)), done(0));
    bench.send(8, &control(4));
    assert_eq!(bench.reply().1, code(Code::COMPLETE), "what failed is tried again");
}

#[test]
fn a_clock_that_is_moved_twice_by_one_command_moves_once() {
    let mut bench = Bench::new(slow(MILLISECOND));
    let told = |reply| match reply {
        Reply::Clock(Ok(instant)) => instant.as_nanoseconds(),
        other => panic!("{other:?}"),
    };
    assert_eq!(told(bench.ask(&clock(0))), 1_000_001_000_000, "when it is read, not when it is asked");
    assert_eq!(told(bench.ask(&clock(50))), 1_000_002_000_000, "as it was before");
    assert_eq!(told(bench.ask(&clock(50))), 1_000_002_000_000, "the same answer");
    assert_eq!(told(bench.ask(&clock(0))), 1_050_004_000_000);
}

#[test]
fn settings_and_the_program_are_told() {
    let mut bench = Bench::new(Device { address: 1, max_packet: 998, ..Device::default() });
    let get = |range| Command::Settings { security: 0, range };
    let Reply::Settings(Ok(settings)) = bench.ask(&get(Some((49, 49)))) else { panic!() };
    assert_eq!(settings.settings.len(), 1);
    assert_eq!(settings.settings[0].value, [3, 0xE6]);
    let Reply::Settings(Ok(settings)) = bench.ask(&get(None)) else { panic!() };
    assert_eq!(settings.settings.iter().map(|setting| setting.id).collect::<Vec<_>>(), [0, 1, 2, 3, 49]);
    let Reply::Program(Ok(program)) = bench.ask(&Command::Program { security: 0 }) else { panic!() };
    assert!(program.result.contains("emulated"));
}

#[test]
fn a_wrong_security_code_opens_nothing() {
    let mut bench = Bench::new(Device { security: 77, ..Device::default() });
    let security = 76;
    let denied = [
        (Command::Settings { security, range: None }, Reply::Settings(Err(2))),
        (clock(1), Reply::Clock(Err(Code::DENIED))),
        (Command::Program { security }, Reply::Program(Err(Code::DENIED))),
        (fetch(".DIR", 9, 9), Reply::Fetch { code: Code::DENIED, offset: 9, data: Vec::new() }),
        (store(0, b"x", true), Reply::Store { code: Code::DENIED, offset: 0 }),
        (
            Command::Control { security, name: "CPU:a.bin".to_owned(), action: 4 },
            Reply::Control { code: Code::DENIED, hold_off: 0 },
        ),
        (Command::Collect { security, mode: 3, selections: Vec::new() }, Reply::Collect(Err(Code::DENIED))),
        (
            Command::Values { security, table: "Bench".into(), kind: 6, field: "Seq".into(), count: 1 },
            Reply::Values(Err(Code::DENIED)),
        ),
    ];
    for (command, reply) in denied {
        assert_eq!(bench.ask(&command), reply, "{command:?}");
    }
    let hello = Hello { router: false, metric: 2, verify: 300 };
    assert_eq!(bench.ask(&Command::Hello(hello)), Reply::Hello(hello), "greetings are free");
    let right = Command::Clock { security: 77, adjustment: Instant::default() };
    assert!(matches!(bench.ask(&right), Reply::Clock(Ok(_))));
}

#[test]
fn a_table_grows_while_it_is_collected() {
    let mut bench = Bench::new(Device::default());
    let definitions = bench.definitions();
    let mut next = 85;
    // Two records come in these 25 s.
    for (wait, expected) in [(0, 85..91), (25, 91..93)] {
        bench.dialer.clock.sleep_until(bench.dialer.now() + Duration::from_secs(wait));
        bench.collect(3, Span::From(next), &definitions);
        let (3, Reply::Collect(Ok(body)), _) = bench.reply() else { panic!() };
        let (blocks, more) = record::read(&definitions, &body).unwrap();
        let Content::Records(records) = &blocks[0].content else { panic!() };
        assert!(records.iter().map(|record| record.number).eq(expected.clone()));
        assert!(!more);
        next = expected.end;
    }
    let values =
        Command::Values { security: 0, table: "Bench".into(), kind: 6, field: "Seq".into(), count: 1 };
    assert_eq!(bench.ask(&values), Reply::Values(Ok(vec![0, 0, 0, 92])));
}

#[test]
fn one_command_after_the_other_is_worked_on() {
    let mut bench = Bench::new(slow(10 * MILLISECOND));
    let began = bench.dialer.now();
    for transaction in 1..=3 {
        bench.send(transaction, &fetch("CPU:a.bin", 0, 100));
    }
    let hello = Hello { router: false, metric: 2, verify: 300 };
    bench.send(9, &Command::Hello(hello));
    assert_eq!(bench.reply(), (9, Reply::Hello(hello), began), "a greeting needs no processor");
    for transaction in 1..=3u8 {
        let (answered, _, at) = bench.reply();
        assert_eq!((answered, at), (transaction, began + 10 * MILLISECOND * transaction.into()));
    }
}

#[test]
fn a_full_queue_refuses_or_drops() {
    let mut bench = Bench::new(Device { queue: 2, ..slow(MILLISECOND) });
    let send_three = |bench: &mut Bench| (1..=3).for_each(|transaction| bench.send(transaction, &clock(0)));
    send_three(&mut bench);
    let (_, Reply::Failure(failure), _) = bench.reply() else { panic!() };
    assert_eq!((failure.why, failure.command()), (Why::OVERFLOW, Some((0x17, 3))));
    assert_eq!([bench.reply().0, bench.reply().0], [1, 2]);
    assert_eq!(bench.logger.counters(), Counters { answered: 2, overflowed: 1, ..Counters::default() });

    let mut bench = Bench::new(Device { queue: 2, full: Full::Drop, ..slow(MILLISECOND) });
    send_three(&mut bench);
    assert_eq!([bench.reply().0, bench.reply().0], [1, 2]);
    assert!(bench.packet().is_none());
}

#[test]
fn who_has_to_wait_long_is_told_so_again_and_again() {
    let mut bench = Bench::new(slow(Duration::from_secs(40)));
    let began = bench.dialer.now();
    bench.send(5, &clock(0));
    for (at, seconds) in [(1, 30), (30, 10)] {
        let wait = Reply::PleaseWait { command: 0x17, seconds };
        assert_eq!(bench.reply(), (5, wait, began + Duration::from_secs(at)));
    }
    let (5, Reply::Clock(Ok(_)), at) = bench.reply() else { panic!() };
    assert_eq!(at, began + Duration::from_secs(40));
}

#[test]
fn records_are_skipped_under_load_only_on_request() {
    let skipping = Device { skip_records: true, ..slow(MILLISECOND) };
    for (device, expected) in [(skipping, [1, 2]), (slow(MILLISECOND), [1, 1])] {
        let mut bench = Bench::new(device);
        let definitions = bench.definitions();
        let firsts: Vec<u32> = {
            bench.collect(1, Span::All, &definitions);
            bench.collect(2, Span::All, &definitions);
            (0..2)
                .map(|_| {
                    let (_, Reply::Collect(Ok(body)), _) = bench.reply() else { panic!() };
                    record::read(&definitions, &body).unwrap().0[0].first
                })
                .collect()
        };
        assert_eq!(firsts, expected);
        assert_eq!(bench.logger.counters().skipped, u64::from(expected[1] == 2));
    }
}

#[test]
fn who_closes_still_gets_his_answers() {
    let mut bench = Bench::new(slow(MILLISECOND));
    bench.send(1, &clock(0));
    bench.link.finish().unwrap();
    assert_eq!(bench.reply().0, 1);
    assert!(bench.packet().is_none());
}

#[test]
fn who_says_nothing_for_long_is_let_go() {
    let mut bench = Bench::new(Device::default());
    assert!(matches!(bench.link.receive(&mut [0], 3 * LONG), Err(Fault::Closed)));
    assert_eq!(bench.dialer.now(), Time(0) + 2 * LONG);
}

#[test]
fn what_no_logger_can_be_is_refused() {
    let error = |device: Device| device.check().unwrap_err().to_string();
    let device = Device::default;
    insta::assert_snapshot!([
        error(Device { address: 4095, ..device() }),
        error(Device { queue: 0, ..device() }),
        error(Device { max_packet: 16, ..device() }),
        error(slow(LONG)),
        error(Device { files: vec![("a.bin".to_owned(), Vec::new())], ..device() }),
        error(Device { files: vec![("CPU:a".to_owned(), Vec::new()), ("CPU:a".to_owned(), Vec::new())], ..device() }),
        error(Device { tables: ["A:1s:B=FP2", "A:2s:C=FP2"].map(|text| text.parse().unwrap()).to_vec(), ..device() }),
    ].join("\n"), @"
    address 4095: use 1 to 4094
    a queue of 0: use 1 to 255
    packets of 16 bytes: use 200 to 1000
    a command cannot take longer than a minute
    'a.bin' is no file of a logger: write CPU:name, at most 64 letters
    file 'CPU:a' stands twice
    table 'A' stands twice
    ");
    let listen = vec!["udp://127.0.0.1".parse().unwrap()];
    let refused = Logger::start(&Options { listen, ..Options::default() }).err().unwrap();
    assert_eq!(refused.to_string(), "udp://127.0.0.1: a logger speaks on streams, like TCP");
}

#[test]
fn a_client_that_wakes_the_logger_and_waits_is_greeted() {
    let mut bench = Bench::new(Device::default());
    let began = bench.dialer.now();
    bench.write(&[frame::SYNC; 6]);
    let (packet, at) = bench.packet().unwrap();
    assert_eq!(at.since(began), Duration::from_millis(100));
    let packet = Packet::read(&packet).unwrap();
    let (route, message) = packet.message.unwrap();
    assert_eq!((packet.hop.to, route.to, route.from), (BROADCAST, BROADCAST, 1));
    assert!(matches!(Command::read(route.protocol, message), Ok((0, Command::Hello(_)))));
    assert!(bench.packet().is_none(), "greeted twice");
}

#[test]
fn a_client_that_asks_at_once_is_not_greeted() {
    let mut bench = Bench::new(Device::default());
    for syncs in [6, 25] {
        bench.write(&vec![frame::SYNC; syncs]);
        bench.send(7, &Command::Hello(Hello { router: false, metric: 2, verify: 1800 }));
        let (packet, _) = bench.packet().unwrap();
        let (route, message) = Packet::read(&packet).unwrap().message.unwrap();
        assert_eq!((route.to, Reply::read(route.protocol, message).unwrap().0), (CLIENT, 7));
        assert!(bench.packet().is_none(), "greeted after {syncs}");
    }
    // One sync byte too few wakes nobody.
    bench.write(&[frame::SYNC; 5]);
    assert!(bench.packet().is_none());
}
