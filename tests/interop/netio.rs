//! NETIO's own dialogue at its own ports: a client and a server that follow the original program in both byte orders, on two
//! hosts and on one. They share no code with the product.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use serde_json::Value;

use crate::program::{PATIENCE, Running, run_within};
use crate::two_hosts::{ADDRESSES, TwoHosts};

const TCP_PORT: u16 = 18767;
/// Of the control connection and of the datagrams, at both ends.
const UDP_PORT: u16 = 18768;

const SIZE: u32 = 1024;
const DATAGRAMS: u32 = 50;

/// The byte order of control words: that of the network since 1.23, before that of the client, here little-endian.
#[derive(Clone, Copy, PartialEq)]
enum Order {
    Network,
    Little,
}

impl Order {
    fn bytes(self, word: u32) -> [u8; 4] {
        if self == Order::Network { word.to_be_bytes() } else { word.to_le_bytes() }
    }

    fn number(self, bytes: [u8; 4]) -> u32 {
        if self == Order::Network { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    }

    fn write(self, stream: &mut TcpStream, command: u32, data: u32) {
        stream.write_all(&[self.bytes(command), self.bytes(data)].concat()).unwrap();
    }

    /// Command and data; `None` at the end of the connection.
    fn read(self, stream: &mut TcpStream) -> Option<(u32, u32)> {
        let [mut command, mut data] = [[0; 4]; 2];
        stream.read_exact(&mut command).and_then(|()| stream.read_exact(&mut data)).ok()?;
        Some((self.number(command), self.number(data)))
    }
}

fn connect(from: IpAddr, to: SocketAddr) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::new(from, 0).into()).unwrap();
    socket.connect(&to.into()).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// `-b 1k` of the original client over TCP: upload, download, end.
fn run_stream_client(order: Order, client: IpAddr, server: IpAddr) {
    let mut stream = connect(client, SocketAddr::new(server, TCP_PORT));
    let mut block = vec![0; SIZE as usize];
    order.write(&mut stream, 1, SIZE);
    for flag in [0, 0, 0, 1] {
        block[0] = flag;
        stream.write_all(&block).unwrap();
    }
    order.write(&mut stream, 2, SIZE);
    let mut blocks = 0;
    while blocks == 0 || block[0] == 0 {
        stream.read_exact(&mut block).unwrap();
        blocks += 1;
    }
    assert!(blocks > 1);
    order.write(&mut stream, 0, 0);
    assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0, "QUIT closes");
}

/// The same over UDP, where both ends use one port number.
fn run_datagram_client(order: Order, client: IpAddr, server: IpAddr) {
    let datagrams = UdpSocket::bind((client, UDP_PORT)).unwrap();
    let mut stream = connect(client, SocketAddr::new(server, UDP_PORT));
    let mut room = [0; 2048];
    for _ in 0..2 {
        order.write(&mut stream, 1, SIZE);
        assert_eq!(order.read(&mut stream), Some((1, SIZE)), "go");
        for _ in 0..DATAGRAMS {
            datagrams.send_to(&room[..SIZE as usize], (server, UDP_PORT)).unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
        // The server may count a datagram only after it has opened a link.
        std::thread::sleep(Duration::from_millis(300));
        order.write(&mut stream, 3, SIZE);
        assert_eq!(order.read(&mut stream), Some((3, DATAGRAMS)));
        order.write(&mut stream, 2, SIZE);
        datagrams.set_read_timeout(Some(PATIENCE)).unwrap();
        let (length, from) = datagrams.recv_from(&mut room).unwrap();
        assert_eq!((length, from), (SIZE as usize, SocketAddr::new(server, UDP_PORT)));
        let Some((3, sent)) = order.read(&mut stream) else { panic!("no result") };
        datagrams.set_nonblocking(true).unwrap();
        let received = 1 + std::iter::from_fn(|| datagrams.recv(&mut room).ok()).count();
        datagrams.set_nonblocking(false).unwrap();
        assert!(received > 1 && received <= sent as usize, "{received} of {sent}");
    }
    order.write(&mut stream, 0, 0);
    assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0, "QUIT closes");
}

