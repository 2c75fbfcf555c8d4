//! The near end of a download on its link: sends what is asked, hands over what came, opens a link that broke anew and
//! goes on where it was. Not for what is asked (`job.rs`).

use std::collections::VecDeque;
use std::sync::mpsc::TrySendError;
use std::time::Duration;

use super::Options;
use super::job::Job;
use super::talk::{Silence, Talk};
use crate::clock::Time;
use crate::link::party::{Cost, Party, Step, Tuning};
use crate::link::{Batch, Fault};
use crate::peer::pakbus::EMULATED;
use crate::plan::Case;
use crate::sample::{Recorder, Transfer};
use crate::workload::Measured;
use crate::workload::download::{Content, WHOLE};

/// Bytes taken from a link at once.
const PIECE: usize = 4096;

/// How soon it is looked again whether there is room for content.
const LOOK: Duration = Duration::from_millis(1);

/// The pause before a link is opened anew for the second time: it doubles from one to the other.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A logger that fell silent is called anew so often, unless it goes on.
const CALLS: u32 = 1;

/// The near end.
pub struct Downloader {
    options: Options,
    job: Job,
    talk: Talk,
    received: Batch,
    tuning: Option<Tuning>,
    content: Option<Content>,
    /// The link is broken, to be opened anew at that instant.
    broken: Option<Time>,
    /// Times it was opened anew, or tried to be, without getting further; and those of them because of silence.
    attempts: u32,
    calls: u32,
    fault: Option<Fault>,
    failed: bool,
    finished: bool,
    now: Time,
    recorder: Recorder,
}

impl Downloader {
    /// `content` takes what comes; `seed` is any number, best another one every time.
    pub fn new(
        options: Options,
        case: &Case,
        content: Option<Content>,
        seed: u64,
        recorder: Recorder,
    ) -> Downloader {
        let mut talk = Talk::new(options.node, case.timeout, options.retries, options.window, seed);
        talk.greet();
        let transaction = talk.transaction();
        Downloader {
            job: Job::new(options.clone(), case, content.is_some(), transaction),
            options,
            talk,
            received: Batch::new(PIECE, 1),
            tuning: Some(Tuning { wait: case.wait, cpu: case.pin.near, batches_of: None }),
            content,
            broken: None,
            attempts: 0,
            calls: 0,
            fault: None,
            failed: false,
            finished: false,
            now: Time(0),
            recorder,
        }
    }

    fn fail(&mut self, what: String) {
        self.failed = true;
        self.fault.get_or_insert(Fault::Other(what));
    }

    /// No answer after all tries.
    fn silent(&mut self, now: Time) {
        let complaint = self.talk.seen.complaint(self.options.node, self.options.retries + 1);
        if !self.talk.seen.any() {
            self.fail(complaint);
        } else if self.calls < CALLS && self.options.reconnects > 0 {
            self.calls += 1;
            self.lost(now);
        } else {
            self.fail(format!("{complaint} ({})", self.job.place()));
        }
    }

    /// The link is of no use any more.
    fn lost(&mut self, now: Time) {
        if self.attempts >= self.options.reconnects {
            let place = self.job.place();
            let again = match self.attempts {
                0 => String::new(),
                attempts => format!(", and opened anew in vain ({attempts} times without getting further)"),
            };
            self.fail(format!("the connection was lost {place}{again}; see --reconnects"));
            return;
        }
        let pause = match self.attempts {
            0 => Duration::ZERO,
            attempts => (SHORTEST_PAUSE * (1 << attempts.min(10))).min(LONGEST_PAUSE),
        };
        self.attempts += 1;
        self.broken = Some(now + pause);
        let transaction = self.talk.begin_anew();
        self.job.reopened(transaction);
    }

    /// Hands over what has come, as far as there is room.
    fn hand_over(&mut self) {
        let Some(content) = &self.content else { return };
        while let Some(piece) = self.job.content.pop_front() {
            match content.try_send(piece) {
                Ok(()) => {}
                Err(TrySendError::Full(piece)) => {
                    self.job.content.push_front(piece);
                    return;
                }
                Err(TrySendError::Disconnected(_)) => {
                    return self.fail(format!("what comes cannot be kept, {}", self.job.place()));
                }
            }
        }
    }

