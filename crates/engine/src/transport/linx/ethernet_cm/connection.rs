//! One connection over Ethernet: the handshake, the window, fragments, retransmission, supervision. A state
//! machine: frames in, frames out; the caller gives the time.

use std::collections::VecDeque;
use std::time::Duration;

use fastrand::Rng;

use super::super::{ConnectionRole, DisconnectReason};
use super::{
    AckRequest, ConnectFrame, ConnectKind, DATA_HEADER_BYTES, EthernetFrame, FRAGMENT_HEADER_BYTES,
    FrameBody, MAX_FRAME_BYTES, MacAddress, UNFRAGMENTED_TAG,
};
use crate::link::stamps;
use linkgauge_model::clock::Time;

/// Largest message accepted from the remote node; real benchmarks send no more.
pub(crate) const MAX_MESSAGE_BYTES: usize = 65_536;

/// Interval of ticks. Three ticks are `conn_tmo`, 1000 ms by default in real nodes.
const TICK_INTERVAL: Duration = Duration::from_micros(333_333);

/// Random variation of a tick while not connected, so that two nodes do not keep colliding.
const TICK_JITTER: Duration = Duration::from_millis(128);

/// Ticks without a frame from the remote node until the connection fails.
const MAX_SILENT_TICKS: u32 = 4;

/// Interval of repeated requests for missing frames, and of retransmissions of unacknowledged frames.
const RETRANSMIT_INTERVAL: Duration = Duration::from_millis(100);

/// Frames in flight at once, as a power of two; 128 as in real nodes.
const WINDOW_EXPONENT: u8 = 7;

/// Number of sequence numbers, which have 12 bits.
const SEQUENCE_MODULUS: u16 = 1 << 12;

/// Frames that may wait behind the window, besides those of one message. Beyond it, no messages are accepted.
const MAX_QUEUED_FRAMES: usize = 128;

/// Limit of partially received messages of the remote node.
const MAX_PARTIAL_MESSAGES: usize = 64;

/// Limit of received messages that wait. Beyond it, the remote node's window stays closed.
const MAX_INBOX_BYTES: usize = 1 << 20;

/// Smallest MTU: a frame holds at least a signal number.
const MIN_MTU: usize = DATA_HEADER_BYTES + 4;

/// Frames stored for reuse.
const MAX_SPARE_FRAMES: usize = 512;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HandshakeState {
    /// Ignores all frames until the next tick.
    Disconnected,
    Idle,
    ConnectSent,
    ConnectAckSent,
    Up,
}

/// The effect of a frame or a tick.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConnectionEvent {
    /// The caller has nothing to do.
    Nothing,
    /// The handshake has finished: messages may be sent now.
    Up,
    /// The connection has ended, for this reason.
    Down(DisconnectReason),
}

/// Destination of frames, each with the address of the endpoint whose message ends with it, at its first transmission. Returns
/// `false` if the device cannot take one now. That frame is lost, unless it is the first transmission of a message frame: such
/// a frame waits, with those behind it.
pub(crate) type FrameSink<'a> = dyn FnMut(&[u8], Option<u32>) -> bool + 'a;

/// A frame of a message, until it is acknowledged.
#[derive(Debug)]
struct UnacknowledgedFrame {
    bytes: Vec<u8>,
    /// Address of the endpoint whose message ends with this frame.
    ends_message_of: Option<u32>,
}

/// An incomplete message.
#[derive(Debug)]
struct PartialMessage {
    tag: u16,
    source: u32,
    destination: u32,
    bytes: Vec<u8>,
}

/// One connection with another node.
#[derive(Debug)]
pub struct EthernetConnection {
    role: ConnectionRole,
    local_mac: MacAddress,
    remote_mac: MacAddress,
    local_mtu: usize,
    local_id: u8,
    random: Rng,
    state: HandshakeState,
    next_tick: Time,
    silent_ticks_left: u32,
    // The negotiated parameters.
    remote_id: u8,
    mtu: usize,
    window: u16,
    // Sending: frames from number `acked` on; the first `sent` of them are in flight.
    frames: VecDeque<UnacknowledgedFrame>,
    spare_frames: Vec<Vec<u8>>,
    first_unacked: u16,
    sent: usize,
    /// Whether the device took no more frames.
    is_device_blocked: bool,
    tag: u16,
    next_retransmit: Time,
    has_send_progress: bool,
    // Receiving: the next expected number, and frames that arrived early, indexed by distance.
    expected: u16,
    out_of_order: VecDeque<Option<Vec<u8>>>,
    has_receive_progress: bool,
    partial_messages: Vec<PartialMessage>,
    /// The kernel's stamp of the frame that is being handled.
    arrived: Option<Time>,
    /// Whole messages back to back: length, source, destination, stamp, bytes.
    inbox: Vec<u8>,
}

