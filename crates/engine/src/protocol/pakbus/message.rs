//! Requests of a client to a logger. The logger's replies are in `reply.rs`.
//!
//! Files are *fetched* from the logger and *stored* on it; the manufacturer calls that upload and download.

use std::fmt;

use super::PakBusParseError;
use super::codec::{MessageReader, MessageWriter};
use super::packet::{BMP5, PAKCTRL};
use super::value::LoggerTime;

pub(super) mod kind {
    //! The first byte of a message, by protocol. A reply has the top bit set.
    pub(crate) const HELLO: u8 = 0x09;
    pub(crate) const HELLO_REQUEST: u8 = 0x0E;
    pub(crate) const BYE: u8 = 0x0D;
    pub(crate) const SETTINGS: u8 = 0x0F;
    pub(crate) const REPLY: u8 = 0x80;
    pub(crate) const FAILURE: u8 = 0x81;

    pub(crate) const COLLECT: u8 = 0x09;
    pub(crate) const CLOCK: u8 = 0x17;
    pub(crate) const PROGRAM: u8 = 0x18;
    pub(crate) const VALUES: u8 = 0x1A;
    pub(crate) const STORE: u8 = 0x1C;
    pub(crate) const FETCH: u8 = 0x1D;
    pub(crate) const CONTROL: u8 = 0x1E;
    pub(crate) const PLEASE_WAIT: u8 = 0xA1;
}

/// Result code of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyCode(pub u8);

impl ReplyCode {
    /// The command was executed.
    pub const COMPLETE: ReplyCode = ReplyCode(0x00);
    /// The security code is missing or wrong.
    pub const DENIED: ReplyCode = ReplyCode(0x01);
    /// Insufficient resources or memory.
    pub const FULL: ReplyCode = ReplyCode(0x02);
    /// The signature does not match the definition of the table.
    pub const OTHER_DEFINITION: ReplyCode = ReplyCode(0x07);
    /// A fragment is invalid or out of order.
    pub const WRONG_FRAGMENT: ReplyCode = ReplyCode(0x09);
    /// The name of the file is invalid.
    pub const BAD_NAME: ReplyCode = ReplyCode(0x0D);
    /// The table or the field does not exist.
    pub const NO_SUCH_TABLE: ReplyCode = ReplyCode(0x10);
    /// The value cannot be converted to the requested type.
    pub const NO_CONVERSION: ReplyCode = ReplyCode(0x11);
    /// The request reaches beyond the memory.
    pub const OUT_OF_BOUNDS: ReplyCode = ReplyCode(0x12);
    /// The logger does not support this file command.
    pub const UNSUPPORTED: ReplyCode = ReplyCode(0x13);
}

impl fmt::Display for ReplyCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            0x00 => "complete",
            0x01 => "permission denied",
            0x02 => "insufficient resources or memory",
            0x07 => "invalid table definition",
            0x09 => "invalid fragment",
            0x0D => "invalid file name",
            0x0E => "file not accessible",
            0x0F => "option not applicable",
            0x10 => "invalid table or field",
            0x11 => "conversion not supported",
            0x12 => "out of the memory's bounds",
            0x13 => "unsupported file command",
            0x14 => "directory full",
            other => return write!(f, "code {other}"),
        })
    }
}

/// Fields of a hello and of its reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HelloFields {
    /// Whether the sender forwards packets of other nodes.
    pub is_router: bool,
    /// Code of the maximum one-way delay, 0 to 7 (0: 0.2 s, 1: 1 s, 2: 5 s …).
    pub metric: u8,
    /// Time for which a neighbour may be silent, in seconds.
    pub verify: u16,
}

