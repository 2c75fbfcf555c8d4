//! Messages: what a client asks of a logger. What the logger answers is in `reply.rs`.
//!
//! Files are *fetched* from the logger and *stored* on it; its makers call that upload and download.

use std::fmt;

use super::Malformed;
use super::packet::{BMP5, PAKCTRL};
use super::text::{Reader, Write};
use super::value::Instant;

pub(super) mod kind {
    //! The first byte of a message, by protocol. A reply has the top bit set.
    pub const HELLO: u8 = 0x09;
    pub const HELLO_REQUEST: u8 = 0x0E;
    pub const BYE: u8 = 0x0D;
    pub const SETTINGS: u8 = 0x0F;
    pub const REPLY: u8 = 0x80;
    pub const FAILURE: u8 = 0x81;

    pub const COLLECT: u8 = 0x09;
    pub const CLOCK: u8 = 0x17;
    pub const PROGRAM: u8 = 0x18;
    pub const VALUES: u8 = 0x1A;
    pub const STORE: u8 = 0x1C;
    pub const FETCH: u8 = 0x1D;
    pub const CONTROL: u8 = 0x1E;
    pub const PLEASE_WAIT: u8 = 0xA1;
}

/// How a logger took a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code(pub u8);

impl Code {
    pub const COMPLETE: Code = Code(0x00);
    pub const DENIED: Code = Code(0x01);
    pub const FULL: Code = Code(0x02);
    pub const OTHER_DEFINITION: Code = Code(0x07);
    pub const WRONG_FRAGMENT: Code = Code(0x09);
    pub const BAD_NAME: Code = Code(0x0D);
    pub const NO_SUCH_TABLE: Code = Code(0x10);
    pub const NO_CONVERSION: Code = Code(0x11);
    pub const OUT_OF_BOUNDS: Code = Code(0x12);
    pub const UNSUPPORTED: Code = Code(0x13);
}

impl fmt::Display for Code {
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

/// The fields of a hello and of its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    pub router: bool,
    /// 0 to 7: how long a way may take (0: 0.2 s, 1: 1 s, 2: 5 s …).
    pub metric: u8,
    /// How long a neighbour may be silent, in seconds.
    pub verify: u16,
}

/// What a client asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    Hello(Hello),
    /// Asks for a hello; nobody answers the message itself.
    HelloRequest,
    Bye,
    /// Settings by number, from the first to the last; all without.
    Settings {
        security: u16,
        range: Option<(u16, u16)>,
    },
    /// Moves the clock by so much, which may be nothing, and asks for it.
    Clock {
        security: u16,
        adjustment: Instant,
    },
    Program {
        security: u16,
    },
    Fetch(Fetch),
    Store(Store),
    /// 4 deletes a file; other actions start and stop programs.
    Control {
        security: u16,
        name: String,
        action: u8,
    },
    Collect {
        security: u16,
        mode: u8,
        selections: Vec<Selection>,
    },
    /// `count` values from a field on, each as a value of type `kind`.
    Values {
        security: u16,
        table: String,
        kind: u8,
        field: String,
        count: u16,
    },
}

/// A piece of a file on the logger. All pieces of a file have one transaction number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetch {
    pub security: u16,
    pub name: String,
    /// Nothing more is wanted of it.
    pub close: bool,
    pub offset: u32,
    /// Most bytes in the reply; fewer mean that the file ends there.
    pub swath: u16,
}

/// A piece of a file for the logger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Store {
    pub security: u16,
    /// May be empty after the first piece.
    pub name: String,
    /// This is the last piece.
    pub close: bool,
    pub offset: u32,
    pub data: Vec<u8>,
}

/// Records of one table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    /// Number of the table, from 1.
    pub table: u16,
    pub signature: u16,
    pub span: Span,
    /// Numbers of fields, from 1; none: all.
    pub fields: Vec<u16>,
}

/// Which records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Span {
    All,
    /// From this number on.
    From(u32),
    /// So many of the newest.
    Newest(u32),
    /// From the first number to below the second.
    Numbers(u32, u32),
    /// From the first time to before the second.
    Times(Instant, Instant),
    /// The rest of one long record, from a byte on.
    Rest(u32, u32),
}

