//! A stream of a test on client or server: the workload's sender or receiver, which begins and ends with the test.
//!
//! The control connection signals the end. Senders stop then, and receivers read the data in transit, so that both
//! sides count the same.

use std::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use super::datagram::DatagramHeader;
use super::wire;
use crate::link::party::{Party, PartyCost, Step, StopReason};
use crate::link::{Batch, Caps, Fault, Framing};
use crate::protocol::jitter::SharedJitter;
use crate::workload::throughput::{Sink, Source};
use crate::workload::{Load, RecordingParty};
use entry::StreamEntry;
use linkgauge_model::clock::Time;
use linkgauge_model::plan::{Pacing, StopCondition};
use linkgauge_model::sample::Recorder;

pub(crate) mod entry;

/// Interval between checks whether the test is over.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Silence after the end of a test that ends a receiver: datagrams may be lost, and the total of a stream may be
/// unknown.
const MAX_DATAGRAM_END_SILENCE: Duration = Duration::from_millis(300);

/// Silence after the end of a test that ends the receiver of a stream whose total is known or will be: longer than a
/// retransmission, shorter than the timeout of any implementation.
const MAX_STREAM_END_SILENCE: Duration = Duration::from_secs(3);

/// Time for which a receiver reads from a sender that continues after the end.
const MAX_OVERTIME: Duration = Duration::from_secs(5);

/// State that the streams of a test and its control connection share.
#[derive(Default)]
pub struct TestState {
    /// The end of the test was signalled.
    end_signalled: AtomicBool,
    /// The time of the test is over at a client: what arrives from now on is in no rate.
    load_ended: AtomicBool,
    /// The test failed; all waits end.
    aborted: AtomicBool,
    /// The server has started the test, as far as a client knows.
    running: AtomicBool,
    /// Streams of a client that are set up and have identified themselves.
    ready_streams: AtomicUsize,
    senders: AtomicUsize,
    receivers: AtomicUsize,
    /// Payload bytes received on all streams.
    received_bytes: AtomicU64,
    /// Bytes that the remote side reports as sent on each stream; `None` if not all of them count.
    expected_bytes: OnceLock<Option<Vec<u64>>>,
    stream_results: Mutex<Vec<(usize, StreamResult)>>,
}

/// The result of a stream.
#[derive(Debug, Clone, Default)]
pub(crate) struct StreamResult {
    pub bytes: u64,
    /// Messages sent or received, and how many were sent in total according to their numbers; both without the warm-up.
    pub(crate) messages: u64,
    pub(crate) sent_messages: u64,
    /// Datagrams sent, or derived from the highest number received, and those missing; both including the warm-up.
    pub(crate) packets: u64,
    pub(crate) missing_packets: u64,
    /// Missing and sent datagrams of the warm-up.
    pub(crate) omitted: (u64, u64),
    /// Segments that the system retransmitted.
    pub(crate) retransmits: Option<u64>,
    pub(crate) jitter_s: Option<f64>,
    pub first_instant: Option<Time>,
    pub last_instant: Option<Time>,
    pub(crate) cpu_seconds: f64,
    /// Reason for an early end of the stream, and whether the server's limits ended it.
    pub(crate) fault: Option<String>,
    pub(crate) stopped: Option<StopReason>,
}

impl TestState {
    pub(crate) fn is_ended(&self) -> bool {
        self.end_signalled.load(Relaxed)
    }

    pub(crate) fn signal_end(&self) {
        self.end_signalled.store(true, Relaxed);
    }

    /// Ends the time that a client's receivers measure, before the end of the test.
    pub(super) fn end_load(&self) {
        self.load_ended.store(true, Relaxed);
    }

    pub(crate) fn is_aborted(&self) -> bool {
        self.aborted.load(Relaxed)
    }

    pub(crate) fn abort(&self) {
        self.aborted.store(true, Relaxed);
    }

    pub(super) fn is_running(&self) -> bool {
        self.running.load(Relaxed)
    }

    pub(super) fn set_running(&self) {
        self.running.store(true, Relaxed);
    }

    pub(super) fn ready_streams(&self) -> usize {
        self.ready_streams.load(Acquire)
    }

