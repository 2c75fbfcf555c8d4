//! `device`: the binary messages that firmware speaks in place of the linkgauge protocol. The wire format, and the whole
//! server side, are those of `linkgauge_responder::session`.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use linkgauge_responder::Progress;
pub use linkgauge_responder::session as wire;
use wire::{
    Device, DeviceCounts, DeviceHeader, DeviceMessage, HEADER_BYTES, HELLO_BYTES, MAX_MESSAGE_BYTES,
    PacketSessions, REPORT_BYTES, StreamSessions,
};

use super::ping_pong::{PingPongCodec, PingPongHeader};
use super::{
    CaseDraft, CaseError, ClientSession, ConnectContext, Flow, Protocol, ProtocolError, ReadyCase, Service,
    open_flows, random_bytes,
};
use crate::link::party::{Party, Step};
use crate::link::{Admission, Batch, Caps, Fault, Framing, Link, LinkError, send_all};
use crate::workload::latency::Pinger;
use crate::workload::throughput::Source;
use crate::workload::throughput::header::{HeaderCodec, ParsedHeader};
use crate::workload::{FlowReport, FlowResult, FlowRole, RecordingParty, ServerReport, TrafficKind};
use linkgauge_model::clock::{Clock, Time};
use linkgauge_model::endpoint::Endpoint;
use linkgauge_model::plan::{Direction, StopCondition};

pub(crate) const PROTOCOL: Protocol = Protocol {
    name: "device",
    summary: "what firmware speaks: echo, counted upload and the device's report, in binary messages",
    default_ports: &[("tcp", 5102), ("udp", 5102)],
    traffic: &[(TrafficKind::RoundTrips, &[Direction::Loop]), (TrafficKind::Load, &[Direction::Send])],
    options: &[],
    sizes: &[],
    is_measured_whole: false,
    shorthand: None,
    original_server: None,
    prepare_case,
    connect,
    serve: Some(|_| Arc::new(DeviceService)),
};

/// Default message sizes in bytes: of a round trip, of a load on a stream, of a load in messages.
const ROUND_TRIP_BYTES: u32 = 32;
const STREAM_LOAD_BYTES: u32 = 4096;
const MESSAGE_LOAD_BYTES: u32 = 1400;

/// Maximum tries of a request that a datagram may lose.
const MAX_TRIES: u32 = 5;

fn prepare_case(case: &mut CaseDraft, caps: &Caps) -> Result<(), CaseError> {
    let default = match (case.workload.is_round_trip(), caps.framing) {
        (true, _) => ROUND_TRIP_BYTES,
        // The bytes of 100 ms, so that a message takes little of the measured time.
        (false, Framing::Stream) => caps.link_rate.map_or(STREAM_LOAD_BYTES, |line| {
            (line.bytes_in(Duration::from_millis(100)) as u32).clamp(64, STREAM_LOAD_BYTES)
        }),
        (false, Framing::Message) => MESSAGE_LOAD_BYTES,
    };
    let bytes = *case.message_bytes.get_or_insert(default) as usize;
    if !(HEADER_BYTES..=MAX_MESSAGE_BYTES).contains(&bytes) {
        return Err(CaseError::MessageSize(format!(
            "protocol device: a message has {HEADER_BYTES} to {MAX_MESSAGE_BYTES} bytes, not {bytes}: choose another --size"
        )));
    }
    if !case.workload.is_round_trip() && case.warm_up != StopCondition::default() {
        return Err(CaseError::Option(
            "protocol device: a device counts from the first message on: leave out --warm-up".to_owned(),
        ));
    }
    Ok(())
}

