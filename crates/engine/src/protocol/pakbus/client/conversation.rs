//! The client's conversation with one logger: pending commands, retries, and replies to unsolicited messages. Bytes
//! in, bytes out; the content of the replies is handled elsewhere.

use std::collections::VecDeque;
use std::time::Duration;

use crate::protocol::pakbus::frame::{self, FrameDecoder, SYNC_BYTE};
use crate::protocol::pakbus::message::{HelloFields, LoggerCommand};
use crate::protocol::pakbus::packet::{Hop, LinkState, PacketRoute, PakBusPacket};
use crate::protocol::pakbus::reply::{DeliveryFailure, FailureCode, LoggerReply};
use crate::protocol::pakbus::{BROADCAST_ADDRESS, PakBusParseError};
use linkgauge_model::clock::Time;
use linkgauge_model::run::RequestCounts;

/// Address of the client. Addresses from 4000 are for computers, and loggers accept them; LoggerNet uses 4094.
pub(crate) const CLIENT_ADDRESS: u16 = 4093;

/// Sync bytes that wake a logger on a serial line and let it detect the baud rate (BMP5 manual); harmless on other
/// links.
pub(crate) const WAKE_BYTES: [u8; 6] = [SYNC_BYTE; 6];

/// Hello of the client, with a delay of at most 5 s and half an hour between two hellos: the values of other clients, which
/// loggers repeat.
const CLIENT_HELLO: HelloFields = HelloFields { is_router: false, metric: 2, verify: 1800 };

/// Maximum wait for one command, including all extensions that the logger requests.
const MAX_COMMAND_WAIT: Duration = Duration::from_secs(600);

/// Number of replies to later commands after which a command counts as lost.
const MAX_OVERTAKES: u32 = 3;

/// Pause before the retry of a command that a logger rejected while it was the only one; doubles every time.
const MIN_RETRY_PAUSE: Duration = Duration::from_millis(100);

/// Maximum queued replies to unsolicited messages.
const MAX_UNSOLICITED_REPLIES: usize = 16;

/// Counts of received messages, including those that match no command, to explain a missing reply.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ReceiveStats {
    /// Number of complete replies to commands.
    replies: u64,
    /// Number of replies to a hello among them.
    greetings: u64,
    /// Address of another logger that sent messages.
    other_node: Option<u16>,
    bad_signatures: u64,
    /// Number of truncated or invalid frames and messages.
    malformed: u64,
    /// Number of replies that match no pending command.
    stray_replies: u64,
    junk_bytes: u64,
    /// Number of packets from the client's own address.
    own_packets: u64,
    /// Number of extensions requested since the last reply.
    please_waits: u64,
}

/// Error of a logger that did not reply after all tries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoReplyError;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CommandState {
    /// The command waits for this instant.
    Queued(Time),
    Sending,
    /// The command waits for its reply until this instant.
    Sent(Time),
}

/// A command without a reply.
#[derive(Debug)]
struct PendingCommand {
    key: u64,
    transaction: u8,
    command: LoggerCommand,
    state: CommandState,
    /// Times at which its first byte was sent, for the first and the last time.
    first_sent: Option<Time>,
    last_sent: Time,
    /// Sequence number of its last transmission.
    send_order: u64,
    tries: u32,
    times_overtaken: u32,
}

/// The result of a command.
#[derive(Debug)]
pub(crate) struct CommandOutcome {
    /// The key given with the command.
    pub(crate) key: u64,
    pub(crate) command: LoggerCommand,
    /// Time at which the command was sent for the first time.
    pub(crate) first_sent: Time,
    /// Reply, or reason for the failed delivery of the command.
    pub(crate) outcome: Result<LoggerReply, FailureCode>,
}

/// A frame that the link has not fully taken.
#[derive(Debug)]
struct UnsentFrame {
    bytes: Vec<u8>,
    sent_bytes: usize,
    /// Transmission of the command in the frame; `None` for other messages.
    send_order: Option<u64>,
    last_progress: Option<Time>,
}

