//! The server of the benchmark: one party for the commands of each client, and one for each data connection.
//!
//! The original has a process for each connection, and each replies to every command. Here one party sends as many
//! replies. Commands for TCP are ignored.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::first_generation::{self, FirstGenerationConnection};
use super::message::{BenchCommand, BenchReply, BenchStatus, MAX_MESSAGE_BYTES};
use super::{CLIENT_ADDRESS, REQUIRED_ENDPOINT, control_endpoint};
use crate::link::party::{ClientTrust, Party, Step};
use crate::link::{Admission, Batch, Caps, Fault, Framing};
use crate::protocol::{ServerConfig, ServerSetting, Service};
use crate::transport::tipc;
use linkgauge_model::clock::Time;
use linkgauge_model::endpoint::{Endpoint, EndpointError};

/// Interval between checks for the end of the data. The client's time includes up to one interval.
const POLL_INTERVAL: Duration = Duration::from_micros(200);

/// Interval between checks while the parties are idle.
const IDLE_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A server whose connections share the state of one benchmark.
pub(crate) fn new_service(facts: &Arc<ServerConfig>) -> Arc<dyn Service> {
    let idle = Duration::from_secs(facts.limits.idle_s);
    Arc::new(TipcBenchService {
        state: Arc::default(),
        idle_timeout: idle,
        max_connections: facts.limits.flows,
        first_generation_clients: AtomicU32::new(0),
    })
}

struct TipcBenchService {
    state: Arc<BenchState>,
    idle_timeout: Duration,
    /// Maximum number of connections at once.
    max_connections: u32,
    /// Number of clients of the first generation, which are numbered from 1.
    first_generation_clients: AtomicU32,
}

impl Service for TipcBenchService {
    fn new_party(&self, caps: &Caps, _from: &str) -> Box<dyn Party> {
        let (bench, idle) = (self.state.clone(), self.idle_timeout);
        match caps.framing {
            Framing::Message if first_generation::is_first_generation(caps) => {
                Box::new(FirstGenerationConnection::new(
                    self.first_generation_clients.fetch_add(1, Relaxed).wrapping_add(1),
                    idle,
                ))
            }
            Framing::Message => Box::new(CommandParty::new(bench, tipc::own_node().unwrap_or(0), idle)),
            Framing::Stream => Box::new(DataParty::new(bench, idle, self.max_connections)),
        }
    }

    fn admit_sender(&self, first: &[u8], _from: &str, _reply: &mut Vec<u8>) -> Admission {
        if BenchCommand::read(first).is_some() { Admission::Open } else { Admission::Drop }
    }

    /// Memory for a receive, and for an echo of two messages.
    fn connection_bytes(&self, _caps: &Caps) -> usize {
        3 * MAX_MESSAGE_BYTES as usize
    }

    /// Whether the server speaks first: on a stream, because a client counts its open connections before it sends data on them.
    fn speaks_first(&self, caps: &Caps) -> bool {
        caps.framing == Framing::Stream
    }

    /// Returns true: the server has one client at a time, and the next client ends the session before.
    fn limits_sessions_itself(&self) -> bool {
        true
    }

    fn supported_settings(&self) -> &'static [ServerSetting] {
        &[ServerSetting::Flows]
    }

    fn extra_endpoints(&self, endpoint: &Endpoint, caps: &Caps) -> Result<Vec<Endpoint>, EndpointError> {
        let url = control_endpoint(endpoint, &format!("answers={CLIENT_ADDRESS}"))?;
        match caps {
            caps if first_generation::is_first_generation(caps) => Ok(Vec::new()),
            caps if caps.framing == Framing::Stream && tipc::TRANSPORT.has(&url) => Ok(vec![url]),
            _ => Err(EndpointError::BadAddress { url: endpoint.to_string(), wanted: REQUIRED_ENDPOINT }),
        }
    }
}

