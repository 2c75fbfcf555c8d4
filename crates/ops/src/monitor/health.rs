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
    /// Replies.
    Up,
    /// Nothing was measured yet.
    Unknown,
}

impl LinkHealth {
    /// How much it matters to people.
    pub fn severity(self) -> Severity {
        match self {
            LinkHealth::Down => Severity::Critical,
            LinkHealth::Alarm => Severity::Warning,
            LinkHealth::Up | LinkHealth::Unknown => Severity::Ok,
        }
    }

    /// It, for people.
    pub fn word(self) -> &'static str {
        match self {
            LinkHealth::Alarm => "ALARM",
            LinkHealth::Down => "DOWN",
            LinkHealth::Up => "up",
            LinkHealth::Unknown => "–",
        }
    }
}

/// How much the state of a link matters to people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// It works as it should, or nothing is known.
    Ok,
    /// An alarm is on.
    Warning,
    /// It is down.
    Critical,
}
