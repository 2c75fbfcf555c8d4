//! The TCP connection manager of LINX, version 3: frames on a stream, the handshake, supervision. A state
//! machine: bytes in, bytes out; the caller gives the time.
//!
//! `rlnh` interprets the messages.

use std::time::Duration;

use super::{ConnectionRole, DisconnectReason};
use linkgauge_model::clock::Time;

/// The protocol version, sent in each header.
pub(crate) const VERSION: u8 = 3;

/// Header bytes before every message.
pub const HEADER_BYTES: usize = 16;

/// Largest payload of one message; real nodes send no more.
pub(crate) const MAX_MESSAGE_BYTES: usize = 65_536;

/// Interval at which real nodes check each connection (`live_tmo`).
const CHECK_INTERVAL: Duration = Duration::from_millis(1000);

/// Timeout for the handshake of an incoming call; real nodes use 2 to 10 s.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// The type of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameKind {
    /// A step of the handshake.
    Connect,
    /// A message between endpoints or nodes.
    Data,
    /// Requests a sign of life from the remote node.
    Ping,
    /// The reply to a ping.
    Pong,
}

/// The header of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    /// The type of the frame.
    pub kind: FrameKind,
    /// The message may overtake others (LINX attribute "out of band").
    pub(crate) out_of_band: bool,
    /// Address of the sending endpoint; 0 for the node itself.
    pub source: u32,
    /// Address of the receiving endpoint; 0 for the node itself.
    pub destination: u32,
    /// Bytes of the message after the header, at most `MAX_MESSAGE_BYTES`.
    pub size: u32,
}

impl FrameHeader {
    /// The header of a frame without a message.
    fn without_message(kind: FrameKind) -> FrameHeader {
        FrameHeader { kind, out_of_band: false, source: 0, destination: 0, size: 0 }
    }

    /// The header of a message of `size` bytes.
    pub fn data(source: u32, destination: u32, size: usize) -> FrameHeader {
        FrameHeader { kind: FrameKind::Data, out_of_band: false, source, destination, size: size as u32 }
    }

    /// The header as bytes, in network order.
    #[inline]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let kind = match self.kind {
            FrameKind::Connect => b'C',
            FrameKind::Data => b'U',
            FrameKind::Ping => b'P',
            FrameKind::Pong => b'Q',
        };
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&[kind, VERSION, u8::from(self.out_of_band) << 7, 0]);
        bytes[4..8].copy_from_slice(&self.source.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.destination.to_be_bytes());
        bytes[12..].copy_from_slice(&self.size.to_be_bytes());
        bytes
    }

    /// Parses a header.
    ///
    /// # Errors
    ///
    /// Fails for an unknown type, another protocol version, and a message above `MAX_MESSAGE_BYTES`.
    #[inline]
    pub fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<FrameHeader, DisconnectReason> {
        let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let kind = match bytes[0] {
            b'U' => FrameKind::Data,
            b'C' => FrameKind::Connect,
            b'P' => FrameKind::Ping,
            b'Q' => FrameKind::Pong,
            _ => {
                return Err(DisconnectReason::ProtocolError(
                    "the node does not use LINX: no LINX frame begins with these bytes",
                ));
            }
        };
        if bytes[1] != VERSION {
            return Err(DisconnectReason::VersionMismatch {
                protocol: "TCP connection manager",
                remote_version: bytes[1].into(),
                local_version: VERSION.into(),
            });
        }
        let header = FrameHeader {
            kind,
            out_of_band: bytes[2] & 0x80 != 0,
            source: word(4),
            destination: word(8),
            size: word(12),
        };
        if header.size as usize > MAX_MESSAGE_BYTES {
            return Err(DisconnectReason::ProtocolError("a message is longer than LINX over TCP allows"));
        }
        Ok(header)
    }
}