/// State that the parties of a server share.
#[derive(Default)]
struct BenchState {
    /// Number of restarts: parties of an earlier generation end.
    generation: AtomicU64,
    /// Number of connections that have received all messages, not yet reported.
    finished_connections: AtomicU32,
    /// Number of connections that ended before that.
    lost_connections: AtomicU32,
    tasks: Mutex<TaskState>,
}

#[derive(Default)]
struct TaskState {
    connections: u32,
    /// Number of announced tasks.
    task_number: u64,
    task: BenchTask,
}

/// Task that a client has announced.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct BenchTask {
    message_bytes: usize,
    total_bytes: u64,
    is_echo: bool,
}

impl BenchState {
    fn lock_tasks(&self) -> MutexGuard<'_, TaskState> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn generation(&self) -> u64 {
        self.generation.load(Relaxed)
    }

    fn restart(&self) -> u64 {
        let mut state = self.lock_tasks();
        *state = TaskState { task_number: state.task_number, ..TaskState::default() };
        self.finished_connections.store(0, Relaxed);
        self.lost_connections.store(0, Relaxed);
        self.generation.fetch_add(1, Relaxed) + 1
    }

    /// Announces a task. Returns the number of connections for it.
    fn announce_task(&self, task: BenchTask) -> u32 {
        let mut state = self.lock_tasks();
        state.task_number += 1;
        state.task = task;
        state.connections
    }
}

/// Receives the commands of one client.
struct CommandParty {
    state: Arc<BenchState>,
    node: u32,
    generation: u64,
    batch: Batch,
    replies: VecDeque<[u8; BenchReply::ENCODED_BYTES]>,
    /// Number of connections that have not finished.
    running_connections: u32,
    idle_timeout: Duration,
    last_activity: Option<Time>,
    is_finished: bool,
}

impl CommandParty {
    pub fn new(bench: Arc<BenchState>, node: u32, idle: Duration) -> CommandParty {
        // One extra byte detects a longer message.
        let batch = Batch::new(BenchCommand::ENCODED_BYTES + 1, 1);
        let generation = bench.generation();
        let replies = VecDeque::new();
        CommandParty {
            state: bench,
            node,
            generation,
            batch,
            replies,
            running_connections: 0,
            idle_timeout: idle,
            last_activity: None,
            is_finished: false,
        }
    }

    fn queue_reply(&mut self, word: BenchStatus, times: u32) {
        let reply = BenchReply { status: word, node: self.node }.write();
        self.replies.extend(std::iter::repeat_n(reply, times as usize));
    }

    fn handle_command(&mut self, command: BenchCommand) {
        match command {
            BenchCommand::Restart => {
                self.generation = self.state.restart();
                self.replies.clear();
                self.running_connections = 0;
            }
            // Connected parties do not reply again.
            BenchCommand::Listen { tcp: false, .. } if self.state.lock_tasks().connections == 0 => {
                self.queue_reply(BenchStatus::Listening, 1);
            }
            BenchCommand::Measure {
                message_bytes: size @ 1..=MAX_MESSAGE_BYTES,
                count: count @ 1..,
                echo,
            } => {
                let task = BenchTask {
                    message_bytes: size as usize,
                    total_bytes: u64::from(size) * u64::from(count),
                    is_echo: echo,
                };
                self.running_connections = self.state.announce_task(task);
                self.queue_reply(BenchStatus::Ready, self.running_connections);
            }
            BenchCommand::Listen { .. } | BenchCommand::Measure { .. } => {}
        }
    }
}

