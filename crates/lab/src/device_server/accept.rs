//! Accepting clients on all ports: admit, refuse, or replace. One thread for all listeners.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::thread::JoinHandle;
use std::time::Duration;

use super::client::{ClientEncoding, PortClient};
use super::control::ControlSession;
use super::session::Session;
use super::threads::{PortMember, PortThread};
use super::{BusyPolicy, DeviceServerEvent, DeviceServerState, ServedPort, spawn_thread};
use linkgauge_engine::link::party::CANCEL_CHECK_INTERVAL;
use linkgauge_engine::link::{Admission, Fault, Link, Listener};
use linkgauge_model::clock::Time;
use linkgauge_system::{EventFlags, EventQueue, Events};

/// Maximum wait of a new client for one that is about to disconnect.
const MAX_DISCONNECT_WAIT: Duration = Duration::from_millis(500);
/// Interval between checks for the disconnection.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Maximum events of one wait.
const MAX_EVENTS: usize = 64;

/// An admitted client, and the thread of its session if it has one.
struct ConnectedClient {
    client: Arc<PortClient>,
    session_thread: Option<JoinHandle<()>>,
}

impl ConnectedClient {
    fn is_gone(&self) -> bool {
        // A thread that panicked has not reported the end of its session.
        self.client.is_gone() || self.session_thread.as_ref().is_some_and(JoinHandle::is_finished)
    }
}

/// A client that waits for a place.
struct WaitingClient {
    link: Box<dyn Link>,
    from: String,
    until: Time,
}

/// The listener of a port and the clients that it has admitted.
pub(crate) struct PortListener {
    port: Arc<ServedPort>,
    listener: Box<dyn Listener>,
    /// The handle of the line that sessions get theirs from.
    line: Box<dyn Link>,
    thread: Arc<PortThread>,
    clients: Vec<ConnectedClient>,
    waiting: Option<WaitingClient>,
}

impl Drop for PortListener {
    fn drop(&mut self) {
        for thread in self.clients.drain(..).filter_map(|client| client.session_thread) {
            // A session that panicked has already printed its message.
            let _ = thread.join();
        }
    }
}

/// Accepts the clients of all ports until the server stops. All sessions with threads of their own have ended then.
pub(crate) fn serve_ports(state: &DeviceServerState, ports: Vec<PortListener>) -> Result<(), Fault> {
    let queue = EventQueue::new().map_err(Fault::system("make an event descriptor"))?;
    for (index, port_listener) in ports.iter().enumerate() {
        if let Some(listener) = port_listener.listener.descriptor() {
            queue.add(listener, index as u64, EventFlags::IN).map_err(Fault::system("watch a listener"))?;
        }
    }
    let mut ports: Vec<Option<PortListener>> = ports.into_iter().map(Some).collect();
    let mut check_at = Time(0);
    while !state.stop.load(Relaxed) {
        let is_awaited = ports.iter().flatten().any(|port_listener| port_listener.waiting.is_some());
        let wait = if is_awaited { POLL_INTERVAL } else { CANCEL_CHECK_INTERVAL };
        let mut events = Events::<MAX_EVENTS>::new();
        // An interrupted wait is repeated.
        if queue.wait(&mut events, wait).is_err() {
            continue;
        }
        let now = state.clock.now();
        let is_check = now >= check_at;
        if is_check {
            check_at = now + CANCEL_CHECK_INTERVAL;
        }
        for (index, _) in events.iter() {
            if let Some(Some(port_listener)) = ports.get_mut(index as usize) {
                port_listener.accept_clients(now);
            }
        }
        for slot in &mut ports {
            let Some(port_listener) = slot else { continue };
            if port_listener.waiting.is_some() || is_check && port_listener.listener.descriptor().is_none() {
                port_listener.accept_clients(now);
            }
            if is_check && port_listener.port.is_stopping() {
                *slot = None;
            }
        }
    }
    Ok(())
}

