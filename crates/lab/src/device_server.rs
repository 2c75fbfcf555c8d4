//! The device server: offers serial ports over a network, one listener each, like the boxes on the market.
//!
//! The server moves bytes between a client's link and a port's link. Each direction is a party; a few threads run those of all
//! ports (`threads`), and one accepts their clients. A client that controls its port has a thread, because changing a line
//! takes time. `packing` decides when data from the line is sent.

use std::fmt;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, Release},
};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle};

use super::LabError;
use super::packing::PackingRules;
use linkgauge_engine::Registry;
use linkgauge_engine::host::cpu;
use linkgauge_engine::link::party::CANCEL_CHECK_INTERVAL;
use linkgauge_engine::link::serial_line::{self, SerialSettings};
use linkgauge_engine::link::{Dialer, Fault, Framing, Link, LinkError, Listener};
use linkgauge_engine::transport::rfc2217;
use linkgauge_model::clock::{Clock, Time};
use linkgauge_model::endpoint::Endpoint;

mod accept;
mod client;
mod control;
mod from_line;
mod line_feed;
mod plugged_port;
mod processor;
mod session;
mod stand_in;
mod threads;
mod to_line;

use accept::{PortListener, serve_ports};
use client::PortClient;
use from_line::FromLine;
use line_feed::LineFeed;
pub use plugged_port::PluggedPort;
use processor::Transfer;
pub use processor::{SharedProcessor, TransferCosts};
pub(crate) use stand_in::STAND_IN;
use threads::{PortMember, PortThread};

/// The port of the first serial port if the endpoint names none; Sena's default.
pub const DEFAULT_PORT: u16 = 7001;

/// Options of a device server.
#[derive(Debug, Clone)]
pub struct DeviceServerOptions {
    /// Address of the first port; the others have consecutive numbers. With port 0 each gets a free one.
    pub listen: Endpoint,
    /// The serial ports, in order.
    pub serial_ports: Vec<Endpoint>,
    /// Clients use Telnet and may control the port (RFC 2217). The port's settings are restored when they disconnect.
    pub rfc2217: bool,
    /// Rules that decide when data from the line is sent to clients.
    pub packing: PackingRules,
    /// Clients that can share a port, at least one. All of them receive the data from the line.
    pub max_clients: usize,
    /// The treatment of a client when the port has all its clients.
    pub busy_policy: BusyPolicy,
    /// Costs of transfers in a slow box.
    pub costs: TransferCosts,
}

impl DeviceServerOptions {
    /// Creates the options of raw ports, with one client per port and no packing.
    pub fn new(listen: Endpoint, serial: Vec<Endpoint>) -> DeviceServerOptions {
        DeviceServerOptions {
            listen,
            serial_ports: serial,
            rfc2217: false,
            packing: PackingRules::default(),
            max_clients: 1,
            busy_policy: BusyPolicy::Refuse,
            costs: TransferCosts::default(),
        }
    }
}

/// The treatment of a client in excess of the limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BusyPolicy {
    /// The connection of the client is accepted and closed.
    #[default]
    Refuse,
    /// The oldest client is disconnected.
    Replace,
}

/// An event on a port. Ports count from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceServerEvent {
    /// A client has connected.
    Connected {
        /// The number of the port.
        port: usize,
        /// The address of the client.
        from: String,
    },
    /// A client was refused because others use the port.
    Refused {
        /// The number of the port.
        port: usize,
        /// The address of the client.
        from: String,
    },
    /// A client's connection has ended.
    Disconnected {
        /// The number of the port.
        port: usize,
        /// The address of the client.
        from: String,
        /// The reason, as printed.
        why: String,
    },
    /// Characters lost because the UART or its driver had no room.
    Overrun {
        /// The number of the port.
        port: usize,
        /// The number of characters since the last such event.
        characters: u64,
    },
    /// The port failed and is closed. The others continue.
    PortLost {
        /// The number of the port.
        port: usize,
        /// The reason, as printed.
        why: String,
    },
}

