//! The client's ends of a connection of the load. One half moves the load; the other half collects the probes on it, and on
//! the first connection it conducts the measurement.

use std::sync::Arc;
use std::time::Duration;

use super::block::{BlockHeader, BlockNote, BlockReader, HEADER_BYTES};
use super::conductor::Conductor;
use super::shared::{LoadProbes, LoadState, POLL_INTERVAL, RepliedProbe};
use super::{RECEIVE_BYTES, UNSENT_BYTES, block_bytes};
use crate::link::party::{Party, PartyCost, Step, Tuning};
use crate::link::{Batch, Fault, Link, socket_settings};
use crate::workload::{Load, RecordingParty};
use linkgauge_model::clock::Time;
use linkgauge_model::sample::{Recorder, Sample};

/// State that both halves of a connection share.
#[derive(Clone)]
pub(crate) struct LoadConnection {
    /// State of the case.
    pub(crate) state: Arc<LoadState>,
    /// Probes of the connection.
    pub(crate) load_probes: Arc<LoadProbes>,
    /// Number of the connection, from 0.
    pub(crate) index: u32,
    /// Time between the probes of the connection.
    pub(crate) probe_interval: Duration,
    /// The load of each connection.
    pub(crate) load: Load,
}

/// Fault of a connection that was opened and not used yet.
const CLOSED_WHILE_IDLE: &str = "it was closed while it was idle, before its part of the load: a device on the path drops idle \
                                 connections. Use fewer connections (--parallel)";

/// Time within which all connections to a server that has ended are closed.
const ALL_CLOSED_TIME: Duration = Duration::from_secs(1);

impl LoadConnection {
    fn is_running(&self) -> bool {
        self.state.is_running(self.index)
    }

    fn is_stalled(&self, now: Time) -> bool {
        self.is_running() && self.state.is_stalled(now, self.load.timeout)
    }

    /// Last step of a half that moves the load.
    fn end_step(&self, now: Time) -> Step<'static> {
        if self.is_stalled(now) { Step::Fail(Fault::TimedOut) } else { Step::Done }
    }

    /// Step of a connection that was closed at this time. A server that ends closes the connections of the load as well, and
    /// those end the measurement.
    fn closed_step(&self, closed_at: Time, now: Time) -> Step<'static> {
        let until = closed_at + ALL_CLOSED_TIME;
        match self.is_running() {
            true => Step::Fail(Fault::Closed),
            false if now < until => Step::Sleep((now + POLL_INTERVAL).min(until)),
            false => Step::Fail(Fault::EndedEarly(CLOSED_WHILE_IDLE.to_owned())),
        }
    }

    /// Records the reply to a probe. A count is ignored here.
    fn record_note(&self, note: BlockNote, now: Time) {
        if let BlockNote::Probe(number) = note {
            self.load_probes.record_reply(number, now);
        }
    }
}

/// Sends the load, with a probe in some blocks.
pub(crate) struct LoadSender {
    connection: LoadConnection,
    tuning: Option<Tuning>,
    /// A whole block; only its header changes.
    block: Vec<u8>,
    /// Size of the current block in bytes, and number of its bytes that were sent.
    block_bytes: usize,
    sent_bytes: usize,
    next_probe: Time,
    /// Whether it also measures the idle link: the first connection of a loop does.
    probes_idle_link: bool,
    /// Whether it closes its side at the end.
    finishes_link: bool,
    is_finished: bool,
    recorder: Recorder,
}

impl LoadSender {
    /// The sender of an upload.
    pub fn new(connection: LoadConnection, recorder: Recorder) -> LoadSender {
        LoadSender {
            tuning: Some(connection.load.batch_tuning()),
            block: vec![0xA5; block_bytes(&connection.load)],
            block_bytes: 0,
            sent_bytes: 0,
            next_probe: Time(0),
            probes_idle_link: false,
            finishes_link: true,
            is_finished: false,
            connection,
            recorder,
        }
    }

    /// Makes this the sender of a loop: the other half of the link counts the returned blocks. `can_half_close`: closing this
    /// side leaves the other open.
    pub(crate) fn looped(self, can_half_close: bool) -> LoadSender {
        let probes_idle_link = self.connection.index == 0;
        LoadSender { probes_idle_link, finishes_link: can_half_close, ..self }
    }

