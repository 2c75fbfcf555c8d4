//! Reason why a case is incomplete, with a kind that a program can match on.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Reason for the failure of a repetition of a case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The kind of the cause.
    pub kind: FailureKind,
    /// The endpoint, the cause and the remedy, for people.
    pub message: String,
}

/// The kind of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// No data arrived, or no data could be sent, within the timeout.
    TimedOut,
    /// The remote closed the link.
    Closed,
    /// The user ended the wait.
    Interrupted,
    /// The system refused an operation, such as a connection.
    System,
    /// A name, an address, a device, a service or a file does not exist.
    NotFound,
    /// The endpoint or the case is invalid, or the protocol or the link does not support it.
    InvalidCase,
    /// The server sent something that its protocol does not allow.
    UnexpectedReply,
    /// The remote refused the measurement, ended early, or did not take all data, as it reported or as its system
    /// acknowledged.
    Remote,
    /// The server's report contradicts what the client measured, so no rate is left.
    ImplausibleReport,
    /// The data that arrived are too few for a figure.
    NoData,
    /// Any other cause, and causes of other versions.
    #[serde(other)]
    Other,
}

impl Failure {
    /// A failure of this kind.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Failure {
        Failure { kind, message: message.into() }
    }

    /// The cause and the remedy, without the endpoint, for a text that names it.
    pub fn reason(&self, endpoint: &str) -> String {
        self.message.replacen(&format!("{endpoint}: "), "", 1)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_other_versions_are_read() {
        let failure: Failure = serde_json::from_str(r#"{"kind": "of_later", "message": "m"}"#).unwrap();
        assert_eq!(failure, Failure::new(FailureKind::Other, "m"));
        assert_eq!(serde_json::to_string(&FailureKind::NoData).unwrap(), "\"no_data\"");
    }
}
