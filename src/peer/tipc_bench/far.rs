//! The server of the benchmark: one party for each client's commands, one for each connection that brings data.
//!
//! The original has a process for each connection, and each answers a command for itself. Here one party answers so many
//! times. Commands for TCP are not followed.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::first::{self, Child};
use super::message::{Answer, Command, LONGEST, Word};
use super::{CLIENT, DATA, beside};
use crate::clock::Time;
use crate::endpoint::{Endpoint, EndpointError};
use crate::link::party::{Party, Standing, Step};
use crate::link::{Admission, Batch, Caps, Fault, Framing, caps, tipc};
use crate::peer::{ServerFacts, Service, Setting};

/// While data comes, its end is looked for this often; it is part of what the client measures.
const LOOK: Duration = Duration::from_micros(200);

/// Otherwise the parties look around this often.
const LOOK_IDLY: Duration = Duration::from_millis(100);

pub fn service(facts: &Arc<ServerFacts>) -> Arc<dyn Service> {
    let idle = Duration::from_secs(facts.limits.idle_s);
    Arc::new(BenchService {
        bench: Arc::default(),
        idle,
        most: facts.limits.flows,
        children: AtomicU32::new(0),
    })
}

struct BenchService {
    bench: Arc<Bench>,
    idle: Duration,
    /// Connections at once.
    most: u32,
    /// Clients of the first generation, which are numbered from 1.
    children: AtomicU32,
}

impl Service for BenchService {
    fn party(&self, caps: &Caps, _from: &str) -> Box<dyn Party> {
        let (bench, idle) = (self.bench.clone(), self.idle);
        match caps.framing {
            Framing::Message if first::is_meant(caps) => {
                Box::new(Child::new(self.children.fetch_add(1, Relaxed).wrapping_add(1), idle))
            }
            Framing::Message => Box::new(Commands::new(bench, tipc::own_node().unwrap_or(0), idle)),
            Framing::Stream => Box::new(Data::new(bench, idle, self.most)),
        }
    }

    fn door(&self, first: &[u8], _from: &str, _reply: &mut Vec<u8>) -> Admission {
        if Command::read(first).is_some() { Admission::Open } else { Admission::Drop }
    }

    /// A client counts the connections that it has opened before it says anything on them.
    fn speaks_first(&self, caps: &Caps) -> bool {
        caps.framing == Framing::Stream
    }

    /// There is one at a time: the next client ends it.
    fn counts_sessions(&self) -> bool {
        true
    }

    fn honours(&self) -> &'static [Setting] {
        &[Setting::Flows]
    }

    fn beside(&self, endpoint: &Endpoint) -> Result<Vec<Endpoint>, EndpointError> {
        let url = beside(endpoint, &format!("answers={CLIENT}"))?;
        match (caps(&url), caps(endpoint)) {
            (Ok(_), Ok(link)) if first::is_meant(&link) => Ok(Vec::new()),
            (Ok(_), Ok(link)) if link.framing == Framing::Stream => Ok(vec![url]),
            _ => Err(EndpointError::BadPlace { url: endpoint.to_string(), wanted: DATA }),
        }
    }
}

/// What the parties of a server know of each other.
#[derive(Default)]
struct Bench {
    /// Counts the restarts: parties of an earlier one end.
    generation: AtomicU64,
    /// Connections that have had all messages, and have not been told of.
    finished: AtomicU32,
    /// Connections that ended before that.
    gone: AtomicU32,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    connections: u32,
    /// Counts the tasks, from 1.
    number: u64,
    task: Task,
}

/// What was announced.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Task {
    size: usize,
    bytes: u64,
    echo: bool,
}

impl Bench {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn generation(&self) -> u64 {
        self.generation.load(Relaxed)
    }

    fn restart(&self) -> u64 {
        let mut state = self.state();
        *state = State { number: state.number, ..State::default() };
        self.finished.store(0, Relaxed);
        self.gone.store(0, Relaxed);
        self.generation.fetch_add(1, Relaxed) + 1
    }

    /// Announces a task; how many connections there are for it.
    fn announce(&self, task: Task) -> u32 {
        let mut state = self.state();
        state.number += 1;
        state.task = task;
        state.connections
    }
}

