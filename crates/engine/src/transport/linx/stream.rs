//! The TCP connection manager on a real socket: TCP between hosts, a Unix socket within one.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use socket2::Socket;

use super::super::socket::{ReadFacts, SocketLink};
use super::carrier::{Carrier, CarrierControl, CarrierReader, CarrierWriter, ReceivedItem, poll_within};
use super::ethernet_cm::connection::ReceivedMessage;
use super::tcp_cm::{
    self, ControlOutcome, FrameHeader, FrameKind, HEADER_BYTES, MAX_MESSAGE_BYTES, TcpConnection,
};
use super::{ConnectionRole, DisconnectReason};
use crate::link::{Caps, Facts, Fault, Link};
use linkgauge_model::clock::{Clock, Time};
use linkgauge_model::plan::WaitMode;
use linkgauge_system::{Blocking, BorrowedHandle, PollFlags, hang_up, receive, watch};

/// Buffer for at least one message while another is in flight; also the limit of one system call.
const BUFFER_BYTES: usize = 2 * (HEADER_BYTES + MAX_MESSAGE_BYTES);

/// Limit of pending output for a remote node that does not read. A correct node causes only a few bytes.
const MAX_PENDING_BYTES: usize = 256 * 1024;

struct StreamControl {
    socket: Socket,
    clock: Clock,
    read_facts: ReadFacts,
    connection: Mutex<TcpConnection>,
    /// Whole frames that are sent before the next message.
    pending_output: Mutex<Vec<u8>>,
    has_pending_output: AtomicBool,
    is_closed: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes over an open stream.
pub(crate) fn make_carrier(
    socket: Socket,
    side: ConnectionRole,
    clock: &Clock,
    read_facts: ReadFacts,
) -> Result<Carrier, Fault> {
    let clone = || socket.try_clone().map_err(Fault::system("clone the socket"));
    let link = |socket| SocketLink::new(socket, Caps::STREAM, clock, WaitMode::Block, read_facts);
    let (reads, writes) = (link(clone()?), link(clone()?));
    let mut pending = Vec::new();
    let connection = TcpConnection::new(side, clock.now(), &mut pending);
    let is_pending = AtomicBool::new(!pending.is_empty());
    let shared = Arc::new(StreamControl {
        socket,
        clock: clock.clone(),
        read_facts,
        connection: Mutex::new(connection),
        pending_output: Mutex::new(pending),
        has_pending_output: is_pending,
        is_closed: AtomicBool::new(false),
    });
    let bytes = vec![0; BUFFER_BYTES].into();
    let first = BufferHead::Unknown;
    let incoming = StreamReader {
        socket: reads,
        shared: shared.clone(),
        bytes,
        start: 0,
        end: 0,
        head: first,
        has_new_bytes: false,
    };
    let outgoing = StreamWriter {
        socket: writes,
        shared: shared.clone(),
        bytes: Vec::with_capacity(BUFFER_BYTES),
        sent: 0,
    };
    Ok(Carrier { reader: Box::new(incoming), writer: Box::new(outgoing), control: shared })
}

/// The type of the first bytes in the buffer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BufferHead {
    Unknown,
    Up,
    /// A message of this size.
    Message(FrameHeader),
}

struct StreamReader {
    socket: SocketLink,
    shared: Arc<StreamControl>,
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
    head: BufferHead,
    /// Received bytes that have not been reported to the supervision.
    has_new_bytes: bool,
}

impl StreamReader {
    /// Parses the first frame; handles frames that are not messages.
    #[inline]
    fn parse_next(&mut self) -> Result<bool, DisconnectReason> {
        while self.head == BufferHead::Unknown {
            let Some((header, _)) = tcp_cm::split_first_frame(&self.bytes[self.start..self.end])? else {
                return Ok(false);
            };
            if header.kind == FrameKind::Data {
                if std::mem::take(&mut self.has_new_bytes) {
                    lock(&self.shared.connection).note_data()?;
                }
                self.head = BufferHead::Message(header);
                return Ok(true);
            }
            let now = self.shared.clock.now();
            let mut connection = lock(&self.shared.connection);
            let mut outcome = ControlOutcome::Nothing;
            self.shared.queue_output(|pending| {
                outcome = connection.handle_control(header.kind, now, pending)?;
                Ok(())
            })?;
            self.start += HEADER_BYTES + header.size as usize;
            if outcome == ControlOutcome::Up {
                self.head = BufferHead::Up;
            }
        }
        Ok(true)
    }
}

impl CarrierReader for StreamReader {
    #[inline]
    fn peek(&mut self) -> Result<Option<ReceivedItem<'_>>, DisconnectReason> {
        if !self.parse_next()? {
            return Ok(None);
        }
        Ok(match self.head {
            BufferHead::Message(FrameHeader { source, destination, size, .. }) => {
                let bytes = &self.bytes[self.start + HEADER_BYTES..][..size as usize];
                Some(ReceivedItem::Message(ReceivedMessage { source, destination, arrived: None, bytes }))
            }
            BufferHead::Up => Some(ReceivedItem::Up),
            BufferHead::Unknown => None,
        })
    }

    #[inline]
    fn advance(&mut self) {
        if let BufferHead::Message(header) = std::mem::replace(&mut self.head, BufferHead::Unknown) {
            self.start += HEADER_BYTES + header.size as usize;
        }
    }

    fn receive(&mut self, wait: WaitMode, within: Duration) -> Result<(), Fault> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.bytes.len() - self.end < HEADER_BYTES + MAX_MESSAGE_BYTES {
            // The rest of a frame is shorter than the free space in front of it will be.
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        self.socket.wait = wait;
        self.end += self.socket.receive(&mut self.bytes[self.end..], within)?;
        self.has_new_bytes = true;
        Ok(())
    }
}

