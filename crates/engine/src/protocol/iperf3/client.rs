//! The client's control connection: sends parameters, signals the end, sends and receives results. A party that is
//! driven up to each point at which the session must act.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::control_channel::ControlChannel;
use super::data::TestState;
use super::wire::{self, ControlState, Cookie, Parameters, TestResults};
use crate::link::party::{Party, PartyCost, Step};
use crate::link::{Fault, Framing};
use crate::workload::RecordingParty;
use linkgauge_model::clock::Time;
use linkgauge_model::sample::Recorder;

/// Error of a server that closes before the parameters were sent.
pub(super) const CLOSED_EARLY: &str =
    "the server closed the connection: check that it is iperf3, and not busy";

/// Servers since 3.13 close silently after a wrong or missing password.
const CLOSED_AFTER_PARAMETERS: &str = "the server closed the connection after the parameters: if it requires a user name and a \
                       password, use one without, because linkgauge has none";

/// Error for a server that does not support both directions at once.
pub(super) const NO_BIDIRECTIONAL: &str =
    "iperf3 before 3.7 cannot do both directions at once: use --direction send,receive";

/// Interval between checks whether the streams have ended, and the interval while they cannot have ended.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
const RUNNING_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Time for the remote program to read a stream that its system has fully acknowledged. It stops counting at the end
/// state.
const STREAM_READ_DELAY: Duration = Duration::from_millis(100);

/// Transit time allowed for datagrams, which have no acknowledgements.
const DATAGRAM_FLIGHT_DELAY: Duration = Duration::from_millis(300);

/// Time for which the receivers of a server may continue after the client's end state, before the server reports.
/// linkgauge servers use 5 s, those of iperf3 stop at once. The results may take that time plus a timeout.
const STREAM_END_TIMEOUT: Duration = Duration::from_secs(5);

/// Time to wait for the server after a failure of a stream: a link that has been silent for a timeout has hardly a reply.
const LOST_LINK_REPLY_TIMEOUT: Duration = Duration::from_secs(1);

/// Payload is recent for this time.
const RECENT_PAYLOAD: Duration = Duration::from_secs(1);

/// Bytes that the system of a server and the queue of the link may hold of one stream when the test ends.
const MAX_QUEUED_BYTES: u64 = 16 << 20;

/// Error of a server that goes on sending after the end of the test.
const NEVER_STOPS: &str = "the server still sends 5 s after the end of the test: its download has no end, so restart that server, or use \
                           another version of it";

/// Error of a server that does so and reports nothing: the report may also wait in a queue.
const NEVER_REPORTS: &str = "the server still sends long after the end of the test, and reports nothing: its download has no end, or the \
                             queue of the link holds many seconds. Restart that server, or try a shorter --time";

/// Error of a control connection without replies, although the streams worked.
const SILENT_CONTROL: &str = "the streams worked, but the control connection got no reply after the test: a NAT or firewall may \
                              forget idle connections. Try a shorter --time";

/// Whether all sent data has been acknowledged; `None` if the system does not report it.
pub(crate) type DrainCheck = Box<dyn FnMut() -> Option<bool> + Send>;

