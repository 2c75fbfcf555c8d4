//! `modbus`: requests to a Modbus device, over TCP and UDP (MBAP header) and RTU on serial lines and device servers.
//!
//! Reads registers (functions 3 and 4), or has its data returned (function 8, sub-function 0). It never writes. An
//! exception is a reply and counts by its code. One request is in flight, because many devices drop what arrives before their
//! reply. Over TCP the transaction identifier is the number of the request; RTU has none, and a silence separates frames.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value};

use super::case::RECONNECT;
use super::{
    CaseDraft, CaseError, ClientSession, ConnectContext, Flow, Protocol, ProtocolError, ProtocolOptions,
    ReadyCase, Shorthand, open_flows,
};
use crate::link::{Caps, Framing};
use crate::workload::latency::{Pinger, ReplyStatus, RequestReplyCodec};
use crate::workload::pattern::count_differing;
use crate::workload::{FlowRole, TrafficKind};
use linkgauge_model::plan::Direction;
use linkgauge_model::run::EXCEPTIONS_FACT;

/// The `modbus` protocol.
pub(crate) const PROTOCOL: Protocol = Protocol {
    name: "modbus",
    summary: "a Modbus device, over TCP or RTU: reads registers or has data returned, never writes",
    default_ports: &[("tcp", 502), ("udp", 502)],
    traffic: &[(TrafficKind::RoundTrips, &[Direction::Loop])],
    options: &[
        ("unit", "address of the device: 1 to 247, over TCP 0 to 255; default 1"),
        ("function", "3: read holding registers (default), 4: read input registers, 8: return the data"),
        ("register", "first register that is read, 0 to 65535; default 0"),
        ("registers", "registers of one request, 1 to 125; default 1"),
        (
            "mode",
            "mbap (Modbus/TCP) or rtu; default: rtu where the rate of a serial line is known, else mbap",
        ),
        RECONNECT,
    ],
    sizes: &[],
    is_measured_whole: false,
    shorthand: Some(Shorthand { option: Some("unit") }),
    original_server: None,
    prepare_case,
    connect,
    serve: None,
};

const RETURN_DATA: u8 = 8;
/// Flag in the function of a reply that is an exception.
const EXCEPTION: u8 = 0x80;
/// Size of the header in bytes: transaction, protocol 0, number of bytes that follow.
const HEADER_BYTES: usize = 6;
const CRC_BYTES: usize = 2;
/// Maximum size of unit, function and data of a frame over TCP, in bytes (Modbus messaging guide, 4.1).
const MAX_FRAME_BYTES: usize = 254;
/// Maximum number of registers of one reply.
const MAX_REGISTERS: u16 = 125;
/// Silence between frames above 19200 bit/s (Modbus over serial line, 2.5.1.1).
const MIN_SILENCE: Duration = Duration::from_micros(1750);
const FASTEST_COUNTED_BPS: f64 = 19_200.0;

/// Way in which frames are delimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Frames with the header of Modbus/TCP.
    Mbap,
    Rtu,
}

/// Requested data, and the device.
#[derive(Debug, Clone, Copy)]
struct ModbusRequest {
    mode: Mode,
    unit: u8,
    function: u8,
    register: u16,
    registers: u16,
    /// Time without traffic before a request.
    silence: Duration,
}