    /// Does all there is to do but wait, send and receive.
    fn work(&mut self, now: Time) {
        self.now = now;
        self.hand_over();
        if self.job.is_over() || self.fault.is_some() {
            return;
        }
        if let Err(Silence) = self.talk.look(now) {
            return self.silent(now);
        }
        self.job.ask(&mut self.talk, &self.recorder, now);
        self.job.end(&mut self.talk, &self.recorder, now);
    }
}

impl Party for Downloader {
    fn next(&mut self, now: Time) -> Step<'_> {
        if let Some(tuning) = self.tuning.take() {
            return Step::Tune(tuning);
        }
        if self.broken.is_none() {
            self.work(now);
        }
        if let Some(fault) = self.fault.take() {
            return Step::Fail(fault);
        }
        match self.broken {
            Some(at) if now < at => return Step::Sleep(at),
            Some(_) => return Step::Reopen,
            None => {}
        }
        let full = !self.job.content.is_empty();
        let over = self.job.is_over() && self.talk.is_silent();
        if over && full {
            return Step::Sleep(now + LOOK);
        }
        if over && self.finished {
            return Step::Done;
        }
        if over {
            self.finished = true;
            return Step::Finish;
        }
        let until = if full { now + LOOK } else { self.talk.wakes_at() };
        match self.talk.outgoing(now) {
            Some(bytes) => Step::Send { bytes, message: usize::MAX },
            None => Step::Receive { into: &mut self.received, until },
        }
    }

    fn sent(&mut self, bytes: usize, at: Time) {
        let left = self.talk.taken(bytes, at);
        if left && self.job.is_measured() {
            if self.recorder.first.is_none() {
                self.recorder.begin(at);
                // What came before was needed to begin.
                let Transfer { window, reconnects, .. } = self.talk.counts;
                self.talk.counts = Transfer { window, reconnects, ..Transfer::default() };
            }
            self.recorder.counts.sent += 1;
        }
    }

    fn received(&mut self, now: Time) {
        let mut heard = VecDeque::new();
        for bytes in self.received.messages() {
            self.talk.hear(bytes, now, &mut heard);
        }
        for heard in heard {
            match self.job.answered(heard, &mut self.talk, &mut self.recorder, now) {
                Ok(false) => {}
                Ok(true) => (self.attempts, self.calls) = (0, 0),
                Err(what) => self.fail(what),
            }
        }
    }

    fn timed_out(&mut self, _now: Time) {}

    fn closed(&mut self, now: Time) -> Result<(), Fault> {
        if self.job.is_over() {
            self.talk.drop_outgoing();
            return Ok(());
        }
        if self.talk.seen.any() {
            self.lost(now);
        } else {
            self.fail(format!(
                "{}; then the connection was closed",
                self.talk.seen.complaint(self.options.node, 1)
            ));
        }
        Ok(())
    }

    fn reopened(&mut self, outcome: Result<(), Fault>, now: Time) -> Result<(), Fault> {
        self.broken = None;
        match outcome {
            Ok(()) => self.talk.counts.reconnects += 1,
            Err(_) => self.lost(now),
        }
        Ok(())
    }

    fn ended(&mut self, _cost: Cost) {
        let mut transfer = self.talk.counts.clone();
        transfer.records = self.job.records();
        transfer.far_end.insert(WHOLE.to_owned(), self.job.is_whole().into());
        if let Some(program) = self.job.program() {
            transfer.far_end.insert("logger_os".to_owned(), program.os.clone().into());
            let emulated = program.result.contains(EMULATED);
            transfer.far_end.insert("emulated".to_owned(), emulated.into());
        }
        self.recorder.transfer = Some(transfer);
        let counts = &mut self.recorder.counts;
        let unanswered = counts.sent - counts.received;
        if self.failed && counts.received > 0 {
            (0..unanswered).for_each(|_| self.recorder.lost(self.now));
        } else {
            // Behind the end, stopped in the middle, or refused at once: neither answered nor lost.
            counts.sent = counts.received;
        }
    }
}

impl Measured for Downloader {
    fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    fn into_recorder(self: Box<Self>) -> Recorder {
        self.recorder
    }
}
