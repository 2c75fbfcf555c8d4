//! `mem://name`: a link inside this process whose far end runs in the same thread. On the virtual clock a whole run
//! over it is exact to the nanosecond; on the system clock it is the floor of the instrument itself.
//!
//! Waiting steps the far end and moves the clock to the next event. What delay, rate and faults do to the bytes is
//! modelled in `shaped`; here every n-th message is lost, doubled or overtaken, and the buffer is what a sender waits for.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use super::party::{Cost, Party, Step, Tuning};
use super::shaped::{Often, Path, Pipe, Shape};
use super::{
    Caps, Door, Facts, Fault, Framing, Hosting, Line, Link, Listener, Opening, Transport, Unavailable,
};
use crate::clock::{Clock, Time};
use crate::endpoint::{Endpoint, EndpointError};
use crate::units;

pub const TRANSPORT: Transport = Transport {
    scheme: "mem",
    summary: "a link inside this process: the instrument's own floor",
    example: "mem://floor?delay=1ms&rate=10Mbit/s",
    options: &[
        ("type", "stream (default) or message"),
        ("delay", "one-way delay of every byte (0s)"),
        ("rate", "bits per second, each way (unlimited)"),
        ("buffer", "bytes in flight each way (1Mi)"),
        ("drop", "lose every n-th message, messages only"),
        ("double", "deliver every n-th message twice, messages only"),
        ("swap", "let the next message overtake every n-th if it is sent in time, messages only"),
    ],
    check: |endpoint| Options::of(endpoint).map(|options| options.caps()),
    available: || Ok::<(), Unavailable>(()),
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
}

impl Options {
    fn of(endpoint: &Endpoint) -> Result<Options, EndpointError> {
        let every = |name: &str| {
            endpoint
                .parsed(name, "a count of at least 2", |text| units::count(text).ok().filter(|&n| n >= 2))
                .map(|n| n.map_or(Often::Never, Often::Every))
        };
        let framing = endpoint
            .parsed("type", "stream or message", |text| match text {
                "stream" => Some(Framing::Stream),
                "message" => Some(Framing::Message),
                _ => None,
            })?
            .unwrap_or(Framing::Stream);
        let shape = Shape {
            delay: endpoint
                .parsed("delay", "a duration like 1ms", |text| units::duration(text).ok())?
                .unwrap_or_default(),
            rate: endpoint
                .parsed("rate", "a rate like 10Mbit/s", |text| units::bit_rate(text).ok())?
                .unwrap_or(f64::INFINITY),
            loss: every("drop")?,
            duplicate: every("double")?,
            reorder: every("swap")?,
            ..Shape::default()
        };
        let buffer = endpoint
            .parsed("buffer", "64Ki to 1Gi bytes", |text| {
                units::bytes(text).ok().filter(|n| (65_536..=1 << 30).contains(n))
            })?
            .unwrap_or(DEFAULT_BUFFER) as usize;
        if framing == Framing::Stream && shape.is_faulty() {
            endpoint.parsed(
                "type",
                "message: a stream loses nothing (needed for drop, double, swap)",
                |_| None::<()>,
            )?;
            return Err(EndpointError::NoValue { url: endpoint.to_string(), option: "type".to_owned() });
        }
        Ok(Options { framing, shape, buffer })
    }

    fn caps(&self) -> Caps {
        let rate = self.shape.rate;
        let line = rate.is_finite().then_some(Line { bits_per_second: rate, bits_per_byte: 8.0 });
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
    path: Path,
    pipe: Pipe,
}

impl Way {
    fn new(options: &Options) -> Way {
        Way {
            framing: options.framing,
            buffer: options.buffer,
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
        if taken > 0 || is_message {
            self.pipe.send(&mut self.path, &bytes[..taken], now);
        }
        Ok(Some(taken))
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
                    far.received(now);
                    Stepped::Moved
                } else if self.there.pipe.ended(now) {
                    closes = far.closed(now).is_err();
                    Stepped::Moved
                } else if now >= until {
                    far.timed_out(now);
                    Stepped::Moved
                } else {
                    Stepped::Waits(until.min(self.there.pipe.due().unwrap_or(Time::NEVER)))
                }
            }
            Step::Sleep(until) if until > now => Stepped::Waits(until),
            Step::Sleep(_) => Stepped::Moved,
            Step::Tune(_) => Stepped::Moved,
            Step::Finish => {
                self.back.close();
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
