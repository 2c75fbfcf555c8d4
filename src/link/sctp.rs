//! `sctp://host:port`: an SCTP association over IPv4 or IPv6, in the one-to-one style: messages with their bounds, in order.
//!
//! One stream of the association is used. SCTP knows no half-closed state: an end that has finished hears what was on its
//! way to it, and the other end can send no more.

use std::io::IoSliceMut;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::net::{RecvAncillaryBuffer, RecvFlags, ReturnFlags, recvmsg};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::internet::{self, IpOptions, addresses};
use super::party::Tuning;
use super::socket::{self, Admitted, BACKLOG, Buffers, SocketLink, SocketListener, Wants, flag};
use super::{Caps, Facts, Fault, Framing, Link, Listener, Opening, Transport, Unavailable, sys};
use crate::clock::{Clock, Time};
use crate::endpoint::{Endpoint, EndpointError};
use crate::plan::Wait;

pub const TRANSPORT: Transport = Transport {
    scheme: "sctp",
    summary: "SCTP over IPv4 or IPv6, one association with message bounds",
    example: "sctp://192.0.2.7:7100",
    options: &[
        ("nodelay", "1 (default) sends at once, 0 lets the kernel gather small messages (Nagle)"),
        ("sndbuf", "send buffer in bytes (the kernel's choice)"),
        ("rcvbuf", "receive buffer in bytes (the kernel's choice)"),
        internet::FAMILY,
        internet::BIND,
        internet::DEVICE,
        internet::DSCP,
    ],
    check: |endpoint| Options::of(endpoint).map(|_| CAPS),
    available: || {
        Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::SCTP)).map(|_| ()).map_err(|error| {
            Unavailable::by(
                &error,
                "the kernel has no SCTP, or has not loaded it",
                "sudo modprobe sctp (Debian and Ubuntu: in linux-modules-extra where it is missing)",
            )
        })
    },
    limit: || None,
    open,
    listen: Some(listen),
    loopback: |_| {
        ["sctp://127.0.0.1:0", "sctp://[::1]:0", "sctp://127.0.0.1:0?rcvbuf=16Ki&dscp=EF&device=lo"]
            .map(str::to_owned)
            .to_vec()
    },
};

/// A third of the buffers that kernels come with (`net.core.rmem_default`): a message fits its receiver's window whole.
const MAX_MESSAGE: usize = 65_536;

const CAPS: Caps =
    Caps { framing: Framing::Message, max_message: Some(MAX_MESSAGE), half_closes: false, ..Caps::STREAM };

struct Options {
    nodelay: bool,
    ip: IpOptions,
    buffers: Buffers,
}

impl Options {
    fn of(endpoint: &Endpoint) -> Result<Options, EndpointError> {
        endpoint.host_port()?;
        Ok(Options {
            nodelay: flag(endpoint, "nodelay")?.unwrap_or(true),
            ip: IpOptions::of(endpoint)?,
            buffers: Buffers::of(endpoint)?,
        })
    }

    fn socket(&self, address: SocketAddr) -> Result<Socket, Fault> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::SCTP))
            .map_err(Fault::system("open an SCTP socket"))?;
        self.ip.apply(&socket, address.ip())?;
        self.apply(&socket)?;
        Ok(socket)
    }

    fn apply(&self, socket: &Socket) -> Result<(), Fault> {
        self.buffers.apply(socket)?;
        sys::set_sctp_nodelay(socket, self.nodelay).map_err(Fault::system("set SCTP_NODELAY"))
    }
}

fn open(endpoint: &Endpoint, opening: &Opening) -> Result<Box<dyn Link>, Fault> {
    let options = Options::of(endpoint)?;
    let mut last = Fault::TimedOut;
    for address in addresses(endpoint, opening, false)? {
        let socket = options.socket(address)?;
        options.ip.bind(&socket, address)?;
        match socket.connect_timeout(&address.into(), opening.within) {
            Ok(()) => return Ok(Box::new(SctpLink::new(socket, &opening.clock, opening.wait))),
            Err(error) => last = Fault::System { operation: "connect", source: error },
        }
    }
    Err(last)
}

