//! Configuration of a monitor: what to watch, from a file in TOML or from URLs.

mod actions;
mod difference;
mod discovery;
mod error;
mod file;
mod probe;

use std::collections::BTreeSet;
use std::time::Duration;

use serde::Deserialize;

use super::action::Action;
use super::alert::{Alert, Rule};
use super::calendar::{QuietHours, cover_whole_day};
use super::level::USUAL_SHIFT_DELAY;
use super::probe::ProbeSettings;
use super::push::Push;
use super::silence::Silence;
use linkgauge_engine::Registry;
use linkgauge_engine::schedule;
use linkgauge_engine::workload::latency;
use linkgauge_model::endpoint::Endpoint;
use linkgauge_model::plan::{Case, CaseSpec, CaseSpecError, OneOrMany, Plan, RequestedRate};
use linkgauge_model::units::{
    Bytes, Count, MessageRate, RateTarget, Span, format_bit_rate, format_number, format_period,
};

pub use discovery::{FileError, TargetFiles};
pub use error::ConfigError;

/// Probes per second, unless the case has a rate.
const DEFAULT_RATE: f64 = 10.0;

/// Probes per second that a link can be watched with.
const WATCH_RATES: std::ops::RangeInclusive<f64> = 1.0 / 3600.0..=10_000.0;

/// Time from one test to the next, unless given.
const DEFAULT_EVERY: Duration = Duration::from_secs(3600);

/// Time for which a lost probe is waited for, unless given.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1);

/// A test cannot be repeated faster, and one a year watches nothing.
const EVERY: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(366 * 86_400);

/// Times for an explanation.
const EXPLAIN_TIMES: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3600);

/// A name is part of each line of the log, of pages and of tags.
const MAX_NAME_CHARS: usize = 200;

/// Maximum number of links. More need several monitors.
const MAX_WATCHES: usize = 2000;

/// A smaller store holds not even the windows of a day.
const MIN_STORE_BYTES: u64 = 1_000_000;

/// A shorter timeout makes a loss of every probe.
const MIN_TIMEOUT: Duration = Duration::from_millis(1);

/// Probes in the time until a level shift is noticed, without which there is no median: ten for each of six windows.
const MIN_SHIFT_PROBES: f64 = 60.0;

/// Alerts of a link, and its quiet hours.
const MAX_RULES: usize = 100;

/// Configuration of a monitor.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// The links; empty only if there are probes on request, or files of targets.
    pub watches: Vec<Watch>,
    /// Actions at an alarm, besides a line in the log.
    pub actions: Vec<Action>,
    /// Maximum size of the store in bytes: windows are removed so that it is not exceeded.
    pub(crate) max_store_bytes: Option<u64>,
    /// The receiver of the metrics, beside those that ask for them.
    pub push: Option<Push>,
    /// The files of targets that it depends on.
    pub targets: TargetFiles,
    /// Settings of probes on request.
    pub probe: Option<ProbeSettings>,
    /// Times at which the actions receive nothing.
    pub silences: Vec<Silence>,
    /// Time after which an ongoing outage or alarm is sent to the actions again.
    pub repeat: Option<Duration>,
}

/// A link, and how it is watched.
#[derive(Debug, Clone, PartialEq)]
pub struct Watch {
    /// Name of the watch, unique in a monitor.
    pub name: String,
    /// Case that is measured.
    pub case: Case,
    /// Schedule of the measurements.
    pub schedule: WatchSchedule,
    /// The alarms.
    pub rules: Vec<Rule>,
    /// Hours without measurements.
    pub quiet: Vec<QuietHours>,
    /// Bytes that its tests may move in a day.
    pub(crate) bytes_per_day: Option<u64>,
    /// Time for an explanation of the link when an alarm begins; `None`: it is not explained.
    pub explain: Option<Duration>,
    /// Name of the watch of a gateway: while that is down, the actions learn nothing about this link.
    pub(crate) behind: Option<String>,
}

/// Schedule of the measurements of a link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum WatchSchedule {
    /// Probes all the time, at this mean rate with exponential gaps.
    Continuous {
        /// Probes per second.
        per_second: f64,
    },
    /// A test now and then, and never two tests at once. Each begins up to a tenth of the period early or late.
    Every(Duration),
}

impl Watch {
    /// The endpoint, as typed.
    pub fn endpoint(&self) -> &Endpoint {
        &self.case.endpoints[0]
    }
}

