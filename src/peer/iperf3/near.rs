//! The client's control connection: says what is wanted, says when it is over, tells and hears results. A machine like
//! any party; it is driven up to each point at which the session has something to do.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::data::Test;
use super::talk::Talk;
use super::wire::{self, Cookie, Parameters, Results, State};
use crate::clock::Time;
use crate::link::party::{Cost, Party, Step};
use crate::link::{Fault, Framing};
use crate::sample::Recorder;
use crate::workload::Measured;

/// Where nothing was agreed yet.
pub const BROKEN_OFF: &str = "the server closed the connection: is it iperf3, with room for us?";

/// Servers since 3.13 close without a word where the password is wrong or missing.
const REFUSED: &str = "the server closed the connection when it had heard the parameters: if it wants a user name and a \
                       password, use a server without, because linkgauge gives none";

pub const ONE_WAY: &str = "iperf3 before 3.7 cannot do both directions at once: use --direction send,receive";

/// How often it looks whether the streams have ended, and while they cannot have.
const LOOK: Duration = Duration::from_millis(1);
const GLANCE: Duration = Duration::from_millis(100);

/// What the far program may still have to read when its system has acknowledged all of a stream. It stops counting when
/// the end is said.
const READING: Duration = Duration::from_millis(100);

/// What may still be on its way of datagrams, which nobody acknowledges.
const ON_THE_WAY: Duration = Duration::from_millis(300);

/// After the client has said the end, the receivers of a server take what is still on its way for up to this time, and it
/// reports only then. Ours does so for 5 s, iperf3's ends at once. The whole exchange of results may take that and a time-out.
const ENDING: Duration = Duration::from_secs(5);

/// Whether all that was sent has been acknowledged; none where the system does not tell.
pub type Drained = Box<dyn FnMut() -> Option<bool> + Send>;

/// What the client wants to happen when.
pub struct Plan {
    pub parameters: Parameters,
    pub framing: Framing,
    /// For each answer.
    pub timeout: Duration,
    /// Receiving ends then, or after so much payload on all streams together.
    pub time: Option<Duration>,
    pub volume: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Cookie said; the server asks for the parameters.
    Greeted,
    Asked,
    /// The server waits for the streams.
    Streams,
    Opened,
    Started,
    /// Everything is open, and the server lets the streams go.
    Ready,
    Running,
    /// All has been sent; waits until it is there.
    Settling(Time),
    /// The end has been said.
    Ended,
    /// Waits for its own receivers, to tell what they got.
    Receiving,
    Told,
    Heard,
    Over,
}

pub struct Control {
    plan: Plan,
    test: Arc<Test>,
    talk: Talk,
    stage: Stage,
    since: Option<Time>,
    began: Option<Time>,
    drained: Drained,
    /// When nothing was left to be sent.
    settled: Option<Time>,
    /// The same, if the far system had acknowledged the last byte then.
    pub drained_at: Option<Time>,
    /// When the end was said.
    pub ended_at: Option<Time>,
    pub results: Option<Results>,
    /// Congestion control of this end's streams.
    pub congestion: Option<String>,
    fault: Option<String>,
}

impl Control {
    pub fn new(cookie: &Cookie, plan: Plan, test: Arc<Test>) -> Control {
        let mut talk = Talk::new();
        talk.say(cookie.bytes());
        Control {
            plan,
            test,
            talk,
            stage: Stage::Greeted,
            since: None,
            began: None,
            drained: Box::new(|| None),
            settled: None,
            drained_at: None,
            ended_at: None,
            results: None,
            congestion: None,
            fault: None,
        }
    }

    /// Whether the server waits for streams; they are open now.
    pub fn opened(&mut self, drained: Drained) -> bool {
        let waits = self.stage == Stage::Streams;
        if waits {
            self.drained = drained;
            self.enter(Stage::Opened);
            self.understand();
        }
        waits
    }

    /// The streams run from now on.
    pub fn run(&mut self) -> bool {
        let ready = self.stage == Stage::Ready;
        if ready {
            self.enter(Stage::Running);
            self.understand();
        }
        ready
    }

    fn enter(&mut self, stage: Stage) {
        (self.stage, self.since) = (stage, None);
    }

    fn fail(&mut self, why: impl Into<String>) {
        self.fault.get_or_insert(why.into());
    }

    /// What it has to have heard by now to go on.
    fn wants(&self) -> Option<State> {
        match self.stage {
            Stage::Greeted => Some(State::ParameterExchange),
            Stage::Asked => Some(State::CreateStreams),
            Stage::Opened => Some(State::TestStart),
            Stage::Started => Some(State::TestRunning),
            Stage::Ended => Some(State::ExchangeResults),
            Stage::Heard => Some(State::DisplayResults),
            _ => None,
        }
    }

    /// Goes on as far as what was heard allows.
    fn understand(&mut self) {
        while self.fault.is_none() {
            let before = (self.stage, self.talk.heard().len());
            // No results are so long that their length begins like an error.
            let is_error = self.talk.heard().first() == Some(&(State::ServerError as u8));
            match (self.stage, self.wants()) {
                (Stage::Told, _) if !is_error => self.hear_results(),
                (_, wanted) => self.hear_state(wanted),
            }
            if before == (self.stage, self.talk.heard().len()) {
                return;
            }
        }
    }

