//! Stamps of the kernel on the client's time line: when a sent message was queued for its device, when it left, and when a
//! received one arrived.
//!
//! The kernel stamps with the time of day. It has the rate of our clock, so one difference converts all stamps until the
//! time of day is set. The reader notices this, and from then on there are no stamps.

use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use super::time_of_day::{TimeOfDay, read_offset_bounds};
use super::{Caps, Framing};
use linkgauge_model::clock::{Clock, Time};

use linkgauge_system as system;
pub(crate) use linkgauge_system::SendPoint;

/// Stamps that one reading returns: those of 32 messages.
const MAX_STAMPS: usize = 64;

/// A stamp of a sent message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendStamp {
    /// Messages: the number of the send since the link was tuned, from 0. Streams: the number of the last byte of the send.
    /// Wraps.
    pub id: u32,
    /// Place at which the message was stamped.
    pub point: SendPoint,
    /// Time of the stamp.
    pub at: Time,
}

/// The stamps of one reading. Fixed size: nothing is allocated after construction.
#[derive(Debug, Default)]
pub struct SendStamps {
    stamps: Vec<SendStamp>,
}

impl SendStamps {
    /// Makes a buffer without stamps; allocates all its memory.
    pub fn new() -> SendStamps {
        SendStamps { stamps: Vec::with_capacity(MAX_STAMPS) }
    }

    /// The stamps, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &SendStamp> {
        self.stamps.iter()
    }

    /// Removes all stamps.
    pub fn clear(&mut self) {
        self.stamps.clear();
    }

    /// Adds a stamp, while there is room.
    pub fn push(&mut self, stamp: SendStamp) {
        if !self.is_full() {
            self.stamps.push(stamp);
        }
    }

    /// Whether there is no room: the socket may have more stamps.
    pub(crate) fn is_full(&self) -> bool {
        self.stamps.len() >= MAX_STAMPS
    }
}

/// Bytes of the stamp of a message that is stored.
pub(crate) const STORED_BYTES: usize = 8;

/// The stamp of a message as it is stored; 0 stands for none.
pub(crate) fn stored(arrived: Option<Time>) -> [u8; STORED_BYTES] {
    arrived.map_or(0, |at| at.0).to_ne_bytes()
}

/// The stamp of a stored message.
pub(crate) fn restored(bytes: &[u8; STORED_BYTES]) -> Option<Time> {
    Some(Time(u64::from_ne_bytes(*bytes))).filter(|at| at.0 > 0)
}

/// Reads the stamps of one socket.
#[derive(Debug)]
pub(crate) struct StampReader {
    clock: Clock,
    /// Time of day minus our time, in nanoseconds. `None` once the time of day has been set.
    wall_offset_ns: Option<i64>,
    /// Stamps read while the link waited, for the next reading.
    collected: SendStamps,
}

/// Time for the kernel to begin to stamp arrivals, that time where its answer cannot be seen, and the interval of attempts.
const START_TIMEOUT: Duration = Duration::from_secs(2);
const BLIND_START_TIME: Duration = Duration::from_millis(300);
const START_INTERVAL: Duration = Duration::from_micros(500);

/// Waits until the kernel stamps a datagram of ours to ourselves; where the loopback device is down, for the usual time.
/// After the first request for stamps the kernel starts to stamp arrivals with a delay: on a busy host, a tenth of a second.
pub(crate) fn await_arrival_stamps(clock: &Clock) {
    let Ok(probe) = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)) else { return };
    let (Ok(own), Ok(())) = (probe.local_addr(), system::stamp_on_request(&probe)) else { return };
    if probe.send_to(&[0], own).is_err() {
        clock.sleep_until(clock.now() + BLIND_START_TIME);
        return;
    }
    let until = clock.now() + START_TIMEOUT;
    while clock.now() < until {
        let _ = probe.send_to(&[0], own);
        let received = system::receive_with_info(&probe, &mut [0], system::Blocking::Never);
        if received.is_ok_and(|(_, info)| info.arrived_wall_ns.is_some()) {
            return;
        }
        clock.sleep_until(clock.now() + START_INTERVAL);
    }
}

/// Rates of the clocks differ by nothing, but the readings are rounded.
const SET_TOLERANCE_NS: i64 = 1_000;

