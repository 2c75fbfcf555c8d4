//! The tests of a rate: for each setting of the catalogue the change that this transfer allows.

use linkgauge_engine::Registry;
use std::time::Duration;

use super::blocks::{RateBlock, RateChange};
use crate::explain::causes::{self, Cause, CauseFamily, Knob, RateKnob, Target};
use crate::explain::counters::{CountedCause, rates};
use linkgauge_model::plan::Direction;
use linkgauge_model::units::{format_duration, format_size};

/// Connections of the test with several.
const MORE_CONNECTIONS: u32 = 4;
/// Factor of the message size.
const MESSAGE_FACTOR: u32 = 4;
/// Streams with larger messages are tested with smaller ones.
const LARGE_MESSAGE_BYTES: u32 = 16_384;
/// Share of the rate that the test with less load offers.
const LOWER_RATE_SHARE: f64 = 0.8;
/// Kernels allow no larger buffers by default (net.core.rmem_max and wmem_max, doubled). Larger ones are halved.
const USUAL_LARGEST_BUFFER: f64 = 425_984.0;
/// Buffer that is requested where the buffer of the other end is unknown, in bytes.
const UNKNOWN_BUFFER_BYTES: u64 = 4 << 20;
/// Minimum share of losses that matters.
const MIN_LOSS_SHARE: f64 = 1e-3;
/// A queue below this, or a smaller growth of the round trip, does not matter.
const MIN_QUEUE_NS: f64 = 1e6;
const MIN_QUEUE_RATIO: f64 = 1.5;
/// The buffer of a link in memory, if its URL names none.
const MEMORY_BUFFER: &str = "1Mi";

/// A change that is compared with the baseline.
#[derive(Clone)]
pub(super) struct RateTest {
    pub(super) knob: RateKnob,
    pub(super) cause: &'static Cause,
    pub(super) changes: Vec<RateChange>,
    /// Description in words, like `4 connections`.
    pub name: String,
    /// The changed quantity as a multiple of that of the baseline, where it has one.
    pub(super) factor: Option<f64>,
    /// A counter agrees with the cause, so it is tested first.
    is_suspected: bool,
}

impl RateTest {
    /// Whether the change makes a limit larger, rather than smaller to see the effect.
    pub(super) fn removes_limit(&self) -> bool {
        self.knob != RateKnob::LowerRate && self.factor.is_none_or(|factor| factor > 1.0)
    }
}

/// A cause that nothing tests here, and why.
#[derive(Clone)]
pub(super) struct Untested {
    pub(super) cause: &'static Cause,
    pub(super) why: Untestable,
}

/// All tests, the most likely causes first.
pub(super) struct TestPlan {
    pub(super) tests: Vec<RateTest>,
    pub(super) untested: Vec<Untested>,
    /// The time that the tests need which did not fit.
    pub(super) needed: Option<Duration>,
}

impl TestPlan {
    /// Leaves out the last tests, so that at most `most` remain. `needed`: the time for all tests.
    pub(super) fn truncate(&mut self, most: usize, needed: Duration) {
        let needed = super::budget_for(needed);
        for test in self.tests.drain(most.min(self.tests.len())..) {
            let why = Untestable(format!("it needs more time. Try --time {}", format_duration(needed)));
            self.untested.push(Untested { cause: test.cause, why });
            self.needed = Some(needed);
        }
    }
}

/// The family of a cause of the catalogue.
pub(super) fn catalogued(id: &str) -> Option<(&'static CauseFamily, &'static Cause)> {
    causes::all().find(|(_, cause)| cause.id == id)
}

/// Facts about the transfer that the first block shows.
struct Context<'a> {
    screen: &'a RateBlock,
    target: &'a Target,
    direction: Direction,
}