    /// Prepares the next block; as an error, the time at which to try again.
    fn begin_block(&mut self, now: Time) -> Result<(), Time> {
        let is_running = self.connection.is_running();
        let may_begin = is_running || self.probes_idle_link && now >= self.next_probe;
        if !may_begin {
            let wait = if self.probes_idle_link { self.next_probe } else { Time::NEVER };
            return Err(wait.min(now + POLL_INTERVAL));
        }
        let number = match now >= self.next_probe {
            true => self.connection.load_probes.next_number(),
            false => None,
        };
        if number.is_some() {
            self.next_probe = now + self.connection.probe_interval;
        }
        self.block_bytes = if is_running { self.block.len() } else { HEADER_BYTES };
        let header = BlockHeader { block_bytes: self.block_bytes as u32, probe: number.unwrap_or(0) };
        self.block[..HEADER_BYTES].copy_from_slice(&header.encode());
        if is_running && self.recorder.first_instant.is_none() {
            self.recorder.begin(now);
        }
        Ok(())
    }

    fn probe_in_block(&self) -> Option<u64> {
        let header = self.block[..HEADER_BYTES].try_into().ok().and_then(BlockHeader::parse)?;
        Some(header.probe).filter(|&number| number > 0)
    }
}

impl Party for LoadSender {
    fn next_step(&mut self, now: Time) -> Step<'_> {
        if let Some(tuning) = self.tuning.take() {
            return Step::Tune(tuning);
        }
        if self.is_finished {
            return Step::Done;
        }
        if self.connection.state.is_over() {
            self.is_finished = true;
            return match self.finishes_link && !self.connection.is_stalled(now) {
                true => Step::FinishSending,
                false => self.connection.end_step(now),
            };
        }
        if self.sent_bytes == self.block_bytes {
            (self.sent_bytes, self.block_bytes) = (0, 0);
            if let Err(until) = self.begin_block(now) {
                return Step::Sleep(until);
            }
        }
        if self.connection.is_stalled(now) {
            return Step::Fail(Fault::TimedOut);
        }
        if self.sent_bytes == 0
            && let Some(number) = self.probe_in_block()
        {
            // The reply may arrive before the call returns.
            self.connection.load_probes.record_sent(number, now);
        }
        let rest = &self.block[self.sent_bytes..self.block_bytes];
        Step::Send { bytes: rest, message: rest.len() }
    }

    fn on_sent(&mut self, bytes: usize, at: Time) {
        if bytes == 0 {
            return;
        }
        self.sent_bytes += bytes;
        if self.recorder.first_instant.is_none() {
            return;
        }
        let blocks = u64::from(self.sent_bytes == self.block_bytes);
        self.recorder.counts.sent += blocks;
        self.recorder.record_delivery(at, blocks, bytes as u64);
    }

    fn on_received(&mut self, _now: Time) {}

    fn on_timeout(&mut self, _now: Time) {}

    fn on_tuned(&mut self, link: &dyn Link) {
        socket_settings::limit_unsent_bytes(link.descriptor(), UNSENT_BYTES);
    }

    fn on_ended(&mut self, _cost: PartyCost) {
        self.connection.state.end();
    }
}

impl RecordingParty for LoadSender {
    fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    fn into_recorder(self: Box<Self>) -> Recorder {
        self.recorder
    }
}

/// Receives the load, with the replies to the probes that the other half of the connection sends.
pub(crate) struct LoadReceiver {
    connection: LoadConnection,
    tuning: Option<Tuning>,
    batch: Batch,
    reader: BlockReader,
    fault: Option<Fault>,
    closed_at: Option<Time>,
    position: u64,
    recorder: Recorder,
}

impl LoadReceiver {
    /// The receiver of a download.
    pub fn new(connection: LoadConnection, recorder: Recorder) -> LoadReceiver {
        LoadReceiver {
            tuning: Some(connection.load.batch_tuning()),
            batch: Batch::new(RECEIVE_BYTES, 1),
            reader: BlockReader::default(),
            fault: None,
            closed_at: None,
            position: 0,
            connection,
            recorder,
        }
    }
}

