//! Many messages in a call, and the types of control messages.

use std::os::fd::{AsFd, AsRawFd};

use libc::c_int;
use rustix::io::Errno;
use rustix::net::SendFlags;

use crate::message::{Blocking, MAX_CALL_MESSAGES};
use crate::unix::raw::{ControlBuffer, call_flags, control_value, empty_header, to_count};

/// The type of a control message with a TTL.
pub(crate) const TTL_MESSAGE: c_int = libc::IP_TTL;

/// The type of a control message with a traffic class.
pub(crate) const TRAFFIC_CLASS_MESSAGE: c_int = libc::IP_TOS;

/// A closed connection is an error, and no signal.
pub(crate) const NO_SIGNAL: SendFlags = SendFlags::NOSIGNAL;

/// Size of each datagram but the last, if the kernel coalesced several.
pub(crate) fn coalesced_bytes(header: &libc::msghdr) -> Option<usize> {
    let bytes = control_value::<c_int>(header, libc::SOL_UDP, libc::UDP_GRO)?;
    usize::try_from(bytes).ok().filter(|&bytes| bytes > 0)
}

/// Sends `bytes` as datagrams of `segment` bytes (the last may be shorter), segmented by the kernel or the
/// card (`UDP_SEGMENT`).
pub fn send_segments(fd: impl AsFd, bytes: &[u8], segment: u16, blocking: Blocking) -> Result<usize, Errno> {
    let mut vector = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut control = ControlBuffer::new();
    let mut header = empty_header();
    header.msg_iov = &raw mut vector;
    header.msg_iovlen = 1;
    control.attach_value(&mut header, libc::SOL_UDP, libc::UDP_SEGMENT, segment);
    // SAFETY: header, vector, control buffer and bytes live through the call, which only reads them.
    to_count(unsafe { libc::sendmsg(fd.as_fd().as_raw_fd(), &raw const header, call_flags(blocking)) })
}

/// Sends messages of `message` bytes stored back to back as separate datagrams (`sendmmsg`). Returns the
/// number sent.
pub fn send_many(fd: impl AsFd, bytes: &[u8], message: usize, blocking: Blocking) -> Result<usize, Errno> {
    let mut vectors = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; MAX_CALL_MESSAGES];
    let mut headers = [libc::mmsghdr { msg_hdr: empty_header(), msg_len: 0 }; MAX_CALL_MESSAGES];
    let mut filled = 0;
    for (chunk, (vector, header)) in bytes.chunks(message).zip(vectors.iter_mut().zip(&mut headers)) {
        vector.iov_base = chunk.as_ptr().cast_mut().cast();
        vector.iov_len = chunk.len();
        header.msg_hdr.msg_iov = vector;
        header.msg_hdr.msg_iovlen = 1;
        filled += 1;
    }
    // SAFETY: the first `filled` headers point at vectors and bytes that live through the call; the bytes are only read.
    let sent = unsafe {
        libc::sendmmsg(fd.as_fd().as_raw_fd(), headers.as_mut_ptr(), filled, call_flags(blocking) as _)
    };
    to_count(sent as isize)
}

/// Receives at least one message and all others that are ready (`recvmmsg`) into slots of `slot` bytes. Calls
/// `each` with the start and the length of a message. Returns the number received.
pub fn receive_many(
    fd: impl AsFd,
    into: &mut [u8],
    slot: usize,
    blocking: Blocking,
    mut each: impl FnMut(usize, usize),
) -> Result<usize, Errno> {
    let mut vectors = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; MAX_CALL_MESSAGES];
    let mut headers = [libc::mmsghdr { msg_hdr: empty_header(), msg_len: 0 }; MAX_CALL_MESSAGES];
    let mut slots = 0;
    for (slot_buffer, (vector, header)) in
        into.chunks_exact_mut(slot).zip(vectors.iter_mut().zip(&mut headers))
    {
        vector.iov_base = slot_buffer.as_mut_ptr().cast();
        vector.iov_len = slot_buffer.len();
        header.msg_hdr.msg_iov = vector;
        header.msg_hdr.msg_iovlen = 1;
        slots += 1;
    }
    let flags = call_flags(blocking) | libc::MSG_WAITFORONE;
    // SAFETY: the first `slots` headers point at vectors and disjoint parts of `into`, which is borrowed for writing; no
    // timeout structure is given.
    let received = unsafe {
        libc::recvmmsg(fd.as_fd().as_raw_fd(), headers.as_mut_ptr(), slots, flags as _, std::ptr::null_mut())
    };
    let received = to_count(received as isize)?;
    for (index, header) in headers[..received].iter().enumerate() {
        each(index * slot, header.msg_len as usize);
    }
    Ok(received)
}
