//! `rfcomm://AA:BB:CC:DD:EE:FF/1`: a stream over a Bluetooth channel, what serial adapters speak.

use std::io;
use std::time::Duration;

use rustix::io::Errno;
use socket2::{SockAddr, Socket};

use super::bluetooth::{self, Adapter, Address, Speaks};
use super::party::Tuning;
use super::socket::SocketLink;
use super::{Caps, Door, Facts, Fault, Link, Listener, Opening, Transport, line};
use crate::clock::Clock;
use crate::endpoint::{Endpoint, EndpointError};
use crate::plan::Wait;

pub const TRANSPORT: Transport = Transport {
    scheme: "rfcomm",
    summary: "Bluetooth serial channel (RFCOMM)",
    example: "rfcomm://00:1A:7D:DA:71:13/1",
    options: &[
        bluetooth::ADAPTER,
        ("baud", "a serial adapter is at the far end, with a line of this rate behind it"),
        line::DATA,
        line::PARITY,
        line::STOP,
        line::FLOW,
    ],
    check: |endpoint| Options::of(endpoint).and_then(|_| caps(endpoint)),
    available: || bluetooth::available(Speaks::Rfcomm, "rfcomm"),
    limit: bluetooth::limit,
    open,
    listen: Some(listen),
    loopback: |_| bluetooth::pairs("rfcomm"),
};

/// An unknown device may be at the far end, and of each channel there is one between two devices.
const CAPS: Caps = Caps { half_closes: false, many: false, device: true, ..Caps::STREAM };

/// The same, with the line behind it where the endpoint declares one.
fn caps(endpoint: &Endpoint) -> Result<Caps, EndpointError> {
    let line = line::Settings::declared(endpoint)?;
    Ok(line.map_or(CAPS, |line| line.caps()))
}

/// Most bytes given to the kernel at once: of 32 KiB and more, Linux 6.1 allocates every frame against the send buffer
/// before it sends the first, and then waits for ever.
const PIECE: usize = 4096;

/// Channels of RFCOMM (TS 07.10 with Bluetooth's numbers).
const MOST_CHANNELS: u16 = 30;

#[derive(Clone, Copy)]
struct Options {
    device: Address,
    channel: u8,
    adapter: Option<Adapter>,
}

impl Options {
    fn of(endpoint: &Endpoint) -> Result<Options, EndpointError> {
        const WANTED: &str = "an address and a channel from 1 to 30, like rfcomm://00:1A:7D:DA:71:13/1; to listen, the \
                              adapter's address or any, and channel 0 for a free one";
        let (device, channel) = bluetooth::place(endpoint, WANTED)?;
        let channel = u8::try_from(channel).ok().filter(|channel| u16::from(*channel) <= MOST_CHANNELS);
        let channel =
            channel.ok_or_else(|| EndpointError::BadPlace { url: endpoint.to_string(), wanted: WANTED })?;
        Ok(Options { device, channel, adapter: Adapter::of(endpoint)? })
    }

    fn name(&self) -> String {
        format!("channel {}", self.channel)
    }
}

/// `sockaddr_rc` of the kernel, with the byte that fills it up.
fn address(device: Address, channel: u8) -> SockAddr {
    bluetooth::socket_address(&[], device, &[channel, 0])
}

/// As one would type it.
fn text(address: &SockAddr) -> Option<String> {
    let (device, _, after) = bluetooth::device_of(address, 0)?;
    Some(format!("{device}/{}", after.first()?))
}

fn facts(socket: &Socket, facts: &mut Facts) {
    bluetooth::ends(socket, text, facts);
}

fn open(endpoint: &Endpoint, opening: &Opening) -> Result<Box<dyn Link>, Fault> {
    let options = Options::of(endpoint)?;
    if options.device == bluetooth::ANY || options.channel == 0 {
        return Err(Fault::Other("name the device and one of its channels, 1 to 30".to_owned()));
    }
    let until = opening.clock.now() + opening.within;
    loop {
        let now = opening.clock.now();
        match connect(&options, until.since(now))? {
            Ok(socket) => {
                return Ok(RfcommLink::boxed(socket, caps(endpoint)?, &opening.clock, opening.wait));
            }
            // A link that has just been closed takes a moment to leave its channel.
            Err(error) if is_busy(&error) && now + AGAIN < until => opening.clock.sleep_until(now + AGAIN),
            Err(error) => return Err(bluetooth::fault("connect", &options.name(), error)),
        }
    }
}

const AGAIN: Duration = Duration::from_millis(10);

