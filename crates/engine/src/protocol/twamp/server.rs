//! The server of TWAMP: control connections announce clients, whose test packets a reflector answers.
//!
//! A client is known by its address: a control connection proves it, so a reply may be longer than its request. The reflector has the
//! number of the control port.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::DEFAULT_PORT;
use super::wire::{self, Accept, AcceptSession, ControlCommand, TestSessionRequest};
use crate::link::party::{ClientTrust, Party, Step};
use crate::link::{Admission, Batch, Caps, Fault, Framing};
use crate::protocol::stamp::time::{NtpTime, WallClock};
use crate::protocol::stamp::{StampVariant, new_reflector};
use crate::protocol::{ServerConfig, Service, random_bytes};
use crate::transport::{companion_datagrams, companion_stream};
use linkgauge_model::clock::{Clock, Time};
use linkgauge_model::endpoint::{Endpoint, EndpointError};

/// Sessions of a control connection at most.
const MAX_SESSIONS: u32 = 64;

/// The longest message of a client, and what is received at once.
const RECEIVE_BYTES: usize = 512;

pub(super) fn new_service(config: &Arc<ServerConfig>) -> Arc<dyn Service> {
    let clock = Clock::System;
    Arc::new(TwampService {
        reflector: new_reflector(config, StampVariant::Twamp),
        clients: Arc::default(),
        port: DEFAULT_PORT,
        idle: Duration::from_secs(config.limits.idle_s),
        longest: Duration::from_secs(config.limits.duration_s.saturating_add(config.limits.idle_s)),
        started: WallClock::now(&clock).ntp_at(clock.now()),
    })
}

/// The addresses with open sessions, and their number.
#[derive(Default)]
struct AnnouncedClients(Mutex<BTreeMap<IpAddr, u32>>);

impl AnnouncedClients {
    fn add(&self, client: IpAddr) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(client).or_default() += 1;
    }

    fn remove(&self, client: IpAddr, sessions: u32) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = all.get_mut(&client) {
            *count = count.saturating_sub(sessions);
            if *count == 0 {
                all.remove(&client);
            }
        }
    }

    fn has(&self, client: IpAddr) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&client)
    }
}

/// The address of a client, by its name in the server.
fn address_of(from: &str) -> Option<IpAddr> {
    from.parse::<SocketAddr>().ok().map(|from| from.ip().to_canonical())
}

struct TwampService {
    reflector: Arc<dyn Service>,
    clients: Arc<AnnouncedClients>,
    /// UDP port of the reflector beside the control connections of this service.
    port: u16,
    idle: Duration,
    /// The longest time that a connection with sessions stays open.
    longest: Duration,
    started: NtpTime,
}

impl Service for TwampService {
    fn for_endpoint(&self, endpoint: &Endpoint, _all: &[Endpoint]) -> Option<Arc<dyn Service>> {
        let (_, port) = endpoint.host_port().ok()?;
        Some(Arc::new(TwampService {
            reflector: self.reflector.clone(),
            clients: self.clients.clone(),
            port: port.unwrap_or(DEFAULT_PORT),
            ..*self
        }))
    }

    /// Control connections and test packets have the same port.
    fn extra_endpoints(&self, endpoint: &Endpoint, _caps: &Caps) -> Result<Vec<Endpoint>, EndpointError> {
        let beside = companion_stream(endpoint).or_else(|_| companion_datagrams(endpoint));
        let wanted = "tcp://HOST or udp://HOST, with a port other than 0";
        let has_port = !matches!(endpoint.host_port(), Ok((_, Some(0))));
        match beside {
            Ok(beside) if has_port => Ok(vec![beside]),
            _ => Err(EndpointError::BadAddress { url: endpoint.to_string(), wanted }),
        }
    }

    fn connection_bytes(&self, caps: &Caps) -> usize {
        match caps.framing {
            Framing::Stream => 4 * RECEIVE_BYTES,
            Framing::Message => self.reflector.connection_bytes(caps),
        }
    }

    fn new_party(&self, caps: &Caps, from: &str) -> Box<dyn Party> {
        if caps.framing == Framing::Message {
            return self.reflector.new_party(caps, from);
        }
        Box::new(TwampClient::new(self, address_of(from)))
    }

    fn admit_sender(&self, first: &[u8], from: &str, reply: &mut Vec<u8>) -> Admission {
        match address_of(from).is_some_and(|client| self.clients.has(client)) {
            true => self.reflector.admit_sender(first, from, reply),
            false => Admission::Drop,
        }
    }

    fn speaks_first(&self, caps: &Caps) -> bool {
        caps.framing == Framing::Stream
    }

    /// A control connection vouches for the senders.
    fn replies_to_server_port(&self, _port: u16, _first: &[u8], _reply: &[u8]) -> bool {
        true
    }
}

