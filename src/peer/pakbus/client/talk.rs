//! The client's side of a conversation with one logger: what was asked and waits for its answer, what is asked again, and
//! what the logger says unasked. Bytes in, bytes out; not for what the answers mean.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::Time;
use crate::peer::pakbus::frame::{self, Decoder, SYNC};
use crate::peer::pakbus::message::{Command, Hello};
use crate::peer::pakbus::packet::{Hop, LinkState, Packet, Route};
use crate::peer::pakbus::reply::{Failure, Reply, Why};
use crate::peer::pakbus::{BROADCAST, Malformed};
use crate::sample::Transfer;

/// Our own address. Those of 4000 and more are computers, and no logger shuts them out; 4094 is LoggerNet's.
pub const CLIENT: u16 = 4093;

/// So many sync bytes wake a logger on a serial line and let it find the rate (BMP5 manual); on others they do no harm.
pub const WAKE: [u8; 6] = [SYNC; 6];

/// "5 s or less" for the way, and half an hour between two greetings: what other clients say and loggers repeat.
const GREETING: Hello = Hello { router: false, metric: 2, verify: 1800 };

/// However often a logger asks for patience, one command may take so long.
const MOST_PATIENCE: Duration = Duration::from_secs(600);

/// An answer after which so many later ones came was lost, where several are on their way.
const OVERTAKEN: u32 = 3;

/// The pause before a command is repeated for which there was no room, although it was alone; it doubles every time.
const PAUSE: Duration = Duration::from_millis(100);

/// What a logger says unasked is answered, but not more of it than this at once.
const UNASKED: usize = 16;

/// Answers to nothing that is being asked, by what they were: what to blame when no answer comes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Seen {
    /// Whole answers to what was asked.
    answers: u64,
    /// Another logger that spoke.
    other: Option<u16>,
    bad_signatures: u64,
    /// Frames, or messages in them, that are cut or make no sense.
    malformed: u64,
    /// Answers with another number or place than any that is waited for.
    strays: u64,
    junk: u64,
    /// Packets of our own address.
    own: u64,
    /// Times it asked for patience since its last answer.
    waits: u64,
}

/// No answer came after all tries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Silence;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Not before this instant.
    ToSend(Time),
    Sending,
    /// An answer is waited for until then.
    Sent(Time),
}

/// A command without an answer.
#[derive(Debug)]
struct Pending {
    key: u64,
    transaction: u8,
    command: Command,
    state: State,
    /// When its first byte left for the first time, and the last time.
    first: Option<Time>,
    sent: Time,
    /// Which sending of all it was.
    order: u64,
    tries: u32,
    overtaken: u32,
}

/// What became of a command.
#[derive(Debug)]
pub struct Heard {
    /// As given with it.
    pub key: u64,
    pub command: Command,
    /// When it left for the first time.
    pub sent: Time,
    /// The reply, or why it could not be delivered.
    pub outcome: Result<Reply, Why>,
}

/// A frame on its way into the link.
#[derive(Debug)]
struct Outgoing {
    bytes: Vec<u8>,
    taken: usize,
    /// The command it carries; none for what is said beside.
    order: Option<u64>,
    since: Option<Time>,
}

/// Everything between the link and the transfer.
#[derive(Debug)]
pub struct Talk {
    node: u16,
    timeout: Duration,
    retries: u32,
    decoder: Decoder,
    pending: VecDeque<Pending>,
    beside: VecDeque<Vec<u8>>,
    outgoing: Option<Outgoing>,
    wakes: bool,
    next_transaction: u8,
    orders: u64,
    /// Commands that may be on their way at once.
    window: usize,
    /// Trouble with what was sent up to then has made the window smaller already.
    cut: u64,
    /// When something was answered last.
    answered: Time,
    pub seen: Seen,
    pub counts: Transfer,
}

