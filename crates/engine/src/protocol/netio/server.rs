//! A server for NETIO clients of every dialect, any number of them at once.
//!
//! The first bytes of a connection identify its dialect. Then it is a loop of commands, as in the original: receive
//! blocks until the last one, send blocks for some time, end. The server sends no replies, except on the stream of
//! datagram tests.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::GRACE_PERIOD;
use super::clients::{ClientRegistry, DatagramClient, DatagramParty, POLL_INTERVAL, RegisteredClient};
use super::sender::{BlockSender, send_time, sending_load};
use super::wire::{ControlWord, DialectGuess, FlaggedBlockParser, MAX_BLOCK_BYTES, NetioDialect, WORD_BYTES};
use crate::link::party::{ClientTrust, Party, PartyCost, Step};
use crate::link::{Admission, Batch, Caps, Fault, Framing};
use crate::protocol::{ServerConfig, ServerLimits, ServerSetting, Service};
use crate::transport::companion_stream;
use linkgauge_model::clock::Time;
use linkgauge_model::endpoint::Endpoint;
use linkgauge_model::sample::Recorder;

/// Maximum payload of a datagram over IPv4.
const MAX_DATAGRAM_BYTES: u32 = 65_507;

/// Time to wait for the first datagram of a client, whose address is unknown before that.
const UNREACHABLE_TIMEOUT: Duration = Duration::from_millis(500);

/// Size of one receive, in bytes.
const RECEIVE_BYTES: usize = 128 * 1024;

pub(crate) fn new_service(facts: &Arc<ServerConfig>) -> Arc<dyn Service> {
    Arc::new(NetioService { limits: facts.limits, clients: Arc::default(), has_datagrams: false })
}

struct NetioService {
    limits: ServerLimits,
    clients: Arc<ClientRegistry>,
    /// Whether the streams carry the commands for datagrams.
    has_datagrams: bool,
}

impl Service for NetioService {
    fn for_endpoint(&self, endpoint: &Endpoint, all: &[Endpoint]) -> Option<Arc<dyn Service>> {
        // Ports chosen by the system always differ.
        let has_port = matches!(endpoint.host_port(), Ok((_, Some(1..))));
        let is_beside = |datagrams: &Endpoint| {
            let stream = companion_stream(datagrams).ok().filter(|_| has_port);
            stream.is_some_and(|at| (at.scheme(), at.address()) == (endpoint.scheme(), endpoint.address()))
        };
        all.iter().any(is_beside).then(|| {
            let clients = self.clients.clone();
            Arc::new(NetioService { limits: self.limits, clients, has_datagrams: true }) as Arc<dyn Service>
        })
    }

    /// Memory for a receive, and for the blocks that are sent.
    fn connection_bytes(&self, _caps: &Caps) -> usize {
        RECEIVE_BYTES + 3 * MAX_BLOCK_BYTES as usize
    }

    fn new_party(&self, caps: &Caps, from: &str) -> Box<dyn Party> {
        if caps.framing == Framing::Message {
            return match self.clients.find(from) {
                Some(found) => Box::new(DatagramParty::new(found, self.limits, caps)),
                None => Box::new(NetioConnection::refusing(
                    self.limits,
                    caps,
                    "no stream announced these datagrams",
                )),
            };
        }
        let mut connection = NetioConnection::new(self.limits, caps);
        connection.registered_client = self.has_datagrams.then(|| self.clients.register(from));
        Box::new(connection)
    }

    fn supported_settings(&self) -> &'static [ServerSetting] {
        &[ServerSetting::MessageBytes]
    }

    fn admit_sender(&self, _first: &[u8], from: &str, _reply: &mut Vec<u8>) -> Admission {
        if self.clients.find(from).is_some() { Admission::Open } else { Admission::Drop }
    }

    /// Returns true: the clients send from the number of the server's port, and a stream vouches for them.
    fn replies_to_server_port(&self, _port: u16, _first: &[u8], _reply: &[u8]) -> bool {
        true
    }
}

/// State of a connection.
enum NetioConnectionState {
    /// Waits for the next word, or for the first bytes of a client without control words.
    AwaitingCommand,
    /// Receives blocks of the client.
    Receiving(FlaggedBlockParser),
    /// Reads bytes of a client without control words, until it closes.
    Draining,
    Sending(Box<BlockSender>),
    /// Sends a reply word, of which this number of bytes has been sent.
    Replying([u8; WORD_BYTES], usize),
    /// Waits for the datagrams to be sent, until this time at the latest.
    AwaitingDatagrams(Time),
    Closed,
    Refused(String),
}

struct NetioConnection {
    limits: ServerLimits,
    caps: Caps,
    dialect: Option<NetioDialect>,
    state: NetioConnectionState,
    command: [u8; WORD_BYTES],
    /// Number of received bytes of the word.
    command_filled: usize,
    batch: Batch,
    /// Number of processed bytes of the batch.
    batch_used: usize,
    /// Time of the last progress.
    last_activity: Option<Time>,
    /// Time at which the direction began.
    direction_began: Option<Time>,
    /// Registration of the client, for the stream of a datagram test.
    registered_client: Option<RegisteredClient>,
    /// Count of datagrams when the stream was last seen silent.
    seen_packets: u64,
}