fn is_busy(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::BUSY)
}

fn connect(options: &Options, within: Duration) -> Result<io::Result<Socket>, Fault> {
    let socket = bluetooth::socket(Speaks::Rfcomm).map_err(Fault::system("open an RFCOMM socket"))?;
    if let Some(adapter) = options.adapter {
        let bound = socket.bind(&address(adapter.address()?, 0));
        bound.map_err(|error| bluetooth::fault("bind", &options.name(), error))?;
    }
    let connected = socket.connect_timeout(&address(options.device, options.channel), within);
    Ok(connected.map(|()| socket))
}

struct RfcommLink {
    inner: SocketLink,
}

impl RfcommLink {
    fn boxed(socket: Socket, caps: Caps, clock: &Clock, wait: Wait) -> Box<dyn Link> {
        Box::new(RfcommLink { inner: SocketLink::new(socket, caps, clock, wait, facts) })
    }
}

impl Link for RfcommLink {
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
        self.inner.send(&bytes[..bytes.len().min(PIECE)], within)
    }

    #[inline]
    fn receive(&mut self, into: &mut [u8], within: Duration) -> Result<usize, Fault> {
        self.inner.receive(into, within)
    }

    fn other_half(&self) -> Result<Box<dyn Link>, Fault> {
        Ok(Box::new(RfcommLink { inner: self.inner.half()? }))
    }

    fn finish(&mut self) -> Result<(), Fault> {
        self.inner.finish()
    }

    fn hung_up(&self) -> bool {
        self.inner.hung_up()
    }
}

struct RfcommListener {
    socket: Socket,
    endpoint: Endpoint,
    clock: Clock,
    wait: Wait,
}

fn listen(endpoint: &Endpoint, opening: &Opening) -> Result<Box<dyn Listener>, Fault> {
    let options = Options::of(endpoint)?;
    let socket = bluetooth::socket(Speaks::Rfcomm).map_err(Fault::system("open an RFCOMM socket"))?;
    let fault = |operation| move |error| bluetooth::fault(operation, &options.name(), error);
    socket.bind(&address(options.device, options.channel)).map_err(fault("bind"))?;
    socket.listen(BACKLOG).map_err(fault("listen"))?;
    socket.set_nonblocking(true).map_err(Fault::system("set non-blocking"))?;
    let bound = socket.local_addr().ok().as_ref().and_then(|address| bluetooth::device_of(address, 0));
    let channel = bound.and_then(|(_, _, after)| after.first().copied()).unwrap_or(options.channel);
    let endpoint = bluetooth::with_number(endpoint, channel.into())?;
    Ok(Box::new(RfcommListener { socket, endpoint, clock: opening.clock.clone(), wait: opening.wait }))
}

/// One a device, and an adapter keeps at most seven in its piconet.
const BACKLOG: i32 = 7;

impl Listener for RfcommListener {
    fn endpoint(&self) -> Endpoint {
        self.endpoint.clone()
    }

    fn accept(&mut self, within: Duration, _door: &mut Door) -> Result<(Box<dyn Link>, String), Fault> {
        let (socket, from) = super::socket::accept(&self.socket, within)?;
        let from = text(&from).unwrap_or_else(|| "unknown".to_owned());
        Ok((RfcommLink::boxed(socket, CAPS, &self.clock, self.wait), from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_an_address_and_a_channel() {
        let read =
            |text: &str| Options::of(&text.parse().unwrap()).map(|options| (options.device, options.channel));
        let device = "00:1A:7D:DA:71:13".parse().unwrap();
        assert_eq!(read("rfcomm://00:1a:7d:da:71:13/30"), Ok((device, 30)));
        assert_eq!(read("rfcomm://any/0"), Ok((bluetooth::ANY, 0)));
        for wrong in ["rfcomm://00:1A:7D:DA:71:13", "rfcomm://any/31", "rfcomm://box/1", "rfcomm://any/x"] {
            let error = read(wrong).unwrap_err().to_string();
            assert!(error.contains("an address and a channel"), "{error}");
        }
        let behind = |text: &str| {
            caps(&text.parse().unwrap()).map(|caps| (caps.line.map(|line| line.bits_per_second), caps.many))
        };
        assert_eq!(behind("rfcomm://any/1"), Ok((None, false)));
        assert_eq!(behind("rfcomm://any/1?baud=9600&flow=rtscts"), Ok((Some(9600.0), false)));
        assert_eq!(text(&address(device, 7)).unwrap(), "00:1A:7D:DA:71:13/7");
    }
}
