//! The frames of the Ethernet connection manager, version 3: a chain of headers, each of which says in its upper four bits
//! which one follows. The Ethernet header is not part of the chain.

use crate::field;

/// Ethernet type of LINX, since LINX 2.0.1.
pub const ETHERTYPE: u16 = 0x8911;
/// The Ethernet header in front of a frame.
pub const ETHERNET_HEADER_BYTES: usize = 14;
/// Headers before the data of a message.
pub const DATA_HEADER_BYTES: usize = 20;
/// Headers before the data of each further fragment of it.
pub const FRAGMENT_HEADER_BYTES: usize = 12;
/// The tag of a message that fits one frame.
pub const UNFRAGMENTED_TAG: u16 = 0x7fff;
/// Bytes of a handshake frame, as real nodes send it: enough for `mtu:1500`.
pub const CONNECT_BYTES: usize = 29;

const VERSION: u32 = 3;
const CONN: u32 = 1;
const UDATA: u32 = 2;
const FRAG: u32 = 3;
const ACK: u32 = 4;
const NACK: u32 = 5;
const NONE: u32 = 15;

/// An Ethernet address, in transmission order.
pub type MacAddress = [u8; 6];

/// The type of a handshake frame, as on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectKind {
    /// Ends a connection or a handshake.
    Reset = 1,
    /// The active node starts.
    Connect = 2,
    /// The passive node accepts.
    ConnectAck = 3,
    /// The active node confirms.
    Ack = 4,
}

/// A frame of the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandshakeFrame {
    /// The step of the handshake.
    pub kind: ConnectKind,
    /// Frames in flight at once, as a power of two.
    pub window: u8,
    /// The ID that frames to its sender must carry.
    pub id: u8,
    /// The largest frame of its sender, if stated.
    pub mtu: Option<u16>,
}

/// Content after the acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body<'a> {
    /// No content.
    Empty,
    /// `count` frames are missing from `first` on.
    Nack {
        /// Sequence number of the first.
        first: u16,
        /// Number of missing frames.
        count: u8,
    },
    /// A part of a message. The first part says from whom and to whom.
    Data {
        /// Addresses of the sending and the receiving endpoint, in the first part.
        addresses: Option<(u32, u32)>,
        /// More parts follow.
        more: bool,
        /// Joins the parts.
        tag: u16,
        /// The payload.
        bytes: &'a [u8],
    },
}

/// A parsed frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame<'a> {
    /// Frame of the handshake.
    Connect(HandshakeFrame),
    /// Any other frame.
    Ack {
        /// The ID that its receiver gave.
        id: u8,
        /// Asks for an acknowledgement at once.
        wants_ack: bool,
        /// The next sequence number that its sender expects.
        ack: u16,
        /// The number of a frame with data.
        sequence: u16,
        /// The rest.
        body: Body<'a>,
    },
}

impl Frame<'_> {
    /// Parses a frame, which may be padded; `None` if it is malformed or of another version.
    pub fn parse(bytes: &[u8]) -> Option<Frame<'_>> {
        // The optional header for several cores has a fixed length and holds nothing that is needed here.
        let start = if bytes.first()? >> 4 == 0 { 4 } else { 0 };
        let main = field::read_u32(bytes, start)?;
        let bytes = bytes.get(start..(main & 0x3fff) as usize).filter(|_| main >> 25 & 7 == VERSION)?;
        match main >> 28 {
            CONN => HandshakeFrame::parse(bytes).map(Frame::Connect),
            ACK => {
                let ack = field::read_u32(bytes, 4)?;
                Some(Frame::Ack {
                    id: (main >> 15) as u8,
                    wants_ack: ack >> 27 & 1 != 0,
                    ack: (ack >> 12 & 0xfff) as u16,
                    sequence: (ack & 0xfff) as u16,
                    body: Body::parse(bytes, ack >> 28)?,
                })
            }
            _ => None,
        }
    }
}

