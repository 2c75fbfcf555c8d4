//! Connection with the remote node: handshake, window, fragments, retransmission, supervision.

use super::endpoints::{Endpoints, Short, SignalEffect};
use super::frame::{
    Body, ConnectKind, DATA_HEADER_BYTES, ETHERNET_HEADER_BYTES, ETHERTYPE, Frame, HandshakeFrame, Headers,
    MacAddress,
};
use super::outbox::{OutgoingContent, OutgoingMessages};
use crate::field;

/// Duration of a tick in nanoseconds: three ticks are `conn_tmo`, 1000 ms by default in real nodes.
const TICK_NS: u64 = 333_333_000;
/// Interval at which unacknowledged frames are sent again.
const RETRANSMIT_NS: u64 = 100_000_000;
/// Ticks without a frame from the remote node until the connection fails.
const MAX_SILENT_TICKS: u8 = 4;
/// Frames in flight at once, as a power of two.
const WINDOW_EXPONENT: u8 = 4;
/// Sequence numbers have 12 bits.
const SEQUENCE_MODULUS: u16 = 1 << 12;
/// The largest frame, without the Ethernet header.
const MTU: usize = 1500;
/// A frame shorter than this is padded.
const MIN_ETHERNET_BYTES: usize = 60;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    Accepted,
    Up,
}

/// A buffer for one message.
#[derive(Debug, Clone, Copy)]
struct MessageBuffer<const MESSAGE: usize> {
    bytes: [u8; MESSAGE],
    length: usize,
    holds: Holds,
}

/// Content of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holds {
    Nothing,
    /// The beginning of a message from one endpoint to another; its further parts have this tag.
    Beginning {
        addresses: [u32; 2],
        tag: u16,
    },
    /// An echo that the remote node has not acknowledged.
    Echo,
}

/// Signals that a burst has still to send.
#[derive(Debug, Clone, Copy)]
struct Burst {
    addresses: [u32; 2],
    left: u32,
    number: u32,
    length: usize,
}

/// Frames that are sent before anything else.
#[derive(Debug, Clone, Copy, Default)]
struct PendingFrames {
    connect: Option<ConnectKind>,
    nack: Option<(u16, u8)>,
    /// Distances of frames to send again, from the first up to the second.
    resend: (u16, u16),
    ack: bool,
    /// The acknowledgement asks for one.
    asks: bool,
}

/// A LINX node for messages of up to `MESSAGE` bytes, of which `SLOTS` are held at once.
#[derive(Debug, Clone)]
pub struct DeviceNode<const MESSAGE: usize, const SLOTS: usize> {
    mac: MacAddress,
    peer: MacAddress,
    state: State,
    local_id: u8,
    remote_id: u8,
    window: u16,
    next_tick: u64,
    next_retransmit: u64,
    silent_ticks_left: u8,
    // Sending.
    outbox: OutgoingMessages,
    first_unacked: u16,
    sent: u16,
    has_progress: bool,
    burst: Option<Burst>,
    // Receiving.
    expected: u16,
    /// Distance to which frames came while there was no buffer for the next one, and distance to which lost ones were requested.
    refused: u16,
    requested: u16,
    slots: [MessageBuffer<MESSAGE>; SLOTS],
    endpoints: Endpoints,
    pending: PendingFrames,
}

impl<const MESSAGE: usize, const SLOTS: usize> DeviceNode<MESSAGE, SLOTS> {
    /// A node with this Ethernet address.
    pub const fn new(mac: MacAddress) -> Self {
        DeviceNode {
            mac,
            peer: [0; 6],
            state: State::Idle,
            local_id: 2,
            remote_id: 0,
            window: 1,
            next_tick: 0,
            next_retransmit: 0,
            silent_ticks_left: 0,
            outbox: OutgoingMessages::new(),
            first_unacked: 0,
            sent: 0,
            has_progress: false,
            burst: None,
            expected: 0,
            refused: 0,
            requested: 0,
            slots: [MessageBuffer { bytes: [0; MESSAGE], length: 0, holds: Holds::Nothing }; SLOTS],
            endpoints: Endpoints::new(),
            pending: PendingFrames { connect: None, nack: None, resend: (0, 0), ack: false, asks: false },
        }
    }

    /// Whether a remote node is connected.
    pub fn is_up(&self) -> bool {
        self.state == State::Up
    }

    /// Time when [`DeviceNode::poll`] has work next, in the caller's nanoseconds.
    pub fn next_due(&self) -> u64 {
        if self.is_up() { self.next_tick.min(self.next_retransmit) } else { self.next_tick }
    }

