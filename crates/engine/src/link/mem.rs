//! `mem://name`: a link inside this process whose server runs in the same thread. On the virtual clock a
//! whole run over it is exact to the nanosecond; on the system clock it shows the overhead of linkgauge
//! itself.
//!
//! A wait runs the server and moves the clock to the next event. `shaped` models delay, rate and faults; this
//! file drops or changes every n-th message or character, and limits the buffer that blocks a sender.

use std::time::Duration;

use crate::link::delegate::plain_link;
use crate::link::serial_line::{FlowControl, SerialSettings};
use crate::link::shaped::{Occurrence, Shape, ShapedPath, ShapedPipe, SharedPath};
use crate::link::{
    AcceptFilter, Caps, Facts, Fault, Framing, Limitation, Link, LinkDescriptor, LinkRate, LinkStatus,
    Listener, OpenContext, PartyFactory, Transport, serial_line,
};
use linkgauge_model::clock::Time;
use linkgauge_model::endpoint::{Endpoint, EndpointError};
use linkgauge_model::stats::SplitMix64;
use linkgauge_model::units;
use network::MemConnection;
pub(crate) use network::MemNetwork;

mod network;
mod server_end;

/// The transport `mem` in the list of transports.
pub(crate) const TRANSPORT: Transport = Transport {
    scheme: "mem",
    summary: "a link inside this process, for the measurement overhead",
    example: "mem://floor?delay=1ms&rate=10Mbit/s",
    options: &[
        (
            "type",
            "stream (default), message, or line: a serial line that carries every character in its time",
        ),
        ("delay", "one-way delay of every byte (0s)"),
        ("jitter", "the delay is uniform within this time around it, at most the delay (0s)"),
        ("spike", "a share of the messages or chunks takes longer by a time, like 300ms@2% (none)"),
        ("slot", "everything arrives at multiples of this time, as in the slots of a radio (0s: any time)"),
        ("seed", "seed of jitter and spikes; each connection has its own sequence (0)"),
        ("rate", "bits per second, each way (unlimited); a line has its baud"),
        ("buffer", "bytes in flight each way (1Mi)"),
        ("share", "all connections of this endpoint share one line each way: yes or no (no)"),
        ("drop", "lose every n-th message, or character of a line"),
        ("double", "deliver every n-th message, or character of a line, twice"),
        ("swap", "let the next message overtake every n-th if it is sent in time, messages only"),
        ("change", "change every n-th character of a line"),
        serial_line::BAUD_OPTION,
        serial_line::DATA_BITS_OPTION,
        serial_line::PARITY_OPTION,
        serial_line::STOP_BITS_OPTION,
        serial_line::FLOW_CONTROL_OPTION,
    ],
    parse_caps: |endpoint| Options::from_endpoint(endpoint).map(|options| options.caps()),
    resolve: None,
    available: || Ok::<(), Limitation>(()),
    limitation: || None,
    open,
    begin_open: None,
    listen: Some(listen),
    loopback_urls: |_| vec!["mem://floor".to_owned(), "mem://floor-messages?type=message".to_owned()],
};

/// Largest message; it fits the default buffer.
const MAX_MESSAGE_BYTES: usize = 65_536;
const DEFAULT_BUFFER_BYTES: u64 = 1 << 20;

/// The shape of an endpoint: delay, jitter, spikes and slots.
fn delays(endpoint: &Endpoint) -> Result<Shape, EndpointError> {
    let time = |name: &str| {
        let parsed =
            endpoint.parse_option(name, "a duration like 1ms", |text| units::parse_duration(text).ok());
        Ok(parsed?.unwrap_or_default())
    };
    let delay = time("delay")?;
    let jitter = endpoint.parse_option("jitter", "a duration up to the delay, like 100us", |text| {
        units::parse_duration(text).ok().filter(|jitter| *jitter <= delay)
    })?;
    let spike = endpoint.parse_option("spike", "a time and a share, like 300ms@2%", |text| {
        let (length, share) = text.split_once('@')?;
        Some((units::parse_duration(length).ok()?, units::parse_share(share).ok()?))
    })?;
    let (spike_delay, share) = spike.unwrap_or_default();
    let spike_occurrence = if share > 0.0 { Occurrence::Share(share) } else { Occurrence::Never };
    Ok(Shape {
        delay,
        jitter: jitter.unwrap_or_default(),
        spike_occurrence,
        spike_delay,
        slot: time("slot")?,
        ..Shape::default()
    })
}

