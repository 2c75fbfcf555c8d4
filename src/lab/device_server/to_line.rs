//! From a client to the line: receive, write whole. One thread a session, which is also its life.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::client::{Client, send_whole};
use super::{Event, SerialPort};
use crate::link::party::SLICE;
use crate::link::{Fault, Link};

/// Room for what a client sends at once. The client's own system holds the rest, so this adds no queue to speak of.
const ROOM: usize = 4096;

/// A line that takes nothing of what a client left behind keeps the port from others for so long.
const PATIENCE: Duration = Duration::from_secs(1);

impl SerialPort {
    /// Runs a session to its end.
    pub fn serve_client(&self, client: &Arc<Client>, link: &mut dyn Link, line: &mut dyn Link) {
        let why = self.pass_on_from(client, link, line);
        client.end();
        self.leave(client);
        // The client may be gone already.
        let _ = link.finish();
        self.tell(Event::Gone { port: self.number, from: client.from.clone(), why });
    }

    /// Returns why it ended.
    fn pass_on_from(&self, client: &Client, link: &mut dyn Link, line: &mut dyn Link) -> String {
        let mut bytes = vec![0; ROOM];
        loop {
            if self.is_over() {
                return "the port closed".to_owned();
            }
            if client.has_ended() {
                return "it had to make room".to_owned();
            }
            let mut length = match link.receive(&mut bytes, SLICE) {
                Ok(length) => length,
                Err(Fault::TimedOut) => continue,
                Err(Fault::Closed) => return "it closed the link".to_owned(),
                Err(fault) => return fault.to_string(),
            };
            if self.wait_for_turn(self.common.clock.now()) && length < bytes.len() {
                // A slow box moves all that is there when it comes to it. An end shows itself again.
                length += link.receive(&mut bytes[length..], Duration::ZERO).unwrap_or(0);
            }
            let go_on = |stuck| {
                let left_behind = stuck >= PATIENCE && link.hung_up();
                !self.is_over() && !client.has_ended() && !left_behind
            };
            match send_whole(line, &bytes[..length], go_on) {
                Ok(()) => _ = self.counters.to_line.fetch_add(length as u64, Relaxed),
                Err(Fault::TimedOut) if link.hung_up() => {
                    return "it closed the link, and the line did not take what it had sent".to_owned();
                }
                // Why is seen at once.
                Err(Fault::TimedOut) => {}
                Err(fault) => self.lose(&fault),
            }
        }
    }
}