impl NetioConnection {
    pub fn new(limits: ServerLimits, caps: &Caps) -> NetioConnection {
        NetioConnection {
            limits,
            caps: caps.clone(),
            dialect: None,
            state: NetioConnectionState::AwaitingCommand,
            command: [0; WORD_BYTES],
            command_filled: 0,
            batch: Batch::new(RECEIVE_BYTES, 1),
            batch_used: 0,
            last_activity: None,
            direction_began: None,
            registered_client: None,
            seen_packets: 0,
        }
    }

    fn refusing(limits: ServerLimits, caps: &Caps, why: &str) -> NetioConnection {
        NetioConnection {
            state: NetioConnectionState::Refused(why.to_owned()),
            ..NetioConnection::new(limits, caps)
        }
    }

    fn idle_timeout(&self) -> Duration {
        Duration::from_secs(self.limits.idle_s)
    }

    /// Processes pending input, until the server must send or needs more input.
    fn process_input(&mut self, now: Time) {
        while matches!(
            self.state,
            NetioConnectionState::AwaitingCommand
                | NetioConnectionState::Receiving(_)
                | NetioConnectionState::Draining
        ) {
            let received = self.batch.messages().next().unwrap_or_default();
            let rest = &received[self.batch_used.min(received.len())..];
            if rest.is_empty() {
                return;
            }
            match &mut self.state {
                NetioConnectionState::Receiving(blocks) => {
                    self.batch_used += blocks.push(rest);
                    if blocks.is_finished() {
                        self.state = NetioConnectionState::AwaitingCommand;
                    }
                }
                NetioConnectionState::AwaitingCommand => {
                    let length = rest.len().min(WORD_BYTES - self.command_filled);
                    self.command[self.command_filled..self.command_filled + length]
                        .copy_from_slice(&rest[..length]);
                    (self.command_filled, self.batch_used) =
                        (self.command_filled + length, self.batch_used + length);
                    self.handle_command(now);
                }
                _ => self.batch_used = received.len(),
            }
        }
    }

    /// Executes a complete control word.
    fn handle_command(&mut self, now: Time) {
        let dialect = match self.dialect {
            Some(dialect) => dialect,
            None => match DialectGuess::from_first_bytes(&self.command[..self.command_filled]) {
                DialectGuess::Undecided => return,
                DialectGuess::NotNetio => {
                    let command = self.command[..self.command_filled].escape_ascii();
                    self.state = NetioConnectionState::Refused(format!(
                        "a NETIO client does not begin with \"{command}\""
                    ));
                    return;
                }
                DialectGuess::Known(NetioDialect::A) => {
                    (self.state, self.direction_began) = (NetioConnectionState::Draining, Some(now));
                    return;
                }
                DialectGuess::Known(dialect) => *self.dialect.insert(dialect),
            },
        };
        if self.command_filled < WORD_BYTES {
            return;
        }
        self.command_filled = 0;
        self.direction_began = Some(now);
        let word = ControlWord::decode(self.command, dialect);
        if let Some(entered) = &self.registered_client {
            self.state = self.handle_datagram_command(&entered.client, word, dialect, now);
            return;
        }
        self.state = match word {
            ControlWord::ClientSends(0)
            | ControlWord::ServerSends(0)
            | ControlWord::Quit
            | ControlWord::Result(_) => NetioConnectionState::Closed,
            ControlWord::ClientSends(size) | ControlWord::ServerSends(size)
                if size > self.max_block_bytes() =>
            {
                NetioConnectionState::Refused(format!(
                    "blocks of {size} bytes: at most {}",
                    self.max_block_bytes()
                ))
            }
            ControlWord::ClientSends(size) => NetioConnectionState::Receiving(FlaggedBlockParser::new(size)),
            ControlWord::ServerSends(size) => NetioConnectionState::Sending(Box::new(self.new_sender(size))),
        };
    }

    /// Executes a control word of a datagram test.
    fn handle_datagram_command(
        &self,
        client: &DatagramClient,
        word: ControlWord,
        dialect: NetioDialect,
        now: Time,
    ) -> NetioConnectionState {
        let largest = self.max_block_bytes().min(MAX_DATAGRAM_BYTES);
        client.has_announced.store(matches!(word, ControlWord::ClientSends(_)), Relaxed);
        match word {
            ControlWord::ClientSends(0) | ControlWord::ServerSends(0) | ControlWord::Quit => {
                NetioConnectionState::Closed
            }
            ControlWord::ClientSends(size) | ControlWord::ServerSends(size) if size > largest => {
                NetioConnectionState::Refused(format!("datagrams of {size} bytes: at most {largest}"))
            }
            ControlWord::ClientSends(_) => {
                client.received_packets.store(0, Relaxed);
                NetioConnectionState::Replying(word.encode(dialect), 0)
            }
            ControlWord::ServerSends(size) => {
                client.request_datagrams(size);
                NetioConnectionState::AwaitingDatagrams(now + send_time(&self.limits) + GRACE_PERIOD)
            }
            ControlWord::Result(_) => {
                let packets = u32::try_from(client.received_packets.load(Relaxed)).unwrap_or(u32::MAX);
                NetioConnectionState::Replying(ControlWord::Result(packets).encode(dialect), 0)
            }
        }
    }

