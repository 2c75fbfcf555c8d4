//! Messages compared with whole frames: frames of the manual, and captures from programs for real loggers.

use proptest::prelude::*;

use super::frame::{self, FrameDecoder};
use super::message::{
    FetchRequest, HelloFields, LoggerCommand, RecordRange, RecordSelection, ReplyCode, StoreRequest,
};
use super::packet::PakBusPacket;
use super::reply::{DeliveryFailure, LoggerProgram, LoggerReply, LoggerSetting, LoggerSettings};
use super::value::LoggerTime;
use super::{PakBusParseError, parse_hex};

/// The only packet of a frame.
fn unframed(frame: &[u8]) -> Vec<u8> {
    let mut decoder = FrameDecoder::default();
    let (used, packet) = decoder.read(frame);
    assert_eq!(used, frame.len());
    packet.expect("the frame is whole").to_vec()
}

/// Reads the message of a frame and checks that `write` produces the same frame.
pub fn round_trip<T>(
    frame: &str,
    read: impl Fn(u8, &[u8]) -> Result<(u8, T), PakBusParseError>,
    write: impl Fn(&T, u8) -> (u8, Vec<u8>),
) -> (u8, T) {
    let frame = parse_hex(frame);
    let bytes = unframed(&frame);
    let packet = PakBusPacket::read(&bytes).unwrap();
    let (route, message) = packet.message.expect("it is more than a state");
    let (transaction, read) = read(route.protocol, message).unwrap();
    let (protocol, written) = write(&read, transaction);
    assert_eq!(protocol, route.protocol);
    let mut again = Vec::new();
    frame::write(&PakBusPacket { hop: packet.hop, message: Some((route, &written)) }.write(), &mut again);
    assert_eq!(again, frame);
    (transaction, read)
}

fn command(frame: &str) -> (u8, LoggerCommand) {
    round_trip(frame, LoggerCommand::read, LoggerCommand::write)
}

fn reply(frame: &str) -> (u8, LoggerReply) {
    round_trip(frame, LoggerReply::read, LoggerReply::write)
}

const NO_TIME: LoggerTime = LoggerTime { seconds: 0, nanoseconds: 0 };

fn hello(verify: u16) -> HelloFields {
    HelloFields { is_router: false, metric: 2, verify }
}

#[test]
fn greetings() {
    for (frame, transaction, expected) in [
        ("BD AFFF1FFE0FFF0FFE 0E00 E5CF BD", 0, LoggerCommand::HelloRequest),
        ("BD AFFE50010FFE0001 094C 0002012C 17BB BD", 0x4C, LoggerCommand::Hello(hello(300))),
        ("BD 9001580200010802 0901 00020708 F686 BD", 1, LoggerCommand::Hello(hello(1800))),
        ("BD 9001680200010802 0901 00020708 8D74 BD", 1, LoggerCommand::Hello(hello(1800))),
        ("BD 9001580200010802 0914 00020708 BCDC5C BD", 0x14, LoggerCommand::Hello(hello(1800))),
        ("BD B001180200010802 0D00 506D BD", 0, LoggerCommand::Bye),
        ("BD B001280200010802 0D00 9ADD BD", 0, LoggerCommand::Bye),
    ] {
        assert_eq!(command(frame), (transaction, expected));
    }
    for (frame, transaction, verify) in [
        ("BD A0011FFE00010FFE 894C 00020078 6937 BD", 0x4C, 120),
        ("BD A802100108020001 8901 00020708 2456 BD", 1, 1800),
    ] {
        assert_eq!(reply(frame), (transaction, LoggerReply::Hello(hello(verify))));
    }
}

