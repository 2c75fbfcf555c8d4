//! Timestamps of messages by the kernel, which this system does not have: requests say so, and messages have none.

use std::io;

use crate::Errno;
use socket2::SockAddr;

use crate::AsHandle;
use crate::stamps::SendRecord;

fn no_stamps<T>() -> io::Result<T> {
    Err(Errno::NOPROTOOPT.into())
}

/// Requests stamps of sent and received messages.
pub fn stamp_messages(_: impl AsHandle) -> io::Result<()> {
    no_stamps()
}

/// Requests stamps of sent and received data of a stream.
pub fn stamp_stream(_: impl AsHandle) -> io::Result<()> {
    no_stamps()
}

/// Requests stamps of received messages, and of the sent ones of [`send_stamped`].
pub fn stamp_on_request(_: impl AsHandle) -> io::Result<()> {
    no_stamps()
}

/// Requests no more stamps.
pub fn stop_stamps(_: impl AsHandle) -> io::Result<()> {
    Ok(())
}

/// Sends one message to `to`, with stamps.
pub fn send_stamped(_: impl AsHandle, _bytes: &[u8], _to: &SockAddr) -> Result<usize, Errno> {
    Err(Errno::NOPROTOOPT)
}

/// The oldest stamp of a sent message.
pub fn next_send_record(_: impl AsHandle) -> Option<SendRecord> {
    None
}
