//! The default repetitions of a measurement: its time and messages are split among them.
//!
//! A single repetition shows nothing of what the next run would be like: connections, processes and the CPUs they run on
//! change each time. A schedule (`--rate`) and a given time are not split: what happens while a link is opened again would be
//! in no figure. Links with one user at a time stay open between repetitions (`link/kept.rs`), because opening a
//! port again can reset a device.

use std::time::Duration;

use serde_json::json;

use super::check::{CheckedCase, CheckedPlan};
use crate::link::LinkRate;
use crate::protocol::ReadyCase;
use crate::workload::Load;
use linkgauge_model::plan::StopCondition;
use linkgauge_model::run::{ONE_REPETITION_FACT, SPLIT_FACT, UNTIL_FACT};
use linkgauge_model::stats::MIN_INTERVAL_REPETITIONS;

/// Number of repetitions that is enough for an interval, and for groups to show.
const DEFAULT_REPETITIONS: u32 = 10;

/// Minimum time of a repetition: a shorter one measures the start of a connection.
const MIN_REPETITION_TIME: Duration = Duration::from_millis(50);

/// Minimum time between reports of progress: people read no faster.
const MIN_PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// A default measurement takes at least this time, because the level of a host changes within seconds. In 60 runs over
/// loopback on a quiet host, two CPUs pinned, the interval of p50 held the median of all runs in 46 after 0.5 s and in 58
/// after 2 s.
const MIN_DEFAULT_TIME: Duration = Duration::from_secs(2);

/// Minimum number of messages of a repetition: fewer say little about it.
const MIN_REPETITION_MESSAGES: u64 = 10;

impl CheckedPlan {
    /// Splits each measurement into repetitions on fresh connections: together they take the time and the messages of
    /// one. A plan that cannot be split stays as it is, and its cases hold the reason.
    pub fn split_into_repetitions(mut self) -> CheckedPlan {
        let parts: Result<Vec<u32>, &'static str> = self.cases.iter().map(repetitions).collect();
        let set = |case: &mut CheckedCase, fact: &str, value| {
            case.requested.insert(fact.to_owned(), value);
        };
        match parts.map(|parts| parts.into_iter().min().unwrap_or(1)) {
            Ok(parts) => {
                (self.repeat, self.is_split) = (parts, true);
                for case in &mut self.cases {
                    let stop = stop_of_whole(&case.ready);
                    set(case, SPLIT_FACT, json!(parts));
                    set(case, "stop", json!(stop));
                }
            }
            Err(reason) => {
                self.cases.iter_mut().for_each(|case| set(case, ONE_REPETITION_FACT, json!(reason)))
            }
        }
        self
    }
}

/// The number of repetitions of a case, or why there is one only.
fn repetitions(checked: &CheckedCase) -> Result<u32, &'static str> {
    let case = &checked.ready;
    if !case.workload.has_repetitions || case.protocol.is_measured_whole {
        return Err("workload and protocol are measured as a whole");
    }
    if case.caps.iter().any(|caps| !caps.open_timeout.is_zero()) {
        return Err("opening the link again takes long");
    }
    if case.load.is_one_of_many() {
        return Err("opening many connections again takes long");
    }
    let Load { stop, pacing, message_bytes, .. } = case.load;
    if pacing.per_second().is_some() {
        return Err("a schedule without a gap shows every stall");
    }
    let is_given = stop.time_ns.is_some() && stop != case.workload.default_stop;
    if is_given && !checked.requested.contains_key(UNTIL_FACT) {
        return Err("the time was given, and connecting again would leave gaps in it");
    }
    let line = case.caps.iter().filter_map(|caps| caps.link_rate).reduce(slower);
    let messages = |count: u64| count / MIN_REPETITION_MESSAGES;
    let times = stop.time_ns.map(|time| {
        let time = Duration::from_nanos(time);
        let on_line = line.map(|line| messages(line.bytes_in(time) / u64::from(message_bytes.max(1))));
        let of_time = (time.as_nanos() / MIN_REPETITION_TIME.as_nanos()) as u64;
        on_line.map_or(of_time, |sent| sent.min(of_time))
    });
    let volumes = stop.volume_bytes.map(|bytes| {
        let time = line.map(|line| line.transmission_time(bytes).as_nanos() / MIN_REPETITION_TIME.as_nanos());
        messages(bytes / u64::from(message_bytes.max(1))).min(time.map_or(u64::MAX, |time| time as u64))
    });
    let limits = [times, stop.count.map(messages), volumes];
    let parts = limits.into_iter().flatten().min().unwrap_or(1).min(DEFAULT_REPETITIONS.into()) as u32;
    if parts < MIN_INTERVAL_REPETITIONS as u32 {
        return Err("it is too short to be split into 6");
    }
    Ok(parts)
}

