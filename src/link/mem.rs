//! `mem://name`: a link inside this process whose far end runs in the same thread. On the virtual clock a whole run
//! over it is exact to the nanosecond; on the system clock it is the floor of the instrument itself.
//!
//! Waiting steps the far end and moves the clock to the next event. Not a model of any real link beyond a delay, a
//! rate, a buffer, a line's characters and every n-th message or character spoilt: `shaped` is for that.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use super::line::{Flow, Settings};
use super::party::{Cost, Party, Step, Tuning};
use super::{
    Caps, Door, Facts, Fault, Framing, Hosting, Line, Link, Listener, Opening, Transport, Unavailable, line,
};
use crate::clock::{Clock, Time};
use crate::endpoint::{Endpoint, EndpointError};
use crate::units;

pub const TRANSPORT: Transport = Transport {
    scheme: "mem",
    summary: "a link inside this process: the instrument's own floor",
    example: "mem://floor?delay=1ms&rate=10Mbit/s",
    options: &[
        (
            "type",
            "stream (default), message, or line: a serial line that carries every character in its time",
        ),
        ("delay", "one-way delay of every byte (0s)"),
        ("rate", "bits per second, each way (unlimited); a line has its baud"),
        ("buffer", "bytes in flight each way (1Mi)"),
        ("drop", "lose every n-th message, or character of a line"),
        ("double", "deliver every n-th message, or character of a line, twice"),
        ("swap", "let the next message overtake every n-th if it is sent in time, messages only"),
        ("change", "change every n-th character of a line"),
        line::BAUD,
        line::DATA,
        line::PARITY,
        line::STOP,
        line::FLOW,
    ],
    check: |endpoint| Path::of(endpoint).map(|path| path.caps()),
    available: || Ok::<(), Unavailable>(()),
    open,
    listen: Some(listen),
    loopback: |_| vec!["mem://floor".to_owned(), "mem://floor-messages?type=message".to_owned()],
};

/// Largest message, as large as the default buffer bears.
const MAX_MESSAGE: usize = 65_536;
const DEFAULT_BUFFER: u64 = 1 << 20;

/// What one direction does to the bytes.
#[derive(Debug, Clone, PartialEq)]
struct Path {
    message: bool,
    delay: Duration,
    /// Bits per second; infinite when not limited.
    rate: f64,
    buffer: usize,
    drop: u64,
    double: u64,
    swap: u64,
    change: u64,
    line: Option<Settings>,
}

impl Path {
    fn of(endpoint: &Endpoint) -> Result<Path, EndpointError> {
        let every = |name: &str| {
            endpoint
                .parsed(name, "a count of at least 2", |text| units::count(text).ok().filter(|&n| n >= 2))
                .map(|n| n.unwrap_or(0))
        };
        let known = |text: &str| ["stream", "message", "line"].into_iter().find(|kind| *kind == text);
        let kind = endpoint.parsed("type", "stream, message or line", known)?.unwrap_or("stream");
        let settings = Settings::of(endpoint)?;
        let path = Path {
            message: kind == "message",
            line: (kind == "line").then_some(settings),
            delay: endpoint
                .parsed("delay", "a duration like 1ms", |text| units::duration(text).ok())?
                .unwrap_or_default(),
            rate: endpoint
                .parsed("rate", "a rate like 10Mbit/s", |text| units::bit_rate(text).ok())?
                .unwrap_or(f64::INFINITY),
            buffer: endpoint
                .parsed("buffer", "64Ki to 1Gi bytes", |text| {
                    units::bytes(text).ok().filter(|n| (65_536..=1 << 30).contains(n))
                })?
                .unwrap_or(DEFAULT_BUFFER) as usize,
            drop: every("drop")?,
            double: every("double")?,
            swap: every("swap")?,
            change: every("change")?,
        };
        let wants = |kind, what| {
            endpoint.parsed("type", what, |text| (text == kind).then_some(()))?.ok_or_else(|| {
                EndpointError::NoValue { url: endpoint.to_string(), option: "type".to_owned() }
            })
        };
        if path.change != 0 {
            wants("line", "line: nothing else changes bytes (needed for change)")?;
        } else if path.swap != 0 || path.line.is_none() && (path.drop, path.double) != (0, 0) {
            wants("message", "message: a stream loses nothing (needed for drop, double, swap)")?;
        }
        Ok(path)
    }

    fn caps(&self) -> Caps {
        if let Some(settings) = self.line {
            return settings.caps();
        }
        let line = self.rate.is_finite().then_some(Line::bare(self.rate));
        if !self.message {
            return Caps { line, ..Caps::STREAM };
        }
        Caps {
            framing: Framing::Message,
            max_message: Some(MAX_MESSAGE),
            reliable: (self.drop, self.double, self.swap) == (0, 0, 0),
            line,
            ..Caps::STREAM
        }
    }
}

