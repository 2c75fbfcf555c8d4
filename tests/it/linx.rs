//! LINX nodes that send arbitrary bytes to ours on real sockets: replies, refusals in one line, and the effect of slow
//! or silent nodes.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use linkgauge::Registry;
use linkgauge::clock::Clock;
use linkgauge::link::party::Tuning;
use linkgauge::link::{Dialer, Fault};

use super::echo_server::EchoServer;
use super::program::run;

const LONG: Duration = Duration::from_secs(10);
pub const CONNECT: &str = "43030000 00000000 00000000 00000000";
pub const INIT: &str = "55030000 00000000 00000000 00000008 00000005 00000002";
pub const INIT_REPLY: &str = "55030000 00000000 00000000 00000009 00000006 00000000 00";
const PING: &str = "50030000 00000000 00000000 00000000";
const PONG: &str = "51030000 00000000 00000000 00000000";
pub const PUBLISH_SERVER: &str = "55030000 00000000 00000000 00000010 00000002 00000001 73657276 65720000";

/// Hex digits; `00*13` is thirteen zeros.
pub fn hex(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in text.split_whitespace() {
        let (digits, count) =
            word.split_once('*').map_or((word, 1), |(byte, count)| (byte, count.parse().unwrap()));
        let pairs = digits.as_bytes().chunks(2).map(|pair| str::from_utf8(pair).unwrap());
        let word: Vec<u8> = pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect();
        bytes.extend(word.repeat(count));
    }
    bytes
}

/// A node made of bytes.
pub struct Node(pub TcpStream);

impl Node {
    fn call(server: &EchoServer) -> Node {
        let place = server.endpoint.address().split('/').next().unwrap();
        Node::of(TcpStream::connect(place).unwrap())
    }

    pub fn of(stream: TcpStream) -> Node {
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.set_nodelay(true).unwrap();
        Node(stream)
    }

    pub fn say(&mut self, text: &str) {
        self.write(&hex(text));
    }

    pub fn write(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    /// The next frame except pings, as hex without blanks.
    pub fn frame(&mut self) -> Vec<u8> {
        loop {
            let mut head = [0; 16];
            self.0.read_exact(&mut head).unwrap();
            let mut frame = head.to_vec();
            frame.resize(16 + u32::from_be_bytes(head[12..].try_into().unwrap()) as usize, 0);
            self.0.read_exact(&mut frame[16..]).unwrap();
            if head[0] != b'P' {
                return frame;
            }
        }
    }

    fn hear(&mut self, text: &str) {
        assert_eq!(self.frame(), hex(text), "instead of {text}");
    }

    /// As the active side.
    fn join(&mut self) {
        self.say(CONNECT);
        self.hear(CONNECT);
        self.say(INIT);
        self.hear(INIT);
        self.hear(INIT_REPLY);
        self.say(INIT_REPLY);
    }

    /// Whether the remote node has closed the connection; remaining data is ignored.
    pub fn is_closed(&mut self) -> bool {
        let mut rest = [0; 1000];
        loop {
            match self.0.read(&mut rest) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
            }
        }
    }
}

/// The error of opening a link to a node that does this.
fn refused(act: impl Fn(&mut Node) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("linx://{}/server", listener.local_addr().unwrap());
    let node = thread::spawn(move || {
        let mut node = Node::of(listener.accept().unwrap().0);
        act(&mut node);
        node.is_closed();
    });
    let dialer = Dialer { timeout: Duration::from_millis(700), ..Registry::standard().dialer(Clock::System) };
    let error = dialer.open(&url.parse().unwrap()).err().map(|error| error.to_string());
    node.join().unwrap();
    error.unwrap_or_else(|| "it opened".to_owned()).replace(&url, "URL")
}

/// The error of opening a link to a node that sends this once it is up.
fn after_opening(words: &'static [&str]) -> String {
    refused(move |node| {
        for word in [&[CONNECT, INIT, INIT_REPLY], words].concat() {
            node.say(word);
        }
    })
}

