//! `linkgauge latency`.

use std::collections::BTreeMap;

use anyhow::Result;
use clap::Args;
use linkgauge::plan::CaseSpec;
use linkgauge::units::{MessageRate, RateTarget, Span};

use super::Status;
use super::measure::{CaseFlags, run_spec};

/// Measure round-trip times, one message at a time or on a schedule
///
/// Without --rate the next message leaves when the answer to the last one is here. With --rate messages leave on a
/// schedule, whatever became of those before; then the response time (from when a message was due) stands beside the
/// service time (from when it was sent), and no stall is hidden.
#[derive(Args)]
pub struct Flags {
    /// Send on a schedule, like 100/s; max: the next request leaves when the reply is here [default: max; for icmp 10/s]
    #[arg(long, value_name = "RATE|max", group = "schedule")]
    rate: Option<RateTarget<MessageRate>>,
    /// Time between requests, like 10ms; a plain number is seconds, 0 is max: --rate as a period
    #[arg(long, short = 'i', value_name = "TIME", group = "schedule", conflicts_with = "rate")]
    every: Option<Span>,
    /// With --rate: exponential gaps instead of equal ones
    #[arg(long, requires = "schedule")]
    poisson: bool,
    /// Seed of the Poisson schedule
    #[arg(long, value_name = "N", requires = "poisson")]
    seed: Option<u64>,
    /// Count exchanges later than these, or lost; with --rate also missed frames: later than these after they were due
    /// [default: 50ms,100ms,200ms,300ms; with --rate 16.7ms,50ms,100ms]
    #[arg(long, value_name = "TIMES", value_delimiter = ',')]
    late: Vec<Span>,
    // Last: the headings of these groups would take in what follows.
    #[command(flatten)]
    case: CaseFlags,
    #[command(flatten)]
    ask: AskFlags,
    #[command(flatten)]
    pakbus: PakbusFlags,
    #[command(flatten)]
    stamp: StampFlags,
}

/// Which logger's clock to read; options of `--peer pakbus`.
#[derive(Args)]
#[command(next_help_heading = "Peer pakbus")]
struct PakbusFlags {
    /// PakBus address of the logger whose clock is read; pakbus://host:6785/ADDRESS says it as well [default: 1]
    #[arg(long, value_name = "ADDRESS")]
    node: Option<String>,
    /// Security code of the logger [default: none]
    #[arg(long, value_name = "CODE")]
    security: Option<String>,
}

/// What to ask a device that answers but does not echo; options of `--peer ask`.
#[derive(Args)]
#[command(next_help_heading = "Peer ask")]
struct AskFlags {
    /// The request, with \r \n \t \0 \\ \xHH as escapes, or in hexadecimal: 'hex:01 03 0A'
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    send: Option<String>,
    /// The answer ends with these bytes, written as those of --send
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    until: Option<String>,
    /// The answer always has so many bytes
    #[arg(long, value_name = "N")]
    reply_bytes: Option<String>,
    /// The answer says its length: offset and size of the field, big or little, what to add (Modbus/TCP: 4,2,big,6)
    #[arg(long, value_name = "FIELD", allow_hyphen_values = true)]
    reply_length: Option<String>,
    /// Bytes that must stand in the answer, or it counts as corrupt
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    expect: Option<String>,
}

/// The options of peers as a plan holds them; the peer checks them.
fn protocol_options(question: AskFlags, logger: PakbusFlags) -> BTreeMap<String, String> {
    let named = [
        ("send", question.send),
        ("until", question.until),
        ("reply-bytes", question.reply_bytes),
        ("reply-length", question.reply_length),
        ("expect", question.expect),
        ("node", logger.node),
        ("security", logger.security),
    ];
    named.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// How test packets are sent; options of `--peer stamp`.
#[derive(Args)]
#[command(next_help_heading = "Peer stamp")]
struct StampFlags {
    /// Sign packets with the token (--token-file), and believe signed ones only
    #[arg(long)]
    authenticated: bool,
}

pub fn run(flags: Flags) -> Result<Status> {
    let mut peer_options = protocol_options(flags.ask, flags.pakbus);
    if flags.stamp.authenticated {
        peer_options.insert("authenticated".to_owned(), "true".to_owned());
    }
    let every = flags.every.map(|period| match period.0.as_secs_f64() {
        0.0 => RateTarget::Max,
        seconds => RateTarget::Fixed(MessageRate(1.0 / seconds)),
    });
    let spec = CaseSpec {
        rate: flags.rate.or(every),
        poisson: Some(flags.poisson),
        seed: flags.seed,
        late: (!flags.late.is_empty()).then_some(flags.late),
        peer_options,
        ..flags.case.spec("latency")?
    };
    run_spec(spec, &flags.case.plan)
}
