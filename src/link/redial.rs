//! A link that its party closes and opens again as often as it likes, to measure how long opening takes.
//!
//! Opening blocks the thread of the party, so such a link has no descriptor and keeps a thread.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use super::party::Tuning;
use super::serial_line::PortControl;
use super::{Batch, Caps, Dialer, Facts, Fault, Link, LinkError, LinkStatus};
use crate::endpoint::Endpoint;

/// A link between closing and opening. [`Link::finish_sending`] closes it, [`Link::reopen`] opens it.
pub struct RedialedLink {
    inner: Option<Box<dyn Link>>,
    caps: Caps,
    facts: Facts,
    endpoint: Endpoint,
    dialer: Dialer,
}

impl RedialedLink {
    /// Opens the link once, to learn what it supports.
    ///
    /// # Errors
    ///
    /// As [`Dialer::open`].
    pub fn open(endpoint: &Endpoint, dialer: &Dialer) -> Result<RedialedLink, LinkError> {
        let inner = dialer.open(endpoint)?;
        Ok(RedialedLink {
            caps: inner.caps().clone(),
            facts: inner.facts(),
            inner: Some(inner),
            endpoint: endpoint.clone(),
            dialer: Dialer { may_block: true, ..dialer.clone() },
        })
    }

    fn inner(&mut self) -> Result<&mut dyn Link, Fault> {
        match &mut self.inner {
            Some(inner) => Ok(inner.as_mut()),
            None => Err(Fault::Closed),
        }
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

    /// Each connection is too short to be tuned.
    fn tune(&mut self, _tuning: &Tuning) {}

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

    /// Blocks for the timeout of the dialer at most. A timeout is [`Fault::NoReply`], because opening has ended with it.
    fn reopen(&mut self, _within: Duration) -> Result<(), Fault> {
        let opened = self.dialer.open(&self.endpoint).map_err(|error| match error.fault {
            Fault::TimedOut => Fault::NoReply("no connection in time".to_owned()),
            fault => fault,
        });
        self.inner = Some(opened?);
        Ok(())
    }

    fn second_handle(&self) -> Result<Box<dyn Link>, Fault> {
        self.inner.as_ref().ok_or(Fault::Closed)?.second_handle()
    }

    fn port_control(&mut self) -> Option<&mut dyn PortControl> {
        self.inner.as_mut()?.port_control()
    }

    /// None: it changes with each connection.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