/// A control connection of a client.
struct TwampClient {
    clients: Arc<AnnouncedClients>,
    client: Option<IpAddr>,
    port: u16,
    idle: Duration,
    longest: Duration,
    started: NtpTime,
    /// Received bytes that are no whole message yet: fewer than the longest message.
    input: Vec<u8>,
    /// Bytes that are still to be sent.
    output: Vec<u8>,
    has_mode: bool,
    sessions: u32,
    batch: Batch,
    began: Option<Time>,
    end: Option<Result<(), Fault>>,
}

impl TwampClient {
    fn new(service: &TwampService, client: Option<IpAddr>) -> TwampClient {
        TwampClient {
            clients: service.clients.clone(),
            client,
            port: service.port,
            idle: service.idle,
            longest: service.longest,
            started: service.started,
            input: Vec::with_capacity(2 * RECEIVE_BYTES),
            output: wire::greeting(wire::OPEN_MODE, random_bytes()).to_vec(),
            has_mode: false,
            sessions: 0,
            batch: Batch::new(RECEIVE_BYTES, 1),
            began: None,
            end: None,
        }
    }

    /// Answers the whole messages of the input.
    fn answer(&mut self) {
        while self.end.is_none() {
            let used = match self.has_mode {
                true => match wire::read_command(&self.input) {
                    None => return,
                    Some(Ok((command, used))) => {
                        self.execute(command);
                        used
                    }
                    Some(Err(wire::UnknownCommand(number))) => {
                        self.end = Some(Err(Fault::Refused(format!("command {number} is none of TWAMP"))));
                        return;
                    }
                },
                false => {
                    let Some(mode) = self.input.first_chunk().map(wire::read_set_up) else { return };
                    self.choose(mode);
                    wire::SET_UP_BYTES
                }
            };
            self.input.drain(..used);
        }
    }

    fn choose(&mut self, mode: u32) {
        self.has_mode = mode == wire::OPEN_MODE;
        // With mode 0 a client ends the connection.
        let accept = if self.has_mode { Accept::OK } else { Accept::UNSUPPORTED };
        self.output.extend_from_slice(&wire::server_start(accept, self.started));
        if !self.has_mode {
            self.end = Some(Ok(()));
        }
    }

    fn execute(&mut self, command: ControlCommand) {
        match command {
            ControlCommand::RequestSession(request) => {
                let accept = self.open_session(request);
                let reply = AcceptSession { accept, port: self.port, session: random_bytes() };
                self.output.extend_from_slice(&reply.encode());
            }
            ControlCommand::StartSessions => self.output.extend_from_slice(&wire::start_ack(Accept::OK)),
            ControlCommand::StopSessions => self.end = Some(Ok(())),
        }
    }

    fn open_session(&mut self, request: TestSessionRequest) -> Accept {
        let Some(client) = self.client.filter(|client| client.is_ipv6() == request.is_ipv6) else {
            return Accept::UNSUPPORTED;
        };
        if self.sessions == MAX_SESSIONS {
            return Accept::RESOURCES;
        }
        self.clients.add(client);
        self.sessions += 1;
        Accept::OK
    }
}

impl Drop for TwampClient {
    fn drop(&mut self) {
        if let Some(client) = self.client.filter(|_| self.sessions > 0) {
            self.clients.remove(client, self.sessions);
        }
    }
}

impl Party for TwampClient {
    fn next_step(&mut self, now: Time) -> Step<'_> {
        if !self.output.is_empty() {
            return Step::Send { bytes: &self.output, message: self.output.len() };
        }
        match self.end.take() {
            Some(Ok(())) => return Step::Done,
            Some(Err(fault)) => return Step::Fail(fault),
            None => {}
        }
        // Between the start and the end of sessions a client is silent.
        let limit = if self.sessions > 0 { self.longest } else { self.idle };
        let until = *self.began.get_or_insert(now) + limit;
        if now >= until {
            return Step::Done;
        }
        Step::Receive { into: &mut self.batch, until }
    }

    fn on_sent(&mut self, bytes: usize, _at: Time) {
        self.output.drain(..bytes);
    }

    fn on_received(&mut self, _now: Time) {
        self.batch.messages().for_each(|received| self.input.extend_from_slice(received));
        self.answer();
    }

    fn client_trust(&self) -> ClientTrust {
        match self.has_mode {
            // It is silent while its test packets are sent.
            true => ClientTrust::Exempt,
            false => ClientTrust::Unidentified,
        }
    }

    fn on_timeout(&mut self, _now: Time) {
        self.end = Some(Ok(()));
    }

    fn on_closed(&mut self, _now: Time) -> Result<(), Fault> {
        self.end = Some(Ok(()));
        self.output.clear();
        Ok(())
    }
}