    fn hear_state(&mut self, wanted: Option<State>) {
        let Some(&first) = self.talk.heard().first() else { return };
        match State::read(first) {
            Some(State::AccessDenied) => {
                self.fail("the server is busy with another test, iperf3 does one at a time: try again later");
            }
            Some(State::ServerTerminates) => self.fail("the server was stopped"),
            Some(State::ServerError) => {
                // The numbers may still be on their way; closed without them it is an error all the same.
                if let Some(error) = self.talk.heard().get(1..1 + wire::ERROR) {
                    self.fail(wire::explain(error));
                }
            }
            Some(state) if wanted == Some(state) => {
                self.talk.byte();
                self.go_on();
            }
            // It speaks before it has to: later.
            Some(_) if wanted.is_none() => {}
            _ => self.fail(strange(self.talk.heard(), self.stage == Stage::Greeted)),
        }
    }

    fn go_on(&mut self) {
        let next = match self.stage {
            Stage::Greeted => {
                self.talk.say(&wire::framed(&self.plan.parameters.write()));
                Stage::Asked
            }
            Stage::Asked => Stage::Streams,
            Stage::Opened => Stage::Started,
            Stage::Started => Stage::Ready,
            Stage::Ended => Stage::Receiving,
            Stage::Heard => {
                self.talk.say(&[State::Done as u8]);
                Stage::Over
            }
            stage => stage,
        };
        self.enter(next);
    }

    fn hear_results(&mut self) {
        let streams = self.plan.parameters.streams();
        let results = self.talk.object(wire::LONGEST_RESULTS);
        match results.and_then(|object| object.map(|object| Results::read(&object, streams)).transpose()) {
            Ok(None) => {}
            Ok(Some(results)) => {
                self.results = Some(results);
                self.enter(Stage::Heard);
            }
            Err(error) => self.fail(format!("the server's results cannot be understood: {error}")),
        }
    }

    /// Whether the test is to end: both directions have done what was planned.
    fn has_run(&mut self, now: Time) -> bool {
        let began = *self.began.get_or_insert(now);
        let parameters = &self.plan.parameters;
        let receives = parameters.reverse || parameters.bidirectional;
        let enough = self.plan.time.is_some_and(|time| now.since(began) >= time)
            || self.plan.volume.is_some_and(|volume| self.test.received() >= volume);
        let received = !receives || enough || self.test.receivers() == 0;
        received && self.test.senders() == 0
    }

    /// What time alone brings about.
    fn look(&mut self, now: Time) {
        if self.stage == Stage::Running && self.has_run(now) {
            self.enter(Stage::Settling(now));
        }
        if let Stage::Settling(since) = self.stage {
            let sends = !self.plan.parameters.reverse;
            let drained = if sends && self.settled.is_none() { (self.drained)() } else { None };
            match drained {
                Some(false) => {}
                told => {
                    let settled = *self.settled.get_or_insert(now);
                    self.drained_at = self.drained_at.or(told.map(|_| settled));
                }
            }
            let wait = match self.plan.framing {
                _ if !sends => Duration::ZERO,
                // The other direction would have the link for itself meanwhile.
                Framing::Stream if self.plan.parameters.bidirectional => Duration::ZERO,
                Framing::Stream => READING,
                Framing::Message => ON_THE_WAY,
            };
            let waited = self.settled.is_some_and(|settled| now.since(settled) >= wait);
            if waited || now.since(since) >= self.plan.timeout.saturating_add(wait) {
                self.test.end();
                self.ended_at = Some(now);
                self.talk.say(&[State::TestEnd as u8]);
                self.enter(Stage::Ended);
            }
        }
        if self.stage == Stage::Receiving {
            let waited = self.ended_at.map_or(ENDING, |ended| now.since(ended));
            if self.test.receivers() == 0 || waited >= ENDING {
                self.talk.say(&wire::framed(&self.told().write()));
                self.enter(Stage::Told);
                self.understand();
            }
        }
    }

    /// What this end counted.
    fn told(&self) -> Results {
        let parameters = &self.plan.parameters;
        let ended = self.test.ended(parameters.streams());
        let seconds = |ended: &super::data::Ended| {
            let time = ended.first.zip(ended.last).map(|(first, last)| last.since(first));
            time.unwrap_or_default().as_secs_f64()
        };
        let longest = ended.iter().map(seconds).fold(0.0, f64::max);
        let cpu: f64 = ended.iter().map(|ended| ended.cpu_seconds).sum();
        let streams = ended.iter().map(|ended| wire::Counted {
            bytes: ended.bytes,
            retransmits: ended.retransmits,
            jitter_s: ended.jitter_s,
            lost: ended.missing,
            packets: ended.packets,
            omitted: Some(ended.omitted),
            seconds: seconds(ended),
        });
        Results {
            cpu_percent: if longest > 0.0 { 100.0 * cpu / longest } else { 0.0 },
            has_retransmits: (!parameters.reverse)
                .then(|| ended.iter().any(|ended| ended.retransmits.is_some())),
            congestion: self.congestion.clone(),
            streams: streams.collect(),
            text: None,
        }
    }