/// A parsed endpoint of this transport.
#[derive(Debug, Clone, PartialEq)]
struct Options {
    framing: Framing,
    shape: Shape,
    buffer_bytes: usize,
    is_shared: bool,
    change_every: u64,
    serial_settings: Option<SerialSettings>,
    seed: u64,
}

impl Options {
    fn from_endpoint(endpoint: &Endpoint) -> Result<Options, EndpointError> {
        let count = |name: &str| {
            endpoint.parse_option(name, "a count of at least 2", |text| {
                units::parse_count(text).ok().filter(|&n| n >= 2)
            })
        };
        let every = |name: &str| Ok(count(name)?.map_or(Occurrence::Never, Occurrence::Every));
        let known = |text: &str| ["stream", "message", "line"].into_iter().find(|kind| *kind == text);
        let kind = endpoint.parse_option("type", "stream, message or line", known)?.unwrap_or("stream");
        let settings = serial_line::settings_of(endpoint)?;
        let rate = endpoint
            .parse_option("rate", "a rate like 10Mbit/s", |text| units::parse_bit_rate(text).ok())?
            .unwrap_or(f64::INFINITY);
        let options = Options {
            framing: if kind == "message" { Framing::Message } else { Framing::Stream },
            serial_settings: (kind == "line").then_some(settings),
            shape: Shape {
                bits_per_second: if kind == "line" {
                    serial_line::link_rate(&settings).max_payload_bps()
                } else {
                    rate
                },
                loss: every("drop")?,
                duplicate: every("double")?,
                reorder: every("swap")?,
                ..delays(endpoint)?
            },
            buffer_bytes: endpoint
                .parse_option("buffer", "64Ki to 1Gi bytes", |text| {
                    units::parse_bytes(text).ok().filter(|n| (65_536..=1 << 30).contains(n))
                })?
                .unwrap_or(DEFAULT_BUFFER_BYTES) as usize,
            is_shared: endpoint.parse_option("share", "yes or no", parse_switch)?.unwrap_or(false),
            change_every: count("change")?.unwrap_or(0),
            seed: endpoint.parse_option("seed", "a number", |text| text.parse().ok())?.unwrap_or(0),
        };
        let wants = |kind, what| {
            endpoint.parse_option("type", what, |text| (text == kind).then_some(()))?.ok_or_else(|| {
                EndpointError::MissingValue { url: endpoint.to_string(), option: "type".to_owned() }
            })
        };
        let shape = &options.shape;
        if options.change_every != 0 {
            wants("line", "line: nothing else changes bytes (needed for change)")?;
        } else if shape.reorder != Occurrence::Never
            || options.serial_settings.is_none() && shape.has_faults()
        {
            wants("message", "message: a stream loses nothing (needed for drop, double, swap)")?;
        }
        Ok(options)
    }

    fn caps(&self) -> Caps {
        Caps { descriptor: LinkDescriptor::None, ..self.caps_of_path() }
    }

    fn caps_of_path(&self) -> Caps {
        if let Some(settings) = self.serial_settings {
            return serial_line::caps(&settings);
        }
        let line = self
            .shape
            .bits_per_second
            .is_finite()
            .then_some(LinkRate::without_overhead(self.shape.bits_per_second));
        if self.framing == Framing::Stream {
            return Caps { link_rate: line, ..Caps::STREAM };
        }
        Caps {
            framing: Framing::Message,
            max_message_bytes: Some(MAX_MESSAGE_BYTES),
            is_reliable: !self.shape.has_faults(),
            link_rate: line,
            ..Caps::STREAM
        }
    }
}

fn parse_switch(text: &str) -> Option<bool> {
    match text {
        "yes" | "1" => Some(true),
        "no" | "0" => Some(false),
        _ => None,
    }
}

/// The path of one direction of a connection.
#[derive(Debug)]
enum MemPath {
    Own(Box<ShapedPath>),
    Shared(SharedPath),
}

