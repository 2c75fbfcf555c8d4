//! `sockperf`: the messages of Mellanox's sockperf. Its server changes a flag in each echo, so a plain echo cannot
//! replace client or server.
//!
//! Each message has a header of 14 bytes in network order: number (from 1), flags, message length. On streams messages
//! follow each other without separators. Multicast is not supported. The client has the mode ping-pong; the server serves
//! all modes: it replies to the messages that request it.

use std::sync::Arc;

use super::ping_pong::{PingPongCodec, PingPongHeader};
use super::{
    CaseError, ClientSession, ConnectContext, Flow, FlowsOnlySession, Protocol, ProtocolError, ReadyCase,
    Service, open_flows,
};
use crate::link::party::{Party, Step};
use crate::link::{Admission, Batch, Caps, Fault, Framing, on_port};
use crate::workload::latency::Pinger;
use crate::workload::{FlowRole, TrafficKind};
use linkgauge_model::clock::Time;
use linkgauge_model::plan::Direction;

/// The `sockperf` protocol.
pub(crate) const PROTOCOL: Protocol = Protocol {
    name: "sockperf",
    summary: "replies as a sockperf server does, over TCP and UDP",
    default_ports: &[("tcp", 11111), ("udp", 11111)],
    traffic: &[(TrafficKind::RoundTrips, &[Direction::Loop])],
    options: &[],
    sizes: &[],
    is_measured_whole: false,
    shorthand: None,
    original_server: Some(|framing, port| {
        format!("sockperf sr{}{}", if framing == Framing::Stream { " --tcp" } else { "" }, on_port(port))
    }),
    prepare_case: |case, _| match *case.message_bytes.get_or_insert(HEADER_BYTES as u32) as usize {
        HEADER_BYTES.. => Ok(()),
        bytes => Err(CaseError::MessageSize(format!(
            "a message of sockperf has {HEADER_BYTES} bytes or more, not {bytes}: choose another --size"
        ))),
    },
    connect,
    serve: Some(|_| Arc::new(SockperfService)),
};

/// Size of the header in bytes, which is also the minimum message size.
pub(crate) const HEADER_BYTES: usize = 14;

const FROM_CLIENT: u16 = 1;
/// Flag of a message whose sender requests a reply.
const PONG: u16 = 2;

/// Header of every message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SockperfHeader {
    /// Number of the message; a reply has that of its request.
    pub(crate) sequence: u64,
    /// Flags: bit 0 is set by clients, bit 1 requests a reply.
    pub(crate) flags: u16,
    /// Length of the message in bytes, including this header.
    pub(crate) length: u32,
}

impl SockperfHeader {
    /// Decodes a header; all fields are big-endian.
    pub(crate) fn read(bytes: &[u8; HEADER_BYTES]) -> SockperfHeader {
        let [n7, n6, n5, n4, n3, n2, n1, n0, f1, f0, length @ ..] = *bytes;
        SockperfHeader {
            sequence: u64::from_be_bytes([n7, n6, n5, n4, n3, n2, n1, n0]),
            flags: u16::from_be_bytes([f1, f0]),
            length: u32::from_be_bytes(length),
        }
    }

    /// Encodes the header at the start of `into`, which must have at least [`HEADER_BYTES`] bytes.
    pub(crate) fn write(&self, into: &mut [u8]) {
        into[..8].copy_from_slice(&self.sequence.to_be_bytes());
        into[8..10].copy_from_slice(&self.flags.to_be_bytes());
        into[10..HEADER_BYTES].copy_from_slice(&self.length.to_be_bytes());
    }

    /// Whether a client sent the message, which has this length.
    fn is_from_client(self, length: usize) -> bool {
        self.flags & FROM_CLIENT != 0 && self.length as usize == length
    }

    /// Returns the header of the reply; `None` if no reply is requested. Servers do not reply to each other.
    fn reply_header(self) -> Option<SockperfHeader> {
        const ASKS: u16 = FROM_CLIENT | PONG;
        (self.flags & ASKS == ASKS).then_some(SockperfHeader { flags: self.flags & !FROM_CLIENT, ..self })
    }
}

fn connect(case: &ReadyCase, context: &ConnectContext) -> Result<Box<dyn ClientSession>, ProtocolError> {
    let flows = open_flows(case, context, |load, port, link, flows| {
        let caps = link.caps().clone();
        let codec = Box::new(PingPongCodec::new(SockperfPing, load.message_bytes as usize, &caps));
        let party = Pinger::new(codec, load, &caps, (context.new_recorder)(FlowRole::RoundTrip, port));
        flows.push(Flow { role: FlowRole::RoundTrip, endpoint_index: port, link, party: Box::new(party) });
        Ok(())
    })?;
    Ok(FlowsOnlySession::boxed(flows))
}

/// Headers of a ping-pong test.
struct SockperfPing;

