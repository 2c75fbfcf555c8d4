//! Attaches the connections of a session to its flows: the client's first message on each of them.

use std::sync::Arc;
use std::time::Duration;

use super::request_sender::try_times;
use super::wire::{Attach, HANDSHAKE_BYTES};
use crate::link::dialer::GreetedLink;
use crate::link::party::{Party, Step};
use crate::link::{Batch, Caps, Dialer, Fault, Framing, LinkError};
use linkgauge_model::clock::Time;
use linkgauge_model::endpoint::Endpoint;

const REFUSED: &str =
    "the server refused another connection of this session: it may be overloaded. Try fewer connections";

/// The session that connections are attached to.
#[derive(Clone)]
pub(crate) struct SessionKey {
    pub(crate) session_id: u64,
    pub(crate) key: Arc<[u8]>,
}

impl SessionKey {
    /// The attach message of a flow.
    pub(crate) fn attach(&self, flow: usize) -> Attach {
        Attach { session_id: self.session_id, flow_index: flow as u32 }
    }
}

/// Opens the connections of a session and attaches them, in the order of the flows.
///
/// # Errors
///
/// No connection can be opened, or all are refused. Otherwise the result of each shows whether it is attached.
pub(crate) fn open_attached(
    endpoint: &Endpoint,
    dialer: &Dialer,
    session: &SessionKey,
    flows: usize,
) -> Result<Vec<GreetedLink>, LinkError> {
    let (session, timeout) = (session.clone(), dialer.timeout);
    let mut links = dialer.open_greeted(endpoint, flows, move |caps, number| {
        AttachParty::new(session.attach(number), &session.key, caps, timeout)
    })?;
    // The server closes a connection that it does not attach.
    for link in links.iter_mut().filter(|link| matches!(link.result, Err(Fault::Closed))) {
        link.result = Err(refused());
    }
    if links.iter().any(|link| link.result.is_ok()) {
        return Ok(links);
    }
    let first = links.into_iter().find_map(|link| link.result.err());
    Err(LinkError::new(endpoint, first.unwrap_or(Fault::Closed)))
}

fn refused() -> Fault {
    Fault::UnexpectedData(REFUSED.to_owned())
}

/// Sends the attach message of a flow until the server replies.
struct AttachParty {
    attach: Attach,
    key: Arc<[u8]>,
    request: [u8; HANDSHAKE_BYTES],
    sent_bytes: usize,
    framing: Framing,
    /// The time of this try and of those that follow, the last one first. Only links that lose messages need several.
    try_times: Vec<Duration>,
    /// End of the current try.
    until: Option<Time>,
    batch: Batch,
    reply: Vec<u8>,
    end: Option<AttachEnd>,
    has_unexpected_reply: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AttachEnd {
    Attached,
    Refused,
    NoReply,
}

impl AttachParty {
    pub fn new(attach: Attach, key: &Arc<[u8]>, caps: &Caps, timeout: Duration) -> AttachParty {
        AttachParty {
            attach,
            key: key.clone(),
            request: attach.request(key),
            sent_bytes: 0,
            framing: caps.framing,
            try_times: try_times(caps, timeout).rev().collect(),
            until: None,
            batch: Batch::lent(2 * HANDSHAKE_BYTES),
            reply: Vec::new(),
            end: None,
            has_unexpected_reply: false,
        }
    }
}

impl Party for AttachParty {
    fn next_step(&mut self, now: Time) -> Step<'_> {
        let try_time = self.try_times.last().copied().unwrap_or_default();
        let until = *self.until.get_or_insert(now + try_time);
        match self.end {
            Some(AttachEnd::Attached) => Step::Done,
            Some(AttachEnd::Refused) => Step::Fail(refused()),
            Some(AttachEnd::NoReply) => Step::Fail(Fault::TimedOut),
            None if self.sent_bytes < HANDSHAKE_BYTES && now >= until => Step::Fail(Fault::TimedOut),
            None if self.sent_bytes < HANDSHAKE_BYTES => {
                Step::Send { bytes: &self.request[self.sent_bytes..], message: HANDSHAKE_BYTES }
            }
            None => Step::Receive { into: &mut self.batch, until },
        }
    }

