//! A sender of datagrams: its test, and the report at its end.

use std::time::Duration;

use super::super::datagram::{DatagramLayout, DatagramSender};
use super::super::wire::{DatagramFormat, Settings, TestMode};
use super::counter::DatagramCounter;
use super::{NEEDS_TRUST, ServerFacts, callback, first_batch, sending_load};
use crate::link::party::{ClientTrust, Party, Step};
use crate::link::{Batch, Caps, Fault, Framing};
use crate::protocol::stamp::time::WallClock;
use linkgauge_model::clock::{Clock, Time};
use linkgauge_model::sample::Recorder;

/// Most reports of a test.
const MAX_REPORTS: u32 = 10;

/// Time without a datagram after which a test is over whose last one has arrived. Some clients repeat it every 2 s.
const LINGER_TIME: Duration = Duration::from_secs(3);

/// Pause of a sender that has sent as much as its client.
const BALANCE_INTERVAL: Duration = Duration::from_millis(10);

/// Bytes of the receives after the first one.
const RECEIVE_BYTES: usize = 65_536;
const MAX_RECEIVED_DATAGRAMS: usize = 64;

pub(super) struct DatagramConnection {
    facts: ServerFacts,
    caps: Caps,
    batch: Batch,
    wall_clock: WallClock,
    /// Format, set with the first datagram.
    format: Option<DatagramFormat>,
    settings: Option<Settings>,
    counter: DatagramCounter,
    sender: Option<Box<DatagramSender>>,
    is_senders_turn: bool,
    report: Vec<u8>,
    is_report_due: bool,
    reports: u32,
    /// The last datagram has arrived, and since then these were silent.
    ended_at: Option<Time>,
    received_bytes: u64,
    sent_bytes: u64,
    refusal: Option<Fault>,
}

impl DatagramConnection {
    pub fn new(facts: ServerFacts, caps: &Caps) -> DatagramConnection {
        DatagramConnection {
            facts,
            batch: first_batch(caps),
            caps: caps.clone(),
            wall_clock: WallClock::now(&Clock::System),
            format: None,
            settings: None,
            counter: DatagramCounter::default(),
            sender: None,
            is_senders_turn: true,
            report: Vec::new(),
            is_report_due: false,
            reports: 0,
            ended_at: None,
            received_bytes: 0,
            sent_bytes: 0,
            refusal: None,
        }
    }

    fn mode(&self) -> TestMode {
        self.settings.map_or(TestMode::Plain, |settings| settings.mode)
    }

    /// Reads the settings of the first datagram.
    fn begin(&mut self, first: &[u8]) -> DatagramFormat {
        let format = DatagramFormat::of(first);
        self.format = Some(format);
        self.settings = first.get(format.header_bytes..).and_then(Settings::parse);
        let Some(settings) = self.settings else { return format };
        if settings.has_key {
            self.refusal =
                Some(Fault::Refused("the client sends a permit key, and this server has none".to_owned()));
        }
        if settings.mode == TestMode::Reverse && !self.facts.trusts_senders {
            self.refusal = Some(Fault::Refused(NEEDS_TRUST.to_owned()));
        }
        if settings.mode.answers() && self.refusal.is_none() {
            let load = sending_load(&settings, &self.facts.limits, Framing::Message);
            let back = Settings { has_wide_numbers: format.is_wide, ..settings };
            let settings = back.encode(format.header_bytes);
            let layout = DatagramLayout { format, settings, wall_clock: self.wall_clock };
            let sender = DatagramSender::new(&load, &self.caps, Recorder::for_counting(), layout);
            self.sender = Some(Box::new(sender.without_report()));
        }
        if settings.mode == TestMode::Dual
            && let Err(fault) = self.call_back()
        {
            self.refusal = Some(fault);
        }
        if settings.mode == TestMode::TradeOff && !self.facts.trusts_senders {
            self.refusal = Some(Fault::Refused(NEEDS_TRUST.to_owned()));
        }
        format
    }

    fn call_back(&self) -> Result<(), Fault> {
        let Some((settings, format)) = self.settings.zip(self.format) else { return Ok(()) };
        callback::start(&self.facts, &settings, (Framing::Message, format))
    }