impl Watch {
    /// Describes what is measured and how often, for people.
    pub fn describe(&self) -> String {
        match self.schedule {
            WatchSchedule::Continuous { per_second } => {
                format!("{} probes per second", format_number(per_second))
            }
            WatchSchedule::Every(period) => {
                let limit = match self.case.rate {
                    RequestedRate::Messages { per_second } => {
                        format!(", limited to {} messages per second", format_number(per_second))
                    }
                    RequestedRate::Bits { per_second } => {
                        format!(", limited to {}", format_bit_rate(per_second))
                    }
                    RequestedRate::Default | RequestedRate::Max => String::new(),
                };
                format!("{} every {}{limit}", self.case.workload, format_period(period))
            }
        }
    }

    /// Describes what its alarms promise, for people.
    pub fn promises(&self) -> Vec<String> {
        let WatchSchedule::Continuous { per_second } = self.schedule else { return Vec::new() };
        let alerts = self.rules.iter().filter_map(|rule| Alert::new(rule.clone(), per_second));
        let shifts = match per_second * USUAL_SHIFT_DELAY.as_secs_f64() >= MIN_SHIFT_PROBES {
            true => format!("noticed after about {}", format_period(USUAL_SHIFT_DELAY)),
            false => "not noticed: it needs a probe a minute or more".to_owned(),
        };
        let shifts = format!("level shift of the median: {shifts}");
        alerts.map(|alert| alert.promise()).chain([shifts]).collect()
    }
}

/// An entry of a file. The other keys are those of a case.
#[derive(Debug, Clone, Deserialize, Default)]
#[serde(default)]
struct WatchEntry {
    name: Option<String>,
    every: Option<Span>,
    alert: Option<OneOrMany<String>>,
    quiet: Option<OneOrMany<String>>,
    /// The watch of a gateway.
    behind: Option<String>,
    #[serde(rename = "bytes-per-day", alias = "bytes_per_day")]
    bytes_per_day: Option<Bytes>,
    explain: Option<Span>,
    /// Files of targets, in the place of URLs.
    file_sd: Option<OneOrMany<String>>,
    /// The scheme of targets without one.
    scheme: Option<String>,
}

impl WatchEntry {
    fn check(&self) -> Result<(), CaseSpecError> {
        for (key, time, range) in [("every", self.every, EVERY), ("explain", self.explain, EXPLAIN_TIMES)] {
            if let Some(Span(time)) = time.filter(|time| !range.contains(&time.0)) {
                let [time, least, most] = [time, *range.start(), *range.end()].map(format_period);
                return Err(CaseSpecError::new(key, format!("{key} is {time}: use {least} to {most}")));
            }
        }
        if self.name.as_deref().is_none_or(is_valid_name) {
            return Ok(());
        }
        let what = format!("a name has 1 to {MAX_NAME_CHARS} characters, and no control characters");
        Err(CaseSpecError::new("name", what))
    }
}

fn is_valid_name(name: &str) -> bool {
    !name.trim().is_empty()
        && name.chars().take(MAX_NAME_CHARS + 1).count() <= MAX_NAME_CHARS
        && !name.chars().any(char::is_control)
}

impl Config {
    /// Watches URLs with the settings of one case, and the same alarms for each.
    ///
    /// # Errors
    ///
    /// Same errors as [`Config::from_toml`].
    pub fn from_case(
        spec: CaseSpec,
        every: Option<Duration>,
        rules: Vec<Rule>,
    ) -> Result<Config, ConfigError> {
        let entry = WatchEntry { every: every.map(Span), ..WatchEntry::default() };
        let mut watches = watches_of(spec, &entry, 1)?;
        watches.iter_mut().for_each(|watch| watch.rules = rules.clone());
        Config::new(watches, Vec::new())
    }

    pub(crate) fn new(watches: Vec<Watch>, actions: Vec<Action>) -> Result<Config, ConfigError> {
        if watches.is_empty() || watches.len() > MAX_WATCHES {
            return Err(ConfigError::Count(watches.len()));
        }
        let mut names = BTreeSet::new();
        for watch in &watches {
            if !names.insert(&watch.name) {
                return Err(ConfigError::SameName(watch.name.clone()));
            }
            check(watch)?;
        }
        Ok(Config { watches, actions, ..Config::default() })
    }
}

/// An entry in messages: its name, or else its number.
fn label(name: Option<&str>, number: usize) -> String {
    let name = name.filter(|name| is_valid_name(name));
    name.map_or_else(|| number.to_string(), |name| format!("'{name}'"))
}

