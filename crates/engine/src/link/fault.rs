//! Errors of links: what failed, and a remedy.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use super::Framing;
use crate::host::cpu::PinError;
use linkgauge_model::endpoint::{DEFAULT_PORT, Endpoint, EndpointError};
use linkgauge_model::run::{Failure, FailureKind};
use linkgauge_model::units::format_period;
use linkgauge_system::Errno;

/// An error of a link. The caller knows the endpoint; [`LinkError`] joins the two.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// Timeout in which nothing arrived, or nothing could be sent.
    #[error("no reply in time")]
    TimedOut,
    /// Timeout as in [`Fault::TimedOut`], after some data had moved.
    #[error("nothing has moved for {}", format_period(*.0))]
    Stalled(Duration),
    /// Timeout as in [`Fault::TimedOut`], on a line to a device or back to its own port.
    #[error("the line is silent")]
    SilentLine,
    /// The remote has closed the link.
    #[error("the remote closed the link")]
    Closed,
    /// The user ended the wait.
    #[error("interrupted")]
    Interrupted,
    /// The message is longer than the link supports.
    #[error("a message of {bytes} bytes does not fit: at most {limit}")]
    TooLong {
        /// The size of the message.
        bytes: usize,
        /// The maximum size.
        limit: usize,
    },
    /// The refused operation, and the system's reason.
    #[error("{}", describe_refusal(.operation, .source))]
    System {
        /// The refused operation, as printed.
        operation: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// The endpoint is invalid.
    #[error("{0}")]
    Endpoint(Box<EndpointError>),
    /// A thread cannot be bound to its CPU.
    #[error("{0}")]
    Pin(#[from] PinError),
    /// The link cannot be used in this way.
    #[error("{0}")]
    Invalid(String),
    /// The kernel, the driver, the link or the remote lacks a feature that was requested.
    #[error("{0}")]
    Unsupported(String),
    /// A name, an address, a device or a service does not exist.
    #[error("{0}")]
    NotFound(String),
    /// The user may not perform the operation.
    #[error("{0}")]
    NotPermitted(String),
    /// The device or the number is in use by another program.
    #[error("{0}")]
    InUse(String),
    /// A host or a router on the way reports that the remote cannot be reached.
    #[error("{0}")]
    Unreachable(String),
    /// Timeout as in [`Fault::TimedOut`]; the text says which reply did not arrive.
    #[error("{0}")]
    NoReply(String),
    /// The remote refused the request.
    #[error("{0}")]
    Refused(String),
    /// The remote ended early.
    #[error("{0}")]
    EndedEarly(String),
    /// The remote sent something that its protocol does not allow.
    #[error("{0}")]
    UnexpectedData(String),
    /// A limit of this program was reached.
    #[error("{0}")]
    LimitReached(String),
    /// A part of this program failed.
    #[error("{0}")]
    Internal(String),
}

impl From<EndpointError> for Fault {
    fn from(error: EndpointError) -> Fault {
        Fault::Endpoint(Box::new(error))
    }
}

impl Fault {
    /// Text for the log of a server about a client whose link ended with this fault. `None` if the client only left.
    pub(crate) fn client_complaint(&self) -> Option<&str> {
        match self {
            Fault::LimitReached(what)
            | Fault::NoReply(what)
            | Fault::Refused(what)
            | Fault::UnexpectedData(what) => Some(what),
            _ => None,
        }
    }

    /// Whether the host does not answer.
    pub(crate) fn is_silence(&self) -> bool {
        matches!(self, Fault::System { source, .. } if source.kind() == io::ErrorKind::TimedOut)
    }

    /// Maps a system error to a fault that names the operation.
    pub fn system(operation: &'static str) -> impl Fn(io::Error) -> Fault {
        move |source| Fault::System { operation, source }
    }
}

impl Fault {
    /// The fault of a link without progress for this time, and at least for the timeout; in tenths of a second, as printed.
    pub(crate) fn stalled(silence: Duration, timeout: Duration) -> Fault {
        let tenths = u32::try_from(silence.as_millis() / 100).unwrap_or(u32::MAX);
        Fault::Stalled((Duration::from_millis(100) * tenths).max(timeout))
    }
}

impl From<&Fault> for FailureKind {
    fn from(fault: &Fault) -> FailureKind {
        match fault {
            Fault::TimedOut | Fault::Stalled(_) | Fault::SilentLine | Fault::NoReply(_) => {
                FailureKind::TimedOut
            }
            Fault::Closed => FailureKind::Closed,
            Fault::Interrupted => FailureKind::Interrupted,
            Fault::NotFound(_) => FailureKind::NotFound,
            Fault::System { source, .. } if source.kind() == io::ErrorKind::NotFound => FailureKind::NotFound,
            Fault::System { source, .. } if source.kind() == io::ErrorKind::TimedOut => FailureKind::TimedOut,
            Fault::System { .. } | Fault::NotPermitted(_) | Fault::InUse(_) | Fault::Unreachable(_) => {
                FailureKind::System
            }
            Fault::TooLong { .. }
            | Fault::Endpoint(_)
            | Fault::Pin(_)
            | Fault::Invalid(_)
            | Fault::Unsupported(_) => FailureKind::InvalidCase,
            Fault::Refused(_) | Fault::EndedEarly(_) => FailureKind::Remote,
            Fault::UnexpectedData(_) => FailureKind::UnexpectedReply,
            Fault::LimitReached(_) | Fault::Internal(_) => FailureKind::Other,
        }
    }
}

impl From<LinkError> for Failure {
    fn from(error: LinkError) -> Failure {
        Failure::new((&error.fault).into(), error.to_string())
    }
}

/// A fault, its endpoint, and a hint for the user.
#[derive(Debug, thiserror::Error)]
#[error("{}{fault}{}", error_prefix(.endpoint, .fault), remedy(.endpoint, .fault, .server))]
pub struct LinkError {
    /// The endpoint, as typed.
    pub endpoint: Box<str>,
    /// The fault.
    pub fault: Fault,
    /// The server to start where nothing listens.
    server: ServerHint,
}

/// The server that a client needs.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ServerHint {
    /// The `--protocol` of `serve`; `None`: the default.
    pub(crate) protocol: Option<&'static str>,
    /// The port of an endpoint without one; `None`: [`DEFAULT_PORT`].
    pub(crate) default_port: Option<u16>,
    /// Whether another program or a device is the server, so no command of linkgauge starts it.
    pub(crate) is_foreign: bool,
    /// The command of the original program, for links with this framing.
    pub(crate) original: Option<(OriginalServer, Framing)>,
}

