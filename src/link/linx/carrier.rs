//! What `pairing` asks of a connection manager and its socket: messages out, messages in, and time.

use std::time::Duration;

use super::super::{Facts, Fault};
use super::Ending;
use crate::clock::Time;
use crate::plan::Wait;

/// Something that came.
pub enum Item<'a> {
    /// The connection manager is connected.
    Up,
    Message {
        source: u32,
        destination: u32,
        bytes: &'a [u8],
    },
}

/// The receiving side, held by the one thread that reads.
pub trait Incoming: Send {
    /// The first thing that has come and is whole; it stays the first until [`Incoming::advance`].
    fn peek(&mut self) -> Result<Option<Item<'_>>, Ending>;

    fn advance(&mut self);

    /// Takes in what comes `within` the time given; [`Fault::TimedOut`] if nothing did.
    fn fill(&mut self, wait: Wait, within: Duration) -> Result<(), Fault>;
}

/// The sending side, held by the one thread that writes.
pub trait Outgoing: Send {
    /// Takes a message of two pieces, if there is room; it goes behind what was said before.
    fn put(&mut self, source: u32, destination: u32, head: &[u8], bytes: &[u8]) -> bool;

    /// Sends what was put and what is owed; [`Fault::TimedOut`] if some of it is still here.
    fn flush(&mut self, wait: Wait, within: Duration) -> Result<(), Fault>;
}

/// What belongs to neither side.
pub trait Control: Send + Sync {
    /// Has a short message sent as soon as the sending side is flushed, behind all that was put there before.
    fn say(&self, source: u32, destination: u32, message: &[u8]);

    /// Something is to be said by whoever flushes next.
    fn owes(&self) -> bool;

    /// Does what is due; when it wants to be asked again.
    fn tick(&self, now: Time) -> Result<Time, Ending>;

    /// Waits for something to come in, at most `within`.
    fn wait(&self, within: Duration) -> bool;

    fn facts(&self, facts: &mut Facts);

    /// The other node has closed the connection, whether or not that has been read already.
    fn is_closed_by_node(&self) -> bool {
        false
    }

    /// Nobody uses the connection any more: lets the last words get through, at the latest until then.
    fn close(&self, until: Time);

    /// The connection has failed.
    fn abort(&self);
}

/// A connection manager on an open socket.
pub struct Carrier {
    pub incoming: Box<dyn Incoming>,
    pub outgoing: Box<dyn Outgoing>,
    pub control: std::sync::Arc<dyn Control>,
}