/// Timing of a client.
pub struct ClientPlan {
    /// Parameters for the server.
    pub parameters: Parameters,
    /// Framing of the streams: messages for UDP.
    pub framing: Framing,
    /// Timeout of each reply.
    pub reply_timeout: Duration,
    /// Receiving ends after this time, or after this payload on all streams together.
    pub max_time: Option<Duration>,
    /// The payload limit of receiving, in bytes.
    pub max_bytes: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientStage {
    /// Cookie sent; the server requests the parameters next.
    CookieSent,
    ParametersSent,
    /// The server waits for the streams.
    AwaitingStreams,
    /// The streams are being set up.
    StreamsOpening,
    StreamsOpen,
    TestStarted,
    Running,
    /// All data has been sent; waits until it has arrived.
    Draining(Time),
    /// The end state has been sent.
    EndSent,
    /// Waits for its own receivers, to report their counts.
    AwaitingReceivers,
    ResultsSent,
    ResultsReceived,
    Finished,
}

/// The control connection of a client, as a state machine.
pub struct ClientControl {
    plan: ClientPlan,
    test: Arc<TestState>,
    channel: ControlChannel,
    stage: ClientStage,
    stage_since: Option<Time>,
    began_at: Option<Time>,
    /// Payload received so far, and when it last increased.
    heard: (u64, Option<Time>),
    /// Payload received when the end state was sent.
    heard_before_end: u64,
    drain_check: DrainCheck,
    /// Time when nothing was left to send.
    settled_at: Option<Time>,
    /// Time when nothing was left to send, if the remote system had acknowledged the last byte by then.
    pub(crate) drained_at: Option<Time>,
    /// Time when the end state was sent.
    pub(crate) ended_at: Option<Time>,
    /// Results of the server, once they have arrived.
    pub results: Option<TestResults>,
    /// Congestion control of the client's streams.
    pub(crate) congestion_control: Option<String>,
    /// The datagrams of the server stopped in the middle.
    is_lost: bool,
    fault: Option<Fault>,
}

impl ClientControl {
    /// A client that begins with the cookie. `test` is the state that it shares with the streams.
    pub fn new(cookie: &Cookie, plan: ClientPlan, test: Arc<TestState>) -> ClientControl {
        let mut channel = ControlChannel::new();
        channel.queue(cookie.bytes());
        ClientControl {
            plan,
            test,
            channel,
            stage: ClientStage::CookieSent,
            stage_since: None,
            began_at: None,
            heard: (0, None),
            heard_before_end: 0,
            drain_check: Box::new(|| None),
            settled_at: None,
            drained_at: None,
            ended_at: None,
            results: None,
            congestion_control: None,
            is_lost: false,
            fault: None,
        }
    }

    /// The streams begin to enter the test. Returns whether the server was waiting for them.
    pub fn open_streams(&mut self, drained: DrainCheck) -> bool {
        let waits = self.stage == ClientStage::AwaitingStreams;
        if waits {
            self.drain_check = drained;
            self.enter_stage(ClientStage::StreamsOpening);
        }
        waits
    }

    fn enter_stage(&mut self, stage: ClientStage) {
        (self.stage, self.stage_since) = (stage, None);
    }

    fn fail(&mut self, kind: impl FnOnce(String) -> Fault, why: impl Into<String>) {
        self.fault.get_or_insert(kind(why.into()));
    }

    /// The state that must arrive next.
    fn expected_state(&self) -> Option<ControlState> {
        match self.stage {
            ClientStage::CookieSent => Some(ControlState::ParameterExchange),
            ClientStage::ParametersSent => Some(ControlState::CreateStreams),
            ClientStage::StreamsOpen => Some(ControlState::TestStart),
            ClientStage::TestStarted => Some(ControlState::TestRunning),
            ClientStage::EndSent => Some(ControlState::ExchangeResults),
            ClientStage::ResultsReceived => Some(ControlState::DisplayResults),
            _ => None,
        }
    }

    /// Processes all available input.
    fn process_input(&mut self) {
        while self.fault.is_none() {
            let before = (self.stage, self.channel.input().len());
            // No results are so long that their length begins with the error byte.
            let is_error = self.channel.input().first() == Some(&(ControlState::ServerError as u8));
            match (self.stage, self.expected_state()) {
                (ClientStage::ResultsSent, _) if !is_error => self.read_results(),
                (_, wanted) => self.read_state(wanted),
            }
            if before == (self.stage, self.channel.input().len()) {
                return;
            }
        }
    }

    fn read_state(&mut self, wanted: Option<ControlState>) {
        let Some(&first) = self.channel.input().first() else { return };
        match ControlState::from_byte(first) {
            Some(ControlState::AccessDenied) => {
                self.fail(
                    Fault::Refused,
                    "the server is busy: iperf3 runs one test at a time. Try again later",
                );
            }
            Some(ControlState::ServerTerminates) => self.fail(Fault::EndedEarly, "the server was stopped"),
            Some(ControlState::ServerError) => {
                // The error numbers may still be in transit; without them it is an error all the same.
                if let Some(error) = self.channel.input().get(1..1 + wire::ERROR_BYTES) {
                    self.fail(Fault::Refused, wire::explain_error(error));
                }
            }
            Some(state) if wanted == Some(state) => {
                self.channel.take_byte();
                self.advance();
            }
            // The server sent its state early: process it later.
            Some(_) if wanted.is_none() => {}
            _ => {
                let at_once = self.stage == ClientStage::CookieSent;
                self.fail(Fault::UnexpectedData, describe_unexpected(self.channel.input(), at_once));
            }
        }
    }

