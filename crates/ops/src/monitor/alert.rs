//! Alarms with a stated rate of false ones.
//!
//! A rule names the state that matters, the normal state, and how often a false alarm is acceptable. The threshold follows from
//! exact run lengths ([`stats::ShareShift`](linkgauge_model::stats::ShareShift)), and so does the time until a real change is noticed.

use std::time::Duration;

use jiff::Timestamp;

use super::calendar::SLICE;
use super::condition::{Condition, ConditionDetails};
use linkgauge_model::sample::Window;
use linkgauge_model::stats::{Cusum, ShareShift};
use linkgauge_model::units::{UnitError, format_nanoseconds, parse_duration_with_unit, parse_share};

/// Replies from which the p99 of a link is known well enough: its 95 % interval is then that of the p98.6 to the p99.3.
pub(crate) const MIN_LEARNING_REPLIES: u64 = 3688;

/// An alarm ends only after this time without a bad probe, so that it does not flap.
const MIN_GOOD_TIME: Duration = Duration::from_secs(60);

/// Share of the changes that are noticed within the usual delay.
const USUAL_SHARE: f64 = 0.99;

const DAY: Duration = Duration::from_secs(86_400);

/// Periods of false alarms, by the word of a rule.
const PERIODS: [(&str, u32); 4] = [("day", 1), ("week", 7), ("month", 30), ("year", 365)];

/// The error in the text of a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "alert '{text}': {fault}. Write it like 'loss > 5 % (normal 0.5 %), at most one false alarm a month'"
)]
pub struct InvalidRule {
    text: String,
    fault: RuleFault,
}

/// Problem of a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum RuleFault {
    #[error("'{0}' is no limit of false alarms: one a day, week, month or year")]
    Limit(String),
    #[error("it has no '>' with a share")]
    NoShare,
    #[error("'{0}' is unknown: use loss, late 20ms or late p99")]
    Badness(String),
    #[error("a time of 0 is no limit: every reply takes longer")]
    NoTime,
    #[error("what stands in brackets is not like (normal 0.5 %)")]
    Normal,
    #[error("the share must be above the normal one, not too close to it, and below 95 %")]
    Shares,
    #[error(transparent)]
    Quantity(#[from] UnitError),
}

/// Property that makes a probe bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Badness {
    /// Probe without a reply in time.
    Lost,
    /// Probe without a reply within this time in ns.
    LaterThan(u64),
    /// Probe without a reply within the p99 that the link had at first.
    LaterThanLearntP99,
}

/// A rule, as written in a file: `loss > 5 % (normal 0.5 %), at most one false alarm a month`.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// Text of the rule, as written.
    pub text: String,
    /// Property that makes a probe bad.
    pub(crate) badness: Badness,
    change: ShareShift,
    between_false_alarms: Duration,
}

impl std::str::FromStr for Rule {
    type Err = InvalidRule;

    fn from_str(text: &str) -> Result<Rule, InvalidRule> {
        parse_rule(text).map_err(|fault| InvalidRule { text: text.to_owned(), fault })
    }
}

fn parse_rule(text: &str) -> Result<Rule, RuleFault> {
    let (condition, limit) = text.split_once(',').unwrap_or((text, "at most one false alarm a month"));
    let word = limit.trim().strip_prefix("at most one false alarm a ");
    let period = word.and_then(|word| PERIODS.iter().find(|(name, _)| *name == word.trim()));
    let (_, days) = period.ok_or_else(|| RuleFault::Limit(limit.trim().to_owned()))?;
    let (what, shares) = condition.split_once('>').ok_or(RuleFault::NoShare)?;
    let badness = parse_badness(what.trim())?;
    let (raised, normal) = parse_shares(shares, badness)?;
    let change = ShareShift::new(normal, raised).ok_or(RuleFault::Shares)?;
    Ok(Rule { text: text.to_owned(), badness, change, between_false_alarms: DAY * *days })
}

