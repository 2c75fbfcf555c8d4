//! Who is who between two nodes: our endpoints and their mailboxes, the name we serve, and the far node's words about
//! its own. Told of messages, it says whose they are. No threads, no sockets.

use std::collections::HashMap;
use std::sync::Arc;

use super::Ending;
use super::mailbox::{ACCEPTED, FINISHED, Mailbox, PAYLOAD, SIGNAL, Style};
use super::node::{Event, Node};
use super::rlnh::Message;

/// The name that a listener serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    pub name: String,
    /// The ends that it makes for its clients are called this and a number.
    pub ends: String,
    /// A signal that begins like this gets an end of its own each time; otherwise each client has one.
    pub begins: Option<&'static [u8]>,
}

/// Where an address of ours leads.
#[derive(Debug)]
enum Route {
    Mailbox(Arc<Mailbox>),
    /// The name that is served: each sender gets a mailbox of its own.
    Service,
}

#[derive(Debug, Default)]
pub struct Book {
    pub node: Node,
    service: Option<Service>,
    /// Ends made for clients so far.
    ends: u32,
    /// By our address.
    routes: HashMap<u32, Route>,
    /// Who talks to the service: by their address, `None` once that is over on our side.
    clients: HashMap<u32, Option<Arc<Mailbox>>>,
    /// To be said to the far node.
    pub said: Vec<Message>,
    /// Clients that have come, with the mailbox made for each.
    pub arrived: Vec<Arc<Mailbox>>,
}

impl Book {
    pub fn new(service: Option<Service>) -> Book {
        Book { service, ..Book::default() }
    }

    /// A message between the nodes; true if something has changed that others may wait for.
    pub fn control(&mut self, bytes: &[u8]) -> Result<bool, Ending> {
        let event = self.node.received(bytes, &mut self.said)?;
        match &event {
            Event::Nothing => return Ok(false),
            Event::Gone(address) => self.partner_gone(*address),
            Event::Wanted(name) => self.wanted(name),
            Event::Up | Event::Appeared(_) => {}
        }
        Ok(true)
    }

    fn partner_gone(&mut self, address: u32) {
        self.clients.remove(&address);
        for route in self.routes.values() {
            if let Route::Mailbox(mailbox) = route
                && mailbox.partner() == address
            {
                mailbox.partner_gone();
            }
        }
    }

    fn wanted(&mut self, name: &[u8]) {
        let served = self.service.as_ref().is_some_and(|service| service.name.as_bytes() == name);
        if served && let Some(address) = self.node.publish(name, &mut self.said) {
            self.routes.insert(address, Route::Service);
        }
    }

    /// The mailbox that a signal is for. A client's first signal to the service makes one.
    #[inline]
    pub fn mailbox(&mut self, source: u32, destination: u32, signal: &[u8]) -> Option<&Arc<Mailbox>> {
        match self.routes.get(&destination)? {
            Route::Mailbox(_) => match self.routes.get(&destination) {
                Some(Route::Mailbox(mailbox)) => Some(mailbox),
                _ => None,
            },
            Route::Service => self.client(source, signal),
        }
    }

    fn client(&mut self, source: u32, signal: &[u8]) -> Option<&Arc<Mailbox>> {
        let service = self.service.as_ref()?;
        let begins = service.begins.is_some_and(|begins| signal.starts_with(begins));
        if !begins && self.clients.contains_key(&source) {
            return self.clients.get(&source)?.as_ref();
        }
        let number = u32::from_be_bytes(*signal.first_chunk::<SIGNAL>()?);
        // Nobody may speak before its address is known, and the end of a flow begins none.
        if number == FINISHED || !self.node.knows(source) {
            return None;
        }
        let name = format!("{}{:08}", service.ends, self.ends + 1);
        let own = self.node.publish(name.as_bytes(), &mut self.said)?;
        self.ends += 1;
        let style = if number == PAYLOAD { Style::Numbered } else { Style::Raw };
        let mailbox = Arc::new(Mailbox::new(own, source, style, true));
        self.routes.insert(own, Route::Mailbox(mailbox.clone()));
        self.arrived.push(mailbox.clone());
        self.clients.insert(source, Some(mailbox));
        self.clients.get(&source)?.as_ref()
    }

    /// A mailbox for an endpoint of ours that will talk to `partner`.
    pub fn endpoint(&mut self, partner: u32, own: u32, style: Style) -> Arc<Mailbox> {
        let mailbox = Arc::new(Mailbox::new(own, partner, style, false));
        self.routes.insert(own, Route::Mailbox(mailbox.clone()));
        mailbox
    }

    /// An endpoint of ours is gone.
    pub fn close(&mut self, own: u32) {
        if let Some(Route::Mailbox(mailbox)) = self.routes.remove(&own)
            && let Some(client) = self.clients.get_mut(&mailbox.partner())
            && client.as_ref().is_some_and(|latest| latest.own == own)
        {
            *client = None;
        }
        self.node.unpublish(own, &mut self.said);
    }

    /// The name is served no longer.
    pub fn stop_serving(&mut self) {
        self.service = None;
        let served = self.routes.iter().find(|(_, route)| matches!(route, Route::Service));
        if let Some(address) = served.map(|(address, _)| *address) {
            self.close(address);
        }
    }
}

/// What tells a client from where it is served.
pub fn greeting(mailbox: &Mailbox) -> Option<[u8; SIGNAL]> {
    (mailbox.style == Style::Numbered).then_some(ACCEPTED.to_be_bytes())
}
