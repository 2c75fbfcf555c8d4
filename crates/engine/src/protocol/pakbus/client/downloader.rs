//! The client of a download on its link: sends requests, delivers content, reopens a broken link and resumes the
//! download. The requests themselves are made in `job.rs`.

use std::collections::VecDeque;
use std::sync::mpsc::TrySendError;
use std::time::Duration;

use serde_json::Map;

use super::PakBusOptions;
use super::conversation::{Conversation, NoReplyError};
use super::job::DownloadJob;
use crate::link::party::{Party, PartyCost, Step, Tuning};
use crate::link::{Batch, Fault, Link};
use crate::protocol::pakbus::EMULATED_MARKER;
use crate::workload::download::{ContentSender, PartialContent, RESUMED_FACT, WHOLE_FACT};
use crate::workload::{Load, RecordingParty};
use linkgauge_model::clock::Time;
use linkgauge_model::run::RequestCounts;
use linkgauge_model::sample::{Recorder, TransferCounts};
use linkgauge_model::units::format_plural;

/// Maximum bytes of a receive.
const RECEIVE_BYTES: usize = 4096;

/// Interval between checks whether the content queue has room.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Pause before the second attempt to reopen a link; doubles with each attempt.
const MIN_REOPEN_PAUSE: Duration = Duration::from_millis(100);
const MAX_REOPEN_PAUSE: Duration = Duration::from_secs(5);

/// Number of times that the link to a silent logger is reopened without progress.
const MAX_SILENT_REOPENS: u32 = 1;

/// Client party of a download.
pub struct Downloader {
    options: PakBusOptions,
    job: DownloadJob,
    conversation: Conversation,
    batch: Batch,
    tuning: Option<Tuning>,
    content_sender: Option<ContentSender>,
    /// Time at which to reopen the broken link.
    reopen_at: Option<Time>,
    /// Number of attempts to reopen the link without progress, and number of those due to silence.
    reopen_attempts: u32,
    silent_reopens: u32,
    fault: Option<Fault>,
    has_failed: bool,
    is_finished: bool,
    now: Time,
    recorder: Recorder,
}

impl Downloader {
    /// Creates the party. `content` receives the data; `seed` is any number, preferably different for each run.
    pub fn new(
        options: PakBusOptions,
        load: &Load,
        content: Option<ContentSender>,
        seed: u64,
        recorder: Recorder,
    ) -> Downloader {
        let mut conversation =
            Conversation::new(options.node, load.timeout, options.retries, options.window, seed)
                .through_router(options.router);
        conversation.queue_hello();
        let transaction = conversation.allocate_transaction();
        Downloader {
            job: DownloadJob::new(options.clone(), load, content.is_some(), transaction),
            options,
            conversation,
            batch: Batch::new(RECEIVE_BYTES, 1),
            tuning: Some(load.tuning()),
            content_sender: content,
            reopen_at: None,
            reopen_attempts: 0,
            silent_reopens: 0,
            fault: None,
            has_failed: false,
            is_finished: false,
            now: Time(0),
            recorder,
        }
    }

    /// Continues a file after what an earlier download has left of it.
    pub(crate) fn resuming(mut self, partial: Option<PartialContent>) -> Downloader {
        self.job.resume(partial);
        self
    }

    fn fail(&mut self, fault: Fault) {
        self.has_failed = true;
        self.fault.get_or_insert(fault);
    }

    /// Handles a logger without a reply after all tries.
    fn handle_silence(&mut self, now: Time) {
        let (stats, tries) = (self.conversation.stats, self.conversation.retries() + 1);
        let complaint = stats.describe_silence(self.options.node, tries);
        if !stats.has_replies() || stats.has_only_greetings() {
            self.fail(Fault::NoReply(complaint));
        } else if self.silent_reopens < MAX_SILENT_REOPENS && self.options.reconnects > 0 {
            self.silent_reopens += 1;
            self.schedule_reopen(now);
        } else {
            self.fail(Fault::NoReply(format!("{complaint} ({})", self.job.progress_text())));
        }
    }

    /// Schedules the next attempt to reopen the link.
    fn schedule_reopen(&mut self, now: Time) {
        if self.reopen_attempts >= self.options.reconnects {
            let place = self.job.progress_text();
            let again = match self.reopen_attempts {
                0 => String::new(),
                attempts => {
                    format!(", and opened again {} without progress", format_plural(attempts.into(), "time"))
                }
            };
            self.fail(Fault::EndedEarly(format!("the connection was lost {place}{again}; see --reconnects")));
            return;
        }
        let pause = match self.reopen_attempts {
            0 => Duration::ZERO,
            attempts => (MIN_REOPEN_PAUSE * (1 << attempts.min(10))).min(MAX_REOPEN_PAUSE),
        };
        self.reopen_attempts += 1;
        self.reopen_at = Some(now + pause);
        let transaction = self.conversation.restart();
        self.job.set_transaction(transaction);
    }

