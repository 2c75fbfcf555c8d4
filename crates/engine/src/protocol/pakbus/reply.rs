//! Messages of a logger: its replies, and unsolicited messages.

use std::fmt;

use super::PakBusParseError;
use super::codec::{MessageReader, MessageWriter};
use super::message::{HelloFields, ReplyCode, kind};
use super::packet::{BMP5, PAKCTRL, PacketRoute};
use super::value::LoggerTime;

/// A message of a logger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoggerReply {
    /// The reply to a hello.
    Hello(HelloFields),
    /// A command could not be delivered or parsed. The message has no transaction number.
    Failure(DeliveryFailure),
    /// The requested settings, or the error code (2: wrong security code).
    Settings(Result<LoggerSettings, u8>),
    /// The reply to a command of that kind will follow within this many seconds.
    PleaseWait {
        /// Kind of the command.
        command: u8,
        /// The wait, in seconds; loggers send at most 30.
        seconds: u16,
    },
    /// The clock before the adjustment.
    Clock(Result<LoggerTime, ReplyCode>),
    /// The program of the logger.
    Program(Result<LoggerProgram, ReplyCode>),
    /// A chunk of a file.
    Fetch {
        /// Result of the command.
        code: ReplyCode,
        /// Position of the chunk in the file, in bytes.
        offset: u32,
        /// Content of the chunk; undefined after an error.
        data: Vec<u8>,
    },
    /// A chunk of a file has been stored.
    Store {
        /// Result of the command.
        code: ReplyCode,
        /// Position of the chunk in the file, in bytes.
        offset: u32,
    },
    /// Result of a file command, and the time for which the logger is busy with it.
    Control {
        /// Result of the command.
        code: ReplyCode,
        /// The wait, in seconds.
        hold_off: u16,
    },
    /// Records of tables, which `record.rs` parses.
    Collect(Result<Vec<u8>, ReplyCode>),
    /// Values of the requested type.
    Values(Result<Vec<u8>, ReplyCode>),
}

/// Reason for a command that was not executed, with the start of its packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryFailure {
    /// Reason of the failure.
    pub code: FailureCode,
    /// Route of the packet that could not be delivered.
    pub route: PacketRoute,
    /// Start of the message: at most `DeliveryFailure::MAX_QUOTED_BYTES` bytes.
    pub message: Vec<u8>,
}

impl DeliveryFailure {
    /// Maximum quoted bytes of a message.
    pub(crate) const MAX_QUOTED_BYTES: usize = 16;
}

/// Reason of a delivery failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailureCode(pub u8);

impl FailureCode {
    /// The node does not support the protocol of the packet.
    pub const NO_SUCH_PROTOCOL: FailureCode = FailureCode(2);
    /// The queue of a node is full.
    pub const OVERFLOW: FailureCode = FailureCode(3);
    /// The node does not support the command.
    pub const NO_SUCH_COMMAND: FailureCode = FailureCode(4);
    /// The command cannot be parsed.
    pub const MALFORMED: FailureCode = FailureCode(5);
}

impl fmt::Display for FailureCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            1 => "no route to that address",
            2 => "that node does not support the protocol",
            3 => "its queue is full",
            4 => "that node does not support the command",
            5 => "the command was malformed",
            6 => "a link on the path failed",
            other => return write!(f, "failure {other}"),
        })
    }
}

/// Settings of a logger, or the part of them that fits into one reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggerSettings {
    /// Type of the device (12: CR1000).
    pub device: u16,
    /// Major version of the set of settings.
    pub major: u8,
    /// Minor version of the set of settings.
    pub minor: u8,
    /// Whether there are settings after the last of these.
    pub has_more: bool,
    /// The settings, in the order of their numbers.
    pub settings: Vec<LoggerSetting>,
}

/// One setting of a logger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggerSetting {
    /// Number of the setting.
    pub id: u16,
    /// Whether clients cannot change the setting.
    pub is_read_only: bool,
    /// Whether the value is cut off.
    pub is_truncated: bool,
    /// The encoded value; its type depends on the number.
    pub value: Vec<u8>,
}

/// The program of a logger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggerProgram {
    /// Name and version of the operating system.
    pub os: String,
    /// Signature of the operating system.
    pub os_signature: u16,
    /// Serial number of the logger.
    pub serial_number: String,
    /// Name of the program that starts at power-up.
    pub on_power_up: String,
    /// State of the program: 0 none, 1 running, 2 cannot be compiled, 3 paused.
    pub state: u8,
    /// Name of the current program.
    pub name: String,
    /// Signature of the current program.
    pub signature: u16,
    /// Time of the compilation.
    pub compiled: LoggerTime,
    /// Output of the compiler.
    pub result: String,
}

