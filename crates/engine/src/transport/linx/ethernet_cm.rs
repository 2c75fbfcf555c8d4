//! The Ethernet connection manager of LINX, version 3: parses and encodes frames. `connection` implements
//! their effects.
//!
//! A frame is a chain of headers. The upper four bits of each header give the type of the next one. The
//! Ethernet header is not part of the chain.

use super::DisconnectReason;
pub use linkgauge_responder::linx::frame::ConnectKind;
pub(crate) use linkgauge_responder::linx::frame::MacAddress;

pub mod connection;

/// The protocol version, sent in each frame.
pub(crate) const VERSION: u32 = 3;

/// Number of frames of at most `mtu` bytes that a message needs.
pub(crate) fn frame_count(message_bytes: usize, mtu: usize) -> u32 {
    let (first, further) =
        (mtu.saturating_sub(DATA_HEADER_BYTES), mtu.saturating_sub(FRAGMENT_HEADER_BYTES).max(1));
    let rest = message_bytes.saturating_sub(first).div_ceil(further);
    u32::try_from(rest).map_or(u32::MAX, |rest| rest.saturating_add(1))
}

/// Type of Ethernet frames of LINX, since LINX 2.0.1.
pub(crate) const ETHERTYPE: u16 = 0x8911;

/// Largest frame: a 14-bit field.
pub(crate) const MAX_FRAME_BYTES: usize = (1 << 14) - 1;

/// Header bytes before the data of a message, and of each further fragment of it.
pub(crate) const DATA_HEADER_BYTES: usize = 20;
/// Header bytes before the data of each further fragment.
pub(crate) const FRAGMENT_HEADER_BYTES: usize = 12;

/// The tag of a message that fits one frame.
pub const UNFRAGMENTED_TAG: u16 = 0x7fff;

const CONN: u32 = 1;
const UDATA: u32 = 2;
const FRAG: u32 = 3;
const ACK: u32 = 4;
const NACK: u32 = 5;
const NONE: u32 = 15;

/// A frame of the handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectFrame {
    /// The step of the handshake.
    pub kind: ConnectKind,
    /// Frames in flight at once, as a power of two.
    pub window: u8,
    /// The ID that frames to its sender must carry; 0 if the sender distinguishes nodes by their addresses.
    pub id: u8,
    /// Address of the receiver.
    pub to: MacAddress,
    /// Address of the sender.
    pub from: MacAddress,
    /// Largest frame that the sender can receive, if it states one.
    pub mtu: Option<usize>,
}

/// The part of a frame after the acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameBody<'a> {
    /// An acknowledgement alone.
    Empty,
    /// `count` frames are missing, starting with this one.
    Nack {
        /// Sequence number of the first missing frame.
        first: u16,
        /// Number of missing frames.
        count: u8,
    },
    /// A message or its beginning.
    Data {
        /// Whether the message may overtake others (LINX attribute "out of band").
        out_of_band: bool,
        /// Whether fragments follow.
        more: bool,
        /// Joins the fragments of a message; [`UNFRAGMENTED_TAG`] if there are none.
        tag: u16,
        /// Address of the receiving endpoint.
        destination: u32,
        /// Address of the sending endpoint.
        source: u32,
        /// The payload in this frame.
        bytes: &'a [u8],
    },
    /// A further part of a message.
    Fragment {
        /// Whether more fragments follow.
        more: bool,
        /// The tag of the message.
        tag: u16,
        /// The payload in this frame.
        bytes: &'a [u8],
    },
}

/// A parsed frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EthernetFrame<'a> {
    /// A frame of the handshake.
    Connect(ConnectFrame),
    /// `ack`: the next expected sequence number; `id`: the ID that the receiver requested.
    Ack {
        /// The ID that the receiver requested in the handshake.
        id: u8,
        /// Whether the sender requests an acknowledgement.
        request: AckRequest,
        /// The next expected sequence number, 0 to 4095.
        ack: u16,
        /// The sequence number of a frame with data, 0 to 4095.
        sequence: u16,
        /// The rest of the frame.
        body: FrameBody<'a>,
    },
}

fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

const MALFORMED: DisconnectReason =
    DisconnectReason::ProtocolError("a frame of the remote node is malformed");