/// Layer between the link and the transfer.
#[derive(Debug)]
pub(crate) struct Conversation {
    node: u16,
    /// Neighbour on the way to the node: a router, or the node itself.
    neighbour: u16,
    /// Whether the link loses nothing.
    is_reliable: bool,
    timeout: Duration,
    retries: u32,
    decoder: FrameDecoder,
    pending: VecDeque<PendingCommand>,
    unsolicited: VecDeque<Vec<u8>>,
    outgoing_frame: Option<UnsentFrame>,
    must_wake: bool,
    next_transaction: u8,
    sendings: u64,
    /// Maximum commands in flight.
    window: usize,
    /// Transmission up to which faults have narrowed the window.
    narrowed_at: u64,
    /// Time of the last reply.
    last_reply: Time,
    pub(crate) stats: ReceiveStats,
    pub(crate) counts: RequestCounts,
}

impl Conversation {
    /// Creates a conversation. `seed` sets the first transaction number, so that replies to an earlier client on the line do
    /// not match.
    pub fn new(node: u16, timeout: Duration, retries: u32, window: usize, seed: u64) -> Conversation {
        Conversation {
            node,
            neighbour: node,
            is_reliable: false,
            timeout,
            retries,
            decoder: FrameDecoder::default(),
            pending: VecDeque::new(),
            unsolicited: VecDeque::new(),
            outgoing_frame: None,
            must_wake: true,
            next_transaction: (seed % 255) as u8,
            sendings: 0,
            window,
            narrowed_at: 0,
            last_reply: Time(0),
            stats: ReceiveStats::default(),
            counts: RequestCounts { window: window as u64, ..RequestCounts::default() },
        }
    }

    /// Sends everything through this router.
    pub(crate) fn through_router(self, router: Option<u16>) -> Conversation {
        Conversation { neighbour: router.unwrap_or(self.node), ..self }
    }

    /// Sets whether the link loses nothing.
    pub(crate) fn set_reliable(&mut self, is_reliable: bool) {
        self.is_reliable = is_reliable;
    }

    /// Number of repeated tries of a command. A logger that greets and ignores the first command ignores all of them.
    pub(crate) fn retries(&self) -> u32 {
        let is_pointless = self.is_reliable && self.stats.has_only_greetings() && !self.is_greeting();
        if is_pointless { 0 } else { self.retries }
    }

    /// Next number for a command or for all chunks of a file: 1 to 255, in turn.
    pub(crate) fn allocate_transaction(&mut self) -> u8 {
        for _ in 0..u8::MAX {
            self.next_transaction = self.next_transaction % u8::MAX + 1;
            if self.pending.iter().all(|pending| pending.transaction != self.next_transaction) {
                break;
            }
        }
        self.next_transaction
    }

    /// Whether one more command may be in flight.
    pub(crate) fn has_room(&self) -> bool {
        self.pending.len() < self.window && !self.is_greeting()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.pending.is_empty()
    }

    /// Whether the link has taken all output.
    pub(crate) fn is_flushed(&self) -> bool {
        self.outgoing_frame.is_none() && self.unsolicited.is_empty()
    }

    fn is_greeting(&self) -> bool {
        self.pending.front().is_some_and(|pending| matches!(pending.command, LoggerCommand::Hello(_)))
    }

    /// Queues a command; its outcome has this `key`.
    pub(crate) fn queue_command(&mut self, key: u64, transaction: u8, command: LoggerCommand) {
        let pending = PendingCommand {
            key,
            transaction,
            command,
            state: CommandState::Queued(Time(0)),
            first_sent: None,
            last_sent: Time(0),
            send_order: 0,
            tries: 0,
            times_overtaken: 0,
        };
        match pending.command {
            LoggerCommand::Hello(_) => self.pending.push_front(pending),
            _ => self.pending.push_back(pending),
        }
    }

    /// Queues a hello; no other command is sent before its reply.
    pub(crate) fn queue_hello(&mut self) {
        let transaction = self.allocate_transaction();
        self.queue_command(0, transaction, LoggerCommand::Hello(CLIENT_HELLO));
    }

    /// Queues a message without a reply.
    pub(crate) fn queue_message(&mut self, state: LinkState, transaction: u8, command: &LoggerCommand) {
        let (protocol, message) = command.write(transaction);
        let packet = self.new_packet(state, protocol, &message);
        self.unsolicited.push_back(packet);
    }

