//! What a logger does with a packet: the whole of it as a state machine that is told the time.
//!
//! It keeps what all connections share. What a connection alone needs is in `connection.rs`.

use std::collections::VecDeque;
use std::time::Duration;

use super::files::Files;
use super::queue::Queue;
use super::tables::{Room, Tables};
use super::{Device, Full};
use crate::clock::Time;
use crate::peer::pakbus::message::{Code, Command, Fetch, Hello, Selection};
use crate::peer::pakbus::packet::{BMP5, Hop, LinkState, Packet, Route};
use crate::peer::pakbus::reply::{Failure, Program, Reply, Setting, Settings, Why};
use crate::peer::pakbus::value::Instant;
use crate::peer::pakbus::{BROADCAST, EMULATED, Malformed};

/// A packet to be sent, not before its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    pub at: Time,
    pub packet: Vec<u8>,
}

/// What a logger has done since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Commands that were carried out, or refused with a code.
    pub answered: u64,
    /// Commands for which the queue had no room.
    pub overflowed: u64,
    /// Commands that came again and were answered as before.
    pub repeated: u64,
    /// Records left out on purpose.
    pub skipped: u64,
    /// Frames whose signature was wrong, or that were none.
    pub damaged: u64,
}

/// What every logger of this kind calls its system.
const OS: &str = "CR1000.Std.24";
const SERIAL_NUMBER: u32 = 12_345;
const PROGRAM: &str = "CPU:bench.CR1";

/// Version 5 of the settings of device 12, a CR1000.
const DEVICE: (u16, u8) = (12, 5);

/// A hello of the logger itself: 5 s for the way, and as long between two of them as real loggers have it.
const HELLO: Hello = Hello { router: false, metric: 2, verify: 1800 };

/// Most bytes of records in a reply, unless one record alone is longer (BMP5 manual).
const RECORDS: usize = 512;

/// Longest wait that a logger may announce at once, and how long before its end it announces the next.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
const RENEW: Duration = Duration::from_secs(1);

/// A command that comes again within this time is a repetition: clients try four times, 5 s apart.
const REPEATED_WITHIN: Duration = Duration::from_secs(30);
/// Commands remembered for that.
const REMEMBERED: usize = 64;

/// Bytes of kind, transaction number and code, in front of what an answer says.
const HEAD: usize = 3;

/// How settings are refused: they have outcomes, not codes.
const SETTINGS_DENIED: u8 = 2;

/// The action that deletes a file.
const DELETE: u8 = 4;

/// A logger.
pub struct Machine {
    device: Device,
    start: Time,
    /// The clock at the start, in nanoseconds; the tables go by it.
    epoch: i64,
    /// How far clients have moved the clock, in nanoseconds.
    moved: i64,
    files: Files,
    tables: Tables,
    queue: Queue,
    done: VecDeque<Done>,
    pub counters: Counters,
}

/// A command that must not be carried out twice, and its answer.
struct Done {
    from: u16,
    message: Vec<u8>,
    at: Time,
    reply: Reply,
}

/// Who asked, how, and when it is answered.
struct Asked<'a> {
    hop: Hop,
    route: Route,
    message: &'a [u8],
    transaction: u8,
}

impl Machine {
    /// A logger whose clock stands at `epoch` at the instant `now`.
    pub fn new(device: Device, epoch: Instant, now: Time) -> Machine {
        let mut files = Files::default();
        for (name, bytes) in &device.files {
            files.insert(name.clone(), bytes.clone(), epoch);
        }
        Machine {
            files,
            tables: Tables::new(&device.tables, OS, device.address, device.seed, epoch),
            queue: Queue::new(device.queue, device.processing),
            start: now,
            epoch: epoch.as_nanoseconds(),
            moved: 0,
            done: VecDeque::new(),
            counters: Counters::default(),
            device,
        }
    }

