//! The lab UART: pseudo-terminals that behave like a serial line. Written characters take their time on the line and
//! return through a loopback plug, or go to another terminal through a null modem.
//!
//! Any program can open the terminals and configure the line as on a serial port. One thread serves all ports
//! (`engine`). State machines that are given the time model the line (`wire`, `noise`, `receive_queue`).

mod due_queue;
mod early_wake;
mod engine;
mod noise;
mod plugged;
mod receive_queue;
mod wire;

use std::io;
use std::path::{Path, PathBuf};
use std::thread::{Builder, JoinHandle};

pub use engine::UartCounters;
pub use noise::{LineDefects, LineNoise};
pub use plugged::PluggedUart;
pub use wire::{
    CharacterTiming, DEFAULT_BATCH_INTERVAL, DeliveryMode, NextDelivery, Wire, default_batch_interval,
};

use super::{LabError, RunningStandIn, StandIn};
use engine::{LineEnd, UartEngine};
use linkgauge_engine::link::Fault;
use linkgauge_engine::link::serial_line::{self, FlowControl, Parity, SerialSettings, StopBits};
use linkgauge_model::clock::Clock;
use linkgauge_model::endpoint::{Endpoint, offset_last_number};
use linkgauge_system::{Pty, WakeEvent};
use noise::NoiseSource;

/// The other end of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortWiring {
    /// The port itself, through a loopback plug.
    Plug,
    /// A second terminal. Both terminals belong to the port.
    NullModem,
}

impl PortWiring {
    /// Number of terminals of a port.
    pub fn terminals_per_port(self) -> usize {
        match self {
            PortWiring::Plug => 1,
            PortWiring::NullModem => 2,
        }
    }
}

/// Frame settings that a pseudo-terminal does not report. `None`: as it reports.
#[derive(Debug, Clone, Copy, Default)]
pub struct FrameOverride {
    /// Data bits of a character, 5 to 8.
    pub data_bits: Option<u8>,
    /// The parity bit.
    pub parity: Option<Parity>,
}

impl FrameOverride {
    fn apply_to(&self, settings: SerialSettings) -> SerialSettings {
        SerialSettings {
            data_bits: self.data_bits.unwrap_or(settings.data_bits),
            parity: self.parity.unwrap_or(settings.parity),
            ..settings
        }
    }
}

/// Options of the lab UARTs.
#[derive(Debug, Clone)]
pub struct UartOptions {
    /// Wiring of each port.
    pub wiring: PortWiring,
    /// Number of ports, at least one.
    pub ports: usize,
    /// A symbolic link to the first terminal. The others have consecutive numbers at the end.
    pub link: Option<PathBuf>,
    /// Time for which characters are on the line.
    pub timing: CharacterTiming,
    /// Times at which received characters reach the program.
    pub delivery: DeliveryMode,
    /// Faults on the line.
    pub noise: LineNoise,
    /// Frame settings that the terminals do not report.
    pub frame_override: FrameOverride,
}

/// One port with a plug, without noise.
impl Default for UartOptions {
    fn default() -> UartOptions {
        UartOptions {
            wiring: PortWiring::Plug,
            ports: 1,
            link: None,
            timing: CharacterTiming::LineRate,
            delivery: DeliveryMode::Batch(DEFAULT_BATCH_INTERVAL),
            noise: LineNoise::default(),
            frame_override: FrameOverride::default(),
        }
    }
}

/// Running ports. Dropping this removes them and their symbolic links.
pub struct LabUarts {
    /// One per terminal. The two terminals of a null modem are neighbours.
    terminals: Vec<PathBuf>,
    links: Vec<Symlink>,
    stop: WakeEvent,
    thread: Option<JoinHandle<io::Result<Vec<UartCounters>>>>,
}

impl LabUarts {
    /// Opens the terminals and starts their thread.
    ///
    /// # Errors
    ///
    /// Fails if a terminal, the symbolic link or the thread cannot be created.
    pub fn start(options: &UartOptions) -> Result<LabUarts, LabError> {
        let clock = Clock::System;
        let count = options.ports.max(1) * options.wiring.terminals_per_port();
        let mut ends = Vec::with_capacity(count);
        for index in 0..count {
            let pty = Pty::open().map_err(|error| {
                let port = index / options.wiring.terminals_per_port() + 1;
                LabError::Terminal { port, fault: Fault::system("make a pseudo-terminal")(error) }
            })?;
            let wire = Wire::new(options.timing, options.delivery, clock.now());
            let noise = LineNoise { seed: options.noise.seed.wrapping_add(index as u64), ..options.noise };
            let other = if options.wiring == PortWiring::Plug { index } else { index ^ 1 };
            ends.push(LineEnd::new(pty, wire, NoiseSource::new(noise), other));
        }
        let terminals: Vec<PathBuf> = ends.iter().map(|end| end.pty.path.clone()).collect();
        let links = match &options.link {
            None => Vec::new(),
            Some(first) => Symlink::create_all(first, &terminals)?,
        };
        let stop = WakeEvent::new().map_err(LabError::system("make an event"))?;
        let engine = UartEngine::new(ends, options.frame_override, options.timing, &stop, clock);
        let engine = engine.map_err(LabError::system("watch the ports"))?;
        let thread = Builder::new()
            .name("lab uart".to_owned())
            .spawn(move || engine.run())
            .map_err(LabError::system("start a thread"))?;
        Ok(LabUarts { terminals, links, stop, thread: Some(thread) })
    }