impl MemPath {
    /// Does something with the path.
    fn with<T>(&mut self, act: impl FnOnce(&mut ShapedPath) -> T) -> T {
        match self {
            MemPath::Own(path) => act(path),
            MemPath::Shared(path) => act(&mut path.lock()),
        }
    }
}

/// One direction: its path and its pipe.
#[derive(Debug)]
struct MemDirection {
    framing: Framing,
    buffer_bytes: usize,
    serial_settings: Option<SerialSettings>,
    /// Number of characters of which one is changed, and the number sent so far.
    change_every: u64,
    characters_sent: u64,
    path: MemPath,
    pipe: ShapedPipe,
}

impl MemDirection {
    pub fn new(options: &Options, path: MemPath) -> MemDirection {
        MemDirection {
            framing: options.framing,
            buffer_bytes: options.buffer_bytes,
            serial_settings: options.serial_settings,
            change_every: options.change_every,
            characters_sent: 0,
            path,
            pipe: ShapedPipe::new(options.framing),
        }
    }

    /// Takes as much of a stream as fits, or a whole message; `None` if there is no room now.
    fn send(&mut self, bytes: &[u8], now: Time) -> Result<Option<usize>, Fault> {
        if self.pipe.is_finished() {
            return Err(Fault::Closed);
        }
        let is_message = self.framing == Framing::Message;
        if is_message && bytes.len() > MAX_MESSAGE_BYTES {
            return Err(Fault::TooLong { bytes: bytes.len(), limit: MAX_MESSAGE_BYTES });
        }
        let free = self.buffer_bytes.saturating_sub(self.pipe.held_bytes());
        let taken = if is_message { bytes.len() } else { bytes.len().min(free) };
        if taken > free || (taken == 0 && !bytes.is_empty()) {
            return Ok(None);
        }
        if let Some(settings) = self.serial_settings {
            bytes[..taken].iter().for_each(|byte| self.send_character(*byte, &settings, now));
        } else if taken > 0 || is_message {
            let pipe = &mut self.pipe;
            self.path.with(|path| pipe.send(path, &bytes[..taken], now));
        }
        Ok(Some(taken))
    }

    /// Sends one character over a line.
    fn send_character(&mut self, byte: u8, settings: &SerialSettings, now: Time) {
        self.characters_sent += 1;
        if settings.flow_control == FlowControl::XonXoff
            && [serial_line::XON, serial_line::XOFF].contains(&byte)
        {
            self.path.with(|path| path.discard(1, now));
            return;
        }
        let changes = self.change_every != 0 && self.characters_sent.is_multiple_of(self.change_every);
        let byte = byte & (u8::MAX >> (8 - settings.data_bits)) ^ u8::from(changes);
        let pipe = &mut self.pipe;
        self.path.with(|path| pipe.send(path, &[byte], now));
    }

    fn close(&mut self) {
        self.pipe.finish(Time(0));
    }
}

struct MemLink {
    network: MemNetwork,
    connection_id: usize,
    endpoint: Endpoint,
    caps: Caps,
}

