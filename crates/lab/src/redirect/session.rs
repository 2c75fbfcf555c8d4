//! One connection of the redirector. Each direction has a thread that blocks on its source.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use super::{POLL_INTERVAL, RedirectorEvent, RedirectorState};
use linkgauge_engine::link::serial_line::{self, Parity, PortControl, PurgeTarget, SerialSettings, StopBits};
use linkgauge_engine::link::{Fault, Link};
use linkgauge_system::{AsHandle, Errno, PollFlags, PtyPacket, poll, watch};

/// Maximum number of bytes in one operation. A pseudo-terminal returns fewer.
const MAX_CHUNK_BYTES: usize = 16 * 1024;

pub(crate) struct RedirectSession<'a> {
    state: &'a RedirectorState,
    ended: AtomicBool,
    /// Reason for the end of the session. The first reason counts.
    end_reason: Mutex<Option<Fault>>,
    /// Incremented when a program discards unread data.
    purge_count: AtomicU64,
}

impl<'a> RedirectSession<'a> {
    pub fn new(common: &'a RedirectorState) -> RedirectSession<'a> {
        RedirectSession {
            state: common,
            ended: AtomicBool::new(false),
            end_reason: Mutex::default(),
            purge_count: AtomicU64::new(0),
        }
    }

    /// Runs until the link is lost or the redirector stops. Returns why the link was lost.
    pub(crate) fn run(self, mut link: Box<dyn Link>) -> Option<Fault> {
        match link.second_handle() {
            Err(fault) => return Some(fault),
            Ok(mut half) => std::thread::scope(|scope| {
                scope.spawn(|| self.record_end(self.forward_to_program(&mut *half)));
                self.record_end(self.forward_to_remote(&mut *link));
            }),
        }
        self.end_reason.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn record_end(&self, ended: Result<(), Fault>) {
        if let Err(fault) = ended {
            self.end_reason.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(fault);
        }
        self.ended.store(true, Relaxed);
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Relaxed) || self.state.is_stopping()
    }

    /// Forwards a program's data and settings to the remote port.
    fn forward_to_remote(&self, link: &mut dyn Link) -> Result<(), Fault> {
        let mut bytes = vec![0; MAX_CHUNK_BYTES];
        let mut applied = Some(self.state.line_settings);
        while !self.has_ended() {
            self.wait_for_terminal(PollFlags::IN);
            let length = match self.state.pty.read(&mut bytes) {
                Ok(length) => length,
                Err(Errno::AGAIN | Errno::INTR) => 0,
                Err(errno) => return Err(Fault::system("read the local port")(errno.into())),
            };
            // Before the data, which was written after the settings were made.
            self.apply_settings(link, &mut applied)?;
            match PtyPacket::parse(&bytes[..length]) {
                PtyPacket::Nothing => {}
                PtyPacket::Data(data) => self.send(link, data)?,
                PtyPacket::Notice { is_read_flushed: flush_read, is_write_flushed: flush_write } => {
                    self.purge_remote(link, flush_read, flush_write)?
                }
            }
        }
        Ok(())
    }

    /// Waits for the terminal, for a short time.
    fn wait_for_terminal(&self, flags: PollFlags) {
        // A failed poll also makes the next operation fail.
        let _ = poll(&mut [watch(&self.state.pty.master.as_handle(), flags)], POLL_INTERVAL);
    }

    /// Applies the settings of the local port to the remote port, once for each change.
    fn apply_settings(&self, link: &mut dyn Link, applied: &mut Option<SerialSettings>) -> Result<(), Fault> {
        let settings = self.state.pty.settings();
        let wanted =
            merge_settings(settings.map_err(Fault::system("read the settings"))?, self.state.line_settings);
        // A rate of zero hangs up a modem; no line has it.
        if *applied == Some(wanted) || wanted.baud == 0 {
            return Ok(());
        }
        *applied = Some(wanted);
        let Some(port) = link.port_control() else { return Ok(()) };
        let event = match set_remote_port(port, &wanted) {
            Ok(settings) => RedirectorEvent::SettingsApplied { settings },
            Err(Fault::Closed) => return Err(Fault::Closed),
            Err(fault) => RedirectorEvent::SettingsRejected { wanted, why: fault.to_string() },
        };
        self.state.emit(event);
        Ok(())
    }

    fn send(&self, link: &mut dyn Link, mut data: &[u8]) -> Result<(), Fault> {
        while !data.is_empty() && !self.has_ended() {
            match link.send(data, POLL_INTERVAL) {
                Ok(taken) => {
                    self.state.counters.to_remote.fetch_add(taken as u64, Relaxed);
                    data = &data[taken..];
                }
                Err(Fault::TimedOut) => {}
                Err(fault) => return Err(fault),
            }
        }
        Ok(())
    }

    /// Repeats a program's purge at the remote port.
    fn purge_remote(&self, link: &mut dyn Link, flush_read: bool, flush_write: bool) -> Result<(), Fault> {
        let purge = match (flush_read, flush_write) {
            (false, false) => return Ok(()),
            (true, false) => PurgeTarget::Received,
            (false, true) => PurgeTarget::ToSend,
            (true, true) => PurgeTarget::Both,
        };
        if purge != PurgeTarget::ToSend {
            self.purge_count.fetch_add(1, Relaxed);
        }
        link.port_control().map_or(Ok(()), |port| port.purge(purge))
    }

    /// Forwards data from the remote port to programs.
    fn forward_to_program(&self, link: &mut dyn Link) -> Result<(), Fault> {
        let mut bytes = vec![0; MAX_CHUNK_BYTES];
        while !self.has_ended() {
            match link.receive(&mut bytes, 2 * POLL_INTERVAL) {
                Ok(length) => self.write_to_program(&bytes[..length])?,
                Err(Fault::TimedOut) => {}
                Err(fault) => return Err(fault),
            }
        }
        Ok(())
    }

    fn write_to_program(&self, mut data: &[u8]) -> Result<(), Fault> {
        let purges = self.purge_count.load(Relaxed);
        let counters = &self.state.counters;
        while !data.is_empty() && !self.has_ended() {
            if self.purge_count.load(Relaxed) != purges {
                counters.purged.fetch_add(data.len() as u64, Relaxed);
                break;
            }
            match self.state.pty.write(data) {
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

/// The program's settings, with those that a pseudo-terminal cannot represent taken from the endpoint.
fn merge_settings(program: SerialSettings, endpoint: SerialSettings) -> SerialSettings {
    let parity = match (program.parity, endpoint.parity) {
        (Parity::None, Parity::Even) => Parity::Even,
        (parity, _) => parity,
    };
    let stop = match (program.stop_bits, endpoint.data_bits) {
        (StopBits::Two, 5) => StopBits::OneAndHalf,
        (stop, _) => stop,
    };
    SerialSettings { data_bits: endpoint.data_bits, parity, stop_bits: stop, ..program }
}

fn set_remote_port(port: &mut dyn PortControl, wanted: &SerialSettings) -> Result<SerialSettings, Fault> {
    let granted = port.configure(wanted)?;
    serial_line::check_granted(wanted, &granted)?;
    if granted == (SerialSettings { baud: granted.baud, ..*wanted }) {
        return Ok(granted);
    }
    Err(Fault::Refused(format!("the remote port is at {granted}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_missing_in_the_terminal_come_from_the_endpoint() {
        let program = SerialSettings {
            baud: 4800,
            parity: Parity::None,
            stop_bits: StopBits::Two,
            ..SerialSettings::default()
        };
        let endpoint = SerialSettings { data_bits: 7, parity: Parity::Even, ..SerialSettings::default() };
        assert_eq!(merge_settings(program, endpoint).to_string(), "4800 7E2");
        assert_eq!(
            merge_settings(SerialSettings { parity: Parity::Odd, ..program }, endpoint).to_string(),
            "4800 7O2"
        );
        assert_eq!(
            merge_settings(program, SerialSettings { parity: Parity::Odd, ..endpoint }).to_string(),
            "4800 7N2"
        );
        assert_eq!(
            merge_settings(program, SerialSettings { data_bits: 5, ..endpoint }).to_string(),
            "4800 5E1.5"
        );
    }
}