/// One direction: bytes in flight and those that wait to be read.
#[derive(Debug)]
struct Pipe {
    path: Path,
    bytes: VecDeque<u8>,
    /// When each piece (message, or chunk of a stream) is there, and its length.
    pieces: VecDeque<(Time, usize)>,
    line_free: Time,
    sent: u64,
    closed: bool,
}

impl Pipe {
    fn new(path: Path) -> Pipe {
        Pipe {
            path,
            bytes: VecDeque::new(),
            pieces: VecDeque::new(),
            line_free: Time(0),
            sent: 0,
            closed: false,
        }
    }

    /// Takes what fits of a stream, or a whole message; `None` when there is no room now.
    fn send(&mut self, bytes: &[u8], now: Time) -> Result<Option<usize>, Fault> {
        if self.closed {
            return Err(Fault::Closed);
        }
        let path = &self.path;
        if path.message && bytes.len() > MAX_MESSAGE {
            return Err(Fault::TooLong { bytes: bytes.len(), limit: MAX_MESSAGE });
        }
        let room = path.buffer.saturating_sub(self.bytes.len());
        let taken = if path.message { bytes.len() } else { bytes.len().min(room) };
        if taken > room || (taken == 0 && !bytes.is_empty()) {
            return Ok(None);
        }
        if taken == 0 && !path.message {
            return Ok(Some(0));
        }
        if let Some(settings) = path.line {
            bytes[..taken].iter().for_each(|byte| self.carry(*byte, &settings, now));
            return Ok(Some(taken));
        }
        self.sent += 1;
        let every = |n: u64| n != 0 && self.sent.is_multiple_of(n);
        let on_line = Duration::from_secs_f64(taken as f64 * 8.0 / path.rate);
        self.line_free = self.line_free.max(now) + on_line;
        if every(path.drop) {
            return Ok(Some(taken));
        }
        let due = self.line_free + path.delay;
        let copies = if every(path.double) { 2 } else { 1 };
        for _ in 0..copies {
            self.bytes.extend(&bytes[..taken]);
            self.pieces.push_back((due, taken));
        }
        if path.swap != 0 && self.sent % path.swap == 1 && self.sent > 1 {
            self.swap_last_two(now);
        }
        Ok(Some(taken))
    }

    /// One character goes over a line.
    fn carry(&mut self, byte: u8, settings: &Settings, now: Time) {
        self.sent += 1;
        self.line_free = self.line_free.max(now) + settings.time_of(1);
        let every = |n: u64| n != 0 && self.sent.is_multiple_of(n);
        let steers = settings.flow == Flow::XonXoff && [line::XON, line::XOFF].contains(&byte);
        if every(self.path.drop) || steers {
            return;
        }
        let byte = byte & (u8::MAX >> (8 - settings.data_bits)) ^ u8::from(every(self.path.change));
        for _ in 0..if every(self.path.double) { 2 } else { 1 } {
            self.bytes.push_back(byte);
            self.pieces.push_back((self.line_free + self.path.delay, 1));
        }
    }

    /// The last message overtakes the one before it, unless that has arrived: then nothing can.
    fn swap_last_two(&mut self, now: Time) {
        let count = self.pieces.len();
        if count < 2 || self.pieces[count - 2].0 <= now {
            return;
        }
        let (before, last) = (self.pieces[count - 2].1, self.pieces[count - 1].1);
        let start = self.bytes.len() - before - last;
        self.bytes.make_contiguous()[start..].rotate_left(before);
        (self.pieces[count - 2].1, self.pieces[count - 1].1) = (last, before);
        // The one in front cannot arrive before it was sent, and the other one comes after it.
        self.pieces[count - 2].0 = self.pieces[count - 1].0;
    }

    fn due(&self) -> Option<Time> {
        self.pieces.front().map(|&(due, _)| due)
    }

    /// What has arrived by `now`: one message, or as much of the stream as fits.
    fn receive(&mut self, into: &mut [u8], now: Time) -> Option<usize> {
        let mut filled = 0;
        while let Some(&mut (due, ref mut length)) = self.pieces.front_mut() {
            if due > now || (filled == into.len() && !self.path.message) {
                break;
            }
            let part = (*length).min(into.len() - filled);
            let (front, back) = self.bytes.as_slices();
            let from_front = part.min(front.len());
            into[filled..filled + from_front].copy_from_slice(&front[..from_front]);
            into[filled + from_front..filled + part].copy_from_slice(&back[..part - from_front]);
            filled += part;
            let gone = if self.path.message { *length } else { part };
            self.bytes.drain(..gone);
            *length -= gone;
            if *length == 0 {
                self.pieces.pop_front();
            }
            if self.path.message {
                return Some(filled);
            }
        }
        (filled > 0).then_some(filled)
    }

