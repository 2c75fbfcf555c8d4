//! Errors of the system, with the names that other systems give them.

use std::io;

use windows_sys::Win32::Foundation as codes;
use windows_sys::Win32::Networking::WinSock as sockets;

/// An error of the system.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Errno(i32);

macro_rules! errors {
    ($($name:ident = $code:expr;)*) => {
        #[allow(missing_docs)]
        impl Errno {
            $(pub const $name: Errno = Errno($code as i32);)*
        }
    };
}

errors! {
    ACCESS = sockets::WSAEACCES;
    ADDRINUSE = sockets::WSAEADDRINUSE;
    ADDRNOTAVAIL = sockets::WSAEADDRNOTAVAIL;
    AFNOSUPPORT = sockets::WSAEAFNOSUPPORT;
    AGAIN = sockets::WSAEWOULDBLOCK;
    BUSY = codes::ERROR_BUSY;
    CONNABORTED = sockets::WSAECONNABORTED;
    CONNREFUSED = sockets::WSAECONNREFUSED;
    CONNRESET = sockets::WSAECONNRESET;
    HOSTDOWN = sockets::WSAEHOSTDOWN;
    HOSTUNREACH = sockets::WSAEHOSTUNREACH;
    INTR = sockets::WSAEINTR;
    INVAL = sockets::WSAEINVAL;
    IO = codes::ERROR_IO_DEVICE;
    MFILE = sockets::WSAEMFILE;
    MSGSIZE = sockets::WSAEMSGSIZE;
    NETDOWN = sockets::WSAENETDOWN;
    NETUNREACH = sockets::WSAENETUNREACH;
    NFILE = codes::ERROR_TOO_MANY_OPEN_FILES;
    NOBUFS = sockets::WSAENOBUFS;
    NODEV = codes::ERROR_DEV_NOT_EXIST;
    NOENT = codes::ERROR_FILE_NOT_FOUND;
    NOMEM = codes::ERROR_NOT_ENOUGH_MEMORY;
    NOPROTOOPT = sockets::WSAENOPROTOOPT;
    NOTCONN = sockets::WSAENOTCONN;
    NXIO = codes::ERROR_BAD_UNIT;
    OPNOTSUPP = sockets::WSAEOPNOTSUPP;
    PERM = codes::ERROR_PRIVILEGE_NOT_HELD;
    PIPE = codes::ERROR_BROKEN_PIPE;
    TIMEDOUT = sockets::WSAETIMEDOUT;
}

/// What a call returns that begins to connect and does not wait.
pub const CONNECT_BEGUN: Errno = Errno::AGAIN;

impl Errno {
    /// The error with this number.
    pub const fn from_raw_os_error(code: i32) -> Errno {
        Errno(code)
    }

    /// The number of the error.
    pub const fn raw_os_error(self) -> i32 {
        self.0
    }

    /// The error of the system in another error, if it is one.
    pub fn from_io_error(error: &io::Error) -> Option<Errno> {
        error.raw_os_error().map(Errno)
    }

    /// Its kind.
    pub fn kind(self) -> io::ErrorKind {
        io::Error::from(self).kind()
    }

    /// The error of the last call of this thread.
    pub(crate) fn last() -> Errno {
        Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
    }
}

impl From<Errno> for io::Error {
    fn from(errno: Errno) -> io::Error {
        io::Error::from_raw_os_error(errno.0)
    }
}

impl std::fmt::Display for Errno {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        io::Error::from(*self).fmt(f)
    }
}

impl std::fmt::Debug for Errno {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        io::Error::from(*self).fmt(f)
    }
}

impl std::error::Error for Errno {}