/// The tests that this transfer allows. Causes that share a setting share its test.
pub(super) fn plan(screen: &RateBlock, target: &Target, counted: &[CountedCause]) -> TestPlan {
    let context = Context { screen, target, direction: screen.result.direction };
    let mut plan = TestPlan { tests: Vec::new(), untested: Vec::new(), needed: None };
    for (_, cause) in causes::all().filter(|(_, cause)| (cause.applies)(target)) {
        let Knob::Rate(knob) = cause.knob else { continue };
        let is_suspected = counted.iter().any(|counted| counted.id == cause.id);
        if let Some(known) = plan.tests.iter_mut().find(|test| test.knob == knob) {
            known.is_suspected |= is_suspected;
            continue;
        }
        match context.test(knob) {
            Ok((changes, name, factor)) => {
                plan.tests.push(RateTest { knob, cause, changes, name, factor, is_suspected })
            }
            Err(why) => plan.untested.push(Untested { cause, why }),
        }
    }
    // Less load is tested only where losses or a queue point at the link.
    plan.tests.sort_by_key(|test| (!test.is_suspected && test.knob != RateKnob::LowerRate, test.knob));
    plan
}

/// Reason why there is no test, in words that complete "not tested: ".
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Untestable(pub(super) String);

impl From<&str> for Untestable {
    fn from(why: &str) -> Untestable {
        Untestable(why.to_owned())
    }
}

/// The changes of a test, their name and their factor.
type KnobChange = Result<(Vec<RateChange>, String, Option<f64>), Untestable>;

