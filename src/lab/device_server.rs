//! The device server: serial ports offered over a network, one listener each, as the boxes do that people buy.
//!
//! Not for what a link or a line is: it moves bytes between a client's link and a port's link, each direction in a thread
//! that blocks. When to send what the line brought is the business of `packing`.

use std::fmt;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, Release},
};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use super::LabError;
use super::packing::Packing;
use crate::clock::{Clock, Time};
use crate::endpoint::Endpoint;
use crate::link::line::Settings;
use crate::link::party::SLICE;
use crate::link::{Dialer, Fault, Framing, Link, LinkError, Listener, rfc2217};

mod client;
mod control;
mod door;
mod from_line;
mod processor;
mod stand_in;
mod to_line;

use client::Client;
use processor::Processor;
pub use stand_in::STAND_IN;

/// The port of the first serial port where the endpoint names none: Sena's.
pub const DEFAULT_PORT: u16 = 7001;

/// What a device server is asked to be.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where the first port listens; the others are counted up from it. With port 0 each gets a free one.
    pub listen: Endpoint,
    /// The serial ports, in order.
    pub serial: Vec<Endpoint>,
    /// Clients speak Telnet and may control the port (RFC 2217); it gets its settings back when they have gone.
    pub rfc2217: bool,
    pub packing: Packing,
    /// Clients that share a port, at least one. All of them get what the line says.
    pub clients: usize,
    pub busy: Busy,
    /// Bytes move only at multiples of this; zero: at any time.
    pub poll: Duration,
    /// Each transfer occupies the one processor of the box for so long; zero: for no time.
    pub budget: Duration,
}

impl Options {
    /// Raw, one client a port, nothing held back.
    pub fn new(listen: Endpoint, serial: Vec<Endpoint>) -> Options {
        Options {
            listen,
            serial,
            rfc2217: false,
            packing: Packing::default(),
            clients: 1,
            busy: Busy::Refuse,
            poll: Duration::ZERO,
            budget: Duration::ZERO,
        }
    }
}

/// What becomes of one client too many.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Busy {
    /// It is accepted and closed.
    #[default]
    Refuse,
    /// The oldest client has to go.
    Replace,
}

/// What happened on a port; the ports count from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    Connected {
        port: usize,
        from: String,
    },
    Refused {
        port: usize,
        from: String,
    },
    Gone {
        port: usize,
        from: String,
        why: String,
    },
    /// The UART or its driver had no room for so many characters.
    Overrun {
        port: usize,
        characters: u64,
    },
    /// The port can no longer be used, and is closed; the others go on.
    Lost {
        port: usize,
        why: String,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Connected { port, from } => write!(f, "port {port}: {from} connected"),
            Event::Refused { port, from } => write!(f, "port {port}: {from} refused, the port is taken"),
            Event::Gone { port, from, why } => write!(f, "port {port}: {from} gone: {why}"),
            Event::Overrun { port, characters } => write!(
                f,
                "port {port}: {characters} characters lost: the line was faster than its reader, without flow control"
            ),
            Event::Lost { port, why } => write!(f, "port {port}: closed: {why}"),
        }
    }
}

/// What a port has done since the start.
#[derive(Debug, Default)]
pub struct Counters {
    pub sessions: AtomicU64,
    pub refused: AtomicU64,
    /// Bytes from clients that the line took.
    pub to_line: AtomicU64,
    /// Bytes that the line brought.
    pub from_line: AtomicU64,
    /// Of these, bytes that no client got: none was there, or it purged the port.
    pub unclaimed: AtomicU64,
    /// Characters that the UART or its driver had no room for.
    pub overruns: AtomicU64,
}

/// A running device server; stops when it is dropped.
pub struct DeviceServer {
    endpoints: Vec<Endpoint>,
    ports: Vec<Arc<SerialPort>>,
    common: Arc<Common>,
    events: Receiver<Event>,
    threads: Vec<JoinHandle<()>>,
}

