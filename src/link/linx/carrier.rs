//! What `pairing` asks of a connection manager and its socket: messages out, messages in, and time.

use std::time::Duration;

use super::super::{Facts, Fault};
use super::DisconnectReason;
use crate::clock::Time;
use crate::plan::WaitMode;

/// Something that came.
pub enum ReceivedItem<'a> {
    /// The connection manager is connected.
    Up,
    Message {
        source: u32,
        destination: u32,
        bytes: &'a [u8],
    },
}

/// The receiving side, held by the one thread that reads.
pub trait CarrierReader: Send {
    /// The first thing that has come and is whole; it stays the first until [`CarrierReader::advance`].
    fn peek(&mut self) -> Result<Option<ReceivedItem<'_>>, DisconnectReason>;

    fn advance(&mut self);

    /// Takes in what comes `within` the time given; [`Fault::TimedOut`] if nothing did.
    fn receive(&mut self, wait: WaitMode, within: Duration) -> Result<(), Fault>;
}

/// The sending side, held by the one thread that writes.
pub trait CarrierWriter: Send {
    /// Takes a message of two pieces, if there is room; it goes behind what was said before.
    fn queue(&mut self, source: u32, destination: u32, head: &[u8], bytes: &[u8]) -> bool;

    /// Sends what was put and what is owed; [`Fault::TimedOut`] if some of it is still here.
    fn flush(&mut self, wait: WaitMode, within: Duration) -> Result<(), Fault>;
}

/// What belongs to neither side.
pub trait CarrierControl: Send + Sync {
    /// Has a short message sent as soon as the sending side is flushed, behind all that was put there before.
    fn queue_message(&self, source: u32, destination: u32, message: &[u8]);

    /// Something is to be said by whoever flushes next.
    fn has_pending(&self) -> bool;

    /// Does what is due; when it wants to be asked again.
    fn tick(&self, now: Time) -> Result<Time, DisconnectReason>;

    /// Waits for something to come in, at most `within`.
    fn wait_readable(&self, within: Duration) -> bool;

    fn facts(&self, facts: &mut Facts);

    /// The other node has closed the connection, whether or not that has been read already.
    fn is_closed_by_remote(&self) -> bool {
        false
    }

    /// Nobody uses the connection any more: lets the last words get through, at the latest until then.
    fn close(&self, until: Time);

    /// The connection has failed.
    fn abort(&self);
}

/// A connection manager on an open socket.
pub struct Carrier {
    pub reader: Box<dyn CarrierReader>,
    pub writer: Box<dyn CarrierWriter>,
    pub control: std::sync::Arc<dyn CarrierControl>,
}
