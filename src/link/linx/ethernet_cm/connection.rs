//! One connection over Ethernet: the handshake, the window, fragments, what is sent again, supervision. A state machine:
//! frames in, frames out, told the time.

use std::collections::VecDeque;
use std::time::Duration;

use fastrand::Rng;

use super::super::{Ending, Side};
use super::{Body, Connect, DATA_HEAD, FRAGMENT_HEAD, Frame, Kind, LARGEST_FRAME, Mac, WHOLE};
use crate::clock::Time;

/// Largest message taken from the far node; real benchmarks send no more.
pub const LARGEST: usize = 65_536;

/// Three of them are `conn_tmo`, 1000 ms unless real nodes are told otherwise.
const TICK: Duration = Duration::from_micros(333_333);

/// So much a tick varies while not connected, either way, so that two nodes do not keep colliding.
const SPREAD: Duration = Duration::from_millis(128);

/// Ticks without a word from the far node until it is given up.
const PATIENCE: u32 = 4;

/// How often missing frames are asked for again, and an unanswered one is sent again.
const AGAIN: Duration = Duration::from_millis(100);

/// Frames on their way at once, as real nodes have it: 128.
const WINDOW: u8 = 7;

/// Sequence numbers have 12 bits.
const NUMBERS: u16 = 1 << 12;

/// Frames that wait behind the window before nothing more is taken, besides those of one message.
const MOST_QUEUED: usize = 128;

/// Messages of the far node in pieces at once.
const MOST_PARTIAL: usize = 64;

/// Most that waits to be taken; beyond, the far node's window stays shut.
const MOST_WAITING: usize = 1 << 20;

/// A frame holds a signal number at least.
const SMALLEST_MTU: usize = DATA_HEAD + 4;

/// Frames kept for reuse.
const MOST_SPARE: usize = 512;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Hears nothing until the next tick.
    Disconnected,
    Idle,
    Called,
    Answered,
    Up,
}

/// What has happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    Nothing,
    Up,
    Down(Ending),
}

/// Where frames go; false if the device cannot take one now. That one is lost, unless it is the first try of a frame of a
/// message: such a frame waits, and so do those behind it.
pub type Out<'a> = dyn FnMut(&[u8]) -> bool + 'a;

/// A message that is not whole.
#[derive(Debug)]
struct Partial {
    tag: u16,
    source: u32,
    destination: u32,
    bytes: Vec<u8>,
}

#[derive(Debug)]
pub struct Connection {
    side: Side,
    own: Mac,
    far: Mac,
    own_mtu: usize,
    own_id: u8,
    random: Rng,
    state: State,
    tick: Time,
    patience: u32,
    // As agreed on.
    far_id: u8,
    mtu: usize,
    window: u16,
    // Sending: frames from number `acked` on, of which the first `sent` have gone.
    frames: VecDeque<Vec<u8>>,
    spare: Vec<Vec<u8>>,
    acked: u16,
    sent: usize,
    /// The device took no more.
    stuck: bool,
    tag: u16,
    again: Time,
    moved: bool,
    // Receiving: the number expected next, and what came ahead of it, by its distance.
    expected: u16,
    ahead: VecDeque<Option<Vec<u8>>>,
    progressed: bool,
    partial: Vec<Partial>,
    /// Whole messages end to end: length, source, destination, bytes.
    inbox: Vec<u8>,
}

/// Length, source and destination in front of a message of the inbox.
const ENTRY: usize = 12;

impl Connection {
    /// `own_mtu`: what the device takes; `seed` makes the ticks and our identity differ from others'.
    pub fn new(side: Side, own: Mac, far: Mac, own_mtu: usize, seed: u64, now: Time) -> Connection {
        let mut random = Rng::with_seed(seed);
        // Who calls is odd, who is called even: so two ends that share a wire and an address know their own frames.
        let own_id = 2 * random.u8(1..=127) + u8::from(side == Side::Active);
        Connection {
            side,
            own,
            far,
            own_mtu: own_mtu.min(LARGEST_FRAME),
            own_id,
            random,
            state: State::Idle,
            tick: now,
            patience: PATIENCE,
            far_id: 0,
            mtu: 0,
            window: 1,
            frames: VecDeque::new(),
            spare: Vec::new(),
            acked: 0,
            sent: 0,
            stuck: false,
            tag: 0,
            again: now,
            moved: false,
            expected: 0,
            ahead: VecDeque::new(),
            progressed: false,
            partial: Vec::new(),
            inbox: Vec::new(),
        }
    }

    pub fn is_up(&self) -> bool {
        self.state == State::Up
    }