impl Party for CommandParty {
    fn next_step(&mut self, now: Time) -> Step<'_> {
        let last = *self.last_activity.get_or_insert(now);
        if self.is_finished || self.generation != self.state.generation() {
            return Step::Done;
        }
        let finished = self.state.finished_connections.swap(0, Relaxed).min(self.running_connections);
        let lost = self.state.lost_connections.swap(0, Relaxed);
        self.running_connections = (self.running_connections - finished).saturating_sub(lost);
        self.queue_reply(BenchStatus::Finished, finished);
        if let Some(reply) = self.replies.front() {
            return Step::Send { bytes: reply, message: BenchReply::ENCODED_BYTES };
        }
        let look = if self.running_connections > 0 { POLL_INTERVAL } else { IDLE_POLL_INTERVAL };
        Step::Receive { into: &mut self.batch, until: (last + self.idle_timeout).min(now + look) }
    }

    fn on_sent(&mut self, _bytes: usize, _at: Time) {
        self.replies.pop_front();
    }

    fn on_received(&mut self, now: Time) {
        self.last_activity = Some(now);
        let command = self.batch.messages().next().and_then(BenchCommand::read);
        command.into_iter().for_each(|command| self.handle_command(command));
    }

    /// Exempts the client: the kernels of a cluster guarantee the sender of a message. Replies are longer than commands.
    fn client_trust(&self) -> ClientTrust {
        ClientTrust::Exempt
    }

    fn on_timeout(&mut self, now: Time) {
        let last = *self.last_activity.get_or_insert(now);
        self.is_finished = self.running_connections == 0 && now >= last + self.idle_timeout;
    }
}

/// Party of one connection: returns or drops the announced messages.
struct DataParty {
    state: Arc<BenchState>,
    generation: u64,
    batch: Batch,
    /// Number of the current or last task.
    task_number: u64,
    task: BenchTask,
    bytes_left: u64,
    /// Received part of the next message of an echo task, and the part still to be returned.
    echo_buffer: Vec<u8>,
    returned_bytes: usize,
    idle_timeout: Duration,
    last_activity: Option<Time>,
    fault: Option<Fault>,
    is_finished: bool,
}

impl DataParty {
    pub fn new(bench: Arc<BenchState>, idle: Duration, most: u32) -> DataParty {
        let mut state = bench.lock_tasks();
        let full = state.connections >= most;
        state.connections += 1;
        let (number, generation) = (state.task_number, bench.generation());
        drop(state);
        DataParty {
            generation,
            state: bench,
            batch: Batch::new(MAX_MESSAGE_BYTES as usize, 1),
            task_number: number,
            task: BenchTask::default(),
            bytes_left: 0,
            echo_buffer: Vec::with_capacity(2 * MAX_MESSAGE_BYTES as usize),
            returned_bytes: 0,
            idle_timeout: idle,
            last_activity: None,
            fault: full.then(|| Fault::LimitReached("too many connections".to_owned())),
            is_finished: false,
        }
    }

    /// Begins the next task, if one was announced.
    fn begin_task(&mut self) {
        let state = self.state.lock_tasks();
        if state.task_number != self.task_number {
            (self.task_number, self.task, self.bytes_left) =
                (state.task_number, state.task, state.task.total_bytes);
        }
    }

    fn record_progress(&mut self, bytes: usize) {
        self.bytes_left -= bytes as u64;
        if self.bytes_left == 0 {
            self.state.finished_connections.fetch_add(1, Relaxed);
        }
    }

    /// Whether a complete message waits to be returned.
    fn is_echo_ready(&self) -> bool {
        self.bytes_left > 0 && self.task.is_echo && self.echo_buffer.len() >= self.task.message_bytes
    }
}

