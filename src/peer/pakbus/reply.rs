//! Messages of a logger: its answers, and what else it may say while one waits for them.

use std::fmt;

use super::Malformed;
use super::message::{Code, Hello, kind};
use super::packet::{BMP5, PAKCTRL, Route};
use super::text::{Reader, Write};
use super::value::Instant;

/// What a logger says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    Hello(Hello),
    /// A command could not be delivered or understood. Has no transaction number of its own.
    Failure(Failure),
    /// The settings asked for; otherwise the outcome (2: wrong security code).
    Settings(Result<Settings, u8>),
    /// The answer to a command of that kind comes, but within so many seconds only.
    PleaseWait {
        command: u8,
        seconds: u16,
    },
    /// The clock as it was before it was moved.
    Clock(Result<Instant, Code>),
    Program(Result<Program, Code>),
    Fetch {
        code: Code,
        offset: u32,
        data: Vec<u8>,
    },
    Store {
        code: Code,
        offset: u32,
    },
    /// The logger is busy with it for so many seconds.
    Control {
        code: Code,
        hold_off: u16,
    },
    /// What `record.rs` reads.
    Collect(Result<Vec<u8>, Code>),
    /// Values of the type asked for.
    Values(Result<Vec<u8>, Code>),
}

/// Why a command was not carried out, with the beginning of the packet it came in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub why: Why,
    pub route: Route,
    /// At most [`Failure::QUOTED`] bytes of the message.
    pub message: Vec<u8>,
}

impl Failure {
    /// Most bytes that are sent back of a message.
    pub const QUOTED: usize = 16;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Why(pub u8);

impl Why {
    pub const NO_SUCH_PROTOCOL: Why = Why(2);
    pub const OVERFLOW: Why = Why(3);
    pub const NO_SUCH_COMMAND: Why = Why(4);
    pub const MALFORMED: Why = Why(5);
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            1 => "there is no way to that address",
            2 => "the protocol is not known there",
            3 => "its queue is full",
            4 => "the command is not known there",
            5 => "the command was malformed",
            6 => "a link on the way failed",
            other => return write!(f, "failure {other}"),
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// 12: CR1000.
    pub device: u16,
    /// Version of the set of settings.
    pub major: u8,
    pub minor: u8,
    /// There are settings beyond the last of these.
    pub more: bool,
    pub settings: Vec<Setting>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    pub id: u16,
    pub read_only: bool,
    /// This is only the beginning of its value.
    pub large: bool,
    pub value: Vec<u8>,
}

/// What runs on a logger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    pub os: String,
    pub os_signature: u16,
    pub serial_number: String,
    pub on_power_up: String,
    /// 0 none, 1 running, 2 cannot be compiled, 3 paused.
    pub state: u8,
    pub name: String,
    pub signature: u16,
    pub compiled: Instant,
    /// Lines of the compiler.
    pub result: String,
}

/// The outcome of settings that were got.
const GOT: u8 = 1;

const READ_ONLY: u16 = 1 << 14;
const LARGE: u16 = 1 << 15;

impl Reply {
    /// The transaction number and the reply in a message; [`Malformed::Unknown`] for a kind not known here.
    pub fn read(protocol: u8, message: &[u8]) -> Result<(u8, Reply), Malformed> {
        let mut reader = Reader(message);
        let (kind, transaction) = (reader.u8()?, reader.u8()?);
        let reply = match (protocol, kind) {
            (PAKCTRL, kind::FAILURE) => Reply::Failure(Failure::read(&mut reader)?),
            (BMP5, kind::PLEASE_WAIT) => Reply::PleaseWait { command: reader.u8()?, seconds: reader.u16()? },
            (_, kind) if kind & kind::REPLY == 0 => return Err(Malformed::Unknown),
            (PAKCTRL, kind) => Reply::read_control(kind & !kind::REPLY, &mut reader)?,
            (BMP5, kind) => Reply::read_bmp5(kind & !kind::REPLY, &mut reader)?,
            _ => return Err(Malformed::Unknown),
        };
        Ok((transaction, reply))
    }