/// Length, source, destination and stamp in front of a message of the inbox.
const ENTRY_HEADER_BYTES: usize = 12 + stamps::STORED_BYTES;

impl EthernetConnection {
    /// The addresses are those of this end and of the remote. `own_mtu`: limit of the device; `seed` makes the ticks and the
    /// identity differ between connections.
    pub fn new(
        side: ConnectionRole,
        [own, remote]: [MacAddress; 2],
        own_mtu: usize,
        seed: u64,
        now: Time,
    ) -> EthernetConnection {
        let mut random = Rng::with_seed(seed);
        // The caller's ID is odd, the other one even: two ends that share a wire and an address recognize
        // their own frames.
        let own_id = 2 * random.u8(1..=127) + u8::from(side == ConnectionRole::Active);
        EthernetConnection {
            role: side,
            local_mac: own,
            remote_mac: remote,
            local_mtu: own_mtu.min(MAX_FRAME_BYTES),
            local_id: own_id,
            random,
            state: HandshakeState::Idle,
            next_tick: now,
            silent_ticks_left: MAX_SILENT_TICKS,
            remote_id: 0,
            mtu: 0,
            window: 1,
            frames: VecDeque::new(),
            spare_frames: Vec::new(),
            first_unacked: 0,
            sent: 0,
            is_device_blocked: false,
            tag: 0,
            next_retransmit: now,
            has_send_progress: false,
            expected: 0,
            out_of_order: VecDeque::new(),
            has_receive_progress: false,
            partial_messages: Vec::new(),
            arrived: None,
            inbox: Vec::new(),
        }
    }

    /// Whether messages can be sent.
    pub(crate) fn is_up(&self) -> bool {
        self.state == HandshakeState::Up
    }

    /// The maximum size of a frame in bytes, as both nodes support it.
    pub(crate) fn mtu(&self) -> usize {
        self.mtu
    }

    /// The next time at which [`EthernetConnection::tick`] has work.
    pub(crate) fn next_due(&self) -> Time {
        if self.is_up() { self.next_tick.min(self.next_retransmit) } else { self.next_tick }
    }

    // ---- the handshake ----

    fn connect_frame(&self, kind: ConnectKind) -> Vec<u8> {
        let mtu = matches!(kind, ConnectKind::ConnectAck | ConnectKind::Ack).then_some(self.local_mtu);
        ConnectFrame {
            kind,
            window: WINDOW_EXPONENT,
            id: self.local_id,
            to: self.remote_mac,
            from: self.local_mac,
            mtu,
        }
        .encode()
    }

    /// Sends a reset, and starts again.
    fn reset_handshake(&mut self, out: &mut FrameSink) {
        out(&self.connect_frame(ConnectKind::Reset), None);
        self.state = HandshakeState::Idle;
    }

    fn disconnect(&mut self, ending: DisconnectReason, now: Time, out: &mut FrameSink) -> ConnectionEvent {
        self.reset_handshake(out);
        (self.state, self.next_tick) = (HandshakeState::Disconnected, now + TICK_INTERVAL);
        ConnectionEvent::Down(ending)
    }

    fn set_up(&mut self, now: Time) -> ConnectionEvent {
        self.state = HandshakeState::Up;
        (self.next_tick, self.next_retransmit, self.silent_ticks_left) =
            (now + TICK_INTERVAL, now + RETRANSMIT_INTERVAL, MAX_SILENT_TICKS);
        self.spare_frames.extend(self.frames.drain(..).map(|frame| frame.bytes));
        self.spare_frames.truncate(MAX_SPARE_FRAMES);
        (self.first_unacked, self.sent, self.is_device_blocked, self.tag, self.expected) =
            (0, 0, false, 0, 0);
        self.out_of_order.clear();
        self.partial_messages.clear();
        ConnectionEvent::Up
    }

