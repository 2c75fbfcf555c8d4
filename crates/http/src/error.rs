//! Why a measurement or a server failed.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::PathBuf;

use linkgauge_engine::link::{describe_refusal, system_remedy};
use linkgauge_model::run::FailureKind;

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
    /// The memory of the server, in bytes, holds no connection.
    #[error("{0} bytes hold no connection: use a --max-memory of at least 1M")]
    Memory(u64),
    /// The server cannot listen.
    #[error("cannot listen on {address}: {source}. Try another port")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The reason of the system.
        source: std::io::Error,
    },
    /// The connection could not be opened.
    #[error("{}{}", describe_refusal("connect", .source), connect_remedy(source.kind()))]
    Connect {
        /// The reason of the system.
        source: std::io::Error,
    },
    /// The handshake of TLS failed.
    #[error("TLS handshake: {source}: {}", handshake_remedy(source))]
    Handshake {
        /// What was wrong.
        source: std::io::Error,
    },
    /// The network.
    #[error("{source}{}", system_remedy(source.kind()))]
    Io {
        /// The reason of the system.
        #[from]
        source: std::io::Error,
    },
    /// HTTP/2.
    #[error(transparent)]
    Http2(#[from] h2::Error),
    /// A message of HTTP could not be formed.
    #[error(transparent)]
    Http(#[from] http::Error),
    /// Nothing came in time.
    #[error("no reply in time: check that it is a server for HTTP/2, and --timeout")]
    TimedOut,
}

impl HttpError {
    /// The kind of the cause, for run documents.
    pub(crate) fn failure_kind(&self) -> FailureKind {
        match self {
            HttpError::TimedOut => FailureKind::TimedOut,
            HttpError::Config { .. } | HttpError::Status { .. } | HttpError::Http2(_) => {
                FailureKind::UnexpectedReply
            }
            HttpError::Handshake { .. } => FailureKind::Remote,
            HttpError::Url { .. } | HttpError::File { .. } | HttpError::Memory(_) => FailureKind::InvalidCase,
            HttpError::Connect { .. } | HttpError::Io { .. } | HttpError::Listen { .. } => {
                FailureKind::System
            }
            HttpError::Tls { .. } | HttpError::Http(_) => FailureKind::Other,
        }
    }
}

/// What to try when no connection opens, as the end of a message.
fn connect_remedy(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::ConnectionRefused => {
            ": no server listens on this port. Start 'linkgauge serve https://…' there, or name another port"
        }
        other => system_remedy(other),
    }
}

/// What to try when the handshake of TLS fails.
fn handshake_remedy(source: &std::io::Error) -> &'static str {
    use rustls::CertificateError as Fault;
    use rustls::Error::InvalidCertificate;
    let reason = source.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match reason {
        Some(InvalidCertificate(Fault::UnknownIssuer | Fault::BadSignature)) => {
            "no authority that this host trusts has signed it. Name its file with ?ca=FILE, or accept any with ?insecure=1"
        }
        Some(InvalidCertificate(Fault::NotValidForName | Fault::NotValidForNameContext { .. })) => {
            "it belongs to another host. Use a name that it has, or accept any with ?insecure=1"
        }
        Some(InvalidCertificate(
            Fault::Expired
            | Fault::ExpiredContext { .. }
            | Fault::NotValidYet
            | Fault::NotValidYetContext { .. },
        )) => "renew it, or accept any with ?insecure=1",
        Some(InvalidCertificate(_)) => {
            "give the server a certificate of its own, not that of an authority, or accept any with ?insecure=1"
        }
        _ => "check that the server speaks HTTP/2 over TLS at this port",
    }
}

impl From<tokio::time::error::Elapsed> for HttpError {
    fn from(_: tokio::time::error::Elapsed) -> HttpError {
        HttpError::TimedOut
    }
}
