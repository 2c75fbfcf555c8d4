//! `l2cap://AA:BB:CC:DD:EE:FF/4097`: messages over a Bluetooth channel, the layer below RFCOMM.

use socket2::{SockAddr, Socket};

use super::bluetooth::{self, Adapter, Address, Speaks};
use super::socket::{self, Admitted, SocketLink, SocketListener};
use super::{Caps, Facts, Fault, Framing, Link, Listener, Opening, Transport, sys};
use crate::clock::Clock;
use crate::endpoint::{Endpoint, EndpointError};
use crate::plan::Wait;
use crate::units;

pub const TRANSPORT: Transport = Transport {
    scheme: "l2cap",
    summary: "Bluetooth messages (L2CAP)",
    example: "l2cap://00:1A:7D:DA:71:13/4097",
    options: &[
        bluetooth::ADAPTER,
        ("mtu", "largest message, 48 to 65535 bytes; both ends must name it (672)"),
        ("mode", "basic (default), or ertm, which sends again what got lost; both ends must name it"),
    ],
    check: |endpoint| Options::of(endpoint).map(|options| options.caps()),
    available: || bluetooth::available(Speaks::L2cap, "bluetooth"),
    limit: bluetooth::limit,
    open,
    listen: Some(listen),
    loopback: |_| {
        let pairs = bluetooth::pairs("l2cap");
        let all = |url: &String| ["", "&mtu=4096", "&mode=ertm"].map(|options| format!("{url}{options}"));
        pairs.iter().flat_map(all).collect()
    },
};

/// Of a channel where nobody asks for another (Bluetooth Core, volume 3, part A).
const DEFAULT_MTU: u16 = 672;
const LEAST_MTU: u16 = 48;

#[derive(Clone, Copy)]
struct Options {
    device: Address,
    psm: u16,
    adapter: Option<Adapter>,
    mtu: u16,
    mode: Mode,
}

/// Numbers of the kernel's l2cap.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// What finds the receiver's socket full is dropped.
    Basic = 0,
    /// Enhanced retransmission.
    Ertm = 3,
}

impl Options {
    fn of(endpoint: &Endpoint) -> Result<Options, EndpointError> {
        const WANTED: &str = "an address and a PSM, like l2cap://00:1A:7D:DA:71:13/4097: odd, and its second byte even; \
                              to listen, the adapter's address or any, and PSM 0 for a free one";
        let (device, psm) = bluetooth::place(endpoint, WANTED)?;
        // An odd first byte ends the number, an even second one does not go on (Core, volume 3, part A, 4.2).
        if psm != 0 && psm & 0x0101 != 0x0001 {
            return Err(EndpointError::BadPlace { url: endpoint.to_string(), wanted: WANTED });
        }
        let mtu = endpoint.parsed("mtu", "a size from 48 to 65535 bytes", |text| {
            u16::try_from(units::bytes(text).ok()?).ok().filter(|mtu| *mtu >= LEAST_MTU)
        })?;
        let mode = endpoint.parsed("mode", "basic or ertm", |text| match text {
            "basic" => Some(Mode::Basic),
            "ertm" => Some(Mode::Ertm),
            _ => None,
        })?;
        let (mtu, mode) = (mtu.unwrap_or(DEFAULT_MTU), mode.unwrap_or(Mode::Basic));
        Ok(Options { device, psm, adapter: Adapter::of(endpoint)?, mtu, mode })
    }

    fn caps(&self) -> Caps {
        Caps {
            framing: Framing::Message,
            max_message: Some(self.mtu.into()),
            half_closes: false,
            reliable: self.mode == Mode::Ertm,
            ..Caps::STREAM
        }
    }

    fn name(&self) -> String {
        format!("PSM {}", self.psm)
    }

    fn socket(&self) -> Result<Socket, Fault> {
        let socket = bluetooth::socket(Speaks::L2cap).map_err(Fault::system("open an L2CAP socket"))?;
        if (self.mtu, self.mode) != (DEFAULT_MTU, Mode::Basic) {
            sys::set_l2cap(&socket, self.mtu, self.mode as u8).map_err(Fault::system("set MTU and mode"))?;
        }
        Ok(socket)
    }
}

