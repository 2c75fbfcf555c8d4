//! `l2cap://AA:BB:CC:DD:EE:FF/4097`: messages over a Bluetooth channel, the layer below RFCOMM.

use socket2::{SockAddr, Socket};

use super::bluetooth::{self, AdapterSelector, BluetoothAddress, BluetoothProtocol};
use super::socket::{self, AcceptResult, SocketLink, SocketListener};
use crate::link::{Caps, Facts, Fault, Framing, Link, Listener, OpenContext, Transport};
use linkgauge_model::clock::Clock;
use linkgauge_model::endpoint::{Endpoint, EndpointError};
use linkgauge_model::plan::WaitMode;
use linkgauge_model::units;
use linkgauge_system as system;

pub(crate) const TRANSPORT: Transport = Transport {
    scheme: "l2cap",
    summary: "Bluetooth messages (L2CAP)",
    example: "l2cap://00:1A:7D:DA:71:13/4097",
    options: &[
        bluetooth::ADAPTER_OPTION,
        ("mtu", "largest message, 48 to 65535 bytes; both ends must name it (672)"),
        ("mode", "basic (default), or ertm, which retransmits lost data; both ends must set it"),
    ],
    parse_caps: |endpoint| Options::from_endpoint(endpoint).map(|options| options.caps()),
    resolve: None,
    available: || bluetooth::available(BluetoothProtocol::L2cap, "bluetooth"),
    limitation: bluetooth::limitation,
    open,
    begin_open: None,
    listen: Some(listen),
    loopback_urls: |_| {
        let pairs = bluetooth::loopback_urls("l2cap");
        let all = |url: &String| ["", "&mtu=4096", "&mode=ertm"].map(|options| format!("{url}{options}"));
        pairs.iter().flat_map(all).collect()
    },
};

/// Default of a channel (Bluetooth Core, volume 3, part A).
const DEFAULT_MTU: u16 = 672;
const MIN_MTU: u16 = 48;

#[derive(Clone, Copy)]
struct Options {
    device: BluetoothAddress,
    psm: u16,
    adapter: Option<AdapterSelector>,
    mtu: u16,
    mode: L2capMode,
}

/// Numbers of the kernel's l2cap.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum L2capMode {
    /// Messages are dropped if the receiver's socket is full.
    Basic = 0,
    /// Enhanced retransmission.
    Ertm = 3,
}

impl Options {
    fn from_endpoint(endpoint: &Endpoint) -> Result<Options, EndpointError> {
        const WANTED: &str = "an address and a PSM, like l2cap://00:1A:7D:DA:71:13/4097: odd, and its second byte even; \
                              to listen, the adapter's address or any, and PSM 0 for a free one";
        let (device, psm) = bluetooth::parse_device_and_number(endpoint, WANTED)?;
        // The first byte of a number must be odd and the second even (Core, volume 3, part A, 4.2).
        if psm != 0 && psm & 0x0101 != 0x0001 {
            return Err(EndpointError::BadAddress { url: endpoint.to_string(), wanted: WANTED });
        }
        let mtu = endpoint.parse_option("mtu", "a size from 48 to 65535 bytes", |text| {
            u16::try_from(units::parse_bytes(text).ok()?).ok().filter(|mtu| *mtu >= MIN_MTU)
        })?;
        let mode = endpoint.parse_option("mode", "basic or ertm", |text| match text {
            "basic" => Some(L2capMode::Basic),
            "ertm" => Some(L2capMode::Ertm),
            _ => None,
        })?;
        let (mtu, mode) = (mtu.unwrap_or(DEFAULT_MTU), mode.unwrap_or(L2capMode::Basic));
        Ok(Options { device, psm, adapter: AdapterSelector::from_endpoint(endpoint)?, mtu, mode })
    }

    fn caps(&self) -> Caps {
        Caps {
            framing: Framing::Message,
            max_message_bytes: Some(self.mtu.into()),
            can_half_close: false,
            is_reliable: self.mode == L2capMode::Ertm,
            ..Caps::STREAM
        }
    }

    fn psm_text(&self) -> String {
        format!("PSM {}", self.psm)
    }

    fn open_socket(&self) -> Result<Socket, Fault> {
        let socket = bluetooth::open_socket(BluetoothProtocol::L2cap)
            .map_err(Fault::system("open an L2CAP socket"))?;
        if (self.mtu, self.mode) != (DEFAULT_MTU, L2capMode::Basic) {
            system::set_l2cap_options(&socket, self.mtu, self.mode as u8)
                .map_err(Fault::system("set MTU and mode"))?;
        }
        Ok(socket)
    }
}