    /// A packet has come: appends what is to be said to it, and when.
    pub fn hear(&mut self, packet: &[u8], now: Time, say: &mut Vec<Due>) {
        let Ok(packet) = Packet::read(packet) else { return };
        if !self.is_me(packet.hop.to) {
            return;
        }
        match packet.message {
            None => say.extend(self.state(&packet.hop).map(|packet| Due { at: now, packet })),
            Some((route, message)) if self.is_me(route.to) => {
                self.message(packet.hop, route, message, now, say);
            }
            Some(_) => {}
        }
    }

    /// A hello to everybody, which no client has to answer.
    pub fn greeting(&self) -> Vec<u8> {
        let from = self.device.address;
        let (protocol, message) = Command::Hello(HELLO).write(0);
        let hop = Hop { state: LinkState::READY, to: BROADCAST, from, expect_more: 0, priority: 1 };
        let route = Route { protocol, to: BROADCAST, from, hops: 0 };
        Packet { hop, message: Some((route, &message)) }.write()
    }

    fn is_me(&self, address: u16) -> bool {
        [self.device.address, BROADCAST].contains(&address)
    }

    /// The answer to the state of a link. Only such a packet is answered with such a packet: some clients cannot bear
    /// others.
    fn state(&self, hop: &Hop) -> Option<Vec<u8>> {
        let state = match hop.state {
            LinkState::RING => LinkState::READY,
            LinkState::FINISHED => LinkState::OFF_LINE,
            LinkState::PAUSE => LinkState::FINISHED,
            _ => return None,
        };
        let hop = Hop { state, to: hop.from, from: self.device.address, expect_more: 0, priority: 0 };
        Some(Packet { hop, message: None }.write())
    }

    fn message(&mut self, hop: Hop, route: Route, message: &[u8], now: Time, say: &mut Vec<Due>) {
        // What others answer or report is not for a logger that never asks.
        let is_answer = message.first().is_none_or(|kind| kind & 0x80 != 0);
        let read = Command::read(route.protocol, message);
        if is_answer || (route.to == BROADCAST && !matches!(read, Ok((_, Command::HelloRequest)))) {
            return;
        }
        let mut asked = Asked { hop, route, message, transaction: 0 };
        let reply = match read {
            Ok((_, Command::Bye)) => return,
            Ok((_, Command::HelloRequest)) => {
                let (protocol, message) = Command::Hello(HELLO).write(0);
                say.push(Due { at: now, packet: self.packet(&asked, protocol, &message) });
                return;
            }
            Ok((transaction, Command::Hello(hello))) => {
                asked.transaction = transaction;
                Reply::Hello(Hello { router: false, ..hello })
            }
            Ok((transaction, command)) => {
                asked.transaction = transaction;
                return self.command(&asked, command, now, say);
            }
            Err(Malformed::Unknown) if route.protocol > BMP5 => failure(&asked, Why::NO_SUCH_PROTOCOL),
            Err(Malformed::Unknown) => failure(&asked, Why::NO_SUCH_COMMAND),
            Err(_) => failure(&asked, Why::MALFORMED),
        };
        say.push(Due { at: now, packet: self.reply(&asked, &reply) });
    }

    /// A command that needs the processor.
    fn command(&mut self, asked: &Asked, command: Command, now: Time, say: &mut Vec<Due>) {
        let Some(turn) = self.queue.take(now) else {
            self.counters.overflowed += 1;
            if self.device.full == Full::Refuse {
                say.push(Due { at: now, packet: self.reply(asked, &failure(asked, Why::OVERFLOW)) });
            }
            return;
        };
        let reply = self.once(asked, command, turn.done, turn.waits);
        self.counters.answered += 1;
        if asked.route.protocol == BMP5 {
            self.announce(asked, now, turn.done, say);
        }
        say.push(Due { at: turn.done, packet: self.reply(asked, &reply) });
    }

    /// Says that the answer takes long, as often as it takes.
    fn announce(&self, asked: &Asked, now: Time, done: Time, say: &mut Vec<Due>) {
        let mut at = now + self.device.please_wait;
        while at < done {
            let wait = done.since(at).min(LONGEST_WAIT);
            let seconds = wait.as_millis().div_ceil(1000) as u16;
            let reply = Reply::PleaseWait { command: asked.message[0], seconds };
            say.push(Due { at, packet: self.reply(asked, &reply) });
            at = at + LONGEST_WAIT.saturating_sub(RENEW);
        }
    }