/// The alarms of an entry, and its quiet hours.
fn rules_of(entry: &WatchEntry, watch: &str) -> Result<(Vec<Rule>, Vec<QuietHours>), ConfigError> {
    let [alerts, quiet] =
        [&entry.alert, &entry.quiet].map(|list| list.as_ref().map_or(&[][..], OneOrMany::as_slice));
    let watch = watch.to_owned();
    if alerts.len() > MAX_RULES || quiet.len() > MAX_RULES {
        let error = CaseSpecError::new(
            "alert",
            format!("use at most {MAX_RULES} alerts and {MAX_RULES} quiet hours"),
        );
        return Err(ConfigError::Case { watch: watch.clone(), error });
    }
    let rules = alerts.iter().map(|text| text.parse()).collect::<Result<Vec<Rule>, _>>();
    let rules = rules.map_err(|error| ConfigError::Rule { watch: watch.clone(), error })?;
    let quiet = quiet.iter().map(|text| text.parse()).collect::<Result<Vec<QuietHours>, _>>();
    let quiet = quiet.map_err(|error| ConfigError::QuietHours { watch: watch.clone(), error })?;
    Ok((rules, quiet))
}

/// The watches of one entry: one for each of its URLs.
fn watches_of(mut spec: CaseSpec, entry: &WatchEntry, number: usize) -> Result<Vec<Watch>, ConfigError> {
    let watch = label(entry.name.as_deref(), number);
    let (rules, quiet) = rules_of(entry, &watch)?;
    entry.check().map_err(|error| ConfigError::Case { watch: watch.clone(), error })?;
    let workload = spec.workload.get_or_insert_with(|| latency::WORKLOAD.name.to_owned());
    let is_continuous = workload == latency::WORKLOAD.name && entry.every.is_none() && spec.count.is_none();
    let schedule = if is_continuous {
        let rate = spec.rate.get_or_insert(RateTarget::Fixed(MessageRate(DEFAULT_RATE)));
        let RateTarget::Fixed(MessageRate(per_second)) = *rate else {
            let error =
                CaseSpecError::new("rate", "a link is watched at a rate like 10/s, not at the highest");
            return Err(ConfigError::Case { watch: watch.clone(), error });
        };
        if !WATCH_RATES.contains(&per_second) {
            let error =
                CaseSpecError::new("rate", "a link is watched with 1 probe an hour to 10 000 a second");
            return Err(ConfigError::Case { watch: watch.clone(), error });
        }
        spec.poisson = Some(true);
        spec.timeout.get_or_insert(Span(DEFAULT_TIMEOUT));
        spec.warm_up_count = Some(Count(0));
        spec.warm_up_time = None;
        WatchSchedule::Continuous { per_second }
    } else {
        WatchSchedule::Every(entry.every.map_or(DEFAULT_EVERY, |every| every.0))
    };
    let urls = spec.url.as_ref().map_or(0, |urls| match urls {
        OneOrMany::One(_) => 1,
        OneOrMany::Many(urls) => urls.len(),
    });
    if spec.together == Some(true) || spec.ports.is_some() {
        let error =
            CaseSpecError::new("together", "each link is watched by itself: remove 'together' and 'ports'");
        return Err(ConfigError::Case { watch: watch.clone(), error });
    }
    let cases = spec.expand().map_err(|error| ConfigError::Case { watch: watch.clone(), error })?;
    if cases.len() > urls {
        let what = "a watch measures one combination: use lists for 'url' only, and one value for other keys";
        return Err(ConfigError::Case { watch, error: CaseSpecError::new("size", what) });
    }
    let watch = |case: Case| {
        let own = case.endpoints[0].as_str().to_owned();
        let name = match &entry.name {
            Some(name) if urls <= 1 => name.clone(),
            Some(name) => format!("{name} {own}"),
            None => own,
        };
        Watch {
            name,
            case,
            schedule,
            rules: rules.clone(),
            quiet: quiet.clone(),
            bytes_per_day: entry.bytes_per_day.map(|bytes| bytes.0),
            explain: entry.explain.map(|budget| budget.0),
            behind: entry.behind.clone(),
        }
    };
    Ok(cases.into_iter().map(watch).collect())
}

/// Place of the gateway of a watch.
pub(super) fn gateway_of(watches: &[Watch], watch: usize) -> Option<usize> {
    let name = watches[watch].behind.as_ref()?;
    watches.iter().position(|other| other.name == *name)
}

