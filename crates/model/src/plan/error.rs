//! Errors of plans.

/// Why a plan is invalid.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The file is invalid: the line, the key, and what is allowed.
    #[error("{0}")]
    Toml(String),
    /// There is nothing to measure.
    #[error("the plan has no case: add a [[case]] with a url")]
    Empty,
    /// There is more to measure than anyone waits for.
    #[error("the plan has more than 10 000 cases or 65 536 endpoints: use shorter lists, or several plans")]
    TooMany,
    /// A case is invalid.
    #[error("case {case}: {error}")]
    Case {
        /// Number of the case, from 1.
        case: usize,
        /// What is wrong.
        error: CaseSpecError,
    },
    /// The line of a file that another error is about.
    #[error("line {line}: {error}")]
    At {
        /// Number of the line, from 1.
        line: usize,
        /// What is wrong there.
        error: Box<PlanError>,
    },
    /// A URL is not an endpoint.
    #[error("{0}")]
    Endpoint(#[from] crate::endpoint::EndpointError),
}

impl PlanError {
    /// The same with its line, if that is known.
    pub(super) fn at(self, line: Option<usize>) -> PlanError {
        match line {
            Some(line) => PlanError::At { line, error: Box::new(self) },
            None => self,
        }
    }
}

/// Why a case as typed is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct CaseSpecError {
    /// The field of the plan file, like `size`.
    pub field: &'static str,
    /// What is wrong, and a remedy.
    pub what: String,
}

impl CaseSpecError {
    /// An error of this key of a case.
    pub fn new(field: &'static str, what: impl Into<String>) -> CaseSpecError {
        CaseSpecError { field, what: what.into() }
    }
}
