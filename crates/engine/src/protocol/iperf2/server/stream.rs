//! A connection of a client: its settings, and the data of both directions.

use super::super::stream::StreamSender;
use super::super::wire::{self, DatagramFormat, Settings, StreamStart, TestMode};
use super::bounce::Bouncer;
use super::{RECEIVE_BYTES, ServerFacts, callback, sending_load};
use crate::link::party::{ClientTrust, Party, Step, Tuning};
use crate::link::{Batch, Caps, Fault, Framing, Link};
use crate::protocol::stamp::time::WallClock;
use linkgauge_model::clock::{Clock, Time};
use linkgauge_model::sample::Recorder;

/// Receives in a row before the other direction has its turn.
const MAX_RECEIVES: u32 = 16;

/// Use of a connection.
enum StreamStage {
    /// The first bytes.
    Opening(Vec<u8>),
    Test(StreamTest),
    Bouncing(Box<Bouncer>),
    Refused(Fault),
    Finished,
}

/// A test.
struct StreamTest {
    settings: Option<Settings>,
    tuning: Option<Tuning>,
    acknowledgement: Vec<u8>,
    acknowledged_bytes: usize,
    sender: Option<Box<StreamSender>>,
    /// The sender is next.
    is_senders_turn: bool,
    /// Receives since the last send.
    receives: u32,
    has_client_finished: bool,
}

pub(super) struct StreamConnection {
    facts: ServerFacts,
    caps: Caps,
    stage: StreamStage,
    batch: Batch,
}

impl StreamConnection {
    pub fn new(facts: ServerFacts, caps: &Caps) -> StreamConnection {
        StreamConnection {
            facts,
            caps: caps.clone(),
            stage: StreamStage::Opening(Vec::new()),
            batch: Batch::lent(RECEIVE_BYTES),
        }
    }

    /// Reads the first bytes, as soon as there are enough.
    fn open(&self, first: &[u8], now: Time) -> Option<StreamStage> {
        let settings_bytes = match StreamStart::of(*first.first_chunk()?) {
            StreamStart::Settings(bytes) => bytes,
            StreamStart::Bounceback => {
                return Some(match wire::bounceback::message_bytes(*first.first_chunk()?) {
                    Some(bytes) => {
                        let mut bouncer = Bouncer::new(bytes, first);
                        bouncer.check_input(now);
                        StreamStage::Bouncing(Box::new(bouncer))
                    }
                    None => {
                        let text = "messages of this size are not returned: use 60 to 65536 bytes";
                        StreamStage::Refused(Fault::Refused(text.to_owned()))
                    }
                });
            }
            StreamStart::Payload => return Some(StreamStage::Test(self.new_test(None, &[], now))),
        };
        let head = first.get(..settings_bytes)?;
        let settings = Settings::parse(head);
        if settings.is_some_and(|settings| settings.has_key) {
            let text = "the client sends a permit key, and this server has none";
            return Some(StreamStage::Refused(Fault::Refused(text.to_owned())));
        }
        if let Some(settings) = settings.filter(|settings| settings.mode == TestMode::Dual)
            && let Err(fault) = self.call_back(&settings)
        {
            return Some(StreamStage::Refused(fault));
        }
        if settings.is_some_and(|settings| settings.mode == TestMode::TradeOff) && !self.facts.trusts_senders
        {
            return Some(StreamStage::Refused(Fault::Refused(super::NEEDS_TRUST.to_owned())));
        }
        Some(StreamStage::Test(self.new_test(settings, head, now)))
    }

    fn call_back(&self, settings: &Settings) -> Result<(), Fault> {
        callback::start(&self.facts, settings, (Framing::Stream, DatagramFormat::OLD))
    }

    fn new_test(&self, settings: Option<Settings>, head: &[u8], now: Time) -> StreamTest {
        let answering = settings.filter(|settings| settings.mode.answers());
        let sender = answering.map(|settings| {
            let load = sending_load(&settings, &self.facts.limits, Framing::Stream);
            let sender = StreamSender::new(&load, &self.caps, Recorder::for_counting(), Vec::new());
            Box::new(sender.without_replies())
        });
        // A client since 2.0.10 reads the version of its server.
        let acknowledged = settings.filter(|settings| settings.is_extended && answering.is_none());
        let acknowledgement = acknowledged.map(|settings| {
            let times = settings.has_trip_times.then(|| {
                let now_us = WallClock::now(&Clock::System).unix_us_at(now);
                [wire::start_time_us(head).unwrap_or(now_us), now_us, now_us]
            });
            wire::acknowledgement(times)
        });
        let flows = settings.map_or(1, |settings| settings.threads);
        StreamTest {
            settings,
            tuning: Some(Tuning {
                batch_message_bytes: Some(super::WRITE_BYTES),
                flows,
                ..Tuning::default()
            }),
            acknowledgement: acknowledgement.unwrap_or_default(),
            acknowledged_bytes: 0,
            sender,
            is_senders_turn: true,
            receives: 0,
            has_client_finished: false,
        }
    }
}

