//! A message link on a socket, with many messages per system call where a party requests batches.
//!
//! Without batches every message is one call, for sending and receiving, so that a round trip has the cost of
//! the kernel alone. The transports (UDP, Unix and others) open and connect the socket.
//!
//! Coalescing of received datagrams ([`ReceiveMethod::Coalesced`]) is a property of the socket, so the
//! handles of a link share this state: the receiving one splits coalesced packets. Packets that are already
//! coalesced stay so after it is turned off, so a link is tuned only between flows.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::offload::{OffloadOptions, ReceiveMethod, SendMethod};
use super::socket::{IoDirection, SocketLink};
use crate::link::delegate::{delegate_link, plain_link};
use crate::link::marks::MarkReader;
use crate::link::party::Tuning;
use crate::link::{Batch, Caps, Facts, Fault, Link, LinkStatus, MAX_BATCH_MESSAGES, MAX_COALESCED_BYTES};
use linkgauge_system::{self as system, Errno};

/// Messages from before the link was made, or more than the caller requested; shared by the handles.
type PendingMessages = Arc<Mutex<VecDeque<Vec<u8>>>>;

pub(crate) struct DatagramLink {
    pub(crate) inner: SocketLink,
    offload: OffloadOptions,
    send_method: SendMethod,
    receive_method: ReceiveMethod,
    /// Largest segment that the kernel has not refused to send.
    max_segment_bytes: usize,
    pending: Option<PendingMessages>,
    /// The kernel coalesces datagrams on this socket.
    is_coalescing: Arc<AtomicBool>,
    /// The kernel reports fields of the IP header of received messages, as far as they have one.
    has_ip_fields: bool,
    /// Reads the traffic class of received messages.
    marks: Option<MarkReader>,
    /// The end of the connection arrived after messages; not every address family reports it twice.
    is_ended: bool,
}

impl DatagramLink {
    /// Makes a link. `first` are messages of this remote that the listener has already received.
    pub fn new(inner: SocketLink, offload: OffloadOptions, first: VecDeque<Vec<u8>>) -> DatagramLink {
        DatagramLink {
            inner,
            offload,
            send_method: SendMethod::Single,
            receive_method: ReceiveMethod::Single,
            max_segment_bytes: usize::from(u16::MAX),
            pending: (!first.is_empty()).then(|| Arc::new(Mutex::new(first))),
            is_coalescing: Arc::default(),
            has_ip_fields: false,
            marks: None,
            is_ended: false,
        }
    }

    /// Counts marks of received messages, which the remote sends with this traffic class.
    pub(crate) fn read_marks(&mut self, expected: u8) {
        system::set_receive_traffic_class(&self.inner.socket);
        self.marks = Some(MarkReader::new(expected));
    }

    pub(crate) fn duplicate(&self) -> Result<DatagramLink, Fault> {
        Ok(DatagramLink {
            inner: self.inner.duplicate()?,
            offload: self.offload,
            send_method: self.send_method,
            receive_method: self.receive_method,
            max_segment_bytes: self.max_segment_bytes,
            pending: self.pending.clone(),
            is_coalescing: self.is_coalescing.clone(),
            has_ip_fields: self.has_ip_fields,
            marks: self.marks,
            is_ended: self.is_ended,
        })
    }

    fn take_pending(&mut self) -> Option<Vec<u8>> {
        let pending = self.pending.as_ref()?;
        let message = pending.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        if message.is_none() {
            self.pending = None;
        }
        message
    }

    /// Receives a coalesced packet and stores its messages, for callers whose buffer cannot hold a whole
    /// packet.
    fn queue_coalesced(&mut self, within: Duration) -> Result<(), Fault> {
        let mut batch = Batch::new(MAX_COALESCED_BYTES, 1);
        self.receive_coalesced(&mut batch, within)?;
        let messages = batch.messages().map(<[u8]>::to_vec).collect();
        self.pending = Some(Arc::new(Mutex::new(messages)));
        Ok(())
    }

