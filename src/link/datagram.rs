//! A link of messages on a socket, many of them in one system call where a party asks for it.
//!
//! Until it is tuned for batches, every message is one call, sending and receiving, so that a round trip costs what the
//! kernel makes it cost. Not for addresses: UDP, Unix and others open the socket and hand it over connected.
//!
//! Joining datagrams on receipt ([`Receiving::Coalesced`]) is a property of the socket, so the halves of a link share
//! that knowledge: whichever receives takes joined packets apart. Turning it off again leaves packets that were joined
//! already whole, so a link is tuned only between flows.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::io::Errno;

use super::offload::{Offload, Receiving, Sending};
use super::party::Tuning;
use super::socket::{SocketLink, Wants};
use super::{Batch, COALESCED, Caps, Facts, Fault, Link, MOST_IN_BATCH, sys};

/// Messages that came before the link was made, or more of them than were asked for; shared by its halves.
type Held = Arc<Mutex<VecDeque<Vec<u8>>>>;

pub struct DatagramLink {
    pub inner: SocketLink,
    offload: Offload,
    sending: Sending,
    receiving: Receiving,
    /// Largest segment that the kernel has not refused to cut.
    segment_limit: usize,
    held: Option<Held>,
    /// The kernel joins datagrams on this socket.
    coalescing: Arc<AtomicBool>,
    /// The kernel tells the TTL of what arrives, as far as it has one.
    tells_ttl: bool,
    /// The connection's end came behind messages; not every family tells it twice.
    ended: bool,
}

impl DatagramLink {
    /// `first` are messages of this peer that the listener has received already.
    pub fn new(inner: SocketLink, offload: Offload, first: VecDeque<Vec<u8>>) -> DatagramLink {
        DatagramLink {
            inner,
            offload,
            sending: Sending::Single,
            receiving: Receiving::Single,
            segment_limit: usize::from(u16::MAX),
            held: (!first.is_empty()).then(|| Arc::new(Mutex::new(first))),
            coalescing: Arc::default(),
            tells_ttl: false,
            ended: false,
        }
    }

    pub fn half(&self) -> Result<DatagramLink, Fault> {
        Ok(DatagramLink {
            inner: self.inner.half()?,
            offload: self.offload,
            sending: self.sending,
            receiving: self.receiving,
            segment_limit: self.segment_limit,
            held: self.held.clone(),
            coalescing: self.coalescing.clone(),
            tells_ttl: self.tells_ttl,
            ended: self.ended,
        })
    }

    fn take_held(&mut self) -> Option<Vec<u8>> {
        let held = self.held.as_ref()?;
        let message = held.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        if message.is_none() {
            self.held = None;
        }
        message
    }

    /// Takes a joined packet in and holds its messages, for callers that have no room for a whole one.
    fn hold_coalesced(&mut self, within: Duration) -> Result<(), Fault> {
        let mut batch = Batch::new(COALESCED, 1);
        self.receive_coalesced(&mut batch, within)?;
        let messages = batch.messages().map(<[u8]>::to_vec).collect();
        self.held = Some(Arc::new(Mutex::new(messages)));
        Ok(())
    }

    fn receive_coalesced(&mut self, into: &mut Batch, within: Duration) -> Result<(), Fault> {
        let (length, segment) = self.inner.attempt(Wants::ToReceive, within, |socket, may_block| {
            sys::receive_coalesced(socket, &mut into.bytes, may_block)
        })?;
        let segment = segment.unwrap_or(length).max(1);
        // An empty datagram is a message too.
        for start in (0..length.max(1)).step_by(segment).take(MOST_IN_BATCH) {
            into.push(start, segment.min(length - start).min(into.slot));
        }
        Ok(())
    }

    fn receive_many(&mut self, into: &mut Batch, within: Duration) -> Result<(), Fault> {
        let closes = self.inner.caps.closes;
        let Batch { bytes, slot, spans, .. } = into;
        let ended = &mut self.ended;
        self.inner.attempt(Wants::ToReceive, within, |socket, may_block| {
            sys::receive_many(socket, bytes, *slot, may_block, |start, length| match length {
                // The end of a connection reads as an empty message.
                0 if closes => *ended = true,
                length => spans.push((start as u32, length as u32)),
            })
        })?;
        if into.is_empty() { Err(Fault::Closed) } else { Ok(()) }
    }

    fn receive_with_ttl(&mut self, into: &mut Batch, within: Duration) -> Result<usize, Fault> {
        if !std::mem::replace(&mut self.tells_ttl, true) {
            sys::set_tell_ttl(&self.inner.socket);
        }
        let (length, ttl) = self.inner.attempt(Wants::ToReceive, within, |socket, may_block| {
            sys::receive_with_ttl(socket, &mut into.bytes, may_block)
        })?;
        into.ttl = ttl;
        Ok(length)
    }