/// Success code of a settings request.
const SETTINGS_OK: u8 = 1;

const READ_ONLY_FLAG: u16 = 1 << 14;
const LARGE_FLAG: u16 = 1 << 15;

impl LoggerReply {
    /// Reads the transaction number and the reply of a message.
    ///
    /// # Errors
    ///
    /// [`PakBusParseError::TooShort`] for a truncated message, [`PakBusParseError::Unknown`] for an unsupported kind.
    pub fn read(protocol: u8, message: &[u8]) -> Result<(u8, LoggerReply), PakBusParseError> {
        let mut reader = MessageReader(message);
        let (kind, transaction) = (reader.u8()?, reader.u8()?);
        let reply = match (protocol, kind) {
            (PAKCTRL, kind::FAILURE) => LoggerReply::Failure(DeliveryFailure::read(&mut reader)?),
            (BMP5, kind::PLEASE_WAIT) => {
                LoggerReply::PleaseWait { command: reader.u8()?, seconds: reader.u16()? }
            }
            (_, kind) if kind & kind::REPLY == 0 => return Err(PakBusParseError::Unknown),
            (PAKCTRL, kind) => LoggerReply::read_control(kind & !kind::REPLY, &mut reader)?,
            (BMP5, kind) => LoggerReply::read_bmp5(kind & !kind::REPLY, &mut reader)?,
            _ => return Err(PakBusParseError::Unknown),
        };
        Ok((transaction, reply))
    }

    fn read_control(command: u8, reader: &mut MessageReader) -> Result<LoggerReply, PakBusParseError> {
        Ok(match command {
            kind::HELLO => LoggerReply::Hello(HelloFields::read(reader)?),
            kind::SETTINGS => LoggerReply::Settings(match reader.u8()? {
                SETTINGS_OK => Ok(LoggerSettings::read(reader)?),
                outcome => Err(outcome),
            }),
            _ => return Err(PakBusParseError::Unknown),
        })
    }

    fn read_bmp5(command: u8, reader: &mut MessageReader) -> Result<LoggerReply, PakBusParseError> {
        if ![kind::CLOCK, kind::PROGRAM, kind::FETCH, kind::STORE, kind::CONTROL, kind::COLLECT, kind::VALUES]
            .contains(&command)
        {
            return Err(PakBusParseError::Unknown);
        }
        let code = ReplyCode(reader.u8()?);
        let complete = code == ReplyCode::COMPLETE;
        // The bytes after a refusal are undefined: some loggers send them, some do not.
        let offset =
            |reader: &mut MessageReader| if complete { reader.u32() } else { Ok(reader.u32().unwrap_or(0)) };
        Ok(match command {
            kind::CLOCK if complete => LoggerReply::Clock(Ok(reader.instant()?)),
            kind::CLOCK => LoggerReply::Clock(Err(code)),
            kind::PROGRAM if complete => LoggerReply::Program(Ok(LoggerProgram::read(reader)?)),
            kind::PROGRAM => LoggerReply::Program(Err(code)),
            kind::FETCH => LoggerReply::Fetch { code, offset: offset(reader)?, data: reader.rest().to_vec() },
            kind::STORE => LoggerReply::Store { code, offset: offset(reader)? },
            kind::CONTROL => LoggerReply::Control { code, hold_off: reader.u16().unwrap_or(0) },
            kind::COLLECT if complete => LoggerReply::Collect(Ok(reader.rest().to_vec())),
            kind::COLLECT => LoggerReply::Collect(Err(code)),
            _ if complete => LoggerReply::Values(Ok(reader.rest().to_vec())),
            _ => LoggerReply::Values(Err(code)),
        })
    }

    /// Returns the protocol of the reply, and its message.
    pub fn write(&self, transaction: u8) -> (u8, Vec<u8>) {
        let (protocol, kind) = self.kind();
        let mut bytes = vec![kind, transaction];
        let mut coded = |code: &ReplyCode| bytes.u8(code.0);
        match self {
            LoggerReply::Hello(hello) => hello.write(&mut bytes),
            LoggerReply::Failure(failure) => failure.write(&mut bytes),
            LoggerReply::Settings(Ok(settings)) => settings.write(&mut bytes),
            LoggerReply::Settings(Err(outcome)) => bytes.u8(*outcome),
            LoggerReply::PleaseWait { command, seconds } => {
                bytes.u8(*command);
                bytes.u16(*seconds);
            }
            LoggerReply::Clock(Err(code))
            | LoggerReply::Program(Err(code))
            | LoggerReply::Collect(Err(code))
            | LoggerReply::Values(Err(code)) => coded(code),
            LoggerReply::Clock(Ok(before)) => {
                coded(&ReplyCode::COMPLETE);
                bytes.instant(*before);
            }
            LoggerReply::Program(Ok(program)) => {
                coded(&ReplyCode::COMPLETE);
                program.write(&mut bytes);
            }
            LoggerReply::Fetch { code, offset, data } => {
                coded(code);
                bytes.u32(*offset);
                bytes.extend(data);
            }
            LoggerReply::Store { code, offset } => {
                coded(code);
                bytes.u32(*offset);
            }
            LoggerReply::Control { code, hold_off } => {
                coded(code);
                bytes.u16(*hold_off);
            }
            LoggerReply::Collect(Ok(body)) | LoggerReply::Values(Ok(body)) => {
                coded(&ReplyCode::COMPLETE);
                bytes.extend(body);
            }
        }
        (protocol, bytes)
    }