    /// Delivers received content as far as the queue has room.
    fn deliver_content(&mut self) {
        let Some(content) = &self.content_sender else { return };
        while let Some(chunk) = self.job.content.pop_front() {
            match content.try_send(chunk) {
                Ok(()) => {}
                Err(TrySendError::Full(chunk)) => {
                    self.job.content.push_front(chunk);
                    return;
                }
                Err(TrySendError::Disconnected(_)) => {
                    let progress = self.job.progress_text();
                    return self.fail(Fault::Internal(format!("the content cannot be saved, {progress}")));
                }
            }
        }
    }

    /// Does all work except waiting, sending and receiving.
    fn advance(&mut self, now: Time) {
        self.now = now;
        self.deliver_content();
        if self.job.is_finished() || self.fault.is_some() {
            return;
        }
        if let Err(NoReplyError) = self.conversation.check_timeouts(now) {
            return self.handle_silence(now);
        }
        self.job.send_requests(&mut self.conversation, &self.recorder, now);
        if let Err(fault) = self.job.finish_if_done(&mut self.conversation, &self.recorder, now) {
            self.fail(fault);
        }
    }
}

impl Party for Downloader {
    fn next_step(&mut self, now: Time) -> Step<'_> {
        if let Some(tuning) = self.tuning.take() {
            return Step::Tune(tuning);
        }
        if self.reopen_at.is_none() {
            self.advance(now);
        }
        if let Some(fault) = self.fault.take() {
            return Step::Fail(fault);
        }
        match self.reopen_at {
            Some(at) if now < at => return Step::Sleep(at),
            Some(_) => return Step::Reopen,
            None => {}
        }
        let full = !self.job.content.is_empty();
        let over = self.job.is_finished() && self.conversation.is_flushed();
        if over && full {
            return Step::Sleep(now + POLL_INTERVAL);
        }
        if over && self.is_finished {
            return Step::Done;
        }
        if over {
            self.is_finished = true;
            return Step::FinishSending;
        }
        let until = if full { now + POLL_INTERVAL } else { self.conversation.next_deadline() };
        match self.conversation.next_frame(now) {
            Some(bytes) => Step::Send { bytes, message: usize::MAX },
            None => Step::Receive { into: &mut self.batch, until },
        }
    }

    fn on_tuned(&mut self, link: &dyn Link) {
        self.conversation.set_reliable(link.caps().is_reliable);
    }

    fn on_sent(&mut self, bytes: usize, at: Time) {
        let left = self.conversation.mark_sent(bytes, at);
        if left && self.job.is_measured() {
            if self.recorder.first_instant.is_none() {
                self.recorder.begin(at);
                // Earlier transfers only prepared the download.
                let RequestCounts { window, reconnects, .. } = self.conversation.counts;
                self.conversation.counts = RequestCounts { window, reconnects, ..RequestCounts::default() };
            }
            self.recorder.counts.sent += 1;
        }
    }

    fn on_received(&mut self, now: Time) {
        let mut outcomes = VecDeque::new();
        for bytes in self.batch.messages() {
            self.conversation.process_input(bytes, now, &mut outcomes);
        }
        for outcome in outcomes {
            match self.job.handle_reply(outcome, &mut self.conversation, &mut self.recorder, now) {
                Ok(false) => {}
                Ok(true) => (self.reopen_attempts, self.silent_reopens) = (0, 0),
                Err(fault) => self.fail(fault),
            }
        }
    }

    fn on_timeout(&mut self, _now: Time) {}

    fn on_closed(&mut self, now: Time) -> Result<(), Fault> {
        if self.job.is_finished() {
            self.conversation.drop_outgoing();
            return Ok(());
        }
        if self.conversation.stats.has_replies() {
            self.schedule_reopen(now);
        } else {
            self.fail(Fault::EndedEarly(format!(
                "{}; then the connection was closed",
                self.conversation.stats.describe_silence(self.options.node, 1)
            )));
        }
        Ok(())
    }

    fn on_reopened(&mut self, outcome: Result<(), Fault>, now: Time) -> Result<(), Fault> {
        self.reopen_at = None;
        match outcome {
            Ok(()) => self.conversation.counts.reconnects += 1,
            Err(_) => self.schedule_reopen(now),
        }
        Ok(())
    }

    fn on_ended(&mut self, _cost: PartyCost) {
        let mut server_facts = Map::new();
        server_facts.insert(WHOLE_FACT.to_owned(), self.job.is_complete().into());
        if let Some(bytes) = self.job.resumed_bytes() {
            server_facts.insert(RESUMED_FACT.to_owned(), bytes.into());
        }
        if let Some(program) = self.job.program() {
            server_facts.insert("logger_os".to_owned(), program.os.clone().into());
            let emulated = program.result.contains(EMULATED_MARKER);
            server_facts.insert("emulated".to_owned(), emulated.into());
        }
        self.recorder.transfer_counts = Some(TransferCounts {
            requests: self.conversation.counts,
            server_facts,
            records: self.job.records(),
        });
        let counts = &mut self.recorder.counts;
        let without_reply = counts.sent - counts.received;
        if self.has_failed && counts.received > 0 {
            (0..without_reply).for_each(|_| self.recorder.record_loss(self.now));
        } else {
            // After the end, interrupted, or refused at once: these requests are neither complete nor lost.
            counts.sent = counts.received;
        }
    }
}

impl RecordingParty for Downloader {
    fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    fn into_recorder(self: Box<Self>) -> Recorder {
        self.recorder
    }
}
