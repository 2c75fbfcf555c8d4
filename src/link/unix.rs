//! `unix:///path` and `unix://@abstract`: sockets of this host, as stream, seqpacket or dgram.
//!
//! A file left by a dead server is replaced, a live server's is not. How dgram sockets, which have no connections, are
//! told apart stands in `unix_datagram`.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use socket2::{Domain, SockAddr, Socket, Type};

use super::datagram::DatagramLink;
use super::offload::Offload;
use super::socket::{self, Admitted, BACKLOG, Buffers, SocketLink, SocketListener};
use super::{
    Caps, Facts, Fault, Framing, Link, Listener, Opening, Transport, Unavailable, sys, unix_datagram,
};
use crate::clock::Clock;
use crate::endpoint::{Endpoint, EndpointError};
use crate::plan::Wait;

pub const TRANSPORT: Transport = Transport {
    scheme: "unix",
    summary: "Unix socket of this host, a file or an abstract name",
    example: "unix:///run/gauge.socket?type=seqpacket",
    options: &[
        ("type", "stream (default), dgram or seqpacket"),
        ("sndbuf", "send buffer in bytes, and with it the largest message (the kernel's choice)"),
        ("rcvbuf", "receive buffer in bytes (the kernel's choice)"),
    ],
    check: |endpoint| Options::of(endpoint).map(|options| options.likely_caps()),
    available: || {
        Socket::new(Domain::UNIX, Type::STREAM, None).map(|_| ()).map_err(|error| {
            Unavailable::by(
                &error,
                error.to_string(),
                "this process may not open Unix sockets: check the sandbox it runs in",
            )
        })
    },
    limit: || None,
    open,
    listen: Some(listen),
    loopback: |directory| {
        let variant = |(kind, abstracted)| match abstracted {
            false => format!("unix://{directory}/{kind}.socket?type={kind}"),
            // An abstract name belongs to the whole host; the directory's makes it as fresh as the directory.
            true => {
                format!("unix://@linkgauge-{}-{kind}?type={kind}", directory.replace('/', "-"))
            }
        };
        let kinds = ["stream", "dgram", "seqpacket"];
        kinds.iter().flat_map(|kind| [(kind, false), (kind, true)]).map(variant).collect()
    },
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Stream,
    Datagram,
    Sequenced,
}

/// An endpoint of this transport, read.
#[derive(Clone)]
pub struct Options {
    pub kind: Kind,
    /// What follows `@`, or the path.
    name: Name,
    pub buffers: Buffers,
}

#[derive(Clone)]
enum Name {
    Abstract(String),
    File(PathBuf),
}

/// `sun_path` holds 108 bytes: a path and its zero, or a zero and an abstract name.
const LONGEST_NAME: usize = 107;

impl Options {
    fn of(endpoint: &Endpoint) -> Result<Options, EndpointError> {
        let bad = |wanted| EndpointError::BadPlace { url: endpoint.to_string(), wanted };
        let place = endpoint.place();
        let name = match place.strip_prefix('@') {
            Some("") => return Err(bad("a name after '@'")),
            Some(name) => Name::Abstract(name.to_owned()),
            None if place.starts_with('/') => Name::File(place.into()),
            None => {
                return Err(bad(
                    "a path from the root, like unix:///run/socket, or an abstract name, like unix://@name",
                ));
            }
        };
        if place.trim_start_matches('@').len() > LONGEST_NAME {
            return Err(bad("a path or name of at most 107 bytes, as the kernel's address holds no more"));
        }
        let kind = endpoint.parsed("type", "stream, dgram or seqpacket", |text| match text {
            "stream" => Some(Kind::Stream),
            "dgram" => Some(Kind::Datagram),
            "seqpacket" => Some(Kind::Sequenced),
            _ => None,
        })?;
        Ok(Options { kind: kind.unwrap_or(Kind::Stream), name, buffers: Buffers::of(endpoint)? })
    }

    /// Before a socket tells what was granted.
    fn likely_caps(&self) -> Caps {
        // The kernel doubles what is asked for and grants at least this.
        let granted = self.buffers.send.map_or(USUAL_BUFFER, |bytes| (2 * bytes as usize).max(4608));
        self.caps(granted)
    }

    fn caps(&self, send_buffer: usize) -> Caps {
        if self.kind == Kind::Stream {
            return Caps::STREAM;
        }
        Caps {
            framing: Framing::Message,
            max_message: Some((send_buffer - OVERHEAD).min(LARGEST)),
            closes: self.kind == Kind::Sequenced,
            ..Caps::STREAM
        }
    }

    pub fn socket(&self) -> Result<Socket, Fault> {
        let kind = match self.kind {
            Kind::Stream => Type::STREAM,
            Kind::Datagram => Type::DGRAM,
            Kind::Sequenced => Type::SEQPACKET,
        };
        let socket = Socket::new(Domain::UNIX, kind, None).map_err(Fault::system("open a socket"))?;
        self.buffers.apply(&socket)?;
        Ok(socket)
    }

    pub fn address(&self) -> Result<SockAddr, Fault> {
        let address = match &self.name {
            Name::Abstract(name) => SockAddr::unix(format!("\0{name}")),
            Name::File(path) => SockAddr::unix(path),
        };
        address.map_err(Fault::system("make an address"))
    }

