//! `vsock://cid:port`: a stream between a virtual machine and its host, or within one machine (CID 1).
//!
//! There are no names: the host assigns a number (CID) to each guest.

use std::io;

use socket2::{SockAddr, Socket};

use super::socket::{self, AcceptResult, LISTEN_BACKLOG, SocketLink, SocketListener};
use crate::link::{Caps, Facts, Fault, Limitation, Link, Listener, OpenContext, Transport};
use linkgauge_model::clock::Clock;
use linkgauge_model::endpoint::{DEFAULT_PORT, Endpoint, EndpointError};
use linkgauge_model::plan::WaitMode;
use linkgauge_model::units;
use linkgauge_system::{self as system, Errno};

pub(crate) const TRANSPORT: Transport = Transport {
    scheme: "vsock",
    summary: "stream between a virtual machine and its host (vsock)",
    example: "vsock://host:7100",
    options: &[("buffer", "receive buffer in bytes, 1 to 1Gi (256Ki)")],
    parse_caps: |endpoint| Options::from_endpoint(endpoint).map(|_| Caps::STREAM),
    resolve: None,
    available: || {
        system::vsock_socket().map(|_| ()).map_err(|error| {
            Limitation::from_socket_error(
                &error,
                "the kernel has no vsock, or has not loaded it",
                LOAD_MODULE_HINT,
            )
        })
    },
    limitation: || None,
    open,
    begin_open: None,
    listen: Some(listen),
    loopback_urls: |_| vec!["vsock://local:0".to_owned()],
};

/// The modules that carry vsock, by location.
const LOAD_MODULE_HINT: &str = "sudo modprobe vsock_loopback (within this machine), vhost_vsock (to its guests) or \
                    vmw_vsock_virtio_transport (in a guest)";

/// A parsed endpoint of this transport.
#[derive(Clone, Copy)]
struct Options {
    cid: u32,
    port: Option<u32>,
    buffer_bytes: Option<u64>,
}

impl Options {
    fn from_endpoint(endpoint: &Endpoint) -> Result<Options, EndpointError> {
        let address = endpoint.address();
        let (cid, port) = address.split_once(':').map_or((address, None), |(cid, port)| (cid, Some(port)));
        let cid = match cid {
            "any" => Some(system::VSOCK_ANY_CID),
            "local" => Some(system::VSOCK_LOCAL_CID),
            "host" => Some(system::VSOCK_HOST_CID),
            number => number.parse().ok(),
        };
        let port = port.map(|port| port.parse().ok()).map_or(Some(None), |port| port.map(Some));
        let (Some(cid), Some(port)) = (cid, port) else {
            return Err(EndpointError::BadAddress {
                url: endpoint.to_string(),
                wanted: "cid:port, two numbers like vsock://3:7100; local, host and any are CIDs too",
            });
        };
        let buffer = endpoint.parse_option("buffer", "a size from 1 to 1Gi bytes", |text| {
            units::parse_bytes(text).ok().filter(|size| (1..=1 << 30).contains(size))
        })?;
        Ok(Options { cid, port, buffer_bytes: buffer })
    }

    fn port_or_default(&self, context: &OpenContext) -> u32 {
        self.port.unwrap_or_else(|| context.default_port.unwrap_or(DEFAULT_PORT).into())
    }

    fn open_socket(&self) -> Result<Socket, Fault> {
        let socket = system::vsock_socket().map_err(Fault::system("open a vsock socket"))?;
        if let Some(bytes) = self.buffer_bytes {
            system::set_vsock_buffer(&socket, bytes).map_err(Fault::system("set the buffer"))?;
        }
        Ok(socket)
    }

    /// The fault for a failed system call.
    fn syscall_fault(&self, operation: &'static str, error: io::Error) -> Fault {
        let errno = Errno::from_io_error(&error);
        // Connection refused: this family reports it as a reset.
        if errno == Some(Errno::CONNRESET) {
            return Fault::System { operation, source: io::ErrorKind::ConnectionRefused.into() };
        }
        // Within a machine the reply is immediate; if another module is loaded instead, it drops such
        // packets.
        let dropped = self.cid == system::VSOCK_LOCAL_CID && error.kind() == io::ErrorKind::TimedOut;
        if dropped || matches!(errno, Some(Errno::NODEV | Errno::ADDRNOTAVAIL)) {
            return Fault::Unsupported(format!(
                "{operation}: no vsock transport for CID {}. Load its module: {LOAD_MODULE_HINT}",
                self.cid
            ));
        }
        Fault::System { operation, source: error }
    }
}

