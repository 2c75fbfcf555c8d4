//! The state of one node towards another over RLNH: published endpoints, names hunted for, assigned and
//! released addresses. A state machine over whole messages, independent of the connection manager.

use std::collections::HashMap;

use super::DisconnectReason;
use super::rlnh::{MAX_NAME_BYTES, RlnhMessage, VERSION};

/// Addresses of one side on one link: the usual limit of real nodes.
pub(crate) const MAX_ADDRESSES: u32 = 1024;

/// Maximum number of stored hunts of the remote node for names that do not exist here yet.
const MAX_REQUESTED_NAMES: usize = 1024;

/// Progress of the handshake. Real nodes drop a connection that sends anything else before it is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NodeHandshake {
    NotStarted,
    AwaitsInit,
    AwaitsReply,
    Up,
}

/// A local endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
enum OwnEndpoint {
    Published(Vec<u8>),
    /// Unpublished endpoint that the remote node has not acknowledged yet.
    Leaving,
}

/// The effect of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeEvent {
    /// The caller has nothing to do.
    Nothing,
    /// Names can be published and hunted for.
    Up,
    /// The remote node published an endpoint.
    EndpointPublished(u32),
    /// The remote endpoint at that address has ended.
    EndpointGone(u32),
    /// The remote node hunts for a name that has not been published to it.
    NameRequested(Vec<u8>),
}

/// The state of this node towards one remote node.
#[derive(Debug)]
pub struct Node {
    handshake: NodeHandshake,
    /// Our endpoints, by address from 1 on.
    own_endpoints: Vec<Option<OwnEndpoint>>,
    remote_names: HashMap<u32, Vec<u8>>,
    requested_names: Vec<Vec<u8>>,
}

impl Default for Node {
    fn default() -> Node {
        Node {
            handshake: NodeHandshake::NotStarted,
            own_endpoints: Vec::new(),
            remote_names: HashMap::new(),
            requested_names: Vec::new(),
        }
    }
}

impl Node {
    /// The connection manager is connected: sends our first message.
    pub fn start(&mut self, out: &mut Vec<RlnhMessage>) {
        self.handshake = NodeHandshake::AwaitsInit;
        out.push(RlnhMessage::Init { version: VERSION });
    }

    /// Whether names can be published and hunted for.
    pub(crate) fn is_up(&self) -> bool {
        self.handshake == NodeHandshake::Up
    }

    /// Handles a message of the remote node, and adds the replies to `out`.
    ///
    /// # Errors
    ///
    /// Fails if the message is malformed or out of order, or if the remote node uses an older version.
    pub fn handle_bytes(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<RlnhMessage>,
    ) -> Result<NodeEvent, DisconnectReason> {
        let message = RlnhMessage::parse(bytes)
            .map_err(|_| DisconnectReason::ProtocolError("a message between the nodes is malformed"))?;
        match (self.handshake, message) {
            (NodeHandshake::AwaitsInit, RlnhMessage::Init { version }) if version < VERSION => {
                Err(DisconnectReason::VersionMismatch {
                    protocol: "RLNH",
                    remote_version: version,
                    local_version: VERSION,
                })
            }
            (NodeHandshake::AwaitsInit, RlnhMessage::Init { .. }) => {
                self.handshake = NodeHandshake::AwaitsReply;
                out.push(RlnhMessage::InitReply { supported: true });
                Ok(NodeEvent::Nothing)
            }
            // Real nodes only log whether the version is supported.
            (NodeHandshake::AwaitsReply, RlnhMessage::InitReply { .. }) => {
                self.handshake = NodeHandshake::Up;
                Ok(NodeEvent::Up)
            }
            (NodeHandshake::Up, message) => self.handle_message(message, out),
            _ => {
                Err(DisconnectReason::ProtocolError("the remote node's first messages arrived out of order"))
            }
        }
    }

    fn handle_message(
        &mut self,
        message: RlnhMessage,
        out: &mut Vec<RlnhMessage>,
    ) -> Result<NodeEvent, DisconnectReason> {
        Ok(match message {
            RlnhMessage::QueryName { asker, name } => {
                self.check_address(asker)?;
                let published = self
                    .own_endpoints
                    .iter()
                    .flatten()
                    .any(|own| *own == OwnEndpoint::Published(name.clone()));
                // A name is published once.
                if published {
                    return Ok(NodeEvent::Nothing);
                }
                if !self.requested_names.contains(&name) && self.requested_names.len() < MAX_REQUESTED_NAMES {
                    self.requested_names.push(name.clone());
                }
                NodeEvent::NameRequested(name)
            }
            RlnhMessage::Publish { address, name } => {
                self.check_address(address)?;
                self.remote_names.insert(address, name);
                NodeEvent::EndpointPublished(address)
            }
            RlnhMessage::Unpublish { address } => {
                self.check_address(address)?;
                self.remote_names.remove(&address);
                out.push(RlnhMessage::UnpublishAck { address });
                NodeEvent::EndpointGone(address)
            }
            RlnhMessage::UnpublishAck { address } => {
                if let Some(own) = self.own_slot(address)
                    && *own == Some(OwnEndpoint::Leaving)
                {
                    *own = None;
                }
                NodeEvent::Nothing
            }
            RlnhMessage::PublishPeer { address, peer } => {
                self.check_address(address)?;
                // Messages from that address come from a local endpoint that was forwarded; it has the name
                // that we gave it.
                let name = match self.own_slot(peer) {
                    Some(Some(OwnEndpoint::Published(name))) => name.clone(),
                    _ => Vec::new(),
                };
                self.remote_names.insert(address, name);
                NodeEvent::Nothing
            }
            RlnhMessage::Init { .. } | RlnhMessage::InitReply { .. } => {
                return Err(DisconnectReason::ProtocolError("the remote node restarted its handshake"));
            }
            RlnhMessage::Unknown(_) => NodeEvent::Nothing,
        })
    }

