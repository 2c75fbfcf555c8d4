//! A client of a port as its senders see it, and sending without partial writes.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use super::SerialPort;
use crate::link::party::CANCEL_CHECK_INTERVAL;
use crate::link::{Fault, Link, rfc2217};

/// A client or driver without progress for this time is considered stuck.
pub const STALL_TIMEOUT: Duration = Duration::from_secs(1);

/// How often to check whether a suspended client accepts data again.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Why the session of a client ended, as the log reports it.
#[derive(Debug, thiserror::Error)]
pub enum SessionEnd {
    #[error("the port closed")]
    PortClosed,
    #[error("it had to make room")]
    MadeRoom,
    #[error("it closed the link")]
    Closed,
    #[error("it closed the link, and the line did not take what it had sent")]
    ClosedWithRest,
    #[error(transparent)]
    Link(#[from] Fault),
}

/// A connected client.
pub struct PortClient {
    pub address: String,
    output: Mutex<ClientOutput>,
    /// It accepts no data for now.
    is_suspended: AtomicBool,
    /// It is disconnected, or about to be.
    is_ended: AtomicBool,
}

/// The only path of output to the client, so that writes do not interleave.
struct ClientOutput {
    link: Box<dyn Link>,
    /// Buffer for Telnet-escaped data, if the client uses Telnet.
    escaped: Option<Vec<u8>>,
}

impl PortClient {
    pub fn new(from: String, link: Box<dyn Link>, telnet: bool) -> PortClient {
        let out = ClientOutput { link, escaped: telnet.then(Vec::new) };
        PortClient {
            address: from,
            output: Mutex::new(out),
            is_suspended: AtomicBool::new(false),
            is_ended: AtomicBool::new(false),
        }
    }

    pub fn end(&self) {
        self.is_ended.store(true, Relaxed);
    }

    pub fn has_ended(&self) -> bool {
        self.is_ended.load(Relaxed)
    }

    pub fn set_suspended(&self, suspended: bool) {
        self.is_suspended.store(suspended, Relaxed);
    }

    /// Sends data from the line, however slow the client is, unless the client disconnects or the port closes.
    pub fn send(&self, data: &[u8], port: &SerialPort) {
        let clock = &port.state.clock;
        while self.is_suspended.load(Relaxed) && self.should_continue(port) {
            clock.sleep_until(clock.now() + POLL_INTERVAL);
        }
        let mut out = self.lock_output();
        let ClientOutput { link, escaped } = &mut *out;
        let bytes = match escaped {
            None => data,
            Some(escaped) => {
                escaped.clear();
                rfc2217::escape(data, escaped);
                escaped
            }
        };
        self.send_bytes(&mut **link, bytes, port);
    }

    /// Sends control sequences.
    pub fn send_control(&self, bytes: &[u8], port: &SerialPort) {
        if !bytes.is_empty() {
            self.send_bytes(&mut *self.lock_output().link, bytes, port);
        }
    }

    fn send_bytes(&self, link: &mut dyn Link, bytes: &[u8], port: &SerialPort) {
        if send_all(link, bytes, |_| self.should_continue(port)).is_err() {
            self.end();
        }
    }

    fn should_continue(&self, port: &SerialPort) -> bool {
        !self.has_ended() && !port.is_stopping()
    }

    fn lock_output(&self) -> MutexGuard<'_, ClientOutput> {
        self.output.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Sends all bytes. After each send timeout it calls `go_on` with the time since the last progress.
pub fn send_all(
    link: &mut dyn Link,
    mut bytes: &[u8],
    mut go_on: impl FnMut(Duration) -> bool,
) -> Result<(), Fault> {
    let mut stuck = Duration::ZERO;
    while !bytes.is_empty() {
        match link.send(bytes, CANCEL_CHECK_INTERVAL) {
            Ok(sent) => {
                bytes = &bytes[sent..];
                stuck = Duration::ZERO;
            }
            Err(Fault::TimedOut) => {
                stuck += CANCEL_CHECK_INTERVAL;
                if !go_on(stuck) {
                    return Err(Fault::TimedOut);
                }
            }
            Err(fault) => return Err(fault),
        }
    }
    Ok(())
}