    fn receive_coalesced(&mut self, into: &mut Batch, within: Duration) -> Result<(), Fault> {
        let (length, info) = self.inner.attempt(IoDirection::Receive, within, |socket, blocking| {
            system::receive_with_info(socket, &mut into.bytes, blocking)
        })?;
        let segment = info.segment_bytes.unwrap_or(length).max(1);
        // An empty datagram is also a message.
        for start in (0..length.max(1)).step_by(segment).take(MAX_BATCH_MESSAGES) {
            into.push_span(start, segment.min(length - start).min(into.slot_bytes));
        }
        if let Some(marks) = &mut self.marks {
            into.ce_messages = marks.count(info.traffic_class, into.len() as u64);
        }
        Ok(())
    }

    fn receive_marked(&mut self, into: &mut Batch, within: Duration) -> Result<usize, Fault> {
        let (length, info) = self.inner.receive_stamped(&mut into.bytes, within)?;
        if let Some(marks) = &mut self.marks {
            into.ce_messages = marks.count(info.traffic_class, 1);
        }
        into.arrived = self.inner.take_arrived();
        Ok(length)
    }

    fn receive_many(&mut self, into: &mut Batch, within: Duration) -> Result<(), Fault> {
        let closes = self.inner.caps.can_signal_close;
        let Batch { bytes, slot_bytes: slot, spans, .. } = into;
        let ended = &mut self.is_ended;
        self.inner.attempt(IoDirection::Receive, within, |socket, blocking| {
            system::receive_many(socket, bytes, *slot, blocking, |start, length| match length {
                // The end of a connection is received as an empty message.
                0 if closes => *ended = true,
                length => spans.push(start, length),
            })
        })?;
        if into.is_empty() { Err(Fault::Closed) } else { Ok(()) }
    }

    fn receive_with_ip_fields(&mut self, into: &mut Batch, within: Duration) -> Result<usize, Fault> {
        if !std::mem::replace(&mut self.has_ip_fields, true) {
            system::set_receive_ttl(&self.inner.socket);
            system::set_receive_traffic_class(&self.inner.socket);
        }
        let (length, fields) = self.inner.attempt(IoDirection::Receive, within, |socket, blocking| {
            system::receive_with_ip_fields(socket, &mut into.bytes, blocking)
        })?;
        into.ip_fields = fields;
        Ok(length)
    }

    /// Sends as many messages as fit one packet, segmented by the kernel; `None` if the kernel refuses.
    fn send_segments(
        &mut self,
        messages: &[u8],
        message: usize,
        within: Duration,
    ) -> Result<Option<usize>, Fault> {
        let count = (MAX_IPV4_PAYLOAD_BYTES / message).min(MAX_SEGMENTS);
        if message > self.max_segment_bytes || count < 2 {
            return Ok(None);
        }
        let run = &messages[..messages.len().min(count * message)];
        let sent = self.inner.attempt(IoDirection::Send, within, |socket, blocking| {
            system::send_segments(socket, run, message as u16, blocking)
        });
        match sent {
            Err(Fault::System { source, .. }) if is_errno_of(&source, SEGMENT_TOO_LARGE_ERRNOS) => {
                self.max_segment_bytes = message - 1;
                Ok(None)
            }
            Err(Fault::System { source, .. }) if is_errno_of(&source, UNSUPPORTED_ERRNOS) => {
                self.send_method = SendMethod::Many;
                Ok(None)
            }
            sent => self.inner.lose_discarded(sent, run.len()).map(Some),
        }
    }
}

/// Maximum number of segments in every kernel since 4.18 (`UDP_MAX_SEGMENTS`).
const MAX_SEGMENTS: usize = 64;

/// Maximum payload of an IPv4 packet.
const MAX_IPV4_PAYLOAD_BYTES: usize = 65_507;

/// A segment beyond the MTU of the path.
const SEGMENT_TOO_LARGE_ERRNOS: &[Errno] = &[Errno::INVAL, Errno::MSGSIZE];

/// The card or the kernel does not support it: no checksum offload (EIO), or too old.
const UNSUPPORTED_ERRNOS: &[Errno] = &[Errno::IO, Errno::OPNOTSUPP, Errno::NOPROTOOPT];