    /// Real nodes drop a link on which an address exceeds their limit.
    fn check_address(&self, address: u32) -> Result<(), DisconnectReason> {
        if (1..=MAX_ADDRESSES).contains(&address) {
            return Ok(());
        }
        Err(DisconnectReason::ProtocolError("the remote node used an address above 1024"))
    }

    fn own_slot(&mut self, address: u32) -> Option<&mut Option<OwnEndpoint>> {
        self.own_endpoints.get_mut((address as usize).checked_sub(1)?)
    }

    /// Publishes a local endpoint at the lowest free address. Returns the address, or `None` if all are in
    /// use.
    pub fn publish(&mut self, name: &[u8], out: &mut Vec<RlnhMessage>) -> Option<u32> {
        let free = self.own_endpoints.iter().position(Option::is_none).unwrap_or(self.own_endpoints.len());
        let address = u32::try_from(free).ok()? + 1;
        if address > MAX_ADDRESSES || name.len() > MAX_NAME_BYTES {
            return None;
        }
        if free == self.own_endpoints.len() {
            self.own_endpoints.push(None);
        }
        self.own_endpoints[free] = Some(OwnEndpoint::Published(name.to_vec()));
        self.requested_names.retain(|wanted| wanted != name);
        out.push(RlnhMessage::Publish { address, name: name.to_vec() });
        Some(address)
    }

    /// Removes a local endpoint. Its address becomes free when the remote node acknowledges this.
    pub(crate) fn unpublish(&mut self, address: u32, out: &mut Vec<RlnhMessage>) {
        if let Some(own) = self.own_slot(address)
            && matches!(own, Some(OwnEndpoint::Published(_)))
        {
            *own = Some(OwnEndpoint::Leaving);
            out.push(RlnhMessage::Unpublish { address });
        }
    }

    /// The address of a name at the remote node if it is published. Otherwise sends a hunt for it.
    pub(crate) fn hunt(&mut self, name: &[u8], asker: u32, out: &mut Vec<RlnhMessage>) -> Option<u32> {
        let known = self.find_address(name);
        if known.is_none() {
            out.push(RlnhMessage::QueryName { asker, name: name.to_vec() });
        }
        known
    }

    /// The address of a name that the remote node has published.
    pub(crate) fn find_address(&self, name: &[u8]) -> Option<u32> {
        self.remote_names.iter().filter(|(_, theirs)| *theirs == name).map(|(address, _)| *address).min()
    }

