//! A client of a port, as those who send to it see it; and sending whole.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use super::SerialPort;
use crate::link::party::SLICE;
use crate::link::{Fault, Link};

/// A client that is connected.
pub struct Client {
    pub from: String,
    /// Everything sent to it goes through here, whole.
    out: Mutex<Box<dyn Link>>,
    /// It has to go, or has gone.
    ended: AtomicBool,
}

impl Client {
    pub fn new(from: String, out: Box<dyn Link>) -> Client {
        Client { from, out: Mutex::new(out), ended: AtomicBool::new(false) }
    }

    pub fn end(&self) {
        self.ended.store(true, Relaxed);
    }

    pub fn has_ended(&self) -> bool {
        self.ended.load(Relaxed)
    }

    /// Sends all of it, however slow the client is, unless it or the port comes to an end before.
    pub fn send(&self, bytes: &[u8], port: &SerialPort) {
        let mut out = self.out.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if send_whole(&mut **out, bytes, |_| !self.has_ended() && !port.is_over()).is_err() {
            self.end();
        }
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