impl Talk {
    /// `seed` sets the first transaction number, so that what an earlier client left on a line is not taken for an answer.
    pub fn new(node: u16, timeout: Duration, retries: u32, window: usize, seed: u64) -> Talk {
        Talk {
            node,
            timeout,
            retries,
            decoder: Decoder::default(),
            pending: VecDeque::new(),
            beside: VecDeque::new(),
            outgoing: None,
            wakes: true,
            next_transaction: (seed % 255) as u8,
            orders: 0,
            window,
            cut: 0,
            answered: Time(0),
            seen: Seen::default(),
            counts: Transfer { window: window as u64, ..Transfer::default() },
        }
    }

    /// A number for a command or for all pieces of a file: 1 to 255, in turn.
    pub fn transaction(&mut self) -> u8 {
        for _ in 0..u8::MAX {
            self.next_transaction = self.next_transaction % u8::MAX + 1;
            if self.pending.iter().all(|pending| pending.transaction != self.next_transaction) {
                break;
            }
        }
        self.next_transaction
    }

    /// Whether one more command may be on its way.
    pub fn has_room(&self) -> bool {
        self.pending.len() < self.window && !self.greets()
    }

    pub fn is_idle(&self) -> bool {
        self.pending.is_empty()
    }

    /// Whether everything has been handed to the link.
    pub fn is_silent(&self) -> bool {
        self.outgoing.is_none() && self.beside.is_empty()
    }

    fn greets(&self) -> bool {
        self.pending.front().is_some_and(|pending| matches!(pending.command, Command::Hello(_)))
    }

    /// Asks for something; `key` comes back with the answer.
    pub fn ask(&mut self, key: u64, transaction: u8, command: Command) {
        let pending = Pending {
            key,
            transaction,
            command,
            state: State::ToSend(Time(0)),
            first: None,
            sent: Time(0),
            order: 0,
            tries: 0,
            overtaken: 0,
        };
        match pending.command {
            Command::Hello(_) => self.pending.push_front(pending),
            _ => self.pending.push_back(pending),
        }
    }

    /// Greets the logger; nothing else is asked until it has answered.
    pub fn greet(&mut self) {
        let transaction = self.transaction();
        self.ask(0, transaction, Command::Hello(GREETING));
    }

    /// Says something that needs no answer.
    pub fn say(&mut self, state: LinkState, transaction: u8, command: &Command) {
        let (protocol, message) = command.write(transaction);
        let packet = self.packet(state, protocol, &message);
        self.beside.push_back(packet);
    }

    /// Answers to what is not among these are waited for no more.
    pub fn keep(&mut self, wanted: impl Fn(u64) -> bool) {
        self.pending.retain(|pending| wanted(pending.key));
    }

    /// The link is a new one: what was on its way is asked again, after a greeting. Pieces of files get a new number,
    /// under which the logger opens the file anew; it is returned.
    pub fn begin_anew(&mut self) -> u8 {
        self.decoder = Decoder::default();
        (self.outgoing, self.wakes) = (None, true);
        self.beside.clear();
        let number = self.transaction();
        self.pending.retain(|pending| !matches!(pending.command, Command::Hello(_)));
        for pending in &mut self.pending {
            self.counts.retransmissions += u64::from(pending.first.is_some());
            (pending.state, pending.tries) = (State::ToSend(Time(0)), 0);
            if matches!(pending.command, Command::Fetch(_)) {
                pending.transaction = number;
            }
        }
        self.greet();
        number
    }

    /// Looks after what waits too long.
    pub fn look(&mut self, now: Time) -> Result<(), Silence> {
        if let Some(since) = self.outgoing.as_ref().and_then(|outgoing| outgoing.since)
            && now >= since + self.timeout
        {
            return Err(Silence);
        }
        let heard_until = self.answered + self.timeout;
        let mut late = None;
        for pending in &mut self.pending {
            let State::Sent(until) = pending.state else { continue };
            let lost = self.window > 1 && pending.overtaken >= OVERTAKEN;
            if !lost && now < until.max(heard_until) {
                continue;
            }
            if pending.tries >= self.retries {
                return Err(Silence);
            }
            pending.tries += 1;
            pending.state = State::ToSend(now);
            self.counts.retransmissions += 1;
            late = late.max(Some(pending.order));
        }
        if let Some(order) = late {
            self.narrow(order);
        }
        Ok(())
    }