    fn on_sent(&mut self, bytes: usize, _at: Time) {
        self.sent_bytes += bytes;
    }

    /// Unexpected messages may be late duplicates; unexpected bytes of a stream are the reply.
    fn on_received(&mut self, _now: Time) {
        for message in self.batch.messages() {
            if self.framing == Framing::Message {
                self.reply.clear();
            }
            self.reply.extend_from_slice(message);
            if let Some(reply) = self.reply.get(..HANDSHAKE_BYTES) {
                let is_valid = self.attach.is_valid_reply(reply, &self.key);
                self.has_unexpected_reply |= !is_valid;
                self.end = match (is_valid, self.framing) {
                    (true, _) => Some(AttachEnd::Attached),
                    (false, Framing::Stream) => Some(AttachEnd::Refused),
                    (false, Framing::Message) => self.end,
                };
            }
        }
        self.batch.return_memory();
    }

    fn on_timeout(&mut self, _now: Time) {
        self.try_times.pop();
        (self.until, self.sent_bytes) = (None, 0);
        if self.try_times.is_empty() {
            self.end = Some(if self.has_unexpected_reply { AttachEnd::Refused } else { AttachEnd::NoReply });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ATTACH: Attach = Attach { session_id: 5, flow_index: 9 };
    const TIMEOUT: Duration = Duration::from_secs(5);

    fn party(is_reliable: bool, framing: Framing) -> AttachParty {
        let caps = Caps { is_reliable, framing, ..Caps::STREAM };
        AttachParty::new(ATTACH, &[7; 16].into(), &caps, TIMEOUT)
    }

    fn receive(party: &mut AttachParty, bytes: &[u8]) {
        party.batch.borrow_memory();
        party.batch.bytes[..bytes.len()].copy_from_slice(bytes);
        party.batch.clear();
        party.batch.push_span(0, bytes.len());
        party.on_received(Time(0));
    }

    #[test]
    fn a_request_is_repeated_where_messages_get_lost() {
        let mut party = party(false, Framing::Message);
        let mut requests = 0;
        let mut now = Time(0);
        let ended = loop {
            match party.next_step(now) {
                Step::Send { bytes, .. } => {
                    assert!(ATTACH.is_valid_request(bytes, &[7; 16]));
                    requests += 1;
                    party.on_sent(HANDSHAKE_BYTES, now);
                }
                Step::Receive { until, .. } => {
                    now = until;
                    // A late duplicate of another message.
                    receive(&mut party, &[1; HANDSHAKE_BYTES]);
                    party.on_timeout(now);
                }
                Step::Fail(fault) => break fault.to_string(),
                _ => panic!("it sends and receives only"),
            }
        };
        // All nanoseconds but those of a division.
        assert!((Time(0) + TIMEOUT).since(now) < Duration::from_nanos(10), "{now:?}");
        assert_eq!((requests, ended.as_str()), (5, REFUSED));
    }

    #[test]
    fn a_reply_may_arrive_in_parts() {
        let mut party = party(true, Framing::Stream);
        let reply = ATTACH.reply(&[7; 16]);
        assert!(matches!(party.next_step(Time(0)), Step::Send { .. }));
        party.on_sent(10, Time(0));
        assert!(matches!(party.next_step(Time(0)), Step::Send { bytes, .. } if bytes.len() == 22));
        party.on_sent(22, Time(0));
        receive(&mut party, &reply[..5]);
        assert!(matches!(party.next_step(Time(0)), Step::Receive { .. }));
        receive(&mut party, &reply[5..]);
        assert!(matches!(party.next_step(Time(0)), Step::Done));
    }

    #[test]
    fn another_reply_and_silence_are_failures() {
        let mut refused = party(true, Framing::Stream);
        receive(&mut refused, &ATTACH.reply(&[8; 16]));
        assert!(matches!(refused.next_step(Time(0)), Step::Fail(Fault::UnexpectedData(_))));
        let mut silent = party(true, Framing::Stream);
        silent.on_timeout(Time(0));
        assert!(matches!(silent.next_step(Time(0)), Step::Fail(Fault::TimedOut)));
    }
}
