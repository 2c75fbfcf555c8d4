//! Outages and alarms: what is logged and stored at a change, and what the actions receive.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::super::alert::{Alert, Transition};
use super::super::condition::{Condition, ConditionDetails, ConditionMessage};
use super::super::notice::{MinuteFigures, Notice, NoticeKind, mean_ns};
use super::resume::{ALARM, CLEAR, DOWN, MET, MISSED, REASON, UP};
use super::{Ledger, MonitorEvent, WatchState};
use linkgauge_model::run::Run;
use linkgauge_model::sample::Window;
use linkgauge_model::units::{format_nanoseconds, format_period};

/// Reason for the outage of a link that could be opened.
const NO_REPLIES: &str = "the last 3 probes have no reply";

/// Time in which a link behind a gateway is opened again, once that replies.
const RECOVERY_TIME: SignedDuration = SignedDuration::from_secs(75);

impl WatchState {
    /// Conditions that the actions can learn of.
    fn conditions(&mut self) -> impl Iterator<Item = &mut Condition> {
        let alarms = self.alerts.iter_mut().map(|alert: &mut Alert| &mut alert.condition);
        [&mut self.outage, &mut self.missed].into_iter().chain(alarms)
    }
}

impl Ledger<'_> {
    /// Notices that are due for the actions now. A watch for which `is_silenced` is true sends nothing.
    pub(crate) fn take_notices(
        &mut self,
        now: Timestamp,
        is_silenced: &dyn Fn(usize) -> bool,
    ) -> Vec<Notice> {
        let mut notices = std::mem::take(&mut self.shifts);
        let silenced: Vec<bool> = (0..self.states.len())
            .map(|watch| is_silenced(watch) || self.is_behind_outage(watch, now))
            .collect();
        notices.retain(|notice| !silenced[notice.watch]);
        for (watch, is_silenced) in silenced.into_iter().enumerate() {
            let mut due = Vec::new();
            for condition in self.states[watch].conditions() {
                if is_silenced {
                    condition.silence();
                } else {
                    due.extend(condition.next_message(now, self.repeat));
                }
            }
            notices.extend(due.into_iter().map(|message| self.notice_of(watch, message)));
        }
        notices
    }

    /// Whether one of the gateways of a link does not reply, or did not a short time ago: then the link need not have recovered yet. A
    /// gateway whose last probe is lost may be down, too.
    fn is_behind_outage(&self, watch: usize, now: Timestamp) -> bool {
        let mut gateways = std::iter::successors(self.gateways[watch], |gateway| self.gateways[*gateway]);
        gateways.any(|gateway| {
            let state = &self.states[gateway];
            state.is_up == Some(false)
                || state.lost_in_row > 0
                || state.outage.ended_within(RECOVERY_TIME, now)
        })
    }

    fn notice_of(&self, watch: usize, message: ConditionMessage) -> Notice {
        let ConditionDetails { rule, reason, run } = message.details;
        let event = match (&rule, message.is_on) {
            (None, true) => NoticeKind::Down,
            (None, false) => NoticeKind::Up,
            (Some(_), true) => NoticeKind::Alarm,
            (Some(_), false) => NoticeKind::Resolved,
        };
        let reason = reason.or_else(|| rule.is_none().then(|| NO_REPLIES.to_owned()));
        Notice {
            rule,
            reason,
            run,
            duration_s: Some(message.duration.as_secs_f64()),
            changes: Some(message.changes),
            ..self.notice(watch, message.at, event)
        }
    }

    pub(super) fn notice(&self, watch: usize, at: Timestamp, event: NoticeKind) -> Notice {
        let state = &self.states[watch];
        let health = state.health();
        let minute = state.last_minutes(1);
        let normal = state.normal();
        let means = mean_ns(&minute).zip(normal.and_then(mean_ns));
        Notice {
            watch,
            event,
            at,
            link: state.name.clone(),
            endpoint: state.endpoint.clone(),
            state: health,
            severity: health.severity(),
            reason: None,
            duration_s: None,
            changes: None,
            rule: None,
            last_minute: MinuteFigures::of(&minute),
            normal: normal.map(MinuteFigures::of),
            slower_ns: means.map_or(0.0, |(now, usual)| now - usual),
            run: None,
            level: None,
            explanation: None,
        }
    }

    /// The link went down or up, with the run of the test that found it.
    pub(super) fn change_state(&mut self, watch: usize, at: Timestamp, run: Option<String>) {
        let state = &mut self.states[watch];
        let (name, reason) = (state.name.clone(), state.failure.clone());
        if state.is_up == Some(false) {
            let details = ConditionDetails { rule: None, reason: reason.clone(), run };
            if state.outage.begin(at, details) {
                self.note(watch, at, DOWN, reason.as_deref().unwrap_or(NO_REPLIES));
            }
            self.tell(at, MonitorEvent::Down { name, reason });
        } else {
            if let Some(lasted) = state.outage.end(at) {
                self.note(watch, at, UP, &after(lasted));
            }
            self.tell(at, MonitorEvent::Up { name });
        }
    }

    /// A link that is down without a known reason has one now.
    pub(super) fn explain_outage(&mut self, watch: usize, at: Timestamp, reason: &str) {
        let state = &mut self.states[watch];
        if state.outage.explain(reason) {
            let name = state.name.clone();
            self.note(watch, at, REASON, reason);
            self.tell(at, MonitorEvent::Down { name, reason: Some(reason.to_owned()) });
        }
    }

    /// An alarm begins or ends.
    pub(super) fn raise(&mut self, watch: usize, at: Timestamp, index: usize, transition: Transition) {
        let state = &self.states[watch];
        let (name, rule) = (state.name.clone(), state.alerts[index].rule.text.clone());
        let mut run = None;
        let kind = match transition {
            Transition::Raised => {
                let reason = Some(describe(&state.last_minutes(1)));
                run = self.save_black_box(watch, &rule);
                let details = ConditionDetails { rule: Some(rule.clone()), reason, run: run.clone() };
                self.states[watch].alerts[index].condition.begin(at, details);
                ALARM
            }
            Transition::Cleared => {
                self.states[watch].alerts[index].condition.end(at);
                CLEAR
            }
        };
        self.note(watch, at, kind, &rule);
        self.tell(at, MonitorEvent::Alarm { name, rule, transition, run });
    }

    /// A test that misses a threshold is an alarm until another one meets all.
    pub(super) fn judge_test(&mut self, watch: usize, run: &Run) {
        let judged = || run.cases.iter().flat_map(|case| &case.thresholds);
        if run.interrupted || !judged().any(|judged| judged.is_measured()) {
            return;
        }
        let (at, state) = (run.started, &mut self.states[watch]);
        let name = state.name.clone();
        let (rule, transition, run) = match judged().find(|judged| !judged.passed && judged.is_measured()) {
            Some(missed) => {
                let (rule, run) = (missed.threshold.clone(), Some(run.id.clone()));
                let reason = Some(format!("the test measured {}", missed.measured));
                let details = ConditionDetails { rule: Some(rule.clone()), reason, run: run.clone() };
                if !state.missed.begin(at, details) {
                    return;
                }
                self.note(watch, at, MISSED, &rule);
                (rule, Transition::Raised, run)
            }
            None => {
                let rule = state.missed.rule().unwrap_or_default().to_owned();
                let Some(lasted) = state.missed.end(at) else { return };
                self.note(watch, at, MET, &after(lasted));
                (rule, Transition::Cleared, None)
            }
        };
        self.tell(at, MonitorEvent::Alarm { name, rule, transition, run });
    }
}

fn after(lasted: SignedDuration) -> String {
    let seconds = Duration::from_secs(lasted.as_secs().unsigned_abs());
    format!("after {}", format_period(seconds))
}

/// Describes what was measured in a minute, for people.
fn describe(minute: &Window) -> String {
    let lost = format!("{:.1} %", 100.0 * minute.counts.loss_share().unwrap_or(0.0));
    match minute.quantile_ns(0.5) {
        Some(median) => {
            format!(
                "in the last minute {lost} of the probes were lost, and the median is {}",
                format_nanoseconds(median as f64)
            )
        }
        None => format!("in the last minute {lost} of the probes were lost"),
    }
}