impl ModbusRequest {
    fn parse(options: &ProtocolOptions, caps: &Caps) -> Result<ModbusRequest, CaseError> {
        let mode = match options.get("mode").map(String::as_str) {
            Some("mbap") => Mode::Mbap,
            Some("rtu") => Mode::Rtu,
            None if caps.link_rate.is_some() => Mode::Rtu,
            None => Mode::Mbap,
            Some(other) => {
                return Err(CaseError::Option(format!(
                    "protocol modbus: mode '{other}' is unknown: use mbap or rtu"
                )));
            }
        };
        let number = |name: &str, default: u16, range: std::ops::RangeInclusive<u16>| {
            let Some(text) = options.get(name) else { return Ok(default) };
            text.parse().ok().filter(|number| range.contains(number)).ok_or_else(|| {
                let (least, most) = (range.start(), range.end());
                CaseError::Option(format!(
                    "protocol modbus: {name} '{text}' is not possible: use {least} to {most}"
                ))
            })
        };
        let unit = number("unit", 1, if mode == Mode::Rtu { 1..=247 } else { 0..=255 })?;
        let function = match options.get("function").map_or("3", String::as_str) {
            "3" => 3,
            "4" => 4,
            "8" => RETURN_DATA,
            other => {
                return Err(CaseError::Option(format!(
                    "protocol modbus: function '{other}' is not supported: use 3, 4 or 8"
                )));
            }
        };
        if function == RETURN_DATA && ["register", "registers"].iter().any(|name| options.contains_key(*name))
        {
            return Err(CaseError::Option(
                "protocol modbus: function 8 has no register: leave it out, or use function 3 or 4"
                    .to_owned(),
            ));
        }
        if mode == Mode::Rtu
            && caps.link_rate.is_some_and(|rate| rate.data_bits < 8 || rate.has_in_band_flow_control)
        {
            return Err(CaseError::Link(
                "Modbus RTU needs bytes of 8 bits without XON and XOFF: use data=8 and another flow control"
                    .to_owned(),
            ));
        }
        Ok(ModbusRequest {
            mode,
            unit: unit as u8,
            function,
            register: number("register", 0, 0..=u16::MAX)?,
            registers: number("registers", 1, 1..=MAX_REGISTERS)?,
            silence: if mode == Mode::Rtu { silence_between_frames(caps) } else { Duration::ZERO },
        })
    }

    /// Returns unit, function and data of the request with this number.
    fn frame(&self, number: u16) -> [u8; 6] {
        let [first, second] =
            if self.function == RETURN_DATA { [0, number] } else { [self.register, self.registers] };
        let ([a, b], [c, d]) = (first.to_be_bytes(), second.to_be_bytes());
        [self.unit, self.function, a, b, c, d]
    }

    /// Writes the request with this number.
    fn write(&self, number: u16, into: &mut Vec<u8>) {
        let frame = self.frame(number);
        into.clear();
        if self.mode == Mode::Mbap {
            into.extend_from_slice(&number.to_be_bytes());
            into.extend_from_slice(&[0, 0, 0, frame.len() as u8]);
        }
        into.extend_from_slice(&frame);
        if self.mode == Mode::Rtu {
            into.extend_from_slice(&crc(&frame));
        }
    }

    /// Length in bytes of a reply that begins so, or of the part that states its length. `None`: it is not a reply.
    fn reply_bytes(&self, head: &[u8]) -> Option<usize> {
        match (self.mode, head) {
            (Mode::Mbap, [_, _, protocol_high, protocol_low, high, low, ..]) => {
                let frame = usize::from(u16::from_be_bytes([*high, *low]));
                let is_reply =
                    (*protocol_high, *protocol_low) == (0, 0) && (3..=MAX_FRAME_BYTES).contains(&frame);
                is_reply.then_some(HEADER_BYTES + frame)
            }
            (Mode::Mbap, _) => Some(HEADER_BYTES),
            (Mode::Rtu, [unit, function, length, ..]) => {
                let frame = match *function {
                    function if function == self.function | EXCEPTION => 3,
                    function if function != self.function => return None,
                    RETURN_DATA => 6,
                    _ => 3 + usize::from(*length),
                };
                (*unit == self.unit).then_some(frame + CRC_BYTES)
            }
            (Mode::Rtu, _) => Some(3),
        }
    }

    /// Meaning of a complete frame as a reply to the request with this number.
    fn meaning_of(&self, frame: &[u8], number: u16) -> Meaning {
        match frame {
            [unit, ..] if *unit != self.unit => Meaning::Unexpected,
            [_, function, code] if *function == self.function | EXCEPTION => Meaning::Exception(*code),
            [_, function, ..] if *function != self.function => Meaning::Unexpected,
            _ if self.function == RETURN_DATA => {
                let sent = self.frame(number);
                match frame.len() == sent.len() {
                    true => Meaning::Data { corrupt_bytes: count_differing(frame, &sent) },
                    false => Meaning::Unexpected,
                }
            }
            [_, _, bytes, values @ ..]
                if usize::from(*bytes) == values.len() && values.len() == 2 * usize::from(self.registers) =>
            {
                Meaning::Data { corrupt_bytes: 0 }
            }
            _ => Meaning::Unexpected,
        }
    }
}