/// The share of a measurement that setting up its connections may take.
const MAX_SET_UP_SHARE: f64 = 0.05;

/// Shortest time of setting up connections that counts: shorter ones do not lengthen a measurement noticeably.
const MIN_SET_UP: Duration = Duration::from_millis(100);

/// Round trips of setting up a session: connection, greeting, plan, attachment.
const SET_UP_ROUND_TRIPS: u32 = 4;

/// Reason why a case is not split, if one connection took `set_up` to be ready: on a slow link most of the time would pass
/// between the repetitions.
pub(super) fn reason_against_parts(case: &ReadyCase, set_up: Duration, parts: u32) -> Option<&'static str> {
    let StopCondition { count, time_ns, min_time_ns, .. } = stop_of_whole(case);
    let per_message = (set_up / SET_UP_ROUND_TRIPS).as_secs_f64();
    let seconds = |ns: Option<u64>| ns.map(|ns| ns as f64 * 1e-9);
    let of_count = count.map(|count| (count as f64 * per_message).max(seconds(min_time_ns).unwrap_or(0.0)));
    let planned = of_count.into_iter().chain(seconds(time_ns)).reduce(f64::min)?;
    let set_ups = set_up * parts;
    let is_long = set_ups >= MIN_SET_UP && set_ups.as_secs_f64() > MAX_SET_UP_SHARE * planned;
    is_long.then_some("opening a connection takes long on this link")
}

fn slower(a: LinkRate, b: LinkRate) -> LinkRate {
    if b.bits_per_second < a.bits_per_second { b } else { a }
}

/// The stop condition of a case that is split. A default count does not end it before it has seen enough of the host.
fn stop_of_whole(case: &ReadyCase) -> StopCondition {
    let stop = case.load.stop;
    let is_default = stop == case.workload.default_stop && stop.count.is_some();
    let min_time_ns = is_default.then_some(MIN_DEFAULT_TIME.as_nanos() as u64);
    StopCondition { min_time_ns: min_time_ns.min(stop.time_ns.or(min_time_ns)), ..stop }
}

/// The load of one repetition of `parts`.
pub(super) fn load_of_repetition(case: &ReadyCase, index: u32, parts: u32) -> Load {
    load_of_part(Load { stop: stop_of_whole(case), ..case.load }, index, parts)
}

/// Time between reports of progress: short enough that each repetition has one.
pub(super) fn progress_interval(case: &ReadyCase) -> Duration {
    let StopCondition { time_ns, min_time_ns, .. } = case.load.stop;
    let shortest = time_ns.into_iter().chain(min_time_ns).min().map(Duration::from_nanos);
    let of_repetition = shortest.map_or(case.progress_interval, |time| time / 2);
    case.progress_interval.min(of_repetition.max(MIN_PROGRESS_INTERVAL))
}