/// `sockaddr_l2` of the kernel: no channel, an address of the classic kind.
fn address(device: Address, psm: u16) -> SockAddr {
    bluetooth::socket_address(&psm.to_le_bytes(), device, &[0; 4])
}

/// As one would type it.
fn text(address: &SockAddr) -> Option<String> {
    let (device, before, _) = bluetooth::device_of(address, 2)?;
    Some(format!("{device}/{}", u16::from_le_bytes(before.try_into().ok()?)))
}

fn facts(socket: &Socket, facts: &mut Facts) {
    bluetooth::facts(socket, text, 2, facts);
    let Some((outward, inward)) = sys::l2cap_mtu(socket) else { return };
    facts.insert("mtu_bytes".to_owned(), outward.into());
    facts.insert("receive_mtu_bytes".to_owned(), inward.into());
}

fn open(endpoint: &Endpoint, opening: &Opening) -> Result<Box<dyn Link>, Fault> {
    let options = Options::of(endpoint)?;
    if options.device == bluetooth::ANY || options.psm == 0 {
        return Err(Fault::Other("name the device and one of its PSMs".to_owned()));
    }
    connect(options, opening)
}

/// A link as it is where nobody asks for more, for what RFCOMM needs beside it.
pub fn plain(
    device: Address,
    psm: u16,
    adapter: Option<Adapter>,
    opening: &Opening,
) -> Result<Box<dyn Link>, Fault> {
    connect(Options { device, psm, adapter, mtu: DEFAULT_MTU, mode: Mode::Basic }, opening)
}

fn connect(options: Options, opening: &Opening) -> Result<Box<dyn Link>, Fault> {
    let socket = options.socket()?;
    if let Some(adapter) = options.adapter {
        let bound = socket.bind(&address(adapter.address()?, 0));
        bound.map_err(|error| bluetooth::fault("bind", &options.name(), error))?;
    }
    let far = address(options.device, options.psm);
    socket
        .connect_timeout(&far, opening.within)
        .map_err(|error| bluetooth::fault("connect", &options.name(), error))?;
    Ok(link(socket, options, &opening.clock, opening.wait))
}

fn link(socket: Socket, options: Options, clock: &Clock, wait: Wait) -> Box<dyn Link> {
    Box::new(SocketLink::new(socket, options.caps(), clock, wait, facts))
}

fn listen(endpoint: &Endpoint, opening: &Opening) -> Result<Box<dyn Listener>, Fault> {
    let options = Options::of(endpoint)?;
    let socket = options.socket()?;
    let fault = |operation| move |error| bluetooth::fault(operation, &options.name(), error);
    socket.bind(&address(options.device, options.psm)).map_err(fault("bind"))?;
    socket::listen(&socket, BACKLOG).map_err(fault("listen"))?;
    let bound = socket.local_addr().ok().as_ref().and_then(|address| bluetooth::device_of(address, 2));
    let psm = bound.and_then(|(_, before, _)| Some(u16::from_le_bytes(before.try_into().ok()?)));
    let endpoint = bluetooth::with_number(endpoint, psm.unwrap_or(options.psm))?;
    let (clock, wait) = (opening.clock.clone(), opening.wait);
    let admit =
        move |socket, from: &SockAddr| -> Admitted { Ok((link(socket, options, &clock, wait), text(from))) };
    Ok(Box::new(SocketListener { socket, endpoint, admit }))
}

/// Room for a burst of clients.
const BACKLOG: i32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_an_address_and_a_psm() {
        let read = |text: &str| {
            Options::of(&text.parse().unwrap()).map(|options| (options.device, options.psm, options.mtu))
        };
        let device = "00:1A:7D:DA:71:13".parse().unwrap();
        assert_eq!(read("l2cap://00:1A:7D:DA:71:13/4097"), Ok((device, 4097, 672)));
        assert_eq!(read("l2cap://any/0?mtu=65535"), Ok((bluetooth::ANY, 0, 65_535)));
        for wrong in ["l2cap://any/4096", "l2cap://any/257", "l2cap://any", "l2cap://any/1?mtu=47"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        assert_eq!(text(&address(device, 4097)).unwrap(), "00:1A:7D:DA:71:13/4097");
    }
}
