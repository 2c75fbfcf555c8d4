//! `rfcomm://AA:BB:CC:DD:EE:FF/1`: a stream over a Bluetooth channel, as serial adapters use it. Without a
//! channel, the device reports the channel of the service.

use std::io;
use std::time::Duration;

use socket2::{SockAddr, Socket};

use super::bluetooth::{self, AdapterSelector, BluetoothAddress, BluetoothProtocol, hci};
use super::bluez::{self, ServiceRegistration};
use super::l2cap;
use super::sdp::{SERIAL_PORT_UUID, SearchProgress, ServiceSearch, Uuid};
use super::socket::{self, AcceptResult, SocketLink, SocketListener};
use crate::link::{Caps, Facts, Fault, Link, Listener, OpenContext, Transport, serial_line};
use linkgauge_model::clock::Clock;
use linkgauge_model::endpoint::{Endpoint, EndpointError};
use linkgauge_model::plan::WaitMode;
use linkgauge_system::Errno;

pub(crate) const TRANSPORT: Transport = Transport {
    scheme: "rfcomm",
    summary: "Bluetooth serial channel (RFCOMM)",
    example: "rfcomm://00:1A:7D:DA:71:13/1",
    options: &[
        bluetooth::ADAPTER_OPTION,
        (
            "uuid",
            "the service whose channel to look up where none is named, like 1101; to listen, to be found by \
             (1101, Serial Port)",
        ),
        ("baud", "the remote is a serial adapter with a line of this rate"),
        serial_line::DATA_BITS_OPTION,
        serial_line::PARITY_OPTION,
        serial_line::STOP_BITS_OPTION,
        serial_line::FLOW_CONTROL_OPTION,
    ],
    parse_caps: |endpoint| Options::from_endpoint(endpoint).and_then(|_| caps(endpoint)),
    resolve: None,
    available: || bluetooth::available(BluetoothProtocol::Rfcomm, "rfcomm"),
    limitation: bluetooth::limitation,
    open,
    begin_open: None,
    listen: Some(listen),
    loopback_urls: |_| bluetooth::loopback_urls("rfcomm"),
};

/// The remote may be an unknown device, and two devices share at most one connection per channel.
const CHANNEL_CAPS: Caps =
    Caps { can_half_close: false, can_open_parallel: false, is_device: true, ..Caps::STREAM };

/// [`CHANNEL_CAPS`], with the serial line if the endpoint declares one.
fn caps(endpoint: &Endpoint) -> Result<Caps, EndpointError> {
    let line = serial_line::declared_in(endpoint)?;
    Ok(line.map_or(CHANNEL_CAPS, |line| serial_line::caps(&line)))
}

/// Maximum size of a send: for 32 KiB and more, Linux 6.1 allocates every frame against the send buffer
/// before it sends the first one, and then waits forever.
const MAX_SEND_BYTES: usize = 4096;

/// Channels of RFCOMM (TS 07.10 with Bluetooth's numbers).
const MAX_CHANNEL: u8 = 30;

#[derive(Clone, Copy)]
struct Options {
    device: BluetoothAddress,
    /// Number of the channel. `None` if the channel is to be looked up, or, for a listener, chosen.
    channel: Option<u8>,
    service: Option<Uuid>,
    adapter: Option<AdapterSelector>,
}

impl Options {
    fn from_endpoint(endpoint: &Endpoint) -> Result<Options, EndpointError> {
        const WANTED: &str = "an address, and a channel from 1 to 30 unless it is to be looked up, like \
                              rfcomm://00:1A:7D:DA:71:13/1; to listen, the adapter's address or any, and channel 0 for \
                              a free one";
        let wrong = || EndpointError::BadAddress { url: endpoint.to_string(), wanted: WANTED };
        let (device, channel) = match endpoint.address().contains('/') {
            true => bluetooth::parse_device_and_number(endpoint, WANTED)
                .map(|(device, channel)| (device, Some(channel)))?,
            false => (bluetooth::parse_device(endpoint.address()).ok_or_else(wrong)?, None),
        };
        let in_range = |channel| u8::try_from(channel).ok().filter(|channel| *channel <= MAX_CHANNEL);
        let channel = channel.map(|channel| in_range(channel).ok_or_else(wrong)).transpose()?;
        let service =
            endpoint.parse_option("uuid", "a UUID, like 1101 or all of its digits with hyphens", |text| {
                text.parse().ok()
            })?;
        Ok(Options { device, channel, service, adapter: AdapterSelector::from_endpoint(endpoint)? })
    }