    /// Drops pending commands whose key is not wanted.
    pub(crate) fn retain_commands(&mut self, wanted: impl Fn(u64) -> bool) {
        self.pending.retain(|pending| wanted(pending.key));
    }

    /// Starts again on a new link: commands in flight are sent again after a hello. Chunks of files get a new
    /// transaction number, which is returned; the logger opens the file again under it.
    pub(crate) fn restart(&mut self) -> u8 {
        self.decoder = FrameDecoder::default();
        (self.outgoing_frame, self.must_wake) = (None, true);
        self.unsolicited.clear();
        let number = self.allocate_transaction();
        self.pending.retain(|pending| !matches!(pending.command, LoggerCommand::Hello(_)));
        for pending in &mut self.pending {
            self.counts.retransmissions += u64::from(pending.first_sent.is_some());
            (pending.state, pending.tries) = (CommandState::Queued(Time(0)), 0);
            if matches!(pending.command, LoggerCommand::Fetch(_)) {
                pending.transaction = number;
            }
        }
        self.queue_hello();
        number
    }

    /// Handles overdue commands.
    pub(crate) fn check_timeouts(&mut self, now: Time) -> Result<(), NoReplyError> {
        if let Some(since) = self.outgoing_frame.as_ref().and_then(|outgoing| outgoing.last_progress)
            && now >= since + self.timeout
        {
            return Err(NoReplyError);
        }
        let (heard_until, retries) = (self.last_reply + self.timeout, self.retries());
        let mut late = None;
        for pending in &mut self.pending {
            let CommandState::Sent(until) = pending.state else { continue };
            let lost = self.window > 1 && pending.times_overtaken >= MAX_OVERTAKES;
            if !lost && now < until.max(heard_until) {
                continue;
            }
            if pending.tries >= retries {
                return Err(NoReplyError);
            }
            pending.tries += 1;
            pending.state = CommandState::Queued(now);
            self.counts.retransmissions += 1;
            late = late.max(Some(pending.send_order));
        }
        if let Some(order) = late {
            self.narrow_window(order);
        }
        Ok(())
    }

    /// Handles a fault of this transmission: reduces the number of commands in flight.
    fn narrow_window(&mut self, order: u64) {
        if order > self.narrowed_at {
            self.narrowed_at = self.sendings;
            self.window = (self.window / 2).max(1);
            self.counts.window = self.window as u64;
        }
    }

    /// Time at which `check_timeouts` or `next_frame` must be called again, unless input arrives earlier.
    pub(crate) fn next_deadline(&self) -> Time {
        let heard_until = self.last_reply + self.timeout;
        let waits = self.is_full();
        let at = self.pending.iter().map(|pending| match pending.state {
            // Sent after the reply to another command.
            CommandState::Queued(_) if waits => Time::NEVER,
            CommandState::Queued(at) => at,
            CommandState::Sending => Time::NEVER,
            CommandState::Sent(until) => until.max(heard_until),
        });
        at.min().unwrap_or(Time::NEVER)
    }

    /// Next bytes to send.
    pub(crate) fn next_frame(&mut self, now: Time) -> Option<&[u8]> {
        if self.outgoing_frame.is_none() {
            let (packet, order) = match self.unsolicited.pop_front() {
                Some(packet) => (packet, None),
                None => {
                    let (packet, order) = self.next_due_packet(now)?;
                    (packet, Some(order))
                }
            };
            let mut bytes = Vec::with_capacity(2 * packet.len());
            if std::mem::take(&mut self.must_wake) {
                bytes.extend(WAKE_BYTES);
            }
            frame::write(&packet, &mut bytes);
            self.outgoing_frame =
                Some(UnsentFrame { bytes, sent_bytes: 0, send_order: order, last_progress: None });
        }
        let outgoing = self.outgoing_frame.as_mut()?;
        outgoing.last_progress.get_or_insert(now);
        Some(&outgoing.bytes[outgoing.sent_bytes..])
    }

    /// Whether the window is full; a hello is always sent alone.
    fn is_full(&self) -> bool {
        let sent = self.pending.iter().filter(|pending| matches!(pending.state, CommandState::Sent(_)));
        sent.count() >= if self.is_greeting() { 1 } else { self.window }
    }

