//! The Ethernet connection manager on a real device: a packet socket that hears one Ethernet type.
//!
//! Whoever sends may have to take acknowledgements in, so both sides work on one connection under one lock; what the
//! sending side has taken in for the receiving side wakes that one.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use socket2::{Domain, SockAddr, Socket, Type};

use super::super::internet::interface_facts;
use super::super::{Facts, Fault, sys};
use super::carrier::{Carrier, Control, Incoming, Item, Outgoing};
use super::ethernet_cm::connection::{Connection, Event, entry};
use super::ethernet_cm::{LARGEST_FRAME, Mac, VERSION};
use super::{Ending, Side};
use crate::clock::{Clock, Time};
use crate::plan::Wait;

/// Where the far node is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub device: String,
    pub far: Mac,
    pub ethertype: u16,
}

/// Frames taken in under one lock.
const AT_ONCE: usize = 64;

/// The kernel keeps so many bytes of frames for us at least, as far as it may: several windows.
const SOCKET_BUFFER: usize = 4 << 20;

/// How long the far node may take to answer our going.
const LAST_ANSWER: Duration = Duration::from_millis(20);

/// A socket that hears this Ethernet type on this device, and the device.
pub fn socket(place: &Place) -> Result<(Socket, sys::Device), Fault> {
    let socket = Socket::new(Domain::PACKET, Type::DGRAM, None).map_err(|error| match error.kind() {
        std::io::ErrorKind::PermissionDenied => Fault::Other(
            "this user may not open packet sockets: LINX over Ethernet needs root or the capability CAP_NET_RAW"
                .to_owned(),
        ),
        _ => Fault::System { operation: "open a packet socket", source: error },
    })?;
    let device = sys::device(&socket, &place.device).map_err(|error| {
        Fault::Other(format!("no network device '{}' here ({error}): see 'ip link'", place.device))
    })?;
    // Where the kernel grants less, less is on its way at once.
    let _ = socket.set_recv_buffer_size(SOCKET_BUFFER);
    socket
        .bind(&sys::station(&device, place.ethertype, device.address))
        .map_err(Fault::system("bind to the network device"))?;
    Ok((socket, device))
}

struct Shared {
    socket: Socket,
    to: SockAddr,
    far: Mac,
    device: String,
    clock: Clock,
    work: Mutex<Work>,
    owes: AtomicBool,
    /// Frames wait for the device.
    stuck: AtomicBool,
    /// Wakes the receiving side when something was taken in for it, while it waits.
    wake: OwnedFd,
    waits: AtomicBool,
}

struct Work {
    connection: Connection,
    room: Vec<u8>,
    /// Short messages that go before any other.
    said: VecDeque<(u32, u32, Vec<u8>)>,
    /// The connection has come up, and nobody has been told.
    up: bool,
    ending: Option<Ending>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes a connection on a socket of [`socket`].
pub fn carrier(
    socket: &Socket,
    device: &sys::Device,
    place: &Place,
    side: Side,
    clock: &Clock,
) -> Result<Carrier, Fault> {
    let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
        .map_err(|errno| Fault::system("make an event descriptor")(errno.into()))?;
    let connection =
        Connection::new(side, device.address, place.far, device.mtu, fastrand::u64(..), clock.now());
    let shared = Arc::new(Shared {
        socket: socket.try_clone().map_err(Fault::system("clone the socket"))?,
        to: sys::station(device, place.ethertype, place.far),
        far: place.far,
        device: place.device.clone(),
        clock: clock.clone(),
        work: Mutex::new(Work {
            connection,
            room: vec![0; LARGEST_FRAME + 1],
            said: VecDeque::new(),
            up: false,
            ending: None,
        }),
        owes: AtomicBool::new(false),
        stuck: AtomicBool::new(false),
        wake,
        waits: AtomicBool::new(false),
    });
    let incoming = Reader { shared: shared.clone(), messages: Vec::new(), start: 0, up: false, ending: None };
    let outgoing = Writer { shared: shared.clone() };
    Ok(Carrier { incoming: Box::new(incoming), outgoing: Box::new(outgoing), control: shared })
}

impl Shared {
    /// What the connection wants sent goes, if the device takes it now: whoever waited for that here would keep others
    /// from answering the far node. Any other failure is as good as a loss on the way.
    fn out(&self) -> impl FnMut(&[u8]) -> bool + '_ {
        |frame| {
            let sent = sys::send_to(&self.socket, frame, &self.to, None, false);
            !matches!(sent, Err(Errno::AGAIN | Errno::NOBUFS))
        }
    }

