//! The entries of a file that say who learns of changes, and when.

use std::ops::RangeInclusive;
use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;

use super::super::action::{Action, ActionTarget, DEFAULT_ACTION_TIMEOUT, check_http_url};
use super::super::calendar::InvalidQuietHours;
use super::super::message::MessageFormat;
use super::super::push::{DEFAULT_PUSH_INTERVAL, Push};
use super::super::silence::Silence;
use super::Watch;
use linkgauge_model::units::Span;

/// Times after which an action is stopped.
const ACTION_TIMEOUTS: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(3600);

/// Times after which a message is repeated.
pub(super) const REPEATS: RangeInclusive<Duration> =
    Duration::from_secs(60)..=Duration::from_secs(366 * 86_400);

/// An action of a file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct ActionEntry {
    command: Option<Vec<String>>,
    webhook: Option<String>,
    format: Option<String>,
    routing_key: Option<String>,
    template: Option<String>,
    timeout: Option<Span>,
}

impl ActionEntry {
    pub fn action(self) -> Result<Action, &'static str> {
        let target = match (self.command, self.webhook) {
            (Some(words), None) if words.first().is_some_and(|program| !program.is_empty()) => {
                ActionTarget::Command(words)
            }
            (None, Some(url)) if url.starts_with("http://") => {
                check_http_url(&url)?;
                ActionTarget::Webhook(url)
            }
            (None, Some(_)) => {
                return Err(
                    "a webhook is a URL that begins with http://. For others use command = [\"curl\", …]",
                );
            }
            _ => return Err("it needs either command = [\"PROGRAM\", …] or webhook = \"http://…\""),
        };
        let timeout = self.timeout.map_or(DEFAULT_ACTION_TIMEOUT, |timeout| timeout.0);
        if !ACTION_TIMEOUTS.contains(&timeout) {
            return Err("its timeout is not possible: use 100ms to 1h");
        }
        let format = match (self.format, self.template) {
            (Some(_), Some(_)) => return Err("it has a format and a template: remove one"),
            (None, Some(template)) if self.routing_key.is_none() => MessageFormat::template(template)?,
            (name, _) => MessageFormat::named(name.as_deref().unwrap_or("linkgauge"), self.routing_key)?,
        };
        Ok(Action { target, format, timeout })
    }
}

/// The receiver of metrics of a file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PushEntry {
    url: String,
    every: Option<Span>,
}

impl PushEntry {
    pub fn push(self) -> Result<Push, &'static str> {
        Push::new(self.url, self.every.map_or(DEFAULT_PUSH_INTERVAL, |every| every.0))
    }
}

/// Error of a silence that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SilenceError {
    /// A time without its offset.
    #[error("{0} is no moment: write it with its offset, like 2026-12-24T18:00:00+01:00")]
    Moment(String),
    /// Silence whose end is before its begin.
    #[error("it ends before it begins: swap 'from' and 'until'")]
    Order,
    /// Hours that cannot be read.
    #[error(transparent)]
    Hours(InvalidQuietHours),
    /// Name that no watch has, so that the silence is about nothing.
    #[error("no watch is named '{0}': write its name, with * for any text")]
    NoWatch(String),
}

/// A silence of a file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SilenceEntry {
    link: Option<String>,
    from: Option<toml::value::Datetime>,
    until: Option<toml::value::Datetime>,
    #[serde(default)]
    hours: Vec<String>,
}

impl SilenceEntry {
    /// The silence; it is about one of these watches, unless further ones can be discovered.
    pub fn silence(self, watches: &[Watch], has_all: bool) -> Result<Silence, SilenceError> {
        let moment = |time: toml::value::Datetime| {
            let text = time.to_string();
            text.parse::<Timestamp>().map_err(|_| SilenceError::Moment(text))
        };
        let (from, until) = (self.from.map(moment).transpose()?, self.until.map(moment).transpose()?);
        if from.zip(until).is_some_and(|(from, until)| from >= until) {
            return Err(SilenceError::Order);
        }
        let hours = self.hours.iter().map(|hours| hours.parse()).collect::<Result<_, _>>();
        let hours = hours.map_err(SilenceError::Hours)?;
        let link = self.link.unwrap_or_else(|| "*".to_owned());
        let silence = Silence { link, from, until, hours };
        if has_all && !watches.iter().any(|watch| silence.is_about(&watch.name)) {
            return Err(SilenceError::NoWatch(silence.link));
        }
        Ok(silence)
    }
}