fn open(endpoint: &Endpoint, context: &OpenContext) -> Result<Box<dyn Link>, Fault> {
    let mut options = Options::from_endpoint(endpoint)?;
    let network = context.memory_network.clone();
    let (id, caps) = {
        let mut state = network.lock_state();
        // The new server starts now, not when the others ran last.
        state.run_servers(network.clock.now(), None);
        let host = state.listeners.iter().find(|(name, _)| name == endpoint.address());
        let (_, factory) =
            host.ok_or_else(|| Fault::NotFound("this process has no server with this name".to_owned()))?;
        let server = Some(factory("mem"));
        let mut own = SplitMix64::new(options.seed.wrapping_add(state.opened_count));
        state.opened_count += 1;
        let given = state.shapes.iter().find(|(name, ..)| name == endpoint.address()).cloned();
        let ([up, down], seeds) = match given {
            Some((_, shapes, seed)) => (shapes, [seed, !seed]),
            None => {
                ([options.shape.clone(), options.shape.clone()], [(); 2].map(|()| own.uniform().to_bits()))
            }
        };
        options.shape = if up.has_faults() { up.clone() } else { down.clone() };
        let caps = options.caps();
        let paths = [(up, seeds[0]), (down, seeds[1])];
        let [forward, reverse] = match options.is_shared {
            true => state.shared_paths(endpoint.as_str(), paths),
            false => paths.map(|(shape, seed)| MemPath::Own(Box::new(ShapedPath::new(shape, seed)))),
        };
        let connection = MemConnection {
            forward: MemDirection::new(&options, forward),
            reverse: MemDirection::new(&options, reverse),
            server,
            caps: caps.clone(),
            handle_count: 1,
        };
        let free = state.connections.iter().position(Option::is_none);
        let id = free.unwrap_or(state.connections.len());
        if free.is_none() {
            state.connections.push(None);
        }
        state.connections[id] = Some(connection);
        (id, caps)
    };
    Ok(Box::new(MemLink { network, connection_id: id, endpoint: endpoint.clone(), caps }))
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

    fn status(&self) -> LinkStatus {
        let mut state = self.network.lock_state();
        state.run_servers(self.network.clock.now(), None);
        let connection = state.connections[self.connection_id].as_ref();
        LinkStatus {
            is_hung_up: connection.is_none_or(|connection| connection.reverse.pipe.is_finished()),
            unacknowledged_bytes: connection.map(|connection| connection.forward.pipe.held_bytes() as u64),
            ..LinkStatus::default()
        }
    }

    fn send(&mut self, bytes: &[u8], within: Duration) -> Result<usize, Fault> {
        self.network
            .retry_within(self.connection_id, within, |connection, now| connection.forward.send(bytes, now))
    }

    fn receive(&mut self, into: &mut [u8], within: Duration) -> Result<usize, Fault> {
        self.network.retry_within(self.connection_id, within, |connection, now| {
            match connection.reverse.pipe.receive(into, now) {
                Some(length) => Ok(Some(length)),
                None if connection.reverse.pipe.is_ended(now) => Err(Fault::Closed),
                None => Ok(None),
            }
        })
    }

    fn finish_sending(&mut self) -> Result<(), Fault> {
        if !self.caps.can_signal_close {
            return Ok(());
        }
        if let Some(connection) = &mut self.network.lock_state().connections[self.connection_id] {
            connection.forward.close();
        }
        Ok(())
    }

    fn abort(&mut self) {
        if let Some(connection) = &mut self.network.lock_state().connections[self.connection_id] {
            connection.forward.close();
            connection.reverse.close();
        }
    }

    fn second_handle(&self) -> Result<Box<dyn Link>, Fault> {
        if let Some(connection) = &mut self.network.lock_state().connections[self.connection_id] {
            connection.handle_count += 1;
        }
        let half = MemLink {
            network: self.network.clone(),
            connection_id: self.connection_id,
            endpoint: self.endpoint.clone(),
            caps: self.caps.clone(),
        };
        Ok(Box::new(half))
    }

    plain_link!(tune send_batch receive_batch reopen read_send_stamps port_control descriptor);
}

impl Drop for MemLink {
    fn drop(&mut self) {
        let now = self.network.clock.now();
        let mut state = self.network.lock_state();
        if let Some(connection) = &mut state.connections[self.connection_id] {
            connection.handle_count -= 1;
            if connection.handle_count > 0 {
                return;
            }
            connection.forward.close();
            connection.reverse.close();
        }
        // Data in flight still arrives before the server sees the close.
        state.run_servers(now, None);
    }
}

struct MemListener {
    endpoint: Endpoint,
    network: MemNetwork,
}

fn listen(endpoint: &Endpoint, context: &OpenContext) -> Result<Box<dyn Listener>, Fault> {
    Options::from_endpoint(endpoint)?;
    Ok(Box::new(MemListener { endpoint: endpoint.clone(), network: context.memory_network.clone() }))
}

impl Listener for MemListener {
    fn endpoint(&self) -> Endpoint {
        self.endpoint.clone()
    }

    fn accept(
        &mut self,
        within: Duration,
        _filter: &mut AcceptFilter,
    ) -> Result<(Box<dyn Link>, String), Fault> {
        self.network.clock.sleep_until(self.network.clock.now() + within);
        Err(Fault::TimedOut)
    }

    fn set_party_factory(&mut self, factory: PartyFactory) -> Result<(), PartyFactory> {
        let mut state = self.network.lock_state();
        let name = self.endpoint.address().to_owned();
        state.listeners.retain(|(other, _)| *other != name);
        state.listeners.push((name, factory));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
