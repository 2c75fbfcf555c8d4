//! Options and control messages of sockets, as the other files of this folder use them.

use std::io;
use std::sync::OnceLock;

use windows_sys::Win32::Networking::WinSock::{
    CMSGHDR, LPFN_WSARECVMSG, SIO_GET_EXTENSION_FUNCTION_POINTER, WSABUF, WSAID_WSARECVMSG, WSAIoctl, WSAMSG,
    getsockopt, setsockopt,
};

use super::error::Errno;
use super::handle::{AsHandle, raw_socket};

/// C data for which every bit pattern is valid, and which does not make the system access other memory.
///
/// # Safety
/// The type consists of integers.
// SAFETY: the promise that each `impl` below gives.
pub(crate) unsafe trait PlainData: Copy {}

// SAFETY: integers.
unsafe impl PlainData for i32 {}
// SAFETY: integers.
unsafe impl PlainData for u32 {}
// SAFETY: a C structure of integers and a union of them.
unsafe impl PlainData for windows_sys::Win32::Networking::WinSock::IN_PKTINFO {}
// SAFETY: a C structure of integers and a union of them.
unsafe impl PlainData for windows_sys::Win32::Networking::WinSock::IN6_PKTINFO {}

/// Reads a socket option.
pub(crate) fn get_option(socket: &impl AsHandle, level: i32, name: i32) -> Option<i32> {
    let (mut value, mut length) = (0i32, 4);
    // SAFETY: `value` is valid for writes of `length` bytes.
    let result = unsafe { getsockopt(raw_socket(socket), level, name, (&raw mut value).cast(), &mut length) };
    (result == 0).then_some(value)
}

/// Sets a socket option.
pub(crate) fn set_option(socket: &impl AsHandle, level: i32, name: i32, value: i32) -> io::Result<()> {
    // SAFETY: `value` is valid for reads of its size.
    let result = unsafe { setsockopt(raw_socket(socket), level, name, (&raw const value).cast(), 4) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The function that receives messages with control messages, which the system gives by request.
pub(crate) fn receive_function(socket: &impl AsHandle) -> Result<LPFN_WSARECVMSG, Errno> {
    static FUNCTION: OnceLock<LPFN_WSARECVMSG> = OnceLock::new();
    if let Some(function) = FUNCTION.get() {
        return Ok(*function);
    }
    let (id, mut function, mut length) = (WSAID_WSARECVMSG, LPFN_WSARECVMSG::None, 0);
    // SAFETY: the call reads the identifier and writes one pointer to a function, which `None` has room for.
    let result = unsafe {
        WSAIoctl(
            raw_socket(socket),
            SIO_GET_EXTENSION_FUNCTION_POINTER,
            (&raw const id).cast(),
            size_of_val(&id) as u32,
            (&raw mut function).cast(),
            size_of_val(&function) as u32,
            &mut length,
            std::ptr::null_mut(),
            None,
        )
    };
    if result != 0 {
        return Err(Errno::last());
    }
    Ok(*FUNCTION.get_or_init(|| function))
}

/// Bytes of control messages.
const CONTROL_BYTES: usize = 128;

/// Bytes of a header of a control message, after which its payload stands.
const HEADER_BYTES: usize = size_of::<CMSGHDR>().next_multiple_of(align_of::<usize>());

/// Buffer for control messages, with the alignment that the system requires.
#[repr(C, align(8))]
pub(crate) struct ControlBuffer([u8; CONTROL_BYTES]);

impl ControlBuffer {
    pub(crate) fn new() -> ControlBuffer {
        ControlBuffer([0; CONTROL_BYTES])
    }

    /// The empty buffer.
    pub(crate) fn room(&mut self) -> WSABUF {
        WSABUF { len: CONTROL_BYTES as u32, buf: self.0.as_mut_ptr() }
    }

    /// The buffer with one control message.
    pub(crate) fn with_value<T: PlainData>(&mut self, level: i32, kind: i32, value: T) -> WSABUF {
        let length = HEADER_BYTES + size_of::<T>();
        assert!(length <= CONTROL_BYTES);
        let header = CMSGHDR { cmsg_len: length, cmsg_level: level, cmsg_type: kind };
        // SAFETY: the buffer is aligned and, as just asserted, has room for header and payload.
        unsafe {
            self.0.as_mut_ptr().cast::<CMSGHDR>().write(header);
            self.0.as_mut_ptr().add(HEADER_BYTES).cast::<T>().write_unaligned(value);
        }
        WSABUF { len: length.next_multiple_of(align_of::<usize>()) as u32, buf: self.0.as_mut_ptr() }
    }

    /// The payload of one control message among the first bytes, which the system has filled.
    pub(crate) fn value<T: PlainData>(&self, filled: &WSAMSG, level: i32, kind: i32) -> Option<T> {
        let filled = (filled.Control.len as usize).min(CONTROL_BYTES);
        let mut at = 0;
        while at + HEADER_BYTES <= filled {
            // SAFETY: a header lies within the buffer, as just compared; any bits are valid integers.
            let header = unsafe { self.0.as_ptr().add(at).cast::<CMSGHDR>().read_unaligned() };
            let end = at.checked_add(header.cmsg_len).filter(|end| *end <= filled)?;
            let fits = header.cmsg_len >= HEADER_BYTES + size_of::<T>();
            if header.cmsg_level == level && header.cmsg_type == kind && fits {
                // SAFETY: the payload lies before `end`; every pattern of bits is a value of the type.
                return Some(unsafe { self.0.as_ptr().add(at + HEADER_BYTES).cast::<T>().read_unaligned() });
            }
            at = end.max(at + HEADER_BYTES).next_multiple_of(align_of::<usize>());
        }
        None
    }
}
