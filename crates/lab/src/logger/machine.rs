//! The processing of packets in a logger, as a state machine that is given the time.
//!
//! The machine holds the state that all connections share. `connection.rs` has the state of one connection.

use std::collections::VecDeque;
use std::time::Duration;

use super::files::FileStore;
use super::queue::{CommandQueue, QueueSlot};
use super::tables::{FirstRecord, ReplyLimits, Tables};
use super::{FullQueuePolicy, LoggerConfig};
use linkgauge_engine::protocol::pakbus::message::{
    FetchRequest, HelloFields, LoggerCommand, RecordSelection, ReplyCode,
};
use linkgauge_engine::protocol::pakbus::packet::{BMP5, Hop, LinkState, PacketRoute, PakBusPacket};
use linkgauge_engine::protocol::pakbus::reply::{
    DeliveryFailure, FailureCode, LoggerProgram, LoggerReply, LoggerSetting, LoggerSettings,
};
use linkgauge_engine::protocol::pakbus::value::LoggerTime;
use linkgauge_engine::protocol::pakbus::{BROADCAST_ADDRESS, EMULATED_MARKER, PakBusParseError};
use linkgauge_model::clock::Time;

/// A packet to send, at its due time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DuePacket {
    pub at: Time,
    pub(crate) packet: Vec<u8>,
}

/// Counters of a logger since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LoggerCounters {
    /// Commands executed, or refused with a code.
    pub replies: u64,
    /// Commands refused or dropped because the queue was full.
    pub overflowed: u64,
    /// Repeated commands, which receive the previous reply.
    pub repeated: u64,
    /// Records omitted deliberately.
    pub skipped: u64,
    /// Invalid frames, and frames with a wrong signature.
    pub damaged: u64,
}

/// The operating system version that every emulated logger reports.
const OS_VERSION: &str = "CR1000.Std.24";
const SERIAL_NUMBER: u32 = 12_345;
const PROGRAM_FILE: &str = "CPU:bench.CR1";

/// Version 5 of the settings of device 12, a CR1000.
const DEVICE_TYPE: (u16, u8) = (12, 5);

/// Hello of the logger itself: a link metric of 5 s, and the verify interval of real loggers.
const OWN_HELLO: HelloFields = HelloFields { is_router: false, metric: 2, verify: 1800 };

/// Maximum bytes of records in a reply, unless a single record is longer (BMP5 manual).
const MAX_RECORD_BYTES: usize = 512;

/// Longest wait that one announcement covers, and how long before its end the next one follows.
const MAX_ANNOUNCED_WAIT: Duration = Duration::from_secs(30);
const WAIT_RENEWAL_MARGIN: Duration = Duration::from_secs(1);

/// Time within which the same command is a repetition: clients try four times, 5 s apart.
const REPETITION_WINDOW: Duration = Duration::from_secs(30);
/// Number of commands stored to detect repetitions.
const MAX_REMEMBERED_COMMANDS: usize = 64;

/// Bytes of kind, transaction number and code, in front of the content of a reply.
const REPLY_HEADER_BYTES: usize = 3;

/// The refusal of settings: they have outcomes, not codes.
const SETTINGS_DENIED: u8 = 2;

/// The action that deletes a file.
const DELETE_ACTION: u8 = 4;

/// A logger.
pub(crate) struct LoggerMachine {
    config: LoggerConfig,
    start: Time,
    /// The clock at the start, in nanoseconds. The tables use it.
    epoch_ns: i64,
    /// Adjustment of the clock by clients, in nanoseconds.
    clock_adjustment_ns: i64,
    files: FileStore,
    tables: Tables,
    queue: CommandQueue,
    executed: VecDeque<ExecutedCommand>,
    pub(crate) counters: LoggerCounters,
}

/// A command that must not be executed twice, and its reply.
struct ExecutedCommand {
    from: u16,
    message: Vec<u8>,
    at: Time,
    reply: LoggerReply,
}

