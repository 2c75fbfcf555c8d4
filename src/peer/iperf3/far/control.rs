//! The server's control connection of one test: asks for parameters and streams, waits for the client to say the end, and
//! exchanges results.

use std::sync::Arc;
use std::time::Duration;

use super::{FarTest, INTRODUCTION, LOOK, Registry};
use crate::clock::Time;
use crate::host::cpu;
use crate::link::Fault;
use crate::link::party::{Party, Standing, Step};
use crate::peer::iperf3::data::Ended;
use crate::peer::iperf3::talk::Talk;
use crate::peer::iperf3::wire::{self, Code, Cookie, Counted, Parameters, Results, State};
use crate::peer::leash::{self, GRACE};

/// While streams run, how often it looks whether one has failed.
const GLANCE: Duration = Duration::from_millis(100);

/// Streams that are told to end have done so by then, or are not waited for.
const ENDING: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Waits for the parameters.
    Asking,
    /// Waits until no other test of that host opens streams of datagrams.
    Queueing,
    Opening,
    Running,
    /// The client has said the end; waits for senders.
    Stopping,
    /// Waits for the client's results.
    Hearing,
    /// Waits for receivers that take what is still on its way.
    Draining,
    /// Waits for the client's last word.
    Parting,
    Over,
}

pub struct Control {
    registry: Arc<Registry>,
    /// None if there was no place for it.
    test: Option<Arc<FarTest>>,
    /// Congestion control of the connections, for the results.
    congestion: Option<String>,
    talk: Talk,
    stage: Stage,
    since: Option<Time>,
    /// Streams that have arrived so far.
    arrived: usize,
    began: Option<Time>,
    stopped: Option<Time>,
}

impl Drop for Control {
    /// A test lives as long as its control connection.
    fn drop(&mut self) {
        if let Some(test) = &self.test {
            self.registry.close(test);
        }
    }
}

impl Control {
    pub fn new(registry: &Arc<Registry>, cookie: Cookie, from: &str) -> Control {
        let mut talk = Talk::new();
        let test = registry.open(cookie, from);
        let (first, stage) = match test {
            Some(_) => (State::ParameterExchange, Stage::Asking),
            None => (State::AccessDenied, Stage::Over),
        };
        talk.say(&[first as u8]);
        Control {
            registry: registry.clone(),
            test,
            congestion: None,
            talk,
            stage,
            since: None,
            arrived: 0,
            began: None,
            stopped: None,
        }
    }

    pub fn with_congestion(mut self, congestion: Option<String>) -> Control {
        self.congestion = congestion;
        self
    }

    fn enter(&mut self, stage: Stage) {
        (self.stage, self.since) = (stage, None);
    }

    /// Says why not, and closes.
    fn refuse(&mut self, code: Code) {
        self.talk.say(&wire::error(code));
        self.over();
    }

    fn over(&mut self) {
        if let Some(test) = &self.test {
            test.test.break_off();
        }
        self.enter(Stage::Over);
    }

    /// Goes on as far as what was heard allows.
    fn understand(&mut self, now: Time) {
        let heard = match self.stage {
            Stage::Asking => self.hear_parameters(),
            Stage::Hearing => self.hear_results(),
            _ => {
                self.hear_state(now);
                Ok(())
            }
        };
        if let Err(code) = heard {
            self.refuse(code);
        }
    }

    fn hear_parameters(&mut self) -> Result<(), Code> {
        let object = self.talk.object(wire::LONGEST_PARAMETERS).map_err(|_| Code::Parameters)?;
        let (Some(object), Some(test)) = (object, self.test.clone()) else { return Ok(()) };
        let parameters = Parameters::read(&object)?;
        self.grant(&parameters)?;
        // Said once: this stage does not come again.
        let _ = test.parameters.set(parameters);
        self.enter(Stage::Queueing);
        Ok(())
    }