    /// Trouble with the sending of that number: fewer commands are on their way from now on.
    fn narrow(&mut self, order: u64) {
        if order > self.cut {
            self.cut = self.orders;
            self.window = (self.window / 2).max(1);
            self.counts.window = self.window as u64;
        }
    }

    /// When `look` or `outgoing` may have something to do, if nothing comes until then.
    pub fn wakes_at(&self) -> Time {
        let heard_until = self.answered + self.timeout;
        let waits = self.is_full();
        let at = self.pending.iter().map(|pending| match pending.state {
            // Its turn comes with an answer to another.
            State::ToSend(_) if waits => Time::NEVER,
            State::ToSend(at) => at,
            State::Sending => Time::NEVER,
            State::Sent(until) => until.max(heard_until),
        });
        at.min().unwrap_or(Time::NEVER)
    }

    /// What is to be sent now.
    pub fn outgoing(&mut self, now: Time) -> Option<&[u8]> {
        if self.outgoing.is_none() {
            let (packet, order) = match self.beside.pop_front() {
                Some(packet) => (packet, None),
                None => {
                    let (packet, order) = self.due(now)?;
                    (packet, Some(order))
                }
            };
            let mut bytes = Vec::with_capacity(2 * packet.len());
            if std::mem::take(&mut self.wakes) {
                bytes.extend(WAKE);
            }
            frame::write(&packet, &mut bytes);
            self.outgoing = Some(Outgoing { bytes, taken: 0, order, since: None });
        }
        let outgoing = self.outgoing.as_mut()?;
        outgoing.since.get_or_insert(now);
        Some(&outgoing.bytes[outgoing.taken..])
    }

    /// Whether as many commands are on their way as may be; a greeting is alone.
    fn is_full(&self) -> bool {
        let sent = self.pending.iter().filter(|pending| matches!(pending.state, State::Sent(_)));
        sent.count() >= if self.greets() { 1 } else { self.window }
    }

    /// The packet of the first command that may be sent.
    fn due(&mut self, now: Time) -> Option<(Vec<u8>, u64)> {
        if self.is_full() {
            return None;
        }
        let alone = self.greets();
        let ready = |pending: &Pending| matches!(pending.state, State::ToSend(at) if at <= now);
        let at = self.pending.iter().position(ready).filter(|&at| !alone || at == 0)?;
        self.orders += 1;
        let pending = &mut self.pending[at];
        (pending.state, pending.order, pending.overtaken) = (State::Sending, self.orders, 0);
        let (protocol, message) = pending.command.write(pending.transaction);
        let state = if alone { LinkState::RING } else { LinkState::READY };
        Some((self.packet(state, protocol, &message), self.orders))
    }

    /// Nothing more can be said.
    pub fn drop_outgoing(&mut self) {
        self.outgoing = None;
        self.beside.clear();
    }

    /// The link took so many bytes; whether a command began to leave with them that had not been sent before.
    pub fn taken(&mut self, bytes: usize, at: Time) -> bool {
        let Some(outgoing) = &mut self.outgoing else { return false };
        let begins = outgoing.taken == 0 && bytes > 0;
        outgoing.taken += bytes;
        outgoing.since = Some(at);
        let (order, whole) = (outgoing.order, outgoing.taken >= outgoing.bytes.len());
        if whole {
            self.outgoing = None;
        }
        let Some(pending) = self.pending.iter_mut().find(|pending| Some(pending.order) == order) else {
            return false;
        };
        let first = begins && pending.first.is_none();
        if begins {
            pending.first.get_or_insert(at);
            pending.sent = at;
        }
        if whole && pending.state == State::Sending {
            pending.state = State::Sent(at + self.timeout);
        }
        first && !matches!(pending.command, Command::Hello(_))
    }

    /// Bytes have come; what they answer goes to `heard`.
    pub fn hear(&mut self, mut bytes: &[u8], now: Time, heard: &mut VecDeque<Heard>) {
        while !bytes.is_empty() {
            let (used, packet) = self.decoder.read(bytes);
            bytes = &bytes[used..];
            let packet = packet.map(<[u8]>::to_vec);
            if let Some(packet) = packet {
                heard.extend(self.packet_came(&packet, now));
            }
        }
        let counts = self.decoder.take_counts();
        self.seen.bad_signatures += counts.bad_signatures;
        self.seen.malformed += counts.malformed;
        self.seen.junk += counts.junk;
    }