impl Party for DataParty {
    #[inline]
    fn next_step(&mut self, now: Time) -> Step<'_> {
        let last = *self.last_activity.get_or_insert(now);
        if let Some(fault) = self.fault.take() {
            return Step::Fail(fault);
        }
        if self.is_finished || self.generation != self.state.generation() {
            return Step::Done;
        }
        if self.is_echo_ready() {
            let bytes = &self.echo_buffer[self.returned_bytes..self.task.message_bytes];
            return Step::Send { bytes, message: bytes.len() };
        }
        Step::Receive {
            into: &mut self.batch,
            until: (last + self.idle_timeout).min(now + IDLE_POLL_INTERVAL),
        }
    }

    #[inline]
    fn on_sent(&mut self, bytes: usize, _at: Time) {
        self.returned_bytes += bytes;
        if self.returned_bytes == self.task.message_bytes {
            self.echo_buffer.drain(..self.task.message_bytes);
            self.returned_bytes = 0;
            self.record_progress(self.task.message_bytes);
        }
    }

    #[inline]
    fn on_received(&mut self, now: Time) {
        self.last_activity = Some(now);
        if self.bytes_left == 0 {
            self.begin_task();
        }
        let received = self.batch.total_bytes();
        let waiting = self.echo_buffer.len() as u64;
        if received + waiting > self.bytes_left {
            self.fault = Some(Fault::UnexpectedData("more data than was announced".to_owned()));
        } else if self.task.is_echo {
            self.batch.messages().for_each(|bytes| self.echo_buffer.extend_from_slice(bytes));
        } else {
            self.record_progress(received as usize);
        }
    }

    fn on_timeout(&mut self, now: Time) {
        self.is_finished = self.last_activity.is_some_and(|last| now >= last + self.idle_timeout);
    }

    fn on_closed(&mut self, _now: Time) -> Result<(), Fault> {
        self.is_finished = true;
        Ok(())
    }
}

