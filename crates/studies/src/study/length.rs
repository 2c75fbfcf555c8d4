//! Length of the measurement of a study.

/// Duration of the cases of a study.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StudyLength {
    /// The published length, which can take hours.
    Full,
    /// Minutes: fewer requests, less data.
    Quick,
}

impl StudyLength {
    /// Whether the length is shorter than published.
    pub fn is_quick(self) -> bool {
        self == StudyLength::Quick
    }
}
