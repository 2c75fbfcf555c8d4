//! Pushes the metrics to a receiver of Prometheus remote write, in a thread of its own. While the receiver is away, points wait in
//! bounded memory; the oldest are dropped, and their number is reported.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::Scope;
use std::time::Duration;

use jiff::Timestamp;

use super::calendar::ClockSnapshot;
use super::families::Snapshot;
use super::ledger::{Ledger, MonitorEvent};
use super::push::{Push, PushError};
use super::remote_write::WriteRequest;
use linkgauge_model::clock::{Clock, Time};

/// Packed points that may wait.
const MAX_WAITING_BYTES: usize = 8 << 20;

/// Pause after a request that failed: doubled each time, within these limits.
const MIN_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// Points that wait for the receiver. It is given the time.
#[derive(Debug, Default)]
struct Backlog {
    batches: VecDeque<WriteRequest>,
    bytes: usize,
    dropped_points: u64,
    failures: u32,
    /// Time of the next attempt after a failure.
    retry_at: Option<Time>,
}

impl Backlog {
    pub fn add(&mut self, batch: WriteRequest) {
        self.bytes += batch.body.len();
        self.batches.push_back(batch);
        while self.bytes > MAX_WAITING_BYTES && self.batches.len() > 1 {
            self.drop_first();
        }
    }

    fn remove_first(&mut self) -> u64 {
        let Some(batch) = self.batches.pop_front() else { return 0 };
        self.bytes -= batch.body.len();
        batch.points
    }

    fn drop_first(&mut self) {
        self.dropped_points += self.remove_first();
    }

    /// Time until something can be sent; long if nothing waits.
    fn wait(&self, now: Time) -> Duration {
        match self.batches.is_empty() {
            true => MAX_PAUSE,
            false => self.retry_at.map_or(Duration::ZERO, |at| at.since(now)),
        }
    }

    /// Request that is to be sent now.
    fn due(&self, now: Time) -> Option<&WriteRequest> {
        self.batches.front().filter(|_| self.retry_at.is_none_or(|at| now >= at))
    }

    /// Takes the result of sending the first batch. Returns what is new for the log.
    fn record(&mut self, sent: Result<(), PushError>, now: Time) -> Option<MonitorEvent> {
        let was_failing = self.failures > 0;
        let reason = match sent {
            Ok(()) => {
                self.remove_first();
                self.failures = 0;
                let dropped_points = std::mem::take(&mut self.dropped_points);
                return was_failing.then_some(MonitorEvent::PushedAgain { dropped_points });
            }
            Err(PushError::Refused(reason)) => {
                self.drop_first();
                reason
            }
            Err(PushError::Unreachable(reason)) => {
                let pause = MIN_PAUSE * 2_u32.saturating_pow(self.failures.min(16));
                self.retry_at = Some(now + pause.min(MAX_PAUSE));
                reason
            }
        };
        self.failures = self.failures.saturating_add(1);
        (!was_failing).then_some(MonitorEvent::NotPushed { reason })
    }
}

/// Metrics at a time.
pub(super) type Points = (Timestamp, Snapshot);

