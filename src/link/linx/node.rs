//! What a node says to another one over RLNH, and knows of it: endpoints published and hunted for, addresses given and
//! taken back. A state machine over whole messages; which connection manager carries them is not its business.

use std::collections::HashMap;

use super::Ending;
use super::rlnh::{LONGEST_NAME, Message, VERSION};

/// Addresses of one side on one link: the usual limit of real nodes.
pub const MOST_ADDRESSES: u32 = 1024;

/// Names that do not exist here yet and that the far node asked for: more are not remembered.
const MOST_WANTED: usize = 1024;

/// How far the first words have come. Real nodes drop a connection that says anything else in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Opening {
    NotStarted,
    AwaitsInit,
    AwaitsReply,
    Up,
}

/// An address of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Own {
    Published(Vec<u8>),
    /// The far node has not said yet that nothing leads to it any more.
    Leaving,
}

/// What came of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    Nothing,
    /// Names can be published and hunted for.
    Up,
    /// The far node published an endpoint.
    Appeared(u32),
    /// The endpoint at that address of the far node is gone.
    Gone(u32),
    /// The far node asks for a name that nobody has published to it.
    Wanted(Vec<u8>),
}

#[derive(Debug)]
pub struct Node {
    opening: Opening,
    /// From address 1 on.
    own: Vec<Option<Own>>,
    theirs: HashMap<u32, Vec<u8>>,
    wanted: Vec<Vec<u8>>,
}

impl Default for Node {
    fn default() -> Node {
        Node { opening: Opening::NotStarted, own: Vec::new(), theirs: HashMap::new(), wanted: Vec::new() }
    }
}

impl Node {
    /// The connection manager is connected: our first word.
    pub fn start(&mut self, out: &mut Vec<Message>) {
        self.opening = Opening::AwaitsInit;
        out.push(Message::Init { version: VERSION });
    }

    pub fn is_up(&self) -> bool {
        self.opening == Opening::Up
    }

    pub fn received(&mut self, bytes: &[u8], out: &mut Vec<Message>) -> Result<Event, Ending> {
        let message =
            Message::read(bytes).map_err(|_| Ending::Broken("a message between the nodes is malformed"))?;
        match (self.opening, message) {
            (Opening::AwaitsInit, Message::Init { version }) if version < VERSION => {
                Err(Ending::Version { of: "RLNH", theirs: version, ours: VERSION })
            }
            (Opening::AwaitsInit, Message::Init { .. }) => {
                self.opening = Opening::AwaitsReply;
                out.push(Message::InitReply { supported: true });
                Ok(Event::Nothing)
            }
            // Whether the version is supported there is only logged by real nodes.
            (Opening::AwaitsReply, Message::InitReply { .. }) => {
                self.opening = Opening::Up;
                Ok(Event::Up)
            }
            (Opening::Up, message) => self.heard(message, out),
            _ => Err(Ending::Broken("the far node's first messages came out of order")),
        }
    }

    fn heard(&mut self, message: Message, out: &mut Vec<Message>) -> Result<Event, Ending> {
        Ok(match message {
            Message::QueryName { asker, name } => {
                self.check(asker)?;
                let published = self.own.iter().flatten().any(|own| *own == Own::Published(name.clone()));
                // Who has been told once knows it.
                if published {
                    return Ok(Event::Nothing);
                }
                if !self.wanted.contains(&name) && self.wanted.len() < MOST_WANTED {
                    self.wanted.push(name.clone());
                }
                Event::Wanted(name)
            }
            Message::Publish { address, name } => {
                self.check(address)?;
                self.theirs.insert(address, name);
                Event::Appeared(address)
            }
            Message::Unpublish { address } => {
                self.check(address)?;
                self.theirs.remove(&address);
                out.push(Message::UnpublishAck { address });
                Event::Gone(address)
            }
            Message::UnpublishAck { address } => {
                if let Some(own) = self.slot(address)
                    && *own == Some(Own::Leaving)
                {
                    *own = None;
                }
                Event::Nothing
            }
            Message::PublishPeer { address, peer } => {
                self.check(address)?;
                // Messages from there come from an endpoint of our own, forwarded; it has the name that we gave it.
                let name = match self.slot(peer) {
                    Some(Some(Own::Published(name))) => name.clone(),
                    _ => Vec::new(),
                };
                self.theirs.insert(address, name);
                Event::Nothing
            }
            Message::Init { .. } | Message::InitReply { .. } => {
                return Err(Ending::Broken("the far node began again in the middle"));
            }
            Message::Unknown(_) => Event::Nothing,
        })
    }