    /// Whether the reader has seen everything there will ever be.
    fn ended(&self) -> bool {
        self.closed && self.pieces.is_empty()
    }
}

/// Two pipes and the far end between them.
struct Connection {
    there: Pipe,
    back: Pipe,
    far: Option<Box<dyn Party>>,
    handles: usize,
}

struct World {
    /// Up to here the far ends have been run.
    now: Time,
    hosts: Vec<(String, Hosting)>,
    connections: Vec<Option<Connection>>,
}

/// All the `mem://` links and far ends of a process. Clones are handles on the same net.
#[derive(Clone)]
pub struct Net {
    world: Arc<Mutex<World>>,
    clock: Clock,
}

impl std::fmt::Debug for Net {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Net")
    }
}

impl Net {
    pub fn new(clock: Clock) -> Net {
        let world = World { now: Time(0), hosts: Vec::new(), connections: Vec::new() };
        Net { world: Arc::new(Mutex::new(world)), clock }
    }

    fn world(&self) -> MutexGuard<'_, World> {
        // A far end that panicked takes nothing with it that the others need.
        self.world.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Runs all far ends up to the clock's now, then moves a virtual clock on to the next event, at most to `limit`.
    pub fn step(&self, limit: Time) {
        let now = self.clock.now();
        let next = self.world().run(now, None).min(limit).max(now);
        self.clock.sleep_until(next);
    }

    /// Does `act` as soon as it gives something, running the far ends and waiting meanwhile.
    fn within<T>(
        &self,
        id: usize,
        within: Duration,
        mut act: impl FnMut(&mut Connection, Time) -> Result<Option<T>, Fault>,
    ) -> Result<T, Fault> {
        let until = self.clock.now() + within;
        loop {
            let now = self.clock.now();
            let next = {
                let mut world = self.world();
                let next = world.run(now, Some(id));
                let connection = world.connections[id].as_mut().ok_or(Fault::Closed)?;
                if let Some(done) = act(connection, now)? {
                    return Ok(done);
                }
                next
            };
            if now >= until {
                return Err(Fault::TimedOut);
            }
            match self.clock {
                // Another thread may use the net meanwhile, so real time is slept in short pieces.
                Clock::System => self.clock.sleep_until(next.min(until).min(now + Duration::from_millis(1))),
                Clock::Virtual(_) => self.clock.sleep_until(next.min(until)),
            }
        }
    }
}

impl World {
    /// Runs the far ends up to `now`; returns the instant of the next event after it. What has arrived for the near
    /// end of connection `reader` (or of any) counts as an event.
    fn run(&mut self, now: Time, reader: Option<usize>) -> Time {
        loop {
            let mut moved = false;
            let mut next = Time::NEVER;
            for (id, slot) in self.connections.iter_mut().enumerate() {
                let Some(connection) = slot else { continue };
                if connection.handles == 0 && connection.far.is_none() {
                    *slot = None;
                    continue;
                }
                match connection.step(self.now) {
                    Stepped::Moved => moved = true,
                    Stepped::Waits(until) => next = next.min(until),
                }
                let arrival = connection.back.due().filter(|&due| due > now);
                if let Some(due) = arrival.filter(|_| reader.is_none_or(|reader| reader == id)) {
                    next = next.min(due);
                }
            }
            if moved {
                continue;
            }
            if next > now {
                self.now = self.now.max(now);
                return next;
            }
            self.now = next;
        }
    }
}

enum Stepped {
    Moved,
    Waits(Time),
}

impl Connection {
    /// Lets the far end do what it can at `now`.
    fn step(&mut self, now: Time) -> Stepped {
        let Some(far) = &mut self.far else { return Stepped::Waits(Time::NEVER) };
        let mut closes = false;
        let stepped = match far.next(now) {
            Step::Send { bytes, message } => {
                let piece = if self.back.path.message { &bytes[..bytes.len().min(message)] } else { bytes };
                match self.back.send(piece, now) {
                    Ok(None) => Stepped::Waits(Time::NEVER),
                    Ok(Some(taken)) => {
                        far.sent(taken, now);
                        Stepped::Moved
                    }
                    Err(_) => {
                        closes = true;
                        Stepped::Moved
                    }
                }
            }
            Step::Receive { into, until } => {
                into.clear();
                if let Some(length) = self.there.receive(&mut into.bytes, now) {
                    into.push(0, length);
                    far.received(now);
                    Stepped::Moved
                } else if self.there.ended() {
                    closes = far.closed(now).is_err();
                    Stepped::Moved
                } else if now >= until {
                    far.timed_out(now);
                    Stepped::Moved
                } else {
                    Stepped::Waits(until.min(self.there.due().unwrap_or(Time::NEVER)))
                }
            }
            Step::Sleep(until) if until > now => Stepped::Waits(until),
            Step::Sleep(_) => Stepped::Moved,
            Step::Tune(_) => Stepped::Moved,
            Step::Finish => {
                self.back.closed = true;
                Stepped::Moved
            }
            Step::Done | Step::Fail(_) => {
                closes = true;
                Stepped::Moved
            }
        };
        if closes {
            far.ended(Cost::default());
            self.far = None;
            self.back.closed = true;
            self.there.closed = true;
        }
        stepped
    }
}

