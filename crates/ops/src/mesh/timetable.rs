//! Plan of when each test of a mesh begins, so that no resource carries more tests than it may, and all are over early.
//!
//! Equal tests between hosts without other resources follow the circle method: one host stays, the others rotate, and each
//! round pairs all of them. Everything else is list scheduling: whenever resources become free, the tests whose resources
//! have most work left begin first. [`Timetable::new`] takes the shorter of both.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::demand::Demand;

/// The begin of each test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timetable {
    /// Tests by their begin.
    pub slots: Vec<Slot>,
    /// The end of the last test, in nanoseconds.
    pub length_ns: u64,
    /// Time that no plan can undercut, in nanoseconds.
    pub lower_bound_ns: u64,
}

/// A test and its begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// Number of the test.
    pub test: u32,
    /// Begin of the test after the begin of the plan, in nanoseconds.
    pub begin_ns: u64,
}

/// The hosts of each test, if the tests are between hosts: numbers of their resources.
pub type HostPair = [u32; 2];

impl Timetable {
    /// Plans all tests. `pairs` holds the two hosts of each test, as numbers of their resources; without it there is no circle
    /// to follow.
    pub fn new(demand: &Demand, pairs: &[HostPair]) -> Timetable {
        let lower_bound_ns = demand.lower_bound_ns();
        let by_circle = circle(demand, pairs).map(|slots| Timetable::of(demand, slots, lower_bound_ns));
        match by_circle {
            Some(plan) if plan.length_ns <= lower_bound_ns => plan,
            Some(plan) => {
                let by_list = Timetable::of(demand, list(demand), lower_bound_ns);
                if by_list.length_ns < plan.length_ns { by_list } else { plan }
            }
            None => Timetable::of(demand, list(demand), lower_bound_ns),
        }
    }

    fn of(demand: &Demand, mut slots: Vec<Slot>, lower_bound_ns: u64) -> Timetable {
        slots.sort_unstable_by_key(|slot| (slot.begin_ns, slot.test));
        let end = |slot: &Slot| slot.begin_ns.saturating_add(demand.duration_ns(slot.test));
        Timetable { length_ns: slots.iter().map(end).max().unwrap_or(0), lower_bound_ns, slots }
    }
}

/// Rounds of the circle method. `None` if tests differ in length, use other resources than their hosts, or if hosts can
/// take several tests.
fn circle(demand: &Demand, pairs: &[HostPair]) -> Option<Vec<Slot>> {
    let duration = demand.common_duration_ns()?;
    let is_plain = |(test, pair): (usize, &HostPair)| {
        let used = demand.resources_of(test as u32);
        used.len() == 2 && used.iter().all(|host| pair.contains(host) && demand.capacity(*host) == 1)
    };
    if pairs.len() != demand.tests() || !pairs.iter().enumerate().all(is_plain) {
        return None;
    }
    let mut hosts: Vec<u32> = pairs.iter().flatten().copied().collect();
    hosts.sort_unstable();
    hosts.dedup();
    // The place of each host on the circle; an odd number leaves one place empty.
    let mut places = vec![0; demand.resources()];
    hosts.iter().enumerate().for_each(|(place, host)| places[*host as usize] = place);
    let rounds_of_one_direction = (hosts.len() + hosts.len() % 2).saturating_sub(1).max(1);
    let round_of = |pair: &HostPair| {
        let [a, b] = pair.map(|host| places[host as usize]);
        // The last place stays, so its partner is at the place where both halves meet.
        let last = rounds_of_one_direction;
        let sum = match (a == last, b == last) {
            (true, _) => 2 * b,
            (_, true) => 2 * a,
            _ => a + b,
        };
        let round = sum % rounds_of_one_direction;
        if a < b { round } else { round + rounds_of_one_direction }
    };
    // Tests of one pair and direction beyond the first get rounds of their own.
    let mut taken = std::collections::BTreeMap::<HostPair, usize>::new();
    let mut rounds: Vec<usize> = Vec::with_capacity(pairs.len());
    for pair in pairs {
        let nth = taken.entry(*pair).or_default();
        rounds.push(round_of(pair) + *nth * 2 * rounds_of_one_direction);
        *nth += 1;
    }
    // Rounds without tests take no time.
    let mut used = rounds.clone();
    used.sort_unstable();
    used.dedup();
    let slot = |(test, round): (usize, &usize)| Slot {
        test: test as u32,
        begin_ns: (used.partition_point(|other| other < round) as u64).saturating_mul(duration),
    };
    Some(rounds.iter().enumerate().map(slot).collect())
}