    /// Applies the parameters of a handshake frame; `false` if no connection is possible with them.
    fn accept_parameters(&mut self, connect: &ConnectFrame) -> bool {
        self.remote_id = connect.id;
        self.window = 1 << connect.window.min(WINDOW_EXPONENT);
        self.mtu = connect.mtu.unwrap_or(self.local_mtu).min(self.local_mtu);
        self.mtu >= MIN_MTU
    }

    fn handle_connect(&mut self, connect: &ConnectFrame, now: Time, out: &mut FrameSink) -> ConnectionEvent {
        // Our own frame, returned by a looped wire.
        if connect.id == self.local_id && connect.from == self.local_mac {
            return ConnectionEvent::Nothing;
        }
        match (self.state, connect.kind) {
            (HandshakeState::Disconnected, _) => {}
            (HandshakeState::Up, ConnectKind::Reset) => {
                return self.disconnect(DisconnectReason::Closed, now, out);
            }
            (HandshakeState::Up, _) => {
                return self.disconnect(
                    DisconnectReason::ProtocolError("the remote node began again"),
                    now,
                    out,
                );
            }
            (_, ConnectKind::Reset) => self.state = HandshakeState::Idle,
            (HandshakeState::Idle, ConnectKind::Connect) if self.accept_parameters(connect) => {
                out(&self.connect_frame(ConnectKind::ConnectAck), None);
                (self.state, self.next_tick) = (HandshakeState::ConnectAckSent, now + TICK_INTERVAL);
            }
            (HandshakeState::ConnectSent, ConnectKind::ConnectAck) if self.accept_parameters(connect) => {
                out(&self.connect_frame(ConnectKind::Ack), None);
                return self.set_up(now);
            }
            (HandshakeState::ConnectAckSent, ConnectKind::Ack) if self.accept_parameters(connect) => {
                return self.set_up(now);
            }
            _ => self.reset_handshake(out),
        }
        ConnectionEvent::Nothing
    }

    // ---- time ----

    /// Does the work that is due: retransmission, supervision and the handshake.
    pub(crate) fn tick(&mut self, now: Time, out: &mut FrameSink) -> ConnectionEvent {
        if now >= self.next_retransmit && self.is_up() {
            self.next_retransmit = now + RETRANSMIT_INTERVAL;
            self.recover_losses(out);
        }
        if now < self.next_tick {
            return ConnectionEvent::Nothing;
        }
        self.next_tick = now + TICK_INTERVAL;
        if self.is_up() {
            self.silent_ticks_left -= 1;
            if self.silent_ticks_left == 0 {
                return self.disconnect(
                    DisconnectReason::Timeout("the remote node stopped replying"),
                    now,
                    out,
                );
            }
            out(&super::encode_ack(self.remote_id, AckRequest::Wanted, self.expected), None);
            return ConnectionEvent::Nothing;
        }
        let spread = TICK_JITTER.as_nanos() as u64;
        self.next_tick =
            now + (TICK_INTERVAL - TICK_JITTER) + Duration::from_nanos(self.random.u64(..2 * spread));
        match (self.state, self.role) {
            (HandshakeState::Idle, ConnectionRole::Active) => {
                out(&self.connect_frame(ConnectKind::Connect), None);
                self.state = HandshakeState::ConnectSent;
            }
            (HandshakeState::Idle, ConnectionRole::Passive) => {}
            (HandshakeState::Disconnected, _) => self.state = HandshakeState::Idle,
            _ => self.reset_handshake(out),
        }
        ConnectionEvent::Nothing
    }

    /// Requests missing frames and sends unacknowledged ones again.
    fn recover_losses(&mut self, out: &mut FrameSink) {
        if !std::mem::take(&mut self.has_receive_progress) && self.has_room() {
            let mut missing = 0;
            for distance in 0..self.out_of_order.len() {
                match (&self.out_of_order[distance], missing) {
                    (None, _) => missing += 1,
                    (Some(_), 0) => {}
                    (Some(_), _) => {
                        self.send_nack(distance - missing, missing, out);
                        missing = 0;
                    }
                }
            }
        }
        if !std::mem::take(&mut self.has_send_progress) && self.sent > 0 {
            self.transmit_frame(0, AckRequest::Wanted, out);
        }
    }

    // ---- receiving ----

