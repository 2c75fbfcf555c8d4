//! The server's control connection of one test: requests parameters and streams, waits for the client's end state, and
//! sends and receives results.

use std::sync::Arc;
use std::time::Duration;

use super::{GRACE_PERIOD, HANDSHAKE_TIMEOUT, POLL_INTERVAL, ServerTest, TestRegistry};
use crate::host::cpu;
use crate::link::Fault;
use crate::link::party::{ClientTrust, Party, Step, StopReason};
use crate::protocol::iperf3::control_channel::ControlChannel;
use crate::protocol::iperf3::data::StreamResult;
use crate::protocol::iperf3::wire::{
    self, ControlState, Cookie, ErrorCode, Parameters, StreamCounts, TestResults,
};
use linkgauge_model::clock::Time;

/// Interval between checks for failed streams while they run.
const RUNNING_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Maximum wait for streams to end after the end state.
const STREAM_END_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServerStage {
    /// Waits for the parameters.
    AwaitingParameters,
    /// Waits until no other test of that host opens streams of datagrams.
    Queued,
    OpeningStreams,
    Running,
    /// The client has sent the end state; waits for senders.
    AwaitingSenders,
    /// Waits for the client's results.
    AwaitingResults,
    /// Waits for receivers to read the data in transit.
    AwaitingReceivers,
    /// Waits for the client's final state.
    AwaitingDone,
    Finished,
}

pub(crate) struct ServerControl {
    registry: Arc<TestRegistry>,
    /// `None` if the server was full.
    test: Option<Arc<ServerTest>>,
    /// Congestion control of the connections, for the results.
    congestion_control: Option<String>,
    channel: ControlChannel,
    stage: ServerStage,
    stage_since: Option<Time>,
    /// Streams that have arrived so far.
    arrived_streams: usize,
    began_at: Option<Time>,
    stopped_at: Option<Time>,
    refused: Option<&'static str>,
}

impl Drop for ServerControl {
    /// A test lives as long as its control connection.
    fn drop(&mut self) {
        if let Some(test) = &self.test {
            self.registry.close_test(test);
        }
    }
}

impl ServerControl {
    pub fn new(registry: &Arc<TestRegistry>, cookie: Cookie, from: &str) -> ServerControl {
        let mut channel = ControlChannel::new();
        let test = registry.open_test(cookie, from);
        let (first, stage) = match test {
            Some(_) => (ControlState::ParameterExchange, ServerStage::AwaitingParameters),
            None => (ControlState::AccessDenied, ServerStage::Finished),
        };
        channel.queue(&[first as u8]);
        ServerControl {
            registry: registry.clone(),
            test,
            congestion_control: None,
            channel,
            stage,
            stage_since: None,
            arrived_streams: 0,
            began_at: None,
            stopped_at: None,
            refused: (stage == ServerStage::Finished)
                .then_some("all sessions that this server allows are open"),
        }
    }

    pub(crate) fn with_congestion_control(mut self, congestion: Option<String>) -> ServerControl {
        self.congestion_control = congestion;
        self
    }

    fn enter_stage(&mut self, stage: ServerStage) {
        (self.stage, self.stage_since) = (stage, None);
    }

    /// Sends the reason for a refusal and closes.
    fn refuse(&mut self, code: ErrorCode) {
        self.refused = Some(code.reason());
        self.channel.queue(&wire::encode_error(code));
        self.finish();
    }

    pub fn finish(&mut self) {
        if let Some(test) = &self.test {
            test.state.abort();
        }
        self.enter_stage(ServerStage::Finished);
    }

    /// Processes all available input.
    fn process_input(&mut self, now: Time) {
        let outcome = match self.stage {
            ServerStage::AwaitingParameters => self.read_parameters(),
            ServerStage::AwaitingResults => self.read_results(),
            _ => {
                self.read_state(now);
                Ok(())
            }
        };
        if let Err(code) = outcome {
            self.refuse(code);
        }
    }

    fn read_parameters(&mut self) -> Result<(), ErrorCode> {
        let object =
            self.channel.take_object(wire::MAX_PARAMETERS_BYTES).map_err(|_| ErrorCode::Parameters)?;
        let (Some(object), Some(test)) = (object, self.test.clone()) else { return Ok(()) };
        let parameters = Parameters::from_json(&object)?;
        self.check_limits(&parameters)?;
        // Set once: this stage occurs only once.
        let _ = test.parameters.set(parameters);
        self.enter_stage(ServerStage::Queued);
        Ok(())
    }