    /// Protocol and first byte of the reply's message.
    fn kind(&self) -> (u8, u8) {
        match self {
            LoggerReply::Hello(_) => (PAKCTRL, kind::REPLY | kind::HELLO),
            LoggerReply::Failure(_) => (PAKCTRL, kind::FAILURE),
            LoggerReply::Settings(_) => (PAKCTRL, kind::REPLY | kind::SETTINGS),
            LoggerReply::PleaseWait { .. } => (BMP5, kind::PLEASE_WAIT),
            LoggerReply::Clock(_) => (BMP5, kind::REPLY | kind::CLOCK),
            LoggerReply::Program(_) => (BMP5, kind::REPLY | kind::PROGRAM),
            LoggerReply::Fetch { .. } => (BMP5, kind::REPLY | kind::FETCH),
            LoggerReply::Store { .. } => (BMP5, kind::REPLY | kind::STORE),
            LoggerReply::Control { .. } => (BMP5, kind::REPLY | kind::CONTROL),
            LoggerReply::Collect(_) => (BMP5, kind::REPLY | kind::COLLECT),
            LoggerReply::Values(_) => (BMP5, kind::REPLY | kind::VALUES),
        }
    }
}

impl DeliveryFailure {
    /// Kind and transaction number of the failed command.
    pub fn command(&self) -> Option<(u8, u8)> {
        self.message.first_chunk().map(|&[kind, transaction]| (kind, transaction))
    }

    fn read(reader: &mut MessageReader) -> Result<DeliveryFailure, PakBusParseError> {
        let (why, to, from) = (FailureCode(reader.u8()?), reader.u16()?, reader.u16()?);
        let route = PacketRoute {
            protocol: (to >> 12) as u8,
            to: to & 0xFFF,
            hops: (from >> 12) as u8,
            from: from & 0xFFF,
        };
        let message = reader.rest().iter().copied().take(DeliveryFailure::MAX_QUOTED_BYTES).collect();
        Ok(DeliveryFailure { code: why, route, message })
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.u8(self.code.0);
        bytes.u16(u16::from(self.route.protocol) << 12 | self.route.to);
        bytes.u16(u16::from(self.route.hops) << 12 | self.route.from);
        bytes.extend(self.message.iter().take(DeliveryFailure::MAX_QUOTED_BYTES));
    }
}

impl LoggerSettings {
    fn read(reader: &mut MessageReader) -> Result<LoggerSettings, PakBusParseError> {
        let mut settings = LoggerSettings {
            device: reader.u16()?,
            major: reader.u8()?,
            minor: reader.u8()?,
            has_more: reader.u8()? != 0,
            settings: Vec::new(),
        };
        while !reader.is_empty() {
            let (id, bits) = (reader.u16()?, reader.u16()?);
            settings.settings.push(LoggerSetting {
                id,
                is_read_only: bits & READ_ONLY_FLAG != 0,
                is_truncated: bits & LARGE_FLAG != 0,
                value: reader.take(usize::from(bits & !(READ_ONLY_FLAG | LARGE_FLAG)))?.to_vec(),
            });
        }
        Ok(settings)
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.u8(SETTINGS_OK);
        bytes.u16(self.device);
        [self.major, self.minor, self.has_more.into()].into_iter().for_each(|byte| bytes.u8(byte));
        for setting in &self.settings {
            let flag = |on: bool, bit: u16| if on { bit } else { 0 };
            let length = (setting.value.len() as u16) & !(READ_ONLY_FLAG | LARGE_FLAG);
            bytes.u16(setting.id);
            bytes.u16(
                flag(setting.is_read_only, READ_ONLY_FLAG) | flag(setting.is_truncated, LARGE_FLAG) | length,
            );
            bytes.extend(&setting.value);
        }
    }
}

impl LoggerProgram {
    fn read(reader: &mut MessageReader) -> Result<LoggerProgram, PakBusParseError> {
        Ok(LoggerProgram {
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