    /// Waits for requested datagrams to be sent, then sends their count.
    fn poll_datagrams(&mut self, until: Time, now: Time) {
        let (Some(entered), Some(dialect)) = (&self.registered_client, self.dialect) else { return };
        let nowhere = !entered.client.is_reachable.load(Relaxed)
            && self.direction_began.is_some_and(|began| now > began + UNREACHABLE_TIMEOUT);
        if nowhere {
            entered.client.request_datagrams(0);
        }
        if let Some(sent) = entered.client.completed_packets() {
            // Never 0: the original divides by it.
            let sent = u32::try_from(sent.max(1)).unwrap_or(u32::MAX);
            self.state = NetioConnectionState::Replying(ControlWord::Result(sent).encode(dialect), 0);
        } else if now > until {
            self.state = NetioConnectionState::Refused("its datagrams could not be sent".to_owned());
        }
    }

    fn max_block_bytes(&self) -> u32 {
        self.limits.message_bytes.min(MAX_BLOCK_BYTES)
    }

    fn new_sender(&self, size: u32) -> BlockSender {
        let load = sending_load(&self.limits, size);
        BlockSender::new(&load, &self.caps, Recorder::for_counting()).with_last_block()
    }
}

impl Party for NetioConnection {
    #[inline]
    fn next_step(&mut self, now: Time) -> Step<'_> {
        let until = *self.last_activity.get_or_insert(now) + self.idle_timeout();
        let longest = Duration::from_secs(self.limits.duration_s) + GRACE_PERIOD;
        if matches!(self.state, NetioConnectionState::Receiving(_) | NetioConnectionState::Draining)
            && self.direction_began.is_some_and(|began| now > began + longest)
        {
            self.state = NetioConnectionState::Refused("longer than this server allows".to_owned());
        }
        if matches!(&self.state, NetioConnectionState::Sending(sender) if sender.is_finished()) {
            (self.state, self.last_activity) = (NetioConnectionState::AwaitingCommand, Some(now));
            self.process_input(now);
        }
        if self.registered_client.as_ref().is_some_and(|entered| entered.client.is_closed()) {
            return Step::Done;
        }
        if let NetioConnectionState::AwaitingDatagrams(until) = self.state {
            self.poll_datagrams(until, now);
        }
        if let NetioConnectionState::Replying(_, WORD_BYTES) = self.state {
            (self.state, self.last_activity) = (NetioConnectionState::AwaitingCommand, Some(now));
            self.process_input(now);
        }
        match &mut self.state {
            NetioConnectionState::Sending(sender) => sender.next_step(now),
            NetioConnectionState::Replying(word, sent) => {
                Step::Send { bytes: &word[*sent..], message: WORD_BYTES }
            }
            NetioConnectionState::AwaitingDatagrams(_) => Step::Sleep(now + POLL_INTERVAL),
            NetioConnectionState::Closed => Step::Done,
            NetioConnectionState::Refused(why) => Step::Fail(Fault::Refused(why.clone())),
            _ => Step::Receive { into: &mut self.batch, until },
        }
    }

    #[inline]
    fn on_sent(&mut self, bytes: usize, at: Time) {
        match &mut self.state {
            NetioConnectionState::Sending(sender) => sender.on_sent(bytes, at),
            NetioConnectionState::Replying(_, sent) => *sent += bytes,
            _ => {}
        }
    }

    #[inline]
    fn on_received(&mut self, now: Time) {
        (self.last_activity, self.batch_used) = (Some(now), 0);
        self.process_input(now);
    }

    /// Exempts the client: limits apply to each direction, and a client has many of them, one after the other.
    fn client_trust(&self) -> ClientTrust {
        ClientTrust::Exempt
    }

    /// Checks for progress: the stream of a datagram test is silent as long as the client sends datagrams.
    fn on_timeout(&mut self, now: Time) {
        let entered = self.registered_client.as_ref();
        let packets = entered.map_or(0, |entered| entered.client.received_packets.load(Relaxed));
        if packets != std::mem::replace(&mut self.seen_packets, packets) {
            self.last_activity = Some(now);
        } else {
            self.state = NetioConnectionState::Closed;
        }
    }

    fn on_closed(&mut self, _now: Time) -> Result<(), Fault> {
        // In any other state the client has disconnected.
        self.state = NetioConnectionState::Closed;
        Ok(())
    }

    fn on_ended(&mut self, cost: PartyCost) {
        if let NetioConnectionState::Sending(sender) = &mut self.state {
            sender.on_ended(cost);
        }
    }
}