struct StreamWriter {
    socket: SocketLink,
    shared: Arc<StreamControl>,
    /// Whole frames; the first `sent` bytes are already sent.
    bytes: Vec<u8>,
    sent: usize,
}

impl CarrierWriter for StreamWriter {
    #[inline]
    fn queue(&mut self, source: u32, destination: u32, head: &[u8], bytes: &[u8]) -> bool {
        let size = head.len() + bytes.len();
        if self.shared.has_pending() {
            // Order matters: a sender may not send before its address is known.
            self.shared.take_pending(&mut self.bytes);
        }
        if self.bytes.len() + HEADER_BYTES + size > BUFFER_BYTES {
            return false;
        }
        self.bytes.extend_from_slice(&FrameHeader::data(source, destination, size).encode());
        self.bytes.extend_from_slice(head);
        self.bytes.extend_from_slice(bytes);
        true
    }

    #[inline]
    fn flush(&mut self, wait: WaitMode, within: Duration) -> Result<(), Fault> {
        self.socket.wait = wait;
        let (mut left, mut until) = (within, None);
        loop {
            if self.sent == self.bytes.len() {
                self.bytes.clear();
                self.sent = 0;
                if !self.shared.take_pending(&mut self.bytes) {
                    return Ok(());
                }
            }
            self.sent += self.socket.send(&self.bytes[self.sent..], left)?;
            if self.sent < self.bytes.len() {
                let now = self.shared.clock.now();
                left = until.get_or_insert(now + within).since(now);
            }
        }
    }
}

impl StreamControl {
    /// Adds to the pending output.
    fn queue_output(
        &self,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), DisconnectReason>,
    ) -> Result<(), DisconnectReason> {
        let mut pending = lock(&self.pending_output);
        write(&mut pending)?;
        self.has_pending_output.store(!pending.is_empty(), SeqCst);
        if pending.len() > MAX_PENDING_BYTES {
            return Err(DisconnectReason::ProtocolError(
                "it sends requests without end and reads no replies",
            ));
        }
        Ok(())
    }

    /// Waits until the socket has input or has ended.
    fn is_readable(&self, within: Duration) -> bool {
        poll_within(&mut [watch(&self.socket, PollFlags::IN)], within)
    }

    /// Moves the pending output behind `bytes`; `false` if there is none.
    fn take_pending(&self, bytes: &mut Vec<u8>) -> bool {
        if !self.has_pending_output.swap(false, SeqCst) {
            return false;
        }
        bytes.append(&mut lock(&self.pending_output));
        true
    }
}

impl CarrierControl for StreamControl {
    fn queue_message(&self, source: u32, destination: u32, message: &[u8]) {
        // An overflow is reported with the remote node's next frame.
        let _ = self.queue_output(|pending| {
            pending.extend_from_slice(&FrameHeader::data(source, destination, message.len()).encode());
            pending.extend_from_slice(message);
            Ok(())
        });
    }

    fn has_pending(&self) -> bool {
        self.has_pending_output.load(SeqCst)
    }

    fn tick(&self, now: Time) -> Result<Time, DisconnectReason> {
        let mut connection = lock(&self.connection);
        if now >= connection.next_due() {
            let unread = self.is_readable(Duration::ZERO);
            self.queue_output(|pending| connection.tick(now, unread, pending))?;
        }
        Ok(connection.next_due())
    }

    fn wait_readable(&self, wake: BorrowedHandle<'_>, within: Duration) -> bool {
        let wake = watch(&wake, PollFlags::IN);
        poll_within(&mut [watch(&self.socket, PollFlags::IN), wake], within)
    }

    fn facts(&self, facts: &mut Facts) {
        facts.insert("connection_manager".to_owned(), "TCP".into());
        facts.insert("connection_manager_version".to_owned(), tcp_cm::VERSION.into());
        (self.read_facts)(&self.socket, facts);
    }

    fn is_closed_by_remote(&self) -> bool {
        // Errors and the end of both directions are reported as well.
        hang_up(&self.socket).is_some()
    }

    fn abort(&self) {
        self.is_closed.store(true, Relaxed);
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
    }

    fn close(&self, until: Time) {
        if self.is_closed.load(Relaxed) {
            return;
        }
        if !lock(&self.connection).is_up() {
            return self.abort();
        }
        // Closing before the node does, or with unread bytes of it, resets the connection at the node's next
        // message. A real node then does not stop the supervision of this connection, and that can end its
        // next one.
        let _ = self.socket.shutdown(std::net::Shutdown::Write);
        let _ = self.socket.set_nonblocking(true);
        let mut rest = [0; 4096];
        loop {
            let left = until.since(self.clock.now());
            if left.is_zero() || !self.is_readable(left) {
                break;
            }
            if !matches!(receive(&self.socket, &mut rest, Blocking::Allowed), Ok(1..)) {
                break;
            }
        }
        self.abort();
    }
}