    fn packet_came(&mut self, packet: &[u8], now: Time) -> Option<Heard> {
        let Ok(Packet { hop, message }) = Packet::read(packet) else {
            self.seen.malformed += 1;
            return None;
        };
        if ![CLIENT, BROADCAST].contains(&hop.to) {
            self.seen.own += u64::from(hop.from == CLIENT);
            return None;
        }
        let Some((route, message)) = message else {
            self.state_came(&hop);
            return None;
        };
        if ![CLIENT, BROADCAST].contains(&route.to) {
            return None;
        }
        if route.from != self.node {
            self.seen.other = Some(route.from);
            return None;
        }
        match Reply::read(route.protocol, message) {
            Ok((_, Reply::Failure(failure))) => self.failed(&failure, now),
            Ok((transaction, Reply::PleaseWait { command, seconds })) => {
                self.wait(transaction, command, seconds, now);
                None
            }
            Ok((transaction, reply)) => self.replied(transaction, reply, now),
            Err(Malformed::Unknown) => {
                if let Ok((transaction, Command::Hello(hello))) = Command::read(route.protocol, message)
                    && self.beside.len() < UNASKED
                {
                    let reply = Reply::Hello(Hello { router: false, ..hello });
                    let (protocol, message) = reply.write(transaction);
                    self.beside.push_back(self.packet(LinkState::READY, protocol, &message));
                }
                None
            }
            Err(Malformed::Short) => {
                self.seen.malformed += 1;
                None
            }
        }
    }

    /// The logger tells the state of the link.
    fn state_came(&mut self, hop: &Hop) {
        let state = match hop.state {
            LinkState::RING => LinkState::READY,
            LinkState::FINISHED => LinkState::OFF_LINE,
            LinkState::PAUSE => LinkState::FINISHED,
            _ => return,
        };
        if hop.from == self.node && self.beside.len() < UNASKED {
            let hop = Hop { state, to: hop.from, from: CLIENT, expect_more: 0, priority: 0 };
            self.beside.push_back(Packet { hop, message: None }.write());
        }
    }

    fn replied(&mut self, transaction: u8, reply: Reply, now: Time) -> Option<Heard> {
        let answered = |pending: &Pending| {
            pending.first.is_some()
                && pending.transaction == transaction
                && is_answered(&pending.command, &reply)
        };
        let Some(at) = self.pending.iter().position(answered) else {
            self.seen.strays += 1;
            return None;
        };
        (self.seen.answers, self.seen.waits) = (self.seen.answers + 1, 0);
        self.answered = now;
        let order = self.pending[at].order;
        for other in &mut self.pending {
            other.overtaken += u32::from(other.order < order && matches!(other.state, State::Sent(_)));
        }
        self.settled(at, Ok(reply))
    }

    fn settled(&mut self, at: usize, outcome: Result<Reply, Why>) -> Option<Heard> {
        let pending = self.pending.remove(at)?;
        self.counts.round_trips += 1;
        let sent = pending.first.unwrap_or(pending.sent);
        Some(Heard { key: pending.key, command: pending.command, sent, outcome })
    }

    /// A command could not be delivered or understood, or there was no room for it.
    fn failed(&mut self, failure: &Failure, now: Time) -> Option<Heard> {
        let (kind, transaction) = failure.command()?;
        // What is sent back of the command does not always tell the piece; the last one sent met the full queue.
        let mut candidates = self.pending.iter().enumerate().filter(|(_, pending)| {
            pending.transaction == transaction
                && matches!(pending.state, State::Sent(_))
                && kind == kind_of(&pending.command)
        });
        let Some((at, _)) = (match failure.why {
            Why::OVERFLOW => candidates.max_by_key(|(_, pending)| pending.order),
            _ => candidates.next(),
        }) else {
            self.seen.strays += 1;
            return None;
        };
        if failure.why != Why::OVERFLOW {
            return self.settled(at, Err(failure.why));
        }
        self.counts.refusals += 1;
        self.counts.retransmissions += 1;
        let alone = !self
            .pending
            .iter()
            .enumerate()
            .any(|(other, pending)| other != at && matches!(pending.state, State::Sent(_)));
        let pending = &mut self.pending[at];
        if alone {
            if pending.tries >= self.retries {
                return self.settled(at, Err(failure.why));
            }
            pending.state = State::ToSend(now + PAUSE * (1 << pending.tries.min(6)));
            pending.tries += 1;
        } else {
            pending.state = State::ToSend(now);
        }
        let order = pending.order;
        self.narrow(order);
        None
    }