/// The load of a part. All parts together have the messages, bytes and time of the whole.
fn load_of_part(load: Load, index: u32, parts: u32) -> Load {
    let (index, parts) = (u128::from(index), u128::from(parts));
    let part = |whole: u64| {
        let before = |index: u128| (u128::from(whole) * index / parts) as u64;
        before(index + 1) - before(index)
    };
    let of = |stop: StopCondition| StopCondition {
        count: stop.count.map(part),
        time_ns: stop.time_ns.map(part),
        volume_bytes: stop.volume_bytes.map(part),
        min_time_ns: stop.min_time_ns.map(part),
    };
    Load { stop: of(load.stop), warm_up: of(load.warm_up), ..load }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Registry;
    use crate::schedule::check;
    use linkgauge_model::plan::Plan;

    fn split(case: &str) -> (u32, Option<String>) {
        let plan = Plan::from_toml(&format!("[[case]]\n{case}")).unwrap();
        let plan = check(plan, Registry::standard()).unwrap().split_into_repetitions();
        let reason = plan.cases[0].requested.get(ONE_REPETITION_FACT);
        (plan.repeat, reason.and_then(|reason| Some(reason.as_str()?.to_owned())))
    }

    #[test]
    fn a_measurement_is_split_where_its_link_may_be_opened_again() {
        let latency =
            |more: &str| split(&format!("url = \"tcp://192.0.2.7\"\nworkload = \"latency\"\n{more}"));
        assert_eq!(latency(""), (10, None));
        assert_eq!(latency("count = 70"), (7, None));
        let (parts, reason) = latency("count = 5");
        assert!(parts == 1 && reason.unwrap().contains("short"));
        for (whole, why) in [("time = \"2s\"", "gap"), ("rate = \"100/s\"", "schedule without a gap")] {
            let (parts, reason) = latency(whole);
            assert!(parts == 1 && reason.unwrap().contains(why), "{whole}");
        }
        let (parts, reason) = split("url = \"tcp://192.0.2.7\"\nworkload = \"throughput\"");
        assert!(parts == 1 && reason.unwrap().contains("as a whole"));
        let serial = |more: &str| split(&format!("url = \"serial:///dev/ttyS0?baud=9600\"\n{more}"));
        assert_eq!(serial("workload = \"latency\""), (10, None));
        assert_eq!(serial("workload = \"latency\"\nsize = 1000").0, 1);
    }

    #[test]
    fn a_default_count_takes_a_minimum_of_time() {
        let plan = |more: &str| {
            let text = format!("[[case]]\nurl = \"tcp://192.0.2.7\"\nworkload = \"latency\"\n{more}");
            check(Plan::from_toml(&text).unwrap(), Registry::standard()).unwrap().split_into_repetitions()
        };
        let of_part = |plan: &CheckedPlan| load_of_repetition(&plan.cases[0].ready, 3, 10).stop;
        let usual = plan("");
        assert_eq!(of_part(&usual).min_time_ns, Some(200_000_000));
        assert_eq!(usual.cases[0].requested["stop"]["min_time_ns"], json!(2_000_000_000_u64));
        let stop = of_part(&usual);
        let ends = |count, milliseconds| stop.is_reached(count, Duration::from_millis(milliseconds), 0);
        assert!(!ends(1000, 199) && ends(1000, 200) && !ends(999, 200) && ends(1, 1000));
        let mut ready = plan("").cases[0].ready.clone();
        ready.load = load_of_repetition(&ready, 3, 10);
        assert_eq!(progress_interval(&ready), Duration::from_millis(100));
        for given in ["count = 20_000", "time = \"5s\""] {
            assert_eq!(of_part(&plan(given)).min_time_ns, None, "{given}");
        }
    }

    #[test]
    fn a_link_with_long_round_trips_is_measured_as_a_whole() {
        let reason = |more: &str, round_trip_ms: u64| {
            let text = format!("[[case]]\nurl = \"tcp://192.0.2.7\"\nworkload = \"latency\"\n{more}");
            let plan = check(Plan::from_toml(&text).unwrap(), Registry::standard())
                .unwrap()
                .split_into_repetitions();
            reason_against_parts(&plan.cases[0].ready, Duration::from_millis(4 * round_trip_ms), plan.repeat)
        };
        for (more, longest) in [("", 12), ("count = 3000", 200)] {
            assert_eq!(reason(more, longest), None, "{more}");
        }
        for (more, shortest) in [("", 13), ("count = 700", 5)] {
            assert!(reason(more, shortest).is_some(), "{more}");
        }
    }

    #[test]
    fn parts_are_the_whole() {
        let stop = StopCondition {
            count: Some(1003),
            time_ns: Some(u64::MAX),
            volume_bytes: Some(7),
            min_time_ns: None,
        };
        let load = Load { stop, warm_up: StopCondition::after_count(100), ..Load::endless(1) };
        let parts: Vec<Load> = (0..10).map(|index| load_of_part(load, index, 10)).collect();
        assert_eq!(parts.iter().filter_map(|part| part.stop.count).sum::<u64>(), 1003);
        assert_eq!(parts.iter().filter_map(|part| part.stop.time_ns).sum::<u64>(), u64::MAX);
        assert_eq!(parts.iter().filter_map(|part| part.stop.volume_bytes).sum::<u64>(), 7);
        assert!(parts.iter().all(|part| part.warm_up == StopCondition::after_count(10)));
    }
}