impl fmt::Display for DeviceServerEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceServerEvent::Connected { port, from } => write!(f, "port {port}: {from} connected"),
            DeviceServerEvent::Refused { port, from } => {
                write!(f, "port {port}: {from} refused, the port is taken")
            }
            DeviceServerEvent::Disconnected { port, from, why } => {
                write!(f, "port {port}: {from} disconnected: {why}")
            }
            DeviceServerEvent::Overrun { port, characters } => write!(
                f,
                "port {port}: {characters} characters lost: the line was faster than its reader, without flow control"
            ),
            DeviceServerEvent::PortLost { port, why } => write!(f, "port {port}: closed: {why}"),
        }
    }
}

/// Counters of a port since the start.
#[derive(Debug, Default)]
pub struct PortCounters {
    /// Clients that were accepted.
    pub sessions: AtomicU64,
    /// Clients that were refused.
    pub refused: AtomicU64,
    /// Bytes from clients that the line accepted.
    pub to_line: AtomicU64,
    /// Bytes that the line delivered.
    pub from_line: AtomicU64,
    /// Bytes that no client received, among them: no client was connected, or a client purged the port.
    pub unclaimed: AtomicU64,
    /// Characters lost because the UART or its driver had no room.
    pub overruns: AtomicU64,
}

/// A running device server; stops when it is dropped.
pub struct DeviceServer {
    endpoints: Vec<Endpoint>,
    ports: Vec<Arc<ServedPort>>,
    state: Arc<DeviceServerState>,
    events: Receiver<DeviceServerEvent>,
    port_threads: Vec<Arc<PortThread>>,
    threads: Vec<JoinHandle<()>>,
}

/// State that all ports share.
struct DeviceServerState {
    clock: Clock,
    stop: AtomicBool,
    packing: PackingRules,
    max_clients: usize,
    busy_policy: BusyPolicy,
    processor: SharedProcessor,
    events: SyncSender<DeviceServerEvent>,
}

/// Maximum number of unread events. The counters include events beyond it.
const MAX_QUEUED_EVENTS: usize = 1024;

/// Stack size of these threads in bytes: little, because their buffers are on the heap.
const THREAD_STACK_BYTES: usize = 256 * 1024;

impl DeviceServer {
    /// Opens every serial port, then listens for each.
    ///
    /// # Errors
    ///
    /// Fails if the options contradict each other, or if a serial port, a listener or a thread cannot be started.
    pub fn start(options: &DeviceServerOptions) -> Result<DeviceServer, LabError> {
        check_options(options)?;
        let mut dialer = Registry::standard().dialer(Clock::System);
        dialer.default_port = Some(DEFAULT_PORT);
        let lines: Result<Vec<_>, _> =
            options.serial_ports.iter().map(|serial| dialer.open(serial)).collect();
        let (lines, listeners) = (lines?, open_listeners(options, &dialer)?);
        let (sender, events) = sync_channel(MAX_QUEUED_EVENTS);
        let common = Arc::new(DeviceServerState {
            stop: AtomicBool::new(false),
            packing: options.packing.clone(),
            max_clients: options.max_clients,
            busy_policy: options.busy_policy,
            processor: SharedProcessor::new(options.costs, options.serial_ports.len(), dialer.now()),
            events: sender,
            clock: dialer.clock,
        });
        let mut server = DeviceServer {
            endpoints: Vec::new(),
            ports: Vec::new(),
            state: common,
            events,
            port_threads: Vec::new(),
            threads: Vec::new(),
        };
        server.start_threads(options).map_err(|fault| LinkError::new(&options.listen, fault))?;
        let mut port_listeners = Vec::new();
        for ((serial, line), listener) in options.serial_ports.iter().zip(lines).zip(listeners) {
            server.endpoints.push(listener.endpoint());
            let configured = serial_line::settings_of(serial)?;
            let port = ServedPort::new(server.ports.len() + 1, configured, options.rfc2217, &server.state);
            let port_listener =
                server.start_port(&port, line, listener).map_err(|fault| LinkError::new(serial, fault))?;
            port_listeners.push(port_listener);
            server.ports.push(port);
        }
        let state = server.state.clone();
        let ports = server.ports.clone();
        let serve = move || {
            if let Err(fault) = serve_ports(&state, port_listeners) {
                ports.iter().for_each(|port| port.mark_lost(&fault));
            }
        };
        let thread = spawn_thread("accept", serve).map_err(|fault| LinkError::new(&options.listen, fault))?;
        server.threads.push(thread);
        Ok(server)
    }

