//! Times in which the actions receive nothing about some links.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::calendar::QuietHours;
use super::pattern::matches;

/// A silence: links, and when.
#[derive(Debug, Clone, PartialEq)]
pub struct Silence {
    /// Names of links, with `*` for any text.
    pub(crate) link: String,
    /// Begin, if it does not begin before the monitor.
    pub(crate) from: Option<Timestamp>,
    /// End, if it ends.
    pub(crate) until: Option<Timestamp>,
    /// The hours of each day; empty: all.
    pub(crate) hours: Vec<QuietHours>,
}

impl Silence {
    /// Whether it applies to a link.
    pub fn is_about(&self, link: &str) -> bool {
        matches(&self.link, link)
    }

    /// Whether it applies now.
    pub(crate) fn is_on(&self, now: Timestamp, zone: &TimeZone) -> bool {
        self.from.is_none_or(|from| from <= now)
            && self.until.is_none_or(|until| now < until)
            && (self.hours.is_empty() || self.hours.iter().any(|hours| hours.contain(now, zone)))
    }

    /// Describes the silence, for people.
    pub fn describe(&self) -> String {
        let bound = |word: &str, at: Option<Timestamp>| at.map(|at| format!(" {word} {at:.0}"));
        let bounds = [bound("from", self.from), bound("until", self.until)];
        let hours: Vec<String> = self.hours.iter().map(QuietHours::to_string).collect();
        let hours = if hours.is_empty() { String::new() } else { format!(" at {}", hours.join(", ")) };
        format!("{}{}{hours}", self.link, bounds.into_iter().flatten().collect::<String>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silence_has_links_dates_and_hours() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let silence = Silence {
            link: "rack 2/*".to_owned(),
            from: Some(at("2026-12-01T00:00:00Z")),
            until: Some(at("2026-12-03T00:00:00Z")),
            hours: vec!["22:00-06:00".parse().unwrap()],
        };
        assert!(silence.is_about("rack 2/switch") && !silence.is_about("rack 3/switch"));
        for (time, expected) in [
            ("2026-12-01T23:00:00Z", true),
            ("2026-12-02T12:00:00Z", false),
            ("2026-11-30T23:00:00Z", false),
            ("2026-12-03T00:00:00Z", false),
        ] {
            assert_eq!(silence.is_on(at(time), &TimeZone::UTC), expected, "{time}");
        }
        assert_eq!(
            silence.describe(),
            "rack 2/* from 2026-12-01T00:00:00Z until 2026-12-03T00:00:00Z at 22:00-06:00"
        );
    }
}
