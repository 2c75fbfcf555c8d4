//! The link of one endpoint of ours: its messages on the connection that its node shares.

use std::sync::Arc;
use std::time::Duration;

use super::super::party::Tuning;
use super::super::{Batch, Caps, Facts, Fault, Link};
use super::mailbox::{Mailbox, Room};
use super::pairing::Pairing;
use crate::plan::Wait;

pub struct NodeLink {
    end: Arc<End>,
    caps: Caps,
    wait: Wait,
    /// Many messages in one operation.
    many: bool,
}

/// What the halves of a link share; the endpoint is gone when the last of them is.
struct End {
    pairing: Arc<Pairing>,
    mailbox: Arc<Mailbox>,
}

impl Drop for End {
    fn drop(&mut self) {
        self.pairing.close(self.mailbox.own);
    }
}

impl NodeLink {
    pub fn new(pairing: Arc<Pairing>, mailbox: Arc<Mailbox>, caps: Caps, wait: Wait) -> NodeLink {
        NodeLink { end: Arc::new(End { pairing, mailbox }), caps, wait, many: false }
    }

    fn check_length(&self, bytes: usize) -> Result<(), Fault> {
        match self.caps.max_message {
            Some(limit) if bytes > limit => Err(Fault::TooLong { bytes, limit }),
            _ => Ok(()),
        }
    }
}

impl Link for NodeLink {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn facts(&self) -> Facts {
        let mut facts = self.end.pairing.facts();
        facts.insert("own_link_address".to_owned(), self.end.mailbox.own.into());
        facts.insert("far_link_address".to_owned(), self.end.mailbox.partner().into());
        facts
    }

    fn tune(&mut self, tuning: &Tuning) {
        self.wait = tuning.wait;
        self.many = tuning.batches_of.is_some();
    }

    #[inline]
    fn send(&mut self, bytes: &[u8], within: Duration) -> Result<usize, Fault> {
        self.check_length(bytes.len())?;
        self.end.pairing.send(&self.end.mailbox, bytes, bytes.len(), self.wait, within)
    }

    #[inline]
    fn receive(&mut self, into: &mut [u8], within: Duration) -> Result<usize, Fault> {
        let mut room = Room::One { into, length: None };
        self.end.pairing.receive(&self.end.mailbox, &mut room, self.wait, within)?;
        match room {
            Room::One { length: Some(length), .. } => Ok(length),
            _ => Err(Fault::TimedOut),
        }
    }

    #[inline]
    fn send_batch(&mut self, messages: &[u8], message: usize, within: Duration) -> Result<usize, Fault> {
        let messages = if self.many { messages } else { &messages[..messages.len().min(message)] };
        self.check_length(messages.len().min(message))?;
        self.end.pairing.send(&self.end.mailbox, messages, message, self.wait, within)
    }

    #[inline]
    fn receive_batch(&mut self, into: &mut Batch, within: Duration) -> Result<(), Fault> {
        into.clear();
        if self.many && into.slot > 0 && into.bytes.len() >= 2 * into.slot {
            let mut room = Room::Many { batch: into, used: 0 };
            return self.end.pairing.receive(&self.end.mailbox, &mut room, self.wait, within);
        }
        let length = self.receive(&mut into.bytes, within)?;
        into.push(0, length);
        Ok(())
    }

    fn other_half(&self) -> Result<Box<dyn Link>, Fault> {
        let end = self.end.clone();
        Ok(Box::new(NodeLink { end, caps: self.caps.clone(), wait: self.wait, many: self.many }))
    }

    fn finish(&mut self) -> Result<(), Fault> {
        self.end.pairing.finish(&self.end.mailbox);
        Ok(())
    }

    fn hung_up(&self) -> bool {
        self.end.mailbox.is_ended() || self.end.pairing.is_over()
    }
}