/// The sender of a request, how it was sent, and when the reply is due.
struct RequestContext<'a> {
    hop: Hop,
    route: PacketRoute,
    message: &'a [u8],
    transaction: u8,
}

impl LoggerMachine {
    /// A logger whose clock shows `epoch` at the instant `now`.
    pub fn new(device: LoggerConfig, epoch: LoggerTime, now: Time) -> LoggerMachine {
        let mut files = FileStore::default();
        for (name, bytes) in &device.files {
            files.insert(name.clone(), bytes.clone(), epoch);
        }
        LoggerMachine {
            files,
            tables: Tables::new(&device.tables, OS_VERSION, device.address, device.seed, epoch),
            queue: CommandQueue::new(device.queue_commands, device.command_time),
            start: now,
            epoch_ns: epoch.as_nanoseconds(),
            clock_adjustment_ns: 0,
            executed: VecDeque::new(),
            counters: LoggerCounters::default(),
            config: device,
        }
    }

    /// Processes a packet and appends the replies with their due times.
    pub(crate) fn handle_packet(&mut self, packet: &[u8], now: Time, replies: &mut Vec<DuePacket>) {
        let Ok(packet) = PakBusPacket::read(packet) else { return };
        if !self.is_addressed(packet.hop.to) {
            return;
        }
        match packet.message {
            None => {
                replies.extend(self.link_state_reply(&packet.hop).map(|packet| DuePacket { at: now, packet }))
            }
            Some((route, message)) if self.is_addressed(route.to) => {
                self.handle_message(packet.hop, route, message, now, replies);
            }
            Some(_) => {}
        }
    }

    /// A broadcast hello, which clients need not reply to.
    pub(crate) fn greeting(&self) -> Vec<u8> {
        let from = self.config.address;
        let (protocol, message) = LoggerCommand::Hello(OWN_HELLO).write(0);
        let hop = Hop { state: LinkState::READY, to: BROADCAST_ADDRESS, from, expect_more: 0, priority: 1 };
        let route = PacketRoute { protocol, to: BROADCAST_ADDRESS, from, hops: 0 };
        PakBusPacket { hop, message: Some((route, &message)) }.write()
    }

    fn is_addressed(&self, address: u16) -> bool {
        [self.config.address, BROADCAST_ADDRESS].contains(&address)
    }

    /// The reply to a link-state packet. It is a link-state packet as well, and other packets get none: some clients
    /// do not accept them.
    fn link_state_reply(&self, hop: &Hop) -> Option<Vec<u8>> {
        let state = match hop.state {
            LinkState::RING => LinkState::READY,
            LinkState::FINISHED => LinkState::OFF_LINE,
            LinkState::PAUSE => LinkState::FINISHED,
            _ => return None,
        };
        let hop = Hop { state, to: hop.from, from: self.config.address, expect_more: 0, priority: 0 };
        Some(PakBusPacket { hop, message: None }.write())
    }

    fn handle_message(
        &mut self,
        hop: Hop,
        route: PacketRoute,
        message: &[u8],
        now: Time,
        replies: &mut Vec<DuePacket>,
    ) {
        // A logger sends no requests, so it ignores replies and reports.
        let is_reply = message.first().is_none_or(|kind| kind & 0x80 != 0);
        let read = LoggerCommand::read(route.protocol, message);
        if is_reply
            || (route.to == BROADCAST_ADDRESS && !matches!(read, Ok((_, LoggerCommand::HelloRequest))))
        {
            return;
        }
        let mut request = RequestContext { hop, route, message, transaction: 0 };
        let reply = match read {
            Ok((_, LoggerCommand::Bye)) => return,
            Ok((_, LoggerCommand::HelloRequest)) => {
                let (protocol, message) = LoggerCommand::Hello(OWN_HELLO).write(0);
                replies.push(DuePacket { at: now, packet: self.build_packet(&request, protocol, &message) });
                return;
            }
            Ok((transaction, LoggerCommand::Hello(hello))) => {
                request.transaction = transaction;
                LoggerReply::Hello(HelloFields { is_router: false, ..hello })
            }
            Ok((transaction, command)) => {
                request.transaction = transaction;
                return self.handle_command(&request, command, now, replies);
            }
            Err(PakBusParseError::Unknown) if route.protocol > BMP5 => {
                failure_reply(&request, FailureCode::NO_SUCH_PROTOCOL)
            }
            Err(PakBusParseError::Unknown) => failure_reply(&request, FailureCode::NO_SUCH_COMMAND),
            Err(_) => failure_reply(&request, FailureCode::MALFORMED),
        };
        replies.push(DuePacket { at: now, packet: self.reply_packet(&request, &reply) });
    }