    /// Packet of the first command that may be sent.
    fn next_due_packet(&mut self, now: Time) -> Option<(Vec<u8>, u64)> {
        if self.is_full() {
            return None;
        }
        let alone = self.is_greeting();
        let ready = |pending: &PendingCommand| matches!(pending.state, CommandState::Queued(at) if at <= now);
        let at = self.pending.iter().position(ready).filter(|&at| !alone || at == 0)?;
        self.sendings += 1;
        let pending = &mut self.pending[at];
        (pending.state, pending.send_order, pending.times_overtaken) =
            (CommandState::Sending, self.sendings, 0);
        let (protocol, message) = pending.command.write(pending.transaction);
        let state = if alone { LinkState::RING } else { LinkState::READY };
        Some((self.new_packet(state, protocol, &message), self.sendings))
    }

    /// Discards all output.
    pub(crate) fn drop_outgoing(&mut self) {
        self.outgoing_frame = None;
        self.unsolicited.clear();
    }

    /// Notes that the link took this many bytes. Returns whether they include the start of a command's first transmission.
    pub(crate) fn mark_sent(&mut self, bytes: usize, at: Time) -> bool {
        let Some(outgoing) = &mut self.outgoing_frame else { return false };
        let begins = outgoing.sent_bytes == 0 && bytes > 0;
        outgoing.sent_bytes += bytes;
        outgoing.last_progress = Some(at);
        let (order, whole) = (outgoing.send_order, outgoing.sent_bytes >= outgoing.bytes.len());
        if whole {
            self.outgoing_frame = None;
        }
        let Some(pending) = self.pending.iter_mut().find(|pending| Some(pending.send_order) == order) else {
            return false;
        };
        let first = begins && pending.first_sent.is_none();
        if begins {
            pending.first_sent.get_or_insert(at);
            pending.last_sent = at;
        }
        if whole && pending.state == CommandState::Sending {
            pending.state = CommandState::Sent(at + self.timeout);
        }
        first && !matches!(pending.command, LoggerCommand::Hello(_))
    }

    /// Processes received bytes; adds the results to `outcomes`.
    pub(crate) fn process_input(
        &mut self,
        mut bytes: &[u8],
        now: Time,
        outcomes: &mut VecDeque<CommandOutcome>,
    ) {
        while !bytes.is_empty() {
            let (used, packet) = self.decoder.read(bytes);
            bytes = &bytes[used..];
            let packet = packet.map(<[u8]>::to_vec);
            if let Some(packet) = packet {
                outcomes.extend(self.handle_packet(&packet, now));
            }
        }
        let counts = self.decoder.take_counts();
        self.stats.bad_signatures += counts.bad_signatures;
        self.stats.malformed += counts.malformed;
        self.stats.junk_bytes += counts.junk_bytes;
    }

    fn handle_packet(&mut self, packet: &[u8], now: Time) -> Option<CommandOutcome> {
        let Ok(PakBusPacket { hop, message }) = PakBusPacket::read(packet) else {
            self.stats.malformed += 1;
            return None;
        };
        if ![CLIENT_ADDRESS, BROADCAST_ADDRESS].contains(&hop.to) {
            self.stats.own_packets += u64::from(hop.from == CLIENT_ADDRESS);
            return None;
        }
        let Some((route, message)) = message else {
            self.handle_link_state(&hop);
            return None;
        };
        if ![CLIENT_ADDRESS, BROADCAST_ADDRESS].contains(&route.to) {
            return None;
        }
        if route.from != self.node && route.from != self.neighbour {
            self.stats.other_node = Some(route.from);
            return None;
        }
        match LoggerReply::read(route.protocol, message) {
            Ok((_, LoggerReply::Failure(failure))) => self.handle_failure(&failure, now),
            Ok((transaction, LoggerReply::PleaseWait { command, seconds })) => {
                self.extend_wait(transaction, command, seconds, now);
                None
            }
            Ok((transaction, reply)) => self.handle_reply(transaction, reply, now),
            Err(PakBusParseError::Unknown) => {
                if let Ok((transaction, LoggerCommand::Hello(hello))) =
                    LoggerCommand::read(route.protocol, message)
                    && self.unsolicited.len() < MAX_UNSOLICITED_REPLIES
                {
                    let reply = LoggerReply::Hello(HelloFields { is_router: false, ..hello });
                    let (protocol, message) = reply.write(transaction);
                    self.unsolicited.push_back(self.new_packet(LinkState::READY, protocol, &message));
                }
                None
            }
            Err(PakBusParseError::TooShort) => {
                self.stats.malformed += 1;
                None
            }
        }
    }