    /// Real nodes drop a link on which an address exceeds their limit.
    fn check(&self, address: u32) -> Result<(), Ending> {
        if (1..=MOST_ADDRESSES).contains(&address) {
            return Ok(());
        }
        Err(Ending::Broken("the far node used an address above 1024"))
    }

    fn slot(&mut self, address: u32) -> Option<&mut Option<Own>> {
        self.own.get_mut((address as usize).checked_sub(1)?)
    }

    /// Gives an endpoint of ours the lowest free address and tells the far node; the address if there is one left.
    pub fn publish(&mut self, name: &[u8], out: &mut Vec<Message>) -> Option<u32> {
        let free = self.own.iter().position(Option::is_none).unwrap_or(self.own.len());
        let address = u32::try_from(free).ok()? + 1;
        if address > MOST_ADDRESSES || name.len() > LONGEST_NAME {
            return None;
        }
        if free == self.own.len() {
            self.own.push(None);
        }
        self.own[free] = Some(Own::Published(name.to_vec()));
        self.wanted.retain(|wanted| wanted != name);
        out.push(Message::Publish { address, name: name.to_vec() });
        Some(address)
    }

    /// An endpoint of ours is gone. Its address is free when the far node has said so.
    pub fn unpublish(&mut self, address: u32, out: &mut Vec<Message>) {
        if let Some(own) = self.slot(address)
            && matches!(own, Some(Own::Published(_)))
        {
            *own = Some(Own::Leaving);
            out.push(Message::Unpublish { address });
        }
    }

    /// The address of a name at the far node, if it is published; asks for it otherwise.
    pub fn hunt(&mut self, name: &[u8], asker: u32, out: &mut Vec<Message>) -> Option<u32> {
        let known = self.find(name);
        if known.is_none() {
            out.push(Message::QueryName { asker, name: name.to_vec() });
        }
        known
    }

    /// The address of a name that the far node has published.
    pub fn find(&self, name: &[u8]) -> Option<u32> {
        self.theirs.iter().filter(|(_, theirs)| *theirs == name).map(|(address, _)| *address).min()
    }

    /// Whether the far node has published that address of its own.
    pub fn knows(&self, address: u32) -> bool {
        self.theirs.contains_key(&address)
    }

