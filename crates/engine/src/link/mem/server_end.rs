//! The server's end of a link in memory. It never waits: the network runs the servers.

use std::time::Duration;

use super::MemDirection;
use crate::link::delegate::plain_link;
use crate::link::{Caps, Facts, Fault, Link, LinkStatus};
use linkgauge_model::clock::Time;

/// One end of a connection, for one step of its server.
pub(crate) struct ServerEnd<'a> {
    /// Path and pipe from the client.
    pub(crate) forward: &'a mut MemDirection,
    /// Path and pipe to the client.
    pub(crate) reverse: &'a mut MemDirection,
    pub(crate) caps: &'a Caps,
    pub(crate) now: Time,
}

impl Link for ServerEnd<'_> {
    fn caps(&self) -> &Caps {
        self.caps
    }

    fn facts(&self) -> Facts {
        Facts::new()
    }

    fn status(&self) -> LinkStatus {
        LinkStatus {
            is_hung_up: self.forward.pipe.is_finished(),
            unacknowledged_bytes: Some(self.reverse.pipe.held_bytes() as u64),
            ..LinkStatus::default()
        }
    }

    fn send(&mut self, bytes: &[u8], _within: Duration) -> Result<usize, Fault> {
        self.reverse.send(bytes, self.now)?.ok_or(Fault::TimedOut)
    }

    fn receive(&mut self, into: &mut [u8], _within: Duration) -> Result<usize, Fault> {
        match self.forward.pipe.receive(into, self.now) {
            Some(length) => Ok(length),
            None if self.forward.pipe.is_ended(self.now) => Err(Fault::Closed),
            None => Err(Fault::TimedOut),
        }
    }

    fn finish_sending(&mut self) -> Result<(), Fault> {
        self.reverse.close();
        Ok(())
    }

    fn abort(&mut self) {
        self.forward.close();
        self.reverse.close();
    }

    /// A server does not open its link again.
    fn reopen(&mut self, _within: Duration) -> Result<(), Fault> {
        Err(Fault::Closed)
    }

    fn second_handle(&self) -> Result<Box<dyn Link>, Fault> {
        Err(Fault::Unsupported("a server in memory has one handle of its link".to_owned()))
    }

    plain_link!(tune send_batch receive_batch read_send_stamps port_control descriptor);
}
