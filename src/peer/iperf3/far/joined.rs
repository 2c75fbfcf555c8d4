//! A connection that has joined a test: waits until all have, then is one of its streams.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::{FarTest, LOOK};
use crate::clock::Time;
use crate::link::party::{Cost, Party, Step};
use crate::link::{Batch, Caps, Fault, Framing};
use crate::peer::iperf3::data::{Making, Stream};
use crate::peer::iperf3::wire::{self, Parameters};
use crate::peer::leash::{GRACE, Leash};
use crate::peer::{Limits, ServerFacts, far_case};
use crate::plan::{Case, Pacing, Stop};
use crate::sample::Recorder;

pub struct Joined {
    facts: Arc<ServerFacts>,
    test: Arc<FarTest>,
    arrival: u64,
    caps: Caps,
    /// For a hello of datagrams, which may come more than once, and its answer.
    batch: Batch,
    answers: bool,
    /// It has said what it belongs to, and heard that it was understood.
    is_known: bool,
    /// Its link does what the stream wants; and the test knows that.
    is_set_up: bool,
    is_ready: bool,
    stream: Option<Box<Stream>>,
}

impl Joined {
    pub fn new(facts: &Arc<ServerFacts>, test: Arc<FarTest>, arrival: u64, caps: &Caps) -> Joined {
        let batch = Batch::new(wire::UDP_HELLO.len(), 1);
        Joined {
            facts: facts.clone(),
            test,
            arrival,
            caps: caps.clone(),
            batch,
            answers: false,
            // A stream of bytes has said its cookie.
            is_known: caps.framing == Framing::Stream,
            is_set_up: false,
            is_ready: false,
            stream: None,
        }
    }

    /// The stream, once all have arrived.
    fn begin(&mut self) {
        let number = self.test.number(self.arrival);
        let Some((number, parameters)) = number.zip(self.test.parameters.get()) else { return };
        let limits = &self.facts.limits;
        let making = Making {
            case: &case(parameters, number, limits),
            caps: &self.caps,
            number,
            test: &self.test.test,
            counters_64bit: parameters.counters_64bit,
            recorder: Recorder::counting(),
            cpu: parameters.server_cpu,
        };
        let stream = match parameters.is_outward(number) {
            true => Stream::receiver(making),
            false => Stream::sender(making),
        };
        let leash = Leash::new(limits, parameters.streams() as u32, GRACE);
        self.stream = Some(Box::new(stream.on(leash)));
    }
}

/// What a server's end of a stream has to do; the client says when it is over. Where it wants so many bytes over TCP, no
/// more are sent: it ends when it has them. Of datagrams some may be lost.
fn case(parameters: &Parameters, number: usize, limits: &Limits) -> Case {
    let length = u64::from(parameters.length);
    let all = match (parameters.bytes, parameters.blocks) {
        (0, blocks) => blocks.saturating_mul(length),
        (bytes, _) => bytes,
    };
    let counted = all > 0 && !parameters.udp && !parameters.is_outward(number);
    let bits = 8.0 * f64::from(parameters.length);
    let most = limits.bit_rate.map(|rate| rate / parameters.streams() as f64);
    let asked = Some(parameters.bits_per_second).filter(|rate| *rate > 0.0);
    let rate = asked.into_iter().chain(most).reduce(f64::min);
    let omit = Duration::from_secs(parameters.omit_s);
    Case {
        pacing: rate.map_or(Pacing::Closed, |rate| Pacing::Fixed { per_second: rate / bits }),
        warm_up: (!omit.is_zero()).then(|| Stop::after(omit)),
        stop: Stop {
            volume_bytes: counted.then(|| all.div_ceil(parameters.parallel.into())),
            ..Stop::default()
        },
        timeout: Duration::from_secs(limits.idle_s),
        ..far_case(parameters.length)
    }
}

impl Party for Joined {
    #[inline]
    fn next(&mut self, now: Time) -> Step<'_> {
        if self.answers {
            return Step::Send { bytes: &wire::UDP_ANSWER, message: wire::UDP_ANSWER.len() };
        }
        if self.stream.is_none() && self.is_known {
            self.begin();
        }
        if let Some(stream) = &mut self.stream {
            // Its first step sets the link up, which takes time; the client is told to begin when that is done.
            if !std::mem::replace(&mut self.is_set_up, true) {
                return stream.next(now);
            }
            if !std::mem::replace(&mut self.is_ready, true) {
                self.test.ready.fetch_add(1, Relaxed);
            }
            if stream.is_sender() && !self.test.runs.load(Relaxed) && !self.test.test.is_broken() {
                return Step::Sleep(now + LOOK);
            }
            return stream.next(now);
        }
        // The control connection knows how long to wait for the others.
        match self.caps.framing {
            _ if self.test.test.is_broken() => Step::Done,
            Framing::Stream => Step::Sleep(now + LOOK),
            Framing::Message => Step::Receive { into: &mut self.batch, until: now + LOOK },
        }
    }

    #[inline]
    fn sent(&mut self, bytes: usize, at: Time) {
        match &mut self.stream {
            Some(stream) if !self.answers => stream.sent(bytes, at),
            _ => (self.answers, self.is_known) = (false, true),
        }
    }

    #[inline]
    fn received(&mut self, now: Time) {
        match &mut self.stream {
            Some(stream) if !stream.hears_hello() => stream.received(now),
            _ => self.answers = true,
        }
    }

    fn timed_out(&mut self, now: Time) {
        if let Some(stream) = &mut self.stream {
            stream.timed_out(now);
        }
    }

    fn closed(&mut self, now: Time) -> Result<(), Fault> {
        self.stream.as_mut().map_or(Err(Fault::Closed), |stream| stream.closed(now))
    }

    fn stopped(&mut self, reason: &'static str) {
        if let Some(stream) = &mut self.stream {
            stream.stopped(reason);
        }
    }

    fn ended(&mut self, cost: Cost) {
        match &mut self.stream {
            Some(stream) => stream.ended(cost),
            None => self.test.leave(self.arrival),
        }
    }
}
