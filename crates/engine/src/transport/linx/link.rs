//! The link of one local endpoint: its messages on the connection that its node shares.

use linkgauge_system::{AsHandle, BorrowedHandle};
use std::sync::Arc;
use std::time::Duration;

use super::doorbell::Doorbell;
use super::mailbox::{Mailbox, ReceiveTarget};
use super::node_connection::NodeConnection;
use crate::link::delegate::plain_link;
use crate::link::party::Tuning;
use crate::link::stamps::SendStamps;
use crate::link::{Batch, Caps, Facts, Fault, Link, LinkStatus};
use linkgauge_model::clock::Time;
use linkgauge_model::plan::WaitMode;

pub(crate) struct NodeLink {
    handle: Arc<EndpointHandle>,
    /// Doorbell for a thread that waits for many links.
    doorbell: Arc<Doorbell>,
    caps: Caps,
    wait: WaitMode,
    /// Sends many messages in one operation.
    is_batching: bool,
}

/// Shared by the handles of a link. The endpoint is removed with the last handle.
struct EndpointHandle {
    connection: Arc<NodeConnection>,
    mailbox: Arc<Mailbox>,
}

impl Drop for EndpointHandle {
    fn drop(&mut self) {
        self.connection.remove_endpoint(self.mailbox.own_address);
    }
}

impl NodeLink {
    pub fn new(
        connection: Arc<NodeConnection>,
        mailbox: Arc<Mailbox>,
        caps: Caps,
        wait: WaitMode,
    ) -> Result<NodeLink, Fault> {
        let handle = Arc::new(EndpointHandle { connection, mailbox });
        Ok(NodeLink { handle, doorbell: Arc::new(Doorbell::new()?), caps, wait, is_batching: false })
    }

    #[inline]
    fn send_messages(&self, messages: &[u8], message: usize, within: Duration) -> Result<usize, Fault> {
        let EndpointHandle { connection, mailbox } = self.handle.as_ref();
        let sent = connection.send(mailbox, messages, message, self.wait, within);
        if matches!(sent, Err(Fault::TimedOut)) && self.doorbell.is_watched() {
            connection.await_output(&self.doorbell);
        }
        sent
    }

    #[inline]
    fn receive_messages(&self, target: &mut ReceiveTarget, within: Duration) -> Result<(), Fault> {
        let EndpointHandle { connection, mailbox } = self.handle.as_ref();
        if self.doorbell.is_watched() {
            if within.is_zero() {
                self.doorbell.silence();
                return connection.take_delivered(mailbox, target);
            }
            // The link has a thread for itself again.
            connection.stop_watching(mailbox, &self.doorbell);
        }
        connection.receive(mailbox, target, self.wait, within)
    }

    /// Receives one message: its length and its stamp.
    #[inline]
    fn receive_one(&self, into: &mut [u8], within: Duration) -> Result<(usize, Option<Time>), Fault> {
        let mut target = ReceiveTarget::One { into, length: None, arrived: None };
        self.receive_messages(&mut target, within)?;
        match target {
            ReceiveTarget::One { length: Some(length), arrived, .. } => Ok((length, arrived)),
            _ => Err(Fault::TimedOut),
        }
    }

    fn check_length(&self, bytes: usize) -> Result<(), Fault> {
        match self.caps.max_message_bytes {
            Some(limit) if bytes > limit => Err(Fault::TooLong { bytes, limit }),
            _ => Ok(()),
        }
    }
}

impl Drop for NodeLink {
    fn drop(&mut self) {
        self.handle.connection.stop_watching(&self.handle.mailbox, &self.doorbell);
    }
}

impl Link for NodeLink {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn facts(&self) -> Facts {
        let mut facts = self.handle.connection.facts();
        facts.insert("local_link_address".to_owned(), self.handle.mailbox.own_address.into());
        facts.insert("remote_link_address".to_owned(), self.handle.mailbox.partner().into());
        facts
    }

    fn status(&self) -> LinkStatus {
        let EndpointHandle { connection, mailbox } = self.handle.as_ref();
        LinkStatus { is_hung_up: mailbox.is_ended() || connection.is_over(), ..LinkStatus::default() }
    }

    fn tune(&mut self, tuning: &Tuning) {
        self.wait = tuning.wait;
        self.is_batching = tuning.batch_message_bytes.is_some();
        if tuning.stamps && self.caps.has_kernel_stamps {
            self.handle.connection.start_stamps(self.handle.mailbox.own_address);
        }
    }

    #[inline]
    fn send(&mut self, bytes: &[u8], within: Duration) -> Result<usize, Fault> {
        self.check_length(bytes.len())?;
        self.send_messages(bytes, bytes.len(), within)
    }

    #[inline]
    fn receive(&mut self, into: &mut [u8], within: Duration) -> Result<usize, Fault> {
        self.receive_one(into, within).map(|(length, _)| length)
    }

    #[inline]
    fn send_batch(&mut self, messages: &[u8], message: usize, within: Duration) -> Result<usize, Fault> {
        let messages = if self.is_batching { messages } else { &messages[..messages.len().min(message)] };
        self.check_length(messages.len().min(message))?;
        self.send_messages(messages, message, within)
    }

    #[inline]
    fn receive_batch(&mut self, into: &mut Batch, within: Duration) -> Result<(), Fault> {
        into.clear();
        if self.is_batching && into.slot_bytes > 0 && into.bytes.len() >= 2 * into.slot_bytes {
            let mut target = ReceiveTarget::Many { batch: into, used: 0 };
            return self.receive_messages(&mut target, within);
        }
        let (length, arrived) = self.receive_one(&mut into.bytes, within)?;
        into.push_span(0, length);
        into.arrived = arrived;
        Ok(())
    }

    fn finish_sending(&mut self) -> Result<(), Fault> {
        self.handle.connection.finish(&self.handle.mailbox);
        Ok(())
    }

    /// The connection belongs to all links of the node.
    fn abort(&mut self) {}

    fn second_handle(&self) -> Result<Box<dyn Link>, Fault> {
        let end = self.handle.clone();
        Ok(Box::new(NodeLink {
            handle: end,
            doorbell: Arc::new(Doorbell::new()?),
            caps: self.caps.clone(),
            wait: self.wait,
            is_batching: self.is_batching,
        }))
    }

    fn read_send_stamps(&mut self, into: &mut SendStamps) {
        self.handle.connection.read_send_stamps(self.handle.mailbox.own_address, into);
    }

    /// Descriptor of the doorbell, which rings from now on, until a receive waits by itself.
    fn descriptor(&self) -> Option<BorrowedHandle<'_>> {
        self.handle.connection.start_watching(&self.handle.mailbox, &self.doorbell);
        Some(self.doorbell.as_handle())
    }

    plain_link!(reopen port_control);
}