/// The first frame of `bytes`, header and message, once it is complete.
///
/// # Errors
///
/// As [`FrameHeader::parse`].
#[inline]
pub fn split_first_frame(bytes: &[u8]) -> Result<Option<(FrameHeader, &[u8])>, DisconnectReason> {
    let Some((head, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else { return Ok(None) };
    let header = FrameHeader::parse(head)?;
    Ok(rest.get(..header.size as usize).map(|message| (header, message)))
}

/// The effect of a frame without a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControlOutcome {
    /// The caller has nothing to do.
    Nothing,
    /// Messages may be sent now.
    Up,
}

/// One connection.
#[derive(Debug)]
pub struct TcpConnection {
    is_up: bool,
    role: ConnectionRole,
    /// Whether data arrived since the last check.
    has_traffic: bool,
    next_check: Time,
}

impl TcpConnection {
    /// Makes the connection of an open stream; the side that opened it sends first.
    pub fn new(side: ConnectionRole, now: Time, out: &mut Vec<u8>) -> TcpConnection {
        // A real node looks at our call only after 2 to 10 s, so the caller limits that time.
        let check = match side {
            ConnectionRole::Active => {
                out.extend_from_slice(&FrameHeader::without_message(FrameKind::Connect).encode());
                Time::NEVER
            }
            ConnectionRole::Passive => now + HANDSHAKE_TIMEOUT,
        };
        TcpConnection { is_up: false, role: side, has_traffic: false, next_check: check }
    }

    /// Whether messages may be sent.
    pub(crate) fn is_up(&self) -> bool {
        self.is_up
    }

    /// Handles the arrival of a data frame.
    ///
    /// # Errors
    ///
    /// Fails if the handshake is not complete.
    #[inline]
    pub fn note_data(&mut self) -> Result<(), DisconnectReason> {
        self.has_traffic = true;
        if self.is_up {
            Ok(())
        } else {
            Err(DisconnectReason::ProtocolError("it sent a message before the connection was agreed on"))
        }
    }

    /// Handles the arrival of a control frame.
    ///
    /// # Errors
    ///
    /// Fails if the remote node starts a second handshake.
    pub fn handle_control(
        &mut self,
        kind: FrameKind,
        now: Time,
        out: &mut Vec<u8>,
    ) -> Result<ControlOutcome, DisconnectReason> {
        match kind {
            FrameKind::Connect if self.is_up => return Err(DisconnectReason::Closed),
            FrameKind::Connect => {
                if self.role == ConnectionRole::Passive {
                    out.extend_from_slice(&FrameHeader::without_message(FrameKind::Connect).encode());
                }
                (self.is_up, self.has_traffic, self.next_check) = (true, true, now + CHECK_INTERVAL);
                return Ok(ControlOutcome::Up);
            }
            FrameKind::Ping if self.is_up => {
                out.extend_from_slice(&FrameHeader::without_message(FrameKind::Pong).encode())
            }
            _ => {}
        }
        self.has_traffic = true;
        Ok(ControlOutcome::Nothing)
    }

    /// The next time at which [`TcpConnection::tick`] has work.
    pub(crate) fn next_due(&self) -> Time {
        self.next_check
    }

    /// Checks whether the remote node is alive. `unread`: bytes of it wait to be read, so it is.
    ///
    /// # Errors
    ///
    /// Fails if the remote node is silent for too long.
    pub fn tick(&mut self, now: Time, unread: bool, out: &mut Vec<u8>) -> Result<(), DisconnectReason> {
        if now < self.next_check {
            return Ok(());
        }
        if !self.is_up {
            return Err(DisconnectReason::Timeout(
                "it did not reply as a LINX node. Check that it is configured to connect to this host",
            ));
        }
        if !std::mem::take(&mut self.has_traffic) && !unread {
            return Err(DisconnectReason::Timeout("the remote node stopped replying"));
        }
        self.next_check = now + CHECK_INTERVAL;
        out.extend_from_slice(&FrameHeader::without_message(FrameKind::Ping).encode());
        Ok(())
    }
}

#[cfg(test)]
mod tests;