/// A request of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoggerCommand {
    /// Introduces a neighbour, which replies with the same fields.
    Hello(HelloFields),
    /// Requests a hello; the message itself has no reply.
    HelloRequest,
    /// Ends the communication of the client; there is no reply.
    Bye,
    /// Requests settings by number, from the first to the last; all settings without a range.
    Settings {
        /// Security code; 0 if the logger has none.
        security: u16,
        /// First and last number of the settings, both included.
        range: Option<(u16, u16)>,
    },
    /// Adjusts the clock by this duration, which may be zero, and reads it.
    Clock {
        /// Security code; 0 if the logger has none.
        security: u16,
        /// Duration that is added to the clock.
        adjustment: LoggerTime,
    },
    /// Reads the state of the program and the operating system.
    Program {
        /// Security code; 0 if the logger has none.
        security: u16,
    },
    /// Reads a chunk of a file on the logger.
    Fetch(FetchRequest),
    /// Writes a chunk of a file on the logger.
    Store(StoreRequest),
    /// Controls a file: 4 deletes it; other actions start and stop programs.
    Control {
        /// Security code; 0 if the logger has none.
        security: u16,
        /// Name of the file with its drive, as `CPU:bench.CR1`.
        name: String,
        /// Number of the action.
        action: u8,
    },
    /// Reads records.
    Collect {
        /// Security code; 0 if the logger has none.
        security: u16,
        /// Kind of all ranges; see [`RecordRange::mode`].
        mode: u8,
        /// The records to read; each entry names one table.
        selections: Vec<RecordSelection>,
    },
    /// Reads `count` values starting at a field, each as a value of type `kind`.
    Values {
        /// Security code; 0 if the logger has none.
        security: u16,
        /// Name of the table.
        table: String,
        /// Code of a [`FieldType`](super::value::FieldType).
        kind: u8,
        /// Name of the first field.
        field: String,
        /// Number of values.
        count: u16,
    },
}

/// Requests a chunk of a file on the logger. All chunks of a file have one transaction number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchRequest {
    /// Security code; 0 if the logger has none.
    pub security: u16,
    /// Name of the file with its drive, as `CPU:Def.tdf`.
    pub name: String,
    /// Whether this is the last request for this file.
    pub is_last: bool,
    /// Position of the chunk in the file, in bytes.
    pub offset: u32,
    /// Maximum bytes in the reply; fewer mean the end of the file.
    pub swath: u16,
}

/// A chunk of a file to store on the logger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreRequest {
    /// Security code; 0 if the logger has none.
    pub security: u16,
    /// Name of the file with its drive; may be empty after the first chunk.
    pub name: String,
    /// Whether this is the last chunk.
    pub is_last: bool,
    /// Position of the chunk in the file, in bytes.
    pub offset: u32,
    /// Content of the chunk.
    pub data: Vec<u8>,
}

/// Records of one table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordSelection {
    /// Number of the table, from 1.
    pub table: u16,
    /// Signature of the definition of the table, so that the logger can detect an outdated one.
    pub signature: u16,
    /// The records to read.
    pub span: RecordRange,
    /// Numbers of fields, from 1; empty means all.
    pub fields: Vec<u16>,
}

/// Range of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordRange {
    /// All records of the table.
    All,
    /// Records from this number on.
    From(u32),
    /// Newest records, of this number.
    Newest(u32),
    /// Records from the first number up to, not including, the second.
    Numbers(u32, u32),
    /// Records from the first time up to, not including, the second.
    Times(LoggerTime, LoggerTime),
    /// Rest of one long record, from a byte offset.
    Rest(u32, u32),
}

impl RecordRange {
    /// Mode of a collection for this range.
    pub fn mode(&self) -> u8 {
        match self {
            RecordRange::All => 3,
            RecordRange::From(_) => 4,
            RecordRange::Newest(_) => 5,
            RecordRange::Numbers(..) => 6,
            RecordRange::Times(..) => 7,
            RecordRange::Rest(..) => 8,
        }
    }

    fn read(mode: u8, reader: &mut MessageReader) -> Result<RecordRange, PakBusParseError> {
        Ok(match mode {
            3 => RecordRange::All,
            4 => RecordRange::From(reader.u32()?),
            5 => RecordRange::Newest(reader.u32()?),
            6 => RecordRange::Numbers(reader.u32()?, reader.u32()?),
            7 => RecordRange::Times(reader.instant()?, reader.instant()?),
            8 => RecordRange::Rest(reader.u32()?, reader.u32()?),
            _ => return Err(PakBusParseError::Unknown),
        })
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        match *self {
            RecordRange::All => {}
            RecordRange::From(number) | RecordRange::Newest(number) => bytes.u32(number),
            RecordRange::Numbers(first, second) | RecordRange::Rest(first, second) => {
                bytes.u32(first);
                bytes.u32(second);
            }
            RecordRange::Times(first, second) => {
                bytes.instant(first);
                bytes.instant(second);
            }
        }
    }
}