fn parse_badness(what: &str) -> Result<Badness, RuleFault> {
    match what.strip_prefix("late").map(str::trim) {
        None if what == "loss" => Ok(Badness::Lost),
        Some("p99") => Ok(Badness::LaterThanLearntP99),
        Some(time) => {
            let time = parse_duration_with_unit(time)?;
            if time.is_zero() {
                return Err(RuleFault::NoTime);
            }
            Ok(Badness::LaterThan(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
        }
        None => Err(RuleFault::Badness(what.to_owned())),
    }
}

/// The raised and the normal share of bad probes, from ` 5 % (normal 0.5 %)`.
fn parse_shares(text: &str, badness: Badness) -> Result<(f64, f64), RuleFault> {
    let (raised, normal) = match text.split_once('(') {
        None => (text, None),
        Some((raised, rest)) => {
            let normal = rest.trim().strip_suffix(')').and_then(|rest| rest.trim().strip_prefix("normal"));
            (raised, Some(normal.ok_or(RuleFault::Normal)?))
        }
    };
    let raised = parse_share(raised.trim())?;
    let normal = match (normal, badness) {
        (Some(normal), _) => parse_share(normal.trim())?,
        (None, Badness::LaterThanLearntP99) => 0.01,
        (None, _) => raised / 10.0,
    };
    Ok((raised, normal))
}

impl Rule {
    /// Expectation for this rule at this number of probes per second. `None` if no threshold suffices: then the change is too
    /// small, or false alarms are to be too rare.
    pub fn expectation(&self, probes_per_second: f64) -> Option<Expectation> {
        let probes = self.between_false_alarms.as_secs_f64() * probes_per_second;
        let threshold = self.change.threshold(probes)?;
        let mean = self.change.detection_delay(threshold) / probes_per_second;
        let usual = self.change.detection_delay_quantile(threshold, USUAL_SHARE);
        let usual = usual.and_then(|probes| {
            Duration::try_from_secs_f64(probes as f64 / probes_per_second).ok()?.checked_add(SLICE)
        });
        let delay = Duration::try_from_secs_f64(mean).ok()?.checked_add(SLICE / 2)?;
        Some(Expectation { threshold, delay, usual_delay: usual })
    }
}

/// Consequences of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expectation {
    /// Threshold of the cumulative sum.
    threshold: u32,
    /// Mean time until a change to the share of the rule is noticed, the wait for the end of a slice included.
    pub delay: Duration,
    /// Time within which it is noticed in 99 of 100 cases. `None` if that is too long to be computed.
    pub usual_delay: Option<Duration>,
}

/// A change of the state of an alert.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transition {
    /// The alarm begins.
    Raised,
    /// The alarm ends.
    Cleared,
}

/// A rule at work on one link.
#[derive(Debug, Clone)]
pub struct Alert {
    /// The rule.
    pub rule: Rule,
    /// Consequences of the rule.
    pub expectation: Expectation,
    /// Limit in ns of a good probe; `None` while it is being learnt.
    limit_ns: Option<u64>,
    sum: Cusum,
    is_raised: bool,
    /// State of the alarm, as the actions know it.
    pub(crate) condition: Condition,
    good_probes: u64,
    min_good_probes: u64,
}

impl Alert {
    /// A rule at this number of probes per second. `None` if no threshold suffices.
    pub fn new(rule: Rule, probes_per_second: f64) -> Option<Alert> {
        let expectation = rule.expectation(probes_per_second)?;
        let limit_ns = match rule.badness {
            Badness::Lost => Some(u64::MAX),
            Badness::LaterThan(limit) => Some(limit),
            Badness::LaterThanLearntP99 => None,
        };
        let sum = rule.change.start(expectation.threshold);
        let min_good_probes = (MIN_GOOD_TIME.as_secs_f64() * probes_per_second).ceil() as u64;
        let (is_raised, condition, good_probes) = Default::default();
        Some(Alert { rule, expectation, limit_ns, sum, is_raised, condition, good_probes, min_good_probes })
    }

    /// Takes the limit from what was measured at first, once that suffices; true if it did now.
    pub(crate) fn learn(&mut self, measured: &Window) -> bool {
        if self.limit_ns.is_some() || measured.replies() < MIN_LEARNING_REPLIES {
            return false;
        }
        self.limit_ns = measured.quantile_ns(0.99);
        true
    }

    /// Takes the limit that was learnt before, if the rule has a learnt one.
    pub fn set_learnt(&mut self, limit_ns: u64) {
        if self.rule.badness == Badness::LaterThanLearntP99 {
            self.limit_ns = Some(limit_ns);
        }
    }

    /// The limit in ns of a good probe; `None` while it is being learnt.
    pub fn limit_ns(&self) -> Option<u64> {
        self.limit_ns
    }

    /// Goes on with an alarm that was on before a restart, since this time: its end will be noticed.
    pub(crate) fn resume_raised(&mut self, since: Timestamp) {
        self.is_raised = true;
        let rule = Some(self.rule.text.clone());
        self.condition.resume(since, ConditionDetails { rule, ..ConditionDetails::default() });
    }

    /// Whether the alarm is on.
    pub(crate) fn is_raised(&self) -> bool {
        self.is_raised
    }

    /// Whether good probes change nothing.
    pub(super) fn is_at_rest(&self) -> bool {
        !self.is_raised && self.sum.is_clear()
    }

    /// Counts a probe: the time of its reply in ns, or `None` without one.
    pub fn record(&mut self, reply_ns: Option<u64>) -> Option<Transition> {
        let limit_ns = self.limit_ns?;
        let is_bad = reply_ns.is_none_or(|time| time > limit_ns);
        let is_over = self.sum.record(is_bad);
        self.good_probes = if is_bad { 0 } else { self.good_probes + 1 };
        if !self.is_raised && is_over {
            self.is_raised = true;
            return Some(Transition::Raised);
        }
        if self.is_raised && self.sum.is_clear() && self.good_probes >= self.min_good_probes {
            self.is_raised = false;
            return Some(Transition::Cleared);
        }
        None
    }