    fn read_control(command: u8, reader: &mut Reader) -> Result<Reply, Malformed> {
        Ok(match command {
            kind::HELLO => Reply::Hello(Hello::read(reader)?),
            kind::SETTINGS => Reply::Settings(match reader.u8()? {
                GOT => Ok(Settings::read(reader)?),
                outcome => Err(outcome),
            }),
            _ => return Err(Malformed::Unknown),
        })
    }

    fn read_bmp5(command: u8, reader: &mut Reader) -> Result<Reply, Malformed> {
        if ![kind::CLOCK, kind::PROGRAM, kind::FETCH, kind::STORE, kind::CONTROL, kind::COLLECT, kind::VALUES]
            .contains(&command)
        {
            return Err(Malformed::Unknown);
        }
        let code = Code(reader.u8()?);
        let complete = code == Code::COMPLETE;
        // What follows a refusal is nobody's word: some loggers send it, some do not.
        let offset =
            |reader: &mut Reader| if complete { reader.u32() } else { Ok(reader.u32().unwrap_or(0)) };
        Ok(match command {
            kind::CLOCK if complete => Reply::Clock(Ok(reader.instant()?)),
            kind::CLOCK => Reply::Clock(Err(code)),
            kind::PROGRAM if complete => Reply::Program(Ok(Program::read(reader)?)),
            kind::PROGRAM => Reply::Program(Err(code)),
            kind::FETCH => Reply::Fetch { code, offset: offset(reader)?, data: reader.rest().to_vec() },
            kind::STORE => Reply::Store { code, offset: offset(reader)? },
            kind::CONTROL => Reply::Control { code, hold_off: reader.u16().unwrap_or(0) },
            kind::COLLECT if complete => Reply::Collect(Ok(reader.rest().to_vec())),
            kind::COLLECT => Reply::Collect(Err(code)),
            _ if complete => Reply::Values(Ok(reader.rest().to_vec())),
            _ => Reply::Values(Err(code)),
        })
    }

    /// The protocol of the reply, and its message.
    pub fn write(&self, transaction: u8) -> (u8, Vec<u8>) {
        let (protocol, kind) = self.kind();
        let mut bytes = vec![kind, transaction];
        let mut coded = |code: &Code| bytes.u8(code.0);
        match self {
            Reply::Hello(hello) => hello.write(&mut bytes),
            Reply::Failure(failure) => failure.write(&mut bytes),
            Reply::Settings(Ok(settings)) => settings.write(&mut bytes),
            Reply::Settings(Err(outcome)) => bytes.u8(*outcome),
            Reply::PleaseWait { command, seconds } => {
                bytes.u8(*command);
                bytes.u16(*seconds);
            }
            Reply::Clock(Err(code))
            | Reply::Program(Err(code))
            | Reply::Collect(Err(code))
            | Reply::Values(Err(code)) => coded(code),
            Reply::Clock(Ok(before)) => {
                coded(&Code::COMPLETE);
                bytes.instant(*before);
            }
            Reply::Program(Ok(program)) => {
                coded(&Code::COMPLETE);
                program.write(&mut bytes);
            }
            Reply::Fetch { code, offset, data } => {
                coded(code);
                bytes.u32(*offset);
                bytes.extend(data);
            }
            Reply::Store { code, offset } => {
                coded(code);
                bytes.u32(*offset);
            }
            Reply::Control { code, hold_off } => {
                coded(code);
                bytes.u16(*hold_off);
            }
            Reply::Collect(Ok(body)) | Reply::Values(Ok(body)) => {
                coded(&Code::COMPLETE);
                bytes.extend(body);
            }
        }
        (protocol, bytes)
    }