    fn service_or_default(&self) -> Uuid {
        self.service.unwrap_or(SERIAL_PORT_UUID)
    }
}

fn channel_text(channel: u8) -> String {
    format!("channel {channel}")
}

/// `sockaddr_rc` of the kernel, with its padding byte.
fn socket_address(device: BluetoothAddress, channel: u8) -> SockAddr {
    bluetooth::socket_address(&[], device, &[channel, 0])
}

/// Formats an address like an endpoint.
fn address_text(address: &SockAddr) -> Option<String> {
    let (device, _, after) = bluetooth::split_address(address, 0)?;
    Some(format!("{device}/{}", after.first()?))
}

fn facts(socket: &Socket, facts: &mut Facts) {
    let ends = bluetooth::facts(socket, address_text, 0, facts);
    // The channel belongs to the remote end.
    let remote = socket.peer_addr().ok().and_then(|address| bluetooth::split_address(&address, 0));
    if let (Some([local, remote]), Some(channel)) =
        (ends, remote.and_then(|(_, _, after)| after.first().copied()))
    {
        hci::rfcomm_facts(local, remote, channel, facts);
    }
}

fn open(endpoint: &Endpoint, context: &OpenContext) -> Result<Box<dyn Link>, Fault> {
    let options = Options::from_endpoint(endpoint)?;
    if options.device == bluetooth::ANY_ADDRESS || options.channel == Some(0) {
        return Err(Fault::Invalid("name the device, and one of its channels (1 to 30) or none".to_owned()));
    }
    let until = context.clock.now() + context.timeout;
    let channel = options.channel.map_or_else(|| look_up_channel(&options, context), Ok)?;
    loop {
        let now = context.clock.now();
        match connect(&options, channel, until.since(now))? {
            Ok(socket) => {
                return Ok(make_link(socket, caps(endpoint)?, &context.clock, context.wait));
            }
            // A link that has just been closed needs a moment to leave its channel.
            Err(error) if is_busy(&error) && now + CONNECT_RETRY_INTERVAL < until => {
                context.clock.sleep_until(now + CONNECT_RETRY_INTERVAL)
            }
            Err(error) => return Err(bluetooth::fault("connect", &channel_text(channel), error)),
        }
    }
}

/// Channel on which every device serves service discovery (Core, volume 3, part B).
const SDP_PSM: u16 = 1;

/// The channel on which the device offers the service.
fn look_up_channel(options: &Options, context: &OpenContext) -> Result<u8, Fault> {
    let service = options.service_or_default();
    let failed = |why: String| Fault::NotFound(format!("looking up the channel of service {service}: {why}"));
    let ask = || {
        let until = context.clock.now() + context.timeout;
        let mut link = l2cap::connect_default(options.device, SDP_PSM, options.adapter, context)?;
        let mut search = ServiceSearch::new(service);
        let mut response = vec![0; link.caps().max_message_bytes.unwrap_or_default()];
        loop {
            let left = || until.since(context.clock.now());
            link.send(&search.request(), left())?;
            let length = link.receive(&mut response, left())?;
            match search.handle_response(&response[..length])? {
                SearchProgress::Continue => {}
                SearchProgress::Done(channel) => return Ok(channel),
            }
        }
    };
    let found = ask().map_err(|fault| match fault {
        // The kernel may lack support; other code reports that.
        Fault::System { .. } => fault,
        fault => failed(fault.to_string()),
    })?;
    found.filter(|channel| (1..=MAX_CHANNEL).contains(channel)).ok_or_else(|| {
        let device = options.device;
        failed(format!("the device does not offer it. 'sdptool browse {device}' lists its services"))
    })
}

const CONNECT_RETRY_INTERVAL: Duration = Duration::from_millis(10);

fn is_busy(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::BUSY)
}

fn connect(options: &Options, channel: u8, within: Duration) -> Result<io::Result<Socket>, Fault> {
    let socket =
        bluetooth::open_socket(BluetoothProtocol::Rfcomm).map_err(Fault::system("open an RFCOMM socket"))?;
    if let Some(adapter) = options.adapter {
        let bound = socket.bind(&socket_address(adapter.address()?, 0));
        bound.map_err(|error| bluetooth::fault("bind", &channel_text(channel), error))?;
    }
    let connected = socket.connect_timeout(&socket_address(options.device, channel), within);
    Ok(connected.map(|()| socket))
}