    /// Describes what the rule promises, for people.
    pub(crate) fn promise(&self) -> String {
        let time = |time: Duration| format_nanoseconds(time.as_nanos() as f64);
        let mean = time(self.expectation.delay);
        let usual = self.expectation.usual_delay.map(time);
        let usual = usual.map_or_else(String::new, |usual| format!(", in 99 of 100 cases within {usual}"));
        format!("alarm {}: such a change is noticed after {mean} on average{usual}", self.rule.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linkgauge_model::sample::WindowCounts;
    use linkgauge_model::stats::SplitMix64;

    fn rule(text: &str) -> Rule {
        text.parse().unwrap()
    }

    #[test]
    fn rules_are_read_as_written() {
        let full = rule("loss > 5 % (normal 0.5 %), at most one false alarm a week");
        assert_eq!(full.badness, Badness::Lost);
        assert_eq!(full.between_false_alarms, DAY * 7);
        assert_eq!(rule("loss > 5%").change, full.change, "a tenth is normal");
        assert_eq!(rule("late 20ms > 10 %").badness, Badness::LaterThan(20_000_000));
        let learnt = rule("late p99 > 10 %");
        assert_eq!((learnt.badness, learnt.change), (Badness::LaterThanLearntP99, rule("loss>10%").change));
    }

    #[test]
    fn wrong_rules_say_what_is_wrong() {
        for (text, why) in [
            ("loss 5 %", "it has no '>' with a share"),
            ("jitter > 5 %", "'jitter' is unknown"),
            ("late 20 > 5 %", "is not a duration with its unit"),
            ("loss > 5 % (usually 1 %)", "not like (normal 0.5 %)"),
            ("loss > 5 % (normal 6 %)", "must be above the normal one"),
            ("loss > 5 %, at most one false alarm an hour", "is no limit of false alarms"),
            ("loss > x", "'x' is not"),
        ] {
            let error = text.parse::<Rule>().unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn a_rule_promises_what_happens() {
        let alert = Alert::new(rule("loss > 5 % (normal 0.5 %)"), 1.0).unwrap();
        let promised = alert.expectation.delay.as_secs_f64();
        assert!((120.0..180.0).contains(&promised), "{promised}");
        let mut random = SplitMix64::new(3);
        let runs = 500;
        let mean = (0..runs)
            .map(|_| {
                let mut alert = alert.clone();
                let lost = |random: &mut SplitMix64| (random.uniform() >= 0.05).then_some(1_000);
                (1..).find(|_| alert.record(lost(&mut random)) == Some(Transition::Raised)).unwrap()
            })
            .sum::<u64>() as f64
            / f64::from(runs);
        assert!((mean / promised - 1.0).abs() < 0.2, "{mean} instead of {promised}");
    }

    #[test]
    fn false_alarms_are_as_rare_as_the_rule_says() {
        // A probe in ten seconds and a false alarm a day: the same run lengths as with more of both.
        let mut alert =
            Alert::new(rule("loss > 5 % (normal 0.5 %), at most one false alarm a day"), 0.1).unwrap();
        let (mut random, days) = (SplitMix64::new(5), 400);
        let mut alarms = 0;
        for _ in 0..days * 8640 {
            let reply = (random.uniform() >= 0.005).then_some(1);
            alarms += u32::from(alert.record(reply) == Some(Transition::Raised));
        }
        // 400 at most, with a standard deviation of 20.
        assert!((280..440).contains(&alarms), "{alarms} in {days} days");
    }

    #[test]
    fn an_alarm_ends_after_a_minute_of_good_probes() {
        let mut alert = Alert::new(rule("loss > 5 %"), 10.0).unwrap();
        let raised = (1..).find(|_| alert.record(None).is_some()).unwrap();
        assert!(raised < 10 && alert.is_raised());
        let cleared = (1u64..).find(|_| alert.record(Some(1)) == Some(Transition::Cleared)).unwrap();
        assert!(cleared >= 600, "{cleared}");
        assert!(!alert.is_raised());
    }

    #[test]
    fn a_learnt_limit_is_the_p99_of_enough_replies() {
        let mut alert = Alert::new(rule("late p99 > 10 %"), 1.0).unwrap();
        assert_eq!(alert.record(None), None, "nothing is known yet");
        let mut window = Window::new(WindowCounts::default());
        for n in 1..MIN_LEARNING_REPLIES {
            window.record(1_000_000 + n * 1000);
        }
        assert!(!alert.learn(&window));
        window.record(9_000_000);
        assert!(alert.learn(&window) && !alert.learn(&window));
        let limit = alert.limit_ns().unwrap();
        assert!((4_600_000..4_700_000).contains(&limit), "{limit}");
    }
}