    /// Handles the link state in a packet.
    fn handle_link_state(&mut self, hop: &Hop) {
        let state = match hop.state {
            LinkState::RING => LinkState::READY,
            LinkState::FINISHED => LinkState::OFF_LINE,
            LinkState::PAUSE => LinkState::FINISHED,
            _ => return,
        };
        if hop.from == self.neighbour && self.unsolicited.len() < MAX_UNSOLICITED_REPLIES {
            let hop = Hop { state, to: hop.from, from: CLIENT_ADDRESS, expect_more: 0, priority: 0 };
            self.unsolicited.push_back(PakBusPacket { hop, message: None }.write());
        }
    }

    fn handle_reply(&mut self, transaction: u8, reply: LoggerReply, now: Time) -> Option<CommandOutcome> {
        let is_confirmed = |pending: &PendingCommand| {
            pending.first_sent.is_some()
                && pending.transaction == transaction
                && is_reply_to(&pending.command, &reply)
        };
        let Some(at) = self.pending.iter().position(is_confirmed) else {
            self.stats.stray_replies += 1;
            return None;
        };
        (self.stats.replies, self.stats.please_waits) = (self.stats.replies + 1, 0);
        self.stats.greetings += u64::from(matches!(reply, LoggerReply::Hello(_)));
        self.last_reply = now;
        let order = self.pending[at].send_order;
        for other in &mut self.pending {
            other.times_overtaken +=
                u32::from(other.send_order < order && matches!(other.state, CommandState::Sent(_)));
        }
        self.complete_command(at, Ok(reply))
    }

    fn complete_command(
        &mut self,
        at: usize,
        outcome: Result<LoggerReply, FailureCode>,
    ) -> Option<CommandOutcome> {
        let pending = self.pending.remove(at)?;
        self.counts.round_trips += 1;
        let sent = pending.first_sent.unwrap_or(pending.last_sent);
        Some(CommandOutcome { key: pending.key, command: pending.command, first_sent: sent, outcome })
    }

    /// Handles a command that could not be delivered or parsed, or was rejected by a full queue.
    fn handle_failure(&mut self, failure: &DeliveryFailure, now: Time) -> Option<CommandOutcome> {
        let (kind, transaction) = failure.command()?;
        // The quoted part of the command does not always identify the chunk; the last one sent met the full queue.
        let mut candidates = self.pending.iter().enumerate().filter(|(_, pending)| {
            pending.transaction == transaction
                && matches!(pending.state, CommandState::Sent(_))
                && kind == command_kind(&pending.command)
        });
        let Some((at, _)) = (match failure.code {
            FailureCode::OVERFLOW => candidates.max_by_key(|(_, pending)| pending.send_order),
            _ => candidates.next(),
        }) else {
            self.stats.stray_replies += 1;
            return None;
        };
        if failure.code != FailureCode::OVERFLOW {
            return self.complete_command(at, Err(failure.code));
        }
        self.counts.refusals += 1;
        self.counts.retransmissions += 1;
        let alone = !self
            .pending
            .iter()
            .enumerate()
            .any(|(other, pending)| other != at && matches!(pending.state, CommandState::Sent(_)));
        let pending = &mut self.pending[at];
        if alone {
            if pending.tries >= self.retries {
                return self.complete_command(at, Err(failure.code));
            }
            pending.state = CommandState::Queued(now + MIN_RETRY_PAUSE * (1 << pending.tries.min(6)));
            pending.tries += 1;
        } else {
            pending.state = CommandState::Queued(now);
        }
        let order = pending.send_order;
        self.narrow_window(order);
        None
    }