    pub fn mtu(&self) -> usize {
        self.mtu
    }

    /// When [`Connection::tick`] has something to do.
    pub fn due(&self) -> Time {
        if self.is_up() { self.tick.min(self.again) } else { self.tick }
    }

    // ---- the handshake ----

    fn connect(&self, kind: Kind) -> Vec<u8> {
        let mtu = matches!(kind, Kind::ConnectAck | Kind::Ack).then_some(self.own_mtu);
        Connect { kind, window: WINDOW, id: self.own_id, to: self.far, from: self.own, mtu }.write()
    }

    /// Begins again after a reset, sent or received.
    fn reset(&mut self, says_so: bool, out: &mut Out) {
        if says_so {
            out(&self.connect(Kind::Reset));
        }
        self.state = State::Idle;
    }

    fn down(&mut self, ending: Ending, now: Time, out: &mut Out) -> Event {
        self.reset(true, out);
        (self.state, self.tick) = (State::Disconnected, now + TICK);
        Event::Down(ending)
    }

    fn up(&mut self, now: Time) -> Event {
        self.state = State::Up;
        (self.tick, self.again, self.patience) = (now + TICK, now + AGAIN, PATIENCE);
        self.spare.extend(self.frames.drain(..));
        self.spare.truncate(MOST_SPARE);
        (self.acked, self.sent, self.stuck, self.tag, self.expected) = (0, 0, false, 0, 0);
        self.ahead.clear();
        self.partial.clear();
        Event::Up
    }

    /// Takes from a frame of the handshake what it says; false if nothing can go over such a connection.
    fn agree(&mut self, connect: &Connect) -> bool {
        self.far_id = connect.id;
        self.window = 1 << connect.window.min(WINDOW);
        self.mtu = connect.mtu.unwrap_or(self.own_mtu).min(self.own_mtu);
        self.mtu >= SMALLEST_MTU
    }

    fn shake(&mut self, connect: &Connect, now: Time, out: &mut Out) -> Event {
        // Our own frame, come back over a wire that returns everything.
        if connect.id == self.own_id && connect.from == self.own {
            return Event::Nothing;
        }
        match (self.state, connect.kind) {
            (State::Disconnected, _) => {}
            (State::Up, Kind::Reset) => return self.down(Ending::Closed, now, out),
            (State::Up, _) => return self.down(Ending::Broken("the far node began again"), now, out),
            (_, Kind::Reset) => self.reset(false, out),
            (State::Idle, Kind::Connect) if self.agree(connect) => {
                out(&self.connect(Kind::ConnectAck));
                (self.state, self.tick) = (State::Answered, now + TICK);
            }
            (State::Called, Kind::ConnectAck) if self.agree(connect) => {
                out(&self.connect(Kind::Ack));
                return self.up(now);
            }
            (State::Answered, Kind::Ack) if self.agree(connect) => return self.up(now),
            _ => self.reset(true, out),
        }
        Event::Nothing
    }

    // ---- time ----

    pub fn tick(&mut self, now: Time, out: &mut Out) -> Event {
        if now >= self.again && self.is_up() {
            self.again = now + AGAIN;
            self.repeat(out);
        }
        if now < self.tick {
            return Event::Nothing;
        }
        self.tick = now + TICK;
        if self.is_up() {
            self.patience -= 1;
            if self.patience == 0 {
                return self.down(Ending::Silent("the far node fell silent"), now, out);
            }
            out(&super::empty(self.far_id, true, self.expected));
            return Event::Nothing;
        }
        let spread = SPREAD.as_nanos() as u64;
        self.tick = now + (TICK - SPREAD) + Duration::from_nanos(self.random.u64(..2 * spread));
        match (self.state, self.side) {
            (State::Idle, Side::Active) => {
                out(&self.connect(Kind::Connect));
                self.state = State::Called;
            }
            (State::Idle, Side::Passive) => {}
            (State::Disconnected, _) => self.state = State::Idle,
            _ => self.reset(true, out),
        }
        Event::Nothing
    }

    /// What got lost is asked for, or sent, again.
    fn repeat(&mut self, out: &mut Out) {
        if !std::mem::take(&mut self.progressed) && self.has_room() {
            let mut missing = 0;
            for distance in 0..self.ahead.len() {
                match (&self.ahead[distance], missing) {
                    (None, _) => missing += 1,
                    (Some(_), 0) => {}
                    (Some(_), _) => {
                        self.nack(distance - missing, missing, out);
                        missing = 0;
                    }
                }
            }
        }
        if !std::mem::take(&mut self.moved) && self.sent > 0 {
            self.send_again(0, true, out);
        }
    }