/// The command that starts the server of another program, for links with this framing, on this port or on its default.
pub(crate) type OriginalServer = fn(Framing, Option<u16>) -> String;

/// The flag of most programs for a port that is not their default.
pub(crate) fn on_port(port: Option<u16>) -> String {
    port.map_or(String::new(), |port| format!(" -p {port}"))
}

/// The endpoint, unless the fault already names it.
fn error_prefix(endpoint: &str, fault: &Fault) -> String {
    match fault {
        Fault::Endpoint(_) => String::new(),
        _ => format!("{endpoint}: "),
    }
}

impl LinkError {
    /// Joins the fault of a link with its endpoint.
    pub fn new(endpoint: &Endpoint, fault: Fault) -> LinkError {
        LinkError { endpoint: endpoint.as_str().into(), fault, server: ServerHint::default() }
    }

    /// Names the server of a protocol in the hint.
    pub(crate) fn with_server(self, server: ServerHint) -> LinkError {
        LinkError { server, ..self }
    }
}

/// The operation of a refusal by a remote that has replied before.
pub(crate) const VANISHED: &str = "the remote stopped replying during the run";

/// A host that does not answer, in words.
const SILENT: &str = "no reply";
/// Remedy for a host that does not answer.
pub(crate) const SILENT_REMEDY: &str = ": the host is down, or a firewall drops the packets. Check the address, the cable, firewalls and --timeout";

/// A system without a route to the host, in words.
pub(crate) const NO_ROUTE: &str = "no route to the host";
const NO_ROUTE_REMEDY: &str = ": check the address; 'ip route' lists the networks that this host reaches";

/// Hint for a serial line without replies.
pub const CHECK_LINE_HINT: &str =
    ": check the loopback plug or the device, rate, flow control, and --timeout";

/// Describes a refusal by the system: the usual faults of networks in words, without the operation and the number of the error.
pub fn describe_refusal(operation: &str, source: &io::Error) -> String {
    let reason = match source.kind() {
        _ if operation == VANISHED => VANISHED,
        io::ErrorKind::ConnectionRefused => "connection refused",
        io::ErrorKind::ConnectionReset => "connection reset",
        io::ErrorKind::TimedOut => SILENT,
        io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => NO_ROUTE,
        _ => return format!("{operation}: {source}"),
    };
    reason.to_owned()
}