    /// Handles a command that needs the processor.
    fn handle_command(
        &mut self,
        request: &RequestContext,
        command: LoggerCommand,
        now: Time,
        replies: &mut Vec<DuePacket>,
    ) {
        let Some(turn) = self.queue.enqueue(now) else {
            self.counters.overflowed += 1;
            if self.config.full_queue_policy == FullQueuePolicy::Refuse {
                replies.push(DuePacket {
                    at: now,
                    packet: self.reply_packet(request, &failure_reply(request, FailureCode::OVERFLOW)),
                });
            }
            return;
        };
        let reply = self.execute_once(request, command, turn);
        self.counters.replies += 1;
        if request.route.protocol == BMP5 {
            self.announce_wait(request, now, turn.done_at, replies);
        }
        replies.push(DuePacket { at: turn.done_at, packet: self.reply_packet(request, &reply) });
    }

    /// Announces the wait for the reply, several times if it is long.
    fn announce_wait(&self, request: &RequestContext, now: Time, done: Time, replies: &mut Vec<DuePacket>) {
        let mut at = now + self.config.please_wait;
        while at < done {
            let wait = done.since(at).min(MAX_ANNOUNCED_WAIT);
            let seconds = wait.as_millis().div_ceil(1000) as u16;
            let reply = LoggerReply::PleaseWait { command: request.message[0], seconds };
            replies.push(DuePacket { at, packet: self.reply_packet(request, &reply) });
            at = at + MAX_ANNOUNCED_WAIT.saturating_sub(WAIT_RENEWAL_MARGIN);
        }
    }

    /// Executes a command, unless it changes state and was executed already.
    fn execute_once(
        &mut self,
        request: &RequestContext,
        command: LoggerCommand,
        turn: QueueSlot,
    ) -> LoggerReply {
        let now = turn.done_at;
        let changes = match &command {
            LoggerCommand::Clock { adjustment, .. } => *adjustment != LoggerTime::default(),
            LoggerCommand::Store(_) | LoggerCommand::Control { .. } => true,
            _ => false,
        };
        if !changes {
            return self.execute(request, command, turn);
        }
        self.executed.retain(|done| now.since(done.at) < REPETITION_WINDOW);
        let same =
            |done: &&ExecutedCommand| done.from == request.route.from && done.message == request.message;
        if let Some(done) = self.executed.iter().find(same) {
            self.counters.repeated += 1;
            return done.reply.clone();
        }
        let reply = self.execute(request, command, turn);
        let changed = match &reply {
            LoggerReply::Clock(moved) => moved.is_ok(),
            LoggerReply::Store { code, .. } | LoggerReply::Control { code, .. } => {
                *code == ReplyCode::COMPLETE
            }
            _ => false,
        };
        if !changed {
            return reply;
        }
        if self.executed.len() == MAX_REMEMBERED_COMMANDS {
            self.executed.pop_front();
        }
        let (from, message) = (request.route.from, request.message.to_vec());
        self.executed.push_back(ExecutedCommand { from, message, at: now, reply: reply.clone() });
        reply
    }