    /// Handles an Ethernet frame; others than LINX's are ignored. Call [`DeviceNode::poll`] until it has nothing more to send.
    pub fn on_frame(&mut self, now_ns: u64, ethernet: &[u8]) {
        let Some((head, bytes)) = ethernet.split_first_chunk::<ETHERNET_HEADER_BYTES>() else { return };
        let from = field::read(head, 6).unwrap_or_default();
        if head[..6] != self.mac || head[12..] != ETHERTYPE.to_be_bytes() {
            return;
        }
        if self.state != State::Idle && from != self.peer {
            return;
        }
        match Frame::parse(bytes) {
            Some(Frame::Connect(connect)) => self.on_connect(now_ns, from, connect),
            Some(Frame::Ack { id, wants_ack, ack, sequence, body })
                if self.is_up() && id == self.local_id =>
            {
                self.silent_ticks_left = MAX_SILENT_TICKS;
                self.on_ack(ack);
                match body {
                    Body::Empty => {}
                    Body::Nack { first, count } => {
                        let from = distance(self.first_unacked, first).min(self.sent);
                        self.pending.resend = (from, from.saturating_add(count.into()).min(self.sent));
                    }
                    Body::Data { .. } => self.on_data(sequence, body),
                }
                self.pending.ack |= wants_ack;
            }
            _ => {}
        }
    }

    // ---- the handshake ----

    fn on_connect(&mut self, now_ns: u64, from: MacAddress, connect: HandshakeFrame) {
        let mtu = usize::from(connect.mtu.unwrap_or(MTU as u16)).min(MTU);
        match (self.state, connect.kind) {
            (State::Idle, ConnectKind::Connect) => {
                self.peer = from;
                // Another ID than that of the connection before, so that late frames of it are recognised.
                self.local_id = if self.local_id == 254 { 2 } else { self.local_id + 2 };
                self.next_tick = now_ns + TICK_NS;
                (self.state, self.pending.connect) = (State::Accepted, Some(ConnectKind::ConnectAck));
            }
            (State::Accepted, ConnectKind::Ack) if mtu >= 2 * DATA_HEADER_BYTES + 4 => {
                self.set_up(now_ns, connect, mtu);
            }
            (State::Idle, ConnectKind::Reset) => {}
            (State::Accepted, ConnectKind::Reset) => self.state = State::Idle,
            (State::Idle, _) => {
                self.peer = from;
                self.disconnect();
            }
            _ => self.disconnect(),
        }
    }

    fn set_up(&mut self, now_ns: u64, connect: HandshakeFrame, mtu: usize) {
        self.state = State::Up;
        self.remote_id = connect.id;
        self.window = 1 << connect.window.min(WINDOW_EXPONENT);
        (self.next_tick, self.next_retransmit) = (now_ns + TICK_NS, now_ns + RETRANSMIT_NS);
        self.silent_ticks_left = MAX_SILENT_TICKS;
        self.outbox.reset(mtu);
        (self.first_unacked, self.sent) = (0, 0);
        (self.expected, self.refused, self.requested) = (0, 0, 0);
        (self.burst, self.pending) = (None, PendingFrames::default());
        self.slots.iter_mut().for_each(|slot| slot.holds = Holds::Nothing);
        self.endpoints = Endpoints::new();
        self.push_short(Short::init());
    }

    fn disconnect(&mut self) {
        self.pending = PendingFrames { connect: Some(ConnectKind::Reset), ..PendingFrames::default() };
        self.state = State::Idle;
    }

    // ---- receiving ----

    fn on_data(&mut self, sequence: u16, body: Body) {
        let ahead = distance(self.expected, sequence);
        if ahead >= self.window {
            self.pending.ack = true;
        } else if ahead == 0 && self.take(body) {
            self.expected = (self.expected + 1) % SEQUENCE_MODULUS;
            self.requested = self.requested.saturating_sub(1);
        } else if ahead == 0 || self.refused > 0 {
            self.refused = self.refused.max(ahead + 1);
        } else if ahead >= self.requested {
            // Frames before it are lost. It is not stored, so that it has to come again, too.
            self.request(self.requested, ahead + 1);
        }
    }

    /// Asks for the frames from one distance up to another.
    fn request(&mut self, from: u16, to: u16) {
        let first = (self.expected + from) % SEQUENCE_MODULUS;
        (self.pending.nack, self.requested) = (Some((first, (to - from) as u8)), to);
    }

