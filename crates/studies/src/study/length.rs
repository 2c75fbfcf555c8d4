//! How much of a study is measured.

/// How long the cases of a study take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StudyLength {
    /// As published, which can take hours.
    Full,
    /// Minutes: fewer requests, less data.
    Quick,
}

impl StudyLength {
    /// Whether it is shorter than published.
    pub fn is_quick(self) -> bool {
        self == StudyLength::Quick
    }
}