    /// Holds the parameters against the server's limits.
    fn grant(&self, parameters: &Parameters) -> Result<(), Code> {
        let (facts, limits) = (&self.registry.facts, &self.registry.facts.limits);
        let rate = parameters.bits_per_second * parameters.streams() as f64;
        match () {
            // There is no word for a token in this protocol.
            () if facts.token.is_some() => Err(Code::Authorisation),
            () if parameters.streams() > limits.flows as usize => Err(Code::Streams),
            () if parameters.length > limits.message_bytes => {
                Err(if parameters.udp { Code::Datagram } else { Code::Block })
            }
            () if parameters.time_s.saturating_add(parameters.omit_s) > limits.duration_s => {
                Err(parameters.code_of_duration(Code::ServerDuration))
            }
            () if limits.bit_rate.is_some_and(|most| rate > most) => Err(Code::Rate),
            () if parameters.server_cpu.is_some_and(|cpu| !cpu::current_affinity().contains(&cpu)) => {
                Err(Code::Processor)
            }
            () => Ok(()),
        }
    }

    fn hear_results(&mut self) -> Result<(), Code> {
        let object = self.talk.object(wire::LONGEST_RESULTS_OF_CLIENTS).map_err(|_| Code::Results)?;
        let (Some(object), Some(test)) = (object, self.test.clone()) else { return Ok(()) };
        let results = Results::read(&object, test.streams()).map_err(|_| Code::Results)?;
        // Where a beginning is left out, each end left out what it saw in its own time.
        if test.parameters.get().is_some_and(|parameters| parameters.omit_s == 0) {
            test.test.expect(results.streams.iter().map(|stream| stream.bytes).collect());
        }
        self.enter(Stage::Draining);
        Ok(())
    }

    fn hear_state(&mut self, now: Time) {
        let Some(byte) = self.talk.byte() else { return };
        if let (Some(State::TestEnd), Stage::Running, Some(test)) =
            (State::read(byte), self.stage, &self.test)
        {
            test.test.end();
            self.stopped = Some(now);
            self.enter(Stage::Stopping);
        } else {
            // It has said its last word, leaves early, or is out of step.
            self.over();
        }
    }

    /// What time alone, or another connection, brings about.
    fn look(&mut self, now: Time) {
        let Some(test) = self.test.clone() else { return };
        // Each stream may take its time to arrive, not all of them together.
        let arrived = test.arrived().len();
        if std::mem::replace(&mut self.arrived, arrived) != arrived {
            self.since = None;
        }
        let waited = now.since(*self.since.get_or_insert(now));
        match self.stage {
            Stage::Queueing if self.registry.may_wait(&test) => {
                self.talk.say(&[State::CreateStreams as u8]);
                self.enter(Stage::Opening);
            }
            Stage::Opening if test.start() => {
                self.talk.say(&[State::TestStart as u8, State::TestRunning as u8]);
                self.began = Some(now);
                self.enter(Stage::Running);
            }
            Stage::Queueing | Stage::Opening if waited >= INTRODUCTION => self.refuse(Code::StreamAccept),
            Stage::Running if waited >= self.longest(&test) => self.refuse(too_long(&test)),
            Stage::Running => {
                if let Some(fault) = test.test.fault() {
                    self.refuse(code_of(&fault, &test));
                }
            }
            Stage::Stopping if test.test.senders() == 0 || waited >= ENDING => {
                self.talk.say(&[State::ExchangeResults as u8]);
                self.enter(Stage::Hearing);
                self.understand(now);
            }
            Stage::Draining if test.test.receivers() == 0 || waited >= ENDING => {
                self.talk.say(&wire::framed(&self.results(&test).write()));
                self.talk.say(&[State::DisplayResults as u8]);
                self.enter(Stage::Parting);
            }
            _ => {}
        }
    }

    fn longest(&self, test: &FarTest) -> Duration {
        let planned = test.parameters.get().filter(|parameters| parameters.time_s > 0);
        let limit = self.registry.facts.limits.duration_s;
        let planned = planned.map(|parameters| parameters.time_s.saturating_add(parameters.omit_s));
        Duration::from_secs(planned.map_or(limit, |planned| planned.min(limit))).saturating_add(GRACE)
    }

