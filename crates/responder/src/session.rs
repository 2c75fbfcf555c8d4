//! The device protocol: latency and throughput in five binary messages, the same on streams and in packets.
//!
//! Every message starts with a header of 16 bytes, big-endian:
//!
//! | offset | field |
//! | --- | --- |
//! | 0 | `LG` |
//! | 2 | kind: 1 hello, 2 echo, 3 data, 4 end, 5 report; a reply has bit 7 set |
//! | 3 | version: 1 |
//! | 4 | bytes of the message with its header, 16 to 65535 |
//! | 6 | session: a number that the client draws |
//! | 8 | number of the message, 48 bits |
//! | 14 | the Internet checksum (RFC 1071) of the other 14 bytes |
//!
//! * **hello** (from 32 bytes on) begins a session and sets its counts to 0. Its reply says what the device is: the largest
//!   message (32 bits) and the length of a tick of its clock in nanoseconds (32 bits), then zeros.
//! * **echo** comes back as it is, but for the bit of the reply and the checksum.
//! * **data** is counted; it has no reply. **end** ends them; its number is that of all data messages sent.
//! * **report** (from 56 bytes on) comes back with five counts of 64 bits: data messages and bytes, nanoseconds from the first
//!   to the last data message, missing messages, messages that came again.
//!
//! No reply is longer than its request. On a stream the header is what separates the messages; after a damaged one the
//! device looks for the next header byte by byte. No message is stored: an echo flows through.

use crate::{Progress, field};

/// Bytes of the header.
pub const HEADER_BYTES: usize = 16;
/// Shortest request for, and length of, a reply that says what the device is.
pub const HELLO_BYTES: usize = 32;
/// Shortest request for, and length of, a report.
pub const REPORT_BYTES: usize = 56;
/// The longest message that the header can express.
pub const MAX_MESSAGE_BYTES: usize = u16::MAX as usize;

const MAGIC: [u8; 2] = *b"LG";
const VERSION: u8 = 1;
const REPLY: u8 = 0x80;

/// Purpose of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum DeviceMessage {
    /// Begins a session.
    Hello = 1,
    /// Comes back.
    Echo = 2,
    /// Is counted.
    Data = 3,
    /// Ends the data.
    End = 4,
    /// Asks for the counts.
    Report = 5,
}

/// The header of every message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceHeader {
    /// Purpose of the message.
    pub kind: DeviceMessage,
    /// Whether it answers one of that kind.
    pub is_reply: bool,
    /// Bytes of the message, this header included.
    pub length: u16,
    /// The session that it belongs to.
    pub session: u16,
    /// Number of the message, below 2⁴⁸.
    pub number: u64,
}

impl DeviceHeader {
    /// Reads a header; `None` if these bytes are none.
    pub fn read(bytes: &[u8; HEADER_BYTES]) -> Option<DeviceHeader> {
        let [m0, m1, kind, version, l0, l1, s0, s1, n5, n4, n3, n2, n1, n0, _, _] = *bytes;
        let length = u16::from_be_bytes([l0, l1]);
        if [m0, m1] != MAGIC || version != VERSION || checksum(bytes) != 0 || (length as usize) < HEADER_BYTES
        {
            return None;
        }
        let kind_of = |byte| {
            [
                DeviceMessage::Hello,
                DeviceMessage::Echo,
                DeviceMessage::Data,
                DeviceMessage::End,
                DeviceMessage::Report,
            ]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
        };
        Some(DeviceHeader {
            kind: kind_of(kind & !REPLY)?,
            is_reply: kind & REPLY != 0,
            length,
            session: u16::from_be_bytes([s0, s1]),
            number: u64::from_be_bytes([0, 0, n5, n4, n3, n2, n1, n0]),
        })
    }

    /// The header as bytes.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let ([l0, l1], [s0, s1]) = (self.length.to_be_bytes(), self.session.to_be_bytes());
        let [_, _, n5, n4, n3, n2, n1, n0] = self.number.to_be_bytes();
        let kind = self.kind as u8 | if self.is_reply { REPLY } else { 0 };
        let mut bytes = [MAGIC[0], MAGIC[1], kind, VERSION, l0, l1, s0, s1, n5, n4, n3, n2, n1, n0, 0, 0];
        let sum = checksum(&bytes);
        field::write(&mut bytes, HEADER_BYTES - 2, sum.to_be_bytes());
        bytes
    }

    /// The header of the reply, which has this length.
    fn reply(self, length: usize) -> DeviceHeader {
        DeviceHeader { is_reply: true, length: length as u16, ..self }
    }
}