#[test]
fn failures_and_waiting() {
    let frame = "BD AFFE10010FFE0001 8100 04 1001 0FFE 17010000000000000000 0000 FA03 BD";
    let (_, LoggerReply::Failure(failure)) = reply(frame) else { panic!() };
    assert_eq!(
        (failure.code, failure.command()),
        (super::reply::FailureCode::NO_SUCH_COMMAND, Some((0x17, 1)))
    );
    assert_eq!((failure.route.to, failure.route.from), (1, 4094));
    assert_eq!(
        reply("BD AFFE10011FFE0001 A101 17 000A D5C7 BD"),
        (1, LoggerReply::PleaseWait { command: 0x17, seconds: 10 })
    );
}

#[test]
fn settings_are_got() {
    let all = parse_hex("BD A001980200010802 0F0B 0A63 BD");
    let bytes = unframed(&all);
    let (route, message) = PakBusPacket::read(&bytes).unwrap().message.unwrap();
    let without_code = LoggerCommand::Settings { security: 0, range: None };
    assert_eq!(LoggerCommand::read(route.protocol, message), Ok((0x0B, without_code)));
    for (frame, transaction, range) in [
        ("BD A001280200010802 0F02 0000 0001 0001 4699 BD", 2, (1, 1)),
        ("BD A0011FFE00010FFE 0F05 0000 0031 0031 CE4A BD", 5, (49, 49)),
    ] {
        assert_eq!(
            command(frame),
            (transaction, LoggerCommand::Settings { security: 0, range: Some(range) })
        );
    }
    let setting = |id, read_only, value: &[u8]| LoggerSetting {
        id,
        is_read_only: read_only,
        is_truncated: false,
        value: value.to_vec(),
    };
    let settings = |settings| LoggerSettings { device: 12, major: 5, minor: 0, has_more: false, settings };
    let frame = "BD A802100108020001 8F0B 01 000C 05 00 00 0000 400E 4352313030302E5374642E323400 \
                 0001 4004 00003039 F851 BD";
    let expected = vec![setting(0, true, b"CR1000.Std.24\0"), setting(1, true, &[0, 0, 0x30, 0x39])];
    assert_eq!(reply(frame), (0x0B, LoggerReply::Settings(Ok(settings(expected)))));
    let frame = "BD AFFE10010FFE0001 8F05 01 000C 05 00 00 0031 0002 03E8 D7ED BD";
    assert_eq!(reply(frame), (5, LoggerReply::Settings(Ok(settings(vec![setting(49, false, &[3, 0xE8])])))));
    assert_eq!(LoggerReply::read(0, &[0x8F, 1, 2]), Ok((1, LoggerReply::Settings(Err(2)))));
}

#[test]
fn clocks() {
    for (frame, transaction) in [
        ("BD A0014FFE10010FFE 1717 0000 0000000000000000 B2B3 BD", 0x17),
        ("BD A001980210010802 1703 0000 0000000000000000 8F06 BD", 3),
        ("BD A0011FFE10010FFE 1701 0000 0000000000000000 91BCDD BD", 1),
    ] {
        assert_eq!(command(frame), (transaction, LoggerCommand::Clock { security: 0, adjustment: NO_TIME }));
    }
    for (frame, transaction, seconds, nanoseconds) in [
        ("BD AFFE00011FFE0001 9717 00 1BFA2A61 C8000000 04FA BD", 0x17, 0x1BFA_2A61, -0x3800_0000),
        ("BD A802100118020001 9705 00 2A72730A 3B023380 8D6D BD", 5, 0x2A72_730A, 0x3B02_3380),
    ] {
        assert_eq!(reply(frame), (transaction, LoggerReply::Clock(Ok(LoggerTime { seconds, nanoseconds }))));
    }
    assert_eq!(LoggerReply::read(1, &[0x97, 5, 1]), Ok((5, LoggerReply::Clock(Err(ReplyCode::DENIED)))));
}

