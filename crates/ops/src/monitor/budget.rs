//! The bytes that the tests of a link may move in a day, and what the store knows of earlier tests.

use jiff::Timestamp;

use super::config::Watch;
use super::ledger::tag;
use linkgauge_engine::workload::throughput;
use linkgauge_model::plan::{Case, Direction, StopCondition};
use linkgauge_model::run::{CaseResult, Run};
use linkgauge_store::{Filter, Store};

const DAY_S: i64 = 86_400;

/// The earlier tests of a link, so that its schedule and its budget survive a restart.
#[derive(Debug, Clone, Default)]
pub(super) struct EarlierTests {
    /// Begin of the last one.
    pub(crate) last: Option<Timestamp>,
    /// Runs of this day (UTC), if there is a budget.
    pub(crate) today: Vec<Run>,
}

impl EarlierTests {
    /// Reads them. What cannot be read does not count.
    pub(crate) fn read(watch: &Watch, store: &Store, now: Timestamp) -> EarlierTests {
        let filter = Filter { tag: Some(tag(&watch.name)), limit: Some(1), ..Filter::default() };
        let last = store.runs(&filter).ok().and_then(|runs| runs.entries.first().map(|run| run.started));
        let midnight = Timestamp::from_second(now.as_second() - now.as_second().rem_euclid(DAY_S)).ok();
        let filter = Filter { since: midnight, limit: None, ..filter };
        let today = watch.bytes_per_day.and_then(|_| store.runs(&filter).ok()).unwrap_or_default();
        let today = today.entries.iter().filter_map(|run| store.load(&run.id).ok()).collect();
        EarlierTests { last, today }
    }
}

/// The bytes that tests may move in a day (UTC).
#[derive(Debug)]
pub(super) struct DayBudget {
    limit: Option<u64>,
    day: i64,
    spent: u64,
    /// Bytes of the last test: the next one takes as much.
    per_test: u64,
}

impl DayBudget {
    /// Budget that is left after the earlier tests of this day.
    pub fn new(limit: Option<u64>, second: i64, today: &[Run]) -> DayBudget {
        let mut budget = DayBudget { limit, day: second.div_euclid(DAY_S), spent: 0, per_test: 0 };
        today.iter().for_each(|run| budget.spend(second, run));
        budget
    }

    /// Whether another test fits into the day of this second.
    pub(crate) fn allows(&mut self, second: i64) -> bool {
        let day = second.div_euclid(DAY_S);
        if self.day != day {
            (self.day, self.spent) = (day, 0);
        }
        self.limit.is_none_or(|limit| self.spent + self.per_test <= limit)
    }

    /// Bytes that are left of the day of the last question.
    pub(crate) fn left(&self) -> Option<u64> {
        self.limit.map(|limit| limit.saturating_sub(self.spent))
    }

    /// Counts a test of the day of this second.
    pub(crate) fn spend(&mut self, second: i64, run: &Run) {
        self.per_test = run.cases.iter().map(moved_bytes).sum();
        if self.day == second.div_euclid(DAY_S) {
            self.spent += self.per_test;
        }
    }
}

/// The case of a transfer, which ends when it has moved this number of bytes: its rate may be any. Other tests keep their plan.
pub(super) fn within(case: &Case, bytes: u64) -> Case {
    if case.workload != throughput::WORKLOAD.name {
        return case.clone();
    }
    let directions = if case.direction == Some(Direction::Both) { 2 } else { 1 };
    let volume = (bytes / (directions * u64::from(case.parallel.max(1)))).max(1);
    let volume = case.stop.volume_bytes.map_or(volume, |own| own.min(volume));
    Case { stop: StopCondition { volume_bytes: Some(volume), ..case.stop }, ..case.clone() }
}

fn moved_bytes(case: &CaseResult) -> u64 {
    let (delivery, counts) = (&case.figures.delivery, &case.figures.counts);
    let delivered = delivery.delivered_bytes.unwrap_or(0) + delivery.delivered_reverse_bytes.unwrap_or(0);
    let echoed = u64::from(case.message_bytes) * (counts.sent + counts.received);
    if delivered > 0 { delivered } else { echoed }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitor::Config;
    use linkgauge_model::run::Figures;

    /// A test of a day that moved this many bytes.
    fn test_run(id: &str, started: Timestamp, bytes: u64) -> Run {
        let document = include_str!("../../../../tests/data/run-v1-throughput.json");
        let mut run = Run::from_json(document).unwrap();
        run.id = id.to_owned();
        run.started = started;
        run.cases.truncate(1);
        run.cases[0].figures = Figures::default();
        run.cases[0].figures.delivery.delivered_bytes = Some(bytes);
        run
    }

    #[test]
    fn a_budget_survives_a_restart() {
        let place = tempfile::tempdir().unwrap();
        let mut store = Store::open(&place.path().join("runs.sqlite")).unwrap();
        let text = "[[watch]]\nname = \"up link\"\nurl = \"tcp://192.0.2.1\"\nworkload = \"throughput\"\nbytes-per-day = \"1000\"";
        let watch = Config::from_toml(text).unwrap().watches.remove(0);
        let noon = Timestamp::from_second(100 * DAY_S + DAY_S / 2).unwrap();
        let yesterday = Timestamp::from_second(100 * DAY_S - 60).unwrap();
        for (id, started, bytes) in
            [("20260101T000000Z-000001", yesterday, 900), ("20260102T000000Z-000002", noon, 400)]
        {
            let run = test_run(id, started, bytes);
            store.save(&run).unwrap();
            store.tag(&run.id, &[tag(&watch.name)]).unwrap();
        }
        let earlier = EarlierTests::read(&watch, &store, noon);
        assert_eq!((earlier.last, earlier.today.len()), (Some(noon), 1));
        let second = noon.as_second();
        let mut budget = DayBudget::new(watch.bytes_per_day, second, &earlier.today);
        assert!(budget.allows(second), "400 of 1000, and a test takes 400");
        budget.spend(second, &earlier.today[0]);
        assert!(!budget.allows(second));
        assert!(budget.allows(second + DAY_S), "a new day");
        assert!(DayBudget::new(None, second, &earlier.today).allows(second));
        // A transfer of a fast link ends when it has moved what is left.
        let volume = |bytes| within(&watch.case, bytes).stop.volume_bytes;
        assert_eq!((budget.left(), volume(600)), (Some(1000), Some(600)));
        let both = Case { direction: Some(Direction::Both), ..watch.case.clone() };
        assert_eq!(within(&both, 600).stop.volume_bytes, Some(300));
    }
}