/// The Internet checksum; 0 over bytes that end with theirs.
fn checksum(bytes: &[u8; HEADER_BYTES]) -> u16 {
    let sum =
        bytes.chunks_exact(2).fold(0, |sum, pair| sum + u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

/// Properties of a device, as it reports them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Device {
    /// The largest message that it takes.
    pub max_message_bytes: u32,
    /// Nanoseconds by which its clock advances at a time.
    pub tick_ns: u32,
}

impl Device {
    /// Reads the reply to a hello; `None` if it is none.
    pub fn read(message: &[u8]) -> Option<Device> {
        let header = DeviceHeader::read(message.first_chunk()?)?;
        (header.kind == DeviceMessage::Hello && header.is_reply && message.len() >= HELLO_BYTES)
            .then_some(())?;
        Some(Device {
            max_message_bytes: field::read_u32(message, HEADER_BYTES)?,
            tick_ns: field::read_u32(message, HEADER_BYTES + 4)?,
        })
    }

    fn reply_to(self, request: DeviceHeader) -> Reply {
        let mut bytes = [0; REPORT_BYTES];
        field::write(&mut bytes, 0, request.reply(HELLO_BYTES).encode());
        field::write(&mut bytes, HEADER_BYTES, self.max_message_bytes.to_be_bytes());
        field::write(&mut bytes, HEADER_BYTES + 4, self.tick_ns.to_be_bytes());
        Reply { bytes, length: HELLO_BYTES as u8 }
    }
}

/// Counts of a device in a session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeviceCounts {
    /// Data messages.
    pub messages: u64,
    /// Bytes of the data messages, headers included.
    pub bytes: u64,
    /// Time from the first to the last data message, in nanoseconds.
    pub elapsed_ns: u64,
    /// Messages that did not come: of those that the end announced, or else of those before the latest.
    pub missing: u64,
    /// Messages that came more than once.
    pub duplicate: u64,
}

impl DeviceCounts {
    /// Reads a report; `None` if it is none.
    pub fn read(message: &[u8]) -> Option<DeviceCounts> {
        let header = DeviceHeader::read(message.first_chunk()?)?;
        (header.kind == DeviceMessage::Report && header.is_reply && message.len() >= REPORT_BYTES)
            .then_some(())?;
        let count = |index: usize| field::read(message, HEADER_BYTES + 8 * index).map(u64::from_be_bytes);
        Some(DeviceCounts {
            messages: count(0)?,
            bytes: count(1)?,
            elapsed_ns: count(2)?,
            missing: count(3)?,
            duplicate: count(4)?,
        })
    }

    fn reply_to(&self, request: DeviceHeader) -> Reply {
        let mut bytes = [0; REPORT_BYTES];
        field::write(&mut bytes, 0, request.reply(REPORT_BYTES).encode());
        let counts = [self.messages, self.bytes, self.elapsed_ns, self.missing, self.duplicate];
        for (index, count) in counts.into_iter().enumerate() {
            field::write(&mut bytes, HEADER_BYTES + 8 * index, count.to_be_bytes());
        }
        Reply { bytes, length: REPORT_BYTES as u8 }
    }
}

/// A reply that is not an echo.
struct Reply {
    bytes: [u8; REPORT_BYTES],
    length: u8,
}

impl Reply {
    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length as usize]
    }
}

/// The counts of one client.
#[derive(Debug, Clone, Copy)]
struct ClientCounts {
    /// The sender, as the caller numbers senders, and the number that the client drew.
    key: (u32, u16),
    counts: DeviceCounts,
    first_ns: u64,
    /// The highest number plus one, and which of the 64 numbers below it came.
    next: u64,
    seen: u64,
    /// Messages that the end announced.
    announced: Option<u64>,
}

