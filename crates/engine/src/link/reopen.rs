//! A link wrapper that opens the link again after it broke, for parties that can continue.
//!
//! A broken link looks closed, whatever error the system reported. Data sent into it is lost, as with every
//! broken connection. The party decides when to open it again, and how often.

use std::time::Duration;

use super::dialer::{OpenResult, PendingOpen};
use super::party::Tuning;
use super::serial_line::PortControl;
use super::{Batch, Caps, Dialer, Facts, Fault, Link, LinkDescriptor, LinkError, LinkStatus};
use crate::link::delegate::plain_link;
use linkgauge_model::clock::Clock;
use linkgauge_model::endpoint::Endpoint;

/// A link that a dialer can open again.
pub(crate) struct ReopeningLink {
    /// `None` once a broken link is closed, until it is open again.
    inner: Option<Box<dyn Link>>,
    caps: Caps,
    /// Counts of the links before this one.
    earlier: LinkStatus,
    endpoint: Endpoint,
    dialer: Dialer,
    tuning: Tuning,
    is_broken: bool,
    pending_open: Option<PendingOpen>,
}

impl ReopeningLink {
    /// Opens the link for the first time.
    ///
    /// # Errors
    ///
    /// As [`Dialer::open`].
    pub(crate) fn open(endpoint: &Endpoint, dialer: &Dialer) -> Result<ReopeningLink, LinkError> {
        let inner = dialer.open(endpoint)?;
        Ok(ReopeningLink {
            caps: without_descriptor(inner.caps()),
            inner: Some(inner),
            earlier: LinkStatus::default(),
            endpoint: endpoint.clone(),
            dialer: dialer.clone(),
            tuning: Tuning::default(),
            is_broken: false,
            pending_open: None,
        })
    }

    /// Sends with the inner link; a broken link takes all `bytes`.
    fn send_with(
        &mut self,
        bytes: usize,
        send: impl FnOnce(&mut dyn Link) -> Result<usize, Fault>,
    ) -> Result<usize, Fault> {
        match &mut self.inner {
            Some(inner) if !self.is_broken => match send(inner.as_mut()) {
                Err(Fault::Closed | Fault::System { .. }) => {
                    self.is_broken = true;
                    Ok(bytes)
                }
                sent => sent,
            },
            _ => Ok(bytes),
        }
    }

    /// Receives with the inner link; a broken link is closed.
    fn receive_with<T>(
        &mut self,
        receive: impl FnOnce(&mut dyn Link) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        match &mut self.inner {
            Some(inner) if !self.is_broken => match receive(inner.as_mut()) {
                Err(Fault::Closed | Fault::System { .. }) => {
                    self.is_broken = true;
                    Err(Fault::Closed)
                }
                received => received,
            },
            _ => Err(Fault::Closed),
        }
    }

    fn await_opened(&mut self, within: Duration) -> Result<OpenResult, Fault> {
        if let Clock::Virtual(_) = self.dialer.clock {
            return Ok(self.dialer.open(&self.endpoint));
        }
        let mut pending = match self.pending_open.take() {
            Some(pending) => pending,
            None => self.dialer.start_opening(&self.endpoint).map_err(|error| error.fault)?,
        };
        let opened = pending.wait(within);
        if opened.is_none() {
            self.pending_open = Some(pending);
        }
        opened.ok_or(Fault::TimedOut)
    }
}

/// Capabilities without a descriptor: each new connection has another one, and opening it takes a thread.
fn without_descriptor(caps: &Caps) -> Caps {
    Caps { descriptor: LinkDescriptor::None, ..caps.clone() }
}

impl Link for ReopeningLink {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn facts(&self) -> Facts {
        self.inner.as_ref().map_or_else(Facts::new, |inner| inner.facts())
    }

    fn status(&self) -> LinkStatus {
        let mut status = self.inner.as_ref().map_or_else(LinkStatus::default, |inner| inner.status());
        status.is_hung_up |= self.is_broken;
        status.is_broken |= self.is_broken;
        status.add_counts(&self.earlier);
        status
    }

    fn tune(&mut self, tuning: &Tuning) {
        self.tuning = *tuning;
        if let Some(inner) = &mut self.inner {
            inner.tune(tuning);
        }
    }

    fn send(&mut self, bytes: &[u8], within: Duration) -> Result<usize, Fault> {
        self.send_with(bytes.len(), |inner| inner.send(bytes, within))
    }

    fn receive(&mut self, into: &mut [u8], within: Duration) -> Result<usize, Fault> {
        self.receive_with(|inner| inner.receive(into, within))
    }

