//! Matches the kernel's stamps of requests and replies, and what the server reports, to round trips.

use std::sync::Arc;

use crate::link::stamps::{SendPoint, SendStamp, SendStamps};
use crate::link::{Caps, Framing};
use linkgauge_model::clock::Time;
use linkgauge_model::sample::{
    LocalStamps, RemoteStages, ReplyEventKind, ReplyLog, Sample, StageTimes, StampedEnds,
};

/// Number of round trips whose stamps may still arrive. A power of two.
const TRACKED: usize = 1024;

/// Server's stamps in a reply.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReplyStages {
    /// Time from the arrival of the request at the server's host until its program had it, in nanoseconds.
    pub receive_ns: Option<u64>,
    /// Time from then until the program sent the reply, in nanoseconds. `None` if its times contradict each other.
    pub program_ns: Option<u64>,
    /// Stamps of an earlier reply, which that reply could not contain.
    pub earlier: Option<EarlierReply>,
}

/// Stamps of a reply when it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EarlierReply {
    /// Number of the request.
    pub sequence: u64,
    /// Time from the program's send until the reply was put into the queue of the device, in nanoseconds.
    pub send_ns: u64,
    /// Time from then until the reply left the host, in nanoseconds.
    pub queue_ns: u64,
}

/// Known stamps and stages of one round trip.
#[derive(Debug, Clone, Copy, Default)]
struct RoundTrip {
    sequence: u64,
    /// Whether the slot holds a round trip that is not recorded yet.
    is_open: bool,
    /// Whether the client's own stamps are complete.
    is_noted: bool,
    queued: Option<Time>,
    departed: Option<Time>,
    reply: Option<(Sample, Time)>,
    remote: Option<ReplyStages>,
    sent_by_remote: Option<(u64, u64)>,
}

/// Stages of the round trips of one flow while they are measured. Fixed size.
#[derive(Debug)]
pub(crate) struct StageTracker {
    /// Stamps of the last reading.
    pub(crate) stamps: SendStamps,
    round_trips: Vec<RoundTrip>,
    ends: StampedEnds,
    framing: Framing,
    /// Bytes of one request on a stream.
    request_bytes: u64,
    sent_requests: u64,
    /// Whether the stamps of a request should be there.
    must_read: bool,
    /// Log of the flow's replies, where another thread prints each of them.
    reply_log: Option<Arc<ReplyLog>>,
}

impl StageTracker {
    /// Tracker for requests of one size.
    pub fn new(ends: StampedEnds, caps: &Caps, request_bytes: u64) -> StageTracker {
        StageTracker {
            stamps: SendStamps::new(),
            round_trips: vec![RoundTrip::default(); TRACKED],
            ends,
            framing: caps.framing,
            request_bytes: request_bytes.max(1),
            sent_requests: 0,
            must_read: false,
            reply_log: None,
        }
    }

    /// Notes the time between the stamps of each round trip as well.
    pub(crate) fn with_reply_log(self, reply_log: Option<Arc<ReplyLog>>) -> StageTracker {
        StageTracker { reply_log, ..self }
    }

    fn slot(&mut self, sequence: u64) -> Option<&mut RoundTrip> {
        let slot = &mut self.round_trips[sequence as usize & (TRACKED - 1)];
        (slot.is_open && slot.sequence == sequence).then_some(slot)
    }

    /// Notes that the next request was sent. The round trip in its slot never got all of its stamps.
    pub(crate) fn on_sent(&mut self, sequence: u64, is_measured: bool, times: &mut StageTimes) {
        self.sent_requests += 1;
        let slot = &mut self.round_trips[sequence as usize & (TRACKED - 1)];
        if slot.is_open && slot.reply.is_some() {
            times.record_unstamped();
        }
        *slot = RoundTrip { sequence, is_open: is_measured, ..RoundTrip::default() };
    }