fn is_errno_of(error: &io::Error, kinds: &[Errno]) -> bool {
    kinds.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// Copies as much as fits.
fn copy_truncated(message: &[u8], into: &mut [u8]) -> usize {
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
        facts.insert("send_method".to_owned(), self.send_method.name().into());
        facts.insert("receive_method".to_owned(), self.receive_method.name().into());
        if self.receive_method != ReceiveMethod::Single {
            self.offload.insert_facts(&mut facts);
        }
        facts
    }

    fn status(&self) -> LinkStatus {
        LinkStatus { marks: self.marks.map(|marks| marks.counts), ..self.inner.status() }
    }

    fn tune(&mut self, tuning: &Tuning) {
        self.inner.tune(tuning);
        let coalesced_before = self.receive_method == ReceiveMethod::Coalesced;
        (self.send_method, self.receive_method) = match tuning.batch_message_bytes {
            None => (SendMethod::Single, ReceiveMethod::Single),
            Some(message) => self.offload.best_methods(message as usize),
        };
        // The party counts from here on.
        if let Some(class) = tuning.socket.traffic_class.or(self.marks.map(|marks| marks.expected)) {
            self.read_marks(class);
            // A call for many messages reports no classes.
            if self.receive_method == ReceiveMethod::Many {
                self.receive_method = ReceiveMethod::Single;
            }
        }
        let coalesced = self.receive_method == ReceiveMethod::Coalesced;
        // Only the handle that turned it on turns it off: another handle may still receive.
        if coalesced != coalesced_before {
            match system::set_udp_coalescing(&self.inner.socket, coalesced) {
                Ok(()) => self.is_coalescing.store(coalesced, Relaxed),
                Err(_) if self.marks.is_some() => self.receive_method = ReceiveMethod::Single,
                Err(_) => self.receive_method = ReceiveMethod::Many,
            }
        }
    }

    fn receive(&mut self, into: &mut [u8], within: Duration) -> Result<usize, Fault> {
        if self.is_ended {
            return Err(Fault::Closed);
        }
        let mut pending = self.take_pending();
        if pending.is_none() && self.is_coalescing.load(Relaxed) {
            self.queue_coalesced(within)?;
            pending = self.take_pending();
        }
        match pending {
            None => self.inner.receive(into, within),
            Some(message) => Ok(copy_truncated(&message, into)),
        }
    }

    fn send_batch(&mut self, messages: &[u8], message: usize, within: Duration) -> Result<usize, Fault> {
        if self.send_method == SendMethod::Single || messages.len() <= message || message == 0 {
            return self.inner.send(&messages[..messages.len().min(message)], within);
        }
        self.inner.check_length(message)?;
        if self.send_method == SendMethod::Segments
            && let Some(taken) = self.send_segments(messages, message, within)?
        {
            return Ok(taken);
        }
        let sent = self.inner.attempt(IoDirection::Send, within, |socket, blocking| {
            system::send_many(socket, messages, message, blocking)
        });
        let sent =
            self.inner.lose_discarded(sent, 1).map_err(|fault| self.inner.map_too_long(fault, message))?;
        Ok((sent * message).min(messages.len()))
    }

    fn receive_batch(&mut self, into: &mut Batch, within: Duration) -> Result<(), Fault> {
        into.clear();
        if self.is_ended {
            return Err(Fault::Closed);
        }
        let length = match self.take_pending() {
            Some(message) => copy_truncated(&message, &mut into.bytes),
            None if self.is_coalescing.load(Relaxed) => {
                if into.bytes.len() >= MAX_COALESCED_BYTES {
                    return self.receive_coalesced(into, within);
                }
                self.receive(&mut into.bytes, within)?
            }
            None if self.receive_method == ReceiveMethod::Many
                && into.slot_bytes > 0
                && into.bytes.len() >= 2 * into.slot_bytes =>
            {
                return self.receive_many(into, within);
            }
            None if into.wants_ip_fields => self.receive_with_ip_fields(into, within)?,
            None if self.marks.is_some() || self.inner.has_stamps() => self.receive_marked(into, within)?,
            None => self.inner.receive(&mut into.bytes, within)?,
        };
        into.push_span(0, length);
        Ok(())
    }

    fn second_handle(&self) -> Result<Box<dyn Link>, Fault> {
        Ok(Box::new(self.duplicate()?))
    }

    delegate_link!(self => self.inner; send finish_sending abort read_send_stamps descriptor);
    plain_link!(reopen port_control);
}
