//! `linx://host/name`: an endpoint of Enea LINX, without its kernel modules: this process is a LINX node.
//! Nodes are connected by TCP (the TCP connection manager, version 3), or within a host by a Unix socket with
//! the same protocol.
//!
//! One connection joins two nodes, for any number of endpoints. RLNH 2 governs hunting for names, publishing
//! and removing endpoints, and supervision.
//!
//! A message is a signal: a number and bytes. Between linkgauge programs the number marks a payload; with
//! `raw=1` the bytes are the whole signal. A listener replies to each client from a separate endpoint, as
//! LINX servers do.

use std::fmt;
use std::time::Duration;

use socket2::{SockAddr, Socket};

use super::socket::parse_flag;
use super::tcp;
use crate::link::{Caps, Facts, Fault, Framing, Limitation, Link, LinkDescriptor, OpenContext, Transport};
use linkgauge_model::clock::Clock;
use linkgauge_model::endpoint::{Endpoint, EndpointError};
use mailbox::{SIGNAL_NUMBER_BYTES, SignalFormat};

mod carrier;
mod connect;
mod directory;
mod doorbell;
mod endpoint_stamps;
mod ethernet;
pub mod ethernet_cm;
mod link;
mod listener;
mod mailbox;
pub mod node;
mod node_connection;
pub mod rlnh;
mod stream;
pub mod tcp_cm;
#[cfg(test)]
mod tests;

/// The transport `linx` in the list of transports.
pub(crate) const TRANSPORT: Transport = Transport {
    scheme: "linx",
    summary: "Enea LINX endpoint of another node over TCP, or of this host",
    example: "linx://192.0.2.7/server",
    options: &[
        (
            "raw",
            "1: messages are whole signals, their number in the first 4 bytes (0; a listener follows its clients)",
        ),
        (
            "as",
            "name of our own endpoint, or of those from which a listener replies, before their number (client, the name and _)",
        ),
        ("sndbuf", "send buffer in bytes (the kernel's choice)"),
        ("rcvbuf", "receive buffer in bytes (the kernel's choice)"),
    ],
    parse_caps: |endpoint| Options::from_endpoint(endpoint).map(|options| options.caps()),
    resolve: Some(super::internet::resolve),
    available: tcp::TRANSPORT.available,
    limitation: || None,
    open,
    begin_open: None,
    listen: Some(listener::listen),
    loopback_urls: |directory| {
        let own_node = directory.replace('/', "-");
        vec!["linx://127.0.0.1:0/server".to_owned(), format!("linx:///server{own_node}")]
    },
};

/// The transport `linx+eth` in the list of transports: the protocol of `linx` over Ethernet.
pub(crate) const ETHERNET_TRANSPORT: Transport = Transport {
    scheme: "linx+eth",
    summary: "Enea LINX endpoint of another node on the same Ethernet",
    example: "linx+eth://eth0/02:00:00:00:00:07/server",
    options: &[
        ("raw", "1: messages are whole signals, as with linx:// (0)"),
        ("as", "name of our own endpoint, as with linx:// (client, the name and _)"),
        ("ethertype", "Ethernet type of the frames in hex (0x8911; before LINX 2.0.1 it was 0x9999)"),
    ],
    parse_caps: |endpoint| Options::from_endpoint(endpoint).map(|options| options.caps()),
    resolve: None,
    available: || match linkgauge_system::packet_socket() {
        Ok(_) => Ok(()),
        Err(error) => {
            let remedy = "packet sockets need root or the capability CAP_NET_RAW";
            Err(Limitation::from_socket_error(&error, error.to_string(), remedy))
        }
    },
    limitation: || None,
    open,
    begin_open: None,
    listen: Some(listener::listen),
    loopback_urls: |directory| {
        // Programs on the loopback device receive each other's frames: the Ethernet type makes the endpoint
        // as unique as the directory.
        let hash = directory.bytes().fold(0u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
        vec![format!("linx+eth://lo/00:00:00:00:00:00/server?ethertype={:#x}", 0xa000 + hash % 0x5000)]
    },
};

/// Default port of LINX nodes.
const DEFAULT_LINX_PORT: u16 = 19_790;

/// Maximum length of a name: `sun_path` holds 108 bytes, the first of which is zero here.
const MAX_NAME_BYTES: usize = 107 - LOCAL_NAME_PREFIX.len();

/// Prefix of the abstract Unix socket of an endpoint on this host; its name follows.
const LOCAL_NAME_PREFIX: &str = "linkgauge.linx/";

/// Returns the endpoint with raw signals. Endpoints of other transports are returned unchanged.
///
/// # Errors
///
/// Fails if the options of the endpoint do not allow one more.
pub fn with_raw_signals(endpoint: &Endpoint) -> Result<Endpoint, EndpointError> {
    if ![TRANSPORT.scheme, ETHERNET_TRANSPORT.scheme].contains(&endpoint.scheme())
        || endpoint.option("raw").is_some()
    {
        return Ok(endpoint.clone());
    }
    let joint = if endpoint.options().next().is_some() { '&' } else { '?' };
    format!("{}{joint}raw=1", endpoint.as_str().trim_end_matches('?')).parse()
}

/// The role of this node when the connection was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionRole {
    /// This node opened the connection.
    Active,
    /// The remote node opened the connection.
    Passive,
}