    /// Takes the next part of a message; `false` if there is no room for it now.
    fn take(&mut self, body: Body) -> bool {
        let Body::Data { addresses, more, tag, bytes } = body else { return true };
        let at = match addresses {
            // What the link handler says fits a frame, and its effects need places in the outbox.
            Some((0, 0)) => {
                let has_room = self.outbox.room() >= 2;
                if has_room {
                    let effect = self.endpoints.on_link_message(bytes);
                    self.apply(effect, [0, 0], 0);
                }
                return has_room;
            }
            Some((_, destination)) if self.endpoints.is_dropped(destination) => return true,
            Some((source, destination)) => {
                let free = self.slots.iter().position(|slot| slot.holds == Holds::Nothing);
                let Some(at) = free.filter(|_| self.outbox.room() >= 3) else { return false };
                let holds = Holds::Beginning { addresses: [source, destination], tag };
                (self.slots[at].holds, self.slots[at].length) = (holds, 0);
                at
            }
            None => {
                let is_it = |slot: &MessageBuffer<MESSAGE>| matches!(slot.holds, Holds::Beginning { tag: of, .. } if of == tag);
                // A part of what is dropped.
                let Some(at) = self.slots.iter().position(is_it) else { return true };
                if !more && self.outbox.room() < 3 {
                    return false;
                }
                at
            }
        };
        let slot = &mut self.slots[at];
        match slot.bytes.get_mut(slot.length..slot.length + bytes.len()) {
            Some(place) => place.copy_from_slice(bytes),
            // Longer than any message that this node holds: dropped.
            None => {
                slot.holds = Holds::Nothing;
                return true;
            }
        }
        slot.length += bytes.len();
        if !more && let Holds::Beginning { addresses: [source, destination], .. } = slot.holds {
            slot.holds = Holds::Nothing;
            let effect = self.endpoints.on_signal(source, destination, &slot.bytes[..slot.length]);
            self.apply(effect, [destination, source], at);
        }
        true
    }

    /// `at` is the buffer of the signal, which an echo sends back from one endpoint to the other.
    fn apply(&mut self, effect: SignalEffect, back: [u32; 2], at: usize) {
        match effect {
            SignalEffect::Drop => {}
            SignalEffect::Messages(all) => all.into_iter().flatten().for_each(|short| self.push_short(short)),
            SignalEffect::Echo => {
                if let Some(slot) = self.slots.get_mut(at)
                    && self.outbox.push(back, OutgoingContent::Buffer(at), slot.length)
                {
                    slot.holds = Holds::Echo;
                }
            }
            SignalEffect::Burst { addresses, count, number, length } => {
                let length = (length as usize).clamp(4, MESSAGE);
                self.burst = Some(Burst { addresses, left: count, number, length });
            }
            SignalEffect::Disconnect => self.disconnect(),
        }
    }

    fn push_short(&mut self, short: Short) {
        self.outbox.push(short.addresses, OutgoingContent::Short(short.bytes), short.length);
    }

    // ---- sending ----

    fn on_ack(&mut self, ack: u16) {
        let frames = distance(self.first_unacked, ack);
        if frames == 0 || frames > self.sent {
            return;
        }
        let slots = &mut self.slots;
        self.outbox.acknowledge(frames, |message| {
            if let OutgoingContent::Buffer(at) = message.content {
                slots[at].holds = Holds::Nothing;
            }
        });
        (self.first_unacked, self.has_progress) = (ack, true);
        self.sent -= frames;
        self.pending.resend = (0, 0);
        // What was refused may come again now.
        if self.refused > 0 {
            self.request(0, self.refused);
            self.refused = 0;
        }
    }

    /// Does what is due, and writes the next Ethernet frame to send. Returns its length; `None`: there is nothing to send.
    pub fn poll(&mut self, now_ns: u64, frame: &mut [u8]) -> Option<usize> {
        self.tick(now_ns);
        self.feed_burst();
        let bytes = frame.get_mut(ETHERNET_HEADER_BYTES..ETHERNET_HEADER_BYTES + MTU)?;
        let length = self.next_frame(bytes)?;
        let padded = (ETHERNET_HEADER_BYTES + length).max(MIN_ETHERNET_BYTES);
        bytes[length..padded - ETHERNET_HEADER_BYTES].fill(0);
        field::write(frame, 0, self.peer);
        field::write(frame, 6, self.mac);
        field::write(frame, 12, ETHERTYPE.to_be_bytes());
        Some(padded)
    }