impl Body<'_> {
    fn parse(bytes: &[u8], kind: u32) -> Option<Body<'_>> {
        if kind == NONE {
            return Some(Body::Empty);
        }
        let head = field::read_u32(bytes, 8).filter(|head| head >> 28 == NONE)?;
        let (more, tag) = (head >> 15 & 1 != 0, (head & 0x7fff) as u16);
        match kind {
            NACK => Some(Body::Nack { first: (head & 0xfff) as u16, count: (head >> 16) as u8 }),
            FRAG => {
                Some(Body::Data { addresses: None, more, tag, bytes: bytes.get(FRAGMENT_HEADER_BYTES..)? })
            }
            UDATA => Some(Body::Data {
                addresses: Some((field::read_u32(bytes, 16)?, field::read_u32(bytes, 12)?)),
                more,
                tag,
                bytes: bytes.get(DATA_HEADER_BYTES..)?,
            }),
            _ => None,
        }
    }
}

impl HandshakeFrame {
    fn parse(bytes: &[u8]) -> Option<HandshakeFrame> {
        let head = field::read_u32(bytes, 4)?;
        let kind = [ConnectKind::Reset, ConnectKind::Connect, ConnectKind::ConnectAck, ConnectKind::Ack]
            .into_iter()
            .find(|kind| *kind as u32 == head >> 24 & 15)?;
        if head >> 28 != NONE || head >> 21 & 7 != 6 {
            return None;
        }
        let features = bytes.get(20..)?.split(|&byte| byte == 0).next()?;
        let mut mtus = features.split(|&byte| byte == b',').filter_map(|text| text.strip_prefix(b"mtu:"));
        let mtu = mtus.next().and_then(|digits| str::from_utf8(digits).ok()?.parse().ok());
        Some(HandshakeFrame { kind, window: (head >> 17 & 15) as u8, id: head as u8, mtu })
    }

    /// Writes the frame; the MTU, if stated, is 1500. Returns its length.
    pub fn write(&self, [to, from]: [MacAddress; 2], into: &mut [u8]) -> usize {
        let Some(into) = into.get_mut(..CONNECT_BYTES) else { return 0 };
        into.fill(0);
        let head = NONE << 28
            | (self.kind as u32) << 24
            | 6 << 21
            | u32::from(self.window) << 17
            | u32::from(self.id);
        field::write(into, 0, main_word(CONN, 0, CONNECT_BYTES));
        field::write(into, 4, head.to_be_bytes());
        field::write(into, 8, to);
        field::write(into, 14, from);
        if self.mtu.is_some() {
            field::write(into, 20, *b"mtu:1500");
        }
        CONNECT_BYTES
    }
}

fn main_word(next: u32, id: u8, size: usize) -> [u8; 4] {
    (next << 28 | VERSION << 25 | u32::from(id) << 15 | size as u32).to_be_bytes()
}

/// Content of the headers of a frame outside the handshake.
#[derive(Debug, Clone, Copy)]
pub struct Headers {
    /// The ID that the receiver gave.
    pub id: u8,
    /// Asks for an acknowledgement at once.
    pub wants_ack: bool,
    /// The next expected sequence number.
    pub ack: u16,
    /// The number of a frame with data.
    pub sequence: u16,
}

impl Headers {
    /// Writes the headers of `body`, whose data follow, and returns their length.
    pub fn write(&self, body: &Body, into: &mut [u8]) -> usize {
        let (kind, bytes, head) = match *body {
            Body::Empty => (NONE, 8, 0),
            Body::Nack { first, count } => (NACK, 12, u32::from(count) << 16 | u32::from(first & 0xfff)),
            Body::Data { addresses, more, tag, .. } => {
                let (kind, bytes) = match addresses {
                    Some(_) => (UDATA, DATA_HEADER_BYTES),
                    None => (FRAG, FRAGMENT_HEADER_BYTES),
                };
                (kind, bytes, u32::from(more) << 15 | u32::from(tag))
            }
        };
        let data_bytes = if let Body::Data { bytes, .. } = body { bytes.len() } else { 0 };
        let ack = kind << 28
            | u32::from(self.wants_ack) << 27
            | u32::from(self.ack & 0xfff) << 12
            | u32::from(self.sequence & 0xfff);
        field::write(into, 0, main_word(ACK, self.id, bytes + data_bytes));
        field::write(into, 4, ack.to_be_bytes());
        if bytes > 8 {
            field::write(into, 8, (NONE << 28 | head).to_be_bytes());
        }
        if let Body::Data { addresses: Some((source, destination)), .. } = *body {
            field::write(into, 12, destination.to_be_bytes());
            field::write(into, 16, source.to_be_bytes());
        }
        bytes
    }
}