    fn note(&self, work: &mut Work, event: Event) {
        match event {
            Event::Nothing => {}
            Event::Up => work.up = true,
            Event::Down(ending) => work.ending = Some(ending),
        }
    }

    /// Takes in the frames that are here.
    fn take_in(&self, work: &mut Work) {
        let now = self.clock.now();
        for _ in 0..AT_ONCE {
            // What comes behind the end belongs to the next connection on this socket.
            if work.ending.is_some() {
                break;
            }
            let arrival = match sys::receive_frame(&self.socket, &mut work.room) {
                Ok(arrival) => arrival,
                Err(error) => {
                    if !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) {
                        work.ending =
                            Some(Ending::System(format!("receive from '{}': {error}", self.device)));
                    }
                    break;
                }
            };
            if sys::station_of(&arrival.from) != Some(self.far) {
                continue;
            }
            let frame = &work.room[..arrival.length.min(LARGEST_FRAME)];
            let event = work.connection.received(frame, now, &mut self.out());
            self.note(work, event);
        }
        work.connection.transmit(&mut self.out());
        self.stuck.store(work.connection.is_stuck(), SeqCst);
        let news = work.connection.has_messages() || work.up || work.ending.is_some();
        if news && self.waits.load(SeqCst) {
            // If the count is full the reader has been woken already.
            let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        }
    }

    /// Sends what was said, as far as the connection takes it.
    fn settle(&self, work: &mut Work) {
        while work.connection.takes()
            && let Some((source, destination, bytes)) = work.said.pop_front()
        {
            work.connection.send(source, destination, [&[], &bytes], &mut self.out());
        }
        self.stuck.store(work.connection.is_stuck(), SeqCst);
        self.owes.store(!work.said.is_empty() && work.connection.is_up(), SeqCst);
    }

    /// Waits for frames, for a device that takes some again, or for what another took in for us.
    fn poll(&self, within: Duration, and_wake: bool) -> bool {
        let left = Timespec { tv_sec: within.as_secs() as i64, tv_nsec: within.subsec_nanos().into() };
        let room = if self.stuck.load(SeqCst) { PollFlags::OUT } else { PollFlags::empty() };
        let mut both =
            [PollFd::new(&self.socket, PollFlags::IN | room), PollFd::new(&self.wake, PollFlags::IN)];
        let watched = if and_wake { &mut both[..] } else { &mut both[..1] };
        let ready = poll(watched, Some(&left)).is_ok_and(|ready| ready > 0);
        if and_wake {
            let _ = rustix::io::read(&self.wake, &mut [0u8; 8]);
        }
        ready
    }
}

struct Reader {
    shared: Arc<Shared>,
    messages: Vec<u8>,
    start: usize,
    up: bool,
    ending: Option<Ending>,
}

impl Reader {
    /// Gets what has been taken in; whether that is anything.
    fn collect(&mut self, work: &mut Work) -> bool {
        if self.start == self.messages.len() {
            self.messages.clear();
            self.start = 0;
            if let Err(ending) = work.connection.take(&mut self.messages, &mut self.shared.out()) {
                work.ending = Some(ending);
            }
        }
        self.up |= std::mem::take(&mut work.up);
        self.ending = work.ending.clone();
        self.up || self.ending.is_some() || !self.messages.is_empty()
    }
}

impl Incoming for Reader {
    #[inline]
    fn peek(&mut self) -> Result<Option<Item<'_>>, Ending> {
        if self.up {
            return Ok(Some(Item::Up));
        }
        match (entry(&self.messages[self.start..]), &self.ending) {
            (Some((source, destination, bytes, _)), _) => {
                Ok(Some(Item::Message { source, destination, bytes }))
            }
            (None, Some(ending)) => Err(ending.clone()),
            (None, None) => Ok(None),
        }
    }

    #[inline]
    fn advance(&mut self) {
        if std::mem::take(&mut self.up) {
            return;
        }
        if let Some((_, _, _, used)) = entry(&self.messages[self.start..]) {
            self.start += used;
        }
    }

    fn fill(&mut self, wait: Wait, within: Duration) -> Result<(), Fault> {
        let shared = self.shared.clone();
        let (mut left, mut until) = (within, None);
        loop {
            shared.waits.store(true, SeqCst);
            let came = {
                let mut work = lock(&shared.work);
                shared.take_in(&mut work);
                self.collect(&mut work)
            };
            if came {
                shared.waits.store(false, SeqCst);
                return Ok(());
            }
            if left.is_zero() {
                shared.waits.store(false, SeqCst);
                return Err(Fault::TimedOut);
            }
            if wait == Wait::Block {
                shared.poll(left, true);
            }
            let now = shared.clock.now();
            left = until.get_or_insert(now + within).since(now);
        }
    }
}

