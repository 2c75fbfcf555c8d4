//! Why a measurement or a server failed.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::run::FailureKind;

/// Why a measurement or a server failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HttpError {
    /// The URL.
    #[error("{url}: {reason}")]
    Url {
        /// The URL as typed.
        url: String,
        /// What is wrong with it, and what to try.
        reason: String,
    },
    /// A file of certificates or keys.
    #[error("{}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// TLS could not be set up.
    #[error("TLS: {reason}")]
    Tls {
        /// The reason.
        reason: String,
    },
    /// The list of URLs of a server.
    #[error("the server's list of URLs is not usable: {reason}")]
    Config {
        /// What is wrong with it.
        reason: String,
    },
    /// The server did not reply as it should.
    #[error("{path}: the server replied with status {status}. Check the path of the URL")]
    Status {
        /// The path of the request.
        path: String,
        /// The status of HTTP.
        status: u16,
    },
    /// The server cannot listen.
    #[error("cannot listen on {address}: {source}. Try another port")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The reason of the system.
        source: std::io::Error,
    },
    /// The network.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// HTTP/2.
    #[error(transparent)]
    Http2(#[from] h2::Error),
    /// A message of HTTP could not be formed.
    #[error(transparent)]
    Http(#[from] http::Error),
    /// Nothing came in time.
    #[error("no reply in time")]
    TimedOut,
}

impl HttpError {
    /// The kind of the cause, for run documents.
    pub fn failure_kind(&self) -> FailureKind {
        match self {
            HttpError::TimedOut => FailureKind::TimedOut,
            HttpError::Config { .. } | HttpError::Status { .. } | HttpError::Http2(_) => {
                FailureKind::UnexpectedReply
            }
            HttpError::Url { .. } | HttpError::File { .. } => FailureKind::InvalidCase,
            HttpError::Io(_) | HttpError::Listen { .. } => FailureKind::System,
            HttpError::Tls { .. } | HttpError::Http(_) => FailureKind::Other,
        }
    }
}

impl From<tokio::time::error::Elapsed> for HttpError {
    fn from(_: tokio::time::error::Elapsed) -> HttpError {
        HttpError::TimedOut
    }
}