    fn advance(&mut self) {
        let next = match self.stage {
            ClientStage::CookieSent => {
                self.channel.queue(&wire::encode_framed(&self.plan.parameters.to_json()));
                ClientStage::ParametersSent
            }
            ClientStage::ParametersSent => ClientStage::AwaitingStreams,
            ClientStage::StreamsOpen => ClientStage::TestStarted,
            ClientStage::TestStarted => {
                self.test.set_running();
                ClientStage::Running
            }
            ClientStage::EndSent => ClientStage::AwaitingReceivers,
            ClientStage::ResultsReceived => {
                self.channel.queue(&[ControlState::Done as u8]);
                ClientStage::Finished
            }
            stage => stage,
        };
        self.enter_stage(next);
    }

    fn read_results(&mut self) {
        let streams = self.plan.parameters.stream_count();
        let results = self.channel.take_object(wire::MAX_RESULTS_BYTES);
        match results
            .and_then(|object| object.map(|object| TestResults::from_json(&object, streams)).transpose())
        {
            Ok(None) => {}
            Ok(Some(results)) if self.is_cut() && self.exceeds(&results) => {
                self.fail(Fault::UnexpectedData, NEVER_STOPS);
            }
            Ok(Some(results)) => {
                self.results = Some(results);
                self.enter_stage(ClientStage::ResultsReceived);
            }
            Err(error) => {
                self.fail(Fault::UnexpectedData, format!("the server's results cannot be read: {error}"));
            }
        }
    }

    /// Whether the test can end: both directions have finished.
    fn is_test_done(&mut self, now: Time) -> bool {
        let began = *self.began_at.get_or_insert(now);
        let enough = self.plan.max_time.is_some_and(|time| now.since(began) >= time)
            || self.plan.max_bytes.is_some_and(|volume| self.test.received_bytes() >= volume);
        let received = !self.receives() || enough || self.test.receivers() == 0;
        // Nothing acknowledges datagrams: that the other direction is silent before its time is over shows that the link is lost.
        let is_silent = self.receives() && self.test.receivers() == 0 && !enough;
        let is_timed = self.plan.max_time.is_some() && self.plan.max_bytes.is_none();
        self.is_lost |= is_silent && is_timed && self.plan.framing == Framing::Message;
        received && (self.test.senders() == 0 || self.is_lost)
    }

    /// Goes on once all streams are in the test. A stream that cannot enter names the reason itself.
    fn poll_streams(&mut self) {
        let streams = self.plan.parameters.stream_count();
        if self.test.ready_streams() >= streams {
            self.enter_stage(ClientStage::StreamsOpen);
            self.process_input();
        } else if self.test.senders() + self.test.receivers() < streams {
            self.test.abort();
            self.enter_stage(ClientStage::Finished);
        }
    }

    fn receives(&self) -> bool {
        self.plan.parameters.reverse || self.plan.parameters.bidirectional
    }

    /// Whether the server's system took all payload, or its payload arrived to the end.
    fn did_streams_work(&self) -> bool {
        let is_recent = |heard: Time| self.ended_at.is_some_and(|ended| ended <= heard + RECENT_PAYLOAD);
        self.drained_at.is_some() || self.heard.1.is_some_and(is_recent)
    }

    /// Whether the server still sent when the time after the end was over: then the receivers stop.
    fn is_cut(&self) -> bool {
        let sends_at = |time: Time| self.heard.1.is_some_and(|heard| heard + RECENT_PAYLOAD > time);
        self.receives() && self.ended_at.is_some_and(|ended| sends_at(ended + STREAM_END_TIMEOUT))
    }

