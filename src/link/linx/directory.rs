//! Who is who between two nodes: our endpoints and their mailboxes, the name we serve, and the far node's words about
//! its own. Told of messages, it says whose they are. No threads, no sockets.

use std::collections::HashMap;
use std::sync::Arc;

use super::DisconnectReason;
use super::mailbox::{
    ACCEPTED_SIGNAL, FINISHED_SIGNAL, Mailbox, PAYLOAD_SIGNAL, SIGNAL_NUMBER_BYTES, SignalFormat,
};
use super::node::{Node, NodeEvent};
use super::rlnh::RlnhMessage;

/// The name that a listener serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedName {
    pub name: String,
    /// The ends that it makes for its clients are called this and a number.
    pub name_prefix: String,
    /// A signal that begins like this gets an end of its own each time; otherwise each client has one.
    pub opening_prefix: Option<&'static [u8]>,
}

/// Where an address of ours leads.
#[derive(Debug)]
enum AddressRoute {
    Mailbox(Arc<Mailbox>),
    /// The name that is served: each sender gets a mailbox of its own.
    ServedName,
}

#[derive(Debug, Default)]
pub struct EndpointDirectory {
    pub node: Node,
    served_name: Option<ServedName>,
    /// Ends made for clients so far.
    client_count: u32,
    /// By our address.
    routes: HashMap<u32, AddressRoute>,
    /// Who talks to the service: by their address, `None` once that is over on our side.
    clients: HashMap<u32, Option<Arc<Mailbox>>>,
    /// To be said to the far node.
    pub outbox: Vec<RlnhMessage>,
    /// Clients that have come, with the mailbox made for each.
    pub arrivals: Vec<Arc<Mailbox>>,
}

impl EndpointDirectory {
    pub fn new(service: Option<ServedName>) -> EndpointDirectory {
        EndpointDirectory { served_name: service, ..EndpointDirectory::default() }
    }

    /// A message between the nodes; true if something has changed that others may wait for.
    pub fn handle_control(&mut self, bytes: &[u8]) -> Result<bool, DisconnectReason> {
        let event = self.node.handle_bytes(bytes, &mut self.outbox)?;
        match &event {
            NodeEvent::Nothing => return Ok(false),
            NodeEvent::EndpointGone(address) => self.handle_partner_gone(*address),
            NodeEvent::NameRequested(name) => self.handle_name_request(name),
            NodeEvent::Up | NodeEvent::EndpointPublished(_) => {}
        }
        Ok(true)
    }

    fn handle_partner_gone(&mut self, address: u32) {
        self.clients.remove(&address);
        for route in self.routes.values() {
            if let AddressRoute::Mailbox(mailbox) = route
                && mailbox.partner() == address
            {
                mailbox.set_partner_gone();
            }
        }
    }

    fn handle_name_request(&mut self, name: &[u8]) {
        let served = self.served_name.as_ref().is_some_and(|service| service.name.as_bytes() == name);
        if served && let Some(address) = self.node.publish(name, &mut self.outbox) {
            self.routes.insert(address, AddressRoute::ServedName);
        }
    }

    /// The mailbox that a signal is for. A client's first signal to the service makes one.
    #[inline]
    pub fn mailbox_for(&mut self, source: u32, destination: u32, signal: &[u8]) -> Option<&Arc<Mailbox>> {
        match self.routes.get(&destination)? {
            AddressRoute::Mailbox(_) => match self.routes.get(&destination) {
                Some(AddressRoute::Mailbox(mailbox)) => Some(mailbox),
                _ => None,
            },
            AddressRoute::ServedName => self.client_mailbox(source, signal),
        }
    }

    fn client_mailbox(&mut self, source: u32, signal: &[u8]) -> Option<&Arc<Mailbox>> {
        let service = self.served_name.as_ref()?;
        let begins = service.opening_prefix.is_some_and(|begins| signal.starts_with(begins));
        if !begins && self.clients.contains_key(&source) {
            return self.clients.get(&source)?.as_ref();
        }
        let number = u32::from_be_bytes(*signal.first_chunk::<SIGNAL_NUMBER_BYTES>()?);
        // Nobody may speak before its address is known, and the end of a flow begins none.
        if number == FINISHED_SIGNAL || !self.node.has_remote_address(source) {
            return None;
        }
        let name = format!("{}{:08}", service.name_prefix, self.client_count + 1);
        let own = self.node.publish(name.as_bytes(), &mut self.outbox)?;
        self.client_count += 1;
        let style = if number == PAYLOAD_SIGNAL { SignalFormat::Numbered } else { SignalFormat::Raw };
        let mailbox = Arc::new(Mailbox::new(own, source, style, true));
        self.routes.insert(own, AddressRoute::Mailbox(mailbox.clone()));
        self.arrivals.push(mailbox.clone());
        self.clients.insert(source, Some(mailbox));
        self.clients.get(&source)?.as_ref()
    }

    /// A mailbox for an endpoint of ours that will talk to `partner`.
    pub fn add_endpoint(&mut self, partner: u32, own: u32, style: SignalFormat) -> Arc<Mailbox> {
        let mailbox = Arc::new(Mailbox::new(own, partner, style, false));
        self.routes.insert(own, AddressRoute::Mailbox(mailbox.clone()));
        mailbox
    }

    /// An endpoint of ours is gone.
    pub fn remove_endpoint(&mut self, own: u32) {
        if let Some(AddressRoute::Mailbox(mailbox)) = self.routes.remove(&own)
            && let Some(client) = self.clients.get_mut(&mailbox.partner())
            && client.as_ref().is_some_and(|latest| latest.own_address == own)
        {
            *client = None;
        }
        self.node.unpublish(own, &mut self.outbox);
    }

    /// The name is served no longer.
    pub fn stop_serving(&mut self) {
        self.served_name = None;
        let served = self.routes.iter().find(|(_, route)| matches!(route, AddressRoute::ServedName));
        if let Some(address) = served.map(|(address, _)| *address) {
            self.remove_endpoint(address);
        }
    }
}

/// What tells a client from where it is served.
pub fn accepted_signal(mailbox: &Mailbox) -> Option<[u8; SIGNAL_NUMBER_BYTES]> {
    (mailbox.signal_format == SignalFormat::Numbered).then_some(ACCEPTED_SIGNAL.to_be_bytes())
}
