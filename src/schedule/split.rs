//! The default repetitions of a measurement: its time and messages are split among them.
//!
//! A single repetition shows nothing of what the next run would be like: connections, processes and the CPUs they run on
//! change each time.

use std::time::Duration;

use serde_json::json;

use super::check::{CheckedCase, CheckedPlan};
use crate::link::Caps;
use crate::plan::{Pacing, StopCondition};
use crate::protocol::ReadyCase;
use crate::run::{ONE_REPETITION_FACT, SPLIT_FACT};
use crate::stats::MIN_INTERVAL_REPETITIONS;
use crate::workload::Load;

/// Enough for an interval, and for groups to show.
const DEFAULT_REPETITIONS: u32 = 10;

/// A shorter repetition measures the start of a connection.
const MIN_REPETITION_TIME: Duration = Duration::from_millis(50);

/// Fewer messages say little about a repetition.
const MIN_REPETITION_MESSAGES: u64 = 10;

impl CheckedPlan {
    /// Splits each measurement into repetitions on fresh connections: together they take the time and the messages of
    /// one. A plan that cannot be split stays as it is, and its cases hold the reason.
    pub fn split_into_repetitions(mut self) -> CheckedPlan {
        let parts: Result<Vec<u32>, &'static str> = self.cases().map(repetitions).collect();
        let set = |case: &mut CheckedCase, fact: &str, value| {
            case.requested.insert(fact.to_owned(), value);
        };
        match parts.map(|parts| parts.into_iter().min().unwrap_or(1)) {
            Ok(parts) => {
                (self.repeat, self.is_split) = (parts, true);
                self.cases.iter_mut().for_each(|case| set(case, SPLIT_FACT, json!(parts)));
            }
            Err(reason) => {
                self.cases.iter_mut().for_each(|case| set(case, ONE_REPETITION_FACT, json!(reason)))
            }
        }
        self
    }
}

/// The number of repetitions of a case, or why there is one only.
fn repetitions(case: &ReadyCase) -> Result<u32, &'static str> {
    if !case.workload.has_repetitions || case.protocol.is_measured_whole {
        return Err("workload and protocol are measured as a whole");
    }
    let may_disturb = |caps: &Caps| caps.is_serial_device() || caps.link_rate.is_some();
    if case.caps.iter().any(may_disturb) {
        return Err("opening the port again can reset the device");
    }
    if case.caps.iter().any(|caps| !caps.can_open_parallel || !caps.open_timeout.is_zero()) {
        return Err("opening the link again takes long");
    }
    let Load { stop, pacing, message_bytes, .. } = case.load;
    let messages = |count: u64| count / MIN_REPETITION_MESSAGES;
    let times = stop.time_ns.map(|time| {
        let time = Duration::from_nanos(time);
        let of_time = (time.as_nanos() / MIN_REPETITION_TIME.as_nanos()) as u64;
        match pacing {
            Pacing::Closed | Pacing::ThinkTime { .. } => of_time,
            Pacing::Fixed { per_second } | Pacing::Poisson { per_second, .. } => {
                of_time.min(messages((time.as_secs_f64() * per_second) as u64))
            }
        }
    });
    let volumes = stop.volume_bytes.map(|bytes| messages(bytes / u64::from(message_bytes.max(1))));
    let limits = [times, stop.count.map(messages), volumes];
    let parts = limits.into_iter().flatten().min().unwrap_or(1).min(DEFAULT_REPETITIONS.into()) as u32;
    if parts < MIN_INTERVAL_REPETITIONS as u32 {
        return Err("it is too short to be split into 6");
    }
    Ok(parts)
}

/// The load of repetition `index` of `parts`. Together they have the messages, bytes and time of the whole.
pub(super) fn load_of_part(load: Load, index: u32, parts: u32) -> Load {
    let (index, parts) = (u128::from(index), u128::from(parts));
    let part = |whole: u64| {
        let before = |index: u128| (u128::from(whole) * index / parts) as u64;
        before(index + 1) - before(index)
    };
    let of = |stop: StopCondition| StopCondition {
        count: stop.count.map(part),
        time_ns: stop.time_ns.map(part),
        volume_bytes: stop.volume_bytes.map(part),
    };
    Load { stop: of(load.stop), warm_up: of(load.warm_up), ..load }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;
    use crate::schedule::check;

    fn split(case: &str) -> (u32, Option<String>) {
        let plan = Plan::from_toml(&format!("[[case]]\n{case}")).unwrap();
        let plan = check(plan).unwrap().split_into_repetitions();
        let reason = plan.cases[0].requested.get(ONE_REPETITION_FACT);
        (plan.repeat, reason.and_then(|reason| Some(reason.as_str()?.to_owned())))
    }

    #[test]
    fn a_measurement_is_split_where_its_link_may_be_opened_again() {
        let latency =
            |more: &str| split(&format!("url = \"tcp://192.0.2.7\"\nworkload = \"latency\"\n{more}"));
        assert_eq!(latency(""), (10, None));
        assert_eq!(latency("time = \"2s\""), (10, None));
        assert_eq!(latency("time = \"400ms\""), (8, None));
        assert_eq!(latency("count = 70"), (7, None));
        assert_eq!(latency("rate = \"10/s\"\ntime = \"9s\""), (9, None));
        for short in ["count = 5", "time = \"100ms\"", "rate = \"1/s\"\ntime = \"10s\""] {
            let (parts, reason) = latency(short);
            assert!(parts == 1 && reason.unwrap().contains("short"), "{short}");
        }
        let throughput = split("url = \"tcp://192.0.2.7\"\nworkload = \"throughput\"");
        assert_eq!(throughput, (10, None));
        let serial = split("url = \"serial:///dev/ttyS0?baud=9600\"\nworkload = \"latency\"");
        assert!(serial.0 == 1 && serial.1.unwrap().contains("reset"));
    }

    #[test]
    fn parts_are_the_whole() {
        let stop = StopCondition { count: Some(1003), time_ns: Some(u64::MAX), volume_bytes: Some(7) };
        let load = Load { stop, warm_up: StopCondition::after_count(100), ..Load::endless(1) };
        let parts: Vec<Load> = (0..10).map(|index| load_of_part(load, index, 10)).collect();
        assert_eq!(parts.iter().filter_map(|part| part.stop.count).sum::<u64>(), 1003);
        assert_eq!(parts.iter().filter_map(|part| part.stop.time_ns).sum::<u64>(), u64::MAX);
        assert_eq!(parts.iter().filter_map(|part| part.stop.volume_bytes).sum::<u64>(), 7);
        assert!(parts.iter().all(|part| part.warm_up == StopCondition::after_count(10)));
    }
}
