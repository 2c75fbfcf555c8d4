//! What client and server have in common: their runtime, and how they fill a stream.

use std::future::poll_fn;

use bytes::Bytes;
use h2::SendStream;

use super::error::HttpError;

/// Bytes that the system may hold unsent: a probe waits for them.
pub const UNSENT_BYTES: u32 = 16 << 10;

/// Bytes of a write, and what TLS may hold encrypted while the system takes no more. By default it holds four times as many, and a
/// probe waits for them as well.
pub const CHUNK_BYTES: usize = 16 << 10;

/// A runtime in the thread that uses it.
pub fn runtime() -> Result<tokio::runtime::Runtime, HttpError> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

/// Waits until the stream takes bytes that were reserved for it.
pub(crate) async fn poll_capacity(stream: &mut SendStream<Bytes>) -> Result<usize, HttpError> {
    loop {
        match poll_fn(|context| stream.poll_capacity(context)).await {
            Some(capacity) if capacity.as_ref().is_ok_and(|&bytes| bytes == 0) => {}
            Some(capacity) => return Ok(capacity?),
            None => return Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset).into()),
        }
    }
}