struct Writer {
    shared: Arc<Shared>,
}

impl Outgoing for Writer {
    fn put(&mut self, source: u32, destination: u32, head: &[u8], bytes: &[u8]) -> bool {
        let mut work = lock(&self.shared.work);
        self.shared.settle(&mut work);
        if work.connection.is_held_up() {
            self.shared.take_in(&mut work);
        }
        if !work.said.is_empty() || !work.connection.takes() {
            return false;
        }
        work.connection.send(source, destination, [head, bytes], &mut self.shared.out());
        self.shared.stuck.store(work.connection.is_stuck(), SeqCst);
        true
    }

    fn flush(&mut self, wait: Wait, within: Duration) -> Result<(), Fault> {
        let (mut left, mut until) = (within, None);
        loop {
            {
                let mut work = lock(&self.shared.work);
                self.shared.settle(&mut work);
                if let Some(ending) = &work.ending {
                    return Err(ending.fault());
                }
                if !work.connection.is_up() || work.said.is_empty() && work.connection.takes() {
                    return Ok(());
                }
                self.shared.take_in(&mut work);
                if work.connection.takes() {
                    continue;
                }
            }
            if left.is_zero() {
                return Err(Fault::TimedOut);
            }
            if wait == Wait::Block {
                self.shared.poll(left, false);
            }
            let now = self.shared.clock.now();
            left = until.get_or_insert(now + within).since(now);
        }
    }
}

impl Control for Shared {
    fn say(&self, source: u32, destination: u32, message: &[u8]) {
        lock(&self.work).said.push_back((source, destination, message.to_vec()));
        self.owes.store(true, SeqCst);
    }

    fn owes(&self) -> bool {
        self.owes.load(SeqCst)
    }

    fn tick(&self, now: Time) -> Result<Time, Ending> {
        let mut work = lock(&self.work);
        // A frame that nobody has read yet is a sign of life.
        self.take_in(&mut work);
        let event = work.connection.tick(now, &mut self.out());
        self.note(&mut work, event);
        work.ending.clone().map_or(Ok(work.connection.due()), Err)
    }

    fn wait(&self, within: Duration) -> bool {
        // The writer may have taken something in.
        lock(&self.work).connection.has_messages() || self.poll(within, false)
    }

    fn facts(&self, facts: &mut Facts) {
        facts.insert("connection_manager".to_owned(), "Ethernet".into());
        facts.insert("connection_manager_version".to_owned(), VERSION.into());
        facts.insert("remote".to_owned(), mac_text(self.far).into());
        facts.insert("frame_bytes".to_owned(), lock(&self.work).connection.mtu().into());
        let interface = interface_facts(&self.socket, &self.device);
        facts.insert("interface".to_owned(), interface.into());
    }

    fn close(&self, until: Time) {
        // As long as words of ours have not arrived, the far node's may come as well.
        loop {
            let now = self.clock.now();
            let mut work = lock(&self.work);
            self.settle(&mut work);
            self.take_in(&mut work);
            let event = work.connection.tick(now, &mut self.out());
            self.note(&mut work, event);
            if work.ending.is_some() {
                return;
            }
            if !work.connection.is_up() || work.connection.is_settled() || now >= until {
                work.connection.leave(&mut self.out());
                break;
            }
            drop(work);
            self.poll(LAST_ANSWER, false);
        }
        let until = self.clock.now() + LAST_ANSWER;
        loop {
            let left = until.since(self.clock.now());
            let mut work = lock(&self.work);
            self.take_in(&mut work);
            if left.is_zero() || work.ending.is_some() {
                work.ending.get_or_insert(Ending::Closed);
                return;
            }
            drop(work);
            self.poll(left, false);
        }
    }

    fn abort(&self) {
        let mut work = lock(&self.work);
        if work.ending.is_none() {
            work.connection.leave(&mut self.out());
            work.ending = Some(Ending::Closed);
        }
    }
}

/// An address as one writes it.
pub fn mac_text(mac: Mac) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// Six bytes in hex, between colons.
pub fn mac_of(text: &str) -> Option<Mac> {
    let mut bytes = text.split(':').map(|part| match part.len() {
        2 => u8::from_str_radix(part, 16).ok(),
        _ => None,
    });
    let mac =
        [bytes.next()??, bytes.next()??, bytes.next()??, bytes.next()??, bytes.next()??, bytes.next()??];
    bytes.next().is_none().then_some(mac)
}
