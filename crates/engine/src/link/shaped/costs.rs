//! Cost of a message for the nodes at both ends of a link: their processors, and the frames that the message takes.
//!
//! A node handles one message after the other. A message occupies the node for its *interval*, so the interval limits
//! the rate of messages; it arrives its *passage* after its start. Neither reads a clock.

use std::time::Duration;

/// Bytes of an Ethernet frame besides protocol header and payload: preamble, Ethernet header, check sequence, frame spacing.
const ETHERNET_OVERHEAD_BYTES: u64 = 38;
/// The shortest frame, including these bytes.
const MIN_ETHERNET_BYTES: u64 = 84;

/// The frames of a message on Ethernet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MessageFrames {
    /// Rate of the line, above zero.
    pub bits_per_second: f64,
    /// Header of the protocol in each frame, in bytes.
    pub header_bytes: u64,
    /// Payload of the first frame of a message, above zero.
    pub first_payload_bytes: u64,
    /// Payload of each further frame, above zero.
    pub payload_bytes: u64,
}

impl MessageFrames {
    /// The number of frames of a message; an empty one takes a frame as well.
    fn count(&self, bytes: u64) -> u64 {
        1 + bytes.saturating_sub(self.first_payload_bytes).div_ceil(self.payload_bytes)
    }

    /// Nanoseconds of the first frame on the line, and of the others together.
    fn line_ns(&self, bytes: u64) -> (f64, f64) {
        let wire = |payload: u64| {
            let bytes = (payload + self.header_bytes + ETHERNET_OVERHEAD_BYTES).max(MIN_ETHERNET_BYTES);
            bytes as f64 * 8e9 / self.bits_per_second
        };
        let first = bytes.min(self.first_payload_bytes);
        let rest = bytes - first;
        let last = rest % self.payload_bytes;
        let full = (rest / self.payload_bytes) as f64 * wire(self.payload_bytes);
        (wire(first), if last > 0 { full + wire(last) } else { full })
    }
}

/// The costs of a message. The default is none; times per byte are nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct NodeCosts {
    /// Time that every message needs before it arrives, whatever its size.
    pub message: Duration,
    /// The receiver needs this time for each frame of a message before the message arrives.
    pub frame: Duration,
    /// The first frame is stored and forwarded at this time per byte.
    pub first_frame_byte_ns: f64,
    /// The first frame crosses the line this many times, one after the other, and the others once behind it.
    pub hops: u32,
    /// A node copies the message at this time per byte.
    pub byte_ns: f64,
    /// Bytes beyond this size of a message take twice as long to copy, because they leave the cache.
    pub cache_bytes: f64,
    /// Number of messages that share the cache when messages follow each other; zero counts as one.
    pub queue: f64,
    /// The sender is busy for this time with each message.
    pub busy_message: Duration,
    /// The sender is busy for this time with each frame, while the frames before it are on the line.
    pub busy_frame: Duration,
    /// Minimum time from one message to the next.
    pub busy: Duration,
    /// The receiver copies a message at this time per byte while it arrives: hidden behind a slow line, but added to `busy`.
    pub busy_byte_ns: f64,
    /// The frames on the line; `None`: messages cross no line.
    pub frames: Option<MessageFrames>,
}

impl NodeCosts {
    /// Time from the start of a message to its arrival.
    pub fn passage(&self, bytes: u64) -> Duration {
        let frames = self.frames.map_or(0, |frames| frames.count(bytes));
        let first = self.frames.map_or(0, |frames| bytes.min(frames.first_payload_bytes));
        let mut ns = frames as f64 * nanoseconds(self.frame) + first as f64 * self.first_frame_byte_ns;
        if let Some(line) = self.frames.filter(|_| self.hops > 0) {
            let (first, rest) = line.line_ns(bytes);
            ns += f64::from(self.hops) * first + rest;
        }
        self.message + duration(ns + self.copy_ns(bytes, self.cache_bytes))
    }

