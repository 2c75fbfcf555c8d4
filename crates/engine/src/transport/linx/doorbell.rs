//! A descriptor that shows a waiting thread that there is something to do: for the owner of an endpoint, whose messages arrive
//! on a connection that it shares, and for the thread that reads such a connection.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use crate::link::Fault;
use linkgauge_system::{AsHandle, BorrowedHandle, WakeEvent};

/// A doorbell costs no system call while no thread waits for it, and one each for the first ring and for silencing it.
#[derive(Debug)]
pub(crate) struct Doorbell {
    event: WakeEvent,
    /// Whether a thread waits for the descriptor.
    is_watched: AtomicBool,
    /// Whether the descriptor is readable.
    is_rung: AtomicBool,
    /// Whether the descriptor is not writable.
    is_full: AtomicBool,
}

impl Doorbell {
    /// Makes a doorbell for which no thread waits yet.
    pub fn new() -> Result<Doorbell, Fault> {
        let event = WakeEvent::new().map_err(Fault::system("make an event descriptor"))?;
        let off = || AtomicBool::new(false);
        Ok(Doorbell { event, is_watched: off(), is_rung: off(), is_full: off() })
    }

    /// Makes it ring from now on. Returns whether it did not ring before.
    pub(crate) fn start_watching(&self) -> bool {
        !self.is_watched.swap(true, SeqCst)
    }

    /// Stops the ringing. Returns whether it was on before.
    pub(crate) fn stop_watching(&self) -> bool {
        self.is_watched.swap(false, SeqCst)
    }

    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        self.is_watched.load(SeqCst)
    }

    /// Makes the descriptor readable if a thread waits for it.
    pub(crate) fn ring(&self) {
        if self.is_watched() && !self.is_rung.swap(true, SeqCst) {
            self.event.add(1);
        }
    }

    /// Makes the descriptor unreadable. Later events ring again, so look for work after this call.
    pub(crate) fn silence(&self) {
        if self.is_rung.load(SeqCst) {
            self.event.reset();
            self.is_rung.store(false, SeqCst);
        }
    }

    /// Makes the descriptor unwritable until [`Doorbell::accept_output`].
    pub(crate) fn refuse_output(&self) {
        self.is_rung.store(true, SeqCst);
        self.event.reset();
        self.event.add(WakeEvent::MAX_COUNT);
        self.is_full.store(true, SeqCst);
    }

    /// Makes the descriptor writable again. It rings, because it may have hidden a ring.
    pub(crate) fn accept_output(&self) {
        if self.is_full.swap(false, SeqCst) {
            self.is_rung.store(true, SeqCst);
            self.event.reset();
            self.event.add(1);
        }
    }
}

impl AsHandle for Doorbell {
    fn as_handle(&self) -> BorrowedHandle<'_> {
        self.event.as_handle()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use linkgauge_system::{PollFlags, poll, watch};

    fn state(bell: &Doorbell) -> (bool, bool) {
        let mut polled = [watch(bell, PollFlags::IN | PollFlags::OUT)];
        poll(&mut polled, Duration::ZERO).unwrap();
        let events = polled[0].revents();
        (events.contains(PollFlags::IN), events.contains(PollFlags::OUT))
    }

    #[test]
    fn it_shows_input_and_room_for_output() {
        let bell = Doorbell::new().unwrap();
        bell.ring();
        assert_eq!(state(&bell), (false, true), "no thread waits for it");
        assert!(bell.start_watching() && !bell.start_watching());
        bell.ring();
        bell.ring();
        assert_eq!(state(&bell), (true, true));
        bell.silence();
        assert_eq!(state(&bell), (false, true), "both rings");
        bell.refuse_output();
        bell.ring();
        assert!(!state(&bell).1);
        bell.accept_output();
        assert_eq!(state(&bell), (true, true), "the hidden ring");
        bell.silence();
        bell.accept_output();
        assert_eq!(state(&bell), (false, true), "output was accepted already");
        assert!(bell.stop_watching() && !bell.stop_watching());
    }
}