/// The reason for the end of a connection between two nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DisconnectReason {
    /// The remote node closed the connection.
    Closed,
    /// The remote node did not reply in time, as printed.
    Timeout(&'static str),
    /// The remote node broke the protocol, as printed.
    ProtocolError(&'static str),
    /// The remote node uses a version that we do not support.
    VersionMismatch {
        /// The protocol with that version.
        protocol: &'static str,
        /// The version of the remote node.
        remote_version: u32,
        /// Our version.
        local_version: u32,
    },
    /// A system call failed, as printed.
    System(String),
}

impl fmt::Display for DisconnectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DisconnectReason::Closed => f.write_str("the remote node closed the connection"),
            DisconnectReason::Timeout(what) | DisconnectReason::ProtocolError(what) => f.write_str(what),
            DisconnectReason::VersionMismatch {
                protocol: of,
                remote_version: theirs,
                local_version: ours,
            } => write!(
                f,
                "the remote node uses version {theirs} of the LINX {of}, linkgauge uses {ours}. Use LINX 2.0 or later there"
            ),
            DisconnectReason::System(what) => f.write_str(what),
        }
    }
}

impl DisconnectReason {
    fn fault(&self) -> Fault {
        match self {
            DisconnectReason::Closed => Fault::Closed,
            DisconnectReason::Timeout(_) => Fault::NoReply(self.to_string()),
            DisconnectReason::ProtocolError(_) => Fault::UnexpectedData(self.to_string()),
            DisconnectReason::VersionMismatch { .. } => Fault::Unsupported(self.to_string()),
            // Only faults of the socket end a connection in this way.
            DisconnectReason::System(_) => Fault::EndedEarly(self.to_string()),
        }
    }
}

/// Way to the remote node.
enum NodeAddress {
    /// The node as a TCP endpoint.
    Tcp(Endpoint),
    /// The node is this host.
    ThisHost,
    Ethernet(ethernet::EthernetNode),
}

/// A parsed endpoint of this transport.
struct Options {
    node_address: NodeAddress,
    name: String,
    signal_format: SignalFormat,
    own_name: Option<String>,
}

impl Options {
    fn from_endpoint(endpoint: &Endpoint) -> Result<Options, EndpointError> {
        let bad = |wanted| EndpointError::BadAddress { url: endpoint.to_string(), wanted };
        let (way, name) = match endpoint.scheme() == ETHERNET_TRANSPORT.scheme {
            true => parse_ethernet_node(endpoint)?,
            false => parse_node(endpoint)?,
        };
        if !(1..=MAX_NAME_BYTES).contains(&name.len()) {
            return Err(bad("a name of 1 to 92 bytes behind the node, like linx://host/server"));
        }
        let raw = parse_flag(endpoint, "raw")?.unwrap_or(false);
        let own_name = endpoint.parse_option("as", "a name of 1 to 64 bytes", |text| {
            (1..=64).contains(&text.len()).then(|| text.to_owned())
        })?;
        let style = if raw { SignalFormat::Raw } else { SignalFormat::Numbered };
        Ok(Options { node_address: way, name, signal_format: style, own_name })
    }

    fn caps(&self) -> Caps {
        let head = if self.signal_format == SignalFormat::Raw { 0 } else { SIGNAL_NUMBER_BYTES };
        let opens_within = if matches!(self.node_address, NodeAddress::Tcp(_)) {
            connect::CONNECT_TIMEOUT
        } else {
            Duration::ZERO
        };
        let max_message = Some(tcp_cm::MAX_MESSAGE_BYTES - head);
        Caps {
            framing: Framing::Message,
            max_message_bytes: max_message,
            open_timeout: opens_within,
            // Raw signals have no number for the end of sending.
            can_half_close: self.signal_format != SignalFormat::Raw,
            // The socket belongs to all endpoints of the node.
            descriptor: LinkDescriptor::Events,
            // Over TCP the numbers of the bytes are those of all endpoints.
            has_kernel_stamps: matches!(self.node_address, NodeAddress::Ethernet(_)),
            ..Caps::STREAM
        }
    }

