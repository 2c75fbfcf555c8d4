//! A stream of a test, at either end: the workload's sender or receiver, which begins and ends with the test.
//!
//! The end is said on the control connection and not on the stream: senders stop then, receivers take what is still on
//! its way, so that both ends count the same.

use std::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use super::datagram::{Datagram, Jitter};
use super::wire;
use crate::clock::Time;
use crate::link::party::{Cost, Party, Step, Tuning};
use crate::link::{Caps, Fault, Framing};
use crate::peer::leash::Leash;
use crate::plan::{Case, Pacing, Stop};
use crate::sample::Recorder;
use crate::workload::Measured;
use crate::workload::throughput::{Sink, Source};

/// A stream looks so often whether the test is over.
const NOTICE: Duration = Duration::from_millis(50);

/// Silence after the end by which a receiver has got what there is: datagrams may be lost, and of a stream nobody may
/// have said how much is to come.
const SILENCE: Duration = Duration::from_millis(300);

/// The same where the rest of a stream is sure to come: longer than a repetition takes, shorter than any peer waits.
const SILENCE_OF_STREAM: Duration = Duration::from_secs(3);

/// A sender that goes on after the end is not listened to for longer.
const OVERTIME: Duration = Duration::from_secs(5);

/// What the streams of a test and its control connection share.
#[derive(Default)]
pub struct Test {
    /// The end has been said.
    over: AtomicBool,
    /// It cannot go on: nobody waits for anything.
    broken: AtomicBool,
    senders: AtomicUsize,
    receivers: AtomicUsize,
    /// Payload that this end has received, on all streams.
    received: AtomicU64,
    /// What the far end says to have sent on each stream, where all of that counts.
    expected: OnceLock<Vec<u64>>,
    ended: Mutex<Vec<(usize, Ended)>>,
}

/// What became of a stream.
#[derive(Debug, Clone, Default)]
pub struct Ended {
    pub bytes: u64,
    /// Messages sent or received, and how many of them must have been sent; both without those of the warm-up.
    pub messages: u64,
    pub offered: u64,
    /// Datagrams sent, or sent as told by the highest number received, and those missing; both with the warm-up.
    pub packets: u64,
    pub missing: u64,
    /// Of these, missing and sent in the warm-up.
    pub omitted: (u64, u64),
    /// Segments that the system sent again.
    pub retransmits: Option<u64>,
    pub jitter_s: f64,
    pub first: Option<Time>,
    pub last: Option<Time>,
    pub cpu_seconds: f64,
    pub fault: Option<String>,
}

impl Test {
    pub fn is_over(&self) -> bool {
        self.over.load(Relaxed)
    }

    pub fn end(&self) {
        self.over.store(true, Relaxed);
    }

    pub fn is_broken(&self) -> bool {
        self.broken.load(Relaxed)
    }

    pub fn break_off(&self) {
        self.broken.store(true, Relaxed);
    }

    pub fn senders(&self) -> usize {
        self.senders.load(Acquire)
    }

    pub fn receivers(&self) -> usize {
        self.receivers.load(Acquire)
    }

    pub fn received(&self) -> u64 {
        self.received.load(Relaxed)
    }

    /// The far end has told what it sent on each stream.
    pub fn expect(&self, bytes: Vec<u64>) {
        // Said once; a second time changes nothing.
        let _ = self.expected.set(bytes);
    }

    fn ended_mut(&self) -> MutexGuard<'_, Vec<(usize, Ended)>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What became of so many streams; nothing yet of those that still run.
    pub fn ended(&self, streams: usize) -> Vec<Ended> {
        let mut all = vec![Ended::default(); streams];
        for (number, ended) in self.ended_mut().iter().filter(|(number, _)| *number < streams) {
            all[*number] = ended.clone();
        }
        all
    }

    /// Why a stream ended early, if one did.
    pub fn fault(&self) -> Option<String> {
        self.ended_mut().iter().find_map(|(_, ended)| ended.fault.clone())
    }
}

enum End {
    Sends(Box<Source>),
    Receives(Box<Sink>),
}