impl StampReader {
    /// Makes the kernel stamp the messages of this socket from now on. `None` where it has no stamps.
    pub(crate) fn enable(socket: &socket2::Socket, caps: &Caps, clock: &Clock) -> Option<StampReader> {
        if !caps.has_kernel_stamps || matches!(clock, Clock::Virtual(_)) {
            return None;
        }
        match caps.framing {
            Framing::Message => system::stamp_messages(socket),
            Framing::Stream => system::stamp_stream(socket),
        }
        .ok()?;
        let reader = StampReader::new(clock)?;
        await_arrival_stamps(clock);
        Some(reader)
    }

    /// Makes a reader for a socket that stamps messages. `None` on the virtual clock.
    pub fn new(clock: &Clock) -> Option<StampReader> {
        let wall_offset_ns = Some(TimeOfDay::read(clock)?.offset_ns);
        Some(StampReader { clock: clock.clone(), wall_offset_ns, collected: SendStamps::new() })
    }

    /// A time of day on our time line.
    #[inline]
    pub(crate) fn time_of(&self, wall_ns: i64) -> Option<Time> {
        u64::try_from(wall_ns.checked_sub(self.wall_offset_ns?)?).ok().map(Time)
    }

    /// Moves the stamps of sent messages from the socket to `into`.
    pub(crate) fn read(&mut self, socket: &socket2::Socket, into: &mut SendStamps) {
        self.collect(socket);
        into.clear();
        std::mem::swap(into, &mut self.collected);
    }

    /// Removes the stamps of sent messages from the socket and keeps them for [`StampReader::read`]; without room for them
    /// they are lost. Returns whether there were any.
    pub(crate) fn collect(&mut self, socket: &socket2::Socket) -> bool {
        if self.collected.is_full() {
            return StampReader::discard(socket);
        }
        let (low, high) = read_offset_bounds(&self.clock);
        let expected = low - SET_TOLERANCE_NS..=high + SET_TOLERANCE_NS;
        self.wall_offset_ns = self.wall_offset_ns.filter(|offset| expected.contains(offset));
        let mut has_read = false;
        while !self.collected.is_full()
            && let Some(record) = system::next_send_record(socket)
        {
            has_read = true;
            if let Some(at) = self.time_of(record.wall_ns) {
                self.collected.push(SendStamp { id: record.id, point: record.point, at });
            }
        }
        has_read
    }

    /// Removes the stamps without reading them: a socket with unread ones looks like a broken one. Returns whether there were
    /// any.
    pub(crate) fn discard(socket: &socket2::Socket) -> bool {
        let mut has_read = false;
        while system::next_send_record(socket).is_some() {
            has_read = true;
        }
        has_read
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Fault;
    use crate::link::party::Tuning;
    use crate::protocol::Registry;

    #[test]
    fn a_stamp_is_a_time_between_two_readings_of_our_clock() {
        let clock = Clock::System;
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None).unwrap();
        let caps = Caps { framing: Framing::Message, has_kernel_stamps: true, ..Caps::STREAM };
        let mut reader = StampReader::enable(&socket, &caps, &clock).unwrap();
        let before = clock.now();
        let wall_ns = linkgauge_model::clock::wall_clock_date().as_nanosecond() as i64;
        let after = clock.now();
        let at = reader.time_of(wall_ns).unwrap();
        let tolerance = std::time::Duration::from_micros(1);
        assert!(before.since(at) <= tolerance && at.since(after) <= tolerance, "{before:?} {at:?} {after:?}");
        // The time of day is set by a second: no stamps follow.
        reader.wall_offset_ns = reader.wall_offset_ns.map(|offset| offset + 1_000_000_000);
        reader.read(&socket, &mut SendStamps::new());
        assert_eq!(reader.time_of(wall_ns), None);
        let none = Caps { has_kernel_stamps: false, ..caps };
        assert!(StampReader::enable(&socket, &none, &clock).is_none());
    }

    #[test]
    fn stamps_neither_end_a_wait_nor_are_lost_by_it() {
        let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let url = format!("udp://{}", silent.local_addr().unwrap());
        let mut link = Registry::standard().dialer(Clock::System).open(&url.parse().unwrap()).unwrap();
        link.tune(&Tuning { stamps: true, ..Tuning::default() });
        let (wait, began) = (std::time::Duration::from_millis(15), std::time::Instant::now());
        link.send(b"request", wait).unwrap();
        assert!(matches!(link.receive(&mut [0; 64], wait), Err(Fault::TimedOut)));
        assert!(began.elapsed() >= wait, "{:?}", began.elapsed());
        let mut stamps = SendStamps::new();
        link.read_send_stamps(&mut stamps);
        let points: Vec<SendPoint> = stamps.iter().map(|stamp| stamp.point).collect();
        assert_eq!(points, [SendPoint::Queued, SendPoint::Departed]);
    }
}
