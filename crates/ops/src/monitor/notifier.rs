//! The thread that passes alarms on: it gathers those of one slice, explains the first, and performs the actions. It may be slow;
//! probes never wait for it.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Mutex, TryLockError};
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::action::Action;
use super::config::Watch;
use super::notice::{AlarmExplanation, Notice, NoticeKind};
use linkgauge_analysis::explain::live::{LiveOptions, explain_live};
use linkgauge_engine::link::Dialer;

/// The slices of all links end together, but lost probes are waited for. Alarms within this time are one message.
const GATHER_TIME: Duration = Duration::from_secs(2);

/// A message has at most this many events; further ones are in the next message.
const MAX_EVENTS: usize = 1000;

/// Context of the thread that sends notices.
pub(super) struct Notifier<'a> {
    pub(crate) watches: &'a [Watch],
    pub(crate) actions: &'a [Action],
    /// The cancel flag ends an explanation, and the retries of an action.
    pub(crate) dialer: Dialer,
    /// Shared secret of servers that require one.
    pub(crate) token: Option<String>,
    /// The host of the messages.
    pub(crate) host: &'a str,
    /// Lock that is held during an explanation: a test at the same time would be its cause.
    pub(crate) test: &'a Mutex<()>,
}

/// Outcome of a notice, for the ledger and the log.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum NoticeOutcome {
    /// The link of this watch was explained.
    Explained(usize, AlarmExplanation),
    /// An action failed, for this reason.
    ActionFailed(String),
}

impl Notifier<'_> {
    /// Whether there is anything to do with a notice.
    pub(crate) fn is_needed(&self) -> bool {
        !self.actions.is_empty() || self.watches.iter().any(|watch| watch.explain.is_some())
    }

    /// Works until the ledger sends no more.
    pub(crate) fn run(&self, notices: &Receiver<Notice>, outcomes: &Sender<(Timestamp, NoticeOutcome)>) {
        while let Ok(first) = notices.recv() {
            let mut events = gather(first, notices);
            let at = events[0].at;
            let report = |outcome: NoticeOutcome| {
                // The ledger ends only after this thread.
                let _ = outcomes.send((at, outcome));
            };
            if let Some((watch, explanation)) = self.explain_first(&mut events) {
                report(NoticeOutcome::Explained(watch, explanation));
            }
            for action in self.actions {
                let messages = action.format.messages(self.host, &events);
                let performed =
                    messages.iter().try_for_each(|message| action.perform(message, &self.dialer.cancel));
                if let Err(error) = performed {
                    report(NoticeOutcome::ActionFailed(error.to_string()));
                }
            }
        }
    }

    /// Explains the first link with an alarm: the others of the same slice probably share its cause. A link without any reply
    /// cannot be explained.
    fn explain_first(&self, events: &mut [Notice]) -> Option<(usize, AlarmExplanation)> {
        let event = events.iter_mut().find(|event| {
            let replies = event.last_minute.probes > event.last_minute.lost;
            event.event == NoticeKind::Alarm && replies && self.watches[event.watch].explain.is_some()
        })?;
        let watch = &self.watches[event.watch];
        let explanation = self.explain(watch, watch.explain?, event);
        event.explanation = Some(explanation.clone());
        Some((event.watch, explanation))
    }

    fn explain(&self, watch: &Watch, budget: Duration, event: &Notice) -> AlarmExplanation {
        let _alone = match self.test.try_lock() {
            Ok(alone) => alone,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                return AlarmExplanation::failed("a test was running at that time");
            }
        };
        let case = &watch.case;
        let options = LiveOptions {
            protocol: case.protocol.clone(),
            protocol_options: case.protocol_options.clone(),
            message_bytes: case.message_bytes,
            budget,
            token: self.token.clone(),
            ..LiveOptions::new(watch.endpoint().clone())
        };
        match explain_live(&options, &self.dialer, &|_, _| ()) {
            Ok(explanation) => AlarmExplanation::of(&explanation, event),
            Err(error) => AlarmExplanation::failed(error.to_string()),
        }
    }
}

/// The notices of one slice, of which this is the first.
fn gather(first: Notice, notices: &Receiver<Notice>) -> Vec<Notice> {
    let until = Instant::now() + GATHER_TIME;
    let mut events = vec![first];
    while events.len() < MAX_EVENTS {
        match notices.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(notice) => events.push(notice),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
        }
    }
    events
}