fn facts(socket: &Socket, facts: &mut Facts) {
    internet::facts(socket, facts);
    let Some(status) = sys::sctp_status(socket) else { return };
    facts.insert("path_mtu_bytes".to_owned(), status.path_mtu.into());
    facts.insert("fragment_bytes".to_owned(), status.fragment_bytes.into());
}

struct SctpLink {
    inner: SocketLink,
    /// The beginning of a message that the kernel hands over in pieces.
    begun: Vec<u8>,
}

impl SctpLink {
    fn new(socket: Socket, clock: &Clock, wait: Wait) -> SctpLink {
        SctpLink { inner: SocketLink::new(socket, CAPS, clock, wait, facts), begun: Vec::new() }
    }

    /// A piece of a message, and whether it is its last.
    #[inline]
    fn piece(&mut self, into: &mut [u8], within: Duration) -> Result<(usize, bool), Fault> {
        let (length, last) = self.inner.attempt(Wants::ToReceive, within, |socket, may_block| {
            let flags = if may_block { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
            let came =
                recvmsg(socket, &mut [IoSliceMut::new(into)], &mut RecvAncillaryBuffer::default(), flags)?;
            Ok((came.bytes, came.flags.contains(ReturnFlags::EOR)))
        })?;
        if length == 0 && !into.is_empty() { Err(Fault::Closed) } else { Ok((length, last)) }
    }
}

impl Link for SctpLink {
    fn caps(&self) -> &Caps {
        self.inner.caps()
    }

    fn facts(&self) -> Facts {
        self.inner.facts()
    }

    fn tune(&mut self, tuning: &Tuning) {
        self.inner.tune(tuning);
    }

    #[inline]
    fn send(&mut self, bytes: &[u8], within: Duration) -> Result<usize, Fault> {
        self.inner.send(bytes, within)
    }

    fn receive(&mut self, into: &mut [u8], within: Duration) -> Result<usize, Fault> {
        let mut until: Option<Time> = None;
        let mut left = within;
        loop {
            let (length, last) = self.piece(into, left)?;
            if last && self.begun.is_empty() {
                return Ok(length);
            }
            // It is longer than `into`, or the kernel had to make room before all of it was there.
            let room = MAX_MESSAGE.saturating_sub(self.begun.len());
            self.begun.extend_from_slice(&into[..length.min(room)]);
            if last {
                let length = self.begun.len().min(into.len());
                into[..length].copy_from_slice(&self.begun[..length]);
                self.begun.clear();
                return Ok(length);
            }
            let now = self.inner.clock.now();
            left = *until.get_or_insert(now + within) - now;
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inner.descriptor()
    }

    fn other_half(&self) -> Result<Box<dyn Link>, Fault> {
        Ok(Box::new(SctpLink { inner: self.inner.half()?, begun: Vec::new() }))
    }

    fn polled(&self) -> Duration {
        self.inner.polled()
    }

    fn finish(&mut self) -> Result<(), Fault> {
        // What is on its way to this end still comes.
        self.inner.shut(Shutdown::Write)
    }

    fn hung_up(&self) -> bool {
        self.inner.hung_up()
    }
}

fn listen(endpoint: &Endpoint, opening: &Opening) -> Result<Box<dyn Listener>, Fault> {
    let options = Options::of(endpoint)?;
    options.ip.check_listens()?;
    let address = addresses(endpoint, opening, true)?[0];
    let socket = options.socket(address)?;
    socket.set_reuse_address(true).map_err(Fault::system("set SO_REUSEADDR"))?;
    socket.bind(&address.into()).map_err(Fault::system("bind"))?;
    socket::listen(&socket, BACKLOG).map_err(Fault::system("listen"))?;
    let endpoint = endpoint.with_port(internet::port(&socket))?;
    let (clock, wait) = (opening.clock.clone(), opening.wait);
    let admit = move |socket: Socket, from: &SockAddr| -> Admitted {
        options.apply(&socket)?;
        Ok((Box::new(SctpLink::new(socket, &clock, wait)), internet::text(from)))
    };
    Ok(Box::new(SocketListener { socket, endpoint, admit }))
}