    /// Counts a datagram, or requests a report after the last one.
    fn take(&mut self, datagram: &[u8], now: Time) {
        self.received_bytes += datagram.len() as u64;
        let format = match self.format {
            Some(format) => format,
            None => self.begin(datagram),
        };
        let Some(head) = format.read(datagram) else { return };
        if self.ended_at.is_none() {
            let now_us = self.wall_clock.unix_us_at(now);
            self.counter.add(head, datagram.len(), now, now_us);
            if head.is_last {
                self.end(format);
            }
        }
        if self.ended_at.is_some() || head.is_last {
            self.ended_at = Some(now);
            let wants_report = self.settings.is_none_or(|settings| settings.wants_report);
            self.is_report_due = wants_report && self.reports < MAX_REPORTS;
        }
    }

    /// The last datagram has arrived.
    fn end(&mut self, format: DatagramFormat) {
        let has_delays = self.settings.is_some_and(|settings| settings.has_trip_times);
        self.report = self.counter.report(has_delays).encode(format);
        if self.mode() == TestMode::TradeOff
            && let Err(fault) = self.call_back()
        {
            self.refusal = Some(fault);
        }
    }

    /// A sender whose address is not proved gets no more than it has sent.
    fn may_send(&self, bytes: usize) -> bool {
        self.facts.trusts_senders || self.sent_bytes + bytes as u64 <= self.received_bytes
    }
}

impl Party for DatagramConnection {
    #[inline]
    fn next_step(&mut self, now: Time) -> Step<'_> {
        if let Some(fault) = self.refusal.take() {
            return Step::Fail(fault);
        }
        if self.is_report_due && self.may_send(self.report.len()) {
            return Step::Send { bytes: &self.report, message: self.report.len() };
        }
        if self.sender.as_ref().is_some_and(|sender| sender.is_finished()) {
            self.sender = None;
            // The client of a reverse test sends nothing more.
            self.ended_at = self.ended_at.or(Some(now).filter(|_| self.mode() == TestMode::Reverse));
        }
        let linger = self.ended_at.map(|ended| ended + LINGER_TIME).filter(|_| self.sender.is_none());
        if linger.is_some_and(|until| now >= until) {
            return Step::Done;
        }
        let until = linger.unwrap_or(Time::NEVER);
        let may_send = self.may_send(self.batch.slot_bytes);
        let is_turn = std::mem::replace(&mut self.is_senders_turn, false);
        match &mut self.sender {
            None => Step::Receive { into: &mut self.batch, until },
            Some(_) if !is_turn => Step::Receive { into: &mut self.batch, until: now },
            Some(_) if !may_send => Step::Receive { into: &mut self.batch, until: now + BALANCE_INTERVAL },
            Some(sender) => match sender.next_step(now) {
                Step::Sleep(until) => Step::Receive { into: &mut self.batch, until },
                Step::Done => Step::Sleep(now),
                step => step,
            },
        }
    }

    #[inline]
    fn on_sent(&mut self, bytes: usize, at: Time) {
        self.sent_bytes += bytes as u64;
        if std::mem::take(&mut self.is_report_due) {
            self.reports += 1;
        } else if let Some(sender) = &mut self.sender {
            sender.on_sent(bytes, at);
        }
    }

    #[inline]
    fn on_received(&mut self, now: Time) {
        let batch = std::mem::take(&mut self.batch);
        let is_first = self.format.is_none();
        let mut longest = 0;
        for datagram in batch.messages() {
            longest = longest.max(datagram.len());
            self.take(datagram, now);
        }
        self.is_senders_turn = true;
        self.batch = match is_first {
            // No datagram of a test is longer than its first one.
            true => {
                let slot = longest.max(DatagramFormat::MODERN.min_bytes());
                Batch::new(slot, (RECEIVE_BYTES / slot).clamp(1, MAX_RECEIVED_DATAGRAMS))
            }
            false => batch,
        };
    }

    fn on_timeout(&mut self, _now: Time) {
        self.is_senders_turn = true;
    }

    fn client_trust(&self) -> ClientTrust {
        if self.facts.trusts_senders { ClientTrust::AddressVerified } else { ClientTrust::Unverified }
    }
}
