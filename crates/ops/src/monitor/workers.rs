//! Threads for work that is due at some time and that may block: many links end their slices together, and few threads end one
//! after another, so that little memory is in use at once.
//!
//! Work that waits, for a link that does not open or for a distant server, must not hold up the rest. So as many threads as there are
//! CPUs have begun their work just now, and each work that takes longer has one more.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::Duration;

use linkgauge_engine::host::cpu;
use linkgauge_model::clock::{Clock, Time};

/// Usual time of work. Work that takes longer waits for something, even where the CPUs have much to do.
const USUAL_TIME: Duration = Duration::from_millis(20);

/// A thread without work ends after this time, and the memory of its stack goes back.
const IDLE_TIME: Duration = Duration::from_secs(2);

/// Interval at which the end is noticed.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Work that follows some work.
pub(super) enum NextWork<T> {
    /// More work, due at a time.
    At(Time, T),
    /// Work that another thread will [push](WorkQueue::push).
    Awaited,
    /// End of the work.
    Ended,
}

/// Work for threads.
pub(super) struct WorkQueue<T> {
    clock: Clock,
    state: Mutex<WorkState<T>>,
    /// Signal to an idle thread.
    has_work: Condvar,
    /// Signal to the thread that starts threads.
    is_behind: Condvar,
}

struct WorkState<T> {
    /// Work by time, and in the order in which it was added.
    work: BTreeMap<(Time, u64), T>,
    added: u64,
    /// Chains of work that have not ended.
    outstanding: usize,
    /// Whether the queue ends, so that no work waits for its time.
    is_over: bool,
    idle_threads: usize,
    /// Begin of the work of each thread that is not idle.
    working: BTreeMap<u64, Time>,
    started_threads: u64,
}

impl<T> WorkState<T> {
    pub fn add(&mut self, at: Time, work: T) {
        self.work.insert((at, self.added), work);
        self.added += 1;
    }

    /// Time until the next work is due.
    fn time_to_work(&self, now: Time) -> Duration {
        let next = self.work.first_key_value().map(|((at, _), _)| at.since(now));
        next.map_or(Duration::MAX, |time| if self.is_over { Duration::ZERO } else { time })
    }

    fn take_due(&mut self, now: Time) -> Option<T> {
        let is_due = self.time_to_work(now).is_zero();
        is_due.then(|| self.work.pop_first()).flatten().map(|(_, work)| work)
    }

    /// Threads whose work does not seem to wait for anything.
    fn busy_threads(&self, now: Time) -> usize {
        self.working.values().filter(|began| now.since(**began) < USUAL_TIME).count()
    }
}

impl<T: Send> WorkQueue<T> {
    /// Work that is due now.
    pub fn new(clock: &Clock, work: impl IntoIterator<Item = T>) -> WorkQueue<T> {
        let mut state = WorkState {
            work: BTreeMap::new(),
            added: 0,
            outstanding: 0,
            is_over: false,
            idle_threads: 0,
            working: BTreeMap::new(),
            started_threads: 0,
        };
        let now = clock.now();
        work.into_iter().for_each(|work| state.add(now, work));
        state.outstanding = state.work.len();
        let (has_work, is_behind) = Default::default();
        WorkQueue { clock: clock.clone(), state: Mutex::new(state), has_work, is_behind }
    }

    fn state(&self) -> MutexGuard<'_, WorkState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds work that was awaited, due now.
    pub fn push(&self, work: T) {
        let mut state = self.state();
        state.add(self.clock.now(), work);
        let waiting = if state.idle_threads > 0 { &self.has_work } else { &self.is_behind };
        waiting.notify_one();
    }

