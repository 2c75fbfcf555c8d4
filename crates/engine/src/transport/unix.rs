//! `unix:///path` and `unix://@abstract`: sockets of this host, as stream, seqpacket or dgram.
//!
//! The file of a dead server is replaced, that of a live server is not. `unix/datagram.rs` distinguishes the
//! clients of dgram sockets, which have no connections.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use socket2::{Domain, SockAddr, Socket, Type};

use super::datagram::DatagramLink;
use super::offload::OffloadOptions;
use super::socket::{self, AcceptResult, BufferOptions, LISTEN_BACKLOG, SocketLink, SocketListener};
use crate::link::{
    Caps, Facts, Fault, Framing, Limitation, Link, LinkDescriptor, Listener, OpenContext, Transport,
};
use linkgauge_model::clock::Clock;
use linkgauge_model::endpoint::{Endpoint, EndpointError};
use linkgauge_model::plan::WaitMode;
use linkgauge_system as system;

mod datagram;

pub(crate) const TRANSPORT: Transport = Transport {
    scheme: "unix",
    summary: "Unix socket of this host, a file or an abstract name",
    example: "unix:///run/gauge.socket?type=seqpacket",
    options: &[
        ("type", "stream (default), dgram or seqpacket"),
        ("sndbuf", "send buffer in bytes, and with it the largest message (the kernel's choice)"),
        ("rcvbuf", "receive buffer in bytes (the kernel's choice)"),
    ],
    parse_caps: |endpoint| Options::from_endpoint(endpoint).map(|options| options.expected_caps()),
    resolve: None,
    available: || {
        Socket::new(Domain::UNIX, Type::STREAM, None).map(|_| ()).map_err(|error| {
            Limitation::from_socket_error(
                &error,
                error.to_string(),
                "this process may not open Unix sockets: check the sandbox it runs in",
            )
        })
    },
    limitation: || None,
    open,
    begin_open: None,
    listen: Some(listen),
    loopback_urls: |directory| {
        let variant = |(kind, abstracted)| match abstracted {
            false => format!("unix://{directory}/{kind}.socket?type={kind}"),
            // An abstract name is visible to the whole host; the directory makes it unique.
            true => {
                format!("unix://@linkgauge-{}-{kind}?type={kind}", directory.replace('/', "-"))
            }
        };
        let kinds = ["stream", "dgram", "seqpacket"];
        kinds.iter().flat_map(|kind| [(kind, false), (kind, true)]).map(variant).collect()
    },
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnixSocketKind {
    Stream,
    Datagram,
    SeqPacket,
}

/// A parsed endpoint of this transport.
#[derive(Clone)]
pub(crate) struct Options {
    pub(crate) socket_kind: UnixSocketKind,
    /// The name after `@`, or the path.
    socket_name: UnixSocketName,
    pub(crate) buffers: BufferOptions,
}

#[derive(Clone)]
enum UnixSocketName {
    Abstract(String),
    Path(PathBuf),
}

/// `sun_path` holds 108 bytes: a path and its zero, or a zero and an abstract name.
const MAX_NAME_BYTES: usize = 107;

impl Options {
    fn from_endpoint(endpoint: &Endpoint) -> Result<Options, EndpointError> {
        let bad = |wanted| EndpointError::BadAddress { url: endpoint.to_string(), wanted };
        let address = endpoint.address();
        let name = match address.strip_prefix('@') {
            Some("") => return Err(bad("a name after '@'")),
            Some(name) => UnixSocketName::Abstract(name.to_owned()),
            None if address.starts_with('/') => UnixSocketName::Path(address.into()),
            None => {
                return Err(bad(
                    "a path from the root, like unix:///run/socket, or an abstract name, like unix://@name",
                ));
            }
        };
        if address.trim_start_matches('@').len() > MAX_NAME_BYTES {
            return Err(bad("a path or name of at most 107 bytes, as the kernel's address holds no more"));
        }
        let kind = endpoint.parse_option("type", "stream, dgram or seqpacket", |text| match text {
            "stream" => Some(UnixSocketKind::Stream),
            "dgram" => Some(UnixSocketKind::Datagram),
            "seqpacket" => Some(UnixSocketKind::SeqPacket),
            _ => None,
        })?;
        Ok(Options {
            socket_kind: kind.unwrap_or(UnixSocketKind::Stream),
            socket_name: name,
            buffers: BufferOptions::from_endpoint(endpoint)?,
        })
    }

    /// The capabilities before the socket shows the effective settings.
    fn expected_caps(&self) -> Caps {
        // The kernel doubles the requested size and grants at least this.
        let granted =
            self.buffers.send_bytes.map_or(DEFAULT_BUFFER_BYTES, |bytes| (2 * bytes as usize).max(4608));
        self.caps(granted)
    }

    fn caps(&self, send_buffer: usize) -> Caps {
        if self.socket_kind == UnixSocketKind::Stream {
            return Caps::STREAM;
        }
        Caps {
            framing: Framing::Message,
            max_message_bytes: Some((send_buffer - SEND_BUFFER_OVERHEAD_BYTES).min(MAX_MESSAGE_BYTES)),
            can_signal_close: self.socket_kind == UnixSocketKind::SeqPacket,
            descriptor: match self.socket_kind {
                // Before the sockets are connected, messages of others arrive as well.
                UnixSocketKind::Datagram => LinkDescriptor::Events,
                UnixSocketKind::Stream | UnixSocketKind::SeqPacket => LinkDescriptor::Lasting,
            },
            ..Caps::STREAM
        }
    }

    pub(crate) fn open_socket(&self) -> Result<Socket, Fault> {
        let kind = match self.socket_kind {
            UnixSocketKind::Stream => Type::STREAM,
            UnixSocketKind::Datagram => Type::DGRAM,
            UnixSocketKind::SeqPacket => Type::SEQPACKET,
        };
        let socket = Socket::new(Domain::UNIX, kind, None).map_err(Fault::system("open a socket"))?;
        self.buffers.apply(&socket)?;
        Ok(socket)
    }

    pub(crate) fn socket_address(&self) -> Result<SockAddr, Fault> {
        let address = match &self.socket_name {
            UnixSocketName::Abstract(name) => SockAddr::unix(format!("\0{name}")),
            UnixSocketName::Path(path) => SockAddr::unix(path),
        };
        address.map_err(Fault::system("make an address"))
    }

    /// Binds to the endpoint's address, and replaces the file of a dead server.
    pub(crate) fn bind_socket(&self) -> Result<(Socket, Option<BoundFile>), Fault> {
        let (socket, address) = (self.open_socket()?, self.socket_address()?);
        let mut bound = socket.bind(&address);
        let path = match &self.socket_name {
            UnixSocketName::Abstract(_) => None,
            UnixSocketName::Path(path) => Some(path),
        };
        if let Some(path) = path
            && matches!(&bound, Err(error) if error.kind() == io::ErrorKind::AddrInUse)
            && self.is_stale(path, &address)
        {
            fs::remove_file(path).map_err(Fault::system("remove the file of a dead server"))?;
            bound = socket.bind(&address);
        }
        bound.map_err(Fault::system("bind"))?;
        Ok((socket, path.and_then(|path| BoundFile::of_path(path))))
    }

    /// Whether the file is a socket without a listener.
    fn is_stale(&self, path: &Path, address: &SockAddr) -> bool {
        let is_socket = system::is_socket_file(path);
        let Ok(probe) = self.open_socket() else { return false };
        let refused = || {
            // A live server with a full queue must not block this check.
            probe.set_nonblocking(true)?;
            probe.connect(address)
        };
        is_socket && matches!(refused(), Err(error) if error.kind() == io::ErrorKind::ConnectionRefused)
    }

    pub(crate) fn socket_link(&self, socket: Socket, clock: &Clock, wait: WaitMode) -> SocketLink {
        let buffer = socket.send_buffer_size().unwrap_or(DEFAULT_BUFFER_BYTES);
        SocketLink::new(socket, self.caps(buffer), clock, wait, facts)
    }

    fn make_link(&self, socket: Socket, clock: &Clock, wait: WaitMode) -> Box<dyn Link> {
        let link = self.socket_link(socket, clock, wait);
        match self.socket_kind {
            UnixSocketKind::Stream => Box::new(link),
            _ => Box::new(DatagramLink::new(link, OffloadOptions::NONE, VecDeque::new())),
        }
    }
}

/// Kernel default of `net.core.wmem_default`.
const DEFAULT_BUFFER_BYTES: usize = 212_992;

/// The part of the send buffer that `unix_dgram_sendmsg` of net/unix/af_unix.c reserves.
const SEND_BUFFER_OVERHEAD_BYTES: usize = 32;

/// Maximum message size: a larger message needs a larger block of memory than the kernel allocates (found by experiment, Linux
/// 6.18).
const MAX_MESSAGE_BYTES: usize = 4 << 20;

/// A socket file of this process, removed with its listener.
pub(crate) struct BoundFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl BoundFile {
    fn of_path(path: &Path) -> Option<BoundFile> {
        Some(BoundFile { path: path.to_owned(), identity: system::file_identity(path)? })
    }
}

impl Drop for BoundFile {
    fn drop(&mut self) {
        // Another process may have replaced the file meanwhile.
        if system::file_identity(&self.path) == Some(self.identity) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// An address of this family in the form of an endpoint; `None` for a socket without a name.
pub(crate) fn address_text(address: &SockAddr) -> Option<String> {
    if let Some(path) = system::unix_path(address) {
        return Some(path.display().to_string());
    }
    system::abstract_name(address).map(|name| format!("@{}", name.escape_ascii()))
}

fn facts(socket: &Socket, facts: &mut Facts) {
    let addresses = [("local", socket.local_addr()), ("remote", socket.peer_addr())];
    for (fact, address) in addresses {
        if let Some(name) = address.ok().as_ref().and_then(address_text) {
            facts.insert(fact.to_owned(), name.into());
        }
    }
    if let Some(process) = system::remote_process(socket) {
        facts.insert("remote_process".to_owned(), process.into());
    }
}

fn open(endpoint: &Endpoint, context: &OpenContext) -> Result<Box<dyn Link>, Fault> {
    let options = Options::from_endpoint(endpoint)?;
    if options.socket_kind == UnixSocketKind::Datagram {
        return datagram::open(&options, context);
    }
    let socket = options.open_socket()?;
    // If a server does not accept, connect waits as long as a send may.
    socket
        .set_write_timeout(Some(context.timeout.max(Duration::from_micros(1))))
        .map_err(Fault::system("set a timeout"))?;
    match socket.connect(&options.socket_address()?) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(Fault::TimedOut),
        done => done.map_err(Fault::system("connect"))?,
    }
    Ok(options.make_link(socket, &context.clock, context.wait))
}

fn listen(endpoint: &Endpoint, context: &OpenContext) -> Result<Box<dyn Listener>, Fault> {
    let options = Options::from_endpoint(endpoint)?;
    if options.socket_kind == UnixSocketKind::Datagram {
        return datagram::listen(endpoint, options, context);
    }
    let (socket, file) = options.bind_socket()?;
    socket::listen(&socket, LISTEN_BACKLOG).map_err(Fault::system("listen"))?;
    let (clock, wait) = (context.clock.clone(), context.wait);
    let admit = move |socket: Socket, _: &SockAddr| -> AcceptResult {
        // The file is removed with the listener.
        let _file = &file;
        options.buffers.apply(&socket)?;
        let from = match system::remote_process(&socket) {
            Some(process) => format!("process {process}"),
            None => "a process elsewhere".to_owned(),
        };
        Ok((options.make_link(socket, &clock, wait), Some(from)))
    };
    Ok(Box::new(SocketListener { socket, endpoint: endpoint.clone(), make_link: admit }))
}