/// What all ports share.
struct Common {
    clock: Clock,
    stop: AtomicBool,
    packing: Packing,
    clients: usize,
    busy: Busy,
    processor: Processor,
    events: SyncSender<Event>,
}

/// Events that wait to be asked for. Of more than that, the counters still know.
const EVENTS: usize = 1024;

/// A thread here needs little: its buffers are on the heap.
const STACK: usize = 256 * 1024;

impl DeviceServer {
    /// Opens every serial port, then listens for each.
    pub fn start(options: &Options) -> Result<DeviceServer, LabError> {
        check(options)?;
        let mut dialer = Dialer::new(Clock::System);
        dialer.default_port = Some(DEFAULT_PORT);
        let lines: Result<Vec<_>, _> = options.serial.iter().map(|serial| dialer.open(serial)).collect();
        let (lines, listeners) = (lines?, listen(options, &dialer)?);
        let (sender, events) = sync_channel(EVENTS);
        let common = Arc::new(Common {
            stop: AtomicBool::new(false),
            packing: options.packing.clone(),
            clients: options.clients,
            busy: options.busy,
            processor: Processor::new(options.poll, options.budget, dialer.now()),
            events: sender,
            clock: dialer.clock,
        });
        let mut server =
            DeviceServer { endpoints: Vec::new(), ports: Vec::new(), common, events, threads: Vec::new() };
        for ((serial, line), listener) in options.serial.iter().zip(lines).zip(listeners) {
            let endpoint = listener.endpoint();
            let configured = Settings::of(serial).map_err(|error| LabError(error.to_string()))?;
            let port = SerialPort::new(server.ports.len() + 1, configured, options.rfc2217, &server.common);
            let threads =
                port.clone().start(line, listener).map_err(|fault| LinkError::new(serial, fault))?;
            server.threads.extend(threads);
            server.ports.push(port);
            server.endpoints.push(endpoint);
        }
        Ok(server)
    }

    /// Where it listens, port by port.
    pub fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// For our own links to the ports, in order: they declare the line, or control the port where that is offered.
    pub fn links(&self) -> Vec<Endpoint> {
        let ports = self.endpoints.iter().zip(&self.ports);
        ports.filter_map(|(endpoint, port)| link(endpoint, port.controlled, &port.configured)).collect()
    }

    /// What each port has done, in order.
    pub fn counters(&self) -> impl Iterator<Item = &Counters> {
        self.ports.iter().map(|port| &port.counters)
    }

    /// What happened since this was asked last; of what nobody asks for, the last are lost.
    pub fn events(&self) -> impl Iterator<Item = Event> {
        self.events.try_iter()
    }

    /// Ports that can still be used.
    pub fn open_ports(&self) -> usize {
        self.ports.iter().filter(|port| !port.lost.load(Relaxed)).count()
    }
}

impl Drop for DeviceServer {
    /// Ends all sessions; returns when every port is closed.
    fn drop(&mut self) {
        self.common.stop.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            // One that panicked has said so already.
            let _ = thread.join();
        }
    }
}

fn check(options: &Options) -> Result<(), LabError> {
    options.packing.check().map_err(LabError)?;
    if options.serial.is_empty() {
        return Err(LabError("a device server needs at least one serial port".to_owned()));
    }
    if options.clients == 0 {
        return Err(LabError("a port without room for a client is no use: allow one or more".to_owned()));
    }
    let caps = crate::link::caps(&options.listen).map_err(|fault| LinkError::new(&options.listen, fault))?;
    if caps.framing != Framing::Stream {
        return Err(LabError(format!("{}: a device server needs a stream", options.listen)));
    }
    Ok(())
}