    /// Starts the threads that run all ports.
    fn start_threads(&mut self, options: &DeviceServerOptions) -> Result<(), Fault> {
        let count = cpu::current_affinity().len().clamp(1, options.serial_ports.len());
        for _ in 0..count {
            let (thread, handle) = PortThread::start(&self.state)?;
            self.port_threads.push(thread);
            self.threads.push(handle);
        }
        Ok(())
    }

    /// Starts to read the line of a port; returns what accepts its clients.
    fn start_port(
        &mut self,
        port: &Arc<ServedPort>,
        mut line: Box<dyn Link>,
        listener: Box<dyn Listener>,
    ) -> Result<PortListener, Fault> {
        if port.is_controllable && line.port_control().is_none() {
            return Err(control::no_control_fault());
        }
        let thread = &self.port_threads[port.number % self.port_threads.len()];
        let port_listener = PortListener::new(port, listener, line.second_handle()?, thread);
        let from_line = FromLine::new(port.clone(), line.second_handle()?);
        self.threads.extend(thread.add(PortMember::Line(from_line, line))?);
        Ok(port_listener)
    }

    /// The listening endpoints, in port order.
    pub fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// Endpoints for our own links to the ports, in order. They declare the line, or control the port where supported.
    pub fn link_endpoints(&self) -> Vec<Endpoint> {
        let ports = self.endpoints.iter().zip(&self.ports);
        ports
            .filter_map(|(endpoint, port)| match port.is_controllable {
                true => rfc2217::client_endpoint(endpoint, &port.configured).ok(),
                false => {
                    format!("{endpoint}?{}", serial_line::endpoint_options(&port.configured)).parse().ok()
                }
            })
            .collect()
    }

    /// Counters of each port, in order.
    pub fn counters(&self) -> impl Iterator<Item = &PortCounters> {
        self.ports.iter().map(|port| &port.counters)
    }

    /// Events since the last call. If events are not read in time, the newest are dropped.
    pub fn events(&self) -> impl Iterator<Item = DeviceServerEvent> {
        self.events.try_iter()
    }

    /// Number of ports that still work.
    pub fn open_ports(&self) -> usize {
        self.ports.iter().filter(|port| !port.is_lost.load(Relaxed)).count()
    }
}

impl Drop for DeviceServer {
    /// Ends all sessions. Returns when every port is closed.
    fn drop(&mut self) {
        self.state.stop.store(true, Relaxed);
        self.port_threads.iter().for_each(|thread| thread.wake());
        for thread in self.threads.drain(..) {
            // A thread that panicked has already printed its message.
            let _ = thread.join();
        }
    }
}

fn check_options(options: &DeviceServerOptions) -> Result<(), LabError> {
    options.packing.check()?;
    let costs = &options.costs;
    if costs.block_bytes > PackingRules::MAX_BUFFER_BYTES / 2 {
        let limit = PackingRules::MAX_BUFFER_BYTES / 2;
        return Err(LabError::Invalid(format!("blocks of {} bytes: use at most {limit}", costs.block_bytes)));
    }
    if costs.block_bytes > 0 && options.packing != PackingRules::default() {
        let text = "blocks and packing rules: a box that moves blocks packs by blocks. Use one of them";
        return Err(LabError::Invalid(text.to_owned()));
    }
    if !costs.drain_pause.is_zero() && costs.block_bytes == 0 {
        return Err(LabError::Invalid("a pause after each block needs blocks. Add --block 512".to_owned()));
    }
    if options.serial_ports.is_empty() {
        return Err(LabError::Invalid("a device server needs at least one serial port".to_owned()));
    }
    if options.max_clients == 0 {
        return Err(LabError::Invalid("a port must accept at least one client".to_owned()));
    }
    let caps = Registry::standard()
        .transports
        .caps(&options.listen)
        .map_err(|fault| LinkError::new(&options.listen, fault))?;
    if caps.framing != Framing::Stream {
        return Err(LabError::Invalid(format!("{}: a device server needs a stream", options.listen)));
    }
    Ok(())
}

