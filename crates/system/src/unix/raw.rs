//! Options and control messages of sockets, as the other files of this crate use them.

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd};

use libc::{c_int, c_void, socklen_t};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use socket2::SockAddr;

use crate::message::Blocking;

impl Blocking {
    /// Flags of a call that sends.
    pub(crate) fn send_flags(self) -> SendFlags {
        match self {
            Blocking::Allowed => SendFlags::empty(),
            Blocking::Never => SendFlags::DONTWAIT,
        }
    }

    /// Flags of a call that receives.
    pub(crate) fn receive_flags(self) -> RecvFlags {
        match self {
            Blocking::Allowed => RecvFlags::empty(),
            Blocking::Never => RecvFlags::DONTWAIT,
        }
    }
}

/// C data for which every bit pattern is valid, and which does not make the kernel access other memory.
///
/// # Safety
/// The type consists of integers: one integer, or an array or a C structure of integers. A reference, a
/// `bool` or an `enum` has invalid bit patterns, and the target of a pointer is not part of the data.
// SAFETY: the promise that each `impl` below gives.
pub(crate) unsafe trait PlainData: Copy {}

// SAFETY: integers.
unsafe impl PlainData for u8 {}
// SAFETY: integers.
unsafe impl PlainData for u16 {}
// SAFETY: integers.
unsafe impl PlainData for u32 {}
// SAFETY: integers.
unsafe impl PlainData for u64 {}
// SAFETY: integers.
unsafe impl PlainData for i64 {}
// SAFETY: integers.
unsafe impl PlainData for c_int {}
// SAFETY: an array of a type that consists of integers.
unsafe impl<T: PlainData, const N: usize> PlainData for [T; N] {}
// SAFETY: a C structure of integers.
unsafe impl PlainData for libc::in_pktinfo {}
// SAFETY: a C structure of integers.
unsafe impl PlainData for libc::in6_pktinfo {}
// SAFETY: a C structure of integers.
unsafe impl PlainData for libc::sockaddr_in {}
// SAFETY: a C structure of integers.
unsafe impl PlainData for libc::sockaddr_in6 {}

/// Reads a socket option.
pub(crate) fn get_option<T: PlainData>(fd: impl AsFd, level: c_int, name: c_int) -> Option<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut length = size_of::<T>() as socklen_t;
    // SAFETY: `value` is valid for writes of `length` bytes and outlives the call; the descriptor is borrowed.
    let result = unsafe {
        libc::getsockopt(
            fd.as_fd().as_raw_fd(),
            level,
            name,
            value.as_mut_ptr().cast::<c_void>(),
            &mut length,
        )
    };
    // SAFETY: the memory was zeroed, and every bit pattern is a valid value; an older kernel writes less and
    // leaves zeros.
    (result == 0).then(|| unsafe { value.assume_init() })
}