/// Hears the commands of one client.
struct Commands {
    bench: Arc<Bench>,
    node: u32,
    generation: u64,
    batch: Batch,
    answers: VecDeque<[u8; Answer::BYTES]>,
    /// Connections that have not finished.
    running: u32,
    idle: Duration,
    last: Option<Time>,
    over: bool,
}

impl Commands {
    fn new(bench: Arc<Bench>, node: u32, idle: Duration) -> Commands {
        // One byte more than a command has, so that a longer message is none.
        let batch = Batch::new(Command::BYTES + 1, 1);
        let generation = bench.generation();
        let answers = VecDeque::new();
        Commands { bench, node, generation, batch, answers, running: 0, idle, last: None, over: false }
    }

    fn answer(&mut self, word: Word, times: u32) {
        let answer = Answer { word, node: self.node }.write();
        self.answers.extend(std::iter::repeat_n(answer, times as usize));
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Restart => {
                self.generation = self.bench.restart();
                self.answers.clear();
                self.running = 0;
            }
            // Whoever is connected already is not asked again.
            Command::Listen { tcp: false, .. } if self.bench.state().connections == 0 => {
                self.answer(Word::Listening, 1);
            }
            Command::Measure { size: size @ 1..=LONGEST, count: count @ 1.., echo } => {
                let task = Task { size: size as usize, bytes: u64::from(size) * u64::from(count), echo };
                self.running = self.bench.announce(task);
                self.answer(Word::Ready, self.running);
            }
            Command::Listen { .. } | Command::Measure { .. } => {}
        }
    }
}

impl Party for Commands {
    fn next(&mut self, now: Time) -> Step<'_> {
        let last = *self.last.get_or_insert(now);
        if self.over || self.generation != self.bench.generation() {
            return Step::Done;
        }
        let finished = self.bench.finished.swap(0, Relaxed).min(self.running);
        let gone = self.bench.gone.swap(0, Relaxed);
        self.running = (self.running - finished).saturating_sub(gone);
        self.answer(Word::Finished, finished);
        if let Some(answer) = self.answers.front() {
            return Step::Send { bytes: answer, message: Answer::BYTES };
        }
        let look = if self.running > 0 { LOOK } else { LOOK_IDLY };
        Step::Receive { into: &mut self.batch, until: (last + self.idle).min(now + look) }
    }

    fn sent(&mut self, _bytes: usize, _at: Time) {
        self.answers.pop_front();
    }

    fn received(&mut self, now: Time) {
        self.last = Some(now);
        let command = self.batch.messages().next().and_then(Command::read);
        command.into_iter().for_each(|command| self.obey(command));
    }

    /// The kernels of a cluster say who sent a message. Its answers are longer than the commands.
    fn standing(&self) -> Standing {
        Standing::Vouched
    }

    fn timed_out(&mut self, now: Time) {
        let last = *self.last.get_or_insert(now);
        self.over = self.running == 0 && now >= last + self.idle;
    }
}

/// One connection: sends back or swallows what was announced.
struct Data {
    bench: Arc<Bench>,
    generation: u64,
    batch: Batch,
    /// Number of the task that is being done, or was last.
    number: u64,
    task: Task,
    left: u64,
    /// Of a task with echo: what has come of the next message, and what goes back of it.
    message: Vec<u8>,
    returned: usize,
    idle: Duration,
    last: Option<Time>,
    fault: Option<Fault>,
    over: bool,
}

impl Data {
    fn new(bench: Arc<Bench>, idle: Duration, most: u32) -> Data {
        let mut state = bench.state();
        let full = state.connections >= most;
        state.connections += 1;
        let (number, generation) = (state.number, bench.generation());
        drop(state);
        Data {
            generation,
            bench,
            batch: Batch::new(LONGEST as usize, 1),
            number,
            task: Task::default(),
            left: 0,
            message: Vec::with_capacity(2 * LONGEST as usize),
            returned: 0,
            idle,
            last: None,
            fault: full.then(|| Fault::Other("too many connections".to_owned())),
            over: false,
        }
    }

