//! Many messages in a call, on systems with one message a call.

use crate::AsHandle;
use crate::message::Blocking;
use crate::{Errno, receive, send};

/// Sends `bytes` as datagrams of `segment` bytes in one call, which this system does not do.
///
/// # Errors
///
/// Always.
pub fn send_segments(
    _: impl AsHandle,
    _bytes: &[u8],
    _segment: u16,
    _blocking: Blocking,
) -> Result<usize, Errno> {
    Err(Errno::NOPROTOOPT)
}

/// Sends messages of `message` bytes stored back to back as separate datagrams. Returns the number sent.
///
/// # Errors
///
/// The first message is not sent.
pub fn send_many(
    socket: impl AsHandle,
    bytes: &[u8],
    message: usize,
    blocking: Blocking,
) -> Result<usize, Errno> {
    let mut sent = 0;
    for part in bytes.chunks(message) {
        match send(socket.as_handle(), part, blocking) {
            Ok(_) => sent += 1,
            Err(errno) if sent == 0 => return Err(errno),
            Err(_) => break,
        }
    }
    Ok(sent)
}

/// Receives at least one message and all others that are ready into slots of `slot` bytes. Calls `each` with the start and the length
/// of a message. Returns the number received.
///
/// # Errors
///
/// No message is received.
pub fn receive_many(
    socket: impl AsHandle,
    into: &mut [u8],
    slot: usize,
    blocking: Blocking,
    mut each: impl FnMut(usize, usize),
) -> Result<usize, Errno> {
    let mut received = 0;
    for part in into.chunks_exact_mut(slot) {
        let may_wait = if received == 0 { blocking } else { Blocking::Never };
        match receive(socket.as_handle(), part, may_wait) {
            Ok(length) => each(received * slot, length),
            Err(errno) if received == 0 => return Err(errno),
            Err(_) => break,
        }
        received += 1;
    }
    Ok(received)
}