/// List scheduling over time.
struct ListScheduler<'a> {
    demand: &'a Demand,
    /// Free places of each resource.
    free: Vec<u32>,
    /// Work left on each resource, in nanoseconds.
    work: Vec<u64>,
    /// Tests of each resource that have not begun.
    waiting: Vec<Vec<u32>>,
    has_begun: Vec<bool>,
    /// Tests that were collected at this event.
    collected_at: Vec<u32>,
    event: u32,
    running: BinaryHeap<Reverse<(u64, u32)>>,
    slots: Vec<Slot>,
}

fn list(demand: &Demand) -> Vec<Slot> {
    let mut scheduler = ListScheduler::new(demand);
    let all: Vec<u32> = (0..demand.resources() as u32).collect();
    scheduler.begin_tests(0, &all);
    while let Some(Reverse((now, first))) = scheduler.running.pop() {
        let mut freed = scheduler.end_test(first);
        while scheduler.running.peek().is_some_and(|Reverse((end, _))| *end == now) {
            let Some(Reverse((_, test))) = scheduler.running.pop() else { break };
            freed.extend(scheduler.end_test(test));
        }
        scheduler.begin_tests(now, &freed);
    }
    // Tests without resources wait for nothing.
    let without = (0..demand.tests() as u32).filter(|test| demand.resources_of(*test).is_empty());
    scheduler.slots.extend(without.map(|test| Slot { test, begin_ns: 0 }));
    scheduler.slots
}

impl<'a> ListScheduler<'a> {
    pub fn new(demand: &'a Demand) -> ListScheduler<'a> {
        let resources = demand.resources();
        let (mut work, mut waiting) = (vec![0u64; resources], vec![Vec::new(); resources]);
        for test in 0..demand.tests() as u32 {
            for &resource in demand.resources_of(test) {
                work[resource as usize] += demand.duration_ns(test);
                waiting[resource as usize].push(test);
            }
        }
        ListScheduler {
            demand,
            free: (0..resources as u32).map(|resource| demand.capacity(resource)).collect(),
            work,
            waiting,
            has_begun: vec![false; demand.tests()],
            collected_at: vec![0; demand.tests()],
            event: 0,
            running: BinaryHeap::new(),
            slots: Vec::with_capacity(demand.tests()),
        }
    }

    fn end_test(&mut self, test: u32) -> Vec<u32> {
        let freed = self.demand.resources_of(test).to_vec();
        freed.iter().for_each(|resource| self.free[*resource as usize] += 1);
        freed
    }

    /// Urgency of a test: the time that its busiest resource needs, then that of all of them.
    fn urgency(&self, test: u32) -> (u64, u64) {
        let time =
            |resource: &u32| self.work[*resource as usize] / u64::from(self.demand.capacity(*resource));
        let times = self.demand.resources_of(test).iter().map(time);
        times.fold((0, 0), |(most, sum), time| (most.max(time), sum + time))
    }

    /// Begins the most urgent of the tests that wait for one of these resources.
    fn begin_tests(&mut self, now: u64, freed: &[u32]) {
        self.event += 1;
        let mut candidates = Vec::new();
        for &resource in freed {
            let mut waiting = std::mem::take(&mut self.waiting[resource as usize]);
            waiting.retain(|test| !self.has_begun[*test as usize]);
            for &test in &waiting {
                let is_new =
                    std::mem::replace(&mut self.collected_at[test as usize], self.event) != self.event;
                if is_new && self.is_free(test) {
                    candidates.push((Reverse(self.urgency(test)), test));
                }
            }
            self.waiting[resource as usize] = waiting;
        }
        candidates.sort_unstable();
        for (_, test) in candidates {
            if self.is_free(test) {
                self.begin_test(now, test);
            }
        }
    }

    fn is_free(&self, test: u32) -> bool {
        self.demand.resources_of(test).iter().all(|resource| self.free[*resource as usize] > 0)
    }

    fn begin_test(&mut self, now: u64, test: u32) {
        let duration = self.demand.duration_ns(test);
        for &resource in self.demand.resources_of(test) {
            self.free[resource as usize] -= 1;
            self.work[resource as usize] -= duration;
        }
        self.has_begun[test as usize] = true;
        self.running.push(Reverse((now.saturating_add(duration), test)));
        self.slots.push(Slot { test, begin_ns: now });
    }
}

#[cfg(test)]
mod tests;