#[test]
fn what_runs_on_a_logger() {
    let message = b"\x98\x09\0CR1000.Std.24\x000\x0012345\0CPU:bench.CR1\0\x01CPU:bench.CR1\0\xBE\xEF\
                    \x43\xB7\x1B\x80\0\0\0\0CPU:bench.CR1 -- Compiled in SequentialMode.\r\n\0";
    // The manual prints the OS signature as 3000, in hexadecimal.
    let mut message = message.to_vec();
    message.splice(17..19, [0x30, 0x00]);
    let (transaction, reply) = LoggerReply::read(1, &message).unwrap();
    assert_eq!(reply.write(transaction), (1, message));
    let LoggerReply::Program(Ok(LoggerProgram {
        os,
        os_signature,
        serial_number,
        state,
        name,
        signature,
        ..
    })) = reply
    else {
        panic!()
    };
    assert_eq!(
        (os.as_str(), serial_number.as_str(), name.as_str()),
        ("CR1000.Std.24", "12345", "CPU:bench.CR1")
    );
    assert_eq!((os_signature, state, signature), (0x3000, 1, 0xBEEF));
}

#[test]
fn files_are_fetched() {
    let fetch = |security, name: &str, close, offset, swath| {
        LoggerCommand::Fetch(FetchRequest { security, name: name.to_owned(), is_last: close, offset, swath })
    };
    let bench = "4350553A62656E63682E62696E00";
    let a = "4350553A612E62696E00";
    for (frame, transaction, expected) in [
        (
            format!("A001980210010802 1D0F 0000 {bench} 00 00000000 0200 B12D"),
            0x0F,
            fetch(0, "CPU:bench.bin", false, 0, 512),
        ),
        (
            format!("A001980210010802 1D0F 0000 {bench} 00 00000200 0200 7715"),
            0x0F,
            fetch(0, "CPU:bench.bin", false, 512, 512),
        ),
        (
            format!("A001980210010802 1D0F 0000 {bench} 00 00000514 0200 318D"),
            0x0F,
            fetch(0, "CPU:bench.bin", false, 1300, 512),
        ),
        (
            "A001980210010802 1D0D 0000 2E44495200 00 00000000 0200 4633".to_owned(),
            0x0D,
            fetch(0, ".DIR", false, 0, 512),
        ),
        (
            "A001280210010802 1D05 1111 2E54444600 00 00000000 0200 2F2A".to_owned(),
            5,
            fetch(0x1111, ".TDF", false, 0, 512),
        ),
        (
            format!("A0011FFE10010FFE 1D02 0000 {a} 00 00000000 0010 EA7C"),
            2,
            fetch(0, "CPU:a.bin", false, 0, 16),
        ),
        (
            format!("A0011FFE10010FFE 1D02 0000 {a} 00 00000010 0010 2A2C"),
            2,
            fetch(0, "CPU:a.bin", false, 16, 16),
        ),
        (
            format!("A0011FFE10010FFE 1D02 0000 {a} 01 00000014 0000 7D7D"),
            2,
            fetch(0, "CPU:a.bin", true, 20, 0),
        ),
    ] {
        assert_eq!(command(&format!("BD {frame} BD")), (transaction, expected));
    }
    let chunk = |offset, data: std::ops::Range<u8>| LoggerReply::Fetch {
        code: ReplyCode::COMPLETE,
        offset,
        data: data.collect(),
    };
    let refused = LoggerReply::Fetch { code: ReplyCode::BAD_NAME, offset: 0, data: Vec::new() };
    for (frame, transaction, expected) in [
        ("A802100118020001 9D0F 00 00000514 2223", 0x0F, chunk(1300, 0..0)),
        (
            "AFFE10011FFE0001 9D02 00 00000000 B8B9BABBBCDCBCDDBEBFC0C1C2C3C4C5C6C7 EBB0",
            2,
            chunk(0, 0xB8..0xC8),
        ),
        ("AFFE10011FFE0001 9D02 00 00000010 C8C9CACB 4871", 2, chunk(16, 0xC8..0xCC)),
        ("AFFE10011FFE0001 9D02 0D 00000000 A625", 2, refused.clone()),
    ] {
        assert_eq!(reply(&format!("BD {frame} BD")), (transaction, expected));
    }
    assert_eq!(LoggerReply::read(1, &[0x9D, 2, 0x0D]), Ok((2, refused)), "nothing need follow a refusal");
}

