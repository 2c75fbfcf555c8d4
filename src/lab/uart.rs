//! The lab UART: pseudo-terminals that behave like a serial line. What is written takes its time on the line and comes
//! back through a loop-back plug, or goes to another terminal through a null modem.
//!
//! Programs that know nothing of us open the terminals and set the line as they would a serial port's. One thread
//! serves all ports (`engine`); what a line does is decided by machines that are told the time (`wire`, `noise`,
//! `inbox`).

mod engine;
mod inbox;
mod noise;
mod pause;
mod wire;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread::{Builder, JoinHandle};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

pub use engine::Tally;
pub use noise::{Defects, Noise};
pub use wire::{BATCH, Due, HandOver, Wire};

use super::{LabError, StandIn, Standing};
use crate::clock::Clock;
use crate::endpoint::{Endpoint, counted_up};
use crate::link::line::{Flow, Parity, Settings, StopBits};
use crate::link::tty::{self, Pty};
use engine::{End, Engine};
use noise::Disturber;

/// What a port leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wiring {
    /// Back to itself: a loop-back plug.
    Plug,
    /// To a second terminal: both ends belong to the port.
    NullModem,
}

impl Wiring {
    /// Terminals of a port.
    pub fn ends(self) -> usize {
        match self {
            Wiring::Plug => 1,
            Wiring::NullModem => 2,
        }
    }
}

/// What a pseudo-terminal cannot tell of a program's settings, so that it has to be said; `None`: as it tells.
#[derive(Debug, Clone, Copy, Default)]
pub struct Frame {
    pub data_bits: Option<u8>,
    pub parity: Option<Parity>,
}

impl Frame {
    fn of(&self, settings: Settings) -> Settings {
        Settings {
            data_bits: self.data_bits.unwrap_or(settings.data_bits),
            parity: self.parity.unwrap_or(settings.parity),
            ..settings
        }
    }
}

/// What to start.
#[derive(Debug, Clone)]
pub struct Options {
    pub wiring: Wiring,
    /// At least one.
    pub ports: usize,
    /// A symbolic link to the first terminal; its last number is counted up for the others.
    pub link: Option<PathBuf>,
    /// Whether characters take their time; if not, all arrive at once, and no sender is overrun.
    pub paced: bool,
    pub hand_over: HandOver,
    pub noise: Noise,
    pub frame: Frame,
}

/// One paced port with a plug, without noise.
impl Default for Options {
    fn default() -> Options {
        Options {
            wiring: Wiring::Plug,
            ports: 1,
            link: None,
            paced: true,
            hand_over: HandOver::Batch(BATCH),
            noise: Noise::default(),
            frame: Frame::default(),
        }
    }
}

/// Running ports; they and the links to them are gone when this is dropped.
pub struct Uarts {
    /// For each terminal; both ends of a null modem next to each other.
    terminals: Vec<PathBuf>,
    links: Vec<Symlink>,
    stop: OwnedFd,
    thread: Option<JoinHandle<Result<Vec<Tally>, Errno>>>,
}

impl Uarts {
    pub fn start(options: &Options) -> Result<Uarts, LabError> {
        let refused = |what: &'static str| move |errno: Errno| LabError(format!("{what}: {errno}"));
        let clock = Clock::System;
        let count = options.ports.max(1) * options.wiring.ends();
        let mut ends = Vec::with_capacity(count);
        for index in 0..count {
            let pty = Pty::open().map_err(|fault| {
                LabError(format!("port {}: {fault}: try fewer ports", index / options.wiring.ends() + 1))
            })?;
            let wire = Wire::new(options.paced, options.hand_over, clock.now());
            let noise = Noise { seed: options.noise.seed.wrapping_add(index as u64), ..options.noise };
            let other = if options.wiring == Wiring::Plug { index } else { index ^ 1 };
            ends.push(End::new(pty, wire, Disturber::new(noise), other));
        }
        let terminals: Vec<PathBuf> = ends.iter().map(|end| end.pty.path.clone()).collect();
        let links = match &options.link {
            None => Vec::new(),
            Some(first) => Symlink::all(first, &terminals)?,
        };
        let stop = eventfd(0, EventfdFlags::CLOEXEC).map_err(refused("make an event"))?;
        let engine = Engine::new(ends, options.frame, !options.paced, &stop, clock);
        let engine = engine.map_err(refused("watch the ports"))?;
        let thread = Builder::new()
            .name("lab uart".to_owned())
            .spawn(move || engine.run())
            .map_err(|error| LabError(format!("start a thread: {error}")))?;
        Ok(Uarts { terminals, links, stop, thread: Some(thread) })
    }