    /// The terminals for programs. The two terminals of a null modem are neighbours.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.terminals.clone()
    }

    /// Symbolic links to the terminals in the same order, if requested.
    pub fn links(&self) -> impl Iterator<Item = &Path> {
        self.links.iter().map(|link| link.path.as_path())
    }

    /// Stops all ports and returns the counters of each terminal.
    ///
    /// # Errors
    ///
    /// Fails if the thread of the ports has failed.
    pub fn stop(mut self) -> Result<Vec<UartCounters>, LabError> {
        self.stop_thread()
    }

    fn stop_thread(&mut self) -> Result<Vec<UartCounters>, LabError> {
        let Some(thread) = self.thread.take() else { return Ok(Vec::new()) };
        self.stop.add(1);
        let ended =
            thread.join().map_err(|_| LabError::Stopped("the thread of the ports panicked".to_owned()))?;
        ended.map_err(|errno| LabError::Stopped(format!("the ports stopped by themselves: {errno}")))
    }
}

impl Drop for LabUarts {
    fn drop(&mut self) {
        // `drop` cannot report an error.
        let _ = self.stop_thread();
    }
}

/// A symbolic link to a terminal that is removed when dropped.
pub(super) struct Symlink {
    pub(super) path: PathBuf,
    target: PathBuf,
}

impl Symlink {
    fn create_all(first: &Path, terminals: &[PathBuf]) -> Result<Vec<Symlink>, LabError> {
        let numbered = |(index, terminal): (usize, &PathBuf)| {
            let path = numbered_link(first, index as u32)?;
            Symlink::new(path, terminal.clone())
        };
        terminals.iter().enumerate().map(numbered).collect()
    }

    pub fn new(path: PathBuf, leads_to: PathBuf) -> Result<Symlink, LabError> {
        // A run that was killed leaves a dangling link. Anything else belongs to the user.
        let stale = std::fs::read_link(&path).is_ok_and(|old| old.starts_with("/dev/pts") && !old.exists());
        if stale {
            let _ = std::fs::remove_file(&path);
        }
        match linkgauge_system::symlink(&leads_to, &path) {
            Ok(()) => Ok(Symlink { path, target: leads_to }),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Err(LabError::Invalid(
                format!("{}: something is there already: remove it, or choose another path", path.display()),
            )),
            Err(error) => {
                Err(LabError::system(format!("{}: the link cannot be made", path.display()))(error))
            }
        }
    }
}

impl Drop for Symlink {
    fn drop(&mut self) {
        // Another program may have replaced it.
        if std::fs::read_link(&self.path).is_ok_and(|now| now == self.target) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Path with its last number increased.
fn numbered_link(path: &Path, offset: u32) -> Result<PathBuf, LabError> {
    if offset == 0 {
        return Ok(path.to_owned());
    }
    let none = || LabError::Invalid(format!("{}: no number to count links from, like ttyV0", path.display()));
    let (path, _) = path.to_str().and_then(|path| offset_last_number(path, offset)).ok_or_else(none)?;
    Ok(path.into())
}

/// Two ports with a plug. Both use flow control: without it a reader that does not get the CPU loses characters.
pub(crate) const STAND_IN: StandIn = StandIn {
    summary: "serial port with a loopback plug",
    start: || {
        Ok(Box::new(UartStandIn(LabUarts::start(&UartOptions { ports: 2, ..UartOptions::default() })?)))
    },
};

struct UartStandIn(LabUarts);

impl UartStandIn {
    fn endpoints_at(&self, lines: [SerialSettings; 2]) -> Vec<Endpoint> {
        let ports = self.0.terminals.iter().zip(lines);
        ports.filter_map(|(terminal, line)| serial_line::port_endpoint(terminal, &line).ok()).collect()
    }
}

impl RunningStandIn for UartStandIn {
    fn endpoints(&self) -> Vec<Endpoint> {
        let fastest = SerialSettings {
            baud: 4_000_000,
            flow_control: FlowControl::RtsCts,
            ..SerialSettings::default()
        };
        self.endpoints_at([
            fastest,
            SerialSettings { parity: Parity::Odd, stop_bits: StopBits::Two, ..fastest },
        ])
    }

    fn typical_endpoints(&self) -> Vec<Endpoint> {
        let slow = SerialSettings { flow_control: FlowControl::RtsCts, ..SerialSettings::default() };
        self.endpoints_at([SerialSettings { baud: 115_200, ..slow }, slow])
    }
}