impl EthernetFrame<'_> {
    /// Parses a frame, which may be padded.
    ///
    /// # Errors
    ///
    /// Fails for a malformed frame and for another protocol version.
    pub(crate) fn parse(bytes: &[u8]) -> Result<EthernetFrame<'_>, DisconnectReason> {
        // The optional header for several cores has a fixed length and holds nothing that is needed here.
        let start = if bytes.first().is_some_and(|byte| byte >> 4 == 0) { 4 } else { 0 };
        let main = read_u32(bytes, start).ok_or(MALFORMED)?;
        let version = main >> 25 & 7;
        if version != VERSION {
            return Err(DisconnectReason::VersionMismatch {
                protocol: "Ethernet connection manager",
                remote_version: version,
                local_version: VERSION,
            });
        }
        let size = (main & 0x3fff) as usize;
        let bytes = bytes.get(..size).and_then(|bytes| bytes.get(start..)).ok_or(MALFORMED)?;
        match main >> 28 {
            CONN => ConnectFrame::parse(bytes).map(EthernetFrame::Connect).ok_or(MALFORMED),
            ACK => {
                let ack = read_u32(bytes, 4).ok_or(MALFORMED)?;
                let body = parse_body(bytes, ack >> 28).ok_or(MALFORMED)?;
                Ok(EthernetFrame::Ack {
                    id: (main >> 15) as u8,
                    request: if ack >> 27 & 1 != 0 { AckRequest::Wanted } else { AckRequest::None },
                    ack: (ack >> 12 & 0xfff) as u16,
                    sequence: (ack & 0xfff) as u16,
                    body,
                })
            }
            _ => Err(MALFORMED),
        }
    }
}

fn parse_body(bytes: &[u8], next: u32) -> Option<FrameBody<'_>> {
    if next == NONE {
        return Some(FrameBody::Empty);
    }
    let head = read_u32(bytes, 8)?;
    // Only data follows.
    if head >> 28 != NONE {
        return None;
    }
    let (more, tag) = (head >> 15 & 1 != 0, (head & 0x7fff) as u16);
    match next {
        NACK => Some(FrameBody::Nack { first: (head & 0xfff) as u16, count: (head >> 16) as u8 }),
        FRAG => Some(FrameBody::Fragment { more, tag, bytes: bytes.get(FRAGMENT_HEADER_BYTES..)? }),
        UDATA => Some(FrameBody::Data {
            out_of_band: head >> 27 & 1 != 0,
            more,
            tag,
            destination: read_u32(bytes, 12)?,
            source: read_u32(bytes, 16)?,
            bytes: bytes.get(DATA_HEADER_BYTES..)?,
        }),
        _ => None,
    }
}

fn main_word(next: u32, id: u8, size: usize) -> [u8; 4] {
    (next << 28 | VERSION << 25 | u32::from(id) << 15 | size as u32).to_be_bytes()
}

/// Whether a frame requests an acknowledgement, as the bit of the frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AckRequest {
    /// The sender requests no acknowledgement.
    None = 0,
    /// The receiver acknowledges at once.
    Wanted = 1,
}

/// The second word of every frame outside the handshake.
fn ack_word(next: u32, request: AckRequest, ack: u16, sequence: u16) -> [u8; 4] {
    (next << 28 | (request as u32) << 27 | u32::from(ack & 0xfff) << 12 | u32::from(sequence & 0xfff))
        .to_be_bytes()
}

/// A frame that only acknowledges.
pub fn encode_ack(id: u8, request: AckRequest, ack: u16) -> [u8; 8] {
    let mut frame = [0; 8];
    frame[..4].copy_from_slice(&main_word(ACK, id, 8));
    frame[4..].copy_from_slice(&ack_word(NONE, request, ack, 0));
    frame
}

/// A frame that requests `count` missing frames again, from sequence number `first`.
pub fn encode_nack(id: u8, ack: u16, first: u16, count: u8) -> [u8; 12] {
    let mut frame = [0; 12];
    frame[..4].copy_from_slice(&main_word(ACK, id, 12));
    frame[4..8].copy_from_slice(&ack_word(NACK, AckRequest::None, ack, 0));
    let head = NONE << 28 | u32::from(count) << 16 | u32::from(first & 0xfff);
    frame[8..].copy_from_slice(&head.to_be_bytes());
    frame
}

