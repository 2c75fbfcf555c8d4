//! Waiting until links are ready: sockets together, and serial ports by asking them.

use std::io;
use std::os::windows::io::{AsSocket, BorrowedSocket};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};
use windows_sys::Win32::Networking::WinSock::{WSAPOLLFD, WSAPoll};

use super::error::Errno;
use super::handle::{AsHandle, BorrowedHandle, raw_socket};
use super::poll_flags::PollFlags;
use super::serial_port::{PortHandle, SerialPort};
use crate::WakeEvent;

#[derive(Debug, Clone, Copy)]
enum WatchedTarget<'a> {
    Socket(usize),
    Port(&'a SerialPort),
    PortHandle(PortHandle),
}

/// An entry for [`poll`]: a handle, what to wait for, and what has happened.
#[derive(Debug, Clone)]
pub struct PollFd<'a> {
    target: WatchedTarget<'a>,
    wanted: PollFlags,
    happened: PollFlags,
}

impl<'a> PollFd<'a> {
    /// An entry for this handle.
    pub fn from_borrowed_fd(handle: BorrowedHandle<'a>, wanted: PollFlags) -> PollFd<'a> {
        let target = match handle {
            BorrowedHandle::Socket(_) => WatchedTarget::Socket(raw_socket(&handle)),
            BorrowedHandle::Port(port) => WatchedTarget::Port(port),
        };
        PollFd { target, wanted, happened: PollFlags::empty() }
    }

    /// What has happened.
    pub fn revents(&self) -> PollFlags {
        self.happened
    }
}

/// An entry for [`poll`]: what to wait for on a handle.
pub fn watch(on: &impl AsHandle, flags: PollFlags) -> PollFd<'_> {
    PollFd::from_borrowed_fd(on.as_handle(), flags)
}

/// Interval at which ports are asked beside others.
const PORT_INTERVAL: Duration = Duration::from_millis(1);

/// Waits until one of the handles is ready, at most this long. Returns the number of those that are. Sockets are waited for in whole
/// milliseconds, and shorter waits are a loop.
///
/// # Errors
///
/// The system refuses.
pub fn poll(watched: &mut [PollFd<'_>], within: Duration) -> Result<usize, Errno> {
    let began = Instant::now();
    if let [PollFd { target: WatchedTarget::Port(port), wanted, happened }] = watched {
        *happened = port.wait(*wanted, within);
        return Ok(usize::from(!happened.is_empty()));
    }
    let has_port = watched.iter().any(|entry| !matches!(entry.target, WatchedTarget::Socket(_)));
    loop {
        let left = within.saturating_sub(began.elapsed());
        let ready_ports = watched.iter_mut().map(PollFd::ask_port).filter(|is_ready| *is_ready).count();
        let wait = if ready_ports > 0 { Duration::ZERO } else { left };
        let wait = if has_port { wait.min(PORT_INTERVAL) } else { wait };
        // The rest below a millisecond is a loop, because a wait would be longer.
        let ready = ready_ports + poll_sockets(watched, wait.as_millis())?;
        if ready > 0 || left.is_zero() {
            return Ok(ready);
        }
    }
}

impl PollFd<'_> {
    /// Asks a port whether it is ready.
    fn ask_port(&mut self) -> bool {
        self.happened = match self.target {
            WatchedTarget::Socket(_) => PollFlags::empty(),
            WatchedTarget::Port(port) => port.readiness(self.wanted),
            WatchedTarget::PortHandle(port) => port.readiness(self.wanted),
        };
        !self.happened.is_empty()
    }
}

/// Sockets of one wait without an allocation.
const FEW: usize = 8;

fn poll_sockets(watched: &mut [PollFd<'_>], millis: u128) -> Result<usize, Errno> {
    let empty = WSAPOLLFD { fd: 0, events: 0, revents: 0 };
    let (mut few, mut many) = ([empty; FEW], Vec::new());
    let entries: &mut [WSAPOLLFD] = if watched.len() <= FEW {
        &mut few[..watched.len()]
    } else {
        many.resize(watched.len(), empty);
        &mut many
    };
    let mut count = 0;
    for entry in watched.iter() {
        if let WatchedTarget::Socket(socket) = entry.target {
            entries[count] = WSAPOLLFD { fd: socket, events: entry.wanted.0, revents: 0 };
            count += 1;
        }
    }
    let millis = i32::try_from(millis).unwrap_or(i32::MAX);
    if count == 0 {
        std::thread::sleep(Duration::from_millis(millis as u64));
        return Ok(0);
    }
    // SAFETY: `entries` has at least `count` entries, which live through the call.
    let ready = unsafe { WSAPoll(entries.as_mut_ptr(), count as u32, millis) };
    let ready = usize::try_from(ready).map_err(|_| Errno::last())?;
    let sockets = watched.iter_mut().filter(|entry| matches!(entry.target, WatchedTarget::Socket(_)));
    for (entry, polled) in sockets.zip(&entries[..count]) {
        entry.happened = PollFlags(polled.revents);
    }
    Ok(ready)
}

/// A handle without its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RawHandle {
    Socket(usize),
    Port(PortHandle),
}

impl RawHandle {
    pub(crate) fn of(handle: BorrowedHandle<'_>) -> RawHandle {
        match handle {
            BorrowedHandle::Socket(_) => RawHandle::Socket(raw_socket(&handle)),
            BorrowedHandle::Port(port) => RawHandle::Port(port.raw()),
        }
    }
}

/// An entry for a wait. The handle may have been closed; the wait reports that.
pub(crate) fn watch_raw(handle: RawHandle, wanted: PollFlags) -> PollFd<'static> {
    let target = match handle {
        RawHandle::Socket(socket) => WatchedTarget::Socket(socket),
        RawHandle::Port(port) => WatchedTarget::PortHandle(port),
    };
    PollFd { target, wanted, happened: PollFlags::empty() }
}

/// Two connected sockets. Nothing that another process can reach stays open.
pub(crate) fn socket_pair() -> io::Result<(Socket, Socket)> {
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    listener.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into())?;
    listener.listen(1)?;
    let (first, own) = (Socket::new(Domain::IPV4, Type::STREAM, None)?, listener.local_addr()?);
    first.connect(&own)?;
    loop {
        let (second, from) = listener.accept()?;
        // Another process may have been faster.
        if from.as_socket() == first.local_addr()?.as_socket() {
            first.set_tcp_nodelay(true)?;
            second.set_tcp_nodelay(true)?;
            return Ok((first, second));
        }
    }
}

impl AsSocket for WakeEvent {
    fn as_socket(&self) -> BorrowedSocket<'_> {
        self.socket().as_socket()
    }
}
