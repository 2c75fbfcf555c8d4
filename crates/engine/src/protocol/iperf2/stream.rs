//! A stream of a test at the end that sends, and the receiver of either kind of link, which may have to ask first.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::link::party::{Party, PartyCost, Step};
use crate::link::{Batch, Caps, Fault, Link};
use crate::workload::throughput::header::{HeaderCodec, ParsedHeader};
use crate::workload::throughput::{Sink, Source};
use crate::workload::{Load, RecordingParty};
use linkgauge_model::clock::Time;
use linkgauge_model::sample::Recorder;

/// Bytes of a receive of unused data.
const UNUSED_BYTES: usize = 4096;

/// Interval between checks whether everything is acknowledged.
const DRAIN_CHECK_INTERVAL: Duration = Duration::from_millis(1);

/// Time from the start of an upload to the request beside it.
const REQUEST_DELAY: Duration = Duration::from_millis(50);

/// Time between two requests for datagrams, and how many are sent.
const REQUEST_INTERVAL: Duration = Duration::from_millis(500);
const MAX_REQUESTS: u32 = 4;

/// The settings at the start of each block, as the receiver in lwIP compares them in tests with a return.
pub(crate) struct RepeatedSettings(pub(crate) Vec<u8>);

impl HeaderCodec for RepeatedSettings {
    fn length(&self) -> usize {
        self.0.len()
    }

    fn write(&mut self, message: &mut [u8], _number: u64, _now: Time) {
        let length = message.len().min(self.0.len());
        message[..length].copy_from_slice(&self.0[..length]);
    }

    fn read(&mut self, _message: &[u8], next: u64, _now: Time) -> ParsedHeader {
        ParsedHeader::Sequence(next)
    }
}

/// Digits from 0 to 9 throughout the stream, for receivers that compare them.
pub(crate) struct Digits {
    /// Digits for more than a block of the stream.
    digits: Vec<u8>,
    /// Bytes of the stream before the first block.
    before: u64,
}

impl Digits {
    pub fn new(block_bytes: u32, before: usize) -> Digits {
        let digits = (0..block_bytes as usize + 10).map(|at| b'0' + (at % 10) as u8).collect();
        Digits { digits, before: before as u64 }
    }
}

impl HeaderCodec for Digits {
    fn length(&self) -> usize {
        0
    }

    fn write(&mut self, message: &mut [u8], number: u64, _now: Time) {
        let position = self.before.wrapping_add(number.wrapping_mul(message.len() as u64));
        let from = (position % 10) as usize;
        message.copy_from_slice(&self.digits[from..from + message.len()]);
    }

    fn read(&mut self, _message: &[u8], next: u64, _now: Time) -> ParsedHeader {
        ParsedHeader::Sequence(next)
    }
}

/// The end of a connection that its server closed: it has read everything by then.
#[derive(Debug, Clone, Default)]
pub(crate) struct SharedClose(Arc<CloseTimes>);

#[derive(Debug, Default)]
struct CloseTimes {
    drained_ns: AtomicU64,
    closed_ns: AtomicU64,
    /// The last progress of a connection that was not closed, and the bytes that were not acknowledged then.
    lost_ns: AtomicU64,
    lost_bytes: AtomicU64,
}

impl SharedClose {
    /// Time when the last byte was acknowledged, or else when the connection was closed; `None` if it was not closed.
    pub(crate) fn get(&self) -> Option<Time> {
        let [drained, closed] = [&self.0.drained_ns, &self.0.closed_ns].map(|at| at.load(Relaxed));
        (closed > 0).then_some(Time(if drained > 0 { drained } else { closed }))
    }