impl PortListener {
    pub fn new(
        port: &Arc<ServedPort>,
        listener: Box<dyn Listener>,
        line: Box<dyn Link>,
        thread: &Arc<PortThread>,
    ) -> PortListener {
        let (port, thread) = (port.clone(), thread.clone());
        PortListener { port, listener, line, thread, clients: Vec::new(), waiting: None }
    }

    /// Admits or refuses the clients that have come, as far as none has to wait for a place.
    fn accept_clients(&mut self, now: Time) {
        self.clients.retain(|client| !client.is_gone());
        loop {
            let WaitingClient { link, from, until } = match self.waiting.take() {
                Some(waiting) => waiting,
                None => match self.listener.accept(Duration::ZERO, &mut |_, _, _| Admission::Drop) {
                    Ok((link, from)) => self.receive_client(link, from, now),
                    Err(Fault::TimedOut) => return,
                    Err(_) => {
                        // Usually no descriptor is free. Open sessions will release theirs.
                        let clock = &self.port.state.clock;
                        clock.sleep_until(now + CANCEL_CHECK_INTERVAL);
                        return;
                    }
                },
            };
            if self.clients.len() < self.port.state.max_clients {
                match self.start_session(link, from.clone()) {
                    Ok(client) => self.clients.push(client),
                    Err(_) => self.refuse(from),
                }
            } else if now < until && self.clients.iter().any(|client| client.client.may_be_leaving()) {
                self.waiting = Some(WaitingClient { link, from, until });
                return;
            } else {
                self.refuse(from);
            }
        }
    }

    /// A new client. It may have to wait for one that is about to disconnect: a client that reconnects immediately must not
    /// be refused because of its own previous connection.
    fn receive_client(&self, link: Box<dyn Link>, from: String, now: Time) -> WaitingClient {
        let DeviceServerState { max_clients, busy_policy, .. } = *self.port.state;
        if self.clients.len() >= max_clients && busy_policy == BusyPolicy::Replace {
            self.clients[0].client.end();
        }
        WaitingClient { link, from, until: now + MAX_DISCONNECT_WAIT }
    }

    fn refuse(&self, from: String) {
        self.port.counters.refused.fetch_add(1, Relaxed);
        self.port.emit(DeviceServerEvent::Refused { port: self.port.number, from });
    }

    /// Starts a session: in the thread of the port, or in one of its own if it controls the port, which takes time.
    fn start_session(&self, link: Box<dyn Link>, from: String) -> Result<ConnectedClient, Fault> {
        let port = &self.port;
        let mut line = self.line.second_handle()?;
        let mut receiving = link.second_handle()?;
        let encoding = if port.is_controllable { ClientEncoding::Telnet } else { ClientEncoding::Raw };
        let client = Arc::new(PortClient::new(from.clone(), link, encoding));
        let begin = || ControlSession::start(&mut *line, &client, port);
        let control = port.is_controllable.then(begin).transpose()?;
        // Register first, so that the client receives the reply to its first command.
        port.register_client(&client);
        port.counters.sessions.fetch_add(1, Relaxed);
        port.emit(DeviceServerEvent::Connected { port: port.number, from });
        let session = match control {
            None => {
                let session = Session::new(port, &client, line);
                self.thread.add(PortMember::Session(session, receiving))
            }
            Some(control) => {
                let (port, inside) = (port.clone(), client.clone());
                let run = move || port.serve_client(&inside, control, &mut *receiving, &mut *line);
                spawn_thread("to line", run).map(Some)
            }
        };
        match session {
            Ok(session_thread) => Ok(ConnectedClient { client, session_thread }),
            Err(fault) => {
                port.unregister_client(&client);
                Err(fault)
            }
        }
    }
}

impl ServedPort {
    fn register_client(&self, client: &Arc<PortClient>) {
        let mut clients = self.clients.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        clients.push(client.clone());
        self.change_count.fetch_add(1, Release);
    }

    /// Removes a client. Returns true if it was the last one.
    pub(crate) fn unregister_client(&self, client: &Arc<PortClient>) -> bool {
        let mut clients = self.clients.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        clients.retain(|other| !Arc::ptr_eq(other, client));
        self.change_count.fetch_add(1, Release);
        clients.is_empty()
    }
}