impl Drop for DataParty {
    fn drop(&mut self) {
        let mut state = self.state.lock_tasks();
        // A restart has dropped the connections of earlier generations.
        if self.generation == self.state.generation() {
            state.connections -= 1;
            if self.bytes_left > 0 || self.task_number != state.task_number {
                self.state.lost_connections.fetch_add(1, Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: u32 = 0x6e32_0000;
    const IDLE: Duration = Duration::from_secs(60);

    /// Delivers bytes to a party that wants to receive.
    fn deliver(party: &mut dyn Party, bytes: &[u8]) {
        let Step::Receive { into, .. } = party.next_step(Time(0)) else { panic!("it does not listen") };
        into.clear();
        into.bytes[..bytes.len()].copy_from_slice(bytes);
        into.push_span(0, bytes.len());
        party.on_received(Time(0));
    }

    /// Output of a party until it wants to receive or ends.
    fn drain_output(party: &mut dyn Party) -> Vec<Vec<u8>> {
        let mut output = Vec::new();
        loop {
            let Step::Send { bytes, .. } = party.next_step(Time(0)) else { return output };
            let bytes = bytes.to_vec();
            party.on_sent(bytes.len(), Time(0));
            output.push(bytes);
        }
    }

    fn replies(word: BenchStatus, times: usize) -> Vec<Vec<u8>> {
        vec![BenchReply { status: word, node: NODE }.write().to_vec(); times]
    }

    fn server() -> (Arc<BenchState>, CommandParty) {
        let bench: Arc<BenchState> = Arc::default();
        (bench.clone(), CommandParty::new(bench, NODE, IDLE))
    }

    #[test]
    fn a_run_matches_the_original() {
        let (bench, mut commands) = server();
        deliver(&mut commands, &BenchCommand::Restart.write());
        assert!(drain_output(&mut commands).is_empty());
        deliver(
            &mut commands,
            &BenchCommand::Listen { max_message_bytes: MAX_MESSAGE_BYTES, tcp: false }.write(),
        );
        assert_eq!(drain_output(&mut commands), replies(BenchStatus::Listening, 1));
        let mut data = [(); 2].map(|()| DataParty::new(bench.clone(), IDLE, 8));
        // Connected parties do not reply again.
        deliver(
            &mut commands,
            &BenchCommand::Listen { max_message_bytes: MAX_MESSAGE_BYTES, tcp: false }.write(),
        );
        assert!(drain_output(&mut commands).is_empty());

        deliver(&mut commands, &BenchCommand::Measure { message_bytes: 64, count: 3, echo: true }.write());
        assert_eq!(drain_output(&mut commands), replies(BenchStatus::Ready, 2));
        for (number, data) in data.iter_mut().enumerate() {
            for message in [[1; 64], [2; 64], [3; 64]] {
                // No echo before the message is complete.
                deliver(data, &message[..10]);
                assert!(drain_output(data).is_empty());
                deliver(data, &message[10..]);
                assert_eq!(drain_output(data), [message.to_vec()]);
            }
            assert_eq!(drain_output(&mut commands), replies(BenchStatus::Finished, 1), "{number}");
        }

        deliver(
            &mut commands,
            &BenchCommand::Measure { message_bytes: 1000, count: 66, echo: false }.write(),
        );
        assert_eq!(drain_output(&mut commands), replies(BenchStatus::Ready, 2));
        for data in &mut data {
            deliver(data, &[0; 30_000]);
            assert!(drain_output(data).is_empty());
        }
        assert!(drain_output(&mut commands).is_empty());
        for data in &mut data {
            deliver(data, &[0; 36_000]);
            assert!(drain_output(data).is_empty());
        }
        assert_eq!(drain_output(&mut commands), replies(BenchStatus::Finished, 2));

        // The next client ends all parties.
        let mut next = CommandParty::new(bench.clone(), NODE, IDLE);
        deliver(&mut next, &BenchCommand::Restart.write());
        assert!(matches!(commands.next_step(Time(0)), Step::Done));
        assert!(data.iter_mut().all(|data| matches!(data.next_step(Time(0)), Step::Done)));
        drop(data);
        deliver(&mut next, &BenchCommand::Listen { max_message_bytes: 64, tcp: false }.write());
        assert_eq!(drain_output(&mut next), replies(BenchStatus::Listening, 1));
    }

    #[test]
    fn unannounced_data_ends_a_connection() {
        let (bench, mut commands) = server();
        let mut early = DataParty::new(bench.clone(), IDLE, 8);
        deliver(&mut early, b"?");
        assert!(matches!(early.next_step(Time(0)), Step::Fail(_)));
        let mut data = DataParty::new(bench.clone(), IDLE, 8);
        deliver(&mut commands, &BenchCommand::Measure { message_bytes: 10, count: 2, echo: true }.write());
        deliver(&mut data, &[0; 21]);
        assert!(matches!(data.next_step(Time(0)), Step::Fail(_)));
        let mut ninth = DataParty::new(bench, IDLE, 2);
        assert!(matches!(ninth.next_step(Time(0)), Step::Fail(_)));
    }

    #[test]
    fn out_of_range_commands_are_ignored() {
        let (bench, mut commands) = server();
        let _data = DataParty::new(bench, IDLE, 8);
        for (size, count) in [(0, 1), (1, 0), (MAX_MESSAGE_BYTES + 1, 1), (u32::MAX, u32::MAX)] {
            deliver(
                &mut commands,
                &BenchCommand::Measure { message_bytes: size, count, echo: false }.write(),
            );
            assert!(drain_output(&mut commands).is_empty());
        }
        deliver(&mut commands, &BenchCommand::Listen { max_message_bytes: 1, tcp: true }.write());
        deliver(&mut commands, b"hello, is this an echo?"[..17].as_ref());
        assert!(drain_output(&mut commands).is_empty());
    }

    #[test]
    fn idle_parties_end() {
        let (bench, mut commands) = server();
        let vanished = DataParty::new(bench.clone(), IDLE, 8);
        deliver(&mut commands, &BenchCommand::Measure { message_bytes: 64, count: 9, echo: false }.write());
        assert_eq!(drain_output(&mut commands), replies(BenchStatus::Ready, 1));
        drop(vanished);
        let mut data = DataParty::new(bench, IDLE, 8);
        for party in [&mut commands as &mut dyn Party, &mut data] {
            assert!(matches!(party.next_step(Time(0)), Step::Receive { .. }));
            party.on_timeout(Time(0) + IDLE / 2);
            assert!(matches!(party.next_step(Time(0) + IDLE / 2), Step::Receive { .. }));
            party.on_timeout(Time(0) + IDLE);
            assert!(matches!(party.next_step(Time(0) + IDLE), Step::Done));
        }
    }
}
