//! The fate of each request of a latency measurement, for a thread that prints it meanwhile.
//!
//! The measuring loop stores events in fixed memory, and never waits: where the reader is behind, events are left out and counted.

use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Events that wait for the reader: those of 100 ms at 80,000 round trips per second.
const EVENTS: usize = 8192;

/// Events of each of many connections that wait for the reader.
const EVENTS_OF_MANY: usize = 128;

/// The fate of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyEventKind {
    /// The reply arrived, after this time.
    Reply,
    /// The reply arrived, after this time, with content that is wrong.
    CorruptReply,
    /// The reply did not arrive in this time.
    Lost,
    /// The reply arrived after the timeout, after this time.
    Late,
    /// A further reply with this number arrived, after this time.
    Duplicate,
    /// A further reply with this number arrived, after this time, with content that is wrong.
    CorruptDuplicate,
    /// A reply arrived that belongs to no request; its number means nothing.
    Unknown,
    /// The connection was closed before its reply arrived.
    Closed,
    /// The kernel stamped both messages: the time between the two stamps. Follows the reply.
    Stamped,
}

impl ReplyEventKind {
    const ALL: [ReplyEventKind; 9] = [
        ReplyEventKind::Reply,
        ReplyEventKind::CorruptReply,
        ReplyEventKind::Lost,
        ReplyEventKind::Late,
        ReplyEventKind::Duplicate,
        ReplyEventKind::CorruptDuplicate,
        ReplyEventKind::Unknown,
        ReplyEventKind::Closed,
        ReplyEventKind::Stamped,
    ];
}

/// An event of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyEvent {
    /// Number of the request, from 1 for the first one that is measured.
    pub number: u64,
    /// The fate.
    pub kind: ReplyEventKind,
    /// A time, in nanoseconds, by the kind.
    pub time_ns: u64,
}

/// An event in the ring.
#[derive(Debug, Default)]
struct StoredEvent {
    number: AtomicU64,
    kind: AtomicU64,
    time_ns: AtomicU64,
}

/// The flow that a log belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplySource {
    /// Index of the case in its plan.
    pub case: usize,
    /// The endpoint, as typed.
    pub endpoint: String,
    /// Payload of a request.
    pub message_bytes: u32,
    /// Number of the connection to the endpoint, from 1, if there are several.
    pub connection: Option<usize>,
    /// The kernel stamps the messages.
    pub has_stamps: bool,
}

/// The events of one flow, in fixed memory. One thread writes, and one reads.
#[derive(Debug)]
pub struct ReplyLog {
    source: ReplySource,
    entries: Box<[StoredEvent]>,
    written: AtomicU64,
    read: AtomicU64,
    left_out: AtomicU64,
    /// Sequence number of the first request that is measured.
    first: AtomicU64,
}

impl ReplyLog {
    fn new(source: ReplySource, events: usize) -> ReplyLog {
        ReplyLog {
            source,
            entries: (0..events).map(|_| StoredEvent::default()).collect(),
            written: AtomicU64::new(0),
            read: AtomicU64::new(0),
            left_out: AtomicU64::new(0),
            first: AtomicU64::new(0),
        }
    }

    /// The flow.
    pub fn source(&self) -> &ReplySource {
        &self.source
    }

    /// The measurement begins with this request.
    pub fn begin(&self, sequence: u64) {
        self.first.store(sequence, Relaxed);
    }

    /// Stores an event, unless the reader is behind. Only the thread of the flow may call this.
    #[inline]
    pub fn push(&self, sequence: u64, kind: ReplyEventKind, time_ns: u64) {
        let written = self.written.load(Relaxed);
        if written - self.read.load(Acquire) >= self.entries.len() as u64 {
            self.left_out.fetch_add(1, Relaxed);
            return;
        }
        let entry = &self.entries[written as usize % self.entries.len()];
        entry.number.store((sequence + 1).saturating_sub(self.first.load(Relaxed)), Relaxed);
        entry.kind.store(kind as u64, Relaxed);
        entry.time_ns.store(time_ns, Relaxed);
        self.written.store(written + 1, Release);
    }

    /// The oldest event that was not taken. Only one thread may call this.
    pub fn take(&self) -> Option<ReplyEvent> {
        let read = self.read.load(Relaxed);
        if read == self.written.load(Acquire) {
            return None;
        }
        let entry = &self.entries[read as usize % self.entries.len()];
        let event = ReplyEvent {
            number: entry.number.load(Relaxed),
            kind: ReplyEventKind::ALL[entry.kind.load(Relaxed) as usize % ReplyEventKind::ALL.len()],
            time_ns: entry.time_ns.load(Relaxed),
        };
        self.read.store(read + 1, Release);
        Some(event)
    }

    /// The number of events that were left out since the last call.
    pub fn take_left_out(&self) -> u64 {
        self.left_out.swap(0, Relaxed)
    }
}

/// The logs of all flows of a run.
#[derive(Debug, Default)]
pub struct ReplyLogs {
    new: Mutex<Vec<Arc<ReplyLog>>>,
    /// Events of each flow that wait for the reader; `None`: by the number of flows.
    events: Option<usize>,
}

impl ReplyLogs {
    /// Logs in each of which up to this number of events wait for the reader.
    pub fn with_events(events: usize) -> ReplyLogs {
        ReplyLogs { new: Mutex::default(), events: Some(events.max(1)) }
    }

    /// Adds a flow, before it is measured.
    pub fn add(&self, source: ReplySource, is_one_of_many: bool) -> Arc<ReplyLog> {
        let events = self.events.unwrap_or(if is_one_of_many { EVENTS_OF_MANY } else { EVENTS });
        let log = Arc::new(ReplyLog::new(source, events));
        self.new.lock().unwrap_or_else(PoisonError::into_inner).push(log.clone());
        log
    }

    /// The logs that were added since the last call.
    pub fn take_new(&self) -> Vec<Arc<ReplyLog>> {
        std::mem::take(&mut self.new.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A time as an event has it.
pub fn event_ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(events: usize) -> ReplyLog {
        let endpoint = "udp://192.0.2.7:7100".to_owned();
        let source =
            ReplySource { case: 0, endpoint, message_bytes: 64, connection: None, has_stamps: false };
        ReplyLog::new(source, events)
    }

    #[test]
    fn events_are_taken_in_order_and_numbered_from_the_first_measured_request() {
        let log = log(ReplyEventKind::ALL.len());
        log.begin(100);
        for (offset, kind) in (0..).zip(ReplyEventKind::ALL) {
            log.push(100 + offset, kind, 7 * offset);
        }
        for (offset, kind) in (0..).zip(ReplyEventKind::ALL) {
            assert_eq!(log.take(), Some(ReplyEvent { number: 1 + offset, kind, time_ns: 7 * offset }));
        }
        assert_eq!((log.take(), log.take_left_out()), (None, 0));
    }

    #[test]
    fn events_are_left_out_and_counted_while_the_reader_is_behind() {
        let log = log(4);
        (0..10).for_each(|sequence| log.push(sequence, ReplyEventKind::Reply, 1));
        let numbers = || std::iter::from_fn(|| log.take()).map(|event| event.number).collect::<Vec<_>>();
        assert_eq!((numbers(), log.take_left_out()), (vec![1, 2, 3, 4], 6));
        log.push(10, ReplyEventKind::Reply, 1);
        assert_eq!((numbers(), log.take_left_out()), (vec![11], 0));
    }
}