    /// Carries a command out, unless it changes something and was carried out already.
    fn once(&mut self, asked: &Asked, command: Command, now: Time, waits: bool) -> Reply {
        let changes = match &command {
            Command::Clock { adjustment, .. } => *adjustment != Instant::default(),
            Command::Store(_) | Command::Control { .. } => true,
            _ => false,
        };
        if !changes {
            return self.carry_out(asked, command, now, waits);
        }
        self.done.retain(|done| now.since(done.at) < REPEATED_WITHIN);
        let same = |done: &&Done| done.from == asked.route.from && done.message == asked.message;
        if let Some(done) = self.done.iter().find(same) {
            self.counters.repeated += 1;
            return done.reply.clone();
        }
        let reply = self.carry_out(asked, command, now, waits);
        let changed = match &reply {
            Reply::Clock(moved) => moved.is_ok(),
            Reply::Store { code, .. } | Reply::Control { code, .. } => *code == Code::COMPLETE,
            _ => false,
        };
        if !changed {
            return reply;
        }
        if self.done.len() == REMEMBERED {
            self.done.pop_front();
        }
        let (from, message) = (asked.route.from, asked.message.to_vec());
        self.done.push_back(Done { from, message, at: now, reply: reply.clone() });
        reply
    }

    fn carry_out(&mut self, asked: &Asked, command: Command, now: Time, waits: bool) -> Reply {
        let security = command.security().filter(|_| self.device.security != 0);
        if security.is_some_and(|code| code != self.device.security) {
            return denied(&command);
        }
        match command {
            Command::Settings { range, .. } => Reply::Settings(Ok(self.settings(range))),
            Command::Clock { adjustment, .. } => {
                let before = self.clock(now);
                self.moved = self.moved.saturating_add(adjustment.as_nanoseconds());
                Reply::Clock(Ok(before))
            }
            Command::Program { .. } => Reply::Program(Ok(self.program())),
            Command::Fetch(fetch) => self.fetch(&fetch),
            Command::Store(store) => {
                let (client, offset) = ((asked.route.from, asked.transaction), store.offset);
                let code = self.files.store(client, store, self.clock(now));
                Reply::Store { code, offset }
            }
            Command::Control { name, action: DELETE, .. } => {
                Reply::Control { code: self.files.delete(&name), hold_off: 0 }
            }
            Command::Control { .. } => Reply::Control { code: Code::UNSUPPORTED, hold_off: 0 },
            Command::Collect { selections, .. } => self.collect(&selections, now, waits),
            Command::Values { count, .. } if count != 1 => Reply::Values(Err(Code::OUT_OF_BOUNDS)),
            Command::Values { table, field, kind, .. } => {
                let value = self.tables.value(&table, &field, kind, self.true_time(now));
                let fits = |value: &Vec<u8>| value.len() <= self.device.longest_message() - HEAD;
                Reply::Values(
                    value.and_then(|value| if fits(&value) { Ok(value) } else { Err(Code::OUT_OF_BOUNDS) }),
                )
            }
            // These need no processor, and never come here.
            Command::Hello(_) | Command::HelloRequest | Command::Bye => failure(asked, Why::NO_SUCH_COMMAND),
        }
    }

    fn collect(&mut self, selections: &[Selection], now: Time, waits: bool) -> Reply {
        let room = Room { usual: RECORDS, most: self.device.longest_message() - HEAD };
        let skip = self.device.skip_records && waits;
        let collected = self.tables.collect(selections, self.true_time(now), room, skip);
        self.counters.skipped += collected.as_ref().map_or(0, |&(_, skipped)| skipped.into());
        Reply::Collect(collected.map(|(body, _)| body))
    }

    /// The clock of the tables, which nobody moves.
    fn true_time(&self, now: Time) -> Instant {
        Instant::from_nanoseconds(self.epoch.saturating_add(now.since(self.start).as_nanos() as i64))
    }

    fn clock(&self, now: Time) -> Instant {
        Instant::from_nanoseconds(self.true_time(now).as_nanoseconds().saturating_add(self.moved))
    }