/// Sets a socket option.
pub(crate) fn set_option<T: PlainData>(fd: impl AsFd, level: c_int, name: c_int, value: T) -> io::Result<()> {
    // SAFETY: `value` is valid for reads of its size for the length of the call; the descriptor is borrowed.
    let result = unsafe {
        libc::setsockopt(
            fd.as_fd().as_raw_fd(),
            level,
            name,
            (&raw const value).cast::<c_void>(),
            size_of::<T>() as socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Receives one message, and the value that `read` finds in its control messages.
pub(crate) fn receive_with_control<T>(
    fd: impl AsFd,
    into: &mut [u8],
    flags: c_int,
    read: impl FnOnce(&libc::msghdr) -> T,
) -> Result<(usize, T), Errno> {
    let mut vector = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let mut control = ControlBuffer::new();
    let mut header = empty_header();
    header.msg_iov = &raw mut vector;
    header.msg_iovlen = 1;
    control.attach(&mut header);
    // SAFETY: header, vector, control buffer and `into` live through the call and are borrowed for writing; no room for an
    // address is given.
    let received = unsafe { libc::recvmsg(fd.as_fd().as_raw_fd(), &raw mut header, flags) };
    let length = to_count(received)?;
    Ok((length, read(&header)))
}

pub(crate) fn call_flags(blocking: Blocking) -> c_int {
    match blocking {
        Blocking::Allowed => libc::MSG_NOSIGNAL,
        Blocking::Never => libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT,
    }
}

pub(crate) fn to_count(result: isize) -> Result<usize, Errno> {
    usize::try_from(result)
        .map_err(|_| Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO))
}

/// An empty message header.
pub(crate) fn empty_header() -> libc::msghdr {
    // SAFETY: `msghdr` is a C structure of integers and pointers, for which all zeros is a valid value.
    unsafe { std::mem::zeroed() }
}

/// Bytes of control messages: those of a stamp and of the traffic class, or of a record of the error queue.
const CONTROL_BYTES: usize = 128;

/// Buffer for the control messages used here, with the alignment that the kernel requires.
#[repr(C, align(8))]
pub(crate) struct ControlBuffer(pub(crate) [u8; CONTROL_BYTES]);

impl ControlBuffer {
    pub(crate) fn new() -> ControlBuffer {
        ControlBuffer([0; CONTROL_BYTES])
    }

    /// Attaches the empty buffer to a header that receives.
    pub(crate) fn attach(&mut self, header: &mut libc::msghdr) {
        header.msg_control = self.0.as_mut_ptr().cast::<c_void>();
        header.msg_controllen = self.0.len() as _;
    }

    /// Attaches one control message to a header that sends.
    pub(crate) fn attach_value<T: PlainData>(
        &mut self,
        header: &mut libc::msghdr,
        level: c_int,
        kind: c_int,
        value: T,
    ) {
        self.attach(header);
        let size = size_of::<T>() as u32;
        // SAFETY: `CMSG_SPACE` only computes.
        let space = unsafe { libc::CMSG_SPACE(size) };
        assert!(space as usize <= self.0.len());
        header.msg_controllen = space as _;
        // SAFETY: the buffer is attached, aligned and, as just asserted, has room for one message of this size, so the
        // first header lies inside it; the payload is written unaligned.
        unsafe {
            let first = libc::CMSG_FIRSTHDR(header);
            (*first).cmsg_level = level;
            (*first).cmsg_type = kind;
            (*first).cmsg_len = libc::CMSG_LEN(size) as _;
            libc::CMSG_DATA(first).cast::<T>().write_unaligned(value);
        }
    }
}

/// The payload of one control message of a received header.
pub(crate) fn control_value<T: PlainData>(header: &libc::msghdr, level: c_int, kind: c_int) -> Option<T> {
    // SAFETY: the kernel filled the attached buffer and set its length, so the walk stays inside; the length of the
    // message is compared before its payload is read, unaligned; every pattern of bits is a value of the type.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(header);
        while !message.is_null() {
            let fits = (*message).cmsg_len as usize >= libc::CMSG_LEN(size_of::<T>() as u32) as usize;
            if (*message).cmsg_level == level && (*message).cmsg_type == kind && fits {
                return Some(libc::CMSG_DATA(message).cast::<T>().read_unaligned());
            }
            message = libc::CMSG_NXTHDR(header, message);
        }
    }
    None
}

/// Sends one datagram to `to`, with what `add` puts into its control buffer.
pub(crate) fn send_with_control(
    fd: impl AsFd,
    bytes: &[u8],
    to: &SockAddr,
    blocking: Blocking,
    add: impl FnOnce(&mut ControlBuffer, &mut libc::msghdr),
) -> Result<usize, Errno> {
    let mut vector = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut control = ControlBuffer::new();
    let mut header = empty_header();
    header.msg_name = to.as_ptr().cast_mut().cast();
    header.msg_namelen = to.len();
    header.msg_iov = &raw mut vector;
    header.msg_iovlen = 1;
    add(&mut control, &mut header);
    // SAFETY: header, address, vector, control buffer and bytes live through the call, which only reads them.
    to_count(unsafe { libc::sendmsg(fd.as_fd().as_raw_fd(), &raw const header, call_flags(blocking)) })
}