    /// Notes the first reply to a request; `arrived` is its stamp.
    pub(crate) fn on_reply(
        &mut self,
        sample: Sample,
        arrived: Option<Time>,
        remote: Option<ReplyStages>,
        times: &mut StageTimes,
    ) {
        if let Some(slot) = self.slot(sample.sequence) {
            slot.reply = arrived.map(|arrived| (sample, arrived));
            slot.remote = remote;
            slot.is_open = arrived.is_some();
            if arrived.is_none() {
                times.record_unstamped();
            }
        }
        let Some(EarlierReply { sequence, send_ns, queue_ns }) = remote.and_then(|remote| remote.earlier)
        else {
            return;
        };
        if let Some(slot) = self.slot(sequence) {
            slot.sent_by_remote = Some((send_ns, queue_ns));
            self.record_if_complete(sequence, times);
        }
    }

    /// Notes a receive, also before the measurement: unread stamps fill the buffer of the socket.
    pub(crate) fn on_received(&mut self) {
        self.must_read = true;
    }

    /// Whether the stamps are to be read now.
    pub(crate) fn take_must_read(&mut self) -> bool {
        std::mem::take(&mut self.must_read)
    }

    /// Uses the stamps of the last reading.
    pub(crate) fn settle(&mut self, times: &mut StageTimes) {
        self.must_read |= self.stamps.is_full();
        let stamps = std::mem::take(&mut self.stamps);
        for stamp in stamps.iter() {
            let Some(sequence) = self.sequence_of(stamp) else { continue };
            let Some(slot) = self.slot(sequence) else { continue };
            match stamp.point {
                SendPoint::Queued => slot.queued = Some(stamp.at),
                SendPoint::Departed => slot.departed = Some(stamp.at),
            }
            self.record_if_complete(sequence, times);
        }
        self.stamps = stamps;
        self.stamps.clear();
    }

    /// Number of the request that a stamp belongs to. On a stream it is the stamp of the last byte of a request.
    fn sequence_of(&self, stamp: &SendStamp) -> Option<u64> {
        let unit = if self.framing == Framing::Stream { self.request_bytes } else { 1 };
        let sent_units = self.sent_requests * unit;
        // Identifiers have 32 bits.
        let behind = (sent_units as u32).wrapping_sub(1).wrapping_sub(stamp.id);
        let position = sent_units.checked_sub(u64::from(behind))?;
        (position > 0 && position.is_multiple_of(unit)).then(|| position / unit - 1)
    }

    fn record_if_complete(&mut self, sequence: u64, times: &mut StageTimes) {
        let ends = self.ends;
        let log = self.reply_log.clone();
        let Some(slot) = self.slot(sequence) else { return };
        let (Some((sample, arrived)), Some(queued), Some(departed)) =
            (slot.reply, slot.queued, slot.departed)
        else {
            return;
        };
        if let Some(log) = log.filter(|_| !std::mem::replace(&mut slot.is_noted, true)) {
            log.push(sequence, ReplyEventKind::Stamped, arrived.since(departed).as_nanos() as u64);
        }
        let local = LocalStamps { queued, departed, arrived };
        let remote = match (ends, slot.remote, slot.sent_by_remote) {
            (StampedEnds::Local, ..) => None,
            (StampedEnds::Both, Some(remote), Some((send_ns, queue_ns))) => {
                let Some((receive_ns, program_ns)) = remote.receive_ns.zip(remote.program_ns) else {
                    slot.is_open = false;
                    times.record_unstamped();
                    return;
                };
                Some(RemoteStages { receive_ns, program_ns, send_ns, queue_ns })
            }
            (StampedEnds::Both, ..) => return,
        };
        slot.is_open = false;
        times.record(sample, local, remote);
    }