    /// Handles a frame like [`Self::handle_frame`], with the kernel's stamp, which becomes that of the messages it completes.
    pub(crate) fn handle_stamped_frame(
        &mut self,
        bytes: &[u8],
        arrived: Option<Time>,
        now: Time,
        out: &mut FrameSink,
    ) -> ConnectionEvent {
        self.arrived = arrived;
        let event = self.handle_frame(bytes, now, out);
        self.arrived = None;
        event
    }

    /// Handles a frame from the remote node, or one that only resembles such a frame.
    pub fn handle_frame(&mut self, bytes: &[u8], now: Time, out: &mut FrameSink) -> ConnectionEvent {
        let frame = match EthernetFrame::parse(bytes) {
            Ok(frame) => frame,
            Err(ending @ DisconnectReason::VersionMismatch { .. }) => return ConnectionEvent::Down(ending),
            // An invalid frame counts as lost, whatever its sender.
            Err(_) => return ConnectionEvent::Nothing,
        };
        let (id, request, ack, sequence, body) = match frame {
            EthernetFrame::Connect(connect) => return self.handle_connect(&connect, now, out),
            EthernetFrame::Ack { id, request, ack, sequence, body } => (id, request, ack, sequence, body),
        };
        if !self.is_up() || id != self.local_id {
            return ConnectionEvent::Nothing;
        }
        self.silent_ticks_left = MAX_SILENT_TICKS;
        self.handle_ack(ack, out);
        match body {
            FrameBody::Nack { first, count } => {
                let distance = usize::from(sequence_distance(self.first_unacked, first));
                for index in distance..(distance + usize::from(count)).min(self.sent) {
                    self.transmit_frame(index, AckRequest::None, out);
                }
            }
            FrameBody::Empty => {}
            FrameBody::Data { .. } | FrameBody::Fragment { .. } => {
                if let Err(ending) = self.handle_data(bytes, sequence, body, out) {
                    return self.disconnect(ending, now, out);
                }
            }
        }
        if request == AckRequest::Wanted {
            out(&super::encode_ack(self.remote_id, AckRequest::None, self.expected), None);
        }
        ConnectionEvent::Nothing
    }

    fn handle_data(
        &mut self,
        frame: &[u8],
        sequence: u16,
        body: FrameBody,
        out: &mut FrameSink,
    ) -> Result<(), DisconnectReason> {
        let distance = usize::from(sequence_distance(self.expected, sequence));
        if distance >= usize::from(self.window) {
            // A duplicate: the acknowledgement was lost.
            out(&super::encode_ack(self.remote_id, AckRequest::None, self.expected), None);
            return Ok(());
        }
        if distance == 0 && self.has_room() {
            self.accept_body(body)?;
            self.advance_expected();
            return self.deliver_out_of_order();
        }
        while self.out_of_order.len() <= distance {
            self.out_of_order.push_back(None);
        }
        if self.out_of_order[distance].is_some() {
            return Ok(());
        }
        self.out_of_order[distance] = Some(frame.to_vec());
        // The frame before it is missing, so missing frames have just been detected.
        let missing =
            self.out_of_order.iter().take(distance).rev().take_while(|frame| frame.is_none()).count();
        if missing > 0 {
            self.send_nack(distance - missing, missing, out);
        }
        Ok(())
    }

    fn send_nack(&self, distance: usize, missing: usize, out: &mut FrameSink) {
        let first = self.expected.wrapping_add(distance as u16);
        out(&super::encode_nack(self.remote_id, self.expected, first, missing as u8), None);
    }

    fn advance_expected(&mut self) {
        self.expected = (self.expected + 1) % SEQUENCE_MODULUS;
        self.out_of_order.pop_front();
        self.has_receive_progress = true;
    }

    /// Delivers the early frames that follow the received one.
    fn deliver_out_of_order(&mut self) -> Result<(), DisconnectReason> {
        while self.has_room()
            && let Some(frame) = self.out_of_order.front_mut().and_then(Option::take)
        {
            if let EthernetFrame::Ack { body, .. } = EthernetFrame::parse(&frame)? {
                self.accept_body(body)?;
            }
            self.advance_expected();
        }
        Ok(())
    }

