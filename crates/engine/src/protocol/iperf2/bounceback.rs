//! Round trips with a server of iperf 2 (`--bounceback`): it returns each message and writes its times into it.

use std::ops::Range;

use super::wire::bounceback::{self, MIN_BYTES};
use crate::protocol::stamp::time::WallClock;
use crate::workload::latency::{ReplyStatus, RequestReplyCodec};
use crate::workload::pattern::count_differing;
use linkgauge_model::clock::Time;
use linkgauge_model::sample::ServerTimestamps;

/// The client.
pub(crate) struct BouncebackCodec {
    message: Vec<u8>,
    reply: Vec<u8>,
    now: Time,
    wall_clock: WallClock,
    timestamps: Option<ServerTimestamps>,
}

impl BouncebackCodec {
    /// Creates the codec for messages of at least [`MIN_BYTES`].
    pub fn new(bytes: usize, wall_clock: WallClock, has_trip_times: bool) -> BouncebackCodec {
        BouncebackCodec {
            message: bounceback::new_request(bytes, has_trip_times),
            reply: Vec::with_capacity(bytes),
            now: Time(0),
            wall_clock,
            timestamps: None,
        }
    }

    /// The number of the request that a reply belongs to: that of the 32 bits nearest to those awaited.
    fn sequence_of(&self, waiting: &Range<u64>) -> Option<u64> {
        let distance = bounceback::id(&self.reply)?.wrapping_sub(1).wrapping_sub(waiting.start as u32) as i32;
        waiting.start.checked_add_signed(distance.into())
    }
}

impl RequestReplyCodec for BouncebackCodec {
    fn set_time(&mut self, now: Time) {
        self.now = now;
    }

    fn encode_request(&mut self, sequence: u64) -> &[u8] {
        let sent_us = self.wall_clock.unix_us_at(self.now);
        bounceback::write_request(&mut self.message, (sequence as u32).wrapping_add(1), sent_us);
        &self.message
    }

    fn parse_reply(&mut self, data: &[u8], waiting: Range<u64>) -> ReplyStatus {
        self.timestamps = None;
        let used = data.len().min(self.message.len() - self.reply.len());
        self.reply.extend_from_slice(&data[..used]);
        if self.reply.len() < self.message.len() {
            return ReplyStatus::Incomplete;
        }
        let is_own = self.reply[..8] == self.message[..8];
        let status = match self.sequence_of(&waiting).filter(|_| is_own) {
            Some(sequence) => {
                let times = bounceback::server_times_us(&self.reply);
                let clock_ns =
                    |unix_us: u64| self.wall_clock.clock_ns_of_unix((unix_us as i64).wrapping_mul(1000));
                self.timestamps = times.map(|[arrived, left]| ServerTimestamps {
                    received_ns: clock_ns(arrived),
                    sent_ns: clock_ns(left),
                    reply_number: sequence as u32,
                });
                let corrupt_bytes = count_differing(&self.reply[MIN_BYTES..], &self.message[MIN_BYTES..]);
                ReplyStatus::Complete { sequence, used, corrupt_bytes }
            }
            None => ReplyStatus::Malformed { used: data.len() },
        };
        self.reply.clear();
        status
    }

    fn restart(&mut self) {
        self.reply.clear();
    }

    fn has_server_timestamps(&self) -> bool {
        true
    }

    fn server_timestamps(&self) -> Option<ServerTimestamps> {
        self.timestamps
    }
}