/// Silence between frames: 3.5 characters of 11 bits; a fixed time on fast lines, and where the rate of the line is unknown.
fn silence_between_frames(caps: &Caps) -> Duration {
    match caps.link_rate {
        Some(rate) if rate.bits_per_second <= FASTEST_COUNTED_BPS => {
            Duration::try_from_secs_f64(3.5 * 11.0 / rate.bits_per_second).unwrap_or(MIN_SILENCE)
        }
        _ => MIN_SILENCE,
    }
}

/// Checksum of RTU, in the order of the line.
fn crc(bytes: &[u8]) -> [u8; CRC_BYTES] {
    let mut crc = u16::MAX;
    for byte in bytes {
        crc ^= u16::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xA001 } else { crc >> 1 };
        }
    }
    crc.to_le_bytes()
}

/// Meaning of a reply.
enum Meaning {
    Data { corrupt_bytes: u64 },
    Exception(u8),
    Unexpected,
}

/// Number of exceptions by code.
type ExceptionCounts = Arc<Mutex<BTreeMap<u8, u64>>>;

/// Reads the options; all requests have one length.
fn prepare_case(case: &mut CaseDraft, caps: &Caps) -> Result<(), CaseError> {
    let mut request = Vec::new();
    ModbusRequest::parse(&case.options, caps)?.write(0, &mut request);
    let length = request.len() as u32;
    case.fix_message_bytes(length, |other| {
        format!("protocol modbus: a request has {length} bytes, not {other}: leave out the size; registers sets that of the reply")
    })?;
    case.read_reconnect_option(caps)
}

fn connect(case: &ReadyCase, context: &ConnectContext) -> Result<Box<dyn ClientSession>, ProtocolError> {
    let exceptions = ExceptionCounts::default();
    let mut mode = Mode::Mbap;
    let flows = open_flows(case, context, |load, port, link, flows| {
        let caps = link.caps().clone();
        let request = ModbusRequest::parse(&case.options, &caps)?;
        mode = request.mode;
        let codec = ModbusCodec::new(request, caps.framing, exceptions.clone());
        let recorder = (context.new_recorder)(FlowRole::RoundTrip, port);
        let party = Box::new(Pinger::new(Box::new(codec), load, &caps, recorder));
        flows.push(Flow { role: FlowRole::RoundTrip, endpoint_index: port, link, party });
        Ok(())
    })?;
    Ok(Box::new(ModbusSession { flows, mode, exceptions }))
}

struct ModbusSession {
    flows: Vec<Flow>,
    mode: Mode,
    exceptions: ExceptionCounts,
}

impl ClientSession for ModbusSession {
    fn take_flows(&mut self) -> Vec<Flow> {
        std::mem::take(&mut self.flows)
    }

    fn effective_settings(&self) -> Map<String, Value> {
        let mode = if self.mode == Mode::Rtu { "rtu" } else { "mbap" };
        let mut settings = Map::from_iter([("modbus_mode".to_owned(), mode.into())]);
        let counts = self.exceptions.lock().unwrap_or_else(PoisonError::into_inner);
        if !counts.is_empty() {
            let by_code = counts.iter().map(|(code, count)| (code.to_string(), (*count).into()));
            settings.insert(EXCEPTIONS_FACT.to_owned(), Value::Object(by_code.collect()));
        }
        settings
    }
}