    /// Whether more has arrived than the server had sent until the end of the test, by its report. With a warm-up each end counts from a
    /// time of its own.
    fn exceeds(&self, results: &TestResults) -> bool {
        let Parameters { omit_s, length, .. } = self.plan.parameters;
        let downloads = results.streams.iter().enumerate();
        let downloads = downloads.filter(|(number, _)| !self.plan.parameters.is_upload(*number));
        // A block that was being written may not be counted.
        let sent = downloads.map(|(_, stream)| stream.bytes.saturating_add(length.into()));
        omit_s == 0 && self.heard.0 > sent.fold(0, u64::saturating_add)
    }

    /// Whether more arrived after the end of the test than the system of the server and the queue of the link can have held.
    fn never_stops(&self) -> bool {
        let queued = match self.plan.framing {
            Framing::Stream => MAX_QUEUED_BYTES.saturating_mul(self.plan.parameters.stream_count() as u64),
            Framing::Message => 0,
        };
        self.is_cut() && self.heard.0.saturating_sub(self.heard_before_end) > queued
    }

    /// Whether the link may be lost: a stream has failed, or what was sent did not arrive in time.
    fn is_link_doubtful(&self) -> bool {
        let sends = !self.plan.parameters.reverse;
        self.is_lost
            || self.test.fault().is_some()
            || (self.ended_at.is_some() && sends && self.settled_at.is_none())
    }

    /// Handles events of the clock.
    fn poll(&mut self, now: Time) {
        if self.stage == ClientStage::StreamsOpening {
            self.poll_streams();
        }
        let received = self.test.received_bytes();
        if received != self.heard.0 {
            self.heard = (received, Some(now));
        }
        if self.stage == ClientStage::Running && self.is_test_done(now) {
            self.enter_stage(ClientStage::Draining(now));
            // The server sends on while the last datagrams of the upload travel; the rate of the download has its time by now.
            if self.plan.parameters.bidirectional && self.plan.framing == Framing::Message {
                self.test.end_load();
            }
        }
        if let ClientStage::Draining(since) = self.stage {
            let sends = !self.plan.parameters.reverse;
            let drained = if sends && self.settled_at.is_none() { (self.drain_check)() } else { None };
            match drained {
                Some(false) => {}
                drained => {
                    let settled = *self.settled_at.get_or_insert(now);
                    self.drained_at = self.drained_at.or(drained.map(|_| settled));
                }
            }
            let wait = match self.plan.framing {
                _ if !sends => Duration::ZERO,
                // The other direction would have the link to itself meanwhile.
                Framing::Stream if self.plan.parameters.bidirectional => Duration::ZERO,
                Framing::Stream => STREAM_READ_DELAY,
                Framing::Message => DATAGRAM_FLIGHT_DELAY,
            };
            let waited = self.settled_at.is_some_and(|settled| now.since(settled) >= wait);
            if waited
                || self.is_link_doubtful()
                || now.since(since) >= self.plan.reply_timeout.saturating_add(wait)
            {
                self.test.signal_end();
                (self.ended_at, self.heard_before_end) = (Some(now), received);
                self.channel.queue(&[ControlState::TestEnd as u8]);
                self.enter_stage(ClientStage::EndSent);
            }
        }
        if self.stage == ClientStage::AwaitingReceivers {
            let waited = self.ended_at.map_or(STREAM_END_TIMEOUT, |ended| now.since(ended));
            if waited >= STREAM_END_TIMEOUT && self.never_stops() {
                self.fail(Fault::UnexpectedData, NEVER_STOPS);
            } else if self.test.receivers() == 0 || waited >= STREAM_END_TIMEOUT {
                self.channel.queue(&wire::encode_framed(&self.local_results().to_json()));
                self.enter_stage(ClientStage::ResultsSent);
                self.process_input();
            }
        }
    }