#[test]
fn a_served_name_matches_the_messages_of_a_real_node() {
    let server = EchoServer::listen("linx://127.0.0.1:0/server?as=linx_bmark_");
    let mut node = Node::call(&server);
    node.join();
    node.say("55030000 00000000 00000000 00000010 00000002 00000001 636c6965 6e740000");
    node.say("55030000 00000000 00000000 00000010 00000001 00000001 73657276 65720000");
    node.hear(PUBLISH_SERVER);
    // The first signal to the name gets its own endpoint.
    node.say("55030000 00000001 00000001 0000000c 00002870 00000001 00000000");
    node.hear(
        "55030000 00000000 00000000 0000001c 00000002 00000002 6c696e78 5f626d61 726b5f30 30303030 30303100",
    );
    node.hear("55030000 00000002 00000001 0000000c 00002870 00000001 00000000");
    node.say(PING);
    node.hear(PONG);
    // Messages of senders that did not start with the name are ignored.
    node.say("55030000 00000000 00000000 00000010 00000002 00000007 6f746865 72000000");
    node.say("55030000 00000007 00000002 00000004 00009999");
    // Out of band or not, unknown messages, an address without an endpoint.
    node.say("55038000 00000001 00000002 00000004 00002873");
    node.hear("55030000 00000002 00000001 00000004 00002873");
    node.say("55030000 00000000 00000000 00000004 00000063");
    node.say("55030000 00000001 00000033 00000004 00002873");
    node.say("55030000 00000000 00000000 0000000c 00000007 00000009 00000002");
    // Byte by byte.
    for byte in hex("55030000 00000001 00000002 00000006 00002873 abcd") {
        node.0.write_all(&[byte]).unwrap();
    }
    node.hear("55030000 00000002 00000001 00000006 00002873 abcd");
    node.say("55030000 00000000 00000000 00000008 00000003 00000001");
    let mut last = [node.frame(), node.frame()];
    last.sort();
    assert_eq!(
        last,
        [
            hex("55030000 00000000 00000000 00000008 00000003 00000002"),
            hex("55030000 00000000 00000000 00000008 00000004 00000001"),
        ],
        "the client is acknowledged, its end taken back"
    );
}

#[test]
fn nodes_that_violate_the_protocol_are_dropped_and_others_served() {
    let server = EchoServer::listen("linx://127.0.0.1:0/server");
    let lies = [
        "47455420 2f204854 54502f31 2e310d0a",
        "43020000 00000000 00000000 00000000",
        "55030000 00000001 00000001 00000004 00002873",
        "43030000 00000000 00000000 00000000 55030000 00000000 00000000 0000000c 00000002 00000001 61000000",
        "43030000 00000000 00000000 00000000 43030000 00000000 00000000 00000000",
        "43030000 00000000 00000000 00000000 55030000 00000001 00000001 7fffffff",
    ];
    for lie in lies {
        let mut node = Node::call(&server);
        node.say(lie);
        assert!(node.is_closed(), "{lie}");
    }
    for lie in ["00000002 00000401 61000000", "00000003 00000000 00000000", "00000002 00000001 61626364"] {
        let mut node = Node::call(&server);
        node.join();
        node.say(&format!("55030000 00000000 00000000 0000000c {lie}"));
        assert!(node.is_closed(), "{lie}");
    }
    let mut link = server.open();
    link.send(b"still here", LONG).unwrap();
    assert_eq!(link.receive(&mut [0; 100], LONG).unwrap(), 10);
}