struct MemLink {
    net: Net,
    id: usize,
    endpoint: Endpoint,
    caps: Caps,
}

fn open(endpoint: &Endpoint, opening: &Opening) -> Result<Box<dyn Link>, Fault> {
    let path = Path::of(endpoint)?;
    let caps = path.caps();
    let net = opening.memory.clone();
    let id = {
        let mut world = net.world();
        // The new far end begins now, not when the others were run last.
        world.run(net.clock.now(), None);
        let host = world.hosts.iter().find(|(name, _)| name == endpoint.place());
        let (_, hosting) =
            host.ok_or_else(|| Fault::Other("nobody serves this name in this process".to_owned()))?;
        let far = Some(hosting("mem"));
        let connection =
            Connection { there: Pipe::new(path.clone()), back: Pipe::new(path), far, handles: 1 };
        let free = world.connections.iter().position(Option::is_none);
        let id = free.unwrap_or(world.connections.len());
        if free.is_none() {
            world.connections.push(None);
        }
        world.connections[id] = Some(connection);
        id
    };
    Ok(Box::new(MemLink { net, id, endpoint: endpoint.clone(), caps }))
}

impl Link for MemLink {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn facts(&self) -> Facts {
        let mut facts = Facts::new();
        for (option, value) in self.endpoint.options() {
            facts.insert(option.to_owned(), value.into());
        }
        facts.insert("threads".to_owned(), 1.into());
        facts
    }

    fn tune(&mut self, _tuning: &Tuning) {}

    fn send(&mut self, bytes: &[u8], within: Duration) -> Result<usize, Fault> {
        self.net.within(self.id, within, |connection, now| connection.there.send(bytes, now))
    }

    fn receive(&mut self, into: &mut [u8], within: Duration) -> Result<usize, Fault> {
        self.net.within(self.id, within, |connection, now| match connection.back.receive(into, now) {
            Some(length) => Ok(Some(length)),
            None if connection.back.ended() => Err(Fault::Closed),
            None => Ok(None),
        })
    }

    fn other_half(&self) -> Result<Box<dyn Link>, Fault> {
        if let Some(connection) = &mut self.net.world().connections[self.id] {
            connection.handles += 1;
        }
        let half = MemLink {
            net: self.net.clone(),
            id: self.id,
            endpoint: self.endpoint.clone(),
            caps: self.caps.clone(),
        };
        Ok(Box::new(half))
    }

    fn finish(&mut self) -> Result<(), Fault> {
        if !self.caps.closes {
            return Ok(());
        }
        if let Some(connection) = &mut self.net.world().connections[self.id] {
            connection.there.closed = true;
        }
        Ok(())
    }
}

impl Drop for MemLink {
    fn drop(&mut self) {
        let now = self.net.clock.now();
        let mut world = self.net.world();
        if let Some(connection) = &mut world.connections[self.id] {
            connection.handles -= 1;
            if connection.handles > 0 {
                return;
            }
            connection.there.closed = true;
            connection.back.closed = true;
        }
        // What is in flight still arrives, and then the far end sees the close.
        world.run(now, None);
    }
}

struct MemListener {
    endpoint: Endpoint,
    net: Net,
}

fn listen(endpoint: &Endpoint, opening: &Opening) -> Result<Box<dyn Listener>, Fault> {
    Path::of(endpoint)?;
    Ok(Box::new(MemListener { endpoint: endpoint.clone(), net: opening.memory.clone() }))
}

impl Listener for MemListener {
    fn endpoint(&self) -> Endpoint {
        self.endpoint.clone()
    }

    fn accept(&mut self, within: Duration, _door: &mut Door) -> Result<(Box<dyn Link>, String), Fault> {
        self.net.clock.sleep_until(self.net.clock.now() + within);
        Err(Fault::TimedOut)
    }

    fn host(&mut self, hosting: Hosting) -> Result<(), Hosting> {
        let mut world = self.net.world();
        let name = self.endpoint.place().to_owned();
        world.hosts.retain(|(other, _)| *other != name);
        world.hosts.push((name, hosting));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