    // ---- receiving ----

    /// A frame from the far node, or one that only looks like it.
    pub fn received(&mut self, bytes: &[u8], now: Time, out: &mut Out) -> Event {
        let frame = match Frame::read(bytes) {
            Ok(frame) => frame,
            Err(ending @ Ending::Version { .. }) => return Event::Down(ending),
            // Whoever sent that: it is as good as lost.
            Err(_) => return Event::Nothing,
        };
        let (id, request, ack, sequence, body) = match frame {
            Frame::Connect(connect) => return self.shake(&connect, now, out),
            Frame::Ack { id, request, ack, sequence, body } => (id, request, ack, sequence, body),
        };
        if !self.is_up() || id != self.own_id {
            return Event::Nothing;
        }
        self.patience = PATIENCE;
        self.acknowledged(ack, out);
        match body {
            Body::Nack { first, count } => {
                let distance = usize::from(distance(self.acked, first));
                for index in distance..(distance + usize::from(count)).min(self.sent) {
                    self.send_again(index, false, out);
                }
            }
            Body::Empty => {}
            Body::Data { .. } | Body::Fragment { .. } => {
                if let Err(ending) = self.data(bytes, sequence, body, out) {
                    return self.down(ending, now, out);
                }
            }
        }
        if request {
            out(&super::empty(self.far_id, false, self.expected));
        }
        Event::Nothing
    }

    fn data(&mut self, frame: &[u8], sequence: u16, body: Body, out: &mut Out) -> Result<(), Ending> {
        let distance = usize::from(distance(self.expected, sequence));
        if distance >= usize::from(self.window) {
            // It has been here already; the acknowledgement was lost.
            out(&super::empty(self.far_id, false, self.expected));
            return Ok(());
        }
        if distance == 0 && self.has_room() {
            self.accept(body)?;
            self.advance();
            return self.follow_up();
        }
        while self.ahead.len() <= distance {
            self.ahead.push_back(None);
        }
        if self.ahead[distance].is_some() {
            return Ok(());
        }
        self.ahead[distance] = Some(frame.to_vec());
        // The frame before it is missing, so a gap has just been found.
        let missing = self.ahead.iter().take(distance).rev().take_while(|frame| frame.is_none()).count();
        if missing > 0 {
            self.nack(distance - missing, missing, out);
        }
        Ok(())
    }

    fn nack(&self, distance: usize, missing: usize, out: &mut Out) {
        let first = self.expected.wrapping_add(distance as u16);
        out(&super::nack(self.far_id, self.expected, first, missing as u8));
    }

    fn advance(&mut self) {
        self.expected = (self.expected + 1) % NUMBERS;
        self.ahead.pop_front();
        self.progressed = true;
    }

    /// Takes in what was waiting for the frame that has come.
    fn follow_up(&mut self) -> Result<(), Ending> {
        while self.has_room()
            && let Some(frame) = self.ahead.front_mut().and_then(Option::take)
        {
            if let Frame::Ack { body, .. } = Frame::read(&frame)? {
                self.accept(body)?;
            }
            self.advance();
        }
        Ok(())
    }