    /// Ends the flow: the open round trips with a reply have no stages. The last one never has the stamps of its reply.
    pub fn finish(&mut self, times: &mut StageTimes) {
        let open = self.round_trips.iter_mut().filter(|slot| slot.is_open && slot.reply.is_some());
        for slot in open {
            slot.is_open = false;
            times.record_unstamped();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(sequence: u64) -> Sample {
        let sent = Time(sequence * 1_000_000);
        Sample { sequence, intended: sent, sent, received: Time(sent.0 + 100_000) }
    }

    fn stamp(id: u32, point: SendPoint, at: u64) -> SendStamp {
        SendStamp { id, point, at: Time(at) }
    }

    /// Three requests of 44 bytes, of which the kernel stamps each with these identifiers.
    fn stamped(caps: &Caps, identifiers: [u32; 3]) -> (u64, u64) {
        let mut times = StageTimes::new(StampedEnds::Local);
        let mut tracker = StageTracker::new(StampedEnds::Local, caps, 44);
        for (sequence, id) in (0..).zip(identifiers) {
            tracker.on_sent(sequence, true, &mut times);
            let sample = sample(sequence);
            tracker.on_reply(sample, Some(Time(sample.sent.0 + 90_000)), None, &mut times);
            tracker.on_received();
            assert!(tracker.take_must_read() && !tracker.take_must_read());
            tracker.stamps.push(stamp(id, SendPoint::Queued, sample.sent.0 + 1_000));
            tracker.stamps.push(stamp(id, SendPoint::Departed, sample.sent.0 + 2_000));
            tracker.settle(&mut times);
        }
        tracker.finish(&mut times);
        let figures = times.figures();
        (figures.stamped, figures.unstamped)
    }

    #[test]
    fn stamps_are_matched_by_the_number_of_the_message_or_of_its_last_byte() {
        let messages = Caps { framing: Framing::Message, ..Caps::STREAM };
        assert_eq!(stamped(&messages, [0, 1, 2]), (3, 0));
        assert_eq!(stamped(&messages, [0, 7, 2]), (2, 1), "of no request");
        assert_eq!(stamped(&Caps::STREAM, [43, 87, 131]), (3, 0));
        assert_eq!(stamped(&Caps::STREAM, [43, 87, 130]), (2, 1), "of another byte");
        // A message too many before the first: the stamps are those of earlier requests, and too early.
        assert_eq!(stamped(&messages, [1, 2, 3]).0, 0);
    }

    #[test]
    fn identifiers_wrap() {
        let mut tracker = StageTracker::new(StampedEnds::Local, &Caps::STREAM, 44);
        tracker.sent_requests = 200_000_000;
        let last = tracker.sent_requests * 44 - 1;
        let of = |id| tracker.sequence_of(&stamp(id, SendPoint::Queued, 0));
        assert_eq!(of(last as u32), Some(199_999_999));
        assert_eq!(of((last - 44) as u32), Some(199_999_998));
        assert_eq!(of((last - 1) as u32), None);
    }

    #[test]
    fn the_stamps_of_a_reply_come_with_the_next_one() {
        let caps = Caps { framing: Framing::Message, ..Caps::STREAM };
        let mut times = StageTimes::new(StampedEnds::Both);
        let mut tracker = StageTracker::new(StampedEnds::Both, &caps, 44);
        for sequence in 0..3u64 {
            tracker.on_sent(sequence, true, &mut times);
            let earlier = sequence.checked_sub(1);
            let earlier = earlier.map(|sequence| EarlierReply { sequence, send_ns: 2_000, queue_ns: 500 });
            let remote = ReplyStages { receive_ns: Some(7_000), program_ns: Some(300), earlier };
            let sample = sample(sequence);
            tracker.on_reply(sample, Some(Time(sample.sent.0 + 90_000)), Some(remote), &mut times);
            tracker.stamps.push(stamp(sequence as u32, SendPoint::Queued, sample.sent.0 + 1_000));
            tracker.stamps.push(stamp(sequence as u32, SendPoint::Departed, sample.sent.0 + 2_000));
            tracker.settle(&mut times);
        }
        tracker.finish(&mut times);
        let figures = times.figures();
        assert_eq!((figures.stamped, figures.unstamped), (2, 1), "the last reply has no next one");
        assert_eq!(figures.network_ns.map(|times| times.mean), Some(88_000.0 - 9_800.0));
    }
}