    fn execute(&mut self, request: &RequestContext, command: LoggerCommand, turn: QueueSlot) -> LoggerReply {
        let now = turn.done_at;
        let security = command.security().filter(|_| self.config.security_code != 0);
        if security.is_some_and(|code| code != self.config.security_code) {
            return denied_reply(&command);
        }
        match command {
            LoggerCommand::Settings { range, .. } => LoggerReply::Settings(Ok(self.settings_reply(range))),
            LoggerCommand::Clock { adjustment, .. } => {
                let before = self.clock_time(now);
                self.clock_adjustment_ns =
                    self.clock_adjustment_ns.saturating_add(adjustment.as_nanoseconds());
                LoggerReply::Clock(Ok(before))
            }
            LoggerCommand::Program { .. } => LoggerReply::Program(Ok(self.program_reply())),
            LoggerCommand::Fetch(fetch) => self.fetch_reply(&fetch),
            LoggerCommand::Store(store) => {
                let (client, offset) = ((request.route.from, request.transaction), store.offset);
                let code = self.files.store_chunk(client, store, self.clock_time(now));
                LoggerReply::Store { code, offset }
            }
            LoggerCommand::Control { name, action: DELETE_ACTION, .. } => {
                LoggerReply::Control { code: self.files.delete(&name), hold_off: 0 }
            }
            LoggerCommand::Control { .. } => {
                LoggerReply::Control { code: ReplyCode::UNSUPPORTED, hold_off: 0 }
            }
            LoggerCommand::Collect { selections, .. } => self.collect_reply(&selections, turn),
            LoggerCommand::Values { count, .. } if count != 1 => {
                LoggerReply::Values(Err(ReplyCode::OUT_OF_BOUNDS))
            }
            LoggerCommand::Values { table, field, kind, .. } => {
                let value = self.tables.newest_value(&table, &field, kind, self.table_time(now));
                let fits =
                    |value: &Vec<u8>| value.len() <= self.config.max_message_bytes() - REPLY_HEADER_BYTES;
                LoggerReply::Values(
                    value.and_then(
                        |value| if fits(&value) { Ok(value) } else { Err(ReplyCode::OUT_OF_BOUNDS) },
                    ),
                )
            }
            // These commands need no processor and are handled elsewhere.
            LoggerCommand::Hello(_) | LoggerCommand::HelloRequest | LoggerCommand::Bye => {
                failure_reply(request, FailureCode::NO_SUCH_COMMAND)
            }
        }
    }

    fn collect_reply(&mut self, selections: &[RecordSelection], turn: QueueSlot) -> LoggerReply {
        let limits = ReplyLimits {
            records_bytes: MAX_RECORD_BYTES,
            body_bytes: self.config.max_message_bytes() - REPLY_HEADER_BYTES,
        };
        let first = match self.config.skip_records && turn.is_queued {
            true => FirstRecord::Omitted,
            false => FirstRecord::Included,
        };
        let collected = self.tables.collect(selections, self.table_time(turn.done_at), limits, first);
        self.counters.skipped += collected.as_ref().map_or(0, |&(_, skipped)| skipped.into());
        LoggerReply::Collect(collected.map(|(body, _)| body))
    }

    /// The clock of the tables, which clients cannot adjust.
    fn table_time(&self, now: Time) -> LoggerTime {
        LoggerTime::from_nanoseconds(self.epoch_ns.saturating_add(now.since(self.start).as_nanos() as i64))
    }

    fn clock_time(&self, now: Time) -> LoggerTime {
        LoggerTime::from_nanoseconds(
            self.table_time(now).as_nanoseconds().saturating_add(self.clock_adjustment_ns),
        )
    }

    fn fetch_reply(&self, fetch: &FetchRequest) -> LoggerReply {
        let directory;
        let bytes = match fetch.name.as_str() {
            ".TDF" | "CPU:Def.tdf" => Some(self.tables.definitions()),
            ".DIR" => {
                directory = self.files.directory_file();
                Some(directory.as_slice())
            }
            name => self.files.get(name),
        };
        let Some(bytes) = bytes else {
            return LoggerReply::Fetch { code: ReplyCode::BAD_NAME, offset: fetch.offset, data: Vec::new() };
        };
        // The offset follows the header.
        let most = usize::from(fetch.swath).min(self.config.max_message_bytes() - REPLY_HEADER_BYTES - 4);
        let begin = (fetch.offset as usize).min(bytes.len());
        let end = (begin + most).min(bytes.len());
        LoggerReply::Fetch {
            code: ReplyCode::COMPLETE,
            offset: fetch.offset,
            data: bytes[begin..end].to_vec(),
        }
    }

