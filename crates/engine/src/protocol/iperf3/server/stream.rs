//! A connection of a test: waits until all streams have joined, then runs one of them.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::{POLL_INTERVAL, ServerTest};
use crate::link::party::{Party, PartyCost, Step, StopReason};
use crate::link::{Batch, Caps, Fault, Framing};
use crate::protocol::iperf3::data::{StreamParams, TestStream};
use crate::protocol::iperf3::wire::{self, Parameters};
use crate::protocol::{MemoryCharge, ServerConfig, ServerLimits};
use crate::workload::Load;
use linkgauge_model::clock::Time;
use linkgauge_model::plan::{Pacing, StopCondition};
use linkgauge_model::sample::Recorder;

pub(crate) struct ServerStream {
    config: Arc<ServerConfig>,
    test: Arc<ServerTest>,
    arrival: u64,
    caps: Caps,
    /// Batch for a datagram hello, which may be repeated, and its reply.
    batch: Batch,
    /// The reply to the last hello, until it is sent.
    reply: Option<[u8; 4]>,
    /// Has identified its test and received the confirmation.
    is_identified: bool,
    /// The link is configured for the stream, and the test has counted it.
    is_set_up: bool,
    is_ready: bool,
    stream: Option<Box<TestStream>>,
    _memory: MemoryCharge,
}

/// Bytes of a stream at most: a receive of two datagrams of 64 KiB, or one of a stream; the numbers of the datagrams; counts.
pub(crate) const MEMORY_BYTES: usize = 256 * 1024;

impl ServerStream {
    pub fn new(
        facts: &Arc<ServerConfig>,
        test: Arc<ServerTest>,
        arrival: u64,
        caps: &Caps,
        memory: MemoryCharge,
    ) -> ServerStream {
        let batch = Batch::new(wire::UDP_HELLO.len(), 1);
        ServerStream {
            config: facts.clone(),
            test,
            arrival,
            caps: caps.clone(),
            batch,
            reply: None,
            // A byte stream has sent its cookie.
            is_identified: caps.framing == Framing::Stream,
            is_set_up: false,
            is_ready: false,
            stream: None,
            _memory: memory,
        }
    }

    /// Starts the stream, once all have arrived.
    fn start_stream(&mut self) {
        let number = self.test.stream_index(self.arrival);
        let Some((number, parameters)) = number.zip(self.test.parameters.get()) else { return };
        let limits = &self.config.limits;
        let making = StreamParams {
            load: &stream_load(parameters, number, limits),
            caps: &self.caps,
            index: number,
            test: &self.test.state,
            counters_64bit: parameters.counters_64bit,
            recorder: Recorder::for_counting(),
        };
        let stream = match parameters.is_upload(number) {
            true => TestStream::receiver(making),
            false => TestStream::sender(making),
        };
        self.stream = Some(Box::new(stream.at_server()));
    }
}

/// The load of a stream on the server; the client signals its end. A TCP stream with a volume stops sending at that
/// volume. Datagrams may be lost, so their senders continue.
fn stream_load(parameters: &Parameters, number: usize, limits: &ServerLimits) -> Load {
    let length = u64::from(parameters.length);
    let all = match (parameters.bytes, parameters.blocks) {
        (0, blocks) => blocks.saturating_mul(length),
        (bytes, _) => bytes,
    };
    let counted = all > 0 && !parameters.udp && !parameters.is_upload(number);
    let bits = 8.0 * f64::from(parameters.length);
    let most = limits.bit_rate.map(|rate| rate / parameters.stream_count() as f64);
    let requested = Some(parameters.bits_per_second).filter(|rate| *rate > 0.0);
    let rate = requested.into_iter().chain(most).reduce(f64::min);
    let warm_up = match parameters.omit_s {
        0 => StopCondition::default(),
        seconds => StopCondition::after_time(Duration::from_secs(seconds)),
    };
    Load {
        pacing: rate.map_or(Pacing::Closed, |rate| Pacing::Fixed { per_second: rate / bits }),
        warm_up,
        stop: StopCondition {
            volume_bytes: counted
                .then(|| wire::in_whole_blocks(all.div_ceil(parameters.parallel.into()), parameters.length)),
            ..StopCondition::default()
        },
        timeout: Duration::from_secs(limits.idle_s),
        cpu: parameters.server_cpu,
        ..Load::endless(parameters.length)
    }
}

impl Party for ServerStream {
    #[inline]
    fn next_step(&mut self, now: Time) -> Step<'_> {
        if self.reply.is_none() && self.stream.is_none() && self.is_identified {
            self.start_stream();
        }
        if let Some(reply) = &self.reply {
            return Step::Send { bytes: reply, message: reply.len() };
        }
        if let Some(stream) = &mut self.stream {
            // The first step configures the link, which takes time; the client may start only afterwards.
            if !std::mem::replace(&mut self.is_set_up, true) {
                return stream.next_step(now);
            }
            if !std::mem::replace(&mut self.is_ready, true) {
                self.test.ready_streams.fetch_add(1, Relaxed);
            }
            if stream.is_sender() && !self.test.is_running.load(Relaxed) && !self.test.state.is_aborted() {
                return Step::Sleep(now + POLL_INTERVAL);
            }
            return stream.next_step(now);
        }
        // The control connection has the time limit for the others.
        match self.caps.framing {
            _ if self.test.state.is_aborted() => Step::Done,
            Framing::Stream => Step::Sleep(now + POLL_INTERVAL),
            Framing::Message => Step::Receive { into: &mut self.batch, until: now + POLL_INTERVAL },
        }
    }

    #[inline]
    fn on_sent(&mut self, bytes: usize, at: Time) {
        match &mut self.stream {
            Some(stream) if self.reply.is_none() => stream.on_sent(bytes, at),
            _ => (self.reply, self.is_identified) = (None, true),
        }
    }

    #[inline]
    fn on_received(&mut self, now: Time) {
        let hello = match &mut self.stream {
            None => self.batch.messages().next(),
            Some(stream) => match stream.repeated_hello() {
                None => return stream.on_received(now),
                hello => hello,
            },
        };
        self.reply = hello.map(wire::udp_reply);
    }

    fn on_timeout(&mut self, now: Time) {
        if let Some(stream) = &mut self.stream {
            stream.on_timeout(now);
        }
    }

    fn on_closed(&mut self, now: Time) -> Result<(), Fault> {
        self.stream.as_mut().map_or(Err(Fault::Closed), |stream| stream.on_closed(now))
    }

    fn on_stopped(&mut self, reason: StopReason) {
        if let Some(stream) = &mut self.stream {
            stream.on_stopped(reason);
        }
    }

    fn on_ended(&mut self, cost: PartyCost) {
        match &mut self.stream {
            Some(stream) => stream.on_ended(cost),
            None => self.test.leave(self.arrival),
        }
    }
}