/// The fields of the first frame of a message.
pub struct DataHeader {
    /// The connection ID of the receiver.
    pub id: u8,
    /// Whether further frames of the message follow.
    pub has_more: bool,
    /// Joins the fragments of a message; [`UNFRAGMENTED_TAG`] if there are none.
    pub tag: u16,
    /// Address of the receiving endpoint.
    pub to: u32,
    /// Address of the sending endpoint.
    pub from: u32,
}

/// The first frame of a message, with data in two parts. [`write_sequence`] writes acknowledgement and
/// sequence number.
pub fn encode_data(header: &DataHeader, parts: [&[u8]; 2], frame: &mut Vec<u8>) {
    let &DataHeader { id, has_more: more, tag, to, from } = header;
    frame.extend_from_slice(&main_word(ACK, id, DATA_HEADER_BYTES + parts[0].len() + parts[1].len()));
    frame.extend_from_slice(&ack_word(UDATA, AckRequest::None, 0, 0));
    frame.extend_from_slice(&(NONE << 28 | u32::from(more) << 15 | u32::from(tag)).to_be_bytes());
    frame.extend_from_slice(&to.to_be_bytes());
    frame.extend_from_slice(&from.to_be_bytes());
    parts.iter().for_each(|part| frame.extend_from_slice(part));
}

/// A further frame of a message.
pub fn encode_fragment(id: u8, more: bool, tag: u16, bytes: &[u8], frame: &mut Vec<u8>) {
    frame.extend_from_slice(&main_word(ACK, id, FRAGMENT_HEADER_BYTES + bytes.len()));
    frame.extend_from_slice(&ack_word(FRAG, AckRequest::None, 0, 0));
    frame.extend_from_slice(&(NONE << 28 | u32::from(more) << 15 | u32::from(tag)).to_be_bytes());
    frame.extend_from_slice(bytes);
}

/// Writes the fields of a message frame that are known only when it is sent.
pub fn write_sequence(frame: &mut [u8], request: AckRequest, ack: u16, sequence: u16) {
    let next = u32::from(frame[4] >> 4);
    frame[4..8].copy_from_slice(&ack_word(next, request, ack, sequence));
}

impl ConnectFrame {
    fn parse(bytes: &[u8]) -> Option<ConnectFrame> {
        let head = read_u32(bytes, 4)?;
        let kind = match head >> 24 & 15 {
            1 => ConnectKind::Reset,
            2 => ConnectKind::Connect,
            3 => ConnectKind::ConnectAck,
            4 => ConnectKind::Ack,
            _ => return None,
        };
        // All known frames have addresses of six bytes and nothing behind them.
        if head >> 28 != NONE || head >> 21 & 7 != 6 {
            return None;
        }
        let features = bytes.get(20..)?;
        let features = features.split(|&byte| byte == 0).next().and_then(|text| str::from_utf8(text).ok())?;
        let mtu = features.split(',').find_map(|feature| feature.strip_prefix("mtu:")?.parse().ok());
        Some(ConnectFrame {
            kind,
            window: (head >> 17 & 15) as u8,
            id: head as u8,
            to: *bytes.get(8..)?.first_chunk()?,
            from: *bytes.get(14..)?.first_chunk()?,
            mtu,
        })
    }

    /// Uses the length that real nodes use: enough for their longest features.
    pub fn encode(&self) -> Vec<u8> {
        let feature_bytes = format!("mtu:{}", self.mtu.unwrap_or(1500)).len() + 1;
        let size = 20 + feature_bytes;
        let mut bytes = main_word(CONN, 0, size).to_vec();
        let head = NONE << 28
            | (self.kind as u32) << 24
            | 6 << 21
            | u32::from(self.window) << 17
            | u32::from(self.id);
        bytes.extend_from_slice(&head.to_be_bytes());
        bytes.extend_from_slice(&self.to);
        bytes.extend_from_slice(&self.from);
        if let Some(mtu) = self.mtu {
            bytes.extend_from_slice(format!("mtu:{mtu}").as_bytes());
        }
        bytes.resize(size, 0);
        bytes
    }
}

#[cfg(test)]
mod tests;