/// An address in the form of an endpoint.
fn address_text(address: &SockAddr) -> Option<String> {
    system::vsock_cid_port(address).map(|(cid, port)| format!("{cid}:{port}"))
}

fn facts(socket: &Socket, facts: &mut Facts) {
    for (fact, address) in [("local", socket.local_addr()), ("remote", socket.peer_addr())] {
        facts.extend(address.ok().as_ref().and_then(address_text).map(|text| (fact.to_owned(), text.into())));
    }
    facts.extend(system::vsock_buffer(socket).map(|bytes| ("vsock_buffer_bytes".to_owned(), bytes.into())));
}

fn open(endpoint: &Endpoint, context: &OpenContext) -> Result<Box<dyn Link>, Fault> {
    let options = Options::from_endpoint(endpoint)?;
    if options.cid == system::VSOCK_ANY_CID {
        return Err(Fault::Invalid("'any' is only for listening. Name a CID, local or host".to_owned()));
    }
    let socket = options.open_socket()?;
    let address = system::vsock_address(options.cid, options.port_or_default(context));
    socket
        .connect_timeout(&address, context.timeout)
        .map_err(|error| options.syscall_fault("connect", error))?;
    Ok(make_link(socket, &context.clock, context.wait))
}

fn make_link(socket: Socket, clock: &Clock, wait: WaitMode) -> Box<dyn Link> {
    Box::new(SocketLink::new(socket, Caps::STREAM, clock, wait, facts))
}

fn listen(endpoint: &Endpoint, context: &OpenContext) -> Result<Box<dyn Listener>, Fault> {
    let options = Options::from_endpoint(endpoint)?;
    let socket = options.open_socket()?;
    let port = match options.port_or_default(context) {
        0 => system::VSOCK_ANY_PORT,
        port => port,
    };
    socket
        .bind(&system::vsock_address(options.cid, port))
        .map_err(|error| options.syscall_fault("bind", error))?;
    socket::listen(&socket, LISTEN_BACKLOG).map_err(|error| options.syscall_fault("listen", error))?;
    let bound = socket.local_addr().ok().and_then(|address| system::vsock_cid_port(&address));
    let port = bound.map_or(port, |(_, port)| port);
    let address = endpoint.address();
    let cid = address.split_once(':').map_or(address, |(cid, _)| cid);
    let tail = endpoint.as_str().find('?').map_or("", |at| &endpoint.as_str()[at..]);
    let endpoint = format!("{}://{cid}:{port}{tail}", endpoint.scheme()).parse()?;
    let (clock, wait) = (context.clock.clone(), context.wait);
    let admit = move |socket, from: &SockAddr| -> AcceptResult {
        Ok((make_link(socket, &clock, wait), address_text(from)))
    };
    Ok(Box::new(SocketListener { socket, endpoint, make_link: admit }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_within_the_machine_is_a_missing_module() {
        let message_of = |url: &str| {
            let options = Options::from_endpoint(&url.parse().unwrap()).unwrap();
            options.syscall_fault("connect", io::ErrorKind::TimedOut.into()).to_string()
        };
        assert!(
            message_of("vsock://local")
                .contains("no vsock transport for CID 1. Load its module: sudo modprobe vsock_loopback")
        );
        assert!(!message_of("vsock://3").contains("modprobe"));
    }

    #[test]
    fn reads_numbers_and_words() {
        let read = |text: &str| {
            Options::from_endpoint(&text.parse().unwrap()).map(|options| (options.cid, options.port))
        };
        assert_eq!(read("vsock://3:7100"), Ok((3, Some(7100))));
        assert_eq!(read("vsock://4294967294:4294967294"), Ok((u32::MAX - 1, Some(u32::MAX - 1))));
        assert_eq!(read("vsock://host"), Ok((2, None)));
        assert_eq!(read("vsock://local:1"), Ok((1, Some(1))));
        assert_eq!(read("vsock://any:1"), Ok((u32::MAX, Some(1))));
        for wrong in
            ["vsock://guest:1", "vsock://3:", "vsock://3:4294967296", "vsock://-1:7", "vsock://3:7:8"]
        {
            let error = read(wrong).unwrap_err().to_string();
            assert!(error.contains("needed is cid:port"), "{error}");
        }
    }
}
