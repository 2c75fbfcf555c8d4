//! A link wrapper that opens the link again after it broke, for parties that can continue.
//!
//! A broken link looks closed, whatever error the system reported. Data sent into it is lost, as with every
//! broken connection. The party decides when to open it again, and how often.

use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::Builder;
use std::time::Duration;

use super::party::Tuning;
use super::serial_line::PortControl;
use super::{Caps, Dialer, Facts, Fault, Link, LinkError};
use crate::clock::Clock;
use crate::endpoint::Endpoint;

type OpenResult = Result<Box<dyn Link>, LinkError>;

/// A link that a dialer can open again.
pub struct ReopeningLink {
    inner: Box<dyn Link>,
    endpoint: Endpoint,
    dialer: Dialer,
    tuning: Tuning,
    is_broken: bool,
    /// Opening can block for any time, so a separate thread does it.
    pending_open: Option<Receiver<OpenResult>>,
}

impl ReopeningLink {
    pub fn open(endpoint: &Endpoint, dialer: &Dialer) -> Result<ReopeningLink, LinkError> {
        Ok(ReopeningLink {
            inner: dialer.open(endpoint)?,
            endpoint: endpoint.clone(),
            dialer: dialer.clone(),
            tuning: Tuning::default(),
            is_broken: false,
            pending_open: None,
        })
    }

    /// Starts to open the link in a separate thread.
    fn start_opening(&self) -> Result<Receiver<OpenResult>, Fault> {
        let (sender, opened) = sync_channel(1);
        let (dialer, endpoint) = (self.dialer.clone(), self.endpoint.clone());
        let open = move || {
            // The receiver may have given up.
            let _ = sender.send(dialer.open(&endpoint));
        };
        Builder::new().name("opening".to_owned()).spawn(open).map_err(Fault::system("start a thread"))?;
        Ok(opened)
    }

    fn await_opened(&mut self, within: Duration) -> Result<OpenResult, Fault> {
        if let Clock::Virtual(_) = self.dialer.clock {
            return Ok(self.dialer.open(&self.endpoint));
        }
        let pending = match self.pending_open.take() {
            Some(pending) => pending,
            None => self.start_opening()?,
        };
        match pending.recv_timeout(within) {
            Ok(opened) => Ok(opened),
            Err(RecvTimeoutError::Timeout) => {
                self.pending_open = Some(pending);
                Err(Fault::TimedOut)
            }
            Err(RecvTimeoutError::Disconnected) => {
                Err(Fault::Other("the thread that opens it failed".into()))
            }
        }
    }
}

impl Link for ReopeningLink {
    fn caps(&self) -> &Caps {
        self.inner.caps()
    }

    fn facts(&self) -> Facts {
        self.inner.facts()
    }

    fn tune(&mut self, tuning: &Tuning) {
        self.tuning = *tuning;
        self.inner.tune(tuning);
    }

    fn send(&mut self, bytes: &[u8], within: Duration) -> Result<usize, Fault> {
        if self.is_broken {
            return Ok(bytes.len());
        }
        match self.inner.send(bytes, within) {
            Err(Fault::Closed | Fault::System { .. }) => {
                self.is_broken = true;
                Ok(bytes.len())
            }
            sent => sent,
        }
    }

    fn receive(&mut self, into: &mut [u8], within: Duration) -> Result<usize, Fault> {
        if self.is_broken {
            return Err(Fault::Closed);
        }
        match self.inner.receive(into, within) {
            Err(Fault::Closed | Fault::System { .. }) => {
                self.is_broken = true;
                Err(Fault::Closed)
            }
            received => received,
        }
    }

    fn second_handle(&self) -> Result<Box<dyn Link>, Fault> {
        self.inner.second_handle()
    }

    fn busy_poll_time(&self) -> Duration {
        self.inner.busy_poll_time()
    }

    fn finish_sending(&mut self) -> Result<(), Fault> {
        if self.is_broken { Ok(()) } else { self.inner.finish_sending() }
    }

    fn reopen(&mut self, within: Duration) -> Result<(), Fault> {
        // A device can be opened only once, so the old link is closed first.
        if self.pending_open.is_none() {
            self.inner = Box::new(ClosedLink(self.inner.caps().clone()));
            self.is_broken = true;
        }
        self.inner = self.await_opened(within)?.map_err(|error| error.fault)?;
        self.inner.tune(&self.tuning);
        self.is_broken = false;
        Ok(())
    }

    fn port_control(&mut self) -> Option<&mut dyn PortControl> {
        self.inner.port_control()
    }