#[test]
fn files_are_stored_and_deleted() {
    let name = "CPU:a.bin".to_owned();
    let store =
        StoreRequest { security: 0, name: name.clone(), is_last: true, offset: 0, data: b"hello".to_vec() };
    let frame = "BD A0011FFE10010FFE 1C03 0000 4350553A612E62696E00 00 01 00000000 68656C6C6F 446E BD";
    assert_eq!(command(frame), (3, LoggerCommand::Store(store)));
    assert_eq!(
        reply("BD AFFE10011FFE0001 9C03 00 00000000 2803 BD"),
        (3, LoggerReply::Store { code: ReplyCode::COMPLETE, offset: 0 })
    );
    assert_eq!(
        command("BD A0011FFE10010FFE 1E04 0000 4350553A612E62696E00 04 952C BD"),
        (4, LoggerCommand::Control { security: 0, name, action: 4 })
    );
    assert_eq!(
        reply("BD AFFE10011FFE0001 9E04 00 0000 7978 BD"),
        (4, LoggerReply::Control { code: ReplyCode::COMPLETE, hold_off: 0 })
    );
}

#[test]
fn tables_are_collected() {
    let times = RecordRange::Times(
        LoggerTime { seconds: 1, nanoseconds: 0 },
        LoggerTime { seconds: 0x4562_3095, nanoseconds: 0 },
    );
    for (frame, transaction, table, signature, span) in [
        ("A001280210010802 090A 0000 05 0002BB4A 00000002 0000 7BDB", 10, 2, 0xBB4A, RecordRange::Newest(2)),
        ("A001280210010802 090B 0000 03 0002BB4A 0000 3B37", 11, 2, 0xBB4A, RecordRange::All),
        ("A001280210010802 090C 0000 04 0002BB4A 0000005A 0000 297A", 12, 2, 0xBB4A, RecordRange::From(90)),
        (
            "A001980210010802 0917 0000 07 0002BB4A 00000001 00000000 45623095 00000000 0000 A292",
            0x17,
            2,
            0xBB4A,
            times,
        ),
        (
            "A0011FFE10010FFE 0906 0000 06 0002BB4A 00000001 00000003 0000 FE06",
            6,
            2,
            0xBB4A,
            RecordRange::Numbers(1, 3),
        ),
        ("A001700410010004 0909 0000 05 00034315 0000003C 0000 C7DF", 9, 3, 0x4315, RecordRange::Newest(60)),
    ] {
        let selections = vec![RecordSelection { table, signature, span, fields: Vec::new() }];
        let expected = LoggerCommand::Collect { security: 0, mode: span.mode(), selections };
        assert_eq!(command(&format!("BD {frame} BD")), (transaction, expected));
    }
    for (frame, transaction, expected) in [
        (
            "A802100118020001 890A 00 00020000006300 02 43B7327800000000 00000063 414FD70A 444B 00000064 41500000 \
             444C 00 9586",
            10,
            Ok("00020000006300 02 43B7327800000000 00000063 414FD70A 444B 00000064 41500000 444C 00"),
        ),
        (
            "AFFE10011FFE0001 8906 00 0002 00000001 0002 43B71B8000000000 00000001 414028F6 43E9 00000002 414051EC \
             43EA 00 6B42",
            6,
            Ok("0002 00000001 0002 43B71B8000000000 00000001 414028F6 43E9 00000002 414051EC 43EA 00"),
        ),
        (
            "AFFE10011FFE0001 8907 00 0003 00000008 0002 43B71B8500000000 3FC00000 43B71B891DCD6500 40200000 00 3737",
            7,
            Ok("0003 00000008 0002 43B71B8500000000 3FC00000 43B71B891DCD6500 40200000 00"),
        ),
        ("AFFE10011FFE0001 8906 00 0002 00000065 0000 00 5EB8", 6, Ok("0002 00000065 0000 00")),
        ("AFFE10011FFE0001 8906 07 6FC2", 6, Err(ReplyCode::OTHER_DEFINITION)),
        (
            "AFFE10011FFE0001 8908 00 0004 00000021 80000000 43B71B8000000000 41424344 01 7147",
            8,
            Ok("0004 00000021 80000000 43B71B8000000000 41424344 01"),
        ),
    ] {
        let expected = LoggerReply::Collect(expected.map(parse_hex));
        assert_eq!(reply(&format!("BD {frame} BD")), (transaction, expected));
    }
}

