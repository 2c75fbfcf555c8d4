//! Accepting clients on a port: admit, refuse, or replace.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::thread::JoinHandle;
use std::time::Duration;

use super::client::PortClient;
use super::control::ControlSession;
use super::{BusyPolicy, DeviceServerEvent, SerialPort, spawn_thread};
use crate::link::party::CANCEL_CHECK_INTERVAL;
use crate::link::{Admission, Fault, Link, Listener};

/// Maximum wait of a new client for one that is about to disconnect.
const MAX_DISCONNECT_WAIT: Duration = Duration::from_millis(500);
/// How often to check for the disconnection.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// An admitted client.
struct ConnectedClient {
    client: Arc<PortClient>,
    /// To detect that it hangs up.
    link: Box<dyn Link>,
    session_thread: JoinHandle<()>,
}

impl SerialPort {
    /// Runs until the port closes. All sessions have ended then.
    pub fn accept_clients(self: Arc<SerialPort>, listener: &mut dyn Listener, line: &dyn Link) {
        let mut clients: Vec<ConnectedClient> = Vec::new();
        while !self.is_stopping() {
            let accepted = listener.accept(CANCEL_CHECK_INTERVAL, &mut |_, _, _| Admission::Drop);
            clients.retain(|client| !client.session_thread.is_finished());
            match accepted {
                Ok((link, from)) => {
                    if !self.make_room(&mut clients) {
                        self.refuse(from);
                        continue;
                    }
                    match self.start_session(link, from.clone(), line) {
                        Ok(client) => clients.push(client),
                        Err(_) => self.refuse(from),
                    }
                }
                Err(Fault::TimedOut) => {}
                // Usually no descriptor is free. Open sessions will release theirs.
                Err(_) => self.state.clock.sleep_until(self.state.clock.now() + CANCEL_CHECK_INTERVAL),
            }
        }
        for client in clients {
            // A session that panicked has already printed its message.
            let _ = client.session_thread.join();
        }
    }

    fn refuse(&self, from: String) {
        self.counters.refused.fetch_add(1, Relaxed);
        self.emit(DeviceServerEvent::Refused { port: self.number, from });
    }

    /// Returns true if one more client can be admitted. Waits for one that is about to disconnect.
    fn make_room(&self, clients: &mut Vec<ConnectedClient>) -> bool {
        if clients.len() < self.state.max_clients {
            return true;
        }
        if self.state.busy_policy == BusyPolicy::Replace {
            clients[0].client.end();
        }
        let clock = &self.state.clock;
        let until = clock.now() + MAX_DISCONNECT_WAIT;
        // A client that reconnects immediately must not be blocked by its own previous connection.
        while clients.iter().any(|client| client.client.has_ended() || client.link.status().is_hung_up)
            && clock.now() < until
        {
            clock.sleep_until(clock.now() + POLL_INTERVAL);
            clients.retain(|client| !client.session_thread.is_finished());
            if clients.len() < self.state.max_clients {
                return true;
            }
        }
        false
    }

    /// Starts a session.
    fn start_session(
        self: &Arc<SerialPort>,
        link: Box<dyn Link>,
        from: String,
        line: &dyn Link,
    ) -> Result<ConnectedClient, Fault> {
        let mut line = line.second_handle()?;
        let mut receiving = link.second_handle()?;
        let client = Arc::new(PortClient::new(from.clone(), link.second_handle()?, self.is_controllable));
        let begin = || ControlSession::start(&mut *line, &client, self);
        let control = self.is_controllable.then(begin).transpose()?;
        // Register first, so that the client receives the reply to its first command.
        self.register_client(&client);
        self.counters.sessions.fetch_add(1, Relaxed);
        self.emit(DeviceServerEvent::Connected { port: self.number, from });
        let (port, inside) = (self.clone(), client.clone());
        let session =
            spawn_thread("to line", move || port.serve_client(&inside, control, &mut *receiving, &mut *line));
        match session {
            Ok(session) => Ok(ConnectedClient { client, link, session_thread: session }),
            Err(fault) => {
                self.unregister_client(&client);
                Err(fault)
            }
        }
    }

    fn register_client(&self, client: &Arc<PortClient>) {
        let mut clients = self.clients.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        clients.push(client.clone());
        self.change_count.fetch_add(1, Release);
    }

    /// Removes a client. Returns true if it was the last one.
    pub fn unregister_client(&self, client: &Arc<PortClient>) -> bool {
        let mut clients = self.clients.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        clients.retain(|other| !Arc::ptr_eq(other, client));
        self.change_count.fetch_add(1, Release);
        clients.is_empty()
    }
}
