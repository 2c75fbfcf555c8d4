//! The TCP connection manager on a real socket: TCP between hosts, a Unix socket within one.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::Socket;

use super::super::socket::{ReadFacts, SocketLink};
use super::super::{Caps, Facts, Fault, Link};
use super::carrier::{Carrier, Control, Incoming, Item, Outgoing};
use super::tcp_cm::{self, Connection, HEADER, Header, Heard, Kind, LARGEST};
use super::{Ending, Side};
use crate::clock::{Clock, Time};
use crate::plan::Wait;

/// Room for one message at least while another is on its way, and what one system call moves at most.
const ROOM: usize = 2 * (HEADER + LARGEST);

/// Most that a far node is owed that does not read; honest ones are owed some bytes.
const MOST_OWED: usize = 256 * 1024;

struct Shared {
    socket: Socket,
    clock: Clock,
    read_facts: ReadFacts,
    connection: Mutex<Connection>,
    /// Whole frames that go out before the next message.
    owed: Mutex<Vec<u8>>,
    owes: AtomicBool,
    closed: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes over a stream that is open.
pub fn carrier(socket: Socket, side: Side, clock: &Clock, read_facts: ReadFacts) -> Result<Carrier, Fault> {
    let clone = || socket.try_clone().map_err(Fault::system("clone the socket"));
    let link = |socket| SocketLink::new(socket, Caps::STREAM, clock, Wait::Block, read_facts);
    let (reads, writes) = (link(clone()?), link(clone()?));
    let mut owed = Vec::new();
    let connection = Connection::new(side, clock.now(), &mut owed);
    let owes = AtomicBool::new(!owed.is_empty());
    let shared = Arc::new(Shared {
        socket,
        clock: clock.clone(),
        read_facts,
        connection: Mutex::new(connection),
        owed: Mutex::new(owed),
        owes,
        closed: AtomicBool::new(false),
    });
    let bytes = vec![0; ROOM].into();
    let first = First::Unknown;
    let incoming =
        Reader { socket: reads, shared: shared.clone(), bytes, start: 0, end: 0, first, fresh: false };
    let outgoing =
        Writer { socket: writes, shared: shared.clone(), bytes: Vec::with_capacity(ROOM), sent: 0 };
    Ok(Carrier { incoming: Box::new(incoming), outgoing: Box::new(outgoing), control: shared })
}

/// What the first bytes of the buffer are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum First {
    Unknown,
    Up,
    /// A message of that many bytes.
    Message(Header),
}

struct Reader {
    socket: SocketLink,
    shared: Arc<Shared>,
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
    first: First,
    /// Bytes came that the supervision has not been told of.
    fresh: bool,
}

impl Reader {
    /// Finds out what comes first; deals with frames that are not messages.
    #[inline]
    fn look(&mut self) -> Result<bool, Ending> {
        while self.first == First::Unknown {
            let Some((header, _)) = tcp_cm::frame(&self.bytes[self.start..self.end])? else {
                return Ok(false);
            };
            if header.kind == Kind::Data {
                if std::mem::take(&mut self.fresh) {
                    lock(&self.shared.connection).message()?;
                }
                self.first = First::Message(header);
                return Ok(true);
            }
            let now = self.shared.clock.now();
            let mut connection = lock(&self.shared.connection);
            let mut heard = Heard::Nothing;
            self.shared.owe(|owed| {
                heard = connection.control(header.kind, now, owed)?;
                Ok(())
            })?;
            self.start += HEADER + header.size as usize;
            if heard == Heard::Up {
                self.first = First::Up;
            }
        }
        Ok(true)
    }
}

impl Incoming for Reader {
    #[inline]
    fn peek(&mut self) -> Result<Option<Item<'_>>, Ending> {
        if !self.look()? {
            return Ok(None);
        }
        Ok(match self.first {
            First::Message(Header { source, destination, size, .. }) => {
                let bytes = &self.bytes[self.start + HEADER..][..size as usize];
                Some(Item::Message { source, destination, bytes })
            }
            First::Up => Some(Item::Up),
            First::Unknown => None,
        })
    }

    #[inline]
    fn advance(&mut self) {
        if let First::Message(header) = std::mem::replace(&mut self.first, First::Unknown) {
            self.start += HEADER + header.size as usize;
        }
    }

    fn fill(&mut self, wait: Wait, within: Duration) -> Result<(), Fault> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.bytes.len() - self.end < HEADER + LARGEST {
            // The rest of a frame, which is shorter than the room before it will be.
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        self.socket.wait = wait;
        self.end += self.socket.receive(&mut self.bytes[self.end..], within)?;
        self.fresh = true;
        Ok(())
    }
}