    fn accept_body(&mut self, body: FrameBody) -> Result<(), DisconnectReason> {
        match body {
            FrameBody::Data { more: false, source, destination, bytes, .. } => {
                self.deliver(source, destination, bytes);
            }
            FrameBody::Data { tag, source, destination, bytes, .. } => {
                if self.partial_messages.len() >= MAX_PARTIAL_MESSAGES {
                    return Err(DisconnectReason::ProtocolError(
                        "the remote node starts too many messages at once",
                    ));
                }
                self.partial_messages.push(PartialMessage {
                    tag,
                    source,
                    destination,
                    bytes: bytes.to_vec(),
                });
            }
            FrameBody::Fragment { more, tag, bytes } => {
                // The protocol specification numbers fragments instead. Such frames are accepted, but no
                // implementation was seen to send them.
                let alone = self.partial_messages.len() == 1;
                let found = self.partial_messages.iter().position(|partial| partial.tag == tag || alone);
                let Some(index) = found else { return Ok(()) };
                let partial = &mut self.partial_messages[index];
                if partial.bytes.len() + bytes.len() > MAX_MESSAGE_BYTES {
                    return Err(DisconnectReason::ProtocolError(
                        "a message of the remote node is longer than 65536 bytes",
                    ));
                }
                partial.bytes.extend_from_slice(bytes);
                if !more {
                    let PartialMessage { source, destination, bytes, .. } =
                        self.partial_messages.remove(index);
                    self.deliver(source, destination, &bytes);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn deliver(&mut self, source: u32, destination: u32, bytes: &[u8]) {
        for word in [bytes.len() as u32, source, destination] {
            self.inbox.extend_from_slice(&word.to_ne_bytes());
        }
        self.inbox.extend_from_slice(&stamps::stored(self.arrived));
        self.inbox.extend_from_slice(bytes);
    }

    fn has_room(&self) -> bool {
        self.inbox.len() <= MAX_INBOX_BYTES
    }

    /// Whether a complete message waits.
    pub(crate) fn has_messages(&self) -> bool {
        !self.inbox.is_empty()
    }

    /// Moves all complete messages into `into`, which is empty; [`split_first_message`] reads them.
    ///
    /// # Errors
    ///
    /// Fails if a waiting frame breaks the protocol.
    pub fn take_messages(&mut self, into: &mut Vec<u8>, out: &mut FrameSink) -> Result<(), DisconnectReason> {
        let was_shut = !self.has_room();
        std::mem::swap(&mut self.inbox, into);
        if was_shut && self.is_up() {
            self.deliver_out_of_order()?;
            out(&super::encode_ack(self.remote_id, AckRequest::None, self.expected), None);
        }
        Ok(())
    }

    // ---- sending ----

    fn handle_ack(&mut self, ack: u16, out: &mut FrameSink) {
        let count = usize::from(sequence_distance(self.first_unacked, ack));
        if count == 0 || count > self.sent {
            return;
        }
        for frame in self.frames.drain(..count) {
            if self.spare_frames.len() < MAX_SPARE_FRAMES {
                self.spare_frames.push(frame.bytes);
            }
        }
        (self.first_unacked, self.has_send_progress) = (ack, true);
        self.sent -= count;
        self.transmit(out);
    }

    /// Whether one more message is accepted.
    pub(crate) fn can_queue(&self) -> bool {
        self.is_up() && self.frames.len() < usize::from(self.window) + MAX_QUEUED_FRAMES
    }

    /// Sends a message of two parts as soon as the window allows; the first part fits a frame.
    pub(crate) fn queue_message(
        &mut self,
        source: u32,
        destination: u32,
        parts: [&[u8]; 2],
        out: &mut FrameSink,
    ) {
        let (first_bytes, further) = (self.mtu - DATA_HEADER_BYTES, self.mtu - FRAGMENT_HEADER_BYTES);
        let [head, bytes] = parts;
        let fits_one_frame = head.len() + bytes.len() <= first_bytes;
        let (first, mut rest) =
            bytes.split_at(if fits_one_frame { bytes.len() } else { first_bytes - head.len() });
        if !fits_one_frame {
            self.tag = (self.tag + 1) % 0x800;
        }
        let tag = if fits_one_frame { UNFRAGMENTED_TAG } else { self.tag };
        let mut frame = self.take_spare_frame();
        let header = super::DataHeader {
            id: self.remote_id,
            has_more: !fits_one_frame,
            tag,
            to: destination,
            from: source,
        };
        super::encode_data(&header, [head, first], &mut frame);
        self.push_frame(frame);
        while !rest.is_empty() {
            let (chunk, left) = rest.split_at(rest.len().min(further));
            let mut frame = self.take_spare_frame();
            super::encode_fragment(self.remote_id, !left.is_empty(), tag, chunk, &mut frame);
            self.push_frame(frame);
            rest = left;
        }
        if let Some(last) = self.frames.back_mut() {
            last.ends_message_of = Some(source);
        }
        self.transmit(out);
    }

    fn push_frame(&mut self, bytes: Vec<u8>) {
        self.frames.push_back(UnacknowledgedFrame { bytes, ends_message_of: None });
    }

    /// Messages of an endpoint whose last frame waits for its first transmission.
    pub(crate) fn unsent_messages(&self, source: u32) -> usize {
        self.frames.iter().skip(self.sent).filter(|frame| frame.ends_message_of == Some(source)).count()
    }

    fn take_spare_frame(&mut self) -> Vec<u8> {
        let mut frame = self.spare_frames.pop().unwrap_or_else(|| Vec::with_capacity(self.mtu));
        frame.clear();
        frame
    }

    /// Sends as much as the window allows and the device takes.
    pub(crate) fn transmit(&mut self, out: &mut FrameSink) {
        let window = usize::from(self.window);
        self.is_device_blocked = false;
        while self.is_up() && self.sent < self.frames.len().min(window) {
            let (index, used) = (self.sent, self.sent + 1);
            // More than half of the window is in use: request an acknowledgement, but not for every frame.
            let requests_ack = used * 2 > window && (index.is_multiple_of(8) || used == window);
            let request = if requests_ack || window == 1 { AckRequest::Wanted } else { AckRequest::None };
            if !self.transmit_frame(index, request, out) {
                self.is_device_blocked = true;
                break;
            }
            self.sent = used;
        }
    }

    /// Whether frames wait for the device rather than for the remote node.
    pub(crate) fn is_device_blocked(&self) -> bool {
        self.is_device_blocked
    }

    /// Sends one frame; returns whether the device took it.
    fn transmit_frame(&mut self, index: usize, request: AckRequest, out: &mut FrameSink) -> bool {
        let sequence = self.first_unacked.wrapping_add(index as u16);
        let Some(frame) = self.frames.get_mut(index) else { return true };
        super::write_sequence(&mut frame.bytes, request, self.expected, sequence);
        out(&frame.bytes, frame.ends_message_of.filter(|_| index >= self.sent))
    }

    /// Whether accepted frames wait for the window.
    pub(crate) fn has_unsent_frames(&self) -> bool {
        self.sent < self.frames.len()
    }

    /// Whether the remote node has acknowledged all frames.
    pub(crate) fn is_all_acknowledged(&self) -> bool {
        self.frames.is_empty()
    }

    /// Closes our side. The remote node replies with a reset, too.
    pub(crate) fn send_reset(&mut self, out: &mut FrameSink) {
        if self.state != HandshakeState::Disconnected {
            out(&self.connect_frame(ConnectKind::Reset), None);
        }
    }
}

/// A received message.
#[derive(Debug, Clone, Copy)]
pub struct ReceivedMessage<'a> {
    /// Address of the sending endpoint.
    pub(crate) source: u32,
    /// Address of the receiving endpoint.
    pub(crate) destination: u32,
    /// The kernel's stamp of the frame that completed it.
    pub(crate) arrived: Option<Time>,
    /// The content.
    pub bytes: &'a [u8],
}

/// The first of the given messages, and those after it.
#[inline]
pub fn split_first_message(messages: &[u8]) -> Option<(ReceivedMessage<'_>, &[u8])> {
    let (head, rest) = messages.split_first_chunk::<ENTRY_HEADER_BYTES>()?;
    let word = |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let (bytes, rest) = rest.split_at(word(0) as usize);
    let arrived = stamps::restored(head.last_chunk()?);
    Some((ReceivedMessage { source: word(4), destination: word(8), arrived, bytes }, rest))
}

/// The distance from one sequence number to another.
fn sequence_distance(from: u16, to: u16) -> u16 {
    to.wrapping_sub(from) % SEQUENCE_MODULUS
}

#[cfg(test)]
mod responder_tests;
#[cfg(test)]
mod tests;
