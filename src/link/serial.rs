//! `serial:///dev/ttyS0`: a serial port of this host, or whatever stands in for one as a terminal.
//!
//! The port is ours alone while it is open, and is given back as it was found.

use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::termios::{QueueSelector, tcflush};

use super::line::{self, Errors, Modem, Port, Purge, Settings, Signal};
use super::party::Tuning;
use super::socket::{Wants, wait_for};
use super::{Caps, Facts, Fault, Link, Opening, Transport, sys, tty};
use crate::clock::Clock;
use crate::endpoint::Endpoint;
use crate::plan::Wait;

mod device;

use device::{Device, Options};

pub const TRANSPORT: Transport = Transport {
    scheme: "serial",
    summary: "serial port of this host",
    example: "serial:///dev/ttyS0?baud=115200&flow=rtscts",
    options: &[
        line::BAUD,
        line::DATA,
        line::PARITY,
        line::STOP,
        line::FLOW,
        device::LOW_LATENCY,
        device::RS485,
        device::DELAY_BEFORE,
        device::DELAY_AFTER,
    ],
    check: |endpoint| Options::of(endpoint).map(|options| options.line.caps()),
    available: || Ok(()),
    limit: || None,
    open: |endpoint, opening| Ok(Box::new(SerialLink::open(endpoint, opening)?)),
    listen: None,
    loopback: |_| Vec::new(),
};

/// A serial port as a link.
pub struct SerialLink {
    device: Arc<Device>,
    asked: Settings,
    caps: Caps,
    clock: Clock,
    wait: Wait,
    polled: Duration,
}

impl SerialLink {
    pub fn open(endpoint: &Endpoint, opening: &Opening) -> Result<SerialLink, Fault> {
        let options = Options::of(endpoint)?;
        let device = Device::open(&options)?;
        let caps = tty::settings(&device)?.caps();
        let (clock, wait) = (opening.clock.clone(), opening.wait);
        Ok(SerialLink {
            device: Arc::new(device),
            asked: options.line,
            caps,
            clock,
            wait,
            polled: Duration::ZERO,
        })
    }

    /// Calls `operation`, which does not block, until it can be done or the time is over.
    #[inline]
    fn attempt<T>(
        &mut self,
        which: Wants,
        within: Duration,
        mut operation: impl FnMut(&Device) -> Result<T, Errno>,
    ) -> Result<T, Fault> {
        let (mut until, mut last) = (None, None);
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
                Wait::Spin => {
                    self.polled += last.map_or(Duration::ZERO, |last| now.since(last));
                    last = Some(now);
                    std::hint::spin_loop();
                }
            }
        }
    }
}

impl Link for SerialLink {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn facts(&self) -> Facts {
        let mut facts = self.device.facts();
        if let Ok(granted) = tty::settings(&self.device) {
            line::note(&mut facts, &self.asked, &granted);
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
        // A line is slower than who reads it: whoever reads first mostly finds nothing, which costs a call more.
        let within = match self.wait {
            Wait::Block if !within.is_zero() => {
                let began = self.clock.now();
                wait_for(&self.device, Wants::ToReceive, within);
                within.saturating_sub(self.clock.now() - began)
            }
            _ => within,
        };
        let length = self.attempt(Wants::ToReceive, within, |device| rustix::io::read(device, &mut *into))?;
        if length == 0 && !into.is_empty() {
            return Err(Fault::Closed);
        }
        Ok(length)
    }

    fn other_half(&self) -> Result<Box<dyn Link>, Fault> {
        Ok(Box::new(SerialLink {
            device: self.device.clone(),
            asked: self.asked,
            caps: self.caps.clone(),
            clock: self.clock.clone(),
            wait: self.wait,
            polled: Duration::ZERO,
        }))
    }

    fn finish(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    fn polled(&self) -> Duration {
        self.polled
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
        let granted = tty::set(&self.device, wanted)?;
        (self.asked, self.caps) = (*wanted, granted.caps());
        Ok(granted)
    }

    fn signal(&mut self, signal: Signal, on: bool) -> Result<(), Fault> {
        self.device.signal(signal, on)
    }

    fn modem(&mut self) -> Option<Modem> {
        self.device.modem()
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
        self.device.errors()
    }
}