fn remedy(endpoint: &str, fault: &Fault, server: &ServerHint) -> String {
    let remedy = match fault {
        Fault::System { source, .. } if is_file_limit_reached(source) => RAISE_FILE_LIMIT_HINT,
        Fault::System { operation: VANISHED, .. } => {
            ": its port is closed now. Check whether it still runs, and its log"
        }
        Fault::Closed => ": check whether the server or device still runs, and its log",
        Fault::System { source, .. } if source.kind() == io::ErrorKind::ConnectionRefused => {
            return start_server_hint(endpoint, server);
        }
        Fault::System { source, .. } => system_remedy(source.kind()),
        Fault::SilentLine => CHECK_LINE_HINT,
        Fault::Stalled(_) => {
            ": the link was lost, a firewall drops its packets, or the server stopped. The figures are those before"
        }
        Fault::TimedOut => ": the server does not reply. Check that it runs, firewalls, and --timeout",
        _ => "",
    };
    remedy.to_owned()
}

/// Hint with a command that serves the endpoint. Without an address, a server listens on its own host only.
fn start_server_hint(endpoint: &str, server: &ServerHint) -> String {
    let Ok(endpoint) = endpoint.parse::<Endpoint>() else { return String::new() };
    let scheme = endpoint.scheme();
    let like = |address: &str, port: Option<u16>| {
        let protocol = server.protocol.map_or(String::new(), |name| format!("--protocol {name} "));
        let own = (!server.is_foreign).then(|| format!("linkgauge serve {protocol}{scheme}://{address}"));
        let port = port.filter(|port| Some(*port) != server.default_port);
        let original = server.original.map(|(command, framing)| command(framing, port));
        let commands: Vec<_> = [own, original].into_iter().flatten().map(|one| format!("'{one}'")).collect();
        if commands.is_empty() { String::new() } else { format!(", like {}", commands.join(" or ")) }
    };
    let Ok((host, port)) = endpoint.host_port() else {
        return format!(": no server listens there. Start one{}", like(endpoint.address(), None));
    };
    let listen = match host.parse() {
        Ok(IpAddr::V6(address)) if address.is_loopback() => "[::1]",
        Ok(IpAddr::V6(_)) => "[::]",
        Ok(IpAddr::V4(address)) if address.is_loopback() => host,
        _ if host == "localhost" => host,
        _ => "0.0.0.0",
    };
    let (which, suffix) = match port {
        Some(port) => ("this port".to_owned(), format!(":{port}")),
        None => (format!("port {}", server.default_port.unwrap_or(DEFAULT_PORT)), String::new()),
    };
    let like = like(&format!("{listen}{suffix}"), port);
    format!(": no server listens on {which}. Start one there{like}, or name another port")
}

/// Remedy for an error of the system, as the end of a message.
pub fn system_remedy(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::ConnectionRefused => {
            ": no server listens on this port. Start one there, or name another port"
        }
        io::ErrorKind::NotFound => ": no server has this endpoint. Start 'linkgauge serve' with it",
        io::ErrorKind::AddrInUse => ": another program uses it. Choose another one, or stop that program",
        io::ErrorKind::PermissionDenied => {
            ": this user may not do that. Ports below 1024 and files of others need root"
        }
        io::ErrorKind::TimedOut => SILENT_REMEDY,
        io::ErrorKind::ConnectionReset => {
            ": the server ended the connection. It is busy, or uses another protocol"
        }
        io::ErrorKind::AddrNotAvailable => ": this host does not have that address",
        io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => NO_ROUTE_REMEDY,
        _ => "",
    }
}

/// Whether this process has reached its limit of open files.
pub(crate) fn is_file_limit_reached(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::MFILE.raw_os_error())
}

/// Commands that open many links have already raised their soft limit as far as possible.
pub(crate) const RAISE_FILE_LIMIT_HINT: &str = ": each link uses one. Use fewer links, or raise the hard limit (ulimit -Hn) first: sudo prlimit --nofile=4096 --pid $$";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_on_which_port_no_server_listens() {
        let own = ServerHint::default();
        insta::assert_snapshot!(start_server_hint("tcp://192.0.2.1", &own), @": no server listens on port 7100. Start one there, like 'linkgauge serve tcp://0.0.0.0', or name another port");
        insta::assert_snapshot!(start_server_hint("tcp://[::1]:9", &own), @": no server listens on this port. Start one there, like 'linkgauge serve tcp://[::1]:9', or name another port");
        let logger = ServerHint {
            protocol: Some("pakbus"),
            default_port: Some(6785),
            is_foreign: true,
            original: None,
        };
        insta::assert_snapshot!(start_server_hint("tcp://192.0.2.1", &logger), @": no server listens on port 6785. Start one there, or name another port");
    }
}