    /// Counts a stream of a client that is set up and has identified itself.
    pub fn add_ready_stream(&self) {
        self.ready_streams.fetch_add(1, Release);
    }

    pub(crate) fn senders(&self) -> usize {
        self.senders.load(Acquire)
    }

    pub(crate) fn receivers(&self) -> usize {
        self.receivers.load(Acquire)
    }

    pub(crate) fn received_bytes(&self) -> u64 {
        self.received_bytes.load(Relaxed)
    }

    /// Sets the bytes that the remote side reports as sent on each stream; `None` if not all of them count.
    pub(crate) fn set_expected_bytes(&self, bytes: Option<Vec<u64>>) {
        // Only the first call counts.
        let _ = self.expected_bytes.set(bytes);
    }

    fn lock_stream_results(&self) -> MutexGuard<'_, Vec<(usize, StreamResult)>> {
        self.stream_results.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Results of the streams; empty for those that still run.
    pub(crate) fn stream_results(&self, streams: usize) -> Vec<StreamResult> {
        let mut all = vec![StreamResult::default(); streams];
        for (number, ended) in self.lock_stream_results().iter().filter(|(number, _)| *number < streams) {
            all[*number] = ended.clone();
        }
        all
    }

    /// Whether a stream ended early, and by which limit of the server if it was one.
    pub fn fault(&self) -> Option<Option<StopReason>> {
        let all = self.lock_stream_results();
        all.iter().find(|(_, ended)| ended.fault.is_some()).map(|(_, ended)| ended.stopped)
    }
}

enum StreamParty {
    Sender(Box<Source>),
    Receiver(Box<Sink>),
}

impl StreamParty {
    /// Batch that receives a receiver's messages.
    fn batch(&self) -> Option<&Batch> {
        match self {
            StreamParty::Sender(_) => None,
            StreamParty::Receiver(sink) => Some(sink.batch()),
        }
    }

    fn batch_mut(&mut self) -> Option<&mut Batch> {
        match self {
            StreamParty::Sender(_) => None,
            StreamParty::Receiver(sink) => Some(sink.batch_mut()),
        }
    }

    fn as_party(&mut self) -> &mut dyn Party {
        match self {
            StreamParty::Sender(source) => source.as_mut(),
            StreamParty::Receiver(sink) => sink.as_mut(),
        }
    }

    fn recorder(&self) -> &Recorder {
        match self {
            StreamParty::Sender(source) => source.recorder(),
            StreamParty::Receiver(sink) => sink.recorder(),
        }
    }
}

/// One side of a stream.
pub(crate) struct TestStream {
    party: StreamParty,
    index: usize,
    test: Arc<TestState>,
    framing: Framing,
    jitter: SharedJitter,
    /// Time for which a receiver waits for more before the end of the test.
    receive_timeout: Duration,
    /// The steps before the payload, at a client.
    entry: Option<StreamEntry>,
    /// A server's stream stays open until the client has signalled the end.
    stays: bool,
    stopped: Option<StopReason>,
    /// Start of the current silence, and the time when the end of the test was noticed.
    silent_since: Option<Time>,
    ended_since: Option<Time>,
    has_received_all: bool,
    /// Time when a receiver notices the silence.
    check_due: Option<Time>,
    fault: Option<String>,
}

/// Role of our end of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StreamRole {
    Sender,
    Receiver,
}

/// Inputs of a stream.
pub(crate) struct StreamParams<'a> {
    pub(crate) load: &'a Load,
    pub(crate) caps: &'a Caps,
    pub(crate) index: usize,
    pub(crate) test: &'a Arc<TestState>,
    pub(crate) counters_64bit: bool,
    pub(crate) recorder: Recorder,
}

impl TestStream {
    pub(crate) fn sender(making: StreamParams) -> TestStream {
        TestStream::new(making, StreamRole::Sender)
    }

    pub(crate) fn receiver(making: StreamParams) -> TestStream {
        TestStream::new(making, StreamRole::Receiver)
    }

