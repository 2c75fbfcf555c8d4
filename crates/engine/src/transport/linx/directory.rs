//! The endpoints of two connected nodes: ours with their mailboxes, the served name, and the published
//! endpoints of the remote node. Finds the mailbox of a message. No threads, no sockets.

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
pub(crate) struct ServedName {
    pub name: String,
    /// The endpoints made for clients have this name and a number.
    pub(crate) name_prefix: String,
    /// Prefix of the signals that each get a new endpoint. Without it each client has one endpoint.
    pub(crate) opening_prefix: Option<&'static [u8]>,
}

/// The target of one of our addresses.
#[derive(Debug)]
enum AddressRoute {
    Mailbox(Arc<Mailbox>),
    /// The served name: each sender gets a separate mailbox.
    ServedName,
}

#[derive(Debug, Default)]
pub(crate) struct EndpointDirectory {
    pub(crate) node: Node,
    served_name: Option<ServedName>,
    /// Number of endpoints made for clients so far.
    client_count: u32,
    /// Routes by our address.
    routes: HashMap<u32, AddressRoute>,
    /// Clients of the service by their address; `None` once the conversation has ended on our side.
    clients: HashMap<u32, Option<Arc<Mailbox>>>,
    /// Messages to send to the remote node.
    pub(crate) outbox: Vec<RlnhMessage>,
    /// New clients, with the mailbox made for each.
    pub(crate) arrivals: Vec<Arc<Mailbox>>,
}

impl EndpointDirectory {
    pub fn new(service: Option<ServedName>) -> EndpointDirectory {
        EndpointDirectory { served_name: service, ..EndpointDirectory::default() }
    }

    /// Handles a control message between the nodes. Returns `true` if something changed that others may wait
    /// for.
    pub(crate) fn handle_control(&mut self, bytes: &[u8]) -> Result<bool, DisconnectReason> {
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
        let of_partner = self.mailboxes().filter(|mailbox| mailbox.partner() == address);
        of_partner.for_each(|mailbox| mailbox.set_partner_gone());
    }

    fn handle_name_request(&mut self, name: &[u8]) {
        let served = self.served_name.as_ref().is_some_and(|service| service.name.as_bytes() == name);
        if served && let Some(address) = self.node.publish(name, &mut self.outbox) {
            self.routes.insert(address, AddressRoute::ServedName);
        }
    }

    /// The mailbox of a signal. A client's first signal to the service makes one.
    #[inline]
    pub(crate) fn mailbox_for(
        &mut self,
        source: u32,
        destination: u32,
        signal: &[u8],
    ) -> Option<&Arc<Mailbox>> {
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
        // A sender may not send before its address is known, and an end-of-flow signal starts no flow.
        if number == FINISHED_SIGNAL || !self.node.has_remote_address(source) {
            return None;
        }
        let name = format!("{}{:08}", service.name_prefix, self.client_count + 1);
        let own = self.node.publish(name.as_bytes(), &mut self.outbox)?;
        self.client_count += 1;
        let style = if number == PAYLOAD_SIGNAL { SignalFormat::Numbered } else { SignalFormat::Raw };
        let mailbox = Arc::new(Mailbox::new(own, source, style).with_fixed_partner());
        self.routes.insert(own, AddressRoute::Mailbox(mailbox.clone()));
        self.arrivals.push(mailbox.clone());
        self.clients.insert(source, Some(mailbox));
        self.clients.get(&source)?.as_ref()
    }

    /// Adds a mailbox for an endpoint of ours that will talk to `partner`.
    pub(crate) fn add_endpoint(&mut self, partner: u32, own: u32, style: SignalFormat) -> Arc<Mailbox> {
        let mailbox = Arc::new(Mailbox::new(own, partner, style));
        self.routes.insert(own, AddressRoute::Mailbox(mailbox.clone()));
        mailbox
    }

    /// The mailboxes of all our endpoints.
    pub(crate) fn mailboxes(&self) -> impl Iterator<Item = &Arc<Mailbox>> {
        self.routes.values().filter_map(|route| match route {
            AddressRoute::Mailbox(mailbox) => Some(mailbox),
            AddressRoute::ServedName => None,
        })
    }

    /// Removes an endpoint of ours.
    pub(crate) fn remove_endpoint(&mut self, own: u32) {
        if let Some(AddressRoute::Mailbox(mailbox)) = self.routes.remove(&own)
            && let Some(client) = self.clients.get_mut(&mailbox.partner())
            && client.as_ref().is_some_and(|latest| latest.own_address == own)
        {
            *client = None;
        }
        self.node.unpublish(own, &mut self.outbox);
    }

    /// Stops serving the name.
    pub(crate) fn stop_serving(&mut self) {
        self.served_name = None;
        let served = self.routes.iter().find(|(_, route)| matches!(route, AddressRoute::ServedName));
        if let Some(address) = served.map(|(address, _)| *address) {
            self.remove_endpoint(address);
        }
    }
}

/// The signal that announces to a client which endpoint serves it.
pub(crate) fn accepted_signal(mailbox: &Mailbox) -> Option<[u8; SIGNAL_NUMBER_BYTES]> {
    (mailbox.signal_format == SignalFormat::Numbered).then_some(ACCEPTED_SIGNAL.to_be_bytes())
}