    /// The counts of this client.
    fn local_results(&self) -> TestResults {
        let parameters = &self.plan.parameters;
        let ended = self.test.stream_results(parameters.stream_count());
        let seconds = |ended: &super::data::StreamResult| {
            let time = ended.first_instant.zip(ended.last_instant).map(|(first, last)| last.since(first));
            time.unwrap_or_default().as_secs_f64()
        };
        let cpu: f64 = ended.iter().map(|ended| ended.cpu_seconds).sum();
        let whole = self.began_at.zip(self.ended_at).map(|(began, ended)| ended.since(began).as_secs_f64());
        let streams = ended.iter().map(|ended| wire::StreamCounts {
            bytes: ended.bytes,
            retransmits: ended.retransmits,
            jitter_s: ended.jitter_s,
            lost: ended.missing_packets,
            packets: ended.packets,
            omitted: Some(ended.omitted),
            seconds: seconds(ended),
        });
        TestResults {
            // Including the warm-up, as the CPU time does.
            cpu_percent: whole.filter(|whole| *whole > 0.0).map_or(0.0, |whole| 100.0 * cpu / whole),
            has_retransmits: (!parameters.reverse)
                .then(|| ended.iter().any(|ended| ended.retransmits.is_some())),
            congestion_control: self.congestion_control.clone(),
            streams: streams.collect(),
            server_output: None,
        }
    }

    /// Whether the test has finished or failed.
    pub fn is_finished(&self) -> bool {
        self.stage == ClientStage::Finished
    }

    /// Deadline of the server's reply.
    fn reply_deadline(&mut self, now: Time) -> Time {
        let since = *self.stage_since.get_or_insert(now);
        let reply_timeout = self.plan.reply_timeout;
        let Some(ended) = self.ended_at else { return since + reply_timeout };
        let latest = ended + reply_timeout.saturating_add(STREAM_END_TIMEOUT);
        match self.stage {
            _ if self.is_link_doubtful() => ended + reply_timeout.min(LOST_LINK_REPLY_TIMEOUT),
            // While payload arrives, the reply is behind it. Silence before the end counts.
            ClientStage::EndSent => {
                let heard = if self.receives() { self.heard.1.or(self.began_at) } else { None };
                let least = ended + reply_timeout.min(LOST_LINK_REPLY_TIMEOUT);
                (heard.unwrap_or(ended) + reply_timeout).max(least).min(latest)
            }
            _ => latest,
        }
    }
}

/// Describes an unexpected reply in one line.
fn describe_unexpected(input: &[u8], at_once: bool) -> String {
    const SHOWN: usize = 16;
    let shown = input[..input.len().min(SHOWN)].escape_ascii();
    let more = if input.len() > SHOWN { "…" } else { "" };
    match at_once {
        true => {
            format!("the server is not iperf3, it sent '{shown}{more}': choose its protocol with --protocol")
        }
        false => format!("the server sent '{shown}{more}', which iperf3 does not send here"),
    }
}

impl Party for ClientControl {
    fn next_step(&mut self, now: Time) -> Step<'_> {
        self.poll(now);
        if let Some(fault) = self.fault.take() {
            self.test.abort();
            self.stage = ClientStage::Finished;
            return Step::Fail(fault);
        }
        if !self.channel.is_flushed() {
            return self.channel.step(now);
        }
        let until = self.reply_deadline(now);
        match self.stage {
            ClientStage::AwaitingStreams | ClientStage::Finished => Step::Done,
            ClientStage::StreamsOpening => self.channel.step(now + POLL_INTERVAL),
            ClientStage::EndSent => self.channel.step(until.min(now + RUNNING_POLL_INTERVAL)),
            ClientStage::Running => {
                let planned = self.began_at.zip(self.plan.max_time).map(|(began, time)| began + time);
                let next = planned.filter(|&end| end > now).unwrap_or(now + POLL_INTERVAL);
                self.channel.step(next.min(now + RUNNING_POLL_INTERVAL))
            }
            ClientStage::Draining(_) | ClientStage::AwaitingReceivers => {
                self.channel.step(now + POLL_INTERVAL)
            }
            _ => self.channel.step(until),
        }
    }

    fn on_sent(&mut self, bytes: usize, _at: Time) {
        self.channel.mark_sent(bytes);
    }

    fn on_received(&mut self, _now: Time) {
        match self.channel.read_batch() {
            Ok(()) => self.process_input(),
            Err(error) => {
                self.fail(Fault::UnexpectedData, format!("the server's messages cannot be read: {error}"));
            }
        }
    }

