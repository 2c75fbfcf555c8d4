//! The far end of a measurement on bare metal: what linkgauge measures a UART and Ethernet with.
//!
//! | where | what | the host runs |
//! | --- | --- | --- |
//! | UART 0 | device protocol | `latency serial:///dev/ttyX --protocol device` |
//! | UART 1 | echo | `latency serial:///dev/ttyX` |
//! | UART 2 | any byte prints what LINX has cost so far | a terminal |
//! | UDP 7, 9, 862, 5102 | echo, discard, STAMP, device protocol | `latency udp://10.0.2.15:5102 --protocol device` |
//! | Ethernet type 0x8911 | LINX: `server`, `echo`, `discard` | `latency linx+eth://tap0/02:00:00:00:00:15/server --protocol linx-bmark` |
#![no_std]
#![no_main]

mod board;
mod ethernet;

use core::fmt::Write;

use board::{TICK_NS, Uart, now_ns};
use ethernet::{Ethernet, LinxMeter};
use linkgauge_responder::session::{Device, PacketSessions, StreamSessions};
use linkgauge_responder::stamp::{TestReflector, error_estimate_of_tick, set_sent};
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet, SocketStorage};
use smoltcp::socket::udp;
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, IpAddress, IpCidr, IpEndpoint};

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x15];
const ADDRESS: IpCidr = IpCidr::new(IpAddress::v4(10, 0, 2, 15), 24);

/// The largest message of the services over UDP.
const PACKET_BYTES: usize = 1472;
const DEVICE: Device = Device { max_message_bytes: PACKET_BYTES as u32, tick_ns: TICK_NS };
/// On a UART nothing is stored, so that the header limits the message.
const STREAM_DEVICE: Device = Device { max_message_bytes: u16::MAX as u32, tick_ns: TICK_NS };

/// What answers at a port.
#[derive(Clone, Copy)]
enum Service {
    Echo,
    Discard,
    Stamp,
    Device,
}

const PORTS: [(u16, Service); 4] =
    [(7, Service::Echo), (9, Service::Discard), (862, Service::Stamp), (5102, Service::Device)];

struct Responders {
    stamp: TestReflector<4>,
    device: PacketSessions<4>,
}

impl Responders {
    /// Turns a packet into its reply; returns the length.
    fn reply(&mut self, service: Service, from: IpEndpoint, packet: &mut [u8]) -> Option<usize> {
        let IpAddress::Ipv4(address) = from.addr;
        let sender = u32::from_be_bytes(address.octets()) ^ u32::from(from.port) << 16;
        match service {
            Service::Echo => Some(packet.len()),
            Service::Discard => None,
            Service::Stamp => {
                let is_reply = self.stamp.on_packet(now_ns(), sender, packet);
                is_reply.then(|| {
                    set_sent(packet, now_ns());
                    packet.len()
                })
            }
            Service::Device => self.device.on_packet(now_ns(), sender, packet),
        }
    }
}

/// Receive and send buffer of a port: one datagram each, and the next one behind it.
type Buffer = [u8; 2 * PACKET_BYTES];
static mut BUFFERS: [[Buffer; 2]; PORTS.len()] = [[[0; 2 * PACKET_BYTES]; 2]; PORTS.len()];
static mut ETHERNET: Ethernet = Ethernet::new(MAC);

fn run() -> ! {
    board::open_ethernet(MAC);
    let (ethernet, buffers) = (&raw mut ETHERNET, &raw mut BUFFERS);
    // SAFETY: `run` is entered once, and nothing else uses these.
    let (ethernet, buffers) = unsafe { (&mut *ethernet, &mut *buffers) };
    let mut interface =
        Interface::new(Config::new(EthernetAddress(MAC).into()), ethernet, Instant::from_micros(0));
    interface.update_ip_addrs(|addresses| {
        let _ = addresses.push(ADDRESS);
    });
    let mut storage: [SocketStorage; PORTS.len()] = Default::default();
    let mut sockets = SocketSet::new(&mut storage[..]);
    let mut metadata = [[[udp::PacketMetadata::EMPTY; 4]; 2]; PORTS.len()];
    let mut handles: [Option<SocketHandle>; PORTS.len()] = [None; PORTS.len()];
    for (((handle, [receive, send]), [receive_meta, send_meta]), (port, _)) in
        handles.iter_mut().zip(buffers).zip(&mut metadata).zip(PORTS)
    {
        let receive = udp::PacketBuffer::new(&mut receive_meta[..], &mut receive[..]);
        let send = udp::PacketBuffer::new(&mut send_meta[..], &mut send[..]);
        let mut socket = udp::Socket::new(receive, send);
        let _ = socket.bind(port);
        *handle = Some(sockets.add(socket));
    }
    let mut responders = Responders {
        stamp: TestReflector::new(error_estimate_of_tick(TICK_NS)),
        device: PacketSessions::new(DEVICE),
    };
    let mut serial = Serial::open();
    loop {
        let now = Instant::from_micros((now_ns() / 1000) as i64);
        // One frame at a time: the others wait in the MAC, and not in the sockets, which have room for two datagrams.
        interface.poll_maintenance(now);
        interface.poll_ingress_single(now, ethernet, &mut sockets);
        for (handle, (_, service)) in handles.iter().flatten().zip(PORTS) {
            answer(sockets.get_mut::<udp::Socket>(*handle), service, &mut responders);
        }
        interface.poll_egress(now, ethernet, &mut sockets);
        ethernet.poll_linx();
        serial.poll(&ethernet.meter);
    }
}

/// Answers what a socket has received, as far as its replies have room.
fn answer(socket: &mut udp::Socket, service: Service, responders: &mut Responders) {
    let mut packet = [0; PACKET_BYTES];
    while socket.can_send() {
        let Ok((length, from)) = socket.recv_slice(&mut packet) else { return };
        if let Some(length) = responders.reply(service, from.endpoint, &mut packet[..length]) {
            let _ = socket.send_slice(&packet[..length], from);
        }
    }
}

/// The three serial ports.
struct Serial {
    device: (Uart, StreamSessions),
    echo: Uart,
    terminal: Uart,
}

impl Serial {
    fn open() -> Serial {
        Serial {
            device: (Uart::open(0), StreamSessions::new(STREAM_DEVICE)),
            echo: Uart::open(1),
            terminal: Uart::open(2),
        }
    }

    fn poll(&mut self, meter: &LinxMeter) {
        let (mut input, mut output) = ([0; 64], [0; 256]);
        let (uart, sessions) = &mut self.device;
        let received = uart.read(&mut input);
        let mut rest = &input[..received];
        while !rest.is_empty() {
            let progress = sessions.on_bytes(now_ns(), rest, &mut output);
            uart.write(&output[..progress.produced]);
            rest = &rest[progress.consumed..];
        }
        let received = self.echo.read(&mut input);
        self.echo.write(&input[..received]);
        if self.terminal.read(&mut input) > 0 {
            let _ = writeln!(self.terminal, "linx: {} frames in {} ns", meter.frames, meter.busy_ns);
        }
    }
}

impl Write for Uart {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        Uart::write(*self, text.as_bytes());
        Ok(())
    }
}