#[test]
fn a_failed_opening_is_one_line() {
    let replies = [
        refused(|_| {}),
        refused(|node| node.say("43020000 00000000 00000000 00000000")),
        refused(|node| node.say("48545450 2f312e31 20343030 20426164")),
        refused(|node| {
            node.say(CONNECT);
            node.say(INIT_REPLY);
        }),
        refused(|node| {
            node.say(CONNECT);
            node.say("55030000 00000000 00000000 00000008 00000005 00000001");
        }),
        after_opening(&[]),
        after_opening(&["55030000 00*11 0c 00000002 00000401 61000000"]),
        after_opening(&["55030000 00*11 0c 00000002 00000001 61626364"]),
        after_opening(&[INIT]),
        after_opening(&["55030000 00000001 00000001 00010001"]),
        after_opening(&["ffffffff 00*12"]),
    ];
    insta::assert_snapshot!(replies.join("\n"), @r"
    URL: it accepted the connection but did not reply as a LINX node within 700ms: check that a link to this host is configured on that node (mktcpcon, mklink). A real node looks for calls every 2 to 10 s: try a longer --timeout
    URL: the remote node uses version 2 of the LINX TCP connection manager, linkgauge uses 3. Use LINX 2.0 or later there
    URL: the node does not use LINX: no LINX frame begins with these bytes
    URL: the remote node's first messages arrived out of order
    URL: the remote node uses version 1 of the LINX RLNH, linkgauge uses 2. Use LINX 2.0 or later there
    URL: no endpoint 'server' appeared at the remote node in 700ms: check that it is served there under this name, and --timeout
    URL: the remote node used an address above 1024
    URL: a message between the nodes is malformed
    URL: the remote node restarted its handshake
    URL: a message is longer than LINX over TCP allows
    URL: the node does not use LINX: no LINX frame begins with these bytes
    ");
}

#[test]
fn a_name_may_appear_later_and_a_node_may_refuse_at_first() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("linx://{}/server", listener.local_addr().unwrap());
    let node = thread::spawn(move || {
        // A node that calls us meanwhile refuses our call.
        drop(listener.accept().unwrap());
        let mut node = Node::of(listener.accept().unwrap().0);
        node.hear(CONNECT);
        for word in [CONNECT, INIT, INIT_REPLY] {
            node.say(word);
        }
        node.hear(INIT);
        node.hear(INIT_REPLY);
        node.hear("55030000 00000000 00000000 00000010 00000002 00000001 636c6965 6e740000");
        node.hear("55030000 00000000 00000000 00000010 00000001 00000001 73657276 65720000");
        thread::sleep(Duration::from_millis(300));
        node.say(PUBLISH_SERVER);
        node.hear("55030000 00000001 00000001 00000006 4c470001 6869");
        node.say("55030000 00000001 00000001 00000007 00001234 796573");
        // The name goes, and with it whom the client talks to.
        node.say("55030000 00000000 00000000 00000008 00000003 00000001");
        node.hear("55030000 00000000 00000000 00000008 00000004 00000001");
        node
    });
    let dialer = Dialer { timeout: LONG, ..Registry::standard().dialer(Clock::System) };
    let mut link = dialer.open(&url.parse().unwrap()).unwrap();
    link.send(b"hi", LONG).unwrap();
    let mut got = [0; 10];
    assert_eq!(link.receive(&mut got, LONG).unwrap(), 3);
    assert_eq!(&got[..3], b"yes");
    assert!(matches!(link.receive(&mut got, LONG), Err(Fault::Closed)));
    assert!(matches!(link.send(b"hello", LONG), Err(Fault::Closed)));
    drop(node.join().unwrap());
}

/// Takes the frames of one of our clients as a real node would: sends signals back, acknowledges, until the client goes.
fn echo_until_it_goes(node: &mut Node) -> std::io::Result<usize> {
    loop {
        let mut head = [0; 16];
        let mut filled = 0;
        while filled < head.len() {
            match node.0.read(&mut head[filled..])? {
                0 => return Ok(filled),
                bytes => filled += bytes,
            }
        }
        let mut frame = head.to_vec();
        frame.resize(16 + u32::from_be_bytes(head[12..].try_into().unwrap()) as usize, 0);
        node.0.read_exact(&mut frame[16..])?;
        match (head[0], &head[4..12]) {
            (b'U', [0, 0, 0, 0, 0, 0, 0, 0]) if frame[19] == 3 => {
                // The returned frames after the end: the acknowledgement, and the periodic messages of a node.
                frame[19] = 4;
                node.write(&frame);
                (0..20).for_each(|_| node.say(PING));
            }
            (b'U', [0, 0, 0, 0, 0, 0, 0, 0]) => {}
            (b'U', _) => {
                frame[4..12].rotate_left(4);
                node.write(&frame);
            }
            (b'P', _) => node.say(PONG),
            _ => {}
        }
    }
}

#[test]
fn one_connection_serves_all_cases_of_a_run_and_is_closed_without_a_reset() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("linx://{}/server", listener.local_addr().unwrap());
    let node = thread::spawn(move || {
        let mut node = Node::of(listener.accept().unwrap().0);
        for word in [CONNECT, INIT, INIT_REPLY, PUBLISH_SERVER] {
            node.say(word);
        }
        let ended = echo_until_it_goes(&mut node);
        listener.set_nonblocking(true).unwrap();
        (ended, listener.accept().is_ok())
    });
    let words =
        ["latency", &url, "--protocol", "echo", "-s", "16,64,256", "-n", "5", "--quiet", "--no-store"];
    let ended = run(&words);
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    let (closed, called_again) = node.join().unwrap();
    assert_eq!(closed.expect("a reset"), 0, "in the middle of a frame");
    assert!(!called_again, "a connection for each case");
}

#[test]
#[ignore = "long"]
fn a_node_that_accepts_late_is_awaited() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("linx://{}/server", listener.local_addr().unwrap());
    let node = thread::spawn(move || {
        let mut node = Node::of(listener.accept().unwrap().0);
        // Real nodes whose own call has failed look after 2 to 10 s.
        thread::sleep(Duration::from_millis(5500));
        for word in [CONNECT, INIT, INIT_REPLY, PUBLISH_SERVER] {
            node.say(word);
        }
        node.is_closed()
    });
    let dialer = Dialer { timeout: Duration::from_secs(20), ..Registry::standard().dialer(Clock::System) };
    drop(dialer.open(&url.parse().unwrap()).unwrap());
    drop(dialer);
    assert!(node.join().unwrap());
}