impl StreamTest {
    fn next_step<'a>(&'a mut self, batch: &'a mut Batch, now: Time) -> Step<'a> {
        if let Some(tuning) = self.tuning.take() {
            return Step::Tune(tuning);
        }
        if self.acknowledged_bytes < self.acknowledgement.len() {
            let bytes = &self.acknowledgement[self.acknowledged_bytes..];
            return Step::Send { bytes, message: self.acknowledgement.len() };
        }
        if self.sender.as_ref().is_some_and(|sender| sender.is_finished()) {
            self.sender = None;
        }
        match &mut self.sender {
            None if self.has_client_finished => Step::Done,
            None => Step::Receive { into: batch, until: Time::NEVER },
            Some(_) if !self.is_senders_turn => Step::Receive { into: batch, until: now },
            Some(sender) => {
                (self.is_senders_turn, self.receives) = (self.has_client_finished, 0);
                match sender.next_step(now) {
                    Step::Sleep(until) if !self.has_client_finished => Step::Receive { into: batch, until },
                    Step::Done => Step::Sleep(now),
                    step => step,
                }
            }
        }
    }

    fn on_sent(&mut self, bytes: usize, at: Time) {
        if self.acknowledged_bytes < self.acknowledgement.len() {
            self.acknowledged_bytes += bytes;
        } else if let Some(sender) = &mut self.sender {
            sender.on_sent(bytes, at);
        }
    }
}

impl Party for StreamConnection {
    #[inline]
    fn next_step(&mut self, now: Time) -> Step<'_> {
        match &mut self.stage {
            StreamStage::Opening(_) => Step::Receive { into: &mut self.batch, until: Time::NEVER },
            StreamStage::Test(test) => test.next_step(&mut self.batch, now),
            StreamStage::Bouncing(bouncer) => bouncer.next_step(now),
            StreamStage::Refused(fault) => Step::Fail(std::mem::replace(fault, Fault::Closed)),
            StreamStage::Finished => Step::Done,
        }
    }

    #[inline]
    fn on_sent(&mut self, bytes: usize, at: Time) {
        match &mut self.stage {
            StreamStage::Test(test) => test.on_sent(bytes, at),
            StreamStage::Bouncing(bouncer) => bouncer.on_sent(bytes, at),
            StreamStage::Opening(_) | StreamStage::Refused(_) | StreamStage::Finished => {}
        }
    }

    #[inline]
    fn on_received(&mut self, now: Time) {
        match &mut self.stage {
            StreamStage::Opening(first) => {
                self.batch.messages().for_each(|chunk| first.extend_from_slice(chunk));
                let first = std::mem::take(first);
                self.stage = self.open(&first, now).unwrap_or(StreamStage::Opening(first));
            }
            StreamStage::Test(test) => {
                test.receives += 1;
                test.is_senders_turn = test.receives >= MAX_RECEIVES;
            }
            StreamStage::Bouncing(bouncer) => bouncer.on_received(now),
            StreamStage::Refused(_) | StreamStage::Finished => {}
        }
        self.batch.return_memory();
    }

    fn on_timeout(&mut self, _now: Time) {
        if let StreamStage::Test(test) = &mut self.stage {
            test.is_senders_turn = true;
        }
    }

    fn on_closed(&mut self, _now: Time) -> Result<(), Fault> {
        match &mut self.stage {
            StreamStage::Test(test) => {
                (test.has_client_finished, test.is_senders_turn) = (true, true);
                let trade_off = test.settings.filter(|settings| settings.mode == TestMode::TradeOff);
                if let Some(settings) = trade_off {
                    self.call_back(&settings)?;
                }
            }
            StreamStage::Bouncing(bouncer) => bouncer.on_closed(),
            StreamStage::Opening(_) => self.stage = StreamStage::Finished,
            StreamStage::Refused(_) | StreamStage::Finished => {}
        }
        Ok(())
    }

    fn client_trust(&self) -> ClientTrust {
        match &self.stage {
            StreamStage::Opening(_) => ClientTrust::Unidentified,
            _ => ClientTrust::Unverified,
        }
    }

    fn on_tuned(&mut self, link: &dyn Link) {
        if let StreamStage::Test(StreamTest { sender: Some(sender), .. }) = &mut self.stage {
            sender.on_tuned(link);
        }
    }

    fn on_send_blocked(&mut self, now: Time, unacknowledged: Option<u64>) {
        if let StreamStage::Test(StreamTest { sender: Some(sender), .. }) = &mut self.stage {
            sender.on_send_blocked(now, unacknowledged);
        }
    }
}