    /// Takes the next task up, if one was announced since the last.
    fn begin(&mut self) {
        let state = self.bench.state();
        if state.number != self.number {
            (self.number, self.task, self.left) = (state.number, state.task, state.task.bytes);
        }
    }

    fn done(&mut self, bytes: usize) {
        self.left -= bytes as u64;
        if self.left == 0 {
            self.bench.finished.fetch_add(1, Relaxed);
        }
    }

    /// A whole message waits to go back.
    fn echoes(&self) -> bool {
        self.left > 0 && self.task.echo && self.message.len() >= self.task.size
    }
}

impl Party for Data {
    #[inline]
    fn next(&mut self, now: Time) -> Step<'_> {
        let last = *self.last.get_or_insert(now);
        if let Some(fault) = self.fault.take() {
            return Step::Fail(fault);
        }
        if self.over || self.generation != self.bench.generation() {
            return Step::Done;
        }
        if self.echoes() {
            let bytes = &self.message[self.returned..self.task.size];
            return Step::Send { bytes, message: bytes.len() };
        }
        Step::Receive { into: &mut self.batch, until: (last + self.idle).min(now + LOOK_IDLY) }
    }

    #[inline]
    fn sent(&mut self, bytes: usize, _at: Time) {
        self.returned += bytes;
        if self.returned == self.task.size {
            self.message.drain(..self.task.size);
            self.returned = 0;
            self.done(self.task.size);
        }
    }

    #[inline]
    fn received(&mut self, now: Time) {
        self.last = Some(now);
        if self.left == 0 {
            self.begin();
        }
        let came = self.batch.total();
        let waiting = self.message.len() as u64;
        if came + waiting > self.left {
            self.fault = Some(Fault::Other("more data than was announced".to_owned()));
        } else if self.task.echo {
            self.batch.messages().for_each(|bytes| self.message.extend_from_slice(bytes));
        } else {
            self.done(came as usize);
        }
    }

    fn timed_out(&mut self, now: Time) {
        self.over = self.last.is_some_and(|last| now >= last + self.idle);
    }

    fn closed(&mut self, _now: Time) -> Result<(), Fault> {
        self.over = true;
        Ok(())
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        let mut state = self.bench.state();
        // A restart has forgotten the connections before it.
        if self.generation == self.bench.generation() {
            state.connections -= 1;
            if self.left > 0 || self.number != state.number {
                self.bench.gone.fetch_add(1, Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: u32 = 0x6e32_0000;
    const IDLE: Duration = Duration::from_secs(60);

    /// Hands a party some bytes, when it wants any.
    fn hand(party: &mut dyn Party, bytes: &[u8]) {
        let Step::Receive { into, .. } = party.next(Time(0)) else { panic!("it does not listen") };
        into.clear();
        into.bytes[..bytes.len()].copy_from_slice(bytes);
        into.push(0, bytes.len());
        party.received(Time(0));
    }

    /// What a party sends until it listens again or ends.
    fn said(party: &mut dyn Party) -> Vec<Vec<u8>> {
        let mut said = Vec::new();
        loop {
            let Step::Send { bytes, .. } = party.next(Time(0)) else { return said };
            let bytes = bytes.to_vec();
            party.sent(bytes.len(), Time(0));
            said.push(bytes);
        }
    }

    fn answers(word: Word, times: usize) -> Vec<Vec<u8>> {
        vec![Answer { word, node: NODE }.write().to_vec(); times]
    }

    fn server() -> (Arc<Bench>, Commands) {
        let bench: Arc<Bench> = Arc::default();
        (bench.clone(), Commands::new(bench, NODE, IDLE))
    }

    #[test]
    fn a_run_goes_as_in_the_original() {
        let (bench, mut commands) = server();
        hand(&mut commands, &Command::Restart.write());
        assert!(said(&mut commands).is_empty());
        hand(&mut commands, &Command::Listen { longest: LONGEST, tcp: false }.write());
        assert_eq!(said(&mut commands), answers(Word::Listening, 1));
        let mut data = [(); 2].map(|()| Data::new(bench.clone(), IDLE, 8));
        // Once connected they are not asked again.
        hand(&mut commands, &Command::Listen { longest: LONGEST, tcp: false }.write());
        assert!(said(&mut commands).is_empty());

        hand(&mut commands, &Command::Measure { size: 64, count: 3, echo: true }.write());
        assert_eq!(said(&mut commands), answers(Word::Ready, 2));
        for (number, data) in data.iter_mut().enumerate() {
            for message in [[1; 64], [2; 64], [3; 64]] {
                // Nothing goes back before the message is whole.
                hand(data, &message[..10]);
                assert!(said(data).is_empty());
                hand(data, &message[10..]);
                assert_eq!(said(data), [message.to_vec()]);
            }
            assert_eq!(said(&mut commands), answers(Word::Finished, 1), "{number}");
        }

        hand(&mut commands, &Command::Measure { size: 1000, count: 66, echo: false }.write());
        assert_eq!(said(&mut commands), answers(Word::Ready, 2));
        for data in &mut data {
            hand(data, &[0; 30_000]);
            assert!(said(data).is_empty());
        }
        assert!(said(&mut commands).is_empty());
        for data in &mut data {
            hand(data, &[0; 36_000]);
            assert!(said(data).is_empty());
        }
        assert_eq!(said(&mut commands), answers(Word::Finished, 2));

        // The next client ends all of it.
        let mut next = Commands::new(bench.clone(), NODE, IDLE);
        hand(&mut next, &Command::Restart.write());
        assert!(matches!(commands.next(Time(0)), Step::Done));
        assert!(data.iter_mut().all(|data| matches!(data.next(Time(0)), Step::Done)));
        drop(data);
        hand(&mut next, &Command::Listen { longest: 64, tcp: false }.write());
        assert_eq!(said(&mut next), answers(Word::Listening, 1));
    }

    #[test]
    fn data_that_nobody_announced_ends_a_connection() {
        let (bench, mut commands) = server();
        let mut early = Data::new(bench.clone(), IDLE, 8);
        hand(&mut early, b"?");
        assert!(matches!(early.next(Time(0)), Step::Fail(_)));
        let mut data = Data::new(bench.clone(), IDLE, 8);
        hand(&mut commands, &Command::Measure { size: 10, count: 2, echo: true }.write());
        hand(&mut data, &[0; 21]);
        assert!(matches!(data.next(Time(0)), Step::Fail(_)));
        let mut ninth = Data::new(bench, IDLE, 2);
        assert!(matches!(ninth.next(Time(0)), Step::Fail(_)));
    }

    #[test]
    fn commands_that_ask_too_much_or_too_little_are_passed_over() {
        let (bench, mut commands) = server();
        let _data = Data::new(bench, IDLE, 8);
        for (size, count) in [(0, 1), (1, 0), (LONGEST + 1, 1), (u32::MAX, u32::MAX)] {
            hand(&mut commands, &Command::Measure { size, count, echo: false }.write());
            assert!(said(&mut commands).is_empty());
        }
        hand(&mut commands, &Command::Listen { longest: 1, tcp: true }.write());
        hand(&mut commands, b"hello, is this an echo?"[..17].as_ref());
        assert!(said(&mut commands).is_empty());
    }

    #[test]
    fn nobody_is_waited_for_without_end() {
        let (bench, mut commands) = server();
        let vanished = Data::new(bench.clone(), IDLE, 8);
        hand(&mut commands, &Command::Measure { size: 64, count: 9, echo: false }.write());
        assert_eq!(said(&mut commands), answers(Word::Ready, 1));
        drop(vanished);
        let mut data = Data::new(bench, IDLE, 8);
        for party in [&mut commands as &mut dyn Party, &mut data] {
            assert!(matches!(party.next(Time(0)), Step::Receive { .. }));
            party.timed_out(Time(0) + IDLE / 2);
            assert!(matches!(party.next(Time(0) + IDLE / 2), Step::Receive { .. }));
            party.timed_out(Time(0) + IDLE);
            assert!(matches!(party.next(Time(0) + IDLE), Step::Done));
        }
    }
}