    fn new(making: StreamParams, role: StreamRole) -> TestStream {
        let StreamParams { load, caps, index: number, test, counters_64bit, recorder } = making;
        let jitter = SharedJitter::default();
        let head = || Box::new(DatagramHeader::new(counters_64bit, jitter.clone()));
        // A byte stream has no headers.
        let has_heads = caps.framing == Framing::Message;
        let end = match role {
            StreamRole::Sender => {
                test.senders.fetch_add(1, Relaxed);
                let source = Source::new(load, caps, recorder);
                StreamParty::Sender(Box::new(if has_heads {
                    source.with_header(head(), caps)
                } else {
                    source
                }))
            }
            StreamRole::Receiver => {
                test.receivers.fetch_add(1, Relaxed);
                // It ends with the test, not by its own plan.
                let sink = Sink::new(&Load { stop: StopCondition::default(), ..*load }, caps, recorder);
                StreamParty::Receiver(Box::new(if has_heads { sink.with_header(head()) } else { sink }))
            }
        };
        let gap = match load.pacing {
            Pacing::Closed | Pacing::ThinkTime { .. } => 0.0,
            Pacing::Fixed { per_second } | Pacing::Poisson { per_second, .. } => {
                (10.0 / per_second).min(60.0)
            }
        };
        TestStream {
            party: end,
            index: number,
            test: test.clone(),
            framing: caps.framing,
            jitter,
            receive_timeout: load.timeout.max(Duration::from_secs_f64(gap)),
            entry: None,
            stays: false,
            stopped: None,
            silent_since: None,
            ended_since: None,
            has_received_all: false,
            check_due: None,
            fault: None,
        }
    }

    pub(crate) fn is_sender(&self) -> bool {
        matches!(self.party, StreamParty::Sender(_))
    }

    /// The last input, if it is a repeated hello, whose reply was lost.
    pub(crate) fn repeated_hello(&self) -> Option<&[u8]> {
        let batch =
            self.party.batch().filter(|batch| self.framing == Framing::Message && batch.len() == 1)?;
        batch.messages().next().filter(|message| message.len() == wire::UDP_HELLO.len())
    }

    /// Makes this a stream of a client, whose streams begin together.
    pub(super) fn at_client(self, entry: StreamEntry) -> TestStream {
        TestStream { entry: Some(entry), ..self }
    }

    /// Makes this a stream of a server, whose client signals the end.
    pub(crate) fn at_server(self) -> TestStream {
        TestStream { stays: true, ..self }
    }

    /// Whether a receiver has all data, after the end of the test.
    fn is_complete(&mut self, now: Time) -> bool {
        if now.since(*self.ended_since.get_or_insert(now)) >= MAX_OVERTIME {
            return true;
        }
        let expected = self.test.expected_bytes.get().and_then(|all| all.as_ref()?.get(self.index));
        self.has_received_all
            || expected.is_some_and(|bytes| self.party.recorder().counts.delivered_bytes >= *bytes)
    }

    /// Time for which a receiver continues to listen after the end.
    fn max_end_silence(&self) -> Duration {
        match (self.framing, self.test.expected_bytes.get()) {
            (Framing::Stream, Some(Some(_))) => MAX_STREAM_END_SILENCE,
            // The client will report its total.
            (Framing::Stream, None) if self.stays => MAX_STREAM_END_SILENCE,
            _ => MAX_DATAGRAM_END_SILENCE,
        }
    }
}

