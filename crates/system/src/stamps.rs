//! Timestamps of messages by the kernel.

/// The point at which the kernel stamped a sent message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendPoint {
    /// Point before the queue of the device.
    Queued,
    /// Point at which the driver of the device takes the message.
    Departed,
}

/// A stamp of a sent message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendRecord {
    /// Messages: the number of the send from 0. Streams: the number of the last byte of the send from 0. Wraps.
    pub id: u32,
    /// Point in the kernel at which the message was stamped.
    pub point: SendPoint,
    /// Time of day in nanoseconds.
    pub wall_ns: i64,
}