/// One listener for each port, with consecutive numbers.
fn open_listeners(
    options: &DeviceServerOptions,
    dialer: &Dialer,
) -> Result<Vec<Box<dyn Listener>>, LabError> {
    let mut listeners = vec![dialer.listen(&options.listen)?];
    let any = matches!(options.listen.host_port(), Ok((_, Some(0))));
    let first = listeners[0].endpoint();
    for offset in 1..options.serial_ports.len() as u32 {
        let endpoint = if any { options.listen.clone() } else { first.with_number_offset(offset)? };
        listeners.push(dialer.listen(&endpoint)?);
    }
    Ok(listeners)
}

fn spawn_thread(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Fault> {
    Builder::new()
        .name(name.to_owned())
        .stack_size(THREAD_STACK_BYTES)
        .spawn(run)
        .map_err(Fault::system("start a thread"))
}

/// A serial port of the box and its clients.
struct ServedPort {
    /// Counts from 1.
    number: usize,
    /// The settings while no client has changed them.
    configured: SerialSettings,
    /// Whether clients can control the port.
    is_controllable: bool,
    state: Arc<DeviceServerState>,
    counters: PortCounters,
    /// The line has failed.
    is_lost: AtomicBool,
    clients: Mutex<Vec<Arc<PortClient>>>,
    /// Incremented with every change of `clients` and `purged`, so that the threads that move bytes need no lock to
    /// detect that nothing changed.
    change_count: AtomicU64,
    /// Unsent data from the line is to be discarded.
    purged: AtomicBool,
}

impl ServedPort {
    pub fn new(
        number: usize,
        configured: SerialSettings,
        controlled: bool,
        common: &Arc<DeviceServerState>,
    ) -> Arc<ServedPort> {
        Arc::new(ServedPort {
            number,
            configured,
            is_controllable: controlled,
            state: common.clone(),
            counters: PortCounters::default(),
            is_lost: AtomicBool::new(false),
            clients: Mutex::default(),
            change_count: AtomicU64::new(0),
            purged: AtomicBool::new(false),
        })
    }

    /// Whether all threads of this port have to end.
    fn is_stopping(&self) -> bool {
        self.state.stop.load(Relaxed) || self.is_lost.load(Relaxed)
    }

    /// Discards unsent data from the line.
    fn purge(&self) {
        self.purged.store(true, Relaxed);
        self.change_count.fetch_add(1, Release);
    }

    fn emit(&self, event: DeviceServerEvent) {
        // Events that are not read in time are dropped.
        let _ = self.state.events.try_send(event);
    }

    /// Marks the line as failed. The first call reports it.
    fn mark_lost(&self, fault: &Fault) {
        if !self.state.stop.load(Relaxed) && !self.is_lost.swap(true, Relaxed) {
            let why = match fault {
                Fault::Closed => {
                    "its line has disappeared. Check whether the adapter is plugged in".to_owned()
                }
                fault => fault.to_string(),
            };
            self.emit(DeviceServerEvent::PortLost { port: self.number, why });
        }
    }

    /// The line, as configured.
    fn line_feed(&self) -> LineFeed {
        let bits_per_second = f64::from(self.configured.baud);
        let characters_per_second =
            serial_line::link_rate(&self.configured).max_payload_bps() / f64::from(u8::BITS);
        LineFeed::new(self.state.processor.costs(), bits_per_second, bits_per_second / characters_per_second)
    }

    /// Waits until a slow box can make a transfer. Returns false if there was no wait.
    fn wait_for_turn(&self, transfer: Transfer, now: Time) -> bool {
        let Some(turn) = self.state.processor.schedule_transfer(transfer, now) else { return false };
        self.wait_until(turn);
        true
    }

    /// Waits until `turn`, or until the port stops.
    fn wait_until(&self, turn: Time) {
        let clock = &self.state.clock;
        while clock.now() < turn && !self.is_stopping() {
            clock.sleep_until(turn.min(clock.now() + CANCEL_CHECK_INTERVAL));
        }
    }
}
