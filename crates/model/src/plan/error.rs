//! Errors of plans.

/// Error of an invalid plan.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The file is invalid: the line, the key, and what is allowed.
    #[error("{0}")]
    Toml(String),
    /// The plan has no cases.
    #[error("the plan has no case: add a [[case]] with a url")]
    Empty,
    /// The plan has too many cases or endpoints.
    #[error("the plan has more than 10 000 cases or 65 536 endpoints: use shorter lists, or several plans")]
    TooMany,
    /// A case is invalid.
    #[error("case {case}: {error}")]
    Case {
        /// Number of the case, from 1.
        case: usize,
        /// Error of the case.
        error: CaseSpecError,
    },
    /// The line of a file that another error is about.
    #[error("line {line}: {error}")]
    At {
        /// Number of the line, from 1.
        line: usize,
        /// Error at this line.
        error: Box<PlanError>,
    },
    /// A URL is not an endpoint.
    #[error("{0}")]
    Endpoint(#[from] crate::endpoint::EndpointError),
}

impl PlanError {
    /// Adds the line to the error, if the line is known.
    pub(super) fn at(self, line: Option<usize>) -> PlanError {
        match line {
            Some(line) => PlanError::At { line, error: Box::new(self) },
            None => self,
        }
    }
}

/// Error of a case as typed that is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct CaseSpecError {
    /// The field of the plan file, like `size`.
    pub field: &'static str,
    /// Description of the error, and a remedy.
    pub what: String,
}

impl CaseSpecError {
    /// An error of this key of a case.
    pub fn new(field: &'static str, what: impl Into<String>) -> CaseSpecError {
        CaseSpecError { field, what: what.into() }
    }
}