impl Party for LoadReceiver {
    fn next_step(&mut self, now: Time) -> Step<'_> {
        if let Some(tuning) = self.tuning.take() {
            return Step::Tune(tuning);
        }
        if let Some(fault) = self.fault.take() {
            return Step::Fail(fault);
        }
        if self.connection.state.is_over() || self.connection.is_stalled(now) {
            return self.connection.end_step(now);
        }
        if let Some(closed_at) = self.closed_at {
            return self.connection.closed_step(closed_at, now);
        }
        Step::Receive { into: &mut self.batch, until: now + POLL_INTERVAL }
    }

    fn on_sent(&mut self, _bytes: usize, _at: Time) {}

    fn on_received(&mut self, now: Time) {
        for chunk in self.batch.messages() {
            let bytes = chunk.len() as u64;
            let read = self.reader.push(chunk, |note| self.connection.record_note(note, now));
            self.fault = read.err().or(self.fault.take());
            if self.recorder.first_instant.is_none() {
                self.recorder.begin_with_bytes(now, bytes);
            }
            let block = block_bytes(&self.connection.load) as u64;
            let blocks = (self.position + bytes) / block - self.position / block;
            self.position += bytes;
            self.recorder.record_delivery(now, blocks, bytes);
            self.connection.state.add_moved_bytes(bytes, now);
        }
    }

    fn on_timeout(&mut self, _now: Time) {}

    fn on_closed(&mut self, now: Time) -> Result<(), Fault> {
        self.closed_at = Some(now);
        Ok(())
    }

    fn on_ended(&mut self, _cost: PartyCost) {
        self.connection.state.end();
    }
}

impl RecordingParty for LoadReceiver {
    fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    fn into_recorder(self: Box<Self>) -> Recorder {
        self.recorder
    }
}

/// Round trips of the probes of one connection.
struct OwnProbes {
    connection: LoadConnection,
    conductor: Option<Conductor>,
    recorded: u64,
    /// Bytes of an upload that the server has got.
    received_bytes: u64,
    recorder: Recorder,
}

impl OwnProbes {
    pub fn new(
        connection: LoadConnection,
        conductor: Option<Conductor>,
        mut recorder: Recorder,
    ) -> OwnProbes {
        recorder.probe_log = Some(connection.state.own_probes.clone());
        OwnProbes { connection, conductor, recorded: 0, received_bytes: 0, recorder }
    }

    /// Records the probes with a reply, and runs the conductor. Returns the time of the next check.
    fn advance(&mut self, now: Time) -> Time {
        while let Some(replied) = self.connection.load_probes.replied_probe(self.recorded + 1) {
            let RepliedProbe { sent, received } = replied;
            if self.recorder.first_instant.is_none() {
                self.recorder.begin(sent);
            }
            let sample = Sample { sequence: self.recorded, intended: sent, sent, received };
            let period = self.recorder.period_at(sent);
            self.recorder.of_period(period).counts.sent += 1;
            self.recorder.record_reply_in(period, sample, 0);
            self.recorded += 1;
        }
        let due = self.conductor.as_mut().map_or(Time::NEVER, |conductor| conductor.advance(now));
        due.min(now + self.connection.probe_interval)
    }

    fn into_recorder(mut self) -> Recorder {
        self.recorder.responsiveness = self.conductor.take().and_then(Conductor::into_figures).map(Box::new);
        self.recorder
    }
}

/// Receiving half of a connection that sends the load: receives the replies, or in a loop the load itself.
pub(crate) struct ReplyReceiver {
    probes: OwnProbes,
    tuning: Option<Tuning>,
    batch: Batch,
    reader: BlockReader,
    is_looped: bool,
    closed_at: Option<Time>,
    over_since: Option<Time>,
    fault: Option<Fault>,
}

impl ReplyReceiver {
    /// Receiver of replies; with a conductor on the first connection.
    pub fn new(
        connection: LoadConnection,
        conductor: Option<Conductor>,
        recorder: Recorder,
    ) -> ReplyReceiver {
        ReplyReceiver {
            tuning: Some(connection.load.tuning()),
            batch: Batch::new(RECEIVE_BYTES, 1),
            reader: BlockReader::default(),
            is_looped: false,
            closed_at: None,
            over_since: None,
            fault: None,
            probes: OwnProbes::new(connection, conductor, recorder),
        }
    }

    /// Makes this the receiver of a loop: the load returns, and counts here.
    pub(crate) fn looped(mut self) -> ReplyReceiver {
        self.probes.recorder.watch_idle(self.probes.connection.state.window.clone());
        ReplyReceiver { is_looped: true, ..self }
    }