    /// Whether the remote node has published that address of its own.
    pub(crate) fn has_remote_address(&self, address: u32) -> bool {
        self.remote_names.contains_key(&address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two nodes and the messages between them, in order.
    struct Pair {
        nodes: [Node; 2],
        sent: Vec<(usize, RlnhMessage)>,
    }

    impl Pair {
        fn up() -> Pair {
            let mut pair = Pair { nodes: [Node::default(), Node::default()], sent: Vec::new() };
            for side in 0..2 {
                pair.with(side, |node, out| node.start(out));
            }
            assert_eq!(pair.settle(), [(0, NodeEvent::Up), (1, NodeEvent::Up)]);
            pair
        }

        fn with<T>(&mut self, side: usize, act: impl FnOnce(&mut Node, &mut Vec<RlnhMessage>) -> T) -> T {
            let mut out = Vec::new();
            let result = act(&mut self.nodes[side], &mut out);
            self.sent.extend(out.into_iter().map(|message| (side, message)));
            result
        }

        /// Delivers all messages. Returns the events, each with the number of its node.
        fn settle(&mut self) -> Vec<(usize, NodeEvent)> {
            let mut events = Vec::new();
            while !self.sent.is_empty() {
                let (from, message) = self.sent.remove(0);
                let event =
                    self.with(1 - from, |node, out| node.handle_bytes(&message.encode(), out).unwrap());
                if event != NodeEvent::Nothing {
                    events.push((1 - from, event));
                }
            }
            events
        }
    }

    /// Whether the remote node hunts for that name.
    fn is_requested(node: &Node, name: &[u8]) -> bool {
        node.requested_names.iter().any(|wanted| wanted == name)
    }

    #[test]
    fn a_name_is_hunted_published_and_given_back() {
        let mut pair = Pair::up();
        let client = pair.with(0, |node, out| node.publish(b"client", out)).unwrap();
        assert_eq!(pair.with(0, |node, out| node.hunt(b"server", client, out)), None);
        assert_eq!(
            pair.settle(),
            [(1, NodeEvent::EndpointPublished(1)), (1, NodeEvent::NameRequested(b"server".to_vec()))]
        );
        assert!(is_requested(&pair.nodes[1], b"server"));
        pair.with(1, |node, out| node.publish(b"server", out)).unwrap();
        assert_eq!(pair.settle(), [(0, NodeEvent::EndpointPublished(1))]);
        assert!(!is_requested(&pair.nodes[1], b"server"));
        assert_eq!(pair.nodes[0].find_address(b"server"), Some(1));
        // A repeated query gets no second reply.
        pair.with(0, |_, out| out.push(RlnhMessage::QueryName { asker: client, name: b"server".to_vec() }));
        assert_eq!(pair.settle(), []);

        pair.with(1, |node, out| node.unpublish(1, out));
        // The address is not free before the remote node has acknowledged.
        assert_eq!(pair.with(1, |node, out| node.publish(b"other", out)), Some(2));
        assert_eq!(pair.settle(), [(0, NodeEvent::EndpointGone(1)), (0, NodeEvent::EndpointPublished(2))]);
        assert_eq!(pair.with(1, |node, out| node.publish(b"third", out)), Some(1));
        assert!(!pair.nodes[0].has_remote_address(1) && pair.nodes[0].has_remote_address(2));
    }

    #[test]
    fn nothing_may_come_before_init_and_its_reply() {
        let messages = [
            RlnhMessage::InitReply { supported: true },
            RlnhMessage::Publish { address: 1, name: b"early".to_vec() },
            RlnhMessage::Unknown(9),
        ];
        for message in messages {
            let mut node = Node::default();
            let mut out = Vec::new();
            node.start(&mut out);
            assert!(
                matches!(
                    node.handle_bytes(&message.encode(), &mut out),
                    Err(DisconnectReason::ProtocolError(_))
                ),
                "{message:?}"
            );
            let mut node = Node::default();
            node.start(&mut out);
            node.handle_bytes(&RlnhMessage::Init { version: 3 }.encode(), &mut out).unwrap();
            if message != (RlnhMessage::InitReply { supported: true }) {
                assert!(
                    matches!(
                        node.handle_bytes(&message.encode(), &mut out),
                        Err(DisconnectReason::ProtocolError(_))
                    ),
                    "{message:?}"
                );
            }
        }
        let mut pair = Pair::up();
        pair.nodes[0].handle_bytes(&RlnhMessage::Init { version: 2 }.encode(), &mut Vec::new()).unwrap_err();
    }

    #[test]
    fn an_older_rlnh_is_named() {
        let mut node = Node::default();
        node.start(&mut Vec::new());
        let error =
            node.handle_bytes(&RlnhMessage::Init { version: 1 }.encode(), &mut Vec::new()).unwrap_err();
        assert_eq!(
            error,
            DisconnectReason::VersionMismatch { protocol: "RLNH", remote_version: 1, local_version: 2 }
        );
    }

    #[test]
    fn addresses_have_a_limit() {
        let mut pair = Pair::up();
        for message in [
            RlnhMessage::Publish { address: MAX_ADDRESSES + 1, name: b"x".to_vec() },
            RlnhMessage::QueryName { asker: 0, name: b"x".to_vec() },
            RlnhMessage::Unpublish { address: u32::MAX },
        ] {
            let error = pair.nodes[0].handle_bytes(&message.encode(), &mut Vec::new()).unwrap_err();
            assert!(matches!(error, DisconnectReason::ProtocolError(_)), "{message:?}");
        }
        for address in 1..=MAX_ADDRESSES {
            assert_eq!(pair.with(0, |node, out| node.publish(b"many", out)), Some(address));
        }
        assert_eq!(pair.with(0, |node, out| node.publish(b"many", out)), None);
    }

    #[test]
    fn another_name_for_an_endpoint_is_taken() {
        let mut pair = Pair::up();
        pair.with(0, |node, out| node.publish(b"client", out)).unwrap();
        let message = RlnhMessage::PublishPeer { address: 9, peer: 1 };
        assert_eq!(pair.nodes[0].handle_bytes(&message.encode(), &mut Vec::new()), Ok(NodeEvent::Nothing));
        assert!(pair.nodes[0].has_remote_address(9));
    }
}