    fn is_hung_up(&self) -> bool {
        self.is_broken || self.inner.is_hung_up()
    }

    fn unacknowledged_bytes(&self) -> Option<u64> {
        self.inner.unacknowledged_bytes()
    }

    fn is_broken(&self) -> bool {
        self.is_broken || self.inner.is_broken()
    }

    fn socket_drops(&self) -> Option<u64> {
        self.inner.socket_drops()
    }
}

/// Replaces a closed link.
struct ClosedLink(Caps);

impl Link for ClosedLink {
    fn caps(&self) -> &Caps {
        &self.0
    }

    fn facts(&self) -> Facts {
        Facts::new()
    }

    fn tune(&mut self, _tuning: &Tuning) {}

    fn send(&mut self, _bytes: &[u8], _within: Duration) -> Result<usize, Fault> {
        Err(Fault::Closed)
    }

    fn receive(&mut self, _into: &mut [u8], _within: Duration) -> Result<usize, Fault> {
        Err(Fault::Closed)
    }

    fn second_handle(&self) -> Result<Box<dyn Link>, Fault> {
        Err(Fault::Closed)
    }

    fn finish_sending(&mut self) -> Result<(), Fault> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Time;
    use crate::link::party::{Party, Step};
    use crate::link::{Batch, PartyFactory};

    /// Echoes the first bytes, and closes.
    struct CloseAfterSend {
        batch: Batch,
        sent: bool,
    }

    impl Party for CloseAfterSend {
        fn next_step(&mut self, _now: Time) -> Step<'_> {
            if self.sent {
                return Step::Done;
            }
            let total = self.batch.total_bytes() as usize;
            match total {
                0 => Step::Receive { into: &mut self.batch, until: Time::NEVER },
                total => Step::Send { bytes: &self.batch.bytes[..total], message: total },
            }
        }

        fn on_sent(&mut self, _bytes: usize, _at: Time) {
            self.sent = true;
        }

        fn on_received(&mut self, _now: Time) {}

        fn on_timeout(&mut self, _now: Time) {}
    }

    const LONG_TIMEOUT: Duration = Duration::from_secs(10);

    fn assert_works(link: &mut ReopeningLink) {
        let mut received = [0; 9];
        assert_eq!(link.send(b"hello", LONG_TIMEOUT).unwrap(), 5);
        assert_eq!(link.receive(&mut received, LONG_TIMEOUT).unwrap(), 5);
        assert!(matches!(link.receive(&mut received, LONG_TIMEOUT), Err(Fault::Closed)));
    }

    #[test]
    fn a_broken_link_is_closed_until_it_is_reopened() {
        let dialer = Dialer::new(Clock::new_virtual());
        let endpoint: Endpoint = "mem://once?delay=1ms".parse().unwrap();
        let once: PartyFactory =
            Box::new(|_| Box::new(CloseAfterSend { batch: Batch::new(100, 1), sent: false }));
        assert!(dialer.listen(&endpoint).unwrap().set_party_factory(once).is_ok());
        let mut link = ReopeningLink::open(&endpoint, &dialer).unwrap();
        for _ in 0..3 {
            assert_works(&mut link);
            assert!(link.is_hung_up());
            assert_eq!(link.send(b"lost", LONG_TIMEOUT).unwrap(), 4, "as into any broken connection");
            assert!(matches!(link.receive(&mut [0], LONG_TIMEOUT), Err(Fault::Closed)));
            link.reopen(Duration::ZERO).unwrap();
            assert!(!link.is_hung_up());
        }
    }

    #[test]
    fn a_failed_reopen_reports_the_reason_and_stays_closed() {
        let dialer = Dialer::new(Clock::System);
        let mut listener = dialer.listen(&"tcp://127.0.0.1:0".parse().unwrap()).unwrap();
        let mut link = ReopeningLink::open(&listener.endpoint(), &dialer).unwrap();
        drop(listener.accept(LONG_TIMEOUT, &mut |_, _, _| crate::link::Admission::Open).unwrap());
        drop(listener);
        assert!(matches!(link.receive(&mut [0], LONG_TIMEOUT), Err(Fault::Closed)));
        assert!(matches!(link.reopen(LONG_TIMEOUT), Err(Fault::System { operation: "connect", .. })));
        assert!(matches!(link.receive(&mut [0], LONG_TIMEOUT), Err(Fault::Closed)));
        assert_eq!(link.send(b"lost", LONG_TIMEOUT).unwrap(), 4);
    }
}