fn connect(case: &ReadyCase, context: &ConnectContext) -> Result<Box<dyn ClientSession>, ProtocolError> {
    let mut sessions = Vec::new();
    let mut device = None;
    let flows = open_flows(case, context, |load, port, mut link, flows| {
        let caps = link.caps().clone();
        let session = u16::from_ne_bytes(random_bytes());
        let asker = Asker { session, clock: &context.dialer.clock, timeout: context.dialer.timeout };
        let endpoint = &case.endpoints[port];
        let found = asker.ask(link.as_mut(), DeviceMessage::Hello, HELLO_BYTES, Device::read);
        let found = found.map_err(|fault| refusal(endpoint, fault))?;
        if load.message_bytes > found.max_message_bytes {
            let most = found.max_message_bytes;
            let what = format!("the device takes messages of at most {most} bytes: choose a smaller --size");
            return Err(ProtocolError::unexpected_reply(endpoint, what));
        }
        device = Some(found);
        sessions.push(session);
        let role = if case.workload.is_round_trip() { FlowRole::RoundTrip } else { FlowRole::Upload };
        let recorder = (context.new_recorder)(role, port);
        let party: Box<dyn RecordingParty> = if case.workload.is_round_trip() {
            let codec = PingPongCodec::new(DevicePing { session }, load.message_bytes as usize, &caps);
            Box::new(Pinger::new(Box::new(codec), load, &caps, recorder))
        } else {
            let header = DeviceLoadHeader { session, sent: 0 };
            Box::new(Source::new(load, &caps, recorder).with_header(Box::new(header), &caps).without_finish())
        };
        flows.push(Flow { role, endpoint_index: port, link, party });
        Ok(())
    })?;
    Ok(Box::new(DeviceSession {
        flows,
        sessions,
        device,
        endpoints: case.endpoints.clone(),
        clock: context.dialer.clock.clone(),
        // What still waits in the queues of the link arrives first.
        timeout: case.load.timeout.saturating_mul(2),
    }))
}

fn refusal(endpoint: &Endpoint, fault: Fault) -> ProtocolError {
    match fault {
        Fault::TimedOut => ProtocolError::unexpected_reply(
            endpoint,
            "no device replied: check that its firmware contains linkgauge-responder, or start 'linkgauge serve --protocol \
             device'",
        ),
        fault => ProtocolError::Link(LinkError::new(endpoint, fault)),
    }
}

/// Sends requests that are not measured.
struct Asker<'a> {
    session: u16,
    clock: &'a Clock,
    timeout: Duration,
}

impl Asker<'_> {
    /// Sends a request of the length of its reply until the reply comes: several times where requests may be lost.
    fn ask<T>(
        &self,
        link: &mut dyn Link,
        kind: DeviceMessage,
        bytes: usize,
        read: impl Fn(&[u8]) -> Option<T>,
    ) -> Result<T, Fault> {
        let mut request = vec![0; bytes];
        let header =
            DeviceHeader { kind, is_reply: false, length: bytes as u16, session: self.session, number: 0 };
        request[..HEADER_BYTES].copy_from_slice(&header.encode());
        let is_stream = link.caps().framing == Framing::Stream;
        let tries = if is_stream { 1 } else { MAX_TRIES };
        for _ in 0..tries {
            send_all(link, &request[..bytes], self.timeout)?;
            match self.receive(link, bytes, self.timeout / tries, &read) {
                Err(Fault::TimedOut) => {}
                result => return result,
            }
        }
        Err(Fault::TimedOut)
    }

    /// Waits for the reply, and ignores late echoes and messages of other sessions.
    fn receive<T>(
        &self,
        link: &mut dyn Link,
        bytes: usize,
        within: Duration,
        read: impl Fn(&[u8]) -> Option<T>,
    ) -> Result<T, Fault> {
        let until = self.clock.now() + within;
        let is_stream = link.caps().framing == Framing::Stream;
        let mut reply = vec![0; if is_stream { bytes } else { MAX_MESSAGE_BYTES }];
        let mut have = 0;
        loop {
            let room = if is_stream { &mut reply[have..] } else { &mut reply[..] };
            let received = link.receive(room, until.since(self.clock.now()))?;
            have = if is_stream { have + received } else { received };
            let is_ours = |head: &[u8; HEADER_BYTES]| {
                DeviceHeader::read(head).is_some_and(|header| header.session == self.session)
            };
            if have >= bytes
                && reply.first_chunk().is_some_and(is_ours)
                && let Some(found) = read(&reply[..have])
            {
                return Ok(found);
            }
            if is_stream && have == bytes {
                reply.copy_within(1.., 0);
                have -= 1;
            }
            if self.clock.now() >= until {
                return Err(Fault::TimedOut);
            }
        }
    }
}

