//! From a client to the line: receive, write whole. One thread a session, which is also its life.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::client::{PortClient, STALL_TIMEOUT, SessionEnd, send_all};
use super::control::{ControlSession, restore_port};
use super::{DeviceServerEvent, SerialPort};
use crate::link::party::CANCEL_CHECK_INTERVAL;
use crate::link::{Fault, Link};

/// Room for what a client sends at once. The client's own system holds the rest, so this adds no queue to speak of.
const RECEIVE_BUFFER_BYTES: usize = 4096;

impl SerialPort {
    /// Runs a session to its end.
    pub fn serve_client(
        &self,
        client: &Arc<PortClient>,
        mut control: Option<ControlSession>,
        link: &mut dyn Link,
        line: &mut dyn Link,
    ) {
        let mut bytes = vec![0; RECEIVE_BUFFER_BYTES];
        let why = loop {
            if let Err(why) = self.forward_client(client, &mut control, link, line, &mut bytes) {
                break why.to_string();
            }
        };
        client.end();
        let last = self.unregister_client(client);
        // The client may have disconnected already.
        let _ = link.finish_sending();
        if self.is_controllable && last && !self.is_stopping() {
            let _ = restore_port(line, self).inspect_err(|fault| self.mark_lost(fault));
        }
        self.emit(DeviceServerEvent::Disconnected { port: self.number, from: client.address.clone(), why });
    }

    /// Forwards the bytes that the client sends within a short time.
    fn forward_client(
        &self,
        client: &PortClient,
        control: &mut Option<ControlSession>,
        link: &mut dyn Link,
        line: &mut dyn Link,
        bytes: &mut [u8],
    ) -> Result<(), SessionEnd> {
        if self.is_stopping() {
            return Err(SessionEnd::PortClosed);
        }
        if client.has_ended() {
            return Err(SessionEnd::MadeRoom);
        }
        let mut length = receive(link, bytes, CANCEL_CHECK_INTERVAL)?;
        let now = self.state.clock.now();
        if length > 0 && self.wait_for_turn(now) && length < bytes.len() {
            // A slow box moves all that is there when it comes to it. An end shows itself again.
            length += receive(link, &mut bytes[length..], Duration::ZERO).unwrap_or(0);
        }
        let bytes = &bytes[..length];
        let Some(control) = control else { return self.write_to_line(client, link, line, bytes) };
        control.process_input(bytes, line, client, self, |line, data| {
            self.write_to_line(client, link, line, data)
        })?;
        control.report_changes(now, line, client, self);
        Ok(())
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
