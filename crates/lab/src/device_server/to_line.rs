//! Moves data from a client that controls its port to the line: receives, and writes all of it. Each client has one thread, which
//! lives as long as the session.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::client::{PortClient, STALL_TIMEOUT, SessionEnd, send_all};
use super::control::{ControlSession, restore_port};
use super::line_feed::LineFeed;
use super::processor::Transfer;
use super::{DeviceServerEvent, ServedPort};
use linkgauge_engine::link::party::CANCEL_CHECK_INTERVAL;
use linkgauge_engine::link::{Fault, Link};

/// Room for what a client sends at once. The client's own system holds the rest, so this adds no queue to speak of.
pub(crate) const RECEIVE_BUFFER_BYTES: usize = 4096;

impl ServedPort {
    /// Runs a session to its end.
    pub(crate) fn serve_client(
        &self,
        client: &Arc<PortClient>,
        mut control: ControlSession,
        link: &mut dyn Link,
        line: &mut dyn Link,
    ) {
        let block = self.state.processor.costs().block_bytes;
        let mut bytes = vec![0; if block == 0 { RECEIVE_BUFFER_BYTES } else { block }];
        let mut feed = self.line_feed();
        self.state.processor.open_session();
        let why = loop {
            self.wait_until(feed.ready_at());
            match self.forward_client(client, &mut control, link, line, &mut bytes) {
                Ok(0) => {}
                Ok(length) if block > 0 => self.place_block(&mut feed, length),
                Ok(_) => {}
                Err(why) => break why.to_string(),
            }
        };
        self.state.processor.close_session();
        client.end();
        let last = self.unregister_client(client);
        client.finish_sending();
        if last && !self.is_stopping() {
            let _ = restore_port(line, self).inspect_err(|fault| self.mark_lost(fault));
        }
        self.emit(DeviceServerEvent::Disconnected { port: self.number, from: client.address.clone(), why });
        client.set_gone();
    }

    /// Records a block on the line.
    pub(crate) fn place_block(&self, feed: &mut LineFeed, bytes: usize) {
        let processor = &self.state.processor;
        let next = Transfer { bytes: processor.costs().block_bytes, from_line: None };
        feed.place(bytes, processor.cost(next), self.state.clock.now());
    }

    /// Forwards the bytes that the client sends within a short time, and returns their number.
    fn forward_client(
        &self,
        client: &PortClient,
        control: &mut ControlSession,
        link: &mut dyn Link,
        line: &mut dyn Link,
        bytes: &mut [u8],
    ) -> Result<usize, SessionEnd> {
        if self.is_stopping() {
            return Err(SessionEnd::PortClosed);
        }
        if client.has_ended() {
            return Err(SessionEnd::MadeRoom);
        }
        let mut length = receive(link, bytes, CANCEL_CHECK_INTERVAL)?;
        let now = self.state.clock.now();
        let transfer = Transfer { bytes: length, from_line: None };
        if length > 0 && self.wait_for_turn(transfer, now) && length < bytes.len() {
            // A slow box moves all that is there when it comes to it. An end shows itself again.
            length += receive(link, &mut bytes[length..], Duration::ZERO).unwrap_or(0);
        }
        let bytes = &bytes[..length];
        control.process_input(bytes, line, client, self, |line, data| {
            self.write_to_line(client, link, line, data)
        })?;
        control.report_changes(now, line, client, self);
        Ok(length)
    }

    /// Puts all of it on the line, however slow that is, unless there is a reason to end the session.
    fn write_to_line(
        &self,
        client: &PortClient,
        link: &dyn Link,
        line: &mut dyn Link,
        bytes: &[u8],
    ) -> Result<(), SessionEnd> {
        // What a client has left behind is for the line, unless the line does not want it.
        let left_behind = |stuck| stuck >= STALL_TIMEOUT && link.status().is_hung_up;
        let go_on = |stuck| !self.is_stopping() && !client.has_ended() && !left_behind(stuck);
        match send_all(line, bytes, go_on) {
            Ok(()) => _ = self.counters.to_line.fetch_add(bytes.len() as u64, Relaxed),
            Err(Fault::TimedOut) if link.status().is_hung_up => {
                return Err(SessionEnd::ClosedWithRest);
            }
            // Why is seen before anything else is received.
            Err(Fault::TimedOut) => {}
            Err(fault) => self.mark_lost(&fault),
        }
        Ok(())
    }
}

/// The bytes that arrive within the time; may be none.
fn receive(link: &mut dyn Link, into: &mut [u8], within: Duration) -> Result<usize, SessionEnd> {
    match link.receive(into, within) {
        Err(Fault::TimedOut) => Ok(0),
        Err(Fault::Closed) => Err(SessionEnd::Closed),
        received => Ok(received?),
    }
}