/// Pushes what arrives until no more can. Then all waiting points are sent once more, unless a request has just failed.
fn run(push: &Push, clock: &Clock, points: &Receiver<Points>, events: &Sender<(Timestamp, MonitorEvent)>) {
    let mut backlog = Backlog::default();
    let mut is_last = false;
    while !is_last {
        match points.recv_timeout(backlog.wait(clock.now())) {
            Ok((at, snapshot)) => backlog.add(WriteRequest::new(&snapshot, at)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => is_last = true,
        }
        points.try_iter().for_each(|(at, snapshot)| backlog.add(WriteRequest::new(&snapshot, at)));
        while let Some(batch) = backlog.due(clock.now()) {
            let sent = push.post(&batch.body);
            let event = backlog.record(sent, clock.now());
            // The ledger ends only after this thread.
            event.into_iter().for_each(|event| drop(events.send((Timestamp::now(), event))));
        }
    }
}

fn snapshot(ledger: &Ledger, host: &str) -> Snapshot {
    Snapshot::new(ledger.states(), host).with_status(ledger.status(), host)
}

/// A push, as the thread of the ledger sees it.
pub(super) struct Pusher {
    every: Duration,
    host: String,
    /// Time at which the next points are due.
    due: Time,
    points: Sender<Points>,
    events: Receiver<(Timestamp, MonitorEvent)>,
}

impl Pusher {
    /// Starts the thread that pushes.
    pub(super) fn start<'scope, 'env>(
        scope: &'scope Scope<'scope, 'env>,
        push: &'env Push,
        clock: &'env Clock,
        host: &str,
    ) -> Pusher {
        let (points, to_push) = channel();
        let (report, events) = channel();
        scope.spawn(move || run(push, clock, &to_push, &report));
        let due = clock.now() + push.every();
        Pusher { every: push.every(), host: host.to_owned(), due, points, events }
    }

    /// Gives it the state when a push is due, and reports what happened.
    pub(super) fn update(&mut self, ledger: &Ledger, now: ClockSnapshot) {
        if now.monotonic >= self.due {
            self.due = now.monotonic + self.every;
            // It ends only after its sender is dropped.
            let _ = self.points.send((now.wall, snapshot(ledger, &self.host)));
        }
        self.events.try_iter().for_each(|(at, event)| ledger.tell(at, event));
    }

    /// Ends the thread, after a last push.
    pub fn end(self, ledger: &Ledger, now: ClockSnapshot) {
        let Pusher { host, points, events, .. } = self;
        let _ = points.send((now.wall, snapshot(ledger, &host)));
        drop(points);
        events.iter().for_each(|(at, event)| ledger.tell(at, event));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PUSH_INTERVAL: Duration = Duration::from_secs(15);

    fn batch(bytes: usize) -> WriteRequest {
        WriteRequest { body: vec![0; bytes], points: 10 }
    }

    fn away() -> Result<(), PushError> {
        Err(PushError::Unreachable("away".to_owned()))
    }

    #[test]
    fn a_receiver_that_vanishes_costs_old_points_only() {
        let mut backlog = Backlog::default();
        let mut now = Time(0);
        let mut reports = Vec::new();
        for _ in 0..40 {
            backlog.add(batch(MAX_WAITING_BYTES / 10));
            while backlog.due(now).is_some() {
                reports.extend(backlog.record(away(), now));
            }
            now = now + PUSH_INTERVAL;
        }
        assert_eq!(reports, [MonitorEvent::NotPushed { reason: "away".to_owned() }], "it is reported once");
        assert!(backlog.bytes <= MAX_WAITING_BYTES, "{}", backlog.bytes);
        now = now + MAX_PAUSE;
        while backlog.due(now).is_some() {
            reports.extend(backlog.record(Ok(()), now));
        }
        assert_eq!(reports[1..], [MonitorEvent::PushedAgain { dropped_points: 300 }]);
        assert_eq!((backlog.bytes, backlog.failures), (0, 0));
    }

    #[test]
    fn pauses_grow_to_a_minute() {
        let mut backlog = Backlog::default();
        backlog.add(batch(1));
        let mut now = Time(0);
        let mut pauses = Vec::new();
        for _ in 0..8 {
            assert!(backlog.due(now).is_some());
            backlog.record(away(), now);
            let retry_at = backlog.retry_at.unwrap();
            pauses.push(retry_at.since(now).as_secs());
            now = retry_at;
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
    }

    #[test]
    fn what_would_be_refused_again_is_not_sent_again() {
        let mut backlog = Backlog::default();
        backlog.add(batch(1));
        let event = backlog.record(Err(PushError::Refused("status 400".to_owned())), Time(0));
        assert_eq!(event, Some(MonitorEvent::NotPushed { reason: "status 400".to_owned() }));
        assert!(backlog.due(Time(0)).is_none());
        backlog.add(batch(1));
        assert!(backlog.due(Time(0)).is_some(), "the next points are sent at once");
        assert_eq!(backlog.record(Ok(()), Time(0)), Some(MonitorEvent::PushedAgain { dropped_points: 10 }));
    }
}
