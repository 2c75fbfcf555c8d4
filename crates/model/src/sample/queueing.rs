//! Queueing delays over time: how much longer requests and replies took than the fastest ones. They need no clocks that agree.

use crate::clock::Time;
use crate::run::SeriesEntry;

/// The delays of one round trip above the shortest ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueingDelay {
    /// Arrival time of the reply.
    pub(crate) received: Time,
    /// Delay of the request, in nanoseconds.
    pub(crate) forward_ns: u64,
    /// Delay of the reply, in nanoseconds.
    pub(crate) reverse_ns: u64,
}

/// Sets the means of these delays in the entries of a series that began at `origin`; both in the order of time.
pub fn set_queueing(entries: &mut [SeriesEntry], origin: Time, delays: &[QueueingDelay]) {
    let position = |delay: &QueueingDelay| delay.received.0.checked_sub(origin.0);
    for entry in entries {
        let within = entry.start_ns..entry.start_ns.saturating_add(entry.length_ns);
        let first = delays.partition_point(|delay| position(delay).is_none_or(|at| at < within.start));
        let count =
            delays[first..].partition_point(|delay| position(delay).is_some_and(|at| at < within.end));
        let of_entry = &delays[first..first + count];
        let mean = |get: fn(&QueueingDelay) -> u64| {
            let sum: u128 = of_entry.iter().map(|delay| u128::from(get(delay))).sum();
            (count > 0).then(|| (sum / count as u128) as u64)
        };
        entry.forward_queue_ns = mean(|delay| delay.forward_ns);
        entry.reverse_queue_ns = mean(|delay| delay.reverse_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_the_mean_of_its_delays() {
        let delay = |at: u64| QueueingDelay { received: Time(at), forward_ns: 10 * at, reverse_ns: at };
        let delays: Vec<QueueingDelay> = [90, 100, 104, 110, 120, 135].map(delay).into();
        let entry = |start_ns| SeriesEntry { start_ns, length_ns: 10, ..SeriesEntry::default() };
        let mut entries = [0, 10, 20, 30, 40].map(entry);
        set_queueing(&mut entries, Time(100), &delays);
        let found = entries.map(|entry| entry.forward_queue_ns.zip(entry.reverse_queue_ns));
        assert_eq!(found, [Some((1020, 102)), Some((1100, 110)), Some((1200, 120)), Some((1350, 135)), None]);
    }
}