    fn has_ended(&mut self, now: Time) -> bool {
        let LoadConnection { state, load_probes, load, .. } = &self.probes.connection;
        if !state.is_over() {
            return false;
        }
        let since = *self.over_since.get_or_insert(now);
        // A link that was silent for the timeout before the end brings no reply.
        let is_silent = now > since + load.timeout || state.is_stalled(now, load.timeout);
        self.closed_at.is_some() || load_probes.have_all_replies() || is_silent
    }
}

impl Party for ReplyReceiver {
    fn next_step(&mut self, now: Time) -> Step<'_> {
        if let Some(tuning) = self.tuning.take() {
            return Step::Tune(tuning);
        }
        let due = self.probes.advance(now);
        if let Some(fault) = self.fault.take() {
            return Step::Fail(fault);
        }
        if self.has_ended(now) {
            return Step::Done;
        }
        if let Some(closed_at) = self.closed_at {
            return self.probes.connection.closed_step(closed_at, now);
        }
        let until = if self.over_since.is_some() { now + POLL_INTERVAL } else { due };
        Step::Receive { into: &mut self.batch, until }
    }

    fn on_sent(&mut self, _bytes: usize, _at: Time) {}

    fn on_received(&mut self, now: Time) {
        let OwnProbes { connection, recorder, received_bytes, .. } = &mut self.probes;
        for chunk in self.batch.messages() {
            let read = self.reader.push(chunk, |note| match note {
                BlockNote::Probe(number) => connection.load_probes.record_reply(number, now),
                BlockNote::Received(bytes) if bytes > *received_bytes => {
                    let more = bytes - std::mem::replace(received_bytes, bytes);
                    connection.state.add_moved_bytes(more, now);
                }
                BlockNote::Received(_) => {}
            });
            self.fault = read.err().or(self.fault.take());
            if self.is_looped && connection.is_running() && !connection.state.is_over() {
                recorder.counts.delivered_bytes += chunk.len() as u64;
                connection.state.add_moved_bytes(chunk.len() as u64, now);
            }
        }
    }

    fn on_timeout(&mut self, _now: Time) {}

    fn on_closed(&mut self, now: Time) -> Result<(), Fault> {
        self.closed_at = Some(now);
        Ok(())
    }

    fn on_ended(&mut self, _cost: PartyCost) {
        self.probes.connection.state.end();
    }
}

impl RecordingParty for ReplyReceiver {
    fn recorder(&self) -> &Recorder {
        &self.probes.recorder
    }

    fn into_recorder(self: Box<Self>) -> Recorder {
        self.probes.into_recorder()
    }
}

/// Sending half of a connection that receives the load: sends the probes.
pub(crate) struct ProbeSender {
    probes: OwnProbes,
    tuning: Option<Tuning>,
    header: [u8; HEADER_BYTES],
    /// Number of bytes of the header that are still to be sent.
    bytes_left: usize,
    next_probe: Time,
}

impl ProbeSender {
    /// Sender of probes; with a conductor on the first connection.
    pub fn new(connection: LoadConnection, conductor: Option<Conductor>, recorder: Recorder) -> ProbeSender {
        ProbeSender {
            tuning: Some(connection.load.tuning()),
            header: [0; HEADER_BYTES],
            bytes_left: 0,
            next_probe: Time(0),
            probes: OwnProbes::new(connection, conductor, recorder),
        }
    }
}

impl Party for ProbeSender {
    fn next_step(&mut self, now: Time) -> Step<'_> {
        if let Some(tuning) = self.tuning.take() {
            return Step::Tune(tuning);
        }
        let due = self.probes.advance(now);
        let connection = &self.probes.connection;
        if connection.state.is_over() {
            return Step::Done;
        }
        if self.bytes_left == 0 {
            if !connection.is_running() {
                return Step::Sleep(due.min(now + POLL_INTERVAL));
            }
            if now < self.next_probe {
                return Step::Sleep(due.min(self.next_probe).min(now + POLL_INTERVAL));
            }
            self.next_probe = now + connection.probe_interval;
            let Some(number) = connection.load_probes.next_number() else {
                return Step::Sleep(due.min(self.next_probe));
            };
            connection.load_probes.record_sent(number, now);
            self.header = BlockHeader::alone(number).encode();
            self.bytes_left = HEADER_BYTES;
        }
        let rest = &self.header[HEADER_BYTES - self.bytes_left..];
        Step::Send { bytes: rest, message: rest.len() }
    }

    fn on_sent(&mut self, bytes: usize, _at: Time) {
        self.bytes_left -= bytes;
    }

    fn on_received(&mut self, _now: Time) {}

    fn on_timeout(&mut self, _now: Time) {}

    fn on_ended(&mut self, _cost: PartyCost) {
        self.probes.connection.state.end();
    }
}