    fn fetch(&self, fetch: &Fetch) -> Reply {
        let directory;
        let bytes = match fetch.name.as_str() {
            ".TDF" | "CPU:Def.tdf" => Some(self.tables.definitions()),
            ".DIR" => {
                directory = self.files.directory();
                Some(directory.as_slice())
            }
            name => self.files.get(name),
        };
        let Some(bytes) = bytes else {
            return Reply::Fetch { code: Code::BAD_NAME, offset: fetch.offset, data: Vec::new() };
        };
        // Behind the head stands the offset.
        let most = usize::from(fetch.swath).min(self.device.longest_message() - HEAD - 4);
        let begin = (fetch.offset as usize).min(bytes.len());
        let end = (begin + most).min(bytes.len());
        Reply::Fetch { code: Code::COMPLETE, offset: fetch.offset, data: bytes[begin..end].to_vec() }
    }

    fn settings(&self, range: Option<(u16, u16)>) -> Settings {
        let (first, last) = range.unwrap_or((0, u16::MAX));
        let setting =
            |id, read_only, value: &[u8]| Setting { id, read_only, large: false, value: value.to_vec() };
        let all = [
            setting(0, true, format!("{OS}\0").as_bytes()),
            setting(1, true, &SERIAL_NUMBER.to_be_bytes()),
            setting(2, true, b"linkgauge emulation\0"),
            setting(3, true, &self.device.address.to_be_bytes()),
            setting(49, true, &self.device.max_packet.to_be_bytes()),
        ];
        let (device, major) = DEVICE;
        let settings = all.into_iter().filter(|setting| (first..=last).contains(&setting.id)).collect();
        Settings { device, major, minor: 0, more: false, settings }
    }

    fn program(&self) -> Program {
        Program {
            os: OS.to_owned(),
            os_signature: 0x3000,
            serial_number: SERIAL_NUMBER.to_string(),
            on_power_up: PROGRAM.to_owned(),
            state: 1,
            name: PROGRAM.to_owned(),
            signature: 0xBEEF,
            compiled: Instant::from_nanoseconds(self.epoch),
            result: format!("{PROGRAM} -- {EMULATED}\r\n"),
        }
    }

    fn reply(&self, asked: &Asked, reply: &Reply) -> Vec<u8> {
        // A failure is no answer of its own, and has no transaction number.
        let transaction = if matches!(reply, Reply::Failure(_)) { 0 } else { asked.transaction };
        let (protocol, message) = reply.write(transaction);
        self.packet(asked, protocol, &message)
    }

    /// A packet on the way back.
    fn packet(&self, asked: &Asked, protocol: u8, message: &[u8]) -> Vec<u8> {
        let from = self.device.address;
        let hop = Hop { state: LinkState::READY, to: asked.hop.from, from, expect_more: 0, priority: 1 };
        let route = Route { protocol, to: asked.route.from, from, hops: 0 };
        Packet { hop, message: Some((route, message)) }.write()
    }
}

fn failure(asked: &Asked, why: Why) -> Reply {
    Reply::Failure(Failure { why, route: asked.route, message: asked.message.to_vec() })
}

/// The answer to a command with a wrong security code.
fn denied(command: &Command) -> Reply {
    const CODE: Code = Code::DENIED;
    match command {
        Command::Settings { .. } => Reply::Settings(Err(SETTINGS_DENIED)),
        Command::Program { .. } => Reply::Program(Err(CODE)),
        Command::Fetch(fetch) => Reply::Fetch { code: CODE, offset: fetch.offset, data: Vec::new() },
        Command::Store(store) => Reply::Store { code: CODE, offset: store.offset },
        Command::Control { .. } => Reply::Control { code: CODE, hold_off: 0 },
        Command::Collect { .. } => Reply::Collect(Err(CODE)),
        Command::Values { .. } => Reply::Values(Err(CODE)),
        // The others carry no security code.
        Command::Clock { .. } | Command::Hello(_) | Command::HelloRequest | Command::Bye => {
            Reply::Clock(Err(CODE))
        }
    }
}
