//! A link around a link that can be opened anew when it breaks, for parties that know how to go on.
//!
//! A broken link looks closed here, whatever the system called it, and what is sent into it is gone, as it is with every
//! connection that breaks. When to open it anew, and how often, is the party's business.

use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::Builder;
use std::time::Duration;

use super::line::Port;
use super::party::Tuning;
use super::{Caps, Dialer, Facts, Fault, Link, LinkError};
use crate::clock::Clock;
use crate::endpoint::Endpoint;

type Opened = Result<Box<dyn Link>, LinkError>;

/// A link that a dialer can open again.
pub struct Reopening {
    inner: Box<dyn Link>,
    endpoint: Endpoint,
    dialer: Dialer,
    tuning: Tuning,
    broken: bool,
    /// Opening blocks for as long as the system likes, so it is done beside.
    opening: Option<Receiver<Opened>>,
}

impl Reopening {
    pub fn open(endpoint: &Endpoint, dialer: &Dialer) -> Result<Reopening, LinkError> {
        Ok(Reopening {
            inner: dialer.open(endpoint)?,
            endpoint: endpoint.clone(),
            dialer: dialer.clone(),
            tuning: Tuning::default(),
            broken: false,
            opening: None,
        })
    }

    /// Begins to open the link beside.
    fn begin(&self) -> Result<Receiver<Opened>, Fault> {
        let (tell, opened) = sync_channel(1);
        let (dialer, endpoint) = (self.dialer.clone(), self.endpoint.clone());
        let open = move || {
            // Nobody waits for it any more if nobody receives.
            let _ = tell.send(dialer.open(&endpoint));
        };
        Builder::new().name("opening".to_owned()).spawn(open).map_err(Fault::system("start a thread"))?;
        Ok(opened)
    }

    fn opened(&mut self, within: Duration) -> Result<Opened, Fault> {
        if let Clock::Virtual(_) = self.dialer.clock {
            return Ok(self.dialer.open(&self.endpoint));
        }
        let opening = match self.opening.take() {
            Some(opening) => opening,
            None => self.begin()?,
        };
        match opening.recv_timeout(within) {
            Ok(opened) => Ok(opened),
            Err(RecvTimeoutError::Timeout) => {
                self.opening = Some(opening);
                Err(Fault::TimedOut)
            }
            Err(RecvTimeoutError::Disconnected) => {
                Err(Fault::Other("the thread that opens it failed".into()))
            }
        }
    }
}

impl Link for Reopening {
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
        if self.broken {
            return Ok(bytes.len());
        }
        match self.inner.send(bytes, within) {
            Err(Fault::Closed | Fault::System { .. }) => {
                self.broken = true;
                Ok(bytes.len())
            }
            sent => sent,
        }
    }

    fn receive(&mut self, into: &mut [u8], within: Duration) -> Result<usize, Fault> {
        if self.broken {
            return Err(Fault::Closed);
        }
        match self.inner.receive(into, within) {
            Err(Fault::Closed | Fault::System { .. }) => {
                self.broken = true;
                Err(Fault::Closed)
            }
            received => received,
        }
    }

    fn other_half(&self) -> Result<Box<dyn Link>, Fault> {
        self.inner.other_half()
    }

    fn polled(&self) -> Duration {
        self.inner.polled()
    }

    fn finish(&mut self) -> Result<(), Fault> {
        if self.broken { Ok(()) } else { self.inner.finish() }
    }

    fn reopen(&mut self, within: Duration) -> Result<(), Fault> {
        // A device is ours alone, so the old link goes first.
        if self.opening.is_none() {
            self.inner = Box::new(Gone(self.inner.caps().clone()));
            self.broken = true;
        }
        self.inner = self.opened(within)?.map_err(|error| error.fault)?;
        self.inner.tune(&self.tuning);
        self.broken = false;
        Ok(())
    }

    fn port(&mut self) -> Option<&mut dyn Port> {
        self.inner.port()
    }

    fn hung_up(&self) -> bool {
        self.broken || self.inner.hung_up()
    }

    fn unacknowledged(&self) -> Option<u64> {
        self.inner.unacknowledged()
    }

    fn is_broken(&self) -> bool {
        self.broken || self.inner.is_broken()
    }

    fn socket_drops(&self) -> Option<u64> {
        self.inner.socket_drops()
    }
}

/// What stands in for a link that was let go.
struct Gone(Caps);

impl Link for Gone {
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

    fn other_half(&self) -> Result<Box<dyn Link>, Fault> {
        Err(Fault::Closed)
    }

    fn finish(&mut self) -> Result<(), Fault> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Time;
    use crate::link::party::{Party, Step};
    use crate::link::{Batch, Hosting};

    /// Sends back the first bytes that come, and closes.
    struct Once {
        batch: Batch,
        sent: bool,
    }

    impl Party for Once {
        fn next(&mut self, _now: Time) -> Step<'_> {
            if self.sent {
                return Step::Done;
            }
            let total = self.batch.total() as usize;
            match total {
                0 => Step::Receive { into: &mut self.batch, until: Time::NEVER },
                total => Step::Send { bytes: &self.batch.bytes[..total], message: total },
            }
        }

        fn sent(&mut self, _bytes: usize, _at: Time) {
            self.sent = true;
        }

        fn received(&mut self, _now: Time) {}

        fn timed_out(&mut self, _now: Time) {}
    }

    const LONG: Duration = Duration::from_secs(10);

    fn works(link: &mut Reopening) {
        let mut got = [0; 9];
        assert_eq!(link.send(b"hello", LONG).unwrap(), 5);
        assert_eq!(link.receive(&mut got, LONG).unwrap(), 5);
        assert!(matches!(link.receive(&mut got, LONG), Err(Fault::Closed)));
    }

    #[test]
    fn a_broken_link_is_closed_until_it_is_opened_anew() {
        let dialer = Dialer::new(Clock::new_virtual());
        let endpoint: Endpoint = "mem://once?delay=1ms".parse().unwrap();
        let once: Hosting = Box::new(|_| Box::new(Once { batch: Batch::new(100, 1), sent: false }));
        assert!(dialer.listen(&endpoint).unwrap().host(once).is_ok());
        let mut link = Reopening::open(&endpoint, &dialer).unwrap();
        for _ in 0..3 {
            works(&mut link);
            assert!(link.hung_up());
            assert_eq!(link.send(b"lost", LONG).unwrap(), 4, "as into any broken connection");
            assert!(matches!(link.receive(&mut [0], LONG), Err(Fault::Closed)));
            link.reopen(Duration::ZERO).unwrap();
            assert!(!link.hung_up());
        }
    }

    #[test]
    fn what_cannot_be_opened_says_why_and_stays_closed() {
        let dialer = Dialer::new(Clock::System);
        let mut listener = dialer.listen(&"tcp://127.0.0.1:0".parse().unwrap()).unwrap();
        let mut link = Reopening::open(&listener.endpoint(), &dialer).unwrap();
        drop(listener.accept(LONG, &mut |_, _, _| crate::link::Admission::Open).unwrap());
        drop(listener);
        assert!(matches!(link.receive(&mut [0], LONG), Err(Fault::Closed)));
        assert!(matches!(link.reopen(LONG), Err(Fault::System { operation: "connect", .. })));
        assert!(matches!(link.receive(&mut [0], LONG), Err(Fault::Closed)));
        assert_eq!(link.send(b"lost", LONG).unwrap(), 4);
    }
}
