//! `mem://name`: a link inside this process whose far end runs in the same thread. On the virtual clock a whole run
//! over it is exact to the nanosecond; on the system clock it is the floor of the instrument itself.
//!
//! Waiting steps the far end and moves the clock to the next event. What delay, rate and faults do to the bytes is
//! modelled in `shaped`; here every n-th message, or character of a line, is spoilt, and the buffer is what a sender waits for.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use super::line::{Flow, Settings};
use super::party::{Cost, Party, Step, Tuning};
use super::shaped::{Often, Path, Pipe, Shape};
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
    check: |endpoint| Options::of(endpoint).map(|options| options.caps()),
    available: || Ok::<(), Unavailable>(()),
    limit: || None,
    open,
    listen: Some(listen),
    loopback: |_| vec!["mem://floor".to_owned(), "mem://floor-messages?type=message".to_owned()],
};

/// Largest message, as large as the default buffer bears.
const MAX_MESSAGE: usize = 65_536;
const DEFAULT_BUFFER: u64 = 1 << 20;

/// An endpoint of this transport, read.
#[derive(Debug, Clone, PartialEq)]
struct Options {
    framing: Framing,
    shape: Shape,
    buffer: usize,
    change: u64,
    line: Option<Settings>,
}

impl Options {
    fn of(endpoint: &Endpoint) -> Result<Options, EndpointError> {
        let count = |name: &str| {
            endpoint.parsed(name, "a count of at least 2", |text| units::count(text).ok().filter(|&n| n >= 2))
        };
        let every = |name: &str| Ok(count(name)?.map_or(Often::Never, Often::Every));
        let known = |text: &str| ["stream", "message", "line"].into_iter().find(|kind| *kind == text);
        let kind = endpoint.parsed("type", "stream, message or line", known)?.unwrap_or("stream");
        let settings = Settings::of(endpoint)?;
        let rate = endpoint
            .parsed("rate", "a rate like 10Mbit/s", |text| units::bit_rate(text).ok())?
            .unwrap_or(f64::INFINITY);
        let options = Options {
            framing: if kind == "message" { Framing::Message } else { Framing::Stream },
            line: (kind == "line").then_some(settings),
            shape: Shape {
                delay: endpoint
                    .parsed("delay", "a duration like 1ms", |text| units::duration(text).ok())?
                    .unwrap_or_default(),
                rate: if kind == "line" { settings.line().limit_bps() } else { rate },
                loss: every("drop")?,
                duplicate: every("double")?,
                reorder: every("swap")?,
                ..Shape::default()
            },
            buffer: endpoint
                .parsed("buffer", "64Ki to 1Gi bytes", |text| {
                    units::bytes(text).ok().filter(|n| (65_536..=1 << 30).contains(n))
                })?
                .unwrap_or(DEFAULT_BUFFER) as usize,
            change: count("change")?.unwrap_or(0),
        };
        let wants = |kind, what| {
            endpoint.parsed("type", what, |text| (text == kind).then_some(()))?.ok_or_else(|| {
                EndpointError::NoValue { url: endpoint.to_string(), option: "type".to_owned() }
            })
        };
        let shape = &options.shape;
        if options.change != 0 {
            wants("line", "line: nothing else changes bytes (needed for change)")?;
        } else if shape.reorder != Often::Never || options.line.is_none() && shape.is_faulty() {
            wants("message", "message: a stream loses nothing (needed for drop, double, swap)")?;
        }
        Ok(options)
    }

    fn caps(&self) -> Caps {
        if let Some(settings) = self.line {
            return settings.caps();
        }
        let line = self.shape.rate.is_finite().then_some(Line::bare(self.shape.rate));
        if self.framing == Framing::Stream {
            return Caps { line, ..Caps::STREAM };
        }
        Caps {
            framing: Framing::Message,
            max_message: Some(MAX_MESSAGE),
            reliable: !self.shape.is_faulty(),
            line,
            ..Caps::STREAM
        }
    }
}

/// One direction: its path, and what is on it or waits to be read.
#[derive(Debug)]
struct Way {
    framing: Framing,
    buffer: usize,
    line: Option<Settings>,
    /// Every so many characters of a line are changed; so many have been sent.
    change: u64,
    sent: u64,
    path: Path,
    pipe: Pipe,
}

impl Way {
    fn new(options: &Options) -> Way {
        Way {
            framing: options.framing,
            buffer: options.buffer,
            line: options.line,
            change: options.change,
            sent: 0,
            path: Path::new(options.shape.clone(), 0),
            pipe: Pipe::new(options.framing),
        }
    }