    fn send_batch(&mut self, messages: &[u8], message: usize, within: Duration) -> Result<usize, Fault> {
        self.send_with(messages.len(), |inner| inner.send_batch(messages, message, within))
    }

    fn receive_batch(&mut self, into: &mut Batch, within: Duration) -> Result<(), Fault> {
        into.clear();
        self.receive_with(|inner| inner.receive_batch(into, within))
    }

    fn finish_sending(&mut self) -> Result<(), Fault> {
        match &mut self.inner {
            Some(inner) if !self.is_broken => inner.finish_sending(),
            _ => Ok(()),
        }
    }

    fn abort(&mut self) {
        if let Some(inner) = &mut self.inner {
            inner.abort();
        }
    }

    fn reopen(&mut self, within: Duration) -> Result<(), Fault> {
        // A device can be opened only once, so the old link is closed first.
        if self.pending_open.is_none()
            && let Some(old) = self.inner.take()
        {
            self.earlier.add_counts(&old.status());
        }
        self.is_broken = true;
        let mut inner = self.await_opened(within)?.map_err(|error| error.fault)?;
        inner.tune(&self.tuning);
        self.caps = without_descriptor(inner.caps());
        self.inner = Some(inner);
        self.is_broken = false;
        Ok(())
    }

    fn second_handle(&self) -> Result<Box<dyn Link>, Fault> {
        self.inner.as_ref().ok_or(Fault::Closed)?.second_handle()
    }

    fn port_control(&mut self) -> Option<&mut dyn PortControl> {
        self.inner.as_mut()?.port_control()
    }

    plain_link!(read_send_stamps descriptor);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::party::{Party, Step};
    use crate::link::{Batch, PartyFactory};
    use crate::protocol::Registry;
    use linkgauge_model::clock::Time;

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
        let dialer = Registry::standard().dialer(Clock::new_virtual());
        let endpoint: Endpoint = "mem://once?delay=1ms".parse().unwrap();
        let once: PartyFactory =
            Box::new(|_| Box::new(CloseAfterSend { batch: Batch::new(100, 1), sent: false }));
        assert!(dialer.listen(&endpoint).unwrap().set_party_factory(once).is_ok());
        let mut link = ReopeningLink::open(&endpoint, &dialer).unwrap();
        for _ in 0..3 {
            assert_works(&mut link);
            assert!(link.status().is_hung_up);
            assert_eq!(link.send(b"lost", LONG_TIMEOUT).unwrap(), 4, "as into any broken connection");
            assert!(matches!(link.receive(&mut [0], LONG_TIMEOUT), Err(Fault::Closed)));
            link.reopen(Duration::ZERO).unwrap();
            assert!(!link.status().is_hung_up);
        }
    }

    #[test]
    fn a_failed_reopen_reports_the_reason_and_stays_closed() {
        let dialer = Registry::standard().dialer(Clock::System);
        let mut listener = dialer.listen(&"tcp://127.0.0.1:0".parse().unwrap()).unwrap();
        let mut link = ReopeningLink::open(&listener.endpoint(), &dialer).unwrap();
        drop(listener.accept(LONG_TIMEOUT, &mut |_, _, _| crate::link::Admission::Open).unwrap());
        drop(listener);
        assert!(matches!(link.receive(&mut [0], LONG_TIMEOUT), Err(Fault::Closed)));
        assert!(matches!(link.reopen(LONG_TIMEOUT), Err(Fault::System { operation: "connect", .. })));
        assert!(matches!(link.receive(&mut [0], LONG_TIMEOUT), Err(Fault::Closed)));
        assert_eq!(link.send(b"lost", LONG_TIMEOUT).unwrap(), 4);
    }

    #[test]
    fn messages_move_in_batches_as_on_the_inner_link() {
        let remote = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("udp://{}?gso=0&gro=0", remote.local_addr().unwrap()).parse().unwrap();
        let mut link = ReopeningLink::open(&endpoint, &Registry::standard().dialer(Clock::System)).unwrap();
        link.tune(&Tuning { batch_message_bytes: Some(4), ..Tuning::default() });
        assert_eq!(link.send_batch(b"aaaabbbbcccc", 4, LONG_TIMEOUT).unwrap(), 12);
        let mut received = [0; 9];
        for _ in 0..3 {
            let (length, client) = remote.recv_from(&mut received).unwrap();
            remote.send_to(&received[..length], client).unwrap();
        }
        let mut batch = Batch::new(4, 10);
        link.receive_batch(&mut batch, LONG_TIMEOUT).unwrap();
        assert_eq!(batch.messages().collect::<Vec<_>>(), [b"aaaa", b"bbbb", b"cccc"]);
        assert_eq!(link.status().socket_drops, Some(0));
    }
}