    /// Extends the wait for a reply by this many seconds.
    fn extend_wait(&mut self, transaction: u8, kind: u8, seconds: u16, now: Time) {
        self.counts.please_waits += 1;
        self.stats.please_waits += 1;
        // The manual allows at most 30 s per extension (BMP5 manual).
        let wait = Duration::from_secs(u64::from(seconds.min(30)));
        for pending in self.pending.iter_mut().filter(|pending| pending.transaction == transaction) {
            if let CommandState::Sent(until) = pending.state
                && kind == command_kind(&pending.command)
            {
                let most = pending.first_sent.unwrap_or(now) + MAX_COMMAND_WAIT;
                pending.state = CommandState::Sent(until.max((now + wait + self.timeout).min(most)));
            }
        }
    }

    fn new_packet(&self, state: LinkState, protocol: u8, message: &[u8]) -> Vec<u8> {
        // Neighbours greet each other.
        let to = if state == LinkState::RING { self.neighbour } else { self.node };
        let hop = Hop { state, to: self.neighbour, from: CLIENT_ADDRESS, expect_more: 2, priority: 1 };
        let route = PacketRoute { protocol, to, from: CLIENT_ADDRESS, hops: 0 };
        PakBusPacket { hop, message: Some((route, message)) }.write()
    }
}

/// First byte of a command's message.
fn command_kind(command: &LoggerCommand) -> u8 {
    command.kind().1
}

/// Whether a reply with the right number belongs to this command.
fn is_reply_to(command: &LoggerCommand, reply: &LoggerReply) -> bool {
    use crate::protocol::pakbus::message::ReplyCode;
    match (command, reply) {
        (LoggerCommand::Fetch(fetch), LoggerReply::Fetch { code, offset, data }) => {
            // A refusal applies to all chunks, whatever its offset.
            *code != ReplyCode::COMPLETE || fetch.offset == *offset && data.len() <= usize::from(fetch.swath)
        }
        (LoggerCommand::Hello(_), LoggerReply::Hello(_))
        | (LoggerCommand::Settings { .. }, LoggerReply::Settings(_))
        | (LoggerCommand::Program { .. }, LoggerReply::Program(_))
        | (LoggerCommand::Collect { .. }, LoggerReply::Collect(_)) => true,
        _ => false,
    }
}

impl ReceiveStats {
    /// Whether the logger has ever replied.
    pub(crate) fn has_replies(&self) -> bool {
        self.replies > 0
    }

    /// Whether the logger has replied to greetings, and to no other command.
    pub(crate) fn has_only_greetings(&self) -> bool {
        self.replies > 0 && self.replies == self.greetings
    }

    /// Explains missing replies after `tries`, and suggests a remedy.
    pub(crate) fn describe_silence(&self, node: u16, tries: u32) -> String {
        let tries = if tries == 1 { "1 try".to_owned() } else { format!("{tries} tries") };
        let what = match *self {
            ReceiveStats { other_node: Some(other), .. } => {
                format!("the logger reports the address {other}: use --node {other}")
            }
            ReceiveStats { please_waits: waits @ 1.., .. } => {
                format!("it requested more time, {waits} times: it may be busy")
            }
            ReceiveStats { bad_signatures: bad_signatures @ 1.., .. } => {
                format!("{bad_signatures} frames with wrong signatures arrived: check the line, its rate and frame")
            }
            ReceiveStats { malformed: malformed @ 1.., .. } => {
                format!("{malformed} packets arrived that are too short or invalid: check which program replies there")
            }
            ReceiveStats { stray_replies: strays @ 1.., .. } => {
                format!("{strays} replies with other numbers or offsets arrived: another program may use the logger")
            }
            ReceiveStats { junk_bytes: junk @ 1.., .. } => {
                format!("{junk} bytes arrived that are not PakBus: check which program replies there")
            }
            ReceiveStats { own_packets: 1.., .. } => {
                "the request itself returned: a plug or an echo replies instead of a logger".to_owned()
            }
            _ if self.has_only_greetings() => {
                "it replies to greetings and to no command: check its encryption key and PakBus/TCP password, the security \
                 code (--security), and whether the logger is behind a router (--router)"
                    .to_owned()
            }
            _ => "nothing arrived: check that it is on, its address (--node), that encryption and the PakBus/TCP password \
                  are off, and --timeout"
                .to_owned(),
        };
        format!("no reply from PakBus address {node} in {tries}; {what}")
    }
}