    /// Whether the far node waits for that name to appear.
    pub fn is_wanted(&self, name: &[u8]) -> bool {
        self.wanted.iter().any(|wanted| wanted == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two nodes and what they have to say to each other, one word after the other.
    struct Pair {
        nodes: [Node; 2],
        said: Vec<(usize, Message)>,
    }

    impl Pair {
        fn up() -> Pair {
            let mut pair = Pair { nodes: [Node::default(), Node::default()], said: Vec::new() };
            for side in 0..2 {
                pair.with(side, |node, out| node.start(out));
            }
            assert_eq!(pair.settle(), [(0, Event::Up), (1, Event::Up)]);
            pair
        }

        fn with<T>(&mut self, side: usize, act: impl FnOnce(&mut Node, &mut Vec<Message>) -> T) -> T {
            let mut out = Vec::new();
            let result = act(&mut self.nodes[side], &mut out);
            self.said.extend(out.into_iter().map(|message| (side, message)));
            result
        }

        /// Delivers everything; what happened where.
        fn settle(&mut self) -> Vec<(usize, Event)> {
            let mut events = Vec::new();
            while !self.said.is_empty() {
                let (from, message) = self.said.remove(0);
                let event = self.with(1 - from, |node, out| node.received(&message.write(), out).unwrap());
                if event != Event::Nothing {
                    events.push((1 - from, event));
                }
            }
            events
        }
    }

    #[test]
    fn a_name_is_hunted_published_and_given_back() {
        let mut pair = Pair::up();
        let client = pair.with(0, |node, out| node.publish(b"client", out)).unwrap();
        assert_eq!(pair.with(0, |node, out| node.hunt(b"server", client, out)), None);
        assert_eq!(pair.settle(), [(1, Event::Appeared(1)), (1, Event::Wanted(b"server".to_vec()))]);
        assert!(pair.nodes[1].is_wanted(b"server"));
        pair.with(1, |node, out| node.publish(b"server", out)).unwrap();
        assert_eq!(pair.settle(), [(0, Event::Appeared(1))]);
        assert!(!pair.nodes[1].is_wanted(b"server"));
        assert_eq!(pair.nodes[0].find(b"server"), Some(1));
        // Who asks again is not told again.
        pair.with(0, |_, out| out.push(Message::QueryName { asker: client, name: b"server".to_vec() }));
        assert_eq!(pair.settle(), []);

        pair.with(1, |node, out| node.unpublish(1, out));
        // Until the far node has said that it knows, the address is not free.
        assert_eq!(pair.with(1, |node, out| node.publish(b"other", out)), Some(2));
        assert_eq!(pair.settle(), [(0, Event::Gone(1)), (0, Event::Appeared(2))]);
        assert_eq!(pair.with(1, |node, out| node.publish(b"third", out)), Some(1));
        assert!(!pair.nodes[0].knows(1) && pair.nodes[0].knows(2));
    }

    #[test]
    fn nothing_may_come_before_init_and_its_reply() {
        let words = [
            Message::InitReply { supported: true },
            Message::Publish { address: 1, name: b"early".to_vec() },
            Message::Unknown(9),
        ];
        for word in words {
            let mut node = Node::default();
            let mut out = Vec::new();
            node.start(&mut out);
            assert!(matches!(node.received(&word.write(), &mut out), Err(Ending::Broken(_))), "{word:?}");
            let mut node = Node::default();
            node.start(&mut out);
            node.received(&Message::Init { version: 3 }.write(), &mut out).unwrap();
            if word != (Message::InitReply { supported: true }) {
                assert!(matches!(node.received(&word.write(), &mut out), Err(Ending::Broken(_))), "{word:?}");
            }
        }
        let mut pair = Pair::up();
        pair.nodes[0].received(&Message::Init { version: 2 }.write(), &mut Vec::new()).unwrap_err();
    }

    #[test]
    fn an_older_rlnh_is_named() {
        let mut node = Node::default();
        node.start(&mut Vec::new());
        let error = node.received(&Message::Init { version: 1 }.write(), &mut Vec::new()).unwrap_err();
        assert_eq!(error, Ending::Version { of: "RLNH", theirs: 1, ours: 2 });
    }

    #[test]
    fn addresses_have_a_limit() {
        let mut pair = Pair::up();
        for word in [
            Message::Publish { address: MOST_ADDRESSES + 1, name: b"x".to_vec() },
            Message::QueryName { asker: 0, name: b"x".to_vec() },
            Message::Unpublish { address: u32::MAX },
        ] {
            let error = pair.nodes[0].received(&word.write(), &mut Vec::new()).unwrap_err();
            assert!(matches!(error, Ending::Broken(_)), "{word:?}");
        }
        for address in 1..=MOST_ADDRESSES {
            assert_eq!(pair.with(0, |node, out| node.publish(b"many", out)), Some(address));
        }
        assert_eq!(pair.with(0, |node, out| node.publish(b"many", out)), None);
    }

    #[test]
    fn another_name_for_an_endpoint_is_taken() {
        let mut pair = Pair::up();
        pair.with(0, |node, out| node.publish(b"client", out)).unwrap();
        let word = Message::PublishPeer { address: 9, peer: 1 };
        assert_eq!(pair.nodes[0].received(&word.write(), &mut Vec::new()), Ok(Event::Nothing));
        assert!(pair.nodes[0].knows(9));
    }
}
