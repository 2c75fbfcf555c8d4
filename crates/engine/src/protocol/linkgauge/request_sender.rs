//! Requests of a client before and after the measurement.

use std::time::Duration;

use super::wire;
use crate::link::{Caps, Dialer, Fault, Framing, Link};
use linkgauge_model::clock::Time;

/// Maximum tries of a request within its timeout, on links that lose data.
const MAX_REQUEST_TRIES: u32 = 5;

/// Times to wait for the reply to each try of a request; `timeout` in all. Most lost messages are noticed soon, because each
/// wait is twice as long as the one before. Over a slow line, which sends a request for a while, all waits are equal.
pub(crate) fn try_times(caps: &Caps, timeout: Duration) -> impl DoubleEndedIterator<Item = Duration> + use<> {
    let is_doubled = caps.framing == Framing::Message;
    let tries = if caps.is_reliable { 1 } else { MAX_REQUEST_TRIES };
    let shares = if is_doubled { (1 << tries) - 1 } else { tries };
    (0..tries).map(move |number| timeout * if is_doubled { 1 << number } else { 1 } / shares)
}

/// Maximum number of earlier messages: more than a socket holds.
const MAX_EARLIER_MESSAGES: usize = 1 << 14;

/// Sends requests before and after the measurement: waits for replies, repeats requests on lossy links, within a time
/// limit.
pub(crate) struct RequestSender<'a> {
    link: &'a mut dyn Link,
    dialer: &'a Dialer,
    /// Bytes that have arrived on a stream and belong to no reply. Afterwards the reply is at their beginning.
    input: &'a mut Vec<u8>,
    tried_at: Time,
}

impl<'a> RequestSender<'a> {
    pub(crate) fn new(
        link: &'a mut dyn Link,
        dialer: &'a Dialer,
        input: &'a mut Vec<u8>,
    ) -> RequestSender<'a> {
        RequestSender { tried_at: dialer.now(), link, dialer, input }
    }

    /// Sends `words` until `understand` accepts the input: all bytes so far on a stream, one message on a message link.
    /// Unexpected messages are skipped, because they may be late duplicates; unexpected bytes of a stream are the
    /// reply.
    pub(crate) fn send_until_reply<T>(
        &mut self,
        words: &[u8],
        mut understand: impl FnMut(&[u8]) -> ParsedInput<T>,
    ) -> Result<T, Fault> {
        let caps = self.link.caps().clone();
        let until = self.dialer.now() + self.dialer.timeout;
        if caps.framing == Framing::Message {
            self.input.clear();
        }
        let mut chunk = vec![0; caps.max_message_bytes.unwrap_or(4096)];
        let mut strange = None;
        self.drop_earlier(&mut chunk)?;
        for wait in try_times(&caps, self.dialer.timeout) {
            self.tried_at = self.dialer.now();
            let mut sent = 0;
            while sent < words.len() {
                sent += self.link.send(&words[sent..], until.since(self.dialer.now()))?;
            }
            let again = (self.dialer.now() + wait).min(until);
            loop {
                let left = again.since(self.dialer.now());
                if left.is_zero() {
                    break;
                }
                match self.dialer.receive(self.link, &mut chunk, left) {
                    Ok(length) if caps.framing == Framing::Message => *self.input = chunk[..length].to_vec(),
                    Ok(length) => self.input.extend_from_slice(&chunk[..length]),
                    Err(Fault::TimedOut) => break,
                    Err(fault) => return Err(fault),
                }
                let mut parsed = understand(self.input);
                while let ParsedInput::Skip { used } = parsed {
                    self.input.drain(..used);
                    parsed = understand(self.input);
                }
                match parsed {
                    ParsedInput::Parsed(reply) => return Ok(reply),
                    ParsedInput::Unexpected(reply) if caps.framing == Framing::Stream => return Ok(reply),
                    ParsedInput::Unexpected(reply) => strange = Some(reply),
                    ParsedInput::Incomplete
                        if self.input.len() > wire::MAX_JSON_BYTES + wire::FRAME_HEADER_BYTES =>
                    {
                        return Err(Fault::UnexpectedData("the server sends without end".to_owned()));
                    }
                    ParsedInput::Incomplete | ParsedInput::Skip { .. } => {}
                }
            }
        }
        strange.ok_or(Fault::TimedOut)
    }

    /// The time since the last try of the last request.
    pub(crate) fn time_of_try(&self) -> Duration {
        self.dialer.now().since(self.tried_at)
    }

    /// Takes messages out of the socket that arrived before the request: they fill its buffer, and no reply is among them.
    fn drop_earlier(&mut self, chunk: &mut [u8]) -> Result<(), Fault> {
        if self.link.caps().framing == Framing::Stream || self.link.caps().is_reliable {
            return Ok(());
        }
        for _ in 0..MAX_EARLIER_MESSAGES {
            match self.link.receive(chunk, Duration::ZERO) {
                Ok(_) => {}
                Err(Fault::TimedOut) => break,
                Err(fault) => return Err(fault),
            }
        }
        Ok(())
    }
}

/// Result of parsing a reply.
pub(crate) enum ParsedInput<T> {
    /// More bytes are needed.
    Incomplete,
    Parsed(T),
    /// The first `used` bytes are not the reply; it may follow.
    Skip {
        used: usize,
    },
    /// Input that is no reply to the request.
    Unexpected(T),
}