    /// What this end counted.
    fn results(&self, test: &FarTest) -> Results {
        let Some(parameters) = test.parameters.get() else { return Results::default() };
        let ended = test.test.ended(parameters.streams());
        let omit = Duration::from_secs(parameters.omit_s);
        let begin = self.began.unwrap_or(Time(0)) + omit;
        let end = ended.iter().filter_map(|ended| ended.last).chain(self.stopped).max().unwrap_or(begin);
        let seconds = end.since(begin).as_secs_f64();
        let cpu: f64 = ended.iter().map(|ended| ended.cpu_seconds).sum();
        let counted = |ended: &Ended| Counted {
            bytes: ended.bytes,
            retransmits: ended.retransmits,
            jitter_s: ended.jitter_s,
            lost: ended.missing,
            packets: ended.packets,
            omitted: Some(ended.omitted),
            seconds,
        };
        let sends = parameters.reverse || parameters.bidirectional;
        Results {
            cpu_percent: if seconds > 0.0 { 100.0 * cpu / seconds } else { 0.0 },
            has_retransmits: sends.then(|| ended.iter().any(|ended| ended.retransmits.is_some())),
            congestion: self.congestion.clone().filter(|_| !parameters.udp),
            streams: ended.iter().map(counted).collect(),
            text: parameters.server_output.then(|| text(parameters, &ended, seconds)),
        }
    }
}

fn too_long(test: &FarTest) -> Code {
    let parameters = test.parameters.get();
    parameters.map_or(Code::Duration, |parameters| parameters.code_of_duration(Code::DurationExpired))
}

/// iperf3's number for why a stream ended early.
fn code_of(fault: &str, test: &FarTest) -> Code {
    match fault {
        leash::TOO_MUCH => Code::Rate,
        leash::TOO_LONG => too_long(test),
        leash::TOO_SILENT => Code::Silent,
        _ => Code::StreamRead,
    }
}

/// What a client shows as the server's output, one line for each stream.
fn text(parameters: &Parameters, ended: &[Ended], seconds: f64) -> String {
    let mut text = format!("{}\n", crate::run::TOOL);
    for (number, ended) in ended.iter().enumerate() {
        let does = if parameters.is_outward(number) { "received" } else { "sent" };
        let id = wire::stream_id(number);
        text += &format!("[{id:3}] 0.00-{seconds:.2} s  {} bytes {does}\n", ended.bytes);
    }
    text
}

impl Party for Control {
    fn next(&mut self, now: Time) -> Step<'_> {
        self.look(now);
        if !self.talk.is_said() {
            return self.talk.step(now);
        }
        let since = *self.since.get_or_insert(now);
        match self.stage {
            Stage::Over => Step::Done,
            Stage::Asking | Stage::Hearing | Stage::Parting => self.talk.step(since + INTRODUCTION),
            Stage::Running => self.talk.step(now + GLANCE),
            _ => self.talk.step(now + LOOK),
        }
    }

    fn standing(&self) -> Standing {
        match self.stage {
            Stage::Asking => Standing::Stranger,
            // While streams run nothing is said here, and each stage has its own end.
            _ => Standing::Vouched,
        }
    }

    fn sent(&mut self, bytes: usize, _at: Time) {
        self.talk.sent(bytes);
    }

    fn received(&mut self, now: Time) {
        match self.talk.received() {
            Ok(()) => self.understand(now),
            Err(_) => self.over(),
        }
    }

    fn farewell(&mut self) -> &'static [u8] {
        const TERMINATES: [u8; 1] = [State::ServerTerminates as u8];
        // In the middle of a word nothing else can be said.
        if self.stage != Stage::Over && self.talk.is_said() { &TERMINATES } else { &[] }
    }

    fn timed_out(&mut self, _now: Time) {
        match self.stage {
            Stage::Asking | Stage::Hearing => self.refuse(Code::Silent),
            Stage::Parting => self.over(),
            _ => {}
        }
    }

    fn closed(&mut self, _now: Time) -> Result<(), Fault> {
        self.over();
        // Nobody hears the rest.
        self.talk = Talk::new();
        Ok(())
    }
}