impl End {
    fn party(&mut self) -> &mut dyn Party {
        match self {
            End::Sends(source) => source.as_mut(),
            End::Receives(sink) => sink.as_mut(),
        }
    }

    fn recorder(&self) -> &Recorder {
        match self {
            End::Sends(source) => source.recorder(),
            End::Receives(sink) => sink.recorder(),
        }
    }

    fn position(&self) -> u64 {
        match self {
            End::Sends(source) => source.position(),
            End::Receives(sink) => sink.position(),
        }
    }
}

/// One end of a stream.
pub struct Stream {
    end: End,
    number: usize,
    test: Arc<Test>,
    framing: Framing,
    jitter: Jitter,
    /// How long a receiver waits for more before the end was said.
    patience: Duration,
    leash: Option<Leash>,
    /// Since then nothing has come; since then the test is known to be over.
    silent_since: Option<Time>,
    over_since: Option<Time>,
    has_all: bool,
    fault: Option<String>,
}

/// What a stream is made from besides its case.
pub struct Making<'a> {
    pub case: &'a Case,
    pub caps: &'a Caps,
    pub number: usize,
    pub test: &'a Arc<Test>,
    pub counters_64bit: bool,
    pub recorder: Recorder,
    pub cpu: Option<u32>,
}

impl Stream {
    pub fn sender(making: Making) -> Stream {
        Stream::new(making, true)
    }

    pub fn receiver(making: Making) -> Stream {
        Stream::new(making, false)
    }

    fn new(making: Making, sends: bool) -> Stream {
        let Making { case, caps, number, test, counters_64bit, recorder, cpu } = making;
        let tuning = Tuning { wait: case.wait, cpu, batches_of: None };
        let jitter = Jitter::default();
        let head = || Box::new(Datagram::new(counters_64bit, jitter.clone()));
        // A stream of bytes has no heads.
        let has_heads = caps.framing == Framing::Message;
        let end = if sends {
            test.senders.fetch_add(1, Relaxed);
            let source = Source::new(case, caps, tuning, recorder);
            End::Sends(Box::new(if has_heads { source.with_head(head(), caps) } else { source }))
        } else {
            test.receivers.fetch_add(1, Relaxed);
            // It ends when that is said, not by its own plan.
            let case = Case { stop: Stop::default(), ..case.clone() };
            let sink = Sink::new(&case, caps, tuning, recorder);
            End::Receives(Box::new(if has_heads { sink.with_head(head()) } else { sink }))
        };
        let gap = match case.pacing {
            Pacing::Closed => 0.0,
            Pacing::Fixed { per_second } | Pacing::Poisson { per_second, .. } => {
                (10.0 / per_second).min(60.0)
            }
        };
        Stream {
            end,
            number,
            test: test.clone(),
            framing: caps.framing,
            jitter,
            patience: case.timeout.max(Duration::from_secs_f64(gap)),
            leash: None,
            silent_since: None,
            over_since: None,
            has_all: false,
            fault: None,
        }
    }

    pub fn is_sender(&self) -> bool {
        matches!(self.end, End::Sends(_))
    }

    /// Whether what came last is the word that opened the stream, said again because its answer was lost.
    pub fn hears_hello(&self) -> bool {
        let End::Receives(sink) = &self.end else { return false };
        let mut messages = sink.batch().messages();
        self.framing == Framing::Message
            && sink.batch().len() == 1
            && messages.next().is_some_and(|message| message.len() == wire::UDP_HELLO.len())
    }

    pub fn on(self, leash: Leash) -> Stream {
        Stream { leash: Some(leash), ..self }
    }

    /// Whether a receiver has got all there is, once the end has been said.
    fn is_complete(&mut self, now: Time) -> bool {
        if now.since(*self.over_since.get_or_insert(now)) >= OVERTIME {
            return true;
        }
        let expected = self.test.expected.get().and_then(|all| all.get(self.number));
        self.has_all || expected.is_some_and(|bytes| self.end.recorder().counts.bytes >= *bytes)
    }