    /// The terminals for programs, both ends of a null modem next to each other.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.terminals.clone()
    }

    /// The links to them, in the same order, where any were asked for.
    pub fn links(&self) -> impl Iterator<Item = &Path> {
        self.links.iter().map(|link| link.path.as_path())
    }

    /// Stops all ports; what each terminal has seen.
    pub fn stop(mut self) -> Result<Vec<Tally>, LabError> {
        self.end()
    }

    fn end(&mut self) -> Result<Vec<Tally>, LabError> {
        let Some(thread) = self.thread.take() else { return Ok(Vec::new()) };
        // An event is eight bytes; the write fails only when one is there already.
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        let ended = thread.join().map_err(|_| LabError("the thread of the ports panicked".to_owned()))?;
        ended.map_err(|errno| LabError(format!("the ports stopped by themselves: {errno}")))
    }
}

impl Drop for Uarts {
    fn drop(&mut self) {
        // Nobody is left to be told.
        let _ = self.end();
    }
}

/// A symbolic link to a terminal that goes when it is dropped.
pub(super) struct Symlink {
    pub(super) path: PathBuf,
    leads_to: PathBuf,
}

impl Symlink {
    fn all(first: &Path, terminals: &[PathBuf]) -> Result<Vec<Symlink>, LabError> {
        let numbered = |(index, terminal): (usize, &PathBuf)| {
            let path = link_at(first, index as u32)?;
            Symlink::new(path, terminal.clone())
        };
        terminals.iter().enumerate().map(numbered).collect()
    }

    pub(super) fn new(path: PathBuf, leads_to: PathBuf) -> Result<Symlink, LabError> {
        // What a run that was killed has left leads nowhere; anything else is somebody's.
        let stale = std::fs::read_link(&path).is_ok_and(|old| old.starts_with("/dev/pts") && !old.exists());
        if stale {
            let _ = std::fs::remove_file(&path);
        }
        match std::os::unix::fs::symlink(&leads_to, &path) {
            Ok(()) => Ok(Symlink { path, leads_to }),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Err(LabError(format!(
                "{}: something is there already: remove it, or choose another path",
                path.display()
            ))),
            Err(error) => Err(LabError(format!("{}: the link cannot be made: {error}", path.display()))),
        }
    }
}

impl Drop for Symlink {
    fn drop(&mut self) {
        // Somebody may have put another in its place.
        if std::fs::read_link(&self.path).is_ok_and(|now| now == self.leads_to) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// The same path with its last number counted up.
fn link_at(path: &Path, offset: u32) -> Result<PathBuf, LabError> {
    if offset == 0 {
        return Ok(path.to_owned());
    }
    let none = || LabError(format!("{}: no number to count links from, like ttyV0", path.display()));
    let (path, _) = path.to_str().and_then(|path| counted_up(path, offset)).ok_or_else(none)?;
    Ok(path.into())
}

/// Two ports with a plug. Both have flow control: without it a reader that is kept from the CPU loses characters.
pub const STAND_IN: StandIn = StandIn {
    summary: "serial port with a loop-back plug",
    start: || Ok(Box::new(Plugs(Uarts::start(&Options { ports: 2, ..Options::default() })?))),
};

struct Plugs(Uarts);

impl Plugs {
    fn at(&self, lines: [Settings; 2]) -> Vec<Endpoint> {
        let ports = self.0.terminals.iter().zip(lines);
        ports.filter_map(|(terminal, line)| tty::endpoint(terminal, &line).ok()).collect()
    }
}

impl Standing for Plugs {
    fn endpoints(&self) -> Vec<Endpoint> {
        let fastest = Settings { baud: 4_000_000, flow: Flow::RtsCts, ..Settings::default() };
        self.at([fastest, Settings { parity: Parity::Odd, stop: StopBits::Two, ..fastest }])
    }

    fn typical(&self) -> Vec<Endpoint> {
        let slow = Settings { flow: Flow::RtsCts, ..Settings::default() };
        self.at([Settings { baud: 115_200, ..slow }, slow])
    }
}