    /// Whether nothing is left to be done, or nothing can be done.
    pub fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }

    /// Until when the server may answer.
    fn answers_by(&mut self, now: Time) -> Time {
        let since = *self.since.get_or_insert(now);
        match self.ended_at {
            Some(ended) => ended + self.plan.timeout.saturating_add(ENDING),
            None => since + self.plan.timeout,
        }
    }
}

/// One line on what came instead of iperf3's words.
fn strange(heard: &[u8], at_once: bool) -> String {
    const SHOWN: usize = 16;
    let shown = heard[..heard.len().min(SHOWN)].escape_ascii();
    let more = if heard.len() > SHOWN { "…" } else { "" };
    match at_once {
        true => {
            format!("no iperf3 server is there, it says '{shown}{more}': name what it speaks with --peer")
        }
        false => format!("the server said '{shown}{more}' where iperf3 says something else"),
    }
}

impl Party for Control {
    fn next(&mut self, now: Time) -> Step<'_> {
        self.look(now);
        if let Some(fault) = self.fault.take() {
            self.test.break_off();
            self.stage = Stage::Over;
            return Step::Fail(Fault::Other(fault));
        }
        if !self.talk.is_said() {
            return self.talk.step(now);
        }
        let until = self.answers_by(now);
        match self.stage {
            Stage::Streams | Stage::Ready | Stage::Over => Step::Done,
            Stage::Running => {
                let planned = self.began.zip(self.plan.time).map(|(began, time)| began + time);
                let next = planned.filter(|&end| end > now).unwrap_or(now + LOOK);
                self.talk.step(next.min(now + GLANCE))
            }
            Stage::Settling(_) | Stage::Receiving => self.talk.step(now + LOOK),
            _ => self.talk.step(until),
        }
    }

    fn sent(&mut self, bytes: usize, _at: Time) {
        self.talk.sent(bytes);
    }

    fn received(&mut self, _now: Time) {
        match self.talk.received() {
            Ok(()) => self.understand(),
            Err(error) => self.fail(format!("the server cannot be understood: {error}")),
        }
    }

    fn timed_out(&mut self, _now: Time) {
        match self.stage {
            Stage::Running | Stage::Settling(_) | Stage::Receiving => {}
            Stage::Greeted => self.fail("no iperf3 server answered in time: name what is there with --peer"),
            _ => self.fail("the server did not answer in time: check that it runs, and --timeout"),
        }
    }

    fn closed(&mut self, _now: Time) -> Result<(), Fault> {
        let error = self.talk.heard().strip_prefix(&[State::ServerError as u8]).map(wire::explain);
        let why = match self.stage {
            // What is to come has been said.
            Stage::Heard | Stage::Over => {
                self.stage = Stage::Over;
                self.talk = Talk::new();
                return Ok(());
            }
            Stage::Asked => REFUSED.to_owned(),
            Stage::Greeted => BROKEN_OFF.to_owned(),
            Stage::Opened | Stage::Started => {
                "the server did not begin the test: does it limit the rate?".to_owned()
            }
            _ if self.plan.parameters.bidirectional => format!("the server broke off the test: {ONE_WAY}"),
            _ => "the server broke off the test: it was killed, it failed, or it limits the rate".to_owned(),
        };
        self.fail(error.unwrap_or(why));
        Ok(())
    }
}

/// The control connection while the streams run; afterwards the session has it back.
pub struct Leader {
    control: Option<Control>,
    home: Home,
    recorder: Recorder,
}

/// Where the control is when no thread has it.
pub type Home = Arc<Mutex<Option<Control>>>;

impl Leader {
    pub fn new(control: Control, recorder: Recorder) -> (Leader, Home) {
        let home = Home::default();
        (Leader { control: Some(control), home: home.clone(), recorder }, home)
    }
}

impl Party for Leader {
    fn next(&mut self, now: Time) -> Step<'_> {
        self.control.as_mut().map_or(Step::Done, |control| control.next(now))
    }

    fn sent(&mut self, bytes: usize, at: Time) {
        if let Some(control) = &mut self.control {
            control.sent(bytes, at);
        }
    }

    fn received(&mut self, now: Time) {
        if let Some(control) = &mut self.control {
            control.received(now);
        }
    }

    fn timed_out(&mut self, now: Time) {
        if let Some(control) = &mut self.control {
            control.timed_out(now);
        }
    }

    fn closed(&mut self, now: Time) -> Result<(), Fault> {
        self.control.as_mut().map_or(Err(Fault::Closed), |control| control.closed(now))
    }

    fn ended(&mut self, _cost: Cost) {
        *self.home.lock().unwrap_or_else(PoisonError::into_inner) = self.control.take();
    }
}

impl Measured for Leader {
    fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    fn into_recorder(self: Box<Self>) -> Recorder {
        self.recorder
    }
}
