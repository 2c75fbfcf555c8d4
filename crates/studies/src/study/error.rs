//! Errors of studies.

use linkgauge_model::endpoint::{Endpoint, EndpointError};

/// Error of the texts of a study that are invalid, or lack what was requested.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StudyError {
    /// The study does not exist.
    #[error("there is no study '{name}' (known: {known})")]
    Unknown {
        /// The requested name.
        name: String,
        /// The names of all studies, separated by commas.
        known: String,
    },
    /// The plan is invalid.
    #[error("plan of the study: {0}")]
    Plan(String),
    /// The tables are invalid.
    #[error("tables of the study: {0}")]
    Tables(String),
    /// The endpoint names an option that the study varies.
    #[error("{endpoint}: leave '{option}' out, the study sets it")]
    SetByStudy {
        /// The endpoint as typed.
        endpoint: Endpoint,
        /// Name of the option.
        option: String,
    },
    /// An endpoint with the options of the study is invalid.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// The twins are invalid.
    #[error("twins of the study: {0}")]
    Twins(String),
    /// The facts are invalid.
    #[error("facts of the study: {0}")]
    Facts(String),
    /// The items are invalid.
    #[error("items of the study: {0}")]
    Items(String),
    /// The study has no table of that number.
    #[error("the study has no table {number} (known: {known})")]
    NoTable {
        /// The requested number.
        number: String,
        /// The numbers of its tables, separated by commas.
        known: String,
    },
}