impl Span {
    /// The mode under which a collection asks for it.
    pub fn mode(&self) -> u8 {
        match self {
            Span::All => 3,
            Span::From(_) => 4,
            Span::Newest(_) => 5,
            Span::Numbers(..) => 6,
            Span::Times(..) => 7,
            Span::Rest(..) => 8,
        }
    }

    fn read(mode: u8, reader: &mut Reader) -> Result<Span, Malformed> {
        Ok(match mode {
            3 => Span::All,
            4 => Span::From(reader.u32()?),
            5 => Span::Newest(reader.u32()?),
            6 => Span::Numbers(reader.u32()?, reader.u32()?),
            7 => Span::Times(reader.instant()?, reader.instant()?),
            8 => Span::Rest(reader.u32()?, reader.u32()?),
            _ => return Err(Malformed::Unknown),
        })
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        match *self {
            Span::All => {}
            Span::From(number) | Span::Newest(number) => bytes.u32(number),
            Span::Numbers(first, second) | Span::Rest(first, second) => {
                bytes.u32(first);
                bytes.u32(second);
            }
            Span::Times(first, second) => {
                bytes.instant(first);
                bytes.instant(second);
            }
        }
    }
}

impl Command {
    /// The transaction number and the command in a message; [`Malformed::Unknown`] for a kind not known here.
    pub fn read(protocol: u8, message: &[u8]) -> Result<(u8, Command), Malformed> {
        let mut reader = Reader(message);
        let (kind, transaction) = (reader.u8()?, reader.u8()?);
        let command = match protocol {
            PAKCTRL => Command::read_control(kind, &mut reader)?,
            BMP5 => Command::read_bmp5(kind, &mut reader)?,
            _ => return Err(Malformed::Unknown),
        };
        Ok((transaction, command))
    }

    fn read_control(kind: u8, reader: &mut Reader) -> Result<Command, Malformed> {
        Ok(match kind {
            kind::HELLO => Command::Hello(Hello::read(reader)?),
            kind::HELLO_REQUEST => Command::HelloRequest,
            kind::BYE => Command::Bye,
            // Some clients leave the security code out, and with it all that follows.
            kind::SETTINGS => {
                let security = if reader.is_empty() { 0 } else { reader.u16()? };
                let first = if reader.is_empty() { None } else { Some(reader.u16()?) };
                let last = if reader.is_empty() { u16::MAX } else { reader.u16()? };
                Command::Settings { security, range: first.map(|first| (first, last)) }
            }
            _ => return Err(Malformed::Unknown),
        })
    }

    fn read_bmp5(kind: u8, reader: &mut Reader) -> Result<Command, Malformed> {
        if kind & kind::REPLY != 0 {
            return Err(Malformed::Unknown);
        }
        Ok(match kind {
            kind::CLOCK => Command::Clock { security: reader.u16()?, adjustment: reader.instant()? },
            kind::PROGRAM => Command::Program { security: reader.u16()? },
            kind::FETCH => Command::Fetch(Fetch {
                security: reader.u16()?,
                name: reader.text()?,
                close: reader.u8()? != 0,
                offset: reader.u32()?,
                swath: reader.u16()?,
            }),
            kind::STORE => {
                let (security, name, _attribute) = (reader.u16()?, reader.text()?, reader.u8()?);
                let (close, offset) = (reader.u8()? != 0, reader.u32()?);
                Command::Store(Store { security, name, close, offset, data: reader.rest().to_vec() })
            }
            kind::CONTROL => {
                Command::Control { security: reader.u16()?, name: reader.text()?, action: reader.u8()? }
            }
            kind::COLLECT => {
                let (security, mode) = (reader.u16()?, reader.u8()?);
                let mut selections = Vec::new();
                while !reader.is_empty() {
                    selections.push(Selection::read(mode, reader)?);
                }
                Command::Collect { security, mode, selections }
            }
            kind::VALUES => Command::Values {
                security: reader.u16()?,
                table: reader.text()?,
                kind: reader.u8()?,
                field: reader.text()?,
                count: reader.u16()?,
            },
            _ => return Err(Malformed::Unknown),
        })
    }