impl LoggerCommand {
    /// Reads the transaction number and the command of a message.
    ///
    /// # Errors
    ///
    /// [`PakBusParseError::TooShort`] for a truncated message, [`PakBusParseError::Unknown`] for an unsupported kind.
    pub fn read(protocol: u8, message: &[u8]) -> Result<(u8, LoggerCommand), PakBusParseError> {
        let mut reader = MessageReader(message);
        let (kind, transaction) = (reader.u8()?, reader.u8()?);
        let command = match protocol {
            PAKCTRL => LoggerCommand::read_control(kind, &mut reader)?,
            BMP5 => LoggerCommand::read_bmp5(kind, &mut reader)?,
            _ => return Err(PakBusParseError::Unknown),
        };
        Ok((transaction, command))
    }

    fn read_control(kind: u8, reader: &mut MessageReader) -> Result<LoggerCommand, PakBusParseError> {
        Ok(match kind {
            kind::HELLO => LoggerCommand::Hello(HelloFields::read(reader)?),
            kind::HELLO_REQUEST => LoggerCommand::HelloRequest,
            kind::BYE => LoggerCommand::Bye,
            // Some clients omit the security code and all fields after it.
            kind::SETTINGS => {
                let security = if reader.is_empty() { 0 } else { reader.u16()? };
                let first = if reader.is_empty() { None } else { Some(reader.u16()?) };
                let last = if reader.is_empty() { u16::MAX } else { reader.u16()? };
                LoggerCommand::Settings { security, range: first.map(|first| (first, last)) }
            }
            _ => return Err(PakBusParseError::Unknown),
        })
    }

    fn read_bmp5(kind: u8, reader: &mut MessageReader) -> Result<LoggerCommand, PakBusParseError> {
        if kind & kind::REPLY != 0 {
            return Err(PakBusParseError::Unknown);
        }
        Ok(match kind {
            kind::CLOCK => LoggerCommand::Clock { security: reader.u16()?, adjustment: reader.instant()? },
            kind::PROGRAM => LoggerCommand::Program { security: reader.u16()? },
            kind::FETCH => LoggerCommand::Fetch(FetchRequest {
                security: reader.u16()?,
                name: reader.text()?,
                is_last: reader.u8()? != 0,
                offset: reader.u32()?,
                swath: reader.u16()?,
            }),
            kind::STORE => {
                let (security, name, _attribute) = (reader.u16()?, reader.text()?, reader.u8()?);
                let (close, offset) = (reader.u8()? != 0, reader.u32()?);
                LoggerCommand::Store(StoreRequest {
                    security,
                    name,
                    is_last: close,
                    offset,
                    data: reader.rest().to_vec(),
                })
            }
            kind::CONTROL => {
                LoggerCommand::Control { security: reader.u16()?, name: reader.text()?, action: reader.u8()? }
            }
            kind::COLLECT => {
                let (security, mode) = (reader.u16()?, reader.u8()?);
                let mut selections = Vec::new();
                while !reader.is_empty() {
                    selections.push(RecordSelection::read(mode, reader)?);
                }
                LoggerCommand::Collect { security, mode, selections }
            }
            kind::VALUES => LoggerCommand::Values {
                security: reader.u16()?,
                table: reader.text()?,
                kind: reader.u8()?,
                field: reader.text()?,
                count: reader.u16()?,
            },
            _ => return Err(PakBusParseError::Unknown),
        })
    }