impl ClientCounts {
    const UNUSED: ClientCounts = ClientCounts {
        key: (0, 0),
        counts: DeviceCounts { messages: 0, bytes: 0, elapsed_ns: 0, missing: 0, duplicate: 0 },
        first_ns: 0,
        next: 0,
        seen: 0,
        announced: None,
    };

    /// DeviceCounts a data message.
    fn count(&mut self, now_ns: u64, header: DeviceHeader) {
        let number = header.number;
        if number >= self.next {
            let ahead = number + 1 - self.next;
            self.seen = if ahead < 64 { self.seen << ahead | 1 } else { 1 };
            self.next = number + 1;
        } else {
            let behind = self.next - 1 - number;
            // Older numbers are not remembered: they count as late, not as repeated.
            let bit = if behind < 64 { 1 << behind } else { 0 };
            if self.seen & bit != 0 {
                self.counts.duplicate += 1;
                return;
            }
            self.seen |= bit;
        }
        if self.counts.messages == 0 {
            self.first_ns = now_ns;
        }
        self.counts.messages += 1;
        self.counts.bytes = self.counts.bytes.wrapping_add(u64::from(header.length));
        self.counts.elapsed_ns = now_ns.saturating_sub(self.first_ns);
    }

    fn counts(&self) -> DeviceCounts {
        let expected = self.announced.unwrap_or(self.next);
        DeviceCounts { missing: expected.saturating_sub(self.counts.messages), ..self.counts }
    }
}

/// Action that a message requests.
enum ReplyAction {
    Nothing,
    /// The message goes back behind this header.
    Echo(DeviceHeader),
    Reply(Reply),
}

/// The sessions of a device: `N` clients at once, a further one replaces the oldest.
#[derive(Debug, Clone)]
struct ClientTable<const N: usize> {
    device: Device,
    all: [ClientCounts; N],
    oldest: usize,
}

impl<const N: usize> ClientTable<N> {
    const fn new(device: Device) -> Self {
        ClientTable { device, all: [ClientCounts::UNUSED; N], oldest: 0 }
    }

    fn find(&mut self, key: (u32, u16)) -> Option<&mut ClientCounts> {
        self.all.iter_mut().find(|session| session.key == key)
    }

    fn handle(&mut self, now_ns: u64, sender: u32, header: DeviceHeader) -> ReplyAction {
        if header.is_reply || u32::from(header.length) > self.device.max_message_bytes {
            return ReplyAction::Nothing;
        }
        let key = (sender, header.session);
        match header.kind {
            DeviceMessage::Hello if usize::from(header.length) >= HELLO_BYTES => {
                let at = self.all.iter().position(|session| session.key == key).unwrap_or(self.oldest);
                if let Some(session) = self.all.get_mut(at) {
                    *session = ClientCounts { key, ..ClientCounts::UNUSED };
                    self.oldest = (at + 1) % N;
                }
                return ReplyAction::Reply(self.device.reply_to(header));
            }
            DeviceMessage::Echo => return ReplyAction::Echo(header.reply(header.length.into())),
            DeviceMessage::Report if usize::from(header.length) >= REPORT_BYTES => {
                let counts = self.find(key).map(|session| session.counts());
                return counts
                    .map_or(ReplyAction::Nothing, |counts| ReplyAction::Reply(counts.reply_to(header)));
            }
            DeviceMessage::Data => {
                if let Some(session) = self.find(key) {
                    session.count(now_ns, header);
                }
            }
            DeviceMessage::End => {
                if let Some(session) = self.find(key) {
                    session.announced = Some(header.number);
                }
            }
            _ => {}
        }
        ReplyAction::Nothing
    }
}

/// The device protocol over packets, for `N` clients at once.
#[derive(Debug, Clone)]
pub struct PacketSessions<const N: usize>(ClientTable<N>);

impl<const N: usize> PacketSessions<N> {
    /// Creates the sessions of a device, without a client.
    pub const fn new(device: Device) -> Self {
        PacketSessions(ClientTable::new(device))
    }

