//! `serial:///dev/ttyS0`: a serial port of this host, or whatever stands in for one as a terminal.
//!
//! The port is ours alone while it is open, and is given back as it was found.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use rustix::termios::{
    OptionalActions, QueueSelector, Termios, ioctl_tiocexcl, ioctl_tiocnxcl, isatty, tcflush, tcgetattr,
    tcsetattr,
};

use super::line::{self, Errors, Modem, Port, Purge, Settings, Signal};
use super::party::Tuning;
use super::socket::{Wants, wait_for};
use super::{Caps, Facts, Fault, Link, Opening, Transport, sys, tty};
use crate::clock::Clock;
use crate::endpoint::{Endpoint, EndpointError};
use crate::plan::Wait;

pub const TRANSPORT: Transport = Transport {
    scheme: "serial",
    summary: "serial port of this host",
    example: "serial:///dev/ttyS0?baud=115200&flow=rtscts",
    options: &[line::BAUD, line::DATA, line::PARITY, line::STOP, line::FLOW],
    check: |endpoint| {
        path(endpoint)?;
        Settings::of(endpoint).map(|settings| settings.caps())
    },
    available: || Ok(()),
    open: |endpoint, opening| Ok(Box::new(SerialLink::open(endpoint, opening)?)),
    listen: None,
    loopback: |_| Vec::new(),
};

/// The device's path: everything after `serial://`, which begins with a slash.
fn path(endpoint: &Endpoint) -> Result<PathBuf, EndpointError> {
    let place = endpoint.place();
    if place.starts_with('/') {
        return Ok(place.into());
    }
    Err(EndpointError::NoHost { url: endpoint.to_string() })
}

/// An open terminal, ours alone; gives it back as it was found.
struct Device {
    terminal: OwnedFd,
    before: Termios,
}

impl AsFd for Device {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.terminal.as_fd()
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // What the line has not taken yet would hold up closing for half a minute. A device that was pulled out
        // refuses all of this, and needs none of it.
        let _ = tcflush(&self.terminal, QueueSelector::IOFlush);
        let _ = tcsetattr(&self.terminal, OptionalActions::Now, &self.before);
        let _ = ioctl_tiocnxcl(&self.terminal);
    }
}

/// A serial port as a link.
pub struct SerialLink {
    device: Arc<Device>,
    caps: Caps,
    clock: Clock,
    wait: Wait,
}

impl SerialLink {
    pub fn open(endpoint: &Endpoint, opening: &Opening) -> Result<SerialLink, Fault> {
        let path = path(endpoint)?;
        let wanted = Settings::of(endpoint)?;
        // Without O_NONBLOCK opening waits for the carrier of a modem.
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let terminal =
            rustix::fs::open(&path, flags, Mode::empty()).map_err(|errno| refused(&path, errno))?;
        if !isatty(&terminal) {
            return Err(Fault::Other(
                "this is no serial port: 'linkgauge doctor' lists those of this host".to_owned(),
            ));
        }
        flock(&terminal, FlockOperation::NonBlockingLockExclusive).map_err(|_| busy())?;
        let _ = ioctl_tiocexcl(&terminal);
        let before =
            tcgetattr(&terminal).map_err(|errno| Fault::system("read the settings")(errno.into()))?;
        let device = Device { terminal, before };
        let granted = tty::set(&device, &wanted)?;
        let _ = tcflush(&device, QueueSelector::IOFlush);
        Ok(SerialLink {
            device: Arc::new(device),
            caps: granted.caps(),
            clock: opening.clock.clone(),
            wait: opening.wait,
        })
    }

    /// Calls `operation`, which does not block, until it can be done or the time is over.
    #[inline]
    fn attempt<T>(
        &self,
        which: Wants,
        within: Duration,
        mut operation: impl FnMut(&Device) -> Result<T, Errno>,
    ) -> Result<T, Fault> {
        let mut until = None;
        loop {
            match operation(&self.device) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                // The far side of a pseudo-terminal is gone, or the adapter was pulled out.
                Err(Errno::IO | Errno::NXIO | Errno::NODEV) => return Err(Fault::Closed),
                done => return done.map_err(|errno| super::socket::fault(which, errno)),
            }
            let now = self.clock.now();
            let until = *until.get_or_insert(now + within);
            if now >= until {
                return Err(Fault::TimedOut);
            }
            match self.wait {
                Wait::Block => wait_for(&self.device, which, until.since(now)),
                Wait::Spin => std::hint::spin_loop(),
            }
        }
    }
}

fn busy() -> Fault {
    Fault::Other("another program has this port open: close that one, or choose another port".to_owned())
}

fn refused(path: &std::path::Path, errno: Errno) -> Fault {
    match errno {
        Errno::BUSY => busy(),
        Errno::NOENT | Errno::NXIO | Errno::NODEV => {
            Fault::Other("no such serial port: 'linkgauge doctor' lists those of this host".to_owned())
        }
        Errno::ACCESS => {
            let group = std::fs::metadata(path).ok().map_or(0, |metadata| metadata.gid());
            Fault::Other(format!("no permission: the port belongs to group {group}"))
        }
        errno => Fault::system("open")(errno.into()),
    }
}

impl Link for SerialLink {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn facts(&self) -> Facts {
        let mut facts = Facts::new();
        if let Ok(granted) = tty::settings(&self.device) {
            facts.insert("line".to_owned(), granted.to_string().into());
        }
        facts
    }

    fn tune(&mut self, tuning: &Tuning) {
        self.wait = tuning.wait;
    }

    #[inline]
    fn send(&mut self, bytes: &[u8], within: Duration) -> Result<usize, Fault> {
        self.attempt(Wants::ToSend, within, |device| rustix::io::write(device, bytes))
    }

    #[inline]
    fn receive(&mut self, into: &mut [u8], within: Duration) -> Result<usize, Fault> {
        let length = self.attempt(Wants::ToReceive, within, |device| rustix::io::read(device, &mut *into))?;
        if length == 0 && !into.is_empty() {
            return Err(Fault::Closed);
        }
        Ok(length)
    }

    fn other_half(&self) -> Result<Box<dyn Link>, Fault> {
        Ok(Box::new(SerialLink {
            device: self.device.clone(),
            caps: self.caps.clone(),
            clock: self.clock.clone(),
            wait: self.wait,
        }))
    }

    fn finish(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    fn unacknowledged(&self) -> Option<u64> {
        sys::unacknowledged(&self.device)
    }

    fn port(&mut self) -> Option<&mut dyn Port> {
        Some(self)
    }
}

impl Port for SerialLink {
    fn settings(&mut self) -> Result<Settings, Fault> {
        tty::settings(&self.device)
    }

    fn set(&mut self, wanted: &Settings) -> Result<Settings, Fault> {
        tty::set(&self.device, wanted)
    }

    fn signal(&mut self, _signal: Signal, _on: bool) -> Result<(), Fault> {
        Ok(())
    }

    fn modem(&mut self) -> Option<Modem> {
        None
    }

    fn purge(&mut self, purge: Purge) -> Result<(), Fault> {
        let queue = match purge {
            Purge::Received => QueueSelector::IFlush,
            Purge::ToSend => QueueSelector::OFlush,
            Purge::Both => QueueSelector::IOFlush,
        };
        tcflush(&self.device, queue).map_err(|errno| Fault::system("purge")(errno.into()))
    }

    fn errors(&mut self) -> Option<Errors> {
        None
    }
}