impl PingPongHeader<HEADER_BYTES> for SockperfPing {
    fn request(&self, sequence: u64, length: usize) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let header =
            SockperfHeader { sequence: sequence + 1, flags: FROM_CLIENT | PONG, length: length as u32 };
        header.write(&mut bytes);
        bytes
    }

    fn reply_sequence(&self, header: &[u8; HEADER_BYTES], length: usize) -> Option<u64> {
        let header = SockperfHeader::read(header);
        let is_ours = header.flags & (FROM_CLIENT | PONG) == PONG && header.length as usize == length;
        is_ours.then(|| header.sequence.checked_sub(1)).flatten()
    }
}

struct SockperfService;

impl Service for SockperfService {
    fn new_party(&self, caps: &Caps, _from: &str) -> Box<dyn Party> {
        let room = caps.max_message_bytes.unwrap_or(MAX_CHUNK_BYTES);
        Box::new(SockperfConnection {
            batch: Batch::new(room, 1),
            is_stream: caps.framing == Framing::Stream,
            replies: ReplyBuilder::default(),
            output: Vec::with_capacity(room + HEADER_BYTES),
            output_sent: 0,
            is_finished: false,
            is_malformed: false,
        })
    }

    fn admit_sender(&self, first: &[u8], _from: &str, reply: &mut Vec<u8>) -> Admission {
        let Some(header) = first.first_chunk().map(SockperfHeader::read) else { return Admission::Drop };
        match ReplyBuilder::default().reply_to_message(first, reply) {
            Some(()) => Admission::Reply,
            // Under load and for throughput a client requests few replies or none.
            None if header.is_from_client(first.len()) => Admission::Ignore,
            None => Admission::Drop,
        }
    }

    /// Returns true: a client chooses its port (`--client_port`), and no server replies to a reply, because it lacks the flag of
    /// clients.
    fn replies_to_server_port(&self, _port: u16, _first: &[u8], _reply: &[u8]) -> bool {
        true
    }
}

/// Maximum chunk taken from a stream at once.
const MAX_CHUNK_BYTES: usize = 65_536;

/// Builds the replies to incoming messages.
#[derive(Debug, Default)]
pub struct ReplyBuilder {
    header: [u8; HEADER_BYTES],
    header_bytes: usize,
    /// Number of remaining bytes of the current message, and whether they are returned.
    bytes_left: usize,
    must_reply: bool,
}

impl ReplyBuilder {
    /// Replies to all complete messages of a stream. `None` if the input does not start a message.
    pub fn reply_to_stream(&mut self, mut data: &[u8], out: &mut Vec<u8>) -> Option<()> {
        while !data.is_empty() {
            if self.bytes_left > 0 {
                let (body, rest) = data.split_at(self.bytes_left.min(data.len()));
                if self.must_reply {
                    out.extend_from_slice(body);
                }
                (self.bytes_left, data) = (self.bytes_left - body.len(), rest);
                continue;
            }
            let (part, rest) = data.split_at((HEADER_BYTES - self.header_bytes).min(data.len()));
            self.header[self.header_bytes..][..part.len()].copy_from_slice(part);
            (self.header_bytes, data) = (self.header_bytes + part.len(), rest);
            if self.header_bytes == HEADER_BYTES {
                self.header_bytes = 0;
                self.begin_reply(out)?;
            }
        }
        Some(())
    }

    /// Replies to a message if it requests a reply and has the length in its header.
    fn reply_to_message(&mut self, message: &[u8], out: &mut Vec<u8>) -> Option<()> {
        let (head, body) = message.split_first_chunk()?;
        let header = SockperfHeader::read(head);
        let reply = header.reply_header().filter(|_| header.length as usize == message.len())?;
        out.resize(HEADER_BYTES, 0);
        reply.write(out);
        out.extend_from_slice(body);
        Some(())
    }

    fn begin_reply(&mut self, out: &mut Vec<u8>) -> Option<()> {
        let header = SockperfHeader::read(&self.header);
        self.bytes_left = (header.length as usize).checked_sub(HEADER_BYTES)?;
        let reply = header.reply_header();
        self.must_reply = reply.is_some();
        if let Some(reply) = reply {
            let at = out.len();
            out.resize(at + HEADER_BYTES, 0);
            reply.write(&mut out[at..]);
        }
        Some(())
    }
}

/// Server side of sockperf.
struct SockperfConnection {
    batch: Batch,
    is_stream: bool,
    replies: ReplyBuilder,
    output: Vec<u8>,
    /// Number of bytes of the output that have been sent.
    output_sent: usize,
    is_finished: bool,
    is_malformed: bool,
}

