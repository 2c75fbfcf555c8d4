//! Clients of the linkgauge protocol that send arbitrary messages, one at a time: on TCP, and on UDP.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use linkgauge::endpoint::Endpoint;
use linkgauge::plan::{Pacing, SocketSettings, StopCondition, WaitMode};
use linkgauge::protocol::linkgauge::wire::{
    self, Attach, FlowKind, Hello, ServerPlan, SessionReply, SessionRequest,
};

/// The socket address of an endpoint.
pub fn address(endpoint: &Endpoint) -> SocketAddr {
    endpoint.address().parse().unwrap()
}

pub fn connect(endpoint: &Endpoint) -> TcpStream {
    let stream = TcpStream::connect(address(endpoint)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// Whether a message replies to no request.
fn is_unasked(number: u32, reply: &SessionReply) -> bool {
    number == 0 && matches!(reply, SessionReply::Alive(_) | SessionReply::Report(_))
}

/// A control connection.
pub struct RawClient {
    pub stream: TcpStream,
    endpoint: Endpoint,
    number: u32,
    session: u64,
    key: Vec<u8>,
}

/// A plan that asks for nothing special.
pub fn plan(flows: &[FlowKind], message_bytes: u32, stop: StopCondition) -> ServerPlan {
    ServerPlan {
        flows: flows.to_vec(),
        message_bytes,
        pacing: Pacing::Closed,
        stop,
        warm_up: StopCondition::default(),
        timeout_ns: u64::MAX,
        wait: WaitMode::Block,
        cpu: None,
        socket: SocketSettings::default(),
        evidence: false,
        lead_in_ns: 0,
        series_interval_ns: 0,
        time_of_day: false,
        alive_interval_ns: 0,
    }
}

impl RawClient {
    /// Sends a hello and requests a session of some version; returns the reply.
    pub fn greet(endpoint: &Endpoint, version: u32) -> io::Result<(RawClient, SessionReply)> {
        let mut stream = connect(endpoint);
        let hello = Hello::new();
        stream.write_all(hello.bytes())?;
        let mut ready = [0; wire::HANDSHAKE_BYTES];
        stream.read_exact(&mut ready)?;
        let challenge = hello.challenge_in(&ready).expect("our server").to_vec();
        let mut client =
            RawClient { stream, endpoint: endpoint.clone(), number: 0, session: 0, key: Vec::new() };
        let reply = client.ask(&SessionRequest::Open {
            version,
            tool: "test".to_owned(),
            nonce: wire::encode_hex(hello.nonce()),
            challenge: wire::encode_hex(&challenge),
            proof: None,
        })?;
        if let SessionReply::Opened { session, key, .. } = &reply {
            client.session = u64::from_str_radix(session, 16).unwrap();
            client.key = key.as_deref().and_then(wire::decode_hex).unwrap();
        }
        Ok((client, reply))
    }

    /// A client with a session, if the server gives one.
    pub fn open(endpoint: &Endpoint) -> Option<RawClient> {
        let (client, reply) = RawClient::greet(endpoint, wire::VERSION).ok()?;
        matches!(reply, SessionReply::Opened { .. }).then_some(client)
    }

    pub fn ask(&mut self, request: &SessionRequest) -> io::Result<SessionReply> {
        self.number += 1;
        self.stream.write_all(&wire::encode_frame(self.number, request))?;
        let mut received = Vec::new();
        let mut chunk = [0; 4096];
        loop {
            if let Some((number, reply, used)) =
                wire::decode_frame(&received, wire::MAX_JSON_BYTES).map_err(io::Error::other)?
            {
                if is_unasked(number, &reply) {
                    received.drain(..used);
                    continue;
                }
                assert_eq!(number, self.number);
                return Ok(reply);
            }
            match self.stream.read(&mut chunk)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                length => received.extend_from_slice(&chunk[..length]),
            }
        }
    }

    /// Opens a connection for a flow of the plan.
    pub fn attach(&self, flow: u32) -> TcpStream {
        let attach = Attach { session_id: self.session, flow_index: flow };
        let mut stream = connect(&self.endpoint);
        stream.write_all(&attach.request(&self.key)).unwrap();
        let mut granted = [0; wire::HANDSHAKE_BYTES];
        stream.read_exact(&mut granted).unwrap();
        assert!(attach.is_valid_reply(&granted, &self.key));
        stream
    }
}

/// A control connection on UDP, or a flow.
pub struct RawDatagrams {
    pub socket: UdpSocket,
    number: u32,
    pub attach: Option<(u64, Vec<u8>)>,
}

impl RawDatagrams {
    pub fn connect(endpoint: &Endpoint) -> RawDatagrams {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        socket.connect(address(endpoint)).unwrap();
        RawDatagrams { socket, number: 0, attach: None }
    }

    /// The reply, if one arrives in time.
    pub fn reply_to(&self, words: &[u8]) -> Option<Vec<u8>> {
        self.socket.send(words).unwrap();
        let mut room = vec![0; 65_536];
        let length = self.socket.recv(&mut room).ok()?;
        room.truncate(length);
        Some(room)
    }

    pub fn say(&self, words: &[u8]) -> Vec<u8> {
        self.reply_to(words).expect("a reply")
    }

    pub fn ask(&mut self, request: &SessionRequest) -> SessionReply {
        self.number += 1;
        let mut reply = self.say(&wire::encode_frame(self.number, request));
        loop {
            let (number, message, _) = wire::decode_frame(&reply, wire::MAX_JSON_BYTES).unwrap().unwrap();
            if !is_unasked(number, &message) {
                assert_eq!(number, self.number);
                return message;
            }
            reply = vec![0; 65_536];
            let length = self.socket.recv(&mut reply).unwrap();
            reply.truncate(length);
        }
    }

    /// A request to open a session, with a challenge that the server has just given.
    pub fn opening(&self) -> SessionRequest {
        let hello = Hello::new();
        let ready = self.say(hello.bytes());
        SessionRequest::Open {
            version: wire::VERSION,
            tool: "test".to_owned(),
            nonce: wire::encode_hex(hello.nonce()),
            challenge: wire::encode_hex(hello.challenge_in(&ready).expect("our server")),
            proof: None,
        }
    }

    /// A client with a session.
    pub fn open(endpoint: &Endpoint) -> RawDatagrams {
        let mut client = RawDatagrams::connect(endpoint);
        let opening = client.opening();
        let SessionReply::Opened { session, key, .. } = client.ask(&opening) else { panic!("no session") };
        let key = key.as_deref().and_then(wire::decode_hex).unwrap();
        client.attach = Some((u64::from_str_radix(&session, 16).unwrap(), key));
        client
    }

    /// A socket for a flow of the plan, and its `alive` message.
    pub fn attach(&self, endpoint: &Endpoint, flow: u32) -> (UdpSocket, Vec<u8>) {
        let (session, key) = self.attach.as_ref().unwrap();
        let attach = Attach { session_id: *session, flow_index: flow };
        let client = RawDatagrams::connect(endpoint);
        assert!(attach.is_valid_reply(&client.say(&attach.request(key)), key));
        (client.socket, attach.keepalive(key).to_vec())
    }
}
