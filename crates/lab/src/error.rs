//! Errors of a part of the lab.

use std::io;

use linkgauge_engine::link::{Fault, LinkError};
use linkgauge_engine::serve::ServeError;
use linkgauge_model::endpoint::EndpointError;

/// Error of a part of the lab that cannot start, or that ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// An option is out of range, contradicts another, or does not fit the endpoint.
    #[error("{0}")]
    Invalid(String),
    /// The text of an endpoint, or an option in it, is invalid.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// A link, a line or a listener cannot be opened, or it failed.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// A server of the part cannot be started.
    #[error(transparent)]
    Server(#[from] ServeError),
    /// A pseudo-terminal cannot be opened.
    #[error("port {port}: {fault}: try fewer ports")]
    Terminal {
        /// Counts from 1.
        port: usize,
        /// The system's reason.
        fault: Fault,
    },
    /// The system refused an operation.
    #[error("{operation}: {error}")]
    System {
        /// The refused operation, as printed.
        operation: String,
        /// The system's reason.
        error: io::Error,
    },
    /// Another program is missing, or it failed.
    #[error("{0}")]
    Program(String),
    /// A thread of the part ended by itself.
    #[error("{0}")]
    Stopped(String),
}

impl LabError {
    /// Maps a system error to one that names the operation.
    pub(super) fn system<E: Into<io::Error>>(operation: impl Into<String>) -> impl FnOnce(E) -> LabError {
        let operation = operation.into();
        move |error| LabError::System { operation, error: error.into() }
    }
}