/// Headers of round trips.
struct DevicePing {
    session: u16,
}

/// Highest number: numbers have 48 bits.
const MAX_NUMBER: u64 = (1 << 48) - 1;

impl PingPongHeader<HEADER_BYTES> for DevicePing {
    fn request(&self, sequence: u64, length: usize) -> [u8; HEADER_BYTES] {
        let length = length as u16;
        let (session, number) = (self.session, sequence & MAX_NUMBER);
        DeviceHeader { kind: DeviceMessage::Echo, is_reply: false, length, session, number }.encode()
    }

    fn reply_sequence(&self, header: &[u8; HEADER_BYTES], length: usize) -> Option<u64> {
        let header = DeviceHeader::read(header)?;
        let is_ours = header.is_reply
            && header.kind == DeviceMessage::Echo
            && header.session == self.session
            && usize::from(header.length) == length;
        is_ours.then_some(header.number)
    }
}

/// Headers of an upload.
struct DeviceLoadHeader {
    session: u16,
    sent: u64,
}

impl DeviceLoadHeader {
    fn put(&self, message: &mut [u8], kind: DeviceMessage, number: u64) {
        let length = message.len() as u16;
        let header = DeviceHeader {
            kind,
            is_reply: false,
            length,
            session: self.session,
            number: number & MAX_NUMBER,
        };
        message[..HEADER_BYTES].copy_from_slice(&header.encode());
    }
}

impl HeaderCodec for DeviceLoadHeader {
    fn length(&self) -> usize {
        HEADER_BYTES
    }

    fn write(&mut self, message: &mut [u8], number: u64, _now: Time) {
        self.put(message, DeviceMessage::Data, number);
        self.sent = number + 1;
    }

    fn read(&mut self, _message: &[u8], _next: u64, _now: Time) -> ParsedHeader {
        ParsedHeader::Foreign
    }

    fn write_end(&mut self, message: &mut [u8], _now: Time) -> bool {
        self.put(message, DeviceMessage::End, self.sent);
        true
    }
}

struct DeviceSession {
    flows: Vec<Flow>,
    sessions: Vec<u16>,
    device: Option<Device>,
    endpoints: Vec<Endpoint>,
    clock: Clock,
    timeout: Duration,
}

impl ClientSession for DeviceSession {
    fn take_flows(&mut self) -> Vec<Flow> {
        std::mem::take(&mut self.flows)
    }

    /// Requests the counts of each upload.
    fn finish(
        &mut self,
        flows: &[FlowResult],
        mut links: Vec<Box<dyn Link>>,
    ) -> Result<Option<ServerReport>, ProtocolError> {
        let mut reports = Vec::new();
        for ((flow, link), &session) in flows.iter().zip(&mut links).zip(&self.sessions) {
            if flow.role != FlowRole::Upload {
                continue;
            }
            let asker = Asker { session, clock: &self.clock, timeout: self.timeout };
            let counts = asker
                .ask(link.as_mut(), DeviceMessage::Report, REPORT_BYTES, DeviceCounts::read)
                .map_err(|fault| LinkError::new(&self.endpoints[flow.endpoint_index], fault))?;
            reports.push(FlowReport {
                port: flow.endpoint_index,
                bytes: counts.bytes,
                messages: counts.messages,
                // The first message took no part of the time.
                head_bytes: counts.bytes.checked_div(counts.messages).unwrap_or(0),
                elapsed_ns: counts.elapsed_ns,
                duplicate: counts.duplicate,
                ..FlowReport::default()
            });
        }
        Ok((!reports.is_empty()).then(|| ServerReport { flows: reports, ..ServerReport::default() }))
    }