    fn accept(&mut self, body: Body) -> Result<(), Ending> {
        match body {
            Body::Data { more: false, source, destination, bytes, .. } => {
                self.deliver(source, destination, bytes);
            }
            Body::Data { tag, source, destination, bytes, .. } => {
                if self.partial.len() >= MOST_PARTIAL {
                    return Err(Ending::Broken("the far node begins too many messages at once"));
                }
                self.partial.push(Partial { tag, source, destination, bytes: bytes.to_vec() });
            }
            Body::Fragment { more, tag, bytes } => {
                // The protocol's book numbers fragments instead; nobody was seen to do so, but it would be understood.
                let alone = self.partial.len() == 1;
                let found = self.partial.iter().position(|partial| partial.tag == tag || alone);
                let Some(index) = found else { return Ok(()) };
                let partial = &mut self.partial[index];
                if partial.bytes.len() + bytes.len() > LARGEST {
                    return Err(Ending::Broken("a message of the far node is longer than 65536 bytes"));
                }
                partial.bytes.extend_from_slice(bytes);
                if !more {
                    let Partial { source, destination, bytes, .. } = self.partial.remove(index);
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
        self.inbox.extend_from_slice(bytes);
    }

    fn has_room(&self) -> bool {
        self.inbox.len() <= MOST_WAITING
    }

    /// Whether a message is whole.
    pub fn has_messages(&self) -> bool {
        !self.inbox.is_empty()
    }

    /// Hands over all messages that are whole, as [`entry`] reads them; `into` is empty.
    pub fn take(&mut self, into: &mut Vec<u8>, out: &mut Out) -> Result<(), Ending> {
        let was_shut = !self.has_room();
        std::mem::swap(&mut self.inbox, into);
        if was_shut && self.is_up() {
            self.follow_up()?;
            out(&super::empty(self.far_id, false, self.expected));
        }
        Ok(())
    }

    // ---- sending ----

    fn acknowledged(&mut self, ack: u16, out: &mut Out) {
        let count = usize::from(distance(self.acked, ack));
        if count == 0 || count > self.sent {
            return;
        }
        for frame in self.frames.drain(..count) {
            if self.spare.len() < MOST_SPARE {
                self.spare.push(frame);
            }
        }
        (self.acked, self.moved) = (ack, true);
        self.sent -= count;
        self.transmit(out);
    }

    /// Whether one more message is taken.
    pub fn takes(&self) -> bool {
        self.is_up() && self.frames.len() < usize::from(self.window) + MOST_QUEUED
    }

    /// Sends a message of two pieces as soon as the window allows; the first piece fits a frame.
    pub fn send(&mut self, source: u32, destination: u32, pieces: [&[u8]; 2], out: &mut Out) {
        let (most, further) = (self.mtu - DATA_HEAD, self.mtu - FRAGMENT_HEAD);
        let [head, bytes] = pieces;
        let whole = head.len() + bytes.len() <= most;
        let (first, mut rest) = bytes.split_at(if whole { bytes.len() } else { most - head.len() });
        if !whole {
            self.tag = (self.tag + 1) % 0x800;
        }
        let tag = if whole { WHOLE } else { self.tag };
        let mut frame = self.blank();
        super::data(self.far_id, !whole, tag, destination, source, [head, first], &mut frame);
        self.frames.push_back(frame);
        while !rest.is_empty() {
            let (piece, left) = rest.split_at(rest.len().min(further));
            let mut frame = self.blank();
            super::fragment(self.far_id, !left.is_empty(), tag, piece, &mut frame);
            self.frames.push_back(frame);
            rest = left;
        }
        self.transmit(out);
    }

    fn blank(&mut self) -> Vec<u8> {
        let mut frame = self.spare.pop().unwrap_or_else(|| Vec::with_capacity(self.mtu));
        frame.clear();
        frame
    }

    /// Sends what the window allows and the device takes.
    pub fn transmit(&mut self, out: &mut Out) {
        let window = usize::from(self.window);
        self.stuck = false;
        while self.is_up() && self.sent < self.frames.len().min(window) {
            let (index, used) = (self.sent, self.sent + 1);
            // More than half of the window is in use: an answer is wanted, and not of every frame.
            let asks = used * 2 > window && (index.is_multiple_of(8) || used == window);
            if !self.send_again(index, asks || window == 1, out) {
                self.stuck = true;
                break;
            }
            self.sent = used;
        }
    }

    /// Whether frames wait for the device, and not for the far node.
    pub fn is_stuck(&self) -> bool {
        self.stuck
    }

    /// Whether the device took the frame.
    fn send_again(&mut self, index: usize, asks: bool, out: &mut Out) -> bool {
        let sequence = self.acked.wrapping_add(index as u16);
        let Some(frame) = self.frames.get_mut(index) else { return true };
        super::stamp(frame, asks, self.expected, sequence);
        out(frame)
    }

    /// Some of what was taken waits for the window.
    pub fn is_held_up(&self) -> bool {
        self.sent < self.frames.len()
    }

    /// Everything that was sent has arrived.
    pub fn is_settled(&self) -> bool {
        self.frames.is_empty()
    }

    /// Our end goes. The far node's answer to that is a reset, too.
    pub fn leave(&mut self, out: &mut Out) {
        if self.state != State::Disconnected {
            out(&self.connect(Kind::Reset));
        }
    }
}

/// The first of messages that were handed over: source, destination, bytes, and the bytes it takes up.
#[inline]
pub fn entry(messages: &[u8]) -> Option<(u32, u32, &[u8], usize)> {
    let (head, rest) = messages.split_first_chunk::<ENTRY>()?;
    let word = |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let length = word(0) as usize;
    Some((word(4), word(8), &rest[..length], ENTRY + length))
}

/// From one sequence number on to another.
fn distance(from: u16, to: u16) -> u16 {
    to.wrapping_sub(from) % NUMBERS
}

#[cfg(test)]
mod tests;