fn make_link(socket: Socket, caps: Caps, clock: &Clock, wait: WaitMode) -> Box<dyn Link> {
    let mut link = SocketLink::new(socket, caps, clock, wait, facts);
    link.max_send_bytes = MAX_SEND_BYTES;
    Box::new(link)
}

fn listen(endpoint: &Endpoint, context: &OpenContext) -> Result<Box<dyn Listener>, Fault> {
    let options = Options::from_endpoint(endpoint)?;
    let socket =
        bluetooth::open_socket(BluetoothProtocol::Rfcomm).map_err(Fault::system("open an RFCOMM socket"))?;
    let wanted = options.channel.unwrap_or(0);
    let fault = |operation| move |error| bluetooth::fault(operation, &channel_text(wanted), error);
    socket.bind(&socket_address(options.device, wanted)).map_err(fault("bind"))?;
    socket::listen(&socket, LISTEN_BACKLOG).map_err(fault("listen"))?;
    let bound = socket.local_addr().ok().as_ref().and_then(|address| bluetooth::split_address(address, 0));
    let channel = bound.and_then(|(_, _, after)| after.first().copied()).unwrap_or(wanted);
    let endpoint = bluetooth::with_number(endpoint, channel.into())?;
    let (registration, endpoint) = register_service(&options, channel, endpoint, context.timeout)?;
    let (clock, wait) = (context.clock.clone(), context.wait);
    let admit = move |socket, from: &SockAddr| -> AcceptResult {
        // Registered as long as the listener exists.
        let _ = &registration;
        Ok((make_link(socket, CHANNEL_CAPS, &clock, wait), address_text(from)))
    };
    Ok(Box::new(SocketListener { socket, endpoint, make_link: admit }))
}

/// Registers the service, and adds it to the endpoint.
fn register_service(
    options: &Options,
    channel: u8,
    endpoint: Endpoint,
    within: Duration,
) -> Result<(Option<ServiceRegistration>, Endpoint), Fault> {
    match (bluez::register_service(options.service_or_default(), channel, within), options.service) {
        (Ok(registration), Some(_)) => Ok((Some(registration), endpoint)),
        (Ok(registration), None) => {
            let joint = if endpoint.options().next().is_some() { '&' } else { '?' };
            Ok((
                Some(registration),
                format!("{endpoint}{joint}uuid={}", options.service_or_default()).parse()?,
            ))
        }
        // Clients that know the channel need no registration.
        (Err(_), None) => Ok((None, endpoint)),
        (Err(why), Some(_)) => Err(Fault::NotPermitted(format!(
            "the service cannot be registered ({why}). Start bluetoothd, or leave out uuid"
        ))),
    }
}

/// Queue for one connection per device: an adapter supports at most seven devices in its piconet.
const LISTEN_BACKLOG: i32 = 7;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_an_address_and_a_channel() {
        let read = |text: &str| {
            Options::from_endpoint(&text.parse().unwrap())
                .map(|options| (options.device, options.channel, options.service_or_default().to_string()))
        };
        let device = "00:1A:7D:DA:71:13".parse().unwrap();
        let serial = "1101".to_owned();
        assert_eq!(read("rfcomm://00:1a:7d:da:71:13/30"), Ok((device, Some(30), serial.clone())));
        assert_eq!(read("rfcomm://00:1A:7D:DA:71:13"), Ok((device, None, serial.clone())));
        assert_eq!(
            read("rfcomm://any/0?uuid=0x1103"),
            Ok((bluetooth::ANY_ADDRESS, Some(0), "1103".to_owned()))
        );
        for wrong in [
            "rfcomm://00:1A:7D:DA:71/1",
            "rfcomm://any/31",
            "rfcomm://box",
            "rfcomm://any/x",
            "rfcomm://any/",
        ] {
            let error = read(wrong).unwrap_err().to_string();
            assert!(error.contains("an address, and a channel"), "{error}");
        }
        let error = read("rfcomm://any?uuid=SP").unwrap_err().to_string();
        assert!(error.contains("'uuid=SP' is not a UUID, like 1101"), "{error}");
        let behind = |text: &str| {
            caps(&text.parse().unwrap())
                .map(|caps| (caps.link_rate.map(|line| line.bits_per_second), caps.can_open_parallel))
        };
        assert_eq!(behind("rfcomm://any/1"), Ok((None, false)));
        assert_eq!(behind("rfcomm://any/1?baud=9600&flow=rtscts"), Ok((Some(9600.0), false)));
        assert_eq!(address_text(&socket_address(device, 7)).unwrap(), "00:1A:7D:DA:71:13/7");
    }
}