    fn on_timeout(&mut self, now: Time) {
        let is_late = now >= self.reply_deadline(now);
        match self.stage {
            ClientStage::StreamsOpening
            | ClientStage::Running
            | ClientStage::Draining(_)
            | ClientStage::AwaitingReceivers => {}
            ClientStage::EndSent if !is_late => {}
            ClientStage::CookieSent => {
                self.fail(Fault::NoReply, "no iperf3 server replied in time: choose another --protocol")
            }
            _ if self.never_stops() => self.fail(Fault::UnexpectedData, NEVER_STOPS),
            ClientStage::EndSent if self.is_cut() => self.fail(Fault::UnexpectedData, NEVER_REPORTS),
            _ if self.ended_at.is_some() && !self.is_link_doubtful() && self.did_streams_work() => {
                self.fail(Fault::NoReply, SILENT_CONTROL)
            }
            _ => self
                .fail(Fault::NoReply, "the server did not reply in time: check that it runs, and --timeout"),
        }
    }

    fn on_closed(&mut self, _now: Time) -> Result<(), Fault> {
        let error =
            self.channel.input().strip_prefix(&[ControlState::ServerError as u8]).map(wire::explain_error);
        let why = match self.stage {
            // All expected input has arrived.
            ClientStage::ResultsReceived | ClientStage::Finished => {
                self.stage = ClientStage::Finished;
                self.channel = ControlChannel::new();
                return Ok(());
            }
            ClientStage::ParametersSent => CLOSED_AFTER_PARAMETERS.to_owned(),
            ClientStage::CookieSent => CLOSED_EARLY.to_owned(),
            ClientStage::StreamsOpening | ClientStage::StreamsOpen | ClientStage::TestStarted => {
                "the server did not start the test: it may limit the rate. See its log".to_owned()
            }
            _ if self.plan.parameters.bidirectional && self.heard.1.is_none() => {
                format!("the server ended the test: it failed (see its log), or {NO_BIDIRECTIONAL}")
            }
            _ => "the control connection was closed: the server was killed, it failed, it limits the rate, or a NAT or \
                  firewall forgot the idle connection"
                .to_owned(),
        };
        match error {
            Some(error) => self.fail(Fault::Refused, error),
            None => self.fail(Fault::EndedEarly, why),
        }
        Ok(())
    }
}

/// Runs the control connection while the streams run; afterwards the session takes it back.
pub(crate) struct ControlParty {
    control: Option<ClientControl>,
    slot: ControlSlot,
    recorder: Recorder,
}

/// Holds the control connection while no thread uses it.
pub(crate) type ControlSlot = Arc<Mutex<Option<ClientControl>>>;

impl ControlParty {
    /// The party, and the slot that holds `control` after the party has ended.
    pub fn new(control: ClientControl, recorder: Recorder) -> (ControlParty, ControlSlot) {
        let home = ControlSlot::default();
        (ControlParty { control: Some(control), slot: home.clone(), recorder }, home)
    }
}

impl Party for ControlParty {
    fn next_step(&mut self, now: Time) -> Step<'_> {
        self.control.as_mut().map_or(Step::Done, |control| control.next_step(now))
    }

    fn on_sent(&mut self, bytes: usize, at: Time) {
        if let Some(control) = &mut self.control {
            control.on_sent(bytes, at);
        }
    }

    fn on_received(&mut self, now: Time) {
        if let Some(control) = &mut self.control {
            control.on_received(now);
        }
    }

    fn on_timeout(&mut self, now: Time) {
        if let Some(control) = &mut self.control {
            control.on_timeout(now);
        }
    }

    fn on_closed(&mut self, now: Time) -> Result<(), Fault> {
        self.control.as_mut().map_or(Err(Fault::Closed), |control| control.on_closed(now))
    }

    fn on_ended(&mut self, _cost: PartyCost) {
        // Also if the connection failed: nothing else ends the streams.
        self.control.iter().filter(|control| !control.is_finished()).for_each(|control| control.test.abort());
        *self.slot.lock().unwrap_or_else(PoisonError::into_inner) = self.control.take();
    }
}

impl RecordingParty for ControlParty {
    fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    fn into_recorder(self: Box<Self>) -> Recorder {
        self.recorder
    }
}