    /// Hands as many messages as one packet bears to the kernel to cut; `None` where it will not.
    fn send_segments(
        &mut self,
        messages: &[u8],
        message: usize,
        within: Duration,
    ) -> Result<Option<usize>, Fault> {
        let count = (MOST_IN_PACKET / message).min(MOST_SEGMENTS);
        if message > self.segment_limit || count < 2 {
            return Ok(None);
        }
        let run = &messages[..messages.len().min(count * message)];
        let sent = self.inner.attempt(Wants::ToSend, within, |socket, may_block| {
            sys::send_segments(socket, run, message as u16, may_block)
        });
        match sent {
            Err(Fault::System { source, .. }) if refuses(&source, TOO_LARGE) => {
                self.segment_limit = message - 1;
                Ok(None)
            }
            Err(Fault::System { source, .. }) if refuses(&source, NOT_AT_ALL) => {
                self.sending = Sending::Many;
                Ok(None)
            }
            sent => sent.map(Some),
        }
    }
}

/// Most segments that every kernel since 4.18 cuts (`UDP_MAX_SEGMENTS`).
const MOST_SEGMENTS: usize = 64;

/// Most payload of an IPv4 packet.
const MOST_IN_PACKET: usize = 65_507;

/// A segment beyond the MTU of the path.
const TOO_LARGE: &[Errno] = &[Errno::INVAL, Errno::MSGSIZE];

/// The card or the kernel cannot do it: no checksum offload (EIO), or too old.
const NOT_AT_ALL: &[Errno] = &[Errno::IO, Errno::OPNOTSUPP, Errno::NOPROTOOPT];

fn refuses(error: &io::Error, kinds: &[Errno]) -> bool {
    kinds.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// Copies what fits.
fn copy(message: &[u8], into: &mut [u8]) -> usize {
    let length = message.len().min(into.len());
    into[..length].copy_from_slice(&message[..length]);
    length
}

impl Link for DatagramLink {
    fn caps(&self) -> &Caps {
        &self.inner.caps
    }

    fn facts(&self) -> Facts {
        let mut facts = self.inner.facts();
        facts.insert("send_method".to_owned(), self.sending.name().into());
        facts.insert("receive_method".to_owned(), self.receiving.name().into());
        if self.receiving != Receiving::Single {
            self.offload.note(&mut facts);
        }
        facts
    }

    fn tune(&mut self, tuning: &Tuning) {
        self.inner.tune(tuning);
        let coalesced_before = self.receiving == Receiving::Coalesced;
        (self.sending, self.receiving) = match tuning.batches_of {
            None => (Sending::Single, Receiving::Single),
            Some(message) => self.offload.best(message as usize),
        };
        let coalesced = self.receiving == Receiving::Coalesced;
        // Only the handle that turned it on turns it off: the other half may still receive.
        if coalesced != coalesced_before {
            match sys::set_udp_coalescing(&self.inner.socket, coalesced) {
                Ok(()) => self.coalescing.store(coalesced, Relaxed),
                Err(_) => self.receiving = Receiving::Many,
            }
        }
    }

    #[inline]
    fn send(&mut self, bytes: &[u8], within: Duration) -> Result<usize, Fault> {
        self.inner.send(bytes, within)
    }

    fn receive(&mut self, into: &mut [u8], within: Duration) -> Result<usize, Fault> {
        if self.ended {
            return Err(Fault::Closed);
        }
        let mut held = self.take_held();
        if held.is_none() && self.coalescing.load(Relaxed) {
            self.hold_coalesced(within)?;
            held = self.take_held();
        }
        match held {
            None => self.inner.receive(into, within),
            Some(message) => Ok(copy(&message, into)),
        }
    }

    fn send_batch(&mut self, messages: &[u8], message: usize, within: Duration) -> Result<usize, Fault> {
        if self.sending == Sending::Single || messages.len() <= message || message == 0 {
            return self.inner.send(&messages[..messages.len().min(message)], within);
        }
        self.inner.check_length(message)?;
        if self.sending == Sending::Segments
            && let Some(taken) = self.send_segments(messages, message, within)?
        {
            return Ok(taken);
        }
        let sent = self
            .inner
            .attempt(Wants::ToSend, within, |socket, may_block| {
                sys::send_many(socket, messages, message, may_block)
            })
            .map_err(|fault| self.inner.too_long(fault, message))?;
        Ok((sent * message).min(messages.len()))
    }

    fn receive_batch(&mut self, into: &mut Batch, within: Duration) -> Result<(), Fault> {
        into.clear();
        if self.ended {
            return Err(Fault::Closed);
        }
        let length = match self.take_held() {
            Some(message) => copy(&message, &mut into.bytes),
            None if self.coalescing.load(Relaxed) => {
                if into.bytes.len() >= COALESCED {
                    return self.receive_coalesced(into, within);
                }
                self.receive(&mut into.bytes, within)?
            }
            None if self.receiving == Receiving::Many
                && into.slot > 0
                && into.bytes.len() >= 2 * into.slot =>
            {
                return self.receive_many(into, within);
            }
            None if into.wants_ttl => self.receive_with_ttl(into, within)?,
            None => self.inner.receive(&mut into.bytes, within)?,
        };
        into.push(0, length);
        Ok(())
    }

    fn other_half(&self) -> Result<Box<dyn Link>, Fault> {
        Ok(Box::new(self.half()?))
    }

    fn polled(&self) -> Duration {
        self.inner.polled()
    }

    fn finish(&mut self) -> Result<(), Fault> {
        self.inner.finish()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inner.descriptor()
    }

    fn socket_drops(&self) -> Option<u64> {
        if self.inner.caps.reliable { None } else { sys::socket_drops(&self.inner.socket) }
    }
}