    /// Time from the start of a message to the start of the next one, if that is waiting.
    pub fn interval(&self, bytes: u64) -> Duration {
        let (first, rest) = self.frames.map_or((0.0, 0.0), |frames| frames.line_ns(bytes));
        let frames = self.frames.map_or(0, |frames| frames.count(bytes));
        let frame_ns = (frames as f64 * nanoseconds(self.busy_frame)).max(first + rest);
        let copy_ns = self.copy_ns(bytes, self.cache_bytes / self.queue.max(1.0));
        let receiver = self.busy + duration(bytes as f64 * self.busy_byte_ns);
        receiver.max(self.busy_message + duration(frame_ns + copy_ns))
    }

    /// Processor time of the sender for a message of a stream.
    pub fn sender_time(&self, bytes: u64) -> Duration {
        let frames = self.frames.map_or(0, |frames| frames.count(bytes));
        let copy_ns = self.copy_ns(bytes, self.cache_bytes / self.queue.max(1.0));
        self.busy_message + duration(frames as f64 * nanoseconds(self.busy_frame) + copy_ns)
    }

    fn copy_ns(&self, bytes: u64, cache_bytes: f64) -> f64 {
        self.byte_ns * (bytes as f64 + (bytes as f64 - cache_bytes).max(0.0))
    }
}

fn nanoseconds(duration: Duration) -> f64 {
    duration.as_nanos() as f64
}

fn duration(nanoseconds: f64) -> Duration {
    Duration::from_nanos(nanoseconds.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIGABIT: MessageFrames = MessageFrames {
        bits_per_second: 1e9,
        header_bytes: 20,
        first_payload_bytes: 1480,
        payload_bytes: 1488,
    };

    fn microseconds(count: u64) -> Duration {
        Duration::from_micros(count)
    }

    #[test]
    fn a_message_takes_its_frames() {
        assert_eq!([0, 1, 1480, 1481, 2968, 2969].map(|bytes| GIGABIT.count(bytes)), [1, 1, 1, 2, 2, 3]);
        // A short frame has 84 bytes, a full one 1538, and the rest of 1 byte is short again.
        assert_eq!(GIGABIT.line_ns(1), (672.0, 0.0));
        assert_eq!(GIGABIT.line_ns(2969), (12_304.0, 12_368.0 + 672.0));
    }

    #[test]
    fn long_messages_are_limited_by_the_line_or_by_the_processor() {
        let costs = NodeCosts {
            frame: microseconds(20),
            first_frame_byte_ns: 10.0,
            busy_message: microseconds(7),
            busy_frame: microseconds(16),
            frames: Some(GIGABIT),
            ..NodeCosts::default()
        };
        assert_eq!(costs.passage(100), microseconds(21));
        assert_eq!(costs.passage(2969), microseconds(60) + Duration::from_nanos(14_800));
        assert_eq!(costs.interval(2969), microseconds(7 + 48));
        let slow = MessageFrames { bits_per_second: 1e8, ..GIGABIT };
        let on_slow_line = NodeCosts { hops: 4, frames: Some(slow), ..costs };
        assert_eq!(on_slow_line.interval(2969), microseconds(7) + Duration::from_nanos(253_440));
        assert_eq!(
            on_slow_line.passage(100) - costs.passage(100),
            4 * Duration::from_nanos((100 + 20 + 38) * 80)
        );
    }

    #[test]
    fn bytes_beyond_the_cache_are_copied_at_half_the_speed() {
        let costs = NodeCosts {
            message: microseconds(5),
            byte_ns: 2.0,
            cache_bytes: 4000.0,
            queue: 2.0,
            busy_message: microseconds(5),
            ..NodeCosts::default()
        };
        assert_eq!([1000, 5000].map(|bytes| costs.passage(bytes)), [7, 17].map(microseconds));
        assert_eq!([1000, 5000].map(|bytes| costs.interval(bytes)), [7, 21].map(microseconds));
        let receiver = NodeCosts {
            busy: microseconds(20),
            busy_byte_ns: 60.0,
            frames: Some(GIGABIT),
            ..NodeCosts::default()
        };
        assert_eq!([100, 1000].map(|bytes| receiver.interval(bytes)), [26, 80].map(microseconds));
        assert_eq!(receiver.sender_time(1000), Duration::ZERO);
        assert_eq!(receiver.passage(1000), Duration::ZERO, "the copy is over when the frame is");
        let busy = NodeCosts { busy: microseconds(30), ..NodeCosts::default() };
        assert_eq!((busy.passage(64), busy.interval(64)), (Duration::ZERO, microseconds(30)));
    }
}