    /// Takes what fits of a stream, or a whole message; `None` when there is no room now.
    fn send(&mut self, bytes: &[u8], now: Time) -> Result<Option<usize>, Fault> {
        if self.pipe.is_finished() {
            return Err(Fault::Closed);
        }
        let is_message = self.framing == Framing::Message;
        if is_message && bytes.len() > MAX_MESSAGE {
            return Err(Fault::TooLong { bytes: bytes.len(), limit: MAX_MESSAGE });
        }
        let room = self.buffer.saturating_sub(self.pipe.held());
        let taken = if is_message { bytes.len() } else { bytes.len().min(room) };
        if taken > room || (taken == 0 && !bytes.is_empty()) {
            return Ok(None);
        }
        if let Some(settings) = self.line {
            bytes[..taken].iter().for_each(|byte| self.carry(*byte, &settings, now));
        } else if taken > 0 || is_message {
            self.pipe.send(&mut self.path, &bytes[..taken], now);
        }
        Ok(Some(taken))
    }

    /// One character goes over a line.
    fn carry(&mut self, byte: u8, settings: &Settings, now: Time) {
        self.sent += 1;
        if settings.flow == Flow::XonXoff && [line::XON, line::XOFF].contains(&byte) {
            self.path.swallow(1, now);
            return;
        }
        let changes = self.change != 0 && self.sent.is_multiple_of(self.change);
        let byte = byte & (u8::MAX >> (8 - settings.data_bits)) ^ u8::from(changes);
        self.pipe.send(&mut self.path, &[byte], now);
    }

    fn close(&mut self) {
        self.pipe.finish(Time(0));
    }
}

/// Two pipes and the far end between them.
struct Connection {
    there: Way,
    back: Way,
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
                let arrival = connection.back.pipe.due().filter(|&due| due > now);
                if let Some(due) = arrival.filter(|_| reader.is_none_or(|reader| reader == id)) {
                    next = next.min(due);
                }
            }
            if moved {
                continue;
            }
            // At the end of time nothing is after now.
            if next > now || next == Time::NEVER {
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
                let piece = if self.back.framing == Framing::Message {
                    &bytes[..bytes.len().min(message)]
                } else {
                    bytes
                };
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
                if let Some(length) = self.there.pipe.receive(&mut into.bytes, now) {
                    into.push(0, length);
                    far.arriving(length as u64, length, now);
                    far.received(now);
                    Stepped::Moved
                } else if self.there.pipe.ended(now) {
                    closes = far.closed(now).is_err();
                    Stepped::Moved
                } else if now >= until && until != Time::NEVER {
                    far.timed_out(now);
                    Stepped::Moved
                } else {
                    Stepped::Waits(until.min(self.there.pipe.due().unwrap_or(Time::NEVER)))
                }
            }
            Step::Sleep(until) if until > now || until == Time::NEVER => Stepped::Waits(until),
            Step::Sleep(_) => Stepped::Moved,
            Step::Tune(_) => Stepped::Moved,
            Step::Finish => {
                self.back.close();
                Stepped::Moved
            }
            // Who was called does not call back.
            Step::Done | Step::Fail(_) | Step::Reopen => {
                closes = true;
                Stepped::Moved
            }
        };
        if closes {
            far.ended(Cost::default());
            self.far = None;
            self.back.close();
            self.there.close();
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
    let options = Options::of(endpoint)?;
    let caps = options.caps();
    let net = opening.memory.clone();
    let id = {
        let mut world = net.world();
        // The new far end begins now, not when the others were run last.
        world.run(net.clock.now(), None);
        let host = world.hosts.iter().find(|(name, _)| name == endpoint.place());
        let (_, hosting) =
            host.ok_or_else(|| Fault::Other("nobody serves this name in this process".to_owned()))?;
        let far = Some(hosting("mem"));
        let connection = Connection { there: Way::new(&options), back: Way::new(&options), far, handles: 1 };
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
        self.net.within(self.id, within, |connection, now| match connection.back.pipe.receive(into, now) {
            Some(length) => Ok(Some(length)),
            None if connection.back.pipe.ended(now) => Err(Fault::Closed),
            None => Ok(None),
        })
    }

    fn unacknowledged(&self) -> Option<u64> {
        let mut world = self.net.world();
        world.run(self.net.clock.now(), None);
        world.connections[self.id].as_ref().map(|connection| connection.there.pipe.held() as u64)
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
            connection.there.close();
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
            connection.there.close();
            connection.back.close();
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
    Options::of(endpoint)?;
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