    /// Checks the parameters against the server's limits.
    fn check_limits(&self, parameters: &Parameters) -> Result<(), ErrorCode> {
        let (facts, limits) = (&self.registry.config, &self.registry.config.limits);
        let rate = parameters.bits_per_second * parameters.stream_count() as f64;
        match () {
            // The protocol has no field for a token.
            () if facts.token.is_some() => Err(ErrorCode::Authorisation),
            () if parameters.stream_count() > limits.flows as usize => Err(ErrorCode::Streams),
            () if parameters.stream_count() > self.registry.max_streams() => Err(ErrorCode::Streams),
            () if parameters.length > limits.message_bytes => {
                Err(if parameters.udp { ErrorCode::Datagram } else { ErrorCode::Block })
            }
            () if parameters.time_s.saturating_add(parameters.omit_s) > limits.duration_s => {
                Err(parameters.duration_code(ErrorCode::ServerDuration))
            }
            () if limits.bit_rate.is_some_and(|most| rate > most) => Err(ErrorCode::Rate),
            () if parameters.server_cpu.is_some_and(|cpu| !cpu::current_affinity().contains(&cpu)) => {
                Err(ErrorCode::Processor)
            }
            () => Ok(()),
        }
    }

    fn read_results(&mut self) -> Result<(), ErrorCode> {
        let object =
            self.channel.take_object(wire::MAX_CLIENT_RESULTS_BYTES).map_err(|_| ErrorCode::Results)?;
        let (Some(object), Some(test)) = (object, self.test.clone()) else { return Ok(()) };
        let results = TestResults::from_json(&object, test.stream_count()).map_err(|_| ErrorCode::Results)?;
        // With an omitted start, client and server omit by their own clocks, so their counts differ.
        let counts_all = test.parameters.get().is_some_and(|parameters| parameters.omit_s == 0);
        let sent = || results.streams.iter().map(|stream| stream.bytes).collect();
        test.state.set_expected_bytes(counts_all.then(sent));
        self.enter_stage(ServerStage::AwaitingReceivers);
        Ok(())
    }

    fn read_state(&mut self, now: Time) {
        let Some(byte) = self.channel.take_byte() else { return };
        if let (Some(ControlState::TestEnd), ServerStage::Running, Some(test)) =
            (ControlState::from_byte(byte), self.stage, &self.test)
        {
            test.state.signal_end();
            self.stopped_at = Some(now);
            self.enter_stage(ServerStage::AwaitingSenders);
        } else {
            // The final state, an early end, or a protocol violation.
            self.finish();
        }
    }

    /// Handles events of the clock and of other connections.
    fn poll(&mut self, now: Time) {
        let Some(test) = self.test.clone() else { return };
        // The time limit applies to each stream, not to all of them together.
        let arrived = test.lock_arrivals().len();
        if std::mem::replace(&mut self.arrived_streams, arrived) != arrived {
            self.stage_since = None;
        }
        let waited = now.since(*self.stage_since.get_or_insert(now));
        match self.stage {
            ServerStage::Queued if self.registry.try_await_streams(&test) => {
                self.channel.queue(&[ControlState::CreateStreams as u8]);
                self.enter_stage(ServerStage::OpeningStreams);
            }
            ServerStage::OpeningStreams if test.try_start() => {
                self.channel.queue(&[ControlState::TestStart as u8, ControlState::TestRunning as u8]);
                self.began_at = Some(now);
                self.enter_stage(ServerStage::Running);
            }
            ServerStage::Queued | ServerStage::OpeningStreams
                if waited >= self.registry.stream_timeout(&test) =>
            {
                self.refuse(ErrorCode::StreamAccept)
            }
            ServerStage::Running if waited >= self.max_duration(&test) => self.refuse(duration_code(&test)),
            ServerStage::Running => {
                if let Some(stopped) = test.state.fault() {
                    self.refuse(error_code(stopped, &test));
                }
            }
            ServerStage::AwaitingSenders if test.state.senders() == 0 || waited >= STREAM_END_TIMEOUT => {
                self.channel.queue(&[ControlState::ExchangeResults as u8]);
                self.enter_stage(ServerStage::AwaitingResults);
                self.process_input(now);
            }
            ServerStage::AwaitingReceivers if test.state.receivers() == 0 || waited >= STREAM_END_TIMEOUT => {
                self.channel.queue(&wire::encode_framed(&self.collect_results(&test).to_json()));
                self.channel.queue(&[ControlState::DisplayResults as u8]);
                self.enter_stage(ServerStage::AwaitingDone);
            }
            _ => {}
        }
    }

    fn max_duration(&self, test: &ServerTest) -> Duration {
        let planned = test.parameters.get().filter(|parameters| parameters.time_s > 0);
        let limit = self.registry.config.limits.duration_s;
        let planned = planned.map(|parameters| parameters.time_s.saturating_add(parameters.omit_s));
        Duration::from_secs(planned.map_or(limit, |planned| planned.min(limit))).saturating_add(GRACE_PERIOD)
    }

