//! The door of a port: who is let in, who is refused, who has to make room.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::thread::JoinHandle;
use std::time::Duration;

use super::client::Client;
use super::control::Control;
use super::{Busy, Event, SerialPort, thread};
use crate::link::party::SLICE;
use crate::link::{Admission, Fault, Link, Listener};

/// A client that is known to go keeps the next one waiting for so long at most.
const MAKING_ROOM: Duration = Duration::from_millis(500);
/// How often it is looked whether it has gone.
const LOOK: Duration = Duration::from_millis(1);

/// Somebody who was let in.
struct Guest {
    client: Arc<Client>,
    /// To see that it hangs up.
    link: Box<dyn Link>,
    session: JoinHandle<()>,
}

impl SerialPort {
    /// Runs until the port is over; all sessions are ended then.
    pub fn accept(self: Arc<SerialPort>, listener: &mut dyn Listener, line: &dyn Link) {
        let mut guests: Vec<Guest> = Vec::new();
        while !self.is_over() {
            let accepted = listener.accept(SLICE, &mut |_, _, _| Admission::Drop);
            guests.retain(|guest| !guest.session.is_finished());
            match accepted {
                Ok((link, from)) => {
                    if !self.make_room(&mut guests) {
                        self.refuse(from);
                        continue;
                    }
                    match self.admit(link, from.clone(), line) {
                        Ok(guest) => guests.push(guest),
                        Err(_) => self.refuse(from),
                    }
                }
                Err(Fault::TimedOut) => {}
                // Out of descriptors, usually: those in use will be freed.
                Err(_) => self.common.clock.sleep_until(self.common.clock.now() + SLICE),
            }
        }
        for guest in guests {
            // A session that panicked has said so already.
            let _ = guest.session.join();
        }
    }

    fn refuse(&self, from: String) {
        self.counters.refused.fetch_add(1, Relaxed);
        self.tell(Event::Refused { port: self.number, from });
    }

    /// Whether there is a place for one more. Waits for one that is about to go.
    fn make_room(&self, guests: &mut Vec<Guest>) -> bool {
        if guests.len() < self.common.clients {
            return true;
        }
        if self.common.busy == Busy::Replace {
            guests[0].client.end();
        }
        let clock = &self.common.clock;
        let until = clock.now() + MAKING_ROOM;
        // Who reconnects at once must not find the port taken by its own last connection.
        while guests.iter().any(|guest| guest.client.has_ended() || guest.link.hung_up())
            && clock.now() < until
        {
            clock.sleep_until(clock.now() + LOOK);
            guests.retain(|guest| !guest.session.is_finished());
            if guests.len() < self.common.clients {
                return true;
            }
        }
        false
    }

    /// Starts a session.
    fn admit(
        self: &Arc<SerialPort>,
        link: Box<dyn Link>,
        from: String,
        line: &dyn Link,
    ) -> Result<Guest, Fault> {
        let mut line = line.other_half()?;
        let mut receiving = link.other_half()?;
        let client = Arc::new(Client::new(from.clone(), link.other_half()?, self.controlled));
        let begin = || Control::begin(&mut *line, &client, self);
        let control = self.controlled.then(begin).transpose()?;
        // Before it can ask anything, so that it gets the answer.
        self.enter(&client);
        self.counters.sessions.fetch_add(1, Relaxed);
        self.tell(Event::Connected { port: self.number, from });
        let (port, inside) = (self.clone(), client.clone());
        let session =
            thread("to line", move || port.serve_client(&inside, control, &mut *receiving, &mut *line));
        match session {
            Ok(session) => Ok(Guest { client, link, session }),
            Err(fault) => {
                self.leave(&client);
                Err(fault)
            }
        }
    }

    fn enter(&self, client: &Arc<Client>) {
        let mut clients = self.clients.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        clients.push(client.clone());
        self.changes.fetch_add(1, Release);
    }

    /// Whether it was the last.
    pub fn leave(&self, client: &Arc<Client>) -> bool {
        let mut clients = self.clients.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        clients.retain(|other| !Arc::ptr_eq(other, client));
        self.changes.fetch_add(1, Release);
        clients.is_empty()
    }
}
