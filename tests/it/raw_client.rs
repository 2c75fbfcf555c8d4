//! A client of our session that says what it likes, one word at a time.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use linkgauge::endpoint::Endpoint;
use linkgauge::peer::linkgauge::wire::{self, Attach, FarPlan, FlowKind, Hello, Reply, Request};
use linkgauge::plan::{Pacing, Stop, Wait};

/// The socket address of an endpoint.
pub fn address(endpoint: &Endpoint) -> SocketAddr {
    endpoint.place().parse().unwrap()
}

pub fn connect(endpoint: &Endpoint) -> TcpStream {
    let stream = TcpStream::connect(address(endpoint)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
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
pub fn plan(flows: &[FlowKind], message_bytes: u32, stop: Stop) -> FarPlan {
    FarPlan {
        flows: flows.to_vec(),
        message_bytes,
        pacing: Pacing::Closed,
        stop,
        warm_up: Stop::default(),
        timeout_ns: u64::MAX,
        wait: Wait::Block,
        cpu: None,
    }
}

impl RawClient {
    /// Says hello and asks for a session of some version; the reply.
    pub fn greet(endpoint: &Endpoint, version: u32) -> io::Result<(RawClient, Reply)> {
        let mut stream = connect(endpoint);
        let hello = Hello::new();
        stream.write_all(hello.bytes())?;
        let mut ready = [0; wire::SHORT];
        stream.read_exact(&mut ready)?;
        let challenge = hello.challenge_in(&ready).expect("our server").to_vec();
        let mut client =
            RawClient { stream, endpoint: endpoint.clone(), number: 0, session: 0, key: Vec::new() };
        let reply = client.ask(&Request::Open {
            version,
            tool: "test".to_owned(),
            nonce: wire::hex(hello.nonce()),
            challenge: wire::hex(&challenge),
            proof: None,
        })?;
        if let Reply::Opened { session, key, .. } = &reply {
            client.session = u64::from_str_radix(session, 16).unwrap();
            client.key = wire::unhex(key).unwrap();
        }
        Ok((client, reply))
    }

    /// A client with a session, if the server gives one.
    pub fn open(endpoint: &Endpoint) -> Option<RawClient> {
        let (client, reply) = RawClient::greet(endpoint, wire::VERSION).ok()?;
        matches!(reply, Reply::Opened { .. }).then_some(client)
    }

    pub fn ask(&mut self, request: &Request) -> io::Result<Reply> {
        self.number += 1;
        self.stream.write_all(&wire::frame(self.number, request))?;
        let mut heard = Vec::new();
        let mut chunk = [0; 4096];
        loop {
            if let Some((number, reply, _)) =
                wire::read_frame(&heard, wire::LONGEST).map_err(io::Error::other)?
            {
                assert_eq!(number, self.number);
                return Ok(reply);
            }
            match self.stream.read(&mut chunk)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                length => heard.extend_from_slice(&chunk[..length]),
            }
        }
    }

    /// Opens a connection for a flow of the plan.
    pub fn attach(&self, flow: u32) -> TcpStream {
        let attach = Attach { session: self.session, flow };
        let mut stream = connect(&self.endpoint);
        stream.write_all(&attach.request(&self.key)).unwrap();
        let mut granted = [0; wire::SHORT];
        stream.read_exact(&mut granted).unwrap();
        assert!(attach.is_granted_by(&granted, &self.key));
        stream
    }
}