impl Party for SockperfConnection {
    fn next_step(&mut self, _now: Time) -> Step<'_> {
        if self.output_sent < self.output.len() {
            return Step::Send { bytes: &self.output[self.output_sent..], message: self.output.len() };
        }
        if self.is_malformed {
            return Step::Fail(Fault::UnexpectedData("this is not a message of sockperf".to_owned()));
        }
        if self.is_finished {
            return Step::Done;
        }
        Step::Receive { into: &mut self.batch, until: Time::NEVER }
    }

    fn on_sent(&mut self, bytes: usize, _at: Time) {
        self.output_sent += bytes;
    }

    fn on_received(&mut self, _now: Time) {
        self.output.clear();
        self.output_sent = 0;
        let data = self.batch.messages().next().unwrap_or_default();
        if self.is_stream {
            self.is_malformed = self.replies.reply_to_stream(data, &mut self.output).is_none();
        } else {
            // Invalid messages, and messages that request no reply, are ignored.
            let _ = self.replies.reply_to_message(data, &mut self.output);
        }
    }

    fn on_timeout(&mut self, _now: Time) {}

    fn on_closed(&mut self, _now: Time) -> Result<(), Fault> {
        self.is_finished = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::ask::text;
    use crate::workload::latency::{ReplyStatus, RequestReplyCodec};

    fn bytes(hex: &str) -> Vec<u8> {
        text::parse_bytes(&format!("hex:{hex}")).unwrap()
    }

    /// Request as sent by sockperf 3.7.
    const REQUEST_HEX: &str = "0000000000000001 0003 00000020 D4ABB2CDC69BB454110E827441213DDC8770";
    const REPLY_HEX: &str = "0000000000000001 0002 00000020 D4ABB2CDC69BB454110E827441213DDC8770";

    fn build_replies<'a>(chunks: impl Iterator<Item = &'a [u8]>) -> Option<Vec<u8>> {
        let (mut builder, mut out) = (ReplyBuilder::default(), Vec::new());
        for chunk in chunks {
            builder.reply_to_stream(chunk, &mut out)?;
        }
        Some(out)
    }

    #[test]
    fn the_server_clears_a_flag() {
        let (request, reply_bytes) = (bytes(REQUEST_HEX), bytes(REPLY_HEX));
        let mut out = Vec::new();
        assert_eq!(ReplyBuilder::default().reply_to_message(&request, &mut out), Some(()));
        assert_eq!(out, reply_bytes);
        // A stream in chunks of any length: several messages, one of which requests no reply.
        let silent = bytes("0000000000000002 0001 00000010 FFFF");
        let stream = [&request[..], &silent, &request].concat();
        for size in 1..stream.len() {
            assert_eq!(
                build_replies(stream.chunks(size)),
                Some([&reply_bytes[..], &reply_bytes].concat()),
                "{size}"
            );
        }
        assert_eq!(
            build_replies([&b"GET / HTTP/1.0\r\n"[..]].into_iter()).map(|out| out.len()),
            Some(0),
            "it waits"
        );
        assert_eq!(build_replies([&[0; 14][..]].into_iter()), None, "a message of no length");
    }

    #[test]
    fn the_client_accepts_only_its_own_replies() {
        for caps in
            [Caps::STREAM, Caps { framing: Framing::Message, max_message_bytes: Some(1000), ..Caps::STREAM }]
        {
            let mut codec = PingPongCodec::new(SockperfPing, 32, &caps);
            let request = codec.encode_request(6).to_vec();
            assert_eq!(request[..HEADER_BYTES], bytes("0000000000000007 0003 00000020"));
            let mut reply_bytes = request.clone();
            reply_bytes[9] = 2;
            assert_eq!(
                codec.parse_reply(&reply_bytes, 6..7),
                ReplyStatus::Complete { sequence: 6, used: 32, corrupt_bytes: 0 }
            );
            assert_eq!(
                codec.parse_reply(&request, 6..7),
                ReplyStatus::Malformed { used: 32 },
                "an echo is none"
            );
            reply_bytes[20] ^= 1;
            assert_eq!(
                codec.parse_reply(&reply_bytes, 6..7),
                ReplyStatus::Complete { sequence: 6, used: 32, corrupt_bytes: 1 }
            );
        }
        let mut codec = PingPongCodec::new(SockperfPing, 32, &Caps::STREAM);
        let mut reply_bytes = codec.encode_request(0).to_vec();
        reply_bytes[9] = 2;
        for at in 0..31 {
            assert_eq!(codec.parse_reply(&reply_bytes[at..=at], 0..1), ReplyStatus::Incomplete);
        }
        let two = [&reply_bytes[31..], &reply_bytes].concat();
        assert_eq!(
            codec.parse_reply(&two, 0..1),
            ReplyStatus::Complete { sequence: 0, used: 1, corrupt_bytes: 0 }
        );
        assert_eq!(
            codec.parse_reply(&reply_bytes, 0..1),
            ReplyStatus::Complete { sequence: 0, used: 32, corrupt_bytes: 0 }
        );
    }
}