    /// The protocol of the command, and its message.
    pub fn write(&self, transaction: u8) -> (u8, Vec<u8>) {
        let (protocol, kind) = self.kind();
        let mut bytes = vec![kind, transaction];
        match self {
            Command::Hello(hello) => hello.write(&mut bytes),
            Command::HelloRequest | Command::Bye => {}
            Command::Settings { security, range } => {
                bytes.u16(*security);
                if let Some((first, last)) = range {
                    bytes.u16(*first);
                    bytes.u16(*last);
                }
            }
            Command::Clock { security, adjustment } => {
                bytes.u16(*security);
                bytes.instant(*adjustment);
            }
            Command::Program { security } => bytes.u16(*security),
            Command::Fetch(fetch) => {
                bytes.u16(fetch.security);
                bytes.text(&fetch.name);
                bytes.u8(fetch.close.into());
                bytes.u32(fetch.offset);
                bytes.u16(fetch.swath);
            }
            Command::Store(store) => {
                bytes.u16(store.security);
                bytes.text(&store.name);
                bytes.u8(0);
                bytes.u8(store.close.into());
                bytes.u32(store.offset);
                bytes.extend(&store.data);
            }
            Command::Control { security, name, action } => {
                bytes.u16(*security);
                bytes.text(name);
                bytes.u8(*action);
            }
            Command::Collect { security, mode, selections } => {
                bytes.u16(*security);
                bytes.u8(*mode);
                selections.iter().for_each(|selection| selection.write(&mut bytes));
            }
            Command::Values { security, table, kind, field, count } => {
                bytes.u16(*security);
                bytes.text(table);
                bytes.u8(*kind);
                bytes.text(field);
                bytes.u16(*count);
            }
        }
        (protocol, bytes)
    }

    /// The security code, where a command carries one.
    pub fn security(&self) -> Option<u16> {
        match self {
            Command::Hello(_) | Command::HelloRequest | Command::Bye => None,
            Command::Fetch(fetch) => Some(fetch.security),
            Command::Store(store) => Some(store.security),
            Command::Settings { security, .. }
            | Command::Clock { security, .. }
            | Command::Program { security }
            | Command::Control { security, .. }
            | Command::Collect { security, .. }
            | Command::Values { security, .. } => Some(*security),
        }
    }

    /// Protocol and first byte.
    pub(super) fn kind(&self) -> (u8, u8) {
        match self {
            Command::Hello(_) => (PAKCTRL, kind::HELLO),
            Command::HelloRequest => (PAKCTRL, kind::HELLO_REQUEST),
            Command::Bye => (PAKCTRL, kind::BYE),
            Command::Settings { .. } => (PAKCTRL, kind::SETTINGS),
            Command::Clock { .. } => (BMP5, kind::CLOCK),
            Command::Program { .. } => (BMP5, kind::PROGRAM),
            Command::Fetch(_) => (BMP5, kind::FETCH),
            Command::Store(_) => (BMP5, kind::STORE),
            Command::Control { .. } => (BMP5, kind::CONTROL),
            Command::Collect { .. } => (BMP5, kind::COLLECT),
            Command::Values { .. } => (BMP5, kind::VALUES),
        }
    }
}

impl Hello {
    pub(super) fn read(reader: &mut Reader) -> Result<Hello, Malformed> {
        Ok(Hello { router: reader.u8()? != 0, metric: reader.u8()?, verify: reader.u16()? })
    }

    pub(super) fn write(&self, bytes: &mut Vec<u8>) {
        bytes.u8(self.router.into());
        bytes.u8(self.metric);
        bytes.u16(self.verify);
    }
}

impl Selection {
    fn read(mode: u8, reader: &mut Reader) -> Result<Selection, Malformed> {
        let (table, signature) = (reader.u16()?, reader.u16()?);
        let span = Span::read(mode, reader)?;
        let mut fields = Vec::new();
        loop {
            match reader.u16()? {
                0 => return Ok(Selection { table, signature, span, fields }),
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