    /// Time when the last byte moved, and number of bytes that were not acknowledged then, of a connection that the receiver
    /// neither read to the end nor closed.
    pub(crate) fn lost(&self) -> Option<(Time, u64)> {
        let at = self.0.lost_ns.load(Relaxed);
        (at > 0).then(|| (Time(at), self.0.lost_bytes.load(Relaxed)))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StreamSendStage {
    Tuning,
    /// Bytes of the first write sent.
    Opening(usize),
    Payload,
    /// Waits until the receiver has closed the connection.
    AwaitingClose(Time),
    /// The receiver has not closed the connection: it has not read everything.
    NotClosed,
    Finished,
}

/// The sender of a test on a stream, at either end.
pub(crate) struct StreamSender {
    source: Source,
    /// The settings, in a write of their own: the receiver in lwIP does not count the bytes after them.
    opening: Vec<u8>,
    stage: StreamSendStage,
    began_at: Option<Time>,
    timeout: Duration,
    /// The other direction of the connection is read here.
    reads_replies: bool,
    closed: SharedClose,
    /// A handle that shows what is unacknowledged, until that is nothing.
    unacknowledged: Option<Box<dyn Link>>,
    /// Time when the last byte was sent or acknowledged, and the bytes that were not acknowledged then.
    progress: (Time, u64),
    batch: Batch,
}

impl StreamSender {
    /// Sends `opening` first, and waits for the end of the connection at last.
    pub fn new(load: &Load, caps: &Caps, recorder: Recorder, opening: Vec<u8>) -> StreamSender {
        StreamSender {
            source: Source::new(load, caps, recorder),
            opening,
            stage: StreamSendStage::Tuning,
            began_at: None,
            timeout: load.timeout,
            reads_replies: true,
            closed: SharedClose::default(),
            unacknowledged: None,
            progress: (Time(0), u64::MAX),
            batch: Batch::lent(UNUSED_BYTES),
        }
    }

    /// Leaves the replies to another party, which reads from the connection.
    pub(crate) fn without_replies(self) -> StreamSender {
        StreamSender { reads_replies: false, ..self }
    }

    /// Notes when everything is acknowledged, of which another handle of the link knows.
    pub(crate) fn with_drain_time(self, link: Option<Box<dyn Link>>) -> StreamSender {
        StreamSender { unacknowledged: link, ..self }
    }

    /// Sends blocks that this header fills.
    pub(crate) fn with_header(self, header: Box<dyn HeaderCodec>, caps: &Caps) -> StreamSender {
        StreamSender { source: self.source.with_header(header, caps), ..self }
    }

    /// Whether all has been sent, and the connection is closed if that is awaited.
    pub(crate) fn is_finished(&self) -> bool {
        self.stage == StreamSendStage::Finished
    }

    /// Shared time when the receiver closes the connection.
    pub(crate) fn shared_close(&self) -> SharedClose {
        self.closed.clone()
    }

    fn check_drained(&mut self, now: Time) {
        let left = self.unacknowledged.as_ref().and_then(|link| link.status().unacknowledged_bytes);
        if let Some(left) = left.filter(|left| *left < self.progress.1) {
            let is_first = self.progress.1 == u64::MAX;
            self.progress = (if is_first { self.progress.0 } else { now }, left);
        }
        if left == Some(0) {
            self.closed.0.drained_ns.store(now.0.max(1), Relaxed);
            self.unacknowledged = None;
        }
    }

    /// Starts the wait until the receiver has taken what is in flight: a slow link may hold as much as was sent so far.
    fn await_close(&mut self, now: Time) {
        let sending = self.began_at.map_or(Duration::ZERO, |began| now.since(began));
        let until = now + self.timeout.saturating_add(sending);
        self.stage = if self.reads_replies {
            StreamSendStage::AwaitingClose(until)
        } else {
            StreamSendStage::Finished
        };
    }
}

impl Party for StreamSender {
    #[inline]
    fn next_step(&mut self, now: Time) -> Step<'_> {
        if matches!(self.stage, StreamSendStage::Opening(sent) if sent == self.opening.len()) {
            self.stage = StreamSendStage::Payload;
        }
        if self.stage == StreamSendStage::Payload && self.source.is_finished() {
            self.await_close(now);
        }
        match self.stage {
            StreamSendStage::Tuning => {
                (self.stage, self.began_at) = (StreamSendStage::Opening(0), Some(now));
                // The first step of a source tunes its link.
                self.source.next_step(now)
            }
            StreamSendStage::Opening(sent) => {
                if self.began_at.is_some_and(|began| now > began + self.timeout) {
                    return Step::Fail(Fault::TimedOut);
                }
                Step::Send { bytes: &self.opening[sent..], message: self.opening.len() }
            }
            StreamSendStage::Payload => self.source.next_step(now),
            StreamSendStage::AwaitingClose(until) => {
                self.check_drained(now);
                let check_due = self.unacknowledged.as_ref().map(|_| now + DRAIN_CHECK_INTERVAL);
                Step::Receive { into: &mut self.batch, until: check_due.map_or(until, |due| due.min(until)) }
            }
            StreamSendStage::NotClosed => Step::Fail(Fault::TimedOut),
            StreamSendStage::Finished => Step::Done,
        }
    }

    #[inline]
    fn on_sent(&mut self, bytes: usize, at: Time) {
        match &mut self.stage {
            StreamSendStage::Opening(sent) => *sent += bytes,
            _ => {
                self.progress.0 = at;
                self.source.on_sent(bytes, at);
            }
        }
    }

    /// Discards the input: only the acknowledgement of the settings arrives here.
    fn on_received(&mut self, _now: Time) {
        self.batch.return_memory();
    }

    fn on_timeout(&mut self, now: Time) {
        if matches!(self.stage, StreamSendStage::AwaitingClose(until) if now >= until) {
            let (at, left) = self.progress;
            if left < u64::MAX {
                self.closed.0.lost_bytes.store(left, Relaxed);
                self.closed.0.lost_ns.store(at.0.max(1), Relaxed);
            }
            self.stage = StreamSendStage::NotClosed;
        }
    }

    fn on_closed(&mut self, now: Time) -> Result<(), Fault> {
        self.closed.0.closed_ns.store(now.0.max(1), Relaxed);
        self.stage = StreamSendStage::Finished;
        Ok(())
    }

    fn on_tuned(&mut self, link: &dyn Link) {
        self.source.on_tuned(link);
    }

    fn on_send_blocked(&mut self, now: Time, unacknowledged: Option<u64>) {
        self.source.on_send_blocked(now, unacknowledged);
    }

    fn on_ended(&mut self, cost: PartyCost) {
        self.source.on_ended(cost);
    }
}

impl RecordingParty for StreamSender {
    fn recorder(&self) -> &Recorder {
        self.source.recorder()
    }