    /// The counts of this server.
    fn collect_results(&self, test: &ServerTest) -> TestResults {
        let Some(parameters) = test.parameters.get() else { return TestResults::default() };
        let ended = test.state.stream_results(parameters.stream_count());
        let omit = Duration::from_secs(parameters.omit_s);
        let began = self.began_at.unwrap_or(Time(0));
        let begin = began + omit;
        let end =
            ended.iter().filter_map(|ended| ended.last_instant).chain(self.stopped_at).max().unwrap_or(begin);
        let seconds = end.since(begin).as_secs_f64();
        // The CPU time includes the omitted start.
        let whole = end.since(began).as_secs_f64();
        let cpu: f64 = ended.iter().map(|ended| ended.cpu_seconds).sum();
        let counted = |ended: &StreamResult| StreamCounts {
            bytes: ended.bytes,
            retransmits: ended.retransmits,
            jitter_s: ended.jitter_s,
            lost: ended.missing_packets,
            packets: ended.packets,
            omitted: Some(ended.omitted),
            seconds,
        };
        let sends = parameters.reverse || parameters.bidirectional;
        TestResults {
            cpu_percent: if whole > 0.0 { 100.0 * cpu / whole } else { 0.0 },
            has_retransmits: sends.then(|| ended.iter().any(|ended| ended.retransmits.is_some())),
            congestion_control: self.congestion_control.clone().filter(|_| !parameters.udp),
            streams: ended.iter().map(counted).collect(),
            server_output: parameters.server_output.then(|| output_text(parameters, &ended, seconds)),
        }
    }
}

fn duration_code(test: &ServerTest) -> ErrorCode {
    let parameters = test.parameters.get();
    parameters.map_or(ErrorCode::Duration, |parameters| parameters.duration_code(ErrorCode::DurationExpired))
}

/// iperf3's error number for a stream that ended early.
fn error_code(stopped: Option<StopReason>, test: &ServerTest) -> ErrorCode {
    match stopped {
        Some(StopReason::TooLong) => duration_code(test),
        Some(StopReason::Idle) => ErrorCode::Silent,
        _ => ErrorCode::StreamRead,
    }
}

/// The server output that a client prints, one line for each stream.
fn output_text(parameters: &Parameters, ended: &[StreamResult], seconds: f64) -> String {
    let mut text = format!("{}\n", linkgauge_model::run::TOOL);
    for (number, ended) in ended.iter().enumerate() {
        let does = if parameters.is_upload(number) { "received" } else { "sent" };
        let id = wire::stream_id(number);
        text += &format!("[{id:3}] 0.00-{seconds:.2} s  {} bytes {does}\n", ended.bytes);
    }
    text
}

impl Party for ServerControl {
    fn next_step(&mut self, now: Time) -> Step<'_> {
        self.poll(now);
        if !self.channel.is_flushed() {
            return self.channel.step(now);
        }
        let since = *self.stage_since.get_or_insert(now);
        match self.stage {
            ServerStage::Finished => Step::Done,
            ServerStage::AwaitingParameters | ServerStage::AwaitingResults | ServerStage::AwaitingDone => {
                self.channel.step(since + HANDSHAKE_TIMEOUT)
            }
            ServerStage::Running => self.channel.step(now + RUNNING_POLL_INTERVAL),
            _ => self.channel.step(now + POLL_INTERVAL),
        }
    }

    fn client_trust(&self) -> ClientTrust {
        match self.stage {
            ServerStage::AwaitingParameters => ClientTrust::Unidentified,
            // Nothing is sent here while streams run, and each stage has its own time limit.
            _ => ClientTrust::Exempt,
        }
    }

    fn refusal(&self) -> Option<&str> {
        self.refused
    }

    fn on_sent(&mut self, bytes: usize, _at: Time) {
        self.channel.mark_sent(bytes);
    }

    fn on_received(&mut self, now: Time) {
        match self.channel.read_batch() {
            Ok(()) => self.process_input(now),
            Err(_) => self.finish(),
        }
    }

    fn closing_message(&mut self) -> &'static [u8] {
        const TERMINATES: [u8; 1] = [ControlState::ServerTerminates as u8];
        // A partly sent message cannot be interrupted by another.
        if self.stage != ServerStage::Finished && self.channel.is_flushed() { &TERMINATES } else { &[] }
    }

    fn on_timeout(&mut self, _now: Time) {
        match self.stage {
            ServerStage::AwaitingParameters | ServerStage::AwaitingResults => self.refuse(ErrorCode::Silent),
            ServerStage::AwaitingDone => self.finish(),
            _ => {}
        }
    }

    fn on_closed(&mut self, _now: Time) -> Result<(), Fault> {
        self.finish();
        // The rest is dropped.
        self.channel = ControlChannel::new();
        Ok(())
    }
}