    /// The address of an endpoint of this host.
    fn local_address(&self) -> Result<SockAddr, Fault> {
        SockAddr::unix(format!("\0{LOCAL_NAME_PREFIX}{}", self.name))
            .map_err(Fault::system("make an address"))
    }
}

/// `host:port/name`, or `/name` on this host.
fn parse_node(endpoint: &Endpoint) -> Result<(NodeAddress, String), EndpointError> {
    let bad = || EndpointError::BadAddress {
        url: endpoint.to_string(),
        wanted: "a host, its port if it is not 19790, and the name of an endpoint, like linx://host/server",
    };
    let (host, name) = endpoint.address().split_once('/').ok_or_else(bad)?;
    if host.is_empty() {
        return Ok((NodeAddress::ThisHost, name.to_owned()));
    }
    let mut url = format!("tcp://{host}?nodelay=1");
    for option in ["sndbuf", "rcvbuf"] {
        if let Some(value) = endpoint.option(option) {
            url.push_str(&format!("&{option}={value}"));
        }
    }
    let node: Endpoint = url.parse()?;
    let port = node.host_port().map_err(|_| bad())?.1;
    let node = if port.is_some() { node } else { node.with_port(DEFAULT_LINX_PORT)? };
    (tcp::TRANSPORT.parse_caps)(&node)?;
    Ok((NodeAddress::Tcp(node), name.to_owned()))
}

/// `device/address/name`.
fn parse_ethernet_node(endpoint: &Endpoint) -> Result<(NodeAddress, String), EndpointError> {
    let bad = || EndpointError::BadAddress {
        url: endpoint.to_string(),
        wanted: "a device, the remote node's address and a name, like linx+eth://eth0/02:00:00:00:00:07/server",
    };
    let mut parts = endpoint.address().splitn(3, '/');
    let device = parts.next().filter(|device| (1..16).contains(&device.len())).ok_or_else(bad)?;
    let remote = parts.next().and_then(ethernet::parse_mac).ok_or_else(bad)?;
    let name = parts.next().ok_or_else(bad)?;
    let wanted = "an Ethernet type from 0x0600 to 0xffff";
    let ethertype = endpoint.parse_option("ethertype", wanted, |text| {
        let digits = text.strip_prefix("0x")?;
        u16::from_str_radix(digits, 16).ok().filter(|number| *number >= 0x600)
    })?;
    let node = ethernet::EthernetNode {
        device: device.to_owned(),
        remote,
        ethertype: ethertype.unwrap_or(ethernet_cm::ETHERTYPE),
    };
    Ok((NodeAddress::Ethernet(node), name.to_owned()))
}

fn no_facts(_: &Socket, _: &mut Facts) {}

fn open(endpoint: &Endpoint, context: &OpenContext) -> Result<Box<dyn Link>, Fault> {
    let options = Options::from_endpoint(endpoint)?;
    let until = context.clock.now() + context.timeout;
    let connection = connect::connect_node(&options, context)?;
    let left = |clock: &Clock| until.since(clock.now()).max(Duration::from_millis(1));
    let own_name = options.own_name.as_deref().unwrap_or("client").as_bytes();
    let own = connection
        .with_directory(|directory| directory.node.publish(own_name, &mut directory.outbox))
        .ok_or_else(|| {
            Fault::LimitReached("this node has no address left: 1024 are all that LINX knows".to_owned())
        })?;
    let name = options.name.as_bytes();
    let mut has_hunted = false;
    let found = connection.await_directory(left(&context.clock), |directory| {
        let partner = if std::mem::replace(&mut has_hunted, true) {
            directory.node.find_address(name)
        } else {
            directory.node.hunt(name, own, &mut directory.outbox)
        };
        partner.map(|partner| directory.add_endpoint(partner, own, options.signal_format))
    });
    match found {
        Ok(mailbox) => Ok(Box::new(link::NodeLink::new(connection, mailbox, options.caps(), context.wait)?)),
        Err(fault) => {
            connection.remove_endpoint(own);
            Err(match fault {
                Fault::TimedOut => Fault::NoReply(format!(
                    "no endpoint '{}' appeared at the remote node in {}: check that it is served there under this name, and --timeout",
                    options.name,
                    linkgauge_model::units::format_duration(context.timeout)
                )),
                fault => fault,
            })
        }
    }
}