    /// Protocol and first byte.
    fn kind(&self) -> (u8, u8) {
        match self {
            Reply::Hello(_) => (PAKCTRL, kind::REPLY | kind::HELLO),
            Reply::Failure(_) => (PAKCTRL, kind::FAILURE),
            Reply::Settings(_) => (PAKCTRL, kind::REPLY | kind::SETTINGS),
            Reply::PleaseWait { .. } => (BMP5, kind::PLEASE_WAIT),
            Reply::Clock(_) => (BMP5, kind::REPLY | kind::CLOCK),
            Reply::Program(_) => (BMP5, kind::REPLY | kind::PROGRAM),
            Reply::Fetch { .. } => (BMP5, kind::REPLY | kind::FETCH),
            Reply::Store { .. } => (BMP5, kind::REPLY | kind::STORE),
            Reply::Control { .. } => (BMP5, kind::REPLY | kind::CONTROL),
            Reply::Collect(_) => (BMP5, kind::REPLY | kind::COLLECT),
            Reply::Values(_) => (BMP5, kind::REPLY | kind::VALUES),
        }
    }
}

impl Failure {
    /// Kind and transaction number of the command that failed.
    pub fn command(&self) -> Option<(u8, u8)> {
        self.message.first_chunk().map(|&[kind, transaction]| (kind, transaction))
    }

    fn read(reader: &mut Reader) -> Result<Failure, Malformed> {
        let (why, to, from) = (Why(reader.u8()?), reader.u16()?, reader.u16()?);
        let route = Route {
            protocol: (to >> 12) as u8,
            to: to & 0xFFF,
            hops: (from >> 12) as u8,
            from: from & 0xFFF,
        };
        let message = reader.rest().iter().copied().take(Failure::QUOTED).collect();
        Ok(Failure { why, route, message })
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.u8(self.why.0);
        bytes.u16(u16::from(self.route.protocol) << 12 | self.route.to);
        bytes.u16(u16::from(self.route.hops) << 12 | self.route.from);
        bytes.extend(self.message.iter().take(Failure::QUOTED));
    }
}

impl Settings {
    fn read(reader: &mut Reader) -> Result<Settings, Malformed> {
        let mut settings = Settings {
            device: reader.u16()?,
            major: reader.u8()?,
            minor: reader.u8()?,
            more: reader.u8()? != 0,
            settings: Vec::new(),
        };
        while !reader.is_empty() {
            let (id, bits) = (reader.u16()?, reader.u16()?);
            settings.settings.push(Setting {
                id,
                read_only: bits & READ_ONLY != 0,
                large: bits & LARGE != 0,
                value: reader.take(usize::from(bits & !(READ_ONLY | LARGE)))?.to_vec(),
            });
        }
        Ok(settings)
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.u8(GOT);
        bytes.u16(self.device);
        [self.major, self.minor, self.more.into()].into_iter().for_each(|byte| bytes.u8(byte));
        for setting in &self.settings {
            let flag = |on: bool, bit: u16| if on { bit } else { 0 };
            let length = (setting.value.len() as u16) & !(READ_ONLY | LARGE);
            bytes.u16(setting.id);
            bytes.u16(flag(setting.read_only, READ_ONLY) | flag(setting.large, LARGE) | length);
            bytes.extend(&setting.value);
        }
    }
}

impl Program {
    fn read(reader: &mut Reader) -> Result<Program, Malformed> {
        Ok(Program {
            os: reader.text()?,
            os_signature: reader.u16()?,
            serial_number: reader.text()?,
            on_power_up: reader.text()?,
            state: reader.u8()?,
            name: reader.text()?,
            signature: reader.u16()?,
            compiled: reader.instant()?,
            result: reader.text()?,
        })
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.text(&self.os);
        bytes.u16(self.os_signature);
        bytes.text(&self.serial_number);
        bytes.text(&self.on_power_up);
        bytes.u8(self.state);
        bytes.text(&self.name);
        bytes.u16(self.signature);
        bytes.instant(self.compiled);
        bytes.text(&self.result);
    }
}
