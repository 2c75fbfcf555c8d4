//! A message that a server returns (`--bounceback`, since 2.1.7), with the times of its arrival and its return.

use std::ops::Range;
use std::time::Duration;

use super::{BOUNCES, micros_at, seconds_and_micros, word};

/// The least bytes of a message here. The fields of 2.2 end there.
pub(crate) const MIN_BYTES: usize = 64;

/// The default of the original.
pub(crate) const DEFAULT_BYTES: usize = 100;

/// The most bytes of a message.
pub(crate) const MAX_BYTES: usize = 64 * 1024;

/// The longest time that a server waits before it returns a message.
const MAX_HOLD: Duration = Duration::from_millis(100);

/// The client asks for acknowledgements at once, and its clock agrees with that of the server.
const QUICK_ACK: u32 = 0x8000_0000;
const TRIP_TIMES: u32 = 0x4000_0000;

const ID: Range<usize> = 8..12;
const SENT_AT: usize = 20;
const ARRIVED_AT: usize = 28;
const LEFT_AT: usize = 36;
const HOLD_AT: usize = 44;

/// The bytes of a message that begins with these; `None`: they do not begin one that is served.
pub(crate) fn message_bytes(first: [u8; 8]) -> Option<usize> {
    let bytes = word(&first, 4)? as usize;
    (word(&first, 0) == Some(BOUNCES) && (MIN_BYTES - 4..=MAX_BYTES).contains(&bytes)).then_some(bytes)
}

/// A request of this number of bytes, at least [`MIN_BYTES`].
pub(crate) fn new_request(bytes: usize, has_trip_times: bool) -> Vec<u8> {
    let flags = QUICK_ACK | if has_trip_times { TRIP_TIMES } else { 0 };
    let head = [BOUNCES, bytes as u32, 0, flags, 0, 0, 0].into_iter().chain([u32::MAX; 4]).chain([0; 5]);
    let mut message: Vec<u8> = head.flat_map(u32::to_be_bytes).collect();
    message.extend((message.len()..bytes).map(|at| b'0' + (at % 10) as u8));
    message
}

/// Writes number and time into a request.
pub(crate) fn write_request(message: &mut [u8], id: u32, sent_us: u64) {
    message[ID].copy_from_slice(&id.to_be_bytes());
    write_time(message, SENT_AT, sent_us);
}

/// The number of a request or its reply.
pub(crate) fn id(message: &[u8]) -> Option<u32> {
    word(message, ID.start)
}

/// Turns a request into its reply.
pub(crate) fn write_reply(message: &mut [u8], arrived_us: u64, left_us: u64) {
    write_time(message, ARRIVED_AT, arrived_us);
    write_time(message, LEFT_AT, left_us);
}

/// Arrival and return of a reply by the server's clock, in microseconds. A server that only echoes sets neither.
pub(crate) fn server_times_us(reply: &[u8]) -> Option<[u64; 2]> {
    let is_set = word(reply, ARRIVED_AT)? != u32::MAX && word(reply, LEFT_AT)? != u32::MAX;
    Some([micros_at(reply, ARRIVED_AT)?, micros_at(reply, LEFT_AT)?]).filter(|_| is_set)
}

/// Time for which the server waits before it returns a message.
pub(crate) fn hold(message: &[u8]) -> Duration {
    Duration::from_micros(word(message, HOLD_AT).unwrap_or(0).into()).min(MAX_HOLD)
}

fn write_time(message: &mut [u8], at: usize, micros: u64) {
    for (field, value) in message[at..at + 8].chunks_mut(4).zip(seconds_and_micros(micros)) {
        field.copy_from_slice(&value.to_be_bytes());
    }
}