    /// Binds to the endpoint's address, in place of a dead server's file.
    pub fn bind(&self) -> Result<(Socket, Option<BoundFile>), Fault> {
        let (socket, address) = (self.socket()?, self.address()?);
        let mut bound = socket.bind(&address);
        let path = match &self.name {
            Name::Abstract(_) => None,
            Name::File(path) => Some(path),
        };
        if let Some(path) = path
            && matches!(&bound, Err(error) if error.kind() == io::ErrorKind::AddrInUse)
            && self.is_stale(path, &address)
        {
            fs::remove_file(path).map_err(Fault::system("remove the file of a dead server"))?;
            bound = socket.bind(&address);
        }
        bound.map_err(Fault::system("bind"))?;
        Ok((socket, path.and_then(|path| BoundFile::of(path))))
    }

    /// Whether the file is a socket that nobody listens on.
    fn is_stale(&self, path: &Path, address: &SockAddr) -> bool {
        let is_socket = fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
        let Ok(probe) = self.socket() else { return false };
        let refused = || {
            // A live server with a full queue must not keep us waiting.
            probe.set_nonblocking(true)?;
            probe.connect(address)
        };
        is_socket && matches!(refused(), Err(error) if error.kind() == io::ErrorKind::ConnectionRefused)
    }

    pub fn socket_link(&self, socket: Socket, clock: &Clock, wait: Wait) -> SocketLink {
        let buffer = socket.send_buffer_size().unwrap_or(USUAL_BUFFER);
        SocketLink::new(socket, self.caps(buffer), clock, wait, facts)
    }

    fn link(&self, socket: Socket, clock: &Clock, wait: Wait) -> Box<dyn Link> {
        let link = self.socket_link(socket, clock, wait);
        match self.kind {
            Kind::Stream => Box::new(link),
            _ => Box::new(DatagramLink::new(link, Offload::NONE, VecDeque::new())),
        }
    }
}

/// `net.core.wmem_default` as kernels come.
const USUAL_BUFFER: usize = 212_992;

/// What `unix_dgram_sendmsg` of net/unix/af_unix.c keeps of the send buffer for itself.
const OVERHEAD: usize = 32;

/// A message beyond this needs a larger piece of memory than the kernel gives out (found by trying, Linux 6.18).
const LARGEST: usize = 4 << 20;

/// A socket file of ours, removed when its listener goes.
pub struct BoundFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl BoundFile {
    fn of(path: &Path) -> Option<BoundFile> {
        Some(BoundFile { path: path.to_owned(), identity: identity(path)? })
    }
}

impl Drop for BoundFile {
    fn drop(&mut self) {
        // Somebody may have put another there meanwhile.
        if identity(&self.path) == Some(self.identity) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

/// An address of this family as one would type it; `None` for a socket without a name.
pub fn name_of(address: &SockAddr) -> Option<String> {
    if let Some(path) = address.as_pathname() {
        return Some(path.display().to_string());
    }
    address.as_abstract_namespace().map(|name| format!("@{}", name.escape_ascii()))
}

fn facts(socket: &Socket, facts: &mut Facts) {
    let addresses = [("local", socket.local_addr()), ("remote", socket.peer_addr())];
    for (fact, address) in addresses {
        if let Some(name) = address.ok().as_ref().and_then(name_of) {
            facts.insert(fact.to_owned(), name.into());
        }
    }
    if let Some(process) = sys::peer_process(socket) {
        facts.insert("peer_process".to_owned(), process.into());
    }
}

fn open(endpoint: &Endpoint, opening: &Opening) -> Result<Box<dyn Link>, Fault> {
    let options = Options::of(endpoint)?;
    if options.kind == Kind::Datagram {
        return unix_datagram::open(&options, opening);
    }
    let socket = options.socket()?;
    // A server that does not accept lets connect wait as long as a send may.
    socket
        .set_write_timeout(Some(opening.within.max(Duration::from_micros(1))))
        .map_err(Fault::system("set a time-out"))?;
    match socket.connect(&options.address()?) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(Fault::TimedOut),
        done => done.map_err(Fault::system("connect"))?,
    }
    Ok(options.link(socket, &opening.clock, opening.wait))
}

fn listen(endpoint: &Endpoint, opening: &Opening) -> Result<Box<dyn Listener>, Fault> {
    let options = Options::of(endpoint)?;
    if options.kind == Kind::Datagram {
        return unix_datagram::listen(endpoint, options, opening);
    }
    let (socket, file) = options.bind()?;
    socket::listen(&socket, BACKLOG).map_err(Fault::system("listen"))?;
    let (clock, wait) = (opening.clock.clone(), opening.wait);
    let admit = move |socket: Socket, _: &SockAddr| -> Admitted {
        // The file goes when nobody listens any more.
        let _file = &file;
        options.buffers.apply(&socket)?;
        let from = match sys::peer_process(&socket) {
            Some(process) => format!("process {process}"),
            None => "a process elsewhere".to_owned(),
        };
        Ok((options.link(socket, &clock, wait), Some(from)))
    };
    Ok(Box::new(SocketListener { socket, endpoint: endpoint.clone(), admit }))
}
