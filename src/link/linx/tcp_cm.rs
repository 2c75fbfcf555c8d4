//! The TCP connection manager of LINX, version 3: frames on a stream, the handshake, supervision. A state machine: bytes
//! in, bytes out, told the time.
//!
//! Not for what the messages mean (`rlnh`) nor for sockets.

use std::time::Duration;

use super::{Ending, Side};
use crate::clock::Time;

pub const VERSION: u8 = 3;

/// Bytes in front of every message.
pub const HEADER: usize = 16;

/// Most payload of one message; real nodes send no more.
pub const LARGEST: usize = 65_536;

/// Real nodes check each connection once in so long (`live_tmo`).
const CHECK: Duration = Duration::from_millis(1000);

/// A node that called and does not go on is given up after so long; real nodes choose 2 to 10 s.
const HANDSHAKE: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Connect,
    Data,
    Ping,
    Pong,
}

/// What stands in front of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub kind: Kind,
    pub out_of_band: bool,
    pub source: u32,
    pub destination: u32,
    pub size: u32,
}

impl Header {
    /// A frame without a message.
    fn bare(kind: Kind) -> Header {
        Header { kind, out_of_band: false, source: 0, destination: 0, size: 0 }
    }

    pub fn data(source: u32, destination: u32, size: usize) -> Header {
        Header { kind: Kind::Data, out_of_band: false, source, destination, size: size as u32 }
    }

    #[inline]
    pub fn write(&self) -> [u8; HEADER] {
        let kind = match self.kind {
            Kind::Connect => b'C',
            Kind::Data => b'U',
            Kind::Ping => b'P',
            Kind::Pong => b'Q',
        };
        let mut bytes = [0; HEADER];
        bytes[..4].copy_from_slice(&[kind, VERSION, u8::from(self.out_of_band) << 7, 0]);
        bytes[4..8].copy_from_slice(&self.source.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.destination.to_be_bytes());
        bytes[12..].copy_from_slice(&self.size.to_be_bytes());
        bytes
    }

    #[inline]
    pub fn read(bytes: &[u8; HEADER]) -> Result<Header, Ending> {
        let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let kind = match bytes[0] {
            b'U' => Kind::Data,
            b'C' => Kind::Connect,
            b'P' => Kind::Ping,
            b'Q' => Kind::Pong,
            _ => return Err(Ending::Broken("it does not speak LINX: no frame begins like this")),
        };
        if bytes[1] != VERSION {
            return Err(Ending::Version {
                of: "TCP connection manager",
                theirs: bytes[1].into(),
                ours: VERSION.into(),
            });
        }
        let header = Header {
            kind,
            out_of_band: bytes[2] & 0x80 != 0,
            source: word(4),
            destination: word(8),
            size: word(12),
        };
        if header.size as usize > LARGEST {
            return Err(Ending::Broken("a message is longer than LINX over TCP allows"));
        }
        Ok(header)
    }
}

/// The first frame of `bytes`: its header and its message, once all of it is there.
#[inline]
pub fn frame(bytes: &[u8]) -> Result<Option<(Header, &[u8])>, Ending> {
    let Some((head, rest)) = bytes.split_first_chunk::<HEADER>() else { return Ok(None) };
    let header = Header::read(head)?;
    Ok(rest.get(..header.size as usize).map(|message| (header, message)))
}

/// What a frame without a message brought about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    Nothing,
    /// Messages may go now.
    Up,
}

/// One connection.
#[derive(Debug)]
pub struct Connection {
    up: bool,
    side: Side,
    /// Something came since the last check.
    heard: bool,
    check: Time,
}

impl Connection {
    /// The stream is open; whoever opened it speaks first.
    pub fn new(side: Side, now: Time, out: &mut Vec<u8>) -> Connection {
        // A real node looks at our call only 2 to 10 s later, so it is the caller's to say how long that may take.
        let check = match side {
            Side::Active => {
                out.extend_from_slice(&Header::bare(Kind::Connect).write());
                Time::NEVER
            }
            Side::Passive => now + HANDSHAKE,
        };
        Connection { up: false, side, heard: false, check }
    }

    /// Whether messages may go.
    pub fn is_up(&self) -> bool {
        self.up
    }

    /// Data came.
    #[inline]
    pub fn message(&mut self) -> Result<(), Ending> {
        self.heard = true;
        if self.up {
            Ok(())
        } else {
            Err(Ending::Broken("it sent a message before the connection was agreed on"))
        }
    }

    /// A frame of another kind came.
    pub fn control(&mut self, kind: Kind, now: Time, out: &mut Vec<u8>) -> Result<Heard, Ending> {
        match kind {
            Kind::Connect if self.up => return Err(Ending::Closed),
            Kind::Connect => {
                if self.side == Side::Passive {
                    out.extend_from_slice(&Header::bare(Kind::Connect).write());
                }
                (self.up, self.heard, self.check) = (true, true, now + CHECK);
                return Ok(Heard::Up);
            }
            Kind::Ping if self.up => out.extend_from_slice(&Header::bare(Kind::Pong).write()),
            _ => {}
        }
        self.heard = true;
        Ok(Heard::Nothing)
    }

    /// When [`Connection::tick`] has something to do.
    pub fn due(&self) -> Time {
        self.check
    }

    /// Checks whether the far node lives. `unread`: bytes of it wait that nobody has read yet, so it does.
    pub fn tick(&mut self, now: Time, unread: bool, out: &mut Vec<u8>) -> Result<(), Ending> {
        if now < self.check {
            return Ok(());
        }
        if !self.up {
            return Err(Ending::Silent(
                "it did not answer as a LINX node: is it told to connect to this host?",
            ));
        }
        if !std::mem::take(&mut self.heard) && !unread {
            return Err(Ending::Silent("the far node fell silent"));
        }
        self.check = now + CHECK;
        out.extend_from_slice(&Header::bare(Kind::Ping).write());
        Ok(())
    }
}

#[cfg(test)]
mod tests;
