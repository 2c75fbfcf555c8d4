//! The accept loop of listeners on datagram sockets: every message may be the first one of a client.

use std::io;
use std::time::Duration;

use crate::link::{AcceptFilter, Fault, Link};
use linkgauge_model::clock::Clock;

/// A link and the name of its client.
pub(crate) type NamedLink = (Box<dyn Link>, String);

/// A listener that opens a link for the first message of a client.
pub(crate) trait DatagramListener {
    /// A received message.
    type Message;

    /// Waits until a message arrives, for at most `left`.
    fn wait_for_message(&self, left: Duration);

    /// The next message, without waiting.
    fn next_message(&mut self) -> io::Result<Self::Message>;

    /// Handles a message; returns the link that it opens. `reply` is an empty buffer.
    fn handle_message(
        &mut self,
        message: Self::Message,
        filter: &mut AcceptFilter,
        reply: &mut Vec<u8>,
    ) -> Result<Option<NamedLink>, Fault>;
}

/// Handles messages until one of them opens a link, or until the time is over.
pub(crate) fn accept_client<L: DatagramListener>(
    listener: &mut L,
    clock: &Clock,
    within: Duration,
    filter: &mut AcceptFilter,
) -> Result<NamedLink, Fault> {
    let until = clock.now() + within;
    let mut reply = Vec::new();
    loop {
        match listener.next_message() {
            Ok(message) => {
                reply.clear();
                if let Some(accepted) = listener.handle_message(message, filter, &mut reply)? {
                    return Ok(accepted);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                listener.wait_for_message(until - clock.now());
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Fault::System { operation: "receive", source: error }),
        }
        // A flood must not keep the caller from its other work.
        if clock.now() >= until {
            return Err(Fault::TimedOut);
        }
    }
}
