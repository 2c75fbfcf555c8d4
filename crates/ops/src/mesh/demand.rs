//! Needs of the tests of a mesh: resources that only some tests may use at a time, and the least time that follows.

use std::time::Duration;

/// Resources and the tests that use them.
#[derive(Debug, Clone, Default)]
pub struct Demand {
    /// Tests that may use each resource at a time, at least 1.
    capacities: Vec<u32>,
    /// Sets of resources of one kind. The bound of [`Demand::lower_bound`] uses them.
    classes: Vec<Vec<u32>>,
    /// End of the resources of each test in `used`.
    ends: Vec<usize>,
    used: Vec<u32>,
    durations_ns: Vec<u64>,
}

impl Demand {
    /// Adds a resource, and returns its number, from 0.
    pub fn add_resource(&mut self, capacity: u32) -> u32 {
        self.capacities.push(capacity.max(1));
        (self.capacities.len() - 1) as u32
    }

    /// Declares resources to be of one kind, as all hosts or all uplinks: a test that uses two of them takes a place in both.
    pub fn add_class(&mut self, resources: Vec<u32>) {
        self.classes.push(resources);
    }

    /// Adds a test that uses these resources for this time, and returns its number, from 0. A resource that is given twice
    /// counts once.
    pub fn add_test(&mut self, resources: &[u32], duration: Duration) -> u32 {
        let begin = self.used.len();
        for resource in resources {
            if !self.used[begin..].contains(resource) {
                self.used.push(*resource);
            }
        }
        self.ends.push(self.used.len());
        self.durations_ns.push(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
        (self.ends.len() - 1) as u32
    }

    /// Number of tests.
    pub(crate) fn tests(&self) -> usize {
        self.ends.len()
    }

    /// Number of resources.
    pub fn resources(&self) -> usize {
        self.capacities.len()
    }

    /// The resources of a test.
    pub(crate) fn resources_of(&self, test: u32) -> &[u32] {
        let test = test as usize;
        let begin = test.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.used[begin..self.ends[test]]
    }

    /// Tests that may use a resource at a time.
    pub fn capacity(&self, resource: u32) -> u32 {
        self.capacities[resource as usize]
    }

    /// Time of a test in nanoseconds.
    pub(crate) fn duration_ns(&self, test: u32) -> u64 {
        self.durations_ns[test as usize]
    }

    /// The duration, if it is the same for all tests.
    pub(crate) fn common_duration_ns(&self) -> Option<u64> {
        let first = *self.durations_ns.first()?;
        self.durations_ns.iter().all(|duration| *duration == first).then_some(first)
    }

    /// Time in nanoseconds that no order of the tests can undercut. It is the largest of these: the load of a resource by its
    /// capacity, and, for each class, the load of the tests that use two of its resources by the number of pairs among its
    /// capacities. The latter matters for an odd number: 5 hosts hold 2 tests at a time.
    pub fn lower_bound_ns(&self) -> u64 {
        let mut loads = vec![0u64; self.capacities.len()];
        let mut class_loads = vec![0u64; self.classes.len()];
        let classes_of = self.classes_by_resource();
        for test in 0..self.tests() as u32 {
            let duration = self.duration_ns(test);
            let resources = self.resources_of(test);
            for (index, &resource) in resources.iter().enumerate() {
                loads[resource as usize] = loads[resource as usize].saturating_add(duration);
                for &class in &classes_of[resource as usize] {
                    let is_second = resources[..index]
                        .iter()
                        .filter(|other| classes_of[**other as usize].contains(&class))
                        .count()
                        == 1;
                    if is_second {
                        class_loads[class] = class_loads[class].saturating_add(duration);
                    }
                }
            }
        }
        let of_resources =
            loads.iter().zip(&self.capacities).map(|(load, at_once)| (*load, u64::from(*at_once)));
        let of_classes = self.classes.iter().zip(class_loads).map(|(class, load)| {
            let capacity: u64 = class.iter().map(|resource| u64::from(self.capacity(*resource))).sum();
            (load, (capacity / 2).max(1))
        });
        let longest = self.durations_ns.iter().copied().max().unwrap_or(0);
        let unit = self.common_duration_ns().unwrap_or(1).max(1);
        let bound = |(load, at_once): (u64, u64)| match load / unit * unit == load {
            // Equal tests fill whole slots.
            true => (load / unit).div_ceil(at_once).saturating_mul(unit),
            false => load.div_ceil(at_once),
        };
        of_resources.chain(of_classes).map(bound).max().unwrap_or(0).max(longest)
    }

    fn classes_by_resource(&self) -> Vec<Vec<usize>> {
        let mut of = vec![Vec::new(); self.capacities.len()];
        for (number, class) in self.classes.iter().enumerate() {
            class.iter().for_each(|resource| of[*resource as usize].push(number));
        }
        of
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOT: Duration = Duration::from_secs(10);

    #[test]
    fn an_odd_number_of_hosts_leaves_one_idle() {
        let mut demand = Demand::default();
        let hosts: Vec<u32> = (0..5).map(|_| demand.add_resource(1)).collect();
        demand.add_class(hosts.clone());
        for from in &hosts {
            for to in hosts.iter().filter(|to| *to != from) {
                demand.add_test(&[*from, *to], SLOT);
            }
        }
        assert_eq!(demand.lower_bound_ns(), 10 * SLOT.as_nanos() as u64);
    }

    #[test]
    fn a_shared_resource_bounds_the_time_by_its_capacity() {
        let mut demand = Demand::default();
        let uplink = demand.add_resource(2);
        for _ in 0..5 {
            let [from, to] = [demand.add_resource(1), demand.add_resource(1)];
            demand.add_test(&[from, to, uplink, uplink], SLOT);
        }
        assert_eq!(demand.lower_bound_ns(), 3 * SLOT.as_nanos() as u64);
        assert_eq!(demand.resources_of(4), [9, 10, 0]);
    }

    #[test]
    fn without_tests_there_is_nothing_to_wait_for() {
        assert_eq!(Demand::default().lower_bound_ns(), 0);
    }
}