/// Requests of one connection, and the reply that is arriving.
struct ModbusCodec {
    request: ModbusRequest,
    framing: Framing,
    exceptions: ExceptionCounts,
    message: Vec<u8>,
    /// Reply that is arriving, at most [`HEADER_BYTES`] and [`MAX_FRAME_BYTES`] long.
    reply: Vec<u8>,
    /// Request that the next reply of RTU belongs to, also after it was lost.
    awaited: Option<u64>,
    /// Number of the last request.
    last_number: Option<u64>,
}

impl ModbusCodec {
    fn new(request: ModbusRequest, framing: Framing, exceptions: ExceptionCounts) -> ModbusCodec {
        let (message, reply) = (Vec::new(), Vec::new());
        ModbusCodec { request, framing, exceptions, message, reply, awaited: None, last_number: None }
    }

    /// Takes the bytes of one reply. Returns their number, and whether the reply is complete. `None`: it is not a reply.
    fn take_reply(&mut self, data: &[u8]) -> Option<(usize, bool)> {
        let mut used = 0;
        loop {
            let missing = self.request.reply_bytes(&self.reply)?.saturating_sub(self.reply.len());
            if missing == 0 {
                return Some((used, true));
            }
            let part = &data[used..][..missing.min(data.len() - used)];
            if part.is_empty() {
                return Some((used, false));
            }
            self.reply.extend_from_slice(part);
            used += part.len();
        }
    }

    /// Reads a complete reply, of which the last `used` bytes have arrived now.
    fn read_reply(&mut self, used: usize, first_waiting: u64) -> ReplyStatus {
        let is_rtu = self.request.mode == Mode::Rtu;
        let (frame, sequence) = match (is_rtu, self.reply.as_slice()) {
            (true, [frame @ .., low, high]) if crc(frame) == [*low, *high] => (frame, self.awaited.take()),
            // The reply to this request, because only one device replies, but changed on its way.
            (true, _) => (&[][..], self.awaited.take()),
            (false, [high, low, _, _, _, _, frame @ ..]) => {
                let distance = u16::from_be_bytes([*high, *low]).wrapping_sub(first_waiting as u16) as i16;
                (frame, first_waiting.checked_add_signed(distance.into()))
            }
            (false, _) => (&[][..], None),
        };
        let Some(sequence) = sequence else { return ReplyStatus::Malformed { used } };
        match self.request.meaning_of(frame, sequence as u16) {
            Meaning::Data { corrupt_bytes } => ReplyStatus::Complete { sequence, used, corrupt_bytes },
            Meaning::Exception(code) => {
                *self.exceptions.lock().unwrap_or_else(PoisonError::into_inner).entry(code).or_default() += 1;
                ReplyStatus::Complete { sequence, used, corrupt_bytes: 0 }
            }
            Meaning::Unexpected => ReplyStatus::Unexpected { sequence, used },
        }
    }
}

impl RequestReplyCodec for ModbusCodec {
    fn encode_request(&mut self, sequence: u64) -> &[u8] {
        // Called again while the link takes the request in parts.
        if self.last_number != Some(sequence) {
            self.last_number = Some(sequence);
            self.request.write(sequence as u16, &mut self.message);
            if self.request.mode == Mode::Rtu {
                self.awaited = Some(sequence);
                self.reply.clear();
            }
        }
        &self.message
    }

    fn parse_reply(&mut self, data: &[u8], waiting: Range<u64>) -> ReplyStatus {
        if self.request.mode == Mode::Rtu && self.awaited.is_none() {
            return ReplyStatus::Unrelated { used: data.len() };
        }
        let taken = self.take_reply(data);
        let is_message = self.framing == Framing::Message;
        let status = match taken {
            Some((_, false)) if !is_message => return ReplyStatus::Incomplete,
            // A datagram is one reply.
            Some((used, true)) if !is_message || used == data.len() => self.read_reply(used, waiting.start),
            _ => {
                self.awaited = None;
                ReplyStatus::Malformed { used: data.len() }
            }
        };
        self.reply.clear();
        status
    }

    fn restart(&mut self) {
        self.reply.clear();
        (self.awaited, self.last_number) = (None, None);
    }

    fn silence_before_request(&self) -> Duration {
        self.request.silence
    }

    fn has_sequence_numbers(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests;