impl RecordingParty for ProbeSender {
    fn recorder(&self) -> &Recorder {
        &self.probes.recorder
    }

    fn into_recorder(self: Box<Self>) -> Recorder {
        self.probes.into_recorder()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(3);

    fn receiver(running: u32, index: u32) -> ReplyReceiver {
        let state = Arc::<LoadState>::default();
        state.begin(Time(0));
        state.running_connections.store(running, std::sync::atomic::Ordering::Relaxed);
        let load = Load { timeout: TIMEOUT, ..Load::endless(16_384) };
        let load_probes = Arc::default();
        let connection = LoadConnection { state, load_probes, index, probe_interval: TIMEOUT, load };
        let mut receiver = ReplyReceiver::new(connection, None, Recorder::for_counting());
        assert!(matches!(receiver.next_step(Time(0)), Step::Tune(_)));
        receiver
    }

    #[test]
    fn a_connection_that_is_closed_before_its_load_says_so() {
        let mut idle = receiver(1, 1);
        idle.on_closed(Time(1)).unwrap();
        assert!(matches!(idle.next_step(Time(1)), Step::Sleep(_)), "others may be closed as well");
        let later = Time(1) + ALL_CLOSED_TIME;
        let Step::Fail(Fault::EndedEarly(why)) = idle.next_step(later) else { panic!("it is closed") };
        assert_eq!(why, CLOSED_WHILE_IDLE);
        let mut with_all = receiver(1, 1);
        with_all.on_closed(Time(1)).unwrap();
        assert!(matches!(with_all.next_step(Time(1)), Step::Sleep(_)));
        with_all.probes.connection.state.end();
        assert!(matches!(with_all.next_step(later), Step::Done), "the server has ended");
        let mut running = receiver(2, 1);
        running.on_closed(Time(1)).unwrap();
        assert!(matches!(running.next_step(Time(1)), Step::Fail(Fault::Closed)));
    }

    #[test]
    fn all_connections_that_carry_the_load_stall_with_it() {
        let seconds = |seconds: u64| Time(1) + Duration::from_secs(seconds);
        let ends = [0, 1, 2].map(|index| {
            let connection = receiver(2, index).probes.connection;
            connection.state.add_moved_bytes(1, seconds(1));
            let mut sender = LoadSender::new(connection.clone(), Recorder::for_counting());
            let mut receiver = LoadReceiver::new(connection.clone(), Recorder::for_counting());
            for party in [&mut sender as &mut dyn Party, &mut receiver] {
                assert!(matches!(party.next_step(seconds(1)), Step::Tune(_)));
            }
            // Another connection noticed it first.
            connection.state.end();
            let steps = [sender.next_step(seconds(5)), receiver.next_step(seconds(5))];
            steps.map(|step| matches!(step, Step::Fail(Fault::TimedOut)))
        });
        assert_eq!(ends, [[true; 2], [true; 2], [false; 2]]);
    }

    #[test]
    fn replies_of_a_silent_link_are_not_awaited() {
        let seconds = |seconds: u64| Time(1) + Duration::from_secs(seconds);
        // The link was silent for the timeout, or moved data until the end.
        for (last_moved, done_at) in [(0, 4), (4, 8)] {
            let mut receiver = receiver(1, 0);
            let connection = receiver.probes.connection.clone();
            let number = connection.load_probes.next_number().unwrap();
            connection.load_probes.record_sent(number, seconds(0));
            connection.state.add_moved_bytes(1, seconds(last_moved));
            connection.state.end();
            let ended = (4..20).find(|&second| matches!(receiver.next_step(seconds(second)), Step::Done));
            assert_eq!(ended, Some(done_at));
        }
    }
}
