//! Decides which tests of a plan may begin now, while real tests take longer or shorter than planned, and hosts vanish.
//!
//! Each resource serves its tests in the order of the plan: a test begins when fewer earlier tests of each of its resources
//! are unfinished than may run at a time. So a late test delays only its own hosts, the plan stays as tight as it was, and
//! there is no deadlock: the earliest unfinished test of all can always begin.

use std::collections::VecDeque;

use super::demand::Demand;
use super::timetable::Timetable;

/// State of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TestProgress {
    Waiting,
    Running,
    Over,
}

/// A plan that is carried out.
#[derive(Debug)]
pub(crate) struct Dispatcher {
    demand: Demand,
    /// Unfinished tests of each resource, in the order of the plan.
    queues: Vec<VecDeque<u32>>,
    states: Vec<TestProgress>,
    /// Tests that may have become ready.
    candidates: Vec<u32>,
    unfinished: usize,
}

impl Dispatcher {
    /// Carries out a plan of these tests.
    pub fn new(demand: Demand, plan: &Timetable) -> Dispatcher {
        let mut queues = vec![VecDeque::new(); demand.resources()];
        for slot in &plan.slots {
            for resource in demand.resources_of(slot.test) {
                queues[*resource as usize].push_back(slot.test);
            }
        }
        Dispatcher {
            queues,
            states: vec![TestProgress::Waiting; demand.tests()],
            candidates: plan.slots.iter().map(|slot| slot.test).collect(),
            unfinished: demand.tests(),
            demand,
        }
    }

    /// The tests that begin now. The caller reports the end of each with [`Dispatcher::finish`].
    pub(crate) fn take_ready(&mut self) -> Vec<u32> {
        let mut ready = Vec::new();
        for test in std::mem::take(&mut self.candidates) {
            if self.states[test as usize] == TestProgress::Waiting && self.is_first_everywhere(test) {
                self.states[test as usize] = TestProgress::Running;
                ready.push(test);
            }
        }
        ready
    }

    fn is_first_everywhere(&self, test: u32) -> bool {
        let is_first = |resource: &u32| {
            let at_once = self.demand.capacity(*resource) as usize;
            self.queues[*resource as usize].iter().take(at_once).any(|queued| *queued == test)
        };
        self.demand.resources_of(test).iter().all(is_first)
    }

    /// A test is over, or will not be made: its resources are free for others. A second report changes nothing.
    pub fn finish(&mut self, test: u32) {
        if std::mem::replace(&mut self.states[test as usize], TestProgress::Over) == TestProgress::Over {
            return;
        }
        self.unfinished -= 1;
        for resource in self.demand.resources_of(test) {
            let queue = &mut self.queues[*resource as usize];
            if let Some(at) = queue.iter().position(|queued| *queued == test) {
                queue.remove(at);
            }
            self.candidates.extend(queue.iter().take(self.demand.capacity(*resource) as usize));
        }
    }

    /// Tests that are not over.
    pub(crate) fn unfinished(&self) -> usize {
        self.unfinished
    }

    /// Time in nanoseconds until the last test is over, if each takes the planned time from now on. It is the largest remaining
    /// load of a resource, so rarely too long and often a little short.
    pub(crate) fn remaining_ns(&self) -> u64 {
        let load = |(resource, queue): (usize, &VecDeque<u32>)| {
            let work: u64 = queue.iter().map(|test| self.demand.duration_ns(*test)).sum();
            work.div_ceil(u64::from(self.demand.capacity(resource as u32)))
        };
        self.queues.iter().enumerate().map(load).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;

    fn full_mesh(hosts: u32) -> (Demand, Timetable) {
        let mut demand = Demand::default();
        let all: Vec<u32> = (0..hosts).map(|_| demand.add_resource(1)).collect();
        demand.add_class(all.clone());
        let pairs = all.iter().flat_map(|a| all.iter().filter(move |b| *b != a).map(move |b| [*a, *b]));
        let pairs: Vec<[u32; 2]> = pairs.collect();
        for pair in &pairs {
            demand.add_test(pair, Duration::from_millis(1000));
        }
        let plan = Timetable::new(&demand, &pairs);
        (demand, plan)
    }

    /// Runs a plan; each test takes the time that `duration` gives, in milliseconds. Returns the time of all.
    fn simulate(demand: &Demand, plan: &Timetable, mut duration: impl FnMut(u32) -> u64) -> u64 {
        let mut dispatcher = Dispatcher::new(demand.clone(), plan);
        let mut running: BTreeMap<(u64, u32), ()> = BTreeMap::new();
        let mut in_use = vec![0; demand.resources()];
        let mut now = 0;
        while dispatcher.unfinished() > 0 {
            for test in dispatcher.take_ready() {
                for resource in demand.resources_of(test) {
                    in_use[*resource as usize] += 1;
                    assert!(in_use[*resource as usize] <= demand.capacity(*resource));
                }
                running.insert((now + duration(test), test), ());
            }
            let ((end, test), ()) = running.pop_first().expect("the earliest unfinished test can begin");
            now = end;
            demand.resources_of(test).iter().for_each(|resource| in_use[*resource as usize] -= 1);
            dispatcher.finish(test);
        }
        assert_eq!(dispatcher.remaining_ns(), 0);
        now
    }

    #[test]
    fn equal_tests_take_as_long_as_planned() {
        let (demand, plan) = full_mesh(12);
        assert_eq!(simulate(&demand, &plan, |_| 1000) * 1_000_000, plan.length_ns);
    }

    #[test]
    fn uneven_tests_cost_little_more_than_their_share() {
        let (demand, plan) = full_mesh(12);
        let mut random = fastrand::Rng::with_seed(7);
        let took = simulate(&demand, &plan, |_| random.u64(1000..1100));
        assert!(took <= 22 * 1100, "{took} ms");
    }

    #[test]
    fn a_late_test_delays_only_its_hosts() {
        let (demand, plan) = full_mesh(12);
        let late = plan.slots[0].test;
        let took = simulate(&demand, &plan, |test| if test == late { 5000 } else { 1000 });
        assert!(took <= 22_000 + 4000, "{took} ms");
    }

    #[test]
    fn tests_of_a_lost_host_are_left_out() {
        let (demand, plan) = full_mesh(4);
        let mut dispatcher = Dispatcher::new(demand.clone(), &plan);
        let running = dispatcher.take_ready();
        assert_eq!(running.len(), 2);
        (0..demand.tests() as u32)
            .filter(|test| demand.resources_of(*test).contains(&0))
            .for_each(|test| dispatcher.finish(test));
        assert_eq!(dispatcher.unfinished(), 6);
        running.into_iter().for_each(|test| dispatcher.finish(test));
        let mut left = 0;
        while dispatcher.unfinished() > 0 {
            let ready = dispatcher.take_ready();
            assert!(!ready.is_empty());
            left += ready.len();
            ready.into_iter().for_each(|test| dispatcher.finish(test));
        }
        assert_eq!(left, 5);
    }
}