    /// The answer takes so many seconds more.
    fn wait(&mut self, transaction: u8, kind: u8, seconds: u16, now: Time) {
        self.counts.please_waits += 1;
        self.seen.waits += 1;
        // It promises no more than 30 s at once (BMP5 manual).
        let wait = Duration::from_secs(u64::from(seconds.min(30)));
        for pending in self.pending.iter_mut().filter(|pending| pending.transaction == transaction) {
            if let State::Sent(until) = pending.state
                && kind == kind_of(&pending.command)
            {
                let most = pending.first.unwrap_or(now) + MOST_PATIENCE;
                pending.state = State::Sent(until.max((now + wait + self.timeout).min(most)));
            }
        }
    }

    fn packet(&self, state: LinkState, protocol: u8, message: &[u8]) -> Vec<u8> {
        let hop = Hop { state, to: self.node, from: CLIENT, expect_more: 2, priority: 1 };
        let route = Route { protocol, to: self.node, from: CLIENT, hops: 0 };
        Packet { hop, message: Some((route, message)) }.write()
    }
}

/// The first byte of a command's message.
fn kind_of(command: &Command) -> u8 {
    command.kind().1
}

/// Whether a reply with the right number is the one to this command.
fn is_answered(command: &Command, reply: &Reply) -> bool {
    use crate::peer::pakbus::message::Code;
    match (command, reply) {
        (Command::Fetch(fetch), Reply::Fetch { code, offset, data }) => {
            // What is refused is refused for all pieces, wherever it says that it was.
            *code != Code::COMPLETE || fetch.offset == *offset && data.len() <= usize::from(fetch.swath)
        }
        (Command::Hello(_), Reply::Hello(_))
        | (Command::Settings { .. }, Reply::Settings(_))
        | (Command::Program { .. }, Reply::Program(_))
        | (Command::Collect { .. }, Reply::Collect(_)) => true,
        _ => false,
    }
}

impl Seen {
    /// Whether the logger has ever answered.
    pub fn any(&self) -> bool {
        self.answers > 0
    }

    /// What there was instead of answers, and what to try; `tries` in vain.
    pub fn complaint(&self, node: u16, tries: u32) -> String {
        let tries = if tries == 1 { "1 try".to_owned() } else { format!("{tries} tries") };
        let what = match *self {
            Seen { other: Some(other), .. } => {
                format!("the logger there says that its address is {other}: give that (--node {other})")
            }
            Seen { waits: waits @ 1.., .. } => {
                format!("it asked for patience, {waits} times: is it busy with something else?")
            }
            Seen { bad_signatures: bad_signatures @ 1.., .. } => {
                format!("{bad_signatures} frames came with wrong signatures: check the line, its rate and frame")
            }
            Seen { malformed: malformed @ 1.., .. } => {
                format!("{malformed} packets came that are too short or make no sense: what listens there?")
            }
            Seen { strays: strays @ 1.., .. } => {
                format!("{strays} answers came to what was not asked (other numbers or offsets): does something else use the logger?")
            }
            Seen { junk: junk @ 1.., .. } => {
                format!("{junk} bytes came that are not PakBus: what listens there?")
            }
            Seen { own: 1.., .. } => {
                "what was asked came back: is there a plug or an echo instead of a logger?".to_owned()
            }
            _ => "nothing came: is it on, is this its address (--node), are encryption and PakBus/TCP password off? Check \
                  --timeout, too"
                .to_owned(),
        };
        format!("no answer from PakBus address {node} in {tries}; {what}")
    }
}