/// One listener for each port, counted up from the first.
fn listen(options: &Options, dialer: &Dialer) -> Result<Vec<Box<dyn Listener>>, LabError> {
    let mut listeners = vec![dialer.listen(&options.listen)?];
    let any = matches!(options.listen.host_port(), Ok((_, Some(0))));
    let first = listeners[0].endpoint();
    for offset in 1..options.serial.len() {
        let endpoint = match u32::try_from(offset) {
            _ if any => options.listen.clone(),
            Ok(offset) => first.counted_up(offset).map_err(|error| LabError(error.to_string()))?,
            Err(error) => return Err(LabError(error.to_string())),
        };
        listeners.push(dialer.listen(&endpoint)?);
    }
    Ok(listeners)
}

/// Where a link of ours to a port leads.
fn link(endpoint: &Endpoint, controlled: bool, line: &Settings) -> Option<Endpoint> {
    match controlled {
        true => rfc2217::endpoint(endpoint, line).ok(),
        false => format!("{endpoint}?{}", line.options()).parse().ok(),
    }
}

fn thread(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Fault> {
    Builder::new().name(name.to_owned()).stack_size(STACK).spawn(run).map_err(Fault::system("start a thread"))
}

/// A serial port of the box, and who uses it.
struct SerialPort {
    /// Counts from 1.
    number: usize,
    /// How it is set while no client has set it otherwise.
    configured: Settings,
    /// Whether clients can control it.
    controlled: bool,
    common: Arc<Common>,
    counters: Counters,
    /// The line cannot be used any more.
    lost: AtomicBool,
    clients: Mutex<Vec<Arc<Client>>>,
    /// Goes up with every change of `clients` and `purged`, so that who moves bytes need not lock to see that there was none.
    changes: AtomicU64,
    /// What was read from the line and not sent yet is not wanted any more.
    purged: AtomicBool,
}

impl SerialPort {
    fn new(number: usize, configured: Settings, controlled: bool, common: &Arc<Common>) -> Arc<SerialPort> {
        Arc::new(SerialPort {
            number,
            configured,
            controlled,
            common: common.clone(),
            counters: Counters::default(),
            lost: AtomicBool::new(false),
            clients: Mutex::default(),
            changes: AtomicU64::new(0),
            purged: AtomicBool::new(false),
        })
    }

    /// Starts the threads that every port has.
    fn start(
        self: Arc<SerialPort>,
        mut line: Box<dyn Link>,
        mut listener: Box<dyn Listener>,
    ) -> Result<[JoinHandle<()>; 2], Fault> {
        if self.controlled && line.port().is_none() {
            return Err(control::no_control());
        }
        let for_clients = line.other_half()?;
        let door = self.clone();
        Ok([
            thread("from line", move || self.serve_line(&mut *line))?,
            thread("door", move || door.accept(&mut *listener, &*for_clients))?,
        ])
    }

    /// Whether all threads of this port have to end.
    fn is_over(&self) -> bool {
        self.common.stop.load(Relaxed) || self.lost.load(Relaxed)
    }

    /// Drops what was read from the line and not sent yet.
    fn purge(&self) {
        self.purged.store(true, Relaxed);
        self.changes.fetch_add(1, Release);
    }

    fn tell(&self, event: Event) {
        // Who does not ask in time misses some.
        let _ = self.common.events.try_send(event);
    }

    /// The line failed; the first to notice says so.
    fn lose(&self, fault: &Fault) {
        if !self.common.stop.load(Relaxed) && !self.lost.swap(true, Relaxed) {
            let why = match fault {
                Fault::Closed => "its line is gone: was the adapter pulled out?".to_owned(),
                fault => fault.to_string(),
            };
            self.tell(Event::Lost { port: self.number, why });
        }
    }

    /// Waits for the place of a transfer in a slow box; false if there was nothing to wait for.
    fn wait_for_turn(&self, now: Time) -> bool {
        let Some(turn) = self.common.processor.turn(now) else { return false };
        let clock = &self.common.clock;
        while clock.now() < turn && !self.is_over() {
            clock.sleep_until(turn.min(clock.now() + SLICE));
        }
        true
    }
}
