//! A client of a port, as those who send to it see it; and sending whole.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use super::SerialPort;
use crate::link::party::SLICE;
use crate::link::{Fault, Link, rfc2217};

/// A line or a driver that moves nothing for so long is not waited for any longer.
pub const PATIENCE: Duration = Duration::from_secs(1);

/// How often it is looked whether a client that wanted no data for now wants it again.
const LOOK: Duration = Duration::from_millis(5);

/// A client that is connected.
pub struct Client {
    pub from: String,
    out: Mutex<Out>,
    /// It wants no data for now.
    suspended: AtomicBool,
    /// It has to go, or has gone.
    ended: AtomicBool,
}

/// Everything sent to the client goes through here, whole.
struct Out {
    link: Box<dyn Link>,
    /// Room for data as Telnet writes it, where the client speaks that.
    escaped: Option<Vec<u8>>,
}

impl Client {
    pub fn new(from: String, link: Box<dyn Link>, telnet: bool) -> Client {
        let out = Out { link, escaped: telnet.then(Vec::new) };
        Client {
            from,
            out: Mutex::new(out),
            suspended: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        }
    }

    pub fn end(&self) {
        self.ended.store(true, Relaxed);
    }

    pub fn has_ended(&self) -> bool {
        self.ended.load(Relaxed)
    }

    pub fn suspend(&self, suspended: bool) {
        self.suspended.store(suspended, Relaxed);
    }

    /// Sends what the line brought, however slow the client is, unless it or the port comes to an end before.
    pub fn send(&self, data: &[u8], port: &SerialPort) {
        let clock = &port.common.clock;
        while self.suspended.load(Relaxed) && self.goes_on(port) {
            clock.sleep_until(clock.now() + LOOK);
        }
        let mut out = self.lock();
        let Out { link, escaped } = &mut *out;
        let bytes = match escaped {
            None => data,
            Some(escaped) => {
                escaped.clear();
                rfc2217::escape(data, escaped);
                escaped
            }
        };
        self.put(&mut **link, bytes, port);
    }

    /// Sends what is not data.
    pub fn answer(&self, bytes: &[u8], port: &SerialPort) {
        if !bytes.is_empty() {
            self.put(&mut *self.lock().link, bytes, port);
        }
    }

    fn put(&self, link: &mut dyn Link, bytes: &[u8], port: &SerialPort) {
        if send_whole(link, bytes, |_| self.goes_on(port)).is_err() {
            self.end();
        }
    }

    fn goes_on(&self, port: &SerialPort) -> bool {
        !self.has_ended() && !port.is_over()
    }

    fn lock(&self) -> MutexGuard<'_, Out> {
        self.out.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Sends all of it. Whenever nothing could be sent for a while, asks whether to go on, with the time since the last
/// progress.
pub fn send_whole(
    link: &mut dyn Link,
    mut bytes: &[u8],
    mut go_on: impl FnMut(Duration) -> bool,
) -> Result<(), Fault> {
    let mut stuck = Duration::ZERO;
    while !bytes.is_empty() {
        match link.send(bytes, SLICE) {
            Ok(sent) => {
                bytes = &bytes[sent..];
                stuck = Duration::ZERO;
            }
            Err(Fault::TimedOut) => {
                stuck += SLICE;
                if !go_on(stuck) {
                    return Err(Fault::TimedOut);
                }
            }
            Err(fault) => return Err(fault),
        }
    }
    Ok(())
}