    /// Returns the protocol of the command, and its message.
    pub fn write(&self, transaction: u8) -> (u8, Vec<u8>) {
        let (protocol, kind) = self.kind();
        let mut bytes = vec![kind, transaction];
        match self {
            LoggerCommand::Hello(hello) => hello.write(&mut bytes),
            LoggerCommand::HelloRequest | LoggerCommand::Bye => {}
            LoggerCommand::Settings { security, range } => {
                bytes.u16(*security);
                if let Some((first, last)) = range {
                    bytes.u16(*first);
                    bytes.u16(*last);
                }
            }
            LoggerCommand::Clock { security, adjustment } => {
                bytes.u16(*security);
                bytes.instant(*adjustment);
            }
            LoggerCommand::Program { security } => bytes.u16(*security),
            LoggerCommand::Fetch(fetch) => {
                bytes.u16(fetch.security);
                bytes.text(&fetch.name);
                bytes.u8(fetch.is_last.into());
                bytes.u32(fetch.offset);
                bytes.u16(fetch.swath);
            }
            LoggerCommand::Store(store) => {
                bytes.u16(store.security);
                bytes.text(&store.name);
                bytes.u8(0);
                bytes.u8(store.is_last.into());
                bytes.u32(store.offset);
                bytes.extend(&store.data);
            }
            LoggerCommand::Control { security, name, action } => {
                bytes.u16(*security);
                bytes.text(name);
                bytes.u8(*action);
            }
            LoggerCommand::Collect { security, mode, selections } => {
                bytes.u16(*security);
                bytes.u8(*mode);
                selections.iter().for_each(|selection| selection.write(&mut bytes));
            }
            LoggerCommand::Values { security, table, kind, field, count } => {
                bytes.u16(*security);
                bytes.text(table);
                bytes.u8(*kind);
                bytes.text(field);
                bytes.u16(*count);
            }
        }
        (protocol, bytes)
    }

    /// Security code, if the command has one.
    pub fn security(&self) -> Option<u16> {
        match self {
            LoggerCommand::Hello(_) | LoggerCommand::HelloRequest | LoggerCommand::Bye => None,
            LoggerCommand::Fetch(fetch) => Some(fetch.security),
            LoggerCommand::Store(store) => Some(store.security),
            LoggerCommand::Settings { security, .. }
            | LoggerCommand::Clock { security, .. }
            | LoggerCommand::Program { security }
            | LoggerCommand::Control { security, .. }
            | LoggerCommand::Collect { security, .. }
            | LoggerCommand::Values { security, .. } => Some(*security),
        }
    }

    /// Protocol and first byte of the command's message.
    pub(super) fn kind(&self) -> (u8, u8) {
        match self {
            LoggerCommand::Hello(_) => (PAKCTRL, kind::HELLO),
            LoggerCommand::HelloRequest => (PAKCTRL, kind::HELLO_REQUEST),
            LoggerCommand::Bye => (PAKCTRL, kind::BYE),
            LoggerCommand::Settings { .. } => (PAKCTRL, kind::SETTINGS),
            LoggerCommand::Clock { .. } => (BMP5, kind::CLOCK),
            LoggerCommand::Program { .. } => (BMP5, kind::PROGRAM),
            LoggerCommand::Fetch(_) => (BMP5, kind::FETCH),
            LoggerCommand::Store(_) => (BMP5, kind::STORE),
            LoggerCommand::Control { .. } => (BMP5, kind::CONTROL),
            LoggerCommand::Collect { .. } => (BMP5, kind::COLLECT),
            LoggerCommand::Values { .. } => (BMP5, kind::VALUES),
        }
    }
}

impl HelloFields {
    pub(super) fn read(reader: &mut MessageReader) -> Result<HelloFields, PakBusParseError> {
        Ok(HelloFields { is_router: reader.u8()? != 0, metric: reader.u8()?, verify: reader.u16()? })
    }

    pub(super) fn write(&self, bytes: &mut Vec<u8>) {
        bytes.u8(self.is_router.into());
        bytes.u8(self.metric);
        bytes.u16(self.verify);
    }
}

impl RecordSelection {
    fn read(mode: u8, reader: &mut MessageReader) -> Result<RecordSelection, PakBusParseError> {
        let (table, signature) = (reader.u16()?, reader.u16()?);
        let span = RecordRange::read(mode, reader)?;
        let mut fields = Vec::new();
        loop {
            match reader.u16()? {
                0 => return Ok(RecordSelection { table, signature, span, fields }),
                field => fields.push(field),
            }
        }
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.u16(self.table);
        bytes.u16(self.signature);
        self.span.write(bytes);
        self.fields.iter().for_each(|&field| bytes.u16(field));
        bytes.u16(0);
    }
}