#[test]
fn values_are_got() {
    let frame = "BD A001280210010802 1A09 0000 42656E636800 09 4261747400 0001 5569 BD";
    let (table, field) = ("Bench".to_owned(), "Batt".to_owned());
    assert_eq!(command(frame), (9, LoggerCommand::Values { security: 0, table, kind: 9, field, count: 1 }));
    let values = LoggerReply::Values(Ok(parse_hex("41480000")));
    assert_eq!(reply("BD A802100118020001 9A09 00 41480000 646C BD"), (9, values));
}

#[test]
fn unknown_and_truncated_messages_are_distinguished() {
    for (protocol, message) in [(0, "1501"), (1, "1501"), (2, "0901"), (1, "8901"), (0, "8101")] {
        assert_eq!(
            LoggerCommand::read(protocol, &parse_hex(message)),
            Err(PakBusParseError::Unknown),
            "{message}"
        );
    }
    for (protocol, message) in [(0, ""), (0, "09"), (0, "0901"), (1, "17010000"), (1, "1D010000434242")] {
        assert_eq!(
            LoggerCommand::read(protocol, &parse_hex(message)),
            Err(PakBusParseError::TooShort),
            "{message}"
        );
    }
    for (protocol, message) in [(0, "0901"), (1, "FF01"), (3, "8901"), (1, "2000")] {
        assert_eq!(
            LoggerReply::read(protocol, &parse_hex(message)),
            Err(PakBusParseError::Unknown),
            "{message}"
        );
    }
}

#[test]
fn a_failure_quotes_little() {
    let route = super::packet::PacketRoute { protocol: 1, to: 1, from: 4094, hops: 0 };
    let failure = DeliveryFailure { code: super::reply::FailureCode::OVERFLOW, route, message: vec![9; 100] };
    assert_eq!(LoggerReply::Failure(failure).write(0).1.len(), 2 + 5 + DeliveryFailure::MAX_QUOTED_BYTES);
}

proptest! {
    #[test]
    fn what_can_be_read_writes_back(protocol in 0u8..2, kind: u8, rest in prop::collection::vec(0u8..4, 0..40)) {
        let message = [&[kind][..], &rest].concat();
        // Encoding preserves the meaning. Surplus bytes of a message and the various success codes are not preserved.
        if let Ok((transaction, command)) = LoggerCommand::read(protocol, &message) {
            let (protocol, written) = command.write(transaction);
            prop_assert_eq!(LoggerCommand::read(protocol, &written), Ok((transaction, command)));
        }
        if let Ok((transaction, reply)) = LoggerReply::read(protocol, &message) {
            let (protocol, written) = reply.write(transaction);
            prop_assert_eq!(LoggerReply::read(protocol, &written), Ok((transaction, reply)));
        }
    }

    #[test]
    fn nothing_panics(protocol: u8, message: Vec<u8>) {
        let _ = (LoggerCommand::read(protocol, &message), LoggerReply::read(protocol, &message));
    }
}