    fn tick(&mut self, now_ns: u64) {
        if self.is_up() && now_ns >= self.next_retransmit {
            self.next_retransmit = now_ns + RETRANSMIT_NS;
            // The request may be lost.
            self.requested = 0;
            if !core::mem::take(&mut self.has_progress) && self.sent > 0 {
                self.pending.resend = (0, 1);
            }
        }
        if now_ns < self.next_tick {
            return;
        }
        self.next_tick = now_ns + TICK_NS;
        match self.state {
            State::Idle => {}
            State::Accepted => self.disconnect(),
            State::Up => {
                self.silent_ticks_left = self.silent_ticks_left.saturating_sub(1);
                if self.silent_ticks_left == 0 {
                    self.disconnect();
                } else {
                    (self.pending.ack, self.pending.asks) = (true, true);
                }
            }
        }
    }

    /// Signals of a burst, while places are left for what the link handler has to say.
    fn feed_burst(&mut self) {
        while let Some(Burst { addresses, left, number, length }) = self.burst {
            if left == 0 {
                self.burst = None;
            } else if self.outbox.room() > 4
                && self.outbox.push(addresses, OutgoingContent::Signal(number), length)
            {
                self.burst = Some(Burst { addresses, left: left - 1, number, length });
            } else {
                return;
            }
        }
    }

    fn next_frame(&mut self, into: &mut [u8]) -> Option<usize> {
        if let Some(kind) = self.pending.connect.take() {
            let mtu = (kind != ConnectKind::Reset).then_some(MTU as u16);
            let frame = HandshakeFrame { kind, window: WINDOW_EXPONENT, id: self.local_id, mtu };
            return Some(frame.write([self.peer, self.mac], into));
        }
        if !self.is_up() {
            return None;
        }
        let (from, to) = self.pending.resend;
        if from < to {
            self.pending.resend.0 += 1;
            return self.data_frame(from, to - from == 1, into);
        }
        if self.sent < self.window && self.sent < self.outbox.frames() {
            let index = self.sent;
            self.sent += 1;
            // The rest of a burst has no place before these are acknowledged.
            let is_held_up = self.burst.is_some() && self.sent == self.outbox.frames();
            let asks = is_held_up || self.sent == self.window || self.sent == self.window / 2 + 1;
            return self.data_frame(index, asks, into);
        }
        let headers =
            Headers { id: self.remote_id, wants_ack: self.pending.asks, ack: self.expected, sequence: 0 };
        if let Some((first, count)) = self.pending.nack.take() {
            return Some(Headers { wants_ack: false, ..headers }.write(&Body::Nack { first, count }, into));
        }
        self.pending.asks = false;
        core::mem::take(&mut self.pending.ack).then(|| headers.write(&Body::Empty, into))
    }

    /// The frame at this distance from the first unacknowledged one.
    fn data_frame(&self, index: u16, wants_ack: bool, into: &mut [u8]) -> Option<usize> {
        let part = self.outbox.part(index)?;
        let message = &part.message;
        let all = match &message.content {
            OutgoingContent::Short(bytes) => Some(&bytes[..]),
            OutgoingContent::Buffer(at) => Some(&self.slots.get(*at)?.bytes[..]),
            OutgoingContent::Signal(_) => None,
        };
        let headers = Headers {
            id: self.remote_id,
            wants_ack,
            ack: self.expected,
            sequence: (self.first_unacked + index) % SEQUENCE_MODULUS,
        };
        let addresses = part.is_first.then_some((message.source, message.destination));
        let start = if part.is_first { DATA_HEADER_BYTES } else { super::frame::FRAGMENT_HEADER_BYTES };
        let place = into.get_mut(start..start + part.length)?;
        match (all, message.content) {
            (Some(all), _) => place.copy_from_slice(all.get(part.start..part.start + part.length)?),
            (None, content) => {
                place.fill(0);
                if let (OutgoingContent::Signal(number), 0) = (content, part.start) {
                    field::write(place, 0, number.to_be_bytes());
                }
            }
        }
        // The headers state the length of the data, whatever they are.
        let (head, data) = into.split_at_mut(start);
        let bytes = &data[..part.length];
        let body = Body::Data { addresses, more: part.more, tag: part.tag, bytes };
        Some(headers.write(&body, head) + part.length)
    }
}

/// The distance from one sequence number to another.
fn distance(from: u16, to: u16) -> u16 {
    to.wrapping_sub(from) % SEQUENCE_MODULUS
}