/// The original server over UDP, for one client.
fn serve_datagrams(order: Order, listener: &TcpListener, datagrams: &UdpSocket) {
    let (mut stream, client) = listener.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    datagrams.set_nonblocking(true).unwrap();
    let mut counted = 0;
    let mut room = [0; 2048];
    loop {
        let Some((command, size)) = order.read(&mut stream) else { panic!("no QUIT") };
        match command {
            1 => {
                counted = 0;
                order.write(&mut stream, command, size);
            }
            3 => {
                counted += std::iter::from_fn(|| datagrams.recv(&mut room).ok()).count() as u32;
                order.write(&mut stream, 3, counted);
            }
            2 => {
                for _ in 0..DATAGRAMS {
                    datagrams.send_to(&room[..size as usize], (client.ip(), UDP_PORT)).unwrap();
                    std::thread::sleep(Duration::from_millis(1));
                }
                order.write(&mut stream, 3, DATAGRAMS);
            }
            _ => return,
        }
    }
}

/// The addresses of server and client, and the host of the client.
const PLACES: [(&str, &str, usize); 2] = [("127.0.0.1", "127.0.0.2", 0), (ADDRESSES[0], ADDRESSES[1], 1)];

#[test]
fn an_original_client_is_served_at_its_own_ports() {
    let hosts = TwoHosts::new();
    for (server, client, host) in PLACES {
        let urls =
            [format!("tcp://{server}"), format!("tcp://{server}:{UDP_PORT}"), format!("udp://{server}")];
        let urls = urls.iter().map(String::as_str);
        let arguments: Vec<_> =
            ["serve", "--protocol", "netio", "--max-time", "1s"].into_iter().chain(urls).collect();
        let mut process = Running(hosts.linkgauge(0, &arguments).spawn().unwrap());
        BufReader::new(process.0.stdout.take().unwrap())
            .lines()
            .take(3)
            .for_each(|line| assert!(line.is_ok()));
        let [server, client] = [server, client].map(|address| address.parse().unwrap());
        for order in [Order::Network, Order::Little] {
            hosts.on(host, || run_stream_client(order, client, server));
            hosts.on(host, || run_datagram_client(order, client, server));
        }
    }
}

#[test]
fn an_original_server_is_measured_at_its_own_ports() {
    let hosts = TwoHosts::new();
    for (server, client, host) in PLACES {
        let (listener, datagrams) = hosts.on(0, || {
            let datagrams = UdpSocket::bind((server, UDP_PORT)).unwrap();
            (TcpListener::bind((server, UDP_PORT)).unwrap(), datagrams)
        });
        for (order, dialect) in [(Order::Network, "c"), (Order::Little, "b")] {
            let url = format!("udp://{server}?bind={client}");
            let flags = [
                "--dialect",
                dialect,
                "--time",
                "200ms",
                "--bit-rate",
                "500k",
                "--size",
                "1024",
                "--json",
                "-",
            ];
            let fixed = ["throughput", &url, "--protocol", "netio", "--direction", "send,receive", "--quiet"];
            let ended = std::thread::scope(|scope| {
                scope.spawn(|| serve_datagrams(order, &listener, &datagrams));
                run_within(PATIENCE, &mut hosts.linkgauge(host, &[&fixed[..], &flags].concat()))
            });
            assert_eq!(ended.status, Some(0), "{url} {dialect}: {}", ended.stderr);
            let run: Value = serde_json::from_str(&ended.stdout).unwrap();
            let received = |case: usize| run["cases"][case]["received"].as_u64().unwrap();
            assert!(received(0) > 1 && run["cases"][0]["lost"] == 0, "{dialect}: {:#}", run["cases"][0]);
            assert_eq!(received(1), u64::from(DATAGRAMS), "{dialect}: {:#}", run["cases"][1]);
        }
    }
}