    /// Does the work until all of it has ended. Once `is_over` is true, no work waits for its time.
    pub(super) fn run(&self, is_over: impl Fn() -> bool, perform: impl Fn(T) -> NextWork<T> + Sync) {
        let at_once = cpu::current_affinity().len().max(1);
        std::thread::scope(|scope| {
            let mut state = self.state();
            while state.outstanding > 0 {
                state.is_over |= is_over();
                let now = self.clock.now();
                let mut wait = state.time_to_work(now).min(POLL_INTERVAL);
                if wait.is_zero() {
                    wait = USUAL_TIME;
                    if state.idle_threads > 0 {
                        self.has_work.notify_one();
                    } else if state.busy_threads(now) < at_once {
                        let number = state.started_threads;
                        let (this, perform) = (self, &perform);
                        // Without a further thread those that there are continue.
                        if Builder::new().spawn_scoped(scope, move || this.work(number, perform)).is_ok() {
                            state.started_threads += 1;
                            state.working.insert(number, now);
                        }
                    }
                }
                state = self.is_behind.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0;
            }
            drop(state);
            self.has_work.notify_all();
        });
    }

    /// Works, until there has been nothing to do for some time.
    fn work(&self, number: u64, perform: &impl Fn(T) -> NextWork<T>) {
        let mut state = self.state();
        loop {
            let now = self.clock.now();
            if let Some(work) = state.take_due(now) {
                state.working.insert(number, now);
                if state.time_to_work(now).is_zero() {
                    self.is_behind.notify_one();
                }
                drop(state);
                // The panic has been printed already. It ends one chain of work.
                let next = catch_unwind(AssertUnwindSafe(|| perform(work))).unwrap_or(NextWork::Ended);
                state = self.state();
                match next {
                    NextWork::At(at, work) => state.add(at, work),
                    NextWork::Awaited => {}
                    NextWork::Ended => state.outstanding -= 1,
                }
                continue;
            }
            state.working.remove(&number);
            self.is_behind.notify_one();
            if state.outstanding == 0 {
                return;
            }
            state.idle_threads += 1;
            let (after, waited) =
                self.has_work.wait_timeout(state, IDLE_TIME).unwrap_or_else(PoisonError::into_inner);
            state = after;
            state.idle_threads -= 1;
            if waited.timed_out() && !state.time_to_work(self.clock.now()).is_zero() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

    use super::*;

    #[test]
    fn work_that_waits_holds_up_no_other() {
        let clock = Clock::System;
        let queue = WorkQueue::new(&clock, 0..100);
        // All of them wait until the last one has begun.
        let begun = AtomicUsize::new(0);
        queue.run(
            || false,
            |_| {
                begun.fetch_add(1, Relaxed);
                while begun.load(Relaxed) < 100 {
                    clock.sleep_until(clock.now() + Duration::from_millis(1));
                }
                NextWork::Ended
            },
        );
        assert_eq!(begun.into_inner(), 100);
    }

    #[test]
    fn short_work_needs_few_threads_and_a_panic_ends_one_chain() {
        let clock = Clock::System;
        let queue = WorkQueue::new(&clock, (0..500).map(|number| (number, 3)));
        let done = AtomicUsize::new(0);
        queue.run(
            || false,
            |(number, left)| {
                assert!(number != 7, "as the test wants it");
                done.fetch_add(1, Relaxed);
                if left == 0 { NextWork::Ended } else { NextWork::At(clock.now(), (number, left - 1)) }
            },
        );
        assert_eq!(done.into_inner(), 499 * 4);
        assert!(queue.state().started_threads < 100, "{}", queue.state().started_threads);
    }

    #[test]
    fn awaited_work_is_done_and_nothing_waits_for_its_time_at_the_end() {
        let clock = Clock::System;
        let queue = WorkQueue::new(&clock, ["await", "sleep"]);
        let stop = AtomicBool::new(false);
        let tomorrow = clock.now() + Duration::from_secs(86_400);
        std::thread::scope(|scope| {
            let perform = |work| match work {
                "await" => {
                    let queue = &queue;
                    scope.spawn(move || queue.push("awaited"));
                    NextWork::Awaited
                }
                "sleep" => NextWork::At(tomorrow, "slept"),
                "awaited" => {
                    stop.store(true, Relaxed);
                    NextWork::Ended
                }
                _ => NextWork::Ended,
            };
            queue.run(|| stop.load(Relaxed), perform);
        });
        assert!(stop.into_inner() && clock.now() < tomorrow);
    }
}