impl Context<'_> {
    fn test(&self, knob: RateKnob) -> KnobChange {
        match knob {
            RateKnob::ReceiveBuffer if self.is_datagram() && !self.drops_in_socket() => {
                Err("the receiver's socket drops nothing".into())
            }
            RateKnob::ReceiveBuffer => self.buffer("rcvbuf", Direction::Receive),
            RateKnob::SendBuffer if self.target.has_option("buffer") => self.memory_buffer(),
            RateKnob::SendBuffer if self.is_datagram() => Err("datagrams do not wait for a window".into()),
            RateKnob::SendBuffer => self.buffer("sndbuf", Direction::Send),
            RateKnob::Connections if !self.target.caps.can_open_parallel => {
                Err("this link has one connection at a time".into())
            }
            RateKnob::Connections => Ok((
                vec![RateChange::Connections(MORE_CONNECTIONS)],
                format!("{MORE_CONNECTIONS} connections"),
                Some(f64::from(MORE_CONNECTIONS)),
            )),
            RateKnob::CongestionControl => self.congestion(),
            RateKnob::Pacing => match self.target.endpoint.option("pacing_rate") {
                None => Err("no pacing rate is set".into()),
                Some(_) => {
                    let change = RateChange::UrlOption("pacing_rate", None);
                    Ok((vec![change], "no pacing rate".to_owned(), None))
                }
            },
            RateKnob::Acknowledgements => self.acknowledgements(),
            RateKnob::LowerRate => self.lower_rate(),
            RateKnob::MessageSize => Ok(self.message_size()),
        }
    }

    fn is_datagram(&self) -> bool {
        self.target.caps.max_message_bytes.is_some()
    }

    fn drops_in_socket(&self) -> bool {
        self.screen.result.figures.counts.receiver_socket_drops.is_some_and(|drops| drops > 0)
    }

    /// Test without delayed acknowledgements at the receiver.
    fn acknowledgements(&self) -> KnobChange {
        if rates::delayed_acknowledgement_share(&self.screen.result).is_none() {
            return Err("acknowledgements are seldom delayed".into());
        }
        if self.direction == Direction::Receive {
            let change = RateChange::UrlOption("quickack", Some("1".to_owned()));
            return Ok((vec![change], "quickack=1 here".to_owned(), None));
        }
        self.server_option("server-quickack")?;
        let change = RateChange::ProtocolOption("server-quickack", "1".to_owned());
        Ok((vec![change], "quickack=1 at the server".to_owned(), None))
    }

    /// Whether the client can set this option of the server.
    fn server_option(&self, name: &str) -> Result<(), Untestable> {
        let protocol = Registry::standard().protocol(&self.screen.result.protocol);
        match protocol.is_some_and(|protocol| protocol.options.iter().any(|(known, _)| *known == name)) {
            true => Ok(()),
            false => Err(
                "the setting is that of the server. Try 'linkgauge serve' there, whose sockets the client can set"
                    .into(),
            ),
        }
    }

    /// Test with a different buffer at the end that sends (`Send`) or receives (`Receive`) the payload.
    fn buffer(&self, option: &'static str, role: Direction) -> KnobChange {
        let end = match role {
            Direction::Receive => rates::receiving_end(&self.screen.result),
            _ => rates::sending_end(&self.screen.result),
        };
        let gauge = match role {
            Direction::Receive => "socket_receive_buffer_bytes",
            _ => "socket_send_buffer_bytes",
        };
        let current = end.and_then(|end| end.gauge(gauge)).map(|gauge| gauge.max as f64);
        // The kernel doubles what is requested, to have room for its own data.
        let (bytes, factor) = match current {
            None => (UNKNOWN_BUFFER_BYTES, None),
            Some(current) if current < USUAL_LARGEST_BUFFER => (current as u64, Some(2.0)),
            Some(current) => ((current / 4.0) as u64, Some(0.5)),
        };
        let is_server = match self.direction {
            Direction::Send => role == Direction::Receive,
            Direction::Receive => role == Direction::Send,
            _ => return Err("payload flows both ways. Try --direction upload or download".into()),
        };
        let size = format_size(bytes);
        if !is_server {
            if !self.target.has_option(option) {
                return Err(Untestable(format!("this link has no option {option}")));
            }
            let change = RateChange::UrlOption(option, Some(bytes.to_string()));
            return Ok((vec![change], format!("{option}={size} here"), factor));
        }
        let of_server = match option {
            "rcvbuf" => "server-rcvbuf",
            _ => "server-sndbuf",
        };
        self.server_option(of_server)?;
        let change = RateChange::ProtocolOption(of_server, bytes.to_string());
        Ok((vec![change], format!("{option}={size} at the server"), factor))
    }

    /// Test with twice the buffer of a link in memory.
    fn memory_buffer(&self) -> KnobChange {
        let text = self.target.endpoint.option("buffer").unwrap_or(MEMORY_BUFFER);
        let bytes =
            linkgauge_model::units::parse_bytes(text).map_err(|error| Untestable(error.to_string()))?;
        let change = RateChange::UrlOption("buffer", Some((2 * bytes).to_string()));
        Ok((vec![change], format!("buffer={}", format_size(2 * bytes)), Some(2.0)))
    }

    fn congestion(&self) -> KnobChange {
        const MODERN: &str = "bbr";
        if self.screen.loss_share().is_none_or(|share| share < MIN_LOSS_SHARE) {
            return Err("no segments are sent again".into());
        }
        if self.direction != Direction::Send {
            return Err(
                "the server sends, so its congestion control decides. Try 'congestion=bbr' there".into()
            );
        }
        if self.target.endpoint.option("congestion") == Some(MODERN) {
            return Err(Untestable(format!("congestion={MODERN} is set already")));
        }
        let change = RateChange::UrlOption("congestion", Some(MODERN.to_owned()));
        Ok((vec![change], format!("congestion={MODERN}"), None))
    }

    /// A lower rate, if the screen shows a queue or losses that could vanish with it.
    fn lower_rate(&self) -> KnobChange {
        let loses = self.screen.loss_share().is_some_and(|share| share >= MIN_LOSS_SHARE);
        let shortest = self.screen.shortest_round_trip_ns().unwrap_or(0.0);
        let is_queued = self.screen.round_trip_ns().is_some_and(|round_trip| {
            round_trip - shortest > MIN_QUEUE_NS && round_trip > MIN_QUEUE_RATIO * shortest
        });
        if !loses && !is_queued {
            return Err("neither losses nor a queue show".into());
        }
        let rate = LOWER_RATE_SHARE * self.screen.rate_bps;
        let name = format!("{:.0} % of the rate", 100.0 * LOWER_RATE_SHARE);
        Ok((vec![RateChange::OfferedRate(rate)], name, Some(LOWER_RATE_SHARE)))
    }

    /// Smaller messages; larger ones if they are small, unless each is a packet.
    fn message_size(&self) -> (Vec<RateChange>, String, Option<f64>) {
        let bytes = self.screen.result.message_bytes;
        let is_larger = bytes < LARGE_MESSAGE_BYTES && self.target.caps.max_message_bytes.is_none();
        let factor = f64::from(MESSAGE_FACTOR);
        let (bytes, factor) = match is_larger {
            true => (bytes.saturating_mul(MESSAGE_FACTOR), factor),
            false => ((bytes / MESSAGE_FACTOR).max(1), 1.0 / factor),
        };
        (
            vec![RateChange::MessageBytes(bytes)],
            format!("messages of {}", format_size(bytes.into())),
            Some(factor),
        )
    }
}
