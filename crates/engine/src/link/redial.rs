//! A link that its party closes and opens again as often as it likes, to measure how long opening takes.
//!
//! Where opening blocks the thread of the party, such a link has no descriptor and keeps a thread.

use linkgauge_system::BorrowedHandle;
use std::io;
use std::time::Duration;

use super::fault::VANISHED;
use super::party::Tuning;
use super::serial_line::PortControl;
use super::{Batch, Caps, Dialer, Facts, Fault, Link, LinkDescriptor, LinkError, LinkStatus};
use crate::link::delegate::plain_link;
use linkgauge_model::clock::Time;
use linkgauge_model::endpoint::Endpoint;

/// A link between closing and opening. [`Link::finish_sending`] closes it, [`Link::reopen`] opens it.
pub(crate) struct RedialedLink {
    inner: Option<Box<dyn Link>>,
    caps: Caps,
    facts: Facts,
    endpoint: Endpoint,
    dialer: Dialer,
    /// Opening does not block.
    can_begin: bool,
    /// The inner link is being opened, until this time at the latest.
    opening_until: Option<Time>,
    /// Tuning of each connection.
    tuning: Option<Tuning>,
}

impl RedialedLink {
    /// Opens the link once, to learn what it supports.
    ///
    /// # Errors
    ///
    /// As [`Dialer::open`].
    pub(crate) fn open(endpoint: &Endpoint, dialer: &Dialer) -> Result<RedialedLink, LinkError> {
        let inner = dialer.open(endpoint)?;
        // Neither the look-up of the name nor a dead address is part of what is measured.
        let endpoint = dialer.connected_endpoint(endpoint, inner.as_ref());
        let can_begin = dialer.can_begin_open(&endpoint);
        // Elsewhere opening blocks the thread.
        let descriptor = if can_begin { LinkDescriptor::Replaced } else { LinkDescriptor::None };
        Ok(RedialedLink {
            caps: Caps { descriptor, ..inner.caps().clone() },
            facts: inner.facts(),
            inner: Some(inner),
            endpoint,
            dialer: Dialer { may_block: true, ..dialer.clone() },
            can_begin,
            opening_until: None,
            tuning: None,
        })
    }

    /// Begins to open the link, or continues; see [`Link::reopen`].
    fn continue_opening(&mut self, within: Duration) -> Result<(), Fault> {
        let now = self.dialer.now();
        let until = match self.opening_until {
            Some(until) => until,
            None => {
                self.inner = Some(self.dialer.begin_open(&self.endpoint).map_err(|error| error.fault)?);
                *self.opening_until.insert(now + self.dialer.timeout)
            }
        };
        let opened = self.inner()?.reopen(within.min(until.since(now)));
        if matches!(opened, Err(Fault::TimedOut)) && now < until {
            return opened;
        }
        self.opening_until = None;
        if opened.is_err() {
            self.inner = None;
        }
        match opened {
            Err(Fault::TimedOut) => Err(Fault::NoReply(NO_CONNECTION.to_owned())),
            opened => opened,
        }
    }

    fn inner(&mut self) -> Result<&mut dyn Link, Fault> {
        match &mut self.inner {
            Some(inner) => Ok(inner.as_mut()),
            None => Err(Fault::Closed),
        }
    }
}

const NO_CONNECTION: &str = "no connection in time";

/// A server that refuses a connection had accepted the first one, so it has ended since.
fn after_the_first(fault: Fault) -> Fault {
    match fault {
        Fault::System { source, .. } if source.kind() == io::ErrorKind::ConnectionRefused => {
            Fault::System { operation: VANISHED, source }
        }
        fault => fault,
    }
}

impl Link for RedialedLink {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn facts(&self) -> Facts {
        self.facts.clone()
    }

    fn status(&self) -> LinkStatus {
        self.inner.as_ref().map_or_else(LinkStatus::default, |inner| inner.status())
    }

    fn tune(&mut self, tuning: &Tuning) {
        self.tuning = Some(*tuning);
        if let Some(inner) = &mut self.inner {
            inner.tune(tuning);
        }
    }

    fn send(&mut self, bytes: &[u8], within: Duration) -> Result<usize, Fault> {
        self.inner()?.send(bytes, within)
    }

    fn receive(&mut self, into: &mut [u8], within: Duration) -> Result<usize, Fault> {
        self.inner()?.receive(into, within)
    }

    fn send_batch(&mut self, messages: &[u8], message: usize, within: Duration) -> Result<usize, Fault> {
        self.inner()?.send_batch(messages, message, within)
    }

    fn receive_batch(&mut self, into: &mut Batch, within: Duration) -> Result<(), Fault> {
        self.inner()?.receive_batch(into, within)
    }

    /// Closes the connection with a reset, where there is one: the ports of thousands of connections that were closed in order
    /// would be taken for a minute.
    fn finish_sending(&mut self) -> Result<(), Fault> {
        if let Some(mut inner) = self.inner.take() {
            inner.abort();
        }
        Ok(())
    }

    fn abort(&mut self) {
        if let Some(inner) = &mut self.inner {
            inner.abort();
        }
    }

    /// Takes the timeout of the dialer at most, and blocks for that time where opening blocks. A timeout is
    /// [`Fault::NoReply`], because opening has ended with it.
    fn reopen(&mut self, within: Duration) -> Result<(), Fault> {
        if self.can_begin {
            self.continue_opening(within).map_err(after_the_first)?;
        } else {
            let opened = self.dialer.open(&self.endpoint).map_err(|error| match error.fault {
                Fault::TimedOut => Fault::NoReply(NO_CONNECTION.to_owned()),
                fault => after_the_first(fault),
            });
            self.inner = Some(opened?);
        }
        if let (Some(inner), Some(tuning)) = (&mut self.inner, &self.tuning) {
            inner.tune(tuning);
        }
        Ok(())
    }

    fn second_handle(&self) -> Result<Box<dyn Link>, Fault> {
        self.inner.as_ref().ok_or(Fault::Closed)?.second_handle()
    }

    fn port_control(&mut self) -> Option<&mut dyn PortControl> {
        self.inner.as_mut()?.port_control()
    }

    /// Descriptor, which changes with each connection.
    fn descriptor(&self) -> Option<BorrowedHandle<'_>> {
        self.inner.as_ref().filter(|_| self.can_begin)?.descriptor()
    }

    plain_link!(read_send_stamps);
}