    fn into_recorder(self: Box<Self>) -> Recorder {
        Box::new(self.source).into_recorder()
    }
}

/// Request that a receiver sends before anything arrives.
struct TestRequest {
    bytes: Vec<u8>,
    sent_bytes: usize,
    /// Datagrams may be lost, so the request is repeated.
    is_datagram: bool,
    sent: u32,
    due: Time,
}

/// The receiver of a test, which may have to ask for it.
pub(crate) struct Receiver {
    sink: Sink,
    request: Option<TestRequest>,
    is_tuned: bool,
    /// Time that a request may take to be sent, and time since which one is due.
    timeout: Duration,
    request_due: Option<Time>,
    /// The first request is sent this much later.
    delay: Duration,
    /// The fault if nothing arrives.
    no_data: &'static str,
}

impl Receiver {
    /// A receiver with a fault for the case that nothing arrives.
    pub fn new(sink: Sink, timeout: Duration, no_data: &'static str) -> Receiver {
        Receiver {
            sink,
            request: None,
            is_tuned: false,
            timeout,
            request_due: None,
            delay: Duration::ZERO,
            no_data,
        }
    }

    /// Asks later than another flow begins: while the original takes over one sender, it refuses the next.
    pub(crate) fn with_delay(self) -> Receiver {
        Receiver { delay: REQUEST_DELAY, ..self }
    }

    /// Asks first.
    pub(crate) fn with_request(self, bytes: Vec<u8>, is_datagram: bool) -> Receiver {
        let request = TestRequest { bytes, sent_bytes: 0, is_datagram, sent: 0, due: Time(0) };
        Receiver { request: Some(request), ..self }
    }
}

impl Party for Receiver {
    #[inline]
    fn next_step(&mut self, now: Time) -> Step<'_> {
        if !self.is_tuned {
            self.is_tuned = true;
            if let Some(request) = &mut self.request {
                request.due = now + self.delay;
            }
            // The first step of a sink tunes its link.
            return self.sink.next_step(now);
        }
        let has_begun = self.sink.position() > 0;
        if has_begun {
            self.request = None;
        }
        if let Some(request) = self.request.as_ref().filter(|request| now >= request.due) {
            if now > *self.request_due.get_or_insert(now) + self.timeout {
                return Step::Fail(Fault::TimedOut);
            }
            return Step::Send { bytes: &request.bytes[request.sent_bytes..], message: request.bytes.len() };
        }
        let due = self.request.as_ref().map_or(Time::NEVER, |request| request.due);
        match self.sink.next_step(now) {
            Step::Receive { into, until } => Step::Receive { into, until: until.min(due) },
            Step::Fail(Fault::TimedOut) if !has_begun => Step::Fail(Fault::NoReply(self.no_data.to_owned())),
            step => step,
        }
    }

    fn on_sent(&mut self, bytes: usize, at: Time) {
        let Some(request) = &mut self.request else { return self.sink.on_sent(bytes, at) };
        request.sent_bytes += bytes;
        self.request_due = None;
        if request.sent_bytes < request.bytes.len() {
            return;
        }
        if request.sent == 0 {
            self.sink.start_waiting(at);
        }
        (request.sent_bytes, request.sent) = (0, request.sent + 1);
        let is_last = !request.is_datagram || request.sent >= MAX_REQUESTS;
        request.due = if is_last { Time::NEVER } else { at + REQUEST_INTERVAL };
    }

    #[inline]
    fn on_received(&mut self, now: Time) {
        self.sink.on_received(now);
    }

    fn on_timeout(&mut self, now: Time) {
        self.sink.on_timeout(now);
    }

    fn on_closed(&mut self, now: Time) -> Result<(), Fault> {
        match self.sink.position() {
            0 => Err(Fault::EndedEarly(self.no_data.to_owned())),
            _ => self.sink.on_closed(now),
        }
    }

    fn on_tuned(&mut self, link: &dyn Link) {
        self.sink.on_tuned(link);
    }

    fn on_ended(&mut self, cost: PartyCost) {
        self.sink.on_ended(cost);
    }
}

impl RecordingParty for Receiver {
    fn recorder(&self) -> &Recorder {
        self.sink.recorder()
    }

    fn into_recorder(self: Box<Self>) -> Recorder {
        Box::new(self.sink).into_recorder()
    }
}