/// Checks that each gateway is watched, and is not behind what is behind it. Without `has_all`, files may name more links later.
fn check_gateways(watches: &[Watch], has_all: bool) -> Result<(), ConfigError> {
    for (place, watch) in watches.iter().enumerate() {
        let unfit = |why: String| Err(ConfigError::Unfit { name: watch.name.clone(), why });
        let is_watched = gateway_of(watches, place).is_some() || watch.behind.is_none();
        if has_all && !is_watched {
            let name = watch.behind.as_deref().unwrap_or_default();
            return unfit(format!("no watch is named '{name}': write the name of its gateway in 'behind'"));
        }
        let mut gateways =
            std::iter::successors(gateway_of(watches, place), |gateway| gateway_of(watches, *gateway));
        if gateways.nth(watches.len()).is_some() {
            return unfit("its gateway is behind itself: remove one 'behind'".to_owned());
        }
    }
    Ok(())
}

/// Finds what cannot work before anything is opened.
fn check(watch: &Watch) -> Result<(), ConfigError> {
    let unfit = |why: String| ConfigError::Unfit { name: watch.name.clone(), why };
    checked_plan(watch, watch.case.clone())?;
    if cover_whole_day(&watch.quiet) {
        return Err(unfit("its quiet hours leave no time of the day: shorten them".to_owned()));
    }
    if let Some(timeout) = watch.case.timeout.filter(|timeout| *timeout < MIN_TIMEOUT) {
        return Err(unfit(format!(
            "a timeout of {} is too short for a reply: use 1ms or more",
            format_period(timeout)
        )));
    }
    if matches!(watch.schedule, WatchSchedule::Continuous { .. }) && watch.case.parallel != 1 {
        return Err(unfit("a link is watched over one connection: remove 'parallel'".to_owned()));
    }
    if watch.explain.is_some() && !is_explainable(watch) {
        return Err(unfit(
            "an explanation needs alerts and a second connection to the link: remove 'explain'".to_owned(),
        ));
    }
    match watch.schedule {
        WatchSchedule::Every(_) if !watch.rules.is_empty() => {
            let keys = if watch.case.stop.count.is_some() { "'count' and 'every'" } else { "'every'" };
            Err(unfit(format!(
                "alerts need probes all the time: remove {keys}, or use 'thresholds' for each test"
            )))
        }
        WatchSchedule::Every(_) => {
            let needed = min_test_bytes(&watch.case);
            match watch.bytes_per_day {
                Some(limit) if needed > limit => Err(unfit(format!(
                    "a single test moves {needed} B or more, and bytes-per-day is {limit}: raise it, or shorten the test"
                ))),
                _ => Ok(()),
            }
        }
        WatchSchedule::Continuous { per_second } => {
            for rule in &watch.rules {
                rule.expectation(per_second).ok_or_else(|| {
                    unfit(format!(
                        "'{}' would need weeks of probes to be noticed: allow more false alarms",
                        rule.text
                    ))
                })?;
            }
            let bytes = watch.case.message_bytes.unwrap_or(1);
            let needed = 2.0 * f64::from(bytes) * per_second * 86_400.0;
            match watch.bytes_per_day {
                Some(limit) if needed > limit as f64 => Err(unfit(format!(
                    "probes of {bytes} B at {}/s move {needed:.0} B a day, and bytes-per-day is {limit}: lower the rate",
                    format_number(per_second)
                ))),
                _ => Ok(()),
            }
        }
    }
}

/// Payload that a test moves at least: one message, or as many as the case says.
fn min_test_bytes(case: &Case) -> u64 {
    let size = u64::from(case.message_bytes.unwrap_or(1));
    let per_message = if case.workload == latency::WORKLOAD.name { 2 * size } else { size };
    let in_time =
        case.pacing.per_second().zip(case.stop.time_ns).map(|(rate, ns)| (rate * ns as f64 / 1e9) as u64);
    let of_messages = |messages: u64| messages.saturating_mul(per_message);
    // The first condition ends the test.
    let ends = [case.stop.count.map(of_messages), in_time.map(of_messages), case.stop.volume_bytes];
    ends.into_iter().flatten().min().unwrap_or(0).max(per_message)
}

/// Whether the link can be explained while its probes go on, and when an alarm begins.
fn is_explainable(watch: &Watch) -> bool {
    let can_open_parallel =
        Registry::standard().transports.caps(watch.endpoint()).is_ok_and(|caps| caps.can_open_parallel);
    can_open_parallel && !watch.rules.is_empty()
}

/// The case of a watch as a plan that can be run.
pub(super) fn checked_plan(watch: &Watch, case: Case) -> Result<schedule::CheckedPlan, ConfigError> {
    let plan = Plan { title: None, repeat: 1, keep_going: false, cases: vec![case] };
    schedule::check(plan, Registry::standard())
        .map_err(|error| ConfigError::Invalid { name: watch.name.clone(), error: Box::new(error) })
}

#[cfg(test)]
mod tests;