    fn server_environment(&self) -> Map<String, Value> {
        let Some(Device { max_message_bytes, tick_ns }) = self.device else { return Map::new() };
        let facts = [("max_message_bytes", max_message_bytes), ("clock_tick_ns", tick_ns)];
        facts.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect()
    }
}

struct DeviceService;

/// Device that a host emulates: it takes any message, and its clock counts nanoseconds.
const HOST: Device = Device { max_message_bytes: MAX_MESSAGE_BYTES as u32, tick_ns: 1 };

impl Service for DeviceService {
    fn new_party(&self, caps: &Caps, _from: &str) -> Box<dyn Party> {
        let room = caps.max_message_bytes.unwrap_or(MAX_MESSAGE_BYTES).min(MAX_MESSAGE_BYTES);
        Box::new(DeviceParty {
            batch: Batch::new(room, 1),
            sessions: match caps.framing {
                Framing::Stream => DeviceSessions::Stream(StreamSessions::new(HOST)),
                Framing::Message => DeviceSessions::Packets(PacketSessions::new(HOST)),
            },
            output: vec![0; room + 2 * REPORT_BYTES],
            output_bytes: 0,
            sent_bytes: 0,
            is_finished: false,
        })
    }

    /// Admits a sender whose first message is a request: no reply is longer than its request.
    fn admit_sender(&self, first: &[u8], _from: &str, _reply: &mut Vec<u8>) -> Admission {
        let header = first.first_chunk().and_then(DeviceHeader::read);
        match header.filter(|header| !header.is_reply && usize::from(header.length) == first.len()) {
            Some(_) => Admission::Open,
            None => Admission::Drop,
        }
    }

    /// Returns true: no device replies to a reply.
    fn replies_to_server_port(&self, _port: u16, _first: &[u8], _reply: &[u8]) -> bool {
        true
    }
}

/// Sessions of one client.
enum DeviceSessions {
    Stream(StreamSessions),
    Packets(PacketSessions<1>),
}

/// Server side: the device itself, with a link around it.
struct DeviceParty {
    batch: Batch,
    sessions: DeviceSessions,
    output: Vec<u8>,
    output_bytes: usize,
    sent_bytes: usize,
    is_finished: bool,
}

impl Party for DeviceParty {
    fn next_step(&mut self, _now: Time) -> Step<'_> {
        if self.sent_bytes < self.output_bytes {
            let bytes = &self.output[self.sent_bytes..self.output_bytes];
            return Step::Send { bytes, message: self.output_bytes };
        }
        if self.is_finished {
            return Step::Done;
        }
        Step::Receive { into: &mut self.batch, until: Time::NEVER }
    }

    fn on_sent(&mut self, bytes: usize, _at: Time) {
        self.sent_bytes += bytes;
    }

    fn on_received(&mut self, now: Time) {
        let data = self.batch.messages().next().unwrap_or_default();
        self.sent_bytes = 0;
        self.output_bytes = match &mut self.sessions {
            DeviceSessions::Stream(stream) => {
                let Progress { consumed, produced } = stream.on_bytes(now.0, data, &mut self.output);
                // A reply may be ahead of its request's last bytes by less than a report.
                debug_assert_eq!(consumed, data.len());
                produced
            }
            DeviceSessions::Packets(packets) => {
                let place = &mut self.output[..data.len()];
                place.copy_from_slice(data);
                packets.on_packet(now.0, 0, place).unwrap_or(0)
            }
        };
    }

    fn on_timeout(&mut self, _now: Time) {}

    fn on_closed(&mut self, _now: Time) -> Result<(), Fault> {
        self.is_finished = true;
        Ok(())
    }
}