    fn settings_reply(&self, range: Option<(u16, u16)>) -> LoggerSettings {
        let (first, last) = range.unwrap_or((0, u16::MAX));
        let setting = |id, read_only, value: &[u8]| LoggerSetting {
            id,
            is_read_only: read_only,
            is_truncated: false,
            value: value.to_vec(),
        };
        let all = [
            setting(0, true, format!("{OS_VERSION}\0").as_bytes()),
            setting(1, true, &SERIAL_NUMBER.to_be_bytes()),
            setting(2, true, b"linkgauge emulation\0"),
            setting(3, true, &self.config.address.to_be_bytes()),
            setting(49, true, &self.config.max_packet_bytes.to_be_bytes()),
        ];
        let (device, major) = DEVICE_TYPE;
        let settings = all.into_iter().filter(|setting| (first..=last).contains(&setting.id)).collect();
        LoggerSettings { device, major, minor: 0, has_more: false, settings }
    }

    pub fn program_reply(&self) -> LoggerProgram {
        LoggerProgram {
            os: OS_VERSION.to_owned(),
            os_signature: 0x3000,
            serial_number: SERIAL_NUMBER.to_string(),
            on_power_up: PROGRAM_FILE.to_owned(),
            state: 1,
            name: PROGRAM_FILE.to_owned(),
            signature: 0xBEEF,
            compiled: LoggerTime::from_nanoseconds(self.epoch_ns),
            result: format!("{PROGRAM_FILE} -- {EMULATED_MARKER}\r\n"),
        }
    }

    fn reply_packet(&self, request: &RequestContext, reply: &LoggerReply) -> Vec<u8> {
        // A failure message is not a reply and has no transaction number.
        let transaction = if matches!(reply, LoggerReply::Failure(_)) { 0 } else { request.transaction };
        let (protocol, message) = reply.write(transaction);
        self.build_packet(request, protocol, &message)
    }

    /// Builds a packet to the sender of a request.
    fn build_packet(&self, request: &RequestContext, protocol: u8, message: &[u8]) -> Vec<u8> {
        let from = self.config.address;
        let hop = Hop { state: LinkState::READY, to: request.hop.from, from, expect_more: 0, priority: 1 };
        let route = PacketRoute { protocol, to: request.route.from, from, hops: 0 };
        PakBusPacket { hop, message: Some((route, message)) }.write()
    }
}

fn failure_reply(request: &RequestContext, why: FailureCode) -> LoggerReply {
    LoggerReply::Failure(DeliveryFailure {
        code: why,
        route: request.route,
        message: request.message.to_vec(),
    })
}

/// The reply to a command with a wrong security code.
fn denied_reply(command: &LoggerCommand) -> LoggerReply {
    const CODE: ReplyCode = ReplyCode::DENIED;
    match command {
        LoggerCommand::Settings { .. } => LoggerReply::Settings(Err(SETTINGS_DENIED)),
        LoggerCommand::Program { .. } => LoggerReply::Program(Err(CODE)),
        LoggerCommand::Fetch(fetch) => {
            LoggerReply::Fetch { code: CODE, offset: fetch.offset, data: Vec::new() }
        }
        LoggerCommand::Store(store) => LoggerReply::Store { code: CODE, offset: store.offset },
        LoggerCommand::Control { .. } => LoggerReply::Control { code: CODE, hold_off: 0 },
        LoggerCommand::Collect { .. } => LoggerReply::Collect(Err(CODE)),
        LoggerCommand::Values { .. } => LoggerReply::Values(Err(CODE)),
        // The other commands have no security code.
        LoggerCommand::Clock { .. }
        | LoggerCommand::Hello(_)
        | LoggerCommand::HelloRequest
        | LoggerCommand::Bye => LoggerReply::Clock(Err(CODE)),
    }
}
