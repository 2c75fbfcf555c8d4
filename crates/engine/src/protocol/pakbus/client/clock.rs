//! Reads of the logger's clock: the shortest request that the logger's processor handles, as a codec of `latency`.

use std::ops::Range;

use super::conversation::{CLIENT_ADDRESS, WAKE_BYTES};
use super::{PERMISSION_DENIED, PakBusOptions};
use crate::protocol::pakbus::frame::{self, FrameDecoder};
use crate::protocol::pakbus::message::{LoggerCommand, ReplyCode};
use crate::protocol::pakbus::packet::{Hop, LinkState, PacketRoute, PakBusPacket};
use crate::protocol::pakbus::reply::{FailureCode, LoggerReply};
use crate::protocol::pakbus::value::LoggerTime;
use crate::workload::latency::{ReplyStatus, RequestReplyCodec};

/// Bytes of the request on a line, including sync bytes, without quoted bytes.
pub(crate) const REQUEST_BYTES: u32 = 24;

/// Transaction numbers range from 1 to 255.
const TRANSACTION_NUMBERS: u64 = 255;

/// Clock requests, identified by their transaction numbers.
pub(crate) struct ClockCodec {
    options: PakBusOptions,
    decoder: FrameDecoder,
    request: Vec<u8>,
    /// Sequence number in the current request.
    written_sequence: Option<u64>,
    refusal: String,
}

impl ClockCodec {
    pub fn new(options: PakBusOptions) -> ClockCodec {
        ClockCodec {
            options,
            decoder: FrameDecoder::default(),
            request: Vec::with_capacity(64),
            written_sequence: None,
            refusal: String::new(),
        }
    }

    fn write_request(&mut self, sequence: u64) {
        self.request.clear();
        if self.written_sequence.is_none() {
            self.request.extend(WAKE_BYTES);
        }
        let command =
            LoggerCommand::Clock { security: self.options.security, adjustment: LoggerTime::default() };
        let (protocol, message) = command.write(transaction_number(sequence));
        let (to, from) = (self.options.node, CLIENT_ADDRESS);
        let neighbour = self.options.router.unwrap_or(to);
        let hop = Hop { state: LinkState::READY, to: neighbour, from, expect_more: 2, priority: 1 };
        let route = PacketRoute { protocol, to, from, hops: 0 };
        frame::write(&PakBusPacket { hop, message: Some((route, &message)) }.write(), &mut self.request);
        self.written_sequence = Some(sequence);
    }
}

fn transaction_number(sequence: u64) -> u8 {
    (sequence % TRANSACTION_NUMBERS + 1) as u8
}

/// The result of a request.
enum ClockReply {
    Time,
    /// The queue of the logger is full.
    Busy,
    Refused(String),
}

/// Returns the sequence number of the request that a packet replies to, and the result.
fn parse_clock_reply(packet: &[u8], node: u16, waiting: &Range<u64>) -> Option<(u64, ClockReply)> {
    let packet = PakBusPacket::read(packet).ok()?;
    let (route, message) =
        packet.message.filter(|(route, _)| route.from == node && route.to == CLIENT_ADDRESS)?;
    let (number, reply) = match LoggerReply::read(route.protocol, message).ok()? {
        (number, LoggerReply::Clock(Ok(_))) => (number, ClockReply::Time),
        (number, LoggerReply::Clock(Err(ReplyCode::DENIED))) => {
            (number, ClockReply::Refused(PERMISSION_DENIED.to_owned()))
        }
        (number, LoggerReply::Clock(Err(code))) => {
            (number, ClockReply::Refused(format!("the logger reports: {code}")))
        }
        (_, LoggerReply::Failure(failure)) if failure.code == FailureCode::OVERFLOW => {
            (failure.command()?.1, ClockReply::Busy)
        }
        (_, LoggerReply::Failure(failure)) => {
            (failure.command()?.1, ClockReply::Refused(format!("the logger reports: {}", failure.code)))
        }
        _ => return None,
    };
    waiting.clone().find(|&sequence| transaction_number(sequence) == number).map(|sequence| (sequence, reply))
}

impl RequestReplyCodec for ClockCodec {
    fn encode_request(&mut self, sequence: u64) -> &[u8] {
        // Called again while the link takes the request in parts.
        if self.written_sequence != Some(sequence) {
            self.write_request(sequence);
        }
        &self.request
    }

    fn parse_reply(&mut self, data: &[u8], waiting: Range<u64>) -> ReplyStatus {
        let mut used = 0;
        while used < data.len() {
            let (taken, packet) = self.decoder.read(&data[used..]);
            used += taken;
            if let Some((sequence, reply)) =
                packet.and_then(|packet| parse_clock_reply(packet, self.options.node, &waiting))
            {
                return match reply {
                    ClockReply::Time => ReplyStatus::Complete { sequence, used, corrupt_bytes: 0 },
                    ClockReply::Busy => ReplyStatus::Unexpected { sequence, used },
                    ClockReply::Refused(why) => {
                        self.refusal = why;
                        ReplyStatus::Refused
                    }
                };
            }
        }
        ReplyStatus::Incomplete
    }

    fn refusal_reason(&self) -> String {
        self.refusal.clone()
    }

    /// Returns false: a logger executes one command at a time, and its queue may be full.
    fn has_sequence_numbers(&self) -> bool {
        false
    }
}