    /// How long a receiver listens on after the end.
    fn silence(&self) -> Duration {
        match (self.framing, self.test.expected.get()) {
            (Framing::Stream, Some(_)) => SILENCE_OF_STREAM,
            _ => SILENCE,
        }
    }
}

impl Party for Stream {
    #[inline]
    fn next(&mut self, now: Time) -> Step<'_> {
        let over = self.test.is_over();
        let at_rest = match self.end {
            End::Sends(_) => over,
            End::Receives(_) => over && self.is_complete(now),
        };
        if at_rest || self.test.is_broken() {
            return Step::Done;
        }
        if let Some(leash) = &mut self.leash
            && let Some(reason) = leash.ends(now, self.end.position())
        {
            self.fault = Some(reason.to_owned());
            return Step::Fail(Fault::Other(reason.to_owned()));
        }
        let stays = self.leash.is_some() && self.is_sender();
        match self.end.party().next(now) {
            // A server's stream is open until the client has said the end.
            Step::Finish | Step::Done if stays => Step::Sleep(now + NOTICE),
            Step::Finish => Step::Done,
            // Silence is no end here; how long it may last is decided in `timed_out`.
            Step::Receive { into, .. } => Step::Receive { into, until: now + NOTICE },
            Step::Sleep(until) => Step::Sleep(until.min(now + NOTICE)),
            Step::Fail(fault) => {
                self.fault = Some(fault.to_string());
                Step::Fail(fault)
            }
            step => step,
        }
    }

    #[inline]
    fn sent(&mut self, bytes: usize, at: Time) {
        self.end.party().sent(bytes, at);
    }

    #[inline]
    fn received(&mut self, now: Time) {
        self.silent_since = Some(now);
        let before = self.end.recorder().counts.bytes;
        self.end.party().received(now);
        self.test.received.fetch_add(self.end.recorder().counts.bytes - before, Relaxed);
    }

    fn waits(&mut self, now: Time, unacknowledged: Option<u64>) {
        self.end.party().waits(now, unacknowledged);
    }

    fn timed_out(&mut self, now: Time) {
        let silent = now.since(*self.silent_since.get_or_insert(now));
        if self.test.is_over() {
            self.has_all = silent >= self.silence();
        } else if silent >= self.patience {
            self.end.party().timed_out(now);
        }
    }

    fn closed(&mut self, now: Time) -> Result<(), Fault> {
        self.end.party().closed(now)
    }

    fn stopped(&mut self, reason: &'static str) {
        self.fault = Some(reason.to_owned());
    }

    fn ended(&mut self, cost: Cost) {
        self.end.party().ended(cost);
        let recorder = self.end.recorder();
        let counts = &recorder.counts;
        let (running, messages, offered, packets, missing) = match &self.end {
            End::Sends(source) => (&self.test.senders, counts.sent, counts.sent, source.messages(), 0),
            End::Receives(sink) => {
                (&self.test.receivers, counts.received, sink.counted(), sink.passed(), sink.missing())
            }
        };
        let omitted_missing = match &self.end {
            End::Sends(_) => 0,
            End::Receives(sink) => sink.missing_in_warm_up(),
        };
        let has_packets = self.framing == Framing::Message;
        let ended = Ended {
            bytes: counts.bytes,
            messages,
            offered,
            packets: if has_packets { packets } else { 0 },
            missing,
            omitted: if has_packets { (omitted_missing, packets.saturating_sub(offered)) } else { (0, 0) },
            retransmits: cost.retransmits.filter(|_| self.is_sender()),
            jitter_s: self.jitter.seconds(),
            first: recorder.first,
            last: recorder.last,
            cpu_seconds: cost.cpu_seconds,
            fault: self.fault.take(),
        };
        self.test.ended_mut().push((self.number, ended));
        // Last: whoever sees that none runs reads what became of them.
        running.fetch_sub(1, Release);
    }
}

impl Measured for Stream {
    fn recorder(&self) -> &Recorder {
        self.end.recorder()
    }

    fn into_recorder(self: Box<Self>) -> Recorder {
        match self.end {
            End::Sends(source) => source.into_recorder(),
            End::Receives(sink) => sink.into_recorder(),
        }
    }
}