    /// Handles a packet. Its reply replaces it, and has this many bytes; `None`: nothing is sent. `sender` distinguishes senders:
    /// a hash of address and port will do.
    pub fn on_packet(&mut self, now_ns: u64, sender: u32, packet: &mut [u8]) -> Option<usize> {
        let header = DeviceHeader::read(packet.first_chunk()?)?;
        if usize::from(header.length) != packet.len() {
            return None;
        }
        match self.0.handle(now_ns, sender, header) {
            ReplyAction::Nothing => None,
            ReplyAction::Echo(header) => {
                field::write(packet, 0, header.encode());
                Some(packet.len())
            }
            ReplyAction::Reply(reply) => {
                packet.get_mut(..reply.bytes().len())?.copy_from_slice(reply.bytes());
                Some(reply.bytes().len())
            }
        }
    }
}

/// The device protocol on a stream, as a UART is: one client at a time.
#[derive(Debug, Clone)]
pub struct StreamSessions {
    sessions: ClientTable<1>,
    /// The header that is being received.
    header: [u8; HEADER_BYTES],
    header_bytes: usize,
    /// Bytes of the message that follow its header, and whether they go back.
    body_left: u16,
    is_echoed: bool,
}

impl StreamSessions {
    /// Creates the sessions of a device, without a client.
    pub const fn new(device: Device) -> Self {
        StreamSessions {
            sessions: ClientTable::new(device),
            header: [0; HEADER_BYTES],
            header_bytes: 0,
            body_left: 0,
            is_echoed: false,
        }
    }

    /// Handles the next bytes, as many as the room for output allows. An output of [`REPORT_BYTES`] is enough to go on.
    pub fn on_bytes(&mut self, now_ns: u64, input: &[u8], output: &mut [u8]) -> Progress {
        let mut progress = Progress::default();
        while progress.consumed < input.len() {
            let (rest, room) = (&input[progress.consumed..], &mut output[progress.produced..]);
            let step = match self.body_left {
                0 if room.len() < REPORT_BYTES => break,
                0 => self.push_header(now_ns, rest[0], room),
                _ => self.push_body(rest, room),
            };
            if step == Progress::default() {
                break;
            }
            progress.consumed += step.consumed;
            progress.produced += step.produced;
        }
        progress
    }

    fn push_body(&mut self, input: &[u8], output: &mut [u8]) -> Progress {
        let body = &input[..input.len().min(self.body_left.into())];
        let step = if self.is_echoed {
            crate::echo(body, output)
        } else {
            Progress { consumed: body.len(), produced: 0 }
        };
        self.body_left -= step.consumed as u16;
        step
    }

    fn push_header(&mut self, now_ns: u64, byte: u8, output: &mut [u8]) -> Progress {
        self.header[self.header_bytes] = byte;
        self.header_bytes += 1;
        let mut produced = 0;
        if self.header_bytes == HEADER_BYTES {
            match DeviceHeader::read(&self.header) {
                Some(header) => {
                    self.header_bytes = 0;
                    self.body_left = header.length - HEADER_BYTES as u16;
                    produced = self.begin_message(now_ns, header, output);
                }
                None => self.skip_to_next_start(),
            }
        } else if self.header[..self.header_bytes.min(MAGIC.len())]
            != MAGIC[..self.header_bytes.min(MAGIC.len())]
        {
            self.skip_to_next_start();
        }
        Progress { consumed: 1, produced }
    }

    /// Drops the first byte, and all before the next that may start a header.
    fn skip_to_next_start(&mut self) {
        let held = &self.header[1..self.header_bytes];
        let start = 1 + held.iter().position(|byte| *byte == MAGIC[0]).unwrap_or(held.len());
        self.header.copy_within(start..self.header_bytes, 0);
        self.header_bytes -= start;
    }

    fn begin_message(&mut self, now_ns: u64, header: DeviceHeader, output: &mut [u8]) -> usize {
        self.is_echoed = false;
        match self.sessions.handle(now_ns, 0, header) {
            ReplyAction::Nothing => 0,
            ReplyAction::Echo(header) => {
                self.is_echoed = true;
                field::write(output, 0, header.encode());
                HEADER_BYTES
            }
            ReplyAction::Reply(reply) => {
                let bytes = reply.bytes();
                let Some(place) = output.get_mut(..bytes.len()) else { return 0 };
                place.copy_from_slice(bytes);
                bytes.len()
            }
        }
    }
}

#[cfg(test)]
mod tests;