impl Party for TestStream {
    #[inline]
    fn next_step(&mut self, now: Time) -> Step<'_> {
        let over = self.test.is_ended();
        let at_rest = match self.party {
            StreamParty::Sender(_) => over,
            StreamParty::Receiver(_) => over && self.is_complete(now),
        };
        if at_rest || self.test.is_aborted() {
            return Step::Done;
        }
        let is_sender = self.is_sender();
        if self.entry.as_mut().is_some_and(|entry| entry.is_over(&self.test, is_sender)) {
            self.entry = None;
        }
        if let Some(entry) = &mut self.entry
            && !entry.begin_tuning()
        {
            return match entry.next_step(now, self.party.batch_mut()) {
                Step::Fail(fault) => {
                    self.fault = Some(fault.to_string());
                    Step::Fail(fault)
                }
                step => step,
            };
        }
        let stays = self.stays && is_sender;
        match self.party.as_party().next_step(now) {
            Step::FinishSending | Step::Done if stays => Step::Sleep(now + POLL_INTERVAL),
            Step::FinishSending => Step::Done,
            // Silence does not end the stream here; `timed_out` decides on that.
            Step::Receive { into, .. } => {
                Step::Receive { into, until: *self.check_due.get_or_insert(now + POLL_INTERVAL) }
            }
            Step::Sleep(until) => Step::Sleep(until.min(now + POLL_INTERVAL)),
            Step::Fail(fault) => {
                self.fault = Some(fault.to_string());
                Step::Fail(fault)
            }
            step => step,
        }
    }

    #[inline]
    fn on_sent(&mut self, bytes: usize, at: Time) {
        if let Some(entry) = &mut self.entry {
            return entry.on_sent(bytes, at);
        }
        self.party.as_party().on_sent(bytes, at);
    }

    #[inline]
    fn on_received(&mut self, now: Time) {
        (self.silent_since, self.check_due) = (Some(now), None);
        if let Some(entry) = &mut self.entry {
            entry.on_received(self.party.batch());
        }
        if let StreamParty::Receiver(sink) = &mut self.party
            && self.test.load_ended.load(Relaxed)
        {
            sink.end_load();
        }
        let before = self.party.recorder().counts.delivered_bytes;
        self.party.as_party().on_received(now);
        self.test.received_bytes.fetch_add(self.party.recorder().counts.delivered_bytes - before, Relaxed);
    }

    fn on_send_blocked(&mut self, now: Time, unacknowledged: Option<u64>) {
        self.party.as_party().on_send_blocked(now, unacknowledged);
    }

    fn on_timeout(&mut self, now: Time) {
        self.check_due = None;
        if let Some(entry) = &mut self.entry {
            return entry.on_timeout();
        }
        // The server may not have started the test.
        if !self.stays && !self.test.is_running() {
            return;
        }
        let silent = now.since(*self.silent_since.get_or_insert(now));
        if self.test.is_ended() {
            self.has_received_all = silent >= self.max_end_silence();
        } else if silent >= self.receive_timeout {
            self.party.as_party().on_timeout(now);
        }
    }

    fn on_closed(&mut self, now: Time) -> Result<(), Fault> {
        self.party.as_party().on_closed(now)
    }

    fn on_stopped(&mut self, reason: StopReason) {
        (self.stopped, self.fault) = (Some(reason), Some(reason.message().to_owned()));
    }

    fn on_ended(&mut self, cost: PartyCost) {
        self.party.as_party().on_ended(cost);
        let recorder = self.party.recorder();
        let counts = &recorder.counts;
        let (running, messages, offered, packets, missing) = match &self.party {
            StreamParty::Sender(source) => {
                (&self.test.senders, counts.sent, counts.sent, source.messages(), 0)
            }
            StreamParty::Receiver(sink) => (
                &self.test.receivers,
                counts.received,
                sink.measured_messages(),
                sink.passed_messages(),
                sink.missing_messages(),
            ),
        };
        let omitted_missing = match &self.party {
            StreamParty::Sender(_) => 0,
            StreamParty::Receiver(sink) => sink.missing_warm_up_messages(),
        };
        let has_packets = self.framing == Framing::Message;
        let ended = StreamResult {
            bytes: counts.delivered_bytes,
            messages,
            sent_messages: offered,
            packets: if has_packets { packets } else { 0 },
            missing_packets: missing,
            omitted: if has_packets { (omitted_missing, packets.saturating_sub(offered)) } else { (0, 0) },
            retransmits: cost.retransmits.filter(|_| self.is_sender()),
            jitter_s: self.jitter.seconds(),
            first_instant: recorder.first_instant,
            last_instant: recorder.last_instant,
            cpu_seconds: cost.cpu_seconds,
            fault: self.fault.take(),
            stopped: self.stopped,
        };
        self.test.lock_stream_results().push((self.index, ended));
        // Last, because readers of the results wait for this count to reach zero.
        running.fetch_sub(1, Release);
    }
}

impl RecordingParty for TestStream {
    fn recorder(&self) -> &Recorder {
        self.party.recorder()
    }

    fn into_recorder(self: Box<Self>) -> Recorder {
        match self.party {
            StreamParty::Sender(source) => source.into_recorder(),
            StreamParty::Receiver(sink) => sink.into_recorder(),
        }
    }
}