struct Writer {
    socket: SocketLink,
    shared: Arc<Shared>,
    /// Whole frames, of which the first `sent` bytes are gone.
    bytes: Vec<u8>,
    sent: usize,
}

impl Outgoing for Writer {
    #[inline]
    fn put(&mut self, source: u32, destination: u32, head: &[u8], bytes: &[u8]) -> bool {
        let size = head.len() + bytes.len();
        if self.shared.owes() {
            // What was said before goes before: nobody may speak whose address is not known yet.
            self.shared.take_owed(&mut self.bytes);
        }
        if self.bytes.len() + HEADER + size > ROOM {
            return false;
        }
        self.bytes.extend_from_slice(&Header::data(source, destination, size).write());
        self.bytes.extend_from_slice(head);
        self.bytes.extend_from_slice(bytes);
        true
    }

    #[inline]
    fn flush(&mut self, wait: Wait, within: Duration) -> Result<(), Fault> {
        self.socket.wait = wait;
        let (mut left, mut until) = (within, None);
        loop {
            if self.sent == self.bytes.len() {
                self.bytes.clear();
                self.sent = 0;
                if !self.shared.take_owed(&mut self.bytes) {
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

impl Shared {
    /// Adds to what is owed.
    fn owe(&self, write: impl FnOnce(&mut Vec<u8>) -> Result<(), Ending>) -> Result<(), Ending> {
        let mut owed = lock(&self.owed);
        write(&mut owed)?;
        self.owes.store(!owed.is_empty(), SeqCst);
        if owed.len() > MOST_OWED {
            return Err(Ending::Broken("it asks and asks, and reads no answers"));
        }
        Ok(())
    }

    /// Moves what is owed behind `bytes`; false if there is nothing.
    fn take_owed(&self, bytes: &mut Vec<u8>) -> bool {
        if !self.owes.swap(false, SeqCst) {
            return false;
        }
        bytes.append(&mut lock(&self.owed));
        true
    }
}

impl Control for Shared {
    fn say(&self, source: u32, destination: u32, message: &[u8]) {
        // Too much of it shows when the far node says the next word.
        let _ = self.owe(|owed| {
            owed.extend_from_slice(&Header::data(source, destination, message.len()).write());
            owed.extend_from_slice(message);
            Ok(())
        });
    }

    fn owes(&self) -> bool {
        self.owes.load(SeqCst)
    }

    fn tick(&self, now: Time) -> Result<Time, Ending> {
        let mut connection = lock(&self.connection);
        if now >= connection.due() {
            let unread = self.wait(Duration::ZERO);
            self.owe(|owed| connection.tick(now, unread, owed))?;
        }
        Ok(connection.due())
    }

    fn wait(&self, within: Duration) -> bool {
        let left = Timespec { tv_sec: within.as_secs() as i64, tv_nsec: within.subsec_nanos().into() };
        poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&left)).is_ok_and(|ready| ready > 0)
    }

    fn facts(&self, facts: &mut Facts) {
        facts.insert("connection_manager".to_owned(), "TCP".into());
        facts.insert("connection_manager_version".to_owned(), tcp_cm::VERSION.into());
        (self.read_facts)(&self.socket, facts);
    }

    fn is_closed_by_node(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        // An error and the end of both directions are reported as well.
        poll(&mut [PollFd::new(&self.socket, PollFlags::RDHUP)], Some(&now)).is_ok_and(|ready| ready > 0)
    }

    fn abort(&self) {
        self.closed.store(true, Relaxed);
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
    }

    fn close(&self, until: Time) {
        if self.closed.load(Relaxed) {
            return;
        }
        if !lock(&self.connection).is_up() {
            return self.abort();
        }
        // To close before the node does, or with bytes of it unread, resets the connection at the node's next word. A
        // real node then forgets to stop the supervision of this connection, and that can end its next one.
        let _ = self.socket.shutdown(std::net::Shutdown::Write);
        let _ = self.socket.set_nonblocking(true);
        let mut rest = [0; 4096];
        loop {
            let left = until.since(self.clock.now());
            if left.is_zero() || !self.wait(left) {
                break;
            }
            if !matches!(
                rustix::net::recv(&self.socket, &mut rest, rustix::net::RecvFlags::empty()),
                Ok((1.., _))
            ) {
                break;
            }
        }
        self.abort();
    }
}