#[test]
fn the_default_timeout_exceeds_the_longest_accept_time_of_a_real_node() {
    let timeout = |url: &str| {
        let plan = format!("[[case]]\nurl = \"{url}\"\nworkload = \"latency\"\n");
        let plan = linkgauge::schedule::check(
            linkgauge::plan::Plan::from_toml(&plan).unwrap(),
            Registry::standard(),
        )
        .unwrap();
        plan.cases().next().unwrap().load.timeout
    };
    assert!(timeout("linx://192.0.2.7/server") > Duration::from_secs(11));
    assert!(timeout("tcp://192.0.2.7:7") < Duration::from_secs(5));
}

#[test]
fn a_node_that_calls_us_meanwhile_is_accepted() {
    // On addresses of its own each, so that both can listen on the same port.
    let listener = TcpListener::bind("127.0.0.2:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let node = thread::spawn(move || {
        // Our call is taken and never looked at.
        let (_call, from) = listener.accept().unwrap();
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from(([127, 0, 0, 2], 0)).into()).unwrap();
        super::program::wait_until("a listener at the address of the node's call", || {
            socket.connect(&SocketAddr::new(from.ip(), port).into()).ok()
        });
        let mut node = Node::of(socket.into());
        node.join();
        node.say(PUBLISH_SERVER);
        node.hear("55030000 00000000 00000000 00000010 00000002 00000001 636c6965 6e740000");
        node.is_closed()
    });
    let dialer = Dialer { timeout: LONG, ..Registry::standard().dialer(Clock::System) };
    let link = dialer.open(&format!("linx://127.0.0.2:{port}/server").parse().unwrap()).unwrap();
    drop(link);
    drop(dialer);
    assert!(node.join().unwrap());
}

#[test]
fn a_closed_node_is_called_again() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("linx://{}/server", listener.local_addr().unwrap()).parse().unwrap();
    let node = thread::spawn(move || {
        for _ in 0..3 {
            let mut node = Node::of(listener.accept().unwrap().0);
            for word in [CONNECT, INIT, INIT_REPLY, PUBLISH_SERVER] {
                node.say(word);
            }
            while node.frame() != hex("55030000 00000001 00000001 00000006 4c470001 6869") {}
        }
    });
    let dialer = Dialer { timeout: LONG, ..Registry::standard().dialer(Clock::System) };
    for _ in 0..3 {
        let mut link = dialer.open(&url).unwrap();
        link.send(b"hi", LONG).unwrap();
        assert!(matches!(link.receive(&mut [0; 10], LONG), Err(Fault::Closed)));
    }
    node.join().unwrap();
}

#[test]
fn an_idle_link_stays_up_and_a_silent_node_is_noticed() {
    let server = EchoServer::listen("linx://127.0.0.1:0/server");
    let mut link = server.open();
    let mut node = Node::call(&server);
    node.join();
    let began = Instant::now();
    assert!(node.is_closed(), "a node that ignores pings");
    let noticed = began.elapsed();
    assert!(noticed >= Duration::from_millis(1000), "too early: {noticed:?}");
    assert!(noticed < LONG, "{noticed:?}");
    thread::sleep(Duration::from_millis(3500).saturating_sub(began.elapsed()));
    link.send(b"still here", LONG).unwrap();
    assert_eq!(link.receive(&mut [0; 100], LONG).unwrap(), 10);
}

#[test]
#[ignore = "long"]
fn a_receiver_that_does_not_read_holds_the_sender() {
    // Both ends are ours: an echo that blocks because its output is not read.
    let server = EchoServer::listen("linx:///slow-reader");
    let mut link = server.open();
    link.tune(&Tuning { batch_message_bytes: Some(1000), ..Tuning::default() });
    let messages = vec![7; 64_000];
    let mut taken = 0;
    while let Ok(bytes) = link.send_batch(&messages, 1000, Duration::from_millis(1500)) {
        taken += bytes;
        assert!(taken < 16 << 20, "nothing holds the sender");
    }
    // Its data returns completely once the client reads.
    let mut got = [0; 2000];
    let mut back = 0;
    while back < taken {
        let length = link.receive(&mut got, LONG).unwrap();
        assert_eq!(length, 1000);
        back += length;
    }
    link.send(b"free", LONG).unwrap();
    assert_eq!(link.receive(&mut got, LONG).unwrap(), 4);
}
