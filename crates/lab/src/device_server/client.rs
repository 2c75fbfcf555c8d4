//! A client of a port as its senders see it. Data of the line is sent as far as the client takes it; control sequences whole.

use std::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::ServedPort;
use linkgauge_engine::link::party::CANCEL_CHECK_INTERVAL;
use linkgauge_engine::link::{Fault, Link};
use linkgauge_engine::transport::rfc2217;

/// A client or driver without progress for this time is considered stuck.
pub(crate) const STALL_TIMEOUT: Duration = Duration::from_secs(1);

/// Interval between checks whether a slow or suspended client accepts data again.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Reason for the end of a client's session, as the log reports it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionEnd {
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

/// Encoding of the line's bytes for a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientEncoding {
    /// Bytes without a change.
    Raw,
    /// Bytes with the escapes of Telnet.
    Telnet,
}

/// A connected client.
pub(crate) struct PortClient {
    pub(crate) address: String,
    /// The only path to the client, so that writes do not interleave.
    output: Mutex<Box<dyn Link>>,
    encoding: ClientEncoding,
    unsent: Mutex<UnsentData>,
    /// Accepts no data for now.
    is_suspended: AtomicBool,
    /// Is disconnected, or about to be.
    is_ended: AtomicBool,
    /// The session is over.
    is_gone: AtomicBool,
}

/// Data from the line that the client has not taken yet, escaped if necessary.
#[derive(Default)]
struct UnsentData {
    bytes: Vec<u8>,
    sent: usize,
}

impl UnsentData {
    fn clear(&mut self) {
        self.bytes.clear();
        self.sent = 0;
    }

    /// Takes what is left of data that the client has received in part.
    fn take_begun(&mut self) -> Vec<u8> {
        if self.sent == 0 {
            return Vec::new();
        }
        let UnsentData { bytes, sent } = std::mem::take(self);
        bytes[sent..].to_vec()
    }
}

impl PortClient {
    pub fn new(from: String, link: Box<dyn Link>, encoding: ClientEncoding) -> PortClient {
        PortClient {
            address: from,
            output: Mutex::new(link),
            encoding,
            unsent: Mutex::default(),
            is_suspended: AtomicBool::new(false),
            is_ended: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
        }
    }

    pub fn end(&self) {
        self.is_ended.store(true, Relaxed);
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.is_ended.load(Relaxed)
    }

    /// The session is over, and another client may have its place.
    pub(crate) fn set_gone(&self) {
        self.end();
        self.is_gone.store(true, Release);
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone.load(Acquire)
    }

    pub(crate) fn set_suspended(&self, suspended: bool) {
        self.is_suspended.store(suspended, Relaxed);
    }

    /// The client has closed its link. A client that is being sent control sequences has not, as far as known.
    pub(crate) fn is_hung_up(&self) -> bool {
        self.output.try_lock().is_ok_and(|link| link.status().is_hung_up)
    }

    /// Whether its place may soon be free. As long as something is being sent to it, that is possible.
    pub(crate) fn may_be_leaving(&self) -> bool {
        self.has_ended() || self.output.try_lock().map_or(true, |link| link.status().is_hung_up)
    }

    /// Sends nothing more.
    pub(crate) fn finish_sending(&self) {
        // The client may have disconnected already.
        let _ = lock(&self.output).finish_sending();
    }

    /// Adds data from the line to what [`PortClient::flush`] sends.
    pub(crate) fn queue(&self, data: &[u8]) {
        let unsent = &mut lock(&self.unsent).bytes;
        match self.encoding {
            ClientEncoding::Raw => unsent.extend_from_slice(data),
            ClientEncoding::Telnet => rfc2217::escape(data, unsent),
        }
    }

    /// Sends queued data, as far as the client takes it now. Returns whether none is left. An ended client takes no more.
    pub(crate) fn flush(&self) -> bool {
        let mut unsent = lock(&self.unsent);
        if self.has_ended() {
            unsent.clear();
        }
        if unsent.bytes.is_empty() {
            return true;
        }
        if self.is_suspended.load(Relaxed) {
            return false;
        }
        // Control sequences are being sent.
        let Ok(mut link) = self.output.try_lock() else { return false };
        let UnsentData { bytes, sent } = &mut *unsent;
        while *sent < bytes.len() {
            match link.send(&bytes[*sent..], Duration::ZERO) {
                Ok(length) => *sent += length,
                Err(Fault::TimedOut) => return false,
                Err(_) => {
                    self.end();
                    break;
                }
            }
        }
        unsent.clear();
        true
    }

    /// Sends control sequences, however slow the client is, unless it disconnects or the port closes.
    pub(crate) fn send_control(&self, bytes: &[u8], port: &ServedPort) {
        if bytes.is_empty() {
            return;
        }
        let mut link = lock(&self.output);
        // Not in the middle of what Telnet has escaped.
        let mut begun = lock(&self.unsent).take_begun();
        begun.extend_from_slice(bytes);
        if send_all(&mut **link, &begun, |_| !self.has_ended() && !port.is_stopping()).is_err() {
            self.end();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends all bytes. After each send timeout it calls `go_on` with the time since the last progress.
pub(crate) fn send_all(
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
