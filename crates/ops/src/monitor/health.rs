//! Whether a link needs attention, and how much that matters.

use serde::Serialize;

/// Whether a link needs attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkHealth {
    /// The last probes have no reply, or the last test failed.
    Down,
    /// An alarm is on.
    Alarm,
    /// The link replies.
    Up,
    /// Link that was not measured yet.
    Unknown,
}

impl LinkHealth {
    /// Importance of the state to people.
    pub fn severity(self) -> Severity {
        match self {
            LinkHealth::Down => Severity::Critical,
            LinkHealth::Alarm => Severity::Warning,
            LinkHealth::Up | LinkHealth::Unknown => Severity::Ok,
        }
    }

    /// Word for the state, for people.
    pub fn word(self) -> &'static str {
        match self {
            LinkHealth::Alarm => "ALARM",
            LinkHealth::Down => "DOWN",
            LinkHealth::Up => "up",
            LinkHealth::Unknown => "–",
        }
    }
}

/// Importance of the state of a link to people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Link that works as it should, or of which nothing is known.
    Ok,
    /// An alarm is on.
    Warning,
    /// Link that is down.
    Critical,
}
