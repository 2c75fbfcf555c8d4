//! One connection of the redirector: a thread for each direction, each blocking where its bytes come from.

use std::os::fd::AsFd;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::{Common, Event, TICK};
use crate::link::line::{self, Parity, Port, Purge, Settings, StopBits};
use crate::link::tty::Packet;
use crate::link::{Fault, Link};

/// Most bytes of one operation; a pseudo-terminal gives less.
const PIECE: usize = 16 * 1024;

pub struct Session<'a> {
    common: &'a Common,
    over: AtomicBool,
    /// Why; the first reason counts.
    why: Mutex<Option<Fault>>,
    /// Goes up when a program throws away what it has not read yet.
    purges: AtomicU64,
}

impl<'a> Session<'a> {
    pub fn new(common: &'a Common) -> Session<'a> {
        Session { common, over: AtomicBool::new(false), why: Mutex::default(), purges: AtomicU64::new(0) }
    }

    /// Carries until the link is lost or the redirector stops; returns why it was lost.
    pub fn run(self, mut link: Box<dyn Link>) -> Option<Fault> {
        match link.other_half() {
            Err(fault) => return Some(fault),
            Ok(mut half) => std::thread::scope(|scope| {
                scope.spawn(|| self.end(self.inward(&mut *half)));
                self.end(self.outward(&mut *link));
            }),
        }
        self.why.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, ended: Result<(), Fault>) {
        if let Err(fault) = ended {
            self.why.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(fault);
        }
        self.over.store(true, Relaxed);
    }

    fn is_over(&self) -> bool {
        self.over.load(Relaxed) || self.common.is_over()
    }

    /// What programs write and set goes to the remote port.
    fn outward(&self, link: &mut dyn Link) -> Result<(), Fault> {
        let mut bytes = vec![0; PIECE];
        let mut settled = Some(self.common.line);
        while !self.is_over() {
            self.wait_for_terminal(PollFlags::IN);
            let length = match rustix::io::read(&self.common.pty.master, &mut bytes) {
                Ok(length) => length,
                Err(Errno::AGAIN | Errno::INTR) => 0,
                Err(errno) => return Err(Fault::system("read the local port")(errno.into())),
            };
            // Before the data: they were written after the settings were made.
            self.follow(link, &mut settled)?;
            match Packet::read(&bytes[..length]) {
                Packet::Nothing => {}
                Packet::Data(data) => self.send(link, data)?,
                Packet::Notice { flush_read, flush_write } => self.purge(link, flush_read, flush_write)?,
            }
        }
        Ok(())
    }

    /// Waits for the terminal, but not for long.
    fn wait_for_terminal(&self, flags: PollFlags) {
        let tick = Timespec { tv_sec: 0, tv_nsec: TICK.subsec_nanos().into() };
        // A failed poll shows itself in the operation that follows.
        let _ = poll(&mut [PollFd::new(&self.common.pty.master.as_fd(), flags)], Some(&tick));
    }

    /// Has the remote port set as the local one is, once for each change.
    fn follow(&self, link: &mut dyn Link, settled: &mut Option<Settings>) -> Result<(), Fault> {
        let wanted = joined(self.common.pty.settings()?, self.common.line);
        // A rate of zero hangs up a modem; no line has it.
        if *settled == Some(wanted) || wanted.baud == 0 {
            return Ok(());
        }
        *settled = Some(wanted);
        let Some(port) = link.port() else { return Ok(()) };
        let event = match set(port, &wanted) {
            Ok(settings) => Event::Set { settings },
            Err(Fault::Closed) => return Err(Fault::Closed),
            Err(fault) => Event::NotSet { wanted, why: fault.to_string() },
        };
        self.common.tell(event);
        Ok(())
    }

    fn send(&self, link: &mut dyn Link, mut data: &[u8]) -> Result<(), Fault> {
        while !data.is_empty() && !self.is_over() {
            match link.send(data, TICK) {
                Ok(taken) => {
                    self.common.counters.to_remote.fetch_add(taken as u64, Relaxed);
                    data = &data[taken..];
                }
                Err(Fault::TimedOut) => {}
                Err(fault) => return Err(fault),
            }
        }
        Ok(())
    }

    /// A program threw something away: so does the remote port.
    fn purge(&self, link: &mut dyn Link, flush_read: bool, flush_write: bool) -> Result<(), Fault> {
        let purge = match (flush_read, flush_write) {
            (false, false) => return Ok(()),
            (true, false) => Purge::Received,
            (false, true) => Purge::ToSend,
            (true, true) => Purge::Both,
        };
        if purge != Purge::ToSend {
            self.purges.fetch_add(1, Relaxed);
        }
        link.port().map_or(Ok(()), |port| port.purge(purge))
    }

    /// What the remote port brings goes to programs.
    fn inward(&self, link: &mut dyn Link) -> Result<(), Fault> {
        let mut bytes = vec![0; PIECE];
        while !self.is_over() {
            match link.receive(&mut bytes, 2 * TICK) {
                Ok(length) => self.bring(&bytes[..length])?,
                Err(Fault::TimedOut) => {}
                Err(fault) => return Err(fault),
            }
        }
        Ok(())
    }

    fn bring(&self, mut data: &[u8]) -> Result<(), Fault> {
        let purges = self.purges.load(Relaxed);
        let counters = &self.common.counters;
        while !data.is_empty() && !self.is_over() {
            if self.purges.load(Relaxed) != purges {
                counters.purged.fetch_add(data.len() as u64, Relaxed);
                break;
            }
            match rustix::io::write(&self.common.pty.master, data) {
                Ok(written) => {
                    counters.from_remote.fetch_add(written as u64, Relaxed);
                    data = &data[written..];
                }
                Err(Errno::AGAIN) => self.wait_for_terminal(PollFlags::OUT),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(Fault::system("write the local port")(errno.into())),
            }
        }
        Ok(())
    }
}

/// What a program has set, and from the endpoint what no pseudo-terminal carries.
fn joined(program: Settings, endpoint: Settings) -> Settings {
    let parity = match (program.parity, endpoint.parity) {
        (Parity::None, Parity::Even) => Parity::Even,
        (parity, _) => parity,
    };
    let stop = match (program.stop, endpoint.data_bits) {
        (StopBits::Two, 5) => StopBits::OneAndHalf,
        (stop, _) => stop,
    };
    Settings { data_bits: endpoint.data_bits, parity, stop, ..program }
}

fn set(port: &mut dyn Port, wanted: &Settings) -> Result<Settings, Fault> {
    let granted = port.set(wanted)?;
    line::check_granted(wanted, &granted)?;
    if granted == (Settings { baud: granted.baud, ..*wanted }) {
        return Ok(granted);
    }
    Err(Fault::Other(format!("the remote port is at {granted}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_cannot_carry_comes_from_the_endpoint() {
        let program =
            Settings { baud: 4800, parity: Parity::None, stop: StopBits::Two, ..Settings::default() };
        let endpoint = Settings { data_bits: 7, parity: Parity::Even, ..Settings::default() };
        assert_eq!(joined(program, endpoint).to_string(), "4800 7E2");
        assert_eq!(joined(Settings { parity: Parity::Odd, ..program }, endpoint).to_string(), "4800 7O2");
        assert_eq!(joined(program, Settings { parity: Parity::Odd, ..endpoint }).to_string(), "4800 7N2");
        assert_eq!(joined(program, Settings { data_bits: 5, ..endpoint }).to_string(), "4800 5E1.5");
    }
}