/// `sockaddr_l2` of the kernel: no channel, a classic address.
fn socket_address(device: BluetoothAddress, psm: u16) -> SockAddr {
    bluetooth::socket_address(&psm.to_le_bytes(), device, &[0; 4])
}

/// Formats an address like an endpoint.
fn address_text(address: &SockAddr) -> Option<String> {
    let (device, before, _) = bluetooth::split_address(address, 2)?;
    Some(format!("{device}/{}", u16::from_le_bytes(before.try_into().ok()?)))
}

fn facts(socket: &Socket, facts: &mut Facts) {
    bluetooth::facts(socket, address_text, 2, facts);
    let Some((outward, inward)) = system::l2cap_mtus(socket) else { return };
    facts.insert("mtu_bytes".to_owned(), outward.into());
    facts.insert("receive_mtu_bytes".to_owned(), inward.into());
}

fn open(endpoint: &Endpoint, context: &OpenContext) -> Result<Box<dyn Link>, Fault> {
    let options = Options::from_endpoint(endpoint)?;
    if options.device == bluetooth::ANY_ADDRESS || options.psm == 0 {
        return Err(Fault::Invalid("name the device and one of its PSMs".to_owned()));
    }
    connect(options, context)
}

/// A link with default options, which RFCOMM uses for service discovery.
pub(crate) fn connect_default(
    device: BluetoothAddress,
    psm: u16,
    adapter: Option<AdapterSelector>,
    context: &OpenContext,
) -> Result<Box<dyn Link>, Fault> {
    connect(Options { device, psm, adapter, mtu: DEFAULT_MTU, mode: L2capMode::Basic }, context)
}

fn connect(options: Options, context: &OpenContext) -> Result<Box<dyn Link>, Fault> {
    let socket = options.open_socket()?;
    if let Some(adapter) = options.adapter {
        let bound = socket.bind(&socket_address(adapter.address()?, 0));
        bound.map_err(|error| bluetooth::fault("bind", &options.psm_text(), error))?;
    }
    let remote = socket_address(options.device, options.psm);
    socket
        .connect_timeout(&remote, context.timeout)
        .map_err(|error| bluetooth::fault("connect", &options.psm_text(), error))?;
    Ok(make_link(socket, options, &context.clock, context.wait))
}

fn make_link(socket: Socket, options: Options, clock: &Clock, wait: WaitMode) -> Box<dyn Link> {
    Box::new(SocketLink::new(socket, options.caps(), clock, wait, facts))
}

fn listen(endpoint: &Endpoint, context: &OpenContext) -> Result<Box<dyn Listener>, Fault> {
    let options = Options::from_endpoint(endpoint)?;
    let socket = options.open_socket()?;
    let fault = |operation| move |error| bluetooth::fault(operation, &options.psm_text(), error);
    socket.bind(&socket_address(options.device, options.psm)).map_err(fault("bind"))?;
    socket::listen(&socket, LISTEN_BACKLOG).map_err(fault("listen"))?;
    let bound = socket.local_addr().ok().as_ref().and_then(|address| bluetooth::split_address(address, 2));
    let psm = bound.and_then(|(_, before, _)| Some(u16::from_le_bytes(before.try_into().ok()?)));
    let endpoint = bluetooth::with_number(endpoint, psm.unwrap_or(options.psm))?;
    let (clock, wait) = (context.clock.clone(), context.wait);
    let admit = move |socket, from: &SockAddr| -> AcceptResult {
        Ok((make_link(socket, options, &clock, wait), address_text(from)))
    };
    Ok(Box::new(SocketListener { socket, endpoint, make_link: admit }))
}

/// Capacity for a burst of clients.
const LISTEN_BACKLOG: i32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_an_address_and_a_psm() {
        let read = |text: &str| {
            Options::from_endpoint(&text.parse().unwrap())
                .map(|options| (options.device, options.psm, options.mtu))
        };
        let device = "00:1A:7D:DA:71:13".parse().unwrap();
        assert_eq!(read("l2cap://00:1A:7D:DA:71:13/4097"), Ok((device, 4097, 672)));
        assert_eq!(read("l2cap://any/0?mtu=65535"), Ok((bluetooth::ANY_ADDRESS, 0, 65_535)));
        for wrong in ["l2cap://any/4096", "l2cap://any/257", "l2cap://any", "l2cap://any/1?mtu=47"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        assert_eq!(address_text(&socket_address(device, 4097)).unwrap(), "00:1A:7D:DA:71:13/4097");
    }
}
