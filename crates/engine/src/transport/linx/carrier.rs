//! Interface between `node_connection` and a connection manager with its socket: messages out, messages in,
//! and time.

use std::time::Duration;

use super::DisconnectReason;
use super::ethernet_cm::connection::ReceivedMessage;
use crate::link::stamps::SendStamps;
use crate::link::{Facts, Fault};
use linkgauge_model::clock::Time;
use linkgauge_model::plan::WaitMode;
use linkgauge_system::{BorrowedHandle, PollFd, poll};

/// A received item.
pub(crate) enum ReceivedItem<'a> {
    /// The connection manager is connected.
    Up,
    Message(ReceivedMessage<'a>),
}

/// The receiving side, held by the one thread that reads.
pub(crate) trait CarrierReader: Send {
    /// The first complete item. It stays first until [`CarrierReader::advance`].
    fn peek(&mut self) -> Result<Option<ReceivedItem<'_>>, DisconnectReason>;

    fn advance(&mut self);

    /// Reads input `within` the time given; [`Fault::TimedOut`] if none arrived.
    fn receive(&mut self, wait: WaitMode, within: Duration) -> Result<(), Fault>;
}

/// The sending side, held by the one thread that writes.
pub(crate) trait CarrierWriter: Send {
    /// Queues a message of two parts behind all earlier ones; `false` if there is no room.
    fn queue(&mut self, source: u32, destination: u32, head: &[u8], bytes: &[u8]) -> bool;

    /// Sends all queued output; [`Fault::TimedOut`] if some of it is still queued.
    fn flush(&mut self, wait: WaitMode, within: Duration) -> Result<(), Fault>;
}

/// Operations that belong to neither side.
pub(crate) trait CarrierControl: Send + Sync {
    /// Queues a short message behind all earlier ones. The next flush of the sending side sends it.
    fn queue_message(&self, source: u32, destination: u32, message: &[u8]);

    /// Whether output waits for the next flush.
    fn has_pending(&self) -> bool;

    /// Does all work that is due. Returns the time of the next call.
    fn tick(&self, now: Time) -> Result<Time, DisconnectReason>;

    /// Waits until there is input or `wake` is readable, at most `within`.
    fn wait_readable(&self, wake: BorrowedHandle<'_>, within: Duration) -> bool;

    fn facts(&self, facts: &mut Facts);

    /// Makes the kernel stamp the messages of this endpoint from now on, where the connection supports it.
    fn start_stamps(&self, _address: u32) {}

    /// Moves the kernel's stamps of the endpoint's sent messages to `into`. They have the numbers of the messages.
    fn read_send_stamps(&self, _address: u32, _into: &mut SendStamps) {}

    /// Ends the stamps of the endpoint.
    fn stop_stamps(&self, _address: u32) {}

    /// Whether the other node has closed the connection, even if the close has not been read yet.
    fn is_closed_by_remote(&self) -> bool {
        false
    }

    /// Closes the connection, which has no more users: waits until the last output is sent, at most until `until`.
    fn close(&self, until: Time);

    /// Aborts the connection, which has failed.
    fn abort(&self);
}

/// A connection manager on an open socket.
pub(crate) struct Carrier {
    pub(crate) reader: Box<dyn CarrierReader>,
    pub(crate) writer: Box<dyn CarrierWriter>,
    pub(crate) control: std::sync::Arc<dyn CarrierControl>,
}

/// Whether one of the descriptors is ready within this time.
pub(crate) fn poll_within(watched: &mut [PollFd<'_>], within: Duration) -> bool {
    poll(watched, within).is_ok_and(|ready| ready > 0)
}
